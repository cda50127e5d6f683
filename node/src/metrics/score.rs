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
    left_out: Gauge,
    moved: Counter,
    seconds: Histogram,
}

impl Default for ScoreMetrics {
    fn default() -> Self {
        // A millisecond to 16 minutes: from a hundred pages to a billion links.
        let seconds = Histogram::new(exponential_buckets(1e-3, 4.0, 11));
        let [pages, links, left_out] = std::array::from_fn(|_| Gauge::default());
        ScoreMetrics { pages, links, left_out, moved: Counter::default(), seconds }
    }
}

impl ScoreMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("graph_pages", "Pages in the page graph", self.pages.clone());
        registry.register("graph_links", "Links in the page graph", self.links.clone());
        let text = "Links that are not in it since the start: their pages' records had no room for them";
        registry.register("graph_links_left_out", text, self.left_out.clone());
        registry.register("rescored_urls", "Waiting URLs moved because of their score", self.moved.clone());
        registry.register("score_seconds", "Time to compute scores and reorder queues", self.seconds.clone());
    }

    /// The size of the graph, and how many links are not in it.
    pub fn observe(&self, pages: u32, links: u64, left_out: u64) {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.pages.set(pages.into());
        self.links.set(number(links));
        self.left_out.set(number(left_out));
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
