//! I1: at most one request is in flight to a host, in the whole cluster.
//!
//! Harm: a site that allows one visitor gets several at once, from addresses it cannot tell to be one crawler. It is the
//! promise that the lease exists for.
//!
//! One case no protocol can exclude: a process that is stopped with a request on the wire cannot close its connection, and the
//! origin checks no token. Overlaps with a stopped process are counted, not refused.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::{Event, Host};

/// See the module.
#[derive(Default)]
pub struct OneRequestPerHost {
    hosts: BTreeMap<Host, BTreeMap<u64, NodeId>>, // by fetch
    fetches: BTreeMap<u64, Host>,
    overlaps_with_stopped: u64,
}

impl OneRequestPerHost {
    /// Overlaps that no protocol can exclude.
    pub fn overlaps_with_stopped(&self) -> u64 {
        self.overlaps_with_stopped
    }
}

impl Invariant for OneRequestPerHost {
    const NAME: &'static str = "I1 one_request_per_host";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::FetchStarted(start) => {
                let in_flight = self.hosts.entry(start.host).or_default();
                for (fetch, other) in &*in_flight {
                    if !before.is_paused(*other) {
                        let (host, node) = (start.host, start.node.0);
                        let what = format!(
                            "host {host}: node {node} asks while fetch {fetch} of node {} is in flight",
                            other.0
                        );
                        return Broken::on(start.node, what);
                    }
                    self.overlaps_with_stopped += 1;
                }
                in_flight.insert(start.fetch, start.node);
                self.fetches.insert(start.fetch, start.host);
            }
            Event::FetchEnded { fetch, .. } => {
                if let Some(host) = self.fetches.remove(fetch)
                    && let Some(in_flight) = self.hosts.get_mut(&host)
                {
                    in_flight.remove(fetch);
                }
            }
            // The kernel closes the connections of a dead process.
            Event::NodeCrashed { node } => {
                for in_flight in self.hosts.values_mut() {
                    in_flight.retain(|_, by| by != node);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, fetch, show};
    use super::*;
    use crate::world::trace::FetchEnd;

    fn start(number: u64, node: NodeId, host: Host) -> Event {
        Event::FetchStarted(fetch(number, node, host))
    }

    fn end(fetch: u64, node: NodeId) -> Event {
        Event::FetchEnded { fetch, node, end: FetchEnd::Answered }
    }

    #[test]
    fn one_after_the_other_and_different_hosts_are_fine() {
        let events = [(0, start(1, A, 5)), (1, start(2, B, 6)), (2, end(1, A)), (3, start(3, B, 5))];
        assert_eq!(show(&mut OneRequestPerHost::default(), events), Ok(()));
    }

    #[test]
    fn two_at_once_break_it_also_on_one_node() {
        for other in [A, B] {
            let events = [(0, start(1, A, 5)), (1, start(2, other, 5))];
            assert!(show(&mut OneRequestPerHost::default(), events).is_err());
        }
    }

    #[test]
    fn a_crash_closes_connections_and_a_stopped_process_is_only_counted() {
        let events = [(0, start(1, A, 5)), (1, Event::NodeCrashed { node: A }), (2, start(2, B, 5))];
        assert_eq!(show(&mut OneRequestPerHost::default(), events), Ok(()));
        let mut invariant = OneRequestPerHost::default();
        let events = [(0, start(1, A, 5)), (1, Event::NodePaused { node: A }), (2, start(2, B, 5))];
        assert_eq!(show(&mut invariant, events), Ok(()));
        assert_eq!(invariant.overlaps_with_stopped(), 1);
    }
}
