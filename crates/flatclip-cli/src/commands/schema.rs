//! `flatclip schema COMMAND`: what the JSON of a command looks like.

use crate::prelude::*;

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

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    let Some(name) = &args.command else {
        let names: Vec<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        return out.say(&json!({ "schema_version": 1, "schemas": names }), names.join("\n"));
    };
    let wanted = name.replace(' ', "-");
    let known = || flatclip::Error::unknown("schema", name, SCHEMAS.iter().map(|(name, _)| *name));
    let (_, text) = SCHEMAS.iter().find(|(name, _)| *name == wanted).with_context(|| known().to_string())?;
    out.line(text.trim_end())
}
