use std::collections::BTreeMap;

use proptest::prelude::*;
use proto::batch::EntryKind;
use proto::id::NodeId;
use proto::key::DEFAULT_CRAWL;
use proto::record::{Progress, Status};

use super::super::{Move, StoreOptions};
use super::*;

const NOW: u64 = 1_000_000;

fn store(dir: &std::path::Path) -> Store {
    Store::open(dir, StoreOptions { node: NodeId(7), replica: true, ..StoreOptions::default() }).unwrap()
}

fn found(text: &str) -> Discovered {
    let url = CanonicalUrl::parse(text, &UrlRules::default()).unwrap();
    Discovered { url, kind: EntryKind::Page, depth: 1, priority: 100, redirects: 0 }
}

fn fresh_copy(text: &str) -> RecordCopy {
    let found = found(text);
    let kept = Kept::discovered(&found, None, NOW, NodeId(3));
    RecordCopy::new(UrlKey::new(DEFAULT_CRAWL, &found.url), &kept).unwrap()
}

fn merge(store: &mut Store, copies: Vec<RecordCopy>) -> Merged {
    let mut change = store.change();
    let merged = change.merge(copies, NOW).unwrap();
    change.commit().unwrap();
    merged
}

/// The only entry of the store, as the frontier would pick it.
fn pick(store: &Store, flight: u64) -> Pick {
    let (queues, next) = store.sweep(None, None, 10, 10).unwrap();
    assert!(next.is_none() || queues.len() == 10);
    let queue = queues.first().expect("an entry waits");
    let (order, entry) = queue.entries[0].clone();
    Pick { flight, queue: queue.key.clone(), order, entry }
}

#[test]
fn a_url_goes_through_its_round_and_leaves_its_queue() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    let life = store.begin_life(1_700_000_000, None).unwrap().boot;
    let admitted = merge(&mut store, vec![fresh_copy("http://a.example/x")]).admitted;
    assert_eq!(admitted.len(), 1);
    assert!(admitted[0].new_host);

    let picked = pick(&store, 5);
    let selected = store.select_copies(life, vec![picked.clone()]).unwrap();
    let copy = selected[0].1.clone().expect("it may be handed out");
    assert_eq!(copy.progress.status, Status::SelectedToCrawl);
    assert!(store.select_copies(life, vec![picked.clone()]).unwrap()[0].1.is_none(), "it is handed out already");
    assert!(merge(&mut store, vec![copy]).admitted.is_empty(), "it flies");
    assert!(store.sweep(None, None, 10, 10).unwrap().0.is_empty(), "what flies does not wait");

    let ending = Ending::NotModified { at: NOW, crawling_ms: 3 };
    let (copy, page) = store.settle_copy(&picked, ending, Stage::Processed, NOW).unwrap();
    assert!(page);
    merge(&mut store, vec![copy.expect("a record")]);
    assert!(store.land(&picked).unwrap().is_none(), "nothing is left to do");
    assert_eq!(store.state().places.ready, 0);
    assert_eq!(store.state().counters.processed, 1);
    assert_eq!(store.recount().unwrap(), (store.state().counters.clone(), store.state().places));
}

/// A replica that keeps levels.
fn scored(dir: &std::path::Path) -> Store {
    let options = StoreOptions { node: NodeId(7), replica: true, graph: true, ..StoreOptions::default() };
    Store::open(dir, options).unwrap()
}

fn level(store: &mut Store, text: &str, level: i16) -> usize {
    let Pick { queue, order, .. } = pick(store, 1);
    let page = UrlKey::new(DEFAULT_CRAWL, &found(text).url);
    let mut change = store.change();
    let moved = change.reorder(vec![Move { queue, order, priority: 0, level: Some((page, level)) }]).unwrap();
    change.commit().unwrap();
    moved
}

