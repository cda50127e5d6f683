//! The store on a real RocksDB in a temporary folder.

use proptest::prelude::*;
use proto::batch::{Discovered, EntryKind, Pick};
use proto::crawl::frontier::HostFacts;
use proto::crawl::outcome::{Ending, OutcomeKind};
use proto::crawl::retry::Failure;
use proto::key::{DEFAULT_CRAWL, QueueKey, UrlKey};
use proto::record::{Findings, Status};
use proto::url::{CanonicalUrl, UrlRules};

use super::*;

mod contents;
mod graph;
mod rules;

fn url(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text, &UrlRules::default()).unwrap()
}

fn discovered(text: &str) -> Discovered {
    Discovered { url: url(text), kind: EntryKind::Page, depth: 1, priority: 100, redirects: 0 }
}

fn small() -> StoreOptions {
    StoreOptions { cache_bytes: 1 << 20, write_buffer_bytes: 4 << 20, ..StoreOptions::default() }
}

fn open(dir: &Path) -> Store {
    Store::open(dir, small()).unwrap()
}

fn admit(store: &mut Store, texts: &[&str]) -> Vec<Admitted> {
    let mut change = store.change();
    let urls = texts.iter().map(|text| discovered(text)).collect();
    let admitted = change.admit(DEFAULT_CRAWL, urls, None, 1_000).unwrap();
    change.commit().unwrap();
    admitted
}

fn pick(admitted: &Admitted, flight: u64) -> Pick {
    let Admitted { queue, order, entry, .. } = admitted.clone();
    Pick { flight, queue, order, entry }
}

fn select(store: &mut Store, picks: &[Pick]) {
    let mut change = store.change();
    change.select(picks).unwrap();
    change.commit().unwrap();
}

fn settle(store: &mut Store, pick: Pick, ending: Ending, links: &[&str]) -> Landed {
    let links = links.iter().map(|text| discovered(text)).collect();
    let mut change = store.change();
    let landed =
        change.settle(Settle { pick, ending, fetched: None, links, beyond: Vec::new(), unix_ms: 2_000 }).unwrap();
    change.commit().unwrap();
    landed
}

fn answered() -> Ending {
    Ending::Answered(Box::new(Findings { http_code: 200, size: 10, ..Findings::default() }))
}

fn assert_counted(store: &Store) {
    let (counters, places) = store.recount().unwrap();
    assert_eq!(counters, store.state().counters);
    assert_eq!(places, store.state().places);
}

#[test]
fn a_url_is_admitted_once_however_often_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    assert_eq!(admit(&mut store, &["http://a.example/1", "http://a.example/1", "http://a.example/2"]).len(), 2);
    assert_eq!(admit(&mut store, &["http://a.example/1", "http://A.example:80/2#x"]).len(), 0);
    drop(store);
    let mut store = open(dir.path());
    assert_eq!(admit(&mut store, &["http://a.example/2", "http://a.example/3"]).len(), 1);
    assert_counted(&store);
}

#[test]
fn a_settled_page_is_there_after_a_restart_with_its_links() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let first = pick(&admit(&mut store, &["http://a.example/"])[0], 7);
    select(&mut store, std::slice::from_ref(&first));
    let landed = settle(&mut store, first.clone(), answered(), &["http://a.example/x", "http://b.example/y"]);
    assert_eq!((landed.kind, landed.admitted.len()), (Some(OutcomeKind::Stored), 2));
    assert!(landed.admitted.iter().any(|new| new.new_host), "b.example is new");
    drop(store);
    let store = open(dir.path());
    let stored = store.url(&UrlKey::new(DEFAULT_CRAWL, &first.entry.url)).unwrap().unwrap();
    assert_eq!(stored.record.progress.status, Status::Processed);
    assert_eq!(store.state().places, Places { ready: 2, ..Places::default() });
    assert_counted(&store);
}

