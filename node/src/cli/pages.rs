//! `orbweaver pages`: the page graph of a data folder. Reads also while a crawl writes it; every answer is written as it is found.

pub(super) mod rank;

use std::io::{BufWriter, ErrorKind, StdoutLock, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use proto::clients::spider::page_key;
use proto::key::{DEFAULT_CRAWL, UrlKey};
use proto::url::{CanonicalUrl, UrlRules};
use regex::Regex;
use serde::Serialize;

use self::rank::RankArguments;
use super::{Complaint, Exit};
use crate::edges::store::{PageGraph, Store, StoreError};
use crate::scoring::known::Known;
use crate::scoring::{FOLDER, kept_scores};

const EXAMPLES: &str = "Examples:
  orbweaver pages rank --by pagerank --top 20
  orbweaver pages find 'docs/.*\\.html$' --data /srv/crawl
  orbweaver pages links https://example.com/
  orbweaver pages path https://example.com/deep/page
  orbweaver pages dump info --json > pages.jsonl

The graph is kept by crawls that go by scores (orbweaver crawl --score pagerank, or [score] by in the settings), and of what spiders report.
A cluster that runs is asked by `orbweaver ctl pages`.";

/// Pages that a path may have: more than any depth a crawl is allowed.
const PATH_PAGES_MAX: usize = 100_000;

/// Arguments of `pages`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PagesArguments {
    #[command(subcommand)]
    command: PagesCommand,
    /// The data folder of a crawl
    #[arg(long, value_name = "DIR", default_value = "orbweaver-data", global = true)]
    data: PathBuf,
    /// The crawl that URLs belong to, where a folder has several
    #[arg(long, value_name = "NAME", default_value = DEFAULT_CRAWL, global = true)]
    crawl: String,
    /// One JSON object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
pub(super) enum PagesCommand {
    /// Write every page, or every link, in the order of the pages' numbers
    Dump {
        /// What
        what: Dumped,
    },
    /// Find pages whose URL matches a regular expression
    Find {
        /// As in 'docs/.*\.html$'
        regex: String,
    },
    /// Show which pages link to a page, and which it links to
    Links {
        /// The URL, or the 32 digits of its id
        page: String,
    },
    /// Show how a page was found: the page that linked to it first, and so on up to a seed
    Path {
        /// The URL, or the 32 digits of its id
        page: String,
    },
    /// Compute a score of all pages and show the best
    Rank(RankArguments),
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Dumped {
    /// Pages
    Info,
    /// Links, as numbers of pages
    Links,
}

/// Why an answer is not written to its end.
enum Failure {
    Output(std::io::Error),
    Store(StoreError),
    Complaint(Complaint),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Output(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::Store(error)
    }
}

/// A data folder, and where the answer goes.
struct Folder<'a> {
    store: Store,
    graph: PageGraph,
    arguments: &'a PagesArguments,
    out: BufWriter<StdoutLock<'static>>,
}

/// A page in a list.
#[derive(Serialize)]
struct Named<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    relation: Option<&'a str>,
    number: u32,
    id: String,
    url: &'a str,
}

/// A page with all that is known of it.
#[derive(Serialize)]
struct Info<'a> {
    number: u32,
    id: String,
    url: &'a str,
    crawl: &'a str,
    first_linker: Option<u32>,
    depth: u32,
    first_crawl_ms: Option<u64>,
    last_crawl_ms: Option<u64>,
    crawls: u32,
    changes: u32,
    /// Changes a second, from the first to the last crawl.
    change_rate: Option<f64>,
    score: Option<f64>,
    digest: Option<String>,
}

/// Answers.
pub(super) fn run(arguments: &PagesArguments) -> Result<Exit, Complaint> {
    let store = Store::open_for_reading(&arguments.data).map_err(Complaint::data)?;
    let graph = store.graph();
    if graph.counts().map_err(Complaint::data)?.pages == 0 {
        let reason = "holds no page graph; crawl with --score pagerank (or hits, opic), or set [score] by";
        return Err(Complaint::data(format!("{} {reason}", arguments.data.display())));
    }
    let out = BufWriter::new(std::io::stdout().lock());
    let mut folder = Folder { store, graph, arguments, out };
    let answered = match &arguments.command {
        PagesCommand::Dump { what: Dumped::Info } => folder.dump_info(),
        PagesCommand::Dump { what: Dumped::Links } => folder.dump_links(),
        PagesCommand::Find { regex } => folder.find(regex),
        PagesCommand::Links { page } => folder.links(page),
        PagesCommand::Path { page } => folder.path(page),
        PagesCommand::Rank(rank) => folder.rank(rank),
    };
    match answered.and_then(|()| folder.out.flush().map_err(Failure::Output)) {
        Ok(()) => Ok(Exit::Done),
        // Whoever read our output has read enough, as `head` does.
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(Failure::Output(error)) => Err(Complaint::failed(format!("cannot write: {error}"))),
        Err(Failure::Store(error)) => Err(Complaint::data(error)),
        Err(Failure::Complaint(complaint)) => Err(complaint),
    }
}

