//! Sources of URIs in a cluster: jobs, their generators, tasks and logs.
//!
//! **Where things are.** Jobs with their generators are definitions, on every node. Tasks, entries of the cron and logs are records in queues of the cluster's own
//! (`proto/src/clients`): they are kept on W of R disks, move with their slot, and are handed out by nobody but the holder of the slot's lease. All queues of a job have
//! the job's id for a key, so they lie in one slot, and one node runs what falls due.
//!
//! **How a task travels.** It is put into the job's queue ([`tasks`]), where a URI that is known is told apart; the holder of the queue takes it out under a lease and hands it to
//! the crawl ([`hand_over`]); only when the crawl has it on enough disks is it put back as handed over. Whoever is killed in between leaves a lease behind that lapses,
//! and the crawl does not take a URL twice. How far it is, its record in the crawl says.
//!
//! **How a generator runs.** What is due, who runs it and what follows is decided in `proto/src/source/schedule.rs`; [`cron`] does what it says, [`runs`] executes scripts and
//! takes in what they print. A holder that runs no scripts has another node execute them ([`lend`]).

mod cron;
mod hand_over;
mod jobs;
mod lend;
mod logs;
mod runs;
mod tab;
mod tasks;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use proto::clients::ask::{Ask, Item, Look, Said, Taken, Told};
use proto::cluster::mutant::Planted;
use proto::cluster::registry::{Definition, DefinitionKey, DefinitionKind, NotDefined, Version};
use proto::control::Answer;
use proto::control::source::{ITEMS_MAX, SourceRequest};
use proto::crawl::frontier::Now;
use proto::id::Slot;
use proto::source::entry;
use proto::source::hand_over::HandOver;
use proto::source::job::{Job, Target};
use proto::source::lanes::Placed;
use proto::source::schedule::{self, NotRun, Schedule};
use proto::source::task::headers;
use serde_json::Value as Json;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, Instant};

use super::Shared;
use super::crawl::TRIES;
use crate::config::sources::SourcesConfig;
use crate::doors::frontier::desk::Desk;
use crate::edges::clock::{mono, unix_ms};
use crate::edges::script::Scripts;
use crate::edges::swarm::Swarm;
use crate::edges::swarm::control::Caller;
use crate::edges::swarm::identity::node_of;
use crate::edges::swarm::roster::Role;
use crate::edges::web::PendingHeaders;
use crate::messages::Define;
use crate::node::Node;

use entry::{CRON, KNOWN, LOG, NEVER_S, OUTPUT, RUNS, TASKS, words};

