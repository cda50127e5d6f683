//! Frontier: the shell of the frontier core. It feeds the core what happened, and does what the core says.
//! In: [`DiscoveredUrls`] from the command line and doors, [`FetchEnded`] and [`RobotsFetched`] from the fetcher, [`LandedPages`] from storage.
//! Out: [`RunBatch`] to the router, [`RunRobots`] to the fetcher, [`DiskRequest`] and [`StorePage`] to storage.
//! Owns: the core's state, which is a view of what is on disk. If it dies, its successor reads that view anew: what was handed out stays
//! handed out until it is settled or its deadline passes. In a cluster a new life begins instead (see the coordinator).

mod clustered;
mod rescored;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, ResponseFuture, SpawnHandle};
use proto::batch::{Discovered, Pick, UrlBatch};
use proto::cluster::lease::{Grants, Leases};
use proto::cluster::mutant::Planted;
use proto::crawl::filter::Filter;
use proto::crawl::frontier::{Effect, Frontier as Core, FrontierRules, HostFacts, Input, Why};
use proto::crawl::outcome::{Ending, OutcomeKind};
use proto::crawl::politeness::{Micros, SECOND};
use proto::crawl::retry::Failure;
use proto::id::{BatchId, NodeId, Slot};
use proto::key::{Order, QueueKey};
use tokio::sync::oneshot;
use tokio::time::Duration;
use tracing::{debug, warn};

use super::can_end;
use crate::crawls::CrawlBook;
use crate::edges::clock::Clock;
use crate::edges::disk::{DiskError, Job, Landing, ReplicaJob, Reply, Rules};
use crate::edges::http::FetchError;
use crate::edges::store::{Admitted, Pass};
use crate::edges::web::Web;
use crate::messages::{
    DiscoveredUrls, DiskRequest, FetchEnded, FrontierUp, GetStanding, Halt, Heard, LandedPages, NamedUrls, Restart,
    Retune, RobotsFetched, RunBatch, RunRobots, Standing, StorePage,
};
use crate::metrics::Metrics;
use crate::node::Fate;
use crate::supervisor::{Lifeline, Link};
use crate::tuning::Tuning;

/// How often entries that wait for their time are looked for. Retries wait for seconds at least.
const DUE_EVERY: Duration = Duration::from_millis(250);
/// Longest sleep: a wake-up too many costs microseconds, one that is missed would stop the crawl.
const SLEEP_MAX: Micros = SECOND;

/// What a page is taken to weigh as long as none was fetched.
const PAGE_BYTES_GUESSED: u64 = 128 << 10;
/// Hosts in trouble that are named to whoever asks.
const TROUBLES_SHOWN: usize = 3;

/// Whom a frontier works with.
#[derive(Clone)]
pub enum Way {
    /// The actors of its own node, all the slots being its own.
    Alone {
        /// Way to the disk for what ends without a fetch.
        settle: Link<StorePage>,
        /// Who runs batches.
        router: Link<RunBatch>,
        /// Which start of the node this is.
        boot: u32,
        /// Whether there was one before.
        resumed: bool,
    },
    /// The coordinator, which says what it may serve.
    Clustered {
        /// Who hears what is handed out.
        coordinator: Link<Heard>,
        /// Who hears of URLs that a robots.txt names.
        named: Link<NamedUrls>,
        /// Who must know that this frontier has started.
        up: Link<FrontierUp>,
        /// A defect to be found.
        planted: Planted,
    },
}

/// What a frontier needs, the same for every life of it.
#[derive(Clone)]
pub struct FrontierParts {
    /// Way to the disk.
    pub storage: Link<DiskRequest>,
    /// Whom it works with.
    pub way: Way,
    /// Who fetches robots.txt files.
    pub fetcher: Link<RunRobots>,
    /// Who knows addresses.
    pub web: Arc<dyn Web>,
    /// Rules of the core.
    pub rules: FrontierRules,
    /// Those of them that can change.
    pub tuning: Arc<Tuning>,
    /// What belongs to a crawl that nobody defined.
    pub filter: Arc<Filter>,
    /// All crawls.
    pub book: CrawlBook,
    /// The rules of this run, as the disk must know them.
    pub run: Rules,
    /// Bytes of content after which nothing more is handed out.
    pub bytes_max: Option<u64>,
    /// The clocks.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    /// Where the node learns that it cannot go on.
    pub fate: Fate,
}

