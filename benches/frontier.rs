//! The frontier on disk: adding and taking, at 1 M and at 10 M known URLs.
//!
//! **Adding.** Lists of links, as pages have them, go the way they go in a node: text → canonical URL → `Change::admit` → one
//! fsynced commit for several lists. Every URL offered counts as discovered; about a fifth was offered before.
//! **Taking.** The frontier core and the disk thread over the filled store, as in a node, without delays, robots.txt and addresses:
//! batches of a thousand, several of them under way, each URL ended as soon as its `select` is on disk. What the core wants to
//! read (sweeps, refills) and to keep (facts of hosts) is read and kept. Nothing is settled on disk: that belongs to fetching.
//!
//! `cargo bench -p benches --bench frontier -- --urls 1000000`. Each size runs in a process of its own, so that
//! memory is its own too.

use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use benches::{Dice, MIB, cpu_of, folder_bytes, forget_peak, memory, verdict, wait};
use clap::Parser;
use node::edges::disk::{Disk, DiskError, DiskOptions, Job};
use node::edges::store::{Store, StoreOptions};
use node::edges::warc::WarcOptions;
use proto::batch::{Discovered, Entry, EntryKind, Pick};
use proto::cluster::lease::Leases;
use proto::crawl::filter::{Filter, FilterRules, Scope};
use proto::crawl::frontier::{Effect, Frontier, FrontierRules, Input, LoadedQueue, Now};
use proto::crawl::politeness::PaceRules;
use proto::crawl::retry::{HostVerdict, RetryRules};
use proto::id::UrlId;
use proto::key::{DEFAULT_CRAWL, Order, QueueKey};
use proto::url::{CanonicalUrl, UrlRules};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// As in the product: RocksDB's C++ and our Rust share one heap.
#[global_allocator]
static HEAP: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const UNIX_MS: u64 = 1_763_262_495_042;

#[derive(Parser)]
struct Arguments {
    /// Known URLs, as often as wanted [default: 1000000 and 10000000]
    #[arg(long)]
    urls: Vec<u64>,
    /// URLs to hand out at each size
    #[arg(long, default_value_t = 500_000)]
    take: u64,
    /// Lists in one commit: the more fetches end while the disk syncs, the more there are
    #[arg(long, default_value_t = 32)]
    lists: usize,
    /// Decides every URL
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure one size in this process and print it as JSON
    #[arg(long, hide = true)]
    alone: bool,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// What one size came to.
#[derive(Default, Serialize, Deserialize)]
struct Measured {
    urls: u64,
    offered: u64,
    url_bytes: u64,
    add_s: f64,
    add_cpu_s: f64,
    settle_s: f64,
    add_rss: u64,
    add_peak: u64,
    disk_flushed: u64,
    disk_compacted: u64,
    compact_s: f64,
    taken: u64,
    take_batches: u64,
    take_s: f64,
    take_cpu_s: f64,
    take_rss: u64,
    take_peak: u64,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = Arguments::parse();
    if arguments.urls.is_empty() {
        arguments.urls = vec![1_000_000, 10_000_000];
    }
    if arguments.alone {
        let dir = tempfile::tempdir()?;
        println!("{}", serde_json::to_string(&measure(dir.path(), &arguments)?)?);
        return Ok(());
    }
    let mut all = Vec::new();
    for urls in &arguments.urls {
        eprintln!("measuring {urls} URLs …");
        all.push(in_own_process(*urls, &arguments)?);
    }
    report(&all);
    Ok(())
}

fn in_own_process(urls: u64, arguments: &Arguments) -> anyhow::Result<Measured> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--alone").stdout(Stdio::piped());
    for (name, value) in
        [("--urls", urls), ("--take", arguments.take), ("--lists", arguments.lists as u64), ("--seed", arguments.seed)]
    {
        command.args([name, &value.to_string()]);
    }
    let mut child = command.spawn()?;
    let said = std::io::read_to_string(child.stdout.take().context("its output is piped")?)?;
    wait(&child)?;
    Ok(serde_json::from_str(&said)?)
}

