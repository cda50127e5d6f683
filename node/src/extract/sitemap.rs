//! Sitemaps: XML lists of pages, XML lists of sitemaps, feeds, plain text with one URL a line, and gzip of all these.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use proto::url::CanonicalUrl;
use url::Url;
use xxhash_rust::xxh3::xxh3_64;

use super::links::{LinkSet, trim};
use super::page::{Defect, Extracted, LinkKind, PageInput, PageKind};
use super::rules::ExtractRules;
use super::xml::{Token, XmlReader, local_name};
use super::{charset, feed, kind, rel};

/// A date and time needs 25 characters at most; anything longer is no date.
const LASTMOD_BYTES_MAX: usize = 40;
/// An element with more text than this holds no URL that we keep.
const FIELD_BYTES_MAX: usize = 16 * 1024;

/// What a sitemap lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SitemapFound {
    /// Pages, each once, in order, with their `lastmod` as it stands in the sitemap.
    pub urls: Vec<(CanonicalUrl, Option<String>)>,
    /// Further sitemaps, each once, in order.
    pub sitemaps: Vec<CanonicalUrl>,
    /// Whether the sitemap listed more than we keep.
    pub cut: bool,
    /// What was wrong with it.
    pub defects: Vec<Defect>,
}

/// Reads a sitemap found at `base`, whatever its form. A body that is none gives an empty result.
pub fn parse_sitemap(body: &[u8], base: &CanonicalUrl, rules: &ExtractRules) -> SitemapFound {
    let mut list = List::new(rules, base);
    let body = list.decompress(body);
    let text = charset::decode(&body, None, true, base.host()).text;
    match kind::xml_kind(&text) {
        Some(PageKind::Sitemap | PageKind::SitemapIndex) => list.read_xml(&text),
        Some(PageKind::Feed) => list.read_feed(&text),
        Some(_) => {}
        None => list.read_lines(&text),
    }
    list.found
}

/// Reads a sitemap that came as a page.
pub(super) fn read(page: &PageInput<'_>, text: &str, rules: &ExtractRules, out: &mut Extracted) {
    let mut list = List::new(rules, page.url);
    list.read_xml(text);
    let mut links = LinkSet::new(rules, rules.limits.sitemap_urls_max);
    rel::from_headers(page, &mut links, out);
    for url in list.found.sitemaps {
        links.insert(url, LinkKind::Sitemap, false);
    }
    for (url, _) in list.found.urls {
        links.insert(url, LinkKind::Entry, false);
    }
    out.links_cut |= list.found.cut;
    list.found.defects.into_iter().for_each(|defect| out.note_if(true, defect));
    links.finish(out);
}

/// A sitemap while it is read.
struct List<'r> {
    rules: &'r ExtractRules,
    base: Url,
    seen: HashSet<u64>,
    /// Resolves references; the links themselves are kept in `found`, with their dates.
    resolver: LinkSet<'r>,
    found: SitemapFound,
}

/// The part of an entry that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Location,
    Modified,
}

impl<'r> List<'r> {
    fn new(rules: &'r ExtractRules, base: &CanonicalUrl) -> Self {
        List {
            rules,
            base: base.to_url(),
            seen: HashSet::new(),
            resolver: LinkSet::new(rules, 0),
            found: SitemapFound::default(),
        }
    }

    fn note(&mut self, defect: Defect) {
        if !self.found.defects.contains(&defect) {
            self.found.defects.push(defect);
        }
    }

