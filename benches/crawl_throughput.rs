//! A whole crawl against the ceiling, in one run, taking turns on the same web.
//!
//! (a) The ceiling: reqwest and lol_html over a frontier in memory, on all cores, storing nothing, knowing no robots.txt.
//! (b) `orbweaver crawl` with everything on: RocksDB, WARC, robots.txt, text, language, digests.
//! Both fetch every page of the web once, at most one request in flight for a host, at most as many fetches at once, without
//! delay. Each run is a process of its own, timed from its start to its end; the web is served by another.
//!
//! `cargo build --release -p node -p simulation && cargo bench -p benches --bench crawl_throughput`

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use benches::{MIB, Usage, cpu_of, folder_bytes, median, program, verdict, wait};
use clap::Parser;
use lol_html::{HtmlRewriter, Settings, element};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::Url;

/// As in the product, so that heaps do not decide.
#[global_allocator]
static HEAP: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// (b) counts a page as in flight until it is on disk. With one request a host and no more hosts than fetches at once, both
/// have as many requests on the wire; (b) may have three pages on their way to the disk for each.
const LANDING: usize = 4;

#[derive(Parser)]
struct Arguments {
    /// Hosts of the web
    #[arg(long, default_value_t = 128)]
    hosts: u32,
    /// Pages of each host
    #[arg(long, default_value_t = 200)]
    pages: u32,
    /// Runs of each
    #[arg(long, default_value_t = 3)]
    pairs: usize,
    /// Fetches at once
    #[arg(long, default_value_t = 128)]
    concurrency: usize,
    /// The program to measure [default: orbweaver as built beside this bench]
    #[arg(long)]
    orbweaver: Option<PathBuf>,
    /// Only (b), to look at it by itself
    #[arg(long)]
    only_b: bool,
    /// Be (a): crawl from the URLs in this file and print the number of pages
    #[arg(long, hide = true)]
    ceiling: Option<PathBuf>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// One crawl.
struct Run {
    pages: u64,
    seconds: f64,
    usage: Usage,
    server_cpu: Duration,
    disk_bytes: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(seeds) = &arguments.ceiling {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        println!("{}", runtime.block_on(ceiling(seeds, arguments.concurrency))?);
        return Ok(());
    }
    ensure!(arguments.hosts as usize <= arguments.concurrency, "more hosts than fetches at once: (b) would have more");
    let orbweaver = arguments.orbweaver.clone().map_or_else(|| program("orbweaver"), Ok)?;
    let web = ServedWeb::start(&arguments)?;
    let expected = u64::from(arguments.hosts) * u64::from(arguments.pages);
    println!("{expected} pages on {} hosts, {} fetches at once", arguments.hosts, arguments.concurrency);
    println!(
        "{:>3}{:>10}{:>10}{:>16}{:>16}{:>12}{:>12}",
        "", "s", "pages/s", "CPU s/1000", "server s/1000", "peak MiB", "disk MiB"
    );
    let (mut ratios, mut cpu_ratios, mut peak) = (Vec::new(), Vec::new(), 0.0f64);
    for _ in 0..arguments.pairs {
        let a = if arguments.only_b { None } else { Some(run_ceiling(&web, &arguments)?) };
        if let Some(a) = &a {
            show("a", a, expected)?;
        }
        let b = run_orbweaver(&orbweaver, &web, &arguments)?;
        show("b", &b, expected)?;
        peak = peak.max(b.usage.peak_bytes as f64 / MIB);
        if let Some(a) = a {
            let per_page = |run: &Run| run.usage.cpu.as_secs_f64() / run.pages as f64;
            ratios.push(b.pages_per_s() / a.pages_per_s());
            cpu_ratios.push(per_page(&b) / per_page(&a));
            println!(
                "    b/a {:.3} in pages/s, {:.2} in CPU",
                ratios[ratios.len() - 1],
                cpu_ratios[cpu_ratios.len() - 1]
            );
        }
    }
    println!();
    if !ratios.is_empty() {
        let middle = median(&ratios);
        println!("CPU of b to a, median: {:.2}", median(&cpu_ratios));
        verdict("pages/s of b to a, median", format!("{middle:.3}"), "0.65", middle >= 0.65);
    }
    verdict("peak MiB of b", format!("{peak:.0}"), "400 MB = 381 MiB", peak * MIB <= 400e6);
    Ok(())
}

fn show(name: &str, run: &Run, expected: u64) -> anyhow::Result<()> {
    let per_thousand = |time: Duration| time.as_secs_f64() * 1_000.0 / run.pages as f64;
    println!(
        "{name:>3}{:>10.2}{:>10.0}{:>16.3}{:>16.3}{:>12.0}{:>12.0}",
        run.seconds,
        run.pages_per_s(),
        per_thousand(run.usage.cpu),
        per_thousand(run.server_cpu),
        run.usage.peak_bytes as f64 / MIB,
        run.disk_bytes as f64 / MIB,
    );
    ensure!(run.pages == expected, "{name} fetched {} pages of {expected}", run.pages);
    Ok(())
}

impl Run {
    fn pages_per_s(&self) -> f64 {
        self.pages as f64 / self.seconds
    }
}

/// The synthetic web in a process of its own; ends when dropped.
struct ServedWeb {
    process: Child,
    seeds: tempfile::NamedTempFile,
}

impl ServedWeb {
    fn start(arguments: &Arguments) -> anyhow::Result<ServedWeb> {
        let (hosts, pages) = (arguments.hosts.to_string(), arguments.pages.to_string());
        let mut process = Command::new(program("simulation")?)
            .args(["web", "--preset", "bench", "--seed", "7", "--hosts", &hosts, "--pages", &pages])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut first_line = String::new();
        BufReader::new(process.stdout.take().context("its output is piped")?).read_line(&mut first_line)?;
        let said: Value = serde_json::from_str(&first_line).context("the web says where it is")?;
        let seeds: Vec<&str> =
            said["seeds"].as_array().context("it has seeds")?.iter().filter_map(Value::as_str).collect();
        ensure!(seeds.len() == arguments.hosts as usize, "every host is a seed");
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), seeds.join("\n"))?;
        Ok(ServedWeb { process, seeds: file })
    }

    /// Runs `command` to its end, which prints what it did; `pages` reads the number of pages there.
    fn crawl(&self, command: &mut Command, pages: impl Fn(&str) -> anyhow::Result<u64>) -> anyhow::Result<Run> {
        let server_before = cpu_of(self.process.id())?;
        let started = Instant::now();
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let said = std::io::read_to_string(child.stdout.take().context("its output is piped")?)?;
        let usage = wait(&child)?;
        let seconds = started.elapsed().as_secs_f64();
        let server_cpu = cpu_of(self.process.id())? - server_before;
        Ok(Run { pages: pages(&said)?, seconds, usage, server_cpu, disk_bytes: 0 })
    }
}

