//! What values an option takes.

use super::Value;
use serde::Serialize;
use std::fmt;

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
