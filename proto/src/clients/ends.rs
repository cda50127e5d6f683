//! How many leases are not over: counted by when they end, so that nobody has to walk them.
//!
//! A lease ends by itself, and nothing is written then. So the ends are counted in a tree: on the lowest level by the millisecond, on each level above in
//! spans that are 4,096 times as long. What ends later than a time is then, on every level, what ends in the spans behind the one of that time and within the same span
//! of the level above: a few ranges of counts, however many leases there are.

/// Levels of the tree.
pub const LEVELS: u8 = 4;
/// Spans in one of the level above, as a power of two.
const BITS: u32 = 12;
/// Later ends count as this one: those of leases that have none.
const LAST_MS: u64 = (1 << (LEVELS as u32 * BITS)) - 1;

/// A span of time: its level, and its place on that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Its level; the lowest is 0.
    pub level: u8,
    /// Its place among those of the level.
    pub place: u64,
}

/// The spans in which a lease that ends then is counted.
pub fn spans(end_ms: u64) -> impl Iterator<Item = Span> {
    let end_ms = end_ms.min(LAST_MS);
    (0..LEVELS).map(move |level| Span { level, place: end_ms >> (BITS * u32::from(level)) })
}

/// The spans whose counts add up to what ends later: first and last of each range.
pub fn later(now_ms: u64) -> impl Iterator<Item = (Span, Span)> {
    // What never ends is never over.
    let now_ms = now_ms.min(LAST_MS - 1);
    let ranges = spans(now_ms).map(|Span { level, place }| {
        let last = place | ((1 << BITS) - 1);
        (Span { level, place: place + 1 }, Span { level, place: last })
    });
    ranges.filter(|(first, last)| first.place <= last.place)
}

/// The span of leases that have no end.
pub fn endless() -> Span {
    Span { level: 0, place: LAST_MS }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::clients::fetch::own_lease;
    use crate::clients::gate::lease_until;

    fn count(ends: &[u64]) -> BTreeMap<Span, u64> {
        let mut counts = BTreeMap::new();
        ends.iter().flat_map(|end| spans(*end)).for_each(|span| *counts.entry(span).or_default() += 1);
        counts
    }

    fn not_over(counts: &BTreeMap<Span, u64>, now_ms: u64) -> u64 {
        later(now_ms).flat_map(|(first, last)| counts.range(first..=last)).map(|(_, count)| count).sum()
    }

    fn time() -> impl Strategy<Value = u64> {
        let edges = (0..4u32, 0..4u64, 0..3u64).prop_map(|(level, span, off)| ((span + 1) << (12 * level)) - 1 + off);
        prop_oneof![edges, 0..20_000u64, 1_700_000_000_000..1_700_100_000_000u64, 0..LAST_MS]
    }

    proptest! {
        #[test]
        fn what_ends_later_is_counted_whenever_it_is_asked(ends in proptest::collection::vec(time(), 0..60), now in time()) {
            let counts = count(&ends);
            for now in ends.iter().copied().chain([now]) {
                prop_assert_eq!(not_over(&counts, now), ends.iter().filter(|end| **end > now).count() as u64);
            }
        }
    }

    #[test]
    fn a_lease_of_the_nodes_is_never_over_and_the_longest_of_a_client_is_none_of_them() {
        let now = 1_800_000_000_000;
        let counts = count(&[own_lease(now), own_lease(0), lease_until(u32::MAX, now), now]);
        assert_eq!((not_over(&counts, now), not_over(&counts, u64::MAX), counts[&endless()]), (3, 2, 2));
    }
}