/// The actor.
pub struct Frontier {
    parts: FrontierParts,
    core: Core,
    /// The core may step: its former life's flights are known.
    ready: bool,
    held_back: Vec<Input>,
    /// Fetches that ended since the last step: those of one moment are taken in together, and one request writes down what is
    /// handed out in their place.
    gathered: Vec<Input>,
    effects: Vec<Effect>,
    next_batch: u64,
    admitting: usize,
    /// Which life in its cluster; 0 for a node alone.
    life: u32,
    /// In a cluster, what is handed out.
    aloft: BTreeMap<u64, Pick>,
    /// Places that entries leave by the move under way.
    moving: BTreeSet<(Order, QueueKey)>,
    /// When it rings, and the handle to silence it.
    alarm: Option<(Micros, SpawnHandle)>,
    lifeline: Lifeline,
}

/// Something the core must hear of. From this actor's own tasks.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Happened(Vec<Input>);

/// Takes in what has gathered. From this actor to itself, behind what is in its mailbox.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Gathered;

/// The flights, pages and bytes of a former life.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Recovered(Vec<Pick>, u64, u64);

/// What came back of what was set aside, and where to go on.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct TakenBack(Vec<Admitted>, Option<Pass>);

/// Admissions that reached the disk.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct AdmittedUrls(Vec<Admitted>);

impl Frontier {
    /// A frontier that will ask the disk where things stand.
    pub fn new(parts: FrontierParts, lifeline: Lifeline) -> Frontier {
        let core = Self::core(&parts, 0);
        Frontier {
            parts,
            core,
            ready: false,
            held_back: Vec::new(),
            gathered: Vec::new(),
            effects: Vec::new(),
            next_batch: 0,
            admitting: 0,
            life: 0,
            aloft: BTreeMap::new(),
            moving: BTreeSet::new(),
            alarm: None,
            lifeline,
        }
    }

    fn core(parts: &FrontierParts, pages: u64) -> Core {
        let (now, rules, filter) = (parts.clock.now(), parts.rules.clone(), Arc::clone(&parts.filter));
        let (leases, resumed) = match &parts.way {
            Way::Alone { resumed, .. } => (Leases::Sole, *resumed),
            Way::Clustered { planted, .. } => {
                (Leases::Granted(Grants { planted: *planted, ..Grants::default() }), false)
            }
        };
        let mut core = Core::new(now, rules, filter, leases, pages, resumed).with_crawls(now, parts.book.now());
        core.tune(parts.tuning.now());
        core
    }

    fn step(&mut self, inputs: impl IntoIterator<Item = Input>, ctx: &mut Context<Self>) {
        let gathered = std::mem::take(&mut self.gathered);
        let inputs = gathered.into_iter().chain(inputs);
        if !self.ready {
            self.held_back.extend(inputs);
            return;
        }
        let now = self.parts.clock.now();
        let mut effects = std::mem::take(&mut self.effects);
        for input in inputs {
            let input = self.where_it_is(input);
            self.core.step(now, input, &mut effects);
        }
        self.perform(&mut effects, ctx);
        self.effects = effects;
        self.set_alarm(ctx);
    }

    /// Takes an input in with others of this moment.
    fn gather(&mut self, input: Input, ctx: &mut Context<Self>) {
        self.gathered.push(input);
        if self.gathered.len() == 1 {
            ctx.notify(Gathered);
        }
    }

    /// Hands out fewer pages as the byte limit comes near, and none behind it.
    fn limit(&mut self, bytes: u64) {
        let Some(bytes_max) = self.parts.bytes_max else { return };
        let flights_max = self.parts.tuning.now().flights_max;
        match flights_within(bytes_max, bytes, self.core.pages(), flights_max.max(1)) {
            0 => self.core.close(),
            flights if flights_max > 0 => self.core.limit_flights(flights),
            _ => {}
        }
    }

    /// Wakes the core when it asks to be woken. An alarm that rings too early costs a step, so only an earlier one replaces it.
    fn set_alarm(&mut self, ctx: &mut Context<Self>) {
        let now = self.parts.clock.now().mono;
        let at = self.core.next_wake().unwrap_or(Micros::MAX).clamp(now, now + SLEEP_MAX);
        match self.alarm {
            Some((rings, _)) if rings <= at => return,
            Some((_, handle)) => drop(ctx.cancel_future(handle)),
            None => {}
        }
        let handle = ctx.run_later(self.parts.clock.wait(at - now), |actor, ctx| {
            actor.alarm = None;
            actor.step([Input::Tick], ctx);
        });
        self.alarm = Some((at, handle));
    }

