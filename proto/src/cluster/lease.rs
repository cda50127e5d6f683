//! Who may ask the hosts of a slot: the lease.
//!
//! A node starts a fetch only while it holds the slot's lease for long enough to finish it. The voters of a cluster grant
//! leases by majority; a node that is its own only voter holds every slot for ever.
//!
//! **Why two nodes never hold a slot at once.** A voter promises a slot to one holder for D on its own clock, and grants nothing for
//! D after it started, because it forgot what it promised before. A holder counts from the moment before it *sent* the request that
//! a voter granted, and trusts the grant for D·(1−ρ)/(1+ρ) − g on its own clock. If clocks run within 1 ± ρ of real time, the
//! holder's trust ends (in real time) at most D/(1+ρ) after the request was sent, the voter's promise at least D/(1+ρ) after it came,
//! which is later. Any two majorities share a voter, and that voter has one promise at a time. Nothing else is assumed: not the order,
//! number or age of messages, not synchronised clocks, not that anybody is alive.
//!
//! **Who reaches too few voters** gets no leases, and may count as alive all the same, because others reach it through a third. Voters answer every request, if
//! only with nothing, so a holder knows: when no majority has answered for a while it says so, and others take its slots ([`Holder::is_cut_off`]).
//!
//! **What a restart adds.** A voter grants a slot to the next life of its holder at once. That life does not know which batches its former
//! one sent to other nodes, so a node that starts asks for no lease before T_f·(1+ρ) have passed: by then all of them have ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::mutant::{Planted, planted};
use super::slot_set::SlotSet;
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::{NodeId, SLOTS, Slot};

/// The leases a node holds, as the frontier needs to know them.
#[derive(Clone, Debug)]
pub enum Leases {
    /// The only voter of its cluster: every slot, for ever.
    Sole,
    /// Slots granted by a majority.
    Granted(Grants),
}

/// Slots granted by a majority.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// The slots.
    pub held: BTreeMap<Slot, Held>,
    /// A defect to be found.
    pub planted: Planted,
}

/// A slot that a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// When it was acquired, on this node's clock.
    pub since: Micros,
    /// Until when it is held, on this node's clock.
    pub until: Micros,
    /// What others knew of it was pulled, so that it may be served.
    pub served: bool,
}

impl Leases {
    /// Says whether a fetch of `slot` that ends at latest at `ends` may start.
    pub fn allow(&self, slot: Slot, ends: Micros) -> bool {
        match self {
            Leases::Sole => true,
            Leases::Granted(grants) => {
                let ends = if planted!(grants.planted, LeaseEndIgnored) { 0 } else { ends };
                grants.held.get(&slot).is_some_and(|held| held.served && ends < held.until)
            }
        }
    }

    /// Says whether the queues of `slot` belong into memory.
    pub fn serve(&self, slot: Slot) -> bool {
        match self {
            Leases::Sole => true,
            Leases::Granted(grants) => grants.held.get(&slot).is_some_and(|held| held.served),
        }
    }

    /// Since when the hosts of `slot` are asked by nobody but us; 0 for a node alone, before whom nobody was.
    pub fn since(&self, slot: Slot) -> Micros {
        match self {
            Leases::Sole => 0,
            Leases::Granted(grants) if planted!(grants.planted, NoQuarantine) => 0,
            Leases::Granted(grants) => grants.held.get(&slot).map_or(0, |held| held.since),
        }
    }
}

/// Numbers the requests and releases of a holder, over all its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seq {
    /// The life.
    pub boot: u32,
    /// Counts within that life.
    pub counter: u64,
}

/// Times of the lease. All on the clock of who uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRules {
    /// D: how long a promise lasts.
    pub duration: Micros,
    /// g: taken off the holder's trust, for what is not clock drift (a thread that waits between reading the clock and acting).
    pub guard: Micros,
    /// ρ: bound of |clock rate − 1|, in millionths.
    pub drift_ppm: u64,
}

impl Default for LeaseRules {
    fn default() -> Self {
        LeaseRules { duration: 45 * SECOND, guard: SECOND / 4, drift_ppm: 10_000 }
    }
}

impl LeaseRules {
    /// How long a holder trusts a grant, from the moment before it sent the request.
    pub fn trust(&self) -> Micros {
        self.at_most(self.duration).saturating_sub(self.guard)
    }

    /// Time on one clock that is never longer, in real time, than `time` on another.
    pub fn at_most(&self, time: Micros) -> Micros {
        scale(time, 1_000_000 - self.drift_ppm, 1_000_000 + self.drift_ppm)
    }

    /// Time on our clock in which at least `time` passes in reality: `time`·(1+ρ).
    pub fn at_least(&self, time: Micros) -> Micros {
        time.saturating_add(scale(time, self.drift_ppm, 1_000_000)).saturating_add(1)
    }

