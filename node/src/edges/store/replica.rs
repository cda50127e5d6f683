//! What a node of a cluster does with its store: it merges copies of records, and its queues follow from the records alone.
//!
//! A node alone writes an entry where it belongs when it decides so; a replica learns what others decided, in any order and more
//! than once. So here the place of an entry (in its queue, waiting for its time, or nowhere) is worked out from its record
//! each time that changes, and what is handed out is remembered in memory only: after a start it is open again.

use std::collections::BTreeMap;

use proto::batch::{Discovered, Entry, Pick};
use proto::clients::identity::is_client;
use proto::cluster::copy::{Body, Kept, RecordCopy, merged};
use proto::cluster::membership::next_bump;
use proto::cluster::message::{COPIES_BYTES_MAX, Stage};
use proto::cluster::mutant::Planted;
use proto::cluster::registry::Definition;
use proto::cluster::repair::{Changed, Digests};
use proto::cluster::slot_set::SlotSet;
use proto::cluster::turn::Turned;
use proto::control::Totals;
use proto::counters::HostCounters;
use proto::crawl::outcome::{Ending, OutcomeKind};
use proto::id::{Slot, UrlId};
use proto::key::{Order, QueueKey, UrlKey, split_due};
use proto::url::{CanonicalUrl, UrlRules};
use proto::wire;

use super::change::{Admitted, Change};
use super::clients::client_copy_of;
use super::columns::{INLINKS_BYTES, inlinks};
use super::{SeenCache, Store, StoreError, slot_index};

/// What a life of a node in its cluster begins with.
#[derive(Clone, Debug)]
pub struct Begun {
    /// Its number, on disk: larger than that of every life before.
    pub boot: u32,
    /// Digests of everything on disk.
    pub digests: Digests,
    /// Everything that is defined, removed ones included.
    pub definitions: Vec<Definition>,
}

/// What merging copies led to.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// Records that are not what they were.
    pub changed: Vec<Changed>,
    /// Entries that are in their queues now.
    pub admitted: Vec<Admitted>,
}

/// Where the entry of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Nowhere,
    Ready,
    Due,
}

/// A record as the change under way leaves it.
#[derive(Clone)]
pub(super) struct Touched {
    /// The record and its in-links; `None` if it is gone.
    now: Option<(RecordCopy, u32)>,
    place: Place,
}

/// Records that the change under way has touched, which no read of the database finds as they are.
pub(super) type Overlay = BTreeMap<UrlKey, Touched>;

/// An entry, and the key under which it lies in its queue.
struct Queued {
    queue: QueueKey,
    order: Order,
    due: u64,
    entry: Entry,
    /// It waits for another try, not for its next round.
    retry: bool,
}

impl Store {
    /// Begins a life in the cluster: its number is on disk when this returns, and nothing is handed out. `least` is a number
    /// that others already know.
    pub fn begin_life(&mut self, unix_s: u64, least: Option<u32>) -> Result<Begun, StoreError> {
        let stored: Option<u32> = self.read_meta("life")?;
        let known = stored.max(least);
        let boot = next_bump(known, unix_s);
        self.write_meta_durably("life", &boot)?;
        self.flying.clear();
        self.life = boot;
        let mut digests = Digests::default();
        for row in self.rows("url", Vec::new(), Vec::new()) {
            let (key, value) = row?;
            let copy = copy_of(UrlKey::from_bytes(&key), &value)?;
            digests.change(Changed::new(&copy.key, None, Some(copy.hash())));
        }
        for row in self.rows("client", Vec::new(), Vec::new()) {
            let (key, value) = row?;
            let copy = client_copy_of(UrlKey::from_bytes(&key), &value)?;
            digests.change(Changed::new(&copy.key, None, Some(copy.hash())));
        }
        Ok(Begun { boot, digests, definitions: self.definitions()? })
    }

    pub(super) fn copy(&self, key: &UrlKey) -> Result<Option<(RecordCopy, u32)>, StoreError> {
        let value = self.db.get_pinned_cf(&self.family("url"), key.as_bytes()).map_err(|error| self.failed(&error))?;
        value.map(|value| Ok((copy_of(key.clone(), &value)?, inlinks(&value)))).transpose()
    }

