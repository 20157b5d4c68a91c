//! SAR: sharpness-aware minimisation of the entropy of reliable views, on the context or on the image tower's
//! norms. Golden cases: `sar-*`.

use super::prelude::*;
use crate::methods::optim::Sgd;
use crate::methods::sam::{Ascent, Shaped};
use crate::methods::update::{image_gradient, text_gradient};
use crate::model::{BatchNorms, Context, ImageConfig, NormAffine, VisionInput};
use crate::prompt::PromptKind;

pub static SPEC: AdapterSpec = AdapterSpec {
    // Class embeddings serve `adapt = "norms"`, which needs no context.
    needs: Needs { prompts: &[PromptKind::Templates, PromptKind::Learned, PromptKind::Features], ..Needs::CONTEXT },
    summary: "sharpness-aware entropy minimisation on the reliable views of one image, on the context or the norms",
    docs: "\
What: reliable views (entropy H_v below margin * ln K) give a loss; its gradient points to a worse place at
distance rho; the gradient of the still reliable views' loss there is the step, taken at the original place w:
  I1 = {v : H_v < margin ln K}, g1 = grad mean_I1 H, eps = rho g1 / |g1|
  I2 = {v in I1 : H_v(w + eps) < margin ln K}, g2 = grad mean_I2 H at w + eps, w <- optimiser(w, g2)
View 0 is answered. Everything is put back for the next image.
SAR was made for streams of batches and normalisation layers; the form on one image's views and a context is
the FGA paper's comparison, which does not spell it out: filter, loss and optimiser are options.
adapt = \"norms\" moves the LayerNorms of a ViT, or scales and shifts of a ResNet's BatchNorms, which then run
on the statistics of the views, view 0's answer included; there all views go together.
Cost: adapt = \"prompt\": about twice tpt. adapt = \"norms\": two image-tower passes with gradients over all
views, and the pixels are needed; for a ResNet about 30 MB per view (RN50).
Reference: Niu et al., Towards Stable Test-Time Adaptation in Dynamic Wild World, ICLR 2023.
",
    verified: Verified::AuthorsCode,
    options: Sar::OPTIONS,
    ..AdapterSpec::new("sar", Build::Episodic(|table| Ok(Box::new(Sar::read(table)?))))
};

crate::choices! {
    /// What is moved.
    pub enum Adapted {
        /// The context.
        Prompt = "prompt",
        /// The image tower's norms: LayerNorms of a ViT, BatchNorms of a ResNet on the statistics of the views.
        Norms = "norms",
    }
}

crate::choices! {
    /// Which views count as reliable.
    pub enum Filter {
        /// Entropy below `margin * ln K`.
        Margin = "margin",
        /// The `fraction` of lowest entropy.
        Top = "top",
        /// Both.
        Both = "both",
    }
}

crate::choices! {
    /// What is minimised.
    pub enum Objective {
        /// The mean of the entropies.
        Mean = "mean",
        /// The entropy of the mean.
        Marginal = "marginal",
    }
}

crate::choices! {
    /// The base optimiser.
    pub enum Base {
        /// AdamW with torch's other defaults.
        Adamw = "adamw",
        /// SGD with momentum.
        Sgd = "sgd",
    }
}

crate::options! {
    pub struct Sar for "sar" {
        /// What is moved.
        adapt: Adapted = Adapted::Prompt, from "choice, as the comparison needs";
        /// Whether the BatchNorms of a ResNet's last stage are moved, too.
        last_stage: bool = false, from "authors' code, which leaves out layer4";
        /// A view is reliable if its entropy is below margin * ln K.
        margin: f64 = 0.4, range at_least(0.0), from "authors' code";
        /// Which views count as reliable.
        filter: Filter = Filter::Margin, from "authors' code";
        include view_selection { fraction = 0.1, from "TPT's filter"; };
        /// What is minimised.
        loss: Objective = Objective::Mean, from "authors' code";
        /// How far away the second gradient is taken, rho.
        radius: f64 = 0.05, alias "rho", range at_least(0.0), from "authors' code";
        /// Steps per image.
        steps: usize = 1, range up_to(1000), from "authors' code";
        /// The base optimiser.
        optimiser: Base = Base::Adamw, from "choice: SAR's own rate leaves a context practically unchanged";
        /// Its learning rate.
        lr: f64 = 5e-3, range at_least(0.0), from "TPT's; with sgd the authors use 0.001 for 64 images";
        /// Momentum of sgd.
        momentum: f64 = 0.9, range at_least(0.0), from "authors' code";
        /// Weight decay.
        weight_decay: f64 = 0.01, range at_least(0.0), from "torch's AdamW default; the authors' sgd has 0";
        /// If the moving mean of the second loss falls below it, the step is undone: the authors' rule for
        /// streams (0.2). On one confident image it would undo every step.
        recovery: f64 = 0.0, range at_least(0.0), from "choice: off";
    }
}

