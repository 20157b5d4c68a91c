//! TPT: one AdamW step on the context, for every image anew, on the marginal entropy of its confident views.
//! Golden cases: `tpt-*`, `tpt-cocoop-*`.

use super::prelude::*;
use super::promptalign::{self, PromptAlign};
use crate::methods::update::{Tuned, on_text, tune_context};
use crate::model::Context;
use crate::prompt::{Affine, PromptContent, PromptKind, shifted, shifts};

pub static SPEC: AdapterSpec = AdapterSpec {
    needs: Needs { prompts: &[PromptKind::Templates, PromptKind::Learned, PromptKind::CoCoOp], ..Needs::CONTEXT },
    summary: "tunes the context for each image on the marginal entropy of its confident views, answers view 0",
    docs: "\
What: the int(fraction * V) views of lowest entropy are selected once; AdamW on the context p with
  loss = H(mean_selected softmax(s f_v T(p)'));
view 0 is answered with the tuned context; the context is put back exactly. One AdamW step moves every entry
by about lr: only signs of the gradient count. With a cocoop prompt the start is context + meta_net(feature
of view 0), tuned as it is. With adapt = maple all prompts of a maple prompt are tuned, those in the image
tower too: PromptAlign without its alignment.
Cost: one image-tower pass over the views; per image and step one text-tower backward pass and one forward
pass over all classes; on a maple prompt both towers forward and back for the selected views.
Reference: Shu et al., Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models,
NeurIPS 2022.
",
    verified: Verified::AuthorsCode,
    options: Tpt::OPTIONS,
    ..AdapterSpec::new("tpt", Build::Episodic(|table| Ok(Box::new(Tpt::read(table)?))))
};

crate::choices! {
    /// The feature that CoCoOp's meta-net is given.
    pub enum CocoopFeature {
        /// The unit-norm feature it was trained with.
        Unit = "unit",
        /// The feature with its norm, as the authors' code feeds it (a slip: about ten times too large).
        Raw = "raw",
    }
}

crate::choices! {
    /// What is tuned.
    pub enum Adapted {
        /// The context at the input of the text tower.
        Context = "context",
        /// All prompts of a maple prompt, in both towers.
        Maple = "maple",
    }
}

crate::options! {
    pub struct Tpt for "tpt" {
        /// What is tuned: the context, or all of a maple prompt.
        adapt: Adapted = Adapted::Context, from "paper";
        include view_selection;
        include adamw_steps;
        /// What CoCoOp's meta-net sees.
        cocoop_feature: CocoopFeature = CocoopFeature::Unit, from "as it was trained";
    }
}

/// The context of one image under a CoCoOp prompt: `context + meta(feature)` on every token.
pub fn cocoop_context(context: &Context, meta: &[Affine; 2], feature: &[f32]) -> Context {
    let (_, shift) = shifts(meta, &Matrix::from_vec(1, feature.len(), feature.to_vec()));
    shifted(context, &shift).swap_remove(0)
}

impl Tpt {
    pub fn adapt_traced(&self, task: &Task, image: &ViewSet<'_>) -> Result<(Decision, Tuned)> {
        image.check(task, &SPEC)?;
        let cocoop = match task.prompt.as_deref().map(|p| &p.content) {
            Some(PromptContent::CoCoOp { context, meta, .. }) => Some(self.start(context, meta, image)?),
            _ => None,
        };
        let side = task.text_side(Tpt::NAME)?;
        let own;
        let (start, first, text) = match &cocoop {
            Some(start) => {
                own = side.pass(start)?;
                (start, own.as_ref(), &own.features()[0])
            }
            None => (task.start_context(Tpt::NAME)?, task.start_pass(Tpt::NAME)?, task.text_features()),
        };
        let views = ViewLogits::new(image.features, text, task.logit_scale);
        let selection = LowestScore { fraction: self.fraction, score: self.score }.select(&views);
        let kept = image.features.select_rows(&selection.selected);
        let objective = |text: &Matrix| on_text(&kept, text, task.logit_scale, marginal_entropy);
        let mut optimiser = AdamW::with_decay(self.lr, self.weight_decay);
        let tuned = tune_context(side, start, first, &[&objective], self.steps, &mut optimiser)?;
        let ballot = view_0(task, image, &tuned.text_features);
        Ok((ballot.answer(views.explain(selection)), tuned))
    }

    fn start(&self, context: &Context, meta: &[Affine; 2], image: &ViewSet<'_>) -> Result<Context> {
        let mut feature = image.features.row(0).to_vec();
        if meta[0].weight.cols() != feature.len() || meta[1].bias.len() != context.width {
            return Err(Error::method(Tpt::NAME, "the prompt's meta-net does not fit this model's features"));
        }
        if self.cocoop_feature == CocoopFeature::Raw {
            let norm = image.norms.first().ok_or_else(|| {
                Error::config("tpt.cocoop_feature", "raw needs the norms of the features, which this image lacks")
            })?;
            feature.iter_mut().for_each(|x| *x *= norm);
        }
        Ok(cocoop_context(context, meta, &feature))
    }

    /// TPT on all prompts of a maple prompt.
    fn on_maple(&self) -> PromptAlign {
        let Tpt { fraction, score, steps, lr, weight_decay, .. } = *self;
        PromptAlign { fraction, score, steps, lr, weight_decay, weight: 0.0, ..PromptAlign::default() }
    }
}

/// View 0 under these text features.
pub(super) fn view_0(task: &Task, image: &ViewSet<'_>, text: &Matrix) -> Decision {
    Decision::from_logits(logits(&image.features.select_rows(&[0]), text, task.logit_scale).row(0))
}

impl Adapter for Tpt {
    fn prepare(&mut self, task: &Task) -> Result<()> {
        match self.adapt {
            Adapted::Context => task.text_side(Tpt::NAME).map(|_| ()),
            Adapted::Maple => self.on_maple().prepare(task),
        }
    }

    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        match self.adapt {
            Adapted::Context => Ok(self.adapt_traced(task, image)?.0),
            Adapted::Maple => self.on_maple().adapt(task, image),
        }
    }

    fn needs(&self) -> Option<Needs> {
        (self.adapt == Adapted::Maple).then_some(Needs { statistics: false, ..promptalign::SPEC.needs })
    }
}
