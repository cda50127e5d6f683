//! Letters on streams. Each node opens one stream for each lane to each other node, and keeps it; letters go one way on it. Nothing
//! comes back but the answer to the hello, so that a byte or the end of the stream means: open another.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{AsyncReadExt, AsyncWriteExt};
use libp2p::PeerId;
use libp2p::swarm::Stream;
use tokio::time::Instant;

use super::codec::{self, LETTER_BYTES_MAX};
use super::frame::{self, FrameReader};
use super::identity::node_of;
use super::metrics::Drop;
use super::outbox::{Lane, Taken};
use super::refusal::Refusal;
use super::shared::{Link, Shared};
use super::streams::{OpenError, Purpose};

/// Wait before a stream is opened again; doubles up to the maximum.
const REOPEN_MIN: Duration = Duration::from_millis(50);
const REOPEN_MAX: Duration = Duration::from_secs(5);

/// What is read of one stream in a second: far more than a node has to say, far less than would hinder the others.
const LETTERS_PER_SECOND: u32 = 20_000;
const BYTES_PER_SECOND: u32 = 64 << 20;

/// Sends what is in a lane for as long as the peer is one of ours. Ends only when it is aborted.
pub(super) async fn send(shared: Arc<Shared>, link: Arc<Link>, lane: Lane) {
    let mut wait = REOPEN_MIN;
    loop {
        link.connection(lane).await;
        let began = Instant::now();
        match session(&shared, &link, lane).await {
            // The stream ended. If it lasted, the next is opened soon.
            None if began.elapsed() > REOPEN_MAX => wait = REOPEN_MIN,
            None => {}
            Some((why, detail)) => shared.cut(link.peer, why, &detail).await,
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(REOPEN_MAX);
    }
}

/// One stream, from its opening to its end. Returns why the peer is to be cut off, if it is.
async fn session(shared: &Shared, link: &Link, lane: Lane) -> Option<(Refusal, String)> {
    let mut stream = match shared.open(link.peer, Purpose::Letters).await {
        Ok(stream) => stream,
        Err(error @ OpenError::Unsupported) => return Some((Refusal::Cluster, error.to_string())),
        Err(error) => {
            tracing::debug!(peer = %link.peer, ?lane, %error, "cannot open a stream for letters");
            return None;
        }
    };
    let version = match shared.hello.ask(&mut stream, shared.times.hello).await {
        Ok(version) => version,
        Err(error) => {
            tracing::debug!(peer = %link.peer, ?lane, %error, "nothing was agreed on a stream for letters");
            return Refusal::of_hello(&error).map(|why| (why, error.to_string()));
        }
    };
    link.agreed(version);
    let (mut reader, mut writer) = stream.split();
    let mut nothing = [0];
    let mut ended = reader.read(&mut nothing);
    let mut buffer = Vec::new();
    loop {
        let taken = tokio::select! {
            biased;
            _ = &mut ended => return None,
            taken = link.outbox.take(lane) => taken,
        };
        let sent = fill(shared, version, taken, &mut buffer);
        let write = async {
            writer.write_all(&buffer).await?;
            writer.flush().await
        };
        match tokio::time::timeout(shared.times.write, write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(peer = %link.peer, ?lane, %error, "a stream for letters failed");
                return None;
            }
            Err(_) => return Some((Refusal::Slow, format!("took nothing for {} s", shared.times.write.as_secs()))),
        }
        sent.into_iter().for_each(|kind| shared.metrics.went(kind));
        shared.metrics.bytes_out.inc_by(buffer.len() as u64);
    }
}

/// Puts letters into frames; returns which those are.
fn fill(shared: &Shared, version: u16, taken: Taken, buffer: &mut Vec<u8>) -> Vec<&'static str> {
    buffer.clear();
    let mut sent = Vec::with_capacity(taken.letters.len());
    for letter in taken.letters {
        if letter.since > version {
            shared.metrics.dropped(letter.kind, Drop::Unspoken);
            continue;
        }
        let framed: Result<(), std::convert::Infallible> = frame::append(buffer, |out| {
            letter.append_to(version, shared.cluster(), out);
            Ok(())
        });
        framed.unwrap_or_else(|never| match never {});
        sent.push(letter.kind);
    }
    for letter in taken.stale {
        shared.metrics.dropped(letter.kind, Drop::Stale);
    }
    sent
}

