//! `orbweaver crawl --cluster`: the same crawl, by a running cluster. It is submitted, followed while it goes, and summed up at its end;
//! whoever looks away leaves it running.

use std::path::Path;
use std::time::{Duration, Instant};

use proto::control::crawl::{CrawlAnswer, CrawlList, CrawlRequest, CrawlRow};
use proto::control::{Answer, Request};
use proto::crawl::definition::{CrawlDefinition, CrawlState};
use proto::crawl::retry::Failure;
use proto::id::SLOTS;
use proto::url::CanonicalUrl;
use serde_json::{Value, json};

use super::CrawlArguments;
use crate::cli::access::Access;
use crate::cli::ctl::{Connection, definition};
use crate::cli::progress::say;
use crate::cli::signals::signals;
use crate::cli::units::{show_count, show_size, show_time};
use crate::cli::{Complaint, Exit, seeds, tell};

/// How often the crawl is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a line is written.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Times in a row that nothing must be open until the crawl counts as complete.
const LOOKS_AT_REST: u32 = 2;
/// How long it is tried to reach another node when the one that was asked is gone.
const REACH_PATIENCE: Duration = Duration::from_secs(60);

/// Seeds that are looked up at the end; who gave more asks `ctl url status`.
const SEEDS_LOOKED_UP: usize = 10;

/// How following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Complete,
    PagesMax,
    Paused,
    Stopped,
    Interrupted,
}

impl Ended {
    const fn name(self) -> &'static str {
        match self {
            Ended::Complete => "complete",
            Ended::PagesMax => "max_pages",
            Ended::Paused => "paused",
            Ended::Stopped => "stopped",
            Ended::Interrupted => "interrupted",
        }
    }
}

