//! Values of fields, and how they compare.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number; yes and no are 1 and 0.
    Number,
    /// A text.
    Text,
    /// A time.
    Time,
    /// A length of time.
    Span,
    /// Nothing in particular.
    Null,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Number => "a number",
            Kind::Text => "a text",
            Kind::Time => "a time",
            Kind::Span => "an interval",
            Kind::Null => "NULL",
        }
    }
}

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// Not known, or none.
    Null,
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(String),
    /// Unix milliseconds.
    Time(u64),
    /// Milliseconds.
    Span(i64),
}

impl Value {
    /// A whole number; one that is too large counts as the largest.
    pub fn int(number: impl TryInto<i64>) -> Value {
        Value::Int(number.try_into().unwrap_or(i64::MAX))
    }

    /// A text.
    pub fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Value::Null => Kind::Null,
            Value::Int(_) | Value::Float(_) => Kind::Number,
            Value::Text(_) => Kind::Text,
            Value::Time(_) => Kind::Time,
            Value::Span(_) => Kind::Span,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match self {
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    /// Compares two values of one kind; `None` if either is not known or they are of different kinds.
    pub(super) fn compare(&self, other: &Value) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Text(a), Value::Text(b)) => Some(a.cmp(b)),
            (Value::Time(a), Value::Time(b)) => Some(a.cmp(b)),
            (Value::Span(a), Value::Span(b)) => Some(a.cmp(b)),
            _ => Some(self.number()?.total_cmp(&other.number()?)),
        }
    }

    /// The order in which rows are told: what is not known first, then by value.
    pub(super) fn order(&self, other: &Value) -> Ordering {
        let rank = |value: &Value| match value.kind() {
            Kind::Null => 0,
            Kind::Number => 1,
            Kind::Time => 2,
            Kind::Span => 3,
            Kind::Text => 4,
        };
        rank(self).cmp(&rank(other)).then_with(|| self.compare(other).unwrap_or(Ordering::Equal))
    }
}
