//! `orbweaver ctl job|generator|task|log`: sources of URIs.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use proto::control::source::{JobChange, NewJob, SourceRequest, TargetName};
use proto::control::{Answer, Request};
use proto::source::job::{CodeType, SCRIPT_BYTES_MAX, generator_status, job_status};
use serde_json::{Value as Json, json};

use super::Connection;
use super::site::written;
use crate::cli::units::show_count;
use crate::cli::{Complaint, Exit};

pub(super) const EXAMPLES: &str = "Examples:
  orbweaver ctl --data /srv/orbweaver job add news --info 'front pages' --priority 2
  orbweaver ctl --data /srv/orbweaver import list.csv --job news
  orbweaver ctl --data /srv/orbweaver generator add news make_uris.py --cron '*/30 * * * *'
  orbweaver ctl --data /srv/orbweaver generator run news
  orbweaver ctl --data /srv/orbweaver task list news
  orbweaver ctl --data /srv/orbweaver log news --kind generator

A job is named by its id, or by its name if no other job has it. docs/sources.md says more.";

/// Commands about jobs.
#[derive(Subcommand)]
pub(super) enum JobCommand {
    /// Make a job
    Add(AddArguments),
    /// Show jobs with their next runs
    List {
        /// Only this one
        job: Option<String>,
    },
    /// Change a job
    Set {
        /// Which
        job: String,
        /// −1 is soonest, 5 last
        #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-1..=5))]
        priority: Option<i8>,
        /// What it is for
        #[arg(long)]
        info: Option<String>,
        /// Whom it is for
        #[arg(long)]
        customer: Option<String>,
    },
    /// Switch a job on
    On {
        /// Which
        job: String,
    },
    /// Switch a job off: its generator does not run, its tasks stay
    Off {
        /// Which
        job: String,
    },
    /// Delete a job with its generators, tasks, logs, and the site of its own
    Delete {
        /// Which
        job: String,
    },
}

/// What a new job is.
#[derive(Args)]
pub(super) struct AddArguments {
    /// Its name, at most 128 characters
    name: String,
    /// What it is for, at most 1,024 characters
    #[arg(long, default_value = "")]
    info: String,
    /// Whom it is for
    #[arg(long)]
    customer: Option<String>,
    /// −1 is soonest, 5 last
    #[arg(long, default_value_t = 5, allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-1..=5))]
    priority: i8,
    /// The crawl that its URIs go into [default: a site of its own, which follows no links]
    #[arg(long, conflicts_with = "site")]
    crawl: Option<String>,
    /// The site that its URIs go into
    #[arg(long)]
    site: Option<String>,
    /// A URI that any other job of this kind has had within a day is known
    #[arg(long)]
    known_anywhere: bool,
}

/// Commands about generators.
#[derive(Subcommand)]
pub(super) enum GeneratorCommand {
    /// Give a job a new version of its script: it is on, the one before it is off
    Add {
        /// Which job
        job: String,
        /// The script: Python (.py) or shell (.sh); it prints one URI, or one JSON object with `uri` and `args`, a line
        file: PathBuf,
        /// When it runs, in UTC, as in '*/30 * * * *'; without it only when told to
        #[arg(long)]
        cron: Option<String>,
    },
    /// Show the versions of a job's script
    List {
        /// Which job
        job: String,
    },
    /// Print the newest version, or the one that is named
    Show {
        /// Which job
        job: String,
        /// Which version
        generator: Option<String>,
    },
    /// Run the newest version now
    Run {
        /// Which job
        job: String,
    },
    /// Switch the newest version on
    On {
        /// Which job
        job: String,
    },
    /// Switch the newest version off
    Off {
        /// Which job
        job: String,
    },
    /// Set the status of a version: 1 alpha, 2 beta, 3 production, 4 on, 5 off, 6 test failed
    Set {
        /// Which job
        job: String,
        /// Which version
        generator: String,
        /// The number
        status: u8,
    },
    /// Print all entries of the cron as a tab file
    Tab {
        /// `command @last_time # comment` instead of `command #comment #last_time`
        #[arg(long)]
        at: bool,
    },
    /// Take in a tab file of either form; a command that names no job becomes a job of its own
    ImportTab {
        /// The file, - for standard input
        file: PathBuf,
    },
}

