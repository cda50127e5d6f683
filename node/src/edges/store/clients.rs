//! Queues that clients fetch from, on disk.
//!
//! | family | key | value |
//! |---|---|---|
//! | `client` | slot, marked key, crawl, url id | what is replicated: records of URLs, and of the queue under an id of zeros |
//! | `turn` | the same without the id; 0, date, URL, or 1, end of the lease, URL | the date of a URL that is leased |
//! | `turn` | the same; 3, level, span of time | how many leases end in it ([`ends`]) |
//! | `line` | crawl, slot, marked key | what this node knows of a queue: its counts, and when to look at it |
//! | `agenda` | crawl, time, slot, marked key, crawl | a queue that may be worth looking at from then on |
//!
//! Queues of spiders ([`spiders`]) are ordered by rank: their `turn` has 0, place, time of creation, URL instead, and 2, date, URL for what waits for its
//! date; in the `agenda` they stand under the place of their best page, those that other nodes serve behind ([`served`]), and, behind all of those, under the time at which something in them falls due.
//!
//! `turn`, `line` and `agenda` follow from `client`, and change in the same batch. The agenda never says a time that is too late: whoever finds a queue
//! there that cannot be served puts it down for the next time at which that may be different. So nobody walks past queues that wait.

mod act;
mod ends;
mod fronts;
mod look;
mod served;
mod spiders;
#[cfg(test)]
mod tests;

pub use self::act::{TAKE_URLS_MAX, Taker};
pub(super) use self::fronts::Fronts;
pub(super) use self::served::Served;

use std::collections::{BTreeMap, HashMap};

use proto::clients::ask::{Item, Taken};
use proto::clients::identity::{ClientQueueId, ITEM_BYTES_MAX, is_queue};
use proto::clients::record::{ClientQueue, ClientUrl, Opened, open, version_of};
use proto::clients::spider::{is_links, is_pages};
use proto::cluster::copy::{Body, RecordCopy, merged};
use proto::cluster::mutant::Planted;
use proto::cluster::repair::Changed;
use proto::id::Slot;
use proto::key::UrlKey;
use proto::wire;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::{Seeded, Store, StoreError};

/// What was decided for a client, and what has to be replicated for it.
#[derive(Debug)]
pub struct Decided<T> {
    /// What the client is told once enough disks have it.
    pub said: T,
    /// Records as they are now.
    pub copies: Vec<RecordCopy>,
    /// What that changed on this disk.
    pub changed: Vec<Changed>,
    /// The life of the node in which it did.
    pub life: u32,
}

/// What a node knows of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Its record, as in `client`.
    queue: ClientQueue,
    scheduled: u64,
    completed: u64,
    /// URLs with a lease, those whose lease is over included.
    leased: u64,
    /// The newest creation date.
    newest_ms: u64,
    /// Where it stands in the agenda; `u64::MAX` if it does not. Of spiders: the place of its best page, or a better one; and whether behind ([`served`]).
    agenda_ms: u64,
    /// When something in a queue of spiders falls due, at the earliest; `u64::MAX` if nothing does.
    wake_ms: u64,
    /// Its leases are counted by when they end.
    by_end: bool,
}

/// A line as it was written before leases were counted by their ends.
#[derive(Deserialize)]
struct UncountedLine {
    line: OldLine,
    wake_ms: u64,
}

/// A line as it was written before there were spiders.
#[derive(Deserialize)]
struct OldLine {
    queue: ClientQueue,
    scheduled: u64,
    completed: u64,
    leased: u64,
    newest_ms: u64,
    agenda_ms: u64,
}

impl Default for Line {
    fn default() -> Self {
        let (scheduled, completed, leased, newest_ms) = (0, 0, 0, 0);
        let (agenda_ms, wake_ms) = (u64::MAX, u64::MAX);
        let (queue, by_end) = (ClientQueue::default(), true);
        Line { queue, scheduled, completed, leased, newest_ms, agenda_ms, wake_ms, by_end }
    }
}

