//! I12: a voter never has promised a slot to two holders for the same time, not even across a restart that made it forget.
//!
//! Harm: with two promises of one voter alive, two majorities can exist, and with them two holders.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct OnePromisePerVoter {
    promises: BTreeMap<(NodeId, Slot), (NodeId, Micros)>,
}

impl Invariant for OnePromisePerVoter {
    const NAME: &'static str = "I12 one_promise_per_voter";

    fn see(&mut self, _before: &Oracle, at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::PromiseMade { voter, slot, holder, until } => {
                let last = self.promises.insert((*voter, *slot), (*holder, *until));
                match last {
                    Some((other, ends)) if other != *holder && ends > at => {
                        let (slot, holder, other) = (slot.0, holder.0, other.0);
                        let what =
                            format!("slot {slot} is promised to node {holder} while the promise to node {other}");
                        Broken::on(*voter, format!("{what} lives for {} us more", ends - at))
                    }
                    // A renewal may come late and end earlier; what was promised before still holds.
                    Some((_, ends)) if ends > *until => {
                        self.promises.insert((*voter, *slot), (*holder, ends));
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
            Event::PromiseDropped { voter, slot, holder } => {
                if self.promises.get(&(*voter, *slot)).is_some_and(|(to, _)| to == holder) {
                    self.promises.remove(&(*voter, *slot));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, C, SLOT, show};
    use super::*;

    fn promise(voter: NodeId, holder: NodeId, until: Micros) -> Event {
        Event::PromiseMade { voter, slot: SLOT, holder, until }
    }

    #[test]
    fn promises_may_follow_each_other_and_voters_may_differ() {
        let events = [(0, promise(A, B, 10)), (0, promise(C, A, 10)), (5, promise(A, B, 15)), (15, promise(A, C, 25))];
        let dropped = Event::PromiseDropped { voter: A, slot: SLOT, holder: C };
        let more = [(16, dropped), (17, promise(A, B, 27))];
        assert_eq!(show(&mut OnePromisePerVoter::default(), events.into_iter().chain(more)), Ok(()));
    }

    #[test]
    fn two_live_promises_break_it_also_after_a_restart() {
        let events = [(0, promise(A, B, 10)), (1, Event::NodeCrashed { node: A }), (9, promise(A, C, 19))];
        assert!(show(&mut OnePromisePerVoter::default(), events).is_err());
        // A release by somebody else drops nothing.
        let dropped = Event::PromiseDropped { voter: A, slot: SLOT, holder: C };
        let events = [(0, promise(A, B, 10)), (1, dropped), (9, promise(A, C, 19))];
        assert!(show(&mut OnePromisePerVoter::default(), events).is_err());
    }
}
