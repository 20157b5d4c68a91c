//! From a method, a model, a prompt and a class list to what answers images: the one place where a classifier and an
//! evaluation check and build what they run.

use super::encoder::ClipEncoder;
use super::features::TextFeatures;
use super::model::Model;
use super::requirements::Capabilities;
use super::rounds::{Certainty, Rounds};
use crate::image::DecodeOptions;
use crate::image::views::{ViewOptions, ViewPolicy};
use crate::methods::adapters::stss::check_bank_options;
use crate::methods::bank::TextBank;
use crate::methods::statistics::{SourceStatistics, prompts_hash};
use crate::methods::{AdapterSpec, AnyAdapter, Needs, Task, TextStore};
use crate::options::{Table, Value};
use crate::progress::Progress;
use crate::prompt::Prompt;
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::path::PathBuf;
use std::sync::Arc;

/// The most views of one image.
pub const MOST_VIEWS: usize = 4096;

/// What is chosen for a method besides its own options.
#[derive(Clone, Default)]
pub struct Settings {
    /// Seed of the views and of the method.
    pub seed: u64,
    /// Views per image; `None` takes the method's own number.
    pub views: Option<usize>,
    /// How views are made.
    pub policy: ViewPolicy,
    /// Any-time views.
    pub certainty: Option<Certainty>,
    /// How images are read.
    pub decode: DecodeOptions,
    /// Token statistics of training images.
    pub statistics: Option<Arc<SourceStatistics>>,
    /// A folder with generated images.
    pub generated: Option<PathBuf>,
    /// Where text banks are stored.
    pub store: Option<Arc<dyn TextStore>>,
    /// Who watches while text is encoded, and may cancel it.
    pub progress: Option<Arc<dyn Progress + Send + Sync>>,
    /// Images of the whole stream, where that is known.
    pub stream_length: Option<usize>,
}

/// What a method is prepared with.
pub struct Preparation<'a> {
    /// The method.
    pub spec: &'static AdapterSpec,
    /// Its options.
    pub options: &'a Table,
    /// The model.
    pub model: &'a Model,
    /// The prompt, for exactly these classes.
    pub prompt: &'a Arc<Prompt>,
    /// Class names, in the order of the answers.
    pub classes: &'a [String],
    /// Whether text features of other prompts stand around the prompt's own.
    pub bank: bool,
    /// Everything else.
    pub settings: Settings,
}

/// A method that is ready to answer.
pub struct Prepared {
    /// The method.
    pub adapter: AnyAdapter,
    /// What it needs with these options.
    pub needs: Needs,
    /// What stays the same over all images.
    pub task: Task,
    /// Any-time views.
    pub rounds: Option<Rounds>,
}

impl Preparation<'_> {
    /// Checks everything that can be refused, then computes what depends on prompt and classes alone; the encoder makes
    /// views and their features. `text` gives the
    /// prompt's text features, `beside` those of the other prompts of a bank; `warn` gets warnings about settings that look wrong but work.
    pub fn prepare(
        self,
        text: impl FnOnce() -> Result<Matrix>,
        beside: impl FnOnce() -> Result<Vec<Matrix>>,
        warn: impl Fn(&str),
    ) -> Result<(Prepared, ClipEncoder)> {
        let Self { spec, model, prompt, settings, .. } = self;
        if self.bank {
            check_bank_options(spec, self.options)?;
        }
        let mut adapter = spec.build(self.options)?;
        let needs = adapter.needs().unwrap_or(spec.needs);
        let views = checked_views(settings.views.unwrap_or(needs.default_views))?;
        let rounds = Rounds::checked(settings.certainty, spec.name, adapter.kind(), &needs)?;
        let capabilities = Capabilities {
            bank: self.bank,
            statistics: settings.statistics.is_some(),
            generated: settings.generated.is_some(),
            ..Capabilities::new(model, prompt)
        };
        capabilities.check(spec.name, &needs)?;
        let mut task = Task::from_features(
            prompt,
            text()?,
            model.clip(),
            model.tokenizer(),
            self.classes.to_vec(),
            settings.seed,
        )?;
        if self.bank {
            let bank = TextBank::from_prompts(task.text_features().clone(), beside()?)?;
            task.bank = Some(Arc::new(bank));
        }
        task.store = settings.store;
        task.stream_length = settings.stream_length;
        if let Some(statistics) = settings.statistics.as_ref().filter(|_| needs.statistics) {
            if let Some(mismatch) = statistics.mismatch(model.hash(), &prompts_hash(&prompt.visual_prompts())) {
                warn(&format!("token statistics: {mismatch}"));
            }
            task.statistics = Some(Arc::clone(statistics));
        }
        task.progress = settings.progress;
        adapter.prepare(&task)?;
        task.progress = None; // of the preparation only
        if let Some(reason) = adapter.too_short(&task) {
            warn(&format!("{}: {reason}", spec.name));
        }
        let visual_prompts = prompt.visual_prompts();
        let plain =
            visual_prompts.is_empty() && !needs.pixels && rounds.is_none() && settings.policy != ViewPolicy::AugMix;
        let encoder = ClipEncoder {
            bytes: plain && model.clip().vision().takes_bytes(),
            clip: Arc::clone(model.clip()),
            views: ViewOptions { policy: settings.policy, ..model.views(views) },
            decode: settings.decode,
            seed: settings.seed,
            visual_prompts,
            generated: settings.generated.filter(|_| needs.generated),
        };
        Ok((Prepared { adapter, needs, task, rounds }, encoder))
    }
}

