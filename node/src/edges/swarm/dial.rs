//! When which peer is dialled, and where. Pure: time comes in as an argument.
//!
//! Peers that are not connected are dialled again and again, each time after a longer wait with some chance in it, so that nodes
//! that lost each other at the same moment do not knock at the same moment. Of two nodes the one with the smaller peer id begins at once and the other
//! a little later: most often there is one connection then, and not two.

use std::collections::BTreeMap;
use std::time::Duration;

use libp2p::{Multiaddr, PeerId};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

/// First wait after a failure, and the longest.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How much later the larger peer id begins.
const POLITE: Duration = Duration::from_millis(500);

/// Addresses of a peer that were learnt from itself; the oldest goes when there are more.
const LEARNT_MAX: usize = 8;

struct Target {
    configured: Vec<Multiaddr>,
    learnt: Vec<Multiaddr>,
    /// When it is dialled; `None` while it is connected or being dialled.
    at: Option<Instant>,
    wait: Duration,
}

/// All peers that are dialled.
pub(super) struct Dialler {
    me: PeerId,
    rng: ChaCha8Rng,
    targets: BTreeMap<PeerId, Target>,
}

impl Dialler {
    pub(super) fn new(me: PeerId, rng: ChaCha8Rng) -> Dialler {
        Dialler { me, rng, targets: BTreeMap::new() }
    }

    /// Begins to look for a peer.
    pub(super) fn add(&mut self, peer: PeerId, addresses: Vec<Multiaddr>, now: Instant) {
        let at = self.first(&peer, now);
        match self.targets.get_mut(&peer) {
            Some(_) if addresses.is_empty() => {} // what is known is more
            Some(target) => target.configured = addresses,
            None => {
                let target = Target { configured: addresses, learnt: Vec::new(), at: Some(at), wait: WAIT_MIN };
                self.targets.insert(peer, target);
            }
        }
    }

    /// Looks for a peer no longer.
    pub(super) fn remove(&mut self, peer: &PeerId) {
        self.targets.remove(peer);
    }

    /// Takes note of where a peer says it is.
    pub(super) fn learn(&mut self, peer: &PeerId, address: Multiaddr) {
        let Some(target) = self.targets.get_mut(peer) else { return };
        if target.configured.contains(&address) || target.learnt.contains(&address) {
            return;
        }
        if target.learnt.len() >= LEARNT_MAX {
            target.learnt.remove(0);
        }
        target.learnt.push(address);
    }

    /// A peer is connected.
    pub(super) fn connected(&mut self, peer: &PeerId) {
        if let Some(target) = self.targets.get_mut(peer) {
            (target.at, target.wait) = (None, WAIT_MIN);
        }
    }

    /// A peer is no longer connected.
    pub(super) fn disconnected(&mut self, peer: &PeerId, now: Instant) {
        let at = self.first(peer, now);
        if let Some(target) = self.targets.get_mut(peer) {
            target.at = Some(target.at.map_or(at, |planned| planned.max(at)));
        }
    }

    /// Dialling a peer failed.
    pub(super) fn failed(&mut self, peer: &PeerId, now: Instant) {
        let Some(target) = self.targets.get_mut(peer) else { return };
        // Half to all of the wait.
        let wait = target.wait.mul_f64(self.rng.random_range(0.5..1.0));
        target.wait = (target.wait * 2).min(WAIT_MAX);
        target.at = Some(target.at.map_or(now + wait, |planned| planned.max(now + wait)));
    }

    /// Leaves a peer alone until then.
    pub(super) fn postpone(&mut self, peer: &PeerId, until: Instant) {
        if let Some(target) = self.targets.get_mut(peer) {
            target.at = Some(until);
        }
    }

    /// When the next peer is to be dialled.
    pub(super) fn next(&self) -> Option<Instant> {
        self.targets.values().filter(|target| target.has_address()).filter_map(|target| target.at).min()
    }

    /// The peers that are to be dialled now, and where. Each is dialled no more until something came of it.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(PeerId, Vec<Multiaddr>)> {
        let due = self.targets.iter_mut().filter(|(_, target)| target.at.is_some_and(|at| at <= now));
        due.filter(|(_, target)| target.has_address())
            .map(|(peer, target)| {
                target.at = None;
                (*peer, target.configured.iter().chain(&target.learnt).cloned().collect())
            })
            .collect()
    }

    fn first(&self, peer: &PeerId, now: Instant) -> Instant {
        if self.me < *peer { now } else { now + POLITE }
    }
}

impl Target {
    fn has_address(&self) -> bool {
        !self.configured.is_empty() || !self.learnt.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn address(port: u16) -> Multiaddr {
        format!("/ip4/192.0.2.1/tcp/{port}").parse().unwrap()
    }

    fn two() -> (PeerId, PeerId) {
        let (one, other) = (PeerId::random(), PeerId::random());
        (one.min(other), one.max(other))
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_to_a_bound_and_start_over_after_a_connection() {
        let (me, peer) = two();
        let mut dialler = Dialler::new(me, ChaCha8Rng::seed_from_u64(1));
        let start = Instant::now();
        dialler.add(peer, vec![address(1)], start);
        assert_eq!(dialler.due(start), [(peer, vec![address(1)])]);
        assert!(dialler.due(start).is_empty() && dialler.next().is_none(), "it is being dialled");
        let mut now = start;
        for attempt in 0..12 {
            dialler.failed(&peer, now);
            let wait = dialler.next().unwrap() - now;
            let most = (WAIT_MIN * 2u32.pow(attempt.min(8))).min(WAIT_MAX);
            assert!(wait >= most / 2 && wait <= most, "{attempt}: {wait:?} of {most:?}");
            now += wait;
            assert_eq!(dialler.due(now).len(), 1);
        }
        dialler.connected(&peer);
        assert_eq!(dialler.next(), None);
        dialler.disconnected(&peer, now);
        assert_eq!(dialler.next(), Some(now));
    }

    #[tokio::test(start_paused = true)]
    async fn the_larger_of_two_begins_later_and_a_penalty_is_waited_out() {
        let (peer, me) = two();
        let mut dialler = Dialler::new(me, ChaCha8Rng::seed_from_u64(1));
        let start = Instant::now();
        dialler.add(peer, vec![address(1)], start);
        assert_eq!(dialler.next(), Some(start + POLITE));
        dialler.postpone(&peer, start + WAIT_MAX * 9);
        dialler.disconnected(&peer, start);
        assert_eq!(dialler.next(), Some(start + WAIT_MAX * 9));
    }

    #[tokio::test(start_paused = true)]
    async fn learnt_addresses_are_few_and_only_those_of_peers_that_are_looked_for() {
        let (me, peer) = two();
        let mut dialler = Dialler::new(me, ChaCha8Rng::seed_from_u64(1));
        let start = Instant::now();
        dialler.learn(&peer, address(1));
        assert_eq!(dialler.next(), None);
        dialler.add(peer, Vec::new(), start);
        assert!(dialler.next().is_none() && dialler.due(start).is_empty(), "nobody knows where");
        for port in 1..100 {
            dialler.learn(&peer, address(port));
            dialler.learn(&peer, address(port));
        }
        let (_, addresses) = dialler.due(start).pop().unwrap();
        assert_eq!(addresses.len(), LEARNT_MAX);
        assert!(addresses.contains(&address(99)));
    }
}
