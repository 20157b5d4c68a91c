//! `flatclip methods page`: all methods in one Markdown table, which is `docs/methods.md`.

use flatclip::methods::adapters::presets::Benchmark;
use flatclip::methods::{ADAPTERS, AdapterSpec};
use flatclip_lab::data::KNOWN;
use flatclip_lab::tuners::TUNERS;
use std::fmt::Write as _;

const HEAD: &str = "\
# Methods

Written by `flatclip methods page > docs/methods.md`; a test fails when it is out of date. `flatclip methods show
NAME` has the formula, every option with the source of its default, and an example.

Kind: *training* on labelled shots; *episodic*: each test image on its own; *online*: along a stream, whose order
matters; *batch*: a set of test images at once. Setting, as papers call the last three: *single image*, *stream*,
*transductive*; accuracies of different settings do not compare. Needs: what it must be given beside image features. Cost: D is the
width of the features, K the number of classes, V views, N images of a set, t images seen so far. Verified: golden
cases made by the authors' code, by third-party ports that agree, after the paper's formula (no code of the authors
was found), or none.

What each answers on the embedded models: [all methods on the pocket dataset](research/methods-on-pocket.md). Time and
memory of an image with each: [benchmarks](benchmarks.md).

";

const PRESETS: &str = "
## Values of the authors by data set

An evaluation on one of these data sets takes them unless an option is given or `preset = \"neutral\"`. They were
evidently chosen on the test sets themselves.

";

/// The page.
pub(crate) fn page(needs: impl Fn(&AdapterSpec) -> String) -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| method | kind | setting | needs | cost | verified | reference |\n|---|---|---|---|---|---|---|\n");
    for spec in TUNERS {
        let needs = if spec.vit { "shots, ViT" } else { "shots" };
        row(&mut page, &names(spec.name, spec.aliases), ["training", "-"], needs, spec.docs, spec.verified.name());
    }
    for spec in ADAPTERS {
        let (names, kind) = (names(spec.name, spec.aliases), [spec.kind().name(), spec.kind().setting()]);
        row(&mut page, &names, kind, &needs(spec), spec.docs, spec.verified.name());
    }
    page.push_str(PRESETS);
    page.push_str("| data set |");
    let with: Vec<_> = ADAPTERS.iter().filter(|spec| !presets(spec, "imagenet").is_empty()).collect();
    with.iter().for_each(|spec| _ = write!(page, " {} |", spec.name));
    page.push_str("\n|---|");
    page.push_str(&"---|".repeat(with.len()));
    for known in &KNOWN {
        _ = write!(page, "\n| {} |", known.title);
        with.iter().for_each(|spec| _ = write!(page, " {} |", presets(spec, known.name)));
    }
    page.push('\n');
    page
}

/// The authors' values of a method for a data set, in one line.
pub(crate) fn presets(spec: &AdapterSpec, data: &str) -> String {
    let table = Benchmark::of_data(data).map(spec.presets).unwrap_or_default();
    let values: Vec<String> = table.iter().map(|(key, value)| format!("{key} {}", plain(value))).collect();
    values.join(", ")
}

fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn names(name: &str, aliases: &[&str]) -> String {
    if aliases.is_empty() { name.to_owned() } else { format!("{name} ({})", aliases.join(", ")) }
}

fn row(page: &mut String, names: &str, [kind, setting]: [&str; 2], needs: &str, docs: &str, verified: &str) {
    let cell = |text: &str| text.replace('|', "\\|");
    let reference = section(docs, "Reference: ");
    let reference = reference.split(" Verified with ").next().unwrap_or_default();
    let cost = cell(&section(docs, "Cost: "));
    _ = writeln!(page, "| {names} | {kind} | {setting} | {needs} | {cost} | {verified} | {} |", cell(reference));
}

/// What a method's text says behind a heading, in one line.
fn section(docs: &str, heading: &str) -> String {
    let from = docs.find(&format!("\n{heading}")).map_or("", |at| &docs[at + 1 + heading.len()..]);
    let ends = |line: &&str| !["Reference: ", "Use it ", "Online: "].iter().any(|next| line.starts_with(next));
    from.lines().take_while(ends).collect::<Vec<_>>().join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::methods::adapter_needs;

    #[test]
    fn the_page_in_docs_is_this_page() {
        let kept = include_str!("../../../../docs/methods.md");
        assert!(page(adapter_needs) == kept, "docs/methods.md is old: flatclip methods page > docs/methods.md");
    }

    #[test]
    fn every_method_has_a_cost_and_a_reference() {
        let adapters = ADAPTERS.iter().map(|spec| (spec.name, spec.docs));
        for (name, docs) in TUNERS.iter().map(|spec| (spec.name, spec.docs)).chain(adapters) {
            assert!(section(docs, "Cost: ").len() > 5 && section(docs, "Reference: ").len() > 20, "{name}");
        }
    }
}
