//! What is done, how much of it, and by which rules settings are chosen: `docs/research/pocket.md` in code. Source, training views
//! and held-out photos are those of the item `pocket` of [`crate::reproduce`].

use super::DemoRequest;
use crate::reproduce::Recipe;
use crate::tuners;
use flatclip::Model;
use flatclip::Result;
use flatclip_pocket::CLASS_NAMES;

/// As many learning rates for CoOp, as multiples of the rule's: where a setting is chosen, both choose among five.
pub(super) const RATES: [f64; 5] = [0.1, 0.2, 0.5, 1.0, 2.0];
/// CoOp's batch.
const BATCH: usize = 32;
/// Radius of STSS and the part of the views that every selection keeps, both the paper's.
pub(super) const STSS_RADIUS: f64 = 0.5;
pub(super) const FRACTION: f64 = 0.1;
/// Radii of the reported sharpness: a share of the context's norm, and one length for all.
pub(super) const RELATIVE_RADIUS: f64 = 0.05;
pub(super) const ABSOLUTE_RADIUS: f64 = 0.1;
/// Seed of the views: one draw for all rows, so that rows differ by prompt and rule alone.
pub(super) const VIEW_SEED: u64 = 1;

/// How much is done.
#[derive(Clone, Debug)]
pub(super) struct Protocol {
    /// The item that it is built on.
    pub(super) recipe: Recipe,
    /// Photos per class.
    pub(super) shots: &'static [usize],
    /// Draws of the shots: seeds 1 to this.
    pub(super) seeds: u64,
    /// Draws on whose held-out photos settings are chosen: seeds 1 to this.
    pub(super) choosing: u64,
    /// Steps of every tuning, whatever its shots.
    pub(super) steps: usize,
    /// Also CoOp with a learning rate that was chosen as SAPT's radius is.
    pub(super) choose_rate: bool,
    /// Images per style, and which.
    pub(super) images: usize,
    pub(super) world: String,
    pub(super) views: usize,
    /// Grid points of a landscape axis.
    pub(super) points: usize,
}

impl Protocol {
    pub(super) fn of(request: &DemoRequest) -> Result<Self> {
        let mut protocol = Self {
            recipe: Recipe::find("pocket")?,
            shots: &[1, 4, 16],
            seeds: 3,
            choosing: 1,
            steps: 400,
            choose_rate: false,
            images: 96,
            world: request.world.clone(),
            views: 64,
            points: 21,
        };
        if request.full {
            protocol = Self { seeds: 8, choosing: 8, choose_rate: true, images: 512, points: 31, ..protocol };
        }
        if request.quick {
            let (seeds, steps) = (protocol.seeds.min(2), 12);
            protocol = Self { shots: &[1, 4], seeds, choosing: 1, steps, images: 8, views: 16, points: 5, ..protocol };
        }
        Ok(protocol)
    }

    /// Passes over the shots that make the steps.
    pub(super) fn epochs(&self, shots: usize) -> usize {
        let images = shots * CLASS_NAMES.len();
        (self.steps / (images / BATCH.min(images)).max(1)).max(2)
    }

    /// The number of shots whose minima are looked at.
    pub(super) fn most_shots(&self) -> usize {
        self.shots.iter().copied().max().unwrap_or(1)
    }
}

/// CoOp's rate for this model's temperature.
pub(super) fn learning_rate(model: &Model) -> f64 {
    tuners::Recipe::default().rate(model.logit_scale())
}

#[cfg(test)]
mod tests {
    use super::super::DOMAINS;
    use super::*;

    #[test]
    fn every_number_of_shots_has_the_same_steps() {
        let protocol = Protocol::of(&DemoRequest { full: true, ..DemoRequest::default() }).unwrap();
        for &shots in protocol.shots {
            let steps_per_epoch = shots * 32 / BATCH;
            assert_eq!(protocol.epochs(shots) * steps_per_epoch, protocol.steps);
        }
    }

    /// The demonstration and the item ask the same styles, and select views alike.
    #[test]
    fn the_item_is_the_same_comparison() {
        let recipe = Recipe::find("pocket").unwrap();
        assert_eq!(recipe.datasets, DOMAINS.map(|style| format!("pocket:{style}")));
        let fractions = recipe.rows.iter().filter_map(|row| row.options.get("fraction")?.as_float());
        assert!(fractions.eq([FRACTION, FRACTION]));
        assert_eq!(recipe.source, "pocket:photo::4096");
    }
}
