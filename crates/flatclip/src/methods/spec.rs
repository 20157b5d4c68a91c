//! What an adapter is (one trait per kind), and its registry entry: its name, what it needs, its options, how to
//! build it.

use super::adapters::presets::Benchmark;
use super::{Decision, Task, ViewSet};
use crate::options::{self, OptionSpec, OptionValue as _, Table};
use crate::prompt::PromptKind;
use crate::{Error, Result};
use serde::Serialize;

/// Episodic: answers each test image on its own. After [`Adapter::prepare`] it never changes, so threads share one.
pub trait Adapter: Send + Sync {
    /// Computes what depends on the prompt and the class list alone. Called once per task, before [`Adapter::adapt`].
    fn prepare(&mut self, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// The answer for one image.
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision>;

    /// Whether it is faster to answer several images in one call. Answers must not depend on the others of the call.
    fn is_vectorised(&self) -> bool {
        false
    }

    /// The answers for several images, each on its own.
    fn adapt_many(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        images.iter().map(|image| self.adapt(task, image)).collect()
    }

    /// What it must be given with these options, where that differs from its registry entry.
    fn needs(&self) -> Option<Needs> {
        None
    }
}

/// Online: answers a stream and learns from it, so that an answer depends on the images before.
pub trait OnlineAdapter: Fork + Send + Sync {
    /// Computes what depends on the prompt and the class list alone, and forgets every image. Called once per task, before
    /// [`OnlineAdapter::adapt`].
    fn prepare(&mut self, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// The answer for the next image of the stream.
    fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision>;

    /// Images that it processes together; 1 answers one after the other.
    fn set_size(&self) -> usize {
        1
    }

    /// The shortest stream that the formula of the method is meant for.
    fn shortest_stream(&self, _task: &Task) -> usize {
        0
    }

    /// The answers for the next images of the stream, seen together.
    fn adapt_set(&mut self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        images.iter().map(|image| self.adapt(task, image)).collect()
    }
}

/// Copies an online adapter in its present state, for another stream. Every one that is `Clone` has this.
pub trait Fork {
    /// A copy in the same state.
    fn fork(&self) -> Box<dyn OnlineAdapter>;
}

impl<A: OnlineAdapter + Clone + 'static> Fork for A {
    fn fork(&self) -> Box<dyn OnlineAdapter> {
        Box::new(self.clone())
    }
}

/// Batch: answers a whole set of images at once, each answer depending on all of them.
pub trait BatchAdapter: Send + Sync {
    /// Computes what depends on the prompt and the class list alone. Called once per task, before [`BatchAdapter::adapt`].
    fn prepare(&mut self, _task: &Task) -> Result<()> {
        Ok(())
    }

    /// One answer per image, in their order.
    fn adapt(&self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>>;

    /// Images of a set when a stream is cut into sets; 0 takes the whole stream as one.
    fn set_size(&self) -> usize {
        0
    }
}

/// What an answer depends on, which decides what may be done with the order of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The image alone: any order and any shards give the same bytes.
    Episodic,
    /// The images before it: order matters and is recorded, a stream is never sharded silently.
    Online,
    /// The whole set.
    Batch,
}

impl Kind {
    /// As it is written in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Episodic => "episodic",
            Self::Online => "online",
            Self::Batch => "batch",
        }
    }

    /// What of the test images an answer may depend on, as papers call it.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Episodic => "single image",
            Self::Online => "stream",
            Self::Batch => "transductive",
        }
    }
}

/// What an adapter must be given. Made from [`Needs::FEATURES`] or [`Needs::CONTEXT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Needs {
    /// The views' pixels, not only their features.
    pub pixels: bool,
    /// A text tower and a prompt with a context.
    pub text_tower: bool,
    /// A vision transformer: ResNet towers are refused.
    pub vit: bool,
    /// Features of generated views in addition to the augmented ones.
    pub generated: bool,
    /// Token statistics of training images.
    pub statistics: bool,
    /// Views per image by default.
    pub default_views: usize,
    /// The un-augmented view alone decides, however many there are.
    pub first_view_only: bool,
    /// A ready text bank replaces the text tower.
    pub bank: bool,
    /// Adapts each template separately.
    pub ensembles: bool,
    /// The kinds of prompt it can work with.
    pub prompts: &'static [PromptKind],
}

/// Prompts whose text features do not depend on the image. MaPLe's are among them: its visual prompts act in the image tower.
const FIXED_TEXT: &[PromptKind] =
    &[PromptKind::Templates, PromptKind::Learned, PromptKind::Features, PromptKind::Maple];

impl Needs {
    /// Features only, 64 views.
    pub const FEATURES: Self = Self {
        pixels: false,
        text_tower: false,
        vit: false,
        generated: false,
        statistics: false,
        default_views: 64,
        first_view_only: false,
        bank: false,
        ensembles: false,
        prompts: FIXED_TEXT,
    };
    /// Features, the text tower and a context, 64 views.
    pub const CONTEXT: Self =
        Self { text_tower: true, prompts: &[PromptKind::Templates, PromptKind::Learned], ..Self::FEATURES };