/// Commands about tasks.
#[derive(Subcommand)]
pub(super) enum TaskCommand {
    /// Show the tasks of a job and how far they are
    List {
        /// Which job
        job: String,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Hand in one task with what is sent along
    Add {
        /// Which job
        job: String,
        /// The URI
        uri: String,
        /// JSON with headers and cookies, as in '{"headers": {"Accept-Language": "de"}, "cookies": {"a": "1"}}'
        #[arg(long)]
        args: Option<String>,
    },
}

/// Which entries of the logs.
#[derive(Args)]
pub(super) struct LogArguments {
    /// Of which job; of none in particular if absent
    job: Option<String>,
    /// generator, error, cron or alert; all if absent
    #[arg(long)]
    kind: Option<String>,
    /// How many at most, the newest
    #[arg(long, default_value_t = 50)]
    limit: u32,
}

/// Asks about sources; what is answered, as JSON.
pub(in crate::cli) async fn ask(connection: &Connection, request: SourceRequest) -> Result<Json, Complaint> {
    match connection.ask(&Request::Source(Box::new(request))).await? {
        Answer::Operation(text) => {
            serde_json::from_str(&text).map_err(|error| Complaint::failed(format!("the answer is no JSON: {error}")))
        }
        Answer::Refused(why) => Err(Complaint::failed(why)),
        other => Err(Complaint::failed(format!("the node answered {other:?}"))),
    }
}

/// Prints an answer: as it is, or for people.
fn tell(answer: &Json, as_json: bool, text: impl FnOnce(&Json) -> String) -> Result<Exit, Complaint> {
    if as_json {
        written(answer)?
    } else {
        written(&text(answer))?
    }
    Ok(Exit::Done)
}

fn text<'a>(row: &'a Json, name: &str) -> &'a str {
    row[name].as_str().unwrap_or("-")
}

