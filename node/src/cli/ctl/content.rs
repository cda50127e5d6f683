//! `ctl url content`: reads a page from whichever node has it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use proto::control::content::{ContentAnswer, ContentRequest};
use proto::control::{Answer, Request};
use proto::key::DEFAULT_CRAWL;
use serde_json::{Value, json};

use super::super::progress::say;
use super::super::{Complaint, Exit};
use super::{Connection, name};
use crate::clustered::reading::{AskContent, Held, Page, Reading};
use crate::edges::decode::unpacked;
use crate::edges::warc::{PayloadDigest, Record, RecordId};

const EXAMPLES: &str = "Examples:
  orbweaver ctl url content https://example.com/ > page.html
  orbweaver ctl url content https://example.com/ --what warc --output page.warc.gz
  orbweaver ctl url content https://example.com/ --site news --what processed
  orbweaver ctl --json url content https://example.com/       who has which version, and its digest";

/// Arguments of `url content`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ContentArguments {
    /// The URL
    url: String,
    /// Its crawl, or its site
    #[arg(long, visible_alias = "site", default_value = DEFAULT_CRAWL)]
    crawl: String,
    /// Only this round; the newest without it
    #[arg(long)]
    round: Option<u32>,
    /// What to write
    #[arg(long, value_enum, default_value = "body")]
    what: What,
    /// File to write it to, instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// The body, unpacked
    Body,
    /// The body as it was transferred
    Raw,
    /// Status line and headers
    Head,
    /// The WARC records, as they are in the archive
    Warc,
    /// What the rules of its site made of it, as JSON
    Processed,
}

/// Reads a page.
pub(super) async fn content(
    connection: &Connection,
    arguments: &ContentArguments,
    as_json: bool,
) -> Result<Exit, Complaint> {
    let reading = Reading { asked: connection, crawl: &arguments.crawl };
    let (versions, missing) = reading.find(&arguments.url).await.map_err(Complaint::failed)?;
    let begins = reading.begins(&arguments.url).await.map_err(Complaint::failed)?;
    let is_meant = |round: u32| round >= begins && arguments.round.is_none_or(|only| round == only);
    let meant: Vec<Held> = versions.iter().filter(|held| is_meant(held.version.round)).cloned().collect();
    let Some(newest) = meant.iter().map(|held| held.version.round).max() else {
        let silent = if missing.is_empty() { String::new() } else { format!(" ({})", missing.join("; ")) };
        return Err(Complaint::failed(format!("no node that answers has a version of {}{silent}", arguments.url)));
    };
    if arguments.what == What::Processed {
        let nothing = || Complaint::failed(format!("nothing was made of {} by the rules of a site", arguments.url));
        let (_, record) =
            reading.processed_of(&arguments.url, &meant).await.map_err(Complaint::failed)?.ok_or_else(nothing)?;
        return written(&record, arguments.output.as_deref()).map(|()| Exit::Done);
    }
    let read = reading.read(&arguments.url, versions, newest).await;
    let (page, payload) = read.map_err(Complaint::failed)?;
    let bytes = match arguments.what {
        What::Processed => unreachable!("told above"),
        What::Warc => page.members.clone(),
        What::Head => page.response.http_head().to_vec(),
        What::Raw => payload.payload().to_vec(),
        What::Body => unpacked(payload.http_head(), payload.payload()),
    };
    if let Some(path) = &arguments.output {
        std::fs::write(path, &bytes)
            .map_err(|error| Complaint::failed(format!("cannot write {}: {error}", path.display())))?;
    }
    let written = |error: std::io::Error| Complaint::failed(format!("cannot write: {error}"));
    if as_json {
        say(&facts(arguments, &page, &payload, &bytes, &missing)).map_err(written)?;
    } else if arguments.output.is_none() {
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes).and_then(|()| out.flush()).map_err(written)?;
    }
    Ok(Exit::Done)
}

fn facts(arguments: &ContentArguments, page: &Page, payload: &Record, bytes: &[u8], missing: &[String]) -> Value {
    let Held { version, nodes } = &page.held;
    let status = std::str::from_utf8(page.response.http_head()).ok().and_then(|head| head.split(' ').nth(1));
    json!({
        "url": arguments.url,
        "crawl": arguments.crawl,
        "round": version.round,
        "fetched_unix_ms": version.unix_ms,
        "http_code": status.and_then(|code| code.parse::<u16>().ok()),
        "record_id": RecordId(version.record_id).to_string(),
        "revisit": version.revisit,
        "payload_digest": PayloadDigest::of(payload.payload()).to_string(),
        "payload_bytes": payload.payload().len(),
        "written_bytes": bytes.len(),
        "nodes": nodes.iter().map(|node| name(*node)).collect::<Vec<String>>(),
        "missing": missing,
    })
}

/// Writes JSON for people.
fn written(record: &[u8], output: Option<&std::path::Path>) -> Result<(), Complaint> {
    let json: Value = serde_json::from_slice(record)
        .map_err(|error| Complaint::failed(format!("what was kept is no JSON: {error}")))?;
    match output {
        Some(path) => std::fs::write(path, format!("{json:#}\n"))
            .map_err(|error| Complaint::failed(format!("cannot write {}: {error}", path.display()))),
        None => say(&format!("{json:#}")).map_err(|error| Complaint::failed(format!("cannot write: {error}"))),
    }
}

impl AskContent for Connection {
    async fn ask(&self, request: ContentRequest) -> Result<ContentAnswer, String> {
        match Connection::ask(self, &Request::Content(request)).await {
            Ok(Answer::Content(answer)) => Ok(answer),
            Ok(Answer::Refused(why)) => Err(why),
            Ok(other) => Err(format!("the node answered {other:?}")),
            Err(complaint) => Err(complaint.text().to_owned()),
        }
    }
}
