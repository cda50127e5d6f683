//! `orbweaver crawl`: one node, from seeds to summary.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use proto::batch::{Discovered, EntryKind};
use proto::crawl::filter::{Filter, Scope};
use proto::url::{CanonicalUrl, UrlRules};
use tokio::sync::{mpsc, watch};

use super::progress::{Progress, say};
use super::signals::signals;
use super::summary::{Ended, Summary};
use super::units::{parse_size_above_zero, parse_time, parse_time_above_zero};
use super::{Complaint, Exit, moved, runtime, seeds, tell};
use crate::actors::scorer::PRIORITY_DEFAULT;
use crate::config::score::ScoreBy;
use crate::config::{Config, ConfigError};
use crate::doors::http::Door;
use crate::edges::disk::{Job, Look};
use crate::edges::store::{State, Store, StoreError};
use crate::messages::{DiscoveredUrls, Standing};
use crate::node::{Node, StartError};

/// How often the crawl is looked at, and how often when the last URLs are in flight.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_AT_THE_END_EVERY: Duration = Duration::from_millis(10);
/// Seeds admitted at once.
const SEEDS_PER_BATCH: usize = 1_000;

const EXAMPLES: &str = "Examples:
  orbweaver crawl https://example.com/
  orbweaver crawl --seeds seeds.txt --data /srv/crawl --scope domain --max-pages 100000 --delay 2s
  orbweaver crawl http://127.0.0.1:8080/ --allow-address 127.0.0.0/8
  orbweaver crawl https://example.com/ --cluster /srv/orbweaver     a running cluster does it; Ctrl-C leaves it running

Press Ctrl-C to stop cleanly; run the same command to go on.
Another scope, depth, pattern or seed may be given to a later run: what a run does not admit is set aside, not lost.
Exit codes: 0 done or limit reached, 1 failed while running or no host reached, 2 wrong usage, 3 data folder unusable,
130 interrupted";

/// Arguments of `crawl`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CrawlArguments {
    /// URLs to begin with
    urls: Vec<String>,
    /// File with one URL a line (# begins a comment), - for standard input; a seed that failed before is asked for again
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
    /// Stop after this many bytes of content, as in 500MB, counted from the crawl's beginning; pages in flight are still kept
    #[arg(long, value_name = "SIZE", value_parser = parse_size_above_zero)]
    max_bytes: Option<u64>,
    /// Stop this run after this time, as in 45s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse_time_above_zero)]
    max_time: Option<Duration>,
    /// How far from the seeds, and from where they redirect to within their domain, to go [default: host]
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
    /// Crawl each page again this long after it was last crawled, as in 1d; runs until it is stopped
    #[arg(long, value_name = "TIME", value_parser = parse_recrawl)]
    recrawl: Option<Duration>,
    /// Fetch first what is worth most by the links between pages, and keep the page graph [default: none]
    #[arg(long, value_enum, value_name = "BY", conflicts_with = "cluster")]
    score: Option<ScoreBy>,
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
    /// Have a running cluster crawl, and follow it: the folder that says how to reach it (its file ctl.toml)
    #[arg(long, value_name = "DIR")]
    cluster: Option<PathBuf>,
    /// Name of the crawl in the cluster [default: the host of the first seed]
    #[arg(long, value_name = "NAME", requires = "cluster")]
    name: Option<String>,
    /// Progress and summary as JSON lines on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ScopeArgument {
    /// The hosts of the seeds
    Host,
    /// The registrable domains of the seeds
    Domain,
    /// Below the seeds' paths
    Prefix,
    /// Everywhere
    Any,
}

impl ScopeArgument {
    pub(super) const fn scope(self) -> Scope {
        match self {
            ScopeArgument::Host => Scope::Host,
            ScopeArgument::Domain => Scope::Domain,
            ScopeArgument::Prefix => Scope::Prefix,
            ScopeArgument::Any => Scope::Any,
        }
    }
}