fn measure(dir: &Path, arguments: &Arguments) -> anyhow::Result<Measured> {
    let mut measured = Measured { urls: arguments.urls[0], ..Measured::default() };
    let mut store = Store::open(dir, StoreOptions::default())?;
    add(&mut store, arguments, &mut measured)?;

    let started = Instant::now();
    store.flush()?;
    (measured.disk_flushed, measured.settle_s) = (until_still(dir), started.elapsed().as_secs_f64());
    (measured.add_rss, measured.add_peak) = memory()?;

    forget_peak()?;
    take(store, arguments, &mut measured)?;

    // What was taken is still there as flights; a start puts it back, so that the same URLs are counted as before.
    let store = Store::open(dir, StoreOptions::default())?;
    ensure!(store.state().places.ready == measured.urls, "{:?} after the flights came back", store.state().places);
    let started = Instant::now();
    store.compact()?;
    measured.compact_s = started.elapsed().as_secs_f64();
    measured.disk_compacted = until_still(dir);
    Ok(measured)
}

/// Waits until RocksDB's threads leave the folder alone and returns its bytes.
fn until_still(dir: &Path) -> u64 {
    let (mut bytes, mut still) = (folder_bytes(dir), 0);
    while still < 10 {
        std::thread::sleep(Duration::from_millis(200));
        let now = folder_bytes(dir);
        still = if now == bytes { still + 1 } else { 0 };
        bytes = now;
    }
    bytes
}

fn own_cpu_s() -> anyhow::Result<f64> {
    Ok(cpu_of(std::process::id())?.as_secs_f64())
}

// Adding.

fn add(store: &mut Store, arguments: &Arguments, measured: &mut Measured) -> anyhow::Result<()> {
    let rules = UrlRules::default();
    let mut stream = Stream::new(arguments.seed);
    let mut lists: Vec<Vec<String>> = Vec::new();
    let mut parent = UrlId([7; 16]);
    let mut passed = Duration::ZERO;
    let cpu_before = own_cpu_s()?;
    while store.state().counters.known < measured.urls {
        let left = measured.urls - store.state().counters.known;
        stream.lists(&mut lists, arguments.lists, left);
        let started = Instant::now();
        let mut change = store.change();
        for list in &lists {
            let urls: Vec<Discovered> = list.iter().filter_map(|text| discovered(text, &rules)).collect();
            measured.offered += urls.len() as u64;
            let first = urls.first().map(|found| found.url.id(DEFAULT_CRAWL));
            change.admit(DEFAULT_CRAWL, urls, Some(parent), UNIX_MS + measured.offered / 100)?;
            parent = first.unwrap_or(parent);
        }
        change.commit()?;
        passed += started.elapsed();
    }
    measured.url_bytes = stream.bytes / measured.offered.max(1);
    (measured.add_s, measured.add_cpu_s) = (passed.as_secs_f64(), own_cpu_s()? - cpu_before);
    ensure!(store.state().places.traps == 0, "the stream looks like a trap: {:?}", store.state().places);
    Ok(())
}

fn discovered(text: &str, rules: &UrlRules) -> Option<Discovered> {
    let url = CanonicalUrl::parse(text, rules).ok()?;
    Some(Discovered { url, kind: EntryKind::Page, depth: 3, priority: 100, redirects: 0 })
}

/// Links as pages have them: a page links mostly within its host, few hosts are large, and a fifth of all links was seen
/// before, half of those being what every page of a site links to.
struct Stream {
    dice: Dice,
    hosts: Vec<Host>,
    seed: u64,
    bytes: u64,
}

struct Host {
    name: String,
    known: u64,
}

const DOMAINS: u64 = 8_000;
const HOSTS: u64 = 20_000;
/// Links of a page to its own host, in percent.
const LOCAL_PERCENT: u64 = 75;
const REPEATS_PERCENT: u64 = 20;
/// What every page of a site links to.
const NAVIGATION: u64 = 20;
/// Syllables that words are made of; three to a word give 32,768 words.
const SYLLABLES: [&str; 32] = [
    "ar", "be", "cho", "da", "el", "fin", "ga", "hu", "in", "jo", "ka", "lor", "mi", "ne", "os", "pra", "qui", "re",
    "sta", "ti", "un", "va", "wer", "xi", "yo", "ze", "tion", "ment", "land", "ing", "ster", "able",
];
const ENDINGS: [&str; 5] = ["com", "org", "de", "co.uk", "net"];
const SUBS: [&str; 8] = ["", "www.", "blog.", "shop.", "news.", "m.", "docs.", "forum."];

impl Stream {
    fn new(seed: u64) -> Stream {
        let mut dice = Dice::new(seed);
        let mut domains = Vec::new();
        for n in 0..DOMAINS {
            let mut name = String::new();
            push_word(&mut name, dice.below(32_768));
            push_word(&mut name, n);
            domains.push(format!("{name}.{}", ENDINGS[dice.below(5) as usize]));
        }
        // The first hosts of each domain are plain and `www.`; large domains have more.
        let host = |n: u64| format!("{}{}", SUBS[(n / DOMAINS) as usize % 8], domains[(n % DOMAINS) as usize]);
        let hosts = (0..HOSTS).map(|n| Host { name: host(n), known: 0 }).collect();
        Stream { dice, hosts, seed, bytes: 0 }
    }

