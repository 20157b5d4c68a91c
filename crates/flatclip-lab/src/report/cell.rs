//! One cell of a table: its text, and the numbers behind it.

use crate::eval::metrics::{Interval, Metrics, Paired};
use serde::{Serialize, Serializer};

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// What is printed.
    pub text: String,
    /// The number behind it, for JSON and for finding the best of a column.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Further numbers that the text shows, by name: a deviation, the ends of an interval, a count. Columns of their own in
    /// CSV.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_object")]
    pub parts: Vec<(&'static str, f64)>,
    /// Best of its column.
    #[serde(skip_serializing_if = "is_false")]
    pub best: bool,
    /// Outside tolerance, or otherwise to be looked at.
    #[serde(skip_serializing_if = "is_false")]
    pub flagged: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn as_object<S: Serializer>(parts: &[(&'static str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(parts.iter().copied())
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number with `digits` decimals.
    pub fn number(value: f64, digits: usize) -> Self {
        Self { text: format!("{value:.digits$}"), value: Some(value), ..Self::default() }
    }

    /// A fraction as per cent with two decimals, as papers print it.
    pub fn percent(fraction: f64) -> Self {
        Self::number(100.0 * fraction, 2)
    }

    pub(crate) fn signed(value: f64, digits: usize) -> Self {
        Self { text: format!("{value:+.digits$}"), ..Self::number(value, digits) }
    }

    pub(crate) fn count(value: usize) -> Self {
        Self::number(value as f64, 0)
    }

    /// A mean over seeds, with the sample standard deviation where there are several.
    pub(crate) fn mean(mean: f64, deviation: Option<f64>, seeds: usize) -> Self {
        let plain = Self::number(mean, 2);
        let Some(deviation) = deviation else { return plain };
        let parts = vec![("standard deviation", deviation), ("seeds", seeds as f64)];
        Self { text: format!("{mean:.2} ± {deviation:.2}"), parts, ..plain }
    }

    /// The two ends of an interval of fractions, in per cent; `show` makes their text.
    pub(crate) fn interval(interval: Option<Interval>, show: impl Fn(f64, f64) -> String) -> Self {
        let Some(Interval { low, high }) = interval else { return Self::none() };
        let (low, high) = (100.0 * low, 100.0 * high);
        Self { text: show(low, high), parts: vec![("low", low), ("high", high)], ..Self::default() }
    }

    /// The difference of two runs in points.
    pub(crate) fn difference(found: &Paired) -> Self {
        Self::signed(100.0 * found.difference, 2)
    }

    pub(crate) fn signed_interval(found: &Paired) -> Self {
        Self::interval(found.interval, |low, high| format!("{low:+.2} to {high:+.2}"))
    }

    /// A p-value; of a very small one it is enough to know that.
    pub(crate) fn p_value(p: f64) -> Self {
        let plain = Self::number(p, 4);
        if p < 1e-4 { Self { text: "< 0.0001".into(), ..plain } } else { plain }
    }

    /// The mean negative log-likelihood, or how many answers leave it undefined.
    pub(crate) fn nll(nll: Option<f64>, infinite: usize) -> Self {
        let parts = vec![("infinite", infinite as f64)];
        match nll {
            Some(nll) => Self { parts, ..Self::number(nll, 4) },
            None => Self { text: format!("undefined ({infinite} infinite)"), parts, ..Self::default() },
        }
    }

    pub(crate) fn nll_of(metrics: &Metrics) -> Self {
        Self::nll(metrics.nll, metrics.infinite_nll)
    }

    /// The same with another text, which also shows a whole number of this name.
    pub(crate) fn with_part(self, text: String, name: &'static str, value: usize) -> Self {
        Self { text, parts: vec![(name, value as f64)], ..self }
    }

    /// The cell of a value, or a dash.
    pub(crate) fn some<T>(value: Option<T>, cell: impl FnOnce(T) -> Self) -> Self {
        value.map_or_else(Self::none, cell)
    }

    /// A dash.
    pub fn none() -> Self {
        Self::text("-")
    }

    /// The same cell, flagged.
    pub fn flag(mut self, flagged: bool) -> Self {
        self.flagged = flagged;
        self
    }
}
