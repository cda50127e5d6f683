//! What happened in a run, in true time: the events that the invariants judge, the timeline draws and the trace hash
//! covers. Nodes read their own drifting clocks; here every time is the world's, converted by the layer that reports it.
//!
//! A layer calls [`Trace::record`] for what means something to an invariant and [`Trace::note`] for everything else that
//! must be equal in two runs of one seed (each input that a core is given, above all). Both go into the hash.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use proto::cluster::lease::Seq;
use proto::cluster::registry::{DefinitionKey, Version};
use proto::crawl::politeness::Micros;
use proto::id::{BatchId, NodeId, Round, Slot, UrlId};
use proto::record::Progress;
use xxhash_rust::xxh3::Xxh3;

use crate::invariants::{Invariants, Violation};

use super::plan::Plan;
use super::sites::{SiteEpoch, SiteFacts};

/// A host of the synthetic web, by its number there.
pub type Host = u32;

/// What happened. Times inside are true times, like the one it is recorded at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The faults begin, or end.
    PhaseChanged(Phase),
    /// A fault of the plan, by its id, began. Recorded for the timeline; what it does to a node is an event of its own.
    FaultBegan(u32),
    /// It ended.
    FaultEnded(u32),

    /// A node begins a life. Its records follow as [`Event::RecordRecovered`], before anything else of it.
    NodeStarted {
        /// Which.
        node: NodeId,
        /// Counts its lives from 0.
        boot: u32,
    },
    /// One record that a starting node found on its disk.
    RecordRecovered {
        /// Which.
        node: NodeId,
        /// The URL.
        url: UrlId,
        /// As it was found.
        progress: Progress,
    },
    /// The node has read its disk and goes to work.
    NodeRecovered {
        /// Which.
        node: NodeId,
    },
    /// The process ended at once: memory is gone, connections are closed, what was not fsynced may be.
    NodeCrashed {
        /// Which.
        node: NodeId,
    },
    /// An actor of the node panics and is replaced: what it had in memory is gone, and the rest of the process goes on.
    ActorDied {
        /// Where.
        node: NodeId,
    },
    /// Somebody sets the wall clock of the node.
    WallClockSet {
        /// Whose.
        node: NodeId,
    },
    /// The process gets no time, its connections stay open.
    NodePaused {
        /// Which.
        node: NodeId,
    },
    /// It goes on.
    NodeResumed {
        /// Which.
        node: NodeId,
    },
    /// A node that was not in the cluster's first configuration is told to join.
    NodeJoins {
        /// Which.
        node: NodeId,
    },
    /// An operator tells a node to leave.
    NodeLeaves {
        /// Which.
        node: NodeId,
    },
    /// Everything on its disk is gone.
    DiskWiped {
        /// Whose.
        node: NodeId,
    },
    /// A bit flipped in something durable: a record became unreadable.
    RecordDamaged {
        /// Where.
        node: NodeId,
        /// The URL.
        url: UrlId,
    },

    /// A request goes out to a host.
    FetchStarted(FetchStart),
    /// Its connection is closed.
    FetchEnded {
        /// Names the start.
        fetch: u64,
        /// Who fetched.
        node: NodeId,
        /// How it ended.
        end: FetchEnd,
    },

    /// What a request for robots.txt brought: it has ended. A redirect counts as the file it leads to.
    RobotsHeard {
        /// Names the start.
        fetch: u64,
        /// Everything is forbidden: by the file, or because it could not be had.
        forbids_all: bool,
    },

    /// A node believes that it holds a slot; recorded when it is acquired and at every renewal.
    LeaseHeld {
        /// The holder.
        node: NodeId,
        /// What it holds.
        slot: Slot,
        /// Until when, converted from the holder's clock.
        until: Micros,
        /// Whether it did not believe so before.
        acquired: bool,
    },
    /// A node no longer believes that it holds a slot, before its end came or at it.
    LeaseLost {
        /// The holder until now.
        node: NodeId,
        /// What it held.
        slot: Slot,
    },
    /// A node serves a slot without having heard from W or more who may have something of it.
    ServedUnsure {
        /// The holder.
        node: NodeId,
        /// What it serves.
        slot: Slot,
    },
    /// A voter promised a slot to a holder.
    PromiseMade {
        /// Who promised.
        voter: NodeId,
        /// What.
        slot: Slot,
        /// To whom.
        holder: NodeId,
        /// At which of its requests.
        seq: Seq,
        /// Until when, converted from the voter's clock.
        until: Micros,
    },
    /// A voter dropped a promise because its holder released it. A crash of the voter drops none: the holder counts on it.
    PromiseDropped {
        /// Who had promised.
        voter: NodeId,
        /// What.
        slot: Slot,
        /// To whom.
        holder: NodeId,
        /// By which of its releases, counted with its requests.
        seq: Seq,
    },

    /// A client hands in a URL for the first time. It asks again until the write is acknowledged.
    UrlSubmitted {
        /// The slot of the URL.
        slot: Slot,
        /// The URL.
        url: UrlId,
    },
    /// A page was fetched, and these are the links that a crawler with its settings keeps. When the page is PROCESSED and
    /// the cluster at rest, all of them must be known: the world's knowledge, recorded with the end of the fetch.
    LinksFound {
        /// The page.
        page: UrlId,
        /// What it links to.
        links: Vec<UrlId>,
    },
    /// A client, or the node that discovered them, was told that these URLs are kept.
    WriteAcknowledged {
        /// Who said so.
        node: NodeId,
        /// The slot of all of them.
        slot: Slot,
        /// Which.
        urls: Vec<UrlId>,
    },
    /// A record was fsynced on a node.
    RecordDurable {
        /// Where.
        node: NodeId,
        /// The slot of the URL.
        slot: Slot,
        /// The URL.
        url: UrlId,
        /// As it is on the disk now.
        progress: Progress,
        /// PROCESSED, or failed for good: nothing more happens to it in this round.
        settled: bool,
    },
    /// A node removed everything it had of a slot, because it is no longer among the slot's owners.
    SlotDropped {
        /// Where.
        node: NodeId,
        /// Which.
        slot: Slot,
    },

    /// The ring that a node works with changed.
    RingChanged {
        /// Whose.
        node: NodeId,
        /// The members and their weights.
        members: BTreeMap<NodeId, usize>,
        /// The owner of every slot, in order.
        owners: Arc<[NodeId]>,
    },

    /// A node learned that another one (or itself) lives in this life, by gossip or by a message.
    IncarnationKnown {
        /// Who knows.
        node: NodeId,
        /// Of whom.
        of: NodeId,
        /// Which life, by the number that it announces.
        boot: u32,
    },
    /// A message changed the state of a node.
    MessageApplied {
        /// Who applied it.
        node: NodeId,
        /// Whose life it speaks for: the sender of a request, the asker to whom an answer is addressed.
        origin: NodeId,
        /// Which life that was: by the number that it announces, or counted from 0 if it is one of the node itself.
        origin_boot: u32,
        /// What it was.
        what: &'static str,
    },
    /// A message was refused or ignored.
    MessageIgnored {
        /// Who did not apply it.
        node: NodeId,
        /// Who had sent it.
        from: NodeId,
        /// Why.
        why: &'static str,
    },

    /// A batch goes out to a node, perhaps to the sender itself.
    BatchSent {
        /// Names it.
        batch: BatchId,
        /// Who sends it.
        from: NodeId,
        /// Who is to fetch.
        to: NodeId,
        /// What is in it.
        urls: Vec<UrlId>,
        /// What the sender knew of the loads when it chose.
        known: LoadsKnown,
    },
    /// A node above its high-water mark refused a batch.
    BatchRefused {
        /// Names it.
        batch: BatchId,
        /// Who refused.
        by: NodeId,
    },
    /// The sender gave a batch up: its deadline passed, or the node that had it is dead.
    BatchLost {
        /// Names it.
        batch: BatchId,
        /// Who gave it up.
        node: NodeId,
        /// What was in it and has no outcome.
        urls: Vec<UrlId>,
    },
    /// URLs of a lost batch are NEW again.
    BatchPutBack {
        /// Names the lost batch.
        batch: BatchId,
        /// Who put them back.
        node: NodeId,
        /// Which.
        urls: Vec<UrlId>,
    },

    /// How long a bounded queue is. Recorded when it reached a new maximum, at least.
    QueueMeasured {
        /// Whose.
        node: NodeId,
        /// Which.
        queue: &'static str,
        /// How long.
        length: u64,
        /// How long it may be.
        bound: u64,
    },

    /// Somebody defines something for the first time, and asks again until there is an answer.
    DefinitionAsked {
        /// Who.
        number: usize,
    },
    /// The answer came: it is kept.
    DefinitionAnswered {
        /// Who.
        number: usize,
    },
    /// A definition was fsynced on a node.
    DefinitionDurable {
        /// Where.
        node: NodeId,
        /// Which.
        key: DefinitionKey,
        /// Its version.
        version: Version,
    },
    /// A node decided that enough others have a definition.
    DefinitionAcknowledged {
        /// Who.
        node: NodeId,
        /// Which.
        key: DefinitionKey,
        /// Its version.
        version: Version,
    },

    /// A URL that is known is one of a site.
    UrlOfSite {
        /// The URL.
        url: UrlId,
        /// Of which.
        of: SiteEpoch,
    },
    /// What a site is was fsynced on a node.
    SiteDurable {
        /// Where.
        node: NodeId,
        /// Its version.
        version: Version,
        /// What it says.
        says: SiteFacts,
    },
    /// Somebody was told that a site is emptied or deleted: whatever is of a smaller epoch of it is over.
    SiteRevoked {
        /// Who said so.
        node: NodeId,
        /// The first epoch that may live.
        of: SiteEpoch,
    },
    /// When nothing seems to be missing, somebody asks what all crawls have come to.
    CrawlsCounted {
        /// What the nodes tell together, each of the slots that it holds: URLs known, pages, and failures.
        told: Vec<(String, [u64; 3])>,
        /// What counting every record gives.
        recount: Vec<(String, [u64; 3])>,
    },

    /// The content of a page was fsynced on a node.
    PageDurable {
        /// Where.
        node: NodeId,
        /// The page.
        url: UrlId,
        /// Its round.
        round: Round,
    },
    /// A page counts as crawled.
    PageAcknowledged {
        /// Who fetched it.
        node: NodeId,
        /// The page.
        url: UrlId,
        /// Its round.
        round: Round,
    },

    /// A claim of a job is on enough disks.
    JobClaimed {
        /// Whose.
        node: NodeId,
        /// Of which job.
        job: String,
        /// Its number.
        number: u32,
    },
    /// It is on enough disks that a generator is to run, or somebody was told so.
    RunWanted {
        /// Whose.
        job: String,
        /// Which run.
        run: String,
    },
    /// A script begins.
    ScriptStarted {
        /// Where.
        node: NodeId,
        /// Whose.
        job: String,
        /// Which run.
        run: String,
        /// Names this execution of it.
        execution: u64,
    },
    /// It has ended, or was killed.
    ScriptEnded {
        /// Where.
        node: NodeId,
        /// Which execution.
        execution: u64,
    },
    /// It is on enough disks what a run has printed.
    RunPrinted {
        /// Whose.
        job: String,
        /// Which run.
        run: String,
        /// By which execution.
        execution: u64,
        /// The URLs.
        tasks: Vec<UrlId>,
    },
    /// The nodes keep a page graph.
    GraphKept {
        /// Its pages.
        pages: u64,
    },
    /// A node has computed the scores of its pages, together with others.
    Ranked {
        /// Which.
        node: NodeId,
        /// Which ranking.
        ranking: u64,
        /// Pages of all members.
        pages: u64,
        /// How far its scores are from those of one node alone, together, in billionths.
        apart: u64,
    },
    /// What an execution printed is taken in as tasks.
    TasksTakenIn {
        /// Where.
        node: NodeId,
        /// Whose.
        job: String,
        /// Which run.
        run: String,
        /// By which execution.
        execution: u64,
    },
    /// A disk has it that a run is over. Who wrote it need not know whether others do.
    RunOver {
        /// Whose.
        job: String,
        /// Which run.
        run: String,
    },
    /// It is on enough disks that a run is over, and somebody knows.
    RunDone {
        /// Whose.
        job: String,
        /// Which run.
        run: String,
    },

    /// A client is told that URLs of a queue are its own for some time.
    ClientServed {
        /// By whom.
        node: NodeId,
        /// The URLs.
        urls: Vec<u64>,
        /// When that was decided.
        decided_at: Micros,
        /// For how long from then on.
        lease: Micros,
        /// The least time between two answers from the queue.
        delay: Micros,
    },
    /// So many of the pages that a spider is told of are of one domain.
    DomainServed {
        /// By whom.
        node: NodeId,
        /// Which domain.
        domain: usize,
        /// How many.
        pages: u32,
        /// When that was decided.
        decided_at: Micros,
        /// One over the rate of the domain.
        spacing: Micros,
        /// Pages that it may give at once, if it was left alone.
        at_once: u64,
    },
    /// A spider is told that a page is kept, which is to be crawled.
    PageFound {
        /// By whom.
        node: NodeId,
        /// The page.
        url: u64,
    },
    /// A client says what became of a URL: from now on its lease may be over.
    ClientPuts {
        /// The URL.
        url: u64,
    },
    /// A client is told that what it said of a URL is kept.
    ClientAcknowledged {
        /// By whom.
        node: NodeId,
        /// The URL.
        url: u64,
        /// When the client said it.
        said_at: Micros,
        /// It is never to be handed out again.
        completed: bool,
    },
    /// A client is told that a queue is blocked.
    QueueBlocked {
        /// By whom.
        node: NodeId,
        /// Until when.
        until: Micros,
    },
    /// What a node's disk has of a queue: its URLs, and whether they are completed.
    QueueKept {
        /// Whose disk.
        node: NodeId,
        /// The URLs.
        urls: BTreeMap<u64, bool>,
    },

    /// An interesting situation was reached. What no seed reaches is not tested, so a run of many seeds fails without it.
    Sometimes(&'static str),
}

