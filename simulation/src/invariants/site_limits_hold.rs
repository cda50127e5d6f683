//! I22: of a site that has a limit no more pages are fetched than that, in the whole cluster, besides what was in flight when the slot of a page changed hands, and
//! what nobody within reach knew of then; nor do more URLs fail for good than it may have errors, besides the same.
//!
//! Harm: somebody who pays for a hundred pages gets a hundred from every node that cannot hear the others.
//!
//! *What is in flight* is a page that was asked for under a lease that ended before W disks had its outcome: nobody could count it. *Out of reach* is a page that the
//! next holder has not, where W or more who may have it were silent until it served the slot. A limit that was raised counts as it was at most.
//! What was never asked for is no error here: all that a robots.txt forbids fails at once when it is read, however many wait (seed 970005490).
//!
//! URLs (`maxURLs`) and sizes are not judged: what a page links to is taken in by whoever keeps the link's slot, by a share that may be a moment old, and is no limit of what
//! is asked for; bytes have no limit at all.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot, UrlId};
use proto::record::Status;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::plan::Plan;
use crate::world::sites::SiteEpoch;
use crate::world::trace::{Event, FetchKind};

/// What a site may have only so many of.
#[derive(Default)]
struct Limited {
    /// The largest limit that it had; `None` if it had none at some time.
    limit: Option<u64>,
    /// Those that a disk has.
    urls: BTreeSet<UrlId>,
}

impl Limited {
    fn new(limit: u64) -> Limited {
        Limited { limit: Some(limit).filter(|limit| *limit > 0), urls: BTreeSet::new() }
    }

    fn takes(&mut self, limit: u64) {
        let limit = Some(limit).filter(|limit| *limit > 0);
        self.limit = self.limit.zip(limit).map(|(known, limit)| known.max(limit));
    }

    /// The limit, if there are more than that and `besides`.
    fn is_passed(&self, besides: usize) -> Option<u64> {
        self.limit.filter(|limit| self.urls.len() as u64 > limit + besides as u64)
    }
}

/// A site in one of its epochs.
#[derive(Default)]
struct Fetched {
    pages: Limited,
    /// URLs that failed for good.
    errors: Limited,
    /// Pages that were in flight when their slot changed hands, or out of reach of who had it then.
    aloft: BTreeSet<UrlId>,
}

/// See the module.
#[derive(Default)]
pub struct SiteLimitsHold {
    judges: bool,
    sites: BTreeMap<SiteEpoch, Fetched>,
    /// What was asked for and has no outcome on W disks.
    under_way: BTreeMap<UrlId, (SiteEpoch, Slot)>,
    /// Disks that have a page.
    copies: BTreeMap<UrlId, BTreeSet<NodeId>>,
    /// URLs that failed for good, as a disk knows.
    failed: BTreeSet<UrlId>,
    /// Where pages belong.
    places: BTreeMap<UrlId, (SiteEpoch, Slot)>,
    /// Who holds the slots.
    holders: BTreeMap<Slot, NodeId>,
}

impl SiteLimitsHold {
    /// For a run of `plan`.
    pub fn new(plan: &Plan) -> SiteLimitsHold {
        SiteLimitsHold { judges: !plan.sites.is_empty(), ..SiteLimitsHold::default() }
    }

    /// Nobody can count what was asked for in a slot by its former holder.
    fn changes_hands(&mut self, slots: impl Fn(Slot) -> bool) {
        for (url, (of, slot)) in &self.under_way {
            if slots(*slot) {
                self.sites.entry(*of).or_default().aloft.insert(*url);
            }
        }
    }
}