    /// How often a holder asks for what it has.
    pub fn renew_every(&self) -> Micros {
        self.duration / 4
    }

    /// How often it asks while it lacks any of its slots: their hosts wait, and voters do not say when a promise ends.
    pub fn ask_every(&self) -> Micros {
        self.duration / 16
    }

    /// A holder that no majority answered for so long, though it asked, is cut off from the voters: a dozen requests at the pace above. By then
    /// its leases have ended or are about to.
    pub fn cut_off_after(&self) -> Micros {
        self.duration * 3 / 4
    }
}

fn scale(time: Micros, by: u64, over: u64) -> Micros {
    (u128::from(time) * u128::from(by) / u128::from(over)) as Micros
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Promise {
    holder: NodeId,
    seq: Seq,
    until: Micros,
}

/// The side that promises. All in memory: what is forgotten is waited out.
pub struct Voter {
    rules: LeaseRules,
    planted: Planted,
    no_grant_until: Micros,
    promises: Vec<Option<Promise>>,
}

/// What a voter decided about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// Promised, until this time.
    pub granted: SlotSet,
    /// The end of the promises.
    pub until: Micros,
    /// Slots kept from the asker because another holder's promise lives.
    pub taken: usize,
    /// The voter grants nothing yet.
    pub waits: bool,
}

impl Voter {
    /// A voter that starts at `now`: what it promised in a former life may live for D.
    pub fn new(now: Micros, rules: LeaseRules, planted: Planted) -> Voter {
        let no_grant_until = if planted!(planted, VoterForgets) { now } else { now + rules.duration };
        Voter { rules, planted, no_grant_until, promises: vec![None; usize::from(SLOTS)] }
    }

    /// Decides about a request. It is silent about what it does not grant.
    pub fn request(&mut self, now: Micros, from: NodeId, seq: Seq, slots: &SlotSet) -> Vote {
        let mut vote = Vote { until: now + self.rules.duration, ..Vote::default() };
        if now < self.no_grant_until {
            vote.waits = true;
            return vote;
        }
        for slot in slots.iter() {
            let promise = &mut self.promises[usize::from(slot.0)];
            match promise {
                Some(other) if other.holder != from && now < other.until && !planted!(self.planted, DoublePromise) => {
                    vote.taken += 1;
                    continue;
                }
                // A request that was overtaken by a later one of the same holder.
                Some(mine) if mine.holder == from && mine.seq > seq => continue,
                _ => {}
            }
            *promise = Some(Promise { holder: from, seq, until: vote.until });
            vote.granted.insert(slot);
        }
        vote
    }

    /// Drops promises that their holder gives back; returns which.
    pub fn release(&mut self, from: NodeId, seq: Seq, slots: &SlotSet) -> SlotSet {
        let mut dropped = SlotSet::default();
        for slot in slots.iter() {
            let promise = &mut self.promises[usize::from(slot.0)];
            let ours = |p: &Promise| p.holder == from && (seq > p.seq || planted!(self.planted, ReleaseOutOfOrder));
            if promise.as_ref().is_some_and(ours) {
                *promise = None;
                dropped.insert(slot);
            }
        }
        dropped
    }

    /// Whether every living promise is to a life of a node for which `is_one` says yes. What was promised before we started lives for as long as nothing is granted.
    pub fn promises_only_to(&self, now: Micros, is_one: impl Fn(NodeId, u32) -> bool) -> bool {
        let mut living = self.promises.iter().flatten().filter(|promise| now < promise.until);
        now >= self.no_grant_until && living.all(|promise| is_one(promise.holder, promise.seq.boot))
    }

    /// Who has a living promise of `slot`.
    pub fn promised_to(&self, now: Micros, slot: Slot) -> Option<NodeId> {
        self.promises[usize::from(slot.0 % SLOTS)].filter(|promise| now < promise.until).map(|promise| promise.holder)
    }
}

#[derive(Clone, Debug)]
struct Lease {
    /// Per voter, when the newest request that it granted was sent.
    granted: Vec<Option<Micros>>,
    /// 0 when it is not held.
    until: Micros,
    /// Grants of requests before this one answer a lease that was given back since.
    not_before: Seq,
}

impl Lease {
    fn new(voters: usize) -> Lease {
        Lease { granted: vec![None; voters], until: 0, not_before: Seq::default() }
    }
}

/// The side that holds.
pub struct Holder {
    rules: LeaseRules,
    planted: Planted,
    voters: Vec<NodeId>,
    boot: u32,
    counter: u64,
    sent: BTreeMap<Seq, Micros>,
    /// Per voter, when it last answered one of them.
    answered: Vec<Option<Micros>>,
    /// Of the slots that were ever granted.
    leases: BTreeMap<Slot, Lease>,
    /// No lease that is held ends before this.
    ends_first: Micros,
}

