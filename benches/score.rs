//! The page graph and scores: how fast pages are added, what a link takes on disk, what a loop of PageRank and of HITS costs, and what
//! adding loses while scores are computed; and how fast spiders are told what to fetch.
//!
//! A loop is measured over the lists that are read from the stored graph for an update; what an update costs with that reading is told beside it.
//! Pages are told to the store as the crawl does (a row of links in a synced batch of a thousand pages), and taken into the graph by the code of the
//! scoring thread. URLs are parsed outside the measurement. Bars are in processor time, as the machine is rarely ours alone.
//!
//! `cargo bench -p benches --bench score`; the larger graph of the bars: `-- --pages 5000000`

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use benches::{MIB, memory, own_cpu, thread_cpu, verdict};
use clap::Parser;
use node::config::score::ScoreConfig;
use node::edges::cores::Threads;
use node::edges::store::{Intake, PageGraph, Store, StoreOptions};
use node::scoring::lists::{LinkLists, Wanted};
use proto::batch::{Discovered, EntryKind};
use proto::key::DEFAULT_CRAWL;
use proto::score::hits::Hits;
use proto::score::pagerank::PageRank;
use proto::score::{Scorer, Stop};
use proto::url::{CanonicalUrl, UrlRules};
use simulation::world::graph::PageWorld;

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

    // The last tenth is added once more below.
    let part = arguments.pages / 10;
    let added = bench.add(0, arguments.pages - part)?;
    added.show("adding", arguments.pages - part);
    let rate = added.per_cpu(arguments.pages - part);
    verdict("pages added a processor second", format!("{rate:.0}"), "50,000", rate >= 50_000.0);
    bench.add_beside_scores(arguments.pages - part, part, dir.path())?;
    bench.store.compact()?;
    let counts = bench.graph.counts()?;
    println!("{} pages, {} links in the graph", counts.pages, counts.links);
    let bytes = bench.graph.row_bytes()? as f64 / counts.links.max(1) as f64;
    verdict("bytes a link on disk", format!("{bytes:.2}"), "4", bytes <= 4.0);
    bench.compute(&mut PageRank::default(), "PageRank", 100.0, &arguments, dir.path())?;
    bench.compute(&mut Hits::default(), "HITS", 60.0, &arguments, dir.path())?;
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
    /// Tells of pages and takes them in.
    fn add(&mut self, first: u32, count: u32) -> anyhow::Result<Took> {
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
            CanonicalUrl::parse(&self.world.url(page), &UrlRules::default())
                .map_err(|error| anyhow::anyhow!("{error:?}"))
        };
        let found = |page: &u32| {
            Ok(Discovered { url: url(*page)?, kind: EntryKind::Page, depth: 1, priority: 100, redirects: 0 })
        };
        Ok((url(page)?, links.iter().map(found).collect::<anyhow::Result<_>>()?))
    }

    /// Adds while another thread computes scores of what is there, over and over; against as many pages without that, before and after, as a graph that grows is slower by itself.
    fn add_beside_scores(&mut self, first: u32, count: u32, dir: &Path) -> anyhow::Result<()> {
        let part = count / 3;
        let before = self.add(first, part)?;
        let graph = self.graph.clone();
        let (beside, updates) = beside_scores(&graph, dir, || self.add(first + part, part))?;
        let after = self.add(first + 2 * part, count - 2 * part)?;
        (before + after).show("adding without scores", count - part);
        beside.show("adding beside scores", part);
        println!("adding beside scores: {updates} updates meanwhile");
        let alone = (before + after, count - part);
        verdict_loss("adding", alone, (beside, part));
        Ok(())
    }

    fn compute(
        &self,
        scorer: &mut dyn Scorer,
        name: &str,
        bar: f64,
        arguments: &Arguments,
        dir: &Path,
    ) -> anyhow::Result<()> {
        let wanted = Wanted { out: scorer.needs_out(), ..Wanted::default() };
        let (lists, read) = measured(|| Ok(LinkLists::read(&self.graph, wanted, dir)?))?;
        let (graph, cores) = (lists.graph()?, Threads::new(0, dir));
        let links = graph.into.links() as f64;
        println!("{name}: graph read in {:.2} s, {:.2} processor s", read.wall.as_secs_f64(), read.cpu.as_secs_f64());
        let stop = Stop { precision: 0.0, loops_max: arguments.loops };
        let (done, took) = measured(|| Ok(scorer.update(&graph, &stop, &cores)?))?;
        let loops = f64::from(done.loops);
        let (wall, cpu) = (took.wall.as_secs_f64() / loops, took.cpu.as_secs_f64() / loops);
        let rate = links / cpu / 1e6;
        println!("{name}: {wall:.3} s a loop, {cpu:.3} processor s");
        verdict(&format!("{name}: million links a processor second"), format!("{rate:.0}"), bar, rate >= bar);
        let all = links * loops / (read.cpu + took.cpu).as_secs_f64() / 1e6;
        println!(
            "{name}: {all:.0} million links a processor second with reading the stored graph once for {loops} loops"
        );
        let whole = Stop::default();
        let (done, took) = measured(|| Ok(scorer.update(&graph, &whole, &cores)?))?;
        println!(
            "{name}: {} loops more until the change is below {:e}, {:.2} s, {:.2} processor s",
            done.loops,
            whole.precision,
            took.wall.as_secs_f64(),
            took.cpu.as_secs_f64()
        );
        Ok(())
    }
}

/// Does something while another thread computes scores of what is there, over and over; says how often.
fn beside_scores<T>(
    graph: &PageGraph,
    dir: &Path,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, u32)> {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scoring = scope.spawn(|| {
            let (config, mut scorer) = (ScoreConfig { threads: 1, ..ScoreConfig::default() }, PageRank::default());
            let mut updates = 0;
            while !end.load(Relaxed) {
                // A graph that grows under it is read again; the scoring thread never does both at once.
                updates += u32::from(node::scoring::compute(&mut scorer, graph, &config, dir).is_ok());
            }
            updates
        });
        let done = work();
        end.store(true, Relaxed);
        let updates = scoring.join().map_err(|_| anyhow::anyhow!("the scores failed"))?;
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
