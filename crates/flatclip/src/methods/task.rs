//! What an adapter is given (task, views of an image) and what it gives back (answer).

use super::AdapterSpec;
use super::bank::TextBank;
use super::probability::scaled;
use super::statistics::SourceStatistics;
use crate::model::{ClassTokens, Clip, Context, ContextPass, TextTower};
use crate::progress::Progress;
use crate::prompt::{Prompt, PromptContent, PromptKind, template_context};
use crate::text::Tokenizer;
use crate::{Error, Hint, Result};
use flatclip_tensor::Matrix;
use flatclip_tensor::gemm::{Activation, Linear};
use std::sync::{Arc, OnceLock};

/// Everything that stays the same over a stream of images. It owns or shares what it holds, so that it can be kept and used by
/// many threads.
pub struct Task {
    /// Class names, in the order of the answers.
    pub classes: Arc<[String]>,
    /// Private: they are packed at the first product, and must stay what was packed.
    text_features: Matrix,
    /// `exp(logit_scale)`: 100 for OpenAI's weights.
    pub logit_scale: f32,
    /// Seed of every draw.
    pub seed: u64,
    /// The model, for adapters that run a tower.
    pub clip: Option<Arc<Clip>>,
    /// What made the text features: CoCoOp's and MaPLe's prompts are more than a context.
    pub prompt: Option<Arc<Prompt>>,
    /// What made tokens of the class names, for adapters that start from other texts as well.
    pub tokenizer: Option<Tokenizer>,
    /// The fixed tokens around the prompt's context.
    pub class_tokens: Option<ClassTokens>,
    /// The context that text-side adapters start from.
    pub context: Option<Context>,
    /// Token statistics of training images, for PromptAlign.
    pub statistics: Option<Arc<SourceStatistics>>,
    /// Where computed text banks are kept between runs.
    pub store: Option<Arc<dyn TextStore>>,
    /// Gets the progress of the preparation, and may cancel it.
    pub progress: Option<Arc<dyn Progress + Send + Sync>>,
    /// A ready text bank, for a prompt whose text tower is elsewhere.
    pub bank: Option<Arc<TextBank>>,
    /// Images of the whole stream, where that is known before it ends.
    pub stream_length: Option<usize>,
    /// The pass at the context, which is the same for every image.
    start: OnceLock<Box<dyn ContextPass>>,
    /// The text features, packed for products.
    text: OnceLock<Linear>,
}

/// Keeps what [`Adapter::prepare`](super::Adapter::prepare) computed, so that a second run need not. Adapters see no paths:
/// the caller gives them this.
pub trait TextStore: Send + Sync {
    /// What was saved under `key`.
    fn load(&self, key: &str) -> Option<Matrix>;
    /// Keeps `rows` under `key`; a store that cannot is allowed to forget.
    fn save(&self, key: &str, rows: &Matrix);
}

/// The text tower with everything that goes into it but the context.
#[derive(Clone, Copy, Debug)]
pub struct TextSide<'t> {
    /// The tower.
    pub tower: &'t dyn TextTower,
    /// The tokens around the context.
    pub tokens: &'t ClassTokens,
}

impl TextSide<'_> {
    /// Text features `[K, D]` at one context.
    pub(super) fn encode(&self, context: &Context) -> Result<Matrix> {
        Ok(self.tower.encode(self.tokens, std::slice::from_ref(context))?.swap_remove(0))
    }

    /// The same, ready for gradients.
    pub(super) fn pass(&self, context: &Context) -> Result<Box<dyn ContextPass>> {
        self.tower.pass(self.tokens, std::slice::from_ref(context))
    }
}

impl Task {
    /// The temperature of this model for one that was published for CLIP's logit scale of 100: in proportion to `1 / scale`, so
    /// that it divides logits of the same size. At a scale of 100 it is the published one.
    pub(crate) fn temperature(&self, published: f64) -> f64 {
        published * 100.0 / f64::from(self.logit_scale)
    }

    /// A task from class embeddings alone: what needs no tower works with it.
    pub fn new(classes: impl Into<Arc<[String]>>, text_features: Matrix, logit_scale: f32, seed: u64) -> Result<Self> {
        let classes = classes.into();
        if text_features.rows() != classes.len() || classes.is_empty() {
            let reason = format!("{} text features for {} classes", text_features.rows(), classes.len());
            return Err(Error::config("classes", reason));
        }
        if !(logit_scale.is_finite() && logit_scale > 0.0) {
            return Err(Error::config("logit_scale", format!("expected a positive number, found {logit_scale}")));
        }
        finite("text features", text_features.data())?;
        Ok(Self {
            classes,
            text_features,
            logit_scale,
            seed,
            clip: None,
            prompt: None,
            tokenizer: None,
            class_tokens: None,
            context: None,
            statistics: None,
            store: None,
            progress: None,
            bank: None,
            stream_length: None,
            start: OnceLock::new(),
            text: OnceLock::new(),
        })
    }

