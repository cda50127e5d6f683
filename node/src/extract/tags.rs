//! What is known about HTML tags by name: how they separate text, and which of their attributes hold references; and what
//! stands between them.

use super::page::LinkKind;
use super::text::Break;

/// The longest tag name we know is `blockquote`; longer names are cut to this and match nothing.
const NAME_BYTES_MAX: usize = 16;

/// A tag name in lower case, on the stack: pages have thousands of tags.
#[derive(Clone, Copy)]
pub(super) struct TagName {
    bytes: [u8; NAME_BYTES_MAX],
    length: u8,
}

impl TagName {
    /// Reads the name at the start of `text`, which follows `<` or `</`.
    pub(super) fn read(text: &str) -> TagName {
        let mut name = TagName { bytes: [0; NAME_BYTES_MAX], length: 0 };
        for &byte in text.as_bytes().iter().take(NAME_BYTES_MAX) {
            if matches!(byte, b'\t' | b'\n' | b'\x0C' | b'\r' | b' ' | b'/' | b'>') {
                break;
            }
            name.bytes[usize::from(name.length)] = byte.to_ascii_lowercase();
            name.length += 1;
        }
        name
    }

    /// The name.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// What a tag, opening or closing, puts between the text before and after it.
pub(super) fn separation(name: &[u8]) -> Break {
    match name {
        b"a" | b"abbr" | b"acronym" | b"b" | b"base" | b"bdi" | b"bdo" | b"big" | b"cite" | b"code" | b"data"
        | b"del" | b"dfn" | b"em" | b"font" | b"i" | b"ins" | b"kbd" | b"label" | b"link" | b"mark" | b"meta"
        | b"nobr" | b"noscript" | b"q" | b"rb" | b"rp" | b"rt" | b"rtc" | b"ruby" | b"s" | b"samp" | b"script"
        | b"small" | b"span" | b"strike" | b"strong" | b"style" | b"sub" | b"sup" | b"template" | b"time"
        | b"title" | b"tt" | b"u" | b"var" | b"wbr" => Break::None,
        b"address" | b"article" | b"aside" | b"blockquote" | b"body" | b"br" | b"caption" | b"center" | b"dd"
        | b"details" | b"dialog" | b"dir" | b"div" | b"dl" | b"dt" | b"fieldset" | b"figcaption" | b"figure"
        | b"footer" | b"form" | b"frameset" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"head" | b"header"
        | b"hgroup" | b"hr" | b"html" | b"legend" | b"li" | b"main" | b"menu" | b"nav" | b"ol" | b"optgroup" | b"p"
        | b"pre" | b"search" | b"section" | b"summary" | b"table" | b"tbody" | b"textarea" | b"tfoot" | b"thead"
        | b"tr" | b"ul" | b"xmp" => Break::Line,
        _ => Break::Space,
    }
}

/// How the value of an attribute holds its references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// One URL.
    Url,
    /// A list of candidates, as in `srcset`.
    Candidates,
    /// Seconds and a URL, as in `<meta http-equiv="refresh">`.
    Refresh,
}

/// The attributes of `name` that hold references. `link`, `meta` and `base` need more than a table and are not here.
pub(super) fn references(name: &[u8]) -> &'static [(&'static str, LinkKind, Holds)] {
    use Holds::{Candidates, Url};
    use LinkKind::*;
    match name {
        b"a" => &[("href", Anchor, Url), ("xlink:href", Anchor, Url)],
        b"area" => &[("href", Area, Url)],
        b"img" => &[
            ("src", Image, Url),
            ("srcset", Image, Candidates),
            ("data-src", Image, Url),
            ("data-srcset", Image, Candidates),
            ("longdesc", Other, Url),
        ],
        b"image" => &[("href", Image, Url), ("xlink:href", Image, Url), ("src", Image, Url)],
        b"source" => &[("src", Media, Url), ("srcset", Image, Candidates), ("data-srcset", Image, Candidates)],
        b"iframe" | b"frame" => &[("src", Frame, Url), ("data-src", Frame, Url), ("longdesc", Other, Url)],
        b"form" => &[("action", Form, Url)],
        b"button" => &[("formaction", Form, Url)],
        b"input" => &[("formaction", Form, Url), ("src", Image, Url)],
        b"video" => &[("src", Media, Url), ("poster", Image, Url)],
        b"audio" | b"track" => &[("src", Media, Url)],
        b"object" => &[("data", Object, Url), ("codebase", Object, Url)],
        b"applet" => &[("codebase", Object, Url)],
        b"embed" => &[("src", Object, Url)],
        b"blockquote" | b"q" | b"del" | b"ins" => &[("cite", Cite, Url)],
        b"body" | b"table" | b"td" | b"th" => &[("background", Image, Url)],
        b"html" => &[("manifest", Other, Url)],
        b"script" => &[("src", Script, Url), ("href", Script, Url), ("xlink:href", Script, Url)],
        _ => &[],
    }
}

