//! The storage of a node, as the cores need it: records and what is known of hosts, in memory and on the simulated disk, and the queues
//! that the frontier reads, which follow from the records alone.

use std::collections::{BTreeMap, BTreeSet};

use proto::batch::{Discovered, Entry, Pick};
use proto::clients::ask::{Item, Told};
use proto::clients::identity::{ClientQueueId, is_client};
use proto::clients::record::{ClientUrl, Opened, open};
use proto::cluster::contents::{ContentKey, Holding, Standing};
use proto::cluster::copy::{Kept, RecordCopy, merged};
use proto::cluster::mutant::Planted;
use proto::cluster::registry::{Definition, DefinitionKey};
use proto::cluster::repair::{Changed, Digests};
use proto::control::Totals;
use proto::control::crawl::CrawlCounts;
use proto::counters::HostCounters;
use proto::crawl::frontier::{HostFacts, LoadedQueue};
use proto::crawl::outcome::{Ending, OutcomeRules};
use proto::id::{NodeId, Slot, UrlId};
use proto::key::{DEFAULT_CRAWL, Order, QueueKey, UrlKey};
use proto::url::{CanonicalUrl, UrlRules};

use super::node::is;
use crate::world::disk::Stored;
use crate::world::random::Random;

/// What is written at once.
#[derive(Clone)]
pub(crate) enum What {
    /// Keeps records, as merged when it was written, for this question of the coordinator.
    Records(u64, Vec<RecordCopy>),
    /// Removes a slot.
    Drop(Slot),
    /// Keeps what is known of a host.
    Facts(QueueKey, Box<HostFacts>),
    /// The number of a life.
    Boot(u32),
    /// Keeps definitions, for this question of the coordinator.
    Definitions(u64, Vec<Definition>),
    /// Something about the contents of pages.
    Pages(PagesWrite),
    /// Keeps records of clients that were decided here, for this question of the sources.
    Clients(u64, Vec<RecordCopy>),
}

/// What is written about the contents of pages.
#[derive(Clone)]
pub(crate) enum PagesWrite {
    /// The number of the folder.
    Folder(u64),
    /// Keeps a page that was fetched here, and that lacks its second copy.
    Fetched(u64, ContentKey),
    /// Keeps pages that another disk has, for this push of its.
    Came(u64, Holding, Vec<ContentKey>),
    /// Another disk has these too.
    Copied(Holding, Vec<ContentKey>),
    /// What a disk was trusted with is lost.
    TakenBack(Holding),
}

/// The contents of pages that a disk has.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    pub(crate) folder: u64,
    pub(crate) here: BTreeSet<ContentKey>,
    /// Those without a second copy.
    pub(crate) list: BTreeSet<ContentKey>,
    trusted: BTreeMap<ContentKey, Holding>,
}

impl Pages {
    fn apply(&mut self, write: &PagesWrite) {
        match write {
            PagesWrite::Folder(folder) => self.folder = *folder,
            PagesWrite::Fetched(_, key) => {
                self.here.insert(key.clone());
                self.list.insert(key.clone());
            }
            PagesWrite::Came(_, from, keys) => {
                for key in keys {
                    if self.here.insert(key.clone()) {
                        self.trusted.insert(key.clone(), *from);
                    } else {
                        self.trust(key, *from);
                    }
                }
            }
            PagesWrite::Copied(holding, keys) => keys.iter().for_each(|key| self.trust(key, *holding)),
            PagesWrite::TakenBack(holding) => {
                let lost = self.trusted.extract_if(.., |_, of| of == holding).map(|(key, _)| key);
                self.list.extend(lost);
            }
        }
    }

    /// Part of the list behind a page, each page with `bytes`, and where to go on.
    #[allow(clippy::type_complexity)] // a list and a place in it
    pub(crate) fn listed(
        &self,
        after: Option<&ContentKey>,
        limit: usize,
        bytes: u32,
    ) -> (Vec<(ContentKey, u32)>, Option<ContentKey>) {
        let mut rest = self.list.iter().filter(|key| after.is_none_or(|after| *key > after));
        let pages: Vec<(ContentKey, u32)> = rest.by_ref().take(limit).map(|key| (key.clone(), bytes)).collect();
        let next = rest.next().and(pages.last()).map(|(key, _)| key.clone());
        (pages, next)
    }

