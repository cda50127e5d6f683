//! Tasks: taken in, told apart from what is known, and shown with how far they are.

use std::sync::Arc;

use proto::clients::ask::{Item, Taken};
use proto::control::records::UrlName;
use proto::control::source::{NewTask, RefusedTask};
use proto::date;
use proto::id::UrlId;
use proto::source::URI_CHARS_MAX;
use proto::source::dispatch::Run;
use proto::source::job::{Job, Known};
use proto::source::log::{LogEntry, LogKind};
use proto::source::task::{KNOWN_FOR_MS, Met, TaskStatus, check_args, met};
use proto::url::CanonicalUrl;
use serde_json::{Value as Json, json};

use super::super::Shared;
use super::super::records;
use super::{KNOWN, TASKS, hex, look, number, page, word, words};
use crate::doors::frontier::desk::Desk;
use crate::edges::clock::unix_ms;
use crate::edges::swarm::Swarm;
use crate::node::Node;

/// Tasks in one answer.
const LIST_MAX: u32 = 1_000;

/// What became of tasks.
#[derive(Default)]
pub(super) struct Added {
    /// Those that were taken.
    pub(super) accepted: u64,
    /// Those that are known.
    pub(super) known: Vec<RefusedTask>,
    /// Those that are wrong.
    pub(super) refused: Vec<RefusedTask>,
    /// Those that may or may not be kept.
    pub(super) unsaved: Vec<RefusedTask>,
}

impl Shared {
    pub(super) async fn task_add(
        &self,
        node: &Node,
        desk: &Desk,
        job: &str,
        tasks: Vec<NewTask>,
        refused: Vec<RefusedTask>,
    ) -> Result<Json, String> {
        let (job, _) = self.sources.named(job)?;
        let added = self.take_in(node, desk, &job, None, tasks).await?;
        let now = unix_ms();
        let errors = refused.iter().chain(&added.refused).map(|one| ("ERROR_URI", one));
        let errors = errors.chain(added.known.iter().map(|one| ("DUPLICATE_URI", one)));
        let errors = errors.chain(added.unsaved.iter().map(|one| ("ERROR_SAVE", one)));
        let entries: Vec<LogEntry> = errors.map(|(name, one)| refusal(&job, None, name, one, now)).collect();
        if !entries.is_empty() {
            self.log(desk, entries).await;
        }
        let row = |one: &RefusedTask| json!({"line": one.line, "uri": one.uri, "reason": one.reason});
        let all = added.refused.iter().chain(&added.known).chain(&added.unsaved);
        Ok(
            json!({"accepted": added.accepted, "refused": all.map(row).collect::<Vec<Json>>(), "unsaved": added.unsaved.len()}),
        )
    }

    /// Takes tasks in: each is checked, told apart from what is known, and kept. What is wrong is told, the rest goes on.
    pub(super) async fn take_in(
        &self,
        node: &Node,
        desk: &Desk,
        job: &Job,
        run: Option<&Run>,
        tasks: Vec<NewTask>,
    ) -> Result<Added, String> {
        let crawl = self.crawl_of_job(node, job)?;
        let crawls = node.crawls();
        let filter = crawls.filter(&crawl).ok_or_else(|| format!("there is no crawl {crawl:?}"))?;
        let now = unix_ms();
        let mut added = Added::default();
        let mut items: Vec<(NewTask, Item)> = Vec::with_capacity(tasks.len());
        for task in tasks {
            let understood = understand(&task, &self.urls).and_then(|(url, args)| {
                filter.admits(&url, 0).map_err(|refusal| format!("the crawl does not take it: {refusal}"))?;
                Ok((url, args))
            });
            match understood {
                Err(reason) => added.refused.push(RefusedTask { line: task.line, uri: task.uri, reason }),
                Ok((url, args)) => {
                    let metadata = words([
                        ("added", Some(now.to_string())),
                        ("host", Some(self.sources.hostname.clone())),
                        ("generator", run.map(|run| run.generator.clone())),
                        ("run", run.map(|run| run.id.clone())),
                        ("args", args),
                    ]);
                    let (crawl, key) = (TASKS.to_owned(), job.id.clone());
                    items.push((task, Item { crawl, key, url: url.into_string(), metadata, date_s: None }));
                }
            }
        }
        let has_args = items.iter().any(|(_, item)| item.metadata.iter().any(|(name, _)| name == "args"));
        if has_args && !job.has_args {
            // Before the first of them can be fetched.
            self.change_job(node, &job.id, |job| {
                job.has_args = true;
                Ok(())
            })
            .await?;
        }
        if job.known == Known::Anywhere {
            items = self.unknown_anywhere(desk, items, &mut added, now).await;
        }
        let taken = desk.put(items.iter().map(|(_, item)| item.clone()).collect()).await;
        for ((task, item), taken) in items.into_iter().zip(taken) {
            self.sort(desk, task, item, taken, now, &mut added).await;
        }
        if added.accepted > 0 {
            self.sources.fresh.notify_one();
        }
        Ok(added)
    }

