//! The libp2p behaviour of a node, put together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use libp2p::connection_limits::{self, ConnectionLimits};
use libp2p::swarm::NetworkBehaviour;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{identify, mdns, memory_connection_limits, ping};

use super::gate::Gate;
use super::roster::Roster;
use super::settings::Settings;
use super::streams::Streams;

/// How often peers tell each other where they listen, if nothing changes.
const IDENTIFY_EVERY: Duration = Duration::from_secs(300);

/// The parts. The gate comes first: whoever it refuses costs nothing further.
#[derive(NetworkBehaviour)]
#[behaviour(prelude = "libp2p::swarm::derive_prelude")]
pub(super) struct Behaviour {
    gate: Gate,
    limits: connection_limits::Behaviour,
    memory: memory_connection_limits::Behaviour,
    ping: ping::Behaviour,
    identify: identify::Behaviour,
    mdns: Toggle<mdns::tokio::Behaviour>,
    pub(super) streams: Streams,
}

/// What identify says of the cluster: who is of another one is parted from.
pub(super) fn identify_version(settings: &Settings) -> String {
    format!("/orbweaver/{}", settings.cluster)
}

impl Behaviour {
    pub(super) fn new(settings: &Settings, roster: Arc<Roster>) -> io::Result<Behaviour> {
        let limits = ConnectionLimits::default()
            .with_max_pending_incoming(Some(settings.limits.pending_max))
            .with_max_pending_outgoing(Some(settings.limits.pending_max))
            .with_max_established(Some(settings.limits.connections_max))
            .with_max_established_per_peer(Some(settings.limits.per_peer_max));
        let share = f64::from(settings.limits.memory_percent_max) / 100.0;
        let ping = ping::Config::new().with_interval(settings.times.ping).with_timeout(settings.times.pong);
        let identify = identify::Config::new(identify_version(settings), settings.identity.key().public())
            .with_agent_version(format!("orbweaver/{}", env!("CARGO_PKG_VERSION")))
            .with_interval(IDENTIFY_EVERY)
            .with_push_listen_addr_updates(true)
            .with_cache_size(0);
        let mdns = match settings.mdns {
            true => Some(mdns::tokio::Behaviour::new(mdns::Config::default(), settings.identity.peer())?),
            false => None,
        };
        Ok(Behaviour {
            gate: Gate::new(roster),
            limits: connection_limits::Behaviour::new(limits),
            memory: memory_connection_limits::Behaviour::with_max_percentage(share),
            ping: ping::Behaviour::new(ping),
            identify: identify::Behaviour::new(identify),
            mdns: Toggle::from(mdns),
            streams: Streams::new(settings.cluster, settings.times.hello),
        })
    }
}
