//! One record as it travels between replicas, and what it means for two copies to be merged.
//!
//! To the cluster a record is a key, a lattice value and bytes; only who keeps or serves it looks inside, at [`Kept`].
//! Merge takes the larger of two copies: by [`Progress`] first, by bytes among equals, so that any two replicas that have seen the
//! same copies, in whatever order and however often, have the same.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::Xxh3;

use super::mutant::{Planted, planted};
use crate::batch::{Entry, EntryKind};
use crate::clients::identity;
use crate::id::{NodeId, Slot};
use crate::key::{Order, UrlKey};
use crate::record::{Progress, Status, UrlRecord, UrlState};
use crate::url::{CanonicalUrl, UrlRules};
use crate::wire::{self, WireError};

/// Longest encoded record, in bytes: a URL of 2 KiB, a title, two validators and the rest fit many times.
pub const COPY_BYTES_MAX: usize = 64 << 10;

/// A record on its way between replicas.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordCopy {
    /// Names it.
    pub key: UrlKey,
    /// Its place in the lattice.
    pub progress: Progress,
    /// A [`Kept`], encoded.
    pub body: Body,
}

/// Bytes that many may hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Body(pub Arc<[u8]>);

/// Everything that must survive of a URL: its record, and what its next turn in the queue needs beyond that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The record.
    pub record: UrlRecord,
    /// What it is fetched for.
    pub kind: EntryKind,
    /// Redirects that led here, in a row.
    pub redirects: u8,
    /// Not before this time, Unix milliseconds: a retry that waits, or the next round.
    pub due_unix_ms: u64,
    /// The next round begins when it is due; otherwise a closed round was the last.
    pub recurs: bool,
}

/// Why a copy cannot be what it says.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The bytes are no record.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// Key, progress and record do not belong together.
    #[error("the copy of {0} contradicts itself")]
    Contradictory(String),
}

/// What a disk that has `old` keeps when `new` is written to it.
pub fn merged(old: Option<&RecordCopy>, new: RecordCopy, planted: Planted) -> RecordCopy {
    match old {
        Some(old) if !planted!(planted, LastWriteWins) => old.clone().merge(new),
        _ => new,
    }
}

impl RecordCopy {
    /// Wraps a record of `crawl` for its way.
    pub fn new(key: UrlKey, kept: &Kept) -> Result<RecordCopy, WireError> {
        let body = wire::encode(kept)?;
        Ok(RecordCopy { key, progress: kept.record.progress, body: Body(body.into()) })
    }

    /// The slot of its domain.
    pub fn slot(&self) -> Slot {
        self.key.slot()
    }

    /// The larger of two copies of one record.
    pub fn merge(self, other: RecordCopy) -> RecordCopy {
        if identity::is_client(&self.key) {
            return crate::clients::record::merge(self, other);
        }
        if self.cmp_copy(&other) == Ordering::Less { other } else { self }
    }

    /// Which of two copies of one record is later.
    pub fn cmp_copy(&self, other: &RecordCopy) -> Ordering {
        self.progress.cmp(&other.progress).then_with(|| self.body.cmp(&other.body))
    }

    /// Looks inside, and checks that key and progress are those of the record.
    pub fn open(&self) -> Result<Kept, CopyError> {
        self.open_with_url().map(|(kept, _)| kept)
    }

    /// The same, and the URL that was read for it.
    pub fn open_with_url(&self) -> Result<(Kept, CanonicalUrl), CopyError> {
        let kept: Kept = wire::decode(&self.body.0)?;
        let contradiction = || CopyError::Contradictory(self.key.id().to_string());
        let url = CanonicalUrl::parse(&kept.record.url, &UrlRules::AS_IT_IS).map_err(|_| contradiction())?;
        let crawl = self.key.crawl().ok_or_else(contradiction)?;
        if kept.record.progress != self.progress || UrlKey::new(crawl, &url) != self.key {
            return Err(contradiction());
        }
        Ok((kept, url))
    }

