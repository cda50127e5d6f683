//! Frontier: what is fetched next. A pure state machine: [`Frontier::step`] takes what happened and says what to do.
//!
//! **The life of a URL here.** Storage admits a URL under its host's queue, on disk, in fetching order. The frontier keeps a
//! window of each queue in memory: the first few entries, and a cursor behind them. A queue stands in the *agenda* under the time at
//! which its host may be asked again; a host that is blocked stands late in it and costs nothing until then, and hosts that are due
//! take turns. When its turn comes, the first entry becomes a *flight*: the host is busy until the fetch ended, the
//! place among the flights is taken until storage has settled the outcome on disk. A flight that nobody settles before its deadline is
//! *lost*: the entry goes back to its queue. Before the first page of an origin, its robots.txt is fetched, as an *errand* of the
//! host it lies on, under the same politeness.
//!
//! **Bounds.** At most `queues_max` queues are in memory, each with at most `window_max` entries and, when there are
//! many, with fewer, so that all windows together stay near `WINDOWS_ENTRIES_MAX`; what is beyond waits on disk and is
//! swept in when there is room. At most `flights_max` flights.

mod crawls;
mod queue;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use self::crawls::Gate;
use self::queue::{Address, Errand, Queue, RobotsState};
pub use self::step::{
    Effect, FrontierRules, HostFacts, Input, LoadedQueue, Now, RobotsCopy, RobotsFetch, Standing, Trouble, Tuned, Why,
};
use super::crawls::Crawls;
use super::filter::Filter;
use super::politeness::{Micros, SECOND};
use super::retry::{Failure, HostVerdict, UrlVerdict, verdict};
use super::robots::Robots;
use crate::batch::{Discovered, Entry, EntryKind, Pick};
use crate::cluster::lease::{Held, Leases};
use crate::cluster::mutant::planted;
use crate::id::Slot;
use crate::key::{Order, QueueKey};
use crate::url::CanonicalUrl;

/// Entries that one visit of a queue may refuse before the others get their turn.
const REFUSALS_PER_VISIT: usize = 32;
/// Entries of all windows together, some 250 bytes each, unless a window would have fewer than [`WINDOW_MIN`]: then every
/// second page would wait for the disk to be read.
const WINDOWS_ENTRIES_MAX: usize = 1 << 18;
const WINDOW_MIN: usize = 8;
/// Queues asked for in one sweep.
const SWEEP_QUEUES: usize = 256;
/// Origins of one host whose robots.txt is remembered: schemes and ports; a host with more has the oldest asked again.
const ORIGINS_MAX: usize = 8;
/// Redirects followed for a robots.txt (RFC 9309: at least five).
const ROBOTS_REDIRECTS_MAX: u8 = 5;
/// How long a host stays without address, whatever its delay: long enough to refuse what waits for it.
const ADDRESS_FAILURE_MIN: Micros = SECOND;
/// A robots.txt up to this size never makes its queue leave memory: that would gain nothing.
const ROBOTS_BYTES_SMALL: usize = 16 << 10;
/// How long after a disk had no room for what is known of a host it is tried again.
const FACTS_AGAIN_AFTER: Micros = SECOND;
/// A host that is asked again sooner than this is in no trouble.
const TROUBLE_MIN: Micros = 3 * SECOND;
/// Sitemaps taken from one robots.txt.
const SITEMAPS_MAX: usize = 100;

struct Flight {
    queue: QueueKey,
    deadline: Micros,
    /// The host (and address) is busy until the fetch ended.
    fetching: Option<Option<IpAddr>>,
    cargo: Cargo,
}

impl Flight {
    fn entry(&self) -> Option<(Order, QueueKey)> {
        match &self.cargo {
            Cargo::Page(pick) | Cargo::Refused(pick) => Some((pick.order, pick.queue.clone())),
            Cargo::Robots(_) => None,
        }
    }
}

enum Cargo {
    Page(Pick),
    Refused(Pick),
    Robots(Errand),
}

#[derive(Default)]
struct AddressState {
    busy: bool,
    next_ok: Micros,
    waiting: VecDeque<QueueKey>,
}

/// Sweeping queues in from disk.
struct Sweep {
    running: bool,
    /// Where to go on.
    after: Option<QueueKey>,
    /// There may be queues on disk that are not in memory.
    needed: bool,
    /// A queue was left on disk, perhaps behind the back of the pass that is under way.
    missed: bool,
    /// With leases, a pass is over one slot: the one under way, and those that wait for theirs.
    slot: Option<Slot>,
    slots: BTreeSet<Slot>,
}

/// The frontier.
pub struct Frontier {
    rules: FrontierRules,
    crawls: Arc<Crawls>,
    /// Pages that may still be handed out, of crawls that have a limit.
    allowed: BTreeMap<String, u64>,
    /// In a cluster, hosts that were asked: queues of several crawls may be of the same one.
    gates: BTreeMap<String, Gate>,
    leases: Leases,
    /// Boxed: a queue is some four hundred bytes, and a visit takes it out of the map and puts it back.
    queues: BTreeMap<QueueKey, Box<Queue>>,
    agenda: BTreeSet<(Micros, u64, QueueKey)>,
    turn: u64,
    flights: BTreeMap<u64, Flight>,
    /// The entries among them.
    aloft: BTreeSet<(Order, QueueKey)>,
    deadlines: BTreeSet<(Micros, u64)>,
    next_flight: u64,
    page_flights: u64,
    pages: u64,
    addresses: BTreeMap<IpAddr, AddressState>,
    address_floor: Micros,
    /// There was a life of this node before.
    resumed: bool,
    sweep: Sweep,
    /// Slots that are no longer ours and still have requests under way.
    parting: BTreeSet<Slot>,
    /// Reads of queues that are under way.
    reads: BTreeSet<u64>,
    next_read: u64,
    /// Queues that left memory, with the newest read of that time: that read, and those before it, may tell of entries
    /// that are gone since.
    forgotten: BTreeMap<QueueKey, u64>,
    /// Bytes of robots.txt files in memory, at most: what left memory is subtracted when it matters.
    robots_bytes: usize,
    closed: bool,
    /// When the time in which some hosts are not asked is over.
    rest_over: Option<Micros>,
    /// Until when hosts had their page, of sites that count by turns; Unix milliseconds.
    turns: BTreeMap<QueueKey, u64>,
}

