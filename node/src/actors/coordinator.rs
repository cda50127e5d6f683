//! Coordinator: the shell of the coordinator core. It feeds the core what happened, and does what the core says.
//! In: [`Define`](crate::messages::Define) from the doors, [`Received`] from the network, [`Heard`] and [`NamedUrls`] from the frontier, [`FetchEnded`] from the fetcher, [`KeptPage`] from storage, [`SubmitUrls`] from the doors.
//! Out: letters to the network, [`Told`] and [`NewLife`] to the frontier, [`DiskRequest`] to storage, [`RunBatch`] to the router.
//! Owns: the core's state, which is this life of the node in its cluster. If it dies, if the frontier dies or an answer of the disk
//! is lost, a new life begins, as after a start of the program: with a larger number that is on disk before anything is said, without
//! leases, and with what was handed out open again.

mod clients;
mod definitions;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, ResponseFuture, SpawnHandle};
use proto::batch::{Discovered, Pick, UrlBatch};
use proto::cluster::contents::ContentRules;
use proto::cluster::coordinator::{ClusterRules, Coordinator as Core, Effect, Input, Sight};
use proto::cluster::copy::RecordCopy;
use proto::cluster::message::{Errand, Stage};
use proto::cluster::propagate::RunId;
use proto::cluster::registry::Definition;
use proto::cluster::repair::Changed;
use proto::cluster::ring::Rings;
use proto::cluster::route::Load;
use proto::cluster::slot_set::SlotSet;
use proto::control::crawl::CrawlCounts;
use proto::crawl::frontier;
use proto::crawl::outcome::Ending;
use proto::crawl::politeness::{Micros, SECOND};
use proto::id::Slot;
use proto::key::{Order, QueueKey};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Duration;
use tracing::{debug, info, warn};

use self::definitions::{Counting, Definer, all_redefined};
use super::can_end;
use crate::crawls::CrawlBook;
use crate::edges::clock::Clock;
use crate::edges::contents::Line;
use crate::edges::disk::{DiskError, Job, Kept, ReplicaJob, Reply};
use crate::edges::network::Network;
use crate::edges::store::{Admitted, Begun, Merged};
use crate::edges::web::{HeadersOf, Pending};
use crate::messages::{
    AmendRecords, ClusterView, CompareNow, DiskRequest, FetchEnded, ForgetNode, FrontierUp, GetClusterView, GetDigests,
    Heard, KeepEntries, KeptPage, Leave, NamedUrls, NewLife, NotSubmitted, Received, Restart, RunBatch, SlotDigests,
    SubmitUrls, Told,
};
use crate::metrics::Metrics;
use crate::node::Fate;
use crate::supervisor::{Lifeline, Link};

/// How often the load is measured.
const LOAD_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether pages are to be counted.
const COUNT_EVERY: Duration = Duration::from_millis(500);
/// How long after a failure that passes by itself (a full disk, a full outbox) the same is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Longest sleep, as in the frontier.
const SLEEP_MAX: Micros = SECOND;
/// An errand that nothing was heard of this long after its deadline is forgotten.
const FORGET_AFTER: Micros = 60 * SECOND;

/// Hears of definitions.
pub type Defined = Arc<dyn Fn(&[Definition]) + Send + Sync>;

/// Takes links of a page of a crawl, and says whether they are kept; nothing if the crawl itself takes them.
pub type FoundOf = Arc<dyn Fn(&str, &[Discovered]) -> Option<Pending<'static, bool>> + Send + Sync>;

