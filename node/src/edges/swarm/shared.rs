//! What the handle, the event loop and the tasks of the swarm have in common.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libp2p::swarm::Stream;
use libp2p::{Multiaddr, PeerId};
use proto::id::{ClusterId, NodeId};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::hello::Hello;
use super::identity::node_of;
use super::metrics::SwarmMetrics;
use super::outbox::{LANES, Lane, Outbox};
use super::refusal::{Quiet, Refusal};
use super::roster::{Role, Roster};
use super::settings::{Doors, Pace, Times};
use super::streams::{OpenError, Purpose};

/// What the event loop is asked to do.
pub(super) enum Command {
    /// Open a stream.
    Open { peer: PeerId, purpose: Purpose, reply: oneshot::Sender<Result<Stream, OpenError>> },
    /// Cut a peer off that misbehaved.
    Cut { peer: PeerId, why: Refusal, detail: String },
    /// Look for a peer, which the roster has already.
    Seek { peer: PeerId, addresses: Vec<Multiaddr> },
    /// Part from a peer, which the roster no longer has.
    Part { peer: PeerId },
    /// Dial an address, whoever is there.
    Dial { address: Multiaddr, reply: oneshot::Sender<Result<PeerId, String>> },
    /// Come to an end.
    Stop,
}

/// Another node.
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) outbox: Outbox,
    connected: AtomicBool,
    /// The version that was agreed last; 0 before that.
    version: AtomicU16,
    /// One for each lane.
    changed: [Notify; LANES],
}

impl Link {
    fn new(peer: PeerId) -> Link {
        Link {
            peer,
            outbox: Outbox::default(),
            connected: AtomicBool::new(false),
            version: AtomicU16::new(0),
            changed: Default::default(),
        }
    }

    pub(super) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Release);
        if connected {
            self.changed.iter().for_each(Notify::notify_one);
        } else {
            self.version.store(0, Ordering::Release);
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Acquire)
    }

    pub(super) fn agreed(&self, version: u16) {
        self.version.store(version, Ordering::Release);
    }

    pub(super) fn version(&self) -> Option<u16> {
        Some(self.version.load(Ordering::Acquire)).filter(|version| *version > 0)
    }

    /// Waits until there is a connection.
    pub(super) async fn connection(&self, lane: Lane) {
        while !self.is_connected() {
            self.changed[lane as usize].notified().await;
        }
    }
}

/// The common things.
pub(super) struct Shared {
    pub(super) hello: Hello,
    pub(super) times: Times,
    pub(super) pace: Pace,
    pub(super) roster: Arc<Roster>,
    pub(super) doors: Doors,
    pub(super) metrics: SwarmMetrics,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) quiet: Quiet,
    links: Mutex<BTreeMap<NodeId, Arc<Link>>>,
}

impl Shared {
    pub(super) fn new(
        hello: Hello,
        times: Times,
        pace: Pace,
        roster: Arc<Roster>,
        doors: Doors,
        metrics: SwarmMetrics,
        commands: mpsc::Sender<Command>,
    ) -> Shared {
        Shared {
            hello,
            times,
            pace,
            roster,
            doors,
            metrics,
            commands,
            quiet: Quiet::default(),
            links: Mutex::default(),
        }
    }

    pub(super) fn cluster(&self) -> ClusterId {
        self.hello.cluster
    }

    fn links(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link to a node, if it is one of our peers.
    pub(super) fn link(&self, node: NodeId) -> Option<Arc<Link>> {
        self.links().get(&node).map(Arc::clone)
    }

    /// All links.
    pub(super) fn all_links(&self) -> Vec<Arc<Link>> {
        self.links().values().map(Arc::clone).collect()
    }

    /// The link to a peer; a new one if there was none.
    pub(super) fn link_to(&self, peer: PeerId) -> Arc<Link> {
        Arc::clone(self.links().entry(node_of(&peer)).or_insert_with(|| Arc::new(Link::new(peer))))
    }

    /// Forgets the link to a peer.
    pub(super) fn unlink(&self, peer: &PeerId) {
        self.links().remove(&node_of(peer));
    }

    /// Opens a stream to a peer that is connected.
    pub(super) async fn open(&self, peer: PeerId, purpose: Purpose) -> Result<Stream, OpenError> {
        let (reply, answer) = oneshot::channel();
        let opening = async {
            self.commands.send(Command::Open { peer, purpose, reply }).await.map_err(|_| OpenError::Unconnected)?;
            answer.await.unwrap_or(Err(OpenError::Unconnected))
        };
        // The event loop has to find the time for it, and the peer has to answer.
        tokio::time::timeout(self.times.hello * 2, opening).await.unwrap_or(Err(OpenError::Timeout))
    }

    /// Has a peer cut off.
    pub(super) async fn cut(&self, peer: PeerId, why: Refusal, detail: &(dyn std::fmt::Display + Sync)) {
        let detail = detail.to_string();
        let _ = self.commands.send(Command::Cut { peer, why, detail }).await; // the loop may have ended
    }

    /// Counts a refusal, and logs it if that was not done a moment ago.
    pub(super) fn complain(&self, subject: &dyn std::fmt::Display, why: Refusal, detail: &dyn std::fmt::Display) {
        self.metrics.refused(why);
        if let Some(untold) = self.quiet.speak(&subject.to_string(), why, Instant::now()) {
            self.metrics.complaints.inc();
            let (reason, remedy) = (why.name(), why.remedy());
            tracing::warn!(%subject, reason, %detail, untold, remedy, "refused by the swarm");
        }
    }

    /// The role of a peer, for what it asks.
    pub(super) fn role(&self, peer: &PeerId) -> Option<Role> {
        self.roster.role(peer)
    }
}
