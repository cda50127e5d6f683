//! Builds and connects every actor, sink first: the topology of a node is read here and only here.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use actix::{Actor, Arbiter, ArbiterHandle, Context, Handler};
use proto::clients::settings::ClientSettings;
use proto::cluster::copy::RecordCopy;
use proto::cluster::message::Letter;
use proto::cluster::registry::{NotDefined, Version};
use proto::crawl::crawls::Crawls;
use proto::crawl::filter::Filter;
use proto::crawl::frontier::FrontierRules;
use proto::id::{NodeId, Slot};
use proto::site::FetchLock;
use tokio::sync::watch;
use tokio::time::Duration;
use tracing::{debug, error, info};

use crate::actors::coordinator::{Cluster, Coordinator, CoordinatorParts};
use crate::actors::copier::{Copier, CopierParts};
use crate::actors::fetcher::proxies::ProxyFaults;
use crate::actors::fetcher::{Fetcher, FetcherParts};
use crate::actors::frontier::{Frontier, FrontierParts, Way};
use crate::actors::parser::Parser;
use crate::actors::router::Router;
use crate::actors::scorer::{FollowRules, Scorer};
use crate::actors::storage::{Landed, Storage};
use crate::config::Config;
use crate::config::score::ScoreBy;
use crate::crawls::CrawlBook;
use crate::edges::clock::Clock;
use crate::edges::disk::{Disk, DiskError, DiskOptions, Job, Reply, Rules};
use crate::edges::http::{ClientError, FetchOptions, HttpClient};
use crate::edges::store::{PageGraph, State, Store, StoreError, StoreOptions};
use crate::edges::warc::{Packer, WarcOptions};
use crate::edges::web::Web;
use crate::extract::ExtractRules;
use crate::messages::{
    AmendRecords, ClientPlaces, ClusterView, CompareNow, Crash, Define, Defined, DiscoveredUrls, End, FetchedPage,
    ForgetNode, GetClientPlaces, GetClusterView, GetDigests, GetStanding, Halt, Hold, HoldJobs, IsDispensable,
    KeepClients, Leave, NotSubmitted, Received, Rescored, Restart, Retune, SlotDigests, Standing, SubmitUrls,
};
use crate::metrics::Metrics;
use crate::scoring::Scoring;
use crate::supervisor::{Desk, Link, NotTaken, Seat, Supervisor, recipient, uncounted};
use crate::tuning::Tuning;

/// How long addresses are believed: the resolver keeps each as long as its record says, this only bounds the frontier's copy.
const ADDRESS_TTL_US: u64 = 300_000_000;
/// Letters that wait for the coordinator; more are lost, and said again by who needs an answer.
const LETTERS_WAITING_MAX: usize = 4_096;
/// Mailboxes have room for every flight and for questions beside them.
const MAILBOX_SPARE: usize = 64;
/// The parsers' names, for the supervisor; a node has at most this many.
const PARSER_NAMES: [&str; 16] = [
    "parser",
    "parser-1",
    "parser-2",
    "parser-3",
    "parser-4",
    "parser-5",
    "parser-6",
    "parser-7",
    "parser-8",
    "parser-9",
    "parser-10",
    "parser-11",
    "parser-12",
    "parser-13",
    "parser-14",
    "parser-15",
];

/// Why a node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The HTTP client.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Where a node learns that it cannot go on.
#[derive(Clone)]
pub struct Fate {
    end: Arc<watch::Sender<Option<String>>>,
    /// The node ends by itself: what fails from now on fails because of that.
    closing: Arc<AtomicBool>,
    anew: Link<Restart>,
}

impl Fate {
    fn new(anew: Link<Restart>) -> Fate {
        Fate { end: Arc::new(watch::Sender::new(None)), closing: Arc::default(), anew }
    }

    /// The node must stop, because of this. The first reason counts.
    pub fn seal(&self, error: &impl Display) {
        if self.closing.load(Ordering::Relaxed) {
            return;
        }
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            if first {
                error!(%error, "the node must stop");
                *end = Some(error.to_string());
            }
            first
        });
    }

    /// An answer that somebody waits for is lost: a new frontier, or in a cluster a new life, asks for everything anew.
    pub fn restart(&self) {
        if !self.closing.load(Ordering::Relaxed) {
            self.anew.answer(Restart);
        }
    }
}

