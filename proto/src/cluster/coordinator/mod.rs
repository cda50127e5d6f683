//! Coordinator: membership, ring, leases, replication, repair, routing and propagation of one node, in one pure machine.
//! [`Coordinator::step`] takes what happened and says what to do; [`Coordinator::next_wake`] when to step again.
//!
//! Beside it stands the [`frontier`], which decides what is fetched next. The coordinator tells it which slots it may serve,
//! gets what it hands out, has that written SELECTED on W disks, sends it to the node that is to fetch it, takes in what came of it, has that
//! written too, and tells the frontier. Whoever runs the two (the product's actors, the simulator) carries messages, stores
//! and reads records, and fetches; it decides nothing.
//!
//! **One URL**: `Picked` → write SELECTED → `Run` to the executor → `Fetch` → `Asked` (the host is free) → its content stored on two disks →
//! `Report` CRAWLED → its links to their owners, kept → `Report` PROCESSED → write → the frontier hears `Settled`. If anything on this way
//! dies, the frontier's deadline passes and the URL is put back as NEW of the same round with one attempt more.

mod batches;
mod clients;
mod data;
mod definitions;
mod leases;
mod recent;
mod step;
#[cfg(test)]
mod tests;
mod transfers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

pub use self::batches::host_verdict;
pub use self::step::{ClusterRules, Effect, Input, Sight, Tenure};
use super::lease::{Holder, Voter};
use super::membership::{Identity, Membership, News, View};
use super::message::{COMPARE_SINCE, Letter, Message, Op};
use super::mutant::planted;
use super::propagate::{Outbox, Runs, Ticket};
use super::registry::{self, Registry, Saying};
use super::repair::{Digests, Repair};
use super::replicate::Writes;
use super::ring::{Ring, Rings};
use super::route::Router;
use super::slot_set::SlotSet;
use super::transfer::Transfers;
use crate::batch::Discovered;
use crate::crawl::frontier;
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::{BatchId, NodeId, Slot, UrlId};
use crate::wire::WIRE_VERSION;

/// Least time between two lease requests, whatever changed.
const RENEW_GAP: Micros = SECOND / 2;

/// How often those who were not there are told who left.
const DEPARTED_EVERY: Micros = 5 * SECOND;

/// What a write is for.
enum Purpose {
    /// A batch may go out.
    Selected(BatchId),
    /// The content of a flight is stored.
    Crawled,
    /// A flight is over.
    Settled { flight: u64, page: bool },
    /// URLs of an admission are kept.
    Kept { admit: u64, slot: Slot, urls: Vec<UrlId> },
    /// What a client changed is kept.
    Client { ticket: u64 },
}

/// What a write to our own disk is for.
enum StoreFor {
    /// One of our writes.
    Write(u64),
    /// A peer's write.
    Put { from: NodeId, op: Op },
    /// Repair, or a pull.
    Repair,
}

struct Store {
    slots: BTreeSet<Slot>,
    what: StoreFor,
}

/// What a read of our own disk is for.
enum ReadFor {
    /// Ranges that a peer has otherwise.
    Ranges { to: NodeId, slot: Slot, ranges: Vec<u8> },
    /// A peer draws a part.
    Draw { to: NodeId, op: Op },
    /// A peer of version 1 pulls: this slot, and then those.
    Pull { to: NodeId, op: Op, slot: Slot, rest: VecDeque<Slot>, part: u32 },
}

/// An admission of discovered URLs under way.
struct Admission {
    from: NodeId,
    op: Op,
    /// Writes that are not done; `None` until it is known which there are.
    left: Option<usize>,
}

/// The coordinator.
pub struct Coordinator {
    rules: ClusterRules,
    rng: ChaCha8Rng,
    membership: Membership,
    rings: Rings,
    ring: Arc<Ring>,
    /// Slots that we act as the owner of.
    owned: SlotSet,
    /// We reach too few voters.
    cut_off: bool,
    /// Other nodes that do, as they say.
    cut_off_others: BTreeSet<NodeId>,

