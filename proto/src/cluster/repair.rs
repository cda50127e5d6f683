//! Repair: replicas compare what they have, and exchange what differs.
//!
//! A **digest** is a sum of hashes of records, so it is kept up to date by taking the old record out and putting the new one in, and does not
//! care about order. There are two levels: one digest for a slot, one for each of its 256 ranges (by the first byte of the URL's id).
//! On a timer a node sends the digests of some of its slots to another replica of each; where they differ, the other answers with its
//! ranges, the first with its own, and both draw the records of the ranges that differ ([`transfer`](super::transfer)). Digests are of what is fsynced,
//! never of what is on its way.
//!
//! **Handoff** is the same thing from a node that has records of a slot and is none of its replicas (the ring changed, or it stood
//! in for a replica that was down): it offers its digest to all R replicas, they draw what they lack, and it drops the slot when every one of
//! them said that it has all that made this digest. What is new on the others meanwhile it is not given, so that its digest stays what it was and it
//! can go while the slot is written to.
//!
//! **Pull before serve**: a node that acquired slots asks its peers which of them it has otherwise, draws what it lacks, and serves each slot
//! when it has what two others had, or when the time is over. While parts come, there is more time.

use std::collections::{BTreeMap, BTreeSet};

use super::message::COPIES_MAX;
use super::mutant::{Planted, planted};
use super::slot_set::SlotSet;
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::{NodeId, Slot};
use crate::key::UrlKey;

/// How often it is looked whether those who have something of a slot that is waited for are still alive.
const PROMISED_LOOK: Micros = SECOND / 4;

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
    /// How long they are waited for, and after each part the next.
    pub pull_for: Micros,
    /// How long, after what came last, those are waited for who are alive and said that they have something: slow is not silent.
    pub pull_promised_for: Micros,
    /// But never longer than this.
    pub pull_at_most: Micros,
    /// Reads of the disk for others at once; more wait for the next round.
    pub reads_max: usize,
    /// Records of one part of a slot.
    pub part_max: usize,
}

