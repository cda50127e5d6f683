//! L2: the product's own actors of N nodes on one thread with tokio's clock paused, over the world's network, disks, hosts and clocks.
//!
//! Nothing of a node is made for the test: coordinator, frontier, router, fetcher, parser, scorer, storage and copier are those of the
//! program, with their mailboxes, timers and supervisor. The border is where they touch the outside: letters, jobs for the disk,
//! requests to the web, clocks. A crash ends all actors of a node at once; a panic ends one, and its supervisor replaces it.
//!
//! tokio's timers count milliseconds, so everything here happens on a grid of that size, like in the program. A stopped process
//! is cut off from everything outside; its own timers still run, which the pure layer does not let them.
//!
//! `world` is what the nodes share, `edges` connects one node to it, `contents` has the streams of pages between nodes, `disk` is the thread
//! behind a node's storage, `faults` does to nodes what the plan says. This file is the loop.

mod contents;
mod disk;
mod edges;
mod faults;
#[cfg(feature = "mutants")]
mod mutants;
mod points;
mod world;

use std::sync::{Arc, Mutex, MutexGuard};

use node::messages::{Define, SubmitUrls};
use proto::batch::{Discovered, EntryKind};
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};
use proto::key::DEFAULT_CRAWL;
use tokio::time::{Duration, Instant};

use self::world::World;
use crate::layer::{Layer, Mutant, Point, RunOptions, RunReport};
use crate::pure::node::{FLIGHTS_MAX, QUEUES_MAX};
use crate::world::definers;
use crate::world::plan::{MILLISECOND, Plan};
use crate::world::random::{For, Random};
use crate::world::sites;
use crate::world::trace::{Event, Phase};

/// A client asks again after this, at another node perhaps.
const CLIENT_PATIENCE: Micros = 3_000 * MILLISECOND;
/// How often it is looked whether something broke, or the cluster has come to rest.
const LOOK_EVERY: Micros = 500 * MILLISECOND;

/// The layer.
pub struct Actors;

impl Layer for Actors {
    fn name(&self) -> &'static str {
        "actors"
    }

    fn run(&self, plan: &Plan, options: &RunOptions) -> RunReport {
        let system = actix::System::with_tokio_rt(|| {
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
        });
        system.block_on(run(plan.clone(), *options))
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

/// The invariants that notice a defect here. Among them are all that go by what nodes say they decided (I7 to I9, I11 to I14): if that did not
/// arrive any more, they would hold whatever happened.
const JUDGED: [&str; 14] = ["I1", "I3", "I4", "I5", "I7", "I8", "I9", "I11", "I12", "I13", "I14", "I15", "I16", "I17"];

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
enum Happening {
    FaultBegins(usize),
    FaultEnds(usize),
    Starts(NodeId),
    Client { number: usize, attempt: u64 },
    Definer { number: usize, attempt: u64 },
    Operates { number: usize, attempt: u64 },
    StrangerSpeaks { node: NodeId, times: u32 },
    Parts { node: NodeId, process: u32 },
    CalmBegins,
    Look,
}

/// The world, shared by everything that runs in it. It is never locked over an await.
#[derive(Clone)]
struct Shared {
    world: Arc<Mutex<World>>,
    start: Instant,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        world.now = self.start.elapsed().as_micros() as Micros;
        world
    }

    async fn sleep_until(&self, at: Micros) {
        if at == Micros::MAX {
            return std::future::pending().await;
        }
        tokio::time::sleep_until(self.start + Duration::from_micros(at)).await;
    }
}

