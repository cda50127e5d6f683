//! Does what the schedule says (`proto/src/source/schedule.rs`): once a second it is told which jobs are surely ours, and its effects are carried out beside each other.
//! What happened is fed back. Nothing is decided here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use proto::clients::ask::{Act, Ask, Item, Told};
use proto::cluster::slot_set::SlotSet;
use proto::id::Slot;
use proto::source::dispatch::{Alert, Run};
use proto::source::entry::{CLAIM, ENTRY, Entry, Printed, claimed, done_mark};
use proto::source::lend::NEW_LIFE_WAITS;
use proto::source::log::{LogEntry, LogKind};
use proto::source::schedule::{Effect, Input, Schedule, Seen};
use tokio::time::Instant;
use tracing::warn;

use super::super::Shared;
use super::{CRON, OUTPUT, RUNS, Sources, at, held, seen};
use crate::doors::frontier::desk::Desk;
use crate::edges::clock::unix_ms;
use crate::messages::HoldJobs;
use crate::node::Node;

/// How often old entries of logs and marks of runs are forgotten, in ticks.
const FORGET_EVERY: u64 = 3_600;

/// Records of a job that the schedule wants kept.
struct Keep {
    job: String,
    number: u64,
    items: Vec<Item>,
    floor: u64,
}

/// Looks what is ours and due.
pub(super) async fn tick(shared: Arc<Shared>) {
    let Some((node, _, desk)) = shared.at_hand() else { return };
    let ticks = shared.sources.ticks.fetch_add(1, Relaxed);
    shared.sources.guests.clean(super::now().mono);
    let asked = Instant::now();
    let until = shared.sources.hold(node).await;
    for (job, end) in held(&shared.sources.ends).iter() {
        // What is not ours any more ends now.
        *held(end) = until.get(&Schedule::slot(job)).map_or(asked, |(_, until)| *until);
    }
    let tenures: BTreeMap<Slot, u64> = until.iter().map(|(slot, (number, _))| (*slot, *number)).collect();
    *held(&shared.sources.tenures) = until;
    shared.feed(Input::Tick { held: tenures.clone() });
    if ticks % FORGET_EVERY == FORGET_EVERY - 1 {
        let now = unix_ms();
        for job in shared.sources.jobs().iter().filter(|job| tenures.contains_key(&Schedule::slot(&job.id))) {
            shared.forget_old(desk, Some(&job.id), now).await;
        }
        shared.forget_old(desk, None, now).await;
    }
}

impl Sources {
    /// Tells who holds slots where jobs lie and where scripts run, and asks which are ours and until when. A node that starts has none.
    pub(super) async fn hold(&self, node: &Node) -> BTreeMap<Slot, (u64, Instant)> {
        let _first = self.telling.lock().await;
        let (slots, busy) = {
            let schedule = held(&self.schedule);
            // Others may execute scripts for our former life: for a while no job goes to somebody else.
            let is_new = super::now().mono < NEW_LIFE_WAITS;
            (schedule.slots(), if is_new { schedule.slots() } else { schedule.busy() })
        };
        // A tenure counts from before it was asked for.
        let asked = Instant::now();
        let tenures = node.hold_jobs(HoldJobs { slots, busy }).await.unwrap_or_default();
        tenures.into_iter().map(|(slot, (number, left))| (slot, (number, asked + left))).collect()
    }
}

