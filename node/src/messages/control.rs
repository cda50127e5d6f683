//! Asking and steering actors.

use actix::{Message, MessageResponse};
use proto::crawl::frontier::Trouble;
use proto::crawl::politeness::Micros;

/// Asks the frontier where it stands.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Standing")]
pub struct GetStanding;

/// Where the frontier stands.
#[derive(Clone, Debug, MessageResponse)]
pub struct Standing {
    /// What the core says.
    pub core: proto::crawl::frontier::Standing,
    /// Admissions on their way to the disk.
    pub admitting: usize,
    /// The page limit is reached.
    pub spent: bool,
    /// No host that has URLs can be reached.
    pub stranded: bool,
    /// The clock that the core goes by, monotonic microseconds.
    pub now: Micros,
    /// Some of the hosts that are left alone for now, and why.
    pub troubles: Vec<Trouble>,
}

/// Tells the frontier to hand out nothing more.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Halt;

/// Tells the frontier to make way for a successor, which reads its view from disk. From its own tasks.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Restart;

/// Ends an actor, for good: its node stops. Whatever waits in its mailbox behind this is lost.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct End;

/// Makes an actor panic: how tests see that a death loses nothing.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Crash;

/// Keeps an actor from its mailbox for so long: how tests see what a slow one does to the others.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct Hold(pub std::time::Duration);