    fn trust(&mut self, key: &ContentKey, holding: Holding) {
        if self.list.remove(key) {
            self.trusted.insert(key.clone(), holding);
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        let mut standing = Standing { lacking: self.list.len() as u64, ..Standing::default() };
        self.trusted.values().for_each(|holding| *standing.trusted.entry(*holding).or_default() += 1);
        standing
    }
}

/// What a disk holds.
#[derive(Clone, Default)]
pub(crate) struct Records {
    pub(crate) copies: BTreeMap<UrlKey, RecordCopy>,
    pub(crate) facts: BTreeMap<QueueKey, HostFacts>,
    pub(crate) boot: Option<u32>,
    pub(crate) definitions: BTreeMap<DefinitionKey, Definition>,
    pub(crate) pages: Pages,
}

impl Records {
    pub(crate) fn digests(&self) -> Digests {
        let mut digests = Digests::default();
        for copy in self.copies.values() {
            digests.change(Changed::new(&copy.key, None, Some(copy.hash())));
        }
        digests
    }

    /// Records of a slot, for a peer: as they are on disk, so that nothing is told of that may be lost.
    pub(crate) fn read(
        &self,
        slot: Slot,
        ranges: Option<&[u8]>,
        after: Option<&UrlKey>,
        limit: usize,
    ) -> (Vec<RecordCopy>, Option<UrlKey>) {
        let wanted = |key: &&UrlKey| {
            key.slot() == slot
                && after.is_none_or(|after| *key > after)
                && ranges.is_none_or(|ranges| ranges.contains(&key.id().0[0]))
        };
        let wanted = self.copies.iter().filter(|(key, _)| wanted(key)).map(|(_, copy)| copy.clone());
        let mut copies: Vec<RecordCopy> = wanted.take(limit + 1).collect();
        let more = copies.len() > limit;
        copies.truncate(limit);
        let next = if more { copies.last().map(|copy| copy.key.clone()) } else { None };
        (copies, next)
    }
}

impl Stored for Records {
    type Write = What;
    type Key = UrlId;

    fn apply(&mut self, write: &What) {
        match write {
            What::Records(_, copies) | What::Clients(_, copies) => {
                for copy in copies {
                    self.copies.insert(copy.key.clone(), copy.clone());
                }
            }
            What::Drop(slot) => self.copies.retain(|key, _| key.slot() != *slot),
            What::Facts(queue, facts) => drop(self.facts.insert(queue.clone(), (**facts).clone())),
            What::Boot(boot) => self.boot = Some(*boot),
            What::Pages(write) => self.pages.apply(write),
            What::Definitions(_, definitions) => {
                for definition in definitions {
                    if self.definitions.get(&definition.key).is_none_or(|held| held < definition) {
                        self.definitions.insert(definition.key.clone(), definition.clone());
                    }
                }
            }
        }
    }

    fn damage(&mut self, draw: &mut Random) -> Option<UrlId> {
        let at = draw.below(self.copies.len() as u64) as usize;
        let key = self.copies.keys().nth(at)?.clone();
        self.copies.remove(&key);
        Some(named(&key))
    }
}

/// What the trace calls a record. The id of a record of clients is one within its queue alone.
pub(crate) fn named(key: &UrlKey) -> UrlId {
    if is_client(key) { UrlId::of("client", &format!("{:?}", key.as_bytes())) } else { key.id() }
}

/// A record with its inside, which is looked at often.
struct Row {
    copy: RecordCopy,
    kept: Kept,
    queue: QueueKey,
}

/// Storage in memory: what is on disk, and what is on its way there.
pub(crate) struct Storage {
    node: NodeId,
    /// No retry waits longer: what is due later than this comes from a wall clock that was set.
    wait_max_ms: u64,
    rows: BTreeMap<UrlKey, Row>,
    /// Records of clients.
    clients: BTreeMap<UrlKey, RecordCopy>,
    /// Records of each queue.
    known: BTreeMap<QueueKey, usize>,
    /// What each queue has come to, kept up to date with every record as in the program.
    counters: BTreeMap<QueueKey, HostCounters>,
    planted: Planted,
    facts: BTreeMap<QueueKey, HostFacts>,
    /// Flights of the frontier, which are not in their queues, by their URLs.
    flying: BTreeMap<UrlKey, u64>,
    /// Entries that wait for their time.
    due: BTreeSet<(u64, UrlKey)>,
}

fn told(queue: &ClientQueueId, url: ClientUrl) -> Told {
    let ClientUrl { url, metadata, date_s, created_ms, .. } = url;
    let (crawl, key) = (queue.crawl().to_owned(), queue.key());
    Told { crawl, key, url, metadata, date_s, created_s: created_ms / 1_000 }
}

/// An entry that came into its queue.
pub(crate) struct Fresh {
    pub(crate) queue: QueueKey,
    pub(crate) order: Order,
    pub(crate) entry: Entry,
    pub(crate) new_host: bool,
}

impl Storage {
    pub(crate) fn new(node: NodeId, records: &Records, wait_max_ms: u64) -> Storage {
        let mut storage = Storage {
            node,
            wait_max_ms,
            rows: BTreeMap::new(),
            clients: BTreeMap::new(),
            known: BTreeMap::new(),
            counters: BTreeMap::new(),
            planted: Planted::default(),
            facts: records.facts.clone(),
            flying: BTreeMap::new(),
            due: BTreeSet::new(),
        };
        records.copies.values().for_each(|copy| storage.put(copy.clone()));
        storage
    }

