//! A crawl from seeds to summary, on a web that has everything: what must be found is found, what must not be asked for is
//! not, and what is counted is what is there. The web's own access log and its oracle judge.

use std::collections::BTreeMap;

use serde_json::Value;
use simulation::world::server::Server;
use simulation::world::web::{Expected, Kind, Oddity, Outcome, Web, WebPlan};
use tests::QUICK;
use tests::found::{self, Rows};
use tests::judge;
use tests::program::Crawl;

/// Everything but the host that asks for a week of patience: that crawl would take a week.
fn everything(seed: u64) -> WebPlan {
    WebPlan::small(seed).with_oddity(Oddity::Unavailable, 0)
}

fn crawl_everything(plan: WebPlan, add: impl FnOnce(Crawl, &Server) -> Crawl) {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(plan)).unwrap();
    let crawl = add(Crawl::of(&server, work.path()), &server);
    let ended = crawl.finish();
    let summary = ended.summary();
    assert_eq!(summary["ended"], "complete", "{ended}");

    let (log, expected) = (server.access_log(), server.web().expected());
    judge::assert_nothing_forbidden(&server, &log, &expected);
    judge::assert_robots_first(&log);
    let requests = judge::page_requests(&server, &log);
    let rows = found::export(&crawl.data());
    assert_outcomes(&expected, &rows, &requests);
    let open: Vec<&String> = rows
        .iter()
        .filter(|(_, row)| row["status"] != "PROCESSED" && row["status"] != "CRAWLED")
        .map(|row| row.0)
        .collect();
    assert!(open.is_empty(), "left unfinished: {open:?}");

    found::assert_summary(&summary, &crawl.data());
    assert_eq!(
        summary["requests"],
        u64::from(requests.values().sum::<u32>()) + refused_connections(&rows),
        "{summary}"
    );
    assert_noindex_is_left_out(&crawl, &expected);
    let records = found::records(&crawl.data());
    assert!(found::captures(&records).len() as u64 >= summary["pages"].as_u64().unwrap());
}

/// Attempts that no server saw.
fn refused_connections(rows: &Rows) -> u64 {
    let refused = rows.values().filter(|row| row["error"] == "connect_refused");
    refused.map(|row| row["crawled"].as_u64().unwrap()).sum()
}

fn assert_outcomes(expected: &Expected, rows: &Rows, requests: &BTreeMap<String, u32>) {
    let mut wrong = Vec::new();
    for (url, outcome) in &expected.must {
        if outcome.kind != Kind::Refused && !requests.contains_key(url) {
            wrong.push(format!("{url}: never requested"));
        }
        match rows.get(url) {
            None => wrong.push(format!("{url}: not in the export")),
            Some(row) => wrong.extend(difference(outcome, row, rows).map(|what| format!("{url}: {what}\n  {row}"))),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), expected.must.len(), wrong.join("\n"));
}

/// Says how what was recorded differs from what the web served.
fn difference(outcome: &Outcome, row: &Value, rows: &Rows) -> Option<String> {
    let processed = row["status"] == "PROCESSED";
    let failed = |error: &str| row["status"] == "CRAWLED" && row["error"] == error;
    let right = match outcome.kind {
        Kind::Page | Kind::Other | Kind::Redirect | Kind::Temporary => processed && row["http_code"] == outcome.status,
        Kind::Error => failed(&format!("http_{}", outcome.status)),
        // The first thing that cannot be had is robots.txt.
        Kind::Refused => failed("robots_unavailable") || failed("connect_refused"),
        // A loop is a redirect like any other until it closes; the others lead nowhere.
        Kind::DeadRedirect => (processed && row["redirect"].is_string()) || failed("redirect_invalid"),
        // What is cut off or not quite HTTP may be read as far as it goes.
        Kind::Broken | Kind::Oversized => processed || (row["status"] == "CRAWLED" && row["error"].is_string()),
    };
    if !right {
        return Some(format!("expected {:?} {}", outcome.kind, outcome.status));
    }
    if processed && row["noindex"] != outcome.noindex {
        return Some(format!("noindex should be {}", outcome.noindex));
    }
    if let Some(title) = &outcome.title
        && row["title"] != **title
    {
        return Some(format!("the title should be {title:?}"));
    }
    if let Some(canonical) = &outcome.canonical
        && row["canonical"] != **canonical
        && row["url"] != **canonical
    {
        return Some(format!("canonical should be {canonical}"));
    }
    if let Some(original) = &outcome.same_as {
        let same = rows.get(original).is_some_and(|original| original["digest"] == row["digest"]);
        let linked = row["duplicate_of"].is_string() || rows[original]["duplicate_of"].is_string();
        if !same || !linked {
            return Some(format!("should be known for a copy of {original}"));
        }
    }
    None
}

