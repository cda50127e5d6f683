//! Changes of queues that need to look at many rows: each is a batch of its own, after everything that waited before it is written.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use proto::clients::ask::{ANSWER_BYTES_MAX, Act, LOOK_ROWS_MAX, Said, Setting, Told};
use proto::clients::fetch::{End, Lease, own_lease, own_since};
use proto::clients::gate::{self, Gate, KEEPING_MS, Standing, gate};
use proto::clients::identity::{ClientQueueId, RESERVED};
use proto::clients::record::{ClientQueue, ClientUrl, Version};
use proto::cluster::slot_set::SlotSet;
use proto::id::{NodeId, Slot};

use super::{Change, Decided, Line, Store, StoreError, crawl_prefix, leased_key, open_key, split_agenda};

/// URLs handed out by one call at most, whatever the client asks for: who wants more calls again.
pub const TAKE_URLS_MAX: usize = 10_000;
/// Queues that one call looks at, those that cannot be served included.
const TAKE_LOOKS_MAX: usize = 20_000;
/// Rows of the agenda read at once.
const AGENDA_ROWS: usize = 256;
/// Leases that are over and put back in one look at a queue.
const RETURNED_MAX: usize = 4_096;
/// Queues forgotten in one batch, and URLs in them, but for one queue more.
const DELETE_QUEUES_MAX: usize = 256;
const DELETE_URLS_MAX: u64 = 20_000;

/// Who takes URLs.
#[derive(Clone, Debug)]
pub enum Taker {
    /// A client, who gets nothing of crawls that the nodes alone fetch.
    Client {
        /// Those crawls.
        withheld: Vec<String>,
    },
    /// This node's own fetchers, whose leases have no end.
    Own,
}

impl Taker {
    /// One from whom nothing is withheld.
    pub const ANY: Taker = Taker::Client { withheld: Vec::new() };

    fn gets(&self, crawl: &str) -> bool {
        match self {
            Taker::Client { withheld } => !withheld.iter().any(|name| name == crawl),
            Taker::Own => true,
        }
    }

    fn is_own(&self) -> bool {
        matches!(self, Taker::Own)
    }
}

/// What a client wants.
struct Want {
    own: bool,
    urls_max: u32,
    lease_s: u32,
    delay_default_s: u32,
    now_ms: u64,
}

/// What it gets.
#[derive(Default)]
struct Given {
    urls: Vec<Told>,
    bytes: usize,
    queues: u32,
}

impl Given {
    fn is_full(&self) -> bool {
        self.urls.len() >= TAKE_URLS_MAX || self.bytes >= ANSWER_BYTES_MAX
    }
}

impl Store {
    /// Does what a client asks. `slots` are those that this node may hand URLs out of.
    pub fn act(&mut self, act: Act, taker: &Taker, slots: &SlotSet, unix_ms: u64) -> Result<Decided<Said>, StoreError> {
        let mut change = self.change();
        let said = match act {
            Act::Take { crawl, key, queues_max, urls_max, lease_s, delay_default_s } => {
                let want = Want { own: taker.is_own(), urls_max, lease_s, delay_default_s, now_ms: unix_ms };
                let given = match (crawl, key) {
                    (Some(crawl), _) if !taker.gets(&crawl) => Given::default(),
                    (Some(crawl), Some(key)) => change.take_one(&ClientQueueId::new(&crawl, &key), slots, &want)?,
                    (crawl, _) => change.take_any(crawl.as_deref(), taker, slots, queues_max, &want)?,
                };
                Said::Given { urls: given.urls, queues: given.queues }
            }
            Act::Set { crawl, key, setting } => {
                Said::Set(change.set(&ClientQueueId::new(&crawl, &key), setting, None, unix_ms)?)
            }
            Act::SetUnheld { crawl, key, setting, known } => {
                Said::Set(change.set(&ClientQueueId::new(&crawl, &key), setting, Some(known), unix_ms)?)
            }
            Act::Renew { urls, lease_s, leased_until_ms, margin_ms } => {
                change.renew(urls, lease_s, leased_until_ms, unix_ms + margin_ms)?
            }
            Act::GiveBack { urls, leased_until_ms } => change.give_back(urls, leased_until_ms, unix_ms)?,
            Act::Delete { slots, crawl, key } => change.delete_queues(&slots, &crawl, key.as_deref(), unix_ms)?,
            Act::Purge { slots, crawl, key, cutoff_ms, after } => {
                change.purge(&slots, &crawl, key.as_deref(), cutoff_ms, after.as_deref(), unix_ms)?
            }
        };
        let decided = change.decided(said);
        change.commit_client()?;
        Ok(decided)
    }
}

