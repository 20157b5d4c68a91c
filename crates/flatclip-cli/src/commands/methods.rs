//! `flatclip methods`: what can be run, and `flatclip methods show NAME`: all a user needs to know of one.

use crate::prelude::*;
use flatclip::options::{OptionKind, OptionSpec, Range, defaults};
use flatclip::prompt::PromptKind;
use flatclip_lab::catalogue::{Method, page};
use std::collections::BTreeMap;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// Which method for which need, with what it costs
    #[arg(long)]
    advice: bool,
}

#[derive(clap::Subcommand)]
enum What {
    /// All methods, one line each (also what you get without a word)
    List,
    /// All methods as a Markdown page: docs/methods.md
    Page,
    /// What one method does, its cost, its options with the source of each default, its reference
    Show {
        /// Name or alias
        name: String,
    },
}

pub(crate) fn run(args: Args, out: &Output) -> Result<()> {
    match args.what {
        _ if args.advice => advice(out),
        None | Some(What::List) => list(out),
        Some(What::Page) => out.line(page().trim_end()),
        Some(What::Show { name }) => show(&name, out),
    }
}

/// Needs, methods for them, their cost in addition to encoding one view, and when to take another. Costs are those of the
/// methods' own pages (`methods show`); `flatclip bench --methods` times them on this machine.
const ADVICE: &str = "\
a first answer, quickly | zero-shot | 1 view | anything below, when it is not sure enough
one photo, no training | zero or mta | 64 views, no gradient | `--views auto`, for a third of the views
several prompts or descriptions per class | their mean as the text, then zero | 64 views, no gradient | awt, which weights them by image
drawings, edges, silhouettes | zero-shot | 1 view | dlae in a stream, transclip on a set; crops mislead
one photo, a tuned prompt | stss with a sapt prompt (FGA) | 64 views; text bank once | zero, without a text tower
class embeddings only, no text tower | zero or mta | 64 views, no gradient | boostadapter, when images come in a stream
a long stream, several images per class | boostadapter or tda | 64 views and a cache | zero, when order must not matter
a short stream of many classes | zero | 64 views, no gradient | not oga or onzeta: below zero-shot at the start
a whole unlabelled test set | transclip | 1 view; a graph of the set | zero, when images come one by one
well-calibrated confidence | zero-shot or se | 1 or 64 views | c-tpt, with a text tower
learning at test time | tpt | 64 views; one backward pass | promptalign, with a MaPLe prompt on a ViT
a few labelled photos per class | tune sapt, then stss | minutes of training, once | coop, where flatness does not matter
few labelled photos, no training | tune tip-adapter or gda-clip | one pass over the shots | sapt, when there is time to train";

fn advice(out: &Output) -> Result<()> {
    const HEADER: [&str; 4] = ["need", "take", "cost", "or"];
    let rows = ADVICE.lines().map(|line| line.split(" | ").collect::<Vec<_>>());
    if out.is_json {
        let rows: Vec<BTreeMap<&str, &str>> = rows.map(|row| HEADER.into_iter().zip(row).collect()).collect();
        return out.json(&json!({ "schema_version": 1, "advice": rows }));
    }
    out.rows(&HEADER, rows)
}

fn description(method: &Method) -> Value {
    json!({
        "name": method.name, "aliases": method.aliases, "role": method.role, "kind": method.kind, "setting": method.setting, "needs": method.needs,
        "prompts": method.prompts, "published_views": method.published_views.iter().cloned().collect::<BTreeMap<_, _>>(),
        "example": example(method), "summary": method.summary, "docs": method.docs, "table": method.table, "options": method.options,
        "defaults": defaults(method.options), "verified": method.verified,
        "presets": method.presets.iter().cloned().collect::<BTreeMap<_, _>>(),
    })
}

fn print(method: &Method, out: &Output) -> Result<()> {
    out.line(hanging("", &format!("{} {}: {}", method.role, method.names(), method.summary), 0))?;
    let setting = if method.setting == "-" { String::new() } else { format!(" ({})", method.setting) };
    out.line(format_args!("{}{setting}; needs {}; verified: {}", method.kind, method.needs, method.verified))?;
    if !method.prompts.is_empty() {
        let prompts: Vec<&str> = method.prompts.iter().map(|kind| kind.name()).collect();
        out.line(format_args!("prompts: {}", prompts.join(", ")))?;
    }
    if !method.published_views.is_empty() {
        let views: Vec<String> =
            method.published_views.iter().map(|(family, views)| format!("{family} {views}")).collect();
        out.line(hanging("", &format!("views in its own code (--view-policy published): {}", views.join("; ")), 0))?;
    }
    out.line(hanging("", &format!("use: {}", example(method)), 0))?;
    out.line(format_args!("\n{}", method.docs.trim_end()))?;
    if method.options.is_empty() {
        return out.line("Options: none");
    }
    out.line(format_args!("Options in [{}], with default, range and source:", method.table))?;
    out.line(option_lines(method.options))?;
    if method.presets.is_empty() {
        return Ok(());
    }
    out.line(match method.role {
        "tuner" => "Settings of the authors, taken by their name (tune --method NAME):",
        _ => "Values of the authors, taken on these data sets unless an option or preset = \"neutral\" is given:",
    })?;
    let indent = method.presets.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 4;
    method.presets.iter().try_for_each(|(name, values)| out.line(hanging(&format!("  {name}"), values, indent)))
}

