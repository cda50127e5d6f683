//! I15: nothing is fetched that robots.txt forbids, by what the holder of the slot was told last: a file that forbids everything counts from the moment in which it is there,
//! and so does that the file could not be had. Crawls read the file each for itself.
//!
//! Harm: the crawler goes where it was asked not to go. A host whose rules could not be had is not asked for pages at all.
//!
//! What a holder heard in an earlier tenure it has from its own disk, where the last that was said need not be: then anything counts that it ever heard. The same holds
//! when an actor of it died, and when somebody set its wall clock: how long a file is believed goes by that, and one that had run out counts again on a clock that was set back
//! (seed 9001982). Whoever is asked to fetch while nobody holds the slot has it from a former holder, whoever that was.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::sites::SiteEpoch;
use crate::world::trace::{Event, FetchKind, FetchStart, Host};

/// See the module.
#[derive(Default)]
pub struct RobotsObeyed {
    tenures: BTreeMap<(Slot, NodeId), Tenure>,
    /// Requests for robots.txt under way, with the tenure in which they went out.
    asked: BTreeMap<u64, (FetchStart, u64)>,
    heard: BTreeMap<(Host, Option<SiteEpoch>, NodeId), Heard>,
}

#[derive(Clone, Copy, Default)]
struct Tenure {
    /// Counts what a node heard nothing in yet.
    number: u64,
    held: bool,
}

/// What a node heard of a host.
#[derive(Default)]
struct Heard {
    /// The host's usual rules, once at least.
    ever: bool,
    /// In which tenure it heard something last, and whether that was anything but the usual rules.
    last: Option<(u64, bool)>,
}

impl RobotsObeyed {
    fn tenure(&mut self, slot: Slot, node: NodeId) -> &mut Tenure {
        self.tenures.entry((slot, node)).or_default()
    }

    /// What a node has, it has from its disk from now on.
    fn begins_anew(&mut self, node: NodeId, holds_on: bool) {
        for ((_, of), tenure) in &mut self.tenures {
            if *of == node {
                *tenure = Tenure { number: tenure.number + 1, held: tenure.held && holds_on };
            }
        }
        if !holds_on {
            self.asked.retain(|_, (start, _)| start.node != node);
        }
    }

    /// Whether somebody who may have the page fetched has the host's usual rules.
    fn knows_the_rules(&self, start: &FetchStart) -> bool {
        let of_slot = (start.slot, NodeId(0))..=(start.slot, NodeId(u64::MAX));
        let mut holders = self.tenures.range(of_slot).filter(|(_, tenure)| tenure.held).peekable();
        if holders.peek().is_none() {
            let of_host = |(host, site, _): &(Host, _, _)| (*host, *site) == (start.host, start.site);
            return self.heard.iter().any(|(whose, heard)| of_host(whose) && heard.ever);
        }
        holders.any(|((_, holder), tenure)| {
            let heard = self.heard.get(&(start.host, start.site, *holder));
            heard.is_some_and(|heard| match heard.last {
                Some((number, forbids)) if number == tenure.number => !forbids,
                _ => heard.ever,
            })
        })
    }
}

