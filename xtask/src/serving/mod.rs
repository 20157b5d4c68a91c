//! The server as a process of its own, a plain client for it, and what is done with both: a browser that uses the page,
//! clients that people use, throughput, and a soak.

pub mod clients;
pub mod http;
pub mod load;
pub mod page;
pub mod running;
pub mod soak;
pub mod throughput;
pub mod webdriver;

use ::base64::Engine as _;
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Use the page in a headless browser: drop a photo, see kept views, switch method, errors, dark, phone; needs chromedriver
    Page {
        /// Where the screenshots go [default: target/serve-page]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Ask with tritonclient, huggingface_hub, openai and a generated client from PyPI, in an environment made outside of the tree
    Clients(clients::Arguments),
    /// Images per second and p99 at 16 clients, against `flatclip bench` and a FastAPI + open_clip server; writes docs/guide/serving-measured.md
    Throughput(throughput::Arguments),
    /// Load the server for a while at a share of its capacity; resident memory and open files must stay flat
    Soak(soak::Arguments),
}

pub fn run(arguments: Arguments) -> Result<()> {
    match arguments.what {
        What::Page { out } => page::run(out),
        What::Clients(arguments) => clients::run(&arguments),
        What::Throughput(arguments) => throughput::run(&arguments),
        What::Soak(arguments) => soak::run(&arguments),
    }
}

/// Bytes as JSON carries them.
pub fn base64(bytes: &[u8]) -> String {
    ::base64::engine::general_purpose::STANDARD.encode(bytes)
}
