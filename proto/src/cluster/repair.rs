//! Repair: replicas compare what they have, and exchange what differs.
//!
//! A **digest** is a sum of hashes of records, so it is kept up to date by taking the old record out and putting the new one in, and does not
//! care about order. There are two levels: one digest for a slot, one for each of its 256 ranges (by the first byte of the URL's id).
//! On a timer a node sends the digests of some of its slots to another replica of each; where they differ, the other answers with its
//! ranges, and both send the records of the ranges that differ. Digests are of what is fsynced, never of what is on its way.
//!
//! **Handoff** is the same thing from a node that has records of a slot and is none of its replicas (the ring changed, or it stood
//! in for a replica that was down): it offers its digest to all R replicas, and drops the slot when every one of them said
//! that it has exactly the same.
//!
//! **Pull before serve**: a node that acquired slots asks its peers for what it lacks of them, and serves them when two have answered
//! in full or the time is over.

use std::collections::{BTreeMap, BTreeSet};

use super::mutant::{Planted, planted};
use super::slot_set::SlotSet;
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::{NodeId, Slot};
use crate::key::UrlKey;

/// Times and bounds of repair.
#[derive(Clone, Copy, Debug)]
pub struct RepairRules {
    /// How often digests are sent.
    pub every: Micros,
    /// Slots whose digests are sent at once.
    pub slots_at_once: usize,
    /// Differing slots that one message of digests may open.
    pub differences_max: usize,
    /// Answers of peers that are enough before a slot is served.
    pub pull_peers: usize,
    /// How long they are waited for.
    pub pull_for: Micros,
    /// Reads of the disk for others at once; more wait for the next round.
    pub reads_max: usize,
}

impl Default for RepairRules {
    fn default() -> Self {
        RepairRules {
            every: 2 * SECOND,
            slots_at_once: 256,
            differences_max: 64,
            pull_peers: 2,
            pull_for: SECOND * 3 / 2,
            reads_max: 64,
        }
    }
}

/// A change of one record, as digests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The record's slot.
    pub slot: Slot,
    /// Its range there.
    pub range: u8,
    /// Hash of the copy that was; `None` if there was none.
    pub before: Option<u64>,
    /// Hash of the copy that is.
    pub after: Option<u64>,
}

impl Changed {
    /// The change of the record `key` from one hash to another.
    pub fn new(key: &UrlKey, before: Option<u64>, after: Option<u64>) -> Changed {
        Changed { slot: key.slot(), range: key.id().0[0], before, after }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SlotDigest {
    sum: u64,
    ranges: BTreeMap<u8, u64>,
}

/// The digests of everything a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    slots: BTreeMap<Slot, SlotDigest>,
}

impl Digests {
    /// Takes in a change.
    pub fn change(&mut self, changed: Changed) {
        let difference = changed.after.unwrap_or(0).wrapping_sub(changed.before.unwrap_or(0));
        let slot = self.slots.entry(changed.slot).or_default();
        slot.sum = slot.sum.wrapping_add(difference);
        let range = slot.ranges.entry(changed.range).or_default();
        *range = range.wrapping_add(difference);
        if *range == 0 {
            slot.ranges.remove(&changed.range);
        }
        if slot.ranges.is_empty() {
            self.slots.remove(&changed.slot);
        }
    }

    /// A slot was dropped.
    pub fn drop_slot(&mut self, slot: Slot) {
        self.slots.remove(&slot);
    }

    /// The digest of a slot; 0 if there is nothing.
    pub fn of(&self, slot: Slot) -> u64 {
        self.slots.get(&slot).map_or(0, |digest| digest.sum)
    }

    /// The digests of a slot's ranges that are not empty.
    pub fn ranges(&self, slot: Slot) -> Vec<(u8, u64)> {
        let ranges = self.slots.get(&slot).into_iter().flat_map(|digest| &digest.ranges);
        ranges.map(|(range, digest)| (*range, *digest)).collect()
    }

