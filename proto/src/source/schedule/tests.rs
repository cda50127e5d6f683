//! The cron of a node, step by step and in any order of deaths.

use proptest::prelude::*;

use super::*;
use crate::crawl::politeness::SECOND;
use crate::source::entry::{LOG, RUNS};
use crate::source::job::tests::{generator, job};

const START_MS: u64 = 1_767_960_000_000;

fn now(seconds: u64) -> Now {
    Now { mono: seconds * SECOND, unix_ms: START_MS + seconds * 1_000 + 1 }
}

fn all() -> BTreeMap<Slot, u64> {
    (0..crate::id::SLOTS).map(|slot| (Slot(slot), 1)).collect()
}

/// A job whose entry is due at once.
fn due_job() -> Arc<Job> {
    let mut job = job();
    job.add_generator(generator(1, Some("*/5 * * * *"))).unwrap();
    let last = job.generators.last_mut().unwrap();
    (last.last_ms, last.set_ms) = (Some(START_MS - 86_400_000), 1);
    Arc::new(job)
}

/// A disk, and a node that may die at every effect.
struct World {
    job: Arc<Job>,
    core: Schedule,
    records: BTreeMap<(String, String), Item>,
    tasks: BTreeSet<String>,
    executions: u32,
    answers: Vec<Result<Placed, NotRun>>,
    logs: Vec<LogEntry>,
    at: u64,
}

