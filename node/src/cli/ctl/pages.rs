//! `ctl pages` and `ctl schedule`: the page graph of a cluster that runs, and what waits in its queues. Every row is written as it comes.

use std::collections::{HashMap, HashSet};

use clap::{Args, Subcommand, ValueEnum};
use proto::control::pages::{NAMES_MAX, PagesAnswer, PagesRequest, PagesWhat};
use proto::control::{Answer, Request};
use proto::key::DEFAULT_CRAWL;
use serde_json::{Value as Json, json};

use super::Connection;
use crate::cli::pages::rank::RankArguments;
use crate::cli::pages::{Dumped, PagesCommand};
use crate::cli::progress::say;
use crate::cli::{Complaint, Exit};

const EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver pages rank --by hits-hub --top 20
  orbweaver ctl --data /srv/orbweaver --json pages dump info > pages.jsonl
  orbweaver ctl --data /srv/orbweaver pages links https://example.com/

Each page is told by the node that acts for it. Pages have no numbers here, which are each node's own: links are pairs of ids.
`rank` is computed by all nodes together, which name the best.";
/// How long after a node that has nothing to tell yet it is asked again.
const ASK_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(100);
const SCHEDULE_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver schedule dump | head
  orbweaver ctl --data /srv/orbweaver schedule reload --by pagerank
  orbweaver ctl --data /srv/orbweaver schedule reload --uncrawled";

/// Arguments of `pages`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct GraphArguments {
    #[command(subcommand)]
    command: PagesCommand,
    /// The crawl that URLs belong to
    #[arg(long, value_name = "NAME", default_value = DEFAULT_CRAWL, global = true)]
    crawl: String,
}

#[derive(Subcommand)]
#[command(after_help = SCHEDULE_EXAMPLES)]
pub(super) enum ScheduleCommand {
    /// Write every URL that waits, node by node and host by host, in the order in which they are fetched; then the pages of spiders
    Dump,
    /// Compute scores now and put every URL that waits where its score belongs
    Reload {
        /// By what: as the nodes are set
        #[arg(long, value_enum, default_value = "pagerank")]
        by: ReloadBy,
        /// Compute nothing; put up again the pages of spiders that were never crawled and are not to be crawled any more
        #[arg(long, conflicts_with = "by")]
        uncrawled: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ReloadBy {
    /// PageRank
    Pagerank,
    /// The authorities of HITS
    Hits,
    /// Cash that crawled pages hand on
    Opic,
}

/// A row that is written as text.
type Text<'a> = &'a dyn Fn(&Json) -> String;

/// Asks, and writes what comes.
struct Asking<'a> {
    connection: &'a Connection,
    crawl: &'a str,
    json: bool,
}

/// Answers about the graph.
pub(super) async fn pages(connection: &Connection, arguments: &GraphArguments, json: bool) -> Result<Exit, Complaint> {
    let asking = Asking { connection, crawl: &arguments.crawl, json };
    ended(match &arguments.command {
        PagesCommand::Dump { what: Dumped::Info } => asking.info().await,
        PagesCommand::Dump { what: Dumped::Links } => asking.dump_links().await,
        PagesCommand::Find { regex } => {
            regex::Regex::new(regex).map_err(Complaint::usage)?;
            asking.each(PagesWhat::Find { regex: regex.clone() }, &page).await
        }
        PagesCommand::Links { page } => asking.links(page).await,
        PagesCommand::Path { page } => asking.path(page).await,
        PagesCommand::Rank(rank) => asking.rank(rank).await,
    })
}

/// Answers about what waits.
pub(super) async fn schedule(
    connection: &Connection,
    command: &ScheduleCommand,
    json: bool,
) -> Result<Exit, Complaint> {
    let asking = Asking { connection, crawl: DEFAULT_CRAWL, json };
    ended(match command {
        ScheduleCommand::Dump => {
            let text = |row: &Json| match row["host"].is_string() {
                true => format!("{:>5} {:>5} {:>12}  {}", row["priority"], row["depth"], row["sequence"], url(row)),
                false => {
                    let at = row["not_before_ms"].as_u64().unwrap_or(0);
                    format!("{:>5} {:>5} {at:>13}  {}", row["level"], row["depth"], url(row))
                }
            };
            asking.each(PagesWhat::Waiting, &text).await
        }
        ScheduleCommand::Reload { uncrawled: true, .. } => {
            let answer = asking.ask(PagesRequest::PutUpAgain).await?;
            asking.write_all(&answer.rows, &|row: &Json| format!("{} pages wait again", row["reloaded"]))
        }
        ScheduleCommand::Reload { by, .. } => {
            let by = match by {
                ReloadBy::Pagerank => "pagerank",
                ReloadBy::Hits => "hits",
                ReloadBy::Opic => "opic",
            };
            let answer = asking.ask(PagesRequest::Rescore { by: by.to_owned() }).await?;
            let text = |row: &Json| {
                format!(
                    "scores are computed; {} waiting URLs of the node that was asked have another place",
                    row["moved"]
                )
            };
            asking.write_all(&answer.rows, &text)
        }
    })
}

/// Whoever read our output has read enough, as `head` does.
fn ended(done: Result<(), Complaint>) -> Result<Exit, Complaint> {
    match done {
        Ok(()) | Err(Complaint { exit: Exit::Done, .. }) => Ok(Exit::Done),
        Err(complaint) => Err(complaint),
    }
}

fn url(row: &Json) -> &str {
    row["url"].as_str().unwrap_or_default()
}

fn id(row: &Json) -> &str {
    row["id"].as_str().unwrap_or_default()
}

fn page(row: &Json) -> String {
    let relation = row["relation"].as_str().map_or_else(String::new, |relation| format!("{relation:4}  "));
    format!("{relation}{}  {}", id(row), url(row))
}

fn parse(row: &str) -> Result<Json, Complaint> {
    serde_json::from_str(row).map_err(|error| Complaint::failed(format!("a node answered what is no JSON: {error}")))
}

impl Asking<'_> {
    async fn ask(&self, request: PagesRequest) -> Result<PagesAnswer, Complaint> {
        match self.connection.ask(&Request::Pages(request)).await? {
            Answer::Pages(answer) => Ok(answer),
            Answer::Refused(why) => Err(Complaint::failed(why)),
            other => Err(Complaint::failed(format!("the node answered {other:?}"))),
        }
    }

