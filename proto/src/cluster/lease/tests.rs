//! The lease under a small world: voters and holders with drifting clocks, messages that are late, lost, doubled and reordered,
//! and nodes that forget everything at any time.

use super::*;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn held(until: Micros) -> Held {
    Held { since: 0, until, served: true }
}

fn granted(held: Held) -> Leases {
    Leases::Granted(Grants { held: [(Slot(7), held)].into(), ..Grants::default() })
}

fn one(slot: u16) -> SlotSet {
    [Slot(slot)].into_iter().collect()
}

fn rules() -> LeaseRules {
    LeaseRules { duration: 4 * SECOND, guard: 20_000, drift_ppm: 10_000 }
}

fn seq(counter: u64) -> Seq {
    Seq { boot: 1, counter }
}

#[test]
fn one_node_alone_may_ask_every_host() {
    assert!(Leases::Sole.allow(Slot(0), Micros::MAX));
    assert!(Leases::Sole.allow(Slot(4095), 0));
}

#[test]
fn a_fetch_must_end_inside_the_lease() {
    let leases = granted(held(100));
    assert!(leases.allow(Slot(7), 99));
    assert!(!leases.allow(Slot(7), 100));
    assert!(!leases.allow(Slot(8), 1));
}

#[test]
fn a_slot_is_not_asked_before_it_was_pulled() {
    let leases = granted(Held { served: false, ..held(100) });
    assert!(!leases.allow(Slot(7), 99));
}

#[test]
fn a_voter_that_starts_waits_out_what_it_may_have_promised() {
    let mut voter = Voter::new(5, rules(), Planted::default());
    assert!(voter.request(4 * SECOND + 4, NodeId(1), seq(1), &one(3)).waits);
    assert!(voter.request(4 * SECOND + 5, NodeId(1), seq(2), &one(3)).granted.contains(Slot(3)));
}

#[test]
fn a_promise_keeps_others_out_until_it_ends_or_is_given_back() {
    let mut voter = Voter::new(0, rules(), Planted::default());
    let now = 10 * SECOND;
    assert!(!voter.request(now, NodeId(1), seq(5), &one(3)).granted.is_empty());
    assert_eq!(voter.request(now + 1, NodeId(2), seq(1), &one(3)).taken, 1);
    assert!(voter.release(NodeId(2), seq(9), &one(3)).is_empty(), "not theirs to give back");
    assert!(voter.release(NodeId(1), seq(5), &one(3)).is_empty(), "not later than the promise");
    assert!(!voter.release(NodeId(1), seq(6), &one(3)).is_empty());
    assert_eq!(voter.request(now + 2, NodeId(2), seq(1), &one(3)).granted.len(), 1);
    assert_eq!(voter.promised_to(now + 3, Slot(3)), Some(NodeId(2)));
    assert_eq!(voter.request(now + 2 + 4 * SECOND, NodeId(1), seq(7), &one(3)).granted.len(), 1);
}

#[test]
fn an_overtaken_request_is_not_granted() {
    let mut voter = Voter::new(0, rules(), Planted::default());
    voter.request(10 * SECOND, NodeId(1), seq(5), &one(3));
    assert!(voter.request(10 * SECOND, NodeId(1), seq(4), &one(3)).granted.is_empty());
}

#[test]
fn the_lease_counts_from_the_sending_that_a_majority_granted() {
    let voters = vec![NodeId(1), NodeId(2), NodeId(3)];
    let mut holder = Holder::new(voters, 1, rules(), Planted::default());
    let mut out = Vec::new();
    let first = holder.ask(1_000);
    holder.granted(2_000, NodeId(1), first, &one(3), &mut out);
    assert!(out.is_empty(), "one of three is no majority");
    let second = holder.ask(500_000);
    holder.granted(600_000, NodeId(2), second, &one(3), &mut out);
    assert_eq!(out, [Extended { slot: Slot(3), until: 1_000 + rules().trust(), acquired: true }]);
    out.clear();
    holder.granted(700_000, NodeId(3), second, &one(3), &mut out);
    assert_eq!(out, [Extended { slot: Slot(3), until: 500_000 + rules().trust(), acquired: false }]);
    assert_eq!(holder.granted(700_000, NodeId(9), second, &one(3), &mut out), 1, "who does not vote cannot grant");
}

#[test]
fn a_straggling_grant_does_not_revive_what_was_given_back() {
    let mut holder = Holder::new(vec![NodeId(1)], 1, rules(), Planted::default());
    let mut out = Vec::new();
    let asked = holder.ask(1_000);
    let released = holder.release(&one(3));
    assert!(released > asked);
    assert_eq!(holder.granted(2_000, NodeId(1), asked, &one(3), &mut out), 1);
    assert!(out.is_empty() && holder.until(2_000, Slot(3)).is_none());
}

#[test]
fn a_lease_ends_when_nobody_renews_it() {
    let mut holder = Holder::new(vec![NodeId(1)], 1, rules(), Planted::default());
    let mut out = Vec::new();
    let asked = holder.ask(0);
    holder.granted(1, NodeId(1), asked, &one(3), &mut out);
    let until = out[0].until;
    assert_eq!(holder.next_wake(), Some(until));
    assert!(holder.expire(until - 1).is_empty());
    assert_eq!(holder.expire(until), [Slot(3)]);
    assert_eq!(holder.next_wake(), None);
}

/// A message of the small world.
#[derive(Clone, Copy)]
enum Note {
    Ask(Seq),
    Grant(Seq),
    Release(Seq),
}