impl Change<'_> {
    fn take_one(&mut self, queue: &ClientQueueId, slots: &SlotSet, want: &Want) -> Result<Given, StoreError> {
        let mut given = Given::default();
        if slots.contains(queue.slot()) && self.store.line(queue)?.is_some() {
            self.serve(queue, want, &mut given)?;
        }
        Ok(given)
    }

    /// Hands out of the queues that have waited longest, of one crawl or of all.
    fn take_any(
        &mut self,
        crawl: Option<&str>,
        taker: &Taker,
        slots: &SlotSet,
        queues_max: u32,
        want: &Want,
    ) -> Result<Given, StoreError> {
        let crawls = match crawl {
            Some(crawl) => vec![crawl.to_owned()],
            // What the cluster keeps for itself is for nobody who does not name it.
            None => {
                let mut crawls = self.store.crawls_in(None, usize::MAX)?;
                crawls.retain(|crawl| !crawl.starts_with(RESERVED) && taker.gets(crawl));
                crawls
            }
        };
        let mut given = Given::default();
        let mut looks = 0;
        let mut readers: Vec<Reader> = crawls.iter().map(|crawl| Reader::new(crawl)).collect();
        // The next queue of each crawl by the time since when it waits.
        let mut waiting: BinaryHeap<Reverse<(u64, usize, ClientQueueId)>> = BinaryHeap::new();
        for (number, reader) in readers.iter_mut().enumerate() {
            let next = reader.next(self, slots, want.now_ms)?;
            waiting.extend(next.map(|(at, queue)| Reverse((at, number, queue))));
        }
        while let Some(Reverse((_, number, queue))) = waiting.pop() {
            let next = readers[number].next(self, slots, want.now_ms)?;
            waiting.extend(next.map(|(at, queue)| Reverse((at, number, queue))));
            self.serve(&queue, want, &mut given)?;
            looks += 1;
            if (queues_max > 0 && given.queues >= queues_max) || given.is_full() || looks >= TAKE_LOOKS_MAX {
                break;
            }
        }
        Ok(given)
    }

    /// Hands URLs of a queue out if it may be served; puts it down for the next time either way.
    fn serve(&mut self, queue: &ClientQueueId, want: &Want, given: &mut Given) -> Result<(), StoreError> {
        let Want { own, urls_max, lease_s, delay_default_s, now_ms } = *want;
        let line: Line = self.touched_line(queue)?.clone();
        // What the nodes have of a queue is no client's share of it, and the other way round. It counts only where it may be as much as one may have.
        let leased = if urls_max == 0 || line.leased < u64::from(urls_max) {
            0
        } else {
            let living = self.living_before(queue, now_ms)?;
            if own { living.own } else { living.clients }
        };
        if own && leased >= u64::from(urls_max.max(1)) {
            return Ok(()); // clients need not wait because the nodes have enough of it
        }
        let standing = Standing { completed: line.completed, leased, urls_max, delay_default_s };
        match gate(&line.queue, standing, now_ms) {
            Gate::Shut => {
                self.touched_line(queue)?.agenda_ms = u64::MAX;
                return Ok(());
            }
            Gate::Until(at) => {
                self.touched_line(queue)?.agenda_ms = at;
                return Ok(());
            }
            Gate::Open => {}
        }
        let limit = if urls_max == 0 { TAKE_URLS_MAX } else { (urls_max as usize).min(TAKE_URLS_MAX) };
        let (due, next_ms) = self.due_of(queue, now_ms, limit)?;
        let mut served = 0;
        for url in due {
            let key = queue.url(&url);
            let Some(old) = self.store.client_url(&key)? else { continue };
            let leased_until_ms = if own { own_lease(now_ms) } else { gate::lease_until(lease_s, now_ms + KEEPING_MS) };
            let new = old.leased(now_ms, leased_until_ms);
            let told = told(queue, &new);
            given.bytes += ClientUrl::bytes(&told.url, &told.metadata) + told.key.len() + told.crawl.len() + 32;
            given.urls.push(told);
            served += 1;
            self.replace_client(queue, key, Some(old), Some(new), now_ms)?;
            if given.is_full() {
                break;
            }
        }
        if served == 0 {
            self.touched_line(queue)?.agenda_ms = next_ms;
            return Ok(());
        }
        given.queues += 1;
        let record = self.touched_line(queue)?.queue.clone();
        let again_ms = gate::after_serving(&record, delay_default_s, now_ms);
        self.set_queue(queue, record.served(self.store.options.node, now_ms + KEEPING_MS), now_ms)?;
        self.touched_line(queue)?.agenda_ms = again_ms;
        Ok(())
    }

    /// The URLs of a queue that are due, in their order, and when there may be another. Leases that are over are put back.
    fn due_of(&mut self, queue: &ClientQueueId, now_ms: u64, limit: usize) -> Result<(Vec<String>, u64), StoreError> {
        let now_s = now_ms / 1_000;
        let (mut due, mut next_ms) = (BTreeSet::new(), u64::MAX);
        let leased = [queue.prefix(), &[1]].concat();
        let mut returned = Vec::new();
        let mut first = None;
        for row in self.store.rows("turn", self.store.fronts.of("turn", &leased), leased.clone()) {
            let (key, value) = row?;
            first.get_or_insert_with(|| key.to_vec());
            let (until_ms, url) = split_turn(&key, &leased)?;
            if until_ms > now_ms || returned.len() >= RETURNED_MAX {
                next_ms = until_ms;
                break;
            }
            let date_s = u64::from_be_bytes(value.as_ref().try_into().map_err(|_| damaged("a lease without a date"))?);
            returned.push((until_ms, date_s, url));
        }
        self.clients.seen.note("turn", &leased, first);
        for (until_ms, date_s, url) in returned {
            self.delete("turn", &leased_key(queue, until_ms, &url));
            self.rows.put("turn", &open_key(queue, date_s, &url), |_| Ok::<(), StoreError>(()))?;
            if date_s <= now_s {
                due.insert((date_s, url));
            } else {
                next_ms = next_ms.min(date_s.saturating_mul(1_000));
            }
        }
        let open = [queue.prefix(), &[0]].concat();
        let mut first = None;
        for (seen, row) in self.store.rows("turn", self.store.fronts.of("turn", &open), open.clone()).enumerate() {
            let (key, _) = row?;
            first.get_or_insert_with(|| key.to_vec());
            let (date_s, url) = split_turn(&key, &open)?;
            if date_s > now_s {
                next_ms = next_ms.min(date_s.saturating_mul(1_000));
                break;
            }
            if seen >= limit {
                break;
            }
            due.insert((date_s, url));
        }
        self.clients.seen.note("turn", &open, first);
        Ok((due.into_iter().take(limit).map(|(_, url)| url).collect(), next_ms))
    }

    /// Counts leases and delays of what was just taken anew; tells what is still leased.
    fn renew(&mut self, urls: Vec<Told>, lease_s: u32, leased_until_ms: u64, now_ms: u64) -> Result<Said, StoreError> {
        let (mut left, mut queues) = (Vec::with_capacity(urls.len()), BTreeSet::new());
        for told in urls {
            let queue = ClientQueueId::new(&told.crawl, &told.key);
            let key = queue.url(&told.url);
            let Some(old) = self.client_url(&key)?.filter(|old| old.leased_until_ms == leased_until_ms) else {
                continue;
            };
            if own_since(leased_until_ms).is_none() {
                let new = old.leased(now_ms, gate::lease_until(lease_s, now_ms));
                self.replace_client(&queue, key, Some(old), Some(new), now_ms)?;
            }
            left.push(told);
            queues.insert(queue);
        }
        let node = self.store.options.node;
        for queue in &queues {
            let record = self.touched_line(queue)?.queue.served(node, now_ms);
            self.set_queue(queue, record, now_ms)?;
        }
        Ok(Said::Given { urls: left, queues: queues.len() as u32 })
    }

    /// Ends leases of which nobody was told. That goes by the times of these leases: whoever has the slot by now may have leased the same since.
    fn give_back(&mut self, urls: Vec<Told>, leased_until_ms: u64, now_ms: u64) -> Result<Said, StoreError> {
        for told in urls {
            let queue = ClientQueueId::new(&told.crawl, &told.key);
            let key = queue.url(&told.url);
            let old = self.client_url(&key)?;
            let Some(old) = old.filter(|old| old.leased_until_ms > 0 && old.leased_until_ms == leased_until_ms) else {
                continue;
            };
            let new = old.leased(0, 0);
            self.replace_client(&queue, key, Some(old), Some(new), now_ms)?;
        }
        Ok(Said::Done)
    }

    /// Changes a queue's settings; on top of what others know of it, if that is said, and then it is there. Says whether it is.
    fn set(
        &mut self,
        queue: &ClientQueueId,
        setting: Setting,
        known: Option<ClientQueue>,
        unix_ms: u64,
    ) -> Result<bool, StoreError> {
        let node = self.store.options.node;
        let line = self.touched_line(queue)?;
        if !line.is_there() && known.is_none() {
            return Ok(false);
        }
        let record = line.queue.clone().merge(known.unwrap_or_default());
        let mut record = ClientQueue { kept: true, ..record };
        match setting {
            Setting::Block(until_s) => record.blocked_until_s = until_s,
            Setting::Delay(delay_s) => record.delay_s = delay_s,
            Setting::Limit(limit) => record.limit = limit,
        }
        record.version = record.version.next(node, unix_ms);
        self.set_queue(queue, record, unix_ms)?;
        Ok(true)
    }

    /// Forgets a queue, or as many of a crawl as one batch holds. What is left is told by where to go on.
    fn delete_queues(
        &mut self,
        slots: &SlotSet,
        crawl: &str,
        key: Option<&str>,
        unix_ms: u64,
    ) -> Result<Said, StoreError> {
        let queues: Vec<ClientQueueId> = match key {
            Some(key) => vec![ClientQueueId::new(crawl, key)],
            None => {
                let lines = self.store.lines(crawl, slots, None)?;
                let there = lines.filter(|line| line.as_ref().map_or(true, |(_, line)| line.is_there()));
                let queues = there.take(DELETE_QUEUES_MAX + 1).map(|line| line.map(|(queue, _)| queue));
                queues.collect::<Result<_, _>>()?
            }
        };
        let mut urls = 0;
        for (done, queue) in queues.iter().enumerate() {
            if done == DELETE_QUEUES_MAX || (done > 0 && urls >= DELETE_URLS_MAX) {
                return Ok(Said::Gone { urls, next: Some(Vec::new()) });
            }
            let node = self.store.options.node;
            let line = self.touched_line(queue)?;
            if !line.is_there() {
                continue;
            }
            urls += line.scheduled + line.completed;
            let record = ended(&line.queue, line.newest_ms, node, unix_ms);
            self.set_queue(queue, record, unix_ms)?;
        }
        Ok(Said::Gone { urls, next: None })
    }

    fn purge(
        &mut self,
        slots: &SlotSet,
        crawl: &str,
        key: Option<&str>,
        cutoff_ms: u64,
        after: Option<&[u8]>,
        unix_ms: u64,
    ) -> Result<Said, StoreError> {
        let queues: Vec<ClientQueueId> = match key {
            Some(key) => vec![ClientQueueId::new(crawl, key)],
            None => {
                let lines = self.store.lines(crawl, slots, after)?.take(DELETE_QUEUES_MAX);
                lines.map(|line| line.map(|(queue, _)| queue)).collect::<Result<_, _>>()?
            }
        };
        let full = key.is_none() && queues.len() == DELETE_QUEUES_MAX;
        let next = if full { queues.last().map(|queue| queue.prefix().to_vec()) } else { None };
        let mut urls = 0;
        for (done, queue) in queues.iter().enumerate() {
            if done > 0 && urls >= DELETE_URLS_MAX {
                return Ok(Said::Gone { urls, next: Some(queues[done - 1].prefix().to_vec()) });
            }
            let node = self.store.options.node;
            let line = self.touched_line(queue)?;
            if !line.is_there() || line.queue.cutoff_ms >= cutoff_ms {
                continue;
            }
            let before = line.scheduled + line.completed;
            let record = line.queue.purged(node, cutoff_ms);
            self.set_queue(queue, record, unix_ms)?;
            let line = self.touched_line(queue)?;
            urls += before - (line.scheduled + line.completed);
        }
        Ok(Said::Gone { urls, next })
    }
}

