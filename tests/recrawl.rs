//! Rounds: pages are asked for again after their time, with what the server gave to compare, and what did not change is
//! not stored again.

use std::collections::{BTreeMap, BTreeSet};

use node::edges::warc::{Record, RecordKind};
use simulation::world::server::{Access, Server};
use simulation::world::web::{Oddity, Request, Visit, Web, WebPlan};
use tests::found::{self, Rows};
use tests::program::Crawl;
use tests::{QUICK, judge, wait_until};

/// Runs the crawl until every URL of `urls` was answered since `from` in the log, then presses Ctrl-C.
fn run_until_all_are_in(crawl: &Crawl, server: &Server, urls: &BTreeSet<String>, from: usize) {
    let mut running = crawl.start();
    wait_until("every page was asked for", || {
        assert!(running.is_running(), "{}", running.stderr());
        let log = server.access_log();
        let done = log[from..].iter().filter(|access| access.finished_us.is_some());
        let done: BTreeSet<String> = done.map(|access| server.url(access)).collect();
        urls.is_subset(&done)
    });
    running.interrupt();
    let ended = running.wait();
    assert_eq!(ended.code, Some(130), "{ended}");
}

fn of_url<'a>(server: &Server, log: &'a [Access], url: &str) -> Vec<&'a Access> {
    log.iter().filter(|access| server.url(access) == url).collect()
}

/// Whether the second epoch serves other bytes under `url`, and whether it gives something to compare with.
fn changes(web: &Web, url: &str) -> (bool, bool) {
    let (host, path) = found::split(url);
    let at = |epoch| web.respond(&Request::get(host, path), Visit { epoch, ..Visit::default() });
    let (before, after) = (at(0), at(1));
    let validators = before.header_value("etag").or(before.header_value("last-modified")).is_some();
    (before.body != after.body || before.status != after.status, validators)
}

fn kinds(captures: &BTreeMap<&str, Vec<&Record>>, url: &str) -> Vec<RecordKind> {
    captures.get(url).map_or(Vec::new(), |records| records.iter().map(|record| record.kind).collect())
}

#[test]
fn the_second_round_asks_whether_anything_changed_and_stores_what_did() {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan { hosts: 4, pages_per_host: 10, changing_percent: 30, ..WebPlan::default() };
    let server = Server::start(Web::new(plan.with_oddity(Oddity::Freshness, 1))).unwrap();
    let web = server.web().clone();
    let crawl = Crawl::of(&server, work.path()).with_config(QUICK).with(&["--recrawl", "5s"]);
    let first: BTreeSet<String> = web.expected_at(0).must.into_keys().collect();
    let second: BTreeSet<String> = web.expected_at(1).must.into_keys().collect();

    run_until_all_are_in(&crawl, &server, &first, 0);
    let boundary = server.access_log().len();
    server.set_epoch(1);
    run_until_all_are_in(&crawl, &server, &second, boundary);

    let log = server.access_log();
    let log = &log[boundary..];
    let rows = found::export(&crawl.data());
    let records = found::records(&crawl.data());
    let captures = found::captures(&records);
    let every_visit = "/fresh/every-visit";
    let (mut changed_pages, mut unchanged_pages) = (0, 0);
    for url in first.iter().filter(|url| !url.ends_with(every_visit)) {
        let (changed, validators) = changes(&web, url);
        let again = of_url(&server, log, url)[0];
        assert_eq!(again.conditional, validators, "{again:?}");
        let row = &rows[url];
        let (code, kinds) = (row["http_code"].as_u64(), kinds(&captures, url));
        if changed {
            changed_pages += 1;
            assert_ne!(again.status, 304, "{again:?}");
            assert!(kinds.iter().filter(|kind| **kind == RecordKind::Response).count() == 2, "{url}: {kinds:?}");
            if code.is_some_and(|code| code < 400) {
                assert_eq!(row["changes"], 1, "{row}");
            }
        } else {
            unchanged_pages += 1;
            assert_eq!(again.status == 304, validators, "{again:?}");
            assert_eq!(row["changes"], 0, "{row}");
            assert!(row["unchanged"].as_u64() >= Some(1), "{row}");
            assert_eq!(kinds[..2], [RecordKind::Response, RecordKind::Revisit], "{url}");
            assert_eq!(kinds.iter().filter(|kind| **kind == RecordKind::Response).count(), 1, "{url}: {kinds:?}");
            assert_refers(&captures[url.as_str()], again.status);
        }
    }
    assert!(changed_pages >= 10 && unchanged_pages >= 20, "{changed_pages} changed, {unchanged_pages} did not");
    assert_epoch_one(&web, &rows);
    judge::assert_spaced(&server.access_log(), |access| access.host.clone(), |_| 0);
    let state = found::assert_recount(&crawl.data());
    assert!(state.counters.changes >= changed_pages - 2 && state.counters.unchanged >= unchanged_pages);
}