pub(super) fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse().map(|address: std::net::IpAddr| address.into()));
    network.map_err(|_| format!("{text} is no network; one looks like 127.0.0.0/8 or ::1/128"))
}

pub(super) fn parse_recrawl(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time < Duration::from_secs(1) { Err("must be at least 1s".to_owned()) } else { Ok(time) }
}

/// A name is brought into the form that URLs have: `Bücher.example` is asked for as `xn--bcher-kva.example`.
pub(super) fn parse_host(text: &str) -> Result<(String, std::net::IpAddr), String> {
    const LIKE: &str = "a fixed address looks like example.com=192.0.2.7";
    let (name, address) = text.split_once('=').ok_or(LIKE)?;
    let (name, address) = (name.trim(), address.trim());
    let address = address.parse().map_err(|_| format!("{address:?} is no IP address; {LIKE}"))?;
    let url = CanonicalUrl::parse(&format!("http://{name}/"), &UrlRules::default());
    let is_name = !name.is_empty() && !name.contains([':', '/', '?', '#', '@', '\\', '[', ' ']);
    let host = url.ok().filter(|_| is_name).map(|url| url.host().to_owned());
    let host = host.filter(|host| host.parse::<std::net::IpAddr>().is_err());
    Ok((host.ok_or_else(|| format!("{name:?} is no host name, without port; {LIKE}"))?, address))
}

/// Runs a crawl.
pub(super) fn run(arguments: CrawlArguments) -> Result<Exit, Complaint> {
    if let Some(folder) = &arguments.cluster {
        return cluster::run(&arguments, folder);
    }
    let config = configure(&arguments)?;
    let seeds = seeds::read(&arguments.urls, arguments.seeds.as_deref(), &config.url)?;
    let filter = Filter::new(config.filter.clone(), &seeds)
        .map_err(|error| Complaint::usage(format!("--include and --exclude: {error}")))?;
    // Where seeds led in former runs. A folder that cannot be read complains when it is opened.
    if let Ok(store) = Store::open_for_reading(&config.storage.data) {
        moved::cover(&store, &seeds, &filter, &config.crawl).map_err(Complaint::data)?;
    }
    let system = actix::System::with_tokio_rt(runtime::runtime);
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
    config.crawl.time_max_s =
        arguments.max_time.map(|time| time.as_millis().div_ceil(1_000) as u64).or(config.crawl.time_max_s);
    config.score.by = arguments.score.unwrap_or(config.score.by);
    config.crawl.recrawl_period_s = arguments.recrawl.map(|time| time.as_secs()).or(config.crawl.recrawl_period_s);
    config.filter.depth_max = arguments.max_depth.or(config.filter.depth_max);
    if let Some(scope) = arguments.scope {
        config.filter.scope = scope.scope();
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
    set_headers(&mut config, &arguments.header)?;
    config.fetch.allow_addresses.extend(&arguments.allow_address);
    let mut named = BTreeMap::new();
    for (name, address) in &arguments.resolve {
        if named.insert(name, address).is_some_and(|other| other != address) {
            return Err(Complaint::usage(format!("--resolve {name}: given twice, with different addresses")));
        }
    }
    config.fetch.hosts.extend(arguments.resolve.iter().cloned());
    config.http.listen = arguments.http.or(config.http.listen);
    config.validate().map_err(|error| Complaint::usage(with_flag(&error)))?;
    Ok(config)
}

/// Headers of the command line go before those of the file; upper and lower case are the same.
fn set_headers(config: &mut Config, headers: &[String]) -> Result<(), Complaint> {
    let mut given = BTreeSet::new();
    for header in headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            Complaint::usage(format!("--header {header:?}: a header looks like \"Accept-Language: en\""))
        })?;
        let name = name.trim();
        if !given.insert(name.to_ascii_lowercase()) {
            return Err(Complaint::usage(format!("--header {name}: given twice; a request has each once")));
        }
        config.fetch.headers.retain(|known, _| !known.eq_ignore_ascii_case(name));
        config.fetch.headers.insert(name.to_owned(), value.trim().to_owned());
    }
    Ok(())
}

