//! Takes a query apart into words, numbers, texts and signs.

use super::{QUERY_BYTES_MAX, QueryError};

/// A piece of a query.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A word: of the language, or a field.
    Word(String),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text in quotes.
    Text(String),
    /// A sign, or two that belong together.
    Sign(&'static str),
    /// The end.
    End,
}

const SIGNS: [&str; 18] =
    ["<=", ">=", "<>", "!=", "==", "&&", "||", "(", ")", ",", "=", "<", ">", "+", "-", "*", "/", "&"];

/// Takes `text` apart; each piece with the place where it begins, counted from 1.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, QueryError> {
    if text.len() > QUERY_BYTES_MAX {
        return Err(QueryError { at: 1, what: format!("{} bytes, more than {QUERY_BYTES_MAX}", text.len()) });
    }
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let at = text[..text.len() - rest.len()].chars().count() + 1;
        let fails = |what: &str| QueryError { at, what: what.to_owned() };
        let (token, length) = if first.is_ascii_digit() {
            number(rest).ok_or_else(|| fails("this is no number that can be counted with"))?
        } else if first.is_alphabetic() || first == '_' || first == '`' {
            word(rest).ok_or_else(|| fails("the ` that ends the name is missing"))?
        } else if first == '\'' || first == '"' {
            quoted(rest, first).ok_or_else(|| fails("the quote that ends the text is missing"))?
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| fails(&format!("{first:?} means nothing here")))?;
            (Token::Sign(sign), sign.len())
        };
        tokens.push((at, token));
        rest = rest[length..].trim_start();
    }
    tokens.push((text.chars().count() + 1, Token::End));
    Ok(tokens)
}

fn number(rest: &str) -> Option<(Token, usize)> {
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let digits = &rest[..end];
    let token = match digits.parse() {
        Ok(whole) => Token::Int(whole),
        Err(_) => Token::Float(digits.parse().ok()?),
    };
    Some((token, end))
}

fn word(rest: &str) -> Option<(Token, usize)> {
    if let Some(name) = rest.strip_prefix('`') {
        let end = name.find('`')?;
        return Some((Token::Word(name[..end].to_owned()), end + 2));
    }
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(rest.len());
    Some((Token::Word(rest[..end].to_owned()), end))
}

/// A quote inside is written twice, or behind a backslash.
fn quoted(rest: &str, quote: char) -> Option<(Token, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            text.push(chars.next()?.1);
        } else if c != quote {
            text.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
            text.push(quote);
            chars.next();
        } else {
            return Some((Token::Text(text), at + 1));
        }
    }
    None
}
