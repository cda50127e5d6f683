//! L1: the cores of N nodes in a discrete-event loop. No tokio, no actix, no sockets: coordinator and frontier of every node are
//! stepped by hand on their own drifting clocks, over the world's network, disks and hosts. It is the fastest layer and the one
//! that reaches the most interleavings.
//!
//! `node` is one node: its two cores, and the storage between them that the product has in RocksDB. `storage` is that storage. `contents` has
//! the third core, which brings pages to second disks.
//! `sites` has people who make, change and delete sites, and what is counted of them. `faults` does to nodes what the plan says. This file is the loop, and what connects the nodes: messages, hosts, clients.

pub(crate) mod contents;
mod faults;
#[cfg(feature = "mutants")]
pub(crate) mod mutants;
pub(crate) mod node;
mod points;
mod sites;
mod sources;
pub(crate) mod storage;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::LazyLock;

use proto::batch::{Discovered, EntryKind};
use proto::cluster::coordinator;
use proto::cluster::message::{Letter, Message};
use proto::cluster::mutant::Planted;
use proto::cluster::ring::Rings;
use proto::cluster::slot_set::SlotSet;
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot, UrlId};
use proto::key::DEFAULT_CRAWL;
use proto::url::{CanonicalUrl, UrlRules};

use self::node::{Fetching, Node};
use crate::layer::{Layer, Mutant, Point, RunOptions, RunReport};
use crate::world::definers;
use crate::world::disk::Sync;
use crate::world::generators;
use crate::world::network::{Delivery, Network};
use crate::world::origins::{Origins, ROBOTS_PATH, Reply};
use crate::world::plan::{MILLISECOND, Plan};
use crate::world::random::{For, Random};
use crate::world::sights::Sights;
use crate::world::trace::{Event, Phase, Trace};

/// A client asks again after this, at another node perhaps.
const CLIENT_PATIENCE: Micros = 3_000 * MILLISECOND;
/// How often it is looked whether the cluster has come to rest.
const LOOK_EVERY: Micros = 500 * MILLISECOND;

/// The layer.
pub struct Pure;

/// The invariants of this layer; the others are those of small layers: rankings, clients, spiders.
const JUDGED: [&str; 22] = [
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "I14", "I15", "I16", "I17",
    "I18", "I19", "I20", "I21", "I22",
];

impl Layer for Pure {
    fn name(&self) -> &'static str {
        "pure"
    }

    fn run(&self, plan: &Plan, options: &RunOptions) -> RunReport {
        World::new(plan, options).run()
    }

    #[cfg(feature = "mutants")]
    fn mutants(&self) -> Vec<Mutant> {
        mutants::all()
    }

    #[cfg(not(feature = "mutants"))]
    fn mutants(&self) -> Vec<Mutant> {
        Vec::new()
    }

    fn judges(&self) -> Vec<&'static str> {
        JUDGED.to_vec()
    }

    fn points(&self) -> Vec<Point> {
        points::points()
    }
}

pub(crate) fn planted(options: &RunOptions) -> Planted {
    #[cfg(feature = "mutants")]
    if let Some(mutant) = options.mutant.and_then(proto::cluster::mutant::Mutant::named) {
        return Planted::new(mutant);
    }
    let _ = options;
    Planted::default()
}

