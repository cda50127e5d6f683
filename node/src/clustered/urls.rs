//! Answers to operations on URLs of sites.
//!
//! Looking at one URL asks all nodes, and the latest copy counts. A query looks at every URL of its sites: each node at those of the slots that it
//! holds, some thousand rows at a time, so that the crawl goes on meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::batch::{Discovered, EntryKind};
use proto::cluster::amend::Amendment;
use proto::cluster::slot_set::SlotSet;
use proto::control::records::{QueryText, RecordsAnswer, RecordsRequest, UrlName};
use proto::control::{Answer, Request, node_name};
use proto::crawl::crawls::Crawls;
use proto::id::{SLOTS, UrlId};
use proto::query::{Collector, Part, Query, Source, Table};
use proto::site::{
    BadRequest, Criterions, GENERAL_SITE, Operation, SiteDefinition, SiteSelect, SqlCustom, UrlNew, UrlOrder, UrlRow,
    code, json_of, md5_hex, with_site, with_window,
};
use proto::url::CanonicalUrl;
use proto::wire;
use serde_json::{Value as Json, json};
use tokio::time::Duration;

use super::records::Known;
use super::site::{Failed, Outcome};
use super::{SUBMIT_URLS, Shared, ask_peer_for, submit};
use crate::edges::clock::unix_ms;
use crate::edges::disk::{Job, ReplicaJob};
use crate::edges::swarm::Swarm;
use crate::node::Node;

/// How long a node may look through its URLs.
const QUERY_PATIENCE: Duration = Duration::from_secs(50);
/// Rows that are read at once: a few milliseconds of the disk thread.
pub(super) const SCAN_ROWS: usize = 1_000;

/// `delayedType` of what goes at once.
const NOW: u8 = 1;

/// What is said of a URL that a node did not take.
const TRAP: &str = "is not kept: its host or its path has as many URLs as the limits against traps allow (crawl.host_urls_max, crawl.path_queries_max)";
/// What URL_NEW says of a URL.
const INSERTED: u8 = 0;
const FAILED: u8 = 1;
const EXISTED: u8 = 2;

/// A URL that is handed in, and where it belongs.
struct Placed {
    crawl: String,
    site: String,
    url: CanonicalUrl,
    new: UrlNew,
}

/// What several requests of a list may have alike: then they are carried out together.
#[derive(PartialEq, Eq)]
struct Alike {
    site: String,
    crawl: String,
    amendment: Amendment,
    delayed_type: u8,
}

/// Which URLs are to be changed.
enum Which {
    One(UrlName),
    Those(Criterions),
}

/// What a query found, and what it could not look at.
pub(super) struct Answered {
    pub(super) table: Table,
    pub(super) missing: Option<String>,
}

impl Shared {
    // Handing in.

    /// A status for each URL: 0 inserted, 1 failed, 2 existed; with what is wrong with those that failed.
    pub(super) async fn url_new(&self, node: &Node, swarm: &Arc<Swarm>, bodies: Vec<Json>) -> Json {
        let mut statuses = vec![FAILED; bodies.len()];
        let mut messages: Vec<String> = Vec::new();
        let mut by_crawl: BTreeMap<String, Vec<(usize, Discovered)>> = BTreeMap::new();
        let mut more: Vec<(usize, Placed)> = Vec::new();
        self.make_sites(node, swarm, &bodies).await;
        for (at, body) in bodies.into_iter().enumerate() {
            match self.place(node, body).await {
                Ok((placed, found)) => {
                    by_crawl.entry(placed.crawl.clone()).or_default().push((at, found));
                    more.extend(Some((at, placed)).filter(|(_, placed)| placed.new.brings_more()));
                }
                Err(failed) => messages.push(format!("[{at}] {}", failed.message)),
            }
        }
        for (crawl, urls) in by_crawl {
            match self.insert(node, swarm, &crawl, &urls).await {
                Ok(fresh) => urls.iter().zip(fresh).for_each(|((at, found), fresh)| match fresh {
                    Some(fresh) => statuses[*at] = if fresh { INSERTED } else { EXISTED },
                    None => messages.push(format!("[{at}] url: {} {TRAP}", found.url.as_str())),
                }),
                Err(why) => messages.push(why),
            }
        }
        for (at, placed) in more {
            if statuses[at] != FAILED
                && let Err(why) = self.bring_more(node, swarm, &placed, statuses[at] == EXISTED).await
            {
                statuses[at] = FAILED;
                messages.push(format!("[{at}] {why}"));
            }
        }
        let failed = statuses.contains(&FAILED);
        let code = if failed { code::BAD_REQUEST } else { code::OK };
        json!({"errorCode": code, "errorMessage": messages.join(";"), "statuses": statuses})
    }

