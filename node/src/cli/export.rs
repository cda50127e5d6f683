//! `orbweaver export`: what a crawl found, as JSON lines, CSV or a list of URLs. Reads also while the crawl runs.

mod files;

use std::collections::BTreeMap;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use proto::record::{Status, UrlState};
use serde::Serialize;

use super::{Complaint, Exit};
use crate::edges::store::{Store, Stored};
use crate::edges::warc::{WarcArchive, processed, segments};

const EXAMPLES: &str = "Examples:
  orbweaver export orbweaver-data --format jsonl > pages.jsonl
  orbweaver export orbweaver-data --format csv --output pages.csv --only fetched
  orbweaver export orbweaver-data --format urls --only failed
  orbweaver export orbweaver-data --format processed --crawl news > articles.jsonl
  orbweaver export orbweaver-data --format files --output /srv/raw
  orbweaver export orbweaver-data --tasks out          jobs, tasks and logs of a running node, for mongoimport
  orbweaver export orbweaver-data --tasks mongodb://127.0.0.1/source --follow 10s
                                                       straight into a database, again and again (needs the feature mongodb)";

/// Arguments of `export`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExportArguments {
    /// The data folder of a crawl
    data: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Format,
    /// Which URLs
    #[arg(long, value_enum, default_value = "all")]
    only: Only,
    /// Only URLs of the crawl of this name, where a folder has several [default: all]
    #[arg(long, value_name = "NAME")]
    crawl: Option<String>,
    /// Also pages that ask not to be indexed
    #[arg(long)]
    with_noindex: bool,
    /// File to write instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Ask the node of this folder for jobs, tasks and logs, and write them into a folder for mongoimport, one file a collection; or into the
    /// database that mongodb://… names
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "crawl", "with_noindex"])]
    tasks: Option<PathBuf>,
    /// With a database: go on, and write what is new or changed this often
    #[arg(long, value_name = "TIME", requires = "tasks", value_parser = super::units::parse_time)]
    follow: Option<std::time::Duration>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// One JSON object a line
    Jsonl,
    /// Comma-separated values with a heading
    Csv,
    /// One URL a line
    Urls,
    /// What the rules of sites made of their pages: one JSON object a line
    Processed,
    /// Raw contents as files in folders, as the HCE Distributed Crawler keeps them; --output names the folder
    Files,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Every known URL
    All,
    /// URLs that gave an answer below 400
    Fetched,
    /// URLs that failed for good
    Failed,
    /// URLs that wait
    New,
    /// URLs that no run has asked for because its rules did not admit them
    Aside,
}

/// One URL as it is exported.
#[derive(Serialize)]
struct Row<'a> {
    url: &'a str,
    crawl: &'a str,
    id: String,
    status: &'static str,
    state: &'static str,
    http_code: Option<u16>,
    error: Option<String>,
    /// As text: a JSON number is exact up to 2^53 only.
    error_mask: String,
    content_type: Option<&'a str>,
    charset: Option<&'a str>,
    language: Option<&'a str>,
    title: Option<&'a str>,
    size: Option<u64>,
    digest: Option<String>,
    fingerprint: Option<String>,
    etag: Option<&'a str>,
    last_modified: Option<&'a str>,
    depth: u16,
    priority: u16,
    inlinks: u32,
    links_internal: u32,
    links_external: u32,
    parent: Option<String>,
    redirect: Option<&'a str>,
    canonical: Option<&'a str>,
    noindex: bool,
    duplicate_of: Option<String>,
    discovered_at_ms: u64,
    crawled_at_ms: Option<u64>,
    crawling_ms: u32,
    round: u32,
    crawled: u32,
    changes: u32,
    unchanged: u32,
    warc_file: Option<String>,
    warc_offset: Option<u64>,
    warc_length: Option<u32>,
}

