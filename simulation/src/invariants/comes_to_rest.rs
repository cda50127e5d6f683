//! I5: when faults stop, the cluster comes to rest in time: every URL is PROCESSED or has failed for good, every page's
//! links are known, and the R nodes that should keep a record all do, and agree. Also when only a majority came back. URLs of a site that is
//! over, does not run or has reached its limit stay as they are, the same on all of them.
//!
//! Harm: a crawl that never ends, or that says it has ended and has not; copies that stay different until the one good disk dies.
//!
//! Safety alone is cheap: a cluster that does nothing breaks no other invariant.

use std::collections::BTreeSet;

use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use proto::record::Status;

use super::{Broken, Invariant, true_ring};
use crate::world::oracle::Oracle;
use crate::world::plan::Plan;
use crate::world::trace::Event;

/// See the module.
pub struct ComesToRest {
    deadline: Micros,
    stays_down: BTreeSet<NodeId>,
}

impl ComesToRest {
    /// For a run of `plan`.
    pub fn new(plan: &Plan) -> ComesToRest {
        let stays_down = plan.stays_down.iter().copied().map(NodeId).collect();
        ComesToRest { deadline: plan.calm_ends(), stays_down }
    }

    /// When the cluster must have come to rest.
    pub fn deadline(&self) -> Micros {
        self.deadline
    }

    /// The nodes that must be there at the end, and are.
    pub fn up(&self, facts: &Oracle) -> BTreeSet<NodeId> {
        let stays = |(node, is): &(&NodeId, &crate::world::oracle::NodeFacts)| {
            is.up && !is.paused && !is.left && !self.stays_down.contains(node)
        };
        facts.nodes.iter().filter(stays).map(|(node, _)| *node).collect()
    }

    /// Says what is missing until the cluster has come to rest; `None` when nothing is.
    pub fn missing(&self, facts: &Oracle) -> Option<String> {
        let mut up = BTreeSet::new();
        for (node, is) in &facts.nodes {
            match (is.up && !is.paused, is.left || self.stays_down.contains(node)) {
                (true, false) => {
                    up.insert(*node);
                }
                (false, false) => return Some(format!("node {} is down", node.0)),
                (_, true) => {}
            }
        }
        let members = self.agreed_members(facts, &up)?;
        let members = match members {
            Ok(members) => members,
            Err(what) => return Some(what),
        };
        let ring = true_ring(members);
        for (url, is) in &facts.urls {
            if is.submitted && !is.acknowledged {
                return Some(format!("url {url} was handed in and is not acknowledged"));
            }
            // What only nodes have that do not come back cannot be asked for.
            let somewhere = up.iter().any(|node| facts.nodes[node].disk.contains_key(url));
            if !somewhere {
                if is.acknowledged && is.copies == 0 && facts.disks_lost.len() < facts.write_quorum {
                    return Some(format!("acknowledged url {url} is on no disk"));
                }
                continue;
            }
            // Who is down keeps its place for a while, and nobody copies its share meanwhile: that would cost more than waiting.
            let keepers = ring.replicas(is.slot, facts.replicas).iter().filter(|node| up.contains(node));
            let mut first = None;
            let may_wait = facts.may_wait(&up, url);
            for node in keepers {
                let Some(at) = facts.nodes[node].disk.get(url) else {
                    return Some(format!("url {url} is missing on node {}", node.0));
                };
                if !at.settled && !may_wait {
                    return Some(format!("url {url} is only {} on node {}", at.progress.status.name(), node.0));
                }
                let (other, progress) = *first.get_or_insert((*node, at.progress));
                if progress != at.progress {
                    let what = format!("nodes {} and {} differ about url {url}", other.0, node.0);
                    return Some(format!("{what}: {progress:?}, {:?}", at.progress));
                }
                if at.progress.status == Status::Processed
                    && let Some(link) = facts.links.get(url).and_then(|links| unknown(facts, links))
                {
                    return Some(format!("link {link} of the processed page {url} is not known"));
                }
            }
        }
        None
    }

    /// The ring that all who are up agree on. `None` if nobody is up, and nothing can be missing.
    fn agreed_members<'a>(
        &self,
        facts: &'a Oracle,
        up: &BTreeSet<NodeId>,
    ) -> Option<Result<&'a std::collections::BTreeMap<NodeId, usize>, String>> {
        let mut agreed = None;
        for node in up {
            let Some(members) = &facts.nodes[node].members else {
                return Some(Err(format!("node {} has no ring", node.0)));
            };
            let first = *agreed.get_or_insert(members);
            if first != members {
                let names = |members: &std::collections::BTreeMap<NodeId, usize>| {
                    members.keys().map(|node| node.0.to_string()).collect::<Vec<_>>().join(" ")
                };
                let what = format!("node {} has the ring of {}", node.0, names(members));
                return Some(Err(format!("{what}, another one that of {}", names(first))));
            }
        }
        Ok(agreed).transpose()
    }
}