/// What a node's place in a cluster is made of.
#[derive(Clone)]
pub struct Cluster {
    /// Who it is and what it goes by; the number of its life is filled in.
    pub rules: ClusterRules,
    /// The way to the others.
    pub network: Arc<dyn Network>,
    /// Measures the load, in thousandths; `None` if it cannot be had now.
    pub load: Arc<dyn Fn() -> Option<Load> + Send + Sync>,
    /// Hears what was decided.
    pub watch: Arc<dyn Fn(Sight) + Send + Sync>,
    /// Rings that were built, shared by who builds the same ones.
    pub rings: Rings,
    /// The way by which pages reach a second node, and what copies go by; `None` if they stay where they were fetched.
    pub contents: Option<(Arc<dyn Line>, ContentRules)>,
    /// Hears of every definition that comes into force, and of all of them when a life begins.
    pub defined: Defined,
    /// Headers of single URLs.
    pub headers: HeadersOf,
    /// Who keeps entries of feeds.
    pub entries: KeepEntries,
    /// Where links of a crawl go whose URLs wait elsewhere than with the crawl itself.
    pub found: FoundOf,
    /// What chance is drawn from, together with the number of the life.
    pub seed: u64,
}

/// What a coordinator needs, the same for every life of it.
#[derive(Clone)]
pub struct CoordinatorParts {
    /// Its cluster.
    pub cluster: Cluster,
    /// All crawls; this actor writes it.
    pub book: CrawlBook,
    /// Way to the disk.
    pub storage: Link<DiskRequest>,
    /// Who fetches.
    pub router: Link<RunBatch>,
    /// Who decides what is fetched next.
    pub frontier: Link<Told>,
    /// The same.
    pub new_life: Link<NewLife>,
    /// The clocks.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    /// Where the node learns that it cannot go on.
    pub fate: Fate,
    /// Room in the mailbox for letters.
    pub mailbox_max: usize,
}

/// Who waits for URLs to be kept.
enum Client {
    /// Somebody outside.
    Outside(oneshot::Sender<Result<(), NotSubmitted>>),
    /// This node itself: they are handed in again until they are kept.
    Own { crawl: String, urls: Vec<Discovered> },
    /// A client with a fetcher of its own, whose records are to be kept; and the slots that it was served from.
    Keeper(oneshot::Sender<Result<bool, NotSubmitted>>, SlotSet, BTreeMap<Slot, u64>),
}

/// The actor.
pub struct Coordinator {
    parts: CoordinatorParts,
    /// `None` until the number of this life is on disk.
    core: Option<Core>,
    life: u32,
    /// Counts beginnings, so that the answer to an older one is known for what it is.
    beginning: u64,
    effects: Vec<Effect>,
    /// What happened and the core has not been told: it hears of everything that is in the mailbox at once.
    pending: Vec<Input>,
    /// Entries that the frontier is to hear of after that.
    admitted: Vec<frontier::Input>,
    /// What the fetcher has, by the number it knows it by: whose it is, when it must be over, and its crawl.
    runs: BTreeMap<u64, (RunId, Micros, String)>,
    next_run: u64,
    clients: BTreeMap<u64, Client>,
    next_ticket: u64,
    definers: BTreeMap<u64, Definer>,
    counting: Counting,
    /// Changes of records of clients in a life that is about to begin.
    early: Vec<(u32, Vec<Changed>)>,
    /// Answers that must come in the order of their questions.
    in_order: mpsc::UnboundedSender<Answer>,
    answers: Option<mpsc::UnboundedReceiver<Answer>>,
    alarm: Option<(Micros, SpawnHandle)>,
    /// An operator told this node to leave; every later life of this process does so too.
    leaving: bool,
    left: bool,
    lifeline: Lifeline,
}

type Answer = Pin<Box<dyn Future<Output = ()>>>;

/// From this actor's own tasks.
#[derive(Message)]
#[rtype(result = "()")]
enum Own {
    Begun {
        beginning: u64,
        begun: Begun,
    },
    BeginAgain {
        beginning: u64,
        least: Option<u32>,
    },
    Stored {
        life: u32,
        op: u64,
        merged: Option<Merged>,
    },
    Happened {
        life: u32,
        inputs: Vec<Input>,
    },
    Again {
        life: u32,
        crawl: String,
        urls: Vec<Discovered>,
    },
    Counted {
        life: u32,
        counts: BTreeMap<String, CrawlCounts>,
    },
    /// The mailbox is empty.
    Work,
}

