//! The actors of a node, and how work flows between them.
//!
//! ```text
//!  seeds ──▶ frontier ──▶ router ──▶ fetcher ──▶ parser ──▶ scorer ──▶ storage ──▶ disk thread
//!               ▲ ▲                     │ fetch ended                     │ landed
//!               │ └─────────────────────┘                                 │
//!               └─────────────────────────────────────────────────────────┘
//! ```
//! The flow is bounded by credit: the frontier hands out at most `concurrency` URLs that are not yet settled on disk, so no
//! mailbox of the pipeline ever holds more. A slow disk therefore leaves the frontier without credit and slows the crawl, and
//! memory stays what `concurrency` pages need. Mailboxes are bounded to that number all the same; a message that does not
//! fit is dropped and counted, and its URL comes back when its flight's deadline passes.
//!
//! In a cluster the coordinator stands between the frontier and the rest, on every node: what the frontier hands out goes to the
//! coordinator of the node that is to fetch it, and what came of it returns the same way.
//!
//! ```text
//!  frontier ◀──▶ coordinator ◀──▶ network ◀──▶ other nodes' coordinators
//!                  │  ▲  ▲ kept
//!                  ▼  │  └──────────────────────────────────────┐
//!               router │ ──▶ fetcher ──▶ parser ──▶ scorer ──▶ storage ──▶ disk thread
//! ```
//! On the way from storage to the coordinator a page passes the copier, which has it kept on a second node first.

pub mod coordinator;
pub mod copier;
pub mod fetcher;
pub mod frontier;
pub mod parser;
pub mod router;
pub mod scorer;
pub mod storage;

/// Lets an actor end, or panic, when it is told to.
macro_rules! can_end {
    ($actor:ty) => {
        impl actix::Handler<crate::messages::End> for $actor {
            type Result = ();

            fn handle(&mut self, _: crate::messages::End, ctx: &mut Self::Context) {
                actix::ActorContext::terminate(ctx);
            }
        }

        impl actix::Handler<crate::messages::Crash> for $actor {
            type Result = ();

            fn handle(&mut self, _: crate::messages::Crash, _ctx: &mut Self::Context) {
                panic!("asked to crash");
            }
        }
    };
}
pub(crate) use can_end;
