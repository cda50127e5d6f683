//! What a node asks another, or itself, on behalf of a client. Each question is about queues of slots that the one who is asked acts for.

use serde::{Deserialize, Serialize};

use super::record::{ClientQueue, Metadata};
use super::spider::{SpiderAsk, SpiderSaid};
use crate::cluster::slot_set::SlotSet;
use crate::id::Slot;
use crate::score::rounds::{RankAsk, RankSaid};
use crate::source::lend::Stamp;

/// URLs in one question, and their bytes: a question fits into a request between nodes.
pub const PUT_ITEMS_MAX: usize = 1_024;
/// Bytes of one question.
pub const PUT_BYTES_MAX: usize = 768 << 10;
/// Bytes of URLs in one answer, about.
pub const ANSWER_BYTES_MAX: usize = 2 << 20;
/// Bytes of URLs or keys in one answer to a look, about: many may look at once, and read slowly. Rows of ordinary length reach [`LOOK_ROWS_MAX`] first.
pub const LOOK_BYTES_MAX: usize = 512 << 10;
/// Rows that one question looks at; who wants more asks on from where it ended.
pub const LOOK_ROWS_MAX: usize = 4_096;

/// A URL to take in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its crawl, checked.
    pub crawl: String,
    /// Key of its queue, checked.
    pub key: String,
    /// As the client wrote it.
    pub url: String,
    /// The client's words about it.
    pub metadata: Metadata,
    /// What is known of it; `None` if it was merely found.
    pub date_s: Option<u64>,
}

/// What became of a URL to take in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Taken {
    /// It is on enough disks.
    Kept,
    /// It was known, or cannot be taken.
    Skipped,
    /// It may or may not be on enough disks.
    Failed,
}

/// A URL that is handed out, or told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its crawl.
    pub crawl: String,
    /// Key of its queue.
    pub key: String,
    /// As the client wrote it.
    pub url: String,
    /// The client's words about it.
    pub metadata: Metadata,
    /// Unix seconds; 0 when it is completed.
    pub date_s: u64,
    /// Unix seconds.
    pub created_s: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// Take URLs in.
    Put(Vec<Item>),
    /// Change something.
    Act(Act),
    /// Look.
    Look(Look),
    /// Log this of a part of the program.
    Log {
        /// Which part.
        package: String,
        /// How much.
        level: String,
    },
    /// Hand URLs out on this node, or do not.
    SetActive(bool),
    /// Whether this node hands URLs out.
    IsActive,
    /// For spiders.
    Spider(SpiderAsk),
    /// About scores over the whole graph.
    Rank(RankAsk),
    /// Make a stamp of your clock.
    Stamp,
    /// Which slots do you hold, and know all that was acknowledged of?
    Held,
}

impl Ask {
    /// Whether it changes what is kept: it must not be carried out once whoever asked has given up.
    pub fn is_change(&self) -> bool {
        matches!(self, Ask::Put(_) | Ask::Act(_) | Ask::Spider(_))
    }
}

/// A change of what is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Hand URLs out.
    Take {
        /// Of which crawl; any if absent.
        crawl: Option<String>,
        /// Of which queue of that crawl; any if absent.
        key: Option<String>,
        /// Of how many queues at most; 0 for no limit.
        queues_max: u32,
        /// How many of each at most; 0 for no limit.
        urls_max: u32,
        /// For how long, in seconds; 0 for the usual time.
        lease_s: u32,
        /// Delay of queues without one of their own.
        delay_default_s: u32,
    },
    /// Change a queue's settings. Who does not hold it refuses: it may not know the others.
    Set {
        /// Its crawl.
        crawl: String,
        /// Its key.
        key: String,
        /// What to change.
        setting: Setting,
    },
    /// Forget queues: one, or so many of a crawl that are in these slots. Who does not hold them refuses: it may not know all of them.
    Delete {
        /// Of which slots; of the one of its key if absent.
        slots: SlotSet,
        /// Of which crawl.
        crawl: String,
        /// Which; all if absent.
        key: Option<String>,
    },
    /// Forget what was created before. Who does not hold the slots refuses.
    Purge {
        /// Of which slots; of the one of its key if absent.
        slots: SlotSet,
        /// Of which crawl.
        crawl: String,
        /// Of which queue; all if absent.
        key: Option<String>,
        /// Unix milliseconds.
        cutoff_ms: u64,
        /// Where the last answer ended.
        after: Option<Vec<u8>>,
    },
    /// Change a queue's settings while nobody holds it, on top of what all living nodes know of it.
    SetUnheld {
        /// Its crawl.
        crawl: String,
        /// Its key.
        key: String,
        /// What to change.
        setting: Setting,
        /// What they know together.
        known: ClientQueue,
    },
    /// Count the leases and the delays of what was just taken from now on: it took long until it was on enough disks.
    Renew {
        /// What was taken.
        urls: Vec<Told>,
        /// For how long, in seconds; 0 for the usual time.
        lease_s: u32,
        /// Until when it was leased, Unix milliseconds; what somebody has said something of meanwhile is leased no more.
        leased_until_ms: u64,
        /// How long it may take this time.
        margin_ms: u64,
    },
    /// End leases of which nobody was told.
    GiveBack {
        /// What was taken.
        urls: Vec<Told>,
        /// Until when it was leased, Unix milliseconds; what is leased otherwise by now is left alone.
        leased_until_ms: u64,
    },
}

