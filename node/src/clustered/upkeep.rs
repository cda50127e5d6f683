//! URL_AGE, URL_PURGE, FIELD_RECALCULATE, and what happened to URLs: URL_HISTORY and URL_STATS.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::cluster::amend::Amendment;
use proto::control::records::{QueryText, RecordsAnswer, RecordsRequest, UrlName};
use proto::control::{Answer, Request, node_name};
use proto::id::SLOTS;
use proto::key::UrlKey;
use proto::record::UrlState;
use proto::site::history::{frequencies, together};
use proto::site::upkeep::Which;
use proto::site::{Operation, SiteDefinition, Upkeep, UrlOrder, code, state, upkeep};
use serde_json::{Value as Json, json};
use tokio::time::Duration;

use super::site::{Failed, Outcome, counted};
use super::urls::{SCAN_ROWS, objects, slots_here};
use super::{Shared, ask_peer_for};
use crate::edges::disk::{Job, ReplicaJob};
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::node::Node;

/// How long a node may take for its part.
const PATIENCE: Duration = Duration::from_secs(50);
/// Deleted URLs that one node tells at once.
const DELETED_COUNTED: usize = 5_000;

/// URLs that were meant, and those of them that were changed: somebody else may have been faster.
pub(super) struct Amended {
    pub(super) found: usize,
    pub(super) changed: usize,
}

impl Shared {
    /// What every node says in time, by its name; this one first.
    pub(super) async fn everybody_says(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        request: &RecordsRequest,
        patience: Duration,
    ) -> Vec<Result<RecordsAnswer, String>> {
        let said = |answer: Answer| match answer {
            Answer::Records(answer) => Ok(answer),
            Answer::Refused(why) => Err(why),
            other => Err(format!("answered {other:?}")),
        };
        let others = swarm.nodes().into_iter().map(|peer| {
            let (swarm, request) = (Arc::clone(swarm), Request::Records(request.clone()));
            async move {
                let answer = ask_peer_for(patience, &swarm, peer.peer, &request).await.and_then(said);
                answer.map_err(|why| format!("{}: {why}", node_name(peer.node)))
            }
        });
        let mine = async {
            said(self.records(node, request.clone()).await)
                .map_err(|why| format!("{}: {why}", node_name(node_of(&self.me))))
        };
        let (mine, others) = futures_util::future::join(mine, futures_util::future::join_all(others)).await;
        std::iter::once(mine).chain(others).collect()
    }

    /// The sites that a request is for.
    async fn kept_up(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        request: &Upkeep,
    ) -> Result<Vec<Arc<SiteDefinition>>, Failed> {
        let crawls = node.crawls();
        let mut sites = Vec::new();
        for id in request.sites() {
            let site = crawls.site(id).map(|(site, _)| site).filter(|site| !site.deleted);
            sites.push(Arc::clone(site.ok_or_else(|| Failed::no_site(id))?));
        }
        if sites.is_empty() {
            sites = crawls.sites().cloned().collect();
        }
        if let Some(criterions) = &request.sites_criterions {
            let chosen: BTreeSet<String> = self.sites_meant(node, swarm, criterions).await?.into_iter().collect();
            sites.retain(|site| chosen.contains(&site.site.id));
        }
        Ok(sites)
    }

    /// Deletes URLs that are too old, some of each site: for each that ages, its id and how many.
    pub(super) async fn url_age(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        body: Json,
    ) -> Result<(Json, Option<String>), Failed> {
        let request = Upkeep::read(body, Operation::UrlAge)?;
        let (mut told, mut missing) = (Vec::new(), None);
        for site in self.kept_up(node, swarm, &request).await? {
            let aging =
                matches!(site.site.state, state::ACTIVE | state::SUSPENDED) && site.site.mode(upkeep::mode::AGE);
            let otherwise = site.site.aging().filter(|_| aging);
            if request.criterions.is_none() && otherwise.is_none() {
                continue;
            }
            let which = request.which(otherwise.as_deref().unwrap_or_default());
            match self.amend_where(node, swarm, &site, which, Amendment::Delete).await {
                Ok(aged) => told.push(json!([site.site.id, aged.changed])),
                Err(failed) => missing = Some(failed.message),
            }
        }
        Ok((Json::Array(told), missing))
    }

    /// Changes URLs of a site that are meant, with what goes with them.
    pub(super) async fn amend_where(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        site: &SiteDefinition,
        which: Which,
        amendment: Amendment,
    ) -> Result<Amended, Failed> {
        let Which { condition, order, limit, offset } = which;
        let text = QueryText::Criterions { condition, order, limit, offset, urls_only: true };
        let answered = self.look(node, swarm, &text, &[&site.site.id]).await?;
        if let Some(why) = answered.missing {
            return Err(Failed::new(code::NOT_KEPT, format!("{why}; which URLs are meant cannot be said now")));
        }
        let urls = objects(answered.table);
        let names = urls.iter().filter_map(|url| url["url"].as_str()).map(|url| UrlName::Url(url.to_owned())).collect();
        let changed = self.amend_with_notes(node, swarm, &site.crawl_name(), names, amendment).await;
        let changed = changed.map_err(|error| Failed::new(code::NOT_KEPT, error))?;
        let changed = changed.iter().filter(|changed| **changed == Some(true)).count();
        Ok(Amended { found: urls.len(), changed })
    }

