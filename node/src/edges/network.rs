//! What carries letters between the nodes of a cluster. The product's is the libp2p swarm; the simulator's loses, delays and repeats.

use proto::cluster::message::Letter;
use proto::id::NodeId;
use proto::wire::WIRE_VERSION;

/// A way to the other nodes.
pub trait Network: Send + Sync {
    /// Sends a letter. It may be lost, late, out of order or come twice; it never waits.
    fn send(&self, to: NodeId, letter: Letter);

    /// The oldest version that anybody speaks to whom there is a way.
    fn oldest_spoken(&self) -> u16 {
        WIRE_VERSION
    }
}
