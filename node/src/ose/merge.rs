//! OSEM003: brings all links together. Those of the site that `.urls` does not have are put at its end, in order; the others go to `.externalurls`, sorted, each once.
//!
//! A URL is of the site if its host is that of the first URL in `.urls`. Both files are written anew and renamed, `.externalurls` first, so that a run that is
//! killed is simply repeated. Equal are URLs that mean the same (`HTTP://A.example` and `http://a.example/`), not only those that look the same.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};

use proto::ose::name::OseFile;
use proto::ose::row::OseRow;
use proto::ose::status::{OseStatus, Phase};
use proto::url::{CanonicalUrl, URL_BYTES_MAX, UrlRules};
use serde::Serialize;
use tracing::info;

use super::folder::Folder;
use super::{Damages, OseError};

/// URLs of a folder that a merge keeps in mind, some 150 bytes each: 300 MB. Links beyond them stay in their `.links.` files.
const URLS_MAX: usize = 2_000_000;

/// What a run has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MergeReport {
    /// URLs that came to `.urls`.
    pub added: u64,
    /// URLs of other sites that came to `.externalurls`.
    pub external: u64,
    /// Links for which there was no room.
    pub left_out: u64,
    /// Damaged rows.
    pub damages: Damages,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// The host whose folder this is.
pub fn site(folder: &Folder, rules: &UrlRules) -> Result<String, OseError> {
    for line in folder.lines(OseFile::Urls)? {
        if let Ok(url) = line?.row.map_err(drop).and_then(|row| CanonicalUrl::parse(&row.url, rules).map_err(drop)) {
            return Ok(url.host().to_owned());
        }
    }
    Err(OseError::NoSite(folder.path().to_owned()))
}

/// Runs the program, in state 4.
pub fn merge(folder: &Folder, rules: &UrlRules) -> Result<MergeReport, OseError> {
    let status = folder.status()?;
    if status.phase != Phase::Parsed {
        return Err(OseError::NotNow { program: "merge", wanted: Phase::Parsed, found: status.phase });
    }
    let started = std::time::Instant::now();
    let mut report = MergeReport::default();
    let mut known = BTreeSet::new();
    for line in folder.lines(OseFile::Urls)? {
        let line = line?;
        match &line.row {
            Ok(row) => {
                known.insert(means(&row.url, rules));
            }
            Err(damaged) => report.damages.note(damaged.clone()),
        }
    }
    let site = site(folder, rules)?;
    let mut external: BTreeSet<String> = BTreeSet::new();
    if folder.has(OseFile::External) {
        each_line(folder, OseFile::External, |link| {
            external.insert(link.to_owned());
        })?;
    }
    let external_before = external.len();
    let mut fresh = BTreeSet::new();
    let links = folder.list()?.0.into_iter().filter(|file| matches!(file, OseFile::Links(_)));
    for file in links {
        each_line(folder, file, |link| {
            let url = CanonicalUrl::parse(link, rules);
            let is_own = url.as_ref().is_ok_and(|url| url.host() == site);
            let room = known.len() + fresh.len() + external.len() < URLS_MAX;
            match (is_own, room) {
                (true, _) if known.contains(&means(link, rules)) || fresh.contains(link) => {}
                (false, _) if external.contains(link) => {}
                (_, false) => report.left_out += 1,
                (true, true) => drop(fresh.insert(link.to_owned())),
                (false, true) => drop(external.insert(link.to_owned())),
            }
        })?;
    }
    // Links of strict parsing may mean the same and look different.
    let mut met = BTreeSet::new();
    fresh.retain(|link| met.insert(means(link, rules)));

    report.external = (external.len() - external_before) as u64;
    let mut lines: Vec<u8> = Vec::new();
    for link in &external {
        lines.extend_from_slice(link.as_bytes());
        lines.push(b'\n');
    }
    folder.write(OseFile::External, &lines)?;
    if folder.has(OseFile::Working(4)) {
        std::fs::remove_file(folder.file(OseFile::Working(4))).map_err(OseError::io("remove", folder.path()))?;
    }
    let mut old = folder.lines(OseFile::Urls)?;
    let (mut new, _) = folder.rewrite(OseFile::Working(4), &mut old)?;
    for line in old {
        new.push(&line?.bytes)?;
    }
    for link in &fresh {
        new.push(OseRow::new(link.as_str()).to_line().as_bytes())?;
        report.added += 1;
    }
    new.sync(folder)?;
    folder.replace_urls(OseFile::Working(4))?;
    folder.set_status(OseStatus { phase: Phase::Idle, ..status })?;
    report.elapsed_ms = started.elapsed().as_millis() as u64;
    info!(folder = %folder.path().display(), added = report.added, elapsed_ms = report.elapsed_ms, "merged");
    Ok(report)
}

/// What two URLs have in common that mean the same.
pub(super) fn means(url: &str, rules: &UrlRules) -> String {
    CanonicalUrl::parse(url, rules).map_or_else(|_| url.to_owned(), CanonicalUrl::into_string)
}

/// Hands over the lines of a file of links; what cannot be a link is passed over.
fn each_line(folder: &Folder, file: OseFile, mut take: impl FnMut(&str)) -> Result<(), OseError> {
    let path = folder.file(file);
    let mut reader = BufReader::new(std::fs::File::open(&path).map_err(OseError::io("open", &path))?);
    let mut line = Vec::new();
    let mut within = false; // the rest of a line that is longer than any link
    loop {
        line.clear();
        let limit = URL_BYTES_MAX as u64 + 2;
        let read = (&mut reader).take(limit).read_until(b'\n', &mut line).map_err(OseError::io("read", &path))?;
        if read == 0 {
            return Ok(());
        }
        let is_rest = std::mem::replace(&mut within, line.last() != Some(&b'\n'));
        let link = std::str::from_utf8(&line).map(str::trim).unwrap_or_default();
        if !is_rest && !link.is_empty() && link.len() <= URL_BYTES_MAX && !link.chars().any(char::is_control) {
            take(link);
        }
    }
}