/// Something that happens at a time.
enum Happening {
    /// A node looks whether something is due.
    Wake {
        node: NodeId,
        life: u32,
    },
    /// A letter arrives.
    Arrives {
        delivery: Delivery,
        letter: Rc<Letter>,
    },
    /// A node begins an fsync of what it wrote.
    SyncBegins {
        node: NodeId,
        life: u32,
    },
    /// Something about the contents of pages arrives.
    PagesArrive {
        delivery: Delivery,
        saying: Rc<contents::Saying>,
    },
    /// A push of pages has had no answer for long.
    PushEnds {
        node: NodeId,
        life: u32,
        push: u64,
    },
    /// An fsync returns.
    SyncEnds {
        node: NodeId,
        life: u32,
        sync: Sync,
        upto: u64,
    },
    /// A fetch of a node ends: by an answer, or because the node leaves it.
    FetchEnds {
        node: NodeId,
        life: u32,
        fetch: u64,
        reply: Option<Box<Reply>>,
    },
    /// A node comes to what a request brought.
    FetchHeard {
        node: NodeId,
        life: u32,
        fetch: u64,
        what: Box<Fetching>,
        reply: Option<Box<Reply>>,
    },
    /// A node measures its load and looks what has become due on its disk.
    Housekeeping {
        node: NodeId,
        life: u32,
    },
    /// A client hands a URL in, for the `attempt`th time.
    Client {
        number: usize,
        attempt: u64,
    },
    /// Somebody defines something, for the `attempt`th time.
    Definer {
        number: usize,
        attempt: u64,
    },
    /// A script ends by itself.
    ScriptEnds {
        node: NodeId,
        life: u32,
        execution: u64,
    },
    /// It is looked whether a script must be killed.
    ScriptLook {
        node: NodeId,
        life: u32,
        execution: u64,
    },
    /// Somebody wants a generator to run, for the `attempt`th time.
    ByHand {
        number: usize,
        attempt: u64,
    },
    /// Somebody does something to a site, for the `attempt`th time.
    Operates {
        number: usize,
        attempt: u64,
    },
    FaultBegins(usize),
    FaultEnds(usize),
    Starts(NodeId),
    /// A node of another cluster speaks.
    StrangerSpeaks {
        node: NodeId,
        times: u32,
    },
    CalmBegins,
    Look,
}

struct World<'a> {
    plan: &'a Plan,
    planted: Planted,
    trace: Trace,
    network: Network,
    origins: Origins,
    nodes: BTreeMap<NodeId, Node>,
    slots: SlotSet,
    rings: Rings,
    queue: BTreeMap<(Micros, u64), Happening>,
    queued: u64,
    fetches: u64,
    pushes: u64,
    executions: u64,
    /// Runs that somebody was told of.
    promised: BTreeSet<usize>,
    /// Submissions that are acknowledged, and the tickets under which the others were handed in: submission and attempt.
    acknowledged: BTreeSet<usize>,
    /// Definitions that are kept.
    defined: BTreeSet<usize>,
    /// Operations on sites.
    operations: sites::Operations,
    /// URLs of sites that the trace knows of.
    of_sites: BTreeSet<UrlId>,
    /// Slots and who holds them.
    sights: Sights,
    /// A power loss waits for the next acknowledgement.
    power_loss_waits: Option<Micros>,
    rested_at: Option<Micros>,
}

thread_local! {
    /// Rings are pure and take long to build: runs of one thread share them.
    static RINGS: RefCell<Rings> = RefCell::new(Rings::default());
}