/// Submits the crawl to the cluster whose folder is `folder`, and follows it.
pub(super) fn run(arguments: &CrawlArguments, folder: &Path) -> Result<Exit, Complaint> {
    let definition = understand(arguments)?;
    let access = Access::load(folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Complaint::failed(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(crawl(&access, folder, definition, arguments.json));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// Flags that belong to the nodes, not to a crawl.
fn understand(arguments: &CrawlArguments) -> Result<CrawlDefinition, Complaint> {
    let nodes_own = [
        ("--data", arguments.data.is_some()),
        ("--max-bytes", arguments.max_bytes.is_some()),
        ("--max-time", arguments.max_time.is_some()),
        ("--concurrency", arguments.concurrency.is_some()),
        ("--user-agent", arguments.user_agent.is_some()),
        ("--header", !arguments.header.is_empty()),
        ("--allow-address", !arguments.allow_address.is_empty()),
        ("--resolve", !arguments.resolve.is_empty()),
        ("--http", arguments.http.is_some()),
        ("--config", arguments.config.is_some()),
    ];
    if let Some((flag, _)) = nodes_own.iter().find(|(_, given)| *given) {
        return Err(Complaint::usage(format!(
            "{flag} does not go with --cluster: it belongs to the settings of the nodes, or to a crawl of this machine alone"
        )));
    }
    let urls = seeds::read(&arguments.urls, arguments.seeds.as_deref(), &Default::default())?;
    let name = arguments.name.clone().unwrap_or_else(|| urls[0].host().to_owned());
    let urls = urls.iter().map(CanonicalUrl::as_str).map(str::to_owned).collect();
    Ok(CrawlDefinition {
        include: arguments.include.clone(),
        exclude: arguments.exclude.clone(),
        depth_max: arguments.max_depth,
        pages_max: arguments.max_pages,
        delay_ms: arguments.delay.map(|delay| delay.as_millis() as u64),
        recrawl_period_s: arguments.recrawl.map(|period| period.as_secs()),
        ..definition(&name, urls, arguments.scope)
    })
}

async fn crawl(access: &Access, folder: &Path, definition: CrawlDefinition, as_json: bool) -> Result<Exit, Complaint> {
    let mut signals = signals().map_err(|error| Complaint::failed(format!("cannot listen for Ctrl-C: {error}")))?;
    let (name, seeds) = (definition.name.clone(), definition.seeds.clone());
    let mut connection = Connection::open(access).await?;
    let add = Request::Crawl(CrawlRequest::Add(Box::new(definition), false));
    match connection.ask(&add).await? {
        Answer::Crawl(CrawlAnswer::Kept { nodes, missing, .. }) => {
            tell::note(&format!("crawl {name:?} runs on {nodes} nodes"));
            for node in missing {
                tell::note(&format!("node {node} has not heard of it yet; it learns it when it is back"));
            }
        }
        Answer::Refused(why) => return Err(Complaint::failed(why)),
        other => return Err(Complaint::failed(format!("the node answered something else: {other:?}"))),
    }
    let began = Instant::now();
    let mut follower = Follower { name: &name, as_json, began, last_line: None, at_rest: 0, last: None };
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    let ended = loop {
        tokio::select! {
            biased;
            _ = signals.recv() => break Ended::Interrupted,
            _ = ticks.tick() => {}
        }
        // A question that takes long must not keep Ctrl-C waiting.
        let looked = tokio::select! {
            biased;
            _ = signals.recv() => break Ended::Interrupted,
            looked = look(&mut connection, access) => looked?,
        };
        if let Some(ended) = follower.see(looked)? {
            break ended;
        }
    };
    let failed =
        if ended == Ended::Interrupted { Vec::new() } else { failed_seeds(&mut connection, &name, &seeds).await };
    connection.close().await;
    follower.sum_up(ended, folder, &failed)
}

/// Seeds that failed, and why, as far as the cluster tells it now.
async fn failed_seeds(connection: &mut Connection, crawl: &str, seeds: &[String]) -> Vec<(String, String)> {
    let mut failed = Vec::new();
    for url in seeds.iter().take(SEEDS_LOOKED_UP) {
        let question = Request::Url { crawl: crawl.to_owned(), url: url.clone() };
        let Ok(Answer::Url(answers)) = connection.ask(&question).await else { return failed };
        let known = answers.into_iter().filter_map(|answer| answer.state.ok()?);
        if let Some(failure) = known.max_by_key(|facts| facts.progress).and_then(|facts| facts.failure) {
            failed.push((url.clone(), failure));
        }
    }
    failed
}

/// What to tell of seeds that failed.
fn seed_notes(failed: &[(String, String)]) -> Vec<String> {
    let mut notes: Vec<String> = failed.iter().map(|(seed, why)| format!("seed {seed} failed: {why}")).collect();
    let refused = Failure::AddressRefused.to_string();
    if failed.iter().any(|(_, why)| *why == refused) {
        notes.push(
            "private and local addresses are crawled only if the nodes' setting fetch.allow_addresses names them (`cluster local --allow-address`)"
                .into(),
        );
    }
    notes
}

/// Asks how the crawls go; if the node that was asked is gone, another one is.
async fn look(connection: &mut Connection, access: &Access) -> Result<CrawlList, Complaint> {
    let since = Instant::now();
    loop {
        let complaint = match connection.ask(&Request::Crawl(CrawlRequest::List)).await {
            Ok(Answer::Crawl(CrawlAnswer::List(list))) => return Ok(list),
            Ok(other) => Complaint::failed(format!("the node answered something else: {other:?}")),
            Err(complaint) => complaint,
        };
        if since.elapsed() > REACH_PATIENCE {
            return Err(complaint);
        }
        tokio::time::sleep(LOOK_EVERY).await;
        if let Ok(fresh) = Connection::open(access).await {
            std::mem::replace(connection, fresh).close().await;
        }
    }
}

struct Follower<'a> {
    name: &'a str,
    as_json: bool,
    began: Instant,
    last_line: Option<Instant>,
    at_rest: u32,
    last: Option<(CrawlRow, CrawlList)>,
}

impl Follower<'_> {
    /// Takes in how it goes; says whether and how the crawl ended.
    fn see(&mut self, list: CrawlList) -> Result<Option<Ended>, Complaint> {
        let Some(row) = list.crawls.iter().find(|row| row.name == self.name).cloned() else {
            return Err(Complaint::failed(format!("crawl {:?} is not defined any more", self.name)));
        };
        let whole = list.missing.is_empty() && list.slots == u32::from(SLOTS);
        let rests = whole && row.counts.open == 0 && row.counts.totals.known > 0;
        let (state, limit, recurs) = match &row.definition {
            Some(definition) => (definition.state, definition.pages_max, definition.recrawl_period_s.is_some()),
            None => (CrawlState::Running, None, false),
        };
        let spent = limit.is_some_and(|limit| row.counts.totals.processed >= limit);
        self.at_rest = if rests || spent { self.at_rest + 1 } else { 0 };
        self.last = Some((row, list));
        if self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
            self.last_line = Some(Instant::now());
            self.line()?;
        }
        Ok(match state {
            CrawlState::Paused => Some(Ended::Paused),
            CrawlState::Stopped => Some(Ended::Stopped),
            CrawlState::Running if self.at_rest < LOOKS_AT_REST || recurs => None,
            CrawlState::Running if spent => Some(Ended::PagesMax),
            CrawlState::Running => Some(Ended::Complete),
        })
    }

    fn fields(&self) -> Value {
        let Some((row, list)) = &self.last else { return json!({ "type": "progress", "crawl": self.name }) };
        let totals = row.counts.totals;
        json!({
            "type": "progress",
            "crawl": self.name,
            "elapsed_s": self.began.elapsed().as_secs(),
            "pages": totals.processed,
            "open": row.counts.open,
            "failed": totals.failed,
            "known": totals.known,
            "bytes": totals.bytes,
            "fetching": list.fetching,
            "slots": list.slots,
            "missing": list.missing,
        })
    }

    fn line(&self) -> Result<(), Complaint> {
        let Some((row, list)) = &self.last else { return Ok(()) };
        let fields = self.fields();
        if self.as_json {
            return written(say(&fields));
        }
        let totals = row.counts.totals;
        let missing: Vec<&str> = list.missing.iter().map(|(node, _)| node.as_str()).collect();
        let missing = if missing.is_empty() { String::new() } else { format!(", missing {}", missing.join(" ")) };
        let text = format!(
            "{}: {} pages, {} open, {} failed, {}{missing}",
            show_time(self.began.elapsed()),
            show_count(totals.processed),
            show_count(row.counts.open),
            show_count(totals.failed),
            show_size(totals.bytes),
        );
        tell::progress(&fields, &text);
        Ok(())
    }

    fn sum_up(&self, ended: Ended, folder: &Path, failed: &[(String, String)]) -> Result<Exit, Complaint> {
        let (name, folder) = (self.name, folder.display());
        if self.as_json {
            let mut fields = self.fields();
            fields["type"] = json!("summary");
            fields["ended"] = json!(ended.name());
            fields["failed_seeds"] = failed.iter().map(|(url, error)| json!({ "url": url, "error": error })).collect();
            written(say(&fields))?;
        } else if let Some((row, _)) = &self.last {
            let totals = row.counts.totals;
            let rows = [
                ("ended", ended.name().to_owned()),
                ("time", show_time(self.began.elapsed())),
                ("pages", show_count(totals.processed)),
                ("failed", show_count(totals.failed)),
                ("URLs known", show_count(totals.known)),
                ("open", show_count(row.counts.open)),
                ("content", show_size(totals.bytes)),
            ];
            let mut lines: Vec<String> = rows.iter().map(|(what, value)| format!("{what:<12} {value}")).collect();
            lines.extend(seed_notes(failed));
            written(say(&lines.join("\n")))?;
        }
        if ended == Ended::Interrupted {
            tell::note(&format!(
                "the crawl goes on in the cluster; the same command follows it again, `orbweaver ctl --data {folder} crawl list` shows it, \
                 `orbweaver ctl --data {folder} crawl stop {name}` ends it"
            ));
        }
        Ok(if ended == Ended::Interrupted { Exit::Interrupted } else { Exit::Done })
    }
}

