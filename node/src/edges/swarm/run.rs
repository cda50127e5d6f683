//! The event loop: the only code that touches the libp2p swarm. It never waits for anybody: letters, answers and content are carried by
//! tasks of their own, one for each stream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use libp2p::core::ConnectedPoint;
use libp2p::core::transport::TransportError;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionDenied, ConnectionId, DialError, ListenError, SwarmEvent};
use libp2p::{Multiaddr, PeerId, connection_limits, identify, mdns, memory_connection_limits, ping};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::SwarmError;
use super::behaviour::{Behaviour, BehaviourEvent, identify_version};
use super::control::{self, Caller};
use super::dial::Dialler;
use super::gate::{Denied, ip_of};
use super::letters;
use super::outbox::Lane;
use super::refusal::Refusal;
use super::roster::Role;
use super::settings::Settings;
use super::shared::{Command, Shared};
use super::streams::{Opened, Purpose};

/// Streams that a peer may have opened at once, by purpose. A node that lost its connection opens new ones before the old ones are seen to be dead.
fn streams_max(purpose: Purpose) -> usize {
    match purpose {
        Purpose::Bulk => 4,
        Purpose::Letters => 6,
        Purpose::Control => 8,
    }
}

/// A peer that has so many streams refused in [`STRIKES_FOR`] is cut off.
const STRIKES_MAX: u32 = 32;
const STRIKES_FOR: Duration = Duration::from_secs(10);

/// A listener must have its address after so long.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Addresses of one message of identify that are looked at.
const ADDRESSES_MAX: usize = 16;

/// A peer that is connected.
struct Visitor {
    role: Role,
    connections: BTreeMap<ConnectionId, Multiaddr>,
    places: BTreeMap<Purpose, Arc<Semaphore>>,
    strikes: (Instant, u32),
}

/// The loop's state.
pub(super) struct Runner {
    swarm: libp2p::Swarm<Behaviour>,
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    identify_version: String,
    dialler: Dialler,
    visitors: BTreeMap<PeerId, Visitor>,
    /// The tasks that send letters, by peer. They end when they are dropped.
    senders: BTreeMap<PeerId, JoinSet<()>>,
    /// The tasks of streams that peers opened.
    streams: JoinSet<()>,
    /// Who waits for a dialled address.
    dialled: BTreeMap<ConnectionId, oneshot::Sender<Result<PeerId, String>>>,
}

impl Runner {
    pub(super) fn new(
        swarm: libp2p::Swarm<Behaviour>,
        shared: Arc<Shared>,
        commands: mpsc::Receiver<Command>,
        settings: &Settings,
    ) -> Runner {
        let me = settings.identity.peer();
        let mut dialler = Dialler::new(me, ChaCha8Rng::seed_from_u64(settings.seed));
        let now = Instant::now();
        for peer in settings.peers.iter().filter(|peer| peer.role == Role::Node && peer.peer != me) {
            shared.link_to(peer.peer);
            dialler.add(peer.peer, peer.addresses.clone(), now);
        }
        Runner {
            swarm,
            shared,
            commands,
            identify_version: identify_version(settings),
            dialler,
            visitors: BTreeMap::new(),
            senders: BTreeMap::new(),
            streams: JoinSet::new(),
            dialled: BTreeMap::new(),
        }
    }

    /// Listens at all addresses; returns which those became (a port 0 is replaced by a real one).
    pub(super) async fn listen(&mut self, wanted: &[Multiaddr]) -> Result<Vec<Multiaddr>, SwarmError> {
        let mut addresses = Vec::new();
        for address in wanted {
            let failed = |reason: String| SwarmError::Listen { address: address.clone(), reason };
            let listener = self.swarm.listen_on(address.clone()).map_err(|error| failed(error.to_string()))?;
            let deadline = Instant::now() + LISTEN_TIMEOUT;
            loop {
                let event = tokio::time::timeout_at(deadline, self.swarm.select_next_some())
                    .await
                    .map_err(|_| failed("nothing happened".to_owned()))?;
                match &event {
                    SwarmEvent::NewListenAddr { listener_id, address } if *listener_id == listener => {
                        addresses.push(address.clone());
                    }
                    SwarmEvent::ListenerClosed { listener_id, reason, .. } if *listener_id == listener => {
                        return Err(failed(format!("{reason:?}")));
                    }
                    _ => {
                        self.hear(event); // somebody is early
                        continue;
                    }
                }
                self.hear(event);
                break;
            }
        }
        Ok(addresses)
    }