/// Something that stands between two opening tags.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    /// Text that may have entities.
    Text(&'a str),
    /// Text that has none.
    Data(&'a str),
    /// A closing tag.
    Closing(TagName),
}

/// What stands between two opening tags, or before the first or behind the last: taken apart as HTML says, comments left out.
pub(super) struct Markup<'a> {
    rest: &'a str,
}

impl<'a> Markup<'a> {
    pub(super) fn new(markup: &'a str) -> Self {
        Markup { rest: markup }
    }

    /// The next piece. `foreign`: inside a drawing or a formula, where there is character data.
    pub(super) fn next(&mut self, foreign: bool) -> Option<Piece<'a>> {
        loop {
            let bytes = self.rest.as_bytes();
            match bytes {
                [] => return None,
                [b'<', b'/', first, ..] if first.is_ascii_alphabetic() => {
                    let name = TagName::read(&self.rest[2..]);
                    self.skip(tag_end(bytes));
                    return Some(Piece::Closing(name));
                }
                [b'<', b'/', b'>', ..] => self.skip(3),
                [b'<', b'!', b'-', b'-', ..] => self.skip(comment_end(self.rest)),
                [b'<', b'!', b'[', ..] if foreign && self.rest.starts_with(CDATA) => {
                    self.skip(CDATA.len());
                    let end = self.rest.find("]]>").unwrap_or(self.rest.len());
                    let data = self.take(end);
                    self.skip(3);
                    return Some(Piece::Data(data));
                }
                // A doctype, or what counts as a comment: `</ >`, `<?xml ?>`, `<!x>`.
                [b'<', b'!' | b'?', ..] | [b'<', b'/', _, ..] => {
                    self.skip(self.rest.find('>').map_or(self.rest.len(), |end| end + 1))
                }
                // An opening tag that was none to the parser: the page ends within it.
                [b'<', first, ..] if first.is_ascii_alphabetic() => self.skip(bytes.len()),
                // A text begins here, perhaps with a `<` that means nothing.
                [first, ..] => {
                    let from = usize::from(*first == b'<');
                    let end = self.rest[from..].find('<').map_or(self.rest.len(), |at| from + at);
                    return Some(Piece::Text(self.take(end)));
                }
            }
        }
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }
}

const CDATA: &str = "<![CDATA[";

/// Where in a tag a byte stands.
#[derive(Clone, Copy)]
enum Within {
    TagName,
    /// Before the name of an attribute. A `=` here is the first byte of one.
    Gap,
    Name,
    NameOver,
    /// Behind `=`.
    ValueBegins,
    /// In a value without quotes, which may hold `=`, `/` and quotes.
    Value,
}

/// Where the closing tag that begins here ends: at the first `>` that is not in a quoted value, by the states of the HTML standard.
fn tag_end(tag: &[u8]) -> usize {
    let (mut at, mut within) = ("</".len(), Within::TagName);
    while let Some(&byte) = tag.get(at) {
        at += 1;
        let blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0C');
        within = match (within, byte) {
            (_, b'>') => return at,
            (Within::ValueBegins, b'"' | b'\'') => {
                let Some(end) = tag[at..].iter().position(|other| *other == byte) else { return tag.len() };
                at += end + 1;
                Within::Gap
            }
            (Within::Name | Within::NameOver, b'=') => Within::ValueBegins,
            (Within::Name | Within::NameOver, _) if blank => Within::NameOver,
            (Within::ValueBegins, _) if blank => Within::ValueBegins,
            (Within::ValueBegins, _) => Within::Value,
            (Within::TagName | Within::Value | Within::Gap, _) if blank => Within::Gap,
            (Within::TagName | Within::Gap | Within::Name | Within::NameOver, b'/') => Within::Gap,
            (Within::TagName | Within::Value, _) => within,
            (Within::Gap | Within::Name | Within::NameOver, _) => Within::Name,
        };
    }
    at
}

/// Where the comment that begins here ends.
fn comment_end(comment: &str) -> usize {
    let inside = &comment["<!--".len()..];
    if inside.starts_with('>') {
        return 5;
    }
    if inside.starts_with("->") {
        return 6;
    }
    let mut at = 4;
    while let Some(dashes) = comment[at..].find("--") {
        at += dashes + 2;
        match &comment.as_bytes()[at..] {
            [b'>', ..] => return at + 1,
            [b'!', b'>', ..] => return at + 2,
            _ => at -= 1, // `--->` ends too
        }
    }
    comment.len()
}

