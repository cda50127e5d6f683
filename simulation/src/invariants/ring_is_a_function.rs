//! I9: the ring is a function of its members and their weights, and of nothing else: not of the node that computes it, not
//! of the order in which members came. The function itself is pinned by golden values in `proto`.
//!
//! Harm: two nodes with the same view disagree about an owner, so a slot is asked for by both or by none.

use proto::crawl::politeness::Micros;
use proto::id::{SLOTS, Slot};

use super::{Broken, Invariant, true_ring};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct RingIsAFunction;

impl Invariant for RingIsAFunction {
    const NAME: &'static str = "I9 ring_is_a_function";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        let Event::RingChanged { node, members, owners } = event else { return Ok(()) };
        let ring = true_ring(members);
        let differs = |slot: &u16| ring.owner(Slot(*slot)) != owners.get(usize::from(*slot)).copied();
        match (0..SLOTS).find(differs) {
            Some(slot) => Broken::on(*node, format!("slot {slot} has another owner than its members make it have")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proto::id::NodeId;

    use super::super::testing::{A, B, ring_changed, show};
    use super::*;

    #[test]
    fn nodes_with_the_same_members_have_the_same_ring() {
        let events = [(0, ring_changed(A, &[0, 1, 2])), (1, ring_changed(B, &[0, 1, 2]))];
        assert_eq!(show(&mut RingIsAFunction, events), Ok(()));
    }

    #[test]
    fn one_slot_that_differs_breaks_it() {
        let Event::RingChanged { node, members, owners } = ring_changed(A, &[0, 1, 2]) else { unreachable!() };
        let mut owners = owners.to_vec();
        owners[99] = NodeId((owners[99].0 + 1) % 3);
        let event = Event::RingChanged { node, members, owners: Arc::from(owners) };
        assert!(show(&mut RingIsAFunction, [(0, event)]).is_err());
    }
}
