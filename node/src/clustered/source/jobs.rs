//! Jobs and their generators: made, changed, shown, deleted.

use std::sync::Arc;

use proto::clients::ask::{Act, Ask, Look, Said, slot_of};
use proto::cluster::slot_set::SlotSet;
use proto::control::source::{JobChange, NewJob, TargetName};
use proto::date;
use proto::source::entry::ENTRY;
use proto::source::job::{CodeType, Generator, Job, Known, Target, generator_status, job_status, new_id};
use proto::source::log::{LogEntry, LogKind};
use serde_json::{Value as Json, json};

use super::super::Shared;
use super::super::site::Change;
use super::{CRON, LOG, NEVER_S, OUTPUT, RUNS, TASKS, look};
use crate::doors::frontier::desk::Desk;
use crate::edges::clock::unix_ms;
use crate::edges::swarm::Swarm;
use crate::node::Node;

impl Shared {
    pub(super) async fn job_new(&self, node: &Node, new: NewJob, creator: &str) -> Result<Json, String> {
        let job = self.make_job(node, new, creator).await?;
        Ok(json!({"_id": job.id, "name": job.name}))
    }

    /// Makes a job, and the site of its own if it is to have one.
    pub(super) async fn make_job(&self, node: &Node, new: NewJob, creator: &str) -> Result<Job, String> {
        let now = unix_ms();
        let job = Job {
            id: new_id(now, self.sources.unique(&self.me, now)),
            name: new.name,
            info: new.info,
            customer: new.customer,
            creator: creator.to_owned(),
            status: job_status::ON,
            priority: new.priority,
            target: match new.target {
                TargetName::Own => Target::Own,
                TargetName::Crawl(name) => Target::Crawl(name),
                TargetName::Site(id) => Target::Site(id),
            },
            known: if new.known_anywhere { Known::Anywhere } else { Known::InJob },
            has_args: false,
            added_ms: now,
            generators: Vec::new(),
        };
        let job = job.checked().map_err(|error| error.to_string())?;
        if job.target == Target::Own {
            // It takes every URI, and follows no link.
            let site = json!({
                "id": job.id,
                "description": format!("URIs of job {}", job.name),
                "urlType": 1,
                "filters": [{"pattern": "htt(.*)", "type": 1}],
            });
            self.site_new(node, site).await.map_err(|failed| failed.message)?;
        }
        self.crawl_of_job(node, &job)?;
        if self.keep_job(node, &job, None).await? {
            Ok(job)
        } else {
            Err("the node started anew; try again".to_owned())
        }
    }

    pub(super) async fn job_list(&self, desk: &Desk, name: Option<String>) -> Result<Json, String> {
        let jobs = match name {
            Some(name) => vec![self.sources.named(&name)?.0],
            None => self.sources.jobs(),
        };
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs {
            rows.push(self.job_row(desk, &job).await);
        }
        Ok(Json::Array(rows))
    }

    async fn job_row(&self, desk: &Desk, job: &Job) -> Json {
        let slots = SlotSet::default();
        let stats = Look::Stats { slots, crawl: TASKS.to_owned(), key: Some(job.id.clone()), after: None };
        let tasks = match desk.ask_owner(TASKS, &job.id, Ask::Look(stats)).await {
            Ok(Said::Stats(counts, _)) => Some(counts.scheduled + counts.completed),
            _ => None,
        };
        let entry = look(desk, CRON, &job.id, ENTRY).await.ok().flatten();
        let time = |ms: u64| date::format(ms);
        let next = entry.as_ref().filter(|entry| entry.date_s < NEVER_S && job.cron().is_some());
        json!({
            "_id": job.id,
            "name": job.name,
            "info": job.info,
            "customer": job.customer,
            "creator": job.creator,
            "status": job.status,
            "priority": job.priority,
            "into": match &job.target {
                Target::Own => format!("site {}", job.id),
                Target::Crawl(name) => format!("crawl {name}"),
                Target::Site(id) => format!("site {id}"),
            },
            "known_anywhere": job.known == Known::Anywhere,
            "add_datetime": time(job.added_ms),
            "add_ms": job.added_ms,
            "tasks": tasks,
            "cron": job.generators.last().and_then(|generator| generator.cron.clone()),
            "generator": job.generators.last().map(|generator| generator.id.clone()),
            "generator_status": job.generators.last().map(|generator| generator.status),
            "last_run": entry.as_ref().map(|entry| super::number(entry, "last")).filter(|last| *last > 0).map(time),
            "next_run": next.map(|entry| time(entry.date_s * 1_000)),
        })
    }

