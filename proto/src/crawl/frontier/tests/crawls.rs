//! Crawls that are defined, paused and limited while the frontier runs.

use super::*;
use crate::cluster::lease::Grants;
use crate::cluster::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use crate::crawl::crawls::Crawls;
use crate::crawl::definition::{CrawlDefinition, CrawlState};
use crate::site::{Site, SiteDefinition};

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
        fetch: None,
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

fn site(id: &str, limits: serde_json::Value) -> Definition {
    let properties = serde_json::json!([{"name": "HTTP_FREQ_LIMITS", "value": limits}]);
    let filters = serde_json::json!([{"pattern": "http"}]);
    let fields = serde_json::json!({"id": id, "requestDelay": 0, "filters": filters, "properties": properties});
    let said = SiteDefinition::new(Site::read(fields).unwrap());
    Definition {
        key: DefinitionKey { kind: DefinitionKind::Site, name: id.into() },
        body: Some(said.encode().unwrap()),
        ..running(id)
    }
}

/// The clock of the world stands at 00:16:40 when it begins.
const MIDNIGHT: Micros = 1_000 * SECOND;

#[test]
fn a_host_is_not_asked_in_the_hours_that_its_site_closes_and_everything_is_asked_after() {
    let (mut world, mut crawls) = world(11, &["a.example", "b.example"]);
    let limits = serde_json::json!([{"from": "00:20", "to": "01:00", "max": 0, "host": "a"}]);
    world.tell(&mut crawls, &[site("shop", limits)]);
    for page in 0..300 {
        world.add_to("shop", &format!("http://a.example/{page}"), 100, 1, true);
        world.add_to("shop", &format!("http://b.example/{page}"), 100, 1, true);
    }
    let (closes, opens) = (20 * 60 * SECOND - MIDNIGHT, 60 * 60 * SECOND - MIDNIGHT);
    world.run_to(opens - 60 * SECOND);
    let asked = |world: &World, host: &str| world.requests.iter().filter(|request| request.url.contains(host)).count();
    let so_far = asked(&world, "a.example");
    assert!((20..300).contains(&so_far), "{so_far}");
    assert_eq!(asked(&world, "b.example"), 301, "another host is not concerned");
    assert!(world.core.standing().queues <= 1, "it keeps no place meanwhile");
    world.add_to("shop", "http://a.example/late", 100, 1, true);
    world.run_to(opens + 600 * SECOND);
    assert_eq!(world.left(), 0, "nothing was lost");
    let of_a = world.requests.iter().filter(|request| request.url.contains("a.example"));
    assert!(
        of_a.into_iter().all(|request| request.start < closes || request.start >= opens),
        "asked while it is closed"
    );
    world.assert_hosts_polite(SECOND);
}

#[test]
fn a_host_is_asked_more_slowly_in_the_hours_that_its_site_says() {
    let (mut world, mut crawls) = world(12, &["a.example"]);
    let limits = serde_json::json!([{"from": "00:20", "to": "00:40", "max": 6, "period": 60}]);
    world.tell(&mut crawls, &[site("shop", limits)]);
    for page in 0..2_000 {
        world.add_to("shop", &format!("http://a.example/{page}"), 100, 1, true);
    }
    let (begins, ends) = (20 * 60 * SECOND - MIDNIGHT, 40 * 60 * SECOND - MIDNIGHT);
    world.run_to(ends + 300 * SECOND);
    let starts: Vec<Micros> = world.requests.iter().map(|request| request.start).collect();
    let within = |from: Micros, to: Micros| starts.iter().filter(|start| (from..to).contains(*start)).count();
    for minute in 0..20 {
        let from = begins + minute * 60 * SECOND;
        assert!(within(from, from + 60 * SECOND) <= 6, "in minute {minute}");
    }
    assert!(within(begins, ends) > 80, "it is asked all the same");
    assert!(within(ends + 10 * SECOND, ends + 70 * SECOND) > 20, "and faster when that is over");
}

/// The pages that were asked for in each turn of `turn_s`, from the first on.
fn by_turns(world: &World, turn_s: u64, since: Micros) -> Vec<usize> {
    let turn = |start: Micros| ((start + MIDNIGHT) / (turn_s * SECOND)) as usize;
    let pages = world.requests.iter().filter(|request| !request.url.ends_with("robots.txt") && request.start >= since);
    let mut counts = Vec::new();
    for request in pages {
        let at = turn(request.start) - turn(since);
        counts.resize(counts.len().max(at + 1), 0);
        counts[at] += 1;
    }
    counts
}

