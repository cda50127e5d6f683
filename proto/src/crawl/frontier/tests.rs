//! The core in a small world: a disk that is a map, servers that answer after a while, a clock that jumps to the next event.

mod crawls;
mod leases;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::crawl::filter::{FilterRules, Refusal, Scope};
use crate::crawl::politeness::PaceRules;
use crate::crawl::retry::RetryRules;
use crate::id::NodeId;
use crate::key::DEFAULT_CRAWL;
use crate::record::Progress;
use crate::url::UrlRules;

fn rules() -> FrontierRules {
    FrontierRules {
        queues_max: 1_000,
        window_max: 4,
        flights_max: 8,
        flight_timeout: 60 * SECOND,
        fetch_timeout: 30 * SECOND,
        robots_ttl_ms: 86_400_000,
        address_ttl: 300 * SECOND,
        obey_robots: true,
        read_sitemaps: true,
        pace_addresses: true,
        robots_bytes_max: 64 << 20,
        product_token: "orbweaver".into(),
        pace: PaceRules::default(),
        retry: RetryRules { robots_wait_ms: 10_000, ..RetryRules::default() },
        urls: UrlRules::default(),
        pages_max: None,
    }
}

fn url(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text, &UrlRules::default()).unwrap()
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    start: Micros,
    end: Micros,
    url: String,
}

/// What a host of the world does.
#[derive(Clone, Default)]
struct Host {
    robots: Option<RobotsFetch>,
    address: u8,
    verdict: Option<HostVerdict>,
    lost: bool,
}

struct World {
    core: Frontier,
    rng: ChaCha8Rng,
    now: Micros,
    disk: BTreeMap<QueueKey, BTreeMap<Order, Entry>>,
    facts: BTreeMap<QueueKey, HostFacts>,
    /// The disk has no room for facts.
    is_full: bool,
    hosts: BTreeMap<String, Host>,
    events: BTreeMap<(Micros, u64), Input>,
    counter: u64,
    sequence: u64,
    /// New entries take any place among those of their kind, as in a cluster, where it follows from their URLs.
    mingled: bool,
    requests: Vec<Request>,
    open: BTreeMap<u64, usize>,
    fetched: Vec<(String, Order)>,
    refused: Vec<(String, Why)>,
    discovered: Vec<String>,
    idle: Vec<Slot>,
    news_late_max: Micros,
    last_news: Micros,
    queues_seen_max: usize,
    flights_seen_max: usize,
    robots_seen_max: usize,
    /// Places that entries have left.
    moved: BTreeSet<(Order, QueueKey)>,
}

impl World {
    fn new(rules: FrontierRules, seed: u64) -> World {
        let filter = Filter::new(FilterRules { scope: Scope::Any, ..FilterRules::default() }, &[]);
        let now = Now { mono: 0, unix_ms: 1_000_000 };
        World {
            core: Frontier::new(now, rules, Arc::new(filter.unwrap()), Leases::Sole, 0, false),
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0,
            disk: BTreeMap::new(),
            facts: BTreeMap::new(),
            is_full: false,
            hosts: BTreeMap::new(),
            events: BTreeMap::new(),
            counter: 0,
            sequence: 0,
            mingled: false,
            requests: Vec::new(),
            open: BTreeMap::new(),
            fetched: Vec::new(),
            refused: Vec::new(),
            discovered: Vec::new(),
            idle: Vec::new(),
            news_late_max: 0,
            last_news: 0,
            queues_seen_max: 0,
            flights_seen_max: 0,
            robots_seen_max: 0,
            moved: BTreeSet::new(),
        }
    }

    /// Writes a URL to disk, and tells the core if it is to know.
    fn add(&mut self, text: &str, priority: u16, depth: u16, tell: bool) {
        self.add_to(DEFAULT_CRAWL, text, priority, depth, tell);
    }

