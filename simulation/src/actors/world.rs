//! What the nodes of a run share, and what is known of each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use node::edges::disk::Disk as DiskQueue;
use node::node::Node;
use proto::cluster::coordinator::Sight;
use proto::cluster::mutant::Planted;
use proto::cluster::ring::Rings;
use proto::cluster::slot_set::SlotSet;
use proto::crawl::politeness::Micros;
use proto::id::{NodeId, Slot};
use proto::url::{CanonicalUrl, UrlRules};
use tokio::sync::{Notify, watch};

use super::disk::Groups;
use super::{Happening, LOOK_EVERY};
use crate::layer::{RunOptions, RunReport};
use crate::pure::contents::page_events;
use crate::pure::node::{definition_event, durable_event};
use crate::pure::storage::What;
use crate::world::clock::Clock;
use crate::world::disk::Disk;
use crate::world::network::Network;
use crate::world::origins::Origins;
use crate::world::plan::{Fault, LoadTrouble, Plan, SECOND};
use crate::world::random::{For, Random};
use crate::world::sights::Sights;
use crate::world::trace::{Event, Trace};

/// Neighbours that may stand before a full mailbox, each with a message in its hand.
const SENDERS_MAX: u64 = 8;

/// A process of a node.
#[derive(Clone)]
pub(super) struct Process {
    /// Counts the processes of the node.
    pub(super) number: u32,
    pub(super) node: Arc<Node>,
    /// The way to its disk, for what comes over streams.
    pub(super) disk: DiskQueue,
    /// Its end, for those who wait for something in its name.
    pub(super) end: watch::Sender<bool>,
}

/// A node, through all its processes.
pub(super) struct NodeState {
    pub(super) id: NodeId,
    pub(super) processes: u32,
    /// The numbers of its lives as the others know them.
    pub(super) boots: Vec<u32>,
    pub(super) clock: Clock,
    /// What its wall clock shows beyond what its own clock counts.
    pub(super) wall_ms: Arc<AtomicU64>,
    pub(super) disk: Disk<Groups>,
    /// Requests under way.
    pub(super) fetching: u64,
    pub(super) paused_until: Micros,
    pub(super) left: bool,
    pub(super) leaving: bool,
    pub(super) process: Option<Process>,
    /// The most that ever waited for each actor of this process.
    pub(super) mailboxes: [u64; 8],
    measured: u64,
}

/// The world of a run.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) planted: Planted,
    /// True time, as of the last look at the clock.
    pub(super) now: Micros,
    pub(super) trace: Trace,
    pub(super) network: Network,
    pub(super) origins: Origins,
    pub(super) nodes: BTreeMap<NodeId, NodeState>,
    pub(super) slots: SlotSet,
    pub(super) rings: Rings,
    queue: BTreeMap<(Micros, u64), Happening>,
    queued: u64,
    changed: Arc<Notify>,
    pub(super) fetches: u64,
    pub(super) acknowledged: BTreeSet<usize>,
    sights: Sights,
    pub(super) defined: BTreeSet<usize>,
    pub(super) operated: BTreeSet<usize>,
    pub(super) power_loss_waits: Option<Micros>,
    rested_at: Option<Micros>,
    over: bool,
}

impl World {
    pub(super) fn new(plan: Plan, options: &RunOptions) -> World {
        let origins = Origins::new(&plan);
        let domain = |host| Some(parse(&origins.web().url(host, "/"))?.domain().to_owned());
        let slots = (0..origins.web().host_count()).filter_map(domain).map(|domain| Slot::of_domain(&domain)).collect();
        World {
            planted: crate::pure::planted(options),
            now: 0,
            trace: Trace::new(&plan, options.keep),
            network: Network::new(&plan),
            nodes: BTreeMap::new(),
            slots,
            rings: crate::pure::shared_rings(),
            queue: BTreeMap::new(),
            queued: 0,
            changed: Arc::new(Notify::new()),
            fetches: 0,
            acknowledged: BTreeSet::new(),
            sights: Sights::new(&plan),
            defined: BTreeSet::new(),
            operated: BTreeSet::new(),
            power_loss_waits: None,
            rested_at: None,
            over: false,
            origins,
            plan,
        }
    }

    pub(super) fn add_node(&mut self, id: NodeId) {
        let plan = &self.plan;
        self.nodes.entry(id).or_insert_with(|| NodeState {
            id,
            processes: 0,
            boots: Vec::new(),
            clock: Clock::new(plan, id),
            wall_ms: Arc::default(),
            disk: Disk::new(plan, id),
            fetching: 0,
            paused_until: 0,
            left: false,
            leaving: false,
            process: None,
            mailboxes: [0; 8],
            measured: 0,
        });
    }