    /// Fills `lists` with the links of `count` pages, at most `left` of them new.
    fn lists(&mut self, lists: &mut Vec<Vec<String>>, count: usize, left: u64) {
        lists.clear();
        let mut new = 0;
        for _ in 0..count {
            let page = self.any_host();
            let links = 40 + self.dice.below(61);
            lists.push((0..links).map_while(|_| self.link(page, &mut new, left)).collect());
        }
    }

    fn link(&mut self, page: usize, new: &mut u64, left: u64) -> Option<String> {
        let host = if self.dice.below(100) < LOCAL_PERCENT { page } else { self.any_host() };
        let known = self.hosts[host].known;
        let repeats = known > 0 && self.dice.below(100) < REPEATS_PERCENT;
        let number = match (repeats, self.dice.below(2)) {
            (true, 0) => self.dice.below(known.min(NAVIGATION)),
            (true, _) => self.dice.below(known),
            (false, _) => {
                if *new == left {
                    return None;
                }
                *new += 1;
                self.hosts[host].known += 1;
                known
            }
        };
        let text = self.text(host, number);
        self.bytes += text.len() as u64;
        Some(text)
    }

    /// A host, the first one in a hundred thousand times as likely as the last ones: the share grows as the cube root.
    fn any_host(&mut self) -> usize {
        (HOSTS as f64 * self.dice.unit().powi(3)) as usize
    }

    /// URL `number` of a host; the same text whenever it is asked for.
    fn text(&self, host: usize, number: u64) -> String {
        let mut dice = Dice::new(self.seed ^ ((host as u64) << 40 | number).wrapping_mul(0xA24B_AED4_963E_E407));
        let mut text = String::with_capacity(96);
        text.push_str(if host.is_multiple_of(5) { "http://" } else { "https://" });
        text.push_str(&self.hosts[host].name);
        // Sections are few on a host, titles many.
        text.push('/');
        push_word(&mut text, host as u64 * 7 + dice.below(12));
        text.push('/');
        let words = 2 + dice.below(3);
        for word in 0..words {
            if word > 0 {
                text.push('-');
            }
            push_word(&mut text, (32_768.0 * dice.unit().powi(2)) as u64);
        }
        match dice.below(8) {
            0 => text.push_str(&format!("?page={number}")),
            1..4 => text.push_str(&format!("-{number}.html")),
            _ => text.push_str(&format!("-{number}")),
        }
        text
    }
}

fn push_word(text: &mut String, number: u64) {
    for shift in [0, 5, 10] {
        text.push_str(SYLLABLES[(number >> shift) as usize % 32]);
    }
}

// Taking.

const BATCH: usize = 1_000;
/// So many that the next batch fills while one is written.
const FLIGHTS: usize = 4 * BATCH;

fn take(store: Store, arguments: &Arguments, measured: &mut Measured) -> anyhow::Result<()> {
    let options = DiskOptions { warc: no_pages(), commit_pause: Duration::ZERO };
    let (disk, thread) = Disk::start(store, options)?;
    let mut desk =
        Desk { runtime: tokio::runtime::Builder::new_current_thread().build()?, disk, asked: VecDeque::new() };
    let clock = Instant::now();
    let now = || Now { mono: clock.elapsed().as_micros() as u64, unix_ms: UNIX_MS };
    let filter = Filter::new(FilterRules { scope: Scope::Any, ..FilterRules::default() }, &[])?;
    let mut core = Frontier::new(now(), rules(), Arc::new(filter), Leases::Sole, 0, false);
    let (mut effects, mut picks) = (Vec::new(), Vec::<Pick>::new());
    let cpu_before = own_cpu_s()?;
    core.step(now(), Input::Tick, &mut effects);
    while measured.taken < arguments.take {
        for effect in effects.drain(..) {
            match effect {
                Effect::Fetch(pick) => picks.push(pick),
                other => desk.ask(other)?,
            }
        }
        while picks.len() >= BATCH || (desk.asked.is_empty() && !picks.is_empty()) {
            desk.select(picks.drain(..picks.len().min(BATCH)).collect())?;
            measured.take_batches += 1;
        }
        ensure!(!desk.asked.is_empty(), "nothing to hand out, {:?}", core.standing());
        match desk.answer()? {
            Answer::Heard(Some(input)) => core.step(now(), input, &mut effects),
            Answer::Heard(None) => {}
            Answer::Selected(picks) => {
                measured.taken += picks.len() as u64;
                for pick in picks {
                    let verdict = HostVerdict::Healthy;
                    let ended = Input::FetchEnded { flight: pick.flight, host: verdict, retry_after_ms: None };
                    core.step(now(), ended, &mut effects);
                    core.step(now(), Input::Settled { flight: pick.flight, page: true }, &mut effects);
                }
            }
        }
    }
    (measured.take_s, measured.take_cpu_s) = (clock.elapsed().as_secs_f64(), own_cpu_s()? - cpu_before);
    (measured.take_rss, measured.take_peak) = memory()?;
    desk.submit(Job::Stop)?;
    thread.join().map_err(|_| anyhow::anyhow!("the disk thread did not end well"))
}

