//! Answers to operations on sites: each is read, checked, kept on enough nodes, and answered in the JSON of the Distributed Crawler.
//!
//! A request is an object, or a list of them; each gets its own status, and one that is wrong changes nothing. Root URLs are kept before the site is
//! defined: until then nothing of it is fetched, and whoever hears that it is knows that they are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use libp2p::PeerId;
use proto::batch::{Discovered, EntryKind};
use proto::cluster::amend::Amendment;
use proto::cluster::registry::{DefinitionKey, DefinitionKind, NotDefined, Version};
use proto::control::crawl::{CrawlCounts, CrawlList, CrawlsHere};
use proto::control::records::{QueryText, UrlName};
use proto::control::{Answer, node_name};
use proto::counters::HostCounters;
use proto::crawl::crawls::Crawls;
use proto::crawl::definition::DefinitionError;
use proto::date;
use proto::id::SLOTS;
use proto::query::{Collector, ROWS_MAX, Source, Value};
use proto::site::{
    BadRequest, Criterions, GENERAL_SITE, NoSuchChange, Operation, ProxyOrder, Site, SiteCleanup, SiteDefinition,
    SiteDelete, SiteFind, SiteStatus, SiteUpdate, code, state,
};
use proto::url::CanonicalUrl;
use serde_json::{Value as Json, json};
use tokio::time::{Duration, Instant};

use super::crawl::{Counting, TRIES};
use super::times::{self, Times};
use super::{SUBMIT_URLS, Shared, submit};
use crate::edges::clock::unix_ms;
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::messages::Define;
use crate::node::Node;

/// Objects in one request.
const ITEMS_MAX: usize = 1_000;
/// Different sites that are changed at once: what is kept for one is synced, and told to the others, with what is kept for the others.
const SITES_AT_ONCE: usize = 64;
/// URLs that wait are counted up to this; more are what is known and neither a page nor an error.
const OPEN_COUNTED: u64 = 10_000;
/// Sites that SITE_FIND tells of if nothing is said.
const FIND_DEFAULT: usize = 10;
/// What no counter keeps of a site: it is not known until somebody has it measured.
const MEASURED: [&str; 3] = ["deletedURLs", "avgSpeed", "avgSpeedCounter"];

/// Why an operation on one site was not carried out.
pub(super) struct Failed {
    code: u32,
    /// What to tell.
    pub(super) message: String,
}

impl Failed {
    pub(super) fn new(code: u32, message: impl ToString) -> Failed {
        Failed { code, message: message.to_string() }
    }

    pub(super) fn code(&self) -> u32 {
        self.code
    }

    pub(super) fn no_site(id: &str) -> Failed {
        Failed::new(code::SITE, format!("there is no site {id:?}"))
    }
}

impl From<NoSuchChange> for Failed {
    fn from(why: NoSuchChange) -> Failed {
        match why {
            NoSuchChange::Bad(bad) => bad.into(),
            NoSuchChange::Exists { .. } | NoSuchChange::Missing { .. } => Failed::new(code::SITE, why),
        }
    }
}

impl From<BadRequest> for Failed {
    fn from(bad: BadRequest) -> Failed {
        Failed::new(code::BAD_REQUEST, bad)
    }
}

/// What came of one request of a list.
pub(super) type Outcome = Result<Json, Failed>;

impl Shared {
    /// Carries an operation out, and answers as the original does: a list with what each node, or all together, said.
    pub(super) async fn operation(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        operation: Operation,
        body: &str,
        merge: bool,
    ) -> Answer {
        let (began, mut took) = (Instant::now(), Times::new());
        let answers = match serde_json::from_str::<Json>(body) {
            Err(error) => {
                vec![Item::of(general(vec![Err(Failed::new(code::BAD_REQUEST, format!("no JSON: {error}")))]))]
            }
            Ok(body) => {
                let (answers, taken) = times::taken(self.carry_out(node, swarm, operation, body, merge)).await;
                took = taken;
                answers
            }
        };
        // Who puts the answer together takes as long as the whole.
        took.insert(self.me, began.elapsed());
        let others = swarm.nodes().into_iter().map(|peer| (peer.peer, peer.connected));
        let nodes: Vec<(PeerId, bool)> = std::iter::once((self.me, true)).chain(others).collect();
        let items: Vec<Json> = answers
            .into_iter()
            .map(|Item { of, object, error }| {
                let Origin { host, port, node, time } = Origin::of(of, &nodes, &took);
                json!({
                    "errorCode": u32::from(error.is_some()),
                    "errorMessage": error.unwrap_or_default(),
                    "id": operation.name(),
                    "host": host,
                    "port": port,
                    "node": node,
                    "time": time,
                    "itemObject": object,
                })
            })
            .collect();
        Answer::Operation(json!({"errorCode": 0, "errorMessage": "", "itemsList": items}).to_string())
    }

