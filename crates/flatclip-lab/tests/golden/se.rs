//! SE on features, and pseudo label, gate, loss and gradient of USE.

use super::case::{Case, Report};
use super::inputs::{close, fault, feature_task, rounded, stream};
use flatclip::methods::adapters::se::{AlphaRule, Se};
use flatclip::methods::adapters::use_prompt;
use flatclip::methods::probability::{argmax, entropy_of};
use flatclip::methods::select::ViewLogits;
use flatclip::methods::{Adapter as _, ViewSet};

fn config(case: &Case, rule: AlphaRule) -> Result<Se, String> {
    let fixed = case.hyper("alpha").as_f64();
    Ok(Se {
        fraction: case.number("selection_p")?,
        scale: case.number("scale")?,
        alpha_rule: if fixed.is_some() { AlphaRule::Fixed } else { rule },
        alpha: fixed.unwrap_or_default(),
        ..Se::default()
    })
}

pub fn run(case: &Case) -> Result<Report, String> {
    let (task, images) = (feature_task(case)?, stream(case)?);
    let se = Se { compat: true, ..config(case, AlphaRule::Square)? };
    let tuned = config(case, AlphaRule::Linear)?;
    let mut report = Report::default();
    let (mut zero_shot, mut entropies, mut ranks, mut classes) = (vec![], vec![], vec![], vec![]);
    let (mut kept, mut alphas, mut mixed, mut doubt) = (vec![], vec![], vec![], vec![]);
    let (mut use_kept, mut use_alphas, mut use_mixed, mut use_classes) = (vec![], vec![], vec![], vec![]);
    let (mut gates, mut losses, mut gradients) = (vec![], vec![], vec![]);
    for image in &images {
        let set = ViewSet::new("case", image);
        let views = ViewLogits::of(&task, &set);
        zero_shot.push(argmax(views.logits.row(0)));
        entropies.extend(&views.entropies);
        let mixture = se.mixture(&views);
        ranks.push(mixture.rank);
        alphas.push(mixture.alpha);
        let p = mixture.probabilities(&views.logits);
        let clamped: Vec<f64> = p.iter().map(|p| p.max(1e-7)).collect();
        doubt.push(entropy_of(&clamped) / (p.len() as f64).ln());
        kept.extend(mixture.kept);
        mixed.extend(p);
        classes.push(se.adapt(&task, &set).map_err(fault)?.prediction);

        let mixture = tuned.mixture(&views);
        let q = mixture.probabilities(&views.logits);
        gates.push(usize::from(!mixture.agrees(&views.logits)));
        let used = [&[0], mixture.kept.as_slice()].concat();
        let loss = use_prompt::loss(&views.logits.select_rows(&used), &q);
        losses.push(loss.value);
        let mut gradient = vec![0.0; views.logits.data().len()];
        for (row, &view) in used.iter().enumerate() {
            gradient[view * q.len()..][..q.len()].copy_from_slice(loss.gradient.row(row));
        }
        gradients.extend(gradient);
        use_classes.push(argmax(&rounded(&q)));
        use_kept.extend(mixture.kept);
        use_alphas.push(mixture.alpha);
        use_mixed.extend(q);
    }
    report.equal("zero_shot_pred", &zero_shot, &case.indices("out.zero_shot_pred")?);
    close(&mut report, case, "entropy", &entropies)?;
    close(&mut report, case, "rank", &rounded(&ranks))?;
    report.equal("se.selected", &kept, &case.indices("out.se.selected")?);
    close(&mut report, case, "se.alpha", &rounded(&alphas))?;
    close(&mut report, case, "se.prob", &rounded(&mixed))?;
    close(&mut report, case, "se.norm_entropy", &rounded(&doubt))?;
    report.equal("se.pred", &classes, &case.indices("out.se.pred")?);
    report.equal("use.selected", &use_kept, &case.indices("out.use.selected")?);
    close(&mut report, case, "use.alpha", &rounded(&use_alphas))?;
    report.equal("use.gate", &gates, &case.indices("out.use.gate")?);
    close(&mut report, case, "use.prob", &rounded(&use_mixed))?;
    report.equal("use.pred", &use_classes, &case.indices("out.use.pred")?);
    close(&mut report, case, "use.loss", &losses)?;
    close(&mut report, case, "use.grad_logits", &gradients)?;
    Ok(report)
}
