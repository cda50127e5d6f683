//! The swarm: letters, control requests and content between the nodes of a cluster, over libp2p.
//!
//! ```text
//!  Network::send ─▶ outbox ─▶ letters ─▶┐                          ┌─▶ letters ─▶ deliver
//!                 (three lanes of a peer) ├─▶ stream ═ connection ═ ─┼─▶ control ─▶ the node's handler
//!  ask, follow ───────────────▶ control ┘   (hello first)          └─▶ bulk
//! ```
//!
//! A connection is TCP inside the swarm key (pnet), then noise, which proves who it is, then yamux ([`transport`]). The gate lets in who is on
//! the roster, with a role: a node may everything, operators and viewers only ask. On every stream cluster and versions are agreed first
//! ([`hello`]). Frames are bounded ([`frame`]), letters are checked before anybody sees them ([`codec`]). Whoever breaks a rule is cut off for a
//! while, counted, and logged once ([`refusal`]); the others do not notice.
//!
//! **Bounds.** Connections, those that have not proved who they are, streams of a peer, letters and bytes that wait for a peer, bytes of
//! a frame, letters a second. At a bound letters are dropped and counted: the protocol above repeats what it needs. Nothing here
//! waits for a mailbox.

mod behaviour;
pub mod codec;
pub mod control;
mod dial;
pub mod frame;
mod gate;
pub mod hello;
pub mod identity;
pub mod key;
mod letters;
pub mod metrics;
mod outbox;
pub mod refusal;
pub mod roster;
mod run;
pub mod secret_file;
pub mod settings;
mod shared;
mod streams;
#[cfg(test)]
mod tests;
pub mod transport;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use libp2p::{Multiaddr, PeerId};
use proto::cluster::message::Letter;
use proto::id::NodeId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::behaviour::Behaviour;
use self::codec::Sealed;
use self::control::{ControlError, Following};
use self::hello::{Hello, HelloError};
use self::metrics::{Drop, SwarmMetrics};
use self::outbox::Lane;
use self::roster::{Role, Roster, RosterError};
use self::run::Runner;
use self::settings::{BulkStream, Doors, Peer, Settings};
use self::shared::{Command, Shared};
pub use self::streams::OpenError;
use self::streams::Purpose;
use self::transport::Secured;
use super::network::Network;

/// Commands that wait for the event loop.
const COMMANDS_MAX: usize = 256;

/// Streams of one connection that have not said their protocol.
const NEGOTIATING_MAX: usize = 16;

/// Connections stay, used or not: ten years.
const IDLE_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Why the swarm cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SwarmError {
    /// An address cannot be listened at.
    #[error("cannot listen at {address}: {reason}")]
    Listen {
        /// Which.
        address: Multiaddr,
        /// Why.
        reason: String,
    },
    /// The list of peers contradicts itself.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// The machine lacks something.
    #[error("cannot start the swarm: {0}")]
    Io(#[from] io::Error),
}

/// How things stand with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerState {
    /// Who.
    pub peer: PeerId,
    /// Its name in the cluster.
    pub node: NodeId,
    /// Whether there is a connection.
    pub connected: bool,
    /// The version that was agreed, if one was.
    pub version: Option<u16>,
}

/// A running swarm. Dropping it ends it.
pub struct Swarm {
    shared: Arc<Shared>,
    addresses: Vec<Multiaddr>,
    task: JoinHandle<()>,
}

impl Swarm {
    /// Starts over TCP, on the current tokio runtime; returns when it listens.
    pub async fn start(settings: Settings, doors: Doors, metrics: SwarmMetrics) -> Result<Swarm, SwarmError> {
        for address in &settings.listen {
            transport::probe(address)
                .map_err(|reason| SwarmError::Listen { address: address.clone(), reason: reason.to_string() })?;
        }
        let transport = transport::over_tcp(&settings)?;
        Swarm::start_on(transport, settings, doors, metrics).await
    }

