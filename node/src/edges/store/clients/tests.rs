//! Queues of clients in a real database: counts against a recount, and two replicas that saw the same in different orders.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use proto::clients::ask::{Counts, Look, Setting};
use proto::clients::fetch::{End, Lease};
use proto::clients::identity::is_queue;
use proto::cluster::copy::RecordCopy;
use proto::cluster::slot_set::SlotSet;
use proto::id::{NodeId, SLOTS};

use super::super::StoreOptions;
use super::*;
use proto::clients::ask::{Act, Said};

fn store(dir: &Path, node: u64) -> Store {
    Store::open(dir, StoreOptions { node: NodeId(node), replica: true, ..StoreOptions::default() }).unwrap()
}

fn all() -> SlotSet {
    (0..SLOTS).map(Slot).collect()
}

fn item(crawl: &str, key: &str, url: &str, date_s: Option<u64>) -> Item {
    Item { crawl: crawl.into(), key: key.into(), url: url.into(), metadata: Vec::new(), date_s }
}

fn put(store: &mut Store, items: Vec<Item>, unix_ms: u64) -> (Vec<Taken>, Vec<RecordCopy>) {
    let mut change = store.change();
    let decided = change.put_items(items, unix_ms, &BTreeMap::new()).unwrap();
    change.commit().unwrap();
    (decided.said, decided.copies)
}

fn take(
    store: &mut Store,
    crawl: Option<&str>,
    queues_max: u32,
    urls_max: u32,
    unix_ms: u64,
) -> (Vec<String>, Vec<RecordCopy>) {
    let crawl = crawl.map(str::to_owned);
    let act = Act::Take { crawl, key: None, queues_max, urls_max, lease_s: 10, delay_default_s: 1 };
    let decided = store.act(act, &Taker::ANY, &all(), unix_ms).unwrap();
    let Said::Given { urls, .. } = decided.said else { panic!("URLs are given") };
    (urls.into_iter().map(|told| format!("{}/{}", told.key, told.url)).collect(), decided.copies)
}

fn take_own(store: &mut Store, crawl: &str, urls_max: u32, unix_ms: u64) -> (Vec<Lease>, Vec<RecordCopy>) {
    let (crawl, key, queues_max, lease_s) = (Some(crawl.to_owned()), None, 0, 0);
    let act = Act::Take { crawl, key, queues_max, urls_max, lease_s, delay_default_s: 1 };
    let decided = store.act(act, &Taker::Own, &all(), unix_ms).unwrap();
    let Said::Given { urls, .. } = decided.said else { panic!("URLs are given") };
    (urls.into_iter().map(|told| Lease { told, since_ms: unix_ms }).collect(), decided.copies)
}

fn end_own(store: &mut Store, ends: Vec<End>, unix_ms: u64) -> Vec<RecordCopy> {
    let mut change = store.change();
    let decided = change.end_own(ends, unix_ms).unwrap();
    change.commit().unwrap();
    decided.copies
}

fn own(store: &Store, crawl: &str) -> Vec<Lease> {
    let (mut leases, next) = store.own_leases(crawl, &all(), None).unwrap();
    assert_eq!(next, None);
    leases.sort_by(|a, b| (&a.told.key, &a.told.url).cmp(&(&b.told.key, &b.told.url)));
    leases
}

fn counts(store: &Store, crawl: &str, unix_ms: u64) -> Counts {
    let look = Look::Stats { slots: all(), crawl: crawl.into(), key: None, after: None };
    let Said::Stats(counts, None) = store.look(look, unix_ms).unwrap() else { panic!("counts, all at once") };
    counts
}

fn records(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    store
        .rows("client", Vec::new(), Vec::new())
        .map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect()
}

