//! Which generators run, and when: the cron of a node, for the jobs whose slots it holds.
//!
//! **A run, step by step.** Each step is on enough disks before the next one begins, and counts only if the job's slot was ours all the time:
//! 1. an entry falls due, or somebody wants a run: the entry says so ([`Entry::run`]);
//! 2. the run waits in a lane, a worker executes its script, the output is kept in pieces;
//! 3. the run is marked as *printed*, with the name of this execution;
//! 4. the pieces are taken in as tasks, which a job has once each;
//! 5. the run is marked as *done*, with its entry in the log, and the entry says what comes next.
//!
//! **Who goes on.** Whoever gets the slot reads entry and marks, and goes on where they end. Killed before 3, the script is executed again, and nothing of the
//! first execution was taken in; killed later, what it printed is taken in again, and a task that is there is not made a second time. So each run counts once.
//! Who was stopped, and goes on as if the slot were still its own, can still write to its own disk. So whoever gets a slot first claims each of its jobs, with a number that is
//! larger than every claim before: those were on enough disks, or nothing was written under them. Everything kept for a job has a version of its claim
//! ([`Version::floor`]), so the last claim wins, whatever clocks say and whenever the rest comes.
//! A script whose job's slot is lost is killed before the slot can be somebody else's (`Coordinator::assured`). What could not be written, or only perhaps, is read anew.
//!
//! Pure: time and what happened come in, what to do goes out. Dispatching is serial; what is parallel are executions, within the bound of the [`Dispatcher`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::dispatch::{Alert, Dispatched, Dispatcher, Run};
use super::entry::{CRON, Entry, Printed, Wanted, Why, claim, done};
use super::job::Job;
use super::lanes::{LANES, Placed};
use super::log::{self, LogEntry, LogKind, log_status};
use crate::clients::ask::{Item, slot_of};
use crate::clients::record::Version;
use crate::cluster::mutant::{Planted, planted};
use crate::cluster::slot_set::SlotSet;
use crate::crawl::frontier::Now;
use crate::id::Slot;

/// How often it is tried to save all tasks of a run.
const TAKE_IN_TRIES: u32 = 10;

/// What was found of a job when its slot became ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The number of the last claim; 0 if there is none.
    pub claim: u32,
    /// Its entry.
    pub entry: Option<Entry>,
    /// What the run that is not over has printed.
    pub printed: Option<Printed>,
    /// That run is over.
    pub done: bool,
}

/// What became of the tasks of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that the run made.
    pub accepted: u64,
    /// Those that the job had before.
    pub known: u64,
    /// Those that are none.
    pub refused: u64,
    /// Those that may not be on enough disks.
    pub unsaved: u64,
}

/// Why a run that somebody wants is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRun {
    /// The job's slot is not ours, or not read yet.
    #[error("this node does not hold the job")]
    Elsewhere,
    /// No generator is on.
    #[error("the job has no generator that is on; see ctl generator list")]
    Off,
    /// A run is not over.
    #[error("the generator waits or runs already")]
    Busy,
    /// No lane has room.
    #[error("all lanes that it may wait in are full; try again later")]
    Full,
    /// It could not be written down.
    #[error("too few disks could be reached to write it down; try again")]
    Unwritten,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A job is new, changed or gone.
    Job {
        /// Its id.
        id: String,
        /// As it is now.
        job: Option<Arc<Job>>,
    },
    /// Time passed; these slots are surely ours, each with the number of our tenure.
    Tick {
        /// Which.
        held: BTreeMap<Slot, u64>,
    },
    /// What [`Effect::Read`] asked for; `None` if it could not be read.
    Read {
        /// Whose.
        job: String,
        /// What was found.
        seen: Option<Seen>,
    },
    /// What [`Effect::Keep`] asked for is on enough disks and the slot was ours all the time, or not.
    Kept {
        /// Whose.
        job: String,
        /// Which.
        number: u64,
        /// Whether it is.
        kept: bool,
    },
    /// A script that [`Effect::Execute`] asked for has ended and its output is on enough disks; `None` if it was killed, or is not.
    Executed {
        /// Which.
        run: Run,
        /// What came of it.
        printed: Option<Printed>,
    },
    /// What [`Effect::TakeIn`] asked for was done; an error ends the run.
    TakenIn {
        /// Which.
        run: Run,
        /// What became of the tasks.
        tally: Result<Tally, String>,
    },
    /// Somebody wants a run now.
    ByHand {
        /// Whom to tell.
        ticket: u64,
        /// Of which job.
        job: String,
        /// A number that nobody else has.
        unique: u64,
    },
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Read what is kept of a job.
    Read {
        /// Which.
        job: String,
    },
    /// Have records kept.
    Keep {
        /// Whose.
        job: String,
        /// Names it.
        number: u64,
        /// Which.
        items: Vec<Item>,
        /// Their versions have no smaller number.
        floor: u64,
    },
    /// Execute a script.
    Execute(Run),
    /// Kill a script: the slot of its job is lost, or will be.
    Abort(Run),
    /// Take in what an execution printed.
    TakeIn {
        /// Which run.
        run: Run,
        /// What it printed.
        printed: Printed,
        /// It is not asked for again: what cannot be saved now is written down as such.
        last: bool,
    },
    /// A run is over: the pieces of its output are needed no more.
    Over(Run),
    /// Write something down.
    Log(LogEntry),
    /// Somebody should look.
    Alert {
        /// What it is.
        alert: Alert,
        /// At which job.
        job: Option<String>,
    },
    /// Tell who wanted a run.
    Answer {
        /// Whom.
        ticket: u64,
        /// Where it waits.
        told: Result<Placed, NotRun>,
    },
}