    fn add_to(&mut self, crawl: &str, text: &str, priority: u16, depth: u16, tell: bool) {
        let url = url(text);
        let queue = QueueKey::new(crawl, &url);
        let new_host = !self.disk.contains_key(&queue);
        self.sequence += 1;
        let sequence = if self.mingled { self.sequence ^ self.rng.random_range(0..64) << 32 } else { self.sequence };
        let order = Order { priority, depth, sequence };
        let entry =
            Entry { url, kind: EntryKind::Page, progress: Progress::new(NodeId::SOLE), redirects: 0, validators: None };
        self.disk.entry(queue.clone()).or_default().insert(order, entry.clone());
        if tell && self.news_late_max == 0 {
            self.step(Input::Admitted { queue, order, entry, new_host });
        } else if tell {
            // News of entries and of landings keep their order; answers to reads, which may know more already, overtake them.
            self.last_news = self.last_news.max(self.now + self.rng.random_range(0..self.news_late_max));
            self.later(self.last_news, Input::Admitted { queue, order, entry, new_host });
        }
    }

    fn step(&mut self, input: Input) {
        let mut effects = Vec::new();
        self.core.step(Now { mono: self.now, unix_ms: 1_000_000 + self.now / 1_000 }, input, &mut effects);
        self.queues_seen_max = self.queues_seen_max.max(self.core.queues.len());
        let robots_bytes = self.core.queues.values().map(|queue| queue.robots_bytes()).sum();
        self.robots_seen_max = self.robots_seen_max.max(robots_bytes);
        self.flights_seen_max = self.flights_seen_max.max(self.core.flights.len());
        for effect in effects {
            self.perform(effect);
        }
    }

    fn later(&mut self, at: Micros, input: Input) {
        self.counter += 1;
        self.events.insert((at, self.counter), input);
    }

    fn ask(&mut self, host: &str, flight: u64, url: &CanonicalUrl) -> (Micros, Host) {
        let took = self.rng.random_range(1_000..400_000u64);
        let end = self.now + took;
        self.open.insert(flight, self.requests.len());
        self.requests.push(Request { start: self.now, end, url: url.as_str().to_owned() });
        (end, self.hosts.get(host).cloned().unwrap_or_default())
    }

    fn perform(&mut self, effect: Effect) {
        let soon = self.now + self.rng.random_range(0..5_000u64);
        match effect {
            Effect::Fetch(pick) => {
                let gone = self.disk.get_mut(&pick.queue).and_then(|queue| queue.remove(&pick.order));
                assert!(gone.is_some(), "{} was handed out twice", pick.entry.url);
                let (end, host) = self.ask(&pick.queue.host(), pick.flight, &pick.entry.url);
                self.fetched.push((pick.queue.host(), pick.order));
                if host.lost {
                    return;
                }
                let verdict = host.verdict.unwrap_or(HostVerdict::Healthy);
                self.later(end, Input::FetchEnded { flight: pick.flight, host: verdict, retry_after_ms: None });
                let settled = (end + self.rng.random_range(0..50_000u64)).max(self.last_news);
                self.later(settled, Input::Settled { flight: pick.flight, page: true });
            }
            Effect::FetchRobots { flight, url, .. } => {
                let (end, host) = self.ask(url.host(), flight, &url);
                let answer = host.robots.unwrap_or(RobotsFetch::Absent);
                self.later(end, Input::RobotsFetched { flight, answer });
            }
            Effect::Refuse(pick, why) => {
                self.disk.get_mut(&pick.queue).and_then(|queue| queue.remove(&pick.order)).expect("was on disk");
                self.refused.push((pick.entry.url.as_str().to_owned(), why));
                self.later(soon.max(self.last_news), Input::Settled { flight: pick.flight, page: false });
            }
            Effect::Lost(pick) => {
                self.disk.entry(pick.queue.clone()).or_default().insert(pick.order, pick.entry.clone());
                let Pick { queue, order, entry, .. } = pick;
                self.later(soon, Input::Admitted { queue, order, entry, new_host: false });
            }
            Effect::Refill { read, queue, after, limit } => {
                let (entries, more) = self.read(&queue, after, limit);
                self.later(soon, Input::Refilled { read, queue, entries, more });
            }
            Effect::Load { read, queue, limit } => {
                let loaded = self.load(&queue, limit);
                self.later(soon, Input::Loaded { read, queues: vec![loaded], sweep: None });
            }
            Effect::Sweep { read, after, queues, limit, .. } => {
                let behind = |key: &QueueKey| after.as_ref().is_none_or(|after| key > after);
                let keys: Vec<QueueKey> = self
                    .disk
                    .iter()
                    .filter(|(key, entries)| behind(key) && !entries.is_empty())
                    .map(|(key, _)| key.clone())
                    .collect();
                let next = (keys.len() > queues).then(|| keys[queues - 1].clone());
                let queues = keys.iter().take(queues).map(|key| self.load(key, limit)).collect();
                self.later(soon, Input::Loaded { read, queues, sweep: Some(next) });
            }
            Effect::Resolve { queue, host } => {
                let last = self.hosts.get(&host).map_or(0, |host| host.address);
                let last = if last == 0 { 1 + (self.counter % 200) as u8 } else { last };
                let address = if last == 255 { Err(Failure::DnsNotFound) } else { Ok([10, 0, 0, last].into()) };
                self.hosts.entry(host).or_default().address = last;
                self.later(soon, Input::Resolved { queue, address });
            }
            Effect::KeepFacts { queue, facts } => {
                let kept = !self.is_full;
                if kept {
                    self.facts.insert(queue.clone(), facts);
                }
                self.later(soon, Input::FactsKept { queue, kept });
            }
            Effect::Idle { slot } => self.idle.push(slot),
            Effect::Discover { urls, .. } => {
                self.discovered.extend(urls.into_iter().map(|found| found.url.as_str().to_owned()));
            }
        }
    }

