//! PromptAlign: TPT on MaPLe's prompts, plus a term that aligns the views' token statistics with those of training images.
//! Golden cases: `promptalign-*`.

use super::prelude::*;
use crate::Hint;
use crate::methods::maple::{MapleParameters, MaplePass};
use crate::methods::statistics::SourceStatistics;
use crate::methods::update::{image_gradient, text_gradient};
use crate::options::mismatch;
use crate::prompt::PromptKind;

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs { pixels: true, vit: true, statistics: true, prompts: &[PromptKind::Maple], ..Needs::CONTEXT },
    summary: "TPT on a maple prompt, with the views' token statistics aligned to those of training images",
    docs: "\
What: the loss is TPT's marginal entropy on the most confident views plus, for some blocks l of the image
tower, the L1 distance of the mean and variance over those views of the tokens that the block reads (prompts
included), per token and channel, to the same statistics of training images (given):
  loss = H(mean_selected softmax) + weight mean_l (mean|mu_l - mu'_l| + mean|var_l - var'_l|) / 2
AdamW moves all parameters of the maple prompt; view 0 is answered. Statistics belong to a prompt and a
model: they are computed from training images once and given to every run; the authors' tensors can be
imported.
Cost: one image-tower pass over the views; per step, both towers forward and back for the selected views; both
once more for the answer.
Reference: Abdul Samadh et al., Align Your Prompts: Test-Time Prompting with Distribution Alignment for
Zero-Shot Generalization, NeurIPS 2023.
",
    verified: Verified::AuthorsCode,
    options: PromptAlign::OPTIONS,
    ..AdapterSpec::new("promptalign", Build::Episodic(|table| Ok(Box::new(PromptAlign::read(table)?))))
};

crate::options! {
    pub struct PromptAlign for "promptalign", check PromptAlign::has_blocks {
        include view_selection;
        /// Fraction of the views for the statistics.
        align_fraction: f64 = 0.1, range fraction, from "authors' code";
        /// First aligned block.
        layer_from: usize = 0, from "authors' configuration";
        /// One past the last aligned block.
        layer_to: usize = 3, range at_least(1), from "authors' configuration";
        /// Weight of the alignment, divided by layer_to - layer_from.
        weight: f64 = 100.0, range at_least(0.0), from "authors' configuration";
        include adamw_steps { lr = 0.04, from "authors' value for ImageNet's shifts; 0.0005 for fine-grained sets"; };
        /// Leave out the last block, as a slip in the authors' loop does; the weight is still divided by all.
        compat_layers: bool = false, from "choice";
        /// From the second step on take the entropy over the alignment's views, as the authors' code does.
        compat_late_views: bool = false, from "choice";
    }
}

#[derive(Clone, Debug)]
pub struct AlignStep {
    pub loss: f32,
    /// Its entropy part.
    pub entropy: f32,
    /// Its alignment part, before the weight.
    pub alignment: f32,
    pub gradient: MapleParameters,
}

/// Gradients on the inputs of some blocks.
type BlockGradients = Vec<(usize, Vec<f32>)>;

#[derive(Clone, Debug)]
pub struct Aligned {
    /// `[V, K]` before.
    pub logits: Matrix,
    /// The views of the alignment.
    pub align_views: Vec<usize>,
    pub steps: Vec<AlignStep>,
    pub parameters: MapleParameters,
}

/// The distance of one block's statistics over `images` to the source, and its gradient on the tokens (`[images * tokens, width]`).
fn distance(tokens: &Matrix, images: usize, mean: &Matrix, variance: &Matrix) -> (f64, Vec<f64>) {
    let size = tokens.data().len() / images;
    let mut gradient = vec![0.0; tokens.data().len()];
    let mut total = 0.0;
    for at in 0..size {
        let value = |image: usize| f64::from(tokens.data()[image * size + at]);
        let mu = (0..images).map(value).sum::<f64>() / images as f64;
        let var = (0..images).map(|i| (value(i) - mu).powi(2)).sum::<f64>() / images as f64;
        let (off, spread) = (mu - f64::from(mean.data()[at]), var - f64::from(variance.data()[at]));
        total += 0.5 * (off.abs() + spread.abs()) / size as f64;
        let scale = 0.5 / (size * images) as f64;
        for image in 0..images {
            gradient[image * size + at] = scale * (sign(off) + sign(spread) * 2.0 * (value(image) - mu));
        }
    }
    (total, gradient)
}

