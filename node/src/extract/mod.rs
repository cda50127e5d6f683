//! Fetched bytes in, text and links out: plain functions, no I/O, no clock.
//!
//! One page goes through these files in order:
//! `kind` says what the body is, `charset` makes it UTF-8, then one of `html`, `feed` and `sitemap` reads it.
//! `html` hands references to `links`, which resolves and deduplicates them; `robots`, `rel`, `refresh` and `srcset`
//! read the small languages inside attributes and headers; `text` collects what a visitor sees, from which `language`
//! and `fingerprint` are computed.
//!
//! The web is hostile, so nothing here panics on any input, and everything that grows has a bound in
//! [`ExtractLimits`]. When a bound is reached the rest is dropped and the result says so.

mod charset;
mod feed;
mod fingerprint;
mod html;
mod kind;
mod language;
mod links;
mod page;
mod refresh;
mod rel;
mod robots;
mod rules;
mod sitemap;
mod srcset;
mod tags;
mod text;
pub(crate) mod xml;

#[cfg(test)]
mod tests;

pub use fingerprint::distance;
pub use page::{Defect, Extracted, Link, LinkKind, PageInput, PageKind};
pub use rules::{ExtractLimits, ExtractRules};
pub use sitemap::{SitemapFound, parse_sitemap};

use links::LinkSet;

/// Turns a fetched page into text and links.
///
/// Same input, same output, on every machine: the result may be compared between nodes and between runs.
pub fn extract(page: &PageInput<'_>, rules: &ExtractRules) -> Extracted {
    let media = kind::MediaType::parse(page.content_type);
    let claimed = kind::claimed(&media, page.body);
    let mut out = Extracted::empty(page, claimed);
    out.media_type = media.essence;
    let header_robots = robots::from_headers(page.x_robots_tag, page.product_token);
    if rules.x_robots_tag {
        out.noindex = header_robots.noindex;
        out.nofollow = header_robots.nofollow;
    }
    if matches!(claimed, kind::Claimed::Empty | kind::Claimed::Binary) {
        let mut links = LinkSet::new(rules, rules.limits.links_max);
        rel::from_headers(page, &mut links, &mut out);
        links.finish(&mut out);
        return out;
    }

    let decoded = charset::decode(page.body, media.charset.as_deref(), claimed == kind::Claimed::Xml, page.url.host());
    out.charset = Some(decoded.encoding.name());
    out.note_if(decoded.malformed, Defect::UndecodableBytes);
    out.kind = kind::decide(claimed, &decoded.text);
    if out.media_type.is_empty() {
        out.media_type = kind::media_type_of(out.kind).to_owned();
    }
    match out.kind {
        PageKind::Html => html::read(page, &decoded.text, rules, &mut out),
        PageKind::Feed => feed::read(page, &decoded.text, rules, &mut out),
        PageKind::Sitemap | PageKind::SitemapIndex => sitemap::read(page, &decoded.text, rules, &mut out),
        PageKind::Text => read_text(page, &decoded.text, claimed, rules, &mut out),
        PageKind::Binary | PageKind::Empty => {}
    }
    out.language = language::detect(&out.text);
    out.fingerprint = fingerprint::simhash(&out.text);
    out
}

/// The text of a body that is said to be of this type, in the way [`extract`] reads it.
#[allow(dead_code)] // the fuzz targets take in this folder without the part that uses it
pub(crate) fn decoded<'a>(body: &'a [u8], content_type: Option<&str>, host: &str) -> std::borrow::Cow<'a, str> {
    let media = kind::MediaType::parse(content_type);
    let xml = kind::claimed(&media, body) == kind::Claimed::Xml;
    charset::decode(body, media.charset.as_deref(), xml, host).text
}

/// Takes text as it is, or, from XML of no kind we know, its character data.
fn read_text(page: &PageInput<'_>, text: &str, claimed: kind::Claimed, rules: &ExtractRules, out: &mut Extracted) {
    let mut links = LinkSet::new(rules, rules.limits.links_max);
    rel::from_headers(page, &mut links, out);
    let mut builder = text::TextBuilder::new(rules.limits.text_bytes_max);
    if claimed == kind::Claimed::Xml || (claimed == kind::Claimed::Unknown && text.trim_start().starts_with("<?xml")) {
        xml::character_data(text, &mut builder);
    } else {
        for line in text.lines() {
            builder.separate(text::Break::Line);
            builder.push(line);
            if builder.cut() {
                break;
            }
        }
    }
    out.note_if(builder.cut(), Defect::TextCut);
    out.text = builder.finish();
    links.finish(out);
}
