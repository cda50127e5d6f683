//! What becomes of a record at each turn of its round, the same on every node that decides it: found, handed out, fetched, settled.

use super::copy::Kept;
use crate::batch::{Discovered, Entry, Pick};
use crate::crawl::outcome::{Ending, OutcomeKind, OutcomeRules, Settlement, settle};
use crate::error_mask::ErrorMask;
use crate::id::{NodeId, UrlId};
use crate::record::{Progress, Status, UrlRecord, UrlState};

/// What became of a record whose fetch ended.
#[derive(Clone, Debug)]
pub struct Turned {
    /// The record.
    pub kept: Kept,
    /// How it ended.
    pub kind: OutcomeKind,
    /// What comes up when a later run's rules admit it.
    pub aside: Option<Entry>,
}

impl Kept {
    /// A URL that `parent` named, or nobody did.
    pub fn discovered(found: &Discovered, parent: Option<UrlId>, unix_ms: u64, node: NodeId) -> Kept {
        let record = UrlRecord {
            url: found.url.as_str().to_owned(),
            progress: Progress::new(node),
            state: UrlState::Enabled,
            error_mask: ErrorMask::default(),
            depth: found.depth,
            priority: found.priority,
            parent,
            discovered_at: unix_ms,
            findings: None,
        };
        Kept { record, kind: found.kind, redirects: found.redirects, due_unix_ms: 0, recurs: false }
    }

    /// It is handed out; `None` if it has come further since it was queued.
    pub fn selected(mut self, pick: &Pick, node: NodeId) -> Option<Kept> {
        let progress = Progress { status: Status::SelectedToCrawl, node, ..pick.entry.progress };
        if self.record.progress >= progress {
            return None;
        }
        self.record.progress = progress;
        self.due_unix_ms = 0;
        Some(self)
    }

    /// Its content is stored, and its links are not kept yet.
    pub fn crawled(mut self, pick: &Pick, node: NodeId) -> Kept {
        let crawled = Progress { status: Status::Crawled, node, ..pick.entry.progress };
        self.record.progress = self.record.progress.merge(crawled);
        self
    }

    /// Its fetch ended.
    pub fn settled(self, pick: &Pick, ending: Ending, unix_ms: u64, rules: &OutcomeRules) -> Turned {
        let Settlement { record, kind, again, aside } = settle(self.record, pick, ending, unix_ms, rules);
        let recurs = again.is_some() && kind != OutcomeKind::Again;
        let redirects = if recurs { 0 } else { self.redirects };
        let due_unix_ms = again.map_or(0, |(at, _)| at);
        Turned { kept: Kept { record, kind: self.kind, redirects, due_unix_ms, recurs }, kind, aside }
    }

    /// Whether it is certainly on W disks: before it was fetched it was SELECTED there. What was refused without a fetch never was.
    pub fn is_widely_kept(&self) -> bool {
        self.record.progress.status >= Status::Crawled && self.record.state == UrlState::Enabled
    }
}