    async fn carry_out(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        operation: Operation,
        body: Json,
        merge: bool,
    ) -> Vec<Item> {
        let (list, bodies) = match body {
            Json::Array(bodies) => (true, bodies),
            one => (false, vec![one]),
        };
        if bodies.len() > ITEMS_MAX {
            let what = format!("{} objects, more than {ITEMS_MAX} in one request", bodies.len());
            return vec![Item::of(general(vec![Err(Failed::new(code::BAD_REQUEST, what))]))];
        }
        match operation {
            Operation::SiteStatus => self.site_status(node, swarm, list, bodies, merge).await,
            Operation::SiteFind => self.site_find(node, swarm, bodies, merge).await,
            Operation::UrlNew => vec![Item::of(self.url_new(node, swarm, bodies).await)],
            Operation::UrlStatus => match self.url_status(node, swarm, bodies).await {
                Ok(urls) => vec![Item::of(urls)],
                Err(failed) => refusal(failed),
            },
            Operation::UrlContent
            | Operation::UrlHistory
            | Operation::UrlStats
            | Operation::AttributeFetch
            | Operation::ProxyStatus
            | Operation::ProxyFind => {
                let answered = match operation {
                    Operation::UrlContent => self.url_content(node, swarm, bodies).await,
                    Operation::AttributeFetch => self.attribute_fetch(node, swarm, bodies).await,
                    Operation::ProxyStatus | Operation::ProxyFind => self.proxy_find(node, bodies, operation),
                    _ => self.url_history(node, swarm, bodies, operation).await,
                };
                answered.map_or_else(refusal, |object| vec![Item::of(object)])
            }
            Operation::AttributeSet | Operation::AttributeUpdate => {
                vec![Item::of(self.attribute_set(node, swarm, bodies, operation).await)]
            }
            Operation::AttributeDelete => vec![Item::of(general(self.attribute_delete(node, swarm, bodies).await))],
            Operation::UrlPut | Operation::ProxyNew | Operation::ProxyUpdate | Operation::ProxyDelete => {
                let mut outcomes = Vec::new();
                for body in bodies {
                    outcomes.push(match operation {
                        Operation::UrlPut => self.url_put(node, swarm, body).await,
                        _ => self.proxy_change(node, swarm, body, operation).await,
                    });
                }
                vec![Item::of(general(outcomes))]
            }
            Operation::UrlFetch => match self.url_fetch(node, swarm, bodies).await {
                Ok((object, error)) => vec![Item { error, ..Item::of(object) }],
                Err(failed) => refusal(failed),
            },
            Operation::Batch
            | Operation::SqlCustom
            | Operation::UrlAge
            | Operation::UrlPurge
            | Operation::FieldRecalculate => {
                let [body] = <[Json; 1]>::try_from(bodies).unwrap_or([Json::Null]);
                let answered = match operation {
                    Operation::Batch => self.batch(node, swarm, body).await.map(|batch| (batch, None)),
                    Operation::UrlAge => self.url_age(node, swarm, body).await,
                    Operation::UrlPurge => self.url_purge(node, swarm, body).await,
                    Operation::FieldRecalculate => self.recalculate(node, swarm, body).await,
                    _ => self.query(node, swarm, body).await,
                };
                match answered {
                    Ok((object, error)) => vec![Item { error, ..Item::of(object) }],
                    Err(failed) => refusal(failed),
                }
            }
            Operation::UrlUpdate | Operation::UrlDelete | Operation::UrlCleanup => {
                vec![Item::of(general(self.url_changes(node, swarm, bodies, operation).await))]
            }
            Operation::SiteNew | Operation::SiteUpdate | Operation::SiteDelete | Operation::SiteCleanup => {
                vec![Item::of(general(self.site_changes(node, swarm, bodies, operation).await))]
            }
        }
    }

