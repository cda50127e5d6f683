//! Scorer: gives page and links their worth and decides which links are followed.
//! In: [`ParsedPage`] from the parser. Out: [`StorePage`] to storage. Owns: nothing that outlives a page.
//! If it dies, the pages in its mailbox are lost; their flights lapse and the frontier offers them again.
//!
//! For now worth is depth: the frontier fetches what is fewer links from a seed first, and references that lead to no page
//! (images, scripts) after those that do. In-links are counted by the store as pages are settled.

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use proto::batch::{Discovered, EntryKind, Pick};
use proto::crawl::filter::{Filter, Refusal};
use proto::crawl::outcome::Ending;
use proto::crawl::retry::Failure;
use proto::error_mask::{ErrorBit, ErrorMask};
use proto::record::{Findings, Validators};
use proto::site::RedirectFilters;
use proto::url::{CanonicalUrl, UrlRules};
use tracing::{debug, info};

use super::can_end;
use crate::actors::fetcher::retry_after_ms;
use crate::crawls::CrawlBook;
use crate::edges::disk::Landing;
use crate::edges::http::Fetched;
use crate::edges::web::Pending;
use crate::extract::{Extracted, Link as PageLink, LinkKind, PageKind};
use crate::messages::{FeedEntries, KeepEntries, ParsedPage, StorePage};
use crate::metrics::Metrics;
use crate::supervisor::{Lifeline, Link};

/// Priority of a URL that nobody ranked, as in the HCE Distributed Crawler; higher is sooner.
pub const PRIORITY_DEFAULT: u16 = 100;
/// What a reference that leads to no page loses.
const PART_PENALTY: u16 = 50;

/// Which links are followed.
#[derive(Clone)]
pub struct FollowRules {
    /// What belongs to each crawl.
    pub book: CrawlBook,
    /// How a redirect's target is brought into canonical form.
    pub urls: UrlRules,
    /// Redirects in a row.
    pub redirects_max: u8,
    /// Whether images, scripts and other parts of pages are fetched too.
    pub parts: bool,
}

/// The actor.
pub struct Scorer {
    storage: Link<StorePage>,
    rules: Arc<FollowRules>,
    /// Who keeps entries of feeds; none for a node alone, which has no sites.
    entries: Option<KeepEntries>,
    metrics: Metrics,
    mailbox_max: usize,
    lifeline: Lifeline,
}

impl Scorer {
    /// A scorer.
    pub fn new(
        storage: Link<StorePage>,
        rules: Arc<FollowRules>,
        entries: Option<KeepEntries>,
        metrics: Metrics,
        mailbox_max: usize,
        lifeline: Lifeline,
    ) -> Scorer {
        Scorer { storage, rules, entries, metrics, mailbox_max, lifeline }
    }

    /// Has the entries of a feed kept, and the feed stored then: a feed that is stored has been seen by everybody, and its entries must be there.
    fn store_after(&self, kept: Pending<'static, Result<(), String>>, landing: Landing) {
        let (storage, metrics) = (self.storage.clone(), self.metrics.clone());
        actix::spawn(async move {
            let landing = match kept.await {
                Ok(()) => landing,
                Err(error) => {
                    debug!(
                        url = landing.pick.entry.url.as_str(),
                        error, "entries of a feed are not kept, it is tried again"
                    );
                    Landing::failed(landing.pick, Failure::Lost, landing.unix_ms)
                }
            };
            if storage.pass(StorePage(Box::new(landing))).is_err() {
                metrics.dropped.inc();
            }
        });
    }
}

impl Actor for Scorer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
        self.lifeline.has_room_for(self.mailbox_max);
    }
}

impl Handler<ParsedPage> for Scorer {
    type Result = ();

    fn handle(&mut self, mut page: ParsedPage, _ctx: &mut Self::Context) {
        self.lifeline.handles();
        let entries = page.processed.as_mut().map(|processed| std::mem::take(&mut processed.entries));
        let entries = entries.filter(|entries| !entries.is_empty()).zip(self.entries.clone()).map(|(entries, keep)| {
            let unix_ms = page.fetched.started_unix_ms + u64::from(page.fetched.elapsed_ms);
            let media_type = &page.extracted.media_type;
            keep(FeedEntries::of(&page.pick, page.fetched.status, media_type, unix_ms, entries))
        });
        let landing = land(page, &self.rules);
        if let Some(kept) = entries {
            return self.store_after(kept, landing);
        }
        if self.storage.pass(StorePage(Box::new(landing))).is_err() {
            self.metrics.dropped.inc();
        }
    }
}

can_end!(Scorer);

