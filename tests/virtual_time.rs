//! The node's own actors on one thread with tokio's clock paused: a crawl of hours takes seconds, and the same seed gives
//! the same crawl. Web and clocks are simulated; store and WARC files are real, but a sync takes virtual time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use actix::Arbiter;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use node::config::Config;
use node::edges::clock::Clock;
use node::edges::disk::{Disk, DiskOptions, DiskWork};
use node::edges::dns::DnsError;
use node::edges::http::{FetchError, FetchOrder, Fetched};
use node::edges::store::{Store, StoreOptions};
use node::edges::warc::WarcOptions;
use node::edges::web::{self, Pending};
use node::messages::DiscoveredUrls;
use node::metrics::Metrics;
use node::node::{Edges, Node};
use proto::batch::{Discovered, EntryKind};
use proto::crawl::filter::Filter;
use proto::url::CanonicalUrl;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use simulation::world::web::{Request, Visit, Web, WebPlan};
use tests::{found, inside};
use tokio::time::{Duration, Instant};

const CRAWL_DELAY: Duration = Duration::from_secs(10);
const HOSTS: u32 = 6;
const PAGES_PER_HOST: u32 = 40;
/// No crawl of this web takes longer, with everything that dies on the way.
const LONGEST: Duration = Duration::from_secs(4 * 3_600);
const ACTORS: [&str; 6] = ["frontier", "router", "fetcher", "parser", "scorer", "storage"];

const SETTINGS: &str = "
[fetch]
concurrency = 8
settle_timeout_s = 10
[fetch.limits]
fetch_timeout_ms = 30000
[parse]
parsers = 1
";

/// A request, in virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    host: String,
    path: String,
    at: Duration,
    until: Duration,
}

struct VirtualWeb {
    web: Web,
    clock: Clock,
    start: Instant,
    draw: Mutex<ChaCha8Rng>,
    log: Arc<Mutex<Vec<Asked>>>,
}

impl VirtualWeb {
    async fn answer(&self, order: &FetchOrder) -> Result<Fetched, FetchError> {
        let started_unix_ms = self.clock.now().unix_ms;
        let at = self.start.elapsed();
        let latency = self.draw.lock().unwrap().random_range(20..3_000);
        tokio::time::sleep(Duration::from_millis(latency)).await;
        let (host, path) = (order.url.host(), order.url.path_and_query());
        let answer = self.web.respond(&Request::get(host, path), Visit::default());
        let until = self.start.elapsed();
        self.log.lock().unwrap().push(Asked { host: host.to_owned(), path: path.to_owned(), at, until });
        let headers: HeaderMap = (answer.headers.iter())
            .map(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).expect("a name of a header");
                (name, HeaderValue::from_str(value).expect("a value of a header"))
            })
            .collect();
        let status = StatusCode::from_u16(answer.status).expect("plain hosts answer properly");
        Ok(Fetched::plain(order, status, headers, answer.body, started_unix_ms))
    }
}

impl web::Web for VirtualWeb {
    fn fetch<'a>(&'a self, order: &'a FetchOrder) -> Pending<'a, Result<Fetched, FetchError>> {
        Box::pin(self.answer(order))
    }

    fn resolve<'a>(&'a self, host: &'a str) -> Pending<'a, Result<Vec<IpAddr>, DnsError>> {
        let number = host.bytes().fold(7u8, |number, byte| number.wrapping_mul(31).wrapping_add(byte));
        Box::pin(async move { Ok(vec![IpAddr::V4(Ipv4Addr::new(127, 77, number, 1))]) })
    }
}

/// What a crawl came to: its requests, and how long it took.
struct Crawled {
    log: Vec<Asked>,
    took: Duration,
    restarts: u64,
}

/// Crawls the web of `seed` into `data`, while actors die, the more the smaller `mean_s`, the mean seconds between two deaths.
fn crawl(data: &Path, seed: u64, mean_s: Option<u64>) -> (Crawled, Web) {
    let plan = WebPlan { port: 80, ..WebPlan::bench(seed, HOSTS, PAGES_PER_HOST) };
    let web = Web::new(plan.with_names().with_crawl_delay_ms(CRAWL_DELAY.as_millis() as u32));
    let config = inside::config(data, SETTINGS);
    let system = actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
    });
    let crawled = system.block_on(run(&config, web.clone(), seed, mean_s));
    (crawled, web)
}

