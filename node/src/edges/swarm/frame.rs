//! Frames: a length (four bytes, little-endian) and so many bytes. A length is believed only as far as bytes come: nothing is
//! allocated for what a peer merely announces.

use std::io;
use std::time::Duration;

use futures_util::{AsyncRead, AsyncReadExt};

/// Bytes of the length before a frame.
const LENGTH_BYTES: usize = 4;

/// Read from a stream at once.
const CHUNK_BYTES: usize = 16 << 10;

/// Why a stream of frames ended.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer announced more than is allowed.
    #[error("a frame of {length} bytes, where {limit} are allowed")]
    Oversize {
        /// What it announced.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A frame of nothing, which nobody sends.
    #[error("an empty frame")]
    Empty,
    /// A frame was begun and not finished in time.
    #[error("a frame was not finished in {} s", .0.as_secs())]
    Slow(Duration),
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame")]
    Torn,
    /// The stream failed.
    #[error(transparent)]
    Stream(#[from] io::Error),
}

/// Appends a frame to `out`; its content is what `fill` appends. On an error nothing is appended.
pub fn append<E>(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    if let Err(error) = fill(out) {
        out.truncate(start);
        return Err(error);
    }
    let length = u32::try_from(out.len() - start - LENGTH_BYTES).unwrap_or(u32::MAX);
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Takes a stream of bytes apart into frames.
pub struct Frames {
    limit: usize,
    buffer: Vec<u8>,
    /// Where the first frame that was not taken begins.
    start: usize,
}

impl Frames {
    /// Takes frames of at most `limit` bytes.
    pub fn new(limit: usize) -> Frames {
        Frames { limit, buffer: Vec::new(), start: 0 }
    }

    /// Adds what came in.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if one is there. After an error the stream makes no sense any more.
    pub fn take(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let waiting = &self.buffer[self.start..];
        let Some((length, rest)) = waiting.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limit {
            return Err(FrameError::Oversize { length, limit: self.limit });
        }
        if length == 0 {
            return Err(FrameError::Empty);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let begin = self.start + LENGTH_BYTES;
        self.start = begin + length;
        Ok(Some(&self.buffer[begin..begin + length]))
    }

    /// Whether a frame was begun and is not there as a whole.
    pub fn is_begun(&self) -> bool {
        self.buffer.len() > self.start
    }
}

/// Frames from a stream.
pub struct FrameReader<S> {
    stream: S,
    frames: Frames,
    /// A frame that was begun must be there by then.
    frame_timeout: Duration,
    chunk: Box<[u8; CHUNK_BYTES]>,
}

impl<S: AsyncRead + Unpin> FrameReader<S> {
    /// Reads frames of at most `limit` bytes, each of which must be finished within `frame_timeout` of its first byte.
    pub fn new(stream: S, limit: usize, frame_timeout: Duration) -> FrameReader<S> {
        FrameReader { stream, frames: Frames::new(limit), frame_timeout, chunk: Box::new([0; CHUNK_BYTES]) }
    }

    /// The next frame; `None` when the stream ended between two. Waits for its first byte for ever.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let mut deadline = None;
        loop {
            if let Some(frame) = self.frames.take()? {
                return Ok(Some(frame.to_vec()));
            }
            let read = match deadline {
                None if !self.frames.is_begun() => self.stream.read(&mut self.chunk[..]).await,
                _ => {
                    let until = *deadline.get_or_insert_with(|| tokio::time::Instant::now() + self.frame_timeout);
                    tokio::time::timeout_at(until, self.stream.read(&mut self.chunk[..]))
                        .await
                        .map_err(|_| FrameError::Slow(self.frame_timeout))?
                }
            }?;
            if read == 0 {
                return if self.frames.is_begun() { Err(FrameError::Torn) } else { Ok(None) };
            }
            self.frames.feed(&self.chunk[..read]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(contents: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        for content in contents {
            append(&mut out, |out| {
                out.extend_from_slice(content);
                Ok::<(), ()>(())
            })
            .unwrap();
        }
        out
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let bytes = framed(&[b"one", b"2", &[7; 300]]);
        for size in 1..bytes.len() {
            let mut frames = Frames::new(300);
            let mut got = Vec::new();
            for piece in bytes.chunks(size) {
                frames.feed(piece);
                while let Some(frame) = frames.take().unwrap() {
                    got.push(frame.to_vec());
                }
            }
            assert_eq!(got, [b"one".to_vec(), b"2".to_vec(), vec![7; 300]]);
            assert!(!frames.is_begun());
        }
    }

    #[test]
    fn an_announced_length_is_refused_before_anything_of_it_is_there() {
        let mut frames = Frames::new(1_000);
        frames.feed(&u32::MAX.to_le_bytes());
        assert!(matches!(frames.take(), Err(FrameError::Oversize { limit: 1_000, .. })));
        let mut frames = Frames::new(1_000);
        frames.feed(&[0; 4]);
        assert!(matches!(frames.take(), Err(FrameError::Empty)));
    }

    #[test]
    fn what_cannot_be_filled_leaves_nothing_behind() {
        let mut out = b"before".to_vec();
        let failed = append(&mut out, |out| {
            out.push(1);
            Err("no")
        });
        assert_eq!((failed, out.as_slice()), (Err("no"), &b"before"[..]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_drips_is_given_up_and_silence_between_frames_is_not() {
        use futures_util::AsyncWriteExt;
        use pipe::duplex;
        let (mut theirs, ours) = duplex();
        let mut reader = FrameReader::new(ours, 1_000, Duration::from_secs(10));
        let dripping = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1_000)).await;
            theirs.write_all(&framed(&[b"late"])).await.unwrap();
            for byte in framed(&[&[1; 100]]) {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if theirs.write_all(&[byte]).await.is_err() {
                    break;
                }
            }
        });
        assert_eq!(reader.next().await.unwrap().unwrap(), b"late");
        assert!(matches!(reader.next().await, Err(FrameError::Slow(_))));
        drop(reader);
        dripping.await.unwrap();
    }

    /// tokio's in-memory pipe with the traits of libp2p's streams.
    mod pipe {
        use std::io;
        use std::pin::Pin;
        use std::task::{Context, Poll};

        use futures_util::{AsyncRead, AsyncWrite};
        use tokio::io::{DuplexStream, ReadBuf};

        pub(super) struct Pipe(DuplexStream);

        pub(super) fn duplex() -> (Pipe, Pipe) {
            let (one, other) = tokio::io::duplex(64 << 10);
            (Pipe(one), Pipe(other))
        }

        impl AsyncRead for Pipe {
            fn poll_read(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let mut buffer = ReadBuf::new(bytes);
                let polled = tokio::io::AsyncRead::poll_read(Pin::new(&mut self.0), context, &mut buffer);
                polled.map_ok(|()| buffer.filled().len())
            }
        }

        impl AsyncWrite for Pipe {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                tokio::io::AsyncWrite::poll_write(Pin::new(&mut self.0), context, bytes)
            }

            fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                tokio::io::AsyncWrite::poll_flush(Pin::new(&mut self.0), context)
            }

            fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                tokio::io::AsyncWrite::poll_shutdown(Pin::new(&mut self.0), context)
            }
        }
    }
}