impl Invariant for SiteLimitsHold {
    const NAME: &'static str = "I22 site_limits_hold";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        if !self.judges {
            return Ok(());
        }
        match event {
            Event::SiteDurable { says, .. } => {
                let (pages, errors) = (Limited::new(says.pages_max), Limited::new(says.errors_max));
                let known = self.sites.entry(says.of).or_insert(Fetched { pages, errors, aloft: BTreeSet::new() });
                known.pages.takes(says.pages_max);
                known.errors.takes(says.errors_max);
            }
            Event::LeaseHeld { node, slot, acquired: true, .. } => drop(self.holders.insert(*slot, *node)),
            Event::LeaseLost { slot, .. } => self.changes_hands(|other| other == *slot),
            Event::ServedUnsure { node, slot } => {
                let disk = before.nodes.get(node).map(|facts| &facts.disk);
                let has =
                    |url| disk.and_then(|disk| disk.get(url)).is_some_and(|at| at.progress.status == Status::Processed);
                let knows = |url| disk.and_then(|disk| disk.get(url)).is_some_and(|at| at.settled);
                for (url, (of, place)) in &self.places {
                    let is_page = self.copies.contains_key(url) && !has(url);
                    let is_error = self.failed.contains(url) && !knows(url);
                    if place == slot && (is_page || is_error) {
                        self.sites.entry(*of).or_default().aloft.insert(*url);
                    }
                }
            }
            Event::NodeCrashed { node } => {
                let held: BTreeSet<Slot> =
                    self.holders.iter().filter(|(_, holder)| *holder == node).map(|(slot, _)| *slot).collect();
                self.changes_hands(|slot| held.contains(&slot));
            }
            Event::FetchStarted(start) if start.kind == FetchKind::Page => {
                let known = |url| self.copies.get(url).is_some_and(|copies| copies.len() >= before.write_quorum);
                if let Some(of) = start.site {
                    self.places.insert(start.url, (of, start.slot));
                }
                if let Some(of) = start.site.filter(|_| !known(&start.url)) {
                    self.under_way.insert(start.url, (of, start.slot));
                }
            }
            Event::RecordDurable { node, url, progress, .. } if progress.status == Status::Processed => {
                let Some(of) = before.of_sites.get(url) else { return Ok(()) };
                let copies = self.copies.entry(*url).or_default();
                copies.insert(*node);
                if copies.len() >= before.write_quorum {
                    self.under_way.remove(url);
                }
                let site = self.sites.entry(*of).or_default();
                site.pages.urls.insert(*url);
                let (pages, aloft) = (site.pages.urls.len(), site.aloft.len());
                if let Some(limit) = site.pages.is_passed(aloft) {
                    let what = format!("site {} has {pages} pages in epoch {}", of.site, of.epoch);
                    return Broken::on(*node, format!("{what}: {limit} were asked for and {aloft} were in flight"));
                }
            }
            Event::RecordDurable { node, url, settled: true, .. } if self.places.contains_key(url) => {
                let Some(of) = before.of_sites.get(url) else { return Ok(()) };
                self.failed.insert(*url);
                let site = self.sites.entry(*of).or_default();
                site.errors.urls.insert(*url);
                let (errors, aloft) = (site.errors.urls.len(), site.aloft.len());
                if let Some(limit) = site.errors.is_passed(aloft) {
                    let what = format!("site {} has {errors} errors in epoch {}", of.site, of.epoch);
                    return Broken::on(*node, format!("{what}: it may have {limit} and {aloft} were in flight"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, C, SLOT, fetch, show, url};
    use super::*;
    use crate::invariants::testing::durable;
    use crate::world::sites::SiteFacts;
    use proto::cluster::registry::Version;

    const OF: SiteEpoch = SiteEpoch { site: 1, epoch: 0 };

    fn limits(pages_max: u64, errors_max: u64) -> Event {
        let version = Version { number: 1, node: A, boot: 1 };
        let says = SiteFacts { of: OF, deleted: false, runs: true, pages_max, errors_max };
        Event::SiteDurable { node: A, version, says }
    }

    fn limit(pages_max: u64) -> Event {
        limits(pages_max, 0)
    }

    /// Asked for, and failed for good.
    fn error(number: u8) -> Vec<Event> {
        let mut events = page(number)[..2].to_vec();
        events.push(failed(A, number));
        events
    }

    fn failed(node: NodeId, number: u8) -> Event {
        match durable(node, number, Status::Crawled) {
            Event::RecordDurable { node, slot, url, progress, .. } => {
                Event::RecordDurable { node, slot, url, progress, settled: true }
            }
            other => other,
        }
    }

    fn page(number: u8) -> Vec<Event> {
        let start =
            crate::world::trace::FetchStart { url: url(number), site: Some(OF), ..fetch(u64::from(number), A, 5) };
        let known = Event::UrlOfSite { url: url(number), of: OF };
        vec![known, Event::FetchStarted(start), durable(A, number, Status::Processed)]
    }

    fn judge(events: Vec<Event>) -> Result<(), Broken> {
        let mut invariant = SiteLimitsHold { judges: true, ..SiteLimitsHold::default() };
        show(&mut invariant, events.into_iter().map(|event| (0, event)))
    }

    #[test]
    fn the_limit_may_be_reached_and_not_passed() {
        let two = || [vec![limit(2)], page(1), page(2), page(2)].concat();
        assert_eq!(judge(two()), Ok(()));
        assert!(judge([two(), page(3)].concat()).is_err());
        assert_eq!(judge([two(), vec![limit(3)], page(3)].concat()), Ok(()), "it was raised");
        assert_eq!(judge([vec![limit(0)], page(1), page(2)].concat()), Ok(()), "there is none");
    }

    #[test]
    fn errors_have_a_limit_of_their_own() {
        let two = || [vec![limits(0, 2)], error(1), error(2), vec![failed(B, 1)]].concat();
        assert_eq!(judge([two(), page(3), page(4)].concat()), Ok(()), "pages are no errors");
        assert!(judge([two(), error(3)].concat()).is_err());
        assert_eq!(judge([two(), vec![failed(A, 3)]].concat()), Ok(()), "robots.txt forbids it, nobody asked");
        assert_eq!(judge([two(), vec![limits(0, 0)], error(3)].concat()), Ok(()), "it has none now");
        let lost = Event::LeaseLost { node: A, slot: SLOT };
        let aloft = page(4)[..2].to_vec();
        assert_eq!(judge([two(), aloft, vec![lost], error(3)].concat()), Ok(()), "what was in flight may fail");
        let unsure = Event::ServedUnsure { node: C, slot: SLOT };
        assert_eq!(judge([two(), vec![unsure], error(3)].concat()), Ok(()), "C knows of neither");
    }

    #[test]
    fn what_the_next_holder_could_not_hear_of_is_allowed() {
        let unsure = |node| vec![Event::LeaseLost { node: A, slot: SLOT }, Event::ServedUnsure { node, slot: SLOT }];
        let settled = || [vec![limit(1)], page(1), vec![durable(B, 1, Status::Processed)]].concat();
        assert_eq!(judge([settled(), unsure(C), page(2)].concat()), Ok(()));
        assert!(judge([settled(), unsure(C), page(2), page(3)].concat()).is_err());
        assert!(judge([settled(), unsure(B), page(2)].concat()).is_err(), "it has the page");
        let dropped = vec![Event::SlotDropped { node: B, slot: SLOT }];
        assert_eq!(judge([settled(), dropped, unsure(B), page(2)].concat()), Ok(()), "it had the page");
    }

    #[test]
    fn what_was_in_flight_when_its_slot_changed_hands_is_allowed() {
        let held = Event::LeaseHeld { node: A, slot: SLOT, until: 9, acquired: true };
        for end in [Event::LeaseLost { node: A, slot: SLOT }, Event::NodeCrashed { node: A }] {
            let begun = || [vec![limit(1), held.clone()], page(1)[..2].to_vec(), vec![end.clone()], page(2)].concat();
            assert_eq!(judge([begun(), page(1)].concat()), Ok(()));
            assert!(judge([begun(), page(1), page(3)].concat()).is_err());
        }
        let settled = [vec![limit(1), held], page(1), vec![durable(B, 1, Status::Processed)]].concat();
        assert!(judge([settled, vec![Event::LeaseLost { node: A, slot: SLOT }], page(2)].concat()).is_err());
    }
}
