//! What nodes decided, as the trace tells it: in true time instead of a node's own, and with lives counted from 0.

use std::collections::BTreeMap;

use proto::cluster::coordinator::Sight;
use proto::cluster::route::RouteRules;
use proto::id::{NodeId, Slot};

use super::clock::Clock;
use super::trace::{Event, LoadsKnown};

/// Translates what nodes decided; remembers who held what.
#[derive(Default)]
pub struct Sights {
    last_holder: BTreeMap<Slot, NodeId>,
}

impl Sights {
    /// The events of what node `id` decided, whose lives called themselves `boots`.
    pub fn events(&mut self, id: NodeId, sight: Sight, clock: &Clock, boots: &[u32]) -> Vec<Event> {
        let event = match sight {
            Sight::LeaseHeld { slot, until, acquired } => {
                let held = Event::LeaseHeld { node: id, slot, until: clock.true_time(until), acquired };
                let moved = acquired && self.last_holder.insert(slot, id).is_some_and(|last| last != id);
                return moved.then_some(Event::Sometimes("lease_moved")).into_iter().chain([held]).collect();
            }
            Sight::LeaseLost { slot } => Event::LeaseLost { node: id, slot },
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