impl Line {
    /// Whether clients see such a queue.
    fn is_there(&self) -> bool {
        self.queue.kept || self.scheduled > 0 || self.completed > 0
    }

    fn look_at(&mut self, unix_ms: u64) {
        self.agenda_ms = self.agenda_ms.min(unix_ms);
    }

    fn read(bytes: &[u8]) -> Result<Line, StoreError> {
        wire::decode(bytes).or_else(|_| {
            let uncounted = wire::decode::<UncountedLine>(bytes).or_else(|_| {
                let old = wire::decode(bytes).map_err(|error| StoreError::damaged("line", error))?;
                Ok::<_, StoreError>(UncountedLine { line: old, wake_ms: u64::MAX })
            });
            let UncountedLine { line, wake_ms } = uncounted?;
            let OldLine { queue, scheduled, completed, leased, newest_ms, agenda_ms } = line;
            let by_end = leased == 0;
            Ok(Line { queue, scheduled, completed, leased, newest_ms, agenda_ms, wake_ms, by_end })
        })
    }

    /// Where it stands in the agenda.
    fn places(&self) -> [Option<u64>; 2] {
        let wake = Some(self.wake_ms).filter(|at| *at != u64::MAX).map(spiders::wake_place);
        [Some(self.agenda_ms).filter(|at| *at != u64::MAX), wake]
    }
}

/// Lines that are remembered, some 250 bytes each: 8 MiB. With more, all are forgotten and read again.
const LINES_CACHED: usize = 1 << 15;

/// Lines as the database has them, of queues that were touched lately: whoever puts URLs touches the same queues over and over.
pub(super) struct Lines(HashMap<ClientQueueId, Line, Seeded>);

impl Lines {
    pub(super) fn new() -> Lines {
        Lines(HashMap::with_hasher(Seeded::new()))
    }

    pub(super) fn put(&mut self, queue: ClientQueueId, line: Line) {
        if self.0.len() >= LINES_CACHED {
            self.0.clear();
        }
        self.0.insert(queue, line);
    }
}

/// A queue that the change under way has touched.
#[derive(Clone, Debug)]
struct Touched {
    /// As the database has it; `None` if it does not.
    before: Option<Line>,
    now: Line,
}

/// What the change under way has touched, which no read of the database finds as it is.
#[derive(Default)]
pub(super) struct Overlay {
    urls: BTreeMap<UrlKey, Option<ClientUrl>>,
    lines: BTreeMap<ClientQueueId, Touched>,
    /// By how much counts of leases change, by their keys in `turn`.
    ends: BTreeMap<Vec<u8>, i64>,
    /// Copies of what was decided here.
    copies: BTreeMap<UrlKey, RecordCopy>,
    changed: Vec<Changed>,
    /// The first rows of ranges that were read.
    pub(super) seen: fronts::Sightings,
}

impl Overlay {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl Store {
    fn client_url(&self, key: &UrlKey) -> Result<Option<ClientUrl>, StoreError> {
        let row = self.db.get_pinned_cf(&self.family("client"), key.as_bytes()).map_err(|error| self.failed(&error))?;
        row.map(|body| wire::decode(&body).map_err(|error| StoreError::damaged("client", error))).transpose()
    }

    fn line(&self, queue: &ClientQueueId) -> Result<Option<Line>, StoreError> {
        let row = self.db.get_pinned_cf(&self.family("line"), line_key(queue)).map_err(|error| self.failed(&error))?;
        row.map(|row| Line::read(&row)).transpose()
    }
}

impl Change<'_> {
    /// Takes URLs of clients in, in their order. Those with a record to keep are in the copies. What is written under a claim has a floor by the key of its
    /// queue.
    pub fn put_items(
        &mut self,
        items: Vec<Item>,
        unix_ms: u64,
        floors: &BTreeMap<String, u64>,
    ) -> Result<Decided<Vec<Taken>>, StoreError> {
        let mut said = Vec::with_capacity(items.len());
        for item in items {
            let claim = floors.get(&item.key).copied();
            said.push(self.put_item(item, unix_ms, claim)?);
        }
        Ok(self.decided(said))
    }

