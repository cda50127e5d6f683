//! What nodes ask each other for when a person wants to see or change records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::copy::RecordCopy;
use crate::error_mask::ErrorTimes;
use crate::id::UrlId;
use crate::key::UrlKey;
use crate::query::{Column, Query, QueryError, Source};
use crate::site::history::Event;

/// Records that one question is about.
pub const RECORDS_MAX: usize = 1_000;

/// A question about the records of the node that is asked. Appended only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordsRequest {
    /// The records of these URLs of a crawl.
    Of {
        /// The crawl.
        crawl: String,
        /// The URLs, or their ids.
        names: Vec<UrlName>,
    },
    /// What a query finds among the URLs of sites in the slots that the node holds.
    Look {
        /// The query.
        query: QueryText,
        /// The sites, and the crawls under which their URLs are kept.
        sites: Vec<(String, String)>,
    },
    /// Notes of a site.
    Notes {
        /// What their keys begin with.
        prefix: Vec<u8>,
        /// Those behind this one.
        after: Option<UrlKey>,
    },
    /// What the node saw of a URL.
    History(UrlKey),
    /// URLs of a crawl that are deleted and whose contents may be there, in the slots that the node holds.
    Deleted {
        /// The crawl.
        crawl: String,
        /// How many.
        limit: usize,
    },
    /// Remove what the node has of the contents of these URLs.
    Purge(Vec<UrlKey>),
    /// Count the URLs of a crawl anew.
    Recount {
        /// The crawl.
        crawl: String,
    },
    /// What URLs of each crawl failed of, as far as the node saw.
    Failings,
}

impl RecordsRequest {
    /// Whether it only looks.
    pub fn is_question(&self) -> bool {
        !matches!(self, RecordsRequest::Purge(_) | RecordsRequest::Recount { .. })
    }
}

/// A query as it travels: every node reads it anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryText {
    /// A whole query.
    Whole(String),
    /// Criterions on URLs.
    Criterions {
        /// Which.
        condition: String,
        /// In which order.
        order: String,
        /// How many.
        limit: usize,
        /// Behind how many.
        offset: usize,
        /// Only the URLs are told, of all their fields.
        urls_only: bool,
    },
}

impl QueryText {
    /// Reads it.
    pub fn understand(&self) -> Result<Query, QueryError> {
        match self {
            QueryText::Whole(text) => Query::parse(text),
            QueryText::Criterions { condition, order, limit, offset, urls_only } => {
                let mut query = Query::of_criterions(Source::Urls, condition, order, Some(*limit), *offset)?;
                if *urls_only {
                    query.columns = vec![Column::Field("url")];
                }
                Ok(query)
            }
        }
    }
}

/// Names a URL of a crawl.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum UrlName {
    /// By itself, in canonical form.
    Url(String),
    /// By its id.
    Id(UrlId),
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordsAnswer {
    /// The records that were asked for, in the same order; `None` where this node has none.
    Of(Vec<Option<FoundRecord>>),
    /// What a query found.
    Part {
        /// A [`Part`](crate::query::Part), encoded.
        part: Vec<u8>,
        /// Slots that were looked at.
        slots: u32,
    },
    /// Notes.
    Notes {
        /// As they are kept.
        copies: Vec<RecordCopy>,
        /// There are more behind the last.
        more: bool,
    },
    /// What was seen of a URL.
    History(Vec<Event>),
    /// URLs that are deleted.
    Deleted {
        /// Their keys, and their texts.
        urls: Vec<(UrlKey, String)>,
        /// Slots that were looked at.
        slots: u32,
    },
    /// Versions of contents that were removed.
    Purged(u64),
    /// What a recount found.
    Recounted {
        /// Hosts whose counters were wrong.
        corrected: u64,
        /// Hosts looked at.
        hosts: u64,
    },
    /// What URLs failed of, by crawl.
    Failings(BTreeMap<String, ErrorTimes>),
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundRecord {
    /// As it is kept.
    pub copy: RecordCopy,
    /// Pages that link to it, as far as this node counted.
    pub inlinks: u32,
}

impl FoundRecord {
    /// The later of two copies, and all that were counted.
    pub fn merge(self, other: FoundRecord) -> FoundRecord {
        FoundRecord { inlinks: self.inlinks.max(other.inlinks), copy: self.copy.merge(other.copy) }
    }
}