fn rows(answer: &Json) -> &[Json] {
    answer.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Runs a command about jobs.
pub(super) async fn job(connection: &Connection, command: &JobCommand, as_json: bool) -> Result<Exit, Complaint> {
    let set = |status: u8| JobChange { status: Some(status), ..JobChange::default() };
    match command {
        JobCommand::Add(new) => {
            let target = match (&new.crawl, &new.site) {
                (Some(crawl), _) => TargetName::Crawl(crawl.clone()),
                (None, Some(site)) => TargetName::Site(site.clone()),
                (None, None) => TargetName::Own,
            };
            let new = NewJob {
                name: new.name.clone(),
                info: new.info.clone(),
                customer: new.customer.clone(),
                priority: new.priority,
                target,
                known_anywhere: new.known_anywhere,
            };
            let answer = ask(connection, SourceRequest::JobNew(new)).await?;
            tell(&answer, as_json, |made| format!("job {} is kept", text(made, "_id")))
        }
        JobCommand::List { job } => {
            let answer = ask(connection, SourceRequest::JobList(job.clone())).await?;
            tell(&answer, as_json, jobs_table)
        }
        JobCommand::Set { job, priority, info, customer } => {
            let change =
                JobChange { status: None, priority: *priority, info: info.clone(), customer: customer.clone() };
            let answer = ask(connection, SourceRequest::JobSet(job.clone(), change)).await?;
            tell(&answer, as_json, |_| format!("job {job} is changed"))
        }
        JobCommand::On { job } => {
            let answer = ask(connection, SourceRequest::JobSet(job.clone(), set(job_status::ON))).await?;
            tell(&answer, as_json, |_| format!("job {job} is on"))
        }
        JobCommand::Off { job } => {
            let answer = ask(connection, SourceRequest::JobSet(job.clone(), set(job_status::OFF))).await?;
            tell(&answer, as_json, |_| format!("job {job} is off"))
        }
        JobCommand::Delete { job } => {
            let answer = ask(connection, SourceRequest::JobDelete(job.clone())).await?;
            tell(&answer, as_json, |gone| {
                format!("job {job} is deleted with {} tasks", show_count(gone["tasks"].as_u64().unwrap_or(0)))
            })
        }
    }
}

fn jobs_table(jobs: &Json) -> String {
    if rows(jobs).is_empty() {
        return "there is no job; make one with `orbweaver ctl job add NAME`".to_owned();
    }
    let mut lines = vec![format!(
        "{:<24}  {:<20}  {:<4}  {:>3}  {:>9}  {:<16}  {:<19}  {:<19}",
        "id", "name", "", "pri", "tasks", "cron", "last run", "next run"
    )];
    for job in rows(jobs) {
        lines.push(format!(
            "{:<24}  {:<20}  {:<4}  {:>3}  {:>9}  {:<16}  {:<19}  {:<19}",
            text(job, "_id"),
            text(job, "name"),
            if job["status"] == job_status::ON { "on" } else { "off" },
            job["priority"],
            job["tasks"].as_u64().map_or_else(|| "?".to_owned(), show_count),
            text(job, "cron"),
            text(job, "last_run"),
            text(job, "next_run"),
        ));
    }
    lines.join("\n")
}

/// Runs a command about generators.
pub(super) async fn generator(
    connection: &Connection,
    command: &GeneratorCommand,
    as_json: bool,
) -> Result<Exit, Complaint> {
    let set = |job: &str, generator: Option<&String>, status: u8| SourceRequest::GeneratorSet {
        job: job.to_owned(),
        generator: generator.cloned(),
        status,
    };
    match command {
        GeneratorCommand::Add { job, file, cron } => {
            let code = read(file)?;
            let file = file.display().to_string();
            // What is no script is refused before anything is sent.
            CodeType::of(&file, &code).map_err(Complaint::usage)?;
            if code.len() > SCRIPT_BYTES_MAX {
                return Err(Complaint::usage(format!("{file} has {} bytes, more than {SCRIPT_BYTES_MAX}", code.len())));
            }
            let request = SourceRequest::GeneratorNew { job: job.clone(), file, code, cron: cron.clone() };
            let answer = ask(connection, request).await?;
            tell(&answer, as_json, |made| match cron {
                Some(cron) => format!("generator {} is on and runs at {cron} (UTC)", text(made, "_id")),
                None => format!("generator {} is on; run it with `ctl generator run {job}`", text(made, "_id")),
            })
        }
        GeneratorCommand::List { job } => {
            let answer = ask(connection, SourceRequest::GeneratorList(job.clone())).await?;
            tell(&answer, as_json, generators_table)
        }
        GeneratorCommand::Show { job, generator } => {
            let answer = ask(connection, SourceRequest::GeneratorList(job.clone())).await?;
            let named = |row: &&Json| generator.as_ref().is_none_or(|id| row["_id"] == json!(id));
            let found = rows(&answer).iter().rev().find(named);
            let found = found.ok_or_else(|| Complaint::failed("the job has no such generator"))?;
            tell(found, as_json, |found| text(found, "code").trim_end().to_owned())
        }
        GeneratorCommand::Run { job } => {
            let answer = ask(connection, SourceRequest::GeneratorRun(job.clone())).await?;
            tell(&answer, as_json, |run| {
                format!(
                    "it waits in queue {} of node {}; `ctl log {job}` shows how it went",
                    text(run, "queue"),
                    text(run, "node")
                )
            })
        }
        GeneratorCommand::On { job } => {
            let answer = ask(connection, set(job, None, generator_status::ON)).await?;
            tell(&answer, as_json, |_| format!("the generator of {job} is on"))
        }
        GeneratorCommand::Off { job } => {
            let answer = ask(connection, set(job, None, generator_status::OFF)).await?;
            tell(&answer, as_json, |_| format!("the generator of {job} is off"))
        }
        GeneratorCommand::Set { job, generator, status } => {
            let answer = ask(connection, set(job, Some(generator), *status)).await?;
            tell(&answer, as_json, |_| format!("generator {generator} is changed"))
        }
        GeneratorCommand::Tab { at } => {
            let answer = ask(connection, SourceRequest::TabWrite { at: *at }).await?;
            tell(&answer, as_json, |tab| text(tab, "tab").trim_end().to_owned())
        }
        GeneratorCommand::ImportTab { file } => {
            let answer = ask(connection, SourceRequest::TabRead(read(file)?)).await?;
            let refused = rows(&answer["refused"]).to_vec();
            tell(&answer, as_json, |answer| {
                let jobs = rows(&answer["jobs"]).len();
                let mut lines = vec![format!("{jobs} entries were taken, {} refused", refused.len())];
                lines.extend(refused.iter().map(|one| format!("  {}", one.as_str().unwrap_or_default())));
                lines.join("\n")
            })?;
            Ok(if refused.is_empty() { Exit::Done } else { Exit::Failed })
        }
    }
}

fn generators_table(generators: &Json) -> String {
    let mut lines = vec![format!("{:<24}  {:<11}  {:<7}  {:<16}  {:<19}", "id", "status", "kind", "cron", "added")];
    for row in rows(generators) {
        lines.push(format!(
            "{:<24}  {:<11}  {:<7}  {:<16}  {:<19}",
            text(row, "_id"),
            row["status"].as_u64().and_then(|status| generator_status::name(status as u8)).unwrap_or("?"),
            if row["code_type"] == CodeType::Python.number() { "Python" } else { "shell" },
            text(row, "cron"),
            text(row, "add_datetime"),
        ));
    }
    lines.join("\n")
}

/// Runs a command about tasks.
pub(super) async fn task(connection: &Connection, command: &TaskCommand, as_json: bool) -> Result<Exit, Complaint> {
    match command {
        TaskCommand::List { job, limit } => {
            let mut tasks = Vec::new();
            let mut pages = TaskPages::of(job);
            while tasks.len() < *limit
                && let Some(page) = pages.next(connection, limit - tasks.len()).await?
            {
                tasks.extend(page);
            }
            tasks.truncate(*limit);
            tell(&Json::Array(tasks), as_json, |tasks| {
                let line = |task: &Json| {
                    let args = if task["args"].is_null() { String::new() } else { format!("  {}", task["args"]) };
                    format!(
                        "{:<15}  {}  {}{args}",
                        text(task, "status_name"),
                        text(task, "add_datetime"),
                        text(task, "uri")
                    )
                };
                rows(tasks).iter().map(line).collect::<Vec<String>>().join("\n")
            })
        }
        TaskCommand::Add { job, uri, args } => {
            let task = proto::control::source::NewTask { line: 0, uri: uri.clone(), args: args.clone() };
            let request = SourceRequest::TaskAdd { job: job.clone(), tasks: vec![task], refused: Vec::new() };
            let answer = ask(connection, request).await?;
            match rows(&answer["refused"]).first() {
                Some(refused) if !as_json => Err(Complaint::failed(format!("{uri}: {}", text(refused, "reason")))),
                refused => {
                    let exit = if refused.is_some() { Exit::Failed } else { Exit::Done };
                    tell(&answer, as_json, |_| "the task is kept".to_owned())?;
                    Ok(exit)
                }
            }
        }
    }
}

/// Tasks of a job, page by page.
pub(in crate::cli) struct TaskPages {
    job: String,
    after: Option<Vec<u8>>,
    over: bool,
}

impl TaskPages {
    /// From the first on.
    pub(in crate::cli) fn of(job: &str) -> TaskPages {
        TaskPages { job: job.to_owned(), after: None, over: false }
    }

    /// The next ones; `None` after the last.
    pub(in crate::cli) async fn next(
        &mut self,
        connection: &Connection,
        limit: usize,
    ) -> Result<Option<Vec<Json>>, Complaint> {
        if self.over {
            return Ok(None);
        }
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let request = SourceRequest::TaskList { job: self.job.clone(), after: self.after.take(), limit };
        let mut answer = ask(connection, request).await?;
        self.after = answer["next"].as_str().and_then(bytes);
        self.over = self.after.is_none();
        match answer["tasks"].take() {
            Json::Array(tasks) => Ok(Some(tasks)),
            _ => Err(Complaint::failed("the node answered without tasks")),
        }
    }
}

/// Bytes that were written as digits.
pub(in crate::cli) fn bytes(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
}

/// Shows logs.
pub(super) async fn log(connection: &Connection, arguments: &LogArguments, as_json: bool) -> Result<Exit, Complaint> {
    let LogArguments { job, kind, limit } = arguments;
    let request = SourceRequest::LogList { job: job.clone(), kind: kind.clone(), limit: *limit };
    let answer = ask(connection, request).await?;
    tell(&answer, as_json, |entries| {
        let line = |entry: &Json| {
            let reason = text(entry, "failed_reason").replace('\n', " | ");
            format!(
                "{}  {:<9}  {:<16}  {:<6}  {:>7} ms  {}{}{}",
                text(entry, "add_datetime"),
                text(entry, "kind"),
                text(entry, "name"),
                if entry["status"] == 2 { "ok" } else { "failed" },
                entry["spend_msecs"],
                text(entry, "content"),
                if reason.is_empty() { "" } else { "  " },
                reason,
            )
        };
        let lines: Vec<String> = rows(entries).iter().map(line).collect();
        if lines.is_empty() { "nothing is written down".to_owned() } else { lines.join("\n") }
    })
}

fn read(file: &Path) -> Result<String, Complaint> {
    let text =
        if file == Path::new("-") { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    text.map_err(|error| Complaint::usage(format!("cannot read {}: {error}", file.display())))
}
