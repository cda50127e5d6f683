//! Batches, crawled and processed by programs that keep nothing: what they are told comes in, what they found goes out. A node does the same with URLs that it keeps.
//!
//! The crawler's steps are in their order (DC-35 to DC-42): the item's URL and site; a site that is not active, or a limit that is reached, skips it; status and counts; the delay;
//! robots.txt, whose rules are kept for the life of the batch; the request; what came. An item without any content is left out of the batch that goes out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proto::base64::{from_base64, to_base64};
use proto::crawl::filter::{Filter, FilterRules, Refusal};
use proto::crawl::retry::{Failure, RetryRules, verdict};
use proto::crawl::robots::RobotsAnswer;
use proto::date;
use proto::error_mask::{ErrorBit, ErrorMask};
use proto::scrape::Processing;
use proto::site::batch::{Batch, BatchItem};
use proto::site::{Manner, RootUrl, Site, SiteDefinition, md5_hex, md5_of, state};
use proto::url::{CanonicalUrl, UrlRules};
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::actors::fetcher::proxies::ProxyFaults;
use crate::actors::parser::read_page;
use crate::edges::clock::unix_ms;
use crate::edges::http::{FetchOrder, Fetched};
use crate::edges::web::{Web, robots_order, robots_said};
use crate::extract::{ExtractRules, Extracted, Link as PageLink, LinkKind, PageInput, extract};
use crate::process::{Fresh, process, text_of, unwanted};

/// Redirects in a row if the site does not say.
const REDIRECTS_MAX: usize = 5;
/// Whatever it says.
const REDIRECTS_LIMIT: usize = 10;
/// Two requests to a host of which limits keep farther apart than this, milliseconds, are not both in one batch.
const DELAY_MAX_MS: u64 = 300_000;
/// Statuses of URLs, by the numbers of the original.
const NEW: u8 = 1;
const CRAWLED: u8 = 4;
const PROCESSED: u8 = 7;
/// Types of contents, by the numbers of the original.
mod kind {
    pub(super) const PROCESSED: u32 = 1;
    pub(super) const HEADERS: u32 = 16;
    pub(super) const REQUESTS: u32 = 32;
    pub(super) const RAW: u32 = 1_024;
}
/// States of URLs.
const ENABLED: u8 = 0;
const ERROR: u8 = 2;

/// What a batch is crawled with.
pub struct BatchCrawler<'a> {
    web: &'a dyn Web,
    urls: UrlRules,
    extract: ExtractRules,
    product_token: String,
    /// Never less between two requests to a host.
    delay: Duration,
    robots: BTreeMap<String, RobotsAnswer>,
    /// When a host may be asked again.
    free: BTreeMap<String, Instant>,
    /// Hosts of which a page was asked for.
    asked: BTreeSet<String>,
    proxies: ProxyFaults,
    deadline: Instant,
}

/// Why an item brought nothing.
struct Missed(ErrorBit);

impl<'a> BatchCrawler<'a> {
    /// A crawler; `delay` is the least between two requests to a host.
    pub fn new(web: &'a dyn Web, urls: UrlRules, extract: ExtractRules, product_token: &str, delay: Duration) -> Self {
        BatchCrawler {
            web,
            urls,
            extract,
            product_token: product_token.to_owned(),
            delay,
            robots: BTreeMap::new(),
            free: BTreeMap::new(),
            asked: BTreeSet::new(),
            proxies: ProxyFaults::default(),
            deadline: Instant::now(),
        }
    }

