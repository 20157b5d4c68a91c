//! Random checkpoints of real shapes, for speed measurements and tests. Tensors are drawn on demand.

use super::checkpoint::{Checkpoint, Origin};
use crate::architecture::{self, ClipConfig};
use crate::rng::Stream;
use crate::{Error, Result};

/// A checkpoint of a released architecture (`ViT-B-16`, `RN50`, ... with or without `random:` before it) with random
/// weights, scaled so that activations stay of order one. The same name and seed give the same numbers.
pub fn random(arch: &str, seed: u64) -> Result<Checkpoint> {
    let name = arch.strip_prefix("random:").unwrap_or(arch);
    let config = ClipConfig::named(name).ok_or_else(|| {
        let known: Vec<&str> = ClipConfig::names().collect();
        Error::config("model", format!("no architecture `{name}`; known are {}", known.join(", ")))
    })?;
    Ok(random_of(&config, seed))
}

/// A checkpoint of any architecture with random weights.
pub fn random_of(config: &ClipConfig, seed: u64) -> Checkpoint {
    let tensors = architecture::tensors(config).into_iter();
    let entries = tensors.map(|(name, shape)| (name, (shape, Origin::Random { seed }))).collect();
    let label = format!("random:{}", config.released_name().unwrap_or("custom"));
    Checkpoint::assemble(label.into(), config.clone(), entries)
}

/// The values of one tensor.
pub(crate) fn draw(name: &str, shape: &[usize], config: &ClipConfig, seed: u64) -> Vec<f32> {
    let total: usize = shape.iter().product();
    let norm = ["ln_", "bn", "downsample.1"].iter().any(|part| name.contains(part));
    let constant = match name.rsplit('.').next() {
        _ if name == "logit_scale" => Some(config.logit_scale.ln()),
        _ if name == "logit_bias" => config.logit_bias,
        Some("running_var") => Some(1.0),
        Some("running_mean" | "bias" | "in_proj_bias") => Some(0.0),
        Some("weight") if norm => Some(1.0),
        _ => None,
    };
    if let Some(constant) = constant {
        return vec![constant; total];
    }
    let std = match name {
        _ if name.ends_with("embedding") || name.starts_with("token_embedding") => 0.02,
        // Stored as [inputs, outputs].
        "visual.proj" | "text_projection" => (shape[0] as f32).powf(-0.5),
        _ => (shape[1..].iter().product::<usize>() as f32).powf(-0.5),
    };
    let mut stream = Stream::new(seed, &["random weights", name]);
    // Uniform draws of that deviation: 24 bits each, two from 64; a normal draw would cost ten times as much.
    let reach = std * 3f32.sqrt();
    let mut values = Vec::with_capacity(total + 1);
    while values.len() < total {
        let bits = stream.bits();
        for half in [bits as u32, (bits >> 32) as u32] {
            values.push(((half >> 8) as f32 / (1u32 << 23) as f32 - 1.0) * reach);
        }
    }
    values.truncate(total);
    values
}
