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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The rules of this run do not admit it.
    Filtered,
    /// An answer below 400 that the rules of its site were applied to.
    Processed {
        /// What was found.
        found: Box<Findings>,
        /// Why nothing, or not all, was made of it.
        errors: ErrorMask,
        /// Whether something was made of it.
        made: bool,
        /// Whether the errors are failures; otherwise the page was none of the rules' business.
        failed: bool,
    },
}

impl Ending {
    /// What was found, if there was an answer below 400.
    pub fn found_mut(&mut self) -> Option<&mut Findings> {
        match self {
            Ending::Answered(found) | Ending::Processed { found, .. } => Some(found),
            _ => None,
        }
    }

    /// Whether there was an answer below 400.
    pub fn is_answer(&self) -> bool {
        matches!(self, Ending::Answered(_) | Ending::Processed { .. })
    }

    /// Whether there was an answer below 400, or one that said that nothing changed.
    pub fn is_page(&self) -> bool {
        self.is_answer() || matches!(self, Ending::NotModified { .. })
    }
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
    /// What comes up when a later run's rules admit it: it is refused by the rules of this run only.
    pub aside: Option<Entry>,
}

/// Decides what becomes of `record`, whose fetch by `pick` ended at `now_unix_ms`.
pub fn settle(record: UrlRecord, pick: &Pick, ending: Ending, now_unix_ms: u64, rules: &OutcomeRules) -> Settlement {
    let mut settlement = match ending {
        Ending::Answered(found) => answered(record, pick, found, true, rules),
        Ending::Processed { found, errors, made, failed } => {
            let mut settlement = answered(record, pick, found, made, rules);
            settlement.record.error_mask = errors;
            if failed {
                settlement.record.state = UrlState::Error;
            }
            settlement
        }
        Ending::NotModified { at, crawling_ms } => not_modified(record, pick, at, crawling_ms, rules),
        Ending::Failed(failure, found, wait_ms) => {
            return failed(record, pick, failure, found, wait_ms, now_unix_ms, rules);
        }
        Ending::Filtered => return filtered(record, pick, rules),
    };
    settlement.again = next_round(&settlement.record, pick, now_unix_ms, rules);
    settlement
}

fn answered(
    mut record: UrlRecord,
    pick: &Pick,
    mut found: Box<Findings>,
    processed: bool,
    rules: &OutcomeRules,
) -> Settlement {
    let before = record.findings.take();
    let same = before.as_ref().is_some_and(|before| before.failure.is_none() && before.digest == found.digest);
    let known = before.as_deref().cloned().unwrap_or_default();
    found.crawled = known.crawled.saturating_add(1);
    found.processed = known.processed.saturating_add(u32::from(processed));
    found.changes = known.changes + u32::from(before.is_some() && !same);
    found.unchanged = known.unchanged + u32::from(same);
    let kind = match (same, found.duplicate_of) {
        (true, _) => OutcomeKind::Unchanged,
        (false, Some(_)) => OutcomeKind::Duplicate,
        (false, None) => OutcomeKind::Stored,
    };
    record.findings = Some(found);
    Settlement {
        record: closed(record, pick, Status::Processed, UrlState::Enabled, rules),
        kind,
        again: None,
        aside: None,
    }
}