/// Nothing is fetched, so nothing is archived.
fn no_pages() -> WarcOptions {
    let text = String::new;
    WarcOptions { segment_bytes_max: 1 << 30, software: text(), user_agent: text(), robots: text(), node_seed: [0; 16] }
}

/// Questions to the disk thread, answered in the order in which they were asked.
struct Desk {
    runtime: tokio::runtime::Runtime,
    disk: Disk,
    asked: VecDeque<Asked>,
}

type Waiting<T> = oneshot::Receiver<Result<T, DiskError>>;

enum Asked {
    Selected(Vec<Pick>, Waiting<()>),
    Kept(Waiting<()>),
    Refilled(u64, QueueKey, Waiting<(Vec<(Order, Entry)>, bool)>),
    Loaded(u64, Waiting<LoadedQueue>),
    Swept(u64, Waiting<(Vec<LoadedQueue>, Option<QueueKey>)>),
}

enum Answer {
    Selected(Vec<Pick>),
    Heard(Option<Input>),
}

impl Desk {
    fn submit(&self, job: Job) -> anyhow::Result<()> {
        Ok(self.runtime.block_on(self.disk.submit(job))?)
    }

    fn select(&mut self, picks: Vec<Pick>) -> anyhow::Result<()> {
        let (reply, waiting) = oneshot::channel();
        self.submit(Job::Select(picks.clone(), reply))?;
        self.asked.push_back(Asked::Selected(picks, waiting));
        Ok(())
    }

    fn ask(&mut self, effect: Effect) -> anyhow::Result<()> {
        let asked = match effect {
            Effect::Refill { read, queue, after, limit } => {
                let (reply, waiting) = oneshot::channel();
                self.submit(Job::Refill(queue.clone(), after, limit, reply))?;
                Asked::Refilled(read, queue, waiting)
            }
            Effect::Load { read, queue, limit } => {
                let (reply, waiting) = oneshot::channel();
                self.submit(Job::Load(queue, limit, reply))?;
                Asked::Loaded(read, waiting)
            }
            Effect::Sweep { read, slot, after, queues, limit } => {
                let (reply, waiting) = oneshot::channel();
                self.submit(Job::Sweep(slot, after, queues, limit, reply))?;
                Asked::Swept(read, waiting)
            }
            Effect::KeepFacts { queue, facts } => {
                let (reply, waiting) = oneshot::channel();
                self.submit(Job::KeepFacts(queue, Box::new(facts), reply))?;
                Asked::Kept(waiting)
            }
            other => anyhow::bail!("no such effect without robots, addresses and losses: {other:?}"),
        };
        self.asked.push_back(asked);
        Ok(())
    }

    fn answer(&mut self) -> anyhow::Result<Answer> {
        Ok(match self.asked.pop_front().context("nothing was asked")? {
            Asked::Selected(picks, waiting) => {
                waiting.blocking_recv()??;
                Answer::Selected(picks)
            }
            Asked::Kept(waiting) => {
                waiting.blocking_recv()??;
                Answer::Heard(None)
            }
            Asked::Refilled(read, queue, waiting) => {
                let (entries, more) = waiting.blocking_recv()??;
                Answer::Heard(Some(Input::Refilled { read, queue, entries, more }))
            }
            Asked::Loaded(read, waiting) => {
                let queues = vec![waiting.blocking_recv()??];
                Answer::Heard(Some(Input::Loaded { read, queues, sweep: None }))
            }
            Asked::Swept(read, waiting) => {
                let (queues, next) = waiting.blocking_recv()??;
                Answer::Heard(Some(Input::Loaded { read, queues, sweep: Some(next) }))
            }
        })
    }
}

