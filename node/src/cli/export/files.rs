//! Raw contents in the file layout of the HCE Distributed Crawler: `<site>/<2 digits>/<30 digits>/<md5>_<time>.bin`, with `.headers.txt` and `.requests.txt` beside it.
//! Every version that was crawled is a set of files; nothing is overwritten, and what is there already is left alone.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use proto::date;
use proto::key::DEFAULT_CRAWL;
use proto::site::{GENERAL_SITE, md5_hex};

use super::super::{Complaint, Exit};
use crate::edges::decode::unpacked;
use crate::edges::store::{Store, StoreError, Stored};
use crate::edges::warc::{Record, RecordKind, WarcArchive};
use crate::extract::decoded;

/// Writes the contents of all these URLs into `folder`.
pub(super) fn write(
    store: &Store,
    urls: impl Iterator<Item = Result<Stored, StoreError>>,
    data: &Path,
    folder: &Path,
) -> Result<Exit, Complaint> {
    let mut archive = WarcArchive::new(&data.join("warc"));
    let (mut files, mut urls_written) = (0u64, 0u64);
    for stored in urls {
        let stored = stored.map_err(Complaint::data)?;
        let site = match stored.key.crawl() {
            // The name of a site that was emptied has a number behind it.
            Some(crawl) if crawl != DEFAULT_CRAWL => crawl.split('~').next().unwrap_or(crawl).to_owned(),
            _ => GENERAL_SITE.to_owned(),
        };
        let begins = store.begins(&stored.key).map_err(Complaint::data)?;
        let mut any = false;
        let mut newer: Option<Record> = None;
        // Oldest first: a version that says only "the same" has the payload of one before it.
        for (offer, position) in store.versions(&stored.key).map_err(Complaint::data)?.into_iter().rev() {
            let records = archive.read_capture_at(position).map_err(Complaint::data)?;
            let find = |wanted: &[RecordKind]| records.iter().find(|record| wanted.contains(&record.kind));
            let Some(answer) = find(&[RecordKind::Response, RecordKind::Revisit]) else { continue };
            if answer.kind == RecordKind::Response {
                newer = Some(answer.clone());
            }
            // What was forgotten is not written, and may still be what a later version repeats.
            let Some(payload) = newer.as_ref().filter(|_| offer.round >= begins) else { continue };
            let request = find(&[RecordKind::Request]).map(Record::http_head);
            let at = place(folder, &site, &stored.record.url, offer.unix_ms);
            files += write_version(&at, answer, payload, request, &stored.record.url)?;
            any = true;
        }
        urls_written += u64::from(any);
    }
    let text = format!("{files} files of {urls_written} URLs in {}", folder.display());
    writeln!(std::io::stdout(), "{text}").map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    Ok(Exit::Done)
}

/// Where a version lies, without its ending.
fn place(folder: &Path, site: &str, url: &str, unix_ms: u64) -> PathBuf {
    let md5 = md5_hex(url);
    // A site's id may hold anything but control characters; a folder's name may not.
    let site: String = site.chars().map(|c| if c == '/' || c == '\\' || c == '.' { '_' } else { c }).collect();
    let time = date::format(unix_ms).replace([' ', ':'], "_");
    folder.join(site).join(&md5[..2]).join(&md5[2..]).join(format!("{md5}_{time}"))
}

fn write_version(
    at: &Path,
    answer: &Record,
    payload: &Record,
    request: Option<&[u8]>,
    url: &str,
) -> Result<u64, Complaint> {
    if let Some(parent) = at.parent() {
        std::fs::create_dir_all(parent)
            .map_err(|error| Complaint::failed(format!("cannot make {}: {error}", parent.display())))?;
    }
    let body = utf8(unpacked(payload.http_head(), payload.payload()), payload, url);
    let parts =
        [(".bin", Some(body.as_slice())), (".headers.txt", Some(answer.http_head())), (".requests.txt", request)];
    let mut written = 0;
    for (ending, bytes) in parts {
        let Some(bytes) = bytes else { continue };
        let path = PathBuf::from(format!("{}{ending}", at.display()));
        if !path.exists() {
            std::fs::write(&path, bytes)
                .map_err(|error| Complaint::failed(format!("cannot write {}: {error}", path.display())))?;
            written += 1;
        }
    }
    Ok(written)
}

/// The original keeps text as UTF-8, and everything else as it is.
fn utf8(body: Vec<u8>, record: &Record, url: &str) -> Vec<u8> {
    let head = String::from_utf8_lossy(record.http_head()).into_owned();
    let types = head.lines().filter_map(|line| line.split_once(':'));
    let content_type =
        types.filter(|(name, _)| name.eq_ignore_ascii_case("content-type")).map(|(_, value)| value.trim()).next();
    let is_text = content_type.is_some_and(|name| name.starts_with("text/") || name.contains("xml"));
    if !is_text {
        return body;
    }
    let host = url.split('/').nth(2).unwrap_or_default();
    decoded(&body, content_type, host).into_owned().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_lie_where_the_original_puts_them() {
        let at = place(Path::new("/raw"), "news", "http://a.example/", 1_794_880_800_000);
        let text = at.to_str().unwrap();
        let md5 = md5_hex("http://a.example/");
        assert_eq!(text, format!("/raw/news/{}/{}/{md5}_2026-11-17_02_00_00", &md5[..2], &md5[2..]));
        assert!(place(Path::new("/raw"), "../x", "u", 0).starts_with("/raw/___x"));
    }
}