/// Counts of a crawl from its records alone.
fn recount(store: &Store, crawl: &str, unix_ms: u64) -> (u64, u64, u64) {
    let mut sums = (0, 0, 0);
    for (key, body) in records(store) {
        let key = UrlKey::from_bytes(&key);
        if is_queue(&key) || ClientQueueId::of(&key).unwrap().crawl() != crawl {
            continue;
        }
        let url: ClientUrl = wire::decode(&body).unwrap();
        match url.date_s {
            0 => sums.1 += 1,
            _ => sums.0 += 1,
        }
        sums.2 += u64::from(url.date_s > 0 && url.leased_until_ms > unix_ms);
    }
    sums
}

#[test]
fn what_could_not_be_written_is_not_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    put(&mut store, vec![item("x", "a", "1", Some(1))], 10_000);
    let mut change = store.change();
    change.put_items(vec![item("x", "a", "2", Some(1))], 11_000, &BTreeMap::new()).unwrap();
    let full = |_: &mut Store| Err(StoreError::DiskFull(Path::new("x").into()));
    assert!(change.commit_after(true, full).is_err());
    assert_eq!(counts(&store, "x", 12_000).scheduled, 1);
    put(&mut store, vec![item("x", "a", "3", Some(1))], 13_000);
    assert_eq!(counts(&store, "x", 14_000).scheduled, recount(&store, "x", 14_000).0);
}

#[test]
fn queues_take_turns_and_leases_come_back_in_the_order_of_their_dates() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    let items = ["a", "b", "c"].map(|key| [item("x", key, "2", Some(2)), item("x", key, "1", Some(1))]).concat();
    put(&mut store, items, 10_000);
    let mut first = take(&mut store, Some("x"), 2, 1, 10_000).0;
    first.extend(take(&mut store, Some("x"), 2, 1, 10_001).0);
    first.sort();
    assert_eq!(first, ["a/1", "b/1", "c/1"], "who has had its turn waits for its delay");
    assert_eq!(take(&mut store, None, 9, 1, 11_500).0, [""; 0], "one of each is out");
    let mut second = take(&mut store, None, 9, 2, 13_000).0;
    second.sort();
    assert_eq!(second, ["a/2", "b/2", "c/2"]);
    assert_eq!(counts(&store, "x", 13_000), Counts { scheduled: 6, leased: 6, completed: 0, queues: 3, active: 3 });
    let again = take(&mut store, None, 1, 9, 30_000).0;
    assert!(again[0].ends_with("/1") && again[1].ends_with("/2"), "leases are over, dates count: {again:?}");
    assert_eq!(counts(&store, "x", 30_000).leased, 2);
}

#[test]
fn what_the_nodes_take_is_theirs_until_they_say_what_became_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    put(&mut store, ["1", "2", "3", "4"].map(|url| item("x", "a", url, Some(1))).to_vec(), 10_000);
    let (leases, _) = take_own(&mut store, "x", 2, 10_000);
    assert_eq!((leases.len(), own(&store, "x")), (2, leases.clone()), "what is out can be read from the disk");
    let year_ms = 366 * 86_400_000;
    assert_eq!(take_own(&mut store, "x", 2, year_ms).0, [], "as many are out as may be");
    assert_eq!(counts(&store, "x", year_ms).leased, 2, "no time ends it");
    // A client's share of the queue is another one, and of what only the nodes fetch there is none.
    let only_own = Taker::Client { withheld: vec!["x".to_owned()] };
    for crawl in [Some("x".to_owned()), None] {
        let act = Act::Take { crawl, key: None, queues_max: 0, urls_max: 1, lease_s: 10, delay_default_s: 0 };
        let Said::Given { urls, .. } = store.act(act, &only_own, &all(), year_ms).unwrap().said else { panic!() };
        assert_eq!(urls, []);
    }
    assert_eq!(take(&mut store, None, 0, 1, year_ms).0, ["a/3"]);
    // Settled, given back, and put by a client in between.
    let settled = End { lease: leases[0].clone(), date_s: Some(0) };
    let given_back = End { lease: leases[1].clone(), date_s: None };
    end_own(&mut store, vec![settled, given_back.clone()], year_ms + 1);
    let is = Counts { scheduled: 3, leased: 1, completed: 1, queues: 1, active: 1 };
    assert_eq!((counts(&store, "x", year_ms + 1), own(&store, "x")), (is, Vec::new()));
    let (leases, _) = take_own(&mut store, "x", 1, year_ms + 2_000);
    assert_eq!(leases[0].told.url, "2");
    put(&mut store, vec![item("x", "a", "2", Some(7))], year_ms + 2_001);
    assert_eq!(
        end_own(&mut store, vec![given_back, End { lease: leases[0].clone(), date_s: Some(0) }], year_ms + 2_002),
        []
    );
    assert_eq!(counts(&store, "x", year_ms + 2_002).completed, 1, "what the client said counts");
}

