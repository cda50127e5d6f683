//! The first thing said on every stream: which cluster, and which versions. Nothing else counts before both sides agreed.
//! The bytes are fixed by hand, because they must be understood by every version there will ever be:
//! `orbw`, cluster (8 bytes, little-endian), oldest and newest version (2 bytes each), and one byte for what the side wants or
//! answers.

use std::io;
use std::time::Duration;

use futures_util::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use proto::id::ClusterId;
use proto::wire::{WIRE_VERSION, WIRE_VERSION_MIN};

const MAGIC: &[u8; 4] = b"orbw";
const HELLO_BYTES: usize = 17;

/// The versions that a node speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub oldest: u16,
    /// The newest.
    pub newest: u16,
}

impl Default for Versions {
    fn default() -> Self {
        Versions { oldest: WIRE_VERSION_MIN, newest: WIRE_VERSION }
    }
}

impl Versions {
    /// The newest version that both speak.
    fn agree(self, other: Versions) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }
}

/// Why nothing was agreed.
#[derive(Debug, thiserror::Error)]
pub enum HelloError {
    /// The peer is of another cluster.
    #[error("the peer belongs to another cluster ({0})")]
    OtherCluster(ClusterId),
    /// There is no version that both speak.
    #[error("the peer speaks versions {} to {} only", .0.oldest, .0.newest)]
    OtherVersion(Versions),
    /// Those bytes are no hello.
    #[error("the peer does not speak our protocol")]
    Garbage,
    /// The peer knows us and will not have it.
    #[error("the peer refused the stream")]
    Refused,
    /// Nothing came.
    #[error("the peer said nothing for {} s", .0.as_secs())]
    Silent(Duration),
    /// The stream failed.
    #[error(transparent)]
    Stream(#[from] io::Error),
}

/// What a side says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Its cluster.
    pub cluster: ClusterId,
    /// What it speaks.
    pub versions: Versions,
}

/// What the last byte says.
const ASKING: u8 = 0;
const ACCEPTED: u8 = 1;
const REFUSED: u8 = 2;

impl Hello {
    fn encode(self, tail: u8) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        out[..4].copy_from_slice(MAGIC);
        out[4..12].copy_from_slice(&self.cluster.0.to_le_bytes());
        out[12..14].copy_from_slice(&self.versions.oldest.to_le_bytes());
        out[14..16].copy_from_slice(&self.versions.newest.to_le_bytes());
        out[16] = tail;
        out
    }

    /// Understands the bytes of a hello, and their last one.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<(Hello, u8)> {
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (cluster, rest) = rest.split_first_chunk::<8>()?;
        let (oldest, rest) = rest.split_first_chunk::<2>()?;
        let (newest, tail) = rest.split_first_chunk::<2>()?;
        let versions = Versions { oldest: u16::from_le_bytes(*oldest), newest: u16::from_le_bytes(*newest) };
        let hello = Hello { cluster: ClusterId(u64::from_le_bytes(*cluster)), versions };
        (magic == MAGIC && versions.oldest <= versions.newest).then_some((hello, tail[0]))
    }

    /// The version to speak with who said `theirs`.
    fn agree(self, theirs: Hello) -> Result<u16, HelloError> {
        if theirs.cluster != self.cluster {
            return Err(HelloError::OtherCluster(theirs.cluster));
        }
        self.versions.agree(theirs.versions).ok_or(HelloError::OtherVersion(theirs.versions))
    }

    /// Says hello on a stream that we opened. Returns the version to speak on it.
    pub async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: &mut S,
        time: Duration,
    ) -> Result<u16, HelloError> {
        let talk = async {
            stream.write_all(&self.encode(ASKING)).await?;
            stream.flush().await?;
            let (theirs, verdict) = read(stream).await?;
            let version = self.agree(theirs)?;
            if verdict == ACCEPTED { Ok(version) } else { Err(HelloError::Refused) }
        };
        tokio::time::timeout(time, talk).await.unwrap_or(Err(HelloError::Silent(time)))
    }

    /// Hears the hello on a stream that the peer opened, and answers it. Returns the version to speak on it.
    pub async fn answer<S: AsyncRead + AsyncWrite + Unpin>(
        self,
        stream: &mut S,
        time: Duration,
    ) -> Result<u16, HelloError> {
        let talk = async {
            let (theirs, _) = read(stream).await?;
            let agreed = self.agree(theirs);
            let tail = if agreed.is_ok() { ACCEPTED } else { REFUSED };
            stream.write_all(&self.encode(tail)).await?;
            stream.flush().await?;
            agreed
        };
        tokio::time::timeout(time, talk).await.unwrap_or(Err(HelloError::Silent(time)))
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<(Hello, u8), HelloError> {
    let mut bytes = [0; HELLO_BYTES];
    stream.read_exact(&mut bytes).await?;
    Hello::decode(&bytes).ok_or(HelloError::Garbage)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn versions(oldest: u16, newest: u16) -> Versions {
        Versions { oldest, newest }
    }

    #[test]
    fn the_newest_common_version_is_spoken() {
        assert_eq!(versions(1, 2).agree(versions(1, 1)), Some(1));
        assert_eq!(versions(1, 3).agree(versions(2, 5)), Some(3));
        assert_eq!(versions(1, 1).agree(versions(2, 2)), None);
        assert_eq!(versions(4, 5).agree(versions(1, 3)), None);
    }

    #[test]
    fn the_bytes_of_a_hello_never_change() {
        let hello = Hello { cluster: ClusterId(0x0102030405060708), versions: versions(1, 0x0203) };
        let bytes = hello.encode(ACCEPTED);
        assert_eq!(bytes, [b'o', b'r', b'b', b'w', 8, 7, 6, 5, 4, 3, 2, 1, 1, 0, 3, 2, 1]);
        assert_eq!(Hello::decode(&bytes), Some((hello, ACCEPTED)));
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n\r"), None);
        let upside_down = Hello { versions: versions(2, 1), ..hello };
        assert_eq!(Hello::decode(&upside_down.encode(ASKING)), None);
    }

    #[test]
    fn another_cluster_goes_before_another_version() {
        let ours = Hello { cluster: ClusterId(1), versions: versions(1, 1) };
        let theirs = Hello { cluster: ClusterId(2), versions: versions(2, 2) };
        assert!(matches!(ours.agree(theirs), Err(HelloError::OtherCluster(ClusterId(2)))));
        let newer = Hello { cluster: ClusterId(1), versions: versions(2, 2) };
        assert!(matches!(ours.agree(newer), Err(HelloError::OtherVersion(Versions { oldest: 2, newest: 2 }))));
    }
}
