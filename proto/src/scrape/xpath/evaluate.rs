//! What an expression gives for a page. Every node that is looked at and every text that is read costs [`Fuel`]; when there is none left, it ends.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::super::tree::{Kind, Point, Tree};
use super::super::{Exhausted, Fuel};
use super::{Arithmetic, Axis, Comparison, Expression, Function, Step, Test};

/// What an expression gives. Nodes are in the order of the document, each once.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::scrape) enum Value<'t> {
    Nodes(Vec<Point>),
    Text(Cow<'t, str>),
    Number(f64),
    Truth(bool),
}

/// The node at hand and its place among those that were found with it.
#[derive(Clone, Copy, Debug)]
pub(in crate::scrape) struct Scope<'t> {
    pub(in crate::scrape) tree: &'t Tree,
    pub(in crate::scrape) point: Point,
    pub(in crate::scrape) position: usize,
    pub(in crate::scrape) size: usize,
}

type Given<T> = Result<T, Exhausted>;

impl<'t> Scope<'t> {
    /// A node alone.
    pub(in crate::scrape) fn new(tree: &'t Tree, point: Point) -> Scope<'t> {
        Scope { tree, point, position: 1, size: 1 }
    }

    fn text(&self, point: Point, fuel: &mut Fuel) -> Given<Cow<'t, str>> {
        text_of(self.tree, point, fuel)
    }
}

/// The text of a point; its length is paid for, and so is every node under it.
fn text_of<'t>(tree: &'t Tree, point: Point, fuel: &mut Fuel) -> Given<Cow<'t, str>> {
    if point.attribute == 0 {
        fuel.burn(u64::from(tree.at(point.node).end - point.node))?;
    }
    let text = tree.text_of(point);
    fuel.burn_text(&text)?;
    Ok(text)
}

