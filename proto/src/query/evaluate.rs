//! Says whether a row meets a condition. A test on what is not known is neither true nor false.

use std::cmp::Ordering;

use super::value::Value;
use super::{Arithmetic, Comparison, Condition, Operand, Query, Test};

/// What a query looks at: something with fields.
pub trait Row {
    /// The value of a field, which is one of those that its source lists.
    fn value(&self, field: &'static str) -> Value;
}

impl Condition {
    /// Says whether `row` meets it at `now`, Unix milliseconds.
    pub fn admits(&self, row: &dyn Row, now: u64) -> bool {
        self.0.of(row, now) == Some(true)
    }
}

impl Query {
    pub(super) fn admits(&self, row: &dyn Row, now: u64) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.admits(row, now))
    }
}

impl Test {
    fn of(&self, row: &dyn Row, now: u64) -> Option<bool> {
        match self {
            Test::All(tests) => every(tests, row, now, false),
            Test::Any(tests) => every(tests, row, now, true),
            Test::Not(test) => test.of(row, now).map(|held| !held),
            Test::Compare(left, comparison, right) => {
                let ordering = left.of(row, now).compare(&right.of(row, now))?;
                Some(comparison.holds(ordering))
            }
            Test::In(operand, values) => {
                let value = operand.of(row, now);
                let found = values.iter().any(|one| value.compare(one) == Some(Ordering::Equal));
                let unknown = value == Value::Null || (!found && values.contains(&Value::Null));
                if unknown { None } else { Some(found) }
            }
            Test::Like(operand, pattern) => match operand.of(row, now) {
                Value::Text(text) => Some(like(&text, pattern)),
                _ => None,
            },
            Test::IsNull(operand) => Some(operand.of(row, now) == Value::Null),
        }
    }
}

/// Whether one of the tests is `decisive`, which decides; not known if none is and some are not known.
fn every(tests: &[Test], row: &dyn Row, now: u64, decisive: bool) -> Option<bool> {
    let mut all = Some(!decisive);
    for test in tests {
        match test.of(row, now) {
            Some(held) if held == decisive => return Some(decisive),
            Some(_) => {}
            None => all = None,
        }
    }
    all
}

impl Comparison {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Comparison::Equal => ordering.is_eq(),
            Comparison::Different => ordering.is_ne(),
            Comparison::Less => ordering.is_lt(),
            Comparison::AtMost => ordering.is_le(),
            Comparison::More => ordering.is_gt(),
            Comparison::AtLeast => ordering.is_ge(),
        }
    }
}

impl Operand {
    fn of(&self, row: &dyn Row, now: u64) -> Value {
        match self {
            Operand::Field(name) => row.value(name),
            Operand::Literal(value) => value.clone(),
            Operand::Now => Value::Time(now),
            Operand::Calculated(left, sign, right) => calculate(&left.of(row, now), *sign, &right.of(row, now)),
        }
    }
}

/// What cannot be calculated is not known.
fn calculate(left: &Value, sign: Arithmetic, right: &Value) -> Value {
    match (left, right) {
        (Value::Time(time), Value::Span(span)) => {
            let span = if sign == Arithmetic::Minus { span.saturating_neg() } else { *span };
            Value::Time(time.saturating_add_signed(span))
        }
        (Value::Span(a), Value::Span(b)) => {
            Value::Span(if sign == Arithmetic::Minus { a.saturating_sub(*b) } else { a.saturating_add(*b) })
        }
        (Value::Int(a), Value::Int(b)) => match sign {
            Arithmetic::And => Value::Int(a & b),
            Arithmetic::Plus => a.checked_add(*b).map_or(Value::Null, Value::Int),
            Arithmetic::Minus => a.checked_sub(*b).map_or(Value::Null, Value::Int),
            Arithmetic::Times => a.checked_mul(*b).map_or(Value::Null, Value::Int),
            Arithmetic::Over if *b == 0 => Value::Null,
            Arithmetic::Over => Value::Float(*a as f64 / *b as f64),
        },
        _ => {
            let (Some(a), Some(b)) = (left.number(), right.number()) else { return Value::Null };
            let result = match sign {
                Arithmetic::Plus => a + b,
                Arithmetic::Minus => a - b,
                Arithmetic::Times => a * b,
                Arithmetic::Over => a / b,
                Arithmetic::And => return Value::Null,
            };
            if result.is_finite() { Value::Float(result) } else { Value::Null }
        }
    }
}

/// `%` stands for any characters, `_` for one; case does not matter, as in the database of the Distributed Crawler. Linear in both but for the
/// way back to the last `%`, so quadratic at worst on texts that are themselves bounded.
pub(super) fn like(text: &str, pattern: &str) -> bool {
    let folded = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<char>>();
    let (text, pattern) = (folded(text), folded(pattern));
    let (mut at, mut in_pattern, mut back) = (0, 0, None);
    while at < text.len() {
        match pattern.get(in_pattern) {
            Some('%') => {
                back = Some((at, in_pattern));
                in_pattern += 1;
            }
            Some(c) if *c == '_' || *c == text[at] => {
                at += 1;
                in_pattern += 1;
            }
            _ => {
                let Some((from, star)) = back else { return false };
                back = Some((from + 1, star));
                (at, in_pattern) = (from + 1, star + 1);
            }
        }
    }
    pattern[in_pattern..].iter().all(|c| *c == '%')
}
