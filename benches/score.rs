//! The page graph and scores: what a link takes on disk, what a loop of PageRank and of HITS costs, and what telling the graph loses while scores are computed; and how fast
//! spiders add pages and are told what to fetch.
//!
//! A loop is judged twice: over the lists that were read from the stored graph, and as a part of a whole update, which reads them and begins from nothing.
//! Links are told to the store as the crawl does (a row of links in a synced batch of a thousand pages), and taken into the graph by the code of the
//! scoring thread; what adding a page costs with all that is kept of it is measured in `score/spiders.rs`, a ranking over several nodes in `score/rounds.rs`. URLs are parsed outside the measurement. Bars are in processor time, as
//! the machine is rarely ours alone. Hosts of the graph stand for domains here: of one domain all links would be of one kind, and all pages in one slot.
//!
//! `cargo bench -p benches --bench score`; the larger graph of the bars: `-- --pages 5000000`

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use benches::{MIB, memory, own_cpu, thread_cpu, verdict};
use clap::Parser;
use node::config::score::{ScoreBy, ScoreConfig};
use node::edges::cores::Threads;
use node::edges::store::{Intake, PageGraph, Store, StoreOptions};
use node::scoring;
use node::scoring::lists::{LinkLists, Wanted};
use proto::batch::{Discovered, EntryKind};
use proto::key::DEFAULT_CRAWL;
use proto::score::Stop;
use proto::score::pagerank::PageRank;
use proto::url::{CanonicalUrl, UrlRules};
use simulation::world::graph::PageWorld;

#[path = "score/rounds.rs"]
mod rounds;
#[path = "score/spiders.rs"]
mod spiders;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Pages of one batch, as the disk thread's groups have under load.
const BATCH: u32 = 1_000;

#[derive(Parser)]
struct Arguments {
    /// Pages of the graph
    #[arg(long, default_value_t = 1_000_000)]
    pages: u32,
    /// Loops of each score that are measured
    #[arg(long, default_value_t = 10)]
    loops: u32,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let dir = tempfile::tempdir()?;
    let world = PageWorld::new(arguments.pages, 42);
    let store = Store::open(dir.path(), StoreOptions { graph: true, ..StoreOptions::default() })?;
    let mut bench = Bench { graph: store.graph(), intake: store.graph().intake()?, store, world };

    // The last tenth is told in thirds, one of them while scores are computed.
    let part = arguments.pages / 10;
    let told = bench.tell(0, arguments.pages - part)?;
    told.show("telling the graph", arguments.pages - part);
    bench.tell_beside_scores(arguments.pages - part, part, dir.path())?;
    bench.store.compact()?;
    let counts = bench.graph.counts()?;
    println!("{} pages, {} links in the graph", counts.pages, counts.links);
    let bytes = bench.graph.row_bytes()? as f64 / counts.links.max(1) as f64;
    verdict("bytes a link on disk", format!("{bytes:.2}"), "4", bytes <= 4.0);
    bench.compute(ScoreBy::PageRank, 100.0, &arguments, dir.path())?;
    bench.compute(ScoreBy::Hits, 60.0, &arguments, dir.path())?;
    rounds::run(&bench.graph, arguments.loops, dir.path())?;
    drop(bench);
    spiders::run(arguments.pages)?;
    println!("most memory: {:.0} MiB", memory()?.1 as f64 / MIB);
    Ok(())
}

/// What something took.
#[derive(Clone, Copy, Default)]
struct Took {
    wall: Duration,
    cpu: Duration,
    /// Of it, the thread that worked.
    thread: Duration,
}

impl std::ops::Add for Took {
    type Output = Took;

    fn add(self, other: Took) -> Took {
        Took { wall: self.wall + other.wall, cpu: self.cpu + other.cpu, thread: self.thread + other.thread }
    }
}

impl Took {
    fn per_cpu(&self, count: u32) -> f64 {
        f64::from(count) / self.cpu.as_secs_f64()
    }

    fn show(&self, what: &str, count: u32) {
        let (wall, cpu) = (self.wall.as_secs_f64(), self.cpu.as_secs_f64());
        println!("{what}: {count} pages, {wall:.2} s ({:.0} a second), {cpu:.2} processor s", f64::from(count) / wall);
    }
}

fn measured<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, Took)> {
    let (begun, cpu, thread) = (Instant::now(), own_cpu()?, thread_cpu()?);
    let value = work()?;
    let took = Took { wall: begun.elapsed(), cpu: own_cpu()? - cpu, thread: thread_cpu()? - thread };
    Ok((value, took))
}

struct Bench {
    graph: PageGraph,
    intake: Intake,
    store: Store,
    world: PageWorld,
}

impl Bench {
    /// Tells of the links of pages and takes them in.
    fn tell(&mut self, first: u32, count: u32) -> anyhow::Result<Took> {
        let mut total = Took::default();
        for batch in (first..first + count).step_by(BATCH as usize) {
            let pages: Vec<_> =
                (batch..(batch + BATCH).min(first + count)).map(|order| self.page(order)).collect::<Result<_, _>>()?;
            let ((), took) = measured(|| {
                let mut change = self.store.change();
                for (page, links) in &pages {
                    change.tell_links(DEFAULT_CRAWL, page, 100, links, 1_000);
                }
                change.commit()?;
                while self.graph.take_in(&mut self.intake, |_, _| {})? > 0 {}
                Ok(())
            })?;
            total = total + took;
        }
        Ok(total)
    }

