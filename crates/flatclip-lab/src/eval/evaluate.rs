//! Evaluation: prompt x adapters x data sets x seeds, each a run directory.

use super::cache::Imported;
use super::runner::{ImportedText, NamedPrompt, RunRequest, Runner, Subject, file_name};
use crate::data::{Dataset, Family};
use crate::eval::{Shard, Summary, Timing};
use flatclip::Model;
use flatclip::classify::{Certainty, Rounds, check_origin, options_of};
use flatclip::image::views::ViewPolicy;
use flatclip::methods::bank::Radius;
use flatclip::methods::policy::{TestFamily, policy_for};
use flatclip::methods::statistics::SourceStatistics;
use flatclip::methods::{AdapterSpec, Needs, Registry};
use flatclip::progress::Progress;
use flatclip::prompt::{Descriptions, Prompt};
use flatclip::{Error, Hint, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Which prompt a data set is evaluated with.
#[derive(Clone, Debug)]
pub enum PromptChoice {
    /// This one for all data sets.
    One(NamedPrompt),
    /// The data set's own templates.
    OwnTemplates,
    /// The text features that were imported with the images' features.
    Imported,
    /// Templates and sentences that describe the classes, such as CuPL's.
    Described {
        /// The templates; the data set's own when there are none.
        templates: Vec<String>,
        /// A JSON object of class names, each with a list of sentences.
        file: PathBuf,
    },
}

/// How views are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewChoice {
    /// The same way for every method and data set.
    Policy(ViewPolicy),
    /// What the method's own code does for the data set.
    Published,
}

/// What is evaluated, and how.
#[derive(Clone, Debug)]
pub struct EvaluateRequest {
    /// Names of adapters, or `all` that model and prompt can serve, or `all-features`, those of them that need no text tower;
    /// none: the prompt's [default](Prompt::default_method).
    pub methods: Vec<String>,
    /// Options: plain keys for a single method, or a table for each method's name.
    pub options: toml::Table,
    /// The prompt.
    pub prompt: PromptChoice,
    /// Views per image, the image itself included; `None`: the largest default of the chosen methods.
    pub views: Option<usize>,
    /// Any-time views: no more of them than an answer needs, by this mean probability of it. For methods that select or
    /// average views.
    pub certainty: Option<Certainty>,
    /// How views are made.
    pub view_policy: ViewChoice,
    /// Seeds of views and methods; one run for each.
    pub seeds: Vec<u64>,
    /// Shuffles the stream; `None` for the data set's own order.
    pub order_seed: Option<u64>,
    /// Only so many samples, spread evenly over the data set.
    pub limit: Option<usize>,
    /// Only this part of the stream.
    pub shard: Option<Shard>,
    /// Stop when more samples than this cannot be answered.
    pub max_errors: usize,
    /// Keep the probability of every class in the records, for metrics at other temperatures.
    pub keep_probabilities: bool,
    /// Folder with generated images for DiffTPT: `FOLDER/<sample id without ending>/*.png`.
    pub generated: Option<PathBuf>,
    /// Token statistics of training images for PromptAlign.
    pub statistics: Option<Arc<SourceStatistics>>,
    /// Prompts whose text features stand around the prompt's own, for STSS: natural perturbations in place of random ones.
    pub bank: Vec<NamedPrompt>,
    /// Folder in which features are kept between runs; `None` keeps nothing.
    pub cache: Option<PathBuf>,
    /// Accept a prompt that was learned with another model.
    pub any_model: bool,
    /// Rotate images per EXIF and scale 16-bit grey, or read them as Pillow does; `None`: by the kind of the data set.
    pub exif: Option<bool>,
    /// Oddities of published code that the data sets reproduce, for the record.
    pub compat: Vec<String>,
    /// The run directory; with several data sets, methods, seeds or shards, the folder of theirs.
    pub out: PathBuf,
    /// Resume unfinished runs; skip finished ones.
    pub resume: bool,
    /// The methods to choose from.
    pub registry: Registry,
}

