//! Where the calls of clients are carried out: on the node that acts for a queue's slot, asked over the swarm if it is another one.
//!
//! Whoever is asked by a client knows who holds which slot, and sends each part of the call there; where nobody holds one, to the first living node of the
//! ring. A node that does not answer is passed over for this call, and the next one of the slot acts for it: it has what was acknowledged, or learns it by
//! repair. Only URLs are handed out by nobody but the holder of the slot's lease.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use libp2p::PeerId;
use proto::clients::ask::{Act, Ask, Item, Look, Said, Setting, Taken, Told, known_together, slot_of};
use proto::clients::deadline::{self, Pace};
use proto::clients::fetch::{End, HELD_OF_QUEUE, Lease, own_lease};
use proto::clients::gate::{KEEPING_GROWS, KEEPING_MS, lease_until};
use proto::clients::record::ClientQueue;
use proto::clients::settings::ClientSettings;
use proto::clients::spider::{SpiderAsk, SpiderRules, SpiderSaid};
use proto::cluster::copy::RecordCopy;
use proto::cluster::repair::Changed;
use proto::cluster::slot_set::SlotSet;
use proto::control::{Answer, Request};
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};
use proto::source::lend::{Leave, Stamp};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant, sleep, timeout};
use tracing::warn;

use super::doubtful::Doubtful;
use super::forget::forget;
use super::holders::{Holders, Places, Wanted};
use super::parcels::{Delivered, deliver};
use crate::clustered::{seal, unseal};
use crate::edges::clock::{mono, unix_ms};
use crate::edges::disk::{ClientJob, Job};
use crate::edges::store::{Decided, Taker};
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::messages::{ClientPlaces, Define, KeepClients, NotSubmitted};
use crate::node::Node;
use crate::scoring::cluster::ClusterScoring;

/// How long another node is waited for: longer than a write may take until it has failed.
const PEER_PATIENCE: Duration = Duration::from_secs(20);
/// How long a node is waited for when all are asked what they hold.
const HELD_PATIENCE: Duration = Duration::from_secs(5);
/// How long nodes are waited for that say what they hold, before calls go where they went.
const HOLDERS_PATIENCE: Duration = Duration::from_millis(1_500);
/// How long after its start a node that hears of no other waits with what it says: alone it may not know what it missed.
const OTHERS_PATIENCE: Duration = Duration::from_secs(10);
/// How often whoever waits for a node looks whether it is still taken to be alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a write is tried while the coordinator has too many.
const KEEP_PATIENCE: Duration = Duration::from_secs(15);
/// How long after a refusal it is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);
/// Times that what is handed out is kept before it is given up; the last may take 6 s.
const RENEWALS_MAX: usize = 4;
/// Nodes that are asked for one slot before the call fails.
pub(super) const TRIES: usize = 3;
/// Records on their way to other disks at once; more wait. The coordinator has room for 4,096 writes, of which fetching needs some.
const KEEPING_MAX: u32 = 2_048;

/// Questions to one node at once: it takes eight, and people have some too.
const LINES_MAX: usize = 5;

/// Why a call cannot be answered now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// The desk; clones share it.
#[derive(Clone)]
pub struct Desk {
    node: Arc<Node>,
    swarm: Arc<Swarm>,
    me: NodeId,
    /// Its peer id.
    name: String,
    keeping: Arc<Semaphore>,
    /// This node alone hands nothing out.
    paused: Arc<AtomicBool>,
    /// Questions to another node at once.
    lines: Arc<Mutex<BTreeMap<NodeId, Arc<Semaphore>>>>,
    /// By which rules pages are handed to spiders.
    spiders: Arc<SpiderRules>,
    /// Who computes scores, if anybody does.
    scoring: Arc<OnceLock<ClusterScoring>>,
    /// What could not be kept on enough disks.
    doubtful: Arc<Mutex<Doubtful>>,
    /// Tells this node's clock from that of its former lives.
    life: u64,
    /// The clocks of others.
    paces: Arc<Mutex<BTreeMap<NodeId, Pace>>>,
    /// Who holds what.
    holders: Holders,
    /// How long holders are looked for.
    patience: Duration,
    started: Instant,
}

impl Desk {
    /// The desk of a node. After `patience` the slots of one that died are held by others.
    pub fn new(node: Arc<Node>, swarm: Arc<Swarm>, peer: PeerId, spiders: SpiderRules, patience: Duration) -> Desk {
        let (me, name) = (node_of(&peer), peer.to_string());
        let keeping = Arc::new(Semaphore::new(KEEPING_MAX as usize));
        let spiders = Arc::new(spiders);
        let life = format!("{name} {} {:?}", std::process::id(), std::time::SystemTime::now());
        Desk {
            node,
            swarm,
            me,
            name,
            keeping,
            paused: Arc::default(),
            lines: Arc::default(),
            spiders,
            scoring: Arc::default(),
            doubtful: Arc::default(),
            life: xxhash_rust::xxh3::xxh3_64(life.as_bytes()),
            paces: Arc::default(),
            holders: Holders::default(),
            patience,
            started: Instant::now(),
        }
    }

