//! How fast pages of spiders are added and handed out, by the code of the disk thread and with its fsyncs.
//!
//! The store is that of one node of three that all keep everything: it hands out of a third of the slots. Time goes on as it would at the rates of the bars, so that domains cool meanwhile.

use std::collections::BTreeMap;

use node::edges::store::{Intake, PageGraph, Store, StoreOptions};
use proto::clients::spider::{Crawled, Found, SpiderAsk, SpiderRules, SpiderSaid, queue_of};
use proto::cluster::slot_set::SlotSet;
use proto::id::{NodeId, SLOTS, Slot};
use proto::score::temperature::Rates;
use proto::url::{CanonicalUrl, UrlRules};
use simulation::world::graph::PageWorld;

use super::{BATCH, Took, beside_scores, measured, url, verdict, verdict_loss};

/// Pages of the domain that is too warm.
const BLOCKED: u32 = 100_000;
/// When it begins, Unix milliseconds.
const BEGIN: u64 = 1_790_000_000_000;
/// Pages that are handed out in a millisecond.
const PAGES_A_MS: u32 = 100;

/// Measures a store of its own.
pub(super) fn run(pages: u32) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let options = StoreOptions { graph: true, replica: true, node: NodeId(1), ..StoreOptions::default() };
    let store = Store::open(dir.path(), options)?;
    let graph = store.graph();
    let intake = graph.intake()?;
    let slots = (0..SLOTS).filter(|slot| slot % 3 == 0).map(Slot).collect();
    let world = PageWorld::new(pages, 42);
    let mut bench = Bench { store, graph, intake, world, slots, now_ms: BEGIN, handed: 0 };

    // A tenth of the pages is crawled; most that they link to are new at first and known in the end.
    let reports = (pages / 10).max(4 * BATCH);
    let part = reports / 4;
    let before = bench.add(0, reports - 2 * part)?;
    let graph = bench.graph.clone();
    let (beside, updates) = beside_scores(&graph, dir.path(), || bench.add(reports - 2 * part, part))?;
    let after = bench.add(reports - part, part)?;
    let (alone, count) = (before + after, reports - part);
    alone.show("spiders: pages added, with what they link to", count);
    let rate = alone.per_cpu(count);
    verdict("pages added with their links a processor second", format!("{rate:.0}"), "50,000", rate >= 50_000.0);
    beside.show("spiders: pages added beside scores", part);
    println!("spiders: {updates} updates meanwhile");
    verdict_loss("adding", (alone, count), (beside, part));

    let found = bench.find(pages)?;
    found.show("spiders: pages found", pages);

    let free = SpiderRules::default();
    let calls = (pages / 20_000).clamp(1, 50);
    let (count, took) = bench.take(10, calls * 10, &free)?;
    took.show("spiders: pages in batches of 10", count);
    let (count, took) = bench.take(1_000, calls, &free)?;
    took.show("spiders: pages in batches of 1,000", count);
    let rate = took.per_cpu(count);
    verdict("pages handed out a processor second, 1,000 at once", format!("{rate:.0}"), "300,000", rate >= 300_000.0);
    let ((beside, took_beside), updates) = beside_scores(&graph, dir.path(), || bench.take(1_000, calls, &free))?;
    took_beside.show("spiders: pages in batches of 1,000 beside scores", beside);
    println!("spiders: {updates} updates meanwhile");
    verdict_loss("handing out", (took, count), (took_beside, beside));

    // One domain has the best pages of all, and gives all that it may.
    bench.add_blocked()?;
    let rules = SpiderRules { rates: Rates::new(1.0, 100.0), ..free };
    bench.take(100, 1, &rules)?;
    for (wanted, calls) in [(10, calls * 10), (1_000, calls)] {
        let (count, took) = bench.take(wanted, calls, &rules)?;
        let what = format!("pages past a domain that is too warm, {wanted} at once");
        took.show(&format!("spiders: {what}"), count);
        let rate = took.per_cpu(count);
        verdict(&format!("{what}, a processor second"), format!("{rate:.0}"), "100,000", rate >= 100_000.0);
    }
    Ok(())
}