impl Store {
    /// What the nodes' own fetchers have of a crawl in these slots, in queues behind the one with this prefix, and where to go on.
    pub fn own_leases(
        &self,
        crawl: &str,
        slots: &SlotSet,
        after: Option<&[u8]>,
    ) -> Result<(Vec<Lease>, Option<Vec<u8>>), StoreError> {
        let (mut found, mut lines) = (Vec::new(), 0);
        for line in self.lines(crawl, slots, after)? {
            let (queue, line) = line?;
            let prefix = [queue.prefix(), &[1]].concat();
            let start = [prefix.as_slice(), &own_lease(0).to_be_bytes()].concat();
            for row in self.rows("turn", start, prefix.clone()).take(usize::try_from(line.leased).unwrap_or(usize::MAX))
            {
                let (_, url) = split_turn(&row?.0, &prefix)?;
                let Some(url) = self.client_url(&queue.url(&url))? else { continue };
                let lease = own_since(url.leased_until_ms).map(|since_ms| Lease { told: told(&queue, &url), since_ms });
                found.extend(lease);
            }
            lines += 1;
            if lines == LOOK_ROWS_MAX || found.len() >= LOOK_ROWS_MAX {
                return Ok((found, Some(queue.prefix().to_vec())));
            }
        }
        Ok((found, None))
    }
}