    /// Runs until it is told to stop.
    pub(super) async fn run(mut self) {
        loop {
            let next_dial = self.dialler.next();
            let dial_at = next_dial.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(Command::Stop) | None => break,
                    Some(command) => self.obey(command),
                },
                _ = tokio::time::sleep_until(dial_at), if next_dial.is_some() => self.dial_due(),
                Some(_) = self.streams.join_next() => {}
                event = self.swarm.select_next_some() => self.hear(event),
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Open { peer, purpose, reply } => self.swarm.behaviour_mut().streams.open(peer, purpose, reply),
            Command::Cut { peer, why, detail } => self.cut(peer, why, &detail),
            Command::Seek { peer, addresses } => {
                self.shared.link_to(peer);
                self.dialler.add(peer, addresses, Instant::now());
            }
            Command::Part { peer } => {
                self.dialler.remove(&peer);
                self.senders.remove(&peer);
                self.shared.unlink(&peer);
                let _ = self.swarm.disconnect_peer_id(peer);
            }
            Command::Dial { address, reply } => {
                let options = DialOpts::from(address);
                let connection = options.connection_id();
                match self.swarm.dial(options) {
                    Ok(()) => drop(self.dialled.insert(connection, reply)),
                    Err(error) => drop(reply.send(Err(error.to_string()))),
                }
            }
            Command::Stop => {}
        }
    }

    fn dial_due(&mut self) {
        let now = Instant::now();
        for (peer, addresses) in self.dialler.due(now) {
            if self.swarm.is_connected(&peer) {
                self.dialler.connected(&peer);
                continue;
            }
            let options = DialOpts::peer_id(peer)
                .condition(PeerCondition::DisconnectedAndNotDialing)
                .addresses(addresses)
                // From the port we listen at, a second connection to the same place could not be made while a first is dying.
                .allocate_new_port()
                .build();
            if let Err(error) = self.swarm.dial(options) {
                tracing::debug!(%peer, %error, "not dialled");
                self.dialler.failed(&peer, now);
            }
        }
    }

    fn hear(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::Behaviour(event) => self.hear_behaviour(event),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.arrived(peer_id, connection_id, &endpoint);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                tracing::debug!(peer = %peer_id, cause = cause.map(|cause| cause.to_string()), "connection closed");
                self.parted(peer_id, connection_id);
            }
            SwarmEvent::IncomingConnectionError { send_back_addr, error, peer_id, .. } => {
                let subject = match (peer_id, ip_of(&send_back_addr)) {
                    (Some(peer), _) => peer.to_string(),
                    (None, Some(address)) => address.to_string(),
                    (None, None) => send_back_addr.to_string(),
                };
                let why = why_not_taken(&error);
                self.shared.complain(&subject, why, &format_args!("from {send_back_addr}: {}", told(&error)));
            }
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error } => {
                self.not_reached(connection_id, peer_id, &error);
            }
            SwarmEvent::NewListenAddr { address, .. } => tracing::info!(%address, "the swarm listens"),
            SwarmEvent::ListenerError { error, .. } => tracing::warn!(%error, "a listener failed"),
            SwarmEvent::ListenerClosed { addresses, reason, .. } => {
                tracing::error!(?addresses, ?reason, "a listener closed: peers cannot reach this node there");
            }
            _ => {}
        }
    }

    fn hear_behaviour(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Streams(opened) => self.opened(opened),
            BehaviourEvent::Ping(ping::Event { peer, connection, result: Err(failure) }) => {
                tracing::debug!(%peer, %failure, "no sign of life, the connection is closed");
                self.swarm.close_connection(connection);
            }
            BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
                self.introduced(peer_id, info);
            }
            BehaviourEvent::Mdns(mdns::Event::Discovered(found)) => {
                for (peer, address) in found {
                    if self.shared.role(&peer) == Some(Role::Node) {
                        self.dialler.learn(&peer, address);
                    }
                }
            }
            _ => {}
        }
    }

    fn arrived(&mut self, peer: PeerId, connection: ConnectionId, endpoint: &ConnectedPoint) {
        let Some(role) = self.shared.roster.welcome(peer) else {
            // Struck off between the gate and here, or one stranger too many.
            self.swarm.close_connection(connection);
            return;
        };
        if let Some(reply) = self.dialled.remove(&connection) {
            let _ = reply.send(Ok(peer));
        }
        let first = !self.visitors.contains_key(&peer);
        let visitor = self.visitors.entry(peer).or_insert_with(|| Visitor {
            role,
            connections: BTreeMap::new(),
            places: BTreeMap::new(),
            strikes: (Instant::now(), 0),
        });
        visitor.connections.insert(connection, endpoint.get_remote_address().clone());
        if !first {
            return;
        }
        tracing::info!(%peer, %role, address = %endpoint.get_remote_address(), "connected");
        self.shared.metrics.connected.inc();
        if role == Role::Node {
            let link = self.shared.link_to(peer);
            self.dialler.add(peer, Vec::new(), Instant::now());
            self.dialler.connected(&peer);
            let shared = &self.shared;
            self.senders.entry(peer).or_insert_with(|| {
                let send = |lane| letters::send(Arc::clone(shared), Arc::clone(&link), lane);
                Lane::ALL.into_iter().map(send).collect()
            });
            link.set_connected(true);
        }
    }

    fn parted(&mut self, peer: PeerId, connection: ConnectionId) {
        let Some(visitor) = self.visitors.get_mut(&peer) else { return };
        visitor.connections.remove(&connection);
        if !visitor.connections.is_empty() {
            return;
        }
        let role = visitor.role;
        self.visitors.remove(&peer);
        tracing::info!(%peer, %role, "disconnected");
        self.shared.metrics.connected.dec();
        self.shared.metrics.disconnected.inc();
        if role == Role::Node && self.shared.role(&peer) == Some(Role::Node) {
            self.shared.link_to(peer).set_connected(false);
            self.dialler.disconnected(&peer, Instant::now());
        }
    }

    fn not_reached(&mut self, connection: ConnectionId, peer: Option<PeerId>, error: &DialError) {
        if let Some(reply) = self.dialled.remove(&connection) {
            let _ = reply.send(Err(told(error)));
        }
        let Some(peer) = peer else { return };
        match error {
            // It is being dialled or connected by other means.
            DialError::DialPeerConditionFalse(_) if self.swarm.is_connected(&peer) => self.dialler.connected(&peer),
            DialError::WrongPeerId { obtained, address } => {
                let detail = format_args!("{obtained} answers at {address}");
                self.shared.complain(&peer, Refusal::Impostor, &detail);
                self.dialler.failed(&peer, Instant::now());
            }
            _ => {
                tracing::debug!(%peer, error = told(error), "cannot be reached");
                self.dialler.failed(&peer, Instant::now());
            }
        }
    }

    fn introduced(&mut self, peer: PeerId, info: identify::Info) {
        if info.protocol_version != self.identify_version {
            // What a peer says of itself goes into the log no longer than needed.
            let said: String = info.protocol_version.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
            return self.cut(peer, Refusal::Cluster, &format_args!("it says {said}"));
        }
        let Some(visitor) = self.visitors.get(&peer).filter(|visitor| visitor.role == Role::Node) else { return };
        let is_local = |address: &Multiaddr| ip_of(address).is_some_and(|address| address.is_loopback());
        // A peer's loopback address is ours, unless it is on this machine.
        let same_machine = visitor.connections.values().any(is_local);
        for address in info.listen_addrs.into_iter().take(ADDRESSES_MAX) {
            if same_machine || !is_local(&address) {
                self.dialler.learn(&peer, address);
            }
        }
    }

    fn opened(&mut self, opened: Opened) {
        let Opened { peer, purpose, stream } = opened;
        let Some(visitor) = self.visitors.get_mut(&peer) else { return };
        let role = visitor.role;
        let bulk = self.shared.doors.bulk.clone();
        if purpose != Purpose::Control && (role != Role::Node || (purpose == Purpose::Bulk && bulk.is_none())) {
            return self.cut(peer, Refusal::Role, &format_args!("a {role} opened a stream for {purpose:?}"));
        }
        let places = visitor.places.entry(purpose).or_insert_with(|| Arc::new(Semaphore::new(streams_max(purpose))));
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            let now = Instant::now();
            if now > visitor.strikes.0 + STRIKES_FOR {
                visitor.strikes = (now, 0);
            }
            visitor.strikes.1 += 1;
            return match visitor.strikes.1 > STRIKES_MAX {
                true => self.cut(peer, Refusal::Streams, &"opens one stream after the other"),
                false => self.shared.complain(&peer, Refusal::Streams, &format_args!("too many for {purpose:?}")),
            };
        };
        let shared = Arc::clone(&self.shared);
        self.streams.spawn(async move {
            let _place = place;
            match (purpose, bulk) {
                (Purpose::Letters, _) => letters::receive(shared, peer, stream).await,
                (Purpose::Control, _) => control::serve(shared, Caller { peer, role }, stream).await,
                (Purpose::Bulk, Some(bulk)) => {
                    let mut stream = stream;
                    match shared.hello.answer(&mut stream, shared.times.hello).await {
                        Ok(_) => bulk(peer, stream).await,
                        Err(error) => {
                            if let Some(why) = Refusal::of_hello(&error) {
                                shared.cut(peer, why, &error).await;
                            }
                        }
                    }
                }
                (Purpose::Bulk, None) => {}
            }
        });
    }

    /// Ends all connections of a peer and keeps it out for a while.
    fn cut(&mut self, peer: PeerId, why: Refusal, detail: &dyn std::fmt::Display) {
        self.shared.complain(&peer, why, detail);
        if !self.visitors.contains_key(&peer) {
            return; // it is gone, by itself or by an earlier cut
        }
        let until = self.shared.roster.penalise(peer, Instant::now());
        self.dialler.postpone(&peer, until);
        let _ = self.swarm.disconnect_peer_id(peer);
    }
}

/// An error with everything behind it; some of libp2p's say nothing themselves.
fn told(error: &dyn std::error::Error) -> String {
    let mut words = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !text.is_empty() && !words.contains(&text) {
            words.push(text);
        }
        next = error.source();
    }
    words.join(": ")
}

/// Why a connection that came in was not taken.
fn why_not_taken(error: &ListenError) -> Refusal {
    match error {
        ListenError::Denied { cause } => why_denied(cause),
        // The type of this error has no name that could be written down.
        ListenError::Transport(TransportError::Other(error)) if error.to_string().contains("Timeout") => {
            Refusal::HalfOpen
        }
        _ => Refusal::Handshake,
    }
}

fn why_denied(cause: &ConnectionDenied) -> Refusal {
    if let Some(Denied(refusal)) = cause.downcast_ref() {
        return *refusal;
    }
    match cause.downcast_ref::<memory_connection_limits::MemoryUsageLimitExceeded>() {
        Some(_) => Refusal::Memory,
        None => {
            debug_assert!(cause.downcast_ref::<connection_limits::Exceeded>().is_some());
            Refusal::Connections
        }
    }
}
