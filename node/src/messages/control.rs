//! Asking and steering actors.

use actix::{Message, MessageResponse};

/// Asks the frontier where it stands.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Standing")]
pub struct GetStanding;

/// Where the frontier stands.
#[derive(Clone, Copy, Debug, MessageResponse)]
pub struct Standing {
    /// What the core says.
    pub core: proto::crawl::frontier::Standing,
    /// Admissions on their way to the disk.
    pub admitting: usize,
    /// The page limit is reached.
    pub spent: bool,
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