    /// Does what was asked for beside a URL that is kept: attributes, contents, and a change if it was there before.
    async fn bring_more(&self, node: &Node, swarm: &Arc<Swarm>, placed: &Placed, existed: bool) -> Result<(), String> {
        let Placed { crawl, site, url, new } = placed;
        if let Some(update) = new.update(site).filter(|_| existed) {
            let outcomes = self.url_changes(node, swarm, vec![update], Operation::UrlUpdate).await;
            outcomes.into_iter().collect::<Result<Vec<Json>, Failed>>().map_err(|failed| failed.message)?;
        }
        let attributes = new.attributes(site, UrlId::of(crawl, url.as_str()));
        if !attributes.is_empty() {
            let said = self.attribute_set(node, swarm, attributes, Operation::AttributeSet).await;
            if said["errorCode"] != code::OK {
                return Err(said["errorMessage"].as_str().unwrap_or_default().to_owned());
            }
        }
        if let Some(put) = new.put(site) {
            self.url_put(node, swarm, put).await.map_err(|failed| failed.message)?;
        }
        Ok(())
    }

    /// Where a URL belongs, and the URL.
    async fn place(&self, node: &Node, body: Json) -> Result<(Placed, Discovered), Failed> {
        let new = UrlNew::read(body)?;
        let url = CanonicalUrl::parse(&new.url, &self.urls)
            .map_err(|error| BadRequest::new("url", format!("{}: {error}", new.url)))?;
        let site = self.site_of(node, &new, &url).await?;
        let crawl = site.crawl_name();
        let admitted = node.crawls().filter(&crawl).map(|filter| filter.admits(&url, 0));
        match admitted {
            Some(Ok(())) => {}
            Some(Err(refusal)) => {
                let what = format!("{} does not belong to site {:?}: {refusal}", url.as_str(), site.site.id);
                return Err(BadRequest::new("url", what).into());
            }
            None => return Err(Failed::no_site(&site.site.id)),
        }
        let priority = new.priority.unwrap_or(site.site.priority);
        let found = Discovered { url: url.clone(), kind: EntryKind::Page, depth: 0, priority, redirects: 0 };
        Ok((Placed { crawl, site: site.site.id.clone(), url, new }, found))
    }

    async fn site_of(&self, node: &Node, new: &UrlNew, url: &CanonicalUrl) -> Result<Arc<SiteDefinition>, Failed> {
        let (id, body) = match belongs(&node.crawls(), new, url)? {
            Belongs::To(site) => return Ok(site),
            Belongs::ToNew { id, body } => (id, body),
        };
        let made = self.site_new(node, body).await;
        // Somebody else may have made it in this moment.
        named(&node.crawls(), &id).ok_or_else(|| made.err().unwrap_or_else(|| Failed::no_site(&id)))
    }

    /// Makes the sites that URLs ask for and that are not there, some at once. What cannot be made is said with the URL, which asks for it once more.
    async fn make_sites(&self, node: &Node, swarm: &Arc<Swarm>, bodies: &[Json]) {
        let crawls = node.crawls();
        let missing = |body: &Json| {
            let new = UrlNew::read(body.clone()).ok().filter(|new| new.site_select() == SiteSelect::Auto)?;
            let url = CanonicalUrl::parse(&new.url, &self.urls).ok()?;
            match belongs(&crawls, &new, &url).ok()? {
                Belongs::ToNew { id, body } => Some((id, body)),
                Belongs::To(_) => None,
            }
        };
        let sites: BTreeMap<String, Json> = bodies.iter().filter_map(missing).collect();
        if sites.len() > 1 {
            self.site_changes(node, swarm, sites.into_values().collect(), Operation::SiteNew).await;
        }
    }

