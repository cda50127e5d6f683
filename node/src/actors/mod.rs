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

pub mod fetcher;
pub mod frontier;
pub mod parser;
pub mod router;
pub mod scorer;
pub mod storage;

/// Lets an actor panic when it is told to.
macro_rules! can_crash {
    ($actor:ty) => {
        impl actix::Handler<crate::messages::Crash> for $actor {
            type Result = ();

            fn handle(&mut self, _: crate::messages::Crash, _ctx: &mut Self::Context) {
                panic!("asked to crash");
            }
        }
    };
}
pub(crate) use can_crash;