impl EvaluateRequest {
    /// The usual template with its default method, into this directory.
    pub fn new(out: impl Into<PathBuf>) -> Result<Self> {
        Ok(Self {
            methods: Vec::new(),
            options: toml::Table::new(),
            prompt: PromptChoice::One(Prompt::templates(&[Prompt::TEMPLATE])?.into()),
            views: None,
            certainty: None,
            view_policy: ViewChoice::Policy(ViewPolicy::default()),
            seeds: vec![0],
            order_seed: None,
            limit: None,
            shard: None,
            max_errors: 100,
            keep_probabilities: false,
            generated: None,
            statistics: None,
            bank: Vec::new(),
            cache: None,
            any_model: false,
            exif: None,
            compat: Vec::new(),
            out: out.into(),
            resume: false,
            registry: Registry::builtin(),
        })
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct EvaluatedRun {
    /// Its directory.
    pub dir: PathBuf,
    /// Views per image.
    pub views: usize,
    /// The radius of its method around the prompt, where it has one.
    pub radius: Option<Radius>,
    /// Its numbers.
    pub summary: Summary,
    /// Where the time went.
    pub timing: Timing,
}

/// Evaluates a model, or imported features, on each data set in turn. Runs are independent: an error ends the call, what was finished stays.
pub fn evaluate<'a>(
    request: &EvaluateRequest,
    subject: impl Into<Subject<'a>>,
    datasets: &[Dataset],
    progress: &dyn Progress,
) -> Result<Vec<EvaluatedRun>> {
    request.check()?;
    let (subject, mut done) = (subject.into(), Vec::new());
    for dataset in datasets {
        let runner = request.runner(subject, dataset, progress)?;
        let has_images = matches!(subject, Subject::Model(_));
        if has_images && (dataset.family == Family::Custom || request.exif.is_some()) {
            let read =
                if dataset.decode_options(request.exif).exif { "EXIF applied" } else { "as Pillow, EXIF ignored" };
            progress.note(&format!("{}: images read: {read}", dataset.name));
        }
        let methods = request.chosen(&runner)?;
        let most = methods.iter().map(|method| method.needs.default_views).max().unwrap_or(1);
        let names: Vec<&str> = methods.iter().map(|method| method.name).collect();
        for method in &methods {
            let find = |name: &str| request.registry.adapter(name).ok();
            let options = options_of(&request.options, method, &names, find)?;
            let (policy, views) = request.views_for(subject, method, dataset, most)?;
            for &seed in &request.seeds {
                let several = [datasets.len() > 1, methods.len() > 1, request.seeds.len() > 1];
                let dir = run_dir(&request.out, &dataset.name, method.name, seed, several, request.shard);
                let (options, certainty) = (options.clone(), request.certainty);
                let run = RunRequest { method, options, policy, views, certainty, seed, dir };
                let (summary, timing) = match runner.run(dataset, &run) {
                    // What a group brought along may refuse these features; what was named must run.
                    Err(reason @ Error::Limit { .. }) if !request.is_named(method) => {
                        progress.warn(&format!("{} is skipped: {reason}", method.name));
                        continue;
                    }
                    result => result?,
                };
                let radius = runner.radius(method, &run.options);
                done.push(EvaluatedRun { dir: run.dir, views, radius, summary, timing });
            }
        }
    }
    Ok(done)
}

impl EvaluateRequest {
    /// Refuses what would end in an empty run, or in two runs in one directory.
    fn check(&self) -> Result<()> {
        if self.limit == Some(0) {
            return Err(Error::config("limit", "expected at least 1 sample, found 0"));
        }
        let seeds: BTreeSet<&u64> = self.seeds.iter().collect();
        let methods: BTreeSet<&String> = self.methods.iter().collect();
        if seeds.len() < self.seeds.len() || methods.len() < self.methods.len() {
            return Err(Error::config("methods and seeds", "one is a duplicate; each makes a run of its own"));
        }
        Ok(())
    }

