//! Counters of a crawl and of a host. They count records as they are, so that a recount of all records gives exactly them:
//! whoever replaces a record takes the old one out and puts the new one in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Status, UrlRecord, UrlState};

/// Media types counted by name, most of what the web serves; a hostile web could invent one for each page.
const NAMED_TYPES: [&str; 24] = [
    "application/atom+xml",
    "application/javascript",
    "application/json",
    "application/ld+json",
    "application/msword",
    "application/octet-stream",
    "application/pdf",
    "application/rss+xml",
    "application/xhtml+xml",
    "application/xml",
    "application/zip",
    "audio/mpeg",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/svg+xml",
    "image/webp",
    "text/calendar",
    "text/css",
    "text/csv",
    "text/html",
    "text/plain",
    "text/xml",
    "video/mp4",
];
/// The other types are counted by what stands before the slash.
const TYPE_FAMILIES: [&str; 6] = ["application", "audio", "font", "image", "text", "video"];

fn type_name(content_type: &str) -> String {
    if NAMED_TYPES.contains(&content_type) {
        return content_type.to_owned();
    }
    let family = content_type.split('/').next().unwrap_or_default();
    if TYPE_FAMILIES.contains(&family) { format!("{family}/*") } else { "other".to_owned() }
}

/// What a crawl has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// URLs known.
    pub known: u64,
    /// URLs that never ended a round.
    pub new: u64,
    /// URLs whose last round gave content, or "not modified".
    pub processed: u64,
    /// URLs whose last round failed for good.
    pub failed: u64,
    /// URLs that the rules of the run that met them did not admit: they are set aside, and never gave content.
    pub filtered: u64,
    /// Fetches of pages, over all rounds and attempts.
    pub fetches: u64,
    /// Crawls that found another content than the one before.
    pub changes: u64,
    /// Crawls that found the same content.
    pub unchanged: u64,
    /// URLs whose content another URL gave before.
    pub duplicates: u64,
    /// Bytes of all current contents, decoded.
    pub bytes: u64,
    /// URLs by HTTP status of their last answer.
    pub by_code: BTreeMap<u16, u64>,
    /// URLs by the failure they ended in, or are being retried after.
    pub by_failure: BTreeMap<String, u64>,
    /// URLs with content by media type.
    pub by_type: BTreeMap<String, u64>,
}

impl Counters {
    /// Puts a record in.
    pub fn add(&mut self, record: &UrlRecord) {
        self.apply(record, |counter, n| *counter += n);
    }

    /// Takes a record out that was put in as it is.
    pub fn remove(&mut self, record: &UrlRecord) {
        self.apply(record, |counter, n| *counter = counter.saturating_sub(n));
        self.by_code.retain(|_, count| *count > 0);
        self.by_failure.retain(|_, count| *count > 0);
        self.by_type.retain(|_, count| *count > 0);
    }

    fn apply(&mut self, record: &UrlRecord, change: impl Fn(&mut u64, u64)) {
        if record.state.is_gone() {
            return;
        }
        change(&mut self.known, 1);
        match (record.progress.status, record.state) {
            (Status::Processed, _) => change(&mut self.processed, 1),
            (Status::Crawled, UrlState::Disabled) => change(&mut self.filtered, 1),
            (Status::Crawled, _) => change(&mut self.failed, 1),
            _ => change(&mut self.new, 1),
        }
        let Some(found) = &record.findings else { return };
        change(&mut self.fetches, u64::from(found.crawled));
        change(&mut self.changes, u64::from(found.changes));
        change(&mut self.unchanged, u64::from(found.unchanged));
        change(&mut self.duplicates, u64::from(found.duplicate_of.is_some()));
        change(&mut self.bytes, found.size);
        if found.http_code != 0 {
            change(self.by_code.entry(found.http_code).or_default(), 1);
        }
        if let Some(failure) = &found.failure {
            change(self.by_failure.entry(failure.to_string()).or_default(), 1);
        }
        if !found.content_type.is_empty() {
            change(self.by_type.entry(type_name(&found.content_type)).or_default(), 1);
        }
    }
}

