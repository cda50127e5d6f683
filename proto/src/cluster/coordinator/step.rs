//! What goes into a step of the coordinator and what comes out, and the rules it goes by.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::RngExt;

use super::super::copy::RecordCopy;
use super::super::lease::{LeaseRules, Seq};
use super::super::membership::{MembershipRules, View};
use super::super::message::{Errand, Letter, Stage};
use super::super::mutant::Planted;
use super::super::propagate::{PropagateRules, RunId};
use super::super::registry::{Definition, DefinitionKey, NotDefined, RegistryRules, Version};
use super::super::repair::{Changed, RepairRules};
use super::super::replicate::WriteRules;
use super::super::route::{Load, RouteRules};
use super::super::slot_set::SlotSet;
use super::super::transfer::TransferRules;
use crate::batch::{Discovered, Pick};
use crate::crawl::frontier;
use crate::crawl::outcome::Ending;
use crate::crawl::politeness::{Micros, SECOND};
use crate::crawl::retry::HostVerdict;
use crate::id::{BatchId, NodeId, Round, SLOTS, Slot, UrlId};
use crate::key::UrlKey;

/// Who a node is and what it goes by.
#[derive(Clone, Debug)]
pub struct ClusterRules {
    /// Names the cluster: messages of another one are refused.
    pub cluster: u64,
    /// Which node this is.
    pub me: NodeId,
    /// Which life of it ([`next_bump`](super::super::membership::next_bump)).
    pub boot: u32,
    /// Its share of the ring.
    pub weight: u16,
    /// The nodes it knows from its configuration, with their weights.
    pub peers: Vec<(NodeId, u16)>,
    /// Who grants leases: a fixed list, the same on every node.
    pub voters: Vec<NodeId>,
    /// The slots that are in use: all of them, except in a small simulated world.
    pub slots: SlotSet,
    /// T_f: longest whole fetch.
    pub fetch_timeout: Micros,
    /// Times of leases.
    pub lease: LeaseRules,
    /// Times of membership.
    pub membership: MembershipRules,
    /// Numbers and times of replication.
    pub writes: WriteRules,
    /// Times and bounds of repair.
    pub repair: RepairRules,
    /// Times and bounds of transfers of slots.
    pub transfer: TransferRules,
    /// Marks of routing.
    pub route: RouteRules,
    /// Times and bounds of what is under way.
    pub propagate: PropagateRules,
    /// Times and bounds of definitions.
    pub registry: RegistryRules,
    /// Writes to our disk that are not fsynced; more are ignored, and repeated by who sent them.
    pub stores_max: usize,
    /// A defect to be found.
    pub planted: Planted,
}

