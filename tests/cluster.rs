//! Nodes as processes on this machine, over libp2p and with their own databases: they crawl everything once, keep the same, go on when
//! one of them is killed or lost for ever, share work by load, and speak several versions while they are upgraded.

use std::time::Duration;

use proto::wire::{WIRE_VERSION, WIRE_VERSION_MIN};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};
use tests::cluster::{Cluster, sum, web};
use tests::fleet::SETTINGS;
use tests::program::{Running, run};
use tests::{found, judge, tell, wait_until};

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
    tell(&format!("{redundant} of {expected} pages were fetched again"));
    // What is in flight at a kill, here and on the way: at most the flights of a node each time.
    assert!(redundant <= 5 * 16, "{redundant} redundant fetches");
    assert_polite(&server);
    cluster.come_to_rest(&[0, 1, 2], NODES, &requests.into_keys().collect());
}

#[test]
fn what_was_acknowledged_outlives_the_node_that_took_it_and_its_disk() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (24, 8);
    // Hosts do not link to each other: a seed that is lost is a host that nobody crawls.
    let plan = WebPlan { delay_ms: 3, cross_host_percent: 0, hosts_linked: false, ..WebPlan::bench(17, hosts, pages) };
    let server = Server::start(Web::new(plan)).unwrap();
    let expected = u64::from(hosts * pages);
    let mut cluster = Cluster::local(work.path(), NODES, SETTINGS);
    wait_until("all slots are held", || cluster.totals().0 == 4_096);
    let (lost, alive) = (2, [0, 1]);
    let seeds = server.seeds();
    let (first, rest) = seeds.split_at(16);
    first.iter().for_each(|seed| cluster.submit_through(lost, std::slice::from_ref(seed)));
    // Nothing comes between the last acknowledgement and the end, and nothing comes back.
    let (peer, _) = cluster.peer_of(lost);
    cluster.kill_node(lost);
    std::fs::remove_dir_all(cluster.data(lost)).expect("its disk is gone");
    wait_until("it is forgotten", || cluster.ctl_through(0, &["forget", &peer]).code == Some(0));
    cluster.submit_through(0, rest);
    wait_until("everything is crawled", || cluster.totals() == (4_096, expected, expected));
    let requests = judge::page_requests(&server, &server.access_log());
    assert_eq!(requests.len() as u64, expected, "every page was fetched");
    let redundant = requests.values().map(|count| u64::from(count - 1)).sum::<u64>();
    tell(&format!("{redundant} of {expected} pages were fetched again"));
    assert!(redundant <= 16, "{redundant} redundant fetches, the node had no more in flight");
    assert_polite(&server);
    cluster.come_to_rest(&alive, 2, &requests.into_keys().collect());
}

#[test]
fn a_full_node_gives_its_batches_away_and_one_above_its_mark_refuses_them() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (12, 15);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    let mut cluster = Cluster::made(work.path(), NODES, SETTINGS);
    let [full, open, shut] = [0, 1, 2];
    // How busy the machine is must not matter here: only fetches count, a report is believed for long, and nobody is ever full.
    let nothing = ["cpu", "io_wait", "memory", "disk", "mailbox", "load_average"].map(|part| (part, 0.into()));
    let marks: [(&str, toml::Value); 5] = [
        ("memory_full_percent", 100.into()),
        ("disk_full_percent", 100.into()),
        ("low_water", 500.into()),
        ("high_water", 1_000.into()),
        ("report_age_max_s", 600.into()),
    ];
    for node in [full, open, shut] {
        cluster.change(node, "cluster.load", &nothing);
        cluster.change(node, "cluster.load", &marks);
    }
    // More than a hundredth of the memory is in use on any machine.
    cluster.change(full, "cluster.load", &[("memory_full_percent", 1.into())]);
    cluster.change(shut, "cluster.load", &[("memory", 1.into()), ("low_water", 0.into()), ("high_water", 1.into())]);
    (0..NODES).for_each(|node| cluster.start_node(node));
    let peers = [full, open, shut].map(|node| cluster.peer_of(node).0);
    let of = |cluster: &Cluster, node: usize, name: &str| {
        let reports = cluster.reports();
        reports.iter().find(|report| report["peer"] == peers[node].as_str()).and_then(|report| report[name].as_u64())
    };
    wait_until("loads are measured and slots are held", || {
        cluster.totals().0 == 4_096
            && of(&cluster, full, "load") == Some(1_001)
            && of(&cluster, shut, "load") == Some(2)
    });
    cluster.submit_at(0, &server.seeds());
    wait_until("everything is crawled", || cluster.totals() == (4_096, expected, expected));
    let fetches = |node: usize| of(&cluster, node, "fetches").expect("every node answers");
    let (by_full, by_open) = (fetches(full), fetches(open));
    assert!(by_full * 10 <= by_open, "{by_full} by the full one, {by_open} by the one that has room");
    assert!(cluster.figure(full, "coordinator", "batches_sent") > Some(0), "it had batches");
    assert!(
        cluster.figure(shut, "coordinator", "batches_refused") > Some(0),
        "they were offered where there was no room"
    );
    assert_eq!(cluster.figure(open, "coordinator", "batches_refused"), Some(0));
    assert_polite(&server);
    cluster.stop();
}

