//! One node of the pure layer: coordinator, frontier, storage, clock and disk, and how the effects of the two cores become what happens.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proto::batch::{Discovered, EntryKind, Pick};
use proto::clients::identity::is_client;
use proto::cluster::coordinator::{self, ClusterRules, Coordinator, Effect, Sight};
use proto::cluster::copy::RecordCopy;
use proto::cluster::lease::{Grants, LeaseRules, Leases};
use proto::cluster::membership::{MembershipRules, next_bump};
use proto::cluster::message::{Errand, Stage};
use proto::cluster::propagate::{PropagateRules, RunId};
use proto::cluster::registry::Definition;
use proto::cluster::repair::Changed;
use proto::cluster::replicate::WriteRules;
use proto::crawl::crawls::Crawls;
use proto::crawl::filter::{Filter, FilterRules, Scope};
use proto::crawl::frontier::{self, Frontier, FrontierRules, Now, RobotsFetch, Why};
use proto::crawl::outcome::{Ending, OutcomeRules};
use proto::crawl::politeness::{Micros, PaceRules};
use proto::crawl::retry::{Failure, RetryRules};
use proto::id::{NodeId, Slot};
use proto::key::UrlKey;
use proto::record::Findings;
use proto::url::{CanonicalUrl, UrlRules};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::contents::{Copier, Fetched};
use super::sites::is_operation;
use super::sources::{SOURCE_TICKETS, Sources, over};
use super::storage::{PagesWrite, Records, Storage, What, named};
use super::{Happening, World, ids};
use crate::world::clock::Clock;
use crate::world::disk::{Disk, Sync, Synced};
use crate::world::origins::{Outcome, Reply};
use crate::world::plan::{Fault, LoadTrouble, MILLISECOND, Plan, SECOND};
use crate::world::random::{For, Random};
use crate::world::sites::facts;
use crate::world::trace::{Event, FetchEnd, FetchKind, Host};

/// Names the simulated cluster.
pub(crate) const CLUSTER: u64 = 0x6f72_6277;
/// Records of one part of a slot: few, so that slots of this small world have several.
pub(crate) const PART_MAX: usize = 4;
/// Hosts that the frontier has in memory.
pub(crate) const QUEUES_MAX: usize = 64;
/// Entries that it has handed out.
pub(crate) const FLIGHTS_MAX: usize = 64;
/// How often a node looks after itself, on its own clock.
const HOUSEKEEPING: Micros = 500 * MILLISECOND;
/// How often it measures its load, in times of housekeeping.
const LOAD_EVERY: u64 = 4;
/// How often it counts what it has of crawls that have a limit, in times of housekeeping.
const COUNT_EVERY: u64 = 2;
/// Redirects followed in a row.
const REDIRECTS_MAX: u8 = 5;
/// Bytes of a page that are read.
const PAGE_BYTES_MAX: u64 = 2 << 20;
/// Bytes of a robots.txt that are read.
const ROBOTS_BYTES_MAX: usize = 500 << 10;

/// What a fetch is for.
pub(super) struct Fetching {
    what: Purpose,
    crawl: String,
    host: Option<Host>,
}

enum Purpose {
    Page(RunId, Box<Errand>),
    Robots(u64),
}

impl Fetching {
    fn page(run: RunId, crawl: String, errand: Errand) -> Fetching {
        Fetching { what: Purpose::Page(run, Box::new(errand)), crawl, host: None }
    }

    fn robots(flight: u64, crawl: String) -> Fetching {
        Fetching { what: Purpose::Robots(flight), crawl, host: None }
    }

    /// The crawl for which it is.
    pub(super) fn crawl(&self) -> &str {
        &self.crawl
    }

    pub(super) fn kind_and_round(&self) -> (FetchKind, u32) {
        match &self.what {
            Purpose::Page(_, errand) => (FetchKind::Page, errand.entry.progress.round),
            Purpose::Robots(_) => (FetchKind::Robots, 0),
        }
    }

    pub(super) fn at_host(self, host: Host) -> Fetching {
        Fetching { host: Some(host), ..self }
    }
}

/// The cores and their storage: what a crash takes away.
pub(super) struct Machine {
    pub(super) coordinator: Coordinator,
    /// All crawls, where there are others than the one without a name.
    pub(super) crawls: Option<Arc<Crawls>>,
    frontier: Frontier,
    pub(super) storage: Storage,
    outcome: OutcomeRules,
    fetch_timeout: Micros,
    /// Hashes of what is on disk, by which digests follow its changes.
    hashes: BTreeMap<UrlKey, u64>,
    /// Writes that are not known to be on disk.
    pending: VecDeque<(u64, What)>,
    written: u64,
    syncing: bool,
    /// Flights of the frontier, by the record they are of.
    flights: BTreeMap<u64, UrlKey>,
    ticks: u64,
    /// What a defect goes by.
    first_robots: BTreeMap<(Host, String), RobotsFetch>,
    pub(super) copier: Copier,
    pub(super) sources: Sources,
}

