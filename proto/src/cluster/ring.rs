//! The ring: which nodes own and replicate a slot, a pure function of names and weights.
//!
//! The crate's own hash goes through `std::hash::Hash`, whose byte stream no release promises to keep. Peers must agree on
//! the ring, so every hash here is XXH3 over bytes that we choose, and golden values below pin them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

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

    /// All nodes in the slot's order of preference.
    pub fn preference(&self, slot: Slot) -> &[NodeId] {
        &self.preferences[usize::from(slot.0 % SLOTS)]
    }

    /// The first `count` of the slot's nodes that are among the `alive`. A node that is down keeps its place on the ring,
    /// and the next ones act for it.
    pub fn acting<'a>(
        &'a self,
        slot: Slot,
        count: usize,
        alive: &'a BTreeSet<NodeId>,
    ) -> impl Iterator<Item = NodeId> + 'a {
        self.preference(slot).iter().copied().filter(|node| alive.contains(node)).take(count)
    }

    /// The owner of every slot, in order; empty on an empty ring.
    pub fn owners(&self) -> Vec<NodeId> {
        (0..SLOTS).filter_map(|slot| self.owner(Slot(slot))).collect()
    }

    /// The first `count` nodes of the slot: its owner and those that keep copies.
    pub fn replicas(&self, slot: Slot, count: usize) -> &[NodeId] {
        let nodes = &self.preferences[usize::from(slot.0 % SLOTS)];
        &nodes[..count.min(nodes.len())]
    }
}

/// Rings by their members: one takes some ten milliseconds to build, and a view that comes back has been built before.
#[derive(Clone, Default)]
pub struct Rings {
    built: Arc<Mutex<Built>>,
}

type Built = BTreeMap<BTreeMap<NodeId, usize>, Arc<Ring>>;

/// Rings remembered; at the bound all are forgotten.
const RINGS_MAX: usize = 64;

impl Rings {
    /// The ring of `weights`, built now or before.
    pub fn get(&self, weights: &BTreeMap<NodeId, usize>) -> Arc<Ring> {
        let mut built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ring) = built.get(weights) {
            return Arc::clone(ring);
        }
        if built.len() >= RINGS_MAX {
            built.clear();
        }
        let ring = Arc::new(Ring::new(weights));
        built.insert(weights.clone(), Arc::clone(&ring));
        ring
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
        let ring = Ring::sole();
        assert!(slots().all(|slot| ring.owner(slot) == Some(NodeId::SOLE)));
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
    fn a_leave_moves_only_the_slots_of_who_leaves() {
        let before = ring(6);
        let after = Ring::new(&(0..6).filter(|node| *node != 3).map(|node| (NodeId(node), 1)).collect());
        for slot in slots() {
            let stayed: Vec<NodeId> =
                before.preference(slot).iter().copied().filter(|node| *node != NodeId(3)).collect();
            assert_eq!(stayed, after.preference(slot));
        }
    }

    #[test]
    fn replicas_are_distinct_and_the_next_alive_ones_act() {
        let ring = ring(5);
        let alive: BTreeSet<NodeId> = [NodeId(0), NodeId(2), NodeId(4)].into();
        for slot in slots() {
            let replicas: BTreeSet<NodeId> = ring.replicas(slot, 3).iter().copied().collect();
            assert_eq!(replicas.len(), 3);
            let acting: Vec<NodeId> = ring.acting(slot, 2, &alive).collect();
            assert_eq!(acting.len(), 2);
            assert!(acting.iter().all(|node| alive.contains(node)));
            if alive.contains(&ring.preference(slot)[0]) {
                assert_eq!(Some(acting[0]), ring.owner(slot));
            }
        }
    }

    #[test]
    fn a_ring_that_comes_back_is_not_built_again() {
        let rings = Rings::default();
        let weights: BTreeMap<NodeId, usize> = [(NodeId(1), 1), (NodeId(2), 3)].into();
        assert!(Arc::ptr_eq(&rings.get(&weights), &rings.get(&weights)));
        assert_eq!(*rings.get(&weights), Ring::new(&weights));
    }

    #[test]
    fn golden_digest_of_a_weighted_ring() {
        let ring = Ring::new(&[(NodeId(1), 1), (NodeId(2), 2), (NodeId(1 << 40), 1)].into());
        let bytes: Vec<u8> = slots()
            .flat_map(|slot| ring.preference(slot).iter().flat_map(|node| node.0.to_le_bytes()).collect::<Vec<_>>())
            .collect();
        assert_eq!(xxhash_rust::xxh3::xxh3_64(&bytes), WEIGHTED);
    }
    const WEIGHTED: u64 = 3_135_723_700_799_045_707;

    #[test]
    fn an_empty_ring_owns_nothing() {
        assert_eq!(Ring::new(&BTreeMap::new()).owner(Slot(3)), None);
    }
}
