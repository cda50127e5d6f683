//! Letters as bytes: sealed in the version that was agreed, opened only if everything about them is in order.

use proto::cluster::message::Letter;
use proto::id::{ClusterId, NodeId};
use proto::wire::{self, ENVELOPE_BYTES, EnvelopeError, WireError};

/// Longest frame of a letter: no encoded value is longer. The largest in practice are 256 links of 8,000 bytes each.
pub const LETTER_BYTES_MAX: usize = wire::VALUE_BYTES_MAX as usize + ENVELOPE_BYTES;

/// A letter that is ready to be sent; the version comes first and is known only when it goes out.
#[derive(Debug)]
pub struct Sealed {
    /// Name of its message.
    pub kind: &'static str,
    /// The first version that has this message.
    pub since: u16,
    /// The encoded letter.
    body: Vec<u8>,
}

impl Sealed {
    /// Encodes a letter.
    pub fn new(letter: &Letter) -> Result<Sealed, WireError> {
        Ok(Sealed { kind: letter.message.name(), since: letter.message.since(), body: wire::encode(letter)? })
    }

    /// Bytes of its frame.
    pub fn frame_bytes(&self) -> usize {
        ENVELOPE_BYTES + self.body.len()
    }

    /// Appends the letter in its envelope.
    pub fn append_to(&self, version: u16, cluster: ClusterId, out: &mut Vec<u8>) {
        out.extend_from_slice(&wire::envelope(version, cluster.0));
        out.extend_from_slice(&self.body);
    }
}

/// Why a letter that came in is refused.
#[derive(Debug, thiserror::Error)]
pub enum LetterError {
    /// It cannot be understood, or is not of our cluster or the agreed version.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// It is signed with the name of another cluster.
    #[error("the letter is for another cluster")]
    OtherCluster,
    /// It is signed with another name than its sender's.
    #[error("the letter says it is from node {says:?}, its sender is {is:?}")]
    Forged {
        /// What it says.
        says: NodeId,
        /// Who sent it.
        is: NodeId,
    },
    /// It is of a version that was not agreed.
    #[error("a {0} in a version that does not have it")]
    TooNew(&'static str),
    /// It breaks a bound.
    #[error("a {0} that breaks a bound")]
    Defect(&'static str),
}

/// Opens a frame that `sender` sent.
pub fn open(version: u16, cluster: ClusterId, sender: NodeId, frame: &[u8]) -> Result<Letter, LetterError> {
    let letter: Letter = wire::unseal_as(version, cluster.0, frame)?;
    if letter.cluster != cluster.0 {
        return Err(LetterError::OtherCluster);
    }
    if letter.from != sender {
        return Err(LetterError::Forged { says: letter.from, is: sender });
    }
    if letter.message.since() > version {
        return Err(LetterError::TooNew(letter.message.name()));
    }
    match letter.message.defect() {
        Some(kind) => Err(LetterError::Defect(kind)),
        None => Ok(letter),
    }
}

#[cfg(test)]
mod tests {
    use proto::cluster::message::{Message, SWIM_BYTES_MAX};

    use super::*;

    const CLUSTER: ClusterId = ClusterId(7);

    fn letter(message: Message) -> Letter {
        Letter { cluster: 7, from: NodeId(1), boot: 3, clock: 9, message }
    }

    fn bytes(letter: &Letter, version: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let sealed = Sealed::new(letter).unwrap();
        sealed.append_to(version, CLUSTER, &mut out);
        assert_eq!(sealed.frame_bytes(), out.len());
        out
    }

    #[test]
    fn a_letter_arrives_in_the_agreed_version() {
        let sent = letter(Message::Swim(vec![1, 2, 3]));
        for version in [1, 2] {
            assert_eq!(open(version, CLUSTER, NodeId(1), &bytes(&sent, version)).unwrap(), sent);
        }
        assert!(matches!(open(1, CLUSTER, NodeId(1), &bytes(&sent, 2)), Err(LetterError::Envelope(_))));
    }

    #[test]
    fn what_is_not_in_order_is_refused() {
        let sent = letter(Message::Swim(vec![1]));
        let good = bytes(&sent, 1);
        assert!(matches!(open(1, CLUSTER, NodeId(2), &good), Err(LetterError::Forged { .. })));
        assert!(matches!(open(1, ClusterId(8), NodeId(1), &good), Err(LetterError::Envelope(_))));
        let stranger = Letter { cluster: 8, ..sent.clone() };
        assert!(matches!(open(1, CLUSTER, NodeId(1), &bytes(&stranger, 1)), Err(LetterError::OtherCluster)));
        let large = letter(Message::Swim(vec![1; SWIM_BYTES_MAX + 1]));
        assert!(matches!(open(1, CLUSTER, NodeId(1), &bytes(&large, 1)), Err(LetterError::Defect("swim"))));
        for length in 0..good.len() {
            assert!(open(1, CLUSTER, NodeId(1), &good[..length]).is_err());
        }
        let mut longer = good.clone();
        longer.push(0);
        assert!(open(1, CLUSTER, NodeId(1), &longer).is_err());
    }
}
