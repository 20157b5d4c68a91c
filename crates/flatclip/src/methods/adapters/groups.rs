//! Options that several adapters share, written once.

crate::option_group! {
    ($) pub(crate) views_kept {
        /// Fraction of the views to keep: the int(fraction * V) of lowest score.
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
