use std::path::Path;

use proptest::prelude::*;

use super::*;

const T0: u64 = 1_763_262_495_042; // 2025-11-16T03:08:15.042Z

pub(super) fn options() -> WarcOptions {
    WarcOptions {
        segment_bytes_max: SEGMENT_BYTES_MAX,
        software: "orbweaver/test".to_owned(),
        user_agent: "orbweaver (+https://example.org/bot)".to_owned(),
        robots: "obey".to_owned(),
        node_seed: [7; 16],
    }
}

const METADATA: &[(&str, &str)] = &[("fetchTimeMs", "41"), ("hopsFromSeed", "2"), ("via", "http://example.org/")];

pub(super) fn page<'a>(url: &'a str, unix_ms: u64, body: &'a [u8]) -> Capture<'a> {
    Capture {
        url,
        unix_ms,
        ip: Some(IpAddr::from([192, 0, 2, 7])),
        request_head: b"GET /page HTTP/1.1\r\nHost: example.org\r\n\r\n",
        response_head: b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        body,
        payload_type: Some("text/html"),
        metadata: METADATA,
        ..Capture::default()
    }
}

/// Every record of every segment; panics on any error, so it is also the check that the archive is sound.
fn read_all(dir: &Path) -> Vec<Record> {
    let segments = segments(dir).unwrap();
    segments.values().flat_map(|path| WarcReader::open(path).unwrap()).map(|record| record.unwrap().record).collect()
}

fn only_segment(dir: &Path) -> PathBuf {
    let segments = segments(dir).unwrap();
    assert_eq!(segments.len(), 1);
    segments.into_values().next().unwrap()
}

#[test]
fn capture_comes_back_as_it_went_in() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    let body: Vec<u8> = (0..20_000u32).map(|n| ((n * n) >> 5) as u8).collect();
    let first = writer.append(&page("http://example.org/page?a=1", T0, &body)).unwrap();
    let second = writer.append(&page("http://example.org/other", T0 + 1, b"")).unwrap();
    assert_eq!(writer.sync().unwrap(), second.end);

    let path = only_segment(dir.path());
    assert_eq!(path.file_name().unwrap(), "orbweaver-20251116030815-00000.warc.gz");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), second.end.offset);

    let mut archive = WarcArchive::new(dir.path());
    let records = archive.read_capture_at(first.position).unwrap();
    let [response, request, metadata] = records.as_slice() else { panic!("{} records", records.len()) };
    assert_eq!(response, &read_at(dir.path(), first.position).unwrap());
    assert_eq!(response.kind, RecordKind::Response);
    assert_eq!(response.payload(), body);
    assert_eq!(response.http_head(), page("", 0, b"").response_head);
    assert_eq!(response.header("WARC-Target-URI"), Some("http://example.org/page?a=1"));
    assert_eq!(response.header("WARC-Date"), Some("2025-11-16T03:08:15.042Z"));
    assert_eq!(response.header("WARC-IP-Address"), Some("192.0.2.7"));
    assert_eq!(response.header("WARC-Identified-Payload-Type"), Some("text/html"));
    assert_eq!(response.header("WARC-Payload-Digest"), Some(first.payload_digest.to_string().as_str()));
    assert_eq!(first.payload_digest, PayloadDigest::of(&body));
    let id = format!("<{}>", first.record_id);
    assert_eq!(response.header("WARC-Record-ID"), Some(id.as_str()));
    assert_eq!(request.kind, RecordKind::Request);
    assert_eq!(request.block, page("", 0, b"").request_head);
    assert_eq!(request.header("WARC-Concurrent-To"), Some(id.as_str()));
    assert_eq!(metadata.kind, RecordKind::Metadata);
    assert_eq!(metadata.block, b"fetchTimeMs: 41\r\nhopsFromSeed: 2\r\nvia: http://example.org/\r\n");
    assert_eq!(metadata.header("WARC-Concurrent-To"), Some(id.as_str()));

    let all = read_all(dir.path());
    assert_eq!(all.len(), 7);
    assert_eq!(all[0].kind, RecordKind::Warcinfo);
    assert_eq!(all[0].header("WARC-Filename"), path.file_name().unwrap().to_str());
    assert!(String::from_utf8_lossy(&all[0].block).contains("http-header-user-agent: orbweaver (+https://"));
    let ids: std::collections::BTreeSet<_> = all.iter().map(|record| record.header("WARC-Record-ID")).collect();
    assert_eq!(ids.len(), 7, "record ids are distinct");
}

