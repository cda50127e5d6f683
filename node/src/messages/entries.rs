//! Entries of a feed that are URLs of their own.

use std::sync::Arc;

use proto::batch::Pick;
use proto::url::CanonicalUrl;

use crate::edges::web::Pending;
use crate::process::FeedEntry;

/// Entries of a feed that came with it and are not fetched.
#[derive(Clone, Debug)]
pub struct FeedEntries {
    /// Whose URLs they are.
    pub crawl: String,
    /// The feed.
    pub feed: CanonicalUrl,
    /// Links from a root URL to them.
    pub depth: u16,
    /// What the feed was worth.
    pub priority: u16,
    /// Its status.
    pub http_code: u16,
    /// Its type.
    pub content_type: String,
    /// When it was fetched, Unix milliseconds.
    pub unix_ms: u64,
    /// The entries.
    pub entries: Vec<FeedEntry>,
}

/// Has entries kept; the feed lands when they are, so that one which is lost with its node is fetched again. Scorer to whoever keeps records.
pub type KeepEntries = Arc<dyn Fn(FeedEntries) -> Pending<'static, Result<(), String>> + Send + Sync>;

impl FeedEntries {
    /// Those of a feed that was picked.
    pub fn of(pick: &Pick, http_code: u16, content_type: &str, unix_ms: u64, entries: Vec<FeedEntry>) -> FeedEntries {
        FeedEntries {
            crawl: pick.queue.crawl().to_owned(),
            feed: pick.entry.url.clone(),
            depth: pick.order.depth.saturating_add(1),
            priority: pick.order.priority,
            http_code,
            content_type: content_type.to_owned(),
            unix_ms,
            entries,
        }
    }
}