/// Folders of earlier builds have levels; their files are merged by size from the next start on.
#[test]
fn a_folder_with_levels_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    admit(&mut store, &["http://a.example/1", "http://b.example/2"]);
    store.flush().unwrap();
    drop(store);
    let levels = Database::open_cf(&rocksdb::Options::default(), dir.path().join("db"), columns::FAMILIES).unwrap();
    for name in columns::FAMILIES {
        levels.compact_range_cf::<&[u8], &[u8]>(levels.cf_handle(name).unwrap(), None, None);
    }
    drop(levels);

    let mut store = open(dir.path());
    let sixth = store.db.property_value_cf(store.family("url"), "rocksdb.num-files-at-level6").unwrap();
    assert_eq!(sixth.as_deref(), Some("1"), "it was merged by level");
    assert_eq!(admit(&mut store, &["http://a.example/1", "http://b.example/3"]).len(), 1);
    store.compact().unwrap();
    assert_eq!(store.state().places.ready, 3);
    assert_counted(&store);
    drop(store);
    assert_counted(&open(dir.path()));
}

#[test]
fn what_was_handed_out_returns_to_its_queue_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let admitted = admit(&mut store, &["http://a.example/1", "http://a.example/2"]);
    select(&mut store, &[pick(&admitted[0], 1), pick(&admitted[1], 2)]);
    assert_eq!(store.state().places.flights, 2);
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.state().places, Places { ready: 2, ..Places::default() });
    let (entries, more) = store.refill(&admitted[0].queue, None, 10).unwrap();
    assert_eq!(entries.len(), 2);
    assert!(!more && entries.iter().all(|(_, entry)| entry.progress.attempt == 1));
    assert_counted(&store);
}

#[test]
fn an_outcome_of_a_flight_that_is_not_known_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let first = pick(&admit(&mut store, &["http://a.example/"])[0], 7);
    let landed = settle(&mut store, first.clone(), answered(), &["http://a.example/x"]);
    assert!(landed.kind.is_none() && landed.admitted.is_empty());
    select(&mut store, std::slice::from_ref(&first));
    let stale = Pick { flight: 6, ..first.clone() };
    assert!(settle(&mut store, stale, answered(), &[]).kind.is_none());
    assert!(settle(&mut store, first.clone(), answered(), &[]).kind.is_some());
    assert!(settle(&mut store, first, answered(), &[]).kind.is_none(), "settled twice");
    assert_counted(&store);
}

#[test]
fn a_failed_page_waits_and_falls_due() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let first = pick(&admit(&mut store, &["http://a.example/"])[0], 1);
    select(&mut store, std::slice::from_ref(&first));
    settle(&mut store, first.clone(), Ending::Failed(Failure::Timeout, None, None), &[]);
    assert_eq!(store.state().places, Places { retries: 1, ..Places::default() });
    drop(store);
    let mut store = open(dir.path());
    let at = store.next_due().expect("it waits");
    let mut change = store.change();
    assert!(change.fall_due(at - 1, 10).unwrap().is_empty());
    let due = change.fall_due(at, 10).unwrap();
    change.commit().unwrap();
    assert_eq!(due.len(), 1);
    assert_eq!((due[0].entry.progress.errors, store.next_due()), (1, None));
    assert_eq!(store.state().places, Places { ready: 1, ..Places::default() });
    assert_counted(&store);
}

#[test]
fn what_falls_due_in_the_group_that_put_it_there_is_found_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let first = pick(&admit(&mut store, &["http://a.example/"])[0], 1);
    select(&mut store, std::slice::from_ref(&first));
    let mut change = store.change();
    let lost = Ending::Failed(Failure::Lost, None, None);
    change
        .settle(Settle {
            pick: first,
            ending: lost,
            fetched: None,
            links: Vec::new(),
            beyond: Vec::new(),
            unix_ms: 2_000,
        })
        .unwrap();
    assert_eq!(change.fall_due(3_000, 10).unwrap().len(), 0, "it is not on disk yet");
    change.commit().unwrap();
    let mut change = store.change();
    assert_eq!(change.fall_due(3_000, 10).unwrap().len(), 1);
    change.commit().unwrap();
    assert_eq!(store.next_due(), None);
    assert_counted(&store);
}

