//! The nodes' own fetchers as a client: single decisions, and a model in which nodes die between any two steps.

use proptest::prelude::*;

use super::*;
use crate::clients::gate;
use crate::id::Slot;

const RUNS: CrawlNow = CrawlNow { fetches: true, recrawl_s: None };
const RESTS: CrawlNow = CrawlNow { fetches: false, recrawl_s: None };

fn lease(url: &str, date_s: u64, since_ms: u64) -> Lease {
    let (crawl, key) = ("news".to_owned(), "a.example".to_owned());
    let told = Told { crawl, key, url: url.into(), metadata: Metadata::new(), date_s, created_s: 5 };
    Lease { told, since_ms }
}

fn decide(crawl: CrawlNow, lease: &Lease, found: Option<(FoundStage, u64)>, renewed: bool) -> Vec<Effect> {
    let mut core = OwnFetches::default();
    let mut out = Vec::new();
    core.step(0, Input::Leased(vec![lease.clone()]), &mut out);
    if renewed {
        core.step(0, Input::Renewed(vec![lease.clone()]), &mut out);
    }
    let found = found.map(|(stage, crawled_ms)| Found { stage, crawled_ms });
    let looked = Looked { lease: lease.clone(), belongs: true, found };
    core.step(90_000, Input::Looked(crawl, vec![looked]), &mut out);
    out
}

fn end(lease: &Lease, date_s: Option<u64>) -> Vec<Effect> {
    vec![Effect::End(vec![End { lease: lease.clone(), date_s }])]
}

#[test]
fn a_url_goes_to_the_crawl_and_what_became_of_it_goes_back() {
    let (new, again) = (lease("http://a.example/", 5, 9_000), lease("http://a.example/", 8, 9_000));
    assert_eq!(decide(RUNS, &new, None, false), [Effect::Submit(vec![new.clone()])]);
    for stage in [FoundStage::Waits, FoundStage::UnderWay] {
        assert_eq!(decide(RUNS, &new, Some((stage, 0)), false), []);
    }
    assert_eq!(decide(RUNS, &new, Some((FoundStage::Closed, 9_500)), false), end(&new, Some(0)));
    let daily = CrawlNow { recrawl_s: Some(100), ..RUNS };
    assert_eq!(decide(daily, &new, Some((FoundStage::Closed, 9_500)), false), end(&new, Some(109)));
    // What is due again is fetched again; what was merely found, and fetched before, is not.
    assert_eq!(decide(RUNS, &again, Some((FoundStage::Closed, 7_000)), false), [Effect::Renew(vec![again.clone()])]);
    assert_eq!(decide(RUNS, &again, Some((FoundStage::Closed, 7_000)), true), end(&again, Some(0)), "clocks differ");
    assert_eq!(decide(RUNS, &new, Some((FoundStage::Closed, 7_000)), false), end(&new, Some(0)));
    let before = Some((FoundStage::Closed, 4_999));
    assert_eq!(decide(RUNS, &new, before, false), [Effect::Renew(vec![new.clone()])], "its queue was emptied since");
}

#[test]
fn what_waits_long_is_looked_up_less_often() {
    let (mut core, new) = (OwnFetches::default(), lease("http://a.example/", 5, 9_000));
    core.step(9_000, Input::Leased(vec![new.clone()]), &mut Vec::new());
    let mut looks = Vec::new();
    for now_ms in (9_000..400_000).step_by(500) {
        for lease in core.due(now_ms, "news") {
            looks.push(now_ms);
            let found = Some(Found { stage: FoundStage::Waits, crawled_ms: 0 });
            let looked = vec![Looked { lease, belongs: true, found }];
            core.step(now_ms, Input::Looked(RUNS, looked), &mut Vec::new());
        }
    }
    assert_eq!(looks[..3], [9_000, 9_500, 10_000]);
    let gaps: Vec<u64> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.is_sorted() && gaps.last() == Some(&30_000), "{gaps:?}");
    assert_eq!((core.room("news"), core.room("new")), (HELD_MAX - 1, HELD_MAX), "each crawl has its own room");
}

