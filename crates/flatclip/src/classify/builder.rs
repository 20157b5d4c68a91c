//! What a classifier is made of.

use super::classifier::Classifier;
use super::features::TextFeatures;
use super::model::Model;
use super::prepare::{FeaturePreparation, Preparation, Settings, checked_views, options_of};
use super::requirements::check_origin;
use super::rounds::Certainty;
use super::text_cache::TextCache;
use crate::image::views::ViewPolicy;
use crate::methods::bank::TextBank;
use crate::methods::statistics::SourceStatistics;
use crate::methods::{AdapterSpec, Registry, TextStore};
use crate::options::{Table, Value};
use crate::progress::Progress;
use crate::prompt::Prompt;
use crate::text::imagenet;
use crate::text::templates::{Ensemble, duplicates};
use crate::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Builds a [`Classifier`].
#[derive(Clone)]
#[must_use]
pub struct ClassifierBuilder {
    source: Source,
    classes: Vec<String>,
    prompt: Option<Prompt>,
    method: Option<String>,
    options: Table,
    registry: Registry,
    settings: Settings,
    any_model: bool,
    explain: bool,
}

/// Where text features come from.
#[derive(Clone, Debug)]
enum Source {
    Model(Model),
    Text { text: TextFeatures, bank: Option<Arc<TextBank>> },
}

impl std::fmt::Debug for ClassifierBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ClassifierBuilder");
        shown.field("source", &self.source).field("method", &self.method).finish_non_exhaustive()
    }
}

impl ClassifierBuilder {
    pub(super) fn with_model(model: &Model) -> Self {
        Self::new(Source::Model(model.clone()))
    }

    pub(super) fn with_text(text: TextFeatures, bank: Option<TextBank>) -> Self {
        Self::new(Source::Text { text, bank: bank.map(Arc::new) })
    }

    fn new(source: Source) -> Self {
        Self {
            explain: false,
            source,
            classes: Vec::new(),
            prompt: None,
            method: None,
            options: Table::new(),
            registry: Registry::builtin(),
            settings: Settings::default(),
            any_model: false,
        }
    }

    /// Whether answers say the score of every view. Otherwise STSS gives views that cannot be selected only a lower bound
    /// ([`Explanation::bounds`](crate::methods::Explanation::bounds)), which takes a fraction of the time; the answer is the
    /// same. Off unless asked for; [`Classifier::explaining`] switches it for some answers.
    pub fn explain(mut self, explain: bool) -> Self {
        self.explain = explain;
        self
    }

    /// The class names, in the order of the probabilities. A prompt that stores its classes needs none.
    pub fn classes<S: Into<String>>(mut self, classes: impl IntoIterator<Item = S>) -> Self {
        self.classes = classes.into_iter().map(Into::into).collect();
        self
    }

    /// The prompt; by default [`Prompt::TEMPLATE`].
    pub fn prompt(mut self, prompt: Prompt) -> Self {
        self.prompt = Some(prompt);
        self
    }

    /// A text with `{}` for the class name.
    pub fn template(self, template: &str) -> Result<Self> {
        Ok(self.prompt(Prompt::templates(&[template])?))
    }

    /// A known set of templates: `imagenet7` or `imagenet80`.
    pub fn ensemble(self, name: &str) -> Result<Self> {
        Ok(self.prompt(Prompt::templates(name.parse::<Ensemble>()?.templates())?))
    }

    /// How to answer: the name of an adapter. By default [`Prompt::default_method`].
    pub fn method(mut self, name: &str) -> Self {
        self.method = Some(name.to_owned());
        self
    }