    fn put_item(&mut self, item: Item, unix_ms: u64, claim: Option<u64>) -> Result<Taken, StoreError> {
        if ClientUrl::bytes(&item.url, &item.metadata) > ITEM_BYTES_MAX {
            return Ok(Taken::Skipped);
        }
        let queue = ClientQueueId::new(&item.crawl, &item.key);
        let key = queue.url(&item.url);
        let record = self.touched_line(&queue)?.queue.clone();
        let cutoff_ms = record.cutoff_ms;
        let old = self.client_url(&key)?.filter(|old| old.created_ms >= cutoff_ms);
        let new = ClientUrl::taken_in(old.as_ref(), item, cutoff_ms, self.store.options.node, unix_ms, claim);
        let Some(new) = new else { return Ok(Taken::Skipped) };
        if old.is_none() && cutoff_ms > 0 {
            // Who has not heard that the URL was forgotten may have a later version of what it was: it has to hear of it first, and keeps the new one then.
            self.clients.copies.insert(queue.record(), encoded(record.copy(&queue))?);
        }
        self.replace_client(&queue, key, old, Some(new), unix_ms)?;
        Ok(Taken::Kept)
    }

    /// Merges a copy of a record of clients. One that contradicts itself is a peer's fault and is left out.
    pub(super) fn merge_client(&mut self, copy: RecordCopy, unix_ms: u64) -> Result<Vec<Changed>, StoreError> {
        let Some((queue, opened)) = open(&copy) else {
            tracing::warn!("a copy of a record of clients is left out: it contradicts itself");
            return Ok(Vec::new());
        };
        match opened {
            Opened::Queue(said) => {
                let now = self.touched_line(&queue)?.queue.clone();
                let known = self.touched_line(&queue)?.queue.version.number > 0;
                let after = if known { now.clone().merge(said) } else { said };
                if after != now {
                    self.set_queue(&queue, after, unix_ms)?;
                }
            }
            Opened::Url(new) => {
                let cutoff_ms = self.touched_line(&queue)?.queue.cutoff_ms;
                if new.created_ms < cutoff_ms {
                    return Ok(Vec::new()); // it was forgotten
                }
                if is_links(queue.crawl()) && queue.is_beside() && self.is_row_of_nothing(&new.url)? {
                    return Ok(Vec::new()); // nobody crawls it any more, and it would be removed again
                }
                let old = self.client_url(&copy.key)?;
                let before = old.as_ref().map(|old| encoded(old.copy(copy.key.clone()))).transpose()?;
                let after = merged(before.as_ref(), copy.clone(), Planted::default());
                if before.as_ref() != Some(&after) {
                    self.replace_client(&queue, copy.key, old, Some(new), unix_ms)?;
                }
            }
        }
        self.clients.copies.clear(); // what others decided is theirs to spread
        Ok(std::mem::take(&mut self.clients.changed))
    }

    /// Writes what was decided, if anything was.
    fn commit_client(mut self) -> Result<(), StoreError> {
        if !self.is_empty() || !self.clients.is_empty() {
            return self.commit();
        }
        self.store.fronts.moved(std::mem::take(&mut self.clients.seen), std::iter::empty());
        Ok(())
    }

    /// What was decided since the last time.
    fn decided<T>(&mut self, said: T) -> Decided<T> {
        let copies = std::mem::take(&mut self.clients.copies).into_values().collect();
        Decided { said, copies, changed: std::mem::take(&mut self.clients.changed), life: self.store.life }
    }

    fn client_url(&self, key: &UrlKey) -> Result<Option<ClientUrl>, StoreError> {
        match self.clients.urls.get(key) {
            Some(touched) => Ok(touched.clone()),
            None => self.store.client_url(key),
        }
    }

