//! What a WARC record looks like: header lines, digests, and the gzip member around them.
//!
//! Everything that comes from the web passes [`push_uri`], [`push_text`] or [`push_http_head`] on its way into a header
//! line, so no URL, header or title can start a line of its own, or move the border between a head and its body.

use std::fmt::Write as _;

use libdeflater::{CompressionLvl, Compressor, Crc};
use sha1::{Digest, Sha1};

use super::deflate::Deflater;
use super::{Capture, PayloadDigest, RecordId, RevisitOf, Truncated, WarcOptions};

/// For what `deflate.rs` leaves to others. Measured with `archive_speed` in `tests.rs` and beside zlib-rs on one page of prose (11.5 kB, both cores busy):
/// libdeflate takes 40 us and 3.9 kB at level 1, 107 us and 3.9 kB at level 2; zlib-rs 68 us and 5.1 kB at its level 1,
/// and three times as long as libdeflate for the small records, because it clears its tables each time.
const LEVEL: i32 = 1;

/// Ten bytes of gzip header: deflate, no name, no time, so that equal input gives equal bytes; system unknown.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A buffer that one huge page has grown beyond this is given back.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// Turns records into gzip members, in one buffer that is used again and again.
pub(super) struct Encoder {
    deflater: Deflater,
    /// For what is not written like a page.
    compressor: Compressor,
    members: Vec<u8>,
    header: String,
    block: Vec<u8>,
    /// Header and block in one piece.
    record: Vec<u8>,
}

/// The `response` or `revisit` record that was encoded.
pub(super) struct Encoded {
    pub(super) record_id: RecordId,
    pub(super) payload_digest: PayloadDigest,
    pub(super) revisit: bool,
}

impl Encoder {
    pub(super) fn new() -> Self {
        let level = CompressionLvl::new(LEVEL).expect("a level from 0 to 12");
        let compressor = Compressor::new(level);
        Self {
            deflater: Deflater::new(),
            compressor,
            members: Vec::new(),
            header: String::new(),
            block: Vec::new(),
            record: Vec::new(),
        }
    }

    /// The members encoded since [`Self::clear`].
    pub(super) fn members(&self) -> &[u8] {
        &self.members
    }

    pub(super) fn clear(&mut self) {
        self.members.clear();
        self.members.shrink_to(BUFFER_BYTES_KEPT);
        self.record.clear();
        self.record.shrink_to(BUFFER_BYTES_KEPT);
    }

    /// Adds members that are encoded already.
    pub(super) fn push_members(&mut self, members: &[u8]) {
        self.members.extend_from_slice(members);
    }

    /// Adds the record that opens a segment.
    pub(super) fn warcinfo(&mut self, options: &WarcOptions, file_name: &str, ids: &IdSource<'_>, unix_ms: u64) {
        self.block.clear();
        let fields = [
            ("software", options.software.as_str()),
            ("format", "WARC File Format 1.1"),
            ("conformsTo", "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"),
            ("robots", options.robots.as_str()),
            ("http-header-user-agent", options.user_agent.as_str()),
        ];
        push_fields(&mut self.block, &fields);
        self.begin("warcinfo", ids.id("warcinfo"), unix_ms);
        self.line("WARC-Filename", file_name);
        self.finish("application/warc-fields", &[], false);
    }

    /// Adds the records of `capture`. Returns `None` if its response has no status line.
    pub(super) fn capture(&mut self, capture: &Capture<'_>, ids: &IdSource<'_>) -> Option<Encoded> {
        self.block.clear();
        let status = push_http_head(&mut self.block, capture.response_head)?;
        let own_digest = capture.payload_digest.unwrap_or_else(|| sha1(&[capture.body]));
        let not_modified = status.code == Some(304);
        let revisit = capture.revisit.filter(|of| not_modified || of.payload_digest == own_digest);
        let encoded = Encoded {
            record_id: ids.id("response"),
            payload_digest: revisit.map_or(own_digest, |of| of.payload_digest),
            revisit: revisit.is_some(),
        };

        self.begin(if revisit.is_some() { "revisit" } else { "response" }, encoded.record_id, capture.unix_ms);
        self.about(capture, status.protocol);
        let _ = writeln!(self.header, "WARC-Payload-Digest: {}\r", encoded.payload_digest);
        match revisit {
            Some(of) => {
                self.refers_to(&of, not_modified);
                self.finish("application/http;msgtype=response", &[], false);
            }
            None => {
                if let Some(reason) = capture.truncated {
                    self.line("WARC-Truncated", truncated_value(reason));
                }
                if let Some(payload_type) = capture.payload_type {
                    self.line("WARC-Identified-Payload-Type", payload_type);
                }
                self.finish("application/http;msgtype=response", capture.body, status.packed);
            }
        }
        self.request(capture, ids, encoded.record_id);
        self.metadata(capture, ids, encoded.record_id);
        self.conversion(capture, ids, encoded.record_id);
        Some(encoded)
    }

