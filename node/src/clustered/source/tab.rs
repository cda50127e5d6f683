//! The cron of the cluster as a tab file, out and in.
//!
//! An entry's command names the job, as in the original: `GeneratorDispatch('<id>').run()`. Taken in, such an entry sets cron line and last run of a job that is there; any other
//! command becomes a job of its own, with a shell script that is the command.

use proto::control::source::{NewJob, TargetName};
use proto::source::entry::ENTRY;
use proto::source::job::{CodeType, Generator, generator_status, is_id, new_id};
use proto::source::lanes::Priority;
use proto::source::log::{LogEntry, LogKind};
use proto::source::tab::{Form, Tab, TabEntry, TabLine};
use serde_json::{Value as Json, json};

use super::super::Shared;
use super::{CRON, look, number};
use crate::doors::frontier::desk::Desk;
use crate::edges::clock::unix_ms;
use crate::node::Node;

/// Entries that one file may bring.
const ENTRIES_MAX: usize = 1_000;

impl Shared {
    pub(super) async fn tab_write(&self, desk: &Desk, at: bool) -> Result<Json, String> {
        let mut jobs = self.sources.jobs();
        jobs.sort_by_key(|job| (job.priority, job.added_ms));
        let mut lines = Vec::new();
        for job in jobs {
            let Some(cron) = job.cron() else { continue };
            let there = look(desk, CRON, &job.id, ENTRY).await?;
            let last = there.map(|there| number(&there, "last")).filter(|last| *last > 0);
            lines.push(TabLine::Entry(TabEntry {
                cron,
                command: format!("GeneratorDispatch('{}').run()", job.id),
                comment: format!("job name:{} with id:{}", job.name.replace(['#', '\n'], " "), job.id),
                last_s: last.map(|last| last / 1_000),
            }));
        }
        let form = if at { Form::At } else { Form::Hashes };
        Ok(json!({"tab": Tab { lines }.write(form)}))
    }

    pub(super) async fn tab_read(&self, node: &Node, desk: &Desk, text: &str, creator: &str) -> Result<Json, String> {
        let (tab, errors) = Tab::parse(text);
        let count = tab.entries().count();
        if count > ENTRIES_MAX {
            return Err(format!("{count} entries at once, more than {ENTRIES_MAX}"));
        }
        let mut refused: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let mut jobs = Vec::new();
        for entry in tab.entries() {
            match self.tab_entry(node, entry, creator).await {
                Ok(job) => jobs.push(job),
                Err(error) => refused.push(format!("{} {}: {error}", entry.cron, entry.command)),
            }
        }
        if !refused.is_empty() {
            let now = unix_ms();
            let entry = |reason: &String| LogEntry {
                failed_reason: reason.clone(),
                ..LogEntry::new(LogKind::Error, "ERROR_TAB", now)
            };
            self.log(desk, refused.iter().map(entry).collect()).await;
        }
        let environment = tab.lines.iter().filter(|line| matches!(line, TabLine::Environment { .. })).count();
        Ok(json!({"jobs": jobs, "refused": refused, "environment_left_out": environment}))
    }

    /// Takes an entry in; gives the id of its job.
    async fn tab_entry(&self, node: &Node, entry: &TabEntry, creator: &str) -> Result<String, String> {
        let (id, now) = (dispatched(&entry.command), unix_ms());
        let script = |code: &str, code_type| Generator {
            id: new_id(now, self.sources.unique(&self.me, now)),
            code: code.to_owned(),
            code_type,
            cron: Some(entry.cron.text().to_owned()),
            status: generator_status::ON,
            added_ms: now,
            last_ms: entry.last_s.map(|last_s| last_s.saturating_mul(1_000)),
            set_ms: now,
        };
        let job = match id {
            Some(id) => {
                self.change_job(node, id, |job| {
                    let newest = job.generators.last_mut().ok_or("the job has no generator")?;
                    if newest.cron.as_deref() == Some(entry.cron.text()) {
                        if let Some(last_s) = entry.last_s {
                            (newest.last_ms, newest.set_ms) = (Some(last_s.saturating_mul(1_000)), now);
                        }
                        return Ok(());
                    }
                    let newest = newest.clone();
                    job.add_generator(script(&newest.code, newest.code_type)).map_err(|error| error.to_string())
                })
                .await?
            }
            None => {
                let name = if entry.comment.is_empty() { &entry.command } else { &entry.comment };
                let new = NewJob {
                    name: name.chars().take(128).collect(),
                    info: "from a tab file".to_owned(),
                    customer: None,
                    priority: Priority::DEFAULT.number(),
                    target: TargetName::Own,
                    known_anywhere: false,
                };
                let job = self.make_job(node, new, creator).await?;
                let code = format!("{}\n", entry.command);
                self.change_job(node, &job.id, |job| {
                    job.add_generator(script(&code, CodeType::Shell)).map_err(|error| error.to_string())
                })
                .await?
            }
        };
        // Whoever holds the job begins with the last run that is said here.
        self.sources.changed.notify_one();
        Ok(job.id)
    }
}

/// The job that a command of ours dispatches.
fn dispatched(command: &str) -> Option<&str> {
    let id = command.trim().strip_prefix("GeneratorDispatch(")?.strip_suffix(").run()")?;
    Some(id.trim_matches(['\'', '"'])).filter(|id| is_id(id))
}
