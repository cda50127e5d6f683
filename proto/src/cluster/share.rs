//! Limits that hold for the whole cluster: who may do how much of what all nodes together may do only so often.
//!
//! A node counts what is done in its slots, and *speaks for* some more, which it may do before it counts again. What it says (done and spoken for together) goes to every
//! other node with the comparison of definitions, and each of those says back which of its sayings it heard last. More than before counts only when **every other node has said that
//! it heard of it**, and all that they said with that leaves room for it. So two never use the same last page: one of them heard of the other before it said so, or it said what it
//! uses itself along with it. Whoever hears of too much gives way, and tries again after a while that is its own.
//!
//! **Slots** are counted by who serves them, so a page may be counted by nobody while its slot changes hands, or by two. So each node says which slots it counted (as a sum of
//! hashes), and nobody speaks for more unless all slots are counted exactly once, so that nobody else can hold one. When a node's own slots changed, nothing of what it spoke for is left, and the others hear of what is in flight.
//!
//! **Who is not heard of** is believed to use what it spoke for until its leases have lapsed, and nobody speaks for more until then. So on no side of a partition is
//! more done than what its nodes spoke for before; the price is that a limited crawl pauses until its slots are with those who hear each other.

use std::collections::{BTreeMap, BTreeSet};

use super::mutant::{Planted, planted};
use super::slot_set::SlotSet;
use crate::crawl::politeness::Micros;
use crate::id::{NodeId, Slot};

/// Names of what is no count of something. No crawl's name has such a letter.
const NUMBER: &str = "\u{2}number";
const HEARD: &str = "\u{2}heard";
const SLOTS: &str = "\u{2}slots";
/// Counts for which who gave way waits, at most.
const WAITS_MAX: u64 = 4;

/// What was counted of something that is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// What all nodes together may do.
    pub limit: u64,
    /// What is done in the slots that were counted.
    pub here: u64,
    /// What is being done and not counted yet.
    pub under_way: u64,
    /// There is more to do.
    pub wants_more: bool,
}

/// What a node may do of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// So much more than was counted.
    pub left: u64,
    /// What nobody has done or speaks for, as far as we heard.
    pub rest: u64,
}

/// The cluster as a node that counts sees it.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Who is alive. They have to hear of what is spoken for, and so have all from whom there was a word until their leases have lapsed.
    pub alive: &'a BTreeSet<NodeId>,
    /// After so long without a word the leases of a node have lapsed.
    pub lapse: Micros,
    /// The slots that there are.
    pub slots: &'a SlotSet,
}

/// What a node said last.
#[derive(Clone, Debug, Default)]
struct Heard {
    at: Micros,
    /// Its number; 0 if it is an older program, which numbers nothing and hears of nothing.
    number: u64,
    /// What it heard of us last.
    of_us: u64,
    /// The slots that it counted.
    slots: u64,
    /// What it has done and speaks for.
    said: BTreeMap<String, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mine {
    /// What is done and spoken for, from this saying on.
    said: u64,
    since: u64,
    /// That of it which all others have heard of.
    used: u64,
    /// What the others are told: never less than what is done and under way.
    told: u64,
    /// Counts to wait before more is spoken for.
    waits: u64,
}

/// What one node speaks for, and what it heard of the others.
pub struct Speaking {
    me: NodeId,
    planted: Planted,
    /// Numbers what is said, over all lives.
    number: u64,
    slots: u64,
    mine: BTreeMap<String, Mine>,
    others: BTreeMap<NodeId, Heard>,
    /// There is something that the others have not been told.
    news: bool,
}

fn sum_of(slots: &SlotSet) -> u64 {
    let hash = |slot: Slot| xxhash_rust::xxh3::xxh3_64(&slot.0.to_le_bytes());
    slots.iter().fold(0, |sum: u64, slot| sum.wrapping_add(hash(slot)))
}

impl Speaking {
    /// A node that has said nothing in this life.
    pub fn new(me: NodeId, boot: u32, planted: Planted) -> Speaking {
        let number = u64::from(boot) << 32;
        Speaking { me, planted, number, slots: 0, mine: BTreeMap::new(), others: BTreeMap::new(), news: false }
    }

