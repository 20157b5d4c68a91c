//! Sharpness on random planes: how much the loss rises on circles around the prompt.
//!
//! The sharpness at a radius is `max_{|eps| <= radius} L(p + eps) - L(p)`. What circles of some random planes show of it is a
//! lower estimate, and a low one: a random direction out of hundreds hardly ever is the steepest.

use super::{Directions, Probe};
use flatclip::Result;
use flatclip::methods::Task;
use flatclip::surface::losses;
use serde::{Deserialize, Serialize};

/// The rise of the loss on circles of one radius, one circle in every plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ring {
    /// Radius in units of the directions.
    pub radius: f32,
    /// Mean of `loss(on the circle) - loss(centre)`, over all planes.
    pub mean_increase: f32,
    /// Largest of the same on a circle, mean over the planes.
    pub largest_increase: f32,
    /// Standard deviation of the mean rise between planes; none with one plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_spread: Option<f32>,
    /// Standard deviation of the largest rise between planes; none with one plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_spread: Option<f32>,
    /// The sharpness as far as the planes show it: the largest rise on this and all smaller circles of all planes, at least 0.
    #[serde(default)]
    pub sharpness: f32,
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
    /// Random planes that were looked at.
    #[serde(default = "one")]
    pub planes: usize,
    /// How the sharpness was found.
    #[serde(default)]
    pub found_by: String,
}

fn one() -> usize {
    1
}

/// Points on a circle: enough that the largest rise is not missed between two of them on a smooth surface.
const ANGLES: usize = 24;

impl Flatness {
    /// Evaluates the loss on circles of the given radii in every plane (not interpolated from a grid).
    pub fn measure(task: &Task, planes: &[Directions], radii: &[f32], probes: &[Probe]) -> Result<Vec<Self>> {
        let (side, context) = (task.text_side("landscape")?, task.start_context("landscape")?);
        let mut contexts = vec![context.clone()];
        for directions in planes {
            for &radius in radii {
                for step in 0..ANGLES {
                    let angle = std::f32::consts::TAU * step as f32 / ANGLES as f32;
                    contexts.push(directions.at(context, radius * angle.cos(), radius * angle.sin()));
                }
            }
        }
        let losses = losses(side.tower, side.tokens, &contexts, task.logit_scale, probes)?;
        Ok(probes.iter().zip(&losses).map(|(probe, losses)| Self::from_losses(&probe.name, radii, losses)).collect())
    }

    /// `losses`: the centre, then for every plane [`ANGLES`] values per radius.
    fn from_losses(name: &str, radii: &[f32], losses: &[f32]) -> Self {
        let centre = losses[0];
        let circles: Vec<&[f32]> = losses[1..].chunks(ANGLES).collect();
        let mut sharpness = 0.0f32;
        let ring = |(place, &radius): (usize, &f32)| {
            let mine: Vec<&[f32]> = circles.iter().skip(place).step_by(radii.len()).copied().collect();
            let means: Vec<f32> =
                mine.iter().map(|ring| ring.iter().map(|l| l - centre).sum::<f32>() / ring.len() as f32).collect();
            let largest: Vec<f32> =
                mine.iter().map(|ring| ring.iter().map(|l| l - centre).fold(f32::NEG_INFINITY, f32::max)).collect();
            sharpness = largest.iter().copied().fold(sharpness, f32::max);
            let ((mean_increase, mean_spread), (largest_increase, largest_spread)) = (spread(&means), spread(&largest));
            Ring { radius, mean_increase, largest_increase, mean_spread, largest_spread, sharpness }
        };
        let rings = radii.iter().enumerate().map(ring).collect();
        let planes = circles.len() / radii.len().max(1);
        let word = if planes == 1 { "random plane" } else { "random planes" };
        let found_by = format!("{planes} {word}, {ANGLES} points on a circle");
        Self { name: name.to_owned(), centre, rings, planes, found_by }
    }
}

/// The mean, and the standard deviation where there is more than one value.
fn spread(values: &[f32]) -> (f32, Option<f32>) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
    let square = values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>();
    (mean as f32, (values.len() > 1).then(|| (square / (n - 1.0)).sqrt() as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increases_are_relative_to_the_centre() {
        let mut losses = vec![1.0];
        losses.extend((0..ANGLES).map(|i| if i == 3 { 3.0 } else { 1.0 }));
        let flat = Flatness::from_losses("x", &[0.5], &losses);
        assert_eq!((flat.rings[0].largest_increase, flat.rings[0].sharpness, flat.planes), (2.0, 2.0, 1));
        assert!((flat.rings[0].mean_increase - 2.0 / ANGLES as f32).abs() < 1e-6);
        assert_eq!(flat.rings[0].mean_spread, None, "one plane has no spread");
    }

    /// The ball of a larger radius holds the smaller one and the prompt: sharpness neither falls nor is negative.
    #[test]
    fn several_planes_have_a_spread_and_the_sharpness_is_the_largest_of_all() {
        let circle = |value: f32| vec![1.0 + value; ANGLES];
        let losses = [vec![1.0], circle(-1.0), circle(0.25), circle(-0.5), circle(-0.25)].concat();
        let flat = Flatness::from_losses("x", &[0.5, 1.0], &losses);
        let (inner, outer) = (&flat.rings[0], &flat.rings[1]);
        assert_eq!((flat.planes, inner.mean_increase, outer.mean_increase), (2, -0.75, 0.0));
        assert!((inner.largest_spread.unwrap() - 0.125f32.sqrt()).abs() < 1e-6, "{inner:?}");
        assert_eq!((inner.sharpness, outer.sharpness), (0.0, 0.25));
        assert!(flat.found_by.contains("2 random planes"));
    }
}
