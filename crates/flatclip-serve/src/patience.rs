//! Two kinds of patience with a connection: long while it is idle between requests, short for the head of the first one and
//! once the head of a later one has begun.
//! hyper has one limit for both, so it gets the long one, and the stream itself keeps the short one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// How long a connection may be idle between two requests.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// A new connection is one whose head is due.
const IN_HEAD: u8 = 0;
const BETWEEN: u8 = 1;
const IN_REQUEST: u8 = 2;

/// Where a connection is.
#[derive(Clone, Default)]
pub(crate) struct Phase(Arc<AtomicU8>);

impl Phase {
    fn is(&self, phase: u8) -> bool {
        self.0.load(Ordering::Acquire) == phase
    }

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Release);
    }

    /// Runs a request: its head is over, and the next begins only after its answer.
    pub(crate) async fn request<T>(self, answer: impl Future<Output = T>) -> T {
        self.set(IN_REQUEST);
        let answer = answer.await;
        self.set(BETWEEN);
        answer
    }
}

/// A stream that gives up on a head that takes too long.
pub(crate) struct Patient {
    stream: TcpStream,
    phase: Phase,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Patient {
    pub(crate) fn new(stream: TcpStream, phase: Phase, limit: Duration) -> Self {
        Self { stream, phase, limit, timer: Box::pin(sleep(limit)) }
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before && self.phase.is(BETWEEN) {
            self.phase.set(IN_HEAD);
            let end = Instant::now() + self.limit;
            self.timer.as_mut().reset(end);
        }
        if self.phase.is(IN_HEAD) && self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
        }
        done
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    async fn read(server: &mut Patient) -> std::io::Result<usize> {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        std::future::poll_fn(|cx| Pin::new(&mut *server).poll_read(cx, &mut buf)).await?;
        Ok(buf.filled().len())
    }

    #[tokio::test]
    async fn a_head_must_end_soon_and_an_idle_connection_may_wait() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (phase, long) = (Phase::default(), Duration::from_millis(150));
        let mut server = Patient::new(listener.accept().await.unwrap().0, phase.clone(), Duration::from_millis(50));
        // A request whose head is over has as long as it needs.
        client.write_all(b"G").unwrap();
        assert_eq!(read(&mut server).await.unwrap(), 1);
        assert!(phase.clone().request(tokio::time::timeout(long, read(&mut server))).await.is_err());
        // Idle beyond the limit: no error.
        assert!(tokio::time::timeout(long, read(&mut server)).await.is_err());
        // A head that does not go on is given up.
        client.write_all(b"G").unwrap();
        assert_eq!(read(&mut server).await.unwrap(), 1);
        assert_eq!(read(&mut server).await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        // Nor is one waited for that never begins.
        let _silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().await.unwrap().0;
        let mut server = Patient::new(stream, Phase::default(), Duration::from_millis(50));
        assert_eq!(read(&mut server).await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}
