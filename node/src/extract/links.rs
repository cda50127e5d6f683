//! Resolves references and keeps each URL once, in order of first appearance.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

use proto::url::{CanonicalUrl, URL_BYTES_MAX};
use url::{Position, Url};
use xxhash_rust::xxh3::xxh3_64;

use super::page::{Defect, Extracted, Link, LinkKind};
use super::rules::ExtractRules;

/// A reference longer than this cannot become a URL that we keep, whatever its entities and tracking parameters.
const REFERENCE_BYTES_MAX: usize = 3 * URL_BYTES_MAX;

/// Takes a number that is a hash already for its hash. A page that makes all its links collide waits no longer for it than it may have links.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The links of one page while they are collected.
pub(super) struct LinkSet<'r> {
    rules: &'r ExtractRules,
    links: Vec<Link>,
    /// Index of a link by the hash of its URL. Two URLs of one hash are told apart; the later is then not deduplicated.
    index: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    links_max: usize,
    cut: bool,
    refused: bool,
    /// Room for one URL, so that not every reference allocates.
    glued: String,
}

impl<'r> LinkSet<'r> {
    /// A set that keeps at most `links_max` links.
    pub(super) fn new(rules: &'r ExtractRules, links_max: usize) -> Self {
        LinkSet {
            rules,
            links: Vec::new(),
            index: HashMap::default(),
            links_max,
            cut: false,
            refused: false,
            glued: String::new(),
        }
    }

    /// Whether there were more links than are kept.
    pub(super) fn cut(&self) -> bool {
        self.cut
    }

    /// Says that links were dropped before they came here.
    pub(super) fn set_cut(&mut self) {
        self.cut = true;
    }

    /// Adds what `reference` means on a page with base `base`; returns its index, for [`LinkSet::add_again`].
    pub(super) fn add(&mut self, base: &Url, reference: &str, kind: LinkKind, nofollow: bool) -> Option<u32> {
        let url = self.resolve(base, reference)?;
        self.insert(url, kind, nofollow)
    }

