//! `maple`: features of both towers, logits, loss and the gradients of all prompts and projections.

use super::case::{Case, Report, Tolerance};
use super::cocoop::affine;
use super::coop::{class_tokens, context};
use flatclip::model::VisionInput;
use flatclip::prompt::{Prompt, Provenance};
use flatclip_lab::tuners::{Batch, Maple, Tuner};
use flatclip_tensor::Matrix;

fn text(error: flatclip::Error) -> String {
    error.to_string()
}

/// The name in the file for a parameter's name.
pub(crate) fn key(name: &str) -> String {
    let name = name.replacen("deep.", "compound_prompts_text.", 1);
    let name = name.replacen("projections.", "compound_prompt_projections.", 1);
    if name == "context" { "ctx".to_owned() } else { name }
}

/// Checks a case.
pub(crate) fn run(case: &Case) -> Result<Report, String> {
    let fallback = Tolerance { to_max: 2e-3, rtol: 1e-3, ..Tolerance::default() };
    let tolerance = |key: &str| case.tolerance(key, fallback);
    let clip = case.clip()?;
    let context = context(case, "in.pl.ctx")?;
    let tokens = class_tokens(case, context.tokens)?;
    let mut deep = Vec::new();
    let mut projections = vec![affine(case, "in.pl.proj")?];
    while case.has(&format!("in.pl.compound_prompts_text.{}", deep.len())) {
        let name = format!("in.pl.compound_prompts_text.{}", deep.len());
        projections.push(affine(case, &format!("in.pl.compound_prompt_projections.{}", deep.len()))?);
        deep.push(Matrix::from_vec(context.tokens, context.width, case.f32(&name)?.to_vec()));
    }
    let labels = case.indices("in.labels")?;
    let pixels = case.f32("in.images")?;
    let mut report = Report::default();

    let pass = clip.text().map_err(text)?.deep_pass(&tokens, &context, &deep).map_err(text)?;
    report.close("text_features", pass.features().data(), case.f32("out.text_features")?, tolerance("features"));
    let tuner = Maple::new(context, &deep, &projections, tokens, "", "");
    let visual = Prompt::new(tuner.prompt().map_err(text)?, Provenance::default()).visual_prompts();
    let input = VisionInput { prompts: &visual, ..VisionInput::default() };
    let images = clip.vision().pass(pixels, labels.len(), input).map_err(text)?;
    report.close("image_features", images.features().data(), case.f32("out.image_features")?, tolerance("features"));

    let batch = Batch { labels: &labels, features: &Matrix::default(), pixels };
    let loss = tuner.loss(&clip, tuner.parameters(), &batch).map_err(text)?;
    report.close("logits", loss.logits.data(), case.f32("out.logits")?, tolerance("logits"));
    report.close("loss", &[loss.value], case.f32("out.loss")?, tolerance("loss"));
    for (parameter, gradient) in tuner.parameters().iter().zip(&loss.gradient) {
        let key = format!("out.grad.{}", key(&parameter.name));
        report.close(&key, gradient, case.f32(&key)?, tolerance("grads"));
    }
    Ok(report)
}
