//! Contents: which pages of this node lack their second copy, which node is to keep it, and when to try again. Pure: whoever runs it reads
//! and writes the disk and carries the bytes.
//!
//! **What a page's acknowledgement needs.** A page is kept when its records are fsynced on the node that fetched it, and on the disk of the first living
//! node of its slot besides. Only then is it acknowledged (CRAWLED, and all that follows), so that no page that counts as crawled is lost with
//! one disk. A page without its second copy after [`ContentRules::patience`] is not acknowledged at all: its flight lapses, and it is fetched again. That
//! stops no crawl that goes on otherwise: records want W disks too. In a cluster of one there is nobody to wait for. Every page
//! that has no second copy yet stands in a list on disk, written in the batch that wrote the page itself, so that it is made up for in the
//! background, over any number of starts.
//!
//! **Whom a copy is trusted to** is written down too: a [`Holding`], that is a node and the number of its data folder. When that node gives its place
//! up (it left, was forgotten, or was away for longer than `forget_after`), or when it comes with another folder (its disk was lost, or a
//! backup was restored), its copies count as lost: their pages are on the list again, and another node gets them. Each of the two
//! that have a page watches over the other, so whichever is lost, the one that is left does it. A copy that is offered to
//! a node that has it already costs a few bytes, so being too careful is cheap.

mod step;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::step::{Effect, Input, Standing};
pub use self::wire::{Offer, Saying};
use super::mutant::Planted;
use super::ring::Ring;
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::{NodeId, Round};
use crate::key::UrlKey;

/// Pages of one push.
pub const PUSH_PAGES_MAX: usize = 256;
/// Bytes of one push, about; a single page may have more.
pub const PUSH_BYTES_MAX: u64 = 4 << 20;
/// Bytes of the records of one page, compressed. Settings take no `page_bytes_max` above 1 GiB; the heads and what was made of a page come on top.
pub const PAGE_BYTES_MAX: u32 = (1 << 30) + (64 << 20);

/// A disk that keeps copies: a node, and the number that was drawn when its data folder was made or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holding {
    /// The node.
    pub node: NodeId,
    /// Its data folder.
    pub folder: u64,
}

/// Names the records of one fetch on one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentKey {
    /// The URL.
    pub url: UrlKey,
    /// Its round.
    pub round: Round,
    /// Tells it from the fetch of the same round that is kept under the plain key: two nodes may have fetched it, each unaware of the other.
    pub other: Option<[u8; 16]>,
}

impl ContentKey {
    /// The key on disk: that of the URL, then ¬round, so that newer rounds sort first.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut key = self.url.content(self.round);
        key.extend(self.other.iter().flatten());
        key
    }

    /// Reads a key on disk; `None` if these bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Option<ContentKey> {
        let read = |other: usize| {
            let (rest, other) = bytes.split_at_checked(bytes.len().checked_sub(other)?)?;
            let (url, round) = rest.split_last_chunk::<4>()?;
            let other = <[u8; 16]>::try_from(other).ok();
            Some(ContentKey { url: UrlKey::checked(url)?, round: !u32::from_be_bytes(*round), other })
        };
        read(0).or_else(|| read(16))
    }
}

/// Times and bounds.
#[derive(Clone, Copy, Debug)]
pub struct ContentRules {
    /// Pages without a second copy that are read into memory; the others wait on disk. Those that were just fetched come on top: as many
    /// as there are fetches under way.
    pub window_max: usize,
    /// Pushes under way at once, each to another node.
    pub pushes_max: usize,
    /// How long a page waits for its second copy; then it is fetched again. As long as a flight may take to settle: later nobody would hear it.
    pub patience: Micros,
    /// A node that took nothing is asked again after this; twice as long each time.
    pub rest_min: Micros,
    /// But never later than after this.
    pub rest_max: Micros,
    /// A node that has been off the ring for so long has lost its copies. Views are stable for seconds before they count.
    pub gone_after: Micros,
    /// How often a node that is trusted with copies is asked whether it still has the same folder.
    pub greet_every: Micros,
    /// Passes through the list begin so far apart: the disk says that something is on it a moment before the page itself is heard of.
    pub list_every: Micros,
    /// A defect to be found.
    pub planted: Planted,
}

