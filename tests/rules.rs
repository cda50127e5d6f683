//! A folder crawled by runs with different rules: nothing is lost because of one run's rules, and what a later run asks for is had.

use std::collections::BTreeSet;
use std::net::TcpListener;

use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};
use tests::found;
use tests::program::Crawl;
use tests::raw::{RawServer, Reply};
use tests::{QUICK, wait_until};

/// Two hosts at one address. `/N` of each links to `/2N` and `/2N+1` below 32 and to the front page of the other host.
fn two_hosts() -> RawServer {
    RawServer::start(|asked| {
        let other = if asked.host == "one.test" { "two.test" } else { "one.test" };
        let number = if asked.path == "/" { Some(1) } else { asked.path[1..].parse::<u32>().ok() };
        match number {
            Some(number) => {
                let mut links: Vec<String> = vec![format!("http://{other}:{}/", asked.port)];
                links.extend([2 * number, 2 * number + 1].iter().filter(|n| **n < 32).map(|n| format!("/{n}")));
                Reply::page(&links)
            }
            None => Reply::status(404),
        }
    })
}

/// Pages of a host: `/` and `/2` to `/31`.
const PAGES: u64 = 31;

/// The first run asks for a page limit, so that there is a queue; `arguments` are the rules.
fn crawl(site: &RawServer, work: &std::path::Path, seed: &str, arguments: &[&str]) -> Crawl {
    let resolve = ["--resolve", "one.test=127.0.0.1", "--resolve", "two.test=127.0.0.1", "--delay", "0s"];
    Crawl::from(&[site.named(seed, "/")], work).with(&resolve).with(arguments)
}

fn assert_each_once(site: &RawServer) {
    let (mut seen, log) = (BTreeSet::new(), site.access_log());
    for access in &log {
        assert!(seen.insert((&access.host, &access.path)), "fetched twice: {access:?}, of {log:#?}");
    }
}

#[test]
fn a_run_with_other_rules_leaves_the_queue_for_the_one_that_goes_on() {
    type Case = (&'static str, &'static [&'static str], u64);
    let others: [Case; 4] = [
        ("two.test", &["--max-depth", "0"], PAGES + 1),
        ("one.test", &["--exclude", "/[0-9]+$"], PAGES),
        ("one.test", &["--max-depth", "0"], PAGES),
        ("one.test", &["--scope", "prefix", "--include", "nothing at all"], PAGES),
    ];
    for (seed, arguments, pages) in others {
        let (work, site) = (tempfile::tempdir().unwrap(), two_hosts());
        let first = crawl(&site, work.path(), "one.test", &["--max-pages", "10"]).finish().summary();
        let queued = first["queued"].as_u64().unwrap();
        assert!(queued > 0, "{first}");

        let other = crawl(&site, work.path(), seed, arguments).finish().summary();
        assert_eq!(other["set_aside"], queued, "{arguments:?}: {other}");
        found::assert_summary(&other, work.path().join("data").as_path());

        let last = crawl(&site, work.path(), "one.test", &[]);
        let summary = last.finish().summary();
        assert_eq!(
            (&summary["ended"], &summary["pages"]),
            (&"complete".into(), &pages.into()),
            "{arguments:?}: {summary}"
        );
        assert_each_once(&site);
        found::assert_summary(&summary, &last.data());
    }
}

#[test]
fn a_run_that_may_not_ask_an_address_leaves_the_queue_for_one_that_may() {
    let (work, site) = (tempfile::tempdir().unwrap(), two_hosts());
    let allowed = crawl(&site, work.path(), "one.test", &["--max-pages", "10"]);
    allowed.finish();
    let refused = crawl(&site, work.path(), "one.test", &[]).without("--allow-address").without("127.0.0.0/8");
    let summary = refused.finish().summary();
    assert!(summary["set_aside"].as_u64().unwrap() > 0, "{summary}");
    assert_eq!(summary["set_aside"], summary["by_error"]["address_refused"], "it is said why");
    assert_eq!(site.pages().len(), 10, "nothing was asked for");
    let summary = crawl(&site, work.path(), "one.test", &[]).finish().summary();
    assert_eq!((&summary["pages"], &summary["by_error"]), (&PAGES.into(), &serde_json::json!({})));
    assert_each_once(&site);
}

#[test]
fn wider_rules_go_on_where_narrower_ones_ended() {
    let (work, site) = (tempfile::tempdir().unwrap(), two_hosts());
    let run = |arguments: &[&str]| crawl(&site, work.path(), "one.test", arguments).finish().summary();
    let shallow = run(&["--max-depth", "1"]);
    assert_eq!((&shallow["pages"], &shallow["links_aside"]), (&3.into(), &5.into()), "{shallow}");
    assert_eq!(run(&["--max-depth", "2"])["pages"], 7);
    assert_eq!(run(&[])["pages"], PAGES);
    let wide = run(&["--scope", "any"]);
    assert_eq!((&wide["pages"], &wide["links_aside"]), (&(2 * PAGES).into(), &0.into()), "{wide}");
    assert_each_once(&site);
    assert_eq!(run(&["--scope", "any"])["requests"], 0);
}

#[test]
fn a_seed_that_failed_is_asked_for_again_when_it_is_named_again() {
    let work = tempfile::tempdir().unwrap();
    let site = RawServer::start(|asked| match (asked.path, asked.earlier) {
        ("/robots.txt", _) => Reply::status(404),
        ("/", 0) => Reply::status(404),
        ("/", _) => Reply::page(&["/a"]),
        ("/a", _) => Reply::status(410),
        _ => Reply::status(404),
    });
    let crawl = Crawl::from(&[site.url("/")], work.path()).with(&["--delay", "0s"]);
    let first = crawl.finish().summary();
    assert_eq!(first["seeds_failed"], serde_json::json!([{ "seed": site.url("/"), "error": "http_404" }]));
    let second = crawl.finish().summary();
    assert_eq!((&second["pages"], &second["failed"]), (&1.into(), &1.into()), "{second}");
    assert_eq!(crawl.finish().summary()["requests"], 0, "what has its page, and what no seed names, is left alone");
    assert_eq!(site.pages(), ["/", "/", "/a"]);
}

#[test]
fn a_recrawl_period_given_later_puts_up_what_is_due_by_it() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(21, 2, 5))).unwrap();
    Crawl::of(&server, work.path()).finish();
    let before = server.requests_total();
    let yearly = Crawl::of(&server, work.path()).with(&["--recrawl", "365d", "--max-time", "1s"]).finish().summary();
    assert_eq!((&yearly["recrawls"], &yearly["requests"]), (&10.into(), &0.into()), "nothing is due: {yearly}");
    let running = Crawl::of(&server, work.path()).with(&["--recrawl", "1s"]).start();
    wait_until("every page was asked for again", || server.requests_total() >= before + 10);
    running.interrupt();
    assert_eq!(running.wait().code, Some(130));
    let rows = found::export(&work.path().join("data"));
    assert!(rows.values().all(|row| row["crawled"].as_u64() >= Some(2)), "{rows:?}");
    let requests = server.requests_total();
    let without = Crawl::of(&server, work.path()).finish().summary();
    assert_eq!(without["recrawls"], 0, "without a period nothing waits for its next round: {without}");
    assert!(server.requests_total() <= requests + 10, "at most what was due already");
    found::assert_summary(&without, &work.path().join("data"));
}

