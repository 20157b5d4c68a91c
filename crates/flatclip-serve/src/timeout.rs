//! Timeouts of a connection: long while it is idle between requests, short for the head of the first request and once the head
//! of a later one has begun. hyper has one limit for both, so it gets the long one, and the stream enforces the short one. A
//! client that does not read its response is disconnected, sooner when the server is stopping. A client that stops sending and
//! waits (a half-closed connection) is distinguished from one that has disconnected.

use crate::lock;
use axum::body::Bytes;
use hyper::Version;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// How long a connection may be idle between two requests.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// Waiting for the head of a request; the initial phase of a connection.
const IN_HEAD: u8 = 0;
const BETWEEN: u8 = 1;
pub(crate) const IN_REQUEST: u8 = 2;
/// The whole request has arrived, and nothing of the response has been written yet.
const IN_ANSWER: u8 = 3;
/// The same for HTTP/1.0, whose clients do not accept interim responses.
const IN_OLD_ANSWER: u8 = 4;

#[derive(Clone, Default)]
pub(crate) struct Phase(Arc<Shared>);

#[derive(Default)]
struct Shared {
    phase: AtomicU8,
    /// Time of the last transfer in either direction.
    active: Mutex<Option<Instant>>,
}

/// After a response, a connection counts as idle when nothing was transferred for this long; before that, the response may
/// still be in transit.
const QUIET: Duration = Duration::from_millis(500);

impl Phase {
    fn is(&self, phase: u8) -> bool {
        self.0.phase.load(Ordering::Acquire) == phase
    }

    pub(crate) fn set(&self, phase: u8) {
        self.0.phase.store(phase, Ordering::Release);
    }

    fn touch(&self) {
        *lock(&self.0.active) = Some(Instant::now());
    }

    /// Whether the connection can be closed safely: no request has begun, or its response was read some time ago.
    pub(crate) fn is_idle(&self) -> bool {
        let active = *lock(&self.0.active);
        self.is(IN_HEAD) || self.is(BETWEEN) && active.is_none_or(|active| active.elapsed() > QUIET)
    }

    /// Runs a request: its head is over, and the next begins only after its answer.
    pub(crate) async fn request<T>(self, answer: impl Future<Output = T>) -> T {
        let answer = answer.await;
        self.touch();
        self.set(BETWEEN);
        answer
    }
}

/// A request body that records when all of it has arrived: from then on the client may stop sending.
pub(crate) struct Arriving {
    body: Incoming,
    phase: Phase,
    version: Version,
}

impl Arriving {
    /// The body of a request that begins here.
    pub(crate) fn new(body: Incoming, phase: Phase, version: Version) -> Self {
        phase.set(IN_REQUEST);
        let arriving = Self { body, phase, version };
        arriving.look();
        arriving
    }

    fn look(&self) {
        if self.body.is_end_stream() && self.phase.is(IN_REQUEST) {
            self.phase.set(if self.version < Version::HTTP_11 { IN_OLD_ANSWER } else { IN_ANSWER });
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.look();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Sent once to a client that stopped sending. If it has disconnected, this fails and its jobs are dropped; otherwise they
/// continue.
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// How often to check whether the probe failed.
const PROBED: Duration = Duration::from_millis(50);
/// How long a handler may take to read the end of a body before the request counts as aborted, and how often this is checked.
const TAKING: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_millis(2);

/// Bytes of a response that count as progress: a client that reads one byte at a time counts as not reading.
const TAKEN: usize = 8 << 10;
/// Timeout for a client that does not read while the server is stopping.
const STOPPING: Duration = Duration::from_secs(2);
/// How often to check whether the server is stopping.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Clone)]
pub(crate) struct Timeouts {
    /// For the head of a request.
    pub(crate) head: Duration,
    /// For a client that does not read.
    pub(crate) write: Duration,
    pub(crate) stopping: Arc<AtomicBool>,
}

/// A stream with timeouts: for the head of a request, and for a client that does not read.
pub(crate) struct TimeoutStream {
    stream: TcpStream,
    phase: Phase,
    limits: Timeouts,
    timer: Pin<Box<Sleep>>,
    /// Since when the client has read less than [`TAKEN`] bytes, and how many it has read since.
    stuck: Option<(Instant, usize)>,
    write_timer: Pin<Box<Sleep>>,
    /// Whether all written bytes have been flushed.
    flushed: bool,
    probed: bool,
    /// When the end of the client's data was first seen.
    ended: Option<Instant>,
}

impl TimeoutStream {
    pub(crate) fn new(stream: TcpStream, phase: Phase, limits: Timeouts) -> Self {
        let timer = Box::pin(sleep(limits.head));
        Self {
            stream,
            phase,
            limits,
            timer,
            stuck: None,
            write_timer: Box::pin(sleep(LOOK)),
            flushed: true,
            probed: false,
            ended: None,
        }
    }

    /// Handles a client that has stopped sending before its response: it waits, or it has disconnected.
    fn after_end(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.phase.is(IN_ANSWER) && self.flushed && !self.probed {
            self.probed = true;
            self.stream.try_write(PROBE)?;
        }
        if let Some(error) = self.stream.take_error()? {
            return Poll::Ready(Err(error));
        }
        // The timer is unused once the head has been read.
        wake(&mut self.timer, cx, PROBED)
    }

    /// Checks the result of a write: an error if the client has not read enough for too long.
    fn after_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<std::io::Result<T>>,
        count: impl Fn(&T) -> usize,
    ) -> Poll<std::io::Result<T>> {
        if let Poll::Ready(Ok(taken)) = &done {
            self.flushed &= count(taken) == 0;
            self.phase.touch();
            if let Some((_, since)) = &mut self.stuck {
                *since += count(taken);
            }
            if self.stuck.is_some_and(|(_, since)| since >= TAKEN) {
                self.stuck = None;
            }
        }
        if !done.is_pending() {
            return done;
        }
        let now = Instant::now();
        let (start, _) = *self.stuck.get_or_insert((now, 0));
        let is_stopping = self.limits.stopping.load(Ordering::Acquire);
        let limit = if is_stopping { self.limits.write.min(STOPPING) } else { self.limits.write };
        if now >= start + limit {
            return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
        }
        wake(&mut self.write_timer, cx, LOOK.min(limit))
    }
}

/// Wakes the task after a delay.
fn wake<T>(timer: &mut Pin<Box<Sleep>>, cx: &mut Context<'_>, after: Duration) -> Poll<T> {
    loop {
        timer.as_mut().reset(Instant::now() + after);
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
    }
}

impl AsyncRead for TimeoutStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(cx, buf);
        let has_ended = matches!(done, Poll::Ready(Ok(()))) && buf.filled().len() == before && buf.remaining() > 0;
        if has_ended && (self.phase.is(IN_ANSWER) || self.phase.is(IN_OLD_ANSWER)) {
            return self.after_end(cx);
        }
        // The end may be seen before the handler has read the rest of the body.
        if has_ended && self.phase.is(IN_REQUEST) && self.ended.get_or_insert_with(Instant::now).elapsed() < TAKING {
            return wake(&mut self.timer, cx, SOON);
        }
        if buf.filled().len() > before && self.phase.is(BETWEEN) {
            self.phase.set(IN_HEAD);
            let end = Instant::now() + self.limits.head;
            self.timer.as_mut().reset(end);
        }
        if self.phase.is(IN_HEAD) && self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
        }
        done
    }
}

