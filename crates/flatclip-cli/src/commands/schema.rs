//! `flatclip schema COMMAND`: what the JSON of a command looks like.

use crate::output::{Exit, Output};
use anyhow::{Context as _, Result};

/// Options of `flatclip schema`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command, e.g. predict; `error` for what is written to stderr [default: list them]
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
}

macro_rules! schemas {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../schemas/", $name, ".json")))),*]
    };
}

/// One schema for each document.
const SCHEMAS: [(&str, &str); 35] = schemas![
    "analyze",
    "bench",
    "cache-export",
    "cache-import",
    "cache-ls",
    "cache-rm",
    "config",
    "convert",
    "data-check",
    "data-ls",
    "data-show",
    "demo",
    "embed",
    "error",
    "eval",
    "landscape",
    "methods",
    "methods-advice",
    "methods-show",
    "models",
    "models-show",
    "pocket-export",
    "predict",
    "prompt-export",
    "prompt-import",
    "prompt-show",
    "report",
    "report-merge",
    "reproduce",
    "reproduce-list",
    "reproduce-plan",
    "stats",
    "sweep",
    "tune",
    "version",
];

pub(crate) fn run(args: Args, out: &Output) -> Result<Exit> {
    let Some(name) = &args.command else {
        let names: Vec<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        out.say(&serde_json::json!({ "schema_version": 1, "schemas": names }), names.join("\n"))?;
        return Ok(Exit::Done);
    };
    let wanted = name.replace(' ', "-");
    let known = || flatclip::Error::unknown("schema", name, SCHEMAS.iter().map(|(name, _)| *name));
    let (_, text) = SCHEMAS.iter().find(|(name, _)| *name == wanted).with_context(|| known().to_string())?;
    out.line(text.trim_end())?;
    Ok(Exit::Done)
}
