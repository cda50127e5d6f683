//! `orbweaver crawl`: one node, from seeds to summary.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use proto::batch::{Discovered, EntryKind};
use proto::crawl::filter::{Filter, Scope};
use proto::url::CanonicalUrl;
use tokio::sync::{mpsc, watch};

use super::progress::{Progress, say};
use super::signals::signals;
use super::summary::{Ended, Summary};
use super::units::{parse_size, parse_time};
use super::{Complaint, Exit, seeds};
use crate::actors::scorer::PRIORITY_DEFAULT;
use crate::config::Config;
use crate::doors;
use crate::edges::store::{State, StoreError};
use crate::messages::{DiscoveredUrls, Standing};
use crate::node::{Node, StartError};

/// How often the crawl is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Seeds admitted at once.
const SEEDS_PER_BATCH: usize = 1_000;

const EXAMPLES: &str = "Examples:
  orbweaver crawl https://example.com/
  orbweaver crawl --seeds seeds.txt --data /srv/crawl --scope domain --max-pages 100000 --delay 2s
  orbweaver crawl http://127.0.0.1:8080/ --allow-address 127.0.0.0/8

Press Ctrl-C to stop cleanly; run the same command to go on.
Exit codes: 0 done or limit reached, 1 failed while running, 2 wrong usage, 3 data folder unusable, 130 interrupted";

/// Arguments of `crawl`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CrawlArguments {
    /// URLs to begin with
    urls: Vec<String>,
    /// File with one URL a line (# begins a comment), - for standard input
    #[arg(long, value_name = "FILE")]
    seeds: Option<PathBuf>,
    /// Folder for everything the crawl keeps [default: orbweaver-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Stop after this many pages, counted from the crawl's beginning
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_pages: Option<u64>,
    /// Follow at most this many links from a seed
    #[arg(long, value_name = "N")]
    max_depth: Option<u16>,
    /// Stop after this many bytes of content, as in 500MB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    max_bytes: Option<u64>,
    /// Stop this run after this time, as in 45s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    max_time: Option<Duration>,
    /// How far from the seeds to go [default: host]
    #[arg(long, value_enum)]
    scope: Option<ScopeArgument>,
    /// Crawl only URLs that match one of these regular expressions
    #[arg(long, value_name = "REGEX")]
    include: Vec<String>,
    /// Do not crawl URLs that match one of these regular expressions
    #[arg(long, value_name = "REGEX")]
    exclude: Vec<String>,
    /// Least time between two requests to a host, as in 1s [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    delay: Option<Duration>,
    /// Fetches at once, over all hosts [default: 128]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    concurrency: Option<u64>,
    /// Crawl each page again after this time, as in 1d
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    recrawl: Option<Duration>,
    /// Who we say we are; give a page where a site's operator can reach you
    #[arg(long, value_name = "TEXT")]
    user_agent: Option<String>,
    /// Further request header, as in "Accept-Language: en"
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Network that may be fetched from although it is not public, as in 127.0.0.0/8
    #[arg(long, value_name = "CIDR", value_parser = parse_network)]
    allow_address: Vec<IpNet>,
    /// Address of a host, instead of asking DNS, as in example.com=192.0.2.7
    #[arg(long, value_name = "NAME=ADDRESS", value_parser = parse_host)]
    resolve: Vec<(String, std::net::IpAddr)>,
    /// Serve /metrics and /healthz here, as in 127.0.0.1:8000
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// File with settings; flags go before it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Progress and summary as JSON lines on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ScopeArgument {
    /// The hosts of the seeds
    Host,
    /// The registrable domains of the seeds
    Domain,
    /// Below the seeds' paths
    Prefix,
    /// Everywhere
    Any,
}

pub(super) fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse().map(|address: std::net::IpAddr| address.into()));
    network.map_err(|_| format!("{text} is no network; one looks like 127.0.0.0/8 or ::1/128"))
}

