//! The crawls of a node as they are now: one book that coordinator, frontier and scorer share, so that a change is in force everywhere at once
//! and an actor that is replaced finds it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use proto::clients::settings::ClientSettings;
use proto::cluster::registry::{Definition, Version};
use proto::crawl::crawls::Crawls;
use proto::site::FetchLock;

/// The book; clones share it.
#[derive(Clone, Debug)]
pub struct CrawlBook(Arc<RwLock<Arc<Crawls>>>, Arc<RwLock<Settings>>);

/// Settings that are defined, and the versions of their definitions if there are any.
#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    clients: (ClientSettings, Option<Version>),
    fetch_lock: (Option<FetchLock>, Option<Version>),
}

impl CrawlBook {
    /// A book that begins with these crawls.
    pub fn new(crawls: Crawls) -> CrawlBook {
        CrawlBook(Arc::new(RwLock::new(Arc::new(crawls))), Arc::default())
    }

    /// The crawls as they are now.
    pub fn now(&self) -> Arc<Crawls> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What holds for all queues of clients, and the version of its definition if there is one.
    pub fn client_settings(&self) -> (ClientSettings, Option<Version>) {
        self.1.read().unwrap_or_else(PoisonError::into_inner).clients
    }

    /// Who claims URLs, and the version of that if there is one.
    pub fn fetch_lock(&self) -> (Option<FetchLock>, Option<Version>) {
        self.1.read().unwrap_or_else(PoisonError::into_inner).fetch_lock
    }

    /// Takes definitions in.
    pub fn define(&self, definitions: &[Definition]) {
        let of_clients = definitions.iter().rfind(|one| one.key == ClientSettings::key());
        if let Some(Definition { version, body, .. }) = of_clients {
            let said = body.as_ref().and_then(|body| ClientSettings::decode(body).ok()).unwrap_or_default();
            self.1.write().unwrap_or_else(PoisonError::into_inner).clients = (said, Some(*version));
        }
        let lock = definitions.iter().rfind(|one| one.key == FetchLock::key());
        if let Some(Definition { version, body, .. }) = lock {
            let said = body.as_ref().and_then(|body| FetchLock::decode(body));
            self.1.write().unwrap_or_else(PoisonError::into_inner).fetch_lock = (said, Some(*version));
        }
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

    /// The hour may be another: says whether the crawls are.
    pub fn turn(&self, unix_ms: u64) -> bool {
        let fresh = self.now().at(unix_ms);
        let turned = fresh.is_some();
        fresh.into_iter().for_each(|crawls| self.put(crawls));
        turned
    }

    // Only the coordinator writes.
    fn put(&self, crawls: Crawls) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(crawls);
    }
}
