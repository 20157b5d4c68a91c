//! `clip-image`, `clip-text`, `clip-logits`: plain forward passes, with the steps inside where the file has them.

use super::case::{Case, Report, Tolerance};
use flatclip::model::{Clip, Features};
use flatclip_tensor::Matrix;

fn tolerance(case: &Case, key: &str) -> Tolerance {
    case.tolerance(key, Tolerance { atol: 1e-4, rtol: 1e-4, ..Tolerance::default() })
}

/// Checks a case of any of the three methods: it has images, tokens, or both.
pub(crate) fn run(case: &Case) -> Result<Report, String> {
    let clip = case.clip()?;
    let mut report = Report::default();
    let images = case.has("in.image").then(|| images(case, &clip, &mut report)).transpose()?;
    let texts = case.has("in.tokens").then(|| texts(case, &clip, &mut report)).transpose()?;
    if let (Some(images), Some(texts)) = (images, texts) {
        let ((images, _), (texts, _)) = (Features::unit(images), Features::unit(texts));
        let mut logits = vec![0.0; images.rows() * texts.rows()];
        let (m, n, k) = (images.rows(), texts.rows(), images.cols());
        flatclip_tensor::gemm::product_nt(images.data(), m, texts.data(), n, k, &mut logits);
        logits.iter_mut().for_each(|l| *l *= clip.logit_scale());
        report.close("logits", &logits, case.f32("out.logits_per_image")?, tolerance(case, "logits"));
    }
    Ok(report)
}

fn images(case: &Case, clip: &Clip, report: &mut Report) -> Result<Matrix, String> {
    let (pixels, count) = (case.f32("in.image")?, case.shape("in.image")?[0]);
    let raw = clip.encode_images(pixels, count).map_err(|e| e.to_string())?;
    report.close("image_features", raw.data(), case.f32("out.image_features")?, tolerance(case, "image_features"));
    if !case.has_steps() {
        return Ok(raw);
    }
    for (name, rows) in clip.vision().trace(pixels, count).map_err(|e| e.to_string())? {
        let key = format!("out.dbg.{name}");
        if !case.has(&key) {
            continue;
        }
        // Planes are stored channels first; tokens as they are.
        let expected = match *case.shape(&key)? {
            [images, channels, height, width] => channels_last(case.f32(&key)?, images, channels, height * width),
            _ => case.f32(&key)?.to_vec(),
        };
        report.close(&name, rows.data(), &expected, tolerance(case, &name));
    }
    Ok(raw)
}

fn channels_last(data: &[f32], images: usize, channels: usize, cells: usize) -> Vec<f32> {
    let mut out = vec![0.0; data.len()];
    for image in 0..images {
        for channel in 0..channels {
            for cell in 0..cells {
                out[(image * cells + cell) * channels + channel] = data[(image * channels + channel) * cells + cell];
            }
        }
    }
    out
}

fn texts(case: &Case, clip: &Clip, report: &mut Report) -> Result<Matrix, String> {
    let tower = clip.text().map_err(|e| e.to_string())?;
    let rows = case.token_rows("in.tokens")?;
    let raw = tower.encode_tokens(&rows).map_err(|e| e.to_string())?;
    report.close("text_features", raw.data(), case.f32("out.text_features")?, tolerance(case, "text_features"));
    if !case.has_steps() {
        return Ok(raw);
    }
    let length = rows.first().map_or(0, Vec::len);
    for (name, rows) in tower.trace(&rows.concat(), length).map_err(|e| e.to_string())? {
        let key = format!("out.dbg.{name}");
        if case.has(&key) {
            report.close(&name, rows.data(), case.f32(&key)?, tolerance(case, &name));
        }
    }
    Ok(raw)
}