#[test]
fn a_slot_that_is_dropped_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    put(&mut store, vec![item("x", "a", "1", None), item("x", "b", "1", None), item("y", "a", "1", Some(0))], 10_000);
    take(&mut store, None, 9, 9, 10_000);
    for queue in [ClientQueueId::new("x", "a"), ClientQueueId::new("y", "a"), ClientQueueId::new("x", "b")] {
        let mut change = store.change();
        change.drop_slot(queue.slot()).unwrap();
        change.commit().unwrap();
    }
    for family in ["client", "turn", "line", "agenda"] {
        assert_eq!(store.rows(family, Vec::new(), Vec::new()).count(), 0, "{family}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8, Option<u64>),
    Take(u32, u32),
    TakeOwn(u32),
    EndOwn(u8, Option<u64>),
    Set(u8, Setting),
    Delete(u8),
    Purge(u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let date = prop_oneof![Just(None), Just(Some(0)), (1..40u64).prop_map(Some)];
    let setting = prop_oneof![
        (0..30u64).prop_map(Setting::Block),
        proptest::option::of(0..3u32).prop_map(Setting::Delay),
        (0..3u32).prop_map(Setting::Limit)
    ];
    prop_oneof![
        6 => (0..3u8, 0..5u8, date).prop_map(|(queue, url, date)| Step::Put(queue, url, date)),
        3 => (0..3u32, 0..3u32).prop_map(|(queues, urls)| Step::Take(queues, urls)),
        2 => (0..3u32).prop_map(Step::TakeOwn),
        2 => (any::<u8>(), proptest::option::of(0..40u64)).prop_map(|(which, date)| Step::EndOwn(which, date)),
        1 => (0..3u8, setting).prop_map(|(queue, setting)| Step::Set(queue, setting)),
        1 => (0..3u8).prop_map(Step::Delete),
        1 => (0..20_000u64).prop_map(Step::Purge),
        2 => (1..15_000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn counts_are_a_recount_and_replicas_agree_in_whatever_order(steps in proptest::collection::vec(step(), 1..40), order in any::<u64>()) {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut store, mut replica) = (store(dir.path(), 1), store(other.path(), 2));
        let (mut now_ms, mut letters) = (10_000, Vec::new());
        for step in steps {
            let key = |queue: u8| format!("q{queue}");
            let decided = match step {
                Step::Wait(ms) => { now_ms += ms; continue }
                Step::Put(queue, url, date) => put(&mut store, vec![item("x", &key(queue), &url.to_string(), date)], now_ms).1,
                Step::Take(queues, urls) => take(&mut store, None, queues, urls, now_ms).1,
                Step::TakeOwn(urls) => {
                    let (leases, copies) = take_own(&mut store, "x", urls, now_ms);
                    let out = own(&store, "x");
                    prop_assert!(leases.iter().all(|lease| out.contains(lease)));
                    copies
                }
                Step::EndOwn(which, date_s) => {
                    let mut out = own(&store, "x");
                    if out.is_empty() {
                        continue;
                    }
                    let lease = out.swap_remove(usize::from(which) % out.len());
                    end_own(&mut store, vec![End { lease, date_s }], now_ms)
                }
                Step::Set(queue, setting) => store.act(Act::Set { crawl: "x".into(), key: key(queue), setting }, &Taker::ANY, &all(), now_ms).unwrap().copies,
                Step::Delete(queue) => store.act(Act::Delete { slots: all(), crawl: "x".into(), key: Some(key(queue)) }, &Taker::ANY, &all(), now_ms).unwrap().copies,
                Step::Purge(ago) => store.act(Act::Purge { slots: all(), crawl: "x".into(), key: None, cutoff_ms: now_ms - ago.min(now_ms), after: None }, &Taker::ANY, &all(), now_ms).unwrap().copies,
            };
            letters.extend(decided);
            let counted = counts(&store, "x", now_ms);
            prop_assert_eq!((counted.scheduled, counted.completed, counted.leased), recount(&store, "x", now_ms));
            assert_ends(&store, "x", now_ms);
        }
        // The same copies in another order, each twice, and what was lost on the way once more by repair.
        let mut shuffled: Vec<(u64, RecordCopy)> = letters.iter().cloned().zip(0u64..).map(|(copy, n)| (xxhash_rust::xxh3::xxh3_64_with_seed(&n.to_le_bytes(), order), copy)).collect();
        shuffled.sort_by_key(|(place, _)| *place);
        for (_, copy) in shuffled.iter().chain(&shuffled) {
            let mut change = replica.change();
            change.merge(vec![copy.clone()], now_ms).unwrap();
            change.commit().unwrap();
        }
        prop_assert_eq!(records(&replica), records(&store));
        prop_assert_eq!(own(&replica, "x"), own(&store, "x"));
        assert_ends(&replica, "x", now_ms);
        let (here, there) = (counts(&store, "x", now_ms), counts(&replica, "x", now_ms));
        prop_assert_eq!((here.scheduled, here.completed, here.leased), (there.scheduled, there.completed, there.leased));
    }
}

#[test]
fn what_is_found_after_it_was_forgotten_is_kept_by_who_has_not_heard_of_that() {
    let forgets: [fn(u64) -> Act; 2] = [
        |_| Act::Delete { slots: all(), crawl: "x".into(), key: Some("q".into()) },
        |cutoff_ms| Act::Purge { slots: all(), crawl: "x".into(), key: None, cutoff_ms, after: None },
    ];
    for forget in forgets {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (mut store, mut replica) = (store(dir.path(), 1), store(other.path(), 2));
        let write = |replica: &mut Store, copies: Vec<RecordCopy>| {
            let mut change = replica.change();
            change.merge(copies, 120_000).unwrap();
            change.commit().unwrap();
        };
        // Found long ago, and done with a moment ago.
        for (date_s, at_ms) in [(None, 10_000), (Some(0), 90_000)] {
            let (_, copies) = put(&mut store, vec![item("x", "q", "u", date_s)], at_ms);
            write(&mut replica, copies);
        }
        // The replica hears nothing of this.
        let gone = store.act(forget(50_000), &Taker::ANY, &all(), 100_000).unwrap().said;
        assert_eq!(gone, Said::Gone { urls: 1, next: None });
        let (said, copies) = put(&mut store, vec![item("x", "q", "u", None)], 110_000);
        assert_eq!(said, [Taken::Kept]);
        write(&mut replica, copies);
        assert_eq!(records(&replica), records(&store));
        assert_eq!((counts(&replica, "x", 120_000).scheduled, counts(&replica, "x", 120_000).completed), (1, 0));
    }
}

#[test]
fn a_line_from_before_there_were_spiders_is_read() {
    let old = wire::encode(&(ClientQueue::default(), 3u64, 2u64, 1u64, 7u64, 9u64)).unwrap();
    let line = Line::read(&old).unwrap();
    assert_eq!((line.scheduled, line.completed, line.leased, line.newest_ms), (3, 2, 1, 7));
    assert_eq!((line.agenda_ms, line.wake_ms, line.by_end), (9, u64::MAX, false));
    assert!(Line::read(&old[..old.len() - 1]).is_err());
    let with_spiders = [old, wire::encode(&5u64).unwrap()].concat();
    assert_eq!(Line::read(&with_spiders).unwrap(), Line { wake_ms: 5, ..line.clone() });
    let now = wire::encode(&Line { by_end: true, ..line.clone() }).unwrap();
    assert_eq!(Line::read(&now).unwrap(), Line { by_end: true, ..line });
}

/// Counts of leases by their end are what a walk over the leases finds.
fn assert_ends(store: &Store, crawl: &str, now_ms: u64) {
    for line in store.lines(crawl, &all(), None).unwrap() {
        let (queue, line) = line.unwrap();
        assert!(line.by_end);
        let (counted, walked) = (store.living_by_end(&queue, now_ms), store.living_by_walking(&queue, now_ms));
        assert_eq!(counted.unwrap(), walked.unwrap(), "{queue:?} at {now_ms}");
    }
}

fn rows_of_ends(store: &Store, queue: &ClientQueueId) -> Vec<Box<[u8]>> {
    let prefix = [queue.prefix(), &[ends::ENDS]].concat();
    store.rows("turn", prefix.clone(), prefix).map(|row| row.unwrap().0).collect()
}

#[test]
fn leases_are_counted_without_a_walk_however_many_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    put(&mut store, (0..5_000).map(|n| item("x", "a", &format!("{n:04}"), Some(1))).collect(), 10_000);
    // Leases of ten seconds, taken at three times; and what the nodes have.
    for (urls, at_ms) in [(500, 10_000), (1_000, 12_000), (2_000, 14_000)] {
        assert_eq!(take(&mut store, Some("x"), 1, urls, at_ms).0.len(), urls as usize, "at {at_ms}");
    }
    assert_eq!(take_own(&mut store, "x", 8, 16_000).0.len(), 8);
    let queue = ClientQueueId::new("x", "a");
    assert!(rows_of_ends(&store, &queue).len() <= 16, "a few counts");
    // A lease that no walk could read: nobody walks here.
    let (stray, family) = ([queue.prefix(), &[1, 0xff]].concat(), store.family("turn"));
    store.db.put_cf(&family, &stray, []).unwrap();
    assert!(store.living_by_walking(&queue, 16_000).is_err());
    for (at_ms, leased) in [(16_000, 3_508), (20_099, 3_508), (20_100, 3_008), (22_100, 2_008), (24_100, 8)] {
        assert_eq!(counts(&store, "x", at_ms).leased, leased, "at {at_ms}");
    }
    // A client that wants no more than are out already gets nothing, and one that wants more does.
    let family = store.family("turn");
    store.db.delete_cf(&family, &stray).unwrap();
    assert_eq!(take(&mut store, Some("x"), 1, 3_500, 19_000).0, [""; 0]);
    assert_eq!(take(&mut store, Some("x"), 1, 3_501, 20_500).0.len(), 1_992, "what was left, and what came back");
    assert_ends(&store, "x", 20_500);
    // All of it settled: nothing is left of the counts.
    put(&mut store, (0..5_000).map(|n| item("x", "a", &format!("{n:04}"), Some(0))).collect(), 25_000);
    assert_eq!((counts(&store, "x", 25_000).leased, rows_of_ends(&store, &queue).len()), (0, 0));
}

#[test]
fn leases_from_before_they_were_counted_are_counted_when_their_queue_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    put(&mut store, (0..100).map(|n| item("x", "a", &format!("{n:02}"), Some(1))).collect(), 10_000);
    assert_eq!(take(&mut store, Some("x"), 1, 40, 10_000).0.len(), 40);
    assert_eq!(take(&mut store, Some("x"), 1, 70, 15_000).0.len(), 60);
    // As an older version left it.
    let queue = ClientQueueId::new("x", "a");
    for key in rows_of_ends(&store, &queue) {
        store.db.delete_cf(&store.family("turn"), key).unwrap();
    }
    let Line { queue: record, scheduled, completed, leased, newest_ms, agenda_ms, wake_ms, .. } =
        store.line(&queue).unwrap().unwrap();
    let old = wire::encode(&(record, scheduled, completed, leased, newest_ms, agenda_ms, wake_ms)).unwrap();
    store.db.put_cf(&store.family("line"), line_key(&queue), old).unwrap();
    store.forget().unwrap();
    assert_eq!(counts(&store, "x", 16_000).leased, 100, "they are walked");
    assert_eq!(take(&mut store, Some("x"), 1, 100, 16_500).0, [""; 0], "as many are out as are wanted");
    assert_ends(&store, "x", 16_500);
    put(&mut store, vec![item("x", "a", "00", Some(0)), item("x", "a", "99", Some(0))], 17_000);
    assert_ends(&store, "x", 17_000);
    assert_eq!((counts(&store, "x", 17_000).leased, counts(&store, "x", 20_100).leased), (98, 59));
}

#[test]
fn what_took_long_to_keep_is_counted_anew_unless_somebody_has_said_something_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    put(&mut store, ["a", "b"].map(|url| item("x", "q", url, Some(1))).to_vec(), 10_000);
    let act = |urls_max| Act::Take {
        crawl: Some("x".into()),
        key: None,
        queues_max: 1,
        urls_max,
        lease_s: 10,
        delay_default_s: 1,
    };
    let decided = store.act(act(2), &Taker::ANY, &all(), 10_000).unwrap();
    let Said::Given { urls, .. } = decided.said else { panic!("URLs are given") };
    assert_eq!(urls.len(), 2);
    // Kept within a tenth of a second it is told at 10,100 at the latest.
    assert_eq!((counts(&store, "x", 20_099).leased, counts(&store, "x", 20_100).leased), (2, 0));
    put(&mut store, vec![item("x", "q", "a", Some(0))], 12_000);
    let renew = Act::Renew { urls, lease_s: 10, leased_until_ms: 20_100, margin_ms: 400 };
    let Said::Given { urls, queues } = store.act(renew.clone(), &Taker::ANY, &all(), 13_000).unwrap().said else {
        panic!("URLs are given")
    };
    assert_eq!((urls.iter().map(|told| told.url.as_str()).collect::<Vec<_>>(), queues), (vec!["b"], 1));
    assert_eq!((counts(&store, "x", 23_399).leased, counts(&store, "x", 23_400).leased), (1, 0));
    assert_ends(&store, "x", 13_000);
    // The delay counts from then too.
    put(&mut store, vec![item("x", "q", "c", Some(1))], 13_000);
    let take_at = |store: &mut Store, at_ms| match store.act(act(2), &Taker::ANY, &all(), at_ms).unwrap().said {
        Said::Given { urls, .. } => urls.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((take_at(&mut store, 14_399), take_at(&mut store, 14_400)), (0, 1));
    // It is another lease by now.
    assert_eq!(
        store.act(renew, &Taker::ANY, &all(), 15_000).unwrap().said,
        Said::Given { urls: Vec::new(), queues: 0 }
    );
}

#[test]
fn a_setting_is_made_on_top_of_what_others_know() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    let (crawl, key) = ("x".to_owned(), "q".to_owned());
    let set = Act::Set { crawl: crawl.clone(), key: key.clone(), setting: Setting::Limit(3) };
    assert_eq!(store.act(set, &Taker::ANY, &all(), 9_000).unwrap().said, Said::Set(false), "it has not heard of it");
    let version = proto::clients::record::Version { number: 7_000, node: NodeId(2) };
    let known = ClientQueue { version, kept: true, delay_s: Some(77), blocked_until_s: 5, ..ClientQueue::default() };
    let set = Act::SetUnheld { crawl: crawl.clone(), key: key.clone(), setting: Setting::Limit(3), known };
    assert_eq!(store.act(set, &Taker::ANY, &all(), 9_000).unwrap().said, Said::Set(true));
    let Said::Queue(queue, true) = store.look(Look::Queue { crawl, key }, 9_000).unwrap() else {
        panic!("it is there")
    };
    assert_eq!((queue.delay_s, queue.blocked_until_s, queue.limit, queue.version.number), (Some(77), 5, 3, 9_000));
}

