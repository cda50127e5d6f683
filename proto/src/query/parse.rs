//! Reads queries: one function for each rule of the language, and kinds are checked on the way.

use super::token::{Token, tokens};
use super::value::{Kind, Value};
use super::{
    Arithmetic, Column, Comparison, Condition, DEPTH_MAX, Figure, LIST_MAX, Operand, Query, QueryError, ROWS_DEFAULT,
    ROWS_MAX, Source, Test,
};
use crate::date;

/// Words that are no names of fields.
const WORDS: [&str; 22] = [
    "SELECT", "FROM", "WHERE", "GROUP", "ORDER", "BY", "LIMIT", "OFFSET", "AND", "OR", "NOT", "IN", "LIKE", "IS",
    "NULL", "BETWEEN", "ASC", "DESC", "NOW", "INTERVAL", "TRUE", "FALSE",
];
/// Units of intervals, and their milliseconds.
const UNITS: [(&str, i64); 5] =
    [("SECOND", 1_000), ("MINUTE", 60_000), ("HOUR", 3_600_000), ("DAY", 86_400_000), ("WEEK", 604_800_000)];

pub(super) fn query(text: &str) -> Result<Query, QueryError> {
    // What the fields are is known only when FROM is: so that is looked for first.
    let mut parser = Parser::new(text, Source::Urls)?;
    parser.source = parser.find_source()?;
    let query = parser.query()?;
    parser.expect_end()?;
    Ok(query)
}

pub(super) fn condition(source: Source, text: &str) -> Result<Condition, QueryError> {
    let mut parser = Parser::new(text, source)?;
    let test = parser.any()?;
    parser.expect_end()?;
    Ok(Condition(test))
}

pub(super) fn criterions(
    source: Source,
    where_text: &str,
    order_text: &str,
    limit: Option<usize>,
    offset: usize,
) -> Result<Query, QueryError> {
    let is_empty = |text: &str| text.trim().is_empty();
    let in_part = |name: &str, error: QueryError| QueryError { what: format!("in {name}: {}", error.what), ..error };
    let condition = if is_empty(where_text) {
        None
    } else {
        Some(condition(source, where_text).map_err(|error| in_part("WHERE", error))?)
    };
    let mut order = Vec::new();
    if !is_empty(order_text) {
        let mut parser = Parser::new(order_text, source).map_err(|error| in_part("ORDER BY", error))?;
        order = parser.order(false).map_err(|error| in_part("ORDER BY", error))?;
        parser.expect_end().map_err(|error| in_part("ORDER BY", error))?;
    }
    let limit = limit.unwrap_or(ROWS_DEFAULT);
    if limit.saturating_add(offset) > ROWS_MAX {
        return Err(QueryError { at: 1, what: format!("in LIMIT: at most {ROWS_MAX} rows, those left out included") });
    }
    let columns = source.fields().iter().map(|(name, _)| Column::Field(name)).collect();
    Ok(Query { source, columns, condition, groups: Vec::new(), order, limit, offset })
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    depth: usize,
    source: Source,
}

impl Parser {
    fn new(text: &str, source: Source) -> Result<Parser, QueryError> {
        Ok(Parser { tokens: tokens(text)?, next: 0, depth: 0, source })
    }

    // Pieces.

    fn peek(&self) -> &Token {
        &self.tokens[self.next].1
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    fn fails<T>(&self, what: impl Into<String>) -> Result<T, QueryError> {
        self.fails_at(self.next, what)
    }

    fn fails_at<T>(&self, token: usize, what: impl Into<String>) -> Result<T, QueryError> {
        Err(QueryError { at: self.tokens[token].0, what: what.into() })
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(here) if here.eq_ignore_ascii_case(word))
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is = self.is_word(word);
        if is {
            self.take();
        }
        is
    }

    fn takes_sign(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        match self.peek() {
            Token::Sign(sign) if signs.contains(sign) => {
                let sign = *sign;
                self.take();
                Some(sign)
            }
            _ => None,
        }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), QueryError> {
        if self.takes_word(word) { Ok(()) } else { self.fails(format!("{word} is expected here")) }
    }

