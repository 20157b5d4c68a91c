//! Options that several adapters share, written once.

crate::option_group! {
    ($) pub(crate) view_selection {
        /// Fraction of the views to select: the int(fraction * V) of lowest score.
        fraction: f64 = 0.1, alias "gamma", range fraction, from "authors' code";
        /// What the views are ranked by.
        score: crate::methods::select::Score = crate::methods::select::Score::Entropy, alias "surrogate", from "authors' code; tsallis: ADTE, 0.1 in its example";
    }
}

crate::option_group! {
    ($) pub(crate) adamw_steps {
        /// AdamW steps per image.
        steps: usize = 1, range up_to(1000), from "authors' code";
        /// Learning rate.
        lr: f64 = 5e-3, range at_least(0.0), from "authors' code";
        /// Decoupled weight decay.
        weight_decay: f64 = 0.01, range at_least(0.0), from "torch's AdamW default, as the authors' code";
    }
}

crate::option_group! {
    ($) pub(crate) data_preset {
        /// Whose values stand where nothing else is said: `auto` takes the authors' for the data set that is evaluated, if it
        /// is one of theirs, `neutral` the defaults, a name that benchmark's. Published values were evidently chosen on the test
        /// sets themselves.
        preset: Benchmark = Benchmark::Auto, from "published practice; neutral is the fair choice";
    }
}

crate::option_group! {
    ($) pub(crate) positive_cache {
        /// Weight of the positive cache.
        alpha: f64 = 2.0, range at_least(0.0), from "authors' ImageNet pair";
        /// Sharpness of the positive cache.
        beta: f64 = 5.0, range at_least(0.0), from "authors' ImageNet pair";
        /// Items per class of the positive cache.
        capacity: usize = 3, range between(1, 10_000), from "authors' code";
    }
}

crate::option_group! {
    ($) pub(crate) negative_cache {
        /// Weight of the negative cache.
        negative_alpha: f64 = 0.117, range at_least(0.0), from "authors' code";
        /// Sharpness of the negative cache.
        negative_beta: f64 = 1.0, range at_least(0.0), from "authors' code";
        /// Items per class of the negative cache.
        negative_capacity: usize = 2, range between(1, 10_000), from "authors' code";
        /// Lower end of the window of normalised entropy in which an image is doubtful.
        entropy_low: f64 = 0.2, from "authors' code";
        /// Upper end of that window.
        entropy_high: f64 = 0.5, from "authors' code";
        /// Lower end of the window of probabilities: a doubtful image lowers the logits of the classes in it.
        mask_low: f64 = 0.03, from "authors' code";
        /// Upper end of that window.
        mask_high: f64 = 1.0, from "authors' code";
    }
}

/// Gives options that include `negative_cache` its rule, and the check of its windows.
macro_rules! doubt {
    ($options:ident) => {
        impl $options {
            fn doubt(&self) -> $crate::methods::cache::Doubt {
                $crate::methods::cache::Doubt {
                    alpha: self.negative_alpha,
                    beta: self.negative_beta,
                    entropy: (self.entropy_low, self.entropy_high),
                    mask: (self.mask_low, self.mask_high),
                }
            }

            fn windows_are_open(&self) -> Result<()> {
                self.doubt().check(Self::NAME)
            }
        }
    };
}
pub(crate) use doubt;
