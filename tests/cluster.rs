//! Three nodes as processes on this machine, over libp2p and with their own databases: they crawl everything once, keep the same, and go
//! on when one of them is killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use node::edges::store::Store;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};
use tests::program::{Running, run};
use tests::{found, judge, wait_until};

const NODES: usize = 3;
const DELAY_MS: u64 = 20;
/// Times of a cluster that need not survive a slow night: leases of seconds, and no host asks for more than a second.
const SETTINGS: &str = "
[filter]
scope = \"any\"
[politeness]
delay_ms = 20
crawl_delay_max_ms = 1000
[fetch]
concurrency = 16
settle_timeout_s = 5
[fetch.limits]
fetch_timeout_ms = 3000
[cluster]
id = \"test\"
[cluster.lease]
duration_s = 8
guard_ms = 200
[cluster.membership]
stable_for_ms = 2000
";

/// A cluster of processes.
struct Cluster {
    folder: PathBuf,
    nodes: Vec<Option<Running>>,
    starts: usize,
}

impl Cluster {
    /// Has keys and settings made by `cluster local`, stops that, and starts the nodes one by one.
    fn start(work: &Path) -> Cluster {
        let (folder, settings) = (work.join("cluster"), work.join("shared.toml"));
        std::fs::write(&settings, SETTINGS).unwrap();
        let mut cluster = Cluster { folder, nodes: Vec::new(), starts: 0 };
        let (count, config) = (NODES.to_string(), settings.to_str().unwrap());
        let arguments = ["cluster", "local", "--nodes", &count, "--data", cluster.folder(), "--config", config];
        let local = Running::start(arguments, work, "local");
        wait_until("all nodes of the local cluster listen", || local.stdout().matches("listens on").count() >= NODES);
        let again = run(&["cluster", "local", "--data", cluster.folder()]);
        again.complains(3, &["already"]);
        local.interrupt();
        let ended = local.wait();
        assert_eq!(ended.code, Some(0), "{ended}");
        for node in 0..NODES {
            cluster.nodes.push(None);
            cluster.start_node(node);
        }
        cluster
    }

    fn folder(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    fn start_node(&mut self, node: usize) {
        self.starts += 1;
        let config = self.folder.join(format!("node-{}", node + 1)).join("cluster.toml");
        let arguments = ["node", "--config", config.to_str().unwrap(), "--allow-address", "127.0.0.0/8"];
        self.nodes[node] = Some(Running::start(arguments, &self.folder, &format!("start-{}", self.starts)));
    }

    fn kill_node(&mut self, node: usize) {
        let running = self.nodes[node].take().expect("it runs");
        assert!(running.kill(), "node {node} had ended by itself");
    }

    fn data(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{}", node + 1)).join("data")
    }

    /// Asks the cluster; `None` while nobody answers.
    fn ctl(&self, arguments: &[&str]) -> Option<Value> {
        let ended = run(&[&["ctl", "--data", self.folder(), "--json"], arguments].concat());
        serde_json::from_str(ended.stdout.lines().next()?).ok()
    }

    /// Sums of what the nodes say of the slots that they hold, and how many slots those are.
    fn totals(&self) -> (u64, u64, u64) {
        let answer = self.ctl(&["nodes"]).unwrap_or_default();
        let reports = answer["Nodes"].as_array().cloned().unwrap_or_default();
        let sum = |path: &str| {
            reports.iter().filter_map(|node| node["report"]["Ok"].pointer(path)).filter_map(Value::as_u64).sum()
        };
        (sum("/held"), sum("/totals/known"), sum("/totals/processed"))
    }

    fn submit(&self, server: &Server) {
        let seeds = server.seeds();
        let arguments: Vec<&str> = ["url", "add"].into_iter().chain(seeds.iter().map(String::as_str)).collect();
        wait_until("the seeds are kept", || {
            self.ctl(&arguments).is_some_and(|answer| answer["Added"]["kept"] == seeds.len())
        });
    }

    /// Stops all nodes, as Ctrl-C does.
    fn stop(&mut self) {
        for node in &mut self.nodes {
            let running = node.take().expect("all run");
            running.interrupt();
            let ended = running.wait();
            assert_eq!(ended.code, Some(0), "{ended}");
        }
    }

    /// Every record of a node's disk, as bytes.
    fn records(&self, node: usize) -> BTreeMap<Vec<u8>, String> {
        let store = Store::open_for_reading(&self.data(node)).expect("a data folder can be read");
        let rows = store.urls().map(|row| row.expect("every row can be read"));
        rows.map(|row| (row.key.as_bytes().to_vec(), format!("{:?}", row.record))).collect()
    }

    fn assert_replicas_equal(&self) {
        let first = self.records(0);
        for node in 1..NODES {
            let other = self.records(node);
            assert_eq!(first.len(), other.len(), "records of node 0 and node {node}");
            for (key, record) in &first {
                assert_eq!(Some(record), other.get(key), "as on node {node}");
            }
        }
        (0..NODES).for_each(|node| drop(found::assert_recount(&self.data(node))));
    }
}

fn web(hosts: u32, pages: u32) -> Server {
    let plan = WebPlan { delay_ms: 3, ..WebPlan::bench(17, hosts, pages) };
    Server::start(Web::new(plan)).expect("loopback addresses can be listened at")
}

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
    let mut cluster = Cluster::start(work.path());
    cluster.submit(&server);
    wait_until("everything is crawled", || cluster.totals() == (4096, expected, expected));
    // Repair has nothing to do, but it must not undo anything either.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(cluster.totals(), (4096, expected, expected));
    let status = cluster.ctl(&["url", "status", &server.seeds()[0]]).expect("an answer");
    let copies = status["Url"].as_array().expect("one from each node");
    assert_eq!(copies.iter().filter(|copy| copy["state"]["Ok"]["http_code"] == 200).count(), NODES, "{status}");
    cluster.stop();

    let requests = judge::page_requests(&server, &server.access_log());
    assert_eq!(requests.len() as u64, expected);
    let again: Vec<_> = requests.iter().filter(|(_, count)| **count != 1).collect();
    assert!(again.is_empty(), "fetched more than once: {again:?}");
    assert_polite(&server);
    cluster.assert_replicas_equal();
    // Each page lies on the node that fetched it.
    let stored: usize = (0..NODES).map(|node| found::captures(&found::records(&cluster.data(node))).len()).sum();
    assert_eq!(stored as u64, expected);
}

#[test]
fn a_node_killed_again_and_again_loses_nothing_and_breaks_no_delay() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (16, 40);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    let mut cluster = Cluster::start(work.path());
    cluster.submit(&server);
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
    wait_until("the replicas agree", || {
        let answer = cluster.ctl(&["nodes"]).unwrap_or_default();
        let nodes = answer["Nodes"].as_array().cloned().unwrap_or_default();
        nodes.len() == NODES && nodes.iter().all(|node| node["report"]["Ok"]["records"] == expected)
    });
    // A record that a node missed in another state is found by its digest within some rounds of repair.
    std::thread::sleep(Duration::from_secs(15));
    cluster.stop();
    let requests = judge::page_requests(&server, &server.access_log());
    assert_eq!(requests.len() as u64, expected, "every page was fetched");
    let redundant = requests.values().map(|count| u64::from(count - 1)).sum::<u64>();
    println!("{redundant} of {expected} pages were fetched again");
    // What is in flight at a kill, here and on the way: at most the flights of a node each time.
    assert!(redundant <= 5 * 16, "{redundant} redundant fetches");
    assert_polite(&server);
    cluster.assert_replicas_equal();
}
