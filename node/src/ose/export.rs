//! A site of a data folder as an OSE folder. What was imported is given back byte for byte; what the crawl has fetched since, or a site that was never imported, is
//! added by OSE's own rules: ids go on from the last one, answers come out of the archive, then `parse` and `merge` do what they always do.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use proto::ose::OseId;
use proto::ose::name::OseFile;
use proto::ose::row::OseRow;
use proto::ose::status::{OseStatus, Phase};
use proto::url::CanonicalUrl;
use serde::Serialize;

use super::answer::Meta;
use super::folder::{Folder, check_empty};
use super::import::outside;
use super::merge::{means, merge};
use super::parse::{ParseSettings, parse};
use super::{Damages, OseError};
use crate::edges::store::{Store, Stored};
use crate::edges::warc::{RecordKind, WarcArchive};

/// URLs of a site that are exported, some 400 bytes of memory each: 800 MB. More are counted.
const URLS_MAX: usize = 2_000_000;

/// What was exported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// Which site.
    pub site: String,
    /// Files that were imported and given back.
    pub files: u64,
    /// Answers that were added, or took the place of older ones.
    pub answers: u64,
    /// URLs that are known and were not crawled, added to `.urls`.
    pub urls: u64,
    /// Answers that are not in this archive.
    pub missing: u64,
    /// URLs for which there was no room.
    pub left_out: u64,
    /// Damaged rows.
    pub damages: Damages,
}

/// Exports what `store` has of `site` in `crawl` into a folder, which must not be there or be empty.
pub fn export(
    store: &Store,
    crawl: &str,
    site: &str,
    target: &Path,
    settings: &ParseSettings,
) -> Result<ExportReport, OseError> {
    check_empty(target)?;
    let part = beside(target);
    check_empty(&part)?;
    fs::create_dir_all(&part).map_err(OseError::io("make the folder", &part))?;
    let mut report = ExportReport { site: site.to_owned(), ..ExportReport::default() };
    let exported = fill(store, crawl, site, &part, settings, &mut report);
    if let Err(error) = exported {
        let _ = fs::remove_dir_all(&part); // it was empty before us
        return Err(error);
    }
    fs::rename(&part, target).map_err(OseError::io("rename to", target))?;
    Ok(report)
}

/// The folder under another name, until it is whole.
fn beside(target: &Path) -> std::path::PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".part");
    target.with_file_name(name)
}

fn fill(
    store: &Store,
    crawl: &str,
    site: &str,
    path: &Path,
    settings: &ParseSettings,
    report: &mut ExportReport,
) -> Result<(), OseError> {
    let imported = store.imported_site(site)?.filter(|imported| imported.crawl == crawl);
    if imported.is_some() {
        for file in store.imported_files(site) {
            let file = file?;
            let to = path.join(&file.name);
            let mut out = File::create(&to).map_err(OseError::io("write", &to))?;
            store.give_file(site, &file, &mut out).map_err(outside("write", &to))?;
            out.sync_all().map_err(OseError::io("sync", &to))?;
            report.files += 1;
        }
    }
    let folder = Folder::open(path)?;
    if !folder.has(OseFile::Urls) {
        folder.write(OseFile::Urls, b"")?;
    }
    let news = News::read(store, crawl, site, &folder, settings, report)?;
    if news.fetched.is_empty() && (imported.is_some() || news.waiting.is_empty()) {
        return match imported {
            Some(_) => Ok(()),
            None => Err(OseError::UnknownSite { site: site.to_owned() }),
        };
    }
    news.write(store, &folder, report, settings)?;
    report.damages.add(parse(&folder, settings)?.damages);
    report.damages.add(merge(&folder, &settings.rules.urls)?.damages);
    Ok(())
}

/// What the crawl knows and the folder does not.
#[derive(Default)]
struct News {
    fetched: BTreeMap<String, Stored>,
    waiting: BTreeSet<String>,
}

impl News {
    fn read(
        store: &Store,
        crawl: &str,
        site: &str,
        folder: &Folder,
        settings: &ParseSettings,
        report: &mut ExportReport,
    ) -> Result<News, OseError> {
        let mut known: BTreeMap<String, Option<u64>> = BTreeMap::new();
        for line in folder.lines(OseFile::Urls)? {
            if let Ok(row) = line?.row {
                known.insert(means(&row.url, &settings.rules.urls), row.streamed);
            }
        }
        let mut news = News::default();
        for stored in store.urls() {
            let stored = stored?;
            let url = CanonicalUrl::from_canonical(stored.record.url.clone());
            if stored.key.crawl() != Some(crawl) || !url.is_ok_and(|url| url.host() == site) {
                continue;
            }
            let url = stored.record.url.clone();
            let crawled = stored.record.findings.as_ref().filter(|found| found.http_code != 0);
            let crawled_at = crawled.map(|found| found.crawled_at);
            let is_news = match (known.get(&url), crawled_at) {
                (Some(Some(streamed)), Some(crawled_at)) => crawled_at > *streamed,
                (_, Some(_)) => true,
                (None, None) => true,
                (Some(_), None) => false,
            };
            if !is_news {
                continue;
            }
            if known.len() + news.fetched.len() + news.waiting.len() >= URLS_MAX {
                report.left_out += 1;
            } else if crawled_at.is_some() {
                news.fetched.insert(url, stored);
            } else {
                news.waiting.insert(url);
            }
        }
        Ok(news)
    }

