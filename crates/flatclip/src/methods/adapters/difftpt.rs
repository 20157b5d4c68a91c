//! DiffTPT: TPT on augmented and generated views, filtered twice.
//!
//! Of all views but the original keep the `int(0.8 (N-1))` whose logits are most similar to view 0's; of those and view 0 the `int(0.3 n)` of
//! lowest entropy; four AdamW steps on their marginal entropy; answer view 0.

use super::tpt::{adamw, view_0};
use crate::methods::options::Options;
use crate::methods::probability::marginal_entropy;
use crate::methods::select::{CosineThenEntropy, Selector, ViewLogits};
use crate::methods::update::{on_text, tune_context};
use crate::methods::{Adapter, AdapterSpec, Build, Decision, Needs, Task, ViewSet};
use crate::{Error, Result};
use flatclip_tensor::Matrix;
use serde::{Deserialize, Serialize};

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "difftpt",
    aliases: &[],
    needs: Needs { generated: true, default_views: 65, ..Needs::CONTEXT },
    summary: "TPT on augmented and generated views, filtered by similarity to the original and by entropy",
    docs: "\
What: the views are the original, the augmented ones and the generated ones. Of all but the original the int(cosine_fraction * (N-1)) whose
scaled logits have the largest cosine with the original's are kept, with the original; of these the int(entropy_fraction * n) of lowest entropy.
Four AdamW steps on their marginal entropy, the views chosen once; view 0 is answered.
Generated views are pictures in DIR/<sample id without ending>/, given with --generated DIR: made beforehand, as the original does. The
authors used Stable Diffusion image variations v2 at guidance 3, 50 steps, 63 per image; any image-to-image tool will do.
In the explanation, views after the augmented ones are the generated ones.
Cost: one image-tower pass over all views; four text-tower backward and forward passes.
Options:
  cosine_fraction = 0.8, entropy_fraction = 0.3      the two filters (authors' code)
  steps = 4, lr = 0.005, weight_decay = 0.01         (authors' code)
Published numbers are of about 1000 images per set, not of whole test sets.
Reference: Feng et al., Diverse Data Augmentation with Diffusions for Effective Test-time Prompt Tuning, ICCV 2023.
",
    build: Build::Episodic(|table| Ok(Box::new(DiffTpt { options: Config::read(table)? }))),
    defaults: Config::table,
};

/// Options of DiffTPT.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Fraction that passes the similarity filter.
    pub cosine_fraction: f64,
    /// Fraction of the rest that passes the entropy filter.
    pub entropy_fraction: f64,
    /// AdamW steps per image.
    pub steps: usize,
    /// Learning rate.
    pub lr: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { cosine_fraction: 0.8, entropy_fraction: 0.3, steps: 4, lr: 5e-3, weight_decay: 0.01 }
    }
}

impl Options for Config {
    const NAME: &'static str = "difftpt";
    fn check(&self) -> Result<()> {
        Self::require((0.0..=1.0).contains(&self.cosine_fraction), "cosine_fraction", "0 to 1", self.cosine_fraction)?;
        Self::require_fraction("entropy_fraction", self.entropy_fraction)?;
        Self::require(self.steps <= 1000, "steps", "at most 1000", self.steps)?;
        Self::require_not_negative("lr", self.lr)?;
        Self::require_not_negative("weight_decay", self.weight_decay)
    }
}

/// The adapter.
#[derive(Clone, Debug)]
pub struct DiffTpt {
    options: Config,
}

/// Augmented, then generated.
fn all_views(image: &ViewSet<'_>) -> Result<Matrix> {
    let generated = image.generated.filter(|g| g.rows() > 0).ok_or_else(|| {
        Error::method(Config::NAME, format!("image {} has no generated views; give a folder that has them", image.id))
    })?;
    if generated.cols() != image.features.cols() || generated.data().iter().any(|x| !x.is_finite()) {
        let reason = format!("generated views of image {} have width {}", image.id, generated.cols());
        return Err(Error::method(Config::NAME, reason));
    }
    let data = [image.features.data(), generated.data()].concat();
    Ok(Matrix::from_vec(image.features.rows() + generated.rows(), generated.cols(), data))
}

impl Adapter for DiffTpt {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        task.start_pass(Config::NAME).map(|_| ())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let o = &self.options;
        let features = all_views(image)?;
        let views = ViewLogits::new(&features, &task.text_features, task.logit_scale);
        let selector = CosineThenEntropy { cosine: o.cosine_fraction, entropy: o.entropy_fraction };
        let selection = selector.select(&features, &views);
        let kept = features.select_rows(&selection.selected);
        let objective = |text: &Matrix| on_text(&kept, text, task.logit_scale, marginal_entropy);
        let (start, first) = (task.start_context(Config::NAME)?, task.start_pass(Config::NAME)?);
        let mut optimiser = adamw(o.lr, o.weight_decay);
        let tuned = tune_context(task.text_side(Config::NAME)?, start, first, &[&objective], o.steps, &mut optimiser)?;
        Ok(view_0(task, image, &tuned.text_features).answer(views.explain(selection)))
    }
}
