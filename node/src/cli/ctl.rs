//! `orbweaver ctl`: asks and steers a running cluster, through any of its nodes.

mod admin;
mod admit;
mod attribute;
mod backup;
mod content;
mod crawl;
mod import;
mod pages;
mod repair;
mod site;
pub(super) mod source;
mod top;
mod urls;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use libp2p::PeerId;
use proto::control::{Answer, NodeAnswer, NodeReport, Request, RingRow, Totals, UrlAnswer};
use proto::id::ClusterId;
use proto::key::DEFAULT_CRAWL;
use proto::site::Operation;
use serde_json::json;

pub(super) use self::crawl::definition;
use self::urls::UrlWork;
use super::access::{Access, parse_address};
use super::progress::say;
use super::{Complaint, Exit, dc, restore, seeds};
use crate::clustered::{seal, unseal};
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::Identity;
use crate::edges::swarm::key::SwarmKey;
use crate::edges::swarm::metrics::SwarmMetrics;
use crate::edges::swarm::roster::Role;
use crate::edges::swarm::settings::{Doors, Peer, Settings};

/// How long a node is waited for before the next one is asked.
const REACH_PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer may take: URLs that are handed in must reach enough disks first.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// URLs in one request.
const URLS_AT_ONCE: usize = 1_000;

const EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver nodes
  orbweaver ctl --data /srv/orbweaver crawl add news https://example.com/ --max-pages 10000
  orbweaver ctl --data /srv/orbweaver url add https://example.com/ https://example.org/
  orbweaver ctl --data /srv/orbweaver stat fetcher,storage
  orbweaver ctl --data /srv/orbweaver set fetch.concurrency=0     hand out nothing more, on all nodes
  orbweaver ctl --node /ip4/192.0.2.7/tcp/7070/p2p/12D3Koo… --cluster mine --identity me.key --swarm-key swarm.key status

`--data` names the folder of `orbweaver node` without a cluster, or of `orbweaver cluster local`.";

/// Arguments of `ctl`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CtlArguments {
    #[command(flatten)]
    access: AccessArguments,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: CtlCommand,
}

/// How to reach a cluster.
#[derive(Args)]
pub(super) struct AccessArguments {
    /// Folder that says how to reach the cluster (its file ctl.toml)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["node", "cluster", "identity", "swarm_key"])]
    data: Option<PathBuf>,
    /// Address of a node, as in /ip4/192.0.2.7/tcp/7070/p2p/12D3Koo…; may be given several times
    #[arg(long, value_name = "ADDRESS", requires_all = ["cluster", "identity", "swarm_key"])]
    node: Vec<String>,
    /// Name of the cluster, as in its cluster.toml
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// File with your identity, which the nodes list under operators or viewers
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// File with the cluster's swarm key
    #[arg(long, value_name = "FILE")]
    swarm_key: Option<PathBuf>,
}

