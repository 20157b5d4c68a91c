//! The sharpness of what was learned, the same measure for every tuner: how much the loss of the shots rises within a
//! radius of the parameters, along the gradient.

use crate::tuners::{Batch, Tuner};
use flatclip::Result;
use flatclip::methods::sam::{Ascent, moved};
use flatclip::model::Clip;
use flatclip_tensor::ops::l2_norm;
use serde::{Deserialize, Serialize};

/// The radius at which runs are compared.
pub const RADIUS: f64 = 0.1;

/// How sharp the loss is around the parameters: its rise at one radius.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharpnessAtRadius {
    /// Length of eps.
    pub radius: f64,
    /// The same as a fraction of the parameters' norm; 0 in runs of versions that did not say.
    #[serde(default)]
    pub relative_radius: f64,
    /// Loss at p.
    pub loss: f32,
    /// Loss at p + eps.
    pub perturbed_loss: f32,
    /// Their difference.
    pub sharpness: f32,
    /// Part of the images that are right at p.
    pub accuracy: f32,
}

/// SAM's measure at the tuner's parameters.
pub fn sharpness(clip: &Clip, tuner: &dyn Tuner, batch: &Batch<'_>, radius: f64) -> Result<SharpnessAtRadius> {
    let p = tuner.parameters();
    let here = tuner.loss(clip, p, batch)?;
    let there = tuner.loss(clip, &moved(p, &Ascent::sam(radius).epsilon(p, &here.gradient)), batch)?;
    let norm = l2_norm(p.iter().flat_map(|tensor| &tensor.values));
    Ok(SharpnessAtRadius {
        radius,
        relative_radius: radius / norm.max(f64::MIN_POSITIVE),
        loss: here.value,
        perturbed_loss: there.value,
        sharpness: there.value - here.value,
        accuracy: here.correct as f32 / batch.labels.len().max(1) as f32,
    })
}