fn not_modified(mut record: UrlRecord, pick: &Pick, at: u64, crawling_ms: u32, rules: &OutcomeRules) -> Settlement {
    let found = record.findings.get_or_insert_default();
    found.crawled = found.crawled.saturating_add(1);
    found.unchanged = found.unchanged.saturating_add(1);
    (found.crawled_at, found.crawling_ms) = (at, crawling_ms);
    let record = closed(record, pick, Status::Processed, UrlState::Enabled, rules);
    Settlement { record, kind: OutcomeKind::Unchanged, again: None, aside: None }
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
    let asked = !matches!(
        failure,
        Failure::RobotsForbidden | Failure::RobotsUnavailable | Failure::AddressRefused | Failure::NoProxy
    );
    found.crawled = known.crawled + u32::from(asked);
    (found.processed, found.changes, found.unchanged) = (known.processed, known.changes, known.unchanged);
    found.failure = Some(failure);
    // What the last good round stored is still the content to compare the next one with.
    (found.digest, found.validators, found.made) = (known.digest, known.validators, known.made);
    record.findings = Some(found);
    let mut mask = ErrorMask::default();
    mask.set(decided.error);
    record.error_mask = mask;
    match decided.url {
        // A URL hears of this only when its robots.txt was asked for as often as the table allows: that was the waiting.
        UrlVerdict::Retry { wait_ms: wait } if failure != Failure::RobotsUnavailable => {
            let progress = Progress { errors, attempt, status: Status::New, node: rules.node, ..pick.entry.progress };
            record.progress = record.progress.merge(progress);
            // The host keeps a longer Retry-After by itself; the URL need not wait longer than any other.
            let asked_for = wait_ms.unwrap_or(0).min(rules.retry.wait_max_ms);
            let wait = jittered(wait.max(asked_for), &pick.entry.url, attempt);
            let entry = Entry { progress, ..pick.entry.clone() };
            let again = Some((now_unix_ms.saturating_add(wait), entry));
            Settlement { record, kind: OutcomeKind::Again, again, aside: None }
        }
        UrlVerdict::Retry { .. } | UrlVerdict::GiveUp => {
            let record = closed_keeping_mask(record, pick, Status::Crawled, UrlState::Error, rules);
            let kind = if failure == Failure::RobotsForbidden { OutcomeKind::Refused } else { OutcomeKind::Abandoned };
            if failure == Failure::AddressRefused {
                let aside = Some(entry_of_next_round(&record, pick, rules));
                return Settlement { record, kind: OutcomeKind::Refused, again: None, aside };
            }
            let again = next_round(&record, pick, now_unix_ms, rules);
            Settlement { record, kind, again, aside: None }
        }
    }
}