impl Frontier {
    /// A frontier over what is on disk. `pages` were fetched before; if the crawl is resumed, addresses are waited for once.
    pub fn new(
        now: Now,
        rules: FrontierRules,
        filter: Arc<Filter>,
        leases: Leases,
        pages: u64,
        resumed: bool,
    ) -> Frontier {
        let address_floor = if resumed { now.mono + rules.pace.delay_ms * 1_000 } else { now.mono };
        Frontier {
            rules,
            crawls: Arc::new(Crawls::alone(filter)),
            allowed: BTreeMap::new(),
            gates: BTreeMap::new(),
            queues: BTreeMap::new(),
            agenda: BTreeSet::new(),
            turn: 0,
            flights: BTreeMap::new(),
            aloft: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            // Answers to a former life of this actor may still come: numbers never repeat within a start of the node.
            next_flight: now.mono + 1,
            page_flights: 0,
            pages,
            addresses: BTreeMap::new(),
            address_floor,
            resumed,
            sweep: Sweep {
                running: false,
                after: None,
                needed: matches!(leases, Leases::Sole),
                missed: false,
                slot: None,
                slots: BTreeSet::new(),
            },
            parting: BTreeSet::new(),
            reads: BTreeSet::new(),
            next_read: 0,
            forgotten: BTreeMap::new(),
            robots_bytes: 0,
            closed: false,
            rest_over: None,
            turns: BTreeMap::new(),
            leases,
        }
    }

