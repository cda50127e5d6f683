//! What we archive, read by warcio, which the archives use: `tests/warc_check.py` must find our segments sound, and
//! must notice when they are not. Needs `WARC_PYTHON`, a Python that has warcio; `make test` provides one.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output};

use node::edges::warc::{Capture, RevisitOf, Truncated, WarcOptions, WarcWriter, segments};

const T0: u64 = 1_763_262_495_042;

/// Three segments with every kind of record and every kind of body that gave some reader trouble.
fn write_archive(dir: &Path) -> anyhow::Result<()> {
    let options = WarcOptions {
        segment_bytes_max: 40_000,
        software: "orbweaver/test".to_owned(),
        user_agent: "orbweaver (+https://example.org/bot)".to_owned(),
        robots: "obey".to_owned(),
        node_seed: [1; 16],
    };
    let mut writer = WarcWriter::open(dir, options, None)?;
    let noise: Vec<u8> = (0..70_000u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let plain = Capture {
        unix_ms: T0,
        ip: Some("2001:db8::1".parse()?),
        request_head: b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        response_head: b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        metadata: &[("fetchTimeMs", "12"), ("via", "http://example.org/\r\nevil: 1")],
        payload_type: Some("text/html"),
        ..Capture::default()
    };
    for n in 0..100u64 {
        let url = format!("http://example.org/{n}");
        let body = "<p>some text</p>".repeat(n as usize);
        writer.append(&Capture { url: &url, unix_ms: T0 + n, body: body.as_bytes(), ..plain })?;
    }
    let packed_head = b"HTTP/2 200\r\nContent-Encoding: br\r\nTransfer-Encoding: chunked\r\n\r\n";
    let packed = Capture { response_head: packed_head, request_head: b"GET / HTTP/2.0\r\n\r\n", body: &noise, ..plain };
    let original = writer.append(&Capture { url: "https://example.org/packed", ..packed })?;
    let of = RevisitOf {
        url: "https://example.org/packed",
        unix_ms: T0,
        record_id: original.record_id,
        payload_digest: original.payload_digest,
    };
    let revisits = [
        Capture { url: "https://example.org/same", revisit: Some(of), ..packed },
        Capture {
            response_head: b"HTTP/1.1 304 Not Modified\r\n\r\n",
            body: b"",
            revisit: Some(of),
            url: of.url,
            ..plain
        },
        Capture {
            body: b"5\r\nnot a chunk",
            truncated: Some(Truncated::Disconnect),
            url: "http://example.org/cut",
            ..plain
        },
        Capture { body: b"WARC/1.1\r\n\r\n", url: "http://example.org/\r\nX: \u{e9}", ..plain },
        Capture {
            response_head: b"HTTP/1.1 200\n\nX: 1\n\n \x85\r\n: y\n\r\n",
            body: b"\r\n\r\n",
            url: "http://b.example/",
            ..plain
        },
    ];
    for capture in &revisits {
        writer.append(capture)?;
    }
    writer.sync()?;
    Ok(())
}

fn warc_python() -> Option<OsString> {
    let python = std::env::var_os("WARC_PYTHON");
    if python.is_none() {
        eprintln!("skipped: WARC_PYTHON names no Python with warcio (`make test` does)");
    }
    python
}

fn check(python: &OsString, dir: &Path) -> anyhow::Result<(Output, serde_json::Value)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/warc_check.py");
    let output = Command::new(python).arg(script).arg(dir).output()?;
    let report = serde_json::from_slice(&output.stdout);
    let report = report.map_err(|error| anyhow::anyhow!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok((output, report))
}

#[test]
fn warcio_finds_our_segments_sound() -> anyhow::Result<()> {
    let Some(python) = warc_python() else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    write_archive(dir.path())?;
    let (output, report) = check(&python, dir.path())?;
    assert!(output.status.success(), "{report}");
    let files = segments(dir.path())?.len() as u64;
    assert!(files >= 3, "{report}");
    assert_eq!(report["files"], files);
    assert_eq!(report["records"], files + 106 * 3);
    assert_eq!(report["block_digests"], report["records"]);
    assert_eq!(report["payload_digests"], 104);
    assert_eq!(report["types"]["revisit"], 2);
    Ok(())
}

#[test]
fn damaged_segment_does_not_pass() -> anyhow::Result<()> {
    let Some(python) = warc_python() else { return Ok(()) };
    let dir = tempfile::tempdir()?;
    write_archive(dir.path())?;
    let path = segments(dir.path())?.remove(&0).expect("there is a first segment");
    let sound = std::fs::read(&path)?;
    let flipped: Vec<u8> =
        sound.iter().enumerate().map(|(n, byte)| if n == 5_000 { byte ^ 4 } else { *byte }).collect();
    let torn = sound[..sound.len() - 3].to_vec();
    let trailing = [sound.as_slice(), b"x"].concat();
    for (what, bytes) in [("flipped", flipped), ("torn", torn), ("trailing", trailing)] {
        std::fs::write(&path, bytes)?;
        let (output, report) = check(&python, dir.path())?;
        assert_eq!(output.status.code(), Some(1), "{what}: {report}");
        assert_eq!(report["errors"].as_array().map(Vec::len), Some(1), "{what}: {report}");
    }
    Ok(())
}
