//! I15: nothing is fetched that robots.txt forbids, by the rules that the host has served to the cluster.
//!
//! Harm: the crawler goes where it was asked not to go. A host whose rules could not be had is not asked for pages at all.

use proto::crawl::politeness::Micros;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::{Event, FetchKind};

/// See the module.
#[derive(Default)]
pub struct RobotsObeyed;

impl Invariant for RobotsObeyed {
    const NAME: &'static str = "I15 robots_obeyed";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::FetchStarted(start) if start.kind == FetchKind::Page && !start.permitted => {
                Broken::on(start.node, format!("host {} forbids url {}", start.host, start.url))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, fetch, show};
    use super::*;
    use crate::world::trace::FetchStart;

    fn judge(start: FetchStart) -> Result<(), Broken> {
        show(&mut RobotsObeyed, [(0, Event::FetchStarted(start))])
    }

    #[test]
    fn what_is_allowed_and_the_rules_themselves_are_fine() {
        assert_eq!(judge(fetch(1, A, 5)), Ok(()));
        assert_eq!(judge(FetchStart { kind: FetchKind::Robots, permitted: false, ..fetch(1, A, 5) }), Ok(()));
    }

    #[test]
    fn what_is_forbidden_breaks_it() {
        assert!(judge(FetchStart { permitted: false, ..fetch(1, A, 5) }).is_err());
    }
}