impl Default for ContentRules {
    fn default() -> Self {
        ContentRules {
            window_max: 4_096,
            pushes_max: 4,
            patience: 60 * SECOND,
            rest_min: SECOND,
            rest_max: 60 * SECOND,
            gone_after: 10 * SECOND,
            greet_every: 15 * SECOND,
            list_every: 2 * SECOND,
            planted: Planted::default(),
        }
    }
}

/// A node that took nothing.
struct Rest {
    until: Micros,
    wait: Micros,
}

/// A page that waits to be acknowledged.
struct Page {
    ticket: u64,
    until: Micros,
}

/// The core.
pub struct Contents {
    rules: ContentRules,
    me: NodeId,
    #[cfg(test)]
    defect: Option<tests::Defect>,
    ring: Arc<Ring>,
    members: BTreeSet<NodeId>,
    alive: BTreeSet<NodeId>,
    /// How many nodes the cluster has, those included that the ring forgot; 0 until it is told.
    size: usize,
    /// Since when nodes that are trusted with copies have been off the ring.
    absent: BTreeMap<NodeId, Micros>,

    /// Pages without a second copy, and the bytes of their records; those that are being pushed included.
    waiting: BTreeMap<ContentKey, u32>,
    /// Pushes under way.
    pushes: BTreeMap<NodeId, BTreeSet<ContentKey>>,
    /// Copied, and not yet written down as such.
    marking: BTreeSet<ContentKey>,
    /// Their records cannot be read here.
    unreadable: BTreeSet<ContentKey>,
    pages: BTreeMap<ContentKey, Vec<Page>>,
    /// None of them has waited long enough before this.
    ends_first: Micros,
    resting: BTreeMap<NodeId, Rest>,

    /// What the disk says.
    standing: Standing,
    /// The list on disk may hold what is not in memory: go through it (again).
    list_has_more: bool,
    /// No pass through it begins before.
    next_pass: Micros,
    /// Where the pass through the list is, while there is one.
    pass: Option<Option<ContentKey>>,
    reading: bool,
    /// Copies that are being taken for lost.
    taking_back: Option<Holding>,
    /// The folder of each node, and when it was last asked.
    folders: BTreeMap<NodeId, u64>,
    greeted: BTreeMap<NodeId, Micros>,
}

impl Contents {
    /// A node that starts with what its disk says.
    pub fn new(me: NodeId, rules: ContentRules, standing: Standing) -> Contents {
        Contents {
            rules,
            me,
            #[cfg(test)]
            defect: None,
            ring: Arc::new(Ring::new(&BTreeMap::new())),
            members: BTreeSet::new(),
            alive: BTreeSet::new(),
            size: 0,
            absent: BTreeMap::new(),
            waiting: BTreeMap::new(),
            pushes: BTreeMap::new(),
            marking: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            pages: BTreeMap::new(),
            ends_first: Micros::MAX,
            resting: BTreeMap::new(),
            list_has_more: standing.lacking > 0,
            standing,
            next_pass: 0,
            pass: None,
            reading: false,
            taking_back: None,
            folders: BTreeMap::new(),
            greeted: BTreeMap::new(),
        }
    }

    /// Pages on this node that have no second copy.
    pub fn lacking(&self) -> u64 {
        self.standing.lacking
    }

    /// Whether every page of this node is on another one that has a place on the ring, as far as this node knows: it may go. If there is
    /// no other, it may go too: nobody could take anything.
    pub fn is_dispensable(&self) -> bool {
        if self.members.iter().all(|node| *node == self.me) {
            return true;
        }
        let gone = |holding: &Holding| !self.members.contains(&holding.node);
        self.standing.lacking == 0 && self.taking_back.is_none() && !self.standing.trusted.keys().any(gone)
    }

    /// The node that a page's copy should go to now: the first of its slot that lives, is not this one and does not rest.
    fn target(&self, now: Micros, key: &ContentKey) -> Option<NodeId> {
        self.ring.preference(key.url.slot()).iter().copied().find(|node| self.is_free(now, node))
    }

    /// Whether a node may be given copies.
    fn is_free(&self, now: Micros, node: &NodeId) -> bool {
        *node != self.me && self.alive.contains(node) && self.resting.get(node).is_none_or(|rest| rest.until <= now)
    }

    fn is_pushed(&self, key: &ContentKey) -> bool {
        self.pushes.values().any(|keys| keys.contains(key))
    }
}