    /// Writes answers and rows; the folder is then in state 2.
    fn write(
        mut self,
        store: &Store,
        folder: &Folder,
        report: &mut ExportReport,
        settings: &ParseSettings,
    ) -> Result<(), OseError> {
        for working in [2, 3, 4].map(OseFile::Working).into_iter().filter(|file| folder.has(*file)) {
            fs::remove_file(folder.file(working)).map_err(OseError::io("remove", folder.path()))?;
        }
        let mut archive = WarcArchive::new(&store.dir().join("warc"));
        let mut last = folder.status()?.last;
        let mut old = folder.lines(OseFile::Urls)?;
        let (mut new, _) = folder.rewrite(OseFile::Working(2), &mut old)?;
        for line in old {
            let line = line?;
            let news = line.row.as_ref().ok().and_then(|row| {
                last = last.max(row.id.unwrap_or_default());
                self.fetched.remove(&means(&row.url, &settings.rules.urls)).map(|stored| (row, stored))
            });
            let row = match news {
                Some((row, stored)) => {
                    answer(store, &mut archive, folder, &stored, row.id, &mut last, &row.url, report)?
                }
                None => None,
            };
            match row {
                Some(row) => new.push(row.to_line().as_bytes())?,
                None => new.push(&line.bytes)?,
            }
        }
        for (url, stored) in &self.fetched {
            let row = answer(store, &mut archive, folder, stored, None, &mut last, url, report)?;
            new.push(row.unwrap_or_else(|| OseRow::new(url.as_str())).to_line().as_bytes())?;
        }
        for url in &self.waiting {
            new.push(OseRow::new(url.as_str()).to_line().as_bytes())?;
            report.urls += 1;
        }
        new.sync(folder)?;
        folder.replace_urls(OseFile::Working(2))?;
        folder.set_status(OseStatus { phase: Phase::Fetched, last })
    }
}

/// Writes the answer of a URL, under its id or the next one; `None` if it is not in this archive.
#[allow(clippy::too_many_arguments)] // one row of a loop, taken out of it
fn answer(
    store: &Store,
    archive: &mut WarcArchive,
    folder: &Folder,
    stored: &Stored,
    id: Option<OseId>,
    last: &mut OseId,
    url: &str,
    report: &mut ExportReport,
) -> Result<Option<OseRow>, OseError> {
    let Some((head, body, remote)) = archived(store, archive, stored)? else {
        report.missing += 1;
        return Ok(None);
    };
    let id = match id {
        Some(id) => id,
        None => last.next().ok_or(OseError::NoMoreIds)?,
    };
    *last = id.max(*last);
    let found = stored.record.findings.as_ref().expect("only what was crawled is asked for");
    let meta = Meta {
        url: url.to_owned(),
        http_code: found.http_code,
        streamed_ms: found.crawled_at,
        elapsed_ms: found.crawling_ms,
        remote,
        head_bytes: head.len(),
        body_bytes: body.len(),
        ..Meta::default()
    };
    folder.write(OseFile::Answer(id), &[head, body].concat())?;
    folder.write(OseFile::Meta(id), &meta.to_bytes())?;
    report.answers += 1;
    Ok(Some(OseRow {
        id: Some(id),
        code: Some(meta.http_code.min(999)),
        streamed: Some(meta.streamed_ms),
        parsed: None,
        url: url.to_owned(),
    }))
}

/// Head and body of the newest answer of a URL, and who gave it. A page that did not change, or that another URL gave before, has its body there.
#[allow(clippy::type_complexity)] // taken apart by its one caller
fn archived(
    store: &Store,
    archive: &mut WarcArchive,
    stored: &Stored,
) -> Result<Option<(Vec<u8>, Vec<u8>, Option<String>)>, OseError> {
    let Some(content) = store.content(&stored.key)? else { return Ok(None) };
    let record = archive.read_at(content.position)?;
    let remote = record.header("WARC-IP-Address").map(str::to_owned);
    let head = record.http_head().to_vec();
    if record.kind != RecordKind::Revisit {
        return Ok(Some((head, record.payload().to_vec(), remote)));
    }
    let digest = stored.record.findings.as_ref().map(|found| found.digest).unwrap_or_default();
    let Some((_, first, _)) = store.first_with(&digest)? else { return Ok(None) };
    let first = archive.read_at(first.position)?;
    Ok(Some((head, first.payload().to_vec(), remote)))
}