/// A page that a former round brought stays what it is; only its next round waits for other rules.
fn filtered(record: UrlRecord, pick: &Pick, rules: &OutcomeRules) -> Settlement {
    let brought = record.progress.status == Status::Processed && record.progress.round < pick.entry.progress.round;
    let record = if brought { record } else { closed(record, pick, Status::Crawled, UrlState::Disabled, rules) };
    let aside = Some(entry_of_next_round(&record, pick, rules));
    Settlement { record, kind: OutcomeKind::Refused, again: None, aside }
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
pub fn next_round(record: &UrlRecord, pick: &Pick, now_unix_ms: u64, rules: &OutcomeRules) -> Option<(u64, Entry)> {
    let period = rules.recrawl_period_ms?;
    let entry = entry_of_next_round(record, pick, rules);
    Some((now_unix_ms.saturating_add(jittered(period, &entry.url, 0)), entry))
}

fn entry_of_next_round(record: &UrlRecord, pick: &Pick, rules: &OutcomeRules) -> Entry {
    Entry {
        progress: record.progress.next_round(rules.node),
        validators: record.findings.as_ref().and_then(|found| found.validators.clone()),
        redirects: 0,
        ..pick.entry.clone()
    }
}

/// Up to a tenth more, from the URL itself: what failed together does not come back together, and a replay is the same.
fn jittered(wait_ms: u64, url: &crate::url::CanonicalUrl, attempt: u16) -> u64 {
    let hash = xxh3_64(url.as_str().as_bytes()) ^ u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    wait_ms + (wait_ms / 10).saturating_mul(hash % 1024) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::EntryKind;
    use crate::error_mask::ErrorBit;
    use crate::key::{DEFAULT_CRAWL, Order, QueueKey};
    use crate::record::Validators;
    use crate::url::{CanonicalUrl, UrlRules};

    const HOUR_MS: u64 = 3_600_000;

    fn rules(recrawl_period_ms: Option<u64>) -> OutcomeRules {
        OutcomeRules { retry: RetryRules::default(), recrawl_period_ms, node: NodeId::SOLE }
    }

    fn url() -> CanonicalUrl {
        CanonicalUrl::parse("http://a.example/x", &UrlRules::default()).unwrap()
    }

    fn record() -> UrlRecord {
        UrlRecord {
            url: url().as_str().to_owned(),
            progress: Progress::new(NodeId::SOLE),
            state: UrlState::Enabled,
            error_mask: ErrorMask::default(),
            depth: 1,
            priority: 100,
            parent: None,
            discovered_at: 0,
            findings: None,
        }
    }

    fn pick(progress: Progress) -> Pick {
        Pick {
            flight: 1,
            queue: QueueKey::new(DEFAULT_CRAWL, &url()),
            order: Order { priority: 100, depth: 1, sequence: 1 },
            entry: Entry { url: url(), kind: EntryKind::Page, progress, redirects: 0, validators: None },
        }
    }

    fn found(digest: u8) -> Box<Findings> {
        let validators = Validators::new(Some("\"tag\""), None);
        Box::new(Findings { http_code: 200, digest: [digest; 16], validators, ..Findings::default() })
    }

    #[test]
    fn a_page_is_processed_and_that_is_the_end_of_it() {
        let settled = settle(record(), &pick(record().progress), Ending::Answered(found(1)), 0, &rules(None));
        assert_eq!((settled.kind, settled.record.progress.status), (OutcomeKind::Stored, Status::Processed));
        assert!(settled.again.is_none());
        assert_eq!(settled.record.findings.unwrap().crawled, 1);
    }

    #[test]
    fn what_the_rules_of_a_site_made_of_a_page_is_told_apart() {
        let processed = |errors: ErrorMask, made, failed| {
            let ending = Ending::Processed { found: found(1), errors, made, failed };
            settle(record(), &pick(record().progress), ending, 0, &rules(Some(1)))
        };
        let good = processed(ErrorMask::NONE, true, false);
        assert_eq!((good.record.state, good.record.findings.unwrap().processed), (UrlState::Enabled, 1));
        let skipped = processed(ErrorBit::UnsupportedContentType.into(), false, false);
        assert_eq!((skipped.record.state, skipped.record.findings.unwrap().processed), (UrlState::Enabled, 0));
        let failed = processed(ErrorBit::MandatoryTemplate.into(), true, true);
        assert_eq!((failed.record.state, failed.record.progress.status), (UrlState::Error, Status::Processed));
        assert!(failed.record.error_mask.contains(ErrorBit::MandatoryTemplate));
        assert!(failed.again.is_some() && failed.kind == OutcomeKind::Stored, "its next round may go better");
    }

    #[test]
    fn rounds_count_changes_and_bring_validators_along() {
        let rules = rules(Some(HOUR_MS));
        let mut current = record();
        let mut entry = pick(current.progress).entry;
        for (round, (digest, kind)) in
            [(1, OutcomeKind::Stored), (1, OutcomeKind::Unchanged), (2, OutcomeKind::Stored)].into_iter().enumerate()
        {
            let pick = Pick { entry: entry.clone(), ..pick(current.progress) };
            let settled = settle(current, &pick, Ending::Answered(found(digest)), 0, &rules);
            assert_eq!(settled.kind, kind);
            let (at, next) = settled.again.expect("there is another round");
            assert!((HOUR_MS..=HOUR_MS * 11 / 10).contains(&at));
            assert_eq!(next.progress.round, round as u32 + 1);
            assert_eq!(next.validators.as_ref().unwrap().etag.as_deref(), Some("\"tag\""));
            (current, entry) = (settled.record, next);
        }
        let pick = Pick { entry, ..pick(current.progress) };
        let settled = settle(current, &pick, Ending::NotModified { at: 5, crawling_ms: 1 }, 0, &rules);
        assert_eq!(settled.kind, OutcomeKind::Unchanged);
        let found = settled.record.findings.unwrap();
        assert_eq!((found.crawled, found.changes, found.unchanged, found.crawled_at), (4, 1, 2, 5));
    }

    #[test]
    fn a_failure_is_tried_again_until_the_table_says_enough() {
        let (mut current, mut progress, mut tries) = (record(), record().progress, 0);
        loop {
            let pick = pick(progress);
            let settled = settle(current, &pick, Ending::Failed(Failure::Timeout, None, None), 0, &rules(None));
            tries += 1;
            current = settled.record;
            match settled.again {
                Some((at, entry)) => {
                    assert!(at >= RetryRules::default().wait_min_ms);
                    assert!(entry.progress > progress, "the lattice only goes up");
                    progress = entry.progress;
                }
                None => {
                    assert_eq!(settled.kind, OutcomeKind::Abandoned);
                    break;
                }
            }
        }
        assert_eq!(tries, RetryRules::default().attempts_max);
        assert_eq!((current.progress.status, current.state), (Status::Crawled, UrlState::Error));
        assert!(!current.error_mask.is_empty());
    }

    #[test]
    fn losses_of_our_own_do_not_use_up_the_urls_attempts() {
        let lost = Progress { attempt: 30, ..record().progress };
        let settled = settle(record(), &pick(lost), Ending::Failed(Failure::Timeout, None, None), 0, &rules(None));
        assert_eq!(settled.kind, OutcomeKind::Again);
    }

    #[test]
    fn what_the_server_asks_to_wait_is_waited() {
        let ending = Ending::Failed(Failure::Http(503), None, Some(HOUR_MS / 2));
        let (at, _) = settle(record(), &pick(record().progress), ending, 7, &rules(None)).again.unwrap();
        assert!(at >= 7 + HOUR_MS / 2);
    }

    #[test]
    fn a_failed_round_forgets_neither_content_nor_validators() {
        let first = settle(record(), &pick(record().progress), Ending::Answered(found(1)), 0, &rules(Some(1)));
        let (_, entry) = first.again.unwrap();
        let pick = Pick { entry, ..pick(first.record.progress) };
        let failed =
            settle(first.record, &pick, Ending::Failed(Failure::Http(404), Some(found(9)), None), 0, &rules(Some(1)));
        assert_eq!(failed.kind, OutcomeKind::Abandoned);
        let (_, entry) = failed.again.expect("it may come back");
        assert!(entry.validators.is_some());
        assert_eq!(failed.record.findings.unwrap().digest, [1; 16]);
    }

    #[test]
    fn robots_and_filter_refuse_without_a_request() {
        let forbidden = Ending::Failed(Failure::RobotsForbidden, None, None);
        let settled = settle(record(), &pick(record().progress), forbidden, 0, &rules(None));
        assert_eq!((settled.kind, settled.record.findings.unwrap().crawled), (OutcomeKind::Refused, 0));
        let settled = settle(record(), &pick(record().progress), Ending::Filtered, 0, &rules(Some(1)));
        assert_eq!((settled.kind, settled.record.state), (OutcomeKind::Refused, UrlState::Disabled));
        assert!(settled.again.is_none());
    }

    #[test]
    fn what_only_this_runs_rules_refuse_is_set_aside_for_another() {
        for ending in [Ending::Filtered, Ending::Failed(Failure::AddressRefused, None, None)] {
            let settled = settle(record(), &pick(record().progress), ending, 0, &rules(Some(1)));
            assert_eq!((settled.kind, settled.record.progress.status), (OutcomeKind::Refused, Status::Crawled));
            assert!(settled.again.is_none(), "not by itself");
            let aside = settled.aside.expect("it waits for other rules");
            assert!(aside.progress > settled.record.progress, "it can come up again");
        }
        let failed = Ending::Failed(Failure::RobotsForbidden, None, None);
        assert!(settle(record(), &pick(record().progress), failed, 0, &rules(None)).aside.is_none());
    }

    #[test]
    fn a_page_stays_a_page_when_its_next_round_is_set_aside() {
        let first = settle(record(), &pick(record().progress), Ending::Answered(found(1)), 0, &rules(Some(1)));
        let (_, entry) = first.again.unwrap();
        let pick = Pick { entry: entry.clone(), ..pick(first.record.progress) };
        let settled = settle(first.record.clone(), &pick, Ending::Filtered, 0, &rules(Some(1)));
        assert_eq!(settled.record, first.record);
        assert_eq!(settled.aside.unwrap().progress, entry.progress);
    }
}