    /// The task of a prompt: its text features, and, where it has one, the context that text-side adapters
    /// start from. A single template starts at the embeddings of its words, as TPT does.
    pub fn from_prompt(
        prompt: &Arc<Prompt>,
        clip: &Arc<Clip>,
        tokenizer: &Tokenizer,
        classes: impl Into<Arc<[String]>>,
        seed: u64,
    ) -> Result<Self> {
        let classes = classes.into();
        let features = prompt.text_features(clip, tokenizer, &classes)?;
        Self::from_features(prompt, features, clip, tokenizer, classes, seed)
    }

    /// The same, for text features of the prompt that are known already: computing them is most of the work.
    pub fn from_features(
        prompt: &Arc<Prompt>,
        features: Matrix,
        clip: &Arc<Clip>,
        tokenizer: &Tokenizer,
        classes: impl Into<Arc<[String]>>,
        seed: u64,
    ) -> Result<Self> {
        let classes = classes.into();
        let start = match (&prompt.content, prompt.context()) {
            (_, Some(context)) => Some((prompt.class_tokens(tokenizer, &classes)?, context.clone())),
            (PromptContent::Templates(templates), _) if templates.len() == 1 && clip.passes().contexts => {
                template_context(&templates[0], clip.text()?, tokenizer, &classes)?
            }
            _ => None,
        };
        let mut task = Self::new(classes, features, clip.logit_scale(), seed)?.with_clip(Arc::clone(clip));
        (task.prompt, task.tokenizer) = (Some(Arc::clone(prompt)), Some(tokenizer.clone()));
        (task.class_tokens, task.context) = start.unzip();
        Ok(task)
    }

    /// A task for each template of a prompt of several, for adapters that tune every one of them by itself; none for every
    /// other prompt.
    pub(crate) fn by_template(&self) -> Result<Vec<Task>> {
        let (Some(prompt), Some(clip), Some(tokenizer)) = (&self.prompt, &self.clip, &self.tokenizer) else {
            return Ok(Vec::new());
        };
        let PromptContent::Templates(templates) = &prompt.content else { return Ok(Vec::new()) };
        let several = templates.iter().filter(|_| templates.len() > 1);
        let one = |template: &String| {
            let prompt = Arc::new(Prompt::templates(&[template])?);
            Task::from_prompt(&prompt, clip, tokenizer, Arc::clone(&self.classes), self.seed)
        };
        several.map(one).collect()
    }

    /// Adds the model, for adapters that run a tower.
    #[must_use]
    pub fn with_clip(mut self, clip: Arc<Clip>) -> Self {
        self.clip = Some(clip);
        self
    }

    /// Adds a context to start from and the tokens around it.
    #[must_use]
    pub fn with_context(mut self, class_tokens: ClassTokens, context: Context) -> Self {
        (self.class_tokens, self.context) = (Some(class_tokens), Some(context));
        self.start = OnceLock::new();
        self
    }

    /// Unit-norm `[K, D]`, the prompt's text features.
    pub fn text_features(&self) -> &Matrix {
        &self.text_features
    }

    /// Number of classes.
    pub fn class_count(&self) -> usize {
        self.text_features.rows()
    }

    /// Cosines `[V, K]` of unit-norm features with the text features, which are packed once for all images.
    pub fn cosines(&self, features: &Matrix) -> Matrix {
        cosines(features, self.text.get_or_init(|| packed(&self.text_features)))
    }

    /// Logits `[V, K]` of unit-norm features: cosines times the temperature.
    pub fn logits(&self, features: &Matrix) -> Matrix {
        scaled(self.cosines(features), self.logit_scale)
    }

    /// The model, or what `method` lacks.
    pub fn need_clip(&self, method: &str) -> Result<&Arc<Clip>> {
        self.clip.as_ref().ok_or_else(|| {
            Error::method(method, "runs a tower of the model, but only features were given").with_hint(Hint::Model)
        })
    }

    /// The text tower and the tokens around the context, or what `method` lacks.
    pub fn text_side(&self, method: &str) -> Result<TextSide<'_>> {
        let tower = self.need_clip(method)?.text()?;
        let tokens = self.class_tokens.as_ref().ok_or_else(|| no_context(method, self.prompt.as_deref()))?;
        Ok(TextSide { tower, tokens })
    }

    /// The context that every image starts from, or what `method` lacks.
    pub fn start_context(&self, method: &str) -> Result<&Context> {
        if self.prompt.as_deref().is_some_and(|p| matches!(p.content, PromptContent::CoCoOp { .. })) {
            let reason = "a cocoop prompt has another context for every image; use a learned prompt";
            return Err(Error::method(method, reason));
        }
        self.context.as_ref().ok_or_else(|| no_context(method, self.prompt.as_deref()))
    }

    /// The forward pass at the starting context. It is the same for every image, so it is done once and shared: an image costs
    /// only the backward pass.
    pub fn start_pass(&self, method: &str) -> Result<&dyn ContextPass> {
        if let Some(pass) = self.start.get() {
            return Ok(pass.as_ref());
        }
        let pass = self.text_side(method)?.pass(self.start_context(method)?)?;
        // Two threads may both have computed it; both computed the same.
        Ok(self.start.get_or_init(|| pass).as_ref())
    }
}