impl Act {
    /// The slots of which it has to know everything that was acknowledged: who does not hold them refuses.
    pub fn of_holder(&self) -> Option<SlotSet> {
        match self {
            Act::Delete { crawl, key: Some(key), .. }
            | Act::Purge { crawl, key: Some(key), .. }
            | Act::Set { crawl, key, .. } => Some([slot_of(crawl, key)].into_iter().collect()),
            Act::Delete { slots, .. } | Act::Purge { slots, .. } => Some(slots.clone()),
            Act::Take { .. } | Act::SetUnheld { .. } | Act::Renew { .. } | Act::GiveBack { .. } => None,
        }
    }
}

/// What all who were asked know of a queue together, each with whether it has it; `None` if there is none.
pub fn known_together(said: Vec<(ClientQueue, bool)>) -> Option<ClientQueue> {
    let known = said.iter().map(|(queue, _)| queue.clone()).reduce(ClientQueue::merge)?;
    // Who has not heard that it was forgotten still has it.
    let is_there = |(queue, is_there): &(ClientQueue, bool)| *is_there && queue.cutoff_ms == known.cutoff_ms;
    (known.kept || said.iter().any(is_there)).then_some(known)
}

/// A setting of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// Serve nothing until then, Unix seconds; 0 to serve again.
    Block(u64),
    /// Least time between two answers, in seconds; as for all queues if absent.
    Delay(Option<u32>),
    /// Completed URLs after which nothing is served; 0 for no limit.
    Limit(u32),
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// What is known of a URL?
    Url {
        /// Its crawl.
        crawl: String,
        /// Key of its queue.
        key: String,
        /// The URL.
        url: String,
    },
    /// How many are there?
    Stats {
        /// In which slots.
        slots: SlotSet,
        /// Of which crawl.
        crawl: String,
        /// Of which queue; all if absent.
        key: Option<String>,
        /// Where the last answer ended.
        after: Option<Vec<u8>>,
    },
    /// Which crawls have queues?
    Crawls {
        /// In which slots.
        slots: SlotSet,
        /// Behind which crawl.
        after: Option<String>,
    },
    /// Which queues has a crawl?
    Queues {
        /// In which slots.
        slots: SlotSet,
        /// Of which crawl.
        crawl: String,
        /// Blocked ones and those without scheduled URLs too.
        inactive: bool,
        /// How many to leave out.
        skip: u64,
        /// How many to name at most; the rest is counted.
        take: u64,
        /// Where the last answer ended.
        after: Option<Vec<u8>>,
    },
    /// Which URLs has a crawl?
    Urls {
        /// In which slots.
        slots: SlotSet,
        /// Of which crawl.
        crawl: String,
        /// Of which queue; all if absent.
        key: Option<String>,
        /// Only those with this in them.
        filter: Option<Filter>,
        /// How many to leave out.
        skip: u64,
        /// How many to tell at most; with 0 all are counted.
        take: u64,
        /// Where the last answer ended.
        after: Option<Vec<u8>>,
    },
    /// What is kept of a queue as a whole?
    Queue {
        /// Its crawl.
        crawl: String,
        /// Its key.
        key: String,
    },
}

/// Part of a URL to look for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    part: String,
    ignore_case: bool,
}

impl Filter {
    /// What a client asks for; a blank filter is none.
    pub fn new(part: &str, ignore_case: bool) -> Option<Filter> {
        let part = if ignore_case { part.to_lowercase() } else { part.to_owned() };
        (!part.trim().is_empty()).then_some(Filter { part, ignore_case })
    }