/// The rings that runs of this thread share.
pub(crate) fn shared_rings() -> Rings {
    RINGS.with_borrow(Clone::clone)
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, options: &RunOptions) -> World<'a> {
        let origins = Origins::new(plan);
        let domain = |host| Some(parse(&origins.web().url(host, "/"))?.domain().to_owned());
        let domains = (0..origins.web().host_count()).filter_map(domain);
        let slots = domains.map(|domain| Slot::of_domain(&domain)).chain(generators::slots()).collect();
        World {
            plan,
            planted: planted(options),
            trace: Trace::new(plan, options.keep),
            network: Network::new(plan),
            nodes: BTreeMap::new(),
            slots,
            rings: shared_rings(),
            queue: BTreeMap::new(),
            queued: 0,
            fetches: 0,
            pushes: 0,
            executions: 0,
            promised: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            operations: sites::Operations::new(plan),
            of_sites: BTreeSet::new(),
            sights: Sights::new(plan),
            defined: BTreeSet::new(),
            power_loss_waits: None,
            rested_at: None,
            origins,
        }
    }

    fn run(mut self) -> RunReport {
        self.trace.record(0, Event::PhaseChanged(Phase::Faults));
        for node in self.plan.first_nodes() {
            self.nodes.insert(node, Node::new(self.plan, node));
            self.at(0, Happening::Starts(node));
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            self.at(fault.begins(), Happening::FaultBegins(number));
            self.at(fault.ends(), Happening::FaultEnds(number));
        }
        for (number, submission) in self.plan.submissions.iter().enumerate() {
            self.at(submission.at_ms * MILLISECOND, Happening::Client { number, attempt: 0 });
        }
        for (number, at) in definers::times(self.plan).into_iter().enumerate() {
            self.at(at, Happening::Definer { number, attempt: 0 });
        }
        for (number, at) in generators::times(self.plan).into_iter().enumerate() {
            self.at(at, Happening::ByHand { number, attempt: 0 });
        }
        for (number, at) in self.operations.times().into_iter().enumerate() {
            self.at(at, Happening::Operates { number, attempt: 0 });
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

    fn happens(&mut self, at: Micros, happening: Happening) {
        let concerns = match &happening {
            Happening::Wake { node, life }
            | Happening::SyncBegins { node, life }
            | Happening::FetchEnds { node, life, .. }
            | Happening::FetchHeard { node, life, .. }
            | Happening::PushEnds { node, life, .. }
            | Happening::ScriptEnds { node, life, .. }
            | Happening::ScriptLook { node, life, .. }
            | Happening::Housekeeping { node, life } => Some((*node, Some(*life))),
            Happening::SyncEnds { node, life, .. } => Some((*node, Some(*life))),
            Happening::Arrives { delivery, .. } | Happening::PagesArrive { delivery, .. } => Some((delivery.to, None)),
            _ => None,
        };
        if let Some((node, life)) = concerns {
            let Some(is) = self.nodes.get_mut(&node) else { return };
            if life.is_some_and(|life| life != is.life) || !is.is_up() {
                if let Happening::Arrives { delivery, .. } | Happening::PagesArrive { delivery, .. } = &happening {
                    self.network.arrives(delivery);
                }
                return;
            }
            // A stopped process sees nothing until it goes on, a slow one only what it comes to. Scripts are killed and requests end beside what it does: they are
            // tasks of their own.
            let beside = matches!(
                happening,
                Happening::SyncEnds { .. } | Happening::ScriptLook { .. } | Happening::FetchEnds { .. }
            );
            if let Some(until) = is.busy_until(at, !beside) {
                return self.at(until, happening);
            }
        }
        match happening {
            Happening::Wake { node, .. } => self.wake(at, node),
            Happening::Arrives { delivery, letter } => {
                if self.network.arrives(&delivery) {
                    self.trace.note(at, delivery.to, &(letter.from, letter.clock, letter.message.name()), || {
                        format!("from {}: {:?}", letter.from.0, letter.message)
                    });
                    let letter = Rc::try_unwrap(letter).unwrap_or_else(|shared| (*shared).clone());
                    self.step(at, delivery.to, coordinator::Input::Received(letter));
                } else if self.network.is_reset(&delivery) {
                    self.trace.sometimes(at, "message_lost_to_reset");
                }
            }
            Happening::PagesArrive { delivery, saying } => {
                if self.network.arrives(&delivery) {
                    self.pages_arrive(at, delivery.from, delivery.to, &saying);
                }
            }
            Happening::PushEnds { node, push, .. } => self.push_ends(at, node, push, None),
            Happening::SyncBegins { node, .. } => self.sync_begins(at, node),
            Happening::SyncEnds { node, sync, upto, .. } => self.sync_ends(at, node, &sync, upto),
            Happening::FetchEnds { node, fetch, reply, .. } => self.fetch_ends(at, node, fetch, reply),
            Happening::FetchHeard { node, fetch, what, reply, .. } => self.fetch_heard(at, node, fetch, *what, reply),
            Happening::Housekeeping { node, .. } => self.housekeeping(at, node),
            Happening::Client { number, attempt } => self.client(at, number, attempt),
            Happening::Definer { number, attempt } => self.definer(at, number, attempt),
            Happening::ScriptEnds { node, execution, .. } => self.script_ends(at, node, execution),
            Happening::ScriptLook { node, execution, .. } => self.script_look(at, node, execution),
            Happening::ByHand { number, attempt } => self.by_hand(at, number, attempt),
            Happening::FaultBegins(number) => self.fault_begins(at, number),
            Happening::FaultEnds(number) => self.fault_ends(at, number),
            Happening::Operates { number, attempt } => self.operate(at, number, attempt),
            Happening::Starts(node) => self.start(at, node),
            Happening::StrangerSpeaks { node, times } => self.stranger_speaks(at, node, times),
            Happening::CalmBegins => self.calm_begins(at),
            Happening::Look => self.look(at),
        }
    }

    fn calm_begins(&mut self, at: Micros) {
        self.trace.record(at, Event::PhaseChanged(Phase::Calm));
        self.power_loss_waits = None;
        for node in self.plan.stays_down.clone() {
            self.crash(at, NodeId(node));
        }
        let down: Vec<NodeId> =
            self.nodes.values().filter(|node| !node.is_up() && !node.left).map(|node| node.id).collect();
        for node in down.into_iter().filter(|node| self.plan.comes_back(*node)) {
            self.start(at, node);
        }
        self.no_more_cron(at);
        self.at(at, Happening::Look);
    }

    fn look(&mut self, at: Micros) {
        let mut missing = self.trace.invariants().missing(at);
        if missing.is_none() {
            let counted = self.count_crawls(at);
            self.trace.record(at, counted);
            missing = self.trace.invariants().miscounted(at);
        }
        match missing {
            None => self.rested_at = Some(at),
            Some(_) if at < self.plan.calm_ends() => self.at(at + LOOK_EVERY, Happening::Look),
            Some(_) => {}
        }
    }

    // The network.

    fn send(&mut self, at: Micros, from: NodeId, to: NodeId, letter: Letter) {
        if letter.message.since() > self.plan.oldest_spoken(from, [to].into_iter()) {
            return self.trace.sometimes(at, "message_unspoken");
        }
        let sent = self.network.send(at, from, to);
        if let Some(point) = sent.fate.point() {
            self.trace.sometimes(at, point);
        }
        let letter = Rc::new(letter);
        for delivery in sent.deliveries.into_iter().flatten() {
            self.at(delivery.at, Happening::Arrives { delivery, letter: Rc::clone(&letter) });
        }
    }

    fn stranger_speaks(&mut self, at: Micros, node: NodeId, times: u32) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for to in nodes {
            let seq = proto::cluster::lease::Seq { boot: 1, counter: u64::from(times) };
            let message = Message::LeaseRequest { seq, slots: self.slots.clone() };
            let letter = Letter { cluster: node::CLUSTER + 1, from: node, boot: 1, clock: at, message };
            self.send(at, node, to, letter);
        }
        if times > 0 {
            self.at(at + 700 * MILLISECOND, Happening::StrangerSpeaks { node, times: times - 1 });
        }
    }

    // Clients.

    fn client(&mut self, at: Micros, number: usize, attempt: u64) {
        if self.acknowledged.contains(&number) {
            return;
        }
        let submission = self.plan.submissions[number];
        let text = self.origins.submission_url(submission.host, submission.page);
        let Some(url) = parse(&text) else { return };
        if attempt == 0 {
            let (slot, url) = (Slot::of_domain(url.domain()), url.id(DEFAULT_CRAWL));
            self.trace.record(at, Event::UrlSubmitted { slot, url });
        } else {
            self.trace.sometimes(at, "client_asked_again");
        }
        let mut draw = Random::at(self.plan.seed, For::Client, number as u64, attempt);
        let up: Vec<NodeId> = self.nodes.values().filter(|node| node.takes_clients()).map(|node| node.id).collect();
        if !up.is_empty() {
            let node = draw.pick(&up);
            let urls = vec![Discovered { url, kind: EntryKind::Page, depth: 0, priority: 200, redirects: 0 }];
            let (ticket, crawl) = (number as u64, DEFAULT_CRAWL.to_owned());
            self.step(at, node, coordinator::Input::Submitted { ticket, crawl, urls });
        }
        self.at(at + CLIENT_PATIENCE, Happening::Client { number, attempt: attempt + 1 });
    }

    fn client_told(&mut self, at: Micros, node: NodeId, ticket: u64) {
        let submission = self.plan.submissions[ticket as usize];
        let text = self.origins.submission_url(submission.host, submission.page);
        if self.acknowledged.insert(ticket as usize)
            && let Some(url) = parse(&text)
        {
            let (slot, urls) = (Slot::of_domain(url.domain()), vec![url.id(DEFAULT_CRAWL)]);
            self.trace.record(at, Event::WriteAcknowledged { node, slot, urls });
        }
    }

    fn definer(&mut self, at: Micros, number: usize, attempt: u64) {
        if self.defined.contains(&number) {
            return;
        }
        if attempt == 0 {
            self.trace.record(at, Event::DefinitionAsked { number });
        } else {
            self.trace.sometimes(at, "definer_asked_again");
        }
        let up: Vec<NodeId> = self.nodes.values().filter(|node| node.takes_clients()).map(|node| node.id).collect();
        if !up.is_empty() {
            let node = definers::draw(self.plan, number, attempt).pick(&up);
            let (key, body) = definers::definition(number, attempt);
            let expects = self.nodes.get(&node).and_then(|node| definers::seen(node.definitions(), &key));
            let (ticket, body) = (number as u64, Some(body));
            self.step(at, node, coordinator::Input::Define { ticket, key, expects, body });
        }
        self.at(at + definers::PATIENCE, Happening::Definer { number, attempt: attempt + 1 });
    }

    fn definer_told(&mut self, at: Micros, ticket: u64) {
        let number = ticket as usize;
        if self.defined.insert(number) {
            self.trace.record(at, Event::DefinitionAnswered { number });
        }
    }

    // Hosts.

    fn fetch_begins(&mut self, at: Micros, node: NodeId, what: Fetching, url: &CanonicalUrl, until: Micros) {
        let Some(is) = self.nodes.get_mut(&node) else { return };
        let life = is.life;
        let Some(host) = self.origins.host(url.host()) else {
            let reply = None;
            self.fetches += 1;
            is.fetches.insert(self.fetches, what);
            let fetch = self.fetches;
            return self.at(at, Happening::FetchEnds { node, life, fetch, reply });
        };
        self.fetches += 1;
        let fetch = self.fetches;
        let path = url.as_str()[url.origin().len()..].to_owned();
        let (kind, round) = what.kind_and_round();
        let (id, site) = (url.id(what.crawl()), crate::world::sites::of_crawl(what.crawl()));
        let deadline = is.clock.true_time(until).max(at);
        let slot = Slot::of_domain(url.domain());
        let start = crate::world::trace::FetchStart {
            fetch,
            node,
            host,
            slot,
            url: id,
            kind,
            site,
            round,
            deadline,
            crawl_delay: self.origins.crawl_delay(host),
            least_delay: self.origins.least_delay(),
            own_robots: path == ROBOTS_PATH,
            allowed: self.origins.allows(host, &path),
        };
        is.fetches.insert(fetch, what.at_host(host));
        self.trace.record(at, Event::FetchStarted(start));
        let reply = self.origins.ask(at, host, &path);
        if let Some(point) = reply.met {
            self.trace.sometimes(at, point);
        }
        let (ends, reply) = if reply.at <= deadline { (reply.at, Some(Box::new(reply))) } else { (deadline, None) };
        self.at(ends, Happening::FetchEnds { node, life, fetch, reply });
    }
}

fn parse(text: &str) -> Option<CanonicalUrl> {
    static RULES: LazyLock<UrlRules> = LazyLock::new(UrlRules::default);
    CanonicalUrl::parse(text, &RULES).ok()
}

fn ids(crawl: &str, urls: &[Discovered]) -> Vec<UrlId> {
    urls.iter().map(|found| found.url.id(crawl)).collect()
}
