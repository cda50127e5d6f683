//! Where a value is looked for: XPath or CSS, told apart by how it begins unless somebody says.

use super::tree::{Point, Tree};
use super::xpath::{Axis, Expression, Function, RuleError, Scope, Value};
use super::{Exhausted, Fuel, css};

/// A target that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    expression: Expression,
    text: String,
}

/// What a target found: points of the page, or a value that was computed.
pub(super) enum Found {
    Points(Vec<Point>),
    Text(String),
}

impl Target {
    /// Reads a target. XPath begins with `/`, `(`, `.`, `@`, a function, or `xpath:`; everything else, and what begins with `css:`, is CSS.
    pub fn parse(text: &str) -> Result<Target, RuleError> {
        let trimmed = text.trim_start();
        let shifted = |rest: &str, error: RuleError| {
            let before = text.chars().count() - rest.chars().count();
            RuleError { at: error.at + before, ..error }
        };
        let (read, rest) = if let Some(rest) = trimmed.strip_prefix("xpath:") {
            (Expression::parse(rest), rest)
        } else if let Some(rest) = trimmed.strip_prefix("css:") {
            (css::parse(rest), rest)
        } else if is_xpath(trimmed) {
            (Expression::parse(trimmed), trimmed)
        } else {
            (css::parse(trimmed), trimmed)
        };
        let expression = read.map_err(|error| shifted(rest, error))?;
        Ok(Target { expression, text: text.to_owned() })
    }

    /// Reads XPath.
    pub fn xpath(text: &str) -> Result<Target, RuleError> {
        Ok(Target { expression: Expression::parse(text)?, text: text.to_owned() })
    }

    /// Reads CSS.
    pub fn css(text: &str) -> Result<Target, RuleError> {
        Ok(Target { expression: css::parse(text)?, text: text.to_owned() })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn find(&self, tree: &Tree, from: Point, fuel: &mut Fuel) -> Result<Found, Exhausted> {
        Ok(match self.expression.evaluate(Scope::new(tree, from), fuel)? {
            Value::Nodes(points) => Found::Points(points),
            // What is not there is no value, and neither is "false".
            Value::Truth(false) => Found::Text(String::new()),
            Value::Number(number) if number.is_nan() => Found::Text(String::new()),
            other => Found::Text(other.into_text(tree, fuel)?.into_owned()),
        })
    }

    /// Whether it holds: nodes are found, or what is computed counts as true.
    pub(super) fn holds(&self, tree: &Tree, fuel: &mut Fuel) -> Result<bool, Exhausted> {
        Ok(self.expression.evaluate(Scope::new(tree, Tree::ROOT), fuel)?.truth())
    }

    /// The references that it finds on a page: values of attributes and texts as they stand there; of an element what it refers to, or its text.
    pub fn references(&self, tree: &Tree, fuel: &mut Fuel) -> Result<Vec<String>, Exhausted> {
        let points = match self.find(tree, Tree::ROOT, fuel)? {
            Found::Points(points) => points,
            Found::Text(text) => return Ok(vec![text]),
        };
        let mut found = Vec::with_capacity(points.len());
        for point in points {
            let own = ["href", "src"].iter().find_map(|name| tree.attribute(point.node, name));
            found.push(match own.filter(|_| point.attribute == 0) {
                Some(reference) => {
                    fuel.burn_text(reference)?;
                    reference.to_owned()
                }
                None => Value::Nodes(vec![point]).into_text(tree, fuel)?.into_owned(),
            });
        }
        Ok(found)
    }

    /// The texts that it finds on a page, at most `fuel` worth of looking: for tests of rules.
    pub fn texts(&self, tree: &Tree, fuel: &mut Fuel) -> Result<Vec<String>, Exhausted> {
        Ok(match self.find(tree, Tree::ROOT, fuel)? {
            Found::Points(points) => {
                let mut texts = Vec::with_capacity(points.len());
                for point in points {
                    texts.push(Value::Nodes(vec![point]).into_text(tree, fuel)?.into_owned());
                }
                texts
            }
            Found::Text(text) => vec![text],
        })
    }
}

fn is_xpath(text: &str) -> bool {
    // A class begins with a point too, and then a name follows.
    let steps = ["/", "(", "@", "./", "../"];
    let is_value = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '\'' | '"'));
    let is_axis =
        Axis::NAMES.iter().any(|(name, _)| text.strip_prefix(name).is_some_and(|rest| rest.starts_with("::")));
    is_value
        || is_axis
        || steps.iter().any(|begin| text.starts_with(begin))
        || matches!(text.trim_end(), "." | "..")
        || Function::begins(text)
}
