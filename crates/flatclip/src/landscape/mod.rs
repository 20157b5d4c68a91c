//! Loss surfaces around a prompt: two random directions in context space, a grid, and what the loss does on it.
//!
//! One pass of the text tower over the grid serves every picture and view that is asked for: a [`Probe`] only needs its
//! image features.

mod analysis;
mod bound;
mod directions;
mod divergence;
mod flatness;
mod rademacher;
mod scores;
mod surface;
mod theory;
mod worst_case;

pub use analysis::{EntropyGap, Separation};
pub use bound::Bound;
pub use directions::{Directions, Normalisation};
pub use divergence::Divergence;
pub use flatness::{Flatness, Ring};
pub use rademacher::{Rademacher, RademacherSearch};
pub(crate) use scores::rank_correlation;
pub use scores::{Decile, Scores};
pub use surface::{Grid, Probe, Surface, loss};
pub use theory::Theory;
pub use worst_case::{WorstCase, WorstCaseSearch};