/// How often it is looked for what is due, at least.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon a change that somebody else's came before is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// What a node knows of sources.
pub(super) struct Sources {
    jobs: Mutex<BTreeMap<String, (Arc<Job>, Version)>>,
    schedule: Mutex<Schedule>,
    /// What it wants done since the last tick.
    effects: Mutex<Vec<schedule::Effect>>,
    /// The tenures of the last tick.
    tenures: Mutex<BTreeMap<Slot, (u64, Instant)>>,
    /// Taken by whoever tells which slots are busy: what was looked up first must be told first.
    telling: tokio::sync::Mutex<()>,
    hand_over: Mutex<HandOver>,
    /// People who wait for a run to be dispatched.
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<Result<Placed, NotRun>>>>,
    /// Until when scripts may be executed, by their jobs.
    ends: Mutex<BTreeMap<String, Arc<Mutex<Instant>>>>,
    scripts: Arc<Scripts>,
    /// Something changed that cron or tasks may wait for.
    changed: Notify,
    fresh: Notify,
    hostname: String,
    made: AtomicU64,
    ticks: AtomicU64,
    /// What is executed here for others, and how much may be at all.
    guests: lend::Guests,
    /// None runs here: others execute what is due.
    lends: bool,
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sources {
    /// Nothing is known yet.
    pub(super) fn new(config: &SourcesConfig, node: &str, hidden: Vec<PathBuf>) -> Sources {
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let lends = config.scripts_max == 0;
        let workers = if lends { lend::LENT_AT_ONCE } else { config.scripts_max };
        let life = format!("{node} {} {:?}", std::process::id(), std::time::SystemTime::now());
        Sources {
            jobs: Mutex::default(),
            schedule: Mutex::new(Schedule::new(workers, Planted::default())),
            effects: Mutex::default(),
            tenures: Mutex::default(),
            telling: tokio::sync::Mutex::default(),
            hand_over: Mutex::default(),
            waiting: Mutex::default(),
            ends: Mutex::default(),
            scripts: Arc::new(Scripts::new(node, config.limits(), hidden)),
            changed: Notify::new(),
            fresh: Notify::new(),
            hostname: hostname.trim().to_owned(),
            made: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            guests: lend::Guests::new(config.scripts_max, xxhash_rust::xxh3::xxh3_64(life.as_bytes())),
            lends,
        }
    }

    /// Takes definitions in.
    pub(super) fn heed(&self, definitions: &[Definition]) {
        for definition in definitions.iter().filter(|definition| definition.key.kind == DefinitionKind::Job) {
            let id = definition.key.name.clone();
            let job = definition.body.as_ref().and_then(|body| Job::decode(body)).map(Arc::new);
            match &job {
                Some(job) => drop(held(&self.jobs).insert(id.clone(), (Arc::clone(job), definition.version))),
                None => drop(held(&self.jobs).remove(&id)),
            }
            self.decide(schedule::Input::Job { id, job });
        }
        self.changed.notify_one();
    }

    /// Tells the schedule what happened; what follows is done at the next tick, or by [`Shared::feed`].
    fn decide(&self, input: schedule::Input) {
        let mut effects = held(&self.effects);
        held(&self.schedule).step(now(), input, &mut effects);
    }

    /// All jobs.
    fn jobs(&self) -> Vec<Arc<Job>> {
        held(&self.jobs).values().map(|(job, _)| Arc::clone(job)).collect()
    }

    /// The job of an id.
    fn job(&self, id: &str) -> Option<Arc<Job>> {
        held(&self.jobs).get(id).map(|(job, _)| Arc::clone(job))
    }

    /// The job that somebody means, by its id or its name.
    fn named(&self, name: &str) -> Result<(Arc<Job>, Version), String> {
        let jobs = held(&self.jobs);
        if let Some((job, version)) = jobs.get(name) {
            return Ok((Arc::clone(job), *version));
        }
        let mut found = jobs.values().filter(|(job, _)| job.name == name);
        match (found.next(), found.next()) {
            (Some((job, version)), None) => Ok((Arc::clone(job), *version)),
            (Some(_), Some(_)) => Err(format!("several jobs are called {name:?}; give the id of one: ctl job list")),
            (None, _) => {
                Err(format!("there is no job {name:?}: _id not found, enter it again; `ctl job list` shows them"))
            }
        }
    }

    /// A number that no other node and no other call has.
    fn unique(&self, me: &libp2p::PeerId, unix_ms: u64) -> u64 {
        let text = format!("{me} {unix_ms} {} {}", std::process::id(), self.made.fetch_add(1, Relaxed));
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    }
}

impl Shared {
    /// Answers what people ask.
    pub(super) async fn source(
        self: &Arc<Self>,
        caller: Caller,
        node: &Node,
        swarm: &Arc<Swarm>,
        request: SourceRequest,
    ) -> Answer {
        let Some(desk) = self.desk.get() else { return Answer::Refused("the node is starting; ask again".to_owned()) };
        let answered = match request {
            SourceRequest::JobNew(new) => self.job_new(node, new, &caller.peer.to_string()).await,
            SourceRequest::JobList(name) => self.job_list(desk, name).await,
            SourceRequest::JobSet(name, change) => self.job_set(node, &name, &change).await,
            SourceRequest::JobDelete(name) => self.job_delete(node, swarm, desk, &name).await,
            SourceRequest::GeneratorNew { job, file, code, cron } => {
                self.generator_new(node, desk, &job, &file, &code, cron.as_deref()).await
            }
            SourceRequest::GeneratorList(job) => self.generator_list(&job),
            SourceRequest::GeneratorSet { job, generator, status } => {
                self.generator_set(node, &job, generator.as_deref(), status).await
            }
            SourceRequest::GeneratorRun(job) => self.generator_run(swarm, desk, &job).await,
            SourceRequest::TaskAdd { tasks, refused, .. } if tasks.len().max(refused.len()) > ITEMS_MAX => {
                Err(format!("{} tasks at once, more than {ITEMS_MAX}", tasks.len().max(refused.len())))
            }
            SourceRequest::TaskAdd { job, tasks, refused } => self.task_add(node, desk, &job, tasks, refused).await,
            SourceRequest::TaskList { job, after, limit } => {
                self.task_list(node, swarm, desk, &job, after, limit).await
            }
            SourceRequest::LogList { job, kind, limit } => {
                self.log_list(desk, job.as_deref(), kind.as_deref(), limit).await
            }
            SourceRequest::LogPage { job, after } => self.log_page(desk, job.as_deref(), after).await,
            SourceRequest::TabWrite { at } => self.tab_write(desk, at).await,
            SourceRequest::TabRead(text) => self.tab_read(node, desk, &text, &caller.peer.to_string()).await,
            SourceRequest::RunHere(job) if caller.role == Role::Node => self.run_here(&job).await,
            SourceRequest::Lend { word, from } if caller.role == Role::Node => self.lent_here(&word, from),
            SourceRequest::RunHere(_) | SourceRequest::Lend { .. } => {
                Err("only nodes ask this; use GeneratorRun".to_owned())
            }
        };
        answered.map_or_else(Answer::Refused, |json: Json| Answer::Operation(json.to_string()))
    }

