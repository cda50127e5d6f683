//! Runs with other rules, other periods, and seeds that are named again.

use proto::crawl::filter::{Filter, FilterRules, Scope};

use super::*;

/// Admits every URL that matches none of these patterns.
pub(super) fn without(exclude: &[&str]) -> Filter {
    let exclude = exclude.iter().map(|pattern| (*pattern).to_owned()).collect();
    Filter::new(FilterRules { scope: Scope::Any, exclude, ..FilterRules::default() }, &[]).unwrap()
}

/// A whole pass, a few rows at a time; returns what came back, and after how many looks.
pub(super) fn take_back(store: &mut Store, filter: &Filter) -> (Vec<Admitted>, usize) {
    let (mut all, mut pass, mut looks) = (Vec::new(), Pass::START, 0);
    loop {
        let mut change = store.change();
        let taken = change.take_back(DEFAULT_CRAWL, filter, filter.digest(), pass, 3, 2_000).unwrap();
        change.commit().unwrap();
        all.extend(taken.0);
        looks += 1;
        match taken.1 {
            Some(next) => pass = next,
            None => return (all, looks),
        }
    }
}

fn seed(text: &str) -> Discovered {
    Discovered { depth: 0, ..discovered(text) }
}

fn name(store: &mut Store, text: &str) -> Vec<Admitted> {
    let mut change = store.change();
    let admitted = change.admit(DEFAULT_CRAWL, vec![seed(text), seed(text)], None, 1_000).unwrap();
    change.commit().unwrap();
    admitted
}

fn record(store: &Store, text: &str) -> proto::record::UrlRecord {
    store.url(&UrlKey::new(DEFAULT_CRAWL, &url(text))).unwrap().unwrap().record
}

#[test]
fn what_a_run_refuses_comes_back_in_a_run_that_admits_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let texts: Vec<String> = (0..10).map(|n| format!("http://a.example/{n}")).collect();
    let admitted = admit(&mut store, &texts.iter().map(String::as_str).collect::<Vec<_>>());
    let picks: Vec<Pick> = admitted.iter().enumerate().map(|(n, admitted)| pick(admitted, n as u64)).collect();
    select(&mut store, &picks);
    for pick in picks {
        settle(&mut store, pick, Ending::Filtered, &[]);
    }
    assert_eq!(store.state().places, Places { aside: 10, ..Places::default() });
    assert!(store.state().places.is_done(), "nothing is left for this run");
    assert_counted(&store);
    drop(store);

    let mut store = open(dir.path());
    assert_eq!(store.state().places.aside, 10, "also after a restart");
    let (back, _) = take_back(&mut store, &without(&["/[0-6]$"]));
    assert_eq!(back.len(), 3);
    assert_eq!(take_back(&mut store, &without(&["/[0-6]$"])).1, 1, "the same rules again: nothing is read");
    let (back, _) = take_back(&mut store, &without(&[]));
    assert_eq!(back.len(), 7);
    assert_eq!(store.state().places, Places { ready: 10, ..Places::default() });
    assert_eq!(record(&store, &texts[0]).progress.status, Status::New);
    assert_counted(&store);
    let first = pick(&back[0], 99);
    select(&mut store, std::slice::from_ref(&first));
    assert_eq!(settle(&mut store, first, answered(), &[]).kind, Some(OutcomeKind::Stored));
    assert_counted(&store);
}

#[test]
fn a_run_killed_while_it_looks_leaves_nothing_aside_for_the_rules_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let (all, none) = (without(&[]), without(&["http"]));
    take_back(&mut store, &all);
    let first = pick(&admit(&mut store, &["http://a.example/1"])[0], 1);
    let mut change = store.change();
    let (_, next) = change.take_back(DEFAULT_CRAWL, &none, none.digest(), Pass::START, 3, 2_000).unwrap();
    assert!(next.is_some(), "not at its end");
    change.select(std::slice::from_ref(&first)).unwrap();
    change.commit().unwrap();
    settle(&mut store, first, Ending::Filtered, &[]);
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(take_back(&mut store, &all).0.len(), 1);
    assert_counted(&store);
}

#[test]
fn an_address_that_was_refused_is_looked_at_again_with_other_rules() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let first = pick(&admit(&mut store, &["http://a.example/1"])[0], 1);
    select(&mut store, std::slice::from_ref(&first));
    settle(&mut store, first, Ending::Failed(Failure::AddressRefused, None, None), &[]);
    let state = store.state().clone();
    assert_eq!((state.places.aside, state.counters.by_failure["address_refused"]), (1, 1), "it is said why");
    assert_eq!(take_back(&mut store, &without(&["nothing"])).0.len(), 1);
    assert_counted(&store);
}