    fn perform(&mut self, effects: &mut Vec<Effect>, ctx: &mut Context<Self>) {
        let at = self.parts.clock.now().mono;
        let alone = matches!(self.parts.way, Way::Alone { .. });
        if alone {
            self.select(effects);
        }
        let mut picks = Vec::new();
        let mut refused = Vec::new();
        for effect in effects.drain(..) {
            match effect {
                Effect::Fetch(pick) => picks.push(pick),
                Effect::Refuse(pick, why) => refused.push((pick, why)),
                Effect::FetchRobots { flight, crawl, url } => {
                    let deadline = self.parts.clock.now().mono + self.parts.rules.fetch_timeout;
                    if self.parts.fetcher.pass(RunRobots { flight, crawl, url, deadline }).is_err() {
                        self.parts.metrics.dropped.inc();
                    }
                }
                Effect::Lost(pick) if alone => self.lost(pick),
                Effect::Lost(pick) => self.lost_clustered(pick),
                Effect::Refill { read, queue, after, limit } => {
                    let asked = queue.clone();
                    self.ask(
                        ctx,
                        |reply| Job::Refill(asked, after, limit, reply),
                        move |(entries, more)| vec![Input::Refilled { read, queue, entries, more }],
                    )
                }
                Effect::Load { read, queue, limit } => self.ask(
                    ctx,
                    |reply| Job::Load(queue, limit, reply),
                    move |loaded| vec![Input::Loaded { read, queues: vec![loaded], sweep: None }],
                ),
                Effect::Sweep { read, slot, after, queues, limit } => self.ask(
                    ctx,
                    |reply| Job::Sweep(slot, after, queues, limit, reply),
                    move |(queues, next)| vec![Input::Loaded { read, queues, sweep: Some(next) }],
                ),
                Effect::KeepFacts { queue, facts } => self.keep_facts(queue, facts, ctx),
                Effect::Idle { slot } => self.idle(slot),
                Effect::Resolve { queue, host } => self.resolve(queue, host, ctx),
                Effect::Discover { queue, urls } => self.discover(queue.crawl().to_owned(), urls, ctx),
            }
        }
        match (alone, refused.is_empty(), picks.is_empty()) {
            (_, true, true) => {}
            (true, ..) => {
                self.refuse(refused);
                self.send_batches(picks);
            }
            (false, ..) => {
                self.refuse_clustered(refused);
                if !picks.is_empty() {
                    self.hand_out(at, picks, ctx);
                }
            }
        }
    }

