//! `promptalign`: selections, both parts of the loss, all gradients, the tuned parameters, the answer.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs;
use super::maple::key;
use flatclip::methods::adapters::promptalign::PromptAlign;
use flatclip::methods::maple::MapleParameters;
use flatclip::methods::statistics::SourceStatistics;
use flatclip::methods::{Task, TextSide, ViewSet};
use flatclip::prompt::{Prompt, PromptContent, Provenance};
use std::sync::Arc;

/// The original, slips included.
fn config(case: &Case) -> Fallible<PromptAlign> {
    Ok(PromptAlign {
        fraction: case.number("tpt_threshold")?,
        align_fraction: case.number("align_threshold")?,
        layer_from: case.count("align_layer_from")?,
        layer_to: case.count("align_layer_to")?,
        weight: case.number("distr_loss_w")?,
        steps: case.count("tta_steps")?,
        lr: case.number("lr")?,
        weight_decay: case.number("weight_decay")?,
        compat_layers: true,
        compat_late_views: true,
        ..PromptAlign::default()
    })
}

fn prompt(case: &Case) -> Fallible<Prompt> {
    let (deep, projections) = inputs::deep_prompts(case)?;
    let context = case.context("in.pl.ctx")?;
    let kind = PromptContent::Maple { context, words: String::new(), tail: String::new(), deep, projections };
    Ok(Prompt::new(kind, Provenance::default()))
}

pub fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let prompt = Arc::new(prompt(case)?);
    let context = prompt.context().ok_or("no context")?;
    let tokens = case.class_tokens(context.tokens)?;
    let statistics =
        SourceStatistics::new(inputs::samples(case, "in.source_means")?, inputs::samples(case, "in.source_vars")?)?;
    let parameters = MapleParameters::of(Some(&prompt), "promptalign")?;
    let side = TextSide { tower: clip.text()?, tokens: &tokens };
    let text = parameters.text_features(side)?;
    let (pixels, count) = (case.f32("in.views")?, case.shape("in.views")?[0]);
    let features = parameters.image_features(&clip, pixels, count)?;
    let mut task = Task::new(inputs::names(text.rows()), text, clip.logit_scale(), 0)?;
    task = task.with_clip(Arc::clone(&clip));
    (task.prompt, task.statistics) = (Some(Arc::clone(&prompt)), Some(Arc::new(statistics)));
    task.class_tokens = Some(tokens);
    let image = ViewSet { pixels: Some(pixels), ..ViewSet::new("case", &features) };
    let (answer, aligned) = config(case)?.adapt_traced(&task, &image)?;

    let mut report = Report::of(case);
    let logits = case.tolerance("logits", Tolerance { atol: 1e-3, rtol: 1e-4, ..Tolerance::default() });
    report.close_to("logits", aligned.logits.data(), logits);
    report.close_to("entropy", &answer.explanation.entropies, Tolerance::atol(1e-3));
    report.equal("selected_align", &aligned.align_views);
    report.equal("selected_tpt", &answer.explanation.selected);
    let loss = case.tolerance("loss", Tolerance::atol(1e-3));
    let steps = &aligned.steps;
    let of = |part: fn(&flatclip::methods::adapters::promptalign::AlignStep) -> f32| {
        steps.iter().map(part).collect::<Vec<_>>()
    };
    report.close_to("loss", of(|s| s.loss), loss);
    report.close_to("loss_entropy", of(|s| s.entropy), loss);
    report.close_to("loss_align", of(|s| s.alignment), loss);
    // The gradient in the file is what the parameters held at the end: that of the last step.
    let last = &steps.last().ok_or("no step")?.gradient;
    let gradients = case.tolerance("grads", Tolerance { to_max: 2e-3, ..Tolerance::default() });
    let moved = case.tolerance("new", Tolerance::atol(2e-3)).with_outliers(0.005);
    for (gradient, now) in last.to_tensors().iter().zip(aligned.parameters.to_tensors()) {
        let name = key(&gradient.name);
        report.compare(
            &format!("grad.{name} of step {}", steps.len()),
            &gradient.values,
            case.f32(&format!("out.grad.{name}"))?,
            gradients,
        );
        report.compare(&format!("new.{name}"), &now.values, case.f32(&format!("out.new.{name}"))?, moved);
    }
    report.close_or("final_logits", &answer.class_scores, Tolerance::atol(0.1));
    Ok(report)
}