#[test]
fn a_page_with_another_level_waits_elsewhere_until_it_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = scored(dir.path());
    let life = store.begin_life(1, None).unwrap().boot;
    let (plain, better) = ("http://a.example/plain", "http://a.example/better");
    merge(&mut store, vec![fresh_copy(plain), fresh_copy(better)]);
    assert_eq!((level(&mut store, plain, -3), level(&mut store, better, 7), level(&mut store, better, 7)), (1, 1, 0));
    let waiting = |store: &Store| -> Vec<(u16, String)> {
        let queues = store.sweep(None, None, 10, 10).unwrap().0;
        let entries = queues.into_iter().flat_map(|queue| queue.entries);
        entries.map(|(order, entry)| (order.priority, entry.url.as_str().to_owned())).collect()
    };
    assert_eq!(waiting(&store), [(107, better.to_owned()), (97, plain.to_owned())]);
    drop(store);
    // A start finds them where they are, also one that goes by no scores.
    let mut store = self::store(dir.path());
    let life = store.begin_life(1, Some(life)).unwrap().boot;
    assert_eq!(waiting(&store), [(107, better.to_owned()), (97, plain.to_owned())]);
    let picked = pick(&store, 5);
    let copy = store.select_copies(life, vec![picked.clone()]).unwrap().remove(0).1.expect("it waits");
    assert_eq!(copy.open().unwrap().record.priority, 100, "its record knows nothing of that");
    merge(&mut store, vec![copy]);
    let mut change = store.change();
    assert!(!change.put_level(&UrlKey::new(DEFAULT_CRAWL, &found(better).url), 0).unwrap(), "what flies stays");
    drop(change);
    let ending = Ending::NotModified { at: NOW, crawling_ms: 3 };
    let (copy, _) = store.settle_copy(&picked, ending, Stage::Processed, NOW).unwrap();
    merge(&mut store, copy.into_iter().collect());
    assert!(store.land(&picked).unwrap().is_none());
    assert_eq!(waiting(&store), [(97, plain.to_owned())]);
    assert_eq!(store.recount().unwrap(), (store.state().counters.clone(), store.state().places));
    let mut change = store.change();
    change.drop_slot(Slot::of_domain(found(plain).url.domain())).unwrap();
    change.commit().unwrap();
    assert_eq!((store.rows("level", Vec::new(), Vec::new()).count(), store.state().places.ready), (0, 0));
}

#[test]
fn what_is_found_on_a_page_comes_into_the_graphs_of_all_that_keep_it_once() {
    use proto::clients::spider::{SpiderAsk, SpiderRules};
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut stores = [scored(dirs[0].path()), scored(dirs[1].path())];
    merge(&mut stores[0], vec![fresh_copy("http://a.example/x")]);
    let picked = pick(&stores[0], 1);
    let many: Vec<Discovered> = (0..5_000).map(|page| found(&format!("http://d{page}.example/"))).collect();
    let mut change = stores[0].change();
    change.find_untold(&picked, &[found("http://a.example/y"), found("http://b.example/")], NOW).unwrap();
    change.find_untold(&picked, &many, NOW + 1).unwrap();
    change.commit().unwrap();
    let (rows, next) = stores[0].graph().untold(10).unwrap();
    stores[0].graph().told(next).unwrap();
    assert!(stores[0].graph().untold(10).unwrap().0.is_empty());
    assert_eq!(rows.len(), 2);

    // Its keeper hears of it twice, and others of the record that this makes.
    let mut copies = Vec::new();
    for row in [&rows[0], &rows[0]] {
        let mut change = stores[1].change();
        copies.extend(change.spider(SpiderAsk::Links(vec![row.clone()]), &SpiderRules::default(), NOW).unwrap().copies);
        change.commit().unwrap();
    }
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0].slot(), picked.queue.slot(), "it lies beside the page");
    merge(&mut stores[0], copies);
    for store in &stores {
        let (graph, mut heard) = (store.graph(), Vec::new());
        let mut intake = graph.intake().unwrap();
        while graph.take_in(&mut intake, |page, links| heard.push((page, links.to_vec()))).unwrap() > 0 {}
        assert_eq!(heard, [(0, vec![2, 1])]);
        let key = UrlKey::new(DEFAULT_CRAWL, &found("http://a.example/x").url);
        assert_eq!(graph.page(&key).unwrap().map(|page| (page.own, page.first_crawl)), Some((100, NOW)));
    }
    // A page with very many links keeps as many as fit; what is no row is left out.
    let mut change = stores[1].change();
    let ask = SpiderAsk::Links(vec![rows[1].clone(), b"garbage".to_vec()]);
    let decided = change.spider(ask, &SpiderRules::default(), NOW + 2).unwrap();
    change.commit().unwrap();
    assert_eq!(decided.copies.len(), 1);
    assert_eq!(merge(&mut stores[0], decided.copies).changed.len(), 1);
    let graph = stores[0].graph();
    let mut intake = graph.intake().unwrap();
    let mut links = 0;
    while graph.take_in(&mut intake, |_, of| links = of.len()).unwrap() > 0 {}
    assert!((1_000..5_000).contains(&links), "{links}");
    assert_eq!(stores[0].graph().left_out(), 5_000 - links as u64, "and the others are counted");
}