/// How far a job is.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    /// It is not known what is on disk: it is read at the next tick.
    Unread,
    /// It is being read.
    Reading,
    /// The claim is being kept.
    Claiming { number: u64, claim: u32, seen: Box<Seen> },
    /// No run is under way.
    Resting,
    /// An entry without a new run is being kept.
    Installing { number: u64, entry: Entry },
    /// An entry with a run is being kept.
    Beginning { number: u64, entry: Entry, ticket: Option<u64> },
    /// The run waits in a lane.
    Waiting,
    /// Its script is being executed.
    Executing,
    /// The mark that it printed is being kept.
    Marking { number: u64, printed: Printed },
    /// Its tasks are being taken in.
    TakingIn { printed: Printed, tries: u32, asked: bool },
    /// The mark that it is over is being kept.
    Ending { number: u64, failure: Option<Box<LogEntry>> },
}

/// A job whose slot is ours.
#[derive(Debug)]
struct Held {
    entry: Option<Entry>,
    phase: Phase,
    /// Its entry is in step with the job.
    in_step: bool,
    /// The tenure of its slot.
    tenure: u64,
    /// Our claim in it; 0 until it is on enough disks.
    claim: u32,
}

/// The cron of a node.
#[derive(Debug)]
pub struct Schedule {
    planted: Planted,
    jobs: BTreeMap<String, Arc<Job>>,
    held: BTreeMap<String, Held>,
    dispatcher: Dispatcher,
    /// Scripts that are executed here, also those that are being killed.
    executing: BTreeMap<String, Run>,
    /// Entries that fell due in one tick and are not dispatched yet: since when, how many there were, and which are left.
    falling: Option<(u64, usize, BTreeSet<String>)>,
    numbers: u64,
}

impl Schedule {
    /// A node for so many scripts at once.
    pub fn new(workers: usize, planted: Planted) -> Schedule {
        Schedule {
            planted,
            jobs: BTreeMap::new(),
            held: BTreeMap::new(),
            dispatcher: Dispatcher::new(workers),
            executing: BTreeMap::new(),
            falling: None,
            numbers: 0,
        }
    }

    /// The slot in which everything of a job lies.
    pub fn slot(job: &str) -> Slot {
        slot_of(CRON, job)
    }

    /// The slots of all jobs.
    pub fn slots(&self) -> SlotSet {
        self.jobs.keys().map(|job| Schedule::slot(job)).collect()
    }

    /// The slots of jobs whose scripts are executed here.
    pub fn busy(&self) -> SlotSet {
        self.executing.keys().map(|job| Schedule::slot(job)).collect()
    }

    /// The entry of a job whose slot is ours.
    pub fn entry(&self, job: &str) -> Option<&Entry> {
        self.held.get(job)?.entry.as_ref()
    }