    voter: Option<Voter>,
    holder: Holder,
    next_renew: Micros,
    /// No lease is asked for before: what a former life handed out to others may still be fetched.
    asks_from: Micros,
    last_renew: Option<Micros>,
    /// Slots that the frontier was told it may serve.
    leased: BTreeSet<Slot>,
    /// Those of them whose records were asked for: clients may be served from them.
    served: SlotSet,
    /// How often each slot was acquired.
    tenures: BTreeMap<Slot, u64>,
    /// Slots in which scripts of jobs run here, and those of them that could be released otherwise.
    busy: SlotSet,
    idle_but_busy: SlotSet,
    /// Clients that wait for what they changed, and for how many writes.
    keeping: BTreeMap<u64, usize>,
    /// Slots that it was told to leave, and that are released when it has.
    parting: BTreeSet<Slot>,

    writes: Writes<Purpose>,
    /// Writes that begin at the end of this step.
    gathered: Vec<data::Gathered>,
    /// The oldest version that is spoken: whoever speaks an older one takes writes of one slot only.
    spoken: u16,
    stores: BTreeMap<u64, Store>,
    next_store: u64,
    /// Writes to our disk that are under way, by slot.
    storing: BTreeMap<Slot, usize>,
    repair: Repair,
    transfers: Transfers,
    reads: BTreeMap<u64, ReadFor>,
    next_read: u64,
    next_pull: u64,
    dropping: BTreeSet<Slot>,

    router: Router,
    outbox: Outbox,
    runs: Runs,
    admissions: BTreeMap<u64, Admission>,
    next_admission: u64,
    /// URLs that were acknowledged in this life.
    acknowledged: recent::Recent,
    flights: BTreeMap<u64, batches::Flight>,
    batches: BTreeMap<BatchId, batches::Batch>,
    /// Batches that nobody said are being fetched, by when they are sent again.
    batch_wakes: BTreeSet<(Micros, BatchId)>,
    next_batch: u64,
    /// Flights whose content is stored, by when that is written.
    crawled_wakes: BTreeSet<(Micros, u64)>,
    registry: Registry,

    /// The newest life of every node we heard of.
    boots: BTreeMap<NodeId, u32>,
    /// What a node's clock showed, and ours when we heard of it.
    clocks: BTreeMap<NodeId, (Micros, Micros)>,
    /// Messages to ourselves.
    inbox: VecDeque<Message>,
    next_departed: Micros,
    longest: BTreeMap<&'static str, usize>,
    /// Whoever is granted a slot knows of this node; before that it keeps nothing, for others or for itself.
    enrolled: bool,
    next_enrol: Micros,
    /// We leave, nothing is left here, and we said so.
    handed_over: bool,
    left: bool,
}

/// The ring of a view: of nothing else, unless a defect is planted.
fn ring_of(rules: &ClusterRules, rings: &Rings, view: &View) -> Arc<Ring> {
    let of_mine = if planted!(rules.planted, RingKnowsItsNode) { 2 } else { 1 };
    let of_all = if planted!(rules.planted, RingReweighs) { view.len() } else { 1 };
    if of_mine * of_all == 1 {
        return rings.get(view);
    }
    let factor = |node: NodeId| of_all * if node == rules.me { of_mine } else { 1 };
    rings.get(&view.iter().map(|(node, weight)| (*node, weight * factor(*node))).collect())
}

