//! Where seeds lead: a seed that redirects within its domain is covered where it is now; of the others the user is told.

use proto::crawl::filter::Filter;
use proto::key::UrlKey;
use proto::record::{Status, UrlState};
use proto::url::CanonicalUrl;

use crate::config::CrawlConfig;
use crate::edges::store::{Store, StoreError};

/// Seeds that are looked up for the summary: who gave more reads the export.
const SEEDS_LOOKED_UP: usize = 10_000;
/// Seeds that are named; the others are counted.
pub(super) const SEEDS_NAMED: usize = 10;

/// Seeds that did not bring what they were named for.
#[derive(Default)]
pub(super) struct SeedNotes {
    /// Failed, and why.
    pub(super) failed: Vec<(String, String)>,
    pub(super) failed_count: usize,
    /// Redirect out of the scope, to here.
    pub(super) moved: Vec<(String, String)>,
    pub(super) moved_count: usize,
}

impl SeedNotes {
    /// Looks the seeds up.
    pub(super) fn read(
        store: &Store,
        seeds: &[CanonicalUrl],
        filter: &Filter,
        crawl: &CrawlConfig,
    ) -> Result<SeedNotes, StoreError> {
        let mut notes = SeedNotes::default();
        for seed in seeds.iter().take(SEEDS_LOOKED_UP) {
            if let Some(target) = follow(store, seed, filter, crawl)? {
                notes.moved_count += 1;
                if notes.moved.len() < SEEDS_NAMED {
                    notes.moved.push((seed.as_str().to_owned(), target.into_string()));
                }
            }
            let Some(record) = store.url(&UrlKey::new(&crawl.name, seed))?.map(|stored| stored.record) else {
                continue;
            };
            let failure = record.findings.as_ref().and_then(|found| found.failure);
            let closed = record.progress.status == Status::Crawled && record.state == UrlState::Error;
            if let Some(failure) = failure.filter(|_| closed) {
                notes.failed_count += 1;
                if notes.failed.len() < SEEDS_NAMED {
                    notes.failed.push((seed.as_str().to_owned(), failure.to_string()));
                }
            }
        }
        Ok(notes)
    }
}

/// Has the filter cover where former runs saw the seeds lead, so that a run goes on where the last one was.
pub(super) fn cover(
    store: &Store,
    seeds: &[CanonicalUrl],
    filter: &Filter,
    crawl: &CrawlConfig,
) -> Result<(), StoreError> {
    seeds.iter().try_for_each(|seed| follow(store, seed, filter, crawl).map(drop))
}

/// Follows the redirects of a seed as they are known, and has the filter cover where it leads; returns where it leaves the scope.
fn follow(
    store: &Store,
    seed: &CanonicalUrl,
    filter: &Filter,
    crawl: &CrawlConfig,
) -> Result<Option<CanonicalUrl>, StoreError> {
    let mut url = seed.clone();
    for _ in 0..crawl.redirects_max {
        let record = store.url(&UrlKey::new(&crawl.name, &url))?.map(|stored| stored.record);
        let target = record.and_then(|record| record.findings?.redirect);
        let Some(target) = target.and_then(|text| CanonicalUrl::from_canonical(text).ok()) else { return Ok(None) };
        if !filter.widen(&url, &target) {
            return Ok(Some(target));
        }
        url = target;
    }
    Ok(None)
}
