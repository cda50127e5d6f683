//! How hosts are treated, by the servers' own access logs.

use std::time::{Duration, SystemTime};

use simulation::world::server::Server;
use simulation::world::web::{Robots, Web, WebPlan, http_date};
use tests::found;
use tests::judge;
use tests::program::Crawl;
use tests::raw::{RawServer, Reply};
use tests::{QUICK, wait_until};

/// Retries soon, so that a test of failures ends soon; the delay is given as a flag.
const DELAY_MS: u64 = 100;

fn by_host(access: &simulation::world::server::Access) -> String {
    access.host.clone()
}

#[test]
fn requests_to_a_host_keep_its_delay_and_never_overlap() {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan { crawl_delay_ms: 50, long_crawl_delay_ms: 400, ..WebPlan::small(3).without_oddities() };
    let server = Server::start(Web::new(plan)).unwrap();
    let crawl = Crawl::from(&server.seeds(), work.path()).with(&["--scope", "any", "--delay", "100ms"]);
    let ended = crawl.with_config(QUICK).finish();
    assert_eq!(ended.summary()["ended"], "complete");
    let (log, web) = (server.access_log(), server.web());
    assert!(log.len() > 150, "{}", log.len());
    judge::assert_spaced(&log, by_host, |host| DELAY_MS.max(web.crawl_delay_ms(web.host_number(host).unwrap()).into()));
    judge::assert_nothing_forbidden(&server, &log, &web.expected());
    judge::assert_robots_first(&log);
    for host in 0..web.host_count() {
        let name = web.host_name(host);
        let asked = log.iter().filter(|access| access.host == name && access.path == "/robots.txt").count();
        match web.robots(host) {
            // Asked until there is an answer or no hope left; then again for what is found after that.
            Robots::ErrorForAWhile => assert_eq!(asked, 3, "requests for the robots.txt of {name}"),
            Robots::ErrorAlways | Robots::Unreachable => assert!(asked >= 3, "{asked} requests for that of {name}"),
            robots => assert_eq!(asked, 1, "requests for the robots.txt of {name}, which is {robots:?}"),
        }
    }
}

#[test]
fn a_crawl_that_is_killed_and_resumed_keeps_the_delay() {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan { hosts: 3, pages_per_host: 8, crawl_delay_ms: 300, ..WebPlan::default() };
    let server = Server::start(Web::new(plan)).unwrap();
    let crawl = Crawl::from(&server.seeds(), work.path()).with(&["--scope", "any", "--delay", "200ms"]);
    for round in 1..=4 {
        let running = crawl.start();
        let before = server.requests_total();
        wait_until("there are more requests", || server.requests_total() >= before + 3);
        assert!(running.kill(), "the crawl ended before kill {round}");
    }
    crawl.finish();
    let log = server.access_log();
    judge::assert_spaced(&log, by_host, |_| 200);
    // What a robots.txt asks for is kept too, once one has been written down: one that was in flight at a kill is asked
    // for again, and nobody knew yet what stands in it.
    let asked_again = |n: usize| {
        let next = log[n + 1..].iter().find(|access| access.host == log[n].host);
        judge::is_robots(&log[n]) && next.is_some_and(judge::is_robots)
    };
    let known: Vec<_> = (0..log.len()).filter(|n| !asked_again(*n)).map(|n| log[n].clone()).collect();
    judge::assert_spaced(&known, by_host, |_| 300);
}

#[test]
fn two_names_of_one_address_share_its_delay() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/robots.txt" => Reply::status(404),
        "/" => Reply::page(&["/1", "/2", "/3", "/4", "/5"]),
        _ => Reply::page(&["/"]).after(Duration::from_millis(30)),
    });
    let seeds = [server.named("one.test", "/"), server.named("two.test", "/")];
    let crawl = Crawl::from(&seeds, work.path()).with(&["--delay", "100ms"]);
    let crawl = crawl.with(&["--resolve", "one.test=127.0.0.1", "--resolve", "two.test=127.0.0.1"]);
    assert_eq!(crawl.finish().summary()["pages"], 12);
    let log = server.access_log();
    assert_eq!(log.len(), 14);
    judge::assert_spaced(&log, |_| "the address".to_owned(), |_| DELAY_MS);
    // They take turns.
    let first_half = &log[..7];
    assert!(first_half.iter().any(|access| access.host == "one.test"));
    assert!(first_half.iter().any(|access| access.host == "two.test"));
}

/// A site whose page `/busy` complains twice before it answers.
fn complaining(status: u16, retry_after: impl Fn() -> String + Send + Sync + 'static) -> RawServer {
    let links: Vec<String> = (0..8).map(|page| format!("/{page}")).chain(["/busy".to_owned()]).collect();
    RawServer::start(move |asked| match (asked.path, asked.earlier) {
        ("/robots.txt", _) => Reply::status(404),
        ("/", _) => Reply::page(&links),
        ("/busy", 0 | 1) => Reply::status(status).header("Retry-After", retry_after()),
        _ => Reply::page(&["/"]),
    })
}

