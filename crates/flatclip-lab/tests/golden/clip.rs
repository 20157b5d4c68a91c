//! `clip-image`, `clip-text`, `clip-logits`: plain forward passes, with the steps inside where the file has them.

use super::case::{Case, Fallible, Report, Tolerance};
use flatclip::model::{Clip, Features};
use flatclip_tensor::Matrix;

fn tolerance(case: &Case, key: &str) -> Tolerance {
    case.tolerance(key, Tolerance { atol: 1e-4, rtol: 1e-4, ..Tolerance::default() })
}

/// Checks a case of any of the three methods: it has images, tokens, or both.
pub(crate) fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let mut report = Report::of(case);
    let images = case.has("in.image").then(|| images(case, &clip, &mut report)).transpose()?;
    let texts = case.has("in.tokens").then(|| texts(case, &clip, &mut report)).transpose()?;
    if let (Some(images), Some(texts)) = (images, texts) {
        let ((images, _), (texts, _)) = (Features::unit(images), Features::unit(texts));
        let mut logits = vec![0.0; images.rows() * texts.rows()];
        let (m, n, k) = (images.rows(), texts.rows(), images.cols());
        flatclip_tensor::gemm::product_nt(images.data(), m, texts.data(), n, k, &mut logits);
        logits.iter_mut().for_each(|l| *l *= clip.logit_scale());
        report.compare("logits", &logits, case.f32("out.logits_per_image")?, tolerance(case, "logits"));
    }
    Ok(report)
}

fn images(case: &Case, clip: &Clip, report: &mut Report<'_>) -> Fallible<Matrix> {
    let (pixels, count) = (case.f32("in.image")?, case.shape("in.image")?[0]);
    let raw = clip.encode_images(pixels, count)?;
    report.close_to("image_features", raw.data(), tolerance(case, "image_features"));
    if !case.has_steps() {
        return Ok(raw);
    }
    for (name, rows) in clip.vision().trace(pixels, count)? {
        let key = format!("out.dbg.{name}");
        if !case.has(&key) {
            continue;
        }
        // Planes are stored channels first; tokens as they are.
        let expected = match *case.shape(&key)? {
            [images, channels, height, width] => channels_last(case.f32(&key)?, images, channels, height * width),
            _ => case.f32(&key)?.to_vec(),
        };
        report.compare(&name, rows.data(), &expected, tolerance(case, &name));
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

fn texts(case: &Case, clip: &Clip, report: &mut Report<'_>) -> Fallible<Matrix> {
    let tower = clip.text()?;
    let rows = case.token_rows("in.tokens")?;
    let raw = tower.encode_tokens(&rows)?;
    report.close_to("text_features", raw.data(), tolerance(case, "text_features"));
    if !case.has_steps() {
        return Ok(raw);
    }
    let length = rows.first().map_or(0, Vec::len);
    for (name, rows) in tower.trace(&rows.concat(), length)? {
        let key = format!("out.dbg.{name}");
        if case.has(&key) {
            report.compare(&name, rows.data(), case.f32(&key)?, tolerance(case, &name));
        }
    }
    Ok(raw)
}
