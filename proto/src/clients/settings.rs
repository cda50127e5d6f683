//! What holds for all queues of clients on every node: a definition, so that it is everywhere and survives everything.

use serde::{Deserialize, Serialize};

use super::gate::DELAY_DEFAULT_S;
use crate::cluster::registry::{DefinitionKey, DefinitionKind};
use crate::wire::{self, WireError};

/// Version of the encoding.
const VERSION: u16 = 1;

/// What holds for all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSettings {
    /// Whether URLs are handed out.
    pub active: bool,
    /// Time between two answers from a queue without one of its own, in seconds.
    pub delay_s: u32,
}

impl Default for ClientSettings {
    fn default() -> Self {
        ClientSettings { active: true, delay_s: DELAY_DEFAULT_S }
    }
}

impl ClientSettings {
    /// The name under which they are defined.
    pub fn key() -> DefinitionKey {
        DefinitionKey { kind: DefinitionKind::Setting, name: "url_frontier".to_owned() }
    }

    /// The bytes that nodes keep.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        wire::encode(&(VERSION, self))
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<ClientSettings, WireError> {
        wire::decode::<(u16, ClientSettings)>(bytes).map(|(_, settings)| settings)
    }
}