    // Looking.

    async fn site_status(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        list: bool,
        bodies: Vec<Json>,
        merge: bool,
    ) -> Vec<Item> {
        let requests: Result<Vec<SiteStatus>, BadRequest> = bodies.into_iter().map(SiteStatus::read).collect();
        let requests = match requests {
            Ok(requests) => requests,
            Err(bad) => return vec![Item::of(general(vec![Err(bad.into())]))],
        };
        let crawls = node.crawls();
        let told = |counts: &BTreeMap<String, CrawlCounts>| {
            let mut sites: Vec<Json> = requests
                .iter()
                .map(|request| match crawls.site(&request.id) {
                    Some((site, _)) if !site.deleted => without(counted(site, counts), &request.exclude_list),
                    _ => json!({"id": request.id, "state": state::NOT_FOUND}),
                })
                .collect();
            if list { Json::Array(sites) } else { sites.pop().unwrap_or_default() }
        };
        if merge {
            let counts = self.list_crawls(node, swarm).await;
            let mut item = Item { error: missing(&counts), ..Item::of(told(&by_name(&counts))) };
            for (at, request) in requests.iter().enumerate().filter(|(_, request)| request.measure != 0) {
                let object = if list { &mut item.object[at] } else { &mut item.object };
                match self.measure(node, swarm, &request.id, object).await {
                    Ok(missing) => item.error = item.error.or(missing),
                    Err(failed) => return refusal(failed),
                }
            }
            return vec![item];
        }
        let answers = self.crawls_everywhere(node, swarm, Counting::Lately).await;
        let item = |(of, here): (String, Result<CrawlsHere, String>)| match here {
            Ok(here) => Item { of: Some(of), object: told(&here.counts.into_iter().collect()), error: None },
            Err(why) => Item { of: Some(of), object: Json::Null, error: Some(why) },
        };
        answers.into_iter().map(item).collect()
    }

    /// Puts in what no counter keeps of a site, by looking at all its URLs; says what could not be looked at.
    async fn measure(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        id: &str,
        site: &mut Json,
    ) -> Result<Option<String>, Failed> {
        if site["state"] == state::NOT_FOUND {
            return Ok(None);
        }
        let mut missing = None;
        let mut first = async |text: &str| -> Result<Json, Failed> {
            let answered = self.look(node, swarm, &QueryText::Whole(text.to_owned()), &[id]).await?;
            missing = missing.take().or(answered.missing);
            Ok(super::urls::objects(answered.table).into_iter().next().unwrap_or_default())
        };
        let speeds = "SELECT COUNT(url), SUM(size), SUM(crawlingTime) FROM urls WHERE crawlingTime > 0 AND size > 0";
        let speeds = first(speeds).await?;
        let number = |name: &str| speeds[name].as_u64().unwrap_or(0);
        site["avgSpeedCounter"] = json!(number("COUNT(url)"));
        site["avgSpeed"] = json!((number("SUM(size)") * 1_000).checked_div(number("SUM(crawlingTime)")).unwrap_or(0));
        let crawled = first("SELECT MAX(tcDate) FROM urls").await?["MAX(tcDate)"].take();
        let processed = first("SELECT MAX(tcDate) FROM urls WHERE processed > 0").await?["MAX(tcDate)"].take();
        // Times of this form are in the order of their texts.
        if crawled.as_str() > site["tcDate"].as_str() {
            site["tcDate"] = crawled;
        }
        site["tcDateProcess"] = processed;
        let (deleted, silent) = self.deleted_count(node, swarm, id).await?;
        site["deletedURLs"] = json!(deleted);
        Ok(missing.or(silent))
    }