    fn opened(&self, key: &UrlKey) -> Result<Option<Kept>, StoreError> {
        let Some((copy, _)) = self.copy(key)? else { return Ok(None) };
        copy.open().map(Some).map_err(|error| StoreError::damaged("url", error))
    }

    /// Marks entries as handed out, and gives each with its record as SELECTED; without one if it has come further since.
    /// A `life` that is over hands nothing out.
    pub fn select_copies(
        &mut self,
        life: u32,
        picks: Vec<Pick>,
    ) -> Result<Vec<(Pick, Option<RecordCopy>)>, StoreError> {
        let mut selected = Vec::with_capacity(picks.len());
        for pick in picks {
            let ready = pick.queue.ready(pick.order);
            let key = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
            let free = life == self.life && !self.flying.contains_key(&ready);
            let kept = if free { self.opened(&key)? } else { None };
            let copy = match kept.and_then(|kept| kept.selected(&pick, self.options.node)) {
                Some(kept) => Some(encoded(key, &kept)?),
                None => None,
            };
            if copy.is_some() {
                self.flying.insert(ready, pick.flight);
            }
            selected.push((pick, copy));
        }
        Ok(selected)
    }

    /// What becomes of a record whose fetch has come to `stage`, and whether that counts as a page. Nothing is written.
    pub fn settle_copy(
        &mut self,
        pick: &Pick,
        ending: Ending,
        stage: Stage,
        unix_ms: u64,
    ) -> Result<(Option<RecordCopy>, bool), StoreError> {
        let key = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
        let Some(kept) = self.opened(&key)? else { return Ok((None, false)) };
        if kept.is_beyond(pick) {
            return Ok((None, false)); // somebody changed it while it was fetched: that counts
        }
        let (kept, page) = match stage {
            Stage::Crawled => (kept.crawled(pick, self.options.node), false),
            Stage::Processed => {
                let rules = self.rules_of(pick.queue.crawl())?;
                let Turned { kept, kind, .. } = kept.settled(pick, ending, unix_ms, &rules);
                (kept, matches!(kind, OutcomeKind::Stored | OutcomeKind::Duplicate | OutcomeKind::Unchanged))
            }
        };
        Ok((Some(encoded(key, &kept)?), page))
    }

    /// A flight is over; gives its entry if it is in its queue again.
    pub fn land(&mut self, pick: &Pick) -> Result<Option<Admitted>, StoreError> {
        let ready = pick.queue.ready(pick.order);
        if self.flying.get(&ready).is_some_and(|flight| *flight != pick.flight) {
            return Ok(None); // handed out again since: the slot was another node's in between
        }
        self.flying.remove(&ready);
        let key = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
        let Some(kept) = self.opened(&key)? else { return Ok(None) };
        let Some(queued) = self.queued(&key, &kept)? else { return Ok(None) };
        // Another flight may have it under another order: two copies of it were found at different depths.
        let waits = !self.flying.contains_key(&queued.queue.ready(queued.order));
        Ok((waits && self.place_on_disk(&queued)? == Place::Ready).then(|| queued.admitted(false)))
    }

    /// Forgets what of a slot is handed out: whoever serves it now may hand it out.
    pub fn forget_flights(&mut self, slot: Slot) {
        let prefix = slot.0.to_be_bytes();
        self.flying.retain(|ready, _| !ready.starts_with(&prefix));
    }

    /// Reads records of a slot behind `after`, at most `limit`, and where to go on if there are more.
    pub fn slot_copies(
        &self,
        slot: Slot,
        ranges: Option<&[u8]>,
        after: Option<&UrlKey>,
        limit: usize,
    ) -> Result<(Vec<RecordCopy>, Option<UrlKey>), StoreError> {
        let prefix = slot.0.to_be_bytes().to_vec();
        let start = after.map_or_else(|| prefix.clone(), |key| [key.as_bytes(), &[0]].concat());
        let (mut copies, mut bytes): (Vec<RecordCopy>, usize) = (Vec::new(), 0);
        // Keys of clients sort before all others of their slot.
        let clients = self.rows("client", start.clone(), prefix.clone());
        for row in clients.chain(self.rows("url", start, prefix)) {
            let (key, value) = row?;
            let key = UrlKey::from_bytes(&key);
            if ranges.is_some_and(|ranges| !ranges.contains(&key.id().0[0])) {
                continue;
            }
            if copies.len() >= limit || bytes >= COPIES_BYTES_MAX {
                let last = copies.last().map(|copy| copy.key.clone());
                return Ok((copies, last));
            }
            let copy = if is_client(&key) { client_copy_of(key, &value)? } else { copy_of(key, &value)? };
            bytes += copy.bytes();
            copies.push(copy);
        }
        Ok((copies, None))
    }

