//! What people and nodes ask a node over the swarm, and what they are told.

pub mod admin;
pub mod content;
pub mod crawl;
pub mod pages;
pub mod records;
pub mod source;

use serde::{Deserialize, Serialize};

use self::content::{ContentAnswer, ContentRequest};
use self::crawl::{CrawlAnswer, CrawlRequest};
use self::pages::{PagesAnswer, PagesRequest};
use self::records::{RecordsAnswer, RecordsRequest};
use self::source::SourceRequest;

use crate::clients::ask::{Ask, Said};
use crate::id::{NodeId, UrlId};
use crate::record::Progress;
use crate::site::{Operation, UrlFetch};
use crate::source::lend::Leave;

/// URLs handed in with one request.
pub const URLS_MAX: usize = 10_000;

/// A question, or an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// How is the node that is asked?
    Node,
    /// How are all nodes?
    Nodes,
    /// Who owns the slot of a domain, or how many slots each node owns?
    Ring {
        /// Only the slot of this domain.
        domain: Option<String>,
        /// Only this slot.
        slot: Option<u16>,
    },
    /// Crawl these URLs.
    AddUrls {
        /// Their crawl.
        crawl: String,
        /// As people write them.
        urls: Vec<String>,
    },
    /// What does each node know of a URL?
    Url {
        /// Its crawl.
        crawl: String,
        /// As people write it.
        url: String,
    },
    /// What does the node that is asked know of a URL?
    UrlHere {
        /// Its crawl.
        crawl: String,
        /// As people write it.
        url: String,
    },
    /// Leave the cluster.
    Leave,
    /// An order to nodes one by one or to all of them.
    Admin {
        /// Whom it is for.
        to: admin::To,
        /// What to do.
        order: admin::Order,
    },
    /// What about crawls?
    Crawl(CrawlRequest),
    /// On behalf of a client with a fetcher of its own. Only nodes ask this.
    Client(Box<Ask>),
    /// What about the content of a page?
    Content(ContentRequest),
    /// Let a new node in, or no longer.
    Admit {
        /// Its peer id.
        peer: String,
        /// Where it is dialled.
        addresses: Vec<String>,
        /// Take it back.
        revoke: bool,
    },
    /// An operation of the Distributed Crawler, asked and answered in its JSON.
    Operation {
        /// Which.
        operation: Operation,
        /// What it is asked with.
        body: String,
        /// One answer of all nodes together; else one of each.
        merge: bool,
    },
    /// What about records of the node that is asked?
    Records(RecordsRequest),
    /// What about jobs, generators, tasks and logs? Answered with [`Answer::Operation`].
    Source(Box<SourceRequest>),
    /// What about the page graph, and what waits?
    Pages(PagesRequest),
    /// On behalf of a client, like [`Request::Client`]; it must not take effect when its time is over.
    ClientUntil(Leave, Box<Ask>),
}

impl Request {
    /// Whether it only looks.
    pub fn is_question(&self) -> bool {
        match self {
            Request::Node
            | Request::Nodes
            | Request::Ring { .. }
            | Request::Url { .. }
            | Request::UrlHere { .. }
            | Request::Content(_) => true,
            Request::Records(request) => request.is_question(),
            Request::AddUrls { .. } | Request::Leave | Request::Admit { .. } => false,
            Request::Admin { order, .. } => order.is_question(),
            Request::Crawl(request) => request.is_question(),
            Request::Client(_) | Request::ClientUntil(..) => false,
            Request::Operation { operation: Operation::UrlFetch, body, .. } => !UrlFetch::is_change(body),
            Request::Operation { operation, .. } => operation.is_question(),
            Request::Source(request) => request.is_question(),
            Request::Pages(request) => !matches!(request, PagesRequest::Rescore { .. } | PagesRequest::PutUpAgain),
        }
    }

