//! The frontier's part in crawls that are defined, paused and limited while it runs.
//!
//! A queue of a crawl that does not run leaves memory at its next turn and stays on disk as it is. Queues of several crawls may be of
//! one host: in a cluster each host has a *gate*, which is shut while any of them asks it, and for the longest of their delays after; so
//! a crawl that asks seldom is not kept out by one that asks often.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Crawls, Frontier, Leases, Micros, Now, Queue};
use crate::crawl::filter::Refusal;
use crate::crawl::politeness::{PaceRules, SECOND};
use crate::key::QueueKey;
use crate::site::{Allowed, Turn};
use crate::url::CanonicalUrl;

/// Gates in memory, in times of the queues in memory: those of hosts that may be asked at once go first.
const GATES_PER_QUEUE: usize = 2;
/// How soon a host that another crawl asks is looked at again, at least.
const LOOK_AGAIN: Micros = SECOND / 20;

/// When a host may be asked, whatever the crawl.
#[derive(Default)]
pub(super) struct Gate {
    asking: u32,
    ended: Micros,
    next_ok: Micros,
    /// A crawl with a longer delay waits for its turn then: until it had it, nobody else comes.
    held_for: Micros,
}

impl Frontier {
    /// With these crawls from the beginning.
    pub fn with_crawls(mut self, now: Now, crawls: Arc<Crawls>) -> Frontier {
        self.redefined(now, crawls);
        self
    }

    pub(super) fn redefined(&mut self, now: Now, crawls: Arc<Crawls>) {
        let before = std::mem::replace(&mut self.crawls, crawls);
        let crawls = Arc::clone(&self.crawls);
        let counted = crawls.counted() != before.counted();
        let mut goes_on = false;
        for crawl in crawls.defined() {
            let name = &crawl.definition.name;
            goes_on |= crawls.runs(name) && !before.runs(name);
            match crawl.left {
                None => drop(self.allowed.remove(name)),
                Some(left) if counted || !self.allowed.contains_key(name) => {
                    let flying = self.flights.values().filter(|flight| flight.queue.crawl() == name).count() as u64;
                    self.allowed.insert(name.clone(), left.saturating_sub(flying));
                }
                Some(_) => {}
            }
        }
        // Hosts may be asked at other times than before.
        if goes_on || self.rest_over.take().is_some() {
            self.sweep_all();
        }
        let waiting: Vec<QueueKey> =
            self.queues.iter().filter(|(_, queue)| queue.wake.is_none()).map(|(key, _)| key.clone()).collect();
        for key in waiting {
            self.schedule(&key, now.mono);
        }
    }

    /// Queues that were left on disk may be served now.
    fn sweep_all(&mut self) {
        let slots: BTreeSet<_> = match &self.leases {
            Leases::Sole => [crate::id::Slot(0)].into_iter().collect(),
            Leases::Granted(grants) => {
                grants.held.iter().filter(|(_, held)| held.served).map(|(slot, _)| *slot).collect()
            }
        };
        for slot in slots {
            self.leave_on_disk(slot);
        }
    }

    /// Something changed in a queue of a crawl that does not run.
    pub(super) fn leave_paused(&mut self, key: &QueueKey) {
        match self.queues.get_mut(key) {
            Some(queue) => queue.read_again(),
            None => self.forget(key),
        }
    }

    /// Why the rules of its crawl refuse a URL.
    pub(super) fn admits(&self, key: &QueueKey, url: &CanonicalUrl, depth: u16) -> Option<Refusal> {
        match self.crawls.filter(key.crawl()) {
            Some(filter) => filter.admits(url, depth).err(),
            None => Some(Refusal::OutOfScope),
        }
    }

    /// How the host of a queue is paced: as the settings say, and no faster than the crawl asks for at this time of the day.
    pub(super) fn pace_of(&self, now: Now, key: &QueueKey) -> PaceRules {
        let rules = &self.rules.pace;
        let allowed = self.allows(now, key);
        let wanted = self.crawls.delay_ms(key.crawl()).max(allowed.delay_ms).min(rules.crawl_delay_max_ms);
        PaceRules { delay_ms: rules.delay_ms.max(wanted), ..rules.clone() }
    }

    fn allows(&self, now: Now, key: &QueueKey) -> Allowed {
        let delay_max_ms = self.rules.pace.crawl_delay_max_ms;
        self.crawls.allow(key.crawl(), || key.host(), now.unix_ms, delay_max_ms).unwrap_or_default()
    }

