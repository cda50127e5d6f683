//! What a cluster costs and how it bears a loss, on this machine alone.
//!
//! 1. Pages/s of 1, 2 and 3 nodes that share the same processors, on the same web: the price of replication.
//! 2. A node that lost its disk is filled again: records and megabytes a second.
//! 3. An owner is killed: the longest pause of any host that was its own, by the web's own log.
//!
//! `cargo build --release -p node && cargo bench -p benches --bench cluster_crawl`

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use benches::cluster::LocalCluster;
use benches::{median, program, verdict};
use clap::Parser;
use node::config::cluster::LeaseConfig;
use node::edges::store::Store;
use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};

#[derive(Parser)]
struct Arguments {
    /// Hosts of the web
    #[arg(long, default_value_t = 64)]
    hosts: u32,
    /// Pages of each host. The end is looked for every 200 ms: with 100 pages that is a tenth of the whole time
    #[arg(long, default_value_t = 500)]
    pages: u32,
    /// Runs of each number of nodes
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only pages/s: nothing is lost and nobody killed
    #[arg(long)]
    rates_only: bool,
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
    let mut rates: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for run in 0..arguments.runs {
        for nodes in 1..=3 {
            let server = web(&arguments, 0)?;
            let cluster = LocalCluster::start(&orbweaver, nodes, 0)?;
            let rate = crawl(&cluster, &server, &arguments)?;
            println!("{nodes} nodes: {rate:.0} pages/s");
            rates.entry(nodes).or_default().push(rate);
            if run + 1 == arguments.runs && nodes == 3 && !arguments.rates_only {
                refill(cluster)?;
            }
        }
    }
    if !arguments.rates_only {
        fail_over(&orbweaver, &arguments)?;
    }
    let of = |nodes: usize| median(&rates[&nodes]);
    println!("pages/s, median: 1 node {:.0}, 2 nodes {:.0}, 3 nodes {:.0}", of(1), of(2), of(3));
    let ratio = of(3) / of(1);
    verdict("pages/s of 3 nodes to 1", format!("{ratio:.2}"), "0.6", ratio >= 0.6);
    Ok(())
}

fn web(arguments: &Arguments, delay_ms: u32) -> anyhow::Result<Server> {
    let plan = WebPlan { delay_ms, ..WebPlan::bench(7, arguments.hosts, arguments.pages) };
    Server::start(Web::new(plan))
}

fn seeds(server: &Server) -> anyhow::Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), server.seeds().join("\n"))?;
    Ok(file)
}

/// Crawls everything; pages a second from the first request on.
fn crawl(cluster: &LocalCluster, server: &Server, arguments: &Arguments) -> anyhow::Result<f64> {
    let expected = u64::from(arguments.hosts * arguments.pages);
    cluster.add(seeds(server)?.path())?;
    cluster.until("the crawl begins", |_| Ok(server.requests_total() > 0))?;
    let begun = Instant::now();
    cluster.until("everything is crawled", |cluster| {
        // Asking costs processor time too: first the web is looked at.
        Ok(server.requests_total() >= expected && cluster.totals()?.processed >= expected)
    })?;
    Ok(expected as f64 / begun.elapsed().as_secs_f64())
}

/// A node loses its disk; the others fill it again.
fn refill(mut cluster: LocalCluster) -> anyhow::Result<()> {
    let records = cluster.totals()?.known;
    cluster.kill_node(2)?;
    let bytes: usize = {
        let store = Store::open_for_reading(&cluster.data_of(2))?;
        let rows = store.urls().map(|row| row.map(|row| proto::wire::encode(&row.record).map_or(0, |body| body.len())));
        rows.sum::<Result<usize, _>>()?
    };
    std::fs::remove_dir_all(cluster.data_of(2))?;
    cluster.start_node(2)?;
    cluster.until("it answers", |cluster| Ok(cluster.totals()?.held > 0))?;
    let begun = Instant::now();
    cluster.until("it has everything again", |cluster| Ok(cluster.totals()?.records_least >= records))?;
    let seconds = begun.elapsed().as_secs_f64();
    let (rate, megabytes) = (records as f64 / seconds, bytes as f64 / 1e6 / seconds);
    println!("a node that lost its disk: {records} records in {seconds:.1} s, {rate:.0} a second, {megabytes:.2} MB/s");
    Ok(())
}