    fn request(&mut self, capture: &Capture<'_>, ids: &IdSource<'_>, concurrent_to: RecordId) {
        self.block.clear();
        let Some(request) = push_http_head(&mut self.block, capture.request_head) else { return };
        self.begin("request", ids.id("request"), capture.unix_ms);
        self.about(capture, request.protocol);
        let _ = writeln!(self.header, "WARC-Concurrent-To: <{concurrent_to}>\r");
        self.finish("application/http;msgtype=request", &[], false);
    }

    fn metadata(&mut self, capture: &Capture<'_>, ids: &IdSource<'_>, concurrent_to: RecordId) {
        if capture.metadata.is_empty() {
            return;
        }
        self.block.clear();
        push_fields(&mut self.block, capture.metadata);
        self.begin("metadata", ids.id("metadata"), capture.unix_ms);
        self.about(&Capture { ip: None, ..*capture }, None);
        let _ = writeln!(self.header, "WARC-Concurrent-To: <{concurrent_to}>\r");
        self.finish("application/warc-fields", &[], false);
    }

    /// What was made of the page: another form of its content, in the words of the standard.
    fn conversion(&mut self, capture: &Capture<'_>, ids: &IdSource<'_>, of: RecordId) {
        if capture.processed.is_empty() {
            return;
        }
        self.block.clear();
        self.begin("conversion", ids.id("conversion"), capture.unix_ms);
        self.about(&Capture { ip: None, ..*capture }, None);
        let _ = writeln!(self.header, "WARC-Refers-To: <{of}>\r");
        self.finish("application/json", capture.processed, false);
    }

    fn begin(&mut self, kind: &str, id: RecordId, unix_ms: u64) {
        self.header.clear();
        let _ = write!(
            self.header,
            "WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <{id}>\r\nWARC-Date: {}\r\n",
            Moment::of(unix_ms).iso()
        );
    }

    fn about(&mut self, capture: &Capture<'_>, protocol: Option<&str>) {
        self.header.push_str("WARC-Target-URI: ");
        push_uri(&mut self.header, capture.url);
        self.header.push_str("\r\n");
        if let Some(ip) = capture.ip {
            let _ = write!(self.header, "WARC-IP-Address: {ip}\r\n");
        }
        if let Some(protocol) = protocol {
            self.line("WARC-Protocol", protocol);
        }
    }

    /// The block of a revisit is the new head alone; the standard asks for `WARC-Truncated: length` where an equal body
    /// was left out, and not where the server itself sent none.
    fn refers_to(&mut self, of: &RevisitOf<'_>, not_modified: bool) {
        let profile = if not_modified { "server-not-modified" } else { "identical-payload-digest" };
        let _ = write!(
            self.header,
            "WARC-Profile: http://netpreserve.org/warc/1.1/revisit/{profile}\r\nWARC-Refers-To: <{}>\r\n\
             WARC-Refers-To-Date: {}\r\nWARC-Refers-To-Target-URI: ",
            of.record_id,
            Moment::of(of.unix_ms).iso()
        );
        push_uri(&mut self.header, of.url);
        self.header.push_str("\r\n");
        if !not_modified {
            self.line("WARC-Truncated", "length");
        }
    }

    fn line(&mut self, name: &str, value: &str) {
        self.header.push_str(name);
        self.header.push_str(": ");
        push_text(&mut self.header, value);
        self.header.push_str("\r\n");
    }

    /// Ends the header and compresses the record: header, block (what is in `self.block`, then `body`), blank lines.
    fn finish(&mut self, content_type: &str, body: &[u8], packed: bool) {
        let digest = sha1(&[&self.block, body]);
        let length = self.block.len() + body.len();
        let _ = write!(
            self.header,
            "WARC-Block-Digest: {digest}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
        );
        self.record.clear();
        for part in [self.header.as_bytes(), &self.block, body, b"\r\n\r\n"] {
            self.record.extend_from_slice(part);
        }
        if packed {
            push_stored_member(&mut self.members, &self.record);
        } else {
            self.push_member();
        }
    }

