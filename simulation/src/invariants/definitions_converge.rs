//! I16: a definition that was acknowledged is on W disks at that moment, is never lost while no more than W − 1 disks lose what they had, and is
//! on every living node when the cluster has come to rest, in that version or a later one; all of them then hold the same. And whoever
//! defines something gets an answer in the end.
//!
//! Harm: a crawl that somebody stopped goes on where a node never heard of it; one that somebody began is forgotten with the node
//! that took the order.

use std::collections::{BTreeMap, BTreeSet};

use proto::cluster::registry::{DefinitionKey, Version};
use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct DefinitionsConverge {
    disks: BTreeMap<NodeId, BTreeMap<DefinitionKey, Version>>,
    acknowledged: BTreeMap<DefinitionKey, Version>,
    waiting: BTreeSet<usize>,
    /// Nodes whose disks were lost.
    lost: BTreeSet<NodeId>,
}

impl DefinitionsConverge {
    fn copies(&self, key: &DefinitionKey, version: Version) -> usize {
        self.disks.values().filter(|disk| disk.get(key).is_some_and(|held| *held >= version)).count()
    }

    /// A disk that had it was lost, and the others that have it stay away: more is gone than W copies bear.
    fn is_out_of_reach(&self, key: &DefinitionKey, version: Version, up: &BTreeSet<NodeId>) -> bool {
        let has =
            |node: &NodeId| self.disks.get(node).and_then(|disk| disk.get(key)).is_some_and(|held| *held >= version);
        !self.lost.is_empty() && !up.iter().any(has)
    }

    /// Says what is missing until the nodes that are `up` hold the same, and everybody has an answer.
    pub fn missing(&self, up: &BTreeSet<NodeId>) -> Option<String> {
        if let Some(number) = self.waiting.first() {
            return Some(format!("whoever asked for definition {number} has no answer"));
        }
        let mut first: Option<(NodeId, &BTreeMap<DefinitionKey, Version>)> = None;
        let nothing = BTreeMap::new();
        for node in up {
            let disk = self.disks.get(node).unwrap_or(&nothing);
            for (key, version) in &self.acknowledged {
                if disk.get(key).is_none_or(|held| held < version) && !self.is_out_of_reach(key, *version, up) {
                    return Some(format!("node {} has not the acknowledged definition of {}", node.0, key.name));
                }
            }
            let (other, same) = *first.get_or_insert((*node, disk));
            if same != disk {
                return Some(format!("nodes {} and {} hold different definitions", other.0, node.0));
            }
        }
        None
    }
}

impl Invariant for DefinitionsConverge {
    const NAME: &'static str = "I16 definitions_converge";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::DefinitionAsked { number } => drop(self.waiting.insert(*number)),
            Event::DefinitionAnswered { number } => drop(self.waiting.remove(number)),
            Event::DefinitionDurable { node, key, version } => {
                let held = self.disks.entry(*node).or_default().entry(key.clone()).or_insert(*version);
                if *held > *version {
                    return Broken::on(*node, format!("the definition of {} went back to an older one", key.name));
                }
                *held = *version;
            }
            Event::DefinitionAcknowledged { node, key, version } => {
                let wanted = before.write_quorum.saturating_sub(before.disks_lost.len()).max(1);
                let copies = self.copies(key, *version);
                if copies < wanted {
                    let what = format!("the definition of {} was acknowledged with {copies} durable copies", key.name);
                    return Broken::on(*node, what);
                }
                let newest = self.acknowledged.entry(key.clone()).or_insert(*version);
                *newest = (*newest).max(*version);
            }
            Event::DiskWiped { node } => {
                self.disks.remove(node);
                self.lost.insert(*node);
                let already = usize::from(before.disks_lost.contains(node));
                if before.disks_lost.len() + 1 - already < before.write_quorum
                    && let Some((key, _)) =
                        self.acknowledged.iter().find(|(key, version)| self.copies(key, **version) == 0)
                {
                    return Broken::on(*node, format!("the acknowledged definition of {} is on no disk", key.name));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::cluster::registry::DefinitionKind;

    use super::super::testing::{A, B, C, show};
    use super::*;

    fn key() -> DefinitionKey {
        DefinitionKey { kind: DefinitionKind::Crawl, name: "news".into() }
    }

    fn version(number: u64) -> Version {
        Version { number, node: A, boot: 1 }
    }

    fn durable(node: NodeId, number: u64) -> Event {
        Event::DefinitionDurable { node, key: key(), version: version(number) }
    }

    fn acknowledged(number: u64) -> Event {
        Event::DefinitionAcknowledged { node: A, key: key(), version: version(number) }
    }

    fn judge<const N: usize>(events: [Event; N]) -> (Result<(), Broken>, Option<String>) {
        let mut invariant = DefinitionsConverge::default();
        let broken = show(&mut invariant, events.map(|event| (0, event)));
        (broken, invariant.missing(&[A, B, C].into_iter().collect()))
    }

    #[test]
    fn a_definition_on_all_nodes_is_fine_also_in_a_later_version() {
        let (broken, missing) = judge([durable(A, 1), durable(B, 1), acknowledged(1), durable(C, 1)]);
        assert_eq!((broken, missing), (Ok(()), None));
        let later = [durable(A, 1), durable(B, 1), acknowledged(1), durable(A, 2), durable(B, 2), durable(C, 2)];
        assert_eq!(judge(later), (Ok(()), None));
    }

    #[test]
    fn an_acknowledgement_with_one_copy_breaks_it() {
        assert!(judge([durable(A, 1), acknowledged(1)]).0.is_err());
        // A copy of an older version is none.
        assert!(judge([durable(A, 2), durable(B, 1), acknowledged(2)]).0.is_err());
    }

    #[test]
    fn losing_the_last_copy_or_going_back_breaks_it() {
        let wiped = |node| Event::DiskWiped { node };
        assert!(judge([durable(A, 1), durable(B, 1), acknowledged(1), wiped(A)]).0.is_ok());
        assert!(judge([durable(A, 1), durable(B, 1), acknowledged(1), wiped(A), wiped(B)]).0.is_ok(), "two disks");
        assert!(judge([durable(A, 2), durable(A, 1)]).0.is_err());
    }

    #[test]
    fn a_node_that_never_hears_of_it_keeps_the_cluster_from_rest() {
        let (broken, missing) = judge([durable(A, 1), durable(B, 1), acknowledged(1)]);
        assert!(broken.is_ok() && missing.is_some_and(|what| what.contains("node 2")));
        assert!(judge([durable(A, 1)]).1.is_some_and(|what| what.contains("different")), "not acknowledged, but there");
        assert!(judge([Event::DefinitionAsked { number: 3 }]).1.is_some());
        let answered = [Event::DefinitionAsked { number: 3 }, Event::DefinitionAnswered { number: 3 }];
        assert_eq!(judge(answered), (Ok(()), None));
    }

    #[test]
    fn only_after_a_disk_was_lost_may_a_version_stay_away_with_its_node() {
        let mut invariant = DefinitionsConverge::default();
        let away = [durable(A, 2), durable(B, 2), acknowledged(2), durable(C, 1)];
        assert_eq!(show(&mut invariant, away.map(|event| (0, event))), Ok(()));
        let up: BTreeSet<NodeId> = [C].into_iter().collect();
        assert!(invariant.missing(&up).is_some());
        assert_eq!(show(&mut invariant, [(1, Event::DiskWiped { node: B })]), Ok(()));
        assert_eq!(invariant.missing(&up), None);
        assert!(invariant.missing(&[A, C].into_iter().collect()).is_some(), "A has it");
    }
}