/// Decides how a fetch ended and which of its links are followed.
pub(crate) fn land(page: ParsedPage, rules: &FollowRules) -> Landing {
    let ParsedPage { pick, fetched, mut extracted, mut captured, processed, parsing_ms } = page;
    let processed = processed.map(|processed| *processed);
    let unix_ms = fetched.started_unix_ms + u64::from(fetched.elapsed_ms);
    let digest = digest_of(&fetched, &extracted);
    let mut findings = Box::new(findings(&pick.entry.url, &fetched, &extracted, digest, parsing_ms, unix_ms));
    let (mut links, mut beyond) = (Vec::new(), Vec::new());
    let crawls = rules.book.now();
    let filter = crawls.filter(pick.queue.crawl()).map(Arc::as_ref);
    let manner = crawls.manner(pick.queue.crawl(), pick.entry.url.as_str()).map(Arc::as_ref);
    let redirects_max = manner.and_then(|manner| manner.redirects_max).unwrap_or(u8::MAX).min(rules.redirects_max);
    let ending = match (fetched.status, redirect_target(&pick.entry.url, &fetched, rules)) {
        (304, _) if pick.entry.validators.is_some() => {
            Ending::NotModified { at: unix_ms, crawling_ms: fetched.elapsed_ms }
        }
        (status @ 400.., _) => Ending::Failed(Failure::Http(status), Some(findings), retry_after_ms(&fetched)),
        (_, Some(Err(failure))) => Ending::Failed(failure, Some(findings), None),
        (_, Some(Ok(_))) if pick.entry.redirects >= redirects_max => {
            Ending::Failed(Failure::RedirectsTooMany, Some(findings), None)
        }
        (_, Some(Ok(target))) => {
            findings.redirect = Some(target.as_str().to_owned());
            match follow_redirect(&pick, target, filter, manner.map(|manner| &manner.redirects), unix_ms) {
                (target, Ok(())) => links.push(target),
                (target, Err(refusal)) if refusal.is_choice() => beyond.push(target),
                _ => {}
            }
            Ending::Answered(findings)
        }
        _ => {
            let mut found = std::mem::take(&mut extracted.links);
            if processed.as_ref().is_some_and(|processed| processed.entries_are_results) {
                found.retain(|link| link.kind != LinkKind::Entry);
            }
            if processed.as_ref().is_some_and(|processed| processed.unwanted) {
                found.clear();
            }
            // What feeds led to is single, as in the original: only where it moved to is followed.
            let by_feeds = crawls.processing(pick.queue.crawl(), pick.entry.url.as_str());
            let by_feeds = by_feeds.is_some_and(|rules| rules.finds_by_feeds());
            if by_feeds && pick.order.depth > 0 && extracted.kind != PageKind::Feed {
                found.retain(|link| link.kind == LinkKind::Refresh);
            }
            if let Some(manner) = manner {
                let leads_on = |link: &PageLink| manner.redirects.pass(link.url.as_str(), unix_ms);
                found.retain(|link| link.kind != LinkKind::Refresh || leads_on(link));
            }
            findings.made = processed.as_ref().and_then(|processed| processed.made);
            let refreshes_max = manner.and_then(|manner| manner.refreshes_max);
            let mut errors = ErrorMask::NONE;
            if refreshes_max.is_some_and(|most| pick.entry.redirects >= most) {
                let before = found.len();
                found.retain(|link| link.kind != LinkKind::Refresh);
                if found.len() < before {
                    errors.set(ErrorBit::HtmlRedirectsMax);
                }
            }
            (links, beyond) = follow(&pick, found, rules, filter, refreshes_max.is_some());
            if let Some(most) = crawls.links_max(pick.queue.crawl()).filter(|most| links.len() > *most) {
                links.truncate(most);
                errors.set(ErrorBit::UrlsFromPageMax);
            }
            let empty = fetched.body.is_empty();
            if empty {
                errors.set(ErrorBit::EmptyContent);
            }
            match &processed {
                None if errors.is_empty() => Ending::Answered(findings),
                None => Ending::Processed { found: findings, errors, made: !empty, failed: empty },
                Some(processed) => {
                    errors.merge(processed.errors);
                    let (made, failed) = (processed.record.is_some(), processed.failed);
                    Ending::Processed { found: findings, errors, made, failed }
                }
            }
        }
    };
    let is_page = (200..300).contains(&fetched.status) && !fetched.body.is_empty() && fetched.truncated.is_none();
    captured.digest = is_page.then_some(digest);
    if let Some(processed) = processed {
        captured.hash = processed.hash.map(|(hash, delete)| (hash_of(pick.queue.crawl(), &hash), delete));
        captured.processed = processed.record;
    }
    let captured = Some(captured);
    Landing { pick, ending, captured, links, beyond, unix_ms }
}

