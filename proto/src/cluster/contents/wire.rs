//! What two nodes say on a stream of contents. The one that has pages offers some; the other says which of them it wants; their records follow as they
//! are in the archive, one behind the other, in pieces; when they are fsynced and indexed the other says so. Then the next offer, until the
//! stream is closed. An empty offer asks only which folder the other has.

use serde::{Deserialize, Serialize};

use super::{PAGE_BYTES_MAX, PUSH_BYTES_MAX, PUSH_PAGES_MAX};
use crate::id::Round;
use crate::key::UrlKey;

/// A page that is offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The URL.
    pub url: UrlKey,
    /// Its round.
    pub round: Round,
    /// Id of its response record.
    pub record_id: [u8; 16],
    /// Digest of its payload.
    pub payload_digest: [u8; 20],
    /// When it was fetched, Unix milliseconds.
    pub unix_ms: u64,
    /// It only refers to an earlier record.
    pub revisit: bool,
    /// Bytes of its records.
    pub bytes: u32,
}

/// What is said. Appended only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saying {
    /// These pages are here, in this folder.
    Offers {
        /// The folder.
        folder: u64,
        /// The pages.
        offers: Vec<Offer>,
    },
    /// Of these offers the records are wanted, by their place; the others are here, in this folder.
    Wanted {
        /// The folder.
        folder: u64,
        /// Places among the offers, in order.
        places: Vec<u16>,
    },
    /// Everything is fsynced, but for what was not whole when it came.
    Kept {
        /// Places among the offers, in order.
        except: Vec<u16>,
    },
    /// Nothing of it is kept.
    Refused {
        /// Why.
        why: String,
    },
}

impl Saying {
    /// Says what is wrong with what a peer said, if something is.
    pub fn defect(&self) -> Option<&'static str> {
        match self {
            Saying::Offers { offers, .. } => {
                let bytes: u64 = offers.iter().map(|offer| u64::from(offer.bytes)).sum();
                let largest = offers.iter().map(|offer| offer.bytes).max().unwrap_or(0);
                // The last one may have gone over the bound.
                if offers.len() > PUSH_PAGES_MAX || largest > PAGE_BYTES_MAX {
                    return Some("too much is offered");
                }
                (bytes > PUSH_BYTES_MAX + u64::from(largest)).then_some("too much is offered at once")
            }
            Saying::Wanted { places, .. } | Saying::Kept { except: places } => {
                let ordered = places.windows(2).all(|two| two[0] < two[1]);
                (places.len() > PUSH_PAGES_MAX || !ordered).then_some("what is named makes no sense")
            }
            Saying::Refused { .. } => None,
        }
    }
}