    /// Whether the crawl of a queue asks nothing of its host at this time of the day, or nothing more in this turn. Then the queue stays on disk like one of a crawl that does not
    /// run, and is looked for again when the time is over: thousands of hosts that rest leave their places to others.
    pub(super) fn rests(&mut self, now: Now, key: &QueueKey) -> bool {
        let allowed = self.allows(now, key);
        let Some(until) = allowed.closed_until.max(self.turn_is_over_for(now, key, allowed.turn)) else {
            return false;
        };
        let wakes = now.mono.saturating_add(until.saturating_sub(now.unix_ms).saturating_mul(1_000));
        self.rest_over = Some(self.rest_over.map_or(wakes, |earlier| earlier.min(wakes)));
        true
    }

    /// When the next turn of a host begins, if it had its page in this one, or may have had it from somebody else.
    fn turn_is_over_for(&mut self, now: Now, key: &QueueKey, turn: Option<Turn>) -> Option<u64> {
        let Turn { begin, end } = turn?;
        let since_ms = now.unix_ms.saturating_sub(now.mono.saturating_sub(self.leases.since(key.slot())) / 1_000);
        // Whoever held the slot before us may have asked; but not for a site that was made since.
        let unknown = since_ms > begin && self.crawls.defined_at(key.crawl()) < since_ms;
        let had = self.turns.get(key).is_some_and(|over| *over > now.unix_ms);
        if !had && self.turns.len() >= GATES_PER_QUEUE * self.rules.queues_max {
            self.turns.retain(|_, over| *over > now.unix_ms);
        }
        let full = self.turns.len() >= GATES_PER_QUEUE * self.rules.queues_max;
        (unknown || had || full).then_some(end)
    }

    /// A page of the host of a queue is asked for: if its site counts by turns, it had this one.
    pub(super) fn take_turn(&mut self, now: Now, key: &QueueKey) {
        if let Some(turn) = self.allows(now, key).turn {
            self.turns.insert(key.clone(), turn.end);
        }
    }

    /// Looks for the queues that rested if the time of some is over.
    pub(super) fn wake_rested(&mut self, now: Now) {
        if self.rest_over.is_some_and(|at| at <= now.mono) {
            self.rest_over = None;
            self.sweep_all();
        }
    }

    // Gates.

    pub(super) fn shut_gate(&mut self, key: &QueueKey) {
        if !matches!(self.leases, Leases::Sole) {
            self.gates.entry(key.host()).or_default().asking += 1;
        }
    }

    /// A request to the host of a queue ended; the next may start at `next_ok`, or if that is not known, when that of any host may.
    pub(super) fn open_gate(&mut self, now: Now, key: &QueueKey, next_ok: Option<Micros>) {
        if matches!(self.leases, Leases::Sole) {
            return;
        }
        let least = now.mono + self.rules.pace.stretched(self.rules.pace.delay_ms);
        let gate = self.gates.entry(key.host()).or_default();
        gate.asking = gate.asking.saturating_sub(1);
        gate.ended = now.mono;
        gate.next_ok = gate.next_ok.max(next_ok.unwrap_or(least));
        if self.gates.len() > GATES_PER_QUEUE * self.rules.queues_max {
            let longest = self.rules.pace.crawl_delay_max_ms.max(self.rules.pace.delay_ms);
            let longest = self.rules.pace.stretched(longest);
            self.gates.retain(|_, gate| gate.asking > 0 || gate.next_ok > now.mono || gate.ended + longest > now.mono);
        }
    }

    /// Until when a host must be left alone because of what another crawl does there.
    pub(super) fn gate_shut(&mut self, now: Now, key: &QueueKey, queue: &Queue) -> Option<Micros> {
        if matches!(self.leases, Leases::Sole) {
            return None;
        }
        let delay = queue.pace.delay(&self.pace_of(now, key));
        let gate = self.gates.get_mut(&key.host())?;
        if gate.asking > 0 {
            return Some(now.mono + delay.clamp(LOOK_AGAIN, SECOND));
        }
        gate.held_for = gate.held_for.max(gate.ended + delay);
        let at = gate.next_ok.max(gate.held_for);
        (at > now.mono).then_some(at)
    }
}
