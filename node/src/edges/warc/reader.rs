//! Reads records back, and checks on the way that they are what was written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use super::{WarcError, WarcPosition, encode, segments};

/// A page of the largest `page_bytes_max` that settings take is 1 GiB; a damaged or forged one may pretend to more.
const RECORD_BYTES_MAX: u64 = (1 << 30) + (64 << 20);

/// `WARC-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// About the segment.
    Warcinfo,
    /// What a server answered.
    Response,
    /// What it was asked.
    Request,
    /// What is known about the exchange.
    Metadata,
    /// An answer whose payload is in an earlier record.
    Revisit,
    /// What was made of an answer.
    Conversion,
    /// None that we write.
    Other,
}

/// One record, unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is.
    pub kind: RecordKind,
    /// Its header lines in order, names as written.
    pub headers: Vec<(String, String)>,
    /// What it holds: an HTTP message, or fields.
    pub block: Vec<u8>,
}

/// A record and the gzip member it was found in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// Where the member begins in the file.
    pub offset: u64,
    /// Length of the member.
    pub length: u32,
    /// The record.
    pub record: Record,
}

impl Record {
    /// Returns the value of the first header line called `name`, in any case of letters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the HTTP head, with the empty line that ends it; nothing if the block is no HTTP message.
    #[must_use]
    pub fn http_head(&self) -> &[u8] {
        &self.block[..self.payload_start()]
    }

    /// Returns the payload: the HTTP body, still content-encoded, or the whole block if that is no HTTP message.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.block[self.payload_start()..]
    }

    fn payload_start(&self) -> usize {
        if !self.header("Content-Type").is_some_and(|value| value.starts_with("application/http")) {
            return 0;
        }
        self.block.windows(4).position(|window| window == b"\r\n\r\n").map_or(self.block.len(), |at| at + 4)
    }

    /// Reads one record from the whole content of a gzip member.
    fn parse(member: &[u8]) -> Result<Self, String> {
        let head_end = member.windows(4).position(|window| window == b"\r\n\r\n").ok_or("no end of header")?;
        let headers = parse_head(&member[..head_end])?;
        let block = member[head_end + 4..].strip_suffix(b"\r\n\r\n").ok_or("no blank lines at the end")?.to_vec();
        let mut record = Self { kind: RecordKind::Other, headers, block };
        record.kind = match record.header("WARC-Type") {
            Some("warcinfo") => RecordKind::Warcinfo,
            Some("response") => RecordKind::Response,
            Some("request") => RecordKind::Request,
            Some("metadata") => RecordKind::Metadata,
            Some("revisit") => RecordKind::Revisit,
            Some("conversion") => RecordKind::Conversion,
            Some(_) => RecordKind::Other,
            None => return Err("no WARC-Type".to_owned()),
        };
        record.verify()?;
        Ok(record)
    }

    /// Checks the length and both digests; the payload of a revisit is not here to be checked.
    fn verify(&self) -> Result<(), String> {
        let length = self.header("Content-Length").and_then(|value| value.parse().ok());
        if length != Some(self.block.len()) {
            return Err(format!("Content-Length is {length:?}, the block has {} bytes", self.block.len()));
        }
        let check = |name: &str, bytes: &[u8]| match self.header(name) {
            Some(written) if written != encode::sha1(&[bytes]).to_string() => Err(format!("{name} does not match")),
            _ => Ok(()),
        };
        check("WARC-Block-Digest", &self.block)?;
        if self.kind == RecordKind::Revisit { Ok(()) } else { check("WARC-Payload-Digest", self.payload()) }
    }
}

/// Reads the records of one segment in order. After the first error it yields nothing more.
pub struct WarcReader {
    path: PathBuf,
    input: Counted<BufReader<File>>,
    failed: bool,
}

impl WarcReader {
    /// Opens the segment at `path`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, WarcError> {
        let file = File::open(path).map_err(WarcError::io("open", path))?;
        let input = Counted::new(BufReader::with_capacity(1 << 16, file));
        Ok(Self { path: path.to_owned(), input, failed: false })
    }
}

impl Iterator for WarcReader {
    type Item = Result<Located, WarcError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let read = read_member(&mut self.input, 0, &self.path).transpose();
        self.failed = matches!(read, Some(Err(_)));
        read
    }
}

/// Reads single captures of an archive, by their position; remembers which file is which segment.
pub struct WarcArchive {
    dir: PathBuf,
    segments: BTreeMap<u32, PathBuf>,
    /// The segment that was read last: what is read next mostly lies beside it.
    open: Option<(u32, PathBuf, File)>,
}

