//! What the store can be asked: queues for the frontier, records for people, and a recount of everything.

use proto::batch::{Entry, Pick};
use proto::cluster::copy::Kept;
use proto::counters::{Counters, HostCounters};
use proto::crawl::frontier::{HostFacts, LoadedQueue};
use proto::id::{SLOTS, Slot, UrlId};
use proto::key::{Order, QueueKey, UrlKey, split_due};
use proto::record::{Status, UrlRecord};
use proto::wire;
use rocksdb::{Direction, IteratorMode, ReadOptions};
use serde::de::DeserializeOwned;

use super::change::{counters_key, facts_key};
use super::columns::{INLINKS_BYTES, inlinks};
use super::tally::Tally;
use super::{ContentRow, Places, Store, StoreError, slot_index};

/// A host and what it has come to.
#[derive(Clone, Debug)]
pub struct HostRow {
    /// Its queue.
    pub queue: QueueKey,
    /// Its counters.
    pub counters: HostCounters,
}

/// Everything stored of one URL.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its key.
    pub key: UrlKey,
    /// Its record.
    pub record: UrlRecord,
    /// Pages that link to it, as far as they were crawled.
    pub inlinks: u32,
}

impl Store {
    pub(super) fn get<T: DeserializeOwned>(&self, family: &'static str, key: &[u8]) -> Result<Option<T>, StoreError> {
        let value = self.db.get_pinned_cf(&self.family(family), key).map_err(|error| self.failed(&error))?;
        value.map(|value| wire::decode(&value)).transpose().map_err(|error| StoreError::damaged(family, error))
    }

    /// Reads the entries of a queue behind `after`, at most `limit`, and whether there are more.
    pub fn refill(
        &self,
        queue: &QueueKey,
        after: Option<Order>,
        limit: usize,
    ) -> Result<(Vec<(Order, Entry)>, bool), StoreError> {
        let mut start = after.map_or_else(|| queue.as_bytes().to_vec(), |order| queue.ready(order));
        if after.is_some() {
            start.push(0); // the first key behind it
        }
        let mut entries = Vec::new();
        for row in self.rows("ready", start, queue.as_bytes().to_vec()) {
            let (key, value) = row?;
            if self.flying.contains(&key) {
                continue;
            }
            if entries.len() == limit {
                return Ok((entries, true));
            }
            let order = Order::suffix_of(&key).ok_or_else(|| StoreError::damaged("ready", "a key without an order"))?;
            let entry = wire::decode(&value).map_err(|error| StoreError::damaged("ready", error))?;
            entries.push((order, entry));
        }
        Ok((entries, false))
    }

    /// Reads one queue with what is known of its host.
    pub fn load_queue(&self, queue: &QueueKey, limit: usize) -> Result<LoadedQueue, StoreError> {
        let (entries, more) = self.refill(queue, None, limit)?;
        let facts: HostFacts = self.get("host", &facts_key(queue))?.unwrap_or_default();
        Ok(LoadedQueue { key: queue.clone(), facts, entries, more })
    }

    /// Reads the next queues that have entries, of one slot or of all, and where to go on; `None` at the end.
    pub fn sweep(
        &self,
        slot: Option<Slot>,
        after: Option<&QueueKey>,
        queues: usize,
        limit: usize,
    ) -> Result<(Vec<LoadedQueue>, Option<QueueKey>), StoreError> {
        let family = self.family("ready");
        let mut found = Vec::new();
        let first = || slot.map(|slot| slot.0.to_be_bytes().to_vec()).unwrap_or_default();
        let mut next = after.map_or_else(first, beyond);
        while found.len() < queues {
            let mut rows = self.db.iterator_cf(&family, IteratorMode::From(&next, Direction::Forward));
            let Some(row) = rows.next() else { return Ok((found, None)) };
            let (key, _) = row.map_err(|error| self.failed(&error))?;
            let queue =
                QueueKey::prefix_of(&key).ok_or_else(|| StoreError::damaged("ready", "a key without a queue"))?;
            if slot.is_some_and(|slot| queue.slot() != slot) {
                return Ok((found, None));
            }
            next = beyond(&queue);
            let loaded = self.load_queue(&queue, limit)?;
            if !loaded.entries.is_empty() {
                found.push(loaded); // else all it has is handed out
            }
        }
        let last = found.last().map(|queue| queue.key.clone());
        Ok((found, last))
    }

    /// Finds entries whose time has come, with the keys they lie under and belong under.
    #[allow(clippy::type_complexity)] // a row of a scan, taken apart at once by its one caller
    pub(super) fn due_entries(
        &mut self,
        unix_ms: u64,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>, bool, Entry)>, StoreError> {
        let mut found = Vec::new();
        for slot in (0..SLOTS).map(Slot) {
            if self.next_due[slot_index(slot)] > unix_ms {
                continue;
            }
            let mut next = u64::MAX;
            let prefix = slot.0.to_be_bytes().to_vec();
            for row in self.rows("due", prefix.clone(), prefix) {
                let (key, value) = row?;
                let (at, ready) = split_due(&key).ok_or_else(|| StoreError::damaged("due", "a key without a time"))?;
                if at > unix_ms || found.len() >= limit {
                    next = at;
                    break;
                }
                let (retry, entry) = wire::decode(&value).map_err(|error| StoreError::damaged("due", error))?;
                found.push((key.to_vec(), ready.to_vec(), retry, entry));
            }
            self.next_due[slot_index(slot)] = next;
        }
        Ok(found)
    }

