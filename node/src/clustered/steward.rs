//! The steward: what sites need done from time to time. The first living node does it for all; each node removes what it has of sites that are gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use proto::cluster::amend::Amendment;
use proto::control::crawl::CrawlCounts;
use proto::control::records::{RecordsAnswer, RecordsRequest};
use proto::error_mask::{ErrorMask, ErrorTimes};
use proto::site::life::{Begun, Come, Duty, RECRAWL_URLS_AT_ONCE, duties};
use proto::site::upkeep::{self, Which};
use proto::site::{Site, SiteDefinition, state};
use tokio::time::{Duration, Instant};
use tracing::{debug, info, warn};

use super::Shared;
use super::site::{Change, Failed, by_name};
use super::upkeep::Amended;
use crate::edges::clock::unix_ms;
use crate::edges::disk::{Job, ReplicaJob};
use crate::edges::store::Decided;
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::messages::KeepClients;
use crate::node::Node;

/// How often it is looked what sites need.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Pause between two parts of removing: the crawl has the disk meanwhile.
const SWEEP_REST: Duration = Duration::from_millis(20);

/// Looks after sites as long as the node lives.
pub(super) async fn look_after(shared: Weak<Shared>, upkeep_every: Duration) {
    let mut upkeep = Instant::now() + upkeep_every;
    let mut begun: BTreeMap<String, Begun> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        let (Some(node), Some(swarm)) = (shared.node.get(), shared.swarm.get()) else { continue };
        if node.state().await.is_err() {
            return; // it stops
        }
        sweep(node).await;
        let first = node.cluster().await.and_then(|view| view.alive.into_iter().min());
        if first != Some(node_of(&shared.me)) {
            begun.clear(); // it is somebody else's now
            continue;
        }
        shared.do_duties(node, swarm, &mut begun).await;
        shared.note_failings(node, swarm).await;
        if Instant::now() >= upkeep {
            upkeep = Instant::now() + upkeep_every;
            shared.keep_up(node, swarm).await;
        }
    }
}

/// Removes records of sites that are gone, some at a time.
async fn sweep(node: &Arc<Node>) {
    loop {
        let swept = node.ask(|reply| Job::Replica(ReplicaJob::Sweep(reply))).await;
        let Ok(Decided { said: removed, copies, changed, life }) = swept else { return };
        if !changed.is_empty() {
            let keep = KeepClients { copies, changed, life, served: Default::default(), tenures: Default::default() };
            if node.keep_clients(keep).await.is_err() {
                return; // a new life has counted without them
            }
        }
        let Some(removed) = removed else { return };
        debug!(removed, "records of sites that are gone are removed");
        tokio::time::sleep(SWEEP_REST).await;
    }
}

impl Shared {
    async fn do_duties(&self, node: &Node, swarm: &Arc<Swarm>, begun: &mut BTreeMap<String, Begun>) {
        let crawls = node.crawls();
        let needs = |site: &&Arc<SiteDefinition>| {
            let site = &site.site;
            site.state == state::ACTIVE
                && (site.max_errors > 0 || site.max_resources > 0 || site.recrawl_date.is_some())
        };
        let sites: Vec<Arc<SiteDefinition>> = crawls.sites().filter(needs).cloned().collect();
        if sites.is_empty() {
            return;
        }
        let counts = self.list_crawls(node, swarm).await;
        if super::site::missing(&counts).is_some() {
            return; // slots without a holder: what they count is not known
        }
        let counts = by_name(&counts);
        let mut now: Option<BTreeMap<String, CrawlCounts>> = None;
        begun.retain(|id, begun| sites.iter().any(|site| site.site.id == *id && begun.is_of(&site.site)));
        for site in sites {
            let id = site.site.id.as_str();
            let come = |counts: &BTreeMap<String, CrawlCounts>| {
                let counted = counts.get(&site.crawl_name()).copied().unwrap_or_default();
                // The period is tuned by what waited before anything was put up again.
                let open = begun.get(id).map_or(counted.open, |begun| begun.open);
                Come { contents: counted.totals.processed, errors: counted.totals.failed, open }
            };
            if duties(&site, come(&counts), unix_ms()).is_empty() {
                continue;
            }
            // Looking is free, and may be of a moment ago. What is done is done by what is there now: room that was made is not made twice.
            if now.is_none() {
                let anew = self.count_anew(node, swarm).await;
                if super::site::missing(&anew).is_some() {
                    return;
                }
                now = Some(by_name(&anew));
            }
            let come = come(now.as_ref().unwrap_or(&counts));
            for duty in duties(&site, come, unix_ms()) {
                if let Err(failed) = self.do_duty(node, swarm, &site, come, &duty, begun).await {
                    warn!(
                        site = id,
                        why = failed.message,
                        "what a site needs could not be done, it will be tried again"
                    );
                }
            }
        }
    }