    /// Removes what leads to the contents of deleted URLs, some of each site: the id of each site that had such, and how many.
    pub(super) async fn url_purge(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        body: Json,
    ) -> Result<(Json, Option<String>), Failed> {
        let request = Upkeep::read(body, Operation::UrlPurge)?;
        let (mut told, mut missing) = (Vec::new(), None);
        for site in self.kept_up(node, swarm, &request).await? {
            match self.purge_site(node, swarm, &site.crawl_name(), request.share()).await {
                Ok(0) => {}
                Ok(count) => told.push(json!([site.site.id, count])),
                Err(why) => missing = Some(why),
            }
        }
        Ok((Json::Array(told), missing))
    }

    /// URLs of a crawl that are deleted and not purged, so many of each node; and what could not be looked at.
    async fn deleted(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        limit: usize,
    ) -> (BTreeMap<UrlKey, String>, Option<String>) {
        let request = RecordsRequest::Deleted { crawl: crawl.to_owned(), limit };
        let (mut urls, mut looked, mut silent) = (BTreeMap::new(), 0, Vec::new());
        for answer in self.everybody_says(node, swarm, &request, PATIENCE).await {
            match answer {
                Ok(RecordsAnswer::Deleted { urls: some, slots }) => {
                    urls.extend(some);
                    looked += slots;
                }
                Ok(other) => silent.push(format!("answered {other:?}")),
                Err(why) => silent.push(why),
            }
        }
        let missing = (looked < u32::from(SLOTS))
            .then(|| format!("only {looked} of {SLOTS} slots were looked at; {}", silent.join("; ")));
        (urls, missing)
    }

    /// How many URLs of a site are deleted and not purged, and what could not be looked at. Counted up to what one node tells at once.
    pub(super) async fn deleted_count(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        id: &str,
    ) -> Result<(usize, Option<String>), Failed> {
        let crawl = self.crawl_of(node, id)?;
        let (urls, missing) = self.deleted(node, swarm, &crawl, DELETED_COUNTED).await;
        Ok((urls.len(), missing))
    }

    pub(super) async fn purge_site(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        limit: usize,
    ) -> Result<usize, String> {
        let (urls, missing) = self.deleted(node, swarm, crawl, limit).await;
        if let Some(why) = missing {
            return Err(why);
        }
        let some: Vec<(UrlKey, String)> = urls.into_iter().take(limit).collect();
        self.purge_urls(node, swarm, crawl, some).await
    }

    /// Removes what leads to the contents of deleted URLs from every node, then says so in their records.
    pub(super) async fn purge_urls(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        urls: Vec<(UrlKey, String)>,
    ) -> Result<usize, String> {
        if urls.is_empty() {
            return Ok(0);
        }
        // One that was handed in again meanwhile keeps what it has.
        let names: Vec<UrlName> = urls.iter().map(|(_, url)| UrlName::Url(url.clone())).collect();
        let known = self.known(node, swarm, crawl, names).await?;
        let deleted = known.into_iter().flatten().filter(|known| known.kept.record.state == UrlState::Deleted);
        let (keys, names): (Vec<UrlKey>, Vec<UrlName>) =
            deleted.map(|known| (known.copy.key, UrlName::Url(known.kept.record.url))).unzip();
        // What was put beside them after they were deleted, or before anybody removed it then.
        let ids = keys.iter().map(|key| (key.id().to_string(), None)).collect();
        self.remove_notes(node, swarm, crawl, &ids).await?;
        for keys in keys.chunks(SCAN_ROWS) {
            let answers = self.everybody_says(node, swarm, &RecordsRequest::Purge(keys.to_vec()), PATIENCE).await;
            let silent: Vec<String> = answers.into_iter().filter_map(Result::err).collect();
            if !silent.is_empty() {
                return Err(format!("contents may be left on nodes that do not answer: {}", silent.join("; ")));
            }
        }
        let purged = self.amend(node, swarm, crawl, names, Amendment::Purge).await?;
        Ok(purged.iter().filter(|changed| **changed == Some(true)).count())
    }

