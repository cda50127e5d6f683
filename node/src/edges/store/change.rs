//! One atomic change of the store: admissions, selections, outcomes, and the counters that count them.

use std::collections::{BTreeMap, HashSet};

use proto::batch::{Discovered, Entry, Pick};
use proto::crawl::frontier::HostFacts;
use proto::crawl::outcome::{Ending, OutcomeKind, settle};
use proto::id::UrlId;
use proto::key::{Order, QueueKey, UrlKey};
use proto::record::{Progress, Status, UrlRecord};
use proto::url::CanonicalUrl;
use proto::wire;
use rocksdb::WriteOptions;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::columns::{INLINKS_BYTES, inlinks};
use super::rows::Rows;
use super::tally::Counts;
use super::{ContentRow, HOSTS_CACHED, KnownHost, PATHS_CACHED, Seeded, Store, StoreError, slot_index};
use crate::edges::warc::WarcEnd;

/// An entry that is new in its queue.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Its queue.
    pub queue: QueueKey,
    /// Its place.
    pub order: Order,
    /// The entry.
    pub entry: Entry,
    /// Its host was not known before.
    pub new_host: bool,
}

/// What was fetched, as far as the store is concerned.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Where its records lie.
    pub content: ContentRow,
    /// First 16 bytes of the digest of its body, if it has a body worth comparing.
    pub digest: Option<[u8; 16]>,
}

/// A fetch that ended.
#[derive(Debug)]
pub struct Settle {
    /// What was to be fetched.
    pub pick: Pick,
    /// How it ended.
    pub ending: Ending,
    /// What was stored, if anything was.
    pub fetched: Option<Fetched>,
    /// URLs found on it.
    pub links: Vec<Discovered>,
    /// When, Unix milliseconds.
    pub unix_ms: u64,
}

/// What a settled fetch led to.
#[derive(Debug)]
pub struct Landed {
    /// Which flight.
    pub flight: u64,
    /// How it ended; `None` if the flight was not known any more and nothing was written.
    pub kind: Option<OutcomeKind>,
    /// New URLs.
    pub admitted: Vec<Admitted>,
}

/// One atomic batch in the making.
pub struct Change<'a> {
    store: &'a mut Store,
    rows: Rows,
    /// Ids admitted in this batch, which no read of the database finds yet.
    fresh: HashSet<UrlId, Seeded>,
    /// Earliest due entry of each slot in this batch, which no scan of the database finds yet.
    fresh_due: BTreeMap<usize, u64>,
    /// Entries that fell due in this batch, which a scan of the database still finds.
    fallen: HashSet<Vec<u8>>,
    /// In-links to add. They go in last: a record put into the batch after its in-links would wipe them out.
    inlinks: Counts,
    /// Hosts whose counters changed.
    touched: Vec<QueueKey>,
}

impl Store {
    /// Begins a change. Nothing is written until [`Change::commit`].
    pub fn change(&mut self) -> Change<'_> {
        let seeded = *self.hosts.hasher();
        let (fresh, inlinks) = (HashSet::with_hasher(seeded), Counts::with_hasher(seeded));
        Change {
            store: self,
            rows: Rows::default(),
            fresh,
            fresh_due: BTreeMap::new(),
            fallen: HashSet::new(),
            inlinks,
            touched: Vec::new(),
        }
    }
}

