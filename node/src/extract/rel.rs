//! Link relations: what `rel` makes of a `<link>`, and the `Link` header.

use url::Url;

use super::links::LinkSet;
use super::page::{Extracted, LinkKind, PageInput};

/// A header holds at most this many links that we read; servers send a handful, 8 KiB of header holds about 100.
const HEADER_LINKS_MAX: usize = 200;

/// Relations whose target is a page to read, by the registry of link relations and by habit.
const PAGES: [&str; 31] = [
    "next",
    "prev",
    "previous",
    "first",
    "last",
    "start",
    "up",
    "top",
    "home",
    "index",
    "contents",
    "toc",
    "chapter",
    "section",
    "subsection",
    "appendix",
    "glossary",
    "help",
    "about",
    "author",
    "me",
    "bookmark",
    "copyright",
    "license",
    "privacy-policy",
    "terms-of-service",
    "tag",
    "archives",
    "amphtml",
    "shortlink",
    "related",
];

/// Whether `rel` has the token `name`, in any case.
pub(super) fn has(rel: &str, name: &str) -> bool {
    rel.split_ascii_whitespace().any(|token| token.eq_ignore_ascii_case(name))
}

/// What a `<link>` is, by its `rel`, `type` and `as`; `None` if it leads to no resource.
pub(super) fn classify(rel: &str, media_type: &str, destination: &str) -> Option<LinkKind> {
    let mut found = None;
    for token in rel.split_ascii_whitespace() {
        let is = |name: &str| token.eq_ignore_ascii_case(name);
        let kind = if is("canonical") {
            return Some(LinkKind::Canonical);
        } else if is("stylesheet") {
            return Some(LinkKind::Style); // also `alternate stylesheet`
        } else if is("alternate") {
            match media_type {
                feed if is_feed(feed) => LinkKind::Feed,
                data if data.contains("json") || data.contains("oembed") => LinkKind::Other,
                _ => LinkKind::Alternate,
            }
        } else if is("icon") || is("apple-touch-icon") || is("apple-touch-icon-precomposed") || is("mask-icon") {
            LinkKind::Image
        } else if is("sitemap") {
            LinkKind::Sitemap
        } else if is("feed") {
            LinkKind::Feed
        } else if is("preload") || is("prefetch") || is("modulepreload") {
            preloaded(destination, is("modulepreload"))
        } else if is("preconnect") || is("dns-prefetch") {
            continue; // names a host, not a resource
        } else if PAGES.iter().any(|name| is(name)) {
            LinkKind::Related
        } else if is("nofollow") || is("noopener") || is("noreferrer") || is("shortcut") || is("external") {
            continue; // says how, not what
        } else {
            LinkKind::Other // manifests, `pingback`, addresses of programs
        };
        found = found.or(Some(kind));
    }
    found
}

fn preloaded(destination: &str, module: bool) -> LinkKind {
    match destination.trim().to_ascii_lowercase().as_str() {
        "script" | "worker" => LinkKind::Script,
        "style" => LinkKind::Style,
        "image" => LinkKind::Image,
        "audio" | "video" | "track" => LinkKind::Media,
        "document" | "iframe" => LinkKind::Related,
        "" if module => LinkKind::Script,
        _ => LinkKind::Other,
    }
}

fn is_feed(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    ["application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+json"]
        .iter()
        .any(|known| essence.eq_ignore_ascii_case(known))
}

/// Adds the links of the `Link` headers; the first canonical one is the page's. Their base is the page, not `<base>`.
pub(super) fn from_headers(page: &PageInput<'_>, links: &mut LinkSet<'_>, out: &mut Extracted) {
    if page.link_headers.is_empty() {
        return;
    }
    let base: Url = page.url.to_url();
    for header in page.link_headers {
        for link in header_links(header).take(HEADER_LINKS_MAX) {
            let Some(kind) = classify(&link.rel, &link.media_type, &link.destination) else { continue };
            let Some(url) = links.resolve(&base, link.reference) else { continue };
            if kind == LinkKind::Canonical && out.canonical.is_none() {
                out.canonical = Some(url.clone());
            }
            links.insert(url, kind, has(&link.rel, "nofollow"));
        }
    }
}

