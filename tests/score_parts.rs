//! A stored graph ranked in parts, one for each of three nodes, against what one scorer makes of the whole: with mapped vectors and more than one thread, as nodes do it.

use std::collections::BTreeMap;
use std::sync::Arc;

use node::edges::cores::Threads;
use node::edges::store::{PageGraph, Store, StoreOptions};
use node::scoring::lists::{LinkLists, Wanted};
use node::scoring::part::{FOREIGN, Ours};
use proto::clients::spider::{Crawled, SpiderAsk, SpiderRules};
use proto::cluster::slot_set::SlotSet;
use proto::id::{NodeId, SLOTS};
use proto::key::UrlKey;
use proto::score::hits::Hits;
use proto::score::pagerank::PageRank;
use proto::score::rounds::{By, Ranking, Standing};
use proto::score::{PART_PAGES, Scorer, Stop, distance, total};
use simulation::world::graph::PageWorld;

/// So many that threads share the pages of a node.
const PAGES: u32 = 26_000;

fn stored(world: &PageWorld, store: &mut Store) -> PageGraph {
    let url = |page: u32| world.url(page).replacen(".example.com/", ".example/", 1);
    let crawled: Vec<u32> = (0..PAGES).map(|order| world.crawled(order)).collect();
    let mut links = Vec::new();
    for batch in crawled.chunks(1_000) {
        let mut report = |page: &u32| {
            world.links(*page, &mut links);
            let links = links.iter().map(|page| url(*page)).collect();
            Crawled { url: url(*page), score: (page % 7) as f32, content_hash: None, links }
        };
        let reports = SpiderAsk::Crawled(batch.iter().map(&mut report).collect());
        store.spider_act(reports, &SpiderRules::default(), &SlotSet::default(), 1).unwrap();
    }
    let graph = store.graph();
    let mut intake = graph.intake().unwrap();
    while graph.take_in(&mut intake, |_, _| {}).unwrap() > 0 {}
    assert_eq!(intake.counts().pages, PAGES);
    graph
}

#[test]
fn parts_of_a_stored_graph_come_to_what_one_scorer_makes_of_the_whole() {
    let work = tempfile::tempdir().unwrap();
    let options = StoreOptions { graph: true, replica: true, node: NodeId(1), ..StoreOptions::default() };
    let mut store = Store::open(&work.path().join("data"), options).unwrap();
    let graph = stored(&PageWorld::new(PAGES, 42), &mut store);
    let members = [NodeId(3), NodeId(5), NodeId(9)];
    let owners: Vec<NodeId> = (0..SLOTS).map(|slot| members[usize::from(slot) % 3]).collect();
    let machine = || Threads::new(3, work.path());
    for (by, other_domains_only, content) in [
        (By::PageRank(0.85), false, false),
        (By::PageRank(0.85), true, true),
        (By::Hits, false, false),
        (By::Hits, true, true),
    ] {
        let wanted = Wanted { out: true, other_domains_only, content };
        let (mut mine, mut shared) = (BTreeMap::new(), false);
        let mut nodes: BTreeMap<NodeId, Ranking> = BTreeMap::new();
        for me in members {
            let ours = Ours::read(&graph, me, &owners, wanted, 0, work.path()).unwrap();
            shared |= ours.count as usize > PART_PAGES;
            nodes.insert(me, Ranking::new(1, me, &members, by, by.stop(), ours.share, Arc::new(machine())));
            mine.insert(me, ours.mine);
        }
        assert!(shared, "no node has more pages than one thread takes at once");
        while nodes.values().any(|ranking| ranking.standing() == Standing::Goes) {
            for me in members {
                for (of, question) in nodes[&me].wants() {
                    let reply = nodes[&of].answer(me, question);
                    nodes.get_mut(&me).unwrap().heard(of, question, reply, |name| {
                        let page = graph.page(&UrlKey::checked(name).unwrap()).unwrap().unwrap();
                        let number = mine[&me][page.number as usize];
                        assert_ne!(number, FOREIGN, "it is named to whose it is");
                        Some(number)
                    });
                }
            }
        }
        let mut scores = vec![f64::NAN; PAGES as usize];
        for (me, ranking) in &nodes {
            let (found, pages) = ranking.scores();
            assert_eq!(pages, u64::from(PAGES));
            let ours = mine[me].iter().zip(&mut scores).filter(|(mine, _)| **mine != FOREIGN);
            ours.for_each(|(mine, score)| *score = found[*mine as usize]);
        }
        let lists = LinkLists::read(&graph, wanted, work.path()).unwrap();
        let mut scorer: Box<dyn Scorer> = match by {
            By::PageRank(damping) => Box::new(PageRank::new(damping)),
            _ => Box::<Hits>::default(),
        };
        let exact = Stop { precision: 1e-12, loops_max: 1_000 };
        scorer.update(&lists.graph().unwrap(), &exact, &machine()).unwrap();
        let apart = distance(&scores, scorer.scores());
        assert!(apart < 1e-6 && (total(&scores) - 1.0).abs() < 1e-9, "{by:?} {wanted:?}: {apart} apart");
    }
}
