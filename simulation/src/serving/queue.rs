//! A queue that clients and the nodes' own fetchers take URLs from: the product's gate, delays and leases.

use std::collections::BTreeMap;

use proto::clients::ask::Item;
use proto::clients::fetch::{own_lease, own_since};
use proto::clients::gate::{Gate, Standing, gate, lease_until};
use proto::clients::identity::ClientQueueId;
use proto::clients::record::{ClientQueue, ClientUrl};
use proto::cluster::copy::RecordCopy;
use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{FOR_EVER, KEEPING, Offer, Tell, World};
use crate::layer::{Layer, Mutant, Point, RunOptions, RunReport};
use crate::world::plan::{MILLISECOND, Plan, SECOND};
use crate::world::random::Random;
use crate::world::trace::Event;

/// For how long clients lease URLs.
const LEASE_S: u32 = 20;
const DELAY_S: u32 = 1;
/// When a node with a defect takes a lease of the nodes' own fetchers to be over: most are settled in a few seconds.
const OWN_LAPSES_MS: u64 = 2_000;
/// URLs that clients bring.
const URLS_MAX: u64 = 60;
/// So many of the last ones are brought again.
const LATELY: u64 = 12;

/// The layer.
pub struct ServingLayer;

impl Layer for ServingLayer {
    fn name(&self) -> &'static str {
        "serving"
    }

    fn run(&self, plan: &Plan, options: &RunOptions) -> RunReport {
        World::new(plan, options, Offer::Queue, vec![ClientQueueId::new("crawl", "key")]).run()
    }

    fn mutants(&self) -> Vec<Mutant> {
        let mutant = |name| Mutant { name, seeds_max: 200, breaks: &["I24"] };
        vec![
            mutant("told_at_once"),
            mutant("told_late"),
            mutant("serves_at_once"),
            mutant("delay_in_memory"),
            mutant("block_in_memory"),
            mutant("whole_seconds"),
            mutant("own_lease_lapses"),
            mutant("acknowledged_at_once"),
            mutant("hearsay_by_the_clock"),
            mutant("leases_by_the_clock"),
            mutant("counted_from_the_decision"),
        ]
    }

    fn judges(&self) -> Vec<&'static str> {
        vec!["I24"]
    }

    fn points(&self) -> Vec<Point> {
        let often = [
            "message_cut",
            "node_crashed",
            "slot_changed_hands",
            "url_found_again",
            "url_served",
            "url_served_again",
            "url_leased_to_nodes",
            "nodes_settle_what_others_took",
            "not_told_because_slot_is_lost",
            "write_given_up",
            "queue_blocked",
            "url_completed",
            "url_completed_elsewhere",
            "not_told_because_it_took_long",
        ];
        Point::all(200, often).collect()
    }
}

/// Places in what a node with a defect remembers: when it served last, and until when nothing is.
const PRODUCED: usize = 0;
const BLOCKED: usize = 1;

