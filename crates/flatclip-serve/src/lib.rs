//! A server for flatclip: answers and embeddings over HTTP, in its own form and in the forms of Hugging Face's task, OpenAI's
//! embeddings and the Open Inference Protocol, and a page on which one sees which views of an image decide.
//!
//! It computes nothing itself: everything goes through the facade of the library. Safe by default: this machine only unless a
//! key is given, bounded in bytes, pixels, names, views, connections and time. `flatclip serve` is the command.
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

pub use config::{ClassSet, Config, Limits, ModelEntry, PromptEntry};
pub use key::Key;
pub use openapi::openapi_json;
pub use server::{Server, Stop, router};
