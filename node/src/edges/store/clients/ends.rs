//! Counts of leases by when they end, beside the leases in `turn`: part 3 of a queue, level, place. They follow from the records of URLs and change in the same
//! batch, so how many leases live is read from a few rows. A lease that is over stays counted under its end until the record of its URL changes.

use proto::clients::ends::{Span, endless, later, spans};
use proto::clients::fetch::own_lease;
use proto::clients::identity::ClientQueueId;

use super::{Change, Line, Store, StoreError};

/// Part of a queue's rows in `turn`.
pub(super) const ENDS: u8 = 3;
/// Leases that are rather counted one by one.
const WALKED_MAX: u64 = 16;

/// Leases of a queue that are not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Living {
    /// Of clients.
    pub(super) clients: u64,
    /// Of the nodes' own fetchers.
    pub(super) own: u64,
}

fn key(queue: &ClientQueueId, Span { level, place }: Span) -> Vec<u8> {
    [queue.prefix(), &[ENDS, level], &place.to_be_bytes()].concat()
}

fn read(value: &[u8]) -> Result<u64, StoreError> {
    let count = value.try_into().map_err(|_| StoreError::damaged("turn", "a count of leases that is no number"))?;
    Ok(u64::from_be_bytes(count))
}

impl Store {
    /// Leases of a queue that are not over, by its line.
    pub(super) fn living(&self, queue: &ClientQueueId, line: &Line, now_ms: u64) -> Result<Living, StoreError> {
        if line.leased <= WALKED_MAX || !line.by_end {
            return self.living_by_walking(queue, now_ms);
        }
        self.living_by_end(queue, now_ms)
    }

    pub(super) fn living_by_end(&self, queue: &ClientQueueId, now_ms: u64) -> Result<Living, StoreError> {
        let mut all = 0u64;
        for (first, last) in later(now_ms) {
            let last = key(queue, last);
            let prefix = [queue.prefix(), &[ENDS, first.level]].concat();
            for row in self.rows("turn", key(queue, first), prefix) {
                let (key, count) = row?;
                if key.as_ref() > last.as_slice() {
                    break;
                }
                all = all.saturating_add(read(&count)?);
            }
        }
        let own = self.count_of_ends(&key(queue, endless()))?;
        Ok(Living { clients: all.saturating_sub(own), own })
    }

    pub(super) fn living_by_walking(&self, queue: &ClientQueueId, now_ms: u64) -> Result<Living, StoreError> {
        let mut living = Living::default();
        for end in self.ends_of_leases(queue, now_ms.saturating_add(1)) {
            *(if end? < own_lease(0) { &mut living.clients } else { &mut living.own }) += 1;
        }
        Ok(living)
    }

    /// When the leases of a queue end that stand in `turn` as such, from a time on.
    fn ends_of_leases(
        &self,
        queue: &ClientQueueId,
        from_ms: u64,
    ) -> impl Iterator<Item = Result<u64, StoreError>> + '_ {
        let prefix = [queue.prefix(), &[1]].concat();
        let start = [prefix.as_slice(), &from_ms.to_be_bytes()].concat();
        let at = prefix.len();
        self.rows("turn", start, prefix).map(move |row| {
            let ends = row?.0.get(at..).and_then(|rest| rest.first_chunk()).copied();
            ends.map(u64::from_be_bytes).ok_or_else(|| StoreError::damaged("turn", "a lease without an end"))
        })
    }

    fn count_of_ends(&self, key: &[u8]) -> Result<u64, StoreError> {
        let row = self.db.get_pinned_cf(&self.family("turn"), key).map_err(|error| self.failed(&error))?;
        row.map_or(Ok(0), |row| read(&row))
    }
}

impl Change<'_> {
    /// One lease more, or one less, ends then.
    pub(super) fn count_end(&mut self, queue: &ClientQueueId, end_ms: u64, change: i64) {
        for span in spans(end_ms) {
            *self.clients.ends.entry(key(queue, span)).or_default() += change;
        }
    }

    /// Leases of a queue that this change has touched, as they were before it.
    pub(super) fn living_before(&self, queue: &ClientQueueId, now_ms: u64) -> Result<Living, StoreError> {
        let before = self.clients.lines.get(queue).and_then(|touched| touched.before.as_ref());
        before.map_or(Ok(Living::default()), |line| self.store.living(queue, line, now_ms))
    }

    /// Counts the leases of a queue whose line is from before they were counted. One that is over and was put back long since is not among them; its
    /// count is missing in spans that nobody asks for any more.
    pub(super) fn count_ends_of(&mut self, queue: &ClientQueueId) -> Result<(), StoreError> {
        let ends: Vec<u64> = self.store.ends_of_leases(queue, 0).collect::<Result<_, _>>()?;
        ends.into_iter().for_each(|end_ms| self.count_end(queue, end_ms, 1));
        Ok(())
    }

    /// Writes the counts that this change has touched.
    pub(super) fn put_ends(&mut self) -> Result<(), StoreError> {
        for (key, change) in std::mem::take(&mut self.clients.ends) {
            if change == 0 {
                continue;
            }
            match self.store.count_of_ends(&key)?.saturating_add_signed(change) {
                0 => self.delete("turn", &key),
                count => self.rows.put("turn", &key, |row| {
                    row.extend_from_slice(&count.to_be_bytes());
                    Ok::<(), StoreError>(())
                })?,
            }
        }
        Ok(())
    }
}
