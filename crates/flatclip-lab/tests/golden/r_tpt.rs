//! `r-tpt`: selection, every step, weights of the views, the answer.

use super::case::{Case, Report};
use super::inputs::{self, close, fault, rounded};
use super::tpt::steps;
use flatclip::methods::adapters::r_tpt::{RTpt, resemblance, weighted_sum, weights};
use flatclip::methods::probability::{argmax, logits};
use flatclip::methods::select::ViewLogits;
use flatclip::methods::{Adapter as _, ViewSet};

pub fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let (features, _) = inputs::image_features(case, &clip, "in.views")?;
    let config = RTpt {
        fraction: case.number("selection_p")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
        neighbours: case.count("neighbours")?,
        temperature: case.number("temperature")?,
        compat: false,
        ..RTpt::default()
    };
    let adapter = config.clone();
    let views = ViewLogits::new(&features, task.text_features(), task.logit_scale);
    let (tuned, selection) = adapter.tune(&task, &features, &views).map_err(fault)?;
    let mut report = Report::default();
    close(&mut report, case, "logits", views.logits.data())?;
    close(&mut report, case, "entropy", &views.entropies)?;
    report.equal("selected", &selection.selected, &case.indices("out.selected")?);
    steps(&mut report, case, &tuned)?;
    // Whether the original left a view out of its own list hangs on the last bit of its norm: the case says.
    let own: Vec<bool> = case.i64("out.self_excluded")?.iter().map(|&excluded| excluded == 0).collect();
    let score = resemblance(&features, config.neighbours, &own);
    close(&mut report, case, "score", &rounded(&score))?;
    let weight = weights(&score, config.temperature);
    close(&mut report, case, "weight", &rounded(&weight))?;
    let after = logits(&features, &tuned.text_features, task.logit_scale);
    close(&mut report, case, "tuned_logits", after.data())?;
    let answer = weighted_sum(&after, &weight);
    close(&mut report, case, "final_logits", &answer)?;
    report.equal("pred", &[argmax(&answer)], &case.indices("out.pred")?);
    if own.iter().all(|own| !own) {
        let whole = adapter.adapt(&task, &ViewSet::new("case", &features)).map_err(fault)?;
        close(&mut report, case, "final_logits", &whole.class_scores)?;
    }
    Ok(report)
}