impl Change<'_> {
    /// Ends leases of the nodes' own fetchers: those that are still the same.
    pub fn end_own(&mut self, ends: Vec<End>, unix_ms: u64) -> Result<Decided<()>, StoreError> {
        for End { lease, date_s } in ends {
            let queue = ClientQueueId::new(&lease.told.crawl, &lease.told.key);
            let key = queue.url(&lease.told.url);
            let cutoff_ms = self.touched_line(&queue)?.queue.cutoff_ms;
            let Some(old) = self.client_url(&key)?.filter(|old| old.created_ms >= cutoff_ms) else { continue };
            if own_since(old.leased_until_ms) != Some(lease.since_ms) {
                continue; // a client put it meanwhile, and what it says counts
            }
            let version = old.version.next(self.store.options.node, unix_ms);
            let mut new = ClientUrl { version, leased_until_ms: 0, ..old.clone() };
            if let Some(date_s) = date_s {
                new.date_s = date_s;
            }
            if new.is_completed() {
                new.metadata.clear();
            }
            self.replace_client(&queue, key, Some(old), Some(new), unix_ms)?;
        }
        Ok(self.decided(()))
    }
}

/// Reads the agenda of a crawl, some rows at a time.
struct Reader {
    prefix: Vec<u8>,
    /// Where to go on: empty before the first read, `None` at the end.
    start: Option<Vec<u8>>,
    read: VecDeque<(u64, ClientQueueId)>,
}

