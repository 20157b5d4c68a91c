//! What values and which numbers an option takes.

use super::Value;
use serde::Serialize;
use std::fmt;
use std::ops::{Bound, RangeBounds};

/// One of the names that a choice takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// As it is written; a name that ends in `:Q` is followed by a positive number in the place of `Q`.
    pub name: &'static str,
    /// What it means.
    pub sentence: &'static str,
}

impl Choice {
    /// The number of `NAME:Q`, where the text has that form.
    pub fn parameter(&self, text: &str) -> Option<f64> {
        let number = text.strip_prefix(self.name.strip_suffix('Q').filter(|name| name.ends_with(':'))?)?;
        number.parse().ok().filter(|q: &f64| q.is_finite() && *q > 0.0)
    }

    fn accepts(&self, text: &str) -> bool {
        match self.name.ends_with(":Q") {
            true => self.parameter(text).is_some(),
            false => self.name == text,
        }
    }
}

/// The type of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// A finite number; an integer is accepted.
    Number,
    /// A whole number that is not negative.
    Integer,
    /// True or false.
    Flag,
    /// One of some names.
    Choice(&'static [Choice]),
    /// Any text.
    Text,
    /// Values of one kind: so many, or any number of them.
    List(&'static OptionKind, Option<usize>),
}

impl OptionKind {
    /// A word for tables and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Flag => "flag",
            Self::Choice(_) => "choice",
            Self::Text => "text",
            Self::List(..) => "list",
        }
    }

    /// The value as it is kept; `None` if it is of another kind.
    pub(super) fn accept(&self, value: &Value) -> Option<Value> {
        match (self, value) {
            (Self::Number, Value::Integer(number)) => Some(Value::Float(*number as f64)),
            (Self::Number, Value::Float(number)) if number.is_finite() => Some(value.clone()),
            (Self::Integer, Value::Integer(number)) if *number >= 0 => Some(value.clone()),
            (Self::Flag, Value::Boolean(_)) | (Self::Text, Value::String(_)) => Some(value.clone()),
            (Self::Choice(choices), Value::String(text)) => {
                choices.iter().any(|choice| choice.accepts(text)).then(|| value.clone())
            }
            (Self::List(kind, length), Value::Array(values)) if length.is_none_or(|n| n == values.len()) => {
                values.iter().map(|value| kind.accept(value)).collect::<Option<_>>().map(Value::Array)
            }
            _ => None,
        }
    }
}

impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number => write!(f, "a number"),
            Self::Integer => write!(f, "a whole number"),
            Self::Flag => write!(f, "true or false"),
            Self::Choice(choices) => {
                let names: Vec<&str> = choices.iter().map(|choice| choice.name).collect();
                write!(f, "one of {}", names.join(", "))
            }
            Self::Text => write!(f, "a text"),
            Self::List(kind, Some(length)) => write!(f, "a list of {length}, each {kind}"),
            Self::List(kind, None) => write!(f, "a list, each {kind}"),
        }
    }
}

/// A type that an option can have. [`choices!`](crate::choices!) implements it for enums.
pub trait OptionValue: Sized {
    /// Which values it takes.
    const KIND: OptionKind;

    /// From a value of its kind.
    fn from_value(value: &Value) -> Option<Self>;

    /// As a value.
    fn to_value(&self) -> Value;
}

impl OptionValue for f64 {
    const KIND: OptionKind = OptionKind::Number;
    fn from_value(value: &Value) -> Option<Self> {
        value.as_float()
    }
    fn to_value(&self) -> Value {
        Value::Float(*self)
    }
}

impl OptionValue for usize {
    const KIND: OptionKind = OptionKind::Integer;
    fn from_value(value: &Value) -> Option<Self> {
        value.as_integer().and_then(|number| Self::try_from(number).ok())
    }
    fn to_value(&self) -> Value {
        // TOML's integers end at 2^63 - 1.
        Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

impl OptionValue for bool {
    const KIND: OptionKind = OptionKind::Flag;
    fn from_value(value: &Value) -> Option<Self> {
        value.as_bool()
    }
    fn to_value(&self) -> Value {
        Value::Boolean(*self)
    }
}

impl OptionValue for String {
    const KIND: OptionKind = OptionKind::Text;
    fn from_value(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
    fn to_value(&self) -> Value {
        Value::String(self.clone())
    }
}

impl<T: OptionValue> OptionValue for Vec<T> {
    const KIND: OptionKind = OptionKind::List(&T::KIND, None);
    fn from_value(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_value).collect()
    }
    fn to_value(&self) -> Value {
        Value::Array(self.iter().map(T::to_value).collect())
    }
}

impl<T: OptionValue, const N: usize> OptionValue for [T; N] {
    const KIND: OptionKind = OptionKind::List(&T::KIND, Some(N));
    fn from_value(value: &Value) -> Option<Self> {
        Vec::from_value(value)?.try_into().ok()
    }
    fn to_value(&self) -> Value {
        Value::Array(self.iter().map(T::to_value).collect())
    }
}

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
            (Bound::Included(low), Bound::Unbounded) => write!(f, "at least {low}"),
            (Bound::Excluded(low), Bound::Unbounded) => write!(f, "above {low}"),
            // No other range can be made.
            _ => Ok(()),
        }
    }
}