    /// Has URLs kept; says of each whether it is new, `None` if the limits against traps refuse it.
    pub(super) async fn insert(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        urls: &[(usize, Discovered)],
    ) -> Result<Vec<Option<bool>>, String> {
        let names = urls.iter().map(|(_, found)| UrlName::Url(found.url.as_str().to_owned())).collect();
        let known = self.known(node, swarm, crawl, names).await?;
        let is_new = |known: &Option<Known>| known.as_ref().is_none_or(|known| known.kept.record.state.is_gone());
        let mut seen = BTreeSet::new();
        let fresh: Vec<bool> = known
            .iter()
            .zip(urls)
            .map(|(known, (_, found))| is_new(known) && seen.insert(found.url.as_str()))
            .collect();
        let wanted: Vec<Discovered> =
            urls.iter().zip(&fresh).filter(|(_, fresh)| **fresh).map(|((_, found), _)| found.clone()).collect();
        for urls in wanted.chunks(SUBMIT_URLS) {
            submit(node, crawl, urls).await?;
        }
        let handed_in = wanted.iter().map(|found| UrlName::Url(found.url.as_str().to_owned())).collect();
        let kept = self.known(node, swarm, crawl, handed_in).await?;
        let refused: BTreeSet<&str> =
            wanted.iter().zip(&kept).filter(|(_, kept)| kept.is_none()).map(|(found, _)| found.url.as_str()).collect();
        // What was deleted is known: it is put up again.
        let deleted = known.iter().zip(urls).filter(|(known, _)| known.is_some() && is_new(known));
        let names: Vec<UrlName> = deleted.map(|(_, (_, found))| UrlName::Url(found.url.as_str().to_owned())).collect();
        if !names.is_empty() {
            self.amend(node, swarm, crawl, names, Amendment::Renew).await?;
        }
        let told = fresh.into_iter().zip(urls);
        Ok(told.map(|(fresh, (_, found))| (!refused.contains(found.url.as_str())).then_some(fresh)).collect())
    }

    // Looking.

    /// The URL that a request names; `None` if it is not known.
    pub(super) async fn url_status(&self, node: &Node, swarm: &Arc<Swarm>, bodies: Vec<Json>) -> Result<Json, Failed> {
        let crawls = node.crawls();
        let mut told = vec![Json::Null; bodies.len()];
        let mut by_site: BTreeMap<String, Vec<(usize, UrlName)>> = BTreeMap::new();
        for (at, body) in bodies.into_iter().enumerate() {
            let order = UrlOrder::read(body)?;
            by_site.entry(order.site().to_owned()).or_default().push((at, order.name(&self.urls)?));
        }
        for (id, names) in by_site {
            let Some((site, _)) = crawls.site(&id).filter(|(site, _)| !site.deleted) else { continue };
            let (places, names): (Vec<usize>, Vec<UrlName>) = names.into_iter().unzip();
            let (crawl, not_kept) = (site.crawl_name(), |error: String| Failed::new(code::NOT_KEPT, error));
            let names = self.meant(node, swarm, &crawl, names).await.map_err(not_kept)?;
            let known = self.known(node, swarm, &crawl, names).await.map_err(not_kept)?;
            for (at, known) in places.into_iter().zip(known) {
                let Some(Known { copy, kept, inlinks }) = known else { continue };
                let row = UrlRow { site: &id, key: &copy.key, record: &kept.record, inlinks };
                if row.is_there() {
                    told[at] = with_window(with_site(row.json(), &site.site), &crawls, unix_ms());
                }
            }
        }
        Ok(Json::Array(told.into_iter().filter(|url| !url.is_null()).collect()))
    }

    /// The answers to queries; and what could not be looked at.
    pub(super) async fn query(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        body: Json,
    ) -> Result<(Json, Option<String>), Failed> {
        let request = SqlCustom::read(body)?;
        let (mut told, mut missing) = (Vec::with_capacity(request.queries.len()), None);
        for (text, query) in &request.queries {
            let Answered { table, missing: silent } = self.answered(node, swarm, text, query).await?;
            missing = missing.or(silent);
            let head = json!(table.head);
            let rows = if request.by_names { json!(objects(table)) } else { json!(lists(table)) };
            told.push(json!({"head": head, "rows": rows}));
        }
        let told = if request.is_list { Json::Array(told) } else { told.pop().unwrap_or_default() };
        Ok((told, missing))
    }

