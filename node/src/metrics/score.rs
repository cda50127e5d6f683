//! What the scoring thread counts.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Counters of scores. Clones share their values.
#[derive(Clone)]
pub struct ScoreMetrics {
    pages: Gauge,
    links: Gauge,
    moved: Counter,
    seconds: Histogram,
}

impl Default for ScoreMetrics {
    fn default() -> Self {
        // A millisecond to 16 minutes: from a hundred pages to a billion links.
        let seconds = Histogram::new(exponential_buckets(1e-3, 4.0, 11));
        ScoreMetrics { pages: Gauge::default(), links: Gauge::default(), moved: Counter::default(), seconds }
    }
}

impl ScoreMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("graph_pages", "Pages in the page graph", self.pages.clone());
        registry.register("graph_links", "Links in the page graph", self.links.clone());
        registry.register("rescored_urls", "Waiting URLs moved because of their score", self.moved.clone());
        registry.register("score_seconds", "Time to compute scores and reorder queues", self.seconds.clone());
    }

    /// The size of the graph.
    pub fn observe(&self, pages: u32, links: u64) {
        self.pages.set(pages.into());
        self.links.set(i64::try_from(links).unwrap_or(i64::MAX));
    }

    /// Entries were moved.
    pub fn moved(&self, entries: u64) {
        self.moved.inc_by(entries);
    }

    /// Scores were computed.
    pub fn updated(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
    }
}