    fn touched_line(&mut self, queue: &ClientQueueId) -> Result<&mut Line, StoreError> {
        if !self.clients.lines.contains_key(queue) {
            let before = match self.store.lines.0.get(queue) {
                Some(known) => Some(known.clone()),
                None => self.store.line(queue)?,
            };
            let mut now = before.clone().unwrap_or_default();
            if !std::mem::replace(&mut now.by_end, true) {
                self.count_ends_of(queue)?;
            }
            self.clients.lines.insert(queue.clone(), Touched { before, now });
        }
        Ok(&mut self.clients.lines.get_mut(queue).expect("just put in").now)
    }

    /// Puts a record in the place of another, in the counts and in the turns too.
    fn replace_client(
        &mut self,
        queue: &ClientQueueId,
        key: UrlKey,
        old: Option<ClientUrl>,
        new: Option<ClientUrl>,
        unix_ms: u64,
    ) -> Result<(), StoreError> {
        let before = match &old {
            Some(old) => Some(encoded(old.copy(key.clone()))?.hash()),
            None => None,
        };
        self.touched_line(queue)?;
        let by_rank = is_pages(queue.crawl());
        if let Some(old) = &old {
            self.leave_turn(queue, old);
            let line = self.touched_line(queue)?;
            if old.is_completed() {
                line.completed = line.completed.saturating_sub(1);
            } else {
                line.scheduled = line.scheduled.saturating_sub(1);
            }
            // A limit may let it pass again, or there is room for another.
            if !by_rank && (old.is_completed() || old.leased_until_ms > 0) {
                line.look_at(unix_ms);
            }
        }
        let after = match &new {
            Some(new) => {
                let line = self.touched_line(queue)?;
                line.newest_ms = line.newest_ms.max(new.created_ms);
                if new.is_completed() {
                    line.completed += 1;
                } else {
                    line.scheduled += 1;
                    if by_rank {
                        line.await_page(new);
                    } else {
                        line.look_at(new.date_s.saturating_mul(1_000).max(new.leased_until_ms));
                    }
                }
                self.take_turn(queue, new)?;
                if is_links(queue.crawl()) {
                    self.find_links(new, unix_ms)?;
                }
                let copy = encoded(new.copy(key.clone()))?;
                let hash = copy.hash();
                let body = copy.body.clone();
                self.clients.copies.insert(key.clone(), copy);
                self.put_client(&key, &body);
                Some(hash)
            }
            None => {
                self.delete("client", key.as_bytes());
                None
            }
        };
        let changed = self.digest(&key, before, after);
        self.clients.changed.push(changed);
        self.clients.urls.insert(key, new);
        Ok(())
    }

    /// Changes a queue's record. URLs that it declares dead are gone.
    fn set_queue(&mut self, queue: &ClientQueueId, record: ClientQueue, unix_ms: u64) -> Result<(), StoreError> {
        let line = self.touched_line(queue)?;
        let before = (line.queue.version.number > 0).then(|| line.queue.clone());
        let cutoff_raised = record.cutoff_ms > line.queue.cutoff_ms;
        line.queue = record.clone();
        if !is_pages(queue.crawl()) {
            line.look_at(unix_ms);
        }
        let key = queue.record();
        let before = before.map(|before| encoded(before.copy(queue))).transpose()?.map(|copy| copy.hash());
        let copy = encoded(record.copy(queue))?;
        let changed = self.digest(&key, before, Some(copy.hash()));
        self.clients.changed.push(changed);
        self.put_client(&key, &copy.body);
        self.clients.copies.insert(key, copy);
        if cutoff_raised {
            self.bury(queue, record.cutoff_ms, unix_ms)?;
        }
        Ok(())
    }

    /// Removes the URLs of a queue that were created before `cutoff_ms`; says how many.
    fn bury(&mut self, queue: &ClientQueueId, cutoff_ms: u64, unix_ms: u64) -> Result<u64, StoreError> {
        let prefix = queue.prefix().to_vec();
        let mut keys: Vec<UrlKey> = Vec::new();
        for row in self.store.rows("client", prefix.clone(), prefix.clone()) {
            keys.push(UrlKey::from_bytes(&row?.0));
        }
        let here = self.clients.urls.keys().filter(|key| key.as_bytes().starts_with(&prefix)).cloned();
        keys.extend(here);
        keys.sort();
        keys.dedup();
        let mut gone = 0;
        for key in keys.into_iter().filter(|key| !is_queue(key)) {
            if let Some(old) = self.client_url(&key)?
                && old.created_ms < cutoff_ms
            {
                self.replace_client(queue, key.clone(), Some(old), None, unix_ms)?;
                self.clients.copies.remove(&key);
                gone += 1;
            }
        }
        Ok(gone)
    }