#[test]
fn what_the_nodes_do_not_fetch_any_more_is_given_back() {
    let new = lease("http://a.example/", 5, 9_000);
    assert_eq!(decide(RESTS, &new, None, false), end(&new, None));
    assert_eq!(decide(RESTS, &new, Some((FoundStage::UnderWay, 0)), false), [], "it is on its way to the server");
    assert_eq!(decide(RESTS, &new, Some((FoundStage::Waits, 0)), false), [Effect::Withdraw(vec![new.clone()])]);
    assert_eq!(decide(RESTS, &new, Some((FoundStage::Withdrawn, 0)), false), end(&new, None));
    assert_eq!(decide(RUNS, &new, Some((FoundStage::Withdrawn, 0)), false), [Effect::Renew(vec![new.clone()])]);
    assert_eq!(decide(RUNS, &new, Some((FoundStage::Withdrawn, 0)), true), end(&new, Some(0)), "it is refused again");
}

#[test]
fn what_is_no_url_of_the_crawl_is_done_with() {
    let mut core = OwnFetches::default();
    let mut out = Vec::new();
    let odd = lease("nonsense", 5, 9_000);
    core.step(0, Input::Leased(vec![odd.clone()]), &mut out);
    core.step(0, Input::Looked(RUNS, vec![Looked { lease: odd.clone(), belongs: false, found: None }]), &mut out);
    assert_eq!(out, end(&odd, Some(0)));
    core.step(0, Input::Ended(vec![odd]), &mut out);
    assert_eq!((core.room("news"), core.due(0, "news")), (HELD_MAX, Vec::new()));
    // An answer about a lease that is over decides nothing.
    out.clear();
    let gone = lease("http://a.example/", 5, 9_000);
    core.step(0, Input::Looked(RUNS, vec![Looked { lease: gone, belongs: true, found: None }]), &mut out);
    assert_eq!(out, []);
}

#[test]
fn a_slot_that_another_node_serves_is_its_business() {
    let mut core = OwnFetches::default();
    let mut out = Vec::new();
    let new = lease("http://a.example/", 5, 9_000);
    core.step(0, Input::Leased(vec![new.clone()]), &mut out);
    let slot = slot_of("news", "a.example");
    core.step(0, Input::Served([slot].into_iter().collect()), &mut out);
    assert_eq!(core.due(0, "news"), [new]);
    let other = Slot(slot.0 ^ 1);
    core.step(0, Input::Served([other].into_iter().collect()), &mut out);
    assert_eq!(core.due(0, "news"), []);
}

#[test]
fn a_lease_of_the_nodes_is_behind_every_lease_of_a_client() {
    let now_ms = 1_800_000_000_000;
    assert_eq!(own_since(own_lease(now_ms)), Some(now_ms));
    assert_eq!(own_since(gate::lease_until(u32::MAX, now_ms)), None);
    assert_eq!((own_since(0), own_since(own_lease(u64::MAX)).is_some()), (None, true));
}

#[test]
fn the_switch_is_one_of_three_words() {
    for fetch in [Fetch::Own, Fetch::Clients, Fetch::Both] {
        assert_eq!(fetch.to_string().parse(), Ok(fetch));
    }
    let wrong = "Own".parse::<Fetch>().unwrap_err().to_string();
    assert!(wrong.contains("\"Own\"") && wrong.contains("own (the nodes), clients, or both"), "{wrong}");
    assert!(Fetch::Both.by_nodes() && Fetch::Both.by_clients());
    assert!(!Fetch::Clients.by_nodes() && !Fetch::Own.by_clients());
}

#[test]
fn a_clients_own_words_change_nothing() {
    let mut told = lease("http://User@A.example/x", 5, 9).told;
    told.metadata = vec![("depth".into(), vec!["7".into()]), (DEPTH.into(), vec!["many".into()])];
    let found = discovered_of(&told, &UrlRules::default()).unwrap();
    assert_eq!((found.depth, found.priority, found.kind), (0, PRIORITY, EntryKind::Page));
    assert_eq!(discovered_of(&Told { url: "nonsense".into(), ..told }, &UrlRules::default()), None);
}