    /// Asks the disk and tells the core what it said.
    fn ask<T: Send + 'static>(
        &self,
        ctx: &mut Context<Self>,
        job: impl FnOnce(Reply<T>) -> Job,
        heard: impl FnOnce(T) -> Vec<Input> + 'static,
    ) {
        let me = ctx.address();
        self.ask_disk(job, move |value| {
            let inputs = heard(value);
            if !inputs.is_empty() {
                me.do_send(Happened(inputs)); // an answer: as many as the core asked questions
            }
        });
    }

    /// The core keeps in memory what the disk has no room for.
    fn keep_facts(&self, queue: QueueKey, facts: HostFacts, ctx: &mut Context<Self>) {
        let (me, of, (reply, answer)) = (ctx.address(), queue.clone(), oneshot::channel());
        self.parts.storage.answer(DiskRequest(Job::KeepFacts(queue, Box::new(facts), reply)));
        self.hear_or_full(answer, move |kept| {
            me.do_send(Happened(vec![Input::FactsKept { queue: of, kept: kept.is_some() }])); // one for each question
        });
    }

    fn ask_disk<T: Send + 'static>(&self, job: impl FnOnce(Reply<T>) -> Job, heard: impl FnOnce(T) + 'static) {
        let (reply, answer) = oneshot::channel();
        self.parts.storage.answer(DiskRequest(job(reply))); // the core bounds its questions
        self.hear(answer, heard);
    }

    fn hear<T: 'static>(&self, answer: oneshot::Receiver<Result<T, DiskError>>, heard: impl FnOnce(T) + 'static) {
        self.hear_or_full(answer, |value| {
            value.map(heard);
        });
    }

    /// Passes on what the disk answered; `None` if it is full.
    fn hear_or_full<T: 'static>(
        &self,
        answer: oneshot::Receiver<Result<T, DiskError>>,
        heard: impl FnOnce(Option<T>) + 'static,
    ) {
        let (fate, clustered) = (self.parts.fate.clone(), matches!(self.parts.way, Way::Clustered { .. }));
        actix_rt::spawn(async move {
            match answer.await {
                Ok(Ok(value)) => heard(Some(value)),
                // In a cluster others go on; facts and entries that fall due are written when there is room again.
                Ok(Err(DiskError::Full(error))) if clustered => {
                    warn!(%error, "not written");
                    heard(None);
                }
                Ok(Err(error)) => fate.seal(&error),
                // Storage died with the question. Its successor does not know it: read the whole view anew.
                Err(_) => {
                    debug!("a question to the disk was lost");
                    fate.restart();
                }
            }
        });
    }

    /// Has what is handed out written down as such, before anything else: a read of the same step must not find it waiting. The
    /// request is in storage's mailbox when this returns, so it is ahead of whatever comes of the picks too, and nobody waits
    /// for the disk: what a kill makes us forget was in flight.
    fn select(&self, effects: &[Effect]) {
        let picked = |effect: &Effect| match effect {
            Effect::Fetch(pick) | Effect::Refuse(pick, _) => Some(pick.clone()),
            _ => None,
        };
        let picks: Vec<Pick> = effects.iter().filter_map(picked).collect();
        if !picks.is_empty() {
            let (reply, answer) = oneshot::channel();
            self.parts.storage.answer(DiskRequest(Job::Select(picks, reply))); // at most `concurrency` are out
            self.hear(answer, |()| {});
        }
    }

    fn refuse(&self, refused: Vec<(Pick, Why)>) {
        let Way::Alone { settle, .. } = &self.parts.way else { return };
        let unix_ms = self.parts.clock.now().unix_ms;
        for (pick, why) in refused {
            let landing = match why {
                Why::Failed(failure) => Landing::failed(pick, failure, unix_ms),
                Why::Filtered(_) => Landing::without_content(pick, Ending::Filtered, unix_ms),
            };
            if settle.pass(StorePage(Box::new(landing))).is_err() {
                self.parts.metrics.dropped.inc();
            }
        }
    }

    fn send_batches(&mut self, picks: Vec<Pick>) {
        let Way::Alone { router, boot, .. } = &self.parts.way else { return };
        let mut by_slot: BTreeMap<Slot, Vec<Pick>> = BTreeMap::new();
        for pick in picks {
            by_slot.entry(pick.queue.slot()).or_default().push(pick);
        }
        let deadline = self.parts.clock.now().mono + self.parts.rules.flight_timeout;
        for (slot, picks) in by_slot {
            self.next_batch += 1;
            let id = BatchId { node: NodeId::SOLE, boot: *boot, number: self.next_batch };
            debug!(batch = %id, slot = slot.0, urls = picks.len(), "batch handed out");
            if router.pass(RunBatch(UrlBatch { id, slot, deadline, picks })).is_err() {
                self.parts.metrics.dropped.inc();
            }
        }
    }

    fn lost(&self, pick: Pick) {
        let Way::Alone { settle, .. } = &self.parts.way else { return };
        warn!(url = pick.entry.url.as_str(), flight = pick.flight, "fetch was lost, will be tried again");
        self.parts.metrics.lost.inc();
        let landing = Landing::failed(pick, Failure::Lost, self.parts.clock.now().unix_ms);
        if settle.pass(StorePage(Box::new(landing))).is_err() {
            self.parts.metrics.dropped.inc();
        }
    }

    fn resolve(&self, queue: QueueKey, host: String, ctx: &mut Context<Self>) {
        let (web, me) = (Arc::clone(&self.parts.web), ctx.address());
        actix_rt::spawn(async move {
            let address: Result<IpAddr, Failure> = match web.resolve(&host).await {
                Ok(addresses) => addresses.first().copied().ok_or(Failure::DnsNotFound),
                Err(error) => Err(FetchError::from(error).failure()),
            };
            me.do_send(Happened(vec![Input::Resolved { queue, address }])); // an answer
        });
    }

    fn discover(&mut self, crawl: String, urls: Vec<Discovered>, ctx: &mut Context<Self>) {
        if let Way::Clustered { named, .. } = &self.parts.way {
            return named.answer(NamedUrls { life: self.life, crawl, urls }); // as many as a robots.txt may name
        }
        self.admitting += 1;
        let (me, unix_ms) = (ctx.address(), self.parts.clock.now().unix_ms);
        self.ask_disk(
            |reply| Job::Admit { crawl, urls, unix_ms, reply },
            move |admitted| me.do_send(AdmittedUrls(admitted)),
        );
    }

    /// Forgets what of a slot is handed out: whoever serves it now may hand it out.
    fn forget_slot(&self, slot: Slot) {
        self.parts.storage.answer(DiskRequest(Job::Replica(ReplicaJob::Forget(slot)))); // as often as leases end
    }

    /// Asks for what former runs set aside and this one admits, bit by bit. The disk answers at once if the rules are the same.
    fn take_back(&mut self, pass: Pass, ctx: &mut Context<Self>) {
        self.admitting += 1;
        let (me, run, unix_ms) = (ctx.address(), self.parts.run.clone(), self.parts.clock.now().unix_ms);
        self.ask_disk(
            |reply| Job::TakeBack(run, pass, unix_ms, reply),
            move |(admitted, next)| me.do_send(TakenBack(admitted, next)),
        );
    }

    fn fall_due(&self, ctx: &mut Context<Self>) {
        let unix_ms = self.parts.clock.now().unix_ms;
        self.ask(ctx, |reply| Job::FallDue(unix_ms, reply), |(admitted, _)| inputs_of(admitted));
    }
}