    /// What it adds to the digest of its range.
    pub fn hash(&self) -> u64 {
        let mut hasher = Xxh3::new();
        hasher.update(self.key.as_bytes());
        hasher.update(&self.body.0);
        // 0 is the digest of nothing.
        hasher.digest().max(1)
    }

    /// About how much memory and wire it takes.
    pub fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.body.0.len() + 32
    }
}

impl fmt::Debug for RecordCopy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { round, status, errors, attempt, node } = self.progress;
        write!(out, "{}@{round}.{status:?}.e{errors}.a{attempt}.n{}", self.key.id(), node.0)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.0.len())
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = wire::Bytes::deserialize(deserializer)?.0;
        Ok(Body(bytes.into()))
    }
}

impl Kept {
    /// Whether nothing more happens to it in this round.
    pub fn is_closed(&self) -> bool {
        match self.record.progress.status {
            Status::Processed => true,
            Status::Crawled => self.record.state != UrlState::Enabled,
            _ => false,
        }
    }

    /// Its place in the queue; the sequence comes from the URL's id, so that every holder of the slot has the same order.
    pub fn order(&self, key: &UrlKey) -> Order {
        let id = key.id().0;
        let mut sequence = [0; 8];
        sequence[2..].copy_from_slice(&id[..6]);
        Order { priority: self.record.priority, depth: self.record.depth, sequence: u64::from_be_bytes(sequence) }
    }

    /// The entry with which it stands in its queue, and when it is due; `None` when nothing is left to do.
    ///
    /// A URL that was handed out and has no outcome returns as NEW of the same round with one attempt more, one whose content
    /// was fetched but not processed in the next round: within the round it can only go forward.
    /// Who asks must know that no batch of its own has it.
    pub fn entry(&self, node: NodeId) -> Option<(u64, Entry)> {
        let next = self.next_turn(node)?;
        let url = CanonicalUrl::parse(&self.record.url, &UrlRules::AS_IT_IS).ok()?;
        Some(self.entry_at(next, url))
    }

    /// The same, for who has read the record's URL already.
    pub fn entry_of(&self, node: NodeId, url: &CanonicalUrl) -> Option<(u64, Entry)> {
        Some(self.entry_at(self.next_turn(node)?, url.clone()))
    }

    fn entry_at(&self, progress: Progress, url: CanonicalUrl) -> (u64, Entry) {
        let validators = self.record.findings.as_ref().and_then(|found| found.validators.clone());
        (self.due_unix_ms, Entry { url, kind: self.kind, progress, redirects: self.redirects, validators })
    }

