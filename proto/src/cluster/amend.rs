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
    /// It was deleted, and its contents are gone too.
    Purge,
}

impl Kept {
    /// The record after a change that `node` makes; `None` if it is so already, or waits for just that.
    pub fn amended(mut self, amendment: Amendment, node: NodeId) -> Option<Kept> {
        let (status, state) = (self.record.progress.status, self.record.state);
        let waits = !self.is_closed() && state == UrlState::Enabled;
        let done = match amendment {
            Amendment::Renew => waits,
            Amendment::Clean => waits && self.record.findings.is_none(),
            Amendment::Disable => state == UrlState::Disabled || state.is_gone(),
            Amendment::Delete => state.is_gone(),
            Amendment::Purge => state != UrlState::Deleted,
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
            Amendment::Purge => (Status::Crawled, UrlState::Purged),
        };
        self.record.progress = Progress { status, ..next };
        self.record.state = state;
        if matches!(amendment, Amendment::Clean | Amendment::Delete | Amendment::Purge) {
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
    use crate::cluster::copy::RecordCopy;
    use crate::counters::HostCounters;
    use crate::crawl::outcome::{Ending, OutcomeRules};
    use crate::crawl::retry::RetryRules;
    use crate::key::{DEFAULT_CRAWL, QueueKey, UrlKey};
    use crate::record::Findings;
    use crate::url::{CanonicalUrl, UrlRules};
    use proptest::prelude::*;

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

    proptest! {
        /// People change a URL while batches with it run, on three replicas that hear of each write late, twice or in another order: a flight that began before a
        /// change settles nothing, whatever is deleted waits nowhere, all replicas end with the same, and counters are a recount.
        #[test]
        fn changes_race_with_batches_and_all_replicas_agree(steps in proptest::collection::vec((0..6u8, 0..3usize), 1..40), order in any::<u64>()) {
            let url = CanonicalUrl::parse("http://a.example/", &UrlRules::default()).unwrap();
            let key = UrlKey::new(DEFAULT_CRAWL, &url);
            let rules = OutcomeRules { retry: RetryRules::default(), recrawl_period_ms: None, node: ME };
            let first = kept("http://a.example/", Progress::new(ME));
            let mut replicas = vec![first.clone(); 3];
            let mut counters = [HostCounters::default(); 3];
            counters.iter_mut().for_each(|counters| counters.add(&first.record));
            let mut writes = vec![first];
            let mut flights: Vec<Pick> = Vec::new();
            let amendments = [Amendment::Renew, Amendment::Clean, Amendment::Disable, Amendment::Delete];
            for (step, at) in steps {
                let here = replicas[at].clone();
                let new = match step {
                    0 => here.entry(ME).map(|_| pick(&here)).and_then(|pick| {
                        let selected = here.clone().selected(&pick, ME);
                        flights.push(pick);
                        selected
                    }),
                    1 => flights.pop().filter(|flight| !here.is_beyond(flight)).map(|flight| {
                        here.clone().settled(&flight, Ending::Answered(Box::default()), 9, &rules).kept
                    }),
                    n => here.clone().amended(amendments[usize::from(n - 2)], NodeId(at as u64)),
                };
                let Some(new) = new else { continue };
                let (old, merged) = (here, merge(&key, &replicas[at], &new));
                counters[at].remove(&old.record);
                counters[at].add(&merged.record);
                replicas[at] = merged;
                writes.push(new);
                prop_assert!(!replicas[at].record.state.is_gone() || replicas[at].entry(ME).is_none(), "it is deleted and waits");
            }
            for (at, replica) in replicas.iter_mut().enumerate() {
                for number in 0..writes.len() * 2 {
                    let write = &writes[(order as usize).wrapping_mul(at * 2 + 1).wrapping_add(number * (at + 1)) % writes.len()];
                    *replica = merge(&key, replica, write);
                }
                writes.iter().for_each(|write| *replica = merge(&key, replica, write));
                let mut recount = HostCounters::default();
                recount.add(&replica.record);
                prop_assert_eq!(recount.known, u64::from(!replica.record.state.is_gone()));
            }
            prop_assert!(replicas.iter().all(|replica| *replica == replicas[0]));
        }
    }

    fn merge(key: &UrlKey, one: &Kept, other: &Kept) -> Kept {
        let copy = |kept: &Kept| RecordCopy::new(key.clone(), kept).unwrap();
        copy(one).merge(copy(other)).open().unwrap()
    }

    #[test]
    fn what_is_in_flight_settles_nothing_that_was_deleted_or_cleaned() {
        let waits = kept("http://a.example/", Progress::new(ME));
        let flight = pick(&waits);
        assert!(!waits.is_beyond(&flight));
        let deleted = waits.clone().amended(Amendment::Delete, ME).unwrap();
        let purged = deleted.clone().amended(Amendment::Purge, ME).unwrap();
        assert!(purged.record.state.is_gone() && purged.clone().amended(Amendment::Delete, ME).is_none());
        assert!(
            purged.amended(Amendment::Purge, ME).is_none() && waits.clone().amended(Amendment::Purge, ME).is_none()
        );
        assert!(deleted.is_beyond(&flight) && deleted.clone().selected(&flight, ME).is_none());
        let back = deleted.amended(Amendment::Renew, ME).expect("it is handed in again");
        assert_eq!(back.record.state, UrlState::Enabled);
        assert!(back.entry(ME).is_some() && back.is_beyond(&flight));
        assert_eq!(waits.amended(Amendment::Renew, ME), None, "it waits already");
    }
}