    /// Whether the answer depends on what is defined.
    pub fn needs_definitions(&self) -> bool {
        match self {
            Request::Node | Request::Nodes | Request::Ring { .. } | Request::Leave | Request::Admin { .. } => false,
            Request::Url { .. } | Request::UrlHere { .. } | Request::Content(_) => false,
            Request::Client(_) | Request::ClientUntil(..) | Request::Pages(_) => false,
            Request::AddUrls { .. } | Request::Admit { .. } | Request::Crawl(_) => true,
            Request::Operation { .. } | Request::Records(_) | Request::Source(_) => true,
        }
    }
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// How the node is.
    Node(Box<NodeReport>),
    /// How all nodes are; those that did not answer say why.
    Nodes(Vec<NodeAnswer>),
    /// Who owns what.
    Ring(Vec<RingRow>),
    /// URLs are kept on enough disks.
    Added {
        /// How many.
        kept: u64,
        /// Those that are none: the text, and what is wrong with it.
        wrong: Vec<(String, String)>,
    },
    /// What nodes know of a URL.
    Url(Vec<UrlAnswer>),
    /// It is done, or under way.
    Done,
    /// It cannot be done now, or not by you.
    Refused(String),
    /// What each node said to an order; those that did not answer say why.
    Admin(Vec<admin::Part>),
    /// About crawls.
    Crawl(CrawlAnswer),
    /// To a client with a fetcher of its own.
    Client(Box<Said>),
    /// About the content of a page.
    Content(ContentAnswer),
    /// Enough nodes know who is let in.
    Admitted {
        /// Who.
        peer: String,
        /// Whether it is.
        admitted: bool,
        /// Nodes that have it on disk.
        nodes: Vec<String>,
        /// Nodes that do not, yet.
        missing: Vec<String>,
    },
    /// What came of an operation, in JSON.
    Operation(String),
    /// About records.
    Records(RecordsAnswer),
    /// About pages.
    Pages(PagesAnswer),
}

/// How a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Which.
    pub node: u64,
    /// Its peer id.
    pub peer: String,
    /// The program's version.
    pub version: String,
    /// The number of its life.
    pub life: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Nodes on the ring, as it sees it.
    pub members: u32,
    /// Those that it believes to be alive.
    pub alive: u32,
    /// Slots that it owns.
    pub owned: u32,
    /// Slots that it holds.
    pub held: u32,
    /// Its load, in thousandths.
    pub load: u32,
    /// Fetches under way.
    pub fetching: u32,
    /// Fetches since it started.
    pub fetches: u64,
    /// It has left the cluster.
    pub left: bool,
    /// Records on its disk, its own and those it keeps for others.
    pub records: u64,
    /// URLs of the slots that it holds.
    pub totals: Totals,
}

/// Counts of URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Known.
    pub known: u64,
    /// Whose last round gave content.
    pub processed: u64,
    /// Whose last round failed for good.
    pub failed: u64,
    /// Bytes of content.
    pub bytes: u64,
}

impl Totals {
    /// Adds another count.
    pub fn add(&mut self, other: Totals) {
        self.known += other.known;
        self.processed += other.processed;
        self.failed += other.failed;
        self.bytes += other.bytes;
    }
}

/// A node, and how it is if it said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// Which.
    pub node: u64,
    /// Its peer id.
    pub peer: String,
    /// How it is, or why that is not known.
    pub report: Result<Box<NodeReport>, String>,
}

/// A slot, or all slots of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingRow {
    /// The slot; `None` for a node's share.
    pub slot: Option<u16>,
    /// Its owner first, then who keeps copies.
    pub nodes: Vec<u64>,
    /// Slots.
    pub slots: u32,
}

/// What one node knows of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlAnswer {
    /// Which node.
    pub node: u64,
    /// The record, or why there is none to tell.
    pub state: Result<Option<UrlFacts>, String>,
}

/// A record, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlFacts {
    /// Its id.
    pub id: UrlId,
    /// Where it stands.
    pub progress: Progress,
    /// HTTP status of the last answer.
    pub http_code: Option<u16>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Title of the page.
    pub title: Option<String>,
}

/// Names a node for people: the way it stands in logs.
pub fn node_name(node: NodeId) -> String {
    format!("{:016x}", node.0)
}