/// A request to a host, as the world sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FetchStart {
    /// Names the fetch; unique in the run.
    pub fetch: u64,
    /// Who asks.
    pub node: NodeId,
    /// Whom.
    pub host: Host,
    /// The slot of the host's domain.
    pub slot: Slot,
    /// What.
    pub url: UrlId,
    /// What for.
    pub kind: FetchKind,
    /// The site whose URL it is, if it is one's.
    pub site: Option<SiteEpoch>,
    /// Which crawl of the URL.
    pub round: u32,
    /// When the fetch is aborted at latest.
    pub deadline: Micros,
    /// How long after the last start to this host this one may come. The world's knowledge, not the node's.
    pub crawl_delay: Micros,
    /// How much of that is kept by who has not read the host's robots.txt.
    pub least_delay: Micros,
    /// Whether that is what it asks for.
    pub own_robots: bool,
    /// Whether the robots.txt that the host usually has allows it. The world's knowledge too.
    pub allowed: bool,
}

/// What is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchKind {
    /// The host's rules.
    Robots,
    /// A page.
    Page,
}

/// How a fetch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchEnd {
    /// A useful answer came.
    Answered,
    /// An error came, or nothing in time.
    Failed,
    /// The node closed the connection at its deadline or at the end of its lease.
    Aborted,
    /// The node died.
    Died,
}

