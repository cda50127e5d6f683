//! Copier: has every page kept on a second node. The shell of the core of contents.
//! In: [`KeptPage`] from storage. Out: [`KeptPage`] to the coordinator, when the page has its second copy, or never if it does not get one.
//! Owns: the core's state, which follows from the disk, and pages that wait. If it dies, those are lost; their flights lapse and they are
//! fetched again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message};
use proto::cluster::contents::{ContentKey, ContentRules, Contents, Effect, Holding, Input};
use proto::cluster::coordinator::Sight;
use proto::cluster::ring::Rings;
use proto::id::NodeId;
use tokio::time::Duration;
use tracing::{debug, warn};

use super::can_end;
use crate::edges::clock::Clock;
use crate::edges::contents::{Line, Pushed};
use crate::edges::disk::{ContentJob, Disk, DiskError, Job, Kept, Stand};
use crate::messages::{ClusterView, GetClusterView, IsDispensable, KeptPage};
use crate::metrics::Metrics;
use crate::node::Fate;
use crate::supervisor::{Lifeline, Link};

/// How often it is looked who is there, and what the disk says.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After a full disk the same is tried again by then.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What a copier needs, the same for every life of it.
#[derive(Clone)]
pub struct CopierParts {
    /// This node.
    pub me: NodeId,
    /// Rings that were built.
    pub rings: Rings,
    /// Who knows who is there.
    pub view: Link<GetClusterView>,
    /// Who hears of pages.
    pub coordinator: Link<KeptPage>,
    /// The way to other nodes.
    pub line: Arc<dyn Line>,
    /// The disk.
    pub disk: Disk,
    /// The clocks.
    pub clock: Clock,
    /// Counters.
    pub metrics: Metrics,
    /// Where the node learns that it cannot go on.
    pub fate: Fate,
    /// Times and bounds.
    pub rules: ContentRules,
    /// Hears what was decided.
    pub watch: Arc<dyn Fn(Sight) + Send + Sync>,
    /// Room in the mailbox.
    pub mailbox_max: usize,
}

/// The actor.
pub struct Copier {
    parts: CopierParts,
    /// `None` until the disk has said how things stand.
    core: Option<Contents>,
    folder: u64,
    pages: BTreeMap<u64, Kept>,
    /// Those of them that came before the core was there.
    early: Vec<(u64, ContentKey, u32)>,
    next_ticket: u64,
    /// How far a disk that was trusted with copies has been taken for lost.
    taking_back: Option<(Holding, Vec<u8>)>,
    lifeline: Lifeline,
}

/// From this actor's own tasks.
#[derive(Message)]
#[rtype(result = "()")]
enum Own {
    Looked { view: ClusterView, stand: Stand },
    Happened(Input),
    Pushed { to: NodeId, pushed: Pushed },
    Marked { keys: Vec<ContentKey>, stand: Stand },
    TakenBack { holding: Holding, next: Option<Vec<u8>>, stand: Stand },
}

impl Copier {
    /// A copier that knows nothing yet.
    pub fn new(parts: CopierParts, lifeline: Lifeline) -> Copier {
        let (pages, early, taking_back) = (BTreeMap::new(), Vec::new(), None);
        Copier { parts, core: None, folder: 0, pages, early, next_ticket: 0, taking_back, lifeline }
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        let (view, disk, me) = (self.parts.view.clone(), self.parts.disk.clone(), ctx.address());
        actix_rt::spawn(async move {
            let stand = disk.ask(|reply| Job::Content(ContentJob::Stand(reply))).await;
            // A coordinator that is being replaced, or a disk that stops: there is another look in a second.
            if let (Ok(view), Ok(stand)) = (view.send(GetClusterView).await, stand) {
                me.do_send(Own::Looked { view, stand });
            }
        });
    }

    fn looked(&mut self, view: &ClusterView, stand: Stand, ctx: &mut Context<Self>) {
        self.folder = stand.folder;
        if self.core.is_none() {
            self.core = Some(Contents::new(self.parts.me, self.parts.rules, stand.standing.clone()));
        }
        self.step(Input::Standing(stand.standing), ctx);
        for (ticket, key, bytes) in std::mem::take(&mut self.early) {
            self.step(Input::Kept { ticket, key, bytes }, ctx);
        }
        if view.life == 0 {
            return; // the coordinator has not begun
        }
        let ring = self.parts.rings.get(&view.members);
        let members: BTreeSet<NodeId> = view.members.keys().copied().collect();
        let alive: BTreeSet<NodeId> = view.alive.iter().copied().collect();
        self.step(Input::View { ring, members, alive, size: view.size }, ctx);
    }

