//! Lanes: where runs of generators wait for a worker. Four channels, served from the first to the last: a lower one is touched only when all above are empty.
//!
//! | channel | priorities | where a run is put |
//! |---|---|---|
//! | very high | −1 | tail |
//! | high | 0, 1 | head, tail |
//! | medium | 2, 3 | head, tail |
//! | low | 4, 5 | head, tail |
//!
//! Every channel has a bound. A run whose channel is full is put at the head of the next lower one that has room; if there is none, at the tail of the next
//! higher one; if that is full too it is given back, and whoever wanted it must say so: nothing is dropped in silence.

use std::collections::VecDeque;

/// How many may wait in each channel, from the first on.
pub const LANES_MAX: [usize; 4] = [1_000, 2_000, 3_000, 4_000];
/// Names of the channels.
pub const LANES: [&str; 4] = ["very_high", "high", "medium", "low"];

/// How soon something is done: −1 is soonest, 5 last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i8);

impl Priority {
    /// What is meant if nothing is said.
    pub const DEFAULT: Priority = Priority(5);

    /// Takes a number from −1 to 5.
    pub fn new(number: i64) -> Option<Priority> {
        (-1..=5).contains(&number).then_some(Priority(number as i8))
    }

    /// The number.
    pub fn number(self) -> i8 {
        self.0
    }

    /// The channel, and whether its head.
    fn place(self) -> (usize, bool) {
        match self.0 {
            -1 => (0, false),
            number => (1 + number as usize / 2, number % 2 == 0),
        }
    }
}

/// Where something was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Which channel.
    pub lane: usize,
    /// In front of all others there.
    pub at_head: bool,
    /// Its own channel was full.
    pub overflowed: bool,
}

/// The lanes.
#[derive(Debug)]
pub struct Lanes<T> {
    lanes: [VecDeque<T>; 4],
    max: [usize; 4],
}

impl<T> Lanes<T> {
    /// Empty lanes with these bounds.
    pub fn new(max: [usize; 4]) -> Lanes<T> {
        Lanes { lanes: Default::default(), max }
    }

    /// Puts something where its priority says, or where there is room; gives it back if there is none.
    pub fn put(&mut self, priority: Priority, what: T) -> Result<Placed, T> {
        let (own, head) = priority.place();
        let has_room = |lane: usize| self.lanes[lane].len() < self.max[lane];
        let placed = if has_room(own) {
            Some(Placed { lane: own, at_head: head, overflowed: false })
        } else {
            let lower = (own + 1..4).find(|lane| has_room(*lane)).map(|lane| (lane, true));
            let higher = own.checked_sub(1).filter(|lane| has_room(*lane)).map(|lane| (lane, false));
            lower.or(higher).map(|(lane, at_head)| Placed { lane, at_head, overflowed: true })
        };
        match placed {
            None => Err(what),
            Some(placed) if placed.at_head => {
                self.lanes[placed.lane].push_front(what);
                Ok(placed)
            }
            Some(placed) => {
                self.lanes[placed.lane].push_back(what);
                Ok(placed)
            }
        }
    }

    /// The next to be done.
    pub fn take(&mut self) -> Option<T> {
        self.lanes.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Takes out what `is_it`; says whether there was something.
    pub fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> bool {
        let before = self.len();
        self.lanes.iter_mut().for_each(|lane| lane.retain(|what| !is_it(what)));
        self.len() < before
    }

    /// How many wait in each channel.
    pub fn lengths(&self) -> [usize; 4] {
        std::array::from_fn(|lane| self.lanes[lane].len())
    }

    /// Everything that waits, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.lanes.iter().flatten()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.lengths().iter().sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn priority(number: i64) -> Priority {
        Priority::new(number).unwrap()
    }

    #[test]
    fn each_priority_has_its_channel_and_its_end() {
        let mut lanes = Lanes::new(LANES_MAX);
        let places: Vec<(usize, bool)> = (-1..=5)
            .map(|number| lanes.put(priority(number), number).unwrap())
            .map(|placed| (placed.lane, placed.at_head))
            .collect();
        assert_eq!(places, [(0, false), (1, true), (1, false), (2, true), (2, false), (3, true), (3, false)]);
        for number in [0, 1] {
            lanes.put(priority(number), 10 + number).unwrap();
        }
        let order: Vec<i64> = std::iter::from_fn(|| lanes.take()).collect();
        assert_eq!(order, [-1, 10, 0, 1, 11, 2, 3, 4, 5], "heads before tails, higher before lower");
        assert!(Priority::new(6).is_none() && Priority::new(-2).is_none() && lanes.is_empty());
    }

    #[test]
    fn what_overflows_goes_down_to_heads_then_up_to_a_tail_then_back() {
        let mut lanes = Lanes::new([1, 1, 1, 1]);
        let mut put = |number: i64| lanes.put(priority(number), number).map(|placed| (placed.lane, placed.at_head));
        assert_eq!((put(1), put(1)), (Ok((1, false)), Ok((2, true))), "down to a head");
        assert_eq!((put(1), put(1)), (Ok((3, true)), Ok((0, false))), "all below are full: up to a tail");
        assert_eq!(put(1), Err(1), "given back");
        assert_eq!((put(-1), put(5)), (Err(-1), Err(5)), "nothing is above the first, and only the next is tried");
    }

    proptest! {
        #[test]
        fn everything_is_served_or_given_back_and_bounds_hold(
            max in proptest::array::uniform4(0..4usize), ops in proptest::collection::vec(proptest::option::of(-1..=5i64), 0..60),
        ) {
            let mut lanes = Lanes::new(max);
            let (mut put, mut refused, mut taken) = (0, 0, 0);
            for op in ops {
                match op {
                    Some(number) => {
                        let before = lanes.lengths();
                        let (own, _) = priority(number).place();
                        match lanes.put(priority(number), put) {
                            Ok(placed) => {
                                prop_assert!(!placed.overflowed || before[own] >= max[own]);
                                prop_assert!(placed.lane + 1 >= own);
                            }
                            Err(_) => {
                                refused += 1;
                                prop_assert!((own.saturating_sub(1)..4).all(|lane| before[lane] >= max[lane]));
                            }
                        }
                        put += 1;
                    }
                    None => taken += usize::from(lanes.take().is_some()),
                }
                prop_assert!(lanes.lengths().iter().zip(max).all(|(length, max)| *length <= max));
            }
            prop_assert_eq!(put, refused + taken + lanes.len());
        }
    }
}
