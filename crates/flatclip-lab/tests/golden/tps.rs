//! `tps`: entropies, selection, loss, gradient and shift of every step, the answer.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{feature_task, stream};
use flatclip::methods::adapters::tps::Tps;
use flatclip::methods::{Adapter as _, ViewSet};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let tps = Tps {
        fraction: case.number("selection_p")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
        shared: case.hyper("per_label").as_bool() == Some(false),
        ..Tps::default()
    };
    let mut report = Report::of(case);
    for views in stream(case)? {
        let (text, steps) = tps.shifted(&task, &views);
        report.real("text_features", text.data());
        for step in steps {
            report.real("entropy", step.entropies);
            report.whole("selected", step.selected);
            report.real("loss", [step.loss]);
            report.real("grad", step.gradient);
            report.real("shift", step.shift);
        }
        let answer = tps.adapt(&task, &ViewSet::new("case", &views))?;
        report.real("final_logits", answer.class_scores);
        report.whole("pred", [answer.prediction]);
    }
    // An AdamW step follows the sign of the gradient; where that is near zero, noise decides.
    for name in ["shift", "text_features"] {
        report.settle(name, case.tolerance(name, Tolerance::atol(1e-3)).with_outliers(0.005));
    }
    Ok(report)
}