    /// Calls `each` with every row that all nodes have.
    async fn rows(
        &self,
        what: PagesWhat,
        mut each: impl FnMut(Json) -> Result<(), Complaint>,
    ) -> Result<(), Complaint> {
        let mut from = None;
        loop {
            let PagesAnswer { rows, next } = self.ask(PagesRequest::Look { what: what.clone(), from }).await?;
            rows.iter().try_for_each(|row| each(parse(row)?))?;
            if next.is_none() {
                return Ok(());
            }
            from = next;
        }
    }

    async fn all(&self, what: PagesWhat) -> Result<Vec<Json>, Complaint> {
        let mut rows = Vec::new();
        self.rows(what, |row| {
            rows.push(row);
            Ok(())
        })
        .await?;
        Ok(rows)
    }

    fn write(&self, row: &Json, text: Text<'_>) -> Result<(), Complaint> {
        let written = if self.json { say(row) } else { say(&text(row)) };
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Complaint { exit: Exit::Done, text: String::new() },
            _ => Complaint::failed(format!("cannot write: {error}")),
        })
    }

    fn write_all(&self, rows: &[String], text: Text<'_>) -> Result<(), Complaint> {
        rows.iter().try_for_each(|row| self.write(&parse(row)?, text))
    }

    async fn each(&self, what: PagesWhat, text: Text<'_>) -> Result<(), Complaint> {
        self.rows(what, |row| self.write(&row, text)).await
    }

    async fn info(&self) -> Result<(), Complaint> {
        let score = |row: &Json| row["score"].as_f64().map_or_else(|| "-".to_owned(), |score| format!("{score:.6e}"));
        let text = |row: &Json| {
            let (id, url, score) = (id(row), url(row), score(row));
            format!("{id}  {:>5} {:>6} {:>7}  {score:>12}  {url}", row["depth"], row["crawls"], row["changes"])
        };
        self.each(PagesWhat::Info, &text).await
    }

    async fn dump_links(&self) -> Result<(), Complaint> {
        let text = |row: &Json| {
            format!("{} {}", row["from"].as_str().unwrap_or_default(), row["to"].as_str().unwrap_or_default())
        };
        self.rows(PagesWhat::Links, |row| {
            let to = row["to"].as_array().into_iter().flatten();
            to.into_iter().try_for_each(|to| self.write(&json!({"from": row["from"], "to": to}), &text))
        })
        .await
    }

    /// The pages with these names; URLs of a page that is known in several crawls are several.
    async fn named(&self, names: Vec<String>) -> Result<Vec<Json>, Complaint> {
        let mut rows = Vec::new();
        for names in names.chunks(NAMES_MAX) {
            rows.extend(self.all(PagesWhat::Named { crawl: self.crawl.to_owned(), names: names.to_vec() }).await?);
        }
        Ok(rows)
    }

    async fn one(&self, name: &str) -> Result<Json, Complaint> {
        let page = self.named(vec![name.to_owned()]).await?.into_iter().next();
        page.ok_or_else(|| Complaint::failed(format!("{name} is not in the page graph")))
    }

    async fn links(&self, name: &str) -> Result<(), Complaint> {
        let (crawl, name) =
            (self.crawl.to_owned(), self.one(name).await?["key"].as_str().unwrap_or_default().to_owned());
        let related = |relation: &str, row: &Json| json!({"relation": relation, "id": row["id"], "url": row["url"]});
        self.rows(PagesWhat::Into { crawl: crawl.clone(), name: name.clone() }, |row| {
            self.write(&related("from", &row), &page)
        })
        .await?;
        let keys = self.all(PagesWhat::OutOf { crawl, name }).await?;
        let keys = keys.iter().filter_map(|row| row["key"].as_str()).map(str::to_owned).collect();
        self.named(keys).await?.iter().try_for_each(|row| self.write(&related("to", row), &page))
    }

    async fn path(&self, name: &str) -> Result<(), Complaint> {
        let (mut row, mut seen) = (self.one(name).await?, HashSet::new());
        // Who was on the way already is an error of somebody's; it must not lead round and round.
        while seen.insert(id(&row).to_owned()) {
            self.write(&json!({"id": row["id"], "url": row["url"]}), &page)?;
            let Some(parent) = row["parent"].as_str() else { return Ok(()) };
            // A page that nobody knows any more ends the path.
            let Some(next) = self.named(vec![parent.to_owned()]).await?.into_iter().next() else { return Ok(()) };
            row = next;
        }
        Ok(())
    }

    async fn rank(&self, rank: &RankArguments) -> Result<(), Complaint> {
        let wish = rank.wish()?;
        let mut from = None;
        // All nodes compute it together; it is asked for until they have.
        let best = loop {
            let PagesAnswer { rows, next } = self.ask(PagesRequest::Rank { wish, from }).await?;
            if next.is_none() {
                break rows.iter().map(|row| parse(row)).collect::<Result<Vec<Json>, Complaint>>()?;
            }
            from = next;
            tokio::time::sleep(ASK_AGAIN_AFTER).await;
        };
        if best.is_empty() && wish.top > 0 {
            return Err(Complaint::failed("no page has been crawled yet"));
        }
        let mut place = 0;
        for some in best.chunks(NAMES_MAX) {
            let keys = some.iter().filter_map(|row| row["key"].as_str()).map(str::to_owned).collect();
            let named = self.named(keys).await?;
            let urls: HashMap<&str, &str> = named.iter().map(|row| (id(row), url(row))).collect();
            for row in some {
                place += 1;
                let (id, score) = (id(row), row["score"].as_f64().unwrap_or(0.0));
                let Some(url) = urls.get(id) else { continue };
                let text = |_: &Json| format!("{place:>8}  {score:.6e}  {url}");
                self.write(&json!({"rank": place, "score": score, "id": id, "url": url}), &text)?;
            }
        }
        Ok(())
    }
}