async fn run(config: &Config, web: Web, seed: u64, mean_s: Option<u64>) -> Crawled {
    let mut draw = ChaCha8Rng::seed_from_u64(seed);
    let clock = Clock::simulated(0, 1_000_000, Arc::new(AtomicU64::new(1_763_262_495_042)));
    let (start, log) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let seeds: Vec<CanonicalUrl> =
        web.seeds().iter().map(|seed| CanonicalUrl::parse(seed, &config.url).expect("seeds are URLs")).collect();
    let filter = Arc::new(Filter::new(config.filter.clone(), &seeds).expect("no patterns"));
    let fetching = Mutex::new(ChaCha8Rng::seed_from_u64(seed + 1));
    let web = VirtualWeb { web, clock: clock.clone(), start, draw: fetching, log: Arc::clone(&log) };
    let store = Store::open(&config.storage.data, StoreOptions::default()).expect("an empty folder");
    let boot = store.boot();
    let disk = slow_disk(store, seed);
    let edges = Edges {
        clock,
        web: Arc::new(web),
        disk,
        parsers: vec![Arbiter::current()],
        warc_seed: Some([7; 16]),
        boot,
        resumed: false,
        cluster: None,
        metrics: Metrics::new(),
    };
    let node = Node::assemble(config, filter, edges);
    let discovered = |url| Discovered { url, kind: EntryKind::Page, depth: 0, priority: 100, redirects: 0 };
    let urls = seeds.into_iter().map(discovered).collect();
    node.discover(DiscoveredUrls { crawl: config.crawl.name.clone(), urls }).await.expect("seeds are taken");
    let mut next_death = mean_s.map(|mean_s| start + Duration::from_secs(draw.random_range(1..2 * mean_s)));
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(node.doomed(), None);
        assert!(start.elapsed() < LONGEST, "not done: {:?}", node.standing().await);
        let state = node.state().await.expect("the disk answers");
        let standing = node.standing().await;
        if standing.is_some_and(|is| is.core.flights == 0 && is.admitting == 0) && state.places.is_done() {
            break;
        }
        if let Some((at, mean_s)) = next_death.zip(mean_s)
            && at <= Instant::now()
        {
            node.crash(ACTORS[draw.random_range(0..ACTORS.len())]);
            next_death = Some(at + Duration::from_secs(draw.random_range(1..2 * mean_s)));
        }
    }
    let restarts = ACTORS.iter().map(|actor| node.metrics().restarts(actor)).sum();
    let took = start.elapsed();
    node.stop().await;
    let log = std::mem::take(&mut *log.lock().unwrap());
    Crawled { log, took, restarts }
}

/// The real store behind a disk whose syncs take virtual time, now and then very long.
fn slow_disk(store: Store, seed: u64) -> Disk {
    let text = String::new;
    let warc = WarcOptions {
        segment_bytes_max: 1 << 30,
        software: text(),
        user_agent: text(),
        robots: text(),
        node_seed: [7; 16],
    };
    let options = DiskOptions { warc, commit_pause: std::time::Duration::ZERO };
    let mut work = DiskWork::new(store, options).expect("an empty folder");
    let (disk, mut jobs) = Disk::queue();
    let mut draw = ChaCha8Rng::seed_from_u64(seed + 2);
    let working = async move {
        while let Some(first) = jobs.recv().await {
            let sync_ms = if draw.random_range(0..50) == 0 { 2_000 } else { draw.random_range(1..40) };
            tokio::time::sleep(Duration::from_millis(sync_ms)).await;
            if !work.perform(first, &mut jobs) {
                break;
            }
        }
    };
    Arbiter::current().spawn(working);
    disk
}

/// One request at a time for each host, and the delay between them, to the microsecond.
fn assert_polite(log: &[Asked]) {
    let mut last: BTreeMap<&str, &Asked> = BTreeMap::new();
    let mut sorted: Vec<&Asked> = log.iter().collect();
    sorted.sort_by_key(|asked| asked.at);
    for asked in sorted {
        if let Some(before) = last.insert(&asked.host, asked) {
            assert!(asked.at >= before.until, "two requests at once: {before:?}, {asked:?}");
            // The first answer of a host is the file that names the delay.
            let delay = if before.path == "/robots.txt" { Duration::ZERO } else { CRAWL_DELAY };
            assert!(asked.at >= before.at + delay, "too soon: {before:?}, {asked:?}");
        } else {
            assert_eq!(asked.path, "/robots.txt", "{} was asked for a page first", asked.host);
        }
    }
}

fn assert_complete(data: &Path, web: &Web) {
    let rows = found::export(data);
    let expected = web.expected();
    assert_eq!(expected.must.len(), (HOSTS * PAGES_PER_HOST) as usize);
    for url in expected.must.keys() {
        assert_eq!(rows[url]["status"], "PROCESSED", "{url}");
    }
    found::assert_recount(data);
}

#[test]
fn a_crawl_with_long_delays_keeps_them_exactly_and_wastes_no_time() {
    let work = tempfile::tempdir().unwrap();
    let (crawled, web) = crawl(work.path(), 3, None);
    assert_polite(&crawled.log);
    assert_complete(work.path(), &web);
    assert_eq!(crawled.log.len(), (HOSTS * (PAGES_PER_HOST + 1)) as usize, "each page and robots.txt once");
    // Every host is asked all the time: the whole takes as long as one host's pages do, and a little for syncs.
    let least = CRAWL_DELAY * (PAGES_PER_HOST - 1);
    assert!(crawled.took < least + least / 2, "{:?} instead of {least:?}", crawled.took);
}

#[test]
fn actors_die_at_any_moment_and_nothing_is_lost_or_asked_too_soon() {
    for seed in 0..6 {
        let work = tempfile::tempdir().unwrap();
        let (crawled, web) = crawl(work.path(), seed, Some(20));
        assert!(crawled.restarts > 10, "{} restarts", crawled.restarts);
        assert_polite(&crawled.log);
        assert_complete(work.path(), &web);
    }
}

#[test]
fn the_same_seed_is_the_same_crawl() {
    let [first, second] = [(); 2].map(|()| {
        let work = tempfile::tempdir().unwrap();
        crawl(work.path(), 11, Some(30)).0
    });
    assert_eq!(first.log, second.log);
    assert_eq!((first.took, first.restarts), (second.took, second.restarts));
}
