//! That a node gave its place up, or is back, as a definition: all nodes may lose power at once, and whoever is up first must know
//! how many there are.
//!
//! Nobody proposes these. Whoever hears that a node left writes it down, and as the version comes from the life in which it did, all of them
//! write the same.

use super::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use crate::id::NodeId;

/// How far a node is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has its place again.
    Back,
    /// It gave its place up, and may still have what nobody else has.
    Left,
    /// Nothing more comes from it: it has handed over all it had, or an operator said that it is gone for ever.
    Gone,
}

/// Where a node was seen to stand last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which node.
    pub node: NodeId,
    /// In which of its lives.
    pub boot: u32,
    /// Where it stood in it.
    pub stage: Stage,
}

impl Departure {
    /// The definition that says so. A later life counts more, and within a life that it left. That it is gone is another definition: who does not know of
    /// these still reads that it left.
    pub fn definition(self) -> Definition {
        let Departure { node, boot, stage } = self;
        let name = if stage == Stage::Gone { "gone" } else { "left" };
        Definition {
            key: DefinitionKey { kind: DefinitionKind::Setting, name: format!("{name}/{}", node.0) },
            version: Version { number: u64::from(boot), node, boot: u32::from(stage != Stage::Back) },
            body: (stage != Stage::Back).then(Vec::new),
        }
    }

    /// Reads a definition; nothing if it speaks of something else.
    pub fn read(definition: &Definition) -> Option<Departure> {
        let Version { number, node, .. } = definition.version;
        let boot = u32::try_from(number).ok()?;
        let said = [Stage::Back, Stage::Left, Stage::Gone].map(|stage| Departure { node, boot, stage });
        said.into_iter().find(|said| said.definition() == *definition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::admission::Admitted;

    #[test]
    fn a_departure_is_read_as_it_was_written_and_nothing_else_is_one() {
        for stage in [Stage::Back, Stage::Left, Stage::Gone] {
            let said = Departure { node: NodeId(7), boot: u32::MAX, stage };
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
        let said = |boot, stage| Departure { node: NodeId(7), boot, stage }.definition();
        let ordered = [(1_000, Stage::Left), (2_000, Stage::Back), (2_000, Stage::Left), (3_000, Stage::Back)]
            .map(|(boot, stage)| said(boot, stage));
        assert!(ordered.is_sorted_by(|one, next| one < next));
    }
}