    /// Crawls the items one after the other, as long as the batch may take.
    pub async fn crawl(&mut self, mut batch: Batch) -> Batch {
        self.deadline = Instant::now() + Duration::from_secs(batch.seconds_max());
        batch.shorten();
        let id = batch.id();
        let (mut kept, mut late) = (Vec::new(), false);
        let mut wave = std::mem::take(&mut batch.items);
        let canonical = |item: &BatchItem| CanonicalUrl::parse(item.url().ok()?, &self.urls).ok();
        let mut known: BTreeSet<String> =
            wave.iter().filter_map(canonical).map(|url| url.as_str().to_owned()).collect();
        let mut room = batch.items_max().saturating_sub(wave.len());
        for iteration in 1..=batch.iterations_max() {
            let (goes_on, mut next) = (iteration < batch.iterations_max(), Vec::new());
            for mut item in wave {
                if Instant::now() >= self.deadline {
                    late = true;
                    if !batch.drops_late_items() {
                        item.set([
                            ("status", json!(NEW)),
                            ("errorMask", json!(ErrorMask::from(ErrorBit::ExecutionTimeMax))),
                        ]);
                        kept.push(item);
                    }
                    continue;
                }
                item.set([("errorMask", json!(0)), ("state", json!(ENABLED)), ("batchId", id.clone())]);
                match self.item(&mut item).await {
                    Ok(Some(links)) => {
                        for link in links.into_iter().filter(|_| goes_on) {
                            if known.contains(link.as_str()) {
                                continue;
                            }
                            if room == 0 {
                                batch.note(ErrorBit::ItemsMax);
                                break;
                            }
                            room -= 1;
                            next.push(item.of_link(link.as_str()));
                            known.insert(link.as_str().to_owned());
                        }
                        kept.push(item);
                    }
                    Ok(None) => {} // without content
                    Err(Missed(bit)) => {
                        failed(&mut item, bit);
                        kept.push(item);
                    }
                }
            }
            if next.is_empty() {
                break;
            }
            wave = next;
        }
        if late {
            batch.note(ErrorBit::ExecutionTimeMax);
        }
        batch.items = kept;
        batch
    }

    /// Crawls one; gives the links of its page that belong to its site, or nothing if it does not stay in the batch.
    async fn item(&mut self, item: &mut BatchItem) -> Result<Option<Vec<CanonicalUrl>>, Missed> {
        let bad = || Missed(ErrorBit::BadUrl);
        let site = item.site().map_err(|_| Missed(ErrorBit::SiteState))?;
        if site.state != state::ACTIVE {
            return Err(Missed(ErrorBit::SiteState));
        }
        if let Some(bit) = item.limited(&site, ErrorBit::SiteErrorsMax, ErrorBit::SiteResourcesMax, unix_ms()) {
            return Err(Missed(bit));
        }
        let mut url = CanonicalUrl::parse(item.url().map_err(|_| bad())?, &self.urls).map_err(|_| bad())?;
        item.set([("url", json!(url.as_str()))]);
        self.limits(&url, &site)?;
        item.count("crawled");
        let manner = manner_of(&site, &url);
        let redirects_max = manner.redirects_max.map_or(REDIRECTS_MAX, usize::from).min(REDIRECTS_LIMIT);
        let filter = self.filter(&site, &url);
        for _ in 0..=redirects_max {
            self.allowed(&url, &site).await?;
            let fetched = self.ask(&url, &site).await?;
            let target = fetched.location().filter(|_| (300..400).contains(&fetched.status));
            let Some(to) = target else { return Ok(self.came(item, &url, &site, &fetched)) };
            let target =
                CanonicalUrl::join(&url.to_url(), &to, &self.urls).map_err(|_| Missed(ErrorBit::BadRedirect))?;
            if !manner.redirects.pass(target.as_str(), unix_ms()) || !leads_on(filter.as_ref(), &url, &target) {
                return Err(Missed(ErrorBit::CrawlerFilters));
            }
            url = target;
        }
        Err(Missed(ErrorBit::HttpRedirectsMax))
    }

    /// What HTTP_FREQ_LIMITS say of a host now; nothing may be asked for while they close it.
    fn limits(&self, url: &CanonicalUrl, site: &Site) -> Result<Duration, Missed> {
        // They were understood when the batch was read.
        let limits = site.frequencies().unwrap_or_default();
        let allowed = limits.allow(url.host(), unix_ms(), DELAY_MAX_MS);
        // Where a host has one page in hours or days, a batch takes one.
        let had_its_turn = allowed.turn.is_some() && self.asked.contains(url.host());
        if allowed.closed_until.is_some() || had_its_turn {
            return Err(Missed(ErrorBit::NoTimeWindow));
        }
        Ok(Duration::from_millis(allowed.delay_ms))
    }

