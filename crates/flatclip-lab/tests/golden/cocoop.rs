//! `cocoop`: the shifts, logits, loss and the gradients of context and meta-net.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::affine;
use flatclip_lab::tuners::{Batch, Cocoop, Tuner};

/// Checks a case.
pub(crate) fn run(case: &Case) -> Fallible<Report<'_>> {
    let fallback = Tolerance { to_max: 2e-3, rtol: 1e-3, ..Tolerance::default() };
    let tolerance = |key: &str| case.tolerance(key, fallback);
    let clip = case.clip()?;
    let context = case.context("in.ctx")?;
    let tokens = case.class_tokens(context.tokens)?;
    let meta = [affine(case, "in.meta_net.linear1")?, affine(case, "in.meta_net.linear2")?];
    let features = case.image_features(&clip, "in.images")?;
    let labels = case.indices("in.labels")?;
    let mut report = Report::of(case);

    let mut hidden = meta[0].apply(&features);
    hidden.data_mut().iter_mut().for_each(|x| *x = x.max(0.0));
    report.close_to("bias", meta[1].apply(&hidden).data(), Tolerance::atol(1e-4));

    let tuner = Cocoop::new(context, &meta, tokens, "");
    let batch = Batch { labels: &labels, features: &features, pixels: &[] };
    let loss = tuner.loss(&clip, tuner.parameters(), &batch)?;
    report.close_to("logits", loss.logits.data(), tolerance("logits"));
    report.close_to("loss", [loss.value], tolerance("loss"));
    report.close_to("grad_ctx", &loss.gradient[0], tolerance("grads"));
    for (parameter, gradient) in tuner.parameters().iter().zip(&loss.gradient).skip(1) {
        let key = format!("out.grad.{}", parameter.name);
        report.compare(&key, gradient, case.f32(&key)?, tolerance("grads"));
    }
    Ok(report)
}