/// Seed 910556978423479753 of the simulator's second layer.
#[test]
fn what_flies_is_not_handed_out_again_from_another_place_in_its_queue() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    let life = store.begin_life(1_700_000_000, None).unwrap().boot;
    merge(&mut store, vec![fresh_copy("http://a.example/x")]);
    let picked = pick(&store, 5);
    let copy = store.select_copies(life, vec![picked.clone()]).unwrap().remove(0).1.unwrap();
    merge(&mut store, vec![copy.clone()]);

    // Somebody found it nearer to a seed, and that it is crawled comes from there.
    let mut kept = copy.open().unwrap();
    kept.record.depth = 0;
    kept.record.progress.status = Status::Crawled;
    let nearer = RecordCopy::new(copy.key.clone(), &kept).unwrap();
    assert!(merge(&mut store, vec![nearer]).admitted.is_empty(), "its flight is not over");
    assert!(store.sweep(None, None, 10, 10).unwrap().0.is_empty(), "what flies does not wait");

    let again = store.land(&picked).unwrap().expect("crawled, not processed, and nobody is at it any more");
    assert_eq!((again.order.depth, again.entry.progress.round), (0, picked.entry.progress.round + 1));
}

#[test]
fn what_was_handed_out_is_open_again_after_a_start_and_for_who_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let first = {
        let mut store = store(dir.path());
        let first = store.begin_life(1_700_000_000, None).unwrap();
        merge(&mut store, vec![fresh_copy("http://a.example/x")]);
        let picked = pick(&store, 1);
        let copy = store.select_copies(first.boot, vec![picked]).unwrap().remove(0).1.unwrap();
        merge(&mut store, vec![copy]);
        first
    };
    let mut store = store(dir.path());
    let second = store.begin_life(1_600_000_000, None).unwrap();
    assert!(second.boot > first.boot, "a clock that was set back gives no smaller number");
    assert!(store.begin_life(0, Some(second.boot + 77)).unwrap().boot > second.boot + 77);
    let again = pick(&store, 2);
    assert_eq!((again.entry.progress.status, again.entry.progress.attempt), (Status::New, 1));
    assert!(
        store.select_copies(second.boot, vec![again]).unwrap()[0].1.is_none(),
        "a life that is over hands nothing out"
    );
}

#[test]
fn a_url_that_flies_is_not_given_again_under_another_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    let life = store.begin_life(1, None).unwrap().boot;
    let copy_at = |depth| {
        let found = Discovered { depth, ..found("http://a.example/x") };
        let kept = Kept::discovered(&found, None, NOW, NodeId(3));
        RecordCopy::new(UrlKey::new(DEFAULT_CRAWL, &found.url), &kept).unwrap()
    };
    // Two pages name it, at different depths; the later copy is larger and takes the place of the first.
    merge(&mut store, vec![copy_at(1)]);
    let first = pick(&store, 1);
    let admitted = merge(&mut store, vec![copy_at(2)]).admitted;
    assert_eq!(admitted.len(), 1, "as it seems, another entry");
    let selected = store.select_copies(life, vec![first.clone()]).unwrap().remove(0).1.unwrap();
    merge(&mut store, vec![selected]);
    let Admitted { queue, order, entry, .. } = admitted[0].clone();
    let second = Pick { flight: 2, queue, order, entry };
    assert!(store.select_copies(life, vec![second.clone()]).unwrap()[0].1.is_none(), "it flies");
    let ending = Ending::NotModified { at: NOW, crawling_ms: 1 };
    let (crawled, _) = store.settle_copy(&first, ending, Stage::Crawled, NOW).unwrap();
    merge(&mut store, crawled.into_iter().collect());
    assert!(store.land(&second).unwrap().is_none(), "its content is fetched, its links are on the way");
}

