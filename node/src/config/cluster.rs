//! The section `[cluster]`: who the nodes are and what they go by. Left out, a node is alone.

mod load;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId};
use proto::cluster::coordinator::ClusterRules;
use proto::cluster::lease::LeaseRules;
use proto::cluster::membership::MembershipRules;
use proto::cluster::replicate::WriteRules;
use proto::cluster::route::LoadRules;
use proto::crawl::politeness::{Micros, SECOND};
use proto::id::{ClusterId, NodeId};
use proto::wire::{WIRE_VERSION, WIRE_VERSION_MIN};
use serde::{Deserialize, Serialize};

pub use self::load::LoadConfig;
use super::ConfigError;
use crate::edges::swarm::identity::{Identity, node_of};
use crate::edges::swarm::key::SwarmKey;
use crate::edges::swarm::roster::Role;
use crate::edges::swarm::settings::{Limits, Peer, Settings};

/// Nodes that one cluster may list.
const PEERS_MAX: usize = 256;
/// Copies of a record that anybody could want.
const REPLICAS_MAX: usize = 7;
const WEIGHT_MAX: u16 = 1_000;
const MILLISECOND: Micros = SECOND / 1_000;

/// Who the nodes are and what they go by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// Name of the cluster, the same on every node.
    pub id: String,
    /// File with this node's identity; relative to the configuration's folder.
    pub identity: PathBuf,
    /// File with the cluster's swarm key; likewise.
    pub swarm_key: PathBuf,
    /// Where this node listens.
    pub listen: Vec<String>,
    /// All nodes, this one included: the list may be the same in every node's file.
    pub peers: Vec<PeerConfig>,
    /// The nodes that grant leases, by peer id; the same on every node. Empty: all peers.
    pub voters: Vec<String>,
    /// Peer ids of people who may change things.
    pub operators: Vec<String>,
    /// Peer ids of people who may look.
    pub viewers: Vec<String>,
    /// Who else is let in.
    pub admission: Admission,
    /// This node is none of `peers`: an operator admits it while the others run.
    pub newcomer: bool,
    /// Whether nodes are also looked for on the local network.
    pub mdns: bool,
    /// The newest version of what nodes say to each other that this one speaks; absent for the newest that it knows.
    pub wire_version_max: Option<u16>,
    /// Copies of every record.
    pub replicas: usize,
    /// Copies that are fsynced before a write counts.
    pub write_quorum: usize,
    /// Nodes that keep each page: 2, or 1 for the one alone that fetched it.
    pub content_copies: usize,
    /// How often URLs of sites age and are purged.
    pub upkeep_every_s: u64,
    /// Times of leases.
    pub lease: LeaseConfig,
    /// Times of membership.
    pub membership: MembershipConfig,
    /// What makes a node busy, and what it does then.
    pub load: LoadConfig,
    /// Bounds on connections.
    pub connections: ConnectionsConfig,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        let writes = WriteRules::default();
        ClusterConfig {
            id: String::new(),
            identity: PathBuf::from("node.key"),
            swarm_key: PathBuf::from("swarm.key"),
            listen: vec!["/ip4/0.0.0.0/tcp/7070".to_owned()],
            peers: Vec::new(),
            voters: Vec::new(),
            operators: Vec::new(),
            viewers: Vec::new(),
            admission: Admission::List,
            newcomer: false,
            mdns: false,
            wire_version_max: None,
            replicas: writes.replicas,
            write_quorum: writes.quorum,
            content_copies: 2,
            upkeep_every_s: 120,
            lease: LeaseConfig::default(),
            membership: MembershipConfig::default(),
            load: LoadConfig::default(),
            connections: ConnectionsConfig::default(),
        }
    }
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Its peer id.
    pub id: String,
    /// Where it is dialled. May be empty for a node that dials the others.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Its share of the ring, compared with the others'.
    #[serde(default = "one")]
    pub weight: u16,
}

fn one() -> u16 {
    1
}

/// Who is let in besides those that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// Nobody.
    List,
    /// Every holder of the swarm key, as a node.
    SwarmKey,
}