    /// Says whether a URL has it.
    pub fn matches(&self, url: &str) -> bool {
        if self.ignore_case { url.to_lowercase().contains(&self.part) } else { url.contains(&self.part) }
    }
}

/// Counts of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// URLs to be handed out, now or later.
    pub scheduled: u64,
    /// URLs that are handed out now.
    pub leased: u64,
    /// URLs that are done with.
    pub completed: u64,
    /// Queues.
    pub queues: u64,
    /// Queues that have a URL to be handed out.
    pub active: u64,
}

impl Counts {
    /// Adds what another node counted.
    pub fn add(&mut self, other: Counts) {
        self.scheduled += other.scheduled;
        self.leased += other.leased;
        self.completed += other.completed;
        self.queues += other.queues;
        self.active += other.active;
    }
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Said {
    /// What became of each URL.
    Put(Vec<Taken>),
    /// URLs that are handed out, and from how many queues.
    Given {
        /// The URLs.
        urls: Vec<Told>,
        /// Queues that they are from.
        queues: u32,
    },
    /// A queue's settings are changed; whether there is such a queue.
    Set(bool),
    /// URLs are forgotten.
    Gone {
        /// How many.
        urls: u64,
        /// Where to go on.
        next: Option<Vec<u8>>,
    },
    /// What is known of a URL.
    Url(Option<Told>),
    /// Counts.
    Stats(Counts, Option<Vec<u8>>),
    /// Names of crawls, and behind which there may be more.
    Crawls(Vec<String>, Option<String>),
    /// Queues: how many there are, those that were asked for, and where to go on.
    Queues {
        /// How many were met.
        met: u64,
        /// Their keys.
        keys: Vec<String>,
        /// Where to go on.
        next: Option<Vec<u8>>,
    },
    /// URLs, likewise.
    Urls {
        /// How many were met.
        met: u64,
        /// The URLs.
        urls: Vec<Told>,
        /// Where to go on.
        next: Option<Vec<u8>>,
    },
    /// It is done.
    Done,
    /// Yes or no.
    Active(bool),
    /// It cannot be done now.
    Refused(String),
    /// To spiders.
    Spider(SpiderSaid),
    /// About scores.
    Rank(RankSaid),
    /// A stamp.
    Stamp(Stamp),
    /// These slots.
    Held(SlotSet),
    /// The time of the question is over by this clock, or was told by that of a former life. Nothing was done.
    Late(Stamp),
    /// What is kept of a queue as a whole, and whether it is there.
    Queue(ClientQueue, bool),
}

/// The slot that a question is about, if it is about one.
pub fn slot_of(crawl: &str, key: &str) -> Slot {
    super::identity::ClientQueueId::new(crawl, key).slot()
}

#[cfg(test)]
mod tests {
    use super::super::record::Version;
    use super::*;
    use crate::id::NodeId;

    fn known(number: u64, kept: bool, cutoff_ms: u64) -> ClientQueue {
        let version = Version { number, node: NodeId(1) };
        ClientQueue { version, kept, cutoff_ms, delay_s: Some(number as u32), ..ClientQueue::default() }
    }

    #[test]
    fn what_nodes_know_of_a_queue_together_is_what_was_said_last() {
        assert_eq!(known_together(Vec::new()), None);
        assert_eq!(known_together(vec![(ClientQueue::default(), false)]), None, "nobody has heard of it");
        assert_eq!(
            known_together(vec![(ClientQueue::default(), false), (ClientQueue::default(), true)]),
            Some(ClientQueue::default())
        );
        let [early, late] = [known(5, true, 0), known(7, true, 0)];
        assert_eq!(known_together(vec![(early.clone(), true), (late.clone(), true)]), Some(late.clone()));
        // It was forgotten, and not all have heard; then it was made anew.
        let gone = known(8, false, 9);
        assert_eq!(known_together(vec![(late.clone(), true), (gone.clone(), false)]), None);
        assert_eq!(known_together(vec![(late, true), (gone.clone(), true)]), Some(gone));
    }

    #[test]
    fn a_blank_filter_is_none() {
        assert_eq!((Filter::new("", false), Filter::new("  ", true)), (None, None));
        let exact = Filter::new("Page", false).unwrap();
        assert!(exact.matches("http://a/Page1") && !exact.matches("http://a/page1"));
        let any = Filter::new("Page", true).unwrap();
        assert!(any.matches("http://a/Page1") && any.matches("http://a/PAGE1"));
    }
}
