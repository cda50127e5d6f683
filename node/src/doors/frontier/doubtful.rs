//! URLs that this node's disk has and too few others have: they were handed in, could not be kept on enough disks, and the client was told so. Handed in again they
//! would be known here, and that must not be said before enough disks have them.

use std::collections::BTreeMap;

use proto::clients::ask::Item;
use proto::clients::identity::ClientQueueId;
use proto::cluster::copy::RecordCopy;
use proto::key::UrlKey;

/// Bytes of copies that are remembered; beyond, the oldest are forgotten, and left to repair.
const BYTES_MAX: usize = 16 << 20;
/// What remembering a copy takes beside its own bytes: its key once more, and places in two maps.
const PLACE_BYTES: usize = 256;

/// What was not kept on enough disks.
#[derive(Debug, Default)]
pub(super) struct Doubtful {
    /// Each with when it came.
    copies: BTreeMap<UrlKey, (u64, RecordCopy)>,
    /// Oldest first.
    order: BTreeMap<u64, UrlKey>,
    came: u64,
    bytes: usize,
}

impl Doubtful {
    /// The copies of those items that were merely found, by their places.
    pub(super) fn among(&self, items: &[Item]) -> BTreeMap<usize, RecordCopy> {
        if self.copies.is_empty() {
            return BTreeMap::new();
        }
        let copy =
            |item: &Item| Some(self.copies.get(&ClientQueueId::new(&item.crawl, &item.key).url(&item.url))?.1.clone());
        let found = items.iter().enumerate().filter(|(_, item)| item.date_s.is_none());
        found.filter_map(|(place, item)| Some((place, copy(item)?))).collect()
    }

    /// These could not be kept.
    pub(super) fn add(&mut self, copies: Vec<RecordCopy>) {
        for copy in copies {
            self.forget(&copy.key);
            self.came += 1;
            self.bytes += bytes(&copy);
            self.order.insert(self.came, copy.key.clone());
            self.copies.insert(copy.key.clone(), (self.came, copy));
        }
        while self.bytes > BYTES_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.forget(&oldest);
        }
    }

    /// These are kept now.
    pub(super) fn settle(&mut self, copies: &[RecordCopy]) {
        if !self.copies.is_empty() {
            copies.iter().for_each(|copy| self.forget(&copy.key));
        }
    }

    fn forget(&mut self, key: &UrlKey) {
        if let Some((came, copy)) = self.copies.remove(key) {
            self.order.remove(&came);
            self.bytes -= bytes(&copy);
        }
    }
}

fn bytes(copy: &RecordCopy) -> usize {
    copy.bytes() + copy.key.as_bytes().len() + PLACE_BYTES
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
        assert_eq!((doubtful.order.len(), doubtful.bytes), (0, 0));
    }

    fn large(url: usize, bytes: usize) -> RecordCopy {
        let words = vec![("words".to_owned(), vec!["x".repeat(bytes)])];
        let record = ClientUrl { url: url.to_string(), date_s: 1, metadata: words, ..ClientUrl::default() };
        record.copy(ClientQueueId::new("c", "k").url(&record.url)).unwrap()
    }

    #[test]
    fn doubts_are_bounded_by_their_bytes() {
        for length in [0, 1_000, 60_000] {
            let (mut doubtful, most) = (Doubtful::default(), BYTES_MAX / (length + PLACE_BYTES) + 1);
            (0..3).for_each(|_| doubtful.add((0..most).map(|url| large(url, length)).collect()));
            let count = doubtful.copies.len();
            assert!(count < most && doubtful.order.len() == count, "{count} of {most}");
            assert_eq!(doubtful.bytes, doubtful.copies.values().map(|(_, copy)| bytes(copy)).sum::<usize>());
            assert!((BYTES_MAX - 2 * length - 1_000..=BYTES_MAX).contains(&doubtful.bytes), "{}", doubtful.bytes);
            assert_eq!(doubtful.among(&[item(most - 1, None), item(0, None)]).len(), 1, "the newest are there");
        }
    }

    #[test]
    fn what_was_settled_and_is_doubtful_again_is_the_newest_once() {
        let mut doubtful = Doubtful::default();
        doubtful.add(vec![copy(1), copy(2)]);
        doubtful.settle(&[copy(1)]);
        doubtful.add(vec![copy(1)]);
        doubtful.add(vec![copy(2), copy(1)]);
        assert_eq!((doubtful.copies.len(), doubtful.order.len()), (2, 2));
        // As if others had taken all room but for two such.
        doubtful.bytes += BYTES_MAX - 2 * bytes(&copy(1));
        doubtful.add(vec![copy(3)]);
        assert_eq!(doubtful.among(&[item(1, None), item(2, None), item(3, None)]), [(0, copy(1)), (2, copy(3))].into());
    }
}