#[test]
fn nodes_of_three_versions_crawl_everything_and_keep_the_same() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (12, 15);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    let mut cluster = Cluster::made(work.path(), NODES, SETTINGS);
    // An upgrade that has come to the first of three.
    let versions = [WIRE_VERSION, WIRE_VERSION - 1, WIRE_VERSION_MIN];
    for (node, version) in versions.into_iter().enumerate().skip(1) {
        cluster.change(node, "cluster", &[("wire_version_max", i64::from(version).into())]);
    }
    (0..NODES).for_each(|node| cluster.start_node(node));
    let seeds = server.seeds();
    for (node, seeds) in seeds.chunks(hosts as usize / NODES).enumerate() {
        cluster.submit_through(node, seeds);
    }
    wait_until("everything is crawled", || cluster.totals() == (4_096, expected, expected));
    for node in 0..NODES {
        let spoken = cluster.figure(node, "network", "oldest_wire_version");
        assert_eq!(spoken, Some(u64::from(WIRE_VERSION_MIN)), "node {node}");
    }
    let requests = judge::page_requests(&server, &server.access_log());
    assert_eq!(requests.len() as u64, expected, "every page was fetched");
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
fn a_dozen_local_nodes_elect_crawl_and_end() {
    const MANY: usize = 12;
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (24, 2);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    // A dozen processes on a small machine: nobody is believed dead for being late.
    let settings = SETTINGS
        .replace("duration_s = 8", "duration_s = 20")
        .replace("stable_for_ms = 2000", "stable_for_ms = 2000\nsuspect_for_ms = 20000");
    let shared = work.path().join("shared.toml");
    std::fs::write(&shared, format!("[cluster]\nid = \"dozen\"\n{settings}")).unwrap();
    let data = work.path().join("dozen");
    let (folder, shared, nodes) = (data.to_str().unwrap(), shared.to_str().unwrap(), MANY.to_string());
    let arguments =
        ["cluster", "local", "--nodes", &nodes, "--data", folder, "--config", shared, "--allow-address", "127.0.0.0/8"];
    let local = Running::start(arguments, work.path(), "dozen");
    let reports = || -> Vec<Value> {
        let ended = run(&["ctl", "--data", folder, "--json", "nodes"]);
        let answer: Value =
            ended.stdout.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        let nodes = answer["Nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().map(|node| node["report"]["Ok"].clone()).filter(|report| !report.is_null()).collect()
    };
    wait_until("all slots are held, by all of them", || {
        let reports = reports();
        let all_hold = reports.iter().all(|report| report["held"].as_u64() > Some(0));
        reports.len() == MANY && all_hold && sum(&reports, "/held") == 4_096
    });
    let seeds = server.seeds();
    let add: Vec<&str> =
        ["ctl", "--data", folder, "url", "add"].into_iter().chain(seeds.iter().map(String::as_str)).collect();
    wait_until("the seeds are kept", || run(&add).code == Some(0));
    wait_until("everything is crawled", || sum(&reports(), "/totals/processed") == expected);
    assert_polite(&server);
    let configs: Vec<_> = (1..=MANY).map(|node| data.join(format!("node-{node}")).join("cluster.toml")).collect();
    assert!(configs.iter().all(|config| process_of(config).is_some()), "each is a process");
    local.interrupt();
    let ended = local.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    let left: Vec<String> = configs.iter().filter_map(|config| process_of(config)).collect();
    assert!(left.is_empty(), "still there: {left:?}");
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
