//! I8: when a member joins or leaves, only the slots move that go to who joined or come from who left, and not many more
//! than its share.
//!
//! Harm: a ring that reshuffles everything on every join moves all data of the cluster, and every slot pauses while it changes hands.

use std::collections::BTreeSet;

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, SLOTS};

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct RingMovesLittle;

impl Invariant for RingMovesLittle {
    const NAME: &'static str = "I8 ring_moves_little";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        let Event::RingChanged { node, members, owners } = event else { return Ok(()) };
        let Some(facts) = before.nodes.get(node) else { return Ok(()) };
        let (Some(old_members), Some(old_owners)) = (&facts.members, &facts.owners) else { return Ok(()) };
        // Who has another weight than before has come and gone at once.
        let changed = |node: &&NodeId| old_members.get(*node) != members.get(*node);
        let came: BTreeSet<&NodeId> = members.keys().filter(changed).collect();
        let went: BTreeSet<&NodeId> = old_members.keys().filter(changed).collect();
        let mut moved = 0u64;
        for (slot, (old, new)) in old_owners.iter().zip(owners.iter()).enumerate() {
            if old == new {
                continue;
            }
            moved += 1;
            if !came.contains(new) && !went.contains(old) {
                let what = format!("slot {slot} moved from node {} to node {}, and neither came or went", old.0, new.0);
                return Broken::on(*node, what);
            }
        }
        let weight = |some: &BTreeSet<&NodeId>, of: &std::collections::BTreeMap<NodeId, usize>| {
            let total: usize = of.values().sum();
            let part: usize = some.iter().filter_map(|node| of.get(*node)).sum();
            (part as u64 * u64::from(SLOTS)).checked_div(total as u64).unwrap_or(0)
        };
        // With 128 virtual nodes per weight a share is within half of what it should be; 64 slots are for small shares.
        let expected = weight(&came, members) + weight(&went, old_members);
        if moved > expected + expected / 2 + 64 {
            return Broken::on(*node, format!("{moved} slots moved where {expected} were to be expected"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, ring_changed, show};
    use super::*;

    #[test]
    fn joins_and_leaves_on_the_true_ring_are_fine() {
        let views: [&[u64]; 5] = [&[0, 1, 2], &[0, 1, 2, 3], &[0, 1, 2, 3, 4, 5], &[0, 2, 3, 4, 5], &[0, 2, 4, 6]];
        assert_eq!(show(&mut RingMovesLittle, views.map(|members| (0, ring_changed(A, members)))), Ok(()));
    }

    #[test]
    fn a_ring_by_remainder_breaks_it() {
        let by_remainder = |count: u64| {
            let members = (0..count).map(|node| (NodeId(node), 1)).collect();
            let owners = (0..u64::from(SLOTS)).map(|slot| NodeId(slot % count)).collect();
            (0, Event::RingChanged { node: A, members, owners })
        };
        assert!(show(&mut RingMovesLittle, [by_remainder(3), by_remainder(4)]).is_err());
    }

    #[test]
    fn a_newcomer_that_takes_nearly_everything_breaks_it() {
        let first = ring_changed(A, &[0, 1, 2]);
        let members = (0..4).map(|node| (NodeId(node), 1)).collect();
        let greedy = Event::RingChanged { node: A, members, owners: vec![NodeId(3); usize::from(SLOTS)].into() };
        assert!(show(&mut RingMovesLittle, [(0, first), (1, greedy)]).is_err());
    }
}
