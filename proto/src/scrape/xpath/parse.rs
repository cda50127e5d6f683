//! Reads XPath: one function for each rule of its grammar; numbers of arguments and kinds of values are checked on the way.

use super::token::{Token, tokens};
use super::{
    Arithmetic, Axis, Comparison, DEPTH_MAX, EXPRESSION_CHARS_MAX, Expression, Function, RuleError, Step, Test,
    ValueKind,
};

type Parsed<T = Expression> = Result<T, RuleError>;

pub(super) fn expression(text: &str) -> Parsed {
    if text.chars().count() > EXPRESSION_CHARS_MAX {
        return Err(RuleError::new(EXPRESSION_CHARS_MAX + 1, format!("more than {EXPRESSION_CHARS_MAX} characters")));
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, depth: 0 };
    if *parser.peek() == Token::End {
        return parser.fails("an expression is expected");
    }
    let read = parser.any()?;
    if *parser.peek() != Token::End {
        return parser.fails("the expression should end here");
    }
    Ok(read)
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
}

impl Parser {
    // Pieces.

    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn peek_second(&self) -> &Token {
        &self.tokens[(self.next + 1).min(self.tokens.len() - 1)].1
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn at(&self) -> usize {
        self.tokens[self.next].0
    }

    fn fails<T>(&self, what: impl Into<String>) -> Parsed<T> {
        Err(RuleError::new(self.at(), what))
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(here) if *here == sign)
    }

    fn takes_sign(&mut self, sign: &str) -> bool {
        let is = self.is_sign(sign);
        if is {
            self.take();
        }
        is
    }

    fn takes_operator(&mut self, word: &str) -> bool {
        let is = matches!(self.peek(), Token::Operator(here) if *here == word);
        if is {
            self.take();
        }
        is
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.takes_sign(sign) { Ok(()) } else { self.fails(format!("{sign} is expected here")) }
    }

    // Operators, weakest first.