/// Parameters that SAR can move: a list of tensors.
pub trait Parameters: Clone {
    fn tensors(&self) -> Vec<&[f32]>;
    fn tensors_mut(&mut self) -> Vec<&mut [f32]>;
}

impl Parameters for Context {
    fn tensors(&self) -> Vec<&[f32]> {
        vec![&self.data]
    }
    fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        vec![&mut self.data]
    }
}

impl Parameters for NormAffine {
    fn tensors(&self) -> Vec<&[f32]> {
        Self::tensors(self)
    }
    fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        Self::tensors_mut(self)
    }
}

impl Parameters for BatchNorms {
    fn tensors(&self) -> Vec<&[f32]> {
        Self::tensors(self)
    }
    fn tensors_mut(&mut self) -> Vec<&mut [f32]> {
        Self::tensors_mut(self)
    }
}

/// From a gradient on logits to one on parameters.
pub type Backward<'f, P> = Box<dyn Fn(&Matrix) -> Result<P> + 'f>;

/// The logits of all views at some parameters, and the backward pass.
pub struct Forward<'f, P> {
    /// `[V, K]`.
    pub logits: Matrix,
    /// From a gradient on the logits to one on the parameters.
    pub gradient: Backward<'f, P>,
}

#[derive(Clone, Debug)]
pub struct Outcome<P> {
    /// The gradient at the start of the first step.
    pub first_gradient: Option<P>,
    /// The gradient at the perturbed place of the first step.
    pub second_gradient: Option<P>,
    /// Logits before the last step: what the original returns.
    pub logits_before: Matrix,
    /// The views that were reliable in the last step.
    pub reliable: Vec<usize>,
    /// After the last step, before a recovery.
    pub updated: P,
    pub parameters: P,
    /// Whether a recovery undid a step.
    pub recovered: bool,
}

impl Sar {
    fn reliable(&self, logits: &Matrix) -> Vec<usize> {
        let views = ViewLogits::from_logits(logits.clone());
        let limit = self.margin * (logits.cols() as f64).ln();
        let sure = |v: &usize| f64::from(views.entropies[*v]) < limit;
        let lowest = || LowestScore::of_scores(self.fraction, self.score.of_views(&views)).selected;
        let mut kept: Vec<usize> = match self.filter {
            Filter::Margin => (0..logits.rows()).filter(sure).collect(),
            Filter::Top => lowest(),
            Filter::Both => lowest().into_iter().filter(sure).collect(),
        };
        kept.sort_unstable();
        kept
    }

    /// Of reliable views those that still are.
    fn still_reliable(&self, first: &[usize], entropies: &[f32], classes: usize) -> Vec<usize> {
        let limit = self.margin * (classes as f64).ln();
        let keep = |v: &usize| self.filter == Filter::Top || f64::from(entropies[*v]) < limit;
        first.iter().copied().filter(keep).collect()
    }

    fn base(&self) -> Box<dyn Optimiser> {
        match self.optimiser {
            Base::Adamw => Box::new(AdamW::with_decay(self.lr, self.weight_decay)),
            Base::Sgd => Box::new(Sgd::new(self.lr, self.momentum, self.weight_decay)),
        }
    }

    /// The loss on the listed views, its gradient on the logits of all.
    fn loss_on(&self, all: &Matrix, views: &[usize]) -> Loss {
        let part = match self.loss {
            Objective::Mean => mean_entropy(&all.select_rows(views)),
            Objective::Marginal => marginal_entropy(&all.select_rows(views)),
        };
        let mut gradient = Matrix::zeros(all.rows(), all.cols());
        for (row, &view) in views.iter().enumerate() {
            gradient.row_mut(view).copy_from_slice(part.gradient.row(row));
        }
        Loss { value: part.value, gradient }
    }