    /// When the next entry falls due, Unix milliseconds.
    pub fn next_due(&self) -> Option<u64> {
        self.next_due.iter().copied().min().filter(|at| *at != u64::MAX)
    }

    /// Finds the earliest entry of each slot. One iterator goes from slot to slot: one for each of them was most of what opening an empty folder takes.
    pub(super) fn load_due(&mut self) -> Result<(), StoreError> {
        self.next_due.fill(u64::MAX);
        let mut found = Vec::new();
        let mut rows = self.db.raw_iterator_cf(&self.family("due"));
        rows.seek_to_first();
        while let Some(key) = rows.key() {
            let slot = key.first_chunk().map(|slot| Slot(u16::from_be_bytes(*slot)));
            let (Some(slot), Some((at, _))) = (slot, split_due(key)) else {
                rows.next(); // no key of ours: nothing falls due by it
                continue;
            };
            found.push((slot, at));
            let Some(next) = slot.0.checked_add(1) else { break };
            rows.seek(next.to_be_bytes());
        }
        rows.status().map_err(|error| self.failed(&error))?;
        drop(rows);
        for (slot, at) in found {
            self.next_due[slot_index(slot)] = at.min(self.next_due[slot_index(slot)]);
        }
        Ok(())
    }

    /// Puts what a former life of this node had handed out back into the queues.
    pub(super) fn return_flights(&mut self) -> Result<(), StoreError> {
        let rows: Vec<_> = self.flight_rows().collect::<Result<_, _>>()?;
        if rows.is_empty() {
            return Ok(());
        }
        let stranded: Vec<_> = rows.iter().map(|(key, flight)| self.pick(key, *flight)).collect::<Result<_, _>>()?;
        let mut change = self.change();
        for ((key, _), pick) in rows.iter().zip(stranded) {
            match pick {
                Some(pick) => change.put_back(&pick)?,
                None => change.drop_flight(key),
            }
        }
        change.commit()
    }

    pub(super) fn load_tally(&mut self) -> Result<(), StoreError> {
        let mut tally = Tally::new(*self.hosts.hasher(), self.options.tally_urls_max);
        for row in self.rows("tally", Vec::new(), Vec::new()) {
            let (key, value) = row?;
            tally.load(&key, &value)?;
        }
        self.tally = tally;
        Ok(())
    }

    /// Reads which flights have not landed. All rows are of this life: those of former ones went back at the start.
    pub(super) fn load_flying(&mut self) -> Result<(), StoreError> {
        let flying: Vec<_> = self.flight_rows().collect::<Result<_, _>>()?;
        self.flying.clear();
        for (ready, flight) in flying {
            self.flying.insert(&ready, flight);
        }
        Ok(())
    }

