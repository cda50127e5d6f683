//! What the swarm is told when it starts.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use libp2p::{Multiaddr, PeerId};
use proto::cluster::message::Letter;
use proto::id::ClusterId;

use super::control::Caller;
use super::hello::Versions;
use super::identity::Identity;
use super::key::SwarmKey;
use super::roster::Role;

/// Somebody who may connect.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its identity.
    pub peer: PeerId,
    /// What it may do.
    pub role: Role,
    /// Where it is dialled; may be empty.
    pub addresses: Vec<Multiaddr>,
}

/// Everything.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who we are.
    pub identity: Identity,
    /// The secret of the cluster.
    pub key: SwarmKey,
    /// The cluster.
    pub cluster: ClusterId,
    /// What we speak.
    pub versions: Versions,
    /// Where we listen; nowhere, if we only ask.
    pub listen: Vec<Multiaddr>,
    /// Who may connect.
    pub peers: Vec<Peer>,
    /// The role of whoever holds the swarm key and is not listed; `None` to refuse them.
    pub stranger: Option<Role>,
    /// Whether nodes are also looked for on the local network.
    pub mdns: bool,
    /// Bounds on connections.
    pub limits: Limits,
    /// How fast streams of letters are read.
    pub pace: Pace,
    /// How long what may take.
    pub times: Times,
    /// Chance in waits is drawn from it.
    pub seed: u64,
}

impl Settings {
    /// Settings with defaults for what is not a matter of identity.
    pub fn new(identity: Identity, key: SwarmKey, cluster: ClusterId) -> Settings {
        let seed = identity.node().0;
        Settings {
            identity,
            key,
            cluster,
            versions: Versions::default(),
            listen: Vec::new(),
            peers: Vec::new(),
            stranger: None,
            mdns: false,
            limits: Limits::default(),
            pace: Pace::default(),
            times: Times::default(),
            seed,
        }
    }
}

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: u32,
    /// Connections of one peer at once: two may cross, and one may be dead without knowing it.
    pub per_peer_max: u32,
    /// Connections at once that have not proved who they are.
    pub pending_max: u32,
    /// No connection is taken while the process has more than this share of the machine's memory, in hundredths.
    pub memory_percent_max: u8,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { connections_max: 256, per_peer_max: 4, pending_max: 64, memory_percent_max: 80 }
    }
}

/// How fast a stream of letters is read: far more than a node has to say, far less than would hinder the others.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Letters in a second.
    pub letters: u32,
    /// Bytes in a second.
    pub bytes: u32,
    /// Who says more letters than that for so long without a pause is cut off. Not so who says more bytes: slots that are brought over
    /// come as fast as they are taken.
    pub patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { letters: 20_000, bytes: 64 << 20, patience: Duration::from_secs(30) }
    }
}

/// How long what may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From a connection's first byte until it has proved who it is.
    pub handshake: Duration,
    /// Until a stream has said what it is for.
    pub hello: Duration,
    /// From the first byte of a letter to its last: 4 MiB over a line of 1 Mbit/s.
    pub frame: Duration,
    /// A peer that takes nothing for so long is given up.
    pub write: Duration,
    /// How often a connection is proved to be alive.
    pub ping: Duration,
    /// A connection that does not prove it for so long is closed.
    pub pong: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            handshake: Duration::from_secs(10),
            hello: Duration::from_secs(10),
            frame: Duration::from_secs(40),
            write: Duration::from_secs(30),
            ping: Duration::from_secs(5),
            pong: Duration::from_secs(10),
        }
    }
}

/// A stream of bytes between two nodes, with back-pressure.
pub type BulkStream = libp2p::swarm::Stream;

/// Takes a letter that came in; `false` if there is no room for it.
pub type Deliver = Arc<dyn Fn(Letter) -> bool + Send + Sync>;
/// Answers a control request.
pub type Control = Arc<dyn Fn(Caller, Vec<u8>) -> BoxFuture<'static, Vec<u8>> + Send + Sync>;
/// Answers a control request with one item after the other.
pub type Follow = Arc<dyn Fn(Caller, Vec<u8>) -> BoxStream<'static, Vec<u8>> + Send + Sync>;
/// Takes a stream that another node opened.
pub type Bulk = Arc<dyn Fn(PeerId, BulkStream) -> BoxFuture<'static, ()> + Send + Sync>;

/// Where what comes in goes.
#[derive(Clone)]
pub struct Doors {
    /// Letters.
    pub deliver: Deliver,
    /// Control requests with one answer.
    pub control: Control,
    /// Control requests with many.
    pub follow: Follow,
    /// Streams of content; `None` to refuse them.
    pub bulk: Option<Bulk>,
}

impl Doors {
    /// Doors for somebody who only asks: whatever comes in is dropped, and answers are empty.
    pub fn closed() -> Doors {
        Doors {
            deliver: Arc::new(|_| false),
            control: Arc::new(|_, _| Box::pin(std::future::ready(Vec::new()))),
            follow: Arc::new(|_, _| Box::pin(futures_util::stream::empty())),
            bulk: None,
        }
    }
}
