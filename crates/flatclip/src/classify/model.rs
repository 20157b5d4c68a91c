//! A model: two towers, the tokenizer and the preprocessing that belong together.

use super::folders;
use super::memory::MemoryNeed;
use super::requirements::check_origin;
use crate::architecture::{Activation, ClipConfig};
use crate::image::Image;
use crate::image::views::{ViewKey, ViewOptions, make_views};
use crate::model::{Clip, Features, LoadOptions, Precision, Towers};
use crate::progress::Progress;
use crate::prompt::Prompt;
use crate::text::Tokenizer;
use crate::weights::{self, Checkpoint, Places};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::path::PathBuf;
use std::sync::Arc;

/// Images per call of the image tower: enough to keep every core busy, few enough to stay small in memory.
const BATCH: usize = 32;

/// A loaded model. A cheap handle on shared data: clone it, send it to other threads.
///
/// ```
/// # fn main() -> flatclip::Result<()> {
/// let model = flatclip::Model::load("pocket")?;
/// let features = model.encode_texts(&["a photo of a cat.", "a photo of a dog."])?;
/// assert_eq!((features.rows(), features.cols()), (2, model.width()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Model(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    name: String,
    clip: Arc<Clip>,
    tokenizer: Tokenizer,
    /// How it was loaded; absent where its parts were given.
    origin: Option<ModelBuilder>,
}

/// How a model is found and loaded.
#[derive(Clone, Debug)]
#[must_use]
pub struct ModelBuilder {
    name: String,
    places: Places,
    offline: bool,
    precision: Option<Precision>,
    text_precision: Precision,
    activation: Option<Activation>,
    towers: Towers,
    hash_cache: Option<PathBuf>,
}

impl Model {
    /// Loads an embedded model (`pocket`, `pocket-vit`), a checkpoint file, a model folder, a known name such as
    /// `ViT-B-16/openai` (fetched with the feature `hub` where it is not on disk), or random weights (`random:ViT-B-16`).
    pub fn load(name: impl Into<String>) -> Result<Self> {
        Self::builder(name).load(&())
    }

    /// The same with choices.
    pub fn builder(name: impl Into<String>) -> ModelBuilder {
        ModelBuilder {
            name: name.into(),
            places: folders::model_places(),
            offline: false,
            precision: None,
            text_precision: Precision::F32,
            activation: None,
            towers: Towers::Both,
            hash_cache: Some(folders::cache_folder()),
        }
    }

    /// A model from given towers and tokenizer.
    pub fn from_parts(name: impl Into<String>, clip: Clip, tokenizer: Tokenizer) -> Self {
        Self(Arc::new(Parts { name: name.into(), clip: Arc::new(clip), tokenizer, origin: None }))
    }

    /// The same model with a text tower that multiplies in another precision; the image tower is shared. The weights are read
    /// again where they were found. A model whose parts were given stays as it is.
    pub fn with_text_precision(&self, precision: Precision) -> Result<Self> {
        let Some(origin) = self.0.origin.as_ref().filter(|_| precision != self.clip().text_precision()) else {
            return Ok(self.clone());
        };
        let checkpoint = origin.clone().offline(true).open_hashed(&())?;
        if checkpoint.hash()? != self.hash() {
            let reason =
                format!("the weights of {} have changed since they were loaded; load the model again", self.name());
            return Err(Error::config("model", reason));
        }
        let clip = Arc::new(self.clip().with_text_precision(&checkpoint, precision)?);
        let (name, tokenizer) = (self.0.name.clone(), self.0.tokenizer.clone());
        Ok(Self(Arc::new(Parts { name, clip, tokenizer, origin: Some(origin.clone()) })))
    }

    /// As it was asked for.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The architecture in one line.
    pub fn describe(&self) -> String {
        self.config().describe()
    }

    /// The architecture.
    pub fn config(&self) -> &ClipConfig {
        self.0.clip.config()
    }

