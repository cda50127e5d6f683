//! XPath 1.0 over a [`Tree`](super::tree::Tree), as people use it to take pages apart. Namespaces are left out: names are compared as they are written, and
//! those of HTML without regard to case.
//!
//! Everything that can be wrong with an expression is found when it is read, kinds of values included: a rule that was accepted never fails
//! later. What it may cost is bounded by [`Fuel`](super::Fuel).

mod evaluate;
mod function;
mod parse;
#[cfg(test)]
mod tests;
mod token;

pub(super) use self::evaluate::{Scope, Value};
pub(super) use self::function::Function;

/// Characters of an expression.
pub const EXPRESSION_CHARS_MAX: usize = 4_096;
/// Levels of brackets.
const DEPTH_MAX: usize = 32;

/// What is wrong with a rule, and where: the number of the character, from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {what}")]
pub struct RuleError {
    /// The character.
    pub at: usize,
    /// What is wrong with it.
    pub what: String,
}

impl RuleError {
    pub(super) fn new(at: usize, what: impl Into<String>) -> RuleError {
        RuleError { at, what: what.into() }
    }
}

/// Kinds of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Nodes,
    Text,
    Number,
    Truth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Ancestor,
    AncestorOrSelf,
    Attribute,
    Child,
    Descendant,
    DescendantOrSelf,
    Following,
    FollowingSibling,
    Parent,
    Preceding,
    PrecedingSibling,
    Itself,
}

impl Axis {
    pub(super) const NAMES: [(&'static str, Axis); 12] = [
        ("ancestor", Axis::Ancestor),
        ("ancestor-or-self", Axis::AncestorOrSelf),
        ("attribute", Axis::Attribute),
        ("child", Axis::Child),
        ("descendant", Axis::Descendant),
        ("descendant-or-self", Axis::DescendantOrSelf),
        ("following", Axis::Following),
        ("following-sibling", Axis::FollowingSibling),
        ("parent", Axis::Parent),
        ("preceding", Axis::Preceding),
        ("preceding-sibling", Axis::PrecedingSibling),
        ("self", Axis::Itself),
    ];
}

/// Which nodes of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// `node()`.
    Node,
    /// `text()`.
    Text,
    /// `comment()`.
    Comment,
    /// `*`.
    Any,
    Name(String),
    /// `prefix:*`.
    Prefix(String),
    /// `processing-instruction()`: trees have none.
    Nothing,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) axis: Axis,
    pub(super) test: Test,
    pub(super) predicates: Vec<Expression>,
    /// Whether a predicate looks at positions.
    pub(super) positional: bool,
}

impl Step {
    pub(super) fn new(axis: Axis, test: Test, predicates: Vec<Expression>) -> Step {
        let positional = predicates.iter().any(Expression::is_positional);
        Step { axis, test, predicates, positional }
    }
}

/// An expression that was understood.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Or(Box<Expression>, Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Compare(Comparison, Box<Expression>, Box<Expression>),
    Compute(Arithmetic, Box<Expression>, Box<Expression>),
    Negative(Box<Expression>),
    Union(Vec<Expression>),
    /// Steps from the node at hand, or from the top of the page.
    Path {
        absolute: bool,
        steps: Vec<Step>,
    },
    /// Steps from what another expression gives.
    From {
        base: Box<Expression>,
        predicates: Vec<Expression>,
        steps: Vec<Step>,
    },
    Text(String),
    Number(f64),
    Call(Function, Vec<Expression>),
    /// Of CSS: the element is the `every * n + offset`-th of its parent, for an `n` from 0 on.
    Nth {
        every: i64,
        offset: i64,
        of_type: bool,
        from_end: bool,
    },
}

impl Expression {
    /// Reads XPath.
    pub(super) fn parse(text: &str) -> Result<Expression, RuleError> {
        parse::expression(text)
    }

    /// The kind of its value.
    pub(super) fn kind(&self) -> ValueKind {
        match self {
            Expression::Or(..) | Expression::And(..) | Expression::Compare(..) | Expression::Nth { .. } => {
                ValueKind::Truth
            }
            Expression::Compute(..) | Expression::Negative(_) | Expression::Number(_) => ValueKind::Number,
            Expression::Union(_) | Expression::Path { .. } | Expression::From { .. } => ValueKind::Nodes,
            Expression::Text(_) => ValueKind::Text,
            Expression::Call(function, _) => function.kind(),
        }
    }

    /// Whether, as a predicate, it looks at the position of a node.
    pub(super) fn is_positional(&self) -> bool {
        self.kind() == ValueKind::Number || self.asks_position()
    }

    fn asks_position(&self) -> bool {
        match self {
            Expression::Call(Function::Position | Function::Last, _) => true,
            Expression::Call(_, inner) | Expression::Union(inner) => inner.iter().any(Expression::asks_position),
            Expression::Or(a, b)
            | Expression::And(a, b)
            | Expression::Compare(_, a, b)
            | Expression::Compute(_, a, b) => a.asks_position() || b.asks_position(),
            Expression::Negative(inner) => inner.asks_position(),
            Expression::From { base, .. } => base.asks_position(),
            // Steps have positions of their own.
            Expression::Path { .. } | Expression::Text(_) | Expression::Number(_) | Expression::Nth { .. } => false,
        }
    }
}