impl Drop for ServedWeb {
    fn drop(&mut self) {
        // It serves until it is told to stop, and nobody is left to hear of a failure.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn run_ceiling(web: &ServedWeb, arguments: &Arguments) -> anyhow::Result<Run> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--ceiling").arg(web.seeds.path()).args(["--concurrency", &arguments.concurrency.to_string()]);
    web.crawl(&mut command, |said| Ok(said.trim().parse()?))
}

fn run_orbweaver(program: &Path, web: &ServedWeb, arguments: &Arguments) -> anyhow::Result<Run> {
    let data = tempfile::tempdir()?;
    let mut command = Command::new(program);
    command.arg("crawl").arg("--seeds").arg(web.seeds.path()).arg("--data").arg(data.path().join("data"));
    command.args(["--delay", "0s", "--allow-address", "127.0.0.0/8", "--json"]);
    command.args(["--concurrency", &(arguments.concurrency * LANDING).to_string()]).stderr(Stdio::null());
    let mut run = web.crawl(&mut command, |said| {
        let summary: Value = serde_json::from_str(said.lines().last().context("there is a summary")?)?;
        ensure!(summary["ended"] == "complete" && summary["failed"] == 0, "the crawl failed: {summary}");
        summary["pages"].as_u64().context("the summary counts pages")
    })?;
    run.disk_bytes = folder_bytes(data.path());
    Ok(run)
}

// The ceiling.

/// Every host with pages to fetch has a task, which takes them one after the other.
struct Frontier {
    seen: HashSet<Url>,
    hosts: HashMap<String, HostQueue>,
    pages: u64,
}

#[derive(Default)]
struct HostQueue {
    waiting: VecDeque<Url>,
    has_task: bool,
}

impl Frontier {
    /// Queues what is new and returns the hosts that need a task.
    fn add(&mut self, urls: Vec<Url>) -> Vec<String> {
        let mut idle = Vec::new();
        for url in urls {
            if self.seen.contains(&url) {
                continue;
            }
            self.seen.insert(url.clone());
            let Some(host) = url.host_str().map(str::to_owned) else { continue };
            let queue = self.hosts.entry(host.clone()).or_default();
            queue.waiting.push_back(url);
            if !queue.has_task {
                queue.has_task = true;
                idle.push(host);
            }
        }
        idle
    }

