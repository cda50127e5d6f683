//! Digests of the records of a node in a cluster, on disk: a start need not read every record to know them.
//!
//! Rows of `meta`: `digests` names the life whose digests these are, so that what another side of the folder, or an older program, wrote since is
//! noticed; `digests/s` and a slot: the sums of its ranges; `digests/l` and a number: what one batch changed, written in that batch. When
//! those have become many they are added to the sums, in the batch that makes it so. So they are exact after a kill, too.

use std::collections::BTreeMap;

use proto::cluster::repair::{Changed, Digests};
use proto::id::Slot;
use proto::key::UrlKey;
use proto::wire;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::clients::client_copy_of;
use super::notes::note_copy_of;
use super::replica::copy_of;
use super::{Store, StoreError};

/// Where it stands whose digests these are.
const LIFE: &str = "digests";
const SUMS: &[u8] = b"digests/s";
const LOG: &[u8] = b"digests/l";
/// Changes that are added to the sums at once: all slots are written then, some 8 MiB at most.
const FOLD_AT: usize = 1 << 18;
/// Rows of the log that are read at a start, at most.
const ROWS_MAX: u64 = 1 << 14;

/// Something that happened to digests.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// A range changed by so much.
    Changed(Slot, u8, u64),
    /// A slot was dropped.
    Dropped(Slot),
}

/// What the log says of a slot.
#[derive(Clone, Debug, Default)]
struct Since {
    /// What the sums say of it is over.
    dropped: bool,
    ranges: BTreeMap<u8, u64>,
}

/// What of the digests is not in the sums yet.
#[derive(Debug)]
pub(super) struct Log {
    /// A life has begun: changes are written down.
    is_kept: bool,
    first: u64,
    next: u64,
    since: BTreeMap<Slot, Since>,
    events: usize,
    pub(super) fold_at: usize,
}

impl Default for Log {
    fn default() -> Self {
        Log { is_kept: false, first: 0, next: 0, since: BTreeMap::new(), events: 0, fold_at: FOLD_AT }
    }
}

/// What a batch does to the digests when it is written.
pub(super) enum Written {
    Nothing,
    Appended(Vec<Event>),
    Folded,
}

fn slot_key(slot: Slot) -> Vec<u8> {
    [SUMS, &slot.0.to_be_bytes()].concat()
}

fn log_key(number: u64) -> Vec<u8> {
    [LOG, &number.to_be_bytes()].concat()
}

fn damaged(error: impl ToString) -> StoreError {
    StoreError::damaged("meta", error)
}

impl Log {
    fn note(since: &mut BTreeMap<Slot, Since>, event: Event) {
        match event {
            Event::Dropped(slot) => drop(since.insert(slot, Since { dropped: true, ranges: BTreeMap::new() })),
            Event::Changed(slot, range, difference) => {
                let sum = since.entry(slot).or_default().ranges.entry(range).or_default();
                *sum = sum.wrapping_add(difference);
            }
        }
    }

    /// A batch is written.
    pub(super) fn written(&mut self, written: Written) {
        match written {
            Written::Nothing => {}
            Written::Appended(events) => {
                self.next += 1;
                self.events += events.len();
                events.into_iter().for_each(|event| Log::note(&mut self.since, event));
            }
            Written::Folded => {
                self.first = self.next;
                self.events = 0;
                self.since.clear();
            }
        }
    }
}

impl Store {
    /// The digests of everything on disk, for a life that begins after `former`.
    pub(super) fn begin_digests(&mut self, former: Option<u32>, life: u32) -> Result<Digests, StoreError> {
        let known: Option<u32> = self.read_meta(LIFE)?;
        let fold_at = self.digests.fold_at;
        self.digests = Log { is_kept: true, fold_at, ..Log::default() };
        let digests = if known.is_some() && known == former { self.read_digests()? } else { self.make_digests()? };
        self.write_meta_durably(LIFE, &life)?;
        Ok(digests)
    }

    /// This folder is about to change in ways that digests do not follow.
    pub(super) fn forget_digests(&mut self) -> Result<(), StoreError> {
        self.digests = Log::default();
        if self.read_meta::<u32>(LIFE)?.is_some() {
            self.write_meta_durably(LIFE, &0u32)?; // no life has this number
        }
        Ok(())
    }

    fn sums(&self, slot: &[u8]) -> Result<Vec<(u8, u64)>, StoreError> {
        wire::decode(slot).map_err(damaged)
    }