    fn any(&mut self) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fails(format!("more than {DEPTH_MAX} levels deep"));
        }
        let mut left = self.all()?;
        while self.takes_operator("or") {
            left = Expression::Or(Box::new(left), Box::new(self.all()?));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn all(&mut self) -> Parsed {
        let mut left = self.equality()?;
        while self.takes_operator("and") {
            left = Expression::And(Box::new(left), Box::new(self.equality()?));
        }
        Ok(left)
    }

    fn equality(&mut self) -> Parsed {
        let mut left = self.order()?;
        loop {
            let operator = if self.takes_sign("=") {
                Comparison::Equal
            } else if self.takes_sign("!=") {
                Comparison::Different
            } else {
                return Ok(left);
            };
            left = Expression::Compare(operator, Box::new(left), Box::new(self.order()?));
        }
    }

    fn order(&mut self) -> Parsed {
        let mut left = self.sum()?;
        loop {
            let operator = match self.peek() {
                Token::Sign("<") => Comparison::Less,
                Token::Sign("<=") => Comparison::LessOrEqual,
                Token::Sign(">") => Comparison::Greater,
                Token::Sign(">=") => Comparison::GreaterOrEqual,
                _ => return Ok(left),
            };
            self.take();
            left = Expression::Compare(operator, Box::new(left), Box::new(self.sum()?));
        }
    }

    fn sum(&mut self) -> Parsed {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Token::Sign("+") => Arithmetic::Add,
                Token::Sign("-") => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.take();
            left = Expression::Compute(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Parsed {
        let mut left = self.negative()?;
        loop {
            let operator = match self.peek() {
                Token::Operator("*") => Arithmetic::Multiply,
                Token::Operator("div") => Arithmetic::Divide,
                Token::Operator("mod") => Arithmetic::Remainder,
                _ => return Ok(left),
            };
            self.take();
            left = Expression::Compute(operator, Box::new(left), Box::new(self.negative()?));
        }
    }

    fn negative(&mut self) -> Parsed {
        let mut signs = 0;
        while self.takes_sign("-") {
            signs += 1;
        }
        let inner = self.union()?;
        Ok(match signs {
            0 => inner,
            n if n % 2 == 1 => Expression::Negative(Box::new(inner)),
            _ => Expression::Negative(Box::new(Expression::Negative(Box::new(inner)))),
        })
    }

    fn union(&mut self) -> Parsed {
        let began = self.at();
        let first = self.path()?;
        if !self.is_sign("|") {
            return Ok(first);
        }
        let mut all = vec![self.nodes(first, began)?];
        while self.takes_sign("|") {
            let began = self.at();
            let next = self.path()?;
            all.push(self.nodes(next, began)?);
        }
        Ok(Expression::Union(all))
    }

    fn nodes(&self, expression: Expression, at: usize) -> Parsed {
        if expression.kind() == ValueKind::Nodes {
            return Ok(expression);
        }
        Err(RuleError::new(at, "nodes are expected here, and this gives none"))
    }

    // Paths.

    fn path(&mut self) -> Parsed {
        let is_call =
            matches!((self.peek(), self.peek_second()), (Token::Name(name), Token::Sign("(")) if !is_node_test(name));
        let is_value = matches!(self.peek(), Token::Literal(_) | Token::Number(_)) || self.is_sign("(");
        if !is_call && !is_value {
            return self.location();
        }
        let began = self.at();
        let base = self.primary()?;
        let predicates = self.predicates()?;
        let mut steps = Vec::new();
        self.further_steps(&mut steps)?;
        if predicates.is_empty() && steps.is_empty() {
            return Ok(base);
        }
        let base = Box::new(self.nodes(base, began)?);
        Ok(Expression::From { base, predicates, steps })
    }

    fn primary(&mut self) -> Parsed {
        match self.take() {
            Token::Literal(text) => Ok(Expression::Text(text)),
            Token::Number(number) => Ok(Expression::Number(number)),
            Token::Sign("(") => {
                let inner = self.any()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Name(name) => self.call(&name),
            _ => self.fails("an expression is expected here"),
        }
    }

    fn call(&mut self, name: &str) -> Parsed {
        let at = self.tokens[self.next.saturating_sub(1)].0;
        let Some((function, count, wants_nodes)) = Function::of_name(name) else {
            return Err(RuleError::new(at, format!("there is no function {name}()")));
        };
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.takes_sign(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            let began = self.at();
            let argument = self.any()?;
            arguments.push(if wants_nodes { self.nodes(argument, began)? } else { argument });
            if arguments.len() > *count.end() {
                break;
            }
        }
        if !count.contains(&arguments.len()) {
            let wanted = if count.start() == count.end() {
                format!("{}", count.start())
            } else {
                format!("{} to {}", count.start(), count.end())
            };
            return Err(RuleError::new(at, format!("{name}() takes {wanted} arguments")));
        }
        Ok(Expression::Call(function, arguments))
    }

    fn location(&mut self) -> Parsed {
        let mut steps = Vec::new();
        let absolute = self.is_sign("/") || self.is_sign("//");
        if self.takes_sign("/") {
            if !self.step_begins() {
                return Ok(Expression::Path { absolute, steps });
            }
            steps.push(self.step()?);
        } else if self.takes_sign("//") {
            self.step_below(&mut steps)?;
        } else if matches!(self.peek(), Token::Sign("$")) {
            return self.fails("there are no variables");
        } else if self.step_begins() {
            steps.push(self.step()?);
        } else {
            return self.fails("an expression is expected here");
        }
        self.further_steps(&mut steps)?;
        Ok(Expression::Path { absolute, steps })
    }

    fn further_steps(&mut self, steps: &mut Vec<Step>) -> Parsed<()> {
        loop {
            if self.takes_sign("/") {
                let step = self.step()?;
                steps.push(step);
            } else if self.takes_sign("//") {
                self.step_below(steps)?;
            } else {
                return Ok(());
            }
        }
    }

    /// What follows `//`. A child of any descendant is a descendant, which is one step instead of two, unless positions among its brothers count.
    fn step_below(&mut self, steps: &mut Vec<Step>) -> Parsed<()> {
        let mut step = self.step()?;
        match step.axis {
            Axis::Child if !step.positional => step.axis = Axis::Descendant,
            Axis::Descendant | Axis::DescendantOrSelf if !step.positional => {}
            _ => steps.push(Step::new(Axis::DescendantOrSelf, Test::Node, Vec::new())),
        }
        steps.push(step);
        Ok(())
    }

    fn step_begins(&self) -> bool {
        matches!(self.peek(), Token::Name(_) | Token::Sign("*" | "." | ".." | "@"))
    }

    fn step(&mut self) -> Parsed<Step> {
        if self.takes_sign(".") {
            return Ok(Step::new(Axis::Itself, Test::Node, Vec::new()));
        }
        if self.takes_sign("..") {
            return Ok(Step::new(Axis::Parent, Test::Node, Vec::new()));
        }
        let mut axis = Axis::Child;
        if self.takes_sign("@") {
            axis = Axis::Attribute;
        } else if let (Token::Name(name), Token::Sign("::")) = (self.peek(), self.peek_second()) {
            match Axis::NAMES.iter().find(|(known, _)| known == name) {
                Some((_, known)) => axis = *known,
                None => return self.fails(format!("there is no axis {name}")),
            }
            self.take();
            self.take();
        }
        let test = self.test()?;
        Ok(Step::new(axis, test, self.predicates()?))
    }

    fn test(&mut self) -> Parsed<Test> {
        if self.takes_sign("*") {
            return Ok(Test::Any);
        }
        let Token::Name(name) = self.peek().clone() else {
            return self.fails("the name of an element or an attribute is expected here");
        };
        if *self.peek_second() == Token::Sign("(") {
            if !is_node_test(&name) {
                return self.fails(format!("{name}() is no test of a node; there are node(), text() and comment()"));
            }
            self.take();
            self.take();
            if matches!(self.peek(), Token::Literal(_)) {
                self.take();
            }
            self.expect(")")?;
            return Ok(match name.as_str() {
                "node" => Test::Node,
                "text" => Test::Text,
                "comment" => Test::Comment,
                _ => Test::Nothing,
            });
        }
        self.take();
        Ok(match name.strip_suffix(":*") {
            Some(prefix) => Test::Prefix(prefix.to_owned()),
            None => Test::Name(name),
        })
    }

    fn predicates(&mut self) -> Parsed<Vec<Expression>> {
        let mut predicates = Vec::new();
        while self.takes_sign("[") {
            predicates.push(self.any()?);
            self.expect("]")?;
        }
        Ok(predicates)
    }
}

fn is_node_test(name: &str) -> bool {
    matches!(name, "node" | "text" | "comment" | "processing-instruction")
}