#[derive(Subcommand)]
enum CtlCommand {
    /// Show every node
    Nodes,
    /// Show what the cluster has come to
    Status,
    /// Show who owns how much, or one slot
    Ring {
        /// Only the slot of this domain
        #[arg(long, conflicts_with = "slot")]
        domain: Option<String>,
        /// Only this slot
        #[arg(long)]
        slot: Option<u16>,
    },
    /// Hand URLs in, or look at one
    #[command(subcommand)]
    Url(UrlCommand),
    /// Hand in a list of URIs (CSV, TXT or standard input); says of each that is refused why
    #[command(after_help = import::EXAMPLES)]
    Import(import::ImportArguments),
    /// Make the node that is asked leave the cluster: it hands everything over first
    Leave,
    /// Show figures of actors: mailboxes, messages, restarts, and what they count
    Stat(admin::StatArguments),
    /// Show settings: what they are, were at the start, and may be set to
    Get(admin::GetArguments),
    /// Change settings until the node is started again
    Set(admin::SetArguments),
    /// Stop a node, or all: what is in flight is settled, then actors end in reverse order of their start
    Stop(admin::StopArguments),
    /// Let a new node into the cluster, on every node at once
    Admit(admit::AdmitArguments),
    /// Give the place of a node up that is gone for ever, so that its slots get new owners
    Forget(admin::ForgetArguments),
    /// Compare all replicas now, and mend what differs
    Repair(repair::RepairArguments),
    /// Watch the cluster; q or Ctrl-C leaves
    Top(top::TopArguments),
    /// Make a backup of a node's data folder while it runs
    Backup(backup::BackupArguments),
    /// Make a data folder from a backup, on the machine where the node is to run; asks no node
    #[command(after_help = restore::EXAMPLES)]
    Restore(restore::RestoreArguments),
    /// Add, show, pause, resume or stop crawls
    #[command(subcommand)]
    Crawl(crawl::CrawlCommand),
    /// Make, show, change or delete jobs: sources of URIs
    #[command(subcommand, after_help = source::EXAMPLES)]
    Job(source::JobCommand),
    /// Give jobs scripts that make URIs, run them, and show when they run
    #[command(subcommand, after_help = source::EXAMPLES)]
    Generator(source::GeneratorCommand),
    /// Show the tasks of a job, or hand one in
    #[command(subcommand, after_help = source::EXAMPLES)]
    Task(source::TaskCommand),
    /// Show what is written down of a job: runs, refusals, alerts
    Log(source::LogArguments),
    /// Make, change, show, find, empty or delete sites
    #[command(subcommand)]
    Site(Box<site::SiteCommand>),
    /// Set, change, delete or show attributes of sites and their URLs
    #[command(subcommand)]
    Attribute(attribute::AttributeCommand),
    /// Give sites proxies, change, show them or take them away
    #[command(subcommand)]
    Proxy(attribute::ProxyCommand),
    /// Crawl and process URLs now, and show what came of them: a batch as JSON
    Batch {
        /// File with the batch, - for standard input
        file: PathBuf,
    },
    /// Ask the page graph: all pages or links, pages by name, who links to whom, the best
    Pages(pages::GraphArguments),
    /// Show what waits, in the order in which it is fetched, or compute scores now
    #[command(subcommand)]
    Schedule(pages::ScheduleCommand),
    /// Ask over all sites or URLs: SELECT … FROM urls|sites WHERE … GROUP BY … ORDER BY … LIMIT …
    #[command(after_help = urls::QUERY_EXAMPLES)]
    Query {
        /// The query; docs/sites.md has the language
        text: String,
    },
}

#[derive(Subcommand)]
enum UrlCommand {
    /// Crawl these URLs; returns when enough disks have them
    Add {
        /// The URLs
        urls: Vec<String>,
        /// File with one URL a line (# begins a comment), - for standard input
        #[arg(long, value_name = "FILE")]
        seeds: Option<PathBuf>,
        /// Their crawl
        #[arg(long, default_value = DEFAULT_CRAWL)]
        crawl: String,
    },
    /// Show what each node knows of a URL
    Status {
        /// The URL
        url: String,
        /// Its crawl
        #[arg(long, default_value = DEFAULT_CRAWL)]
        crawl: String,
    },
    /// Hand URLs of sites in; says of each whether it is new
    #[command(after_help = urls::NEW_EXAMPLES)]
    New(urls::NewArguments),
    /// Look for URLs of sites
    #[command(after_help = urls::FIND_EXAMPLES)]
    Find(urls::FindArguments),
    /// Have URLs of a site crawled again, or no more
    #[command(after_help = urls::CHANGE_EXAMPLES)]
    Update(urls::UpdateArguments),
    /// Delete URLs of a site: they are crawled only when they are handed in again
    #[command(after_help = urls::CHANGE_EXAMPLES)]
    Delete(urls::ChangeArguments),
    /// Forget what was found of URLs of a site, and crawl them anew
    #[command(after_help = urls::CHANGE_EXAMPLES)]
    Cleanup(urls::ChangeArguments),
    /// Read a page from whichever node has it
    Content(content::ContentArguments),
    /// Hand in a content of a URL of a site: what processing made of it, or what others fetched
    #[command(after_help = urls::PUT_EXAMPLES)]
    Put(urls::PutArguments),
    /// Show what happened to URLs of a site, if it keeps that (its property STATS_LOG_ENABLED)
    #[command(after_help = urls::HISTORY_EXAMPLES)]
    History(urls::NamedArguments),
    /// Show how often what happened to URLs of a site
    #[command(after_help = urls::HISTORY_EXAMPLES)]
    Stats(urls::NamedArguments),
    /// Delete URLs that are too old, some of each site
    #[command(after_help = urls::UPKEEP_EXAMPLES)]
    Age(urls::UpkeepArguments),
    /// Remove what leads to the contents of deleted URLs, some of each site
    #[command(after_help = urls::UPKEEP_EXAMPLES)]
    Purge(urls::UpkeepArguments),
    /// Count the URLs of sites anew
    #[command(after_help = urls::UPKEEP_EXAMPLES)]
    Recalculate(urls::UpkeepArguments),
}

