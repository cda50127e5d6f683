//! Nodes that an operator admitted while the cluster ran, as definitions: every node has all of them and lets those in, so that one node more
//! needs no change of anybody's settings.

use serde::{Deserialize, Serialize};

use super::registry::{Definition, DefinitionKey, DefinitionKind};
use crate::wire::{self, WireError};

/// What the names of these definitions begin with.
const PREFIX: &str = "peer/";
/// Addresses of one node.
pub const ADDRESSES_MAX: usize = 16;

/// What is defined of a node that was admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admitted {
    /// Where it is dialled; may be empty, for it dials the others.
    pub addresses: Vec<String>,
}

impl Admitted {
    /// The name of the definition of a peer.
    pub fn key(peer: &str) -> DefinitionKey {
        DefinitionKey { kind: DefinitionKind::Setting, name: format!("{PREFIX}{peer}") }
    }

    /// The bytes of its definition.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        wire::encode(self)
    }

    /// Reads a definition: which peer it is about, and what it says; `None` in that place if the peer is let in no longer. Nothing if it
    /// is of another kind, or not understood.
    pub fn read(definition: &Definition) -> Option<(&str, Option<Admitted>)> {
        let peer =
            definition.key.name.strip_prefix(PREFIX).filter(|_| definition.key.kind == DefinitionKind::Setting)?;
        match &definition.body {
            None => Some((peer, None)),
            Some(body) => {
                let said: Admitted = wire::decode(body).ok()?;
                (said.addresses.len() <= ADDRESSES_MAX).then_some((peer, Some(said)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::registry::Version;
    use crate::id::NodeId;

    #[test]
    fn an_admission_is_read_as_it_was_written_and_nothing_else_is_one() {
        let said = Admitted { addresses: vec!["/ip4/192.0.2.7/tcp/7070".to_owned()] };
        let version = Version { number: 1, node: NodeId(1), boot: 1 };
        let mut definition =
            Definition { key: Admitted::key("12D3KooWx"), version, body: Some(said.encode().unwrap()) };
        assert!(definition.is_sound());
        assert_eq!(Admitted::read(&definition), Some(("12D3KooWx", Some(said))));
        definition.body = None;
        assert_eq!(Admitted::read(&definition), Some(("12D3KooWx", None)));
        definition.body = Some(vec![255; 3]);
        assert_eq!(Admitted::read(&definition), None);
        definition.key = DefinitionKey { kind: DefinitionKind::Crawl, name: "peer/x".into() };
        assert_eq!(Admitted::read(&definition), None);
    }
}