impl Coordinator {
    /// A coordinator that will begin a life.
    pub fn new(parts: CoordinatorParts, lifeline: Lifeline) -> Coordinator {
        let (in_order, answers) = mpsc::unbounded_channel();
        let next_run = parts.clock.now().mono + 1; // not that of a former coordinator of this process
        Coordinator {
            parts,
            core: None,
            life: 0,
            beginning: 0,
            effects: Vec::new(),
            pending: Vec::new(),
            admitted: Vec::new(),
            runs: BTreeMap::new(),
            next_run,
            clients: BTreeMap::new(),
            next_ticket: 0,
            definers: BTreeMap::new(),
            counting: Counting::default(),
            early: Vec::new(),
            in_order,
            answers: Some(answers),
            alarm: None,
            leaving: false,
            left: false,
            lifeline,
        }
    }

    /// Begins a life, with a number larger than `least` if others know that one already.
    fn begin(&mut self, least: Option<u32>, ctx: &mut Context<Self>) {
        (self.core, self.life) = (None, 0);
        self.beginning += 1;
        self.pending.clear();
        self.admitted.clear();
        self.runs.clear();
        self.clients.clear();
        self.definers.clear();
        self.counting = Counting::default();
        let (beginning, me) = (self.beginning, ctx.address());
        let unix_s = self.parts.clock.now().unix_ms / 1_000;
        let answer = self.ask_disk(|reply| ReplicaJob::Begin { unix_s, least, reply });
        let fate = self.parts.fate.clone();
        actix_rt::spawn(async move {
            match answer.await {
                Ok(Ok(begun)) => me.do_send(Own::Begun { beginning, begun }),
                Ok(Err(DiskError::Full(error))) => {
                    warn!(%error, "cannot begin yet");
                    tokio::time::sleep(AGAIN_AFTER).await;
                    me.do_send(Own::BeginAgain { beginning, least });
                }
                Ok(Err(error)) => fate.seal(&error),
                Err(_) => me.do_send(Own::BeginAgain { beginning, least }),
            }
        });
    }

    fn begun(&mut self, Begun { boot, digests, definitions }: Begun, ctx: &mut Context<Self>) {
        let cluster = &self.parts.cluster;
        let mut rules = cluster.rules.clone();
        rules.boot = boot;
        info!(life = boot, peers = rules.peers.len(), "a life in the cluster begins");
        let rng = ChaCha8Rng::seed_from_u64(cluster.seed ^ u64::from(boot).rotate_left(32));
        let frontier::Now { mono: now, unix_ms } = self.parts.clock.now();
        self.parts.book.turn(unix_ms);
        self.parts.book.define(&definitions);
        (self.parts.cluster.defined)(&definitions);
        let core = Core::new(now, rules, digests, cluster.rings.clone(), rng).with_definitions(definitions);
        (cluster.watch)(core.ring_seen());
        self.core = Some(core);
        self.life = boot;
        self.parts.new_life.answer(NewLife(boot));
        self.take_early(ctx);
        self.happens([if self.leaving { Input::Leave } else { Input::Tick }], ctx);
        self.measure(ctx);
    }

    /// The core is to hear of this, behind what else is in the mailbox.
    fn happens(&mut self, inputs: impl IntoIterator<Item = Input>, ctx: &mut Context<Self>) {
        if self.core.is_none() {
            return;
        }
        if self.pending.is_empty() {
            ctx.notify(Own::Work);
        }
        self.pending.extend(inputs);
    }

