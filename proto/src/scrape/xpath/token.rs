//! The words of XPath. Whether `*`, `and`, `or`, `div` and `mod` are operators depends on what stands before them (XPath 1.0, 3.7).

use super::RuleError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Number(f64),
    Literal(String),
    /// A name, with its prefix if it has one; `prefix:*` too.
    Name(String),
    Sign(&'static str),
    /// `*`, `and`, `or`, `div`, `mod` as operators.
    Operator(&'static str),
    End,
}

const SIGNS: [&str; 22] = [
    "//", "::", "..", "!=", "<=", ">=", "(", ")", "[", "]", "@", ",", "/", "|", "+", "-", "=", "<", ">", ".", "*", "$",
];

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn is_name_part(c: char) -> bool {
    is_name_start(c) || c.is_numeric() || matches!(c, '-' | '.' | '\u{b7}')
}

/// Cuts a text into tokens, each with its place: the number of its first character, from 1. The last is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, RuleError> {
    let characters: Vec<char> = text.chars().collect();
    let mut found: Vec<(usize, Token)> = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let c = characters[at];
        if c.is_whitespace() {
            at += 1;
            continue;
        }
        let start = at;
        let operator_may_follow = found.last().is_some_and(|(_, before)| match before {
            Token::Operator(_) => false,
            Token::Sign(sign) => matches!(*sign, ")" | "]" | "." | ".." | "*"),
            _ => true,
        });
        let next_is_digit = characters.get(at + 1).is_some_and(char::is_ascii_digit);
        let token = if c == '"' || c == '\'' {
            let length = characters[at + 1..].iter().position(|other| *other == c);
            let length = length.ok_or_else(|| RuleError::new(start + 1, "the quotation mark has no partner"))?;
            at += length + 2;
            Token::Literal(characters[start + 1..at - 1].iter().collect())
        } else if c.is_ascii_digit() || (c == '.' && next_is_digit) {
            while characters.get(at).is_some_and(char::is_ascii_digit) {
                at += 1;
            }
            if characters.get(at) == Some(&'.') {
                at += 1;
                while characters.get(at).is_some_and(char::is_ascii_digit) {
                    at += 1;
                }
            }
            let digits: String = characters[start..at].iter().collect();
            Token::Number(digits.parse().map_err(|_| RuleError::new(start + 1, "is no number"))?)
        } else if is_name_start(c) {
            at = name_end(&characters, at);
            let name: String = characters[start..at].iter().collect();
            let operator = ["and", "or", "div", "mod"].into_iter().find(|word| *word == name);
            match operator {
                Some(word) if operator_may_follow => Token::Operator(word),
                _ => Token::Name(name),
            }
        } else {
            let rest: String = characters[at..characters.len().min(at + 2)].iter().collect();
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| RuleError::new(start + 1, format!("{c:?} has no meaning here")))?;
            at += sign.len();
            if *sign == "*" && operator_may_follow { Token::Operator("*") } else { Token::Sign(sign) }
        };
        found.push((start + 1, token));
    }
    found.push((characters.len() + 1, Token::End));
    Ok(found)
}

/// Where a name ends, with one prefix; `::` belongs to no name.
fn name_end(characters: &[char], start: usize) -> usize {
    let part = |mut at: usize| {
        while characters.get(at).copied().is_some_and(is_name_part) {
            at += 1;
        }
        at
    };
    let end = part(start);
    match (characters.get(end), characters.get(end + 1)) {
        (Some(':'), Some('*')) => end + 2,
        (Some(':'), Some(c)) if is_name_start(*c) => part(end + 1),
        _ => end,
    }
}