async fn run(plan: Plan, options: RunOptions) -> RunReport {
    let shared = Shared { world: Arc::new(Mutex::new(World::new(plan.clone(), &options))), start: Instant::now() };
    {
        let mut world = shared.lock();
        world.record(Event::PhaseChanged(Phase::Faults));
        for node in plan.first_nodes() {
            world.add_node(node);
            world.at(0, Happening::Starts(node));
        }
        for (number, fault) in plan.faults.iter().enumerate() {
            world.at(fault.begins(), Happening::FaultBegins(number));
            world.at(fault.ends(), Happening::FaultEnds(number));
        }
        for (number, submission) in plan.submissions.iter().enumerate() {
            world.at(submission.at_ms * MILLISECOND, Happening::Client { number, attempt: 0 });
        }
        for (number, at) in definers::times(&plan).into_iter().enumerate() {
            world.at(at, Happening::Definer { number, attempt: 0 });
        }
        for (number, (_, operation)) in sites::operations(&plan).into_iter().enumerate() {
            world.at(operation.at_ms * MILLISECOND, Happening::Operates { number, attempt: 0 });
        }
        world.at(plan.faults_end(), Happening::CalmBegins);
        world.at(LOOK_EVERY, Happening::Look);
    }
    while !shared.lock().is_over() {
        let Some(next) = shared.lock().next_happening() else { break };
        let changed = shared.lock().changed();
        tokio::select! {
            biased;
            () = shared.sleep_until(next) => {}
            () = changed.notified() => continue, // something earlier may have come up
        }
        loop {
            let Some(happening) = shared.lock().due() else { break };
            shared.happens(happening);
        }
    }
    shared.lock().end();
    // The actors of the last processes come to their end.
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
    shared.lock().report()
}

impl Shared {
    fn happens(&self, happening: Happening) {
        match happening {
            Happening::FaultBegins(number) => self.fault_begins(number),
            Happening::FaultEnds(number) => self.fault_ends(number),
            Happening::Starts(node) => self.start_node(node),
            Happening::Client { number, attempt } => self.client(number, attempt),
            Happening::Definer { number, attempt } => self.definer(number, attempt),
            Happening::Operates { number, attempt } => self.operate(number, attempt),
            Happening::StrangerSpeaks { node, times } => self.stranger_speaks(node, times),
            Happening::Parts { node, process } => self.parts(node, process),
            Happening::CalmBegins => self.calm_begins(),
            Happening::Look => {
                self.measure_frontiers();
                self.lock().look();
            }
        }
    }

    /// Asks every frontier how much it has in memory and has handed out.
    fn measure_frontiers(&self) {
        let processes = self.lock().processes();
        for (id, process) in processes {
            let shared = self.clone();
            actix_rt::spawn(async move {
                let Some(standing) = process.node.standing().await else { return };
                let mut world = shared.lock();
                if !world.is_current(id, process.number) {
                    return;
                }
                let frontier = standing.core;
                for (queue, length, bound) in
                    [("queues", frontier.queues, QUEUES_MAX), ("flights", frontier.flights, FLIGHTS_MAX)]
                {
                    let (length, bound) = (length as u64, bound as u64);
                    world.record(Event::QueueMeasured { node: id, queue, length, bound });
                }
            });
        }
    }

    fn calm_begins(&self) {
        let (dead, down) = {
            let mut world = self.lock();
            world.record(Event::PhaseChanged(Phase::Calm));
            world.power_loss_waits = None;
            (world.plan.stays_down.clone(), world.down_for_now())
        };
        dead.into_iter().for_each(|node| self.lock().crash(NodeId(node)));
        down.into_iter().for_each(|node| self.start_node(node));
    }

    /// A node that left the ring goes when every page of its is on another, as the program does.
    fn parts(&self, id: NodeId, number: u32) {
        let Some(process) = self.lock().process(id).filter(|process| process.number == number) else { return };
        let shared = self.clone();
        actix_rt::spawn(async move {
            let dispensable = process.node.is_dispensable().await;
            let mut world = shared.lock();
            if !world.is_current(id, number) {
                return;
            }
            if dispensable {
                world.goes(id);
            } else {
                let again = world.now + LOOK_EVERY;
                world.at(again, Happening::Parts { node: id, process: number });
            }
        });
    }

    // Clients.