    /// Tells the core what happened, and does what it says.
    fn step(&mut self, ctx: &mut Context<Self>) {
        let Some(core) = &mut self.core else { return };
        let now = self.parts.clock.now().mono;
        let mut effects = std::mem::take(&mut self.effects);
        core.step_all(now, self.pending.drain(..), &mut effects);
        self.perform(&mut effects, ctx);
        self.effects = effects;
        let admitted = std::mem::take(&mut self.admitted);
        self.tell_frontier(admitted);
        self.set_alarm(ctx);
    }

    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        let Some(core) = &self.core else { return };
        let now = self.parts.clock.now().mono;
        let at = core.next_wake().clamp(now, now + SLEEP_MAX);
        match self.alarm {
            Some((rings, _)) if rings <= at => return,
            Some((_, handle)) => drop(ctx.cancel_future(handle)),
            None => {}
        }
        let handle = ctx.run_later(self.parts.clock.wait(at - now), |actor, ctx| {
            actor.alarm = None;
            actor.step(ctx);
        });
        self.alarm = Some((at, handle));
    }

    fn perform(&mut self, effects: &mut Vec<Effect>, ctx: &mut Context<Self>) {
        let (mut told, mut settles) = (Vec::new(), Vec::new());
        let mut redefined = all_redefined(effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { to, letter } => self.parts.cluster.network.send(to, letter),
                Effect::Store { op, copies } => self.store(op, copies, ctx),
                Effect::Read { read, slot, ranges, after, limit } => self.ask(
                    ctx,
                    |reply| ReplicaJob::Read { slot, ranges, after, limit, reply },
                    move |(copies, next)| vec![Input::Read { read, copies, next }],
                ),
                Effect::DropSlot { slot } => self.drop_slot(slot, ctx),
                Effect::Admit { admit, crawl, parent, urls } => self.admit(admit, crawl, parent, urls, ctx),
                Effect::Fetch { run, crawl, errand, until } => self.fetch(run, &crawl, errand, until),
                Effect::Settle { pick, ending, stage } => settles.push((pick, ending, stage)),
                Effect::Frontier(input) => told.push(input),
                Effect::Acknowledge { ticket } => self.tell_client(ticket, Ok(()), ctx),
                Effect::Refuse { ticket } => self.tell_client(ticket, Err(NotSubmitted::Busy), ctx),
                Effect::Outdated { boot } => {
                    warn!(life = self.life, known = boot, "others know a later life of this node");
                    self.tell_frontier(told);
                    return self.begin(Some(boot), ctx);
                }
                Effect::Left => self.left = true,
                Effect::Saw(sight) => (self.parts.cluster.watch)(sight),
                Effect::StoreDefinitions { op, definitions } => self.store_definitions(op, definitions, ctx),
                Effect::Redefined { .. } if redefined.is_empty() => {} // with those before
                Effect::Redefined { .. } => told.push(self.redefined(&std::mem::take(&mut redefined))),
                Effect::Defined { ticket, version, by } => self.tell_definer(ticket, Ok((version, by))),
                Effect::NotDefined { ticket, why } => self.tell_definer(ticket, Err(why)),
            }
        }
        self.tell_frontier(told);
        self.settle(settles, ctx);
    }

    /// Asks what becomes of flights, all at once.
    fn settle(&self, flights: Vec<(Box<Pick>, Ending, Stage)>, ctx: &mut Context<Self>) {
        if flights.is_empty() {
            return;
        }
        let unix_ms = self.parts.clock.now().unix_ms;
        let named: Vec<(u64, Stage)> = flights.iter().map(|(pick, _, stage)| (pick.flight, *stage)).collect();
        let heard = move |settled: Vec<(Option<RecordCopy>, bool)>| {
            let settlement = |((flight, stage), (copy, page))| Input::Settlement { flight, stage, copy, page };
            named.into_iter().zip(settled).map(settlement).collect()
        };
        self.ask(ctx, |reply| ReplicaJob::Settle { flights, unix_ms, reply }, heard);
    }

    fn tell_frontier(&self, inputs: Vec<frontier::Input>) {
        if !inputs.is_empty() {
            self.parts.frontier.answer(Told { life: self.life, inputs }); // bounded by what the core has under way
        }
    }

    // The disk.

    fn ask_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce(Reply<T>) -> ReplicaJob,
    ) -> oneshot::Receiver<Result<T, DiskError>> {
        let (reply, answer) = oneshot::channel();
        self.parts.storage.answer(DiskRequest(Job::Replica(job(reply)))); // the core bounds its questions
        answer
    }

    /// Asks the disk and tells the core what it said.
    fn ask<T: Send + 'static>(
        &self,
        ctx: &mut Context<Self>,
        job: impl FnOnce(Reply<T>) -> ReplicaJob,
        heard: impl FnOnce(T) -> Vec<Input> + 'static,
    ) {
        let (answer, me, life, fate) = (self.ask_disk(job), ctx.address(), self.life, self.parts.fate.clone());
        actix_rt::spawn(async move {
            match answer.await {
                Ok(Ok(value)) => me.do_send(Own::Happened { life, inputs: heard(value) }), // an answer
                Ok(Err(error)) => fate.seal(&error),
                Err(_) => fate.restart(),
            }
        });
    }

    /// Merges records into what is on disk. Whether it worked or not, the core hears of it in the order of its questions.
    fn store(&self, op: u64, copies: Vec<RecordCopy>, ctx: &mut Context<Self>) {
        let unix_ms = self.parts.clock.now().unix_ms;
        let answer = self.ask_disk(|reply| ReplicaJob::Merge { copies, unix_ms, reply });
        let (me, life, fate) = (ctx.address(), self.life, self.parts.fate.clone());
        self.hear_in_order(Box::pin(async move {
            match answer.await {
                Ok(Ok(merged)) => me.do_send(Own::Stored { life, op, merged: Some(merged) }),
                Ok(Err(DiskError::Full(_))) => me.do_send(Own::Stored { life, op, merged: None }),
                Ok(Err(error)) => fate.seal(&error),
                Err(_) => fate.restart(),
            }
        }));
    }

    fn drop_slot(&self, slot: Slot, ctx: &mut Context<Self>) {
        let answer = self.ask_disk(|reply| ReplicaJob::Drop { slot, reply });
        let (me, life, fate) = (ctx.address(), self.life, self.parts.fate.clone());
        self.hear_in_order(Box::pin(async move {
            let input = match answer.await {
                Ok(Ok(())) => Input::Dropped { slot },
                Ok(Err(DiskError::Full(_))) => Input::DropFailed { slot },
                Ok(Err(error)) => return fate.seal(&error),
                Err(_) => return fate.restart(),
            };
            me.do_send(Own::Happened { life, inputs: vec![input] });
        }));
    }

    fn hear_in_order(&self, answer: Answer) {
        // The task that takes them lives as long as this actor does.
        let _ = self.in_order.send(answer);
    }

    /// Looks which URLs are new. A full disk is waited for: what is not looked at cannot be acknowledged.
    fn admit(
        &self,
        admit: u64,
        crawl: String,
        parent: Option<proto::id::UrlId>,
        urls: Vec<Discovered>,
        ctx: &mut Context<Self>,
    ) {
        let (storage, clock) = (self.parts.storage.clone(), self.parts.clock.clone());
        let (me, life, fate) = (ctx.address(), self.life, self.parts.fate.clone());
        let ask = move || {
            let (reply, answer) = oneshot::channel();
            let (crawl, urls, unix_ms) = (crawl.clone(), urls.clone(), clock.now().unix_ms);
            let job = ReplicaJob::Admit { crawl, parent, urls, unix_ms, reply };
            storage.answer(DiskRequest(Job::Replica(job))); // the core bounds its questions
            answer
        };
        let mut answer = ask();
        actix_rt::spawn(async move {
            loop {
                match answer.await {
                    Ok(Ok(copies)) => {
                        let inputs = vec![Input::Admitted { admit, copies }];
                        return me.do_send(Own::Happened { life, inputs });
                    }
                    Ok(Err(DiskError::Full(_))) if me.connected() => tokio::time::sleep(AGAIN_AFTER).await,
                    Ok(Err(DiskError::Full(_))) => return,
                    Ok(Err(error)) => return fate.seal(&error),
                    Err(_) => return fate.restart(),
                }
                answer = ask();
            }
        });
    }

    // Fetching.

    fn fetch(&mut self, run: RunId, crawl: &str, errand: Errand, until: Micros) {
        if self.parts.book.now().filter(crawl).is_none() {
            // Its links would be judged by rules that are not known here yet; its owner puts it back after its deadline.
            return debug!(crawl, "not fetched: nothing is known of this crawl");
        }
        self.next_run += 1;
        let flight = self.next_run;
        let queue = QueueKey::new(crawl, &errand.entry.url);
        let order = Order { priority: errand.priority, depth: errand.depth, sequence: 0 };
        let slot = queue.slot();
        let picks = vec![Pick { flight, queue, order, entry: errand.entry }];
        self.runs.insert(flight, (run, until, crawl.to_owned()));
        if self.parts.router.pass(RunBatch(UrlBatch { id: run.batch, slot, deadline: until, picks })).is_err() {
            self.parts.metrics.dropped.inc(); // its owner puts it back after its deadline
        }
    }

    /// Has links kept that do not go to their crawl, and only then says that the page was fetched, as if it had none: so a page is PROCESSED only when its links are
    /// kept, wherever that is. Says whether it does. What cannot be kept in time is fetched again.
    fn keep_elsewhere(&self, run: RunId, until: Micros, crawl: &str, kept: &Kept, ctx: &mut Context<Self>) -> bool {
        let found = Arc::clone(&self.parts.cluster.found);
        let Some(mut keeping) = found(crawl, &kept.links) else { return false };
        let (me, life, clock) = (ctx.address(), self.life, self.parts.clock.clone());
        let (crawl, links, ending) = (crawl.to_owned(), kept.links.clone(), kept.ending.clone());
        actix_rt::spawn(async move {
            while !keeping.await {
                tokio::time::sleep(AGAIN_AFTER).await;
                let late = clock.now().mono > until + FORGET_AFTER;
                match found(&crawl, &links).filter(|_| !late && me.connected()) {
                    Some(again) => keeping = again,
                    None => return,
                }
            }
            me.do_send(Own::Happened { life, inputs: vec![Input::Fetched { run, ending, links: Vec::new() }] });
        });
        true
    }

    fn measure(&mut self, ctx: &mut Context<Self>) {
        let now = self.parts.clock.now().mono;
        self.runs.retain(|_, (_, until, _)| *until + FORGET_AFTER > now);
        self.show(now);
        let spoken = self.parts.cluster.network.oldest_spoken();
        self.happens([Input::Spoken(spoken)], ctx);
        if let Some(load) = (self.parts.cluster.load)() {
            self.happens([Input::Measured(load)], ctx);
        }
    }

    /// Shows leases and members in the metrics.
    fn show(&self, now: Micros) {
        let shown = &self.parts.metrics.cluster;
        let slots = &self.parts.cluster.rules.slots;
        let (held, members, alive) = self.core.as_ref().map_or((0, 0, 0), |core| {
            let held = slots.iter().filter(|slot| core.holds(now, *slot)).count();
            (held, core.view().len(), core.alive().len())
        });
        shown.leases_held.set(held as i64);
        shown.members.set(members as i64);
        shown.alive.set(alive as i64);
    }

    // Clients.

    fn submit(&mut self, client: Client, crawl: String, urls: Vec<Discovered>, ctx: &mut Context<Self>) {
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.clients.insert(ticket, client);
        self.happens([Input::Submitted { ticket, crawl, urls }], ctx);
    }

    fn tell_client(&mut self, ticket: u64, told: Result<(), NotSubmitted>, ctx: &mut Context<Self>) {
        match self.clients.remove(&ticket) {
            None => {}
            Some(Client::Outside(client)) => drop(client.send(told)), // who does not wait any more need not know
            Some(Client::Own { crawl, urls }) if told.is_err() => {
                let life = self.life;
                ctx.notify_later(Own::Again { life, crawl, urls }, AGAIN_AFTER);
            }
            Some(Client::Own { .. }) => {}
            Some(Client::Keeper(client, served, tenures)) => self.tell_keeper(client, &served, &tenures, told),
        }
    }

    fn submit_own(&mut self, life: u32, crawl: String, urls: Vec<Discovered>, ctx: &mut Context<Self>) {
        if life == self.life && self.core.is_some() {
            let client = Client::Own { crawl: crawl.clone(), urls: urls.clone() };
            self.submit(client, crawl, urls, ctx);
        }
    }
}

