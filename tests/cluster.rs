//! Three nodes as processes on this machine, over libp2p and with their own databases: they crawl everything once, keep the same, and go
//! on when one of them is killed.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use simulation::world::server::Server;
use tests::cluster::{Cluster, web};
use tests::fleet::SETTINGS;
use tests::program::{Running, run};
use tests::{found, judge, wait_until};

const NODES: usize = 3;
/// As the settings say.
const DELAY_MS: u64 = 20;

fn assert_polite(server: &Server) {
    let log = server.access_log();
    judge::assert_spaced(&log, |access| access.host.clone(), |_| DELAY_MS);
    judge::assert_robots_first(&log);
}

#[test]
fn three_nodes_crawl_everything_once_and_keep_the_same() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (12, 15);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    let mut cluster = Cluster::local(work.path(), NODES, SETTINGS);
    cluster.submit_at(0, &server.seeds());
    wait_until("everything is crawled", || cluster.totals() == (4096, expected, expected));
    // Repair has nothing to do, but it must not undo anything either.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(cluster.totals(), (4096, expected, expected));
    let status = cluster.ctl(&["url", "status", &server.seeds()[0]]).expect("an answer");
    let copies = status["Url"].as_array().expect("one from each node");
    assert_eq!(copies.iter().filter(|copy| copy["state"]["Ok"]["http_code"] == 200).count(), NODES, "{status}");
    let requests = judge::page_requests(&server, &server.access_log());
    assert_eq!(requests.len() as u64, expected);
    let again: Vec<_> = requests.iter().filter(|(_, count)| **count != 1).collect();
    assert!(again.is_empty(), "fetched more than once: {again:?}");
    assert_polite(&server);
    cluster.come_to_rest(&[0, 1, 2], NODES, &requests.into_keys().collect());
    // Each page lies on the node that fetched it and on another one, byte for byte.
    let archives: Vec<_> = (0..NODES).map(|node| found::records(&cluster.data(node))).collect();
    let stored: usize = archives.iter().map(|records| found::captures(records).len()).sum();
    assert_eq!(stored as u64, 2 * expected);
}

#[test]
fn a_node_killed_again_and_again_loses_nothing_and_breaks_no_delay() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (16, 40);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    let mut cluster = Cluster::local(work.path(), NODES, SETTINGS);
    cluster.submit_at(0, &server.seeds());
    let mut draw = ChaCha8Rng::seed_from_u64(5);
    for kill in 0..5 {
        let before = server.requests_total();
        wait_until("the crawl got on", || server.requests_total() >= before + 40 || cluster.totals().2 == expected);
        let node = draw.random_range(0..NODES);
        std::thread::sleep(Duration::from_millis(draw.random_range(0..200)));
        cluster.kill_node(node);
        // Some come back at once, some when others have taken over.
        std::thread::sleep(Duration::from_millis([100, 12_000][kill % 2]));
        cluster.start_node(node);
    }
    wait_until("everything is crawled", || cluster.totals() == (4096, expected, expected));
    let requests = judge::page_requests(&server, &server.access_log());
    assert_eq!(requests.len() as u64, expected, "every page was fetched");
    let redundant = requests.values().map(|count| u64::from(count - 1)).sum::<u64>();
    println!("{redundant} of {expected} pages were fetched again");
    // What is in flight at a kill, here and on the way: at most the flights of a node each time.
    assert!(redundant <= 5 * 16, "{redundant} redundant fetches");
    assert_polite(&server);
    cluster.come_to_rest(&[0, 1, 2], NODES, &requests.into_keys().collect());
}

/// The process that runs with these settings.
fn process_of(config: &std::path::Path) -> Option<String> {
    let has = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == config.as_os_str().as_encoded_bytes())
    };
    let found = std::fs::read_dir("/proc").unwrap().flatten().find(has)?;
    found.file_name().into_string().ok()
}

#[test]
fn a_local_cluster_goes_on_without_a_node_that_was_killed() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("tried");
    let folder = data.to_str().unwrap();
    let local = Running::start(["cluster", "local", "--nodes", "3", "--data", folder], work.path(), "tried");
    wait_until("all nodes listen", || local.stdout().matches("listens on").count() == 3);
    wait_until("all nodes answer", || run(&["ctl", "--data", folder, "nodes"]).code == Some(0));
    let process = process_of(&data.join("node-3").join("cluster.toml")).expect("the third node runs");
    assert!(std::process::Command::new("kill").args(["-9", &process]).status().unwrap().success());
    wait_until("it is said", || local.stderr().contains("node 3 was killed"));
    assert!(local.stderr().contains("orbweaver node --config"), "{}", local.stderr());
    let nodes = run(&["ctl", "--data", folder, "nodes"]);
    assert_eq!(nodes.code, Some(1), "part of the answer is missing: {nodes}");
    assert_eq!(nodes.stdout.matches("12D3KooW").count(), 3, "the one that is gone is named: {nodes}");
    local.interrupt();
    let ended = local.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
}
