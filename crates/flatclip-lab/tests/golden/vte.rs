//! `vte`: entropies, selection, mean feature, and the answer with the mean as it is and normalised.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, stream};
use flatclip::methods::adapters::vte::Vte;
use flatclip::methods::probability::mean_row;
use flatclip::methods::select::ViewLogits;
use flatclip::methods::{Adapter as _, ViewSet};
use flatclip_tensor::Matrix;

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let task = feature_task(case)?;
    let fraction = case.number("selection_p")?;
    let mut report = Report::of(case);
    let answer = |views: &Matrix, unit_mean: bool| {
        Vte { fraction, unit_mean, ..Vte::default() }.adapt(&task, &ViewSet::new("case", views))
    };
    for views in &stream(case)? {
        let plain = answer(views, false)?;
        report.real("logits", ViewLogits::new(views, task.text_features(), task.logit_scale).logits.data());
        report.real("mean_feature", mean_row(views, &plain.explanation.selected));
        report.real("entropy", plain.explanation.entropies);
        report.whole("selected", plain.explanation.selected);
        report.real("final_logits", plain.class_scores);
        report.real("final_logits_unit", answer(views, true)?.class_scores);
        report.whole("pred", [plain.prediction]);
    }
    Ok(report)
}