#[test]
fn body_its_server_compressed_is_kept_as_it_came() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n";
    let noise: Vec<u8> = (0..200_000u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    for length in [0, 1, 65_535, 65_536, 200_000] {
        let packed = Capture { response_head: head, ..page("http://example.org/", T0, &noise[..length]) };
        let packed = writer.append(&packed).unwrap();
        let record = read_at(dir.path(), packed.position).unwrap();
        assert_eq!(record.http_head(), head);
        assert_eq!(record.payload(), &noise[..length]);
        assert!((packed.position.length as usize) < length + 2_000);
    }
    // Whatever length the head has, the stored body begins at a whole byte, and the buffer may end anywhere.
    for length in 0..3_000 {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nX: {}\r\n\r\n", "x7".repeat(length));
        let packed = Capture { response_head: head.as_bytes(), ..page("http://example.org/", T0, &noise[..10]) };
        let packed = writer.append(&packed).unwrap();
        assert_eq!(read_at(dir.path(), packed.position).unwrap().payload(), &noise[..10]);
    }
}

#[test]
fn equal_input_gives_equal_files() {
    let write = || {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
        writer.append(&page("http://example.org/", T0, b"hello")).unwrap();
        std::fs::read(only_segment(dir.path())).unwrap()
    };
    assert_eq!(write(), write());
}

#[test]
fn full_segment_is_followed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let options = WarcOptions { segment_bytes_max: 4_000, ..options() };
    let mut writer = WarcWriter::open(dir.path(), options.clone(), None).unwrap();
    let positions: Vec<_> = (0..20)
        .map(|n| writer.append(&page(&format!("http://example.org/{n}"), T0 + n * 1000, b"body")).unwrap().position)
        .collect();
    let end = writer.sync().unwrap();
    let found = segments(dir.path()).unwrap();
    assert!(found.len() > 2);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), (0..=end.segment).collect::<Vec<_>>());
    for path in found.values() {
        let first = WarcReader::open(path).unwrap().next().unwrap().unwrap().record;
        assert_eq!(first.kind, RecordKind::Warcinfo);
        assert_eq!(first.header("WARC-Filename"), path.file_name().unwrap().to_str());
    }
    for (n, position) in positions.iter().enumerate() {
        let record = read_at(dir.path(), *position).unwrap();
        assert_eq!(record.header("WARC-Target-URI"), Some(format!("http://example.org/{n}").as_str()));
    }
    assert_eq!(read_all(dir.path()).len(), found.len() + 20 * 3);

    // A crash that forgets the last segments takes their files along.
    drop(writer);
    let earlier = WarcEnd { segment: 1, offset: std::fs::metadata(&found[&1]).unwrap().len() };
    let mut writer = WarcWriter::open(dir.path(), options, Some(earlier)).unwrap();
    assert_eq!(segments(dir.path()).unwrap().len(), 2);
    let again = writer.append(&page("http://example.org/again", T0, b"")).unwrap();
    assert_eq!(again.position.segment, 2, "segment 1 was full");
    read_all(dir.path());
}

