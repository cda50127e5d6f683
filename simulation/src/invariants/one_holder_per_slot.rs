//! I7: no two nodes believe that they hold a slot at the same time.
//!
//! Harm: two holders are two crawlers of the same hosts; every other promise of the politeness plane rests on this one.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct OneHolderPerSlot {
    holders: BTreeMap<Slot, Vec<(NodeId, Micros)>>,
}

impl Invariant for OneHolderPerSlot {
    const NAME: &'static str = "I7 one_holder_per_slot";

    fn see(&mut self, _before: &Oracle, at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::LeaseHeld { node, slot, until, .. } => {
                let holders = self.holders.entry(*slot).or_default();
                holders.retain(|(holder, until)| holder != node && *until > at);
                if let Some((other, ends)) = holders.first() {
                    let what = format!(
                        "slot {}: held while node {} believes in it for {} us more",
                        slot.0,
                        other.0,
                        ends - at
                    );
                    return Broken::on(*node, what);
                }
                holders.push((*node, *until));
            }
            Event::LeaseLost { node, slot } => {
                if let Some(holders) = self.holders.get_mut(slot) {
                    holders.retain(|(holder, _)| holder != node);
                }
            }
            Event::NodeCrashed { node } => {
                for holders in self.holders.values_mut() {
                    holders.retain(|(holder, _)| holder != node);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, SLOT, show};
    use super::*;

    fn held(node: NodeId, until: Micros) -> Event {
        Event::LeaseHeld { node, slot: SLOT, until, acquired: true }
    }

    #[test]
    fn a_lease_may_be_renewed_and_pass_on_at_its_end_or_release() {
        let events =
            [(0, held(A, 10)), (5, held(A, 20)), (20, held(B, 30)), (25, Event::LeaseLost { node: B, slot: SLOT })];
        let more = [(26, held(A, 40)), (27, Event::NodeCrashed { node: A }), (28, held(B, 50))];
        assert_eq!(show(&mut OneHolderPerSlot::default(), events.into_iter().chain(more)), Ok(()));
    }

    #[test]
    fn two_believers_break_it() {
        assert!(show(&mut OneHolderPerSlot::default(), [(0, held(A, 10)), (9, held(B, 30))]).is_err());
    }
}
