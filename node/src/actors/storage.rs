//! Storage: the way to the disk thread.
//! In: [`StorePage`] from scorer and fetcher, [`DiskRequest`] from frontier and coordinator. Out: [`LandedPages`] to the frontier, or in a
//! cluster [`KeptPage`] to the coordinator, because the owner of a page settles it and not who fetched it.
//! Owns: nothing; the disk thread does. If it dies, what was in its mailbox is lost and comes back after its deadline.

use actix::{Actor, ActorFutureExt, AtomicResponse, Context, Handler, WrapFuture};
use tokio::sync::oneshot;
use tracing::warn;

use super::can_end;
use crate::edges::disk::{Disk, DiskError, Job, ReplicaJob, Settled};
use crate::messages::{DiskRequest, KeptPage, LandedPages, StorePage};
use crate::node::Fate;
use crate::supervisor::{Lifeline, Link};

/// Who hears of a page that is on disk.
#[derive(Clone)]
pub enum Landed {
    /// A node alone settles it at once.
    Frontier(Link<LandedPages>),
    /// In a cluster its content is kept here, and its owner settles it.
    Coordinator(Link<KeptPage>),
}

/// The actor.
pub struct Storage {
    landed: Landed,
    /// How a node alone hears of pages.
    settled: Settled,
    disk: Disk,
    fate: Fate,
    mailbox_max: usize,
    lifeline: Lifeline,
}

impl Storage {
    /// A storage actor over `disk`.
    pub fn new(landed: Landed, disk: Disk, fate: Fate, mailbox_max: usize, lifeline: Lifeline) -> Storage {
        let settled = settled(&landed, &fate);
        Storage { landed, settled, disk, fate, mailbox_max, lifeline }
    }

    /// Hands a job to the disk before anything else is taken from the mailbox: a full disk queue fills the mailbox.
    fn submit(&self, job: Job) -> AtomicResponse<Self, ()> {
        let (disk, fate) = (self.disk.clone(), self.fate.clone());
        let submitted = async move { disk.submit(job).await };
        AtomicResponse::new(Box::pin(submitted.into_actor(self).map(move |submitted, _, _| {
            if let Err(error) = submitted {
                fate.seal(&error);
            }
        })))
    }
}

impl Actor for Storage {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
        self.lifeline.has_room_for(self.mailbox_max);
    }
}

impl Handler<StorePage> for Storage {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, StorePage(landing): StorePage, _ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        let fate = self.fate.clone();
        match self.landed.clone() {
            Landed::Frontier(_) => self.submit(Job::Settle(landing, self.settled.clone())),
            Landed::Coordinator(coordinator) => {
                let (reply, answer) = oneshot::channel();
                actix_rt::spawn(async move {
                    match answer.await.unwrap_or(Err(DiskError::Stopped)) {
                        Ok(kept) => coordinator.answer(KeptPage(kept)),
                        // Its owner puts it back after its deadline, and others fetch it.
                        Err(DiskError::Full(error)) => warn!(%error, "a page cannot be kept"),
                        Err(error) => fate.seal(&error),
                    }
                });
                self.submit(Job::Replica(ReplicaJob::Keep(landing, reply)))
            }
        }
    }
}

impl Handler<DiskRequest> for Storage {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, DiskRequest(job): DiskRequest, _ctx: &mut Self::Context) -> Self::Result {
        self.lifeline.handles();
        self.submit(job)
    }
}

can_end!(Storage);

/// Tells the frontier what is on disk, or the node that it cannot go on.
fn settled(landed: &Landed, fate: &Fate) -> Settled {
    let (landed, fate) = (landed.clone(), fate.clone());
    Settled::new(move |settled| match (settled, &landed) {
        (Ok(pages), Landed::Frontier(frontier)) => frontier.answer(LandedPages(pages)), // as many as were handed out
        (Ok(_), Landed::Coordinator(_)) => {} // only a node alone settles here
        (Err(error), _) => fate.seal(&error),
    })
}