#[test]
fn torn_tail_is_cut_wherever_it_was_torn() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    writer.append(&page("http://example.org/1", T0, b"one")).unwrap();
    let durable = writer.sync().unwrap();
    let lost = writer.append(&page("http://example.org/2", T0 + 1, b"two")).unwrap();
    drop(writer);
    let path = only_segment(dir.path());
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, lost.end.offset);
    for torn_at in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..torn_at]).unwrap();
        let opened = WarcWriter::open(dir.path(), options(), Some(durable));
        if (torn_at as u64) < durable.offset {
            let error = opened.err().expect("acknowledged data is gone");
            assert!(matches!(error, WarcError::ShorterThanDurable { .. }), "{error}");
            assert!(error.to_string().contains(path.to_str().unwrap()));
            continue;
        }
        let mut writer = opened.unwrap();
        assert_eq!(writer.end(), durable);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), durable.offset);
        let again = writer.append(&page("http://example.org/2", T0 + 1, b"two")).unwrap();
        assert_eq!(again, lost);
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn without_a_durable_end_whole_records_are_kept_and_a_torn_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    writer.append(&page("http://example.org/1", T0, b"one")).unwrap();
    drop(writer);
    let path = only_segment(dir.path());
    let bytes = std::fs::read(&path).unwrap();
    let ends: Vec<u64> = WarcReader::open(&path)
        .unwrap()
        .map(|located| located.map(|located| located.offset + u64::from(located.length)).unwrap())
        .collect();
    for torn_at in 1..=bytes.len() {
        std::fs::write(&path, &bytes[..torn_at]).unwrap();
        let writer = WarcWriter::open(dir.path(), options(), None).unwrap();
        let whole = ends.iter().rev().find(|end| **end <= torn_at as u64);
        match whole {
            Some(whole) => assert_eq!(std::fs::metadata(&path).unwrap().len(), *whole),
            None => assert!(!path.exists()),
        }
        assert_eq!(writer.end(), WarcEnd { segment: u32::from(whole.is_some()), offset: 0 });
    }
}

#[test]
fn missing_segment_is_an_error_unless_it_was_empty() {
    let dir = tempfile::tempdir().unwrap();
    let open = |offset| WarcWriter::open(dir.path(), options(), Some(WarcEnd { segment: 3, offset }));
    assert!(matches!(open(1), Err(WarcError::SegmentMissing { segment: 3, .. })));
    let appended = open(0).unwrap().append(&page("http://example.org/", T0, b"")).unwrap();
    assert_eq!(appended.position.segment, 3);
}

#[test]
fn equal_payload_becomes_a_revisit() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    let original = writer.append(&page("http://example.org/a", T0, b"same")).unwrap();
    let of = RevisitOf {
        url: "http://example.org/a",
        unix_ms: T0,
        record_id: original.record_id,
        payload_digest: original.payload_digest,
    };
    let same = Capture { revisit: Some(of), ..page("http://example.org/b", T0 + 5, b"same") };
    let same = writer.append(&same).unwrap();
    assert!(same.revisit);
    assert_eq!(same.payload_digest, original.payload_digest);
    let record = read_at(dir.path(), same.position).unwrap();
    assert_eq!(record.kind, RecordKind::Revisit);
    assert_eq!(record.payload(), b"");
    assert!(record.http_head().starts_with(b"HTTP/1.1 200 OK\r\n"));
    let profile = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest";
    assert_eq!(record.header("WARC-Profile"), Some(profile));
    assert_eq!(record.header("WARC-Refers-To"), Some(format!("<{}>", original.record_id).as_str()));
    assert_eq!(record.header("WARC-Refers-To-Target-URI"), Some("http://example.org/a"));
    assert_eq!(record.header("WARC-Refers-To-Date"), Some("2025-11-16T03:08:15.042Z"));
    assert_eq!(record.header("WARC-Payload-Digest"), Some(original.payload_digest.to_string().as_str()));
    assert_eq!(record.header("WARC-Truncated"), Some("length"));

    let head = b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n";
    let not_modified = Capture { revisit: Some(of), response_head: head, ..page("http://example.org/a", T0 + 6, b"") };
    let not_modified = writer.append(&not_modified).unwrap();
    let record = read_at(dir.path(), not_modified.position).unwrap();
    let profile = "http://netpreserve.org/warc/1.1/revisit/server-not-modified";
    assert_eq!(record.header("WARC-Profile"), Some(profile));
    assert_eq!(record.header("WARC-Truncated"), None);

    let differs = Capture { revisit: Some(of), ..page("http://example.org/a", T0 + 7, b"differs") };
    let differs = writer.append(&differs).unwrap();
    assert!(!differs.revisit);
    assert_eq!(read_at(dir.path(), differs.position).unwrap().payload(), b"differs");
    read_all(dir.path());
}

