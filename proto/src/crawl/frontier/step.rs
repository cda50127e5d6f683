//! What goes into a step of the frontier and what comes out, and the rules it goes by.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::batch::{Discovered, Entry, Pick};
use crate::crawl::crawls::Crawls;
use crate::crawl::filter::Refusal;
use crate::crawl::politeness::{Lessons, Micros, PaceRules};
use crate::crawl::retry::{Failure, HostVerdict, RetryRules};
use crate::id::Slot;
use crate::key::{Order, QueueKey};
use crate::url::{CanonicalUrl, UrlRules};

/// The two clocks: one that never jumps, for waiting, and one that means something tomorrow, for what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Monotonic microseconds since the node started.
    pub mono: Micros,
    /// Unix milliseconds.
    pub unix_ms: u64,
}

/// Bounds and times of the frontier.
#[derive(Clone, Debug)]
pub struct FrontierRules {
    /// Queues in memory at once.
    pub queues_max: usize,
    /// Entries of one queue in memory.
    pub window_max: usize,
    /// Fetches that are not settled yet.
    pub flights_max: usize,
    /// A flight not settled after this is lost, in microseconds.
    pub flight_timeout: Micros,
    /// Longest whole fetch, in microseconds: it must end inside the lease.
    pub fetch_timeout: Micros,
    /// How long a robots.txt is believed, in milliseconds.
    pub robots_ttl_ms: u64,
    /// How long an address is believed, in microseconds.
    pub address_ttl: Micros,
    /// Whether robots.txt is obeyed.
    pub obey_robots: bool,
    /// Whether sitemaps named in robots.txt are read.
    pub read_sitemaps: bool,
    /// Whether the delay is also kept per address.
    pub pace_addresses: bool,
    /// Memory for the rules of robots.txt files, in bytes; queues over it leave memory.
    pub robots_bytes_max: usize,
    /// Our name in robots.txt.
    pub product_token: String,
    /// How hosts are paced.
    pub pace: PaceRules,
    /// How often what is tried.
    pub retry: RetryRules,
    /// How URLs are brought into canonical form.
    pub urls: UrlRules,
    /// Pages after which no more are handed out, counted from the start of the crawl.
    pub pages_max: Option<u64>,
}

/// What is known of a host beyond its URLs; kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// What it taught us.
    pub lessons: Lessons,
    /// Its robots.txt files, by origin.
    pub robots: Vec<(String, RobotsCopy)>,
    /// Whether it was ever asked for anything.
    pub heard: bool,
}

/// A robots.txt as it was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RobotsCopy {
    /// Unix milliseconds until which it is believed.
    pub until: u64,
    /// Its bytes; `None` if there was none, which allows everything.
    pub body: Option<Vec<u8>>,
}

/// A queue as it lies on disk.
#[derive(Clone, Debug)]
pub struct LoadedQueue {
    /// Its name.
    pub key: QueueKey,
    /// What is known of its host.
    pub facts: HostFacts,
    /// Its first entries.
    pub entries: Vec<(Order, Entry)>,
    /// Whether there are more.
    pub more: bool,
}