#[test]
fn a_seed_that_moved_within_its_domain_is_crawled_where_it_is_now_also_by_the_next_run() {
    let (work, site) = (tempfile::tempdir().unwrap(), moving_site());
    let crawl = || {
        let resolve = ["--resolve", "one.test=127.0.0.1", "--resolve", "www.one.test=127.0.0.1", "--delay", "0s"];
        Crawl::from(&[site.named("one.test", "/")], work.path()).with(&resolve)
    };
    assert_eq!(crawl().with(&["--max-pages", "3"]).finish().summary()["pages"], 3);
    let summary = crawl().finish().summary();
    assert_eq!((&summary["pages"], &summary["set_aside"]), (&7.into(), &0.into()), "{summary}");
    assert_eq!(summary["seeds_moved"], serde_json::json!([]));
    assert_each_once(&site);
}

/// `one.test` moved to `www.one.test`, which has five pages and links to a third host; `old.test` moved to another domain.
fn moving_site() -> RawServer {
    RawServer::start(|asked| {
        let port = asked.port;
        match (asked.host, asked.path) {
            (_, "/robots.txt") => Reply::status(404),
            ("one.test", _) => Reply::redirect(format!("http://www.one.test:{port}{}", asked.path)),
            ("old.test", _) => Reply::redirect(format!("http://www.one.test:{port}/")),
            ("www.one.test", "/") => {
                let links = ["/1", "/2", "/3", "/4", "/5"].map(str::to_owned);
                Reply::page(&[links.to_vec(), vec![format!("http://shop.one.test:{port}/")]].concat())
            }
            _ => Reply::page(&["/"]),
        }
    })
}

#[test]
fn a_seed_that_moved_to_another_domain_is_said_and_not_followed() {
    let (work, site) = (tempfile::tempdir().unwrap(), moving_site());
    let seed = site.named("old.test", "/");
    let resolve = ["--resolve", "old.test=127.0.0.1", "--resolve", "www.one.test=127.0.0.1"];
    let crawl = Crawl::from(&[&seed], work.path()).with(&resolve);
    let summary = crawl.finish().summary();
    let moved = serde_json::json!([{ "seed": seed, "target": site.named("www.one.test", "/") }]);
    assert_eq!((&summary["pages"], &summary["seeds_moved"]), (&1.into(), &moved), "{summary}");
    let text = crawl.without("--json").finish().stdout;
    assert!(text.contains("redirects out of the scope, to http://www.one.test"), "{text}");
}

#[test]
fn a_crawl_whose_only_host_is_dead_says_what_it_waits_for_and_ends_with_its_urls_in_the_queue() {
    let work = tempfile::tempdir().unwrap();
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // closed again at once
    let quick = QUICK.replace("robots_wait_ms = 100", "robots_wait_ms = 40000");
    let crawl = Crawl::from(&[format!("http://{dead}/")], work.path()).with_config(&quick);
    let ended = crawl.start().wait();
    assert_eq!(ended.code, Some(1), "{ended}");
    let summary = ended.summary();
    assert_eq!((&summary["ended"], &summary["queued"]), (&"unreachable".into(), &1.into()), "{summary}");
    let waiting = summary["waiting_for"][0].as_str().unwrap();
    assert!(waiting.contains("127.0.0.1: robots.txt cannot be had (connection refused)"), "{waiting}");
    assert!(
        ended.stdout.lines().any(|line| line.contains("\"progress\"") && line.contains("connection refused")),
        "{ended}"
    );
    let ended = crawl.without("--json").start().wait();
    assert!(ended.code == Some(1) && ended.stdout.contains("no host that has URLs left could be reached"), "{ended}");
}