#[test]
fn a_retry_waits_for_its_time_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    let life = store.begin_life(1, None).unwrap().boot;
    merge(&mut store, vec![fresh_copy("http://a.example/x")]);
    let picked = pick(&store, 1);
    let copy = store.select_copies(life, vec![picked.clone()]).unwrap().remove(0).1.unwrap();
    merge(&mut store, vec![copy]);
    let failed = Ending::Failed(proto::crawl::retry::Failure::Timeout, None, None);
    let (copy, page) = store.settle_copy(&picked, failed, Stage::Processed, NOW).unwrap();
    assert!(!page);
    assert!(merge(&mut store, copy.into_iter().collect()).admitted.is_empty());
    assert_eq!((store.state().places.ready, store.state().places.retries), (0, 1));
    assert!(store.land(&picked).unwrap().is_none());

    // It falls due and is merged into in one change: both must know of each other.
    let due = store.next_due().expect("it waits");
    let mut change = store.change();
    assert_eq!(change.fall_due(due, 10).unwrap().len(), 1);
    let mut done = Kept::discovered(&found("http://a.example/x"), None, NOW, NodeId(3));
    done.record.progress = Progress { status: Status::Processed, attempt: 9, ..Progress::new(NodeId(3)) };
    let done = RecordCopy::new(UrlKey::new(DEFAULT_CRAWL, &picked.entry.url), &done).unwrap();
    change.merge(vec![done], due).unwrap();
    change.commit().unwrap();
    assert_eq!(store.recount().unwrap(), (store.state().counters.clone(), store.state().places));
    assert_eq!((store.state().places.ready, store.state().places.retries), (0, 0));
}

#[test]
fn a_retry_that_became_a_recrawl_of_the_same_moment_falls_due_as_that() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    store.begin_life(1, None).unwrap();
    let waits = |status, recurs| {
        let mut kept = Kept::discovered(&found("http://a.example/x"), None, NOW, NodeId(3));
        kept.record.progress.status = status;
        (kept.due_unix_ms, kept.recurs) = (NOW + 5, recurs);
        RecordCopy::new(UrlKey::new(DEFAULT_CRAWL, &found("http://a.example/x").url), &kept).unwrap()
    };
    merge(&mut store, vec![waits(Status::New, false)]);
    assert_eq!((store.state().places.retries, store.state().places.recrawls), (1, 0));
    let mut change = store.change();
    change.merge(vec![waits(Status::Processed, true)], NOW).unwrap();
    change.fall_due(NOW + 10, 10).unwrap();
    change.commit().unwrap();
    assert_eq!(store.recount().unwrap(), (store.state().counters.clone(), store.state().places));
    assert_eq!((store.state().places.retries, store.state().places.recrawls), (0, 0));
}

#[test]
fn known_urls_are_given_again_until_they_are_widely_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    let urls = || vec![found("http://a.example/x"), found("http://a.example/x"), found("http://b.example/y")];
    let mut change = store.change();
    let copies = change.admit_copies(DEFAULT_CRAWL, None, urls(), NOW).unwrap();
    change.commit().unwrap();
    assert_eq!(copies.len(), 2, "nothing is kept twice");
    assert!(store.urls().next().is_none(), "looking admits nothing");
    merge(&mut store, copies.clone());
    let mut change = store.change();
    assert_eq!(change.admit_copies(DEFAULT_CRAWL, None, urls(), NOW + 5).unwrap(), copies, "as they are known");
    change.commit().unwrap();
    let mut done = copies[0].open().unwrap();
    done.record.progress.status = Status::Processed;
    merge(&mut store, vec![RecordCopy::new(copies[0].key.clone(), &done).unwrap()]);
    let mut change = store.change();
    assert_eq!(change.admit_copies(DEFAULT_CRAWL, None, urls(), NOW).unwrap(), copies[1..]);
    change.commit().unwrap();
}

