//! What is asked about the page graph of a cluster and about what waits in its queues, and what is told.
//!
//! Every node tells of the slots that it acts for, some rows at a time. Whoever is asked by people passes each question on to the node whose turn it is, and says where to go on: so nobody
//! holds an answer in memory, however long it is.

use serde::{Deserialize, Serialize};

use crate::cluster::slot_set::SlotSet;
use crate::score::rounds::Wish;

/// Names of pages in one question.
pub const NAMES_MAX: usize = 1_000;

/// What to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PagesWhat {
    /// Every page, with all that is known of it.
    Info,
    /// Every page that was crawled, with the ids of the pages that it links to: those of other domains first.
    Links,
    /// Pages whose URL matches a regular expression.
    Find {
        /// The expression.
        regex: String,
    },
    /// These pages.
    Named {
        /// Their crawl, if they are named by URLs.
        crawl: String,
        /// URLs, ids of 32 digits, or keys as other answers have them.
        names: Vec<String>,
    },
    /// Pages that link to a page.
    Into {
        /// Its crawl.
        crawl: String,
        /// Its name.
        name: String,
    },
    /// Keys of the pages that a page links to.
    OutOf {
        /// Its crawl.
        crawl: String,
        /// Its name.
        name: String,
    },
    /// What waits in queues, and for spiders.
    Waiting,
}

/// Where to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesPlace {
    /// The node whose turn it is.
    pub node: u64,
    /// Behind what; nothing to begin with.
    pub after: Vec<u8>,
}

/// A question, or an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PagesRequest {
    /// Tell of all nodes, one after another.
    Look {
        /// What.
        what: PagesWhat,
        /// From where on; the beginning without it.
        from: Option<PagesPlace>,
    },
    /// Tell of these slots of the node that is asked.
    Here {
        /// What.
        what: PagesWhat,
        /// The slots.
        slots: SlotSet,
        /// Behind what; nothing to begin with.
        after: Vec<u8>,
    },
    /// Compute scores now, and put what waits where they say. Answered when that is done.
    Rescore {
        /// By what, as `[score] by` says it.
        by: String,
    },
    /// Have all nodes compute a ranking, and tell its best pages. The first answer says where to ask again, until there are rows or nothing to go on with.
    Rank {
        /// Which.
        wish: Wish,
        /// Where the last answer said; the node that was asked first.
        from: Option<PagesPlace>,
    },
    /// Put up again the pages of spiders that were never crawled and are not to be crawled any more.
    PutUpAgain,
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagesAnswer {
    /// Objects in JSON.
    pub rows: Vec<String>,
    /// Where to go on; nothing at the end.
    pub next: Option<PagesPlace>,
}
