//! Feeds: RSS 0.9x, 1.0 and 2.0, and Atom. Their entries are links; their titles are text.

use url::Url;

use super::links::{LinkSet, trim};
use super::page::{Defect, Extracted, LinkKind, PageInput};
use super::rel;
use super::rules::ExtractRules;
use super::text::{Break, TextBuilder, collapse};
use super::xml::{Token, XmlReader, attribute, local_name};

/// Text of one element that is kept: a URL or a title; summaries are cut.
const FIELD_BYTES_MAX: usize = 16 * 1024;
/// Nested `xml:base` that are honoured.
const BASES_MAX: usize = 16;

/// Reads a feed that came as a page.
pub(super) fn read(page: &PageInput<'_>, text: &str, rules: &ExtractRules, out: &mut Extracted) {
    let mut links = LinkSet::new(rules, rules.limits.links_max);
    rel::from_headers(page, &mut links, out);
    let found = read_links(text, &page.url.to_url(), rules, &mut links);
    out.title = found.title;
    out.note_if(found.broken, Defect::BrokenXml);
    out.note_if(found.text.cut(), Defect::TextCut);
    out.text = found.text.finish();
    links.finish(out);
}

/// What a feed has besides links.
pub(super) struct Feed {
    /// Title of the feed.
    title: Option<String>,
    /// Titles of its entries, and summaries without markup.
    text: TextBuilder,
    /// Whether it broke off.
    pub(super) broken: bool,
}

/// What the text of an element is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    FeedTitle,
    EntryText,
    Reference(LinkKind),
}

/// Adds the links of a feed to `links`.
pub(super) fn read_links(text: &str, base: &Url, rules: &ExtractRules, links: &mut LinkSet<'_>) -> Feed {
    let mut reader = XmlReader::new(text);
    let mut feed = Feed { title: None, text: TextBuilder::new(rules.limits.text_bytes_max), broken: false };
    let mut bases: Vec<(usize, Url)> = vec![(0, base.clone())];
    let mut entry: Option<usize> = None;
    let mut field: Option<(usize, Field)> = None;
    let mut value = String::new();
    while let Some(token) = reader.next() {
        let depth = reader.depth();
        match token {
            Token::Open(start) => {
                let here = bases.last().map_or(base, |(_, base)| base);
                if bases.len() < BASES_MAX
                    && let Some(inner) = attribute(&start, "xml:base").and_then(|inner| here.join(trim(&inner)).ok())
                {
                    bases.push((depth, inner));
                }
                let here = bases.last().map_or(base, |(_, base)| base);
                let name = local_name(&start);
                if entry.is_none() && matches!(name, "item" | "entry") {
                    entry = Some(depth);
                }
                for (name, kind) in held_by(name, &start, entry.is_some()) {
                    attribute(&start, name).and_then(|reference| links.add(here, &reference, kind, false));
                }
                // Depth 2 is the head of Atom and RSS 1.0, depth 3 that of RSS 2.0; images have titles too, deeper.
                let in_head = entry.is_none() && depth <= 3;
                let opened = match name {
                    "title" if in_head && feed.title.is_none() => Some(Field::FeedTitle),
                    "title" | "summary" | "description" if entry.is_some() => Some(Field::EntryText),
                    "link" | "guid" | "comments" | "url" => {
                        text_reference(name, &start, entry.is_some()).map(Field::Reference)
                    }
                    _ => None,
                };
                if let Some(opened) = opened {
                    field = Some((depth, opened));
                    value.clear();
                }
            }
            Token::Text(text) => {
                if field.is_some() && value.len() + text.len() <= FIELD_BYTES_MAX {
                    value.push_str(&text);
                }
            }
            Token::Close => {
                if let Some((_, field)) = field.take_if(|(level, _)| *level >= depth) {
                    let here = bases.last().map_or(base, |(_, base)| base);
                    close(field, &value, here, rules, links, &mut feed);
                }
                if entry.is_some_and(|level| level >= depth) {
                    entry = None;
                }
                bases.pop_if(|(level, _)| *level >= depth && depth > 0);
            }
        }
    }
    feed.broken = reader.broken();
    feed
}

fn close(field: Field, value: &str, base: &Url, rules: &ExtractRules, links: &mut LinkSet<'_>, feed: &mut Feed) {
    match field {
        Field::FeedTitle => feed.title = collapse(value, rules.limits.title_chars_max),
        // Summaries are often HTML inside XML; its tags are no text.
        Field::EntryText if value.contains('<') => {}
        Field::EntryText => {
            feed.text.separate(Break::Line);
            feed.text.push(value);
        }
        Field::Reference(kind) => {
            if !trim(value).is_empty() {
                links.add(base, value, kind, false);
            }
        }
    }
}