/// Times of leases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LeaseConfig {
    /// How long a promise lasts.
    pub duration_s: u64,
    /// Taken off the holder's trust.
    pub guard_ms: u64,
    /// How far a clock's rate may be off, in millionths.
    pub drift_ppm: u64,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        let rules = LeaseRules::default();
        LeaseConfig {
            duration_s: rules.duration / SECOND,
            guard_ms: rules.guard / MILLISECOND,
            drift_ppm: rules.drift_ppm,
        }
    }
}

/// Times of membership.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MembershipConfig {
    /// How often a random node is probed.
    pub probe_every_ms: u64,
    /// A suspect that does not object for so long is down.
    pub suspect_for_ms: u64,
    /// A node that is down keeps its place for so long.
    pub forget_after_s: u64,
    /// A changed view must be stable for so long before data moves.
    pub stable_for_ms: u64,
}

impl Default for MembershipConfig {
    fn default() -> Self {
        let rules = MembershipRules::default();
        MembershipConfig {
            probe_every_ms: rules.probe_every / MILLISECOND,
            suspect_for_ms: rules.suspect_for / MILLISECOND,
            forget_after_s: rules.forget_after / SECOND,
            stable_for_ms: rules.stable_for / MILLISECOND,
        }
    }
}

/// Bounds on connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectionsConfig {
    /// Connections at once.
    pub connections_max: u32,
    /// Connections at once that have not proved who they are.
    pub pending_max: u32,
    /// No connection is taken while the process has more than this share of the machine's memory, in hundredths.
    pub memory_percent_max: u8,
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        let limits = Limits::default();
        ConnectionsConfig {
            connections_max: limits.connections_max,
            pending_max: limits.pending_max,
            memory_percent_max: limits.memory_percent_max,
        }
    }
}

/// A section that was found to be in order, understood.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The cluster.
    pub id: ClusterId,
    /// All nodes.
    pub nodes: Vec<(Peer, u16)>,
    /// Operators and viewers.
    pub people: Vec<Peer>,
    /// Where this node listens.
    pub listen: Vec<Multiaddr>,
    /// Who grants leases.
    pub voters: Vec<NodeId>,
    /// What is allowed and unwise.
    pub warnings: Vec<String>,
    config: ClusterConfig,
    fetch_timeout: Micros,
}

fn wrong(setting: impl Into<String>, reason: impl Into<String>) -> ConfigError {
    ConfigError::Value { setting: setting.into(), reason: reason.into() }
}

