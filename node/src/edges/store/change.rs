//! One atomic change of the store: admissions, selections, outcomes, and the counters that count them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use proto::batch::{Discovered, Entry, EntryKind, Pick};
use proto::cluster::copy::{Kept, RecordCopy};
use proto::cluster::turn::Turned;
use proto::crawl::frontier::{HostFacts, Input};
use proto::crawl::outcome::{Ending, OutcomeKind};
use proto::error_mask::ErrorTimes;
use proto::id::{Round, UrlId};
use proto::key::{Order, QueueKey, UrlKey};
use proto::record::{Progress, Status, UrlRecord};
use proto::url::CanonicalUrl;
use proto::wire;
use rocksdb::WriteOptions;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::columns::{INLINKS_BYTES, inlinks};
use super::found::Finding;
use super::replica::Overlay;
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

impl Admitted {
    /// What the frontier hears of it.
    pub fn into_input(self) -> Input {
        let Admitted { queue, order, entry, new_host } = self;
        Input::Admitted { queue, order, entry, new_host }
    }
}

/// What was fetched, as far as the store is concerned.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Where its records lie.
    pub content: ContentRow,
    /// First 16 bytes of the digest of its body, if it has a body worth comparing.
    pub digest: Option<[u8; 16]>,
    /// What tells its content from others by the rules of its site, if it is the first of its kind.
    pub hash: Option<[u8; 16]>,
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
    /// URLs found on it that the rules of this run do not admit.
    pub beyond: Vec<Discovered>,
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
    /// Bytes of all contents, with this one.
    pub bytes: u64,
}

/// One atomic batch in the making.
pub struct Change<'a> {
    pub(super) store: &'a mut Store,
    pub(super) rows: Rows,
    /// Ids admitted in this batch, which no read of the database finds yet.
    pub(super) fresh: HashSet<UrlId, Seeded>,
    /// Earliest due entry of each slot in this batch, which no scan of the database finds yet.
    fresh_due: BTreeMap<usize, u64>,
    /// Rows that fell due, came back or were set aside in this batch, which a read of the database does not show.
    pub(super) fallen: HashSet<Vec<u8>>,
    /// In-links to add. They go in last: a record put into the batch after its in-links would wipe them out.
    inlinks: Counts,
    /// Hosts whose counters changed.
    pub(super) touched: Vec<QueueKey>,
    /// Records that copies were merged into.
    pub(super) overlay: Overlay,
    /// The same of clients.
    pub(super) clients: super::clients::Overlay,
    /// Notes that copies were merged into.
    pub(super) notes: BTreeMap<UrlKey, RecordCopy>,
    /// Keys of contents that this change puts down, which no read of the database finds.
    pub(super) contents: BTreeSet<Vec<u8>>,
    /// Links of the page that is being settled, for the page graph.
    pub(super) finding: Option<Finding>,
    /// Whether contents that this change touched are on the list of those without a second copy.
    pub(super) listed: BTreeMap<Vec<u8>, bool>,
    /// What URLs failed of, by crawl.
    pub(super) failings: BTreeMap<String, ErrorTimes>,
    /// What became of digests.
    pub(super) digested: Vec<super::digests::Event>,
}

impl Store {
    /// What makes every change so far survive a power loss, to be called on whatever thread.
    pub fn syncing(&self) -> impl FnOnce() -> Result<(), StoreError> + Send + use<> {
        let (db, dir) = (std::sync::Arc::clone(&self.db), self.dir.clone());
        move || db.flush_wal(true).map_err(|error| StoreError::database(&dir, &error))
    }

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
            overlay: Overlay::new(),
            clients: super::clients::Overlay::default(),
            notes: BTreeMap::new(),
            contents: BTreeSet::new(),
            finding: None,
            listed: BTreeMap::new(),
            failings: BTreeMap::new(),
            digested: Vec::new(),
        }
    }
}