/// Zero at zero, as torch's L1 loss has it.
fn sign(x: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

impl PromptAlign {
    fn has_blocks(&self) -> Result<()> {
        if self.layer_from < self.layer_to {
            return Ok(());
        }
        Err(mismatch(Self::NAME, "layer_from", "less than layer_to", self.layer_from))
    }

    /// The aligned blocks.
    pub fn layers(&self) -> std::ops::Range<usize> {
        self.layer_from..if self.compat_layers { self.layer_to - 1 } else { self.layer_to }
    }

    /// What one block's distance counts.
    fn layer_weight(&self) -> f64 {
        self.weight / (self.layer_to - self.layer_from) as f64
    }

    /// Without a weight it is TPT on a maple prompt, and no statistics are needed.
    fn aligns(&self) -> bool {
        self.weight > 0.0
    }

    fn source<'t>(&self, task: &'t Task) -> Result<&'t SourceStatistics> {
        let source = task.statistics.as_deref().ok_or_else(|| {
            let reason =
                "needs token statistics of training images; compute them with this model and prompt and give them";
            Error::method(PromptAlign::NAME, reason).with_hint(Hint::Statistics)
        })?;
        let needed = self.layers().end;
        if source.means.len() < needed {
            let reason = format!("expected at most {}, the blocks with statistics, found {needed}", source.means.len());
            return Err(Error::config("promptalign.layer_to", reason));
        }
        Ok(source)
    }

    /// One gradient: `pass` holds the images of `union`, `entropy` and `align` index views.
    fn gradient(
        &self,
        task: &Task,
        pass: MaplePass<'_>,
        union: &[usize],
        entropy: &[usize],
        align: &[usize],
    ) -> Result<AlignStep> {
        let places = |views: &[usize]| -> Vec<usize> {
            views.iter().filter_map(|v| union.iter().position(|u| u == v)).collect()
        };
        let (images, text) = (pass.image_features(), pass.text_features());
        let kept = places(entropy);
        let features = images.select_rows(&kept);
        let loss = marginal_entropy(&logits(&features, text, task.logit_scale));
        let d_text = text_gradient(&features, &loss.gradient, task.logit_scale);
        let mut d_image = Matrix::zeros(images.rows(), images.cols());
        let d_kept = image_gradient(text, &loss.gradient, task.logit_scale);
        kept.iter().zip(d_kept.iter_rows()).for_each(|(&place, row)| d_image.row_mut(place).copy_from_slice(row));
        let (alignment, d_tokens) = match self.aligns() {
            true => self.align(self.source(task)?, &pass, union.len(), &places(align))?,
            false => (0.0, Vec::new()),
        };
        Ok(AlignStep {
            loss: (f64::from(loss.value) + self.layer_weight() * alignment) as f32,
            entropy: loss.value,
            alignment: alignment as f32,
            gradient: pass.gradient(&d_text, &d_image, &d_tokens)?,
        })
    }

    /// The alignment over all blocks (before the weight) and its weighted gradient on the tokens of all images of the pass.
    fn align(
        &self,
        source: &SourceStatistics,
        pass: &MaplePass<'_>,
        images: usize,
        places: &[usize],
    ) -> Result<(f64, BlockGradients)> {
        let (mut total, mut gradients) = (0.0, Vec::new());
        for block in self.layers() {
            let tokens = pass.tokens(block)?;
            let (mean, variance) = (&source.means[block], &source.variances[block]);
            let per_image = tokens.rows() / images;
            if (mean.rows(), mean.cols()) != (per_image, tokens.cols()) {
                let reason = format!(
                    "the statistics have {} tokens of width {}, this model and prompt {per_image} of width {}; compute them again",
                    mean.rows(),
                    mean.cols(),
                    tokens.cols()
                );
                return Err(Error::method(PromptAlign::NAME, reason));
            }
            let rows: Vec<usize> = places.iter().flat_map(|p| p * per_image..(p + 1) * per_image).collect();
            let (value, d) = distance(&tokens.select_rows(&rows), places.len(), mean, variance);
            total += value;
            let mut all = vec![0.0f32; tokens.data().len()];
            for (row, part) in rows.iter().zip(d.chunks(tokens.cols())) {
                let to = &mut all[row * tokens.cols()..][..tokens.cols()];
                to.iter_mut().zip(part).for_each(|(t, d)| *t = (self.layer_weight() * d) as f32);
            }
            gradients.push((block, all));
        }
        Ok((total, gradients))
    }

    pub fn adapt_traced(&self, task: &Task, image: &ViewSet<'_>) -> Result<(Decision, Aligned)> {
        image.check(task, &SPEC)?;
        let (clip, side) = (task.need_clip(PromptAlign::NAME)?, task.text_side(PromptAlign::NAME)?);
        let mut parameters = MapleParameters::of(task.prompt.as_deref(), PromptAlign::NAME)?;
        let (pixels, count) = (image.need_pixels(PromptAlign::NAME)?, image.features.rows());
        // Both sides of the task come from this prompt, its visual prompts included: nothing is encoded a second time.
        let views = ViewLogits::of(task, image);
        let selection = LowestScore { fraction: self.fraction, score: self.score }.select(&views);
        let align_views = LowestScore { fraction: self.align_fraction, score: self.score }.select(&views).selected;
        // Gradients are needed for these views alone.
        let mut union = [selection.selected.clone(), align_views.clone()].concat();
        union.sort_unstable();
        union.dedup();
        let size = pixels.len() / count;
        let kept: Vec<f32> = union.iter().flat_map(|v| &pixels[v * size..(v + 1) * size]).copied().collect();

        let mut optimiser = AdamW::with_decay(self.lr, self.weight_decay);
        let mut steps = Vec::new();
        for step in 0..self.steps {
            // The first step starts where the task's text features were computed.
            let known = (step == 0).then_some(task.text_features());
            let pass = parameters.pass_with_tokens(clip, side, known, &kept, union.len())?;
            let entropy = if step > 0 && self.compat_late_views { &align_views } else { &selection.selected };
            let found = self.gradient(task, pass, &union, entropy, &align_views)?;
            require_finite(|| format!("promptalign step {step}"), &found.gradient.tensors())?;
            optimiser.step(&mut parameters.tensors_mut(), &found.gradient.tensors());
            steps.push(found);
        }
        let first = parameters.image_features(clip, &pixels[..size], 1)?;
        let last = logits(&first, &parameters.text_features(side)?, task.logit_scale);
        let aligned = Aligned { logits: views.logits.clone(), align_views, steps, parameters };
        Ok((Decision::from_logits(last.row(0)).answer(views.explain(selection)), aligned))
    }
}

