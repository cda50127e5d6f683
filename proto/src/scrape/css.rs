//! CSS selectors, read into the same expressions as XPath: one engine, one bound on what it may cost.
//!
//! What Scrapy adds is understood too: `::text` for the texts in an element, `::attr(name)` for an attribute; and `:contains("text")`.

use super::xpath::{Axis, Comparison, EXPRESSION_CHARS_MAX, Expression, Function, RuleError, Step, Test};

/// Levels of brackets.
const DEPTH_MAX: usize = 8;

type Parsed<T> = Result<T, RuleError>;

/// Reads a list of selectors.
pub(super) fn parse(text: &str) -> Parsed<Expression> {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() > EXPRESSION_CHARS_MAX {
        return Err(RuleError::new(EXPRESSION_CHARS_MAX + 1, format!("more than {EXPRESSION_CHARS_MAX} characters")));
    }
    let mut parser = Parser { characters, at: 0, depth: 0 };
    let list = parser.list(Axis::Descendant, true)?;
    match parser.peek() {
        None => Ok(list),
        Some(c) => parser.fails(format!("{c:?} has no meaning here")),
    }
}

struct Parser {
    characters: Vec<char>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn takes(&mut self, wanted: &str) -> bool {
        let length = wanted.chars().count();
        let is =
            self.characters.get(self.at..self.at + length).is_some_and(|here| here.iter().copied().eq(wanted.chars()));
        if is {
            self.at += length;
        }
        is
    }

    fn expect(&mut self, wanted: &str) -> Parsed<()> {
        if self.takes(wanted) { Ok(()) } else { self.fails(format!("{wanted} is expected here")) }
    }

    /// Leaves out white space; says whether there was any.
    fn blank(&mut self) -> bool {
        let before = self.at;
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        self.at > before
    }

    fn fails<T>(&self, what: impl Into<String>) -> Parsed<T> {
        Err(RuleError::new(self.at + 1, what))
    }

    /// Selectors with commas between them. `first` is how the first step of each goes; `ends` if texts and attributes may be asked for.
    fn list(&mut self, first: Axis, ends: bool) -> Parsed<Expression> {
        let mut all = vec![self.complex(first, ends)?];
        while self.takes(",") {
            all.push(self.complex(first, ends)?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::Union(all) })
    }

    fn complex(&mut self, first: Axis, ends: bool) -> Parsed<Expression> {
        self.blank();
        let mut axis = if first == Axis::Descendant { self.combinator_or(first) } else { first };
        let mut steps = Vec::new();
        loop {
            self.blank();
            let (name, mut predicates) = self.compound()?;
            // The next brother is the first of those that follow, whatever it is.
            let test = match axis {
                Axis::Following => {
                    steps.push(Step::new(Axis::FollowingSibling, Test::Any, vec![Expression::Number(1.0)]));
                    predicates.splice(0..0, name.map(|name| itself(&name)));
                    (Axis::Itself, Test::Any)
                }
                axis => (axis, name.map_or(Test::Any, Test::Name)),
            };
            steps.push(Step::new(test.0, test.1, predicates));
            if self.characters.get(self.at..self.at + 2) == Some(&[':', ':']) {
                if !ends {
                    return self.fails("texts and attributes cannot be asked for here");
                }
                steps.push(self.ending()?);
                self.blank();
                return Ok(Expression::Path { absolute: false, steps });
            }
            let spaced = self.blank();
            match self.peek() {
                None | Some(',' | ')') => return Ok(Expression::Path { absolute: false, steps }),
                Some('>' | '+' | '~') => axis = self.combinator_or(Axis::Descendant),
                Some(_) if spaced => axis = Axis::Descendant,
                Some(c) => return self.fails(format!("{c:?} has no meaning here")),
            }
        }
    }

    /// How the next step goes. [`Axis::Following`] stands for the next brother.
    fn combinator_or(&mut self, otherwise: Axis) -> Axis {
        let axis = match self.peek() {
            Some('>') => Axis::Child,
            Some('+') => Axis::Following,
            Some('~') => Axis::FollowingSibling,
            _ => return otherwise,
        };
        self.at += 1;
        axis
    }

    fn ending(&mut self) -> Parsed<Step> {
        if self.takes("::text") {
            return Ok(Step::new(Axis::Child, Test::Text, Vec::new()));
        }
        if self.takes("::attr(") {
            self.blank();
            let name = self.name()?;
            self.blank();
            self.expect(")")?;
            return Ok(Step::new(Axis::Attribute, Test::Name(name), Vec::new()));
        }
        self.fails("there are ::text and ::attr(name)")
    }