    /// Counts the URLs of sites anew on every node; the sites with what they come to, and how many counters were wrong.
    pub(super) async fn recalculate(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        body: Json,
    ) -> Result<(Json, Option<String>), Failed> {
        let request = Upkeep::read(body, Operation::FieldRecalculate)?;
        let sites = self.kept_up(node, swarm, &request).await?;
        let (mut told, mut silent) = (Vec::new(), Vec::new());
        for site in &sites {
            let crawl = site.crawl_name();
            let (mut corrected, mut hosts) = (0, 0);
            for answer in self.everybody_says(node, swarm, &RecordsRequest::Recount { crawl }, PATIENCE).await {
                match answer {
                    Ok(RecordsAnswer::Recounted { corrected: some, hosts: of }) => {
                        corrected += some;
                        hosts += of;
                    }
                    Ok(other) => silent.push(format!("answered {other:?}")),
                    Err(why) => silent.push(why),
                }
            }
            told.push((site, corrected, hosts));
        }
        let counts = self.count_anew(node, swarm).await;
        let by_name = super::site::by_name(&counts);
        let told = told.into_iter().map(|(site, corrected, hosts)| {
            let site = counted(site, &by_name);
            json!({
                "siteId": site.id, "resources": site.resources, "contents": site.contents, "collectedURLs": site.collected_urls,
                "newURLs": site.new_urls, "errors": site.errors, "size": site.size, "hosts": hosts, "corrected": corrected,
            })
        });
        silent.dedup();
        Ok((told.collect(), (!silent.is_empty()).then(|| silent.join("; "))))
    }

    /// What happened to URLs, event by event or counted.
    pub(super) async fn url_history(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        bodies: Vec<Json>,
        operation: Operation,
    ) -> Outcome {
        let mut told = Vec::new();
        for body in bodies {
            let order = UrlOrder::read(body)?;
            let name = order.name(&self.urls)?;
            let crawl = self.crawl_of(node, order.site())?;
            let not_kept = |error: String| Failed::new(code::NOT_KEPT, error);
            let names = self.meant(node, swarm, &crawl, vec![name]).await.map_err(not_kept)?;
            let known = self.known(node, swarm, &crawl, names).await.map_err(not_kept)?;
            let Some(known) = known.into_iter().flatten().next() else { continue };
            let request = RecordsRequest::History(known.copy.key.clone());
            let answers = self.everybody_says(node, swarm, &request, PATIENCE).await;
            let seen = self.enough(answers).map_err(not_kept)?.into_iter().flat_map(|answer| match answer {
                RecordsAnswer::History(events) => events,
                _ => Vec::new(),
            });
            let events = together(seen);
            let mut url = json!({"siteId": order.site(), "url": known.kept.record.url, "urlMd5": known.copy.key.id().to_string()});
            if let Json::Object(url) = &mut url {
                match operation {
                    Operation::UrlHistory => {
                        let rows = events.iter().map(proto::site::history::Event::json).collect();
                        url.insert("logRows".to_owned(), rows);
                    }
                    _ => drop(url.insert("freqRows".to_owned(), frequencies(&events))),
                }
            }
            told.push(url);
        }
        Ok(Json::Array(told))
    }
}

/// URLs of a crawl that are deleted and not purged, in the slots that this node holds.
pub(super) async fn deleted_here(node: &Node, crawl: String, limit: usize) -> Result<RecordsAnswer, String> {
    let held = slots_here(node).await;
    let slots = held.clone();
    let domains = node.ask(|reply| Job::Replica(ReplicaJob::Domains { crawl, slots, reply })).await;
    let domains: Arc<[Vec<u8>]> = domains.map_err(|error| error.to_string())?.into();
    let (mut urls, mut from) = (Vec::new(), (!domains.is_empty()).then_some((0, None)));
    while let Some(at) = from.take().filter(|_| urls.len() < limit) {
        let domains = Arc::clone(&domains);
        let page =
            node.ask(|reply| Job::Replica(ReplicaJob::Scan { domains, from: at, limit: SCAN_ROWS, reply })).await;
        let (found, next) = page.map_err(|error| error.to_string())?;
        let deleted = found.into_iter().filter(|stored| stored.record.state == UrlState::Deleted);
        urls.extend(deleted.map(|stored| (stored.key, stored.record.url)));
        from = next;
    }
    urls.truncate(limit);
    Ok(RecordsAnswer::Deleted { urls, slots: held.len() as u32 })
}

/// Counts the URLs of a crawl on this node anew, one domain after the other.
pub(super) async fn recount_here(node: &Node, crawl: String) -> Result<RecordsAnswer, String> {
    let every = (0..SLOTS).map(proto::id::Slot).collect();
    let domains = node.ask(|reply| Job::Replica(ReplicaJob::Domains { crawl, slots: every, reply })).await;
    let (mut corrected, mut hosts) = (0, 0);
    for prefix in domains.map_err(|error| error.to_string())? {
        let recounted = node.ask(|reply| Job::Replica(ReplicaJob::Recount(prefix, reply))).await;
        let recounted = recounted.map_err(|error| error.to_string())?;
        corrected += recounted.corrected;
        hosts += recounted.hosts;
    }
    Ok(RecordsAnswer::Recounted { corrected, hosts })
}
