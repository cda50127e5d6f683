//! Work for the disk of a node in a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::batch::{Discovered, Pick};
use proto::cluster::contents::ContentKey;
use proto::cluster::copy::RecordCopy;
use proto::cluster::message::Stage;
use proto::cluster::registry::Definition;
use proto::cluster::slot_set::SlotSet;
use proto::control::Totals;
use proto::control::crawl::CrawlCounts;
use proto::control::records::{FoundRecord, UrlName};
use proto::crawl::outcome::Ending;
use proto::error_mask::ErrorTimes;
use proto::id::{Slot, UrlId};
use proto::key::UrlKey;
use proto::site::history::Event;

use super::{Deferred, DiskError, Landing, Reply, answer, defer, later};
use crate::edges::store::{Admitted, Begun, Change, Decided, Fetched, Merged, Recounted, ScanFrom, Store, Stored};

/// Work that only a replica has.
#[derive(Debug)]
pub enum ReplicaJob {
    /// Begin a life: its number is on disk before anything is said.
    Begin {
        /// The time, Unix seconds.
        unix_s: u64,
        /// A number of this node that others know already.
        least: Option<u32>,
        /// Its number, and digests of what is on disk.
        reply: Reply<Begun>,
    },
    /// Merge copies.
    Merge {
        /// The copies.
        copies: Vec<RecordCopy>,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// What that changed.
        reply: Reply<Merged>,
    },
    /// Remove a slot.
    Drop {
        /// Which.
        slot: Slot,
        /// Done.
        reply: Reply<()>,
    },
    /// Look which URLs are new.
    Admit {
        /// Their crawl.
        crawl: String,
        /// The page that names them.
        parent: Option<UrlId>,
        /// The URLs.
        urls: Vec<Discovered>,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// Their records, to be merged on enough disks.
        reply: Reply<Vec<RecordCopy>>,
    },
    /// Keep the content of a page that was fetched here.
    Keep(Box<Landing>, Reply<Kept>),
    /// Mark entries as handed out.
    Select {
        /// The life that hands them out.
        life: u32,
        /// The entries.
        picks: Vec<Pick>,
        /// Each with its record as SELECTED, if it still may be handed out.
        reply: Reply<Vec<(Pick, Option<RecordCopy>)>>,
    },
    /// Work out what becomes of records.
    Settle {
        /// What was handed out, how it ended, and how far it has come.
        flights: Vec<(Box<Pick>, Ending, Stage)>,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// In the same order: the record, and whether it counts as a page.
        reply: Reply<Vec<(Option<RecordCopy>, bool)>>,
    },
    /// Flights are over.
    Land {
        /// What was handed out.
        picks: Vec<Pick>,
        /// The entries of those that are in their queues again.
        reply: Reply<Vec<Admitted>>,
    },
    /// Forget what of a slot is handed out.
    Forget(Slot),
    /// Read records of a slot.
    Read {
        /// Which slot.
        slot: Slot,
        /// Only these ranges.
        ranges: Option<Vec<u8>>,
        /// Those behind this one.
        after: Option<UrlKey>,
        /// How many.
        limit: usize,
        /// The records, and where to go on.
        reply: Reply<(Vec<RecordCopy>, Option<UrlKey>)>,
    },
    /// Count the URLs of slots.
    Totals(SlotSet, Reply<Totals>),
    /// Read the record of a URL.
    Url(UrlKey, Reply<Option<Stored>>),
    /// Keep definitions.
    Define {
        /// The definitions.
        definitions: Vec<Definition>,
        /// Done.
        reply: Reply<()>,
    },
    /// Count the URLs of each crawl in these slots.
    CountCrawls(SlotSet, Reply<BTreeMap<String, CrawlCounts>>),
    /// What URLs failed of, by crawl.
    Failings(Reply<BTreeMap<String, ErrorTimes>>),
    /// Read records of a crawl.
    Records {
        /// The crawl.
        crawl: String,
        /// Which.
        names: Vec<UrlName>,
        /// In the same order.
        reply: Reply<Vec<Option<FoundRecord>>>,
    },
    /// How the keys of a crawl's URLs in these slots begin, one for each domain.
    Domains {
        /// The crawl.
        crawl: String,
        /// The slots.
        slots: SlotSet,
        /// The beginnings, in order.
        reply: Reply<Vec<Vec<u8>>>,
    },
    /// Read some records of domains.
    Scan {
        /// How their keys begin.
        domains: Arc<[Vec<u8>]>,
        /// Where to go on.
        from: ScanFrom,
        /// How many.
        limit: usize,
        /// The records, and where to go on if there are more.
        reply: Reply<(Vec<Stored>, Option<ScanFrom>)>,
    },
    /// Read notes.
    Notes {
        /// What their keys begin with.
        prefix: Vec<u8>,
        /// Those behind this one.
        after: Option<UrlKey>,
        /// The notes, and whether there are more.
        reply: Reply<(Vec<RecordCopy>, bool)>,
    },
    /// Read what was seen of a URL.
    History(UrlKey, Reply<Vec<Event>>),
    /// Remove what is here of the contents of URLs; how many versions those were.
    Purge(Vec<UrlKey>, Reply<u64>),
    /// Remove some of what is left of sites that are gone; how many records those were, `None` when nothing is left.
    Sweep(Reply<Decided<Option<usize>>>),
    /// So many URLs may still become known here, of crawls that have a limit.
    Room(BTreeMap<String, u64>, Reply<()>),
    /// Count the records whose keys begin so anew.
    Recount(Vec<u8>, Reply<Recounted>),
}

