//! I9: the ring is a function of its members and their weights, and of nothing else: not of the node that computes it, not
//! of the order in which members came. The function itself is pinned by golden values in `proto`.
//!
//! Harm: two nodes with the same view disagree about an owner, so a slot is asked for by both or by none.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct RingIsAFunction {
    owners: BTreeMap<BTreeMap<NodeId, usize>, Arc<[NodeId]>>,
}

impl Invariant for RingIsAFunction {
    const NAME: &'static str = "I9 ring_is_a_function";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        let Event::RingChanged { node, members, owners } = event else { return Ok(()) };
        let known = self.owners.entry(members.clone()).or_insert_with(|| Arc::clone(owners));
        match known.iter().zip(owners.iter()).position(|(known, is)| known != is) {
            Some(slot) => {
                Broken::on(*node, format!("slot {slot} has another owner than on a ring of the same members"))
            }
            None if known.len() != owners.len() => Broken::on(*node, "a slot has no owner".to_owned()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, ring_changed, show};
    use super::*;

    #[test]
    fn nodes_with_the_same_members_have_the_same_ring() {
        let events = [(0, ring_changed(A, &[0, 1, 2])), (1, ring_changed(B, &[0, 1, 2]))];
        assert_eq!(show(&mut RingIsAFunction::default(), events), Ok(()));
    }

    #[test]
    fn one_slot_that_differs_breaks_it() {
        let Event::RingChanged { node, members, owners } = ring_changed(A, &[0, 1, 2]) else { unreachable!() };
        let mut owners = owners.to_vec();
        owners[99] = NodeId((owners[99].0 + 1) % 3);
        let event = Event::RingChanged { node, members, owners: Arc::from(owners) };
        let events = [(0, ring_changed(B, &[0, 1, 2])), (1, event)];
        assert!(show(&mut RingIsAFunction::default(), events).is_err());
    }
}
