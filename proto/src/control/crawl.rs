//! What people ask about crawls, and what they are told.

use serde::{Deserialize, Serialize};

use super::Totals;
use crate::clients::fetch::Fetch;
use crate::crawl::definition::{CrawlDefinition, CrawlState};

/// A question about crawls, or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrawlRequest {
    /// Define this crawl and begin it; one of other rules is replaced only if that is said.
    Add(Box<CrawlDefinition>, bool),
    /// All crawls, with what they have come to on all nodes.
    List,
    /// What the crawls have come to in the slots of the node that is asked.
    Here,
    /// Make a crawl pause, go on or stop.
    Set {
        /// Which.
        name: String,
        /// What it is to do.
        state: CrawlState,
    },
    /// Define this crawl, which is open to clients, and begin it; as [`CrawlRequest::Add`].
    AddOpen(Box<CrawlDefinition>, Fetch, bool),
    /// Who fetches the URLs of a crawl; or have it be somebody else.
    Fetch {
        /// Which.
        name: String,
        /// Who is to; only asked if absent.
        fetch: Option<Fetch>,
    },
    /// As [`CrawlRequest::Here`], counted now and not told from memory: something is to be done by it.
    HereNow,
}

impl CrawlRequest {
    /// Whether it only looks.
    pub fn is_question(&self) -> bool {
        matches!(
            self,
            CrawlRequest::List | CrawlRequest::Here | CrawlRequest::HereNow | CrawlRequest::Fetch { fetch: None, .. }
        )
    }
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrawlAnswer {
    /// All crawls.
    List(CrawlList),
    /// What crawls have come to in the slots of one node.
    Here(CrawlsHere),
    /// The definition is kept on enough nodes, and in force on these.
    Kept {
        /// The crawl.
        crawl: String,
        /// What it does now.
        state: CrawlState,
        /// Seeds that were handed in.
        seeds: u64,
        /// How many nodes have it.
        nodes: u32,
        /// Living nodes that did not say so in time: they learn it later, and go on as before until then.
        missing: Vec<String>,
    },
    /// Who fetches the URLs of a crawl.
    Fetch {
        /// The crawl.
        crawl: String,
        /// Who; nodes alone, and clients know nothing of it, if absent.
        fetch: Option<Fetch>,
    },
}

/// All crawls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlList {
    /// The crawls.
    pub crawls: Vec<CrawlRow>,
    /// Slots of which the counts are known; all of them if nothing is missing.
    pub slots: u32,
    /// Fetches under way, of all crawls.
    pub fetching: u32,
    /// Nodes whose counts are missing, and why.
    pub missing: Vec<(String, String)>,
}

/// A crawl, and what it has come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlRow {
    /// Its name.
    pub name: String,
    /// What it is; `None` if nobody defined it and it goes by the settings of the nodes.
    pub definition: Option<CrawlDefinition>,
    /// What it has come to.
    pub counts: CrawlCounts,
}

/// What a crawl has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlCounts {
    /// Its URLs.
    pub totals: Totals,
    /// Those that wait for their turn, or are being fetched; large numbers are counted up to a bound.
    pub open: u64,
}

impl CrawlCounts {
    /// Adds another count.
    pub fn add(&mut self, other: CrawlCounts) {
        self.totals.add(other.totals);
        self.open += other.open;
    }
}

/// What crawls have come to in the slots of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlsHere {
    /// By name.
    pub counts: Vec<(String, CrawlCounts)>,
    /// Slots that it holds.
    pub held: u32,
    /// Fetches under way.
    pub fetching: u32,
}