    /// Changes a job, and has the change kept; decides anew if somebody else's came between.
    async fn change_job(
        &self,
        node: &Node,
        name: &str,
        change: impl Fn(&mut Job) -> Result<(), String>,
    ) -> Result<Job, String> {
        for _ in 0..TRIES {
            let (job, version) = self.sources.named(name)?;
            let mut changed = Job::clone(&job);
            change(&mut changed)?;
            let changed = changed.checked().map_err(|error| error.to_string())?;
            if changed == *job || self.keep_job(node, &changed, Some(version)).await? {
                return Ok(changed);
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        Err(NotDefined::Changed.to_string())
    }

    /// Has a job kept; `false` if somebody else changed it meanwhile.
    async fn keep_job(&self, node: &Node, job: &Job, expects: Option<Version>) -> Result<bool, String> {
        let body = job.encode().map_err(|error| error.to_string())?;
        self.define_job(node, &job.id, expects, Some(body)).await
    }

    async fn define_job(
        &self,
        node: &Node,
        id: &str,
        expects: Option<Version>,
        body: Option<Vec<u8>>,
    ) -> Result<bool, String> {
        let key = DefinitionKey { kind: DefinitionKind::Job, name: id.to_owned() };
        match node.define(Define { key, expects, body }).await {
            Ok(_) => Ok(true),
            Err(NotDefined::Changed | NotDefined::StartedAnew) => Ok(false),
            Err(other) => Err(other.to_string()),
        }
    }

    /// The crawl that the URIs of a job go into now.
    fn crawl_of_job(&self, node: &Node, job: &Job) -> Result<String, String> {
        let crawls = node.crawls();
        let site = |id: &str| {
            let site = crawls.site(id).filter(|(site, _)| !site.deleted).map(|(site, _)| site.crawl_name());
            site.ok_or_else(|| format!("there is no site {id:?} any more, into which the job's URIs go"))
        };
        match &job.target {
            Target::Own => site(&job.id),
            Target::Site(id) => site(id),
            Target::Crawl(name) if crawls.filter(name).is_some() => Ok(name.clone()),
            Target::Crawl(name) => Err(format!("there is no crawl {name:?}, into which the job's URIs go")),
        }
    }
}

/// What is kept of one thing under a name.
fn word(told: &Told, name: &str) -> Option<String> {
    entry::word(&told.metadata, name)
}

fn number(told: &Told, name: &str) -> u64 {
    entry::number(&told.metadata, name)
}

/// The time by both clocks.
fn now() -> Now {
    Now { mono: mono(), unix_ms: unix_ms() }
}

/// Bytes as digits.
fn hex(bytes: Vec<u8>) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One record.
async fn look(desk: &Desk, crawl: &str, key: &str, url: &str) -> Result<Option<Told>, String> {
    seen(desk.ask_owner(crawl, key, Ask::Look(at(crawl, key, url))).await.map_err(|error| error.to_string())?)
}

fn at(crawl: &str, key: &str, url: &str) -> Look {
    Look::Url { crawl: crawl.to_owned(), key: key.to_owned(), url: url.to_owned() }
}

fn seen(said: Said) -> Result<Option<Told>, String> {
    match said {
        Said::Url(found) => Ok(found),
        Said::Refused(reason) => Err(reason),
        other => Err(format!("the node answered {other:?}")),
    }
}

/// Some records of a queue, and where to go on.
async fn page(
    desk: &Desk,
    crawl: &str,
    key: &str,
    after: Option<Vec<u8>>,
    take: u64,
) -> Result<(Vec<Told>, Option<Vec<u8>>), String> {
    let slots = (0..proto::id::SLOTS).map(proto::id::Slot).collect();
    let look =
        Look::Urls { slots, crawl: crawl.to_owned(), key: Some(key.to_owned()), filter: None, skip: 0, take, after };
    match desk.ask_owner(crawl, key, Ask::Look(look)).await {
        Ok(Said::Urls { urls, next, .. }) => Ok((urls, next)),
        Ok(other) => Err(format!("the node answered {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Has a record kept.
async fn keep(desk: &Desk, item: Item) -> bool {
    desk.put(vec![item]).await.first() == Some(&Taken::Kept)
}

/// The headers that a task has sent along with its URL, of whichever job it is.
pub(super) fn headers_of(shared: &Arc<Shared>, crawl: &str, url: &str) -> Option<PendingHeaders> {
    let node = shared.node.get()?;
    let mut jobs = shared.sources.jobs();
    jobs.retain(|job| job.has_args && shared.crawl_of_job(node, job).is_ok_and(|into| into == crawl));
    if jobs.is_empty() {
        return None;
    }
    let (shared, url) = (Arc::clone(shared), url.to_owned());
    Some(Box::pin(async move {
        let desk = shared.desk.get().ok_or("the node is starting")?;
        for job in jobs {
            let task = look(desk, TASKS, &job.id, &url).await?;
            if let Some(args) = task.and_then(|task| word(&task, "args")) {
                let args: Json = serde_json::from_str(&args).map_err(|error| error.to_string())?;
                return headers(&args);
            }
        }
        Ok(Vec::new())
    }))
}

/// Does what falls due, as long as the node lives.
pub(super) fn start(shared: &Arc<Shared>) {
    shared.sources.scripts.clean();
    tokio::spawn(repeat(Arc::downgrade(shared), |shared| &shared.sources.changed, cron::tick));
    tokio::spawn(repeat(Arc::downgrade(shared), |shared| &shared.sources.fresh, hand_over::tick));
}

async fn repeat<F: Future<Output = ()>>(
    shared: Weak<Shared>,
    wake: impl Fn(&Shared) -> &Notify,
    tick: impl Fn(Arc<Shared>) -> F,
) {
    loop {
        let Some(alive) = shared.upgrade() else { return };
        if *alive.stopping.borrow() || alive.node.get().is_some_and(|node| node.doomed().is_some()) {
            return;
        }
        tick(Arc::clone(&alive)).await;
        let _ = tokio::time::timeout(LOOK_EVERY, wake(&alive).notified()).await;
    }
}

impl Shared {
    /// What a tick needs; nothing while the node starts.
    pub(super) fn at_hand(&self) -> Option<(&Arc<Node>, &Arc<Swarm>, &Desk)> {
        Some((self.node.get()?, self.swarm.get()?, self.desk.get()?))
    }

    fn me_name(&self) -> String {
        proto::control::node_name(node_of(&self.me))
    }
}
