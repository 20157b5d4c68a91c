//! GDA-CLIP: Gaussian discriminant analysis of the shots' features, added to the zero-shot classifier, in closed form.

use super::Verified;
use super::cross_entropy::cross_entropy;
use super::{Batch, Input, Loss, Recipe, TuneTask, Tuner, TunerSpec};
use crate::data::train_images::TrainViews;
use flatclip::methods::gaussian::{Discriminant, Scatter};
use flatclip::methods::probability::{argmax, mean_row};
use flatclip::model::Clip;
use flatclip::prompt::{Affine, PromptContent, PromptKind, Tensor, logits};
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;

/// The registry entry.
pub static SPEC: TunerSpec = TunerSpec {
    name: "gda-clip",
    aliases: &["gda"],
    input: Input::Features,
    prompt: PromptKind::Linear,
    vit: false,
    table: GdaClipConfig::NAME,
    summary: "Gaussian discriminant analysis of the shots, added to the zero-shot classifier, in closed form",
    docs: "\
What: the unit features of all augmented views of the shots give class means mu_k (not normalised) and one
covariance S of the N residuals. Golden cases: gda-clip-*.
  L = D pinv((N - 1) S + tr(S) I)        W_k = L mu_k        b_k = -ln K - mu_k L mu_k / 2
  logits = tau f T' + alpha (f W' + b)   T [K, D] from templates
alpha is chosen on held-out images from a list, the first of the best. Nothing is trained. One shot with one
view has no residuals: W is then zero but for rounding, so take several views.
Cost: N D^2 and one D^3 inverse, once; K D per image.
Reference: Wang et al., A Hard-to-Beat Baseline for Training-free CLIP-based Adaptation, ICLR 2024. Verified
with the authors' code; its base-to-new form has other estimators and is not here.
",
    verified: Verified::AuthorsCode,
    options: GdaClipConfig::OPTIONS,
    check: |options| GdaClipConfig::read(options).map(drop),
    build: |options, task| Ok(Box::new(GdaClip::build(&GdaClipConfig::read(options)?, task)?)),
    recipe: || Recipe { epochs: 0, ..Recipe::default() },
    // Ten passes over the shots, of at least half the image, as published.
    views: || TrainViews { bank: 10, scale: [0.5, 1.0], ..TrainViews::default() },
};

flatclip::choices! {
    /// Where alpha is chosen.
    pub enum GdaSearch {
        /// On held-out images of the training set.
        Val = "val",
        /// Not at all.
        None = "none",
    }
}

flatclip::options! {
    /// Options of `gda-clip`.
    pub struct GdaClipConfig for "gda-clip", check GdaClipConfig::has_alphas {
        /// Weight of the discriminant, before the search.
        alpha: f64 = 1.0, range at_least(0.0), from "choice: the middle of the authors' list";
        /// Where alpha is chosen.
        search: GdaSearch = GdaSearch::Val, from "authors' code";
        /// The weights that are tried.
        alphas: Vec<f64> = vec![1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0], range at_least(0.0), from "authors' code";
        /// Templates of the zero-shot classifier; empty means the data set's own.
        templates: Vec<String> = Vec::new(), from "authors' code";
    }
}

impl GdaClipConfig {
    fn has_alphas(&self) -> Result<()> {
        if self.search == GdaSearch::None || !self.alphas.is_empty() {
            return Ok(());
        }
        Err(flatclip::options::mismatch(Self::NAME, "alphas", "at least one value to choose from", "none"))
    }
}

/// The discriminant and the zero-shot classifier.
#[derive(Clone, Debug)]
pub struct GdaClip {
    /// `W` `[K, D]` and `b` `[K]`.
    parameters: Vec<Tensor>,
    classifier: Matrix,
    templates: Vec<String>,
    scale: f32,
    alpha: f64,
    search: Option<Vec<f64>>,
}

/// The discriminant of labelled unit features `[N, D]`.
pub fn discriminant(features: &Matrix, labels: &[usize], classes: usize) -> Result<Discriminant> {
    let mut means = Matrix::zeros(classes, features.cols());
    let mut scatter = Scatter::new(features.cols());
    for class in 0..classes {
        let rows: Vec<usize> = (0..labels.len()).filter(|&row| labels[row] == class).collect();
        if rows.is_empty() {
            return Err(Error::method(SPEC.name, format!("class {class} has no shot; give every class at least one")));
        }
        means.row_mut(class).copy_from_slice(&mean_row(features, &rows));
        scatter.add(rows.iter().map(|&row| features.row(row)), means.row(class));
    }
    Ok(Discriminant::new(&means, &scatter.ridge_precision()))
}

impl GdaClip {
    /// From a discriminant, the zero-shot classifier `[K, D]` and its logit scale.
    pub fn new(discriminant: Discriminant, classifier: Matrix, scale: f32, alpha: f64) -> Self {
        let Discriminant { weights, biases } = discriminant;
        let parameters = vec![
            Tensor::new("weight", vec![weights.rows(), weights.cols()], weights.into_vec()),
            Tensor::new("bias", vec![biases.len()], biases),
        ];
        Self { parameters, classifier, templates: Vec::new(), scale, alpha, search: None }
    }