impl Actor for Coordinator {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.parts.mailbox_max);
        self.lifeline.has_room_for(self.parts.mailbox_max);
        if let Some(mut answers) = self.answers.take() {
            actix_rt::spawn(async move {
                while let Some(answer) = answers.recv().await {
                    answer.await;
                }
            });
        }
        ctx.run_interval(LOAD_EVERY, Coordinator::measure);
        ctx.run_interval(COUNT_EVERY, Coordinator::count_pages);
        self.begin(None, ctx);
    }
}

impl Handler<Own> for Coordinator {
    type Result = ();

    fn handle(&mut self, own: Own, ctx: &mut Self::Context) {
        match own {
            Own::Begun { beginning, begun } if beginning == self.beginning => self.begun(begun, ctx),
            Own::BeginAgain { beginning, least } if beginning == self.beginning => self.begin(least, ctx),
            Own::Stored { life, op, merged } if life == self.life => match merged {
                None => self.happens([Input::StoreFailed { op }], ctx),
                Some(Merged { changed, admitted }) => {
                    self.happens([Input::Stored { op, changed }], ctx);
                    self.admitted.extend(admitted.into_iter().map(Admitted::into_input));
                }
            },
            Own::Happened { life, inputs } if life == self.life => self.happens(inputs, ctx),
            Own::Again { life, crawl, urls } => self.submit_own(life, crawl, urls, ctx),
            Own::Counted { life, counts } if life == self.life => self.counted(&counts, ctx),
            Own::Work if self.pending.is_empty() => {} // an alarm was faster
            Own::Work => self.step(ctx),
            _ => debug!("an answer to a former life"),
        }
    }
}