fn written(said: std::io::Result<()>) -> Result<(), Complaint> {
    said.map_err(|error| Complaint::failed(format!("cannot write to standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use proto::control::Totals;
    use proto::control::crawl::CrawlCounts;

    use super::*;

    fn list(open: u64, processed: u64, missing: bool) -> CrawlList {
        let mut said = definition("news", vec!["http://a.example/".into()], None);
        said.pages_max = Some(100);
        let totals = Totals { known: open + processed, processed, ..Totals::default() };
        let row = CrawlRow { name: "news".into(), definition: Some(said), counts: CrawlCounts { totals, open } };
        let missing = if missing { vec![("node".into(), "does not answer".into())] } else { Vec::new() };
        CrawlList { crawls: vec![row], slots: SLOTS.into(), fetching: 0, missing }
    }

    fn follower() -> Follower<'static> {
        Follower { name: "news", as_json: false, began: Instant::now(), last_line: None, at_rest: 0, last: None }
    }

    #[test]
    fn a_crawl_is_complete_when_nothing_is_open_and_nobody_is_missing() {
        let mut follower = follower();
        for (open, missing) in [(3, false), (0, false), (1, false), (0, true), (0, false)] {
            assert_eq!(follower.see(list(open, 5, missing)).unwrap(), None, "{open} {missing}");
        }
        assert_eq!(follower.see(list(0, 5, false)).unwrap(), Some(Ended::Complete));
    }

    #[test]
    fn a_limit_ends_it_and_so_does_whoever_pauses_it() {
        let mut follower = follower();
        assert_eq!(follower.see(list(3, 100, false)).unwrap(), None);
        assert_eq!(follower.see(list(3, 101, false)).unwrap(), Some(Ended::PagesMax));
        let mut paused = list(3, 5, false);
        paused.crawls[0].definition.as_mut().unwrap().state = CrawlState::Paused;
        assert_eq!(follower.see(paused).unwrap(), Some(Ended::Paused));
        assert!(follower.see(CrawlList::default()).is_err());
    }
}
