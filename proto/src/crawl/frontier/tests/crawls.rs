//! Crawls that are defined, paused and limited while the frontier runs.

use super::*;
use crate::cluster::lease::Grants;
use crate::cluster::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use crate::crawl::crawls::Crawls;
use crate::crawl::definition::{CrawlDefinition, CrawlState};

const LONG: Micros = 100_000 * SECOND;

fn definition(name: &str, state: CrawlState, change: impl Fn(&mut CrawlDefinition)) -> Definition {
    let mut said = CrawlDefinition {
        name: name.into(),
        seeds: vec!["http://a.example/".into()],
        scope: Scope::Any,
        include: Vec::new(),
        exclude: Vec::new(),
        depth_max: None,
        pages_max: None,
        delay_ms: None,
        recrawl_period_s: None,
        state,
        defined_at: 0,
    };
    change(&mut said);
    Definition {
        key: DefinitionKey { kind: DefinitionKind::Crawl, name: name.into() },
        version: Version { number: 1, node: NodeId(1), boot: 1 },
        body: Some(said.encode().unwrap()),
    }
}

fn running(name: &str) -> Definition {
    definition(name, CrawlState::Running, |_| {})
}

fn paused(name: &str) -> Definition {
    definition(name, CrawlState::Paused, |_| {})
}

/// A world that holds all slots of `hosts` and knows no crawl but the default one.
fn world(seed: u64, hosts: &[&str]) -> (World, Crawls) {
    let rules = FrontierRules { pace_addresses: false, ..rules() };
    let mut world = World::new(rules.clone(), seed);
    let any = FilterRules { scope: Scope::Any, ..FilterRules::default() };
    let filter = Arc::new(Filter::new(any, &[]).unwrap());
    let crawls = Crawls::of_cluster(Arc::clone(&filter), DEFAULT_CRAWL, UrlRules::default());
    let leases = Leases::Granted(Grants::default());
    let now = Now { mono: 0, unix_ms: 1_000_000 };
    world.core = Frontier::new(now, rules, filter, leases, 0, false).with_crawls(now, Arc::new(crawls.clone()));
    for host in hosts {
        let slot = Slot::of_domain(url(&format!("http://{host}/")).domain());
        world.step(Input::Leased { slots: vec![(slot, LONG)] });
        world.step(Input::Served { slot });
    }
    (world, crawls)
}

impl World {
    fn tell(&mut self, crawls: &mut Crawls, definitions: &[Definition]) {
        *crawls = crawls.with(definitions);
        self.step(Input::Crawls(Arc::new(crawls.clone())));
    }

    /// Pages that were asked for.
    fn pages(&self) -> usize {
        self.requests.iter().filter(|request| !request.url.ends_with("/robots.txt")).count()
    }

    fn assert_hosts_polite(&self, delay: Micros) {
        let mut last: BTreeMap<String, Micros> = BTreeMap::new();
        let mut requests = self.requests.clone();
        requests.sort_by_key(|request| request.start);
        for request in requests {
            let host = url(&request.url).host().to_owned();
            if let Some(end) = last.insert(host.clone(), request.end) {
                assert!(request.start >= end + delay, "{host} asked at {} after {end}", request.start);
            }
        }
    }

    fn run_to(&mut self, end: Micros) {
        self.step(Input::Tick);
        while let Some(next) =
            self.events.first_key_value().map(|((at, _), _)| *at).into_iter().chain(self.core.next_wake()).min()
            && next <= end
        {
            self.advance();
        }
        self.now = end;
    }
}

#[test]
fn two_crawls_of_one_host_keep_its_delay_together() {
    let (mut world, mut crawls) = world(1, &["a.example"]);
    let robots = b"User-agent: *\nCrawl-delay: 3".to_vec();
    world.hosts.insert("a.example".into(), Host { robots: Some(RobotsFetch::Body(robots)), ..Host::default() });
    world.tell(&mut crawls, &[running("news"), running("shop")]);
    for page in 0..5 {
        for crawl in ["news", "shop", DEFAULT_CRAWL] {
            world.add_to(crawl, &format!("http://a.example/{page}"), 100, 1, true);
        }
    }
    world.run_to(300 * SECOND);
    assert_eq!(world.pages(), 15);
    world.assert_hosts_polite(SECOND);
    let after_robots = world.requests.iter().rposition(|request| request.url.ends_with("robots.txt")).unwrap();
    let calm = world.requests.split_off(after_robots);
    world.requests = calm;
    world.assert_hosts_polite(3 * SECOND);
}

#[test]
fn the_longest_delay_that_a_crawl_asks_for_is_kept_from_whatever_was_asked_before() {
    let (mut world, mut crawls) = world(2, &["a.example"]);
    let slow = definition("slow", CrawlState::Running, |said| said.delay_ms = Some(5_000));
    world.tell(&mut crawls, &[slow, running("quick")]);
    for page in 0..5 {
        world.add_to("slow", &format!("http://a.example/slow/{page}"), 100, 1, true);
        world.add_to("quick", &format!("http://a.example/quick/{page}"), 100, 1, true);
    }
    world.run_to(300 * SECOND);
    assert_eq!(world.pages(), 10);
    world.assert_hosts_polite(SECOND);
    let mut requests = world.requests.clone();
    requests.sort_by_key(|request| request.start);
    for two in requests.windows(2).filter(|two| two[1].url.contains("slow/")) {
        assert!(two[1].start >= two[0].end + 5 * SECOND, "{two:?}");
    }
}

