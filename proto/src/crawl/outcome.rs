//! How a fetch ends: what becomes of the record, and whether the URL comes up again.
//!
//! Every round of a URL ends in exactly one [`OutcomeKind`]; only [`OutcomeKind::Again`] leaves the round open.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::retry::{Failure, RetryRules, UrlVerdict, verdict};
use crate::batch::{Entry, Pick};
use crate::error_mask::ErrorMask;
use crate::id::NodeId;
use crate::record::{Findings, Progress, Status, UrlRecord, UrlState};

/// What outcomes depend on.
#[derive(Clone, Debug)]
pub struct OutcomeRules {
    /// How often what is tried.
    pub retry: RetryRules,
    /// Time from one round to the next, in milliseconds; `None` for one round only.
    pub recrawl_period_ms: Option<u64>,
    /// Who writes.
    pub node: NodeId,
}

/// What came of a fetch.
#[derive(Clone, Debug)]
pub enum Ending {
    /// An answer below 400.
    Answered(Box<Findings>),
    /// A 304: everything known still holds.
    NotModified {
        /// When, Unix milliseconds.
        at: u64,
        /// Milliseconds it took.
        crawling_ms: u32,
    },
    /// A failure, with what the server said if it said anything, and how long it asked us to wait.
    Failed(Failure, Option<Box<Findings>>, Option<u64>),
    /// It does not belong to the crawl.
    Filtered,
}

/// The one way a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum OutcomeKind {
    /// Content was stored.
    Stored,
    /// The content is what the last round found.
    Unchanged,
    /// The content is what another URL gave before.
    Duplicate,
    /// robots.txt or the crawl's own rules forbid it.
    Refused,
    /// It failed for good.
    Abandoned,
    /// It will be tried again in this round.
    Again,
}

/// What to write.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The record as it is now.
    pub record: UrlRecord,
    /// How it ended.
    pub kind: OutcomeKind,
    /// When it comes up again, Unix milliseconds, and as what.
    pub again: Option<(u64, Entry)>,
}

/// Decides what becomes of `record`, whose fetch by `pick` ended at `now_unix_ms`.
pub fn settle(record: UrlRecord, pick: &Pick, ending: Ending, now_unix_ms: u64, rules: &OutcomeRules) -> Settlement {
    let mut settlement = match ending {
        Ending::Answered(found) => answered(record, pick, found, rules),
        Ending::NotModified { at, crawling_ms } => not_modified(record, pick, at, crawling_ms, rules),
        Ending::Failed(failure, found, wait_ms) => {
            return failed(record, pick, failure, found, wait_ms, now_unix_ms, rules);
        }
        Ending::Filtered => return filtered(record, pick, rules),
    };
    settlement.again = next_round(&settlement.record, pick, now_unix_ms, rules);
    settlement
}

fn answered(mut record: UrlRecord, pick: &Pick, mut found: Box<Findings>, rules: &OutcomeRules) -> Settlement {
    let before = record.findings.take();
    let same = before.as_ref().is_some_and(|before| before.failure.is_none() && before.digest == found.digest);
    let known = before.as_deref().cloned().unwrap_or_default();
    found.crawled = known.crawled.saturating_add(1);
    found.processed = known.processed.saturating_add(1);
    found.changes = known.changes + u32::from(before.is_some() && !same);
    found.unchanged = known.unchanged + u32::from(same);
    let kind = match (same, found.duplicate_of) {
        (true, _) => OutcomeKind::Unchanged,
        (false, Some(_)) => OutcomeKind::Duplicate,
        (false, None) => OutcomeKind::Stored,
    };
    record.findings = Some(found);
    Settlement { record: closed(record, pick, Status::Processed, UrlState::Enabled, rules), kind, again: None }
}

fn not_modified(mut record: UrlRecord, pick: &Pick, at: u64, crawling_ms: u32, rules: &OutcomeRules) -> Settlement {
    let found = record.findings.get_or_insert_default();
    found.crawled = found.crawled.saturating_add(1);
    found.unchanged = found.unchanged.saturating_add(1);
    (found.crawled_at, found.crawling_ms) = (at, crawling_ms);
    let record = closed(record, pick, Status::Processed, UrlState::Enabled, rules);
    Settlement { record, kind: OutcomeKind::Unchanged, again: None }
}