#[test]
fn truncated_payload_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    let cut = Capture { truncated: Some(Truncated::Time), ..page("http://example.org/", T0, b"ha") };
    let cut = writer.append(&cut).unwrap();
    assert_eq!(read_at(dir.path(), cut.position).unwrap().header("WARC-Truncated"), Some("time"));
}

#[test]
fn hostile_values_start_no_line_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    let hostile = Capture {
        url: "http://example.org/\r\nWARC-Type: evil\r\n\r\n\u{e9} x",
        response_head:
            b"HTTP/2 200\r\n\r\nX: 1\nY: 2\r\n\r\n\r\nno header\r\n folded\rWARC/1.1\r\nTransfer-Encoding: chunked",
        request_head: b"GET /?HTTP/2 HTTP/2.0\nHost: example.org",
        body: b"\r\n\r\nWARC/1.1\r\nWARC-Type: evil\r\n\r\n",
        payload_type: Some("text/html\r\nX-Evil: 1"),
        metadata: &[("na me:\r\n", "v\r\nevil: 1\u{85}x"), ("via", "http://a/\r\n\r\n")],
        ..page("", T0, b"")
    };
    let appended = writer.append(&hostile).unwrap();
    let records = WarcArchive::new(dir.path()).read_capture_at(appended.position).unwrap();
    assert_eq!(records.len(), 3);
    let uri = "http://example.org/%0D%0AWARC-Type:%20evil%0D%0A%0D%0A%C3%A9%20x";
    assert_eq!(records[0].header("WARC-Target-URI"), Some(uri));
    assert_eq!(records[0].header("WARC-Identified-Payload-Type"), Some("text/html  X-Evil: 1"));
    assert_eq!(records[0].header("WARC-Protocol"), Some("h2"));
    assert_eq!(records[0].payload(), hostile.body);
    let head = b"HTTP/1.1 200\r\nX: 1\r\nY: 2 folded WARC/1.1\r\nX-Crawl-Transfer-Encoding: chunked\r\n\r\n";
    assert_eq!(records[0].http_head(), head.as_slice(), "{}", String::from_utf8_lossy(records[0].http_head()));
    assert_eq!(records[1].block, b"GET /?HTTP/2 HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert_eq!(records[2].block, b"na-me---: v  evil: 1 x\r\nvia: http://a/\r\n");
}

#[test]
fn response_without_a_status_line_is_refused_and_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    let headless = Capture { response_head: b" \r\n", ..page("http://example.org/", T0, b"x") };
    assert!(matches!(writer.append(&headless), Err(WarcError::Refused { .. })));
    assert!(segments(dir.path()).unwrap().is_empty());
}

#[test]
fn full_disk_is_recognised_and_the_torn_record_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    writer.fail_after_bytes = Some(100);
    let error = writer.append(&page("http://example.org/", T0, b"x")).unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    assert!(segments(dir.path()).unwrap().is_empty(), "a segment without a record is removed");

    let first = writer.append(&page("http://example.org/", T0, b"x")).unwrap();
    writer.fail_after_bytes = Some(100);
    assert!(writer.append(&page("http://example.org/", T0, b"x")).unwrap_err().is_disk_full());
    assert_eq!(writer.end(), first.end);
    assert_eq!(std::fs::metadata(only_segment(dir.path())).unwrap().len(), first.end.offset);
    writer.append(&page("http://example.org/", T0, b"x")).unwrap();
    assert_eq!(read_all(dir.path()).len(), 7);
}

