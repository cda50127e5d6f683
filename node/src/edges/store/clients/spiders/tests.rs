//! Pages of spiders in a real database against a model: nothing is lost, nobody is told what another has, rates are kept, and whoever takes over knows it all.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use proto::cluster::copy::RecordCopy;
use proto::id::NodeId;
use proto::score::revisit::Revisit;
use proto::score::temperature::BURST;

use super::super::super::StoreOptions;
use super::*;

const START: u64 = 1_790_000_000_000;
const LEASE_S: u64 = 30;

fn store(dir: &Path, node: u64) -> Store {
    let options = StoreOptions { node: NodeId(node), replica: true, graph: true, ..StoreOptions::default() };
    Store::open(dir, options).unwrap()
}

fn all() -> SlotSet {
    (0..SLOTS).map(Slot).collect()
}

fn url(domain: u8, page: u8) -> String {
    format!("http://d{domain}.example/{page}")
}

fn ask(store: &mut Store, ask: SpiderAsk, rules: &SpiderRules, now_ms: u64) -> (SpiderSaid, Vec<RecordCopy>) {
    ask_of(store, &all(), ask, rules, now_ms)
}

fn ask_of(
    store: &mut Store,
    slots: &SlotSet,
    ask: SpiderAsk,
    rules: &SpiderRules,
    now_ms: u64,
) -> (SpiderSaid, Vec<RecordCopy>) {
    let decided = store.spider_act(ask, rules, slots, now_ms).unwrap();
    (decided.said, decided.copies)
}

fn take(store: &mut Store, wanted: u32, rules: &SpiderRules, now_ms: u64) -> (Vec<String>, Vec<RecordCopy>) {
    let (said, copies) = ask(store, SpiderAsk::Take { wanted, lease_s: LEASE_S as u32 }, rules, now_ms);
    let SpiderSaid::Given(urls) = said else { panic!("pages are given") };
    (urls, copies)
}

fn merge(store: &mut Store, copies: Vec<RecordCopy>, now_ms: u64) {
    let mut change = store.change();
    change.merge(copies, now_ms).unwrap();
    change.commit().unwrap();
}

fn records(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let rows =
        store.rows("client", Vec::new(), Vec::new()).map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())));
    rows.collect::<Result<_, _>>().unwrap()
}

#[derive(Clone, Debug)]
enum Deed {
    /// Domain, page, score, depth.
    Found(u8, u8, u8, u32),
    Crawled(u8, u8),
    Failed(u8, u8),
    Worth(u8, u8, i16),
    /// So many visits in 1,000 seconds.
    Frequency(u8, u8, u8),
    /// What was given up is put up again.
    Reload,
    Take(u8),
    Wait(u16),
    /// The other replica serves from now on.
    TakeOver,
    /// From now on each serves one half of the slots, or all of them again.
    Split,
}

fn deed() -> impl Strategy<Value = Deed> {
    let page = || (0..4u8, 0..8u8);
    prop_oneof![
        4 => (page(), 0..4u8, 1..4u32).prop_map(|((domain, page), score, depth)| Deed::Found(domain, page, score, depth)),
        3 => page().prop_map(|(domain, page)| Deed::Crawled(domain, page)),
        1 => page().prop_map(|(domain, page)| Deed::Failed(domain, page)),
        1 => (page(), -3..4i16).prop_map(|((domain, page), level)| Deed::Worth(domain, page, level)),
        1 => (page(), 0..100u8).prop_map(|((domain, page), often)| Deed::Frequency(domain, page, often)),
        1 => Just(Deed::Reload),
        3 => (0..12u8).prop_map(Deed::Take),
        2 => (0..40_000u16).prop_map(Deed::Wait),
        1 => Just(Deed::TakeOver),
        1 => Just(Deed::Split),
    ]
}

/// A page as it should be.
#[derive(Clone, Copy, Debug)]
struct Page {
    state: PageState,
    date_s: u64,
    leased_until_ms: u64,
}

impl Page {
    fn waits(&self, now_ms: u64) -> bool {
        let due = self.date_s == AT_ONCE || (self.date_s > 0 && self.date_s <= now_ms / 1_000);
        due && self.leased_until_ms <= now_ms
    }
}

