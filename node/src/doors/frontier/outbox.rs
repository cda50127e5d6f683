//! Answers on their way to a client. One that reads slowly, or never, holds so many of them, and so many bytes.

use std::sync::Arc;

use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

/// Bytes of answers that wait; one that is longer waits alone.
const BYTES_MAX: usize = 256 << 10;

/// Where answers are put.
pub(super) struct Outbox<T> {
    waiting: mpsc::Sender<(Result<T, Status>, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

/// An outbox for at most `count` answers, and what the client reads of it.
pub(super) fn outbox<T: Message + 'static>(count: usize) -> (Outbox<T>, impl Stream<Item = Result<T, Status>>) {
    let (waiting, answers) = mpsc::channel(count);
    let room = Arc::new(Semaphore::new(BYTES_MAX));
    // The room of an answer is free when it is taken, or nobody reads any more.
    (Outbox { waiting, room }, ReceiverStream::new(answers).map(|(answer, _room)| answer))
}

impl<T: Message> Outbox<T> {
    /// Puts an answer in once there is room; says whether somebody still reads.
    pub(super) async fn send(&self, answer: T) -> bool {
        let bytes = answer.encoded_len();
        self.put(Ok(answer), bytes).await
    }

    /// Tells the client why nothing more comes.
    pub(super) async fn fail(&self, status: Status) {
        self.put(Err(status), 0).await;
    }

    async fn put(&self, answer: Result<T, Status>, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes.min(BYTES_MAX)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(bytes).await else { return false };
        self.waiting.send((answer, room)).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::doors::frontier::api::AckMessage;

    fn ack(bytes: usize) -> AckMessage {
        AckMessage { id: "x".repeat(bytes), status: 0 }
    }

    /// Puts answers in until there is no room; how many went.
    fn fill(outbox: &Outbox<AckMessage>, bytes: usize) -> usize {
        (0..10_000).take_while(|_| outbox.send(ack(bytes)).now_or_never() == Some(true)).count()
    }

    #[test]
    fn answers_that_nobody_reads_are_bounded_by_number_and_by_bytes() {
        let (outbox, answers) = outbox(1_024);
        let mut answers = Box::pin(answers);
        assert_eq!(fill(&outbox, 40), 1_024);
        assert!((0..1_024).all(|_| answers.next().now_or_never().flatten().is_some()));
        let large = fill(&outbox, 60 << 10);
        assert_eq!(large, 4, "{} KiB", large * 60);
        assert!((0..large).all(|_| answers.next().now_or_never().flatten().is_some()));
        // As long as a message may be: alone, and whoever waits behind it goes on when it is taken.
        assert_eq!(fill(&outbox, 4 << 20), 1);
        let mut behind = Box::pin(outbox.send(ack(1)));
        assert_eq!(behind.as_mut().now_or_never(), None);
        assert_eq!(answers.next().now_or_never().flatten().unwrap().unwrap().id.len(), 4 << 20);
        assert_eq!(behind.now_or_never(), Some(true));
    }

    #[test]
    fn nobody_waits_for_a_client_that_is_gone() {
        let (outbox, answers) = outbox(1_024);
        assert_eq!(fill(&outbox, 100 << 10), 2);
        let mut waits = Box::pin(outbox.send(ack(100 << 10)));
        assert_eq!(waits.as_mut().now_or_never(), None);
        drop(answers);
        assert_eq!(waits.now_or_never(), Some(false));
    }
}
