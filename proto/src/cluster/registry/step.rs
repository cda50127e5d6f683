//! What goes into a step of the registry and what comes out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Definition, DefinitionKey, Version};
use crate::cluster::message::Op;
use crate::crawl::politeness::Micros;
use crate::id::NodeId;

/// The cluster as the node sees it.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// Who is alive, this node included or not.
    pub alive: &'a BTreeSet<NodeId>,
    /// How many nodes must have a definition before it counts: a majority of all, and not fewer than W.
    pub needed: usize,
    /// Who grants leases: a majority of them too must have what binds.
    pub voters: &'a [NodeId],
    /// How much longer than other changes one that binds is pursued: until every lease that was granted without knowing it has lapsed.
    pub lapse: Micros,
}

impl Surroundings<'_> {
    pub(super) fn others(&self, me: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.alive.iter().copied().filter(move |node| *node != me)
    }
}

/// What registries say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saying {
    /// Definitions to be kept; with a number, it is said when they are fsynced.
    Define {
        /// Names the change of which they are.
        op: Option<Op>,
        /// The definitions.
        definitions: Vec<Definition>,
    },
    /// A definition is fsynced.
    DefineDone {
        /// Which change.
        op: Op,
    },
    /// A digest of everything that is held, to be compared.
    Compare {
        /// The digest.
        digest: u64,
        /// What the sender has done and speaks for of what is limited.
        counts: Vec<(String, u64)>,
    },
    /// What is held, because digests differed.
    Held {
        /// Names and versions.
        versions: Vec<(DefinitionKey, Version)>,
        /// It answers another one: it needs no answer.
        answer: bool,
    },
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// Time passed.
    Tick,
    /// A client changes something.
    Proposed {
        /// Whom to tell.
        ticket: u64,
        /// What.
        key: DefinitionKey,
        /// The version that the client saw; `None` if there was none.
        expects: Option<Version>,
        /// What it says from now on; `None` removes it.
        body: Option<Vec<u8>>,
    },
    /// This node is to be known to all who are granted slots: answered by [`Effect::Enrolled`], however long it takes.
    Enrol {
        /// Its weight.
        weight: u16,
    },
    /// A peer says something.
    Received {
        /// Who.
        from: NodeId,
        /// In which life.
        boot: u32,
        /// What.
        saying: Saying,
    },
    /// What [`Effect::Store`] asked for is fsynced.
    Stored {
        /// Which.
        op: u64,
    },
    /// What [`Effect::Store`] asked for failed: nothing of it is durable.
    StoreFailed {
        /// Which.
        op: u64,
    },
    /// What nobody proposed and everybody who learns of it writes down alike.
    Learned {
        /// Which.
        definitions: Vec<Definition>,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Say something to a peer; it may be lost.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        saying: Saying,
    },
    /// Merge definitions into what is on disk, fsync, answer [`Input::Stored`] or [`Input::StoreFailed`].
    Store {
        /// Names it.
        op: u64,
        /// The definitions.
        definitions: Vec<Definition>,
    },
    /// These are on our disk and in force from now on.
    Redefined {
        /// Which.
        definitions: Vec<Definition>,
    },
    /// Enough nodes have this.
    Kept {
        /// What.
        definition: Definition,
    },
    /// Whoever is granted a slot from now on knows of this node.
    Enrolled,
    /// Tell the client that its change is kept.
    Defined {
        /// Which.
        ticket: u64,
        /// The version that it made.
        version: Version,
        /// Who has it so far.
        by: BTreeSet<NodeId>,
    },
    /// Tell the client that its change is not kept.
    NotDefined {
        /// Which.
        ticket: u64,
        /// Why.
        why: NotDefined,
    },
}

/// Why a change is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDefined {
    /// It is not what the client saw any more.
    #[error("somebody else changed it meanwhile; look at it and try again")]
    Changed,
    /// There are too many.
    #[error("there are {} definitions already, removed ones included; no more can be kept", super::DEFINITIONS_MAX)]
    TooMany,
    /// It is too large, or its name is.
    #[error("the definition is too large: at most {} bytes", super::DEFINITION_BYTES_MAX)]
    TooLarge,
    /// Too many changes are under way.
    #[error("the node is busy; try again later")]
    Busy,
    /// Our own disk did not take it.
    #[error("the node could not write it down; is its disk full?")]
    NotWritten,
    /// Too few nodes have it.
    #[error("only {have} nodes have it and {needed} must; it may still take effect when the others come back")]
    TooFew {
        /// How many.
        have: usize,
        /// How many it must be.
        needed: usize,
    },
    /// The node began a new life meanwhile.
    #[error("the node started anew; look whether the change took effect, and try again")]
    StartedAnew,
}