    fn read(&self, queue: &QueueKey, after: Option<Order>, limit: usize) -> (Vec<(Order, Entry)>, bool) {
        let mut rows: Vec<(Order, Entry)> = self
            .disk
            .get(queue)
            .into_iter()
            .flatten()
            .filter(|(order, _)| after.is_none_or(|after| **order > after))
            .map(|(order, entry)| (*order, entry.clone()))
            .take(limit + 1)
            .collect();
        let more = rows.len() > limit;
        rows.truncate(limit);
        (rows, more)
    }

    fn load(&self, key: &QueueKey, limit: usize) -> LoadedQueue {
        let (entries, more) = self.read(key, None, limit);
        LoadedQueue { key: key.clone(), facts: self.facts.get(key).cloned().unwrap_or_default(), entries, more }
    }

    /// Runs until nothing is left to happen, or for `steps` events.
    fn run(&mut self, steps: usize) {
        self.step(Input::Tick);
        for _ in 0..steps {
            if !self.advance() {
                return;
            }
        }
        panic!("the frontier never came to rest");
    }

    /// Lets the next event happen; `false` if there is none.
    fn advance(&mut self) -> bool {
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let wake = self.core.next_wake();
        let Some(next) = event.into_iter().chain(wake).min() else { return false };
        self.now = self.now.max(next);
        match self.events.first_entry().filter(|first| first.key().0 <= self.now) {
            Some(first) => {
                let input = match first.remove() {
                    Input::Admitted { queue, order, .. } if self.moved.contains(&(order, queue.clone())) => {
                        Input::Reordered { queue }
                    }
                    input => input,
                };
                self.step(input);
            }
            None => self.step(Input::Tick),
        }
        true
    }

    /// Gives what waits in one of the queues other places.
    fn reorder(&mut self) {
        let at = self.rng.random_range(0..self.disk.len());
        let (key, entries) = self.disk.iter_mut().nth(at).expect("below their number");
        let mut placed = BTreeMap::new();
        for (old, entry) in std::mem::take(entries) {
            let order = Order { priority: self.rng.random_range(0..4), ..old };
            if order != old {
                self.moved.insert((old, key.clone()));
            }
            self.moved.remove(&(order, key.clone()));
            placed.insert(order, entry);
        }
        *entries = placed;
        let queue = key.clone();
        self.step(Input::Reordered { queue });
    }

