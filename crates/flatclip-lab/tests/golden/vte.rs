//! `vte`: entropies, selection, mean feature, and the answer with the mean as it is and normalised.

use super::case::{Case, Report};
use super::inputs::{close, fault, feature_task, predictions, stream};
use flatclip::methods::adapters::vte::Vte;
use flatclip::methods::probability::mean_row;
use flatclip::methods::select::ViewLogits;
use flatclip::methods::{Adapter as _, Decision, ViewSet};

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let fraction = case.number("selection_p")?;
    let images = stream(case)?;
    let answers = |unit_mean: bool| -> Result<Vec<Decision>, String> {
        let vte = Vte { fraction, unit_mean, ..Vte::default() };
        images.iter().map(|views| vte.adapt(&task, &ViewSet::new("case", views)).map_err(fault)).collect()
    };
    let (plain, unit) = (answers(false)?, answers(true)?);
    let logits = |answers: &[Decision]| answers.iter().flat_map(|a| a.class_scores.clone()).collect::<Vec<f32>>();
    let mut report = Report::default();
    let views: Vec<f32> = images
        .iter()
        .flat_map(|f| ViewLogits::new(f, task.text_features(), task.logit_scale).logits.into_vec())
        .collect();
    close(&mut report, case, "logits", &views)?;
    let entropies: Vec<f32> = plain.iter().flat_map(|a| a.explanation.entropies.clone()).collect();
    close(&mut report, case, "entropy", &entropies)?;
    let selected: Vec<usize> = plain.iter().flat_map(|a| a.explanation.selected.clone()).collect();
    report.equal("selected", &selected, &case.indices("out.selected")?);
    let means: Vec<f32> = images.iter().zip(&plain).flat_map(|(f, a)| mean_row(f, &a.explanation.selected)).collect();
    close(&mut report, case, "mean_feature", &means)?;
    close(&mut report, case, "final_logits", &logits(&plain))?;
    close(&mut report, case, "final_logits_unit", &logits(&unit))?;
    report.equal("pred", &predictions(&plain), &case.indices("out.pred")?);
    Ok(report)
}
