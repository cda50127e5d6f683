//! URIs of a CSV file into a job, a second, and whether memory stays flat: of the command that reads the file and of the node that takes it in.
//!
//! A node alone; nothing is fetched meanwhile. A URI is counted when it is a task on disk, told apart from all others of the job. Memory is looked at when a tenth is in
//! and at the end: the command remembers some 40 bytes a URI to find those that come again, the node only what its database caches.
//!
//! `cargo build --release -p node && cargo bench -p benches --bench import`

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use benches::{MIB, program, verdict};
use clap::Parser;

#[derive(Parser)]
struct Arguments {
    /// URIs in the file
    #[arg(long, default_value_t = 1_000_000)]
    uris: u64,
    /// Hosts that they lie on
    #[arg(long, default_value_t = 5_000)]
    hosts: u64,
    /// The program to measure [default: orbweaver as built beside this bench]
    #[arg(long)]
    orbweaver: Option<PathBuf>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

/// Resident memory of a process, in bytes.
fn resident(child: &Child) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("it has ended")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1_024.0)
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let orbweaver = arguments.orbweaver.clone().map_or_else(|| program("orbweaver"), Ok)?;
    let work = tempfile::tempdir()?;
    let (data, list) = (work.path().join("data"), work.path().join("list.csv"));
    let mut text = String::new();
    for number in 0..arguments.uris {
        writeln!(text, "http://host-{}.example/pages/{number}?q=1,2", number % arguments.hosts)?;
    }
    std::fs::write(&list, &text)?;
    drop(text);
    let mut node = Command::new(&orbweaver).arg("node").arg("--data").arg(&data).stdout(Stdio::null()).spawn()?;
    let ctl = |more: &[&str]| Command::new(&orbweaver).args(["ctl", "--json", "--data"]).arg(&data).args(more).output();
    let began = Instant::now();
    while !ctl(&["job", "add", "bench"])?.status.success() {
        ensure!(began.elapsed() < Duration::from_secs(60), "the node does not answer");
        std::thread::sleep(Duration::from_millis(200));
    }
    ctl(&["set", "fetch.concurrency=0"])?;
    let began = Instant::now();
    let mut import = Command::new(&orbweaver)
        .args(["ctl", "--json", "--data"])
        .arg(&data)
        .args(["import", "--job", "bench"])
        .arg(&list)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut seen: Vec<(f64, f64)> = Vec::new();
    while import.try_wait()?.is_none() {
        if let (Ok(command), Ok(node)) = (resident(&import), resident(&node)) {
            seen.push((command, node));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let took = began.elapsed();
    let answer = String::from_utf8(import.wait_with_output()?.stdout)?;
    let kept = format!("\"kept\":{}", arguments.uris);
    ensure!(answer.contains(&kept), "not all were kept: {answer}");
    let rate = arguments.uris as f64 / took.as_secs_f64();
    let early = seen.get(seen.len() / 10).copied().context("it was over at once; take more URIs")?;
    let most = seen.iter().fold((0.0_f64, 0.0_f64), |most, now| (most.0.max(now.0), most.1.max(now.1)));
    println!("{} URIs in {:.1} s: {rate:.0} a second", arguments.uris, took.as_secs_f64());
    for (what, early, most) in [("command", early.0, most.0), ("node", early.1, most.1)] {
        println!("{what}: {:.0} MiB when a tenth was in, {:.0} MiB at most", early / MIB, most / MIB);
    }
    // 40 bytes a URI in a tree, and as much again for its nodes that are half full.
    let allowed = early.0 + arguments.uris as f64 * 80.0 + 32.0 * MIB;
    verdict(
        "memory of the command",
        format!("{:.0} MiB", most.0 / MIB),
        format!("{:.0} MiB", allowed / MIB),
        most.0 <= allowed,
    );
    verdict("memory of the node", format!("{:.0} MiB", most.1 / MIB), "512 MiB", most.1 <= 512.0 * MIB);
    node.kill()?;
    node.wait()?;
    Ok(())
}
