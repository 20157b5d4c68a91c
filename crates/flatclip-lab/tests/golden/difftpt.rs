//! `difftpt`: both filters, every step, the answer.

use super::case::{Case, Fallible, Report};
use super::inputs;
use super::tpt::steps;
use flatclip::methods::ViewSet;
use flatclip::methods::adapters::difftpt::DiffTpt;
use flatclip::methods::select::{CosineThenEntropy, ViewLogits};
use flatclip_tensor::Matrix;

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let features = case.image_features(&clip, "in.views")?;
    let generated = case.image_features(&clip, "in.generated")?;
    let config = DiffTpt {
        cosine_fraction: case.number("selection_cosine")?,
        entropy_fraction: case.number("selection_selfentro")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
    };
    let filter = CosineThenEntropy { cosine: config.cosine_fraction, entropy: config.entropy_fraction };
    let image = ViewSet { generated: Some(&generated), ..ViewSet::new("case", &features) };
    let (answer, tuned) = config.adapt_traced(&task, &image)?;
    let rows = [features.data(), generated.data()].concat();
    let all = Matrix::from_vec(features.rows() + generated.rows(), features.cols(), rows);
    let views = ViewLogits::new(&all, task.text_features(), task.logit_scale);
    let mut report = Report::of(case);
    report.close("logits", views.logits.data());
    report.close("entropy", &answer.explanation.entropies);
    report.close("cosine", CosineThenEntropy::cosines(&views));
    report.equal("selected_cosine", filter.nearest(&views));
    report.equal("selected", &answer.explanation.selected);
    steps(&mut report, &tuned);
    report.close("final_logits", &answer.class_scores);
    report.equal("pred", [answer.prediction]);
    Ok(report)
}