    fn read_digests(&mut self) -> Result<Digests, StoreError> {
        let mut digests = Digests::default();
        for row in self.rows("meta", SUMS.to_vec(), SUMS.to_vec()) {
            let (key, value) = row?;
            let slot = key.get(SUMS.len()..).and_then(|slot| slot.try_into().ok()).map(u16::from_be_bytes);
            let slot = Slot(slot.ok_or_else(|| damaged("sums without a slot"))?);
            for (range, sum) in self.sums(&value)? {
                digests.change(Changed { slot, range, before: None, after: Some(sum) });
            }
        }
        let mut log = std::mem::take(&mut self.digests);
        for (at, row) in self.rows("meta", LOG.to_vec(), LOG.to_vec()).enumerate() {
            let (key, value) = row?;
            let number = key.get(LOG.len()..).and_then(|number| number.try_into().ok()).map(u64::from_be_bytes);
            let number = number.ok_or_else(|| damaged("changes without a number"))?;
            let events: Vec<Event> = wire::decode(&value).map_err(damaged)?;
            for event in &events {
                match *event {
                    Event::Dropped(slot) => digests.drop_slot(slot),
                    Event::Changed(slot, range, difference) => {
                        digests.change(Changed { slot, range, before: None, after: Some(difference) });
                    }
                }
            }
            if at == 0 {
                log.first = number;
            }
            log.next = number;
            log.written(Written::Appended(events));
        }
        self.digests = log;
        Ok(digests)
    }

    /// Reads every record.
    pub(super) fn scan_digests(&self) -> Result<Digests, StoreError> {
        let mut digests = Digests::default();
        let mut add = |key: &UrlKey, hash: u64| digests.change(Changed::new(key, None, Some(hash)));
        for row in self.rows("url", Vec::new(), Vec::new()) {
            let (key, value) = row?;
            let copy = copy_of(UrlKey::from_bytes(&key), &value)?;
            add(&copy.key, copy.hash());
        }
        for row in self.rows("client", Vec::new(), Vec::new()) {
            let (key, value) = row?;
            let copy = client_copy_of(UrlKey::from_bytes(&key), &value)?;
            add(&copy.key, copy.hash());
        }
        for row in self.rows("note", Vec::new(), Vec::new()) {
            let (key, value) = row?;
            let copy = note_copy_of(UrlKey::from_bytes(&key), &value)?;
            add(&copy.key, copy.hash());
        }
        Ok(digests)
    }

    /// Reads every record, and writes the digests down.
    fn make_digests(&mut self) -> Result<Digests, StoreError> {
        let digests = self.scan_digests()?;
        let mut batch = rocksdb::WriteBatch::default();
        let meta = self.family("meta");
        for prefix in [SUMS, LOG] {
            for row in self.rows("meta", prefix.to_vec(), prefix.to_vec()) {
                batch.delete_cf(&meta, row?.0);
            }
        }
        for slot in digests.slots() {
            batch.put_cf(&meta, slot_key(slot), wire::encode(&digests.ranges(slot)).map_err(damaged)?);
        }
        self.db.write(batch).map_err(|error| self.failed(&error))?; // what comes next is fsynced, and so is this then
        Ok(digests)
    }
}

impl Change<'_> {
    /// A record of the cluster is not what it was.
    pub(super) fn digest(&mut self, key: &UrlKey, before: Option<u64>, after: Option<u64>) -> Changed {
        let changed = Changed::new(key, before, after);
        let difference = after.unwrap_or(0).wrapping_sub(before.unwrap_or(0));
        if self.store.digests.is_kept && difference != 0 {
            self.digested.push(Event::Changed(changed.slot, changed.range, difference));
        }
        changed
    }

    /// A slot is no longer here.
    pub(super) fn digest_dropped(&mut self, slot: Slot) {
        if self.store.digests.is_kept {
            self.digested.push(Event::Dropped(slot));
        }
    }

    /// Writes down what became of digests in this change; [`Log::written`] hears of it when it is on disk.
    pub(super) fn put_digests(&mut self) -> Result<Written, StoreError> {
        let events = std::mem::take(&mut self.digested);
        let log = &self.store.digests;
        if events.is_empty() {
            return Ok(Written::Nothing);
        }
        if log.events + events.len() < log.fold_at && log.next - log.first < ROWS_MAX {
            self.put("meta", &log_key(log.next), &events)?;
            return Ok(Written::Appended(events));
        }
        let (mut since, numbers) = (log.since.clone(), log.first..log.next);
        events.into_iter().for_each(|event| Log::note(&mut since, event));
        for (slot, Since { dropped, ranges }) in since {
            let key = slot_key(slot);
            let mut sums: BTreeMap<u8, u64> = BTreeMap::new();
            if !dropped {
                sums.extend(self.get::<Vec<(u8, u64)>>("meta", &key)?.unwrap_or_default());
            }
            for (range, difference) in ranges {
                let sum = sums.entry(range).or_default();
                *sum = sum.wrapping_add(difference);
            }
            let sums: Vec<(u8, u64)> = sums.into_iter().filter(|(_, sum)| *sum != 0).collect();
            if sums.is_empty() {
                self.delete("meta", &key);
            } else {
                self.put("meta", &key, &sums)?;
            }
        }
        numbers.for_each(|number| self.delete("meta", &log_key(number)));
        Ok(Written::Folded)
    }
}
