//! Storage: the way to the disk thread.
//! In: [`StorePage`] from scorer and fetcher, [`DiskRequest`] from the frontier. Out: [`LandedPage`] to the frontier.
//! Owns: nothing; the disk thread does. If it dies, what was in its mailbox is lost and comes back after its deadline.

use actix::{Actor, ActorFutureExt, AtomicResponse, Context, Handler, WrapFuture};
use tokio::sync::oneshot;

use super::can_crash;
use crate::edges::disk::{Disk, DiskError, Job};
use crate::messages::{DiskRequest, LandedPage, StorePage};
use crate::node::Fate;
use crate::supervisor::{Lifeline, Link};

/// The actor.
pub struct Storage {
    frontier: Link<LandedPage>,
    disk: Disk,
    fate: Fate,
    mailbox_max: usize,
    _lifeline: Lifeline,
}

impl Storage {
    /// A storage actor over `disk`.
    pub fn new(frontier: Link<LandedPage>, disk: Disk, fate: Fate, mailbox_max: usize, lifeline: Lifeline) -> Storage {
        Storage { frontier, disk, fate, mailbox_max, _lifeline: lifeline }
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
    }
}

impl Handler<StorePage> for Storage {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, StorePage(landing): StorePage, _ctx: &mut Self::Context) -> Self::Result {
        let (reply, answer) = oneshot::channel();
        let (frontier, fate) = (self.frontier.clone(), self.fate.clone());
        actix_rt::spawn(async move {
            match answer.await.unwrap_or(Err(DiskError::Stopped)) {
                Ok(landed) => frontier.answer(LandedPage(landed)),
                Err(error) => fate.seal(&error),
            }
        });
        self.submit(Job::Settle(landing, reply))
    }
}

impl Handler<DiskRequest> for Storage {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, DiskRequest(job): DiskRequest, _ctx: &mut Self::Context) -> Self::Result {
        self.submit(job)
    }
}

can_crash!(Storage);
