//! I12: a voter never has promised a slot to two holders for the same time, not even across a restart that made it forget. A promise
//! ends with its time, or by a release that its holder sent after the request it answers: not by one that came late.
//!
//! Harm: with two promises of one voter alive, two majorities can exist, and with them two holders.

use std::collections::BTreeMap;

use proto::cluster::lease::Seq;
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

#[derive(Clone, Copy)]
struct Promise {
    holder: NodeId,
    seq: Seq,
    until: Micros,
}

/// See the module.
#[derive(Default)]
pub struct OnePromisePerVoter {
    promises: BTreeMap<(NodeId, Slot), Promise>,
}

impl Invariant for OnePromisePerVoter {
    const NAME: &'static str = "I12 one_promise_per_voter";

    fn see(&mut self, _before: &Oracle, at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::PromiseMade { voter, slot, holder, seq, until } => {
                let mut promise = Promise { holder: *holder, seq: *seq, until: *until };
                let last = self.promises.get(&(*voter, *slot)).filter(|last| last.until > at);
                if let Some(last) = last {
                    if last.holder != *holder {
                        let (slot, holder, other) = (slot.0, holder.0, last.holder.0);
                        let what =
                            format!("slot {slot} is promised to node {holder} while the promise to node {other}");
                        return Broken::on(*voter, format!("{what} lives for {} us more", last.until - at));
                    }
                    // A renewal may come late and end earlier; what was promised before still holds.
                    promise.until = promise.until.max(last.until);
                }
                self.promises.insert((*voter, *slot), promise);
                Ok(())
            }
            Event::PromiseDropped { voter, slot, holder, seq } => {
                match self.promises.get(&(*voter, *slot)).filter(|promise| promise.holder == *holder) {
                    Some(promise) if promise.until > at && promise.seq >= *seq => {
                        let (slot, holder) = (slot.0, holder.0);
                        let what =
                            format!("the promise of slot {slot} to node {holder}, made at its {:?}", promise.seq);
                        Broken::on(*voter, format!("{what}, is dropped by a release of before, {seq:?}"))
                    }
                    Some(_) => {
                        self.promises.remove(&(*voter, *slot));
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, C, SLOT, show};
    use super::*;

    fn seq(counter: u64) -> Seq {
        Seq { boot: 0, counter }
    }

    fn promise(voter: NodeId, holder: NodeId, until: Micros) -> Event {
        Event::PromiseMade { voter, slot: SLOT, holder, seq: seq(1), until }
    }

    #[test]
    fn promises_may_follow_each_other_and_voters_may_differ() {
        let events = [(0, promise(A, B, 10)), (0, promise(C, A, 10)), (5, promise(A, B, 15)), (15, promise(A, C, 25))];
        let dropped = Event::PromiseDropped { voter: A, slot: SLOT, holder: C, seq: seq(2) };
        let more = [(16, dropped), (17, promise(A, B, 27))];
        assert_eq!(show(&mut OnePromisePerVoter::default(), events.into_iter().chain(more)), Ok(()));
    }

    #[test]
    fn two_live_promises_break_it_also_after_a_restart() {
        let events = [(0, promise(A, B, 10)), (1, Event::NodeCrashed { node: A }), (9, promise(A, C, 19))];
        assert!(show(&mut OnePromisePerVoter::default(), events).is_err());
        // A release by somebody else drops nothing.
        let dropped = Event::PromiseDropped { voter: A, slot: SLOT, holder: C, seq: seq(2) };
        let events = [(0, promise(A, B, 10)), (1, dropped), (9, promise(A, C, 19))];
        assert!(show(&mut OnePromisePerVoter::default(), events).is_err());
    }

    #[test]
    fn a_release_that_comes_late_drops_nothing() {
        let dropped = |at| Event::PromiseDropped { voter: A, slot: SLOT, holder: B, seq: seq(at) };
        let judge = |at| show(&mut OnePromisePerVoter::default(), [(0, promise(A, B, 10)), (5, dropped(at))]);
        assert_eq!(judge(2), Ok(()));
        assert!(judge(0).is_err());
    }
}