    /// What the runs on a data set share.
    pub(crate) fn runner<'a>(
        &'a self,
        subject: Subject<'a>,
        dataset: &Dataset,
        progress: &'a dyn Progress,
    ) -> Result<Runner<'a>> {
        let (prompt, text) = match subject {
            Subject::Model(model) => (self.prompt_for(model, dataset)?, None),
            Subject::Features(features) => {
                let (prompt, text) = self.text_of(features)?;
                (prompt, Some(text))
            }
        };
        Ok(Runner { base: self, subject, prompt, text, progress, texts: Mutex::default() })
    }

    fn prompt_for(&self, model: &Model, dataset: &Dataset) -> Result<NamedPrompt> {
        let prompt = match &self.prompt {
            PromptChoice::One(prompt) => prompt.clone(),
            PromptChoice::OwnTemplates => NamedPrompt::from(Prompt::templates(&dataset.templates)?),
            PromptChoice::Imported => {
                let reason = "imported text features need imported image features, found a model";
                return Err(Error::config("prompt", reason));
            }
            PromptChoice::Described { templates, file } => {
                let texts = if templates.is_empty() { &dataset.templates } else { templates };
                let described = Descriptions::read(file)?;
                described.prompt(model.clip(), model.tokenizer(), texts, &dataset.classes)?.into()
            }
        };
        if !self.any_model {
            check_origin(&prompt.prompt, model)?;
        }
        Ok(prompt)
    }

    /// Class embeddings for imported features; whatever needs a tower is refused.
    fn text_of(&self, features: &Imported) -> Result<(NamedPrompt, ImportedText)> {
        let given = match &self.prompt {
            PromptChoice::Imported => None,
            PromptChoice::One(named) => Some(named),
            PromptChoice::OwnTemplates | PromptChoice::Described { .. } => {
                let reason = "templates and descriptions need a text tower, and there are features only";
                return Err(Error::config("prompt", reason).with_hint(Hint::TextFeatures));
            }
        };
        if !self.bank.is_empty() || self.generated.is_some() || self.statistics.is_some() {
            let reason = "prompts around the prompt, generated images and token statistics need a model";
            return Err(Error::config("features", reason));
        }
        let text = features.text(given.map(|named| named.prompt.as_ref()))?;
        let name = given.map_or_else(|| features.name().to_owned(), |named| named.name.clone());
        let prompt = Arc::new(Prompt::features(text.rows().clone())?);
        // A bank lies around the text features that it came with, not around others.
        let bank = features.bank().filter(|_| given.is_none()).cloned();
        Ok((NamedPrompt { name, prompt }, ImportedText { text, bank }))
    }

    /// The adapters by name; of `all`, those that can be served. A warning names the others.
    fn chosen(&self, runner: &Runner<'_>) -> Result<Vec<&'static AdapterSpec>> {
        let mut specs: Vec<&'static AdapterSpec> = Vec::new();
        let usual = [runner.prompt.prompt.default_method().to_owned()];
        for name in if self.methods.is_empty() { &usual[..] } else { &self.methods } {
            if name == "all" || name == "all-features" {
                let wanted =
                    |spec: &&&AdapterSpec| name == "all" || needs_features_only(&spec.needs, !self.bank.is_empty());
                for spec in self.registry.adapters().iter().filter(wanted) {
                    let met = runner.capabilities().check(spec.name, &spec.needs);
                    match met.and_then(|()| self.check_rounds(spec)) {
                        Ok(()) => specs.push(spec),
                        Err(reason) => runner.progress.note(&format!("{} is skipped: {reason}", spec.name)),
                    }
                }
                continue;
            }
            let spec = self.registry.adapter(name)?;
            let label = runner.prompt.prompt.label();
            if name.eq_ignore_ascii_case("fga") && label != "sapt" {
                let what = format!("fga is stss with a sapt prompt, and this prompt is `{label}`");
                runner.progress.warn(&format!("{what}: the run is recorded as {label} + {}", spec.name));
            }
            specs.push(spec);
        }
        if specs.is_empty() {
            return Err(Error::config("method", "no compatible method"));
        }
        Ok(specs)
    }

    /// Whether a method was asked for by its own name.
    fn is_named(&self, spec: &AdapterSpec) -> bool {
        let own = |name: &String| self.registry.adapter(name).is_ok_and(|named| named.name == spec.name);
        self.methods.is_empty() || self.methods.iter().any(own)
    }

    /// Whether a method can have the any-time views that are asked for.
    fn check_rounds(&self, spec: &AdapterSpec) -> Result<()> {
        Rounds::checked(self.certainty, spec.name, spec.kind(), &spec.needs).map(drop)
    }

    /// Augmentation and number of views of one method on one data set.
    pub(crate) fn views_for(
        &self,
        subject: Subject<'_>,
        spec: &AdapterSpec,
        dataset: &Dataset,
        most: usize,
    ) -> Result<(ViewPolicy, usize)> {
        if self.views == Some(0) {
            return Err(Error::config("views", "expected at least 1, found 0"));
        }
        if let Some(views) = self.views.filter(|&views| views > 4096) {
            return Err(Error::config("views", format!("expected at most 4096, found {views}")));
        }
        if let Subject::Features(features) = subject {
            return Ok((ViewPolicy::Identity, self.views.unwrap_or(features.views())));
        }
        let ViewChoice::Policy(policy) = self.view_policy else {
            let published = policy_for(spec.name, test_family(&dataset.name, dataset.family))?;
            // A method that was published with the image alone has no views to make more or fewer of.
            let views = self.views.filter(|_| published.policy != ViewPolicy::Identity);
            return Ok((published.policy, views.unwrap_or(published.views)));
        };
        let default = if policy == ViewPolicy::Identity { 1 } else { most };
        Ok((policy, self.views.unwrap_or(default)))
    }
}