/// A page whose content is on disk.
#[derive(Debug)]
pub struct Kept {
    /// Which flight.
    pub flight: u64,
    /// How its fetch ended.
    pub ending: Ending,
    /// URLs found on it.
    pub links: Vec<Discovered>,
    /// Its content, and the bytes of its records, if it lacks a second copy.
    pub lacks: Option<(ContentKey, u32)>,
}

impl ReplicaJob {
    pub(super) fn is_write(&self) -> bool {
        match self {
            ReplicaJob::Merge { .. }
            | ReplicaJob::Drop { .. }
            | ReplicaJob::Admit { .. }
            | ReplicaJob::Keep(..)
            | ReplicaJob::Purge(..)
            | ReplicaJob::Recount(..)
            | ReplicaJob::Sweep(..)
            | ReplicaJob::Define { .. } => true,
            // The number of a life is written by itself.
            ReplicaJob::Begin { .. }
            | ReplicaJob::Select { .. }
            | ReplicaJob::Settle { .. }
            | ReplicaJob::Land { .. }
            | ReplicaJob::Forget(_)
            | ReplicaJob::Read { .. }
            | ReplicaJob::Totals(..)
            | ReplicaJob::Url(..)
            | ReplicaJob::CountCrawls(..)
            | ReplicaJob::Failings(..)
            | ReplicaJob::Records { .. }
            | ReplicaJob::Domains { .. }
            | ReplicaJob::Notes { .. }
            | ReplicaJob::History(..)
            | ReplicaJob::Room(..)
            | ReplicaJob::Scan { .. } => false,
        }
    }