impl World {
    fn new() -> World {
        let mut world = World {
            job: due_job(),
            core: Schedule::new(1, Planted::default()),
            records: BTreeMap::new(),
            tasks: BTreeSet::new(),
            executions: 0,
            answers: Vec::new(),
            logs: Vec::new(),
            at: 0,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        self.core = Schedule::new(1, Planted::default());
        let (id, job) = (self.job.id.clone(), Some(Arc::clone(&self.job)));
        self.core.step(now(self.at), Input::Job { id, job }, &mut Vec::new());
    }

    fn told(&self, crawl: &str, url: &str) -> Option<crate::clients::ask::Told> {
        let Item { crawl, key, url, metadata, date_s } = self.records.get(&(crawl.into(), url.into()))?.clone();
        Some(crate::clients::ask::Told { crawl, key, url, metadata, date_s: date_s?, created_s: 0 })
    }

    fn entry(&self) -> Entry {
        self.told(CRON, super::super::entry::ENTRY).map(|told| Entry::read(&told)).unwrap_or_default()
    }

    /// Lets the node work for a second. It dies after so many effects; each write is lost, or written though nobody hears of it, by `lost`.
    fn second(&mut self, dies_after: Option<usize>, lost: bool) {
        self.at += 1;
        let mut inputs = vec![Input::Tick { held: all() }];
        let mut effects_left = dies_after.unwrap_or(usize::MAX);
        while !inputs.is_empty() {
            let mut out = Vec::new();
            self.core.step(now(self.at), inputs.remove(0), &mut out);
            for effect in out {
                if effects_left == 0 {
                    if let Effect::Keep { items, .. } = effect
                        && !lost
                    {
                        self.write(items);
                    }
                    return self.start();
                }
                effects_left -= 1;
                inputs.extend(self.perform(effect));
            }
        }
    }

    fn write(&mut self, items: Vec<Item>) {
        for item in items {
            self.records.insert((item.crawl.clone(), item.url.clone()), item);
        }
    }

    fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::Read { job } => {
                let entry = self.told(CRON, super::super::entry::ENTRY).map(|told| Entry::read(&told));
                let run = entry.as_ref().and_then(|entry| entry.run.clone()).map(|run| run.id).unwrap_or_default();
                let printed = self.told(RUNS, &Printed::mark(&run)).and_then(|told| Printed::read(&told));
                let done = self.told(RUNS, &super::super::entry::done_mark(&run)).is_some();
                let claim = self.told(CRON, super::super::entry::CLAIM);
                let claim = claim.map_or(0, |told| super::super::entry::claimed(&told));
                Some(Input::Read { job, seen: Some(Seen { claim, entry, printed, done }) })
            }
            Effect::Keep { job, number, items, .. } => {
                self.write(items);
                Some(Input::Kept { job, number, kept: true })
            }
            Effect::Execute(run) => {
                self.executions += 1;
                let execution = self.executions.to_string();
                let printed = Printed { execution, pieces: 1, at_ms: now(self.at).unix_ms, ..Printed::default() };
                Some(Input::Executed { run, printed: Some(printed) })
            }
            Effect::TakeIn { run, printed, .. } => {
                self.tasks.insert(format!("{}/{}", run.id, printed.execution));
                Some(Input::TakenIn { run, tally: Ok(Tally { accepted: 1, ..Tally::default() }) })
            }
            Effect::Answer { told, .. } => {
                self.answers.push(told);
                None
            }
            Effect::Log(entry) => {
                self.logs.push(entry);
                None
            }
            Effect::Abort(_) | Effect::Over(_) | Effect::Alert { .. } => None,
        }
    }

    fn runs_logged(&self) -> usize {
        self.records.keys().filter(|(crawl, _)| crawl == LOG).count()
    }

    fn by_hand(&mut self, unique: u64) {
        let mut inputs = vec![Input::ByHand { ticket: 7, job: self.job.id.clone(), unique }];
        while !inputs.is_empty() {
            let mut out = Vec::new();
            self.core.step(now(self.at), inputs.remove(0), &mut out);
            inputs.extend(out.into_iter().filter_map(|effect| self.perform(effect)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_is_due_runs_once_and_the_next_time_is_written() {
    let mut world = World::new();
    for _ in 0..10 {
        world.second(None, false);
    }
    assert_eq!((world.tasks.len(), world.executions, world.runs_logged()), (1, 1, 1));
    assert_eq!((world.entry().run, world.entry().next_s), (None, START_MS / 1_000 + 300));
    world.at = 300;
    for _ in 0..3 {
        world.second(None, false);
    }
    assert_eq!((world.tasks.len(), world.executions), (2, 2), "five minutes later");
}

#[test]
fn a_run_by_hand_is_written_down_before_somebody_is_told() {
    let mut world = World::new();
    world.by_hand(1);
    assert_eq!(world.answers, [Err(NotRun::Elsewhere)], "nothing is read yet");
    for _ in 0..4 {
        world.second(None, false);
    }
    let before = world.entry();
    world.by_hand(2);
    assert!(world.answers[1].is_ok());
    assert_eq!((world.tasks.len(), world.entry()), (2, before), "the cron goes on as it was");
}

#[test]
fn who_loses_the_slot_kills_the_script_and_forgets_the_job() {
    let mut core = Schedule::new(1, Planted::default());
    let job = due_job();
    let id = job.id.clone();
    let mut out = Vec::new();
    core.step(now(0), Input::Job { id: id.clone(), job: Some(job) }, &mut out);
    core.step(now(1), Input::Tick { held: BTreeMap::new() }, &mut out);
    assert_eq!(out, [], "it is not ours");
    core.step(now(1), Input::Tick { held: all() }, &mut out);
    core.step(now(1), Input::Read { job: id.clone(), seen: Some(Seen::default()) }, &mut out);
    core.step(now(1), Input::Kept { job: id.clone(), number: 1, kept: true }, &mut out);
    for second in 2..4 {
        core.step(now(second), Input::Tick { held: all() }, &mut out);
        let Some(Effect::Keep { number, .. }) = out.last() else { panic!("{out:?}") };
        let number = *number;
        core.step(now(second), Input::Kept { job: id.clone(), number: number + 9, kept: true }, &mut out);
        core.step(now(second), Input::Kept { job: id.clone(), number, kept: true }, &mut out);
    }
    let Some(Effect::Execute(run)) = out.pop() else { panic!("{out:?}") };
    assert!(core.busy().contains(Schedule::slot(&id)));
    out.clear();
    let another = all().into_keys().map(|slot| (slot, 2)).collect();
    core.step(now(5), Input::Tick { held: another }, &mut out);
    let read = Effect::Read { job: id.clone() };
    assert_eq!(out, [Effect::Abort(run.clone()), read], "lost and come back is lost");
    assert!(core.busy().contains(Schedule::slot(&id)), "until it has ended");
    out.clear();
    core.step(now(5), Input::Executed { run, printed: Some(Printed::default()) }, &mut out);
    assert_eq!((out.len(), core.busy().is_empty()), (0, true), "what it printed is nobody's");
}

#[test]
fn whoever_gets_a_job_claims_it_before_anything_is_kept_under_the_claim() {
    let job = due_job();
    let id = job.id.clone();
    let read = |claim| Input::Read { job: id.clone(), seen: Some(Seen { claim, ..Seen::default() }) };
    let mut core = Schedule::new(1, Planted::default());
    let mut out = Vec::new();
    core.step(now(0), Input::Job { id: id.clone(), job: Some(Arc::clone(&job)) }, &mut out);
    core.step(now(1), Input::Tick { held: all() }, &mut out);
    out.clear();
    core.step(now(1), read(7), &mut out);
    let items = vec![super::super::entry::claim(&id, 8)];
    assert_eq!(out, [Effect::Keep { job: id.clone(), number: 1, items, floor: Version::floor(8) }]);
    // It may be there or not: another number is claimed.
    out.clear();
    core.step(now(1), Input::Kept { job: id.clone(), number: 1, kept: false }, &mut out);
    core.step(now(2), Input::Tick { held: all() }, &mut out);
    assert_eq!(out, [Effect::Read { job: id.clone() }], "nothing is kept under a claim that may not be there");
    core.step(now(2), read(8), &mut out);
    core.step(now(2), Input::Kept { job: id.clone(), number: 2, kept: true }, &mut out);
    out.clear();
    core.step(now(3), Input::Tick { held: all() }, &mut out);
    let [Effect::Keep { floor, .. }] = out[..] else { panic!("{out:?}") };
    assert_eq!(floor, Version::floor(9));
}

#[test]
fn a_run_of_a_generator_that_was_replaced_ends_as_failed() {
    let mut world = World::new();
    world.second(None, false);
    world.second(None, false);
    world.second(Some(1), false); // the entry says that a run is wanted, and the node dies
    assert!(world.entry().run.is_some());
    let mut job = Job::clone(&world.job);
    job.add_generator(generator(2, Some("0 0 1 1 *"))).unwrap();
    world.job = Arc::new(job);
    world.start();
    for _ in 0..5 {
        world.second(None, false);
    }
    assert_eq!((world.executions, world.tasks.len(), world.runs_logged()), (0, 0, 1));
    assert!(world.logs.iter().any(|entry| entry.failed_reason.contains("replaced")), "{:?}", world.logs);
    assert_eq!(world.entry().run, None);
}

#[test]
fn a_tick_that_takes_longer_than_a_minute_is_an_alert() {
    let mut core = Schedule::new(1, Planted::default());
    let job = due_job();
    let (id, mut out) = (job.id.clone(), Vec::new());
    core.step(now(0), Input::Job { id: id.clone(), job: Some(job) }, &mut out);
    core.step(now(1), Input::Tick { held: all() }, &mut out);
    core.step(now(1), Input::Read { job: id.clone(), seen: Some(Seen::default()) }, &mut out);
    core.step(now(1), Input::Kept { job: id.clone(), number: 1, kept: true }, &mut out);
    core.step(now(2), Input::Tick { held: all() }, &mut out);
    core.step(now(2), Input::Kept { job: id.clone(), number: 2, kept: true }, &mut out);
    core.step(now(3), Input::Tick { held: all() }, &mut out);
    out.clear();
    core.step(now(64), Input::Kept { job: id, number: 3, kept: true }, &mut out);
    let alert = Alert::Timeout { took_ms: 61_000, entries: 1 };
    assert!(out.contains(&Effect::Alert { alert, job: None }), "case 20: {out:?}");
}

proptest! {
    /// The node dies at any effect, any number of times, its last write kept or lost: the run that is wanted is made, and what was taken in is of one execution.
    #[test]
    fn a_run_counts_once_whatever_dies(deaths in proptest::collection::vec((0..6usize, any::<bool>()), 0..12)) {
        let mut world = World::new();
        for (after, lost) in deaths {
            world.second(Some(after), lost);
            world.second(None, false);
        }
        for _ in 0..6 {
            world.second(None, false);
        }
        prop_assert_eq!((world.tasks.len(), world.runs_logged()), (1, 1), "{:?}", world.tasks);
        prop_assert_eq!(world.entry().run, None);
    }
}
