//! What waits to be sent to one peer: three lanes, each with a stream of its own, so that a flood of records never stands before a lease,
//! and slots that are brought over never before what is being crawled.
//! Bounded by letters and by bytes. At the bound a letter is dropped, and one that waited too long is too: whoever needs its
//! answer has sent it again by then. Of slots a peer is sent only what it asked for, less than its lane holds.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::cluster::message::Message;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::codec::Sealed;

/// What one take gives at most, about.
const TAKE_BYTES: usize = 64 << 10;

/// How many lanes there are.
pub(super) const LANES: usize = 3;

/// Where a letter waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Small letters that keep nodes and leases alive.
    Urgent,
    /// Everything else.
    Data,
    /// Parts of slots.
    Bulk,
}

impl Lane {
    pub(super) const ALL: [Lane; LANES] = [Lane::Urgent, Lane::Data, Lane::Bulk];

    /// Where a message waits.
    pub(super) fn of(message: &Message) -> Lane {
        match (message.is_urgent(), message.is_bulk()) {
            (true, _) => Lane::Urgent,
            (_, true) => Lane::Bulk,
            _ => Lane::Data,
        }
    }

    /// A letter that waited longer is not sent. Requests are repeated after one second, five times is enough; a part of a slot takes its time on a
    /// slow line, and is not asked for again so soon.
    fn age_max(self) -> Duration {
        Duration::from_secs(if self == Lane::Bulk { 30 } else { 5 })
    }

    fn letters_max(self) -> usize {
        match self {
            Lane::Urgent => 4_096,
            Lane::Data => 8_192,
            Lane::Bulk => 256,
        }
    }

    fn bytes_max(self) -> usize {
        match self {
            Lane::Urgent => 2 << 20,
            Lane::Data | Lane::Bulk => 16 << 20,
        }
    }
}

#[derive(Default)]
struct Queue {
    letters: VecDeque<(Instant, Sealed)>,
    bytes: usize,
}

/// All lanes of a peer.
#[derive(Default)]
pub(super) struct Outbox {
    queues: [Mutex<Queue>; LANES],
    filled: [Notify; LANES],
}

/// What a take gave.
#[derive(Default)]
pub(super) struct Taken {
    /// To be sent, in order.
    pub(super) letters: Vec<Sealed>,
    /// Too old to be sent.
    pub(super) stale: Vec<Sealed>,
}

impl Outbox {
    fn queue(&self, lane: Lane) -> MutexGuard<'_, Queue> {
        self.queues[lane as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a letter, or gives it back if there is no room.
    pub(super) fn put(&self, lane: Lane, letter: Sealed, now: Instant) -> Result<(), Sealed> {
        let mut queue = self.queue(lane);
        let bytes = queue.bytes + letter.frame_bytes();
        // One letter always fits, whatever its length: else it never would.
        if queue.letters.len() >= lane.letters_max() || (bytes > lane.bytes_max() && !queue.letters.is_empty()) {
            return Err(letter);
        }
        queue.bytes = bytes;
        queue.letters.push_back((now, letter));
        drop(queue);
        self.filled[lane as usize].notify_one();
        Ok(())
    }

    /// Waits until there is something, and takes some of it. Each lane has one taker.
    pub(super) async fn take(&self, lane: Lane) -> Taken {
        loop {
            let filled = self.filled[lane as usize].notified();
            let taken = self.take_now(lane, Instant::now());
            if !taken.letters.is_empty() || !taken.stale.is_empty() {
                return taken;
            }
            filled.await;
            // Who has one letter for a peer mostly has more: what comes in the meantime goes with it, in one packet.
            tokio::task::yield_now().await;
        }
    }

    fn take_now(&self, lane: Lane, now: Instant) -> Taken {
        let mut queue = self.queue(lane);
        let mut taken = Taken::default();
        let mut bytes = 0;
        while bytes < TAKE_BYTES {
            let Some((since, letter)) = queue.letters.pop_front() else { break };
            queue.bytes -= letter.frame_bytes();
            if now > since + lane.age_max() {
                taken.stale.push(letter);
            } else {
                bytes += letter.frame_bytes();
                taken.letters.push(letter);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use proto::cluster::message::Letter;
    use proto::id::NodeId;

    use super::*;

    fn letter(bytes: usize) -> Sealed {
        let message = Message::Swim(vec![0; bytes]);
        Sealed::new(&Letter { cluster: 1, from: NodeId(1), boot: 1, clock: 1, message }).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn both_bounds_hold_and_one_lane_does_not_fill_the_other() {
        let outbox = Outbox::default();
        let now = Instant::now();
        let mut held = 0;
        while outbox.put(Lane::Data, letter(1 << 20), now).is_ok() {
            held += 1;
        }
        assert_eq!(held, 15, "16 MiB, and each letter is a little longer than its content");
        assert!(outbox.put(Lane::Data, letter(1), now).is_ok(), "what fits still fits");
        for _ in 0..Lane::Urgent.letters_max() {
            outbox.put(Lane::Urgent, letter(1), now).unwrap();
        }
        assert!(outbox.put(Lane::Urgent, letter(1), now).is_err());
        assert_eq!(outbox.take(Lane::Data).await.letters.len(), 1);
        assert!(outbox.put(Lane::Data, letter(1 << 20), now).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_letter_that_waited_too_long_is_not_sent() {
        let outbox = Outbox::default();
        outbox.put(Lane::Data, letter(1), Instant::now()).unwrap();
        tokio::time::advance(Lane::Data.age_max()).await;
        outbox.put(Lane::Data, letter(2), Instant::now()).unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        let taken = outbox.take(Lane::Data).await;
        assert_eq!((taken.letters.len(), taken.stale.len()), (1, 1));
    }

    #[test]
    fn what_a_node_draws_of_its_peer_fits_whole() {
        use proto::cluster::message::COPIES_BYTES_MAX;
        use proto::cluster::transfer::TransferRules;
        // One part of each transfer is on its way, and a part may be as long as its last record above its bound.
        let parts = TransferRules::default().at_once;
        assert!(parts * 2 * COPIES_BYTES_MAX <= Lane::Bulk.bytes_max() && parts * 2 <= Lane::Bulk.letters_max());
    }

    #[tokio::test(start_paused = true)]
    async fn a_taker_wakes_when_something_comes() {
        let outbox = std::sync::Arc::new(Outbox::default());
        let taker = tokio::spawn({
            let outbox = std::sync::Arc::clone(&outbox);
            async move { outbox.take(Lane::Urgent).await.letters.len() }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        outbox.put(Lane::Data, letter(1), Instant::now()).unwrap();
        assert!(!taker.is_finished());
        outbox.put(Lane::Urgent, letter(1), Instant::now()).unwrap();
        assert_eq!(taker.await.unwrap(), 1);
    }
}
