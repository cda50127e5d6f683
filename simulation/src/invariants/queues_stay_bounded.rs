//! I13: what has a bound stays within it.
//!
//! Harm: a node that falls behind, or is flooded, runs out of memory and takes what it held with it.

use proto::crawl::politeness::Micros;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct QueuesStayBounded;

impl Invariant for QueuesStayBounded {
    const NAME: &'static str = "I13 queues_stay_bounded";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::QueueMeasured { node, queue, length, bound } if length > bound => {
                Broken::on(*node, format!("{queue} holds {length}, and {bound} is its bound"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, show};
    use super::*;

    #[test]
    fn full_is_fine_and_more_than_full_breaks_it() {
        let measured = |length| [(0, Event::QueueMeasured { node: A, queue: "outbox", length, bound: 8 })];
        assert_eq!(show(&mut QueuesStayBounded, measured(8)), Ok(()));
        assert!(show(&mut QueuesStayBounded, measured(9)).is_err());
    }
}