    fn left(&self) -> usize {
        self.disk.values().map(BTreeMap::len).sum()
    }

    /// No two requests to the same host, or address, closer than the delay, and never two at once.
    fn assert_polite(&self, delay: Micros) {
        let mut last: BTreeMap<String, Micros> = BTreeMap::new();
        let mut requests = self.requests.clone();
        requests.sort_by_key(|request| request.start);
        for request in requests {
            let host = url(&request.url).host().to_owned();
            let address = format!("address {}", self.hosts.get(&host).map_or(0, |host| host.address));
            for name in [host, address] {
                if let Some(end) = last.get(&name) {
                    assert!(request.start >= end + delay, "{name} asked {} after {end}", request.start);
                }
                last.insert(name, request.end);
            }
        }
    }
}

#[test]
fn what_is_known_of_a_host_outlasts_a_full_disk() {
    let mut world = World::new(rules(), 3);
    let robots = RobotsFetch::Body(b"User-agent: *\nCrawl-delay: 2".to_vec());
    world.hosts.insert("a.example".into(), Host { robots: Some(robots), ..Host::default() });
    world.is_full = true;
    world.add("http://a.example/", 0, 0, true);
    for _ in 0..100 {
        assert!(world.advance(), "it is tried again and again");
    }
    assert!(world.fetched.len() == 1 && world.facts.is_empty() && world.core.queues.len() == 1);
    world.is_full = false;
    world.run(1_000);
    assert!(world.facts.values().any(|facts| facts.robots.len() == 1) && world.core.queues.is_empty());
}

#[test]
fn robots_txt_comes_first_and_pages_in_order_of_priority_depth_and_age() {
    let mut world = World::new(rules(), 1);
    world.add("http://a.example/late", 100, 2, false);
    world.add("http://a.example/first", 100, 0, false);
    world.add("http://a.example/urgent", 200, 9, false);
    world.add("http://a.example/second", 100, 1, false);
    world.add("http://a.example/third", 100, 1, false);
    world.add("http://a.example/last", 50, 0, false);
    world.run(1_000);
    let asked: Vec<&str> = world.requests.iter().map(|r| r.url.trim_start_matches("http://a.example")).collect();
    assert_eq!(asked, ["/robots.txt", "/urgent", "/first", "/second", "/third", "/late", "/last"]);
    world.assert_polite(SECOND);
}

#[test]
fn a_crawl_delay_is_kept_and_a_forbidden_page_is_refused() {
    let mut world = World::new(rules(), 2);
    let robots = b"User-agent: *\nDisallow: /private\nCrawl-delay: 7\nSitemap: http://a.example/map.xml".to_vec();
    world.hosts.insert("a.example".into(), Host { robots: Some(RobotsFetch::Body(robots)), ..Host::default() });
    for page in ["1", "2", "private/3", "4"] {
        world.add(&format!("http://a.example/{page}"), 100, 1, false);
    }
    world.run(1_000);
    world.assert_polite(7 * SECOND);
    assert_eq!(world.requests.len(), 4);
    assert_eq!(world.refused, [("http://a.example/private/3".to_owned(), Why::Failed(Failure::RobotsForbidden))]);
    assert_eq!(world.discovered, ["http://a.example/map.xml"]);
}

#[test]
fn hosts_take_turns() {
    let mut world = World::new(FrontierRules { flights_max: 1, ..rules() }, 3);
    for host in ["a", "b", "c"] {
        for page in 0..5 {
            world.add(&format!("http://{host}.example/{page}"), 100, 1, false);
        }
    }
    world.run(10_000);
    let hosts: Vec<String> = world.fetched.iter().map(|(host, _)| host.clone()).collect();
    for round in hosts.chunks(3) {
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 3, "{hosts:?}");
    }
}

