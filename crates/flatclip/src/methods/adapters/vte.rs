//! VTE: the mean feature of the most confident views, against the text features.

use super::groups::views_kept;
use crate::Result;
use crate::methods::aggregate::Ballot;
use crate::methods::probability::{logits, mean_row, normalise_rows};
use crate::methods::select::{LowestEntropy, Selector, ViewLogits};
use crate::methods::{Adapter, AdapterSpec, Build, Decision, Needs, Task, ViewSet};
use flatclip_tensor::Matrix;

/// The registry entry.
pub static SPEC: AdapterSpec = AdapterSpec {
    name: "vte",
    aliases: &[],
    needs: Needs::FEATURES,
    summary: "mean image feature of the most confident views; the baseline to print next to ZERO",
    docs: "\
What: keep the int(fraction * V) views of lowest entropy, g = their mean feature, normalised; logits =
exp(logit_scale) <g, t_k>.
Cost: one image-tower pass over the views; nothing else that can be measured.
Use it with an ensemble of templates to have the published method.
Reference: Doebler et al., A Lost Opportunity for Vision-Language Models, ECCV workshops 2024.
",
    build: Build::Episodic(|table| Ok(Box::new(Vte { options: Config::read(table)? }))),
    options: Config::OPTIONS,
};

crate::options! {
    /// Options of VTE.
    pub struct Config for "vte" {
        include views_kept { fraction = 0.1, from "paper, and TPT's value"; };
    }
}

/// The adapter.
#[derive(Clone, Debug)]
pub struct Vte {
    options: Config,
}

impl Adapter for Vte {
    fn adapt(&self, task: &Task, image: &ViewSet<'_>) -> Result<Decision> {
        image.check(task, &SPEC)?;
        let views = ViewLogits::of(task, image);
        let selection = LowestEntropy { fraction: self.options.fraction }.select(image.features, &views);
        let mean = mean_row(image.features, &selection.selected);
        let mut mean = Matrix::from_vec(1, mean.len(), mean);
        normalise_rows(&mut mean);
        let ballot = Ballot::from_logits(logits(&mean, &task.text_features, task.logit_scale).row(0));
        Ok(ballot.answer(views.explain(selection)))
    }
}