#[test]
fn what_the_system_says_of_a_full_disk_is_understood() {
    let full = Path::new("/dev/full");
    let refused = std::fs::write(full, b"x").map_err(WarcError::io("write", full)).unwrap_err();
    assert!(refused.is_disk_full(), "{refused}");
    assert!(refused.to_string().starts_with("cannot write /dev/full: "));
    let absent = Path::new("/nonexistent");
    assert!(!std::fs::read(absent).map_err(WarcError::io("read", absent)).unwrap_err().is_disk_full());
}

#[test]
fn rewind_takes_back_what_could_not_be_indexed() {
    let dir = tempfile::tempdir().unwrap();
    let options = WarcOptions { segment_bytes_max: 2_000, ..options() };
    let mut writer = WarcWriter::open(dir.path(), options, None).unwrap();
    let kept = writer.append(&page("http://example.org/1", T0, b"x")).unwrap();
    for n in 0..10 {
        writer.append(&page("http://example.org/2", T0 + n, b"x")).unwrap();
    }
    assert!(writer.end().segment > 1);
    writer.rewind(kept.end).unwrap();
    let next = writer.append(&page("http://example.org/3", T0, b"x")).unwrap();
    assert_eq!(next.position.offset, kept.end.offset);
    assert_eq!(read_all(dir.path()).len(), 7);
}

#[test]
fn flipped_bit_is_noticed_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
    writer.append(&page("http://example.org/", T0, b"some body, some body")).unwrap();
    let path = only_segment(dir.path());
    let bytes = std::fs::read(&path).unwrap();
    let sound = read_all(dir.path());
    let mut unnoticed = 0;
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        let read: Result<Vec<_>, _> = WarcReader::open(&path).unwrap().collect();
        if let Ok(read) = read {
            // Time, system and flags of the gzip header mean nothing to us; all else must be as it was.
            assert_eq!(read.into_iter().map(|located| located.record).collect::<Vec<_>>(), sound, "byte {at}");
            unnoticed += 1;
        }
    }
    assert!(unnoticed <= 4 * 7, "{unnoticed} flips went unnoticed");
}

#[test]
fn record_whose_digest_lies_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.warc.gz");
    let write = |digest: &str| {
        let record = format!(
            "WARC/1.1\r\nWARC-Type: response\r\nContent-Type: application/http\r\n{digest}Content-Length: 23\r\n\r\n\
             HTTP/1.1 200 OK\r\n\r\nbody\r\n\r\n"
        );
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut gzip, record.as_bytes()).unwrap();
        std::fs::write(&path, gzip.finish().unwrap()).unwrap();
        WarcReader::open(&path).unwrap().next().unwrap()
    };
    assert!(write("").is_ok());
    assert!(write(&format!("WARC-Payload-Digest: {}\r\n", PayloadDigest::of(b"body"))).is_ok());
    for name in ["WARC-Payload-Digest", "WARC-Block-Digest"] {
        let error = write(&format!("{name}: {}\r\n", PayloadDigest::of(b"other"))).unwrap_err();
        assert!(error.to_string().contains(&format!("{name} does not match")), "{error}");
    }
}

