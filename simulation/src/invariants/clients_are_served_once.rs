//! I24: no URL is a second client's within its lease, no queue is served within its delay or while it is blocked, through whichever nodes; and when the cluster has come to rest,
//! every disk has what was acknowledged, and what was completed is. Leases and delays count from when a client was told.
//!
//! Harm: two crawlers ask a host at once for the same page, and again the moment after; a URL that somebody was told is safe is gone, or is fetched for ever.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// Times are kept to the millisecond: what is decided within one is decided at its beginning.
const MILLISECOND: Micros = 1_000;

/// See the module.
#[derive(Default)]
pub struct ClientsAreServedOnce {
    /// When the lease of a URL ends, unless its client has said something of it.
    leased: BTreeMap<u64, Micros>,
    /// When somebody last said something of a URL: that ends a lease that was decided before, also if its client is told later.
    said: BTreeMap<u64, Micros>,
    /// When it was decided to serve the queue, and when the client was told; who is told need not be told in that order.
    served: BTreeMap<Micros, Micros>,
    /// Since when it is known to be blocked, and until when.
    blocked: Option<(Micros, Micros)>,
    /// What was acknowledged: since when a URL is completed, if it is and nobody has said something else since.
    acknowledged: BTreeMap<u64, Option<Micros>>,
    disks: BTreeMap<NodeId, BTreeMap<u64, bool>>,
}

impl ClientsAreServedOnce {
    /// Says what a disk lacks.
    pub fn missing(&self, up: &BTreeSet<NodeId>) -> Option<String> {
        for (node, disk) in self.disks.iter().filter(|(node, _)| up.contains(node)) {
            for (url, completed) in &self.acknowledged {
                match disk.get(url) {
                    None => return Some(format!("URL {url} was acknowledged, and node {} does not have it", node.0)),
                    Some(false) if completed.is_some() => {
                        return Some(format!("URL {url} is completed, and node {} does not know it", node.0));
                    }
                    _ => {}
                }
            }
        }
        None
    }
}

impl Invariant for ClientsAreServedOnce {
    const NAME: &'static str = "I24 clients_are_served_once";

    fn see(&mut self, _before: &Oracle, at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::ClientServed { node, urls, decided_at, lease, delay } => {
                let (decided_at, node) = (*decided_at, *node);
                let follows = |told: Micros, decided: Micros| *delay > 0 && decided + MILLISECOND <= told + *delay;
                let too_near = |(other, told): &(&Micros, &Micros)| match **other <= decided_at {
                    true => follows(**told, decided_at),
                    false => follows(at, **other),
                };
                if let Some((other, told)) = self.served.iter().find(too_near) {
                    let what = format!(
                        "a queue is served at {decided_at} (told at {at}) and at {other} (told at {told}), within its delay"
                    );
                    return Broken::on(node, what);
                }
                if let Some((_, until)) =
                    self.blocked.filter(|(since, until)| *since <= decided_at && decided_at + MILLISECOND <= *until)
                {
                    return Broken::on(node, format!("a queue is served at {decided_at} and is blocked until {until}"));
                }
                self.served.insert(decided_at, at);
                for url in urls {
                    // What a client has said since ended that lease before anybody was told of it.
                    let is_over = self.said.get(url).is_some_and(|said| *said >= decided_at);
                    let leased = self.leased.get(url).filter(|until| !is_over && decided_at + MILLISECOND <= **until);
                    if let Some(until) = leased {
                        let what = format!("URL {url} is handed out at {decided_at} and is leased until {until}");
                        return Broken::on(node, what);
                    }
                    let completed = self.acknowledged.get(url).copied().flatten();
                    if completed.is_some_and(|since| since <= decided_at) {
                        return Broken::on(node, format!("URL {url} is handed out at {decided_at} and is completed"));
                    }
                    if !is_over && *lease > 0 {
                        self.leased.insert(*url, at + lease);
                    }
                }
            }
            Event::ClientPuts { url } => {
                self.leased.remove(url);
                self.said.insert(*url, at);
                self.acknowledged.entry(*url).and_modify(|completed| *completed = None);
            }
            Event::ClientAcknowledged { url, completed, said_at, .. } => {
                // Acknowledgements need not come in the order in which it was said.
                let is_last = self.said.get(url).is_none_or(|said| said <= said_at);
                let known = self.acknowledged.entry(*url).or_default();
                if is_last {
                    *known = completed.then_some(at);
                }
            }
            Event::QueueBlocked { until, .. } => self.blocked = Some((at, *until)),
            Event::QueueKept { node, urls } => drop(self.disks.insert(*node, urls.clone())),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, show};
    use super::*;