/// Reads the letters of a stream that a node opened, until it ends or is cut off.
pub(super) async fn receive(shared: Arc<Shared>, peer: PeerId, mut stream: Stream) {
    let version = match shared.hello.answer(&mut stream, shared.times.hello).await {
        Ok(version) => version,
        Err(error) => {
            if let Some(why) = Refusal::of_hello(&error) {
                shared.cut(peer, why, &error).await;
            }
            return;
        }
    };
    shared.link_to(peer).agreed(version);
    let sender = node_of(&peer);
    let mut reader = FrameReader::new(stream, LETTER_BYTES_MAX, shared.times.frame);
    let mut pace = Pace::new(Instant::now());
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(error) => {
                match Refusal::of_frame(&error) {
                    Some(why) => shared.cut(peer, why, &error).await,
                    None => tracing::debug!(%peer, %error, "a stream of letters ended"),
                }
                return;
            }
        };
        shared.metrics.bytes_in.inc_by(frame.len() as u64);
        match codec::open(version, shared.cluster(), sender, &frame) {
            Ok(letter) => {
                let kind = letter.message.name();
                shared.metrics.came(kind);
                if !(shared.doors.deliver)(letter) {
                    shared.metrics.dropped(kind, Drop::NoRoom);
                }
            }
            Err(error) => {
                shared.cut(peer, Refusal::of_letter(&error), &error).await;
                return;
            }
        }
        if let Some(until) = pace.spend(frame.len(), Instant::now()) {
            shared.metrics.throttled.inc();
            tokio::time::sleep_until(until).await;
        }
        // Frames that are already in memory would be read without a pause.
        tokio::task::consume_budget().await;
    }
}

/// How fast a stream is read: what is over the rate must wait, and through the window of its stream so must its sender.
struct Pace {
    /// What was read would have taken until then at the highest rate.
    paid_until: Instant,
}

impl Pace {
    /// What a peer may send at once, in time at the highest rate.
    const BURST: Duration = Duration::from_secs(1);

    fn new(now: Instant) -> Pace {
        Pace { paid_until: now }
    }

    /// Counts a letter. Returns until when to wait before the next is read, if it is too early.
    fn spend(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        let by_number = Duration::from_secs(1) / LETTERS_PER_SECOND;
        let by_size = Duration::from_secs(1).mul_f64(bytes as f64 / f64::from(BYTES_PER_SECOND));
        self.paid_until = self.paid_until.max(now) + by_number.max(by_size);
        (self.paid_until > now + Self::BURST).then(|| self.paid_until - Self::BURST)
    }
}

#[cfg(test)]
mod tests {
    use libp2p::PeerId;
    use proto::cluster::message::{Letter, Message, Op};
    use proto::id::{ClusterId, NodeId};
    use tokio::sync::mpsc;

    use super::super::codec::Sealed;
    use super::super::hello::{Hello, Versions};
    use super::super::metrics::SwarmMetrics;
    use super::super::roster::Roster;
    use super::super::settings::{Doors, Times};
    use super::*;

    #[test]
    fn what_an_older_node_does_not_know_is_not_said_to_it() {
        let (commands, _) = mpsc::channel(1);
        let hello = Hello { cluster: ClusterId(1), versions: Versions::default() };
        let roster = Arc::new(Roster::new(PeerId::random(), None));
        let metrics = SwarmMetrics::default();
        let shared = Shared::new(hello, Times::default(), roster, Doors::closed(), metrics.clone(), commands);
        let message = Message::PutDone { op: Op { boot: 1, number: 1 } };
        let letter = Letter { cluster: 1, from: NodeId(1), boot: 1, clock: 1, message };
        let letters = || {
            let mut newer = Sealed::new(&letter).unwrap();
            newer.since = 2;
            Taken { letters: vec![newer, Sealed::new(&letter).unwrap()], stale: Vec::new() }
        };
        let mut buffer = Vec::new();
        assert_eq!(fill(&shared, 2, letters(), &mut buffer).len(), 2);
        let both = buffer.len();
        assert_eq!(fill(&shared, 1, letters(), &mut buffer).len(), 1);
        assert_eq!((buffer.len() * 2, metrics.drops("put_done", Drop::Unspoken)), (both, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_read_no_faster_than_its_pace() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let letters = LETTERS_PER_SECOND * 3;
        for _ in 0..letters {
            if let Some(until) = pace.spend(100, Instant::now()) {
                tokio::time::sleep_until(until).await;
            }
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(1_990) && took <= Duration::from_millis(2_100), "{took:?}");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(pace.spend(BYTES_PER_SECOND as usize, Instant::now()), None, "one second's worth at once");
        assert!(pace.spend(1 << 20, Instant::now()).is_some());
    }
}