    /// Runs SAR from `start`. A step without reliable views changes nothing.
    pub fn run<'f, P: Parameters>(
        &self,
        start: &P,
        forward: impl Fn(&P) -> Result<Forward<'f, P>>,
    ) -> Result<Outcome<P>> {
        let (mut w, mut optimiser) = (start.clone(), self.base());
        let mut moving_mean: Option<f64> = None;
        let mut out = Outcome {
            first_gradient: None,
            second_gradient: None,
            logits_before: Matrix::default(),
            reliable: Vec::new(),
            updated: start.clone(),
            parameters: start.clone(),
            recovered: false,
        };
        for _ in 0..self.steps {
            let here = forward(&w)?;
            out.logits_before = here.logits.clone();
            let classes = here.logits.cols();
            out.reliable = self.reliable(&here.logits);
            if !out.reliable.is_empty() {
                let g1 = (here.gradient)(&self.loss_on(&here.logits, &out.reliable).gradient)?;
                drop(here);
                let there = forward(&ascended(&w, &g1, self.radius))?;
                out.first_gradient.get_or_insert(g1);
                let second = self.still_reliable(&out.reliable, &entropies(&there.logits), classes);
                if !second.is_empty() {
                    let loss = self.loss_on(&there.logits, &second);
                    let g2 = (there.gradient)(&loss.gradient)?;
                    require_finite(|| "sar's second gradient".into(), &g2.tensors())?;
                    optimiser.step(&mut w.tensors_mut(), &g2.tensors());
                    out.second_gradient.get_or_insert(g2);
                    let value = f64::from(loss.value);
                    moving_mean = Some(moving_mean.map_or(value, |mean| 0.9 * mean + 0.1 * value));
                }
            }
            out.updated = w.clone();
            if moving_mean.is_some_and(|mean| mean < self.recovery) {
                // As in the original, the optimiser's momentum is kept.
                w = start.clone();
                out.recovered = true;
            }
        }
        out.parameters = w;
        Ok(out)
    }
}

/// `w + eps`, SAM's step with one norm over all tensors.
fn ascended<P: Parameters>(w: &P, gradient: &P, radius: f64) -> P {
    let shapes: Vec<[usize; 1]> = w.tensors().iter().map(|t| [t.len()]).collect();
    let parameters: Vec<Shaped<'_>> = shapes.iter().map(|shape| shape.as_slice()).zip(w.tensors()).collect();
    let epsilon = Ascent::sam(radius).epsilon_of(&parameters, &gradient.tensors());
    let mut moved = w.clone();
    for (w, epsilon) in moved.tensors_mut().into_iter().zip(&epsilon) {
        w.iter_mut().zip(epsilon).for_each(|(w, e)| *w += e);
    }
    moved
}

/// Tokens between blocks that are kept for the backward pass: 64 views of ViT-B/16. Where the views need more, the reliable
/// ones among the last are run forward again.
const RECORD_BYTES: usize = 512 << 20;

/// What the tokens of one image between all blocks take: 7 MB for ViT-B/16.
fn token_bytes(task: &Task) -> Result<usize> {
    let config = task.need_clip(Sar::NAME)?.config();
    Ok(match config.image {
        ImageConfig::Vit { width, layers, .. } => config.image_tokens() * width * layers * size_of::<f32>(),
        ImageConfig::ResNet { .. } | ImageConfig::Other => 0,
    })
}

fn is_resnet(task: &Task) -> Result<bool> {
    Ok(matches!(task.need_clip(Sar::NAME)?.config().image, ImageConfig::ResNet { .. }))
}

impl Sar {
    /// SAR on the context, and the text features at its end.
    pub fn on_context(&self, task: &Task, features: &Matrix) -> Result<(Outcome<Context>, Matrix)> {
        let side = task.text_side(Sar::NAME)?;
        let outcome = self.run(task.start_context(Sar::NAME)?, |context| {
            let pass = side.pass(context)?;
            Ok(Forward {
                logits: logits(features, &pass.features()[0], task.logit_scale),
                gradient: Box::new(move |slope: &Matrix| {
                    Ok(pass.gradient(&[text_gradient(features, slope, task.logit_scale)])?.swap_remove(0))
                }),
            })
        })?;
        let text = side.encode(&outcome.parameters)?;
        Ok((outcome, text))
    }

    /// SAR on the LayerNorms of the image tower, and view 0's unit-norm feature at its end.
    pub fn on_norms(&self, task: &Task, pixels: &[f32], views: usize) -> Result<(Outcome<NormAffine>, Matrix)> {
        let tower = task.need_clip(Sar::NAME)?.vision();
        let text = task.text_features();
        let recorded = RECORD_BYTES / token_bytes(task)?.max(1);
        let outcome = self.run(&tower.norm_affine()?, |norms| {
            let input = VisionInput { norms: Some(norms), recorded, ..VisionInput::default() };
            let pass = tower.pass(pixels, views, input)?;
            Ok(Forward {
                logits: logits(pass.features(), text, task.logit_scale),
                gradient: Box::new(move |slope: &Matrix| {
                    Ok(pass.gradient(&image_gradient(text, slope, task.logit_scale), &[])?.norms)
                }),
            })
        })?;
        let input = VisionInput { norms: Some(&outcome.parameters), ..VisionInput::default() };
        let first = tower.pass(&pixels[..pixels.len() / views], 1, input)?.features().clone();
        Ok((outcome, first))
    }

