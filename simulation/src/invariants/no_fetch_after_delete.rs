//! I20: when somebody was told that a site is deleted or emptied, no request for a URL of it, as it was before, begins anywhere in the cluster. Not by a node that
//! was cut off all the time, not for a batch that was on its way, and not by a change of somebody who had not heard of it.
//!
//! Harm: a person who was told that a site is left alone sees it asked on, by a node that nobody reaches.
//!
//! A voter whose disk was lost has forgotten what it must not grant: what was acknowledged before is not judged after that.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::plan::Plan;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct NoFetchAfterDelete {
    voters: BTreeSet<NodeId>,
    /// By site, the first epoch that may live.
    alive_from: BTreeMap<u32, u32>,
    /// A voter has lost what it knew.
    forgotten: bool,
}

impl NoFetchAfterDelete {
    /// For a run of `plan`.
    pub fn new(plan: &Plan) -> NoFetchAfterDelete {
        NoFetchAfterDelete { voters: plan.voters().collect(), ..NoFetchAfterDelete::default() }
    }
}

impl Invariant for NoFetchAfterDelete {
    const NAME: &'static str = "I20 no_fetch_after_delete";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::SiteRevoked { of, .. } => {
                let from = self.alive_from.entry(of.site).or_insert(of.epoch);
                *from = of.epoch.max(*from);
            }
            Event::DiskWiped { node } => self.forgotten |= self.voters.contains(node),
            Event::FetchStarted(start) if !self.forgotten => {
                let Some(of) = start.site else { return Ok(()) };
                if let Some(from) = self.alive_from.get(&of.site).filter(|from| of.epoch < **from) {
                    let what = format!("host {} is asked for url {} of epoch {}", start.host, start.url, of.epoch);
                    let why = format!("epoch {from} of site {} was acknowledged", of.site);
                    return Broken::on(start.node, format!("{what} after {why}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, fetch, show};
    use super::*;
    use crate::world::sites::SiteEpoch;

    fn asks(epoch: u32) -> Event {
        let site = Some(SiteEpoch { site: 3, epoch });
        Event::FetchStarted(crate::world::trace::FetchStart { site, ..fetch(1, B, 5) })
    }

    fn revoked(epoch: u32) -> Event {
        Event::SiteRevoked { node: A, of: SiteEpoch { site: 3, epoch } }
    }

    fn judge(events: impl IntoIterator<Item = Event>) -> Result<(), Broken> {
        let mut invariant = NoFetchAfterDelete { voters: [A].into_iter().collect(), ..Default::default() };
        show(&mut invariant, events.into_iter().map(|event| (0, event)))
    }

    #[test]
    fn what_begins_before_or_is_of_the_next_epoch_is_fine() {
        assert_eq!(judge([asks(0), revoked(1), asks(1), revoked(2), asks(2)]), Ok(()));
        let other = Event::SiteRevoked { node: A, of: SiteEpoch { site: 4, epoch: 1 } };
        assert_eq!(judge([other, asks(0), Event::FetchStarted(fetch(2, A, 1))]), Ok(()));
    }

    #[test]
    fn a_request_after_the_acknowledgement_breaks_it() {
        assert!(judge([revoked(1), asks(0)]).is_err());
        assert!(judge([revoked(2), revoked(1), asks(1)]).is_err(), "also if an older one is told later");
        assert!(judge([revoked(1), Event::DiskWiped { node: B }, asks(0)]).is_err(), "that disk was no voter's");
    }

    #[test]
    fn a_voter_that_lost_its_disk_is_not_judged() {
        assert_eq!(judge([revoked(1), Event::DiskWiped { node: A }, asks(0)]), Ok(()));
    }
}