/// A node.
pub(super) struct Node {
    pub(super) id: NodeId,
    /// Counts its lives.
    pub(super) life: u32,
    /// The numbers of its lives as the others know them.
    pub(super) boots: Vec<u32>,
    pub(super) clock: Clock,
    pub(super) disk: Disk<Records>,
    pub(super) fetches: BTreeMap<u64, Fetching>,
    pub(super) paused_until: Micros,
    /// A slow actor: until when, and how long each message takes.
    pub(super) slow: (Micros, Micros),
    works_until: Micros,
    pub(super) left: bool,
    leaving: bool,
    /// A life that others know of: the next one must be later.
    outdated: Option<u32>,
    pub(super) machine: Option<Machine>,
    wakes_at: Micros,
}

impl Node {
    pub(super) fn new(plan: &Plan, id: NodeId) -> Node {
        Node {
            id,
            life: 0,
            boots: Vec::new(),
            clock: Clock::new(plan, id),
            disk: Disk::new(plan, id),
            fetches: BTreeMap::new(),
            paused_until: 0,
            slow: (0, 0),
            works_until: 0,
            left: false,
            leaving: false,
            outdated: None,
            machine: None,
            wakes_at: Micros::MAX,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.machine.is_some()
    }

    pub(super) fn takes_clients(&self) -> bool {
        self.is_up() && !self.left && !self.leaving
    }

    /// When the node comes to what happens at `at`, if not at once.
    pub(super) fn busy_until(&mut self, at: Micros, takes_time: bool) -> Option<Micros> {
        if self.paused_until > at {
            return Some(self.paused_until);
        }
        if !takes_time || self.slow.0 <= at {
            return None;
        }
        if self.works_until > at {
            return Some(self.works_until);
        }
        self.works_until = at + self.slow.1;
        None
    }

    /// What this node says is defined.
    pub(super) fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.machine.iter().flat_map(|machine| machine.coordinator.definitions())
    }

    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    /// The process ends; everything in memory is gone.
    pub(super) fn stop(&mut self) {
        self.machine = None;
        self.fetches.clear();
        self.life += 1;
        (self.paused_until, self.slow, self.wakes_at) = (0, (0, 0), Micros::MAX);
    }

    pub(super) fn now(&self, at: Micros) -> Now {
        Now { mono: self.clock.local(at), unix_ms: self.clock.unix_ms(at) }
    }
}

fn frontier_rules(plan: &Plan, lease: &LeaseRules, retry: RetryRules, obey_robots: bool) -> FrontierRules {
    let fetch_timeout = lease.at_least(plan.cluster.fetch_timeout_ms * MILLISECOND);
    FrontierRules {
        queues_max: QUEUES_MAX,
        window_max: 8,
        flights_max: FLIGHTS_MAX,
        // Writing the outcome may take as long as writes take; then it is lost.
        flight_timeout: fetch_timeout + 10 * SECOND,
        fetch_timeout,
        robots_ttl_ms: plan.cluster.robots_ttl_ms,
        address_ttl: 3_600 * SECOND,
        obey_robots,
        read_sitemaps: false,
        pace_addresses: false,
        robots_bytes_max: 64 << 20,
        product_token: "orbweaver".into(),
        pace: PaceRules {
            delay_ms: plan.cluster.crawl_delay_ms,
            crawl_delay_max_ms: 10_000,
            slow_down_min_ms: 200,
            slow_down_max_ms: 1_500,
            failures_max: 4,
            leave_min_ms: 500,
            leave_max_ms: 1_000,
            drift_ppm: plan.cluster.drift_ppm as u32,
        },
        retry,
        urls: UrlRules::default(),
        pages_max: None,
    }
}

