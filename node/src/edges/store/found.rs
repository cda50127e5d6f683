//! What the crawl tells the page graph: the links of each page, as they were found.
//!
//! The crawl only writes down what it saw, one row a page, in the batch that settles the page. To find the number of forty linked pages
//! there and then would be forty look-ups on the way on which every page waits for the disk; whoever keeps the graph ([`super::graph`]) does
//! it later, many pages at once and on another thread.
//!
//! A row: when (Unix milliseconds), the page's own priority with what its content is worth above it, its key; then for each link its own priority with one bit that says
//! whether it stays in the page's domain, its domain if it does not, and its id. A key is a slot, a domain, a crawl and an id, and slot and crawl follow
//! from the others.
//!
//! In a cluster a page is fetched by one node and kept by others. Whoever fetched it writes the row into `untold`, in the batch that keeps the page; another thread tells it to
//! the first node of the page's slot, which makes a record of it ([`super::clients`]), and whoever keeps that record has the row in `found`.

use std::sync::atomic::Ordering::Relaxed;

use proto::batch::{Discovered, Pick};
use proto::clients::spider::ROW_BYTES_MAX;
use proto::id::{Slot, UrlId};
use proto::key::UrlKey;
use proto::score::link_row::{read_varint, write_varint};
use proto::url::CanonicalUrl;

use super::change::Change;
use super::{Store, StoreError};

/// Bytes of a URL's id, at the end of its key.
const ID_BYTES: usize = 16;

/// The row of the page that is being settled.
pub(super) struct Finding {
    domain: Vec<u8>,
    row: Vec<u8>,
    /// Links beyond so many bytes are left out.
    bytes_max: usize,
}

impl Store {
    /// The number behind all rows that the graph has not taken in yet. It never falls while the folder is open: whoever takes rows in goes on behind
    /// the last one.
    pub(super) fn load_found(&mut self) -> Result<(), StoreError> {
        self.next_found = self.next_found.max(self.behind_last("found")?);
        self.next_untold = self.behind_last("untold")?;
        Ok(())
    }

    /// So many links are in no graph: a record has no room for them.
    pub(super) fn leave_out(&self, links: u64) {
        self.left_out.fetch_add(links, Relaxed);
    }

    fn behind_last(&self, family: &'static str) -> Result<u64, StoreError> {
        let mut rows = self.db.raw_iterator_cf(&self.family(family));
        rows.seek_to_last();
        let last = rows.key().and_then(|key| key.try_into().ok()).map(u64::from_be_bytes);
        rows.status().map_err(|error| self.failed(&error))?;
        Ok(last.map_or(0, |last| last + 1))
    }
}

impl Change<'_> {
    /// From here on links belong to this page, whose own priority is `own`.
    pub(super) fn begin_finding(&mut self, key: &UrlKey, own: u16, unix_ms: u64) {
        self.begin_finding_worth(key, own, 0.0, unix_ms);
    }

    /// The same of a page whose content is worth that by itself.
    pub(super) fn begin_finding_worth(&mut self, key: &UrlKey, own: u16, content: f32, unix_ms: u64) {
        if !self.store.options.graph {
            return;
        }
        let bytes = key.as_bytes();
        let mut row = Vec::with_capacity(1_024);
        write_varint(unix_ms, &mut row);
        let content = if content.is_finite() && content > 0.0 { content } else { 0.0 };
        write_varint(u64::from(content.to_bits()) << 16 | u64::from(own), &mut row);
        write_varint(bytes.len() as u64, &mut row);
        row.extend_from_slice(bytes);
        self.finding = Some(Finding { domain: key.domain().unwrap_or_default().into(), row, bytes_max: usize::MAX });
    }

    /// A page was fetched here that a cluster crawls: these links are to be told to whoever keeps it.
    pub fn find_untold(&mut self, pick: &Pick, links: &[Discovered], unix_ms: u64) -> Result<(), StoreError> {
        if !self.store.options.graph {
            return Ok(());
        }
        let crawl = pick.queue.crawl();
        self.begin_finding(&UrlKey::new(crawl, &pick.entry.url), pick.order.priority, unix_ms);
        if let Some(finding) = &mut self.finding {
            finding.bytes_max = ROW_BYTES_MAX;
        }
        for found in links {
            self.find_link(&UrlKey::new(crawl, &found.url), found);
        }
        let Some(Finding { row, .. }) = self.finding.take() else { return Ok(()) };
        let number = self.store.next_untold;
        self.store.next_untold += 1;
        self.put_row("untold", number, &row)
    }

    /// The graph hears of a page by such a row.
    pub(super) fn find_row(&mut self, row: &[u8]) -> Result<(), StoreError> {
        if !self.store.options.graph {
            return Ok(());
        }
        let number = self.store.next_found;
        self.store.next_found += 1;
        self.put_row("found", number, row)
    }

    fn put_row(&mut self, family: &'static str, number: u64, row: &[u8]) -> Result<(), StoreError> {
        self.rows.put(family, &number.to_be_bytes(), |out| {
            out.extend_from_slice(row);
            Ok(())
        })
    }

    /// Tells the graph of a page and its links, without crawling it.
    pub fn tell_links(&mut self, crawl: &str, page: &CanonicalUrl, own: u16, links: &[Discovered], unix_ms: u64) {
        self.begin_finding(&UrlKey::new(crawl, page), own, unix_ms);
        for found in links {
            self.find_link(&UrlKey::new(crawl, &found.url), found);
        }
        self.end_finding();
    }

    /// Links are found with the priority of their page's place in its queue. If a score has moved that, they go by what the page was found with:
    /// otherwise they would be given the score of their page, and then their own upon it.
    pub(super) fn take_score_out(links: &mut [Discovered], place: u16, own: u16) {
        let shift = i32::from(own) - i32::from(place);
        for found in links.iter_mut().filter(|_| shift != 0) {
            found.priority = (i32::from(found.priority) + shift).clamp(0, i32::from(u16::MAX)) as u16;
        }
    }

    /// A link of that page.
    pub(super) fn find_link(&mut self, key: &UrlKey, found: &Discovered) {
        self.find_link_of(key, found.url.domain(), found.priority);
    }

    /// The same by what its key says of its domain.
    pub(super) fn find_link_of(&mut self, key: &UrlKey, domain_of_key: &str, own: u16) {
        let Some(Finding { domain, row, bytes_max }) = &mut self.finding else { return };
        let other = domain_of_key.as_bytes();
        let same = *domain == other;
        if row.len() + ID_BYTES + 8 + if same { 0 } else { other.len() } > *bytes_max {
            self.store.leave_out(1);
            return;
        }
        write_varint(u64::from(own) << 1 | u64::from(same), row);
        if !same {
            write_varint(other.len() as u64, row);
            row.extend_from_slice(other);
        }
        row.extend_from_slice(&key.id().0);
    }

    /// That was its last link.
    pub(super) fn end_finding(&mut self) {
        let Some(Finding { row, .. }) = self.finding.take() else { return };
        let written = self.find_row(&row);
        debug_assert!(written.is_ok(), "bytes are appended");
    }
}