impl UrlCommand {
    /// What it asks of sites.
    fn work(&self) -> Option<UrlWork<'_>> {
        match self {
            UrlCommand::Add { .. } | UrlCommand::Status { .. } | UrlCommand::Content(_) => None,
            UrlCommand::New(arguments) => Some(UrlWork::New(arguments)),
            UrlCommand::Find(arguments) => Some(UrlWork::Find(arguments)),
            UrlCommand::Update(arguments) => Some(UrlWork::Update(arguments)),
            UrlCommand::Delete(arguments) => Some(UrlWork::Delete(arguments)),
            UrlCommand::Cleanup(arguments) => Some(UrlWork::Cleanup(arguments)),
            UrlCommand::Put(arguments) => Some(UrlWork::Put(arguments)),
            UrlCommand::History(arguments) => Some(UrlWork::History(arguments, Operation::UrlHistory)),
            UrlCommand::Stats(arguments) => Some(UrlWork::History(arguments, Operation::UrlStats)),
            UrlCommand::Age(arguments) => Some(UrlWork::Upkeep(arguments, Operation::UrlAge)),
            UrlCommand::Purge(arguments) => Some(UrlWork::Upkeep(arguments, Operation::UrlPurge)),
            UrlCommand::Recalculate(arguments) => Some(UrlWork::Upkeep(arguments, Operation::FieldRecalculate)),
        }
    }
}

/// Runs a command.
pub(super) fn run(arguments: &CtlArguments) -> Result<Exit, Complaint> {
    if let CtlCommand::Restore(restored) = &arguments.command {
        // The node does not run, and the cluster knows nothing of its folder.
        return restore::run(restored, arguments.json);
    }
    let access = arguments.access.understand()?;
    let requests = requests(&arguments.command)?;
    in_runtime(async {
        let connection = Connection::open(&access).await?;
        let json = arguments.json;
        let operated = match &arguments.command {
            CtlCommand::Top(arguments) => return top::top(connection, &access, arguments, json).await,
            CtlCommand::Stat(arguments) => Some(admin::stat(&connection, arguments, json).await),
            CtlCommand::Get(arguments) => Some(admin::get(&connection, arguments, json).await),
            CtlCommand::Set(arguments) => Some(admin::set(&connection, arguments, json).await),
            CtlCommand::Stop(arguments) => Some(admin::stop(&connection, arguments, json).await),
            CtlCommand::Admit(arguments) => Some(admit::admit(&connection, arguments, json).await),
            CtlCommand::Forget(arguments) => Some(admin::forget(&connection, arguments, json).await),
            CtlCommand::Repair(arguments) => Some(repair::repair(&connection, arguments, json).await),
            CtlCommand::Backup(arguments) => Some(backup::backup(&connection, arguments, json).await),
            CtlCommand::Import(arguments) => Some(import::import(&connection, arguments, json).await),
            CtlCommand::Url(UrlCommand::Content(arguments)) => {
                Some(content::content(&connection, arguments, json).await)
            }
            CtlCommand::Attribute(command) => Some(attribute::attribute(&connection, command, json).await),
            CtlCommand::Proxy(command) => Some(attribute::proxy(&connection, command, json).await),
            CtlCommand::Site(command) => Some(site::site(&connection, command, json).await),
            CtlCommand::Job(command) => Some(source::job(&connection, command, json).await),
            CtlCommand::Generator(command) => Some(source::generator(&connection, command, json).await),
            CtlCommand::Task(command) => Some(source::task(&connection, command, json).await),
            CtlCommand::Log(arguments) => Some(source::log(&connection, arguments, json).await),
            CtlCommand::Pages(arguments) => Some(pages::pages(&connection, arguments, json).await),
            CtlCommand::Schedule(command) => Some(pages::schedule(&connection, command, json).await),
            CtlCommand::Batch { file } => Some(dc::batch(&connection, file).await),
            CtlCommand::Query { text } => Some(urls::urls(&connection, UrlWork::Query(text), json).await),
            CtlCommand::Url(command) => match command.work() {
                Some(work) => Some(urls::urls(&connection, work, json).await),
                None => None,
            },
            _ => None,
        };
        if let Some(ended) = operated {
            connection.swarm.stop().await;
            return ended;
        }
        let mut exit = Exit::Done;
        for request in requests {
            let answer = connection.ask(&request).await?;
            if show(&arguments.command, answer, arguments.json)? == Exit::Failed {
                exit = Exit::Failed;
            }
        }
        connection.close().await;
        Ok(exit)
    })
}

