//! What people define.

use std::collections::BTreeSet;

use actix::Message;
use proto::cluster::registry::{DefinitionKey, NotDefined, Version};
use proto::id::NodeId;

/// A definition, its change or its end; answered when enough nodes have it. Doors to coordinator.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Defined, NotDefined>")]
pub struct Define {
    /// What.
    pub key: DefinitionKey,
    /// The version that was seen; `None` if there was none.
    pub expects: Option<Version>,
    /// What it says from now on; `None` removes it.
    pub body: Option<Vec<u8>>,
}

/// A definition is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defined {
    /// Its version.
    pub version: Version,
    /// Who has it.
    pub by: BTreeSet<NodeId>,
}
