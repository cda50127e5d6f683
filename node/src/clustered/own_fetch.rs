//! The nodes' own fetchers as a client of queues: what of it is decided stands in `proto/src/clients/fetch.rs`.
//!
//! Twice a second the node takes URLs of open crawls out of queues whose slots it serves, looks up in the crawl what became of those that it has, and does what follows. What it has
//! is on disk as leases without an end; they are read from there when slots are gained, and now and then, so that nothing is forgotten that somebody else left behind.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use proto::batch::Discovered;
use proto::clients::ask::{Item, Taken};
use proto::clients::fetch::{
    CrawlNow, Effect, End, Fetch, Found, HELD_OF_QUEUE, Input, Lease, Looked, OwnFetches, discovered_of, item_of,
};
use proto::cluster::amend::Amendment;
use proto::cluster::slot_set::SlotSet;
use proto::control::records::UrlName;
use proto::crawl::crawls::Crawls;
use tokio::time::{Duration, Instant};
use tracing::debug;

use super::{SUBMIT_URLS, Shared, submit};
use crate::doors::frontier::desk::Desk;
use crate::edges::clock::unix_ms;
use crate::edges::swarm::Swarm;
use crate::edges::web::Pending;
use crate::node::Node;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Queues that URLs are taken out of at once.
const QUEUES_AT_ONCE: usize = 256;
/// How often leases are read from disk though no slot was gained.
const READ_EVERY: Duration = Duration::from_secs(30);

/// What the task remembers from one look to the next.
#[derive(Default)]
struct Memory {
    core: OwnFetches,
    /// Slots and crawls whose leases were read, and when.
    read: SlotSet,
    of: BTreeSet<String>,
    at: Option<Instant>,
}

/// Takes the links of a page of an open crawl; nothing if it is not open.
pub(super) fn found(shared: &Arc<Shared>, crawl: &str, links: &[Discovered]) -> Option<Pending<'static, bool>> {
    shared.node.get()?.crawls().fetch(crawl)?;
    let items: Vec<Item> = links.iter().filter_map(|link| item_of(crawl, link)).collect();
    let shared = Arc::clone(shared);
    Some(Box::pin(async move {
        let Some(desk) = shared.desk.get() else { return false };
        desk.put(items).await.iter().all(|taken| *taken != Taken::Failed)
    }))
}

/// Has the nodes' own fetchers served, as long as the node lives.
pub(super) fn start(shared: &Arc<Shared>) {
    let shared = Arc::downgrade(shared);
    tokio::spawn(async move {
        let mut memory = Memory::default();
        while let Some(alive) = live(&shared) {
            let began = Instant::now();
            if let Err(error) = tick(&alive, &mut memory).await {
                debug!(error, "own fetchers are served later");
            }
            drop(alive);
            // A busy node looks less often.
            tokio::time::sleep(LOOK_EVERY.max(began.elapsed())).await;
        }
    });
}

fn live(shared: &Weak<Shared>) -> Option<Arc<Shared>> {
    let alive = shared.upgrade()?;
    let doomed = alive.node.get().is_some_and(|node| node.doomed().is_some());
    (!doomed && !*alive.stopping.borrow()).then_some(alive)
}

async fn tick(shared: &Shared, memory: &mut Memory) -> Result<(), String> {
    let Some((node, swarm, desk)) = shared.at_hand() else { return Ok(()) };
    let crawls = node.crawls();
    let open: BTreeSet<String> = crawls.open().map(|(definition, _)| definition.name.clone()).collect();
    if open.is_empty() {
        return Ok(());
    }
    let served = desk.places().await.map_err(|error| error.to_string())?.served;
    memory.core.step(unix_ms(), Input::Served(served.clone()), &mut Vec::new());
    read(desk, memory, &open, served).await?;
    for name in &open {
        let room = memory.core.room(name).div_ceil(HELD_OF_QUEUE as usize).min(QUEUES_AT_ONCE);
        if crawls.runs(name) && room > 0 {
            let queues = room as u32;
            let leases = desk.lease_own(name, queues).await.map_err(|error| error.to_string())?;
            memory.core.step(unix_ms(), Input::Leased(leases), &mut Vec::new());
        }
        // One crawl that cannot be looked at keeps no other waiting.
        if let Err(error) = shared.look_after(node, swarm, desk, &crawls, name, &mut memory.core).await {
            debug!(crawl = name, error, "what became of its URLs is looked up later");
        }
    }
    Ok(())
}