/// Runs a client's work on a runtime of its own.
pub(super) fn in_runtime<T>(work: impl Future<Output = Result<T, Complaint>>) -> Result<T, Complaint> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Complaint::failed(format!("cannot start: {error}")))?;
    let ended = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

impl AccessArguments {
    /// How to reach the cluster, by these arguments or by the file that they name.
    /// Whether a folder says whom to ask.
    pub(super) fn is_folder(&self) -> bool {
        self.cluster.is_none() && self.identity.is_none() && self.swarm_key.is_none()
    }

    pub(super) fn understand(&self) -> Result<Access, Complaint> {
        match (&self.cluster, &self.identity, &self.swarm_key) {
            (Some(cluster), Some(identity), Some(swarm_key)) if !self.node.is_empty() => {
                for node in &self.node {
                    parse_address(node).map_err(|error| Complaint::usage(format!("--node {error}")))?;
                }
                Ok(Access {
                    cluster: cluster.clone(),
                    identity: identity.clone(),
                    swarm_key: swarm_key.clone(),
                    nodes: self.node.clone(),
                })
            }
            (None, None, None) => Access::load(self.data.as_deref().unwrap_or(std::path::Path::new("orbweaver-data"))),
            _ => Err(Complaint::usage("--node, --cluster, --identity and --swarm-key go together")),
        }
    }
}

fn requests(command: &CtlCommand) -> Result<Vec<Request>, Complaint> {
    Ok(match command {
        CtlCommand::Nodes | CtlCommand::Status => vec![Request::Nodes],
        CtlCommand::Ring { domain, slot } => vec![Request::Ring { domain: domain.clone(), slot: *slot }],
        CtlCommand::Leave => vec![Request::Leave],
        CtlCommand::Crawl(command) => vec![crawl::request(command)?],
        CtlCommand::Url(UrlCommand::Status { url, crawl }) => {
            vec![Request::Url { crawl: crawl.clone(), url: url.clone() }]
        }
        CtlCommand::Url(UrlCommand::Add { urls, seeds, crawl }) => {
            let urls = seeds::read(urls, seeds.as_deref(), &Default::default())?;
            let texts: Vec<String> = urls.iter().map(|url| url.as_str().to_owned()).collect();
            let request = |urls: &[String]| Request::AddUrls { crawl: crawl.clone(), urls: urls.to_vec() };
            texts.chunks(URLS_AT_ONCE).map(request).collect()
        }
        // These ask as they go on.
        CtlCommand::Stat(_)
        | CtlCommand::Get(_)
        | CtlCommand::Set(_)
        | CtlCommand::Stop(_)
        | CtlCommand::Admit(_)
        | CtlCommand::Forget(_)
        | CtlCommand::Repair(_)
        | CtlCommand::Top(_)
        | CtlCommand::Import(_)
        | CtlCommand::Backup(_)
        | CtlCommand::Restore(_)
        | CtlCommand::Site(_)
        | CtlCommand::Job(_)
        | CtlCommand::Generator(_)
        | CtlCommand::Task(_)
        | CtlCommand::Log(_)
        | CtlCommand::Attribute(_)
        | CtlCommand::Proxy(_)
        | CtlCommand::Query { .. }
        | CtlCommand::Pages(_)
        | CtlCommand::Schedule(_)
        | CtlCommand::Batch { .. }
        | CtlCommand::Url(_) => Vec::new(),
    })
}

/// A node that answers.
pub(super) struct Connection {
    swarm: Swarm,
    peer: PeerId,
    patience: Duration,
}