fn no_context(method: &str, prompt: Option<&Prompt>) -> Error {
    let kind = prompt.map_or("given", |p| p.kind().name());
    let reason = format!(
        "needs a prompt with one context (a learned prompt, or a single template such as \"a photo of a {{}}.\"); the {kind} \
         prompt has none"
    );
    Error::method(method, reason)
}

/// Text features, packed for products.
pub(super) fn packed(text: &Matrix) -> Linear {
    Linear::new(text.rows(), text.cols(), text.data(), None)
}

/// Cosines `[V, K]` of unit-norm features with packed text features.
pub(super) fn cosines(features: &Matrix, text: &Linear) -> Matrix {
    let mut out = Matrix::zeros(features.rows(), text.outputs());
    text.forward(features.data(), features.rows(), Activation::Identity, out.data_mut());
    out
}

/// One test image as its views.
#[derive(Clone, Copy, Debug)]
pub struct ViewSet<'a> {
    /// A name that is unique in the stream.
    pub id: &'a str,
    /// Unit-norm `[V, D]`; row 0 is the original. With a MaPLe prompt its visual prompts were in the tower.
    pub features: &'a Matrix,
    /// Norms of the raw features, one per view (empty when they are not known).
    pub norms: &'a [f32],
    /// The views' normalised pixels `[V, 3, H, W]`, for adapters that run the image tower.
    pub pixels: Option<&'a [f32]>,
    /// Unit-norm features `[G, D]` of generated views, for DiffTPT.
    pub generated: Option<&'a Matrix>,
    /// Whether the score of every view is wanted, also where the answer needs only some of them.
    pub explain: bool,
}

impl<'a> ViewSet<'a> {
    /// Features alone.
    pub fn new(id: &'a str, features: &'a Matrix) -> Self {
        Self { id, features, norms: &[], pixels: None, generated: None, explain: false }
    }

    /// Refuses features that do not fit the task or are not finite, and prompts that the adapter would misread: both would end as
    /// confident wrong answers.
    pub(crate) fn check(&self, task: &Task, spec: &AdapterSpec) -> Result<()> {
        let kind = task.prompt.as_deref().map(Prompt::kind);
        if let Some(kind) = kind.filter(|kind| !spec.needs.prompts.contains(kind)) {
            let reason =
                format!("works with {} prompts, this is a {kind} prompt", PromptKind::list(spec.needs.prompts));
            return Err(Error::method(spec.name, reason));
        }
        let (found, expected) = (self.features.cols(), task.text_features().cols());
        if self.features.rows() == 0 || found != expected {
            let reason = format!("{} views of width {found}, text features of width {expected}", self.features.rows());
            return Err(Error::config(format!("image {}", self.id), reason));
        }
        finite(self.id, self.features.data())
    }

    /// The views' pixels, or what `method` lacks.
    pub(crate) fn need_pixels(&self, method: &str) -> Result<&'a [f32]> {
        self.pixels.ok_or_else(|| Error::method(method, format!("image {} has features but no pixels", self.id)))
    }
}

fn finite(place: &str, values: &[f32]) -> Result<()> {
    if values.iter().all(|x| x.is_finite()) {
        return Ok(());
    }
    Err(Error::NotFinite {
        place: place.to_string(),
        reason: "features hold NaN or infinity; look at the input".into(),
    })
}

/// The answer for one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Index of the class.
    pub prediction: usize,
    /// One per class, summing to 1.
    pub probabilities: Vec<f32>,
    /// What the method ranks the classes by: logits, or votes. Top-5 is computed on it.
    pub class_scores: Vec<f32>,
    /// Why.
    pub explanation: Explanation,
}

/// Which views were selected, and the scores and predictions of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The selected views, best first.
    pub selected: Vec<usize>,
    /// What views were ranked by, one per view, lower is better.
    pub scores: Vec<f32>,
    /// Views whose score is a lower bound: it was enough to know that they are not selected.
    pub bounds: Vec<usize>,
    /// Entropy in nats of every view at the unadapted prompt.
    pub entropies: Vec<f32>,
    /// Class of every view at the unadapted prompt.
    pub predictions: Vec<usize>,
    /// For models with a logit bias (SigLIP): how the model scores the image itself, at the unadapted prompt, with each class
    /// alone. These scores do not add to 1. Empty for other models.
    pub sigmoid: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::AnyAdapter;

    /// Compiles only while these can be kept in a handle that threads share.
    #[test]
    fn a_task_and_an_adapter_can_be_shared_by_threads() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<Task>();
        shared::<AnyAdapter>();
        shared::<Box<dyn ContextPass>>();
    }
}
