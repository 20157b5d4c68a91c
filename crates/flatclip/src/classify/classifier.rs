//! A classifier: a model, class names, a prompt and a method, ready to answer.

use super::ViewFeatures;
use super::answer::{Answer, Origin};
use super::builder::ClassifierBuilder;
use super::encoder::ClipEncoder;
use super::features::TextFeatures;
use super::input::{Decoded, ImageInput};
use super::model::Model;
use super::prepare::Prepared;
use super::rounds::Rounds;
use super::stream::Stream;
use super::together::ViewPixels;
use crate::error::Hint;
#[cfg(feature = "figures")]
use crate::image::sheet::{Tile, encode_png, sheet};
use crate::image::views::{ViewKey, ViewOptions, thumbnails};
use crate::image::{self, DecodeOptions, Image};
use crate::methods::bank::TextBank;
use crate::methods::probability::sigmoid_scores;
use crate::methods::{AdapterSpec, AnyAdapter, Decision, Kind, Needs, Task, ViewSet};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use std::path::Path;
use std::sync::Arc;

/// Answers images. A cheap handle on shared data: clone it, share it between threads.
///
/// Everything that depends on prompt and class list alone (text features, text bank) is computed when it is built;
/// whatever a method lacks is an error there, so that an answer fails only for what is wrong with the image. Random views
/// are drawn by the image's content and the seed, never by its name, its order or the thread.
///
/// ```
/// use flatclip::{Classifier, Model, Image};
/// # fn main() -> flatclip::Result<()> {
/// let model = Model::load("pocket")?;
/// let image = Image { width: 64, height: 64, rgb: vec![200; 64 * 64 * 3] };
/// let animals = Classifier::builder(&model).classes(["cat", "fish", "bird"]).method("stss").views(16).build()?;
/// let answer = animals.answer(&image)?;
/// assert_eq!(answer.selected().len(), 1);
/// println!("{} {:.2}", answer.label(), answer.confidence());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Classifier {
    parts: Arc<Parts>,
    /// Whether answers have the score of every view.
    explain: bool,
}

struct Parts {
    spec: &'static AdapterSpec,
    needs: Needs,
    adapter: AnyAdapter,
    task: Task,
    /// Any-time views: no more views than an answer needs.
    rounds: Option<Rounds>,
    /// Makes and encodes views; `None` for features that were made elsewhere.
    encoder: Option<ClipEncoder>,
    /// What its answers say of themselves.
    origin: Arc<Origin>,
}

/// An image as a method sees it.
pub(super) struct Seen {
    id: String,
    pub(super) views: ViewFeatures,
    pixels: Option<Vec<f32>>,
    generated: Option<Matrix>,
    explain: bool,
}

impl Seen {
    pub(super) fn view_set(&self) -> ViewSet<'_> {
        ViewSet {
            norms: &self.views.norms,
            pixels: self.pixels.as_deref(),
            generated: self.generated.as_ref(),
            explain: self.explain,
            ..ViewSet::new(&self.id, &self.views.unit)
        }
    }
}

impl std::fmt::Debug for Classifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Classifier").field("method", &self.method()).field("classes", &self.classes().len()).finish()
    }
}

impl Classifier {
    /// A classifier with this model.
    pub fn builder(model: &Model) -> ClassifierBuilder {
        ClassifierBuilder::with_model(model)
    }

    /// A classifier for features that were made elsewhere, from class embeddings alone. Methods that run a tower are refused.
    pub fn from_text_features(text: TextFeatures) -> ClassifierBuilder {
        ClassifierBuilder::with_text(text, None)
    }

    /// The same from a ready text bank `[1 + R, K, D]`: text features at the prompt and around it, which STSS needs.
    pub fn from_text_bank(bank: TextBank, logit_scale: f32) -> Result<ClassifierBuilder> {
        let text = TextFeatures::new(bank.base().clone(), logit_scale)?;
        Ok(ClassifierBuilder::with_text(text, Some(bank)))
    }

    pub(super) fn new(
        spec: &'static AdapterSpec,
        prepared: Prepared,
        encoder: Option<ClipEncoder>,
        explain: bool,
    ) -> Self {
        let Prepared { adapter, needs, task, rounds } = prepared;
        let origin = Arc::new(Origin {
            classes: Arc::clone(&task.classes),
            method: spec.name.into(),
            precision: encoder.as_ref().map(|encoder| encoder.clip.precision().into()),
            read: encoder.as_ref().map(|encoder| encoder.decode.rule().into()),
        });
        Self { parts: Arc::new(Parts { spec, needs, adapter, task, rounds, encoder, origin }), explain }
    }