#[test]
fn hosts_of_one_address_share_its_delay() {
    let mut world = World::new(rules(), 4);
    for host in 0..6 {
        world.hosts.insert(format!("h{host}.example"), Host { address: 7, ..Host::default() });
        world.add(&format!("http://h{host}.example/"), 100, 0, false);
    }
    world.run(10_000);
    assert_eq!(world.fetched.len(), 6);
    world.assert_polite(SECOND);
}

#[test]
fn a_robots_txt_that_moved_to_another_host_is_fetched_under_that_hosts_politeness() {
    let mut world = World::new(rules(), 5);
    let moved = RobotsFetch::Redirect("http://b.example/robots.txt".into());
    world.hosts.insert("a.example".into(), Host { robots: Some(moved), ..Host::default() });
    let forbids = RobotsFetch::Body(b"User-agent: *\nDisallow: /no".to_vec());
    world.hosts.insert("b.example".into(), Host { robots: Some(forbids), ..Host::default() });
    for page in ["yes", "no"] {
        world.add(&format!("http://a.example/{page}"), 100, 1, false);
        world.add(&format!("http://b.example/{page}"), 100, 1, false);
    }
    world.run(10_000);
    assert_eq!(world.fetched.len(), 2);
    assert_eq!(world.refused.len(), 2);
    world.assert_polite(SECOND);
}

#[test]
fn robots_that_redirect_for_ever_allow_and_robots_that_fail_for_ever_forbid() {
    let mut world = World::new(rules(), 6);
    let round = RobotsFetch::Redirect("/robots.txt".into());
    world.hosts.insert("a.example".into(), Host { robots: Some(round), ..Host::default() });
    let dead = Some(RobotsFetch::Unavailable(Failure::ConnectRefused));
    world.hosts.insert("b.example".into(), Host { robots: dead, ..Host::default() });
    world.add("http://a.example/x", 100, 0, false);
    world.add("http://b.example/x", 100, 0, false);
    world.run(10_000);
    assert_eq!(world.fetched.len(), 1);
    assert_eq!(world.refused, [("http://b.example/x".to_owned(), Why::Failed(Failure::RobotsUnavailable))]);
    world.assert_polite(SECOND);
}

#[test]
fn a_host_without_an_address_is_refused_without_a_request() {
    let mut world = World::new(rules(), 7);
    world.hosts.insert("gone.example".into(), Host { address: 255, ..Host::default() });
    for page in 0..40 {
        world.add(&format!("http://gone.example/{page}"), 100, 0, false);
    }
    world.run(10_000);
    assert_eq!((world.refused.len(), world.requests.len()), (40, 0));
}

#[test]
fn a_host_without_an_address_is_refused_also_where_no_delay_is_kept() {
    let pace = PaceRules { delay_ms: 0, ..PaceRules::default() };
    let mut world = World::new(FrontierRules { pace, ..rules() }, 7);
    world.hosts.insert("gone.example".into(), Host { address: 255, ..Host::default() });
    for page in 0..40 {
        world.add(&format!("http://gone.example/{page}"), 100, 0, false);
    }
    world.run(1_000);
    assert_eq!((world.refused.len(), world.requests.len()), (40, 0));
}

#[test]
fn what_the_rules_do_not_admit_is_refused_without_waiting_for_its_host() {
    let mut world = World::new(FrontierRules { window_max: 4, ..rules() }, 31);
    let only_x = FilterRules { scope: Scope::Any, include: vec!["/x".into()], ..FilterRules::default() };
    let now = Now { mono: 0, unix_ms: 1_000_000 };
    let filter = Arc::new(Filter::new(only_x, &[]).unwrap());
    // A crawl that is resumed waits for each host once; what is not asked for need not.
    world.core = Frontier::new(now, world.core.rules.clone(), filter, Leases::Sole, 0, true);
    for page in 0..50 {
        world.add(&format!("http://nowhere.example/{page}"), 100, 0, false);
    }
    world.add("http://nowhere.example/x", 50, 0, false);
    world.step(Input::Tick);
    while world.refused.len() < 50 {
        assert!(world.advance() && world.now < SECOND, "{} refused", world.refused.len());
    }
    assert_eq!(world.requests.len(), 0);
    assert!(world.refused.iter().all(|(_, why)| *why == Why::Filtered(Refusal::NotIncluded)));
    world.run(1_000);
    assert_eq!(world.fetched.len(), 1);
    world.assert_polite(SECOND);
}