/// What the fetch of a robots.txt gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RobotsFetch {
    /// 2xx with this body.
    Body(Vec<u8>),
    /// 4xx: there is none.
    Absent,
    /// A redirect to here.
    Redirect(String),
    /// 5xx, 429, no answer: unknown, because of this.
    Unavailable(Failure),
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// Time passed.
    Tick,
    /// Storage admitted a new entry, or returned one to its queue.
    Admitted {
        /// Its queue.
        queue: QueueKey,
        /// Its place.
        order: Order,
        /// The entry.
        entry: Entry,
        /// The host was never seen before, so there is nothing to load.
        new_host: bool,
    },
    /// The answer to [`Effect::KeepFacts`]: they are on disk, or the disk had no room for them.
    FactsKept {
        /// Whose.
        queue: QueueKey,
        /// Whether they are.
        kept: bool,
    },
    /// The answer to [`Effect::Sweep`] or [`Effect::Load`].
    Loaded {
        /// The read it answers.
        read: u64,
        /// The queues.
        queues: Vec<LoadedQueue>,
        /// For a sweep: where to go on; `None` when the disk was read to its end.
        sweep: Option<Option<QueueKey>>,
    },
    /// The answer to [`Effect::Refill`].
    Refilled {
        /// The read it answers.
        read: u64,
        /// The queue.
        queue: QueueKey,
        /// Its next entries.
        entries: Vec<(Order, Entry)>,
        /// Whether there are more.
        more: bool,
    },
    /// The answer to [`Effect::Resolve`].
    Resolved {
        /// The queue whose host was asked for.
        queue: QueueKey,
        /// Its address.
        address: Result<IpAddr, Failure>,
    },
    /// A fetch ended; the host is free after its delay.
    FetchEnded {
        /// Which.
        flight: u64,
        /// What it means for the host.
        host: HostVerdict,
        /// What the server asked us to wait.
        retry_after_ms: Option<u64>,
    },
    /// A robots.txt was fetched, or not.
    RobotsFetched {
        /// Which flight.
        flight: u64,
        /// What came.
        answer: RobotsFetch,
    },
    /// Storage has the outcome on disk.
    Settled {
        /// Which flight.
        flight: u64,
        /// It counts as a page.
        page: bool,
    },
    /// Slots were acquired, or their leases became longer.
    Leased {
        /// Which, and until when.
        slots: Vec<(Slot, Micros)>,
    },
    /// A slot that is leased was pulled: its queues come into memory and are served.
    Served {
        /// Which.
        slot: Slot,
    },
    /// A slot is no longer ours to serve. Its queues leave memory; what is in flight counts until it is answered or lost.
    Unleased {
        /// Which.
        slot: Slot,
    },
    /// The crawls are these from now on.
    Crawls(Arc<Crawls>),
    /// Storage was told to give entries of this queue other places, or an entry is new that has had another place since. Reads that are
    /// asked for from now on come behind that.
    Reordered {
        /// The queue.
        queue: QueueKey,
    },
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Fetch this page, after writing it down as selected.
    Fetch(Pick),
    /// Fetch this robots.txt.
    FetchRobots {
        /// Which flight.
        flight: u64,
        /// For which crawl.
        crawl: String,
        /// Where.
        url: CanonicalUrl,
    },
    /// Settle this entry as failed, without a fetch.
    Refuse(Pick, Why),
    /// Nobody settled this flight: put its entry back.
    Lost(Pick),
    /// Read more entries of a queue.
    Refill {
        /// Names this read.
        read: u64,
        /// The queue.
        queue: QueueKey,
        /// Those behind this place; all if `None`.
        after: Option<Order>,
        /// How many.
        limit: usize,
    },
    /// Read one queue.
    Load {
        /// Names this read.
        read: u64,
        /// The queue.
        queue: QueueKey,
        /// How many entries.
        limit: usize,
    },
    /// Read the next queues.
    Sweep {
        /// Names this read.
        read: u64,
        /// Only those of this slot; those of all slots if `None`.
        slot: Option<Slot>,
        /// Those behind this one; the first if `None`.
        after: Option<QueueKey>,
        /// How many.
        queues: usize,
        /// How many entries of each.
        limit: usize,
    },
    /// Find the address of a queue's host.
    Resolve {
        /// The queue.
        queue: QueueKey,
        /// Its host.
        host: String,
    },
    /// Write down what is known of a host.
    KeepFacts {
        /// The queue.
        queue: QueueKey,
        /// What is known.
        facts: HostFacts,
    },
    /// No request to a host of this slot is under way any more, and none will start: its lease may be given back.
    Idle {
        /// Which.
        slot: Slot,
    },
    /// These URLs were named by a robots.txt.
    Discover {
        /// The queue whose crawl they belong to.
        queue: QueueKey,
        /// The URLs.
        urls: Vec<Discovered>,
    },
}

/// Why an entry is refused without a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// A failure of the table.
    Failed(Failure),
    /// The rules of this run do not admit it.
    Filtered(Refusal),
}

/// A host that has URLs and is left alone for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Its name.
    pub host: String,
    /// Why its robots.txt cannot be had, if that is what is waited for.
    pub robots: Option<Failure>,
    /// Failures in a row.
    pub failures: u32,
    /// Until when, monotonic.
    pub until: Micros,
}

/// Why nothing, or little, is fetched right now: for people who ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Queues in memory.
    pub queues: usize,
    /// Hosts being asked at this moment.
    pub hosts_busy: usize,
    /// Hosts in memory that have URLs to fetch, now or after their delay.
    pub hosts_active: usize,
    /// Flights not settled.
    pub flights: usize,
    /// When the next queue is due, if one is.
    pub next_due: Option<Micros>,
}

/// The rules that can change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuned {
    /// Flights at once; 0 hands out nothing.
    pub flights_max: usize,
    /// Least time between two requests to a host, in milliseconds.
    pub delay_ms: u64,
    /// How long a robots.txt is believed, in milliseconds.
    pub robots_ttl_ms: u64,
}
