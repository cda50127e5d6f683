//! What happened to a URL: worked out from its record before and after, wherever a copy of it is merged.
//!
//! Only sites that ask for it have a history (their property STATS_LOG_ENABLED or STATS_FREQ_ENABLED). Each replica writes down what it saw; who asks puts
//! that together: the same step of the same round is one event, at the earliest time that somebody saw it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::SiteDefinition;
use crate::date;
use crate::id::Round;
use crate::record::{Status, UrlRecord, UrlState};

/// Codes of events that are no statuses, by the numbers of the original.
pub mod code {
    /// It was inserted.
    pub const INSERT: u8 = 20;
    /// It was deleted.
    pub const DELETE: u8 = 21;
    /// Somebody changed it.
    pub const UPDATE: u8 = 22;
    /// What was found of it was forgotten.
    pub const CLEANUP: u8 = 23;
    /// It was deleted for its age.
    pub const AGING: u8 = 24;
    /// A version of its content was stored.
    pub const CONTENT: u8 = 25;
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Event {
    /// Its round.
    pub round: Round,
    /// What happened: a code, or a status.
    pub code: u8,
    /// When, Unix milliseconds.
    pub unix_ms: u64,
    /// HTTP status, if there was an answer.
    pub http_code: u16,
}

/// What happened between two copies of a record.
pub fn events(was: Option<&UrlRecord>, now: &UrlRecord, unix_ms: u64) -> Vec<Event> {
    let http_code = now.findings.as_ref().map_or(0, |found| found.http_code);
    let event = |code: u8| Event { round: now.progress.round, code, unix_ms, http_code };
    let mut events = Vec::new();
    let Some(was) = was else {
        events.push(event(code::INSERT));
        events.push(event(now.progress.status as u8));
        return events;
    };
    let (before, after) = (was.progress, now.progress);
    if now.state.is_gone() {
        if !was.state.is_gone() {
            events.push(event(code::DELETE));
        }
        return events;
    }
    let by_hand = after.round > before.round && after.status == Status::New;
    if by_hand && was.findings.is_some() && now.findings.is_none() {
        events.push(event(code::CLEANUP));
    } else if by_hand || (now.state == UrlState::Disabled && was.state != UrlState::Disabled) {
        events.push(event(code::UPDATE));
    }
    if (before.round, before.status) != (after.round, after.status) {
        events.push(event(after.status as u8));
    }
    if after.status == Status::Processed && (before.round, before.status) != (after.round, after.status) {
        events.push(event(code::CONTENT));
    }
    events
}

/// What several nodes saw, as one: in the order of time.
pub fn together(seen: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut first: BTreeMap<(Round, u8), Event> = BTreeMap::new();
    for event in seen {
        let known = first.entry((event.round, event.code)).or_insert(event);
        if event.unix_ms < known.unix_ms {
            *known = event;
        }
    }
    let mut events: Vec<Event> = first.into_values().collect();
    events.sort_by_key(|event| (event.unix_ms, event.round, event.code));
    events
}

impl Event {
    /// As it is told.
    pub fn json(&self) -> Json {
        json!({"opCode": self.code, "oDate": date::format(self.unix_ms), "round": self.round, "httpCode": self.http_code})
    }
}

/// How often things happened to a URL, under the names of the original.
pub fn frequencies(events: &[Event]) -> Json {
    let count = |codes: &[u8]| events.iter().filter(|event| codes.contains(&event.code)).count();
    json!({
        "FIns": count(&[code::INSERT]),
        "FDel": count(&[code::DELETE]),
        "FUpd": count(&[code::UPDATE, code::CLEANUP]),
        "FNew": count(&[Status::New as u8]),
        "FCrawled": count(&[Status::Crawled as u8]),
        "FProcessed": count(&[Status::Processed as u8]),
        "FAged": count(&[code::AGING]),
        "FDeleted": count(&[code::DELETE, code::AGING]),
        "FPurged": 0,
    })
}

impl SiteDefinition {
    /// Whether it is written down what happens to its URLs.
    pub fn has_history(&self) -> bool {
        let on = |name: &str| self.site.property(name).is_some_and(|value| !matches!(value.trim(), "" | "0"));
        !self.deleted && (on("STATS_LOG_ENABLED") || on("STATS_FREQ_ENABLED"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::amend::Amendment;
    use crate::cluster::copy::tests::kept;
    use crate::id::NodeId;
    use crate::record::{Findings, Progress};

    fn codes(was: Option<&UrlRecord>, now: &UrlRecord) -> Vec<u8> {
        events(was, now, 7).iter().map(|event| event.code).collect()
    }

    #[test]
    fn every_step_of_a_url_is_an_event() {
        let fresh = kept("http://a.example/", Progress::new(NodeId(1)));
        assert_eq!(codes(None, &fresh.record), [code::INSERT, 1]);
        let mut done = fresh.clone();
        done.record.progress.status = Status::Processed;
        done.record.findings = Some(Box::new(Findings { http_code: 200, ..Findings::default() }));
        assert_eq!(codes(Some(&fresh.record), &done.record), [7, code::CONTENT]);
        assert!(codes(Some(&done.record), &done.record).is_empty());
        let after = |amendment| done.clone().amended(amendment, NodeId(1)).unwrap().record;
        assert_eq!(codes(Some(&done.record), &after(Amendment::Renew)), [code::UPDATE, 1]);
        assert_eq!(codes(Some(&done.record), &after(Amendment::Clean)), [code::CLEANUP, 1]);
        assert_eq!(codes(Some(&done.record), &after(Amendment::Delete)), [code::DELETE]);
        assert_eq!(codes(Some(&done.record), &after(Amendment::Disable))[0], code::UPDATE);
    }

    #[test]
    fn what_three_replicas_saw_is_told_once_and_counted() {
        let event = |round, code, unix_ms| Event { round, code, unix_ms, http_code: 0 };
        let seen = [event(0, 7, 30), event(0, 20, 11), event(0, 20, 10), event(1, 7, 50), event(0, 7, 31)];
        let told = together(seen);
        assert_eq!(told, [event(0, 20, 10), event(0, 7, 30), event(1, 7, 50)]);
        let counted = frequencies(&told);
        assert_eq!((&counted["FIns"], &counted["FProcessed"], &counted["FDel"]), (&json!(1), &json!(2), &json!(0)));
    }
}
