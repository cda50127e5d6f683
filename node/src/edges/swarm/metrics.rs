//! What the swarm counts. Clones share their values.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::refusal::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabel {
    kind: &'static str,
    reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Why a letter was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// Its receiver is none of our peers.
    Unknown,
    /// The queue to its receiver is full.
    Full,
    /// It waited in the queue until nobody needed it.
    Stale,
    /// Its receiver speaks an older version, which does not have it.
    Unspoken,
    /// It is too long.
    TooLong,
    /// It came in, and there was no room for it.
    NoRoom,
}

impl Drop {
    fn name(self) -> &'static str {
        match self {
            Drop::Unknown => "unknown",
            Drop::Full => "full",
            Drop::Stale => "stale",
            Drop::Unspoken => "unspoken",
            Drop::TooLong => "too_long",
            Drop::NoRoom => "no_room",
        }
    }
}

/// The metrics of the swarm.
#[derive(Clone, Default)]
pub struct SwarmMetrics {
    /// Peers that are connected.
    pub connected: Gauge,
    /// Peers whose last connection ended.
    pub disconnected: Counter,
    /// Bytes of letters that came in.
    pub bytes_in: Counter,
    /// Bytes of letters that went out.
    pub bytes_out: Counter,
    /// Control requests that were answered.
    pub control_requests: Counter,
    /// Times that a peer sent faster than is read, and had to wait.
    pub throttled: Counter,
    /// Refusals that were written to the log; most are only counted.
    pub complaints: Counter,
    letters_in: Family<KindLabel, Counter>,
    letters_out: Family<KindLabel, Counter>,
    letters_dropped: Family<DropLabel, Counter>,
    refused: Family<ReasonLabel, Counter>,
    /// The sums of the last two: a family cannot be added up.
    drops: Counter,
    refusals: Counter,
}

impl SwarmMetrics {
    /// Shows them in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("swarm_peers", "Peers that are connected", self.connected.clone());
        registry.register("swarm_disconnects", "Peers whose last connection ended", self.disconnected.clone());
        registry.register("swarm_letter_bytes_in", "Bytes of letters that came in", self.bytes_in.clone());
        registry.register("swarm_letter_bytes_out", "Bytes of letters that went out", self.bytes_out.clone());
        registry.register("swarm_letters_in", "Letters that came in, by kind", self.letters_in.clone());
        registry.register("swarm_letters_out", "Letters that went out, by kind", self.letters_out.clone());
        registry.register("swarm_letters_dropped", "Letters dropped, by kind and why", self.letters_dropped.clone());
        registry.register("swarm_refused", "Connections and streams refused or cut off, by why", self.refused.clone());
        registry.register("swarm_control_requests", "Control requests answered", self.control_requests.clone());
        registry.register("swarm_throttled", "Times that a peer sent too fast", self.throttled.clone());
        registry.register("swarm_complaints", "Refusals that were logged", self.complaints.clone());
    }

    /// Counts a letter that came in.
    pub(super) fn came(&self, kind: &'static str) {
        self.letters_in.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a letter that went out.
    pub(super) fn went(&self, kind: &'static str) {
        self.letters_out.get_or_create(&KindLabel { kind }).inc();
    }

    /// Counts a letter that was dropped.
    pub(super) fn dropped(&self, kind: &'static str, why: Drop) {
        self.letters_dropped.get_or_create(&DropLabel { kind, reason: why.name() }).inc();
        self.drops.inc();
    }

    /// Counts a refusal.
    pub(super) fn refused(&self, why: Refusal) {
        self.refused.get_or_create(&ReasonLabel { reason: why.name() }).inc();
        self.refusals.inc();
    }

    /// Refusals so far.
    pub fn refusals(&self, why: Refusal) -> u64 {
        self.refused.get_or_create(&ReasonLabel { reason: why.name() }).get()
    }

    /// Letters of a kind that were dropped so far.
    pub fn drops(&self, kind: &'static str, why: Drop) -> u64 {
        self.letters_dropped.get_or_create(&DropLabel { kind, reason: why.name() }).get()
    }

    /// Letters dropped so far, of whatever kind and why.
    pub fn drops_total(&self) -> u64 {
        self.drops.get()
    }

    /// Connections and streams refused so far.
    pub fn refusals_total(&self) -> u64 {
        self.refusals.get()
    }

    /// Letters of a kind that went out so far.
    pub fn sent(&self, kind: &'static str) -> u64 {
        self.letters_out.get_or_create(&KindLabel { kind }).get()
    }
}
