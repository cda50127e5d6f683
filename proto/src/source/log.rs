//! What is written down about sources: runs of generators, what was refused, what was dispatched, and what somebody should look at.

use serde::{Deserialize, Serialize};

use super::entry::{LOG, NEVER_S, words};
use crate::clients::ask::Item;

/// Longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 10_240;
/// Longest content, in characters: a URI of the greatest length.
pub const CONTENT_CHARS_MAX: usize = super::URI_CHARS_MAX;
/// Longest name of a host, in characters.
pub const HOST_CHARS_MAX: usize = 16;
/// For how long entries are kept, in milliseconds.
pub const KEPT_FOR_MS: u64 = 30 * 24 * 3_600_000;

/// The queue of entries of no job.
pub const GENERAL: &str = "-";
/// Longest entry, in bytes; one that is longer loses its content.
const ENTRY_BYTES_MAX: usize = 48 << 10;
/// What is left of its reason, in characters.
const SHORT_REASON_CHARS: usize = 1_000;

/// Kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// A run of a generator.
    Generator,
    /// Something was refused or failed.
    Error,
    /// An entry of the cron fell due.
    Cron,
    /// Somebody should look.
    Alert,
}

impl LogKind {
    /// All of them.
    pub const ALL: [LogKind; 4] = [LogKind::Generator, LogKind::Error, LogKind::Cron, LogKind::Alert];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            LogKind::Generator => "generator",
            LogKind::Error => "error",
            LogKind::Cron => "cron",
            LogKind::Alert => "alert",
        }
    }

    /// The kind of this name.
    pub fn of(name: &str) -> Option<LogKind> {
        LogKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// What it is.
    pub kind: LogKind,
    /// What happened, in one word: ERROR_URI, TIMEOUT …
    pub name: String,
    /// The job, if it is about one.
    pub job: Option<String>,
    /// The generator, likewise.
    pub generator: Option<String>,
    /// 1 failed, 2 went well.
    pub status: u8,
    /// Why.
    pub failed_reason: String,
    /// What it is about.
    pub content: String,
    /// Bytes that came out.
    pub content_bytes: u64,
    /// How long it took, in milliseconds.
    pub spend_msecs: u64,
    /// Where.
    pub hostname: String,
    /// When, Unix milliseconds.
    pub at_ms: u64,
}

/// Status of an entry.
pub mod log_status {
    /// It failed.
    pub const FAILED: u8 = 1;
    /// It went well.
    pub const OK: u8 = 2;
}

impl LogEntry {
    /// An entry of nothing but its kind, its name and when.
    pub fn new(kind: LogKind, name: &str, at_ms: u64) -> LogEntry {
        LogEntry {
            kind,
            name: name.to_owned(),
            job: None,
            generator: None,
            status: if matches!(kind, LogKind::Error | LogKind::Alert) { log_status::FAILED } else { log_status::OK },
            failed_reason: String::new(),
            content: String::new(),
            content_bytes: 0,
            spend_msecs: 0,
            hostname: String::new(),
            at_ms,
        }
    }

    /// With texts no longer than they may be.
    pub fn cut(mut self) -> LogEntry {
        let cut = |text: &mut String, chars: usize| {
            if let Some((at, _)) = text.char_indices().nth(chars) {
                text.truncate(at);
            }
        };
        cut(&mut self.failed_reason, REASON_CHARS_MAX);
        cut(&mut self.content, CONTENT_CHARS_MAX);
        cut(&mut self.hostname, HOST_CHARS_MAX);
        self
    }
}

/// The record of an entry; `unique` tells it from all others of its millisecond.
pub fn item(entry: LogEntry, unique: u64) -> Item {
    let mut entry = entry.cut();
    let text = |entry: &LogEntry| serde_json::to_string(entry).expect("texts and numbers");
    let mut kept = text(&entry);
    if kept.len() > ENTRY_BYTES_MAX {
        entry.content.clear();
        entry.failed_reason = entry.failed_reason.chars().take(SHORT_REASON_CHARS).collect();
        kept = text(&entry);
    }
    Item {
        crawl: LOG.to_owned(),
        url: format!("{:013}-{}-{unique:016x}", entry.at_ms, entry.kind.name()),
        key: entry.job.unwrap_or_else(|| GENERAL.to_owned()),
        metadata: words([("entry", Some(kept))]),
        date_s: Some(NEVER_S),
    }
}

/// A number that follows from a name.
pub fn unique(name: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::identity::ITEM_BYTES_MAX;

    #[test]
    fn texts_are_cut_where_a_letter_ends() {
        let entry = LogEntry {
            failed_reason: "é".repeat(20_000),
            hostname: "é".repeat(20),
            ..LogEntry::new(LogKind::Error, "ERROR_URI", 1)
        };
        let cut = entry.cut();
        assert_eq!((cut.failed_reason.chars().count(), cut.hostname.chars().count()), (10_240, 16));
        assert_eq!(LogKind::of("alert"), Some(LogKind::Alert));
        let text = serde_json::to_string(&cut).unwrap();
        assert_eq!(serde_json::from_str::<LogEntry>(&text).unwrap(), cut);
    }

    #[test]
    fn the_longest_entry_fits_into_a_record() {
        let worst = LogEntry {
            content: "\u{1}".repeat(CONTENT_CHARS_MAX),
            failed_reason: "\u{1}".repeat(REASON_CHARS_MAX),
            ..LogEntry::new(LogKind::Error, "ERROR_URI", 7)
        };
        let item = item(worst, unique("run"));
        assert!(crate::clients::record::ClientUrl::bytes(&item.url, &item.metadata) < ITEM_BYTES_MAX);
        assert_eq!((item.key.as_str(), &item.url[..20]), (GENERAL, "0000000000007-error-"));
    }
}
