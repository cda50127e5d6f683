//! What happens in a run, as data: the cluster, its clocks, the web, and every fault with its time.
//!
//! A seed draws a plan; the plan alone decides the run. Seeds change their meaning when this file changes, plans do not:
//! what once broke something is kept as a plan, in `simulation/corpus/*.toml`. Each fault has an id and is independent of
//! the others: what is decided in small during a run (which message is lost, which fsync hangs) is a hash of the seed and
//! of what it concerns, so that a plan with a fault less is the same plan otherwise.

mod draw;
mod fault;
mod site;

use std::collections::BTreeSet;

use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use proto::wire::{WIRE_VERSION, WIRE_VERSION_MIN};
use serde::{Deserialize, Serialize};

pub use fault::{Direction, Fault, FaultClass, HostTrouble, LoadTrouble, RobotsTrouble, TimedFault};
pub use site::{Operation, SiteOperation, SitePlan};

use super::web::WebPlan;

/// A millisecond, in microseconds.
pub const MILLISECOND: Micros = 1_000;
/// A second, in microseconds.
pub const SECOND: Micros = 1_000_000;
/// How long the cluster has to come to rest when faults have stopped, with leases of up to ten seconds.
pub const CALM_PHASE_MS: u64 = 120_000;

/// A run, before it happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Decides everything small.
    pub seed: u64,
    /// A planted defect that this plan must catch; plans of the corpus name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catches: Option<String>,
    /// How long faults happen.
    pub fault_phase_ms: u64,
    /// How long the cluster then has to come to rest.
    pub calm_phase_ms: u64,
    /// Nodes that do not come back in the calm phase: a minority, so that the rest must do without them.
    #[serde(default)]
    pub stays_down: Vec<u64>,
    /// The nodes and the protocol's numbers.
    pub cluster: ClusterPlan,
    /// How messages travel when no fault says otherwise.
    pub network: NetworkPlan,
    /// How disks write when no fault says otherwise.
    pub disk: DiskPlan,
    /// What there is to crawl.
    pub web: WebPlan,
    /// Which URLs clients hand in, and when.
    #[serde(default, rename = "submission")]
    pub submissions: Vec<Submission>,
    /// Sites that people make, change, empty and delete.
    #[serde(default, rename = "site", skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SitePlan>,
    /// What goes wrong, by time.
    #[serde(default, rename = "fault")]
    pub faults: Vec<TimedFault>,
}

/// The nodes and the numbers of the protocol (`design.md` §4), which seeds draw too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterPlan {
    /// Nodes 0.. that the cluster begins with. Nodes that join later have the next numbers.
    pub nodes: u64,
    /// The first so many of them grant leases.
    pub voters: u64,
    /// Copies of every record (R).
    pub replicas: usize,
    /// Copies that are fsynced before a write is acknowledged (W).
    pub write_quorum: usize,
    /// How long a promise of a voter lasts (D).
    pub lease_ms: u64,
    /// Longest whole fetch (T_f).
    pub fetch_timeout_ms: u64,
    /// What a holder gives up at the end of its lease (g).
    pub guard_ms: u64,
    /// How wrong a clock's rate may be (ρ).
    pub drift_ppm: u64,
    /// How long a changed view must be stable before data moves.
    pub view_stable_ms: u64,
    /// How long a node that is down keeps its place on the ring.
    pub forget_after_ms: u64,
    /// Pause between two requests to a host that declares none.
    pub crawl_delay_ms: u64,
    /// Discovered URLs that a node may have under way.
    #[serde(default = "outbox_max")]
    pub outbox_max: usize,
    /// How long a robots.txt is believed.
    #[serde(default = "robots_ttl_ms")]
    pub robots_ttl_ms: u64,
    /// Rate of each node's monotonic clock: parts per million fast (+) or slow (−). Missing ones are right.
    #[serde(default)]
    pub clock_rates_ppm: Vec<i64>,
    /// Weight of each node on the ring; missing ones are 1.
    #[serde(default)]
    pub weights: Vec<usize>,
    /// The newest version of the wire that each node speaks; missing ones speak the newest there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<u16>,
}

fn outbox_max() -> usize {
    24
}

fn robots_ttl_ms() -> u64 {
    60_000
}

/// How messages travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkPlan {
    /// Shortest time from node to node.
    pub latency_min_us: u64,
    /// What is added at most, evenly.
    pub latency_spread_us: u64,
    /// Chance that a message is lost, in the fault phase.
    pub loss_ppm: u32,
    /// Chance that it arrives twice.
    pub duplication_ppm: u32,
    /// Chance that it takes much longer, so that later ones overtake it.
    pub straggler_ppm: u32,
    /// What a straggler takes longer at most.
    pub straggler_max_ms: u64,
}

/// How disks write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskPlan {
    /// Shortest fsync.
    pub sync_min_us: u64,
    /// What is added at most, evenly.
    pub sync_spread_us: u64,
    /// Chance that an fsync hangs, in the fault phase: it widens the window that a crash can hit.
    pub hang_ppm: u32,
    /// How long at most.
    pub hang_max_ms: u64,
}