impl World<'_> {
    /// A node begins a life, if its disk lets it write down which one.
    pub(super) fn start(&mut self, at: Micros, id: NodeId) {
        let planted = self.planted;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.is_up() || node.left {
            return;
        }
        let stored = node.disk.durable().boot;
        let mut bump = next_bump(stored, node.clock.unix_ms(at) / 1_000);
        if let Some(known) = node.outdated {
            bump = bump.max(known.saturating_add(1_000));
        }
        // Nothing is said before the number of this life is on disk.
        let mut written = node.disk.write(at, What::Boot(bump)).is_ok();
        if node.disk.durable().pages.folder == 0 {
            let folder = Random::at(self.plan.seed, For::Folder, id.0, u64::from(node.life)).number().max(1);
            written &= node.disk.write(at, What::Pages(PagesWrite::Folder(folder))).is_ok();
        }
        let sync = node.disk.sync(at);
        if !written || !matches!(node.disk.synced(&sync), Synced::Durable(_)) || sync.at > at + SECOND {
            return self.at(at + SECOND / 2, Happening::Starts(id));
        }
        node.outdated = None;
        node.boots.push(bump);
        if is(planted, "synced_forgotten") {
            node.disk.flip_bit();
        }
        let life = node.life;
        node.clock.restart(life);
        let now = node.now(at);
        self.trace.record(at, Event::NodeStarted { node: id, boot: life });
        for copy in node.disk.durable().copies.values() {
            let (url, progress) = (named(&copy.key), copy.progress);
            self.trace.record(at, Event::RecordRecovered { node: id, url, progress });
        }
        self.trace.record(at, Event::NodeRecovered { node: id });

        let plan = self.plan;
        let cluster = &plan.cluster;
        let lease = LeaseRules {
            duration: cluster.lease_ms * MILLISECOND,
            guard: cluster.guard_ms * MILLISECOND,
            drift_ppm: cluster.drift_ppm,
        };
        let peers = plan.first_nodes().map(|node| (node, plan.weight(node) as u16)).collect();
        let mut rules = ClusterRules::new(CLUSTER, id, bump, peers, plan.voters().collect());
        rules.weight = plan.weight(id) as u16;
        rules.slots = self.slots.clone();
        rules.fetch_timeout = cluster.fetch_timeout_ms * MILLISECOND;
        rules.lease = lease;
        rules.membership = MembershipRules {
            stable_for: cluster.view_stable_ms * MILLISECOND,
            forget_after: cluster.forget_after_ms * MILLISECOND,
            ..MembershipRules::default()
        };
        rules.writes = WriteRules { replicas: cluster.replicas, quorum: cluster.write_quorum, ..WriteRules::default() };
        rules.propagate = PropagateRules { urls_max: cluster.outbox_max, ..PropagateRules::default() };
        rules.repair.part_max = PART_MAX;
        rules.planted = planted;
        let retry = RetryRules {
            attempts_max: 3,
            slow_down_attempts_max: 3,
            wait_min_ms: 300,
            wait_max_ms: 1_000,
            robots_wait_ms: 1_000,
        };
        let frontier_rules = frontier_rules(plan, &lease, retry, !is(planted, "robots_ignored"));
        let filter = Filter::new(FilterRules { scope: Scope::Any, ..FilterRules::default() }, &[])
            .expect("a filter without patterns");
        let leases = Leases::Granted(Grants { planted, ..Grants::default() });
        let records = node.disk.durable();
        let seed = Random::at(plan.seed, For::Core, id.0, u64::from(life)).number();
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let coordinator = Coordinator::new(now.mono, rules, records.digests(), self.rings.clone(), rng)
            .with_definitions(records.definitions.values().cloned().collect());
        let ring = coordinator.ring_seen();
        let crawls = super::sites::crawls(plan, records.definitions.values());
        let mut frontier = Frontier::new(now, frontier_rules, Arc::new(filter), leases, 0, false);
        if let Some(crawls) = &crawls {
            frontier = frontier.with_crawls(now, Arc::clone(crawls));
        }
        node.machine = Some(Machine {
            coordinator,
            crawls,
            frontier,
            storage: Storage::new(id, records, 2 * retry.wait_max_ms).planted(planted),
            outcome: OutcomeRules { retry, recrawl_period_ms: is(planted, "fetched_again").then_some(1), node: id },
            fetch_timeout: cluster.fetch_timeout_ms * MILLISECOND,
            hashes: records.copies.values().map(|copy| (copy.key.clone(), copy.hash())).collect(),
            pending: VecDeque::new(),
            written: 0,
            syncing: false,
            flights: BTreeMap::new(),
            ticks: 0,
            first_robots: BTreeMap::new(),
            copier: Copier::new(id, &records.pages, planted),
            sources: Sources::new(self.plan, at, planted),
        });
        let leaving = node.leaving;
        self.saw(at, id, ring);
        self.at(at, Happening::Housekeeping { node: id, life });
        self.step(at, id, if leaving { coordinator::Input::Leave } else { coordinator::Input::Tick });
    }

    pub(super) fn wake(&mut self, at: Micros, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.wakes_at = Micros::MAX;
        }
        self.step(at, id, coordinator::Input::Tick);
        self.step_frontier(at, id, frontier::Input::Tick);
    }

    /// Sets the alarm of a node, if it is to ring earlier than it would.
    fn set_alarm(&mut self, at: Micros, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(machine) = &node.machine else { return };
        let local = machine.coordinator.next_wake().min(machine.frontier.next_wake().unwrap_or(Micros::MAX));
        if local == Micros::MAX {
            return;
        }
        let wakes_at = node.clock.true_time(local).max(at);
        if wakes_at < node.wakes_at {
            node.wakes_at = wakes_at;
            let life = node.life;
            self.at(wakes_at, Happening::Wake { node: id, life });
        }
    }

    /// Steps the coordinator of a node and does what it says, until nothing more follows at this instant.
    pub(super) fn step(&mut self, at: Micros, id: NodeId, input: coordinator::Input) {
        let mut effects = Vec::new();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.clock.local(at);
        let Some(machine) = &mut node.machine else { return };
        machine.coordinator.step(now, input, &mut effects);
        for effect in effects {
            self.perform(at, id, effect);
        }
        self.set_alarm(at, id);
    }

    pub(super) fn step_frontier(&mut self, at: Micros, id: NodeId, input: frontier::Input) {
        let mut effects = Vec::new();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        machine.frontier.step(now, input, &mut effects);
        let mut picks = Vec::new();
        for effect in effects {
            self.perform_frontier(at, id, effect, &mut picks);
        }
        if !picks.is_empty() {
            self.step(at, id, coordinator::Input::Picked { at: now.mono, picks });
        }
        self.set_alarm(at, id);
    }

    fn perform_frontier(
        &mut self,
        at: Micros,
        id: NodeId,
        effect: frontier::Effect,
        picks: &mut Vec<(Pick, RecordCopy)>,
    ) {
        use frontier::{Effect, Input};
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        let storage = &mut machine.storage;
        match effect {
            Effect::Fetch(pick) => match storage.select(&pick) {
                Some(copy) => {
                    machine.flights.insert(pick.flight, copy.key.clone());
                    picks.push((pick, copy));
                }
                None => self.step_frontier(at, id, Input::Settled { flight: pick.flight, page: false }),
            },
            Effect::FetchRobots { flight, crawl, url } => {
                let until = now.mono + machine.fetch_timeout;
                self.fetch_begins(at, id, Fetching::robots(flight, crawl), &url, until);
            }
            Effect::Refuse(pick, why) => {
                let ending = match why {
                    Why::Failed(failure) => Ending::Failed(failure, None, None),
                    Why::Filtered(_) => Ending::Filtered,
                };
                let settled = storage.settle(&pick, ending, now.unix_ms, &machine.outcome);
                let copy = settled.map(|(copy, _)| copy);
                let (flight, stage) = (pick.flight, Stage::Processed);
                self.step(at, id, coordinator::Input::Settlement { flight, stage, copy, page: false });
            }
            Effect::Lost(pick) => self.step(at, id, coordinator::Input::Lost { pick: Box::new(pick) }),
            Effect::Refill { read, queue, after, limit } => {
                let (entries, more) = storage.refill(&queue, after, limit, now.unix_ms);
                self.step_frontier(at, id, Input::Refilled { read, queue, entries, more });
            }
            Effect::Load { read, queue, limit } => {
                let queues = vec![storage.load(&queue, limit, now.unix_ms)];
                self.step_frontier(at, id, Input::Loaded { read, queues, sweep: None });
            }
            Effect::Sweep { read, slot, after, queues, limit } => {
                let (keys, next) = storage.sweep(slot, after.as_ref(), queues);
                let queues = keys.iter().map(|key| storage.load(key, limit, now.unix_ms)).collect();
                self.step_frontier(at, id, Input::Loaded { read, queues, sweep: Some(next) });
            }
            Effect::KeepFacts { queue, facts } => {
                storage.keep_facts(queue.clone(), facts.clone());
                if !self.write(at, id, What::Facts(queue.clone(), Box::new(facts))) {
                    self.step_frontier(at, id, Input::FactsKept { queue, kept: false });
                }
            }
            Effect::Resolve { queue, .. } => {
                let address = Err(Failure::DnsNotFound); // addresses are not paced in this layer
                self.step_frontier(at, id, Input::Resolved { queue, address });
            }
            Effect::Idle { slot } => self.step(at, id, coordinator::Input::Idle { slot }),
            Effect::Discover { .. } => {}
        }
    }

    fn perform(&mut self, at: Micros, id: NodeId, effect: Effect) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        match effect {
            Effect::Send { to, letter } => self.send(at, id, to, letter),
            Effect::Store { op, copies } => {
                let merged = machine.storage.merge(copies, self.planted);
                if !self.write(at, id, What::Records(op, merged)) {
                    self.step(at, id, coordinator::Input::StoreFailed { op });
                }
            }
            Effect::Read { read, slot, ranges, after, limit } => {
                let (copies, next) = node.disk.durable().read(slot, ranges.as_deref(), after.as_ref(), limit);
                self.step(at, id, coordinator::Input::Read { read, copies, next });
            }
            Effect::DropSlot { slot } => {
                machine.storage.drop_slot(slot);
                if !self.write(at, id, What::Drop(slot)) {
                    self.step(at, id, coordinator::Input::DropFailed { slot });
                }
            }
            Effect::Admit { admit, crawl, parent, urls } => {
                let copies = machine.storage.admit(&crawl, parent, urls, now.unix_ms);
                self.step(at, id, coordinator::Input::Admitted { admit, copies });
            }
            Effect::Fetch { run, crawl, errand, until } => {
                let until = if is(self.planted, "deadline_ignored") {
                    now.mono + 4 * machine.fetch_timeout
                } else {
                    until.min(now.mono + machine.fetch_timeout)
                };
                let url = errand.entry.url.clone();
                self.fetch_begins(at, id, Fetching::page(run, crawl, errand), &url, until);
            }
            Effect::Settle { pick, ending, stage } => {
                let (copy, page) = match stage {
                    Stage::Crawled => (machine.storage.crawled(&pick), false),
                    Stage::Processed => {
                        let settled = machine.storage.settle(&pick, ending, now.unix_ms, &machine.outcome);
                        settled.map_or((None, false), |(copy, page)| (Some(copy), page))
                    }
                };
                self.step(at, id, coordinator::Input::Settlement { flight: pick.flight, stage, copy, page });
            }
            Effect::Frontier(input) => self.tell_frontier(at, id, input),
            Effect::Acknowledge { ticket } if is_operation(ticket) => self.roots_kept(at, id, ticket),
            Effect::Refuse { ticket } if is_operation(ticket) => self.not_operated(at, ticket),
            Effect::Acknowledge { ticket } if ticket >= SOURCE_TICKETS => self.sources_kept(at, id, ticket, true),
            Effect::Refuse { ticket } if ticket >= SOURCE_TICKETS => self.sources_kept(at, id, ticket, false),
            Effect::Acknowledge { ticket } => self.client_told(at, id, ticket),
            Effect::Refuse { .. } => {} // the client comes again by itself
            Effect::Outdated { boot } => {
                node.outdated = Some(boot);
                self.trace.sometimes(at, "life_outdated");
                self.crash(at, id);
                self.at(at, Happening::Starts(id));
            }
            Effect::Left => {
                machine.copier.leaves = true;
                self.leave_if_dispensable(at, id);
            }
            Effect::Saw(sight) => self.saw(at, id, sight),
            Effect::StoreDefinitions { op, definitions } => {
                if !self.write(at, id, What::Definitions(op, definitions)) {
                    self.step(at, id, coordinator::Input::DefinitionsFailed { op });
                }
            }
            Effect::Defined { ticket, .. } if is_operation(ticket) => self.operated(at, id, ticket),
            Effect::Defined { ticket, .. } => self.definer_told(at, ticket),
            Effect::NotDefined { ticket, .. } if is_operation(ticket) => self.not_operated(at, ticket),
            Effect::NotDefined { .. } => {} // whoever got no answer comes again by itself
            Effect::Redefined { definitions } => self.redefined(at, id, &definitions),
        }
    }

    fn tell_frontier(&mut self, at: Micros, id: NodeId, input: frontier::Input) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        let mut landed = None;
        match &input {
            frontier::Input::Settled { flight, .. } => {
                landed = machine.flights.remove(flight).map(|key| (key, *flight));
            }
            frontier::Input::Unleased { slot } => machine.storage.forget_flights(*slot),
            _ => {}
        }
        let fresh = match landed {
            Some((key, flight)) if machine.storage.landed(&key, flight) => machine.storage.fresh([key], now.unix_ms),
            _ => Vec::new(),
        };
        self.step_frontier(at, id, input);
        self.admit_fresh(at, id, fresh);
    }

    fn admit_fresh(&mut self, at: Micros, id: NodeId, fresh: Vec<super::storage::Fresh>) {
        for fresh in fresh {
            let super::storage::Fresh { queue, order, entry, new_host } = fresh;
            self.step_frontier(at, id, frontier::Input::Admitted { queue, order, entry, new_host });
        }
    }

    // The disk.

    /// Writes to the disk; says whether there was room.
    pub(super) fn write(&mut self, at: Micros, id: NodeId, what: What) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        let Some(machine) = &mut node.machine else { return false };
        machine.written += 1;
        let number = machine.written;
        if node.disk.write(at, what.clone()).is_err() {
            self.trace.sometimes(at, "disk_full");
            self.fall_back(id);
            return false;
        }
        machine.pending.push_back((number, what));
        if !std::mem::replace(&mut machine.syncing, true) {
            let life = node.life;
            self.at(at, Happening::SyncBegins { node: id, life });
        }
        true
    }

    /// Memory goes back to what the disk has and will have.
    fn fall_back(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(machine) = &mut node.machine else { return };
        machine.storage.fall_back(node.disk.durable(), machine.pending.iter().map(|(_, what)| what));
    }

    pub(super) fn sync_begins(&mut self, at: Micros, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(machine) = &mut node.machine else { return };
        let sync = node.disk.sync(at);
        let (life, upto) = (node.life, machine.written);
        self.at(sync.at, Happening::SyncEnds { node: id, life, sync, upto });
    }

    pub(super) fn sync_ends(&mut self, at: Micros, id: NodeId, sync: &Sync, upto: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(machine) = &mut node.machine else { return };
        let durable = matches!(node.disk.synced(sync), Synced::Durable(_));
        let mut covered = Vec::new();
        while machine.pending.front().is_some_and(|(number, _)| *number <= upto) {
            covered.extend(machine.pending.pop_front().map(|(_, what)| what));
        }
        machine.syncing = !machine.pending.is_empty();
        if machine.syncing {
            let life = node.life;
            self.at(at, Happening::SyncBegins { node: id, life });
        }
        if !durable {
            self.trace.sometimes(at, "fsync_failed");
            self.fall_back(id);
        }
        // The disk has all of it before anything follows from any of it.
        for what in covered.iter().filter(|_| durable) {
            self.record_durable(at, id, what);
        }
        for what in covered {
            self.covered(at, id, what, durable);
        }
    }

    /// Tells the trace what is on the disk of a node now.
    pub(super) fn record_durable(&mut self, at: Micros, id: NodeId, what: &What) {
        match what {
            What::Records(_, copies) | What::Clients(_, copies) => {
                for copy in copies {
                    self.name_site(at, &copy.key);
                    self.trace.record(at, durable_event(id, copy));
                    if let Some((job, run)) = over(copy) {
                        self.trace.record(at, Event::RunOver { job, run });
                    }
                }
            }
            What::Drop(slot) => self.trace.record(at, Event::SlotDropped { node: id, slot: *slot }),
            What::Definitions(_, definitions) => {
                for one in definitions {
                    self.trace.record(at, definition_event(id, one));
                    self.trace.record_some(at, site_event(id, one));
                }
            }
            What::Pages(write) => self.record_pages(at, id, write),
            What::Facts(..) | What::Boot(_) => {}
        }
    }

    /// A write is on disk, or never will be.
    fn covered(&mut self, at: Micros, id: NodeId, what: What, durable: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        match what {
            What::Records(op, _) if !durable => self.step(at, id, coordinator::Input::StoreFailed { op }),
            What::Records(op, copies) => {
                let keys: Vec<UrlKey> = copies.iter().map(|copy| copy.key.clone()).collect();
                let changed = changed(&mut machine.hashes, &copies);
                let fresh = machine.storage.fresh(keys, now.unix_ms);
                self.step(at, id, coordinator::Input::Stored { op, changed });
                self.admit_fresh(at, id, fresh);
            }
            What::Drop(slot) if !durable => self.step(at, id, coordinator::Input::DropFailed { slot }),
            What::Drop(slot) => {
                machine.hashes.retain(|key, _| key.slot() != slot);
                self.step(at, id, coordinator::Input::Dropped { slot });
            }
            What::Definitions(op, _) if durable => self.step(at, id, coordinator::Input::DefinitionsStored { op }),
            What::Definitions(op, _) => self.step(at, id, coordinator::Input::DefinitionsFailed { op }),
            What::Pages(write) => self.pages_covered(at, id, write, durable),
            What::Clients(ticket, _) if !durable => self.sources_kept(at, id, ticket, false),
            What::Clients(ticket, copies) => {
                let changed = changed(&mut machine.hashes, &copies);
                self.step(at, id, coordinator::Input::Changed { changed });
                self.step(at, id, coordinator::Input::Keep { ticket, copies });
            }
            What::Facts(queue, _) => self.step_frontier(at, id, frontier::Input::FactsKept { queue, kept: durable }),
            What::Boot(_) => {}
        }
    }

    // Hosts.

    pub(super) fn fetch_ends(&mut self, at: Micros, id: NodeId, fetch: u64, reply: Option<Box<Reply>>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(what) = node.fetches.remove(&fetch) else { return };
        let (life, busy_until) = (node.life, node.busy_until(at, true));
        if let Some(host) = what.host {
            let good = |reply: &Reply| matches!(&reply.outcome, Outcome::Answer(is) if is.answer.status < 400);
            let end = match &reply {
                None => FetchEnd::Aborted,
                Some(reply) if good(reply) => FetchEnd::Answered,
                Some(_) => FetchEnd::Failed,
            };
            self.trace.record(at, Event::FetchEnded { fetch, node: id, end });
            if let Purpose::Robots(_) = what.what {
                let forbids_all = reply.as_deref().is_none_or(Reply::forbids_all);
                self.trace.record(at, Event::RobotsHeard { fetch, forbids_all });
            }
            match &reply {
                Some(reply) => self.origins.delivered(host, reply),
                None => self.trace.sometimes(at, "fetch_aborted"),
            }
        }
        match busy_until {
            Some(until) => self.at(until, Happening::FetchHeard { node: id, life, fetch, what: Box::new(what), reply }),
            None => self.fetch_heard(at, id, fetch, what, reply),
        }
    }

    /// A node comes to what a request brought.
    pub(super) fn fetch_heard(
        &mut self,
        at: Micros,
        id: NodeId,
        fetch: u64,
        what: Fetching,
        reply: Option<Box<Reply>>,
    ) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Fetching { what, crawl, host } = what;
        let rules = node.machine.as_ref().and_then(|machine| super::sites::rules(machine.crawls.as_deref(), &crawl));
        let unix_ms = node.clock.unix_ms(at);
        match what {
            Purpose::Robots(flight) => {
                let mut answer = robots_answer(reply.as_deref());
                if is(self.planted, "robots_read_once")
                    && let (Some(host), Some(machine)) = (host, &mut node.machine)
                    && matches!(answer, RobotsFetch::Body(_) | RobotsFetch::Absent)
                {
                    answer = machine.first_robots.entry((host, crawl)).or_insert(answer).clone();
                }
                self.step_frontier(at, id, frontier::Input::RobotsFetched { flight, answer });
            }
            Purpose::Page(run, errand) => {
                let (ending, mut links) = self.page_answer(&errand, reply.as_deref(), host.is_some(), unix_ms);
                let (verdict, retry_after_ms) = coordinator::host_verdict(&ending);
                self.step(at, id, coordinator::Input::Asked { run, host: verdict, retry_after_ms });
                links.retain(|link| rules.as_ref().is_none_or(|rules| rules.admits(&link.url, link.depth).is_ok()));
                if matches!(ending, Ending::Answered(_)) {
                    let page = errand.entry.url.id(&crawl);
                    self.trace.record(at, Event::LinksFound { page, links: ids(&crawl, &links) });
                    return self.keep_page(at, id, (fetch, &crawl), &errand, Fetched { run, ending, links });
                }
                self.step(at, id, coordinator::Input::Fetched { run, ending, links });
            }
        }
    }

    /// What a crawler makes of an answer.
    fn page_answer(
        &self,
        errand: &Errand,
        reply: Option<&Reply>,
        known_host: bool,
        unix_ms: u64,
    ) -> (Ending, Vec<Discovered>) {
        let failed = |failure| (Ending::Failed(failure, None, None), Vec::new());
        let Some(reply) = reply else {
            return failed(if known_host { Failure::Timeout } else { Failure::DnsNotFound });
        };
        let is = match &reply.outcome {
            Outcome::Refused => return failed(Failure::ConnectRefused),
            Outcome::Reset => return failed(Failure::ConnectionBroken),
            Outcome::Silence => return failed(Failure::Timeout),
            Outcome::Answer(answered) => answered,
        };
        let status = is.answer.status;
        let mut found = Findings { http_code: status, size: is.body_bytes, crawled_at: unix_ms, ..Findings::default() };
        found.digest.copy_from_slice(&proto::id::UrlId::of("body", &String::from_utf8_lossy(&is.answer.body)).0);
        if status >= 400 || status == 0 {
            let wait = is.answer.header_value("retry-after").and_then(|wait| wait.parse::<u64>().ok());
            let wait_ms = wait.map(|seconds| seconds * 1_000);
            return (Ending::Failed(Failure::Http(status), Some(Box::new(found)), wait_ms), Vec::new());
        }
        if is.body_bytes > PAGE_BYTES_MAX {
            return failed(Failure::BodyTooLarge);
        }
        let link = |url: CanonicalUrl, depth: u16, redirects: u8| Discovered {
            url,
            kind: EntryKind::Page,
            depth,
            priority: 100,
            redirects,
        };
        if (300..400).contains(&status) && status != 304 {
            let target = is.answer.header_value("location");
            let base = errand.entry.url.to_url();
            let target = target.and_then(|to| CanonicalUrl::join(&base, to, &UrlRules::default()).ok());
            let Some(target) = target else { return failed(Failure::RedirectInvalid) };
            if errand.entry.redirects >= REDIRECTS_MAX {
                return failed(Failure::RedirectsTooMany);
            }
            found.redirect = Some(target.as_str().to_owned());
            let links = if self.origins.host(target.host()).is_some() {
                vec![link(target, errand.depth, errand.entry.redirects + 1)]
            } else {
                Vec::new()
            };
            return (Ending::Answered(Box::new(found)), links);
        }
        let mut links: BTreeMap<String, Discovered> = BTreeMap::new();
        for text in &is.links {
            if let Some(url) = super::parse(text).filter(|url| self.origins.host(url.host()).is_some()) {
                links.insert(url.as_str().to_owned(), link(url, errand.depth.saturating_add(1), 0));
            }
        }
        (Ending::Answered(Box::new(found)), links.into_values().collect())
    }

    // Looking after itself.

    pub(super) fn housekeeping(&mut self, at: Micros, id: NodeId) {
        let plan = self.plan;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (life, next, unix_ms) = (node.life, node.clock.timer(at, HOUSEKEEPING), node.clock.unix_ms(at));
        let Some(machine) = &mut node.machine else { return };
        machine.ticks += 1;
        let ticks = machine.ticks;
        let keys = machine.storage.fall_due(unix_ms);
        let fresh = machine.storage.fresh(keys, unix_ms);
        let fetching = machine.coordinator.fetching() as u64;
        let frontier = machine.frontier.standing();
        for (queue, length, bound) in
            [("queues", frontier.queues, QUEUES_MAX), ("flights", frontier.flights, FLIGHTS_MAX)]
        {
            let (length, bound) = (length as u64, bound as u64);
            self.trace.record(at, Event::QueueMeasured { node: id, queue, length, bound });
        }
        self.at(next, Happening::Housekeeping { node: id, life });
        self.admit_fresh(at, id, fresh);
        self.look_after_pages(at, id);
        self.look_after_sources(at, id);
        if ticks % COUNT_EVERY == 1 {
            self.share_limits(at, id);
        }
        if ticks % LOAD_EVERY != 1 {
            return;
        }
        if !plan.cluster.versions.is_empty() {
            let others = self.nodes.values().filter(|node| node.is_up()).map(|node| node.id);
            let spoken = plan.oldest_spoken(id, others);
            self.step(at, id, coordinator::Input::Spoken(spoken));
        }
        let trouble = plan.faults.iter().filter(|fault| fault.lasts_at(at)).find_map(|fault| match fault.what {
            Fault::Load { node, trouble } if node == id.0 => Some(trouble),
            _ => None,
        });
        let mut draw = Random::at(plan.seed, For::Load, id.0, at / (10 * SECOND));
        let load = match trouble {
            Some(LoadTrouble::High) => 950,
            Some(LoadTrouble::Stale) => return,
            Some(LoadTrouble::Flapping) => [0, 1_000][(ticks / LOAD_EVERY % 2) as usize],
            None => (draw.pick(&[50, 200, 600, 700]) + 60 * fetching).min(840) as u32,
        };
        self.step(at, id, coordinator::Input::Measured(load));
    }

    // What the trace wants to know.

    fn saw(&mut self, at: Micros, id: NodeId, sight: Sight) {
        let Some(node) = self.nodes.get(&id) else { return };
        let acknowledged = if let Sight::Acknowledged { slot, .. } = &sight { Some(*slot) } else { None };
        for event in self.sights.events(at, id, sight, &node.clock, &node.boots) {
            self.trace.record(at, event);
        }
        if let Some(slot) = acknowledged {
            self.power_loss_at_acknowledgement(at, id, slot);
        }
    }

    /// The nodes that keep the records of a slot, as `id` sees it.
    pub(super) fn keepers(&self, id: NodeId, slot: Slot) -> Vec<NodeId> {
        let Some(machine) = self.nodes.get(&id).and_then(|node| node.machine.as_ref()) else { return Vec::new() };
        let (ring, alive) = (machine.coordinator.ring(), machine.coordinator.alive());
        ring.acting(slot, self.plan.cluster.replicas, alive).collect()
    }
}

