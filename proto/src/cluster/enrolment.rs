//! That there is a node, as a definition: who starts anew while it is cut off must know whose word it lacks.
//!
//! The voters are the same in everybody's configuration; any other node may be known by gossip only, which nobody remembers. So it says that it is there before it keeps
//! anything, and once a majority of the voters has that, whoever is granted a slot knows it too ([`Registry`](super::registry::Registry)).

use super::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use crate::id::NodeId;

/// What the names of these definitions begin with.
const PREFIX: &str = "member/";

/// A node that keeps what others write, and its share of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enrolment {
    /// Which node.
    pub node: NodeId,
    /// Its weight.
    pub weight: u16,
}

impl Enrolment {
    /// The name of the definition of a node.
    pub fn key(node: NodeId) -> DefinitionKey {
        DefinitionKey { kind: DefinitionKind::Setting, name: format!("{PREFIX}{}", node.0) }
    }

    /// The definition that says so, made in this life of the node.
    pub fn definition(self, number: u64, boot: u32) -> Definition {
        let version = Version { number, node: self.node, boot };
        Definition { key: Enrolment::key(self.node), version, body: Some(self.weight.to_be_bytes().to_vec()) }
    }

    /// Reads a definition; nothing if it speaks of something else.
    pub fn read(definition: &Definition) -> Option<Enrolment> {
        let weight = u16::from_be_bytes(definition.body.as_ref()?[..].try_into().ok()?);
        let node = definition.version.node;
        (definition.key.name.starts_with(PREFIX) && definition.key == Enrolment::key(node))
            .then_some(Enrolment { node, weight })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::departure::{Departure, Stage};

    #[test]
    fn an_enrolment_is_read_as_it_was_written_and_nothing_else_is_one() {
        let said = Enrolment { node: NodeId(7), weight: 300 };
        let mut definition = said.definition(9, 9);
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
}