impl Handler<Received> for Coordinator {
    type Result = ();

    fn handle(&mut self, Received(letter): Received, ctx: &mut Self::Context) {
        self.lifeline.handles();
        self.happens([Input::Received(letter)], ctx);
    }
}

impl Handler<Heard> for Coordinator {
    type Result = ();

    fn handle(&mut self, Heard { life, inputs }: Heard, ctx: &mut Self::Context) {
        self.lifeline.handles();
        if life == self.life {
            self.happens(inputs, ctx);
        }
    }
}

impl Handler<NamedUrls> for Coordinator {
    type Result = ();

    fn handle(&mut self, NamedUrls { life, crawl, urls }: NamedUrls, ctx: &mut Self::Context) {
        self.lifeline.handles();
        self.submit_own(life, crawl, urls, ctx);
    }
}

impl Handler<FetchEnded> for Coordinator {
    type Result = ();

    fn handle(&mut self, FetchEnded { flight, host, retry_after_ms }: FetchEnded, ctx: &mut Self::Context) {
        self.lifeline.handles();
        if let Some((run, ..)) = self.runs.get(&flight) {
            let run = *run;
            self.happens([Input::Asked { run, host, retry_after_ms }], ctx);
        }
    }
}

impl Handler<KeptPage> for Coordinator {
    type Result = ();

