//! Actors die while a crawl runs: the supervisor replaces them, and no URL is lost.

use std::time::{Duration, Instant};

use simulation::world::server::{Server, ServerOptions};
use simulation::world::web::{Web, WebPlan};
use tests::inside::{self, is_over};
use tests::{PATIENCE, found, judge};

const PAGES: usize = 20 * 50;

/// What a dead actor had in hand comes back after three seconds.
const SETTINGS: &str = "
[fetch]
concurrency = 16
settle_timeout_s = 1
[fetch.limits]
fetch_timeout_ms = 2000
[parse]
parsers = 2
";

/// Crawls a web while each of `victims` dies in turn, whenever some more pages are in.
fn crawl_while_they_die(victims: &[&'static str], pages_between: u64) {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan { delay_ms: 5, ..WebPlan::bench(21, 20, 50) };
    let server = Server::start_with(Web::new(plan), ServerOptions { threads: 1, ..Default::default() }).unwrap();
    let config = inside::config(&work.path().join("data"), SETTINGS);
    inside::crawl(&config, &server, |node| async move {
        let (started, mut left, mut next) = (Instant::now(), victims.iter(), pages_between);
        loop {
            let over = is_over(&node, started).await;
            let pages = node.state().await.unwrap().counters.processed;
            if pages >= next
                && let Some(victim) = left.next()
            {
                assert!(!over, "the crawl was over before the {victim} died");
                node.crash(victim);
                next = pages + pages_between;
            } else if over {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(left.next(), None, "the crawl was over too soon");
        for victim in victims {
            assert!(node.metrics().restarts(victim) >= 1, "the {victim} did not die");
        }
        for (actor, desk) in node.desks() {
            assert_eq!(desk.restarts(), node.metrics().restarts(actor), "{actor}");
            // What goes into a mailbox comes out of it or is known to be lost: the counts do not drift apart.
            while desk.waiting() > 0 {
                assert!(started.elapsed() < PATIENCE, "{} messages wait for the {actor}", desk.waiting());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let state = found::assert_recount(&config.storage.data);
    assert_eq!(state.counters.processed, PAGES as u64, "{:?}", state.counters);
    let expected = server.web().expected();
    judge::assert_nothing_forbidden(&server, &server.access_log(), &expected);
    let rows = found::export(&config.storage.data);
    for url in expected.must.keys() {
        assert_eq!(rows[url]["status"], "PROCESSED", "{url}");
        found::assert_archived(&config.storage.data, &rows[url], server.web());
    }
    // Each host is asked for one thing at a time, whoever dies.
    judge::assert_spaced(&server.access_log(), |access| access.host.clone(), |_| 0);
}

#[test]
fn a_parser_that_dies_loses_no_page() {
    crawl_while_they_die(&["parser", "parser-1", "parser"], 100);
}

#[test]
fn a_scorer_that_dies_loses_no_page() {
    crawl_while_they_die(&["scorer", "scorer"], 150);
}

#[test]
fn a_fetcher_or_router_that_dies_loses_no_page() {
    crawl_while_they_die(&["fetcher", "router", "fetcher", "router"], 100);
}

#[test]
fn a_storage_actor_that_dies_loses_no_page() {
    crawl_while_they_die(&["storage", "storage"], 150);
}

#[test]
fn a_frontier_that_dies_loses_no_page() {
    crawl_while_they_die(&["frontier", "frontier", "frontier"], 100);
}

#[test]
fn all_actors_may_die_one_after_another() {
    crawl_while_they_die(&["parser", "scorer", "fetcher", "router", "storage", "frontier"], 100);
}
