//! The server as a process of its own under load: throughput, overload, a soak. Its page in a browser and the clients that
//! people use are scripts in `tools/checks`.

mod http;
mod load;
mod running;
mod soak;
mod throughput;

use anyhow::Result;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Use the page in a headless browser: drop a photo, see selected views, switch method, errors, dark, phone; needs chromedriver
    Page,
    /// Ask with tritonclient, huggingface_hub, openai, a generated client and schemathesis, from PyPI
    Clients,
    /// Images per second and p99 at 16 clients, against `flatclip bench` and a FastAPI + open_clip server; writes docs/guide/serving-measured.md
    Throughput(throughput::Arguments),
    /// Requests at 2 and 10 times the capacity, and a crowd of 1 000 clients: what is served, refused, and how long it takes
    Overload(soak::OverloadArguments),
    /// Load the server for a while at a share of its capacity; resident memory and open files must stay flat
    Soak(soak::Arguments),
}

pub fn run(arguments: Arguments) -> Result<()> {
    let binary = || crate::root().and_then(crate::build);
    match arguments.what {
        What::Page => crate::tools::serve_page(&binary()?),
        What::Clients => crate::tools::clients(&binary()?),
        What::Throughput(arguments) => throughput::run(&arguments),
        What::Overload(arguments) => soak::overload(&arguments),
        What::Soak(arguments) => soak::run(&arguments),
    }
}