    async fn site_find(&self, node: &Node, swarm: &Arc<Swarm>, mut bodies: Vec<Json>, merge: bool) -> Vec<Item> {
        let body = match (bodies.pop(), bodies.is_empty()) {
            (Some(body), true) => body,
            _ => return refusal(Failed::new(code::BAD_REQUEST, "one object is expected")),
        };
        let find = match SiteFind::read(body) {
            Ok(find) => find,
            Err(bad) => return refusal(bad.into()),
        };
        let crawls = node.crawls();
        let told = |counts: &BTreeMap<String, CrawlCounts>| {
            let sites = found(&crawls, counts, &find.url, find.criterions.as_ref(), FIND_DEFAULT)?;
            Ok::<Json, BadRequest>(sites.into_iter().map(|site| without(site, &find.exclude_list)).collect())
        };
        let items: Result<Vec<Item>, BadRequest> = if merge {
            let counts = self.list_crawls(node, swarm).await;
            told(&by_name(&counts)).map(|object| vec![Item { error: missing(&counts), ..Item::of(object) }])
        } else {
            let item = |(of, here): (String, Result<CrawlsHere, String>)| match here {
                Ok(here) => {
                    let object = told(&here.counts.into_iter().collect())?;
                    Ok(Item { of: Some(of), object, error: None })
                }
                Err(why) => Ok(Item { of: Some(of), object: Json::Null, error: Some(why) }),
            };
            self.crawls_everywhere(node, swarm, Counting::Lately).await.into_iter().map(item).collect()
        };
        items.unwrap_or_else(|bad| refusal(bad.into()))
    }

    // Changes.

    /// Changes sites as a list of requests says: some different ones at once, one and the same in turn.
    pub(super) async fn site_changes(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        bodies: Vec<Json>,
        operation: Operation,
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(bodies.len());
        let mut bodies = bodies.into_iter().peekable();
        while let Some(first) = bodies.next() {
            // Who names no site may mean any.
            let id = |body: &Json| body["id"].as_str().map(str::to_owned);
            let mut ids: BTreeSet<Option<String>> = [id(&first)].into_iter().collect();
            let mut group = vec![first];
            while let Some(body) = bodies.next_if(|body| {
                let id = id(body);
                group.len() < SITES_AT_ONCE && id.is_some() && !ids.contains(&None) && !ids.contains(&id)
            }) {
                ids.insert(id(&body));
                group.push(body);
            }
            let changes = group.into_iter().map(|body| self.site_change(node, swarm, body, operation));
            outcomes.extend(futures_util::future::join_all(changes).await);
        }
        outcomes
    }

    async fn site_change(&self, node: &Node, swarm: &Arc<Swarm>, body: Json, operation: Operation) -> Outcome {
        match operation {
            Operation::SiteNew => self.site_new(node, body).await,
            Operation::SiteUpdate => self.site_update(node, swarm, body).await,
            Operation::SiteDelete => self.site_delete(node, swarm, body).await,
            _ => {
                let request = SiteCleanup::read(body)?;
                let id = request.id.clone();
                self.change_site(node, swarm, &id, &Change::Cleanup(request)).await
            }
        }
    }

    pub(super) async fn site_new(&self, node: &Node, body: Json) -> Outcome {
        let site = Site::read(body)?;
        let id = site.id.clone();
        let now = date::format(unix_ms());
        let site = Site { c_date: Some(now.clone()), u_date: Some(now), ..site.never_crawled() };
        let there = |crawls: &Crawls| {
            let known = crawls.site(&id);
            let name = known.map_or_else(|| id.clone(), |(known, _)| known.crawl_name());
            let is_crawl = |name: &str| crawls.get(name).is_some_and(|crawl| crawl.site.is_none());
            crawls.is_of_site(&id) || is_crawl(&id) || is_crawl(&name)
        };
        let taken = || Failed::new(code::SITE, format!("there is a site or a crawl {id:?} already"));
        for attempt in 0..TRIES {
            let crawls = node.crawls();
            if there(&crawls) {
                return Err(taken());
            }
            let known = crawls.site(&id);
            let epoch = known.map_or(0, |(known, _)| known.epoch);
            let definition = SiteDefinition { epoch, ..SiteDefinition::new(site.clone()) };
            let roots = self.understood(&crawls, &definition)?;
            if definition.site.move_urls {
                hand_in(node, &definition, &roots).await?;
            }
            match self.keep_site(node, &definition, known.and_then(|(_, version)| version)).await? {
                Kept::Yes => return Ok(Json::from(id)),
                Kept::ChangedMeanwhile => tokio::time::sleep(self.pause_before(attempt)).await,
            }
        }
        Err(taken())
    }

    /// The sites that meet criterions, all of them if no LIMIT is said; and what is not counted of them now. Counted now: most who ask do something with them.
    pub(super) async fn sites_that_meet(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        criterions: &Criterions,
    ) -> Result<(Vec<String>, Option<String>), Failed> {
        let counts = self.count_anew(node, swarm).await;
        let sites = found(&node.crawls(), &by_name(&counts), "", Some(criterions), ROWS_MAX)?;
        Ok((sites.into_iter().map(|site| site.id).collect(), missing(&counts)))
    }

