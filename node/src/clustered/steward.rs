//! The steward: what sites need done from time to time. The first living node does it for all; each node removes what it has of sites that are gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use proto::cluster::amend::Amendment;
use proto::control::records::{RecordsAnswer, RecordsRequest};
use proto::error_mask::{ErrorMask, ErrorTimes};
use proto::site::life::{Come, Duty, RECRAWL_URLS_MAX, duties};
use proto::site::{Site, SiteDefinition, state, upkeep};
use tokio::time::{Duration, Instant};
use tracing::{debug, info, warn};

use super::Shared;
use super::site::{Change, Failed, by_name};
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
            continue;
        }
        shared.do_duties(node, swarm).await;
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
    async fn do_duties(&self, node: &Node, swarm: &Arc<Swarm>) {
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
        for site in sites {
            let counted = counts.get(&site.crawl_name()).copied().unwrap_or_default();
            let come = Come { contents: counted.totals.processed, errors: counted.totals.failed, open: counted.open };
            for duty in duties(&site, come, unix_ms()) {
                if let Err(failed) = self.do_duty(node, swarm, &site, &duty).await {
                    warn!(
                        site = site.site.id,
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
        duty: &Duty,
    ) -> Result<(), Failed> {
        let id = site.site.id.as_str();
        match duty {
            Duty::Suspend(why) => {
                info!(site = id, why = why.name(), "a site is suspended");
                let change = Change::Replace(Arc::clone(site), Box::new(site.site.suspended(*why, unix_ms())));
                self.change_site(node, swarm, id, &change).await?;
            }
            Duty::MakeRoom { condition, order, count } => {
                let gone = self.amend_where(node, swarm, site, condition, order, *count, Amendment::Delete).await?;
                debug!(site = id, gone, "room is made");
            }
            Duty::Recrawl { next, delete, renew } => {
                // The date first: should anything of the rest fail, the site is not crawled again and again.
                let change = Change::Replace(Arc::clone(site), next.clone());
                self.change_site(node, swarm, id, &change).await?;
                if let Some(condition) = delete {
                    self.delete_where(node, swarm, site, condition, RECRAWL_URLS_MAX).await?;
                }
                let put_up = self.amend_where(node, swarm, site, renew, "", RECRAWL_URLS_MAX, Amendment::Renew).await?;
                info!(site = id, put_up, "a site is crawled again");
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
                && let Err(failed) = self.delete_where(node, swarm, &site, &condition, upkeep::SHARE).await
            {
                debug!(site = site.site.id, why = failed.message, "aging waits");
            }
            if let Err(why) = self.purge_site(node, swarm, &site.crawl_name(), upkeep::SHARE).await {
                debug!(site = site.site.id, why, "purging waits");
            }
        }
    }
}