/// The attributes of an element that hold references.
fn held_by(name: &str, start: &quick_xml::events::BytesStart<'_>, in_entry: bool) -> Vec<(&'static str, LinkKind)> {
    let kind = match name {
        "link" => {
            let relation = attribute(start, "rel").unwrap_or("alternate".into());
            match relation.trim() {
                "alternate" if in_entry => LinkKind::Entry,
                "alternate" | "related" | "via" | "replies" => LinkKind::Related,
                "enclosure" => LinkKind::Media,
                "self" | "next" | "previous" | "prev" | "first" | "last" | "current" | "prev-archive" => LinkKind::Feed,
                _ => return Vec::new(), // `hub`, `edit` and the like are doors for programs
            }
        }
        "enclosure" => return vec![("url", LinkKind::Media)],
        "content" => return vec![("url", LinkKind::Media), ("src", LinkKind::Entry)],
        "thumbnail" => return vec![("url", LinkKind::Image)],
        "source" => return vec![("url", LinkKind::Feed)],
        "item" => return vec![("rdf:about", LinkKind::Entry)],
        "li" => return vec![("rdf:resource", LinkKind::Entry), ("resource", LinkKind::Entry)],
        _ => return Vec::new(),
    };
    vec![("href", kind)]
}

/// What the reference in the text of an element is, if it is one.
fn text_reference(name: &str, start: &quick_xml::events::BytesStart<'_>, in_entry: bool) -> Option<LinkKind> {
    match name {
        "link" if attribute(start, "href").is_some() => None,
        "link" if in_entry => Some(LinkKind::Entry),
        "link" => Some(LinkKind::Related),
        "guid" if attribute(start, "isPermaLink").is_none_or(|value| value.trim() != "false") => Some(LinkKind::Entry),
        "comments" => Some(LinkKind::Related),
        "url" if !in_entry => Some(LinkKind::Image),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<(String, LinkKind)>, Feed) {
        let rules = ExtractRules::default();
        let mut links = LinkSet::new(&rules, 100);
        let feed = read_links(text, &Url::parse("https://example.com/feed").unwrap(), &rules, &mut links);
        (links.into_links().into_iter().map(|link| (link.url.as_str().to_owned(), link.kind)).collect(), feed)
    }

    fn expect(text: &str, expected: &[(&str, LinkKind)]) -> Feed {
        let (found, feed) = read(text);
        let found: Vec<_> = found.iter().map(|(url, kind)| (url.as_str(), *kind)).collect();
        assert_eq!(found, expected);
        feed
    }

    use LinkKind::{Entry, Image, Media, Related};

    #[test]
    fn rss_2_lists_entries_enclosures_and_permanent_links() {
        let feed = expect(
            r#"<?xml version="1.0"?><rss version="2.0" xmlns:atom="x"><channel><title>News &amp; more</title>
               <link>https://example.com/</link><atom:link href="/feed" rel="self"/><atom:link rel="hub" href="/hub"/>
               <image><url>/logo.png</url><title>Logo</title><link>https://example.com/</link></image>
               <item><title>First</title><link> https://example.com/1?a=1&amp;b=2
               </link><description>&lt;p&gt;markup</description><enclosure url="/1.mp3" type="audio/mpeg"/></item>
               <item><title>Second</title><guid>https://example.com/2</guid><description>plain</description></item>
               <item><guid isPermaLink="false">https://example.com/no</guid><link><![CDATA[/3]]></link></item>
               </channel></rss>"#,
            &[
                ("https://example.com/", Related),
                ("https://example.com/feed", LinkKind::Feed),
                ("https://example.com/logo.png", Image),
                ("https://example.com/1?a=1&b=2", Entry),
                ("https://example.com/1.mp3", Media),
                ("https://example.com/2", Entry),
                ("https://example.com/3", Entry),
            ],
        );
        assert_eq!(feed.title.as_deref(), Some("News & more"));
        assert_eq!(feed.text.finish(), "First\nSecond\nplain");
        assert!(!feed.broken);
    }

    #[test]
    fn rss_1_lists_items_by_address() {
        expect(
            r#"<rdf:RDF xmlns:rdf="x" xmlns="y"><channel rdf:about="/"><title>T</title><link>/</link>
               <items><rdf:Seq><rdf:li rdf:resource="/1"/></rdf:Seq></items></channel>
               <item rdf:about="/1"><title>One</title><link>/1</link></item></rdf:RDF>"#,
            &[("https://example.com/", Related), ("https://example.com/1", Entry)],
        );
    }

    #[test]
    fn atom_lists_entries_and_honours_xml_base() {
        let feed = expect(
            r#"<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://example.org/blog/"><title>Blog</title>
               <link href="."/><link rel="self" href="atom.xml"/>
               <entry xml:base="2026/"><title>One</title><link href="one"/><link rel="edit" href="x"/>
                 <link rel="enclosure" href="one.mp3"/></entry>
               <entry><title>Two</title><link rel="alternate" href="two"/></entry></feed>"#,
            &[
                ("https://example.org/blog/", Related),
                ("https://example.org/blog/atom.xml", LinkKind::Feed),
                ("https://example.org/blog/2026/one", Entry),
                ("https://example.org/blog/2026/one.mp3", Media),
                ("https://example.org/blog/two", Entry),
            ],
        );
        assert_eq!(feed.title.as_deref(), Some("Blog"));
    }

    #[test]
    fn a_feed_that_breaks_off_gives_what_came_before() {
        let feed = expect("<rss><channel><item><link>/1</link></item><item><li", &[("https://example.com/1", Entry)]);
        assert!(feed.broken);
    }
}