#[test]
fn a_host_that_cannot_be_reached_is_named_with_its_reason_and_strands_a_crawl_that_has_no_other() {
    let mut world = World::new(rules(), 32);
    let dead = Some(RobotsFetch::Unavailable(Failure::ConnectRefused));
    world.hosts.insert("dead.example".into(), Host { robots: dead, ..Host::default() });
    world.add("http://dead.example/", 100, 0, true);
    assert!(!world.core.is_stranded(), "nobody has asked yet");
    let (mut named, mut stranded) = (0, None);
    while world.refused.is_empty() {
        assert!(world.advance());
        let now = Now { mono: world.now, unix_ms: 0 };
        assert_eq!(world.core.standing().hosts_active, usize::from(world.refused.is_empty()));
        for trouble in world.core.troubles(now, 3) {
            assert_eq!((trouble.host.as_str(), trouble.robots), ("dead.example", Some(Failure::ConnectRefused)));
            assert!(trouble.until > world.now);
            named += 1;
        }
        if world.core.is_stranded() && stranded.is_none() {
            stranded = Some(world.requests.len());
        }
    }
    assert!(named > 0);
    assert_eq!(stranded, Some(2), "one failure is none, four are too many");
    world.add("http://alive.example/", 100, 0, true);
    assert!(!world.core.is_stranded());
}

#[test]
fn a_flight_nobody_settles_is_lost_and_its_entry_comes_back() {
    let mut world = World::new(rules(), 8);
    world.hosts.insert("a.example".into(), Host { lost: true, ..Host::default() });
    world.add("http://a.example/x", 100, 0, false);
    world.step(Input::Tick);
    for _ in 0..20 {
        let Some((&(at, _), _)) = world.events.first_key_value() else { break };
        world.now = world.now.max(at);
        let (_, input) = world.events.pop_first().unwrap();
        world.step(input);
        if let Some(wake) = world.core.next_wake().filter(|_| world.events.is_empty() && world.fetched.is_empty()) {
            world.now = world.now.max(wake);
            world.step(Input::Tick);
        }
    }
    assert_eq!((world.fetched.len(), world.left()), (1, 0));
    world.hosts.clear();
    world.run(1_000);
    assert_eq!((world.fetched.len(), world.left()), (2, 0));
    assert!(world.requests[2].start >= world.requests[1].start + 60 * SECOND);
}

#[test]
fn huge_robots_txt_files_stay_within_their_memory_and_every_page_is_fetched() {
    let (huge, bytes_max) = (100 << 10, 1 << 20);
    let mut world = World::new(FrontierRules { robots_bytes_max: bytes_max, flights_max: 40, ..rules() }, 12);
    let body = [b"User-agent: *\nDisallow: /no\n#".as_slice(), &vec![b'x'; huge]].concat();
    for host in 0..40 {
        let robots = Some(RobotsFetch::Body(body.clone()));
        world.hosts.insert(format!("h{host}.example"), Host { robots, ..Host::default() });
        for page in 0..3 {
            world.add(&format!("http://h{host}.example/{page}"), 100, 0, false);
        }
    }
    world.run(20_000);
    assert_eq!((world.fetched.len(), world.left()), (120, 0));
    assert!(world.robots_seen_max <= bytes_max + 40 * 2 * body.len(), "{}", world.robots_seen_max);
    world.assert_polite(SECOND);
}

#[test]
fn no_more_pages_are_handed_out_than_the_limit() {
    let mut world = World::new(FrontierRules { pages_max: Some(5), ..rules() }, 9);
    for host in 0..10 {
        for page in 0..3 {
            world.add(&format!("http://h{host}.example/{page}"), 100, 0, false);
        }
    }
    world.run(10_000);
    assert_eq!(world.fetched.len(), 5);
    assert!(world.core.is_spent());
}

