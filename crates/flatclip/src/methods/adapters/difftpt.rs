//! DiffTPT: TPT on augmented and generated views, filtered twice. Golden cases: `difftpt-*`.

use super::prelude::*;
use super::tpt::view_0;
use crate::Hint;
use crate::methods::select::CosineThenEntropy;
use crate::methods::update::{Tuned, tune_on};

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs { generated: true, default_views: 65, ..Needs::CONTEXT },
    summary: "TPT on augmented and generated views, filtered by similarity to the original and by entropy",
    docs: "\
What: the views are the original, the augmented ones and the generated ones. Of all but the original the
int(cosine_fraction * (N-1)) whose scaled logits have the largest cosine with the original's are kept, with
the original; of these the int(entropy_fraction * n) of lowest entropy. Four AdamW steps on their marginal
entropy, the views chosen once; view 0 is answered.
Generated views are images of each sample, made beforehand as the original does, in a folder named by the
sample's id without its ending. The authors used Stable Diffusion image variations v2 at guidance 3, 50 steps,
63 per image; any image-to-image tool will do.
In the explanation, views after the augmented ones are the generated ones.
Cost: one image-tower pass over all views; four text-tower backward and forward passes.
Published numbers are of about 1000 images per set, not of whole test sets.
Reference: Feng et al., Diverse Data Augmentation with Diffusions for Effective Test-time Prompt Tuning,
ICCV 2023.
",
    verified: Verified::AuthorsCode,
    options: DiffTpt::OPTIONS,
    ..AdapterSpec::new("difftpt", Build::Episodic(|table| Ok(Box::new(DiffTpt::read(table)?))))
};

crate::options! {
    pub struct DiffTpt for "difftpt" {
        /// Fraction of the views that passes the similarity filter.
        cosine_fraction: f64 = 0.8, range between(0.0, 1.0), from "authors' code";
        /// Fraction of the rest that passes the entropy filter.
        entropy_fraction: f64 = 0.3, range fraction, from "authors' code";
        include adamw_steps { steps = 4, from "authors' code"; };
    }
}

/// Augmented, then generated.
fn all_views(image: &ViewSet<'_>) -> Result<Matrix> {
    let generated = image.generated.filter(|g| g.rows() > 0).ok_or_else(|| {
        Error::method(DiffTpt::NAME, format!("image {} has no generated views", image.id)).with_hint(Hint::Generated)
    })?;
    if generated.cols() != image.features.cols() || generated.data().iter().any(|x| !x.is_finite()) {
        let reason = format!("generated views of image {} have width {}", image.id, generated.cols());
        return Err(Error::method(DiffTpt::NAME, reason));
    }
    let data = [image.features.data(), generated.data()].concat();
    Ok(Matrix::from_vec(image.features.rows() + generated.rows(), generated.cols(), data))
}

impl DiffTpt {
    pub fn adapt_traced(&self, task: &Task, image: &ViewSet<'_>) -> Result<(Decision, Tuned)> {
        image.check(task, &SPEC)?;
        let features = all_views(image)?;
        let views = ViewLogits::from_logits(task.logits(&features));
        let selector = CosineThenEntropy { cosine: self.cosine_fraction, entropy: self.entropy_fraction };
        let selection = selector.select(&views);
        let kept = features.select_rows(&selection.selected);
        let adamw = AdamW::with_decay(self.lr, self.weight_decay);
        let tuned = tune_on(task, Self::NAME, &kept, marginal_entropy, self.steps, adamw)?;
        Ok((view_0(task, image, &tuned.text_features).answer(views.explain(selection)), tuned))
    }
}

impl Adapter for DiffTpt {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        task.start_pass(DiffTpt::NAME).map(|_| ())
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        Ok(self.adapt_traced(task, image)?.0)
    }
}
