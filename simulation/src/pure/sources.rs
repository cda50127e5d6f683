//! Sources of URLs in the pure layer: the cores that decide which generators run and how their tasks reach the crawl, over the world's disks and leases. Scripts are
//! time that passes; each execution prints other URLs, as scripts do that look at a clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::batch::{Discovered, EntryKind};
use proto::clients::ask::{Item, Told};
use proto::clients::identity::is_client;
use proto::clients::record::{Opened, open};
use proto::cluster::coordinator::{self, Tenure};
use proto::cluster::copy::RecordCopy;
use proto::cluster::mutant::Planted;
use proto::cluster::slot_set::SlotSet;
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};
use proto::key::DEFAULT_CRAWL;
use proto::source::dispatch::Run;
use proto::source::entry::{CLAIM, CRON, ENTRY, Entry, OUTPUT, Printed, RUNS, TASKS, claimed, done_mark, word, words};
use proto::source::hand_over::{self, HandOver};
use proto::source::job::Job;
use proto::source::schedule::{Effect, Input, Schedule, Seen, Tally};
use proto::source::task::{Met, met};

use super::storage::What;
use super::{Happening, World, parse};
use crate::world::generators;
use crate::world::plan::{MILLISECOND, Plan, SECOND};
use crate::world::random::{For, Random};
use crate::world::trace::Event;

/// Tickets from here on are the sources' own.
pub(super) const SOURCE_TICKETS: u64 = 1 << 40;
/// Scripts at once on a node.
const WORKERS: usize = 2;
/// URLs that an execution prints.
const PRINTED: u64 = 2;
/// For how long a task that is taken is not taken again.
const TAKEN_FOR: Micros = 4 * SECOND;
/// How often it is looked whether a script must be killed.
const LOOK_EVERY: Micros = 20 * MILLISECOND;

/// What is waited for.
enum Wait {
    /// Records that the schedule wants kept.
    Keep { job: String, number: u64, items: Vec<Item>, tenure: u64 },
    /// What a script printed.
    Pieces { run: Run, printed: Printed, tenure: u64 },
    /// Tasks of a run.
    Tasks { run: Run },
    /// Tasks that are handed in to the crawl.
    Crawl { number: u64 },
    /// Tasks that were handed over.
    Marked,
}

/// A script that is executed.
struct Script {
    run: Run,
    tenure: u64,
    /// Until when it may be, on the clock of its node.
    until: Micros,
}

/// The cores and what is under way.
pub(super) struct Sources {
    core: Schedule,
    hand_over: HandOver,
    jobs: Vec<Arc<Job>>,
    tenures: BTreeMap<Slot, Tenure>,
    waits: BTreeMap<u64, Wait>,
    next_ticket: u64,
    scripts: BTreeMap<u64, Script>,
    /// Tasks that were taken, and when.
    taken: BTreeMap<String, Micros>,
    /// Who waits for a run, by its ticket.
    asking: BTreeMap<u64, usize>,
}

impl Sources {
    pub(super) fn new(plan: &Plan, at: Micros, planted: Planted) -> Sources {
        let mut core = Schedule::new(WORKERS, planted);
        let jobs = generators::jobs(at < plan.faults_end());
        let now = proto::crawl::frontier::Now { mono: 0, unix_ms: 0 };
        for job in &jobs {
            core.step(now, Input::Job { id: job.id.clone(), job: Some(Arc::clone(job)) }, &mut Vec::new());
        }
        Sources {
            core,
            hand_over: HandOver::new(planted),
            jobs,
            tenures: BTreeMap::new(),
            waits: BTreeMap::new(),
            next_ticket: SOURCE_TICKETS,
            scripts: BTreeMap::new(),
            taken: BTreeMap::new(),
            asking: BTreeMap::new(),
        }
    }
}

