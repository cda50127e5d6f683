//! `ctl url content`: reads a page from whichever node has it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use proto::control::content::{ContentAnswer, ContentRequest, NodeVersions, Version};
use proto::control::{Answer, Request};
use proto::key::DEFAULT_CRAWL;
use serde_json::{Value, json};

use super::super::progress::say;
use super::super::{Complaint, Exit};
use super::{Connection, name};
use crate::edges::decode::{Decoder, parse_encodings};
use crate::edges::warc::{PayloadDigest, Record, RecordId, parse_members};

/// A page that is unpacked to more than this is written as it was transferred.
const DECODED_BYTES_MAX: usize = 1 << 30;

const EXAMPLES: &str = "Examples:
  orbweaver ctl url content https://example.com/ > page.html
  orbweaver ctl url content https://example.com/ --what warc --output page.warc.gz
  orbweaver ctl --json url content https://example.com/       who has which version, and its digest";

/// Arguments of `url content`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ContentArguments {
    /// The URL
    url: String,
    /// Its crawl
    #[arg(long, default_value = DEFAULT_CRAWL)]
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
}

/// A version, and the nodes that have it.
struct Held {
    version: Version,
    nodes: Vec<u64>,
}

/// A version that was read.
struct Page {
    held: Held,
    members: Vec<u8>,
    response: Record,
}

struct Reading<'a> {
    connection: &'a Connection,
    crawl: &'a str,
}

