//! The archive: what was fetched, kept as WARC 1.1 segments that any archive tool can read.
//!
//! A *segment* is a file `orbweaver-<yyyymmddhhmmss>-<serial>.warc.gz`; it opens with a `warcinfo` record and holds
//! *captures*: a `response` (or `revisit`), its `request`, its `metadata`, and, where the rules of a site made something of it, a `conversion`, each in a gzip member of its own, so that
//! a record is read with one seek. Nothing is ever overwritten.
//!
//! Who knows what is durable: not this module. [`WarcWriter::append`] hands out a [`WarcPosition`] and the new
//! [`WarcEnd`]; the caller calls [`WarcWriter::sync`] and then puts the positions *and* the end into RocksDB in one
//! atomic batch. After a crash [`WarcWriter::open`] is given that end and cuts off everything beyond it: a record is
//! either indexed and whole, or gone. A file shorter than that end has lost acknowledged data, which is an error.
//!
//! [`writer`](WarcWriter) appends, [`reader`](WarcReader) reads and verifies, `encode` knows what a record looks like, `deflate` makes it
//! small, [`pack`](Packer) does both for whoever is not the writer.

mod check;
mod deflate;
mod encode;
mod pack;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::check::check_members;
pub use self::pack::{Packed, Packer};
pub use self::reader::{Located, Record, RecordKind, WarcArchive, WarcReader, parse_members, processed, read_at};
pub use self::writer::{Unsynced, WarcWriter};

/// Where a segment is closed and the next one begun, unless configured: 1 GB, the custom among archives.
pub const SEGMENT_BYTES_MAX: u64 = 1_000_000_000;

/// Where a capture lies. Stored in the `content` index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WarcPosition {
    /// Serial number of the segment.
    pub segment: u32,
    /// Where the first member, the `response` or `revisit` record, begins in the file.
    pub offset: u64,
    /// Bytes of all members of the capture, which follow each other without a gap.
    pub length: u32,
}

/// How far the archive reaches. Stored in the same atomic batch as the positions before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WarcEnd {
    /// Serial number of the last segment.
    pub segment: u32,
    /// Length of that segment; at 0 its file need not exist yet.
    pub offset: u64,
}

/// `WARC-Record-ID`: 128 bits, written as `urn:uuid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordId(pub [u8; 16]);

/// SHA-1 of a payload: the body after transfer decoding, still content-encoded. The archives' custom, not a safeguard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PayloadDigest(pub [u8; 20]);

impl PayloadDigest {
    /// Returns the digest of `body`, to look for an earlier capture with the same payload.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        encode::sha1(&[body])
    }
}

/// Why a payload is not whole: the values of `WARC-Truncated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Truncated {
    /// Longer than we take.
    Length,
    /// Took longer than we wait.
    Time,
    /// The server hung up.
    Disconnect,
    /// Anything else.
    Unspecified,
}

/// The earlier capture that a page repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisitOf<'a> {
    /// URL of the earlier capture.
    pub url: &'a str,
    /// When it was fetched.
    pub unix_ms: u64,
    /// Its `response` record.
    pub record_id: RecordId,
    /// The payload both have.
    pub payload_digest: PayloadDigest,
}

/// One exchange with a server, as it goes into the archive.
#[derive(Debug, Clone, Copy, Default)]
pub struct Capture<'a> {
    /// The URL asked for.
    pub url: &'a str,
    /// When the request began.
    pub unix_ms: u64,
    /// The address that answered.
    pub ip: Option<IpAddr>,
    /// Request line and headers. Empty: no `request` record is written.
    pub request_head: &'a [u8],
    /// Status line and headers.
    pub response_head: &'a [u8],
    /// The body as on the wire: content-encoded, transfer encoding removed.
    pub body: &'a [u8],
    /// Its digest, if it is known.
    pub payload_digest: Option<PayloadDigest>,
    /// Why the body is not whole, if it is not.
    pub truncated: Option<Truncated>,
    /// What the body was found to be, e.g. `text/html`.
    pub payload_type: Option<&'a str>,
    /// Fields of the `metadata` record: `fetchTimeMs`, `hopsFromSeed`, `via`… Empty: none is written.
    pub metadata: &'a [(&'a str, &'a str)],
    /// What was made of the body, as JSON, for the `conversion` record. Empty: none is written.
    pub processed: &'a [u8],
    /// The earlier capture this one may repeat. It becomes a `revisit` record if the status is 304 or the digest of
    /// `body` is that of the earlier payload, and an ordinary `response` otherwise: a wrong guess loses nothing.
    pub revisit: Option<RevisitOf<'a>>,
}

