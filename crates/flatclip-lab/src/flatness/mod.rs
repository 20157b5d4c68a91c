//! How flat the loss is around a prompt: flatness measures, worst cases, bounds, and what scores say of them.

mod analysis;
mod ball;
mod bound;
mod divergence;
mod floor;
mod measures;
mod ordering;
mod rademacher;
mod scores;
mod theory;
mod worst_case;
mod worst_entropy;

pub use analysis::{EntropyGap, Separation};
pub use ball::Ball;
#[cfg(test)]
pub(crate) use bound::tests::worst as tests_worst_case;
pub use bound::{Bound, Left};
pub use divergence::Divergence;
pub use flatclip::surface::{Directions, Grid, Normalisation, Probe, Surface, loss};
pub use floor::Floor;
pub use measures::{Flatness, Ring};
pub use ordering::{OrderClaim, Ordering, ScoreKind};
pub use rademacher::{Rademacher, RademacherSearch};
pub use scores::{Decile, Scores};
pub(crate) use scores::{mean, rank_correlation};
pub use theory::Theory;
pub use worst_case::{WorstCase, WorstCaseSearch};
pub use worst_entropy::{EntropyFound, WorstEntropy, ascend_entropy};

/// At most `most` of `count` places, spread evenly.
pub(crate) fn spread(count: usize, most: usize) -> Vec<usize> {
    let take = most.min(count);
    (0..take).map(|i| i * count / take).collect()
}