/// Where the raw text that begins here ends: at the closing tag of the tag before it.
pub(super) fn raw_text_end(text: &str, name: &[u8]) -> usize {
    tag_named(text, 0, "</", name).unwrap_or(text.len())
}

/// Where the script that begins here ends. In what looks like a comment, a script can hold another, with its closing tag.
pub(super) fn script_end(text: &str) -> usize {
    let (mut from, mut hidden_from) = (0, None);
    loop {
        let Some(end) = tag_named(text, from, "</", b"script") else { return text.len() };
        // Comments that are over before the closing tag hide nothing.
        let mut at = from;
        loop {
            if hidden_from.is_none() {
                hidden_from = text[at..end].find("<!--").map(|begins| at + begins + 2);
            }
            let Some(begins) = hidden_from else { return end };
            at = begins.max(at);
            let Some(over) = text[at..end].find("-->") else { break };
            (at, hidden_from) = (at + over + 3, None);
        }
        if tag_named(&text[..end], at, "<", b"script").is_none() {
            return end;
        }
        from = end + 2;
    }
}

/// Where, behind `from`, a tag stands that begins like this and has this name.
fn tag_named(text: &str, from: usize, opening: &str, name: &[u8]) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from;
    loop {
        at += text.get(at..)?.find(opening)?;
        let named = &bytes[at + opening.len()..];
        let ends = matches!(named.get(name.len()), Some(b'\t' | b'\n' | b'\x0C' | b'\r' | b' ' | b'/' | b'>'));
        if ends && named[..name.len()].eq_ignore_ascii_case(name) {
            return Some(at);
        }
        at += opening.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_names_are_lower_case_and_end_where_html_says() {
        for (text, name) in [("DIV class=x>", "div"), ("br/>", "br"), ("p>", "p"), ("h1\n", "h1"), ("", "")] {
            assert_eq!(TagName::read(text).as_bytes(), name.as_bytes());
        }
        assert_eq!(TagName::read("averyveryverylongname>").as_bytes().len(), NAME_BYTES_MAX);
    }

    fn pieces(markup: &str, foreign: bool) -> Vec<String> {
        let mut markup = Markup::new(markup);
        let mut found = Vec::new();
        while let Some(piece) = markup.next(foreign) {
            found.push(match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Data(text) => format!("[{text}]"),
                Piece::Closing(name) => format!("/{}", String::from_utf8_lossy(name.as_bytes())),
            });
        }
        found
    }

    #[test]
    fn what_stands_between_opening_tags_is_taken_apart() {
        for (markup, expected) in [
            ("a</P >b<!-- </b> --></li></><!doctype html></ul", &["a", "/p", "b", "/li", "/ul"][..]),
            ("1 < 2 <3<", &["1 ", "< 2 ", "<3", "<"]),
            ("a<!-->b<!--->c<!--x--!>d<!-- --- -->e<!--", &["a", "b", "c", "d", "e"]),
            ("a<?xml version='1'?>b</ p>c<!x>d", &["a", "b", "c", "d"]),
            ("a</p title='>' x=\">\" y>b</p x='", &["a", "/p", "b", "/p"]),
            (
                "</b x=''=' />a</b =' >b</b='>c</b x/='>d</b x= '>'>e</b x=y='>f",
                &["/b", "a", "/b", "b", "/b", "c", "/b", "d", "/b", "e", "/b", "f"],
            ),
            ("a<![CDATA[b>c", &["a", "c"]),
            ("</", &["</"]),
            ("a<p title='b", &["a"]),
        ] {
            assert_eq!(pieces(markup, false), expected, "{markup}");
        }
        assert_eq!(pieces("a<![CDATA[<b>&]]>c<![CDATA[d", true), ["a", "[<b>&]", "c", "[d]"]);
    }

    #[test]
    fn raw_text_ends_at_its_closing_tag() {
        assert_eq!(raw_text_end("a</b></styles></STYLE x>", b"style"), 14);
        assert_eq!(raw_text_end("a</style", b"style"), 8);
    }

    #[test]
    fn a_script_in_the_comment_of_a_script_does_not_end_it() {
        for (before, behind) in [
            ("x", "</script>y"),
            ("<!-- x", "</script>y --> </script>"),
            ("<!-- <script>x</script> -->", "</script>"),
            ("<!-- <script>x</script> <script>x</script> ", "</script>"),
            ("<!-- <script> --> ", "</script>"),
            ("<!--> <script> ", "</script>"),
            ("<!-- <scripts> ", "</script>"),
            ("<!-- <script>x</script>", ""),
        ] {
            assert_eq!(script_end(&format!("{before}{behind}")), before.len(), "{before}{behind}");
        }
    }
}
