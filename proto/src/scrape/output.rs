//! How what was found is written: as JSON, or as XML or HTML around the macros of a template (`%title%`).

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use super::harvest::Item;
use super::template::{TemplateError, object, text};
use super::tree::escaped;

/// Bytes of what is written.
const OUTPUT_BYTES_MAX: usize = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Json,
    Xml,
    Html,
}

/// A way of writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    language: Language,
    header: String,
    items_header: String,
    item: Option<String>,
    items_footer: String,
    footer: String,
}

impl Output {
    pub(super) fn read(json: &Json, path: &str) -> Result<Output, TemplateError> {
        let known = ["name", "header", "items_header", "item", "items_footer", "footer"];
        let fields = object(json, path, &known)?;
        let part = |name: &str| Ok::<String, TemplateError>(text(fields, name, path)?.unwrap_or_default());
        let language = match part("name")?.as_str() {
            "" | "json" => Language::Json,
            "xml" => Language::Xml,
            "html" => Language::Html,
            other => {
                let what = format!("{other:?}: there are json, xml and html");
                return Err(TemplateError::new(format!("{path}.name"), what));
            }
        };
        Ok(Output {
            language,
            header: part("header")?,
            items_header: part("items_header")?,
            item: text(fields, "item", path)?,
            items_footer: part("items_footer")?,
            footer: part("footer")?,
        })
    }

    /// The name of its language.
    pub fn name(&self) -> &'static str {
        match self.language {
            Language::Json => "json",
            Language::Xml => "xml",
            Language::Html => "html",
        }
    }

    /// Writes things; at most about 2 MiB of them.
    pub fn write(&self, items: &[Item]) -> String {
        let one = |item: &Item| match (&self.item, self.language) {
            (Some(pattern), _) => self.filled(pattern, item),
            (None, Language::Json) => Json::Object(fields(item)).to_string(),
            (None, Language::Xml) => {
                let mut out = String::from("<item>");
                for (name, value) in &item.0 {
                    let name: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
                    let _ = write!(out, "<{name}>{}</{name}>", escaped(value, false));
                }
                out + "</item>"
            }
            (None, Language::Html) => {
                let mut out = String::from("<dl>");
                for (name, value) in &item.0 {
                    let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escaped(name, false), escaped(value, false));
                }
                out + "</dl>"
            }
        };
        let mut out = [self.header.as_str(), &self.items_header].concat();
        for (at, item) in items.iter().enumerate() {
            if out.len() > OUTPUT_BYTES_MAX {
                break;
            }
            if at > 0 && self.language == Language::Json {
                out.push(',');
            }
            out.push_str(&one(item));
        }
        out + &self.items_footer + &self.footer
    }

    /// A pattern with values in the place of `%tag%`; what is not there is empty. `%tag_extractor%` is what found it: a template.
    fn filled(&self, pattern: &str, item: &Item) -> String {
        let mut out = String::new();
        let mut rest = pattern;
        while let Some((before, after)) = rest.split_once('%') {
            out.push_str(before);
            let is_name = |name: &str| {
                !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | ':'))
            };
            match after.split_once('%') {
                Some((name, behind)) if is_name(name) => {
                    let value = match (item.get(name), name.strip_suffix("_extractor")) {
                        (Some(value), _) => value,
                        (None, Some(tag)) if item.get(tag).is_some() => "template",
                        _ => "",
                    };
                    out.push_str(&self.quoted(value));
                    rest = behind;
                }
                _ => {
                    out.push('%');
                    rest = after;
                }
            }
        }
        out + rest
    }

    fn quoted(&self, value: &str) -> String {
        match self.language {
            Language::Json => {
                let quoted = Json::from(value).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            Language::Xml | Language::Html => escaped(value, true),
        }
    }
}

/// A thing as JSON.
pub(super) fn fields(item: &Item) -> Map<String, Json> {
    item.0.iter().map(|(name, value)| (name.clone(), Json::from(value.as_str()))).collect()
}