    /// The same with another default number of views per image. With one, the un-augmented view decides.
    #[must_use]
    pub const fn with_views(self, views: usize) -> Self {
        Self { default_views: views, first_view_only: views == 1, ..self }
    }
}

/// What the numbers of a method were verified with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verified {
    /// Golden cases that the authors' code computed.
    AuthorsCode,
    /// Golden cases after third-party ports that agree: there is no code of the authors.
    Ports,
    /// Golden cases after the paper's formula: there is no code of the authors.
    Formula,
    /// Nothing but tests of its formula.
    Nothing,
}

impl Verified {
    /// As tables say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AuthorsCode => "authors' code",
            Self::Ports => "third-party ports",
            Self::Formula => "paper's formula",
            Self::Nothing => "unverified",
        }
    }
}

/// A method that is registered while a program runs, by Python or a plug-in.
pub trait DynamicMethod: Send + Sync {
    /// Episodic, online or batch.
    fn kind(&self) -> Kind;

    /// Builds an adapter of this kind from all options.
    fn build(&'static self, options: &Table) -> Result<AnyAdapter>;

    /// Names its code. Runs record it: a run of an edited method is not resumed.
    fn identity(&self) -> String;
}

/// How an adapter is built from its options (an absent one has its default), by kind.
#[derive(Clone, Copy)]
pub enum Build {
    /// Builds an episodic adapter.
    Episodic(fn(&Table) -> Result<Box<dyn Adapter>>),
    /// Builds an online adapter.
    Online(fn(&Table) -> Result<Box<dyn OnlineAdapter>>),
    /// Builds a batch adapter.
    Batch(fn(&Table) -> Result<Box<dyn BatchAdapter>>),
    /// Builds an adapter of its own kind. Each method that is registered while a program runs leaks one entry.
    Dynamic(&'static dyn DynamicMethod),
}

/// The option that names a preset.
const PRESET: &str = "preset";

/// One registry entry; what is not given comes from [`AdapterSpec::new`].
///
/// ```
/// use flatclip::methods::{AdapterSpec, Build, build_adapter};
///
/// // Its options and its code are those of `zero`.
/// static SPEC: AdapterSpec = AdapterSpec {
///     summary: "a method of one's own",
///     ..AdapterSpec::new("mine", Build::Episodic(|options| build_adapter("zero", options)?.into_episodic()))
/// };
/// assert_eq!(SPEC.kind().name(), "episodic");
/// ```
pub struct AdapterSpec {
    /// The name used in the CLI, TOML, JSON and Python.
    pub name: &'static str,
    /// Other names of the same method.
    pub aliases: &'static [&'static str],
    /// What it must be given.
    pub needs: Needs,
    /// One line.
    pub summary: &'static str,
    /// What it does, formula, cost, reference.
    pub docs: &'static str,
    /// What its numbers were verified with.
    pub verified: Verified,
    /// The authors' values for a benchmark, where they differ from the defaults.
    pub presets: fn(Benchmark) -> Table,
    /// How to build it, which also defines its kind.
    pub build: Build,
    /// Its options, as [`options!`](crate::options!) declares them.
    pub options: &'static [OptionSpec],
}

impl AdapterSpec {
    /// An entry without options, aliases and texts, unverified, for a method that needs features only.
    pub const fn new(name: &'static str, build: Build) -> Self {
        Self {
            name,
            aliases: &[],
            needs: Needs::FEATURES,
            summary: "",
            docs: "",
            verified: Verified::Nothing,
            presets: |_| Table::new(),
            build,
            options: &[],
        }
    }

    /// Episodic, online or batch.
    pub fn kind(&self) -> Kind {
        match self.build {
            Build::Episodic(_) => Kind::Episodic,
            Build::Online(_) => Kind::Online,
            Build::Batch(_) => Kind::Batch,
            Build::Dynamic(method) => method.kind(),
        }
    }

    /// Names the code of a method that is not this library's.
    pub fn identity(&self) -> Option<String> {
        match self.build {
            Build::Dynamic(method) => Some(method.identity()),
            _ => None,
        }
    }

    /// All options with their defaults.
    pub fn defaults(&self) -> Table {
        options::defaults(self.options)
    }

    /// All options: the given ones under their own names, then those of the preset that they name, the others with their
    /// defaults.
    pub fn complete(&self, given: &Table) -> Result<Table> {
        options::complete(self.name, self.options, &self.with_preset(given)?)
    }

    /// The given options on a data set: if they leave the preset to it, its own where it is known.
    pub fn for_data(&self, given: &Table, data: &str) -> Table {
        let mut options = given.clone();
        let is_free = options.get(PRESET).is_none_or(|preset| *preset == Benchmark::Auto.to_value());
        let own = Benchmark::of_data(data).filter(|benchmark| !(self.presets)(*benchmark).is_empty());
        if let Some(benchmark) = own.filter(|_| is_free) {
            options.insert(PRESET.to_owned(), benchmark.to_value());
        }
        options
    }

