//! What clients take from nodes, under the faults of a plan: the product's records, their merging, and what decides what is handed out ([`proto::clients`], [`proto::score`]) on every
//! node, over the world's network, while nodes crash, stop and are cut off. [`queue`] has a queue that clients and the nodes' own fetchers take URLs from, [`pages`] pages that spiders
//! are told to fetch.
//!
//! What a node does with them is written here once more, as the product does it: who holds the slot decides on its own disk, has it kept by a majority, looks whether the slot is
//! still its own, and then tells the client; who gets the slot asks so many others what they have that nothing acknowledged is missing, and serves then. What is merely found is taken in by
//! whoever is asked, whatever that node has heard; so is, now and then, what is said of a URL that is known, as where its holder is out of reach: it counts when all has come to rest, and a
//! holder that has not heard of it may hand the URL out once more, which nobody judges. Whose the slot is, a lease says that here nobody votes on, as in [`lending`](crate::lending). Wall clocks are right: what they are off, leases, delays and rates are off in the
//! product too. I24 judges both, I25 pages. Mutants leave out one rule each.

pub mod pages;
pub mod queue;

use std::collections::{BTreeMap, BTreeSet};

use proto::clients::identity::{ClientQueueId, is_queue};
use proto::clients::record::{ClientQueue, ClientUrl, Opened, Version, merge, open};
use proto::cluster::copy::RecordCopy;
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, SLOTS, Slot};
use proto::key::UrlKey;

use crate::invariants::true_ring;
use crate::layer::{RunOptions, RunReport};
use crate::world::clock::Clock;
use crate::world::network::{Delivery, Fate, Network};
use crate::world::plan::{Fault, MILLISECOND, Plan, SECOND};
use crate::world::random::{For, Random};
use crate::world::trace::{Event, Phase, Trace};

const TICK: Micros = 200 * MILLISECOND;
/// How long a lease of the slot lasts, in true time.
const SLOT_LEASE: Micros = 8 * SECOND;
/// How long a write is tried.
const PATIENCE: Micros = 15 * SECOND;
/// How long it may take until a client is told what it gets: leases and delays count from then.
const KEEPING: Micros = 2 * SECOND;
/// How often a client does something.
const CLIENT_EVERY: Micros = 100 * MILLISECOND;
/// A lease of the nodes' own fetchers, for the judge: longer than any run.
const FOR_EVER: Micros = 1 << 50;
/// Numbers that a node with a defect remembers.
const REMEMBERED: usize = 3;

/// What clients take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    Queue,
    Pages,
}

#[derive(Clone)]
enum Message {
    Put { op: u64, copies: Vec<RecordCopy> },
    Kept { op: u64 },
    Ask { tenure: u64 },
    Has { tenure: u64, copies: Vec<RecordCopy> },
}

enum Happening {
    Tick { node: NodeId, boot: u32 },
    Arrives { delivery: Delivery, message: Message },
    Client { turn: u64 },
    FaultBegins(usize),
    FaultEnds(usize),
    CalmBegins,
    Look,
}

/// What somebody is told when a write is kept.
#[derive(Clone)]
enum Tell {
    /// With how many pages of which domains, if rates are kept for them.
    Served {
        urls: Vec<u64>,
        decided_at: Micros,
        lease: Micros,
        delay: Micros,
        domains: BTreeMap<usize, u32>,
    },
    /// Also what others write of it meanwhile leaves it there.
    Found {
        url: u64,
    },
    Acknowledged {
        url: u64,
        said_at: Micros,
        completed: bool,
        /// By a node that does not hold the slot.
        elsewhere: bool,
    },
    Blocked {
        until: Micros,
    },
}

/// A write under way.
struct Write {
    copies: Vec<RecordCopy>,
    kept: BTreeSet<NodeId>,
    tell: Tell,
    /// It was decided as the holder of the slot, in this tenure.
    held: bool,
    tenure: u64,
    since: Micros,
}

