//! The section `[score]`: what pages are worth, and when that is computed.

use std::time::Duration;

use proto::score::Scorer;
use proto::score::hits::Hits;
use proto::score::opic::Opic;
use proto::score::pagerank::{DAMPING, PageRank};
use serde::{Deserialize, Serialize};

/// What queues go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[clap(rename_all = "lowercase")]
pub enum ScoreBy {
    /// The priorities that URLs were found with, and how far they are from a seed. No page graph is kept.
    #[default]
    None,
    /// PageRank.
    PageRank,
    /// The authorities of HITS.
    Hits,
    /// Cash that crawled pages hand on.
    Opic,
}

impl ScoreBy {
    /// Its name, as in the file.
    pub fn name(self) -> &'static str {
        match self {
            ScoreBy::None => "none",
            ScoreBy::PageRank => "pagerank",
            ScoreBy::Hits => "hits",
            ScoreBy::Opic => "opic",
        }
    }
}

/// What pages are worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScoreConfig {
    /// By what.
    pub by: ScoreBy,
    /// How often PageRank follows a link instead of beginning anew.
    pub damping: f64,
    /// Whether only links between domains count.
    pub other_domains_only: bool,
    /// Whether what spiders say a page's content is worth counts, too.
    pub use_content: bool,
    /// Scores are computed again when this many pages more were crawled,
    pub update_pages: u32,
    /// and these are at least this part of all, in percent;
    pub update_percent: f64,
    /// or whenever so many seconds have passed, instead.
    pub update_interval_s: Option<u64>,
    /// Threads that compute; 0 for all cores.
    pub threads: usize,
}

impl Default for ScoreConfig {
    fn default() -> Self {
        ScoreConfig {
            by: ScoreBy::None,
            damping: DAMPING,
            other_domains_only: false,
            use_content: false,
            update_pages: 100,
            update_percent: 1.0,
            update_interval_s: None,
            threads: 0,
        }
    }
}

impl ScoreConfig {
    /// What is wrong with it, by setting.
    pub fn fault(&self) -> Option<(&'static str, &'static str)> {
        if !(0.0..1.0).contains(&self.damping) {
            return Some(("score.damping", "must be at least 0 and below 1"));
        }
        if self.update_pages == 0 || !(0.0..=100.0).contains(&self.update_percent) {
            return Some(("score.update_pages", "must be at least 1, and score.update_percent between 0 and 100"));
        }
        if self.update_interval_s == Some(0) {
            return Some(("score.update_interval_s", "must be at least 1; leave it out to go by pages"));
        }
        None
    }

    /// The scorer, knowing nothing yet.
    pub fn scorer(&self) -> Option<Box<dyn Scorer>> {
        match self.by {
            ScoreBy::None => None,
            ScoreBy::PageRank => Some(Box::new(PageRank::new(self.damping))),
            ScoreBy::Hits => Some(Box::<Hits>::default()),
            ScoreBy::Opic => Some(Box::<Opic>::default()),
        }
    }

    /// Whether it is time: `crawled` pages now, `before` at the last update, which was so long ago.
    pub fn is_due(&self, crawled: u32, before: u32, ago: Duration) -> bool {
        let more = crawled.saturating_sub(before);
        match self.update_interval_s {
            Some(seconds) => more > 0 && ago.as_secs() >= seconds,
            None => more >= self.update_pages && f64::from(more) >= f64::from(before) * self.update_percent / 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_due_after_a_hundred_pages_and_a_hundredth() {
        let config = ScoreConfig::default();
        let due = |crawled, before| config.is_due(crawled, before, Duration::MAX);
        assert!(!due(99, 0) && due(100, 0) && !due(199, 100) && due(200, 100));
        assert!(!due(100_999, 100_000) && due(101_000, 100_000));
        let timed = ScoreConfig { update_interval_s: Some(60), ..config };
        assert!(timed.is_due(2, 1, Duration::from_secs(60)) && !timed.is_due(2, 1, Duration::from_secs(59)));
        assert!(!timed.is_due(2, 2, Duration::MAX), "nothing is new");
    }
}
