//! What the rules of a run do not admit is set aside, and looked at again when a later run has other rules.
//!
//! Two things stand in the family `aside`, under the key of their URL: the *entry* of a URL that was in a queue when a run met it
//! whose rules refuse it, and a *link* that a page has and that no run's rules admitted yet. Links have a bound (`links_aside_max`):
//! a crawl of one host sees more links to the rest of the web than it has pages. Whoever changes the rules pays for one pass over
//! the rows; as long as the digest of the rules is the same nothing is read.

use proto::batch::{Discovered, Entry, EntryKind, Pick};
use proto::cluster::copy::Kept;
use proto::crawl::filter::Filter;
use proto::crawl::outcome::Ending;
use proto::id::UrlId;
use proto::key::{Order, QueueKey, UrlKey, split_due};
use proto::record::{Progress, Status, UrlState};
use proto::wire;
use serde::{Deserialize, Serialize};

use super::change::{Admitted, Change};
use super::{Store, StoreError};

/// Where the digest of the rules stands that everything was looked at with.
const RULES: &[u8] = b"rules";

/// What is set aside.
#[derive(Debug, Serialize, Deserialize)]
enum Aside {
    /// A known URL: what stands in its queue when it comes back.
    Entry { order: Order, entry: Entry },
    /// A URL that is not known yet, and the page that names it.
    Link { found: Discovered, parent: Option<UrlId> },
}

/// How far a pass over what is set aside has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Among the entries that wait to be tried again: behind this key.
    Due(Vec<u8>),
    /// Among what is set aside: behind this key.
    Aside(Vec<u8>),
}

impl Pass {
    /// The beginning.
    pub const START: Pass = Pass::Due(Vec::new());
}

impl Store {
    /// Counts entries and links that are set aside.
    pub(super) fn count_aside(&self) -> Result<(u64, u64), StoreError> {
        let (mut entries, mut links) = (0, 0);
        for row in self.rows("aside", Vec::new(), Vec::new()) {
            let (_, value) = row?;
            match wire::decode(&value).map_err(|error| StoreError::damaged("aside", error))? {
                Aside::Entry { .. } => entries += 1,
                Aside::Link { .. } => links += 1,
            }
        }
        Ok((entries, links))
    }
}