    /// SAR on the BatchNorms of a ResNet, and all views' unit-norm features at its end.
    pub fn on_batch_norms(&self, task: &Task, pixels: &[f32], views: usize) -> Result<(Outcome<BatchNorms>, Matrix)> {
        let tower = task.need_clip(Sar::NAME)?.vision();
        let text = task.text_features();
        let start = tower.batch_norms()?.with_last_stage(self.last_stage);
        let outcome = self.run(&start, |norms| {
            let pass = tower.batch_norm_pass(pixels, views, norms)?;
            Ok(Forward {
                logits: logits(pass.features(), text, task.logit_scale),
                gradient: Box::new(move |slope: &Matrix| pass.gradient(&image_gradient(text, slope, task.logit_scale))),
            })
        })?;
        let all = tower.batch_norm_pass(pixels, views, &outcome.parameters)?.features().clone();
        Ok((outcome, all))
    }
}

impl Adapter for Sar {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        match self.adapt {
            Adapted::Prompt => task.text_side(Sar::NAME).and(task.start_context(Sar::NAME)).map(|_| ()),
            Adapted::Norms => task.need_clip(Sar::NAME).map(|_| ()),
        }
    }

    fn needs(&self) -> Option<Needs> {
        match self.adapt {
            Adapted::Prompt => None,
            Adapted::Norms => Some(Needs { pixels: true, text_tower: false, ..SPEC.needs }),
        }
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let (last, reliable) = match self.adapt {
            Adapted::Prompt => {
                let (outcome, text) = self.on_context(task, image.features)?;
                (logits(&image.features.select_rows(&[0]), &text, task.logit_scale), outcome.reliable)
            }
            Adapted::Norms => {
                let pixels = image.pixels.ok_or_else(|| {
                    Error::method(Sar::NAME, format!("adapt = \"norms\" needs pixels, image {} has none", image.id))
                })?;
                let count = image.features.rows();
                let (first, reliable) = if is_resnet(task)? {
                    let (outcome, all) = self.on_batch_norms(task, pixels, count)?;
                    (all.select_rows(&[0]), outcome.reliable)
                } else {
                    let (outcome, first) = self.on_norms(task, pixels, count)?;
                    (first, outcome.reliable)
                };
                (task.logits(&first), reliable)
            }
        };
        let ranking = ranking(&views.entropies);
        let selected = ranking.iter().copied().filter(|v| reliable.contains(v)).collect();
        let selection = Selection { scores: views.entropies.clone(), ranking, selected };
        Ok(Decision::from_logits(last.row(0)).answer(views.explain(selection)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logits that are the parameters themselves.
    fn forward(w: &Context) -> Result<Forward<'static, Context>> {
        let shape = w.clone();
        Ok(Forward {
            logits: Matrix::from_vec(w.tokens, w.width, w.data.clone()),
            gradient: Box::new(move |g: &Matrix| Ok(Context { data: g.data().to_vec(), ..shape.clone() })),
        })
    }

    fn start() -> Context {
        // The first view is sure, the second is not.
        Context::shared(2, 3, vec![3.0, 0.0, 0.0, 0.1, 0.0, 0.0])
    }

    #[test]
    fn only_reliable_views_move_and_radius_0_is_plain_entropy_descent() {
        let config = Sar { radius: 0.0, optimiser: Base::Sgd, lr: 1.0, weight_decay: 0.0, ..Sar::default() };
        let outcome = config.run(&start(), forward).unwrap();
        assert_eq!(outcome.reliable, [0]);
        assert_eq!(outcome.parameters.data[3..], start().data[3..]);
        assert_eq!(outcome.first_gradient.unwrap().data, outcome.second_gradient.unwrap().data);
        assert!(outcome.parameters.data[0] > 3.0);
    }

    #[test]
    fn nothing_reliable_changes_nothing_and_recovery_undoes() {
        let none = Sar { margin: 0.01, ..Sar::default() }.run(&start(), forward).unwrap();
        assert_eq!(none.parameters.data, start().data);
        let undone = Sar { recovery: 10.0, ..Sar::default() }.run(&start(), forward).unwrap();
        assert!(undone.recovered && undone.parameters.data == start().data && undone.updated.data != start().data);
    }
}