/// Runs an export.
pub(super) fn run(arguments: &ExportArguments) -> Result<Exit, Complaint> {
    if let Some(folder) = &arguments.tasks {
        return super::tasks::export(&arguments.data, folder, arguments.follow);
    }
    let store = Store::open_for_reading(&arguments.data).map_err(Complaint::data)?;
    let files: BTreeMap<u32, String> = segments(&arguments.data.join("warc"))
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(number, path)| Some((number, path.file_name()?.to_str()?.to_owned())))
        .collect();
    if matches!(arguments.format, Format::Files) {
        let Some(folder) = &arguments.output else {
            return Err(Complaint::usage("--format files needs --output FOLDER"));
        };
        let wanted = store.urls().filter(|stored| stored.as_ref().map_or(true, |stored| is_wanted(stored, arguments)));
        return files::write(&store, wanted, &arguments.data, folder);
    }
    let out: Box<dyn Write> = match &arguments.output {
        Some(path) => Box::new(
            std::fs::File::create(path)
                .map_err(|error| Complaint::usage(format!("cannot write {}: {error}", path.display())))?,
        ),
        None => Box::new(std::io::stdout().lock()),
    };
    let written = match arguments.format {
        Format::Processed => write_processed(&store, arguments, out),
        _ => write(&store, &files, arguments, out),
    };
    match written {
        Ok(()) => Ok(Exit::Done),
        // Whoever read our output has read enough, as `head` does.
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(Failure::Output(error)) => Err(Complaint::failed(format!("cannot write the export: {error}"))),
        Err(Failure::Store(error)) => Err(Complaint::data(error)),
    }
}

enum Failure {
    Output(std::io::Error),
    Store(crate::edges::store::StoreError),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Output(error)
    }
}

impl From<csv::Error> for Failure {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Failure::Output(error),
            other => Failure::Output(std::io::Error::other(format!("{other:?}"))),
        }
    }
}