/// What a node touches of the outside. The product's are real; the simulator's are not, and its actors all share one thread.
pub struct Edges {
    /// The clocks.
    pub clock: Clock,
    /// Where pages come from.
    pub web: Arc<dyn Web>,
    /// Where everything is kept.
    pub disk: Disk,
    /// Where parsers run, one on each.
    pub parsers: Vec<ArbiterHandle>,
    /// What ids of records are made of; none where there is no archive.
    pub warc_seed: Option<[u8; 16]>,
    /// Which start of the node this is.
    pub boot: u32,
    /// Whether there was one before.
    pub resumed: bool,
    /// The cluster it belongs to, if it is not alone.
    pub cluster: Option<Cluster>,
    /// Where it counts.
    pub metrics: Metrics,
}

/// The ways to make an actor end.
#[derive(Clone)]
struct Ends {
    name: &'static str,
    end: Link<End>,
    crash: Link<Crash>,
    hold: Link<Hold>,
}

impl Ends {
    fn of(name: &'static str) -> Ends {
        Ends { name, end: Link::open(), crash: Link::open(), hold: Link::open() }
    }

    fn bind<A>(&self, address: &Seat<A>)
    where
        A: Actor<Context = Context<A>> + Handler<End> + Handler<Crash> + Handler<Hold>,
    {
        self.end.bind(recipient(address));
        self.crash.bind(recipient(address));
        self.hold.bind(uncounted(address));
    }
}

/// A running node.
pub struct Node {
    disk: Disk,
    /// Ends when everything is written; none where the disk is simulated.
    disk_thread: Mutex<Option<std::thread::JoinHandle<()>>>,
    arbiters: Vec<Arbiter>,
    fate: Fate,
    discovered: Link<DiscoveredUrls>,
    received: Link<Received>,
    submitted: Link<SubmitUrls>,
    view: Link<GetClusterView>,
    leave: Link<Leave>,
    /// Bound only if pages are kept on two nodes.
    dispensable: Option<Link<IsDispensable>>,
    forget: Link<ForgetNode>,
    compare: Link<CompareNow>,
    digests: Link<GetDigests>,
    retune: Link<Retune>,
    tuning: Arc<Tuning>,
    desks: Vec<(&'static str, Arc<Desk>)>,
    define: Link<Define>,
    keep_clients: Link<KeepClients>,
    client_places: Link<GetClientPlaces>,
    hold_jobs: Link<HoldJobs>,
    amend: Link<AmendRecords>,
    book: CrawlBook,
    proxies: ProxyFaults,
    standing: Link<GetStanding>,
    halt: Link<Halt>,
    rescored: Link<Rescored>,
    /// The page graph of a cluster's node, until somebody keeps it.
    graph: Mutex<Option<PageGraph>>,
    /// Keeps the page graph; none where queues do not go by scores.
    scoring: Mutex<Option<Scoring>>,
    ends: Vec<Ends>,
    metrics: Metrics,
    resumed: bool,
}

impl Node {
    /// Opens the data folder and starts all actors of a node alone. Call it inside an actix system.
    pub fn start(config: &Config, filter: Arc<Filter>) -> Result<Node, StartError> {
        Node::open(config, filter, None, Metrics::new())
    }

    /// Opens the data folder and starts all actors of a node of a cluster. Call it inside an actix system.
    pub fn start_clustered(
        config: &Config,
        filter: Arc<Filter>,
        cluster: Cluster,
        metrics: Metrics,
    ) -> Result<Node, StartError> {
        Node::open(config, filter, Some(cluster), metrics)
    }