    async fn answered(&self, node: &Node, swarm: &Arc<Swarm>, text: &str, query: &Query) -> Result<Answered, Failed> {
        let crawls = node.crawls();
        if query.source == Source::Sites {
            let counts = self.list_crawls(node, swarm).await;
            let (by_name, missing) = (super::site::by_name(&counts), super::site::missing(&counts));
            let mut collector = Collector::new(query);
            for site in crawls.sites() {
                let looked = collector.look(&super::site::counted(site, &by_name), unix_ms());
                looked.map_err(|error| BadRequest::new("query", error.to_string()))?;
            }
            return Ok(Answered { table: collector.finish(), missing });
        }
        let named = query.sites().map(|ids| ids.into_iter().map(str::to_owned).collect::<BTreeSet<String>>());
        let wanted = |id: &str| named.as_ref().is_none_or(|named| named.contains(id));
        let sites: Vec<&str> = crawls.sites().map(|site| site.site.id.as_str()).filter(|id| wanted(id)).collect();
        self.look(node, swarm, &QueryText::Whole(text.to_owned()), &sites).await
    }

    /// Has all nodes look at the URLs of sites.
    pub(super) async fn look(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        text: &QueryText,
        sites: &[&str],
    ) -> Result<Answered, Failed> {
        let crawls = node.crawls();
        let query = text.understand().map_err(|error| BadRequest::new("criterions", error.to_string()))?;
        let named = |id: &&str| crawls.site(id).map(|(site, _)| ((*id).to_owned(), site.crawl_name()));
        let sites: Vec<(String, String)> = sites.iter().filter_map(named).collect();
        let request = Request::Records(RecordsRequest::Look { query: text.clone(), sites: sites.clone() });
        let others = swarm.nodes().into_iter().map(|peer| {
            let (swarm, request) = (Arc::clone(swarm), request.clone());
            async move {
                match ask_peer_for(QUERY_PATIENCE, &swarm, peer.peer, &request).await {
                    Ok(Answer::Records(RecordsAnswer::Part { part, slots })) => Ok((part, slots)),
                    Ok(Answer::Refused(why)) => Err(format!("{}: {why}", node_name(peer.node))),
                    Ok(other) => Err(format!("{} answered {other:?}", node_name(peer.node))),
                    Err(error) => Err(format!("{}: {error}", node_name(peer.node))),
                }
            }
        });
        let (mine, others) =
            futures_util::future::join(look_here(node, text, &sites), futures_util::future::join_all(others)).await;
        let mut collector = Collector::new(&query);
        let (mut slots, mut missing) = (0, Vec::new());
        for answer in std::iter::once(mine).chain(others) {
            match answer {
                Ok((part, held)) => {
                    let part: Part = wire::decode(&part).map_err(|error| Failed::new(code::NOT_KEPT, error))?;
                    collector.merge(part).map_err(|error| BadRequest::new("criterions", error.to_string()))?;
                    slots += held;
                }
                Err(why) => missing.push(why),
            }
        }
        // Who does not answer matters only as long as nobody holds its slots.
        let missing = (slots < u32::from(SLOTS)).then(|| {
            missing.insert(0, format!("only {slots} of {SLOTS} slots were looked at"));
            missing.join("; ")
        });
        Ok(Answered { table: collector.finish(), missing })
    }

    // Changing.

    /// Changes URLs as a list of requests says, one after the other; URLs that are named one by one and changed alike are changed together.
    pub(super) async fn url_changes(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        bodies: Vec<Json>,
        operation: Operation,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(bodies.len());
        let mut run: Option<(Alike, Vec<UrlName>)> = None;
        for body in bodies {
            let wanted = self.wanted(node, body, operation);
            // What is named twice is changed twice: the second time it may be there no more.
            if let (Ok((alike, Which::One(name))), Some((before, names))) = (&wanted, &mut run)
                && alike == before
                && !names.contains(name)
            {
                names.push(name.clone());
                continue;
            }
            if let Some((alike, names)) = run.take() {
                outcomes.extend(self.change_named(node, swarm, &alike, names).await);
            }
            match wanted {
                Ok((alike, Which::One(name))) => run = Some((alike, vec![name])),
                Ok((alike, Which::Those(criterions))) => {
                    outcomes.push(self.change_those(node, swarm, &alike, &criterions).await);
                }
                Err(failed) => outcomes.push(Err(failed)),
            }
        }
        if let Some((alike, names)) = run {
            outcomes.extend(self.change_named(node, swarm, &alike, names).await);
        }
        outcomes
    }

