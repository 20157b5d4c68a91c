//! `difftpt`: both filters, every step, the answer.

use super::case::{Case, Report};
use super::inputs::{self, close, fault};
use super::tpt::steps;
use flatclip::methods::ViewSet;
use flatclip::methods::adapters::difftpt::DiffTpt;
use flatclip::methods::select::{CosineThenEntropy, ViewLogits};
use flatclip_tensor::Matrix;

pub fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let (features, _) = inputs::image_features(case, &clip, "in.views")?;
    let (generated, _) = inputs::image_features(case, &clip, "in.generated")?;
    let config = DiffTpt {
        cosine_fraction: case.number("selection_cosine")?,
        entropy_fraction: case.number("selection_selfentro")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
    };
    let filter = CosineThenEntropy { cosine: config.cosine_fraction, entropy: config.entropy_fraction };
    let image = ViewSet { generated: Some(&generated), ..ViewSet::new("case", &features) };
    let (answer, tuned) = config.adapt_traced(&task, &image).map_err(fault)?;
    let rows = [features.data(), generated.data()].concat();
    let all = Matrix::from_vec(features.rows() + generated.rows(), features.cols(), rows);
    let views = ViewLogits::new(&all, task.text_features(), task.logit_scale);
    let mut report = Report::default();
    close(&mut report, case, "logits", views.logits.data())?;
    close(&mut report, case, "entropy", &answer.explanation.entropies)?;
    close(&mut report, case, "cosine", &CosineThenEntropy::cosines(&views))?;
    report.equal("selected_cosine", &filter.nearest(&views), &case.indices("out.selected_cosine")?);
    report.equal("selected", &answer.explanation.selected, &case.indices("out.selected")?);
    steps(&mut report, case, &tuned)?;
    close(&mut report, case, "final_logits", &answer.class_scores)?;
    report.equal("pred", &[answer.prediction], &case.indices("out.pred")?);
    Ok(report)
}