impl Reader {
    fn new(crawl: &str) -> Reader {
        let prefix = crawl_prefix(crawl);
        Reader { start: Some(Vec::new()), prefix, read: VecDeque::new() }
    }

    /// The next queue in these slots that may be worth looking at by now, those that have waited longest first.
    fn next(
        &mut self,
        change: &mut Change<'_>,
        slots: &SlotSet,
        now_ms: u64,
    ) -> Result<Option<(u64, ClientQueueId)>, StoreError> {
        while self.read.is_empty()
            && let Some(start) = self.start.take()
        {
            let time_end = self.prefix.len() + 8;
            let (begins, mut first) = (start.is_empty(), None);
            let start = if begins { change.store.fronts.of("agenda", &self.prefix) } else { start };
            for row in change.store.rows("agenda", start, self.prefix.clone()) {
                let (key, _) = row?;
                first.get_or_insert_with(|| key.to_vec());
                let nothing = || damaged("an agenda of nothing");
                let slot = key.get(time_end..).and_then(|rest| rest.first_chunk()).ok_or_else(nothing)?;
                if !slots.contains(Slot(u16::from_be_bytes(*slot))) {
                    continue;
                }
                let (at, queue) = split_agenda(&key, self.prefix.len()).ok_or_else(nothing)?;
                if at > now_ms {
                    break;
                }
                self.read.push_back((at, queue));
                if self.read.len() == AGENDA_ROWS {
                    self.start = Some([key.as_ref(), &[0]].concat());
                    break;
                }
            }
            if begins {
                change.clients.seen.note("agenda", &self.prefix, first);
            }
        }
        Ok(self.read.pop_front())
    }
}

/// What a queue's record says when it is forgotten: nothing of it is left but the time before which everything is dead, and when it was last
/// served, which only grows, and which whoever makes it anew must respect.
fn ended(queue: &ClientQueue, newest_ms: u64, node: NodeId, unix_ms: u64) -> ClientQueue {
    let version: Version = queue.version.next(node, unix_ms);
    let cutoff_ms = unix_ms.max(newest_ms).max(queue.cutoff_ms) + 1;
    ClientQueue { version, cutoff_ms, produced_ms: queue.produced_ms, ..ClientQueue::default() }
}

pub(super) fn told(queue: &ClientQueueId, url: &ClientUrl) -> Told {
    Told {
        crawl: queue.crawl().to_owned(),
        key: queue.key(),
        url: url.url.clone(),
        metadata: url.metadata.clone(),
        date_s: url.date_s,
        created_s: url.created_ms / 1_000,
    }
}

pub(super) fn split_turn(key: &[u8], prefix: &[u8]) -> Result<(u64, String), StoreError> {
    let rest = key.get(prefix.len()..).and_then(|rest| rest.split_first_chunk());
    let (time, url) = rest.ok_or_else(|| damaged("a turn without a time"))?;
    let url = String::from_utf8(url.to_vec()).map_err(|_| damaged("a URL that is no text"))?;
    Ok((u64::from_be_bytes(*time), url))
}

fn damaged(reason: &str) -> StoreError {
    StoreError::damaged("turn", reason)
}
