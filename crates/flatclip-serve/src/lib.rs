//! A server for flatclip: classification and embeddings over HTTP, with its own API and the APIs of Hugging Face's task,
//! OpenAI's embeddings and the Open Inference Protocol, and a web page that shows the selected views of an image.
//!
//! It computes nothing itself: everything goes through the facade of the library. Safe by default: it listens on this machine
//! only unless a key is set, with limits on bytes, pixels, names, views, connections and time. The command is `flatclip serve`.
//!
//! ```no_run
//! # fn main() -> flatclip::Result<()> {
//! let server = flatclip_serve::Server::bind(flatclip_serve::Config::default())?;
//! println!("http://{}", server.address());
//! server.run()
//! # }
//! ```

mod answer;
mod app;
mod ask;
mod budget;
mod builds;
mod cache;
mod catalogue;
mod client;
mod config;
mod connections;
mod cost;
mod docs;
mod guard;
mod key;
mod lanes;
mod layers;
mod listen;
mod memory;
mod metrics;
mod openapi;
mod problem;
mod queue;
mod routes;
mod server;
mod sessions;
mod statistics;
mod stream;
mod timeout;
mod typed;
mod upload;
mod uploads;
mod work;

use app::App;
use budget::{Budget, Charge, Short};
use client::{Caller, Client};
use lanes::Weight;
use problem::Problem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use config::{ClassSet, Config, Limits, ModelEntry, PromptEntry};
pub use key::Key;
pub use openapi::openapi_json;
pub use server::{Server, Stop, router};

/// How routes get the state of the server.
type Shared = axum::extract::State<Arc<App>>;

/// Panics of jobs are caught, so a poisoned lock never means an incomplete change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
