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
use super::settings::Pace;
use super::shared::{Link, Shared};
use super::streams::{OpenError, Purpose};

/// Wait before a stream is opened again; doubles up to the maximum.
const REOPEN_MIN: Duration = Duration::from_millis(50);
const REOPEN_MAX: Duration = Duration::from_secs(5);

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
    let mut purse = Purse::new(shared.pace, Instant::now());
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
        let now = Instant::now();
        if let Some(until) = purse.spend(frame.len(), now) {
            shared.metrics.throttled.inc();
            match purse.flooded_for(now) {
                Some(Duration::ZERO) => {
                    let detail =
                        format_args!("more than {} letters a second, it is read no faster", shared.pace.letters);
                    shared.complain(&peer, Refusal::Flood, &detail);
                }
                Some(time) if time > shared.pace.patience => {
                    let detail =
                        format!("more than {} letters a second, for {} s", shared.pace.letters, time.as_secs());
                    return shared.cut(peer, Refusal::Flood, &detail).await;
                }
                _ => {}
            }
            tokio::time::sleep_until(until).await;
        }
        // Frames that are already in memory would be read without a pause.
        tokio::task::consume_budget().await;
    }
}

/// What a stream may still say: what is over the pace must wait, and through the window of its stream so must its sender.
struct Purse {
    pace: Pace,
    /// What was read would have taken until then at the highest rate, by its number and by its size.
    letters_until: Instant,
    bytes_until: Instant,
    /// Since when there were too many letters, without a pause.
    flooded_since: Option<Instant>,
}

impl Purse {
    /// What a peer may send at once, in time at the highest rate.
    const BURST: Duration = Duration::from_secs(1);

    fn new(pace: Pace, now: Instant) -> Purse {
        Purse { pace, letters_until: now, bytes_until: now, flooded_since: None }
    }

    /// Counts a letter. Returns until when to wait before the next is read, if it is too early.
    fn spend(&mut self, bytes: usize, now: Instant) -> Option<Instant> {
        if self.letters_until <= now {
            self.flooded_since = None;
        }
        self.letters_until = self.letters_until.max(now) + Duration::from_secs(1) / self.pace.letters;
        let by_size = Duration::from_secs(1).mul_f64(bytes as f64 / f64::from(self.pace.bytes));
        self.bytes_until = self.bytes_until.max(now) + by_size;
        if self.letters_until > now + Self::BURST {
            self.flooded_since.get_or_insert(now);
        }
        let paid_until = self.letters_until.max(self.bytes_until);
        (paid_until > now + Self::BURST).then(|| paid_until - Self::BURST)
    }

    /// For how long there have been too many letters; zero when it begins.
    fn flooded_for(&self, now: Instant) -> Option<Duration> {
        self.flooded_since.map(|since| now - since)
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
        let shared =
            Shared::new(hello, Times::default(), Pace::default(), roster, Doors::closed(), metrics.clone(), commands);
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
        let (start, pace) = (Instant::now(), Pace::default());
        let mut purse = Purse::new(pace, start);
        for _ in 0..pace.letters * 3 {
            if let Some(until) = purse.spend(100, Instant::now()) {
                tokio::time::sleep_until(until).await;
            }
        }
        let took = start.elapsed();
        assert!(took >= Duration::from_millis(1_990) && took <= Duration::from_millis(2_100), "{took:?}");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(purse.spend(pace.bytes as usize, Instant::now()), None, "one second's worth at once");
        assert!(purse.spend(1 << 20, Instant::now()).is_some());
        assert_eq!(purse.flooded_for(Instant::now()), None, "many bytes are no flood of letters");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_one_until_its_sender_pauses() {
        let pace = Pace { letters: 100, ..Pace::default() };
        let mut purse = Purse::new(pace, Instant::now());
        let mut say = async |count: u32| {
            let mut longest = None;
            for _ in 0..count {
                let now = Instant::now();
                if let Some(until) = purse.spend(10, now) {
                    longest = longest.max(purse.flooded_for(now));
                    tokio::time::sleep_until(until).await;
                }
            }
            longest
        };
        assert_eq!(say(pace.letters).await, None, "what comes at once for a second is read at once");
        assert_eq!(say(1).await, Some(Duration::ZERO));
        let longest = say(500).await.unwrap();
        assert!(longest >= Duration::from_millis(4_900), "{longest:?}");
        tokio::time::advance(Purse::BURST).await;
        assert_eq!(say(pace.letters).await, None, "it paused");
        assert_eq!(say(1).await, Some(Duration::ZERO));
    }
}
