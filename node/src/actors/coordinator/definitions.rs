//! The coordinator's part in definitions: they go to the disk, into the book that all actors share, and to the frontier; and pages of crawls that
//! have a limit are counted now and then.
//!
//! **Limits hold for the whole cluster.** A node counts the pages of a crawl in its slots and speaks for a share of what is left; what others
//! counted or speak for is not its to hand out. So with N nodes that have URLs of a crawl at most N − 1 pages more are fetched than asked for.

use std::collections::{BTreeMap, BTreeSet};

use actix::{AsyncContext, Context, Handler, ResponseFuture};
use proto::cluster::coordinator::Input;
use proto::cluster::registry::{Definition, NotDefined, Version};
use proto::control::crawl::CrawlCounts;
use proto::crawl::crawls::{self, Limits};
use proto::crawl::frontier;
use proto::crawl::politeness::{Micros, SECOND};
use proto::id::NodeId;
use tokio::sync::oneshot;

use super::{Coordinator, DiskError, Own, ReplicaJob};
use crate::messages::{Define, Defined};

/// Behind the name of a crawl: what is counted of it besides pages. No name has such a letter.
const ERRORS: &str = "\u{1}errors";
const URLS: &str = "\u{1}urls";
/// How often pages are counted, at most.
const COUNT_EVERY: Micros = SECOND;
/// How much longer than counting took is waited before it is done again.
const COUNT_REST: Micros = 20;

/// Who waits for a definition to be kept.
pub(super) type Definer = oneshot::Sender<Result<Defined, NotDefined>>;

/// Counting pages.
#[derive(Default)]
pub(super) struct Counting {
    under_way: Option<Micros>,
    next: Micros,
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

    /// Has pages counted, if there are crawls with a limit.
    pub(super) fn count_pages(&mut self, ctx: &mut Context<Self>) {
        let now = self.parts.clock.now().mono;
        let limited = self.parts.book.now().defined().any(|crawl| crawl.limits() != Limits::default());
        let (Some(core), None) = (&self.core, self.counting.under_way) else { return };
        if !limited || now < self.counting.next {
            return;
        }
        let slots = self.parts.cluster.rules.slots.iter().filter(|slot| core.holds(now, *slot)).collect();
        self.counting.under_way = Some(now);
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
        let took = self.counting.under_way.take().map_or(0, |began| now.saturating_sub(began));
        self.counting.next = now + COUNT_EVERY.max(COUNT_REST * took);
        let Some(core) = &self.core else { return };
        let (mut left, mut room, mut spoken) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut share = |what: String, limit: u64, here: u64| {
            let (theirs, others) = core.spoken_by_others(&what);
            let share = crawls::share(limit, here, theirs, others);
            spoken.insert(what, here + share);
            share
        };
        for crawl in self.parts.book.now().defined() {
            let (name, limits) = (&crawl.definition.name, crawl.limits());
            let Some(here) = counts.get(name) else { continue };
            let pages = limits.pages.map(|limit| share(name.clone(), limit, here.totals.processed));
            // Every page that is handed out may fail.
            let errors = limits.errors.map(|limit| share(format!("{name}{ERRORS}"), limit, here.totals.failed));
            if limits != Limits::default() {
                left.insert(name.clone(), pages.into_iter().chain(errors).min().unwrap_or(u64::MAX));
            }
            if let Some(limit) = limits.urls {
                room.insert(name.clone(), share(format!("{name}{URLS}"), limit, here.totals.known));
            }
        }
        if !room.is_empty() {
            drop(self.ask_disk(|reply| ReplicaJob::Room(room, reply))); // nobody waits for it
        }
        self.parts.book.set_left(&left);
        self.tell_frontier(vec![frontier::Input::Crawls(self.parts.book.now())]);
        self.happens([Input::Counted(spoken)], ctx);
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
