//! Scoring in a cluster: a thread that keeps the page graph of the slots that this node keeps, and takes part in rankings over all of them ([`proto::score::rounds`]).
//!
//! Whoever has enough new pages begins a ranking: it tells all living nodes, who must see the same ring, and from then on each draws what it lacks from the others. The pages of a slot
//! are those of its first living node, which has them or is a replica: links are records like all others. A ranking in which nothing moves for a while, of
//! whose members one has died, or that a newer one has overtaken, is given up; the next one is begun without the dead. In the end each node tells the owners of
//! the queues which waiting pages of its own have another level, and they go to another place. Pages of the cluster's own crawls lie in the queues of their slots' owner,
//! which is who computed their scores: it moves them itself.
//!
//! A second thread tells the keepers of pages what was found on those that this node fetched: whoever fetches a page need not keep it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use proto::clients::ask::{Ask, Said};
use proto::id::{NodeId, SLOTS, Slot};
use proto::key::UrlKey;
use proto::score::Stop;
use proto::score::patience::{Heard, Patience};
use proto::score::priority::level;
use proto::score::rounds::{
    Best, By, Purse, Question, RankAsk, RankSaid, Ranking, Reply, Share, Standing, Wish, best_of,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::lists::{ListsError, Wanted};
use super::part::{FOREIGN, Ours};
use super::{FOLDER, purses_file, read_state, scores_file, state_file, write_state};
use crate::config::score::{ScoreBy, ScoreConfig};
use crate::doors::frontier::desk::{Desk, owner};
use crate::doors::spiders::SpiderDesk;
use crate::edges::clock::unix_ms;
use crate::edges::cores::Threads;
use crate::edges::mapped::Numbers;
use crate::edges::store::{Intake, PageGraph, StoreError};
use crate::messages::{ClientPlaces, Rescored};
use crate::metrics::score::ScoreMetrics;
use crate::supervisor::Link;

/// How often what the crawl found is taken in.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the others are left alone after one of them was not that far.
const AGAIN_AFTER: Duration = Duration::from_millis(20);
/// How long a ranking may stand still while nobody says anything ([`Patience`]).
const PATIENCE: Duration = Duration::from_secs(20);
/// How long after a ranking that came to nothing the next one is begun.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How long whoever wants scores now waits for them.
const NOW_PATIENCE: Duration = Duration::from_secs(50);
/// Loops after which a ranking that somebody wants to see ends in any case.
const WISH_LOOPS_MAX: u32 = 1_000;
/// Pages whose levels are told at once.
const TOLD_AT_ONCE: usize = 2_000;
/// Pages that keepers are told of at once.
const TOLD_ROWS: usize = 512;

/// A ranking, and what our numbers in it mean.
struct Part {
    ranking: Ranking,
    /// Our number of each page of the graph; [`FOREIGN`] if it is not ours.
    mine: Arc<Numbers<u32>>,
    /// How many of these there are.
    ours: u32,
    /// Pages of ours that only others link to: none of our graph.
    strangers: HashMap<Vec<u8>, u32>,
}

/// A ranking that has ended, and after how many loops.
type Done = (Arc<RwLock<Part>>, u32);

/// What is told to begin.
#[derive(Clone, Debug, PartialEq)]
struct Order {
    number: u64,
    members: Vec<NodeId>,
    /// Whose each slot is, as all members said that they see it.
    ring: u64,
    /// Somebody wants to see it; queues do not go by it.
    wish: Option<Wish>,
}

/// How the newest ranking stands here.
#[derive(Clone, Default)]
enum Stands {
    /// It was given up, or there was none.
    #[default]
    Over,
    /// Our part is being prepared.
    Prepares,
    /// It goes on, or has ended; others may still draw the last numbers.
    Takes(Arc<RwLock<Part>>),
}

/// What the thread and whoever asks it share.
#[derive(Default)]
struct Board {
    /// The newest ranking that somebody began.
    ordered: Option<Order>,
    /// The newest one that this node takes part in, or has.
    number: u64,
    stands: Stands,
    /// The graph, until the end: the folder is in use as long as somebody has it.
    graph: Option<PageGraph>,
    /// Somebody wants scores to be computed now.
    wanted: bool,
    /// How often they were since the start, and how many pages moved the last time.
    computed: u64,
    moved: u64,
    /// The last ranking that somebody wanted to see, and the best of our pages; none if it was given up.
    shown: Option<(u64, Option<Vec<Best>>)>,
    /// That which was begun here, and who takes part.
    wished: Option<(u64, Vec<NodeId>)>,
}

/// Scoring in a cluster. Clones share it.
#[derive(Clone)]
pub struct ClusterScoring {
    board: Arc<Mutex<Board>>,
    desk: Desk,
    /// What is computed, as the settings say it.
    name: &'static str,
}

/// The threads of it.
pub struct ScoringThread {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    scoring: ClusterScoring,
}

impl ScoringThread {
    /// Ends them, and waits until they have ended. Not to be called where nobody may wait.
    pub fn stop(self) {
        self.ends.store(true, Relaxed);
        for thread in self.threads {
            if thread.join().is_err() {
                warn!("a scoring thread did not end well");
            }
        }
        self.scoring.board().graph = None;
    }
}

impl ClusterScoring {
    /// Starts the threads. Call it inside a runtime.
    pub fn start(
        graph: PageGraph,
        config: &ScoreConfig,
        desk: Desk,
        frontier: Link<Rescored>,
        metrics: ScoreMetrics,
    ) -> Result<(ClusterScoring, ScoringThread), StoreError> {
        let by = match config.by {
            ScoreBy::Hits => By::Hits,
            ScoreBy::Opic => By::Opic,
            ScoreBy::PageRank | ScoreBy::None => By::PageRank(config.damping),
        };
        let name = if config.by == ScoreBy::None { ScoreBy::PageRank.name() } else { config.by.name() };
        let board = Board { graph: Some(graph.clone()), ..Board::default() };
        let scoring = ClusterScoring { board: Arc::new(Mutex::new(board)), desk: desk.clone(), name };
        let ends = Arc::new(AtomicBool::new(false));
        let dir = graph.dir().to_owned();
        let failed = |error: std::io::Error| StoreError::Folder { dir: dir.clone(), reason: error.to_string() };
        std::fs::create_dir_all(dir.join(FOLDER)).map_err(&failed)?;
        let mut teller = Teller {
            graph: graph.clone(),
            spiders: SpiderDesk::new(desk),
            runtime: Handle::current(),
            ends: Arc::clone(&ends),
        };
        let mut work = Work {
            intake: graph.intake()?,
            graph,
            config: config.clone(),
            by,
            scoring: scoring.clone(),
            runtime: Handle::current(),
            frontier,
            metrics,
            ends: Arc::clone(&ends),
            crawled: HashSet::new(),
            strangers: HashMap::new(),
            computed_at: 0,
            last: Instant::now(),
            not_before: Instant::now(),
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let threads = vec![
            thread("scoring").spawn(move || work.run()).map_err(&failed)?,
            thread("links").spawn(move || teller.run()).map_err(&failed)?,
        ];
        Ok((scoring.clone(), ScoringThread { ends, threads, scoring }))
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page graph of this node.
    pub fn graph(&self) -> Option<PageGraph> {
        self.board().graph.clone()
    }

    /// Has scores computed now; says how many pages that moved here.
    pub async fn compute_now(&self, by: &str) -> Result<u64, String> {
        if by != self.name {
            let name = self.name;
            return Err(format!(
                "the queues of this cluster go by {name}; change [score] by in the settings of its nodes"
            ));
        }
        let before = {
            let mut board = self.board();
            board.wanted = true;
            board.computed
        };
        for _ in 0..NOW_PATIENCE.as_millis() / AGAIN_AFTER.as_millis() {
            tokio::time::sleep(AGAIN_AFTER).await;
            let board = self.board();
            if board.computed > before {
                return Ok(board.moved);
            }
        }
        Err("scores are not computed yet: some node does not take part; it is tried again".to_owned())
    }

    /// Tells all living nodes to begin a ranking; `None` if not all of them do.
    async fn begin(&self, wish: Option<Wish>) -> Option<(u64, Vec<NodeId>)> {
        let places = self.desk.places().await.ok()?;
        let me = self.desk.me();
        let members: Vec<NodeId> =
            places.alive.iter().copied().chain([me]).collect::<BTreeSet<_>>().into_iter().collect();
        // Newer than any before it, and no two nodes begin the same.
        let number = unix_ms() << 12 | (me.0 & 0xfff);
        let ring = ring_digest(&places, &members);
        let begin = match wish {
            None => RankAsk::Begin { number, members: members.clone(), ring },
            Some(wish) => RankAsk::BeginWish { number, members: members.clone(), ring, wish },
        };
        let calls = members.iter().map(|member| self.desk.ask(*member, Ask::Rank(begin.clone())));
        let said = futures_util::future::join_all(calls).await;
        let agreed = said.iter().filter(|said| matches!(said, Ok(Said::Rank(RankSaid::Begun(true))))).count();
        if agreed == members.len() {
            return Some((number, members));
        }
        info!(agreed, members = members.len(), "not every node takes part in computing scores; it is tried again");
        let mut board = self.board();
        if board.ordered.as_ref().is_some_and(|ordered| ordered.number == number) {
            board.ordered = None;
        }
        None
    }

    /// Has all nodes compute a ranking that somebody wants to see; says its number.
    pub async fn rank(&self, wish: Wish) -> Result<u64, String> {
        wish.fault().map_or(Ok(()), Err)?;
        let (number, members) = self.begin(Some(wish)).await.ok_or("not every node takes part; ask again")?;
        self.board().wished = Some((number, members));
        Ok(number)
    }

    /// The best pages of that ranking, best first; `None` as long as it goes on.
    pub async fn ranked(&self, number: u64, top: u32) -> Result<Option<Vec<Best>>, String> {
        const GIVEN_UP: &str = "the ranking was given up: a node died, or scores are computed anew; ask again";
        let wished = self.board().wished.clone();
        let (_, members) = wished.filter(|(wished, _)| *wished == number).ok_or(GIVEN_UP)?;
        let calls = members.iter().map(|member| self.desk.ask(*member, Ask::Rank(RankAsk::Best { number })));
        let mut best = Vec::new();
        for said in futures_util::future::join_all(calls).await {
            match said.map_err(|error| error.to_string())? {
                Said::Rank(RankSaid::Best(some)) => best.extend(some),
                Said::Rank(RankSaid::Reply(Reply::NotYet)) => return Ok(None),
                _ => return Err(GIVEN_UP.to_owned()),
            }
        }
        Ok(Some(best_of(best, top)))
    }

    async fn begun(&self, order: Order) -> RankSaid {
        let places = self.desk.places().await.ok();
        let sees_the_same = places.is_some_and(|places| {
            order.members.iter().all(|member| places.alive.contains(member))
                && ring_digest(&places, &order.members) == order.ring
        });
        let mut board = self.board();
        let is_newer =
            board.ordered.as_ref().is_none_or(|ordered| ordered.number < order.number) && board.number < order.number;
        if sees_the_same && is_newer {
            board.ordered = Some(order);
        }
        RankSaid::Begun(sees_the_same && is_newer)
    }

    /// Answers another node.
    pub async fn answer(&self, ask: RankAsk) -> RankSaid {
        match ask {
            RankAsk::Begin { number, members, ring } => self.begun(Order { number, members, ring, wish: None }).await,
            RankAsk::BeginWish { wish, .. } if wish.fault().is_some() => RankSaid::Begun(false),
            RankAsk::BeginWish { number, members, ring, wish } => {
                self.begun(Order { number, members, ring, wish: Some(wish) }).await
            }
            RankAsk::Best { number } => {
                let board = self.board();
                match &board.shown {
                    Some((shown, best)) if *shown == number => {
                        best.clone().map_or(RankSaid::Reply(Reply::Unknown), RankSaid::Best)
                    }
                    _ if board.number == number
                        || board.ordered.as_ref().is_some_and(|ordered| ordered.number == number) =>
                    {
                        RankSaid::Reply(Reply::NotYet)
                    }
                    _ => RankSaid::Reply(Reply::Unknown),
                }
            }
            RankAsk::Draw { from, question } => {
                let stands = {
                    let board = self.board();
                    let comes = board.ordered.as_ref().is_some_and(|ordered| ordered.number == question.ranking);
                    match board.number == question.ranking {
                        true => board.stands.clone(),
                        false if comes => Stands::Prepares,
                        false => Stands::Over,
                    }
                };
                let part = match stands {
                    Stands::Over => return RankSaid::Reply(Reply::Unknown),
                    Stands::Prepares => return RankSaid::Reply(Reply::NotYet),
                    Stands::Takes(part) => part,
                };
                // Whoever computes the next numbers has the part for itself meanwhile, as long as that may be.
                let answer = move || match part.try_read() {
                    Ok(part) => part.ranking.answer(from, question),
                    Err(TryLockError::Poisoned(_)) => Reply::Unknown,
                    Err(TryLockError::WouldBlock) => Reply::NotYet,
                };
                RankSaid::Reply(tokio::task::spawn_blocking(answer).await.unwrap_or(Reply::Unknown))
            }
        }
    }
}

fn read(part: &RwLock<Part>) -> std::sync::RwLockReadGuard<'_, Part> {
    part.read().unwrap_or_else(PoisonError::into_inner)
}

/// Whose each slot is, as one number: members must agree on it.
fn ring_digest(places: &ClientPlaces, members: &[NodeId]) -> u64 {
    let passed_over: BTreeSet<NodeId> = places.alive.iter().copied().filter(|node| !members.contains(node)).collect();
    let mut hasher = blake3::Hasher::new();
    for slot in (0..SLOTS).map(Slot) {
        hasher.update(&owner(places, slot, &passed_over).map_or(0, |node| node.0).to_le_bytes());
    }
    u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight of thirty-two bytes"))
}

/// Waits that long, or until all is to end.
fn rest(ends: &AtomicBool, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && !ends.load(Relaxed) {
        std::thread::sleep(AGAIN_AFTER);
    }
}

/// Tells keepers of pages what was found on them. A row is removed when W of their disks have it, so that a kill costs nothing but telling it again.
struct Teller {
    graph: PageGraph,
    spiders: SpiderDesk,
    runtime: Handle,
    ends: Arc<AtomicBool>,
}

impl Teller {
    fn run(&mut self) {
        while !self.ends.load(Relaxed) {
            match self.tell() {
                Ok(true) => {}
                Ok(false) => rest(&self.ends, LOOK_EVERY),
                Err(error) => {
                    warn!(error, "links of pages are told to their keepers later");
                    rest(&self.ends, AFTER_FAILURE);
                }
            }
        }
    }

    /// Says whether there was anything to tell.
    fn tell(&self) -> Result<bool, String> {
        let (rows, next) = self.graph.untold(TOLD_ROWS).map_err(|error| error.to_string())?;
        if rows.is_empty() {
            return Ok(false);
        }
        self.runtime.block_on(self.spiders.links(rows)).map_err(|error| error.to_string())?;
        self.graph.told(next).map_err(|error| error.to_string())?;
        Ok(true)
    }
}

struct Work {
    graph: PageGraph,
    intake: Intake,
    config: ScoreConfig,
    by: By,
    scoring: ClusterScoring,
    runtime: Handle,
    frontier: Link<Rescored>,
    metrics: ScoreMetrics,
    ends: Arc<AtomicBool>,
    /// Pages of the graph that were crawled since: with OPIC they hand on what they have.
    crawled: HashSet<u32>,
    /// What pages of ours have for OPIC that only others link to.
    strangers: HashMap<Vec<u8>, Purse>,
    /// Pages that were crawled when scores were last computed.
    computed_at: u32,
    last: Instant,
    not_before: Instant,
}

impl Work {
    fn run(&mut self) {
        while !self.ends.load(Relaxed) {
            if let Err(error) = self.turn() {
                warn!(%error, "scores are left as they are");
                self.not_before = Instant::now() + AFTER_FAILURE;
            }
            let until = Instant::now() + LOOK_EVERY;
            while Instant::now() < until && !self.ends.load(Relaxed) && !self.is_called() {
                std::thread::sleep(AGAIN_AFTER);
            }
        }
        if let Err(error) = self.take_in() {
            warn!(%error, "what was found last is taken in at the next start");
        }
    }

    fn is_ordered(&self) -> bool {
        self.scoring.board().ordered.is_some()
    }

    /// Whether there is something to be done at once.
    fn is_called(&self) -> bool {
        let board = self.scoring.board();
        board.ordered.is_some() || (board.wanted && Instant::now() >= self.not_before)
    }

    fn take_in(&mut self) -> Result<(), StoreError> {
        let Work { graph, intake, by, crawled, .. } = self;
        let notes = *by == By::Opic;
        while graph.take_in(intake, |page, _| {
            if notes {
                crawled.insert(page);
            }
        })? > 0
        {}
        let counts = self.intake.counts();
        self.metrics.observe(counts.pages, counts.links, self.graph.left_out());
        Ok(())
    }

    fn turn(&mut self) -> Result<(), ListsError> {
        self.take_in()?;
        let crawled = self.intake.counts().crawled;
        let ago = self.last.elapsed();
        let is_wanted = self.scoring.board().wanted || self.config.is_due(crawled, self.computed_at, ago);
        if is_wanted
            && !self.is_ordered()
            && Instant::now() >= self.not_before
            && self.runtime.block_on(self.scoring.begin(None)).is_none()
        {
            self.not_before = Instant::now() + AFTER_FAILURE;
        }
        let order = {
            let mut board = self.scoring.board();
            let Some(order) = board.ordered.take() else { return Ok(()) };
            (board.stands, board.number) = (Stands::Prepares, order.number);
            order
        };
        let begun = Instant::now();
        let taken = self.take_part(&order);
        if !matches!(taken, Ok(Some(_))) {
            self.scoring.board().stands = Stands::Over; // nobody is to wait for it
        }
        if let Some(wish) = &order.wish {
            let best = match &taken {
                Ok(Some((part, _))) => self.best(part, wish).map(Some),
                _ => Ok(None),
            };
            let shown = best.as_ref().map_or(None, Clone::clone);
            self.scoring.board().shown = Some((order.number, shown));
            taken?;
            return Ok(best.map(drop)?);
        }
        match taken? {
            None => self.not_before = Instant::now() + AFTER_FAILURE,
            Some((part, loops)) => {
                let moved = self.steer(&part)?;
                self.keep(&part, crawled);
                {
                    let mut board = self.scoring.board();
                    (board.wanted, board.moved) = (false, moved);
                    board.computed += 1;
                }
                (self.computed_at, self.last) = (crawled, Instant::now());
                let (pages, milliseconds) = (read(&part).ranking.scores().1, begun.elapsed().as_millis() as u64);
                let members = order.members.len();
                info!(by = self.config.by.name(), pages, members, loops, moved, milliseconds, "scores computed");
                self.metrics.updated(begun.elapsed());
            }
        }
        Ok(())
    }

    /// Takes part until it has ended; `None` if it is given up.
    fn take_part(&mut self, order: &Order) -> Result<Option<Done>, ListsError> {
        let desk = self.scoring.desk.clone();
        let Ok(places) = self.runtime.block_on(desk.places()) else { return Ok(None) };
        if ring_digest(&places, &order.members) != order.ring {
            // Others have taken their parts by what was agreed on: a page would be two nodes' or nobody's.
            info!(ranking = order.number, "a ranking is given up: slots have other owners since it was begun");
            return Ok(None);
        }
        let part = Arc::new(RwLock::new(self.prepare(order, &places)?));
        self.scoring.board().stands = Stands::Takes(Arc::clone(&part));
        let begun = Instant::now();
        let now_ms = || begun.elapsed().as_millis() as u64;
        let mut patience = Patience::new(PATIENCE.as_millis() as u64, now_ms());
        loop {
            let (standing, wants) = {
                let part = read(&part);
                if let Some(failure) = part.ranking.failure() {
                    return Err(failure.clone().into());
                }
                (part.ranking.standing(), part.ranking.wants())
            };
            if let Standing::Ended(loops) = standing {
                return Ok(Some((part, loops)));
            }
            let overtaken = self.scoring.board().ordered.as_ref().is_some_and(|ordered| ordered.number > order.number);
            let alive = self.runtime.block_on(desk.places()).map(|places| places.alive);
            let lost = alive
                .is_ok_and(|alive| order.members.iter().any(|member| *member != desk.me() && !alive.contains(member)));
            if overtaken || lost || patience.is_over(now_ms()) || self.ends.load(Relaxed) {
                info!(ranking = order.number, overtaken, lost, "a ranking is given up");
                return Ok(None);
            }
            let me = desk.me();
            let calls = wants.iter().map(|(member, question)| {
                let (member, question) = (*member, *question);
                let call = desk.ask(member, Ask::Rank(RankAsk::Draw { from: me, question }));
                async move { (member, question, call.await) }
            });
            let said = self.runtime.block_on(futures_util::future::join_all(calls));
            let mut heard = Heard::default();
            for (member, question, said) in said {
                match said {
                    Ok(Said::Rank(RankSaid::Reply(Reply::Unknown))) => heard.unknown = true,
                    Ok(Said::Rank(RankSaid::Reply(Reply::NotYet))) => heard.not_yet = true,
                    Ok(Said::Rank(RankSaid::Reply(reply))) => {
                        heard.numbers |= self.hear(&part, member, question, reply)?;
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            patience.heard(heard, now_ms());
            if !heard.numbers {
                std::thread::sleep(AGAIN_AFTER);
            }
        }
    }

    fn hear(&self, part: &RwLock<Part>, member: NodeId, question: Question, reply: Reply) -> Result<bool, StoreError> {
        let mut failed = None;
        let mut part = part.write().unwrap_or_else(PoisonError::into_inner);
        let Part { ranking, mine, ours, strangers } = &mut *part;
        let changed = ranking.heard(member, question, reply, |name| {
            let key = UrlKey::checked(name)?;
            let known = match self.graph.page(&key) {
                Ok(row) => row.and_then(|row| mine.get(row.number as usize).copied()),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            };
            if let Some(known) = known.filter(|number| *number != FOREIGN) {
                return Some(known);
            }
            let next = *ours + strangers.len() as u32;
            Some(*strangers.entry(name.to_vec()).or_insert(next))
        });
        failed.map_or(Ok(changed), Err)
    }

    /// The best of our pages in a ranking that has ended.
    fn best(&self, part: &RwLock<Part>, wish: &Wish) -> Result<Vec<Best>, StoreError> {
        let part = read(part);
        let scores = if wish.hubs { part.ranking.hubs() } else { part.ranking.scores().0 };
        let least = {
            let mut sorted: Vec<f64> = scores.to_vec();
            let place = (wish.top as usize).min(sorted.len()).saturating_sub(1);
            match sorted.is_empty() {
                true => return Ok(Vec::new()),
                false => *sorted.select_nth_unstable_by(place, |a, b| b.total_cmp(a)).1,
            }
        };
        // Those beyond the last place only if they equal it: whose keys are first is seen when these are known.
        let is_among = |ours: u32| scores.get(ours as usize).filter(|score| **score >= least).copied();
        let mut best = Vec::new();
        for (number, ours) in (0..).zip(part.mine.iter()) {
            if let Some(score) = is_among(*ours) {
                best.extend(self.graph.key(number)?.map(|key| (score, key.into_bytes())));
            }
        }
        best.extend(part.strangers.iter().filter_map(|(key, ours)| Some((is_among(*ours)?, key.clone()))));
        Ok(best_of(best, wish.top))
    }

    /// Our part of the graph: pages of our slots, by the members' view of whose these are.
    fn prepare(&self, order: &Order, places: &ClientPlaces) -> Result<Part, ListsError> {
        let me = self.scoring.desk.me();
        let passed_over: BTreeSet<NodeId> =
            places.alive.iter().copied().filter(|node| !order.members.contains(node)).collect();
        let owners: Vec<NodeId> =
            (0..SLOTS).map(|slot| owner(places, Slot(slot), &passed_over).unwrap_or(me)).collect();
        let (by, other_domains_only, content, stop) = match order.wish {
            None => (self.by, self.config.other_domains_only, self.config.use_content, self.by.stop()),
            Some(Wish { by, other_domains_only, content, precision, .. }) => {
                (by, other_domains_only, content, Stop { precision, loops_max: WISH_LOOPS_MAX })
            }
        };
        let mut known: Vec<(&Vec<u8>, Purse)> = Vec::new();
        for (key, purse) in self.strangers.iter().filter(|_| order.wish.is_none()) {
            let Some(page) = UrlKey::checked(key) else { continue };
            if owners[page.slot().0 as usize % owners.len()] == me && self.graph.page(&page)?.is_none() {
                known.push((key, *purse));
            }
        }
        let dir = self.graph.dir().join(FOLDER);
        let wanted = Wanted { out: by == By::Hits, other_domains_only, content };
        let Ours { mine, count, has_row, mut share } = Ours::read(&self.graph, me, &owners, wanted, known.len(), &dir)?;
        let mut strangers = HashMap::new();
        if order.wish.is_none() {
            self.go_on(&mut share, &mine, &has_row)?;
            for (key, purse) in known {
                strangers.insert(key.clone(), count + strangers.len() as u32);
                share.purses.push(purse);
            }
        }
        let machine = Arc::new(Threads::new(self.config.threads, dir));
        let ranking = Ranking::new(order.number, me, &order.members, by, stop, share, machine);
        Ok(Part { ranking, mine: Arc::new(mine), ours: count, strangers })
    }

    /// From where on our pages are computed: what they had the last time.
    fn go_on(&self, share: &mut Share, mine: &[u32], has_row: &[bool]) -> Result<(), StoreError> {
        let dir = self.graph.dir().join(FOLDER);
        let ours =
            || (0..).zip(mine.iter()).filter(|(_, ours)| **ours != FOREIGN).map(|(page, ours)| (page, *ours as usize));
        if self.by == By::Opic {
            let kept = read_state(&purses_file(&dir)).map(|(_, kept)| kept).unwrap_or_default();
            share.purses = vec![Purse::default(); has_row.len()];
            for (page, ours) in ours() {
                let purse = &mut share.purses[ours];
                match kept.get(page * 2..page * 2 + 2) {
                    Some([cash, history]) if cash + history > 0.0 => (purse.cash, purse.history) = (*cash, *history),
                    // Who has nothing and had nothing was another node's, or is new.
                    _ if self.strangers.is_empty() => {}
                    _ => {
                        let key = self.graph.key(page as u32)?;
                        *purse = key.and_then(|key| self.strangers.get(key.as_bytes()).copied()).unwrap_or_default();
                    }
                }
                // A page that was crawled and has handed nothing on was crawled before the last start.
                purse.hands_on = has_row[ours] && (purse.history == 0.0 || self.crawled.contains(&(page as u32)));
            }
            return Ok(());
        }
        let kept = read_state(&state_file(&dir, self.scoring.name)).map(|(_, kept)| kept).unwrap_or_default();
        let mut before = vec![0.0; has_row.len()];
        for (page, ours) in ours() {
            before[ours] = kept.get(page).copied().filter(|score| score.is_finite()).unwrap_or(0.0);
        }
        share.before = before.into();
        Ok(())
    }

    /// Keeps the scores of our pages for the next time, and for whoever looks into the folder.
    fn keep(&mut self, part: &RwLock<Part>, crawled: u32) {
        let part = read(part);
        let (scores, _) = part.ranking.scores();
        let score = |ours: &u32| scores.get(*ours as usize).copied().unwrap_or(0.0);
        let all: Vec<f64> = part.mine.iter().map(score).collect();
        if self.by == By::Opic {
            let purse = |ours: &u32| part.ranking.purses().get(*ours as usize).copied();
            let strangers = part.strangers.iter().filter_map(|(key, ours)| Some((key.clone(), purse(ours)?)));
            self.strangers = strangers.collect();
            self.crawled.clear();
        }
        let dir = self.graph.dir().join(FOLDER);
        let kept = std::fs::create_dir_all(&dir).and_then(|()| {
            if self.by == By::Opic {
                let purse =
                    |ours: &u32| part.ranking.purses().get(*ours as usize).map_or([0.0; 2], |p| [p.cash, p.history]);
                let purses: Vec<f64> = part.mine.iter().flat_map(purse).collect();
                write_state(&purses_file(&dir), crawled, &purses)?;
            }
            let file = if self.by == By::Opic { scores_file(&dir) } else { state_file(&dir, self.scoring.name) };
            write_state(&file, crawled, &all)
        });
        if let Err(error) = kept {
            warn!(%error, dir = %dir.display(), "scores are not kept");
        }
    }

    /// Tells the owners of queues which of our waiting pages have another level, and has those of our own queues moved; says how many.
    fn steer(&self, part: &RwLock<Part>) -> Result<u64, StoreError> {
        // Not under the lock: others may still draw the last numbers.
        let (scores, pages, mine, strangers) = {
            let part = read(part);
            let (scores, pages) = part.ranking.scores();
            (scores.to_vec(), pages, Arc::clone(&part.mine), part.strangers.clone())
        };
        let spiders = SpiderDesk::new(self.scoring.desk.clone());
        let (mut told, mut moved) = (Vec::new(), 0);
        let mut tell = |told: &mut Vec<(UrlKey, i16)>| match self.runtime.block_on(spiders.worth(std::mem::take(told)))
        {
            Ok(count) => moved += count,
            Err(error) => warn!(%error, "pages keep their places until scores are computed again"),
        };
        let level_of = |key: &UrlKey, number: Option<u32>| {
            let ours = number.and_then(|number| mine.get(number as usize).copied()).filter(|ours| *ours != FOREIGN);
            let ours = ours.or_else(|| strangers.get(key.as_bytes()).copied());
            let score = ours.and_then(|ours| scores.get(ours as usize))?;
            Some(level(*score, pages as usize))
        };
        self.graph.each_waiting_page(|key, number, before| {
            let Some(now) = level_of(&key, number) else { return !self.ends.load(Relaxed) };
            if now != before {
                told.push((key, now));
                if told.len() >= TOLD_AT_ONCE {
                    tell(&mut told);
                }
            }
            !self.ends.load(Relaxed)
        })?;
        if !told.is_empty() {
            tell(&mut told);
        }
        self.graph.each_level(level_of, |moves| {
            let (done, answer) = oneshot::channel();
            // A frontier that is being replaced: what is not moved now is moved the next time.
            let taken = self.frontier.pass(Rescored { moves, done }).is_ok();
            let count = if taken { answer.blocking_recv().ok() } else { None };
            moved += count.unwrap_or(0) as u64;
            count.is_some() && !self.ends.load(Relaxed)
        })?;
        self.metrics.moved(moved);
        Ok(moved)
    }
}