    /// With a defect to be found.
    pub(crate) fn planted(self, planted: Planted) -> Storage {
        Storage { planted, ..self }
    }

    /// Goes back to what is on disk and to `pending`, because something between them was lost.
    pub(crate) fn fall_back<'a>(&mut self, records: &Records, pending: impl Iterator<Item = &'a What>) {
        self.rows.clear();
        self.clients.clear();
        self.known.clear();
        self.counters.clear();
        self.facts.clone_from(&records.facts);
        records.copies.values().for_each(|copy| self.put(copy.clone()));
        for what in pending {
            self.see(what);
        }
    }

    fn see(&mut self, what: &What) {
        match what {
            What::Records(_, copies) | What::Clients(_, copies) => {
                copies.iter().for_each(|copy| self.put(copy.clone()));
            }
            What::Drop(slot) => self.drop_slot(*slot),
            What::Facts(queue, facts) => self.keep_facts(queue.clone(), (**facts).clone()),
            What::Boot(_) | What::Definitions(..) | What::Pages(_) => {}
        }
    }

    fn put(&mut self, copy: RecordCopy) {
        if is_client(&copy.key) {
            self.clients.insert(copy.key.clone(), copy);
            return;
        }
        let Ok(kept) = copy.open() else { return };
        let Ok(url) = CanonicalUrl::parse(&kept.record.url, &UrlRules::AS_IT_IS) else { return };
        let crawl = copy.key.crawl().unwrap_or(DEFAULT_CRAWL);
        let queue = QueueKey::new(crawl, &url);
        let counters = self.counters.entry(queue.clone()).or_default();
        counters.add(&kept.record);
        match self.rows.insert(copy.key.clone(), Row { copy, kept, queue: queue.clone() }) {
            Some(_) if is(self.planted, "counted_twice") => {}
            Some(before) => counters.remove(&before.kept.record),
            None => *self.known.entry(queue).or_default() += 1,
        }
    }

    pub(crate) fn keep_facts(&mut self, queue: QueueKey, facts: HostFacts) {
        self.facts.insert(queue, facts);
    }

    /// What becomes of copies when they are merged into what is here.
    pub(crate) fn merge(&mut self, copies: Vec<RecordCopy>, planted: Planted) -> Vec<RecordCopy> {
        let mut written = Vec::with_capacity(copies.len());
        for copy in copies {
            let is_sound = if is_client(&copy.key) { open(&copy).is_some() } else { copy.open().is_ok() };
            if !is_sound {
                continue; // a peer's fault
            }
            let old = self.clients.get(&copy.key).or_else(|| self.rows.get(&copy.key).map(|row| &row.copy));
            let now = merged(old, copy, planted);
            if old != Some(&now) {
                self.put(now.clone());
            }
            written.push(now);
        }
        written
    }

    pub(crate) fn drop_slot(&mut self, slot: Slot) {
        self.rows.retain(|key, _| key.slot() != slot);
        self.clients.retain(|key, _| key.slot() != slot);
        self.known.retain(|queue, _| queue.slot() != slot);
        self.counters.retain(|queue, _| queue.slot() != slot);
    }

    /// What each crawl has come to in some slots.
    pub(crate) fn counts(&self, counts_slot: impl Fn(Slot) -> bool) -> BTreeMap<String, CrawlCounts> {
        let mut crawls: BTreeMap<String, CrawlCounts> = BTreeMap::new();
        for (queue, counters) in self.counters.iter().filter(|(queue, _)| counts_slot(queue.slot())) {
            let HostCounters { known, processed, failed, bytes } = *counters;
            crawls.entry(queue.crawl().to_owned()).or_default().totals.add(Totals { known, processed, failed, bytes });
        }
        crawls
    }