    fn handle(&mut self, KeptPage(kept): KeptPage, ctx: &mut Self::Context) {
        self.lifeline.handles();
        match &kept.ending {
            ending if ending.is_page() => drop(self.parts.metrics.cluster.pages_kept.inc()),
            Ending::Failed(..) => drop(self.parts.metrics.cluster.failures.inc()),
            _ => {}
        }
        let Some((run, until, crawl)) = self.runs.remove(&kept.flight) else { return };
        if kept.links.is_empty() || !self.keep_elsewhere(run, until, &crawl, &kept, ctx) {
            self.happens([Input::Fetched { run, ending: kept.ending, links: kept.links }], ctx);
        }
    }
}

impl Handler<SubmitUrls> for Coordinator {
    type Result = ResponseFuture<Result<(), NotSubmitted>>;

    fn handle(&mut self, SubmitUrls { crawl, urls }: SubmitUrls, ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        if self.core.is_none() {
            return Box::pin(async { Err(NotSubmitted::StartedAnew) });
        }
        let (client, told) = oneshot::channel();
        self.submit(Client::Outside(client), crawl, urls, ctx);
        Box::pin(async { told.await.unwrap_or(Err(NotSubmitted::StartedAnew)) })
    }
}

impl Handler<AmendRecords> for Coordinator {
    type Result = ResponseFuture<Result<(), NotSubmitted>>;