#[test]
fn a_flight_that_is_given_up_and_settled_in_one_group_lands_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let first = pick(&admit(&mut store, &["http://a.example/"])[0], 1);
    select(&mut store, std::slice::from_ref(&first));
    let mut change = store.change();
    let settle = |ending| Settle {
        pick: first.clone(),
        ending,
        fetched: None,
        links: Vec::new(),
        beyond: Vec::new(),
        unix_ms: 2_000,
    };
    let late = change.settle(settle(answered())).unwrap();
    let lost = change.settle(settle(Ending::Failed(Failure::Lost, None, None))).unwrap();
    change.commit().unwrap();
    assert_eq!((late.kind, lost.kind), (Some(OutcomeKind::Stored), None));
    assert_eq!(store.state().places, Places::default());
    assert_counted(&store);
}

#[test]
fn an_entry_that_is_handed_out_twice_is_counted_once_and_lands_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let admitted = admit(&mut store, &["http://a.example/"]);
    let (first, second) = (pick(&admitted[0], 1), pick(&admitted[0], 2));
    select(&mut store, std::slice::from_ref(&first));
    select(&mut store, std::slice::from_ref(&second));
    assert_eq!((store.state().places.ready, store.state().places.flights), (0, 1));
    let landed = |store: &mut Store, pick| settle(store, pick, answered(), &[]);
    landed(&mut store, first);
    assert_eq!(store.state().places.flights, 1, "the former flight lands nowhere");
    landed(&mut store, second);
    assert_eq!(store.state().places, Places::default());
    assert_counted(&store);
}

#[test]
fn a_flight_whose_entry_is_gone_keeps_no_folder_from_being_opened() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let admitted = admit(&mut store, &["http://a.example/1", "http://a.example/2"]);
    select(&mut store, &[pick(&admitted[0], 1), pick(&admitted[1], 2)]);
    store.db.delete_cf(store.family("ready"), admitted[0].queue.ready(admitted[0].order)).unwrap();
    assert_eq!(store.flights().unwrap().len(), 1);
    drop(store);
    let store = open(dir.path());
    assert_eq!((store.state().places.ready, store.state().places.flights), (1, 0));
    assert_counted(&store);
}

#[test]
fn what_falls_due_twice_in_one_group_is_queued_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let urls = ["http://a.example/1", "http://a.example/2", "http://a.example/3"];
    let admitted = admit(&mut store, &urls);
    let picks: Vec<Pick> = admitted.iter().enumerate().map(|(n, admitted)| pick(admitted, n as u64)).collect();
    select(&mut store, &picks);
    let lost = |pick: &Pick| Settle {
        pick: pick.clone(),
        ending: Ending::Failed(Failure::Lost, None, None),
        fetched: None,
        links: Vec::new(),
        beyond: Vec::new(),
        unix_ms: 2_000,
    };
    let mut change = store.change();
    change.settle(lost(&picks[0])).unwrap();
    change.settle(lost(&picks[1])).unwrap();
    change.commit().unwrap();
    // The one that is settled between them makes the second look scan the slot again.
    let mut change = store.change();
    let late = u64::MAX - 1;
    assert_eq!(change.fall_due(late, 10).unwrap().len(), 2);
    change.settle(lost(&picks[2])).unwrap();
    assert_eq!(change.fall_due(late, 10).unwrap().len(), 0);
    assert_eq!(change.fall_due(late, 10).unwrap().len(), 0);
    change.commit().unwrap();
    assert_counted(&store);
    assert_eq!((store.state().places.ready, store.state().places.retries), (2, 1));
}