    fn put_client(&mut self, key: &UrlKey, body: &Body) {
        let written: Result<(), StoreError> = self.rows.put("client", key.as_bytes(), |row| {
            row.extend_from_slice(&body.0);
            Ok(())
        });
        debug_assert!(written.is_ok(), "bytes are appended");
    }

    fn take_turn(&mut self, queue: &ClientQueueId, url: &ClientUrl) -> Result<(), StoreError> {
        if url.is_completed() {
            return Ok(());
        }
        if url.leased_until_ms > 0 {
            self.touched_line(queue)?.leased += 1;
            self.count_end(queue, url.leased_until_ms, 1);
            let (key, date_s) = (leased_key(queue, url.leased_until_ms, &url.url), url.date_s);
            self.rows.put("turn", &key, |row| {
                row.extend_from_slice(&date_s.to_be_bytes());
                Ok::<(), StoreError>(())
            })
        } else {
            self.rows.put("turn", &turn_key(queue, url), |_| Ok::<(), StoreError>(()))
        }
    }

    fn leave_turn(&mut self, queue: &ClientQueueId, url: &ClientUrl) {
        if url.is_completed() {
            return;
        }
        self.delete("turn", &turn_key(queue, url));
        if is_pages(queue.crawl()) {
            self.delete("turn", &spiders::ranked_key(queue, url)); // where it is once its time has come
        }
        if url.leased_until_ms > 0 {
            self.delete("turn", &leased_key(queue, url.leased_until_ms, &url.url));
            if let Some(touched) = self.clients.lines.get_mut(queue) {
                touched.now.leased = touched.now.leased.saturating_sub(1);
            }
            self.count_end(queue, url.leased_until_ms, -1);
        }
    }

    /// Writes the lines and the agenda of what this change has touched; gives the lines, to be remembered once they are on disk.
    pub(super) fn put_lines(&mut self) -> Result<Vec<(ClientQueueId, Line)>, StoreError> {
        let mut lines = Vec::new();
        for (queue, Touched { before, mut now }) in std::mem::take(&mut self.clients.lines) {
            if now.scheduled == 0 {
                (now.agenda_ms, now.wake_ms) = (u64::MAX, u64::MAX);
            }
            if is_pages(queue.crawl()) {
                now.agenda_ms = self.store.served.place(queue.slot(), now.agenda_ms);
            }
            let filed = before.as_ref().map_or([None; 2], Line::places);
            for (was, is) in filed.into_iter().zip(now.places()).filter(|(was, is)| was != is) {
                if let Some(was) = was {
                    self.delete("agenda", &agenda_key(&queue, was));
                }
                if let Some(is) = is {
                    self.rows.put("agenda", &agenda_key(&queue, is), |_| Ok::<(), StoreError>(()))?;
                }
            }
            if before.as_ref() != Some(&now) {
                self.put("line", &line_key(&queue), &now)?;
            }
            lines.push((queue, now));
        }
        self.put_ends()?;
        Ok(lines)
    }