    /// Takes in what happened.
    pub fn step(&mut self, now: Now, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Job { id, job } => self.job_changed(id, job, out),
            Input::Tick { held } => self.tick(now, &held, out),
            Input::Read { job, seen } => self.read(now, &job, seen, out),
            Input::Kept { job, number, kept } => self.kept(now, &job, number, kept, out),
            Input::Executed { run, printed } => self.executed(&run, printed, out),
            Input::TakenIn { run, tally } => self.taken_in(&run, tally, out),
            Input::ByHand { ticket, job, unique } => {
                if let Err(not_run) = self.by_hand(now, ticket, &job, unique, out) {
                    out.push(Effect::Answer { ticket, told: Err(not_run) });
                }
            }
        }
        self.dispatch_ended(now, out);
    }

    fn job_changed(&mut self, id: String, job: Option<Arc<Job>>, out: &mut Vec<Effect>) {
        match job {
            Some(job) => {
                if let Some(held) = self.held.get_mut(&id) {
                    held.in_step = false;
                }
                self.jobs.insert(id, job);
            }
            None => {
                self.jobs.remove(&id);
                self.let_go(&id, out);
            }
        }
    }

    /// A job is not ours any more.
    fn let_go(&mut self, id: &str, out: &mut Vec<Effect>) {
        let Some(held) = self.held.remove(id) else { return };
        self.dispatcher.forget(id);
        if let Some(run) = self.executing.get(id) {
            out.push(Effect::Abort(run.clone()));
        }
        if let Phase::Beginning { ticket: Some(ticket), .. } = held.phase {
            out.push(Effect::Answer { ticket, told: Err(NotRun::Elsewhere) });
        }
        if let Some((_, _, left)) = &mut self.falling {
            left.remove(id);
        }
    }

    fn tick(&mut self, now: Now, held: &BTreeMap<Slot, u64>, out: &mut Vec<Effect>) {
        let tenure = |job: &str| match held.get(&Schedule::slot(job)) {
            None if planted!(self.planted, RunAnywhere) => Some(0),
            tenure => tenure.copied(),
        };
        let is_lost = |(job, held): &(&String, &Held)| tenure(job) != Some(held.tenure);
        let lost: Vec<String> = self.held.iter().filter(is_lost).map(|(job, _)| job.clone()).collect();
        let gained: Vec<(String, u64)> = self.jobs.keys().filter_map(|job| Some((job.clone(), tenure(job)?))).collect();
        for job in lost {
            let goes_on = planted!(self.planted, RunGoesOn) && self.executing.contains_key(&job);
            if !goes_on {
                self.let_go(&job, out);
            }
        }
        for (job, tenure) in gained {
            let held = || Held { entry: None, phase: Phase::Unread, in_step: false, tenure, claim: 0 };
            self.held.entry(job).or_insert_with(held);
        }
        let jobs: Vec<(String, Arc<Job>)> =
            self.held.keys().filter_map(|id| Some((id.clone(), Arc::clone(self.jobs.get(id)?)))).collect();
        let mut due = BTreeSet::new();
        for (id, job) in jobs {
            if self.look_at(now, &id, &job, out) {
                due.insert(id);
            }
        }
        if !due.is_empty() && self.falling.is_none() {
            self.falling = Some((now.mono / 1_000, due.len(), due));
        }
    }

    /// Looks at a job at a tick; says whether its entry fell due.
    fn look_at(&mut self, now: Now, id: &str, job: &Arc<Job>, out: &mut Vec<Effect>) -> bool {
        let Some(held) = self.held.get_mut(id) else { return false };
        match &mut held.phase {
            Phase::Unread => {
                held.phase = Phase::Reading;
                out.push(Effect::Read { job: id.to_owned() });
            }
            Phase::Resting => {
                let in_step = std::mem::replace(&mut held.in_step, true);
                let installed = if in_step { None } else { Entry::installed(held.entry.as_ref(), job, now.unix_ms) };
                if let Some(entry) = installed {
                    let items = vec![entry.item(id)];
                    let number = self.keep(id, items, out);
                    self.enter(id, Phase::Installing { number, entry });
                    return false;
                }
                let due = held.entry.as_ref().filter(|entry| entry.is_due(now.unix_ms));
                if let Some(entry) = due.and_then(|entry| entry.fallen_due(job, now.unix_ms)) {
                    self.begin(now, id, entry, None, out);
                    return true;
                }
            }
            Phase::TakingIn { printed, tries, asked } if !*asked => {
                *asked = true;
                let (printed, last) = (printed.clone(), *tries >= TAKE_IN_TRIES);
                if let Some(run) = self.run_of(id) {
                    out.push(Effect::TakeIn { run, printed, last });
                }
            }
            _ => {}
        }
        false
    }

    fn enter(&mut self, id: &str, phase: Phase) {
        if let Some(held) = self.held.get_mut(id) {
            held.phase = phase;
        }
    }

    fn keep(&mut self, id: &str, items: Vec<Item>, out: &mut Vec<Effect>) -> u64 {
        self.numbers += 1;
        let claim = self.held.get(id).map_or(0, |held| held.claim);
        out.push(Effect::Keep { job: id.to_owned(), number: self.numbers, items, floor: Version::floor(claim) });
        self.numbers
    }

    /// The run of a job that is not over.
    fn run_of(&self, id: &str) -> Option<Run> {
        let Wanted { id: run, generator, .. } = self.held.get(id)?.entry.as_ref()?.run.clone()?;
        Some(Run { job: id.to_owned(), generator, id: run })
    }

    /// Has it written down that a run is wanted.
    fn begin(&mut self, now: Now, id: &str, entry: Entry, ticket: Option<u64>, out: &mut Vec<Effect>) {
        if planted!(self.planted, RunUnwritten) {
            if let Some(held) = self.held.get_mut(id) {
                held.entry = Some(entry);
            }
            return self.dispatch(now, id, ticket, out);
        }
        let items = vec![entry.item(id)];
        let number = self.keep(id, items, out);
        self.enter(id, Phase::Beginning { number, entry, ticket });
    }

    fn read(&mut self, now: Now, id: &str, seen: Option<Seen>, out: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(id).filter(|held| held.phase == Phase::Reading) else { return };
        let Some(seen) = seen else {
            held.phase = Phase::Unread;
            return;
        };
        if held.claim > 0 {
            return self.go_on(now, id, seen, out);
        }
        let number = if planted!(self.planted, ClaimsAlike) { 1 } else { seen.claim.saturating_add(1) };
        self.numbers += 1;
        held.phase = Phase::Claiming { number: self.numbers, claim: number, seen: Box::new(seen) };
        let (items, floor) = (vec![claim(id, number)], Version::floor(number));
        out.push(Effect::Keep { job: id.to_owned(), number: self.numbers, items, floor });
    }

    /// Goes on where whoever held the job before has ended. What was found may be on this disk alone, so it is kept again before anything follows from it.
    fn go_on(&mut self, now: Now, id: &str, seen: Seen, out: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(id) else { return };
        let Seen { entry, printed, done, .. } = seen;
        held.in_step = false;
        held.entry.clone_from(&entry);
        held.phase = Phase::Resting;
        let Some(entry) = entry.filter(|entry| entry.run.is_some()) else { return };
        match printed.filter(|_| !planted!(self.planted, PrintedForgotten)) {
            _ if done => self.end(id, None, out),
            Some(printed) => self.mark(id, printed, out),
            None => self.begin(now, id, entry, None, out),
        }
    }

    fn kept(&mut self, now: Now, id: &str, number: u64, kept: bool, out: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(id) else { return };
        let waits_for = match &held.phase {
            Phase::Claiming { number, .. }
            | Phase::Installing { number, .. }
            | Phase::Beginning { number, .. }
            | Phase::Marking { number, .. }
            | Phase::Ending { number, .. } => *number,
            _ => return,
        };
        if waits_for != number {
            return;
        }
        let phase = std::mem::replace(&mut held.phase, Phase::Unread);
        if !kept {
            // It may be there or not: what is there is read, and counts.
            if let Phase::Beginning { ticket: Some(ticket), .. } = phase {
                out.push(Effect::Answer { ticket, told: Err(NotRun::Unwritten) });
            }
            if let Some((_, _, left)) = &mut self.falling {
                left.remove(id);
            }
            return;
        }
        match phase {
            Phase::Claiming { claim, seen, .. } => {
                held.claim = claim;
                self.go_on(now, id, *seen, out);
            }
            Phase::Installing { entry, .. } => {
                (held.entry, held.phase) = (Some(entry), Phase::Resting);
            }
            Phase::Beginning { entry, ticket, .. } => {
                held.entry = Some(entry);
                self.dispatch(now, id, ticket, out);
            }
            Phase::Marking { printed, .. } if printed.failure.is_some() || printed.pieces == 0 => {
                let failure = printed.failure.clone();
                self.over(id, &printed, failure.map_or(Ok(Tally::default()), Err), out);
            }
            Phase::Marking { printed, .. } => {
                held.phase = Phase::TakingIn { printed: printed.clone(), tries: 0, asked: true };
                if let Some(run) = self.run_of(id) {
                    out.push(Effect::TakeIn { run, printed, last: false });
                }
            }
            Phase::Ending { failure, .. } => {
                out.extend(self.run_of(id).map(Effect::Over));
                out.extend(failure.map(|entry| Effect::Log(*entry)));
                if let Some(held) = self.held.get_mut(id) {
                    held.entry = held.entry.as_ref().map(Entry::ended);
                    held.phase = Phase::Resting;
                }
            }
            _ => {}
        }
    }

    /// Puts a run that is written down into its lane.
    fn dispatch(&mut self, now: Now, id: &str, ticket: Option<u64>, out: &mut Vec<Effect>) {
        if let Some((_, _, left)) = &mut self.falling {
            left.remove(id);
        }
        let (Some(run), Some(job)) = (self.run_of(id), self.jobs.get(id).cloned()) else { return };
        let why = self.held.get(id).and_then(|held| held.entry.as_ref()?.run.as_ref()).map_or(Why::Hand, |run| run.why);
        if job.running().is_none_or(|generator| generator.id != run.generator) {
            let reason = "job or generator was switched off or replaced meanwhile";
            out.extend(ticket.map(|ticket| Effect::Answer { ticket, told: Err(NotRun::Off) }));
            return self.mark(id, Printed::failed(reason, now.unix_ms), out);
        }
        let why = why.name();
        let dispatched = self.dispatcher.dispatch(job.priority(), run.clone());
        let (status, content, told) = match dispatched {
            Dispatched::Waits(placed) if placed.overflowed => {
                (log_status::OK, format!("{why}: its own lane is full, it waits in {}", LANES[placed.lane]), Ok(placed))
            }
            Dispatched::Waits(placed) => {
                (log_status::OK, format!("{why}: waits in {}", LANES[placed.lane]), Ok(placed))
            }
            Dispatched::Busy => {
                // A former execution is still being killed: it is looked at again.
                out.extend(ticket.map(|ticket| Effect::Answer { ticket, told: Err(NotRun::Busy) }));
                return self.enter(id, Phase::Unread);
            }
            Dispatched::Full => (log_status::FAILED, format!("{why}: left out, the lanes are full"), Err(NotRun::Full)),
        };
        let entry = LogEntry {
            job: Some(run.job.clone()),
            generator: Some(run.generator.clone()),
            status,
            failed_reason: if told.is_err() { content.clone() } else { String::new() },
            content,
            ..LogEntry::new(LogKind::Cron, "DISPATCH", now.unix_ms)
        };
        out.push(Effect::Log(entry));
        out.extend(ticket.map(|ticket| Effect::Answer { ticket, told }));
        if told.is_err() {
            out.push(Effect::Alert { alert: Alert::QueuesFilledUp, job: Some(run.job.clone()) });
            return self.mark(id, Printed::failed("the lanes were full", now.unix_ms), out);
        }
        self.enter(id, Phase::Waiting);
        self.start_runs(out);
    }

    /// Starts what waits, as long as workers are free.
    fn start_runs(&mut self, out: &mut Vec<Effect>) {
        while let Some(run) = self.dispatcher.take() {
            self.enter(&run.job, Phase::Executing);
            self.executing.insert(run.job.clone(), run.clone());
            out.push(Effect::Execute(run));
        }
    }

    fn executed(&mut self, run: &Run, printed: Option<Printed>, out: &mut Vec<Effect>) {
        if self.executing.get(&run.job) == Some(run) {
            self.executing.remove(&run.job);
            self.dispatcher.ended(run);
        }
        let is_ours = self.run_of(&run.job).as_ref() == Some(run)
            && self.held.get(&run.job).is_some_and(|held| held.phase == Phase::Executing);
        if is_ours {
            match printed {
                Some(printed) => self.mark(&run.job, printed, out),
                None => self.enter(&run.job, Phase::Unread),
            }
        }
        self.start_runs(out);
    }

    /// Has it written down what a run came to.
    fn mark(&mut self, id: &str, printed: Printed, out: &mut Vec<Effect>) {
        let Some(run) = self.run_of(id) else { return };
        let items = vec![printed.item(id, &run.id)];
        let number = self.keep(id, items, out);
        self.enter(id, Phase::Marking { number, printed });
    }

    fn taken_in(&mut self, run: &Run, tally: Result<Tally, String>, out: &mut Vec<Effect>) {
        if self.run_of(&run.job).as_ref() != Some(run) {
            return;
        }
        let Some(held) = self.held.get_mut(&run.job) else { return };
        let Phase::TakingIn { printed, tries, asked } = &mut held.phase else { return };
        if tally.as_ref().is_ok_and(|tally| tally.unsaved > 0) && *tries < TAKE_IN_TRIES {
            (*tries, *asked) = (*tries + 1, false);
            return;
        }
        let printed = printed.clone();
        self.over(&run.job, &printed, tally, out);
    }

    /// A run is over: writes down how it went.
    fn over(&mut self, id: &str, printed: &Printed, tally: Result<Tally, String>, out: &mut Vec<Effect>) {
        let Some(run) = self.run_of(id) else { return };
        let Tally { accepted, known, refused, unsaved } = tally.as_ref().copied().unwrap_or_default();
        let failure = tally.err();
        let complaint = Some(printed.stderr.trim()).filter(|text| !text.is_empty());
        let reason: Vec<&str> = failure.as_deref().into_iter().chain(complaint).collect();
        let entry = LogEntry {
            job: Some(run.job),
            generator: Some(run.generator),
            status: if failure.is_none() { log_status::OK } else { log_status::FAILED },
            failed_reason: reason.join("\n"),
            content: format!(
                "{{\"accepted\":{accepted},\"known\":{known},\"refused\":{refused},\"unsaved\":{unsaved}}}"
            ),
            content_bytes: printed.bytes,
            spend_msecs: printed.spend_msecs,
            hostname: printed.hostname.clone(),
            ..LogEntry::new(LogKind::Generator, "RUN", printed.at_ms)
        };
        self.end(id, Some((entry, failure.is_some())), out);
    }

    /// Has it written down that a run is over.
    fn end(&mut self, id: &str, logged: Option<(LogEntry, bool)>, out: &mut Vec<Effect>) {
        let Some(run) = self.run_of(id) else { return };
        let Some(entry) = self.held.get(id).and_then(|held| held.entry.as_ref()).map(Entry::ended) else { return };
        let mut items = vec![done(id, &run.id)];
        let mut failure = None;
        if let Some((entry, failed)) = logged {
            // Under a name that follows from the run: written again, it is the same one.
            items.push(log::item(entry.clone(), log::unique(&run.id)));
            let error = || Box::new(LogEntry { kind: LogKind::Error, name: "ERROR_JOB".to_owned(), ..entry });
            failure = failed.then(error);
        }
        items.push(entry.item(id));
        let number = self.keep(id, items, out);
        self.enter(id, Phase::Ending { number, failure });
    }

    fn by_hand(&mut self, now: Now, ticket: u64, id: &str, unique: u64, out: &mut Vec<Effect>) -> Result<(), NotRun> {
        let job = self.jobs.get(id).cloned().ok_or(NotRun::Elsewhere)?;
        let held = self.held.get(id).ok_or(NotRun::Elsewhere)?;
        job.running().ok_or(NotRun::Off)?;
        match held.phase {
            Phase::Resting => {}
            Phase::Unread | Phase::Reading | Phase::Claiming { .. } | Phase::Installing { .. } => {
                return Err(NotRun::Elsewhere);
            }
            _ => return Err(NotRun::Busy),
        }
        let entry = held.entry.clone().unwrap_or_default();
        let entry = entry.wanted(&job, now.unix_ms, unique).ok_or(NotRun::Off)?;
        self.begin(now, id, entry, Some(ticket), out);
        Ok(())
    }

    /// Looks whether all entries that fell due at a tick are dispatched, and whether that took too long.
    fn dispatch_ended(&mut self, now: Now, out: &mut Vec<Effect>) {
        if let Some((began_ms, entries, left)) = &self.falling
            && left.is_empty()
        {
            let alert = Dispatcher::tick_ended(*began_ms, now.mono / 1_000, *entries);
            out.extend(alert.map(|alert| Effect::Alert { alert, job: None }));
            self.falling = None;
        }
    }
}

#[cfg(test)]
mod tests;