impl ClusterRules {
    /// The rules of node `me` of a cluster, with every number at its default.
    pub fn new(cluster: u64, me: NodeId, boot: u32, peers: Vec<(NodeId, u16)>, voters: Vec<NodeId>) -> ClusterRules {
        ClusterRules {
            cluster,
            me,
            boot,
            weight: 1,
            peers,
            voters,
            slots: (0..SLOTS).map(Slot).collect(),
            fetch_timeout: 30 * SECOND,
            lease: LeaseRules::default(),
            membership: MembershipRules::default(),
            writes: WriteRules::default(),
            repair: RepairRules::default(),
            transfer: TransferRules::default(),
            route: RouteRules::default(),
            propagate: PropagateRules::default(),
            registry: RegistryRules::default(),
            stores_max: 8_192,
            planted: Planted::default(),
        }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// Time passed.
    Tick,
    /// A peer says something.
    Received(Letter),
    /// What [`Effect::Store`] asked for is fsynced.
    Stored {
        /// Which.
        op: u64,
        /// What it changed: records that were merged into something else than they were.
        changed: Vec<Changed>,
    },
    /// What [`Effect::Store`] asked for failed: nothing of it is durable.
    StoreFailed {
        /// Which.
        op: u64,
    },
    /// The answer to [`Effect::Read`].
    Read {
        /// Which.
        read: u64,
        /// The records.
        copies: Vec<RecordCopy>,
        /// Where to go on, if there are more.
        next: Option<UrlKey>,
    },
    /// What [`Effect::DropSlot`] asked for is done, durably.
    Dropped {
        /// Which.
        slot: Slot,
    },
    /// What [`Effect::DropSlot`] asked for failed: everything is still there, and will be offered again.
    DropFailed {
        /// Which.
        slot: Slot,
    },
    /// The frontier hands these out. Each comes with its record as SELECTED_TO_CRAWL.
    Picked {
        /// The time at which the frontier decided: the lease was looked at then.
        at: Micros,
        /// What to fetch.
        picks: Vec<(Pick, RecordCopy)>,
    },
    /// The frontier gave a flight up.
    Lost {
        /// Which.
        pick: Box<Pick>,
    },
    /// No request to a host of this slot is under way any more (the frontier's `Idle`).
    Idle {
        /// Which.
        slot: Slot,
    },
    /// The answer to [`Effect::Settle`], and what the frontier refused without a fetch.
    Settlement {
        /// Which flight.
        flight: u64,
        /// How far it has come.
        stage: Stage,
        /// The record as it is now; `None` if there is nothing to write.
        copy: Option<RecordCopy>,
        /// It counts as a page.
        page: bool,
    },
    /// The answer to [`Effect::Admit`]: the records that are new, or not yet known to be on W disks.
    Admitted {
        /// Which.
        admit: u64,
        /// The records.
        copies: Vec<RecordCopy>,
    },
    /// A client hands URLs in, or this node discovered some without a fetch.
    Submitted {
        /// Whom to tell.
        ticket: u64,
        /// Their crawl.
        crawl: String,
        /// The URLs.
        urls: Vec<Discovered>,
    },
    /// A client changed records.
    Amended {
        /// Whom to tell.
        ticket: u64,
        /// The records, as they are from now on.
        copies: Vec<RecordCopy>,
    },
    /// A client no longer waits.
    Abandoned {
        /// Which.
        ticket: u64,
    },
    /// The request of a fetch that [`Effect::Fetch`] asked for is over; what came of it is told by [`Input::Fetched`], when it is stored.
    Asked {
        /// Which.
        run: RunId,
        /// What it means for the host.
        host: HostVerdict,
        /// What the server asked us to wait.
        retry_after_ms: Option<u64>,
    },
    /// A fetch that [`Effect::Fetch`] asked for ended, its content is stored, and these are its links.
    Fetched {
        /// Which.
        run: RunId,
        /// How it ended.
        ending: Ending,
        /// What it links to.
        links: Vec<Discovered>,
    },
    /// Our load, measured anew.
    Measured(Load),
    /// The oldest version that anybody speaks to whom there is a way.
    Spoken(u16),
    /// An operator tells this node to leave.
    Leave,
    /// An operator says that another node is gone for ever.
    Forget {
        /// Which.
        node: NodeId,
    },
    /// An operator wants slots compared with all their replicas now.
    Compare {
        /// Which.
        slots: Vec<Slot>,
    },
    /// A client defines something, changes or removes it.
    Define {
        /// Whom to tell.
        ticket: u64,
        /// What.
        key: DefinitionKey,
        /// The version that the client saw; `None` if there was none.
        expects: Option<Version>,
        /// What it says from now on; `None` removes it.
        body: Option<Vec<u8>>,
    },
    /// What [`Effect::StoreDefinitions`] asked for is fsynced.
    DefinitionsStored {
        /// Which.
        op: u64,
    },
    /// What [`Effect::StoreDefinitions`] asked for failed: nothing of it is durable.
    DefinitionsFailed {
        /// Which.
        op: u64,
    },
    /// What jobs need: of the slots that they lie in, if we serve them, nothing that was acknowledged may be missing here; and scripts run in some of them.
    Jobs {
        /// Where jobs lie.
        slots: SlotSet,
        /// Where scripts run here.
        busy: SlotSet,
    },
    /// Records of clients were changed on our disk, which is fsynced.
    Changed {
        /// Which.
        changed: Vec<Changed>,
    },
    /// Records of clients that are on our disk are to be kept on enough others; answered by [`Effect::Acknowledge`] or [`Effect::Refuse`].
    Keep {
        /// Whom to tell.
        ticket: u64,
        /// The records.
        copies: Vec<RecordCopy>,
    },
}

/// For how long a slot is surely ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    /// Another one when the slot was lost and came back.
    pub number: u64,
    /// When it ends unless the lease is renewed.
    pub until: Micros,
}

