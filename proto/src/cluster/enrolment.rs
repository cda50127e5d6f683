//! That there is a node, as a definition: who starts anew while it is cut off must know whose word it lacks.
//!
//! The voters are the same in everybody's configuration; any other node may be known by gossip only, which nobody remembers. So it says that it is there before it keeps
//! anything, and once a majority of the voters has that, whoever is granted a slot knows it too ([`Registry`](super::registry::Registry)).

use super::departure::{Departure, Stage};
use super::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use crate::id::NodeId;

/// What the names of these definitions begin with.
const PREFIX: &str = "member/";

/// A node that keeps what others write, and its share of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// Which node.
    pub node: NodeId,
    /// In which of its lives it said so first. If it gave its place up in that one or later, it is no member until it says so again.
    pub boot: u32,
    /// Its weight.
    pub weight: u16,
}

impl Enrolment {
    /// The name of the definition of a node.
    pub fn key(node: NodeId) -> DefinitionKey {
        DefinitionKey { kind: DefinitionKind::Setting, name: format!("{PREFIX}{}", node.0) }
    }

    /// The definition that says so.
    pub fn definition(self, number: u64) -> Definition {
        let version = Version { number, node: self.node, boot: self.boot };
        Definition { key: Enrolment::key(self.node), version, body: Some(self.weight.to_be_bytes().to_vec()) }
    }

    /// Whether the node gave its place up after it said so; that it is back, too, says that it did.
    pub fn is_undone_by(self, said: Departure) -> bool {
        let left_later = if said.stage == Stage::Back { said.boot > self.boot } else { said.boot >= self.boot };
        said.node == self.node && left_later
    }

    /// Reads a definition; nothing if it speaks of something else.
    pub fn read(definition: &Definition) -> Option<Enrolment> {
        let weight = u16::from_be_bytes(definition.body.as_ref()?[..].try_into().ok()?);
        let Version { node, boot, .. } = definition.version;
        (definition.key.name.starts_with(PREFIX) && definition.key == Enrolment::key(node)).then_some(Enrolment {
            node,
            boot,
            weight,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enrolment_is_read_as_it_was_written_and_nothing_else_is_one() {
        let said = Enrolment { node: NodeId(7), boot: 9, weight: 300 };
        let mut definition = said.definition(9);
        assert!(definition.is_sound());
        assert_eq!(Enrolment::read(&definition), Some(said));
        assert_eq!(Departure::read(&definition), None);
        definition.version.node = NodeId(8);
        assert_eq!(Enrolment::read(&definition), None, "it speaks of one node and is named for another");
        definition.version.node = NodeId(7);
        for body in [None, Some(Vec::new()), Some(vec![1; 3])] {
            definition.body = body;
            assert_eq!(Enrolment::read(&definition), None);
        }
        let left = Departure { node: NodeId(7), boot: 1, stage: Stage::Left };
        assert_eq!(Enrolment::read(&left.definition()), None);
    }

    #[test]
    fn who_gave_its_place_up_has_to_say_again_that_it_is_there() {
        let said = Enrolment { node: NodeId(7), boot: 9, weight: 1 };
        let undone = |boot, stage| said.is_undone_by(Departure { node: NodeId(7), boot, stage });
        assert!(undone(9, Stage::Left) && undone(9, Stage::Gone) && undone(10, Stage::Back));
        assert!(!undone(8, Stage::Left) && !undone(8, Stage::Gone) && !undone(9, Stage::Back), "it said so afterwards");
        assert!(!said.is_undone_by(Departure { node: NodeId(8), boot: 10, stage: Stage::Gone }));
    }
}
