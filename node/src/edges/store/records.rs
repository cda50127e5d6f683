//! Records for people: read by URL or by id, or one after the other.

use std::collections::BTreeSet;

use proto::cluster::slot_set::SlotSet;
use proto::control::records::{FoundRecord, UrlName};
use proto::id::UrlId;
use proto::key::UrlKey;
use proto::url::{CanonicalUrl, UrlRules};

use super::{Store, StoreError, Stored};

/// Where a scan goes on: at which domain, and behind which record of it.
pub type ScanFrom = (usize, Option<UrlKey>);

impl Store {
    /// The records of a crawl that are asked for, in the same order.
    pub fn records(&self, crawl: &str, names: &[UrlName]) -> Result<Vec<Option<FoundRecord>>, StoreError> {
        // An id does not say the domain: it is looked for in each that the crawl has here.
        let ids = names.iter().any(|name| matches!(name, UrlName::Id(_)));
        let domains = if ids { self.domains_of(crawl, None)? } else { BTreeSet::new() };
        names
            .iter()
            .map(|name| match name {
                UrlName::Url(url) => match CanonicalUrl::parse(url, &UrlRules::AS_IT_IS) {
                    Ok(url) => self.found(&UrlKey::new(crawl, &url)),
                    Err(_) => Ok(None),
                },
                UrlName::Id(id) => {
                    let found = domains.iter().map(|domain| self.found(&key_in(domain, *id)));
                    found.filter_map(Result::transpose).next().transpose()
                }
            })
            .collect()
    }

    fn found(&self, key: &UrlKey) -> Result<Option<FoundRecord>, StoreError> {
        let found = self.copy(key)?;
        Ok(found.map(|(copy, counted)| {
            let inlinks = counted.saturating_add(self.tally.count(key.as_bytes()));
            FoundRecord { copy, inlinks }
        }))
    }

    /// How the keys of a crawl's URLs begin, one for each domain.
    pub fn domains_of(&self, crawl: &str, slots: Option<&SlotSet>) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let mut domains = BTreeSet::new();
        for host in self.hosts() {
            let queue = host?.queue;
            if queue.crawl() == crawl && slots.is_none_or(|slots| slots.contains(queue.slot())) {
                let length = 2 + queue.domain().len() + 1 + crawl.len() + 1;
                domains.insert(queue.as_bytes()[..length].to_vec());
            }
        }
        Ok(domains)
    }

    /// Records whose keys begin with one of `domains`, from `from` on, at most `limit`; and where to go on if there may be more.
    pub fn scan(
        &self,
        domains: &[Vec<u8>],
        from: ScanFrom,
        limit: usize,
    ) -> Result<(Vec<Stored>, Option<ScanFrom>), StoreError> {
        let (mut domain, mut after) = from;
        let mut found: Vec<Stored> = Vec::new();
        while let Some(prefix) = domains.get(domain) {
            let start = after.take().map_or_else(|| prefix.clone(), |key: UrlKey| [key.as_bytes(), &[0]].concat());
            for row in self.rows("url", start, prefix.clone()) {
                let (key, value) = row?;
                if found.len() >= limit {
                    let last = found.last().map(|stored| stored.key.clone());
                    return Ok((found, Some((domain, last))));
                }
                found.push(self.stored(&key, &value)?);
            }
            domain += 1;
            if found.len() >= limit {
                return Ok((found, (domain < domains.len()).then_some((domain, None))));
            }
        }
        Ok((found, None))
    }
}

fn key_in(domain: &[u8], id: UrlId) -> UrlKey {
    UrlKey::from_bytes(&[domain, &id.0].concat())
}