#[test]
fn a_closed_frontier_hands_out_nothing_and_lets_land_what_flies() {
    let mut world = World::new(rules(), 10);
    for host in 0..5 {
        world.add(&format!("http://h{host}.example/"), 100, 0, false);
    }
    world.core.close();
    world.run(1_000);
    assert_eq!((world.requests.len(), world.core.flights()), (0, 0));
}

/// A world whose frontier takes over: `http://a.example/1` is flying, `/2` waits.
fn world_with_an_adopted_flight(seed: u64) -> World {
    let mut world = World::new(rules(), seed);
    world.add("http://a.example/1", 100, 0, false);
    world.add("http://a.example/2", 100, 0, false);
    let queue = QueueKey::new(DEFAULT_CRAWL, &url("http://a.example/1"));
    let robots = RobotsCopy { until: u64::MAX, body: Some(b"User-agent: *\nCrawl-delay: 7\n".to_vec()) };
    let robots = vec![("http://a.example".to_owned(), robots)];
    world.facts.insert(queue.clone(), HostFacts { robots, heard: true, ..HostFacts::default() });
    let (order, entry) = world.disk.get_mut(&queue).unwrap().pop_first().unwrap();
    let mut effects = Vec::new();
    world.core.adopt(Now { mono: 0, unix_ms: 0 }, Pick { flight: 3, queue, order, entry }, &mut effects);
    for effect in effects {
        world.perform(effect);
    }
    world
}

#[test]
fn an_adopted_flight_keeps_its_host_busy_and_what_the_host_asked_for_is_remembered() {
    let mut world = world_with_an_adopted_flight(11);
    world.later(20 * SECOND, Input::FetchEnded { flight: 3, host: HostVerdict::Healthy, retry_after_ms: None });
    world.later(20 * SECOND, Input::Settled { flight: 3, page: true });
    world.run(1_000);
    assert_eq!((world.fetched.len(), world.requests.len()), (1, 1), "robots.txt is known: {:?}", world.requests);
    assert!(world.requests[0].start >= 27 * SECOND, "{:?}", world.requests);
}

#[test]
fn an_adopted_flight_whose_end_only_the_former_life_heard_of_frees_its_host_when_it_is_settled() {
    let mut world = world_with_an_adopted_flight(12);
    world.later(20 * SECOND, Input::Settled { flight: 3, page: true });
    world.run(1_000);
    assert_eq!(world.fetched.len(), 1);
    assert!(world.requests[0].start >= 27 * SECOND, "{:?}", world.requests);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_url_is_fetched_once_politely_and_within_bounds(
        seed in any::<u64>(),
        hosts in 1..25usize,
        pages in proptest::collection::vec((0..25usize, 0..3u16, 0..3u16, 0..3u8), 1..150),
        queues_max in 2..12usize,
        window_max in 1..5usize,
        flights_max in 1..6usize,
        failing in 0..3u8,
        news_late_max in prop_oneof![Just(0), 1..3_000_000u64],
        reordered in 0..40usize,
        mingled in any::<bool>(),
    ) {
        let rules = FrontierRules { queues_max, window_max, flights_max, ..rules() };
        let mut world = World { news_late_max, mingled, ..World::new(rules, seed) };
        let name = |host: usize| format!("h{}.d{}.example", host % hosts, host % hosts % 7);
        for host in 0..hosts {
            let verdict = (host % 5 < usize::from(failing)).then_some(HostVerdict::SlowDown);
            world.hosts.insert(name(host), Host { verdict, ..Host::default() });
        }
        // Some are on disk from a former run, some are told when it begins, and some come while it runs.
        for coming in 0..3 {
            for (number, (host, priority, depth, _)) in pages.iter().enumerate().filter(|(_, page)| page.3 == coming) {
                if coming == 2 {
                    world.step(Input::Tick);
                    for _ in 0..world.rng.random_range(0..12) {
                        world.advance();
                    }
                }
                world.add(&format!("http://{}/{number}", name(*host)), *priority, *depth, coming > 0);
            }
        }
        world.step(Input::Tick);
        for _ in 0..reordered {
            for _ in 0..world.rng.random_range(0..12) {
                world.advance();
            }
            world.reorder();
        }
        world.run(200_000);
        prop_assert_eq!(world.left(), 0);
        prop_assert_eq!(world.fetched.len(), pages.len());
        prop_assert!(world.flights_seen_max <= flights_max);
        prop_assert!(world.queues_seen_max <= queues_max);
        world.assert_polite(SECOND);
    }
}