#[test]
fn a_crawl_of_large_queues_is_forgotten_in_many_batches() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path(), 1);
    for key in ["a", "b", "c"] {
        put(&mut store, (0..15_000).map(|n| item("x", key, &format!("{n}"), Some(1))).collect(), 10_000);
    }
    type Forget = fn(Option<Vec<u8>>) -> Act;
    let forgets: [Forget; 2] = [
        |after| Act::Purge { slots: all(), crawl: "x".into(), key: None, cutoff_ms: 20_000, after },
        |_| Act::Delete { slots: all(), crawl: "x".into(), key: None },
    ];
    for (forget, queues) in forgets.into_iter().zip([3, 0]) {
        let (mut batches, mut gone, mut after) = (0, 0, None);
        loop {
            let said = store.act(forget(after.take()), &Taker::ANY, &all(), 30_000).unwrap().said;
            let Said::Gone { urls, next } = said else { panic!("something is forgotten") };
            assert!(urls <= 35_000);
            (batches, gone, after) = (batches + 1, gone + urls, next);
            if after.is_none() {
                break;
            }
        }
        assert_eq!((gone, batches, counts(&store, "x", 30_000).queues), (45_000, 2, queues));
        if queues > 0 {
            for key in ["a", "b", "c"] {
                put(&mut store, (0..15_000).map(|n| item("x", key, &format!("{n}"), Some(1))).collect(), 30_000);
            }
        }
    }
}

