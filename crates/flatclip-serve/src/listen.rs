//! Accepts connections, and stops without losing what was accepted.

use crate::app::App;
use crate::patience::{IDLE, Patient, Phase};
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a request's head.
const HEAD: usize = 16 << 10;

/// Serves until `stop` is done, then drains.
pub(crate) async fn serve(app: Arc<App>, router: Router, listener: TcpListener, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let connections = Arc::new(Semaphore::new(app.config.limits.connections));
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let permit = Arc::clone(&connections).acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        tokio::select! {
            (accepted, permit) = accepted => match accepted {
                Ok((stream, _)) => connect(&app, &router, stream, permit, &graceful),
                // Too many open files, or a client that left at once: others may come through later.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            () = &mut stop => break,
        }
    }
    drop(listener);
    app.stop();
    tracing::info!("stopping: no new connections, what was accepted is finished");
    let drained = tokio::time::timeout(Duration::from_millis(app.config.limits.drain_ms), graceful.shutdown()).await;
    if drained.is_err() {
        tracing::warn!("some connections were still open when the time for draining was over");
    }
    app.queue.close();
}

fn connect(
    app: &Arc<App>,
    router: &Router,
    stream: TcpStream,
    permit: Option<OwnedSemaphorePermit>,
    graceful: &GracefulShutdown,
) {
    let _ = stream.set_nodelay(true);
    let phase = Phase::default();
    let stream = Patient::new(stream, phase.clone(), app.config.limits.read_time());
    let routes = TowerToHyperService::new(router.clone());
    let service = service_fn(move |request: hyper::Request<Incoming>| phase.clone().request(routes.call(request)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .max_buf_size(HEAD.max(64 << 10))
        .max_header_size(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let watched = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = watched.await {
            tracing::debug!(%error, "a connection ended");
        }
        drop(permit);
    });
}