    /// The given options under their own names, and the values of the preset that they name.
    fn with_preset(&self, given: &Table) -> Result<Table> {
        let mut named = options::named(self.name, self.options, given)?;
        if let Some(benchmark) = named.get(PRESET).and_then(Benchmark::from_value) {
            (self.presets)(benchmark).into_iter().for_each(|(key, value)| {
                named.entry(key).or_insert(value);
            });
        }
        Ok(named)
    }

    /// Builds the adapter with these options.
    pub fn build(&self, options: &Table) -> Result<AnyAdapter> {
        let options = &self.with_preset(options)?;
        Ok(match self.build {
            Build::Episodic(build) => AnyAdapter::Episodic(build(options)?),
            Build::Online(build) => AnyAdapter::Online(build(options)?),
            Build::Batch(build) => AnyAdapter::Batch(build(options)?),
            Build::Dynamic(method) => method.build(&options::complete(self.name, self.options, options)?)?,
        })
    }
}

impl std::fmt::Debug for AdapterSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdapterSpec").field("name", &self.name).field("kind", &self.kind()).finish_non_exhaustive()
    }
}

/// An adapter whose kind is known when the program runs.
pub enum AnyAdapter {
    /// Answers each image on its own.
    Episodic(Box<dyn Adapter>),
    /// Answers a stream.
    Online(Box<dyn OnlineAdapter>),
    /// Answers a set.
    Batch(Box<dyn BatchAdapter>),
}

impl AnyAdapter {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Episodic(_) => Kind::Episodic,
            Self::Online(_) => Kind::Online,
            Self::Batch(_) => Kind::Batch,
        }
    }

    /// Computes what depends on the prompt and the class list alone. Called once per task, before any answer.
    pub fn prepare(&mut self, task: &Task) -> Result<()> {
        match self {
            Self::Episodic(adapter) => adapter.prepare(task),
            Self::Online(adapter) => adapter.prepare(task),
            Self::Batch(adapter) => adapter.prepare(task),
        }
    }

    /// What it must be given with these options, where that differs from its registry entry.
    pub fn needs(&self) -> Option<Needs> {
        match self {
            Self::Episodic(adapter) => adapter.needs(),
            Self::Online(_) | Self::Batch(_) => None,
        }
    }

    /// The answer for the next image: an online adapter learns from it. One that answers sets refuses.
    pub fn adapt(&mut self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        match self {
            Self::Episodic(adapter) => adapter.adapt(task, image),
            Self::Online(adapter) => adapter.adapt(task, image),
            Self::Batch(_) => Err(wrong_kind("one that answers image after image", Kind::Batch)),
        }
    }

    /// Images that are answered together when a stream is evaluated; 0 is the whole stream.
    pub fn set_size(&self) -> usize {
        match self {
            Self::Episodic(_) => 1,
            Self::Online(adapter) => adapter.set_size(),
            Self::Batch(adapter) => adapter.set_size(),
        }
    }

    /// A warning for a stream that is too short for the method.
    pub fn too_short(&self, task: &Task) -> Option<String> {
        let Self::Online(adapter) = self else { return None };
        let (needed, images) = (adapter.shortest_stream(task), task.stream_length?);
        let classes = task.class_count();
        (images < needed).then(|| {
            format!(
                "a stream of {images} images is short for {classes} classes: this method learns about every class from at least \
                 {needed}, and its first answers can be worse than zero-shot"
            )
        })
    }

    /// The answers for some images, together where the method sees them together.
    pub fn adapt_set(&mut self, task: &Task, images: &[ViewSet<'_>]) -> Result<Vec<Decision>> {
        let answers = match self {
            Self::Episodic(adapter) => adapter.adapt_many(task, images),
            Self::Online(adapter) => adapter.adapt_set(task, images),
            Self::Batch(adapter) => adapter.adapt(task, images),
        }?;
        if answers.len() == images.len() {
            return Ok(answers);
        }
        let reason = format!("expected one answer for each of {} images, found {}", images.len(), answers.len());
        Err(Error::config("method", reason))
    }

    /// The adapter itself if it is episodic.
    pub fn into_episodic(self) -> Result<Box<dyn Adapter>> {
        match self {
            Self::Episodic(adapter) => Ok(adapter),
            other => Err(wrong_kind("an episodic one", other.kind())),
        }
    }
}

/// An adapter of another kind than the place needs.
fn wrong_kind(expected: &str, found: Kind) -> Error {
    let what = match found {
        Kind::Episodic => "answers each image on its own",
        Kind::Online => "learns from a stream",
        Kind::Batch => "answers a whole set of images at once",
    };
    let reason = format!("expected {expected}, found a method of the {} kind: it {what}", found.name());
    Error::config("method", reason)
}

impl std::fmt::Debug for AnyAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AnyAdapter").field(&self.kind()).finish()
    }
}