    /// The name of an element, and what must be true of it.
    fn compound(&mut self) -> Parsed<(Option<String>, Vec<Expression>)> {
        let began = self.at;
        let mut name = None;
        if self.takes("*") {
        } else if self.peek().is_some_and(begins_name) {
            name = Some(self.name()?);
        }
        let mut predicates = Vec::new();
        loop {
            match self.peek() {
                Some('#') => {
                    self.at += 1;
                    predicates.push(equal(attribute("id"), self.name()?));
                }
                Some('.') => {
                    self.at += 1;
                    predicates.push(Expression::Call(Function::HasClass, vec![Expression::Text(self.name()?)]));
                }
                Some('[') => predicates.push(self.of_attribute()?),
                Some(':') if self.characters.get(self.at + 1) != Some(&':') => predicates.push(self.pseudo()?),
                _ => break,
            }
        }
        if self.at == began {
            return self.fails("the name of an element, or . # [ : is expected here");
        }
        Ok((name, predicates))
    }

    fn name(&mut self) -> Parsed<String> {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            if c == '\\' {
                let Some(escaped) = self.characters.get(self.at + 1) else { return self.fails("nothing follows \\") };
                name.push(*escaped);
                self.at += 2;
            } else if begins_name(c) || c.is_ascii_digit() {
                name.push(c);
                self.at += 1;
            } else {
                break;
            }
        }
        if name.is_empty() { self.fails("a name is expected here") } else { Ok(name) }
    }

    /// A name or a text in quotation marks.
    fn value(&mut self) -> Parsed<String> {
        let Some(quote @ ('"' | '\'')) = self.peek() else { return self.name() };
        let began = self.at;
        self.at += 1;
        let mut value = String::new();
        loop {
            match self.peek() {
                None => return Err(RuleError::new(began + 1, "the quotation mark has no partner")),
                Some(c) if c == quote => break,
                Some('\\') => {
                    self.at += 1;
                    value.extend(self.peek());
                }
                Some(c) => value.push(c),
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(value)
    }

    fn of_attribute(&mut self) -> Parsed<Expression> {
        self.expect("[")?;
        self.blank();
        let name = self.name()?;
        self.blank();
        if self.takes("]") {
            return Ok(attribute(&name));
        }
        let operators = ["=", "~=", "|=", "^=", "$=", "*="];
        let Some(operator) = operators.into_iter().find(|operator| self.takes(operator)) else {
            return self.fails("] or one of = ~= |= ^= $= *= is expected here");
        };
        self.blank();
        let value = self.value()?;
        let ignores_case = self.blank() && (self.takes("i") || self.takes("I"));
        self.blank();
        self.expect("]")?;
        let (own, value) = if ignores_case {
            (Expression::Call(Function::LowerCase, vec![attribute(&name)]), value.to_lowercase())
        } else {
            (attribute(&name), value)
        };
        let with = |function: Function, text: &str| {
            Expression::Call(function, vec![own.clone(), Expression::Text(text.to_owned())])
        };
        // CSS says that nothing begins, ends or contains a text that is empty, nor has it as a word.
        Ok(match operator {
            "=" => equal(own, value),
            "|=" => either(equal(own.clone(), value.clone()), with(Function::StartsWith, &format!("{value}-"))),
            _ if value.is_empty() => Expression::Call(Function::False, Vec::new()),
            "^=" => with(Function::StartsWith, &value),
            "$=" => with(Function::EndsWith, &value),
            "*=" => with(Function::Contains, &value),
            _ if value.contains(char::is_whitespace) => Expression::Call(Function::False, Vec::new()),
            _ => {
                let words = Expression::Call(Function::NormalizeSpace, vec![own]);
                let space = || Expression::Text(" ".to_owned());
                let spaced = Expression::Call(Function::Concat, vec![space(), words, space()]);
                Expression::Call(Function::Contains, vec![spaced, Expression::Text(format!(" {value} "))])
            }
        })
    }

    fn pseudo(&mut self) -> Parsed<Expression> {
        let began = self.at;
        self.at += 1;
        let name = self.name()?.to_ascii_lowercase();
        let nth = |offset: i64, of_type: bool, from_end: bool| Expression::Nth { every: 0, offset, of_type, from_end };
        let both = |a: Expression, b: Expression| Expression::And(Box::new(a), Box::new(b));
        let found = match name.as_str() {
            "first-child" => nth(1, false, false),
            "last-child" => nth(1, false, true),
            "first-of-type" => nth(1, true, false),
            "last-of-type" => nth(1, true, true),
            "only-child" => both(nth(1, false, false), nth(1, false, true)),
            "only-of-type" => both(nth(1, true, false), nth(1, true, true)),
            "root" => {
                let above = Step::new(Axis::Parent, Test::Any, Vec::new());
                not(Expression::Path { absolute: false, steps: vec![above] })
            }
            "empty" => {
                let step = |test: Test| Expression::Path {
                    absolute: false,
                    steps: vec![Step::new(Axis::Child, test, Vec::new())],
                };
                not(either(step(Test::Any), step(Test::Text)))
            }
            "nth-child" | "nth-last-child" | "nth-of-type" | "nth-last-of-type" => {
                self.expect("(")?;
                let (every, offset) = self.formula()?;
                self.expect(")")?;
                Expression::Nth { every, offset, of_type: name.ends_with("of-type"), from_end: name.contains("last") }
            }
            "not" | "is" | "where" | "matches" | "any" => {
                let any = self.inside(Self::any_of)?;
                if name == "not" { not(any) } else { any }
            }
            "has" => self.inside(|parser| parser.list(Axis::Descendant, false))?,
            "contains" => {
                self.expect("(")?;
                self.blank();
                let text = self.value()?;
                self.blank();
                self.expect(")")?;
                let here =
                    Expression::Path { absolute: false, steps: vec![Step::new(Axis::Itself, Test::Node, Vec::new())] };
                Expression::Call(Function::Contains, vec![here, Expression::Text(text)])
            }
            _ => return Err(RuleError::new(began + 1, format!(":{name} is not known here"))),
        };
        Ok(found)
    }

    fn inside(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<Expression>) -> Parsed<Expression> {
        self.expect("(")?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fails(format!("more than {DEPTH_MAX} levels deep"));
        }
        let found = rule(self)?;
        self.depth -= 1;
        self.blank();
        self.expect(")")?;
        Ok(found)
    }

    /// Whether one of several compounds is true of the element at hand.
    fn any_of(&mut self) -> Parsed<Expression> {
        let mut any: Option<Expression> = None;
        loop {
            self.blank();
            let (name, predicates) = self.compound()?;
            let mut all = name.map(|name| itself(&name));
            for predicate in predicates {
                all = Some(match all {
                    Some(before) => Expression::And(Box::new(before), Box::new(predicate)),
                    None => predicate,
                });
            }
            let all = all.unwrap_or_else(|| Expression::Call(Function::True, Vec::new()));
            any = Some(match any {
                Some(before) => either(before, all),
                None => all,
            });
            self.blank();
            if !self.takes(",") {
                break;
            }
        }
        match (any, self.peek()) {
            (Some(any), Some(')')) => Ok(any),
            _ => self.fails("here stand conditions on one element, with commas between them"),
        }
    }

    /// `2n+1`, `odd`, `even`, `3`, `-n+3`.
    fn formula(&mut self) -> Parsed<(i64, i64)> {
        let began = self.at;
        let mut text = String::new();
        while let Some(c) = self.peek().filter(|c| *c != ')') {
            text.extend(c.to_lowercase());
            self.at += 1;
        }
        text.retain(|c| !c.is_whitespace());
        let number = |text: &str| text.strip_prefix('+').unwrap_or(text).parse::<i32>().ok().map(i64::from);
        let read = match text.as_str() {
            "odd" => Some((2, 1)),
            "even" => Some((2, 0)),
            text => match text.split_once('n') {
                None => number(text).map(|offset| (0, offset)),
                Some((every, offset)) => {
                    let every = match every {
                        "" | "+" => Some(1),
                        "-" => Some(-1),
                        digits => number(digits),
                    };
                    let offset = if offset.is_empty() { Some(0) } else { number(offset) };
                    every.zip(offset)
                }
            },
        };
        read.ok_or_else(|| RuleError::new(began + 1, "a number, odd, even, or 2n+1 is expected here"))
    }
}

fn begins_name(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '_' | '-' | '\\') || !c.is_ascii()
}

fn attribute(name: &str) -> Expression {
    let step = Step::new(Axis::Attribute, Test::Name(name.to_owned()), Vec::new());
    Expression::Path { absolute: false, steps: vec![step] }
}

fn itself(name: &str) -> Expression {
    let step = Step::new(Axis::Itself, Test::Name(name.to_owned()), Vec::new());
    Expression::Path { absolute: false, steps: vec![step] }
}

fn equal(own: Expression, value: String) -> Expression {
    Expression::Compare(Comparison::Equal, Box::new(own), Box::new(Expression::Text(value)))
}

fn either(a: Expression, b: Expression) -> Expression {
    Expression::Or(Box::new(a), Box::new(b))
}

fn not(inner: Expression) -> Expression {
    Expression::Call(Function::Not, vec![inner])
}