    /// Whether there are records of a crawl.
    pub(crate) fn has_crawl(&self, crawl: &str) -> bool {
        self.known.keys().any(|queue| queue.crawl() == crawl)
    }

    // Records of clients.

    /// Takes records of clients in, as the program does; gives those that were not skipped, as they are now.
    pub(crate) fn put_items(&mut self, items: Vec<Item>, unix_ms: u64, claim: Option<u64>) -> Vec<RecordCopy> {
        let mut copies = BTreeMap::new();
        for item in items {
            let key = ClientQueueId::new(&item.crawl, &item.key).url(&item.url);
            let old = self.client(&key);
            let new = ClientUrl::taken_in(old.as_ref(), item, 0, self.node, unix_ms, claim);
            if let Some(copy) = new.and_then(|new| new.copy(key.clone()).ok()) {
                self.put(copy.clone());
                copies.insert(key, copy);
            }
        }
        copies.into_values().collect()
    }

    fn client(&self, key: &UrlKey) -> Option<ClientUrl> {
        match open(self.clients.get(key)?)?.1 {
            Opened::Url(url) => Some(url),
            Opened::Queue(_) => None,
        }
    }

    /// One record of clients.
    pub(crate) fn told(&self, crawl: &str, key: &str, url: &str) -> Option<Told> {
        let queue = ClientQueueId::new(crawl, key);
        Some(told(&queue, self.client(&queue.url(url))?))
    }

    /// The records of a queue.
    pub(crate) fn told_all(&self, crawl: &str, key: &str) -> Vec<Told> {
        let queue = ClientQueueId::new(crawl, key);
        let of_queue = self.clients.keys().filter(|key| key.as_bytes().starts_with(queue.prefix()));
        of_queue.filter_map(|key| Some(told(&queue, self.client(key)?))).collect()
    }

    // Queues.

    /// The entry of a record, if it waits in its queue at `unix_ms`. `Err` names the time for which it waits.
    fn entry(&self, key: &UrlKey, unix_ms: u64) -> Option<Result<Entry, u64>> {
        let row = self.rows.get(key)?;
        if self.flying.contains_key(key) {
            return None;
        }
        let (due, entry) = row.kept.entry(self.node)?;
        let waits = due > unix_ms && due <= unix_ms + self.wait_max_ms;
        Some(if waits { Err(due) } else { Ok(entry) })
    }

    /// Entries of these records that are in their queues now; those that wait for their time are remembered.
    pub(crate) fn fresh(&mut self, keys: impl IntoIterator<Item = UrlKey>, unix_ms: u64) -> Vec<Fresh> {
        let mut fresh = Vec::new();
        for key in keys {
            match self.entry(&key, unix_ms) {
                None => {}
                Some(Err(due)) => {
                    self.due.insert((due, key));
                }
                Some(Ok(entry)) => {
                    let row = &self.rows[&key];
                    let (queue, order) = (row.queue.clone(), row.kept.order(&key));
                    // As in the program: the first URL of its host, seen for the first time, not the only one that is tried again.
                    let first = entry.progress.round == 0 && entry.progress.attempt == 0;
                    let new_host = first && self.known.get(&queue) == Some(&1) && !self.facts.contains_key(&queue);
                    fresh.push(Fresh { queue, order, entry, new_host });
                }
            }
        }
        fresh
    }

    /// Records whose time has come.
    pub(crate) fn fall_due(&mut self, unix_ms: u64) -> Vec<UrlKey> {
        let latest = unix_ms + self.wait_max_ms;
        let fallen: Vec<(u64, UrlKey)> =
            self.due.iter().filter(|(due, _)| *due <= unix_ms || *due > latest).cloned().collect();
        for entry in &fallen {
            self.due.remove(entry);
        }
        fallen.into_iter().map(|(_, key)| key).collect()
    }