/// What records that are on disk now change in its digests.
fn changed(hashes: &mut BTreeMap<UrlKey, u64>, copies: &[RecordCopy]) -> Vec<Changed> {
    let change = |copy: &RecordCopy| {
        let hash = copy.hash();
        Changed::new(&copy.key, hashes.insert(copy.key.clone(), hash), Some(hash))
    };
    copies.iter().map(change).collect()
}

/// A record that is on the disk of a node.
pub(crate) fn durable_event(node: NodeId, copy: &RecordCopy) -> Event {
    let settled = is_client(&copy.key) || copy.open().is_ok_and(|kept| kept.is_closed());
    Event::RecordDurable { node, slot: copy.slot(), url: named(&copy.key), progress: copy.progress, settled }
}

/// What a definition that is on the disk of a node says of a site.
pub(crate) fn site_event(node: NodeId, definition: &Definition) -> Option<Event> {
    Some(Event::SiteDurable { node, version: definition.version, says: facts(definition)? })
}

/// A definition that is on the disk of a node.
pub(crate) fn definition_event(node: NodeId, definition: &Definition) -> Event {
    Event::DefinitionDurable { node, key: definition.key.clone(), version: definition.version }
}

fn robots_answer(reply: Option<&Reply>) -> RobotsFetch {
    let Some(Reply { outcome: Outcome::Answer(is), .. }) = reply else {
        return RobotsFetch::Unavailable(Failure::ConnectionBroken);
    };
    match is.answer.status {
        200..300 => {
            let body = &is.answer.body;
            RobotsFetch::Body(body[..body.len().min(ROBOTS_BYTES_MAX)].to_vec())
        }
        300..400 => match is.answer.header_value("location") {
            Some(location) => RobotsFetch::Redirect(location.to_owned()),
            None => RobotsFetch::Absent,
        },
        429 => RobotsFetch::Unavailable(Failure::Http(429)),
        400..500 => RobotsFetch::Absent,
        status => RobotsFetch::Unavailable(Failure::Http(status)),
    }
}

/// Whether the defect called `name` is planted.
pub(crate) fn is(planted: proto::cluster::mutant::Planted, name: &str) -> bool {
    #[cfg(feature = "mutants")]
    return proto::cluster::mutant::Mutant::named(name).is_some_and(|mutant| planted.is(mutant));
    #[cfg(not(feature = "mutants"))]
    {
        let _ = (planted, name);
        false
    }
}