proptest! {
    #[test]
    fn what_a_page_links_to_is_the_same_when_it_is_taken(depth: u16, priority: u16, redirects: u8, sitemap: bool) {
        let url = CanonicalUrl::parse("http://a.example:81/x?y", &UrlRules::default()).unwrap();
        let kind = if sitemap { EntryKind::Sitemap } else { EntryKind::Page };
        let found = Discovered { url, kind, depth, priority, redirects };
        let Item { crawl, key, url, metadata, date_s } = item_of("news", &found).unwrap();
        prop_assert_eq!((key.as_str(), date_s), ("a.example", None));
        let told = Told { crawl, key, url, metadata, date_s: 7, created_s: 7 };
        prop_assert_eq!(discovered_of(&told, &UrlRules::default()), Some(found));
    }
}

// The model: one queue with some URLs, a crawl that knows some of them, clients with leases that end, and nodes of which one at a time serves the slot.

const URLS: usize = 4;
const LEASE_MS: u64 = 30_000;

#[derive(Clone, Debug)]
enum Step {
    /// The nodes take what is due.
    TakeOwn(usize),
    /// A client takes one.
    TakeClient(usize),
    /// A client is done with it, in whatever time.
    Done(usize),
    /// A client wants it fetched again.
    Again(usize),
    /// The node that serves looks, and carries out the first so many effects.
    Look(usize),
    /// The crawl begins with what waits.
    Begin(usize),
    /// The crawl is done with what it began.
    Crawled(usize),
    /// Another node serves the slot, and finds on disk what is leased.
    Killed,
    /// The crawl is switched.
    Switch(bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..URLS).prop_map(Step::TakeOwn),
        2 => (0..URLS).prop_map(Step::TakeClient),
        1 => (0..URLS).prop_map(Step::Done),
        1 => (0..URLS).prop_map(Step::Again),
        6 => (0..4usize).prop_map(Step::Look),
        3 => (0..URLS).prop_map(Step::Begin),
        3 => (0..URLS).prop_map(Step::Crawled),
        1 => Just(Step::Killed),
        1 => any::<bool>().prop_map(Step::Switch),
        2 => (1..40_000u64).prop_map(Step::Wait),
    ]
}

#[derive(Clone, Debug, Default)]
struct Row {
    date_s: u64,
    leased_until_ms: u64,
    /// It is a client who has it, or had it last.
    client: bool,
}

struct Model {
    now_ms: u64,
    fetches: bool,
    rows: Vec<Row>,
    crawl: Vec<Option<Found>>,
    core: OwnFetches,
}

impl Model {
    fn lease(&self, url: usize) -> Option<Lease> {
        let row = &self.rows[url];
        let since_ms = own_since(row.leased_until_ms)?;
        Some(lease(&format!("http://a.example/{url}"), row.date_s, since_ms))
    }

    fn leases(&self) -> Vec<Lease> {
        (0..URLS).filter_map(|url| self.lease(url)).collect()
    }

    fn url_of(lease: &Lease) -> usize {
        lease.told.url[lease.told.url.len() - 1..].parse().expect("a digit")
    }

    fn look(&mut self, effects_max: usize) {
        let urls = self.core.due(u64::MAX, "news").into_iter().map(|lease| {
            let found = self.crawl[Model::url_of(&lease)];
            Looked { lease, belongs: true, found }
        });
        let (urls, mut out): (Vec<Looked>, _) = (urls.collect(), Vec::new());
        let crawl = CrawlNow { fetches: self.fetches, recrawl_s: None };
        self.core.step(self.now_ms, Input::Looked(crawl, urls), &mut out);
        for effect in out.into_iter().take(effects_max) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        let waits = Some(Found { stage: FoundStage::Waits, crawled_ms: 0 });
        match effect {
            Effect::Submit(leases) => leases.iter().for_each(|lease| self.crawl[Model::url_of(lease)] = waits),
            Effect::Renew(leases) => {
                for lease in &leases {
                    let found = self.crawl[Model::url_of(lease)].as_mut().expect("it is known");
                    found.stage = FoundStage::Waits;
                }
                self.core.step(self.now_ms, Input::Renewed(leases), &mut Vec::new());
            }
            Effect::Withdraw(leases) => {
                for lease in &leases {
                    let found = self.crawl[Model::url_of(lease)].as_mut().expect("it is known");
                    found.stage = FoundStage::Withdrawn;
                }
            }
            Effect::End(ends) => {
                for End { lease, date_s } in &ends {
                    // As the store does it: only what is still the same lease.
                    let row = &mut self.rows[Model::url_of(lease)];
                    if own_since(row.leased_until_ms) == Some(lease.since_ms) {
                        *row = Row { date_s: date_s.unwrap_or(row.date_s), ..Row::default() };
                    }
                }
                let leases = ends.into_iter().map(|end| end.lease).collect();
                self.core.step(self.now_ms, Input::Ended(leases), &mut Vec::new());
            }
        }
    }