    /// Those of them for whom something is to be done: these for certain.
    pub(super) async fn sites_meant(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        criterions: &Criterions,
    ) -> Result<Vec<String>, Failed> {
        match self.sites_that_meet(node, swarm, criterions).await? {
            (ids, None) => Ok(ids),
            (_, Some(why)) => {
                Err(Failed::new(code::NOT_KEPT, format!("{why}; which sites are meant cannot be said now")))
            }
        }
    }

    async fn site_update(&self, node: &Node, swarm: &Arc<Swarm>, body: Json) -> Outcome {
        let update = SiteUpdate::read(body)?;
        let Some(criterions) = &update.criterions else {
            let id = update.id.clone();
            return self.change_site(node, swarm, &id, &Change::Update(update)).await;
        };
        let mut ids = self.sites_meant(node, swarm, criterions).await?;
        ids.retain(|id| id != GENERAL_SITE); // it is meant only where it is named
        // All of them could be changed, or none is.
        for id in &ids {
            if let Some((known, _)) = node.crawls().site(id) {
                update.apply(known, unix_ms())?;
            }
        }
        self.change_sites(node, swarm, &ids, &Change::Update(update)).await?;
        Ok(json!(ids))
    }

    async fn site_delete(&self, node: &Node, swarm: &Arc<Swarm>, body: Json) -> Outcome {
        let request = SiteDelete::read(body)?;
        let mut ids = match &request.criterions {
            None => vec![request.id.clone()],
            Some(criterions) => self.sites_meant(node, swarm, criterions).await?,
        };
        ids.retain(|id| id != GENERAL_SITE || request.criterions.is_none()); // it is meant only where it is named
        if ids.iter().any(|id| id == GENERAL_SITE) {
            let what = "the general site cannot be deleted; it can be emptied".to_owned();
            return Err(BadRequest::new("id", what).into());
        }
        self.change_sites(node, swarm, &ids, &Change::Delete).await?;
        Ok(if request.criterions.is_some() { json!(ids) } else { json!(0) })
    }

    /// A site after a change, that may have been tried before. New root URLs are kept before that is.
    async fn changed(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        known: &SiteDefinition,
        change: &Change,
        again: bool,
    ) -> Result<SiteDefinition, Failed> {
        let epoch = known.epoch.saturating_add(1);
        match change {
            Change::Delete => {
                let site = Site { id: known.site.id.clone(), ..Site::default() };
                Ok(SiteDefinition { site, epoch, deleted: true })
            }
            Change::Proxy(order, operation) => {
                let proxies = order.applied(*operation, &known.site.proxies, again)?;
                let site = Site { proxies, u_date: Some(date::format(unix_ms())), ..known.site.clone() };
                Ok(SiteDefinition { site: site.checked()?, ..known.clone() })
            }
            Change::Replace(expected, site) => {
                if known != &**expected {
                    return Err(Failed::new(code::NOT_KEPT, NotDefined::Changed));
                }
                Ok(SiteDefinition { site: (**site).clone(), ..known.clone() })
            }
            Change::Cleanup(request) => {
                request.possible_for(known)?;
                let now = Some(date::format(unix_ms()));
                let emptied = Site {
                    tc_date: now.clone(),
                    u_date: now,
                    state: request.state,
                    ..known.site.clone().never_crawled()
                };
                let emptied = SiteDefinition { site: emptied.checked()?, epoch, deleted: false };
                let roots = self.understood(&node.crawls(), &emptied)?;
                if request.save_root_urls || request.move_urls {
                    hand_in(node, &emptied, &roots).await?;
                }
                Ok(emptied)
            }
            Change::Update(update) => {
                let mut changed = update.apply(known, unix_ms())?;
                let roots = self.understood(&node.crawls(), &changed)?;
                let is_new = |root: &proto::site::RootUrl| !known.site.urls.contains(root);
                let fresh = update.restarts() || changed.site.urls.iter().any(is_new);
                let wanted = changed.site.property("UPDATE_NOT_INSERT_ROOT_URLS").is_none_or(|value| value == "0");
                if fresh && wanted && changed.site.move_urls {
                    hand_in(node, &changed, &roots).await?;
                }
                if update.restarts() {
                    let names: Vec<UrlName> = roots.iter().map(|root| UrlName::Url(root.as_str().to_owned())).collect();
                    let crawl = changed.crawl_name();
                    changed.site.restarted.errors = self.errors_but_of(node, swarm, &crawl, &names).await?;
                    let amended = self.amend(node, swarm, &crawl, names, Amendment::Renew).await;
                    amended.map_err(|error| Failed::new(code::NOT_KEPT, error))?;
                }
                Ok(changed)
            }
        }
    }

