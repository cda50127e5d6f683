//! Stopping and going on: Ctrl-C, limits, scopes, and the same command again.

use std::collections::BTreeSet;
use std::time::Duration;

use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};
use tests::found;
use tests::judge;
use tests::program::Crawl;
use tests::raw::{RawServer, Reply};
use tests::wait_until;

/// Pages of the web below.
const PAGES: u64 = 400;

/// A web that takes a while: each page comes after 20 ms, and few are asked for at once.
fn slow_web(seed: u64) -> Server {
    Server::start(Web::new(WebPlan { delay_ms: 20, ..WebPlan::bench(seed, 10, 40) })).unwrap()
}

fn assert_nothing_twice(server: &Server) {
    let mut seen = BTreeSet::new();
    for access in server.access_log() {
        assert!(seen.insert((access.host.clone(), access.path.clone())), "fetched twice: {access:?}");
    }
}

#[test]
fn ctrl_c_stops_cleanly_and_the_same_command_goes_on_fetching_nothing_twice() {
    let (work, server) = (tempfile::tempdir().unwrap(), slow_web(1));
    let crawl = Crawl::of(&server, work.path()).with(&["--concurrency", "4"]);
    for stop in 1..=3 {
        let before = server.requests_total();
        let running = crawl.start();
        wait_until("there are more requests", || server.requests_total() >= before + 60);
        running.interrupt();
        let ended = running.wait();
        assert_eq!(ended.code, Some(130), "stop {stop}: {ended}");
        let summary = ended.summary();
        assert_eq!(summary["ended"], "interrupted");
        found::assert_summary(&summary, &crawl.data());
        assert_eq!(found::assert_recount(&crawl.data()).places.flights, 0, "everything landed");
    }
    let ended = crawl.finish();
    assert_eq!(ended.summary()["ended"], "complete");
    assert_eq!(ended.summary()["pages"], PAGES);
    assert_nothing_twice(&server);
    found::records(&crawl.data());
}

#[test]
fn ctrl_c_twice_does_not_wait_for_what_is_in_flight() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/robots.txt" => Reply::status(404),
        _ => Reply::page(&["/a"]).after(Duration::from_secs(3_600)),
    });
    let running = Crawl::from(&[server.url("/")], work.path()).with(&["--delay", "0s"]).start();
    wait_until("the page is asked for", || server.pages().len() == 1);
    running.interrupt();
    wait_until("the first Ctrl-C was heard", || running.stdout().contains("\"stopping\":true"));
    running.interrupt();
    let ended = running.wait();
    assert_eq!(ended.code, Some(130));
    assert_eq!((&ended.summary()["ended"], &ended.summary()["queued"]), (&"interrupted".into(), &1.into()), "{ended}");
}

#[test]
fn a_finished_crawl_run_again_fetches_nothing() {
    let (work, server) = (tempfile::tempdir().unwrap(), Server::start(Web::new(WebPlan::default())).unwrap());
    let crawl = Crawl::of(&server, work.path());
    let first = crawl.finish().summary();
    let requests = server.requests_total();
    let again = crawl.finish().summary();
    assert_eq!(server.requests_total(), requests);
    assert_eq!((&again["ended"], &again["requests"]), (&"complete".into(), &0.into()));
    assert_eq!(again["pages"], first["pages"]);
}

#[test]
fn a_page_limit_is_exact_and_a_higher_one_goes_on() {
    let (work, server) = (tempfile::tempdir().unwrap(), slow_web(2));
    let pages = || judge::page_requests(&server, &server.access_log()).len() as u64;
    for limit in [25, 26, 90] {
        let ended = Crawl::of(&server, work.path()).with(&["--max-pages", &limit.to_string()]).finish();
        assert_eq!(ended.summary()["ended"], "pages_max", "{ended}");
        assert_eq!(ended.summary()["pages"], limit);
        assert_eq!(pages(), limit, "requests by the access log");
    }
    let same = Crawl::of(&server, work.path()).with(&["--max-pages", "90"]).finish();
    assert_eq!((same.summary()["pages"].as_u64(), pages()), (Some(90), 90), "the limit counts from the beginning");
    let rest = Crawl::of(&server, work.path()).finish();
    assert_eq!(rest.summary()["pages"], PAGES);
    assert_nothing_twice(&server);
}

#[test]
fn a_page_limit_that_no_web_reaches_ends_as_complete() {
    let (work, server) = (tempfile::tempdir().unwrap(), Server::start(Web::new(WebPlan::default())).unwrap());
    let ended = Crawl::of(&server, work.path()).with(&["--max-pages", "5000"]).finish();
    assert_eq!(ended.summary()["ended"], "complete");
    assert_eq!(ended.summary()["pages"], 160);
}

