//! Checks the members of a capture without having any record whole in memory: pages that come from other nodes may be large.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;
use sha1::{Digest, Sha1};

use super::reader::parse_head;
use super::{PayloadDigest, WarcError};

/// No header of ours comes near this.
const HEAD_BYTES_MAX: u64 = 1 << 20;
/// Bytes that are unpacked at once.
const UNPACKED_BYTES: usize = 64 << 10;

/// Reads all members, checks lengths and digests of their records, and returns the id of the first one.
///
/// # Errors
/// If they are not what an archive holds.
pub fn check_members(members: impl BufRead) -> Result<Option<String>, WarcError> {
    let mut input = members;
    let damaged = |reason: String| WarcError::Damaged { path: "a capture".into(), offset: 0, reason };
    let mut first = None;
    while !input.fill_buf().map_err(WarcError::io("read", Path::new("a capture")))?.is_empty() {
        let record = BufReader::with_capacity(UNPACKED_BYTES, GzDecoder::new(&mut input));
        let id = check_record(record).map_err(damaged)?;
        first = first.or(Some(id));
    }
    Ok(first)
}

/// Checks one record; returns its id.
fn check_record(mut record: impl BufRead) -> Result<String, String> {
    let head = head_of(&mut record)?;
    let headers = parse_head(head.strip_suffix(b"\r\n\r\n").unwrap_or(&head))?;
    let header =
        |name: &str| headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
    let length: u64 = header("Content-Length").and_then(|value| value.parse().ok()).ok_or("no Content-Length")?;
    let is_http = header("Content-Type").is_some_and(|value| value.starts_with("application/http"));
    let digests = digests_of((&mut record).take(length), length, is_http)?;
    let check = |name: &str, digest: PayloadDigest| match header(name) {
        Some(written) if written != digest.to_string() => Err(format!("{name} does not match")),
        _ => Ok(()),
    };
    check("WARC-Block-Digest", digests.0)?;
    if header("WARC-Type") != Some("revisit") {
        check("WARC-Payload-Digest", digests.1)?;
    }
    let mut end = Vec::new();
    record.take(5).read_to_end(&mut end).map_err(|error| error.to_string())?;
    if end != b"\r\n\r\n" {
        return Err("no blank lines at the end".to_owned());
    }
    Ok(header("WARC-Record-ID").ok_or("no WARC-Record-ID")?.to_owned())
}

/// Reads up to and with the empty line.
fn head_of(input: &mut impl BufRead) -> Result<Vec<u8>, String> {
    let mut head = Vec::new();
    let mut input = input.take(HEAD_BYTES_MAX);
    loop {
        let read = input.read_until(b'\n', &mut head).map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("no end of header".to_owned());
        }
        if head.ends_with(b"\r\n\r\n") {
            return Ok(head);
        }
    }
}

/// The digests of a block and of its payload, which begins behind the head of an HTTP message.
fn digests_of(mut block: impl BufRead, length: u64, is_http: bool) -> Result<(PayloadDigest, PayloadDigest), String> {
    let (mut whole, mut payload, mut bytes) = (Sha1::new(), Sha1::new(), 0);
    // A block without an empty line is all head.
    let (mut in_head, mut last) = (is_http, [0; 4]);
    loop {
        let piece = block.fill_buf().map_err(|error| error.to_string())?;
        if piece.is_empty() {
            break;
        }
        let mut head = 0;
        while in_head && head < piece.len() {
            last = [last[1], last[2], last[3], piece[head]];
            head += 1;
            in_head = last != *b"\r\n\r\n";
        }
        whole.update(piece);
        payload.update(&piece[head..]);
        let read = piece.len();
        bytes += read as u64;
        block.consume(read);
    }
    if bytes != length {
        return Err(format!("Content-Length is {length}, the block has {bytes} bytes"));
    }
    Ok((PayloadDigest(whole.finalize().into()), PayloadDigest(payload.finalize().into())))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{options, page};
    use super::super::{WarcArchive, WarcWriter, parse_members};
    use super::*;

    /// Bytes that do not get smaller when they are packed.
    fn noise(length: u64) -> Vec<u8> {
        (0..length).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
    }

    #[test]
    fn what_is_whole_is_told_from_what_is_not_wherever_a_bit_flips() {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
        for body in [&b""[..], b"hello", &noise(3 * UNPACKED_BYTES as u64 + 5)] {
            let there = writer.append(&page("http://example.org/", 1, body)).unwrap();
            let members = WarcArchive::new(dir.path()).members_at(there.position).unwrap();
            assert_eq!(check_members(members.as_slice()).unwrap(), Some(format!("<{}>", there.record_id)));
            for at in (0..members.len()).step_by(1 + members.len() / 300) {
                let mut damaged = members.clone();
                damaged[at] ^= 1;
                let (checked, parsed) = (check_members(damaged.as_slice()), parse_members(&damaged));
                assert_eq!(checked.is_ok(), parsed.is_ok(), "{at}: {checked:?} {parsed:?}");
                assert!(check_members(&members[..at]).is_err() || parse_members(&members[..at]).is_ok(), "{at}");
            }
        }
        assert_eq!(check_members(&b""[..]).unwrap(), None);
    }

    #[test]
    fn a_page_that_comes_in_a_file_lies_as_if_it_came_in_memory() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let body = noise(2_500_000);
        let mut writer = WarcWriter::open(from.path(), options(), None).unwrap();
        let there = writer.append(&page("http://a.example/", 1, &body)).unwrap().position;
        let mut archive = WarcArchive::new(from.path());
        let members = archive.members_at(there).unwrap();
        let places = (0..there.length).step_by(700_000);
        let parts: Vec<u8> = places.flat_map(|at| archive.part_at(there, at, 700_000).unwrap()).collect();
        assert!(parts == members, "parts are the whole");

        let file = tempfile::tempfile_in(to.path()).unwrap();
        std::io::Write::write_all(&mut &file, &members).unwrap();
        let mut writer = WarcWriter::open(to.path(), options(), None).unwrap();
        let first = writer.append_file(&file, members.len() as u32, 5).unwrap();
        let second = writer.append_members(&members, 6, "a copy").unwrap();
        writer.sync().unwrap();
        let mut archive = WarcArchive::new(to.path());
        assert!(archive.members_at(first).unwrap() == members);
        assert_eq!(second.offset, first.offset + u64::from(first.length), "nothing lies between them");
        assert_eq!(archive.read_at(first).unwrap().payload(), body);
    }
}
