//! Writes to the replicas of a slot: acknowledged when W of them have it fsynced, repeated to those that are silent.
//!
//! Copies are lattice values, so a write may arrive twice, late or after a later one. A write that reached W copies and still
//! misses a replica is repeated a few times and then left to repair. A write that has not reached W by its deadline has
//! *failed*: it may be on some disks, and whoever asked for it is told nothing, or told so, as its purpose wants.
//! One write carries records of many slots that the same nodes keep, for as many purposes: a letter and a turn of the disk cost more than a record.
//! Bound: `writes_max` writes at once; more are refused, and who asked tries again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::copy::RecordCopy;
use super::mutant::{Planted, planted};
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::{NodeId, Slot};

/// Numbers and times of replication.
#[derive(Clone, Copy, Debug)]
pub struct WriteRules {
    /// R: copies of every record.
    pub replicas: usize,
    /// W: copies that are fsynced before a write counts.
    pub quorum: usize,
    /// Silence after which a write is repeated; grows with each repetition.
    pub retry_after: Micros,
    /// Repetitions after W copies exist.
    pub retries_max: u32,
    /// A write that is not done by then has failed.
    pub deadline: Micros,
    /// Writes at once.
    pub writes_max: usize,
}

impl Default for WriteRules {
    fn default() -> Self {
        WriteRules {
            replicas: 3,
            quorum: 2,
            retry_after: SECOND,
            retries_max: 4,
            deadline: 15 * SECOND,
            writes_max: 4_096,
        }
    }
}

/// What is to be written, to whom and what for.
pub struct Order<P> {
    /// What is written.
    pub copies: Vec<RecordCopy>,
    /// The nodes that keep all of it.
    pub targets: BTreeSet<NodeId>,
    /// Who must be among those that have it, also if it keeps the slots no longer: who leaves still settles what it handed out.
    pub must: Option<NodeId>,
    /// What for.
    pub purposes: Vec<P>,
}

/// A write under way, and what for.
struct Write<P> {
    slots: BTreeSet<Slot>,
    copies: Arc<[RecordCopy]>,
    targets: BTreeSet<NodeId>,
    acknowledged: BTreeSet<NodeId>,
    quorum: usize,
    /// Who must be among those that have it: a holder whose own disk lacks what it decided would decide it again.
    must: Option<NodeId>,
    /// None when it counts.
    purposes: Option<Vec<P>>,
    tries: u32,
    next_try: Micros,
    deadline: Micros,
}

/// A write that is to be sent, again or for the first time.
#[derive(Debug, PartialEq, Eq)]
pub struct Sending {
    /// Names the write.
    pub number: u64,
    /// Who has not acknowledged it.
    pub to: Vec<NodeId>,
    /// What.
    pub copies: Arc<[RecordCopy]>,
}

/// All writes of a node.
pub struct Writes<P> {
    rules: WriteRules,
    planted: Planted,
    next: u64,
    writes: BTreeMap<u64, Write<P>>,
    wakes: BTreeSet<(Micros, u64)>,
}

impl<P> Writes<P> {
    /// None yet.
    pub fn new(rules: WriteRules, planted: Planted) -> Writes<P> {
        Writes { rules, planted, next: 0, writes: BTreeMap::new(), wakes: BTreeSet::new() }
    }

    /// Begins a write in a cluster with `members` places. Gives the purposes back at the bound.
    pub fn begin(&mut self, now: Micros, order: Order<P>, members: usize) -> Result<Sending, Vec<P>> {
        let Order { copies, mut targets, must, purposes } = order;
        if self.writes.len() >= self.rules.writes_max {
            return Err(purposes);
        }
        self.next += 1;
        targets.extend(must);
        let copies: Arc<[RecordCopy]> = copies.into();
        let quorum = if planted!(self.planted, OneCopyIsEnough) { 1 } else { self.rules.quorum.min(members.max(1)) };
        let next_try = now + self.rules.retry_after;
        let write = Write {
            slots: copies.iter().map(RecordCopy::slot).collect(),
            copies: Arc::clone(&copies),
            targets: targets.clone(),
            acknowledged: BTreeSet::new(),
            quorum,
            must,
            purposes: Some(purposes),
            tries: 0,
            next_try,
            deadline: now + self.rules.deadline,
        };
        self.wakes.insert((next_try, self.next));
        self.writes.insert(self.next, write);
        Ok(Sending { number: self.next, to: targets.into_iter().collect(), copies })
    }