    /// Counts the URLs of slots.
    pub fn totals(&self, slots: &SlotSet) -> Result<Totals, StoreError> {
        let mut totals = Totals::default();
        for host in self.hosts() {
            let host = host?;
            if slots.contains(host.queue.slot()) {
                let HostCounters { known, processed, failed, bytes } = host.counters;
                totals.add(Totals { known, processed, failed, bytes });
            }
        }
        Ok(totals)
    }

    /// The entry of a record, if it has one.
    fn queued(&self, key: &UrlKey, kept: &Kept) -> Result<Option<Queued>, StoreError> {
        let Some((due, entry)) = kept.entry(self.options.node) else { return Ok(None) };
        let crawl = key.crawl().ok_or_else(|| StoreError::damaged("url", "a key without a crawl"))?;
        let queue = QueueKey::new(crawl, &entry.url);
        Ok(Some(Queued { queue, order: kept.order(key), due, entry, retry: !kept.is_closed() }))
    }

    /// Where an entry lies that this change has not touched.
    fn place_on_disk(&self, queued: &Queued) -> Result<Place, StoreError> {
        if queued.due == 0 {
            return Ok(Place::Ready);
        }
        let key = queued.queue.due(queued.due, queued.order);
        let found = self.db.get_pinned_cf(&self.family("due"), key).map_err(|error| self.failed(&error))?;
        Ok(if found.is_some() { Place::Due } else { Place::Ready })
    }
}

impl Queued {
    fn admitted(self, new_host: bool) -> Admitted {
        Admitted { queue: self.queue, order: self.order, entry: self.entry, new_host }
    }
}