/// One link of a `Link` header, as far as it concerns us.
struct HeaderLink<'a> {
    reference: &'a str,
    rel: String,
    media_type: String,
    destination: String,
}

/// Reads `<url>; name=value; name="value", <url> ...` (RFC 8288, section 3).
fn header_links(header: &str) -> impl Iterator<Item = HeaderLink<'_>> {
    let mut rest = header;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once('<')?;
        let (reference, mut after) = after.split_once('>')?;
        let mut link =
            HeaderLink { reference, rel: String::new(), media_type: String::new(), destination: String::new() };
        while let Some(parameter) = after.trim_start().strip_prefix(';') {
            let (name, value, remaining) = parameter_of(parameter);
            let field = match () {
                () if name.eq_ignore_ascii_case("rel") => Some(&mut link.rel),
                () if name.eq_ignore_ascii_case("type") => Some(&mut link.media_type),
                () if name.eq_ignore_ascii_case("as") => Some(&mut link.destination),
                () => None,
            };
            if let Some(field) = field.filter(|field| field.is_empty()) {
                *field = value; // the first of several counts
            }
            after = remaining;
        }
        rest = after;
        Some(link)
    })
}

/// Splits `name="value"` off the start of `text`: name, value, rest.
fn parameter_of(text: &str) -> (&str, String, &str) {
    let end = text.find(['=', ';', ',']).unwrap_or(text.len());
    let name = text[..end].trim();
    let Some(value) = text[end..].strip_prefix('=') else { return (name, String::new(), &text[end..]) };
    let value = value.trim_start();
    let Some(quoted) = value.strip_prefix('"') else {
        let end = value.find([';', ',']).unwrap_or(value.len());
        return (name, value[..end].trim().to_owned(), &value[end..]);
    };
    let mut unquoted = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (name, unquoted, &quoted[at + 1..]),
            '\\' => unquoted.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => unquoted.push(character),
        }
    }
    (name, unquoted, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_say_what_a_link_is() {
        use LinkKind::*;
        for (rel, media_type, destination, kind) in [
            ("stylesheet", "", "", Some(Style)),
            ("alternate stylesheet", "", "", Some(Style)),
            ("shortcut icon", "", "", Some(Image)),
            ("alternate", "application/rss+xml; charset=utf-8", "", Some(Feed)),
            ("alternate", "text/html", "", Some(Alternate)),
            ("Canonical", "", "", Some(Canonical)),
            ("alternate", "application/json+oembed", "", Some(Other)),
            ("next", "", "", Some(Related)),
            ("https://api.w.org/", "", "", Some(Other)),
            ("preload", "", "script", Some(Script)),
            ("modulepreload", "", "", Some(Script)),
            ("preload", "", "font", Some(Other)),
            ("dns-prefetch", "", "", None),
            ("preconnect", "", "", None),
            ("", "", "", None),
        ] {
            assert_eq!(classify(rel, media_type, destination), kind, "{rel}");
        }
    }

    #[test]
    fn link_headers_are_split_at_the_right_commas() {
        let header =
            r#"</a,b>; rel="next prev"; title="a \"quoted\", <x>", <https://e.org/c> ;REL=canonical;rel=no,<d>"#;
        let found: Vec<_> = header_links(header).map(|link| (link.reference.to_owned(), link.rel)).collect();
        let expected = [("/a,b", "next prev"), ("https://e.org/c", "canonical"), ("d", "")];
        assert_eq!(found, expected.map(|(reference, rel)| (reference.to_owned(), rel.to_owned())));
    }

    #[test]
    fn malformed_link_headers_give_what_they_can() {
        for header in ["", "<", "<a", ">", "<a>;", "<a>;;;=", "<a>; rel=\"open", "<a>; rel=\"\\"] {
            assert!(header_links(header).count() <= 1, "{header}");
        }
    }
}
