//! Every counter and gauge, by name. Clones share their values.

pub mod cluster;
pub mod frontier;
pub mod score;

use std::sync::Arc;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use proto::crawl::outcome::OutcomeKind;

use self::cluster::ClusterMetrics;
use self::frontier::FrontierMetrics;
use self::score::ScoreMetrics;
use crate::edges::store::State;
use crate::edges::swarm::metrics::SwarmMetrics;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: OutcomeName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)] // the names are label values
enum OutcomeName {
    stored,
    unchanged,
    duplicate,
    refused,
    abandoned,
    retried,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActorLabel {
    actor: &'static str,
}

/// The metrics of a node.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// The gRPC door's, whose names have no prefix.
    plain: Arc<Registry>,
    /// Page requests started.
    pub fetches: Counter,
    /// Page requests that are under way.
    pub fetching: Gauge,
    /// robots.txt requests started.
    pub robots_fetches: Counter,
    /// Bytes of bodies as transferred.
    pub wire_bytes: Counter,
    /// New URLs.
    pub discovered: Counter,
    /// Messages that found no room or no actor.
    pub dropped: Counter,
    /// Fetches whose deadline passed unsettled.
    pub lost: Counter,
    /// Time to parse a page.
    pub parse_seconds: Histogram,
    /// What the swarm counts.
    pub swarm: SwarmMetrics,
    /// What the node's part in its cluster counts.
    pub cluster: ClusterMetrics,
    /// What the gRPC door counts.
    pub frontier: FrontierMetrics,
    /// What the scoring thread counts.
    pub score: ScoreMetrics,
    outcomes: Family<OutcomeLabel, Counter>,
    restarts: Family<ActorLabel, Counter>,
    known: Gauge,
    ready: Gauge,
    waiting: Gauge,
    flights: Gauge,
    bytes: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics at zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("orbweaver");
        let mut metrics = Metrics {
            registry: Arc::default(),
            plain: Arc::default(),
            fetches: Counter::default(),
            fetching: Gauge::default(),
            robots_fetches: Counter::default(),
            wire_bytes: Counter::default(),
            discovered: Counter::default(),
            dropped: Counter::default(),
            lost: Counter::default(),
            // 10 µs to 2.6 s: from an empty page to one of ten megabytes.
            parse_seconds: Histogram::new(exponential_buckets(1e-5, 4.0, 10)),
            swarm: SwarmMetrics::default(),
            cluster: ClusterMetrics::default(),
            frontier: FrontierMetrics::default(),
            score: ScoreMetrics::default(),
            outcomes: Family::default(),
            restarts: Family::default(),
            known: Gauge::default(),
            ready: Gauge::default(),
            waiting: Gauge::default(),
            flights: Gauge::default(),
            bytes: Gauge::default(),
        };
        registry.register("fetches", "Page requests started", metrics.fetches.clone());
        registry.register("fetching", "Page requests under way", metrics.fetching.clone());
        registry.register("robots_fetches", "robots.txt requests started", metrics.robots_fetches.clone());
        registry.register("wire_bytes", "Bytes of bodies as transferred", metrics.wire_bytes.clone());
        registry.register("discovered_urls", "New URLs", metrics.discovered.clone());
        registry.register("dropped_messages", "Messages that found no room or no actor", metrics.dropped.clone());
        registry.register("lost_fetches", "Fetches whose deadline passed unsettled", metrics.lost.clone());
        registry.register("parse_seconds", "Time to parse a page", metrics.parse_seconds.clone());
        registry.register("outcomes", "Settled fetches by outcome", metrics.outcomes.clone());
        registry.register("actor_restarts", "Actors replaced after they died", metrics.restarts.clone());
        registry.register("known_urls", "URLs known", metrics.known.clone());
        registry.register("ready_urls", "URLs in queues", metrics.ready.clone());
        registry.register("waiting_urls", "URLs that wait for their time", metrics.waiting.clone());
        registry.register("flights", "URLs handed out and not settled", metrics.flights.clone());
        registry.register("content_bytes", "Bytes of all current contents", metrics.bytes.clone());
        metrics.swarm.register(&mut registry);
        metrics.cluster.register(&mut registry);
        metrics.score.register(&mut registry);
        let mut plain = Registry::default();
        metrics.frontier.register(&mut plain);
        (metrics.registry, metrics.plain) = (Arc::new(registry), Arc::new(plain));
        metrics
    }

    /// Counts an outcome.
    pub fn landed(&self, kind: OutcomeKind) {
        let outcome = match kind {
            OutcomeKind::Stored => OutcomeName::stored,
            OutcomeKind::Unchanged => OutcomeName::unchanged,
            OutcomeKind::Duplicate => OutcomeName::duplicate,
            OutcomeKind::Refused => OutcomeName::refused,
            OutcomeKind::Abandoned => OutcomeName::abandoned,
            OutcomeKind::Again => OutcomeName::retried,
        };
        self.outcomes.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a replaced actor.
    pub fn restarted(&self, actor: &'static str) {
        self.restarts.get_or_create(&ActorLabel { actor }).inc();
    }

    /// Actors replaced so far.
    pub fn restarts(&self, actor: &'static str) -> u64 {
        self.restarts.get_or_create(&ActorLabel { actor }).get()
    }

    /// Takes over what the store counts.
    pub fn observe(&self, state: &State) {
        let set = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.known, state.counters.known);
        set(&self.ready, state.places.ready);
        set(&self.waiting, state.places.retries + state.places.recrawls);
        set(&self.flights, state.places.flights);
        set(&self.bytes, state.counters.bytes);
    }

    /// All metrics in the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &self.plain))
            .and_then(|()| encode_eof(&mut text));
        text
    }
}
