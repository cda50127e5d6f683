//! That a node gave its place up, or is back, as a definition: all nodes may lose power at once, and whoever is up first must know
//! how many there are.
//!
//! Nobody proposes these. Whoever hears that a node left writes it down, and as the version comes from the life in which it did, all of them
//! write the same.

use super::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use crate::id::NodeId;

/// What the names of these definitions begin with.
const PREFIX: &str = "left/";

/// Where a node was seen to stand last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which node.
    pub node: NodeId,
    /// In which of its lives.
    pub boot: u32,
    /// It gave its place up in that life; otherwise it is back in it.
    pub gone: bool,
}

impl Departure {
    /// The definition that says so. A later life counts more, and within a life that it left.
    pub fn definition(self) -> Definition {
        let Departure { node, boot, gone } = self;
        Definition {
            key: DefinitionKey { kind: DefinitionKind::Setting, name: format!("{PREFIX}{}", node.0) },
            version: Version { number: u64::from(boot), node, boot: u32::from(gone) },
            body: gone.then(Vec::new),
        }
    }

    /// Reads a definition; nothing if it speaks of something else.
    pub fn read(definition: &Definition) -> Option<Departure> {
        let Version { number, node, boot } = definition.version;
        let said = Departure { node, boot: u32::try_from(number).ok()?, gone: boot > 0 };
        (said.definition() == *definition).then_some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::admission::Admitted;

    #[test]
    fn a_departure_is_read_as_it_was_written_and_nothing_else_is_one() {
        for gone in [false, true] {
            let said = Departure { node: NodeId(7), boot: u32::MAX, gone };
            let mut definition = said.definition();
            assert!(definition.is_sound());
            assert_eq!(Departure::read(&definition), Some(said));
            definition.version.node = NodeId(8);
            assert_eq!(Departure::read(&definition), None, "it speaks of one node and is named for another");
        }
        let version = Version { number: 1, node: NodeId(7), boot: 1 };
        let admitted = Definition { key: Admitted::key("7"), version, body: Some(Vec::new()) };
        assert_eq!(Departure::read(&admitted), None);
    }

    #[test]
    fn the_later_life_counts_and_in_one_life_that_it_left() {
        let said = |boot, gone| Departure { node: NodeId(7), boot, gone }.definition();
        let ordered = [said(1_000, true), said(2_000, false), said(2_000, true), said(3_000, false)];
        assert!(ordered.is_sorted_by(|one, next| one < next));
    }
}