    fn open(
        config: &Config,
        filter: Arc<Filter>,
        cluster: Option<Cluster>,
        metrics: Metrics,
    ) -> Result<Node, StartError> {
        let web = Arc::new(HttpClient::new(&fetch_options(config))?);
        let mut options = store_options(config);
        if let Some(cluster) = &cluster {
            (options.node, options.replica) = (cluster.rules.me, true);
            options.content_copies = if cluster.contents.is_some() { 2 } else { 1 };
        }
        options.graph = config.score.by != ScoreBy::None;
        let store = Store::open(&config.storage.data, options)?;
        let graph = (config.score.by != ScoreBy::None).then(|| store.graph());
        let clustered = cluster.is_some();
        let (boot, resumed, seed) = (store.boot(), store.state().sequence > 0, warc_seed(&store));
        let commit_pause = Duration::from_millis(config.storage.commit_pause_ms);
        let (disk, disk_thread) = Disk::start(store, DiskOptions { warc: warc_options(config, seed), commit_pause })?;

        let parsers = config.parsers().clamp(1, PARSER_NAMES.len());
        let arbiters: Vec<Arbiter> = (0..parsers).map(|_| Arbiter::new()).collect();
        let handles = arbiters.iter().map(Arbiter::handle).collect();
        let clock = Clock::start();
        let warc_seed = Some(seed);
        let edges = Edges { clock, web, disk, parsers: handles, warc_seed, boot, resumed, cluster, metrics };
        let mut node = Node::assemble(config, filter, edges);
        node.disk_thread = Mutex::new(Some(disk_thread));
        node.arbiters = arbiters;
        if clustered {
            node.graph = Mutex::new(graph);
        } else if let Some(graph) = graph {
            let scoring = Scoring::start(graph, &config.score, node.rescored.clone(), node.metrics.score.clone())?;
            node.scoring = Mutex::new(scoring);
        }
        info!(data = %config.storage.data.display(), boot, resumed, parsers, "node started");
        Ok(node)
    }

