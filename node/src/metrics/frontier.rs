//! What the gRPC door counts, under the names that dashboards of the URL Frontier know.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use proto::clients::ask::{Counts, Taken};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FoundLabel {
    discovered: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CrawlLabel {
    crawl: String,
}

/// Counters of the door. Clones share their values.
#[derive(Clone)]
pub struct FrontierMetrics {
    /// Calls of GetURLs.
    pub get_calls: Counter,
    /// URLs handed out.
    pub got: Counter,
    /// Time that GetURLs takes.
    pub get_seconds: Histogram,
    /// Calls of PutURLs.
    pub put_calls: Counter,
    /// Calls of PutDiscovered.
    pub put_discovered_calls: Counter,
    puts: Counter,
    found: Family<FoundLabel, Counter>,
    ignored: Counter,
    completed: Counter,
    /// URLs handed in that the node of their queue did not take, and that went to the next.
    pub sent_on: Counter,
    queues: Family<CrawlLabel, Gauge>,
    active: Family<CrawlLabel, Gauge>,
    scheduled: Family<CrawlLabel, Gauge>,
    done: Family<CrawlLabel, Gauge>,
    leased: Family<CrawlLabel, Gauge>,
}

impl Default for FrontierMetrics {
    fn default() -> Self {
        FrontierMetrics {
            get_calls: Counter::default(),
            got: Counter::default(),
            // 0.1 ms to 26 s.
            get_seconds: Histogram::new(exponential_buckets(1e-4, 4.0, 10)),
            put_calls: Counter::default(),
            put_discovered_calls: Counter::default(),
            puts: Counter::default(),
            found: Family::default(),
            ignored: Counter::default(),
            completed: Counter::default(),
            sent_on: Counter::default(),
            queues: Family::default(),
            active: Family::default(),
            scheduled: Family::default(),
            done: Family::default(),
            leased: Family::default(),
        }
    }
}

impl FrontierMetrics {
    /// Shows them in `registry`, which must give them no other names.
    pub fn register(&self, registry: &mut Registry) {
        // Dashboards draw a line at nothing, and none for what is not there.
        for discovered in ["true", "false"] {
            drop(self.found.get_or_create(&FoundLabel { discovered }));
        }
        registry.register("frontier_getURLs_calls", "Calls of GetURLs", self.get_calls.clone());
        registry.register("frontier_getURLs", "URLs handed out", self.got.clone());
        registry.register("frontier_getURLs_latency_seconds", "Time that GetURLs takes", self.get_seconds.clone());
        registry.register("frontier_putURLs_calls", "Calls of PutURLs", self.put_calls.clone());
        registry.register("frontier_putDiscovered_calls", "Calls of PutDiscovered", self.put_discovered_calls.clone());
        registry.register("frontier_putURLs", "URLs handed in", self.puts.clone());
        registry.register(
            "frontier_putURLs_discovered",
            "URLs handed in, by whether they were found",
            self.found.clone(),
        );
        registry.register("frontier_putURLs_ignored", "URLs found that were known", self.ignored.clone());
        registry.register("frontier_putURLs_completed", "URLs handed in as completed", self.completed.clone());
        registry.register(
            "frontier_putURLs_forward_notready",
            "URLs handed in that the node of their queue did not take, and that went to the next",
            self.sent_on.clone(),
        );
        registry.register("frontier_queues", "Queues that this node acts for", self.queues.clone());
        registry.register("frontier_active_queues", "Those of them with a scheduled URL", self.active.clone());
        registry.register("frontier_scheduled_urls", "Scheduled URLs in them", self.scheduled.clone());
        registry.register("frontier_completed_urls", "Completed URLs in them", self.done.clone());
        registry.register("frontier_leased_urls", "URLs in them that are handed out", self.leased.clone());
    }

    /// Counts a URL that was handed in; `None` if it cannot be taken.
    pub fn put(&self, date_s: Option<Option<u64>>) {
        self.puts.inc();
        let Some(date_s) = date_s else { return };
        let discovered = if date_s.is_none() { "true" } else { "false" };
        self.found.get_or_create(&FoundLabel { discovered }).inc();
        if date_s == Some(0) {
            self.completed.inc();
        }
    }

    /// Counts what became of URLs.
    pub fn count(&self, dates: &[Option<u64>], taken: &[Taken]) {
        let ignored = dates.iter().zip(taken).filter(|(date, taken)| date.is_none() && **taken == Taken::Skipped);
        self.ignored.inc_by(ignored.count() as u64);
    }

    /// Shows the counts of a crawl.
    pub fn show(&self, crawl: &str, counts: Counts) {
        let label = CrawlLabel { crawl: crawl.to_owned() };
        let shown = [
            (&self.queues, counts.queues),
            (&self.active, counts.active),
            (&self.scheduled, counts.scheduled),
            (&self.done, counts.completed),
            (&self.leased, counts.leased),
        ];
        for (family, count) in shown {
            family.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Shows nothing of crawls that are not among these.
    pub fn retain(&self, crawls: &[String], before: &[String]) {
        for gone in before.iter().filter(|crawl| !crawls.contains(crawl)) {
            let label = CrawlLabel { crawl: gone.clone() };
            for family in [&self.queues, &self.active, &self.scheduled, &self.done, &self.leased] {
                family.remove(&label);
            }
        }
    }
}
