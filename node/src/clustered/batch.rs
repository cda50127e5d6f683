//! The operation BATCH: URLs are crawled and processed now, and what came of them is the answer. They go through the frontier like all others: every delay and every robots.txt is kept.

use std::sync::Arc;

use proto::batch::{Discovered, EntryKind};
use proto::cluster::amend::Amendment;
use proto::control::records::UrlName;
use proto::error_mask::{ErrorBit, ErrorMask};
use proto::record::Progress;
use proto::site::batch::{Batch, BatchItem};
use proto::site::content::mask;
use proto::site::{Site, UrlContent, UrlRow, code};
use proto::url::CanonicalUrl;
use serde_json::{Value as Json, json};
use tokio::time::{Duration, Instant, sleep};

use super::Shared;
use super::pages::Room;
use super::records::Known;
use super::site::{Failed, Outcome};
use crate::edges::swarm::Swarm;
use crate::node::Node;

/// Whoever asks waits no longer for an answer; what is not done by then goes on, and says so.
const PATIENCE: Duration = Duration::from_secs(45);
/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// URLs of one batch.
const URLS_MAX: usize = 100;
/// What is answered of each.
const CONTENTS: u32 = mask::PROCESSED | mask::RAW_LAST | mask::RAW | mask::HEADERS;

/// An item on its way.
struct Under {
    crawl: String,
    url: CanonicalUrl,
    /// Where it stood before.
    before: Option<Progress>,
    done: bool,
}

impl Shared {
    /// Crawls and processes the URLs of a batch.
    pub(super) async fn batch(&self, node: &Node, swarm: &Arc<Swarm>, body: Json) -> Outcome {
        let mut batch = Batch::read(body)?;
        if batch.iterations_max() > 1 {
            let what = format!(
                "{}: a node goes on with links by itself, as their site says, and the answer does not wait for them; 1 is possible here, and more with `orbweaver crawl-batch`",
                batch.iterations_max()
            );
            return Err(proto::site::BadRequest::new("maxIterations", what).into());
        }
        batch.shorten();
        if batch.items.len() > URLS_MAX {
            let what = format!("{} of them, more than {URLS_MAX} are not crawled in one call", batch.items.len());
            return Err(proto::site::BadRequest::new("items", what).into());
        }
        let deadline = Instant::now() + PATIENCE.min(Duration::from_secs(batch.seconds_max()));
        let mut under = Vec::with_capacity(batch.items.len());
        for (at, item) in batch.items.iter().enumerate().filter(|(_, item)| item.has_site()) {
            self.rules_of(node, item)
                .map_err(|failed| Failed::new(failed.code(), format!("items[{at}].{}", failed.message)))?;
        }
        for item in &batch.items {
            under.push(self.put_up(node, swarm, item).await?);
        }
        while under.iter().any(|one| !one.done) && Instant::now() < deadline {
            sleep(LOOK_AGAIN).await;
            for one in under.iter_mut().filter(|one| !one.done) {
                let known = self.look_at(node, swarm, one).await?;
                one.done =
                    known.is_some_and(|known| known.kept.is_closed() && Some(known.kept.record.progress) != one.before);
            }
        }
        if under.iter().any(|one| !one.done) {
            batch.note(ErrorBit::ExecutionTimeMax);
        }
        let mut room = Room::new();
        for (item, one) in batch.items.iter_mut().zip(&under) {
            self.tell(node, swarm, item, one, &mut room).await?;
            if one.done && item.has_site() {
                self.process_anew(node, item).await?;
            }
        }
        Ok(batch.into_json())
    }

    /// The site of an item with what the item says over it.
    fn rules_of(&self, node: &Node, item: &BatchItem) -> Result<Site, Failed> {
        let crawls = node.crawls();
        let known = crawls.site(item.site_id()).map(|(site, _)| site).filter(|site| !site.deleted);
        let known = known.ok_or_else(|| Failed::no_site(item.site_id()))?;
        Ok(item.site_upon(&known.site)?)
    }

    /// Processes what came by the rules that the item brought along; what is kept is by those of its site.
    async fn process_anew(&self, node: &Node, item: &mut BatchItem) -> Result<(), Failed> {
        let (site, mut processed, processor) = (self.rules_of(node, item)?, item.clone(), self.processor.clone());
        // A hostile page with hostile rules takes half a second: others do not wait for it.
        let done = tokio::task::spawn_blocking(move || {
            processor.process_by(&mut processed, site);
            processed
        });
        *item = done.await.map_err(|error| Failed::new(code::NOT_KEPT, error))?;
        Ok(())
    }

    /// Has a URL crawled, whether it is known or not.
    async fn put_up(&self, node: &Node, swarm: &Arc<Swarm>, item: &BatchItem) -> Result<Under, Failed> {
        let crawl = self.crawl_of(node, item.site_id())?;
        let url = CanonicalUrl::parse(item.url()?, &self.urls)
            .map_err(|error| proto::site::BadRequest::new("urlObj.url", error.to_string()))?;
        let mut one = Under { crawl, url, before: None, done: false };
        let not_kept = |error: String| Failed::new(code::NOT_KEPT, error);
        let known = self.look_at(node, swarm, &one).await?;
        let there = known.filter(|known| !known.kept.record.state.is_gone());
        one.before = there.as_ref().map(|known| known.kept.record.progress);
        if there.is_some() {
            let name = vec![UrlName::Url(one.url.as_str().to_owned())];
            self.amend(node, swarm, &one.crawl, name, Amendment::Renew).await.map_err(not_kept)?;
        } else {
            let priority = node.crawls().site(item.site_id()).map_or(100, |(site, _)| site.site.priority);
            let found = Discovered { url: one.url.clone(), kind: EntryKind::Page, depth: 0, priority, redirects: 0 };
            self.insert(node, swarm, &one.crawl, &[(0, found)]).await.map_err(not_kept)?;
        }
        Ok(one)
    }

    async fn look_at(&self, node: &Node, swarm: &Arc<Swarm>, one: &Under) -> Result<Option<Known>, Failed> {
        let name = vec![UrlName::Url(one.url.as_str().to_owned())];
        let known = self.known(node, swarm, &one.crawl, name).await;
        Ok(known.map_err(|error| Failed::new(code::NOT_KEPT, error))?.into_iter().flatten().next())
    }

    /// Writes down what came of a URL.
    async fn tell(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        item: &mut BatchItem,
        one: &Under,
        room: &mut Room,
    ) -> Result<(), Failed> {
        if let Some(known) = self.look_at(node, swarm, one).await? {
            let site = item.site_id().to_owned();
            let row =
                UrlRow { site: &site, key: &known.copy.key, record: &known.kept.record, inlinks: known.inlinks }.json();
            if let Json::Object(fields) = row {
                item.url_fields().extend(fields);
            }
        }
        if !one.done {
            let mut errors = item.errors();
            errors.merge(ErrorMask::from(ErrorBit::ExecutionTimeMax));
            item.set([("errorMask", json!(errors.0))]);
            return Ok(());
        }
        let request = json!({"siteId": item.site_id(), "url": one.url.as_str(), "contentTypeMask": CONTENTS});
        let contents = self.content_of(node, swarm, &UrlContent::read(request)?, room).await?;
        if let Json::Object(fields) = contents {
            item.contents().extend(fields);
        }
        Ok(())
    }
}