/// Whether features of images and class embeddings are enough.
fn needs_features_only(needs: &Needs, has_bank: bool) -> bool {
    let text_tower = needs.text_tower && !(needs.bank && has_bank);
    !(text_tower || needs.pixels || needs.generated || needs.statistics)
}

fn run_dir(out: &Path, dataset: &str, method: &str, seed: u64, several: [bool; 3], shard: Option<Shard>) -> PathBuf {
    let mut dir = out.to_path_buf();
    let [datasets, methods, seeds] = several;
    if datasets {
        dir.push(file_name(dataset));
    }
    if methods {
        dir.push(method);
    }
    if seeds {
        dir.push(format!("seed-{seed}"));
    }
    if let Some(Shard { index, count }) = shard {
        dir.push(format!("shard-{index:04}-of-{count:04}"));
    }
    dir
}

/// The group of test sets that a known data set belongs to.
pub(crate) fn test_family(name: &str, family: Family) -> TestFamily {
    match family {
        Family::Imagenet if name == "imagenet" => TestFamily::ImageNet,
        Family::Imagenet => TestFamily::NaturalShift,
        _ => TestFamily::CrossDataset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip::methods::adapter;

    #[test]
    fn options_reach_their_method_and_stray_ones_are_refused() {
        let settings: toml::Table = toml::from_str("[stss]\nradius = 0.3\n[zero]\nfraction = 0.2").unwrap();
        let of = |settings: &toml::Table, method: &str, count: usize| {
            let running = &[method, if method == "zero" { "stss" } else { "zero" }][..count];
            options_of(settings, adapter(method).unwrap(), running, |name| adapter(name).ok())
        };
        assert_eq!(of(&settings, "stss", 2).unwrap()["radius"].as_float(), Some(0.3));
        assert!(!of(&settings, "zero", 2).unwrap().contains_key("radius"));
        let plain: toml::Table = toml::from_str("radius = 0.3").unwrap();
        assert!(of(&plain, "stss", 1).is_ok());
        assert!(of(&plain, "stss", 2).unwrap_err().to_string().contains("METHOD.radius"));
        assert!(of(&settings, "stss", 1).unwrap_err().to_string().contains("options of zero"));
    }

    #[test]
    fn every_run_has_a_directory_of_its_own() {
        let shard = "1/4".parse().ok();
        assert_eq!(run_dir(Path::new("o"), "pocket:hard", "mta", 0, [false; 3], None), Path::new("o"));
        let all = run_dir(Path::new("o"), "pocket:hard", "mta", 2, [true; 3], shard);
        assert_eq!(all, Path::new("o/pocket-hard/mta/seed-2/shard-0001-of-0004"));
    }
}