    fn page(&self, order: u32) -> anyhow::Result<(CanonicalUrl, Vec<Discovered>)> {
        let mut links = Vec::new();
        let page = self.world.crawled(order);
        self.world.links(page, &mut links);
        let url = |page: u32| {
            CanonicalUrl::parse(&url(&self.world, page), &UrlRules::default())
                .map_err(|error| anyhow::anyhow!("{error:?}"))
        };
        let found = |page: &u32| {
            Ok(Discovered { url: url(*page)?, kind: EntryKind::Page, depth: 1, priority: 100, redirects: 0 })
        };
        Ok((url(page)?, links.iter().map(found).collect::<anyhow::Result<_>>()?))
    }

    /// Tells while another thread computes scores of what is there, over and over; against as many pages without that, before and after, as a graph that grows is slower by itself.
    fn tell_beside_scores(&mut self, first: u32, count: u32, dir: &Path) -> anyhow::Result<()> {
        let part = count / 3;
        let before = self.tell(first, part)?;
        let graph = self.graph.clone();
        let (beside, updates) = beside_scores(&graph, dir, || self.tell(first + part, part))?;
        let after = self.tell(first + 2 * part, count - 2 * part)?;
        (before + after).show("telling the graph without scores", count - part);
        beside.show("telling the graph beside scores", part);
        println!("telling the graph beside scores: {updates} updates meanwhile");
        verdict_loss("telling the graph", (before + after, count - part), (beside, part));
        Ok(())
    }

    fn compute(&self, by: ScoreBy, bar: f64, arguments: &Arguments, dir: &Path) -> anyhow::Result<()> {
        let (name, config) = (by.name(), ScoreConfig { by, ..ScoreConfig::default() });
        let mut scorer = config.scorer().context("a scorer")?;
        let wanted = Wanted { out: scorer.needs_out(), ..Wanted::default() };
        let (lists, read) = measured(|| Ok(LinkLists::read(&self.graph, wanted, dir)?))?;
        let (graph, cores) = (lists.graph()?, Threads::new(0, dir));
        let links = graph.into.links() as f64;
        println!("{name}: graph read in {:.2} s, {:.2} processor s", read.wall.as_secs_f64(), read.cpu.as_secs_f64());
        let judge = |what: &str, loops: u32, took: Took| {
            let loops = f64::from(loops);
            let (wall, cpu) = (took.wall.as_secs_f64() / loops, took.cpu.as_secs_f64() / loops);
            let rate = links / cpu / 1e6;
            println!("{name}, {what}: {wall:.3} s a loop, {cpu:.3} processor s");
            verdict(
                &format!("{name}, {what}: million links a processor second"),
                format!("{rate:.0}"),
                bar,
                rate >= bar,
            );
        };
        let stop = Stop { precision: 0.0, loops_max: arguments.loops };
        let (done, took) = measured(|| Ok(scorer.update(&graph, &stop, &cores)?))?;
        judge("lists that are read", done.loops, took);
        drop((scorer, lists));

        // What the scoring thread does the first time: the stored graph is read for it, and it ends by its default precision.
        let mut scorer = config.scorer().context("a scorer")?;
        let (done, took) = measured(|| Ok(scoring::compute(&mut *scorer, &self.graph, &config, dir)?))?;
        let (wall, cpu) = (took.wall.as_secs_f64(), took.cpu.as_secs_f64());
        println!("{name}: a whole update has {} loops, {wall:.2} s, {cpu:.2} processor s", done.loops);
        judge("a whole update from the stored graph", done.loops, took);
        Ok(())
    }
}

/// The URL of a page, with a domain for each host.
fn url(world: &PageWorld, page: u32) -> String {
    world.url(page).replacen(".example.com/", ".example/", 1)
}

/// Does something while another thread computes scores of what is there, over and over, as a node does by default; says how often.
fn beside_scores<T>(
    graph: &PageGraph,
    dir: &Path,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, u32)> {
    let (begun, end) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let scores = scope.spawn(|| -> anyhow::Result<u32> {
            let (config, mut scorer) = (ScoreConfig::default(), PageRank::default());
            let mut updates = 0;
            begun.wait();
            while !end.load(Relaxed) {
                scoring::compute(&mut scorer, graph, &config, dir)?;
                updates += 1;
            }
            Ok(updates)
        });
        begun.wait();
        let done = work();
        end.store(true, Relaxed);
        let updates = scores.join().map_err(|_| anyhow::anyhow!("the thread of scores failed"))??;
        ensure!(updates > 0, "no scores were computed meanwhile: nothing was measured beside them");
        Ok((done?, updates))
    })
}

/// Judges how much slower something is beside scores: by the clock, and by the processor time of the thread that does it, which others on the machine do not take from it.
fn verdict_loss(what: &str, alone: (Took, u32), beside: (Took, u32)) {
    let loss = |time: fn(&Took) -> Duration| {
        let rate = |(took, count): &(Took, u32)| f64::from(*count) / time(took).as_secs_f64();
        100.0 * (1.0 - rate(&beside) / rate(&alone))
    };
    let (clock, thread) = (loss(|took| took.wall), loss(|took| took.thread));
    let names = ["by the clock", "by its thread's processor time"];
    for (name, loss) in names.into_iter().zip([clock, thread]) {
        verdict(&format!("percent that {what} loses beside scores, {name}"), format!("{loss:.0}"), "20", loss <= 20.0);
    }
}
