//! Where ranges of rows begin that are read from their beginning again and again, and lose their first rows each time: the turns of a queue, and the agenda of a
//! crawl. RocksDB walks past every row that was deleted and is not compacted away yet, so that whoever is served next would pay for all who were served before.
//!
//! A front is a lower bound: who reads notes the first row that is there, and a row that is put before it moves it back. Nothing is lost with it.

use std::collections::{BTreeMap, HashMap};

/// Ranges that are remembered, some 300 bytes each; with more, all are forgotten and noted again.
const RANGES_MAX: usize = 16_384;

/// A family, and what the keys of the range begin with.
type Range = (&'static str, Vec<u8>);

/// The fronts of all ranges.
#[derive(Default)]
pub(in crate::edges::store) struct Fronts(HashMap<Range, Vec<u8>>);

/// The first rows that a change has seen. What it puts itself is not among them.
#[derive(Default)]
pub(in crate::edges::store) struct Sightings(BTreeMap<Range, Vec<u8>>);

impl Sightings {
    /// The range has no row before this one, or none at all.
    pub(super) fn note(&mut self, family: &'static str, range: &[u8], first: Option<Vec<u8>>) {
        let none = || [range, &[0xff; 16]].concat();
        self.0.insert((family, range.to_vec()), first.unwrap_or_else(none));
    }
}

impl Fronts {
    /// From where on a range is to be read.
    pub(super) fn of(&self, family: &'static str, range: &[u8]) -> Vec<u8> {
        self.0.get(&(family, range.to_vec())).map_or_else(|| range.to_vec(), Clone::clone)
    }

    /// A change is over that has seen these rows and put rows with these keys.
    pub(in crate::edges::store) fn moved<'a>(
        &mut self,
        seen: Sightings,
        put: impl Iterator<Item = (&'static str, &'a [u8])>,
    ) {
        if self.0.len() + seen.0.len() > RANGES_MAX {
            self.0.clear();
        }
        self.0.extend(seen.0);
        if self.0.is_empty() {
            return;
        }
        for (family, key) in put {
            let Some(range) = range_of(family, key) else { continue };
            if let Some(front) = self.0.get_mut(&(family, range))
                && key < front.as_slice()
            {
                *front = key.to_vec();
            }
        }
    }
}

/// The first byte of all times behind the places of an agenda.
pub(super) const LATE: u8 = 0x80;

/// The range that a row belongs to: the crawl of `agenda`, and whether it is behind the places; slot, key, crawl and part of `turn`.
fn range_of(family: &str, key: &[u8]) -> Option<Vec<u8>> {
    let zeros_from =
        |from: usize| key.iter().enumerate().skip(from).filter(|(_, byte)| **byte == 0).map(|(at, _)| at + 1);
    let end = match family {
        "agenda" => zeros_from(0).next()?,
        "turn" => zeros_from(2).nth(1)? + 1,
        _ => return None,
    };
    let mut range = key.get(..end)?.to_vec();
    if family == "agenda" && key.get(end).is_some_and(|byte| *byte >= LATE) {
        range.push(LATE);
    }
    Some(range)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_those_of_the_keys() {
        assert_eq!(range_of("agenda", b"crawl\0\0\0\0\0\0\0\0\x01rest"), Some(b"crawl\0".to_vec()));
        assert_eq!(range_of("agenda", b"crawl\0\x80\0\0\0\0\0\0\x01rest"), Some(b"crawl\0\x80".to_vec()));
        let turn = range_of("turn", b"\0\0com.example\0crawl\0\x02date");
        assert_eq!(turn, Some(b"\0\0com.example\0crawl\0\x02".to_vec()));
        assert_eq!((range_of("turn", b"\0\0com.example\0crawl"), range_of("client", b"a\0b")), (None, None));
    }

    #[test]
    fn too_many_ranges_are_forgotten_and_not_kept() {
        let mut fronts = Fronts::default();
        for number in 0..2 * RANGES_MAX as u32 {
            let mut seen = Sightings::default();
            seen.note("agenda", &number.to_be_bytes(), None);
            fronts.moved(seen, std::iter::empty());
            assert!(fronts.0.len() <= RANGES_MAX);
        }
    }

    proptest! {
        /// Whatever changes put, delete and read, no row is ever before the front of its range.
        #[test]
        fn no_row_is_before_a_front(changes in proptest::collection::vec(
            proptest::collection::vec((0u8..3, 0u8..2, 0u8..40), 0..8), 0..40,
        )) {
            let (mut rows, mut fronts) = (std::collections::BTreeSet::new(), Fronts::default());
            for change in changes {
                let (mut put, mut gone, mut seen) = (Vec::new(), Vec::new(), Sightings::default());
                for (what, crawl, row) in change {
                    let range = [b'a' + crawl, 0];
                    let key = [range.as_slice(), &[row, 0]].concat();
                    match what {
                        0 => put.push(key),
                        1 => gone.push(key),
                        _ => {
                            let from = fronts.of("agenda", &range);
                            let first = rows.range(from..).find(|key: &&Vec<u8>| key.starts_with(&range)).cloned();
                            let really = rows.iter().find(|key| key.starts_with(&range)).cloned();
                            prop_assert_eq!(&first, &really);
                            seen.note("agenda", &range, first);
                        }
                    }
                }
                rows.retain(|key| !gone.contains(key));
                fronts.moved(seen, put.iter().map(|key| ("agenda", key.as_slice())));
                rows.extend(put);
            }
        }
    }
}