/// How many pages may be in flight so that they stay within the byte limit, if they are as large as those before them.
fn flights_within(bytes_max: u64, bytes: u64, pages: u64, flights_max: usize) -> usize {
    let left = bytes_max.saturating_sub(bytes);
    if left == 0 {
        return 0;
    }
    let page_bytes = (bytes + PAGE_BYTES_GUESSED) / (pages + 1);
    usize::try_from(left / page_bytes.max(1)).unwrap_or(usize::MAX).clamp(1, flights_max)
}

fn inputs_of(admitted: Vec<Admitted>) -> Vec<Input> {
    admitted.into_iter().map(Admitted::into_input).collect()
}

impl Actor for Frontier {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // Answers come with `do_send`; what is left are seeds and questions of people.
        ctx.set_mailbox_capacity(64);
        self.lifeline.has_room_for(64);
        ctx.run_interval(DUE_EVERY, |actor, ctx| actor.fall_due(ctx));
        if let Way::Clustered { up, .. } = &self.parts.way {
            return up.answer(FrontierUp);
        }
        let me = ctx.address();
        self.ask_disk(Job::Recover, move |(flights, pages, bytes)| me.do_send(Recovered(flights, pages, bytes)));
    }
}

impl Handler<Recovered> for Frontier {
    type Result = ();

    fn handle(&mut self, Recovered(flights, pages, bytes): Recovered, ctx: &mut Self::Context) {
        self.core = Self::core(&self.parts, pages);
        self.limit(bytes);
        let now = self.parts.clock.now();
        let mut effects = std::mem::take(&mut self.effects);
        for pick in flights {
            self.core.adopt(now, pick, &mut effects);
        }
        self.perform(&mut effects, ctx);
        self.effects = effects;
        self.ready = true;
        let held_back = std::mem::take(&mut self.held_back);
        self.step(held_back.into_iter().chain([Input::Tick]), ctx);
        self.take_back(Pass::START, ctx);
    }
}

impl Handler<TakenBack> for Frontier {
    type Result = ();

    fn handle(&mut self, TakenBack(admitted, next): TakenBack, ctx: &mut Self::Context) {
        self.admitting = self.admitting.saturating_sub(1);
        if let Some(pass) = next {
            self.take_back(pass, ctx);
        }
        self.step(inputs_of(admitted), ctx);
    }
}

impl Handler<DiscoveredUrls> for Frontier {
    type Result = ResponseFuture<Result<usize, DiskError>>;

    fn handle(&mut self, DiscoveredUrls { crawl, urls }: DiscoveredUrls, ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        self.admitting += 1;
        let (me, unix_ms) = (ctx.address(), self.parts.clock.now().unix_ms);
        let storage = self.parts.storage.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let request = DiskRequest(Job::Admit { crawl, urls, unix_ms, reply });
            storage.send(request).await.map_err(|_| DiskError::Stopped)?;
            let admitted = answer.await.map_err(|_| DiskError::Stopped)??;
            let count = admitted.len();
            me.do_send(AdmittedUrls(admitted));
            Ok(count)
        })
    }
}