fn check(deeds: Vec<Deed>, rules: &SpiderRules, hard: Option<f64>) -> Result<(), TestCaseError> {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut stores = [store(dirs[0].path(), 1), store(dirs[1].path(), 2)];
    let (mut serves, mut now, mut split) = (0, START, false);
    let half = |serves: usize| (0..SLOTS).filter(|slot| usize::from(slot % 2) == serves).map(Slot).collect::<SlotSet>();
    let mut pages: BTreeMap<String, Page> = BTreeMap::new();
    let mut served: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut warmths: BTreeMap<String, Warmth> = BTreeMap::new();
    let domain_of = |url: &str| canonical(url).unwrap().domain().to_owned();
    for deed in deeds.into_iter().chain([
        Deed::Wait(60_000),
        Deed::Take(255),
        Deed::TakeOver,
        Deed::Wait(60_000),
        Deed::Take(255),
    ]) {
        now += 1;
        let copies = match deed {
            Deed::Wait(by) => {
                now += u64::from(by);
                continue;
            }
            Deed::TakeOver => {
                serves = 1 - serves;
                continue;
            }
            Deed::Split => {
                split = !split;
                continue;
            }
            Deed::Frequency(domain, page, often) => {
                let (url, hz) = (url(domain, page), f64::from(often) / 1_000.0);
                if let Some(page) = pages.get_mut(&url) {
                    let set = (hz > 0.0).then_some(hz);
                    if page.state.frequency_hz != set {
                        page.state.frequency_hz = set;
                        page.date_s = rules.date_s(&url, &page.state, now);
                    }
                }
                ask(&mut stores[serves], SpiderAsk::Frequencies(vec![(url, hz)]), rules, now).1
            }
            Deed::Reload => {
                let given_up = |page: &&mut Page| page.date_s == 0 && page.state.crawls == 0;
                let mut reloaded = 0;
                for (url, page) in pages.iter_mut().filter(|(_, page)| given_up(page)) {
                    let state = PageState { failures: 0, ..page.state };
                    let date_s = rules.date_s(url, &state, now);
                    if date_s > 0 {
                        (page.state, page.date_s, reloaded) = (state, date_s, reloaded + 1);
                    }
                }
                let (said, copies) = ask(&mut stores[serves], SpiderAsk::Reload { after: None }, rules, now);
                prop_assert_eq!(said, SpiderSaid::Reloaded(reloaded, None));
                copies
            }
            Deed::Found(domain, page, score, depth) => {
                let (url, score) = (url(domain, page), f32::from(score));
                let found = Found { url: url.clone(), score, depth, linked_from: None };
                pages
                    .entry(url.clone())
                    .and_modify(|page| {
                        let better = score > page.state.score || depth < page.state.depth;
                        if page.state.crawls == 0 && better {
                            page.state.score = page.state.score.max(score);
                            page.state.depth = page.state.depth.min(depth);
                            if page.date_s == 0 {
                                page.date_s = rules.date_s(&url, &page.state, now);
                            }
                        }
                    })
                    .or_insert_with(|| {
                        let state = PageState { score, depth, ..PageState::default() };
                        Page { state, date_s: rules.date_s(&url, &state, now), leased_until_ms: 0 }
                    });
                ask(&mut stores[serves], SpiderAsk::Found(vec![found]), rules, now).1
            }
            Deed::Crawled(domain, page) => {
                let url = url(domain, page);
                let report = Crawled {
                    url: url.clone(),
                    score: 1.0,
                    content_hash: None,
                    links: vec!["http://d0.example/".into()],
                };
                let mut state = pages.get(&url).map(|page| page.state).unwrap_or_default();
                state.crawled(1.0, None, now);
                pages.insert(url.clone(), Page { state, date_s: rules.date_s(&url, &state, now), leased_until_ms: 0 });
                ask(&mut stores[serves], SpiderAsk::Crawled(vec![report]), rules, now).1
            }
            Deed::Failed(domain, page) => {
                let url = url(domain, page);
                if let Some(page) = pages.get_mut(&url) {
                    page.state.failures += 1;
                    (page.date_s, page.leased_until_ms) = (rules.date_s(&url, &page.state, now), 0);
                }
                ask(&mut stores[serves], SpiderAsk::Failed(vec![url]), rules, now).1
            }
            Deed::Worth(domain, page, level) => {
                let url = url(domain, page);
                let key = page_key(&canonical(&url).unwrap()).into_bytes();
                pages.entry(url).and_modify(|page| page.state.level = level);
                ask(&mut stores[serves], SpiderAsk::Worth(vec![(key, level)]), rules, now).1
            }
            Deed::Take(wanted) => {
                let slots = if split { half(serves) } else { all() };
                let of_these = |url: &str| slots.contains(queue_of(&canonical(url).unwrap()).slot());
                let take = SpiderAsk::Take { wanted: u32::from(wanted), lease_s: LEASE_S as u32 };
                let (said, copies) = ask_of(&mut stores[serves], &slots, take, rules, now);
                let SpiderSaid::Given(urls) = said else { panic!("pages are given") };
                prop_assert!(urls.iter().all(|url| of_these(url)), "{:?}", urls);
                let best: Vec<Rank> = urls.iter().map(|url| pages[url].state.rank()).collect();
                if hard.is_none() {
                    prop_assert!(best.is_sorted_by_key(|rank| std::cmp::Reverse(*rank)), "best first: {:?}", urls);
                    let waiting = pages.iter().filter(|(url, page)| of_these(url) && page.waits(now)).count();
                    prop_assert_eq!(urls.len(), waiting.min(usize::from(wanted)), "all that wait, and no other");
                    let last = best.last().copied();
                    let missed =
                        pages.iter().filter(|(url, page)| of_these(url) && page.waits(now) && !urls.contains(url));
                    for (url, page) in missed {
                        prop_assert!(Some(page.state.rank()) <= last || wanted == 0, "{} was better", url);
                    }
                }
                let mut warmest = 0;
                for url in &urls {
                    let page = pages.get_mut(url).expect("a page that was told of");
                    prop_assert!(page.waits(now), "{} is not to be had: {:?}", url, page);
                    page.leased_until_ms = now + LEASE_S * 1_000;
                    served.entry(domain_of(url)).or_default().push(now);
                    if let Some(rates) = rules.rates {
                        let warmth = warmths.entry(domain_of(url)).or_default();
                        let step = rates.step(*warmth, now);
                        prop_assert!(step.is_some(), "{} is too warm", url);
                        warmest = warmest.max(step.unwrap_or(0));
                        *warmth = rates.heat(*warmth, now);
                    }
                }
                if let Some(rates) = rules.rates {
                    for (url, _) in pages.iter().filter(|(url, page)| of_these(url) && page.waits(now)) {
                        let step = rates.step(warmths.get(&domain_of(url)).copied().unwrap_or_default(), now);
                        let left_behind = step.is_some_and(|step| step < warmest || urls.len() < usize::from(wanted));
                        prop_assert!(!left_behind, "{} is of a cooler domain, or there was room", url);
                    }
                }
                copies
            }
        };
        merge(&mut stores[1 - serves], copies, now);
    }
    prop_assert_eq!(records(&stores[0]), records(&stores[1]));
    if let Some(hard) = hard {
        for times in served.values() {
            for (first, from) in times.iter().enumerate() {
                for (count, to) in (1..).zip(&times[first..]) {
                    let allowed = hard * (to - from) as f64 / 1_000.0 + BURST + 1.0;
                    prop_assert!(f64::from(count) <= allowed, "{} of {}", count, allowed);
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_and_nothing_is_given_twice(deeds in proptest::collection::vec(deed(), 0..60)) {
        let revisit = Revisit::new(0.02, 0.0, 0.0, 0, "").unwrap();
        let rules = SpiderRules { schedule: proto::clients::spider::Schedule::Both, revisit, retry_s: 5, failures_max: 2, depth_max: 2, ..SpiderRules::default() };
        check(deeds, &rules, None)?;
    }

    #[test]
    fn rates_are_kept_also_by_who_takes_over(deeds in proptest::collection::vec(deed(), 0..60), hard in 0.02..2.0f64) {
        let rules = SpiderRules { rates: Rates::new(hard / 4.0, hard), retry_s: 1, ..SpiderRules::default() };
        check(deeds, &rules, Some(hard))?;
    }
}

#[test]
fn a_warm_domain_is_served_again_when_it_has_cooled() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    let rules = SpiderRules { rates: Rates::new(0.1, 1.0), ..SpiderRules::default() };
    let found = |page: u32| Found { url: format!("http://a.example/{page}"), score: 0.5, depth: 0, linked_from: None };
    ask(&mut store, SpiderAsk::Found((0..100).map(found).collect()), &rules, START);
    let burst = take(&mut store, 100, &rules, START).0.len();
    assert!((9..=11).contains(&burst), "{burst}");
    assert!(take(&mut store, 100, &rules, START + 500).0.is_empty());
    let later = take(&mut store, 100, &rules, START + 5_000).0.len();
    assert!((4..=5).contains(&later), "{later} in five seconds");
}

#[test]
fn only_cool_domains_give_pages_where_others_may_have_cooler_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    let rules = SpiderRules { rates: Rates::new(0.1, 10.0), ..SpiderRules::default() };
    let found = |page: u32| {
        let url = format!("http://d{}.example/{page}", page % 3);
        Found { url, score: 0.5, depth: 0, linked_from: None }
    };
    ask(&mut store, SpiderAsk::Found((0..30).map(found).collect()), &rules, START);
    let mut taken = |ask_for: SpiderAsk, now_ms| match ask(&mut store, ask_for, &rules, now_ms).0 {
        SpiderSaid::Given(urls) => urls.len(),
        said => panic!("{said:?}"),
    };
    let (cool, any) = (SpiderAsk::TakeCool { wanted: 9, lease_s: 60 }, SpiderAsk::Take { wanted: 9, lease_s: 60 });
    assert_eq!(taken(cool.clone(), START), 3, "one of each, as all are cold");
    assert_eq!(taken(cool.clone(), START + 1), 0);
    assert_eq!(taken(any, START + 2), 9, "up to the hard rate");
    assert_eq!(taken(cool, START + 60_000), 3);
}

#[test]
fn nobody_walks_past_domains_that_are_warm() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    let rules = SpiderRules { rates: Rates::new(0.1, 1.0), ..SpiderRules::default() };
    let found = |number: u32| {
        let (url, score) = (format!("http://d{}.example/{number}", number % 100), 1.0 / number as f32);
        Found { url, score, depth: 0, linked_from: None }
    };
    ask(&mut store, SpiderAsk::Found((1..=500).map(found).collect()), &rules, START);
    let in_step = |store: &Store, step: u64| {
        let prefix = crawl_prefix(PAGES);
        let rows = store.rows("agenda", prefix.clone(), prefix.clone()).map(|row| row.unwrap().0);
        rows.filter(|key| split_agenda(key, prefix.len()).unwrap().0 >> RANK_BITS == step).count()
    };
    assert_eq!((in_step(&store, 0), in_step(&store, 1)), (100, 0));
    take(&mut store, 90, &rules, START);
    assert_eq!((in_step(&store, 0), in_step(&store, 1)), (10, 90), "one page of each, and they are put down as warm");
    take(&mut store, 20, &rules, START);
    assert_eq!((in_step(&store, 0), in_step(&store, 1) + in_step(&store, 2)), (0, 100));
    take(&mut store, 1, &rules, START + 60_000);
    assert_eq!(in_step(&store, 0), 99, "they have cooled");
}

/// Domains in front of the agenda: all of them, and those of other slots than these.
fn in_front(store: &Store, slots: &SlotSet) -> (usize, usize) {
    let prefix = crawl_prefix(PAGES);
    let rows = store.rows("agenda", prefix.clone(), prefix.clone()).map(|row| row.unwrap().0);
    let front: Vec<ClientQueueId> = rows
        .map(|key| split_agenda(&key, prefix.len()).unwrap())
        .filter(|(place, _)| *place < BEHIND)
        .map(|(_, queue)| queue)
        .collect();
    (front.len(), front.iter().filter(|queue| !slots.contains(queue.slot())).count())
}

fn take_of(store: &mut Store, slots: &SlotSet, wanted: u32, now_ms: u64) -> usize {
    let take = SpiderAsk::Take { wanted, lease_s: LEASE_S as u32 };
    match store.spider_act(take, &SpiderRules::default(), slots, now_ms).unwrap().said {
        SpiderSaid::Given(urls) => {
            assert!(urls.iter().all(|url| slots.contains(queue_of(&canonical(url).unwrap()).slot())));
            urls.len()
        }
        said => panic!("{said:?}"),
    }
}

#[test]
fn nobody_walks_past_domains_that_others_serve() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    let third: SlotSet = (0..SLOTS).filter(|slot| slot % 3 == 0).map(Slot).collect();
    let found = |domain: u32| Found {
        url: format!("http://d{domain}.example/{domain}"),
        score: 0.5,
        depth: 0,
        linked_from: None,
    };
    let find = |store: &mut Store, domains: std::ops::Range<u32>| {
        ask(store, SpiderAsk::Found(domains.map(found).collect()), &SpiderRules::default(), START);
    };
    find(&mut store, 0..600);
    let (all_in_front, others) = in_front(&store, &third);
    assert!(all_in_front == 600 && others > 300, "{others} of {all_in_front}");
    let ours = 600 - others;
    assert_eq!(take_of(&mut store, &third, 1_000, START), ours);
    assert_eq!(in_front(&store, &third), (0, 0), "what others serve was put behind");
    // What is heard of later goes there at once; so does what is heard again, and a lease that ends.
    find(&mut store, 600..900);
    let (_, late) = in_front(&store, &third);
    assert_eq!(late, 0, "domains that others serve stand in front");
    let better = Found { score: 0.9, ..found(1) };
    ask(&mut store, SpiderAsk::Found(vec![better]), &SpiderRules::default(), START);
    assert_eq!(in_front(&store, &third).1, 0);

    // Another node is gone: two thirds are served here now, and nothing is left behind.
    let rest: SlotSet = (0..SLOTS).filter(|slot| slot % 3 != 0).map(Slot).collect();
    let waiting = take_of(&mut store, &third, 1_000, START);
    assert_eq!(take_of(&mut store, &rest, 1_000, START), 900 - ours - waiting);
    assert_eq!(take_of(&mut store, &all(), 1_000, START), 0);
    // After a start nobody knows who served what, and all that comes back is found.
    drop(store);
    let options = StoreOptions { node: NodeId(1), replica: true, graph: true, ..StoreOptions::default() };
    let mut store = Store::open(dir.path(), options).unwrap();
    let later = START + LEASE_S * 1_000;
    let first = take_of(&mut store, &third, 1_000, later);
    assert_eq!((first, take_of(&mut store, &rest, 1_000, later)), (ours + waiting, 900 - ours - waiting));
}