#[test]
fn links_beyond_the_rules_are_kept_once_within_their_bound_and_admitted_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), StoreOptions { links_aside_max: 4, ..small() }).unwrap();
    let first = pick(&admit(&mut store, &["http://a.example/1"])[0], 1);
    select(&mut store, std::slice::from_ref(&first));
    // One is known, one stands there twice, and there is one more than there is room for.
    let hosts = ["a.example/1", "b.example/", "b.example/", "c.example/", "d.example/", "e.example/", "f.example/"];
    let beyond = hosts.iter().map(|host| discovered(&format!("http://{host}"))).collect();
    let done = Settle { pick: first, ending: answered(), fetched: None, links: Vec::new(), beyond, unix_ms: 2_000 };
    let mut change = store.change();
    assert!(change.settle(done).unwrap().admitted.is_empty());
    change.commit().unwrap();
    assert_eq!((store.state().places.links_aside, store.state().counters.known), (4, 1));
    assert_counted(&store);
    drop(store);

    let mut store = open(dir.path());
    assert_eq!(name(&mut store, "http://c.example/").len(), 1);
    assert_eq!(store.state().places.links_aside, 3, "it is a seed now");
    let (back, _) = take_back(&mut store, &without(&["//[de]"]));
    let urls: Vec<&str> = back.iter().map(|admitted| admitted.entry.url.as_str()).collect();
    assert_eq!(urls, ["http://b.example/"]);
    assert_eq!((store.state().places.links_aside, store.state().counters.known), (2, 3));
    let stored = store.url(&UrlKey::new(DEFAULT_CRAWL, &url("http://b.example/"))).unwrap().unwrap();
    assert_eq!((stored.inlinks, stored.record.parent.is_some()), (1, true), "the page that named it is known");
    assert_counted(&store);
}

#[test]
fn what_waits_to_be_tried_again_does_not_hold_up_a_run_that_does_not_admit_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    for text in ["http://a.example/1", "http://b.example/1"] {
        let first = pick(&admit(&mut store, &[text])[0], 1);
        select(&mut store, std::slice::from_ref(&first));
        settle(&mut store, first, Ending::Failed(Failure::Timeout, None, None), &[]);
    }
    take_back(&mut store, &without(&["//a"]));
    assert_eq!(store.state().places, Places { retries: 1, aside: 1, ..Places::default() });
    assert_counted(&store);
    assert_eq!(take_back(&mut store, &without(&[])).0.len(), 1);
    assert_counted(&store);
}

#[test]
fn a_seed_that_failed_is_asked_for_again_when_it_is_named_again_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let (failed, page, waits) = ("http://failed.example/", "http://page.example/", "http://waits.example/");
    for (text, ending) in [(failed, Ending::Failed(Failure::DnsNotFound, None, None)), (page, answered())] {
        let first = pick(&name(&mut store, text)[0], 1);
        select(&mut store, std::slice::from_ref(&first));
        settle(&mut store, first, ending, &[]);
    }
    name(&mut store, waits);
    assert_eq!((name(&mut store, page).len(), name(&mut store, waits).len()), (0, 0));
    let again = name(&mut store, failed);
    assert_eq!(again.len(), 1, "although it stands twice in the list");
    assert_eq!(name(&mut store, failed).len(), 0, "it waits for its turn now");
    assert_eq!((record(&store, failed).progress.status, store.state().counters.failed), (Status::New, 0));
    assert_counted(&store);
    let first = pick(&again[0], 2);
    select(&mut store, std::slice::from_ref(&first));
    assert_eq!(settle(&mut store, first, answered(), &[]).kind, Some(OutcomeKind::Stored));
    assert_counted(&store);
}

fn with_period(dir: &Path, recrawl_period_ms: Option<u64>) -> Store {
    Store::open(dir, StoreOptions { recrawl_period_ms, ..small() }).unwrap()
}

#[test]
fn a_period_given_later_puts_up_what_was_crawled_before_and_another_one_puts_it_up_anew() {
    const DAY_MS: u64 = 86_400_000;
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let crawled_at = 2_000;
    for text in ["http://a.example/1", "http://a.example/2", "http://b.example/3"] {
        let first = pick(&admit(&mut store, &[text])[0], 1);
        select(&mut store, std::slice::from_ref(&first));
        let found = Findings { http_code: 200, crawled_at, ..Findings::default() };
        settle(&mut store, first, Ending::Answered(Box::new(found)), &[]);
    }
    admit(&mut store, &["http://a.example/never-crawled"]);
    drop(store);
    let due_by = |store: &mut Store, unix_ms| {
        let mut change = store.change();
        let due = change.fall_due(unix_ms, 100).unwrap();
        change.commit().unwrap();
        due
    };
    let mut store = with_period(dir.path(), Some(30 * DAY_MS));
    assert_eq!(store.state().places, Places { ready: 1, recrawls: 3, ..Places::default() });
    assert_counted(&store);
    assert_eq!(due_by(&mut store, crawled_at + 29 * DAY_MS).len(), 0);
    drop(store);
    let mut store = with_period(dir.path(), Some(DAY_MS));
    assert_eq!(store.state().places.recrawls, 3, "each once");
    let due = due_by(&mut store, crawled_at + 2 * DAY_MS);
    assert_eq!(due.len(), 3);
    assert_counted(&store);
    // What is in its queue is put up once more by the next change of mind: it is crawled once all the same.
    drop(store);
    let mut store = with_period(dir.path(), Some(2 * DAY_MS));
    for (flight, admitted) in due.iter().enumerate() {
        let pick = pick(admitted, flight as u64);
        select(&mut store, std::slice::from_ref(&pick));
        let unix_ms = crawled_at + 2 * DAY_MS;
        let mut change = store.change();
        let done = Settle { pick, ending: answered(), fetched: None, links: Vec::new(), beyond: Vec::new(), unix_ms };
        assert_eq!(change.settle(done).unwrap().kind, Some(OutcomeKind::Unchanged));
        change.commit().unwrap();
    }
    assert_eq!(due_by(&mut store, crawled_at + 3 * DAY_MS).len(), 0, "superseded");
    assert_eq!(store.state().places.recrawls, 3);
    assert_counted(&store);
    drop(store);
    let store = with_period(dir.path(), None);
    assert_eq!(store.state().places, Places { ready: 1, ..Places::default() }, "without a period no round waits");
    assert_counted(&store);
}
