//! The ring: which nodes own and replicate a slot, a pure function of names and weights.
//!
//! The crate's own hash goes through `std::hash::Hash`, whose byte stream no release promises to keep. Peers must agree on
//! the ring, so every hash here is XXH3 over bytes that we choose, and golden values below pin them.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use consistent_hash::{Node, RingHash, StaticHashRing};
use xxhash_rust::xxh3::Xxh3;

use crate::id::{NodeId, SLOTS, Slot};

/// Seeds every hash of the ring; a change of the ring's function changes it, and peers with another one are refused.
pub const RING_VERSION: u64 = 1;

/// Virtual nodes per unit of weight: 128 keep the largest share of five equal nodes within a fifth of the mean.
pub const VIRTUAL_NODES: usize = 128;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    tag: u8,
    number: u64,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write(&[self.tag]);
        hasher.write(&self.number.to_le_bytes());
    }
}

struct StableHash;

impl RingHash for StableHash {
    fn hash_item<T: Hash>(&self, item: &T) -> u64 {
        let mut hasher = Xxh3::with_seed(RING_VERSION);
        item.hash(&mut hasher);
        hasher.digest()
    }

    fn hash_vnode<K: Hash>(&self, key: &K, number: usize) -> u64 {
        let mut hasher = Xxh3::with_seed(RING_VERSION);
        key.hash(&mut hasher);
        hasher.update(&[0]);
        hasher.update(&(number as u64).to_le_bytes());
        hasher.digest()
    }
}

/// For every slot, the nodes in order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    preferences: Vec<Vec<NodeId>>,
}

impl Ring {
    /// Builds the ring of `weights`: a node of weight 2 owns about twice the slots of one of weight 1.
    pub fn new(weights: &BTreeMap<NodeId, usize>) -> Ring {
        let nodes = weights
            .iter()
            .map(|(id, weight)| Node::new(Key { tag: b'n', number: id.0 }).value(*id).quantity(weight * VIRTUAL_NODES));
        let ring = StaticHashRing::new(StableHash, nodes);
        let of_slot = |slot| ring.calc_candidates(&Key { tag: b's', number: slot }).map(|node| node.value).collect();
        Ring { preferences: (0..u64::from(SLOTS)).map(of_slot).collect() }
    }

    /// The ring of one node alone.
    pub fn sole() -> Ring {
        Ring::new(&[(NodeId::SOLE, 1)].into())
    }

    /// The node that asks for the slot's lease; `None` on an empty ring.
    pub fn owner(&self, slot: Slot) -> Option<NodeId> {
        self.replicas(slot, 1).first().copied()
    }

    /// The first `count` nodes of the slot: its owner and those that keep copies.
    pub fn replicas(&self, slot: Slot, count: usize) -> &[NodeId] {
        let nodes = &self.preferences[usize::from(slot.0 % SLOTS)];
        &nodes[..count.min(nodes.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(count: u64) -> Ring {
        Ring::new(&(0..count).map(|node| (NodeId(node), 1)).collect())
    }

    fn slots() -> impl Iterator<Item = Slot> {
        (0..SLOTS).map(Slot)
    }

    #[test]
    fn one_node_alone_owns_every_slot() {
        assert!(slots().all(|slot| Ring::sole().owner(slot) == Some(NodeId::SOLE)));
    }

    #[test]
    fn golden_values_of_five_nodes() {
        let ring = ring(5);
        let got: Vec<Vec<u64>> =
            (0..8).map(|slot| ring.replicas(Slot(slot), 3).iter().map(|node| node.0).collect()).collect();
        assert_eq!(got, GOLDEN);
    }
    const GOLDEN: [[u64; 3]; 8] =
        [[1, 2, 0], [4, 1, 0], [2, 0, 3], [2, 4, 0], [4, 2, 0], [2, 0, 3], [3, 2, 0], [2, 3, 1]];

    #[test]
    fn a_join_moves_only_its_share_and_only_to_the_new_node() {
        for count in 3..12 {
            let (before, after) = (ring(count), ring(count + 1));
            let moved: Vec<Slot> = slots().filter(|slot| before.owner(*slot) != after.owner(*slot)).collect();
            assert!(moved.iter().all(|slot| after.owner(*slot) == Some(NodeId(count))));
            let (share, expected) = (moved.len() as f64 / f64::from(SLOTS), 1.0 / (count + 1) as f64);
            assert!(share > 0.5 * expected && share < 1.5 * expected, "{count} nodes: {share:.3} for {expected:.3}");
        }
    }

    #[test]
    fn weight_decides_the_share() {
        let ring = Ring::new(&[(NodeId(1), 1), (NodeId(2), 2)].into());
        let share = slots().filter(|slot| ring.owner(*slot) == Some(NodeId(2))).count() as f64 / f64::from(SLOTS);
        assert!((0.60..0.74).contains(&share), "{share:.3}");
    }

    #[test]
    fn an_empty_ring_owns_nothing() {
        assert_eq!(Ring::new(&BTreeMap::new()).owner(Slot(3)), None);
    }
}
