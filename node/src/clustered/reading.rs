//! Reads versions of pages from whichever node has them: for people at a terminal, and for operations that are answered by a node.

use std::collections::{BTreeMap, BTreeSet};

use proto::control::content::{ContentAnswer, ContentRequest, NodeVersions, Version};
use proto::id::Round;

use crate::edges::warc::{Record, parse_members, processed};

/// Whoever can be asked about contents of all nodes.
pub trait AskContent: Sync {
    /// Asks.
    fn ask(&self, request: ContentRequest) -> impl Future<Output = Result<ContentAnswer, String>> + Send;
}

/// A version, and the nodes that have it.
#[derive(Clone)]
pub struct Held {
    /// The version.
    pub version: Version,
    /// Who has it.
    pub nodes: Vec<u64>,
}

/// A version that was read.
pub struct Page {
    /// Which.
    pub held: Held,
    /// Its records, as they are in the archive.
    pub members: Vec<u8>,
    /// The first of them.
    pub response: Record,
}

/// Reads pages of one crawl.
pub struct Reading<'a, A> {
    /// Who is asked.
    pub asked: &'a A,
    /// The crawl.
    pub crawl: &'a str,
}

fn name(node: u64) -> String {
    format!("{node:016x}")
}

impl<A: AskContent> Reading<'_, A> {
    /// What the rules of its site made of a page, of the newest version of which they made something; when that was fetched too.
    pub async fn processed_of(&self, url: &str, versions: &[Held]) -> Result<Option<(u64, Vec<u8>)>, String> {
        let mut failures = Vec::new();
        for held in versions {
            match self.members(url, held).await {
                Ok((members, _)) => {
                    let records = parse_members(&members).unwrap_or_default();
                    if let Some(record) = processed(&records) {
                        return Ok(Some((held.version.unix_ms, record.to_vec())));
                    }
                }
                Err(why) => failures.push(why),
            }
        }
        if failures.is_empty() { Ok(None) } else { Err(failures.join("; ")) }
    }

    /// The first round whose contents count: those before were forgotten when the URL was cleaned, and only what repeats them is still read from there.
    pub async fn begins(&self, url: &str) -> Result<Round, String> {
        let request = ContentRequest::Begins { crawl: self.crawl.to_owned(), url: url.to_owned() };
        match self.asked.ask(request).await? {
            ContentAnswer::Begins(round) => Ok(round),
            other => Err(format!("the node answered {other:?}")),
        }
    }

    /// The versions of a page, newest first, and who did not answer.
    pub async fn find(&self, url: &str) -> Result<(Vec<Held>, Vec<String>), String> {
        let request = ContentRequest::Find { crawl: self.crawl.to_owned(), url: url.to_owned() };
        let found = match self.asked.ask(request).await? {
            ContentAnswer::Found(found) => found,
            other => return Err(format!("the node answered {other:?}")),
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
    pub async fn read(&self, url: &str, versions: Vec<Held>, round: u32) -> Result<(Page, Record), String> {
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
        Err(format!("{url} cannot be read: {}", failures.join("; ")))
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
        let (versions, _) = self.find(original).await?;
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
            match self.asked.ask(request).await? {
                ContentAnswer::Part { bytes, total } => {
                    if bytes.is_empty() {
                        return Err("it ends too soon".to_owned());
                    }
                    members.extend_from_slice(&bytes);
                    if members.len() >= total as usize {
                        return Ok(members);
                    }
                }
                other => return Err(format!("answered {other:?}")),
            }
        }
    }
}