#[test]
fn more_domains_than_are_brought_in_front_at_once_come_in_several_calls() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    let domains = SERVES_MAX as u32 + 500;
    for first in (0..domains).step_by(1_000) {
        let found =
            |domain: u32| Found { url: format!("http://d{domain}.example/"), score: 0.5, depth: 0, linked_from: None };
        let some = (first..(first + 1_000).min(domains)).map(found).collect();
        ask(&mut store, SpiderAsk::Found(some), &SpiderRules::default(), START);
    }
    let nothing = SlotSet::default();
    for left in [domains as usize - SERVES_MAX, 0] {
        assert_eq!(take_of(&mut store, &nothing, 10, START), 0);
        assert_eq!(in_front(&store, &nothing).0, left, "put behind some at a time");
    }
    let mut given = 0;
    for _ in 0..=domains / 1_000 {
        given += take_of(&mut store, &all(), 1_000, START);
    }
    assert_eq!(given, domains as usize);
}

#[test]
fn times_that_are_over_are_not_walked_past() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    let rules = SpiderRules::default();
    let found =
        |domain: u32| Found { url: format!("http://d{domain}.example/"), score: 0.5, depth: 0, linked_from: None };
    ask(&mut store, SpiderAsk::Found((0..50).map(found).collect()), &rules, START);
    let times = [crawl_prefix(PAGES), vec![LATE]].concat();
    let mut fronts = Vec::new();
    for round in 0..3 {
        assert_eq!(take(&mut store, 50, &rules, START + round * LEASE_S * 1_000).0.len(), 50);
        take(&mut store, 50, &rules, START + round * LEASE_S * 1_000 + 1);
        fronts.push(store.fronts.of("agenda", &times));
        // The first row that is there, and no row before it.
        let first = store.rows("agenda", times.clone(), crawl_prefix(PAGES)).next().unwrap().unwrap().0;
        assert_eq!(fronts.last().unwrap().as_slice(), &first[..]);
    }
    assert!(fronts.is_sorted() && fronts[0] > times && fronts[0] < fronts[2]);
}

