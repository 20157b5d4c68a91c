//! `flatclip config`: every option of the adapters with its default, or the resolved configuration of a run.

use crate::output::{Exit, Output};
use anyhow::Result;
use flatclip::methods::{ADAPTERS, AdapterSpec, adapter};
use flatclip::run_dir::RunDir;
use std::path::PathBuf;

/// Options of `flatclip config`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Adapters [default: all]
    #[arg(value_name = "METHOD")]
    methods: Vec<String>,
    /// Print the configuration of a run instead, every default filled in
    #[arg(long, value_name = "RUN", conflicts_with = "methods")]
    run: Option<PathBuf>,
}

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    if let Some(path) = &args.run {
        let config = RunDir::open(path)?.config()?;
        if out.is_json() {
            out.json(&config)?;
        } else {
            out.line(toml::to_string(&config)?.trim_end())?;
        }
        return Ok(Exit::Done);
    }
    let specs: Vec<&AdapterSpec> = match args.methods.as_slice() {
        [] => ADAPTERS.to_vec(),
        names => names.iter().map(|name| adapter(name)).collect::<flatclip::Result<_>>()?,
    };
    let all: toml::Table =
        specs.iter().map(|spec| (spec.name.to_owned(), toml::Value::Table((spec.defaults)()))).collect();
    if out.is_json() {
        out.json(&all)?;
    } else {
        out.line(toml::to_string(&all)?.trim_end())?;
    }
    Ok(Exit::Done)
}
