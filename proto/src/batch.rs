//! What is handed out to be fetched, and how each of it can end.

use serde::{Deserialize, Serialize};

use crate::id::{BatchId, Slot};
use crate::key::{Order, QueueKey};
use crate::record::{Progress, Validators};
use crate::url::CanonicalUrl;

/// What a URL is fetched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// To be stored, and its links followed.
    Page,
    /// A list of URLs that robots.txt or another list named.
    Sitemap,
}

/// A URL as it waits in its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What to fetch.
    pub url: CanonicalUrl,
    /// What for.
    pub kind: EntryKind,
    /// Where it stands.
    pub progress: Progress,
    /// Redirects that led here, in a row.
    pub redirects: u8,
    /// What the last round got from the server, so that it can answer "not modified".
    pub validators: Option<Validators>,
}

/// One URL of a batch: its entry and its place in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Numbers the fetches of this start of the node; answers name it.
    pub flight: u64,
    /// The queue it was taken from.
    pub queue: QueueKey,
    /// Its place there.
    pub order: Order,
    /// The URL.
    pub entry: Entry,
}

/// URLs of one slot handed to one node, to be fetched before the deadline.
#[derive(Clone, Debug)]
pub struct UrlBatch {
    /// Names the batch.
    pub id: BatchId,
    /// The slot of all its URLs.
    pub slot: Slot,
    /// Monotonic microseconds of the node that handed it out.
    pub deadline: u64,
    /// What to fetch.
    pub picks: Vec<Pick>,
}

/// A URL found somewhere, before anybody looked whether it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discovered {
    /// The URL.
    pub url: CanonicalUrl,
    /// What for.
    pub kind: EntryKind,
    /// Links from a seed.
    pub depth: u16,
    /// Higher is sooner.
    pub priority: u16,
    /// Redirects that led here, in a row.
    pub redirects: u8,
}