    /// From now on scores are computed here.
    pub fn set_scoring(&self, scoring: ClusterScoring) {
        let _ = self.scoring.set(scoring);
    }

    /// Who computes scores here.
    pub fn scoring(&self) -> Option<&ClusterScoring> {
        self.scoring.get()
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// This node's name in the cluster.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Names of living nodes, as people know them.
    pub fn names(&self, alive: &BTreeSet<NodeId>) -> Vec<String> {
        let peers = self.swarm.nodes();
        let others = peers.iter().filter(|peer| alive.contains(&peer.node)).map(|peer| peer.peer.to_string());
        let mut names: Vec<String> = others.chain([self.name.clone()]).collect();
        names.sort();
        names.dedup();
        names
    }

    // On this node.

    /// Carries out what a client, or another node for one, asks of this node.
    pub async fn perform(&self, ask: Ask) -> Said {
        self.perform_by(Micros::MAX, ask).await
    }

    /// Carries out what another node asks, if its time is not over yet.
    pub async fn perform_until(&self, leave: Leave, ask: Ask) -> Said {
        match deadline::until(leave, self.stamp()) {
            Some(until) => self.perform_by(until, ask).await,
            None => Said::Late(self.stamp()),
        }
    }

    fn stamp(&self) -> Stamp {
        Stamp { life: self.life, at: mono() }
    }

    async fn perform_by(&self, until: Micros, ask: Ask) -> Said {
        let done = match ask {
            Ask::Put(items) => self.put_here(items, until).await.map(Said::Put),
            Ask::Act(act) => self.act_here(act).await,
            Ask::Look(look) => self.look_here(look).await,
            Ask::Log { package, level } => log(&package, &level),
            Ask::SetActive(active) => {
                self.paused.store(!active, Relaxed);
                Ok(Said::Done)
            }
            Ask::IsActive => Ok(Said::Active(self.is_active())),
            Ask::Spider(ask) => self.spider_here(ask).await.map(Said::Spider),
            Ask::Rank(ask) => match self.scoring.get() {
                Some(scoring) => Ok(Said::Rank(scoring.answer(ask).await)),
                None => Err(Unavailable("this node computes no scores: [score] by".to_owned())),
            },
            Ask::Stamp => Ok(Said::Stamp(self.stamp())),
            Ask::Held => self.held().await.map(Said::Held),
        };
        done.unwrap_or_else(|Unavailable(reason)| Said::Refused(reason))
    }

    /// Whether this node hands URLs out.
    pub fn is_active(&self) -> bool {
        self.node.client_settings().0.active && !self.paused.load(Relaxed)
    }

    async fn put_here(&self, mut items: Vec<Item>, until: Micros) -> Result<Vec<Taken>, Unavailable> {
        let mut became: Vec<Taken> = Vec::new();
        let known = items.iter().any(|item| item.date_s.is_some());
        let mut doubts = self.doubtful().among(&items);
        for attempt in 1.. {
            // What is merely found is there once it is kept, whoever writes after it; what is said of a known URL may be written over.
            let (held, items) = match known {
                true => (self.held().await?, items.clone()),
                false => (SlotSet::default(), std::mem::take(&mut items)),
            };
            let (unix_ms, floors) = (unix_ms(), BTreeMap::new());
            let job = |reply| Job::Client(ClientJob::Put { items, unix_ms, floors, until, reply });
            let decided = self.node.ask(job).await.map_err(|error| Unavailable(error.to_string()))?;
            let Decided { said, mut copies, changed, life } = decided;
            // What is known here, and was not kept on enough disks when it came, is kept now, or has failed again.
            doubts.retain(|place, _| said.get(*place) == Some(&Taken::Skipped));
            copies.extend(doubts.values().cloned());
            let kept_before = |place: usize| became.get(place) == Some(&Taken::Kept);
            let again = |(place, said)| if said == Taken::Skipped && kept_before(place) { Taken::Kept } else { said };
            became = said.into_iter().enumerate().map(again).collect();
            let held = among(&copies, &held);
            if copies.is_empty() {
                break;
            }
            match self.keep(&copies, changed, life, held, BTreeMap::new()).await {
                Ok(true) => {
                    self.doubtful().settle(&copies);
                    break;
                }
                Ok(false) if attempt < TRIES => {}
                _ => {
                    became.iter_mut().filter(|taken| **taken == Taken::Kept).for_each(|taken| *taken = Taken::Failed);
                    doubts.keys().for_each(|place| became[*place] = Taken::Failed);
                    self.doubtful().add(copies);
                    break;
                }
            }
        }
        Ok(became)
    }

    fn doubtful(&self) -> std::sync::MutexGuard<'_, Doubtful> {
        self.doubtful.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Slots that are ours now. If one is lost before what is decided is kept, whoever has it then may have written over it, by what it knew: then it is decided anew, or not acknowledged.
    async fn held(&self) -> Result<SlotSet, Unavailable> {
        Ok(self.places().await?.served)
    }

    async fn act_here(&self, act: Act) -> Result<Said, Unavailable> {
        if !matches!(act, Act::Take { .. }) {
            let (held, unix_ms, taker, slots) = (self.held().await?, unix_ms(), Taker::ANY, SlotSet::default());
            // Others may know what this node has never heard of.
            if act.of_holder().is_some_and(|slots| !slots.iter().all(|slot| held.contains(slot))) {
                return Err(Unavailable("another node holds these queues; ask it".to_owned()));
            }
            let job = |reply| Job::Client(ClientJob::Act { act, taker, slots, unix_ms, reply });
            let decided = self.node.ask(job).await.map_err(|error| Unavailable(error.to_string()))?;
            return self.settle_held(decided, &held).await;
        }
        if !self.is_active() {
            return Ok(Said::Given { urls: Vec::new(), queues: 0 });
        }
        let crawls = self.node.crawls();
        let own = crawls.open().filter(|(_, fetch)| !fetch.by_clients());
        let withheld = own.map(|(definition, _)| definition.name.clone()).collect();
        let slots = self.places().await?.served;
        self.carry_out(act, Taker::Client { withheld }, slots, unix_ms()).await
    }

    /// Hands URLs out. Leases and delays count from when the client is told: what took longer than was allowed for is counted anew.
    async fn carry_out(&self, act: Act, taker: Taker, slots: SlotSet, mut unix_ms: u64) -> Result<Said, Unavailable> {
        let Act::Take { lease_s, .. } = act else { return Err(Unavailable("nothing is to be taken".to_owned())) };
        let (mut act, mut margin_ms) = (act, KEEPING_MS);
        let is_own = matches!(taker, Taker::Own);
        let mut leased_until_ms = if is_own { own_lease(unix_ms) } else { lease_until(lease_s, unix_ms + margin_ms) };
        let mut before_ms = leased_until_ms;
        for _ in 0..RENEWALS_MAX {
            let job = {
                let (act, taker, slots) = (act, taker.clone(), slots.clone());
                |reply| Job::Client(ClientJob::Act { act, taker, slots, unix_ms, reply })
            };
            let decided = self.node.ask(job).await.map_err(|error| Unavailable(error.to_string()))?;
            let Decided { said, copies, changed, life } = decided;
            let Said::Given { urls, queues } = said else { return Ok(said) };
            let kept = self.settle(Decided { said: (), copies, changed, life }, true).await;
            let (urls, queues) = match kept {
                Ok(((), true)) => (urls, queues),
                Ok(((), false)) => {
                    // Whoever has some of the slots by now may hand the same out; the others are ours.
                    let held = self.held().await.unwrap_or_default();
                    let is_ours = |told: &Told| held.contains(slot_of(&told.crawl, &told.key));
                    let (ours, lost): (Vec<Told>, Vec<Told>) = urls.into_iter().partition(is_ours);
                    self.give_back(lost, leased_until_ms);
                    let queues: BTreeSet<(&str, &str)> = ours.iter().map(|told| (&*told.crawl, &*told.key)).collect();
                    let queues = queues.len() as u32;
                    (ours, queues)
                }
                Err(error) => {
                    self.give_back(urls, leased_until_ms);
                    return Err(error);
                }
            };
            let now_ms = self::unix_ms();
            if urls.is_empty() || (unix_ms..=unix_ms + margin_ms).contains(&now_ms) {
                return Ok(Said::Given { urls, queues });
            }
            (unix_ms, margin_ms) = (now_ms, margin_ms * KEEPING_GROWS);
            before_ms = leased_until_ms;
            act = Act::Renew { urls, lease_s, leased_until_ms, margin_ms };
            if !is_own {
                leased_until_ms = lease_until(lease_s, unix_ms + margin_ms);
            }
        }
        warn!("URLs are not handed out: it takes too long to keep that");
        if let Act::Renew { urls, .. } = act {
            self.give_back(urls, before_ms);
        }
        Ok(Said::Given { urls: Vec::new(), queues: 0 })
    }

    /// Ends leases of which nobody is told, so that their URLs need not wait until they are over.
    fn give_back(&self, urls: Vec<Told>, leased_until_ms: u64) {
        if urls.is_empty() {
            return;
        }
        let desk = self.clone();
        tokio::spawn(async move {
            let (act, taker, slots) = (Act::GiveBack { urls, leased_until_ms }, Taker::ANY, SlotSet::default());
            let job = |reply| Job::Client(ClientJob::Act { act, taker, slots, unix_ms: self::unix_ms(), reply });
            let kept = match desk.node.ask(job).await {
                Ok(decided) => desk.settle(decided, false).await.map(drop),
                Err(error) => Err(Unavailable(error.to_string())),
            };
            if let Err(error) = kept {
                warn!(%error, "URLs that nobody was told of come back when their leases are over");
            }
        });
    }

    /// Has what was decided kept on enough disks. Says whether what was handed out may be told: whoever holds the slot by now may have handed the same out.
    async fn settle<T>(&self, decided: Decided<T>, takes: bool) -> Result<(T, bool), Unavailable> {
        let Decided { said, copies, changed, life } = decided;
        if copies.is_empty() && changed.is_empty() {
            return Ok((said, true));
        }
        let served = if takes { copies.iter().map(RecordCopy::slot).collect() } else { SlotSet::default() };
        let still_ours = self.keep(&copies, changed, life, served, BTreeMap::new()).await?;
        Ok((said, !takes || still_ours))
    }

    /// Has what was said of known records kept on enough disks, by whoever held them all the while if this node did.
    async fn settle_held<T>(&self, decided: Decided<T>, held: &SlotSet) -> Result<T, Unavailable> {
        let Decided { said, copies, changed, life } = decided;
        let held = among(&copies, held);
        match copies.is_empty() || self.keep(&copies, changed, life, held, BTreeMap::new()).await? {
            true => Ok(said),
            false => Err(Unavailable("the queue is another node's meanwhile; ask again".to_owned())),
        }
    }

    async fn spider_here(&self, ask: SpiderAsk) -> Result<SpiderSaid, Unavailable> {
        let takes = ask.takes();
        // What is merely heard undoes nothing that others wrote meanwhile; what is said of a known page may be written over by whoever has its slot next.
        let is_known = matches!(ask, SpiderAsk::Crawled(_) | SpiderAsk::Failed(_) | SpiderAsk::Frequencies(_));
        let served = match ask {
            SpiderAsk::Take { .. } | SpiderAsk::TakeCool { .. } | SpiderAsk::Reload { .. } => {
                self.places().await?.served
            }
            _ if is_known => self.held().await?,
            _ => SlotSet::default(),
        };
        let (rules, slots, unix_ms) = (Arc::clone(&self.spiders), served.clone(), unix_ms());
        let job = |reply| Job::Client(ClientJob::Spider { ask, rules, slots, unix_ms, reply });
        let decided = self.node.ask(job).await.map_err(|error| Unavailable(error.to_string()))?;
        if is_known {
            return self.settle_held(decided, &served).await;
        }
        let (said, may_be_told) = self.settle(decided, takes).await?;
        Ok(if may_be_told { said } else { SpiderSaid::Given(Vec::new()) })
    }

    /// Takes what the cluster keeps for itself under a name of its own, out of the queues that this node may hand out of.
    pub async fn take_own(&self, crawl: &str, lease_s: u32) -> Result<Vec<Told>, Unavailable> {
        let slots = self.places().await?.served;
        let act = Act::Take {
            crawl: Some(crawl.to_owned()),
            key: None,
            queues_max: 0,
            urls_max: 0,
            lease_s,
            delay_default_s: 0,
        };
        match self.carry_out(act, Taker::ANY, slots, unix_ms()).await? {
            Said::Given { urls, .. } => Ok(urls),
            _ => Ok(Vec::new()),
        }
    }

    /// Takes URLs of a crawl for this node's own fetchers, out of at most so many queues.
    pub async fn lease_own(&self, crawl: &str, queues_max: u32) -> Result<Vec<Lease>, Unavailable> {
        if !self.is_active() {
            return Ok(Vec::new());
        }
        let (slots, unix_ms) = (self.places().await?.served, unix_ms());
        let act = Act::Take {
            crawl: Some(crawl.to_owned()),
            key: None,
            queues_max,
            urls_max: HELD_OF_QUEUE,
            lease_s: 0,
            delay_default_s: self.node.client_settings().0.delay_s,
        };
        match self.carry_out(act, Taker::Own, slots, unix_ms).await? {
            Said::Given { urls, .. } => Ok(urls.into_iter().map(|told| Lease { told, since_ms: unix_ms }).collect()),
            _ => Ok(Vec::new()),
        }
    }

    /// Ends leases of this node's own fetchers, on enough disks.
    pub async fn end_own(&self, ends: Vec<End>) -> Result<(), Unavailable> {
        let unix_ms = unix_ms();
        let decided = self.node.ask(|reply| Job::Client(ClientJob::EndOwn { ends, unix_ms, reply })).await;
        self.settle(decided.map_err(|error| Unavailable(error.to_string()))?, false).await.map(drop)
    }

    /// What the nodes' own fetchers have of a crawl in these slots, by this node's disk.
    pub async fn own_leases(&self, crawl: &str, slots: &SlotSet) -> Result<Vec<Lease>, Unavailable> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (crawl, slots) = (crawl.to_owned(), slots.clone());
            let some = self.node.ask(|reply| Job::Client(ClientJob::OwnLeases { crawl, slots, after, reply })).await;
            let (some, next) = some.map_err(|error| Unavailable(error.to_string()))?;
            all.extend(some);
            if next.is_none() {
                return Ok(all);
            }
            after = next;
        }
    }

    /// Has records of jobs kept on enough disks, this one among them, with versions of no less than the floor of their job; `false` unless their slots were ours
    /// all the time, in these tenures.
    pub async fn keep_held(
        &self,
        items: Vec<Item>,
        floors: BTreeMap<String, u64>,
        tenures: BTreeMap<Slot, u64>,
    ) -> bool {
        let (unix_ms, until) = (unix_ms(), Micros::MAX);
        let job = |reply| Job::Client(ClientJob::Put { items, unix_ms, floors, until, reply });
        let decided = self.node.ask(job).await;
        let Ok(Decided { said, copies, changed, life }) = decided else { return false };
        said.iter().all(|taken| *taken == Taken::Kept)
            && self.keep(&copies, changed, life, SlotSet::default(), tenures).await == Ok(true)
    }

    async fn look_here(&self, look: Look) -> Result<Said, Unavailable> {
        let unix_ms = unix_ms();
        let seen = self.node.ask(|reply| Job::Client(ClientJob::Look { look, unix_ms, reply })).await;
        seen.map_err(|error| Unavailable(error.to_string()))
    }

    /// Has records kept on enough disks.
    async fn keep(
        &self,
        copies: &[RecordCopy],
        mut changed: Vec<Changed>,
        mut life: u32,
        served: SlotSet,
        tenures: BTreeMap<Slot, u64>,
    ) -> Result<bool, Unavailable> {
        let permits = u32::try_from(copies.len()).unwrap_or(u32::MAX).min(KEEPING_MAX);
        let _room = self.keeping.acquire_many(permits).await.map_err(|_| Unavailable("the node stops".to_owned()))?;
        let until = Instant::now() + KEEP_PATIENCE;
        loop {
            let keep = KeepClients {
                copies: copies.to_vec(),
                changed: std::mem::take(&mut changed),
                life: std::mem::take(&mut life),
                served: served.clone(),
                tenures: tenures.clone(),
            };
            match self.node.keep_clients(keep).await {
                Ok(still_ours) => return Ok(still_ours),
                Err(NotSubmitted::Busy | NotSubmitted::StartedAnew) if Instant::now() < until => {
                    sleep(AGAIN_AFTER).await;
                }
                Err(error) => return Err(Unavailable(error.to_string())),
            }
        }
    }

    // Wherever it belongs.

    /// Where queues are.
    pub async fn places(&self) -> Result<ClientPlaces, Unavailable> {
        for _ in 0..20 {
            if let Some(places) = self.node.client_places().await {
                return Ok(places);
            }
            sleep(AGAIN_AFTER).await;
        }
        Err(Unavailable("the node is starting; ask again".to_owned()))
    }

    /// Where queues are, and who holds them.
    pub(super) async fn places_held(&self, wanted: Wanted) -> Result<Places, Unavailable> {
        let knows = self.holders.knows();
        let (ring, desk) = (if knows { self.places().await? } else { self.places_among_others().await? }, self.clone());
        let ask = move |node| {
            let desk = desk.clone();
            async move {
                match knows {
                    true => timeout(HOLDERS_PATIENCE, desk.holds(node)).await.ok().flatten(),
                    // Nothing else is known of it.
                    false => desk.while_alive(node, desk.holds(node)).await.ok().flatten(),
                }
            }
        };
        let by_slot = self.holders.of(&ring.alive, wanted, ask).await;
        Ok(Places { me: self.me, ring, by_slot, is_new: self.started.elapsed() < self.patience })
    }

    /// Where queues are, once a node that has just started has heard of the others, if there are any.
    async fn places_among_others(&self) -> Result<ClientPlaces, Unavailable> {
        let until = self.started + OTHERS_PATIENCE;
        loop {
            let places = self.places().await?;
            let others = self.swarm.nodes().iter().any(|peer| peer.node != self.me);
            if !others || places.alive.iter().any(|node| *node != self.me) || Instant::now() >= until {
                return Ok(places);
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    /// What a node says that it holds. It does not wait for a line: somebody may hang on all of them.
    async fn holds(&self, node: NodeId) -> Option<SlotSet> {
        if node == self.me {
            return self.held().await.ok();
        }
        let peer = self.peer(node).ok()?;
        match self.exchange(peer, &Request::Client(Box::new(Ask::Held))).await.ok()? {
            Answer::Client(said) => match *said {
                Said::Held(slots) => Some(slots),
                _ => None,
            },
            _ => None,
        }
    }

    /// Asks one node.
    pub async fn ask(&self, node: NodeId, ask: Ask) -> Result<Said, Unavailable> {
        let said = if node == self.me { self.perform(ask).await } else { self.ask_other(node, ask).await? };
        match said {
            Said::Refused(reason) => Err(Unavailable(reason)),
            said => Ok(said),
        }
    }

    fn peer(&self, node: NodeId) -> Result<PeerId, Unavailable> {
        let peers = self.swarm.nodes();
        let peer = peers.iter().find(|peer| peer.node == node).map(|peer| peer.peer);
        peer.ok_or_else(|| Unavailable("a node that is not known yet".to_owned()))
    }

    /// Waits for something of another node, as long as that is taken to be alive.
    async fn while_alive<T>(&self, node: NodeId, waits: impl Future<Output = T>) -> Result<T, Unavailable> {
        let (mut waits, until) = (std::pin::pin!(waits), Instant::now() + PEER_PATIENCE);
        loop {
            match timeout(LOOK_EVERY, &mut waits).await {
                Ok(came) => return Ok(came),
                Err(_) if Instant::now() >= until => return Err(Unavailable("a node does not answer".to_owned())),
                Err(_) if !self.places().await?.alive.contains(&node) => {
                    return Err(Unavailable("a node is down".to_owned()));
                }
                Err(_) => {}
            }
        }
    }

    /// A line to another node. Those that are taken may all hang on it, so whoever waits for one looks whether it is alive.
    async fn line(&self, node: NodeId) -> Result<OwnedSemaphorePermit, Unavailable> {
        let line = {
            let mut lines = self.lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            Arc::clone(lines.entry(node).or_insert_with(|| Arc::new(Semaphore::new(LINES_MAX))))
        };
        let line = self.while_alive(node, line.acquire_owned()).await?;
        line.map_err(|error| Unavailable(error.to_string()))
    }

    async fn ask_other(&self, node: NodeId, ask: Ask) -> Result<Said, Unavailable> {
        let peer = self.peer(node)?;
        let _line = self.line(node).await?;
        let (changes, mut ask) = (ask.is_change(), Box::new(ask));
        for _ in 0..TRIES {
            let pace = if changes { self.pace(node, peer).await? } else { None };
            let request = match pace {
                // Made before the wait begins, so it is void when that is over.
                Some(pace) => Request::ClientUntil(pace.leave(mono() + PEER_PATIENCE.as_micros() as Micros), ask),
                None => Request::Client(ask),
            };
            // A change may still take effect there until its time is over: what follows must not come before that.
            let answer = match changes {
                true => self.exchange(peer, &request).await?,
                false => self.while_alive(node, self.exchange(peer, &request)).await??,
            };
            match answer {
                Answer::Client(said) => match *said {
                    Said::Late(stamp) => self.hears(node, stamp),
                    said => return Ok(said),
                },
                Answer::Refused(reason) => return Err(Unavailable(format!("node {peer}: {reason}"))),
                _ => return Err(Unavailable(format!("node {peer} answered something else"))),
            }
            let (Request::ClientUntil(_, again) | Request::Client(again)) = request else { break };
            ask = again;
        }
        Err(Unavailable(format!("node {peer} is asked too late")))
    }

    async fn exchange(&self, peer: PeerId, request: &Request) -> Result<Answer, Unavailable> {
        let failed = |error: &dyn std::fmt::Display| Unavailable(format!("node {peer}: {error}"));
        let bytes = seal(request).map_err(|error| failed(&error))?;
        let answer = timeout(PEER_PATIENCE, self.swarm.ask(peer, &bytes)).await;
        let bytes = answer.map_err(|_| failed(&"does not answer"))?.map_err(|error| failed(&error))?;
        unseal::<Answer>(&bytes).map_err(|error| failed(&error))
    }

    /// How another node's clock goes; `None` if its version makes no stamps.
    async fn pace(&self, node: NodeId, peer: PeerId) -> Result<Option<Pace>, Unavailable> {
        let known = self.paces().get(&node).copied().filter(|pace| !pace.is_old(mono()));
        if known.is_some() {
            return Ok(known);
        }
        if let Answer::Client(said) = self.exchange(peer, &Request::Client(Box::new(Ask::Stamp))).await?
            && let Said::Stamp(stamp) = *said
        {
            self.hears(node, stamp);
            return Ok(self.paces().get(&node).copied());
        }
        Ok(None)
    }

    fn hears(&self, node: NodeId, stamp: Stamp) {
        self.paces().insert(node, Pace::new(stamp, mono()));
    }

    fn paces(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeId, Pace>> {
        self.paces.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Asks whoever acts for a queue.
    pub async fn ask_owner(&self, crawl: &str, key: &str, ask: Ask) -> Result<Said, Unavailable> {
        self.ask_owners(crawl, key, ask, |_| true).await
    }

    /// Asks whoever acts for a queue; where nobody holds it also the next ones, until the answer is enough.
    pub(super) async fn ask_owners(
        &self,
        crawl: &str,
        key: &str,
        ask: Ask,
        is_enough: impl Fn(&Said) -> bool,
    ) -> Result<Said, Unavailable> {
        let (slot, mut wanted) = (slot_of(crawl, key), Wanted::Fresh);
        let (mut passed_over, mut poor) = (BTreeSet::new(), None);
        let mut last = Unavailable("no node of this queue is alive".to_owned());
        for _ in 0..TRIES {
            let places = self.places_held(wanted).await?;
            let Some(owner) = places.owner(slot, &passed_over) else { break };
            match self.ask(owner, ask.clone()).await {
                Ok(said) if is_enough(&said) || places.holder(slot) == Some(owner) => return Ok(said),
                Ok(said) => poor = Some(said),
                Err(error) => {
                    warn!(%error, "asking the next node of a queue");
                    (last, wanted) = (error, Wanted::Anew);
                }
            }
            passed_over.insert(owner);
        }
        poor.ok_or(last)
    }

    /// Changes a setting of a queue, or only if this node acts for it; says whether there is such a queue. Who holds it knows its other settings. Where nobody does, the next living node
    /// changes it on top of what all of them know, and whoever holds it by then changes it too.
    pub(super) async fn set(&self, crawl: &str, key: &str, setting: Setting, local: bool) -> Result<bool, Unavailable> {
        let (slot, mut wanted) = (slot_of(crawl, key), Wanted::Fresh);
        let (mut passed_over, mut changed) = (BTreeSet::new(), None);
        let mut last = Unavailable("no node of this queue is alive".to_owned());
        for _ in 0..=TRIES {
            let places = self.places_held(wanted).await?;
            let Some(owner) = places.owner(slot, &passed_over) else { break };
            wanted = Wanted::Anew;
            if local && owner != self.me {
                return Ok(changed.unwrap_or(false));
            }
            let is_held = places.holder(slot) == Some(owner);
            if let (false, Some(changed)) = (is_held, changed) {
                return Ok(changed);
            }
            let (crawl, key) = (crawl.to_owned(), key.to_owned());
            let act = if is_held {
                Act::Set { crawl, key, setting }
            } else {
                let Some(known) = self.known_of(&places, &crawl, &key).await else {
                    changed = Some(false);
                    continue;
                };
                Act::SetUnheld { crawl, key, setting, known }
            };
            match self.ask(owner, Ask::Act(act)).await {
                Ok(Said::Set(is_there)) if is_held => return Ok(is_there || changed.unwrap_or(false)),
                Ok(Said::Set(is_there)) => changed = Some(is_there),
                Ok(_) => return Err(Unavailable("a node answered something else".to_owned())),
                Err(error) => {
                    warn!(%error, "asking the next node of a queue");
                    last = error;
                    passed_over.insert(owner);
                }
            }
        }
        changed.ok_or(last)
    }

    /// What all living nodes know of a queue together.
    async fn known_of(&self, places: &Places, crawl: &str, key: &str) -> Option<ClientQueue> {
        let said = places.ring.alive.iter().map(|node| async move {
            let look = Look::Queue { crawl: crawl.to_owned(), key: key.to_owned() };
            match timeout(HELD_PATIENCE, self.ask(*node, Ask::Look(look))).await {
                Ok(Ok(Said::Queue(queue, is_there))) => Some((queue, is_there)),
                _ => None, // what it alone knows was not acknowledged
            }
        });
        known_together(futures_util::future::join_all(said).await.into_iter().flatten().collect())
    }

    /// Asks every node about the slots that it acts for, all at once, in the order of their names. What a node does not answer, the next ones do.
    pub async fn ask_all<T, F, R>(&self, local: bool, ask: F) -> Result<Vec<T>, Unavailable>
    where
        F: Fn(NodeId, SlotSet) -> R,
        R: Future<Output = Result<T, Unavailable>>,
    {
        let places = self.places_held(Wanted::Fresh).await?;
        let mut passed_over = BTreeSet::new();
        let mut open: SlotSet = (0..proto::id::SLOTS).map(Slot).collect();
        let mut answers = Vec::new();
        for attempt in 0.. {
            let mut shares = places.shares(&open, &passed_over);
            if local {
                shares.retain(|node, _| *node == self.me);
            }
            let calls = shares.into_iter().map(|(node, slots)| {
                let call = ask(node, slots.clone());
                async move { (node, slots, call.await) }
            });
            let mut failed = None;
            open = SlotSet::default();
            for (node, slots, answer) in futures_util::future::join_all(calls).await {
                match answer {
                    Ok(answer) => answers.push(answer),
                    Err(error) => {
                        warn!(%error, "asking the next nodes of its slots");
                        passed_over.insert(node);
                        for slot in slots.iter() {
                            open.insert(slot);
                        }
                        failed = Some(error);
                    }
                }
            }
            match failed {
                None => break,
                Some(error) if attempt + 1 == TRIES || local => return Err(error),
                Some(_) => {}
            }
        }
        Ok(answers)
    }

    /// Has queues in these slots forgotten by who holds them, or only in those that this node holds; says how many URLs went.
    pub async fn forget(
        &self,
        slots: SlotSet,
        local: bool,
        act: impl Fn(SlotSet, Option<Vec<u8>>) -> Act,
    ) -> Result<u64, Unavailable> {
        let open = if local { self.held().await?.iter().filter(|slot| slots.contains(*slot)).collect() } else { slots };
        let held = || async move { if local { Ok(vec![(self.me, self.held().await?)]) } else { self.holders().await } };
        let ask = |node, slots, after| {
            let ask = Ask::Act(act(slots, after));
            async move {
                match self.ask(node, ask).await? {
                    Said::Gone { urls, next } => Ok((urls, next)),
                    _ => Err(Unavailable("a node answered something else".to_owned())),
                }
            }
        };
        forget(open, self.patience, held, ask).await
    }

    /// What every living node says that it holds.
    async fn holders(&self) -> Result<Vec<(NodeId, SlotSet)>, Unavailable> {
        let nodes = self.places().await?.alive;
        let said = nodes.into_iter().map(|node| async move {
            match timeout(HELD_PATIENCE, self.ask(node, Ask::Held)).await {
                Ok(Ok(Said::Held(slots))) => Some((node, slots)),
                _ => None, // its slots are somebody else's soon
            }
        });
        Ok(futures_util::future::join_all(said).await.into_iter().flatten().collect())
    }

    /// Takes URLs in, in their order as far as one URL is concerned, and says what became of each.
    pub async fn put(&self, items: Vec<Item>) -> Vec<Taken> {
        let ask = |node, items| async move {
            match self.ask(node, Ask::Put(items)).await? {
                Said::Put(taken) => Ok(taken),
                _ => Err(Unavailable("a node answered something else".to_owned())),
            }
        };
        let Delivered { taken, sent_on } = deliver(self.me, items, || self.places_held(Wanted::Lately), ask).await;
        self.node.metrics().frontier.sent_on.inc_by(sent_on as u64);
        taken
    }

    /// Changes what holds for all queues, on every node.
    pub async fn define(&self, change: impl Fn(&mut ClientSettings)) -> Result<(), Unavailable> {
        let mut last = String::new();
        for _ in 0..TRIES {
            let (mut settings, expects) = self.node.client_settings();
            change(&mut settings);
            let body = settings.encode().map_err(|error| Unavailable(error.to_string()))?;
            let define = Define { key: ClientSettings::key(), expects, body: Some(body) };
            match self.node.define(define).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error.to_string(),
            }
            sleep(AGAIN_AFTER).await;
        }
        Err(Unavailable(last))
    }
}

/// The slots of records that are among these.
fn among(copies: &[RecordCopy], slots: &SlotSet) -> SlotSet {
    copies.iter().map(RecordCopy::slot).filter(|slot| slots.contains(*slot)).collect()
}

/// Who acts for which of these slots, but for who is passed over.
pub(crate) fn shares(
    places: &ClientPlaces,
    slots: &SlotSet,
    passed_over: &BTreeSet<NodeId>,
) -> BTreeMap<NodeId, SlotSet> {
    let mut shares: BTreeMap<NodeId, SlotSet> = BTreeMap::new();
    for slot in slots.iter() {
        if let Some(node) = owner(places, slot, passed_over) {
            shares.entry(node).or_default().insert(slot);
        }
    }
    shares
}

pub(crate) fn owner(places: &ClientPlaces, slot: Slot, passed_over: &BTreeSet<NodeId>) -> Option<NodeId> {
    let candidates = places.ring.preference(slot).iter();
    candidates.copied().find(|node| places.alive.contains(node) && !passed_over.contains(node))
}

/// Changes what is logged of a part of the program; its name may be of another program.
fn log(package: &str, level: &str) -> Result<Said, Unavailable> {
    let sound = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':' | '.' | '-');
    if package.is_empty() || !package.chars().all(sound) {
        return Ok(Said::Done);
    }
    let others = crate::logging::filter().unwrap_or_default();
    let others = others.split(',').filter(|part| part.split('=').next() != Some(package) && !part.is_empty());
    let filter: Vec<String> = others.map(str::to_owned).chain([format!("{package}={level}")]).collect();
    crate::logging::set_filter(&filter.join(",")).map_err(Unavailable)?;
    Ok(Said::Done)
}