/// A link that nobody keeps, if there is one whichever fetch of the page counts. What only nodes keep that do not come back was kept, and cannot be asked for.
fn unknown<'a>(facts: &Oracle, fetches: &'a BTreeSet<Vec<proto::id::UrlId>>) -> Option<&'a proto::id::UrlId> {
    let missing = |link: &&proto::id::UrlId| !facts.nodes.values().any(|node| node.disk.contains_key(*link));
    let mut found = None;
    for links in fetches {
        found = Some(links.iter().find(missing)?);
    }
    found
}

impl Invariant for ComesToRest {
    const NAME: &'static str = "I5 comes_to_rest";

    /// Events break nothing here: time does, see [`super::Invariants::missing`].
    fn see(&mut self, _before: &Oracle, _at: Micros, _event: &Event) -> Result<(), Broken> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, C, SLOT, acknowledged, durable, progress, ring_changed, url};
    use super::super::{Invariants, Violation};
    use super::*;

    /// Three nodes up, in agreement, with one settled URL.
    fn at_rest() -> Vec<Event> {
        let mut events = Vec::new();
        for node in [A, B, C] {
            events.push(Event::NodeStarted { node, boot: 0 });
            events.push(ring_changed(node, &[0, 1, 2]));
            events.push(durable(node, 1, Status::Processed));
        }
        events.push(acknowledged(1));
        events
    }

    fn missing(events: Vec<Event>) -> Option<String> {
        let mut plan = Plan::from_seed(1);
        plan.stays_down.clear();
        let mut invariants = Invariants::new(&plan);
        for event in events {
            invariants.see(0, &event);
        }
        invariants.missing(1)
    }

    fn with(event: Event) -> Option<String> {
        let mut events = at_rest();
        events.push(event);
        missing(events)
    }

    #[test]
    fn three_equal_settled_copies_are_rest() {
        assert_eq!(missing(at_rest()), None);
        assert_eq!(with(Event::LinksFound { page: url(1), links: vec![url(1)] }), None);
    }

    #[test]
    fn each_thing_that_is_missing_is_named() {
        let is = |found: Option<String>, part: &str| {
            assert!(found.as_ref().is_some_and(|what| what.contains(part)), "{found:?}")
        };
        is(with(Event::NodeCrashed { node: B }), "is down");
        is(with(ring_changed(B, &[0, 1, 2, 3])), "ring");
        is(with(Event::UrlSubmitted { slot: SLOT, url: url(2) }), "not acknowledged");
        is(with(durable(A, 2, Status::Processed)), "missing on node");
        is(with(Event::LinksFound { page: url(1), links: vec![url(9)] }), "link");
        let other = Event::LinksFound { page: url(1), links: vec![url(1)] };
        let both = [at_rest(), vec![Event::LinksFound { page: url(1), links: vec![url(9)] }, other]].concat();
        assert_eq!(missing(both), None, "what the other fetch found is known");
        let later = proto::record::Progress { round: 1, ..progress(Status::Processed) };
        let newer = Event::RecordDurable { node: B, slot: SLOT, url: url(1), progress: later, settled: true };
        is(with(newer), "differ");
        let open = Event::RecordDurable { node: B, slot: SLOT, url: url(1), progress: later, settled: false };
        is(with(open), "is only");
    }

    #[test]
    fn not_at_rest_in_time_is_a_violation() {
        let plan = Plan::from_seed(1);
        let mut invariants = Invariants::new(&plan);
        invariants.see(0, &Event::NodeStarted { node: NodeId(0), boot: 0 });
        assert!(invariants.missing(plan.calm_ends() - 1).is_some());
        assert_eq!(invariants.violation(), None);
        invariants.missing(plan.calm_ends());
        let is_this = |violation: &Violation| violation.invariant == ComesToRest::NAME;
        assert!(invariants.violation().is_some_and(is_this));
    }

    #[test]
    fn who_stays_down_is_not_waited_for() {
        let mut plan = Plan::from_seed(1);
        plan.stays_down = vec![2];
        let mut invariants = Invariants::new(&plan);
        for event in at_rest() {
            invariants.see(0, &event);
        }
        invariants.see(1, &Event::NodeCrashed { node: C });
        assert_eq!(invariants.missing(2), None);
    }
}
