//! `orbweaver schedule`: what waits in the queues of a data folder, and in which order.

use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::progress::say;
use super::{Complaint, Exit};
use crate::config::score::{ScoreBy, ScoreConfig};
use crate::edges::store::{Store, StoreError, StoreOptions};
use crate::scoring::{FOLDER, compute, place_of};

const EXAMPLES: &str = "Examples:
  orbweaver schedule dump --data /srv/crawl | head
  orbweaver schedule reload --by pagerank --data /srv/crawl     the crawl must not run";

/// Arguments of `schedule`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ScheduleArguments {
    #[command(subcommand)]
    command: ScheduleCommand,
    /// The data folder of a crawl
    #[arg(long, value_name = "DIR", default_value = "orbweaver-data", global = true)]
    data: PathBuf,
}

#[derive(Subcommand)]
enum ScheduleCommand {
    /// Write every URL that waits, host by host, in the order in which they are fetched; then the pages of spiders, domain by domain
    Dump {
        /// One JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Compute scores now and put every URL that waits where its score belongs
    Reload {
        /// By what; `own` takes scores out again
        #[arg(long, value_enum, default_value = "pagerank")]
        by: ReloadBy,
        /// Count only links from one domain to another
        #[arg(long)]
        other_domains_only: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum ReloadBy {
    /// PageRank
    Pagerank,
    /// The authorities of HITS
    Hits,
    /// What URLs were found with
    Own,
}

/// A URL that waits.
#[derive(Serialize)]
struct Waiting<'a> {
    host: String,
    crawl: &'a str,
    priority: u16,
    depth: u16,
    sequence: u64,
    url: &'a str,
}

/// A page that waits for a spider, or that one has.
#[derive(Serialize)]
struct WaitingPage<'a> {
    domain: &'a str,
    level: i16,
    score: f32,
    depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before_ms: Option<u64>,
    url: &'a str,
}

impl From<StoreError> for Complaint {
    fn from(error: StoreError) -> Self {
        Complaint::data(error)
    }
}

/// Answers.
pub(super) fn run(arguments: &ScheduleArguments) -> Result<Exit, Complaint> {
    match arguments.command {
        ScheduleCommand::Dump { json } => dump(arguments, json),
        ScheduleCommand::Reload { by, other_domains_only } => reload(arguments, by, other_domains_only),
    }
}

fn dump(arguments: &ScheduleArguments, json: bool) -> Result<Exit, Complaint> {
    let store = Store::open_for_reading(&arguments.data).map_err(Complaint::data)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut write = || -> Result<(), Complaint> {
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::BrokenPipe => Complaint { exit: Exit::Done, text: String::new() },
            _ => Complaint::failed(format!("cannot write: {error}")),
        };
        for waiting in store.waiting() {
            let (queue, order, entry) = waiting.map_err(Complaint::data)?;
            let (host, url) = (queue.host(), entry.url.as_str());
            let (priority, depth, sequence) = (order.priority, order.depth, order.sequence);
            if json {
                let row = Waiting { host, crawl: queue.crawl(), priority, depth, sequence, url };
                serde_json::to_writer(&mut out, &row).map_err(std::io::Error::from).map_err(failed)?;
                out.write_all(b"\n").map_err(failed)?;
            } else {
                writeln!(out, "{priority:>5} {depth:>5} {sequence:>12}  {url}").map_err(failed)?;
            }
        }
        store.each_scheduled(|domain, at_ms, url, page| {
            if json {
                let (level, score, depth) = (page.level, page.score, page.depth);
                let not_before_ms = (at_ms > 0).then_some(at_ms);
                let row = WaitingPage { domain, level, score, depth, not_before_ms, url };
                serde_json::to_writer(&mut out, &row).map_err(std::io::Error::from).map_err(failed)?;
                return out.write_all(b"\n").map_err(failed);
            }
            writeln!(out, "{:>5} {:>5} {at_ms:>13}  {url}", page.level, page.depth).map_err(failed)
        })?;
        out.flush().map_err(failed)
    };
    match write() {
        // Whoever read our output has read enough, as `head` does.
        Err(Complaint { exit: Exit::Done, .. }) | Ok(()) => Ok(Exit::Done),
        Err(complaint) => Err(complaint),
    }
}

fn reload(arguments: &ScheduleArguments, by: ReloadBy, other_domains_only: bool) -> Result<Exit, Complaint> {
    // For reading first: a folder of a cluster would be made one of a node alone by opening it.
    let reading = Store::open_for_reading(&arguments.data).map_err(Complaint::data)?;
    if reading.is_replica().map_err(Complaint::data)? {
        return Err(Complaint::usage(
            "the folder belongs to a node of a cluster; while that runs, use `orbweaver ctl schedule reload`",
        ));
    }
    drop(reading);
    let mut store = Store::open(&arguments.data, StoreOptions::default()).map_err(Complaint::data)?;
    let graph = store.graph();
    let mut intake = graph.intake().map_err(Complaint::data)?;
    while graph.take_in(&mut intake, |_, _| {}).map_err(Complaint::data)? > 0 {}
    if intake.counts().pages == 0 {
        let reason = "holds no page graph; crawl with --score pagerank (or hits, opic), or set [score] by";
        return Err(Complaint::data(format!("{} {reason}", arguments.data.display())));
    }
    let by = match by {
        ReloadBy::Pagerank => ScoreBy::PageRank,
        ReloadBy::Hits => ScoreBy::Hits,
        ReloadBy::Own => ScoreBy::None,
    };
    let config = ScoreConfig { by, other_domains_only, ..ScoreConfig::default() };
    let mut scores = Vec::new();
    if let Some(mut scorer) = config.scorer() {
        let dir = arguments.data.join(FOLDER);
        std::fs::create_dir_all(&dir).map_err(|error| Complaint::data(format!("{}: {error}", dir.display())))?;
        compute(&mut *scorer, &graph, &config, &dir).map_err(Complaint::failed)?;
        scores = scorer.scores().to_vec();
    }
    let (mut moved, mut failure) = (0, None);
    graph
        .each_move(
            |page| place_of(page, &scores),
            |moves| {
                let mut change = store.change();
                match change.reorder(moves).and_then(|count| change.commit().map(|()| count)) {
                    Ok(count) => moved += count,
                    Err(error) => failure = Some(error),
                }
                failure.is_none()
            },
        )
        .map_err(Complaint::data)?;
    if let Some(error) = failure {
        return Err(Complaint::data(error));
    }
    let waiting = store.state().places.ready;
    say(&format_args!("{moved} of {waiting} waiting URLs have another place, by {}", config.by.name()))
        .map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    Ok(Exit::Done)
}
