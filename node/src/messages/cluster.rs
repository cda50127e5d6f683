//! Between the coordinator and its neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, MessageResponse};
use proto::batch::Discovered;
use proto::cluster::coordinator;
use proto::cluster::copy::RecordCopy;
use proto::cluster::message::Letter;
use proto::cluster::repair::Changed;
use proto::cluster::ring::Ring;
use proto::cluster::slot_set::SlotSet;
use proto::crawl::frontier;
use proto::id::{NodeId, Slot};

use crate::edges::disk::Kept;

/// A letter of a peer. Network to coordinator.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Received(pub Letter);

impl fmt::Debug for Received {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Received {{ from: {}, message: {:?} }}", self.0.from.0, self.0.message)
    }
}

/// What the coordinator must hear of. Frontier to coordinator.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Heard {
    /// The life it belongs to.
    pub life: u32,
    /// What happened.
    pub inputs: Vec<coordinator::Input>,
}

/// URLs that a robots.txt named. Frontier to coordinator.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NamedUrls {
    /// The life it belongs to.
    pub life: u32,
    /// Their crawl.
    pub crawl: String,
    /// The URLs.
    pub urls: Vec<Discovered>,
}

/// A frontier has started and knows no lease. Frontier to coordinator.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct FrontierUp;

/// A life of the node begins: what was known of leases and flights is void. Coordinator to frontier.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct NewLife(pub u32);

/// What the frontier must hear of. Coordinator to frontier.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Told {
    /// The life it belongs to.
    pub life: u32,
    /// What happened.
    pub inputs: Vec<frontier::Input>,
}

/// The content of a page is on disk. Storage to coordinator, through the copier if pages are kept on two nodes.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct KeptPage(pub Kept);

/// URLs handed in by a client; answered when they are on enough disks. Doors to coordinator.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), NotSubmitted>")]
pub struct SubmitUrls {
    /// Their crawl.
    pub crawl: String,
    /// The URLs.
    pub urls: Vec<Discovered>,
}

/// Records that a client changed; answered when they are on enough disks. Doors to coordinator.
#[derive(Debug, Message)]
#[rtype(result = "Result<(), NotSubmitted>")]
pub struct AmendRecords(pub Vec<RecordCopy>);

/// URLs were not taken; some of them may be known nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSubmitted {
    /// Too many are under way.
    #[error("the node is busy; hand the URLs in again later")]
    Busy,
    /// The node began a new life meanwhile.
    #[error("the node started anew; hand the URLs in again")]
    StartedAnew,
}

/// Records of clients were changed on this node's disk; answered when they are on enough others too, with whether this node still holds
/// the slots of `served`. Doors to coordinator.
#[derive(Debug, Message)]
#[rtype(result = "Result<bool, NotSubmitted>")]
pub struct KeepClients {
    /// The records.
    pub copies: Vec<RecordCopy>,
    /// What changed on this disk; nothing if it is asked for again.
    pub changed: Vec<Changed>,
    /// The life in which it did; 0 if nothing is said of that.
    pub life: u32,
    /// Slots out of which URLs were handed.
    pub served: SlotSet,
    /// Slots of jobs, with the numbers of the tenures in which they must still be held; like `served`.
    pub tenures: BTreeMap<Slot, u64>,
}

/// Tells the coordinator in which slots jobs lie, and in which of them scripts run here; answered with those that are surely ours, the numbers of
/// their tenures, and how long these last unless they are renewed. Sources to coordinator.
#[derive(Debug, Message)]
#[rtype(result = "Option<BTreeMap<Slot, (u64, Duration)>>")]
pub struct HoldJobs {
    /// Where jobs lie.
    pub slots: SlotSet,
    /// Where scripts run.
    pub busy: SlotSet,
}

/// Asks the coordinator where the queues of clients are. Doors to coordinator.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Option<ClientPlaces>")]
pub struct GetClientPlaces;

/// Where the queues of clients are.
#[derive(Clone, Debug)]
pub struct ClientPlaces {
    /// The ring.
    pub ring: Arc<Ring>,
    /// Who is alive.
    pub alive: BTreeSet<NodeId>,
    /// Slots that this node may hand URLs out of.
    pub served: SlotSet,
}

/// Tells the node to leave its cluster.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Leave;

/// Asks the coordinator how it sees the cluster.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "ClusterView")]
pub struct GetClusterView;

/// The cluster as one node sees it.
#[derive(Clone, Debug, Default, MessageResponse)]
pub struct ClusterView {
    /// The number of this life; 0 while it has not begun.
    pub life: u32,
    /// The nodes on the ring, and their weights.
    pub members: BTreeMap<NodeId, usize>,
    /// Those that are alive.
    pub alive: Vec<NodeId>,
    /// How many nodes the cluster has, those included that the ring forgot.
    pub size: usize,
    /// Slots that this node owns on the ring.
    pub owned: usize,
    /// Slots that it holds.
    pub held: SlotSet,
    /// Its load, in thousandths.
    pub load: u32,
    /// Fetches that it executes.
    pub fetching: usize,
    /// It has left, and holds nothing that others lack.
    pub left: bool,
}
