//! The names of things: nodes, slots, URLs, batches, rounds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How many buckets domains hash into. 4,096 slots over a few dozen nodes leave every node about a hundred,
/// so a join or a leave moves data in pieces of one percent of a node.
pub const SLOTS: u16 = 4096;

/// A node of the cluster. One node alone is [`NodeId::SOLE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The only node of a cluster of one.
    pub const SOLE: NodeId = NodeId(0);

    /// Returns the node that a libp2p peer is, by the bytes of its peer id. XXH3: the same on every platform and release.
    /// Two peers with one id are a mistake that whoever lists peers must refuse; among a hundred it is one in 10^15.
    pub fn of_peer(peer_id: &[u8]) -> NodeId {
        NodeId(xxhash_rust::xxh3::xxh3_64(peer_id).max(1))
    }
}

/// Names a cluster on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(pub u64);

impl ClusterId {
    /// Returns the id of the cluster that people call `name`.
    pub fn of_name(name: &str) -> ClusterId {
        ClusterId(xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

/// What stands before a domain where something is kept beside its pages: no host begins with it, and no key of a client is written like it.
pub(crate) const BESIDE: &str = "\u{1}\u{2}3";

/// One of [`SLOTS`] buckets of domains: the unit of ownership, lease, transfer and repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(pub u16);

impl Slot {
    /// Returns the slot of a registrable domain. XXH3 over the domain's bytes: the same on every platform and release.
    /// What is kept beside the pages of a domain is marked as such, and lies where they do.
    pub fn of_domain(domain: &str) -> Slot {
        let domain = domain.strip_prefix(BESIDE).unwrap_or(domain);
        let hash = xxhash_rust::xxh3::xxh3_64(domain.as_bytes());
        Slot((hash % u64::from(SLOTS)) as u16)
    }
}

/// How many times a URL has been put up for crawling; a recrawl is round + 1.
pub type Round = u32;

/// Identity of a URL: 128 bits of BLAKE3 over crawl, a zero byte and the canonical URL.
/// At ten billion URLs the chance that any two share an id is below 10^-18.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UrlId(pub [u8; 16]);

impl UrlId {
    /// Returns the id of `canonical` within `crawl`.
    pub fn of(crawl: &str, canonical: &str) -> UrlId {
        // Every link of every page comes here, and most are short: hashing one piece takes half as long as hashing three.
        let mut buffer = [0; 256];
        let (end, start) = (crawl.len() + 1 + canonical.len(), crawl.len() + 1);
        let hash = if end <= buffer.len() {
            buffer[..crawl.len()].copy_from_slice(crawl.as_bytes());
            buffer[start..end].copy_from_slice(canonical.as_bytes());
            blake3::hash(&buffer[..end])
        } else {
            let mut hasher = blake3::Hasher::new();
            hasher.update(crawl.as_bytes()).update(&[0]).update(canonical.as_bytes());
            hasher.finalize()
        };
        let mut id = [0; 16];
        id.copy_from_slice(&hash.as_bytes()[..16]);
        UrlId(id)
    }
}

impl fmt::Display for UrlId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for UrlId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// A batch: which node made it, in which of its lives, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchId {
    /// The node that handed the batch out.
    pub node: NodeId,
    /// The start of that node in which it did, so that numbers never repeat.
    pub boot: u32,
    /// Counts the batches of that start.
    pub number: u64,
}

impl fmt::Display for BatchId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.node.0, self.boot, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_urls_are_the_same_whether_hashed_in_one_piece_or_in_three() {
        for length in [0, 30, 247, 248, 249, 8_000] {
            let url = "u".repeat(length);
            let mut hasher = blake3::Hasher::new();
            hasher.update(b"DEFAULT").update(&[0]).update(url.as_bytes());
            assert_eq!(UrlId::of("DEFAULT", &url).0, hasher.finalize().as_bytes()[..16], "{length} bytes");
        }
    }

    #[test]
    fn ids_of_peers_and_clusters_never_change() {
        assert_eq!(NodeId::of_peer(b""), NodeId(0x2d06800538d394c2));
        assert_eq!(NodeId::of_peer(&[0, 36, 8, 1, 18, 32, 7, 7, 7]), NodeId(6_035_006_371_176_200_042));
        assert_eq!(ClusterId::of_name("my-cluster").to_string(), "99dd7886cff47ae4");
    }
}