/// What [`WarcWriter::append`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Where the capture lies.
    pub position: WarcPosition,
    /// Id of its `response` or `revisit` record.
    pub record_id: RecordId,
    /// Digest of its payload; of the earlier one for a 304.
    pub payload_digest: PayloadDigest,
    /// Whether it became a `revisit` record, which has no payload of its own.
    pub revisit: bool,
    /// Where the archive ends now; durable only after [`WarcWriter::sync`].
    pub end: WarcEnd,
}

/// What the writer must be told.
#[derive(Debug, Clone)]
pub struct WarcOptions {
    /// A segment that has reached this length is closed; it is exceeded by one capture at most.
    pub segment_bytes_max: u64,
    /// Program and version, for the `warcinfo` record.
    pub software: String,
    /// The User-Agent header sent with every request, for the `warcinfo` record.
    pub user_agent: String,
    /// How robots.txt is treated, for the `warcinfo` record: `obey` by custom.
    pub robots: String,
    /// Random bits of this node, drawn once and kept: record ids are derived from them, so two nodes never share one.
    pub node_seed: [u8; 16],
}

/// Why the archive could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum WarcError {
    /// The file system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Acknowledged records are gone: a disk lost data, or the wrong folder was named.
    #[error("{} has {length_bytes} bytes, but {durable_bytes} were durable", .path.display())]
    ShorterThanDurable {
        /// The segment.
        path: PathBuf,
        /// Its length.
        length_bytes: u64,
        /// What it had at least, when the index was written.
        durable_bytes: u64,
    },
    /// A segment that the index knows is not there.
    #[error("{} has no segment {segment}", .dir.display())]
    SegmentMissing {
        /// The folder of the archive.
        dir: PathBuf,
        /// Serial number of the segment.
        segment: u32,
    },
    /// The file ends within a record.
    #[error("{} ends within the record at byte {offset}", .path.display())]
    Torn {
        /// The segment.
        path: PathBuf,
        /// Where the record begins.
        offset: u64,
    },
    /// A record is not what was written.
    #[error("{} is damaged at byte {offset}: {reason}", .path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where the record begins.
        offset: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A capture has no status line, or does not fit the index.
    #[error("cannot archive {url}: {reason}")]
    Refused {
        /// URL of the capture.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl WarcError {
    /// Returns whether the disk, or our share of it, is full: the one failure that waiting can mend.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

/// Returns the segments of the archive in `dir`, by serial number. Other files are passed over.
///
/// # Errors
/// If the folder cannot be read.
pub fn segments(dir: &Path) -> Result<BTreeMap<u32, PathBuf>, WarcError> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).map_err(WarcError::io("list", dir))? {
        let entry = entry.map_err(WarcError::io("list", dir))?;
        if let Some(serial) = entry.file_name().to_str().and_then(serial_of) {
            found.insert(serial, entry.path());
        }
    }
    Ok(found)
}

fn segment_name(unix_ms: u64, serial: u32) -> String {
    let moment = encode::Moment::of(unix_ms);
    format!("orbweaver-{}-{serial:05}.warc.gz", moment.compact())
}

fn serial_of(file_name: &str) -> Option<u32> {
    let (moment, serial) = file_name.strip_prefix("orbweaver-")?.strip_suffix(".warc.gz")?.split_once('-')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (moment.len() == 14 && digits(moment) && serial.len() >= 5 && digits(serial)).then(|| serial.parse().ok())?
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = u128::from_be_bytes(self.0);
        let (a, b, c, d) = (n >> 96, (n >> 80) & 0xffff, (n >> 64) & 0xffff, (n >> 48) & 0xffff);
        write!(f, "urn:uuid:{a:08x}-{b:04x}-{c:04x}-{d:04x}-{:012x}", n & 0xffff_ffff_ffff)
    }
}

impl fmt::Display for PayloadDigest {
    /// `sha1:` and the digest in base 32, as archives write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha1:")?;
        f.write_str(encode::base32(&self.0).as_str())
    }
}
