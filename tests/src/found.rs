//! What a crawl left behind: its export, its counters, its WARC files.

use std::collections::BTreeMap;
use std::path::Path;

use node::edges::store::Store;
use node::edges::warc::{Record, RecordKind, WarcArchive, WarcPosition, WarcReader, segments};
use serde_json::Value;
use simulation::world::web::{Request, Visit, Web};

use crate::program::run;

/// Exported rows by URL.
pub type Rows = BTreeMap<String, Value>;

/// Everything `orbweaver export` says about a data folder, pages that ask not to be indexed included.
pub fn export(data: &Path) -> Rows {
    export_with(data, &["--with-noindex"])
}

/// What `orbweaver export` says with further arguments.
pub fn export_with(data: &Path, arguments: &[&str]) -> Rows {
    let data = data.to_str().expect("temporary folders have plain names");
    let ended = run(&[&["export", data, "--format", "jsonl"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{ended}");
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let rows = ended.stdout.lines().map(parse);
    rows.map(|row| (row["url"].as_str().expect("every row has its URL").to_owned(), row)).collect()
}

/// The URLs of rows with this status.
pub fn with_status<'a>(rows: &'a Rows, status: &str) -> Vec<&'a str> {
    rows.iter().filter(|(_, row)| row["status"] == status).map(|(url, _)| url.as_str()).collect()
}

/// Asserts that the counters kept along the way are those of a full recount, and returns the state.
pub fn assert_recount(data: &Path) -> node::edges::store::State {
    let store = Store::open_for_reading(data).expect("a data folder can be read");
    let (counters, places) = store.recount().expect("every row can be read");
    let state = store.state().clone();
    assert_eq!(state.counters, counters, "counters and recount");
    assert_eq!(state.places, places, "places and recount");
    state
}

/// Asserts that a summary says what a recount says.
pub fn assert_summary(summary: &Value, data: &Path) {
    let state = assert_recount(data);
    let expected = [
        ("pages", state.counters.processed),
        ("known", state.counters.known),
        ("failed", state.counters.failed),
        ("set_aside", state.places.aside),
        ("links_aside", state.places.links_aside),
        ("duplicates", state.counters.duplicates),
        ("unchanged", state.counters.unchanged),
        ("changes", state.counters.changes),
        ("bytes", state.counters.bytes),
        ("queued", state.places.ready + state.places.retries + state.places.flights),
        ("recrawls", state.places.recrawls),
        ("traps", state.places.traps),
    ];
    for (name, value) in expected {
        assert_eq!(summary[name], value, "{name} of {summary}");
    }
    let tables = [
        ("by_status", serde_json::to_value(&state.counters.by_code)),
        ("by_error", serde_json::to_value(&state.counters.by_failure)),
        ("by_type", serde_json::to_value(&state.counters.by_type)),
    ];
    for (name, value) in tables {
        assert_eq!(summary[name], value.expect("maps are JSON"), "{name} of {summary}");
    }
}

/// Every record of every WARC file, in order. Panics at a torn member, a wrong digest or a wrong length.
pub fn records(data: &Path) -> Vec<Record> {
    let mut all = Vec::new();
    for path in segments(&data.join("warc")).expect("there is an archive").values() {
        for located in WarcReader::open(path).expect("a segment can be opened") {
            all.push(located.unwrap_or_else(|error| panic!("{error}")).record);
        }
    }
    all
}

/// The responses and revisits of each URL, in the order in which they were written.
pub fn captures(records: &[Record]) -> BTreeMap<&str, Vec<&Record>> {
    let mut captures: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|record| matches!(record.kind, RecordKind::Response | RecordKind::Revisit)) {
        let url = record.header("WARC-Target-URI").expect("captures name their URL");
        captures.entry(url).or_default().push(record);
    }
    captures
}

/// Asserts that `row` leads to the record of its page, and that it holds what the web serves.
pub fn assert_archived(data: &Path, row: &Value, web: &Web) {
    let url = row["url"].as_str().expect("every row has its URL");
    let archived = record_of(data, row);
    assert_eq!(archived.header("WARC-Target-URI"), Some(url));
    let (host, path) = split(url);
    let answer = web.respond(&Request::get(host, path), Visit::default());
    assert!(archived.payload() == answer.body.as_ref(), "{url} is not archived as it was served");
}

/// The record that a row of the export points to.
pub fn record_of(data: &Path, row: &Value) -> Record {
    let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("no {name}: {row}"));
    let file = row["warc_file"].as_str().unwrap_or_else(|| panic!("no warc_file: {row}"));
    let segment = segments(&data.join("warc")).expect("there is an archive");
    let segment = segment.iter().find(|(_, path)| path.ends_with(file)).expect("the row names a file that is there").0;
    let position =
        WarcPosition { segment: *segment, offset: number("warc_offset"), length: number("warc_length") as u32 };
    WarcArchive::new(&data.join("warc")).read_at(position).unwrap_or_else(|error| panic!("{error}: {row}"))
}

/// Host without port, and path with query, of a URL of ours.
pub fn split(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").expect("the synthetic web speaks HTTP");
    let (authority, _) = rest.split_once('/').expect("canonical URLs have a path");
    (authority.split(':').next().unwrap_or(authority), &rest[authority.len()..])
}