#[test]
fn a_copy_that_contradicts_itself_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(dir.path());
    let mut wrong = fresh_copy("http://a.example/x");
    wrong.progress.round = 9;
    let other_key = RecordCopy { key: fresh_copy("http://b.example/").key, ..fresh_copy("http://a.example/") };
    assert!(merge(&mut store, vec![wrong, other_key]).changed.is_empty());
    assert!(store.urls().next().is_none());
}

/// A copy of one of a few records, somewhere in its round.
fn copies() -> impl Strategy<Value = RecordCopy> {
    let status =
        prop_oneof![Just(Status::New), Just(Status::SelectedToCrawl), Just(Status::Crawled), Just(Status::Processed)];
    (0..6usize, status, 0..2u32, 0..3u16, 0..2u64, prop_oneof![Just(0), Just(NOW - 5), Just(NOW + 5)], any::<bool>())
        .prop_map(|(which, status, round, attempt, node, due_unix_ms, recurs)| {
            let text = format!("http://h{}.example/{}", which % 3, which / 3);
            let mut kept = Kept::discovered(&found(&text), None, NOW, NodeId(node));
            kept.record.progress = Progress { round, status, errors: 0, attempt, node: NodeId(node) };
            kept.due_unix_ms = due_unix_ms;
            kept.recurs = recurs && status == Status::Processed;
            RecordCopy::new(UrlKey::new(DEFAULT_CRAWL, &found(&text).url), &kept).unwrap()
        })
}

#[derive(Clone, Debug)]
enum Step {
    Merge(Vec<RecordCopy>),
    Drop(usize),
    FallDue(u64),
    Level(usize, i16),
    Commit,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => proptest::collection::vec(copies(), 1..4).prop_map(Step::Merge),
        1 => (0..3usize).prop_map(Step::Drop),
        2 => prop_oneof![Just(NOW), Just(NOW + 10)].prop_map(Step::FallDue),
        2 => (0..6usize, -2..3i16).prop_map(|(which, level)| Step::Level(which, level)),
        3 => Just(Step::Commit),
    ];
    proptest::collection::vec(step, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However merges, drops and falls fall into groups: records are the largest copies, queues and counters follow from them,
    /// and digests are those of a full scan.
    #[test]
    fn everything_follows_from_the_records(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = scored(dir.path());
        let mut digests = store.begin_life(1, None).unwrap().digests;
        store.digests.fold_at = 4; // so that it happens
        let mut model: BTreeMap<UrlKey, RecordCopy> = BTreeMap::new();
        for group in steps.split(|step| matches!(step, Step::Commit)) {
            let mut change = store.change();
            for step in group {
                match step {
                    Step::Merge(copies) => {
                        let merged = change.merge(copies.clone(), NOW).unwrap();
                        merged.changed.into_iter().for_each(|changed| digests.change(changed));
                        for copy in copies {
                            let old = model.remove(&copy.key);
                            let new = old.map_or_else(|| copy.clone(), |old| old.merge(copy.clone()));
                            model.insert(copy.key.clone(), new);
                        }
                    }
                    Step::Drop(which) => {
                        let slot = found(&format!("http://h{which}.example/")).url;
                        let slot = Slot::of_domain(slot.domain());
                        change.drop_slot(slot).unwrap();
                        digests.drop_slot(slot);
                        model.retain(|key, _| key.slot() != slot);
                    }
                    Step::FallDue(at) => drop(change.fall_due(*at, 100).unwrap()),
                    Step::Level(which, level) => {
                        let url = found(&format!("http://h{}.example/{}", which % 3, which / 3)).url;
                        change.put_level(&UrlKey::new(DEFAULT_CRAWL, &url), *level).unwrap();
                    }
                    Step::Commit => {}
                }
            }
            change.commit().unwrap();
            let stored: Vec<RecordCopy> =
                model.keys().map(|key| store.copy(key).unwrap().expect("it is kept").0).collect();
            prop_assert_eq!(&stored, &model.values().cloned().collect::<Vec<_>>());
            prop_assert_eq!(store.urls().count(), model.len());
            prop_assert_eq!(store.recount().unwrap(), (store.state().counters.clone(), store.state().places));
            let open = model.values().filter(|copy| copy.open().unwrap().entry(NodeId(7)).is_some()).count() as u64;
            let places = store.state().places;
            prop_assert_eq!(places.ready + places.retries + places.recrawls, open);
            // Every entry lies where its record and its level say, and no level is left of what is gone.
            for key in model.keys() {
                let known = store.known(key).unwrap().expect("it is kept");
                if let Some(queued) = store.entry_of(&known) {
                    let place = store.place_on_disk(&queued).unwrap();
                    let row = match place {
                        Place::Ready => store.db.get_cf(&store.family("ready"), queued.queue.ready(queued.order)),
                        _ => store.db.get_cf(&store.family("due"), queued.queue.due(queued.due, queued.order)),
                    };
                    prop_assert!(row.unwrap().is_some());
                }
            }
            for row in store.rows("level", Vec::new(), Vec::new()) {
                prop_assert!(model.contains_key(&UrlKey::from_bytes(&row.unwrap().0)));
            }
        }
        prop_assert_eq!(&store.scan_digests().unwrap(), &digests);
        prop_assert_eq!(&store.begin_life(2, None).unwrap().digests, &digests);
        drop(store);
        let mut store = self::store(dir.path());
        prop_assert_eq!(&store.begin_life(3, None).unwrap().digests, &digests);
        // What is merged after that is added to what was read.
        let merged = merge(&mut store, vec![fresh_copy("http://another.example/")]);
        merged.changed.into_iter().for_each(|changed| digests.change(changed));
        prop_assert_eq!(store.begin_life(4, None).unwrap().digests, digests);
    }
}