impl Change<'_> {
    /// Admits what is not known yet, counts a link to what is. `parent` is the page that names the URLs; a page that no page
    /// names is a seed, and a seed that failed is asked for again.
    pub fn admit(
        &mut self,
        crawl: &str,
        urls: Vec<Discovered>,
        parent: Option<UrlId>,
        unix_ms: u64,
    ) -> Result<Vec<Admitted>, StoreError> {
        let (mut unsure, mut admitted) = (Vec::new(), Vec::new());
        let is_seed = |found: &Discovered| parent.is_none() && found.kind == EntryKind::Page && found.depth == 0;
        // All keys first, then all looks at the cache: each look waits for memory, and so they wait together.
        let keys: Vec<UrlKey> = urls.iter().map(|found| UrlKey::new(crawl, &found.url)).collect();
        let seen: Vec<bool> = keys.iter().map(|key| self.store.seen.contains(key.id())).collect();
        for ((found, key), seen) in urls.into_iter().zip(keys).zip(seen) {
            self.find_link(&key, &found);
            if (seen && !is_seed(&found)) || self.fresh.contains(&key.id()) {
                self.count_link(key, parent);
            } else {
                unsure.push((key, found));
            }
        }
        let known = self.are_known(&unsure)?;
        for ((key, found), known) in unsure.into_iter().zip(known) {
            // Once more: the same URL may stand twice in one list.
            if known && is_seed(&found) && self.fresh.insert(key.id()) {
                admitted.extend(self.name_again(crawl, &key, found)?);
            } else if known || self.fresh.contains(&key.id()) {
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

    pub(super) fn count_link(&mut self, key: UrlKey, parent: Option<UrlId>) {
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
        if !self.has_room(&queue, &found.url)? {
            self.store.state.places.traps += 1;
            return Ok(None);
        }
        if parent.is_none() {
            self.drop_aside(&key)?; // it was a link beyond the rules, and is named now
        }
        let kept = Kept::discovered(&found, parent, unix_ms, self.store.options.node);
        let progress = kept.record.progress;
        self.replace(&queue, &key, None, &kept, u32::from(parent.is_some()))?;
        self.fresh.insert(key.id());
        let order = Order { priority: found.priority, depth: found.depth, sequence: self.next_sequence() };
        let entry = Entry { url: found.url, kind: found.kind, progress, redirects: found.redirects, validators: None };
        self.put_ready(&queue, order, &entry)?;
        Ok(Some(Admitted { queue, order, entry, new_host: known == 0 }))
    }

    /// Says whether host and path may have one more URL, and counts it.
    pub(super) fn has_room(&mut self, queue: &QueueKey, url: &CanonicalUrl) -> Result<bool, StoreError> {
        let known = self.host(queue)?.counters.known;
        Ok(known < self.store.options.host_urls_max && self.count_query(queue, url)?)
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
            if self.store.flying.insert(&key, pick.flight).is_some() {
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
        let flying = self.store.flying.get(&key) == Some(pick.flight);
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
        let Settle { pick, ending, fetched, mut links, beyond, unix_ms } = done;
        let crawl = pick.queue.crawl().to_owned();
        let key = UrlKey::new(&crawl, &pick.entry.url);
        let bytes = self.store.state.counters.bytes;
        let nothing = Landed { flight: pick.flight, kind: None, admitted: Vec::new(), bytes };
        if !self.take_flight(&pick) {
            return Ok(nothing);
        }
        let Some((old, inlinks)) = self.kept(&key)? else { return Ok(nothing) };
        if has_ended(&old.record, &pick.entry) {
            return Ok(nothing);
        }
        if ending.is_answer() {
            self.begin_finding(&key, old.record.priority, unix_ms);
            Self::take_score_out(&mut links, pick.order.priority, old.record.priority);
        }
        let Turned { kept, kind, aside } = old.clone().settled(&pick, ending, unix_ms, &self.store.rules);
        self.replace(&pick.queue, &key, Some(&old.record), &kept, inlinks)?;
        if let Some(fetched) = fetched {
            self.put_content(&key, pick.entry.progress.round, &fetched)?;
        }
        if let Some((at, entry)) = kept.entry(self.store.options.node) {
            self.put_due(&pick.queue, pick.order, at, &entry, kind == OutcomeKind::Again)?;
        }
        if let Some(entry) = aside {
            self.put_aside(&pick.queue, pick.order, entry)?;
        }
        let admitted = self.admit(&crawl, links, Some(key.id()), unix_ms)?;
        self.end_finding();
        self.keep_links(&crawl, beyond, key.id())?;
        let bytes = self.store.state.counters.bytes;
        Ok(Landed { flight: pick.flight, kind: Some(kind), admitted, bytes })
    }

    pub(super) fn put_content(&mut self, key: &UrlKey, round: Round, fetched: &Fetched) -> Result<(), StoreError> {
        self.put("content", &key.content(round), &fetched.content)?;
        self.put_digest(key, round, fetched)
    }

    /// Remembers which URL gave a content first.
    pub(super) fn put_digest(&mut self, key: &UrlKey, round: Round, fetched: &Fetched) -> Result<(), StoreError> {
        let place = (key.as_bytes().to_vec(), round);
        if let Some(hash) = fetched.hash {
            self.put("digest", &hash, &place)?;
        }
        match fetched.digest {
            Some(digest) if !fetched.content.revisit => self.put("digest", &digest, &place),
            _ => Ok(()),
        }
    }

    pub(super) fn put_due(
        &mut self,
        queue: &QueueKey,
        order: Order,
        at: u64,
        entry: &Entry,
        retry: bool,
    ) -> Result<(), StoreError> {
        self.put("due", &queue.due(at, order), &(retry, entry))?;
        let places = &mut self.store.state.places;
        *(if retry { &mut places.retries } else { &mut places.recrawls }) += 1;
        let slot = slot_index(queue.slot());
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
            let waits =
                if self.store.options.replica { self.as_it_waits(&key, retry, entry)? } else { Some((retry, entry)) };
            let Some((retry, entry)) = waits else { continue };
            let (Some(queue), Some(order)) = (QueueKey::prefix_of(&ready), Order::suffix_of(&ready)) else {
                return Err(StoreError::damaged("due", "a key without queue and order"));
            };
            self.delete("due", &key);
            let places = &mut self.store.state.places;
            *(if retry { &mut places.retries } else { &mut places.recrawls }) -= 1;
            if !retry && self.is_superseded(&queue, &entry)? {
                continue;
            }
            self.put_ready(&queue, order, &entry)?;
            if self.store.options.replica {
                self.note_fallen(&queue, &entry)?;
            }
            admitted.push(Admitted { queue, order, entry, new_host: false });
        }
        Ok(admitted)
    }

    /// Whether a page was put up for this round, or a later one, in another way: by name, or by another recrawl period.
    fn is_superseded(&self, queue: &QueueKey, entry: &Entry) -> Result<bool, StoreError> {
        let kept = self.kept(&UrlKey::new(queue.crawl(), &entry.url))?;
        Ok(kept.is_some_and(|(kept, _)| kept.record.progress.round >= entry.progress.round))
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
    pub fn commit(self) -> Result<(), StoreError> {
        self.commit_after(true, |_| Ok(()))
    }

    /// Writes everything when `ready` says so, fsynced or not. It may use the store as it was before. On an error nothing was written, and the store must [`Store::forget`].
    pub fn commit_after<E: From<StoreError>>(
        mut self,
        sync: bool,
        ready: impl FnOnce(&mut Store) -> Result<(), E>,
    ) -> Result<(), E> {
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
        let lines = self.put_lines()?;
        self.put_failings()?;
        let digested = self.put_digests()?;
        let state = self.store.state.clone();
        self.put("meta", b"state", &state)?;
        self.put("meta", b"aside", &(state.places.aside, state.places.links_aside))?;
        let seen = std::mem::take(&mut self.clients.seen);
        self.store.fronts.moved(seen, self.rows.put_keys(&["turn", "agenda"]));
        let batch = self.rows.into_batch(|name| self.store.family(name));
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        ready(self.store)?;
        self.store.db.write_opt(batch, &options).map_err(|error| self.store.failed(&error))?;
        self.store.digests.written(digested);
        for (queue, line) in lines {
            self.store.lines.put(queue, line);
        }
        for id in self.fresh {
            self.store.seen.insert(id);
        }
        if self.store.hosts.len() > HOSTS_CACHED {
            self.store.hosts.clear();
        }
        Ok(())
    }

    // Rows.

    pub(super) fn next_sequence(&mut self) -> u64 {
        self.store.state.sequence += 1;
        self.store.state.sequence
    }

    pub(super) fn put_ready(&mut self, queue: &QueueKey, order: Order, entry: &Entry) -> Result<(), StoreError> {
        self.put("ready", &queue.ready(order), entry)?;
        self.store.state.places.ready += 1;
        Ok(())
    }

    /// Puts a record in the place of another, in the counters too.
    pub(super) fn replace(
        &mut self,
        queue: &QueueKey,
        key: &UrlKey,
        old: Option<&UrlRecord>,
        new: &Kept,
        inlinks: u32,
    ) -> Result<(), StoreError> {
        self.count(queue, old, Some(&new.record))?;
        self.rows.put("url", key.as_bytes(), |row| {
            row.extend_from_slice(&inlinks.to_le_bytes());
            wire::encode_into(new, row).map_err(|error| StoreError::damaged("url", error))
        })
    }

    /// Counts one record instead of another, for its host and for all.
    pub(super) fn count(
        &mut self,
        queue: &QueueKey,
        old: Option<&UrlRecord>,
        new: Option<&UrlRecord>,
    ) -> Result<(), StoreError> {
        let host = self.host(queue)?;
        if let Some(old) = old {
            host.counters.remove(old);
        }
        if let Some(new) = new {
            host.counters.add(new);
        }
        if !std::mem::replace(&mut host.touched, true) {
            self.touched.push(queue.clone());
        }
        if let Some(new) = new {
            self.see_failing(queue.crawl(), new);
        }
        let counters = &mut self.store.state.counters;
        if let Some(old) = old {
            counters.remove(old);
        }
        if let Some(new) = new {
            counters.add(new);
        }
        Ok(())
    }

    pub(super) fn kept(&self, key: &UrlKey) -> Result<Option<(Kept, u32)>, StoreError> {
        let value = self
            .store
            .db
            .get_pinned_cf(&self.store.family("url"), key.as_bytes())
            .map_err(|e| self.store.failed(&e))?;
        let Some(value) = value else { return Ok(None) };
        let kept = wire::decode(value.get(INLINKS_BYTES..).unwrap_or_default())
            .map_err(|error| StoreError::damaged("url", error))?;
        Ok(Some((kept, inlinks(&value))))
    }

    pub(super) fn host(&mut self, queue: &QueueKey) -> Result<&mut KnownHost, StoreError> {
        if !self.store.hosts.contains_key(queue) {
            let counters = self.get("host", &counters_key(queue))?.unwrap_or_default();
            self.store.hosts.insert(queue.clone(), KnownHost { counters, touched: false });
        }
        Ok(self.store.hosts.get_mut(queue).expect("just put in"))
    }

    pub(super) fn get<T: serde::de::DeserializeOwned>(
        &self,
        family: &'static str,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        self.store.get(family, key)
    }

    pub(super) fn put<T: Serialize>(&mut self, family: &'static str, key: &[u8], value: &T) -> Result<(), StoreError> {
        self.rows
            .put(family, key, |row| wire::encode_into(value, row).map_err(|error| StoreError::damaged(family, error)))
    }

    pub(super) fn delete(&mut self, family: &'static str, key: &[u8]) {
        self.rows.delete(family, key);
    }
}

/// Whether the round of an entry is over: it stood in its queue twice, and the other one landed.
fn has_ended(record: &UrlRecord, entry: &Entry) -> bool {
    let closed = matches!(record.progress.status, Status::Crawled | Status::Processed);
    closed && record.progress.round >= entry.progress.round
}

/// Key of a host's facts.
pub(super) fn facts_key(queue: &QueueKey) -> Vec<u8> {
    [queue.as_bytes(), b"f"].concat()
}

/// Key of a host's counters.
pub(super) fn counters_key(queue: &QueueKey) -> Vec<u8> {
    [queue.as_bytes(), b"c"].concat()
}