impl Connection {
    /// Connects to the first node that answers.
    pub(super) async fn open(access: &Access) -> Result<Connection, Complaint> {
        let identity = Identity::load(&access.identity).map_err(Complaint::usage)?;
        let key = SwarmKey::load(&access.swarm_key).map_err(Complaint::usage)?;
        let nodes = access.addresses()?;
        let mut settings = Settings::new(identity, key, ClusterId::of_name(&access.cluster));
        // They are dialled one by one, below. To us they are no nodes: we have no letters for them.
        let peer = |(peer, _): &(PeerId, _)| Peer { peer: *peer, role: Role::Viewer, addresses: Vec::new() };
        settings.peers = nodes.iter().map(peer).collect();
        let swarm =
            Swarm::start(settings, Doors::closed(), SwarmMetrics::default()).await.map_err(Complaint::failed)?;
        let mut failures = Vec::new();
        for (_, address) in nodes {
            match tokio::time::timeout(REACH_PATIENCE, swarm.reach(address.clone())).await {
                Ok(Ok(peer)) => return Ok(Connection { swarm, peer, patience: ANSWER_PATIENCE }),
                Ok(Err(error)) => failures.push(format!("{address}: {}", innermost(&error))),
                Err(_) => failures.push(format!("{address}: no answer in {} s", REACH_PATIENCE.as_secs())),
            }
        }
        Err(Complaint::failed(format!(
            "no node can be reached; is the cluster running, and is this key one of its operators or viewers?\n  {}",
            failures.join("\n  ")
        )))
    }

    /// The same, with another patience for each answer.
    pub(super) fn waits_for(self, patience: Duration) -> Connection {
        Connection { patience, ..self }
    }

    pub(super) async fn ask(&self, request: &Request) -> Result<Answer, Complaint> {
        self.ask_and_tell(request).await.map_err(|complaint| complaint.ends_with(Exit::Failed))
    }

    /// The same, and the exit code tells a node that says nothing ([`Exit::Failed`]) from a connection that broke ([`Exit::Data`]).
    pub(super) async fn ask_and_tell(&self, request: &Request) -> Result<Answer, Complaint> {
        let bytes = seal(request).map_err(Complaint::failed)?;
        let answer = tokio::time::timeout(self.patience, self.swarm.ask(self.peer, &bytes)).await;
        let answer = answer.map_err(|_| Complaint::failed("the node does not answer"))?.map_err(Complaint::data)?;
        unseal(&answer).map_err(Complaint::data)
    }

    /// Ends it.
    pub(super) async fn close(self) {
        self.swarm.stop().await;
    }
}

/// What really happened, of an error that names every layer it passed through.
fn innermost(error: &str) -> String {
    let last = error.lines().last().unwrap_or(error).trim_end_matches([')', ']']);
    let text = last.rsplit(": ").next().unwrap_or(last).trim();
    // Of the brackets that were cut off some were its own.
    let open = text.matches('(').count().saturating_sub(text.matches(')').count());
    format!("{text}{}", ")".repeat(open))
}

fn show(command: &CtlCommand, answer: Answer, as_json: bool) -> Result<Exit, Complaint> {
    if let Answer::Refused(why) = answer {
        return Err(Complaint::failed(why));
    }
    let exit = match &answer {
        Answer::Added { wrong, .. } if !wrong.is_empty() => Exit::Failed,
        Answer::Nodes(nodes) if nodes.iter().any(|node| node.report.is_err()) => Exit::Failed,
        _ => Exit::Done,
    };
    let text = if as_json {
        json!(answer).to_string()
    } else {
        match answer {
            Answer::Nodes(nodes) if matches!(command, CtlCommand::Status) => status_text(&nodes),
            Answer::Nodes(nodes) => nodes_text(&nodes),
            Answer::Node(report) => {
                status_text(&[NodeAnswer { node: report.node, peer: report.peer.clone(), report: Ok(report) }])
            }
            Answer::Ring(rows) => ring_text(&rows),
            Answer::Url(answers) => url_text(&answers),
            Answer::Added { kept, wrong } => {
                wrong.iter().for_each(|(url, why)| eprintln!("orbweaver: {url}: {why}"));
                format!("{kept} URLs are kept")
            }
            Answer::Done => "done".to_owned(),
            Answer::Refused(why) => why,
            Answer::Admin(parts) => admin::parts_text(&parts),
            Answer::Crawl(answer) => crawl::text(&answer),
            Answer::Client(_) => "an answer for another program".to_owned(),
            // They are shown by who asks for them.
            answer @ (Answer::Content(_) | Answer::Admitted { .. }) => format!("{answer:?}"),
            Answer::Operation(text) => text,
            Answer::Records(answer) => format!("{answer:?}"),
            Answer::Pages(answer) => answer.rows.join("\n"),
        }
    };
    say(&text).map_err(|error| Complaint::failed(format!("cannot write: {error}")))?;
    Ok(exit)
}