impl Coordinator {
    /// The coordinator of a node that starts at `now` with `digests` of what is on its disk.
    pub fn new(now: Micros, rules: ClusterRules, digests: Digests, rings: Rings, mut rng: ChaCha8Rng) -> Coordinator {
        let planted = rules.planted;
        let me = Identity { node: rules.me, bump: rules.boot, weight: rules.weight };
        let seed = ChaCha8Rng::clone(&rng);
        let membership = Membership::new(now, me, &rules.peers, rules.membership, seed, planted);
        let first = step::first_number(&mut rng);
        let ring = ring_of(&rules, &rings, membership.view());
        let voter = rules.voters.contains(&rules.me).then(|| Voter::new(now, rules.lease, planted));
        // Everybody has the voters in its configuration.
        let enrolled = rules.voters.is_empty() || voter.is_some() || planted!(planted, NewcomersUnknown);
        let forgets = planted!(planted, RestartForgets);
        let asks_from = if forgets { now } else { now + rules.lease.at_least(rules.fetch_timeout) };
        let mut coordinator = Coordinator {
            membership,
            rings,
            ring,
            owned: SlotSet::default(),
            cut_off: false,
            cut_off_others: BTreeSet::new(),
            voter,
            holder: Holder::new(rules.voters.clone(), rules.boot, rules.lease, planted),
            next_renew: asks_from,
            asks_from,
            last_renew: None,
            leased: BTreeSet::new(),
            served: SlotSet::default(),
            tenures: BTreeMap::new(),
            busy: SlotSet::default(),
            idle_but_busy: SlotSet::default(),
            keeping: BTreeMap::new(),
            parting: BTreeSet::new(),
            writes: Writes::new(rules.writes, planted),
            gathered: Vec::new(),
            spoken: WIRE_VERSION,
            stores: BTreeMap::new(),
            next_store: 0,
            storing: BTreeMap::new(),
            repair: Repair::new(now, digests, rules.repair, planted),
            transfers: Transfers::new(rules.transfer),
            reads: BTreeMap::new(),
            next_read: 0,
            next_pull: 0,
            dropping: BTreeSet::new(),
            router: Router::new(rules.me, rules.route, planted),
            outbox: Outbox::new(rules.propagate, planted),
            runs: Runs::new(rules.propagate, planted),
            admissions: BTreeMap::new(),
            next_admission: 0,
            acknowledged: recent::Recent::default(),
            flights: BTreeMap::new(),
            batches: BTreeMap::new(),
            batch_wakes: BTreeSet::new(),
            next_batch: first,
            crawled_wakes: BTreeSet::new(),
            registry: Registry::new(now, rules.me, rules.boot, rules.registry, planted),
            boots: BTreeMap::new(),
            clocks: BTreeMap::new(),
            inbox: VecDeque::new(),
            next_departed: now + DEPARTED_EVERY,
            longest: BTreeMap::new(),
            enrolled,
            next_enrol: now,
            handed_over: false,
            left: false,
            rules,
            rng,
        };
        coordinator.owned = coordinator.owned_now();
        coordinator
    }

    /// Takes in what happened and adds what to do to `out`.
    pub fn step(&mut self, now: Micros, input: Input, out: &mut Vec<Effect>) {
        self.step_all(now, [input], out);
    }

    /// Takes in everything that happened by now: what follows from it goes out together.
    pub fn step_all(&mut self, now: Micros, inputs: impl IntoIterator<Item = Input>, out: &mut Vec<Effect>) {
        for input in inputs {
            self.take(now, input, out);
        }
        self.work(now, out);
    }