impl<'t> Value<'t> {
    /// As a text: of nodes that of the first.
    pub(in crate::scrape) fn into_text(self, tree: &'t Tree, fuel: &mut Fuel) -> Given<Cow<'t, str>> {
        Ok(match self {
            Value::Nodes(nodes) => match nodes.first() {
                Some(first) => text_of(tree, *first, fuel)?,
                None => Cow::Borrowed(""),
            },
            Value::Text(text) => text,
            Value::Number(number) => Cow::Owned(text_of_number(number)),
            Value::Truth(truth) => Cow::Borrowed(if truth { "true" } else { "false" }),
        })
    }

    fn into_number(self, tree: &'t Tree, fuel: &mut Fuel) -> Given<f64> {
        Ok(match self {
            Value::Number(number) => number,
            Value::Truth(truth) => f64::from(u8::from(truth)),
            other => number_of(&other.into_text(tree, fuel)?),
        })
    }

    /// Whether it counts as true.
    pub(in crate::scrape) fn truth(&self) -> bool {
        match self {
            Value::Nodes(nodes) => !nodes.is_empty(),
            Value::Text(text) => !text.is_empty(),
            Value::Number(number) => *number != 0.0 && !number.is_nan(),
            Value::Truth(truth) => *truth,
        }
    }
}

fn text_of_number(number: f64) -> String {
    match number {
        n if n.is_nan() => "NaN".to_owned(),
        n if n.is_infinite() => if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        0.0 => "0".to_owned(), // and the negative one
        n => n.to_string(),
    }
}

/// XPath knows neither exponents nor a plus.
fn number_of(text: &str) -> f64 {
    let text = text.trim_matches([' ', '\t', '\r', '\n']);
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_number { text.parse().unwrap_or(f64::NAN) } else { f64::NAN }
}

impl Expression {
    /// What it gives for a node.
    pub(in crate::scrape) fn evaluate<'t>(&self, scope: Scope<'t>, fuel: &mut Fuel) -> Given<Value<'t>> {
        fuel.burn(1)?;
        let tree = scope.tree;
        Ok(match self {
            Expression::Or(a, b) => Value::Truth(a.evaluate(scope, fuel)?.truth() || b.evaluate(scope, fuel)?.truth()),
            Expression::And(a, b) => Value::Truth(a.evaluate(scope, fuel)?.truth() && b.evaluate(scope, fuel)?.truth()),
            Expression::Compare(comparison, a, b) => {
                let (a, b) = (a.evaluate(scope, fuel)?, b.evaluate(scope, fuel)?);
                Value::Truth(compare(*comparison, a, b, tree, fuel)?)
            }
            Expression::Compute(operator, a, b) => {
                let a = a.evaluate(scope, fuel)?.into_number(tree, fuel)?;
                let b = b.evaluate(scope, fuel)?.into_number(tree, fuel)?;
                Value::Number(match operator {
                    Arithmetic::Add => a + b,
                    Arithmetic::Subtract => a - b,
                    Arithmetic::Multiply => a * b,
                    Arithmetic::Divide => a / b,
                    Arithmetic::Remainder => a % b,
                })
            }
            Expression::Negative(inner) => Value::Number(-inner.evaluate(scope, fuel)?.into_number(tree, fuel)?),
            Expression::Union(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    all.extend(part.nodes(scope, fuel)?);
                }
                Value::Nodes(in_order(all))
            }
            Expression::Path { absolute, steps } => {
                let from = vec![if *absolute { Tree::ROOT } else { scope.point }];
                Value::Nodes(walk(tree, from, steps, fuel)?)
            }
            Expression::From { base, predicates, steps } => {
                let mut nodes = base.nodes(scope, fuel)?;
                for predicate in predicates {
                    nodes = kept(tree, nodes, predicate, fuel)?;
                }
                Value::Nodes(walk(tree, nodes, steps, fuel)?)
            }
            Expression::Text(text) => Value::Text(Cow::Owned(text.clone())),
            Expression::Number(number) => Value::Number(*number),
            Expression::Call(function, arguments) => call(*function, arguments, scope, fuel)?,
            Expression::Nth { every, offset, of_type, from_end } => {
                let place = place_of(tree, scope.point, *of_type, *from_end, fuel)?;
                Value::Truth(place.is_some_and(|place| is_nth(place, *every, *offset)))
            }
        })
    }

    /// The nodes that it gives; none if it gives something else.
    pub(in crate::scrape) fn nodes(&self, scope: Scope<'_>, fuel: &mut Fuel) -> Given<Vec<Point>> {
        match self.evaluate(scope, fuel)? {
            Value::Nodes(nodes) => Ok(nodes),
            _ => Ok(Vec::new()),
        }
    }
}