/// What to do.
#[derive(Debug)]
pub enum Effect {
    /// Send a letter; it may be lost.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        letter: Letter,
    },
    /// Merge records into what is on disk, fsync, answer [`Input::Stored`]. Answers come in the order of the questions.
    Store {
        /// Names it.
        op: u64,
        /// The records.
        copies: Vec<RecordCopy>,
    },
    /// Read records of a slot, answer [`Input::Read`].
    Read {
        /// Names it.
        read: u64,
        /// The slot.
        slot: Slot,
        /// Only those of these ranges (first byte of the URL's id); all if `None`.
        ranges: Option<Vec<u8>>,
        /// Those behind this one.
        after: Option<UrlKey>,
        /// How many at most.
        limit: usize,
    },
    /// Remove everything of a slot, answer [`Input::Dropped`] or [`Input::DropFailed`].
    DropSlot {
        /// Which.
        slot: Slot,
    },
    /// Look which of these URLs are new, answer [`Input::Admitted`] with their records as NEW.
    Admit {
        /// Names it.
        admit: u64,
        /// Their crawl.
        crawl: String,
        /// The page that names them.
        parent: Option<UrlId>,
        /// The URLs.
        urls: Vec<Discovered>,
    },
    /// Fetch this, and leave its host alone from `until` on, whatever happens; answer [`Input::Asked`] and [`Input::Fetched`].
    Fetch {
        /// Names it.
        run: RunId,
        /// The crawl.
        crawl: String,
        /// What.
        errand: Errand,
        /// When it must be over, on our clock.
        until: Micros,
    },
    /// Work out what becomes of the record, answer [`Input::Settlement`].
    Settle {
        /// What was handed out.
        pick: Box<Pick>,
        /// How it ended.
        ending: Ending,
        /// How far it has come.
        stage: Stage,
    },
    /// Tell the frontier.
    Frontier(frontier::Input),
    /// Tell the client that its URLs are kept.
    Acknowledge {
        /// Which.
        ticket: u64,
    },
    /// Tell the client to come again later.
    Refuse {
        /// Which.
        ticket: u64,
    },
    /// A later life of this node is known to others: start again with a larger number.
    Outdated {
        /// The later life.
        boot: u32,
    },
    /// Nothing is left here after a leave.
    Left,
    /// Something was decided that metrics, logs and the simulator's judges want to know.
    Saw(Sight),
    /// Merge definitions into what is on disk, fsync, answer [`Input::DefinitionsStored`] or [`Input::DefinitionsFailed`].
    StoreDefinitions {
        /// Names it.
        op: u64,
        /// The definitions.
        definitions: Vec<Definition>,
    },
    /// These are on our disk and in force from now on.
    Redefined {
        /// Which.
        definitions: Vec<Definition>,
    },
    /// Tell the client that its definition is kept.
    Defined {
        /// Which.
        ticket: u64,
        /// The version that it made.
        version: Version,
        /// Who has it so far.
        by: BTreeSet<NodeId>,
    },
    /// Tell the client that its definition is not kept.
    NotDefined {
        /// Which.
        ticket: u64,
        /// Why.
        why: NotDefined,
    },
}

/// What was decided. Times are on our clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// A lease began or became longer.
    LeaseHeld {
        /// Which slot.
        slot: Slot,
        /// Until when.
        until: Micros,
        /// It was not held before.
        acquired: bool,
    },
    /// A lease ended.
    LeaseLost {
        /// Which slot.
        slot: Slot,
    },
    /// A slot is served though W or more who may have something of it were silent: what was acknowledged may be missing here.
    ServedUnsure {
        /// Which slot.
        slot: Slot,
    },
    /// We promised slots, as a voter.
    PromiseMade {
        /// Which.
        slots: SlotSet,
        /// To whom.
        holder: NodeId,
        /// At which of its requests.
        seq: Seq,
        /// Until when.
        until: Micros,
    },
    /// A holder gave promises back.
    PromiseDropped {
        /// Which.
        slots: SlotSet,
        /// Who.
        holder: NodeId,
        /// By which of its releases, counted with its requests.
        seq: Seq,
    },
    /// Discovered URLs are on W disks, and who sent them is told.
    Acknowledged {
        /// Their slot.
        slot: Slot,
        /// Which.
        urls: Vec<UrlId>,
    },
    /// The ring changed.
    RingChanged {
        /// Who has a place on it, and its weight.
        members: View,
        /// The owner of every slot, in order.
        owners: Arc<[NodeId]>,
    },
    /// A life of a node became known.
    IncarnationKnown {
        /// Whose.
        of: NodeId,
        /// Which.
        boot: u32,
    },
    /// A message took effect.
    Applied {
        /// Whose life it speaks for.
        origin: NodeId,
        /// Which life.
        origin_boot: u32,
        /// What it was.
        what: &'static str,
    },
    /// A message was ignored.
    Ignored {
        /// From whom.
        from: NodeId,
        /// Why.
        why: &'static str,
    },
    /// A batch went out.
    BatchSent {
        /// Which.
        batch: BatchId,
        /// To whom.
        to: NodeId,
        /// What is in it.
        urls: Vec<UrlId>,
        /// The loads that were believed.
        known: Vec<(NodeId, Load)>,
    },
    /// We refused a batch.
    BatchRefused {
        /// Which.
        batch: BatchId,
    },
    /// URLs of a batch have no outcome and are put back.
    BatchLost {
        /// Which.
        batch: BatchId,
        /// What.
        urls: Vec<UrlId>,
    },
    /// They are NEW again, on W disks.
    BatchPutBack {
        /// Which.
        batch: BatchId,
        /// What.
        urls: Vec<UrlId>,
    },
    /// A bounded queue is longer than ever.
    QueueMeasured {
        /// Which.
        queue: &'static str,
        /// How long.
        length: usize,
        /// How long it may be.
        bound: usize,
    },
    /// A page is on two disks, and is acknowledged.
    PageKept {
        /// Of which URL.
        url: UrlId,
        /// In which round.
        round: Round,
    },
    /// An interesting situation.
    Sometimes(&'static str),
    /// Enough nodes have a definition.
    DefinitionKept {
        /// Which.
        key: DefinitionKey,
        /// Its version.
        version: Version,
    },
}

/// A number for what must not repeat between lives, from the generator that the coordinator is given.
pub(super) fn first_number(rng: &mut impl RngExt) -> u64 {
    u64::from(rng.random::<u32>() >> 8)
}