    /// An option of the method; unknown ones and values out of range are errors here.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Result<Self> {
        self.options.insert(key.to_owned(), value.into());
        let spec = self.spec()?;
        spec.build(&self.own_options(spec)?)?;
        Ok(self)
    }

    /// All options of the method; checked when it is built.
    pub fn options(mut self, options: Table) -> Self {
        self.options = options;
        self
    }

    /// The methods to choose from, where they are not only the built-in ones.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Views per image, the image itself included; by default that of the method.
    pub fn views(mut self, count: usize) -> Self {
        self.settings.views = Some(count);
        self
    }

    /// Any-time views: they are encoded in rounds (1, 4, 8, 16, ...), and no more of them once the selected ones give the answer
    /// this mean probability and the round before agrees. [`Certainty::Usual`] keeps the accuracy of all views on
    /// the embedded models at about a third of the cost.
    pub fn any_time(mut self, certainty: impl Into<Certainty>) -> Self {
        self.settings.certainty = Some(certainty.into());
        self
    }

    /// How views are made; by default by crops and flips.
    pub fn view_policy(mut self, policy: ViewPolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Seed of the views and of the method.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Token statistics of training images, for PromptAlign.
    pub fn statistics(mut self, statistics: Arc<SourceStatistics>) -> Self {
        self.settings.statistics = Some(statistics);
        self
    }

    /// A folder with generated images for DiffTPT: `FOLDER/<image's name without ending>/*.png`.
    pub fn generated(mut self, folder: impl Into<PathBuf>) -> Self {
        self.settings.generated = Some(folder.into());
        self
    }

    /// A folder in which text banks are kept between programs.
    pub fn cache(self, folder: impl Into<PathBuf>) -> Self {
        self.text_store(Arc::new(TextCache::new(&folder.into())))
    }

    /// A place of the caller's own for text banks, such as the memory of a server.
    pub fn text_store(mut self, store: Arc<dyn TextStore>) -> Self {
        self.settings.store = Some(store);
        self
    }

    /// Gets the number of encoded texts while the classifier is built, and may cancel it between chunks of them.
    pub fn progress(mut self, progress: Arc<dyn Progress + Send + Sync>) -> Self {
        self.settings.progress = Some(progress);
        self
    }

    /// The largest image, in pixels; one that is larger is refused from its header.
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.settings.decode.max_pixels = pixels;
        self
    }

    /// Read images as a person sees them (rotated per EXIF, 16-bit grey scaled), which is the default, or, with `false`, as
    /// Pillow's `convert("RGB")`, which published numbers of benchmark data sets rest on.
    pub fn exif(mut self, apply: bool) -> Self {
        self.settings.decode.exif = apply;
        self
    }

    /// Accept a prompt that was learned with another model.
    pub fn any_model(mut self, accept: bool) -> Self {
        self.any_model = accept;
        self
    }

    /// Computes text features and whatever else depends on prompt and class list alone.
    pub fn build(self) -> Result<Classifier> {
        match &self.source {
            Source::Model(model) => self.with_towers(model),
            Source::Text { text, bank } => self.without_towers(text, bank.as_ref()),
        }
    }

    fn with_towers(&self, model: &Model) -> Result<Classifier> {
        let spec = self.spec()?;
        let prompt = Arc::new(match &self.prompt {
            Some(prompt) => prompt.clone(),
            None => Prompt::templates(&[Prompt::TEMPLATE])?,
        });
        if !self.any_model {
            check_origin(&prompt, model)?;
        }
        let classes = self.checked_classes(&prompt)?;
        let text = || match &self.settings.progress {
            None => prompt.text_features(model.clip(), model.tokenizer(), classes),
            Some(progress) => prompt.text_features_with(model.clip(), model.tokenizer(), classes, progress.as_ref()),
        };
        let preparation = Preparation {
            spec,
            options: &self.own_options(spec)?,
            model,
            prompt: &prompt,
            classes,
            bank: false,
            settings: self.settings.clone(),
        };
        let (prepared, encoder) = preparation.prepare(text, || Ok(Vec::new()), |text| tracing::warn!("{text}"))?;
        Ok(Classifier::new(spec, prepared, Some(encoder), self.explain))
    }

    /// On features of another model.
    fn without_towers(&self, text: &TextFeatures, bank: Option<&Arc<TextBank>>) -> Result<Classifier> {
        let spec = self.spec()?;
        if let Some(views) = self.settings.views {
            checked_views(views)?;
        }
        let text = if self.classes.is_empty() { text.clone() } else { text.clone().named(self.classes.clone())? };
        check_distinct(&text.classes)?;
        let preparation =
            FeaturePreparation { spec, options: &self.own_options(spec)?, text: &text, bank, settings: &self.settings };
        Ok(Classifier::new(spec, preparation.prepare()?, None, self.explain))
    }

    /// The method that was named, or the prompt's own.
    fn spec(&self) -> Result<&'static AdapterSpec> {
        let usual = self.prompt.as_ref().map_or(Prompt::DEFAULT_METHOD, Prompt::default_method);
        self.registry.adapter(self.method.as_deref().unwrap_or(usual))
    }

    /// Plain keys, or those of the method's own table.
    fn own_options(&self, spec: &'static AdapterSpec) -> Result<Table> {
        options_of(&self.options, spec, &[spec.name], |name| self.registry.adapter(name).ok())
    }

    /// The class names that were given, or the prompt's own.
    fn checked_classes<'a>(&'a self, prompt: &'a Prompt) -> Result<&'a [String]> {
        let own = &prompt.provenance.classes;
        let classes = if self.classes.is_empty() { own } else { &self.classes };
        check_classes(classes)?;
        // A prompt that was learned with a list of a data set serves that list, whatever it holds.
        if classes != own {
            check_distinct(classes)?;
        }
        Ok(classes)
    }
}

