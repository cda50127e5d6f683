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
    let plan = WebPlan::bench(31, 40, 10);
    let server = Server::start_with(Web::new(plan), ServerOptions { threads: 1, ..Default::default() }).unwrap();
    let settings = format!("[fetch]\nconcurrency = {CONCURRENCY}\n[storage]\ncommit_pause_ms = 100\n");
    let config = inside::config(&work.path().join("data"), &settings);
    let requested = || judge::page_requests(&server, &server.access_log()).values().map(|n| u64::from(*n)).sum::<u64>();
    let mut most = 0;
    inside::crawl(&config, &server, |node| {
        let (requested, most) = (&requested, &mut most);
        async move {
            let (started, mut settled) = (Instant::now(), 0);
            while !is_over(&node, started).await {
                let before = requested();
                let mut asking = Box::pin(node.state());
                let state = loop {
                    tokio::select! {
                        state = &mut asking => break state.unwrap(),
                        () = tokio::time::sleep(Duration::from_millis(2)) => {}
                    }
                    // Settled some time ago, requested until now: how far the web runs ahead of the disk.
                    *most = requested().saturating_sub(settled).max(*most);
                };
                settled = state.counters.fetches;
                // Requested before, settled after: what happened in between can only have made the difference smaller.
                assert!(before <= settled + CONCURRENCY, "{before} requested, {settled} settled");
                assert!(state.places.flights <= CONCURRENCY, "{:?}", state.places);
                if let Some(standing) = node.standing().await {
                    assert!(standing.core.flights as u64 <= CONCURRENCY, "{standing:?}");
                }
            }
        }
    });
    println!("at most {most} pages were requested and not known to be settled");
    assert!(most > CONCURRENCY / 2, "the disk was not what the crawl waited for: at most {most} pages waited");
    // Some commits fall between two looks.
    assert!(most <= 4 * CONCURRENCY, "{most} pages were fetched and not yet settled");
    let state = found::assert_recount(&config.storage.data);
    assert_eq!((state.counters.processed, state.counters.fetches), (400, 400));
    assert_eq!(requested(), 400, "nothing was fetched twice because it was slow to settle");
}