    fn step(&mut self, input: Input, ctx: &mut Context<Self>) {
        let Some(core) = &mut self.core else { return };
        let mut effects = Vec::new();
        core.step(self.parts.clock.now().mono, input, &mut effects);
        let shown = &self.parts.metrics.cluster;
        shown.contents_lacking.set(i64::try_from(core.lacking()).unwrap_or(i64::MAX));
        effects.into_iter().for_each(|effect| self.perform(effect, ctx));
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let (disk, me) = (self.parts.disk.clone(), ctx.address());
        match effect {
            Effect::Release { ticket } => {
                if let Some(kept) = self.pages.remove(&ticket) {
                    if let Some((key, _)) = &kept.lacks {
                        (self.parts.watch)(Sight::PageKept { url: key.url.id(), round: key.round });
                    }
                    self.parts.coordinator.answer(KeptPage(kept));
                }
            }
            Effect::Lapse { ticket } => {
                self.parts.metrics.cluster.contents_late.inc();
                (self.parts.watch)(Sight::Sometimes("page_lapsed"));
                if let Some(kept) = self.pages.remove(&ticket) {
                    debug!(flight = kept.flight, "a page has no second copy in time; it is fetched again");
                }
            }
            Effect::List { after, limit } => self.work(async move {
                let (pages, next) = disk.ask(|reply| Job::Content(ContentJob::List(after, limit, reply))).await?;
                me.do_send(Own::Happened(Input::Listed { pages, next })); // an answer
                Ok(())
            }),
            Effect::Push { to, keys } => {
                let (line, folder) = (Arc::clone(&self.parts.line), self.folder);
                self.work(async move {
                    let pages = disk.ask(|reply| Job::Content(ContentJob::Offers(keys, reply))).await?;
                    let pushed = line.push(to, folder, pages).await;
                    me.do_send(Own::Pushed { to, pushed }); // an answer
                    Ok(())
                });
            }
            Effect::Mark { keys, holding } => self.work(async move {
                let named = keys.clone();
                let marked = disk.ask(|reply| Job::Content(ContentJob::Mark(named, holding, reply))).await;
                if let Err(DiskError::Full(error)) = &marked {
                    warn!(%error, "copies cannot be written down; they stay on the list");
                } else {
                    marked?;
                }
                let stand = disk.ask(|reply| Job::Content(ContentJob::Stand(reply))).await?;
                me.do_send(Own::Marked { keys, stand }); // an answer
                Ok(())
            }),
            Effect::TakeBack { holding } => {
                (self.parts.watch)(Sight::Sometimes("pages_taken_back"));
                let after = self.taking_back.take().filter(|(of, _)| *of == holding).map(|(_, after)| after);
                if after.is_none() {
                    warn!(node = holding.node.0, "copies of pages are lost with a node; they are made anew");
                }
                self.work(async move {
                    let taken = loop {
                        let after = after.clone();
                        match disk.ask(|reply| Job::Content(ContentJob::TakeBack(holding, after, reply))).await {
                            Err(DiskError::Full(_)) => tokio::time::sleep(AGAIN_AFTER).await,
                            taken => break taken?,
                        }
                    };
                    let stand = disk.ask(|reply| Job::Content(ContentJob::Stand(reply))).await?;
                    me.do_send(Own::TakenBack { holding, next: taken, stand }); // an answer
                    Ok(())
                });
            }
        }
    }

    /// Does something with the disk; the node stops if that cannot be trusted any more.
    fn work(&self, task: impl Future<Output = Result<(), DiskError>> + 'static) {
        let fate = self.parts.fate.clone();
        actix_rt::spawn(async move {
            if let Err(error) = task.await {
                fate.seal(&error);
            }
        });
    }

    fn pushed(&mut self, to: NodeId, pushed: Pushed, ctx: &mut Context<Self>) {
        let Pushed { folder, copied, unreadable, failure } = pushed;
        if let Some(failure) = &failure {
            debug!(to = to.0, failure, "pages were not copied; another node gets them, or this one later");
        }
        self.parts.metrics.cluster.contents_copied.inc_by(copied.len() as u64);
        if !copied.is_empty() {
            (self.parts.watch)(Sight::Sometimes("pages_copied"));
        }
        self.step(Input::Pushed { to, folder, copied, unreadable, whole: failure.is_none() }, ctx);
    }
}

impl Actor for Copier {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.parts.mailbox_max);
        self.lifeline.has_room_for(self.parts.mailbox_max);
        ctx.run_interval(LOOK_EVERY, Copier::look);
        self.look(ctx);
    }
}

impl Handler<KeptPage> for Copier {
    type Result = ();

    fn handle(&mut self, KeptPage(kept): KeptPage, ctx: &mut Self::Context) {
        self.lifeline.handles();
        let Some((key, bytes)) = kept.lacks.clone() else {
            return self.parts.coordinator.answer(KeptPage(kept));
        };
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.pages.insert(ticket, kept);
        if self.core.is_none() {
            return self.early.push((ticket, key, bytes)); // as many as are being fetched in the first second
        }
        self.step(Input::Kept { ticket, key, bytes }, ctx);
    }
}

impl Handler<IsDispensable> for Copier {
    type Result = bool;

    fn handle(&mut self, _: IsDispensable, _ctx: &mut Self::Context) -> bool {
        self.lifeline.handles();
        self.core.as_ref().is_some_and(Contents::is_dispensable)
    }
}

impl Handler<Own> for Copier {
    type Result = ();

    fn handle(&mut self, own: Own, ctx: &mut Self::Context) {
        match own {
            Own::Looked { view, stand } => self.looked(&view, stand, ctx),
            Own::Happened(input) => self.step(input, ctx),
            Own::Pushed { to, pushed } => self.pushed(to, pushed, ctx),
            Own::Marked { keys, stand } => self.step(Input::Marked { keys, standing: stand.standing }, ctx),
            Own::TakenBack { holding, next, stand } => {
                let done = next.is_none();
                self.taking_back = next.map(|after| (holding, after));
                self.step(Input::TakenBack { done, standing: stand.standing }, ctx);
            }
        }
    }
}

can_end!(Copier);