/// The product's rules and bounds, without anything that makes a host wait.
fn rules() -> FrontierRules {
    FrontierRules {
        queues_max: 50_000,
        window_max: 32,
        flights_max: FLIGHTS,
        flight_timeout: 3_600_000_000,
        fetch_timeout: 60_000_000,
        robots_ttl_ms: 86_400_000,
        address_ttl: 300_000_000,
        obey_robots: false,
        read_sitemaps: false,
        pace_addresses: false,
        robots_bytes_max: 64 << 20,
        product_token: "orbweaver".to_owned(),
        pace: PaceRules { delay_ms: 0, ..PaceRules::default() },
        retry: RetryRules::default(),
        urls: UrlRules::default(),
        pages_max: None,
    }
}

// The table.

fn report(all: &[Measured]) {
    println!("\n{:<44}{}", "known URLs", columns(all, |m| m.urls.to_string()));
    let row = |name: &str, value: &dyn Fn(&Measured) -> String| println!("{name:<44}{}", columns(all, value));
    row("bytes of a URL", &|m| m.url_bytes.to_string());
    row("offered, of which repeats %", &|m| {
        format!("{} {:.1}", m.offered, 100.0 - m.urls as f64 / m.offered as f64 * 100.0)
    });
    row("discovered/s", &|m| format!("{:.0}", per_second(m.offered, m.add_s)));
    row("new/s", &|m| format!("{:.0}", per_second(m.urls, m.add_s)));
    row("us of processor a discovered URL, all threads", &|m| format!("{:.2}", m.add_cpu_s * 1e6 / m.offered as f64));
    row("s until flushed and at rest afterwards", &|m| format!("{:.1}", m.settle_s));
    row("bytes on disk a URL, at rest", &|m| format!("{:.1}", m.on_disk(m.disk_flushed)));
    row("bytes on disk a URL, compacted", &|m| format!("{:.1} ({:.0} s)", m.on_disk(m.disk_compacted), m.compact_s));
    row("MiB resident after adding, peak", &|m| mib(m.add_rss, m.add_peak));
    row("handed out/s", &|m| format!("{:.0}", per_second(m.taken, m.take_s)));
    row("URLs a batch", &|m| format!("{:.0}", m.taken as f64 / m.take_batches as f64));
    row("us of processor a URL handed out", &|m| format!("{:.2}", m.take_cpu_s * 1e6 / m.taken as f64));
    row("MiB resident after handing out, peak", &|m| mib(m.take_rss, m.take_peak));
    println!();
    for m in all {
        let at = format!("at {}", m.urls);
        let (add, take) = (per_second(m.offered, m.add_s), per_second(m.taken, m.take_s));
        verdict(&format!("discovered/s {at}"), format!("{add:.0}"), "100000", add >= 1e5);
        verdict(&format!("handed out/s {at}"), format!("{take:.0}"), "100000", take >= 1e5);
        let disk = m.on_disk(m.disk_flushed);
        verdict(&format!("bytes on disk a URL, at rest, {at}"), format!("{disk:.1}"), "150", disk <= 150.0);
    }
    if let [small, .., large] = all {
        let ratios = [
            ("resident after adding", large.add_rss as f64 / small.add_rss as f64, 1.3),
            ("resident after handing out", large.take_rss as f64 / small.take_rss as f64, 1.3),
            ("time to add a URL", small.added_per_s() / large.added_per_s(), 1.5),
            ("time to hand out a URL", small.taken_per_s() / large.taken_per_s(), 1.5),
        ];
        for (what, ratio, bar) in ratios {
            let what = format!("{what}, {} to {} URLs", large.urls, small.urls);
            verdict(&what, format!("{ratio:.2}"), bar, ratio <= bar);
        }
    }
}

impl Measured {
    fn on_disk(&self, bytes: u64) -> f64 {
        bytes as f64 / self.urls as f64
    }

    fn added_per_s(&self) -> f64 {
        per_second(self.offered, self.add_s)
    }

    fn taken_per_s(&self) -> f64 {
        per_second(self.taken, self.take_s)
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds.max(1e-9)
}

fn mib(now: u64, peak: u64) -> String {
    format!("{:.0} {:.0}", now as f64 / MIB, peak as f64 / MIB)
}

fn columns(all: &[Measured], value: impl Fn(&Measured) -> String) -> String {
    all.iter().map(|measured| format!("{:>20}", value(measured))).collect()
}