/// The flag of a setting that has one, for those who know only flags.
fn with_flag(error: &ConfigError) -> String {
    const FLAGS: [(&str, &str); 5] = [
        ("fetch.concurrency", "--concurrency"),
        ("fetch.user_agent", "--user-agent"),
        ("crawl.bytes_max", "--max-bytes"),
        ("crawl.time_max_s", "--max-time"),
        ("crawl.recrawl_period_s", "--recrawl"),
    ];
    match error {
        ConfigError::Value { setting, .. } => match FLAGS.iter().find(|(known, _)| known == setting) {
            Some((_, flag)) => format!("{flag}, {error}"),
            None => error.to_string(),
        },
        other => other.to_string(),
    }
}

async fn crawl(config: Config, filter: Arc<Filter>, seeds: Vec<CanonicalUrl>, json: bool) -> Result<Exit, Complaint> {
    let mut signals = signals().map_err(|error| Complaint::failed(format!("cannot listen for Ctrl-C: {error}")))?;
    let door = match config.http.listen {
        Some(address) => Some(Door::listen(address).await.map_err(Complaint::usage)?),
        None => None,
    };
    let node = Node::start(&config, Arc::clone(&filter)).map_err(|error| match error {
        StartError::Store(StoreError::DiskFull(_)) => Complaint::failed(error),
        StartError::Store(_) | StartError::Disk(_) => Complaint::data(error),
        StartError::Client(_) => Complaint::usage(error),
    })?;
    let data = config.storage.data.clone();
    let watched = match watch_over(&node, &config, door, &seeds, json, &mut signals).await {
        // Asked of the open folder: to open it once more costs as much as everything that was written since its last table.
        Ok(Watched { ended, elapsed, fetches_before, troubles, said }) => {
            let read =
                move |store: &Store| Summary::read(store, &config, &seeds, &filter, ended, elapsed, fetches_before);
            let summary = node.ask(|reply| Job::Look(Look::new(read, reply))).await;
            summary.map(|summary| (ended, summary.with_troubles(troubles), said)).map_err(Complaint::data)
        }
        Err(complaint) => Err(complaint),
    };
    // However it ended: threads of the database that outlive the process's end would abort it.
    node.stop().await;
    actix::System::current().stop();
    let (ended, summary, said) = watched?;
    let data = &data;
    let last = if json { say(&summary.json(data)) } else { say(&summary.text(data).trim_end()) };
    said.and(last).map_err(|error| Complaint::failed(format!("cannot write to standard output: {error}")))?;
    Ok(match ended {
        Ended::Interrupted => Exit::Interrupted,
        Ended::Unreachable => Exit::Failed,
        _ => Exit::Done,
    })
}

/// A crawl that came to its end.
struct Watched {
    ended: Ended,
    elapsed: Duration,
    fetches_before: u64,
    /// What was waited for at the end.
    troubles: Vec<String>,
    /// Whether progress could be written.
    said: std::io::Result<()>,
}

/// Opens the door, plants the seeds and follows the crawl.
async fn watch_over(
    node: &Node,
    config: &Config,
    door: Option<Door>,
    seeds: &[CanonicalUrl],
    json: bool,
    signals: &mut mpsc::Receiver<()>,
) -> Result<Watched, Complaint> {
    let (health, shown_health) = watch::channel(Ok(()));
    if let Some(door) = door {
        let bound = door.open(node.metrics().clone(), shown_health, axum::Router::new(), None);
        if !json {
            tell::note(&format!("metrics: http://{bound}/metrics"));
        }
    }
    let before = node.state().await.map_err(Complaint::failed)?;
    plant(node, config, seeds).await?;
    let mut progress = Progress::start(json);
    let ended = follow(node, config, before.counters.fetches, &mut progress, signals, &health).await;
    progress.finish();
    let (elapsed, fetches_before) = (progress.elapsed(), before.counters.fetches);
    let (troubles, said) = progress.into_rest();
    Ok(Watched { ended: ended?, elapsed, fetches_before, troubles, said })
}