impl ClusterConfig {
    /// Checks everything that types cannot say.
    pub fn understand(&self, fetch_timeout_ms: u64) -> Result<Cluster, ConfigError> {
        if !(1..=64).contains(&self.id.len()) || !self.id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong(
                "cluster.id",
                "must be a name of 1 to 64 letters, digits and signs, the same on every node",
            ));
        }
        if self.peers.len() > PEERS_MAX {
            return Err(wrong("cluster.peers", format!("there are {}, {PEERS_MAX} are possible", self.peers.len())));
        }
        let mut known = Known::default();
        let nodes = self.nodes(&mut known)?;
        let mut people = known.people(&self.operators, "operators", Role::Operator)?;
        people.extend(known.people(&self.viewers, "viewers", Role::Viewer)?);
        let listen = self.listen.iter().enumerate();
        let listen: Result<Vec<Multiaddr>, ConfigError> =
            listen.map(|(n, address)| parse_address(address, &format!("cluster.listen[{n}]"))).collect();
        let mut warnings = Vec::new();
        let voters = self.understand_voters(&nodes, &mut warnings)?;
        self.check_numbers()?;
        let fetch_timeout = fetch_timeout_ms.saturating_mul(MILLISECOND);
        self.check_lease(fetch_timeout, &mut warnings)?;
        if !nodes.is_empty() && nodes.len() < self.replicas {
            warnings.push(format!(
                "cluster.replicas: {} copies were asked for, {} nodes can keep no more than {}",
                self.replicas,
                nodes.len(),
                nodes.len()
            ));
        }
        Ok(Cluster {
            id: ClusterId::of_name(&self.id),
            nodes,
            people,
            listen: listen?,
            voters,
            warnings,
            config: self.clone(),
            fetch_timeout,
        })
    }

    fn nodes(&self, known: &mut Known) -> Result<Vec<(Peer, u16)>, ConfigError> {
        let mut nodes = Vec::new();
        let mut ids: BTreeMap<NodeId, String> = BTreeMap::new();
        for (n, config) in self.peers.iter().enumerate() {
            let setting = format!("cluster.peers[{n}]");
            let peer = known.add(&config.id, format!("{setting}.id"))?;
            if let Some(other) = ids.insert(node_of(&peer), format!("{setting}.id")) {
                let reason = format!("has the same node id as {other}; make a new identity for one of them");
                return Err(wrong(format!("{setting}.id"), reason));
            }
            if !(1..=WEIGHT_MAX).contains(&config.weight) {
                return Err(wrong(format!("{setting}.weight"), format!("must be between 1 and {WEIGHT_MAX}")));
            }
            let mut addresses = Vec::new();
            for (a, address) in config.addresses.iter().enumerate() {
                let setting = format!("{setting}.addresses[{a}]");
                let mut parsed = parse_address(address, &setting)?;
                if let Some(Protocol::P2p(named)) = parsed.iter().last() {
                    if named != peer {
                        return Err(wrong(setting, format!("names {named}, but the peer is {peer}; leave /p2p/… out")));
                    }
                    parsed.pop();
                }
                addresses.push(parsed);
            }
            nodes.push((Peer { peer, role: Role::Node, addresses }, config.weight));
        }
        Ok(nodes)
    }

    fn understand_voters(&self, nodes: &[(Peer, u16)], warnings: &mut Vec<String>) -> Result<Vec<NodeId>, ConfigError> {
        if self.voters.is_empty() && self.admission == Admission::SwarmKey && nodes.is_empty() {
            return Err(wrong(
                "cluster.voters",
                "with admission = \"swarm-key\" and no peers, nobody could grant leases; \
                 list the peers that do",
            ));
        }
        let mut voters = Vec::new();
        for (n, id) in self.voters.iter().enumerate() {
            let setting = format!("cluster.voters[{n}]");
            let voter = parse_peer(id, &setting)?;
            if !nodes.iter().any(|(node, _)| node.peer == voter) {
                return Err(wrong(
                    setting,
                    format!("{voter} is none of cluster.peers; add it there, or take it out here"),
                ));
            }
            if voters.contains(&node_of(&voter)) {
                return Err(wrong(
                    setting,
                    format!("{voter} stands here twice; one of them is meant for another peer, or too many"),
                ));
            }
            voters.push(node_of(&voter));
        }
        if voters.is_empty() {
            voters = nodes.iter().map(|(node, _)| node_of(&node.peer)).collect();
        }
        if voters.len() > 1 && voters.len().is_multiple_of(2) {
            warnings.push(format!(
                "cluster.voters: {} voters bear the loss of no more of them than {} would; take one out or add one",
                voters.len(),
                voters.len() - 1
            ));
        }
        Ok(voters)
    }

    fn check_numbers(&self) -> Result<(), ConfigError> {
        if self.wire_version_max.is_some_and(|version| !(WIRE_VERSION_MIN..=WIRE_VERSION).contains(&version)) {
            let reason = format!(
                "this program speaks versions {WIRE_VERSION_MIN} to {WIRE_VERSION}; name one of them, or leave it out for the newest"
            );
            return Err(wrong("cluster.wire_version_max", reason));
        }
        if !(1..=REPLICAS_MAX).contains(&self.replicas) {
            return Err(wrong("cluster.replicas", format!("must be between 1 and {REPLICAS_MAX}")));
        }
        if self.write_quorum == 0 {
            return Err(wrong("cluster.write_quorum", "must be at least 1: a write counts when somebody has it"));
        }
        if self.write_quorum > self.replicas {
            let reason = format!(
                "is {}, but there are only {} replicas: no write would ever count; lower it or raise cluster.replicas",
                self.write_quorum, self.replicas
            );
            return Err(wrong("cluster.write_quorum", reason));
        }
        if !(1..=2).contains(&self.content_copies) {
            return Err(wrong(
                "cluster.content_copies",
                "must be 2, for each page on two nodes, or 1, for pages only where they were fetched",
            ));
        }
        if !(1..=86_400).contains(&self.upkeep_every_s) {
            return Err(wrong("cluster.upkeep_every_s", "must be between 1 and 86400, a day"));
        }
        let times = &self.membership;
        for (setting, value) in [
            ("cluster.membership.probe_every_ms", times.probe_every_ms),
            ("cluster.membership.suspect_for_ms", times.suspect_for_ms),
            ("cluster.membership.forget_after_s", times.forget_after_s),
            ("cluster.membership.stable_for_ms", times.stable_for_ms),
        ] {
            if !(1..=86_400_000).contains(&value) {
                return Err(wrong(setting, "must be between 1 and 86400000"));
            }
        }
        self.load.check()?;
        let limits = &self.connections;
        if !(1..=100).contains(&limits.memory_percent_max) {
            return Err(wrong("cluster.connections.memory_percent_max", "must be between 1 and 100"));
        }
        // Each node may hold two to each other for a moment, and people want to look in as well.
        let least = 2 * self.peers.len() as u32 + 8;
        if limits.connections_max < least {
            let reason = format!("must be at least {least}, for {} peers and the people who look in", self.peers.len());
            return Err(wrong("cluster.connections.connections_max", reason));
        }
        if limits.pending_max == 0 {
            return Err(wrong("cluster.connections.pending_max", "must be at least 1"));
        }
        Ok(())
    }

    /// A fetch starts only if it must be over before the lease is: D·(1−ρ)/(1+ρ) − g > T_f·(1+ρ).
    fn check_lease(&self, fetch_timeout: Micros, warnings: &mut Vec<String>) -> Result<(), ConfigError> {
        if self.lease.drift_ppm >= 500_000 {
            return Err(wrong(
                "cluster.lease.drift_ppm",
                "must be below 500000, half of a clock's rate; 10000 is one percent",
            ));
        }
        if !(1..=86_400).contains(&self.lease.duration_s) || self.lease.guard_ms > 60_000 {
            return Err(wrong("cluster.lease.duration_s", "must be between 1 and 86400, and guard_ms at most 60000"));
        }
        let rules = self.lease_rules();
        let fetch = rules.at_least(fetch_timeout);
        if rules.trust() <= fetch {
            let exact = (fetch + rules.guard) as f64 * (1e6 + rules.drift_ppm as f64) / (1e6 - rules.drift_ppm as f64);
            let least = (exact / SECOND as f64).floor() as u64 + 1;
            let reason = format!(
                "is {} s, in which a fetch of {} s (fetch.limits.fetch_timeout_ms), the guard and the drift do not fit; \
                 make it at least {least}, or the fetch time-out shorter",
                self.lease.duration_s,
                fetch_timeout as f64 / SECOND as f64,
            );
            return Err(wrong("cluster.lease.duration_s", reason));
        }
        if rules.trust() <= fetch + rules.renew_every() {
            warnings.push(format!(
                "cluster.lease.duration_s: {} s leaves a holder times in which it may start nothing before its lease is renewed",
                self.lease.duration_s
            ));
        }
        Ok(())
    }

    fn lease_rules(&self) -> LeaseRules {
        LeaseRules {
            duration: self.lease.duration_s * SECOND,
            guard: self.lease.guard_ms * MILLISECOND,
            drift_ppm: self.lease.drift_ppm,
        }
    }
}