    fn flight_rows(&self) -> impl Iterator<Item = Result<(Box<[u8]>, u64), StoreError>> + '_ {
        self.rows("flight", Vec::new(), Vec::new()).map(|row| {
            let (key, value) = row?;
            let flight = wire::decode(&value).map_err(|error| StoreError::damaged("flight", error))?;
            Ok((key, flight))
        })
    }

    /// What is handed out and not settled.
    pub fn flights(&self) -> Result<Vec<Pick>, StoreError> {
        self.flight_rows().filter_map(|row| row.and_then(|(key, flight)| self.pick(&key, flight)).transpose()).collect()
    }

    /// What a flight carries; `None` if its entry is gone, which must not keep a folder from being opened.
    fn pick(&self, key: &[u8], flight: u64) -> Result<Option<Pick>, StoreError> {
        let (Some(queue), Some(order)) = (QueueKey::prefix_of(key), Order::suffix_of(key)) else {
            return Err(StoreError::damaged("flight", "a key without queue and order"));
        };
        let Some(mut entry) = self.get::<Entry>("ready", key)? else {
            tracing::warn!(host = queue.host(), flight, "a flight without its entry is forgotten");
            return Ok(None);
        };
        entry.progress.status = Status::SelectedToCrawl;
        Ok(Some(Pick { flight, queue, order, entry }))
    }

    /// The record of a URL.
    pub fn url(&self, key: &UrlKey) -> Result<Option<Stored>, StoreError> {
        let value = self.db.get_cf(&self.family("url"), key.as_bytes()).map_err(|error| self.failed(&error))?;
        value.map(|value| self.stored(key.as_bytes(), &value)).transpose()
    }

    /// All records, in the order of their keys.
    pub fn urls(&self) -> impl Iterator<Item = Result<Stored, StoreError>> + '_ {
        self.rows("url", Vec::new(), Vec::new()).map(|row| row.and_then(|(key, value)| self.stored(&key, &value)))
    }

    pub(super) fn stored(&self, key: &[u8], value: &[u8]) -> Result<Stored, StoreError> {
        let kept: Kept = wire::decode(value.get(INLINKS_BYTES..).unwrap_or_default())
            .map_err(|error| StoreError::damaged("url", error))?;
        let record = kept.record;
        let inlinks = inlinks(value).saturating_add(self.tally.count(key));
        Ok(Stored { key: UrlKey::from_bytes(key), record, inlinks })
    }

    /// Where the newest version of a URL's content lies.
    pub fn content(&self, key: &UrlKey) -> Result<Option<ContentRow>, StoreError> {
        let prefix = key.as_bytes().to_vec();
        let first = self.rows("content", prefix.clone(), prefix).next().transpose()?;
        first.map(|(_, value)| wire::decode(&value)).transpose().map_err(|error| StoreError::damaged("content", error))
    }

    /// The URL that gave this content first, where it lies, and its text.
    pub fn first_with(&self, digest: &[u8; 16]) -> Result<Option<(UrlId, ContentRow, String)>, StoreError> {
        let Some((key, round)) = self.get::<(Vec<u8>, u32)>("digest", digest)? else { return Ok(None) };
        let key = UrlKey::from_bytes(&key);
        let row = self.get::<ContentRow>("content", &key.content(round))?;
        let url = self.url(&key)?;
        Ok(row.zip(url).map(|(row, url)| (key.id(), row, url.record.url)))
    }

    /// Hosts and their counters, in the order of their keys.
    pub fn hosts(&self) -> impl Iterator<Item = Result<HostRow, StoreError>> + '_ {
        self.rows("host", Vec::new(), Vec::new()).filter_map(|row| {
            let (key, value) = match row {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            };
            let queue = QueueKey::prefix_of(&key)?;
            if key[..] != counters_key(&queue)[..] {
                return None;
            }
            let counters = wire::decode(&value).map_err(|error| StoreError::damaged("host", error));
            Some(counters.map(|counters| HostRow { queue, counters }))
        })
    }

    /// Counts everything anew. The counters kept along the way must say the same.
    pub fn recount(&self) -> Result<(Counters, Places), StoreError> {
        let mut counters = Counters::default();
        for row in self.urls() {
            counters.add(&row?.record);
        }
        let count = |family| -> Result<u64, StoreError> {
            self.rows(family, Vec::new(), Vec::new()).try_fold(0, |count, row| row.map(|_| count + 1))
        };
        let flights = count("flight")?;
        let mut places = Places {
            ready: count("ready")?.saturating_sub(flights),
            flights,
            traps: self.state.places.traps,
            ..Places::default()
        };
        (places.aside, places.links_aside) = self.count_aside()?;
        for row in self.rows("due", Vec::new(), Vec::new()) {
            let (_, value) = row?;
            let retry: (bool, Entry) = wire::decode(&value).map_err(|error| StoreError::damaged("due", error))?;
            *(if retry.0 { &mut places.retries } else { &mut places.recrawls }) += 1;
        }
        Ok((counters, places))
    }

    /// Rows of a family behind `after`, at most `limit`.
    #[allow(clippy::type_complexity)] // a row is a key and a value
    pub(super) fn rows_after(
        &self,
        family: &'static str,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        let mut start = after.to_vec();
        if !after.is_empty() {
            start.push(0); // the first key behind it
        }
        let rows = self.rows(family, start, Vec::new()).take(limit);
        rows.map(|row| row.map(|(key, value)| (key.into_vec(), value.into_vec()))).collect()
    }

    /// Rows of a family from `start` on, as long as their keys begin with `prefix`.
    #[allow(clippy::type_complexity)] // a row is a key and a value
    pub(super) fn rows(
        &self,
        family: &'static str,
        start: Vec<u8>,
        prefix: Vec<u8>,
    ) -> impl Iterator<Item = Result<(Box<[u8]>, Box<[u8]>), StoreError>> + '_ {
        let mut options = ReadOptions::default();
        if let Some(end) = after_prefix(&prefix) {
            options.set_iterate_upper_bound(end); // tombstones behind the prefix are not walked through
        }
        let mode = IteratorMode::From(&start, Direction::Forward);
        let rows = self.db.iterator_cf_opt(&self.family(family), options, mode);
        rows.map(|row| row.map_err(|error| self.failed(&error)))
    }
}

/// The first key that cannot belong to the queue.
fn beyond(queue: &QueueKey) -> Vec<u8> {
    let mut key = queue.as_bytes().to_vec();
    key.extend_from_slice(&[0xff; Order::BYTES + 1]);
    key
}

/// The first key behind all keys that begin with `prefix`; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