/// Puts the seeds into the frontier; those that have their page or wait from a former run stay as they are.
async fn plant(node: &Node, config: &Config, seeds: &[CanonicalUrl]) -> Result<(), Complaint> {
    let discovered = |url: &CanonicalUrl| {
        let url = url.clone();
        Discovered { url, kind: EntryKind::Page, depth: 0, priority: PRIORITY_DEFAULT, redirects: 0 }
    };
    let mut seeds = seeds.iter().map(discovered).peekable();
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
    fetches_before: u64,
    progress: &mut Progress,
    signals: &mut mpsc::Receiver<()>,
    health: &watch::Sender<Result<(), String>>,
) -> Result<Ended, Complaint> {
    let mut stopping = None;
    let mut look_after = Duration::ZERO;
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
            () = tokio::time::sleep(look_after) => {}
        }
        look_after = LOOK_EVERY;
        let Ok(state) = node.state().await else { continue }; // doom says why
        if state.places.flights > 0 && state.places.ready + state.places.retries == 0 {
            look_after = LOOK_AT_THE_END_EVERY;
        }
        let standing = node.standing().await;
        stopping = stopping.or_else(|| limit_reached(&state, standing.as_ref(), config, progress.elapsed()));
        progress.show(&state, standing.as_ref(), &config.crawl, stopping.is_some());
        if stopping.is_some() {
            node.halt().await;
        }
        let Some(standing) = standing else { continue };
        let landed = standing.core.flights == 0 && standing.admitting == 0;
        let fetched = state.counters.fetches > fetches_before;
        match stopping {
            Some(ended) if landed => return Ok(ended),
            None if landed && state.places.is_done() && config.crawl.recrawl_period_s.is_none() => {
                return Ok(Ended::Complete);
            }
            // Nobody answers anywhere: who waits for the last try of each host learns nothing more.
            None if landed && standing.stranded && !fetched && config.crawl.recrawl_period_s.is_none() => {
                return Ok(Ended::Unreachable);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_address_is_for_a_name_as_urls_have_it() {
        let address = "192.0.2.7".parse().unwrap();
        assert_eq!(parse_host(" Example.COM =192.0.2.7"), Ok(("example.com".into(), address)));
        assert_eq!(parse_host("b\u{fc}cher.example=192.0.2.7"), Ok(("xn--bcher-kva.example".into(), address)));
        for wrong in
            ["=192.0.2.7", "a.example:80=192.0.2.7", "192.0.2.1=192.0.2.7", "a/b=192.0.2.7", "a.example", "a=b"]
        {
            assert!(parse_host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_header_of_the_command_line_goes_before_that_of_the_file_and_is_given_once() {
        let mut config = Config::default();
        config.fetch.headers.insert("accept-language".into(), "de".into());
        set_headers(&mut config, &["Accept-Language: en".into()]).unwrap();
        assert_eq!(config.fetch.headers.into_iter().collect::<Vec<_>>(), [("Accept-Language".into(), "en".into())]);
        let twice = ["X-A: 1".to_owned(), "x-a: 2".to_owned()];
        let complaint = set_headers(&mut Config::default(), &twice).unwrap_err();
        assert!(complaint.text.contains("x-a") && complaint.text.contains("twice"), "{}", complaint.text);
    }

    #[test]
    fn what_is_wrong_is_called_by_its_flag_too() {
        let mut config = Config::default();
        config.crawl.recrawl_period_s = Some(0);
        let text = with_flag(&config.validate().unwrap_err());
        assert!(text.contains("--recrawl") && text.contains("crawl.recrawl_period_s"), "{text}");
    }
}
