//! A slow disk slows the crawl: what is fetched and not yet on disk stays bounded, whatever the web could give.

use std::time::{Duration, Instant};

use simulation::world::server::{Server, ServerOptions};
use simulation::world::web::{Web, WebPlan};
use tests::inside::{self, is_over};
use tests::{found, judge};

const CONCURRENCY: u64 = 16;

#[test]
fn a_slow_disk_bounds_what_is_fetched_and_not_settled() {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan::bench(31, 40, 15);
    let server = Server::start_with(Web::new(plan), ServerOptions { threads: 1, ..Default::default() }).unwrap();
    let settings = format!("[fetch]\nconcurrency = {CONCURRENCY}\n[storage]\ncommit_pause_ms = 50\n");
    let config = inside::config(&work.path().join("data"), &settings);
    let requested = || judge::page_requests(&server, &server.access_log()).values().map(|n| u64::from(*n)).sum::<u64>();
    let mut most = 0;
    inside::crawl(&config, &server, |node| {
        let (requested, most) = (&requested, &mut most);
        async move {
            let started = Instant::now();
            while !is_over(&node, started).await {
                // The log first: what is settled in between can only make the difference smaller.
                let requested = requested();
                let state = node.state().await.unwrap();
                let unsettled = requested.saturating_sub(state.counters.fetches);
                assert!(unsettled <= CONCURRENCY, "{unsettled} pages requested and not settled");
                assert!(state.places.flights <= CONCURRENCY, "{:?}", state.places);
                if let Some(standing) = node.standing().await {
                    assert!(standing.core.flights as u64 <= CONCURRENCY, "{standing:?}");
                }
                *most = unsettled.max(*most);
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    });
    assert!(most > CONCURRENCY / 2, "the disk was not what the crawl waited for: at most {most} pages waited");
    let state = found::assert_recount(&config.storage.data);
    assert_eq!((state.counters.processed, state.counters.fetches), (600, 600));
    assert_eq!(requested(), 600, "nothing was fetched twice because it was slow to settle");
}
