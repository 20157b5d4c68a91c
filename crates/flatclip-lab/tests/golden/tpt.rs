//! `tpt` and `tpt-cocoop`: selection, loss, gradient and context of every step, the answer.

use super::case::{Case, Report, Tolerance};
use super::inputs::{self, fault};
use flatclip::methods::ViewSet;
use flatclip::methods::adapters::tpt::{CocoopFeature, Tpt, cocoop_context};
use flatclip::methods::select::ViewLogits;
use flatclip::methods::update::Tuned;
use flatclip::prompt::{Affine, Prompt, PromptContent, Provenance};
use std::sync::Arc;

fn config(case: &Case) -> Result<Tpt, String> {
    Ok(Tpt {
        fraction: case.number("selection_p")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
        cocoop_feature: CocoopFeature::Raw,
        ..Tpt::default()
    })
}

fn cocoop_prompt(case: &Case) -> Result<Prompt, String> {
    let affine = |name: &str| -> Result<Affine, String> {
        let weight = inputs::matrix(case, &format!("in.meta_net.{name}.weight"))?;
        Ok(Affine { weight, bias: case.f32(&format!("in.meta_net.{name}.bias"))?.to_vec() })
    };
    let meta = [affine("linear1")?, affine("linear2")?];
    let kind = PromptContent::CoCoOp { context: inputs::context(case, "in.ctx")?, words: String::new(), meta };
    Ok(Prompt::new(kind, Provenance::default()))
}

pub fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let mut task = inputs::context_task(case, &clip)?;
    let (features, norms) = inputs::image_features(case, &clip, "in.views")?;
    let image = ViewSet { norms: &norms, ..ViewSet::new("case", &features) };
    let prompt = case.has("in.meta_net.linear1.weight").then(|| cocoop_prompt(case)).transpose()?.map(Arc::new);
    let mut report = Report::default();
    if let Some(prompt) = &prompt {
        task.prompt = Some(Arc::clone(prompt));
        if let PromptContent::CoCoOp { context, meta, .. } = &prompt.content {
            let raw: Vec<f32> = features.row(0).iter().map(|x| x * norms[0]).collect();
            let start = cocoop_context(context, meta, &raw);
            report.close("ctx_generated", &start.data, case.f32("out.ctx_generated")?, Tolerance::atol(1e-5));
        }
    }
    let (answer, tuned) = config(case)?.adapt_traced(&task, &image).map_err(fault)?;
    let first = &tuned.steps.first().ok_or("no step")?.text_features;
    let before = ViewLogits::new(&features, first, task.logit_scale);
    report.close(
        "logits",
        before.logits.data(),
        case.f32("out.logits")?,
        case.tolerance("logits", Tolerance::atol(1e-3)),
    );
    report.close("entropy", &answer.explanation.entropies, case.f32("out.entropy")?, Tolerance::atol(1e-3));
    report.equal("selected", &answer.explanation.selected, &case.indices("out.selected")?);
    steps(&mut report, case, &tuned)?;
    let final_logits = case.tolerance("final_logits", Tolerance::atol(5e-3));
    report.close("final_logits", &answer.class_scores, case.f32("out.final_logits")?, final_logits);
    Ok(report)
}

/// Losses, gradients and contexts of all steps.
pub fn steps(report: &mut Report, case: &Case, tuned: &Tuned) -> Result<(), String> {
    let losses: Vec<f32> = tuned.steps.iter().map(|s| s.loss).collect();
    let gradients: Vec<f32> = tuned.steps.iter().flat_map(|s| s.gradient.data.clone()).collect();
    let contexts: Vec<f32> = tuned.steps.iter().flat_map(|s| s.context.data.clone()).collect();
    report.close("loss", &losses, case.f32("out.loss")?, case.tolerance("loss", Tolerance::atol(1e-4)));
    let relative = Tolerance { to_max: 1e-3, ..Tolerance::default() };
    report.close("grad", &gradients, case.f32("out.grad")?, case.tolerance("grad", relative));
    // The first AdamW step follows the sign of the gradient; where that is near zero, noise decides.
    let moved = case.tolerance("new_ctx", Tolerance::atol(5e-5)).with_outliers(0.005);
    report.close("new_ctx", &contexts, case.f32("out.new_ctx")?, moved);
    Ok(())
}
