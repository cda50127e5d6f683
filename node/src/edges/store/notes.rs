//! Notes on disk (attributes, contents that were handed in), the history of URLs, and what upkeep does to both and to contents.
//!
//! | family | key | value |
//! |---|---|---|
//! | `note` | slot, marked crawl and shard, crawl, id | what is replicated |
//! | `history` | url key, round, code | an [`Event`]: what this replica saw, of sites that ask for it |

use std::collections::BTreeMap;

use proto::cluster::copy::{RecordCopy, merged};
use proto::cluster::mutant::Planted;
use proto::cluster::repair::Changed;
use proto::counters::HostCounters;
use proto::id::{Round, Slot};
use proto::key::{QueueKey, UrlKey};
use proto::record::UrlRecord;
use proto::site::SiteDefinition;
use proto::site::history::{Event, events};
use proto::site::note::{self, Note};
use proto::url::{CanonicalUrl, UrlRules};
use proto::wire;

use super::change::{Change, counters_key};
use super::definitions::site_of;
use super::{Store, StoreError};

/// Bytes of the notes of one answer, about.
const NOTES_BYTES_MAX: usize = 1 << 20;
/// Events of one URL that are told of.
const EVENTS_MAX: usize = 10_000;

/// What a recount found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recounted {
    /// Hosts whose counters were wrong, and are right now.
    pub corrected: u64,
    /// Hosts looked at.
    pub hosts: u64,
}

impl Store {
    /// Notes whose keys begin with `prefix`, behind `after`; and whether there are more.
    pub fn notes(&self, prefix: &[u8], after: Option<&UrlKey>) -> Result<(Vec<RecordCopy>, bool), StoreError> {
        let start = after.map_or_else(|| prefix.to_vec(), |key| [key.as_bytes(), &[0]].concat());
        let (mut found, mut bytes) = (Vec::new(), 0);
        for row in self.rows("note", start, prefix.to_vec()) {
            let (key, value) = row?;
            if bytes > NOTES_BYTES_MAX {
                return Ok((found, true));
            }
            bytes += key.len() + value.len() + 64;
            found.push(note_copy_of(UrlKey::from_bytes(&key), &value)?);
        }
        Ok((found, false))
    }

    /// The first round whose contents are still those of a URL, as far as is known here: those before were forgotten.
    pub fn begins(&self, url: &UrlKey) -> Result<Round, StoreError> {
        let Some(crawl) = url.crawl() else { return Ok(0) };
        let id = url.id().to_string();
        let (copies, _) = self.notes(&note::prefix_of(crawl, &id), None)?;
        let notes: Vec<Note> = copies.iter().filter_map(Note::open).collect();
        Ok(note::begins(&notes, &id))
    }

    /// What was seen of a URL, in the order of rounds.
    pub fn history(&self, key: &UrlKey) -> Result<Vec<Event>, StoreError> {
        let prefix = key.as_bytes().to_vec();
        let rows = self.rows("history", prefix.clone(), prefix).take(EVENTS_MAX);
        rows.map(|row| wire::decode(&row?.1).map_err(|error| StoreError::damaged("history", error))).collect()
    }

    /// Whether it is written down what happens to URLs of a crawl.
    fn has_history(&mut self, crawl: &str) -> Result<bool, StoreError> {
        if self.histories.is_none() {
            let logged = |site: SiteDefinition| site.has_history().then(|| site.crawl_name());
            let names = self.definitions()?.iter().filter_map(site_of).filter_map(logged).collect();
            self.histories = Some(names);
        }
        Ok(self.histories.as_ref().is_some_and(|names| names.contains(crawl)))
    }
}

