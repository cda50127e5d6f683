//! Scoring: a thread that keeps the page graph, computes scores when there is enough that is new, and has the queues go by them.
//!
//! Once a second it takes in what the crawl has found. When a hundred pages and a hundredth of all are new ([`ScoreConfig`]) it reads the graph
//! as lists, computes from where the last time ended, and looks at every entry that waits: one whose level is another goes to another place in its queue.
//! That goes through the frontier, a thousand entries at a time, and the next thousand waits until those are on disk.
//! A node of a cluster does that together with the others ([`cluster`]).
//! It shares nothing with the actors but the database, and nothing waits for it. If it fails, the crawl goes on by the scores it has.

pub mod cluster;
pub mod known;
pub mod lists;
pub mod part;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use proto::score::priority::{level, priority};
use proto::score::{Computed, Graph, Lists, OneCore, Scorer, Stop};
use tokio::sync::oneshot;
use tracing::{info, warn};

use self::lists::{LinkLists, ListsError, Wanted};
use crate::config::score::{ScoreBy, ScoreConfig};
use crate::edges::cores::Threads;
use crate::edges::store::{Intake, Move, PageGraph, PageRow, StoreError};
use crate::messages::Rescored;
use crate::metrics::score::ScoreMetrics;
use crate::supervisor::Link;

/// How often what the crawl found is taken in.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The folder below the data folder where scores are kept.
pub const FOLDER: &str = "score";

/// A scoring thread that runs.
pub struct Scoring {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Scoring {
    /// Starts the thread; `None` if queues do not go by scores.
    pub fn start(
        graph: PageGraph,
        config: &ScoreConfig,
        frontier: Link<Rescored>,
        metrics: ScoreMetrics,
    ) -> Result<Option<Scoring>, StoreError> {
        let Some(scorer) = config.scorer() else { return Ok(None) };
        let dir = graph.dir().join(FOLDER);
        let failed = |error: std::io::Error| StoreError::Folder { dir: dir.clone(), reason: error.to_string() };
        std::fs::create_dir_all(&dir).map_err(failed)?;
        let mut work = Work {
            intake: graph.intake()?,
            file: state_file(&dir, config.by.name()),
            dir: dir.clone(),
            graph,
            config: config.clone(),
            scorer,
            frontier,
            metrics,
            computed_at: 0,
        };
        work.resume()?;
        let (end, ended) = channel();
        let thread =
            std::thread::Builder::new().name("scoring".into()).spawn(move || work.run(&ended)).map_err(failed)?;
        Ok(Some(Scoring { end, thread }))
    }

    /// Has it take in what is left, and waits until it has. The actors must still be there.
    pub fn stop(self) {
        drop(self.end);
        if self.thread.join().is_err() {
            warn!("the scoring thread did not end well");
        }
    }
}

struct Work {
    graph: PageGraph,
    intake: Intake,
    config: ScoreConfig,
    scorer: Box<dyn Scorer>,
    frontier: Link<Rescored>,
    metrics: ScoreMetrics,
    dir: PathBuf,
    file: PathBuf,
    /// Pages that were crawled when scores were last computed.
    computed_at: u32,
}

impl Work {
    fn run(&mut self, ended: &Receiver<()>) {
        let mut last = Instant::now();
        loop {
            let ends = !matches!(ended.recv_timeout(LOOK_EVERY), Err(RecvTimeoutError::Timeout));
            if let Err(error) = self.turn(&mut last, ends, ended) {
                warn!(%error, "scores are left as they are");
            }
            if ends {
                return;
            }
        }
    }

    /// Takes in what is there, and computes if it is time.
    fn turn(&mut self, last: &mut Instant, ends: bool, ended: &Receiver<()>) -> Result<(), ListsError> {
        let Work { graph, intake, scorer, .. } = self;
        while graph.take_in(intake, |page, links| scorer.crawled(page, links))? > 0 {}
        let counts = self.intake.counts();
        self.metrics.observe(counts.pages, counts.links, self.graph.left_out());
        if ends {
            self.keep();
            return Ok(());
        }
        if !self.config.is_due(counts.crawled, self.computed_at, last.elapsed()) {
            return Ok(());
        }
        let begun = Instant::now();
        let done = compute(&mut *self.scorer, &self.graph, &self.config, &self.dir)?;
        (self.computed_at, *last) = (counts.crawled, Instant::now());
        let moved = self.steer(ended)?;
        let (pages, links, milliseconds) = (counts.pages, counts.links, begun.elapsed().as_millis() as u64);
        info!(by = self.config.by.name(), pages, links, loops = done.loops, moved, milliseconds, "scores computed");
        self.metrics.updated(begun.elapsed());
        self.keep();
        Ok(())
    }