pub(super) fn parse_host(text: &str) -> Result<(String, std::net::IpAddr), String> {
    let (name, address) = text.split_once('=').ok_or("a fixed address looks like example.com=192.0.2.7")?;
    let address = address.parse().map_err(|_| format!("{address} is no IP address"))?;
    Ok((name.trim().to_ascii_lowercase(), address))
}

/// Runs a crawl.
pub(super) fn run(arguments: CrawlArguments) -> Result<Exit, Complaint> {
    let config = configure(&arguments)?;
    let seeds = seeds::read(&arguments.urls, arguments.seeds.as_deref(), &config.url)?;
    let filter = Filter::new(config.filter.clone(), &seeds).map_err(Complaint::usage)?;
    let system = actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("fetch")
            .build()
            .expect("the system lets us start threads")
    });
    system.block_on(crawl(config, Arc::new(filter), seeds, arguments.json))
}

/// Settings from file and flags; flags win.
fn configure(arguments: &CrawlArguments) -> Result<Config, Complaint> {
    let mut config = match &arguments.config {
        Some(path) => Config::read(path).map_err(Complaint::usage)?,
        None => Config::default(),
    };
    if let Some(data) = &arguments.data {
        config.storage.data.clone_from(data);
    }
    config.crawl.pages_max = arguments.max_pages.or(config.crawl.pages_max);
    config.crawl.bytes_max = arguments.max_bytes.or(config.crawl.bytes_max);
    config.crawl.time_max_s = arguments.max_time.map(|time| time.as_secs().max(1)).or(config.crawl.time_max_s);
    config.crawl.recrawl_period_s = arguments.recrawl.map(|time| time.as_secs()).or(config.crawl.recrawl_period_s);
    config.filter.depth_max = arguments.max_depth.or(config.filter.depth_max);
    match arguments.scope {
        None => {}
        Some(ScopeArgument::Host) => config.filter.scope = Scope::Host,
        Some(ScopeArgument::Domain) => config.filter.scope = Scope::Domain,
        Some(ScopeArgument::Prefix) => config.filter.scope = Scope::Prefix,
        Some(ScopeArgument::Any) => config.filter.scope = Scope::Any,
    }
    config.filter.include.extend(arguments.include.iter().cloned());
    config.filter.exclude.extend(arguments.exclude.iter().cloned());
    if let Some(delay) = arguments.delay {
        config.politeness.delay_ms = delay.as_millis() as u64;
    }
    if let Some(concurrency) = arguments.concurrency {
        config.fetch.concurrency = concurrency as usize;
    }
    if let Some(user_agent) = &arguments.user_agent {
        config.fetch.user_agent.clone_from(user_agent);
    }
    for header in &arguments.header {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Complaint::usage(format!("--header {header:?}: a header looks like \"Accept-Language: en\""))
        })?;
        config.fetch.headers.insert(name.trim().to_owned(), value.trim().to_owned());
    }
    config.fetch.allow_addresses.extend(&arguments.allow_address);
    config.fetch.hosts.extend(arguments.resolve.iter().cloned());
    config.http.listen = arguments.http.or(config.http.listen);
    config.validate().map_err(Complaint::usage)?;
    Ok(config)
}

async fn crawl(config: Config, filter: Arc<Filter>, seeds: Vec<CanonicalUrl>, json: bool) -> Result<Exit, Complaint> {
    let mut signals = signals().map_err(|error| Complaint::failed(format!("cannot listen for Ctrl-C: {error}")))?;
    let node = Node::start(&config, filter).map_err(|error| match error {
        StartError::Store(StoreError::DiskFull(_)) => Complaint::failed(error),
        StartError::Store(_) | StartError::Disk(_) => Complaint::data(error),
        StartError::Client(_) => Complaint::usage(error),
    })?;
    let watched = watch_over(&node, &config, seeds, json, &mut signals).await;
    // However it ended: threads of the database that outlive the process's end would abort it.
    node.stop().await;
    actix::System::current().stop();
    let Watched { ended, elapsed, fetches_before } = watched?;
    let summary = Summary::read(&config.storage.data, ended, elapsed, fetches_before).map_err(Complaint::data)?;
    if json {
        say(&summary.json(&config.storage.data));
    } else {
        say(&summary.text(&config.storage.data).trim_end());
    }
    Ok(if ended == Ended::Interrupted { Exit::Interrupted } else { Exit::Done })
}

