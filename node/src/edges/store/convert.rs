//! A folder changes sides: a node alone joins a cluster, or leaves it for good.
//!
//! The two keep their queues in different ways (see [`replica`](super::replica)), the records are the same. So the queues are made anew
//! from the records. If that is cut short, the next start begins it again: the folder says that it has changed sides only at the end.

use proto::cluster::copy::Kept;
use proto::key::{Order, QueueKey, UrlKey};
use proto::wire;

use super::columns::INLINKS_BYTES;
use super::{Places, Store, StoreError};

/// Where the folder says on which side it is.
const SIDE: &str = "replica";
/// Rows of one batch.
const ROWS_MAX: usize = 10_000;

impl Store {
    /// Makes the queues what this side needs, if the folder comes from the other one.
    pub(super) fn take_sides(&mut self) -> Result<(), StoreError> {
        let side = self.options.replica;
        let was: bool = self.read_meta(SIDE)?.unwrap_or(false);
        if was != side && self.state.sequence + self.state.counters.known > 0 {
            tracing::info!(
                replica = side,
                urls = self.state.counters.known,
                "the folder changes sides, queues are made anew"
            );
            self.clear_queues()?;
            self.fill_queues()?;
        }
        if !side {
            self.forget_digests()?;
        }
        self.write_meta(SIDE, &side)
    }

    /// Whether the folder belongs to a node of a cluster.
    pub fn is_replica(&self) -> Result<bool, StoreError> {
        Ok(self.read_meta(SIDE)?.unwrap_or(false))
    }

    fn clear_queues(&mut self) -> Result<(), StoreError> {
        for family in ["ready", "due", "flight", "level"] {
            let column = self.family(family);
            self.db.delete_range_cf(&column, &[0u8][..], &[0xff; 64][..]).map_err(|error| self.failed(&error))?;
        }
        self.flying.clear();
        self.next_due.fill(u64::MAX);
        self.state.places = Places { traps: self.state.places.traps, ..Places::default() };
        Ok(())
    }

    fn fill_queues(&mut self) -> Result<(), StoreError> {
        let mut after: Option<UrlKey> = None;
        loop {
            let start = after.as_ref().map_or_else(Vec::new, |key| [key.as_bytes(), &[0]].concat());
            let rows: Vec<(UrlKey, Kept)> = self
                .rows("url", start, Vec::new())
                .take(ROWS_MAX)
                .map(|row| {
                    let (key, value) = row?;
                    let kept = wire::decode(value.get(INLINKS_BYTES..).unwrap_or_default())
                        .map_err(|error| StoreError::damaged("url", error))?;
                    Ok((UrlKey::from_bytes(&key), kept))
                })
                .collect::<Result<_, StoreError>>()?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            after = Some(last.clone());
            let mut change = self.change();
            for (key, kept) in &rows {
                let Some((due, entry)) = kept.entry(change.store.options.node) else { continue };
                let Some(crawl) = key.crawl() else { continue };
                let queue = QueueKey::new(crawl, &entry.url);
                let order = if change.store.options.replica {
                    kept.order(key)
                } else {
                    let sequence = change.next_sequence();
                    Order { priority: kept.record.priority, depth: kept.record.depth, sequence }
                };
                if due == 0 {
                    change.put_ready(&queue, order, &entry)?;
                } else {
                    change.put_due(&queue, order, due, &entry, !kept.is_closed())?;
                }
            }
            change.commit()?;
        }
    }
}
