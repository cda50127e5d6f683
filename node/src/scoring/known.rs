//! What is known of a page beyond the graph.

use proto::clients::identity::is_client;
use proto::id::UrlId;
use proto::key::UrlKey;

use crate::edges::store::{Store, StoreError};

/// What is known of a page beyond the graph: by its record, or by what spiders reported.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its URL.
    pub url: String,
    /// Links from a seed.
    pub depth: u32,
    /// When it was last crawled, Unix milliseconds.
    pub last_crawl_ms: Option<u64>,
    /// How often it was crawled.
    pub crawls: u32,
    /// How often it had changed then.
    pub changes: u32,
    /// What tells its content from others.
    pub digest: Option<String>,
    /// The page that linked to it first.
    pub parent: Option<UrlId>,
}

impl Known {
    /// What is known of the page with this key.
    pub fn of(store: &Store, key: &UrlKey) -> Result<Option<Known>, StoreError> {
        if is_client(key) {
            let page = store.spider_page(key)?;
            return Ok(page.map(|(url, page)| Known {
                url,
                depth: page.depth,
                last_crawl_ms: Some(page.last_crawl_ms).filter(|_| page.crawls > 0),
                crawls: page.crawls,
                changes: page.changes,
                digest: page.content_hash.map(|hash| format!("{hash:016x}")),
                parent: page.linked_from,
            }));
        }
        let Some(stored) = store.url(key)? else { return Ok(None) };
        let found = stored.record.findings.as_deref();
        let digest = found.map(|found| found.digest).filter(|digest| *digest != [0; 16]);
        Ok(Some(Known {
            depth: stored.record.depth.into(),
            last_crawl_ms: found.map(|found| found.crawled_at),
            crawls: found.map_or(0, |found| found.crawled),
            changes: found.map_or(0, |found| found.changes),
            digest: digest.map(|digest| digest.iter().map(|byte| format!("{byte:02x}")).collect()),
            parent: stored.record.parent,
            url: stored.record.url,
        }))
    }
}
