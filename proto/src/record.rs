//! What is kept of a URL: where it stands, and what the last crawl found.
//!
//! [`Progress`] is a lattice value: two copies of a record are merged by taking the larger one, so reordered, repeated and
//! stale writes cannot move a URL backwards. A URL that waits, or is being fetched, is *open*; among open values the later attempt
//! wins, whatever its status, which is how a lost batch returns to NEW.

mod findings;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::batch::Discovered;
use crate::crawl::retry::Failure;
use crate::error_mask::ErrorMask;
use crate::id::{NodeId, Round, UrlId};

/// How far a URL has come in its round (the numbers of the HCE Distributed Crawler).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Status {
    /// Never written; what an absent record would say.
    Undefined = 0,
    /// Waits to be crawled.
    New = 1,
    /// Handed out in a batch.
    SelectedToCrawl = 2,
    /// Being fetched.
    Crawling = 3,
    /// Fetched, or failed for good.
    Crawled = 4,
    /// Handed out for processing.
    SelectedToProcess = 5,
    /// Being processed.
    Processing = 6,
    /// Links and text were taken out of it.
    Processed = 7,
    /// Handed out for an incremental crawl.
    SelectedIncremental = 8,
}

impl Status {
    /// Name as users see it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Undefined => "UNDEFINED",
            Status::New => "NEW",
            Status::SelectedToCrawl => "SELECTED_TO_CRAWL",
            Status::Crawling => "CRAWLING",
            Status::Crawled => "CRAWLED",
            Status::SelectedToProcess => "SELECTED_TO_PROCESS",
            Status::Processing => "PROCESSING",
            Status::Processed => "PROCESSED",
            Status::SelectedIncremental => "SELECTED_INCREMENTAL",
        }
    }

    /// Position in the lattice: everything before CRAWLED is open and equal.
    fn rank(self) -> u8 {
        match self {
            Status::Undefined => 0,
            Status::New | Status::SelectedToCrawl | Status::Crawling | Status::SelectedIncremental => 1,
            Status::Crawled | Status::SelectedToProcess | Status::Processing => 2,
            Status::Processed => 3,
        }
    }
}

/// Whether a URL takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum UrlState {
    /// Takes part.
    #[default]
    Enabled = 0,
    /// Switched off by a person.
    Disabled = 1,
    /// Failed for good in this round.
    Error = 2,
    /// Deleted by a person: it counts as unknown, and is not crawled until it is handed in again. The record stays, so that no copy of the past brings it back.
    Deleted = 3,
    /// Deleted, and what led to its contents was removed from all nodes.
    Purged = 4,
}

impl UrlState {
    /// Whether it counts as unknown.
    pub fn is_gone(self) -> bool {
        matches!(self, UrlState::Deleted | UrlState::Purged)
    }
}

/// Where a URL stands. The order is the lattice order; merge = max.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Progress {
    /// Which crawl of it.
    pub round: Round,
    /// How far in that round.
    pub status: Status,
    /// Failed attempts in this round.
    pub errors: u8,
    /// Attempts in this round, failed, lost or under way.
    pub attempt: u16,
    /// Who wrote it, to decide between equals.
    pub node: NodeId,
}

impl Progress {
    /// A URL just discovered.
    pub fn new(node: NodeId) -> Progress {
        Progress { round: 0, status: Status::New, errors: 0, attempt: 0, node }
    }

    /// Returns the later of two copies.
    pub fn merge(self, other: Progress) -> Progress {
        self.max(other)
    }

    /// Returns the start of the next round.
    pub fn next_round(self, node: NodeId) -> Progress {
        Progress { round: self.round.saturating_add(1), ..Progress::new(node) }
    }
}

impl Ord for Progress {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |p: &Progress| (p.round, p.status.rank(), p.errors, p.attempt, p.status, p.node);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Progress {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What is sent back to a server so that it may answer "not modified".
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validators {
    /// Value of the ETag header.
    pub etag: Option<String>,
    /// Value of the Last-Modified header.
    pub last_modified: Option<String>,
}

impl Validators {
    /// Longest header value kept, in bytes; a longer one is no use as a validator and only costs disk.
    pub const VALUE_BYTES_MAX: usize = 512;