    fn decompress<'b>(&mut self, body: &'b [u8]) -> Cow<'b, [u8]> {
        let bytes_max = self.rules.limits.sitemap_bytes_max;
        if !body.starts_with(&[0x1F, 0x8B]) {
            if body.len() > bytes_max {
                self.note(Defect::BodyCut);
            }
            return Cow::Borrowed(&body[..body.len().min(bytes_max)]);
        }
        let mut plain = Vec::new();
        if MultiGzDecoder::new(body).take(bytes_max as u64 + 1).read_to_end(&mut plain).is_err() {
            self.note(Defect::BrokenGzip);
        }
        if plain.len() > bytes_max {
            plain.truncate(bytes_max);
            self.note(Defect::BodyCut);
        }
        Cow::Owned(plain)
    }

    /// Reads `<url>` and `<sitemap>` entries. `<image:loc>` and the like are a level deeper and do not count.
    fn read_xml(&mut self, text: &str) {
        let mut reader = XmlReader::new(text);
        let mut entry: Option<(usize, bool)> = None;
        let mut field: Option<Field> = None;
        let (mut location, mut modified) = (String::new(), String::new());
        while let Some(token) = reader.next() {
            let depth = reader.depth();
            match (token, entry) {
                (Token::Open(start), None) => {
                    let name = local_name(&start);
                    if matches!(name, "url" | "sitemap") {
                        entry = Some((depth, name == "sitemap"));
                        location.clear();
                        modified.clear();
                    }
                }
                (Token::Open(start), Some((level, _))) if depth == level + 1 => {
                    field = match local_name(&start) {
                        "loc" => Some(Field::Location),
                        "lastmod" => Some(Field::Modified),
                        _ => None,
                    };
                }
                (Token::Text(text), Some((level, _))) if depth == level + 1 => {
                    let to = match field {
                        Some(Field::Location) => &mut location,
                        Some(Field::Modified) => &mut modified,
                        None => continue,
                    };
                    if to.len() + text.len() <= FIELD_BYTES_MAX {
                        to.push_str(&text);
                    }
                }
                (Token::Close, Some((level, _))) if depth == level + 1 => field = None,
                (Token::Close, Some((level, is_sitemap))) if depth <= level => {
                    entry = None;
                    if !self.add(&location, &modified, is_sitemap) {
                        return;
                    }
                }
                _ => {}
            }
        }
        if reader.broken() {
            self.note(Defect::BrokenXml);
        }
    }

    /// The protocol allows RSS and Atom as sitemaps.
    fn read_feed(&mut self, text: &str) {
        let mut links = LinkSet::new(self.rules, self.rules.limits.sitemap_urls_max);
        let read = feed::read_links(text, &self.base, self.rules, &mut links);
        if read.broken {
            self.note(Defect::BrokenXml);
        }
        self.found.cut = links.cut();
        self.found.urls = links.into_urls(LinkKind::Entry).map(|url| (url, None)).collect();
    }

    fn read_lines(&mut self, text: &str) {
        for line in text.lines() {
            let line = trim(line.trim_start_matches('\u{feff}'));
            let absolute = line.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
            if absolute && !self.add(line, "", false) {
                return;
            }
        }
    }

    /// Adds an entry; returns whether there is room for more.
    fn add(&mut self, location: &str, modified: &str, is_sitemap: bool) -> bool {
        let location = trim(location);
        if location.is_empty() {
            return true;
        }
        let Some(url) = self.resolver.resolve(&self.base, location) else {
            self.note(Defect::RefusedLinks);
            return true;
        };
        if !self.seen.insert(xxh3_64(url.as_str().as_bytes())) {
            return true;
        }
        if self.seen.len() > self.rules.limits.sitemap_urls_max {
            self.found.cut = true;
            return false;
        }
        if is_sitemap {
            self.found.sitemaps.push(url);
        } else {
            let modified = modified.trim();
            let known = !modified.is_empty() && modified.len() <= LASTMOD_BYTES_MAX;
            self.found.urls.push((url, known.then(|| modified.to_owned())));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn base() -> CanonicalUrl {
        CanonicalUrl::parse("https://example.com/maps/sitemap.xml", &Default::default()).unwrap()
    }

    fn parse(body: &[u8]) -> SitemapFound {
        parse_sitemap(body, &base(), &ExtractRules::default())
    }

    fn urls(found: &SitemapFound) -> Vec<&str> {
        found.urls.iter().map(|(url, _)| url.as_str()).collect()
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    const URLSET: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="x">
        <url><loc> https://example.com/?a=1&amp;b=2 </loc><lastmod>2026-01-02</lastmod></url>
        <url><image:image><image:loc>https://example.com/i.png</image:loc></image:image>
             <loc><![CDATA[https://example.com/c?d&e]]></loc></url>
        <url><loc>/relative</loc><lastmod>much too long to be a date, by any calendar we know</lastmod></url>
        <url><loc>https://example.com/?a=1&#38;b=2</loc></url><url><loc/></url><url/></urlset>"#;

    #[test]
    fn pages_are_listed_once_with_their_dates() {
        let found = parse(URLSET.as_bytes());
        assert_eq!(
            urls(&found),
            ["https://example.com/?a=1&b=2", "https://example.com/c?d&e", "https://example.com/relative"]
        );
        assert_eq!(found.urls[0].1.as_deref(), Some("2026-01-02"));
        assert_eq!(found.urls[2].1, None);
        assert_eq!((found.cut, found.defects.len()), (false, 0));
    }

    #[test]
    fn sitemap_indexes_list_sitemaps() {
        let body = "<s:sitemapindex xmlns:s='x'><s:sitemap><s:loc>https://example.com/1.xml.gz</s:loc></s:sitemap>\
                    <s:sitemap><s:loc>https://example.com/2.xml</s:loc></s:sitemap></s:sitemapindex>";
        let found = parse(body.as_bytes());
        assert_eq!(found.sitemaps.len(), 2);
        assert_eq!(found.sitemaps[0].as_str(), "https://example.com/1.xml.gz");
        assert!(found.urls.is_empty());
    }

    #[test]
    fn gzip_is_known_by_its_first_bytes() {
        assert_eq!(parse(&gzip(URLSET.as_bytes())), parse(URLSET.as_bytes()));
        let two_members = [gzip(&URLSET.as_bytes()[..100]), gzip(&URLSET.as_bytes()[100..])].concat();
        assert_eq!(parse(&two_members), parse(URLSET.as_bytes()));
    }

    #[test]
    fn plain_text_has_one_url_a_line() {
        let found = parse("\u{feff}https://example.com/a\r\n\n  HTTP://example.com/b \nnot a url\n# no\n".as_bytes());
        assert_eq!(urls(&found), ["https://example.com/a", "http://example.com/b"]);
    }

    #[test]
    fn feeds_serve_as_sitemaps() {
        let body = "<rss><channel><link>https://example.com/</link><item><link>https://example.com/x</link></item>\
                    </channel></rss>";
        assert_eq!(urls(&parse(body.as_bytes())), ["https://example.com/x"]);
    }

    #[test]
    fn other_encodings_are_read() {
        let body = "<?xml version='1.0' encoding='iso-8859-1'?><urlset><url><loc>https://example.com/\u{e4}</loc></url></urlset>";
        let latin: Vec<u8> = body.chars().map(|character| character as u8).collect();
        assert_eq!(urls(&parse(&latin)), ["https://example.com/%C3%A4"]);
        let wide: Vec<u8> =
            std::iter::once('\u{feff}').chain(body.chars()).flat_map(|c| (c as u16).to_le_bytes()).collect();
        assert_eq!(urls(&parse(&wide)), ["https://example.com/%C3%A4"]);
    }

    #[test]
    fn a_sitemap_that_breaks_off_gives_what_came_before() {
        let found = parse(&URLSET.as_bytes()[..300]);
        assert_eq!(found.urls.len(), 1);
        assert_eq!(found.defects, [Defect::BrokenXml]);
        let zipped = gzip(URLSET.as_bytes());
        assert!(parse(&zipped[..zipped.len() - 20]).defects.contains(&Defect::BrokenGzip));
    }

    #[test]
    fn a_sitemap_of_too_many_urls_is_cut() {
        let lines: String = (0..60).map(|number| format!("https://example.com/{number}\n")).collect();
        let mut rules = ExtractRules::default();
        rules.limits.sitemap_urls_max = 50;
        let found = parse_sitemap(lines.as_bytes(), &base(), &rules);
        assert_eq!((found.urls.len(), found.cut), (50, true));
    }

    #[test]
    fn a_gzip_bomb_is_not_unpacked_beyond_the_limit() {
        let bomb = gzip(&vec![b' '; 4_000_000]);
        let mut rules = ExtractRules::default();
        rules.limits.sitemap_bytes_max = 1_000_000;
        let found = parse_sitemap(&bomb, &base(), &rules);
        assert_eq!(found.defects, [Defect::BodyCut]);
    }

    #[test]
    fn pages_that_are_no_sitemaps_list_nothing() {
        for body in ["", "<html><a href='https://example.com/'>x</a></html>", "\0\0\0", "<urlset", "Not found"] {
            assert!(parse(body.as_bytes()).urls.is_empty(), "{body}");
        }
    }
}