    /// Has every waiting entry go to the place its score gives it; says how many moved.
    fn steer(&self, ended: &Receiver<()>) -> Result<u64, StoreError> {
        let scores = self.scorer.scores();
        let mut moved = 0;
        self.graph.each_move(
            |page| place_of(page, scores),
            |moves: Vec<Move>| {
                let (done, answer) = oneshot::channel();
                // A frontier that is being replaced: what is not moved now is moved the next time.
                let taken = self.frontier.pass(Rescored { moves, done }).is_ok();
                let count = if taken { answer.blocking_recv().ok() } else { None };
                moved += count.unwrap_or(0) as u64;
                let goes_on = !matches!(ended.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
                count.is_some() && goes_on
            },
        )?;
        self.metrics.moved(moved);
        Ok(moved)
    }

    /// Goes on with what a former start computed.
    fn resume(&mut self) -> Result<(), StoreError> {
        if let Some((crawled, state)) = read_state(&self.file) {
            self.scorer.resume(Box::new(state));
            self.computed_at = crawled.min(self.intake.counts().crawled);
        }
        catch_up(&mut *self.scorer, &self.graph)
    }

    /// Keeps the scores for the next start. They can be computed again, so that nothing is lost with them.
    fn keep(&self) {
        if let Err(error) = write_state(&self.file, self.computed_at, &self.scorer.state()) {
            warn!(%error, file = %self.file.display(), "scores are not kept for the next start");
        }
    }
}

/// Tells a scorer of pages that the graph has and that it lacks: what it knew of them was not kept when the program was killed.
fn catch_up(scorer: &mut dyn Scorer, graph: &PageGraph) -> Result<(), StoreError> {
    if scorer.needs_graph() {
        return Ok(()); // it reads all of it anyway
    }
    graph.each_row(|page, row| {
        if scorer.lacks(page) {
            let links: Vec<u32> = row.collect::<Result<_, _>>().map_err(|error| StoreError::damaged("link", error))?;
            scorer.crawled(page, &links);
        }
        Ok(())
    })
}

/// The priority that a page's score gives it; its own if it has none.
pub fn place_of(page: &PageRow, scores: &[f64]) -> u16 {
    match scores.get(page.number as usize) {
        Some(score) => priority(page.own, level(*score, scores.len())),
        None => page.own,
    }
}

/// Where the scores lie that the scoring thread computed last; by what, if it is the state of a scorer.
fn newest(dir: &Path) -> Option<(PathBuf, Option<ScoreBy>)> {
    let made = |file: PathBuf, by: Option<ScoreBy>| Some((std::fs::metadata(&file).ok()?.modified().ok()?, file, by));
    let files = [ScoreBy::PageRank, ScoreBy::Hits, ScoreBy::Opic].map(|by| (state_file(dir, by.name()), Some(by)));
    let files = files.into_iter().chain([(scores_file(dir), None)]);
    let newest = files.filter_map(|(file, by)| made(file, by)).max_by_key(|(made, ..)| *made)?;
    Some((newest.1, newest.2))
}

/// The scores that the scoring thread computed last and kept in `dir`, by the pages' numbers.
pub fn kept_scores(dir: &Path) -> Option<Vec<f64>> {
    let (file, by) = newest(dir)?;
    let (_, state) = read_state(&file)?;
    let Some(by) = by else { return Some(state) };
    let mut scorer = ScoreConfig { by, ..ScoreConfig::default() }.scorer()?;
    scorer.resume(Box::new(state));
    if !scorer.needs_graph() {
        let nothing = Graph { into: Lists::new(&[0], &[])?, degrees: &[], out: None, content: None };
        scorer.update(&nothing, &Stop::default(), &OneCore).ok()?;
    }
    Some(scorer.scores().to_vec())
}

/// The same scores for who asks for a few of them.
pub enum KeptScores {
    /// They are read from the file.
    There(std::fs::File),
    /// They follow from all that is in the file.
    Here(Vec<f64>),
}

impl KeptScores {
    /// The scores that were kept last in `dir`.
    pub fn open(dir: &Path) -> Option<KeptScores> {
        match newest(dir)? {
            (_, Some(ScoreBy::Opic)) => kept_scores(dir).map(KeptScores::Here),
            (file, _) => std::fs::File::open(file).ok().map(KeptScores::There),
        }
    }