impl World<'_> {
    /// The cron is switched off, so that the cluster can come to rest; runs that are wanted stay so.
    pub(super) fn no_more_cron(&mut self, at: Micros) {
        let jobs = generators::jobs(false);
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for id in nodes {
            if let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) {
                machine.sources.jobs.clone_from(&jobs);
            }
            for job in &jobs {
                self.feed(at, id, Input::Job { id: job.id.clone(), job: Some(Arc::clone(job)) });
            }
        }
    }

    /// What is ours, and what is due, looked at now and then as the program does.
    pub(super) fn look_after_sources(&mut self, at: Micros, id: NodeId) {
        let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return };
        let (slots, busy) = (machine.sources.core.slots(), machine.sources.core.busy());
        self.step(at, id, coordinator::Input::Jobs { slots: slots.clone(), busy });
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        let tenures = machine.coordinator.assured(now.mono, &slots);
        for script in machine.sources.scripts.values_mut() {
            let tenure = tenures.get(&Schedule::slot(&script.run.job));
            script.until =
                tenure.filter(|tenure| tenure.number == script.tenure).map_or(now.mono, |tenure| tenure.until);
            if is_going_on(self.planted) {
                script.until = Micros::MAX;
            }
        }
        let held = tenures.iter().map(|(slot, tenure)| (*slot, tenure.number)).collect();
        machine.sources.tenures = tenures;
        self.feed(at, id, Input::Tick { held });
        self.hand_tasks_over(at, id);
    }

    fn feed(&mut self, at: Micros, id: NodeId, input: Input) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        let what = noted(&input);
        self.trace.note(at, id, &what, || format!("sources: {input:?}"));
        let mut effects = Vec::new();
        machine.sources.core.step(now, input, &mut effects);
        for effect in effects {
            self.perform_source(at, id, effect);
        }
    }

    fn perform_source(&mut self, at: Micros, id: NodeId, effect: Effect) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let life = node.life;
        let Some(machine) = &mut node.machine else { return };
        let (sources, storage) = (&mut machine.sources, &machine.storage);
        match effect {
            Effect::Read { job } => {
                let entry = storage.told(CRON, &job, ENTRY).map(|told| Entry::read(&told));
                let run = entry.as_ref().and_then(|entry| entry.run.as_ref()).map(|run| run.id.clone());
                let mark = |mark: fn(&str) -> String| storage.told(RUNS, &job, &mark(run.as_deref()?));
                let printed = mark(Printed::mark).and_then(|told| Printed::read(&told));
                let done = mark(done_mark).is_some();
                if run.is_some() {
                    let what = if printed.is_some() { "printed_taken_over" } else { "run_taken_over" };
                    self.trace.sometimes(at, what);
                }
                let claim = storage.told(CRON, &job, CLAIM).map_or(0, |told| claimed(&told));
                self.feed(at, id, Input::Read { job, seen: Some(Seen { claim, entry, printed, done }) });
            }
            Effect::Keep { job, number, items, floor } => {
                let tenure = sources.tenures.get(&Schedule::slot(&job)).map(|tenure| tenure.number);
                let wait = Wait::Keep { job, number, items: items.clone(), tenure: tenure.unwrap_or(0) };
                self.keep_items(at, id, items, Some(floor), wait);
            }
            Effect::Execute(run) => {
                if !self.is_pinned(at, id, &run) {
                    return self.feed(at, id, Input::Executed { run, printed: None });
                }
                let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return };
                let sources = &mut machine.sources;
                self.executions += 1;
                let execution = self.executions;
                let tenure = sources.tenures.get(&Schedule::slot(&run.job)).copied();
                let (tenure, until) = tenure.map_or((0, Micros::MAX), |tenure| (tenure.number, tenure.until));
                let (job, of) = (run.job.clone(), run.id.clone());
                sources.scripts.insert(execution, Script { run, tenure, until });
                self.trace.record(at, Event::ScriptStarted { node: id, job, run: of, execution });
                let mut draw = Random::at(self.plan.seed, For::Source, execution, 1 << 32);
                // Some last longer than a lease: only they can go on in a slot that is somebody else's.
                let takes = if draw.below(6) == 0 { draw.between(4_000, 16_000) } else { draw.between(100, 4_000) };
                let takes = takes * MILLISECOND;
                self.at(at + takes, Happening::ScriptEnds { node: id, life, execution });
                self.at(at + LOOK_EVERY, Happening::ScriptLook { node: id, life, execution });
            }
            Effect::Abort(run) => {
                let execution = sources.scripts.iter().find(|(_, script)| script.run == run).map(|(number, _)| *number);
                if let Some(execution) = execution {
                    self.kill_script(at, id, execution);
                }
            }
            Effect::TakeIn { run, printed, .. } => self.take_in(at, id, run, &printed),
            Effect::Answer { ticket, told } => {
                let Some(number) = sources.asking.remove(&ticket) else { return };
                if told.is_ok() {
                    let job = generators::draw(self.plan, number, 0).1;
                    let run = sources.core.entry(&job).and_then(|entry| entry.run.as_ref()).map(|run| run.id.clone());
                    self.promised.insert(number);
                    self.trace.sometimes(at, "run_by_hand");
                    self.trace.record(at, Event::RunWanted { job, run: run.unwrap_or_default() });
                }
            }
            Effect::Over(_) | Effect::Log(_) | Effect::Alert { .. } => {}
        }
    }

    /// Whether the slot of a run is ours, and stays so while its script is executed: who holds slots knows of it.
    fn is_pinned(&mut self, at: Micros, id: NodeId, run: &Run) -> bool {
        let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return false };
        let slot = Schedule::slot(&run.job);
        let (slots, busy) = (machine.sources.core.slots(), machine.sources.core.busy());
        let before = machine.sources.tenures.get(&slot).map(|tenure| tenure.number);
        self.step(at, id, coordinator::Input::Jobs { slots, busy });
        let Some(node) = self.nodes.get_mut(&id) else { return false };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return false };
        let held = machine.coordinator.assured(now.mono, &[slot].into_iter().collect());
        is_anywhere(self.planted) || held.get(&slot).is_some_and(|tenure| Some(tenure.number) == before)
    }

    /// Has records kept on this disk, and on enough others; those of no claim go by the clock, or are merely found.
    fn keep_items(&mut self, at: Micros, id: NodeId, items: Vec<Item>, floor: Option<u64>, wait: Wait) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let unix_ms = node.clock.unix_ms(at);
        let Some(machine) = &mut node.machine else { return };
        let copies: Vec<RecordCopy> = machine.storage.put_items(items, unix_ms, floor);
        machine.sources.next_ticket += 1;
        let ticket = machine.sources.next_ticket;
        machine.sources.waits.insert(ticket, wait);
        if copies.is_empty() {
            return self.sources_kept(at, id, ticket, true);
        }
        if !self.write(at, id, What::Clients(ticket, copies)) {
            self.sources_kept(at, id, ticket, false);
        }
    }

    /// What was to be kept is on enough disks, or perhaps not.
    pub(super) fn sources_kept(&mut self, at: Micros, id: NodeId, ticket: u64, kept: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        let Some(wait) = machine.sources.waits.remove(&ticket) else { return };
        let still_ours = |job: &str, tenure: u64| {
            let slots: SlotSet = [Schedule::slot(job)].into_iter().collect();
            let held = machine.coordinator.assured(now.mono, &slots);
            is_anywhere(self.planted) || held.values().any(|held| held.number == tenure)
        };
        match wait {
            Wait::Keep { job, number, items, tenure } => {
                let kept = kept && still_ours(&job, tenure);
                if kept {
                    self.record_marks(at, id, &items);
                }
                self.feed(at, id, Input::Kept { job, number, kept });
            }
            Wait::Pieces { run, printed, tenure } => {
                let kept = kept && still_ours(&run.job, tenure);
                self.feed(at, id, Input::Executed { run, printed: Some(printed).filter(|_| kept) });
            }
            Wait::Tasks { run } => {
                let unsaved = u64::from(!kept);
                self.feed(at, id, Input::TakenIn { run, tally: Ok(Tally { unsaved, ..Tally::default() }) });
            }
            Wait::Crawl { number } => self.hand(at, id, hand_over::Input::Submitted { number, kept }),
            Wait::Marked => {}
        }
    }

    /// Tells the trace what is on enough disks now.
    fn record_marks(&mut self, at: Micros, id: NodeId, items: &[Item]) {
        for item in items {
            let (job, name) = (item.key.clone(), item.url.clone());
            if item.crawl == CRON && name == ENTRY {
                let entry = Entry::read(&as_told(item));
                if let Some(run) = entry.run {
                    self.trace.sometimes(at, "run_fell_due");
                    self.trace.record(at, Event::RunWanted { job, run: run.id });
                }
            } else if item.crawl == CRON && name == CLAIM {
                self.trace.record(at, Event::JobClaimed { node: id, job, number: claimed(&as_told(item)) });
            } else if let Some(run) = name.strip_suffix("/done") {
                self.trace.record(at, Event::RunDone { job, run: run.to_owned() });
            } else if let Some((run, printed)) = name.strip_suffix("/printed").zip(Printed::read(&as_told(item))) {
                let tasks = self.printed(id, &job, run, &printed);
                let tasks = tasks.iter().filter_map(|task| Some(parse(task)?.id(DEFAULT_CRAWL))).collect();
                let execution = printed.execution.parse().unwrap_or(0);
                self.trace.record(at, Event::RunPrinted { job, run: run.to_owned(), execution, tasks });
            }
        }
    }

    // Scripts.

    pub(super) fn script_look(&mut self, at: Micros, id: NodeId, execution: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (now, life) = (node.clock.local(at), node.life);
        let Some(script) = node.machine.as_ref().and_then(|machine| machine.sources.scripts.get(&execution)) else {
            return;
        };
        if now >= script.until {
            return self.kill_script(at, id, execution);
        }
        self.at(at + LOOK_EVERY, Happening::ScriptLook { node: id, life, execution });
    }

    fn kill_script(&mut self, at: Micros, id: NodeId, execution: u64) {
        let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return };
        let Some(Script { run, .. }) = machine.sources.scripts.remove(&execution) else { return };
        self.trace.sometimes(at, "script_killed");
        self.trace.record(at, Event::ScriptEnded { node: id, execution });
        self.feed(at, id, Input::Executed { run, printed: None });
    }

    pub(super) fn script_ends(&mut self, at: Micros, id: NodeId, execution: u64) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let at_ms = node.clock.unix_ms(at);
        let Some(machine) = &mut node.machine else { return };
        let Some(Script { run, tenure, .. }) = machine.sources.scripts.remove(&execution) else { return };
        self.trace.record(at, Event::ScriptEnded { node: id, execution });
        let name = execution.to_string();
        let urls: Vec<String> = (0..PRINTED).map(|number| self.printed_url(execution, number)).collect();
        let piece = Printed::piece(&run.job, &run.id, &name, 0, urls.join("\n"));
        let printed = Printed { execution: name, pieces: 1, at_ms, ..Printed::default() };
        self.keep_items(at, id, vec![piece], None, Wait::Pieces { run, printed, tenure });
    }

    fn printed_url(&self, execution: u64, number: u64) -> String {
        let mut draw = Random::at(self.plan.seed, For::Source, execution, (2 << 32) + number);
        let host = draw.below(u64::from(self.origins.web().host_count())) as u32;
        format!("{}?task={execution}-{number}", self.origins.submission_url(host, 0))
    }

    /// What an execution printed.
    fn printed(&self, id: NodeId, job: &str, run: &str, printed: &Printed) -> Vec<String> {
        let name = Printed::piece_name(run, &printed.execution, 0);
        let piece = self.nodes.get(&id).and_then(|node| node.machine.as_ref()?.storage.told(OUTPUT, job, &name));
        let text = piece.and_then(|piece| word(&piece.metadata, "text")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn take_in(&mut self, at: Micros, id: NodeId, run: Run, printed: &Printed) {
        let urls = self.printed(id, &run.job, &run.id, printed);
        if urls.is_empty() {
            // The piece has not come here yet.
            let tally = Ok(Tally { unsaved: 1, ..Tally::default() });
            return self.feed(at, id, Input::TakenIn { run, tally });
        }
        let execution = printed.execution.parse().unwrap_or(0);
        let (job, of) = (run.job.clone(), run.id.clone());
        self.trace.record(at, Event::TasksTakenIn { node: id, job, run: of, execution });
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let unix_ms = node.clock.unix_ms(at);
        let Some(machine) = &node.machine else { return };
        let task = |url: String| {
            let metadata = words([("added", Some(unix_ms.to_string())), ("run", Some(run.id.clone()))]);
            let item = Item { crawl: TASKS.to_owned(), key: run.job.clone(), url, metadata, date_s: None };
            match machine.storage.told(TASKS, &run.job, &item.url) {
                None => Some(item),
                Some(there) => match met(&there, item, unix_ms) {
                    Met::OfThisRun(item) | Met::Again(item) => Some(item),
                    Met::Known => None,
                },
            }
        };
        let items = urls.into_iter().filter_map(task).collect();
        self.keep_items(at, id, items, None, Wait::Tasks { run });
    }

    // Tasks.

    /// Takes the tasks that wait in the slots that are served here.
    fn hand_tasks_over(&mut self, at: Micros, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.now(at);
        let Some(machine) = &mut node.machine else { return };
        let served = machine.coordinator.served(now.mono);
        let jobs: Vec<String> = machine.sources.jobs.iter().map(|job| job.id.clone()).collect();
        for job in jobs.into_iter().filter(|job| served.contains(Schedule::slot(job))) {
            let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return };
            let taken = &mut machine.sources.taken;
            let mut tasks = machine.storage.told_all(TASKS, &job);
            tasks.retain(|task| task.date_s == 1 && taken.get(&task.url).is_none_or(|at| at + TAKEN_FOR < now.mono));
            let again = tasks.iter().filter(|task| taken.insert(task.url.clone(), now.mono).is_some()).count();
            if again > 0 {
                self.trace.sometimes(at, "task_handed_again");
            }
            // As many at once as fit the smallest outbox of this world.
            for tasks in tasks.chunks(1) {
                self.hand(at, id, hand_over::Input::Taken { job: job.clone(), tasks: tasks.to_vec() });
            }
        }
    }

    fn hand(&mut self, at: Micros, id: NodeId, input: hand_over::Input) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now_ms = node.clock.unix_ms(at);
        let Some(machine) = &mut node.machine else { return };
        let mut effects = Vec::new();
        machine.sources.hand_over.step(now_ms, input, &mut effects);
        for effect in effects {
            match effect {
                hand_over::Effect::Submit { number, tasks, .. } => self.submit_tasks(at, id, number, &tasks),
                hand_over::Effect::Mark(items) => self.keep_items(at, id, items, None, Wait::Marked),
            }
        }
    }

    fn submit_tasks(&mut self, at: Micros, id: NodeId, number: u64, tasks: &[Told]) {
        let found = |task: &Told| {
            let url = parse(&task.url)?;
            Some(Discovered { url, kind: EntryKind::Page, depth: 0, priority: 150, redirects: 0 })
        };
        let urls: Vec<Discovered> = tasks.iter().filter_map(found).collect();
        let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return };
        machine.sources.next_ticket += 1;
        let ticket = machine.sources.next_ticket;
        machine.sources.waits.insert(ticket, Wait::Crawl { number });
        let crawl = DEFAULT_CRAWL.to_owned();
        self.step(at, id, coordinator::Input::Submitted { ticket, crawl, urls });
    }

    // People.

    pub(super) fn by_hand(&mut self, at: Micros, number: usize, attempt: u64) {
        if self.promised.contains(&number) {
            return;
        }
        let (mut draw, job) = generators::draw(self.plan, number, attempt);
        let up: Vec<NodeId> = self.nodes.values().filter(|node| node.takes_clients()).map(|node| node.id).collect();
        if !up.is_empty() {
            let id = draw.pick(&up);
            if let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) {
                let ticket = draw.number();
                machine.sources.asking.insert(ticket, number);
                self.feed(at, id, Input::ByHand { ticket, job, unique: ticket });
            }
        }
        if at < self.plan.faults_end() {
            self.at(at + generators::PATIENCE, Happening::ByHand { number, attempt: attempt + 1 });
        }
    }
}

