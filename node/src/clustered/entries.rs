//! Entries of feeds whose site has them as results (FEED_PARSER): each is a URL of the site that was never asked for, with the entry as its content.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use proto::batch::{Discovered, EntryKind};
use proto::cluster::copy::{Kept, RecordCopy};
use proto::control::records::UrlName;
use proto::id::UrlId;
use proto::key::UrlKey;
use proto::record::{Findings, Made};
use proto::site::content::mask;
use proto::site::note::Note;
use proto::url::CanonicalUrl;

use super::Shared;
use super::notes::Notes;
use super::pages::content_notes;
use super::records::keep;
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::messages::{FeedEntries, KeepEntries};
use crate::node::Node;
use crate::process::FeedEntry;

/// Records kept at once.
const RECORDS_AT_ONCE: usize = 200;

/// Keeps entries for as long as the node lives.
pub(super) fn keeper(shared: Weak<Shared>) -> KeepEntries {
    Arc::new(move |feed| {
        let shared = shared.upgrade();
        Box::pin(async move {
            let shared = shared.ok_or("the node ends")?;
            match (shared.node.get(), shared.swarm.get()) {
                (Some(node), Some(swarm)) => shared.keep_entries(node, swarm, feed).await,
                _ => Err("the node is starting".to_owned()),
            }
        })
    })
}

impl Shared {
    /// Has those entries kept that the rules of the site admit and nobody knows yet. Contents come before records: who finds a URL can read it.
    async fn keep_entries(&self, node: &Node, swarm: &Arc<Swarm>, feed: FeedEntries) -> Result<(), String> {
        let crawls = node.crawls();
        let Some(filter) = crawls.filter(&feed.crawl) else { return Ok(()) };
        let mut wanted: BTreeMap<String, (CanonicalUrl, &FeedEntry)> = BTreeMap::new();
        for entry in &feed.entries {
            if let Ok(url) = CanonicalUrl::parse(&entry.url, &self.urls)
                && url != feed.feed
                && filter.admits(&url, feed.depth).is_ok()
            {
                wanted.entry(url.as_str().to_owned()).or_insert((url, entry));
            }
        }
        let names = wanted.keys().map(|url| UrlName::Url(url.clone())).collect();
        let known = self.known(node, swarm, &feed.crawl, names).await?;
        let fresh: Vec<(CanonicalUrl, &FeedEntry)> =
            wanted.into_values().zip(known).filter(|(_, known)| known.is_none()).map(|(entry, _)| entry).collect();
        let mut notes: Vec<Note> = Vec::new();
        let mut copies = Vec::with_capacity(fresh.len());
        for (url, entry) in &fresh {
            let key = UrlKey::new(&feed.crawl, url);
            notes.extend(content_notes(&key.id().to_string(), mask::PROCESSED, &entry.record, feed.unix_ms)?);
            copies.push(RecordCopy::new(key, &self.record_of(&feed, url, entry)).map_err(|error| error.to_string())?);
        }
        self.keep_notes(node, &feed.crawl, &Notes::new(), notes).await?;
        for copies in copies.chunks(RECORDS_AT_ONCE) {
            keep(node, copies).await?;
        }
        Ok(())
    }

    fn record_of(&self, feed: &FeedEntries, url: &CanonicalUrl, entry: &FeedEntry) -> Kept {
        let (kind, depth, priority) = (EntryKind::Page, feed.depth, feed.priority);
        let found = Discovered { url: url.clone(), kind, depth, priority, redirects: 0 };
        let findings = Findings {
            http_code: feed.http_code,
            content_type: feed.content_type.clone(),
            title: entry.title.clone(),
            size: entry.record.len() as u64,
            crawled_at: feed.unix_ms,
            made: Some(Made { tags: entry.tags, published: entry.published }),
            ..Findings::default()
        };
        let parent = UrlId::of(&feed.crawl, feed.feed.as_str());
        Kept::came_with(&found, parent, findings, feed.unix_ms, node_of(&self.me))
    }
}
