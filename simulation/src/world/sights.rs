//! What nodes decided, as the trace tells it: in true time instead of a node's own, and with lives counted from 0.

use std::collections::{BTreeMap, BTreeSet};

use proto::cluster::coordinator::Sight;
use proto::cluster::route::RouteRules;
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};

use super::clock::Clock;
use super::plan::{Fault, Plan, TimedFault};
use super::trace::{Event, LoadsKnown};

/// Translates what nodes decided; remembers who held and who holds what.
pub struct Sights {
    voters: Vec<NodeId>,
    partitions: Vec<TimedFault>,
    last_holder: BTreeMap<Slot, NodeId>,
    /// What the present life of each node holds, as it has said.
    held: BTreeMap<NodeId, BTreeSet<Slot>>,
}

impl Sights {
    /// Of a run of `plan` that begins.
    pub fn new(plan: &Plan) -> Sights {
        let parts = |fault: &&TimedFault| matches!(fault.what, Fault::Partition { .. });
        Sights {
            voters: plan.voters().collect(),
            partitions: plan.faults.iter().filter(parts).cloned().collect(),
            last_holder: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// A life of a node is over. Returns what it held.
    pub fn forget(&mut self, node: NodeId) -> BTreeSet<Slot> {
        self.held.remove(&node).unwrap_or_default()
    }

    /// A node holds a slot no longer. Says whether it was the last one of a node that a partition keeps from a majority of the voters.
    fn minority_paused(&mut self, at: Micros, node: NodeId, slot: Slot) -> bool {
        let Some(held) = self.held.get_mut(&node) else { return false };
        let was_last = held.remove(&slot) && held.is_empty();
        let cuts = |one: NodeId, other: NodeId| {
            let cut = |fault: &TimedFault| fault.what.cuts(one, other) || fault.what.cuts(other, one);
            self.partitions.iter().any(|fault| fault.lasts_at(at) && cut(fault))
        };
        let reached = self.voters.iter().filter(|voter| **voter == node || !cuts(node, **voter)).count();
        was_last && reached * 2 < self.voters.len()
    }

    /// The events of what node `id`, whose lives called themselves `boots`, decided at true time `at`.
    pub fn events(&mut self, at: Micros, id: NodeId, sight: Sight, clock: &Clock, boots: &[u32]) -> Vec<Event> {
        let event = match sight {
            Sight::LeaseHeld { slot, until, acquired } => {
                self.held.entry(id).or_default().insert(slot);
                let held = Event::LeaseHeld { node: id, slot, until: clock.true_time(until), acquired };
                let moved = acquired && self.last_holder.insert(slot, id).is_some_and(|last| last != id);
                return moved.then_some(Event::Sometimes("lease_moved")).into_iter().chain([held]).collect();
            }
            Sight::LeaseLost { slot } => {
                let paused = self.minority_paused(at, id, slot).then_some(Event::Sometimes("minority_paused"));
                return [Event::LeaseLost { node: id, slot }].into_iter().chain(paused).collect();
            }
            Sight::ServedUnsure { slot } => Event::ServedUnsure { node: id, slot },
            Sight::PromiseMade { slots, holder, seq, until } => {
                let until = clock.true_time(until);
                return slots.iter().map(|slot| Event::PromiseMade { voter: id, slot, holder, seq, until }).collect();
            }
            Sight::PromiseDropped { slots, holder, seq } => {
                return slots.iter().map(|slot| Event::PromiseDropped { voter: id, slot, holder, seq }).collect();
            }
            Sight::Acknowledged { slot, urls } => Event::WriteAcknowledged { node: id, slot, urls },
            Sight::RingChanged { members, owners } => Event::RingChanged { node: id, members, owners },
            Sight::IncarnationKnown { of, boot } => Event::IncarnationKnown { node: id, of, boot },
            Sight::Applied { origin, origin_boot, what } if origin == id => {
                let Some(life) = boots.iter().rposition(|known| *known == origin_boot) else { return Vec::new() };
                Event::MessageApplied { node: id, origin, origin_boot: life as u32, what }
            }
            Sight::Applied { origin, origin_boot, what } => {
                Event::MessageApplied { node: id, origin, origin_boot, what }
            }
            Sight::Ignored { from, why } => {
                let stranger = (why == "another cluster").then_some(Event::Sometimes("stranger_ignored"));
                return stranger.into_iter().chain([Event::MessageIgnored { node: id, from, why }]).collect();
            }
            Sight::BatchSent { batch, to, urls, known: loads } => {
                let RouteRules { low_water, high_water, .. } = RouteRules::default();
                let known = LoadsKnown { low_water, high_water, loads };
                Event::BatchSent { batch, from: id, to, urls, known }
            }
            Sight::BatchRefused { batch } => Event::BatchRefused { batch, by: id },
            Sight::BatchLost { batch, urls } => Event::BatchLost { batch, node: id, urls },
            Sight::BatchPutBack { batch, urls } => Event::BatchPutBack { batch, node: id, urls },
            Sight::QueueMeasured { queue, length, bound } => {
                Event::QueueMeasured { node: id, queue, length: length as u64, bound: bound as u64 }
            }
            Sight::Sometimes(name) => Event::Sometimes(name),
            Sight::PageKept { url, round } => Event::PageAcknowledged { node: id, url, round },
            Sight::DefinitionKept { key, version } => Event::DefinitionAcknowledged { node: id, key, version },
        };
        vec![event]
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Direction, SECOND};
    use super::*;

    const SLOT: Slot = Slot(7);

    /// What is said when `node` loses its only slot at `at_s`, while node 0 and its like are cut off from 5 s to 15 s.
    fn losing(node: u64, at_s: u64) -> Vec<Event> {
        let mut plan = Plan::from_seed(1);
        (plan.cluster.nodes, plan.cluster.voters) = (5, 3);
        let what = Fault::Partition { side: vec![0, 4], direction: Direction::Inward };
        plan.faults = vec![TimedFault { id: 1, at_ms: 5_000, lasts_ms: 10_000, what }];
        let (mut sights, node) = (Sights::new(&plan), NodeId(node));
        let clock = Clock::new(&plan, node);
        sights.events(0, node, Sight::LeaseHeld { slot: SLOT, until: 9, acquired: true }, &clock, &[]);
        sights.events(at_s * SECOND, node, Sight::LeaseLost { slot: SLOT }, &clock, &[])
    }

    #[test]
    fn a_minority_is_paused_when_it_holds_nothing_any_more() {
        let is_paused = |events: Vec<Event>| events.contains(&Event::Sometimes("minority_paused"));
        assert!(is_paused(losing(0, 9)) && is_paused(losing(4, 9)), "one voter of three, and who hears that one alone");
        assert!(!is_paused(losing(1, 9)), "it reaches two voters");
        assert!(!is_paused(losing(0, 16)), "the partition is over");
    }
}
