//! The program `orbweaver`: one file per command.

mod access;
mod batch;
mod cert;
mod crawl;
mod ctl;
mod dc;
mod export;
mod frontier;
mod keygen;
mod local;
mod moved;
mod node;
mod ose;
mod pages;
mod progress;
mod restore;
mod runtime;
mod schedule;
mod script;
mod seeds;
mod signals;
mod summary;
mod tasks;
mod tell;
mod units;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::logging;

/// How a command ended, as the shell sees it. Stable: scripts depend on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or a limit that was asked for is reached.
    Done = 0,
    /// Something failed while it ran, or no host could be reached; what was settled is kept.
    Failed = 1,
    /// Wrong flags, seeds or configuration; nothing was started.
    Usage = 2,
    /// The data folder cannot be used. Of `dc`: the connection broke while an answer was waited for.
    Data = 3,
    /// Of `dc`: what was given is no request.
    NoRequest = 4,
    /// Of `dc`: whom to ask cannot be found out.
    NotStarted = 5,
    /// Stopped by Ctrl-C or SIGTERM; the same command goes on.
    Interrupted = 130,
}

/// Why a command ended early: what to tell the user, and the exit code.
#[derive(Debug)]
pub struct Complaint {
    exit: Exit,
    text: String,
}

impl Complaint {
    /// What is wrong.
    fn text(&self) -> &str {
        &self.text
    }

    fn usage(text: impl ToString) -> Complaint {
        Complaint { exit: Exit::Usage, text: text.to_string() }
    }

    fn data(text: impl ToString) -> Complaint {
        Complaint { exit: Exit::Data, text: text.to_string() }
    }

    fn failed(text: impl ToString) -> Complaint {
        Complaint { exit: Exit::Failed, text: text.to_string() }
    }

    /// The same, with another exit code.
    fn ends_with(self, exit: Exit) -> Complaint {
        Complaint { exit, ..self }
    }
}

const EXIT_CODES: &str = "Exit codes: 0 done or limit reached, 1 failed while running or no host reached, 2 wrong usage, \
3 data folder unusable, 130 interrupted (the same command goes on)";

#[derive(Parser)]
#[command(name = "orbweaver", version, about = "A peer-to-peer web crawler", after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Log format: text for people, json for machines
    #[arg(long, global = true, default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// What to log, e.g. info or node=debug; also by the environment variable ORBWEAVER_LOG
    #[arg(long, global = true, env = "ORBWEAVER_LOG", default_value = "warn")]
    log: String,
}

#[derive(Subcommand)]
enum Command {
    /// Crawl from these URLs on, into a data folder; the same command goes on where it stopped
    Crawl(Box<crawl::CrawlArguments>),
    /// Write what a crawl found as JSON lines, CSV or a list of URLs
    Export(export::ExportArguments),
    /// Ask the page graph of a crawl: links, paths, the best pages
    Pages(pages::PagesArguments),
    /// Show what waits in the queues of a crawl, or put it in the order of new scores
    Schedule(schedule::ScheduleArguments),
    /// Run a node of a cluster, until Ctrl-C
    Node(node::NodeArguments),
    /// Start a whole cluster on this machine, for trying out
    #[command(subcommand)]
    Cluster(local::ClusterCommand),
    /// Ask and steer a running cluster
    Ctl(ctl::CtlArguments),
    /// Be a client of the URL Frontier API: of a node, or of any other server of it
    Frontier(frontier::FrontierArguments),
    /// Work on site folders of OpenSearchEngine (OSE): fetch, parse and merge; take them in and give them back
    #[command(subcommand)]
    Ose(ose::OseCommand),
    /// Carry out an operation of the HCE Distributed Crawler, with its JSON in and out
    Dc(dc::DcArguments),
    /// Crawl a batch of the HCE Distributed Crawler: JSON in, JSON out, nothing is kept
    CrawlBatch(batch::CrawlBatchArguments),
    /// Process a batch of the HCE Distributed Crawler: JSON in, JSON out, nothing is kept
    ProcessBatch(batch::ProcessBatchArguments),
    /// Make a data folder from a backup
    Restore(restore::RestoreArguments),
    /// Become a script of a generator; nodes start this
    #[command(hide = true)]
    Script(script::ScriptArguments),
    /// Make a certificate and its key for the doors of a node
    Cert(cert::CertArguments),
    /// Make identities and the swarm key of a cluster, or show those that are there
    Keygen(keygen::KeygenArguments),
}

/// Runs the program.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse_from(dc::with_two_dashes(std::env::args_os()));
    if let Command::Script(arguments) = &arguments.command {
        return script::run(arguments);
    }
    if let Err(complaint) = start_log(&arguments) {
        return complain(&complaint);
    }
    let ended = match arguments.command {
        Command::Cert(arguments) => cert::run(&arguments),
        Command::Crawl(arguments) => crawl::run(*arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Pages(arguments) => pages::run(&arguments),
        Command::Schedule(arguments) => schedule::run(&arguments),
        Command::Node(arguments) => node::run(&arguments),
        Command::Cluster(command) => local::run(&command),
        Command::Ctl(arguments) => ctl::run(&arguments),
        Command::Frontier(arguments) => frontier::run(arguments),
        Command::Dc(arguments) => dc::run(&arguments),
        Command::CrawlBatch(arguments) => batch::crawl(&arguments),
        Command::ProcessBatch(arguments) => batch::process(&arguments),
        Command::Keygen(arguments) => keygen::run(&arguments),
        Command::Ose(command) => ose::run(&command),
        Command::Restore(arguments) => restore::run(&arguments, false),
        Command::Script(arguments) => return script::run(&arguments),
    };
    match ended {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(complaint) => complain(&complaint),
    }
}

fn complain(complaint: &Complaint) -> ExitCode {
    tell::complaint(&complaint.text);
    ExitCode::from(complaint.exit as u8)
}

fn start_log(arguments: &Arguments) -> Result<(), Complaint> {
    if arguments.log_format == "json" {
        tell::as_json();
    }
    let filter = logging::parse(&arguments.log)
        .map_err(|error| Complaint::usage(format!("--log {}: {error}", arguments.log)))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(progress::log_writer);
    let started = match arguments.log_format.as_str() {
        "json" => {
            let log = log.json().with_filter_reloading();
            let handle = log.reload_handle();
            logging::installed(&arguments.log, move |filter| handle.reload(filter).map_err(|error| error.to_string()));
            log.try_init()
        }
        _ => {
            let log = log.with_filter_reloading();
            let handle = log.reload_handle();
            logging::installed(&arguments.log, move |filter| handle.reload(filter).map_err(|error| error.to_string()));
            log.try_init()
        }
    };
    started.map_err(|error| Complaint::failed(format!("cannot start the log: {error}")))
}