/// A class list that can be answered: not empty, no empty name.
fn check_classes(classes: &[String]) -> Result<()> {
    if classes.is_empty() {
        return Err(Error::config("classes", "expected class names, found none"));
    }
    match classes.iter().position(|name| name.trim().is_empty()) {
        Some(at) => Err(Error::config("classes", format!("class {} has no name", at + 1))),
        None => Ok(()),
    }
}

/// Refuses a name that occurs twice: both classes get the same text and so the same score, and each half of the
/// probability. ImageNet's own list has two such names, as every published number was made with them.
fn check_distinct(classes: &[String]) -> Result<()> {
    let Some((name, labels)) = duplicates(classes).into_iter().next() else { return Ok(()) };
    if imagenet::CLASS_NAMES.iter().eq(classes.iter()) {
        return Ok(());
    }
    let reason = format!(
        "{name:?} occurs {} times (labels {labels:?}): equal names share their probability; \
         give each class a name of its own",
        labels.len()
    );
    Err(Error::config("classes", reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Counts texts, and cancels after so many.
    struct Until {
        most: u64,
        stages: AtomicU64,
        done: AtomicU64,
    }

    impl Progress for Until {
        fn start(&self, _: &str, _: Option<u64>) {
            self.stages.fetch_add(1, Ordering::Relaxed);
        }
        fn advance(&self, done: u64, _: &str) {
            self.done.store(done, Ordering::Relaxed);
        }
        fn cancelled(&self) -> bool {
            self.done.load(Ordering::Relaxed) >= self.most
        }
    }

    #[test]
    fn building_tells_its_texts_can_be_cancelled_and_gives_the_same_features() {
        let model = Model::load("pocket").unwrap();
        let classes: Vec<String> = (0..300).map(|number| format!("thing {number}")).collect();
        let build = |most: u64, method: &str| {
            let watch = Arc::new(Until { most, stages: AtomicU64::new(0), done: AtomicU64::new(0) });
            let builder = ClassifierBuilder::with_model(&model).classes(classes.clone()).method(method);
            (builder.progress(Arc::clone(&watch) as _).build(), watch)
        };
        let (watched, watch) = build(u64::MAX, "stss");
        // Features, then the bank: 16 contexts of 300 classes.
        assert_eq!((watch.stages.load(Ordering::Relaxed), watch.done.load(Ordering::Relaxed)), (2, 16 * 300));
        let plain = ClassifierBuilder::with_model(&model).classes(classes.clone()).method("stss").build().unwrap();
        let image = crate::Image { width: 40, height: 30, rgb: (0..3600u32).map(|i| (i * 7) as u8).collect() };
        assert_eq!(watched.unwrap().answer(&image).unwrap(), plain.answer(&image).unwrap());
        for (most, method) in [(1, "zero-shot"), (301, "stss")] {
            let (cancelled, _) = build(most, method);
            assert_eq!(cancelled.unwrap_err().code(), "interrupted", "{method}");
        }
    }

    #[test]
    fn a_name_that_occurs_twice_is_refused_except_in_imagenets_own_list() {
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        check_distinct(&names(&["cat", "Cat"])).unwrap();
        let error = check_distinct(&names(&["cat", "dog", "cat"])).unwrap_err().to_string();
        assert!(error.contains("\"cat\" occurs 2 times (labels [0, 2])"), "{error}");
        check_distinct(&names(&imagenet::CLASS_NAMES)).unwrap();
        assert!(check_distinct(&names(&imagenet::CLASS_NAMES[1..])).is_err(), "another list than ImageNet's");
    }
}