    /// Reads a request to change URLs.
    fn wanted(&self, node: &Node, body: Json, operation: Operation) -> Result<(Alike, Which), Failed> {
        let order = UrlOrder::read(body)?;
        let amendment = amendment_of(&order, operation)?;
        let crawls = node.crawls();
        let site = crawls.site(order.site()).map(|(site, _)| site).filter(|site| !site.deleted);
        let site = site.ok_or_else(|| Failed::no_site(order.site()))?;
        let which = match &order.criterions {
            None => Which::One(order.name(&self.urls)?),
            Some(criterions) => {
                criterions.query_of_all(Source::Urls)?;
                Which::Those(criterions.clone())
            }
        };
        let (site, crawl) = (site.site.id.clone(), site.crawl_name());
        Ok((Alike { site, crawl, amendment, delayed_type: order.delayed_type }, which))
    }

    /// Changes URLs that are named; says of each whether it was known.
    async fn change_named(&self, node: &Node, swarm: &Arc<Swarm>, alike: &Alike, names: Vec<UrlName>) -> Vec<Outcome> {
        let count = names.len();
        let unknown = || Failed::new(code::SITE, format!("site {:?} has no such URL", alike.site));
        match self.changed_of(node, swarm, alike, names).await {
            Ok(changed) => changed.into_iter().map(|there| there.then(|| json!(0)).ok_or_else(unknown)).collect(),
            Err(why) => (0..count).map(|_| Err(Failed::new(code::NOT_KEPT, &why))).collect(),
        }
    }

    async fn changed_of(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        alike: &Alike,
        names: Vec<UrlName>,
    ) -> Result<Vec<bool>, String> {
        let Alike { crawl, amendment, .. } = alike;
        let names = self.meant(node, swarm, crawl, names).await?;
        let known = self.known(node, swarm, crawl, names.clone()).await?;
        let is_there = |known: &Option<Known>| known.as_ref().is_some_and(|known| !known.kept.record.state.is_gone());
        let mut there: Vec<bool> = known.iter().map(is_there).collect();
        let (places, names): (Vec<usize>, Vec<UrlName>) =
            names.into_iter().enumerate().filter(|(at, _)| there[*at]).unzip();
        let amended = self.amend_with_notes(node, swarm, crawl, names.clone(), *amendment).await?;
        for (at, amended) in places.into_iter().zip(amended) {
            there[at] = amended.is_some();
        }
        self.purge_now(node, swarm, alike, names).await?;
        Ok(there)
    }

    /// Changes the URLs that meet criterions; says how many were changed.
    async fn change_those(&self, node: &Node, swarm: &Arc<Swarm>, alike: &Alike, criterions: &Criterions) -> Outcome {
        let Alike { site, crawl, amendment, .. } = alike;
        let kept = |error: String| Failed::new(code::NOT_KEPT, error);
        let query = criterions.query_of_all(Source::Urls)?;
        let text = QueryText::Criterions {
            condition: criterions.condition.clone(),
            order: criterions.order.clone(),
            limit: query.limit,
            offset: query.offset,
            urls_only: true,
        };
        let answered = self.look(node, swarm, &text, &[site]).await?;
        if let Some(why) = answered.missing {
            return Err(kept(format!("{why}; which URLs are meant cannot be said now")));
        }
        let urls = objects(answered.table);
        let names = urls.iter().filter_map(|url| url["url"].as_str()).map(|url| UrlName::Url(url.to_owned())).collect();
        let names: Vec<UrlName> = names;
        let changed = self.amend_with_notes(node, swarm, crawl, names.clone(), *amendment).await.map_err(kept)?;
        self.purge_now(node, swarm, alike, names).await.map_err(kept)?;
        Ok(json!(changed.iter().filter(|changed| **changed == Some(true)).count()))
    }