    /// Keeps what is short enough; `None` if nothing is.
    pub fn new(etag: Option<&str>, last_modified: Option<&str>) -> Option<Validators> {
        let keep = |value: Option<&str>| value.filter(|v| v.len() <= Self::VALUE_BYTES_MAX).map(str::to_owned);
        let validators = Validators { etag: keep(etag), last_modified: keep(last_modified) };
        (validators.etag.is_some() || validators.last_modified.is_some()).then_some(validators)
    }
}

/// What the rules of a site made of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Tags that were filled, of all things on the page.
    pub tags: u32,
    /// When the page was published, Unix milliseconds, as far as it is known.
    pub published: Option<u64>,
}

/// What the last crawl of a URL found (the fields of DC-9 that have a meaning here). How it is written down stands in `record/findings.rs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// HTTP status; 0 if there was no answer.
    pub http_code: u16,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
    /// Media type, e.g. `text/html`.
    pub content_type: String,
    /// Name of the character set.
    pub charset: Option<String>,
    /// Language of the text, ISO 639-3.
    pub language: Option<String>,
    /// Title of the page.
    pub title: Option<String>,
    /// Bytes of the decoded body.
    pub size: u64,
    /// BLAKE3 of the decoded body, first 16 bytes.
    pub digest: [u8; 16],
    /// Simhash of the text.
    pub fingerprint: Option<u64>,
    /// ETag and Last-Modified.
    pub validators: Option<Validators>,
    /// Links to the same host.
    pub links_internal: u32,
    /// Links to other hosts.
    pub links_external: u32,
    /// What `<link rel=canonical>` names, when it is another URL.
    pub canonical: Option<String>,
    /// Where a redirect leads.
    pub redirect: Option<String>,
    /// The page asks not to be indexed.
    pub noindex: bool,
    /// The page with the same content that was stored before.
    pub duplicate_of: Option<UrlId>,
    /// Milliseconds from request to last byte.
    pub crawling_ms: u32,
    /// Milliseconds of parsing.
    pub processing_ms: u32,
    /// When it was fetched, Unix milliseconds.
    pub crawled_at: u64,
    /// Times it was crawled, over all rounds.
    pub crawled: u32,
    /// Times it was processed.
    pub processed: u32,
    /// Crawls that found another content than the one before.
    pub changes: u32,
    /// Crawls that found the same content, or were answered "not modified".
    pub unchanged: u32,
    /// What the rules of the site made of the page; `None` if there were none for it.
    pub made: Option<Made>,
}

/// Everything kept of a URL. In-links are stored beside it (see `key`), because they change far more often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlRecord {
    /// Canonical text.
    pub url: String,
    /// Where it stands.
    pub progress: Progress,
    /// Whether it takes part.
    pub state: UrlState,
    /// Why it failed, as bits; of the current round only.
    pub error_mask: ErrorMask,
    /// Links from a seed; a seed is 0, a redirect's target is as deep as its source.
    pub depth: u16,
    /// Higher is sooner.
    pub priority: u16,
    /// The page that named it first; `None` for seeds.
    pub parent: Option<UrlId>,
    /// When it was discovered, Unix milliseconds.
    pub discovered_at: u64,
    /// What the last crawl found; `None` until there was one.
    pub findings: Option<Box<Findings>>,
}

impl UrlRecord {
    /// The record of a URL that nobody knew: NEW, in its first round, as `node` heard of it at `unix_ms`.
    pub fn discovered(found: &Discovered, parent: Option<UrlId>, node: NodeId, unix_ms: u64) -> UrlRecord {
        UrlRecord {
            url: found.url.as_str().to_owned(),
            progress: Progress::new(node),
            state: UrlState::Enabled,
            error_mask: ErrorMask::default(),
            depth: found.depth,
            priority: found.priority,
            parent,
            discovered_at: unix_ms,
            findings: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn progress() -> impl Strategy<Value = Progress> {
        let status = prop_oneof![
            Just(Status::New),
            Just(Status::SelectedToCrawl),
            Just(Status::Crawled),
            Just(Status::Processed)
        ];
        (0..3u32, status, 0..3u8, 0..4u16, 0..3u64).prop_map(|(round, status, errors, attempt, node)| Progress {
            round,
            status,
            errors,
            attempt,
            node: NodeId(node),
        })
    }

    proptest! {
        #[test]
        fn merge_does_not_care_about_order_or_repetition(a in progress(), b in progress(), c in progress()) {
            prop_assert_eq!(a.merge(b), b.merge(a));
            prop_assert_eq!(a.merge(b).merge(c), a.merge(b.merge(c)));
            prop_assert_eq!(a.merge(a), a);
            prop_assert!(a.merge(b) >= a);
        }

        #[test]
        fn equal_in_the_order_means_equal(a in progress(), b in progress()) {
            prop_assert_eq!(a.cmp(&b) == Ordering::Equal, a == b);
        }
    }

    #[test]
    fn a_lost_batch_returns_to_new_and_a_late_answer_still_wins() {
        let selected = Progress { status: Status::SelectedToCrawl, attempt: 1, ..Progress::new(NodeId::SOLE) };
        let put_back = Progress { attempt: 2, ..Progress::new(NodeId::SOLE) };
        let late = Progress { status: Status::Processed, attempt: 1, ..Progress::new(NodeId::SOLE) };
        assert_eq!(selected.merge(put_back), put_back);
        assert_eq!(put_back.merge(late), late);
    }

    #[test]
    fn the_next_round_beats_everything_of_the_last() {
        let done = Progress { status: Status::Processed, errors: 3, attempt: 9, ..Progress::new(NodeId(7)) };
        assert!(done.next_round(NodeId::SOLE) > done);
    }
}
