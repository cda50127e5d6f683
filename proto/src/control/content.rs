//! What is asked about the contents of pages, and what is told.

use serde::{Deserialize, Serialize};

use crate::id::Round;

/// Bytes of one part of a page's records.
pub const PART_BYTES_MAX: usize = 1 << 20;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentRequest {
    /// Which versions of a page does each node have?
    Find {
        /// Its crawl.
        crawl: String,
        /// As people write it.
        url: String,
    },
    /// Which versions of a page does the node that is asked have?
    FindHere {
        /// Its crawl.
        crawl: String,
        /// As people write it.
        url: String,
    },
    /// A part of a version's records, from the node that has it.
    Read {
        /// Which node.
        node: u64,
        /// Its crawl.
        crawl: String,
        /// As people write it.
        url: String,
        /// Id of its response record.
        record_id: [u8; 16],
        /// From which byte on.
        from: u32,
    },
    /// With which round do the contents of a page begin that were not forgotten since?
    Begins {
        /// Its crawl.
        crawl: String,
        /// As people write it.
        url: String,
    },
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentAnswer {
    /// The versions that nodes have.
    Found(Vec<NodeVersions>),
    /// A part of a version's records: gzip members, as they are in the archive.
    Part {
        /// The bytes.
        bytes: Vec<u8>,
        /// Bytes of all parts.
        total: u32,
    },
    /// The round with which contents begin.
    Begins(Round),
}

/// The versions of a page that one node has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeVersions {
    /// Which node.
    pub node: u64,
    /// The versions, or why they are not known.
    pub versions: Result<Vec<Version>, String>,
}

/// One version of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Its round.
    pub round: Round,
    /// When it was fetched, Unix milliseconds.
    pub unix_ms: u64,
    /// Id of its response record.
    pub record_id: [u8; 16],
    /// SHA-1 of its payload, as it was transferred.
    pub payload_digest: [u8; 20],
    /// It only refers to an earlier record with the same payload.
    pub revisit: bool,
    /// Bytes of its records.
    pub bytes: u32,
}