    // What happens when.

    pub(super) fn at(&mut self, at: Micros, happening: Happening) {
        if self.next_happening().is_none_or(|next| at < next) {
            self.changed.notify_one();
        }
        self.queued += 1;
        self.queue.insert((at, self.queued), happening);
    }

    pub(super) fn next_happening(&self) -> Option<Micros> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// The next thing whose time has come.
    pub(super) fn due(&mut self) -> Option<Happening> {
        let first = self.queue.first_entry()?;
        (first.key().0 <= self.now && !self.over).then(|| first.remove())
    }

    pub(super) fn look(&mut self) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.measure_mailboxes(node));
        if self.trace.violation().is_some() {
            self.over = true;
            return;
        }
        let calm = self.now >= self.plan.faults_end();
        if calm {
            match self.trace.invariants().missing(self.now) {
                None => {
                    self.rested_at = Some(self.now);
                    self.over = true;
                    return;
                }
                Some(_) if self.now < self.plan.calm_ends() => {}
                Some(_) => {
                    self.over = true;
                    return;
                }
            }
        }
        self.at(self.now + LOOK_EVERY, Happening::Look);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Ends every process.
    pub(super) fn end(&mut self) {
        for node in self.nodes.values_mut() {
            if let Some(process) = node.process.take() {
                process.end.send_replace(true);
                process.node.kill();
            }
        }
    }

    pub(super) fn report(&mut self) -> RunReport {
        let trace = std::mem::replace(&mut self.trace, Trace::new(&self.plan, crate::world::trace::Keep::Nothing));
        RunReport::new(&self.plan, trace, self.rested_at, self.network.messages())
    }

    // The trace.

    pub(super) fn record(&mut self, event: Event) {
        if self.trace.violation().is_none() {
            self.trace.record(self.now, event);
        }
    }

    pub(super) fn sometimes(&mut self, name: &'static str) {
        self.trace.sometimes(self.now, name);
    }

    // Nodes.

    pub(super) fn process(&self, id: NodeId) -> Option<Process> {
        self.nodes.get(&id)?.process.clone()
    }

    pub(super) fn processes(&self) -> Vec<(NodeId, Process)> {
        self.nodes.values().filter_map(|node| Some((node.id, node.process.clone()?))).collect()
    }

    pub(super) fn is_current(&self, id: NodeId, process: u32) -> bool {
        self.nodes.get(&id).and_then(|node| node.process.as_ref()).is_some_and(|is| is.number == process)
    }

    /// Whoever operates on a site has an answer.
    pub(super) fn operation_answered(&mut self, number: usize) {
        if self.operated.insert(number) {
            self.record(Event::DefinitionAnswered { number: crate::world::sites::FIRST_NUMBER + number });
        }
    }

    pub(super) fn takes_clients(&self) -> Vec<NodeId> {
        let takes = |node: &&NodeState| node.process.is_some() && !node.left && !node.leaving;
        self.nodes.values().filter(takes).map(|node| node.id).collect()
    }

    pub(super) fn down_for_now(&self) -> Vec<NodeId> {
        let down = |node: &&NodeState| node.process.is_none() && !node.left && self.plan.comes_back(node.id);
        self.nodes.values().filter(down).map(|node| node.id).collect()
    }

    /// Until when a process of a node gets no time.
    pub(super) fn paused_until(&self, id: NodeId) -> Micros {
        self.nodes.get(&id).map_or(0, |node| node.paused_until)
    }

    pub(super) fn submission(&self, number: usize) -> Option<CanonicalUrl> {
        let submission = self.plan.submissions[number];
        parse(&self.origins.submission_url(submission.host, submission.page))
    }

    /// A life of a node begins: what it held before is no longer held.
    pub(super) fn life_begins(&mut self, id: NodeId, boot: u32) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.boots.push(boot);
        let life = node.boots.len() as u32 - 1;
        let held = self.sights.forget(id);
        let recovered: Vec<Event> = (node.disk.durable().0.copies.values())
            .map(|copy| Event::RecordRecovered { node: id, url: copy.key.id(), progress: copy.progress })
            .collect();
        held.into_iter().for_each(|slot| self.record(Event::LeaseLost { node: id, slot }));
        self.record(Event::NodeStarted { node: id, boot: life });
        recovered.into_iter().for_each(|event| self.record(event));
        self.record(Event::NodeRecovered { node: id });
    }

    /// What a node reports as its load.
    pub(super) fn load(&mut self, id: NodeId) -> Option<u32> {
        let now = self.now;
        let node = self.nodes.get_mut(&id)?;
        node.measured += 1;
        let trouble = self.plan.faults.iter().filter(|fault| fault.lasts_at(now)).find_map(|fault| match fault.what {
            Fault::Load { node, trouble } if node == id.0 => Some(trouble),
            _ => None,
        });
        let mut draw = Random::at(self.plan.seed, For::Load, id.0, now / (10 * SECOND));
        match trouble {
            Some(LoadTrouble::High) => Some(950),
            Some(LoadTrouble::Stale) => None,
            Some(LoadTrouble::Flapping) => Some([0, 1_000][(node.measured % 2) as usize]),
            None => Some((draw.pick(&[50, 200, 600, 700]) + 60 * node.fetching).min(840) as u32),
        }
    }

    // What nodes decide.

    /// A node decided something.
    pub(super) fn saw(&mut self, id: NodeId, sight: Sight) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (mut acknowledged, mut parts) = (None, None);
        match &sight {
            Sight::Sometimes("leave_finished") => parts = node.process.as_ref().map(|process| process.number),
            Sight::Acknowledged { slot, .. } => acknowledged = Some(*slot),
            _ => {}
        }
        for event in self.sights.events(self.now, id, sight, &node.clock, &node.boots) {
            self.record(event);
        }
        if let Some(process) = parts {
            self.at(self.now, Happening::Parts { node: id, process });
        }
        if let Some(slot) = acknowledged {
            self.power_loss_at_acknowledgement(slot);
        }
    }

    /// In some plans the nodes that keep a URL lose power in the instant in which somebody is told that it is kept.
    fn power_loss_at_acknowledgement(&mut self, slot: Slot) {
        let Some(until) = self.power_loss_waits.take() else { return };
        self.sometimes("power_lost_at_acknowledgement");
        let keepers: Vec<NodeId> = (self.trace.invariants().oracle().nodes.iter())
            .filter(|(_, facts)| facts.up && facts.disk.values().any(|at| at.slot == slot))
            .map(|(node, _)| *node)
            .collect();
        let until = until.max(self.now + SECOND);
        for node in keepers {
            self.crash(node);
            self.at(until, Happening::Starts(node));
        }
    }

    // Mailboxes.

    /// Looks how much waits in the mailboxes of a node.
    pub(super) fn measure_mailboxes(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(process) = &node.process else { return };
        let mut longer = Vec::new();
        for (place, (name, desk)) in process.node.desks().iter().enumerate() {
            let (length, capacity) = (desk.waiting(), desk.capacity());
            let Some(longest) = node.mailboxes.get_mut(place) else { continue };
            if capacity > 0 && length > *longest {
                *longest = length;
                longer.push(Event::QueueMeasured { node: id, queue: name, length, bound: capacity + SENDERS_MAX });
            }
        }
        longer.into_iter().for_each(|event| self.record(event));
    }

    /// A node goes for ever: it left, and others have its pages.
    pub(super) fn goes(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.left = true;
            self.crash(id);
        }
    }

    /// The process of a node ends at once; everything in memory is gone, and of what was not fsynced a part.
    pub(super) fn crash(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(process) = node.process.take() else { return };
        process.end.send_replace(true);
        process.node.kill();
        (node.paused_until, node.fetching) = (0, 0);
        self.sights.forget(id);
        let mut kept = Vec::new();
        let report = node.disk.crash(|write| kept.push(write.clone()));
        self.record(Event::NodeCrashed { node: id });
        self.sometimes("node_crashed");
        if report.lost > 0 {
            self.sometimes("unsynced_writes_lost");
        }
        if report.kept > 0 {
            self.sometimes("unsynced_writes_kept");
        }
        kept.iter().flatten().for_each(|what| self.record_durable(id, what));
    }

    /// Tells the trace what is on the disk of a node now.
    pub(super) fn record_durable(&mut self, id: NodeId, what: &What) {
        match what {
            What::Records(_, copies) => copies.iter().for_each(|copy| self.record(durable_event(id, copy))),
            What::Drop(slot) => self.record(Event::SlotDropped { node: id, slot: *slot }),
            What::Definitions(_, definitions) => {
                definitions.iter().for_each(|one| self.record(definition_event(id, one)));
            }
            What::Pages(write) => {
                for event in page_events(id, write) {
                    self.record(event);
                }
            }
            What::Facts(..) | What::Boot(_) | What::Clients(..) => {}
        }
    }
}

pub(super) fn parse(text: &str) -> Option<CanonicalUrl> {
    CanonicalUrl::parse(text, &UrlRules::default()).ok()
}