fn name(node: u64) -> String {
    format!("{node:016x}")
}

fn nodes_text(nodes: &[NodeAnswer]) -> String {
    let mut lines = vec![format!(
        "{:<16}  {:>6}  {:>6}  {:>5}  {:>6}  {:>9}  {:>9}  {:>8}  {}",
        "node", "owned", "held", "load", "alive", "fetching", "records", "uptime", "peer"
    )];
    for node in nodes {
        lines.push(match &node.report {
            Ok(report) => {
                let NodeReport { owned, held, load, alive, members, fetching, records, uptime_s, left, .. } = **report;
                let load = format!("{}.{}%", load / 10, load % 10);
                let (alive, uptime) = (format!("{alive}/{members}"), format!("{uptime_s}s"));
                let peer = format!("{}{}", node.peer, if left { " (has left)" } else { "" });
                format!(
                    "{:<16}  {owned:>6}  {held:>6}  {load:>5}  {alive:>6}  {fetching:>9}  {records:>9}  {uptime:>8}  {peer}",
                    name(node.node)
                )
            }
            Err(why) => format!("{:<16}  {}: {why}", name(node.node), node.peer),
        });
    }
    lines.join("\n")
}

fn status_text(nodes: &[NodeAnswer]) -> String {
    let reports: Vec<&NodeReport> = nodes.iter().filter_map(|node| node.report.as_deref().ok()).collect();
    let mut totals = Totals::default();
    reports.iter().for_each(|report| totals.add(report.totals));
    let sum = |of: fn(&NodeReport) -> u64| reports.iter().map(|report| of(report)).sum::<u64>();
    let rows = [
        ("nodes that answer", format!("{} of {}", reports.len(), nodes.len())),
        ("slots held", format!("{} of {}", sum(|report| report.held.into()), proto::id::SLOTS)),
        ("URLs known", totals.known.to_string()),
        ("pages", totals.processed.to_string()),
        ("failed", totals.failed.to_string()),
        ("bytes", totals.bytes.to_string()),
        ("fetching", sum(|report| report.fetching.into()).to_string()),
        ("fetches since start", sum(|report| report.fetches).to_string()),
    ];
    let mut lines: Vec<String> = rows.iter().map(|(what, value)| format!("{what:<20} {value}")).collect();
    for node in nodes {
        if let Err(why) = &node.report {
            lines.push(format!("missing: {} ({}): {why}; its slots are not counted", name(node.node), node.peer));
        }
    }
    lines.join("\n")
}

fn ring_text(rows: &[RingRow]) -> String {
    let row = |row: &RingRow| {
        let names: Vec<String> = row.nodes.iter().map(|node| name(*node)).collect();
        match (row.slot, names.split_first()) {
            (Some(slot), Some((owner, copies))) if !copies.is_empty() => {
                format!("slot {slot}: owner {owner}, copies on {}", copies.join(", "))
            }
            (Some(slot), _) => format!("slot {slot}: owner {}", names.join(", ")),
            (None, _) => format!("{}  {} slots", names.join(", "), row.slots),
        }
    };
    rows.iter().map(row).collect::<Vec<String>>().join("\n")
}

fn url_text(answers: &[UrlAnswer]) -> String {
    let line = |answer: &UrlAnswer| {
        let node = name(answer.node);
        match &answer.state {
            Ok(None) => format!("{node}  not here"),
            Ok(Some(facts)) => {
                let code = facts.http_code.map_or(String::new(), |code| format!("  {code}"));
                let failure = facts.failure.as_ref().map_or(String::new(), |why| format!("  {why}"));
                let title = facts.title.as_ref().map_or(String::new(), |title| format!("  {title:?}"));
                let (round, status) = (facts.progress.round, facts.progress.status.name());
                format!("{node}  round {round}  {status}{code}{failure}{title}")
            }
            Err(why) => format!("{node}  unknown: {why}"),
        }
    };
    answers.iter().map(line).collect::<Vec<String>>().join("\n")
}
