//! The kill -9 loop: a crawl that is killed again and again, at any moment, ends as if nothing had happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use simulation::world::server::{Access, Server};
use simulation::world::web::{Web, WebPlan};
use tests::found;
use tests::judge;
use tests::program::Crawl;
use tests::wait_until;

const HOSTS: u32 = 40;
const PAGES_PER_HOST: u32 = 60;
const KILLS: usize = 24;
const CONCURRENCY: usize = 8;

/// Sees to it that every request of the dead process is in the log: what it had sent may still lie in a socket.
fn settle_log(server: &Server) -> usize {
    loop {
        let before = server.requests_total();
        std::thread::sleep(Duration::from_millis(50));
        let log = server.access_log();
        if log.len() as u64 == before && log.iter().all(|access| access.finished_us.is_some()) {
            return log.len();
        }
    }
}

/// What was requested in each run: runs end where `ends` say.
fn by_run<'a>(log: &'a [Access], ends: &[usize]) -> Vec<&'a [Access]> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends.iter().copied().chain([log.len()])).map(|(start, end)| &log[start..end]).collect()
}

/// Asserts that nothing is requested twice within a run, and that of what one run requested at most `in_flight` come up
/// in a later one. Returns how many did in all.
fn assert_repeats(what: &str, runs: &[Vec<String>], in_flight: usize) -> usize {
    let mut last_run: BTreeMap<&String, usize> = BTreeMap::new();
    let mut repeated: BTreeMap<usize, BTreeSet<&String>> = BTreeMap::new();
    for (run, urls) in runs.iter().enumerate() {
        for url in urls {
            match last_run.insert(url, run) {
                Some(before) if before == run => panic!("{url} was requested twice in run {run}"),
                Some(before) => drop(repeated.entry(before).or_default().insert(url)),
                None => {}
            }
        }
    }
    for (run, urls) in &repeated {
        assert!(urls.len() <= in_flight, "{} {what} of run {run} came again: {urls:?}", urls.len());
    }
    repeated.values().map(BTreeSet::len).sum()
}

#[test]
fn a_crawl_killed_at_any_moment_loses_nothing_and_repeats_only_what_was_in_flight() {
    let work = tempfile::tempdir().unwrap();
    let plan = WebPlan { delay_ms: 5, ..WebPlan::bench(11, HOSTS, PAGES_PER_HOST) };
    let server = Server::start_with(
        Web::new(plan),
        simulation::world::server::ServerOptions { threads: 1, ..Default::default() },
    )
    .unwrap();
    let crawl = Crawl::of(&server, work.path()).with(&["--concurrency", &CONCURRENCY.to_string()]);
    let mut draw = ChaCha8Rng::seed_from_u64(42);
    let mut ends = Vec::new();
    for kill in 0..KILLS {
        let before = server.requests_total();
        let mut running = crawl.start();
        // Most die after some work, wherever they are then; every fourth within its first moments.
        if kill % 4 == 3 {
            std::thread::sleep(Duration::from_millis(draw.random_range(0..400)));
        } else {
            let more = draw.random_range(30..150);
            wait_until("the crawl got on", || {
                assert!(running.is_running(), "{}", running.stderr());
                server.requests_total() >= before + more
            });
            std::thread::sleep(Duration::from_millis(draw.random_range(0..40)));
        }
        assert!(running.kill(), "the crawl was over before kill {kill}");
        ends.push(settle_log(&server));
    }
    let ended = crawl.finish();
    let summary = ended.summary();
    assert_eq!(summary["ended"], "complete", "{ended}");

    let log = server.access_log();
    let last = log.len() - ends[KILLS - 1];
    assert!(last > 50, "the last kill came when only {last} requests were left: spread the kills wider");
    let expected = server.web().expected();
    assert_eq!(expected.must.len(), (HOSTS * PAGES_PER_HOST) as usize);
    judge::assert_nothing_forbidden(&server, &log, &expected);

    let urls = |wanted: fn(&Access) -> bool| -> Vec<Vec<String>> {
        let runs = by_run(&log, &ends).into_iter();
        runs.map(|run| run.iter().filter(|access| wanted(access)).map(|access| server.url(access)).collect()).collect()
    };
    let pages = assert_repeats("pages", &urls(|access| !judge::is_robots(access)), CONCURRENCY);
    let robots = assert_repeats("robots.txt", &urls(judge::is_robots), CONCURRENCY);
    println!("{KILLS} kills, {} requests, {pages} pages and {robots} robots.txt twice", log.len());

    let data = crawl.data();
    let rows = found::export(&data);
    assert_eq!(found::with_status(&rows, "PROCESSED").len(), expected.must.len());
    found::assert_summary(&summary, &data);
    let records = found::records(&data);
    let captures = found::captures(&records);
    for url in expected.must.keys() {
        assert_eq!(captures.get(url.as_str()).map(Vec::len), Some(1), "captures of {url}");
        found::assert_archived(&data, &rows[url], server.web());
    }
    assert_eq!(captures.len(), expected.must.len());

    let before = server.requests_total();
    crawl.finish();
    assert_eq!(server.requests_total(), before, "a finished crawl has nothing to fetch");
}
