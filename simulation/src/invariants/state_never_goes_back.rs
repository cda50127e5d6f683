//! I3: what is durable of a URL never decreases in the lattice, on any disk.
//!
//! Harm: a late or repeated write makes a fetched page NEW again, so it is fetched for ever, or brings back what a retry has
//! overtaken. Only a disk that lost its data, and a slot that was dropped, may begin anew.

use proto::crawl::politeness::Micros;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct StateNeverGoesBack;

impl Invariant for StateNeverGoesBack {
    const NAME: &'static str = "I3 state_never_goes_back";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        let Event::RecordDurable { node, url, progress, .. } = event else { return Ok(()) };
        let was = before.nodes.get(node).and_then(|facts| facts.disk.get(url));
        match was {
            Some(was) if was.progress > *progress => {
                Broken::on(*node, format!("url {url} went back from {:?} to {progress:?}", was.progress))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::record::Status;

    use super::super::testing::{A, B, SLOT, durable, show};
    use super::*;

    #[test]
    fn going_forward_and_beginning_anew_after_a_loss_are_fine() {
        let events = [
            durable(A, 1, Status::New),
            durable(A, 1, Status::Processed),
            durable(A, 1, Status::Processed),
            durable(B, 1, Status::New),
            Event::DiskWiped { node: A },
            durable(A, 1, Status::New),
            Event::SlotDropped { node: B, slot: SLOT },
            durable(B, 1, Status::New),
        ];
        assert_eq!(show(&mut StateNeverGoesBack, events.map(|event| (0, event))), Ok(()));
    }

    #[test]
    fn going_back_breaks_it() {
        let events = [durable(A, 1, Status::Processed), durable(A, 1, Status::New)];
        assert!(show(&mut StateNeverGoesBack, events.map(|event| (0, event))).is_err());
    }
}
