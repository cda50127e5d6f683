//! A node in its cluster: the actors over the swarm, and the answers to who asks.

mod admin;
mod admission;
mod backups;
mod batch;
mod content;
mod crawl;
mod entries;
mod fetch;
mod graph;
mod notes;
mod own_fetch;
mod pages;
mod proxies;
pub mod reading;
mod records;
mod site;
mod source;
mod steward;
mod times;
mod upkeep;
mod urls;

use std::sync::{Arc, Mutex, OnceLock};

use libp2p::PeerId;
use proto::batch::{Discovered, EntryKind};
use proto::cluster::contents::ContentRules;
use proto::cluster::ring::Rings;
use proto::control::{Answer, NodeAnswer, NodeReport, Request, RingRow, URLS_MAX, UrlAnswer, UrlFacts};
use proto::crawl::filter::Filter;
use proto::crawl::politeness::SECOND;
use proto::id::{NodeId, Slot};
use proto::key::{UrlKey, crawl_name_is_valid};
use proto::site::Turns;
use proto::source::lend::Leave;
use proto::url::{CanonicalUrl, UrlRules};
use proto::wire;
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, timeout};
use tracing::{debug, info, warn};

use self::admission::Admissions;
use self::backups::{Backups, Files};
use crate::actors::coordinator::Cluster;
use crate::actors::scorer::PRIORITY_DEFAULT;
use crate::batch::BatchProcessor;
use crate::config::{Config, ConfigError};
use crate::doors::frontier::desk::Desk;
use crate::doors::frontier::forget;
use crate::doors::http::sources::Ask;
use crate::edges::contents::{Intake, Line, SwarmLine};
use crate::edges::disk::{DiskError, Job, ReplicaJob};
use crate::edges::load::LoadGauge;
use crate::edges::network::Network;
use crate::edges::swarm::control::Caller;
use crate::edges::swarm::identity::{Identity, node_of};
use crate::edges::swarm::key::SwarmKey;
use crate::edges::swarm::roster::Role;
use crate::edges::swarm::secret_file::SecretError;
use crate::edges::swarm::settings::Doors;
use crate::edges::swarm::{Swarm, SwarmError};
use crate::messages::{NotSubmitted, SubmitUrls};
use crate::metrics::Metrics;
use crate::node::{Node, StartError, extract_rules};
use crate::scoring::cluster::{ClusterScoring, ScoringThread};

/// Version of what is asked and answered.
const CONTROL_VERSION: u16 = 1;
/// How long another node is waited for before its part of an answer is left out.
const PEER_PATIENCE: Duration = Duration::from_secs(3);
/// How long URLs that are handed in may take until they are on enough disks.
const SUBMIT_PATIENCE: Duration = Duration::from_secs(30);
/// URLs handed to the coordinator at once.
const SUBMIT_URLS: usize = 200;
/// Times a busy coordinator is asked again.
const SUBMIT_TRIES: usize = 20;