    /// Changes URLs, and removes the notes of those that are deleted or cleaned; says of each whether it is known, and whether it was changed.
    pub(super) async fn amend_with_notes(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        names: Vec<UrlName>,
        amendment: Amendment,
    ) -> Result<Vec<Option<bool>>, String> {
        if amendment == Amendment::Delete {
            // Before the URLs: should the rest fail, they are still there, and whoever deletes them again finds what is left.
            let known = self.known(node, swarm, crawl, names.clone()).await?;
            let ids = known.iter().flatten().map(|known| (known.copy.key.id().to_string(), None)).collect();
            self.remove_notes(node, swarm, crawl, &ids).await?;
        }
        let changed = self.amend(node, swarm, crawl, names.clone(), amendment).await?;
        if amendment == Amendment::Clean {
            // After them: what is theirs begins with the round that they are in now.
            let known = self.known(node, swarm, crawl, names).await?;
            let begins = |known: &Known| (known.copy.key.id().to_string(), Some(known.kept.record.progress.round));
            let ids = known.iter().flatten().map(begins).collect();
            self.remove_notes(node, swarm, crawl, &ids).await?;
        }
        Ok(changed)
    }

    /// Has the contents of URLs that were deleted go too, if that is asked for now and not left to purging.
    async fn purge_now(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        alike: &Alike,
        names: Vec<UrlName>,
    ) -> Result<(), String> {
        let Alike { crawl, amendment: Amendment::Delete, delayed_type: NOW, .. } = alike else { return Ok(()) };
        let known = self.known(node, swarm, crawl, names).await?;
        let keys = known.into_iter().flatten().map(|known| (known.copy.key, known.kept.record.url)).collect();
        self.purge_urls(node, swarm, crawl, keys).await.map(drop)
    }
}

/// What an operation asks for.
fn amendment_of(order: &UrlOrder, operation: Operation) -> Result<Amendment, BadRequest> {
    let other = |name: &str, said: Option<u8>, ours: Option<u8>| match said.filter(|_| said != ours) {
        Some(said) => Err(BadRequest::new(name, format!("{said} cannot be asked for here; URL_UPDATE sets it"))),
        None => Ok(()),
    };
    match operation {
        Operation::UrlDelete => {
            other("status", order.status, None)?;
            other("state", order.state, None).map(|()| Amendment::Delete)
        }
        // It is crawled anew, whether that is said or not.
        Operation::UrlCleanup => {
            other("status", order.status, Some(1))?;
            other("state", order.state, Some(0)).map(|()| Amendment::Clean)
        }
        _ => update_of(order),
    }
}

/// What URL_UPDATE asks for.
pub(super) fn update_of(order: &UrlOrder) -> Result<Amendment, BadRequest> {
    match (order.status, order.state) {
        (Some(1), None | Some(0)) | (None, Some(0)) => Ok(Amendment::Renew),
        (None, Some(1)) => Ok(Amendment::Disable),
        (Some(status), _) if status != 1 => {
            Err(BadRequest::new("status", format!("{status} is the crawl's to set; 1 has the URL crawled again")))
        }
        (None, None) => Err(BadRequest::new(
            "status",
            "nothing is to be changed; status 1 crawls again, state 0 enables, 1 disables".to_owned(),
        )),
        (_, state) => {
            Err(BadRequest::new("state", format!("{} with this status: 0 enables, 1 disables", state.unwrap_or(0))))
        }
    }
}

/// Where a URL that is handed in belongs.
enum Belongs {
    To(Arc<SiteDefinition>),
    /// To a site that is to be made of this.
    ToNew {
        id: String,
        body: Json,
    },
}

/// A site that is there.
fn named(crawls: &Crawls, id: &str) -> Option<Arc<SiteDefinition>> {
    crawls.site(id).map(|(site, _)| site).filter(|site| !site.deleted).cloned()
}