    /// The progress with which it stands in its queue.
    fn next_turn(&self, node: NodeId) -> Option<Progress> {
        let progress = self.record.progress;
        let next = match progress.status {
            Status::Undefined | Status::New => progress,
            Status::SelectedToCrawl | Status::Crawling | Status::SelectedIncremental => {
                Progress { status: Status::New, attempt: progress.attempt.saturating_add(1), node, ..progress }
            }
            Status::Crawled | Status::SelectedToProcess | Status::Processing
                if self.record.state == UrlState::Enabled =>
            {
                progress.next_round(node)
            }
            _ if self.recurs && self.record.state != UrlState::Disabled && !self.record.state.is_gone() => {
                progress.next_round(node)
            }
            _ => return None,
        };
        Some(next)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::error_mask::ErrorMask;
    use crate::key::DEFAULT_CRAWL;
    use proptest::prelude::*;

    /// A record for tests.
    pub(crate) fn kept(url: &str, progress: Progress) -> Kept {
        Kept {
            record: UrlRecord {
                url: url.to_owned(),
                progress,
                state: UrlState::Enabled,
                error_mask: ErrorMask::default(),
                depth: 0,
                priority: 100,
                parent: None,
                discovered_at: 0,
                findings: None,
            },
            kind: EntryKind::Page,
            redirects: 0,
            due_unix_ms: 0,
            recurs: false,
        }
    }

    /// A copy for tests.
    pub(crate) fn copy(url: &str, progress: Progress) -> RecordCopy {
        let canonical = CanonicalUrl::parse(url, &UrlRules::default()).unwrap();
        let key = UrlKey::new(DEFAULT_CRAWL, &canonical);
        RecordCopy::new(key, &kept(canonical.as_str(), progress)).unwrap()
    }

    fn some_copy() -> impl Strategy<Value = RecordCopy> {
        let status = prop_oneof![Just(Status::New), Just(Status::SelectedToCrawl), Just(Status::Processed)];
        (0..2u32, status, 0..2u8, 0..2u16, 0..2u64, 0..3u16).prop_map(
            |(round, status, errors, attempt, node, depth)| {
                let progress = Progress { round, status, errors, attempt, node: NodeId(node) };
                let mut kept = kept("http://a.example/x", progress);
                kept.record.depth = depth;
                let url = CanonicalUrl::parse(&kept.record.url, &UrlRules::default()).unwrap();
                RecordCopy::new(UrlKey::new(DEFAULT_CRAWL, &url), &kept).unwrap()
            },
        )
    }

    proptest! {
        #[test]
        fn merge_is_a_lattice(a in some_copy(), b in some_copy(), c in some_copy()) {
            let merge = |a: &RecordCopy, b: &RecordCopy| a.clone().merge(b.clone());
            prop_assert_eq!(merge(&a, &b), merge(&b, &a));
            prop_assert_eq!(merge(&merge(&a, &b), &c), merge(&a, &merge(&b, &c)));
            prop_assert_eq!(merge(&a, &a), a.clone());
            prop_assert!(merge(&a, &b).progress >= a.progress);
            prop_assert_eq!(a.hash() == b.hash(), a == b);
        }

        #[test]
        fn it_crosses_the_wire(a in some_copy()) {
            let back: RecordCopy = wire::decode(&wire::encode(&a).unwrap()).unwrap();
            prop_assert_eq!(&back, &a);
            prop_assert!(back.open().is_ok());
        }
    }

    #[test]
    fn a_copy_that_contradicts_itself_is_refused() {
        let good = copy("http://a.example/x", Progress::new(NodeId(1)));
        let other = copy("http://a.example/y", Progress::new(NodeId(1)));
        assert!(RecordCopy { key: other.key, ..good.clone() }.open().is_err());
        assert!(RecordCopy { progress: Progress::new(NodeId(2)), ..good.clone() }.open().is_err());
        assert!(RecordCopy { body: Body(vec![1, 2].into()), ..good }.open().is_err());
    }

    #[test]
    fn a_url_that_other_rules_made_canonical_is_taken_as_it_is() {
        // Where an operator keeps tracking parameters, or has queries sorted.
        let url = CanonicalUrl::parse("http://a.example/?utm_source=x&b=1&a=2", &UrlRules::AS_IT_IS).unwrap();
        let kept = kept(url.as_str(), Progress::new(NodeId(1)));
        let copy = RecordCopy::new(UrlKey::new(DEFAULT_CRAWL, &url), &kept).unwrap();
        assert_eq!(copy.open().unwrap().record.url, url.as_str());
        assert_eq!(kept.entry(NodeId(1)).unwrap().1.url, url);
    }

    #[test]
    fn what_was_handed_out_returns_with_one_attempt_more() {
        let lost = Progress { status: Status::SelectedToCrawl, attempt: 2, ..Progress::new(NodeId(1)) };
        let (_, entry) = kept("http://a.example/", lost).entry(NodeId(2)).unwrap();
        assert_eq!((entry.progress.status, entry.progress.attempt), (Status::New, 3));
        assert!(entry.progress > lost);
    }

    #[test]
    fn what_was_fetched_but_not_processed_returns_in_the_next_round() {
        let crawled = Progress { status: Status::Crawled, ..Progress::new(NodeId(1)) };
        let (_, entry) = kept("http://a.example/", crawled).entry(NodeId(2)).unwrap();
        assert_eq!((entry.progress.status, entry.progress.round), (Status::New, 1));
        assert!(
            kept("http://a.example/", Progress { status: Status::Processed, ..crawled }).entry(NodeId(2)).is_none()
        );
    }
}