#[test]
fn a_crawl_with_a_long_delay_has_its_turn_beside_one_with_a_short_one() {
    let (mut world, mut crawls) = world(7, &["a.example"]);
    let slow = definition("slow", CrawlState::Running, |said| said.delay_ms = Some(5_000));
    world.tell(&mut crawls, &[slow, running("quick")]);
    for page in 0..200 {
        world.add_to("quick", &format!("http://a.example/quick/{page}"), 100, 1, true);
    }
    for page in 0..5 {
        world.add_to("slow", &format!("http://a.example/slow/{page}"), 100, 1, true);
    }
    world.run_to(90 * SECOND);
    let asked = |of: &str| world.requests.iter().filter(|request| request.url.contains(of)).count();
    assert_eq!(asked("/slow/"), 5);
    assert!(asked("/quick/") < 200, "there was still something to ask for");
    world.assert_hosts_polite(SECOND);
}

#[test]
fn a_paused_crawl_asks_nothing_and_goes_on_where_it_was() {
    let (mut world, mut crawls) = world(3, &["a.example", "b.example"]);
    world.tell(&mut crawls, &[running("news")]);
    for page in 0..12 {
        world.add_to("news", &format!("http://a.example/{page}"), 100, 1, true);
        world.add_to(DEFAULT_CRAWL, &format!("http://b.example/{page}"), 100, 1, true);
    }
    world.run_to(12 * SECOND);
    world.tell(&mut crawls, &[paused("news")]);
    let asked = |world: &World| world.requests.iter().filter(|request| request.url.contains("a.example")).count();
    let so_far = asked(&world);
    assert!(so_far > 3);
    world.run_to(60 * SECOND);
    assert_eq!(asked(&world), so_far, "nothing was asked for while it was paused");
    assert_eq!(world.requests.len() - so_far, 13, "the other crawl went on");
    world.add_to("news", "http://a.example/late", 100, 1, true);
    world.tell(&mut crawls, &[running("news")]);
    world.run_to(120 * SECOND);
    assert_eq!(world.left(), 0, "nothing was lost");
    world.assert_hosts_polite(SECOND);
}

#[test]
fn what_nobody_defined_waits_until_somebody_does() {
    let (mut world, mut crawls) = world(4, &["a.example"]);
    world.add_to("news", "http://a.example/x", 100, 1, true);
    world.run_to(20 * SECOND);
    assert!(world.requests.is_empty());
    world.tell(&mut crawls, &[running("news")]);
    world.run_to(40 * SECOND);
    assert_eq!(world.pages(), 1);
}

#[test]
fn rules_that_change_count_for_what_waits() {
    let (mut world, mut crawls) = world(5, &["a.example"]);
    world.tell(&mut crawls, &[paused("news")]);
    world.add_to("news", "http://a.example/x", 100, 1, true);
    world.add_to("news", "http://a.example/y", 100, 1, true);
    world.tell(&mut crawls, &[definition("news", CrawlState::Running, |said| said.exclude = vec!["/x$".into()])]);
    world.run_to(40 * SECOND);
    assert_eq!(world.pages(), 1);
    assert_eq!(world.refused, [("http://a.example/x".to_owned(), Why::Filtered(Refusal::Excluded))]);
}

#[test]
fn no_more_pages_are_handed_out_than_are_left() {
    let (mut world, mut crawls) = world(6, &["a.example", "b.example"]);
    world.tell(&mut crawls, &[definition("news", CrawlState::Running, |said| said.pages_max = Some(7))]);
    for page in 0..10 {
        world.add_to("news", &format!("http://a.example/{page}"), 100, 1, true);
        world.add_to("news", &format!("http://b.example/{page}"), 100, 1, true);
    }
    world.run_to(30 * SECOND);
    assert_eq!(world.pages(), 0, "nobody has counted what is left");
    for (left, pages) in [(4, 4), (3, 7), (0, 7)] {
        crawls = crawls.with_left(&[("news".to_owned(), left)].into_iter().collect());
        world.step(Input::Crawls(Arc::new(crawls.clone())));
        let end = world.now + 60 * SECOND;
        world.run_to(end);
        assert_eq!(world.pages(), pages);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// However crawls are paused and go on, each page is asked for once, and hosts are asked one request at a time.
    #[test]
    fn pausing_loses_nothing_and_stays_polite(seed in 0..1_000u64, acts in proptest::collection::vec((0..3usize, any::<bool>(), 1..8u64), 0..20)) {
        let hosts = ["a.example", "b.example", "c.example"];
        let names = ["one", "two", "three"];
        let (mut world, mut crawls) = world(seed, &hosts);
        let mut number = 0;
        for (crawl, runs, seconds) in acts {
            let state = if runs { CrawlState::Running } else { CrawlState::Paused };
            world.tell(&mut crawls, &[definition(names[crawl], state, |_| {})]);
            for host in hosts {
                number += 1;
                world.add_to(names[crawl], &format!("http://{host}/{number}"), 100, 1, true);
            }
            let end = world.now + seconds * SECOND;
            world.run_to(end);
        }
        world.tell(&mut crawls, &names.map(running));
        let end = world.now + 1_000 * SECOND;
        world.run_to(end);
        prop_assert_eq!(world.left(), 0);
        prop_assert_eq!(world.pages(), number);
        world.assert_hosts_polite(SECOND);
    }
}
