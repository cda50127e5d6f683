//! I2: the starts of two requests to a host are at least its crawl-delay apart, whoever makes them.
//!
//! Requests for robots.txt may come sooner while a new holder of the slot has not read it, from which it learns the crawl-delay,
//! or has read it for another crawl only; but never sooner than the delay that the cluster keeps to every host.
//!
//! Harm: a slot that changes hands, or a clock that runs fast, lets a site be asked twice as often as it allows.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::sites::SiteEpoch;
use crate::world::trace::{Event, FetchEnd, FetchKind, Host};

/// That of a site, or the one that is always there.
type Crawl = Option<SiteEpoch>;

/// See the module.
#[derive(Default)]
pub struct CrawlDelayKept {
    last_start: BTreeMap<Host, (Micros, NodeId)>,
    /// Requests for the robots.txt of the host they go to.
    reading: BTreeMap<u64, (Slot, Host, Crawl)>,
    /// Hosts whose robots.txt was read by who holds their slot, and for which crawl.
    known: BTreeSet<(Slot, Host, Crawl)>,
}

impl Invariant for CrawlDelayKept {
    const NAME: &'static str = "I2 crawl_delay_kept";

    fn see(&mut self, _before: &Oracle, at: Micros, event: &Event) -> Result<(), Broken> {
        let start = match event {
            Event::LeaseHeld { slot, acquired: true, .. } => {
                self.known.retain(|(of, ..)| of != slot);
                self.reading.retain(|_, (of, ..)| of != slot);
                return Ok(());
            }
            Event::FetchEnded { fetch, end, .. } => {
                let read = self.reading.remove(fetch).filter(|_| *end == FetchEnd::Answered);
                self.known.extend(read);
                return Ok(());
            }
            Event::FetchStarted(start) => start,
            _ => return Ok(()),
        };
        if start.own_robots {
            self.reading.insert(start.fetch, (start.slot, start.host, start.site));
        }
        let Some((last, by)) = self.last_start.insert(start.host, (at, start.node)) else { return Ok(()) };
        let learns = start.kind == FetchKind::Robots && !self.known.contains(&(start.slot, start.host, start.site));
        let delay = if learns { start.least_delay } else { start.crawl_delay };
        if at - last >= delay {
            return Ok(());
        }
        let what =
            format!("host {}: asked {} us after node {} did, and its delay is {delay} us", start.host, at - last, by.0);
        Broken::on(start.node, what)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, SLOT, fetch, show};
    use super::*;
    use crate::world::trace::FetchStart;

    #[test]
    fn starts_a_delay_apart_are_fine() {
        let events = [(0, fetch(1, A, 5)), (999, fetch(2, A, 6)), (1_000, fetch(3, B, 5))];
        let events = events.map(|(at, start)| (at, Event::FetchStarted(start)));
        assert_eq!(show(&mut CrawlDelayKept::default(), events), Ok(()));
    }

    #[test]
    fn a_microsecond_too_early_breaks_it() {
        let events = [(0, fetch(1, A, 5)), (999, fetch(3, B, 5))];
        let events = events.map(|(at, start)| (at, Event::FetchStarted(start)));
        assert!(show(&mut CrawlDelayKept::default(), events).is_err());
    }

    fn robots(number: u64) -> Event {
        Event::FetchStarted(FetchStart { kind: FetchKind::Robots, own_robots: true, ..fetch(number, B, 5) })
    }

    fn ended(fetch: u64, end: FetchEnd) -> Event {
        Event::FetchEnded { fetch, node: B, end }
    }

    #[test]
    fn who_has_not_read_robots_may_ask_for_it_sooner() {
        let judge = |events: &[(Micros, Event)]| show(&mut CrawlDelayKept::default(), events.iter().cloned());
        let held = |acquired| Event::LeaseHeld { node: B, slot: SLOT, until: 9_000, acquired };
        let page = |number| Event::FetchStarted(fetch(number, B, 5));
        let before = [(0, page(1)), (0, held(true))];
        let then = |more: &[(Micros, Event)]| judge(&[&before[..], more].concat());
        assert_eq!(then(&[(100, robots(2)), (150, ended(2, FetchEnd::Failed)), (200, robots(3))]), Ok(()));
        assert!(then(&[(99, robots(2))]).is_err(), "sooner than the cluster asks anybody");
        assert!(then(&[(100, page(2))]).is_err(), "a page");
        let read = [(100, robots(2)), (150, ended(2, FetchEnd::Answered))];
        let after = |again: Event| then(&[&read[..], &[(900, held(false)), (901, again)]].concat());
        assert!(after(robots(3)).is_err(), "it was read");
        assert_eq!(then(&[&read[..], &[(900, held(true)), (901, robots(3))]].concat()), Ok(()));
        let other = Some(SiteEpoch { site: 0, epoch: 0 });
        let mut again = FetchStart { kind: FetchKind::Robots, own_robots: true, site: other, ..fetch(3, B, 5) };
        assert_eq!(
            then(&[&read[..], &[(200, Event::FetchStarted(again.clone()))]].concat()),
            Ok(()),
            "for another crawl"
        );
        again.site = None;
        assert!(then(&[&read[..], &[(200, Event::FetchStarted(again))]].concat()).is_err());
    }
}