    /// The ranges in which we and a peer with `theirs` differ.
    pub fn differing(&self, slot: Slot, theirs: &[(u8, u64)]) -> Vec<u8> {
        let mine: BTreeMap<u8, u64> = self.ranges(slot).into_iter().collect();
        let theirs: BTreeMap<u8, u64> = theirs.iter().copied().collect();
        let all: BTreeSet<u8> = mine.keys().chain(theirs.keys()).copied().collect();
        all.into_iter().filter(|range| mine.get(range) != theirs.get(range)).collect()
    }

    /// The slots of which there is anything.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.keys().copied()
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

/// Digests to be sent to a peer.
#[derive(Debug, PartialEq, Eq)]
pub struct Offer {
    /// To whom.
    pub to: NodeId,
    /// Slot and digest.
    pub slots: Vec<(Slot, u64)>,
    /// We are no replica of these.
    pub parting: bool,
}

/// What a comparison with a peer's digests gave.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Equal slots, when the peer wants to know.
    pub same: Vec<(Slot, u64)>,
    /// Slots that differ.
    pub different: Vec<Slot>,
}

/// A pull under way.
struct Pull {
    slots: SlotSet,
    /// Parts of the answer of each peer: those that came, and how many there are once that is known.
    parts: BTreeMap<NodeId, (BTreeSet<u32>, Option<u32>)>,
    /// Writes of what was pulled that are not on disk yet.
    writes: BTreeSet<u64>,
    until: Micros,
}

impl Pull {
    fn answers(&self) -> usize {
        self.parts.values().filter(|(came, all)| all.is_some_and(|all| came.len() as u32 >= all)).count()
    }
}

/// Repair of one node.
pub struct Repair {
    rules: RepairRules,
    planted: Planted,
    /// What is on our disk.
    pub digests: Digests,
    cursor: Option<Slot>,
    turn: usize,
    next_round: Micros,
    /// Replicas that have the same as we, by slot, and the digest of which they said so.
    agreed: BTreeMap<Slot, (u64, BTreeSet<NodeId>)>,
    pulls: BTreeMap<u64, Pull>,
    /// Slots that an operator wants compared with all their replicas before others have their turn.
    hurried: BTreeSet<Slot>,
}

impl Repair {
    /// Repair over what is on disk at the start.
    pub fn new(now: Micros, digests: Digests, rules: RepairRules, planted: Planted) -> Repair {
        Repair {
            rules,
            planted,
            digests,
            cursor: None,
            turn: 0,
            next_round: now + rules.every,
            agreed: BTreeMap::new(),
            pulls: BTreeMap::new(),
            hurried: BTreeSet::new(),
        }
    }

    /// Has these slots compared with all their replicas from `now` on, before others have their turn.
    pub fn hurry(&mut self, now: Micros, slots: impl IntoIterator<Item = Slot>) {
        self.hurried.extend(slots);
        if !self.hurried.is_empty() {
            self.next_round = now;
        }
    }

    /// The digests to send now, if it is time. `replicas` names the replicas of a slot, and whether each is alive.
    pub fn round(&mut self, now: Micros, me: NodeId, replicas: impl Fn(Slot) -> Vec<(NodeId, bool)>) -> Vec<Offer> {
        if now < self.next_round {
            return Vec::new();
        }
        self.next_round = now + self.rules.every;
        if planted!(self.planted, NoRepair) {
            return Vec::new();
        }
        let mut offers: BTreeMap<(NodeId, bool), Vec<(Slot, u64)>> = BTreeMap::new();
        let hurried = self.take_hurried();
        let slots = if hurried.is_empty() { self.next_slots() } else { hurried.clone() };
        if !self.hurried.is_empty() {
            self.next_round = now + self.rules.every / 8;
        }
        for slot in slots {
            let replicas = replicas(slot);
            let digest = self.digests.of(slot);
            if replicas.iter().any(|(node, _)| *node == me) {
                self.agreed.remove(&slot);
                let others: Vec<NodeId> =
                    replicas.iter().filter(|(node, alive)| *alive && *node != me).map(|(node, _)| *node).collect();
                if !hurried.is_empty() {
                    others.into_iter().for_each(|to| offers.entry((to, false)).or_default().push((slot, digest)));
                } else if !others.is_empty() {
                    let to = others[(self.turn + usize::from(slot.0)) % others.len()];
                    offers.entry((to, false)).or_default().push((slot, digest));
                }
            } else {
                for (to, _) in replicas.into_iter().filter(|(_, alive)| *alive) {
                    offers.entry((to, true)).or_default().push((slot, digest));
                }
            }
        }
        offers.into_iter().map(|((to, parting), slots)| Offer { to, slots, parting }).collect()
    }