    /// Starts all actors over these edges. Call it inside an actix system.
    pub fn assemble(config: &Config, filter: Arc<Filter>, edges: Edges) -> Node {
        let Edges { clock, web, disk, parsers: arbiters, warc_seed, boot, resumed, cluster, metrics } = edges;
        let mailbox_max = config.fetch.concurrency + MAILBOX_SPARE;
        let main = Arbiter::current();
        let mut supervisor = Supervisor::new();
        let mut ends = Vec::new();

        // Links first: what flows back to the frontier is bound last.
        let (landed, ended, robots_fetched) = (Link::open(), Link::open(), Link::open());
        let (discovered, standing, halt) = (Link::open(), Link::open(), Link::open());
        let (restart, rescored) = (Link::open(), Link::open());
        let fate = Fate::new(restart.clone());
        let (heard, named, frontier_up, kept) = (Link::open(), Link::open(), Link::open(), Link::open());
        let (received, submitted, view, leave) = (Link::open(), Link::open(), Link::open(), Link::open());
        let (forget, compare, digests, retune) = (Link::open(), Link::open(), Link::open(), Link::open());
        let tuning = Arc::new(Tuning::of(config));
        let (told, new_life, define, amend) = (Link::open(), Link::open(), Link::open(), Link::open());
        let (keep_clients, client_places, hold_jobs) = (Link::open(), Link::open(), Link::open());
        let book = CrawlBook::new(match &cluster {
            None => Crawls::alone(Arc::clone(&filter)),
            Some(_) => Crawls::of_cluster(Arc::clone(&filter), &config.crawl.name, config.url.clone()),
        });

        let (to_copier, dispensable) = (Link::open(), Link::open());
        if let Some(cluster) = &cluster
            && let Some((line, rules)) = &cluster.contents
        {
            let parts = CopierParts {
                me: cluster.rules.me,
                rings: cluster.rings.clone(),
                view: view.clone(),
                coordinator: kept.clone(),
                line: Arc::clone(line),
                disk: disk.clone(),
                clock: clock.clone(),
                metrics: metrics.clone(),
                fate: fate.clone(),
                rules: *rules,
                watch: Arc::clone(&cluster.watch),
                mailbox_max,
            };
            let to_end = Ends::of("copier");
            ends.push(to_end.clone());
            let (to_copier, dispensable) = (to_copier.clone(), dispensable.clone());
            let make = move |lifeline| Copier::new(parts.clone(), lifeline);
            supervisor.keep("copier", &main, make, move |address| {
                to_copier.bind(recipient(address));
                dispensable.bind(recipient(address));
                to_end.bind(address);
            });
        }

        let (store_page, disk_request) = (Link::open(), Link::open());
        {
            let landed = match &cluster {
                None => Landed::Frontier(landed.clone()),
                Some(Cluster { contents: Some(_), .. }) => Landed::Coordinator(to_copier),
                Some(_) => Landed::Coordinator(kept.clone()),
            };
            let (disk, fate) = (disk.clone(), fate.clone());
            let (to_page, to_request) = (store_page.clone(), disk_request.clone());
            let to_end = Ends::of("storage");
            ends.push(to_end.clone());
            let make = move |lifeline| Storage::new(landed.clone(), disk.clone(), fate.clone(), mailbox_max, lifeline);
            supervisor.keep("storage", &main, make, move |address| {
                to_page.bind(recipient(address));
                to_request.bind(recipient(address));
                to_end.bind(address);
            });
        }

        let parsed = Link::open();
        {
            let rules = Arc::new(follow_rules(config, &book));
            let (storage, metrics) = (store_page.clone(), metrics.clone());
            let to_parsed = parsed.clone();
            let to_end = Ends::of("scorer");
            ends.push(to_end.clone());
            let entries = cluster.as_ref().map(|cluster| Arc::clone(&cluster.entries));
            let make = move |lifeline| {
                let (storage, rules, entries) = (storage.clone(), rules.clone(), entries.clone());
                Scorer::new(storage, rules, entries, metrics.clone(), mailbox_max, lifeline)
            };
            // Beside a parser: pages that were parsed one after the other go on to the disk together, as one group with one
            // fsync, and the main thread is woken once for all of them.
            supervisor.keep("scorer", arbiters.first().unwrap_or(&main), make, move |address| {
                to_parsed.bind(recipient(address));
                to_end.bind(address);
            });
        }

        let rules = Arc::new(extract_rules(config));
        let token: Arc<str> = config.product_token().into();
        let mut parsers: Vec<Link<FetchedPage>> = Vec::new();
        for (name, arbiter) in PARSER_NAMES.into_iter().zip(&arbiters) {
            let (scorer, rules, token, metrics) = (parsed.clone(), rules.clone(), token.clone(), metrics.clone());
            let book = book.clone();
            let to_fetched = Link::open();
            let to_end = Ends::of(name);
            ends.push(to_end.clone());
            parsers.push(to_fetched.clone());
            let make = move |lifeline| {
                Parser::new(
                    scorer.clone(),
                    rules.clone(),
                    token.clone(),
                    book.clone(),
                    warc_seed.map(Packer::new),
                    metrics.clone(),
                    mailbox_max,
                    lifeline,
                )
            };
            supervisor.keep(name, arbiter, make, move |address| {
                to_fetched.bind(recipient(address));
                to_end.bind(address);
            });
        }

        let (run_local, run_robots) = (Link::open(), Link::open());
        let proxies = ProxyFaults::default();
        {
            let parts = Arc::new(FetcherParts {
                parsers,
                storage: store_page.clone(),
                ended: ended.clone(),
                robots: robots_fetched.clone(),
                web: Arc::clone(&web),
                clock: clock.clone(),
                retry: config.retry,
                book: book.clone(),
                proxies: proxies.clone(),
                metrics: metrics.clone(),
                headers: cluster.as_ref().map(|cluster| Arc::clone(&cluster.headers)),
            });
            let (to_run, to_robots) = (run_local.clone(), run_robots.clone());
            let to_end = Ends::of("fetcher");
            ends.push(to_end.clone());
            let make = move |lifeline| Fetcher::new(parts.clone(), mailbox_max, lifeline);
            supervisor.keep("fetcher", &main, make, move |address| {
                to_run.bind(recipient(address));
                to_robots.bind(recipient(address));
                to_end.bind(address);
            });
        }

        let run_batch = Link::open();
        {
            let (fetcher, metrics) = (run_local, metrics.clone());
            let to_run = run_batch.clone();
            let to_end = Ends::of("router");
            ends.push(to_end.clone());
            let make = move |lifeline| Router::new(fetcher.clone(), metrics.clone(), mailbox_max, lifeline);
            supervisor.keep("router", &main, make, move |address| {
                to_run.bind(recipient(address));
                to_end.bind(address);
            });
        }

        let way = match &cluster {
            None => Way::Alone { settle: store_page, router: run_batch.clone(), boot, resumed },
            Some(cluster) => Way::Clustered {
                coordinator: heard.clone(),
                named: named.clone(),
                up: frontier_up.clone(),
                planted: cluster.rules.planted,
            },
        };
        let alone = cluster.is_none();
        let dispensable = cluster.as_ref().and_then(|cluster| cluster.contents.as_ref()).map(|_| dispensable);
        let mut rules = frontier_rules(config);
        if let Some(cluster) = &cluster {
            // A fetch must end inside the lease by the clock of whoever fetches.
            let settle_timeout = rules.flight_timeout - rules.fetch_timeout;
            rules.fetch_timeout = cluster.rules.lease.at_least(rules.fetch_timeout);
            rules.flight_timeout = rules.fetch_timeout + settle_timeout;
        }
        if let Some(cluster) = cluster {
            let parts = CoordinatorParts {
                cluster,
                book: book.clone(),
                storage: disk_request.clone(),
                router: run_batch,
                frontier: told.clone(),
                new_life: new_life.clone(),
                clock: clock.clone(),
                metrics: metrics.clone(),
                fate: fate.clone(),
                mailbox_max: LETTERS_WAITING_MAX,
            };
            let to_end = Ends::of("coordinator");
            ends.push(to_end.clone());
            let (received, submitted, view, leave) = (received.clone(), submitted.clone(), view.clone(), leave.clone());
            let (forget, compare, digests) = (forget.clone(), compare.clone(), digests.clone());
            let (restart, define, amend) = (restart.clone(), define.clone(), amend.clone());
            let (keep_clients, client_places) = (keep_clients.clone(), client_places.clone());
            let (hold_jobs, ended) = (hold_jobs.clone(), ended.clone());
            let make = move |lifeline| Coordinator::new(parts.clone(), lifeline);
            supervisor.keep("coordinator", &main, make, move |address| {
                heard.bind(recipient(address));
                named.bind(recipient(address));
                frontier_up.bind(recipient(address));
                kept.bind(recipient(address));
                ended.bind(recipient(address));
                received.bind(recipient(address));
                submitted.bind(recipient(address));
                view.bind(recipient(address));
                leave.bind(recipient(address));
                forget.bind(recipient(address));
                compare.bind(recipient(address));
                digests.bind(recipient(address));
                define.bind(recipient(address));
                keep_clients.bind(recipient(address));
                client_places.bind(recipient(address));
                hold_jobs.bind(recipient(address));
                amend.bind(recipient(address));
                restart.bind(recipient(address));
                to_end.bind(address);
            });
        }

        {
            let parts = FrontierParts {
                storage: disk_request,
                way,
                fetcher: run_robots,
                web,
                rules,
                tuning: Arc::clone(&tuning),
                run: run_rules(config, &filter),
                bytes_max: config.crawl.bytes_max,
                filter,
                book: book.clone(),
                clock,
                metrics: metrics.clone(),
                fate: fate.clone(),
            };
            let (discovered, standing, halt) = (discovered.clone(), standing.clone(), halt.clone());
            let (retune, rescored) = (retune.clone(), rescored.clone());
            let to_end = Ends::of("frontier");
            ends.push(to_end.clone());
            let make = move |lifeline| Frontier::new(parts.clone(), lifeline);
            supervisor.keep("frontier", &main, make, move |address| {
                landed.bind(recipient(address));
                robots_fetched.bind(recipient(address));
                discovered.bind(recipient(address));
                standing.bind(recipient(address));
                halt.bind(recipient(address));
                retune.bind(recipient(address));
                rescored.bind(recipient(address));
                told.bind(recipient(address));
                new_life.bind(recipient(address));
                if alone {
                    // In a cluster fetches are numbered by who executes them, and their owner hears of them through the coordinators.
                    ended.bind(recipient(address));
                    restart.bind(recipient(address));
                }
                to_end.bind(address);
            });
        }

        let desks = supervisor.desks();
        watch_over(supervisor, &main, metrics.clone(), fate.clone());
        let (disk_thread, arbiters) = (Mutex::new(None), Vec::new());
        Node {
            disk,
            disk_thread,
            arbiters,
            fate,
            discovered,
            received,
            submitted,
            view,
            leave,
            dispensable,
            forget,
            compare,
            digests,
            retune,
            tuning,
            desks,
            define,
            keep_clients,
            client_places,
            hold_jobs,
            amend,
            book,
            proxies,
            standing,
            halt,
            rescored,
            scoring: Mutex::new(None),
            graph: Mutex::new(None),
            ends,
            metrics,
            resumed,
        }
    }

