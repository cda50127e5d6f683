//! The calls of the URL Frontier API: what a client says is checked here, carried out by the [`Desk`], and told in the client's words.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use proto::clients::ask::{Act, Ask, Counts, Filter, Item, Look, Said, Setting, Taken, Told, slot_of};
use proto::clients::identity::{ITEM_BYTES_MAX, check_key, crawl_name, queue_key};
use proto::cluster::slot_set::SlotSet;
use proto::id::{NodeId, SLOTS, Slot};
use tokio::sync::Semaphore;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::api::url_frontier_server::UrlFrontier;
use super::api::{self, get_params, url_item};
use super::desk::{Desk, Unavailable};
use super::holders::{Places, Wanted};
use super::outbox::{Outbox, outbox};
use super::put;
use crate::edges::clock::unix_ms;
use crate::metrics::frontier::FrontierMetrics;

/// Keys or URLs of a page if the client does not say how many.
const PAGE_DEFAULT: u32 = 100;
/// Keys in one answer, if they fit into a message.
const QUEUES_PAGE_MAX: u64 = 10_000;
/// What a name takes in a message beside its letters.
const KEY_SPARE_BYTES: usize = 4;
/// Calls of GetURLs that have answers of nodes in hand: some 2 MiB a node each.
const TAKING_MAX: usize = 32;
/// URLs on their way to a client that reads slowly; an [`Outbox`] bounds their bytes.
const STREAM_ROOM: usize = 256;

/// Nodes that may fail to answer in one look through all URLs.
const PASSED_OVER_MAX: usize = 2;
/// How often counts are shown in the metrics, and of how many crawls.
const OBSERVE_EVERY: Duration = Duration::from_secs(15);
const OBSERVED_MAX: usize = 100;

/// Streams of answers.
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The service.
pub(super) struct Service {
    desk: Desk,
    metrics: FrontierMetrics,
    /// Streams that are open at once.
    streams: Arc<Semaphore>,
    /// Calls that have answers of nodes in hand.
    taking: Arc<Semaphore>,
    /// Which node begins to hand URLs out.
    turn: std::sync::atomic::AtomicUsize,
    /// Bytes of names in one answer.
    answer_bytes_max: usize,
}

impl Service {
    pub(super) fn new(desk: Desk, metrics: FrontierMetrics, streams_max: usize, message_bytes_max: usize) -> Service {
        Service {
            desk,
            metrics,
            streams: Arc::new(Semaphore::new(streams_max)),
            taking: Arc::new(Semaphore::new(TAKING_MAX)),
            turn: Default::default(),
            answer_bytes_max: message_bytes_max / 4 * 3,
        }
    }

    /// Shows the counts of every crawl in the metrics, as far as this node acts for its queues, again and again.
    pub(super) async fn observe(self) {
        let mut shown: Vec<String> = Vec::new();
        loop {
            tokio::time::sleep(OBSERVE_EVERY).await;
            let Ok(mut crawls) = self.crawls(true).await else { continue };
            crawls.truncate(OBSERVED_MAX);
            for crawl in &crawls {
                if let Ok(counts) = self.counts(crawl, None, true).await {
                    self.metrics.show(crawl, counts);
                }
            }
            self.metrics.retain(&crawls, &shown);
            shown = crawls;
        }
    }