/// An owner is killed while its hosts are crawled slowly. The lease is the default one: it is most of what a host waits for.
fn fail_over(orbweaver: &std::path::Path, arguments: &Arguments) -> anyhow::Result<()> {
    const DELAY_MS: u64 = 250;
    let plan = Arguments {
        pages: 600,
        hosts: arguments.hosts.min(24),
        runs: 1,
        rates_only: false,
        orbweaver: None,
        bench: false,
    };
    let server = web(&plan, 5)?;
    let lease_s = LeaseConfig::default().duration_s;
    let mut cluster = LocalCluster::start_with_lease(orbweaver, 3, DELAY_MS, lease_s)?;
    cluster.add(seeds(&server)?.path())?;
    let names: Vec<String> = server.hosts_table().into_iter().map(|(name, _)| name).collect();
    cluster.until("every host was asked", |_| Ok(names.iter().all(|name| server.requests(name) > 4)))?;
    // Nodes are named by numbers that follow from their keys: who has gone from the answers is the one that was killed.
    let owners =
        names.iter().map(|name| Ok((name.clone(), owner(&cluster, name)?))).collect::<anyhow::Result<Vec<_>>>()?;
    let before = node_numbers(&cluster)?;
    cluster.kill_node(0)?;
    let killed_at = Instant::now();
    cluster.until("the others notice", |cluster| Ok(alive(cluster)? < before.len()))?;
    let gone: Vec<u64> =
        before.iter().copied().filter(|node| !alive_numbers(&cluster).is_ok_and(|is| is.contains(node))).collect();
    let lost: Vec<&String> = owners.iter().filter(|(_, owner)| gone.contains(owner)).map(|(name, _)| name).collect();
    anyhow::ensure!(!lost.is_empty(), "the killed node owned none of the hosts");
    let asked: BTreeMap<&String, u64> = lost.iter().map(|name| (*name, server.requests(name))).collect();
    std::thread::sleep(Duration::from_secs(2 * lease_s + 10).saturating_sub(killed_at.elapsed()));
    let still = lost.iter().filter(|name| server.requests(name) <= asked[*name]).count();
    let mut last: BTreeMap<String, Duration> = BTreeMap::new();
    let mut pause = Duration::ZERO;
    for access in server.access_log().into_iter().filter(|access| lost.iter().any(|name| **name == access.host)) {
        let at = Duration::from_micros(access.at_us);
        if let Some(before) = last.insert(access.host.clone(), at) {
            pause = pause.max(at.saturating_sub(before));
        }
    }
    let bar = Duration::from_secs(lease_s + 10);
    println!("{} hosts lost their owner, {still} of them were not asked again", lost.len());
    verdict(
        "longest pause of a host whose owner was killed",
        format!("{:.1} s", pause.as_secs_f64()),
        format!("D + 10 s = {} s", bar.as_secs()),
        still == 0 && pause <= bar,
    );
    Ok(())
}

fn owner(cluster: &LocalCluster, host: &str) -> anyhow::Result<u64> {
    let answer = cluster.ctl(&["ring", "--domain", host])?;
    answer["Ring"][0]["nodes"][0].as_u64().context("a slot has an owner")
}

fn node_numbers(cluster: &LocalCluster) -> anyhow::Result<Vec<u64>> {
    let answer = cluster.ctl(&["nodes"])?;
    let nodes = answer["Nodes"].as_array().cloned().unwrap_or_default();
    Ok(nodes.iter().filter_map(|node| node["node"].as_u64()).collect())
}

fn alive_numbers(cluster: &LocalCluster) -> anyhow::Result<Vec<u64>> {
    let answer = cluster.ctl(&["nodes"])?;
    let nodes = answer["Nodes"].as_array().cloned().unwrap_or_default();
    Ok(nodes.iter().filter(|node| !node["report"]["Ok"].is_null()).filter_map(|node| node["node"].as_u64()).collect())
}

fn alive(cluster: &LocalCluster) -> anyhow::Result<usize> {
    Ok(alive_numbers(cluster)?.len())
}