    fn client(&self, number: usize, attempt: u64) {
        let mut world = self.lock();
        if world.acknowledged.contains(&number) {
            return;
        }
        let Some(url) = world.submission(number) else { return };
        let (slot, id) = (Slot::of_domain(url.domain()), url.id(DEFAULT_CRAWL));
        if attempt == 0 {
            world.record(Event::UrlSubmitted { slot, url: id });
        } else {
            world.sometimes("client_asked_again");
        }
        let mut draw = Random::at(world.plan.seed, For::Client, number as u64, attempt);
        let now = world.now;
        world.at(now + CLIENT_PATIENCE, Happening::Client { number, attempt: attempt + 1 });
        let takers = world.takes_clients();
        if takers.is_empty() {
            return;
        }
        let taker = draw.pick(&takers);
        let Some(process) = world.process(taker) else { return };
        drop(world);
        let urls = vec![Discovered { url, kind: EntryKind::Page, depth: 0, priority: 200, redirects: 0 }];
        let shared = self.clone();
        actix_rt::spawn(async move {
            let submitted = SubmitUrls { crawl: DEFAULT_CRAWL.to_owned(), urls };
            if process.node.submit(submitted).await.is_err() {
                return; // the client comes again by itself
            }
            let mut world = shared.lock();
            // Nobody hears the answer of a process that is dead.
            if world.is_current(taker, process.number) && world.acknowledged.insert(number) {
                world.record(Event::WriteAcknowledged { node: taker, slot, urls: vec![id] });
            }
        });
    }

    fn definer(&self, number: usize, attempt: u64) {
        let mut world = self.lock();
        if world.defined.contains(&number) {
            return;
        }
        if attempt == 0 {
            world.record(Event::DefinitionAsked { number });
        } else {
            world.sometimes("definer_asked_again");
        }
        let now = world.now;
        world.at(now + definers::PATIENCE, Happening::Definer { number, attempt: attempt + 1 });
        let takers = world.takes_clients();
        if takers.is_empty() {
            return;
        }
        let taker = definers::draw(&world.plan, number, attempt).pick(&takers);
        let Some(process) = world.process(taker) else { return };
        drop(world);
        let (key, body) = definers::definition(number, attempt);
        let expects = process.node.crawls().get(&key.name).map(|crawl| crawl.version);
        let shared = self.clone();
        actix_rt::spawn(async move {
            if process.node.define(Define { key, expects, body: Some(body) }).await.is_err() {
                return; // whoever asked comes again
            }
            let mut world = shared.lock();
            if world.is_current(taker, process.number) && world.defined.insert(number) {
                world.record(Event::DefinitionAnswered { number });
            }
        });
    }

    /// Somebody does something to a site. Orders to fetch do not say whose URLs they are, so sites have no root URLs here: what is tried is that they are defined and deleted.
    fn operate(&self, number: usize, attempt: u64) {
        let mut world = self.lock();
        if world.operated.contains(&number) {
            return;
        }
        if attempt == 0 {
            world.record(Event::DefinitionAsked { number: sites::FIRST_NUMBER + number });
        }
        let again = world.now + sites::patience(&world.plan);
        world.at(again, Happening::Operates { number, attempt: attempt + 1 });
        let takers = world.takes_clients();
        if takers.is_empty() {
            return;
        }
        let taker = sites::draw(&world.plan, number, attempt).pick(&takers);
        let Some(process) = world.process(taker) else { return };
        let (site, operation) = sites::operations(&world.plan)[number];
        let crawls = process.node.crawls();
        let known = crawls.site(&sites::id(site)).map(|(known, version)| (&**known, version));
        let change = sites::change(&world.plan, site, operation.what, known, Vec::new());
        let Some(sites::Change { key, expects, definition, revokes, .. }) = change else {
            return world.operation_answered(number);
        };
        drop(world);
        let shared = self.clone();
        actix_rt::spawn(async move {
            let body = definition.encode().ok();
            if process.node.define(Define { key, expects, body }).await.is_err() {
                return; // whoever asked comes again
            }
            let mut world = shared.lock();
            if world.is_current(taker, process.number) {
                if revokes.is_some() {
                    world.sometimes(if definition.deleted { "site_deleted" } else { "site_emptied" });
                }
                world.operation_answered(number);
            }
        });
    }
}