    /// Appends the record as a gzip member.
    fn push_member(&mut self) {
        let start = self.members.len();
        self.members.extend_from_slice(&GZIP_HEADER);
        if self.deflater.deflate(&self.record, &mut self.members) {
            return push_trailer(&mut self.members, &self.record);
        }
        self.members.resize(start + self.compressor.gzip_compress_bound(self.record.len()), 0);
        let length = self.compressor.gzip_compress(&self.record, &mut self.members[start..]);
        self.members.truncate(start + length.expect("there is room for the worst case"));
    }
}

/// Appends a gzip member that holds `record` as it is. A body that its server compressed does not get smaller, and takes
/// as long to try as any other; its header would, by some 300 bytes.
fn push_stored_member(out: &mut Vec<u8>, record: &[u8]) {
    out.extend_from_slice(&GZIP_HEADER);
    let chunks = record.chunks(usize::from(u16::MAX));
    let last = chunks.len() - 1; // a record is never empty
    for (number, chunk) in chunks.enumerate() {
        let length = u16::try_from(chunk.len()).expect("a chunk is no longer than u16::MAX");
        out.push(u8::from(number == last)); // a stored block (RFC 1951, 3.2.4)
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(chunk);
    }
    push_trailer(out, record);
}

/// Ends a gzip member.
fn push_trailer(out: &mut Vec<u8>, record: &[u8]) {
    let mut crc = Crc::new();
    crc.update(record);
    out.extend_from_slice(&crc.sum().to_le_bytes());
    out.extend_from_slice(&(record.len() as u32).to_le_bytes()); // modulo 2^32, as the format says
}

/// Where record ids come from: the node's random seed, the time, and a place that the node has once: segment and offset in the archive, or a
/// number for those who know of no archive. An offset is written twice only after a crash has cut the first record off, at a later time.
pub(super) struct IdSource<'a> {
    pub(super) node_seed: &'a [u8; 16],
    pub(super) place: [u64; 2],
    pub(super) unix_ms: u64,
    pub(super) url: &'a str,
}

impl IdSource<'_> {
    fn id(&self, kind: &str) -> RecordId {
        let mut hash = xxhash_rust::xxh3::Xxh3::with_seed(0);
        hash.update(self.node_seed);
        self.place.iter().for_each(|part| hash.update(&part.to_le_bytes()));
        hash.update(&self.unix_ms.to_le_bytes());
        hash.update(kind.as_bytes());
        hash.update(self.url.as_bytes());
        let mut bytes = hash.digest128().to_be_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x80; // version 8: bits of our own choice (RFC 9562)
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        RecordId(bytes)
    }
}

/// What an HTTP head says that matters here.
struct Head {
    code: Option<u16>,
    protocol: Option<&'static str>,
    packed: bool,
}

/// Appends an HTTP head in the form every reader takes: lines end in CRLF, the only empty line is the last one.
/// Returns `None`, and appends nothing, if there is no first line.
///
/// What is changed: folded lines are unfolded (RFC 9112, 5.2), lines that are no header are dropped; HTTP/2 and 3, which
/// have no first line, are written as 1.1 (the protocol goes to `WARC-Protocol`), and `Transfer-Encoding`, which no
/// longer applies to the body, gets the prefix that Common Crawl gives it.
fn push_http_head(out: &mut Vec<u8>, head: &[u8]) -> Option<Head> {
    let mut lines = head.split(|byte| *byte == b'\n').filter(|line| !trim(line).is_empty());
    let first = trim(lines.next()?);
    let protocol = push_first_line(out, first);
    let mut packed = false;
    for line in lines {
        let folded = line.starts_with(b" ") || line.starts_with(b"\t");
        let line = trim(line);
        if folded {
            out.push(b' ');
        } else if line.contains(&b':') {
            out.extend_from_slice(b"\r\n");
            if starts_with_name(line, b"transfer-encoding") {
                out.extend_from_slice(b"X-Crawl-");
            }
            packed |= starts_with_name(line, b"content-encoding") && !line.ends_with(b"identity");
        } else {
            continue;
        }
        push_without_cr(out, line);
    }
    out.extend_from_slice(b"\r\n\r\n");
    let code = first.split(|byte| *byte == b' ').nth(1);
    let code = code.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|digits| digits.parse().ok());
    Some(Head { code, protocol, packed })
}