    /// Whether there is something that the others have not been told; from now on it counts as told.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// What to tell another node.
    pub fn tell(&mut self, to: NodeId) -> Vec<(String, u64)> {
        self.number += 1;
        let heard = self.others.get(&to).map_or(0, |heard| heard.number);
        let about = [(NUMBER, self.number), (HEARD, heard), (SLOTS, self.slots)];
        let about = about.map(|(name, number)| (name.to_owned(), number));
        about.into_iter().chain(self.mine.iter().map(|(what, mine)| (what.clone(), mine.told))).collect()
    }

    /// Another node said something; says whether it speaks for more than before, and waits to hear that we heard it.
    pub fn hear(&mut self, now: Micros, from: NodeId, told: Vec<(String, u64)>) -> bool {
        let mut heard = Heard { at: now, ..Heard::default() };
        for (what, count) in told {
            match what.as_str() {
                NUMBER => heard.number = count,
                HEARD => heard.of_us = count,
                SLOTS => heard.slots = count,
                _ => drop(heard.said.insert(what, count)),
            }
        }
        let known = self.others.get(&from);
        // Letters overtake each other.
        if known.is_some_and(|known| known.number > heard.number) {
            return false;
        }
        let before = |what: &String| known.and_then(|known| known.said.get(what)).copied().unwrap_or(0);
        let more = heard.said.iter().any(|(what, said)| *said > before(what));
        self.others.insert(from, heard);
        more
    }

    /// Whether every other node has said that it heard what we said under this number. An older program cannot say so.
    fn all_heard(&self, around: &Around<'_>, number: u64) -> bool {
        let heard =
            |node: &NodeId| self.others.get(node).is_some_and(|heard| heard.number == 0 || heard.of_us >= number);
        around.alive.iter().chain(self.others.keys()).filter(|node| **node != self.me).all(heard)
    }

    /// Whether all slots are counted, each once, as far as we heard.
    fn is_complete(&self, around: &Around<'_>) -> bool {
        let older = self.others.values().any(|heard| heard.number == 0);
        let sum = self.others.values().fold(self.slots, |sum, heard| sum.wrapping_add(heard.slots));
        older || sum == sum_of(around.slots)
    }

    /// Takes in what was counted in `slots`, and gives what may be done of each before the next count; what is under way comes out of that.
    pub fn count(
        &mut self,
        now: Micros,
        around: &Around<'_>,
        slots: &SlotSet,
        counted: &BTreeMap<String, Counted>,
    ) -> BTreeMap<String, Allowed> {
        self.others.retain(|node, heard| around.alive.contains(node) || now < heard.at + around.lapse);
        let sum = sum_of(slots);
        let same_slots = std::mem::replace(&mut self.slots, sum) == sum;
        let complete = self.is_complete(around);
        self.news |= !same_slots;
        let former = std::mem::take(&mut self.mine);
        let mut left = BTreeMap::new();
        for (what, is) in counted {
            let mine = former.get(what).copied().unwrap_or_default();
            let mine = self.speak(around, what, is, mine, same_slots, complete);
            let rest = is.limit.saturating_sub(mine.told.saturating_add(self.said_by_others(what).0));
            left.insert(what.clone(), Allowed { left: mine.used.saturating_sub(is.here), rest });
            self.news |= former.get(what).map(|former| former.told) != Some(mine.told);
            self.mine.insert(what.clone(), mine);
        }
        left
    }

    /// What other nodes have done and speak for together, and how many of them do.
    fn said_by_others(&self, what: &str) -> (u64, u64) {
        let said = self.others.values().filter_map(|heard| heard.said.get(what));
        said.fold((0, 0), |(sum, count), said| (sum.saturating_add(*said), count + 1))
    }