    pub(crate) fn refill(
        &mut self,
        queue: &QueueKey,
        after: Option<Order>,
        limit: usize,
        unix_ms: u64,
    ) -> (Vec<(Order, Entry)>, bool) {
        let of_queue = self.rows.iter().filter(|(_, row)| row.queue == *queue);
        let keys: Vec<UrlKey> = of_queue.map(|(key, _)| key.clone()).collect();
        let fresh = self.fresh(keys, unix_ms).into_iter().map(|fresh| (fresh.order, fresh.entry));
        let mut entries: Vec<(Order, Entry)> =
            fresh.filter(|(order, _)| after.is_none_or(|after| *order > after)).collect();
        entries.sort_by_key(|(order, _)| *order);
        let more = entries.len() > limit;
        entries.truncate(limit);
        (entries, more)
    }

    pub(crate) fn load(&mut self, queue: &QueueKey, limit: usize, unix_ms: u64) -> LoadedQueue {
        let (entries, more) = self.refill(queue, None, limit, unix_ms);
        let facts = self.facts.get(queue).cloned().unwrap_or_default();
        LoadedQueue { key: queue.clone(), facts, entries, more }
    }

    /// The next queues of a slot behind `after`, and where to go on.
    pub(crate) fn sweep(
        &self,
        slot: Option<Slot>,
        after: Option<&QueueKey>,
        count: usize,
    ) -> (Vec<QueueKey>, Option<QueueKey>) {
        let wanted = |queue: &&QueueKey| {
            slot.is_none_or(|slot| queue.slot() == slot) && after.is_none_or(|after| *queue > after)
        };
        let queues: BTreeSet<&QueueKey> = self.rows.values().map(|row| &row.queue).filter(wanted).collect();
        let next = if queues.len() > count { queues.iter().nth(count - 1).map(|queue| (*queue).clone()) } else { None };
        (queues.into_iter().take(count).cloned().collect(), next)
    }

    // Records.

    /// Builds NEW records of what is not known, and hands out again those that may not be on W disks yet.
    pub(crate) fn admit(
        &self,
        crawl: &str,
        parent: Option<UrlId>,
        urls: Vec<Discovered>,
        unix_ms: u64,
    ) -> Vec<RecordCopy> {
        let mut copies = BTreeMap::new();
        for found in urls {
            let key = UrlKey::new(crawl, &found.url);
            match self.rows.get(&key) {
                Some(row) if row.kept.is_widely_kept() => {}
                Some(row) => drop(copies.insert(key, row.copy.clone())),
                None => {
                    let kept = Kept::discovered(&found, parent, unix_ms, self.node);
                    if let Ok(copy) = RecordCopy::new(key.clone(), &kept) {
                        copies.insert(key, copy);
                    }
                }
            }
        }
        copies.into_values().collect()
    }

    /// Marks an entry as handed out. Returns its record as SELECTED; `None` if it has come further since it was queued.
    pub(crate) fn select(&mut self, pick: &Pick) -> Option<RecordCopy> {
        let key = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
        let row = self.rows.get(&key).filter(|_| !self.flying.contains_key(&key))?;
        let kept = row.kept.clone().selected(pick, self.node)?;
        let copy = RecordCopy::new(key.clone(), &kept).ok()?;
        self.flying.insert(key, pick.flight);
        Some(copy)
    }

    /// A flight is over. Says whether its entry may be in its queue now: not if another flight has it, from another place in the queue or
    /// because the slot was another node's in between.
    pub(crate) fn landed(&mut self, key: &UrlKey, flight: u64) -> bool {
        if self.flying.get(key).is_some_and(|other| *other != flight) {
            return false;
        }
        self.flying.remove(key);
        true
    }

    /// Forgets the flights of a slot that is no longer served: whoever serves it now may hand them out.
    pub(crate) fn forget_flights(&mut self, slot: Slot) {
        self.flying.retain(|key, _| key.slot() != slot);
    }

    /// What becomes of a record whose content was fetched, and whose links are not kept yet.
    pub(crate) fn crawled(&self, pick: &Pick) -> Option<RecordCopy> {
        let key = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
        let kept = self.rows.get(&key)?.kept.clone().crawled(pick, self.node);
        RecordCopy::new(key, &kept).ok()
    }

    /// What becomes of a record whose fetch ended, and whether that counts as a page.
    pub(crate) fn settle(
        &self,
        pick: &Pick,
        ending: Ending,
        unix_ms: u64,
        rules: &OutcomeRules,
    ) -> Option<(RecordCopy, bool)> {
        let key = UrlKey::new(pick.queue.crawl(), &pick.entry.url);
        let page = ending.is_page();
        let turned = self.rows.get(&key)?.kept.clone().settled(pick, ending, unix_ms, rules);
        Some((RecordCopy::new(key, &turned.kept).ok()?, page))
    }
}