/// What a host has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCounters {
    /// URLs known.
    pub known: u64,
    /// URLs whose last round gave content.
    pub processed: u64,
    /// URLs whose last round failed for good.
    pub failed: u64,
    /// Bytes of all current contents, decoded.
    pub bytes: u64,
}

impl HostCounters {
    /// Puts a record in.
    pub fn add(&mut self, record: &UrlRecord) {
        let [known, processed, failed, bytes] = Self::share(record);
        self.known += known;
        self.processed += processed;
        self.failed += failed;
        self.bytes += bytes;
    }

    /// Takes a record out that was put in as it is.
    pub fn remove(&mut self, record: &UrlRecord) {
        let [known, processed, failed, bytes] = Self::share(record);
        self.known = self.known.saturating_sub(known);
        self.processed = self.processed.saturating_sub(processed);
        self.failed = self.failed.saturating_sub(failed);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn share(record: &UrlRecord) -> [u64; 4] {
        if record.state.is_gone() {
            return [0; 4];
        }
        let processed = record.progress.status == Status::Processed;
        let failed = record.progress.status == Status::Crawled && record.state != UrlState::Disabled;
        let bytes = record.findings.as_ref().map_or(0, |found| found.size);
        [1, u64::from(processed), u64::from(failed), bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::retry::Failure;
    use crate::error_mask::ErrorMask;
    use crate::id::NodeId;
    use crate::record::{Findings, Progress};
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = UrlRecord> {
        let status = prop_oneof![Just(Status::New), Just(Status::Crawled), Just(Status::Processed)];
        let state = prop_oneof![
            Just(UrlState::Enabled),
            Just(UrlState::Disabled),
            Just(UrlState::Error),
            Just(UrlState::Deleted)
        ];
        let failure = proptest::option::of(prop_oneof![Just(Failure::Timeout), Just(Failure::Http(404))]);
        let findings = (0..600u16, failure, "(text/html|image/x-[a-z]|rubbish|)", 0..5_000u64, 0..4u32);
        (status, state, proptest::option::of(findings)).prop_map(|(status, state, findings)| UrlRecord {
            url: "http://a.example/".into(),
            progress: Progress { status, ..Progress::new(NodeId::SOLE) },
            state,
            error_mask: ErrorMask::default(),
            depth: 0,
            priority: 100,
            parent: None,
            discovered_at: 0,
            findings: findings.map(|(http_code, failure, content_type, size, crawled)| {
                Box::new(Findings { http_code, failure, content_type, size, crawled, ..Findings::default() })
            }),
        })
    }

    proptest! {
        #[test]
        fn what_is_put_in_and_taken_out_leaves_what_a_recount_finds(
            kept in proptest::collection::vec(record(), 0..30),
            replaced in proptest::collection::vec(record(), 0..30),
        ) {
            let (mut counters, mut hosts) = (Counters::default(), HostCounters::default());
            for record in kept.iter().chain(&replaced) {
                counters.add(record);
                hosts.add(record);
            }
            for record in &replaced {
                counters.remove(record);
                hosts.remove(record);
            }
            let (mut recount, mut host_recount) = (Counters::default(), HostCounters::default());
            for record in &kept {
                recount.add(record);
                host_recount.add(record);
            }
            prop_assert_eq!(counters, recount);
            prop_assert_eq!(hosts, host_recount);
        }
    }

    #[test]
    fn a_hostile_web_cannot_invent_counters() {
        let names = ["text/html", "text/x-1", "x/y", "image/webp", "image/\u{1}", "", "/"].map(type_name);
        assert_eq!(names, ["text/html", "text/*", "other", "image/webp", "image/*", "other", "other"]);
    }
}
