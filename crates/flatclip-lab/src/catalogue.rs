//! All methods, tuners and adapters, with what tables, JSON and the page `docs/methods.md` show of them.

use crate::data::{KNOWN, Known};
use crate::tuners::{Input, PRESETS, TUNERS, TunerSpec};
use flatclip::image::views::ViewPolicy;
use flatclip::methods::adapters::presets::Benchmark;
use flatclip::methods::policy::{TestFamily, policy_for};
use flatclip::methods::{ADAPTERS, AdapterSpec};
use flatclip::options::{OptionSpec, Value};
use flatclip::prompt::PromptKind;
use std::fmt::Write as _;

/// A tuner or an adapter.
#[derive(Clone, Debug)]
pub struct Method {
    /// `tuner` or `adapter`.
    pub role: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Other names of it.
    pub aliases: &'static [&'static str],
    /// `training`, `episodic`, `online` or `batch`.
    pub kind: &'static str,
    /// What of the test images an answer may depend on; `-` for tuners.
    pub setting: &'static str,
    /// What it needs in addition to image features, and how many views.
    pub needs: String,
    /// Kinds of prompt that an adapter works with.
    pub prompts: &'static [PromptKind],
    /// How the method's own code makes views, by family of data sets.
    pub published_views: Vec<(&'static str, String)>,
    /// One line.
    pub summary: &'static str,
    /// What it does, formula, cost, reference.
    pub docs: &'static str,
    /// What its numbers were verified with.
    pub verified: &'static str,
    /// The authors' values: of an adapter by data set, of a tuner by the preset's name.
    pub presets: Vec<(&'static str, String)>,
    /// The table of its options.
    pub table: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
}

impl Method {
    /// An adapter.
    pub fn adapter(spec: &AdapterSpec) -> Self {
        let AdapterSpec { name, aliases, summary, docs, options, .. } = *spec;
        let of =
            |known: &'static Known| Some((known.name, presets(spec, known.name))).filter(|(_, text)| !text.is_empty());
        Self {
            role: "adapter",
            name,
            aliases,
            kind: spec.kind().name(),
            setting: spec.kind().setting(),
            needs: adapter_needs(spec),
            prompts: spec.needs.prompts,
            published_views: published_views(name),
            summary,
            docs,
            verified: spec.verified.name(),
            presets: KNOWN.iter().filter_map(of).collect(),
            table: name,
            options,
        }
    }

    /// A tuner.
    pub fn tuner(spec: &TunerSpec) -> Self {
        let input = match spec.input {
            Input::Features => "features",
            Input::Pixels => "pixels",
        };
        let needs = format!("shots as {input}{}", if spec.vit { ", ViT" } else { "" });
        let TunerSpec { name, aliases, summary, table, docs, options, .. } = *spec;
        Self {
            role: "tuner",
            name,
            aliases,
            kind: "training",
            setting: "-",
            needs,
            prompts: &[],
            published_views: Vec::new(),
            summary,
            docs,
            verified: spec.verified.name(),
            presets: tuner_presets(name),
            table,
            options,
        }
    }

    /// All tuners, then all adapters.
    pub fn all() -> Vec<Self> {
        let tuners = TUNERS.iter().map(|spec| Self::tuner(spec));
        tuners.chain(ADAPTERS.iter().map(|spec| Self::adapter(spec))).collect()
    }

    /// Name and aliases.
    pub fn names(&self) -> String {
        match self.aliases {
            [] => self.name.to_owned(),
            aliases => format!("{} ({})", self.name, aliases.join(", ")),
        }
    }
}

/// What an adapter needs in addition to image features, and how many views.
fn adapter_needs(spec: &AdapterSpec) -> String {
    let n = &spec.needs;
    let words = [
        (n.text_tower, "text tower"),
        (n.pixels, "pixels"),
        (n.vit, "ViT"),
        (n.generated, "generated views"),
        (n.statistics, "token statistics"),
    ];
    let mut needs: Vec<String> = words.iter().filter(|(needed, _)| *needed).map(|(_, w)| (*w).to_owned()).collect();
    needs.push(format!("{} {}", n.default_views, if n.default_views == 1 { "view" } else { "views" }));
    needs.join(", ")
}

/// The presets of a tuner: what each reproduces, and its settings.
fn tuner_presets(name: &str) -> Vec<(&'static str, String)> {
    let settings = |toml: &str| -> String {
        let tables: flatclip::options::Table = toml.parse().unwrap_or_default();
        let of = |(table, values): (&String, &Value)| -> Vec<String> {
            let entries = values.as_table().into_iter().flatten();
            entries.map(|(key, value)| format!("{table}.{key}={value}")).collect()
        };
        tables.iter().flat_map(of).collect::<Vec<_>>().join(" ")
    };
    let own = PRESETS.iter().filter(|preset| preset.method == name);
    own.map(|preset| (preset.name, format!("{} ({} shots): {}", preset.summary, preset.shots, settings(preset.toml))))
        .collect()
}

/// The views of an adapter in its own code, as [`policy_for`] has them.
fn published_views(name: &str) -> Vec<(&'static str, String)> {
    let families = [
        ("ImageNet", TestFamily::ImageNet),
        ("its shifts", TestFamily::NaturalShift),
        ("other sets", TestFamily::CrossDataset),
    ];
    let views = |(title, family)| {
        let policy = policy_for(name, family).ok()?;
        let how = if policy.policy == ViewPolicy::Identity { "plain" } else { policy.policy.name() };
        Some((title, format!("{} {how}", policy.views)))
    };
    families.into_iter().filter_map(views).collect()
}

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

const PRESET_HEAD: &str = "
## Values of the authors by data set

An evaluation on one of these data sets takes them unless an option is given or `preset = \"neutral\"`. They were
evidently chosen on the test sets themselves.

";

/// The page `docs/methods.md`.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| method | kind | setting | needs | cost | verified | reference |\n|---|---|---|---|---|---|---|\n");
    for method in Method::all() {
        row(&mut page, &method);
    }
    page.push_str(PRESET_HEAD);
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

fn row(page: &mut String, method: &Method) {
    let cell = |text: &str| text.replace('|', "\\|");
    let Method { kind, setting, needs, verified, .. } = method;
    let reference = section(method.docs, "Reference: ");
    let reference = reference.split(" Verified with ").next().unwrap_or_default();
    let (names, cost) = (method.names(), cell(&section(method.docs, "Cost: ")));
    _ = writeln!(page, "| {names} | {kind} | {setting} | {needs} | {cost} | {verified} | {} |", cell(reference));
}

/// The authors' values of a method for a data set, in one line.
fn presets(spec: &AdapterSpec, data: &str) -> String {
    let table = Benchmark::of_data(data).map(spec.presets).unwrap_or_default();
    let values: Vec<String> = table.iter().map(|(key, value)| format!("{key} {}", plain(value))).collect();
    values.join(", ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The part of a method's text after a heading, in one line.
fn section(docs: &str, heading: &str) -> String {
    let from = docs.find(&format!("\n{heading}")).map_or("", |at| &docs[at + 1 + heading.len()..]);
    let ends = |line: &&str| !["Reference: ", "Use it ", "Online: "].iter().any(|next| line.starts_with(next));
    from.lines().take_while(ends).collect::<Vec<_>>().join(" ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_this_page() {
        let written = include_str!("../../../docs/methods.md");
        assert!(page() == written, "docs/methods.md is old: flatclip methods page > docs/methods.md");
    }

    #[test]
    fn every_method_has_a_cost_and_a_reference() {
        for method in Method::all() {
            let [cost, reference] = ["Cost: ", "Reference: "].map(|heading| section(method.docs, heading).len());
            assert!(cost > 5 && reference > 20, "{}", method.name);
        }
    }
}