    fn served(node: NodeId, url: u64, decided_ms: u64) -> (Micros, Event) {
        let decided_at = decided_ms * MILLISECOND;
        let (lease, delay) = (100 * MILLISECOND, 10 * MILLISECOND);
        (decided_at + 1, Event::ClientServed { node, urls: vec![url], decided_at, lease, delay })
    }

    fn judge<const N: usize>(events: [(Micros, Event); N]) -> Result<(), Broken> {
        show(&mut ClientsAreServedOnce::default(), events)
    }

    #[test]
    fn a_url_is_one_clients_until_its_lease_is_over_or_it_says_something_of_it() {
        assert!(judge([served(A, 1, 0), served(B, 1, 100)]).is_ok());
        assert!(judge([served(A, 1, 0), served(B, 1, 99)]).is_err());
        assert!(judge([served(A, 1, 0), (5_000, Event::ClientPuts { url: 1 }), served(B, 1, 50)]).is_ok());
        let told_late = (43_000, served(A, 1, 40).1);
        assert!(judge([(42_000, Event::ClientPuts { url: 1 }), told_late.clone(), served(B, 1, 70)]).is_ok());
        assert!(judge([(42_000, Event::ClientPuts { url: 1 }), served(B, 1, 55), told_late]).is_ok());
    }

    #[test]
    fn leases_and_delays_count_from_when_a_client_was_told() {
        let told_at = |at_ms: u64| (at_ms * MILLISECOND, served(A, 1, 0).1);
        assert!(judge([told_at(30), served(B, 1, 129)]).is_err() && judge([told_at(30), served(B, 1, 130)]).is_ok());
        assert!(judge([told_at(30), served(B, 2, 39)]).is_err() && judge([told_at(30), served(B, 2, 40)]).is_ok());
        assert!(judge([served(B, 2, 15), told_at(30)]).is_err() && judge([served(B, 2, 15), told_at(4)]).is_ok());
    }

    #[test]
    fn delays_and_blocks_are_kept_whoever_serves() {
        assert!(judge([served(A, 1, 0), served(B, 2, 9)]).is_err());
        assert!(
            judge([served(A, 1, 9), served(B, 2, 0)]).is_err() && judge([served(A, 1, 10), served(B, 2, 0)]).is_ok()
        );
        let blocked =
            |at_ms, until_ms| (at_ms * MILLISECOND, Event::QueueBlocked { node: A, until: until_ms * MILLISECOND });
        assert!(judge([blocked(5, 50), served(B, 1, 49)]).is_err());
        assert!(judge([blocked(5, 50), served(B, 1, 50)]).is_ok());
        assert!(judge([served(A, 1, 3), blocked(5, 50)]).is_ok());
    }

    #[test]
    fn what_was_acknowledged_is_on_every_disk_and_stays() {
        let kept = |completed| Event::ClientAcknowledged { node: A, url: 1, said_at: 1, completed };
        assert!(judge([(1, kept(true)), served(A, 1, 2)]).is_err());
        assert!(judge([(1, kept(true)), (2, Event::ClientPuts { url: 1 }), served(A, 1, 3)]).is_ok());
        let in_between = (2, Event::ClientPuts { url: 1 });
        assert!(judge([in_between, (3, kept(true)), served(A, 1, 3)]).is_ok(), "something else was said since");
        let (mut invariant, up) = (ClientsAreServedOnce::default(), [A].into_iter().collect());
        let disk = |urls: &[(u64, bool)]| Event::QueueKept { node: A, urls: urls.iter().copied().collect() };
        show(&mut invariant, [(1, kept(true)), (2, disk(&[(2, true)]))]).unwrap();
        assert!(invariant.missing(&up).is_some_and(|what| what.contains("does not have it")));
        show(&mut invariant, [(3, disk(&[(1, false)]))]).unwrap();
        assert!(invariant.missing(&up).is_some_and(|what| what.contains("does not know it")));
        show(&mut invariant, [(4, disk(&[(1, true)]))]).unwrap();
        assert_eq!(invariant.missing(&up), None);
    }
}