#[test]
fn what_scores_put_in_front_is_fetched_next() {
    let mut world = World::new(rules(), 1);
    for page in 0..20 {
        world.add(&format!("http://a.example/{page}"), 100, 1, true);
    }
    while world.fetched.len() < 5 {
        world.advance();
    }
    let (queue, entries) = world.disk.iter_mut().next().unwrap();
    let (last, entry) = entries.pop_last().unwrap();
    entries.insert(Order { priority: 107, ..last }, entry);
    let queue = queue.clone();
    world.step(Input::Reordered { queue });
    world.run(10_000);
    assert_eq!(world.fetched[5].1, Order { priority: 107, ..last }, "behind the window, and in front of it now");
    assert_eq!(world.fetched.len(), 20);
}

#[test]
fn the_delay_of_a_robots_txt_that_is_too_old_is_kept_until_the_next_is_read() {
    let copy = RobotsCopy { until: 1_000, body: Some(b"User-agent: *\nCrawl-delay: 20".to_vec()) };
    let facts = HostFacts { robots: vec![("http://a.example".to_owned(), copy)], heard: true, ..HostFacts::default() };
    let now = Now { mono: 0, unix_ms: 2_000 };
    let queue = Queue::new(now, &rules(), &facts);
    assert!(matches!(queue.may_fetch(now, &url("http://a.example/x")), RobotsSay::Ask));
    assert_eq!(queue.pace.next_ok(), 20 * SECOND);
}

#[test]
fn the_delay_of_a_robots_txt_that_cannot_be_had_again_is_not_forgotten() {
    let copy = RobotsCopy { until: 5_000, body: Some(b"User-agent: *\nCrawl-delay: 20".to_vec()) };
    let facts = HostFacts { robots: vec![("http://a.example".into(), copy)], heard: true, ..HostFacts::default() };
    let at = |seconds: u64| Now { mono: seconds * SECOND, unix_ms: seconds * 1_000 };
    let mut queue = Queue::new(at(1), &rules(), &facts);
    assert!(matches!(queue.may_fetch(at(6), &url("http://a.example/x")), RobotsSay::Ask));
    queue.set_robots("http://a.example", RobotsState::Asked { tries: 0 });
    let why = Failure::ConnectRefused;
    queue.set_robots("http://a.example", RobotsState::Unavailable { tries: 1, until: 7 * SECOND, why });
    assert_eq!(queue.facts().robots, facts.robots, "what is kept of the host");
    let again = Queue::new(at(6), &rules(), &queue.facts());
    assert!(matches!(again.may_fetch(at(6), &url("http://a.example/x")), RobotsSay::Ask));
    assert_eq!(again.pace.next_ok(), 26 * SECOND);
    // What it says now counts, and nothing else.
    let said = RobotsCopy { until: 90_000, body: Some(b"User-agent: *\nCrawl-delay: 2".to_vec()) };
    queue.learn_robots("http://a.example", said.clone(), &rules());
    assert_eq!(queue.facts().robots, [("http://a.example".to_owned(), said)]);
}

#[test]
fn many_queues_have_small_windows() {
    assert_eq!([1, 1_000, 8_192].map(|queues| window_of(queues, 32)), [32; 3]);
    assert_eq!([16_384, 20_000, 50_000].map(|queues| window_of(queues, 32)), [16, 13, WINDOW_MIN]);
    assert_eq!(window_of(1_000_000, 4), 4, "nobody gets more than was asked for");
}
