//! The paper's pointwise theorem with every term estimated: what the bound says of all but a share delta of the images, how tight
//! it is (beta), and how far the two test sets are apart (gamma).

use super::{Bound, Divergence, Rademacher};
use serde::{Deserialize, Serialize};

/// The terms that need both sets and the training images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Theory {
    /// `d(S; T)` from below, of the nearer and of the farther set.
    pub divergence: (Divergence, Divergence),
    /// `R_n` from below.
    pub rademacher: Rademacher,
    /// mu: the cross-entropy of outputs of at least eta changes by at most this per unit of output, `1 / eta`.
    pub lipschitz: f64,
    /// The left side of the pointwise theorem: the score that all but a share delta of the images are below.
    pub left: (f64, f64),
    /// Its right side with the divergence from below: at least this.
    pub right: (f64, f64),
    /// beta: the distance of both sides, at least.
    pub beta: (f64, f64),
    /// gamma: the difference of the divergences as estimated.
    pub gamma: f64,
    /// `M / 2 |d_1 - d_2|`, what the proof compares with beta.
    pub gap: f64,
}

impl Theory {
    /// Puts the terms together; `left` are the (1 - delta) quantiles of the scores of both sets.
    pub fn new(bound: &Bound, divergence: (Divergence, Divergence), rademacher: Rademacher, left: (f64, f64)) -> Self {
        let lipschitz = 1.0 / bound.eta;
        let complexity = 2.0 * 2f64.sqrt() * lipschitz * rademacher.estimate.max(0.0);
        let half = bound.largest_loss / 2.0;
        let right = |d: &Divergence| half * d.estimate + bound.measured() + complexity;
        let right = (right(&divergence.0), right(&divergence.1));
        let beta = ((right.0 - left.0).abs(), (right.1 - left.1).abs());
        let gamma = (divergence.0.estimate - divergence.1.estimate).abs();
        Self { divergence, rademacher, lipschitz, left, right, beta, gamma, gap: half * gamma }
    }

    /// `2 sqrt(2) mu R_n`.
    pub fn complexity(&self) -> f64 {
        2.0 * 2f64.sqrt() * self.lipschitz * self.rademacher.estimate.max(0.0)
    }

    /// Whether the order of the divergences is the one that the theorem assumes.
    pub fn is_ordered(&self) -> bool {
        self.divergence.0.estimate < self.divergence.1.estimate
    }

    /// Whether what the proof needs is seen: the bounds of both sets are farther apart than the bound is loose.
    pub fn is_separated(&self) -> bool {
        self.is_ordered() && self.gap > self.beta.1
    }
}