    /// The next page of a host; without one, its task ends.
    fn next(&mut self, host: &str) -> Option<Url> {
        let queue = self.hosts.get_mut(host)?;
        let next = queue.waiting.pop_front();
        queue.has_task = next.is_some();
        next
    }
}

struct Ceiling {
    client: reqwest::Client,
    frontier: Mutex<Frontier>,
    tasks: Mutex<JoinSet<()>>,
    fetches: Semaphore,
}

async fn ceiling(seeds: &Path, concurrency: usize) -> anyhow::Result<u64> {
    let seeds = std::fs::read_to_string(seeds)?.lines().map(Url::parse).collect::<Result<Vec<_>, _>>()?;
    // The same provider as the product's; another one that is there already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let frontier = Frontier { seen: HashSet::new(), hosts: HashMap::new(), pages: 0 };
    let crawl = Arc::new(Ceiling {
        client,
        frontier: Mutex::new(frontier),
        tasks: Mutex::new(JoinSet::new()),
        fetches: Semaphore::new(concurrency),
    });
    let idle = crawl.frontier.lock().expect("no task panics").add(seeds);
    start_tasks(&crawl, idle);
    loop {
        let tasks = std::mem::take(&mut *crawl.tasks.lock().expect("no task panics"));
        if tasks.is_empty() {
            return Ok(crawl.frontier.lock().expect("no task panics").pages);
        }
        tasks.join_all().await;
    }
}

fn start_tasks(crawl: &Arc<Ceiling>, hosts: Vec<String>) {
    for host in hosts {
        let crawl_host = Arc::clone(crawl).crawl_host(host);
        crawl.tasks.lock().expect("no task panics").spawn(crawl_host);
    }
}

impl Ceiling {
    fn crawl_host(self: Arc<Self>, host: String) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            loop {
                let Some(url) = self.frontier.lock().expect("no task panics").next(&host) else { return };
                let links = {
                    let _permit = self.fetches.acquire().await.expect("never closed");
                    self.fetch(&url).await.unwrap_or_default()
                };
                let idle = self.frontier.lock().expect("no task panics").add(links);
                start_tasks(&self, idle);
            }
        })
    }

    async fn fetch(&self, url: &Url) -> anyhow::Result<Vec<Url>> {
        let answer = self.client.get(url.clone()).send().await?.error_for_status()?;
        let body = answer.bytes().await?;
        self.frontier.lock().expect("no task panics").pages += 1;
        links_of(url, &body)
    }
}

/// The links a crawler cannot do without.
fn links_of(base: &Url, body: &[u8]) -> anyhow::Result<Vec<Url>> {
    let mut links = Vec::new();
    let mut push = |reference: Option<String>| {
        if let Some(mut url) = reference.and_then(|reference| base.join(&reference.replace("&amp;", "&")).ok()) {
            url.set_fragment(None);
            links.push(url);
        }
    };
    let handler = element!("a[href], area[href], link[href], iframe[src], frame[src], img[src]", |element| {
        push(element.get_attribute("href").or_else(|| element.get_attribute("src")));
        Ok(())
    });
    let settings = Settings::new().append_element_content_handler(handler);
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    rewriter.write(body)?;
    rewriter.end()?;
    Ok(links)
}