/// A node of the small world: voter and holder of one slot, on a clock of its own rate.
struct Node {
    rate_ppm: i64,
    epoch: u64,
    boot: u32,
    voter: Voter,
    holder: Holder,
}

impl Node {
    fn clock(&self, real: Micros) -> Micros {
        let passed = i128::from(real) * i128::from(1_000_000 + self.rate_ppm) / 1_000_000;
        self.epoch + passed as u64
    }

    fn restart(&mut self, real: Micros, voters: &[NodeId], planted: Planted) {
        self.boot += 1;
        self.voter = Voter::new(self.clock(real), rules(), planted);
        self.holder = Holder::new(voters.to_vec(), self.boot, rules(), planted);
    }
}

/// Runs random interleavings; returns the first real time at which two nodes believed to hold the slot.
fn two_holders(seed: u64, planted: Planted) -> Option<Micros> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let count = [3, 5][rng.random_range(0..2usize)];
    let voters: Vec<NodeId> = (0..count).map(NodeId).collect();
    let mut nodes: Vec<Node> = (0..count)
        .map(|_| {
            let epoch = rng.random_range(0..100 * SECOND);
            let voter = Voter::new(epoch, rules(), planted);
            let holder = Holder::new(voters.clone(), 1, rules(), planted);
            Node { rate_ppm: rng.random_range(-10_000..=10_000), epoch, boot: 1, voter, holder }
        })
        .collect();
    let mut queue: BTreeMap<(Micros, u64), (usize, usize, Note)> = BTreeMap::new();
    let mut counter = 0u64;
    let mut real = 0;
    for _ in 0..600 {
        real += rng.random_range(1_000..100_000u64);
        let who = rng.random_range(0..nodes.len());
        let mut send = Vec::new();
        let clock = nodes[who].clock(real);
        nodes[who].holder.expire(clock);
        match rng.random_range(0..100) {
            0..2 => nodes[who].restart(real, &voters, planted),
            2..12 if nodes[who].holder.until(clock, Slot(0)).is_some() => {
                let seq = nodes[who].holder.release(&one(0));
                send.extend((0..nodes.len()).map(|to| (to, Note::Release(seq))));
            }
            12..50 => {
                let seq = nodes[who].holder.ask(clock);
                send.extend((0..nodes.len()).map(|to| (to, Note::Ask(seq))));
            }
            _ => {}
        }
        while let Some((&(at, number), &(from, to, note))) = queue.first_key_value()
            && at <= real
        {
            queue.remove(&(at, number));
            let clock = nodes[to].clock(at);
            match note {
                Note::Ask(seq) => {
                    if !nodes[to].voter.request(clock, NodeId(from as u64), seq, &one(0)).granted.is_empty() {
                        counter += 1;
                        queue.insert((at + rng.random_range(1_000..2 * SECOND), counter), (to, from, Note::Grant(seq)));
                    }
                }
                Note::Grant(seq) => {
                    let mut out = Vec::new();
                    nodes[to].holder.granted(clock, NodeId(from as u64), seq, &one(0), &mut out);
                }
                Note::Release(seq) => drop(nodes[to].voter.release(NodeId(from as u64), seq, &one(0))),
            }
            let holders = nodes.iter().filter(|node| node.holder.until(node.clock(at), Slot(0)).is_some()).count();
            if holders > 1 {
                return Some(at);
            }
        }
        for (to, note) in send {
            for _ in 0..[1, 1, 1, 0, 2][rng.random_range(0..5usize)] {
                counter += 1;
                let late = if rng.random_range(0..10) == 0 { 5 * SECOND } else { SECOND / 5 };
                queue.insert((real + rng.random_range(1_000..late), counter), (who, to, note));
            }
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn no_interleaving_gives_a_slot_to_two_nodes(seed in any::<u64>()) {
        prop_assert_eq!(two_holders(seed, Planted::default()), None);
    }
}

/// The test above can fail: each broken rule is found by it.
#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_of_the_lease_gives_a_slot_to_two_nodes() {
    use super::super::mutant::Mutant;
    for mutant in [
        Mutant::LeaseFromAnswer,
        Mutant::VoterForgets,
        Mutant::DoublePromise,
        Mutant::MinorityIsEnough,
        Mutant::StragglerGrant,
        Mutant::ReleaseOutOfOrder,
    ] {
        let found = (0..3_000).any(|seed| two_holders(seed, Planted::new(mutant)).is_some());
        assert!(found, "{} was not noticed", mutant.name());
    }
}

#[test]
fn a_holder_knows_when_it_reaches_too_few_voters_and_when_it_does_again() {
    let rules = LeaseRules::default();
    let voters: Vec<NodeId> = (1..=3).map(NodeId).collect();
    let mut holder = Holder::new(voters, 1, rules, Planted::default());
    let (mut now, mut last) = (0, Seq::default());
    assert!(!holder.is_cut_off(now), "nobody was asked");
    while now < rules.cut_off_after() {
        assert!(!holder.is_cut_off(now), "at {now}");
        last = holder.ask(now);
        now += rules.ask_every();
    }
    assert!(holder.is_cut_off(now));
    // An answer counts, also if nothing is granted; one is not enough.
    holder.granted(now, NodeId(1), last, &SlotSet::default(), &mut Vec::new());
    assert!(holder.is_cut_off(now));
    holder.granted(now, NodeId(2), last, &SlotSet::default(), &mut Vec::new());
    assert!(!holder.is_cut_off(now));
    // A process that was stopped for long has asked nobody.
    now += 10 * rules.duration;
    holder.ask(now);
    assert!(!holder.is_cut_off(now));
}