/// Reads what is leased, if there may be something that is not known yet.
async fn read(desk: &Desk, memory: &mut Memory, open: &BTreeSet<String>, served: SlotSet) -> Result<(), String> {
    let gained = served.iter().any(|slot| !memory.read.contains(slot)) || !open.is_subset(&memory.of);
    if gained || memory.at.is_none_or(|at| at.elapsed() > READ_EVERY) {
        for name in open {
            let leases = desk.own_leases(name, &served).await.map_err(|error| error.to_string())?;
            memory.core.step(unix_ms(), Input::Leased(leases), &mut Vec::new());
        }
        (memory.of, memory.at) = (open.clone(), Some(Instant::now()));
    }
    memory.read = served;
    Ok(())
}

impl Shared {
    /// Hands URLs to a crawl: to its queues of clients, if it is open to them.
    pub(super) async fn hand_in(
        &self,
        node: &Node,
        crawl: &str,
        fetch: Option<Fetch>,
        urls: &[Discovered],
    ) -> Result<(), String> {
        if fetch.is_none() {
            return submit(node, crawl, urls).await;
        }
        let desk = self.desk.get().ok_or("the node is starting; try again")?;
        let items = urls.iter().filter_map(|url| item_of(crawl, url)).collect();
        put(desk, items).await
    }

    /// Has URLs of an open crawl fetched again, or for the first time.
    pub(super) async fn put_due(&self, desk: &Desk, crawl: &str, urls: &[Discovered]) -> Result<(), String> {
        let now_s = unix_ms() / 1_000;
        let due = |url: &Discovered| Some(Item { date_s: Some(now_s), ..item_of(crawl, url)? });
        put(desk, urls.iter().filter_map(due).collect()).await
    }

    async fn look_after(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        desk: &Desk,
        crawls: &Crawls,
        crawl: &str,
        core: &mut OwnFetches,
    ) -> Result<(), String> {
        let leases = core.due(unix_ms(), crawl);
        if leases.is_empty() {
            return Ok(());
        }
        let filter = crawls.filter(crawl).ok_or("its rules are not understood here")?;
        let belongs = |lease: &Lease| {
            let found = discovered_of(&lease.told, crawls.urls())?;
            filter.admits(&found.url, found.depth).ok().map(|()| found)
        };
        let (mut looked, mut asked) = (Vec::new(), Vec::new());
        for lease in leases {
            match belongs(&lease) {
                Some(found) => asked.push((lease, UrlName::Url(found.url.into_string()))),
                None => looked.push(Looked { lease, belongs: false, found: None }),
            }
        }
        let (leases, names): (Vec<Lease>, Vec<UrlName>) = asked.into_iter().unzip();
        let known = self.known(node, swarm, crawl, names).await?;
        for (lease, known) in leases.into_iter().zip(known) {
            looked.push(Looked { lease, belongs: true, found: known.map(|known| Found::of(&known.kept)) });
        }
        let period = crawls.get(crawl).and_then(|crawl| crawl.definition.recrawl_period_s);
        let now = CrawlNow { fetches: crawls.runs(crawl), recrawl_s: period.or(self.recrawl_s) };
        let mut effects = Vec::new();
        core.step(unix_ms(), Input::Looked(now, looked), &mut effects);
        for effect in effects {
            self.do_for_own(node, swarm, desk, crawls, crawl, effect, core).await?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // where it is done, and what
    async fn do_for_own(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        desk: &Desk,
        crawls: &Crawls,
        crawl: &str,
        effect: Effect,
        core: &mut OwnFetches,
    ) -> Result<(), String> {
        let urls = |leases: &[Lease]| -> Vec<Discovered> {
            leases.iter().filter_map(|lease| discovered_of(&lease.told, crawls.urls())).collect()
        };
        let names = |leases: &[Lease]| -> Vec<UrlName> {
            urls(leases).into_iter().map(|found| UrlName::Url(found.url.into_string())).collect()
        };
        match effect {
            Effect::Submit(leases) => {
                for urls in urls(&leases).chunks(SUBMIT_URLS) {
                    submit(node, crawl, urls).await?;
                }
            }
            Effect::Renew(leases) => {
                self.amend(node, swarm, crawl, names(&leases), Amendment::Renew).await?;
                core.step(unix_ms(), Input::Renewed(leases), &mut Vec::new());
            }
            Effect::Withdraw(leases) => {
                self.amend(node, swarm, crawl, names(&leases), Amendment::Disable).await?;
            }
            Effect::End(ends) => {
                let leases = ends.iter().map(|End { lease, .. }| lease.clone()).collect();
                desk.end_own(ends).await.map_err(|error| error.to_string())?;
                core.step(unix_ms(), Input::Ended(leases), &mut Vec::new());
            }
        }
        Ok(())
    }
}

async fn put(desk: &Desk, items: Vec<Item>) -> Result<(), String> {
    let taken = desk.put(items).await;
    match taken.iter().filter(|taken| **taken == Taken::Failed).count() {
        0 => Ok(()),
        lost => Err(format!("too few disks have {lost} of the URLs; hand them in again")),
    }
}