    fn is_free(&self, url: usize) -> bool {
        let row = &self.rows[url];
        row.date_s > 0 && row.date_s <= self.now_ms / 1_000 && row.leased_until_ms <= self.now_ms
    }
}

proptest! {
    /// Whatever happens in whatever order, and whoever dies when: what the crawl may ask for is leased to the nodes, so that no client has it; and in the end nothing is stuck.
    #[test]
    fn no_url_is_with_a_client_and_with_the_nodes_at_once(steps in proptest::collection::vec(step(), 1..120)) {
        let row = Row { date_s: 5, ..Row::default() };
        let mut model = Model { now_ms: 10_000, fetches: true, rows: vec![row; URLS], crawl: vec![None; URLS], core: OwnFetches::default() };
        for step in steps {
            match step {
                Step::Wait(ms) => model.now_ms += ms,
                Step::TakeOwn(url) if model.fetches && model.is_free(url) => {
                    (model.rows[url].leased_until_ms, model.rows[url].client) = (own_lease(model.now_ms), false);
                    let lease = model.lease(url).expect("just taken");
                    model.core.step(model.now_ms, Input::Leased(vec![lease]), &mut Vec::new());
                }
                Step::TakeClient(url) if model.is_free(url) => {
                    (model.rows[url].leased_until_ms, model.rows[url].client) = (model.now_ms + LEASE_MS, true);
                }
                Step::Done(url) if model.rows[url].client => model.rows[url] = Row::default(),
                Step::Again(url) if model.rows[url].date_s == 0 => model.rows[url].date_s = model.now_ms / 1_000,
                Step::Look(effects_max) => model.look(effects_max),
                Step::Begin(url) => {
                    if let Some(found) = model.crawl[url].as_mut().filter(|found| model.fetches && found.stage == FoundStage::Waits) {
                        found.stage = FoundStage::UnderWay;
                        prop_assert!(own_since(model.rows[url].leased_until_ms).is_some(), "it asks for what it does not have");
                    }
                }
                Step::Crawled(url) => {
                    if let Some(found) = model.crawl[url].as_mut().filter(|found| found.stage == FoundStage::UnderWay) {
                        *found = Found { stage: FoundStage::Closed, crawled_ms: model.now_ms };
                    }
                }
                Step::Killed => {
                    model.core = OwnFetches::default();
                    let leases = model.leases();
                    model.core.step(model.now_ms, Input::Leased(leases), &mut Vec::new());
                }
                Step::Switch(fetches) => model.fetches = fetches,
                _ => {}
            }
            for (row, found) in model.rows.iter().zip(&model.crawl) {
                let waits = found.is_some_and(|found| matches!(found.stage, FoundStage::Waits | FoundStage::UnderWay));
                prop_assert!(!waits || own_since(row.leased_until_ms).is_some(), "the crawl has what the nodes gave back");
            }
        }
        for _ in 0..4 {
            for found in model.crawl.iter_mut().flatten() {
                if matches!(found.stage, FoundStage::Waits | FoundStage::UnderWay) && (model.fetches || found.stage == FoundStage::UnderWay) {
                    *found = Found { stage: FoundStage::Closed, crawled_ms: model.now_ms };
                }
            }
            model.look(usize::MAX);
        }
        prop_assert_eq!(model.leases(), Vec::new(), "everything was given back or settled");
    }
}
