//! URL-state writes a second: three nodes that keep three copies of everything, against one node alone.
//!
//! URLs are handed in over the control door, as `ctl url add` does; what is counted is acknowledged: on one disk alone, on two of three
//! disks in the cluster, fsynced. Nothing is fetched meanwhile. Both share the processors of this machine, and take turns.
//!
//! `cargo build --release -p node && cargo bench -p benches --bench replicate`

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::ensure;
use benches::cluster::LocalCluster;
use benches::{median, program, verdict};
use clap::Parser;

#[derive(Parser)]
struct Arguments {
    /// URLs of a run
    #[arg(long, default_value_t = 50_000)]
    urls: u32,
    /// Hosts that they lie on
    #[arg(long, default_value_t = 500)]
    hosts: u32,
    /// Runs of each
    #[arg(long, default_value_t = 3)]
    pairs: usize,
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
    let urls = tempfile::NamedTempFile::new()?;
    let mut text = String::new();
    for number in 0..arguments.urls {
        writeln!(text, "http://host-{}.example/pages/{number}", number % arguments.hosts)?;
    }
    std::fs::write(urls.path(), text)?;
    let mut ratios = Vec::new();
    for _ in 0..arguments.pairs {
        let alone = writes(&orbweaver, 1, urls.path(), &arguments)?;
        let replicated = writes(&orbweaver, 3, urls.path(), &arguments)?;
        ratios.push(replicated / alone);
        println!("one node {alone:.0} a second, three nodes {replicated:.0}, ratio {:.2}", replicated / alone);
    }
    let middle = median(&ratios);
    verdict("replicated writes to those of one node, median", format!("{middle:.2}"), "0.3", middle >= 0.3);
    Ok(())
}

fn writes(orbweaver: &Path, nodes: usize, urls: &Path, arguments: &Arguments) -> anyhow::Result<f64> {
    let cluster = LocalCluster::start(orbweaver, nodes, 1_000)?;
    cluster.ctl(&["set", "fetch.concurrency=0"])?;
    let begun = Instant::now();
    cluster.add(urls)?;
    let seconds = begun.elapsed().as_secs_f64();
    let known = cluster.totals()?.known;
    ensure!(known == u64::from(arguments.urls), "{known} of {} URLs are known", arguments.urls);
    Ok(f64::from(arguments.urls) / seconds)
}