/// A client hands in a URL, and asks again until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// When first.
    pub at_ms: u64,
    /// Host of the synthetic web.
    pub host: u32,
    /// Page of that host; 0 is its root. Hosts with an oddity are entered by their root only.
    pub page: u32,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn from_seed(seed: u64) -> Plan {
        draw::draw(seed)
    }

    /// Reads a plan from TOML, and checks it.
    pub fn from_toml(text: &str) -> anyhow::Result<Plan> {
        let plan: Plan = toml::from_str(text)?;
        plan.check()?;
        Ok(plan)
    }

    /// Writes the plan as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a plan is numbers, lists and tables")
    }

    /// The plan without every fault of these classes.
    pub fn without(mut self, classes: &[FaultClass]) -> Plan {
        self.faults.retain(|fault| !classes.contains(&fault.what.class()));
        for class in classes {
            match class {
                FaultClass::Loss => self.network.loss_ppm = 0,
                FaultClass::Duplication => self.network.duplication_ppm = 0,
                FaultClass::Stragglers => self.network.straggler_ppm = 0,
                FaultClass::Clocks => self.cluster.clock_rates_ppm.clear(),
                FaultClass::Disks => self.disk.hang_ppm = 0,
                FaultClass::Minority => self.stays_down.clear(),
                _ => {}
            }
        }
        self
    }

    /// End of the fault phase, in true time.
    pub fn faults_end(&self) -> Micros {
        self.fault_phase_ms * MILLISECOND
    }

    /// When the cluster must have come to rest, in true time.
    pub fn calm_ends(&self) -> Micros {
        (self.fault_phase_ms + self.calm_phase_ms) * MILLISECOND
    }

    /// The nodes that the cluster begins with.
    pub fn first_nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.cluster.nodes).map(NodeId)
    }

    /// The nodes that grant leases.
    pub fn voters(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.cluster.voters).map(NodeId)
    }

    /// Every node that ever takes part, those that join and strangers included.
    pub fn all_nodes(&self) -> BTreeSet<NodeId> {
        let named = self.faults.iter().flat_map(|fault| fault.what.nodes()).map(NodeId);
        self.first_nodes().chain(named).collect()
    }

    /// Rate of a node's monotonic clock, as parts per million from right.
    pub fn clock_rate_ppm(&self, node: NodeId) -> i64 {
        self.cluster.clock_rates_ppm.get(node.0 as usize).copied().unwrap_or(0)
    }

    /// Weight of a node on the ring.
    pub fn weight(&self, node: NodeId) -> usize {
        self.cluster.weights.get(node.0 as usize).copied().unwrap_or(1)
    }

    /// The newest version of the wire that a node speaks.
    pub fn version(&self, node: NodeId) -> u16 {
        self.cluster.versions.get(node.0 as usize).copied().unwrap_or(WIRE_VERSION)
    }

    /// The oldest version that `node` has to speak with one of `others`.
    pub fn oldest_spoken(&self, node: NodeId, others: impl Iterator<Item = NodeId>) -> u16 {
        others.map(|other| self.version(other)).fold(self.version(node), u16::min)
    }

    /// Says whether `node` comes back in the calm phase.
    pub fn comes_back(&self, node: NodeId) -> bool {
        !self.stays_down.contains(&node.0)
    }

    /// Refuses what no run can be made of: a plan may come from a file.
    pub fn check(&self) -> anyhow::Result<()> {
        let cluster = &self.cluster;
        anyhow::ensure!(cluster.nodes > 0 && cluster.nodes <= 64, "a cluster has 1 to 64 nodes");
        anyhow::ensure!(cluster.voters > 0 && cluster.voters <= cluster.nodes, "voters are some of the nodes");
        anyhow::ensure!(cluster.write_quorum > 0 && cluster.write_quorum <= cluster.replicas, "W is between 1 and R");
        let drift = cluster.drift_ppm as i64;
        let right = cluster.clock_rates_ppm.iter().all(|rate| rate.abs() <= drift);
        anyhow::ensure!(right, "a clock runs wronger than drift_ppm allows");
        anyhow::ensure!(cluster.drift_ppm < 1_000_000, "drift_ppm is below a million");
        anyhow::ensure!(cluster.lease_ms > cluster.fetch_timeout_ms, "a fetch must fit into a lease");
        anyhow::ensure!(cluster.outbox_max > 0, "a node can have no URL under way");
        anyhow::ensure!(cluster.robots_ttl_ms >= 1_000, "a robots.txt is believed for a second at least");
        anyhow::ensure!(self.web.hosts > 0 && self.web.pages_per_host > 0, "a web has a host and a page");
        let spoken = cluster.versions.iter().all(|version| (WIRE_VERSION_MIN..=WIRE_VERSION).contains(version));
        anyhow::ensure!(spoken, "a node speaks a version of the wire between {WIRE_VERSION_MIN} and {WIRE_VERSION}");
        for site in &self.sites {
            site.check(self.web.hosts, self.fault_phase_ms)?;
        }
        let ids: BTreeSet<u32> = self.faults.iter().map(|fault| fault.id).collect();
        anyhow::ensure!(ids.len() == self.faults.len(), "two faults have one id");
        for fault in &self.faults {
            let ends = fault.at_ms.checked_add(fault.lasts_ms);
            // A line that stays clogged to the end is what the calm phase may have to do without, like a node that stays down.
            let stays = matches!(fault.what, Fault::Clog { .. });
            anyhow::ensure!(
                stays || ends.is_some_and(|ends| ends <= self.fault_phase_ms),
                "fault {} ends after its phase",
                fault.id
            );
            anyhow::ensure!(fault.what.nodes().iter().all(|node| *node < 64), "fault {} names no node", fault.id);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