#[test]
fn known_values() {
    assert_eq!(PayloadDigest::of(b"").to_string(), "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ");
    assert_eq!(RecordId([0xab; 16]).to_string(), "urn:uuid:abababab-abab-abab-abab-abababababab");
    for (unix_ms, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (u64::MAX, "9999-12-31T23:59:59.999Z"),
    ] {
        assert_eq!(encode::Moment::of(unix_ms).iso(), text);
    }
    assert_eq!(serial_of(&segment_name(T0, 12)), Some(12));
    assert_eq!(serial_of(&segment_name(T0, 1_234_567)), Some(1_234_567));
    for other in ["orbweaver-2-00001.warc.gz", "orbweaver-20251116030815-1.warc.gz", "x.warc.gz", "LOCK"] {
        assert_eq!(serial_of(other), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a server sends: three sound records, the body untouched, and one header line per field.
    #[test]
    fn anything_comes_back(
        url in ".*",
        response_head in "HTTP/1.1 200 OK(\\PC|\r|\n|:| ){0,200}",
        request_head in proptest::collection::vec(any::<u8>(), 0..200),
        body in proptest::collection::vec(any::<u8>(), 0..5_000),
        name in ".{0,20}",
        value in "(\\PC|\r|\n){0,100}",
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
        let appended = writer.append(&Capture {
            request_head: &request_head,
            response_head: response_head.as_bytes(),
            metadata: &[(&name, &value)],
            ..page(&url, T0, &body)
        }).unwrap();
        let records = WarcArchive::new(dir.path()).read_capture_at(appended.position).unwrap();
        prop_assert_eq!(records[0].payload(), body);
        prop_assert_eq!(records[0].headers.len(), 10);
        for record in &records {
            prop_assert!(record.header("WARC-Target-URI").unwrap().bytes().all(|byte| byte.is_ascii_graphic()));
        }
        let metadata = records.last().unwrap();
        prop_assert_eq!(metadata.block.iter().filter(|byte| **byte == b'\n').count(), 1);
    }
}

/// Run alone, in release, on an idle machine; the numbers stand at `encode::LEVEL`. `PAGE` names the page.
#[test]
#[ignore = "a measurement"]
fn archive_speed() {
    const BATCH: u64 = 1_000;
    let page_file = std::env::var("PAGE").expect("PAGE=some.html");
    let mut body = std::fs::read(page_file).unwrap();
    body.truncate(8192);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    io::Write::write_all(&mut packed, &body).unwrap();
    let packed = packed.finish().unwrap();
    let head = "HTTP/1.1 200 OK\r\nDate: Sun, 16 Nov 2025 03:08:15 GMT\r\nServer: nginx/1.24.0\r\n\
        Content-Type: text/html; charset=utf-8\r\nContent-Length: 8192\r\nConnection: keep-alive\r\n\
        ETag: \"5f3-60a1b2c3\"\r\nCache-Control: max-age=3600\r\nVary: Accept-Encoding\r\n";
    let request = b"GET /a/page/somewhere.html HTTP/1.1\r\nHost: www.example.org\r\nAccept: text/html,*/*;q=0.5\r\n\
        Accept-Encoding: gzip, br, zstd\r\nUser-Agent: orbweaver/0.1 (+https://example.org/bot)\r\n\r\n";
    // What this thread has used of a core: a busy machine makes it larger, but not by the time spent waiting.
    let cpu_ns = || -> u64 {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        times.split(' ').next().unwrap().parse().unwrap()
    };
    for (name, encoding, body) in [("plain", "", &body), ("packed", "Content-Encoding: gzip\r\n", &packed)] {
        let head = format!("{head}{encoding}\r\n");
        let dir = tempfile::tempdir().unwrap();
        let mut writer = WarcWriter::open(dir.path(), options(), None).unwrap();
        let began = cpu_ns();
        for batch in 0..20 {
            for n in 0..BATCH {
                let url = format!("http://www.example.org/a/page/{batch}/{n}.html");
                let capture = page(&url, T0 + n, body);
                let capture = Capture { response_head: head.as_bytes(), request_head: request, ..capture };
                writer.append(&capture).unwrap();
            }
        }
        let micros = (cpu_ns() - began) as f64 / (20 * BATCH) as f64 / 1e3;
        let bytes = writer.end().offset / (20 * BATCH);
        println!("{name}: {micros:.1} us, {} bytes of body become {bytes}", body.len());
    }
}
