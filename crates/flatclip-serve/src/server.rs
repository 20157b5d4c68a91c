//! The server: start, run and shutdown.

use crate::{App, Config};
use crate::{layers, listen, routes};
use axum::Router;
use flatclip::{Error, Result};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tower_http::catch_panic::CatchPanicLayer;

/// A server whose models are loaded and whose port is open.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
    stop: watch::Sender<bool>,
}

/// The backlog of the listening socket.
const BACKLOG: i32 = 1024;

/// Stops a server from another thread.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Stops accepting connections; accepted requests are finished.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Loads the models and opens the port; a wrong configuration is an error here.
    pub fn bind(config: Config) -> Result<Self> {
        let bind = config.bind;
        let failed = |error| Error::io(bind.to_string())(error);
        let app = App::new(config)?;
        let listener = TcpListener::bind(bind).map_err(failed)?;
        // More than the default: in a burst, clients wait in the backlog instead of retrying a second later.
        rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { app, listener, address, stop: watch::Sender::new(false) })
    }

    /// The address it listens on; with port 0 in the configuration, the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A handle to stop it from another thread.
    pub fn stopper(&self) -> Stop {
        Stop(self.stop.clone())
    }

    /// Serves until SIGTERM, SIGINT or [`Stop::stop`]; SIGHUP reloads the configuration file. If the warm-up of a model fails,
    /// the server stops with its error.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(connection_threads())
            .enable_all()
            .build()
            .map_err(Error::io("runtime"))?;
        let Self { app, listener, stop, .. } = self;
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).map_err(Error::io("socket"))?;
            let warming = Arc::clone(&app);
            let (failed, failure) = oneshot::channel();
            tokio::task::spawn_blocking(move || warming.warm_up().or_else(|error| failed.send(error)));
            tokio::spawn(reload_on_hangup(Arc::clone(&app)));
            let watching = tokio::spawn(Arc::clone(&app).watch_memory());
            let routes = with_layers(&app);
            let (why, mut ended) = oneshot::channel();
            let end = async move {
                tokio::select! {
                    () = stopped(stop.subscribe()) => {}
                    Ok(error) = failure => drop(why.send(error)),
                }
            };
            // On a thread of the runtime, so that it can serve the connection without a thread switch.
            let served = tokio::spawn(listen::serve(app, routes, listener, end)).await;
            watching.abort();
            served.map_err(|error| Error::io("server")(std::io::Error::other(error)))?;
            ended.try_recv().map_or(Ok(()), Err)
        })
    }
}

/// Number of threads that serve connections: more than processors, so that a request that needs some milliseconds does not
/// delay others.
fn connection_threads() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| (2 * cores.get()).clamp(4, 16))
}

/// The routes without a socket, for tests and for programs with their own server; models are not warmed up.
pub fn router(config: Config) -> Result<Router> {
    Ok(with_layers(&App::new(Config { warm_up: false, ..config })?))
}

fn with_layers(app: &Arc<App>) -> Router {
    use axum::middleware::from_fn_with_state;
    let routes = routes::all().layer(from_fn_with_state(Arc::clone(app), layers::authorise));
    let routes = match layers::cross_origin(&app.config) {
        Some(layer) => routes.layer(layer),
        None => routes,
    };
    routes
        .layer(CatchPanicLayer::custom(layers::panicked))
        .layer(from_fn_with_state(Arc::clone(app), layers::frame))
        .with_state(Arc::clone(app))
}

/// Completes when the server should stop.
async fn stopped(mut stop: watch::Receiver<bool>) {
    use tokio::signal::unix::{SignalKind, signal};
    let asked = stop.wait_for(|&stop| stop);
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = asked => {}
            }
        }
        _ => drop(asked.await),
    }
}

async fn reload_on_hangup(app: Arc<App>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    while hangup.recv().await.is_some() {
        let app = Arc::clone(&app);
        let _ = tokio::task::spawn_blocking(move || {
            if let Err(error) = app.reload() {
                tracing::error!(%error, "the configuration was not read again; what was loaded stays");
            }
        })
        .await;
    }
}