impl AsyncWrite for TimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.after_write(cx, done, |&count| count)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        if done.is_ready() {
            (self.stuck, self.flushed) = (None, true); // all bytes were accepted
        }
        self.after_write(cx, done, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.after_write(cx, done, |()| 0)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.after_write(cx, done, |&count| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    async fn read(server: &mut TimeoutStream) -> std::io::Result<usize> {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        std::future::poll_fn(|cx| Pin::new(&mut *server).poll_read(cx, &mut buf)).await?;
        Ok(buf.filled().len())
    }

    fn timeouts(head: u64) -> Timeouts {
        let write = Duration::from_millis(300);
        Timeouts { head: Duration::from_millis(head), write, stopping: Arc::default() }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off_and_one_that_reads_is_not() {
        async fn write_all(server: &mut TimeoutStream, mut bytes: &[u8]) -> std::io::Result<()> {
            while !bytes.is_empty() {
                let count = std::future::poll_fn(|cx| Pin::new(&mut *server).poll_write(cx, bytes)).await?;
                bytes = &bytes[count..];
            }
            Ok(())
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _deaf = std::net::TcpStream::connect(address).unwrap();
        let mut server = TimeoutStream::new(listener.accept().await.unwrap().0, Phase::default(), timeouts(50));
        let bytes = vec![0; 64 << 20];
        let start = std::time::Instant::now();
        let error =
            tokio::time::timeout(Duration::from_secs(20), write_all(&mut server, &bytes)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
        assert!(start.elapsed() < Duration::from_secs(10));
        let mut reader = std::net::TcpStream::connect(address).unwrap();
        let mut server = TimeoutStream::new(listener.accept().await.unwrap().0, Phase::default(), timeouts(50));
        let reads = std::thread::spawn(move || {
            use std::io::Read as _;
            let (mut all, mut part) = (0, vec![0; 1 << 20]);
            while all < 64 << 20 {
                all += reader.read(&mut part).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        write_all(&mut server, &bytes).await.unwrap();
        reads.join().unwrap();
    }

    #[tokio::test]
    async fn a_head_must_end_soon_and_an_idle_connection_may_wait() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (phase, long) = (Phase::default(), Duration::from_millis(150));
        let mut server = TimeoutStream::new(listener.accept().await.unwrap().0, phase.clone(), timeouts(50));
        // A request with a complete head has no time limit here.
        client.write_all(b"G").unwrap();
        assert_eq!(read(&mut server).await.unwrap(), 1);
        phase.set(IN_REQUEST);
        assert!(phase.clone().request(tokio::time::timeout(long, read(&mut server))).await.is_err());
        // Idle beyond the limit: no error.
        assert!(tokio::time::timeout(long, read(&mut server)).await.is_err());
        // An incomplete head times out.
        client.write_all(b"G").unwrap();
        assert_eq!(read(&mut server).await.unwrap(), 1);
        assert_eq!(read(&mut server).await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        // So does a head that never starts.
        let _silent = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().await.unwrap().0;
        let mut server = TimeoutStream::new(stream, Phase::default(), timeouts(50));
        assert_eq!(read(&mut server).await.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    }
}