impl Change<'_> {
    /// Merges a copy of a note. One that contradicts itself is a peer's fault and is left out.
    pub(super) fn merge_note(&mut self, copy: RecordCopy) -> Result<Option<Changed>, StoreError> {
        if Note::open(&copy).is_none() {
            tracing::warn!("a copy of a note is left out: it contradicts itself");
            return Ok(None);
        }
        let before = match self.notes.get(&copy.key) {
            Some(touched) => Some(touched.clone()),
            None => {
                let family = self.store.family("note");
                let row = self.store.db.get_pinned_cf(&family, copy.key.as_bytes());
                let row = row.map_err(|error| self.store.failed(&error))?;
                row.map(|row| note_copy_of(copy.key.clone(), &row)).transpose()?
            }
        };
        let now = merged(before.as_ref(), copy, Planted::default());
        if before.as_ref() == Some(&now) {
            return Ok(None);
        }
        let written: Result<(), StoreError> = self.rows.put("note", now.key.as_bytes(), |row| {
            row.extend_from_slice(&now.body.0);
            Ok(())
        });
        written?;
        let changed = self.digest(&now.key, before.as_ref().map(RecordCopy::hash), Some(now.hash()));
        self.notes.insert(now.key.clone(), now);
        Ok(Some(changed))
    }

    /// Removes the notes of a slot.
    pub(super) fn drop_notes(&mut self, slot: Slot) -> Result<(), StoreError> {
        let prefix = slot.0.to_be_bytes().to_vec();
        let rows = self.store.rows("note", prefix.clone(), prefix);
        let mut keys: Vec<Vec<u8>> = rows.map(|row| row.map(|(key, _)| key.into_vec())).collect::<Result<_, _>>()?;
        let touched: Vec<UrlKey> = self.notes.keys().filter(|key| key.slot() == slot).cloned().collect();
        keys.extend(touched.iter().map(|key| key.as_bytes().to_vec()));
        keys.iter().for_each(|key| self.delete("note", key));
        touched.iter().for_each(|key| drop(self.notes.remove(key)));
        Ok(())
    }

    /// Writes down what happened to a URL, if its site asks for that.
    pub(super) fn note_events(
        &mut self,
        key: &UrlKey,
        was: Option<&UrlRecord>,
        now: &UrlRecord,
        unix_ms: u64,
    ) -> Result<(), StoreError> {
        if !self.store.has_history(key.crawl().unwrap_or_default())? {
            return Ok(());
        }
        for event in events(was, now, unix_ms) {
            let mut row = key.as_bytes().to_vec();
            row.extend_from_slice(&event.round.to_be_bytes());
            row.push(event.code);
            if self.get::<Event>("history", &row)?.is_none() {
                self.put("history", &row, &event)?;
            }
        }
        Ok(())
    }

    /// Removes what is here of the contents of these URLs, and their history. The archive is only ever appended to: its bytes stay, and nothing leads to them any more.
    /// Says how many versions went.
    pub fn purge_contents(&mut self, urls: &[UrlKey]) -> Result<u64, StoreError> {
        let mut removed = 0;
        for url in urls {
            removed += self.remove_contents(url.as_bytes())?;
            let prefix = url.as_bytes().to_vec();
            let rows = self.store.rows("history", prefix.clone(), prefix);
            let keys: Vec<Box<[u8]>> = rows.map(|row| row.map(|(key, _)| key)).collect::<Result<_, _>>()?;
            keys.iter().for_each(|key| self.delete("history", key));
        }
        Ok(removed)
    }

    /// Counts the records of one domain of a crawl anew, and puts the counters of its hosts right.
    pub fn recount_domain(&mut self, prefix: &[u8]) -> Result<Recounted, StoreError> {
        let mut counted: BTreeMap<QueueKey, HostCounters> = BTreeMap::new();
        let mut count = |key: &UrlKey, record: &UrlRecord| {
            let url = CanonicalUrl::parse(&record.url, &UrlRules::AS_IT_IS)
                .map_err(|error| StoreError::damaged("url", format!("{error:?}")))?;
            let queue = QueueKey::new(key.crawl().unwrap_or_default(), &url);
            counted.entry(queue).or_default().add(record);
            Ok::<(), StoreError>(())
        };
        for row in self.store.rows("url", prefix.to_vec(), prefix.to_vec()) {
            let (key, value) = row?;
            let stored = self.store.stored(&key, &value)?;
            if !self.overlay.contains_key(&stored.key) {
                count(&stored.key, &stored.record)?;
            }
        }
        for (key, touched) in self.overlay.iter().filter(|(key, _)| key.as_bytes().starts_with(prefix)) {
            if let Some(record) = touched.record() {
                count(key, record)?;
            }
        }
        // Hosts without a record any more have counters too.
        for row in self.store.rows("host", prefix.to_vec(), prefix.to_vec()) {
            let (key, _) = row?;
            if let Some(queue) = QueueKey::prefix_of(&key).filter(|queue| key[..] == counters_key(queue)[..]) {
                counted.entry(queue).or_default();
            }
        }
        let mut recounted = Recounted { hosts: counted.len() as u64, corrected: 0 };
        for (queue, counters) in counted {
            let host = self.host(&queue)?;
            if host.counters != counters {
                recounted.corrected += 1;
                host.counters = counters;
                if !std::mem::replace(&mut host.touched, true) {
                    self.touched.push(queue);
                }
            }
        }
        Ok(recounted)
    }
}

/// A note as it lies on disk.
pub(super) fn note_copy_of(key: UrlKey, body: &[u8]) -> Result<RecordCopy, StoreError> {
    Note::stored(key, body).map_err(|error| StoreError::damaged("note", error))
}
