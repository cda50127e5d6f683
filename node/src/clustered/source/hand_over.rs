//! Tasks go into their crawl, in the order that `proto/src/source/hand_over.rs` decides.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use proto::batch::{Discovered, EntryKind};
use proto::clients::ask::{Taken, Told};
use proto::cluster::amend::Amendment;
use proto::control::records::UrlName;
use proto::source::hand_over::{Effect, Input, renews};
use proto::source::job::Job;
use proto::source::log::{LogEntry, LogKind};
use proto::url::{CanonicalUrl, UrlRules};
use tracing::warn;

use super::super::{SUBMIT_URLS, Shared, submit};
use super::{TASKS, held};
use crate::doors::frontier::desk::Desk;
use crate::edges::clock::unix_ms;
use crate::edges::swarm::Swarm;
use crate::node::Node;

/// For how long a task that is taken is nobody else's, in seconds: longer than the crawl may take to have it on enough disks.
const LEASE_S: u32 = 120;

/// Hands over what waits.
pub(super) async fn tick(shared: Arc<Shared>) {
    let Some((node, swarm, desk)) = shared.at_hand() else { return };
    loop {
        let taken = match desk.take_own(TASKS, LEASE_S).await {
            Ok(taken) => taken,
            Err(error) => return warn!(%error, "it cannot be looked for tasks now"),
        };
        if taken.is_empty() {
            return;
        }
        let mut by_job: BTreeMap<String, Vec<Told>> = BTreeMap::new();
        for told in taken {
            by_job.entry(told.key.clone()).or_default().push(told);
        }
        for (id, tasks) in by_job {
            // Tasks of a job that is gone go with it.
            let Some(job) = shared.sources.job(&id) else { continue };
            for tasks in tasks.chunks(SUBMIT_URLS) {
                if let Err(error) = shared.hand_over(node, swarm, desk, &job, tasks).await {
                    // Their lease lapses, and they come again; other jobs do not wait for that.
                    warn!(job = id, error, "tasks are handed over later");
                    let entry = LogEntry {
                        job: Some(id.clone()),
                        failed_reason: format!("tasks are handed over later: {error}"),
                        ..LogEntry::new(LogKind::Error, "ERROR_JOB", unix_ms())
                    };
                    shared.log(desk, vec![entry]).await;
                    break;
                }
            }
        }
    }
}

impl Shared {
    async fn hand_over(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        desk: &Desk,
        job: &Job,
        tasks: &[Told],
    ) -> Result<(), String> {
        let mut effects: VecDeque<Effect> = self.handing(Input::Taken { job: job.id.clone(), tasks: tasks.to_vec() });
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Submit { number, tasks, .. } => {
                    let submitted = self.submit_tasks(node, swarm, desk, job, &tasks).await;
                    effects.extend(self.handing(Input::Submitted { number, kept: submitted.is_ok() }));
                    submitted?;
                }
                Effect::Mark(items) => {
                    let kept = desk.put(items).await;
                    match kept.iter().filter(|kept| **kept != Taken::Kept).count() {
                        0 => {}
                        lost => return Err(format!("{lost} tasks are in the crawl, but too few disks know that")),
                    }
                }
            }
        }
        Ok(())
    }

    fn handing(&self, input: Input) -> VecDeque<Effect> {
        let mut effects = Vec::new();
        held(&self.sources.hand_over).step(unix_ms(), input, &mut effects);
        effects.into()
    }

    /// Hands tasks in to the crawl of their job.
    async fn submit_tasks(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        desk: &Desk,
        job: &Job,
        tasks: &[Told],
    ) -> Result<(), String> {
        let crawl = self.crawl_of_job(node, job)?;
        let priority = 100 + 20 * (5 - job.priority().number()) as u16;
        let found = |told: &Told| {
            let url = CanonicalUrl::parse(&told.url, &UrlRules::AS_IT_IS).ok()?;
            Some(Discovered { url, kind: EntryKind::Page, depth: 0, priority, redirects: 0 })
        };
        let urls: Vec<Discovered> = tasks.iter().filter_map(found).collect();
        let again: Vec<&Told> = tasks.iter().filter(|told| renews(told, None)).collect();
        if let Some(fetch) = node.crawls().fetch(&crawl) {
            // Its queue says when a URL is fetched again: what is known is put as due.
            let again = |found: &Discovered| again.iter().any(|told| told.url == found.url.as_str());
            let (again, new): (Vec<Discovered>, Vec<Discovered>) = urls.into_iter().partition(again);
            self.put_due(desk, &crawl, &again).await?;
            return self.hand_in(node, &crawl, Some(fetch), &new).await;
        }
        submit(node, &crawl, &urls).await?;
        if again.is_empty() {
            return Ok(());
        }
        let names = |tasks: &[&Told]| tasks.iter().map(|told| UrlName::Url(told.url.clone())).collect::<Vec<_>>();
        let known = self.known(node, swarm, &crawl, names(&again)).await?;
        let open = again.into_iter().zip(known);
        let open = open.filter(|(told, known)| renews(told, known.as_ref().map(|known| &known.kept.record)));
        let again: Vec<&Told> = open.map(|(told, _)| told).collect();
        if !again.is_empty() {
            self.amend(node, swarm, &crawl, names(&again), Amendment::Renew).await?;
        }
        Ok(())
    }
}
