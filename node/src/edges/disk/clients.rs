//! Work for the disk that clients with fetchers of their own ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::clients::ask::{Act, Item, Look, Said, Taken};
use proto::clients::fetch::{End, Lease};
use proto::clients::spider::{SpiderAsk, SpiderRules, SpiderSaid};
use proto::cluster::slot_set::SlotSet;
use proto::crawl::politeness::Micros;

use super::{Deferred, DiskError, Reply, answer, defer, later};
use crate::edges::clock::mono;
use crate::edges::store::{Change, Decided, Store, Taker};

/// Work for clients.
#[derive(Debug)]
pub enum ClientJob {
    /// Take URLs in.
    Put {
        /// The URLs.
        items: Vec<Item>,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// Least numbers of the versions of what is written under claims, by the key of its queue.
        floors: BTreeMap<String, u64>,
        /// Until when, by [`mono`]: then whoever asked has given up, and may have put something newer elsewhere.
        until: Micros,
        /// What became of each, and what is to be replicated.
        reply: Reply<Decided<Vec<Taken>>>,
    },
    /// Change something; what needs to look at many rows.
    Act {
        /// What.
        act: Act,
        /// For whom.
        taker: Taker,
        /// Slots that this node may hand URLs out of.
        slots: SlotSet,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// What to say, and what is to be replicated.
        reply: Reply<Decided<Said>>,
    },
    /// Look.
    Look {
        /// At what.
        look: Look,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// What was seen.
        reply: Reply<Said>,
    },
    /// Leases of the nodes' own fetchers end.
    EndOwn {
        /// Which, and how.
        ends: Vec<End>,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// What is to be replicated.
        reply: Reply<Decided<()>>,
    },
    /// What the nodes' own fetchers have.
    OwnLeases {
        /// Of which crawl.
        crawl: String,
        /// In which slots.
        slots: SlotSet,
        /// Behind which queue.
        after: Option<Vec<u8>>,
        /// Some of it, and where to go on.
        reply: Reply<(Vec<Lease>, Option<Vec<u8>>)>,
    },
    /// Something of spiders.
    Spider {
        /// What.
        ask: SpiderAsk,
        /// By which rules.
        rules: Arc<SpiderRules>,
        /// Slots that this node may hand pages out of.
        slots: SlotSet,
        /// When, Unix milliseconds.
        unix_ms: u64,
        /// What to say, and what is to be replicated.
        reply: Reply<Decided<SpiderSaid>>,
    },
}

impl ClientJob {
    pub(super) fn is_write(&self) -> bool {
        // What looks at many rows writes a batch of its own.
        match self {
            ClientJob::Put { .. } | ClientJob::EndOwn { .. } => true,
            ClientJob::Spider { ask, .. } => !ask.takes() && !matches!(ask, SpiderAsk::Reload { .. }),
            ClientJob::Act { .. } | ClientJob::Look { .. } | ClientJob::OwnLeases { .. } => false,
        }
    }

    /// Applies a write to the change; its answer waits for the commit.
    pub(super) fn apply(self, change: &mut Change<'_>, deferred: &mut Vec<Deferred>) -> Result<(), DiskError> {
        match self {
            ClientJob::Put { items, until, reply, .. } if mono() >= until => {
                let said = vec![Taken::Failed; items.len()];
                defer(reply, Ok(Decided { said, copies: Vec::new(), changed: Vec::new(), life: 0 }), deferred)
            }
            ClientJob::Put { items, unix_ms, floors, reply, .. } => {
                defer(reply, change.put_items(items, unix_ms, &floors), deferred)
            }
            ClientJob::Spider { ask, rules, unix_ms, reply, .. } => {
                defer(reply, change.spider(ask, &rules, unix_ms), deferred)
            }
            ClientJob::EndOwn { ends, unix_ms, reply } => defer(reply, change.end_own(ends, unix_ms), deferred),
            _ => unreachable!("these go to `read`"),
        }
    }

    /// Answers a write of a group that failed before its turn.
    pub(super) fn refuse(self, deferred: &mut Vec<Deferred>) {
        match self {
            ClientJob::Put { reply, .. } => later(reply, deferred),
            ClientJob::Spider { reply, .. } => later(reply, deferred),
            ClientJob::EndOwn { reply, .. } => later(reply, deferred),
            ClientJob::Act { .. } | ClientJob::Look { .. } | ClientJob::OwnLeases { .. } => {}
        }
    }

    /// Does what is no part of a group.
    pub(super) fn read(self, store: &mut Store) {
        match self {
            ClientJob::Act { act, taker, slots, unix_ms, reply } => {
                answer(reply, store.act(act, &taker, &slots, unix_ms))
            }
            ClientJob::OwnLeases { crawl, slots, after, reply } => {
                answer(reply, store.own_leases(&crawl, &slots, after.as_deref()))
            }
            ClientJob::Look { look, unix_ms, reply } => answer(reply, store.look(look, unix_ms)),
            ClientJob::Spider { ask, rules, slots, unix_ms, reply } => {
                answer(reply, store.spider_act(ask, &rules, &slots, unix_ms))
            }
            ClientJob::Put { .. } | ClientJob::EndOwn { .. } => unreachable!("writes go to `apply`"),
        }
    }
}