impl Adapter for PromptAlign {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        MapleParameters::of(task.prompt.as_deref(), PromptAlign::NAME)?;
        if self.aligns() {
            self.source(task)?;
        }
        task.text_side(PromptAlign::NAME).map(|_| ())
    }

    fn needs(&self) -> Option<Needs> {
        (!self.aligns()).then_some(Needs { statistics: false, ..SPEC.needs })
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        Ok(self.adapt_traced(task, image)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_gradient_matches_differences_and_is_zero_at_the_source() {
        let tokens = Matrix::from_vec(6, 2, (0..12).map(|i| (i as f32 * 1.7).sin()).collect());
        let (mean, variance) =
            (Matrix::from_vec(2, 2, vec![0.3, -0.2, 0.1, 0.9]), Matrix::from_vec(2, 2, vec![0.2, 0.7, 0.1, 0.4]));
        let gradient = to_f32(&distance(&tokens, 3, &mean, &variance).1);
        assert_gradient(&tokens, &gradient, 1e-3, 1e-3, |tokens| distance(tokens, 3, &mean, &variance).0);
        let one = Matrix::from_vec(2, 2, vec![0.3, -0.2, 0.1, 0.9]);
        let (value, gradient) = distance(&one, 1, &mean, &Matrix::zeros(2, 2));
        assert!(value == 0.0 && gradient.iter().all(|g| *g == 0.0));
    }
}
