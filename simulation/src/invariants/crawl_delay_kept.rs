//! I2: the starts of two requests to a host are at least its crawl-delay apart, whoever makes them.
//!
//! Harm: a slot that changes hands, or a clock that runs fast, lets a site be asked twice as often as it allows.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::{Event, Host};

/// See the module.
#[derive(Default)]
pub struct CrawlDelayKept {
    last_start: BTreeMap<Host, (Micros, NodeId)>,
}

impl Invariant for CrawlDelayKept {
    const NAME: &'static str = "I2 crawl_delay_kept";

    fn see(&mut self, _before: &Oracle, at: Micros, event: &Event) -> Result<(), Broken> {
        let Event::FetchStarted(start) = event else { return Ok(()) };
        let last = self.last_start.insert(start.host, (at, start.node));
        match last {
            Some((last, by)) if at - last < start.crawl_delay => {
                let what = format!(
                    "host {}: asked {} us after node {} did, and its delay is {} us",
                    start.host,
                    at - last,
                    by.0,
                    start.crawl_delay
                );
                Broken::on(start.node, what)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, fetch, show};
    use super::*;

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
}