    async fn wait(&mut self, url: &CanonicalUrl, site: &Site) -> Result<(), Missed> {
        if let Some(free) = self.free.get(url.host()) {
            sleep_until((*free).min(self.deadline)).await;
        }
        let limits = self.limits(url, site)?; // those of the moment in which it is asked
        let robots = match self.robots.get(url.origin()) {
            Some(RobotsAnswer::Rules(rules)) => rules.crawl_delay_ms().unwrap_or(0),
            _ => 0,
        };
        let delay = self.delay.max(limits).max(Duration::from_millis(site.request_delay.max(robots)));
        self.free.insert(url.host().to_owned(), Instant::now() + delay);
        Ok(())
    }

    /// Asks directly, or through the proxies that the site has for the host.
    async fn fetch(&self, mut order: FetchOrder, site: &Site) -> Result<Fetched, Failure> {
        let manner = manner_of(site, &order.url);
        let way = self.proxies.way_of(site, manner.proxy(), order.url.host());
        self.proxies.ask(self.web, way, &mut order).await
    }

    async fn allowed(&mut self, url: &CanonicalUrl, site: &Site) -> Result<(), Missed> {
        if !self.robots.contains_key(url.origin()) {
            let mut at = format!("{}/robots.txt", url.origin().trim_end_matches('/'));
            let mut answer = RobotsAnswer::Absent;
            for _ in 0..=REDIRECTS_MAX {
                self.wait(url, site).await?;
                let Some(order) = robots_order(&at, manner_of(site, url).headers(&at)) else { break };
                let (asked, said) = (order.url.clone(), self.fetch(order, site).await);
                if matches!(said, Err(Failure::NoProxy)) {
                    return Err(Missed(ErrorBit::NoValidProxy)); // another site may have a way to this host
                }
                match robots_said(&asked, said, &self.product_token) {
                    Ok(found) => {
                        answer = found;
                        break;
                    }
                    Err(next) => at = next,
                }
            }
            self.robots.insert(url.origin().to_owned(), answer);
        }
        self.robots[url.origin()].check(url.path_and_query()).map_err(|_| Missed(ErrorBit::Robots))
    }

    async fn ask(&mut self, url: &CanonicalUrl, site: &Site) -> Result<Fetched, Missed> {
        self.wait(url, site).await?;
        self.asked.insert(url.host().to_owned());
        let headers = manner_of(site, url).headers(url.as_str());
        let order = FetchOrder { headers, ..FetchOrder::new(url.clone()) };
        let patience =
            Duration::from_millis(if site.http_timeout == 0 { u64::from(u32::MAX) } else { site.http_timeout });
        let deadline = (Instant::now() + patience).min(self.deadline);
        let asked = timeout_at(deadline, self.fetch(order, site)).await;
        // The delay counts from the end of a request.
        if let Some(free) = self.free.get_mut(url.host()) {
            *free = (*free).max(Instant::now() + self.delay.max(Duration::from_millis(site.request_delay)));
        }
        match asked {
            Err(_) => Err(Missed(ErrorBit::Timeout)),
            Ok(Err(failure)) => Err(Missed(verdict(failure, 1, &RetryRules::default()).error)),
            Ok(Ok(fetched)) => Ok(fetched),
        }
    }