    /// Applies a write to the change; its answer waits for the commit.
    pub(super) fn apply(
        self,
        change: &mut Change<'_>,
        fetched: Option<Fetched>,
        deferred: &mut Vec<Deferred>,
    ) -> Result<(), DiskError> {
        match self {
            ReplicaJob::Merge { copies, unix_ms, reply } => defer(reply, change.merge(copies, unix_ms), deferred),
            ReplicaJob::Drop { slot, reply } => defer(reply, change.drop_slot(slot), deferred),
            ReplicaJob::Admit { crawl, parent, urls, unix_ms, reply } => {
                defer(reply, change.admit_copies(&crawl, parent, urls, unix_ms), deferred)
            }
            ReplicaJob::Keep(landing, reply) => {
                let Landing { pick, ending, links, unix_ms, .. } = *landing;
                let told = if ending.is_answer() { change.find_untold(&pick, &links, unix_ms) } else { Ok(()) };
                let lacks = match &fetched {
                    None => Ok(None),
                    Some(fetched) => {
                        let (key, bytes) =
                            (UrlKey::new(pick.queue.crawl(), &pick.entry.url), fetched.content.position.length);
                        let kept = change.keep_content(key, pick.entry.progress.round, fetched);
                        kept.map(|key| key.map(|key| (key, bytes)))
                    }
                };
                let lacks = told.and(lacks);
                defer(reply, lacks.map(|lacks| Kept { flight: pick.flight, ending, links, lacks }), deferred)
            }
            ReplicaJob::Define { definitions, reply } => defer(reply, change.keep_definitions(&definitions), deferred),
            ReplicaJob::Purge(urls, reply) => defer(reply, change.purge_contents(&urls), deferred),
            ReplicaJob::Sweep(reply) => defer(reply, change.sweep(), deferred),
            ReplicaJob::Recount(prefix, reply) => defer(reply, change.recount_domain(&prefix), deferred),
            _ => unreachable!("reads go to `read`"),
        }
    }

    /// Answers a write of a group that failed before its turn.
    pub(super) fn refuse(self, deferred: &mut Vec<Deferred>) {
        match self {
            ReplicaJob::Merge { reply, .. } => later(reply, deferred),
            ReplicaJob::Drop { reply, .. } => later(reply, deferred),
            ReplicaJob::Admit { reply, .. } => later(reply, deferred),
            ReplicaJob::Keep(_, reply) => later(reply, deferred),
            ReplicaJob::Define { reply, .. } => later(reply, deferred),
            ReplicaJob::Purge(_, reply) => later(reply, deferred),
            ReplicaJob::Recount(_, reply) => later(reply, deferred),
            ReplicaJob::Sweep(reply) => later(reply, deferred),
            _ => unreachable!("reads go to `read`"),
        }
    }

    /// Does what needs no commit.
    pub(super) fn read(self, store: &mut Store) {
        match self {
            ReplicaJob::Begin { unix_s, least, reply } => answer(reply, store.begin_life(unix_s, least)),
            ReplicaJob::Select { life, picks, reply } => answer(reply, store.select_copies(life, picks)),
            ReplicaJob::Settle { flights, unix_ms, reply } => answer(reply, store.settle_copies(flights, unix_ms)),
            ReplicaJob::Land { picks, reply } => answer(reply, store.land_all(&picks)),
            ReplicaJob::Forget(slot) => store.forget_flights(slot),
            ReplicaJob::Read { slot, ranges, after, limit, reply } => {
                answer(reply, store.slot_copies(slot, ranges.as_deref(), after.as_ref(), limit))
            }
            ReplicaJob::Totals(slots, reply) => answer(reply, store.totals(&slots)),
            ReplicaJob::Url(key, reply) => answer(reply, store.url(&key)),
            ReplicaJob::CountCrawls(slots, reply) => answer(reply, store.crawl_counts(&slots)),
            ReplicaJob::Failings(reply) => answer(reply, store.failings()),
            ReplicaJob::Records { crawl, names, reply } => answer(reply, store.records(&crawl, &names)),
            ReplicaJob::Domains { crawl, slots, reply } => {
                let domains = store.domains_of(&crawl, Some(&slots));
                answer(reply, domains.map(|domains| domains.into_iter().collect()))
            }
            ReplicaJob::Notes { prefix, after, reply } => answer(reply, store.notes(&prefix, after.as_ref())),
            ReplicaJob::Room(room, reply) => {
                store.set_room(room);
                answer(reply, Ok(()));
            }
            ReplicaJob::History(key, reply) => answer(reply, store.history(&key)),
            ReplicaJob::Scan { domains, from, limit, reply } => answer(reply, store.scan(&domains, from, limit)),
            _ => unreachable!("writes go to `apply`"),
        }
    }
}
