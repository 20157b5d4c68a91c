//! How a tuner is trained: steps, optimiser, learning rate. The `[train]` table.

flatclip::choices! {
    /// Which optimiser moves the parameters.
    pub enum OptimiserKind {
        /// SGD with momentum, weight decay added to the gradient.
        Sgd = "sgd",
        /// AdamW, weight decay decoupled.
        AdamW = "adamw",
    }
}

flatclip::choices! {
    /// How the learning rate changes.
    pub enum Schedule {
        /// Dassl's: constant warm-up epochs, then a cosine over the epochs that starts at its beginning when
        /// the warm-up ends and is therefore never finished.
        Epoch = "epoch",
        /// A cosine over all steps to zero, as Tip-Adapter-F uses it. No warm-up.
        Step = "step",
        /// The same rate throughout.
        Constant = "constant",
    }
}

flatclip::choices! {
    /// Which average of the trajectory becomes the result.
    pub enum Average {
        /// None: the last step, as CoOp.
        None = "none",
        /// Exponential moving average of every step.
        Ema = "ema",
        /// Plain mean of every step of the last epochs (SWA's paper takes one set of weights per epoch).
        Swa = "swa",
        /// Mean of every step inside the valley of the held-out loss (Cha et al. 2021).
        Swad = "swad",
    }
}

flatclip::choices! {
    /// Which steps SWAD averages.
    pub enum SwadRule {
        /// Algorithm 1 of the paper; without convergence, all steps.
        Paper = "paper",
        /// The published code, line by line: earlier epochs below the threshold count, too, and every epoch has the
        /// same weight; without convergence, the last epoch.
        Compat = "compat",
    }
}

flatclip::options! {
    /// The `[train]` table. Defaults are CoOp's (Dassl's), with 50 epochs and batch 32.
    pub struct Recipe for "train" {
        /// Passes over the shots.
        epochs: usize = 50, range up_to(1_000_000), from "CoOp's code, ImageNet";
        /// Images per step; the last, smaller batch of an epoch is dropped if there is a full one.
        batch: usize = 32, range at_least(1), from "CoOp's code";
        /// Keep that smaller batch.
        keep_last: bool = false, from "CoOp's code";
        /// The optimiser.
        optimiser: OptimiserKind = OptimiserKind::Sgd, from "CoOp's code";
        /// Peak learning rate.
        lr: f64 = 0.002, range at_least(0.0), from "CoOp's code";
        /// How many times the published rate SGD takes at most by itself, for a model whose logit scale is small.
        rate_limit: f64 = 5.0, range at_least(1.0), from "chosen on held-out photos of the pocket dataset";
        /// SGD's momentum.
        momentum: f64 = 0.9, range at_least(0.0), from "CoOp's code";
        /// Weight decay.
        weight_decay: f64 = 5e-4, range at_least(0.0), from "CoOp's code";
        /// AdamW's eps.
        eps: f64 = 1e-8, range at_least(0.0), from "torch";
        /// How the learning rate changes.
        schedule: Schedule = Schedule::Epoch, from "CoOp's code";
        /// Epochs at the warm-up rate.
        warmup_epochs: usize = 1, from "CoOp's code";
        /// The warm-up rate.
        warmup_lr: f64 = 1e-5, range at_least(0.0), from "CoOp's code";
        /// Which average of the trajectory becomes the result.
        average: Average = Average::None, from "CoOp's code";
        /// EMA: weight of the past.
        ema_decay: f64 = 0.999, range from_below(0.0, 1.0), from "choice";
        /// SWA: the part of the epochs that does not count.
        swa_start: f64 = 0.75, range between(0.0, 1.0), from "SWA's paper";
        /// SWAD: which steps are averaged. The held-out loss is evaluated after every epoch.
        swad_rule: SwadRule = SwadRule::Paper, from "SWAD's paper; one evaluation per epoch is a choice";
        /// SWAD: evaluations that must not improve before the valley begins.
        swad_converge: usize = 3, range at_least(1), from "SWAD's paper (N_s) and code";
        /// SWAD: evaluations above the threshold that end it.
        swad_tolerance: usize = 6, range at_least(1), from "SWAD's paper (N_e) and code";
        /// SWAD: how far above the mean of the valley's first losses the threshold lies.
        swad_ratio: f64 = 0.3, range at_least(0.0), from "SWAD's code; the paper writes r = 1.3, and 1.2 for VLCS";
    }
}

/// The logit scale of the models that published learning rates were chosen for.
const PUBLISHED_SCALE: f64 = 100.0;
/// Logit scales from here on count as published.
const NEARLY_PUBLISHED: f64 = 90.0;

impl Recipe {
    /// How much larger SGD's rates have to be for a model with this logit scale. The gradient of the cross-entropy grows with
    /// the scale and its curvature with the square, so a rate for 100 hardly moves a prompt of a model with 15:
    /// `lr = 0.002 (100 / scale)^2`. AdamW's steps do not grow with the gradient and stay as they are.
    pub fn rate_factor(&self, logit_scale: f32) -> f64 {
        let scale = f64::from(logit_scale);
        let fits = self.optimiser != OptimiserKind::Sgd || scale >= NEARLY_PUBLISHED || scale <= 0.0;
        if fits { 1.0 } else { (PUBLISHED_SCALE / scale).powi(2) }
    }

    /// The rule's peak rate for a model with this logit scale, whatever its limit.
    pub fn rate(&self, logit_scale: f32) -> f64 {
        self.lr * self.rate_factor(logit_scale)
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
    fn rates_grow_for_small_logit_scales_only() {
        let sgd = Recipe::default();
        assert_eq!([100.0, 99.98, 90.0].map(|scale| sgd.rate_factor(scale)), [1.0; 3]);
        assert_eq!([50.0, 10.0].map(|scale| sgd.rate_factor(scale)), [4.0, 100.0]);
        assert_eq!(Recipe { optimiser: OptimiserKind::AdamW, ..sgd }.rate_factor(10.0), 1.0);
    }

    #[test]
    fn wrong_values_name_their_key() {
        let fault = |text: &str| Recipe::read(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(fault("batch = 0").contains("train.batch"));
        assert!(fault("lr = -1.0").contains("train.lr"));
        assert!(fault("epoch = 3").contains("train.epoch"));
    }
}