    pub(super) async fn job_set(&self, node: &Node, name: &str, change: &JobChange) -> Result<Json, String> {
        let job = self
            .change_job(node, name, |job| {
                job.status = change.status.unwrap_or(job.status);
                job.priority = change.priority.unwrap_or(job.priority);
                if let Some(info) = &change.info {
                    job.info.clone_from(info);
                }
                if let Some(customer) = &change.customer {
                    job.customer = Some(customer.clone());
                }
                Ok(())
            })
            .await?;
        Ok(json!({"_id": job.id, "status": job.status, "priority": job.priority}))
    }

    /// Deletes a job with its generators, tasks and logs, and the site of its own. The job itself goes last: who is interrupted can do it again.
    pub(super) async fn job_delete(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        desk: &Desk,
        name: &str,
    ) -> Result<Json, String> {
        let job = self
            .change_job(node, name, |job| {
                job.status = job_status::OFF;
                Ok(())
            })
            .await?;
        let site_is_there = node.crawls().site(&job.id).is_some_and(|(site, _)| !site.deleted);
        if job.target == Target::Own && site_is_there {
            self.change_site(node, swarm, &job.id, &Change::Delete).await.map_err(|failed| failed.message)?;
        }
        let mut gone = 0;
        for crawl in [TASKS, CRON, RUNS, OUTPUT, LOG] {
            let slot = [slot_of(crawl, &job.id)].into_iter().collect();
            let act = |slots, _| Act::Delete { slots, crawl: crawl.to_owned(), key: Some(job.id.clone()) };
            match desk.forget(slot, false, act).await {
                Ok(urls) if crawl == TASKS => gone = urls,
                Ok(_) => {}
                Err(error) => return Err(format!("{error}; the job is switched off, delete it again")),
            }
        }
        let (_, version) = self.sources.named(&job.id)?;
        if !self.define_job(node, &job.id, Some(version), None).await? {
            return Err("somebody else changed it meanwhile; the job is switched off, delete it again".to_owned());
        }
        Ok(json!({"_id": job.id, "tasks": gone}))
    }

    pub(super) async fn generator_new(
        &self,
        node: &Node,
        desk: &Desk,
        job: &str,
        file: &str,
        code: &str,
        cron: Option<&str>,
    ) -> Result<Json, String> {
        let (id, now) = (self.sources.named(job)?.0.id.clone(), unix_ms());
        let refuse = async |error: String| {
            let entry = LogEntry {
                job: Some(id.clone()),
                failed_reason: error.clone(),
                content: file.to_owned(),
                ..LogEntry::new(LogKind::Error, "ERROR_SAVE", now)
            };
            self.log(desk, vec![entry]).await;
            error
        };
        let code_type = match CodeType::of(file, code) {
            Ok(code_type) => code_type,
            Err(error) => return Err(refuse(error.to_string()).await),
        };
        let generator = Generator {
            id: new_id(now, self.sources.unique(&self.me, now)),
            code: code.to_owned(),
            code_type,
            cron: cron.map(str::to_owned),
            status: generator_status::ON,
            added_ms: now,
            last_ms: None,
            set_ms: 0,
        };
        let added = self
            .change_job(node, job, |job| job.add_generator(generator.clone()).map_err(|error| error.to_string()))
            .await;
        match added {
            Ok(job) => Ok(json!({"_id": generator.id, "job": job.id, "code_type": code_type.number(), "cron": cron})),
            Err(error) => Err(refuse(error).await),
        }
    }

    pub(super) fn generator_list(&self, job: &str) -> Result<Json, String> {
        let (job, _) = self.sources.named(job)?;
        let row = |generator: &Generator| {
            json!({
                "_id": generator.id,
                "job": job.id,
                "code": generator.code,
                "code_type": generator.code_type.number(),
                "cron": generator.cron,
                "status": generator.status,
                "add_datetime": date::format(generator.added_ms),
                "add_ms": generator.added_ms,
            })
        };
        Ok(job.generators.iter().map(row).collect())
    }

    pub(super) async fn generator_set(
        &self,
        node: &Node,
        job: &str,
        generator: Option<&str>,
        status: u8,
    ) -> Result<Json, String> {
        let job = self
            .change_job(node, job, |job| {
                let newest = job.generators.last().map(|newest| newest.id.clone());
                let id = generator.map(str::to_owned).or(newest).ok_or("the job has no generator")?;
                job.set_generator(&id, status).map_err(|error| error.to_string())
            })
            .await?;
        Ok(json!({"job": job.id, "status": status}))
    }
}