    /// Takes in what happened and adds what to do to `out`.
    pub fn step(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Tick => {}
            Input::Admitted { queue, order, entry, new_host } => self.admitted(now, queue, order, entry, new_host, out),
            Input::Loaded { read, queues, sweep } => self.loaded(now, read, queues, sweep),
            Input::FactsKept { queue, kept } => self.facts_kept(now, &queue, kept),
            Input::Refilled { read, queue, entries, more } => self.refilled(now, read, &queue, entries, more),
            Input::Resolved { queue, address } => self.resolved(now, &queue, address),
            Input::FetchEnded { flight, host, retry_after_ms } => {
                self.fetch_ended(now, flight, host, retry_after_ms, out)
            }
            Input::RobotsFetched { flight, answer } => self.robots_fetched(now, flight, answer, out),
            Input::Settled { flight, page } => self.settled(now, flight, page, out),
            Input::Leased { slots } => self.leased(now, slots),
            Input::Served { slot } => self.served(slot),
            Input::Unleased { slot } => self.unleased(now, slot),
            Input::Crawls(crawls) => self.redefined(now, crawls),
            Input::Reordered { queue } => self.reordered(now, queue, out),
        }
        self.expire(now, out);
        self.part(out);
        self.wake_rested(now);
        self.pump(now, out);
        if self.robots_bytes > self.rules.robots_bytes_max {
            self.shed_robots();
        }
    }

    /// Hands out nothing more; what is in flight is still taken in.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether all pages that may be handed out were.
    pub fn is_spent(&self) -> bool {
        self.rules.pages_max.is_some_and(|max| self.pages >= max)
    }

    /// Lets at most this many fly from now on.
    pub fn limit_flights(&mut self, flights_max: usize) {
        self.rules.flights_max = flights_max.max(1);
    }

    /// Goes by these from now on. With no flights at all nothing is handed out until there are some again.
    pub fn tune(&mut self, tuned: Tuned) {
        self.rules.flights_max = tuned.flights_max;
        self.rules.pace.delay_ms = tuned.delay_ms;
        self.rules.robots_ttl_ms = tuned.robots_ttl_ms;
    }

    /// Pages fetched so far, from the start of the crawl.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Fetches that are not settled.
    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    /// When to step again if nothing happens before.
    pub fn next_wake(&self) -> Option<Micros> {
        let agenda = self.agenda.first().map(|(at, ..)| *at).filter(|_| self.has_room());
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        agenda.into_iter().chain(deadline).chain(self.rest_over).min()
    }

    /// Where the frontier stands.
    pub fn standing(&self) -> Standing {
        Standing {
            queues: self.queues.len(),
            hosts_busy: self.queues.values().filter(|queue| queue.busy).count(),
            hosts_active: self.queues.values().filter(|queue| queue.has_work()).count(),
            flights: self.flights.len(),
            next_due: self.agenda.first().map(|(at, ..)| *at),
        }
    }

    /// Hosts that have URLs and are left alone for now, at most `limit`, in the order of their names: for people who ask.
    pub fn troubles(&self, now: Now, limit: usize) -> Vec<Trouble> {
        let troubles = self.queues.iter().filter_map(|(key, queue)| queue.trouble(key));
        troubles.filter(|trouble| trouble.until > now.mono + TROUBLE_MIN).take(limit).collect()
    }

    /// Whether every host that has URLs could not be reached, twice or more: nothing can be fetched for now.
    pub fn is_stranded(&self) -> bool {
        let mut hosts = self.queues.values().filter(|queue| queue.has_work()).peekable();
        hosts.peek().is_some() && !self.sweep.needed && hosts.all(|queue| queue.is_unreachable())
    }

    /// A flight of a former life of this actor that may still be settled: its host stays busy until then.
    pub fn adopt(&mut self, now: Now, pick: Pick, out: &mut Vec<Effect>) {
        let flight = pick.flight;
        self.next_flight = self.next_flight.max(flight + 1);
        let known = self.queues.contains_key(&pick.queue);
        let queue = self.queue_or_new(now, &pick.queue);
        queue.busy = true;
        if !known {
            // What is known of the host, its Crawl-delay above all, is on disk.
            queue.loading = true;
            let (read, queue) = (self.begin_read(), pick.queue.clone());
            out.push(Effect::Load { read, queue, limit: self.window_max() });
        }
        self.page_flights += 1;
        let name = pick.queue.clone();
        self.take_off(now, flight, Flight { queue: name, deadline: 0, fetching: Some(None), cargo: Cargo::Page(pick) });
    }

    /// Entries that a window may have now. One that has more loses them when it is next added to.
    fn window_max(&self) -> usize {
        window_of(self.queues.len(), self.rules.window_max)
    }

    fn has_room(&self) -> bool {
        !self.closed && self.flights.len() < self.rules.flights_max && !self.budget_is_taken()
    }

    /// Every page that may still be handed out is in flight.
    fn budget_is_taken(&self) -> bool {
        self.rules.pages_max.is_some_and(|max| self.pages + self.page_flights >= max)
    }

    // Leases.

    fn leased(&mut self, now: Now, slots: Vec<(Slot, Micros)>) {
        let Leases::Granted(grants) = &mut self.leases else { return };
        for (slot, until) in slots {
            let held = grants.held.entry(slot).or_insert(Held { since: now.mono, until, served: false });
            held.until = held.until.max(until);
            self.parting.remove(&slot);
        }
    }

    fn served(&mut self, slot: Slot) {
        let Leases::Granted(grants) = &mut self.leases else { return };
        let Some(held) = grants.held.get_mut(&slot) else { return };
        if !std::mem::replace(&mut held.served, true) {
            self.leave_on_disk(slot);
        }
    }

    fn unleased(&mut self, now: Now, slot: Slot) {
        let Leases::Granted(grants) = &mut self.leases else { return };
        grants.held.remove(&slot);
        self.parting.insert(slot);
        self.sweep.slots.remove(&slot);
        let first = QueueKey::before_all_of(slot);
        let gone: Vec<QueueKey> =
            self.queues.range(first..).map(|(key, _)| key.clone()).take_while(|key| key.slot() == slot).collect();
        let mut errands = Vec::new();
        for key in gone {
            self.forget_in_agenda(&key);
            errands.extend(self.queues.remove(&key).into_iter().flat_map(|queue| queue.errands));
            self.forget(&key);
        }
        // Only the new holder may run them: hosts of other slots that wait for such a robots.txt ask again.
        for errand in errands.iter().filter(|errand| errand.queue.slot() != slot) {
            self.robots_unavailable(now, errand, Failure::RobotsUnavailable);
        }
    }

    /// A queue that comes into memory. Whoever held its slot before us may have asked its host just before, so that one delay is waited
    /// out first, whatever is known. A longer Crawl-delay counts from the robots.txt that tells us of it, which is the first thing
    /// we ask for.
    fn new_queue(&self, now: Now, key: &QueueKey, facts: &HostFacts) -> Queue {
        let mut queue = Queue::new(now, &self.rules, facts);
        let pace = self.pace_of(now, key);
        if facts.heard {
            queue.pace.leave_until(now.mono + queue.pace.delay(&pace));
        }
        if let since @ 1.. = self.leases.since(key.slot()) {
            queue.pace.leave_until(since + pace.stretched(pace.delay_ms));
        }
        queue
    }

    /// Says of each slot that is no longer ours when nobody asks its hosts any more.
    fn part(&mut self, out: &mut Vec<Effect>) {
        if self.parting.is_empty() {
            return;
        }
        let asked = self.flights.values().filter(|flight| flight.fetching.is_some()).map(|flight| flight.queue.slot());
        let asked: BTreeSet<Slot> = asked.collect();
        self.parting.retain(|slot| {
            if !asked.contains(slot) {
                out.push(Effect::Idle { slot: *slot });
            }
            asked.contains(slot)
        });
    }

    // What happened.

    /// Has a queue in memory that has entries; says whether it is there, and not left on disk.
    fn hold(&mut self, now: Now, key: &QueueKey, new_host: bool, out: &mut Vec<Effect>) -> bool {
        if !self.leases.serve(key.slot()) {
            self.forget(key);
            return false;
        }
        if !self.crawls.runs(key.crawl()) || self.rests(now, key) {
            self.leave_paused(key);
            return false;
        }
        if !self.queues.contains_key(key) {
            if self.queues.len() >= self.rules.queues_max {
                self.leave_on_disk(key.slot());
                self.forget(key);
                return false;
            }
            let mut queue = self.new_queue(now, key, &HostFacts::default());
            queue.busy = self.is_asked(key);
            if !new_host {
                queue.loading = true;
                out.push(Effect::Load { read: self.begin_read(), queue: key.clone(), limit: self.window_max() });
            }
            self.queues.insert(key.clone(), Box::new(queue));
        }
        true
    }

    fn admitted(&mut self, now: Now, key: QueueKey, order: Order, entry: Entry, new_host: bool, out: &mut Vec<Effect>) {
        if !self.hold(now, &key, new_host, out) {
            return;
        }
        let window_max = self.window_max();
        // A read that came before this may have brought the entry already, or it was put up again before we heard that it landed.
        let aloft = self.aloft.contains(&(order, key.clone()));
        let queue = self.queues.get_mut(&key).expect("just looked up");
        if aloft {
            queue.read_again();
        } else {
            queue.admit(order, entry, window_max);
        }
        self.schedule(&key, now.mono);
    }

    fn loaded(&mut self, now: Now, read: u64, queues: Vec<LoadedQueue>, sweep: Option<Option<QueueKey>>) {
        for loaded in queues {
            self.loaded_one(now, read, loaded);
        }
        if let Some(next) = sweep {
            self.sweep.running = false;
            // What was missed is found by a whole pass from the beginning, which starts when this one ends.
            self.sweep.needed = next.is_some() || std::mem::take(&mut self.sweep.missed);
            self.sweep.after = next;
            if self.sweep.after.is_none() {
                self.sweep.slot = None;
            }
        }
        self.end_read(read);
    }

    fn loaded_one(&mut self, now: Now, read: u64, mut loaded: LoadedQueue) {
        loaded.entries.retain(|(order, _)| !self.aloft.contains(&(*order, loaded.key.clone())));
        let stale = self.forgotten.get(&loaded.key).is_some_and(|newest| read <= *newest);
        let rests = !self.queues.contains_key(&loaded.key) && self.rests(now, &loaded.key);
        match self.queues.get(&loaded.key) {
            // It is read anew since it left memory: what an older read tells of its host is the past.
            Some(queue) if !queue.loading || stale => return,
            None if !self.leases.serve(loaded.key.slot()) || !self.crawls.runs(loaded.key.crawl()) => return,
            None if rests => return,
            None if stale || self.queues.len() >= self.rules.queues_max => {
                return self.leave_on_disk(loaded.key.slot());
            }
            _ => {}
        }
        // A former life, or another holder of the slot, may have asked the host just now without our knowing.
        let unsure = self.resumed || (!matches!(self.leases, Leases::Sole) && !self.is_free_for_all());
        let facts = HostFacts { heard: loaded.facts.heard || unsure, ..loaded.facts };
        let mut queue = self.new_queue(now, &loaded.key, &facts);
        queue.busy = self.is_asked(&loaded.key);
        queue.window = loaded.entries.into_iter().collect();
        queue.more = loaded.more;
        queue.cursor = queue.window.last_key_value().map(|(order, _)| *order);
        self.robots_bytes += queue.robots_bytes();
        self.forget_in_agenda(&loaded.key);
        if let Some(placeholder) = self.queues.remove(&loaded.key) {
            queue.take_over(*placeholder);
        }
        self.queues.insert(loaded.key.clone(), Box::new(queue));
        self.schedule(&loaded.key, now.mono);
    }

    fn begin_read(&mut self) -> u64 {
        self.next_read += 1;
        self.reads.insert(self.next_read);
        self.next_read
    }

    fn end_read(&mut self, read: u64) {
        self.reads.remove(&read);
        let oldest = self.reads.first().copied().unwrap_or(u64::MAX);
        self.forgotten.retain(|_, newest| *newest >= oldest);
    }

    /// Lets queues with large robots.txt files leave memory, those first that are due last, until half the room is free.
    /// Only a web that attacks us comes here: ordinary files are a thousandth of the largest.
    fn shed_robots(&mut self) {
        self.robots_bytes = self.queues.values().map(|queue| queue.robots_bytes()).sum();
        let goal = self.rules.robots_bytes_max / 2;
        let latest: Vec<QueueKey> = self.agenda.iter().rev().map(|(.., key)| key.clone()).collect();
        for key in latest {
            if self.robots_bytes <= goal {
                return;
            }
            let idle = |queue: &Queue| {
                queue.errands.is_empty() && queue.is_kept() && queue.robots_bytes() > ROBOTS_BYTES_SMALL
            };
            if self.queues.get(&key).is_some_and(|queue| idle(queue)) {
                self.forget_in_agenda(&key);
                let left = self.queues.remove(&key).map_or(0, |queue| queue.robots_bytes());
                self.robots_bytes = self.robots_bytes.saturating_sub(left);
                self.leave_on_disk(key.slot());
                self.forget(&key);
            }
        }
    }

    /// A request to the queue's host is under way, though the queue may have left memory since it started.
    fn is_asked(&self, key: &QueueKey) -> bool {
        !matches!(self.leases, Leases::Sole)
            && self.flights.values().any(|flight| flight.fetching.is_some() && flight.queue == *key)
    }

    /// A defect: nobody waits for what others may have asked.
    fn is_free_for_all(&self) -> bool {
        matches!(&self.leases, Leases::Granted(grants) if planted!(grants.planted, NoQuarantine))
    }

    /// A queue is, or stays, out of memory and changes on disk: reads that are under way tell of its past.
    fn forget(&mut self, key: &QueueKey) {
        if let Some(newest) = self.reads.last() {
            self.forgotten.insert(key.clone(), *newest);
        }
    }

    fn facts_kept(&mut self, now: Now, key: &QueueKey, kept: bool) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.facts_kept(kept);
        // Perhaps it only waited for this to leave memory.
        if queue.wake.is_none() {
            self.schedule(key, now.mono + if kept { 0 } else { FACTS_AGAIN_AFTER });
        }
    }

    fn refilled(&mut self, now: Now, read: u64, key: &QueueKey, mut entries: Vec<(Order, Entry)>, more: bool) {
        entries.retain(|(order, _)| !self.aloft.contains(&(*order, key.clone())));
        let window_max = self.window_max();
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.refilled(read, entries, more, window_max);
        self.schedule(key, now.mono);
    }

    /// What is in memory of a queue, or on its way there, has places that are not its own any more.
    fn reordered(&mut self, now: Now, key: QueueKey, out: &mut Vec<Effect>) {
        if self.hold(now, &key, false, out) {
            let queue = self.queues.get_mut(&key).expect("it is held");
            queue.window.clear();
            queue.read_again();
            self.schedule(&key, now.mono);
        }
    }

    fn resolved(&mut self, now: Now, key: &QueueKey, address: Result<IpAddr, Failure>) {
        let until = now.mono + self.rules.address_ttl;
        let Some(queue) = self.queues.get_mut(key) else { return };
        queue.address = match address {
            Ok(address) => Address::Known { address, until },
            Err(failure) => {
                let until = now.mono + queue.pace.delay(&self.rules.pace).max(ADDRESS_FAILURE_MIN);
                Address::Failed { failure, until }
            }
        };
        self.schedule(key, now.mono);
    }

    fn fetch_ended(
        &mut self,
        now: Now,
        flight: u64,
        verdict: HostVerdict,
        retry_after_ms: Option<u64>,
        out: &mut Vec<Effect>,
    ) {
        let Some(flight) = self.flights.get_mut(&flight) else { return };
        let Some(address) = flight.fetching.take() else { return };
        let key = flight.queue.clone();
        self.release(now, &key, address, verdict, retry_after_ms, out);
    }

    /// The host was asked and is free again after its delay.
    fn release(
        &mut self,
        now: Now,
        key: &QueueKey,
        address: Option<IpAddr>,
        verdict: HostVerdict,
        retry_after_ms: Option<u64>,
        out: &mut Vec<Effect>,
    ) {
        if let Some(state) = address.and_then(|address| self.addresses.get_mut(&address)) {
            state.busy = false;
            state.next_ok = now.mono + self.rules.pace.stretched(self.rules.pace.delay_ms);
        }
        if let Some(address) = address {
            self.wake_waiting(address);
        }
        let pace = self.pace_of(now, key);
        let Some(queue) = self.queues.get_mut(key) else { return self.open_gate(now, key, None) };
        queue.busy = false;
        let before = queue.pace.lessons().clone();
        queue.pace.ended(now.mono, verdict, retry_after_ms, &pace);
        let next_ok = queue.pace.next_ok();
        if *queue.pace.lessons() != before || !queue.heard {
            queue.heard = true;
            out.push(queue.keep_facts(key));
        }
        self.open_gate(now, key, Some(next_ok));
        self.schedule(key, next_ok);
    }

    fn settled(&mut self, now: Now, flight: u64, page: bool, out: &mut Vec<Effect>) {
        let Some(flight) = self.land(flight) else { return };
        debug_assert!(!matches!(flight.cargo, Cargo::Robots(_)), "robots flights land when fetched");
        self.pages += u64::from(page);
        // That the fetch ended was told to a former life of this actor: what is settled has ended.
        if let Some(address) = flight.fetching {
            self.release(now, &flight.queue, address, HostVerdict::Healthy, None, out);
        }
    }

    fn robots_fetched(&mut self, now: Now, flight: u64, answer: RobotsFetch, out: &mut Vec<Effect>) {
        let Some(Flight { queue, fetching, cargo: Cargo::Robots(errand), .. }) = self.land(flight) else { return };
        let failed = matches!(answer, RobotsFetch::Unavailable(_));
        let verdict = if failed { HostVerdict::Failing } else { HostVerdict::Healthy };
        // The delay that it asks for counts from this very request.
        let (body, rest) = match answer {
            RobotsFetch::Body(body) => (Some(Some(body)), None),
            RobotsFetch::Absent => (Some(None), None),
            other => (None, Some(other)),
        };
        if let Some(body) = body {
            self.robots_known(now, errand.clone(), body, out);
        }
        if let Some(address) = fetching {
            self.release(now, &queue, address, verdict, None, out);
        }
        match rest {
            Some(RobotsFetch::Redirect(location)) => self.robots_redirected(now, errand, &location, out),
            Some(RobotsFetch::Unavailable(why)) => self.robots_unavailable(now, &errand, why),
            _ => {}
        }
    }

    fn robots_redirected(&mut self, now: Now, errand: Errand, location: &str, out: &mut Vec<Effect>) {
        let target = CanonicalUrl::join(&errand.url.to_url(), location, &self.rules.urls);
        match target {
            // Too many hops, or a hop to nowhere: unavailable in the sense of RFC 9309, which allows.
            _ if errand.hops >= ROBOTS_REDIRECTS_MAX => self.robots_known(now, errand, None, out),
            Err(_) => self.robots_known(now, errand, None, out),
            // Another node's host: only that node may ask it.
            Ok(url) if !self.leases.serve(Slot::of_domain(url.domain())) => {
                self.robots_unavailable(now, &errand, Failure::RobotsUnavailable)
            }
            Ok(url) => {
                let host = QueueKey::new(errand.queue.crawl(), &url);
                let next = Errand { url, hops: errand.hops + 1, ..errand };
                self.queue_or_new(now, &host).errands.push_back(next);
                self.schedule(&host, now.mono);
            }
        }
    }

    fn robots_known(&mut self, now: Now, errand: Errand, body: Option<Vec<u8>>, out: &mut Vec<Effect>) {
        let copy = RobotsCopy { until: now.unix_ms + self.rules.robots_ttl_ms, body };
        let Some(queue) = self.queues.get_mut(&errand.queue) else { return };
        let rules = queue.learn_robots(&errand.origin, copy, &self.rules);
        self.robots_bytes += queue.robots_bytes();
        let sitemaps: Vec<String> = rules.sitemaps().iter().take(SITEMAPS_MAX).cloned().collect();
        out.push(queue.keep_facts(&errand.queue));
        let next_ok = queue.pace.next_ok();
        self.schedule(&errand.queue, next_ok);
        if self.rules.read_sitemaps {
            self.discover_sitemaps(&errand, &sitemaps, out);
        }
    }

    /// Sitemaps are read when they lie on the host that names them or belong to the crawl anyway.
    fn discover_sitemaps(&self, errand: &Errand, sitemaps: &[String], out: &mut Vec<Effect>) {
        let host = errand.queue.host();
        let urls: Vec<Discovered> = sitemaps
            .iter()
            .filter_map(|text| CanonicalUrl::parse(text, &self.rules.urls).ok())
            .filter(|url| url.host() == host || self.admits(&errand.queue, url, 0).is_none())
            .map(|url| Discovered { url, kind: EntryKind::Sitemap, depth: 0, priority: u16::MAX, redirects: 0 })
            .collect();
        if !urls.is_empty() {
            out.push(Effect::Discover { queue: errand.queue.clone(), urls });
        }
    }

    fn robots_unavailable(&mut self, now: Now, errand: &Errand, why: Failure) {
        let Some(queue) = self.queues.get_mut(&errand.queue) else { return };
        let tries = queue.robots_tries(&errand.origin) + 1;
        let state = match verdict(Failure::RobotsUnavailable, tries, &self.rules.retry).url {
            UrlVerdict::Retry { wait_ms } => RobotsState::Unavailable { tries, until: now.mono + wait_ms * 1_000, why },
            UrlVerdict::GiveUp => RobotsState::Hopeless { until_unix: now.unix_ms + self.rules.robots_ttl_ms },
        };
        queue.set_robots(&errand.origin, state);
        self.schedule(&errand.queue, now.mono);
    }

    // Flights.

    fn take_off(&mut self, now: Now, number: u64, mut flight: Flight) {
        flight.deadline = now.mono + self.rules.flight_timeout;
        self.deadlines.insert((flight.deadline, number));
        self.aloft.extend(flight.entry());
        self.flights.insert(number, flight);
    }

    fn land(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.remove(&number)?;
        self.deadlines.remove(&(flight.deadline, number));
        if let Some(entry) = flight.entry() {
            self.aloft.remove(&entry);
        }
        self.page_flights -= u64::from(matches!(flight.cargo, Cargo::Page(_)));
        Some(flight)
    }

    fn number(&mut self) -> u64 {
        self.next_flight += 1;
        self.next_flight - 1
    }

    /// Flights whose deadline passed are lost: whoever had them is dead, or slower than anything we wait for.
    fn expire(&mut self, now: Now, out: &mut Vec<Effect>) {
        while let Some(&(deadline, number)) = self.deadlines.first()
            && deadline <= now.mono
        {
            let flight = self.land(number).expect("every deadline has its flight");
            if let Some(address) = flight.fetching {
                self.release(now, &flight.queue, address, HostVerdict::Healthy, None, out);
            }
            match flight.cargo {
                Cargo::Page(pick) | Cargo::Refused(pick) => out.push(Effect::Lost(pick)),
                Cargo::Robots(errand) => self.robots_unavailable(now, &errand, Failure::Lost),
            }
        }
    }

    // What is next.

    fn pump(&mut self, now: Now, out: &mut Vec<Effect>) {
        while self.has_room()
            && let Some((at, ..)) = self.agenda.first()
            && *at <= now.mono
        {
            let (_, _, key) = self.agenda.pop_first().expect("just looked at");
            self.visit(now, key, out);
        }
        if self.sweep.needed && !self.sweep.running && !self.closed && self.queues.len() < self.rules.queues_max {
            if !matches!(self.leases, Leases::Sole) && self.sweep.slot.is_none() {
                self.sweep.slot = self.sweep.slots.pop_first();
                self.sweep.missed = !self.sweep.slots.is_empty();
                self.sweep.needed = self.sweep.slot.is_some();
                if !self.sweep.needed {
                    return;
                }
            }
            self.sweep.running = true;
            let queues = SWEEP_QUEUES.min(self.rules.queues_max - self.queues.len());
            let (read, slot, after) = (self.begin_read(), self.sweep.slot, self.sweep.after.take());
            out.push(Effect::Sweep { read, slot, after, queues, limit: self.window_max() });
        }
    }

    /// An address is free: the first queue that waits for it has its turn. If that one has no use for it, the next has.
    fn wake_waiting(&mut self, address: IpAddr) {
        let Some(state) = self.addresses.get_mut(&address).filter(|state| !state.busy) else { return };
        let at = state.next_ok;
        while let Some(next) = self.addresses.get_mut(&address).and_then(|state| state.waiting.pop_front()) {
            if let Some(queue) = self.queues.get_mut(&next) {
                queue.awaits_address = false;
                return self.schedule(&next, at);
            }
        }
    }

    /// A queue's turn: takes its next errand or entry, or finds out what it waits for.
    fn visit(&mut self, now: Now, key: QueueKey, out: &mut Vec<Effect>) {
        let Some(mut queue) = self.queues.remove(&key) else { return };
        queue.wake = None;
        let again = self.visit_queue(now, &key, &mut queue, out);
        let (busy, address) = (queue.busy, queue.address.known());
        match again {
            // What the disk does not have yet of its host would be forgotten with it: its delay, above all.
            Again::Forget if !queue.is_kept() => {
                out.extend(queue.keep_again(&key));
                self.queues.insert(key, queue);
            }
            Again::Forget => self.forget(&key),
            Again::Waits => drop(self.queues.insert(key, queue)),
            Again::At(at) => {
                self.queues.insert(key.clone(), queue);
                self.schedule(&key, at);
            }
        }
        if let Some(address) = address.filter(|_| !busy) {
            self.wake_waiting(address);
        }
    }

    fn visit_queue(&mut self, now: Now, key: &QueueKey, queue: &mut Queue, out: &mut Vec<Effect>) -> Again {
        if queue.busy || queue.waits() {
            return Again::Waits;
        }
        if !self.crawls.runs(key.crawl()) {
            return Again::Forget; // it stays on disk, and is swept in when the crawl goes on
        }
        // Others may wait for what it was sent for.
        if queue.errands.is_empty() && self.rests(now, key) {
            return Again::Forget;
        }
        for _ in 0..REFUSALS_PER_VISIT {
            // What is refused by what is known already is no request: neither the host's delay nor its address matters.
            if let Some(why) = self.refusal(now, key, queue) {
                match self.refuse(now, key, queue, why, out) {
                    Next::Wait(again) => return again,
                    _ => continue,
                }
            }
            // Neither is reading on; but who leaves memory stays until its delay is over.
            let reads_on = queue.is_empty() && queue.more && !self.is_crowded();
            if queue.pace.next_ok() > now.mono && !reads_on {
                return Again::At(queue.pace.next_ok());
            }
            if queue.is_empty() {
                return self.visit_empty(key, queue, out);
            }
            if queue.errands.is_empty() && (self.budget_is_taken() || self.allowed.get(key.crawl()) == Some(&0)) {
                return Again::Waits;
            }
            match self.next_of(now, key, queue, out) {
                Next::Refused => continue,
                Next::Wait(again) => return again,
                Next::Took => return Again::Waits,
            }
        }
        Again::At(now.mono)
    }

    /// Nothing in the window: read on, or leave memory.
    fn visit_empty(&mut self, key: &QueueKey, queue: &mut Queue, out: &mut Vec<Effect>) -> Again {
        if queue.refilling.is_some() {
            return Again::Waits;
        }
        if !queue.more {
            return Again::Forget;
        }
        // With more queues than places, a queue that emptied its window lets the others in; the sweep brings it back.
        if self.is_crowded() {
            self.leave_on_disk(key.slot());
            return Again::Forget;
        }
        self.next_read += 1;
        let read = self.next_read;
        queue.refilling = Some(read);
        out.push(Effect::Refill { read, queue: key.clone(), after: queue.cursor, limit: self.window_max() });
        Again::Waits
    }

    /// Whether queues on disk wait for the place of the one that is being visited.
    fn is_crowded(&self) -> bool {
        self.sweep.needed && self.queues.len() + 1 >= self.rules.queues_max
    }

    fn leave_on_disk(&mut self, slot: Slot) {
        (self.sweep.needed, self.sweep.missed) = (true, true);
        if !matches!(self.leases, Leases::Sole) {
            self.sweep.slots.insert(slot);
        }
    }

    fn next_of(&mut self, now: Now, key: &QueueKey, queue: &mut Queue, out: &mut Vec<Effect>) -> Next {
        if let Some(at) = self.gate_shut(now, key, queue) {
            return Next::Wait(Again::At(at));
        }
        let address = match self.address_of(now, key, queue, out) {
            Ok(address) => address,
            Err(Unaddressed::Wait(again)) => return Next::Wait(again),
            Err(Unaddressed::Failed(failure)) => return self.refuse_unreachable(now, key, queue, failure, out),
        };
        if !self.leases.allow(key.slot(), now.mono + self.rules.fetch_timeout) {
            return Next::Wait(Again::At(now.mono + self.rules.pace.delay_ms.max(1_000) * 1_000));
        }
        if let Some(errand) = queue.errands.pop_front() {
            let flight = self.number();
            let crawl = errand.queue.crawl().to_owned();
            out.push(Effect::FetchRobots { flight, crawl, url: errand.url.clone() });
            self.start(now, key, queue, address, flight, Cargo::Robots(errand));
            return Next::Took;
        }
        let Some((_, entry)) = queue.window.first_key_value() else { return Next::Refused };
        if self.rules.obey_robots {
            match queue.may_fetch(now, &entry.url) {
                RobotsSay::Yes => {}
                RobotsSay::No => {
                    return self.refuse(now, key, queue, Why::Failed(Failure::RobotsForbidden), out);
                }
                RobotsSay::Hopeless => return Next::Refused, // the next look refuses it
                RobotsSay::NotBefore(at) => return Next::Wait(Again::At(at)),
                RobotsSay::Ask => {
                    let origin = entry.url.origin().to_owned();
                    return match Errand::robots(key, &origin, &self.rules.urls) {
                        Some(errand) => {
                            queue.set_robots(&origin, RobotsState::Asked { tries: queue.robots_tries(&origin) });
                            queue.errands.push_back(errand);
                            Next::Refused
                        }
                        None => self.refuse(now, key, queue, Why::Failed(Failure::BadUrl), out),
                    };
                }
                RobotsSay::Asked => return Next::Wait(Again::Waits),
            }
        }
        let pick = self.pop(key, queue);
        out.push(Effect::Fetch(pick.clone()));
        self.page_flights += 1;
        if let Some(allowed) = self.allowed.get_mut(key.crawl()) {
            *allowed = allowed.saturating_sub(1);
        }
        self.take_turn(now, key);
        self.start(now, key, queue, address, pick.flight, Cargo::Page(pick));
        Next::Took
    }

    /// Why the first entry need not wait for its turn: it does not belong to this run, or its host is given up.
    fn refusal(&self, now: Now, key: &QueueKey, queue: &Queue) -> Option<Why> {
        let (order, entry) = queue.window.first_key_value()?;
        let refusal = match entry.kind {
            EntryKind::Page => self.admits(key, &entry.url, order.depth),
            EntryKind::Sitemap => None, // judged when it was named
        };
        let hopeless = || self.rules.obey_robots && queue.is_hopeless(now, &entry.url);
        refusal.map(Why::Filtered).or_else(|| hopeless().then_some(Why::Failed(Failure::RobotsUnavailable)))
    }

    /// The address to be asked, `None` where addresses are not paced; or why not now.
    fn address_of(
        &mut self,
        now: Now,
        key: &QueueKey,
        queue: &mut Queue,
        out: &mut Vec<Effect>,
    ) -> Result<Option<IpAddr>, Unaddressed> {
        if !self.rules.pace_addresses {
            return Ok(None);
        }
        let address = match queue.address {
            Address::Known { address, until } if now.mono < until => address,
            Address::Failed { failure, until } if now.mono < until => return Err(Unaddressed::Failed(failure)),
            _ => {
                queue.address = Address::Asked;
                out.push(Effect::Resolve { queue: key.clone(), host: key.host() });
                return Err(Unaddressed::Wait(Again::Waits));
            }
        };
        let floor = self.address_floor;
        let state =
            self.addresses.entry(address).or_insert_with(|| AddressState { next_ok: floor, ..Default::default() });
        if state.busy {
            queue.awaits_address = true;
            state.waiting.push_back(key.clone());
            return Err(Unaddressed::Wait(Again::Waits));
        }
        if state.next_ok > now.mono {
            return Err(Unaddressed::Wait(Again::At(state.next_ok)));
        }
        Ok(Some(address))
    }

    fn refuse_unreachable(
        &mut self,
        now: Now,
        key: &QueueKey,
        queue: &mut Queue,
        failure: Failure,
        out: &mut Vec<Effect>,
    ) -> Next {
        if let Some(errand) = queue.errands.pop_front() {
            if errand.queue == *key {
                queue.set_robots(&errand.origin, RobotsState::Forgotten);
            } else {
                self.robots_unavailable(now, &errand, failure);
            }
            return Next::Refused;
        }
        self.refuse(now, key, queue, Why::Failed(failure), out)
    }

    fn refuse(&mut self, now: Now, key: &QueueKey, queue: &mut Queue, why: Why, out: &mut Vec<Effect>) -> Next {
        if self.flights.len() >= self.rules.flights_max {
            return Next::Wait(Again::At(now.mono));
        }
        let pick = self.pop(key, queue);
        let flight = pick.flight;
        out.push(Effect::Refuse(pick.clone(), why));
        let flown = Flight { queue: key.clone(), deadline: 0, fetching: None, cargo: Cargo::Refused(pick) };
        self.take_off(now, flight, flown);
        Next::Refused
    }

    fn pop(&mut self, key: &QueueKey, queue: &mut Queue) -> Pick {
        let (order, entry) = queue.window.pop_first().expect("callers looked at the first entry");
        Pick { flight: self.number(), queue: key.clone(), order, entry }
    }

    fn start(
        &mut self,
        now: Now,
        key: &QueueKey,
        queue: &mut Queue,
        address: Option<IpAddr>,
        flight: u64,
        cargo: Cargo,
    ) {
        queue.busy = true;
        self.shut_gate(key);
        if let Some(state) = address.and_then(|address| self.addresses.get_mut(&address)) {
            state.busy = true;
        }
        self.take_off(now, flight, Flight { queue: key.clone(), deadline: 0, fetching: Some(address), cargo });
    }

    // The agenda.

    /// Puts a queue on the agenda at `at`, or earlier than where it stands.
    fn schedule(&mut self, key: &QueueKey, at: Micros) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if queue.busy || queue.waits() {
            return;
        }
        // A queue with nothing left stays until its host's delay is over: who comes back sooner must wait for it.
        let at = if queue.is_empty() && !queue.more { at.max(queue.pace.next_ok()) } else { at };
        if let Some((standing, turn)) = queue.wake {
            if standing <= at {
                return;
            }
            self.agenda.remove(&(standing, turn, key.clone()));
        }
        self.turn += 1;
        queue.wake = Some((at, self.turn));
        self.agenda.insert((at, self.turn, key.clone()));
    }

    fn forget_in_agenda(&mut self, key: &QueueKey) {
        if let Some((at, turn)) = self.queues.get(key).and_then(|queue| queue.wake) {
            self.agenda.remove(&(at, turn, key.clone()));
        }
    }

    fn queue_or_new(&mut self, now: Now, key: &QueueKey) -> &mut Queue {
        if !self.queues.contains_key(key) {
            let mut queue = self.new_queue(now, key, &HostFacts { heard: true, ..HostFacts::default() });
            queue.more = true;
            self.queues.insert(key.clone(), Box::new(queue));
        }
        self.queues.get_mut(key).expect("it is there now")
    }
}

/// Entries of one window when there are so many queues.
fn window_of(queues: usize, window_max: usize) -> usize {
    (WINDOWS_ENTRIES_MAX / queues.max(1)).max(WINDOW_MIN).min(window_max)
}

/// When a queue has its next turn.
enum Again {
    /// At this time.
    At(Micros),
    /// When what it waits for has come.
    Waits,
    /// Never: it leaves memory.
    Forget,
}

enum Next {
    Took,
    Refused,
    Wait(Again),
}

enum Unaddressed {
    Wait(Again),
    Failed(Failure),
}

/// What robots.txt says about a URL.
enum RobotsSay {
    Yes,
    No,
    /// Nobody knows yet: ask.
    Ask,
    /// It is being asked.
    Asked,
    /// Not before this time.
    NotBefore(Micros),
    /// It could not be had, often enough.
    Hopeless,
}

/// The rules of a stored robots.txt.
fn robots_of(copy: &RobotsCopy, product_token: &str) -> Robots {
    match &copy.body {
        Some(body) => Robots::parse(body, product_token),
        None => Robots::allow_all(),
    }
}