impl WarcArchive {
    /// Names the archive in `dir`; nothing is read yet.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), segments: BTreeMap::new(), open: None }
    }

    /// Reads the first record of the capture at `position`: the `response` or `revisit`.
    ///
    /// # Errors
    /// If it is not there, or not what was written.
    pub fn read_at(&mut self, position: WarcPosition) -> Result<Record, WarcError> {
        let (path, members) = self.load(position)?;
        let located = read_member(&mut Counted::new(members.as_slice()), position.offset, &path)?;
        located.map(|located| located.record).ok_or(WarcError::Torn { path, offset: position.offset })
    }

    /// Reads all records of the capture at `position`.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_capture_at(&mut self, position: WarcPosition) -> Result<Vec<Record>, WarcError> {
        let (path, members) = self.load(position)?;
        let mut input = Counted::new(members.as_slice());
        let mut records = Vec::with_capacity(3);
        while let Some(located) = read_member(&mut input, position.offset, &path)? {
            records.push(located.record);
        }
        Ok(records)
    }

    /// Reads the members of the capture at `position` as they are on disk; [`parse_members`] checks them.
    ///
    /// # Errors
    /// If they are not there.
    pub fn members_at(&mut self, position: WarcPosition) -> Result<Vec<u8>, WarcError> {
        self.load(position).map(|(_, members)| members)
    }

    /// Reads some members of the capture at `position` as they are on disk: at most `bytes` behind the first `from`.
    ///
    /// # Errors
    /// As [`Self::members_at`].
    pub fn part_at(&mut self, position: WarcPosition, from: u32, bytes: usize) -> Result<Vec<u8>, WarcError> {
        let rest = position.length.saturating_sub(from);
        let length = rest.min(u32::try_from(bytes).unwrap_or(u32::MAX));
        let offset = position.offset + u64::from(position.length - rest);
        self.load(WarcPosition { offset, length, ..position }).map(|(_, members)| members)
    }

    /// Reads the members of a capture as they are on disk.
    fn load(&mut self, position: WarcPosition) -> Result<(PathBuf, Vec<u8>), WarcError> {
        let (path, file) = match self.open.take_if(|(serial, ..)| *serial == position.segment) {
            Some((_, path, file)) => (path, file),
            None => self.open(position.segment)?,
        };
        let length_bytes = file.metadata().map_err(WarcError::io("read the length of", &path))?.len();
        if length_bytes.saturating_sub(position.offset) < u64::from(position.length) {
            return Err(WarcError::Torn { path, offset: position.offset });
        }
        let mut members = vec![0; position.length as usize];
        file.read_exact_at(&mut members, position.offset).map_err(WarcError::io("read", &path))?;
        self.open = Some((position.segment, path.clone(), file));
        Ok((path, members))
    }

    fn open(&mut self, serial: u32) -> Result<(PathBuf, File), WarcError> {
        if !self.segments.get(&serial).is_some_and(|path| path.exists()) {
            self.segments = segments(&self.dir)?;
        }
        let missing = || WarcError::SegmentMissing { dir: self.dir.clone(), segment: serial };
        let path = self.segments.get(&serial).ok_or_else(missing)?.clone();
        let file = File::open(&path).map_err(WarcError::io("open", &path))?;
        Ok((path, file))
    }
}

/// Reads the header lines of a record, without the empty line that ends them.
pub(super) fn parse_head(head: &[u8]) -> Result<Vec<(String, String)>, String> {
    let head = std::str::from_utf8(head).map_err(|_| "header is not UTF-8")?;
    let mut lines = head.split("\r\n");
    if lines.next() != Some("WARC/1.1") {
        return Err("not a WARC 1.1 record".to_owned());
    }
    let mut headers = Vec::with_capacity(12);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("no header line: {line:?}"))?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    Ok(headers)
}

/// What the rules of a site made of a page, as JSON, if its capture has it.
#[must_use]
pub fn processed(records: &[Record]) -> Option<&[u8]> {
    let found = records.iter().find(|record| record.kind == RecordKind::Conversion);
    found.map(Record::payload)
}

/// Reads the records of a capture from its members, wherever they come from, and checks them.
///
/// # Errors
/// If they are not what an archive holds.
pub fn parse_members(members: &[u8]) -> Result<Vec<Record>, WarcError> {
    let mut input = Counted::new(members);
    let mut records = Vec::with_capacity(3);
    while let Some(located) = read_member(&mut input, 0, Path::new("a capture"))? {
        records.push(located.record);
    }
    Ok(records)
}

/// Reads the first record of the capture at `position`: the `response` or `revisit`.
/// Lists the folder every time; to read many, keep a [`WarcArchive`].
///
/// # Errors
/// If it is not there, or not what was written.
pub fn read_at(dir: &Path, position: WarcPosition) -> Result<Record, WarcError> {
    WarcArchive::new(dir).read_at(position)
}

/// Reads one gzip member and the record in it; `None` at the end. `base` is where `input` begins in the file.
fn read_member<R: BufRead>(input: &mut Counted<R>, base: u64, path: &Path) -> Result<Option<Located>, WarcError> {
    if input.fill_buf().map_err(WarcError::io("read", path))?.is_empty() {
        return Ok(None);
    }
    let start = input.consumed;
    let offset = base + start;
    let damaged = |reason: String| WarcError::Damaged { path: path.to_owned(), offset, reason };
    let mut content = Vec::new();
    let read = GzDecoder::new(&mut *input).take(RECORD_BYTES_MAX + 1).read_to_end(&mut content);
    match read.map_err(|error| (error.kind(), error)) {
        Ok(bytes) if bytes as u64 > RECORD_BYTES_MAX => return Err(damaged("record too large".to_owned())),
        Ok(_) => {}
        Err((io::ErrorKind::UnexpectedEof, _)) => return Err(WarcError::Torn { path: path.to_owned(), offset }),
        Err((io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData, error)) => {
            return Err(damaged(error.to_string()));
        }
        Err((_, error)) => return Err(WarcError::io("read", path)(error)),
    }
    let length = u32::try_from(input.consumed - start).map_err(|_| damaged("member too large".to_owned()))?;
    let record = Record::parse(&content).map_err(damaged)?;
    Ok(Some(Located { offset, length, record }))
}

/// Counts what is read through it, so that a record knows its place.
struct Counted<R> {
    inner: R,
    consumed: u64,
}

impl<R> Counted<R> {
    fn new(inner: R) -> Self {
        Self { inner, consumed: 0 }
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.consumed += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.consumed += amount as u64;
        self.inner.consume(amount);
    }
}