/// Where a redirect leads, or why nowhere; `None` if it is none.
fn redirect_target(
    url: &CanonicalUrl,
    fetched: &Fetched,
    rules: &FollowRules,
) -> Option<Result<CanonicalUrl, Failure>> {
    if !matches!(fetched.status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let target = fetched.location().and_then(|to| CanonicalUrl::join(&url.to_url(), &to, &rules.urls).ok());
    // A page that redirects to itself (to set a cookie, usually) leads nowhere for us.
    Some(target.filter(|target| target != url).ok_or(Failure::RedirectInvalid))
}

/// A redirect's target is as deep as its source, and counts as the same kind of thing; where a seed leads belongs to the crawl.
fn follow_redirect(
    pick: &Pick,
    target: CanonicalUrl,
    filter: Option<&Filter>,
    redirects: Option<&RedirectFilters>,
    unix_ms: u64,
) -> (Discovered, Result<(), Refusal>) {
    let depth = pick.order.depth;
    let belongs = match pick.entry.kind {
        EntryKind::Sitemap => Ok(()),
        EntryKind::Page if redirects.is_some_and(|redirects| !redirects.pass(target.as_str(), unix_ms)) => {
            Err(Refusal::Excluded)
        }
        EntryKind::Page => admits(filter, &target, depth).or_else(|refusal| {
            let strays = depth == 0 && refusal == Refusal::OutOfScope;
            if strays && filter.is_some_and(|filter| filter.widen(&pick.entry.url, &target)) {
                info!(
                    seed = pick.entry.url.as_str(),
                    target = target.as_str(),
                    "a seed moved, the scope covers where it is"
                );
                return admits(filter, &target, depth);
            }
            Err(refusal)
        }),
    };
    let target = Discovered {
        url: target,
        kind: pick.entry.kind,
        depth,
        priority: pick.order.priority,
        redirects: pick.entry.redirects + 1,
    };
    (target, belongs)
}

/// Whether a URL belongs to a crawl; nothing does to one of which this node knows nothing.
fn admits(filter: Option<&Filter>, url: &CanonicalUrl, depth: u16) -> Result<(), Refusal> {
    filter.map_or(Err(Refusal::OutOfScope), |filter| filter.admits(url, depth))
}

/// The links that are followed, with their depth and priority, and those that a run with wider rules would follow. Where refreshes are counted, they count as redirects.
fn follow(
    pick: &Pick,
    links: Vec<PageLink>,
    rules: &FollowRules,
    filter: Option<&Filter>,
    counts_refreshes: bool,
) -> (Vec<Discovered>, Vec<Discovered>) {
    // A sitemap is no page: what it lists is as deep as what a seed links to, and worth what a page is worth.
    let (depth, priority) = match pick.entry.kind {
        EntryKind::Page => (pick.order.depth.saturating_add(1), pick.order.priority),
        EntryKind::Sitemap => (1, PRIORITY_DEFAULT),
    };
    let (mut followed, mut beyond) = (Vec::with_capacity(links.len()), Vec::new());
    for link in links {
        let part = !link.kind.leads_to_page() && !matches!(link.kind, LinkKind::Feed | LinkKind::Sitemap);
        let wanted = !link.nofollow && link.kind != LinkKind::Form && link.url != pick.entry.url;
        if !wanted || (part && !rules.parts) {
            continue;
        }
        let list = match admits(filter, &link.url, depth) {
            Ok(()) => &mut followed,
            Err(refusal) if refusal.is_choice() => &mut beyond,
            Err(_) => continue,
        };
        let kind = if link.kind == LinkKind::Sitemap { EntryKind::Sitemap } else { EntryKind::Page };
        let priority = if part { priority.saturating_sub(PART_PENALTY) } else { priority };
        let counted = counts_refreshes && link.kind == LinkKind::Refresh;
        let redirects = if counted { pick.entry.redirects.saturating_add(1) } else { 0 };
        list.push(Discovered { url: link.url, kind, depth, priority, redirects });
    }
    (followed, beyond)
}

fn findings(
    url: &CanonicalUrl,
    fetched: &Fetched,
    extracted: &Extracted,
    digest: [u8; 16],
    parsing_ms: u32,
    unix_ms: u64,
) -> Findings {
    let internal = extracted.links.iter().filter(|link| link.url.host() == url.host()).count() as u32;
    Findings {
        http_code: fetched.status,
        content_type: extracted.media_type.clone(),
        charset: extracted.charset.map(str::to_owned),
        language: extracted.language.map(str::to_owned),
        title: extracted.title.clone(),
        size: fetched.body.len() as u64,
        digest,
        fingerprint: extracted.fingerprint,
        validators: Validators::new(fetched.etag(), fetched.last_modified()),
        links_internal: internal,
        links_external: extracted.links.len() as u32 - internal,
        canonical: extracted.canonical.as_ref().filter(|named| *named != url).map(|named| named.as_str().to_owned()),
        noindex: extracted.noindex,
        crawling_ms: fetched.elapsed_ms,
        processing_ms: parsing_ms,
        crawled_at: unix_ms,
        ..Findings::default()
    }
}

/// The extracted digest is of what was read; the body of an error page or a redirect was not.
fn digest_of(fetched: &Fetched, extracted: &Extracted) -> [u8; 16] {
    let is_read = (200..300).contains(&fetched.status);
    let full = if is_read { extracted.digest } else { *blake3::hash(&fetched.body).as_bytes() };
    full[..16].try_into().expect("sixteen of thirty-two bytes")
}

/// What tells a content from others of its site.
fn hash_of(crawl: &str, hash: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key("orbweaver content hash of a site");
    hasher.update(crawl.as_bytes()).update(&[0]).update(hash.as_bytes());
    hasher.finalize().as_bytes()[..16].try_into().expect("sixteen of thirty-two bytes")
}
