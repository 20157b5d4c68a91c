//! `backbone-logits`, `zeroshot-siglip`, `coop-siglip`: towers of other families than OpenAI's, with the steps inside where
//! the file has them.

use super::case::{Case, Fallible, Report, Tolerance};
use super::inputs::{matrix, unit};
use flatclip::methods::probability::sigmoid_scores;
use flatclip::model::Clip;
use flatclip::prompt::logits;
use flatclip_lab::tuners::{Batch, Coop, Tuner as _};
use flatclip_tensor::Matrix;
use flatclip_tensor::ops::wide::softmax;

fn tolerance(case: &Case, key: &str) -> Tolerance {
    case.tolerance(key, Tolerance::atol(1e-4))
}

/// Images, texts, logits, probabilities.
pub(crate) fn run(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let mut report = Report::of(case);
    if case.has_steps() {
        trace(case, &clip, &mut report)?;
    }
    let images = case.raw_image_features(&clip, "in.image")?;
    report.close_to("image_features", images.data(), tolerance(case, "features"));
    let texts = clip.text()?.encode_tokens(&case.token_rows("in.tokens")?)?;
    report.close_to("text_features", texts.data(), tolerance(case, "features"));
    let scaled = logits(&unit(images), &unit(texts), clip.logit_scale());
    probabilities(case, &clip, &scaled, "out.logits_per_image", &mut report)?;
    Ok(report)
}

/// The classifier of several templates, and what it says.
pub(crate) fn zero_shot(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let mut report = Report::of(case);
    let images = case.image_features(&clip, "in.image")?;
    report.close_to("image_features", images.data(), tolerance(case, "features"));
    let texts = case.text_features(&clip, "in.tokens")?;
    report.close_to("text_features", texts.data(), tolerance(case, "features"));
    let templates = case.count("templates")?;
    let mut mean = Matrix::zeros(texts.rows() / templates, texts.cols());
    for row in 0..texts.rows() {
        let to = mean.row_mut(row / templates);
        to.iter_mut().zip(texts.row(row)).for_each(|(to, x)| *to += x / templates as f32);
    }
    let classifier = unit(mean);
    report.close_to("classifier", classifier.data(), Tolerance::atol(1e-5));
    report.close_to("cosine", logits(&images, &classifier, 1.0).data(), Tolerance::atol(1e-5));
    let scaled = logits(&images, &classifier, clip.logit_scale());
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0);
    report.equal("pred", scaled.iter_rows().map(best).collect::<Vec<_>>());
    probabilities(case, &clip, &scaled, "out.logits", &mut report)?;
    Ok(report)
}

/// Logits with the bias where the model has one, their softmax, and the sigmoid of each.
fn probabilities(case: &Case, clip: &Clip, scaled: &Matrix, name: &str, report: &mut Report<'_>) -> Fallible<()> {
    let bias = clip.logit_bias();
    let stated = case.hyper("logit_bias").as_f64();
    report.check("logit_bias", bias.is_some() == stated.is_some(), format!("{bias:?}, expected {stated:?}"));
    let biased: Vec<f32> = scaled.data().iter().map(|x| x + bias.unwrap_or(0.0)).collect();
    report.compare("logits", &biased, case.f32(name)?, tolerance(case, "logits"));
    if let Some(bias) = bias {
        let scores = sigmoid_scores(scaled.data(), bias);
        report.close_to("prob_sigmoid", &scores, tolerance(case, "prob"));
        let mut shares = scaled.data().to_vec();
        softmax(&mut shares, scaled.cols());
        report.close_to("prob_softmax", &shares, tolerance(case, "prob"));
    }
    Ok(())
}

/// The steps of both towers, of the first rows that the file holds.
fn trace(case: &Case, clip: &Clip, report: &mut Report<'_>) -> Fallible<()> {
    let pixels = case.f32("in.image")?;
    let count = case.shape("in.image")?[0];
    let image = clip.vision().trace(pixels, count)?;
    let rows = case.token_rows("in.tokens")?;
    let length = rows.first().map_or(0, Vec::len);
    let text = clip.text()?.trace(&rows.concat(), length)?;
    for (tower, steps) in [("image", image), ("text", text)] {
        for (name, found) in steps {
            let theirs = match name.as_str() {
                "ln_pre" => "embed",
                "ln_final" => "norm",
                other => other,
            };
            let key = format!("dbg.{tower}.{theirs}");
            if case.has(&format!("out.{key}")) {
                let expected = case.f32(&format!("out.{key}"))?;
                let found = &found.data()[..expected.len().min(found.data().len())];
                report.compare(&key, found, expected, tolerance(case, "dbg"));
            }
        }
    }
    Ok(())
}

/// Text features around a context, the loss of a batch of ready image features, and its gradient.
pub(crate) fn coop(case: &Case) -> Fallible<Report<'_>> {
    let clip = case.clip()?;
    let context = case.context("in.ctx")?;
    let tokens = case.class_tokens(context.tokens)?;
    let mut report = Report::of(case);
    let encoded = clip.text()?.encode(&tokens, std::slice::from_ref(&context))?;
    report.close_to("text_features", encoded[0].data(), tolerance(case, "text_features"));
    let images = unit(matrix(case, "in.image_features")?);
    let bias = clip.logit_bias().unwrap_or(0.0);
    let biased: Vec<f32> = logits(&images, &encoded[0], clip.logit_scale()).data().iter().map(|x| x + bias).collect();
    report.close_to("logits", &biased, tolerance(case, "logits"));
    let tuner = Coop::new(context, tokens, "");
    let labels = case.indices("in.labels")?;
    let batch = Batch { labels: &labels, features: &images, pixels: &[] };
    let loss = tuner.loss(&clip, tuner.parameters(), &batch)?;
    report.close_to("loss", [loss.value], tolerance(case, "loss"));
    report.close_to("grad_ctx", &loss.gradient[0], tolerance(case, "grad_ctx"));
    Ok(report)
}