    /// The same classifier, whose answers have the score of every view (`true`) or lower bounds where they suffice: see
    /// [`ClassifierBuilder::explain`].
    #[must_use]
    pub fn explaining(&self, explain: bool) -> Self {
        Self { parts: Arc::clone(&self.parts), explain }
    }

    /// Name of the method.
    pub fn method(&self) -> &'static str {
        self.parts.spec.name
    }

    /// Episodic, online or batch.
    pub fn kind(&self) -> Kind {
        self.parts.adapter.kind()
    }

    /// Class names, in the order of the probabilities.
    pub fn classes(&self) -> &[String] {
        &self.parts.task.classes
    }

    /// Views per image, at most where they are any-time; 0 when features are made elsewhere.
    pub fn views(&self) -> usize {
        self.parts.encoder.as_ref().map_or(0, |encoder| encoder.views.count)
    }

    /// What the image tower multiplies in: `f32`, `i16`, ...; `None` when features are made elsewhere.
    pub fn precision(&self) -> Option<&str> {
        self.parts.origin.precision.as_deref()
    }

    /// The rule by which image files are read: `exif` or `pillow`; `None` when features are made elsewhere.
    pub fn read(&self) -> Option<&str> {
        self.parts.origin.read.as_deref()
    }

    /// The answer for an image: decoded, a file, encoded bytes, or the features of its views.
    pub fn answer<'i>(&self, input: impl Into<ImageInput<'i>>) -> Result<Answer> {
        match input.into().decoded(self)? {
            Decoded::Image(image, name) => Ok(self.decide(&image, &name)?.0),
            Decoded::Features(views) => self.decide_given(views),
        }
    }

    fn decide_given(&self, views: &ViewFeatures) -> Result<Answer> {
        self.check_features_suffice()?;
        let (adapter, task) = (self.episodic()?, &self.parts.task);
        let Some(rounds) = self.rounds() else {
            return self.labelled(adapter.adapt(task, &self.set_of(views))?, views);
        };
        let given = views.unit.rows();
        let (decision, used) = rounds.answer(adapter, task, "features", given, |range| Ok(views.part(range)))?;
        Ok(self.labelled(decision, &used)?.with_views(used.unit.rows()))
    }

    /// One answer per image of a set that a batch method sees at once, from the features of their views.
    pub fn answer_set(&self, set: &[ViewFeatures]) -> Result<Vec<Answer>> {
        self.check_features_suffice()?;
        let sets: Vec<ViewSet<'_>> = set.iter().map(|views| self.set_of(views)).collect();
        let decisions = match &self.parts.adapter {
            AnyAdapter::Batch(adapter) => adapter.adapt(&self.parts.task, &sets)?,
            AnyAdapter::Episodic(adapter) if self.is_vectorised() => adapter.adapt_many(&self.parts.task, &sets)?,
            _ => return set.iter().map(|views| self.decide_given(views)).collect(),
        };
        decisions.into_iter().zip(set).map(|(decision, views)| self.labelled(decision, views)).collect()
    }

    /// Whether several images are better asked about in one call.
    pub(super) fn is_vectorised(&self) -> bool {
        let vectorised = matches!(&self.parts.adapter, AnyAdapter::Episodic(adapter) if adapter.is_vectorised());
        vectorised && self.parts.rounds.is_none()
    }

    /// A stream that learns from its images, for online methods; each has a state of its own.
    pub fn stream(&self) -> Result<Stream> {
        match &self.parts.adapter {
            AnyAdapter::Episodic(_) => Ok(Stream::new(self.clone(), None)),
            AnyAdapter::Online(adapter) => Ok(Stream::new(self.clone(), Some(adapter.fork()))),
            AnyAdapter::Batch(_) => Err(self.wrong_kind("answers a whole set at once, not a stream")),
        }
    }

    /// The answer together with the features of the views that it was made from.
    pub fn answer_and_features(&self, image: &Image) -> Result<(Answer, ViewFeatures)> {
        self.decide(image, "")
    }

    fn decide(&self, image: &Image, name: &str) -> Result<(Answer, ViewFeatures)> {
        let (adapter, task) = (self.episodic()?, &self.parts.task);
        let (decision, views) = match self.rounds() {
            Some(rounds) => {
                let (encoder, id) = (self.encoder()?, image.digest());
                let pixels = encoder.views_of(image, self.key(&id))?;
                rounds.answer(adapter, task, &id, encoder.views.count, |range| encoder.encode_range(&pixels, range))?
            }
            None => {
                let seen = self.see(image, name)?;
                (adapter.adapt(task, &seen.view_set())?, seen.views)
            }
        };
        Ok((self.labelled(decision, &views)?.with_views(views.unit.rows()), views))
    }

    /// The features of an image's views, for [`Classifier::answer_set`] and [`Classifier::answer`].
    pub fn view_features(&self, image: &Image) -> Result<ViewFeatures> {
        Ok(self.see(image, "")?.views)
    }

    /// The pixels `[views, 3, size, size]` of an image's views as the image tower takes them, for a tower that is elsewhere.
    pub fn view_pixels(&self, image: &Image) -> Result<Vec<f32>> {
        self.encoder()?.views_of(image, self.key(&image.digest()))
    }

    /// The views of an image as small images.
    pub fn view_images(&self, image: &Image) -> Result<Vec<Image>> {
        thumbnails(image, &self.encoder()?.views, self.key(&image.digest()))
    }

    /// The views that an answer was made from as a contact sheet (PNG), from the lowest score to the highest, each with its own answer; the
    /// selected ones are framed, the image itself is framed in black. A legend is above.
    #[cfg(feature = "figures")]
    pub fn view_sheet(&self, image: &Image, answer: &Answer, columns: usize, side: usize) -> Result<Vec<u8>> {
        let mut small = self.view_images(image)?;
        small.truncate(answer.views().unwrap_or(usize::MAX));
        let number = |index: usize| answer.view(index).score.or(answer.view(index).entropy);
        let mut order: Vec<usize> = (0..small.len()).collect();
        // Views that were not scored come last, in their own order.
        order.sort_by(|&a, &b| number(a).unwrap_or(f32::INFINITY).total_cmp(&number(b).unwrap_or(f32::INFINITY)));
        let tile = |index: usize| {
            let view = answer.view(index);
            let score = number(index).map_or("-".to_owned(), |score| format!("{score:.3}"));
            let name = if index == 0 { "original".to_owned() } else { format!("view {index}") };
            let label = format!("{name}  {score}\n{}", view.label.unwrap_or_default());
            let frame = match (view.selected, index) {
                (true, _) => Some(SELECTED_FRAME),
                (false, 0) => Some(ORIGINAL_FRAME),
                _ => None,
            };
            Tile { image: &small[index], label, frame }
        };
        let tiles: Vec<Tile<'_>> = order.into_iter().map(tile).collect();
        let legend = [
            format!("{} on {} views: {} {:.3}", self.method(), small.len(), answer.label(), answer.confidence()),
            "by score, lowest first; below each view its score and its own prediction".to_owned(),
            "orange frame: selected; black frame: the original image, where it is not selected".to_owned(),
        ];
        encode_png(&sheet(&tiles, columns, side, &legend)?)
    }

    /// Decodes a file as this classifier reads images.
    pub fn open(&self, path: &Path) -> Result<Image> {
        Image::open_with(path, &self.decode_options())
    }

    /// Decodes an image in memory as this classifier reads images.
    pub fn decode(&self, bytes: &[u8]) -> Result<Image> {
        image::decode(bytes, &self.decode_options())
    }

    /// How this classifier reads images.
    pub fn decode_options(&self) -> DecodeOptions {
        self.parts.encoder.as_ref().map(|encoder| encoder.decode.clone()).unwrap_or_default()
    }

    pub(super) fn task(&self) -> &Task {
        &self.parts.task
    }

    /// The decision of this classifier's method about an image with these views, as an answer.
    pub(super) fn labelled(&self, mut decision: Decision, views: &ViewFeatures) -> Result<Answer> {
        let task = &self.parts.task;
        if let Some(bias) = task.clip.as_ref().and_then(|clip| clip.logit_bias()) {
            let image = views.unit.select_rows(&[0]);
            decision.explanation.sigmoid = sigmoid_scores(task.logits(&image).data(), bias);
        }
        Ok(Answer::from_parts(&self.parts.origin, decision, None))
    }

    pub(super) fn set_of<'v>(&self, views: &'v ViewFeatures) -> ViewSet<'v> {
        ViewSet { norms: &views.norms, explain: self.explain, ..ViewSet::new("features", &views.unit) }
    }

    /// Makes and encodes the views of an image.
    pub(super) fn see(&self, image: &Image, name: &str) -> Result<Seen> {
        let encoder = self.encoder()?;
        let id = image.digest();
        let pixels = encoder.views_of(image, self.key(&id))?;
        let views = encoder.encode(&pixels, encoder.views.count)?;
        let generated = if self.parts.needs.generated { encoder.generated_named(name)? } else { None };
        Ok(Seen { id, views, pixels: self.parts.needs.pixels.then_some(pixels), generated, explain: self.explain })
    }

    /// The pixels of an image's views, for [`Classifier::answer_batch`]; `None` where the method sees each image alone: it learns
    /// from them, asks for more views when it needs them, or runs the tower itself.
    pub fn batch_views(&self, image: &Image) -> Option<Result<ViewPixels>> {
        let encoder = self.parts.encoder.as_ref().filter(|_| self.takes_batches())?;
        let id = image.digest();
        Some(encoder.views_of(image, self.key(&id)).map(|pixels| ViewPixels { id, pixels }))
    }

    /// Whether images may share calls of the image tower.
    pub fn takes_batches(&self) -> bool {
        let Parts { needs, rounds, adapter, encoder, .. } = &*self.parts;
        let plain = encoder.as_ref().is_some_and(|encoder| encoder.visual_prompts.is_empty());
        let alone = rounds.is_some() || needs.generated || needs.pixels;
        plain && !alone && matches!(adapter, AnyAdapter::Episodic(_))
    }

    /// Whether both have the same image tower and show it images of their own only.
    pub(super) fn shares_tower(&self, other: &Self) -> bool {
        match (&self.parts.encoder, &other.parts.encoder) {
            (Some(a), Some(b)) => Arc::ptr_eq(&a.clip, &b.clip),
            _ => false,
        }
    }

    pub(super) fn encode_pixels(&self, pixels: &[f32], count: usize) -> Result<ViewFeatures> {
        self.encoder()?.encode(pixels, count)
    }

    /// The answer for views that were made and encoded as [`Classifier::answer`] does.
    pub(super) fn decide_features(&self, id: &str, views: &ViewFeatures) -> Result<Answer> {
        let set = ViewSet { id, ..self.set_of(views) };
        let decision = self.episodic()?.adapt(&self.parts.task, &set)?;
        Ok(self.labelled(decision, views)?.with_views(views.unit.rows()))
    }

    fn rounds(&self) -> Option<Rounds> {
        self.parts.rounds.map(|rounds| rounds.explaining(self.explain))
    }

    pub(super) fn view_options(&self) -> Result<&ViewOptions> {
        Ok(&self.encoder()?.views)
    }

    /// What the draws of an image's views are keyed by.
    pub fn key<'k>(&self, id: &'k str) -> ViewKey<'k> {
        ViewKey::of_content(self.parts.task.seed, id)
    }

    fn encoder(&self) -> Result<&ClipEncoder> {
        self.parts.encoder.as_ref().ok_or_else(|| {
            let reason = "this classifier was made from text features and answers features only";
            Error::method(self.method(), reason).with_hint(Hint::Model)
        })
    }

    /// A method that runs the image tower or reads generated images cannot be given features.
    fn check_features_suffice(&self) -> Result<()> {
        if self.parts.needs.pixels || self.parts.needs.generated {
            let what = if self.parts.needs.pixels { "pixels" } else { "generated images" };
            let reason = format!("needs {what} in addition to features; give it the image itself");
            return Err(Error::method(self.method(), reason));
        }
        Ok(())
    }

    fn episodic(&self) -> Result<&dyn crate::methods::Adapter> {
        match &self.parts.adapter {
            AnyAdapter::Episodic(adapter) => Ok(adapter.as_ref()),
            AnyAdapter::Online(_) => Err(self.wrong_kind("learns from a stream; take a stream from the classifier")),
            AnyAdapter::Batch(_) => Err(self.wrong_kind("answers a whole set at once")),
        }
    }

    fn wrong_kind(&self, reason: &str) -> Error {
        Error::method(self.method(), reason)
    }
}

/// Orange, visible next to any image and for any colour vision.
#[cfg(feature = "figures")]
const SELECTED_FRAME: [u8; 3] = [213, 94, 0];
/// Of the image itself.
#[cfg(feature = "figures")]
const ORIGINAL_FRAME: [u8; 3] = [30, 30, 30];