    /// Names the weights: the same for the same numbers, whatever file they came from.
    pub fn hash(&self) -> &str {
        self.0.clip.hash()
    }

    /// Width of the features, D.
    pub fn width(&self) -> usize {
        self.0.clip.embed_dim()
    }

    /// The factor on cosines, tau.
    pub fn logit_scale(&self) -> f32 {
        self.0.clip.logit_scale()
    }

    /// The towers.
    pub fn clip(&self) -> &Arc<Clip> {
        &self.0.clip
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.0.tokenizer
    }

    /// Lets gradients through the text tower keep at most so many bytes of activations; the rest is computed again. It changes
    /// the time, never the result. For programs that hold many classifiers in little memory.
    pub fn limit_activations(&self, bytes: usize) {
        if let Ok(text) = self.0.clip.text() {
            text.limit_activations(bytes);
        }
    }

    /// Refuses a prompt that was learned with other weights.
    pub fn check_prompt(&self, prompt: &Prompt) -> Result<()> {
        check_origin(prompt, self)
    }

    /// Unit-norm features `[n, D]` of images, one plain view each.
    pub fn encode_images(&self, images: &[Image]) -> Result<Matrix> {
        Ok(Features::unit(self.plain_features(images.iter().map(|image| Ok(image.clone())))?).0)
    }

    /// Unit-norm features `[n, D]` of texts; a text that is too long for the tower is an error.
    pub fn encode_texts<S: AsRef<str>>(&self, texts: &[S]) -> Result<Matrix> {
        Ok(Features::unit(self.raw_text_features(texts, false)?).0)
    }

    /// Features `[n, D]` of texts as the tower gives them; `truncate` cuts what is too long instead of refusing it.
    pub fn raw_text_features<S: AsRef<str>>(&self, texts: &[S], truncate: bool) -> Result<Matrix> {
        let texts: Vec<String> = texts.iter().map(|text| text.as_ref().to_owned()).collect();
        self.0.clip.text()?.encode_texts(&self.0.tokenizer, &texts, truncate)
    }

    /// Features `[n, D]` as the tower gives them, of images that are made one after the other: memory stays flat in
    /// their number. One plain view each.
    pub fn plain_features(&self, images: impl Iterator<Item = Result<Image>>) -> Result<Matrix> {
        let views = self.views(1);
        let (mut rows, mut pixels, mut waiting) = (Vec::new(), Vec::new(), 0);
        let mut images = images.peekable();
        while let Some(image) = images.next() {
            pixels.extend(make_views(&image?, &views, ViewKey { seed: 0, dataset: "", sample: "" })?);
            waiting += 1;
            if waiting == BATCH || images.peek().is_none() {
                rows.extend(self.0.clip.encode_images(&pixels, waiting)?.into_vec());
                pixels.clear();
                waiting = 0;
            }
        }
        Ok(Matrix::from_vec(rows.len() / self.width(), self.width(), rows))
    }

    /// Features `[views, D]` of an image as the tower gives them: the image itself, then random views, drawn by its content
    /// and the seed as a classifier draws them.
    pub fn view_features(&self, image: &Image, views: usize, seed: u64) -> Result<Matrix> {
        self.0.clip.encode_images(&self.view_pixels(image, views, seed)?, views)
    }

    /// The pixels `[views, 3, size, size]` of [`Model::view_features`], as the image tower takes them.
    pub fn view_pixels(&self, image: &Image, views: usize, seed: u64) -> Result<Vec<f32>> {
        make_views(image, &self.views(views), ViewKey::of_content(seed, &image.digest()))
    }

    /// TPT's views, in the size and with the preprocessing of this model.
    pub(crate) fn views(&self, count: usize) -> ViewOptions {
        ViewOptions::of(self.config(), count)
    }
}

