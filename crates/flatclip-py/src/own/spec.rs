//! Converts the Python description of a method to an entry of the library's registry.

use flatclip::methods::{AdapterSpec, Build, Kind, Needs, TUNER_NAMES};
use flatclip::options::{Choice, OptionKind, OptionSpec, Range};
use flatclip::{Error, Result};
use pyo3::prelude::*;

/// A method as `python/flatclip/_methods.py` describes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct About {
    pub(super) name: String,
    kind: String,
    version: String,
    digest: String,
    summary: String,
    docs: String,
    views: usize,
    pub(super) vectorised: bool,
    pub(super) logits: bool,
    pub(super) rng: bool,
    /// One JSON document per option: name, kind, default, low, high, choices, doc.
    options: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Described {
    name: String,
    kind: String,
    default: toml::Value,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(default)]
    choices: Vec<String>,
    doc: String,
}

/// Checks that a name is valid in commands, tables and folder names.
pub(super) fn check_name(name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
    let reserved = name == "all" || TUNER_NAMES.contains(&name);
    if starts && name.chars().all(fine) && name.len() <= 64 && !reserved {
        return Ok(());
    }
    let what = if reserved { "another name: this one has a meaning" } else { "small letters, digits and -" };
    Err(Error::config("name", format!("expected {what}, found {name:?}")))
}

impl About {
    pub(super) fn kind(&self) -> Result<Kind> {
        let kinds = [Kind::Episodic, Kind::Online, Kind::Batch];
        let found = kinds.into_iter().find(|kind| kind.name() == self.kind);
        found.ok_or_else(|| Error::unknown("kind", &self.kind, kinds.map(Kind::name)))
    }

    /// Version and digest, as runs record them.
    pub(super) fn identity(&self) -> String {
        format!("version {}, source {}", self.version, self.digest)
    }

    /// Identifies a registration: registering a method with an equal key reuses the entry.
    pub(super) fn key(&self) -> String {
        let options = self.options.join("\n");
        let Self { name, kind, views, vectorised, logits, rng, summary, docs, .. } = self;
        format!(
            "{name}\n{kind}\n{}\n{views} {vectorised} {logits} {rng}\n{summary}\n{docs}\n{options}",
            self.identity()
        )
    }

    /// The options; each default must be valid for its option.
    pub(super) fn options(&self) -> Result<Vec<OptionSpec>> {
        let mut specs: Vec<OptionSpec> = Vec::new();
        for text in &self.options {
            let wrong = |error: serde_json::Error| Error::config("options", error.to_string());
            let described: Described = serde_json::from_str(text).map_err(wrong)?;
            let key = format!("{}.{}", self.name, described.name);
            let spec = described.leak(&key)?;
            spec.accept(&(spec.default)()).map_err(|reason| Error::config(key, format!("default: {reason}")))?;
            specs.push(spec);
        }
        Ok(specs)
    }

    /// The registry entry; it lives as long as the process.
    pub(super) fn leak(&self, build: Build, options: Vec<OptionSpec>) -> &'static AdapterSpec {
        Box::leak(Box::new(AdapterSpec {
            needs: Needs::FEATURES.with_views(self.views),
            summary: text(&self.summary),
            docs: text(&self.docs),
            options: options.leak(),
            ..AdapterSpec::new(text(&self.name), build)
        }))
    }
}

impl Described {
    fn leak(self, key: &str) -> Result<OptionSpec> {
        let kind = match self.kind.as_str() {
            _ if !self.choices.is_empty() => {
                let choice = |name: &String| Choice { name: text(name), sentence: "" };
                OptionKind::Choice(self.choices.iter().map(choice).collect::<Vec<_>>().leak())
            }
            "number" => OptionKind::Number,
            "integer" => OptionKind::Integer,
            "flag" => OptionKind::Flag,
            "text" => OptionKind::Text,
            "numbers" => OptionKind::List(&OptionKind::Number, None),
            "texts" => OptionKind::List(&OptionKind::Text, None),
            other => {
                return Err(Error::unknown("option", other, ["number", "integer", "flag", "text", "numbers", "texts"]));
            }
        };
        let range = match (self.low, self.high) {
            (None, None) => Range::ANY,
            (Some(low), None) => Range::at_least(low),
            (Some(low), Some(high)) if low <= high => Range::between(low, high),
            (None, Some(high)) => Range::between(f64::MIN, high),
            (Some(low), Some(high)) => {
                return Err(Error::config(key, format!("the range is empty: from {low} to {high}")));
            }
        };
        // An integer default of a float option.
        let default = match (&kind, self.default) {
            (OptionKind::Number, toml::Value::Integer(whole)) => toml::Value::Float(whole as f64),
            (_, value) => value,
        };
        Ok(OptionSpec {
            name: text(&self.name),
            aliases: &[],
            kind,
            default: Box::leak(Box::new(move || default.clone())),
            range,
            source: "choice",
            sentence: text(&self.doc),
        })
    }
}

fn text(text: &str) -> &'static str {
    text.to_owned().leak()
}