    /// The score of the page with this number.
    pub fn of(&self, page: u32) -> Option<f64> {
        match self {
            KeptScores::Here(scores) => scores.get(page as usize).copied(),
            KeptScores::There(file) => {
                let mut word = [0; 8];
                // Behind the number of pages.
                file.read_exact_at(&mut word, 8 + 8 * u64::from(page)).ok()?;
                Some(f64::from_le_bytes(word)).filter(|score| score.is_finite())
            }
        }
    }
}

/// Brings a scorer up to date with a graph; what is too large for memory goes to files in `dir`.
pub fn compute(
    scorer: &mut dyn Scorer,
    graph: &PageGraph,
    config: &ScoreConfig,
    dir: &Path,
) -> Result<Computed, ListsError> {
    let machine = Threads::new(config.threads, dir);
    if !scorer.needs_graph() {
        let nothing = Lists::new(&[0], &[]).ok_or(ListsError::Contradicts)?;
        let graph = Graph { into: nothing, degrees: &[], out: None, content: None };
        return Ok(scorer.update(&graph, &Stop::default(), &machine)?);
    }
    let ScoreConfig { other_domains_only, use_content: content, .. } = *config;
    let wanted = Wanted { out: scorer.needs_out(), other_domains_only, content };
    let lists = LinkLists::read(graph, wanted, dir)?;
    Ok(scorer.update(&lists.graph()?, &Stop::default(), &machine)?)
}

/// Where the state of a scorer is kept.
fn state_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.state"))
}

/// Where a node of a cluster keeps what its pages have for OPIC, and the scores that follow: what other nodes' pages have is not in it.
fn purses_file(dir: &Path) -> PathBuf {
    dir.join("opic.purses")
}

fn scores_file(dir: &Path) -> PathBuf {
    dir.join("opic.scores")
}

/// Pages that were crawled when it was computed, then the numbers, eight bytes each.
fn write_state(file: &Path, crawled: u32, state: &[f64]) -> std::io::Result<()> {
    let fresh = file.with_extension("new");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&fresh)?);
    out.write_all(&u64::from(crawled).to_le_bytes())?;
    for number in state {
        out.write_all(&number.to_le_bytes())?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(&fresh, file)
}

fn read_state(file: &Path) -> Option<(u32, Vec<f64>)> {
    let bytes = std::fs::read(file).ok()?;
    let mut words = bytes.chunks_exact(8).map(|word| word.try_into().expect("eight bytes"));
    let crawled = u32::try_from(u64::from_le_bytes(words.next()?)).ok()?;
    Some((crawled, words.map(f64::from_le_bytes).collect()))
}

#[cfg(test)]
mod tests {
    use proto::batch::{Discovered, EntryKind};
    use proto::key::DEFAULT_CRAWL;
    use proto::score::opic::Opic;
    use proto::url::{CanonicalUrl, UrlRules};

    use super::*;
    use crate::edges::store::{Store, StoreOptions};

    #[test]
    fn pages_that_were_crawled_before_a_kill_hand_on_what_they_have() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions { graph: true, ..StoreOptions::default() };
        let mut store = Store::open(dir.path(), options).unwrap();
        let url = |page: u32| CanonicalUrl::parse(&format!("http://a.example/{page}"), &UrlRules::default()).unwrap();
        let graph = store.graph();
        let (mut intake, mut scorer) = (graph.intake().unwrap(), Opic::default());
        let mut crawl = |page: u32, to: u32, scorer: &mut Opic| {
            let link = Discovered { url: url(to), kind: EntryKind::Page, depth: 1, priority: 100, redirects: 0 };
            let mut change = store.change();
            change.tell_links(DEFAULT_CRAWL, &url(page), 100, &[link], 1_000);
            change.commit().unwrap();
            graph.take_in(&mut intake, |page, links| scorer.crawled(page, links)).unwrap();
        };
        crawl(0, 9, &mut scorer);
        let kept = scorer.state().into_owned();
        crawl(1, 9, &mut scorer); // and then the program is killed
        let mut resumed = Opic::default();
        resumed.resume(Box::new(kept));
        catch_up(&mut resumed, &graph).unwrap();
        let purses = |scorer: &Opic| scorer.state().iter().map(|of| (of * 1e9).round()).collect::<Vec<f64>>();
        assert_eq!(purses(&resumed), purses(&scorer), "cash that page 1 had is handed on");
        catch_up(&mut resumed, &graph).unwrap();
        assert_eq!(purses(&resumed), purses(&scorer), "once");
    }

    #[test]
    fn a_few_scores_are_those_of_all() {
        let dir = tempfile::tempdir().unwrap();
        assert!(KeptScores::open(dir.path()).is_none() && kept_scores(dir.path()).is_none());
        let same = |dir: &Path, count: u32| {
            let (few, all) = (KeptScores::open(dir).unwrap(), kept_scores(dir).unwrap());
            assert_eq!((0..count).map(|page| few.of(page).unwrap()).collect::<Vec<f64>>(), all);
            assert_eq!(few.of(count), None);
            few
        };
        write_state(&state_file(dir.path(), "pagerank"), 3, &[0.5, 0.3, 0.2]).unwrap();
        assert!(matches!(same(dir.path(), 3), KeptScores::There(_)));
        // What OPIC keeps are purses: cash and history of each page.
        std::fs::remove_file(state_file(dir.path(), "pagerank")).unwrap();
        write_state(&state_file(dir.path(), "opic"), 2, &[1.0, 2.0, 0.5, 0.5]).unwrap();
        assert_eq!(same(dir.path(), 2).of(0), Some(0.75));
    }
}