    /// The next slots that are wanted before others; those of which there is nothing are left to who has something.
    fn take_hurried(&mut self) -> Vec<Slot> {
        let digests = &self.digests;
        self.hurried.retain(|slot| digests.of(*slot) != 0);
        let rest = self.hurried.iter().copied().nth(self.rules.slots_at_once);
        let later = rest.map_or_else(BTreeSet::new, |first| self.hurried.split_off(&first));
        std::mem::replace(&mut self.hurried, later).into_iter().collect()
    }

    /// The next slots in turn; every pass asks the next replica of each.
    fn next_slots(&mut self) -> Vec<Slot> {
        let behind = |cursor: Option<Slot>, slot: &Slot| cursor.is_none_or(|cursor| *slot > cursor);
        let cursor = self.cursor;
        let slots: Vec<Slot> =
            self.digests.slots().filter(|slot| behind(cursor, slot)).take(self.rules.slots_at_once).collect();
        if slots.len() < self.rules.slots_at_once {
            self.cursor = None;
            self.turn += 1;
        } else {
            self.cursor = slots.last().copied();
        }
        slots
    }

    /// Compares a peer's digests with ours.
    pub fn compare(&self, theirs: &[(Slot, u64)], parting: bool) -> Compared {
        let mut compared = Compared::default();
        for (slot, digest) in theirs {
            if self.digests.of(*slot) != *digest {
                if compared.different.len() < self.rules.differences_max {
                    compared.different.push(*slot);
                }
            } else if parting {
                compared.same.push((*slot, *digest));
            }
        }
        compared
    }

    /// A replica has the same as we. Says whether the slot may be dropped now: all `replicas` have it.
    pub fn agrees(&mut self, by: NodeId, slot: Slot, digest: u64, replicas: &[NodeId]) -> bool {
        if digest == 0 || digest != self.digests.of(slot) || !replicas.contains(&by) {
            return false;
        }
        let (of, agreed) = self.agreed.entry(slot).or_default();
        if *of != digest {
            (*of, *agreed) = (digest, BTreeSet::new());
        }
        agreed.insert(by);
        let all = replicas.iter().all(|node| agreed.contains(node));
        all || planted!(self.planted, DropAfterOne)
    }

    /// The ring changed: who agreed before may be no replica now.
    pub fn ring_changed(&mut self) {
        self.agreed.clear();
    }

    /// A slot was dropped.
    pub fn dropped(&mut self, slot: Slot) {
        self.digests.drop_slot(slot);
        self.agreed.remove(&slot);
    }

    // Pull before serve.

    /// Begins a pull of slots that were acquired. It ends when [`Repair::pulled`] says so.
    pub fn begin_pull(&mut self, now: Micros, number: u64, slots: SlotSet) {
        let until = now + self.rules.pull_for;
        self.pulls.insert(number, Pull { slots, parts: BTreeMap::new(), writes: BTreeSet::new(), until });
    }

    /// A part of a peer's answer came; `write` is what stores it, if there was anything in it.
    pub fn pull_part(&mut self, number: u64, from: NodeId, part: u32, last: bool, write: Option<u64>) {
        let Some(pull) = self.pulls.get_mut(&number) else { return };
        let (came, all) = pull.parts.entry(from).or_default();
        came.insert(part);
        if last {
            *all = Some(part + 1);
        }
        pull.writes.extend(write);
    }

    /// Says whether an answer to this pull is still waited for.
    pub fn is_pulling(&self, number: u64) -> bool {
        self.pulls.contains_key(&number)
    }