impl Change<'_> {
    /// Admits what is not known yet, counts a link to what is. `parent` is the page that names the URLs.
    pub fn admit(
        &mut self,
        crawl: &str,
        urls: Vec<Discovered>,
        parent: Option<UrlId>,
        unix_ms: u64,
    ) -> Result<Vec<Admitted>, StoreError> {
        let mut unsure = Vec::new();
        for found in urls {
            let key = UrlKey::new(crawl, &found.url);
            if self.store.seen.contains(key.id()) || self.fresh.contains(&key.id()) {
                self.count_link(key, parent);
            } else {
                unsure.push((key, found));
            }
        }
        let known = self.are_known(&unsure)?;
        let mut admitted = Vec::new();
        for ((key, found), known) in unsure.into_iter().zip(known) {
            // Once more: the same URL may stand twice in one list.
            if known || self.fresh.contains(&key.id()) {
                self.store.seen.insert(key.id());
                self.count_link(key, parent);
            } else if let Some(entry) = self.admit_new(crawl, key, found, parent, unix_ms)? {
                admitted.push(entry);
            }
        }
        Ok(admitted)
    }

    fn are_known(&self, urls: &[(UrlKey, Discovered)]) -> Result<Vec<bool>, StoreError> {
        if urls.is_empty() {
            return Ok(Vec::new());
        }
        let keys = urls.iter().map(|(key, _)| key.as_bytes());
        let family = self.store.family("url");
        let found = self.store.db.batched_multi_get_cf(&family, keys, false);
        found.into_iter().map(|row| row.map(|row| row.is_some()).map_err(|error| self.store.failed(&error))).collect()
    }

    fn count_link(&mut self, key: UrlKey, parent: Option<UrlId>) {
        if parent.is_some_and(|parent| parent != key.id()) {
            *self.inlinks.entry(key.into_bytes()).or_default() += 1;
        }
    }

    fn admit_new(
        &mut self,
        crawl: &str,
        key: UrlKey,
        found: Discovered,
        parent: Option<UrlId>,
        unix_ms: u64,
    ) -> Result<Option<Admitted>, StoreError> {
        let queue = QueueKey::new(crawl, &found.url);
        let known = self.host(&queue)?.counters.known;
        if known >= self.store.options.host_urls_max || !self.count_query(&queue, &found.url)? {
            self.store.state.places.traps += 1;
            return Ok(None);
        }
        let record = UrlRecord::discovered(&found, parent, self.store.options.node, unix_ms);
        let progress = record.progress;
        self.replace(&queue, &key, None, &record, u32::from(parent.is_some()))?;
        self.fresh.insert(key.id());
        let order = Order { priority: found.priority, depth: found.depth, sequence: self.next_sequence() };
        let entry = Entry { url: found.url, kind: found.kind, progress, redirects: found.redirects, validators: None };
        self.put_ready(&queue, order, &entry)?;
        Ok(Some(Admitted { queue, order, entry, new_host: known == 0 }))
    }

    /// Counts one more query of the URL's path; says whether there may be one more.
    fn count_query(&mut self, queue: &QueueKey, url: &CanonicalUrl) -> Result<bool, StoreError> {
        if url.query().is_none() {
            return Ok(true);
        }
        let mut key = queue.as_bytes().to_vec();
        key.extend_from_slice(&xxh3_64(url.without_query().as_bytes()).to_be_bytes());
        let count = match self.store.paths.get(&key) {
            Some(count) => *count,
            None => self.get::<u32>("seen", &key)?.unwrap_or(0),
        };
        if count >= self.store.options.path_queries_max {
            return Ok(false);
        }
        self.put("seen", &key, &(count + 1))?;
        if self.store.paths.len() >= PATHS_CACHED {
            self.store.paths.clear();
        }
        self.store.paths.insert(key, count + 1);
        Ok(true)
    }

    /// Writes down that these entries are handed out.
    pub fn select(&mut self, picks: &[Pick]) -> Result<(), StoreError> {
        for pick in picks {
            let key = pick.queue.ready(pick.order);
            self.put("flight", &key, &pick.flight)?; // the entry stays in `ready` until the flight lands
            if self.store.flying.insert(key, pick.flight).is_some() {
                // Only its number changes: the former flight will land nowhere.
                tracing::warn!(url = pick.entry.url.as_str(), flight = pick.flight, "handed out twice");
                continue;
            }
            self.store.state.places.ready -= 1;
            self.store.state.places.flights += 1;
        }
        Ok(())
    }

    /// Puts the entry of a flight of a former life back into its queue.
    pub(super) fn put_back(&mut self, pick: &Pick) -> Result<(), StoreError> {
        self.delete("flight", &pick.queue.ready(pick.order));
        self.store.state.places.flights -= 1;
        let attempt = pick.entry.progress.attempt.saturating_add(1);
        let progress = Progress { attempt, status: Status::New, ..pick.entry.progress };
        self.put_ready(&pick.queue, pick.order, &Entry { progress, ..pick.entry.clone() })
    }

    /// Removes a flight of a former life that has no entry.
    pub(super) fn drop_flight(&mut self, key: &[u8]) {
        self.delete("flight", key);
        self.store.state.places.flights -= 1;
    }

    /// Removes a flight and its entry; says whether it was still flying.
    fn take_flight(&mut self, pick: &Pick) -> bool {
        let key = pick.queue.ready(pick.order);
        let flying = self.store.flying.get(&key) == Some(&pick.flight);
        if flying {
            self.store.flying.remove(&key);
            self.delete("flight", &key);
            self.delete("ready", &key);
            self.store.state.places.flights -= 1;
        }
        flying
    }

    /// Settles a flight: its record, its content, its links, and when it comes up again.
    pub fn settle(&mut self, done: Settle) -> Result<Landed, StoreError> {
        let Settle { pick, ending, fetched, links, unix_ms } = done;
        let crawl = pick.queue.crawl().to_owned();
        let key = UrlKey::new(&crawl, &pick.entry.url);
        let nothing = Landed { flight: pick.flight, kind: None, admitted: Vec::new() };
        if !self.take_flight(&pick) {
            return Ok(nothing);
        }
        let Some((record, inlinks)) = self.record(&key)? else { return Ok(nothing) };
        let settlement = settle(record.clone(), &pick, ending, unix_ms, &self.store.rules);
        self.replace(&pick.queue, &key, Some(&record), &settlement.record, inlinks)?;
        if let Some(fetched) = fetched {
            self.put("content", &key.content(pick.entry.progress.round), &fetched.content)?;
            if let Some(digest) = fetched.digest
                && !fetched.content.revisit
            {
                self.put("digest", &digest, &(key.as_bytes().to_vec(), pick.entry.progress.round))?;
            }
        }
        if let Some((at, entry)) = settlement.again {
            self.put_due(&pick, at, &entry, settlement.kind == OutcomeKind::Again)?;
        }
        let admitted = self.admit(&crawl, links, Some(key.id()), unix_ms)?;
        Ok(Landed { flight: pick.flight, kind: Some(settlement.kind), admitted })
    }

    fn put_due(&mut self, pick: &Pick, at: u64, entry: &Entry, retry: bool) -> Result<(), StoreError> {
        self.put("due", &pick.queue.due(at, pick.order), &(retry, entry))?;
        let places = &mut self.store.state.places;
        *(if retry { &mut places.retries } else { &mut places.recrawls }) += 1;
        let slot = slot_index(pick.queue.slot());
        self.store.next_due[slot] = at.min(self.store.next_due[slot]);
        let fresh = self.fresh_due.entry(slot).or_insert(at);
        *fresh = at.min(*fresh);
        Ok(())
    }

    /// Moves entries whose time has come into their queues, at most `limit`.
    pub fn fall_due(&mut self, unix_ms: u64, limit: usize) -> Result<Vec<Admitted>, StoreError> {
        let mut admitted = Vec::new();
        let due = self.store.due_entries(unix_ms, limit)?;
        for (slot, at) in &self.fresh_due {
            self.store.next_due[*slot] = self.store.next_due[*slot].min(*at);
        }
        for (key, ready, retry, entry) in due {
            if !self.fallen.insert(key.clone()) {
                continue;
            }
            let (Some(queue), Some(order)) = (QueueKey::prefix_of(&ready), Order::suffix_of(&ready)) else {
                return Err(StoreError::damaged("due", "a key without queue and order"));
            };
            self.delete("due", &key);
            let places = &mut self.store.state.places;
            *(if retry { &mut places.retries } else { &mut places.recrawls }) -= 1;
            self.put_ready(&queue, order, &entry)?;
            admitted.push(Admitted { queue, order, entry, new_host: false });
        }
        Ok(admitted)
    }

    /// When the next entry falls due, Unix milliseconds.
    pub fn next_due(&self) -> Option<u64> {
        self.store.next_due()
    }

    /// Writes down what is known of a host.
    pub fn keep_facts(&mut self, queue: &QueueKey, facts: &HostFacts) -> Result<(), StoreError> {
        self.put("host", &facts_key(queue), facts)
    }

    /// Remembers up to where the WARC files are good.
    pub fn warc_end(&mut self, end: WarcEnd) {
        self.store.state.warc_end = Some(end);
    }

    /// Whether there is anything to write.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.inlinks.is_empty()
    }

    /// Writes everything, fsynced. On an error nothing was written, and the store must [`Store::forget`].
    pub fn commit(mut self) -> Result<(), StoreError> {
        for queue in std::mem::take(&mut self.touched) {
            let host = self.store.hosts.get_mut(&queue).expect("hosts are forgotten between changes only");
            host.touched = false;
            let counters = host.counters;
            self.put("host", &counters_key(&queue), &counters)?;
        }
        let inlinks = std::mem::replace(&mut self.inlinks, Counts::with_hasher(*self.store.hosts.hasher()));
        if !inlinks.is_empty() {
            self.store.tally.write(inlinks, &mut self.rows)?;
        }
        let state = self.store.state.clone();
        self.put("meta", b"state", &state)?;
        let batch = self.rows.into_batch(|name| self.store.family(name));
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.store.db.write_opt(batch, &options).map_err(|error| self.store.failed(&error))?;
        for id in self.fresh {
            self.store.seen.insert(id);
        }
        if self.store.hosts.len() > HOSTS_CACHED {
            self.store.hosts.clear();
        }
        Ok(())
    }

    // Rows.

    fn next_sequence(&mut self) -> u64 {
        self.store.state.sequence += 1;
        self.store.state.sequence
    }

    fn put_ready(&mut self, queue: &QueueKey, order: Order, entry: &Entry) -> Result<(), StoreError> {
        self.put("ready", &queue.ready(order), entry)?;
        self.store.state.places.ready += 1;
        Ok(())
    }

    /// Puts a record in the place of another, in the counters too.
    fn replace(
        &mut self,
        queue: &QueueKey,
        key: &UrlKey,
        old: Option<&UrlRecord>,
        new: &UrlRecord,
        inlinks: u32,
    ) -> Result<(), StoreError> {
        let host = self.host(queue)?;
        if let Some(old) = old {
            host.counters.remove(old);
        }
        host.counters.add(new);
        if !std::mem::replace(&mut host.touched, true) {
            self.touched.push(queue.clone());
        }
        let counters = &mut self.store.state.counters;
        if let Some(old) = old {
            counters.remove(old);
        }
        counters.add(new);
        self.rows.put("url", key.as_bytes(), |row| {
            row.extend_from_slice(&inlinks.to_le_bytes());
            wire::encode_into(new, row).map_err(|error| StoreError::damaged("url", error))
        })
    }

    fn record(&self, key: &UrlKey) -> Result<Option<(UrlRecord, u32)>, StoreError> {
        let value = self
            .store
            .db
            .get_pinned_cf(&self.store.family("url"), key.as_bytes())
            .map_err(|e| self.store.failed(&e))?;
        let Some(value) = value else { return Ok(None) };
        let record = wire::decode(value.get(INLINKS_BYTES..).unwrap_or_default())
            .map_err(|error| StoreError::damaged("url", error))?;
        Ok(Some((record, inlinks(&value))))
    }

    fn host(&mut self, queue: &QueueKey) -> Result<&mut KnownHost, StoreError> {
        if !self.store.hosts.contains_key(queue) {
            let counters = self.get("host", &counters_key(queue))?.unwrap_or_default();
            self.store.hosts.insert(queue.clone(), KnownHost { counters, touched: false });
        }
        Ok(self.store.hosts.get_mut(queue).expect("just put in"))
    }

    fn get<T: serde::de::DeserializeOwned>(&self, family: &'static str, key: &[u8]) -> Result<Option<T>, StoreError> {
        self.store.get(family, key)
    }

    fn put<T: Serialize>(&mut self, family: &'static str, key: &[u8], value: &T) -> Result<(), StoreError> {
        self.rows
            .put(family, key, |row| wire::encode_into(value, row).map_err(|error| StoreError::damaged(family, error)))
    }

    fn delete(&mut self, family: &'static str, key: &[u8]) {
        self.rows.delete(family, key);
    }
}

/// Key of a host's facts.
pub(super) fn facts_key(queue: &QueueKey) -> Vec<u8> {
    [queue.as_bytes(), b"f"].concat()
}

/// Key of a host's counters.
pub(super) fn counters_key(queue: &QueueKey) -> Vec<u8> {
    [queue.as_bytes(), b"c"].concat()
}
