//! Spiders: crawlers that fetch and parse, and are told what to fetch next by what the pages are worth.
//!
//! Their pages are records of clients under names of the cluster's own, a queue for each domain, so that leases, copies on W of R disks, repair and moves of
//! slots are those of all clients. What is different: a queue is ordered by rank and not by date, queues are served by the rank of their best page, and what
//! [`PageState`] keeps stands in the record. The links of a page are a record of their own in the same slot; whoever keeps that
//! slot takes them into its page graph. So are the links of pages that the cluster crawls itself, in the slots of those pages.

use serde::{Deserialize, Serialize};

use super::identity::{ClientQueueId, RESERVED};
use super::page::PageState;
use super::record::Metadata;
use crate::base64::{from_base64, to_base64};
use crate::key::UrlKey;
use crate::score::revisit::Revisit;
use crate::score::temperature::Rates;
use crate::url::CanonicalUrl;

/// Under which name pages are kept.
pub const PAGES: &str = "orbweaver:spiders";
/// Under which name links are kept.
pub const LINKS: &str = "orbweaver:links";
/// Name of the word with the links of a page.
const LINKS_WORD: &str = "links";
/// Bytes of the links of one page that are kept; of a longer list the first ones are.
const LINKS_BYTES_MAX: usize = 48 << 10;
/// Longest URL that spiders may report.
pub const URL_BYTES_MAX: usize = 8 << 10;
/// Pages in one question, and links of one page.
pub const PAGES_MAX: usize = 1_000;

/// The queue of a page.
pub fn queue_of(url: &CanonicalUrl) -> ClientQueueId {
    ClientQueueId::new(PAGES, url.domain())
}

/// The key by which a page is known, also in the page graph.
pub fn page_key(url: &CanonicalUrl) -> UrlKey {
    queue_of(url).url(url.as_str())
}

/// Whether a crawl is one of spiders.
pub fn is_pages(crawl: &str) -> bool {
    debug_assert!(PAGES.starts_with(RESERVED) && LINKS.starts_with(RESERVED));
    crawl == PAGES
}

/// Whether a crawl's records are lists of links.
pub fn is_links(crawl: &str) -> bool {
    crawl == LINKS
}

/// A link of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Where it leads, in canonical form.
    pub url: String,
    /// What it is worth.
    pub score: f32,
}

/// A page that a spider crawled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Crawled {
    /// In canonical form.
    pub url: String,
    /// What its content is worth.
    pub score: f32,
    /// What tells its content from others.
    pub content_hash: Option<u64>,
    /// Where its links lead, in canonical form.
    pub links: Vec<String>,
}

/// A page that somebody linked to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// In canonical form.
    pub url: String,
    /// What the link is worth.
    pub score: f32,
    /// Links from a seed.
    pub depth: u32,
    /// The id of the page with the link; none for a seed.
    pub linked_from: Option<crate::id::UrlId>,
}

/// Which pages are handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Those that were not crawled yet, best first.
    #[default]
    BestFirst,
    /// Those that were crawled, when they are to be crawled again.
    Revisit,
    /// Both.
    Both,
}

/// By which rules pages are handed out. The same on every node.
#[derive(Clone, Debug)]
pub struct SpiderRules {
    /// Which.
    pub schedule: Schedule,
    /// How often pages of a domain are; without any limit if absent.
    pub rates: Option<Rates>,
    /// When a page is crawled again.
    pub revisit: Revisit,
    /// Links from a seed beyond which nothing is crawled; 0 for no limit.
    pub depth_max: u32,
    /// Seconds after which a page that nobody reported is handed out again.
    pub lease_s: u32,
    /// Failures after which a page is given up.
    pub failures_max: u32,
    /// Seconds after which a page that failed is tried again; twice as long after every failure more.
    pub retry_s: u32,
}

impl Default for SpiderRules {
    fn default() -> Self {
        SpiderRules {
            schedule: Schedule::BestFirst,
            rates: None,
            revisit: Revisit::default(),
            depth_max: 0,
            lease_s: 600,
            failures_max: 3,
            retry_s: 60,
        }
    }
}

