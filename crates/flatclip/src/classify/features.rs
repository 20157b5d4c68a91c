//! Features that were made elsewhere: another model, a GPU, another program.

use super::answer::Answer;
use super::classifier::Classifier;
use crate::methods::Kind;
use crate::model::Features;
use crate::progress::Progress;
use crate::{Error, Result};
use flatclip_tensor::{Matrix, threads};
use std::ops::Range;
use std::sync::Arc;

/// CLIP starts training at 14, and SigLIP at 10; trained models have 30 to 130.
const LEAST_SCALE: f32 = 10.0;

/// Class embeddings and the temperature that belongs to them.
#[derive(Clone, Debug)]
pub struct TextFeatures {
    pub(crate) rows: Matrix,
    pub(crate) logit_scale: f32,
    pub(crate) classes: Arc<[String]>,
}

impl TextFeatures {
    /// Class embeddings `[K, D]` (scaled to unit norm here) and the factor on cosines, `exp(logit_scale)` in most code:
    /// 100 for OpenAI's weights. Classes are called by their numbers until they get [names](TextFeatures::named).
    ///
    /// A factor below 10 is refused: it is taken for its own logarithm, which checkpoints store. For a model whose factor
    /// is as small as that, see [`TextFeatures::with_small_scale`].
    pub fn new(rows: Matrix, logit_scale: f32) -> Result<Self> {
        if logit_scale > 0.0 && logit_scale < LEAST_SCALE {
            let (what, meant) = if logit_scale < 1.0 {
                ("the temperature, its inverse", format!("1 / {logit_scale} = {:.1}", 1.0 / logit_scale))
            } else {
                ("its logarithm", format!("exp({logit_scale}) = {:.1}", logit_scale.exp()))
            };
            let reason = format!(
                "expected the factor on cosines (100 for OpenAI's weights), found {logit_scale}, which looks like {what}; \
                 give {meant}"
            );
            return Err(Error::config("logit_scale", reason));
        }
        Self::with_small_scale(rows, logit_scale)
    }

    /// The same for a model whose factor on cosines may be below 10.
    pub fn with_small_scale(mut rows: Matrix, logit_scale: f32) -> Result<Self> {
        crate::prompt::normalise_rows(&mut rows)?;
        if rows.rows() == 0 {
            return Err(Error::config("text features", "expected at least one class, found none"));
        }
        let classes = (0..rows.rows()).map(|class| class.to_string()).collect();
        Ok(Self { rows, logit_scale, classes })
    }

    /// The class embeddings, unit norm.
    pub fn rows(&self) -> &Matrix {
        &self.rows
    }

    /// The same with class names.
    pub fn named<S: Into<String>>(mut self, classes: impl IntoIterator<Item = S>) -> Result<Self> {
        self.classes = classes.into_iter().map(Into::into).collect();
        if self.classes.len() != self.rows.rows() {
            let reason = format!("{} names for {} text features", self.classes.len(), self.rows.rows());
            return Err(Error::config("classes", reason));
        }
        Ok(self)
    }
}

/// Unit-norm features of all views and the norms they had.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewFeatures {
    /// `[views, width]`, row 0 is the original.
    pub unit: Matrix,
    /// One per view.
    pub norms: Vec<f32>,
}

impl ViewFeatures {
    /// Features `[V, D]` of the views of one image, row 0 the image itself; scaled to unit norm here.
    pub fn new(raw: Matrix) -> Result<Self> {
        if raw.rows() == 0 || raw.cols() == 0 {
            return Err(Error::config(
                "view features",
                format!("expected [V, D], found [{}, {}]", raw.rows(), raw.cols()),
            ));
        }
        let fine = |row: &[f32]| row.iter().all(|x| x.is_finite()) && row.iter().any(|&x| x != 0.0);
        if let Some(view) = raw.iter_rows().position(|row| !fine(row)) {
            let reason = "it holds NaN, infinity or only zeros".to_owned();
            return Err(Error::NotFinite { place: format!("view features, row {view}"), reason });
        }
        let (unit, norms) = Features::unit(raw);
        Ok(Self { unit, norms })
    }