    fn speak(
        &self,
        around: &Around<'_>,
        what: &str,
        is: &Counted,
        mut mine: Mine,
        same_slots: bool,
        complete: bool,
    ) -> Mine {
        let (theirs, speakers) = self.said_by_others(what);
        let contenders = speakers + 1;
        let set = |mine: &mut Mine, to: u64| (mine.said, mine.used) = (to, to);
        if !same_slots {
            set(&mut mine, is.here);
        }
        mine.used = mine.used.max(is.here);
        mine.said = mine.said.max(mine.used);
        let waits_for_word = |mine: &Mine| mine.said > mine.used;
        let too_much = |mine: &Mine| mine.said.saturating_add(theirs) > is.limit;
        if waits_for_word(&mine) && too_much(&mine) {
            // Somebody else speaks for the same.
            mine.said = mine.used;
            let chance = xxhash_rust::xxh3::xxh3_64(&(self.me.0 ^ self.number.rotate_left(32)).to_le_bytes());
            mine.waits = 1 + chance % WAITS_MAX;
        } else if !waits_for_word(&mine) && !is.wants_more {
            set(&mut mine, is.here);
        } else if !waits_for_word(&mine) && mine.used.saturating_add(theirs) >= is.limit {
            // Nothing is left for whoever may need it more than we do.
            let half = is.here + (mine.used - is.here).div_ceil(2);
            set(&mut mine, half);
        } else if !waits_for_word(&mine) && complete {
            let rest = is.limit.saturating_sub(is.here.saturating_add(theirs));
            let fair = is.here + rest.div_ceil(contenders);
            mine.waits = mine.waits.saturating_sub(1);
            if fair > mine.used && mine.waits == 0 {
                (mine.said, mine.since) = (fair, self.number + 1);
            }
        }
        let heard = self.all_heard(around, mine.since) || planted!(self.planted, SpokenForIsUsed);
        if waits_for_word(&mine) && heard && !too_much(&mine) {
            mine.used = mine.said;
        }
        // A page that lands is done before it is no longer under way: what is told may be more than there is, never less.
        mine.told = mine.said.max(is.here.saturating_add(is.under_way));
        mine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NODES: u64 = 4;
    const LAPSE: Micros = 100;

    /// From whom, to whom, and what is said of which crawl.
    type Letter = (u64, u64, Vec<(String, u64)>);

    /// Nodes that count, over a network that the test orders. Each serves a slot, and has as much to do as it gets.
    struct World {
        nodes: Vec<Speaking>,
        done: Vec<u64>,
        left: Vec<u64>,
        letters: Vec<Letter>,
        alive: BTreeSet<NodeId>,
        slots: SlotSet,
        limit: u64,
        now: Micros,
    }

    impl World {
        fn new(limit: u64, planted: Planted) -> World {
            World {
                nodes: (0..NODES).map(|node| Speaking::new(NodeId(node), 1, planted)).collect(),
                done: vec![0; NODES as usize],
                left: vec![0; NODES as usize],
                letters: Vec::new(),
                alive: (0..NODES).map(NodeId).collect(),
                slots: (0..NODES as u16).map(Slot).collect(),
                limit,
                now: 0,
            }
        }

        fn count(&mut self, node: u64) {
            let at = node as usize;
            let around = Around { alive: &self.alive, lapse: LAPSE, slots: &self.slots };
            let is = Counted { limit: self.limit, here: self.done[at], under_way: 0, wants_more: true };
            let counted = [("news".to_owned(), is)].into_iter().collect();
            let mine: SlotSet = [Slot(node as u16)].into_iter().collect();
            self.left[at] = self.nodes[at].count(self.now, &around, &mine, &counted)["news"].left;
        }

        fn say(&mut self, node: u64) {
            for to in (0..NODES).filter(|to| *to != node) {
                let told = self.nodes[node as usize].tell(NodeId(to));
                self.letters.push((node, to, told));
            }
        }

        fn deliver(&mut self, which: usize) {
            let (from, to, told) = self.letters.remove(which % self.letters.len());
            self.nodes[to as usize].hear(self.now, NodeId(from), told);
        }

        fn work(&mut self, node: u64, most: u64) {
            let at = node as usize;
            let work = most.min(self.left[at]);
            self.done[at] += work;
            self.left[at] -= work;
        }

        fn total(&self) -> u64 {
            self.done.iter().sum()
        }

        /// Everybody counts, works and hears all.
        fn round(&mut self, most: u64) {
            for node in 0..NODES {
                self.count(node);
                self.work(node, most);
                self.say(node);
            }
            while !self.letters.is_empty() {
                self.deliver(0);
            }
        }
    }

    #[test]
    fn a_limit_is_reached_and_not_passed() {
        for limit in [1, 2, 3, 10, 1_000] {
            let mut world = World::new(limit, Planted::default());
            (0..400).for_each(|_| world.round(5));
            assert_eq!(world.total(), limit);
        }
    }

    #[test]
    fn who_has_nothing_more_to_do_leaves_it_to_the_others() {
        let mut world = World::new(40, Planted::default());
        for _ in 0..100 {
            world.round(0);
        }
        for _ in 0..400 {
            world.round(0);
            world.work(2, 5);
        }
        assert!(world.total() >= 36, "the others keep no more than one each: {:?}", world.done);
    }

    #[test]
    fn without_a_word_from_one_nobody_speaks_for_more() {
        let mut world = World::new(100, Planted::default());
        (0..6).for_each(|_| world.round(0));
        let spoken: u64 = world.left.iter().sum();
        assert!(spoken > 0 && spoken <= 100, "{spoken}");
        for _ in 0..50 {
            for node in 0..NODES {
                world.count(node);
                world.work(node, 9);
                world.say(node);
            }
            world.letters.retain(|(from, to, _)| *from != 3 && *to != 3);
            while !world.letters.is_empty() {
                world.deliver(0);
            }
        }
        assert!(world.total() <= 100);
        let (before, cut_off) = (world.total(), world.done[3]);
        // It has no place any more, and its leases have lapsed; whoever took its slot counts what it did.
        world.alive.remove(&NodeId(3));
        world.now += LAPSE;
        world.done[0] += cut_off;
        world.slots.remove(Slot(3));
        for _ in 0..100 {
            for node in 0..3 {
                world.count(node);
                world.work(node, 9);
                world.say(node);
            }
            world.letters.retain(|(_, to, _)| *to != 3);
            while !world.letters.is_empty() {
                world.deliver(0);
            }
        }
        assert_eq!(world.total() - cut_off, 100, "{before} before");
    }

    #[test]
    fn while_slots_change_hands_nobody_speaks_for_more() {
        let mut world = World::new(100, Planted::default());
        (0..3).for_each(|_| world.round(0));
        let around = Around { alive: &world.alive.clone(), lapse: LAPSE, slots: &world.slots.clone() };
        let is = Counted { limit: 100, here: 0, under_way: 2, wants_more: true };
        let counted = [("news".to_owned(), is)].into_iter().collect();
        let none = SlotSet::default();
        for _ in 0..2 {
            assert_eq!(world.nodes[0].count(0, &around, &none, &counted)["news"].left, 0, "nothing more is begun");
            assert_eq!(world.nodes[0].mine["news"].told, 2, "and the others hear of what is in flight");
        }
    }

    #[test]
    fn a_saying_that_was_overtaken_changes_nothing() {
        let mut world = World::new(100, Planted::default());
        world.round(0);
        let old = world.nodes[0].tell(NodeId(1));
        (0..4).for_each(|_| world.round(1));
        let before = world.nodes[1].others[&NodeId(0)].said.clone();
        assert!(!world.nodes[1].hear(0, NodeId(0), old));
        assert_eq!(world.nodes[1].others[&NodeId(0)].said, before);
    }

    proptest! {
        /// Nodes count, speak and work in any order, and letters come late, twice, in another order or never.
        #[test]
        fn no_more_is_done_than_asked_for(limit in 1..60u64, acts in proptest::collection::vec((0..6u8, 0..NODES, any::<usize>()), 1..400)) {
            let mut world = World::new(limit, Planted::default());
            for (act, node, number) in acts {
                match act {
                    0 => world.count(node),
                    1 => world.work(node, number as u64 % 20),
                    2 => world.say(node),
                    3 if !world.letters.is_empty() => drop(world.letters.remove(number % world.letters.len())),
                    4 if !world.letters.is_empty() => {
                        let letter = world.letters[number % world.letters.len()].clone();
                        world.letters.push(letter);
                    }
                    _ if !world.letters.is_empty() => world.deliver(number),
                    _ => {}
                }
                prop_assert!(world.total() <= limit, "{:?} of {limit}", world.done);
            }
        }
    }
}
