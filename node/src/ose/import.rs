//! A site folder into a data folder: its files are kept as they are, its URLs become those of a crawl.
//!
//! A URL without an id waits to be crawled. A URL with an answer counts as crawled when it was STREAMED: the answer goes through the same hands as one that was just fetched (archive, text,
//! links within the site), so nothing is fetched again that the folder has. A URL with an id and without an answer waits too.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::batch::{Discovered, EntryKind, Pick};
use proto::crawl::crawls::Crawls;
use proto::crawl::filter::Filter;
use proto::ose::name::OseFile;
use proto::record::Status;
use proto::url::CanonicalUrl;
use serde::Serialize;

use super::answer::Answer;
use super::folder::Folder;
use super::merge::site;
use super::{Damages, OseError};
use crate::actors::parser::read_page;
use crate::actors::scorer::{PRIORITY_DEFAULT, land};
use crate::config::Config;
use crate::crawls::CrawlBook;
use crate::edges::clock::unix_ms;
use crate::edges::disk::{Disk, DiskError, DiskOptions, Job, Settled};
use crate::edges::http::Fetched;
use crate::edges::store::Store;
use crate::edges::store::ose::{FileError, ImportedSite};
use crate::extract::ExtractRules;
use crate::messages::ParsedPage;
use crate::node::{extract_rules, follow_rules, store_options, warc_options, warc_seed};

/// URLs that are admitted together, and bytes of their answers in memory.
const BATCH_URLS: usize = 256;
const BATCH_BYTES: usize = 32 << 20;

/// What was imported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Whose folder it is.
    pub site: String,
    /// Into which crawl.
    pub crawl: String,
    /// Files that are kept.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// URLs that were not known before.
    pub urls: u64,
    /// Of those, the ones with an answer.
    pub pages: u64,
    /// What lies in the folder and is not OSE's.
    pub foreign: Vec<String>,
    /// Damaged rows.
    pub damages: Damages,
}

/// A URL that is to be admitted, and what the folder has of it.
struct Waiting {
    url: CanonicalUrl,
    fetched: Option<Fetched>,
}

/// Imports a folder into the data folder and crawl that `config` names.
pub async fn import(folder: &Folder, config: &Config, force: bool) -> Result<ImportReport, OseError> {
    let status = folder.status()?;
    if status.phase.is_unfinished() && !force {
        return Err(OseError::Unfinished(status.phase));
    }
    let site = site(folder, &config.url)?;
    let (files, foreign) = folder.list()?;
    let mut store = Store::open(&config.storage.data, store_options(config))?;
    let mut report = ImportReport { site, crawl: config.crawl.name.clone(), foreign, ..ImportReport::default() };
    keep_files(&mut store, folder, &files, &mut report)?;

    let options = DiskOptions { warc: warc_options(config, warc_seed(&store)), commit_pause: Duration::ZERO };
    let (disk, thread) = Disk::start(store, options)?;
    let imported = import_urls(&disk, folder, config, &mut report).await;
    let stopped = disk.submit(Job::Stop).await;
    drop(disk);
    let _ = thread.join(); // a panic there has been told as "stopped"
    imported?;
    stopped?;
    Ok(report)
}

fn keep_files(
    store: &mut Store,
    folder: &Folder,
    files: &[OseFile],
    report: &mut ImportReport,
) -> Result<(), OseError> {
    store.begin_site(&report.site)?;
    for file in files {
        let path = folder.file(*file);
        let opened = std::fs::File::open(&path).map_err(OseError::io("open", &path))?;
        report.files += 1;
        report.bytes += store.keep_file(&report.site, &file.to_string(), opened).map_err(outside("read", &path))?;
    }
    let imported = ImportedSite { crawl: report.crawl.clone(), imported_ms: unix_ms(), files: report.files };
    Ok(store.finish_site(&report.site, &imported)?)
}

/// Whose fault it was: the database's, or that of the file at `path`.
pub(super) fn outside(what: &'static str, path: &Path) -> impl FnOnce(FileError) -> OseError {
    let path = path.to_owned();
    move |error| match error {
        FileError::Store(error) => error.into(),
        FileError::Outside(reason) => OseError::Io { what, path, reason },
    }
}

