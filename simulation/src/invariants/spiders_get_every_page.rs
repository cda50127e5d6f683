//! I25: however nodes fail, spiders are told no more pages of a domain than its hard rate and one burst allow, over any time; and when the cluster has come to rest, every page
//! that was found is crawled, and every disk knows it.
//!
//! Harm: a host is overrun by the spiders that were sent to it, or pages that were promised to be crawled never are.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// Times are kept to the millisecond: what is decided within one is decided at its beginning.
const MILLISECOND: Micros = 1_000;

/// See the module.
#[derive(Default)]
pub struct SpidersGetEveryPage {
    /// When pages of each domain were handed out, one time a page. Who is told need not be told in that order.
    served: BTreeMap<usize, Vec<Micros>>,
    found: BTreeSet<u64>,
    disks: BTreeMap<NodeId, BTreeMap<u64, bool>>,
}

impl SpidersGetEveryPage {
    /// Says which page is not crawled yet.
    pub fn missing(&self, up: &BTreeSet<NodeId>) -> Option<String> {
        for (node, disk) in self.disks.iter().filter(|(node, _)| up.contains(node)) {
            if let Some(page) = self.found.iter().find(|page| disk.get(page) != Some(&true)) {
                return Some(format!("page {page} was found, and node {} does not know it as crawled", node.0));
            }
        }
        None
    }
}

impl Invariant for SpidersGetEveryPage {
    const NAME: &'static str = "I25 spiders_get_every_page";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::DomainServed { node, domain, pages, decided_at, spacing, at_once } => {
                let times = self.served.entry(*domain).or_default();
                let place = times.partition_point(|time| time <= decided_at);
                times.splice(place..place, (0..*pages).map(|_| *decided_at));
                if let Some((from, to, pages)) = too_many(times, *spacing, *at_once) {
                    let what = format!("{pages} pages of domain {domain} are handed out from {from} to {to}");
                    return Broken::on(*node, what);
                }
            }
            Event::PageFound { url, .. } => drop(self.found.insert(*url)),
            Event::QueueKept { node, urls } => drop(self.disks.insert(*node, urls.clone())),
            _ => {}
        }
        Ok(())
    }
}

/// A time in which there are more than one for each `spacing` of it and `at_once` besides: from when, to when, and how many. A page has used `spacing` of the time when the next may come, so
/// whoever is furthest behind the first ones has the fullest time behind it.
fn too_many(times: &[Micros], spacing: Micros, at_once: u64) -> Option<(Micros, Micros, u64)> {
    let used = |place: usize| place as i128 * i128::from(spacing) - i128::from(times[place]);
    let (mut least, allowed) = (0, i128::from(spacing) * (i128::from(at_once) - 1) + i128::from(MILLISECOND));
    for place in 0..times.len() {
        if used(place) < used(least) {
            least = place;
        }
        if used(place) - used(least) > allowed {
            return Some((times[least], times[place], (place - least) as u64 + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, show};
    use super::*;

    const SPACING: Micros = 1_000_000;

    fn served(node: NodeId, pages: u32, at_s: u64) -> (Micros, Event) {
        let decided_at = at_s * SPACING;
        (90 * SPACING, Event::DomainServed { node, domain: 1, pages, decided_at, spacing: SPACING, at_once: 3 })
    }

    fn judge<const N: usize>(events: [(Micros, Event); N]) -> Result<(), Broken> {
        show(&mut SpidersGetEveryPage::default(), events)
    }

    #[test]
    fn a_domain_gives_its_rate_and_one_burst_whoever_serves() {
        assert!(judge([served(A, 3, 5)]).is_ok() && judge([served(A, 4, 5)]).is_err());
        assert!(judge([served(A, 3, 5), served(B, 1, 6), served(A, 2, 8)]).is_ok());
        assert!(judge([served(A, 3, 5), served(B, 2, 6)]).is_err());
        assert!(judge([served(B, 2, 6), served(A, 3, 5)]).is_err(), "also if the first is told last");
        assert!(judge([served(A, 1, 0), served(A, 3, 50), served(A, 1, 51), served(A, 1, 52)]).is_ok());
        assert!(judge([served(A, 1, 0), served(A, 3, 50), served(A, 1, 51), served(A, 2, 52)]).is_err());
    }

    #[test]
    fn a_page_is_missing_until_every_disk_knows_it_as_crawled() {
        let (mut invariant, up) = (SpidersGetEveryPage::default(), [A].into_iter().collect());
        let disk = |urls: &[(u64, bool)]| Event::QueueKept { node: A, urls: urls.iter().copied().collect() };
        show(&mut invariant, [(1, Event::PageFound { node: A, url: 7 }), (2, disk(&[]))]).unwrap();
        assert!(invariant.missing(&up).is_some_and(|what| what.contains("page 7")));
        show(&mut invariant, [(3, disk(&[(7, false)]))]).unwrap();
        assert!(invariant.missing(&up).is_some());
        show(&mut invariant, [(4, disk(&[(7, true)]))]).unwrap();
        assert_eq!(invariant.missing(&up), None);
    }
}
