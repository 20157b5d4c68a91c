//! `tps`: entropies, selection, loss, gradient and shift of every step, the answer.

use super::case::{Case, Report};
use super::inputs::{close, fault, feature_task, predictions, stream, tolerance};
use flatclip::methods::adapters::tps::{Step, Tps};
use flatclip::methods::{Adapter as _, ViewSet};

pub fn run(case: &Case) -> Result<Report, String> {
    let task = feature_task(case)?;
    let tps = Tps {
        fraction: case.number("selection_p")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
        shared: case.hyper("per_label").as_bool() == Some(false),
        ..Tps::default()
    };
    let (mut steps, mut texts, mut answers): (Vec<Step>, Vec<f32>, Vec<_>) = Default::default();
    for views in stream(case)? {
        let (text, own) = tps.shifted(&task, &views);
        steps.extend(own);
        texts.extend(text.into_vec());
        answers.push(tps.adapt(&task, &ViewSet::new("case", &views)).map_err(fault)?);
    }
    let of = |part: fn(&Step) -> &[f32]| steps.iter().flat_map(part).copied().collect::<Vec<f32>>();
    let mut report = Report::default();
    close(&mut report, case, "entropy", &of(|step| &step.entropies))?;
    let selected: Vec<usize> = steps.iter().flat_map(|step| step.selected.clone()).collect();
    report.equal("selected", &selected, &case.indices("out.selected")?);
    close(&mut report, case, "loss", &steps.iter().map(|step| step.loss).collect::<Vec<_>>())?;
    close(&mut report, case, "grad", &of(|step| &step.gradient))?;
    // An AdamW step follows the sign of the gradient; where that is near zero, noise decides.
    let moved = tolerance(case, "shift").with_outliers(0.005);
    report.close("shift", &of(|step| &step.shift), case.f32("out.shift")?, moved);
    let moved = tolerance(case, "text_features").with_outliers(0.005);
    report.close("text_features", &texts, case.f32("out.text_features")?, moved);
    let logits: Vec<f32> = answers.iter().flat_map(|answer| answer.class_scores.clone()).collect();
    close(&mut report, case, "final_logits", &logits)?;
    report.equal("pred", &predictions(&answers), &case.indices("out.pred")?);
    Ok(report)
}
