//! What is handed out and has not landed.

use std::collections::HashMap;

use proto::id::Slot;
use proto::key::Order;

use super::Seeded;

/// Flights of this life, by entry. An entry is told by its queue and its sequence, not by its whole key: when a link to a URL that
/// flies is found nearer to a seed, its record and so its place in the queue change, and it must not be handed out from there a second time.
pub(super) struct Flying(HashMap<Vec<u8>, u64, Seeded>);

/// The last bytes of a key of `ready`, which tell entries of one queue apart.
const SEQUENCE_BYTES: usize = 6;

impl Flying {
    pub(super) fn new(seeded: Seeded) -> Flying {
        Flying(HashMap::with_hasher(seeded))
    }

    /// The entry that lies under this key of `ready`, wherever it stood before.
    fn entry(ready: &[u8]) -> Vec<u8> {
        let queue = ready.len().saturating_sub(Order::BYTES);
        let sequence = ready.len().saturating_sub(SEQUENCE_BYTES);
        [&ready[..queue], &ready[sequence..]].concat()
    }

    /// The entry under this key is handed out; gives the flight that had it.
    pub(super) fn insert(&mut self, ready: &[u8], flight: u64) -> Option<u64> {
        self.0.insert(Flying::entry(ready), flight)
    }

    pub(super) fn get(&self, ready: &[u8]) -> Option<u64> {
        self.0.get(&Flying::entry(ready)).copied()
    }

    pub(super) fn contains(&self, ready: &[u8]) -> bool {
        !self.0.is_empty() && self.0.contains_key(&Flying::entry(ready))
    }

    pub(super) fn remove(&mut self, ready: &[u8]) {
        self.0.remove(&Flying::entry(ready));
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whoever serves the slot from now on may hand its entries out.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.0.retain(|entry, _| !entry.starts_with(&slot.0.to_be_bytes()));
    }
}
