//! Next rounds when the recrawl period is another than that of the run before: what waits is put up anew by the new one.

use proto::batch::{Entry, EntryKind, Pick};
use proto::crawl::outcome::next_round;
use proto::crawl::retry::Failure;
use proto::key::{Order, QueueKey, UrlKey};
use proto::record::{Status, UrlState};
use proto::url::CanonicalUrl;
use proto::wire;

use super::{Store, StoreError};

/// Rows looked at in one batch.
const ROWS_PER_CHANGE: usize = 4_096;

impl Store {
    /// Puts every page up for its next round by the period that the store was opened with, if it was another before: a page
    /// that was crawled longer ago than that is due at once. Without a period no next round waits. One pass over the records,
    /// in batches; a kill in between has the next start do it again.
    pub(super) fn reschedule_rounds(&mut self) -> Result<(), StoreError> {
        let period = self.options.recrawl_period_ms;
        let before = self.read_meta::<Option<u64>>("recrawl")?.unwrap_or_default();
        if period == before {
            return Ok(());
        }
        tracing::info!(?before, ?period, "next rounds are put up anew");
        self.drop_rounds()?;
        if period.is_some() {
            self.put_rounds()?;
        }
        self.write_meta("recrawl", &period)
    }

    fn drop_rounds(&mut self) -> Result<(), StoreError> {
        let mut after = Vec::new();
        while self.state.places.recrawls > 0 {
            let rows = self.rows_after("due", &after, ROWS_PER_CHANGE)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            after.clone_from(last);
            let mut change = self.change();
            for (key, value) in rows {
                let (retry, _): (bool, Entry) =
                    wire::decode(&value).map_err(|error| StoreError::damaged("due", error))?;
                if !retry {
                    change.delete("due", &key);
                    change.store.state.places.recrawls -= 1;
                }
            }
            change.commit()?;
        }
        Ok(())
    }

    fn put_rounds(&mut self) -> Result<(), StoreError> {
        let mut after = Vec::new();
        loop {
            let rows = self.rows_after("url", &after, ROWS_PER_CHANGE)?;
            let Some((last, _)) = rows.last() else { return Ok(()) };
            after.clone_from(last);
            let stored: Vec<_> = rows.iter().map(|(key, value)| self.stored(key, value)).collect::<Result<_, _>>()?;
            let mut change = self.change();
            for row in stored {
                let (key, record) = (row.key, row.record);
                let Some(found) = record.findings.as_deref() else { continue };
                // What is set aside has its own way back; what is open has a place.
                let aside = record.state == UrlState::Disabled || found.failure == Some(Failure::AddressRefused);
                if aside || !matches!(record.progress.status, Status::Crawled | Status::Processed) {
                    continue;
                }
                let crawled_at = found.crawled_at;
                let pick = change.pick_of(&key, &record)?;
                if let Some((at, entry)) = next_round(&record, &pick, crawled_at, &change.store.rules) {
                    change.put_due(&pick.queue, pick.order, at, &entry, false)?;
                }
            }
            if !change.is_empty() {
                change.commit()?;
            }
        }
    }
}

impl super::Change<'_> {
    /// The place that a URL takes in its queue when nothing of a former place is left.
    fn pick_of(&mut self, key: &UrlKey, record: &proto::record::UrlRecord) -> Result<Pick, StoreError> {
        let damaged = |reason: &str| StoreError::damaged("url", reason);
        let url = CanonicalUrl::from_canonical(record.url.clone()).map_err(|error| damaged(&error.to_string()))?;
        let crawl = key.crawl().ok_or_else(|| damaged("a key without a crawl"))?;
        let kind = if record.priority == u16::MAX { EntryKind::Sitemap } else { EntryKind::Page };
        Ok(Pick {
            flight: 0,
            queue: QueueKey::new(crawl, &url),
            order: Order { priority: record.priority, depth: record.depth, sequence: self.next_sequence() },
            entry: Entry { url, kind, progress: record.progress, redirects: 0, validators: None },
        })
    }
}