async fn import_urls(disk: &Disk, folder: &Folder, config: &Config, report: &mut ImportReport) -> Result<(), OseError> {
    let rules = Rules::new(config, &report.site);
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for line in folder.lines(OseFile::Urls)? {
        let line = line?;
        let row = match &line.row {
            Ok(row) => row,
            Err(damaged) => {
                report.damages.note(damaged.clone());
                continue;
            }
        };
        let url = match CanonicalUrl::parse(&row.url, &config.url) {
            Ok(url) => url,
            Err(error) => {
                report.damages.note(line.damaged_url(OseFile::Urls, error));
                continue;
            }
        };
        let file = row.id.map(OseFile::Answer).filter(|file| folder.has(*file));
        let answer = file.map(|file| folder.read(file)).transpose()?;
        let fetched = answer.as_deref().and_then(Answer::parse).zip(row.streamed);
        let fetched =
            fetched.map(|(answer, streamed)| answer.into_fetched(&url, streamed, config.fetch.limits.page_bytes_max));
        bytes += fetched.as_ref().map_or(0, |fetched| fetched.body.len() + fetched.wire_body.len());
        waiting.push(Waiting { url, fetched });
        if waiting.len() >= BATCH_URLS || bytes >= BATCH_BYTES {
            rules.settle(disk, std::mem::take(&mut waiting), report).await?;
            bytes = 0;
        }
    }
    rules.settle(disk, waiting, report).await
}

/// By what pages are read and links are followed.
struct Rules {
    crawl: String,
    follow: crate::actors::scorer::FollowRules,
    extract: ExtractRules,
    product_token: String,
}

impl Rules {
    fn new(config: &Config, site: &str) -> Rules {
        let root: Vec<CanonicalUrl> =
            CanonicalUrl::parse(&format!("http://{site}/"), &config.url).into_iter().collect();
        let filter = Filter::new(config.filter.clone(), &root).or_else(|error| {
            tracing::error!(%error, "the patterns of the configuration are not understood and were left out");
            Filter::new(Default::default(), &root)
        });
        let filter = filter.expect("rules without patterns are rules");
        let book = CrawlBook::new(Crawls::alone(Arc::new(filter)));
        Rules {
            crawl: config.crawl.name.clone(),
            follow: follow_rules(config, &book),
            extract: extract_rules(config),
            product_token: config.product_token().to_owned(),
        }
    }

    /// Admits URLs and settles those that have an answer.
    async fn settle(&self, disk: &Disk, waiting: Vec<Waiting>, report: &mut ImportReport) -> Result<(), OseError> {
        let discovered = |url: &CanonicalUrl| Discovered {
            url: url.clone(),
            kind: EntryKind::Page,
            depth: 0,
            priority: PRIORITY_DEFAULT,
            redirects: 0,
        };
        let urls = waiting.iter().map(|one| discovered(&one.url)).collect();
        let admit = |reply| Job::Admit { crawl: self.crawl.clone(), urls, unix_ms: unix_ms(), reply };
        let admitted = disk.ask(admit).await?;
        report.urls += admitted.len() as u64;
        let mut fetched: std::collections::BTreeMap<String, Fetched> =
            waiting.into_iter().filter_map(|one| Some((one.url.into_string(), one.fetched?))).collect();
        let mut landings = Vec::new();
        for one in admitted {
            let Some(fetched) = fetched.remove(one.entry.url.as_str()) else { continue };
            let mut entry = one.entry;
            entry.progress.status = Status::SelectedToCrawl;
            let pick = Pick { flight: one.order.sequence, queue: one.queue, order: one.order, entry };
            let extracted = read_page(&pick.entry.url, &fetched, &self.product_token, &self.extract);
            landings.push((pick.clone(), land(ParsedPage { pick, fetched, extracted, parsing_ms: 0 }, &self.follow)));
        }
        if landings.is_empty() {
            return Ok(());
        }
        let picks = landings.iter().map(|(pick, _)| pick.clone()).collect();
        disk.ask(|reply| Job::Select(picks, reply)).await?;
        // At most as many answers as landings.
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let settled = Settled::new(move |pages| drop(tell.send(pages)));
        let mut unheard = landings.len();
        for (_, landing) in landings {
            disk.submit(Job::Settle(Box::new(landing), settled.clone())).await?;
        }
        drop(settled);
        while let Some(pages) = told.recv().await {
            let pages = pages?;
            unheard = unheard.saturating_sub(pages.len());
            report.pages += pages.iter().filter(|landed| landed.kind.is_some()).count() as u64;
        }
        if unheard > 0 {
            return Err(DiskError::Stopped.into());
        }
        Ok(())
    }
}