    /// Starts over any transport.
    pub async fn start_on(
        transport: Secured,
        settings: Settings,
        doors: Doors,
        metrics: SwarmMetrics,
    ) -> Result<Swarm, SwarmError> {
        let me = settings.identity.peer();
        let roster = Arc::new(Roster::new(me, settings.stranger));
        for Peer { peer, role, .. } in settings.peers.iter().filter(|peer| peer.peer != me) {
            roster.admit(*peer, *role)?;
        }
        let behaviour = Behaviour::new(&settings, Arc::clone(&roster))?;
        let config = libp2p::swarm::Config::with_tokio_executor()
            .with_idle_connection_timeout(IDLE_MAX)
            .with_max_negotiating_inbound_streams(NEGOTIATING_MAX);
        let swarm = libp2p::Swarm::new(transport, behaviour, me, config);
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let hello = Hello { cluster: settings.cluster, versions: settings.versions };
        let shared = Arc::new(Shared::new(hello, settings.times, settings.pace, roster, doors, metrics, sender));
        let mut runner = Runner::new(swarm, Arc::clone(&shared), commands, &settings);
        let addresses = runner.listen(&settings.listen).await?;
        Ok(Swarm { shared, addresses, task: tokio::spawn(runner.run()) })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[Multiaddr] {
        &self.addresses
    }

    /// The other nodes.
    pub fn nodes(&self) -> Vec<PeerState> {
        let state = |link: Arc<shared::Link>| PeerState {
            peer: link.peer,
            node: identity::node_of(&link.peer),
            connected: link.is_connected(),
            version: link.version(),
        };
        self.shared.all_links().into_iter().map(state).collect()
    }

    /// Lets a peer in from now on.
    pub async fn admit(&self, peer: Peer) -> Result<(), RosterError> {
        self.shared.roster.admit(peer.peer, peer.role)?;
        if peer.role == Role::Node {
            self.command(Command::Seek { peer: peer.peer, addresses: peer.addresses }).await;
        }
        Ok(())
    }

    /// Lets a peer in no longer, and parts from it.
    pub async fn expel(&self, peer: PeerId) {
        self.shared.roster.expel(&peer);
        self.command(Command::Part { peer }).await;
    }

    /// Connects to whoever is at an address; whoever that is must be on the roster.
    pub async fn reach(&self, address: Multiaddr) -> Result<PeerId, String> {
        let (reply, answer) = oneshot::channel();
        self.command(Command::Dial { address, reply }).await;
        answer.await.unwrap_or_else(|_| Err("the swarm has ended".to_owned()))
    }

    /// Asks a connected peer, and waits for its answer.
    pub async fn ask(&self, peer: PeerId, request: &[u8]) -> Result<Vec<u8>, ControlError> {
        control::ask(&self.shared, peer, request).await
    }

    /// Asks a connected peer to tell whatever happens.
    pub async fn follow(&self, peer: PeerId, request: &[u8]) -> Result<Following, ControlError> {
        control::follow(&self.shared, peer, request).await
    }

    /// Opens a stream of content to a connected node.
    pub async fn open_bulk(&self, peer: PeerId) -> Result<BulkStream, BulkError> {
        let mut stream = self.shared.open(peer, Purpose::Bulk).await?;
        self.shared.hello.ask(&mut stream, self.shared.times.hello).await?;
        Ok(stream)
    }

    /// What it counts.
    pub fn metrics(&self) -> &SwarmMetrics {
        &self.shared.metrics
    }

    /// Tells it to end: connections are closed soon.
    pub async fn close(&self) {
        self.command(Command::Stop).await;
    }

    /// Ends it, and waits for that.
    pub async fn stop(mut self) {
        self.command(Command::Stop).await;
        let _ = (&mut self.task).await;
    }

    async fn command(&self, command: Command) {
        let _ = self.shared.commands.send(command).await; // an ended loop obeys nothing
    }
}

impl std::ops::Drop for Swarm {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why there is no stream of content.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    /// It was not opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Nothing was agreed on it.
    #[error(transparent)]
    Hello(#[from] HelloError),
}

impl Network for Swarm {
    fn oldest_spoken(&self) -> u16 {
        self.nodes().iter().filter_map(|peer| peer.version).min().unwrap_or(self.shared.hello.versions.newest)
    }

    fn send(&self, to: NodeId, letter: Letter) {
        let kind = letter.message.name();
        let dropped = |why| self.shared.metrics.dropped(kind, why);
        let Some(link) = self.shared.link(to) else { return dropped(Drop::Unknown) };
        let lane = Lane::of(&letter.message);
        match Sealed::new(&letter) {
            Ok(sealed) => {
                if link.outbox.put(lane, sealed, Instant::now()).is_err() {
                    dropped(Drop::Full);
                }
            }
            Err(error) => {
                tracing::error!(%error, kind, "a letter cannot be sent");
                dropped(Drop::TooLong);
            }
        }
    }
}