    fn take(&mut self, now: Micros, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Tick => {}
            Input::Received(letter) => self.received(now, letter, out),
            Input::Stored { op, changed } => self.stored(now, op, changed, out),
            Input::StoreFailed { op } => self.store_failed(now, op),
            Input::Read { read, copies, next } => self.read(now, read, copies, next, out),
            Input::Dropped { slot } => {
                self.dropping.remove(&slot);
                self.repair.dropped(slot);
            }
            Input::DropFailed { slot } => drop(self.dropping.remove(&slot)),
            Input::Picked { at, picks } => self.picked(at, picks),
            Input::Lost { pick } => self.lost(*pick, out),
            Input::Idle { slot } => self.idle(now, slot, out),
            Input::Settlement { flight, stage, copy, page } => self.settlement(now, flight, stage, copy, page, out),
            Input::Admitted { admit, copies } => self.admitted(now, admit, copies, out),
            Input::Submitted { ticket, crawl, urls } => self.submitted(now, ticket, &crawl, urls, out),
            Input::Amended { ticket, copies } => self.amended(ticket, copies, out),
            Input::Abandoned { ticket } => self.outbox.cancel(Ticket::Client(ticket)),
            Input::Asked { run, host, retry_after_ms } => self.asked(now, run, host, retry_after_ms, out),
            Input::Fetched { run, ending, links } => self.fetched(now, run, ending, links, out),
            Input::Measured(load) => {
                self.router.set_mine(load);
                self.report_load();
            }
            Input::Spoken(version) => {
                self.spoken = version;
                self.transfers.set_numbered(version >= COMPARE_SINCE);
            }
            Input::Define { ticket, key, expects, body } => {
                self.step_registry(now, registry::Input::Proposed { ticket, key, expects, body }, out)
            }
            Input::DefinitionsStored { op } => self.step_registry(now, registry::Input::Stored { op }, out),
            Input::DefinitionsFailed { op } => self.step_registry(now, registry::Input::StoreFailed { op }, out),
            Input::Changed { changed } => self.changed(changed),
            Input::Jobs { slots, busy } => {
                self.busy_with(now, busy, out);
                self.assure(now, &slots, out);
            }
            Input::Keep { ticket, copies } => self.keep(ticket, copies, out),
            Input::Leave => {
                let news = self.membership.leave(now);
                self.heed(now, news, out);
            }
            Input::Forget { node } => {
                let enrolled = self.registry.enrolled().get(&node).map_or(0, |said| said.boot);
                let boot = self.boots.get(&node).copied().unwrap_or(0).max(enrolled);
                let news = self.membership.forget(now, node, boot);
                self.heed(now, news, out);
                self.next_departed = now; // the others need not be told one by one
            }
            Input::Compare { slots } => self.repair.hurry(now, slots),
        }
    }

    /// Does everything that is due, until nothing more follows from it at this instant.
    fn work(&mut self, now: Micros, out: &mut Vec<Effect>) {
        if self.membership.next_wake() <= now {
            let mut sends = Vec::new();
            let news = self.membership.tick(now, &mut sends);
            self.send_swim(now, sends, out);
            self.heed(now, news, out);
        }
        self.write_departures(now, out);
        self.enrol(now, out);
        if now >= self.next_departed {
            self.tell_departed(now, out);
        }
        self.expire_leases(now, out);
        if now >= self.next_renew {
            self.renew(now, out);
            self.look_at_voters(now, out);
        }
        if now >= self.registry.next_wake() {
            self.step_registry(now, registry::Input::Tick, out);
        }
        loop {
            self.work_data(now, out);
            self.work_batches(now, out);
            let Some(message) = self.inbox.pop_front() else { break };
            let (me, boot) = (self.rules.me, self.rules.boot);
            self.apply(now, me, boot, message, out);
        }
        self.begin_writes(now, out);
        self.measure(out);
        self.finish_leaving(now, out);
    }

    /// When to step again if nothing happens before.
    pub fn next_wake(&self) -> Micros {
        let some = [
            self.holder.next_wake(),
            self.writes.next_wake(),
            self.outbox.next_wake(),
            self.runs.next_wake(),
            self.next_batch_wake(),
            self.crawled_wakes.first().map(|(at, _)| *at),
            self.transfers.next_wake(),
        ];
        let first = some.into_iter().flatten().min().unwrap_or(Micros::MAX);
        let rest = [
            self.membership.next_wake(),
            self.next_renew,
            self.repair.next_wake(),
            self.next_departed,
            self.registry.next_wake(),
        ];
        rest.into_iter().fold(first, Micros::min)
    }

    // For those who look on.

    /// The nodes that have a place on the ring.
    pub fn view(&self) -> &View {
        self.membership.view()
    }

    /// The ring, as those see it who watch.
    pub fn ring_seen(&self) -> Sight {
        Sight::RingChanged { members: self.view().clone(), owners: self.ring.owners().into() }
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The ring, to be kept.
    pub fn ring_now(&self) -> Arc<Ring> {
        Arc::clone(&self.ring)
    }

    /// Who is alive, as far as this node knows.
    pub fn alive(&self) -> &BTreeSet<NodeId> {
        self.membership.alive()
    }

    /// How many nodes the cluster has: those too that the ring forgot because they were away for long.
    pub fn size(&self) -> usize {
        self.members()
    }

    /// Whether a slot is held.
    pub fn holds(&self, now: Micros, slot: Slot) -> bool {
        self.holder.until(now, slot).is_some()
    }

    /// The digests of what is on disk.
    pub fn digests(&self) -> &Digests {
        &self.repair.digests
    }

    /// Our load as last measured.
    pub fn load(&self) -> u32 {
        self.router.mine()
    }

    /// Whether this node is one of those that are to keep a slot.
    pub fn keeps(&self, slot: Slot) -> bool {
        self.ring.replicas(slot, self.rules.writes.replicas).contains(&self.rules.me)
    }

    /// Whether a node gave its place up, or was forgotten, and is not back.
    pub fn has_left(&self, node: NodeId) -> bool {
        self.membership.has_left(node)
    }

    /// Whether a node ever said that it is there.
    pub fn is_enrolled(&self, node: NodeId) -> bool {
        self.registry.enrolled().contains_key(&node)
    }

    /// Fetches that this node executes.
    pub fn fetching(&self) -> usize {
        self.runs.fetching()
    }

    // Messages.

    fn send(&mut self, now: Micros, to: NodeId, message: Message, out: &mut Vec<Effect>) {
        if to == self.rules.me {
            self.inbox.push_back(message);
            return;
        }
        let (cluster, from, boot) = (self.rules.cluster, self.rules.me, self.rules.boot);
        out.push(Effect::Send { to, letter: Letter { cluster, from, boot, clock: now, message } });
    }

    fn send_swim(&mut self, now: Micros, sends: Vec<(NodeId, Vec<u8>)>, out: &mut Vec<Effect>) {
        for (to, data) in sends {
            self.send(now, to, Message::Swim(data), out);
        }
    }

    fn received(&mut self, now: Micros, letter: Letter, out: &mut Vec<Effect>) {
        let from = letter.from;
        let ignored = |why| Effect::Saw(Sight::Ignored { from, why });
        if letter.cluster != self.rules.cluster {
            return out.push(ignored("another cluster"));
        }
        if from == self.rules.me || letter.message.defect().is_some() {
            return out.push(ignored("defective"));
        }
        let mut known = self.boots.get(&from).copied().unwrap_or(0);
        if matches!(letter.message, Message::Swim(_)) {
            known = known.max(self.membership.outlived(from, letter.boot).unwrap_or(0));
        }
        if letter.boot < known && !planted!(self.rules.planted, FormerLivesCount) {
            out.push(ignored("of a former life"));
            return self.send(now, from, Message::Outdated { boot: known }, out);
        }
        self.lives(from, letter.boot, out);
        let better = |(clock, at): &(Micros, Micros)| {
            let shown = clock + self.rules.lease.at_most(now.saturating_sub(*at));
            letter.clock >= shown
        };
        if self.clocks.get(&from).is_none_or(better) {
            self.clocks.insert(from, (letter.clock, now));
        }
        self.apply(now, from, letter.boot, letter.message, out);
    }

    /// A node lives, in this life.
    fn lives(&mut self, node: NodeId, boot: u32, out: &mut Vec<Effect>) {
        if node == self.rules.me {
            return;
        }
        let known = self.boots.entry(node).or_insert(0);
        if boot > *known {
            *known = boot;
            self.clocks.remove(&node);
            out.push(Effect::Saw(Sight::IncarnationKnown { of: node, boot }));
        }
    }

    /// Whether an answer is to something that was asked in this life.
    fn is_mine(&mut self, from: NodeId, boot: u32, what: &'static str, out: &mut Vec<Effect>) -> bool {
        let mine = boot == self.rules.boot || planted!(self.rules.planted, FormerLivesCount);
        out.push(Effect::Saw(if mine {
            Sight::Applied { origin: self.rules.me, origin_boot: boot, what }
        } else {
            Sight::Ignored { from, why: "answers a former life" }
        }));
        mine
    }

    fn apply(&mut self, now: Micros, from: NodeId, boot: u32, message: Message, out: &mut Vec<Effect>) {
        let what = message.name();
        let asked_in = match &message {
            Message::LeaseGrant { seq, .. } => Some(seq.boot),
            Message::PutDone { op }
            | Message::Pulled { op, .. }
            | Message::Differing { op, .. }
            | Message::Drawn { op, .. }
            | Message::Compared { op, .. }
            | Message::DiscoveredDone { op }
            | Message::Registry(Saying::DefineDone { op }) => Some(op.boot),
            Message::Report { batch, .. }
            | Message::Asked { batch, .. }
            | Message::RunTaken { batch }
            | Message::Busy { batch } => Some(if batch.node == self.rules.me { batch.boot } else { 0 }),
            _ => None,
        };
        match asked_in {
            Some(boot) => {
                if !self.is_mine(from, boot, what, out) {
                    return;
                }
            }
            None => out.push(Effect::Saw(Sight::Applied { origin: from, origin_boot: boot, what })),
        }
        if (self.handed_over || !self.enrolled) && message.is_to_be_kept() {
            // Who said that nothing is left here must not acknowledge anything more, nor may who is not known to everybody.
            return;
        }
        match message {
            Message::Swim(data) => {
                let mut sends = Vec::new();
                let news = self.membership.receive(now, &data, &mut sends);
                self.send_swim(now, sends, out);
                self.heed(now, news, out);
            }
            Message::LeaseRequest { seq, slots } => self.vote(now, from, seq, &slots, out),
            Message::LeaseGrant { seq, slots } => self.granted(now, from, seq, &slots, out),
            Message::LeaseRelease { seq, slots } => self.given_back(from, seq, &slots, out),
            Message::Put { op, copies } | Message::PutMany { op, copies } => self.put(now, from, op, copies, out),
            Message::PutDone { op } => self.put_done(now, op.number, from, out),
            Message::Digests { slots, parting } => self.compare(now, from, &slots, parting, out),
            Message::Same { slots } => self.same(now, from, &slots, out),
            Message::Ranges { slot, ranges } => self.ranges_differ(now, from, slot, &ranges, out),
            Message::Want { slot, ranges } => self.read_ranges(from, slot, ranges, out),
            Message::Records { copies } => drop(self.store(copies, StoreFor::Repair, out)),
            Message::Pull { op, slots, digests } => self.pull(now, from, op, &slots, &digests, out),
            Message::Pulled { .. } => {} // only version 1 asks for it
            Message::Survey { op, slots, digests } => self.survey(now, from, op, &slots, &digests, out),
            Message::Differing { op, slots } => self.repair.surveyed(now, op.number, from, &slots),
            Message::Draw { op, slot, ranges, after } => self.draw(from, op, slot, ranges, after, out),
            Message::Drawn { op, copies, next } => self.drawn(now, from, op, copies, next, out),
            Message::Compare { op, slot } => self.say_ranges(now, from, op, slot, out),
            Message::Compared { op, ranges } => self.compared(now, from, op, &ranges),
            Message::Parting { slot, ranges } => self.parting(now, from, slot, &ranges, out),
            Message::Has { slot, digest } => self.has(from, slot, digest, out),
            Message::Run(commission) => self.run(now, from, commission, out),
            Message::RunTaken { batch } => self.run_taken(batch, from),
            Message::Busy { batch } => self.busy(now, batch, from, out),
            Message::Report { batch, flight, stage, ending } => {
                self.report(now, from, batch, flight, stage, ending, out)
            }
            Message::Asked { batch, flight, host, retry_after_ms } => {
                self.host_asked(from, batch, flight, host, retry_after_ms, out)
            }
            Message::ReportDone { batch, flight, stage } => {
                self.runs.reported(super::propagate::RunId { batch, flight }, stage)
            }
            Message::Discovered { op, crawl, parent, urls } => self.discovered(from, op, crawl, parent, urls, out),
            Message::DiscoveredDone { op } => self.links_kept(now, op.number, out),
            Message::Departed { nodes } => {
                let news = self.membership.departed_by_others(now, &nodes);
                self.heed(now, news, out);
            }
            Message::Outdated { boot } => {
                if boot > self.rules.boot {
                    out.push(Effect::Outdated { boot });
                }
            }
            Message::Registry(saying) => self.step_registry(now, registry::Input::Received { from, boot, saying }, out),
        }
    }

    // Membership.

    fn heed(&mut self, now: Micros, news: News, out: &mut Vec<Effect>) {
        let cut_off_before = self.cut_off_others.len();
        for node in &news.reported {
            if let Some(report) = self.membership.report_of(*node) {
                self.lives(*node, report.boot, out);
                if self.boots.get(node) == Some(&report.boot) {
                    self.router.reported(now, *node, report.load());
                }
                // Reports are bounded, so are those who are named here.
                if report.is_cut_off() && *node != self.rules.me {
                    self.cut_off_others.insert(*node);
                } else {
                    self.cut_off_others.remove(node);
                }
            }
        }
        if news.renewed {
            out.push(Effect::Saw(Sight::Sometimes("identity_renewed")));
        }
        if news.view_changed {
            self.ring = ring_of(&self.rules, &self.rings, self.membership.view());
            self.repair.ring_changed();
            out.push(Effect::Saw(self.ring_seen()));
            out.push(Effect::Saw(Sight::Sometimes("ring_changed")));
            self.drop_unasked(out);
        }
        if news.alive_changed {
            let alive = self.membership.alive();
            self.transfers.gone(|node| alive.contains(&node));
        }
        if news.alive_changed
            || news.view_changed
            || !news.reported.is_empty() && cut_off_before + self.cut_off_others.len() > 0
        {
            self.own_anew(now);
        }
    }

    fn tell_departed(&mut self, now: Micros, out: &mut Vec<Effect>) {
        self.next_departed = now + DEPARTED_EVERY;
        let nodes = self.membership.departed();
        if !nodes.is_empty() {
            let others: Vec<NodeId> =
                self.membership.alive().iter().copied().filter(|to| *to != self.rules.me).collect();
            for to in others {
                self.send(now, to, Message::Departed { nodes: nodes.clone() }, out);
            }
        }
    }

    /// The slots that we are the first living node of.
    fn owned_now(&self) -> SlotSet {
        if self.membership.is_leaving() {
            return SlotSet::default();
        }
        let me = self.rules.me;
        self.rules.slots.iter().filter(|slot| self.acting_owner(*slot) == Some(me)).collect()
    }

    /// The first R living nodes of a slot: who keeps its records now.
    fn keepers(&self, slot: Slot) -> BTreeSet<NodeId> {
        self.ring.acting(slot, self.rules.writes.replicas, self.membership.alive()).collect()
    }

    /// How many nodes the cluster has. The ring forgets who is down for long, and who is cut off forgets everybody: that makes
    /// nobody's promise smaller, so only who left no longer counts.
    fn members(&self) -> usize {
        let mut members: BTreeSet<NodeId> = self.rules.peers.iter().map(|(node, _)| *node).collect();
        members.insert(self.rules.me);
        members.retain(|node| !self.membership.has_left(*node));
        members.len().max(self.membership.view().len())
    }

    /// The first living node of a slot that can be granted its lease; if none can, the first.
    fn acting_owner(&self, slot: Slot) -> Option<NodeId> {
        let reaches = |node: &NodeId| {
            if *node == self.rules.me { !self.cut_off } else { !self.cut_off_others.contains(node) }
        };
        let mut living = self.ring.acting(slot, usize::MAX, self.membership.alive());
        let first = living.next()?;
        if reaches(&first) { Some(first) } else { living.find(reaches).or(Some(first)) }
    }

    /// Who acts as the owner of each of these URLs' slots.
    fn owners_of(&self, urls: &[Discovered]) -> BTreeMap<Slot, Option<NodeId>> {
        let slots: BTreeSet<Slot> = urls.iter().map(|found| Slot::of_domain(found.url.domain())).collect();
        slots.into_iter().map(|slot| (slot, self.acting_owner(slot))).collect()
    }

    fn finish_leaving(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let quiet = self.membership.is_leaving()
            && !self.left
            && !self.membership.view().contains_key(&self.rules.me)
            && self.repair.digests.is_empty()
            && self.leased.is_empty()
            && self.parting.is_empty()
            && self.stores.is_empty()
            && self.writes.is_empty()
            && self.flights.is_empty()
            && self.runs.is_empty()
            && self.outbox.is_empty()
            && self.registry.is_idle();
        if quiet && !self.handed_over {
            self.handed_over = true;
            let definitions = vec![self.membership.handed_over().definition()];
            self.step_registry(now, registry::Input::Learned { definitions }, out);
        } else if quiet && self.is_known_to_leave() {
            self.left = true;
            let mut sends = Vec::new();
            self.membership.close(now, &mut sends);
            self.send_swim(now, sends, out);
            out.push(Effect::Saw(Sight::Sometimes("leave_finished")));
            out.push(Effect::Left);
        }
    }

    /// Whether enough others have it on their disks that we leave, and have handed over. Who goes while they are down is a member to them when they are back, and what needs to be heard by
    /// all would wait for it.
    fn is_known_to_leave(&self) -> bool {
        let others = self.rules.peers.iter().filter(|(node, _)| !self.membership.has_left(*node));
        let needed = self.rules.writes.quorum.min(others.count());
        self.registry.agreeing() >= needed || planted!(self.rules.planted, LeaveUntold)
    }

    fn measure(&mut self, out: &mut Vec<Effect>) {
        let queues = [
            ("outbox", self.outbox.len(), self.outbox.bound()),
            ("writes", self.writes.len(), self.rules.writes.writes_max),
            ("runs", self.runs.len(), self.rules.propagate.runs_max),
            ("stores", self.stores.len(), self.rules.stores_max + self.rules.writes.writes_max),
            ("reads", self.reads.len(), self.rules.repair.reads_max),
            ("transfers", self.transfers.len(), self.rules.transfer.at_once),
            ("definitions", self.registry.under_way(), definitions::UNDER_WAY_MAX),
        ];
        for (queue, length, bound) in queues {
            let longest = self.longest.entry(queue).or_insert(0);
            if length > *longest {
                *longest = length;
                out.push(Effect::Saw(Sight::QueueMeasured { queue, length, bound }));
            }
        }
    }

    fn tell(&self, what: frontier::Input, out: &mut Vec<Effect>) {
        out.push(Effect::Frontier(what));
    }
}
