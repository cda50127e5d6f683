//! How fast pages of spiders are taken in and handed out, by the code of the disk thread and with its fsyncs, on one node.

use node::edges::store::{Store, StoreOptions};
use proto::clients::spider::{Crawled, Found, SpiderAsk, SpiderRules, SpiderSaid};
use proto::cluster::slot_set::SlotSet;
use proto::id::{NodeId, SLOTS, Slot};
use proto::score::temperature::Rates;
use simulation::world::graph::PageWorld;

use super::{BATCH, Took, beside_scores, measured, verdict, verdict_loss};

/// Pages of the domain that is too warm.
const BLOCKED: u32 = 100_000;
/// When everything happens, Unix milliseconds.
const NOW: u64 = 1_790_000_000_000;

/// Measures a store of its own.
pub(super) fn run(pages: u32) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let options = StoreOptions { graph: true, replica: true, node: NodeId(1), ..StoreOptions::default() };
    let mut store = Store::open(dir.path(), options)?;
    let world = PageWorld::new(pages, 42);
    let slots: SlotSet = (0..SLOTS).map(Slot).collect();
    let free = SpiderRules::default();
    let ask =
        |store: &mut Store, ask: SpiderAsk, rules: &SpiderRules| Ok(store.spider_act(ask, rules, &slots, NOW)?.said);

    let mut found = Took::default();
    for first in (0..pages).step_by(BATCH as usize) {
        let batch: Vec<Found> = (first..(first + BATCH).min(pages)).map(|page| page_found(&world, page)).collect();
        let (_, took) = measured(|| ask(&mut store, SpiderAsk::Found(batch), &free))?;
        found = found + took;
    }
    found.show("spiders: pages found", pages);

    let mut crawled = Took::default();
    let reports = (pages / 20).max(BATCH);
    for first in (0..reports).step_by(BATCH as usize) {
        let batch: Vec<Crawled> =
            (first..first + BATCH).map(|order| page_crawled(&world, world.crawled(order))).collect();
        let (_, took) = measured(|| ask(&mut store, SpiderAsk::Crawled(batch), &free))?;
        crawled = crawled + took;
    }
    crawled.show("spiders: pages crawled, with their links", reports);

    let taken = |store: &mut Store, wanted: u32, calls: u32, rules: &SpiderRules| -> anyhow::Result<(u32, Took)> {
        let (mut count, mut total) = (0, Took::default());
        for _ in 0..calls {
            let (said, took) = measured(|| ask(store, SpiderAsk::Take { wanted, lease_s: 600 }, rules))?;
            let SpiderSaid::Given(urls) = said else { anyhow::bail!("no pages but {said:?}") };
            (count, total) = (count + urls.len() as u32, total + took);
        }
        Ok((count, total))
    };
    let calls = (pages / 20_000).clamp(1, 50);
    let (count, took) = taken(&mut store, 10, calls * 10, &free)?;
    took.show("spiders: pages in batches of 10", count);
    let (count, took) = taken(&mut store, 1_000, calls, &free)?;
    took.show("spiders: pages in batches of 1,000", count);
    let rate = took.per_cpu(count);
    verdict("pages handed out a processor second, 1,000 at once", format!("{rate:.0}"), "300,000", rate >= 300_000.0);
    let graph = store.graph();
    let mut intake = graph.intake()?;
    while graph.take_in(&mut intake, |_, _| {})? > 0 {}
    let ((beside, took_beside), updates) =
        beside_scores(&graph, dir.path(), || taken(&mut store, 1_000, calls, &free))?;
    took_beside.show("spiders: pages in batches of 1,000 beside scores", beside);
    println!("spiders: {updates} updates meanwhile");
    verdict_loss("handing out", (took, count), (took_beside, beside));

    // One domain has the best pages of all, and has given all that it may.
    for first in (0..BLOCKED).step_by(BATCH as usize) {
        let page =
            |page| Found { score: 2.0, url: format!("http://blocked.example/{page}"), depth: 0, linked_from: None };
        ask(&mut store, SpiderAsk::Found((first..first + BATCH).map(page).collect()), &free)?;
    }
    let rules = SpiderRules { rates: Rates::new(0.000_1, 0.001), ..free.clone() };
    taken(&mut store, 100, 1, &rules)?;
    for (wanted, calls) in [(10, calls * 10), (1_000, calls)] {
        let (count, took) = taken(&mut store, wanted, calls, &rules)?;
        let what = format!("pages past a domain that is too warm, {wanted} at once");
        took.show(&format!("spiders: {what}"), count);
        let rate = took.per_cpu(count);
        verdict(&format!("{what}, a processor second"), format!("{rate:.0}"), "100,000", rate >= 100_000.0);
    }
    Ok(())
}

/// Hosts of this world are all of one domain, and here each has its own: a domain is what is kept cool.
fn url(world: &PageWorld, page: u32) -> String {
    world.url(page).replacen(".example.com/", ".example/", 1)
}

fn page_found(world: &PageWorld, page: u32) -> Found {
    let score = (page.wrapping_mul(2_654_435_761) >> 8) as f32 / (1u32 << 24) as f32;
    Found { url: url(world, page), score, depth: 1, linked_from: None }
}

fn page_crawled(world: &PageWorld, page: u32) -> Crawled {
    let mut links = Vec::new();
    world.links(page, &mut links);
    let links = links.into_iter().map(|page| url(world, page)).collect();
    Crawled { url: url(world, page), score: 0.5, content_hash: Some(u64::from(page)), links }
}
