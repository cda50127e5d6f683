//! Scores changed: entries that wait get another place in their queues.

use std::collections::HashSet;

use proto::batch::Entry;
use proto::cluster::slot_set::SlotSet;
use proto::key::{Order, QueueKey};
use proto::wire;

use super::change::Change;
use super::graph::Move;
use super::{Store, StoreError};

impl Store {
    /// Everything that waits in queues, host by host, in the order in which it is fetched.
    pub fn waiting(&self) -> impl Iterator<Item = Result<(QueueKey, Order, Entry), StoreError>> + '_ {
        self.rows("ready", Vec::new(), Vec::new()).map(|row| {
            let (key, value) = row?;
            let (Some(queue), Some(order)) = (QueueKey::prefix_of(&key), Order::suffix_of(&key)) else {
                return Err(StoreError::damaged("ready", "a key without queue and order"));
            };
            let entry = wire::decode(&value).map_err(|error| StoreError::damaged("ready", error))?;
            Ok((queue, order, entry))
        })
    }
}

/// Rows that one look at what waits reads: the disk thread has other work.
const LOOKED_AT: usize = 2_048;
/// Entries that it gives.
const GIVEN: usize = 500;

/// Waiting entries, and behind which row to go on.
type Waiting = (Vec<(QueueKey, Order, Entry)>, Option<Vec<u8>>);

impl Store {
    /// Some of what waits in the queues of these slots, behind the row `after`.
    pub fn some_waiting(&self, slots: &SlotSet, after: &[u8]) -> Result<Waiting, StoreError> {
        let mut given = Vec::new();
        let rows = self.rows_after("ready", after, LOOKED_AT)?;
        let next = rows.last().filter(|_| rows.len() == LOOKED_AT).map(|(key, _)| key.clone());
        for (key, value) in rows {
            let (Some(queue), Some(order)) = (QueueKey::prefix_of(&key), Order::suffix_of(&key)) else {
                return Err(StoreError::damaged("ready", "a key without queue and order"));
            };
            if slots.contains(queue.slot()) {
                given.push((queue, order, wire::decode(&value).map_err(|error| StoreError::damaged("ready", error))?));
            }
            if given.len() >= GIVEN {
                return Ok((given, Some(key)));
            }
        }
        Ok((given, next))
    }
}

impl Change<'_> {
    /// Moves waiting entries; says how many. What is handed out, has left its queue or came into it by this very change stays.
    /// Whoever keeps a part of the queues in memory must read it again from here on.
    pub fn reorder(&mut self, moves: Vec<Move>) -> Result<usize, StoreError> {
        if self.store.options.replica {
            let mut count = 0;
            for (page, level) in moves.iter().filter_map(|moved| moved.level.as_ref()) {
                count += usize::from(self.put_level(page, *level)?);
            }
            return Ok(count);
        }
        let pending: HashSet<Vec<u8>> = self.rows.keys("ready").map(<[u8]>::to_vec).collect();
        let old: Vec<Vec<u8>> = moves.iter().map(|moved| moved.queue.ready(moved.order)).collect();
        let family = self.store.family("ready");
        let rows = self.store.db.batched_multi_get_cf(&family, old.iter().map(Vec::as_slice), false);
        let mut waiting = Vec::with_capacity(rows.len());
        for row in rows {
            waiting.push(row.map_err(|error| self.store.failed(&error))?);
        }
        let mut count = 0;
        for ((moved, old), row) in moves.into_iter().zip(old).zip(waiting) {
            let Some(row) = row else { continue };
            if self.store.flying.contains(&old) || pending.contains(&old) {
                continue;
            }
            let order = Order { priority: moved.priority, ..moved.order };
            let bytes = row.to_vec();
            drop(row);
            self.rows.delete("ready", &old);
            self.rows.put("ready", &moved.queue.ready(order), |out| {
                out.extend_from_slice(&bytes);
                Ok::<(), StoreError>(())
            })?;
            count += 1;
        }
        Ok(count)
    }
}