    /// From the shots of a task.
    pub fn build(config: &GdaClipConfig, task: &TuneTask<'_>) -> Result<Self> {
        let bank = task.needed_bank(SPEC.name)?;
        let (templates, classifier) = task.zero_shot(&config.templates)?;
        let picks: Vec<(usize, usize)> =
            (0..bank.images()).flat_map(|image| (0..bank.views()).map(move |view| (image, view))).collect();
        let labels: Vec<usize> = picks.iter().map(|&(image, _)| task.labels[image]).collect();
        let found = discriminant(&bank.select(&picks), &labels, task.classes.len())?;
        let mut tuner = Self::new(found, classifier, task.clip.logit_scale(), config.alpha);
        tuner.templates = templates;
        tuner.search = (config.search == GdaSearch::Val).then(|| config.alphas.clone());
        Ok(tuner)
    }

    /// The chosen alpha.
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// `[B, K]` logits of unit-norm features.
    pub fn logits(&self, features: &Matrix) -> Matrix {
        self.logits_at(&self.parameters, features, self.alpha)
    }

    fn logits_at(&self, at: &[Tensor], features: &Matrix, alpha: f64) -> Matrix {
        let mut out = logits(features, &self.classifier, self.scale);
        layer(at).add_to(&mut out, features, alpha as f32);
        out
    }

    /// Share of labelled features that every alpha answers rightly.
    pub fn accuracies(&self, features: &Matrix, labels: &[usize], alphas: &[f64]) -> Vec<f64> {
        let right = |alpha: &f64| {
            let found = self.logits_at(&self.parameters, features, *alpha);
            found.iter_rows().zip(labels).filter(|(row, label)| argmax(row) == **label).count()
        };
        alphas.iter().map(|alpha| right(alpha) as f64 / labels.len().max(1) as f64).collect()
    }

    /// Takes the first alpha of the best accuracy on labelled features.
    pub fn search(&mut self, features: &Matrix, labels: &[usize], alphas: &[f64]) {
        let accuracies = self.accuracies(features, labels, alphas);
        let best = (0..alphas.len()).fold(0, |best, at| if accuracies[at] > accuracies[best] { at } else { best });
        self.alpha = alphas.get(best).copied().unwrap_or(self.alpha);
    }
}

fn layer(parameters: &[Tensor]) -> Affine {
    let (weight, bias) = (&parameters[0], &parameters[1]);
    let weight = Matrix::from_vec(weight.shape[0], weight.shape[1], weight.values.clone());
    Affine { weight, bias: bias.values.clone() }
}

impl Tuner for GdaClip {
    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn parameters_mut(&mut self) -> &mut [Tensor] {
        &mut self.parameters
    }

    fn loss(&self, _clip: &Clip, at: &[Tensor], batch: &Batch<'_>) -> Result<Loss> {
        let all = self.logits_at(at, batch.features, self.alpha);
        let entropy = cross_entropy(&all, batch.labels);
        let mut slope = entropy.d_logits;
        slope.data_mut().iter_mut().for_each(|d| *d *= self.alpha as f32);
        let (_, weight, bias) = layer(at).gradient(batch.features, &slope);
        Ok(Loss { value: entropy.loss, correct: entropy.correct, logits: all, gradient: vec![weight.into_vec(), bias] })
    }

    fn finish(&mut self, held_out: Option<&Batch<'_>>) -> Result<()> {
        let Some(alphas) = self.search.clone() else { return Ok(()) };
        let Some(held_out) = held_out else {
            let reason = "alpha is chosen on held-out images, and there are none; keep some, or set search = \"none\"";
            return Err(Error::method(SPEC.name, reason));
        };
        self.search(held_out.features, held_out.labels, &alphas);
        Ok(())
    }

    fn prompt(&self) -> Result<PromptContent> {
        let (layer, templates) = (layer(&self.parameters), self.templates.clone());
        Ok(PromptContent::Linear { layer, alpha: self.alpha as f32, templates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuner() -> GdaClip {
        let features = Matrix::from_vec(4, 2, vec![1.0, 0.0, 0.96, 0.28, 0.0, 1.0, 0.28, 0.96]);
        let found = discriminant(&features, &[0, 0, 1, 1], 2).unwrap();
        // A classifier that has the classes the wrong way round.
        GdaClip::new(found, Matrix::from_vec(2, 2, vec![0.0, 1.0, 1.0, 0.0]), 1.0, 1.0)
    }

    #[test]
    fn the_search_takes_the_first_weight_that_puts_a_wrong_classifier_right() {
        let mut tuner = tuner();
        let features = Matrix::from_vec(2, 2, vec![1.0, 0.0, 0.0, 1.0]);
        let alphas = [1e-4, 10.0, 100.0];
        assert_eq!(tuner.accuracies(&features, &[0, 1], &alphas), [0.0, 1.0, 1.0]);
        tuner.search(&features, &[0, 1], &alphas);
        assert_eq!(tuner.alpha(), 10.0);
        tuner.search = Some(alphas.to_vec());
        assert!(tuner.finish(None).unwrap_err().to_string().contains("held-out"));
    }

    #[test]
    fn a_class_without_shots_is_refused() {
        let features = Matrix::from_vec(1, 2, vec![1.0, 0.0]);
        assert!(discriminant(&features, &[0], 2).unwrap_err().to_string().contains("class 1"));
        assert!(GdaClipConfig::read(&"alphas = []".parse().unwrap()).is_err());
    }
}
