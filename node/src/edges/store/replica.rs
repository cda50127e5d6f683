//! What a node of a cluster does with its store: it merges copies of records, and its queues follow from the records alone.
//!
//! A node alone writes an entry where it belongs when it decides so; a replica learns what others decided, in any order and more
//! than once. So here the place of an entry (in its queue, waiting for its time, or nowhere) is worked out from its record
//! each time that changes, and what is handed out is remembered in memory only: after a start it is open again.
//!
//! Beside the record only a page's *level* has a say in its place, if the cluster goes by scores. It is no part of the record, because every owner of a slot computes it;
//! it lies in the family `level` of this disk, and changes in the batch that moves the entry ([`super::reorder`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
use proto::record::UrlRecord;
use proto::score::priority::priority;
use proto::site::note::is_note;
use proto::url::{CanonicalUrl, UrlRules};
use proto::wire;

use super::change::{Admitted, Change};
use super::clients::client_copy_of;
use super::columns::{INLINKS_BYTES, inlinks};
use super::notes::note_copy_of;
use super::{SeenCache, Store, StoreError, slot_index};

/// Rows that are looked at for one part of a slot: the disk thread has other work.
const PART_ROWS_MAX: usize = 16_384;

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

/// A record, read once.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) copy: RecordCopy,
    pub(super) kept: Kept,
    pub(super) url: CanonicalUrl,
    pub(super) inlinks: u32,
    /// What the page graph says of it: moves its entry in its queue.
    pub(super) level: i16,
}

/// A record as the change under way leaves it.
#[derive(Clone)]
pub(super) struct Touched {
    /// The record; `None` if it is gone.
    now: Option<Arc<Known>>,
    place: Place,
}

impl Touched {
    /// The record, if it is there.
    pub(super) fn record(&self) -> Option<&UrlRecord> {
        self.now.as_ref().map(|known| &known.kept.record)
    }
}

/// Records that the change under way has touched, which no read of the database finds as they are.
pub(super) type Overlay = BTreeMap<UrlKey, Touched>;