    /// Writes down what came; gives its links, if there is something.
    fn came(
        &self,
        item: &mut BatchItem,
        url: &CanonicalUrl,
        site: &Site,
        fetched: &Fetched,
    ) -> Option<Vec<CanonicalUrl>> {
        let extracted = read_page(url, fetched, &self.product_token, &self.extract, Some(&manner_of(site, url)));
        let internal = extracted.links.iter().filter(|link| link.url.host() == url.host()).count();
        let mut errors = ErrorMask::NONE;
        if fetched.status >= 400 {
            errors.set(verdict(Failure::Http(fetched.status), 1, &RetryRules::default()).error);
        }
        if fetched.body.is_empty() {
            errors.set(ErrorBit::EmptyContent);
        }
        if site.max_resource_size > 0 && fetched.body.len() as u64 > site.max_resource_size {
            errors.set(ErrorBit::Size);
        }
        let now = date::format(fetched.started_unix_ms + u64::from(fetched.elapsed_ms));
        item.set([
            ("status", json!(CRAWLED)),
            ("state", json!(if errors.is_empty() { ENABLED } else { ERROR })),
            ("errorMask", json!(errors.0)),
            ("httpCode", json!(fetched.status)),
            ("contentType", json!(extracted.media_type)),
            ("charset", json!(extracted.charset)),
            ("size", json!(fetched.body.len())),
            ("crawlingTime", json!(fetched.elapsed_ms)),
            ("totalTime", json!(fetched.elapsed_ms)),
            ("linksI", json!(internal)),
            ("linksE", json!(extracted.links.len() - internal)),
            ("lastModified", json!(fetched.last_modified())),
            ("eTag", json!(fetched.etag())),
            ("rawContentMd5", json!(md5_of(&fetched.body))),
            ("UDate", json!(now)),
            ("tcDate", json!(now)),
        ]);
        if fetched.body.is_empty() || errors.contains(ErrorBit::Size) {
            return None;
        }
        let content = |bytes: &[u8], of: u32| json!([{"buffer": to_base64(bytes), "cDate": now, "typeId": of}]);
        let contents = item.contents();
        contents.insert("url".to_owned(), json!(url.as_str()));
        contents.insert("rawContents".to_owned(), content(&fetched.body, kind::RAW));
        contents.insert("headers".to_owned(), content(&fetched.response_head, kind::HEADERS));
        contents.insert("requests".to_owned(), content(&fetched.request_head, kind::REQUESTS));
        if self.is_unwanted(item, site, url, fetched, &extracted) {
            return Some(Vec::new());
        }
        Some(self.followed(site, url, extracted.links))
    }

    /// Whether a site does not want a page at all, by its types of content and its filters of stage 1: then its links are not followed.
    fn is_unwanted(
        &self,
        item: &mut BatchItem,
        site: &Site,
        url: &CanonicalUrl,
        fetched: &Fetched,
        extracted: &Extracted,
    ) -> bool {
        let site = site.for_url(&md5_hex(url.as_str()));
        let Ok(Some(rules)) = Processing::of_site(&site) else { return false };
        let text = text_of(&fetched.body, Some(&extracted.media_type), url.host(), extracted);
        let head = String::from_utf8_lossy(&fetched.response_head);
        let depth = item.url_fields().get("depth").and_then(Json::as_u64).unwrap_or(0);
        let page = Fresh {
            url: url.as_str(),
            text: text.as_deref(),
            extracted,
            last_modified: fetched.last_modified(),
            date: None,
            head: &head,
            http_code: fetched.status,
            size: fetched.body.len() as u64,
            depth: u16::try_from(depth).unwrap_or(u16::MAX),
            fetched_at: fetched.started_unix_ms + u64::from(fetched.elapsed_ms),
        };
        unwanted(&rules, &page).is_some()
    }

    /// What belongs to a site, as its filters say; a site without root URLs has the page itself as one.
    fn filter(&self, site: &Site, page: &CanonicalUrl) -> Option<Filter> {
        let mut site = site.clone();
        if site.urls.is_empty() {
            site.urls.push(RootUrl { url: page.as_str().to_owned() });
        }
        let crawl = SiteDefinition::new(site).crawl_at(unix_ms());
        crawl.prepare(&FilterRules::default(), &self.urls).ok().map(|(filter, _)| filter)
    }

    /// The links that belong to a site.
    fn followed(&self, site: &Site, page: &CanonicalUrl, links: Vec<PageLink>) -> Vec<CanonicalUrl> {
        let most = usize::try_from(site.max_urls_from_page).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        let Some(filter) = self.filter(site, page) else { return Vec::new() };
        let redirects = manner_of(site, page).redirects;
        let leads_on = |link: &PageLink| link.kind != LinkKind::Refresh || redirects.pass(link.url.as_str(), unix_ms());
        let wanted = |link: &PageLink| {
            !link.nofollow && link.kind.leads_to_page() && leads_on(link) && filter.admits(&link.url, 1).is_ok()
        };
        links.into_iter().filter(wanted).map(|link| link.url).take(most).collect()
    }
}

