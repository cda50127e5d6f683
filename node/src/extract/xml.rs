//! A thin reader over quick-xml for feeds and sitemaps: lenient, depth-counting, with references resolved.
//!
//! quick-xml hands out `a&amp;b` as three events; here they are three texts in a row, so callers collect until the
//! element closes. Entities are never expanded from a document type, so no entity can explode.

use std::borrow::Cow;

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::text::{Break, TextBuilder};

/// What an XML document is made of, as far as feeds and sitemaps go.
pub(crate) enum Token<'a> {
    /// An element begins; it is at [`XmlReader::depth`].
    Open(BytesStart<'a>),
    /// The element at [`XmlReader::depth`] ends.
    Close,
    /// Text inside the element at [`XmlReader::depth`].
    Text(Cow<'a, str>),
}

/// Reads tokens until the end or the first thing that is not XML.
pub(crate) struct XmlReader<'a> {
    inner: Reader<&'a [u8]>,
    depth: usize,
    closing: bool,
    broken: bool,
}

impl<'a> XmlReader<'a> {
    /// A reader of `text`.
    pub(crate) fn new(text: &'a str) -> Self {
        let mut inner = Reader::from_str(text.trim_start_matches('\u{feff}').trim_start());
        let config = inner.config_mut();
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        config.allow_dangling_amp = true;
        config.expand_empty_elements = true;
        XmlReader { inner, depth: 0, closing: false, broken: false }
    }

    /// How deep the last token is; the root element is at 1.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether the document broke off before its end.
    pub(crate) fn broken(&self) -> bool {
        self.broken
    }

    /// The next token; `None` at the end, or where the document breaks.
    pub(crate) fn next(&mut self) -> Option<Token<'a>> {
        if std::mem::take(&mut self.closing) {
            self.depth = self.depth.saturating_sub(1);
        }
        loop {
            match self.inner.read_event() {
                Ok(Event::Start(start)) => {
                    self.depth += 1;
                    return Some(Token::Open(start));
                }
                Ok(Event::End(_)) => {
                    self.closing = true;
                    return Some(Token::Close);
                }
                Ok(Event::Text(text)) => return Some(Token::Text(text.into_inner())),
                Ok(Event::CData(data)) => return Some(Token::Text(data.into_inner())),
                Ok(Event::GeneralRef(name)) => {
                    let reference = format!("&{};", &*name);
                    return Some(Token::Text(htmlize::unescape(reference).into_owned().into()));
                }
                Ok(Event::Eof) => {
                    self.broken |= self.depth > 0;
                    return None;
                }
                Ok(_) => {}
                Err(_) => {
                    self.broken = true;
                    return None;
                }
            }
        }
    }
}

/// Name of an element without its namespace prefix.
pub(super) fn local_name<'s>(start: &'s BytesStart<'_>) -> &'s str {
    let name: &str = start.name().into_inner();
    name.rsplit(':').next().unwrap_or(name)
}

/// The attribute called `name`, prefix and all, with its entities resolved.
pub(super) fn attribute<'s>(start: &'s BytesStart<'_>, name: &str) -> Option<Cow<'s, str>> {
    // Without checks: finding duplicates takes time in the square of their number.
    let mut attributes = start.attributes();
    attributes
        .with_checks(false)
        .map_while(Result::ok)
        .find(|attribute| attribute.key.into_inner() == name)
        .map(|attribute| htmlize::unescape(attribute.value))
}

/// All attributes, with their entities resolved.
#[allow(dead_code)] // the fuzz targets take in this folder without the part that uses it
pub(crate) fn attributes(start: &BytesStart<'_>) -> Vec<(String, String)> {
    let mut attributes = start.attributes();
    let pair = |attribute: quick_xml::events::attributes::Attribute<'_>| {
        (attribute.key.into_inner().to_owned(), htmlize::unescape(attribute.value).into_owned())
    };
    attributes.with_checks(false).map_while(Result::ok).map(pair).collect()
}

/// Collects the text of any XML, one element a line.
pub(super) fn character_data(text: &str, builder: &mut TextBuilder) {
    let mut reader = XmlReader::new(text);
    while let Some(token) = reader.next() {
        match token {
            Token::Open(_) | Token::Close => builder.separate(Break::Line),
            Token::Text(text) => builder.push(&text),
        }
        if builder.cut() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(text: &str) -> String {
        let mut reader = XmlReader::new(text);
        let mut out = String::new();
        while let Some(token) = reader.next() {
            match token {
                Token::Open(start) => out += &format!("{}<{}>", reader.depth(), local_name(&start)),
                Token::Close => out += &format!("{}</>", reader.depth()),
                Token::Text(text) => out += &text,
            }
        }
        out + if reader.broken() { "!" } else { "" }
    }

    #[test]
    fn text_comes_with_entities_and_cdata_resolved() {
        assert_eq!(flat("<a>x&amp;y&#65;&#x42;&eacute;<![CDATA[<&>]]></a>"), "1<a>x&yABé<&>1</>");
        assert_eq!(flat("<a>&unknown;</a>"), "1<a>&unknown;1</>");
        assert_eq!(flat("<a>fish & chips</a>"), "1<a>fish & chips1</>");
    }

    #[test]
    fn depth_counts_empty_elements_and_survives_wrong_closing_tags() {
        assert_eq!(flat("<p:a><b/></x></y>"), "1<a>2<b>2</>1</>0</>");
    }

    #[test]
    fn what_breaks_off_is_read_as_far_as_it_goes() {
        assert_eq!(flat("<a><b>x"), "1<a>2<b>x!");
        assert_eq!(flat("<a><b"), "1<a>!");
    }

    #[test]
    fn entities_of_a_document_type_are_not_expanded() {
        let bomb = "<!DOCTYPE a [<!ENTITY x 'yyyyyyyy'>]><a>&x;</a>";
        assert_eq!(flat(bomb), "1<a>&x;1</>");
    }
}