fn in_order(mut nodes: Vec<Point>) -> Vec<Point> {
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Goes the steps from nodes that are in order.
fn walk(tree: &Tree, mut nodes: Vec<Point>, steps: &[Step], fuel: &mut Fuel) -> Given<Vec<Point>> {
    for step in steps {
        let (mut next, mut covered) = (Vec::new(), 0);
        let downwards = matches!(step.axis, Axis::Descendant | Axis::DescendantOrSelf) && !step.positional;
        for point in &nodes {
            // What is below a node was met when the steps from that node were gone.
            if downwards && point.node < covered {
                continue;
            }
            covered = tree.at(point.node).end;
            let mut found = Vec::new();
            along(tree, *point, step, &mut found, fuel)?;
            for predicate in &step.predicates {
                found = kept(tree, found, predicate, fuel)?;
            }
            next.extend(found);
        }
        nodes = in_order(next);
    }
    Ok(nodes)
}

/// The nodes of which a predicate is true; a number is a position.
fn kept(tree: &Tree, nodes: Vec<Point>, predicate: &Expression, fuel: &mut Fuel) -> Given<Vec<Point>> {
    if let Expression::Number(wanted) = predicate {
        let at = (*wanted >= 1.0 && wanted.fract() == 0.0).then_some(*wanted as usize - 1);
        return Ok(at.and_then(|at| nodes.get(at).copied()).into_iter().collect());
    }
    let size = nodes.len();
    let mut kept = Vec::new();
    for (at, point) in nodes.into_iter().enumerate() {
        let value = predicate.evaluate(Scope { tree, point, position: at + 1, size }, fuel)?;
        let holds = match value {
            Value::Number(number) => number == (at + 1) as f64,
            other => other.truth(),
        };
        if holds {
            kept.push(point);
        }
    }
    Ok(kept)
}

/// The nodes of an axis that pass the test, in the order of the axis: away from the node.
fn along(tree: &Tree, from: Point, step: &Step, found: &mut Vec<Point>, fuel: &mut Fuel) -> Given<()> {
    let node = tree.at(from.node);
    let is_attribute = from.attribute > 0;
    let mut look = |point: Point, fuel: &mut Fuel| -> Given<()> {
        fuel.burn(1)?;
        if passes(tree, point, step) {
            found.push(point);
        }
        Ok(())
    };
    match step.axis {
        Axis::Itself => look(from, fuel)?,
        Axis::Parent if is_attribute => look(Point::node(from.node), fuel)?,
        Axis::Parent => {
            if from.node > 0 {
                look(Point::node(node.parent), fuel)?;
            }
        }
        Axis::Ancestor | Axis::AncestorOrSelf => {
            if step.axis == Axis::AncestorOrSelf {
                look(from, fuel)?;
            }
            let mut at = from.node;
            if is_attribute {
                look(Point::node(at), fuel)?;
            }
            while at > 0 {
                at = tree.at(at).parent;
                look(Point::node(at), fuel)?;
            }
        }
        Axis::Attribute => {
            if let (Kind::Element { attributes, .. }, false) = (&node.kind, is_attribute) {
                for n in 1..=attributes.len() as u32 {
                    look(Point { node: from.node, attribute: n }, fuel)?;
                }
            }
        }
        Axis::Child if !is_attribute => {
            for child in tree.children(from.node) {
                look(Point::node(child), fuel)?;
            }
        }
        Axis::Descendant | Axis::DescendantOrSelf => {
            if step.axis == Axis::DescendantOrSelf {
                look(from, fuel)?;
            }
            if !is_attribute {
                for below in from.node + 1..node.end {
                    look(Point::node(below), fuel)?;
                }
            }
        }
        Axis::Following => {
            let first = if is_attribute { from.node + 1 } else { node.end };
            for after in first..tree.len() as u32 {
                look(Point::node(after), fuel)?;
            }
        }
        Axis::Preceding => {
            for before in (1..from.node).rev() {
                fuel.burn(1)?;
                // An ancestor is no brother of anybody here.
                if tree.at(before).end <= from.node {
                    look(Point::node(before), fuel)?;
                }
            }
        }
        Axis::FollowingSibling if !is_attribute && from.node > 0 => {
            let end = tree.at(node.parent).end;
            let mut at = node.end;
            while at < end {
                look(Point::node(at), fuel)?;
                at = tree.at(at).end;
            }
        }
        Axis::PrecedingSibling if !is_attribute && from.node > 0 => {
            let before: Vec<u32> = tree.children(node.parent).take_while(|brother| *brother < from.node).collect();
            fuel.burn(before.len() as u64)?;
            for brother in before.into_iter().rev() {
                look(Point::node(brother), fuel)?;
            }
        }
        Axis::Child | Axis::FollowingSibling | Axis::PrecedingSibling => {}
    }
    Ok(())
}

fn passes(tree: &Tree, point: Point, step: &Step) -> bool {
    let kind = &tree.at(point.node).kind;
    // On the axis of attributes a name means an attribute, on all others an element.
    let principal = match step.axis {
        Axis::Attribute => point.attribute > 0,
        _ => point.attribute == 0 && matches!(kind, Kind::Element { .. }),
    };
    match &step.test {
        Test::Node => true,
        Test::Text => point.attribute == 0 && matches!(kind, Kind::Text(_)),
        Test::Comment => point.attribute == 0 && matches!(kind, Kind::Comment(_)),
        Test::Nothing => false,
        Test::Any => principal,
        Test::Name(name) => principal && is_named(tree, tree.name_of(point), name),
        Test::Prefix(prefix) => {
            principal && tree.name_of(point).split_once(':').is_some_and(|(own, _)| is_named(tree, own, prefix))
        }
    }
}

fn is_named(tree: &Tree, own: &str, name: &str) -> bool {
    if tree.html { own.eq_ignore_ascii_case(name) } else { own == name }
}

fn compare<'t>(comparison: Comparison, a: Value<'t>, b: Value<'t>, tree: &'t Tree, fuel: &mut Fuel) -> Given<bool> {
    let equality = matches!(comparison, Comparison::Equal | Comparison::Different);
    match (a, b) {
        (Value::Nodes(a), Value::Nodes(b)) => compare_nodes(comparison, &a, &b, tree, fuel),
        (Value::Nodes(nodes), Value::Truth(truth)) | (Value::Truth(truth), Value::Nodes(nodes)) if equality => {
            Ok((truth != nodes.is_empty()) == (comparison == Comparison::Equal))
        }
        (Value::Nodes(nodes), other) => {
            for node in nodes {
                let own = text_of(tree, node, fuel)?;
                if compare_single(comparison, Value::Text(own), other.clone(), tree, fuel)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (other, Value::Nodes(nodes)) => {
            for node in nodes {
                let own = text_of(tree, node, fuel)?;
                if compare_single(comparison, other.clone(), Value::Text(own), tree, fuel)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (a, b) => compare_single(comparison, a, b, tree, fuel),
    }
}

fn compare_single<'t>(
    comparison: Comparison,
    a: Value<'t>,
    b: Value<'t>,
    tree: &'t Tree,
    fuel: &mut Fuel,
) -> Given<bool> {
    fuel.burn(1)?;
    if matches!(comparison, Comparison::Equal | Comparison::Different) {
        let equal = match (a, b) {
            (Value::Truth(truth), other) | (other, Value::Truth(truth)) => truth == other.truth(),
            (Value::Text(a), Value::Text(b)) => a == b,
            (a, b) => a.into_number(tree, fuel)? == b.into_number(tree, fuel)?,
        };
        return Ok(equal == (comparison == Comparison::Equal));
    }
    let (a, b) = (a.into_number(tree, fuel)?, b.into_number(tree, fuel)?);
    Ok(match comparison {
        Comparison::Less => a < b,
        Comparison::LessOrEqual => a <= b,
        Comparison::Greater => a > b,
        _ => a >= b,
    })
}

/// Two sets: is there a pair of which it is true? Never by trying all pairs.
fn compare_nodes(comparison: Comparison, a: &[Point], b: &[Point], tree: &Tree, fuel: &mut Fuel) -> Given<bool> {
    let mut texts = |nodes: &[Point]| -> Given<BTreeSet<String>> {
        nodes.iter().map(|node| text_of(tree, *node, fuel).map(Cow::into_owned)).collect()
    };
    let (a, b) = (texts(a)?, texts(b)?);
    let least = |texts: &BTreeSet<String>| texts.iter().map(|text| number_of(text)).fold(f64::NAN, f64::min);
    let most = |texts: &BTreeSet<String>| texts.iter().map(|text| number_of(text)).fold(f64::NAN, f64::max);
    Ok(match comparison {
        Comparison::Equal => !a.is_disjoint(&b),
        Comparison::Different => !a.is_empty() && !b.is_empty() && (a.len() > 1 || b.len() > 1 || a != b),
        Comparison::Less => least(&a) < most(&b),
        Comparison::LessOrEqual => least(&a) <= most(&b),
        Comparison::Greater => most(&a) > least(&b),
        Comparison::GreaterOrEqual => most(&a) >= least(&b),
    })
}

/// The place of an element among the elements of its parent, from 1.
fn place_of(tree: &Tree, point: Point, of_type: bool, from_end: bool, fuel: &mut Fuel) -> Given<Option<i64>> {
    if point.attribute > 0 || point.node == 0 || !matches!(tree.at(point.node).kind, Kind::Element { .. }) {
        return Ok(None);
    }
    let name = tree.name_of(point);
    let mut place = 0;
    for brother in tree.children(tree.at(point.node).parent) {
        fuel.burn(1)?;
        let counts = matches!(tree.at(brother).kind, Kind::Element { .. })
            && (!of_type || tree.name_of(Point::node(brother)) == name)
            && if from_end { brother >= point.node } else { brother <= point.node };
        place += i64::from(counts);
    }
    Ok(Some(place))
}

fn is_nth(place: i64, every: i64, offset: i64) -> bool {
    let beyond = place.saturating_sub(offset);
    if every == 0 { beyond == 0 } else { beyond % every == 0 && beyond / every >= 0 }
}

fn call<'t>(function: Function, arguments: &[Expression], scope: Scope<'t>, fuel: &mut Fuel) -> Given<Value<'t>> {
    let tree = scope.tree;
    // What is said of the node at hand when a function has no argument.
    fn text<'t>(at: usize, arguments: &[Expression], scope: Scope<'t>, fuel: &mut Fuel) -> Given<Cow<'t, str>> {
        let text = match arguments.get(at) {
            Some(argument) => argument.evaluate(scope, fuel)?.into_text(scope.tree, fuel)?,
            None => scope.text(scope.point, fuel)?,
        };
        fuel.burn_text(&text)?;
        Ok(text)
    }
    let number = |at: usize, fuel: &mut Fuel| arguments[at].evaluate(scope, fuel)?.into_number(tree, fuel);
    let named = |fuel: &mut Fuel| -> Given<&'t str> {
        let point = match arguments.first() {
            Some(argument) => argument.nodes(scope, fuel)?.first().copied(),
            None => Some(scope.point),
        };
        Ok(point.map_or("", |point| tree.name_of(point)))
    };
    let mut two = || -> Given<(Cow<'t, str>, Cow<'t, str>)> {
        Ok((text(0, arguments, scope, fuel)?, text(1, arguments, scope, fuel)?))
    };
    Ok(match function {
        Function::Last => Value::Number(scope.size as f64),
        Function::Position => Value::Number(scope.position as f64),
        Function::Count => Value::Number(arguments[0].nodes(scope, fuel)?.len() as f64),
        Function::Id => Value::Nodes(with_ids(&arguments[0], scope, fuel)?),
        Function::LocalName => Value::Text(Cow::Borrowed(named(fuel)?.rsplit(':').next().unwrap_or_default())),
        Function::Name => Value::Text(Cow::Borrowed(named(fuel)?)),
        Function::NamespaceUri => Value::Text(Cow::Borrowed("")),
        Function::Text => Value::Text(text(0, arguments, scope, fuel)?),
        Function::Concat => {
            let mut all = String::new();
            for at in 0..arguments.len() {
                all.push_str(&text(at, arguments, scope, fuel)?);
            }
            Value::Text(Cow::Owned(all))
        }
        Function::StartsWith => two().map(|(a, b)| Value::Truth(a.starts_with(&*b)))?,
        Function::EndsWith => two().map(|(a, b)| Value::Truth(a.ends_with(&*b)))?,
        Function::Contains => two().map(|(a, b)| Value::Truth(a.contains(&*b)))?,
        Function::SubstringBefore => {
            let (a, b) = two()?;
            Value::Text(Cow::Owned(a.split_once(&*b).map_or("", |(before, _)| before).to_owned()))
        }
        Function::SubstringAfter => {
            let (a, b) = two()?;
            Value::Text(Cow::Owned(a.split_once(&*b).map_or("", |(_, after)| after).to_owned()))
        }
        Function::Substring => {
            let whole = text(0, arguments, scope, fuel)?;
            // Positions from 1, rounded; a character counts if it stands at or after the first and before the end.
            let first = rounded(number(1, fuel)?);
            let end = if arguments.len() > 2 { first + rounded(number(2, fuel)?) } else { f64::INFINITY };
            let wanted = |(at, c): (usize, char)| (at as f64 + 1.0 >= first && at as f64 + 1.0 < end).then_some(c);
            Value::Text(Cow::Owned(whole.chars().enumerate().filter_map(wanted).collect()))
        }
        Function::StringLength => Value::Number(text(0, arguments, scope, fuel)?.chars().count() as f64),
        Function::NormalizeSpace => {
            let whole = text(0, arguments, scope, fuel)?;
            Value::Text(Cow::Owned(whole.split_whitespace().collect::<Vec<_>>().join(" ")))
        }
        Function::Translate => {
            let whole = text(0, arguments, scope, fuel)?;
            let from: Vec<char> = text(1, arguments, scope, fuel)?.chars().collect();
            let to: Vec<char> = text(2, arguments, scope, fuel)?.chars().collect();
            fuel.burn(from.len() as u64 * (whole.len() as u64 / 16 + 1))?;
            let turned = |c: char| match from.iter().position(|known| *known == c) {
                Some(at) => to.get(at).copied(),
                None => Some(c),
            };
            Value::Text(Cow::Owned(whole.chars().filter_map(turned).collect()))
        }
        Function::LowerCase => Value::Text(Cow::Owned(text(0, arguments, scope, fuel)?.to_lowercase())),
        Function::UpperCase => Value::Text(Cow::Owned(text(0, arguments, scope, fuel)?.to_uppercase())),
        Function::HasClass => {
            let class = tree.attribute(scope.point.node, "class").filter(|_| scope.point.attribute == 0).unwrap_or("");
            fuel.burn_text(class)?;
            for at in 0..arguments.len() {
                let wanted = text(at, arguments, scope, fuel)?;
                if !class.split_ascii_whitespace().any(|one| one == wanted) {
                    return Ok(Value::Truth(false));
                }
            }
            Value::Truth(true)
        }
        Function::Truth => Value::Truth(arguments[0].evaluate(scope, fuel)?.truth()),
        Function::Not => Value::Truth(!arguments[0].evaluate(scope, fuel)?.truth()),
        Function::True => Value::Truth(true),
        Function::False => Value::Truth(false),
        Function::Lang => Value::Truth(is_in_language(&text(0, arguments, scope, fuel)?, scope, fuel)?),
        Function::Number => Value::Number(match arguments.first() {
            Some(argument) => argument.evaluate(scope, fuel)?.into_number(tree, fuel)?,
            None => number_of(&scope.text(scope.point, fuel)?),
        }),
        Function::Sum => {
            let mut sum = 0.0;
            for node in arguments[0].nodes(scope, fuel)? {
                sum += number_of(&scope.text(node, fuel)?);
            }
            Value::Number(sum)
        }
        Function::Floor => Value::Number(number(0, fuel)?.floor()),
        Function::Ceiling => Value::Number(number(0, fuel)?.ceil()),
        Function::Round => Value::Number(rounded(number(0, fuel)?)),
    })
}