impl Shared {
    /// Tells the schedule what happened, and does what follows.
    pub(super) fn feed(self: &Arc<Self>, input: Input) {
        self.sources.decide(input);
        let effects = std::mem::take(&mut *held(&self.sources.effects));
        let (mut keeps, mut logs) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Keep { job, number, items, floor } => keeps.push(Keep { job, number, items, floor }),
                Effect::Log(entry) => logs.push(entry),
                Effect::Alert { alert, job } => logs.push(alerted(alert, job)),
                other => self.perform(other),
            }
        }
        let shared = Arc::clone(self);
        if !keeps.is_empty() || !logs.is_empty() {
            tokio::spawn(async move { shared.write_down(keeps, logs).await });
        }
    }

    fn perform(self: &Arc<Self>, effect: Effect) {
        let shared = Arc::clone(self);
        match effect {
            Effect::Read { job } => drop(tokio::spawn(async move {
                let seen = match shared.at_hand() {
                    Some((_, _, desk)) => {
                        read(desk, &job).await.map_err(|error| warn!(job, error, "a job cannot be read now"))
                    }
                    None => Err(()),
                };
                shared.feed(Input::Read { job, seen: seen.ok() });
            })),
            Effect::Execute(run) => drop(tokio::spawn(async move {
                let printed = shared.execute(&run).await;
                shared.feed(Input::Executed { run, printed });
            })),
            Effect::Abort(run) => {
                if let Some(end) = held(&self.sources.ends).get(&run.job) {
                    warn!(job = run.job, run = run.id, "the job is no longer ours: its script is killed");
                    *held(end) = Instant::now();
                }
            }
            Effect::TakeIn { run, printed, last } => drop(tokio::spawn(async move {
                let tally = shared.take_output(&run, &printed, last).await;
                shared.feed(Input::TakenIn { run, tally });
            })),
            Effect::Over(run) => drop(tokio::spawn(async move { shared.clear(&run).await })),
            Effect::Answer { ticket, told } => {
                if let Some(waits) = held(&self.sources.waiting).remove(&ticket) {
                    let _ = waits.send(told); // who does not wait any more need not know
                }
            }
            Effect::Keep { .. } | Effect::Log(_) | Effect::Alert { .. } => {} // these go together
        }
    }

    /// Has records of jobs kept, all at once; then what is only told.
    async fn write_down(self: &Arc<Self>, keeps: Vec<Keep>, logs: Vec<LogEntry>) {
        let Some((_, _, desk)) = self.at_hand() else { return };
        let tenures = held(&self.sources.tenures).clone();
        let of = |job: &String| Some((Schedule::slot(job), tenures.get(&Schedule::slot(job))?.0));
        let (ours, lost): (Vec<_>, Vec<_>) = keeps.into_iter().partition(|keep| of(&keep.job).is_some());
        for Keep { job, number, .. } in lost {
            self.feed(Input::Kept { job, number, kept: false });
        }
        if !ours.is_empty() {
            let wanted: BTreeMap<_, _> = ours.iter().filter_map(|keep| of(&keep.job)).collect();
            let floors = ours.iter().map(|keep| (keep.job.clone(), keep.floor)).collect();
            let items = ours.iter().flat_map(|keep| keep.items.clone()).collect();
            let kept = desk.keep_held(items, floors, wanted).await;
            for Keep { job, number, .. } in ours {
                self.feed(Input::Kept { job, number, kept });
            }
        }
        if !logs.is_empty() {
            self.log(desk, logs).await;
        }
    }

    /// The pieces of what a run printed are needed no more.
    async fn clear(&self, run: &Run) {
        let Some((_, _, desk)) = self.at_hand() else { return };
        let act = Act::Delete { slots: SlotSet::default(), crawl: OUTPUT.to_owned(), key: Some(run.job.clone()) };
        if let Err(error) = desk.ask_owner(OUTPUT, &run.job, Ask::Act(act)).await {
            warn!(job = run.job, %error, "what a script printed stays until its next run");
        }
    }
}

/// What is kept of a job, on this disk: its slot is ours, so nothing that was acknowledged is missing here.
async fn read(desk: &Desk, job: &str) -> Result<Seen, String> {
    let claim = look_here(desk, CRON, job, CLAIM).await?.map_or(0, |told| claimed(&told));
    let entry = look_here(desk, CRON, job, ENTRY).await?.map(|told| Entry::read(&told));
    let Some(run) = entry.as_ref().and_then(|entry| entry.run.as_ref()).map(|run| run.id.clone()) else {
        return Ok(Seen { claim, entry, ..Seen::default() });
    };
    let printed = look_here(desk, RUNS, job, &Printed::mark(&run)).await?.and_then(|told| Printed::read(&told));
    let done = look_here(desk, RUNS, job, &done_mark(&run)).await?.is_some();
    Ok(Seen { claim, entry, printed, done })
}

/// One record on this disk.
async fn look_here(desk: &Desk, crawl: &str, key: &str, url: &str) -> Result<Option<Told>, String> {
    seen(desk.perform(Ask::Look(at(crawl, key, url))).await)
}

/// Something that somebody should see.
pub(super) fn alerted(alert: Alert, job: Option<String>) -> LogEntry {
    let failed_reason = match alert {
        Alert::Timeout { took_ms, entries } => format!("a tick of the cron took {took_ms} ms for {entries} entries"),
        Alert::QueuesFilledUp => "all lanes that the run may wait in are full; it does not run this time".to_owned(),
        Alert::NobodyExecutes => {
            "the node that holds the job runs no scripts (sources.scripts_max is 0) and reaches none that does; the run waits".to_owned()
        }
    };
    LogEntry { job, failed_reason, ..LogEntry::new(LogKind::Alert, alert.name(), unix_ms()) }
}