/// Appends `HTTP/2 200` or `GET / HTTP/2.0` as HTTP/1.1. Returns the protocol if it was another.
fn push_first_line(out: &mut Vec<u8>, line: &[u8]) -> Option<&'static str> {
    let (start, end) = if line.starts_with(b"HTTP/") {
        (0, line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()))
    } else {
        (line.iter().rposition(|byte| *byte == b' ').map_or(0, |space| space + 1), line.len())
    };
    let protocol = match &line[start..end] {
        b"HTTP/2" | b"HTTP/2.0" => Some("h2"),
        b"HTTP/3" | b"HTTP/3.0" => Some("h3"),
        _ => None,
    };
    push_without_cr(out, &line[..start]);
    push_without_cr(out, if protocol.is_some() { b"HTTP/1.1" } else { &line[start..end] });
    push_without_cr(out, &line[end..]);
    protocol
}

fn starts_with_name(line: &[u8], name: &[u8]) -> bool {
    line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name)
}

fn push_without_cr(out: &mut Vec<u8>, line: &[u8]) {
    out.extend(line.iter().map(|byte| if *byte == b'\r' { b' ' } else { *byte }));
}

/// Without the spaces and control characters at both ends.
fn trim(line: &[u8]) -> &[u8] {
    let blank = |byte: &u8| *byte <= b' ' || *byte == 0x7f;
    let start = line.iter().position(|byte| !blank(byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &line[start..end]
}

/// Appends `application/warc-fields`: a name and a value per line.
fn push_fields(out: &mut Vec<u8>, fields: &[(&str, &str)]) {
    let mut line = String::new();
    for (name, value) in fields {
        line.clear();
        let token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        line.extend(name.chars().map(|c| if token(c) { c } else { '-' }));
        line.push_str(": ");
        push_text(&mut line, value);
        line.push_str("\r\n");
        out.extend_from_slice(line.as_bytes());
    }
}

/// Appends a URL; whatever a URI may not contain is percent-encoded.
fn push_uri(out: &mut String, url: &str) {
    for byte in url.bytes() {
        if byte.is_ascii_graphic() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Appends a value; control characters, line ends among them, become spaces.
fn push_text(out: &mut String, value: &str) {
    out.extend(value.trim().chars().map(|c| if c.is_control() { ' ' } else { c }));
}

fn truncated_value(reason: Truncated) -> &'static str {
    match reason {
        Truncated::Length => "length",
        Truncated::Time => "time",
        Truncated::Disconnect => "disconnect",
        Truncated::Unspecified => "unspecified",
    }
}

pub(super) fn sha1(parts: &[&[u8]]) -> PayloadDigest {
    let mut hash = Sha1::new();
    for part in parts {
        hash.update(part);
    }
    PayloadDigest(hash.finalize().into())
}

/// 32 characters of RFC 4648 base 32: twenty bytes need no padding.
pub(super) struct Base32([u8; 32]);

impl Base32 {
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("the alphabet is ASCII")
    }
}

pub(super) fn base32(bytes: &[u8; 20]) -> Base32 {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = [0; 32];
    for (five, eight) in bytes.chunks_exact(5).zip(text.chunks_exact_mut(8)) {
        let bits = five.iter().fold(0u64, |bits, byte| (bits << 8) | u64::from(*byte));
        for (n, character) in eight.iter_mut().enumerate() {
            *character = ALPHABET[(bits >> (35 - 5 * n)) as usize & 31];
        }
    }
    Base32(text)
}

/// A time in UTC, by the calendar.
pub(super) struct Moment {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
    millisecond: u64,
}

impl Moment {
    /// Days to year, month and day after Howard Hinnant's `civil_from_days`; years begin in March, 0000-03-01 is day 0.
    /// Years beyond 9999, which the format cannot write, become its last millisecond.
    pub(super) fn of(unix_ms: u64) -> Self {
        let unix_ms = unix_ms.min(253_402_300_799_999);
        let days = unix_ms / 86_400_000 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            second_of_day: unix_ms / 1000 % 86_400,
            millisecond: unix_ms % 1000,
        }
    }

    fn clock(&self) -> (u64, u64, u64) {
        (self.second_of_day / 3600, self.second_of_day / 60 % 60, self.second_of_day % 60)
    }

    /// `2026-11-16T03:08:15.042Z`
    pub(super) fn iso(&self) -> String {
        let (hour, minute, second) = self.clock();
        let Self { year, month, day, millisecond, .. } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }

    /// `20261116030815`
    pub(super) fn compact(&self) -> String {
        let (hour, minute, second) = self.clock();
        format!("{:04}{:02}{:02}{hour:02}{minute:02}{second:02}", self.year, self.month, self.day)
    }
}