/// An entry, and the key under which it lies in its queue.
pub(super) struct Queued {
    pub(super) queue: QueueKey,
    pub(super) order: Order,
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
        let digests = self.begin_digests(stored, boot)?;
        Ok(Begun { boot, digests, definitions: self.definitions()? })
    }

    pub(super) fn copy(&self, key: &UrlKey) -> Result<Option<(RecordCopy, u32)>, StoreError> {
        let value = self.db.get_pinned_cf(&self.family("url"), key.as_bytes()).map_err(|error| self.failed(&error))?;
        value.map(|value| Ok((copy_of(key.clone(), &value)?, inlinks(&value)))).transpose()
    }

    fn opened(&self, key: &UrlKey) -> Result<Option<Kept>, StoreError> {
        let value = self.db.get_pinned_cf(&self.family("url"), key.as_bytes()).map_err(|error| self.failed(&error))?;
        value.map(|value| decoded(&value)).transpose()
    }

    fn known(&self, key: &UrlKey) -> Result<Option<Known>, StoreError> {
        let value = self.db.get_pinned_cf(&self.family("url"), key.as_bytes()).map_err(|error| self.failed(&error))?;
        let Some(value) = value else { return Ok(None) };
        let kept = decoded(&value)?;
        let url = url_of(&kept)?;
        let body = Body(value[INLINKS_BYTES..].into());
        let copy = RecordCopy { key: key.clone(), progress: kept.record.progress, body };
        let level = self.level(key)?;
        Ok(Some(Known { copy, kept, url, inlinks: inlinks(&value), level }))
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
            let free = life == self.life && !self.flying.contains(&ready);
            let kept = if free { self.opened(&key)? } else { None };
            let copy = match kept.and_then(|kept| kept.selected(&pick, self.options.node)) {
                Some(kept) => Some(encoded(key, &kept)?),
                None => None,
            };
            if copy.is_some() {
                self.flying.insert(&ready, pick.flight);
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

    /// The same of several flights, in their order.
    pub fn settle_copies(
        &mut self,
        flights: Vec<(Box<Pick>, Ending, Stage)>,
        unix_ms: u64,
    ) -> Result<Vec<(Option<RecordCopy>, bool)>, StoreError> {
        flights.into_iter().map(|(pick, ending, stage)| self.settle_copy(&pick, ending, stage, unix_ms)).collect()
    }

    /// Flights are over; gives the entries that are in their queues again.
    pub fn land_all(&mut self, picks: &[Pick]) -> Result<Vec<Admitted>, StoreError> {
        picks.iter().filter_map(|pick| self.land(pick).transpose()).collect()
    }

    /// A flight is over; gives its entry if it is in its queue again.
    pub fn land(&mut self, pick: &Pick) -> Result<Option<Admitted>, StoreError> {
        let ready = pick.queue.ready(pick.order);
        if self.flying.get(&ready).is_some_and(|flight| flight != pick.flight) {
            return Ok(None); // handed out again since: the slot was another node's in between
        }
        self.flying.remove(&ready);
        let key = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
        let Some(kept) = self.opened(&key)? else { return Ok(None) };
        let Some(queued) = self.queued(&key, &kept, &pick.entry.url, self.level(&key)?) else { return Ok(None) };
        Ok((self.place_on_disk(&queued)? == Place::Ready).then(|| queued.admitted(false)))
    }

    /// Forgets what of a slot is handed out: whoever serves it now may hand it out.
    pub fn forget_flights(&mut self, slot: Slot) {
        self.flying.forget(slot);
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
        let (mut copies, mut bytes, mut rows): (Vec<RecordCopy>, usize, usize) = (Vec::new(), 0, 0);
        let mut last: Option<UrlKey> = None;
        let wanted = ranges.map(|ranges| ranges.iter().copied().collect::<BTreeSet<u8>>());
        // Keys of clients sort before all others of their slot, those of notes before those of hosts.
        let clients = self.rows("client", start.clone(), prefix.clone());
        let notes = self.rows("note", start.clone(), prefix.clone());
        for row in clients.chain(notes).chain(self.rows("url", start, prefix)) {
            let (key, value) = row?;
            let key = UrlKey::from_bytes(&key);
            rows += 1;
            if copies.len() >= limit || bytes >= COPIES_BYTES_MAX || rows > PART_ROWS_MAX {
                return Ok((copies, last));
            }
            last = Some(key.clone());
            let gone = || self.gone.as_ref().is_some_and(|gone| gone.has(key.crawl().unwrap_or_default()));
            if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&key.id().0[0])) || gone() {
                continue;
            }
            let copy = match () {
                () if is_client(&key) => client_copy_of(key, &value)?,
                () if is_note(&key) => note_copy_of(key, &value)?,
                () => copy_of(key, &value)?,
            };
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
    fn queued(&self, key: &UrlKey, kept: &Kept, url: &CanonicalUrl, level: i16) -> Option<Queued> {
        let (due, entry) = kept.entry_of(self.options.node, url)?;
        let queue = QueueKey::new(key.crawl()?, url);
        let order = kept.order(key);
        let order = Order { priority: priority(order.priority, level), ..order };
        Some(Queued { queue, order, due, entry, retry: !kept.is_closed() })
    }

    /// The entry of a record that was read.
    pub(super) fn entry_of(&self, known: &Known) -> Option<Queued> {
        self.queued(&known.copy.key, &known.kept, &known.url, known.level)
    }

    /// Looks whether pages here have levels, or may get some.
    pub(super) fn load_levels(&mut self) -> Result<(), StoreError> {
        let any = self.rows("level", Vec::new(), Vec::new()).next().transpose()?.is_some();
        self.levels = self.options.replica && (self.options.graph || any);
        Ok(())
    }

    /// The level of a page; 0 if it has none.
    fn level(&self, key: &UrlKey) -> Result<i16, StoreError> {
        if !self.levels {
            return Ok(0);
        }
        let row = self.db.get_pinned_cf(&self.family("level"), key.as_bytes()).map_err(|error| self.failed(&error))?;
        let Some(row) = row else { return Ok(0) };
        let level = row.as_ref().try_into().map_err(|_| StoreError::damaged("level", "a level of another length"))?;
        Ok(i16::from_le_bytes(level))
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
        self.store.gone()?;
        for copy in copies {
            if self.store.gone.as_ref().is_some_and(|gone| gone.has(copy.key.crawl().unwrap_or_default())) {
                continue; // nobody fetches it any more, and it would be removed again
            }
            if is_client(&copy.key) {
                done.changed.extend(self.merge_client(copy, unix_ms)?);
                continue;
            }
            if is_note(&copy.key) {
                done.changed.extend(self.merge_note(copy)?);
                continue;
            }
            match copy.open_with_url() {
                Ok((kept, url)) => {
                    self.merge_one(Known { copy, kept, url, inlinks: 0, level: 0 }, unix_ms, &mut done)?
                }
                Err(error) => tracing::warn!(%error, "a copy of a record is left out"),
            }
        }
        Ok(done)
    }

    fn merge_one(&mut self, mut new: Known, unix_ms: u64, done: &mut Merged) -> Result<(), StoreError> {
        let key = new.copy.key.clone();
        let old = self.touched(&key)?;
        let before = old.now.as_ref().map(|known| &known.copy);
        new.copy = merged(before, new.copy, Planted::default());
        if before == Some(&new.copy) {
            return Ok(()); // what merging gives is one of the two
        }
        done.changed.push(self.digest(&key, before.map(RecordCopy::hash), Some(new.copy.hash())));
        (new.inlinks, new.level) = old.now.as_ref().map_or((0, 0), |known| (known.inlinks, known.level));

        let queue = QueueKey::new(key.crawl().unwrap_or_default(), &new.url);
        let new_host = self.host(&queue)?.counters.known == 0;
        self.count(&queue, old.record(), Some(&new.kept.record))?;
        self.put_copy(&new.copy, new.inlinks);
        self.note_events(&key, old.record(), &new.kept.record, unix_ms)?;

        if let Some(was) = &old.now
            && let Some(queued) = self.store.entry_of(was)
        {
            self.leave_queue(&queued, old.place);
        }
        let place = match self.store.entry_of(&new) {
            None => Place::Nowhere,
            Some(queued) if queued.due > unix_ms => {
                self.wait(&queued)?;
                Place::Due
            }
            Some(queued) => {
                self.put_ready(&queued.queue, queued.order, &queued.entry)?;
                if !self.store.flying.contains(&queued.queue.ready(queued.order)) {
                    done.admitted.push(queued.admitted(new_host));
                }
                Place::Ready
            }
        };
        self.overlay.insert(key, Touched { now: Some(Arc::new(new)), place });
        Ok(())
    }

    /// A record as this change leaves it.
    fn touched(&self, key: &UrlKey) -> Result<Touched, StoreError> {
        if let Some(touched) = self.overlay.get(key) {
            return Ok(touched.clone());
        }
        let Some(known) = self.store.known(key)? else { return Ok(Touched { now: None, place: Place::Nowhere }) };
        // Without a time to wait for it needs no look at the disk to know where its entry is.
        let place = match self.store.entry_of(&known) {
            None => Place::Nowhere,
            Some(queued) => self.store.place_on_disk(&queued)?,
        };
        Ok(Touched { now: Some(Arc::new(known)), place })
    }

    /// A record as this change leaves it, its entry, and where that is.
    #[allow(clippy::type_complexity)] // three things that belong together here only
    pub(super) fn as_it_is(&self, key: &UrlKey) -> Result<Option<(Arc<Known>, Option<Queued>, Place)>, StoreError> {
        let Touched { now, place } = self.touched(key)?;
        let Some(known) = now else { return Ok(None) };
        let queued = self.store.entry_of(&known);
        Ok(Some((known, queued, place)))
    }

    /// A waiting entry whose page has another level goes to another place; says whether it did. What is handed out stays.
    pub(super) fn put_level(&mut self, key: &UrlKey, level: i16) -> Result<bool, StoreError> {
        let Touched { now, place } = self.touched(key)?;
        let Some(known) = now.filter(|known| known.level != level) else { return Ok(false) };
        let Some(old) = self.store.entry_of(&known).filter(|_| place == Place::Ready) else { return Ok(false) };
        if self.store.flying.contains(&old.queue.ready(old.order)) {
            return Ok(false);
        }
        let Known { copy, kept, url, inlinks, .. } = &*known;
        let new = Known { copy: copy.clone(), kept: kept.clone(), url: url.clone(), inlinks: *inlinks, level };
        let Some(queued) = self.store.entry_of(&new) else { return Ok(false) };
        self.leave_queue(&old, place);
        self.put_ready(&queued.queue, queued.order, &queued.entry)?;
        if level == 0 {
            self.delete("level", key.as_bytes());
        } else {
            self.rows.put("level", key.as_bytes(), |out| {
                out.extend_from_slice(&level.to_le_bytes());
                Ok::<(), StoreError>(())
            })?;
        }
        self.overlay.insert(key.clone(), Touched { now: Some(Arc::new(new)), place });
        Ok(true)
    }

    pub(super) fn forget_level(&mut self, key: &UrlKey, known: &Known) {
        if known.level != 0 {
            self.delete("level", key.as_bytes());
        }
    }

    /// A record is no more.
    pub(super) fn forget_touched(&mut self, key: &UrlKey) {
        self.overlay.insert(key.clone(), Touched { now: None, place: Place::Nowhere });
    }

    fn put_copy(&mut self, copy: &RecordCopy, inlinks: u32) {
        let written: Result<(), StoreError> = self.rows.put("url", copy.key.as_bytes(), |row| {
            row.extend_from_slice(&inlinks.to_le_bytes());
            row.extend_from_slice(&copy.body.0);
            Ok(())
        });
        debug_assert!(written.is_ok(), "bytes are appended");
    }

    pub(super) fn leave_queue(&mut self, queued: &Queued, place: Place) {
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
        let (known, place) = match self.overlay.get(&key) {
            None => return Ok(Some((retry, entry))),
            Some(Touched { now: Some(known), place }) => (known, place),
            Some(Touched { now: None, .. }) => return Ok(None),
        };
        let queued = self.store.entry_of(known).filter(|_| matches!(place, Place::Due));
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
                Some(known) => {
                    self.count_link(key.clone(), parent);
                    if !known.kept.is_widely_kept() {
                        copies.insert(key, known.copy.clone());
                    }
                }
                None if parent.is_some() && !self.store.takes_room(crawl)? => {}
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
            let Some(known) = now else { continue };
            if let Some(queued) = self.store.entry_of(&known) {
                self.leave_queue(&queued, place);
            }
            if let Some(crawl) = key.crawl() {
                self.count(&QueueKey::new(crawl, &known.url), Some(&known.kept.record), None)?;
            }
            self.delete("url", key.as_bytes());
            self.forget_level(&key, &known);
            self.overlay.insert(key, Touched { now: None, place: Place::Nowhere });
        }
        self.drop_clients(slot)?;
        self.drop_notes(slot)?;
        self.digest_dropped(slot);
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

pub(super) fn copy_of(key: UrlKey, value: &[u8]) -> Result<RecordCopy, StoreError> {
    let progress = decoded(value)?.record.progress;
    Ok(RecordCopy { key, progress, body: Body(value[INLINKS_BYTES..].into()) })
}

fn decoded(value: &[u8]) -> Result<Kept, StoreError> {
    let body = value.get(INLINKS_BYTES..).unwrap_or_default();
    wire::decode(body).map_err(|error| StoreError::damaged("url", error))
}

fn url_of(kept: &Kept) -> Result<CanonicalUrl, StoreError> {
    CanonicalUrl::parse(&kept.record.url, &UrlRules::AS_IT_IS).map_err(|error| StoreError::damaged("url", error))
}

fn encoded(key: UrlKey, kept: &Kept) -> Result<RecordCopy, StoreError> {
    RecordCopy::new(key, kept).map_err(|error| StoreError::damaged("url", error))
}

#[cfg(test)]
mod tests;