    /// A node has the write fsynced. Returns its purposes when that makes W.
    pub fn acknowledged(&mut self, number: u64, by: NodeId) -> Option<Vec<P>> {
        let write = self.writes.get_mut(&number)?;
        if !write.targets.contains(&by) {
            return None;
        }
        write.acknowledged.insert(by);
        let enough = write.acknowledged.len() >= write.quorum
            && write.must.is_none_or(|node| write.acknowledged.contains(&node));
        let purposes = if enough { write.purposes.take() } else { None };
        if enough && write.acknowledged.is_superset(&write.targets) {
            self.remove(number);
        }
        purposes
    }

    /// Repeats what is due, to the nodes that `acting` names for its slots now, and gives up what has failed.
    pub fn due(&mut self, now: Micros, acting: impl Fn(Slot) -> BTreeSet<NodeId>) -> (Vec<Sending>, Vec<P>) {
        let (mut sendings, mut failed) = (Vec::new(), Vec::new());
        while let Some(&(at, number)) = self.wakes.first()
            && at <= now
        {
            self.wakes.remove(&(at, number));
            let rules = self.rules;
            let write = self.writes.get_mut(&number).expect("every wake has its write");
            let settled = write.purposes.is_none();
            if now >= write.deadline || (settled && write.tries >= rules.retries_max) {
                let write = self.writes.remove(&number).expect("just looked up");
                failed.extend(write.purposes.into_iter().flatten());
                continue;
            }
            write.tries += 1;
            write.next_try = now + rules.retry_after * u64::from(write.tries.min(4) + 1);
            // A replica that died is replaced by the next one; what it misses, repair brings when it is back.
            let mut acting: BTreeSet<NodeId> = write.slots.iter().flat_map(|slot| acting(*slot)).collect();
            acting.extend(write.must);
            if !settled {
                write.targets.extend(acting.iter().copied());
            }
            let silent = |node: &&NodeId| acting.contains(node) && !write.acknowledged.contains(node);
            let to: Vec<NodeId> = write.targets.iter().filter(silent).copied().collect();
            self.wakes.insert((write.next_try, number));
            if !to.is_empty() {
                sendings.push(Sending { number, to, copies: Arc::clone(&write.copies) });
            }
        }
        (sendings, failed)
    }

    fn remove(&mut self, number: u64) {
        if let Some(write) = self.writes.remove(&number) {
            self.wakes.remove(&(write.next_try, number));
        }
    }

    /// Whether a write of this slot is under way.
    pub fn touches(&self, slot: Slot) -> bool {
        self.writes.values().any(|write| write.slots.contains(&slot))
    }

    /// Writes under way.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// When to look again.
    pub fn next_wake(&self) -> Option<Micros> {
        self.wakes.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::super::copy::tests::copy;
    use super::*;
    use crate::record::Progress;
    use proptest::prelude::*;

    fn nodes(numbers: &[u64]) -> BTreeSet<NodeId> {
        numbers.iter().map(|number| NodeId(*number)).collect()
    }

    fn one() -> Vec<RecordCopy> {
        vec![copy("http://a.example/", Progress::new(NodeId(1)))]
    }

    fn order(targets: &[u64], must: Option<NodeId>) -> Order<&'static str> {
        Order { copies: one(), targets: nodes(targets), must, purposes: vec!["purpose"] }
    }

    fn begin(writes: &mut Writes<&'static str>, now: Micros) -> u64 {
        writes.begin(now, order(&[1, 2, 3], None), 5).ok().unwrap().number
    }

    #[test]
    fn a_write_counts_at_w_copies_and_only_once() {
        let mut writes = Writes::new(WriteRules::default(), Planted::default());
        let number = begin(&mut writes, 0);
        assert_eq!(writes.acknowledged(number, NodeId(1)), None);
        assert_eq!(writes.acknowledged(number, NodeId(1)), None, "the same node twice is one copy");
        assert_eq!(writes.acknowledged(number, NodeId(9)), None, "who was not asked has no say");
        assert_eq!(writes.acknowledged(number, NodeId(2)), Some(vec!["purpose"]));
        assert_eq!(writes.acknowledged(number, NodeId(3)), None);
        assert!(writes.is_empty());
    }