impl SpiderRules {
    /// The date of a page, Unix seconds: [`AT_ONCE`], a time at which it is crawled again, or 0 for never.
    pub fn date_s(&self, url: &str, page: &PageState, now_ms: u64) -> u64 {
        let (new, known) = match self.schedule {
            Schedule::BestFirst => (true, false),
            Schedule::Revisit => (false, true),
            Schedule::Both => (true, true),
        };
        let deep = self.depth_max > 0 && page.depth > self.depth_max;
        if page.failures >= self.failures_max || (page.crawls == 0 && (deep || !new)) || (page.crawls > 0 && !known) {
            return 0;
        }
        if page.failures > 0 {
            let wait_s = u64::from(self.retry_s) << (page.failures - 1).min(16);
            return (now_ms / 1_000 + wait_s).max(AT_ONCE + 1);
        }
        if page.crawls == 0 {
            return AT_ONCE;
        }
        self.revisit.next_ms(url, page).map_or(0, |next_ms| next_ms.div_ceil(1_000).max(AT_ONCE + 1))
    }
}

/// The date of a page that is handed out as soon as its rank lets it.
pub const AT_ONCE: u64 = 1;

/// What is asked for spiders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SpiderAsk {
    /// These pages were crawled.
    Crawled(Vec<Crawled>),
    /// These pages were found.
    Found(Vec<Found>),
    /// These pages could not be fetched.
    Failed(Vec<String>),
    /// Hand so many pages out, for so many seconds; 0 for the usual time.
    Take {
        /// How many.
        wanted: u32,
        /// For how long.
        lease_s: u32,
    },
    /// The page graph says that these pages are worth that.
    Worth(Vec<(UrlKeyBytes, i16)>),
    /// Crawl these pages so often, in Hz; 0 takes that back.
    Frequencies(Vec<(String, f64)>),
    /// Put up again what was never crawled and nobody is to crawl any more, a number of queues at a time.
    Reload {
        /// Where the last answer ended.
        after: Option<Vec<u8>>,
    },
    /// The cluster itself crawled these pages: the rows of what it found on each.
    Links(Vec<Vec<u8>>),
    /// As [`SpiderAsk::Take`], but only of domains that are cool enough for the soft rate: others, on whichever node, may have cooler ones.
    TakeCool {
        /// How many.
        wanted: u32,
        /// For how long.
        lease_s: u32,
    },
}

impl SpiderAsk {
    /// Whether pages are to be handed out.
    pub fn takes(&self) -> bool {
        matches!(self, SpiderAsk::Take { .. } | SpiderAsk::TakeCool { .. })
    }
}

/// The bytes of a page's key.
pub type UrlKeyBytes = Vec<u8>;

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SpiderSaid {
    /// How deep each of the crawled pages is.
    Crawled(Vec<u32>),
    /// How many were new, or changed.
    Changed(u64),
    /// Pages that are handed out.
    Given(Vec<String>),
    /// How many pages were put up again, and where to go on.
    Reloaded(u64, Option<Vec<u8>>),
}

/// The links of a page as words of a record.
pub fn links_metadata(content: f32, links: &[String]) -> Metadata {
    let mut left = LINKS_BYTES_MAX;
    let fits = |link: &&String| {
        left = left.saturating_sub(link.len() + 4);
        left > 0
    };
    let kept = links.iter().take_while(fits).cloned().collect();
    vec![(format!("{LINKS_WORD} {:x}", content.to_bits()), kept)]
}

/// Name of the word with the row of a page that the cluster crawled itself.
const ROW_WORD: &str = "row";
/// Bytes of such a row: as text, with its names, it fits into a record on its way between nodes.
pub const ROW_BYTES_MAX: usize = 44_000;

/// Where the row of a page that the cluster crawled itself is kept, and the name that it has there.
pub fn row_place(page: &UrlKey) -> Option<(ClientQueueId, String)> {
    let queue = ClientQueueId::beside(LINKS, page.domain()?);
    Some((queue, format!("{} {}", page.id(), page.crawl()?)))
}

/// The crawl of such a row, by its name.
pub fn crawl_of_row(name: &str) -> Option<&str> {
    name.split_once(' ').map(|(_, crawl)| crawl)
}

