//! What the registry knows of an adapter: its name, what it needs, its options, how to build it.

use super::adapters::ADAPTERS;
use super::{Answer, Sample, Task};
use crate::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Answers for one test image at a time.
pub trait Adapter: Send + CloneAdapter {
    /// Computes what depends on the prompt and the class list alone. Called once per task, before [`Adapter::adapt`].
    fn prepare(&mut self, task: &Task<'_>) -> Result<()>;

    /// The answer for one image. An episodic adapter leaves no trace of it; an online one learns from it.
    fn adapt(&mut self, task: &Task<'_>, sample: &Sample<'_>) -> Result<Answer>;

    /// Back to the state after [`Adapter::prepare`]. Episodic adapters never leave it.
    fn reset(&mut self) {}

    /// What it must be given with these options, where that is not what its registry entry says.
    fn needs(&self) -> Option<Needs> {
        None
    }
}

/// Copies of adapters behind a `dyn`; every adapter that is `Clone` has it.
pub trait CloneAdapter {
    /// A copy for another thread, in the same state.
    fn clone_box(&self) -> Box<dyn Adapter>;
}

impl<A: Adapter + Clone + 'static> CloneAdapter for A {
    fn clone_box(&self) -> Box<dyn Adapter> {
        Box::new(self.clone())
    }
}

/// What an adapter keeps between images, which decides what may be done with the order of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nothing: any order and any shards give the same bytes.
    Episodic,
    /// A state that grows with the stream: order matters and is recorded, a stream is never sharded silently.
    Online,
}

/// What an adapter must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Needs {
    /// The views' pixels, not only their features.
    pub pixels: bool,
    /// A text tower and a prompt with a context.
    pub text_tower: bool,
    /// A vision transformer: ResNet towers are refused.
    pub vit: bool,
    /// Features of generated views beside the augmented ones.
    pub generated: bool,
    /// Token statistics of training images (`flatclip stats`).
    pub statistics: bool,
    /// Views per image when the user says nothing.
    pub default_views: usize,
    /// The kinds of prompt it can work with.
    pub prompts: &'static [&'static str],
}

/// Prompts whose text features do not depend on the image. MaPLe's are among them: its visual prompts act in the image tower.
const FIXED_TEXT: &[&str] = &["templates", "learned", "features", "maple"];

impl Needs {
    /// Features only, 64 views.
    pub const FEATURES: Self = Self {
        pixels: false,
        text_tower: false,
        vit: false,
        generated: false,
        statistics: false,
        default_views: 64,
        prompts: FIXED_TEXT,
    };
    /// Features, the text tower and a context, 64 views.
    pub const CONTEXT: Self = Self { text_tower: true, prompts: &["templates", "learned"], ..Self::FEATURES };
}

/// One registry entry.
pub struct AdapterSpec {
    /// The name used in the CLI, TOML, JSON and Python.
    pub name: &'static str,
    /// Other names it answers to.
    pub aliases: &'static [&'static str],
    /// Episodic or online.
    pub kind: Kind,
    /// What it must be given.
    pub needs: Needs,
    /// One line.
    pub summary: &'static str,
    /// What it does, formula, cost, parameters with the source of each default, reference.
    pub docs: &'static str,
    /// Builds it from its options; an absent option has its default.
    pub build: fn(&toml::Table) -> Result<Box<dyn Adapter>>,
    /// All options with their defaults.
    pub defaults: fn() -> toml::Table,
}

impl std::fmt::Debug for AdapterSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdapterSpec").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The adapter of a name or alias.
pub fn adapter(name: &str) -> Result<&'static AdapterSpec> {
    ADAPTERS.iter().copied().find(|s| s.name == name || s.aliases.contains(&name)).ok_or_else(|| {
        let known: Vec<&str> = ADAPTERS.iter().map(|s| s.name).collect();
        Error::config("method", format!("no adapter is called `{name}`; known are {}", known.join(", ")))
    })
}

/// Builds the adapter of a name or alias with these options.
pub fn build_adapter(name: &str, options: &toml::Table) -> Result<Box<dyn Adapter>> {
    (adapter(name)?.build)(options)
}

/// The options of an adapter: serde reads them, [`Options::check`] refuses values that make no sense.
pub(crate) trait Options: DeserializeOwned + Serialize + Default {
    /// The adapter's name, the first part of every key.
    const NAME: &'static str;

    /// The first wrong value as an error that names its key.
    fn check(&self) -> Result<()>;

    /// Reads options, naming the key that is unknown or of the wrong type.
    fn read(table: &toml::Table) -> Result<Self> {
        for (key, value) in table {
            // One key at a time: serde's message alone does not say which key had the wrong type.
            let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
            if let Err(error) = alone.try_into::<Self>() {
                let reason = error.message().trim().to_string();
                return Err(Error::config(format!("{}.{key}", Self::NAME), reason));
            }
        }
        let options: Self =
            table.clone().try_into().map_err(|e: toml::de::Error| Error::config(Self::NAME, e.message().trim()))?;
        options.check()?;
        Ok(options)
    }

    /// All options with their defaults.
    fn table() -> toml::Table {
        toml::Table::try_from(Self::default()).expect("option structs hold only values that TOML has")
    }

    /// An error for `key` unless `holds`.
    fn require(holds: bool, key: &str, expected: &str, found: impl std::fmt::Display) -> Result<()> {
        if holds {
            return Ok(());
        }
        Err(Error::config(format!("{}.{key}", Self::NAME), format!("expected {expected}, found {found}")))
    }

    /// An error unless `value` is a fraction of views that can keep some.
    fn require_fraction(key: &str, value: f64) -> Result<()> {
        Self::require(value > 0.0 && value <= 1.0, key, "a fraction above 0 and up to 1", value)
    }

    /// An error unless `value` is finite and not negative.
    fn require_not_negative(key: &str, value: f64) -> Result<()> {
        Self::require(value.is_finite() && value >= 0.0, key, "a number that is not negative", value)
    }
}
