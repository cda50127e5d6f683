//! I11: no batch goes to a node that its sender knows to be above the high-water mark while it knows one below the
//! low-water mark.
//!
//! Harm: the busiest node gets busier until it answers nobody, while others have nothing to do.

use proto::crawl::politeness::Micros;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct NoBatchToTheOverloaded;

impl Invariant for NoBatchToTheOverloaded {
    const NAME: &'static str = "I11 no_batch_to_the_overloaded";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        let Event::BatchSent { batch, from, to, known, .. } = event else { return Ok(()) };
        let load_of_target = known.loads.iter().find(|(node, _)| node == to).map(|(_, load)| *load);
        let idle = known.loads.iter().find(|(_, load)| *load < known.low_water);
        match (load_of_target, idle) {
            (Some(load), Some((idle, idle_load))) if load > known.high_water => {
                let what = format!("batch {batch} went to node {} with a load of {load}", to.0);
                Broken::on(*from, format!("{what}, and node {} with {idle_load} was known", idle.0))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::id::{BatchId, NodeId};

    use super::super::testing::{A, B, C, show, url};
    use super::*;
    use crate::world::trace::LoadsKnown;

    fn sent(to: NodeId, loads: Vec<(NodeId, u32)>) -> (Micros, Event) {
        let batch = BatchId { node: A, boot: 0, number: 1 };
        let known = LoadsKnown { low_water: 500, high_water: 800, loads };
        (0, Event::BatchSent { batch, from: A, to, urls: vec![url(1)], known })
    }

    #[test]
    fn to_the_idle_or_for_want_of_one_to_the_busy_is_fine() {
        let judge = |event| show(&mut NoBatchToTheOverloaded, [event]);
        assert_eq!(judge(sent(B, vec![(A, 900), (B, 499)])), Ok(()));
        assert_eq!(judge(sent(A, vec![(A, 900), (B, 500)])), Ok(()));
        assert_eq!(judge(sent(C, vec![(A, 100)])), Ok(()));
    }

    #[test]
    fn to_the_overloaded_beside_the_idle_breaks_it() {
        assert!(show(&mut NoBatchToTheOverloaded, [sent(B, vec![(A, 600), (B, 801), (C, 499)])]).is_err());
    }
}
