//! Clients are identified by their address, so that limits per client can be enforced.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
