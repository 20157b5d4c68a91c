//! `flatclip serve`: answers over HTTP, and a page on which one sees which views decide.

use crate::prelude::*;
use clap::builder::FalseyValueParser;
use flatclip_serve::{Config, Key, ModelEntry, PromptEntry, Server};
use std::net::{SocketAddr, ToSocketAddrs as _};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Address and port; other machines reach it only with a key [default: 127.0.0.1:8080]
    #[arg(long, env = "FLATCLIP_SERVE_BIND", value_name = "ADDRESS:PORT")]
    bind: Option<SocketAddr>,
    /// Address or name of this machine, instead of the one in --bind
    #[arg(long, env = "FLATCLIP_SERVE_HOST", value_name = "ADDRESS")]
    host: Option<String>,
    /// Port, instead of the one in --bind
    #[arg(long, env = "FLATCLIP_SERVE_PORT", value_name = "PORT")]
    port: Option<u16>,
    /// A model: anything that the other commands take, or NAME=MODEL (repeatable; the first is the default) [default: pocket]
    #[arg(long, short, env = "FLATCLIP_SERVE_MODEL", value_delimiter = ',', value_name = "[NAME=]MODEL")]
    model: Vec<String>,
    /// A tuned prompt under a name (repeatable)
    #[arg(long, env = "FLATCLIP_SERVE_PROMPT", value_delimiter = ',', value_name = "NAME=FILE|RUN")]
    prompt: Vec<String>,
    /// Models, prompts, class lists and limits from a TOML file; read again on SIGHUP. Flags go before it
    #[arg(long, env = "FLATCLIP_SERVE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file with the keys of which clients must show one as `Authorization: Bearer KEY` (or FLATCLIP_SERVE_KEY); read again
    /// on SIGHUP
    #[arg(long, env = "FLATCLIP_SERVE_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Serve other machines without a key
    #[arg(long, env = "FLATCLIP_SERVE_INSECURE", value_parser = FalseyValueParser::new())]
    insecure: bool,
    /// Where known models are looked for first
    #[arg(long, env = "FLATCLIP_MODEL_DIR", value_name = "DIR")]
    model_dir: Option<PathBuf>,
    /// Never fetch a model, only look on disk
    #[arg(long, env = "FLATCLIP_OFFLINE", value_parser = FalseyValueParser::new())]
    offline: bool,
    /// Images that wait or are worked on; one more is refused with status 429 [default: 64]
    #[arg(long, env = "FLATCLIP_SERVE_QUEUE", value_name = "N")]
    queue: Option<usize>,
    /// Threads that take work from the queue [default: the number of cores]
    #[arg(long, env = "FLATCLIP_SERVE_WORKERS", value_name = "N")]
    workers: Option<usize>,
    /// Be ready before each model was run once
    #[arg(long, env = "FLATCLIP_SERVE_NO_WARM_UP", value_parser = FalseyValueParser::new())]
    no_warm_up: bool,
    /// Write the addresses of clients into the log
    #[arg(long, env = "FLATCLIP_SERVE_LOG_ADDRESSES", value_parser = FalseyValueParser::new())]
    log_addresses: bool,
    /// Print the description of the routes (OpenAPI) and end
    #[arg(long)]
    openapi: bool,
}

/// Where the key is looked for when no file is named.
const KEY_VARIABLE: &str = "FLATCLIP_SERVE_KEY";

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    if args.openapi {
        return out.line(flatclip_serve::openapi_json().trim_end());
    }
    let server = Server::bind(config(args)?)?;
    let (address, page) = (server.address().to_string(), format!("http://{}/", server.address()));
    out.say(&json!({ "address": address, "page": page }), &page)?;
    Ok(server.run()?)
}

fn config(args: Args) -> Result<Config> {
    let mut config = args.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    config.bind = args.bind.unwrap_or(config.bind);
    if let Some(host) = &args.host {
        let found =
            (host.as_str(), config.bind.port()).to_socket_addrs().with_context(|| format!("--host {host}"))?.next();
        config.bind = found.with_context(|| format!("--host: {host:?} has no address"))?;
    }
    if let Some(port) = args.port {
        config.bind.set_port(port);
    }
    if !args.model.is_empty() {
        config.models = args.model.iter().map(|text| model(text)).collect();
    }
    for text in &args.prompt {
        let (name, path) = text.split_once('=').context("--prompt: expected NAME=FILE or NAME=RUN")?;
        ensure!(!name.is_empty() && !path.is_empty(), "--prompt: expected NAME=FILE or NAME=RUN, found {text:?}");
        config.prompts.push(PromptEntry { name: name.to_owned(), path: path.into() });
    }
    config.insecure |= args.insecure;
    config.offline |= args.offline;
    config.warm_up &= !args.no_warm_up;
    config.log_addresses |= args.log_addresses;
    config.model_dir = args.model_dir.or(config.model_dir);
    config.limits.queue = args.queue.unwrap_or(config.limits.queue);
    config.limits.workers = args.workers.unwrap_or(config.limits.workers);
    config.key_file = args.key_file.or(config.key_file);
    if config.key_file.is_none()
        && let Ok(text) = std::env::var(KEY_VARIABLE)
    {
        config.key = Some(Key::new(&text).context(KEY_VARIABLE)?);
    }
    Ok(config)
}

/// `NAME=MODEL`, or a model that is its own name.
fn model(text: &str) -> ModelEntry {
    let (name, source) = match text.split_once('=') {
        Some((name, source)) if !name.is_empty() => (name, Some(source.to_owned())),
        _ => (text, None),
    };
    ModelEntry { name: name.to_owned(), source, precision: None }
}
