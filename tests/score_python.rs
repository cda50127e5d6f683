//! PageRank and HITS of 20,000 pages, by way of the store, against networkx: over all links, with what contents are worth, and over links between domains.
//! The Python is `GRAPH_PYTHON`, or the one that `make setup` prepared, or python3 if that has networkx and scipy.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use node::edges::cores::Threads;
use node::edges::store::{Store, StoreOptions};
use node::scoring::lists::{LinkLists, Wanted};
use proto::clients::spider::{Crawled, SpiderAsk, SpiderRules, page_key};
use proto::cluster::slot_set::SlotSet;
use proto::id::NodeId;
use proto::score::hits::Hits;
use proto::score::pagerank::PageRank;
use proto::score::{Scorer, Stop, distance};
use proto::url::{CanonicalUrl, UrlRules};
use serde_json::Value;
use simulation::world::graph::PageWorld;
use tests::python::python_with;

const PAGES: u32 = 20_000;

/// Hosts of this world are all of one domain, and here each has its own: a link leads to another domain if it leads to another host.
fn url(world: &PageWorld, page: u32) -> String {
    world.url(page).replacen(".example.com/", ".example/", 1)
}

/// What a page's content is worth: 24 bits of SplitMix64.
fn content(page: u32) -> f32 {
    let mut z = 42 ^ 0x53_636F_7265 ^ u64::from(page);
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 40) as f32 / (1u32 << 24) as f32
}

/// Spearman's rank correlation; equal numbers in the order of pages.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    let ranks = |numbers: &[f64]| {
        let mut order: Vec<usize> = (0..numbers.len()).collect();
        order.sort_by(|x, y| numbers[*y].total_cmp(&numbers[*x]).then(x.cmp(y)));
        let mut ranks = vec![0.0; numbers.len()];
        order.into_iter().enumerate().for_each(|(rank, page)| ranks[page] = rank as f64);
        ranks
    };
    let (a, b, count) = (ranks(a), ranks(b), a.len() as f64);
    let squares: f64 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
    1.0 - 6.0 * squares / (count * (count * count - 1.0))
}

#[test]
fn pagerank_and_hits_of_a_stored_graph_are_those_of_networkx() {
    let work = tempfile::tempdir().unwrap();
    let world = PageWorld::new(PAGES, 42);
    let options = StoreOptions { graph: true, replica: true, node: NodeId(1), ..StoreOptions::default() };
    let mut store = Store::open(&work.path().join("data"), options).unwrap();
    let (mut links, mut count) = (Vec::new(), 0);
    let crawled: Vec<u32> = (0..PAGES).map(|order| world.crawled(order)).collect();
    for batch in crawled.chunks(1_000) {
        let mut report = |page: &u32| {
            world.links(*page, &mut links);
            count += links.len();
            let links = links.iter().map(|page| url(&world, *page)).collect();
            Crawled { url: url(&world, *page), score: content(*page), content_hash: None, links }
        };
        let reports = SpiderAsk::Crawled(batch.iter().map(&mut report).collect());
        store.spider_act(reports, &SpiderRules::default(), &SlotSet::default(), 1).unwrap();
    }
    let graph = store.graph();
    let mut intake = graph.intake().unwrap();
    while graph.take_in(&mut intake, |_, _| {}).unwrap() > 0 {}
    assert_eq!((intake.counts().pages, intake.counts().links), (PAGES, count as u64));

    // By the pages' names in the world, not by the numbers that the store gave them.
    let key = |page: u32| page_key(&CanonicalUrl::parse(&url(&world, page), &UrlRules::default()).unwrap());
    let numbers: Vec<usize> = (0..PAGES).map(|page| graph.page(&key(page)).unwrap().unwrap().number as usize).collect();
    let named = |scores: &[f64]| numbers.iter().map(|number| scores[*number]).collect::<Vec<f64>>();
    let exact = Stop { precision: 1e-12, loops_max: 1_000 };
    let mut told = serde_json::Map::new();
    for (name, other_domains_only, content) in [("all", false, false), ("content", false, true), ("other", true, true)]
    {
        let wanted = Wanted { out: true, other_domains_only, content };
        let lists = LinkLists::read(&graph, wanted, work.path()).unwrap();
        let compute = |stop: &Stop| {
            let (mut pagerank, mut hits) = (PageRank::default(), Hits::default());
            pagerank.update(&lists.graph().unwrap(), stop, &Threads::new(0, work.path())).unwrap();
            hits.update(&lists.graph().unwrap(), stop, &Threads::new(0, work.path())).unwrap();
            [named(pagerank.scores()), named(hits.scores()), named(hits.hubs())]
        };
        let scores = compute(&exact);
        // The default precision is enough for an order. Of PageRank it is known how far it can be: what all further loops change is d / (1 - d) of the last change at most.
        let quick = compute(&Stop::default());
        let bounds = [Stop::default().precision * 0.85 / 0.15, 1e-4, 1e-4];
        for (place, bound) in bounds.into_iter().enumerate() {
            let (apart, alike) = (distance(&scores[place], &quick[place]), spearman(&scores[place], &quick[place]));
            assert!(apart <= bound && alike > 0.9999, "{name} {place}: {apart} apart, Spearman {alike}");
        }
        let [pagerank, authorities, hubs] = scores;
        told.insert(name.into(), serde_json::json!({"pagerank": pagerank, "authorities": authorities, "hubs": hubs}));
    }
    let file = |name: &str| work.path().join(name);
    std::fs::write(file("scores"), Value::from(told).to_string()).unwrap();
    let contents: String = (0..PAGES).map(|page| format!("{}\n", f64::from(content(page)))).collect();
    std::fs::write(file("contents"), contents).unwrap();
    let mut out = std::io::BufWriter::new(std::fs::File::create(file("links")).unwrap());
    let host = |page: u32| url(&world, page).split('/').nth(2).unwrap().to_owned();
    for page in 0..PAGES {
        world.links(page, &mut links);
        let from = host(page);
        links.iter().for_each(|to| writeln!(out, "{page} {to} {}", u8::from(host(*to) != from)).unwrap());
    }
    out.into_inner().unwrap();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/score_check.py");
    let arguments = [script.into(), PathBuf::from(PAGES.to_string()), file("links"), file("contents"), file("scores")];
    let checked = Command::new(python_with("GRAPH_PYTHON", "networkx-", "import networkx, scipy"))
        .args(arguments)
        .output()
        .expect("it could be asked before");
    let (stdout, stderr) = (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "{stdout}\n{stderr}");
    let distances: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&distances["links"], &distances["between"]), (&Value::from(count), &Value::from(count - 87_079)));
    for name in ["all", "content", "other"] {
        for what in ["pagerank", "authorities", "hubs"] {
            assert!(distances[name][what].as_f64().unwrap() < 1e-6, "{name} {what}: {distances}");
        }
    }
}