    /// URLs of a crawl that have failed, but for those of these names, which are put up again.
    async fn errors_but_of(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        names: &[UrlName],
    ) -> Result<u64, Failed> {
        // Counted now: if this was tried before, the roots that were put up then are no errors any more.
        let counts = self.count_anew(node, swarm).await;
        if let Some(why) = missing(&counts) {
            return Err(Failed::new(code::NOT_KEPT, format!("{why}; which errors are over cannot be said, ask again")));
        }
        let failed = by_name(&counts).get(crawl).map_or(0, |counts| counts.totals.failed);
        let known = self.known(node, swarm, crawl, names.to_vec()).await;
        let known = known.map_err(|error| Failed::new(code::NOT_KEPT, error))?;
        let mut put_up = HostCounters::default();
        known.iter().flatten().for_each(|known| put_up.add(&known.kept.record));
        Ok(failed.saturating_sub(put_up.failed))
    }

    /// Checks what only a node knows: its rules for URLs and the delays that it keeps. Gives the root URLs.
    fn understood(&self, crawls: &Crawls, definition: &SiteDefinition) -> Result<Vec<CanonicalUrl>, Failed> {
        let (delay_ms, most) = (definition.site.request_delay, self.delay_max_ms);
        if delay_ms > most {
            let what =
                format!("{delay_ms} ms between two requests, more than the {most} ms that the nodes keep at most");
            return Err(BadRequest::new("requestDelay", what).into());
        }
        let understood = definition.crawl().prepare(crawls.base(), crawls.urls());
        understood.map(|(_, roots)| roots).map_err(|error| {
            let field = match error {
                DefinitionError::Filter(_) => "filters",
                DefinitionError::Seed { .. }
                | DefinitionError::NoSeed
                | DefinitionError::NoScope
                | DefinitionError::TooManySeeds(_) => "urls",
                DefinitionError::Name(_) | DefinitionError::Zero(_) => "id",
            };
            BadRequest::new(field, error.to_string()).into()
        })
    }

    /// Changes a site that is there, and has the change kept; decides anew if somebody else's came between.
    pub(super) async fn change_site(&self, node: &Node, swarm: &Arc<Swarm>, id: &str, change: &Change) -> Outcome {
        for attempt in 0..TRIES {
            let crawls = node.crawls();
            let known = crawls.site(id).filter(|(known, _)| !known.deleted);
            let (known, version) = known.ok_or_else(|| Failed::no_site(id))?;
            let changed = self.changed(node, swarm, known, change, attempt > 0).await?;
            match self.keep_site(node, &changed, version).await? {
                Kept::Yes => return Ok(Json::from(0)),
                Kept::ChangedMeanwhile => tokio::time::sleep(self.pause_before(attempt)).await,
            }
        }
        Err(Failed::new(code::NOT_KEPT, NotDefined::Changed))
    }

    /// Changes sites alike, some at once, until one cannot be.
    async fn change_sites(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        ids: &[String],
        change: &Change,
    ) -> Result<(), Failed> {
        for ids in ids.chunks(SITES_AT_ONCE) {
            let changes = ids.iter().map(|id| self.change_site(node, swarm, id, change));
            futures_util::future::join_all(changes).await.into_iter().collect::<Result<Vec<Json>, Failed>>()?;
        }
        Ok(())
    }

    /// How long to wait before a change is tried anew; nodes that came between each other wait for different times.
    fn pause_before(&self, attempt: usize) -> Duration {
        Duration::from_millis(100 + 100 * attempt as u64 + node_of(&self.me).0 % 128)
    }