impl World<'_> {
    fn url_copy(&self, url: &ClientUrl) -> RecordCopy {
        url.copy(self.queues[0].url(&url.url)).expect("a small record")
    }

    fn queue(&self, node: NodeId) -> ClientQueue {
        self.kept_of(node, &self.queues[0])
    }

    /// Hands URLs out, as `edges/store/clients/act.rs` does.
    pub(super) fn take(&mut self, at: Micros, node: NodeId, own: bool, draw: &mut Random) {
        let (now_ms, wanted) = (self.wall(node, at), draw.between(1, 3) as usize);
        let (mut queue, memory) = (self.queue(node), self.nodes[&node].memory);
        if self.has("delay_in_memory") {
            queue.produced_ms = memory[PRODUCED];
        }
        if self.has("block_in_memory") {
            queue.blocked_until_s = memory[BLOCKED];
        }
        let standing = Standing { completed: 0, leased: 0, urls_max: 0, delay_default_s: DELAY_S };
        if gate(&queue, standing, now_ms) != Gate::Open {
            return;
        }
        // A node that takes a lease of its own for one that ends.
        let lapses = self.has("own_lease_lapses");
        let over = |url: &ClientUrl| match own_since(url.leased_until_ms) {
            Some(since_ms) => lapses && since_ms + OWN_LAPSES_MS <= now_ms,
            None => url.leased_until_ms <= now_ms,
        };
        let due = |url: &&ClientUrl| !url.is_completed() && url.date_s <= now_ms / 1_000 && over(url);
        let told_ms = if self.has("counted_from_the_decision") { now_ms } else { now_ms + KEEPING / MILLISECOND };
        let mut leased_until_ms = if own { own_lease(now_ms) } else { lease_until(LEASE_S, told_ms) };
        if self.has("whole_seconds") && !own {
            leased_until_ms = lease_until(LEASE_S, now_ms) / 1_000 * 1_000;
        }
        let urls: Vec<ClientUrl> = self.urls(node).values().filter(due).take(wanted).cloned().collect();
        if urls.is_empty() {
            return;
        }
        let lease = |old: &ClientUrl| match self.has("leases_by_the_clock") {
            true => ClientUrl { version: old.version.next(node, now_ms), leased_until_ms, ..old.clone() },
            false => old.leased(now_ms, leased_until_ms),
        };
        let mut copies: Vec<RecordCopy> = urls.iter().map(|old| self.url_copy(&lease(old))).collect();
        self.node(node).memory[PRODUCED] = now_ms;
        let produced_ms = if self.has("delay_in_memory") { 0 } else { told_ms };
        let queue = self.queue(node).served(node, produced_ms);
        copies.push(queue.copy(&self.queues[0]).expect("a small record"));
        // Of what somebody has said meanwhile, and this node has not heard, nobody judges who has it.
        let has_heard =
            |number: &u64, url: &ClientUrl| self.elsewhere.get(number).is_none_or(|said| *said <= url.version);
        let numbers = urls.iter().filter_map(|url| Some((url.url.parse().ok()?, url)));
        let urls: Vec<u64> = numbers.filter(|(number, url)| has_heard(number, url)).map(|(number, _)| number).collect();
        if own {
            self.trace.sometimes(at, "url_leased_to_nodes");
            self.taken_by.extend(urls.iter().map(|url| (*url, node)));
        }
        let lease = if own { FOR_EVER } else { Micros::from(LEASE_S) * SECOND };
        let (delay, domains) = (Micros::from(DELAY_S) * SECOND, BTreeMap::new());
        self.write(at, node, copies, Tell::Served { urls, decided_at: at, lease, delay, domains });
    }

    /// Ends a lease of the nodes' own fetchers, of whichever node it was.
    pub(super) fn settle_own(&mut self, at: Micros, node: NodeId) {
        let urls = self.urls(node);
        let Some((number, url)) = urls.iter().find(|(_, url)| own_since(url.leased_until_ms).is_some()) else { return };
        if self.taken_by.get(number).is_some_and(|by| *by != node) {
            self.trace.sometimes(at, "nodes_settle_what_others_took");
        }
        let version = url.version.next(node, self.wall(node, at));
        let done = ClientUrl { version, date_s: 0, leased_until_ms: 0, ..url.clone() };
        self.trace.record(at, Event::ClientPuts { url: *number });
        let copies = vec![self.url_copy(&done)];
        let (url, elsewhere) = (*number, false);
        self.write(at, node, copies, Tell::Acknowledged { url, said_at: at, completed: true, elsewhere });
    }

    /// Takes in what a client says of a URL.
    fn put(&mut self, at: Micros, node: NodeId, number: u64, date_s: Option<u64>) {
        let (now_ms, url) = (self.wall(node, at), number.to_string());
        let old = self.urls(node).remove(&number);
        let (crawl, key) = ("crawl".to_owned(), "key".to_owned());
        let item = Item { crawl, key, url, metadata: Vec::new(), date_s };
        let floor = self.has("hearsay_by_the_clock").then_some(now_ms);
        let Some(new) = ClientUrl::taken_in(old.as_ref(), item, 0, node, now_ms, floor) else { return };
        let copies = vec![self.url_copy(&new)];
        let tell = match date_s {
            Some(_) => {
                let (completed, elsewhere) = (new.is_completed(), !self.serves(at, node));
                Tell::Acknowledged { url: number, said_at: at, completed, elsewhere }
            }
            None => Tell::Found { url: number },
        };
        self.write(at, node, copies, tell);
    }

    /// What a client asks of a node.
    pub(super) fn asks_queue(&mut self, at: Micros, node: NodeId, draw: &mut Random) {
        match draw.below(20) {
            // What is merely found is taken in by whoever is asked, also by nodes that have not heard what became of it.
            0..3 if self.brought < URLS_MAX => {
                self.brought += 1;
                let url = self.brought;
                self.put(at, node, url, None);
            }
            0..5 if self.brought > 0 => {
                self.trace.sometimes(at, "url_found_again");
                let lately = self.brought.saturating_sub(LATELY).max(1);
                self.put(at, node, draw.between(lately, self.brought), None);
            }
            // Its holder is out of reach, or is taken to be.
            12..14 if !self.serves(at, node) => {
                let Some(url) = self.says(at, node, draw) else { return };
                if let Some(said) = self.urls(node).get(&url) {
                    self.elsewhere.insert(url, said.version);
                }
            }
            _ if !self.serves(at, node) => {}
            5..12 => self.take(at, node, false, draw),
            12..18 => drop(self.says(at, node, draw)),
            18 => self.block(at, node),
            _ => {}
        }
    }

    /// A client says something of a URL that it has.
    fn says(&mut self, at: Micros, node: NodeId, draw: &mut Random) -> Option<u64> {
        let url = self.clients.iter().copied().nth(draw.below(8) as usize)?;
        self.clients.remove(&url);
        self.trace.record(at, Event::ClientPuts { url });
        // Most are done with; some are to be fetched again.
        let again_s = self.wall(node, at) / 1_000 + draw.below(3);
        self.put(at, node, url, Some(if draw.below(3) > 0 { 0 } else { again_s }));
        Some(url)
    }

    fn block(&mut self, at: Micros, node: NodeId) {
        let (now_ms, queue) = (self.wall(node, at), self.queue(node));
        let until_s = (now_ms / 1_000 + 4).max(queue.blocked_until_s);
        let version = queue.version.next(node, now_ms);
        self.node(node).memory[BLOCKED] = until_s;
        let blocked_until_s = if self.has("block_in_memory") { 0 } else { until_s };
        let queue = ClientQueue { version, kept: true, blocked_until_s, ..queue };
        let until = at + (until_s * 1_000).saturating_sub(now_ms) * MILLISECOND;
        let copies = vec![queue.copy(&self.queues[0]).expect("a small record")];
        self.write(at, node, copies, Tell::Blocked { until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::many::{Many, many};
    use crate::tool::mutants::hunt;

    #[test]
    fn clients_get_everything_once_and_every_situation_is_reached() {
        let without = Vec::new();
        let seeds =
            Many { base: 1, count: 150, without, mutant: None, threads: 2, violations_max: 3, all_twice: false };
        let summary = many(&ServingLayer, &seeds, |_, _| ());
        assert!(summary.violations.is_empty(), "{summary}");
        assert_eq!((summary.seeds, summary.unequal.len()), (150, 0), "{summary}");
        assert_eq!(summary.not_reached, Vec::<String>::new());
    }

    #[test]
    fn every_planted_defect_is_caught() {
        for hunt in hunt(&ServingLayer, &ServingLayer.mutants(), &[], 1, 2, |_| ()) {
            let (_, violation) = hunt.caught.as_ref().unwrap_or_else(|| panic!("{hunt}"));
            assert_eq!(violation.invariant, "I24 clients_are_served_once", "{hunt}");
        }
    }
}