fn write(
    store: &Store,
    files: &BTreeMap<u32, String>,
    arguments: &ExportArguments,
    out: Box<dyn Write>,
) -> Result<(), Failure> {
    let wanted = store.urls().filter(|stored| stored.as_ref().map_or(true, |stored| is_wanted(stored, arguments)));
    let mut out = BufWriter::new(out);
    match arguments.format {
        Format::Processed | Format::Files => unreachable!("they go their own ways"),
        Format::Urls => {
            for stored in wanted {
                writeln!(out, "{}", stored.map_err(Failure::Store)?.record.url)?;
            }
        }
        Format::Jsonl => {
            for stored in wanted {
                let stored = stored.map_err(Failure::Store)?;
                serde_json::to_writer(&mut out, &row(store, files, &stored)?).map_err(std::io::Error::from)?;
                out.write_all(b"\n")?;
            }
        }
        Format::Csv => {
            let mut table = csv::Writer::from_writer(&mut out);
            for stored in wanted {
                let stored = stored.map_err(Failure::Store)?;
                table.serialize(row(store, files, &stored)?)?;
            }
            table.flush()?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Writes what the rules of sites made of pages, each of the newest version of which they made something.
fn write_processed(store: &Store, arguments: &ExportArguments, out: Box<dyn Write>) -> Result<(), Failure> {
    let mut archive = WarcArchive::new(&arguments.data.join("warc"));
    let mut out = BufWriter::new(out);
    for stored in store.urls() {
        let stored = stored.map_err(Failure::Store)?;
        if !is_wanted(&stored, arguments) || stored.record.findings.as_ref().is_none_or(|found| found.processed == 0) {
            continue;
        }
        let begins = store.begins(&stored.key).map_err(Failure::Store)?;
        let versions = store.versions(&stored.key).map_err(Failure::Store)?;
        for (_, position) in versions.into_iter().filter(|(offer, _)| offer.round >= begins) {
            let records = archive.read_capture_at(position).map_err(std::io::Error::other)?;
            let Some(record) = processed(&records) else { continue };
            let mut json: serde_json::Value = serde_json::from_slice(record).map_err(std::io::Error::from)?;
            if let serde_json::Value::Object(fields) = &mut json {
                fields.insert("site".to_owned(), stored.key.crawl().unwrap_or_default().into());
                fields.insert("id".to_owned(), stored.key.id().to_string().into());
            }
            serde_json::to_writer(&mut out, &json).map_err(std::io::Error::from)?;
            out.write_all(b"\n")?;
            break;
        }
    }
    out.flush()?;
    Ok(())
}

fn is_wanted(stored: &Stored, arguments: &ExportArguments) -> bool {
    let record = &stored.record;
    let noindex = record.findings.as_ref().is_some_and(|found| found.noindex);
    let kind = match arguments.only {
        Only::All => true,
        Only::Fetched => record.progress.status == Status::Processed,
        Only::Failed => record.progress.status == Status::Crawled && record.state == UrlState::Error,
        Only::New => record.progress.status == Status::New,
        Only::Aside => record.state == UrlState::Disabled,
    };
    let kind = kind && !record.state.is_gone();
    let kind = kind && arguments.crawl.as_deref().is_none_or(|crawl| stored.key.crawl() == Some(crawl));
    kind && (arguments.with_noindex || !noindex)
}

fn row<'a>(store: &Store, files: &BTreeMap<u32, String>, stored: &'a Stored) -> Result<Row<'a>, Failure> {
    let record = &stored.record;
    let begins = store.begins(&stored.key).map_err(Failure::Store)?;
    let newest = store.versions(&stored.key).map_err(Failure::Store)?.into_iter().next();
    let position = newest.filter(|(offer, _)| offer.round >= begins).map(|(_, position)| position);
    let found = record.findings.as_deref();
    let validators = found.and_then(|found| found.validators.as_ref());
    Ok(Row {
        url: &record.url,
        crawl: stored.key.crawl().unwrap_or_default(),
        id: stored.key.id().to_string(),
        status: record.progress.status.name(),
        state: match record.state {
            UrlState::Enabled => "enabled",
            UrlState::Disabled => "set_aside",
            UrlState::Error => "error",
            UrlState::Deleted | UrlState::Purged => "deleted",
        },
        http_code: found.map(|found| found.http_code).filter(|code| *code != 0),
        error: found.and_then(|found| found.failure).map(|failure| failure.to_string()),
        error_mask: record.error_mask.0.to_string(),
        content_type: found.map(|found| found.content_type.as_str()).filter(|name| !name.is_empty()),
        charset: found.and_then(|found| found.charset.as_deref()),
        language: found.and_then(|found| found.language.as_deref()),
        title: found.and_then(|found| found.title.as_deref()),
        size: found.map(|found| found.size),
        digest: found.filter(|found| found.digest != [0; 16]).map(|found| hex(&found.digest)),
        fingerprint: found.and_then(|found| found.fingerprint).map(|bits| format!("{bits:016x}")),
        etag: validators.and_then(|validators| validators.etag.as_deref()),
        last_modified: validators.and_then(|validators| validators.last_modified.as_deref()),
        depth: record.depth,
        priority: record.priority,
        inlinks: stored.inlinks,
        links_internal: found.map_or(0, |found| found.links_internal),
        links_external: found.map_or(0, |found| found.links_external),
        parent: record.parent.map(|parent| parent.to_string()),
        redirect: found.and_then(|found| found.redirect.as_deref()),
        canonical: found.and_then(|found| found.canonical.as_deref()),
        noindex: found.is_some_and(|found| found.noindex),
        duplicate_of: found.and_then(|found| found.duplicate_of).map(|id| id.to_string()),
        discovered_at_ms: record.discovered_at,
        crawled_at_ms: found.map(|found| found.crawled_at),
        crawling_ms: found.map_or(0, |found| found.crawling_ms),
        round: record.progress.round,
        crawled: found.map_or(0, |found| found.crawled),
        changes: found.map_or(0, |found| found.changes),
        unchanged: found.map_or(0, |found| found.unchanged),
        warc_file: position.and_then(|position| files.get(&position.segment).cloned()),
        warc_offset: position.map(|position| position.offset),
        warc_length: position.map(|position| position.length),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