    async fn do_duty(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        site: &Arc<SiteDefinition>,
        come: Come,
        duty: &Duty,
        begun: &mut BTreeMap<String, Begun>,
    ) -> Result<(), Failed> {
        let id = site.site.id.as_str();
        match duty {
            Duty::Suspend(why) => {
                info!(site = id, why = why.name(), "a site is suspended");
                let change = Change::Replace(Arc::clone(site), Box::new(site.site.suspended(*why, unix_ms())));
                self.change_site(node, swarm, id, &change).await?;
            }
            Duty::MakeRoom { condition, order, count } => {
                let which = Which { condition: condition.clone(), order: order.clone(), limit: *count, offset: 0 };
                let Amended { changed, .. } = self.amend_where(node, swarm, site, which, Amendment::Delete).await?;
                debug!(site = id, changed, "room is made");
            }
            Duty::Recrawl { delete, renew, next } => {
                let begun_now = || Begun::now(&site.site, come.open, unix_ms());
                let this = begun.entry(id.to_owned()).or_insert_with(begun_now).clone();
                let steps = delete.iter().map(|condition| (condition, Amendment::Delete));
                for (condition, amendment) in steps.chain([(renew, Amendment::Renew)]) {
                    let which = Which {
                        condition: this.left(condition),
                        order: String::new(),
                        limit: RECRAWL_URLS_AT_ONCE,
                        offset: 0,
                    };
                    let Amended { found, changed } = self.amend_where(node, swarm, site, which, amendment).await?;
                    debug!(site = id, changed, ?amendment, "a site is being crawled again");
                    if found >= RECRAWL_URLS_AT_ONCE && changed > 0 {
                        return Ok(()); // there may be more: the next look finds it due, and goes on
                    }
                }
                // The date last: should anything before it fail, or this node die, the site is still due.
                let change = Change::Replace(Arc::clone(site), next.clone());
                self.change_site(node, swarm, id, &change).await?;
                begun.remove(id);
                info!(site = id, "a site is crawled again");
            }
        }
        Ok(())
    }

    /// Puts what URLs of a site failed of into its mask of errors, when a bit is new.
    async fn note_failings(&self, node: &Node, swarm: &Arc<Swarm>) {
        let mut seen: BTreeMap<String, ErrorTimes> = BTreeMap::new();
        // Who is silent is asked again: what it saw others see too, or nobody needs it yet.
        for answer in self.everybody_says(node, swarm, &RecordsRequest::Failings, LOOK_EVERY).await {
            if let Ok(RecordsAnswer::Failings(some)) = answer {
                for (crawl, times) in some {
                    seen.entry(crawl).or_default().merge(&times);
                }
            }
        }
        let crawls = node.crawls();
        for site in crawls.sites() {
            let Some(times) = seen.get(&site.crawl_name()) else { continue };
            let mut mask = ErrorMask(site.site.error_mask);
            mask.merge(times.since(site.site.restarted.unix_ms));
            if mask.0 == site.site.error_mask {
                continue;
            }
            let failed = Site { error_mask: mask.0, ..site.site.clone() };
            let change = Change::Replace(Arc::clone(site), Box::new(failed));
            if let Err(failed) = self.change_site(node, swarm, &site.site.id, &change).await {
                debug!(site = site.site.id, why = failed.message, "what its URLs failed of is noted later");
            }
        }
    }

    /// Deletes what is too old, and purges what was deleted.
    async fn keep_up(&self, node: &Node, swarm: &Arc<Swarm>) {
        let crawls = node.crawls();
        let sites: Vec<Arc<SiteDefinition>> = crawls.sites().cloned().collect();
        for site in sites {
            let lives =
                matches!(site.site.state, state::ACTIVE | state::SUSPENDED) && site.site.mode(upkeep::mode::AGE);
            if let Some(condition) = site.site.aging().filter(|_| lives)
                && let Err(failed) = {
                    let oldest = Which::oldest(&condition, upkeep::SHARE);
                    self.amend_where(node, swarm, &site, oldest, Amendment::Delete).await
                }
            {
                debug!(site = site.site.id, why = failed.message, "aging waits");
            }
            if let Err(why) = self.purge_site(node, swarm, &site.crawl_name(), upkeep::SHARE).await {
                debug!(site = site.site.id, why, "purging waits");
            }
        }
    }
}
