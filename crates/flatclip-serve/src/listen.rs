//! Accepts connections, and shuts down gracefully.

use crate::connections::{Connections, Place};
use crate::timeout::{Arriving, IDLE, Phase, TimeoutStream, Timeouts};
use crate::{App, Client};
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Maximum size of a request's head in bytes.
const HEAD: usize = 16 << 10;

/// Maximum number of connections that are being refused at the same time.
const REFUSALS: usize = 8;
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 121\r\n\r\n\
    {\"error\":{\"code\":\"server.unavailable\",\"message\":\"too many connections\",\"hint\":\"send it again after Retry-After seconds\"}}";

/// Serves until `stop` completes, then finishes accepted requests.
pub(crate) async fn serve(app: Arc<App>, router: Router, listener: TcpListener, stop: impl Future<Output = ()> + Send) {
    let graceful = GracefulShutdown::new();
    let connections = Connections::new(app.config.limits.connections);
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    tracing::debug!(most = connections.most, "connections");
    let mut told: Option<Instant> = None;
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let (client, phase) = (Client::of(address.ip()), Phase::default());
                    match connections.enter(client, phase.clone()) {
                        Some(place) => {
                            place.is_free().await;
                            connect(&app, &router, stream, (client, phase, place), &graceful);
                        }
                        None => refuse(stream, &refusals),
                    }
                }
                // Too many open files, or a client that disconnected at once: later connections may succeed.
                Err(error) => {
                    if told.is_none_or(|told| told.elapsed() > Duration::from_secs(60)) {
                        told = Some(Instant::now());
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            () = &mut stop => break,
        }
    }
    app.stopping.store(true, Ordering::Release);
    drop(listener);
    tracing::info!("stopping: no new connections, what was accepted is finished");
    let drained = tokio::time::timeout(Duration::from_millis(app.config.limits.drain_ms), graceful.shutdown()).await;
    if drained.is_err() {
        tracing::warn!("some connections were still open when the time for draining was over");
    }
    app.builds.close();
    app.queue.close();
}

/// Refuses a connection with a response, unless too many are being refused already.
fn refuse(stream: TcpStream, refusals: &Arc<Semaphore>) {
    let Ok(turn) = Arc::clone(refusals).try_acquire_owned() else { return };
    tokio::spawn(async move {
        let told = async {
            stream.writable().await?;
            stream.try_write(REFUSAL)?; // few enough bytes for the buffer of a new socket
            // Discard what the client sends: closing a socket with unread data would reset it before the response is read.
            let mut rest = [0; 4096];
            loop {
                stream.readable().await?;
                match stream.try_read(&mut rest) {
                    Ok(0) => return Ok::<(), std::io::Error>(()),
                    Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
                    _ => {}
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(500), told).await;
        drop(turn);
    });
}

fn connect(
    app: &Arc<App>,
    router: &Router,
    stream: TcpStream,
    (client, phase, place): (Client, Phase, Place),
    graceful: &GracefulShutdown,
) {
    let _ = stream.set_nodelay(true);
    let limits = &app.config.limits;
    let write = Duration::from_millis(limits.write_ms);
    let timeouts = Timeouts { head: limits.read_time(), write, stopping: Arc::clone(&app.stopping) };
    let stream = TimeoutStream::new(stream, phase.clone(), timeouts);
    let routes = TowerToHyperService::new(router.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(client);
        let version = request.version();
        let request = request.map(|body| Arriving::new(body, phase.clone(), version));
        phase.clone().request(routes.call(request))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD.max(64 << 10))
        .max_header_size(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let watched = graceful.watch(connection);
    let place = Arc::new(place);
    let own = Arc::clone(&place);
    let task = tokio::spawn(async move {
        let _place = own;
        if let Err(error) = watched.await {
            tracing::debug!(%error, "a connection ended");
        }
    });
    place.runs(task.abort_handle());
}
