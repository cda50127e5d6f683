//! Scripts that other nodes execute, under the faults of a plan: the core of the product ([`proto::source::lend`]) on every node, over the world's network and clocks, while
//! nodes crash, stop and are cut off. Every other node runs scripts itself; the rest have theirs executed.
//!
//! Whose the job is, a lease says that here nobody votes on: who reaches most of the others has it or may take it, for eight seconds of true time, and believes that it ends an eighth earlier, as
//! the product does. The next life of a holder has it at once. One run of one job follows the other. I18 judges: no two executions at a time, none of what is over, and in the end nothing is wanted any more.
//! [`LendingLayer::mutants`] leaves out one rule of the core each.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, SLOTS, Slot};
use proto::source::dispatch::Run;
use proto::source::lend::{Guest, Heard, Leave, Lender, NEW_LIFE_WAITS, Next, Said, Stamp, Word};

use crate::invariants::true_ring;
use crate::layer::{Layer, Mutant, Point, RunOptions, RunReport};
use crate::world::clock::Clock;
use crate::world::network::{Delivery, Fate, Network};
use crate::world::plan::{Fault, MILLISECOND, Plan, SECOND};
use crate::world::random::{For, Random};
use crate::world::trace::{Event, Phase, Trace};

const TICK: Micros = 200 * MILLISECOND;
/// How long a lease lasts, in true time.
const LEASE: Micros = 8 * SECOND;
/// How long an answer is waited for.
const PATIENCE: Micros = SECOND;
/// How often a guest looks whether a script may go on.
const LOOK_EVERY: Micros = 20 * MILLISECOND;

const JOB: &str = "job";

/// The layer.
pub struct LendingLayer;

impl Layer for LendingLayer {
    fn name(&self) -> &'static str {
        "lending"
    }

    fn run(&self, plan: &Plan, options: &RunOptions) -> RunReport {
        World::new(plan, options).run()
    }

    fn mutants(&self) -> Vec<Mutant> {
        let mutant = |name| Mutant { name, seeds_max: 200, breaks: &["I18"] };
        vec![
            mutant("from_receipt"),
            mutant("hasty"),
            mutant("forgetful"),
            mutant("goes_on"),
            mutant("at_once"),
            mutant("parts_early"),
        ]
    }

    fn judges(&self) -> Vec<&'static str> {
        vec!["I18"]
    }

    fn points(&self) -> Vec<Point> {
        let often = [
            "message_cut",
            "node_crashed",
            "script_lent",
            "script_of_its_own",
            "script_killed",
            "guest_asked_elsewhere",
            "guest_told_to_stop",
            "guest_lost",
            "run_over",
        ];
        Point::all(200, often).collect()
    }
}

#[derive(Clone)]
enum Message {
    Word { number: u64, word: Word },
    Said { number: u64, stamp: Stamp, said: Said },
}

enum Happening {
    Tick { node: NodeId, boot: u32 },
    Arrives { delivery: Delivery, message: Message },
    ScriptLook { node: NodeId, boot: u32, execution: u64 },
    FaultBegins(usize),
    FaultEnds(usize),
    CalmBegins,
    Look,
}

/// A script that a node executes.
struct Script {
    execution: u64,
    ends: Micros,
    /// It is of a job that the node holds itself.
    own: bool,
}

/// A guest that a holder talks to.
struct Talk {
    with: NodeId,
    lender: Lender,
    /// The word that is not answered, and since when.
    waits: Option<(u64, Micros)>,
}

struct Node {
    up: bool,
    boot: u32,
    paused_until: Micros,
    /// When this life began, on its clock.
    born: Micros,
    /// Until when the job is surely its own, on its clock.
    until: Micros,
    guest: Guest,
    script: Option<Script>,
    talk: Option<Talk>,
}

