//! What a script prints: one URI a line, or one object with the key `uri` and, if it wants, `args`. Objects are JSON, or the way Python prints a dictionary.

use serde_json::{Map, Value as Json};

/// How deep an object may go.
const DEPTH_MAX: usize = 16;

/// What a line says: a URI and its arguments.
pub type Said = (String, Option<Json>);

/// Understands a line; `None` if it is blank.
pub fn line(text: &str) -> Result<Option<Said>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if !text.starts_with('{') {
        return Ok(Some((text.to_owned(), None)));
    }
    let object = match serde_json::from_str::<Json>(text) {
        Ok(object) => object,
        Err(error) => literal(text).ok_or_else(|| format!("neither JSON ({error}) nor a dictionary of Python"))?,
    };
    let Json::Object(mut fields) = object else { return Err("no object".to_owned()) };
    let uri = match fields.remove("uri") {
        Some(Json::String(uri)) => uri,
        Some(other) => return Err(format!("`uri` is {other}, and must be a text")),
        None => return Err("field `uri` not found".to_owned()),
    };
    let args = match fields.remove("args") {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) if text.trim().is_empty() => None,
        Some(Json::String(text)) => {
            Some(serde_json::from_str(&text).map_err(|error| format!("`args` is a text that is no JSON: {error}"))?)
        }
        Some(args) => Some(args),
    };
    Ok(Some((uri, args)))
}

/// Reads what Python prints of a dictionary.
fn literal(text: &str) -> Option<Json> {
    let mut reader = Reader { rest: text, depth: 0 };
    let value = reader.value()?;
    reader.rest.trim().is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl Reader<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(token) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    fn value(&mut self) -> Option<Json> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        self.rest = self.rest.trim_start();
        let value = match self.rest.chars().next()? {
            '{' => self.dictionary(),
            '[' => self.list('[', "]"),
            '(' => self.list('(', ")"),
            '\'' | '"' => self.text().map(Json::String),
            _ => self.word(),
        };
        self.depth -= 1;
        value
    }

    fn dictionary(&mut self) -> Option<Json> {
        self.eat("{");
        let mut fields = Map::new();
        while !self.eat("}") {
            self.rest = self.rest.trim_start();
            let name = self.text()?;
            if !self.eat(":") {
                return None;
            }
            let value = self.value()?;
            fields.insert(name, value);
            if !self.eat(",") && !self.rest.trim_start().starts_with('}') {
                return None;
            }
        }
        Some(Json::Object(fields))
    }

    fn list(&mut self, open: char, close: &str) -> Option<Json> {
        self.rest = self.rest.strip_prefix(open)?;
        let mut items = Vec::new();
        while !self.eat(close) {
            items.push(self.value()?);
            if !self.eat(",") && !self.rest.trim_start().starts_with(close) {
                return None;
            }
        }
        Some(Json::Array(items))
    }

    fn text(&mut self) -> Option<String> {
        let mut letters = self.rest.char_indices();
        let (_, quote) = letters.next().filter(|(_, letter)| matches!(letter, '\'' | '"'))?;
        let mut text = String::new();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '\\' => text.push(match letters.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'x' => {
                        let digits: String = letters.by_ref().take(2).map(|(_, digit)| digit).collect();
                        char::from(u8::from_str_radix(&digits, 16).ok()?)
                    }
                    'u' => {
                        let digits: String = letters.by_ref().take(4).map(|(_, digit)| digit).collect();
                        char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                    }
                    other => other,
                }),
                letter if letter == quote => {
                    self.rest = &self.rest[at + 1..];
                    return Some(text);
                }
                letter => text.push(letter),
            }
        }
        None
    }

    fn word(&mut self) -> Option<Json> {
        let end = self.rest.find([',', '}', ']', ')', ' ']).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        let value = match word {
            "None" | "null" => Json::Null,
            "True" | "true" => Json::Bool(true),
            "False" | "false" => Json::Bool(false),
            number => Json::Number(serde_json::from_str(number).ok()?),
        };
        self.rest = &self.rest[end..];
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_line_is_a_uri_or_an_object_with_one() {
        assert_eq!(line("  http://a.example/ \r").unwrap(), Some(("http://a.example/".into(), None)));
        assert_eq!(line(" ").unwrap(), None);
        let args = json!({"headers": {"X-A": "it's"}, "n": [1, null, true]});
        let printed = r#"{"uri": "http://a.example/", "args": {"headers": {"X-A": "it's"}, "n": [1, null, true]}}"#;
        assert_eq!(line(printed).unwrap(), Some(("http://a.example/".into(), Some(args.clone()))));
        let python = r#"{'uri': 'http://a.example/', 'args': {'headers': {'X-A': "it's"}, 'n': [1, None, True]}}"#;
        assert_eq!(line(python).unwrap(), Some(("http://a.example/".into(), Some(args))));
    }

    #[test]
    fn case_16_what_is_missing_is_named() {
        assert!(line("{\"url\": \"http://a.example/\"}").unwrap_err().contains("field `uri` not found"));
        assert!(line("{\"uri\": 7}").unwrap_err().contains("must be a text"));
        assert!(line("{\"uri\"").unwrap_err().contains("neither JSON"));
        assert!(line(&format!("{{'uri': {}", "[".repeat(200_000))).is_err(), "as deep as it may be, and no deeper");
    }

    proptest! {
        #[test]
        fn any_line_is_understood_or_refused(text in "\\PC{0,60}|[{}\\[\\]':,a-z\\\\\"0-9 ]{0,60}") {
            let _ = line(&text);
            let _ = literal(&text);
        }
    }
}
