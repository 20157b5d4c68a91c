//! The paper's pointwise theorem with every term estimated: what the bound says of all but a share delta of the images, whether
//! it says anything, how tight it is (beta), and how far the two test sets are apart (gamma).

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
    /// `2 mu R_n`, as Theorem 4 is printed.
    pub complexity_as_printed: f64,
    /// `2 sqrt(2) mu R_n`, as Theorem 1 and the proof of Theorem 4 have it.
    pub complexity: f64,
    /// The right side with `2 mu R_n`.
    pub right_as_printed: (f64, f64),
    /// The right side with `2 sqrt(2) mu R_n`.
    pub right: (f64, f64),
    /// Whether that is above `ln K`, the largest entropy there is.
    pub vacuous: (bool, bool),
    /// beta: the distance of the right side and of what all but a share delta of the images are below.
    pub beta: (f64, f64),
    /// gamma: the difference of the divergences as estimated.
    pub gamma: f64,
    /// `M / 2 |d_1 - d_2|`, what the proof compares with beta.
    pub gap: f64,
}

impl Theory {
    /// Puts the terms together.
    pub fn new(bound: &Bound, divergence: (Divergence, Divergence), rademacher: Rademacher) -> Self {
        let lipschitz = 1.0 / bound.eta;
        let complexity_as_printed = 2.0 * lipschitz * rademacher.estimate;
        let complexity = 2f64.sqrt() * complexity_as_printed;
        let half = bound.loss_bound / 2.0;
        let both = |of: &dyn Fn(&Divergence) -> f64| (of(&divergence.0), of(&divergence.1));
        let right = both(&|d| half * d.estimate + bound.measured() + complexity);
        let gamma = (divergence.0.estimate - divergence.1.estimate).abs();
        Self {
            right_as_printed: both(&|d| half * d.estimate + bound.measured() + complexity_as_printed),
            right,
            vacuous: (right.0 > bound.largest_entropy, right.1 > bound.largest_entropy),
            beta: ((right.0 - bound.left.0.pointwise).abs(), (right.1 - bound.left.1.pointwise).abs()),
            divergence,
            rademacher,
            lipschitz,
            complexity_as_printed,
            complexity,
            gamma,
            gap: half * gamma,
        }
    }

    /// Standard error of `2 sqrt(2) mu R_n`.
    pub fn complexity_error(&self) -> f64 {
        2.0 * 2f64.sqrt() * self.lipschitz * self.rademacher.standard_error
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
