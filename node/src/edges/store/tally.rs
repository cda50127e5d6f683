//! In-links that are counted and not yet added to their records.
//!
//! A page has some forty links, most of them to pages that its neighbours link to as well. One row for each of them was a
//! quarter of what settling a page costs. So a change writes down what it counted in one row of the family `tally`, and
//! the counts gather in memory; when there are many, they are added to their records, each once, and the rows go.

use std::collections::HashMap;

use proto::wire;

use super::rows::Rows;
use super::{Seeded, StoreError};

/// Rows to be read at the next start, at most.
const ROWS_MAX: usize = 4_096;

/// Counts by the key of a URL's record.
pub(super) type Counts = HashMap<Vec<u8>, u32, Seeded>;

/// What waits to be added.
pub(super) struct Tally {
    counts: Counts,
    /// Numbers of the rows that say so.
    rows: Vec<u64>,
    urls_max: usize,
}

impl Tally {
    pub(super) fn new(seeded: Seeded, urls_max: usize) -> Tally {
        Tally { counts: HashMap::with_hasher(seeded), rows: Vec::new(), urls_max }
    }

    /// What waits for the URL.
    pub(super) fn count(&self, key: &[u8]) -> u32 {
        self.counts.get(key).copied().unwrap_or(0)
    }

    /// Takes in a row as read from disk.
    pub(super) fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let damaged = |reason: String| StoreError::damaged("tally", reason);
        let number = key.try_into().map_err(|_| damaged("a key without a number".to_owned()))?;
        let counts: Vec<(Vec<u8>, u32)> = wire::decode(value).map_err(|error| damaged(error.to_string()))?;
        self.rows.push(u64::from_be_bytes(number));
        self.gather(counts);
        Ok(())
    }

    fn gather(&mut self, counts: impl IntoIterator<Item = (Vec<u8>, u32)>) {
        for (key, count) in counts {
            let sum = self.counts.entry(key).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Writes down what a change counted, or adds everything to the records if enough has gathered.
    pub(super) fn write(&mut self, counts: Counts, rows: &mut Rows) -> Result<(), StoreError> {
        if self.counts.len() + counts.len() >= self.urls_max || self.rows.len() >= ROWS_MAX {
            self.gather(counts);
            for (key, count) in self.counts.drain() {
                rows.merge("url", &key, &count.to_le_bytes());
            }
            for number in self.rows.drain(..) {
                rows.delete("tally", &number.to_be_bytes());
            }
            return Ok(());
        }
        let number = self.rows.last().map_or(0, |last| last + 1);
        let listed: Vec<(&Vec<u8>, &u32)> = counts.iter().collect();
        rows.put("tally", &number.to_be_bytes(), |row| {
            wire::encode_into(&listed, row).map_err(|error| StoreError::damaged("tally", error))
        })?;
        self.rows.push(number);
        self.gather(counts);
        Ok(())
    }
}