/// A crawl that came to its end.
struct Watched {
    ended: Ended,
    elapsed: Duration,
    fetches_before: u64,
}

/// Opens the door, plants the seeds and follows the crawl.
async fn watch_over(
    node: &Node,
    config: &Config,
    seeds: Vec<CanonicalUrl>,
    json: bool,
    signals: &mut mpsc::Receiver<()>,
) -> Result<Watched, Complaint> {
    let (health, shown_health) = watch::channel(Ok(()));
    if let Some(address) = config.http.listen {
        let bound = doors::http::open(address, node.metrics().clone(), shown_health).await.map_err(Complaint::usage)?;
        if !json {
            eprintln!("metrics: http://{bound}/metrics");
        }
    }
    let before = node.state().await.map_err(Complaint::failed)?;
    plant(node, config, seeds).await?;
    let mut progress = Progress::start(json);
    let ended = follow(node, config, &mut progress, signals, &health).await;
    progress.finish();
    Ok(Watched { ended: ended?, elapsed: progress.elapsed(), fetches_before: before.counters.fetches })
}

/// Puts the seeds into the frontier; those known from a former run stay as they are.
async fn plant(node: &Node, config: &Config, seeds: Vec<CanonicalUrl>) -> Result<(), Complaint> {
    let discovered =
        |url| Discovered { url, kind: EntryKind::Page, depth: 0, priority: PRIORITY_DEFAULT, redirects: 0 };
    let mut seeds = seeds.into_iter().map(discovered).peekable();
    while seeds.peek().is_some() {
        let urls: Vec<Discovered> = seeds.by_ref().take(SEEDS_PER_BATCH).collect();
        let urls = DiscoveredUrls { crawl: config.crawl.name.clone(), urls };
        if let Err(error) = node.discover(urls).await {
            return Err(Complaint::failed(node.doomed().unwrap_or_else(|| error.to_string())));
        }
    }
    Ok(())
}

/// Follows the crawl until it ends.
async fn follow(
    node: &Node,
    config: &Config,
    progress: &mut Progress,
    signals: &mut mpsc::Receiver<()>,
    health: &watch::Sender<Result<(), String>>,
) -> Result<Ended, Complaint> {
    let mut stopping = None;
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            biased;
            _ = signals.recv() => match stopping {
                None => stopping = Some(Ended::Interrupted),
                Some(_) => return Ok(Ended::Interrupted), // asked twice: what is in flight will be fetched again
            },
            reason = node.doom() => {
                let _ = health.send_replace(Err(reason.clone()));
                return Err(Complaint::failed(reason));
            }
            _ = ticks.tick() => {}
        }
        let Ok(state) = node.state().await else { continue }; // doom says why
        let standing = node.standing().await;
        stopping = stopping.or_else(|| limit_reached(&state, standing.as_ref(), config, progress.elapsed()));
        progress.show(&state, standing.as_ref(), &config.crawl, stopping.is_some());
        if stopping.is_some() {
            node.halt().await;
        }
        let Some(standing) = standing else { continue };
        let landed = standing.core.flights == 0 && standing.admitting == 0;
        match stopping {
            Some(ended) if landed => return Ok(ended),
            None if landed && state.places.is_done() && config.crawl.recrawl_period_s.is_none() => {
                return Ok(Ended::Complete);
            }
            _ => {}
        }
    }
}

fn limit_reached(state: &State, standing: Option<&Standing>, config: &Config, elapsed: Duration) -> Option<Ended> {
    let limits = &config.crawl;
    if standing.is_some_and(|standing| standing.spent) {
        return Some(Ended::PagesMax);
    }
    if limits.bytes_max.is_some_and(|max| state.counters.bytes >= max) {
        return Some(Ended::BytesMax);
    }
    limits.time_max_s.is_some_and(|max| elapsed.as_secs() >= max).then_some(Ended::TimeMax)
}