    /// Says what became of one: one that was known for longer than a day is put up again, one of the same run has been there before.
    async fn sort(&self, desk: &Desk, task: NewTask, item: Item, taken: Taken, now: u64, added: &mut Added) {
        let taken = match taken {
            Taken::Skipped => match look(desk, &item.crawl, &item.key, &item.url).await {
                Ok(Some(there)) => match met(&there, item, now) {
                    Met::OfThisRun(item) | Met::Again(item) => {
                        desk.put(vec![item]).await.first().copied().unwrap_or(Taken::Failed)
                    }
                    Met::Known => Taken::Skipped,
                },
                Ok(None) => Taken::Skipped,
                Err(_) => Taken::Failed,
            },
            other => other,
        };
        let told = |reason: &str| RefusedTask { line: task.line, uri: task.uri.clone(), reason: reason.to_owned() };
        match taken {
            Taken::Kept => added.accepted += 1,
            Taken::Skipped => added.known.push(told("the job has had it within the last 24 hours")),
            Taken::Failed => added.unsaved.push(told("it could not be saved on enough disks; hand it in again")),
        }
    }

    /// Leaves out what another job that asks so has had within a day.
    async fn unknown_anywhere(
        &self,
        desk: &Desk,
        items: Vec<(NewTask, Item)>,
        added: &mut Added,
        now: u64,
    ) -> Vec<(NewTask, Item)> {
        let mark = |(_, item): &(NewTask, Item)| {
            // Many queues, so that many nodes share them.
            let key = format!("{:02x}", UrlId::of("", &item.url).0[0]);
            let metadata = words([("added", Some(now.to_string())), ("job", Some(item.key.clone()))]);
            Item { crawl: KNOWN.to_owned(), key, url: item.url.clone(), metadata, date_s: None }
        };
        let marks: Vec<Item> = items.iter().map(mark).collect();
        let taken = desk.put(marks.clone()).await;
        let mut fresh = Vec::with_capacity(items.len());
        for (((task, item), mark), taken) in items.into_iter().zip(marks).zip(taken) {
            let is_new = match taken {
                Taken::Kept => true,
                Taken::Failed => false,
                Taken::Skipped => match look(desk, &mark.crawl, &mark.key, &mark.url).await {
                    // The job's own mark: a former try of the same import, which its own queue tells apart.
                    Ok(Some(there)) if word(&there, "job").as_deref() == Some(&item.key) => true,
                    Ok(Some(there)) if number(&there, "added") + KNOWN_FOR_MS < now => {
                        super::keep(desk, Item { date_s: Some(super::NEVER_S), ..mark }).await
                    }
                    _ => false,
                },
            };
            let told = |reason: &str| RefusedTask { line: task.line, uri: task.uri.clone(), reason: reason.to_owned() };
            match (is_new, taken) {
                (true, _) => fresh.push((task, item)),
                (false, Taken::Failed) => {
                    added.unsaved.push(told("it could not be saved on enough disks; hand it in again"))
                }
                (false, _) => added.known.push(told("another job has had it within the last 24 hours")),
            }
        }
        fresh
    }

    pub(super) async fn task_list(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        desk: &Desk,
        job: &str,
        after: Option<Vec<u8>>,
        limit: u32,
    ) -> Result<Json, String> {
        let (job, _) = self.sources.named(job)?;
        let (told, next) = page(desk, TASKS, &job.id, after, limit.clamp(1, LIST_MAX).into()).await?;
        let names: Vec<UrlName> = told.iter().map(|told| UrlName::Url(told.url.clone())).collect();
        // A job whose crawl is gone still has its tasks.
        let known = match self.crawl_of_job(node, &job) {
            Ok(crawl) => self.known(node, swarm, &crawl, names).await?,
            Err(_) => names.iter().map(|_| None).collect(),
        };
        let rows = told.iter().zip(&known).map(|(told, known): (_, &Option<records::Known>)| {
            // What waits to be crawled again has a record that says how it was the last time.
            let record = known.as_ref().map(|known| &known.kept.record);
            let waits = word(told, "handed").is_none();
            let status = if waits { TaskStatus::New } else { TaskStatus::of(record) };
            let added = number(told, "added");
            json!({
                "_id": &UrlId::of(&job.id, &told.url).to_string()[..24],
                "job": job.id,
                "task_generator": word(told, "generator"),
                "uri": told.url,
                "args": word(told, "args").and_then(|args| serde_json::from_str::<Json>(&args).ok()),
                "status": status.number(),
                "status_name": status.name(),
                "from_host": word(told, "host"),
                "add_datetime": date::format(added),
                "add_ms": added,
            })
        });
        Ok(json!({"tasks": rows.collect::<Vec<Json>>(), "next": next.filter(|_| !told.is_empty()).map(hex)}))
    }
}

/// A URL and its arguments, if both are as they should be.
fn understand(task: &NewTask, rules: &proto::url::UrlRules) -> Result<(CanonicalUrl, Option<String>), String> {
    let chars = task.uri.chars().count();
    if chars > URI_CHARS_MAX {
        return Err(format!("{chars} characters, more than {URI_CHARS_MAX}"));
    }
    let url = CanonicalUrl::parse(task.uri.trim(), rules).map_err(|error| error.to_string())?;
    let args = match &task.args {
        None => None,
        Some(text) => {
            let args: Json = serde_json::from_str(text).map_err(|error| format!("args: no JSON: {error}"))?;
            Some(check_args(&args)?)
        }
    };
    Ok((url, args))
}

/// What is written down of a refusal.
pub(super) fn refusal(job: &Job, generator: Option<&str>, name: &str, refused: &RefusedTask, now: u64) -> LogEntry {
    let line = if refused.line > 0 { format!("line {}: ", refused.line) } else { String::new() };
    LogEntry {
        job: Some(job.id.clone()),
        generator: generator.map(str::to_owned),
        failed_reason: format!("{line}{}", refused.reason),
        content_bytes: refused.uri.len() as u64,
        content: refused.uri.clone(),
        ..LogEntry::new(LogKind::Error, name, now)
    }
}