const WIDTH: usize = 110;
/// The widest `name = default` that has its text on the same line; a longer one has it below.
const BESIDE: usize = 32;

/// Every option: `name = default`, then what it means, its range and the source of its default.
fn option_lines(options: &[OptionSpec]) -> String {
    let keys: Vec<String> = options.iter().map(|o| format!("  {} = {}", o.name, (o.default)())).collect();
    let indent = keys.iter().map(|key| key.chars().count()).filter(|&n| n <= BESIDE).max().unwrap_or(BESIDE) + 2;
    let lines = keys.iter().zip(options).map(|(key, option)| hanging(key, &explained(option), indent));
    lines.collect::<Vec<_>>().join("\n")
}

/// The words of a text in lines of at most [`WIDTH`] characters, from column `indent` on; the head is beside the first line, or
/// above it where it is too long.
fn hanging(head: &str, text: &str, indent: usize) -> String {
    let mut lines = vec![format!("{head:indent$}")];
    if !head.is_empty() && head.chars().count() + 2 > indent {
        lines.push(" ".repeat(indent));
    }
    let mut line = lines.pop().unwrap_or_default();
    for word in text.split_whitespace() {
        let used = line.chars().count();
        if used > indent && used + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        } else if used > indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

fn explained(option: &OptionSpec) -> String {
    let mut text = option.sentence.to_owned();
    match option.kind {
        // The names of many choices say what they are.
        OptionKind::Choice(choices) if choices.len() > 6 => text.push_str(&format!(" {}.", option.kind)),
        OptionKind::Choice(choices) => {
            choices.iter().for_each(|choice| text.push_str(&format!(" {}: {}", choice.name, choice.sentence)));
        }
        _ => {}
    }
    let mut facts = Vec::new();
    if option.range != Range::ANY {
        facts.push(option.range.to_string());
    }
    facts.extend(option.aliases.iter().map(|alias| format!("also {alias}")));
    facts.push(option.source.to_owned());
    format!("{text} [{}]", facts.join("; "))
}

/// A command that runs the method with all that it needs.
fn example(method: &Method) -> String {
    let Method { name, table, .. } = method;
    let Ok(spec) = flatclip::methods::adapter(name) else {
        return format!("flatclip tune --method {name} --data DATA --shots 16 --out RUN [--set {table}.KEY=VALUE ..]");
    };
    let n = &spec.needs;
    let prompt = if n.prompts.contains(&PromptKind::Templates) { "" } else { " --prompt RUN" };
    let statistics = if n.statistics { " --statistics FILE" } else { "" };
    let generated = if n.generated { " --generated DIR" } else { "" };
    format!("flatclip eval --method {name} --data DATA{prompt}{statistics}{generated} --out RUN [--set KEY=VALUE ..]")
}

fn list(out: &Output) -> Result<()> {
    let all = Method::all();
    if out.is_json {
        return out.json(&json!({ "methods": all.iter().map(description).collect::<Vec<_>>() }));
    }
    let row = |e: &Method| [e.role, &e.names(), e.kind, e.setting, &e.needs, e.summary].map(str::to_owned);
    out.rows(&["role", "name", "kind", "setting", "needs", "what it does"], all.iter().map(row))
}

/// A name may be a tuner's and an adapter's at once (`fga`): both are shown.
fn show(name: &str, out: &Output) -> Result<()> {
    let all = Method::all();
    let wanted = name.to_lowercase();
    let is_wanted = |e: &&Method| {
        let preset = e.role == "tuner" && e.presets.iter().any(|(preset, _)| *preset == wanted);
        e.name == wanted || e.aliases.contains(&wanted.as_str()) || preset
    };
    let found: Vec<&Method> = all.iter().filter(is_wanted).collect();
    if found.is_empty() {
        return Err(flatclip::Error::unknown("method", name, all.iter().map(|e| e.name)).into());
    }
    if out.is_json {
        return match found.as_slice() {
            [one] => out.json(&description(one)),
            several => out.json(&json!({ "methods": several.iter().map(|e| description(e)).collect::<Vec<_>>() })),
        };
    }
    for (index, entry) in found.iter().enumerate() {
        if index > 0 {
            out.line("\n")?;
        }
        print(entry, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_shown_within_the_width_with_default_range_and_source() {
        for entry in Method::all().iter().filter(|entry| !entry.options.is_empty()) {
            let text = option_lines(entry.options);
            text.lines().for_each(|line| assert!(line.chars().count() <= WIDTH, "{line}"));
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for option in entry.options {
                assert!(text.contains(&format!("  {} = {}", option.name, (option.default)())), "{text}");
                for part in [option.sentence, option.source, &option.range.to_string()] {
                    assert!(flat.contains(part), "{part}: {text}");
                }
            }
        }
    }
}
