//! How a tuner is trained: steps, optimiser, learning rate. The `[train]` table.

use crate::Result;
use crate::methods::options::Options;
use serde::{Deserialize, Serialize};

/// Which optimiser moves the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimiserKind {
    /// SGD with momentum, weight decay added to the gradient.
    #[default]
    Sgd,
    /// AdamW, weight decay decoupled.
    AdamW,
}

/// How the learning rate changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Dassl's: constant warm-up epochs, then a cosine over the epochs that starts at its beginning when the warm-up
    /// ends and is therefore never finished.
    #[default]
    Epoch,
    /// A cosine over all steps to zero, as Tip-Adapter-F uses it. No warm-up.
    Step,
    /// The same rate throughout.
    Constant,
}

/// Which average of the trajectory becomes the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Average {
    /// None: the last step, as CoOp.
    #[default]
    None,
    /// Exponential moving average of every step.
    Ema,
    /// Plain mean of every step of the last epochs.
    Swa,
    /// Mean of every step inside the valley of the held-out loss (Cha et al. 2021).
    Swad,
}

/// The `[train]` table. Defaults are CoOp's (Dassl's), with 50 epochs and batch 32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// Passes over the shots.
    pub epochs: usize,
    /// Images per step; the last, smaller batch of an epoch is dropped if there is a full one.
    pub batch: usize,
    /// Keep that smaller batch.
    pub keep_last: bool,
    /// The optimiser.
    pub optimiser: OptimiserKind,
    /// Peak learning rate.
    pub lr: f64,
    /// SGD's momentum.
    pub momentum: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// AdamW's eps.
    pub eps: f64,
    /// The schedule.
    pub schedule: Schedule,
    /// Epochs at the warm-up rate.
    pub warmup_epochs: usize,
    /// The warm-up rate.
    pub warmup_lr: f64,
    /// Weight averaging.
    pub average: Average,
    /// EMA: weight of the past.
    pub ema_decay: f64,
    /// SWA: the part of the epochs that does not count (0.75 in the SWA paper).
    pub swa_start: f64,
    /// SWAD: evaluations that must not improve before the valley begins.
    pub swad_converge: usize,
    /// SWAD: evaluations above the threshold that end it.
    pub swad_tolerance: usize,
    /// SWAD: how far above the valley's first losses the threshold lies.
    pub swad_ratio: f64,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            epochs: 50,
            batch: 32,
            keep_last: false,
            optimiser: OptimiserKind::Sgd,
            lr: 0.002,
            momentum: 0.9,
            weight_decay: 5e-4,
            eps: 1e-8,
            schedule: Schedule::Epoch,
            warmup_epochs: 1,
            warmup_lr: 1e-5,
            average: Average::None,
            ema_decay: 0.999,
            swa_start: 0.75,
            swad_converge: 3,
            swad_tolerance: 6,
            swad_ratio: 0.3,
        }
    }
}

impl Options for Recipe {
    const NAME: &'static str = "train";

    fn check(&self) -> Result<()> {
        Self::require(self.batch > 0, "batch", "at least 1", self.batch)?;
        Self::require(self.epochs <= 1_000_000, "epochs", "at most 1000000", self.epochs)?;
        Self::require(self.swad_converge > 0, "swad_converge", "at least 1", self.swad_converge)?;
        Self::require(self.swad_tolerance > 0, "swad_tolerance", "at least 1", self.swad_tolerance)?;
        for (key, value) in [
            ("lr", self.lr),
            ("momentum", self.momentum),
            ("weight_decay", self.weight_decay),
            ("eps", self.eps),
            ("warmup_lr", self.warmup_lr),
            ("ema_decay", self.ema_decay),
            ("swa_start", self.swa_start),
            ("swad_ratio", self.swad_ratio),
        ] {
            Self::require_not_negative(key, value)?;
        }
        Self::require(self.ema_decay < 1.0, "ema_decay", "a number below 1", self.ema_decay)
    }
}

impl Recipe {
    /// Reads the `[train]` table.
    pub fn read(table: &toml::Table) -> Result<Self> {
        <Self as Options>::read(table)
    }

    /// Steps of one epoch over `images` images.
    pub fn steps_per_epoch(&self, images: usize) -> usize {
        if self.keep_last || images < self.batch { images.div_ceil(self.batch) } else { images / self.batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_batch_is_dropped_as_dassl_drops_it() {
        let recipe = Recipe::default();
        assert_eq!([15, 32, 63, 64].map(|images| recipe.steps_per_epoch(images)), [1, 1, 1, 2]);
        assert_eq!(Recipe { keep_last: true, ..recipe }.steps_per_epoch(63), 2);
    }

    #[test]
    fn wrong_values_name_their_key() {
        let fault = |text: &str| Recipe::read(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(fault("batch = 0").contains("train.batch"));
        assert!(fault("lr = -1.0").contains("train.lr"));
        assert!(fault("epoch = 3").contains("train.epoch"));
    }
}
