//! I17: a page that counts as crawled is on two disks at that moment, is never lost while only one disk loses what it had, and is on two nodes of the
//! ring when the cluster has come to rest.
//!
//! Harm: the crawl says that it has a page, its host is not asked again, and the only copy went with a disk.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Round, UrlId};

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// Disks that a page is to be on.
const COPIES: usize = 2;

type Page = (UrlId, Round);

/// See the module.
#[derive(Default)]
pub struct PagesKeptTwice {
    disks: BTreeMap<NodeId, BTreeSet<Page>>,
    acknowledged: BTreeSet<Page>,
    /// What each disk had that was wiped.
    wiped: BTreeMap<NodeId, BTreeSet<Page>>,
}

impl PagesKeptTwice {
    fn copies(&self, page: &Page) -> usize {
        self.disks.values().filter(|disk| disk.contains(page)).count()
    }

    fn wanted(before: &Oracle) -> usize {
        COPIES.min(before.write_quorum)
    }

    /// Says what is missing until every acknowledged page that one of those who are `up` has is on two nodes of the ring.
    pub fn missing(&self, facts: &Oracle, up: &BTreeSet<NodeId>) -> Option<String> {
        let members = up.iter().find_map(|node| facts.nodes.get(node)?.members.as_ref())?;
        let wanted = Self::wanted(facts).min(members.len());
        let has = |node: &NodeId, page: &Page| self.disks.get(node).is_some_and(|disk| disk.contains(page));
        // Nobody can know that a disk was wiped whose node is away since: to the others it keeps its copies.
        let seems_to = |node: &NodeId, page: &Page| {
            has(node, page) || (!up.contains(node) && self.wiped.get(node).is_some_and(|pages| pages.contains(page)))
        };
        for page in &self.acknowledged {
            // What only nodes have that stay away cannot be copied; who is away for a while keeps its copies.
            let out_of_reach = !up.iter().any(|node| has(node, page));
            let copies = members.keys().filter(|node| seems_to(node, page)).count();
            if copies < wanted && !out_of_reach {
                return Some(format!("round {} of page {} is on {copies} nodes of the ring", page.1, page.0));
            }
        }
        None
    }
}

impl Invariant for PagesKeptTwice {
    const NAME: &'static str = "I17 pages_kept_twice";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::PageDurable { node, url, round } => {
                self.disks.entry(*node).or_default().insert((*url, *round));
            }
            Event::PageAcknowledged { node, url, round } => {
                let page = (*url, *round);
                self.acknowledged.insert(page);
                // What a lost disk had does not count against the one who waited for it.
                let wanted = Self::wanted(before).saturating_sub(self.wiped.len()).max(1);
                let copies = self.copies(&page);
                if copies < wanted {
                    return Broken::on(*node, format!("page {url} was acknowledged with {copies} durable copies"));
                }
            }
            Event::DiskWiped { node } => {
                let gone = self.disks.remove(node).unwrap_or_default();
                self.wiped.entry(*node).or_default().extend(&gone);
                if self.wiped.len() >= Self::wanted(before) {
                    return Ok(());
                }
                let lost = |page: &&Page| self.acknowledged.contains(page) && self.copies(page) == 0;
                if let Some((url, round)) = gone.iter().find(lost) {
                    return Broken::on(*node, format!("round {round} of the acknowledged page {url} is lost"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, C, ring_changed, show, url};
    use super::*;

    fn durable(node: NodeId) -> Event {
        Event::PageDurable { node, url: url(1), round: 0 }
    }

    fn acknowledged() -> Event {
        Event::PageAcknowledged { node: A, url: url(1), round: 0 }
    }

    fn judge<const N: usize>(events: [Event; N]) -> Result<(), Broken> {
        show(&mut PagesKeptTwice::default(), events.map(|event| (0, event)))
    }

    #[test]
    fn two_copies_bear_the_loss_of_one_disk() {
        let wiped = |node| Event::DiskWiped { node };
        assert_eq!(judge([durable(A), durable(B), acknowledged(), wiped(A)]), Ok(()));
        assert_eq!(
            judge([durable(A), durable(B), acknowledged(), wiped(A), wiped(B)]),
            Ok(()),
            "more than is promised"
        );
        assert_eq!(judge([durable(A), wiped(A)]), Ok(()), "nobody was told");
        assert!(judge([durable(A), acknowledged()]).is_err());
        assert!(judge([durable(A), durable(A), acknowledged()]).is_err(), "the same disk twice");
    }

    #[test]
    fn at_rest_a_page_is_on_two_nodes_of_the_ring() {
        let missing = |events: Vec<Event>, up: &[NodeId]| {
            let mut invariant = PagesKeptTwice::default();
            let mut oracle = Oracle::new(&crate::world::plan::Plan::from_seed(1));
            for event in events {
                invariant.see(&oracle, 0, &event).unwrap();
                oracle.see(&event);
            }
            invariant.missing(&oracle, &up.iter().copied().collect())
        };
        let ring = |members: &[u64]| vec![ring_changed(A, members), durable(A), durable(B), acknowledged()];
        assert_eq!(missing(ring(&[0, 1, 2]), &[A, B, C]), None);
        assert!(missing(ring(&[0, 2]), &[A, C]).is_some(), "one of the two has left");
        assert_eq!(missing(ring(&[0]), &[A]), None, "nobody is there to take it");
        let mut wiped = ring(&[0, 1, 2]);
        wiped.push(Event::DiskWiped { node: B });
        assert!(missing(wiped.clone(), &[A, B, C]).is_some());
        assert_eq!(missing(wiped, &[A, C]), None, "who was wiped has not been there to say so");
    }
}