    async fn keep_site(
        &self,
        node: &Node,
        definition: &SiteDefinition,
        expects: Option<Version>,
    ) -> Result<Kept, Failed> {
        let key = DefinitionKey { kind: DefinitionKind::Site, name: definition.site.id.clone() };
        let body = definition.encode().map_err(|error| Failed::new(code::BAD_REQUEST, error))?;
        match node.define(Define { key, expects, body: Some(body) }).await {
            Ok(_) => Ok(Kept::Yes),
            Err(NotDefined::Changed | NotDefined::StartedAnew) => Ok(Kept::ChangedMeanwhile),
            Err(NotDefined::TooLarge) => Err(Failed::new(code::BAD_REQUEST, NotDefined::TooLarge)),
            Err(other) => Err(Failed::new(code::NOT_KEPT, other)),
        }
    }
}

/// A change of a site that is there.
pub(super) enum Change {
    Update(SiteUpdate),
    Delete,
    Cleanup(SiteCleanup),
    Proxy(ProxyOrder, Operation),
    /// To this, if it is still as it was when that was decided.
    Replace(Arc<SiteDefinition>, Box<Site>),
}

enum Kept {
    Yes,
    ChangedMeanwhile,
}

/// Where an entry of an answer is from, as the original writes it: of several nodes with `;` between them.
struct Origin {
    host: String,
    port: Json,
    node: String,
    /// Milliseconds.
    time: Json,
}

impl Origin {
    /// Of one node by name, or of all that could be asked; `nodes` says of each whether it could, `took` how long those took that were asked.
    fn of(one: Option<String>, nodes: &[(PeerId, bool)], took: &Times) -> Origin {
        let name = |peer: &PeerId| node_name(node_of(peer));
        let time = |peer: &PeerId| took.get(peer).map_or(0, |time| time.as_millis() as u64);
        let Some(node) = one else {
            let asked: Vec<&PeerId> = nodes.iter().filter(|(_, asked)| *asked).map(|(peer, _)| peer).collect();
            let all = |of: &dyn Fn(&PeerId) -> String| asked.iter().map(|peer| of(peer)).collect::<Vec<_>>().join(";");
            let (port, time) = match asked.as_slice() {
                [one] => (json!(0), json!(time(one))),
                _ => (json!(all(&|_| "0".to_owned())), json!(all(&|peer| time(peer).to_string()))),
            };
            return Origin { host: all(&PeerId::to_string), port, node: all(&name), time };
        };
        let peer = nodes.iter().find(|(peer, _)| name(peer) == node).map(|(peer, _)| peer);
        let host = peer.map(PeerId::to_string).unwrap_or_default();
        Origin { host, port: json!(0), node, time: json!(peer.map_or(0, time)) }
    }
}

/// One entry of an answer: what one node said, or all together.
struct Item {
    of: Option<String>,
    object: Json,
    error: Option<String>,
}

impl Item {
    fn of(object: Json) -> Item {
        Item { of: None, object, error: None }
    }
}

fn refusal(failed: Failed) -> Vec<Item> {
    vec![Item::of(general(vec![Err(failed)]))]
}

/// The answer to changes: the first code that is not 0, all messages, and a status for each.
fn general(outcomes: Vec<Outcome>) -> Json {
    let codes = outcomes.iter().map(|outcome| outcome.as_ref().map_or_else(|failed| failed.code, |_| code::OK));
    let first = codes.into_iter().find(|code| *code != code::OK).unwrap_or(code::OK);
    let several = outcomes.len() > 1;
    let failures = outcomes.iter().enumerate().filter_map(|(at, outcome)| Some((at, outcome.as_ref().err()?)));
    let messages: Vec<String> = failures
        .map(|(at, failed)| if several { format!("[{at}] {}", failed.message) } else { failed.message.clone() })
        .collect();
    let message = messages.join(";");
    let statuses: Vec<Json> =
        outcomes.iter().map(|outcome| outcome.as_ref().map_or_else(|failed| json!(failed.code), Json::clone)).collect();
    json!({"errorCode": first, "errorMessage": message, "statuses": statuses})
}

async fn hand_in(node: &Node, definition: &SiteDefinition, roots: &[CanonicalUrl]) -> Result<(), Failed> {
    let priority = definition.site.priority;
    let found =
        |url: &CanonicalUrl| Discovered { url: url.clone(), kind: EntryKind::Page, depth: 0, priority, redirects: 0 };
    let urls: Vec<Discovered> = roots.iter().map(found).collect();
    for urls in urls.chunks(SUBMIT_URLS) {
        submit(node, &definition.crawl_name(), urls).await.map_err(|error| Failed::new(code::NOT_KEPT, error))?;
    }
    Ok(())
}