/// Why a node of a cluster could not start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterStartError {
    /// The settings.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file with a secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The swarm.
    #[error(transparent)]
    Swarm(#[from] SwarmError),
    /// The node itself.
    #[error(transparent)]
    Node(#[from] StartError),
}

/// A node in its cluster.
pub struct ClusteredNode {
    node: Arc<Node>,
    swarm: Arc<Swarm>,
    desk: Desk,
    shared: Arc<Shared>,
    peer: PeerId,
    stopping: watch::Sender<bool>,
    /// How long what is in flight may take.
    settle_patience: Duration,
    scoring: Option<ScoringThread>,
}

/// How often the counts of the store are shown in the metrics.
const OBSERVE_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked whether anything is in flight.
const SETTLE_LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often it is looked whether a node that was told to leave has left.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a question that needs to know what is defined waits for a node that starts.
const DEFINITIONS_PATIENCE: Duration = Duration::from_secs(10);

/// How often it says what it still waits for.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Everything that answers need.
struct Shared {
    node: OnceLock<Arc<Node>>,
    swarm: OnceLock<Arc<Swarm>>,
    me: PeerId,
    urls: UrlRules,
    replicas: usize,
    write_quorum: usize,
    rings: Rings,
    started: Instant,
    stopping: watch::Sender<bool>,
    files: Files,
    backups: Backups,
    /// Longest delay that a crawl may ask for.
    delay_max_ms: u64,
    counted: crawl::Counted,
    /// Which sites gave URLs to URL_FETCH lately.
    turns: Mutex<Turns>,
    /// Where calls of clients with fetchers of their own are carried out.
    desk: OnceLock<Desk>,
    /// Nodes that stand in the settings.
    listed: Vec<PeerId>,
    admissions: Admissions,
    sources: source::Sources,
    /// After what time a page is fetched again, where its crawl does not say.
    recrawl_s: Option<u64>,
    /// Whether it is known what is defined: until then nothing can be said not to be.
    defined: watch::Sender<bool>,
    /// Processes pages by rules that come with a batch.
    processor: BatchProcessor,
}

impl ClusteredNode {
    /// Opens the data folder, starts swarm and actors. Call it inside an actix system.
    pub async fn start(config: &Config, filter: Arc<Filter>) -> Result<ClusteredNode, ClusterStartError> {
        let missing = || ConfigError::Value {
            setting: "cluster".into(),
            reason: "is missing: a node of a cluster needs to know which; see cluster.toml".into(),
        };
        let section = config.cluster.as_ref().ok_or_else(missing)?;
        let cluster = section.understand(config.fetch.limits.fetch_timeout_ms)?;
        for warning in &cluster.warnings {
            warn!("{warning}");
        }
        let wrong = |(setting, reason): (&str, String)| ConfigError::Value { setting: setting.to_owned(), reason };
        let spiders = config.spiders.rules().map_err(wrong)?;
        let identity = Identity::load(&section.identity)?;
        let key = SwarmKey::load(&section.swarm_key)?;
        let rules = cluster.rules(&identity, 0)?;
        let patience = forget::patience(&rules.lease, rules.membership.stable_for);
        let settings = cluster.settings(identity.clone(), key)?;

        let metrics = Metrics::new();
        let rings = Rings::default();
        let shared = Arc::new(Shared {
            node: OnceLock::new(),
            swarm: OnceLock::new(),
            me: identity.peer(),
            urls: config.url.clone(),
            replicas: rules.writes.replicas,
            write_quorum: rules.writes.quorum,
            rings: rings.clone(),
            started: Instant::now(),
            stopping: watch::Sender::new(false),
            files: Files {
                data: config.storage.data.clone(),
                identity: section.identity.clone(),
                swarm_key: section.swarm_key.clone(),
            },
            backups: Backups::default(),
            delay_max_ms: config.politeness.crawl_delay_max_ms,
            counted: crawl::Counted::default(),
            turns: Mutex::default(),
            desk: OnceLock::new(),
            listed: cluster.nodes.iter().map(|(node, _)| node.peer).collect(),
            admissions: Admissions::default(),
            defined: watch::Sender::new(false),
            processor: BatchProcessor {
                extract: extract_rules(config),
                urls: config.url.clone(),
                product_token: config.product_token().to_owned(),
            },
            recrawl_s: config.crawl.recrawl_period_s,
            sources: source::Sources::new(
                &config.sources,
                &proto::control::node_name(identity.node()),
                vec![config.storage.data.clone(), section.identity.clone(), section.swarm_key.clone()],
            ),
        });
        let (changes, changed) = mpsc::unbounded_channel();
        let swarm = Arc::new(Swarm::start(settings, doors(&shared), metrics.swarm.clone()).await?);
        let line = SwarmLine::new(config.storage.data.join("warc"));
        line.tie(&swarm);
        let gauge = LoadGauge::new(&config.storage.data, cluster.load());
        let seen = metrics.cluster.clone();
        let (busy, concurrency) = (metrics.clone(), config.fetch.concurrency as u64);
        let cluster = Cluster {
            rules,
            network: Arc::clone(&swarm) as Arc<dyn Network>,
            load: {
                let shared = Arc::downgrade(&shared);
                Arc::new(move || {
                    let fetches = busy.fetching.get().max(0) as u64 * 1_000 / concurrency.max(1);
                    let mailbox = shared.upgrade().and_then(|shared| Some(fullest_mailbox(shared.node.get()?)));
                    Some(gauge.measure(fetches.min(2_000) as u32, mailbox.unwrap_or(0)))
                })
            },
            watch: Arc::new(move |sight| {
                seen.saw(&sight);
                debug!(?sight, "decided");
            }),
            rings,
            contents: (section.content_copies > 1).then(|| {
                let patience = config.fetch.settle_timeout_s * SECOND;
                (Arc::new(line.clone()) as Arc<dyn Line>, ContentRules { patience, ..ContentRules::default() })
            }),
            defined: {
                let shared = Arc::clone(&shared);
                Arc::new(move |definitions| {
                    shared.admissions.heed(definitions, &changes);
                    shared.sources.heed(definitions);
                    shared.defined.send_replace(true);
                })
            },
            headers: {
                let shared = Arc::downgrade(&shared);
                Arc::new(move |crawl, url| source::headers_of(&shared.upgrade()?, crawl, url))
            },
            entries: entries::keeper(Arc::downgrade(&shared)),
            found: {
                let shared = Arc::downgrade(&shared);
                Arc::new(move |crawl, links| own_fetch::found(&shared.upgrade()?, crawl, links))
            },
            seed: identity.node().0 ^ crate::edges::clock::unix_ms(),
        };
        tokio::spawn(admission::follow(Arc::clone(&swarm), identity.peer(), shared.listed.clone(), changed));
        let node = Arc::new(Node::start_clustered(config, filter, cluster, metrics)?);
        // Letters and questions that came before this were turned away; who needs an answer says it again.
        let _ = shared.node.set(Arc::clone(&node));
        let _ = shared.swarm.set(Arc::clone(&swarm));
        let desk = Desk::new(Arc::clone(&node), Arc::clone(&swarm), identity.peer(), spiders, patience);
        let _ = shared.desk.set(desk.clone());
        let mut scoring = None;
        if let Some(graph) = node.take_graph() {
            let (frontier, metrics) = (node.rescored(), node.metrics().score.clone());
            let started = ClusterScoring::start(graph, &config.score, desk.clone(), frontier, metrics);
            let (shared_scoring, thread) = started.map_err(StartError::from)?;
            desk.set_scoring(shared_scoring);
            scoring = Some(thread);
        }
        source::start(&shared);
        own_fetch::start(&shared);
        tokio::spawn(observe(Arc::downgrade(&node)));
        let upkeep_every = Duration::from_secs(section.upkeep_every_s);
        tokio::spawn(steward::look_after(Arc::downgrade(&shared), upkeep_every));
        let settle_patience = Duration::from_millis(config.fetch.limits.fetch_timeout_ms)
            + Duration::from_secs(config.fetch.settle_timeout_s);
        let stopping = shared.stopping.clone();
        Ok(ClusteredNode { node, swarm, desk, shared, peer: identity.peer(), stopping, settle_patience, scoring })
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The swarm.
    pub fn swarm(&self) -> &Swarm {
        &self.swarm
    }

    /// Where calls of clients are carried out.
    pub fn desk(&self) -> &Desk {
        &self.desk
    }

    /// The way for a door to ask about sources, with the rights of an operator.
    pub fn ask_sources(&self) -> Ask {
        let (shared, peer) = (Arc::downgrade(&self.shared), self.peer);
        Arc::new(move |request| {
            let shared = shared.clone();
            Box::pin(async move {
                let shared = shared.upgrade().ok_or("the node stops")?;
                let caller = Caller { peer, role: Role::Operator };
                match shared.answer(caller, Request::Source(Box::new(request))).await {
                    Answer::Operation(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
                    Answer::Refused(why) => Err(why),
                    other => Err(format!("the node answered {other:?}")),
                }
            })
        })
    }

    /// Its peer id.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// Waits until the node has left its cluster, which it does only when it is told to.
    pub async fn left(&self) {
        let mut told = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.node.cluster().await.is_some_and(|view| view.left) {
                continue;
            }
            if self.node.is_dispensable().await {
                return;
            }
            let lacking = self.node.metrics().cluster.contents_lacking.get();
            if told.is_none_or(|told: Instant| told.elapsed() > TELL_EVERY) {
                info!(lacking, "this node leaves when its pages are on others");
                told = Some(Instant::now());
            }
        }
    }

    /// Waits until an operator tells the node to stop.
    pub async fn told_to_stop(&self) {
        let mut stopping = self.stopping.subscribe();
        // The sender lives as long as we do.
        let _ = stopping.wait_for(|told| *told).await;
    }

    /// Hands out nothing more, and waits until everything in flight is settled, for as long as that may take.
    pub async fn settle(&self) {
        let until = Instant::now() + self.settle_patience;
        while Instant::now() < until {
            self.node.halt().await;
            let flights = self.node.standing().await.map_or(0, |standing| standing.core.flights);
            let fetching = self.node.cluster().await.map_or(0, |view| view.fetching);
            if flights == 0 && fetching == 0 {
                return;
            }
            tokio::time::sleep(SETTLE_LOOK_EVERY).await;
        }
        warn!("something is still in flight; others will fetch it again");
    }

    /// Ends swarm and actors, and closes the data folder.
    pub async fn stop(self) {
        if let Some(scoring) = self.scoring
            && tokio::task::spawn_blocking(move || scoring.stop()).await.is_err()
        {
            warn!("the scoring thread did not end well");
        }
        self.swarm.close().await;
        self.node.stop().await;
    }
}

/// Shows the counts of the store in the metrics, as long as the node lives.
async fn observe(node: std::sync::Weak<Node>) {
    loop {
        tokio::time::sleep(OBSERVE_EVERY).await;
        let Some(node) = node.upgrade() else { return };
        if node.state().await.is_err() {
            return; // it stops
        }
    }
}

/// How full the fullest mailbox is, and the disk's queue with them, in thousandths.
fn fullest_mailbox(node: &Node) -> u32 {
    let (waiting, capacity) = node.disk().waiting();
    let desks = node.desks().iter().map(|(_, desk)| (desk.waiting(), desk.capacity()));
    let full = desks.chain([(waiting as u64, capacity as u64)]).filter(|(_, capacity)| *capacity > 0);
    full.map(|(waiting, capacity)| waiting * 1_000 / capacity).max().unwrap_or(0).min(2_000) as u32
}

fn doors(shared: &Arc<Shared>) -> Doors {
    let (letters, control, pages) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let intake = Intake::new(shared.files.data.clone());
    Doors {
        deliver: Arc::new(move |letter| letters.node.get().is_some_and(|node| node.receive(letter))),
        control: Arc::new(move |caller, bytes| {
            let shared = Arc::clone(&control);
            Box::pin(async move { shared.answer_bytes(caller, &bytes).await })
        }),
        bulk: Some(Arc::new(move |peer, stream| {
            let (node, intake) = (pages.node.get().map(Arc::clone), intake.clone());
            Box::pin(async move {
                // A node that starts closes the stream; whoever opened it tries again.
                if let Some(node) = node {
                    intake.serve(node.disk(), node_of(&peer), stream).await;
                }
            })
        })),
        ..Doors::closed()
    }
}

/// Encodes a request or an answer.
pub fn seal<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, wire::WireError> {
    wire::encode(&(CONTROL_VERSION, value))
}

/// Decodes a request or an answer. One of another version is not understood, or says something else: enum variants are only appended.
pub fn unseal<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, wire::WireError> {
    wire::decode::<(u16, T)>(bytes).map(|(_, value)| value)
}

impl Shared {
    async fn answer_bytes(self: &Arc<Self>, caller: Caller, bytes: &[u8]) -> Vec<u8> {
        let answer = match unseal::<Request>(bytes) {
            Ok(request) => self.answer(caller, request).await,
            Err(error) => Answer::Refused(format!("the request is not understood: {error}")),
        };
        seal(&answer).unwrap_or_else(|error| {
            warn!(%error, "an answer cannot be sent");
            Vec::new()
        })
    }

    async fn answer(self: &Arc<Self>, caller: Caller, request: Request) -> Answer {
        let (Some(node), Some(swarm)) = (self.node.get(), self.swarm.get()) else {
            return Answer::Refused("the node is starting; ask again".to_owned());
        };
        if caller.role == Role::Viewer && !request.is_question() {
            return Answer::Refused("a viewer may only look; ask with an operator's key".to_owned());
        }
        if request.needs_definitions() && !self.knows_definitions().await {
            return Answer::Refused("the node is starting: it reads what is on its disk; ask again".to_owned());
        }
        match request {
            Request::Node => Answer::Node(Box::new(self.report(node).await)),
            Request::Nodes => Answer::Nodes(self.everybody(node, swarm).await),
            Request::Ring { domain, slot } => self.ring(node, domain, slot).await,
            Request::AddUrls { crawl, urls } => self.add_urls(node, crawl, urls).await,
            Request::UrlHere { crawl, url } => match self.key(&crawl, &url) {
                Ok(key) => Answer::Url(vec![self.url_here(node, key).await]),
                Err(error) => Answer::Refused(error),
            },
            Request::Url { crawl, url } => match self.key(&crawl, &url) {
                Ok(key) => self.url_everywhere(node, swarm, key, crawl, url).await,
                Err(error) => Answer::Refused(error),
            },
            Request::Leave => {
                node.leave().await;
                Answer::Done
            }
            Request::Admin { to, order } => self.admin(node, swarm, to, order).await,
            Request::Crawl(request) => self.crawl(node, swarm, request).await,
            Request::Client(ask) => self.client(caller, None, *ask).await,
            Request::ClientUntil(leave, ask) => self.client(caller, Some(leave), *ask).await,
            Request::Content(request) => self.content(node, swarm, request).await,
            Request::Admit { peer, addresses, revoke } => {
                let admitted = self.admit(node, swarm, &peer, addresses, revoke).await;
                admitted.unwrap_or_else(Answer::Refused)
            }
            Request::Operation { operation, body, merge } => self.operation(node, swarm, operation, &body, merge).await,
            Request::Records(request) => self.records(node, request).await,
            Request::Source(request) => self.source(caller, node, swarm, *request).await,
            Request::Pages(request) => self.pages(node, swarm, request).await,
        }
    }

    /// Another node asks for a client.
    async fn client(&self, caller: Caller, leave: Option<Leave>, ask: proto::clients::ask::Ask) -> Answer {
        match self.desk.get() {
            Some(desk) if caller.role == Role::Node => {
                let said = match leave {
                    Some(leave) => desk.perform_until(leave, ask).await,
                    None => desk.perform(ask).await,
                };
                Answer::Client(Box::new(said))
            }
            Some(_) => Answer::Refused("only nodes ask this; clients have a door of their own".to_owned()),
            None => Answer::Refused("the node is starting; ask again".to_owned()),
        }
    }

    /// Waits a little for a node that starts to know what is defined; says whether it does.
    async fn knows_definitions(&self) -> bool {
        let mut defined = self.defined.subscribe();
        let known = defined.wait_for(|known| *known);
        tokio::time::timeout(DEFINITIONS_PATIENCE, known).await.is_ok_and(|known| known.is_ok())
    }

    async fn report(&self, node: &Node) -> NodeReport {
        let view = node.cluster().await.unwrap_or_default();
        let totals = node.ask(|reply| Job::Replica(ReplicaJob::Totals(view.held.clone(), reply))).await;
        let records = node.state().await.map_or(0, |state| state.counters.known);
        NodeReport {
            node: node_of(&self.me).0,
            peer: self.me.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            life: view.life,
            uptime_s: self.started.elapsed().as_secs(),
            members: view.members.len() as u32,
            alive: view.alive.len() as u32,
            owned: view.owned as u32,
            held: view.held.len() as u32,
            load: view.load,
            fetching: view.fetching as u32,
            fetches: node.metrics().fetches.get(),
            left: view.left,
            records,
            totals: totals.unwrap_or_default(),
        }
    }

    async fn everybody(&self, node: &Node, swarm: &Arc<Swarm>) -> Vec<NodeAnswer> {
        let mine = NodeAnswer {
            node: node_of(&self.me).0,
            peer: self.me.to_string(),
            report: Ok(Box::new(self.report(node).await)),
        };
        let others = swarm.nodes().into_iter().map(|peer| {
            let swarm = Arc::clone(swarm);
            async move {
                let report = match ask_peer(&swarm, peer.peer, &Request::Node).await {
                    Ok(Answer::Node(report)) => Ok(report),
                    Ok(other) => Err(format!("answered {other:?}")),
                    Err(error) => Err(error),
                };
                NodeAnswer { node: peer.node.0, peer: peer.peer.to_string(), report }
            }
        });
        let mut all = vec![mine];
        all.extend(futures_util::future::join_all(others).await);
        all.sort_by_key(|answer| answer.node);
        all
    }

    async fn ring(&self, node: &Node, domain: Option<String>, slot: Option<u16>) -> Answer {
        let Some(view) = node.cluster().await else { return Answer::Refused("the node starts anew".to_owned()) };
        let ring = self.rings.get(&view.members);
        let names = |nodes: &[NodeId]| nodes.iter().take(self.replicas).map(|node| node.0).collect::<Vec<u64>>();
        let one = match (domain, slot) {
            (Some(domain), _) => match CanonicalUrl::parse(&format!("http://{domain}/"), &self.urls) {
                Ok(url) => Some(Slot::of_domain(url.domain())),
                Err(error) => return Answer::Refused(format!("{domain}: {error}")),
            },
            (None, Some(slot)) if slot < proto::id::SLOTS => Some(Slot(slot)),
            (None, Some(slot)) => {
                return Answer::Refused(format!("slot {slot}: there are {} of them, from 0 on", proto::id::SLOTS));
            }
            (None, None) => None,
        };
        if let Some(slot) = one {
            return Answer::Ring(vec![RingRow { slot: Some(slot.0), nodes: names(ring.preference(slot)), slots: 1 }]);
        }
        let mut shares: std::collections::BTreeMap<NodeId, u32> = std::collections::BTreeMap::new();
        ring.owners().into_iter().for_each(|owner| *shares.entry(owner).or_default() += 1);
        let row = |(node, slots): (NodeId, u32)| RingRow { slot: None, nodes: vec![node.0], slots };
        Answer::Ring(shares.into_iter().map(row).collect())
    }

    fn key(&self, crawl: &str, url: &str) -> Result<UrlKey, String> {
        if !crawl_name_is_valid(crawl) {
            return Err(format!("{crawl:?} names no crawl: 1 to 128 bytes without control characters"));
        }
        let url = CanonicalUrl::parse(url, &self.urls).map_err(|error| format!("{url}: {error}"))?;
        Ok(UrlKey::new(crawl, &url))
    }

    async fn add_urls(&self, node: &Node, crawl: String, urls: Vec<String>) -> Answer {
        if !crawl_name_is_valid(&crawl) {
            return Answer::Refused(format!("{crawl:?} names no crawl: 1 to 128 bytes without control characters"));
        }
        if node.crawls().filter(&crawl).is_none() {
            return Answer::Refused(format!("there is no crawl called {crawl:?}; define it first (ctl crawl add)"));
        }
        if urls.len() > URLS_MAX {
            return Answer::Refused(format!("{} URLs at once are too many; send at most {URLS_MAX}", urls.len()));
        }
        let (mut found, mut wrong) = (Vec::new(), Vec::new());
        for text in urls {
            match CanonicalUrl::parse(&text, &self.urls) {
                Ok(url) => found.push(Discovered {
                    url,
                    kind: EntryKind::Page,
                    depth: 0,
                    priority: PRIORITY_DEFAULT,
                    redirects: 0,
                }),
                Err(error) => wrong.push((text, error.to_string())),
            }
        }
        let mut kept = 0;
        for urls in found.chunks(SUBMIT_URLS) {
            if let Err(error) = self.hand_in(node, &crawl, node.crawls().fetch(&crawl), urls).await {
                return Answer::Refused(format!("{error} ({kept} URLs are kept)"));
            }
            kept += urls.len() as u64;
        }
        Answer::Added { kept, wrong }
    }

    async fn url_here(&self, node: &Node, key: UrlKey) -> UrlAnswer {
        let stored = node.ask(|reply| Job::Replica(ReplicaJob::Url(key.clone(), reply))).await;
        let facts = |stored: crate::edges::store::Stored| {
            let found = stored.record.findings;
            UrlFacts {
                id: key.id(),
                progress: stored.record.progress,
                http_code: found.as_ref().map(|found| found.http_code).filter(|code| *code != 0),
                failure: found.as_ref().and_then(|found| found.failure).map(|failure| failure.to_string()),
                title: found.and_then(|found| found.title),
            }
        };
        let state = stored.map(|stored| stored.map(facts)).map_err(|error: DiskError| error.to_string());
        UrlAnswer { node: node_of(&self.me).0, state }
    }

    async fn url_everywhere(&self, node: &Node, swarm: &Arc<Swarm>, key: UrlKey, crawl: String, url: String) -> Answer {
        let mut answers = vec![self.url_here(node, key).await];
        let request = Request::UrlHere { crawl, url };
        let others = swarm.nodes().into_iter().map(|peer| {
            let (swarm, request) = (Arc::clone(swarm), request.clone());
            async move {
                match ask_peer(&swarm, peer.peer, &request).await {
                    Ok(Answer::Url(mut one)) if one.len() == 1 => one.remove(0),
                    Ok(other) => UrlAnswer { node: peer.node.0, state: Err(format!("answered {other:?}")) },
                    Err(error) => UrlAnswer { node: peer.node.0, state: Err(error) },
                }
            }
        });
        answers.extend(futures_util::future::join_all(others).await);
        answers.sort_by_key(|answer| answer.node);
        Answer::Url(answers)
    }
}

/// Hands URLs to the cluster, again and again while it is busy.
async fn submit(node: &Node, crawl: &str, urls: &[Discovered]) -> Result<(), String> {
    let handing_in = async {
        for _ in 0..SUBMIT_TRIES {
            match node.submit(SubmitUrls { crawl: crawl.to_owned(), urls: urls.to_vec() }).await {
                Ok(()) => return Ok(()),
                Err(NotSubmitted::Busy | NotSubmitted::StartedAnew) => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
        Err("the node is too busy; hand the URLs in again later".to_owned())
    };
    timeout(SUBMIT_PATIENCE, handing_in).await.unwrap_or_else(|_| {
        Err("too few nodes answer for the URLs to be kept; see who is missing, then hand them in again".to_owned())
    })
}

async fn ask_peer(swarm: &Swarm, peer: PeerId, request: &Request) -> Result<Answer, String> {
    ask_peer_for(PEER_PATIENCE, swarm, peer, request).await
}

async fn ask_peer_for(patience: Duration, swarm: &Swarm, peer: PeerId, request: &Request) -> Result<Answer, String> {
    let bytes = seal(request).map_err(|error| error.to_string())?;
    let began = Instant::now();
    let answered = timeout(patience, swarm.ask(peer, &bytes)).await;
    times::took(peer, began.elapsed());
    match answered {
        Ok(Ok(bytes)) => unseal(&bytes).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("does not answer".to_owned()),
    }
}
