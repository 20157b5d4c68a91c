//! `tpt` and `tpt-cocoop`: selection, loss, gradient and context of every step, the answer.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs;
use flatclip::methods::ViewSet;
use flatclip::methods::adapters::tpt::{CocoopFeature, Tpt, cocoop_context};
use flatclip::methods::select::ViewLogits;
use flatclip::methods::update::Tuned;
use flatclip::model::Features;
use flatclip::prompt::{Prompt, PromptContent, Provenance};
use std::sync::Arc;

fn config(case: &Case) -> Fallible<Tpt> {
    Ok(Tpt {
        fraction: case.number("selection_p")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
        cocoop_feature: CocoopFeature::Raw,
        ..Tpt::default()
    })
}

fn cocoop_prompt(case: &Case) -> Fallible<Prompt> {
    let meta = [inputs::affine(case, "in.meta_net.linear1")?, inputs::affine(case, "in.meta_net.linear2")?];
    let kind = PromptContent::CoCoOp { context: case.context("in.ctx")?, words: String::new(), meta };
    Ok(Prompt::new(kind, Provenance::default()))
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let mut task = inputs::context_task(case, &clip)?;
    let (features, norms) = Features::unit(case.raw_image_features(&clip, "in.views")?);
    let image = ViewSet { norms: &norms, ..ViewSet::new("case", &features) };
    let prompt = case.has("in.meta_net.linear1.weight").then(|| cocoop_prompt(case)).transpose()?.map(Arc::new);
    let mut report = Report::of(case);
    if let Some(prompt) = &prompt {
        task.prompt = Some(Arc::clone(prompt));
        if let PromptContent::CoCoOp { context, meta, .. } = &prompt.content {
            let raw: Vec<f32> = features.row(0).iter().map(|x| x * norms[0]).collect();
            let start = cocoop_context(context, meta, &raw);
            report.close_to("ctx_generated", &start.data, Tolerance::atol(1e-5));
        }
    }
    let (answer, tuned) = config(case)?.adapt_traced(&task, &image)?;
    let first = &tuned.steps.first().ok_or("no step")?.text_features;
    let before = ViewLogits::new(&features, first, task.logit_scale);
    report.close_or("logits", before.logits.data(), Tolerance::atol(1e-3));
    report.close_to("entropy", &answer.explanation.entropies, Tolerance::atol(1e-3));
    report.equal("selected", &answer.explanation.selected);
    steps(&mut report, &tuned);
    report.close_or("final_logits", &answer.class_scores, Tolerance::atol(5e-3));
    Ok(report)
}

/// Losses, gradients and contexts of all steps.
pub fn steps(report: &mut Report<'_>, tuned: &Tuned) {
    report.close_or("loss", tuned.steps.iter().map(|s| s.loss), Tolerance::atol(1e-4));
    let relative = Tolerance { to_max: 1e-3, ..Tolerance::default() };
    report.close_or("grad", tuned.steps.iter().flat_map(|s| &s.gradient.data), relative);
    // The first AdamW step follows the sign of the gradient; where that is near zero, noise decides.
    let moved = report.case.tolerance("new_ctx", Tolerance::atol(5e-5)).with_outliers(0.005);
    report.close_to("new_ctx", tuned.steps.iter().flat_map(|s| &s.context.data), moved);
}