#[test]
fn in_links_count_other_pages_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let admitted = admit(&mut store, &["http://a.example/1", "http://a.example/2", "http://a.example/3"]);
    for (number, admitted) in admitted.iter().enumerate() {
        let pick = pick(admitted, number as u64);
        select(&mut store, std::slice::from_ref(&pick));
        settle(&mut store, pick, answered(), &["http://a.example/1", "http://a.example/new"]);
    }
    let inlinks =
        |store: &Store, text: &str| store.url(&UrlKey::new(DEFAULT_CRAWL, &url(text))).unwrap().unwrap().inlinks;
    assert_eq!(inlinks(&store, "http://a.example/1"), 2, "a link to itself does not count");
    assert_eq!(inlinks(&store, "http://a.example/new"), 3);
    assert_eq!(inlinks(&store, "http://a.example/2"), 0);
    drop(store);
    let store = open(dir.path());
    assert_eq!(inlinks(&store, "http://a.example/1"), 2, "what was only tallied is read back");
    assert_eq!(inlinks(&store, "http://a.example/new"), 3);
}

#[test]
fn in_links_are_the_same_however_often_they_are_added_to_the_records() {
    let links = ["http://a.example/", "http://a.example/x", "http://a.example/y", "http://b.example/z"];
    for tally_urls_max in [0, 2, 3, 5, 65_536] {
        let dir = tempfile::tempdir().unwrap();
        let options = || StoreOptions { tally_urls_max, ..StoreOptions::default() };
        let mut store = Store::open(dir.path(), options()).unwrap();
        let pages: Vec<String> = (0..12).map(|page| format!("http://a.example/{page}")).collect();
        let admitted = admit(&mut store, &pages.iter().map(String::as_str).collect::<Vec<_>>());
        for (number, admitted) in admitted.iter().enumerate() {
            let pick = pick(admitted, number as u64);
            select(&mut store, std::slice::from_ref(&pick));
            settle(&mut store, pick, answered(), &links[..1 + number % links.len()]);
            if number == 7 {
                drop(store);
                store = Store::open(dir.path(), options()).unwrap();
            }
        }
        let counts = links.map(|link| store.url(&UrlKey::new(DEFAULT_CRAWL, &url(link))).unwrap().unwrap().inlinks);
        assert_eq!(counts, [12, 9, 6, 3], "tally of {tally_urls_max}");
        assert_counted(&store);
    }
}

#[test]
fn traps_are_not_admitted() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { host_urls_max: 5, path_queries_max: 2, ..small() };
    let mut store = Store::open(dir.path(), options).unwrap();
    let queries: Vec<String> = (0..9).map(|n| format!("http://q.example/p?n={n}")).collect();
    assert_eq!(admit(&mut store, &queries.iter().map(String::as_str).collect::<Vec<_>>()).len(), 2);
    let pages: Vec<String> = (0..9).map(|n| format!("http://p.example/{n}")).collect();
    assert_eq!(admit(&mut store, &pages.iter().map(String::as_str).collect::<Vec<_>>()).len(), 5);
    assert_eq!(store.state().places.traps, 7 + 4);
    assert_counted(&store);
}

#[test]
fn queues_are_swept_in_parts_and_facts_come_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let pages: Vec<String> = (0..30).map(|n| format!("http://h{}.example/{n}", n % 10)).collect();
    admit(&mut store, &pages.iter().map(String::as_str).collect::<Vec<_>>());
    let heard = QueueKey::new(DEFAULT_CRAWL, &url("http://h3.example/"));
    let mut change = store.change();
    change.keep_facts(&heard, &HostFacts { heard: true, ..HostFacts::default() }).unwrap();
    change.commit().unwrap();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let (queues, next) = store.sweep(None, after.as_ref(), 3, 2).unwrap();
        assert!(queues.iter().all(|queue| queue.entries.len() == 2 && queue.more));
        seen.extend(queues);
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|queue| queue.facts.heard == (queue.key == heard)));
}

#[test]
fn a_folder_in_use_or_of_the_future_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert!(matches!(Store::open(dir.path(), small()), Err(StoreError::InUse(_))));
    assert!(Store::open_for_reading(dir.path()).is_ok());
    drop(store);
    std::fs::write(dir.path().join("FORMAT"), "999\n").unwrap();
    assert!(matches!(Store::open(dir.path(), small()), Err(StoreError::Newer { found: 999, .. })));
    assert!(matches!(Store::open_for_reading(dir.path()), Err(StoreError::Newer { .. })));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(Store::open_for_reading(empty.path()), Err(StoreError::Missing(_))));
    // One that is being made: some families are there, and not yet the format.
    let half = tempfile::tempdir().unwrap();
    let mut options = rocksdb::Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    drop(rocksdb::DB::open_cf(&options, half.path().join("db"), ["url", "ready"]).unwrap());
    assert!(matches!(Store::open_for_reading(half.path()), Err(StoreError::Missing(_))));
}

