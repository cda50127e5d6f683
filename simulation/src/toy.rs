//! A lock service with one lock, small enough to be read at once: it proves that plans, world, invariants, trace hash, shrinker
//! and mutants of the simulator work, whatever state the real cores are in. It is no part of the crawler.
//!
//! Node 0 lends the lock to one node at a time; who has it asks host 0, one request after the other. A holder must
//! count the time from when it sent its request and allow for drifting clocks; a server that starts must wait out what it may
//! have lent. The [mutants](Toy::mutants) leave out one of these rules each.

use std::collections::BTreeMap;

use proto::cluster::lease::Seq;
use proto::crawl::politeness::Micros;
use proto::crawl::robots::Robots;
use proto::id::{NodeId, SLOTS, Slot, UrlId};

use crate::invariants::true_ring;
use crate::layer::{Layer, Mutant, Point, RunOptions, RunReport};
use crate::world::clock::Clock;
use crate::world::network::{Delivery, Fate, Network};
use crate::world::origins::{Origins, Outcome, ROBOTS_PATH, Reply};
use crate::world::plan::{Fault, MILLISECOND, Plan};
use crate::world::trace::{Event, FetchEnd, FetchKind, FetchStart, Phase, Trace};

const SERVER: NodeId = NodeId(0);
const HOST: u32 = 0;
const TICK: Micros = 100 * MILLISECOND;
const ASK_EVERY: Micros = 500 * MILLISECOND;

/// The layer.
pub struct Toy;

impl Layer for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn run(&self, plan: &Plan, options: &RunOptions) -> RunReport {
        World::new(plan, options).run()
    }

    fn mutants(&self) -> Vec<Mutant> {
        let mutant = |name, seeds_max, breaks| Mutant { name, seeds_max, breaks };
        vec![
            mutant("count_from_answer", 500, &["I7"]),
            mutant("server_forgets", 200, &["I12"]),
            mutant("no_delay", 5, &["I2"]),
            mutant("stays_dead", 200, &["I5"]),
        ]
    }

    fn judges(&self) -> Vec<&'static str> {
        vec!["I2", "I5", "I7", "I12"]
    }

    fn points(&self) -> Vec<Point> {
        let names = ["lock_moved", "request_refused", "server_waits", "node_crashed", "message_cut", "fetch_aborted"];
        Point::all(200, names).collect()
    }
}

#[derive(Clone, Copy, Debug, Hash)]
enum Message {
    Ask { sent: Micros },
    Lend { sent: Micros },
}

enum Happening {
    Tick { node: NodeId, boot: u32 },
    Arrives { delivery: Delivery, message: Message },
    FetchEnds { node: NodeId, boot: u32, fetch: u64, reply: Option<Reply> },
    FaultBegins(usize),
    FaultEnds(usize),
    CalmBegins,
    Look,
}

#[derive(Default)]
struct Client {
    up: bool,
    boot: u32,
    paused_until: Micros,
    holds_until: Option<Micros>, // local
    asked_at: Micros,            // local
    next_fetch: Micros,          // local
    fetching: Option<u64>,
    may_ask: bool,
}

