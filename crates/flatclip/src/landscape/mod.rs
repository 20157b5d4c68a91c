//! Loss surfaces around a prompt: two random directions in context space, a grid, and what the loss does on it.
//!
//! One pass of the text tower over the grid serves every picture and view that is asked for: a [`Probe`] only needs its
//! image features.

mod analysis;
mod ball;
mod bound;
mod directions;
mod divergence;
mod flatness;
mod floor;
mod ordering;
mod rademacher;
mod scores;
mod surface;
mod theory;
mod worst_case;
mod worst_entropy;

pub use analysis::{EntropyGap, Separation};
pub use ball::Ball;
#[cfg(test)]
pub(crate) use bound::tests::worst as tests_worst_case;
pub use bound::{Bound, Left};
pub use directions::{Directions, Normalisation};
pub use divergence::Divergence;
pub use flatness::{Flatness, Ring};
pub use floor::Floor;
pub use ordering::{OrderClaim, Ordering, ScoreKind};
pub use rademacher::{Rademacher, RademacherSearch};
pub(crate) use scores::rank_correlation;
pub use scores::{Decile, Scores};
pub use surface::{Grid, Probe, Surface, loss};
pub use theory::Theory;
pub use worst_case::{WorstCase, WorstCaseSearch};
pub use worst_entropy::{EntropyFound, WorstEntropy, ascend_entropy};

/// At most `most` of `count` places, spread evenly.
pub(crate) fn spread(count: usize, most: usize) -> Vec<usize> {
    let take = most.min(count);
    (0..take).map(|i| i * count / take).collect()
}