/// The site of a URL that is handed in: the one that it names, else that of the longest root URL, else as `siteSelect` says.
fn belongs(crawls: &Crawls, new: &UrlNew, url: &CanonicalUrl) -> Result<Belongs, Failed> {
    if let Some(id) = new.site_id.as_deref() {
        let id = if id.is_empty() { GENERAL_SITE } else { id };
        if let Some(site) = named(crawls, id) {
            return Ok(Belongs::To(site));
        }
        if new.site_select() == SiteSelect::None {
            return Err(Failed::no_site(id));
        }
    } else if let Some(site) = longest_root(crawls, url.as_str()) {
        return Ok(Belongs::To(site));
    }
    let general = || named(crawls, GENERAL_SITE).ok_or_else(|| Failed::no_site(GENERAL_SITE));
    let origin = format!("{}/", url.origin());
    let id = md5_hex(&origin);
    match (new.site_select(), named(crawls, &id)) {
        (SiteSelect::Explicit, _) | (SiteSelect::Qualify, None) => general().map(Belongs::To),
        (SiteSelect::Qualify | SiteSelect::Auto, Some(site)) => Ok(Belongs::To(site)),
        (SiteSelect::Auto, None) => {
            let body = json!({"id": id, "urls": [origin]});
            Ok(Belongs::ToNew { id, body })
        }
        (SiteSelect::None, _) => {
            let what = "is missing, and no site has a root URL that this one begins with".to_owned();
            Err(BadRequest::new("siteId", what).into())
        }
    }
}

/// The site that has the longest root URL with which a URL begins.
fn longest_root(crawls: &Crawls, url: &str) -> Option<Arc<SiteDefinition>> {
    let begins = |site: &SiteDefinition| {
        site.site.urls.iter().map(|root| root.url.as_str()).filter(|root| url.starts_with(root)).map(str::len).max()
    };
    crawls
        .sites()
        .filter_map(|site| begins(site).map(|length| (length, site)))
        .max_by_key(|(length, _)| *length)
        .map(|(_, site)| Arc::clone(site))
}

/// Rows by name.
pub(super) fn objects(table: Table) -> Vec<Json> {
    let Table { head, rows } = table;
    let object = |row: Vec<proto::query::Value>| head.iter().cloned().zip(row.into_iter().map(json_of)).collect();
    rows.into_iter().map(|row| Json::Object(object(row))).collect()
}

/// Rows by place.
fn lists(table: Table) -> Vec<Vec<Json>> {
    table.rows.into_iter().map(|row| row.into_iter().map(json_of).collect()).collect()
}

/// The slots that this node answers for: those that it holds. One that is its cluster all by itself answers for all, also before it may fetch.
pub(super) async fn slots_here(node: &Node) -> SlotSet {
    let held = node.cluster().await.unwrap_or_default().held;
    let served = node.client_places().await.map(|places| places.served).unwrap_or_default();
    if served.len() > held.len() { served } else { held }
}

/// Looks at the URLs of sites in the slots that this node holds; gives what it found, encoded, and how many slots those are.
pub(super) async fn look_here(
    node: &Node,
    text: &QueryText,
    sites: &[(String, String)],
) -> Result<(Vec<u8>, u32), String> {
    let query = text.understand().map_err(|error| error.to_string())?;
    let held = slots_here(node).await;
    let mut collector = Collector::new(&query);
    let now = unix_ms();
    for (id, crawl) in sites {
        let (crawl, slots) = (crawl.clone(), held.clone());
        let domains = node.ask(|reply| Job::Replica(ReplicaJob::Domains { crawl, slots, reply })).await;
        let domains: Arc<[Vec<u8>]> = domains.map_err(|error| error.to_string())?.into();
        let mut from = (!domains.is_empty()).then_some((0, None));
        while let Some(at) = from.take().filter(|_| !collector.is_full()) {
            let domains = Arc::clone(&domains);
            let page =
                node.ask(|reply| Job::Replica(ReplicaJob::Scan { domains, from: at, limit: SCAN_ROWS, reply })).await;
            let (found, next) = page.map_err(|error| error.to_string())?;
            for stored in &found {
                let row = UrlRow { site: id, key: &stored.key, record: &stored.record, inlinks: stored.inlinks };
                if row.is_there() {
                    collector.look(&row, now).map_err(|error| error.to_string())?;
                }
            }
            from = next;
        }
    }
    let part = collector.part().map_err(|error| error.to_string())?;
    let part = wire::encode(&part).map_err(|error| error.to_string())?;
    Ok((part, held.len() as u32))
}