pub(super) fn by_name(list: &CrawlList) -> BTreeMap<String, CrawlCounts> {
    list.crawls.iter().map(|row| (row.name.clone(), row.counts)).collect()
}

/// What is not counted: slots that nobody holds at the moment, because their holder is silent or because all nodes were just started. Who does not answer matters only as
/// long as nobody else holds its slots.
pub(super) fn missing(list: &CrawlList) -> Option<String> {
    let nodes = list.missing.iter().map(|(node, why)| format!("; {node}: {why}"));
    (list.slots < u32::from(SLOTS))
        .then(|| format!("only {} of {SLOTS} slots are counted{}", list.slots, nodes.collect::<String>()))
}

/// A site with what it has come to.
pub(super) fn counted(definition: &SiteDefinition, counts: &BTreeMap<String, CrawlCounts>) -> Site {
    let CrawlCounts { totals, open } = counts.get(&definition.crawl_name()).copied().unwrap_or_default();
    Site {
        resources: totals.processed + totals.failed,
        contents: totals.processed,
        collected_urls: totals.known,
        new_urls: if open < OPEN_COUNTED { open } else { totals.known - totals.processed - totals.failed },
        errors: totals.failed.saturating_sub(definition.site.restarted.errors),
        size: totals.bytes,
        ..definition.site.clone()
    }
}

/// A site as JSON, without some of its fields.
fn without(site: Site, fields: &[String]) -> Json {
    let mut json = json!(site);
    if let Json::Object(all) = &mut json {
        MEASURED.iter().for_each(|name| drop(all.insert((*name).to_owned(), Json::Null)));
        fields.iter().for_each(|name| drop(all.remove(name)));
    }
    json
}

/// The sites of which a root URL begins with `url` and that meet the criterions, in their order; so many of them if no LIMIT is said.
fn found(
    crawls: &Crawls,
    counts: &BTreeMap<String, CrawlCounts>,
    url: &str,
    criterions: Option<&Criterions>,
    limit: usize,
) -> Result<Vec<Site>, BadRequest> {
    let newest = Criterions { order: "cDate DESC, id".to_owned(), limit: Some(json!(limit)), ..Criterions::default() };
    let criterions = match criterions {
        None => newest,
        Some(said) => {
            let order = if said.order.trim().is_empty() { newest.order } else { said.order.clone() };
            Criterions { order, limit: said.limit.clone().or(newest.limit), condition: said.condition.clone() }
        }
    };
    let query = criterions.query(Source::Sites)?;
    let begins = |site: &SiteDefinition| url.is_empty() || site.site.urls.iter().any(|root| root.url.starts_with(url));
    let mut collector = Collector::new(&query);
    let sites: BTreeMap<String, Site> =
        crawls.sites().filter(|site| begins(site)).map(|site| (site.site.id.clone(), counted(site, counts))).collect();
    for site in sites.values() {
        collector.look(site, unix_ms()).map_err(|error| BadRequest::new("criterions", error.to_string()))?;
    }
    let table = collector.finish();
    let id = table.head.iter().position(|name| name == "id").unwrap_or(0);
    let ids = table.rows.into_iter().filter_map(|row| match row.into_iter().nth(id) {
        Some(Value::Text(id)) => Some(id),
        _ => None,
    });
    Ok(ids.filter_map(|id| sites.get(&id).cloned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_not_counted_as_nothing() {
        let all = CrawlList { slots: u32::from(SLOTS), ..CrawlList::default() };
        let silent = vec![("a".to_owned(), "does not answer".to_owned())];
        assert_eq!(missing(&all), None);
        assert_eq!(missing(&CrawlList { missing: silent.clone(), ..all.clone() }), None, "others hold its slots");
        let started = missing(&CrawlList { slots: 7, ..all.clone() }).unwrap();
        assert!(started.contains("only 7 of 4096"), "every node answers, and nobody holds the others: {started}");
        assert!(missing(&CrawlList { slots: 7, missing: silent, ..all }).unwrap().contains("a: does not answer"));
    }
}
