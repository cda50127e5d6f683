//! A site folder into a data folder: its files are kept as they are, its URLs become those of a crawl.
//!
//! A URL without an id waits to be crawled. A URL with an answer counts as crawled when it was STREAMED: the answer goes through the same hands as one that was just fetched (archive, text,
//! links within the site), so nothing is fetched again that the folder has. A URL with an id and without an answer waits too.
//!
//! An import that was killed is begun anew: a URL that counts as crawled is left as it is, and one that waits, because it was admitted in the last moment or because the crawl
//! has met it itself, is given the folder's answer where it stands in its queue.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::batch::{Discovered, Entry, EntryKind, Pick};
use proto::crawl::crawls::Crawls;
use proto::crawl::filter::Filter;
use proto::id::UrlId;
use proto::key::{Order, QueueKey, UrlKey};
use proto::ose::name::OseFile;
use proto::record::Status;
use proto::url::CanonicalUrl;
use serde::Serialize;

use super::answer::Answer;
use super::folder::Folder;
use super::merge::site;
use super::{Damages, OseError};
use crate::actors::parser::{capture, read_page};
use crate::actors::scorer::{PRIORITY_DEFAULT, land};
use crate::config::Config;
use crate::crawls::CrawlBook;
use crate::edges::clock::unix_ms;
use crate::edges::disk::{Disk, DiskError, DiskOptions, Job, Landing, Settled};
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
    let known = known(&store, folder, config)?;

    let options = DiskOptions { warc: warc_options(config, warc_seed(&store)), commit_pause: Duration::ZERO };
    let (disk, thread) = Disk::start(store, options)?;
    let imported = import_urls(&disk, folder, config, &known, &mut report).await;
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

/// How far URLs are of which the folder has answers and the crawl knows: whether they count as crawled.
type Known = BTreeMap<UrlId, bool>;

fn known(store: &Store, folder: &Folder, config: &Config) -> Result<Known, OseError> {
    let mut known = Known::new();
    for line in folder.lines(OseFile::Urls)? {
        let line = line?;
        let Ok(row) = &line.row else { continue };
        let Ok(url) = CanonicalUrl::parse(&row.url, &config.url) else { continue };
        if row.id.is_none_or(|id| !folder.has(OseFile::Answer(id))) {
            continue;
        }
        let key = UrlKey::new(&config.crawl.name, &url);
        if let Some(stored) = store.url(&key)? {
            known.insert(key.id(), stored.record.progress.status >= Status::Crawled);
        }
    }
    Ok(known)
}

async fn import_urls(
    disk: &Disk,
    folder: &Folder,
    config: &Config,
    known: &Known,
    report: &mut ImportReport,
) -> Result<(), OseError> {
    let rules = Rules::new(config, &report.site);
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    let mut late: BTreeMap<QueueKey, BTreeMap<String, Late>> = BTreeMap::new();
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
        let answered = file.zip(row.streamed).map(|(file, streamed)| Late { file, streamed });
        match known.get(&url.id(&rules.crawl)) {
            Some(true) => continue,
            Some(false) => {
                let queue = QueueKey::new(&rules.crawl, &url);
                late.entry(queue).or_default().extend(answered.map(|answered| (url.into_string(), answered)));
                continue;
            }
            None => {}
        }
        let fetched = answered.map(|answered| answered.read(&url, folder, config)).transpose()?.flatten();
        bytes += fetched.as_ref().map_or(0, |fetched| fetched.body.len() + fetched.wire_body.len());
        waiting.push(Waiting { url, fetched });
        if waiting.len() >= BATCH_URLS || bytes >= BATCH_BYTES {
            rules.settle(disk, std::mem::take(&mut waiting), report).await?;
            bytes = 0;
        }
    }
    rules.settle(disk, waiting, report).await?;
    for (queue, answered) in late {
        rules.settle_late(disk, folder, config, &queue, answered, report).await?;
    }
    Ok(())
}

/// An answer of the folder.
#[derive(Clone, Copy)]
struct Late {
    file: OseFile,
    streamed: u64,
}

impl Late {
    /// Reads it; nothing if it is no answer.
    fn read(self, url: &CanonicalUrl, folder: &Folder, config: &Config) -> Result<Option<Fetched>, OseError> {
        let answer = folder.read(self.file)?;
        let fetched = Answer::parse(&answer);
        Ok(fetched.map(|answer| answer.into_fetched(url, self.streamed, config.fetch.limits.page_bytes_max)))
    }
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
        let mut fetched: BTreeMap<String, Fetched> =
            waiting.into_iter().filter_map(|one| Some((one.url.into_string(), one.fetched?))).collect();
        let mut landings = Vec::new();
        for one in admitted {
            let Some(fetched) = fetched.remove(one.entry.url.as_str()) else { continue };
            landings.push(self.landing(one.queue, one.order, one.entry, fetched));
        }
        self.settle_all(disk, landings, report).await
    }

    /// Gives URLs that wait in a queue the folder's answers.
    async fn settle_late(
        &self,
        disk: &Disk,
        folder: &Folder,
        config: &Config,
        queue: &QueueKey,
        mut answered: BTreeMap<String, Late>,
        report: &mut ImportReport,
    ) -> Result<(), OseError> {
        let mut after = None;
        while !answered.is_empty() {
            let (entries, more) = disk.ask(|reply| Job::Refill(queue.clone(), after, BATCH_URLS, reply)).await?;
            after = entries.last().map(|(order, _)| *order);
            let mut landings = Vec::new();
            for (order, entry) in entries {
                let Some(late) = answered.remove(entry.url.as_str()) else { continue };
                if let Some(fetched) = late.read(&entry.url, folder, config)? {
                    landings.push(self.landing(queue.clone(), order, entry, fetched));
                }
            }
            self.settle_all(disk, landings, report).await?;
            if !more {
                break; // the rest waits elsewhere, to be tried again or set aside
            }
        }
        Ok(())
    }

    fn landing(&self, queue: QueueKey, order: Order, mut entry: Entry, mut fetched: Fetched) -> (Pick, Landing) {
        entry.progress.status = Status::SelectedToCrawl;
        let pick = Pick { flight: order.sequence, queue, order, entry };
        let extracted = read_page(&pick.entry.url, &fetched, &self.product_token, &self.extract, None);
        let captured = capture(&mut fetched, &extracted, pick.order.depth);
        let parsed = ParsedPage { pick: pick.clone(), fetched, extracted, captured, processed: None, parsing_ms: 0 };
        (pick, land(parsed, &self.follow))
    }

    async fn settle_all(
        &self,
        disk: &Disk,
        landings: Vec<(Pick, Landing)>,
        report: &mut ImportReport,
    ) -> Result<(), OseError> {
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