    /// Takes in a letter of a peer; says whether there was room for it.
    pub fn receive(&self, letter: Letter) -> bool {
        self.received.pass(Received(letter)).is_ok()
    }

    /// Hands URLs to the cluster; returns when they are on enough disks.
    pub async fn submit(&self, urls: SubmitUrls) -> Result<(), NotSubmitted> {
        self.submitted.send(urls).await.unwrap_or(Err(NotSubmitted::StartedAnew))
    }

    /// Has records changed; returns when they are on enough disks.
    pub async fn amend(&self, copies: Vec<RecordCopy>) -> Result<(), NotSubmitted> {
        self.amend.send(AmendRecords(copies)).await.unwrap_or(Err(NotSubmitted::StartedAnew))
    }

    /// Has something defined; returns when enough nodes have it.
    pub async fn define(&self, define: Define) -> Result<Defined, NotDefined> {
        self.define.send(define).await.unwrap_or(Err(NotDefined::StartedAnew))
    }

    /// The page graph of a cluster's node, for who keeps it: once, and only if scores are computed at all.
    pub fn take_graph(&self) -> Option<PageGraph> {
        self.graph.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    /// Where to say that entries belong elsewhere in their queues.
    pub fn rescored(&self) -> Link<Rescored> {
        self.rescored.clone()
    }

    /// Has records of clients kept on enough disks; says whether this node still holds the slots they are of.
    pub async fn keep_clients(&self, keep: KeepClients) -> Result<bool, NotSubmitted> {
        self.keep_clients.send(keep).await.unwrap_or(Err(NotSubmitted::StartedAnew))
    }

    /// Where the queues of clients are; `None` while the node starts.
    pub async fn client_places(&self) -> Option<ClientPlaces> {
        self.client_places.send(GetClientPlaces).await.ok().flatten()
    }

    /// Says in which slots jobs lie and scripts run; gives those that are surely ours, with the numbers of their tenures and how long these last. `None` while the node starts.
    pub async fn hold_jobs(&self, hold: HoldJobs) -> Option<BTreeMap<Slot, (u64, Duration)>> {
        self.hold_jobs.send(hold).await.ok().flatten()
    }

    /// What holds for all queues of clients, and the version of its definition if there is one.
    pub fn client_settings(&self) -> (ClientSettings, Option<Version>) {
        self.book.client_settings()
    }

    /// Who claims URLs of sites, and the version of that if there is one.
    pub fn fetch_lock(&self) -> (Option<FetchLock>, Option<Version>) {
        self.book.fetch_lock()
    }

    /// How often proxies have just failed here.
    pub fn proxies(&self) -> &ProxyFaults {
        &self.proxies
    }

    /// The crawls, as this node knows them.
    pub fn crawls(&self) -> Arc<Crawls> {
        self.book.now()
    }

    /// How this node sees its cluster; `None` while its coordinator is being replaced.
    pub async fn cluster(&self) -> Option<ClusterView> {
        self.view.send(GetClusterView).await.ok()
    }

    /// Leaves the cluster: [`ClusterView::left`] says when that is done.
    pub async fn leave(&self) {
        // A coordinator that is being replaced is told again by who waits for the end.
        let _ = self.leave.send(Leave).await;
    }

    /// Whether every page of this node is on another one, as far as it knows: then it may go for ever.
    pub async fn is_dispensable(&self) -> bool {
        match &self.dispensable {
            None => true,
            Some(copier) => copier.send(IsDispensable).await.unwrap_or(false),
        }
    }

    /// Gives the place of a node up that is gone for ever, or says why not.
    pub async fn forget(&self, node: NodeId) -> Result<(), String> {
        let told = self.forget.send(ForgetNode(node)).await;
        told.unwrap_or_else(|NotTaken| Err("the node starts anew; ask again".to_owned()))
    }

    /// Has slots compared with all their replicas now.
    pub async fn compare(&self, slots: Vec<Slot>) -> Result<(), NotTaken> {
        self.compare.send(CompareNow(slots)).await
    }

    /// Digests of these slots, of all if there are none.
    pub async fn digests(&self, slots: Vec<Slot>) -> Result<SlotDigests, NotTaken> {
        self.digests.send(GetDigests(slots)).await
    }

    /// What the node goes by that can change.
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Settings changed: whoever goes by them takes them over.
    pub fn retune(&self) {
        self.retune.answer(Retune); // a frontier that is being replaced starts with them
    }

    /// Where the messages of each actor are counted, in the order of their start.
    pub fn desks(&self) -> &[(&'static str, Arc<Desk>)] {
        &self.desks
    }

    /// The disk.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Admits URLs; answers how many were new.
    pub async fn discover(&self, urls: DiscoveredUrls) -> Result<usize, DiskError> {
        self.discovered.send(urls).await.map_err(|NotTaken| DiskError::Stopped)?
    }

    /// Hands a job to the disk and waits for its answer.
    pub async fn ask<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> Result<T, DiskError> {
        self.disk.ask(job).await
    }

    /// Counters and places, as they are on disk.
    pub async fn state(&self) -> Result<State, DiskError> {
        let state = self.disk.ask(Job::State).await?;
        self.metrics.observe(&state);
        Ok(state)
    }

    /// Where the frontier stands; `None` while it is being replaced.
    pub async fn standing(&self) -> Option<Standing> {
        self.standing.send(GetStanding).await.ok()
    }

    /// Stops handing out; what is in flight is still settled.
    pub async fn halt(&self) {
        // A frontier that is being replaced has handed out nothing yet; the next call reaches its successor.
        let _ = self.halt.send(Halt).await;
    }

    /// Makes an actor panic, for tests.
    pub fn crash(&self, name: &str) {
        for actor in self.ends.iter().filter(|actor| actor.name == name) {
            actor.crash.answer(Crash);
        }
    }

    /// Keeps an actor from its mailbox for so long, once it has handled what is in there; for tests.
    pub fn hold(&self, name: &str, time: Duration) {
        for actor in self.ends.iter().filter(|actor| actor.name == name) {
            actor.hold.answer(Hold(time));
        }
    }

    /// The node's metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether the data folder held a crawl already.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Waits until the node cannot go on, and says why.
    pub async fn doom(&self) -> String {
        let mut end = self.fate.end.subscribe();
        let reason = end.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }

    /// Says why the node cannot go on, if it cannot.
    pub fn doomed(&self) -> Option<String> {
        self.fate.end.borrow().clone()
    }

    /// Ends all actors at once, whatever they are doing: what a kill of the process does to them.
    pub fn kill(&self) {
        self.fate.closing.store(true, Ordering::Relaxed);
        // In reverse order of their start: nobody is left whose neighbour is gone.
        for actor in self.ends.iter().rev() {
            debug!(actor = actor.name, "is told to end");
            actor.end.answer(End);
        }
    }

    /// Closes the data folder and ends the node's actors and threads.
    pub async fn stop(&self) {
        let scoring = self.scoring.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(scoring) = scoring
            && tokio::task::spawn_blocking(move || scoring.stop()).await.is_err()
        {
            error!("the scoring thread did not end well");
        }
        self.kill();
        for arbiter in &self.arbiters {
            arbiter.stop();
        }
        // A thread that is gone already has closed the folder.
        let _ = self.disk.submit(Job::Stop).await;
        let thread = self.disk_thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let Some(thread) = thread else { return };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            error!("the disk thread did not end well");
        }
    }
}

/// The supervisor lives on the main arbiter, like most of those it watches.
fn watch_over(supervisor: Supervisor, main: &ArbiterHandle, metrics: Metrics, fate: Fate) {
    let watched = Mutex::new(Some((supervisor, metrics, fate)));
    main.spawn_fn(move || {
        let taken = watched.lock().ok().and_then(|mut watched| watched.take());
        let Some((supervisor, metrics, fate)) = taken else { return };
        actix_rt::spawn(async move {
            let closing = Arc::clone(&fate.closing);
            let is_closing = move || closing.load(Ordering::Relaxed);
            let reason = supervisor.watch(is_closing, move |name| metrics.restarted(name)).await;
            fate.seal(&reason);
        });
    });
}

pub(crate) fn fetch_options(config: &Config) -> FetchOptions {
    FetchOptions {
        user_agent: config.fetch.user_agent.clone(),
        headers: config.fetch.headers.clone().into_iter().collect(),
        allow_addresses: config.fetch.allow_addresses.clone(),
        hosts: config.fetch.hosts.clone(),
        dns_servers: config.fetch.dns_servers.clone(),
        http2: config.fetch.http2,
        limits: config.fetch.limits.clone(),
        ..FetchOptions::default()
    }
}

pub(crate) fn store_options(config: &Config) -> StoreOptions {
    StoreOptions {
        host_urls_max: config.crawl.host_urls_max,
        path_queries_max: config.crawl.path_queries_max,
        links_aside_max: config.crawl.links_aside_max,
        retry: config.retry,
        recrawl_period_ms: config.crawl.recrawl_period_s.map(|seconds| seconds.saturating_mul(1_000)),
        dedupe_content: config.storage.dedupe_content,
        cache_bytes: config.storage.cache_bytes,
        write_buffer_bytes: config.storage.write_buffer_bytes,
        ..StoreOptions::default()
    }
}

/// Record ids are unique over folders and starts: the folder's path, the start's number and its time.
pub(crate) fn warc_seed(store: &Store) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(store.dir().as_os_str().as_encoded_bytes());
    hasher.update(&store.boot().to_le_bytes());
    hasher.update(&crate::edges::clock::unix_ms().to_le_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.finalize().as_bytes()[..16].try_into().expect("sixteen of thirty-two bytes")
}

pub(crate) fn warc_options(config: &Config, node_seed: [u8; 16]) -> WarcOptions {
    WarcOptions {
        segment_bytes_max: config.storage.warc_bytes_max,
        software: format!("orbweaver/{}", env!("CARGO_PKG_VERSION")),
        user_agent: config.fetch.user_agent.clone(),
        robots: if config.crawl.obey_robots { "obey" } else { "ignore" }.to_owned(),
        node_seed,
    }
}

pub(crate) fn follow_rules(config: &Config, book: &CrawlBook) -> FollowRules {
    FollowRules {
        book: book.clone(),
        urls: config.url.clone(),
        redirects_max: config.crawl.redirects_max,
        parts: config.crawl.page_parts,
    }
}

/// Whatever can refuse a URL that another run would admit: the crawl, the filter, and where names and addresses may lead.
fn run_rules(config: &Config, filter: &Arc<Filter>) -> Rules {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&filter.digest());
    let rest = (&config.crawl.name, &config.fetch.allow_addresses, &config.fetch.hosts);
    hasher.update(format!("{rest:?}").as_bytes());
    let digest = hasher.finalize().as_bytes()[..16].try_into().expect("sixteen of thirty-two bytes");
    Rules { crawl: config.crawl.name.clone(), filter: Arc::clone(filter), digest }
}

pub(crate) fn extract_rules(config: &Config) -> ExtractRules {
    ExtractRules {
        urls: config.url.clone(),
        limits: config.parse.limits.clone(),
        meta_robots: config.crawl.meta_robots,
        x_robots_tag: config.crawl.x_robots_tag,
        rel_nofollow: config.crawl.rel_nofollow,
    }
}

fn frontier_rules(config: &Config) -> FrontierRules {
    let fetch_timeout = config.fetch.limits.fetch_timeout_ms * 1_000;
    FrontierRules {
        queues_max: config.storage.queues_max,
        window_max: config.storage.queue_window,
        flights_max: config.fetch.concurrency,
        flight_timeout: fetch_timeout + config.fetch.settle_timeout_s * 1_000_000,
        fetch_timeout,
        robots_ttl_ms: config.crawl.robots_ttl_s * 1_000,
        address_ttl: ADDRESS_TTL_US,
        obey_robots: config.crawl.obey_robots,
        read_sitemaps: config.crawl.read_sitemaps,
        pace_addresses: config.fetch.pace_addresses,
        robots_bytes_max: config.storage.robots_bytes_max,
        product_token: config.product_token().to_owned(),
        pace: config.politeness.clone(),
        retry: config.retry,
        urls: config.url.clone(),
        pages_max: config.crawl.pages_max,
    }
}
