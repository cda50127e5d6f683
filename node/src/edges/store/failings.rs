//! What URLs of each crawl failed of, and when last: rows of `meta`, from which a site's mask of errors is made.
//!
//! Every replica of a record writes down what it sees of it. Of two that saw the same the later time counts, so it does not matter who holds a slot, and who is asked.

use std::collections::BTreeMap;

use proto::error_mask::ErrorTimes;
use proto::record::UrlRecord;

use super::change::Change;
use super::{Store, StoreError};

const PREFIX: &[u8] = b"failings/";

fn row_key(crawl: &str) -> Vec<u8> {
    [PREFIX, crawl.as_bytes()].concat()
}

impl Store {
    /// What URLs failed of, by crawl.
    pub fn failings(&self) -> Result<BTreeMap<String, ErrorTimes>, StoreError> {
        let mut failings = BTreeMap::new();
        for row in self.rows("meta", PREFIX.to_vec(), PREFIX.to_vec()) {
            let (key, value) = row?;
            let crawl = String::from_utf8_lossy(&key[PREFIX.len()..]).into_owned();
            let times = proto::wire::decode(&value).map_err(|error| StoreError::damaged("meta", error))?;
            failings.insert(crawl, times);
        }
        Ok(failings)
    }
}

impl Change<'_> {
    /// A record says what its URL failed of.
    pub(super) fn see_failing(&mut self, crawl: &str, record: &UrlRecord) {
        if let Some(found) = record.findings.as_ref().filter(|_| !record.error_mask.is_empty()) {
            if !self.failings.contains_key(crawl) {
                self.failings.insert(crawl.to_owned(), ErrorTimes::default());
            }
            if let Some(times) = self.failings.get_mut(crawl) {
                times.see(record.error_mask, found.crawled_at);
            }
        }
    }

    /// Writes down what is new of what this change saw.
    pub(super) fn put_failings(&mut self) -> Result<(), StoreError> {
        for (crawl, seen) in std::mem::take(&mut self.failings) {
            let key = row_key(&crawl);
            let mut times: ErrorTimes = self.get("meta", &key)?.unwrap_or_default();
            if times.merge(&seen) {
                self.put("meta", &key, &times)?;
            }
        }
        Ok(())
    }

    /// Forgets the crawls of sites that are gone.
    pub(super) fn sweep_failings(&mut self) -> Result<(), StoreError> {
        let gone = |crawl: &String| self.store.gone.as_ref().is_some_and(|gone| gone.has(crawl));
        let dead: Vec<String> = self.store.failings()?.into_keys().filter(gone).collect();
        self.failings.retain(|crawl, _| !dead.contains(crawl));
        dead.iter().for_each(|crawl| self.delete("meta", &row_key(crawl)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::cluster::copy::{Kept, RecordCopy};
    use proto::error_mask::{ErrorBit, ErrorMask};
    use proto::id::NodeId;
    use proto::key::UrlKey;
    use proto::record::{Findings, Status, UrlState};
    use proto::url::{CanonicalUrl, UrlRules};

    use super::super::StoreOptions;
    use super::*;
    use proto::batch::{Discovered, EntryKind};

    fn failed(crawl: &str, path: &str, bit: ErrorBit, crawled_at: u64) -> RecordCopy {
        let url = CanonicalUrl::parse(&format!("http://a.example/{path}"), &UrlRules::default()).unwrap();
        let found = Discovered { url, kind: EntryKind::Page, depth: 0, priority: 1, redirects: 0 };
        let mut kept = Kept::discovered(&found, None, 5, NodeId(1));
        kept.record.progress.status = Status::Crawled;
        kept.record.state = UrlState::Error;
        kept.record.error_mask = bit.mask();
        kept.record.findings = Some(Box::new(Findings { crawled_at, ..Findings::default() }));
        RecordCopy::new(UrlKey::new(crawl, &found.url), &kept).unwrap()
    }

    #[test]
    fn what_urls_failed_of_is_known_after_a_start_by_crawl_and_time() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Store::open(dir.path(), StoreOptions { replica: true, ..StoreOptions::default() }).unwrap();
        let mut store = open();
        for copies in [
            vec![failed("news", "1", ErrorBit::Http, 10), failed("news", "2", ErrorBit::Timeout, 20)],
            vec![failed("news", "3", ErrorBit::Http, 7), failed("shop", "1", ErrorBit::Robots, 5)],
        ] {
            let mut change = store.change();
            change.merge(copies, 1).unwrap();
            change.commit().unwrap();
        }
        drop(store);
        let failings = open().failings().unwrap();
        let of = |crawl: &str, since: u64| failings[crawl].since(since);
        let mask = |bits: &[ErrorBit]| bits.iter().copied().collect::<ErrorMask>();
        assert_eq!(failings.len(), 2);
        assert_eq!(of("news", 0), mask(&[ErrorBit::Http, ErrorBit::Timeout]));
        assert_eq!((of("news", 11), of("news", 21)), (mask(&[ErrorBit::Timeout]), ErrorMask::NONE));
        assert_eq!(of("shop", 5), mask(&[ErrorBit::Robots]));
    }
}