fn assert_waits_and_recovers(server: &RawServer, least_wait_us: u64) {
    let work = tempfile::tempdir().unwrap();
    let crawl = Crawl::from(&[server.url("/")], work.path()).with(&["--delay", "20ms"]).with_config(
        "[retry]\nwait_min_ms = 50\nwait_max_ms = 100\n\
         [politeness]\nslow_down_min_ms = 100\n",
    );
    let ended = crawl.finish();
    assert_eq!(ended.summary()["pages"], 10, "{ended}");
    let log = server.access_log();
    let complaints: Vec<usize> = (0..log.len()).filter(|n| log[*n].status >= 429).collect();
    assert_eq!(complaints.len(), 2);
    for n in complaints {
        let Some(next) = log.get(n + 1) else { panic!("nothing came after the complaint") };
        let waited = next.at_us - log[n].finished_us.unwrap();
        assert!(waited >= least_wait_us, "asked again after {waited} us: {next:?}");
        assert!(next.path != "/busy" || waited >= least_wait_us);
    }
    judge::assert_spaced(&log, by_host, |_| 20);
}

#[test]
fn a_host_that_answers_429_is_left_alone_as_long_as_it_asks_and_recovers() {
    assert_waits_and_recovers(&complaining(429, || "2".to_owned()), 2_000_000);
}

#[test]
fn a_host_that_answers_503_is_left_alone_as_long_as_it_asks_and_recovers() {
    assert_waits_and_recovers(&complaining(503, || "1".to_owned()), 1_000_000);
}

#[test]
fn a_retry_after_may_be_a_date() {
    let in_three_seconds = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        http_date(now + 3)
    };
    // A date has whole seconds: up to one of the three is gone when it is written.
    assert_waits_and_recovers(&complaining(503, in_three_seconds), 1_990_000);
}

#[test]
fn a_complaint_without_a_time_slows_the_host_down_too() {
    assert_waits_and_recovers(&complaining(429, || "soon".to_owned()), 100_000);
}

#[test]
fn a_robots_txt_that_fails_forbids_everything() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/robots.txt" => Reply::status(503),
        _ => Reply::page(&["/a"]),
    });
    let crawl = Crawl::from(&[server.url("/"), server.url("/b")], work.path()).with_config(QUICK);
    let ended = crawl.finish();
    assert_eq!(ended.summary()["pages"], 0);
    assert_eq!(server.pages(), [""; 0], "asked although robots.txt could not be had");
    assert_eq!(server.access_log().len(), 3, "robots.txt is asked for as often as anything");
    let rows = found::export(&crawl.data());
    assert!(rows.values().all(|row| row["error"] == "robots_unavailable"), "{rows:?}");
    assert_eq!(rows.len(), 2);
}

/// robots.txt behind this many redirects forbids `/no`.
fn redirected_robots(hops: usize) -> RawServer {
    RawServer::start(move |asked| {
        let hop = match asked.path {
            "/robots.txt" => Some(0),
            path => path.strip_prefix("/robots-").and_then(|hop| hop.parse::<usize>().ok()),
        };
        match (hop, asked.path) {
            (Some(hop), _) if hop < hops => Reply::redirect(format!("/robots-{}", hop + 1)),
            (Some(_), _) => Reply::text("User-agent: *\nDisallow: /no\n"),
            (None, "/") => Reply::page(&["/yes", "/no"]),
            _ => Reply::page(&["/"]),
        }
    })
}

#[test]
fn a_robots_txt_is_followed_through_five_redirects() {
    let (work, server) = (tempfile::tempdir().unwrap(), redirected_robots(5));
    Crawl::from(&[server.url("/")], work.path()).with(&["--delay", "0s"]).finish();
    let expected = ["/robots-1", "/robots-2", "/robots-3", "/robots-4", "/robots-5", "/", "/yes"];
    assert_eq!(server.pages(), expected);
}

#[test]
fn a_robots_txt_behind_more_than_five_redirects_is_none() {
    let (work, server) = (tempfile::tempdir().unwrap(), redirected_robots(6));
    Crawl::from(&[server.url("/")], work.path()).with(&["--delay", "0s"]).finish();
    let expected = ["/robots-1", "/robots-2", "/robots-3", "/robots-4", "/robots-5", "/", "/yes", "/no"];
    assert_eq!(server.pages(), expected);
}

#[test]
fn the_user_agent_names_a_contact_and_can_be_changed() {
    let (work, server) = (tempfile::tempdir().unwrap(), redirected_robots(0));
    let crawl = Crawl::from(&[server.url("/")], work.path()).with(&["--delay", "0s"]);
    crawl.finish();
    assert!(server.access_log().iter().all(|access| access.user_agent.contains("+http")));
    let (work, server) = (tempfile::tempdir().unwrap(), redirected_robots(0));
    let crawl = Crawl::from(&[server.url("/")], work.path()).with(&["--delay", "0s"]);
    crawl.with(&["--user-agent", "mybot/2.0 (+https://example.org/bot)"]).finish();
    assert!(server.access_log().iter().all(|access| access.user_agent.starts_with("mybot/2.0")));
}
