//! Who may ask the hosts of a slot: the lease.
//!
//! A node starts a fetch only while it holds the slot's lease for long enough to finish it. The voters of a cluster grant
//! leases by majority; a node that is its own only voter holds every slot for ever.

use std::collections::BTreeMap;

use crate::crawl::politeness::Micros;
use crate::id::Slot;

/// The leases a node holds.
#[derive(Clone, Debug)]
pub enum Leases {
    /// The only voter of its cluster: every slot, for ever.
    Sole,
    /// Slots granted by a majority, each until a time on this node's clock.
    Granted(BTreeMap<Slot, Micros>),
}

impl Leases {
    /// Says whether a fetch of `slot` that ends at latest at `ends` may start.
    pub fn allow(&self, slot: Slot, ends: Micros) -> bool {
        match self {
            Leases::Sole => true,
            Leases::Granted(until) => until.get(&slot).is_some_and(|until| ends < *until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_alone_may_ask_every_host() {
        assert!(Leases::Sole.allow(Slot(0), Micros::MAX));
        assert!(Leases::Sole.allow(Slot(4095), 0));
    }

    #[test]
    fn a_fetch_must_end_inside_the_lease() {
        let leases = Leases::Granted([(Slot(7), 100)].into());
        assert!(leases.allow(Slot(7), 99));
        assert!(!leases.allow(Slot(7), 100));
        assert!(!leases.allow(Slot(8), 1));
    }
}
