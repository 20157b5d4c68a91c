//! Where a context starts: the embeddings of some words, or noise.

use super::TuneTask;
use flatclip::model::Context;
use flatclip::prompt::Affine;
use flatclip::rng::Stream;
use flatclip::{Error, Result};
use flatclip_tensor::Matrix;

/// Standard deviation of a random start (CoOp).
pub(crate) const NOISE: f64 = 0.02;

/// The embeddings of `words` (underscores are spaces), one context token for each token of theirs; or,
/// without words, `n_ctx` tokens of N(0, 0.02²). Class-specific contexts start equal from words, and each its
/// own from noise.
pub(crate) fn context(task: &TuneTask<'_>, words: &str, n_ctx: usize, class_specific: bool) -> Result<Context> {
    let text = task.clip.text()?;
    let (width, classes) = (text.width(), task.classes.len());
    let copies = if class_specific { classes } else { 1 };
    let (n_ctx, data) = if words.trim().is_empty() {
        (n_ctx, noise(&mut Stream::new(task.seed, &["context"]), copies * n_ctx * width))
    } else {
        let ids = task.tokenizer.encode(&words.replace('_', " "));
        if n_ctx != 0 && n_ctx != ids.len() {
            let reason = format!(
                "expected {n_ctx} tokens, but the words {words:?} have {} tokens; leave one of the two out (words = \"\" starts \
                 from noise)",
                ids.len()
            );
            return Err(Error::config("n_ctx", reason));
        }
        (ids.len(), text.embed(&ids)?.into_vec().repeat(copies))
    };
    Ok(match class_specific {
        true => Context::per_class(classes, n_ctx, width, data),
        false => Context::shared(n_ctx, width, data),
    })
}

/// `count` draws of N(0, 0.02²).
pub(crate) fn noise(stream: &mut Stream, count: usize) -> Vec<f32> {
    (0..count).map(|_| (NOISE * stream.normal()) as f32).collect()
}

/// A linear layer with torch's default start, U(-1/√inputs, 1/√inputs).
pub(crate) fn layer(stream: &mut Stream, outputs: usize, inputs: usize) -> Affine {
    let bound = 1.0 / (inputs as f64).sqrt();
    let mut draw = |count: usize| (0..count).map(|_| stream.uniform(-bound, bound) as f32).collect();
    Affine { weight: Matrix::from_vec(outputs, inputs, draw(outputs * inputs)), bias: draw(outputs) }
}
