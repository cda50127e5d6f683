//! Makes the records of a capture away from the archive: compressing a page takes as long as everything else that the disk's one thread
//! does for it, so it is done by the thread that read the page, of which there are as many as there are cores.

use super::encode::{Encoder, IdSource};
use super::{Capture, PayloadDigest, RecordId};

/// Tells numbers of captures from places in an archive.
const NO_SEGMENT: u64 = u64::MAX;

/// The records of a capture, ready to be appended.
#[derive(Clone)]
pub struct Packed {
    /// Gzip members, one for each record.
    pub members: Vec<u8>,
    /// Id of its `response` record.
    pub record_id: RecordId,
    /// Digest of its payload.
    pub payload_digest: PayloadDigest,
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Packed {{ {}, {} bytes }}", self.record_id, self.members.len())
    }
}

/// Makes records for one node.
pub struct Packer {
    encoder: Encoder,
    node_seed: [u8; 16],
}

impl Packer {
    /// A packer for the node that has these random bits.
    #[must_use]
    pub fn new(node_seed: [u8; 16]) -> Self {
        Self { encoder: Encoder::new(), node_seed }
    }

    /// Makes the records of `capture`, which repeats no earlier one; `None` if it has no status line. The node gives `number` to no other capture.
    pub fn pack(&mut self, capture: &Capture<'_>, number: u64) -> Option<Packed> {
        self.encoder.clear();
        let ids = IdSource {
            node_seed: &self.node_seed,
            place: [NO_SEGMENT, number],
            unix_ms: capture.unix_ms,
            url: capture.url,
        };
        let encoded = self.encoder.capture(&Capture { revisit: None, ..*capture }, &ids)?;
        let members = self.encoder.members().to_vec();
        Some(Packed { members, record_id: encoded.record_id, payload_digest: encoded.payload_digest })
    }
}