/// A page as the crawl found it.
pub(super) struct FoundPage {
    pub(super) unix_ms: u64,
    pub(super) own: u16,
    pub(super) content: f32,
    pub(super) key: UrlKey,
    pub(super) links: Vec<FoundLink>,
    /// Domains of links, one behind the other.
    domains: String,
}

/// A link of it. Most lead to pages that are known by their ids, so that the key is made only when it is needed ([`FoundPage::key_of`]).
pub(super) struct FoundLink {
    pub(super) own: u16,
    pub(super) id: UrlId,
    /// Where its domain stands; `None` if that is the page's.
    domain: Option<std::ops::Range<u32>>,
}

impl FoundLink {
    pub(super) fn is_same_domain(&self) -> bool {
        self.domain.is_none()
    }
}

/// The page that a row is about, if it is one.
pub fn page_of_row(row: &[u8]) -> Option<UrlKey> {
    FoundPage::read(row).ok().map(|page| page.key)
}

/// Whether two rows say the same, but for the time.
pub(super) fn says_the_same(row: &[u8], other: &[u8]) -> bool {
    let rest = |mut row: &[u8]| read_varint(&mut row).is_ok().then(|| row.to_vec());
    rest(row).is_some() && rest(row) == rest(other)
}

impl FoundPage {
    pub(super) fn read(mut bytes: &[u8]) -> Result<FoundPage, StoreError> {
        let bytes = &mut bytes;
        let unix_ms = number(bytes)?;
        let own = number(bytes)?;
        let (own, content) = (own as u16, f32::from_bits((own >> 16) as u32));
        let length = number(bytes)? as usize;
        let key = UrlKey::checked(take(bytes, length)?).ok_or_else(|| damaged("a page without a key"))?;
        let (mut links, mut domains) = (Vec::new(), String::new());
        while !bytes.is_empty() {
            let flags = number(bytes)?;
            let domain = if flags & 1 == 1 {
                None
            } else {
                let length = number(bytes)? as usize;
                let text = std::str::from_utf8(take(bytes, length)?);
                let start = domains.len() as u32;
                domains.push_str(text.map_err(|_| damaged("a domain that is no text"))?);
                Some(start..domains.len() as u32)
            };
            let id = take(bytes, ID_BYTES)?.try_into().map_err(|_| damaged("an id of another length"))?;
            links.push(FoundLink { own: (flags >> 1) as u16, id: UrlId(id), domain });
        }
        Ok(FoundPage { unix_ms, own, content, key, links, domains })
    }

    /// The key of a page that this one links to.
    pub(super) fn key_of(&self, link: &FoundLink) -> UrlKey {
        let page = self.key.as_bytes();
        let key = match &link.domain {
            None => [&page[..page.len() - ID_BYTES], &link.id.0].concat(),
            Some(domain) => {
                let domain = &self.domains[domain.start as usize..domain.end as usize];
                let slot = Slot::of_domain(domain).0.to_be_bytes();
                let crawl = self.key.crawl().unwrap_or_default();
                [&slot, domain.as_bytes(), &[0], crawl.as_bytes(), &[0], &link.id.0].concat()
            }
        };
        UrlKey::from_bytes(&key)
    }
}

fn damaged(reason: &str) -> StoreError {
    StoreError::damaged("found", reason)
}

fn number(bytes: &mut &[u8]) -> Result<u64, StoreError> {
    read_varint(bytes).map_err(|_| damaged("a number that does not end"))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], StoreError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or_else(|| damaged("a row that ends too early"))?;
    *bytes = rest;
    Ok(taken)
}
