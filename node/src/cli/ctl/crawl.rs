//! `orbweaver ctl crawl`: crawls of a cluster, added, looked at, paused and stopped.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use proto::clients::fetch::Fetch;
use proto::control::Request;
use proto::control::crawl::{CrawlAnswer, CrawlList, CrawlRequest, CrawlRow};
use proto::crawl::definition::{CrawlDefinition, CrawlState};
use proto::crawl::filter::Scope;
use proto::id::SLOTS;

use crate::cli::crawl::{ScopeArgument, parse_recrawl};
use crate::cli::units::{parse_time, show_count, show_size, show_time};
use crate::cli::{Complaint, seeds};

const ADD_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver crawl add news https://example.com/ --max-pages 10000
  orbweaver ctl --data /srv/orbweaver crawl add docs https://example.org/docs/ --scope prefix --delay 2s --recrawl 1d
  orbweaver ctl --data /srv/orbweaver crawl add shared --scope any --fetch both

The URLs of a crawl are kept under its name and go by its rules, on every node. User agent, headers and concurrency are the
nodes' own settings. Added again with the same seeds and rules, a crawl that was stopped begins again.";
const LIST_EXAMPLES: &str = "Example:
  orbweaver ctl --data /srv/orbweaver crawl list --json";
const PAUSE_EXAMPLES: &str = "Example:
  orbweaver ctl --data /srv/orbweaver crawl pause news

What is being fetched is still kept; everything else waits until `crawl resume`.";
const FETCH_EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver crawl fetch news
  orbweaver ctl --data /srv/orbweaver crawl fetch news both

What a node or a client has taken already is its to finish. Only a crawl that was added with --fetch can be switched.";
const RESUME_EXAMPLES: &str = "Example:
  orbweaver ctl --data /srv/orbweaver crawl resume news";
const STOP_EXAMPLES: &str = "Example:
  orbweaver ctl --data /srv/orbweaver crawl stop news

What it found stays.";

#[derive(Subcommand)]
pub(super) enum CrawlCommand {
    /// Define a crawl and begin it; returns when enough nodes have it
    #[command(after_help = ADD_EXAMPLES)]
    Add(Box<AddArguments>),
    /// Show all crawls and what they have come to
    #[command(after_help = LIST_EXAMPLES)]
    List,
    /// Say who fetches the URLs of a crawl that is open to clients, or have it be somebody else
    #[command(after_help = FETCH_EXAMPLES)]
    Fetch {
        /// Its name
        name: String,
        /// Who is to fetch; without it, it is only said who does
        #[arg(value_enum)]
        fetch: Option<FetchArgument>,
    },
    /// Fetch nothing of a crawl for now
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause {
        /// Its name
        name: String,
    },
    /// Let a paused crawl go on
    #[command(after_help = RESUME_EXAMPLES)]
    Resume {
        /// Its name
        name: String,
    },
    /// End a crawl for good
    #[command(after_help = STOP_EXAMPLES)]
    Stop {
        /// Its name
        name: String,
    },
}

/// Who fetches.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum FetchArgument {
    /// The nodes; clients of the URL Frontier API put URLs and look
    Own,
    /// Clients of the URL Frontier API alone
    Clients,
    /// Whoever comes first to a URL
    Both,
}

impl FetchArgument {
    fn fetch(self) -> Fetch {
        match self {
            FetchArgument::Own => Fetch::Own,
            FetchArgument::Clients => Fetch::Clients,
            FetchArgument::Both => Fetch::Both,
        }
    }
}

/// What defines a crawl.
#[derive(Args)]
pub(super) struct AddArguments {
    /// Its name
    name: String,
    /// URLs to begin with
    urls: Vec<String>,
    /// File with one URL a line (# begins a comment), - for standard input
    #[arg(long, value_name = "FILE")]
    seeds: Option<PathBuf>,
    /// Stop after this many pages; with several nodes a few more may come
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_pages: Option<u64>,
    /// Follow at most this many links from a seed [default: as the nodes are set]
    #[arg(long, value_name = "N")]
    max_depth: Option<u16>,
    /// How far from the seeds to go [default: host]
    #[arg(long, value_enum)]
    scope: Option<ScopeArgument>,
    /// Crawl only URLs that match one of these regular expressions
    #[arg(long, value_name = "REGEX")]
    include: Vec<String>,
    /// Do not crawl URLs that match one of these regular expressions
    #[arg(long, value_name = "REGEX")]
    exclude: Vec<String>,
    /// Least time between two requests to a host, as in 2s; never less than the nodes are set to
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    delay: Option<Duration>,
    /// Crawl each page again this long after it was last crawled, as in 1d
    #[arg(long, value_name = "TIME", value_parser = parse_recrawl)]
    recrawl: Option<Duration>,
    /// Open the crawl to clients of the URL Frontier API: its URLs wait in their queues, and these fetch them. URLs to begin with may be left out then, with --scope any
    #[arg(long, value_enum, value_name = "WHO")]
    fetch: Option<FetchArgument>,
    /// Replace the seeds and rules of a crawl that is there: they count for what waits and what is found from now on
    #[arg(long)]
    replace: bool,
}

/// A crawl that begins now.
pub(in crate::cli) fn definition(name: &str, seeds: Vec<String>, scope: Option<ScopeArgument>) -> CrawlDefinition {
    CrawlDefinition {
        name: name.to_owned(),
        seeds,
        scope: scope.map_or(Scope::Host, ScopeArgument::scope),
        include: Vec::new(),
        exclude: Vec::new(),
        depth_max: None,
        pages_max: None,
        delay_ms: None,
        recrawl_period_s: None,
        state: CrawlState::Running,
        defined_at: crate::edges::clock::unix_ms(),
        fetch: None,
    }
}

