//! What becomes of a record at each turn of its round, the same on every node that decides it: found, handed out, fetched, settled.

use super::copy::Kept;
use crate::batch::{Discovered, Entry, Pick};
use crate::crawl::outcome::{Ending, OutcomeKind, OutcomeRules, Settlement, settle};
use crate::id::{NodeId, UrlId};
use crate::record::{Findings, Progress, Status, UrlRecord, UrlState};

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
        let record = UrlRecord::discovered(found, parent, node, unix_ms);
        Kept { record, kind: found.kind, redirects: found.redirects, due_unix_ms: 0, recurs: false }
    }

    /// A URL whose content came with the page that named it: it is processed, and was never asked for.
    pub fn came_with(found: &Discovered, parent: UrlId, findings: Findings, unix_ms: u64, node: NodeId) -> Kept {
        let mut kept = Kept::discovered(found, Some(parent), unix_ms, node);
        kept.record.progress.status = Status::Processed;
        kept.record.findings = Some(Box::new(Findings { crawled: 0, processed: 1, ..findings }));
        kept
    }

    /// It is handed out; `None` if it has come further since it was queued, or is done after all: a holder that was taken for
    /// dead may settle what the next one has put up again.
    pub fn selected(mut self, pick: &Pick, node: NodeId) -> Option<Kept> {
        self.entry(node)?;
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

#[cfg(test)]
mod tests {
    use super::super::copy::tests::kept;
    use super::*;
    use crate::batch::EntryKind;
    use crate::key::{DEFAULT_CRAWL, QueueKey, UrlKey};
    use crate::url::{CanonicalUrl, UrlRules};

    fn pick(kept: &Kept, node: NodeId) -> Pick {
        let (_, entry) = kept.entry(node).expect("it waits in its queue");
        let (queue, key) = (QueueKey::new(DEFAULT_CRAWL, &entry.url), UrlKey::new(DEFAULT_CRAWL, &entry.url));
        Pick { flight: 1, queue, order: kept.order(&key), entry }
    }

    #[test]
    fn what_came_with_another_page_is_done_and_never_asked_for() {
        let url = CanonicalUrl::parse("http://a.example/entry", &UrlRules::default()).unwrap();
        let found = Discovered { url, kind: EntryKind::Page, depth: 2, priority: 7, redirects: 0 };
        let findings = Findings { size: 3, crawled: 9, ..Findings::default() };
        let kept = Kept::came_with(&found, UrlId([1; 16]), findings, 5, NodeId(1));
        assert!(kept.is_closed() && kept.entry(NodeId(1)).is_none());
        let findings = kept.record.findings.as_ref().unwrap();
        assert_eq!((findings.crawled, findings.processed, findings.size), (0, 1, 3));
        assert_eq!((kept.record.parent, kept.record.discovered_at), (Some(UrlId([1; 16])), 5));
    }

    #[test]
    fn what_its_former_holder_settled_after_all_is_not_fetched_again() {
        let (former, next) = (NodeId(1), NodeId(2));
        let crawled = Progress { status: Status::Crawled, ..Progress::new(former) };
        let left_behind = kept("http://a.example/", crawled);
        let put_up_again = pick(&left_behind, next);
        assert!(left_behind.selected(&put_up_again, next).is_some());
        let settled = kept("http://a.example/", Progress { status: Status::Processed, ..crawled });
        assert!(settled.selected(&put_up_again, next).is_none());
    }
}
