//! Scores changed.

use actix::Message;
use tokio::sync::oneshot;

use crate::edges::store::Move;

/// These entries belong elsewhere in their queues. From the scoring thread to the frontier, which has the disk move them.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Rescored {
    /// The entries.
    pub moves: Vec<Move>,
    /// Hears how many were moved, when that is on disk; dropped if nobody could do it.
    pub done: oneshot::Sender<usize>,
}
