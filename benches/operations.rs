//! What operations on many URLs cost, and that the crawl goes on meanwhile.
//!
//! 1. URL_NEW of 100,000 URLs in one call.
//! 2. URL_FETCH with criterions over a site of a million.
//! 3. SITE_DELETE of that site: seconds until it is acknowledged and until its records are gone; pages/s of another site before, during and after.
//!
//! `cargo build --release -p node && cargo bench -p benches --bench operations`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use benches::cluster::LocalCluster;
use benches::{program, verdict};
use clap::Parser;
use serde_json::{Value, json};
use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};

#[derive(Parser)]
struct Arguments {
    /// URLs of the call that is measured
    #[arg(long, default_value_t = 100_000)]
    call: usize,
    /// URLs of the site that is searched and deleted
    #[arg(long, default_value_t = 1_000_000)]
    population: usize,
    /// Nodes
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Seconds over which pages are counted
    #[arg(long, default_value_t = 10)]
    window: u64,
    /// The program to measure [default: orbweaver as built beside this bench]
    #[arg(long)]
    orbweaver: Option<PathBuf>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let orbweaver = arguments.orbweaver.clone().map_or_else(|| program("orbweaver"), Ok)?;
    let cluster = LocalCluster::start(&orbweaver, arguments.nodes, 0)?;
    cluster.dc("SITE_NEW", &json!({"id": "bulk", "state": 2, "filters": [{"pattern": "http"}]}))?;

    let begun = Instant::now();
    let statuses = new_urls(&cluster, 0, arguments.call)?;
    let seconds = begun.elapsed().as_secs_f64();
    ensure!(statuses == arguments.call, "{statuses} of {} were inserted", arguments.call);
    println!(
        "URL_NEW of {} in one call: {seconds:.1} s, {:.0} a second",
        arguments.call,
        arguments.call as f64 / seconds
    );
    let mut known = arguments.call;
    while known < arguments.population {
        let more = (arguments.population - known).min(100_000);
        ensure!(new_urls(&cluster, known, more)? == more, "some were not inserted");
        known += more;
    }

    let criterions = json!({"WHERE": "url LIKE '%7?n=%' AND depth = 0", "ORDER BY": "url DESC", "LIMIT": 100});
    let begun = Instant::now();
    let found = cluster.dc("URL_FETCH", &json!({"sitesList": ["bulk"], "urlsCriterions": criterions}))?;
    let seconds = begun.elapsed().as_secs_f64();
    let rows = found.as_array().map_or(0, Vec::len);
    println!(
        "URL_FETCH with criterions over {known}: {rows} rows in {seconds:.1} s, {:.0} looked at a second",
        known as f64 / seconds
    );

    let plan = WebPlan { delay_ms: 0, ..WebPlan::bench(7, 64, 4_000) };
    let server = Server::start(Web::new(plan))?;
    let live = json!({"id": "live", "urls": server.seeds(), "requestDelay": 1, "filters": [{"pattern": "http"}]});
    cluster.dc("SITE_NEW", &live)?;
    cluster.until("the crawl is under way", |_| Ok(server.requests_total() > 500))?;
    let window = Duration::from_secs(arguments.window);
    let rate = |window: Duration| {
        let (began, before) = (Instant::now(), server.requests_total());
        std::thread::sleep(window);
        (server.requests_total() - before) as f64 / began.elapsed().as_secs_f64()
    };
    let before = rate(window);
    let (begun, requests) = (Instant::now(), server.requests_total());
    cluster.dc("SITE_DELETE", &json!({"id": "bulk"}))?;
    let acknowledged = begun.elapsed().as_secs_f64();
    // What a node has besides the URLs of the site that lives is what is left of the other.
    cluster.until("its records are gone", |cluster| {
        let records = cluster.totals()?.records_least;
        let live = cluster.dc("SITE_STATUS", &json!({"id": "live"}))?["collectedURLs"].as_u64().unwrap_or(0);
        Ok(records.saturating_sub(live) <= arguments.population as u64 / 100)
    })?;
    let gone = begun.elapsed().as_secs_f64();
    let during = (server.requests_total() - requests) as f64 / gone;
    let after = rate(window);
    println!("SITE_DELETE of {known}: acknowledged after {acknowledged:.2} s, records gone after {gone:.1} s");
    println!("pages/s: before {before:.0}, during {during:.0}, after {after:.0}");
    let share = during / before.max(1.0);
    verdict("pages/s while a large site is removed, to before", format!("{share:.2}"), "0.5", share >= 0.5);
    Ok(())
}

/// Hands URLs of many domains in with one call; how many were inserted.
fn new_urls(cluster: &LocalCluster, from: usize, count: usize) -> anyhow::Result<usize> {
    let url = |n: usize| json!({"siteId": "bulk", "url": format!("http://h{}.d{}.example/{}?n={n}", n % 7, n % 1_000, n % 100)});
    let urls: Value = (from..from + count).map(url).collect();
    let answer = cluster.dc("URL_NEW", &urls)?;
    let statuses = answer["statuses"].as_array().context("there are statuses")?;
    Ok(statuses.iter().filter(|status| **status == 0).count())
}