/// What the sender of a batch knew of the loads of the nodes, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LoadsKnown {
    /// Below it a node is idle.
    pub low_water: u32,
    /// Above it a node is overloaded.
    pub high_water: u32,
    /// The loads it believed in and could choose from, itself included.
    pub loads: Vec<(NodeId, u32)>,
}

/// What the world does to the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Faults happen.
    Faults,
    /// None does any more; the cluster must come to rest.
    Calm,
}

/// How much of a run is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The hash alone.
    Nothing,
    /// The events, for a timeline.
    Events,
    /// Events and notes, for a log.
    Everything,
}

/// One line of what was kept.
#[derive(Clone, Debug)]
pub enum Entry {
    /// An event.
    Event(Event),
    /// A note: which node, and what.
    Note(NodeId, String),
}

/// The record of a run.
pub struct Trace {
    hasher: Xxh3,
    invariants: Invariants,
    keep: Keep,
    kept: Vec<(Micros, Entry)>,
    sometimes: BTreeMap<&'static str, u64>,
    events: u64,
    notes: u64,
    fetches: u64,
    now: Micros,
}

impl Trace {
    /// An empty record of a run of `plan`.
    pub fn new(plan: &Plan, keep: Keep) -> Trace {
        Trace {
            hasher: Xxh3::with_seed(plan.seed),
            invariants: Invariants::new(plan),
            keep,
            kept: Vec::new(),
            sometimes: BTreeMap::new(),
            events: 0,
            notes: 0,
            fetches: 0,
            now: 0,
        }
    }

