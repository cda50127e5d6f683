//! The coordinator's part in definitions: they go to the disk, into the book that all actors share, and to the frontier; and pages of crawls that
//! have a limit are counted now and then.
//!
//! **Limits hold for the whole cluster.** A node counts the pages of a crawl in the slots that it serves, and speaks for a share of what is left
//! (`proto/src/cluster/share.rs`): no more is handed out than asked for, besides what is in flight in slots that change hands.

use std::collections::{BTreeMap, BTreeSet};

use actix::{AsyncContext, Context, Handler, ResponseFuture};
use proto::cluster::coordinator::{Effect, Input};
use proto::cluster::registry::{Definition, NotDefined, Version};
use proto::cluster::slot_set::SlotSet;
use proto::control::crawl::CrawlCounts;
use proto::crawl::crawls::{Limits, Shares};
use proto::crawl::frontier;
use proto::crawl::politeness::{Micros, SECOND};
use proto::id::NodeId;
use tokio::sync::oneshot;

use super::{Coordinator, DiskError, Own, ReplicaJob};
use crate::messages::{Define, Defined};

/// How often pages are counted, at most.
const COUNT_EVERY: Micros = SECOND;
/// How much longer than counting took is waited before it is done again.
const COUNT_REST: Micros = 20;

/// Who waits for a definition to be kept.
pub(super) type Definer = oneshot::Sender<Result<Defined, NotDefined>>;

/// Counting pages.
#[derive(Default)]
pub(super) struct Counting {
    /// Since when, and in which slots.
    under_way: Option<(Micros, SlotSet)>,
    next: Micros,
}

/// The definitions that come into force with these effects. They do so together, before anybody hears of the first: what depends on all that is defined is worked out once
/// and not for each.
pub(super) fn all_redefined(effects: &mut [Effect]) -> Vec<Definition> {
    let of = |effect: &mut Effect| match effect {
        Effect::Redefined { definitions } => std::mem::take(definitions),
        _ => Vec::new(),
    };
    effects.iter_mut().flat_map(of).collect()
}

impl Coordinator {
    pub(super) fn store_definitions(&self, op: u64, definitions: Vec<Definition>, ctx: &mut Context<Self>) {
        let answer = self.ask_disk(|reply| ReplicaJob::Define { definitions, reply });
        let (me, life, fate) = (ctx.address(), self.life, self.parts.fate.clone());
        actix_rt::spawn(async move {
            let input = match answer.await {
                Ok(Ok(())) => Input::DefinitionsStored { op },
                Ok(Err(DiskError::Full(_))) => Input::DefinitionsFailed { op },
                Ok(Err(error)) => return fate.seal(&error),
                Err(_) => return fate.restart(),
            };
            me.do_send(Own::Happened { life, inputs: vec![input] }); // an answer
        });
    }

    /// Definitions are in force from now on.
    pub(super) fn redefined(&self, definitions: &[Definition]) -> frontier::Input {
        self.parts.book.define(definitions);
        (self.parts.cluster.defined)(definitions);
        frontier::Input::Crawls(self.parts.book.now())
    }

    pub(super) fn tell_definer(&mut self, ticket: u64, told: Result<(Version, BTreeSet<NodeId>), NotDefined>) {
        if let Some(definer) = self.definers.remove(&ticket) {
            // Who does not wait any more need not know.
            let _ = definer.send(told.map(|(version, by)| Defined { version, by }));
        }
    }

    /// Has pages counted, if there are crawls with a limit; and every hour rules made anew that have times in them.
    pub(super) fn count_pages(&mut self, ctx: &mut Context<Self>) {
        let frontier::Now { mono: now, unix_ms } = self.parts.clock.now();
        if self.core.is_some() && self.parts.book.turn(unix_ms) {
            self.tell_frontier(vec![frontier::Input::Crawls(self.parts.book.now())]);
        }
        let limited = self.parts.book.now().defined().any(|crawl| crawl.limits() != Limits::default());
        let (Some(core), None) = (&self.core, &self.counting.under_way) else { return };
        if !limited || now < self.counting.next {
            return;
        }
        let slots = core.counted_slots(now);
        self.counting.under_way = Some((now, slots.clone()));
        let answer = self.ask_disk(|reply| ReplicaJob::CountCrawls(slots, reply));
        let (me, life, fate) = (ctx.address(), self.life, self.parts.fate.clone());
        actix_rt::spawn(async move {
            match answer.await {
                Ok(Ok(counts)) => me.do_send(Own::Counted { life, counts }), // an answer
                Ok(Err(error)) => fate.seal(&error),
                Err(_) => fate.restart(),
            }
        });
    }

    pub(super) fn counted(&mut self, counts: &BTreeMap<String, CrawlCounts>, ctx: &mut Context<Self>) {
        let now = self.parts.clock.now().mono;
        let Some((began, slots)) = self.counting.under_way.take() else { return };
        self.counting.next = now + COUNT_EVERY.max(COUNT_REST * now.saturating_sub(began));
        let crawls = self.parts.book.now();
        let Some(core) = &mut self.core else { return };
        if core.counted_slots(now) != slots {
            return; // some came or went meanwhile
        }
        let counted = Shares::counted(&crawls, counts, |crawl| core.flying(crawl));
        let Shares { left, room } = Shares::new(&crawls, &core.count(now, &slots, &counted));
        if !room.is_empty() {
            drop(self.ask_disk(|reply| ReplicaJob::Room(room, reply))); // nobody waits for it
        }
        self.parts.book.set_left(&left);
        self.tell_frontier(vec![frontier::Input::Crawls(self.parts.book.now())]);
        self.happens([Input::Tick], ctx); // the others hear of it
    }
}

impl Handler<Define> for Coordinator {
    type Result = ResponseFuture<Result<Defined, NotDefined>>;

    fn handle(&mut self, Define { key, expects, body }: Define, ctx: &mut Self::Context) -> Self::Result {
        if self.core.is_none() {
            return Box::pin(async { Err(NotDefined::StartedAnew) });
        }
        self.next_ticket += 1;
        let (ticket, (definer, told)) = (self.next_ticket, oneshot::channel());
        self.definers.insert(ticket, definer);
        self.happens([Input::Define { ticket, key, expects, body }], ctx);
        Box::pin(async { told.await.unwrap_or(Err(NotDefined::StartedAnew)) })
    }
}