impl Change<'_> {
    /// Sets the entry of a URL aside.
    pub(super) fn put_aside(&mut self, queue: &QueueKey, order: Order, entry: Entry) -> Result<(), StoreError> {
        let key = UrlKey::new(queue.crawl(), &entry.url);
        self.drop_aside(&key)?;
        self.put("aside", key.as_bytes(), &Aside::Entry { order, entry })?;
        self.store.state.places.aside += 1;
        Ok(())
    }

    /// Removes whatever is set aside of a URL, and returns its entry.
    pub(super) fn drop_aside(&mut self, key: &UrlKey) -> Result<Option<(Order, Entry)>, StoreError> {
        let Some(row) = self.get::<Aside>("aside", key.as_bytes())? else { return Ok(None) };
        if !self.fallen.insert([b"aside", key.as_bytes()].concat()) {
            return Ok(None); // taken within this change, which no read of the database shows
        }
        self.delete("aside", key.as_bytes());
        let places = &mut self.store.state.places;
        Ok(match row {
            Aside::Entry { order, entry } => {
                places.aside -= 1;
                Some((order, entry))
            }
            Aside::Link { .. } => {
                places.links_aside -= 1;
                None
            }
        })
    }

    /// Keeps links that the rules do not admit, as long as there is room: of URLs that are not known and not kept yet.
    pub(super) fn keep_links(&mut self, crawl: &str, links: Vec<Discovered>, parent: UrlId) -> Result<(), StoreError> {
        for found in links {
            let key = UrlKey::new(crawl, &found.url);
            let id = key.id();
            let known = self.store.seen.contains(id) || self.fresh.contains(&id) || self.store.seen_aside.contains(id);
            let full = self.store.state.places.links_aside >= self.store.options.links_aside_max;
            if known || full || !self.fallen.insert([b"link", &id.0[..]].concat()) {
                continue;
            }
            self.store.seen_aside.insert(id); // forgotten with the other caches if this change fails
            let known = |family| -> Result<bool, StoreError> {
                let row = self.store.db.get_pinned_cf(&self.store.family(family), key.as_bytes());
                Ok(row.map_err(|error| self.store.failed(&error))?.is_some())
            };
            if !known("url")? && !known("aside")? {
                self.put("aside", key.as_bytes(), &Aside::Link { found, parent: Some(parent) })?;
                self.store.state.places.links_aside += 1;
            }
        }
        Ok(())
    }

    /// Goes on with a pass: what `filter` admits comes back into the queues, what waits to be tried again and is not admitted is
    /// set aside. Looks at `limit` rows; returns what came back, and where to go on. A pass that ends is remembered by `digest`:
    /// with the same rules there is nothing to do.
    pub fn take_back(
        &mut self,
        crawl: &str,
        filter: &Filter,
        digest: [u8; 16],
        pass: Pass,
        limit: usize,
        unix_ms: u64,
    ) -> Result<(Vec<Admitted>, Option<Pass>), StoreError> {
        if self.get::<[u8; 16]>("meta", RULES)? == Some(digest) {
            return Ok((Vec::new(), None));
        }
        // A run that is killed on the way may have set something aside: whoever comes next must look, also the run before.
        self.delete("meta", RULES);
        match pass {
            Pass::Due(after) => {
                let last = self.set_retries_aside(crawl, filter, &after, limit, unix_ms)?;
                Ok((Vec::new(), Some(last.map_or(Pass::Aside(Vec::new()), Pass::Due))))
            }
            Pass::Aside(after) => {
                let (admitted, last) = self.take_admitted(crawl, filter, &after, limit, unix_ms)?;
                if last.is_none() {
                    self.put("meta", RULES, &digest)?;
                }
                Ok((admitted, last.map(Pass::Aside)))
            }
        }
    }

    fn set_retries_aside(
        &mut self,
        crawl: &str,
        filter: &Filter,
        after: &[u8],
        limit: usize,
        unix_ms: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        if self.store.state.places.retries == 0 {
            return Ok(None);
        }
        let rows = self.store.rows_after("due", after, limit)?;
        let last = (rows.len() == limit).then(|| rows.last().map(|(key, _)| key.clone())).flatten();
        for (key, value) in rows {
            let (_, ready) = split_due(&key).ok_or_else(|| StoreError::damaged("due", "a key without a time"))?;
            let (Some(queue), Some(order)) = (QueueKey::prefix_of(ready), Order::suffix_of(ready)) else {
                return Err(StoreError::damaged("due", "a key without queue and order"));
            };
            let (retry, entry): (bool, Entry) =
                wire::decode(&value).map_err(|error| StoreError::damaged("due", error))?;
            let admitted = entry.kind == EntryKind::Sitemap || filter.admits(&entry.url, order.depth).is_ok();
            if !retry || admitted || queue.crawl() != crawl || !self.fallen.insert(key.clone()) {
                continue;
            }
            self.delete("due", &key);
            self.store.state.places.retries -= 1;
            let pick = Pick { flight: 0, queue, order, entry };
            let url = UrlKey::new(crawl, &pick.entry.url);
            let Some((old, inlinks)) = self.kept(&url)? else { continue };
            let settled = old.clone().settled(&pick, Ending::Filtered, unix_ms, &self.store.rules);
            self.replace(&pick.queue, &url, Some(&old.record), &settled.kept, inlinks)?;
            if let Some(entry) = settled.aside {
                self.put_aside(&pick.queue, order, entry)?;
            }
        }
        Ok(last)
    }

    fn take_admitted(
        &mut self,
        crawl: &str,
        filter: &Filter,
        after: &[u8],
        limit: usize,
        unix_ms: u64,
    ) -> Result<(Vec<Admitted>, Option<Vec<u8>>), StoreError> {
        let rows = self.store.rows_after("aside", after, limit)?;
        let last = (rows.len() == limit).then(|| rows.last().map(|(key, _)| key.clone())).flatten();
        let mut admitted = Vec::new();
        for (key, value) in rows {
            let key = UrlKey::from_bytes(&key);
            if key.crawl() != Some(crawl) {
                continue;
            }
            match wire::decode(&value).map_err(|error| StoreError::damaged("aside", error))? {
                Aside::Entry { order, entry } => {
                    if entry.kind == EntryKind::Sitemap || filter.admits(&entry.url, order.depth).is_ok() {
                        self.drop_aside(&key)?;
                        admitted.push(self.put_up(crawl, &key, order, entry)?);
                    }
                }
                Aside::Link { found, parent } => {
                    if filter.admits(&found.url, found.depth).is_ok() {
                        self.drop_aside(&key)?;
                        admitted.extend(self.admit(crawl, vec![found], parent, unix_ms)?);
                    }
                }
            }
        }
        Ok((admitted, last))
    }

    /// A seed that is known is named again: if it failed for good, or is set aside, it is asked for again.
    pub(super) fn name_again(
        &mut self,
        crawl: &str,
        key: &UrlKey,
        seed: Discovered,
    ) -> Result<Option<Admitted>, StoreError> {
        let Some((Kept { record, .. }, _)) = self.kept(key)? else { return Ok(None) };
        if record.progress.status != Status::Crawled {
            return Ok(None); // it has its page, or waits for its turn
        }
        let aside = self.drop_aside(key)?.map(|(_, entry)| entry);
        let order = Order { priority: seed.priority, depth: seed.depth, sequence: self.next_sequence() };
        let entry = aside.unwrap_or_else(|| Entry {
            url: seed.url,
            kind: seed.kind,
            progress: record.progress.next_round(self.store.options.node),
            redirects: seed.redirects,
            validators: record.findings.as_ref().and_then(|found| found.validators.clone()),
        });
        self.put_up(crawl, key, order, entry).map(Some)
    }

    /// Puts an entry into its queue. Its record says so, unless it has a page of a former round.
    fn put_up(&mut self, crawl: &str, key: &UrlKey, order: Order, entry: Entry) -> Result<Admitted, StoreError> {
        let queue = QueueKey::new(crawl, &entry.url);
        if let Some((old, inlinks)) = self.kept(key)?
            && old.record.progress.status != Status::Processed
        {
            let mut open = Kept { due_unix_ms: 0, recurs: false, ..old.clone() };
            open.record.progress = old.record.progress.merge(Progress { status: Status::New, ..entry.progress });
            open.record.state = UrlState::Enabled;
            open.record.depth = order.depth;
            self.replace(&queue, key, Some(&old.record), &open, inlinks)?;
        }
        self.put_ready(&queue, order, &entry)?;
        Ok(Admitted { queue, order, entry, new_host: false })
    }
}
