//! Control requests: bounded bytes there, bounded bytes back, on a stream of their own. What they mean is somebody else's business.
//!
//! After the hello the asker sends one frame: what it wants (an answer, or to follow) and the request. Answers come as items; an item is
//! one or more frames of at most `PART_BYTES`, each with a first byte that says whether it is the item's last; a frame that says so
//! ends it all. Whoever takes nothing for a while is cut off, and when the asker goes away, work on its answer stops.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, StreamExt};
use libp2p::PeerId;
use libp2p::swarm::Stream;

use super::frame::{self, FrameError, FrameReader};
use super::hello::HelloError;
use super::refusal::Refusal;
use super::roster::Role;
use super::shared::Shared;
use super::streams::{OpenError, Purpose};

/// Longest request.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Longest item of an answer.
pub const ITEM_BYTES_MAX: usize = 16 << 20;
/// Longest part of an item.
const PART_BYTES: usize = 64 << 10;

const WANTS_ANSWER: u8 = 0;
const WANTS_TO_FOLLOW: u8 = 1;

const PART: u8 = 0;
const LAST_PART: u8 = 1;
const END: u8 = 2;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its identity, which it has proved.
    pub peer: PeerId,
    /// What it may do.
    pub role: Role,
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The request is too long.
    #[error("the request has {0} bytes, {REQUEST_BYTES_MAX} are allowed")]
    RequestTooLong(usize),
    /// The node cannot be reached.
    #[error("cannot ask the node: {0}")]
    Unreachable(#[from] OpenError),
    /// The node is not one of this cluster, or speaks no common version.
    #[error("cannot ask the node: {0}")]
    Disagreement(#[from] HelloError),
    /// The answer is not one.
    #[error("the answer is damaged: {0}")]
    Damaged(#[from] FrameError),
    /// The answer is longer than allowed.
    #[error("the answer is longer than {ITEM_BYTES_MAX} bytes")]
    AnswerTooLong,
    /// The stream ended before the answer did.
    #[error("the node went away before it had answered")]
    GoneAway,
}

/// Answers the request on a stream that `caller` opened.
pub(super) async fn serve(shared: Arc<Shared>, caller: Caller, mut stream: Stream) {
    let Caller { peer, .. } = caller;
    if let Err(error) = shared.hello.answer(&mut stream, shared.times.hello).await {
        if let Some(why) = Refusal::of_hello(&error) {
            shared.cut(peer, why, &error).await;
        }
        return;
    }
    let (reader, mut writer) = stream.split();
    let mut reader = FrameReader::new(reader, REQUEST_BYTES_MAX + 1, shared.times.hello);
    let request = match tokio::time::timeout(shared.times.hello, reader.next()).await {
        Ok(Ok(Some(request))) => request,
        Ok(Ok(None)) => return,
        Ok(Err(error)) => {
            if let Some(why) = Refusal::of_frame(&error) {
                shared.cut(peer, why, &error).await;
            }
            return;
        }
        Err(_) => return shared.cut(peer, Refusal::Silent, &"no request came").await,
    };
    let answering = async {
        match request.split_first() {
            Some((&WANTS_ANSWER, request)) => {
                let answer = (shared.doors.control)(caller, request.to_vec()).await;
                write_item(&mut writer, &answer, shared.times.write).await?;
            }
            Some((&WANTS_TO_FOLLOW, request)) => {
                let mut items = (shared.doors.follow)(caller, request.to_vec());
                while let Some(item) = items.next().await {
                    write_item(&mut writer, &item, shared.times.write).await?;
                }
            }
            _ => return Err(Failed::Garbage),
        }
        shared.metrics.control_requests.inc();
        write_frame(&mut writer, END, &[], shared.times.write).await?;
        writer.close().await.map_err(|_| Failed::Stream)
    };
    let answered = tokio::select! {
        biased;
        answered = answering => answered,
        // The asker has nothing more to say: whatever comes, it went away or it is broken.
        _ = reader.next() => Err(Failed::Stream),
    };
    match answered {
        Ok(()) | Err(Failed::Stream) => {}
        Err(Failed::Garbage) => shared.cut(peer, Refusal::Garbage, &"no such kind of request").await,
        Err(Failed::Slow) => shared.cut(peer, Refusal::Slow, &"does not take what it asked for").await,
        Err(Failed::TooLong) => tracing::error!(%peer, "an answer is too long to be sent"),
    }
}

enum Failed {
    Stream,
    Slow,
    Garbage,
    TooLong,
}

async fn write_item<W: AsyncWrite + Unpin>(writer: &mut W, item: &[u8], time: Duration) -> Result<(), Failed> {
    if item.len() > ITEM_BYTES_MAX {
        return Err(Failed::TooLong);
    }
    let mut parts = item.chunks(PART_BYTES).peekable();
    if parts.peek().is_none() {
        return write_frame(writer, LAST_PART, &[], time).await;
    }
    while let Some(part) = parts.next() {
        let tag = if parts.peek().is_some() { PART } else { LAST_PART };
        write_frame(writer, tag, part, time).await?;
    }
    Ok(())
}

/// Writes a frame, which must be taken within `time`.
async fn write_frame<W: AsyncWrite + Unpin>(
    writer: &mut W,
    tag: u8,
    content: &[u8],
    time: Duration,
) -> Result<(), Failed> {
    let buffer = framed(tag, content);
    let write = async {
        writer.write_all(&buffer).await?;
        writer.flush().await
    };
    match tokio::time::timeout(time, write).await {
        Ok(written) => written.map_err(|_| Failed::Stream),
        Err(_) => Err(Failed::Slow),
    }
}

fn framed(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(content.len() + 8);
    let framed: Result<(), std::convert::Infallible> = frame::append(&mut buffer, |out| {
        out.push(tag);
        out.extend_from_slice(content);
        Ok(())
    });
    framed.unwrap_or_else(|never| match never {});
    buffer
}

/// Asks a node that is connected, and waits for its answer.
pub(super) async fn ask(shared: &Shared, peer: PeerId, request: &[u8]) -> Result<Vec<u8>, ControlError> {
    let mut following = begin(shared, peer, WANTS_ANSWER, request).await?;
    following.next().await?.ok_or(ControlError::GoneAway)
}

/// Asks a node that is connected to tell whatever happens.
pub(super) async fn follow(shared: &Shared, peer: PeerId, request: &[u8]) -> Result<Following, ControlError> {
    begin(shared, peer, WANTS_TO_FOLLOW, request).await
}

async fn begin(shared: &Shared, peer: PeerId, wants: u8, request: &[u8]) -> Result<Following, ControlError> {
    if request.len() > REQUEST_BYTES_MAX {
        return Err(ControlError::RequestTooLong(request.len()));
    }
    let mut stream = shared.open(peer, Purpose::Control).await?;
    shared.hello.ask(&mut stream, shared.times.hello).await?;
    stream.write_all(&framed(wants, request)).await.map_err(FrameError::from)?;
    stream.flush().await.map_err(FrameError::from)?;
    Ok(Following { items: Items::new(stream, shared.times.frame) })
}

/// The items of an answer, as they come. Dropping it ends them.
pub struct Following {
    items: Items<Stream>,
}

impl Following {
    /// The next item; `None` after the last. Waits for ever.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ControlError> {
        self.items.next().await
    }
}

struct Items<S> {
    reader: FrameReader<S>,
    ended: bool,
}

impl<S: AsyncRead + Unpin> Items<S> {
    /// A part that was begun must come within `time`.
    fn new(stream: S, time: Duration) -> Items<S> {
        Items { reader: FrameReader::new(stream, PART_BYTES + 1, time), ended: false }
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>, ControlError> {
        let mut item = Vec::new();
        while !self.ended {
            let frame = self.reader.next().await?.ok_or(ControlError::GoneAway)?;
            let (tag, part) = frame.split_first().ok_or(ControlError::Damaged(FrameError::Empty))?;
            if item.len() + part.len() > ITEM_BYTES_MAX {
                return Err(ControlError::AnswerTooLong);
            }
            item.extend_from_slice(part);
            match *tag {
                PART => {}
                LAST_PART => return Ok(Some(item)),
                END => self.ended = true,
                _ => return Err(ControlError::Damaged(FrameError::Torn)),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::io::Cursor;

    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    async fn items(bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, ControlError> {
        let mut items = Items::new(Cursor::new(bytes), TIME);
        let mut got = Vec::new();
        while let Some(item) = items.next().await? {
            got.push(item);
        }
        Ok(got)
    }

    #[tokio::test]
    async fn items_come_back_whatever_their_length() {
        let sent = [vec![], vec![1], vec![2; PART_BYTES], vec![3; PART_BYTES + 1], vec![4; 3 * PART_BYTES]];
        let mut wire = Vec::new();
        for item in &sent {
            assert!(write_item(&mut wire, item, TIME).await.is_ok());
        }
        assert!(matches!(items(wire.clone()).await, Err(ControlError::GoneAway)), "no end was told");
        assert!(write_frame(&mut wire, END, &[], TIME).await.is_ok());
        assert_eq!(items(wire).await.unwrap(), sent);
    }

    #[tokio::test]
    async fn an_answer_without_end_is_given_up() {
        let part = framed(PART, &[7; PART_BYTES]);
        let wire = part.repeat(ITEM_BYTES_MAX / PART_BYTES + 1);
        assert!(matches!(items(wire).await, Err(ControlError::AnswerTooLong)));
        assert!(matches!(items(framed(9, &[])).await, Err(ControlError::Damaged(_))));
        assert!(write_item(&mut Vec::<u8>::new(), &vec![0; ITEM_BYTES_MAX + 1], TIME).await.is_err());
    }
}