fn assert_noindex_is_left_out(crawl: &Crawl, expected: &Expected) {
    let shown = found::export_with(&crawl.data(), &["--only", "fetched"]);
    let hidden: Vec<&String> = expected.must.iter().filter(|(_, page)| page.noindex).map(|(url, _)| url).collect();
    assert!(!hidden.is_empty());
    for url in hidden {
        assert!(!shown.contains_key(url), "{url} asks not to be indexed");
    }
}

#[test]
fn everything_reachable_by_address_is_found_and_nothing_else_is_asked_for() {
    crawl_everything(everything(7), |crawl, _| crawl.with_config(QUICK));
}

#[test]
fn everything_reachable_by_name_is_found_with_names_from_flags() {
    crawl_everything(everything(8).with_names(), |crawl, _| crawl.with_config(QUICK));
}

#[test]
fn names_can_come_from_the_configuration() {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan { hosts: 6, pages_per_host: 5, ..WebPlan::default() }.with_names();
    let server = Server::start(Web::new(plan)).unwrap();
    let table: String = server.hosts_table().iter().map(|(name, at)| format!("\"{name}\" = \"{at}\"\n")).collect();
    let config =
        format!("[fetch]\nallow_addresses = [\"127.0.0.0/8\"]\n[fetch.hosts]\n{table}[filter]\nscope = \"any\"\n");
    let crawl = Crawl::from(&server.seeds(), work.path()).with(&["--delay", "0s"]).with_config(&config);
    assert_eq!(crawl.finish().summary()["pages"], 30);
    assert_eq!(judge::page_requests(&server, &server.access_log()).len(), 30);
}

#[test]
fn a_host_that_asks_for_a_week_of_patience_is_asked_once_and_waits() {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan { hosts: 1, pages_per_host: 4, ..WebPlan::default() }.with_oddity(Oddity::Unavailable, 1);
    let server = Server::start(Web::new(plan)).unwrap();
    let unavailable = server.web().host_name(server.web().odd_host(Oddity::Unavailable).unwrap());
    let ended = Crawl::of(&server, work.path()).with(&["--max-time", "5s"]).finish();
    assert_eq!(ended.summary()["ended"], "time_max", "{ended}");
    assert_eq!(ended.summary()["pages"], 4);
    assert_eq!(ended.summary()["queued"], 1, "it is still to be crawled");
    assert_eq!(server.requests(&unavailable), 2, "robots.txt and the root");
}

#[test]
fn every_format_of_the_export_names_the_same_pages() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan { hosts: 3, pages_per_host: 10, ..WebPlan::default() })).unwrap();
    let crawl = Crawl::of(&server, work.path());
    crawl.finish();
    let data = crawl.data();
    let rows = found::export_with(&data, &["--only", "fetched"]);
    assert_eq!(rows.len(), 30);
    let output = |format: &str| {
        let ended = tests::program::run(&["export", data.to_str().unwrap(), "--format", format, "--only", "fetched"]);
        assert_eq!(ended.code, Some(0), "{ended}");
        ended.stdout
    };
    let urls: Vec<String> = output("urls").lines().map(str::to_owned).collect();
    assert_eq!(urls.iter().collect::<Vec<_>>().len(), 30);
    assert!(urls.iter().all(|url| rows.contains_key(url)));
    let csv = output("csv");
    assert_eq!(csv.lines().count(), 31, "a heading and the pages");
    assert!(csv.lines().next().unwrap().starts_with("url,"));
    for row in rows.values() {
        found::assert_archived(&data, row, server.web());
    }
}
