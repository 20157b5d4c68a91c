//! What several families read from a case: matrices, samples, class caches.

use super::case::{Case, Fallible, Report, Tolerance};
use flatclip::methods::Task;
use flatclip::methods::cache::ClassCache;
use flatclip::methods::probability::normalise_rows;
use flatclip::model::Clip;
use flatclip::prompt::Affine;
use flatclip_tensor::Matrix;
use std::sync::Arc;

/// Placeholder class names.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|k| format!("class {k}")).collect()
}

/// A tensor as a matrix whose columns are its last dimension.
pub fn matrix(case: &Case, name: &str) -> Fallible<Matrix> {
    let (shape, data) = (case.shape(name)?, case.f32(name)?);
    let cols = shape.last().copied().unwrap_or(1);
    Ok(Matrix::from_vec(data.len() / cols.max(1), cols, data.to_vec()))
}

/// `NAME.weight` and `NAME.bias` of a case.
pub fn affine(case: &Case, name: &str) -> Fallible<Affine> {
    Ok(Affine { weight: matrix(case, &format!("{name}.weight"))?, bias: case.f32(&format!("{name}.bias"))?.to_vec() })
}

/// The deep prompts of a MaPLe case, and its projections: that of the context, and one for each of them.
pub fn deep_prompts(case: &Case) -> Fallible<(Vec<Matrix>, Vec<Affine>)> {
    let (mut deep, mut projections) = (Vec::new(), vec![affine(case, "in.pl.proj")?]);
    while case.has(&format!("in.pl.compound_prompts_text.{}", deep.len())) {
        projections.push(affine(case, &format!("in.pl.compound_prompt_projections.{}", deep.len()))?);
        deep.push(matrix(case, &format!("in.pl.compound_prompts_text.{}", deep.len()))?);
    }
    Ok((deep, projections))
}

/// A tensor `[n, V, D]` as `n` matrices.
pub fn samples(case: &Case, name: &str) -> Fallible<Vec<Matrix>> {
    let &[_, views, width] = case.shape(name)? else { return Err(format!("`{name}` is not [n, V, D]").into()) };
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
    report: &mut Report<'_>,
    part: &str,
    keys: &str,
    cache: &ClassCache,
    tolerance: Tolerance,
) -> Fallible<()> {
    let name = |name: &str| format!("{part}.{name}");
    let has = |output: &str| report.case.has(&format!("out.{part}.{output}"));
    let &[classes, capacity, width] = report.case.shape(&format!("out.{part}.{keys}"))? else {
        return Err(format!("out.{part}.{keys} is not [K, cap, D]").into());
    };
    let value = if has("loss") { "loss" } else { "entropy" };
    let maps: Vec<&str> = ["prob_map", "prob"].into_iter().filter(|map| has(map)).collect();
    report.equal(&name("count"), (0..classes).map(|class| cache.items(class).len()));
    let items: Vec<_> =
        (0..classes).flat_map(|class| (0..capacity).map(move |place| cache.items(class).get(place))).collect();
    let padded = |length: usize, of: &dyn Fn(usize) -> Vec<f32>| {
        let rows = (0..items.len()).map(of).map(|mut row| {
            row.resize(length, 0.0);
            row
        });
        rows.flatten().collect::<Vec<f32>>()
    };
    let feature = |at: usize| items[at].map_or_else(Vec::new, |item| item.feature.clone());
    let map_of = |at: usize| items[at].map_or_else(Vec::new, |item| item.probabilities.clone());
    report.close_to(&name(value), items.iter().map(|item| item.map_or(-1.0, |item| item.uncertainty)), tolerance);
    report.close_to(&name(keys), padded(width, &feature), Tolerance::atol(1e-5));
    for map in maps {
        report.close_to(&name(map), padded(classes, &map_of), tolerance);
    }
    Ok(())
}

/// So many places for each class, empty ones included.
pub fn places<T>(banks: &[Vec<T>], size: usize) -> impl Iterator<Item = Option<&T>> {
    banks.iter().flat_map(move |bank| (0..size).map(move |place| bank.get(place)))
}

/// A task at the context of a case: its text features, the model, the tokens.
pub fn context_task(case: &Case, clip: &Arc<Clip>) -> Fallible<Task> {
    let context = case.context("in.ctx")?;
    let tokens = case.class_tokens(context.tokens)?;
    let text = clip.text()?.encode(&tokens, std::slice::from_ref(&context))?.remove(0);
    let task = Task::new(names(text.rows()), text, clip.logit_scale(), 0)?;
    Ok(task.with_clip(Arc::clone(clip)).with_context(tokens, context))
}

/// A task of a case that has features only: `in.text_features`, and its logit scale, 100 where none is given.
pub fn feature_task(case: &Case) -> Fallible<Task> {
    let text = unit(matrix(case, "in.text_features")?);
    let scale = match case.has("in.logit_scale") {
        true => case.f32("in.logit_scale")?[0],
        false => case.hyper("logit_scale").as_f64().unwrap_or(100.0) as f32,
    };
    Ok(Task::new(names(text.rows()), text, scale, 0)?)
}

/// The images of a case `[n, V, D]`, unit-norm.
pub fn stream(case: &Case) -> Fallible<Vec<Matrix>> {
    Ok(samples(case, "in.image_features")?.into_iter().map(unit).collect())
}

/// Percent of the answers that are right.
pub fn accuracy(predictions: &[usize], labels: &[usize]) -> f32 {
    let right = predictions.iter().zip(labels).filter(|(a, b)| a == b).count();
    100.0 * right as f32 / labels.len() as f32
}
