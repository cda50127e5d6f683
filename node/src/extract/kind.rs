//! What a body is: by its declared media type, corrected by its first bytes where servers are known to be wrong.
//!
//! Conservative: a declared type is believed except for well-known file signatures, feeds and sitemaps sent as HTML,
//! and binary data sent as plain text. Only a missing type is guessed. See the MIME Sniffing standard, section 7.

use super::page::PageKind;

/// The sniffing standard looks at this many bytes.
const SNIFF_BYTES: usize = 1445;
/// Comments before the root element of an XML file can be long: licences, generators.
const ROOT_BYTES: usize = 16 * 1024;
/// A media type longer than this is nonsense.
const ESSENCE_BYTES_MAX: usize = 100;

/// A `Content-Type` header.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MediaType {
    /// Type and subtype in lower case; empty if missing or malformed.
    pub(super) essence: String,
    /// The `charset` parameter.
    pub(super) charset: Option<String>,
}

impl MediaType {
    /// Reads the value of a `Content-Type` header.
    pub(super) fn parse(header: Option<&str>) -> MediaType {
        let Some(header) = header else { return MediaType::default() };
        let essence = header.split([';', ',']).next().unwrap_or_default().trim().to_ascii_lowercase();
        let well_formed = essence.len() <= ESSENCE_BYTES_MAX
            && essence.split_once('/').is_some_and(|(kind, subtype)| !kind.is_empty() && !subtype.is_empty())
            && essence.bytes().all(|byte| byte.is_ascii_graphic());
        let charset = header.split(';').skip(1).find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches(['"', '\'']).to_owned())
        });
        MediaType { essence: if well_formed { essence } else { String::new() }, charset }
    }
}

/// What a body is said to be, before it is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// No bytes.
    Empty,
    /// Nothing to read.
    Binary,
    /// HTML.
    Html,
    /// XML of some kind.
    Xml,
    /// Plain text.
    Text,
    /// No type was declared; it is text of some kind.
    Unknown,
}

/// What `body` is by its declared type and its first bytes.
pub(super) fn claimed(media: &MediaType, body: &[u8]) -> Claimed {
    if body.is_empty() {
        return Claimed::Empty;
    }
    if has_file_signature(body) {
        return Claimed::Binary;
    }
    let looks_binary = || if is_binary(body) { Claimed::Binary } else { Claimed::Text };
    match media.essence.as_str() {
        "" | "*/*" | "unknown/unknown" | "application/unknown" => match looks_binary() {
            Claimed::Binary => Claimed::Binary,
            _ => Claimed::Unknown,
        },
        "text/html" | "application/xhtml+xml" => Claimed::Html,
        "text/xml" | "application/xml" => Claimed::Xml,
        "text/css" | "text/javascript" | "text/ecmascript" | "text/x-javascript" => Claimed::Binary,
        essence if essence.starts_with("image/") => Claimed::Binary,
        essence if essence.ends_with("+xml") => Claimed::Xml,
        essence if essence.starts_with("text/") => looks_binary(),
        _ => Claimed::Binary,
    }
}

/// What the decoded `text` is.
pub(super) fn decide(claimed: Claimed, text: &str) -> PageKind {
    match claimed {
        Claimed::Empty => PageKind::Empty,
        Claimed::Binary => PageKind::Binary,
        Claimed::Text => PageKind::Text,
        Claimed::Html => match xml_kind(text) {
            Some(kind @ (PageKind::Feed | PageKind::Sitemap | PageKind::SitemapIndex)) => kind,
            _ => PageKind::Html,
        },
        Claimed::Xml => xml_kind(text).unwrap_or(PageKind::Text),
        Claimed::Unknown => {
            if let Some(kind) = xml_kind(text).filter(|kind| *kind != PageKind::Text) {
                kind
            } else if is_html(text) {
                PageKind::Html
            } else {
                PageKind::Text
            }
        }
    }
}

/// The media type of a page that declared none.
pub(super) fn media_type_of(kind: PageKind) -> &'static str {
    match kind {
        PageKind::Html => "text/html",
        PageKind::Feed | PageKind::Sitemap | PageKind::SitemapIndex => "application/xml",
        PageKind::Text => "text/plain",
        PageKind::Binary => "application/octet-stream",
        PageKind::Empty => "",
    }
}

/// What the root element says; `None` if there is none.
pub(super) fn xml_kind(text: &str) -> Option<PageKind> {
    let root = root_element(&text[..text.floor_char_boundary(ROOT_BYTES)])?;
    let local = root.rsplit(':').next().unwrap_or(root);
    let is = |name: &str| local.eq_ignore_ascii_case(name);
    Some(match () {
        () if is("html") => PageKind::Html,
        () if is("rss") || is("feed") || is("RDF") => PageKind::Feed,
        () if is("urlset") => PageKind::Sitemap,
        () if is("sitemapindex") => PageKind::SitemapIndex,
        () => PageKind::Text,
    })
}

/// Name of the first element, behind declarations, comments and processing instructions.
fn root_element(text: &str) -> Option<&str> {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    loop {
        rest = rest.strip_prefix('<')?;
        let end = if rest.starts_with("!--") {
            rest.find("-->")? + 3
        } else if rest.starts_with('?') {
            rest.find("?>")? + 2
        } else if rest.starts_with('!') {
            end_of_doctype(rest)?
        } else {
            let end = rest.find(|character: char| character.is_whitespace() || matches!(character, '>' | '/'));
            return end.map(|end| &rest[..end]).filter(|name| !name.is_empty());
        };
        rest = rest[end..].trim_start();
    }
}