    /// Records `event` at true time `at`, and has every invariant look at it.
    pub fn record(&mut self, at: Micros, event: Event) {
        self.now = self.now.max(at);
        self.events += 1;
        self.hasher.write_u64(at);
        event.hash(&mut self.hasher);
        match &event {
            Event::Sometimes(name) => *self.sometimes.entry(name).or_default() += 1,
            Event::FetchStarted(_) => self.fetches += 1,
            _ => {}
        }
        self.invariants.see(at, &event);
        if self.keep != Keep::Nothing {
            self.kept.push((at, Entry::Event(event)));
        }
    }

    /// Records an event if there is one.
    pub fn record_some(&mut self, at: Micros, event: Option<Event>) {
        if let Some(event) = event {
            self.record(at, event);
        }
    }

    /// Records that an interesting situation was reached.
    pub fn sometimes(&mut self, at: Micros, name: &'static str) {
        self.record(at, Event::Sometimes(name));
    }

    /// Records anything else that two runs of a seed must have in common: `what` goes into the hash, `describe` into the
    /// log if there is one.
    pub fn note<T: Hash + ?Sized>(&mut self, at: Micros, node: NodeId, what: &T, describe: impl FnOnce() -> String) {
        self.now = self.now.max(at);
        self.notes += 1;
        self.hasher.write_u64(at);
        self.hasher.write_u64(node.0);
        what.hash(&mut self.hasher);
        if self.keep == Keep::Everything {
            self.kept.push((at, Entry::Note(node, describe())));
        }
    }