impl Handler<AdmittedUrls> for Frontier {
    type Result = ();

    fn handle(&mut self, AdmittedUrls(admitted): AdmittedUrls, ctx: &mut Self::Context) {
        self.admitting = self.admitting.saturating_sub(1);
        self.step(inputs_of(admitted), ctx);
    }
}

impl Handler<FetchEnded> for Frontier {
    type Result = ();

    fn handle(&mut self, ended: FetchEnded, ctx: &mut Self::Context) {
        self.lifeline.handles();
        let FetchEnded { flight, host, retry_after_ms } = ended;
        self.gather(Input::FetchEnded { flight, host, retry_after_ms }, ctx);
    }
}

impl Handler<RobotsFetched> for Frontier {
    type Result = ();

    fn handle(&mut self, RobotsFetched { flight, answer }: RobotsFetched, ctx: &mut Self::Context) {
        self.lifeline.handles();
        self.step([Input::RobotsFetched { flight, answer }], ctx);
    }
}

impl Handler<Gathered> for Frontier {
    type Result = ();

    fn handle(&mut self, _: Gathered, ctx: &mut Self::Context) {
        if !self.gathered.is_empty() {
            self.step([], ctx);
        }
    }
}

impl Handler<LandedPages> for Frontier {
    type Result = ();

    fn handle(&mut self, LandedPages(pages): LandedPages, ctx: &mut Self::Context) {
        self.lifeline.handles();
        let mut inputs = Vec::with_capacity(pages.iter().map(|landed| landed.admitted.len() + 1).sum());
        for landed in pages {
            let page =
                matches!(landed.kind, Some(OutcomeKind::Stored | OutcomeKind::Duplicate | OutcomeKind::Unchanged));
            if let Some(kind) = landed.kind {
                self.parts.metrics.landed(kind);
            }
            self.parts.metrics.discovered.inc_by(landed.admitted.len() as u64);
            self.limit(landed.bytes);
            inputs.extend(landed.admitted.into_iter().map(Admitted::into_input));
            inputs.push(Input::Settled { flight: landed.flight, page });
        }
        self.step(inputs, ctx);
    }
}

impl Handler<Happened> for Frontier {
    type Result = ();

    fn handle(&mut self, Happened(inputs): Happened, ctx: &mut Self::Context) {
        self.step(inputs, ctx);
    }
}

impl Handler<GetStanding> for Frontier {
    type Result = Standing;

    fn handle(&mut self, _: GetStanding, _ctx: &mut Self::Context) -> Standing {
        self.lifeline.handles();
        let admitting = self.admitting + usize::from(!self.ready);
        let now = self.parts.clock.now();
        Standing {
            core: self.core.standing(),
            admitting,
            spent: self.core.is_spent(),
            stranded: self.core.is_stranded(),
            now: now.mono,
            troubles: self.core.troubles(now, TROUBLES_SHOWN),
        }
    }
}

impl Handler<Halt> for Frontier {
    type Result = ();

    fn handle(&mut self, _: Halt, _ctx: &mut Self::Context) {
        self.lifeline.handles();
        self.core.close();
    }
}

impl Handler<Retune> for Frontier {
    type Result = ();

    fn handle(&mut self, _: Retune, ctx: &mut Self::Context) {
        self.lifeline.handles();
        self.core.tune(self.parts.tuning.now());
        self.step([Input::Tick], ctx);
    }
}

impl Handler<Restart> for Frontier {
    type Result = ();

    fn handle(&mut self, _: Restart, ctx: &mut Self::Context) {
        self.lifeline.handles();
        ctx.stop();
    }
}

can_end!(Frontier);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_pages_fly_as_the_byte_limit_comes_near() {
        let within = |bytes, pages| flights_within(1_000_000, bytes, pages, 128);
        assert_eq!(within(0, 0), 7, "nothing is known of the pages");
        assert_eq!(within(100_000, 1_000), 128, "small pages");
        assert_eq!(within(900_000, 100), 9, "ten more of nine kilobytes");
        assert_eq!((within(999_999, 100), within(1_000_000, 100), within(u64::MAX / 2, 1)), (1, 0, 0));
    }
}