impl Default for RepairRules {
    fn default() -> Self {
        RepairRules {
            every: 2 * SECOND,
            slots_at_once: 256,
            differences_max: 64,
            pull_peers: 2,
            pull_for: SECOND * 3 / 2,
            pull_promised_for: 10 * SECOND,
            pull_at_most: 60 * SECOND,
            reads_max: 64,
            part_max: COPIES_MAX,
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

/// Slots whose pull has come to its end.
#[derive(Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Which.
    pub slots: SlotSet,
    /// Not all was brought over that somebody may have.
    pub cut_short: bool,
    /// Who said anything at all.
    pub answered: BTreeSet<NodeId>,
}

/// What a peer said to a pull.
struct Answer {
    /// Slots of which it has something that was not brought over yet.
    open: SlotSet,
    /// Slots of which not all could be brought over.
    failed: SlotSet,
}

/// A pull under way.
struct Pull {
    /// Slots that are not served yet.
    slots: SlotSet,
    answers: BTreeMap<NodeId, Answer>,
    /// Whatever was acknowledged before is to be here when it ends.
    began: Micros,
    until: Micros,
    /// The same of what was promised.
    promised_until: Micros,
    at_most: Micros,
    /// How many of them are to give all they have.
    enough: usize,
    /// Something was heard since it was last looked at.
    news: bool,
}

impl Pull {
    /// Something came: there is time for more.
    fn goes_on(&mut self, now: Micros, rules: &RepairRules) {
        self.until = self.at_most.min(now + rules.pull_for);
        self.promised_until = self.at_most.min(now + rules.pull_promised_for);
    }

    /// Whether somebody alive has something of a slot that is still to come.
    fn is_promised(&self, slot: Slot, alive: &BTreeSet<NodeId>) -> bool {
        self.answers.iter().any(|(node, answer)| answer.open.contains(slot) && alive.contains(node))
    }

    /// The peers that gave all they have of a slot.
    fn gave(&self, slot: Slot) -> impl Iterator<Item = NodeId> {
        let gave = move |(_, answer): &(&NodeId, &Answer)| !answer.open.contains(slot) && !answer.failed.contains(slot);
        self.answers.iter().filter(gave).map(|(node, _)| *node)
    }

    /// Whether enough peers gave all they have of a slot, and of those who answered nobody has something that is still to come: who has nothing tells nothing.
    fn has_enough(&self, slot: Slot, planted: Planted) -> bool {
        let is_open = self.answers.values().any(|answer| answer.open.contains(slot));
        self.gave(slot).count() >= self.enough && (!is_open || planted!(planted, TheIgnorantSuffice))
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
    /// Replicas that have all that we have, by slot, and the digest of which they said so.
    agreed: BTreeMap<Slot, (u64, BTreeSet<NodeId>)>,
    pulls: BTreeMap<u64, Pull>,
    /// Who gave all that it has of a slot, in the slot's last pull that has ended.
    heard: BTreeMap<Slot, BTreeSet<NodeId>>,
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
            heard: BTreeMap::new(),
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

    /// A replica has all that made `digest`. Says whether the slot may be dropped now: that is all we have, and all `replicas` have it.
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

    /// Begins a pull of slots that were acquired. Slot by slot [`Repair::pulled`] says when it has ended.
    pub fn begin_pull(&mut self, now: Micros, number: u64, slots: SlotSet) {
        self.begin_pull_of(now, number, slots, self.rules.pull_peers);
    }

    /// Begins a pull that ends early only when so many others gave all they have.
    pub fn begin_pull_of(&mut self, now: Micros, number: u64, slots: SlotSet, enough: usize) {
        let (until, at_most) = (now + self.rules.pull_for, now + self.rules.pull_at_most);
        let (answers, promised_until) = (BTreeMap::new(), until);
        let pull = Pull { slots, answers, began: now, until, promised_until, at_most, enough, news: false };
        self.pulls.insert(number, pull);
    }

    /// A peer says which slots of a pull it has otherwise.
    pub fn surveyed(&mut self, now: Micros, number: u64, from: NodeId, differing: &SlotSet) {
        let Some(pull) = self.pulls.get_mut(&number) else { return };
        let counts = |slot: &Slot| {
            let gave_before = planted!(self.planted, OldTransfersCount)
                && self.heard.get(slot).is_some_and(|heard| heard.contains(&from));
            pull.slots.contains(*slot) && !gave_before
        };
        let open: SlotSet = differing.iter().filter(counts).collect();
        if !open.is_empty() {
            pull.goes_on(now, &self.rules);
        }
        pull.answers.entry(from).or_insert_with(|| Answer { open, failed: SlotSet::default() });
        pull.news = true;
    }

    /// The next slot that is to be brought over for a pull, and from whom.
    pub fn wanted(&self, is_busy: impl Fn(Slot) -> bool) -> Option<(NodeId, Slot)> {
        let answers = self.pulls.values().flat_map(|pull| &pull.answers);
        let open = |(from, answer): (&NodeId, &Answer)| {
            let slot = answer.open.iter().find(|slot| !is_busy(*slot))?;
            Some((*from, slot))
        };
        answers.into_iter().find_map(open)
    }

    /// A part of a slot came: there is time for the next.
    pub fn part_came(&mut self, now: Micros, slot: Slot) {
        for pull in self.pulls.values_mut().filter(|pull| pull.slots.contains(slot)) {
            pull.goes_on(now, &self.rules);
        }
    }

    /// What a peer has of a slot is here, or could not be brought over. It was compared when we `asked` for that: a transfer that was under way
    /// when a pull began lacks what was written between, and counts for nothing.
    pub fn transferred(&mut self, from: NodeId, slot: Slot, whole: bool, asked: Option<Micros>) {
        for pull in self.pulls.values_mut() {
            let is_old = asked.is_none_or(|asked| asked < pull.began);
            if is_old && !planted!(self.planted, OldTransfersCount) {
                continue;
            }
            if let Some(answer) = pull.answers.get_mut(&from)
                && answer.open.remove(slot)
            {
                if !whole {
                    answer.failed.insert(slot);
                }
                pull.news = true;
            }
        }
    }

    /// The slots whose pull has come to its end by `now`. Who is dead is not waited for.
    pub fn pulled(&mut self, now: Micros, alive: &BTreeSet<NodeId>) -> Vec<Pulled> {
        let mut ended = Vec::new();
        for pull in self.pulls.values_mut() {
            let mut ends = |slots, cut_short, answers: &BTreeMap<NodeId, Answer>| {
                ended.push(Pulled { slots, cut_short, answered: answers.keys().copied().collect() });
            };
            if std::mem::take(&mut pull.news) {
                let complete: SlotSet = pull.slots.iter().filter(|slot| pull.has_enough(*slot, self.planted)).collect();
                if !complete.is_empty() {
                    for slot in complete.iter() {
                        self.heard.insert(slot, pull.gave(slot).collect());
                        pull.slots.remove(slot);
                    }
                    ends(complete, false, &pull.answers);
                }
            }
            if now >= pull.until && !pull.slots.is_empty() {
                let waits = |slot: &Slot| {
                    let is_in_time = now < pull.promised_until && !planted!(self.planted, SlowIsSilent);
                    is_in_time && pull.is_promised(*slot, alive)
                };
                let cut: SlotSet = pull.slots.iter().filter(|slot| !waits(slot)).collect();
                pull.until = pull.promised_until.min(now + PROMISED_LOOK);
                if !cut.is_empty() {
                    self.heard.extend(cut.iter().map(|slot| (slot, pull.gave(slot).collect())));
                    for slot in cut.iter() {
                        pull.slots.remove(slot);
                    }
                    ends(cut, true, &pull.answers);
                }
            }
        }
        self.pulls.retain(|_, pull| !pull.slots.is_empty());
        ended
    }

    /// Who gave all that it has of a slot that is served.
    pub fn heard(&self, slot: Slot) -> Option<&BTreeSet<NodeId>> {
        self.heard.get(&slot)
    }

    /// Whether a slot is being pulled.
    pub fn is_pulling(&self, slot: Slot) -> bool {
        self.pulls.values().any(|pull| pull.slots.contains(slot))
    }

    /// A slot is no longer held: nobody waits for its pull.
    pub fn forget_pull(&mut self, slot: Slot) {
        if !planted!(self.planted, OldTransfersCount) {
            self.heard.remove(&slot);
        }
        for pull in self.pulls.values_mut() {
            pull.slots.remove(slot);
            for answer in pull.answers.values_mut() {
                answer.open.remove(slot);
            }
        }
        self.pulls.retain(|_, pull| !pull.slots.is_empty());
    }

    /// When to look again.
    pub fn next_wake(&self) -> Micros {
        let pulls = self.pulls.values().map(|pull| pull.until);
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

    fn slots(numbers: &[u16]) -> SlotSet {
        numbers.iter().map(|slot| Slot(*slot)).collect()
    }

    fn all() -> BTreeSet<NodeId> {
        (1..9).map(NodeId).collect()
    }

    fn pulled(repair: &mut Repair, now: Micros, alive: &BTreeSet<NodeId>) -> Vec<(SlotSet, bool)> {
        repair.pulled(now, alive).into_iter().map(|pulled| (pulled.slots, pulled.cut_short)).collect()
    }

    #[test]
    fn who_is_slow_is_waited_for_longer_than_who_is_silent_or_dead() {
        let mut repair = repair(0);
        repair.begin_pull_of(0, 1, slots(&[3, 4, 5]), 3);
        repair.surveyed(SECOND, 1, NodeId(1), &slots(&[3, 4]));
        repair.surveyed(SECOND, 1, NodeId(2), &slots(&[4]));
        assert_eq!(pulled(&mut repair, 3 * SECOND, &all()), [(slots(&[5]), true)], "a third is silent");
        assert_eq!(repair.pulls[&1].until, 3 * SECOND + PROMISED_LOOK, "it is not looked again at once");
        assert_eq!(pulled(&mut repair, 4 * SECOND, &[NodeId(2)].into()), [(slots(&[3]), true)], "node 1 has died");
        assert!(pulled(&mut repair, 10 * SECOND, &all()).is_empty());
        assert_eq!(pulled(&mut repair, 11 * SECOND, &all()), [(slots(&[4]), true)], "nor for ever");
    }

    #[test]
    fn a_slot_is_served_when_two_others_gave_what_they_have_or_when_the_time_is_over() {
        let mut repair = repair(0);
        repair.begin_pull(0, 1, slots(&[3, 4, 5]));
        repair.surveyed(10, 1, NodeId(1), &slots(&[3, 4, 77]));
        assert!(pulled(&mut repair, 10, &all()).is_empty(), "one other is not enough");
        repair.surveyed(10, 1, NodeId(2), &slots(&[4]));
        assert_eq!(pulled(&mut repair, 10, &all()), [(slots(&[5]), false)], "nobody has anything of it");
        assert_eq!(repair.wanted(|_| false), Some((NodeId(1), Slot(3))));
        assert_eq!(repair.wanted(|slot| slot == Slot(3)), Some((NodeId(1), Slot(4))));
        repair.transferred(NodeId(1), Slot(3), true, Some(0));
        assert_eq!(pulled(&mut repair, 10, &all()), [(slots(&[3]), false)]);
        repair.transferred(NodeId(1), Slot(4), false, Some(0));
        assert_eq!(repair.wanted(|_| false), Some((NodeId(2), Slot(4))));
        repair.transferred(NodeId(2), Slot(4), true, Some(0));
        assert!(pulled(&mut repair, 10, &all()).is_empty(), "node 1 has more of it");
        assert_eq!(pulled(&mut repair, 2 * SECOND, &all()), [(slots(&[4]), true)]);
    }

    #[test]
    fn who_has_nothing_does_not_speak_for_who_has_something() {
        let mut repair = repair(0);
        repair.begin_pull(0, 1, slots(&[3]));
        for (node, has) in [(1, &[3][..]), (2, &[]), (3, &[]), (4, &[3])] {
            repair.surveyed(10, 1, NodeId(node), &slots(has));
        }
        assert!(pulled(&mut repair, 10, &all()).is_empty());
        repair.transferred(NodeId(1), Slot(3), true, Some(0));
        assert!(pulled(&mut repair, 10, &all()).is_empty(), "node 4 may have what node 1 lacks");
        repair.transferred(NodeId(4), Slot(3), false, Some(0));
        assert_eq!(pulled(&mut repair, 10, &all()), [(slots(&[3]), false)], "who breaks off is not waited for");
    }

    #[test]
    fn a_transfer_from_before_the_pull_counts_for_nothing() {
        let mut repair = repair(0);
        repair.begin_pull_of(7, 1, slots(&[3]), 1);
        repair.surveyed(8, 1, NodeId(1), &slots(&[3]));
        for asked in [None, Some(6)] {
            repair.transferred(NodeId(1), Slot(3), true, asked);
            assert!(pulled(&mut repair, 9, &all()).is_empty(), "what was written between is not here");
            assert_eq!(repair.wanted(|_| false), Some((NodeId(1), Slot(3))), "it is brought over once more");
        }
        repair.transferred(NodeId(1), Slot(3), true, Some(7));
        assert_eq!(pulled(&mut repair, 9, &all()), [(slots(&[3]), false)]);
    }

    #[test]
    fn while_parts_come_there_is_more_time_but_not_for_ever() {
        let mut repair = repair(0);
        repair.begin_pull(0, 1, slots(&[3]));
        repair.surveyed(0, 1, NodeId(1), &slots(&[3]));
        for second in 1..60 {
            repair.part_came(second * SECOND, Slot(3));
            assert!(pulled(&mut repair, second * SECOND + 1, &all()).is_empty());
        }
        repair.part_came(60 * SECOND, Slot(3));
        assert_eq!(pulled(&mut repair, 60 * SECOND, &all()), [(slots(&[3]), true)]);
    }
}
