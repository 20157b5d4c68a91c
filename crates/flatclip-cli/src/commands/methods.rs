//! `flatclip methods`: what can be run, and `flatclip methods show NAME`: all a user needs to know of one.

use crate::output::{Exit, Output};
use flatclip::methods::{ADAPTERS, AdapterSpec, Kind, adapter};
use serde_json::{Value, json};

/// Options of `flatclip methods`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// All methods, one line each (also what you get without a word)
    List,
    /// What one method does, its cost, its options with the source of each default, its reference
    Show {
        /// Name or alias
        name: String,
    },
}

pub(crate) fn run(args: Args, out: &Output) -> anyhow::Result<Exit> {
    match args.what {
        None | Some(What::List) => list(out)?,
        Some(What::Show { name }) => show(adapter(&name)?, out)?,
    }
    Ok(Exit::Done)
}

fn kind(spec: &AdapterSpec) -> &'static str {
    match spec.kind {
        Kind::Episodic => "episodic",
        Kind::Online => "online",
    }
}

/// What a method needs beyond image features, in words.
fn needs(spec: &AdapterSpec) -> String {
    let n = &spec.needs;
    let words = [(n.text_tower, "text tower"), (n.pixels, "pixels"), (n.vit, "ViT"), (n.generated, "generated views")];
    let words: Vec<&str> = words.iter().filter(|(needed, _)| *needed).map(|(_, word)| *word).collect();
    if words.is_empty() { "features".to_owned() } else { words.join(", ") }
}

fn list(out: &Output) -> anyhow::Result<()> {
    if out.is_json() {
        return out.json(&ADAPTERS.iter().map(|spec| document(spec)).collect::<Vec<_>>());
    }
    let mut table = out.table(&["adapter", "kind", "needs", "views", "what it does"]);
    for spec in ADAPTERS {
        let name = match spec.aliases {
            [] => spec.name.to_owned(),
            aliases => format!("{} ({})", spec.name, aliases.join(", ")),
        };
        table.add_row([name, kind(spec).into(), needs(spec), spec.needs.default_views.to_string(), spec.summary.into()]);
    }
    out.line(table)
}

fn show(spec: &AdapterSpec, out: &Output) -> anyhow::Result<()> {
    if out.is_json() {
        return out.json(&document(spec));
    }
    out.line(format_args!("{}: {}", spec.name, spec.summary))?;
    if !spec.aliases.is_empty() {
        out.line(format_args!("also called {}", spec.aliases.join(", ")))?;
    }
    let (views, prompts) = (spec.needs.default_views, spec.needs.prompts.join(", "));
    out.line(format_args!("{}; needs {}; {views} views unless told; prompts: {prompts}\n", kind(spec), needs(spec)))?;
    out.line(spec.docs)?;
    out.line("Defaults, as TOML:")?;
    let defaults = (spec.defaults)();
    if defaults.is_empty() {
        return out.line("(no options)");
    }
    out.line(format_args!("[{}]\n{}", spec.name, toml::to_string(&defaults)?.trim_end()))
}

fn document(spec: &AdapterSpec) -> Value {
    json!({
        "name": spec.name, "aliases": spec.aliases, "role": "adapter", "kind": spec.kind, "needs": spec.needs,
        "summary": spec.summary, "docs": spec.docs, "defaults": (spec.defaults)(),
    })
}
