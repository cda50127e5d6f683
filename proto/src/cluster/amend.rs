//! What a person may do to a record, whatever the crawl does meanwhile.
//!
//! A change is a round of its own: the lattice then has it above everything that the crawl knew, and what is still in flight of an earlier round
//! settles nothing any more ([`Kept::is_beyond`]).

use super::copy::Kept;
use crate::batch::Pick;
use crate::error_mask::ErrorMask;
use crate::id::NodeId;
use crate::record::{Progress, Status, UrlState};

/// A change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amendment {
    /// Crawl it again.
    Renew,
    /// Forget what was found, and crawl it again.
    Clean,
    /// Do not crawl it any more; what was found stays.
    Disable,
    /// Delete it.
    Delete,
}

impl Kept {
    /// The record after a change that `node` makes; `None` if it is so already, or waits for just that.
    pub fn amended(mut self, amendment: Amendment, node: NodeId) -> Option<Kept> {
        let (status, state) = (self.record.progress.status, self.record.state);
        let waits = !self.is_closed() && state == UrlState::Enabled;
        let done = match amendment {
            Amendment::Renew => waits,
            Amendment::Clean => waits && self.record.findings.is_none(),
            Amendment::Disable => matches!(state, UrlState::Disabled | UrlState::Deleted),
            Amendment::Delete => state == UrlState::Deleted,
        };
        if done {
            return None;
        }
        let next = self.record.progress.next_round(node);
        let (status, state) = match amendment {
            Amendment::Renew | Amendment::Clean => (Status::New, UrlState::Enabled),
            Amendment::Disable if status == Status::Processed => (Status::Processed, UrlState::Disabled),
            Amendment::Disable => (Status::Crawled, UrlState::Disabled),
            Amendment::Delete => (Status::Crawled, UrlState::Deleted),
        };
        self.record.progress = Progress { status, ..next };
        self.record.state = state;
        if matches!(amendment, Amendment::Clean | Amendment::Delete) {
            self.record.findings = None;
        }
        if amendment != Amendment::Disable {
            self.record.error_mask = ErrorMask::NONE;
        }
        (self.redirects, self.due_unix_ms, self.recurs) = (0, 0, false);
        Some(self)
    }

    /// Whether it is in a later round than the one that `pick` fetches.
    pub fn is_beyond(&self, pick: &Pick) -> bool {
        self.record.progress.round > pick.entry.progress.round
    }
}

#[cfg(test)]
mod tests {
    use super::super::copy::tests::kept;
    use super::*;
    use crate::crawl::outcome::{Ending, OutcomeRules};
    use crate::crawl::retry::RetryRules;
    use crate::key::{DEFAULT_CRAWL, QueueKey, UrlKey};
    use crate::record::Findings;

    const ME: NodeId = NodeId(1);

    fn pick(kept: &Kept) -> Pick {
        let (_, entry) = kept.entry(ME).expect("it waits in its queue");
        let (queue, key) = (QueueKey::new(DEFAULT_CRAWL, &entry.url), UrlKey::new(DEFAULT_CRAWL, &entry.url));
        Pick { flight: 1, queue, order: kept.order(&key), entry }
    }

    fn crawled() -> Kept {
        let fresh = kept("http://a.example/", Progress::new(ME));
        let rules = OutcomeRules { retry: RetryRules::default(), recrawl_period_ms: Some(1_000), node: ME };
        let pick = pick(&fresh);
        let found = Box::new(Findings { http_code: 200, ..Findings::default() });
        fresh.settled(&pick, Ending::Answered(found), 5, &rules).kept
    }

    #[test]
    fn every_change_is_above_what_was_and_is_made_once() {
        for amendment in [Amendment::Renew, Amendment::Clean, Amendment::Disable, Amendment::Delete] {
            let before = crawled();
            let after = before.clone().amended(amendment, ME).expect("there is something to do");
            assert!(after.record.progress > before.record.progress, "{amendment:?}");
            assert_eq!(after.clone().amended(amendment, ME), None, "{amendment:?} again");
            let crawls = matches!(amendment, Amendment::Renew | Amendment::Clean);
            assert_eq!(after.entry(ME).is_some(), crawls, "{amendment:?}");
            let keeps = matches!(amendment, Amendment::Renew | Amendment::Disable);
            assert_eq!(after.record.findings.is_some(), keeps, "{amendment:?}");
        }
    }

    #[test]
    fn what_is_in_flight_settles_nothing_that_was_deleted_or_cleaned() {
        let waits = kept("http://a.example/", Progress::new(ME));
        let flight = pick(&waits);
        assert!(!waits.is_beyond(&flight));
        let deleted = waits.clone().amended(Amendment::Delete, ME).unwrap();
        assert!(deleted.is_beyond(&flight) && deleted.clone().selected(&flight, ME).is_none());
        let back = deleted.amended(Amendment::Renew, ME).expect("it is handed in again");
        assert_eq!(back.record.state, UrlState::Enabled);
        assert!(back.entry(ME).is_some() && back.is_beyond(&flight));
        assert_eq!(waits.amended(Amendment::Renew, ME), None, "it waits already");
    }
}