    fn handle(&mut self, AmendRecords(copies): AmendRecords, ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        if self.core.is_none() {
            return Box::pin(async { Err(NotSubmitted::StartedAnew) });
        }
        let (client, told) = oneshot::channel();
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.clients.insert(ticket, Client::Outside(client));
        self.happens([Input::Amended { ticket, copies }], ctx);
        Box::pin(async { told.await.unwrap_or(Err(NotSubmitted::StartedAnew)) })
    }
}

impl Handler<FrontierUp> for Coordinator {
    type Result = ();

    fn handle(&mut self, _: FrontierUp, ctx: &mut Self::Context) {
        self.lifeline.handles();
        // While a life is about to begin, the frontier will hear of it.
        if self.core.is_some() {
            self.begin(None, ctx);
        }
    }
}

impl Handler<Restart> for Coordinator {
    type Result = ();

    fn handle(&mut self, _: Restart, ctx: &mut Self::Context) {
        self.lifeline.handles();
        if self.core.is_some() {
            self.begin(None, ctx);
        }
    }
}

impl Handler<Leave> for Coordinator {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Self::Context) {
        self.lifeline.handles();
        self.leaving = true;
        self.happens([Input::Leave], ctx);
    }
}

impl Handler<GetClusterView> for Coordinator {
    type Result = ClusterView;

    fn handle(&mut self, _: GetClusterView, _ctx: &mut Self::Context) -> ClusterView {
        self.lifeline.handles();
        let Some(core) = &self.core else { return ClusterView { left: self.left, ..ClusterView::default() } };
        let now = self.parts.clock.now().mono;
        let (me, slots) = (self.parts.cluster.rules.me, &self.parts.cluster.rules.slots);
        ClusterView {
            life: self.life,
            members: core.view().clone(),
            alive: core.alive().iter().copied().collect(),
            size: core.size(),
            owned: slots.iter().filter(|slot| core.ring().owner(*slot) == Some(me)).count(),
            held: slots.iter().filter(|slot| core.holds(now, *slot)).collect(),
            load: core.load(),
            fetching: core.fetching(),
            left: self.left,
        }
    }
}

impl Handler<ForgetNode> for Coordinator {
    type Result = Result<(), String>;

    fn handle(&mut self, ForgetNode(node): ForgetNode, ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        let Some(core) = &self.core else { return Err("the node starts anew; ask again".to_owned()) };
        if node == self.parts.cluster.rules.me {
            return Err("this is the node itself; to take it out use `ctl leave`".to_owned());
        }
        if core.alive().contains(&node) {
            return Err("it is alive here; to take it out have it leave with `ctl leave`, or stop it first".to_owned());
        }
        let known = core.view().contains_key(&node) || core.has_left(node) || core.is_enrolled(node);
        if !known && !self.parts.cluster.rules.peers.iter().any(|(peer, _)| *peer == node) {
            return Err("no such node is known here".to_owned());
        }
        warn!(forgotten = node.0, "an operator says that a node is gone for ever");
        self.happens([Input::Forget { node }], ctx);
        Ok(())
    }
}

impl Handler<CompareNow> for Coordinator {
    type Result = ();

    fn handle(&mut self, CompareNow(slots): CompareNow, ctx: &mut Self::Context) {
        self.lifeline.handles();
        self.happens([Input::Compare { slots }], ctx);
    }
}

impl Handler<GetDigests> for Coordinator {
    type Result = SlotDigests;

    fn handle(&mut self, GetDigests(slots): GetDigests, _ctx: &mut Self::Context) -> SlotDigests {
        self.lifeline.handles();
        let Some(core) = &self.core else { return SlotDigests::default() };
        let asked = |slot: &Slot| slots.is_empty() || slots.contains(slot);
        let digests = core.digests().slots().filter(asked).map(|slot| (slot, core.digests().of(slot))).collect();
        let keeps = self.parts.cluster.rules.slots.iter().filter(asked).filter(|slot| core.keeps(*slot)).collect();
        SlotDigests { digests, keeps }
    }
}

can_end!(Coordinator);
