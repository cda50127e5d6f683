//! Logs: one record an entry, in the queue of its job; entries of no job have a queue of their own. What is older than a month is forgotten.

use proto::clients::ask::{Act, Ask, Taken, Told};
use proto::cluster::slot_set::SlotSet;
use proto::date;
use proto::source::entry::MARKS_KEPT_FOR_MS;
use proto::source::log::{GENERAL, KEPT_FOR_MS, LogEntry, LogKind, item};
use serde_json::{Value as Json, json};
use tracing::{error, warn};

use super::super::Shared;
use super::{LOG, RUNS, hex, page, word};
use crate::doors::frontier::desk::Desk;

/// Entries that are looked at to show the newest.
const LOOKED_AT_MAX: usize = 200_000;

impl Shared {
    /// Writes entries down; what cannot be kept is at least in the log of the node.
    pub(super) async fn log(&self, desk: &Desk, entries: Vec<LogEntry>) {
        let mut items = Vec::with_capacity(entries.len());
        for entry in entries {
            if entry.kind == LogKind::Alert {
                error!(name = entry.name, job = entry.job, reason = entry.failed_reason, "alert of sources");
            }
            let unique = self.sources.unique(&self.me, entry.at_ms);
            items.push(item(LogEntry { hostname: self.sources.hostname.clone(), ..entry }, unique));
        }
        let lost = desk.put(items).await.iter().filter(|taken| **taken != Taken::Kept).count();
        if lost > 0 {
            warn!(lost, "entries of a log are on too few disks");
        }
    }

    /// Entries of a job, or of none, the newest first.
    pub(super) async fn log_list(
        &self,
        desk: &Desk,
        job: Option<&str>,
        kind: Option<&str>,
        limit: u32,
    ) -> Result<Json, String> {
        let kind = match kind {
            None => None,
            Some(name) => Some(LogKind::of(name).ok_or_else(|| {
                let kinds: Vec<&str> = LogKind::ALL.iter().map(|kind| kind.name()).collect();
                format!("there is no log {name:?}; there are: {}", kinds.join(", "))
            })?),
        };
        let key = match job {
            Some(name) => self.sources.named(name)?.0.id.clone(),
            None => GENERAL.to_owned(),
        };
        let (mut entries, mut after, mut seen): (Vec<(String, LogEntry)>, Option<Vec<u8>>, usize) = Default::default();
        let limit = limit as usize;
        loop {
            let (told, next) = page(desk, LOG, &key, after, u64::MAX).await?;
            seen += told.len();
            for told in told {
                let entry = word(&told, "entry").and_then(|text| serde_json::from_str::<LogEntry>(&text).ok());
                let Some(entry) = entry.filter(|entry| kind.is_none_or(|kind| entry.kind == kind)) else { continue };
                entries.push((told.url, entry));
            }
            if entries.len() > limit.max(1_000) * 2 {
                entries.sort_unstable_by(|one, other| other.0.cmp(&one.0));
                entries.truncate(limit);
            }
            after = next;
            if after.is_none() || seen >= LOOKED_AT_MAX {
                break;
            }
        }
        entries.sort_unstable_by(|one, other| other.0.cmp(&one.0));
        entries.truncate(limit);
        Ok(entries.into_iter().map(|(id, entry)| row(id, &entry)).collect())
    }

    /// Some entries of a job, or of none, and where to go on.
    pub(super) async fn log_page(
        &self,
        desk: &Desk,
        job: Option<&str>,
        after: Option<Vec<u8>>,
    ) -> Result<Json, String> {
        let key = match job {
            Some(name) => self.sources.named(name)?.0.id.clone(),
            None => GENERAL.to_owned(),
        };
        let (told, next) = page(desk, LOG, &key, after, u64::MAX).await?;
        let entry = |told: &Told| Some(row(told.url.clone(), &serde_json::from_str(&word(told, "entry")?).ok()?));
        let entries: Vec<Json> = told.iter().filter_map(entry).collect();
        Ok(json!({"entries": entries, "next": next.map(hex)}))
    }

    /// Forgets entries of a job, or of none, that are a month old, and marks of its runs that nobody needs any more.
    pub(super) async fn forget_old(&self, desk: &Desk, job: Option<&str>, now_ms: u64) {
        let key = job.unwrap_or(GENERAL);
        for (crawl, kept_for_ms) in [(LOG, KEPT_FOR_MS), (RUNS, MARKS_KEPT_FOR_MS)] {
            let act = Act::Purge {
                slots: SlotSet::default(),
                crawl: crawl.to_owned(),
                key: Some(key.to_owned()),
                cutoff_ms: now_ms.saturating_sub(kept_for_ms),
                after: None,
            };
            if let Err(error) = desk.ask_owner(crawl, key, Ask::Act(act)).await {
                warn!(%error, crawl, "old entries stay for now");
            }
        }
    }
}

fn row(id: String, entry: &LogEntry) -> Json {
    let mut row = json!(entry);
    row["_id"] = json!(id);
    row["add_datetime"] = json!(date::format(entry.at_ms));
    row
}