struct World<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    trace: Trace,
    network: Network,
    origins: Origins,
    clocks: BTreeMap<NodeId, Clock>,
    clients: BTreeMap<NodeId, Client>,
    lent: Option<(NodeId, Micros)>, // server's local time
    lends_from: Micros,             // server's local time
    last_holder: Option<NodeId>,
    queue: BTreeMap<(Micros, u64), Happening>,
    queued: u64,
    fetches: u64,
    rested_at: Option<Micros>,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, options: &'a RunOptions) -> World<'a> {
        let nodes: Vec<NodeId> = plan.first_nodes().collect();
        World {
            plan,
            options,
            trace: Trace::new(plan, options.keep),
            network: Network::new(plan),
            origins: Origins::new(plan),
            clocks: nodes.iter().map(|node| (*node, Clock::new(plan, *node))).collect(),
            clients: nodes.iter().map(|node| (*node, Client::default())).collect(),
            lent: None,
            lends_from: 0,
            last_holder: None,
            queue: BTreeMap::new(),
            queued: 0,
            fetches: 0,
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

    fn start(&mut self, at: Micros, node: NodeId) {
        let Some(client) = self.clients.get_mut(&node) else { return };
        *client = Client { up: true, boot: client.boot, ..Client::default() };
        let boot = client.boot;
        if let Some(clock) = self.clocks.get_mut(&node) {
            clock.restart(boot);
        }
        self.trace.record(at, Event::NodeStarted { node, boot });
        self.trace.record(at, Event::NodeRecovered { node });
        let members: BTreeMap<NodeId, usize> = self.plan.first_nodes().map(|node| (node, 1)).collect();
        let ring = true_ring(&members);
        let owners = (0..SLOTS).filter_map(|slot| ring.owner(Slot(slot))).collect();
        self.trace.record(at, Event::RingChanged { node, members, owners });
        if node == SERVER {
            self.lent = None;
            let waits = if boot > 0 && !self.has("server_forgets") { self.lease() } else { 0 };
            self.lends_from = self.local(node, at) + waits;
        }
        self.at(at, Happening::Tick { node, boot });
    }

    fn crash(&mut self, at: Micros, node: NodeId) {
        let Some(client) = self.clients.get_mut(&node).filter(|client| client.up) else { return };
        (client.up, client.boot) = (false, client.boot + 1);
        self.trace.record(at, Event::NodeCrashed { node });
        self.trace.sometimes(at, "node_crashed");
    }

    fn lease(&self) -> Micros {
        self.plan.cluster.lease_ms * MILLISECOND
    }

    /// What a holder may rely on, on its own clock, from when it asked.
    fn hold(&self) -> Micros {
        let drift = self.plan.cluster.drift_ppm;
        self.lease() * (1_000_000 - drift) / (1_000_000 + drift) - self.plan.cluster.guard_ms * MILLISECOND
    }

    fn longer(&self, wait: Micros) -> Micros {
        wait + wait * self.plan.cluster.drift_ppm / 1_000_000 + MILLISECOND
    }

    fn local(&self, node: NodeId, at: Micros) -> Micros {
        self.clocks[&node].local(at)
    }

    fn send(&mut self, at: Micros, from: NodeId, to: NodeId, message: Message) {
        let sent = self.network.send(at, from, to);
        if sent.fate == Fate::Cut {
            self.trace.sometimes(at, "message_cut");
        }
        for delivery in sent.deliveries.into_iter().flatten() {
            self.at(delivery.at, Happening::Arrives { delivery, message });
        }
    }

    fn happens(&mut self, at: Micros, happening: Happening) {
        let concerns = match &happening {
            Happening::Tick { node, .. } | Happening::FetchEnds { node, .. } => Some(*node),
            Happening::Arrives { delivery, .. } => Some(delivery.to),
            _ => None,
        };
        // A stopped process sees nothing until it goes on.
        if let Some(until) = concerns.map(|node| self.clients[&node].paused_until).filter(|until| *until > at) {
            return self.at(until, happening);
        }
        match happening {
            Happening::Tick { node, boot } => self.tick(at, node, boot),
            Happening::Arrives { delivery, message } => {
                if self.network.arrives(&delivery) && self.clients[&delivery.to].up {
                    self.trace.note(at, delivery.to, &message, || format!("{message:?} from {}", delivery.from.0));
                    self.receive(at, delivery.from, delivery.to, message);
                }
            }
            Happening::FetchEnds { node, boot, fetch, reply } => self.fetch_ends(at, node, boot, fetch, reply),
            Happening::FaultBegins(number) => self.fault_begins(at, number),
            Happening::FaultEnds(number) => self.fault_ends(at, number),
            Happening::CalmBegins => {
                self.trace.record(at, Event::PhaseChanged(Phase::Calm));
                for node in self.plan.stays_down.clone() {
                    self.crash(at, NodeId(node));
                }
                self.at(at, Happening::Look);
            }
            Happening::Look => match self.trace.invariants().missing(at) {
                None => self.rested_at = Some(at),
                Some(_) if at < self.plan.calm_ends() => self.at(at + 500 * MILLISECOND, Happening::Look),
                Some(_) => {}
            },
        }
    }

    fn tick(&mut self, at: Micros, node: NodeId, boot: u32) {
        if !self.clients[&node].up || self.clients[&node].boot != boot {
            return;
        }
        let now = self.local(node, at);
        let next = self.clocks[&node].timer(at, TICK);
        self.at(next, Happening::Tick { node, boot });
        let client = self.clients.get_mut(&node).expect("every node is a client");
        if client.holds_until.is_some_and(|until| until <= now) {
            client.holds_until = None;
            self.trace.record(at, Event::LeaseLost { node, slot: Slot(1) });
        }
        let client = self.clients.get_mut(&node).expect("every node is a client");
        if now >= client.asked_at + ASK_EVERY {
            client.asked_at = now;
            self.send(at, node, SERVER, Message::Ask { sent: now });
        }
        self.fetch(at, now, node);
    }

    fn fetch(&mut self, at: Micros, now: Micros, node: NodeId) {
        let timeout = self.plan.cluster.fetch_timeout_ms * MILLISECOND;
        let ends = now + self.longer(timeout);
        let client = &self.clients[&node];
        let may = client.holds_until.is_some_and(|until| ends < until);
        if !may || client.fetching.is_some() || now < client.next_fetch {
            return;
        }
        let (kind, path) = if client.may_ask { (FetchKind::Page, "/") } else { (FetchKind::Robots, ROBOTS_PATH) };
        self.fetches += 1;
        let fetch = self.fetches;
        let deadline = self.clocks[&node].timer(at, timeout);
        self.trace.record(
            at,
            Event::FetchStarted(FetchStart {
                fetch,
                node,
                host: HOST,
                slot: Slot(1),
                url: UrlId::of("toy", &format!("{path}{fetch}")), // no page twice
                kind,
                site: None,
                round: fetch as u32,
                deadline,
                crawl_delay: self.origins.crawl_delay(HOST),
                least_delay: self.origins.least_delay(),
                own_robots: path == ROBOTS_PATH,
                allowed: self.origins.allows(HOST, path),
            }),
        );
        let reply = self.origins.ask(at, HOST, path);
        // Whoever had the lock before may have asked this host until now, so a new holder waits as well; see `receive`.
        let pause = self.pause();
        let client = self.clients.get_mut(&node).expect("every node is a client");
        client.fetching = Some(fetch);
        client.next_fetch = now + pause;
        let boot = client.boot;
        let (ends, reply) = if reply.at <= deadline { (reply.at, Some(reply)) } else { (deadline, None) };
        self.at(ends, Happening::FetchEnds { node, boot, fetch, reply });
    }

    fn pause(&self) -> Micros {
        let web = &self.plan.web;
        let declared = u64::from(web.crawl_delay_ms.max(web.long_crawl_delay_ms));
        let delay = declared.max(self.plan.cluster.crawl_delay_ms) * MILLISECOND;
        if self.has("no_delay") { MILLISECOND } else { self.longer(delay) }
    }

    fn fetch_ends(&mut self, at: Micros, node: NodeId, boot: u32, fetch: u64, reply: Option<Reply>) {
        let client = self.clients.get_mut(&node).expect("every node is a client");
        if !client.up || client.boot != boot || client.fetching != Some(fetch) {
            return;
        }
        client.fetching = None;
        let end = match &reply {
            None => FetchEnd::Aborted,
            Some(reply) => match &reply.outcome {
                Outcome::Answer(answered) if answered.answer.status < 400 => FetchEnd::Answered,
                _ => FetchEnd::Failed,
            },
        };
        client.may_ask |= reply.as_ref().is_some_and(|reply| match &reply.outcome {
            Outcome::Answer(answered) if answered.answer.status == 200 => {
                Robots::parse(&answered.answer.body, "toy").allows("/")
            }
            Outcome::Answer(answered) => (400..500).contains(&answered.answer.status),
            _ => false,
        });
        self.trace.record(at, Event::FetchEnded { fetch, node, end });
        let forbids_all = reply.as_ref().is_none_or(Reply::forbids_all);
        self.trace.record(at, Event::RobotsHeard { fetch, forbids_all });
        match reply {
            Some(reply) => self.origins.delivered(HOST, &reply),
            None => self.trace.sometimes(at, "fetch_aborted"),
        }
    }

    fn receive(&mut self, at: Micros, from: NodeId, to: NodeId, message: Message) {
        let now = self.local(to, at);
        match message {
            Message::Ask { sent } if to == SERVER => {
                let free = self.lent.is_none_or(|(holder, until)| holder == from || until <= now);
                if now < self.lends_from {
                    return self.trace.sometimes(at, "server_waits");
                }
                if !free {
                    return self.trace.sometimes(at, "request_refused");
                }
                self.lent = Some((from, now + self.lease()));
                let until = self.clocks[&SERVER].timer(at, self.lease());
                let promise =
                    Event::PromiseMade { voter: SERVER, slot: Slot(1), holder: from, seq: Seq::default(), until };
                self.trace.record(at, promise);
                self.send(at, SERVER, from, Message::Lend { sent });
            }
            Message::Ask { .. } => {}
            Message::Lend { sent } => {
                let counted_from = if self.has("count_from_answer") { now } else { sent };
                let until = if self.has("count_from_answer") { now + self.lease() } else { counted_from + self.hold() };
                // An answer to what a former life asked speaks of another clock.
                if sent > now || until <= now || now - sent > self.lease() {
                    return;
                }
                let pause = self.pause();
                let client = self.clients.get_mut(&to).expect("every node is a client");
                let acquired = client.holds_until.is_none();
                client.holds_until = client.holds_until.max(Some(until));
                if acquired {
                    client.next_fetch = client.next_fetch.max(now + pause);
                }
                let until = self.clocks[&to].true_time(until);
                self.trace.record(at, Event::LeaseHeld { node: to, slot: Slot(1), until, acquired });
                if self.last_holder.replace(to).is_some_and(|last| last != to) {
                    self.trace.sometimes(at, "lock_moved");
                }
            }
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
                if let Some(client) = self.clients.get_mut(&NodeId(*node)).filter(|client| client.up) {
                    client.paused_until = fault.ends();
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
            Fault::Pause { node } if self.clients.get(&NodeId(*node)).is_some_and(|client| client.up) => {
                return self.trace.record(at, Event::NodeResumed { node: NodeId(*node) });
            }
            _ => return,
        };
        for node in restarts.into_iter().map(NodeId) {
            let down = self.clients.get(&node).is_some_and(|client| !client.up);
            if down && !(self.has("stays_dead") && matches!(fault.what, Fault::PowerLoss { .. })) {
                self.start(at, node);
            }
        }
    }
}