/// One thing that happens to a store.
#[derive(Clone, Debug)]
enum Step {
    Discover(Vec<u8>),
    Select(u8),
    Settle(u8, Vec<u8>),
    Fail(u8),
    Refuse(u8),
    Rules(u8),
    FallDue,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => proptest::collection::vec(0..40u8, 1..6).prop_map(Step::Discover),
        4 => any::<u8>().prop_map(Step::Select),
        4 => (any::<u8>(), proptest::collection::vec(0..40u8, 0..6)).prop_map(|(at, links)| Step::Settle(at, links)),
        2 => any::<u8>().prop_map(Step::Fail),
        2 => any::<u8>().prop_map(Step::Refuse),
        1 => any::<u8>().prop_map(Step::Rules),
        1 => Just(Step::FallDue),
        1 => Just(Step::Reopen),
    ]
}

fn page(number: u8) -> String {
    format!("http://h{}.d{}.example/{number}?q={}", number % 7, number % 3, number % 2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn counters_always_equal_a_recount_and_no_url_is_ever_lost(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions { recrawl_period_ms: Some(50), ..small() };
        let mut store = Store::open(dir.path(), options.clone()).unwrap();
        let mut flying: Vec<Pick> = Vec::new();
        let mut next_flight = 0;
        for step in steps {
            let take = |flying: &mut Vec<Pick>, at: u8| {
                (!flying.is_empty()).then(|| flying.swap_remove(usize::from(at) % flying.len()))
            };
            match step {
                Step::Discover(pages) => {
                    let texts: Vec<String> = pages.into_iter().map(page).collect();
                    admit(&mut store, &texts.iter().map(String::as_str).collect::<Vec<_>>());
                }
                Step::Select(at) => {
                    let (queues, _) = store.sweep(None, None, 100, 100).unwrap();
                    if queues.is_empty() {
                        continue;
                    }
                    let queue = &queues[usize::from(at) % queues.len()];
                    let (order, entry) = queue.entries[0].clone();
                    next_flight += 1;
                    let pick = Pick { flight: next_flight, queue: queue.key.clone(), order, entry };
                    select(&mut store, std::slice::from_ref(&pick));
                    flying.push(pick);
                }
                Step::Settle(at, links) => if let Some(pick) = take(&mut flying, at) {
                    let texts: Vec<String> = links.into_iter().map(page).collect();
                    let landed = settle(&mut store, pick, answered(), &texts.iter().map(String::as_str).collect::<Vec<_>>());
                    prop_assert!(landed.kind.is_some());
                },
                Step::Fail(at) => if let Some(pick) = take(&mut flying, at) {
                    settle(&mut store, pick, Ending::Failed(Failure::Timeout, None, None), &[]);
                },
                Step::Refuse(at) => if let Some(pick) = take(&mut flying, at) {
                    settle(&mut store, pick, Ending::Filtered, &[]);
                },
                Step::Rules(host) => {
                    rules::take_back(&mut store, &rules::without(&[&format!("//h{}[.]", host % 7)]));
                }
                Step::FallDue => {
                    let mut change = store.change();
                    change.fall_due(u64::MAX - 1, 5).unwrap();
                    change.commit().unwrap();
                }
                Step::Reopen => {
                    drop(store);
                    store = Store::open(dir.path(), options.clone()).unwrap();
                    flying.clear();
                }
            }
            let (counters, places) = store.recount().unwrap();
            prop_assert_eq!(&counters, &store.state().counters);
            prop_assert_eq!(&places, &store.state().places);
            // Every URL has exactly one place.
            let placed = places.ready + places.retries + places.recrawls + places.flights + places.aside;
            prop_assert_eq!(placed, counters.known);
        }
    }
}