fn failed(
    mut record: UrlRecord,
    pick: &Pick,
    failure: Failure,
    found: Option<Box<Findings>>,
    wait_ms: Option<u64>,
    now_unix_ms: u64,
    rules: &OutcomeRules,
) -> Settlement {
    let attempt = pick.entry.progress.attempt.saturating_add(1);
    let errors = pick.entry.progress.errors.saturating_add(1);
    // Attempts that we lost ourselves are no fault of the URL, unless losing it is what it does to us.
    let tried = if failure == Failure::Lost { attempt } else { u16::from(errors) };
    let decided = verdict(failure, tried, &rules.retry);
    let known = record.findings.take().map(|known| *known).unwrap_or_default();
    let mut found = found.unwrap_or_else(|| Box::new(Findings { crawled_at: now_unix_ms, ..Findings::default() }));
    let asked = !matches!(failure, Failure::RobotsForbidden | Failure::RobotsUnavailable | Failure::AddressRefused);
    found.crawled = known.crawled + u32::from(asked);
    (found.processed, found.changes, found.unchanged) = (known.processed, known.changes, known.unchanged);
    found.failure = Some(failure);
    // What the last good round stored is still the content to compare the next one with.
    (found.digest, found.validators) = (known.digest, known.validators);
    record.findings = Some(found);
    let mut mask = ErrorMask::default();
    mask.set(decided.error);
    record.error_mask = mask;
    match decided.url {
        // A URL hears of this only when its robots.txt was asked for as often as the table allows: that was the waiting.
        UrlVerdict::Retry { wait_ms: wait } if failure != Failure::RobotsUnavailable => {
            let progress = Progress { errors, attempt, status: Status::New, node: rules.node, ..pick.entry.progress };
            record.progress = record.progress.merge(progress);
            let wait = jittered(wait.max(wait_ms.unwrap_or(0)), &pick.entry.url, attempt);
            let entry = Entry { progress, ..pick.entry.clone() };
            Settlement { record, kind: OutcomeKind::Again, again: Some((now_unix_ms.saturating_add(wait), entry)) }
        }
        UrlVerdict::Retry { .. } | UrlVerdict::GiveUp => {
            let record = closed_keeping_mask(record, pick, Status::Crawled, UrlState::Error, rules);
            let kind = if failure == Failure::RobotsForbidden { OutcomeKind::Refused } else { OutcomeKind::Abandoned };
            let again = next_round(&record, pick, now_unix_ms, rules);
            Settlement { record, kind, again }
        }
    }
}

fn filtered(record: UrlRecord, pick: &Pick, rules: &OutcomeRules) -> Settlement {
    let record = closed(record, pick, Status::Crawled, UrlState::Disabled, rules);
    Settlement { record, kind: OutcomeKind::Refused, again: None }
}

fn closed(mut record: UrlRecord, pick: &Pick, status: Status, state: UrlState, rules: &OutcomeRules) -> UrlRecord {
    record.error_mask = ErrorMask::default();
    closed_keeping_mask(record, pick, status, state, rules)
}

fn closed_keeping_mask(
    mut record: UrlRecord,
    pick: &Pick,
    status: Status,
    state: UrlState,
    rules: &OutcomeRules,
) -> UrlRecord {
    let attempt = pick.entry.progress.attempt.saturating_add(1);
    let progress = Progress { status, attempt, node: rules.node, ..pick.entry.progress };
    record.progress = record.progress.merge(progress);
    record.state = state;
    record
}

/// The next round, if there is one. A page that is gone is asked for again too: it may come back.
fn next_round(record: &UrlRecord, pick: &Pick, now_unix_ms: u64, rules: &OutcomeRules) -> Option<(u64, Entry)> {
    let period = rules.recrawl_period_ms?;
    let entry = Entry {
        progress: record.progress.next_round(rules.node),
        validators: record.findings.as_ref().and_then(|found| found.validators.clone()),
        redirects: 0,
        ..pick.entry.clone()
    };
    Some((now_unix_ms.saturating_add(jittered(period, &entry.url, 0)), entry))
}

/// Up to a tenth more, from the URL itself: what failed together does not come back together, and a replay is the same.
fn jittered(wait_ms: u64, url: &crate::url::CanonicalUrl, attempt: u16) -> u64 {
    let hash = xxh3_64(url.as_str().as_bytes()) ^ u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    wait_ms + (wait_ms / 10).saturating_mul(hash % 1024) / 1024
}