    fn expect_sign(&mut self, sign: &'static str) -> Result<(), QueryError> {
        match self.takes_sign(&[sign]) {
            Some(_) => Ok(()),
            None => self.fails(format!("{sign} is expected here")),
        }
    }

    fn expect_end(&self) -> Result<(), QueryError> {
        if *self.peek() == Token::End { Ok(()) } else { self.fails("the query should end here") }
    }

    fn deeper<T>(&mut self, rule: impl FnOnce(&mut Self) -> Result<T, QueryError>) -> Result<T, QueryError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.fails(format!("more than {DEPTH_MAX} levels deep"));
        }
        let ruled = rule(self);
        self.depth -= 1;
        ruled
    }

    // A whole query.

    fn find_source(&self) -> Result<Source, QueryError> {
        let is_from =
            |(_, token): &(usize, Token)| matches!(token, Token::Word(word) if word.eq_ignore_ascii_case("FROM"));
        let Some(from) = self.tokens.iter().position(is_from) else {
            return self.fails_at(self.tokens.len() - 1, "FROM urls or FROM sites is missing");
        };
        match &self.tokens[from + 1].1 {
            Token::Word(name) if name.eq_ignore_ascii_case("urls") => Ok(Source::Urls),
            Token::Word(name) if name.eq_ignore_ascii_case("sites") => Ok(Source::Sites),
            _ => self.fails_at(from + 1, "there are urls and sites to look at, nothing else"),
        }
    }

    fn query(&mut self) -> Result<Query, QueryError> {
        self.expect_word("SELECT")?;
        let columns_at = self.next;
        let columns = self.columns()?;
        self.expect_word("FROM")?;
        self.take(); // `find_source` has looked at it
        let condition = if self.takes_word("WHERE") { Some(Condition(self.any()?)) } else { None };
        let mut groups = Vec::new();
        if self.takes_word("GROUP") {
            self.expect_word("BY")?;
            groups.push(self.field()?.0);
            while self.takes_sign(&[","]).is_some() {
                groups.push(self.field()?.0);
            }
        }
        let grouped = !groups.is_empty() || columns.iter().any(|column| matches!(column, Column::Figure(..)));
        let alone = |column: &Column| matches!(column, Column::Field(name) if !groups.contains(name));
        if grouped && let Some(column) = columns.iter().find(|column| alone(column)) {
            let what = format!("{} is neither a figure nor in GROUP BY", column.name());
            return self.fails_at(columns_at, what);
        }
        let mut order = Vec::new();
        if self.takes_word("ORDER") {
            self.expect_word("BY")?;
            let at = self.next;
            order = self.order(grouped)?;
            if grouped && let Some((column, _)) = order.iter().find(|(column, _)| !columns.contains(column)) {
                return self
                    .fails_at(at, format!("groups are ordered by what is selected, and {} is not", column.name()));
            }
        }
        let limit = if self.takes_word("LIMIT") { self.count()? } else { ROWS_DEFAULT };
        let offset = if self.takes_word("OFFSET") { self.count()? } else { 0 };
        if limit.saturating_add(offset) > ROWS_MAX {
            return self.fails(format!("at most {ROWS_MAX} rows, those left out included"));
        }
        Ok(Query { source: self.source, columns, condition, groups, order, limit, offset })
    }

    fn count(&mut self) -> Result<usize, QueryError> {
        match self.peek() {
            Token::Int(count) if usize::try_from(*count).is_ok() => {
                let count = *count as usize;
                self.take();
                Ok(count)
            }
            _ => self.fails("a number of rows is expected here"),
        }
    }

    fn columns(&mut self) -> Result<Vec<Column>, QueryError> {
        if self.takes_sign(&["*"]).is_some() {
            return Ok(self.source.fields().iter().map(|(name, _)| Column::Field(name)).collect());
        }
        let mut columns = vec![self.column()?];
        while self.takes_sign(&[","]).is_some() {
            columns.push(self.column()?);
        }
        Ok(columns)
    }

    fn column(&mut self) -> Result<Column, QueryError> {
        let figure = match self.peek() {
            Token::Word(word) => Figure::ALL.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)),
            _ => None,
        };
        let Some((name, figure)) = figure.copied() else { return Ok(Column::Field(self.field()?.0)) };
        self.take();
        self.expect_sign("(")?;
        let at = self.next;
        let field = if self.takes_sign(&["*"]).is_some() { None } else { Some(self.field()?) };
        self.expect_sign(")")?;
        match (figure, field) {
            (Figure::Count, field) => Ok(Column::Figure(figure, field.map(|(field, _)| field))),
            (_, None) => self.fails_at(at, format!("{name} needs a field")),
            (Figure::Sum | Figure::Avg, Some((field, kind))) if kind != Kind::Number => {
                self.fails_at(at, format!("{name} needs a number, and {field} is {}", kind.name()))
            }
            (_, Some((field, _))) => Ok(Column::Figure(figure, Some(field))),
        }
    }

    fn order(&mut self, figures: bool) -> Result<Vec<(Column, bool)>, QueryError> {
        let mut order = Vec::new();
        loop {
            let column = if figures { self.column()? } else { Column::Field(self.field()?.0) };
            let falling = self.takes_word("DESC");
            if !falling {
                self.takes_word("ASC");
            }
            order.push((column, falling));
            if self.takes_sign(&[","]).is_none() {
                return Ok(order);
            }
        }
    }

    fn field(&mut self) -> Result<(&'static str, Kind), QueryError> {
        let Token::Word(word) = self.peek() else { return self.fails("the name of a field is expected here") };
        let name = word.rsplit('.').next().unwrap_or_default();
        let found = self.source.fields().iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).copied();
        match found {
            Some(field) => {
                self.take();
                Ok(field)
            }
            None if WORDS.iter().any(|known| known.eq_ignore_ascii_case(word)) => {
                self.fails(format!("the name of a field is expected here, not {word}"))
            }
            None => {
                let names: Vec<&str> = self.source.fields().iter().map(|(name, _)| *name).collect();
                self.fails(format!("there is no field {word}; there are {}", names.join(", ")))
            }
        }
    }

    // Conditions.

    fn any(&mut self) -> Result<Test, QueryError> {
        let mut tests = vec![self.all()?];
        while self.takes_word("OR") || self.takes_sign(&["||"]).is_some() {
            tests.push(self.all()?);
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { Test::Any(tests) })
    }

    fn all(&mut self) -> Result<Test, QueryError> {
        let mut tests = vec![self.not()?];
        while self.takes_word("AND") || self.takes_sign(&["&&"]).is_some() {
            tests.push(self.not()?);
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { Test::All(tests) })
    }

    fn not(&mut self) -> Result<Test, QueryError> {
        if self.takes_word("NOT") {
            return self.deeper(|parser| Ok(Test::Not(Box::new(parser.not()?))));
        }
        self.test()
    }

    fn test(&mut self) -> Result<Test, QueryError> {
        // A parenthesis begins a condition or a calculation: which, is seen behind it.
        if *self.peek() == Token::Sign("(") {
            let (next, depth) = (self.next, self.depth);
            let condition = self.deeper(|parser| {
                parser.take();
                let test = parser.any()?;
                parser.expect_sign(")")?;
                Ok(test)
            });
            let calculation = matches!(self.peek(), Token::Sign("+" | "-" | "*" | "/" | "&" | "=" | "==" | "<" | ">"));
            match condition {
                Ok(test) if !calculation => return Ok(test),
                Ok(_) => (self.next, self.depth) = (next, depth),
                Err(error) => {
                    (self.next, self.depth) = (next, depth);
                    return match self.sum() {
                        Ok((left, kind)) => self.test_of(next, left, kind),
                        Err(_) => Err(error), // it says more
                    };
                }
            }
        }
        let at = self.next;
        let (left, kind) = self.sum()?;
        self.test_of(at, left, kind)
    }

    /// What is said of a value, which stands at `at`.
    fn test_of(&mut self, at: usize, left: Operand, kind: Kind) -> Result<Test, QueryError> {
        let not = self.takes_word("NOT");
        let test = if self.takes_word("IN") {
            Test::In(left, self.list(kind)?)
        } else if self.takes_word("LIKE") {
            match self.take() {
                Token::Text(pattern) if kind == Kind::Text => Test::Like(left, pattern),
                _ => return self.fails_at(at, "LIKE compares a text with a text in quotes"),
            }
        } else if self.takes_word("BETWEEN") {
            let (low, low_kind) = self.sum()?;
            let low = self.alike(at, kind, low, low_kind)?;
            self.expect_word("AND")?;
            let (high, high_kind) = self.sum()?;
            let high = self.alike(at, kind, high, high_kind)?;
            Test::All(vec![
                Test::Compare(left.clone(), Comparison::AtLeast, low),
                Test::Compare(left, Comparison::AtMost, high),
            ])
        } else if not {
            return self.fails("IN, LIKE or BETWEEN is expected behind NOT");
        } else if self.takes_word("IS") {
            let not = self.takes_word("NOT");
            self.expect_word("NULL")?;
            return Ok(negated(not, Test::IsNull(left)));
        } else {
            return self.comparison(at, left, kind);
        };
        Ok(negated(not, test))
    }

    fn comparison(&mut self, at: usize, left: Operand, kind: Kind) -> Result<Test, QueryError> {
        let comparison = match self.takes_sign(&["=", "==", "<>", "!=", "<", "<=", ">", ">="]) {
            Some("=" | "==") => Comparison::Equal,
            Some("<>" | "!=") => Comparison::Different,
            Some("<") => Comparison::Less,
            Some("<=") => Comparison::AtMost,
            Some(">") => Comparison::More,
            Some(">=") => Comparison::AtLeast,
            // A number alone is a flag.
            _ if kind == Kind::Number => {
                return Ok(Test::Compare(left, Comparison::Different, Operand::Literal(Value::Int(0))));
            }
            _ => return self.fails("a comparison is expected here: =, <>, <, <=, >, >=, IN, LIKE, BETWEEN or IS NULL"),
        };
        let (right, right_kind) = self.sum()?;
        if right_kind == Kind::Time && kind == Kind::Text {
            let left = self.alike(at, right_kind, left, kind)?;
            return Ok(Test::Compare(left, comparison, right));
        }
        let right = self.alike(at, kind, right, right_kind)?;
        Ok(Test::Compare(left, comparison, right))
    }

    /// What is compared must be of one kind; a text in quotes is a time where one is needed.
    fn alike(&self, at: usize, wanted: Kind, operand: Operand, kind: Kind) -> Result<Operand, QueryError> {
        match (wanted, &operand) {
            (Kind::Time, Operand::Literal(Value::Text(text))) => match date::parse(text) {
                Some(time) => Ok(Operand::Literal(Value::Time(time))),
                None => self.fails_at(at, format!("{text:?} is no time; one looks like 2026-11-17 02:00:00")),
            },
            _ if wanted == kind || wanted == Kind::Null || kind == Kind::Null => Ok(operand),
            _ => self.fails_at(at, format!("{} cannot be compared with {}", wanted.name(), kind.name())),
        }
    }

    fn list(&mut self, kind: Kind) -> Result<Vec<Value>, QueryError> {
        self.expect_sign("(")?;
        let mut values = Vec::new();
        loop {
            let at = self.next;
            let (operand, its) = self.signed()?;
            match self.alike(at, kind, operand, its)? {
                Operand::Literal(value) => values.push(value),
                _ => return self.fails_at(at, "a list holds numbers and texts"),
            }
            if values.len() > LIST_MAX {
                return self.fails(format!("more than {LIST_MAX} values"));
            }
            if self.takes_sign(&[","]).is_none() {
                self.expect_sign(")")?;
                return Ok(values);
            }
        }
    }

    // Values.

    fn sum(&mut self) -> Result<(Operand, Kind), QueryError> {
        let (mut left, mut kind) = self.product()?;
        loop {
            let at = self.next;
            let sign = match self.takes_sign(&["+", "-"]) {
                Some("+") => Arithmetic::Plus,
                Some(_) => Arithmetic::Minus,
                None => return Ok((left, kind)),
            };
            let (right, right_kind) = self.product()?;
            kind = match (kind, right_kind) {
                (Kind::Number, Kind::Number) => Kind::Number,
                (Kind::Time, Kind::Span) => Kind::Time,
                (Kind::Span, Kind::Span) => Kind::Span,
                (a, b) => return self.fails_at(at, format!("{} and {} cannot be added up", a.name(), b.name())),
            };
            left = Operand::Calculated(Box::new(left), sign, Box::new(right));
        }
    }

    fn product(&mut self) -> Result<(Operand, Kind), QueryError> {
        let (mut left, kind) = self.signed()?;
        loop {
            let at = self.next;
            let sign = match self.takes_sign(&["*", "/", "&"]) {
                Some("*") => Arithmetic::Times,
                Some("/") => Arithmetic::Over,
                Some(_) => Arithmetic::And,
                None => return Ok((left, kind)),
            };
            let (right, right_kind) = self.signed()?;
            if (kind, right_kind) != (Kind::Number, Kind::Number) {
                let what = format!("{} and {} cannot be calculated with", kind.name(), right_kind.name());
                return self.fails_at(at, what);
            }
            left = Operand::Calculated(Box::new(left), sign, Box::new(right));
        }
    }

    fn signed(&mut self) -> Result<(Operand, Kind), QueryError> {
        let at = self.next;
        if self.takes_sign(&["-"]).is_none() {
            return self.single();
        }
        self.deeper(|parser| match parser.signed()? {
            (Operand::Literal(Value::Int(number)), kind) => Ok((Operand::Literal(Value::Int(-number)), kind)),
            (Operand::Literal(Value::Float(number)), kind) => Ok((Operand::Literal(Value::Float(-number)), kind)),
            (operand, Kind::Number) => {
                let zero = Box::new(Operand::Literal(Value::Int(0)));
                Ok((Operand::Calculated(zero, Arithmetic::Minus, Box::new(operand)), Kind::Number))
            }
            (_, kind) => parser.fails_at(at, format!("{} has no sign", kind.name())),
        })
    }

    fn single(&mut self) -> Result<(Operand, Kind), QueryError> {
        let literal = |value: Value| {
            let kind = value.kind();
            (Operand::Literal(value), kind)
        };
        match self.peek().clone() {
            Token::Int(number) => {
                self.take();
                Ok(literal(Value::Int(number)))
            }
            Token::Float(number) => {
                self.take();
                Ok(literal(Value::Float(number)))
            }
            Token::Text(text) => {
                self.take();
                Ok(literal(Value::Text(text)))
            }
            Token::Sign("(") => self.deeper(|parser| {
                parser.take();
                let inner = parser.sum()?;
                parser.expect_sign(")")?;
                Ok(inner)
            }),
            Token::Word(_) if self.takes_word("NULL") => Ok(literal(Value::Null)),
            Token::Word(_) if self.takes_word("TRUE") => Ok(literal(Value::Int(1))),
            Token::Word(_) if self.takes_word("FALSE") => Ok(literal(Value::Int(0))),
            Token::Word(_) if self.takes_word("NOW") => {
                if self.takes_sign(&["("]).is_some() {
                    self.expect_sign(")")?;
                }
                Ok((Operand::Now, Kind::Time))
            }
            Token::Word(_) if self.takes_word("INTERVAL") => self.interval().map(literal),
            Token::Word(_) => self.field().map(|(name, kind)| (Operand::Field(name), kind)),
            _ => self.fails("a value is expected here"),
        }
    }

    fn interval(&mut self) -> Result<Value, QueryError> {
        let at = self.next;
        let Token::Int(count) = self.take() else {
            return self.fails_at(at, "a whole number is expected behind INTERVAL");
        };
        let unit = match self.peek() {
            Token::Word(word) => UNITS.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)),
            _ => None,
        };
        let Some((_, milliseconds)) = unit else {
            return self.fails("SECOND, MINUTE, HOUR, DAY or WEEK is expected here");
        };
        self.take();
        match count.checked_mul(*milliseconds) {
            Some(span) => Ok(Value::Span(span)),
            None => self.fails_at(at, "this interval is too long"),
        }
    }
}

fn negated(not: bool, test: Test) -> Test {
    if not { Test::Not(Box::new(test)) } else { test }
}