#[test]
fn a_host_gets_its_pages_of_a_day_one_in_each_turn() {
    let (mut world, mut crawls) = world(14, &["a.example", "b.example"]);
    let limits = serde_json::json!({"a": {"max": 96, "period": 86_400}});
    world.tell(&mut crawls, &[site("shop", limits)]);
    for page in 0..400 {
        world.add_to("shop", &format!("http://a.example/{page}"), 100, 1, true);
    }
    world.run_to(12 * 3_600 * SECOND);
    let counts = by_turns(&world, 900, 0);
    assert!(counts.iter().skip(1).all(|count| *count == 1), "one page in a quarter of an hour: {counts:?}");
    assert!((46..=49).contains(&counts.len()), "{counts:?}");
    assert!(world.core.standing().queues <= 1, "it keeps no place between two turns");
    world.add_to("shop", "http://b.example/", 100, 1, true);
    world.run_to(13 * 3_600 * SECOND);
    assert!(world.requests.iter().any(|request| request.url == "http://b.example/"), "another host is not concerned");
}

#[test]
fn a_host_gets_its_pages_of_a_day_in_the_hours_that_its_site_opens() {
    let (mut world, mut crawls) = world(17, &["a.example"]);
    let limits = serde_json::json!([{"from": "08:00", "to": "12:00", "max": 7, "period": 86_400}, {"from": "12:00", "to": "08:00", "max": 0}]);
    world.tell(&mut crawls, &[site("shop", limits)]);
    for page in 0..100 {
        world.add_to("shop", &format!("http://a.example/{page}"), 100, 1, true);
    }
    let slot = Slot::of_domain(url("http://a.example/").domain());
    for day in 0..3 {
        world.step(Input::Leased { slots: vec![(slot, (day + 2) * 24 * 3_600 * SECOND)] });
        world.run_to((day * 24 + 8) * 3_600 * SECOND - MIDNIGHT);
        let before = world.pages();
        world.run_to((day + 1) * 24 * 3_600 * SECOND - MIDNIGHT);
        assert_eq!(world.pages() - before, 7, "on day {day}, all of them between eight and twelve");
    }
    assert_eq!(world.pages(), 21, "none at another time");
}

#[test]
fn a_host_that_goes_from_hand_to_hand_gets_no_more_in_a_turn() {
    let (mut world, mut crawls) = world(15, &["a.example"]);
    let slot = Slot::of_domain(url("http://a.example/").domain());
    world.tell(&mut crawls, &[site("shop", serde_json::json!({"max": 24, "period": 86_400}))]);
    for page in 0..100 {
        world.add_to("shop", &format!("http://a.example/{page}"), 100, 1, true);
    }
    // Every seventeen minutes it is somebody else's, who knows nothing of what was asked for; then it stays.
    for hand in 1..60 {
        world.run_to(hand * 17 * 60 * SECOND);
        world.step(Input::Unleased { slot });
        world.step(Input::Leased { slots: vec![(slot, LONG)] });
        world.step(Input::Served { slot });
    }
    let counts = by_turns(&world, 3_600, 0);
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    assert!(counts.iter().sum::<usize>() >= 10, "{counts:?}");
    let stays = 60 * 17 * 60 * SECOND;
    world.run_to(stays + 8 * 3_600 * SECOND);
    let counts = by_turns(&world, 3_600, stays);
    assert!(counts.iter().skip(1).all(|count| *count == 1) && counts.len() >= 8, "{counts:?}");
}

#[test]
fn a_site_that_is_made_in_the_middle_of_a_turn_begins_at_once() {
    let (mut world, mut crawls) = world(16, &["a.example"]);
    let mut made = site("shop", serde_json::json!({"max": 1, "period": 86_400}));
    let said = SiteDefinition::decode(made.body.as_ref().unwrap()).unwrap();
    let c_date = Some("1970-01-01 00:17:00".to_owned());
    made.body = Some(SiteDefinition { site: Site { c_date, ..said.site }, ..said }.encode().unwrap());
    world.run_to(30 * SECOND);
    world.tell(&mut crawls, &[made]);
    for page in 0..3 {
        world.add_to("shop", &format!("http://a.example/{page}"), 100, 1, true);
    }
    world.run_to(600 * SECOND);
    assert_eq!(world.pages(), 1);
    world.run_to(25 * 3_600 * SECOND);
    assert_eq!(world.pages(), 2, "the next one the next day");
}

#[test]
fn other_hours_count_at_once() {
    let (mut world, mut crawls) = world(13, &["a.example"]);
    let limits = serde_json::json!([{"from": "00:10", "to": "02:00", "max": 0}]);
    world.tell(&mut crawls, &[site("shop", limits)]);
    world.add_to("shop", "http://a.example/", 100, 1, true);
    world.run_to(60 * SECOND);
    assert_eq!(world.requests.len(), 0);
    world.tell(&mut crawls, &[site("shop", serde_json::json!({"max": 1, "period": 1}))]);
    world.run_to(120 * SECOND);
    assert_eq!(world.left(), 0);
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
