//! SE on features, and pseudo label, gate, loss and gradient of USE.

use super::case::{Case, Fallible, Report};
use super::inputs::{feature_task, stream};
use flatclip::methods::adapters::se::{AlphaRule, Se};
use flatclip::methods::adapters::use_prompt;
use flatclip::methods::probability::{argmax, entropy_of};
use flatclip::methods::select::ViewLogits;
use flatclip::methods::{Adapter as _, ViewSet};

fn config(case: &Case, rule: AlphaRule) -> Fallible<Se> {
    let fixed = case.hyper("alpha").as_f64();
    Ok(Se {
        fraction: case.number("selection_p")?,
        scale: case.number("scale")?,
        alpha_rule: if fixed.is_some() { AlphaRule::Fixed } else { rule },
        alpha: fixed.unwrap_or_default(),
        ..Se::default()
    })
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let (task, images) = (feature_task(case)?, stream(case)?);
    let se = Se { compat: true, ..config(case, AlphaRule::Square)? };
    let tuned = config(case, AlphaRule::Linear)?;
    let mut report = Report::of(case);
    for image in &images {
        let set = ViewSet::new("case", image);
        let views = ViewLogits::of(&task, &set);
        report.whole("zero_shot_pred", [argmax(views.logits.row(0))]);
        report.real("entropy", &views.entropies);
        let mixture = se.mixture(&views);
        let p = mixture.probabilities(&views.logits);
        let clamped: Vec<f64> = p.iter().map(|p| p.max(1e-7)).collect();
        report.real("rank", [mixture.rank]);
        report.real("se.alpha", [mixture.alpha]);
        report.real("se.norm_entropy", [entropy_of(&clamped) / (p.len() as f64).ln()]);
        report.whole("se.selected", mixture.kept);
        report.real("se.prob", p);
        report.whole("se.pred", [se.adapt(&task, &set)?.prediction]);

        let mixture = tuned.mixture(&views);
        let q = mixture.probabilities(&views.logits);
        report.whole("use.gate", [!mixture.agrees(&views.logits)]);
        let used = [&[0], mixture.kept.as_slice()].concat();
        let loss = use_prompt::loss(&views.logits.select_rows(&used), &q);
        report.real("use.loss", [loss.value]);
        let mut gradient = vec![0.0; views.logits.data().len()];
        for (row, &view) in used.iter().enumerate() {
            gradient[view * q.len()..][..q.len()].copy_from_slice(loss.gradient.row(row));
        }
        report.real("use.grad_logits", gradient);
        report.whole("use.pred", [argmax(&q.iter().map(|&q| q as f32).collect::<Vec<_>>())]);
        report.whole("use.selected", mixture.kept);
        report.real("use.alpha", [mixture.alpha]);
        report.real("use.prob", q);
    }
    Ok(report)
}
