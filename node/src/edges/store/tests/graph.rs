//! The page graph: what the crawl finds becomes pages and links, once, and scores move what waits.

use proto::key::Order;

use super::*;

fn with_graph() -> StoreOptions {
    StoreOptions { graph: true, ..small() }
}

/// Fetches the first of `admitted` that has this URL, and finds these links on it.
fn crawl(store: &mut Store, admitted: &mut Vec<Admitted>, page: &str, links: &[&str]) {
    let at = admitted.iter().position(|entry| entry.entry.url.as_str() == page).expect("it waits");
    let picked = pick(&admitted.remove(at), store.state().sequence + 1_000);
    select(store, std::slice::from_ref(&picked));
    admitted.extend(settle(store, picked, answered(), links).admitted);
}

fn take_in(graph: &PageGraph, intake: &mut Intake) -> Vec<(u32, Vec<u32>)> {
    let mut heard = Vec::new();
    while graph.take_in(intake, |page, links| heard.push((page, links.to_vec()))).unwrap() > 0 {}
    heard
}

fn key(text: &str) -> UrlKey {
    UrlKey::new(DEFAULT_CRAWL, &url(text))
}

const SEED: &str = "http://a.example/";

#[test]
fn what_is_crawled_becomes_pages_and_links_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), with_graph()).unwrap();
    let mut admitted = admit(&mut store, &[SEED]);
    let (one, two) = ("http://a.example/1", "http://b.example/2");
    crawl(&mut store, &mut admitted, SEED, &[one, two, one]);
    crawl(&mut store, &mut admitted, two, &[SEED, "http://b.example/3", "http://c.example/"]);
    let graph = store.graph();
    let mut intake = graph.intake().unwrap();
    // Links to other domains come first, a link that stands twice counts once.
    assert_eq!(take_in(&graph, &mut intake), [(0, vec![2, 1]), (2, vec![0, 4, 3])]);
    assert!(take_in(&graph, &mut intake).is_empty(), "rows are taken in once");
    assert_eq!(graph.counts().unwrap(), GraphCounts { pages: 5, crawled: 2, links: 5 });
    let page = |text| graph.page(&key(text)).unwrap().unwrap();
    assert_eq!((page(SEED).number, page(SEED).first_linker, page(SEED).first_crawl), (0, None, 2_000));
    assert_eq!((page(one).first_linker, page(one).first_crawl), (Some(0), 0));
    assert_eq!(page("http://c.example/").first_linker, Some(2));
    assert_eq!(graph.key(2).unwrap(), Some(key(two)));
    assert_eq!(graph.links_of(1).unwrap(), None);

    // Crawled again, with other links: the row is replaced, the numbers stay.
    crawl(&mut store, &mut admitted, one, &[two]);
    drop((graph, intake, store));
    let store = Store::open(dir.path(), with_graph()).unwrap();
    let graph = store.graph();
    let mut intake = graph.intake().unwrap();
    assert_eq!(take_in(&graph, &mut intake), [(1, vec![2])], "what a start finds is taken in");
    assert_eq!(graph.counts().unwrap(), GraphCounts { pages: 5, crawled: 3, links: 6 });
    let mut rows = Vec::new();
    graph
        .each_row(|from, row| {
            rows.push((from, row.collect::<Result<Vec<u32>, _>>().unwrap()));
            Ok::<(), StoreError>(())
        })
        .unwrap();
    assert_eq!(rows, [(0, vec![2, 1]), (1, vec![2]), (2, vec![0, 4, 3])]);
    assert_counted(&store);
}

#[test]
fn a_reading_is_of_one_moment_whatever_is_taken_in_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), with_graph()).unwrap();
    let mut admitted = admit(&mut store, &[SEED]);
    crawl(&mut store, &mut admitted, SEED, &["http://a.example/1"]);
    let graph = store.graph();
    let mut intake = graph.intake().unwrap();
    take_in(&graph, &mut intake);
    let rows = |now: &GraphNow<'_>| {
        let mut rows = Vec::new();
        now.each_row(|from, row| {
            rows.push((from, row.collect::<Result<Vec<u32>, _>>().unwrap()));
            Ok::<(), StoreError>(())
        })
        .unwrap();
        rows
    };
    let before = graph.now();
    assert_eq!(rows(&before), [(0, vec![1])]);
    // One row is replaced by a longer one, another one is new.
    let two = "http://b.example/2";
    crawl(&mut store, &mut admitted, "http://a.example/1", &[SEED, two]);
    take_in(&graph, &mut intake);
    assert_eq!(rows(&before), [(0, vec![1])], "read twice, it says the same");
    assert_eq!(before.counts().unwrap(), GraphCounts { pages: 2, crawled: 1, links: 1 });
    assert_eq!(rows(&graph.now()), [(0, vec![1]), (1, vec![2, 0])]);
    assert_eq!(graph.counts().unwrap(), GraphCounts { pages: 3, crawled: 2, links: 3 });
}

