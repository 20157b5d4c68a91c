//! `cocoop`: the shifts, logits, loss and the gradients of context and meta-net.

use super::case::{Case, Report, Tolerance};
use super::coop::{class_tokens, context, image_features};
use flatclip::prompt::Affine;
use flatclip_lab::tuners::{Batch, Cocoop, Tuner};
use flatclip_tensor::Matrix;

/// `NAME.weight` and `NAME.bias` of a case.
pub(crate) fn affine(case: &Case, name: &str) -> Result<Affine, String> {
    let key = format!("{name}.weight");
    let [rows, cols] = *case.shape(&key)? else { return Err(format!("`{key}` is not a matrix")) };
    let weight = Matrix::from_vec(rows, cols, case.f32(&key)?.to_vec());
    Ok(Affine { weight, bias: case.f32(&format!("{name}.bias"))?.to_vec() })
}

/// Checks a case.
pub(crate) fn run(case: &Case) -> Result<Report, String> {
    let fallback = Tolerance { to_max: 2e-3, rtol: 1e-3, ..Tolerance::default() };
    let tolerance = |key: &str| case.tolerance(key, fallback);
    let clip = case.clip()?;
    let context = context(case, "in.ctx")?;
    let tokens = class_tokens(case, context.tokens)?;
    let meta = [affine(case, "in.meta_net.linear1")?, affine(case, "in.meta_net.linear2")?];
    let features = image_features(case, &clip)?;
    let labels = case.indices("in.labels")?;
    let mut report = Report::default();

    let mut hidden = meta[0].apply(&features);
    hidden.data_mut().iter_mut().for_each(|x| *x = x.max(0.0));
    report.close("bias", meta[1].apply(&hidden).data(), case.f32("out.bias")?, Tolerance::atol(1e-4));

    let tuner = Cocoop::new(context, &meta, tokens, "");
    let batch = Batch { labels: &labels, features: &features, pixels: &[] };
    let loss = tuner.loss(&clip, tuner.parameters(), &batch).map_err(|e| e.to_string())?;
    report.close("logits", loss.logits.data(), case.f32("out.logits")?, tolerance("logits"));
    report.close("loss", &[loss.value], case.f32("out.loss")?, tolerance("loss"));
    report.close("grad_ctx", &loss.gradient[0], case.f32("out.grad_ctx")?, tolerance("grads"));
    for (parameter, gradient) in tuner.parameters().iter().zip(&loss.gradient).skip(1) {
        let key = format!("out.grad.{}", parameter.name);
        report.close(&key, gradient, case.f32(&key)?, tolerance("grads"));
    }
    Ok(report)
}