struct Bench {
    store: Store,
    graph: PageGraph,
    intake: Intake,
    world: PageWorld,
    /// Of which pages are handed out.
    slots: SlotSet,
    now_ms: u64,
    /// Pages that were handed out and did not make a whole millisecond yet.
    handed: u32,
}

impl Bench {
    fn ask(&mut self, ask: SpiderAsk, rules: &SpiderRules) -> anyhow::Result<SpiderSaid> {
        Ok(self.store.spider_act(ask, rules, &self.slots, self.now_ms)?.said)
    }

    /// Takes reports in as the door has them: the pages, what they link to (each page once, with its best link), and their links in the graph.
    fn add(&mut self, first: u32, count: u32) -> anyhow::Result<Took> {
        let (mut total, rules) = (Took::default(), SpiderRules::default());
        for batch in (first..first + count).step_by(BATCH as usize) {
            let (mut crawled, mut found) = (Vec::new(), BTreeMap::new());
            for order in batch..(batch + BATCH).min(first + count) {
                let mut links = Vec::new();
                let page = self.world.crawled(order);
                self.world.links(page, &mut links);
                found.extend(links.iter().map(|page| (*page, page_found(&self.world, *page))));
                let links = links.into_iter().map(|page| url(&self.world, page)).collect();
                let content_hash = Some(u64::from(page));
                crawled.push(Crawled { url: url(&self.world, page), score: 0.5, content_hash, links });
            }
            let ((), took) = measured(|| {
                self.ask(SpiderAsk::Crawled(crawled), &rules)?;
                self.ask(SpiderAsk::Found(found.into_values().collect()), &rules)?;
                while self.graph.take_in(&mut self.intake, |_, _| {})? > 0 {}
                Ok(())
            })?;
            total = total + took;
        }
        Ok(total)
    }

    fn find(&mut self, pages: u32) -> anyhow::Result<Took> {
        let (mut total, rules) = (Took::default(), SpiderRules::default());
        for first in (0..pages).step_by(BATCH as usize) {
            let batch = (first..(first + BATCH).min(pages)).map(|page| page_found(&self.world, page)).collect();
            let (_, took) = measured(|| self.ask(SpiderAsk::Found(batch), &rules))?;
            total = total + took;
        }
        Ok(total)
    }

    /// Puts up the pages of a domain that is better than all others, in a slot that is handed out of.
    fn add_blocked(&mut self) -> anyhow::Result<()> {
        let host = |number: u32| format!("http://blocked{number}.example/");
        let is_ours = |host: &String| {
            let url = CanonicalUrl::parse(host, &UrlRules::AS_IT_IS);
            url.is_ok_and(|url| self.slots.contains(queue_of(&url).slot()))
        };
        let host = (0..).map(host).find(is_ours).unwrap_or_default();
        for first in (0..BLOCKED).step_by(BATCH as usize) {
            let page = |page| Found { score: 2.0, url: format!("{host}{page}"), depth: 0, linked_from: None };
            let batch = (first..first + BATCH).map(page).collect();
            self.ask(SpiderAsk::Found(batch), &SpiderRules::default())?;
        }
        Ok(())
    }

    fn take(&mut self, wanted: u32, calls: u32, rules: &SpiderRules) -> anyhow::Result<(u32, Took)> {
        let (mut count, mut total) = (0, Took::default());
        for _ in 0..calls {
            let (said, took) = measured(|| self.ask(SpiderAsk::Take { wanted, lease_s: 600 }, rules))?;
            let SpiderSaid::Given(urls) = said else { anyhow::bail!("no pages but {said:?}") };
            (count, total) = (count + urls.len() as u32, total + took);
            self.handed += wanted;
            self.now_ms += u64::from(self.handed / PAGES_A_MS);
            self.handed %= PAGES_A_MS;
        }
        Ok((count, total))
    }
}

fn page_found(world: &PageWorld, page: u32) -> Found {
    let score = (page.wrapping_mul(2_654_435_761) >> 8) as f32 / (1u32 << 24) as f32;
    Found { url: url(world, page), score, depth: 1, linked_from: None }
}