struct Node {
    up: bool,
    boot: u32,
    paused_until: Micros,
    /// Until when the slot is surely its own, on its clock.
    until: Micros,
    /// Counts the times that it got the slot.
    tenure: u64,
    /// Who said what it has since.
    heard: BTreeSet<NodeId>,
    writes: BTreeMap<u64, Write>,
    /// What a node with a defect remembers instead of writing it down.
    memory: [u64; REMEMBERED],
    /// What is fsynced; it outlives the process.
    disk: BTreeMap<UrlKey, RecordCopy>,
}

struct World<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    trace: Trace,
    network: Network,
    clocks: BTreeMap<NodeId, Clock>,
    nodes: BTreeMap<NodeId, Node>,
    offer: Offer,
    /// Queues that are served; of pages, one a domain.
    queues: Vec<ClientQueueId>,
    /// Who has the slot, and until when in true time.
    lease: Option<(NodeId, Micros)>,
    /// URLs that clients have, and those that were handed out at all.
    clients: BTreeSet<u64>,
    served: BTreeSet<u64>,
    /// Which node took a URL for its own fetchers.
    taken_by: BTreeMap<u64, NodeId>,
    /// What was said of URLs through a node that did not hold the slot, last, and what of that was acknowledged and is told when all is calm.
    elsewhere: BTreeMap<u64, Version>,
    aside: Vec<Event>,
    /// Pages that a spider could not fetch once.
    failed: BTreeSet<u64>,
    brought: u64,
    calm: bool,
    numbers: u64,
    queue: BTreeMap<(Micros, u64), Happening>,
    queued: u64,
    rested_at: Option<Micros>,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, options: &'a RunOptions, offer: Offer, queues: Vec<ClientQueueId>) -> World<'a> {
        let nodes: Vec<NodeId> = plan.first_nodes().collect();
        let node = || Node {
            up: false,
            boot: 0,
            paused_until: 0,
            until: 0,
            tenure: 0,
            heard: BTreeSet::new(),
            writes: BTreeMap::new(),
            memory: [0; REMEMBERED],
            disk: BTreeMap::new(),
        };
        World {
            plan,
            options,
            trace: Trace::new(plan, options.keep),
            network: Network::new(plan),
            clocks: nodes.iter().map(|node| (*node, Clock::new(plan, *node))).collect(),
            nodes: nodes.iter().map(|id| (*id, node())).collect(),
            offer,
            queues,
            lease: None,
            clients: BTreeSet::new(),
            served: BTreeSet::new(),
            taken_by: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            aside: Vec::new(),
            failed: BTreeSet::new(),
            brought: 0,
            calm: false,
            numbers: 0,
            queue: BTreeMap::new(),
            queued: 0,
            rested_at: None,
        }
    }

    fn run(mut self) -> RunReport {
        for node in self.plan.first_nodes() {
            self.start(0, node);
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            self.at(fault.begins(), Happening::FaultBegins(number));
            self.at(fault.ends(), Happening::FaultEnds(number));
        }
        self.at(self.plan.faults_end(), Happening::CalmBegins);
        self.at(0, Happening::Client { turn: 0 });
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.happens(at, happening);
            if self.trace.violation().is_some() || self.rested_at.is_some() {
                break;
            }
        }
        let messages = self.network.messages();
        RunReport::new(self.plan, self.trace, self.rested_at, messages)
    }

    fn at(&mut self, at: Micros, happening: Happening) {
        self.queued += 1;
        self.queue.insert((at, self.queued), happening);
    }

    fn has(&self, mutant: &str) -> bool {
        self.options.mutant == Some(mutant)
    }

    fn local(&self, node: NodeId, at: Micros) -> Micros {
        self.clocks[&node].local(at)
    }

    fn wall(&self, node: NodeId, at: Micros) -> u64 {
        self.clocks[&node].unix_ms(at)
    }

    fn node(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).expect("every node of the plan is there")
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Disks that keep a write before it counts.
    fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    fn start(&mut self, at: Micros, node: NodeId) {
        let boot = self.node(node).boot;
        if let Some(clock) = self.clocks.get_mut(&node) {
            clock.restart(boot);
        }
        self.trace.record(at, Event::NodeStarted { node, boot });
        self.trace.record(at, Event::NodeRecovered { node });
        let members: BTreeMap<NodeId, usize> = self.plan.first_nodes().map(|node| (node, 1)).collect();
        let ring = true_ring(&members);
        let owners = (0..SLOTS).filter_map(|slot| ring.owner(Slot(slot))).collect();
        self.trace.record(at, Event::RingChanged { node, members, owners });
        let is = self.node(node);
        (is.up, is.paused_until, is.until, is.memory) = (true, 0, 0, [0; REMEMBERED]);
        self.at(at, Happening::Tick { node, boot });
    }

    fn crash(&mut self, at: Micros, node: NodeId) {
        let Some(gone) = self.nodes.get_mut(&node).filter(|node| node.up) else { return };
        (gone.up, gone.boot) = (false, gone.boot + 1);
        gone.writes.clear();
        self.trace.record(at, Event::NodeCrashed { node });
        self.trace.sometimes(at, "node_crashed");
    }

    fn send(&mut self, at: Micros, from: NodeId, to: NodeId, message: &Message) {
        let sent = self.network.send(at, from, to);
        if sent.fate == Fate::Cut {
            self.trace.sometimes(at, "message_cut");
        }
        for delivery in sent.deliveries.into_iter().flatten() {
            self.at(delivery.at, Happening::Arrives { delivery, message: message.clone() });
        }
    }

    fn send_all(&mut self, at: Micros, from: NodeId, message: &Message) {
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|node| *node != from).collect();
        others.into_iter().for_each(|to| self.send(at, from, to, message));
    }

    fn happens(&mut self, at: Micros, happening: Happening) {
        let concerns = match &happening {
            Happening::Tick { node, .. } => Some(*node),
            Happening::Arrives { delivery, .. } => Some(delivery.to),
            _ => None,
        };
        // A stopped process sees nothing until it goes on.
        if let Some(until) = concerns.map(|node| self.nodes[&node].paused_until).filter(|until| *until > at) {
            return self.at(until, happening);
        }
        match happening {
            Happening::Tick { node, boot } => self.tick(at, node, boot),
            Happening::Arrives { delivery, message } => {
                if self.network.arrives(&delivery) && self.nodes[&delivery.to].up {
                    self.receive(at, delivery.from, delivery.to, message);
                }
            }
            Happening::Client { turn } => self.client(at, turn),
            Happening::FaultBegins(number) => self.fault_begins(at, number),
            Happening::FaultEnds(number) => self.fault_ends(at, number),
            Happening::CalmBegins => {
                self.trace.record(at, Event::PhaseChanged(Phase::Calm));
                self.calm = true;
                std::mem::take(&mut self.aside).into_iter().for_each(|event| self.trace.record(at, event));
                for node in self.plan.stays_down.clone() {
                    self.crash(at, NodeId(node));
                }
                self.at(at, Happening::Look);
            }
            Happening::Look => self.look(at),
        }
    }

    /// Says what every disk has, and whether that is all.
    fn look(&mut self, at: Micros) {
        let up: Vec<NodeId> = self.nodes.iter().filter(|(_, node)| node.up).map(|(id, _)| *id).collect();
        for node in up {
            let done = |url: &ClientUrl| match self.offer {
                Offer::Queue => url.is_completed(),
                Offer::Pages => pages::is_crawled(url),
            };
            let urls = self.urls(node).into_iter().map(|(number, url)| (number, done(&url))).collect();
            self.trace.record(at, Event::QueueKept { node, urls });
        }
        match self.trace.invariants().missing(at) {
            None => self.rested_at = Some(at),
            Some(_) if at < self.plan.calm_ends() => self.at(at + 500 * MILLISECOND, Happening::Look),
            Some(_) => {}
        }
    }

    // A node.

    /// Takes the slot or keeps it, if enough others are reached.
    fn hold(&mut self, at: Micros, node: NodeId) {
        let reached = |other: &NodeId| {
            let there = &self.nodes[other];
            *other == node
                || (there.up && !self.network.is_cut(at, node, *other) && !self.network.is_cut(at, *other, node))
        };
        let many = self.nodes.keys().filter(|other| reached(other)).count() >= self.majority();
        let may = self.lease.is_none_or(|(holder, until)| holder == node || until <= at);
        if !many || !may {
            return;
        }
        if self.lease.is_some_and(|(holder, _)| holder != node) {
            self.trace.sometimes(at, "slot_changed_hands");
        }
        self.lease = Some((node, at + SLOT_LEASE));
        let now = self.local(node, at);
        let (until, tenure) = (now + SLOT_LEASE / 8 * 7, self.numbers + 1);
        let is = self.node(node);
        if is.until <= now {
            (is.tenure, is.heard) = (tenure, [node].into_iter().collect());
            self.number();
        }
        self.node(node).until = until;
    }

    /// Whether it holds the slot and knows everything that was acknowledged of it.
    fn serves(&self, at: Micros, node: NodeId) -> bool {
        let is = &self.nodes[&node];
        // Every write that counts is on one of so many disks.
        let enough = self.nodes.len() - self.majority() + 1;
        let knows = is.heard.len() >= enough || self.has("serves_at_once");
        is.up && is.paused_until <= at && is.until > self.local(node, at) && knows
    }

    fn tick(&mut self, at: Micros, node: NodeId, boot: u32) {
        if !self.nodes[&node].up || self.nodes[&node].boot != boot {
            return;
        }
        let next = self.clocks[&node].timer(at, TICK);
        self.at(next, Happening::Tick { node, boot });
        let mut draw = Random::at(self.plan.seed, For::Layer, node.0, at);
        // A holder parts with the slot now and then: the next one may have it at once.
        if draw.below(80) == 0 && self.lease.is_some_and(|(holder, _)| holder == node) {
            (self.lease, self.node(node).until) = (None, 0);
        } else {
            self.hold(at, node);
        }
        let tenure = self.nodes[&node].tenure;
        if self.nodes[&node].until > self.local(node, at) && !self.serves(at, node) {
            self.send_all(at, node, &Message::Ask { tenure });
        }
        self.write_again(at, node);
        // Repair: somebody is told of everything, now and then.
        if draw.below(10) == 0 || self.calm {
            let copies: Vec<RecordCopy> = self.nodes[&node].disk.values().cloned().collect();
            let others: Vec<NodeId> = self.nodes.keys().copied().filter(|other| *other != node).collect();
            if !copies.is_empty() && !others.is_empty() {
                let to = others[draw.below(others.len() as u64) as usize];
                self.send(at, node, to, &Message::Put { op: 0, copies });
            }
        }
        if self.offer == Offer::Queue && self.serves(at, node) && !self.calm {
            match draw.below(4) {
                0 => self.take(at, node, true, &mut draw),
                1 => self.settle_own(at, node),
                _ => {}
            }
        }
    }

    fn write_again(&mut self, at: Micros, node: NodeId) {
        let mut again = Vec::new();
        let before = self.nodes[&node].writes.len();
        self.node(node).writes.retain(|_, write| at < write.since + PATIENCE);
        if self.nodes[&node].writes.len() < before {
            self.trace.sometimes(at, "write_given_up");
        }
        for (op, write) in &self.nodes[&node].writes {
            let missing = self.nodes.keys().filter(|other| !write.kept.contains(other));
            again.extend(missing.map(|to| (*to, Message::Put { op: *op, copies: write.copies.clone() })));
        }
        for (to, message) in again {
            self.send(at, node, to, &message);
        }
    }

    fn store(&mut self, node: NodeId, copies: &[RecordCopy]) {
        for copy in copies {
            let disk = &mut self.node(node).disk;
            let merged = match disk.remove(&copy.key) {
                Some(known) => merge(known, copy.clone()),
                None => copy.clone(),
            };
            disk.insert(copy.key.clone(), merged);
        }
    }

    /// Has what was decided kept, and tells of it then.
    fn write(&mut self, at: Micros, node: NodeId, copies: Vec<RecordCopy>, tell: Tell) {
        self.store(node, &copies);
        let hasty = self.is_hasty(&tell);
        if hasty {
            self.tell(at, node, tell.clone());
        }
        let (op, tenure) = (self.number(), self.nodes[&node].tenure);
        self.send_all(at, node, &Message::Put { op, copies: copies.clone() });
        let held = self.serves(at, node) && !matches!(tell, Tell::Found { .. });
        let write = Write { copies, kept: [node].into_iter().collect(), tell, held, tenure, since: at };
        self.node(node).writes.insert(op, write);
        if !hasty {
            self.kept(at, node, op, node);
        }
    }

    fn kept(&mut self, at: Micros, node: NodeId, op: u64, by: NodeId) {
        let (majority, now) = (self.majority(), self.local(node, at));
        let (told_late, acknowledged_late) = (self.has("told_late"), self.has("acknowledged_late"));
        let is = self.node(node);
        let Some(write) = is.writes.get_mut(&op) else { return };
        write.kept.insert(by);
        if write.kept.len() < majority {
            return;
        }
        let still_ours = is.until > now && is.tenure == write.tenure;
        let Some(write) = is.writes.remove(&op) else { return };
        // Whoever holds the slot by now may have handed the same out, or written over it.
        let late = match &write.tell {
            Tell::Served { .. } => told_late,
            _ => acknowledged_late,
        };
        if write.held && !still_ours && !late {
            return self.trace.sometimes(at, "not_told_because_slot_is_lost");
        }
        if let (Offer::Queue, Tell::Served { decided_at, .. }) = (self.offer, &write.tell)
            && at > decided_at + KEEPING
            && !self.has("counted_from_the_decision")
            && !self.has("told_late")
        {
            return self.trace.sometimes(at, "not_told_because_it_took_long");
        }
        if !self.is_hasty(&write.tell) {
            self.tell(at, node, write.tell);
        }
    }

    /// A node with a defect that tells before anybody else keeps it.
    fn is_hasty(&self, tell: &Tell) -> bool {
        match tell {
            Tell::Served { .. } => self.has("told_at_once"),
            _ => self.has("acknowledged_at_once"),
        }
    }

    fn tell(&mut self, at: Micros, node: NodeId, tell: Tell) {
        match tell {
            Tell::Served { urls, decided_at, lease, delay, domains } => {
                for url in &urls {
                    if lease < FOR_EVER {
                        self.clients.insert(*url);
                    }
                    let again = !self.served.insert(*url);
                    self.trace.sometimes(at, if again { "url_served_again" } else { "url_served" });
                }
                // Leases of pages count from when they were decided.
                let past = if self.offer == Offer::Pages { at - decided_at } else { 0 };
                let (lease, delay) = (lease.saturating_sub(past), delay.saturating_sub(past));
                self.trace.record(at, Event::ClientServed { node, urls, decided_at, lease, delay });
                for (domain, pages) in domains {
                    self.trace.record(at, pages::domain_served(node, domain, pages, decided_at));
                }
            }
            Tell::Found { url } if self.offer == Offer::Pages => {
                self.trace.sometimes(at, "page_found");
                self.trace.record(at, Event::PageFound { node, url });
            }
            // It says nothing of what is known of the URL, since when ever that is.
            Tell::Found { url } => {
                self.trace.record(at, Event::ClientAcknowledged { node, url, said_at: 0, completed: false })
            }
            Tell::Acknowledged { url, said_at, completed, elsewhere } => {
                if completed {
                    self.trace.sometimes(at, if elsewhere { "url_completed_elsewhere" } else { "url_completed" });
                }
                let event = Event::ClientAcknowledged { node, url, said_at, completed };
                match elsewhere && !self.calm {
                    true => self.aside.push(event),
                    false => self.trace.record(at, event),
                }
            }
            Tell::Blocked { until } => {
                self.trace.sometimes(at, "queue_blocked");
                self.trace.record(at, Event::QueueBlocked { node, until });
            }
        }
    }

    fn receive(&mut self, at: Micros, from: NodeId, to: NodeId, message: Message) {
        match message {
            Message::Put { op, copies } => {
                self.store(to, &copies);
                if op > 0 {
                    self.send(at, to, from, &Message::Kept { op });
                }
            }
            Message::Kept { op } => self.kept(at, to, op, from),
            Message::Ask { tenure } => {
                let copies = self.nodes[&to].disk.values().cloned().collect();
                self.send(at, to, from, &Message::Has { tenure, copies });
            }
            Message::Has { tenure, copies } => {
                self.store(to, &copies);
                let is = self.node(to);
                if is.tenure == tenure {
                    is.heard.insert(from);
                }
            }
        }
    }

    // What is on a node's disk.

    fn urls(&self, node: NodeId) -> BTreeMap<u64, ClientUrl> {
        let copies = self.nodes[&node].disk.values().filter(|copy| !is_queue(&copy.key));
        let urls = copies.filter_map(|copy| match open(copy) {
            Some((_, Opened::Url(url))) => Some((number_of(&url)?, url)),
            _ => None,
        });
        urls.collect()
    }

    /// What is kept of a queue as a whole.
    fn kept_of(&self, node: NodeId, queue: &ClientQueueId) -> ClientQueue {
        match self.nodes[&node].disk.get(&queue.record()).and_then(open) {
            Some((_, Opened::Queue(queue))) => queue,
            _ => ClientQueue::default(),
        }
    }

    // Clients.

    /// A client asks some node for something; one that is down or stopped does not answer.
    fn client(&mut self, at: Micros, turn: u64) {
        if self.calm && self.offer == Offer::Queue {
            return;
        }
        let every = if self.calm { CLIENT_EVERY / 5 } else { CLIENT_EVERY };
        self.at(at + every, Happening::Client { turn: turn + 1 });
        let mut draw = Random::at(self.plan.seed, For::Layer, u64::MAX, turn);
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let node = nodes[draw.below(nodes.len() as u64) as usize];
        if !self.nodes[&node].up || self.nodes[&node].paused_until > at {
            return;
        }
        match self.offer {
            Offer::Queue => self.asks_queue(at, node, &mut draw),
            Offer::Pages => self.asks_pages(at, node, &mut draw),
        }
    }

    fn fault_begins(&mut self, at: Micros, number: usize) {
        let fault = &self.plan.faults[number];
        self.trace.record(at, Event::FaultBegan(fault.id));
        match &fault.what {
            Fault::Crash { node } | Fault::WipedDisk { node } => self.crash(at, NodeId(*node)),
            Fault::PowerLoss { nodes } => {
                for node in nodes {
                    self.crash(at, NodeId(*node));
                }
            }
            Fault::Pause { node } => {
                if let Some(paused) = self.nodes.get_mut(&NodeId(*node)).filter(|node| node.up) {
                    paused.paused_until = paused.paused_until.max(fault.ends());
                    self.trace.record(at, Event::NodePaused { node: NodeId(*node) });
                }
            }
            _ => {}
        }
    }

    fn fault_ends(&mut self, at: Micros, number: usize) {
        let fault = &self.plan.faults[number];
        self.trace.record(at, Event::FaultEnded(fault.id));
        let restarts = match &fault.what {
            Fault::Crash { node } | Fault::WipedDisk { node } => vec![*node],
            Fault::PowerLoss { nodes } => nodes.clone(),
            // It may be stopped twice; it goes on after the longer one.
            Fault::Pause { node }
                if self.nodes.get(&NodeId(*node)).is_some_and(|is| is.up && is.paused_until <= at) =>
            {
                return self.trace.record(at, Event::NodeResumed { node: NodeId(*node) });
            }
            _ => return,
        };
        for node in restarts.into_iter().map(NodeId) {
            if self.nodes.get(&node).is_some_and(|node| !node.up) {
                self.start(at, node);
            }
        }
    }
}

/// The number of a URL: how it ends.
fn number_of(url: &ClientUrl) -> Option<u64> {
    url.url.rsplit('/').next()?.parse().ok()
}