/// The run of which a record says that it is over.
pub(super) fn over(copy: &RecordCopy) -> Option<(String, String)> {
    if !is_client(&copy.key) {
        return None;
    }
    let (queue, Opened::Url(mark)) = open(copy)? else { return None };
    let run = mark.url.strip_suffix("/done").filter(|_| queue.crawl() == RUNS)?;
    Some((queue.key(), run.to_owned()))
}

/// What of an input two runs of a seed must have in common.
fn noted(input: &Input) -> (&'static str, String, u64) {
    match input {
        Input::Job { id, job } => ("job", id.clone(), u64::from(job.is_some())),
        Input::Tick { held } => ("tick", String::new(), held.len() as u64),
        Input::Read { job, seen } => ("read", job.clone(), u64::from(seen.is_some())),
        Input::Kept { job, number, kept } => ("kept", job.clone(), number * 2 + u64::from(*kept)),
        Input::Executed { run, printed } => ("executed", run.id.clone(), u64::from(printed.is_some())),
        Input::TakenIn { run, tally } => ("taken in", run.id.clone(), tally.as_ref().map_or(0, |tally| tally.unsaved)),
        Input::ByHand { ticket, job, .. } => ("by hand", job.clone(), *ticket),
    }
}

fn as_told(item: &Item) -> Told {
    let Item { crawl, key, url, metadata, date_s } = item.clone();
    Told { crawl, key, url, metadata, date_s: date_s.unwrap_or(1), created_s: 0 }
}

/// Whether whoever runs a script lets it run when the slot is lost.
fn is_going_on(planted: Planted) -> bool {
    super::node::is(planted, "run_goes_on") || is_anywhere(planted)
}

/// Whether everybody runs everything.
fn is_anywhere(planted: Planted) -> bool {
    super::node::is(planted, "run_anywhere")
}
