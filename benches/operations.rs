//! What operations on many URLs cost, and that the crawl goes on meanwhile.
//!
//! 1. URL_NEW of 100,000 URLs in one call.
//! 2. URL_FETCH with criterions over a site of a million, again and again for as long as pages are counted.
//! 3. SITE_DELETE of that site: seconds until it is acknowledged and until its records are gone.
//!
//! Of each: pages/s of another site before, during and after.
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
    let Arguments { call, population, .. } = arguments;
    let mut known = 0;
    while known + call < population {
        let more = (population - call - known).min(100_000);
        ensure!(new_urls(&cluster, known, more)? == more, "some were not inserted");
        known += more;
    }

    // The crawl that goes on meanwhile.
    let plan = WebPlan { delay_ms: 0, ..WebPlan::bench(7, 64, 8_000) };
    let server = Server::start(Web::new(plan))?;
    let live = json!({"id": "live", "urls": server.seeds(), "requestDelay": 1, "filters": [{"pattern": "http"}]});
    cluster.dc("SITE_NEW", &live)?;
    cluster.until("the crawl is under way", |_| Ok(server.requests_total() > 500))?;
    let crawl = Crawl { server: &server, window: Duration::from_secs(arguments.window) };

    let begun = crawl.begin();
    let statuses = new_urls(&cluster, known, call)?;
    let seconds = begun.seconds();
    ensure!(statuses == call, "{statuses} of {call} were inserted");
    println!("URL_NEW of {call} in one call: {seconds:.1} s, {:.0} a second", call as f64 / seconds);
    crawl.went_on("URL_NEW", &begun);
    known += call;

    let criterions = json!({"WHERE": "url LIKE '%7?n=%' AND depth = 0", "ORDER BY": "url DESC", "LIMIT": 100});
    let fetch = json!({"sitesList": ["bulk"], "urlsCriterions": criterions});
    let begun = crawl.begin();
    let (mut asked, mut rows) = (0, 0);
    while asked == 0 || begun.seconds() < crawl.window.as_secs_f64() {
        rows = cluster.dc("URL_FETCH", &fetch)?.as_array().map_or(0, Vec::len);
        asked += 1;
    }
    let seconds = begun.seconds() / f64::from(asked);
    println!(
        "URL_FETCH with criterions over {known}: {rows} rows in {seconds:.1} s, {:.0} looked at a second",
        known as f64 / seconds
    );
    crawl.went_on("URL_FETCH", &begun);

    let begun = crawl.begin();
    cluster.dc("SITE_DELETE", &json!({"id": "bulk"}))?;
    let acknowledged = begun.seconds();
    // What a node has besides the URLs of the site that lives is what is left of the other.
    cluster.until("its records are gone", |cluster| {
        let records = cluster.totals()?.records_least;
        let live = cluster.dc("SITE_STATUS", &json!({"id": "live"}))?["collectedURLs"].as_u64().unwrap_or(0);
        Ok(records.saturating_sub(live) <= population as u64 / 100)
    })?;
    let gone = begun.seconds();
    println!("SITE_DELETE of {known}: acknowledged after {acknowledged:.2} s, records gone after {gone:.1} s");
    crawl.went_on("SITE_DELETE", &begun);
    let status = cluster.dc("SITE_STATUS", &json!({"id": "live"}))?;
    ensure!(status["newURLs"].as_u64() > Some(0), "the crawl had ended by itself, so its pages say nothing: {status}");
    Ok(())
}

/// The crawl that goes on while an operation is measured.
struct Crawl<'a> {
    server: &'a Server,
    window: Duration,
}

/// An operation under way.
struct Begun {
    before: f64,
    at: Instant,
    requests: u64,
}

impl Begun {
    fn seconds(&self) -> f64 {
        self.at.elapsed().as_secs_f64()
    }
}

impl Crawl<'_> {
    /// Pages a second over a while.
    fn rate(&self) -> f64 {
        let (began, before) = (Instant::now(), self.server.requests_total());
        std::thread::sleep(self.window);
        (self.server.requests_total() - before) as f64 / began.elapsed().as_secs_f64()
    }

    fn begin(&self) -> Begun {
        let before = self.rate();
        Begun { before, at: Instant::now(), requests: self.server.requests_total() }
    }

    /// Says how the crawl went before, during and after an operation that has just ended.
    fn went_on(&self, operation: &str, begun: &Begun) {
        let during = (self.server.requests_total() - begun.requests) as f64 / begun.seconds();
        let after = self.rate();
        println!("pages/s with {operation}: before {:.0}, during {during:.0}, after {after:.0}", begun.before);
        let share = during / begun.before.max(1.0);
        verdict(&format!("pages/s during {operation}, to before"), format!("{share:.2}"), "0.5", share >= 0.5);
    }
}

/// Hands URLs of many domains in with one call; how many were inserted.
fn new_urls(cluster: &LocalCluster, from: usize, count: usize) -> anyhow::Result<usize> {
    let url = |n: usize| json!({"siteId": "bulk", "url": format!("http://h{}.d{}.example/{}?n={n}", n % 7, n % 1_000, n % 100)});
    let urls: Value = (from..from + count).map(url).collect();
    let answer = cluster.dc("URL_NEW", &urls)?;
    let statuses = answer["statuses"].as_array().context("there are statuses")?;
    Ok(statuses.iter().filter(|status| **status == 0).count())
}
