//! Where a context starts: the embeddings of some words, or noise.

use super::TuneTask;
use flatclip::model::Context;
use flatclip::rng::Stream;
use flatclip::{Error, Result};

/// Standard deviation of a random start (CoOp).
pub(crate) const NOISE: f64 = 0.02;

/// The embeddings of `words` (underscores are spaces), one context token for each token of theirs; or,
/// without words, `n_ctx` tokens of N(0, 0.02²). Class-specific contexts start equal from words, and each its
/// own from noise.
pub(crate) fn context(task: &TuneTask<'_>, words: &str, n_ctx: usize, class_specific: bool) -> Result<Context> {
    let text = task.clip.text()?;
    let (width, classes) = (text.width(), task.classes.len());
    if words.trim().is_empty() {
        let copies = if class_specific { classes } else { 1 };
        let data = noise(&mut Stream::new(task.seed, &["context"]), copies * n_ctx * width);
        return Ok(if class_specific {
            Context::per_class(classes, n_ctx, width, data)
        } else {
            Context::shared(n_ctx, width, data)
        });
    }
    let ids = task.tokenizer.encode(&words.replace('_', " "));
    if n_ctx != 0 && n_ctx != ids.len() {
        let reason = format!(
            "expected {n_ctx} tokens, but the words {words:?} have {} tokens; leave one of the two out (words = \"\" starts from noise)",
            ids.len()
        );
        return Err(Error::config("n_ctx", reason));
    }
    let data = text.embed(&ids)?.into_vec();
    Ok(if class_specific {
        Context::per_class(classes, ids.len(), width, data.repeat(classes))
    } else {
        Context::shared(ids.len(), width, data)
    })
}

/// `count` draws of N(0, 0.02²).
pub(crate) fn noise(stream: &mut Stream, count: usize) -> Vec<f32> {
    (0..count).map(|_| (NOISE * stream.normal()) as f32).collect()
}

/// `count` draws of torch's default for a linear layer, U(-1/√inputs, 1/√inputs).
pub(crate) fn linear_default(stream: &mut Stream, inputs: usize, count: usize) -> Vec<f32> {
    let bound = 1.0 / (inputs as f64).sqrt();
    (0..count).map(|_| stream.uniform(-bound, bound) as f32).collect()
}