impl Folder<'_> {
    fn dump_info(&mut self) -> Result<(), Failure> {
        let Folder { store, graph, arguments, out } = self;
        let scores = kept_scores(&arguments.data.join(FOLDER)).unwrap_or_default();
        if !arguments.json {
            writeln!(
                out,
                "{:>10}  {:32}  {:>5} {:>6} {:>7}  {:>12}  url",
                "number", "id", "depth", "crawls", "changes", "score"
            )?;
        }
        graph.each_page(|number, key| {
            let (Some(known), Some(page)) = (Known::of(store, &key)?, graph.page(&key)?) else { return Ok(()) };
            let Known { url, depth, crawls, changes, digest, .. } = known;
            let last = known.last_crawl_ms.filter(|_| page.first_crawl > 0);
            let seconds = last.map_or(0.0, |last| last.saturating_sub(page.first_crawl) as f64 / 1_000.0);
            let info = Info {
                number,
                id: key.id().to_string(),
                url: &url,
                crawl: key.crawl().unwrap_or_default(),
                first_linker: page.first_linker,
                depth,
                first_crawl_ms: Some(page.first_crawl).filter(|time| *time > 0),
                last_crawl_ms: last,
                crawls,
                changes,
                change_rate: (seconds > 0.0).then(|| f64::from(changes + 1) / seconds),
                score: scores.get(number as usize).copied(),
                digest,
            };
            if arguments.json {
                return line(out, &info);
            }
            let score = info.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.6e}"));
            let id = &info.id;
            Ok(writeln!(out, "{number:>10}  {id}  {depth:>5} {crawls:>6} {changes:>7}  {score:>12}  {url}")?)
        })
    }

    fn dump_links(&mut self) -> Result<(), Failure> {
        let Folder { graph, arguments, out, .. } = self;
        graph.each_row(|from, row| {
            for to in row {
                let to =
                    to.map_err(|_| StoreError::Damaged { family: "link", reason: "not a row of links".to_owned() })?;
                match arguments.json {
                    true => writeln!(out, "{{\"from\":{from},\"to\":{to}}}")?,
                    false => writeln!(out, "{from:>10} {to:>10}")?,
                }
            }
            Ok(())
        })
    }

    fn find(&mut self, regex: &str) -> Result<(), Failure> {
        let regex = Regex::new(regex).map_err(|error| Failure::Complaint(Complaint::usage(error)))?;
        let (json, graph) = (self.arguments.json, self.graph.clone());
        graph.each_page(|number, key| match Known::of(&self.store, &key)? {
            Some(known) if regex.is_match(&known.url) => show(&mut self.out, json, None, number, &key, &known.url),
            _ => Ok(()),
        })
    }

    fn links(&mut self, page: &str) -> Result<(), Failure> {
        let (number, _) = self.page(page)?;
        let mut back = Vec::new();
        self.graph.each_row(|from, row| {
            let links = row.flatten().any(|to| to == number);
            back.extend(links.then_some(from));
            Ok::<(), Failure>(())
        })?;
        let forward = self.graph.links_of(number)?.unwrap_or_default();
        for (relation, numbers) in [("from", back), ("to", forward)] {
            for number in numbers {
                self.show(Some(relation), number)?;
            }
        }
        Ok(())
    }

    fn path(&mut self, page: &str) -> Result<(), Failure> {
        let (mut number, mut key) = self.page(page)?;
        for _ in 0..PATH_PAGES_MAX {
            self.show(None, number)?;
            let linker = self.graph.page(&key)?.and_then(|page| page.first_linker);
            let Some(linker) = linker else { return Ok(()) };
            let Some(linker_key) = self.graph.key(linker)? else { return Ok(()) };
            (number, key) = (linker, linker_key);
        }
        Ok(())
    }

    fn show(&mut self, relation: Option<&str>, number: u32) -> Result<(), Failure> {
        let Some(key) = self.graph.key(number)? else { return Ok(()) };
        let Some(known) = Known::of(&self.store, &key)? else { return Ok(()) };
        show(&mut self.out, self.arguments.json, relation, number, &key, &known.url)
    }

    /// The page that a person means.
    fn page(&self, text: &str) -> Result<(u32, UrlKey), Failure> {
        let unknown = || Failure::Complaint(Complaint::failed(format!("{text} is not in the page graph")));
        if text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let (wanted, mut found) = (text.to_ascii_lowercase(), None);
            self.graph.each_page(|number, key| {
                if key.id().to_string() == wanted {
                    found = Some((number, key));
                }
                Ok::<(), Failure>(())
            })?;
            return found.ok_or_else(unknown);
        }
        let url = CanonicalUrl::parse(text, &UrlRules::default())
            .map_err(|_| Failure::Complaint(Complaint::usage(format!("{text} is neither a URL nor an id"))))?;
        // Pages that spiders crawl are of no crawl of ours.
        for key in [UrlKey::new(&self.arguments.crawl, &url), page_key(&url)] {
            if let Some(page) = self.graph.page(&key)? {
                return Ok((page.number, key));
            }
        }
        Err(unknown())
    }
}

fn show(
    out: &mut impl Write,
    json: bool,
    relation: Option<&str>,
    number: u32,
    key: &UrlKey,
    url: &str,
) -> Result<(), Failure> {
    let id = key.id().to_string();
    if json {
        return line(out, &Named { relation, number, id, url });
    }
    let relation = relation.map_or_else(String::new, |relation| format!("{relation:4}  "));
    Ok(writeln!(out, "{relation}{number:>10}  {id}  {url}")?)
}

fn line(out: &mut impl Write, row: &impl Serialize) -> Result<(), Failure> {
    serde_json::to_writer(&mut *out, row).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}
