//! URLs that this node's disk has and too few others have: they were handed in, could not be kept on enough disks, and the client was told so. Handed in again they
//! would be known here, and that must not be said before enough disks have them.

use std::collections::{BTreeMap, VecDeque};

use proto::clients::ask::Item;
use proto::clients::identity::ClientQueueId;
use proto::cluster::copy::RecordCopy;
use proto::key::UrlKey;

/// Copies that are remembered; beyond, the oldest are forgotten, and left to repair.
const COPIES_MAX: usize = 16_384;

/// What was not kept on enough disks.
#[derive(Debug, Default)]
pub(super) struct Doubtful {
    copies: BTreeMap<UrlKey, RecordCopy>,
    /// Oldest first; some may be settled by now.
    order: VecDeque<UrlKey>,
}

impl Doubtful {
    /// The copies of those items that were merely found, by their places.
    pub(super) fn among(&self, items: &[Item]) -> BTreeMap<usize, RecordCopy> {
        if self.copies.is_empty() {
            return BTreeMap::new();
        }
        let copy = |item: &Item| self.copies.get(&ClientQueueId::new(&item.crawl, &item.key).url(&item.url)).cloned();
        let found = items.iter().enumerate().filter(|(_, item)| item.date_s.is_none());
        found.filter_map(|(place, item)| Some((place, copy(item)?))).collect()
    }

    /// These could not be kept.
    pub(super) fn add(&mut self, copies: Vec<RecordCopy>) {
        for copy in copies {
            if self.copies.insert(copy.key.clone(), copy.clone()).is_none() {
                self.order.push_back(copy.key);
            }
        }
        while self.order.len() > COPIES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.copies.remove(&oldest);
        }
    }

    /// These are kept now.
    pub(super) fn settle(&mut self, copies: &[RecordCopy]) {
        if !self.copies.is_empty() {
            copies.iter().for_each(|copy| drop(self.copies.remove(&copy.key)));
        }
        if self.copies.is_empty() {
            self.order.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::clients::record::ClientUrl;

    use super::*;

    fn item(url: usize, date_s: Option<u64>) -> Item {
        Item { crawl: "c".into(), key: "k".into(), url: url.to_string(), metadata: Vec::new(), date_s }
    }

    fn copy(url: usize) -> RecordCopy {
        let record = ClientUrl { url: url.to_string(), date_s: 1, ..ClientUrl::default() };
        record.copy(ClientQueueId::new("c", "k").url(&record.url)).unwrap()
    }

    #[test]
    fn what_was_not_kept_is_in_doubt_until_it_is() {
        let mut doubtful = Doubtful::default();
        doubtful.add(vec![copy(1), copy(2)]);
        let items = [item(2, None), item(3, None), item(1, Some(7))];
        assert_eq!(doubtful.among(&items), [(0, copy(2))].into(), "what is said of a known URL is written anyway");
        doubtful.settle(&[copy(2)]);
        assert_eq!(doubtful.among(&items), BTreeMap::new());
        doubtful.settle(&[copy(1)]);
        assert!(doubtful.order.is_empty());
    }

    #[test]
    fn doubts_are_bounded() {
        let mut doubtful = Doubtful::default();
        (0..3).for_each(|_| doubtful.add((0..COPIES_MAX + 5).map(copy).collect()));
        assert_eq!((doubtful.copies.len(), doubtful.order.len()), (COPIES_MAX, COPIES_MAX));
        assert_eq!(doubtful.among(&[item(COPIES_MAX, None)]).len(), 1, "the newest are there");
    }
}
