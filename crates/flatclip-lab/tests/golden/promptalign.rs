//! `promptalign`: selections, both parts of the loss, all gradients, the tuned parameters, the answer.

use super::case::{Case, Report, Tolerance};
use super::inputs::{self, fault};
use super::maple::key;
use flatclip::methods::adapters::promptalign::PromptAlign;
use flatclip::methods::maple::MapleParameters;
use flatclip::methods::statistics::SourceStatistics;
use flatclip::methods::{Task, TextSide, ViewSet};
use flatclip::prompt::{Affine, Prompt, PromptContent, Provenance};
use flatclip_tensor::Matrix;
use std::sync::Arc;

/// The original, slips included.
fn config(case: &Case) -> Result<PromptAlign, String> {
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

fn prompt(case: &Case) -> Result<Prompt, String> {
    let affine = |name: String| -> Result<Affine, String> {
        let weight = inputs::matrix(case, &format!("in.pl.{name}.weight"))?;
        Ok(Affine { weight, bias: case.f32(&format!("in.pl.{name}.bias"))?.to_vec() })
    };
    let (mut deep, mut projections) = (Vec::new(), vec![affine("proj".into())?]);
    for depth in 0..case.count("prompt_depth")? - 1 {
        deep.push(inputs::matrix(case, &format!("in.pl.compound_prompts_text.{depth}"))?);
        projections.push(affine(format!("compound_prompt_projections.{depth}"))?);
    }
    let context = inputs::context(case, "in.pl.ctx")?;
    let kind = PromptContent::Maple { context, words: String::new(), tail: String::new(), deep, projections };
    Ok(Prompt::new(kind, Provenance::default()))
}

/// `[layers, tokens, width]` as one matrix per layer.
fn layers(case: &Case, name: &str) -> Result<Vec<Matrix>, String> {
    inputs::samples(case, name)
}

pub fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let prompt = Arc::new(prompt(case)?);
    let context = prompt.context().ok_or("no context")?;
    let tokens = inputs::class_tokens(case, context.tokens)?;
    let statistics =
        SourceStatistics::new(layers(case, "in.source_means")?, layers(case, "in.source_vars")?).map_err(fault)?;
    let parameters = MapleParameters::of(Some(&prompt), "promptalign").map_err(fault)?;
    let side = TextSide { tower: clip.text().map_err(fault)?, tokens: &tokens };
    let text = parameters.text_features(side).map_err(fault)?;
    let (pixels, count) = (case.f32("in.views")?, case.shape("in.views")?[0]);
    let features = parameters.image_features(&clip, pixels, count).map_err(fault)?;
    let mut task = Task::new(inputs::names(text.rows()), text, clip.logit_scale(), 0).map_err(fault)?;
    task = task.with_clip(Arc::clone(&clip));
    (task.prompt, task.statistics) = (Some(Arc::clone(&prompt)), Some(Arc::new(statistics)));
    task.class_tokens = Some(tokens);
    let image = ViewSet { pixels: Some(pixels), ..ViewSet::new("case", &features) };
    let (answer, aligned) = config(case)?.adapt_traced(&task, &image).map_err(fault)?;

    let mut report = Report::default();
    let logits = case.tolerance("logits", Tolerance { atol: 1e-3, rtol: 1e-4, ..Tolerance::default() });
    report.close("logits", aligned.logits.data(), case.f32("out.logits")?, logits);
    report.close("entropy", &answer.explanation.entropies, case.f32("out.entropy")?, Tolerance::atol(1e-3));
    report.equal("selected_align", &aligned.align_views, &case.indices("out.selected_align")?);
    report.equal("selected_tpt", &answer.explanation.selected, &case.indices("out.selected_tpt")?);
    let loss = case.tolerance("loss", Tolerance::atol(1e-3));
    let steps = &aligned.steps;
    let of = |part: fn(&flatclip::methods::adapters::promptalign::AlignStep) -> f32| {
        steps.iter().map(part).collect::<Vec<_>>()
    };
    report.close("loss", &of(|s| s.loss), case.f32("out.loss")?, loss);
    report.close("loss_entropy", &of(|s| s.entropy), case.f32("out.loss_entropy")?, loss);
    report.close("loss_align", &of(|s| s.alignment), case.f32("out.loss_align")?, loss);
    // The gradient in the file is what the parameters held at the end: that of the last step.
    let last = &steps.last().ok_or("no step")?.gradient;
    let gradients = case.tolerance("grads", Tolerance { to_max: 2e-3, ..Tolerance::default() });
    let moved = case.tolerance("new", Tolerance::atol(2e-3)).with_outliers(0.005);
    for (gradient, now) in last.to_tensors().iter().zip(aligned.parameters.to_tensors()) {
        let name = key(&gradient.name);
        report.close(
            &format!("grad.{name} of step {}", steps.len()),
            &gradient.values,
            case.f32(&format!("out.grad.{name}"))?,
            gradients,
        );
        report.close(&format!("new.{name}"), &now.values, case.f32(&format!("out.new.{name}"))?, moved);
    }
    let final_logits = case.tolerance("final_logits", Tolerance::atol(0.1));
    report.close("final_logits", &answer.class_scores, case.f32("out.final_logits")?, final_logits);
    Ok(report)
}
