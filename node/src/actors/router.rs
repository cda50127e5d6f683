//! Router: which node runs a batch. One node alone runs all of them.
//! In: [`RunBatch`] from the frontier. Out: [`RunBatch`] to the fetcher of the chosen node. Owns: nothing.
//! If it dies, batches in its mailbox are lost; their flights lapse and the frontier offers them again.

use actix::{Actor, Context, Handler};

use super::can_end;
use crate::messages::RunBatch;
use crate::metrics::Metrics;
use crate::supervisor::{Lifeline, Link};

/// The actor.
pub struct Router {
    fetcher: Link<RunBatch>,
    metrics: Metrics,
    mailbox_max: usize,
    lifeline: Lifeline,
}

impl Router {
    /// A router that knows one fetcher.
    pub fn new(fetcher: Link<RunBatch>, metrics: Metrics, mailbox_max: usize, lifeline: Lifeline) -> Router {
        Router { fetcher, metrics, mailbox_max, lifeline }
    }
}

impl Actor for Router {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(self.mailbox_max);
        self.lifeline.has_room_for(self.mailbox_max);
    }
}

impl Handler<RunBatch> for Router {
    type Result = ();

    fn handle(&mut self, batch: RunBatch, _ctx: &mut Self::Context) {
        self.lifeline.handles();
        if self.fetcher.pass(batch).is_err() {
            self.metrics.dropped.inc();
        }
    }
}

can_end!(Router);