#[test]
fn without_scores_nothing_is_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut admitted = admit(&mut store, &[SEED]);
    crawl(&mut store, &mut admitted, SEED, &["http://a.example/1"]);
    let graph = store.graph();
    assert!(take_in(&graph, &mut graph.intake().unwrap()).is_empty());
}

#[test]
fn scores_move_what_waits_and_leave_what_is_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), with_graph()).unwrap();
    let mut admitted = admit(&mut store, &[SEED]);
    let pages: Vec<String> = (0..4).map(|page| format!("http://a.example/{page}")).collect();
    crawl(&mut store, &mut admitted, SEED, &pages.iter().map(String::as_str).collect::<Vec<_>>());
    let graph = store.graph();
    take_in(&graph, &mut graph.intake().unwrap());
    let flying = pick(&admitted[3], 77);
    select(&mut store, std::slice::from_ref(&flying));

    // Later pages are better: number 4 is handed out, 3 and 2 move, 1 stays.
    let better = |page: &PageRow| 99 + page.number as u16;
    let mut moves = Vec::new();
    graph
        .each_move(better, |some| {
            moves.extend(some);
            true
        })
        .unwrap();
    assert_eq!(moves.len(), 3);
    let mut change = store.change();
    assert_eq!(change.reorder(moves.clone()).unwrap(), 2);
    change.commit().unwrap();
    let queue = &admitted[0].queue;
    let order = |store: &Store| -> Vec<(u16, String)> {
        let (entries, more) = store.refill(queue, None, 10).unwrap();
        assert!(!more);
        entries.into_iter().map(|(order, entry)| (order.priority, entry.url.as_str().to_owned())).collect()
    };
    let expected = [(102, &pages[2]), (101, &pages[1]), (100, &pages[0])].map(|(score, url)| (score, url.clone()));
    assert_eq!(order(&store), expected);
    assert_counted(&store);

    // The same again changes nothing: they are not where they were.
    let mut change = store.change();
    assert_eq!(change.reorder(moves).unwrap(), 0);
    drop(change);

    // What lands in the very change that would move it has left its queue.
    let two = Admitted { order: Order { priority: 102, ..admitted[2].order }, ..admitted[2].clone() };
    let two = pick(&two, 78);
    let back = Move { queue: queue.clone(), order: two.order, priority: 100, level: None };
    let mut change = store.change();
    change.select(std::slice::from_ref(&two)).unwrap();
    let links = vec![Discovered { priority: 102, ..discovered("http://a.example/5") }];
    let (ending, beyond) = (answered(), Vec::new());
    let landed = change.settle(Settle { pick: two, ending, fetched: None, links, beyond, unix_ms: 3_000 }).unwrap();
    assert_eq!(change.reorder(vec![back]).unwrap(), 0);
    change.commit().unwrap();
    assert_eq!(landed.kind, Some(OutcomeKind::Stored));
    // Its links begin with what it was found with, not with its score.
    assert_eq!(landed.admitted[0].order.priority, 100);
    settle(&mut store, flying, answered(), &[]);
    assert_counted(&store);
}

#[test]
fn a_folder_from_before_the_graph_can_be_read_and_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(dir.path());
    let mut admitted = admit(&mut store, &[SEED]);
    let db = Arc::get_mut(&mut store.db).expect("no graph shares it");
    ["found", "page", "link"].into_iter().for_each(|family| db.drop_cf(family).unwrap());
    drop(store);
    let store = Store::open_for_reading(dir.path()).unwrap();
    assert_eq!(store.urls().count(), 1);
    assert_eq!(store.graph().counts().unwrap(), GraphCounts::default());
    assert_eq!(store.graph().page(&key(SEED)).unwrap(), None);
    drop(store);
    let mut store = Store::open(dir.path(), with_graph()).unwrap();
    crawl(&mut store, &mut admitted, SEED, &["http://a.example/1"]);
    let graph = store.graph();
    assert_eq!(take_in(&graph, &mut graph.intake().unwrap()), [(0, vec![1])]);
}