impl Invariant for RobotsObeyed {
    const NAME: &'static str = "I15 robots_obeyed";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::LeaseHeld { node, slot, acquired, .. } => {
                let tenure = self.tenure(*slot, *node);
                if *acquired || !tenure.held {
                    *tenure = Tenure { number: tenure.number + 1, held: true };
                }
            }
            Event::LeaseLost { node, slot } => self.tenure(*slot, *node).held = false,
            Event::NodeCrashed { node } => self.begins_anew(*node, false),
            Event::ActorDied { node } | Event::WallClockSet { node } => self.begins_anew(*node, true),
            Event::FetchStarted(start) if start.kind == FetchKind::Robots && start.own_robots => {
                let tenure = self.tenure(start.slot, start.node).number;
                self.asked.insert(start.fetch, (start.clone(), tenure));
            }
            Event::RobotsHeard { fetch, forbids_all } => {
                let Some((start, tenure)) = self.asked.remove(fetch) else { return Ok(()) };
                let heard = self.heard.entry((start.host, start.site, start.node)).or_default();
                heard.ever |= !forbids_all;
                heard.last = Some((tenure, *forbids_all));
            }
            Event::FetchStarted(start) if start.kind == FetchKind::Page => {
                let FetchStart { node, host, url, .. } = start;
                if !start.allowed {
                    return Broken::on(*node, format!("host {host} forbids url {url}"));
                }
                if !self.knows_the_rules(start) {
                    let what = format!(
                        "host {host} is asked for url {url}, and what was heard of its robots.txt forbids that"
                    );
                    return Broken::on(*node, what);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, C, SLOT, fetch, show};
    use super::*;

    fn judge(events: &[&[Event]]) -> Result<(), Broken> {
        show(&mut RobotsObeyed::default(), events.concat().into_iter().map(|event| (0, event)))
    }

    fn holds(node: NodeId, acquired: bool) -> [Event; 1] {
        [Event::LeaseHeld { node, slot: SLOT, until: 9, acquired }]
    }

    fn loses(node: NodeId) -> [Event; 1] {
        [Event::LeaseLost { node, slot: SLOT }]
    }

    /// A node reads the rules of host 5.
    fn reads(number: u64, node: NodeId, forbids_all: bool) -> [Event; 2] {
        let start = FetchStart { kind: FetchKind::Robots, own_robots: true, ..fetch(number, node, 5) };
        [Event::FetchStarted(start), Event::RobotsHeard { fetch: number, forbids_all }]
    }

    /// A node fetches a page of it.
    fn page(node: NodeId) -> [Event; 1] {
        [Event::FetchStarted(fetch(90, node, 5))]
    }

    #[test]
    fn what_is_allowed_by_what_the_holder_read_is_fine_whoever_fetches() {
        assert_eq!(judge(&[&holds(A, true), &reads(1, A, false), &page(A), &page(B)]), Ok(()));
        assert_eq!(judge(&[&holds(A, true), &reads(1, A, true), &reads(2, A, false), &page(A)]), Ok(()));
    }

    #[test]
    fn what_is_forbidden_or_was_never_read_breaks_it() {
        let forbidden = [Event::FetchStarted(FetchStart { allowed: false, ..fetch(90, A, 5) })];
        assert!(judge(&[&holds(A, true), &reads(1, A, false), &forbidden]).is_err());
        assert!(judge(&[&holds(A, true), &page(A)]).is_err());
        assert!(judge(&[&holds(A, true), &reads(1, A, true), &page(A)]).is_err());
        let another = FetchStart { site: Some(SiteEpoch { site: 1, epoch: 0 }), ..fetch(90, A, 5) };
        let another = [Event::FetchStarted(another)];
        assert!(judge(&[&holds(A, true), &reads(1, A, false), &another]).is_err(), "crawls read for themselves");
    }

    #[test]
    fn a_file_that_forbids_everything_counts_once_it_was_read() {
        let changed = || [holds(A, true).to_vec(), reads(1, A, false).to_vec(), reads(2, A, true).to_vec()].concat();
        assert!(judge(&[&changed(), &page(A)]).is_err());
        assert!(judge(&[&changed(), &holds(A, false), &page(B)]).is_err(), "it was renewed, and another one fetches");
        assert_eq!(judge(&[&changed(), &reads(3, A, false), &page(A)]), Ok(()));
    }

    #[test]
    fn what_an_earlier_tenure_heard_last_need_not_be_on_disk() {
        let changed = || [holds(A, true).to_vec(), reads(1, A, false).to_vec(), reads(2, A, true).to_vec()].concat();
        let [again, died] = [holds(A, true), [Event::ActorDied { node: A }]];
        let set = [Event::WallClockSet { node: A }];
        assert_eq!(judge(&[&changed(), &set, &page(A)]), Ok(()));
        assert!(judge(&[&changed(), &set, &reads(3, A, true), &page(A)]).is_err());
        assert_eq!(judge(&[&changed(), &loses(A), &again, &page(A)]), Ok(()));
        assert_eq!(judge(&[&changed(), &died, &page(A)]), Ok(()));
        assert_eq!(judge(&[&changed(), &loses(A), &page(C)]), Ok(()), "a batch of a former holder");
        assert!(judge(&[&changed(), &loses(A), &again, &reads(3, A, true), &page(A)]).is_err());
        assert!(judge(&[&changed(), &loses(A), &holds(B, true), &page(B)]).is_err(), "B has not read it");
    }
}