struct World<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    trace: Trace,
    network: Network,
    clocks: BTreeMap<NodeId, Clock>,
    nodes: BTreeMap<NodeId, Node>,
    /// Those that run scripts.
    guests: BTreeSet<NodeId>,
    /// Who has the job, and until when in true time.
    lease: Option<(NodeId, Micros)>,
    /// The run that is wanted, and whether it is.
    run: u64,
    wanted: bool,
    calm: bool,
    numbers: u64,
    queue: BTreeMap<(Micros, u64), Happening>,
    queued: u64,
    rested_at: Option<Micros>,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, options: &'a RunOptions) -> World<'a> {
        let nodes: Vec<NodeId> = plan.first_nodes().collect();
        let node = |id: NodeId| Node {
            up: false,
            boot: 0,
            paused_until: 0,
            born: 0,
            until: 0,
            guest: Guest::new(id.0),
            script: None,
            talk: None,
        };
        // One that runs scripts must be there in the end, and one that does not.
        let (gone, stay): (Vec<NodeId>, Vec<NodeId>) = nodes.iter().partition(|node| plan.stays_down.contains(&node.0));
        let guests = gone.iter().chain(&stay).rev().enumerate().filter(|(at, _)| at % 2 == 0).map(|(_, node)| *node);
        World {
            plan,
            options,
            trace: Trace::new(plan, options.keep),
            network: Network::new(plan),
            clocks: nodes.iter().map(|node| (*node, Clock::new(plan, *node))).collect(),
            nodes: nodes.iter().map(|id| (*id, node(*id))).collect(),
            guests: guests.collect(),
            lease: None,
            run: 0,
            wanted: false,
            calm: false,
            numbers: 0,
            queue: BTreeMap::new(),
            queued: 0,
            rested_at: None,
        }
    }

    fn run(mut self) -> RunReport {
        for node in self.plan.first_nodes() {
            self.start(0, node);
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            self.at(fault.begins(), Happening::FaultBegins(number));
            self.at(fault.ends(), Happening::FaultEnds(number));
        }
        self.at(self.plan.faults_end(), Happening::CalmBegins);
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.happens(at, happening);
            if self.trace.violation().is_some() || self.rested_at.is_some() {
                break;
            }
        }
        let messages = self.network.messages();
        RunReport::new(self.plan, self.trace, self.rested_at, messages)
    }

    fn at(&mut self, at: Micros, happening: Happening) {
        self.queued += 1;
        self.queue.insert((at, self.queued), happening);
    }

    fn has(&self, mutant: &str) -> bool {
        self.options.mutant == Some(mutant)
    }

    fn local(&self, node: NodeId, at: Micros) -> Micros {
        self.clocks[&node].local(at)
    }

    fn node(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).expect("every node of the plan is there")
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn start(&mut self, at: Micros, node: NodeId) {
        let boot = self.node(node).boot;
        if let Some(clock) = self.clocks.get_mut(&node) {
            clock.restart(boot);
        }
        self.trace.record(at, Event::NodeStarted { node, boot });
        self.trace.record(at, Event::NodeRecovered { node });
        let members: BTreeMap<NodeId, usize> = self.plan.first_nodes().map(|node| (node, 1)).collect();
        let ring = true_ring(&members);
        let owners = (0..SLOTS).filter_map(|slot| ring.owner(Slot(slot))).collect();
        self.trace.record(at, Event::RingChanged { node, members, owners });
        let guest = Guest::new(node.0 << 32 | u64::from(boot));
        let born = self.local(node, at);
        *self.node(node) = Node { up: true, boot, paused_until: 0, born, until: 0, guest, script: None, talk: None };
        self.at(at, Happening::Tick { node, boot });
    }

    /// Its script dies with it.
    fn crash(&mut self, at: Micros, node: NodeId) {
        let Some(gone) = self.nodes.get_mut(&node).filter(|node| node.up) else { return };
        (gone.up, gone.boot, gone.script, gone.talk) = (false, gone.boot + 1, None, None);
        self.trace.record(at, Event::NodeCrashed { node });
        self.trace.sometimes(at, "node_crashed");
    }

    fn send(&mut self, at: Micros, from: NodeId, to: NodeId, message: Message) {
        let sent = self.network.send(at, from, to);
        if sent.fate == Fate::Cut {
            self.trace.sometimes(at, "message_cut");
        }
        for delivery in sent.deliveries.into_iter().flatten() {
            self.at(delivery.at, Happening::Arrives { delivery, message: message.clone() });
        }
    }

    fn happens(&mut self, at: Micros, happening: Happening) {
        let concerns = match &happening {
            Happening::Tick { node, .. } | Happening::ScriptLook { node, .. } => Some(*node),
            Happening::Arrives { delivery, .. } => Some(delivery.to),
            _ => None,
        };
        // A stopped process sees nothing until it goes on.
        if let Some(until) = concerns.map(|node| self.nodes[&node].paused_until).filter(|until| *until > at) {
            return self.at(until, happening);
        }
        match happening {
            Happening::Tick { node, boot } => self.tick(at, node, boot),
            Happening::Arrives { delivery, message } => {
                if self.network.arrives(&delivery) && self.nodes[&delivery.to].up {
                    self.receive(at, delivery.from, delivery.to, message);
                }
            }
            Happening::ScriptLook { node, boot, execution } => self.script_look(at, node, boot, execution),
            Happening::FaultBegins(number) => self.fault_begins(at, number),
            Happening::FaultEnds(number) => self.fault_ends(at, number),
            Happening::CalmBegins => {
                self.trace.record(at, Event::PhaseChanged(Phase::Calm));
                self.calm = true;
                for node in self.plan.stays_down.clone() {
                    self.crash(at, NodeId(node));
                }
                self.at(at, Happening::Look);
            }
            Happening::Look => match self.trace.invariants().missing(at) {
                None => self.rested_at = Some(at),
                Some(_) if at < self.plan.calm_ends() => self.at(at + 500 * MILLISECOND, Happening::Look),
                Some(_) => {}
            },
        }
    }

    /// Takes the lease or makes it longer, if enough others are reached.
    fn hold(&mut self, at: Micros, node: NodeId) {
        let reached = |other: &NodeId| {
            let there = &self.nodes[other];
            *other == node
                || (there.up && !self.network.is_cut(at, node, *other) && !self.network.is_cut(at, *other, node))
        };
        let many = self.nodes.keys().filter(|other| reached(other)).count() * 2 > self.nodes.len();
        let may = self.lease.is_none_or(|(holder, until)| holder == node || until <= at);
        if many && may {
            self.lease = Some((node, at + LEASE));
            self.node(node).until = self.local(node, at) + LEASE / 8 * 7;
        }
    }

    fn tick(&mut self, at: Micros, node: NodeId, boot: u32) {
        if !self.nodes[&node].up || self.nodes[&node].boot != boot {
            return;
        }
        let next = self.clocks[&node].timer(at, TICK);
        self.at(next, Happening::Tick { node, boot });
        // A holder parts with the job now and then; while something is executed it only stops that.
        let parts = Random::at(self.plan.seed, For::Layer, node.0, at).below(60) == 0;
        if parts && self.lease.is_some_and(|(holder, _)| holder == node) {
            self.node(node).until = 0;
            let is_new = self.is_new(at, node) && !self.has("parts_early");
            if self.nodes[&node].script.is_none() && self.nodes[&node].talk.is_none() && !is_new {
                self.lease = None;
            }
        } else {
            self.hold(at, node);
        }
        let now = self.local(node, at);
        let silent = self.nodes[&node].talk.as_ref().and_then(|talk| talk.waits);
        if silent.is_some_and(|(_, since)| now >= since + PATIENCE) {
            let hasty = self.has("hasty");
            if let Some(talk) = &mut self.node(node).talk {
                talk.waits = None;
                talk.lender.told(None);
            }
            if hasty {
                self.node(node).talk = None;
            }
        }
        self.go_on(at, node);
    }

    /// Has executed what is due, if the job is its own.
    fn go_on(&mut self, at: Micros, node: NodeId) {
        let now = self.local(node, at);
        let ours = Some(self.nodes[&node].until).filter(|until| *until > now);
        if self.nodes[&node].talk.is_none() && self.nodes[&node].script.is_none() {
            let is_new = self.is_new(at, node) && !self.has("at_once");
            if ours.is_none() || is_new || !self.is_wanted(at) {
                return;
            }
            if self.guests.contains(&node) {
                let execution = self.number();
                self.trace.sometimes(at, "script_of_its_own");
                return self.begin(at, node, execution, true);
            }
            let guests: Vec<NodeId> = self.guests.iter().copied().collect();
            let execution = self.number();
            let with = guests[(execution % guests.len() as u64) as usize];
            let run = Run { job: JOB.to_owned(), generator: "generator".to_owned(), id: self.run.to_string() };
            self.node(node).talk = Some(Talk { with, lender: Lender::new(run, execution), waits: None });
        }
        let number = self.number();
        let Some(talk) = self.node(node).talk.as_mut().filter(|talk| talk.waits.is_none()) else { return };
        let with = talk.with;
        match talk.lender.next(now, ours) {
            Next::Say(word) => {
                talk.waits = Some((number, now));
                if word.stop {
                    self.trace.sometimes(at, "guest_told_to_stop");
                }
                self.send(at, node, with, Message::Word { number, word });
            }
            Next::Wait(_) => {}
            Next::Elsewhere => {
                self.node(node).talk = None;
                self.trace.sometimes(at, "guest_asked_elsewhere");
            }
            Next::Lost => {
                self.node(node).talk = None;
                self.trace.sometimes(at, "guest_lost");
            }
        }
    }

    /// Whether its former life's guests may go on.
    fn is_new(&self, at: Micros, node: NodeId) -> bool {
        self.local(node, at) < self.nodes[&node].born + NEW_LIFE_WAITS
    }

    /// Whether a run is wanted; one is after another, until all is calm.
    fn is_wanted(&mut self, at: Micros) -> bool {
        if !self.wanted && !self.calm {
            self.run += 1;
            self.wanted = true;
            let run = self.run.to_string();
            self.trace.record(at, Event::RunWanted { job: JOB.to_owned(), run });
        }
        self.wanted
    }

    fn begin(&mut self, at: Micros, node: NodeId, execution: u64, own: bool) {
        let mut draw = Random::at(self.plan.seed, For::Source, execution, 0);
        let takes = if draw.below(4) == 0 { draw.between(3_000, 9_000) } else { draw.between(100, 2_000) };
        self.node(node).script = Some(Script { execution, ends: at + takes * MILLISECOND, own });
        let (job, run, boot) = (JOB.to_owned(), self.run.to_string(), self.nodes[&node].boot);
        self.trace.record(at, Event::ScriptStarted { node, job, run, execution });
        self.at(at + LOOK_EVERY, Happening::ScriptLook { node, boot, execution });
    }

    fn script_look(&mut self, at: Micros, node: NodeId, boot: u32, execution: u64) {
        let (now, goes_on) = (self.local(node, at), self.has("goes_on"));
        let there = self.node(node);
        let Some(script) = there.script.as_ref().filter(|script| script.execution == execution) else { return };
        if !there.up || there.boot != boot {
            return;
        }
        let (own, ends) = (script.own, script.ends);
        let may = goes_on || if own { there.until > now } else { there.guest.is_wanted(now, execution) };
        if may && at < ends {
            return self.at(at + LOOK_EVERY, Happening::ScriptLook { node, boot, execution });
        }
        there.script = None;
        if !own {
            there.guest.ended(execution, !may);
        }
        self.trace.record(at, Event::ScriptEnded { node, execution });
        if !may {
            self.trace.sometimes(at, "script_killed");
        } else if own {
            self.over(at);
        }
    }

    /// The run that is wanted is over.
    fn over(&mut self, at: Micros) {
        self.wanted = false;
        let (job, run) = (JOB.to_owned(), self.run.to_string());
        self.trace.record(at, Event::RunDone { job: job.clone(), run: run.clone() });
        self.trace.record(at, Event::RunOver { job, run });
        self.trace.sometimes(at, "run_over");
    }

    fn receive(&mut self, at: Micros, from: NodeId, to: NodeId, message: Message) {
        let now = self.local(to, at);
        match message {
            Message::Word { number, mut word } => {
                let (from_receipt, forgetful) = (self.has("from_receipt"), self.has("forgetful"));
                let there = self.node(to);
                if from_receipt {
                    word.leave = word.leave.map(|leave| Leave { since: Stamp { at: now, ..leave.since }, ..leave });
                }
                let stamp = there.guest.stamp(now);
                if forgetful && word.leave.is_some() && there.script.is_none() && !word.stop {
                    there.guest = Guest::new(stamp.life);
                }
                let has_room = there.script.is_none();
                let said = match there.guest.hear(now, &word, has_room) {
                    Heard::Say(said) => said,
                    Heard::Begin => {
                        self.trace.sometimes(at, "script_lent");
                        self.begin(at, to, word.execution, false);
                        Said::Runs
                    }
                };
                self.send(at, to, from, Message::Said { number, stamp, said });
            }
            Message::Said { number, stamp, said } => {
                let until = self.nodes[&to].until;
                let Some(talk) = &mut self.node(to).talk else { return };
                if talk.waits.is_none_or(|(waits, _)| waits != number) {
                    return;
                }
                talk.waits = None;
                talk.lender.told(Some((stamp, said)));
                if said == Said::Ended && until > now {
                    let (with, word) = (talk.with, talk.lender.stop());
                    self.node(to).talk = None;
                    let number = self.number();
                    self.send(at, to, with, Message::Word { number, word });
                    self.over(at);
                }
                if said == Said::Willing {
                    self.go_on(at, to);
                }
            }
        }
    }

    fn fault_begins(&mut self, at: Micros, number: usize) {
        let fault = &self.plan.faults[number];
        self.trace.record(at, Event::FaultBegan(fault.id));
        match &fault.what {
            Fault::Crash { node } | Fault::WipedDisk { node } => self.crash(at, NodeId(*node)),
            Fault::PowerLoss { nodes } => {
                for node in nodes {
                    self.crash(at, NodeId(*node));
                }
            }
            Fault::Pause { node } => {
                if let Some(paused) = self.nodes.get_mut(&NodeId(*node)).filter(|node| node.up) {
                    paused.paused_until = paused.paused_until.max(fault.ends());
                    self.trace.record(at, Event::NodePaused { node: NodeId(*node) });
                }
            }
            _ => {}
        }
    }

    fn fault_ends(&mut self, at: Micros, number: usize) {
        let fault = &self.plan.faults[number];
        self.trace.record(at, Event::FaultEnded(fault.id));
        let restarts = match &fault.what {
            Fault::Crash { node } | Fault::WipedDisk { node } => vec![*node],
            Fault::PowerLoss { nodes } => nodes.clone(),
            // It may be stopped twice; it goes on after the longer one.
            Fault::Pause { node }
                if self.nodes.get(&NodeId(*node)).is_some_and(|is| is.up && is.paused_until <= at) =>
            {
                return self.trace.record(at, Event::NodeResumed { node: NodeId(*node) });
            }
            _ => return,
        };
        for node in restarts.into_iter().map(NodeId) {
            if self.nodes.get(&node).is_some_and(|node| !node.up) {
                self.start(at, node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::many::{Many, many};
    use crate::tool::mutants::hunt;

    #[test]
    fn one_node_executes_at_a_time_and_every_situation_is_reached() {
        let without = Vec::new();
        let seeds =
            Many { base: 1, count: 150, without, mutant: None, threads: 2, violations_max: 3, all_twice: false };
        let summary = many(&LendingLayer, &seeds, |_, _| ());
        assert!(summary.violations.is_empty(), "{summary}");
        assert_eq!((summary.seeds, summary.unequal.len()), (150, 0), "{summary}");
        assert_eq!(summary.not_reached, Vec::<String>::new());
    }

    #[test]
    fn every_planted_defect_is_caught() {
        for hunt in hunt(&LendingLayer, &LendingLayer.mutants(), &[], 1, 2, |_| ()) {
            let (_, violation) = hunt.caught.as_ref().unwrap_or_else(|| panic!("{hunt}"));
            assert_eq!(violation.invariant, "I18 one_node_runs_what_is_due", "{hunt}");
        }
    }
}