#[test]
fn a_time_limit_ends_the_run_and_the_next_goes_on() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan { delay_ms: 100, ..WebPlan::bench(3, 4, 50) })).unwrap();
    let crawl = |limit: &str| Crawl::of(&server, work.path()).with(&["--concurrency", "2", "--max-time", limit]);
    let ended = crawl("2s").finish();
    let summary = ended.summary();
    assert_eq!(summary["ended"], "time_max", "{ended}");
    assert!(summary["elapsed_s"].as_f64().unwrap() >= 2.0);
    let pages = summary["pages"].as_u64().unwrap();
    assert!((1..200).contains(&pages), "{pages}");
    assert_eq!(crawl("110s").finish().summary()["pages"], 200);
    assert_nothing_twice(&server);
}

#[test]
fn a_byte_limit_ends_the_run() {
    let (work, server) = (tempfile::tempdir().unwrap(), slow_web(4));
    let ended = Crawl::of(&server, work.path()).with(&["--concurrency", "2", "--max-bytes", "200KB"]).finish();
    let summary = ended.summary();
    assert_eq!(summary["ended"], "bytes_max", "{ended}");
    assert!(summary["bytes"].as_u64().unwrap() >= 200_000);
    assert!(summary["pages"].as_u64().unwrap() < PAGES);
    assert_eq!(Crawl::of(&server, work.path()).finish().summary()["pages"], PAGES);
    assert_nothing_twice(&server);
}

#[test]
fn a_depth_limit_counts_links_from_a_seed() {
    let server = RawServer::start(|asked| match asked.path.trim_start_matches('/').parse::<u32>() {
        Ok(page) => Reply::page(&[format!("/{}", page + 1)]),
        Err(_) => Reply::status(404),
    });
    for (depth, pages) in [("0", 1), ("3", 4)] {
        let work = tempfile::tempdir().unwrap();
        let before = server.pages().len();
        let crawl = Crawl::from(&[server.url("/0")], work.path()).with(&["--delay", "0s", "--max-depth", depth]);
        assert_eq!(crawl.finish().summary()["pages"], pages);
        let expected: Vec<String> = (0..pages).map(|page| format!("/{page}")).collect();
        assert_eq!(server.pages()[before..], expected);
    }
}

/// Four hosts of two domains at one address. Every page links to every page of every host.
fn site_of_four_hosts() -> RawServer {
    RawServer::start(|asked| {
        let port = asked.port;
        let hosts = HOSTS.iter();
        let links: Vec<String> =
            hosts.flat_map(|host| PATHS.iter().map(move |path| format!("http://{host}:{port}{path}"))).collect();
        if asked.path == "/robots.txt" { Reply::status(404) } else { Reply::page(&links) }
    })
}

const HOSTS: [&str; 4] = ["www.one.test", "shop.one.test", "one.test", "www.two.test"];
const PATHS: [&str; 4] = ["/", "/dir/hub.html", "/dir/page.html", "/directory?x=1"];

/// Crawls that site from `/dir/hub.html` of its first host; returns the URLs that were requested, without scheme and port.
fn requested(arguments: &[&str]) -> BTreeSet<String> {
    let (work, site) = (tempfile::tempdir().unwrap(), site_of_four_hosts());
    let resolve: Vec<String> =
        HOSTS.iter().flat_map(|name| ["--resolve".to_owned(), format!("{name}=127.0.0.1")]).collect();
    let crawl = Crawl::from(&[site.named(HOSTS[0], PATHS[1])], work.path());
    crawl.with(&resolve).with(&["--delay", "0s"]).with(arguments).finish();
    let log = site.access_log().into_iter().filter(|access| access.path != "/robots.txt");
    log.map(|access| format!("{}{}", access.host, access.path)).collect()
}

/// The URLs of that site for which `wanted` holds.
fn all(wanted: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    let pairs = HOSTS.iter().flat_map(|host| PATHS.iter().map(move |path| (*host, *path)));
    pairs.filter(|(host, path)| wanted(host, path)).map(|(host, path)| format!("{host}{path}")).collect()
}

#[test]
fn scope_says_how_far_from_the_seeds_a_crawl_goes() {
    assert_eq!(requested(&[]), all(|host, _| host == HOSTS[0]), "a host by default");
    assert_eq!(requested(&["--scope", "host"]), all(|host, _| host == HOSTS[0]));
    assert_eq!(requested(&["--scope", "domain"]), all(|host, _| host.ends_with("one.test")));
    assert_eq!(requested(&["--scope", "prefix"]), all(|host, path| host == HOSTS[0] && path.starts_with("/dir/")));
    assert_eq!(requested(&["--scope", "any"]), all(|_, _| true));
}

#[test]
fn include_and_exclude_choose_among_what_is_in_scope() {
    let any = ["--scope", "any"];
    let only = requested(&[&any[..], &["--include", "hub", "--include", "^http://www[.]two[.]test"]].concat());
    assert_eq!(only, all(|host, path| path.contains("hub") || host == "www.two.test"));
    let without = requested(&[&any[..], &["--exclude", "[?]", "--exclude", "//shop[.]"]].concat());
    assert_eq!(without, all(|host, path| !path.contains('?') && host != "shop.one.test"));
    let both = requested(&[&any[..], &["--include", "/dir/", "--exclude", "page"]].concat());
    assert_eq!(both, all(|_, path| path == "/dir/hub.html"));
}
