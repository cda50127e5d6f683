//! I6: a URL is answered at most once per acquisition of its slot's lease, plus once per batch with it that was lost. Simulated
//! crawls recrawl nothing: a later round, too, begins only for what was lost.
//!
//! Whoever lost its disk may have to serve before the others could tell what they know, and takes what it hears of for new; what repair then brings may be a fetch
//! that was never finished, and is made again. So its acquisitions count twice (seed 710000086).
//!
//! Harm: pages are fetched again and again though they were fetched well: it costs the sites, and a crawl that does it never ends.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::{Slot, UrlId};

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::{Event, FetchEnd, FetchKind};

/// See the module.
#[derive(Default)]
pub struct FewRedundantFetches {
    under_way: BTreeMap<u64, (UrlId, Slot)>,
    answered: BTreeMap<UrlId, u32>,
    acquisitions: BTreeMap<Slot, u32>,
    losses: BTreeMap<UrlId, u32>,
    redundant: u64,
}

impl FewRedundantFetches {
    /// Answers beyond the first of a URL.
    pub fn redundant(&self) -> u64 {
        self.redundant
    }
}

impl Invariant for FewRedundantFetches {
    const NAME: &'static str = "I6 few_redundant_fetches";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::LeaseHeld { node, slot, acquired: true, .. } => {
                let counts = if before.disks_lost.contains(node) { 2 } else { 1 };
                *self.acquisitions.entry(*slot).or_default() += counts;
            }
            Event::BatchLost { urls, .. } => {
                for url in urls {
                    *self.losses.entry(*url).or_default() += 1;
                }
            }
            Event::FetchStarted(start) if start.kind == FetchKind::Page => {
                self.under_way.insert(start.fetch, (start.url, start.slot));
            }
            Event::FetchEnded { fetch, node, end } => {
                let Some((url, slot)) = self.under_way.remove(fetch) else { return Ok(()) };
                if *end != FetchEnd::Answered {
                    return Ok(());
                }
                let answered = self.answered.entry(url).or_default();
                *answered += 1;
                self.redundant += u64::from(*answered > 1);
                let acquisitions = self.acquisitions.get(&slot).copied().unwrap_or(0).max(1);
                let losses = self.losses.get(&url).copied().unwrap_or(0);
                if *answered > acquisitions + losses {
                    let what = format!("url {url} was answered {answered} times");
                    let why = format!("over {acquisitions} acquisitions of slot {} and {losses} lost batches", slot.0);
                    return Broken::on(*node, format!("{what} {why}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::id::BatchId;

    use super::super::testing::{A, B, SLOT, fetch, show, url};
    use super::*;

    fn answered(number: u64) -> [Event; 2] {
        let end = Event::FetchEnded { fetch: number, node: A, end: FetchEnd::Answered };
        [Event::FetchStarted(fetch(number, A, 5)), end]
    }

    fn judge(events: impl IntoIterator<Item = Event>) -> (Result<(), Broken>, u64) {
        let mut invariant = FewRedundantFetches::default();
        let judged = show(&mut invariant, events.into_iter().map(|event| (0, event)));
        (judged, invariant.redundant())
    }

    #[test]
    fn one_more_per_acquisition_or_loss_is_fine() {
        let held = |node| Event::LeaseHeld { node, slot: SLOT, until: 9, acquired: true };
        let events = [held(A)].into_iter().chain(answered(1)).chain([held(B)]).chain(answered(2));
        assert_eq!(judge(events), (Ok(()), 1));
        let batch = BatchId { node: A, boot: 0, number: 1 };
        let lost = Event::BatchLost { batch, node: A, urls: vec![url(1)] };
        let events = [held(A)].into_iter().chain(answered(1)).chain([lost]).chain(answered(2));
        assert_eq!(judge(events), (Ok(()), 1));
    }

    #[test]
    fn whoever_lost_its_disk_may_fetch_what_it_hears_of_and_what_it_is_told_of() {
        let lost = Event::DiskWiped { node: A };
        let held = Event::LeaseHeld { node: A, slot: SLOT, until: 9, acquired: true };
        let events = [lost, held].into_iter().chain(answered(1)).chain(answered(2));
        assert_eq!(judge(events.clone()), (Ok(()), 1));
        assert!(judge(events.chain(answered(3))).0.is_err());
    }

    #[test]
    fn a_second_answer_without_a_reason_breaks_it() {
        let held = Event::LeaseHeld { node: A, slot: SLOT, until: 9, acquired: true };
        let renewed = Event::LeaseHeld { node: A, slot: SLOT, until: 19, acquired: false };
        assert!(judge([held, renewed].into_iter().chain(answered(1)).chain(answered(2))).0.is_err());
    }

    #[test]
    fn a_later_round_is_no_reason() {
        let held = Event::LeaseHeld { node: A, slot: SLOT, until: 9, acquired: true };
        let [mut again, end] = answered(2);
        if let Event::FetchStarted(start) = &mut again {
            start.round = 1;
        }
        assert!(judge([held].into_iter().chain(answered(1)).chain([again, end])).0.is_err());
    }
}
