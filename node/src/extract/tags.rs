//! What is known about HTML tags by name: how they separate text, and which of their attributes hold references.

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

/// Calls `found` with the name of every closing tag in `markup`, which has no opening tags and no text.
pub(super) fn closing_tags(markup: &str, mut found: impl FnMut(&[u8])) {
    let bytes = markup.as_bytes();
    let next = |from: usize, wanted: u8| Some(from + bytes.get(from..)?.iter().position(|&byte| byte == wanted)? + 1);
    let mut at = 0;
    while let Some(inside) = next(at, b'<') {
        let end = if bytes[inside..].starts_with(b"!--") {
            markup[inside..].find("-->").map(|end| inside + end + 3)
        } else {
            if bytes.get(inside) == Some(&b'/') {
                found(TagName::read(&markup[inside + 1..]).as_bytes());
            }
            next(inside, b'>')
        };
        let Some(end) = end else { return };
        at = end;
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

    #[test]
    fn closing_tags_are_found_between_comments() {
        let mut names = Vec::new();
        closing_tags("</P ><!-- </b> --></li></><!doctype html></ul", |name| {
            names.push(String::from_utf8(name.to_vec()).unwrap())
        });
        assert_eq!(names, ["p", "li", "", "ul"]);
    }
}