    /// Names of crawls, in order.
    async fn crawls(&self, local: bool) -> Result<Vec<String>, Unavailable> {
        let parts = self.desk.ask_all(local, |node, slots| {
            let desk = self.desk.clone();
            async move {
                let (mut all, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
                loop {
                    let ask = Ask::Look(Look::Crawls { slots: slots.clone(), after: after.take() });
                    let Said::Crawls(names, last) = desk.ask(node, ask).await? else { return Err(odd()) };
                    all.extend(names);
                    if last.is_none() {
                        return Ok(all);
                    }
                    after = last;
                }
            }
        });
        let mut names: Vec<String> = parts.await?.into_iter().flatten().collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Opens a stream whose answers `work` sends.
    fn stream<T, F, W>(&self, room: usize, work: W) -> Result<Response<Answers<T>>, Status>
    where
        T: Message + 'static,
        F: Future<Output = ()> + Send + 'static,
        W: FnOnce(Outbox<T>) -> F,
    {
        let busy = |_| Status::resource_exhausted("too many streams are open; come again later");
        let open = Arc::clone(&self.streams).try_acquire_owned().map_err(busy)?;
        let (sender, answers) = outbox(room);
        let work = work(sender);
        tokio::spawn(async move {
            work.await;
            drop(open);
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn set(&self, crawl: &str, key: &str, local: bool, setting: Setting) -> Result<bool, Status> {
        let crawl = crawl_name(crawl).map_err(wrong)?;
        if check_key(key).is_err() || key.is_empty() {
            return Ok(false); // no such queue can be
        }
        self.desk.set(crawl, key, setting, local).await.map_err(unavailable)
    }

    async fn counts(&self, crawl: &str, key: Option<String>, local: bool) -> Result<Counts, Unavailable> {
        if key.as_ref().is_some_and(|key| check_key(key).is_err()) {
            return Ok(Counts::default()); // no such queue can be
        }
        let crawl = crawl.to_owned();
        let parts = self
            .desk
            .ask_all(local, |node, slots| {
                let (desk, crawl, key) = (self.desk.clone(), crawl.clone(), key.clone());
                async move {
                    // A queue is counted by who acts for it alone.
                    if key.as_ref().is_some_and(|key| !slots.contains(slot_of(&crawl, key))) {
                        return Ok(Counts::default());
                    }
                    let (mut sum, mut after) = (Counts::default(), None);
                    loop {
                        let (slots, crawl, key) = (slots.clone(), crawl.clone(), key.clone());
                        let ask = Ask::Look(Look::Stats { slots, crawl, key, after: after.take() });
                        let Said::Stats(counts, next) = desk.ask(node, ask).await? else { return Err(odd()) };
                        sum.add(counts);
                        if next.is_none() {
                            return Ok(sum);
                        }
                        after = next;
                    }
                }
            })
            .await?;
        let mut sum = Counts::default();
        parts.into_iter().for_each(|part| sum.add(part));
        Ok(sum)
    }

    /// Looks through queues node by node; says how many there are, and tells those that are wanted. Each node leaves out itself what comes before.
    async fn queues_through(&self, wanted: &QueuesWanted) -> Result<(u64, Vec<String>), Unavailable> {
        let places = self.desk.places_held(Wanted::Fresh).await?;
        let mut walk = Walk::new(&places, wanted.local);
        let (mut met_all, mut told, mut bytes, mut is_full) = (0, Vec::new(), 0, false);
        while let Some((node, slots, mut after)) = walk.next() {
            loop {
                let skip = wanted.start.saturating_sub(met_all);
                let take = if is_full { 0 } else { wanted.take - told.len() as u64 };
                let (crawl, inactive) = (wanted.crawl.clone(), wanted.inactive);
                let look = Look::Queues { slots: slots.clone(), crawl, inactive, skip, take, after: after.clone() };
                let said = match self.desk.ask(node, Ask::Look(look)).await {
                    Ok(said) => said,
                    Err(error) => {
                        walk.pass_over(node, &slots, &after, error)?;
                        break;
                    }
                };
                let Said::Queues { met, keys, next } = said else { return Err(odd()) };
                met_all += met;
                for key in keys {
                    bytes += key.len() + KEY_SPARE_BYTES;
                    is_full |= bytes > self.answer_bytes_max;
                    if !is_full {
                        told.push(key);
                    }
                }
                match next {
                    None => break,
                    next => after = next,
                }
            }
        }
        Ok((met_all, told))
    }

    /// Looks through URLs node by node, in the order of their names; tells a client those of a page, and says how many were met.
    async fn look_through(
        &self,
        what: &UrlLook,
        mut page: (u64, u64),
        tell: Option<&Outbox<api::UrlItem>>,
    ) -> Result<u64, Unavailable> {
        if what.key.as_ref().is_some_and(|key| check_key(key).is_err()) {
            return Ok(0); // no such queue can be
        }
        let places = self.desk.places_held(Wanted::Fresh).await?;
        let mut walk = Walk::new(&places, what.local);
        let mut met_all = 0;
        while let Some((node, slots, mut after)) = walk.next() {
            if what.key.as_ref().is_some_and(|key| !slots.contains(slot_of(&what.crawl, key))) {
                continue;
            }
            loop {
                let (skip, take) = page;
                let look = what.look(slots.clone(), skip, take, after.clone());
                let said = match self.desk.ask(node, Ask::Look(look)).await {
                    Ok(said) => said,
                    Err(error) => {
                        walk.pass_over(node, &slots, &after, error)?;
                        break;
                    }
                };
                let Said::Urls { met, urls, next } = said else { return Err(odd()) };
                met_all += met;
                page = (skip.saturating_sub(met), take.saturating_sub(urls.len() as u64));
                for url in urls {
                    if let Some(answers) = tell
                        && !answers.send(item_of(url)).await
                    {
                        return Ok(met_all); // nobody listens any more
                    }
                }
                if take > 0 && page.1 == 0 {
                    return Ok(met_all);
                }
                match next {
                    None => break,
                    next => after = next,
                }
            }
        }
        Ok(met_all)
    }
}

/// Which queues a client wants to know.
struct QueuesWanted {
    crawl: String,
    inactive: bool,
    local: bool,
    start: u64,
    take: u64,
}

/// What a client looks for.
struct UrlLook {
    crawl: String,
    key: Option<String>,
    filter: Option<Filter>,
    local: bool,
}

impl UrlLook {
    fn new(crawl: &str, key: String, filter: Option<&str>, ignore_case: bool, local: bool) -> Result<UrlLook, Status> {
        let crawl = crawl_name(crawl).map_err(wrong)?.to_owned();
        if filter.is_some_and(|filter| filter.len() > ITEM_BYTES_MAX) {
            return Err(wrong(format!("a filter has at most {ITEM_BYTES_MAX} bytes")));
        }
        let filter = filter.and_then(|filter| Filter::new(filter, ignore_case));
        Ok(UrlLook { crawl, key: some(key), filter, local })
    }

    fn look(&self, slots: SlotSet, skip: u64, take: u64, after: Option<Vec<u8>>) -> Look {
        let (crawl, key, filter) = (self.crawl.clone(), self.key.clone(), self.filter.clone());
        Look::Urls { slots, crawl, key, filter, skip, take, after }
    }
}

/// A walk through all slots, node by node in the order of their names, in which some may fail to answer.
struct Walk<'a> {
    places: &'a Places,
    local: bool,
    passed_over: BTreeSet<NodeId>,
    /// Who is to be asked about which slots, and from where on.
    open: VecDeque<Stage>,
}

type Stage = (NodeId, SlotSet, Option<Vec<u8>>);

impl<'a> Walk<'a> {
    fn new(places: &'a Places, local: bool) -> Walk<'a> {
        let shares = places.shares(&all_slots(), &BTreeSet::new()).into_iter();
        let shares = shares.filter(|(node, _)| !local || *node == places.me);
        let open = shares.map(|(node, slots)| (node, slots, None)).collect();
        Walk { places, local, passed_over: BTreeSet::new(), open }
    }

    fn next(&mut self) -> Option<Stage> {
        self.open.pop_front()
    }

    /// A node did not answer: who acts for its slots instead has the same rows in the same order.
    fn pass_over(
        &mut self,
        node: NodeId,
        slots: &SlotSet,
        after: &Option<Vec<u8>>,
        error: Unavailable,
    ) -> Result<(), Unavailable> {
        if self.local || self.passed_over.len() >= PASSED_OVER_MAX {
            return Err(error);
        }
        self.passed_over.insert(node);
        let others = self.places.shares(slots, &self.passed_over).into_iter();
        others.rev().for_each(|(node, slots)| self.open.push_front((node, slots, after.clone())));
        Ok(())
    }
}

fn all_slots() -> SlotSet {
    (0..SLOTS).map(Slot).collect()
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn wrong(error: impl ToString) -> Status {
    Status::invalid_argument(error.to_string())
}

fn unavailable(error: Unavailable) -> Status {
    Status::unavailable(error.to_string())
}

fn odd() -> Unavailable {
    Unavailable("a node answered something else".to_owned())
}

fn item_of(told: Told) -> api::UrlItem {
    let Told { crawl, key, url, metadata, date_s, created_s } = told;
    let info = info_of(crawl, key, url, metadata);
    let known = api::KnownUrlItem { info: Some(info), refetchable_from_date: date_s };
    api::UrlItem { id: String::new(), creation_date: created_s, item: Some(url_item::Item::Known(known)) }
}

pub(super) fn info_of(
    crawl: String,
    key: String,
    url: String,
    metadata: proto::clients::record::Metadata,
) -> api::UrlInfo {
    let metadata: BTreeMap<String, api::StringList> =
        metadata.into_iter().map(|(name, values)| (name, api::StringList { values })).collect();
    api::UrlInfo { url, key, metadata, crawl_id: crawl }
}

#[tonic::async_trait]
impl UrlFrontier for Service {
    async fn list_nodes(&self, _: Request<api::Empty>) -> Result<Response<api::StringList>, Status> {
        let places = self.desk.places().await.map_err(unavailable)?;
        let values = self.desk.names(&places.alive);
        Ok(Response::new(api::StringList { values }))
    }

    async fn list_crawls(&self, request: Request<api::Local>) -> Result<Response<api::StringList>, Status> {
        let values = self.crawls(request.into_inner().local).await.map_err(unavailable)?;
        if values.iter().map(|name| name.len() + KEY_SPARE_BYTES).sum::<usize>() > self.answer_bytes_max {
            let many =
                format!("{} crawls do not fit into a message; url_frontier.message_bytes_max bounds it", values.len());
            return Err(Status::resource_exhausted(many));
        }
        Ok(Response::new(api::StringList { values }))
    }

    async fn delete_crawl(&self, request: Request<api::DeleteCrawlMessage>) -> Result<Response<api::Long>, Status> {
        let api::DeleteCrawlMessage { value, local } = request.into_inner();
        let crawl = crawl_name(&value).map_err(wrong)?.to_owned();
        let act = move |slots, _| Act::Delete { slots, crawl: crawl.clone(), key: None };
        let value = self.desk.forget(all_slots(), local, act).await.map_err(unavailable)?;
        Ok(Response::new(api::Long { value }))
    }

    async fn list_queues(&self, request: Request<api::Pagination>) -> Result<Response<api::QueueList>, Status> {
        let api::Pagination { start, size, include_inactive: inactive, crawl_id, local } = request.into_inner();
        let crawl = crawl_name(&crawl_id).map_err(wrong)?.to_owned();
        let take = u64::from(if size == 0 { PAGE_DEFAULT } else { size }).min(QUEUES_PAGE_MAX);
        let wanted = QueuesWanted { crawl, inactive, local, start: u64::from(start), take };
        let (total, values) = self.queues_through(&wanted).await.map_err(unavailable)?;
        let size = values.len() as u32;
        Ok(Response::new(api::QueueList { values, total, start, size, crawl_id: wanted.crawl }))
    }

    type GetURLsStream = Answers<api::UrlInfo>;

    async fn get_ur_ls(&self, request: Request<api::GetParams>) -> Result<Response<Self::GetURLsStream>, Status> {
        let began = Instant::now();
        let params = request.into_inner();
        self.metrics.get_calls.inc();
        let crawl = match &params.item {
            Some(get_params::Item::CrawlId(crawl)) => Some(crawl_name(crawl).map_err(wrong)?.to_owned()),
            Some(get_params::Item::AnyCrawlId(_)) | None => None,
        };
        // Clients rely on it: a key without a crawl means nothing.
        let nothing = (crawl.is_none() && !params.key.is_empty()) || check_key(&params.key).is_err();
        if !nothing && !self.desk.node().client_settings().0.active {
            return self.stream(1, |_| async {});
        }
        if nothing {
            tracing::warn!("GetURLs with a key and without a crawl is answered with nothing");
            return self.stream(1, |_| async {});
        }
        let first = self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (desk, metrics) = (self.desk.clone(), self.metrics.clone());
        let taking = Arc::clone(&self.taking);
        self.stream(STREAM_ROOM, move |answers| async move {
            let Ok(_room) = taking.acquire_owned().await else { return };
            let taken = super::take::take(&desk, crawl, &params, first, &answers, &metrics).await;
            metrics.get_seconds.observe(began.elapsed().as_secs_f64());
            if let Err(error) = taken {
                answers.fail(unavailable(error)).await;
            }
        })
    }

    type PutURLsStream = Answers<api::AckMessage>;

    async fn put_ur_ls(
        &self,
        request: Request<tonic::Streaming<api::UrlItem>>,
    ) -> Result<Response<Self::PutURLsStream>, Status> {
        self.metrics.put_calls.inc();
        let (desk, metrics) = (self.desk.clone(), self.metrics.clone());
        self.stream(put::URLS_WINDOW, move |answers| put::urls(desk, metrics, request.into_inner(), answers))
    }

    type PutDiscoveredStream = Answers<api::BatchAck>;

    async fn put_discovered(
        &self,
        request: Request<tonic::Streaming<api::DiscoveredBatch>>,
    ) -> Result<Response<Self::PutDiscoveredStream>, Status> {
        self.metrics.put_discovered_calls.inc();
        let (desk, metrics) = (self.desk.clone(), self.metrics.clone());
        self.stream(put::BATCHES_WINDOW, move |answers| put::batches(desk, metrics, request.into_inner(), answers))
    }

    async fn get_stats(&self, request: Request<api::QueueWithinCrawlParams>) -> Result<Response<api::Stats>, Status> {
        let api::QueueWithinCrawlParams { key, crawl_id, local } = request.into_inner();
        let crawl = crawl_name(&crawl_id).map_err(wrong)?;
        let counts = self.counts(crawl, some(key), local).await.map_err(unavailable)?;
        let named = [("completed", counts.completed), ("active_queues", counts.active)];
        Ok(Response::new(api::Stats {
            size: counts.scheduled,
            in_process: u32::try_from(counts.leased).unwrap_or(u32::MAX),
            counts: named.map(|(name, count)| (name.to_owned(), count)).into(),
            number_of_queues: counts.queues,
            crawl_id: crawl.to_owned(),
        }))
    }

    async fn delete_queue(&self, request: Request<api::QueueWithinCrawlParams>) -> Result<Response<api::Long>, Status> {
        let api::QueueWithinCrawlParams { key, crawl_id, local } = request.into_inner();
        let crawl = crawl_name(&crawl_id).map_err(wrong)?;
        if key.is_empty() || check_key(&key).is_err() {
            return Ok(Response::new(api::Long { value: 0 })); // no such queue can be
        }
        let slot = [slot_of(crawl, &key)].into_iter().collect();
        let act = |slots, _| Act::Delete { slots, crawl: crawl.to_owned(), key: Some(key.clone()) };
        let value = self.desk.forget(slot, local, act).await.map_err(unavailable)?;
        Ok(Response::new(api::Long { value }))
    }

    async fn block_queue_until(&self, request: Request<api::BlockQueueParams>) -> Result<Response<api::Empty>, Status> {
        let api::BlockQueueParams { key, time, crawl_id, local } = request.into_inner();
        self.set(&crawl_id, &key, local, Setting::Block(time)).await?;
        Ok(Response::new(api::Empty {}))
    }

    async fn set_active(&self, request: Request<api::Active>) -> Result<Response<api::Empty>, Status> {
        let api::Active { state, local } = request.into_inner();
        if local {
            self.desk.perform(Ask::SetActive(state)).await;
        } else {
            self.desk.define(|settings| settings.active = state).await.map_err(unavailable)?;
        }
        Ok(Response::new(api::Empty {}))
    }

    async fn get_active(&self, request: Request<api::Local>) -> Result<Response<api::Boolean>, Status> {
        let local = request.into_inner().local;
        let state = if local { self.desk.is_active() } else { self.desk.node().client_settings().0.active };
        Ok(Response::new(api::Boolean { state }))
    }

    async fn set_delay(&self, request: Request<api::QueueDelayParams>) -> Result<Response<api::Empty>, Status> {
        let api::QueueDelayParams { key, delay_requestable, crawl_id, local } = request.into_inner();
        if key.is_empty() && local {
            return Err(wrong("the delay of all queues is the same on every node: leave `local` out, or name a queue"));
        }
        if key.is_empty() {
            self.desk.define(|settings| settings.delay_s = delay_requestable).await.map_err(unavailable)?;
        } else {
            // What the reference service takes for -1: back to what holds for all.
            let delay_s = (delay_requestable != u32::MAX).then_some(delay_requestable);
            self.set(&crawl_id, &key, local, Setting::Delay(delay_s)).await?;
        }
        Ok(Response::new(api::Empty {}))
    }

    async fn set_log_level(&self, request: Request<api::LogLevelParams>) -> Result<Response<api::Empty>, Status> {
        let params = request.into_inner();
        let level = api::log_level_params::Level::try_from(params.level)
            .map_err(|_| wrong(format!("{} is no level: TRACE is 0, ERROR is 4", params.level)))?;
        let level = level.as_str_name().to_lowercase();
        let ask = Ask::Log { package: params.package, level };
        let told = self.desk.ask_all(params.local, |node: NodeId, _| {
            let (desk, ask) = (self.desk.clone(), ask.clone());
            async move { desk.ask(node, ask).await }
        });
        told.await.map_err(unavailable)?;
        Ok(Response::new(api::Empty {}))
    }

    async fn set_crawl_limit(&self, request: Request<api::CrawlLimitParams>) -> Result<Response<api::Empty>, Status> {
        let api::CrawlLimitParams { key, limit, crawl_id, local } = request.into_inner();
        if self.set(&crawl_id, &key, local, Setting::Limit(limit)).await? {
            Ok(Response::new(api::Empty {}))
        } else {
            Err(Status::unknown(format!("there is no queue {key:?} in this crawl")))
        }
    }

    async fn get_url_status(&self, request: Request<api::UrlStatusRequest>) -> Result<Response<api::UrlItem>, Status> {
        let api::UrlStatusRequest { url, key, crawl_id } = request.into_inner();
        let crawl = crawl_name(&crawl_id).map_err(wrong)?;
        let key = queue_key(&key, &url).map_err(wrong)?;
        if url.len() > ITEM_BYTES_MAX {
            return Err(Status::not_found("no URL is so long"));
        }
        let look = Ask::Look(Look::Url { crawl: crawl.to_owned(), key: key.clone(), url });
        // A node that has just come back may not have heard of it.
        let is_enough = |said: &Said| matches!(said, Said::Url(Some(_)));
        match self.desk.ask_owners(crawl, &key, look, is_enough).await.map_err(unavailable)? {
            Said::Url(Some(told)) => Ok(Response::new(item_of(told))),
            Said::Url(None) => Err(Status::not_found("this URL is not known in this queue")),
            _ => Err(unavailable(odd())),
        }
    }

    type ListURLsStream = Answers<api::UrlItem>;

    async fn list_ur_ls(&self, request: Request<api::ListUrlParams>) -> Result<Response<Self::ListURLsStream>, Status> {
        let api::ListUrlParams { start, size, key, crawl_id, local, filter, ignore_case } = request.into_inner();
        let look = UrlLook::new(&crawl_id, key, filter.as_deref(), ignore_case.unwrap_or(false), local)?;
        let take = u64::from(if size == 0 { PAGE_DEFAULT } else { size });
        let service = Service::new(self.desk.clone(), self.metrics.clone(), 1, 0);
        self.stream(STREAM_ROOM, move |answers| async move {
            if let Err(error) = service.look_through(&look, (u64::from(start), take), Some(&answers)).await {
                answers.fail(unavailable(error)).await;
            }
        })
    }

    async fn count_ur_ls(&self, request: Request<api::CountUrlParams>) -> Result<Response<api::Long>, Status> {
        let api::CountUrlParams { key, crawl_id, filter, ignore_case, local } = request.into_inner();
        let local = local.unwrap_or(false);
        let look = UrlLook::new(&crawl_id, key, filter.as_deref(), ignore_case.unwrap_or(false), local)?;
        let value = if look.filter.is_none() {
            let counts = self.counts(&look.crawl, look.key, local).await.map_err(unavailable)?;
            counts.scheduled + counts.completed
        } else {
            self.look_through(&look, (0, 0), None).await.map_err(unavailable)?
        };
        Ok(Response::new(api::Long { value }))
    }

    async fn purge_ur_ls(&self, request: Request<api::PurgeUrlParams>) -> Result<Response<api::Long>, Status> {
        let api::PurgeUrlParams { key, crawl_id, days } = request.into_inner();
        let crawl = crawl_name(&crawl_id).map_err(wrong)?.to_owned();
        let cutoff_ms = unix_ms().saturating_sub(u64::from(days) * 86_400_000);
        let key = some(key);
        let slots = match &key {
            Some(key) if check_key(key).is_err() => return Ok(Response::new(api::Long { value: 0 })),
            Some(key) => [slot_of(&crawl, key)].into_iter().collect(),
            None => all_slots(),
        };
        let act = |slots, after| Act::Purge { slots, crawl: crawl.clone(), key: key.clone(), cutoff_ms, after };
        let value = self.desk.forget(slots, false, act).await.map_err(unavailable)?;
        Ok(Response::new(api::Long { value }))
    }
}

/// What a client hands in, checked; `None` if it cannot be taken.
pub(super) fn item(info: Option<api::UrlInfo>, date_s: Option<u64>) -> Option<Item> {
    let api::UrlInfo { url, key, metadata, crawl_id } = info?;
    let crawl = crawl_name(&crawl_id).ok()?.to_owned();
    let key = queue_key(&key, &url).ok()?;
    // Counted before it is taken over: it may be a bomb.
    let values = |list: &api::StringList| list.values.iter().map(|value| value.len() + 4).sum::<usize>();
    let bytes = metadata.iter().map(|(name, list)| name.len() + 8 + values(list)).sum::<usize>();
    if url.len() + bytes > ITEM_BYTES_MAX {
        return None;
    }
    let metadata = metadata.into_iter().map(|(name, list)| (name, list.values)).collect();
    Some(Item { crawl, key, url, metadata, date_s })
}

/// How a client is told what became of a URL.
pub(super) fn status(taken: Taken) -> api::ack_message::Status {
    match taken {
        Taken::Kept => api::ack_message::Status::Ok,
        Taken::Skipped => api::ack_message::Status::Skipped,
        Taken::Failed => api::ack_message::Status::Fail,
    }
}
