//! What several families read from a case: matrices, samples, class caches.

use super::case::{Case, Report, Tolerance};
use flatclip::methods::cache::ClassCache;
use flatclip::methods::probability::normalise_rows;
use flatclip::methods::{Decision, Task};
use flatclip::model::{ClassTokens, Clip, Context, Features, Position};
use flatclip_tensor::Matrix;
use std::sync::Arc;

/// Placeholder class names.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|k| format!("class {k}")).collect()
}

/// A tensor as a matrix whose columns are its last dimension.
pub fn matrix(case: &Case, name: &str) -> Result<Matrix, String> {
    let (shape, data) = (case.shape(name)?, case.f32(name)?);
    let cols = shape.last().copied().unwrap_or(1);
    Ok(Matrix::from_vec(data.len() / cols.max(1), cols, data.to_vec()))
}

/// A tensor `[n, V, D]` as `n` matrices.
pub fn samples(case: &Case, name: &str) -> Result<Vec<Matrix>, String> {
    let &[_, views, width] = case.shape(name)? else { return Err(format!("`{name}` is not [n, V, D]")) };
    let parts = case.f32(name)?.chunks_exact(views * width);
    Ok(parts.map(|part| Matrix::from_vec(views, width, part.to_vec())).collect())
}

/// Rows divided by their norms.
pub fn unit(mut rows: Matrix) -> Matrix {
    normalise_rows(&mut rows);
    rows
}

/// Compares a class cache with `out.PART.{count, entropy or loss, KEYS, prob_map or prob}`: zeros (entropy -1) where empty.
pub fn cached(
    report: &mut Report,
    case: &Case,
    part: &str,
    keys: &str,
    cache: &ClassCache,
    tolerance: Tolerance,
) -> Result<(), String> {
    let &[classes, capacity, width] = case.shape(&format!("out.{part}.{keys}"))? else {
        return Err(format!("out.{part}.{keys} is not [K, cap, D]"));
    };
    let counts: Vec<usize> = (0..classes).map(|class| cache.items(class).len()).collect();
    report.equal(&format!("{part}.count"), &counts, &case.indices(&format!("out.{part}.count"))?);
    let (mut entropy, mut features) = (vec![-1.0f32; classes * capacity], vec![0.0f32; classes * capacity * width]);
    let mut maps = vec![0.0f32; classes * capacity * classes];
    for class in 0..classes {
        for (place, item) in cache.items(class).iter().enumerate() {
            let at = class * capacity + place;
            entropy[at] = item.uncertainty;
            features[at * width..][..width].copy_from_slice(&item.feature);
            maps[at * classes..][..item.probabilities.len()].copy_from_slice(&item.probabilities);
        }
    }
    let value = if case.has(&format!("out.{part}.loss")) { "loss" } else { "entropy" };
    report.close(&format!("{part}.{value}"), &entropy, case.f32(&format!("out.{part}.{value}"))?, tolerance);
    report.close(&format!("{part}.{keys}"), &features, case.f32(&format!("out.{part}.{keys}"))?, Tolerance::atol(1e-5));
    for map in [format!("out.{part}.prob_map"), format!("out.{part}.prob")].iter().filter(|map| case.has(map)) {
        report.close(map, &maps, case.f32(map)?, tolerance);
    }
    Ok(())
}

/// A number inside the hyperparameters, such as `/positive/alpha`.
pub fn nested(case: &Case, path: &str) -> Result<f64, String> {
    let value = case.spec["hyperparameters"].pointer(path).and_then(serde_json::Value::as_f64);
    value.ok_or_else(|| format!("hyperparameter {path} is missing"))
}

/// A flatclip error as the harness reports it.
pub fn fault(error: flatclip::Error) -> String {
    error.to_string()
}

/// Unit-norm features `[n, D]` and raw norms of images `[.., 3, H, W]`.
pub fn image_features(case: &Case, clip: &Clip, name: &str) -> Result<(Matrix, Vec<f32>), String> {
    let shape = case.shape(name)?;
    let count = shape[..shape.len() - 3].iter().product();
    Ok(Features::unit(clip.encode_images(case.f32(name)?, count).map_err(fault)?))
}