/// Whether a redirect leads to what belongs to the site, or to where a page of it moved within its domain.
fn leads_on(filter: Option<&Filter>, from: &CanonicalUrl, target: &CanonicalUrl) -> bool {
    let admits = |filter: &Filter| filter.admits(target, 0);
    filter.is_some_and(|filter| match admits(filter) {
        Ok(()) => true,
        Err(Refusal::OutOfScope) => filter.widen(from, target) && admits(filter).is_ok(),
        Err(_) => false,
    })
}

/// How a site has one of its URLs asked for.
fn manner_of(site: &Site, url: &CanonicalUrl) -> Manner {
    // It was understood when the batch was read.
    Manner::of_site(&site.for_url(&md5_hex(url.as_str()))).unwrap_or_default()
}

/// An item that brought nothing: crawled, with an error; or still to be crawled, if it was not its time.
fn failed(item: &mut BatchItem, bit: ErrorBit) {
    if bit == ErrorBit::NoTimeWindow {
        return item.set([("status", json!(NEW)), ("errorMask", json!(ErrorMask::from(bit).0))]);
    }
    let now = date::format(unix_ms());
    item.set([
        ("status", json!(CRAWLED)),
        ("state", json!(ERROR)),
        ("errorMask", json!(ErrorMask::from(bit).0)),
        ("UDate", json!(now)),
    ]);
}

/// Whether a page was none of the rules' business.
fn is_skipped(bits: ErrorMask) -> bool {
    let none_of_its_business =
        [ErrorBit::UnsupportedContentType, ErrorBit::WrongMime, ErrorBit::CrawlerFilters, ErrorBit::ProcessorFilters];
    none_of_its_business.iter().any(|bit| bits == ErrorMask::from(*bit))
}

/// What a batch is processed with.
#[derive(Clone)]
pub struct BatchProcessor {
    /// How pages are read.
    pub extract: ExtractRules,
    /// How URLs are brought into canonical form.
    pub urls: UrlRules,
    /// Our name in robots directives.
    pub product_token: String,
}

impl BatchProcessor {
    /// Processes the items that have a raw content, as long as the batch may take.
    pub fn process(&self, mut batch: Batch) -> Batch {
        let deadline = std::time::Instant::now() + Duration::from_secs(batch.seconds_max());
        batch.shorten();
        let mut late = None;
        for (at, item) in batch.items.iter_mut().enumerate() {
            let began = std::time::Instant::now();
            if began >= deadline {
                let mut errors = item.errors();
                errors.set(ErrorBit::ExecutionTimeMax);
                item.set([("errorMask", json!(errors))]);
                late.get_or_insert(at);
                continue;
            }
            let (bits, done) = match self.item_of_batch(item) {
                Ok(found) => found,
                Err(Missed(bit)) => (bit.into(), false),
            };
            let mut errors = item.errors();
            errors.merge(bits);
            let skipped = is_skipped(bits);
            let took = began.elapsed().as_millis() as u64;
            let total = item.url_fields().get("crawlingTime").and_then(Json::as_u64).unwrap_or(0) + took;
            item.set([
                ("errorMask", json!(errors.0)),
                ("processingTime", json!(took)),
                ("totalTime", json!(total)),
                ("UDate", json!(date::format(unix_ms()))),
            ]);
            if !errors.is_empty() && !skipped {
                item.set([("state", json!(ERROR))]);
            }
            if done {
                item.set([("status", json!(PROCESSED))]);
                item.count("processed");
            }
        }
        if let Some(first) = late {
            if batch.drops_late_items() {
                batch.items.truncate(first);
            }
            batch.note(ErrorBit::ExecutionTimeMax);
        }
        batch
    }

    /// The errors of an item whose site says itself what it has come to, and whether something was made of it.
    fn item_of_batch(&self, item: &mut BatchItem) -> Result<(ErrorMask, bool), Missed> {
        let site = item.site().map_err(|_| Missed(ErrorBit::SiteState))?;
        if site.state == state::ACTIVE
            && let Some(bit) = item.limited(&site, ErrorBit::ErrorsMax, ErrorBit::ResourcesMax, unix_ms())
        {
            return Err(Missed(bit));
        }
        self.item(item, site)
    }

