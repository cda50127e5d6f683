//! What can go wrong, one variant each. Layers do what the variants say; a layer that has no such part (the pure one has
//! no actors to panic) treats the variant as its comment says.

use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use serde::{Deserialize, Serialize};

use super::MILLISECOND;

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedFault {
    /// Names it in the plan; stays when others are removed.
    pub id: u32,
    /// When it begins.
    pub at_ms: u64,
    /// How long it lasts: for a crash, how long the node is down. 0 for what happens in an instant.
    #[serde(default)]
    pub lasts_ms: u64,
    /// What happens.
    #[serde(flatten)]
    pub what: Fault,
}

impl TimedFault {
    /// When it begins, in true time.
    pub fn begins(&self) -> Micros {
        self.at_ms * MILLISECOND
    }

    /// When it ends, in true time.
    pub fn ends(&self) -> Micros {
        (self.at_ms + self.lasts_ms) * MILLISECOND
    }

    /// Says whether it is under way at true time `at`.
    pub fn lasts_at(&self, at: Micros) -> bool {
        self.begins() <= at && at < self.ends()
    }
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// The nodes of one side and the others do not hear each other.
    Partition {
        /// One side.
        side: Vec<u64>,
        /// Whom it cuts off.
        direction: Direction,
    },
    /// Everything from one node to another is held back until the end.
    Clog {
        /// Sender.
        from: u64,
        /// Receiver.
        to: u64,
    },
    /// What is under way between two nodes is lost, in both directions.
    Reset {
        /// One.
        one: u64,
        /// The other.
        other: u64,
    },

    /// The process ends at once and starts again.
    Crash {
        /// Which.
        node: u64,
    },
    /// Several processes end at once.
    PowerLoss {
        /// Which.
        nodes: Vec<u64>,
    },
    /// The nodes that keep a URL lose power in the instant in which its write is acknowledged. A layer applies it to
    /// the first acknowledgement after its time.
    PowerLossAtAcknowledgement,
    /// The process gets no time; its connections stay open.
    Pause {
        /// Which.
        node: u64,
    },
    /// An actor panics and is replaced. In the pure layer the process crashes and is back at once.
    Panic {
        /// Where.
        node: u64,
        /// Which actor, counted in the layer's own order.
        actor: u32,
    },
    /// An actor takes this long for each message. In the pure layer the whole node does; in the other one the actor handles what
    /// waits at once, and then comes to nothing for as long as that takes.
    SlowActor {
        /// Where.
        node: u64,
        /// Which actor.
        actor: u32,
        /// How long.
        each_ms: u64,
    },

    /// fsync takes forty times as long.
    SlowDisk {
        /// Whose.
        node: u64,
    },
    /// fsync does not return before the end.
    HangingSync {
        /// Whose.
        node: u64,
    },
    /// fsync returns an error: what it was to make durable is not, and a node must not believe it is.
    FailingSync {
        /// Whose.
        node: u64,
    },
    /// Writes are refused.
    FullDisk {
        /// Whose.
        node: u64,
    },
    /// The process crashes, and one record that was durable cannot be read any more. Counts as a lost disk.
    BitFlip {
        /// Whose.
        node: u64,
    },
    /// The process crashes, and comes back under its old name with an empty disk.
    WipedDisk {
        /// Whose.
        node: u64,
    },

    /// Somebody sets the wall clock.
    WallClockStep {
        /// Whose.
        node: u64,
        /// By how much.
        by_ms: i64,
    },

    /// A new node joins.
    Join {
        /// Its number.
        node: u64,
    },
    /// A node is told to leave.
    Leave {
        /// Which.
        node: u64,
    },
    /// A node of another cluster speaks to this one. It is no node of the run: no events of its own are recorded.
    Stranger {
        /// Its number.
        node: u64,
    },

    /// A host behaves badly.
    Host {
        /// Which.
        host: u32,
        /// How.
        trouble: HostTrouble,
    },
    /// A host's robots.txt behaves badly.
    Robots {
        /// Which.
        host: u32,
        /// How.
        trouble: RobotsTrouble,
    },

    /// A node reports wrong loads.
    Load {
        /// Which.
        node: u64,
        /// How.
        trouble: LoadTrouble,
    },
}

/// Whom a partition cuts off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Nobody hears the other side.
    Both,
    /// The named side is not heard.
    Outward,
    /// The named side hears nothing.
    Inward,
}

