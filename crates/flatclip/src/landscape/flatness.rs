//! Flatness in numbers: how much the loss rises on circles around the prompt.

use super::surface::losses;
use super::{Directions, Probe};
use crate::Result;
use crate::model::{ClassTokens, Context, TextTower};
use serde::{Deserialize, Serialize};

/// The rise of the loss on one circle of the plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ring {
    /// Radius in units of the directions.
    pub radius: f32,
    /// Mean of `loss(on the circle) - loss(centre)`.
    pub mean_increase: f32,
    /// Largest of the same.
    pub largest_increase: f32,
}

/// The flatness numbers of one probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flatness {
    /// The probe's name.
    pub name: String,
    /// Loss at the prompt itself.
    pub centre: f32,
    /// One entry per radius.
    pub rings: Vec<Ring>,
}

/// Points on a circle: enough that the largest rise is not missed between two of them on a smooth surface.
const ANGLES: usize = 24;

impl Flatness {
    /// Evaluates the loss on circles of the given radii (not interpolated from a grid).
    pub fn measure(
        tower: &TextTower,
        classes: &ClassTokens,
        context: &Context,
        directions: &Directions,
        radii: &[f32],
        logit_scale: f32,
        probes: &[Probe],
    ) -> Result<Vec<Self>> {
        let mut contexts = vec![context.clone()];
        for &radius in radii {
            for step in 0..ANGLES {
                let angle = std::f32::consts::TAU * step as f32 / ANGLES as f32;
                contexts.push(directions.at(context, radius * angle.cos(), radius * angle.sin()));
            }
        }
        let losses = losses(tower, classes, &contexts, logit_scale, probes)?;
        Ok(probes.iter().zip(&losses).map(|(probe, losses)| Self::from_losses(&probe.name, radii, losses)).collect())
    }

    /// `losses`: the centre, then [`ANGLES`] values per radius.
    fn from_losses(name: &str, radii: &[f32], losses: &[f32]) -> Self {
        let centre = losses[0];
        let rings = radii
            .iter()
            .zip(losses[1..].chunks(ANGLES))
            .map(|(&radius, ring)| Ring {
                radius,
                mean_increase: ring.iter().map(|l| l - centre).sum::<f32>() / ring.len() as f32,
                largest_increase: ring.iter().map(|l| l - centre).fold(f32::NEG_INFINITY, f32::max),
            })
            .collect();
        Self { name: name.to_owned(), centre, rings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increases_are_relative_to_the_centre() {
        let mut losses = vec![1.0];
        losses.extend((0..ANGLES).map(|i| if i == 3 { 3.0 } else { 1.0 }));
        let flat = Flatness::from_losses("x", &[0.5], &losses);
        assert_eq!(flat.rings[0].largest_increase, 2.0);
        assert!((flat.rings[0].mean_increase - 2.0 / ANGLES as f32).abs() < 1e-6);
    }
}