impl Change<'_> {
    /// Merges copies into what is here. A copy that contradicts itself is a peer's fault and is left out.
    pub fn merge(&mut self, copies: Vec<RecordCopy>, unix_ms: u64) -> Result<Merged, StoreError> {
        let mut done = Merged::default();
        for copy in copies {
            if is_client(&copy.key) {
                done.changed.extend(self.merge_client(copy, unix_ms)?);
                continue;
            }
            if let Err(error) = copy.open() {
                tracing::warn!(%error, "a copy of a record is left out");
                continue;
            }
            self.merge_one(copy, unix_ms, &mut done)?;
        }
        Ok(done)
    }

    fn merge_one(&mut self, copy: RecordCopy, unix_ms: u64, done: &mut Merged) -> Result<(), StoreError> {
        let key = copy.key.clone();
        let old = self.touched(&key)?;
        let before = old.now.as_ref().map(|(copy, _)| copy);
        let now = merged(before, copy, Planted::default());
        if before == Some(&now) {
            return Ok(());
        }
        let damaged = |error| StoreError::damaged("url", error);
        let kept = now.open().map_err(damaged)?;
        let was = before.map(|copy| copy.open().map_err(damaged)).transpose()?;
        done.changed.push(Changed::new(&key, before.map(RecordCopy::hash), Some(now.hash())));
        let inlinks = old.now.as_ref().map_or(0, |(_, inlinks)| *inlinks);

        let url = CanonicalUrl::parse(&kept.record.url, &UrlRules::AS_IT_IS).map_err(|error| {
            StoreError::damaged("url", format!("{error:?}")) // `open` has parsed it
        })?;
        let crawl = key.crawl().unwrap_or_default().to_owned();
        let queue = QueueKey::new(&crawl, &url);
        let new_host = self.host(&queue)?.counters.known == 0;
        self.count(&queue, was.as_ref().map(|was| &was.record), Some(&kept.record))?;
        self.put_copy(&now, inlinks);

        if let Some(was) = &was
            && let Some(queued) = self.store.queued(&key, was)?
        {
            self.leave_queue(&queued, old.place);
        }
        let place = match self.store.queued(&key, &kept)? {
            None => Place::Nowhere,
            Some(queued) if queued.due > unix_ms => {
                self.wait(&queued)?;
                Place::Due
            }
            Some(queued) => {
                self.put_ready(&queued.queue, queued.order, &queued.entry)?;
                if !self.store.flying.contains_key(&queued.queue.ready(queued.order)) {
                    done.admitted.push(queued.admitted(new_host));
                }
                Place::Ready
            }
        };
        self.overlay.insert(key, Touched { now: Some((now, inlinks)), place });
        Ok(())
    }

    /// A record as this change leaves it.
    fn touched(&self, key: &UrlKey) -> Result<Touched, StoreError> {
        if let Some(touched) = self.overlay.get(key) {
            return Ok(touched.clone());
        }
        let now = self.store.copy(key)?;
        let place = match &now {
            None => Place::Nowhere,
            Some((copy, _)) => {
                let kept = copy.open().map_err(|error| StoreError::damaged("url", error))?;
                match self.store.queued(key, &kept)? {
                    None => Place::Nowhere,
                    Some(queued) => self.store.place_on_disk(&queued)?,
                }
            }
        };
        Ok(Touched { now, place })
    }

    fn put_copy(&mut self, copy: &RecordCopy, inlinks: u32) {
        let written: Result<(), StoreError> = self.rows.put("url", copy.key.as_bytes(), |row| {
            row.extend_from_slice(&inlinks.to_le_bytes());
            row.extend_from_slice(&copy.body.0);
            Ok(())
        });
        debug_assert!(written.is_ok(), "bytes are appended");
    }

    fn leave_queue(&mut self, queued: &Queued, place: Place) {
        let places = &mut self.store.state.places;
        match place {
            Place::Nowhere => {}
            Place::Ready => {
                places.ready -= 1;
                self.delete("ready", &queued.queue.ready(queued.order));
            }
            Place::Due => {
                *(if queued.retry { &mut places.retries } else { &mut places.recrawls }) -= 1;
                self.delete("due", &queued.queue.due(queued.due, queued.order));
            }
        }
    }

    fn wait(&mut self, queued: &Queued) -> Result<(), StoreError> {
        self.put_due(&queued.queue, queued.order, queued.due, &queued.entry, queued.retry)
    }

    /// The entry of a `due` row as this change leaves it, and whether it is a retry: a scan of the database sees neither that the entry was taken
    /// elsewhere, for which `None` stands, nor that another one waits in its place for the same moment.
    pub(super) fn as_it_waits(
        &self,
        due_key: &[u8],
        retry: bool,
        entry: Entry,
    ) -> Result<Option<(bool, Entry)>, StoreError> {
        let queue = split_due(due_key).and_then(|(_, ready)| QueueKey::prefix_of(ready));
        let queue = queue.ok_or_else(|| StoreError::damaged("due", "a key without a queue"))?;
        let key = UrlKey::new(queue.crawl(), &entry.url);
        let (copy, place) = match self.overlay.get(&key) {
            None => return Ok(Some((retry, entry))),
            Some(Touched { now: Some((copy, _)), place }) => (copy, place),
            Some(Touched { now: None, .. }) => return Ok(None),
        };
        let kept = copy.open().map_err(|error| StoreError::damaged("url", error))?;
        let queued = self.store.queued(&key, &kept)?.filter(|_| matches!(place, Place::Due));
        let here = queued.filter(|queued| queued.queue.due(queued.due, queued.order) == due_key);
        Ok(here.map(|queued| (queued.retry, queued.entry)))
    }

    /// An entry fell due in this change: what touches its record later must know.
    pub(super) fn note_fallen(&mut self, queue: &QueueKey, entry: &Entry) -> Result<(), StoreError> {
        let key = UrlKey::new(queue.crawl(), &entry.url);
        let mut touched = self.touched(&key)?;
        touched.place = Place::Ready;
        self.overlay.insert(key, touched);
        Ok(())
    }

    /// Looks which URLs are new, and gives their records as NEW; of those that are known the records that may not be on
    /// enough disks yet.
    pub fn admit_copies(
        &mut self,
        crawl: &str,
        parent: Option<UrlId>,
        urls: Vec<Discovered>,
        unix_ms: u64,
    ) -> Result<Vec<RecordCopy>, StoreError> {
        let mut copies: BTreeMap<UrlKey, RecordCopy> = BTreeMap::new();
        for found in urls {
            let key = UrlKey::new(crawl, &found.url);
            if copies.contains_key(&key) {
                continue;
            }
            match self.touched(&key)?.now {
                Some((copy, _)) => {
                    self.count_link(key.clone(), parent);
                    let kept = copy.open().map_err(|error| StoreError::damaged("url", error))?;
                    if !kept.is_widely_kept() {
                        copies.insert(key, copy);
                    }
                }
                None if self.has_room(&QueueKey::new(crawl, &found.url), &found.url)? => {
                    let kept = Kept::discovered(&found, parent, unix_ms, self.store.options.node);
                    copies.insert(key.clone(), encoded(key, &kept)?);
                }
                None => self.store.state.places.traps += 1,
            }
        }
        Ok(copies.into_values().collect())
    }

    /// Removes everything of a slot: records, queues and what is known of its hosts. Contents stay where they were fetched.
    pub fn drop_slot(&mut self, slot: Slot) -> Result<(), StoreError> {
        let prefix = slot.0.to_be_bytes().to_vec();
        let mut keys: Vec<UrlKey> = Vec::new();
        for row in self.store.rows("url", prefix.clone(), prefix.clone()) {
            keys.push(UrlKey::from_bytes(&row?.0));
        }
        let touched_here = self.overlay.keys().filter(|key| key.slot() == slot).cloned();
        keys.extend(touched_here);
        keys.sort();
        keys.dedup();
        for key in keys {
            let Touched { now, place } = self.touched(&key)?;
            let Some((copy, _)) = now else { continue };
            let kept = copy.open().map_err(|error| StoreError::damaged("url", error))?;
            if let Some(queued) = self.store.queued(&key, &kept)? {
                self.leave_queue(&queued, place);
            }
            if let (Some(crawl), Ok(url)) = (key.crawl(), CanonicalUrl::parse(&kept.record.url, &UrlRules::AS_IT_IS)) {
                self.count(&QueueKey::new(crawl, &url), Some(&kept.record), None)?;
            }
            self.delete("url", key.as_bytes());
            self.overlay.insert(key, Touched { now: None, place: Place::Nowhere });
        }
        self.drop_clients(slot)?;
        self.forget_hosts(slot, &prefix)?;
        self.store.forget_flights(slot);
        self.store.next_due[slot_index(slot)] = u64::MAX;
        self.store.seen = SeenCache::new();
        Ok(())
    }

    fn forget_hosts(&mut self, slot: Slot, prefix: &[u8]) -> Result<(), StoreError> {
        for family in ["host", "seen"] {
            let rows = self.store.rows(family, prefix.to_vec(), prefix.to_vec());
            let keys: Vec<Box<[u8]>> = rows.map(|row| row.map(|(key, _)| key)).collect::<Result<_, _>>()?;
            keys.iter().for_each(|key| self.delete(family, key));
        }
        self.touched.retain(|queue| queue.slot() != slot);
        self.store.hosts.retain(|queue, _| queue.slot() != slot);
        self.store.paths.retain(|path, _| !path.starts_with(prefix));
        Ok(())
    }
}

fn copy_of(key: UrlKey, value: &[u8]) -> Result<RecordCopy, StoreError> {
    let body = value.get(INLINKS_BYTES..).unwrap_or_default();
    let kept: Kept = wire::decode(body).map_err(|error| StoreError::damaged("url", error))?;
    Ok(RecordCopy { key, progress: kept.record.progress, body: Body(body.into()) })
}

fn encoded(key: UrlKey, kept: &Kept) -> Result<RecordCopy, StoreError> {
    RecordCopy::new(key, kept).map_err(|error| StoreError::damaged("url", error))
}

#[cfg(test)]
mod tests;