/// A slot whose lease began or became longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extended {
    /// Which.
    pub slot: Slot,
    /// Until when now.
    pub until: Micros,
    /// It was not held before.
    pub acquired: bool,
}

impl Holder {
    /// A holder that starts its life `boot` and holds nothing.
    pub fn new(voters: Vec<NodeId>, boot: u32, rules: LeaseRules, planted: Planted) -> Holder {
        let (sent, leases, answered) = (BTreeMap::new(), BTreeMap::new(), vec![None; voters.len()]);
        Holder { rules, planted, voters, boot, counter: 0, sent, answered, leases, ends_first: Micros::MAX }
    }

    /// Begins a request, which is sent to every voter after this returned.
    pub fn ask(&mut self, now: Micros) -> Seq {
        let seq = self.next_seq();
        self.sent.insert(seq, now);
        let old = now.saturating_sub(self.rules.duration);
        self.sent.retain(|_, sent| *sent >= old);
        seq
    }

    fn next_seq(&mut self) -> Seq {
        self.counter += 1;
        Seq { boot: self.boot, counter: self.counter }
    }

    /// Takes in a grant. Adds what it extends to `out`; returns how many slots it no longer counts for.
    pub fn granted(&mut self, now: Micros, voter: NodeId, seq: Seq, slots: &SlotSet, out: &mut Vec<Extended>) -> usize {
        let (Some(&sent), Some(voter)) = (self.sent.get(&seq), self.voters.iter().position(|known| *known == voter))
        else {
            return slots.len();
        };
        self.answered[voter] = Some(now);
        let from_answer = planted!(self.planted, LeaseFromAnswer);
        let (since, trust) = if from_answer { (now, self.rules.duration) } else { (sent, self.rules.trust()) };
        let majority = if planted!(self.planted, MinorityIsEnough) { 1 } else { self.voters.len() / 2 + 1 };
        let (mut ignored, mut times) = (0, Vec::with_capacity(self.voters.len()));
        for slot in slots.iter() {
            let lease = self.leases.entry(slot).or_insert_with(|| Lease::new(self.voters.len()));
            if seq < lease.not_before && !planted!(self.planted, StragglerGrant) {
                ignored += 1;
                continue;
            }
            lease.granted[voter] = lease.granted[voter].max(Some(since));
            times.clone_from(&lease.granted);
            times.sort_unstable_by(|a, b| b.cmp(a));
            let Some(Some(time)) = times.get(majority - 1).copied() else { continue };
            let until = time + trust;
            if until <= now || until <= lease.until {
                continue;
            }
            let acquired = lease.until <= now;
            lease.until = until;
            self.ends_first = self.ends_first.min(until);
            out.push(Extended { slot, until, acquired });
        }
        ignored
    }

    /// Whether no majority of the voters has answered for a while, though they were asked all the time. A process that was stopped
    /// has asked nobody.
    pub fn is_cut_off(&self, now: Micros) -> bool {
        let Some(since) = now.checked_sub(self.rules.cut_off_after()) else { return false };
        let asked = self.sent.values().next().is_some_and(|first| *first <= since);
        let answered = self.answered.iter().flatten().filter(|at| **at > since).count();
        asked && answered < self.voters.len() / 2 + 1
    }

    /// Gives slots back; the release with this number is sent to every voter after this returned.
    pub fn release(&mut self, slots: &SlotSet) -> Seq {
        let seq = self.next_seq();
        for slot in slots.iter() {
            let lease = self.leases.entry(slot).or_insert_with(|| Lease::new(self.voters.len()));
            lease.granted.fill(None);
            (lease.until, lease.not_before) = (0, seq);
        }
        seq
    }

    /// The leases that ended by `now`.
    pub fn expire(&mut self, now: Micros) -> Vec<Slot> {
        if now < self.ends_first {
            return Vec::new();
        }
        self.ends_first = Micros::MAX;
        let mut ended = Vec::new();
        for (slot, lease) in &mut self.leases {
            if lease.until == 0 {
                continue;
            }
            if lease.until <= now {
                lease.until = 0;
                ended.push(*slot);
            } else {
                self.ends_first = self.ends_first.min(lease.until);
            }
        }
        ended
    }

    /// Until when `slot` is held; `None` if it is not.
    pub fn until(&self, now: Micros, slot: Slot) -> Option<Micros> {
        self.leases.get(&slot).map(|lease| lease.until).filter(|until| now < *until)
    }

    /// The slots that are held.
    pub fn held(&self, now: Micros) -> SlotSet {
        self.leases.keys().copied().filter(|slot| self.until(now, *slot).is_some()).collect()
    }

    /// When the next lease ends, if one is held.
    pub fn next_wake(&self) -> Option<Micros> {
        Some(self.ends_first).filter(|at| *at < Micros::MAX)
    }

    /// Who votes.
    pub fn voters(&self) -> &[NodeId] {
        &self.voters
    }
}

#[cfg(test)]
mod tests;