#[test]
fn links_reach_the_graph_of_every_replica() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut stores = [store(dirs[0].path(), 1), store(dirs[1].path(), 2)];
    let links = vec!["http://b.example/".to_owned(), "http://a.example/2".to_owned(), "http://a.example/1".to_owned()];
    let report = Crawled { url: "http://a.example/1".into(), score: 0.5, content_hash: None, links };
    let (_, copies) = ask(&mut stores[0], SpiderAsk::Crawled(vec![report]), &SpiderRules::default(), START);
    merge(&mut stores[1], copies, START);
    for store in &stores {
        let graph = store.graph();
        let mut intake = graph.intake().unwrap();
        assert_eq!(graph.take_in(&mut intake, |_, _| {}).unwrap(), 1);
        let counts = intake.counts();
        assert_eq!((counts.pages, counts.crawled, counts.links), (3, 1, 2), "a link to itself is none");
        let key = page_key(&canonical("http://a.example/1").unwrap());
        let page = graph.page(&key).unwrap().unwrap();
        assert_eq!((page.content, graph.links_of(page.number).unwrap().unwrap().len()), (0.5, 2));
    }
}

#[test]
fn what_a_node_that_is_behind_hears_of_a_page_undoes_no_lease_and_no_crawl() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut ahead, mut behind, mut empty] = [1, 2, 3].map(|node| store(dirs[node as usize - 1].path(), node));
    let rules = SpiderRules::default();
    let found =
        |score| SpiderAsk::Found(vec![Found { url: "http://a.example/".into(), score, depth: 1, linked_from: None }]);
    let known = |store: &Store| {
        let key = page_key(&canonical("http://a.example/").unwrap());
        let page = store.client_url(&key).unwrap().unwrap();
        (page.leased_until_ms, state(&page).crawls, page.date_s)
    };
    let copies = ask(&mut ahead, found(0.1), &rules, START).1;
    merge(&mut behind, copies, START);
    take(&mut ahead, 1, &rules, START + 10);
    let leased = (START + 10 + LEASE_S * 1_000, 0, AT_ONCE);
    // One that has not heard of the lease finds a better link and a level, one that knows nothing finds the page.
    let key = page_key(&canonical("http://a.example/").unwrap()).into_bytes();
    for heard in [
        ask(&mut behind, found(0.9), &rules, START + 20).1,
        ask(&mut behind, SpiderAsk::Worth(vec![(key, 3)]), &rules, START + 21).1,
        ask(&mut empty, found(0.5), &rules, START + 22).1,
    ] {
        assert_eq!(heard.len(), 1, "it is news there");
        merge(&mut ahead, heard, START + 30);
        assert_eq!(known(&ahead), leased);
    }
    let crawled = Crawled { url: "http://a.example/".into(), score: 0.5, content_hash: None, links: Vec::new() };
    let copies = ask(&mut ahead, SpiderAsk::Crawled(vec![crawled]), &rules, START + 40).1;
    let later = ask(&mut behind, found(2.0), &rules, START + 50).1;
    merge(&mut ahead, later, START + 60);
    merge(&mut behind, copies.clone(), START + 60);
    merge(&mut empty, copies, START + 60);
    assert_eq!([&ahead, &behind, &empty].map(known), [(0, 1, 0); 3], "crawled it stays");
}
