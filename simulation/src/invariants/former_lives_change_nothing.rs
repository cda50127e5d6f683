//! I14: nothing from a former life of a node changes state, once the node it reaches knows of a newer one. An answer to
//! what a node asked in a former life of its own changes nothing either.
//!
//! Harm: a grant that a dead process asked for gives a lease to its successor, which never asked; an old acknowledgement counts for
//! a new write that happens to have the same number.
//!
//! Another node's lives are ordered by the numbers they announce, which is all that anybody can see. A node that lost its disk may take a smaller
//! number than in its last life (numbers run ahead of the clock when it starts often) until somebody who remembers that one tells it.
//! Its own lives a node can count.
//!
//! URL records are not meant: they merge, and whoever wrote them may be long dead.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct FormerLivesChangeNothing {
    known: BTreeMap<(NodeId, NodeId), u32>, // by who knows, and of whom
}

impl FormerLivesChangeNothing {
    fn learn(&mut self, node: NodeId, of: NodeId, boot: u32) {
        let known = self.known.entry((node, of)).or_default();
        *known = (*known).max(boot);
    }
}

impl Invariant for FormerLivesChangeNothing {
    const NAME: &'static str = "I14 former_lives_change_nothing";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::NodeStarted { node, boot } => {
                self.known.retain(|(knows, _), _| knows != node);
                self.learn(*node, *node, *boot);
            }
            Event::IncarnationKnown { node, of, boot } => self.learn(*node, *of, *boot),
            Event::MessageApplied { node, origin, origin_boot, what } => {
                let newest = self.known.get(&(*node, *origin)).copied().unwrap_or(0);
                if *origin_boot < newest {
                    let what = format!("{what} of life {origin_boot} of node {} was applied", origin.0);
                    return Broken::on(*node, format!("{what}, and life {newest} was known"));
                }
                self.learn(*node, *origin, *origin_boot);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, show};
    use super::*;

    fn applied(origin: NodeId, origin_boot: u32) -> Event {
        Event::MessageApplied { node: A, origin, origin_boot, what: "a grant" }
    }

    fn judge<const N: usize>(events: [Event; N]) -> Result<(), Broken> {
        show(&mut FormerLivesChangeNothing::default(), events.map(|event| (0, event)))
    }

    #[test]
    fn lives_in_order_and_what_nobody_can_know_are_fine() {
        assert_eq!(judge([applied(B, 0), applied(B, 1), applied(B, 1)]), Ok(()));
        // B lives anew, but A does not know yet.
        assert_eq!(judge([applied(B, 0), Event::NodeStarted { node: B, boot: 1 }, applied(B, 0)]), Ok(()));
        // A forgot what it knew.
        let started = Event::NodeStarted { node: A, boot: 1 };
        assert_eq!(judge([applied(B, 3), started, applied(B, 2)]), Ok(()));
    }

    #[test]
    fn a_former_life_breaks_it_once_a_newer_one_is_known() {
        assert!(judge([applied(B, 1), applied(B, 0)]).is_err());
        assert!(judge([Event::IncarnationKnown { node: A, of: B, boot: 2 }, applied(B, 1)]).is_err());
    }

    #[test]
    fn an_answer_to_ones_own_former_life_breaks_it() {
        assert!(judge([Event::NodeStarted { node: A, boot: 2 }, applied(A, 1)]).is_err());
    }
}
