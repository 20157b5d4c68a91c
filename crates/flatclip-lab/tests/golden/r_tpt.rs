//! `r-tpt`: selection, every step, weights of the views, the answer.

use super::case::{Case, Fallible, Report};
use super::inputs;
use super::tpt::steps;
use flatclip::methods::adapters::r_tpt::{RTpt, resemblance, weighted_sum, weights};
use flatclip::methods::probability::{argmax, logits};
use flatclip::methods::select::ViewLogits;
use flatclip::methods::{Adapter as _, ViewSet};

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let features = case.image_features(&clip, "in.views")?;
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
    let (tuned, selection) = adapter.tune(&task, &features, &views)?;
    let mut report = Report::of(case);
    report.close("logits", views.logits.data());
    report.close("entropy", &views.entropies);
    report.equal("selected", &selection.selected);
    steps(&mut report, &tuned);
    // Whether the original left a view out of its own list hangs on the last bit of its norm: the case says.
    let own: Vec<bool> = case.i64("out.self_excluded")?.iter().map(|&excluded| excluded == 0).collect();
    let score = resemblance(&features, config.neighbours, &own);
    report.close("score", &score);
    let weight = weights(&score, config.temperature);
    report.close("weight", &weight);
    let after = logits(&features, &tuned.text_features, task.logit_scale);
    report.close("tuned_logits", after.data());
    let answer = weighted_sum(&after, &weight);
    report.close("final_logits", &answer);
    report.equal("pred", [argmax(&answer)]);
    if own.iter().all(|own| !own) {
        let whole = adapter.adapt(&task, &ViewSet::new("case", &features))?;
        report.close("final_logits", &whole.class_scores);
    }
    Ok(report)
}
