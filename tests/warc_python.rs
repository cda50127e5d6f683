//! A whole crawl's WARC files, read by warcio, which the archives use: `tests/warc_check.py` must find no error.
//! The Python is `WARC_PYTHON`, or the one that `make setup` prepared, or python3 if that has warcio.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use simulation::world::server::Server;
use simulation::world::web::{Oddity, Web, WebPlan};
use tests::QUICK;
use tests::found;
use tests::program::Crawl;

/// A Python that has warcio.
fn warc_python() -> PathBuf {
    let mut candidates: Vec<PathBuf> = std::env::var_os("WARC_PYTHON").map(PathBuf::from).into_iter().collect();
    let cache = std::env::var_os("ORBWEAVER_CACHE").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        home.map(|home| home.join("orbweaver"))
    });
    let prepared = cache.and_then(|cache| std::fs::read_dir(cache).ok()).into_iter().flatten().flatten();
    let prepared = prepared.filter(|entry| entry.file_name().to_string_lossy().starts_with("warcio-"));
    candidates.extend(prepared.map(|entry| entry.path().join("bin/python")));
    candidates.push("python3".into());
    let has_warcio = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import warcio"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    };
    let found = candidates.iter().find(|python| has_warcio(python));
    found.cloned().unwrap_or_else(|| {
        panic!("no Python with warcio among {candidates:?}: run `make setup`, or name one with WARC_PYTHON")
    })
}

fn check(archive: &Path) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/warc_check.py");
    let output = Command::new(warc_python()).arg(script).arg(archive).output().expect("it could be asked before");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"))
}

#[test]
fn warcio_reads_everything_a_crawl_of_everything_archived() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::small(9).with_oddity(Oddity::Unavailable, 0))).unwrap();
    // Small segments, so that there are several.
    let config = format!("{QUICK}\n[storage]\nwarc_bytes_max = 200000\n");
    let crawl = Crawl::of(&server, work.path()).with_config(&config);
    crawl.finish();

    let report = check(&crawl.data().join("warc"));
    let records = found::records(&crawl.data());
    let count = |kind: &str| records.iter().filter(|record| record.header("WARC-Type") == Some(kind)).count();
    assert_eq!(report["errors"].as_array().map_or(0, Vec::len), 0, "{report}");
    assert!(report["files"].as_u64() >= Some(3), "{report}");
    assert_eq!(report["records"], records.len(), "{report}");
    assert_eq!(report["block_digests"], records.len(), "{report}");
    assert_eq!(report["payload_digests"], count("response"), "{report}");
    for kind in ["warcinfo", "response", "revisit", "request", "metadata"] {
        assert!(count(kind) > 0, "no {kind} record");
        assert_eq!(report["types"][kind], count(kind), "{kind} of {report}");
    }
    // Every answer of a server that came whole is there.
    let pages = found::with_status(&found::export(&crawl.data()), "PROCESSED").len();
    assert!(count("response") + count("revisit") >= pages, "{pages} pages, {report}");
}