    /// The hash of everything recorded so far: equal in every run of one plan.
    pub fn hash(&self) -> u64 {
        self.hasher.digest()
    }

    /// What the invariants found first; the run ends there.
    pub fn violation(&self) -> Option<&Violation> {
        self.invariants.violation()
    }

    /// The invariants, which also know what is still missing for convergence.
    pub fn invariants(&mut self) -> &mut Invariants {
        &mut self.invariants
    }

    /// How often each interesting situation was reached.
    pub fn sometimes_reached(&self) -> &BTreeMap<&'static str, u64> {
        &self.sometimes
    }

    /// Events recorded.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Notes recorded.
    pub fn notes(&self) -> u64 {
        self.notes
    }

    /// The latest time of a record.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Requests to hosts.
    pub fn fetches(&self) -> u64 {
        self.fetches
    }

    /// What was kept, in order.
    pub fn take_kept(&mut self) -> Vec<(Micros, Entry)> {
        std::mem::take(&mut self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(events: &[(Micros, Event)]) -> u64 {
        let mut trace = Trace::new(&Plan::from_seed(1), Keep::Nothing);
        events.iter().for_each(|(at, event)| trace.record(*at, event.clone()));
        trace.hash()
    }

    #[test]
    fn the_hash_covers_what_when_and_in_which_order() {
        let (one, other) = (Event::Sometimes("one"), Event::NodeCrashed { node: NodeId(1) });
        let first = hash_of(&[(1, one.clone()), (2, other.clone())]);
        assert_eq!(first, hash_of(&[(1, one.clone()), (2, other.clone())]));
        assert_ne!(first, hash_of(&[(1, one.clone()), (3, other.clone())]));
        assert_ne!(first, hash_of(&[(1, other), (2, one)]));
    }

    #[test]
    fn notes_count_for_the_hash_and_are_kept_only_for_a_log() {
        let plan = Plan::from_seed(1);
        let run = |keep, what: u64| {
            let mut trace = Trace::new(&plan, keep);
            trace.sometimes(1, "here");
            trace.note(2, NodeId(0), &what, || format!("note {what}"));
            (trace.hash(), trace.take_kept().len())
        };
        assert_eq!(run(Keep::Nothing, 1), (run(Keep::Everything, 1).0, 0));
        assert_ne!(run(Keep::Nothing, 1).0, run(Keep::Nothing, 2).0);
        assert_eq!((run(Keep::Events, 1).1, run(Keep::Everything, 1).1), (1, 2));
    }
}
