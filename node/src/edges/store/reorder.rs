//! Scores changed: entries that wait get another place in their queues.

use std::collections::HashSet;

use proto::batch::Entry;
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