    /// Of no view yet.
    pub fn none() -> Self {
        Self { unit: Matrix::default(), norms: Vec::new() }
    }

    /// Those of some of the views.
    pub fn part(&self, views: Range<usize>) -> Self {
        let rows: Vec<usize> = views.clone().collect();
        Self { unit: self.unit.select_rows(&rows), norms: self.norms[views].to_vec() }
    }

    /// Adds later views of the same image.
    pub fn append(&mut self, later: &Self) {
        let data = [self.unit.data(), later.unit.data()].concat();
        self.unit = Matrix::from_vec(self.unit.rows() + later.unit.rows(), self.unit.cols(), data);
        self.norms.extend_from_slice(&later.norms);
    }
}

/// Images that are answered between two looks at the progress, for each thread.
const BETWEEN_LOOKS: usize = 8;

impl Classifier {
    /// One answer for each of `count` images, in their order, from the features of their views: side by side with an
    /// episodic method, as one stream with an online one, together with one that answers sets.
    pub fn answer_many(
        &self,
        count: usize,
        views: impl Fn(usize) -> Result<ViewFeatures> + Sync,
        progress: &dyn Progress,
    ) -> Result<Vec<Answer>> {
        if self.kind() == Kind::Batch {
            return self.answer_set(&(0..count).map(views).collect::<Result<Vec<_>>>()?);
        }
        let mut stream = if self.kind() == Kind::Online { Some(self.stream()?) } else { None };
        let mut answers = Vec::with_capacity(count);
        progress.start(self.method(), Some(count as u64));
        while answers.len() < count {
            let first = answers.len();
            let last = count.min(first + BETWEEN_LOOKS * rayon::current_num_threads());
            match &mut stream {
                Some(stream) => {
                    // Features are made ready side by side; the stream takes them one after the other.
                    for ready in threads::map((first..last).collect(), &views) {
                        answers.push(stream.answer(&ready?)?);
                    }
                }
                None if self.is_vectorised() => {
                    let ready = threads::map((first..last).collect(), &views);
                    answers.extend(self.answer_set(&ready.into_iter().collect::<Result<Vec<_>>>()?)?);
                }
                None => {
                    let answer = |index: usize| self.answer(&views(index)?);
                    let some = threads::map((first..last).collect(), answer);
                    answers.extend(some.into_iter().collect::<Result<Vec<_>>>()?);
                }
            }
            progress.advance(answers.len() as u64, "");
            if progress.cancelled() {
                return Err(Error::Interrupted(format!("stopped after {} of {count} images", answers.len())));
            }
        }
        progress.finish();
        Ok(answers)
    }
}

/// The answer of an episodic method with its default options, from features alone. For options, streams or a text bank take
/// [`Classifier::from_text_features`].
///
/// ```
/// use flatclip::{Matrix, TextFeatures, ViewFeatures, adapt};
/// # fn main() -> flatclip::Result<()> {
/// let text = TextFeatures::new(Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 1.0]), 100.0)?.named(["cat", "dog"])?;
/// let views = ViewFeatures::new(Matrix::from_vec(3, 2, vec![0.9, 0.1, 0.8, 0.3, 0.2, 0.9]))?;
/// assert_eq!(adapt("zero", &views, &text)?.label(), "cat");
/// # Ok(()) }
/// ```
pub fn adapt(method: &str, views: &ViewFeatures, text: &TextFeatures) -> Result<Answer> {
    let (spec, rows) = (crate::methods::adapter(method)?, views.unit.rows());
    // One image with views that nobody looks at, or images one below the other: either is a mistake in silence.
    if rows > 1 && (spec.needs.default_views == 1 || spec.kind() == Kind::Batch) {
        let reason = format!(
            "[{rows}, D] can be read in two ways, and {} looks at one view per image: {rows} images with one view each are \
             answered by a classifier's answer_many, and of {rows} views of one image it wants the first alone",
            spec.name
        );
        return Err(Error::config("view features", reason));
    }
    Classifier::from_text_features(text.clone()).method(method).build()?.answer(views)
}