    #[test]
    fn a_write_waits_for_the_disk_of_who_decided_it() {
        let mut writes = Writes::new(WriteRules::default(), Planted::default());
        let number = writes.begin(0, order(&[1, 2, 3], Some(NodeId(1))), 5).ok().unwrap().number;
        assert_eq!(writes.acknowledged(number, NodeId(2)), None);
        assert_eq!(writes.acknowledged(number, NodeId(3)), None);
        assert_eq!(writes.acknowledged(number, NodeId(1)), Some(vec!["purpose"]));
        let elsewhere = writes.begin(0, order(&[2, 3], Some(NodeId(1))), 5);
        let number = elsewhere.ok().unwrap().number;
        writes.acknowledged(number, NodeId(2));
        assert_eq!(writes.acknowledged(number, NodeId(3)), None, "also of who leaves, and keeps no copy any more");
        let (sendings, _) = writes.due(SECOND, |_| nodes(&[2, 3]));
        assert_eq!(sendings[0].to, [NodeId(1)]);
        assert_eq!(writes.acknowledged(number, NodeId(1)), Some(vec!["purpose"]));
    }

    #[test]
    fn the_silent_are_asked_again_and_the_dead_replaced() {
        let mut writes = Writes::new(WriteRules::default(), Planted::default());
        let number = begin(&mut writes, 0);
        writes.acknowledged(number, NodeId(1));
        let (sendings, failed) = writes.due(SECOND, |_| nodes(&[1, 3, 4]));
        assert!(failed.is_empty());
        assert_eq!(sendings[0].to, [NodeId(3), NodeId(4)]);
        assert_eq!(writes.acknowledged(number, NodeId(4)), Some(vec!["purpose"]));
    }

    #[test]
    fn a_write_without_w_copies_fails_at_its_deadline() {
        let mut writes = Writes::new(WriteRules::default(), Planted::default());
        let number = begin(&mut writes, 0);
        writes.acknowledged(number, NodeId(1));
        let (mut now, mut failed) = (0, Vec::new());
        while failed.is_empty() {
            now = writes.next_wake().unwrap();
            failed = writes.due(now, |_| nodes(&[1])).1;
        }
        assert_eq!(failed, ["purpose"]);
        assert!(now >= 15 * SECOND && writes.is_empty());
        assert_eq!(writes.acknowledged(number, NodeId(2)), None, "too late");
    }

    #[test]
    fn a_write_that_counts_is_left_to_repair_after_a_few_tries() {
        let mut writes = Writes::new(WriteRules::default(), Planted::default());
        let number = begin(&mut writes, 0);
        writes.acknowledged(number, NodeId(1));
        writes.acknowledged(number, NodeId(2));
        let mut sent = 0;
        while let Some(now) = writes.next_wake() {
            let (sendings, failed) = writes.due(now, |_| nodes(&[1, 2, 3]));
            assert!(failed.is_empty());
            sent += sendings.len();
        }
        assert_eq!(sent, 4);
    }

    #[test]
    fn there_is_a_bound() {
        let rules = WriteRules { writes_max: 1, ..WriteRules::default() };
        let mut writes = Writes::new(rules, Planted::default());
        begin(&mut writes, 0);
        assert!(writes.begin(0, order(&[1], None), 5).is_err());
    }

    proptest! {
        #[test]
        fn it_counts_exactly_when_w_asked_nodes_have_it(by in proptest::collection::vec(0..5u64, 0..12), quorum in 1..4usize) {
            let rules = WriteRules { quorum, ..WriteRules::default() };
            let mut writes = Writes::new(rules, Planted::default());
            let number = begin(&mut writes, 0);
            let mut have = BTreeSet::new();
            let mut counted = 0;
            for node in by {
                let before = have.len();
                if (1..4).contains(&node) {
                    have.insert(node);
                }
                let told = writes.acknowledged(number, NodeId(node)).is_some();
                prop_assert_eq!(told, before < quorum && have.len() == quorum);
                counted += usize::from(told);
            }
            prop_assert_eq!(counted, usize::from(have.len() >= quorum));
        }
    }
}