/// What a host does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostTrouble {
    /// Takes seconds longer.
    Slow,
    /// Never answers.
    Silent,
    /// Refuses connections.
    Down,
    /// 500.
    ServerError,
    /// 503 with Retry-After.
    Unavailable,
    /// 429 with Retry-After.
    TooMany,
    /// Every page redirects to another that redirects back.
    RedirectLoop,
    /// Every page links to more pages of itself.
    Trap,
    /// Every answer is longer than anybody wants.
    Huge,
}

/// What a robots.txt does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RobotsTrouble {
    /// The connection is reset.
    Unreachable,
    /// 500.
    ServerError,
    /// Longer than a crawler must read.
    Huge,
    /// Forbids everything until the end.
    ForbidsAll,
}

/// What a node's load reports do for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadTrouble {
    /// It is overloaded, and says so.
    High,
    /// It repeats what it said before.
    Stale,
    /// It jumps between idle and overloaded.
    Flapping,
}

/// Kinds of faults that can be switched off together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum FaultClass {
    /// Partitions of every direction.
    Partitions,
    /// Links that hold messages back.
    Clogs,
    /// Connections that are reset.
    Resets,
    /// Lost messages.
    Loss,
    /// Messages that arrive twice.
    Duplication,
    /// Messages that take much longer.
    Stragglers,
    /// Crashes of one node, and panics.
    Crashes,
    /// Power lost by several nodes at once.
    Power,
    /// Processes without time, and slow actors.
    Pauses,
    /// Slow, hanging, failing and full disks.
    Disks,
    /// Data that was durable and is lost: wiped disks, flipped bits.
    Wipes,
    /// Clock rates and wall-clock steps.
    Clocks,
    /// Joins, leaves and strangers.
    Membership,
    /// Hosts that behave badly.
    Hosts,
    /// robots.txt that behaves badly.
    Robots,
    /// Wrong loads.
    Loads,
    /// Nodes that do not come back.
    Minority,
}

impl Fault {
    /// The class by which it is switched off.
    pub fn class(&self) -> FaultClass {
        match self {
            Fault::Partition { .. } => FaultClass::Partitions,
            Fault::Clog { .. } => FaultClass::Clogs,
            Fault::Reset { .. } => FaultClass::Resets,
            Fault::Crash { .. } | Fault::Panic { .. } => FaultClass::Crashes,
            Fault::PowerLoss { .. } | Fault::PowerLossAtAcknowledgement => FaultClass::Power,
            Fault::Pause { .. } | Fault::SlowActor { .. } => FaultClass::Pauses,
            Fault::SlowDisk { .. } | Fault::HangingSync { .. } | Fault::FailingSync { .. } | Fault::FullDisk { .. } => {
                FaultClass::Disks
            }
            Fault::BitFlip { .. } | Fault::WipedDisk { .. } => FaultClass::Wipes,
            Fault::WallClockStep { .. } => FaultClass::Clocks,
            Fault::Join { .. } | Fault::Leave { .. } | Fault::Stranger { .. } => FaultClass::Membership,
            Fault::Host { .. } => FaultClass::Hosts,
            Fault::Robots { .. } => FaultClass::Robots,
            Fault::Load { .. } => FaultClass::Loads,
        }
    }

    /// The nodes it names.
    pub fn nodes(&self) -> Vec<u64> {
        match self {
            Fault::Partition { side, .. } => side.clone(),
            Fault::Clog { from, to } => vec![*from, *to],
            Fault::Reset { one, other } => vec![*one, *other],
            Fault::PowerLoss { nodes } => nodes.clone(),
            Fault::Crash { node }
            | Fault::Pause { node }
            | Fault::Panic { node, .. }
            | Fault::SlowActor { node, .. }
            | Fault::SlowDisk { node }
            | Fault::HangingSync { node }
            | Fault::FailingSync { node }
            | Fault::FullDisk { node }
            | Fault::BitFlip { node }
            | Fault::WipedDisk { node }
            | Fault::WallClockStep { node, .. }
            | Fault::Join { node }
            | Fault::Leave { node }
            | Fault::Stranger { node }
            | Fault::Load { node, .. } => vec![*node],
            Fault::PowerLossAtAcknowledgement | Fault::Host { .. } | Fault::Robots { .. } => Vec::new(),
        }
    }

    /// Says whether a message from `from` to `to` is cut off by it.
    pub fn cuts(&self, from: NodeId, to: NodeId) -> bool {
        let Fault::Partition { side, direction } = self else { return false };
        match (side.contains(&from.0), side.contains(&to.0)) {
            (true, false) => *direction != Direction::Inward,
            (false, true) => *direction != Direction::Outward,
            _ => false,
        }
    }
}