/// Reads a page.
pub(super) async fn content(
    connection: &Connection,
    arguments: &ContentArguments,
    as_json: bool,
) -> Result<Exit, Complaint> {
    let reading = Reading { connection, crawl: &arguments.crawl };
    let (mut versions, missing) = reading.find(&arguments.url).await?;
    versions.retain(|held| arguments.round.is_none_or(|round| held.version.round == round));
    let Some(newest) = versions.iter().map(|held| held.version.round).max() else {
        let silent = if missing.is_empty() { String::new() } else { format!(" ({})", missing.join("; ")) };
        return Err(Complaint::failed(format!("no node that answers has a version of {}{silent}", arguments.url)));
    };
    let (page, payload) = reading.read(&arguments.url, versions, arguments.round.unwrap_or(newest)).await?;
    let bytes = match arguments.what {
        What::Warc => page.members.clone(),
        What::Head => page.response.http_head().to_vec(),
        What::Raw => payload.payload().to_vec(),
        What::Body => unpacked(&payload),
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

/// The payload without its content encoding; as it is, if that cannot be undone.
fn unpacked(record: &Record) -> Vec<u8> {
    let head = String::from_utf8_lossy(record.http_head()).into_owned();
    let values: Vec<&[u8]> = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"))
        .map(|(_, value)| value.trim().as_bytes())
        .collect();
    let encodings = parse_encodings(values).unwrap_or_default();
    let mut decoder = Decoder::new(&encodings, DECODED_BYTES_MAX);
    match decoder.push(record.payload()) {
        Ok(()) => decoder.finish().body,
        Err(_) => record.payload().to_vec(),
    }
}

impl Reading<'_> {
    /// The versions of a page, newest first, and who did not answer.
    async fn find(&self, url: &str) -> Result<(Vec<Held>, Vec<String>), Complaint> {
        let request = ContentRequest::Find { crawl: self.crawl.to_owned(), url: url.to_owned() };
        let found = match self.connection.ask(&Request::Content(request)).await? {
            Answer::Content(ContentAnswer::Found(found)) => found,
            Answer::Refused(why) => return Err(Complaint::failed(why)),
            other => return Err(Complaint::failed(format!("the node answered {other:?}"))),
        };
        let mut missing = Vec::new();
        let mut held: BTreeMap<[u8; 16], Held> = BTreeMap::new();
        for NodeVersions { node, versions } in found {
            match versions {
                Ok(versions) => {
                    for version in versions {
                        let held = held.entry(version.record_id).or_insert_with(|| Held { version, nodes: Vec::new() });
                        held.nodes.push(node);
                    }
                }
                Err(why) => missing.push(format!("{}: {why}", name(node))),
            }
        }
        let mut held: Vec<Held> = held.into_values().collect();
        held.sort_by_key(|held| std::cmp::Reverse((held.version.round, held.version.unix_ms)));
        Ok((held, missing))
    }

    /// Reads the first version of `round` that can be read, and the record that has its payload.
    async fn read(&self, url: &str, versions: Vec<Held>, round: u32) -> Result<(Page, Record), Complaint> {
        let mut failures = Vec::new();
        let (of_round, older): (Vec<Held>, Vec<Held>) = versions
            .into_iter()
            .filter(|held| held.version.round <= round)
            .partition(|held| held.version.round == round);
        for held in of_round {
            let (members, response) = match self.members(url, &held).await {
                Ok(read) => read,
                Err(why) => {
                    failures.push(why);
                    continue;
                }
            };
            let page = Page { held, members, response };
            let is_not_modified = page.response.http_head().starts_with(b"HTTP/1.1 304");
            if !page.held.version.revisit && !is_not_modified {
                let payload = page.response.clone();
                return Ok((page, payload));
            }
            match self.payload(url, &page, &older).await {
                Ok(payload) => return Ok((page, payload)),
                Err(why) => failures.push(why),
            }
        }
        Err(Complaint::failed(format!("{url} cannot be read: {}", failures.join("; "))))
    }

    /// Finds the payload of a version that only refers to an earlier one: of the same page, or of the page that it names.
    async fn payload(&self, url: &str, page: &Page, older: &[Held]) -> Result<Record, String> {
        let digest = page.held.version.payload_digest;
        let has_it = |held: &&Held| {
            !held.version.revisit && (held.version.payload_digest == digest || !page.held.version.revisit)
        };
        if let Some(held) = older.iter().find(has_it) {
            return self.members(url, held).await.map(|(_, record)| record);
        }
        let original = page.response.header("WARC-Refers-To-Target-URI").ok_or("no earlier version of it is there")?;
        let (versions, _) = self.find(original).await.map_err(|complaint| complaint.text().to_owned())?;
        let mut failures = BTreeSet::new();
        for held in versions.iter().filter(|held| !held.version.revisit && held.version.payload_digest == digest) {
            match self.members(original, held).await {
                Ok((_, record)) => return Ok(record),
                Err(why) => drop(failures.insert(why)),
            }
        }
        let why: Vec<String> = failures.into_iter().collect();
        Err(format!("it repeats {original}, of which no version with that content can be read {}", why.join("; ")))
    }

    /// Reads the records of a version from a node that has it, and checks them.
    async fn members(&self, url: &str, held: &Held) -> Result<(Vec<u8>, Record), String> {
        let mut failures = Vec::new();
        for node in &held.nodes {
            match self.members_from(*node, url, &held.version).await {
                Ok(members) => match parse_members(&members).map(|records| records.into_iter().next()) {
                    Ok(Some(record)) => return Ok((members, record)),
                    Ok(None) => failures.push(format!("{}: nothing", name(*node))),
                    Err(error) => failures.push(format!("{}: {error}", name(*node))),
                },
                Err(why) => failures.push(format!("{}: {why}", name(*node))),
            }
        }
        Err(failures.join("; "))
    }

    async fn members_from(&self, node: u64, url: &str, version: &Version) -> Result<Vec<u8>, String> {
        let mut members = Vec::new();
        loop {
            let (crawl, url, record_id) = (self.crawl.to_owned(), url.to_owned(), version.record_id);
            let request = ContentRequest::Read { node, crawl, url, record_id, from: members.len() as u32 };
            match self.connection.ask(&Request::Content(request)).await {
                Ok(Answer::Content(ContentAnswer::Part { bytes, total })) => {
                    if bytes.is_empty() {
                        return Err("it ends too soon".to_owned());
                    }
                    members.extend_from_slice(&bytes);
                    if members.len() >= total as usize {
                        return Ok(members);
                    }
                }
                Ok(Answer::Refused(why)) => return Err(why),
                Ok(other) => return Err(format!("answered {other:?}")),
                Err(complaint) => return Err(complaint.text().to_owned()),
            }
        }
    }
}