/// Unit-norm features of hand-written prompts: one row per token row.
pub fn text_features(case: &Case, clip: &Clip, name: &str) -> Result<Matrix, String> {
    let tower = clip.text().map_err(fault)?;
    Ok(Features::unit(tower.encode_tokens(&case.token_rows(name)?).map_err(fault)?).0)
}

/// The context of a case, shared or class-specific.
pub fn context(case: &Case, name: &str) -> Result<Context, String> {
    let data = case.f32(name)?.to_vec();
    match *case.shape(name)? {
        [tokens, width] => Ok(Context::shared(tokens, width, data)),
        [classes, tokens, width] => Ok(Context::per_class(classes, tokens, width, data)),
        _ => Err(format!("`{name}` is not [n_ctx, width] or [K, n_ctx, width]")),
    }
}

/// The class tokens around a context of `n_ctx` tokens.
pub fn class_tokens(case: &Case, n_ctx: usize) -> Result<ClassTokens, String> {
    if case.spec["method"].as_str().is_some_and(|method| method.ends_with("-siglip")) {
        // Rows without start token, in full.
        let (rows, lengths) = (case.token_rows("in.tokens")?, case.indices("in.name_lens")?);
        return ClassTokens::from_rows(&rows, &lengths, n_ctx, Position::End).map_err(fault);
    }
    let position = match case.hyper("class_token_position").as_str() {
        Some("middle") => Position::Middle,
        Some("front") => Position::Front,
        _ => Position::End,
    };
    let rows = case.token_rows("in.tokens")?;
    let lens = match case.has("in.name_lens") {
        true => case.indices("in.name_lens")?,
        false => vec![0; rows.len()], // the name's length matters for `middle` and `front` only
    };
    ClassTokens::from_ids(&rows, &lens, n_ctx, position).map_err(fault)
}

/// A task at the context of a case: its text features, the model, the tokens.
pub fn context_task(case: &Case, clip: &Arc<Clip>) -> Result<Task, String> {
    let context = context(case, "in.ctx")?;
    let tokens = class_tokens(case, context.tokens)?;
    let text = clip.text().map_err(fault)?.encode(&tokens, std::slice::from_ref(&context)).map_err(fault)?.remove(0);
    let task = Task::new(names(text.rows()), text, clip.logit_scale(), 0).map_err(fault)?;
    Ok(task.with_clip(Arc::clone(clip)).with_context(tokens, context))
}

/// A task of a case that has features only: `in.text_features`, and its logit scale, 100 where none is given.
pub fn feature_task(case: &Case) -> Result<Task, String> {
    let text = unit(matrix(case, "in.text_features")?);
    let scale = match case.has("in.logit_scale") {
        true => case.f32("in.logit_scale")?[0],
        false => case.hyper("logit_scale").as_f64().unwrap_or(100.0) as f32,
    };
    Task::new(names(text.rows()), text, scale, 0).map_err(fault)
}

/// The images of a case `[n, V, D]`, unit-norm.
pub fn stream(case: &Case) -> Result<Vec<Matrix>, String> {
    Ok(samples(case, "in.image_features")?.into_iter().map(unit).collect())
}

/// The tolerance of an output.
pub fn tolerance(case: &Case, key: &str) -> Tolerance {
    case.tolerance(key, Tolerance::atol(1e-3))
}

/// Compares a real output with the tolerance of its name.
pub fn close(report: &mut Report, case: &Case, name: &str, actual: &[f32]) -> Result<(), String> {
    report.close(name, actual, case.f32(&format!("out.{name}"))?, tolerance(case, name));
    Ok(())
}

/// Rounded to f32.
pub fn rounded(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&x| x as f32).collect()
}

/// Percent of the answers that are right.
pub fn accuracy(predictions: &[usize], labels: &[usize]) -> f32 {
    let right = predictions.iter().zip(labels).filter(|(a, b)| a == b).count();
    100.0 * right as f32 / labels.len() as f32
}

/// The classes of some answers.
pub fn predictions(answers: &[Decision]) -> Vec<usize> {
    answers.iter().map(|answer| answer.prediction).collect()
}