    /// Adds a link that is resolved already.
    pub(super) fn insert(&mut self, url: CanonicalUrl, kind: LinkKind, nofollow: bool) -> Option<u32> {
        let nofollow = nofollow && self.rules.rel_nofollow;
        let next = self.links.len() as u32;
        match self.index.entry(xxh3_64(url.as_str().as_bytes())) {
            Entry::Occupied(known) if self.links[*known.get() as usize].url == url => {
                let known = *known.get();
                self.links[known as usize].nofollow &= nofollow;
                return Some(known);
            }
            _ if self.links.len() >= self.links_max => {
                self.cut = true;
                return None;
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(free) => {
                free.insert(next);
            }
        }
        self.links.push(Link { url, kind, nofollow });
        Some(next)
    }

    /// Adds another mention of a link that was added before.
    pub(super) fn add_again(&mut self, index: u32, nofollow: bool) {
        self.links[index as usize].nofollow &= nofollow && self.rules.rel_nofollow;
    }

    /// The URL that `reference` means, if it is one that can be crawled.
    pub(super) fn resolve(&mut self, base: &Url, reference: &str) -> Option<CanonicalUrl> {
        let reference = trim(reference);
        if has_foreign_scheme(reference) {
            return None;
        }
        if reference.len() > REFERENCE_BYTES_MAX {
            self.refused = true;
            return None;
        }
        let resolved = if glue(base, reference, &mut self.glued) {
            CanonicalUrl::parse(&self.glued, &self.rules.urls)
        } else {
            CanonicalUrl::join(base, reference, &self.rules.urls)
        };
        match resolved {
            Ok(url) if is_http(url.as_str()) => Some(url),
            Ok(_) => None,
            Err(proto::url::UrlError::Scheme(_)) => None,
            Err(_) => {
                self.refused = true;
                None
            }
        }
    }

    /// The URLs of all links of one kind.
    pub(super) fn into_urls(self, kind: LinkKind) -> impl Iterator<Item = CanonicalUrl> {
        self.links.into_iter().filter(move |link| link.kind == kind).map(|link| link.url)
    }

    /// The links themselves.
    #[cfg(test)]
    pub(super) fn into_links(self) -> Vec<Link> {
        self.links
    }

    /// Hands the links to `out`.
    pub(super) fn finish(mut self, out: &mut Extracted) {
        if out.nofollow {
            self.links.iter_mut().for_each(|link| link.nofollow = true);
        }
        out.links = self.links;
        out.links_cut |= self.cut;
        out.note_if(self.refused, Defect::RefusedLinks);
    }
}

/// White space and controls around a reference mean nothing.
pub(super) fn trim(reference: &str) -> &str {
    reference.trim_matches(|character: char| character <= ' ')
}

/// Writes `reference` behind the part of `base` that it leaves alone, if it is of a form where that is all that joining
/// means; most references on the web are. The canonical form is then often recognised without parsing.
fn glue(base: &Url, reference: &str, glued: &mut String) -> bool {
    let reference = reference.split('#').next().unwrap_or_default();
    if reference.ends_with(|character: char| character <= ' ') {
        return false; // at the end of a URL it would be trimmed, before a fragment it is not
    }
    let kept = match reference.as_bytes() {
        [b'/'] => &base[..Position::BeforePath],
        [b'/', next, ..] if next.is_ascii_alphanumeric() => &base[..Position::BeforePath],
        [b'?', _, ..] => &base[..Position::AfterPath],
        [first, ..] if first.is_ascii_alphanumeric() => {
            let segment = reference.split(['/', '\\', '?']).next().unwrap_or_default();
            if segment.contains(':') {
                return false; // a scheme, or nearly one
            }
            let path = &base[..Position::AfterPath];
            &path[..path.rfind('/').map_or(0, |slash| slash + 1)]
        }
        _ => return false,
    };
    glued.clear();
    glued.push_str(kept);
    glued.push_str(reference);
    true
}

fn is_http(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// Whether `reference` is absolute and of a scheme other than http and https: `mailto:`, `javascript:`, `data:`.
/// Tells without parsing, because such references can be megabytes long.
fn has_foreign_scheme(reference: &str) -> bool {
    let bytes = reference.as_bytes();
    if !bytes.first().is_some_and(u8::is_ascii_alphabetic) {
        return false;
    }
    let mut scheme = [0_u8; 5];
    let mut length = 0;
    for &byte in bytes {
        match byte {
            b':' => return !matches!(&scheme[..length.min(5)], b"http" | b"https") || length > 5,
            b'\t' | b'\n' | b'\r' => {} // the URL parser drops them, so `java\nscript:` is a scheme too
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.' => {
                if length < 5 {
                    scheme[length] = byte.to_ascii_lowercase();
                }
                length += 1;
            }
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(rules: &ExtractRules) -> LinkSet<'_> {
        LinkSet::new(rules, 3)
    }

    fn base() -> Url {
        Url::parse("https://example.com/a/b").unwrap()
    }

    #[test]
    fn foreign_schemes_are_told_from_paths_with_colons() {
        for foreign in ["javascript:void(0)", "mailto:a@b.c", "DATA:text/html,x", "java\nscript:x", "ftp://h/", "tel:1"]
        {
            assert!(has_foreign_scheme(foreign), "{foreign}");
        }
        for ours in ["http://a/", "HTTPS://a/", "a/b:c", "?q=a:b", "#a:b", "//a:80/", "1:2", "", "httpx", "ht\ttp://a/"]
        {
            assert!(!has_foreign_scheme(ours), "{ours}");
        }
        assert!(has_foreign_scheme("httpsx://a/"));
    }

    #[test]
    fn links_keep_first_kind_and_order_and_are_nofollow_only_if_all_are() {
        let rules = ExtractRules::default();
        let mut links = set(&rules);
        assert_eq!(links.add(&base(), " c\n", LinkKind::Image, true), Some(0));
        assert_eq!(links.add(&base(), "/x", LinkKind::Anchor, true), Some(1));
        assert_eq!(links.add(&base(), "https://example.com/a/c#top", LinkKind::Anchor, false), Some(0));
        let found: Vec<_> = links.links.iter().map(|link| (link.url.as_str(), link.kind, link.nofollow)).collect();
        assert_eq!(
            found,
            [("https://example.com/a/c", LinkKind::Image, false), ("https://example.com/x", LinkKind::Anchor, true),]
        );
    }

    #[test]
    fn a_full_set_is_cut_but_still_knows_its_links() {
        let rules = ExtractRules::default();
        let mut links = set(&rules);
        for path in ["/1", "/2", "/3", "/1"] {
            assert!(links.add(&base(), path, LinkKind::Anchor, false).is_some());
        }
        assert!(!links.cut());
        assert_eq!(links.add(&base(), "/4", LinkKind::Anchor, false), None);
        assert!(links.cut());
    }

    proptest::proptest! {
        #[test]
        fn gluing_is_joining(
            path in "(/[a-z.;:@]{0,4}){0,3}(\\?[a-z/?]{0,4})?",
            reference in "[a-zA-Z0-9./\\\\?#:;@%& \t\n\u{e9}-]{0,12}",
        ) {
            let base = Url::parse(&format!("https://user@example.com:8443{path}")).unwrap();
            let mut glued = String::new();
            if glue(&base, &reference, &mut glued) {
                let rules = Default::default();
                let joined = CanonicalUrl::join(&base, &reference, &rules);
                proptest::prop_assert_eq!(CanonicalUrl::parse(&glued, &rules), joined, "{}", glued);
            }
        }
    }

    #[test]
    fn references_that_are_no_urls_are_noted_and_skipped() {
        let rules = ExtractRules::default();
        let mut links = set(&rules);
        assert_eq!(links.add(&base(), "http://[", LinkKind::Anchor, false), None);
        assert!(links.refused);
    }
}
