//! PageRank and HITS of 20,000 pages, by way of the store, against networkx.
//! The Python is `GRAPH_PYTHON`, or the one that `make setup` prepared, or python3 if that has networkx and scipy.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use node::edges::cores::Threads;
use node::edges::store::{Store, StoreOptions};
use node::scoring::lists::{LinkLists, Wanted};
use proto::batch::{Discovered, EntryKind};
use proto::key::{DEFAULT_CRAWL, UrlKey};
use proto::score::hits::Hits;
use proto::score::pagerank::PageRank;
use proto::score::{Scorer, Stop};
use proto::url::{CanonicalUrl, UrlRules};
use serde_json::Value;
use simulation::world::graph::PageWorld;

const PAGES: u32 = 20_000;

fn graph_python() -> PathBuf {
    let mut candidates: Vec<PathBuf> = std::env::var_os("GRAPH_PYTHON").map(PathBuf::from).into_iter().collect();
    let cache = std::env::var_os("ORBWEAVER_CACHE").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        home.map(|home| home.join("orbweaver"))
    });
    let prepared = cache.and_then(|cache| std::fs::read_dir(cache).ok()).into_iter().flatten().flatten();
    let prepared = prepared.filter(|entry| entry.file_name().to_string_lossy().starts_with("networkx-"));
    candidates.extend(prepared.map(|entry| entry.path().join("bin/python")));
    candidates.push("python3".into());
    let has_networkx = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import networkx, scipy"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    };
    let found = candidates.iter().find(|python| has_networkx(python));
    found.cloned().unwrap_or_else(|| {
        panic!("no Python with networkx among {candidates:?}: run `make setup`, or name one with GRAPH_PYTHON")
    })
}

fn url(world: &PageWorld, page: u32) -> CanonicalUrl {
    CanonicalUrl::parse(&world.url(page), &UrlRules::default()).unwrap()
}

#[test]
fn pagerank_and_hits_of_a_stored_graph_are_those_of_networkx() {
    let work = tempfile::tempdir().unwrap();
    let world = PageWorld::new(PAGES, 42);
    let mut store =
        Store::open(&work.path().join("data"), StoreOptions { graph: true, ..StoreOptions::default() }).unwrap();
    let (mut links, mut count) = (Vec::new(), 0);
    let mut change = store.change();
    for page in (0..PAGES).map(|order| world.crawled(order)) {
        world.links(page, &mut links);
        count += links.len();
        let discovered = |page: &u32| Discovered {
            url: url(&world, *page),
            kind: EntryKind::Page,
            depth: 1,
            priority: 100,
            redirects: 0,
        };
        change.tell_links(DEFAULT_CRAWL, &url(&world, page), 100, &links.iter().map(discovered).collect::<Vec<_>>(), 1);
    }
    change.commit().unwrap();
    let graph = store.graph();
    let mut intake = graph.intake().unwrap();
    while graph.take_in(&mut intake, |_, _| {}).unwrap() > 0 {}
    assert_eq!((intake.counts().pages, intake.counts().links), (PAGES, count as u64));

    let lists = LinkLists::read(&graph, Wanted { out: true, ..Wanted::default() }, work.path()).unwrap();
    let stop = Stop { precision: 1e-12, loops_max: 1_000 };
    let (mut pagerank, mut hits) = (PageRank::default(), Hits::default());
    pagerank.update(&lists.graph().unwrap(), &stop, &Threads::new(0, work.path())).unwrap();
    hits.update(&lists.graph().unwrap(), &stop, &Threads::new(0, work.path())).unwrap();

    // By the pages' names in the world, not by the numbers that the store gave them.
    let number = |page: u32| graph.page(&UrlKey::new(DEFAULT_CRAWL, &url(&world, page))).unwrap().unwrap().number;
    let numbers: Vec<usize> = (0..PAGES).map(|page| number(page) as usize).collect();
    let named = |scores: &[f64]| numbers.iter().map(|number| scores[*number]).collect::<Vec<f64>>();
    let scores = serde_json::json!({
        "pagerank": named(pagerank.scores()), "authorities": named(hits.scores()), "hubs": named(hits.hubs()),
    });
    let (links_file, scores_file) = (work.path().join("links"), work.path().join("scores"));
    std::fs::write(&scores_file, scores.to_string()).unwrap();
    let mut out = std::io::BufWriter::new(std::fs::File::create(&links_file).unwrap());
    for page in 0..PAGES {
        world.links(page, &mut links);
        links.iter().for_each(|to| writeln!(out, "{page} {to}").unwrap());
    }
    out.into_inner().unwrap();

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/score_check.py");
    let arguments = [script.into(), PathBuf::from(PAGES.to_string()), links_file, scores_file];
    let checked = Command::new(graph_python()).args(arguments).output().expect("it could be asked before");
    let (stdout, stderr) = (String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success(), "{stdout}\n{stderr}");
    let distances: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(distances["links"], count);
    for name in ["pagerank", "authorities", "hubs"] {
        assert!(distances[name].as_f64().unwrap() < 1e-6, "{name}: {distances}");
    }
}