/// A revisit names the capture it repeats.
fn assert_refers(captures: &[&Record], status: u16) {
    let (original, revisit) = (captures[0], captures[1]);
    assert_eq!(revisit.header("WARC-Refers-To"), original.header("WARC-Record-ID"));
    assert_eq!(revisit.header("WARC-Refers-To-Target-URI"), original.header("WARC-Target-URI"));
    assert_eq!(revisit.header("WARC-Payload-Digest"), original.header("WARC-Payload-Digest"));
    let profile = if status == 304 { "server-not-modified" } else { "identical-payload-digest" };
    assert!(revisit.header("WARC-Profile").is_some_and(|value| value.ends_with(profile)), "{:?}", revisit.headers);
    assert_eq!(revisit.payload(), b"", "the content is in the first record");
}

/// What only the second epoch has, and what only the first had.
fn assert_epoch_one(web: &Web, rows: &Rows) {
    let host = web.odd_host(Oddity::Freshness).unwrap();
    let row = |path: &str| &rows[&web.url(host, path)];
    let gone = row("/fresh/gone-later");
    assert_eq!((&gone["status"], &gone["error"]), (&"CRAWLED".into(), &"http_410".into()));
    let come = row("/fresh/comes-later");
    assert_eq!((&come["status"], &come["http_code"]), (&"PROCESSED".into(), &200.into()));
    assert_eq!(row("/leaf/epoch-1")["status"], "PROCESSED", "linked only in the second epoch");
    let restless = row("/fresh/every-visit");
    assert_eq!(restless["changes"].as_u64(), restless["crawled"].as_u64().map(|crawled| crawled - 1));
}

#[test]
fn the_same_content_under_two_urls_is_stored_once() {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan { hosts: 1, pages_per_host: 1, ..WebPlan::default() }.with_oddity(Oddity::Duplicates, 1);
    let server = Server::start(Web::new(plan)).unwrap();
    let crawl = Crawl::of(&server, work.path());
    let summary = crawl.finish().summary();
    assert_eq!(summary["duplicates"], 2, "{summary}");
    let host = server.web().odd_host(Oddity::Duplicates).unwrap();
    let url = |path: &str| server.web().url(host, path);
    let rows = found::export(&crawl.data());
    let records = found::records(&crawl.data());
    let captures = found::captures(&records);
    let copies = ["/copies/original", "/copies/second", "/copies/third?print=1"].map(url);
    let (mut responses, mut revisits) = (Vec::new(), Vec::new());
    for copy in &copies {
        let capture = captures[copy.as_str()][0];
        let into = if capture.kind == RecordKind::Revisit { &mut revisits } else { &mut responses };
        into.push((copy, capture));
    }
    assert_eq!((responses.len(), revisits.len()), (1, 2));
    let (original, stored) = responses[0];
    for (copy, revisit) in revisits {
        assert_eq!(rows[copy]["duplicate_of"], rows[original]["id"], "{copy}");
        assert_eq!(revisit.header("WARC-Refers-To"), stored.header("WARC-Record-ID"));
        assert_eq!(revisit.header("WARC-Refers-To-Target-URI"), Some(original.as_str()));
    }
    for other in ["/near/original", "/near/second", "/near/third", "/unlike/first", "/unlike/second"].map(url) {
        assert_eq!(captures[other.as_str()][0].kind, RecordKind::Response, "{other}");
        assert!(rows[&other]["duplicate_of"].is_null(), "{other}");
    }
}