impl ModelBuilder {
    /// The folder in which known names are looked for first, and into which they are fetched.
    pub fn model_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.places.model_dir = Some(folder.into());
        self
    }

    /// Never fetch, only look on disk.
    pub fn offline(mut self, offline: bool) -> Self {
        self.offline = offline;
        self
    }

    /// What the image tower multiplies in. By default the best of this machine that keeps answers.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = Some(precision);
        self
    }

    /// What the text tower multiplies in, forward and backward: f32 by default. In i16 a prompt is learned in about half the
    /// time, with gradients that differ a little.
    pub fn text_precision(mut self, precision: Precision) -> Self {
        self.text_precision = precision;
        self
    }

    /// The activation of the MLPs, instead of the one that the checkpoint states or its family suggests.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = Some(activation);
        self
    }

    /// Load one tower only: with given features of the other kind, half a model is enough.
    pub fn towers(mut self, towers: Towers) -> Self {
        self.towers = towers;
        self
    }

    /// Where hashes of weight files are kept between starts, so that a large file is read once; `None` keeps nothing.
    pub fn hash_cache(mut self, folder: Option<PathBuf>) -> Self {
        self.hash_cache = folder;
        self
    }

    /// Opens the checkpoint without reading its numbers; fetches it first when it is a known name that is not on disk.
    pub fn open(&self, progress: &dyn Progress) -> Result<Checkpoint> {
        if let Some(known) = weights::known(&self.name)
            && known.find(&self.places).is_none()
            && !self.offline
        {
            self.fetch(known, progress)?;
        }
        let checkpoint = weights::resolve(&self.name, &self.places)?;
        if let Some(activation) = self.activation {
            return Ok(checkpoint.with_activation(activation));
        }
        if let Some(doubt) = checkpoint.activation_doubt() {
            progress.warn(&doubt);
        }
        Ok(checkpoint)
    }

    /// The same with the hash that an earlier start stored.
    fn open_hashed(&self, progress: &dyn Progress) -> Result<Checkpoint> {
        let checkpoint = self.open(progress)?;
        if let Some(folder) = &self.hash_cache {
            checkpoint.recall_hash(folder);
        }
        Ok(checkpoint)
    }

    /// Reads and packs the weights.
    pub fn load(&self, progress: &dyn Progress) -> Result<Model> {
        let checkpoint = self.open_hashed(progress)?;
        MemoryNeed::of(checkpoint.config(), self.towers, rayon::current_num_threads()).check(&self.name)?;
        let precision = self.precision.unwrap_or_else(Precision::auto);
        let text_precision = self.text_precision;
        let options = LoadOptions { precision, text_precision, ..LoadOptions::of(self.towers) };
        let (clip, tokenizer) = rayon::join(|| Clip::load(&checkpoint, options), || Tokenizer::of(&checkpoint));
        let clip = clip?;
        if let Some(folder) = &self.hash_cache {
            checkpoint.remember_hash(folder);
        }
        let (name, tokenizer) = (self.name.clone(), tokenizer?);
        Ok(Model(Arc::new(Parts { name, clip: Arc::new(clip), tokenizer, origin: Some(self.clone()) })))
    }

    #[cfg(feature = "hub")]
    fn fetch(&self, known: &weights::KnownModel, progress: &dyn Progress) -> Result<()> {
        let Some(dir) = &self.places.model_dir else {
            return Err(crate::Error::config("model", "there is no folder to put a fetched model into; name one"));
        };
        progress.note(&format!("{} is not on disk; fetching it into {}", known.name, dir.display()));
        let mut total = None;
        weights::hub::fetch(known, dir, folders::hub(), &mut |done, all| {
            if total != Some(all) {
                progress.start(known.name, all);
                total = Some(all);
            }
            progress.advance(done, "bytes");
        })?;
        progress.finish();
        Ok(())
    }

    /// Without the feature nothing is fetched; the error of the search on disk lists where it looked.
    #[cfg(not(feature = "hub"))]
    fn fetch(&self, _known: &weights::KnownModel, _progress: &dyn Progress) -> Result<()> {
        Ok(())
    }
}