    /// A write of what was pulled is on disk, or failed: it is no longer waited for.
    pub fn pull_stored(&mut self, write: u64) {
        for pull in self.pulls.values_mut() {
            pull.writes.remove(&write);
        }
    }

    /// The slots whose pull has come to its end by `now`, and whether it was cut short.
    pub fn pulled(&mut self, now: Micros) -> Vec<(SlotSet, bool)> {
        let enough = self.rules.pull_peers;
        let over = |pull: &Pull| pull.writes.is_empty() && (pull.answers() >= enough || now >= pull.until);
        let ended: Vec<u64> = self.pulls.iter().filter(|(_, pull)| over(pull)).map(|(number, _)| *number).collect();
        let end = |number: u64| self.pulls.remove(&number).expect("just listed");
        ended.into_iter().map(end).map(|pull| (pull.slots.clone(), pull.answers() < enough)).collect()
    }

    /// A slot is no longer held: nobody waits for its pull.
    pub fn forget_pull(&mut self, slot: Slot) {
        for pull in self.pulls.values_mut() {
            pull.slots.remove(slot);
        }
        self.pulls.retain(|_, pull| !pull.slots.is_empty());
    }

    /// When to look again.
    pub fn next_wake(&self) -> Micros {
        let pulls = self.pulls.values().filter(|pull| pull.writes.is_empty()).map(|pull| pull.until);
        pulls.chain([self.next_round]).min().unwrap_or(Micros::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::copy::RecordCopy;
    use super::super::copy::tests::copy;
    use super::*;
    use crate::record::Progress;
    use proptest::prelude::*;

    fn some(page: u32, attempt: u16, node: u64) -> RecordCopy {
        copy(&format!("http://a.example/{page}"), Progress { attempt, ..Progress::new(NodeId(node)) })
    }

    /// A replica: its records, and their digests kept as they change.
    #[derive(Default)]
    struct Replica {
        records: BTreeMap<UrlKey, RecordCopy>,
        digests: Digests,
    }

    impl Replica {
        fn merge(&mut self, copy: RecordCopy) {
            let before = self.records.get(&copy.key).cloned();
            let after = before.clone().map_or(copy.clone(), |before| before.merge(copy));
            self.digests.change(Changed::new(&after.key, before.map(|copy| copy.hash()), Some(after.hash())));
            self.records.insert(after.key.clone(), after);
        }

        fn of_ranges(&self, ranges: &[u8]) -> Vec<RecordCopy> {
            self.records.values().filter(|copy| ranges.contains(&copy.key.id().0[0])).cloned().collect()
        }

        fn recount(&self) -> Digests {
            let mut digests = Digests::default();
            for copy in self.records.values() {
                digests.change(Changed::new(&copy.key, None, Some(copy.hash())));
            }
            digests
        }
    }

    proptest! {
        #[test]
        fn digests_kept_are_digests_counted_and_one_exchange_makes_replicas_equal(
            one in proptest::collection::vec((0..40u32, 0..3u16, 0..3u64), 0..60),
            other in proptest::collection::vec((0..40u32, 0..3u16, 0..3u64), 0..60),
        ) {
            let (mut a, mut b) = (Replica::default(), Replica::default());
            one.into_iter().for_each(|(page, attempt, node)| a.merge(some(page, attempt, node)));
            other.into_iter().for_each(|(page, attempt, node)| b.merge(some(page, attempt, node)));
            prop_assert_eq!(&a.digests, &a.recount());
            let slot = some(0, 0, 0).slot();
            let differing = a.digests.differing(slot, &b.digests.ranges(slot));
            prop_assert_eq!(&differing, &b.digests.differing(slot, &a.digests.ranges(slot)));
            let (mine, theirs) = (a.of_ranges(&differing), b.of_ranges(&differing));
            theirs.into_iter().for_each(|copy| a.merge(copy));
            mine.into_iter().for_each(|copy| b.merge(copy));
            prop_assert_eq!(&a.records, &b.records);
            prop_assert_eq!(a.digests.of(slot), b.digests.of(slot));
        }
    }

    fn repair(pages: u32) -> Repair {
        let mut replica = Replica::default();
        (0..pages).for_each(|page| replica.merge(some(page, 0, 0)));
        Repair::new(0, replica.digests, RepairRules::default(), Planted::default())
    }

    #[test]
    fn a_replica_asks_the_others_in_turn_and_a_stranger_all_of_them() {
        let mut repair = repair(3);
        let replicas = |_| vec![(NodeId(1), true), (NodeId(2), true), (NodeId(3), false)];
        assert!(repair.round(0, NodeId(1), replicas).is_empty(), "not yet");
        let offers = repair.round(2 * SECOND, NodeId(1), replicas);
        assert_eq!((offers.len(), offers[0].to, offers[0].parting), (1, NodeId(2), false));
        let offers = repair.round(4 * SECOND, NodeId(9), replicas);
        assert_eq!(offers.iter().map(|offer| offer.to).collect::<Vec<_>>(), [NodeId(1), NodeId(2)]);
        assert!(offers.iter().all(|offer| offer.parting));
    }

    #[test]
    fn slots_in_a_hurry_are_compared_at_once_and_with_everybody() {
        let mut repair = repair(3);
        let (slot, empty) = (some(0, 0, 0).slot(), Slot(some(0, 0, 0).slot().0 ^ 1));
        let replicas = |_| vec![(NodeId(1), true), (NodeId(2), true), (NodeId(3), true), (NodeId(4), false)];
        repair.hurry(SECOND, [slot, empty]);
        assert_eq!(repair.next_wake(), SECOND);
        let offers = repair.round(SECOND, NodeId(1), replicas);
        assert_eq!(offers.iter().map(|offer| offer.to).collect::<Vec<_>>(), [NodeId(2), NodeId(3)]);
        assert!(offers.iter().all(|offer| offer.slots == [(slot, repair.digests.of(slot))] && !offer.parting));
        let offers = repair.round(3 * SECOND, NodeId(1), replicas);
        assert_eq!(offers.len(), 1, "then everything has its turn again");
    }

    #[test]
    fn a_slot_is_dropped_only_when_all_replicas_have_exactly_the_same() {
        let mut repair = repair(3);
        let replicas = [NodeId(1), NodeId(2), NodeId(3)];
        let slot = some(0, 0, 0).slot();
        let digest = repair.digests.of(slot);
        assert!(!repair.agrees(NodeId(1), slot, digest, &replicas));
        assert!(!repair.agrees(NodeId(2), slot, digest, &replicas));
        assert!(!repair.agrees(NodeId(9), slot, digest, &replicas), "no replica");
        let new = some(77, 0, 0);
        repair.digests.change(Changed::new(&new.key, None, Some(new.hash())));
        assert!(!repair.agrees(NodeId(3), slot, digest, &replicas), "of what we had before");
        let digest = repair.digests.of(slot);
        assert!(!repair.agrees(NodeId(3), slot, digest, &replicas), "the others agreed to something else");
        repair.agrees(NodeId(1), slot, digest, &replicas);
        assert!(repair.agrees(NodeId(2), slot, digest, &replicas));
    }

    #[test]
    fn a_pull_ends_with_two_whole_answers_or_with_its_time() {
        let slots = || [Slot(3)].into_iter().collect::<SlotSet>();
        let mut repair = repair(0);
        repair.begin_pull(0, 1, slots());
        repair.pull_part(1, NodeId(1), 0, true, None);
        repair.pull_part(1, NodeId(2), 1, true, Some(5));
        assert!(repair.pulled(10).is_empty(), "part 0 of node 2 is missing");
        repair.pull_part(1, NodeId(2), 0, false, None);
        assert!(repair.pulled(10).is_empty(), "not on disk yet");
        repair.pull_stored(5);
        assert_eq!(repair.pulled(10), [(slots(), false)]);
        repair.begin_pull(0, 2, slots());
        assert!(repair.pulled(SECOND).is_empty());
        assert_eq!(repair.pulled(2 * SECOND), [(slots(), true)]);
    }
}