impl Cluster {
    /// What the swarm of the node with this identity needs to know.
    pub fn settings(&self, identity: Identity, key: SwarmKey) -> Result<Settings, ConfigError> {
        self.weight_of(&identity)?;
        let mut settings = Settings::new(identity, key, self.id);
        settings.listen = self.listen.clone();
        settings.peers = self.nodes.iter().map(|(node, _)| node.clone()).chain(self.people.iter().cloned()).collect();
        settings.stranger = (self.config.admission == Admission::SwarmKey).then_some(Role::Node);
        settings.mdns = self.config.mdns;
        settings.versions.newest = self.config.wire_version_max.unwrap_or(settings.versions.newest);
        settings.limits = Limits {
            connections_max: self.config.connections.connections_max,
            pending_max: self.config.connections.pending_max,
            memory_percent_max: self.config.connections.memory_percent_max,
            ..Limits::default()
        };
        // The longest letter at the pace that a lease can bear: what takes longer than a lease is of no use.
        settings.times.frame = settings.times.frame.min(Duration::from_secs(self.config.lease.duration_s.max(5)));
        Ok(settings)
    }

    /// What makes a load of what the node measures.
    pub fn load(&self) -> LoadRules {
        self.config.load.rules()
    }

    /// What the coordinator of the node with this identity needs to know, in the life `boot`.
    pub fn rules(&self, identity: &Identity, boot: u32) -> Result<ClusterRules, ConfigError> {
        let me = identity.node();
        let peers = self.nodes.iter().map(|(node, weight)| (node_of(&node.peer), *weight));
        let peers: Vec<(NodeId, u16)> = peers.filter(|(node, _)| *node != me).collect();
        let mut rules = ClusterRules::new(self.id.0, me, boot, peers, self.voters.clone());
        rules.weight = self.weight_of(identity)?;
        rules.fetch_timeout = self.fetch_timeout;
        rules.lease = self.config.lease_rules();
        rules.membership.probe_every = self.config.membership.probe_every_ms * MILLISECOND;
        rules.membership.suspect_for = self.config.membership.suspect_for_ms * MILLISECOND;
        rules.membership.forget_after = self.config.membership.forget_after_s * SECOND;
        rules.membership.stable_for = self.config.membership.stable_for_ms * MILLISECOND;
        rules.writes.replicas = self.config.replicas;
        rules.writes.quorum = self.config.write_quorum;
        rules.route = self.config.load.route();
        Ok(rules)
    }

