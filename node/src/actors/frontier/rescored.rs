//! Scores changed: the queues go by them from now on.

use std::collections::BTreeSet;

use actix::{AsyncContext, Context, Handler, Message};
use proto::crawl::frontier::Input;
use proto::key::QueueKey;
use tokio::sync::oneshot;

use super::Frontier;
use crate::edges::disk::Job;
use crate::messages::{DiskRequest, Rescored};

/// Entries have other places on disk, and so many of them. From this actor's own task.
#[derive(Debug, Message)]
#[rtype(result = "()")]
struct Moved(usize, oneshot::Sender<usize>);

impl Handler<Rescored> for Frontier {
    type Result = ();

    /// The disk is told first and the core then forgets what it has of these queues, in one go: whatever was picked before is written down as
    /// such ahead of this, and whatever is read after comes behind it. News of an entry that was admitted before and is moved now may still be on
    /// its way (see `where_it_is`). So no entry is ever handed out by a place that it has left.
    fn handle(&mut self, Rescored { moves, done }: Rescored, ctx: &mut Context<Self>) {
        self.lifeline.handles();
        let queues: BTreeSet<QueueKey> = moves.iter().map(|moved| moved.queue.clone()).collect();
        self.moving = moves.iter().map(|moved| (moved.order, moved.queue.clone())).collect();
        let (reply, answer) = oneshot::channel();
        self.parts.storage.answer(DiskRequest(Job::Reorder(moves, reply))); // one at a time: who sends them waits for `done`
        let me = ctx.address();
        self.hear(answer, move |moved| me.do_send(Moved(moved, done))); // an answer
        self.step(queues.into_iter().map(|queue| Input::Reordered { queue }), ctx);
    }
}

impl Handler<Moved> for Frontier {
    type Result = ();

    /// The disk's answers come in the order of its commits: news of what was admitted before the move is ahead of this.
    fn handle(&mut self, Moved(moved, done): Moved, _ctx: &mut Context<Self>) {
        self.moving.clear();
        let _ = done.send(moved); // the scoring thread may have ended meanwhile
    }
}

impl Frontier {
    /// News of an entry at a place that it is leaving only says that there is something to be read.
    pub(super) fn where_it_is(&self, input: Input) -> Input {
        match input {
            Input::Admitted { queue, order, .. }
                if !self.moving.is_empty() && self.moving.contains(&(order, queue.clone())) =>
            {
                Input::Reordered { queue }
            }
            input => input,
        }
    }
}