/// A row as words of a record.
pub fn row_metadata(row: &[u8]) -> Metadata {
    vec![(ROW_WORD.to_owned(), vec![to_base64(row)])]
}

/// The row, by such words.
pub fn read_row(metadata: &Metadata) -> Option<Vec<u8>> {
    match metadata.as_slice() {
        [(word, texts)] if word == ROW_WORD => from_base64(texts.first()?),
        _ => None,
    }
}

/// What a page is worth by itself, and its links, by such words.
pub fn read_links(metadata: &Metadata) -> Option<(f32, &[String])> {
    let (name, links) = metadata.first()?;
    let (word, content) = name.split_once(' ')?;
    let content = f32::from_bits(u32::from_str_radix(content, 16).ok()?);
    (word == LINKS_WORD).then_some((content, links))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_do_not_fit_are_left_out_at_the_end() {
        let links: Vec<String> = (0..5_000).map(|page| format!("http://a.example/{page}")).collect();
        let words = links_metadata(0.5, &links);
        let (content, kept) = read_links(&words).unwrap();
        assert_eq!((content, kept), (0.5, &links[..kept.len()]));
        assert!(
            kept.len() > 1_000
                && super::super::record::ClientUrl::bytes("", &words) <= super::super::identity::ITEM_BYTES_MAX
        );
        assert_eq!(read_links(&vec![("other".into(), Vec::new())]), None);
    }

    #[test]
    fn the_longest_row_fits_into_a_record() {
        let url = CanonicalUrl::parse("http://www.a.example/x", &crate::url::UrlRules::default()).unwrap();
        let crawl = "c".repeat(crate::key::CRAWL_NAME_BYTES_MAX);
        let page = UrlKey::new(&crawl, &url);
        let (queue, name) = row_place(&page).unwrap();
        let bytes = super::super::record::ClientUrl::bytes(&name, &row_metadata(&vec![255; ROW_BYTES_MAX]));
        assert!(bytes <= super::super::identity::ITEM_BYTES_MAX, "{bytes}");
        assert_eq!((crawl_of_row(&name), queue.slot()), (Some(crawl.as_str()), page.slot()), "beside its page");
        assert_eq!(UrlKey::checked(queue.url(&name).as_bytes()), Some(queue.url(&name)));
        assert_ne!(
            queue.slot(),
            ClientQueueId::new(LINKS, url.domain()).slot(),
            "which is not where clients have theirs"
        );
    }

    #[test]
    fn a_page_has_a_date_by_the_rules() {
        let now = 5_000_000;
        let revisit = Revisit::new(0.1, 0.0, 0.0, 0, "").unwrap();
        let best = SpiderRules { revisit: revisit.clone(), depth_max: 2, ..SpiderRules::default() };
        let both = SpiderRules { schedule: Schedule::Both, ..best.clone() };
        let again = SpiderRules { schedule: Schedule::Revisit, ..best.clone() };
        let date = |rules: &SpiderRules, page: &PageState| rules.date_s("http://a.example/", page, now);
        let fresh = PageState { depth: 2, ..PageState::default() };
        assert_eq!([&best, &both, &again].map(|rules| date(rules, &fresh)), [AT_ONCE, AT_ONCE, 0]);
        let deep = PageState { depth: 3, ..fresh };
        assert_eq!([&best, &both, &again].map(|rules| date(rules, &deep)), [0, 0, 0]);
        let crawled = PageState { crawls: 1, last_crawl_ms: now, ..deep };
        assert_eq!([&best, &both, &again].map(|rules| date(rules, &crawled)), [0, 5_010, 5_010]);
        let failed = |failures| PageState { failures, ..fresh };
        assert_eq!([1, 2, 3].map(|times| date(&best, &failed(times))), [5_060, 5_120, 0]);
    }

    #[test]
    fn a_page_and_its_links_are_in_one_slot() {
        let url = CanonicalUrl::parse("http://www.a.example/x", &crate::url::UrlRules::default()).unwrap();
        assert_eq!(queue_of(&url).slot(), ClientQueueId::new(LINKS, url.domain()).slot());
        assert_eq!(page_key(&url).slot(), queue_of(&url).slot());
    }
}
