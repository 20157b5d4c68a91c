//! Which numbers an option takes.

use super::Value;
use std::fmt;
use std::ops::{Bound, RangeBounds};

/// An interval of finite numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    low: Bound<f64>,
    high: Bound<f64>,
}

impl Range {
    /// Every finite number, and whatever is not a number.
    pub const ANY: Self = Self { low: Bound::Unbounded, high: Bound::Unbounded };

    /// `low` and more.
    pub const fn at_least(low: f64) -> Self {
        Self { low: Bound::Included(low), high: Bound::Unbounded }
    }

    /// More than `low`.
    pub const fn above(low: f64) -> Self {
        Self { low: Bound::Excluded(low), high: Bound::Unbounded }
    }

    /// `low` to `high`, both included.
    pub const fn between(low: f64, high: f64) -> Self {
        Self { low: Bound::Included(low), high: Bound::Included(high) }
    }

    /// `low` to `high` without `high` itself.
    pub const fn from_below(low: f64, high: f64) -> Self {
        Self { low: Bound::Included(low), high: Bound::Excluded(high) }
    }

    /// Above 0, up to 1.
    pub const fn fraction() -> Self {
        Self { low: Bound::Excluded(0.0), high: Bound::Included(1.0) }
    }

    /// 0 to `high`.
    pub const fn up_to(high: f64) -> Self {
        Self::between(0.0, high)
    }

    /// Whether there is a bound at all.
    pub fn is_bounded(&self) -> bool {
        *self != Self::ANY
    }

    /// The lower and the upper bound.
    pub fn bounds(&self) -> (Bound<f64>, Bound<f64>) {
        (self.low, self.high)
    }

    /// Whether a number is finite and inside.
    pub fn contains(&self, number: f64) -> bool {
        number.is_finite() && (self.low, self.high).contains(&number)
    }

    /// Whether every number of a value is inside.
    pub fn holds(&self, value: &Value) -> bool {
        match value {
            Value::Float(number) => self.contains(*number),
            Value::Integer(number) => self.contains(*number as f64),
            Value::Array(values) => values.iter().all(|value| self.holds(value)),
            _ => true,
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.low, self.high) {
            (Bound::Included(low), Bound::Included(high)) => write!(f, "from {low} to {high}"),
            (Bound::Included(low), Bound::Excluded(high)) => write!(f, "from {low} to below {high}"),
            (Bound::Excluded(low), Bound::Included(high)) => write!(f, "above {low}, up to {high}"),
            (Bound::Excluded(low), Bound::Excluded(high)) => write!(f, "above {low}, below {high}"),
            (Bound::Included(low), Bound::Unbounded) => write!(f, "at least {low}"),
            (Bound::Excluded(low), Bound::Unbounded) => write!(f, "above {low}"),
            (Bound::Unbounded, Bound::Included(high)) => write!(f, "up to {high}"),
            (Bound::Unbounded, Bound::Excluded(high)) => write!(f, "below {high}"),
            (Bound::Unbounded, Bound::Unbounded) => Ok(()),
        }
    }
}