/// Halves go up, as XPath has it.
fn rounded(number: f64) -> f64 {
    (number + 0.5).floor()
}

/// The elements whose `id` is one of the words that an argument gives.
fn with_ids(argument: &Expression, scope: Scope<'_>, fuel: &mut Fuel) -> Given<Vec<Point>> {
    let tree = scope.tree;
    let mut ids = BTreeSet::new();
    let texts = match argument.evaluate(scope, fuel)? {
        Value::Nodes(nodes) => {
            nodes.into_iter().map(|node| text_of(tree, node, fuel)).collect::<Given<Vec<Cow<'_, str>>>>()?
        }
        other => vec![other.into_text(tree, fuel)?],
    };
    for text in &texts {
        ids.extend(text.split_ascii_whitespace());
    }
    fuel.burn(tree.len() as u64)?;
    let has_id = |node: &u32| tree.attribute(*node, "id").is_some_and(|id| ids.contains(id));
    Ok((1..tree.len() as u32).filter(has_id).map(Point::node).collect())
}

fn is_in_language(wanted: &str, scope: Scope<'_>, fuel: &mut Fuel) -> Given<bool> {
    let mut at = scope.point.node;
    loop {
        fuel.burn(1)?;
        let said = scope.tree.attribute(at, "xml:lang").or_else(|| scope.tree.attribute(at, "lang"));
        if let Some(said) = said {
            let begins = said.get(..wanted.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(wanted));
            return Ok(begins && matches!(said.as_bytes().get(wanted.len()), None | Some(b'-')));
        }
        if at == 0 {
            return Ok(false);
        }
        at = scope.tree.at(at).parent;
    }
}