#[test]
fn a_folder_changes_sides_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let alone = || Store::open(dir.path(), StoreOptions::default()).unwrap();
    {
        let mut store = alone();
        let mut change = store.change();
        let urls = ["http://a.example/1", "http://a.example/2", "http://b.example/"];
        change.admit(DEFAULT_CRAWL, urls.iter().map(|text| found(text)).collect(), None, NOW).unwrap();
        change.commit().unwrap();
    }
    let waiting = |store: &Store| {
        let (queues, _) = store.sweep(None, None, 10, 10).unwrap();
        let entries = queues.into_iter().flat_map(|queue| queue.entries);
        let mut urls: Vec<String> = entries.map(|(_, entry)| entry.url.as_str().to_owned()).collect();
        urls.sort();
        urls
    };
    let all = waiting(&alone());
    assert_eq!(all.len(), 3);
    {
        let mut store = store(dir.path());
        assert_eq!(waiting(&store), all);
        // The queue is one that merges understand: what is done leaves it.
        let key = UrlKey::new(DEFAULT_CRAWL, &found("http://b.example/").url);
        let mut done = store.copy(&key).unwrap().unwrap().0.open().unwrap();
        done.record.progress.status = Status::Processed;
        let digests = store.begin_life(1, None).unwrap().digests;
        assert_eq!(digests, store.scan_digests().unwrap());
        merge(&mut store, vec![RecordCopy::new(key, &done).unwrap()]);
        assert_eq!(store.recount().unwrap(), (store.state().counters.clone(), store.state().places));
    }
    {
        let mut store = alone();
        assert_eq!(waiting(&store), all[..2]);
        assert_eq!(store.recount().unwrap(), (store.state().counters.clone(), store.state().places));
        let mut change = store.change();
        change.admit(DEFAULT_CRAWL, vec![found("http://c.example/")], None, NOW).unwrap();
        change.commit().unwrap();
    }
    let mut store = store(dir.path());
    let digests = store.begin_life(2, None).unwrap().digests;
    assert_eq!(digests, store.scan_digests().unwrap(), "what it did alone is in them");
}