    /// Processes an item that a node crawled, by rules that are not those of its site: only what is told of it changes.
    pub fn process_by(&self, item: &mut BatchItem, site: Site) {
        if !item.errors().is_fit_for_processing() {
            return;
        }
        let id = item.url_fields().get("urlMd5").cloned();
        item.contents().remove("processedContents");
        let (bits, _) = match self.item(item, site) {
            Ok(found) => found,
            Err(Missed(bit)) => (bit.into(), false),
        };
        let state = if bits.is_empty() || is_skipped(bits) { ENABLED } else { ERROR };
        item.set([("errorMask", json!(bits.0)), ("state", json!(state))]);
        if let Some(id) = id {
            item.set([("urlMd5", id)]);
        }
    }

    /// The errors of an item, and whether something was made of it.
    fn item(&self, item: &mut BatchItem, site: Site) -> Result<(ErrorMask, bool), Missed> {
        if site.state != state::ACTIVE {
            return Err(Missed(ErrorBit::SiteState));
        }
        if !item.errors().is_fit_for_processing() {
            return Ok((ErrorMask::NONE, false));
        }
        let url = item.url().ok().and_then(|url| CanonicalUrl::parse(url, &self.urls).ok());
        let url = url.ok_or(Missed(ErrorBit::BadUrl))?;
        let site = site.for_url(&md5_hex(url.as_str()));
        let rules = Processing::of_site(&site).map_err(|_| Missed(ErrorBit::TemplateSource))?;
        let Some(rules) = rules else { return Ok((ErrorMask::NONE, false)) };
        let buffer = |item: &mut BatchItem, list: &str| {
            let last = item.contents().get(list)?.as_array()?.last()?.get("buffer")?.as_str()?.to_owned();
            Some(from_base64(&last))
        };
        let body = buffer(item, "rawContents").ok_or(Missed(ErrorBit::RawContentMissing))?;
        let body = body.ok_or(Missed(ErrorBit::RawContentDecoding))?;
        let head = buffer(item, "headers").flatten().unwrap_or_default();
        let head = String::from_utf8_lossy(&head).into_owned();
        let header = |wanted: &str| {
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            lines.filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim()).next()
        };
        let said = item.url_fields().get("contentType").and_then(Json::as_str).map(str::to_owned);
        let content_type = header("content-type").map(str::to_owned).or(said);
        let content_type = manner_of(&site, &url).content_type(content_type.as_deref()).map(Cow::into_owned);
        let input = PageInput {
            url: &url,
            content_type: content_type.as_deref(),
            x_robots_tag: &[],
            link_headers: &[],
            body: &body,
            product_token: &self.product_token,
        };
        let extracted = extract(&input, &self.extract);
        let text = text_of(&body, content_type.as_deref(), url.host(), &extracted);
        let crawled_at = item.url_fields().get("tcDate").and_then(Json::as_str).and_then(date::parse);
        let figure = |item: &mut BatchItem, name: &str| item.url_fields().get(name).and_then(Json::as_u64);
        let http_code = figure(item, "httpCode").and_then(|code| u16::try_from(code).ok()).unwrap_or(200);
        let depth = figure(item, "depth").and_then(|depth| u16::try_from(depth).ok()).unwrap_or(0);
        let made = process(
            &rules,
            &Fresh {
                url: url.as_str(),
                text: text.as_deref(),
                extracted: &extracted,
                last_modified: header("last-modified"),
                date: header("date"),
                head: &head,
                http_code,
                size: body.len() as u64,
                depth,
                fetched_at: crawled_at.unwrap_or_else(unix_ms),
            },
        );
        let Some(record) = &made.record else { return Ok((made.errors, false)) };
        let now = date::format(unix_ms());
        let content = json!([{"buffer": to_base64(record), "cDate": now, "typeId": kind::PROCESSED}]);
        item.contents().insert("processedContents".to_owned(), content);
        if let Some((hash, _)) = &made.hash {
            item.set([("contentURLMd5", json!(hash))]);
        }
        let json: Json = serde_json::from_slice(record).unwrap_or_default();
        item.set([("pDate", json["pDate"].clone()), ("tagsCount", json["tagsCount"].clone())]);
        item.set([("urlMd5", json!(md5_hex(url.as_str())))]);
        Ok((made.errors, true))
    }
}
