//! The crawls of a node as they are now: one book that coordinator, frontier and scorer share, so that a change is in force everywhere at once
//! and an actor that is replaced finds it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use proto::cluster::registry::Definition;
use proto::crawl::crawls::Crawls;

/// The book; clones share it.
#[derive(Clone, Debug)]
pub struct CrawlBook(Arc<RwLock<Arc<Crawls>>>);

impl CrawlBook {
    /// A book that begins with these crawls.
    pub fn new(crawls: Crawls) -> CrawlBook {
        CrawlBook(Arc::new(RwLock::new(Arc::new(crawls))))
    }

    /// The crawls as they are now.
    pub fn now(&self) -> Arc<Crawls> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes definitions in.
    pub fn define(&self, definitions: &[Definition]) {
        let fresh = self.now().with(definitions);
        for definition in definitions {
            if let Some(Err(error)) = fresh.get(&definition.key.name).map(|crawl| &crawl.filter) {
                tracing::error!(crawl = definition.key.name, %error, "a crawl is not understood here and fetches nothing");
            }
        }
        self.put(fresh);
    }

    /// Takes in how many pages are left to hand out here.
    pub fn set_left(&self, left: &BTreeMap<String, u64>) {
        let fresh = self.now().with_left(left);
        self.put(fresh);
    }

    // Only the coordinator writes.
    fn put(&self, crawls: Crawls) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(crawls);
    }
}