/// A document type can hold declarations of its own in brackets.
fn end_of_doctype(text: &str) -> Option<usize> {
    let mut inside = false;
    text.bytes().enumerate().find_map(|(at, byte)| match byte {
        b'[' => {
            inside = true;
            None
        }
        b']' => {
            inside = false;
            None
        }
        b'>' if !inside => Some(at + 1),
        _ => None,
    })
}

/// Whether text of no declared type begins like HTML.
fn is_html(text: &str) -> bool {
    const STARTS: [&str; 19] = [
        "<!doctype html",
        "<html",
        "<head",
        "<script",
        "<iframe",
        "<h1",
        "<div",
        "<font",
        "<table",
        "<a",
        "<style",
        "<title",
        "<b",
        "<body",
        "<br",
        "<p",
        "<meta",
        "<link",
        "<base",
    ];
    let text = text.trim_start_matches('\u{feff}').trim_start();
    text.starts_with("<!--")
        || STARTS.iter().any(|start| {
            text.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
                && matches!(text.as_bytes().get(start.len()), Some(b' ' | b'>' | b'\n' | b'\r' | b'\t' | b'/'))
        })
}

/// Whether the first bytes hold controls that no text has. Text in UTF-16 does, and begins with a byte order mark.
fn is_binary(body: &[u8]) -> bool {
    if body.starts_with(&[0xFE, 0xFF]) || body.starts_with(&[0xFF, 0xFE]) {
        return false;
    }
    let control = |&byte: &u8| matches!(byte, 0..=0x08 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F);
    body[..body.len().min(SNIFF_BYTES)].iter().any(control)
}

/// Whether the body begins as a well-known file format that is often sent under a wrong type.
fn has_file_signature(body: &[u8]) -> bool {
    const SIGNATURES: [&[u8]; 18] = [
        b"%PDF-",
        b"\x89PNG\r\n",
        b"GIF87a",
        b"GIF89a",
        b"\xFF\xD8\xFF",
        b"PK\x03\x04",
        b"\x1F\x8B\x08",
        b"Rar!\x1A",
        b"7z\xBC\xAF",
        b"OggS\0",
        b"ID3",
        b"\0\0\x01\0",
        b"wOFF",
        b"wOF2",
        b"\xD0\xCF\x11\xE0",
        b"\x7FELF",
        b"\0asm",
        b"BZh9",
    ];
    SIGNATURES.iter().any(|signature| body.starts_with(signature))
        || (body.starts_with(b"RIFF")
            && body.get(8..12).is_some_and(|form| matches!(form, b"WEBP" | b"WAVE" | b"AVI ")))
        || body.get(4..8).is_some_and(|form| form == b"ftyp")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(header: Option<&str>, body: &str) -> PageKind {
        decide(claimed(&MediaType::parse(header), body.as_bytes()), body)
    }

    #[test]
    fn content_types_are_read_with_their_charset() {
        for (header, essence, charset) in [
            ("text/html", "text/html", None),
            (" Text/HTML ; Charset=\"UTF-8\"; x=y", "text/html", Some("UTF-8")),
            ("text/html;charset=utf-8", "text/html", Some("utf-8")),
            ("text/html, text/html; charset='x'", "text/html", Some("x")),
            ("html", "", None),
            ("text/", "", None),
            ("te xt/html", "", None),
        ] {
            let media = MediaType::parse(Some(header));
            assert_eq!((media.essence.as_str(), media.charset.as_deref()), (essence, charset), "{header}");
        }
        assert_eq!(MediaType::parse(Some(&format!("text/{}", "x".repeat(200)))).essence, "");
    }

    #[test]
    fn declared_types_are_believed_but_for_feeds_and_sitemaps_sent_as_html() {
        use PageKind::*;
        let html = "<!doctype html><p>x";
        let rss = "<?xml version=\"1.0\"?>\n<!-- made by x --><rss version=\"2.0\"></rss>";
        let sitemap = "<urlset xmlns=\"x\"></urlset>";
        for (header, body, expected) in [
            ("text/html", html, Html),
            ("application/xhtml+xml", html, Html),
            ("text/html; charset=x", rss, Feed),
            ("text/html", sitemap, Sitemap),
            ("text/html", "plain words", Html),
            ("text/plain", html, Text),
            ("text/plain", "a\0b", Binary),
            ("application/xml", rss, Feed),
            ("text/xml", "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a '>'>]><sitemapindex/>", SitemapIndex),
            ("application/rdf+xml", "<rdf:RDF></rdf:RDF>", Feed),
            ("application/atom+xml", "\u{feff} <a:feed/>", Feed),
            ("application/xml", "<other/>", Text),
            ("application/xml", "<html lang='x'>", Html),
            ("application/xml", "", Empty),
            ("image/svg+xml", "<svg/>", Binary),
            ("application/json", "{}", Binary),
            ("text/css", "a{}", Binary),
            ("application/octet-stream", html, Binary),
            ("text/html", "%PDF-1.7", Binary),
        ] {
            assert_eq!(kind(Some(header), body), expected, "{header}: {body}");
        }
    }

    #[test]
    fn a_missing_type_is_guessed() {
        use PageKind::*;
        for (body, expected) in [
            (" \n<!DOCTYPE HTML>", Html),
            ("<html>", Html),
            ("<!-- x --><p>", Html),
            ("<p>x", Html),
            ("<pre>x", Text),
            ("<?xml version='1.0'?><feed/>", Feed),
            ("<?xml version='1.0'?><html><p>", Html),
            ("<rss version='2'>", Feed),
            ("words", Text),
            ("a\u{1}b", Binary),
            ("", Empty),
        ] {
            assert_eq!(kind(None, body), expected, "{body}");
            assert_eq!(kind(Some("unknown/unknown"), body), expected, "{body}");
        }
    }
}