#[test]
fn leases_that_nobody_was_told_of_end_unless_somebody_else_has_leased_the_same_since() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut store, mut replica) = (store(dir.path(), 1), store(other.path(), 2));
    let write = |to: &mut Store, copies: Vec<RecordCopy>| {
        let mut change = to.change();
        change.merge(copies, 20_000).unwrap();
        change.commit().unwrap();
    };
    let (_, copies) = put(&mut store, vec![item("x", "a", "u", Some(1)), item("x", "b", "u", Some(1))], 10_000);
    write(&mut replica, copies);
    let act = Act::Take { crawl: None, key: None, queues_max: 0, urls_max: 0, lease_s: 10, delay_default_s: 0 };
    let decided = store.act(act.clone(), &Taker::ANY, &all(), 11_000).unwrap();
    let Said::Given { urls, .. } = decided.said else { panic!("URLs are given") };
    assert_eq!(urls.len(), 2);
    // The next holder has not heard of that, and leases one of them.
    let one = Act::Take {
        crawl: Some("x".into()),
        key: Some("a".into()),
        queues_max: 0,
        urls_max: 0,
        lease_s: 60,
        delay_default_s: 0,
    };
    let leased = replica.act(one, &Taker::ANY, &all(), 11_500).unwrap().copies;
    write(&mut replica, decided.copies);
    let back = store.act(Act::GiveBack { urls, leased_until_ms: 21_100 }, &Taker::ANY, &all(), 12_000).unwrap();
    write(&mut replica, back.copies);
    write(&mut store, leased);
    for store in [&mut store, &mut replica] {
        assert_eq!((counts(store, "x", 12_000).leased, counts(store, "x", 71_000).leased), (1, 1), "the later lease");
        assert_ends(store, "x", 12_000);
    }
    assert_eq!(records(&store), records(&replica));
    let decided = replica.act(act, &Taker::ANY, &all(), 13_000).unwrap();
    let Said::Given { urls, .. } = decided.said else { panic!("URLs are given") };
    assert_eq!(urls.iter().map(|told| told.key.as_str()).collect::<Vec<_>>(), ["b"]);
}
