//! Clients are identified by their address, so that limits per client can be enforced.

use crate::queue::{self, Ticket};
use crate::{App, Charge, Problem, Weight};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot::Receiver;

/// An address; for IPv6 the /64 network, since one host can use all of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(pub(crate) IpAddr);

impl Client {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Self(if address.is_loopback() { address.into() } else { Ipv6Addr::from(network).into() })
            }
            address => Self(address),
        }
    }
}

/// The client of requests without a socket.
impl Default for Client {
    fn default() -> Self {
        Self(Ipv4Addr::LOCALHOST.into())
    }
}

/// The client of a request, and the deadline of its answer.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) app: Arc<App>,
    pub(crate) client: Client,
    pub(crate) deadline: Instant,
}

impl Caller {
    /// Reserves memory for answers before they are computed.
    pub(crate) fn answer_memory(&self, bytes: usize) -> Result<Charge, Problem> {
        let most = self.app.config.limits.answer_bytes;
        if bytes > most {
            return Err(Problem::too_much("bytes of the answer", bytes, most)
                .with_hint("ask for fewer images, a smaller top_k, or without explain"));
        }
        self.app.held.take(self.client, bytes).map_err(crate::upload::short)
    }

    pub(crate) fn admit(&self, images: usize, weight: Weight) -> Result<Ticket, Problem> {
        self.app.queue.admit(self.client, images, weight)
    }

    pub(crate) async fn wait<T>(&self, answer: Receiver<Result<T, Problem>>) -> Result<T, Problem> {
        queue::wait(answer, self.deadline).await
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        ticket: Ticket,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        self.app.queue.run(ticket, self.deadline, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_client() {
        let client = |text: &str| Client::of(text.parse().unwrap());
        assert_eq!(client("::ffff:10.0.0.1"), client("10.0.0.1"));
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:2"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        assert_ne!(client("127.0.0.1"), client("127.0.0.2"));
    }
}
