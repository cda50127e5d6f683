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

/// Lets an actor end, panic, or keep its mailbox waiting, when it is told to.
macro_rules! can_end {
    ($actor:ty) => {
        impl actix::Handler<crate::messages::End> for $actor {
            type Result = ();

            fn handle(&mut self, _: crate::messages::End, ctx: &mut Self::Context) {
                // Not `terminate`: an actor that cancelled a future in the same turn would then be polled for ever.
                actix::ActorContext::stop(ctx);
            }
        }

        impl actix::Handler<crate::messages::Crash> for $actor {
            type Result = ();

            fn handle(&mut self, _: crate::messages::Crash, _ctx: &mut Self::Context) {
                panic!("asked to crash");
            }
        }

        impl actix::Handler<crate::messages::Hold> for $actor {
            type Result = ();

            fn handle(&mut self, crate::messages::Hold(time): crate::messages::Hold, ctx: &mut Self::Context) {
                actix::AsyncContext::wait(ctx, actix::fut::wrap_future::<_, Self>(tokio::time::sleep(time)));
            }
        }
    };
}
pub(crate) use can_end;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use actix::{Actor, AsyncContext, Context, Handler, Message, System};

    use crate::messages::{Crash, End, Hold};

    /// Its alarm is put off with every message, as the frontier's is.
    struct Alarmed(mpsc::Sender<()>);

    #[derive(Message)]
    #[rtype(result = "()")]
    struct PutOff;

    impl Actor for Alarmed {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Self::Context) {
            ctx.run_later(Duration::from_secs(3_600), |_, _| {});
        }

        fn stopped(&mut self, _ctx: &mut Self::Context) {
            let _ = self.0.send(()); // the test may have given up
        }
    }

    impl Handler<PutOff> for Alarmed {
        type Result = ();

        fn handle(&mut self, _: PutOff, ctx: &mut Self::Context) {
            let alarm = ctx.run_later(Duration::from_secs(3_600), |_, _| {});
            ctx.cancel_future(alarm);
        }
    }

    can_end!(Alarmed);

    #[test]
    fn an_actor_that_is_held_comes_to_its_mailbox_later() {
        let paused = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        System::with_tokio_rt(move || paused().expect("a runtime")).block_on(async {
            let (ended, _end) = mpsc::channel();
            let (actor, began) = (Alarmed(ended).start(), tokio::time::Instant::now());
            actor.send(Hold(Duration::from_secs(5))).await.expect("it takes that");
            actor.send(PutOff).await.expect("it goes on");
            assert_eq!(began.elapsed().as_secs(), 5);
        });
    }

    #[test]
    fn an_actor_that_put_its_alarm_off_in_the_same_turn_ends() {
        let (ended, end) = mpsc::channel();
        // A thread of its own: if it spins, nothing on it can notice.
        std::thread::spawn(|| {
            System::new().block_on(async move {
                let actor = Alarmed(ended).start();
                actor.do_send(PutOff);
                actor.do_send(End);
                assert!(actor.send(Crash).await.is_err(), "nobody is there");
            });
        });
        end.recv_timeout(Duration::from_secs(60)).expect("it ends");
    }
}