    /// The share of the ring of the node with this identity, which must be one of the cluster's.
    fn weight_of(&self, identity: &Identity) -> Result<u16, ConfigError> {
        let peer = identity.peer();
        let listed = self.nodes.iter().find(|(node, _)| node.peer == peer).map(|(_, weight)| *weight);
        match (listed, self.config.admission) {
            (Some(weight), _) => Ok(weight),
            (None, Admission::SwarmKey) => Ok(one()),
            (None, Admission::List) if self.config.newcomer => Ok(one()),
            (None, Admission::List) => Err(wrong(
                "cluster.identity",
                format!(
                    "{} holds the identity {peer}, which is none of cluster.peers; add {{ id = \"{peer}\", addresses = [\"…\"] }} \
                     on every node, or point to the identity of one that is listed, or set newcomer = true here and have an \
                     operator admit it (ctl admit)",
                    self.config.identity.display()
                ),
            )),
        }
    }
}

/// Who was named so far, and where.
#[derive(Default)]
struct Known(BTreeMap<PeerId, String>);

impl Known {
    fn add(&mut self, id: &str, setting: String) -> Result<PeerId, ConfigError> {
        let peer = parse_peer(id, &setting)?;
        if let Some(other) = self.0.get(&peer) {
            return Err(wrong(setting, format!("{peer} is already {other}; each has an identity of its own")));
        }
        self.0.insert(peer, setting);
        Ok(peer)
    }

    fn people(&mut self, ids: &[String], list: &str, role: Role) -> Result<Vec<Peer>, ConfigError> {
        let one = |(n, id): (usize, &String)| {
            let peer = self.add(id, format!("cluster.{list}[{n}]"))?;
            Ok(Peer { peer, role, addresses: Vec::new() })
        };
        ids.iter().enumerate().map(one).collect()
    }
}

fn parse_peer(id: &str, setting: &str) -> Result<PeerId, ConfigError> {
    id.parse().map_err(|_| {
        let reason = format!("{id:?} is no peer id; `orbweaver keygen` prints one, like 12D3KooW…");
        wrong(setting, reason)
    })
}

fn parse_address(address: &str, setting: &str) -> Result<Multiaddr, ConfigError> {
    let example = "write it like /ip4/192.0.2.7/tcp/7070 or /dns/node1.example/tcp/7070";
    let parsed: Multiaddr =
        address.parse().map_err(|error| wrong(setting, format!("{address:?} is no address ({error}); {example}")))?;
    if parsed.iter().any(|part| matches!(part, Protocol::Udp(_) | Protocol::Quic | Protocol::QuicV1)) {
        return Err(wrong(setting, format!("{address} is not TCP, and only there the swarm key protects; {example}")));
    }
    if !parsed.iter().any(|part| matches!(part, Protocol::Tcp(_))) {
        return Err(wrong(setting, format!("{address} has no TCP port; {example}")));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests;