    /// Removes everything of a slot that is of clients.
    pub(super) fn drop_clients(&mut self, slot: Slot) -> Result<(), StoreError> {
        let prefix = slot.0.to_be_bytes().to_vec();
        let mut queues: Vec<ClientQueueId> = Vec::new();
        let rows = self.store.rows("client", prefix.clone(), prefix.clone());
        let keys: Vec<Box<[u8]>> = rows.map(|row| row.map(|(key, _)| key)).collect::<Result<_, StoreError>>()?;
        for key in keys {
            self.delete("client", &key);
            if let Some(queue) = ClientQueueId::of(&UrlKey::from_bytes(&key))
                && queues.last() != Some(&queue)
            {
                queues.push(queue);
            }
        }
        let here: Vec<UrlKey> = self.clients.urls.keys().filter(|key| key.slot() == slot).cloned().collect();
        for key in here {
            self.delete("client", key.as_bytes());
            queues.extend(ClientQueueId::of(&key));
            self.clients.urls.insert(key, None);
        }
        let touched = self.clients.lines.keys().filter(|queue| queue.slot() == slot).cloned();
        queues.extend(touched);
        queues.sort();
        queues.dedup();
        for queue in queues {
            self.delete("client", queue.record().as_bytes());
            self.delete("line", &line_key(&queue));
            self.store.lines.0.remove(&queue);
            let touched = self.clients.lines.remove(&queue);
            let filed = match &touched {
                Some(touched) => touched.before.as_ref().map(Line::places),
                None => self.store.line(&queue)?.as_ref().map(Line::places),
            };
            for filed in filed.into_iter().flatten().flatten() {
                self.delete("agenda", &agenda_key(&queue, filed));
            }
        }
        let turns: Vec<Box<[u8]>> = self
            .store
            .rows("turn", prefix.clone(), prefix)
            .map(|row| row.map(|(key, _)| key))
            .collect::<Result<_, StoreError>>()?;
        turns.iter().for_each(|key| self.delete("turn", key));
        self.clients.ends.retain(|key, _| !key.starts_with(&slot.0.to_be_bytes()));
        Ok(())
    }
}

/// A copy of a row.
pub(super) fn client_copy_of(key: UrlKey, body: &[u8]) -> Result<RecordCopy, StoreError> {
    let version = version_of(body).map_err(|error| StoreError::damaged("client", error))?;
    Ok(RecordCopy { key, progress: version.progress(), body: Body(body.into()) })
}

fn encoded(copy: Result<RecordCopy, wire::WireError>) -> Result<RecordCopy, StoreError> {
    copy.map_err(|error| StoreError::damaged("client", error))
}

/// All queues of a crawl.
fn crawl_prefix(crawl: &str) -> Vec<u8> {
    [crawl.as_bytes(), &[0]].concat()
}

fn line_key(queue: &ClientQueueId) -> Vec<u8> {
    let slot_and_key = &queue.prefix()[..queue.prefix().len() - queue.crawl().len() - 2];
    [queue.crawl().as_bytes(), &[0], slot_and_key].concat()
}

/// The queue of a row of `line`.
fn queue_of_line(key: &[u8]) -> Option<ClientQueueId> {
    let end = key.iter().position(|byte| *byte == 0)?;
    let (crawl, rest) = (&key[..end], &key[end + 1..]);
    ClientQueueId::from_prefix(&[rest, &[0], crawl, &[0]].concat())
}

fn agenda_key(queue: &ClientQueueId, at_ms: u64) -> Vec<u8> {
    [queue.crawl().as_bytes(), &[0], &at_ms.to_be_bytes(), queue.prefix()].concat()
}

/// Time and queue of a row of `agenda`.
fn split_agenda(key: &[u8], crawl_bytes: usize) -> Option<(u64, ClientQueueId)> {
    let rest = key.get(crawl_bytes..)?;
    let (time, prefix) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*time), ClientQueueId::from_prefix(prefix)?))
}

/// Where a URL stands that nobody has.
fn turn_key(queue: &ClientQueueId, url: &ClientUrl) -> Vec<u8> {
    if is_pages(queue.crawl()) { spiders::waiting_key(queue, url) } else { open_key(queue, url.date_s, &url.url) }
}

fn open_key(queue: &ClientQueueId, date_s: u64, url: &str) -> Vec<u8> {
    [queue.prefix(), &[0], &date_s.to_be_bytes(), url.as_bytes()].concat()
}

fn leased_key(queue: &ClientQueueId, until_ms: u64, url: &str) -> Vec<u8> {
    [queue.prefix(), &[1], &until_ms.to_be_bytes(), url.as_bytes()].concat()
}