/// What a method is prepared with where only features of images and classes are given.
pub struct FeaturePreparation<'a> {
    /// The method.
    pub spec: &'static AdapterSpec,
    /// Its options.
    pub options: &'a Table,
    /// Text features with class names, in the order of the answers.
    pub text: &'a TextFeatures,
    /// Text features around the prompt.
    pub bank: Option<&'a Arc<TextBank>>,
    /// Everything else; what needs a tower is not looked at.
    pub settings: &'a Settings,
}

impl FeaturePreparation<'_> {
    /// Checks everything that can be refused, then computes what depends on the text features alone.
    pub fn prepare(self) -> Result<Prepared> {
        let mut adapter = self.spec.build(self.options)?;
        let needs = adapter.needs().unwrap_or(self.spec.needs);
        let rounds = Rounds::checked(self.settings.certainty, self.spec.name, adapter.kind(), &needs)?;
        let capabilities = Capabilities { bank: self.bank.is_some(), ..Capabilities::features() };
        capabilities.check(self.spec.name, &needs)?;
        if self.bank.is_some() {
            check_bank_options(self.spec, self.options)?;
        }
        let TextFeatures { rows, logit_scale, classes } = self.text.clone();
        let mut task = Task::new(classes, rows, logit_scale, self.settings.seed)?;
        task.bank = self.bank.cloned();
        task.stream_length = self.settings.stream_length;
        adapter.prepare(&task)?;
        Ok(Prepared { adapter, needs, task, rounds })
    }
}

pub(super) fn checked_views(views: usize) -> Result<usize> {
    match views {
        0 => Err(Error::config("views", "expected at least 1, found 0")),
        1..=MOST_VIEWS => Ok(views),
        _ => Err(Error::config("views", format!("expected at most {MOST_VIEWS}, found {views}"))),
    }
}

/// Options for one of the methods that run: plain keys if it is the only one, and the table of its name. A table of a method
/// that does not run is a mistake, not a wish that can be passed over.
pub fn options_of(
    settings: &Table,
    method: &AdapterSpec,
    running: &[&str],
    find: impl Fn(&str) -> Option<&'static AdapterSpec>,
) -> Result<Table> {
    let mut options = Table::new();
    for (key, value) in settings {
        match (value, find(key)) {
            (Value::Table(table), Some(owner)) => {
                if owner.name == method.name {
                    options.extend(table.clone());
                } else if !running.contains(&owner.name) {
                    let reason = format!("options of {}, but what runs is {}", owner.name, running.join(", "));
                    return Err(Error::config(key, reason));
                }
            }
            _ if running.len() == 1 => {
                options.insert(key.clone(), value.clone());
            }
            _ => {
                let reason = format!("with several methods, say whose option it is: METHOD.{key}");
                return Err(Error::config(key, reason));
            }
        }
    }
    Ok(options)
}