pub(super) fn request(command: &CrawlCommand) -> Result<Request, Complaint> {
    let set = |name: &String, state| CrawlRequest::Set { name: name.clone(), state };
    Ok(Request::Crawl(match command {
        CrawlCommand::List => CrawlRequest::List,
        CrawlCommand::Pause { name } => set(name, CrawlState::Paused),
        CrawlCommand::Resume { name } => set(name, CrawlState::Running),
        CrawlCommand::Stop { name } => set(name, CrawlState::Stopped),
        CrawlCommand::Fetch { name, fetch } => {
            CrawlRequest::Fetch { name: name.clone(), fetch: fetch.map(FetchArgument::fetch) }
        }
        CrawlCommand::Add(add) => {
            let none = add.fetch.is_some() && add.urls.is_empty() && add.seeds.is_none();
            let urls = match none {
                true => Vec::new(), // clients bring them
                false => seeds::read(&add.urls, add.seeds.as_deref(), &Default::default())?,
            };
            let urls = urls.iter().map(|url| url.as_str().to_owned()).collect();
            let definition = CrawlDefinition {
                include: add.include.clone(),
                exclude: add.exclude.clone(),
                depth_max: add.max_depth,
                pages_max: add.max_pages,
                delay_ms: add.delay.map(|delay| delay.as_millis() as u64),
                recrawl_period_s: add.recrawl.map(|period| period.as_secs()),
                ..definition(&add.name, urls, add.scope)
            };
            match add.fetch {
                None => CrawlRequest::Add(Box::new(definition), add.replace),
                Some(fetch) => CrawlRequest::AddOpen(Box::new(definition), fetch.fetch(), add.replace),
            }
        }
    }))
}

/// An answer, for people.
pub(super) fn text(answer: &CrawlAnswer) -> String {
    match answer {
        CrawlAnswer::List(list) => list_text(list),
        CrawlAnswer::Fetch { crawl, fetch: Some(fetch) } => {
            let who = match fetch {
                Fetch::Own => "the nodes; clients put URLs and look",
                Fetch::Clients => "clients; the nodes fetch nothing of it",
                Fetch::Both => "the nodes and clients, whoever comes first to a URL",
            };
            format!("crawl {crawl:?} is fetched by {who} ({fetch})")
        }
        CrawlAnswer::Fetch { crawl, fetch: None } => {
            format!("crawl {crawl:?} is fetched by the nodes, and is not open to clients")
        }
        CrawlAnswer::Here(here) => format!("{} slots, {} fetching", here.held, here.fetching),
        CrawlAnswer::Kept { crawl, state, seeds, nodes, missing } => {
            let seeds = if *seeds > 0 { format!(", {seeds} seeds are kept") } else { String::new() };
            let mut lines = vec![format!("crawl {crawl:?} is {} on {nodes} nodes{seeds}", state.name())];
            lines.extend(missing.iter().map(|node| {
                format!(
                    "missing: {node} has not confirmed; it goes by this when it hears of it, at once or when it is back"
                )
            }));
            lines.join("\n")
        }
    }
}

fn list_text(list: &CrawlList) -> String {
    let mut lines = Vec::new();
    if list.crawls.is_empty() {
        lines.push("no crawl is defined; add one with `orbweaver ctl crawl add NAME URL`".to_owned());
    } else {
        lines.push(format!(
            "{:<20}  {:<8}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {}",
            "crawl", "state", "pages", "open", "failed", "known", "size", "rules"
        ));
        lines.extend(list.crawls.iter().map(row_text));
    }
    if list.slots < u32::from(SLOTS) {
        lines.push(format!("counts are of {} of {SLOTS} slots", list.slots));
    }
    lines.extend(list.missing.iter().map(|(node, why)| format!("missing: {node}: {why}; its slots are not counted")));
    lines.join("\n")
}

fn row_text(row: &CrawlRow) -> String {
    let totals = row.counts.totals;
    let (state, rules) = match &row.definition {
        Some(definition) => (definition.state.name(), rules_text(definition)),
        None => ("running", "as the nodes are set".to_owned()),
    };
    format!(
        "{:<20}  {state:<8}  {:>9}  {:>9}  {:>9}  {:>9}  {:>9}  {rules}",
        row.name,
        show_count(totals.processed),
        show_count(row.counts.open),
        show_count(totals.failed),
        show_count(totals.known),
        show_size(totals.bytes),
    )
}

fn rules_text(definition: &CrawlDefinition) -> String {
    let mut rules = vec![match definition.seeds.as_slice() {
        [one] => one.clone(),
        [first, more @ ..] => format!("{first} and {} more", more.len()),
        [] => "no seed".to_owned(),
    }];
    rules.push(format!("scope {}", format!("{:?}", definition.scope).to_lowercase()));
    let mut add = |name: &str, value: Option<String>| rules.extend(value.map(|value| format!("{name} {value}")));
    add("include", (!definition.include.is_empty()).then(|| definition.include.join(" ")));
    add("exclude", (!definition.exclude.is_empty()).then(|| definition.exclude.join(" ")));
    add("depth", definition.depth_max.map(|depth| depth.to_string()));
    add("pages", definition.pages_max.map(|pages| pages.to_string()));
    add("delay", definition.delay_ms.map(|delay| format!("{}s", delay as f64 / 1e3)));
    add("recrawl", definition.recrawl_period_s.map(|period| show_time(Duration::from_secs(period))));
    rules.join(", ")
}
