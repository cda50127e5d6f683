//! A cluster of processes on this machine that operators are tried on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use node::edges::store::Store;
use serde_json::Value;
use simulation::world::server::Server;

use crate::program::{Ended, Running, run};
use crate::{found, wait_until};

/// Times of a cluster that need not survive a slow night: leases of seconds, and no host asks for more than a second.
pub const SETTINGS: &str = "
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
[cluster.lease]
duration_s = 8
guard_ms = 200
[cluster.membership]
stable_for_ms = 2000
";

/// The nodes, by number from 0 on.
pub struct Fleet {
    folder: PathBuf,
    nodes: Vec<Option<Running>>,
    starts: usize,
}

impl Fleet {
    /// Has keys and settings made by `cluster local`, stops that, and starts the nodes one by one. `section` is what `[cluster]` has besides.
    pub fn start(work: &Path, count: usize, section: &str) -> Fleet {
        let (folder, settings) = (work.join("cluster"), work.join("shared.toml"));
        std::fs::write(&settings, format!("[cluster]\nid = \"test\"\n{section}\n{SETTINGS}")).unwrap();
        let mut fleet = Fleet { folder, nodes: Vec::new(), starts: 0 };
        let (number, config) = (count.to_string(), settings.to_str().unwrap());
        let arguments = ["cluster", "local", "--nodes", &number, "--data", fleet.folder(), "--config", config];
        let local = Running::start(arguments, work, "local");
        wait_until("all nodes of the local cluster listen", || local.stdout().matches("listens on").count() >= count);
        local.interrupt();
        let ended = local.wait();
        assert_eq!(ended.code, Some(0), "{ended}");
        for node in 0..count {
            fleet.nodes.push(None);
            fleet.start_node(node);
        }
        fleet
    }

    /// Where everything of the cluster lies.
    pub fn folder(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    /// Starts a node that does not run.
    pub fn start_node(&mut self, node: usize) {
        self.starts += 1;
        let config = self.folder.join(format!("node-{}", node + 1)).join("cluster.toml");
        let arguments =
            ["node", "--config", config.to_str().unwrap(), "--allow-address", "127.0.0.0/8", "--http", "127.0.0.1:0"];
        self.nodes[node] = Some(Running::start(arguments, &self.folder, &format!("start-{}", self.starts)));
    }

    /// Where a node that runs serves its metrics.
    pub fn door(&self, node: usize) -> Option<String> {
        let line = self.nodes[node].as_ref()?.said("metrics: http://")?;
        line.strip_suffix("/metrics").map(str::to_owned)
    }

    /// Where a node that runs serves the URL Frontier API.
    pub fn frontier(&self, node: usize) -> Option<String> {
        self.nodes[node].as_ref()?.said("frontier: ").map(|address| format!("http://{address}"))
    }

    /// Ends a node by SIGKILL.
    pub fn kill_node(&mut self, node: usize) {
        let running = self.nodes[node].take().expect("it runs");
        assert!(running.kill(), "node {node} had ended by itself");
    }

    /// Sends a node a signal, as `STOP` or `CONT`.
    pub fn signal_node(&self, node: usize, name: &str) {
        self.nodes[node].as_ref().expect("it runs").signal(name);
    }

    /// Waits for a node that was told to end.
    pub fn wait_for(&mut self, node: usize) -> Ended {
        self.nodes[node].take().expect("it runs").wait()
    }

    /// Stops all nodes that run, as Ctrl-C does.
    pub fn interrupt(&mut self) {
        for running in self.nodes.iter_mut().filter_map(Option::take) {
            running.interrupt();
            let ended = running.wait();
            assert_eq!(ended.code, Some(0), "{ended}");
        }
    }

    /// The data folder of a node.
    pub fn data(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{}", node + 1)).join("data")
    }

    /// The peer id of a node.
    pub fn peer(&self, node: usize) -> String {
        let key = self.folder.join(format!("node-{}", node + 1)).join("node.key");
        let shown = run(&["keygen", key.to_str().unwrap()]);
        shown.stdout.split_whitespace().find(|word| word.starts_with("12D3")).expect("a peer id").to_owned()
    }

    /// Runs `ctl` with these arguments.
    pub fn ctl(&self, arguments: &[&str]) -> Ended {
        run(&[&["ctl", "--data", self.folder()], arguments].concat())
    }

    /// Runs `ctl` with these arguments, and asks this node.
    pub fn ctl_through(&self, node: usize, arguments: &[&str]) -> Ended {
        self.through(node, "ctl", arguments)
    }

    /// Runs a command of the program with these arguments, and asks this node.
    pub fn through(&self, node: usize, command: &str, arguments: &[&str]) -> Ended {
        let access = std::fs::read_to_string(self.folder.join("ctl.toml")).expect("`cluster local` wrote it");
        let access: toml::Table = access.parse().expect("it is TOML");
        let [operator, swarm_key] = ["operator.key", "swarm.key"].map(|file| format!("{}/{file}", self.folder()));
        let (cluster, address) = (access["cluster"].as_str().unwrap(), access["nodes"][node].as_str().unwrap());
        let access = ["--node", address, "--cluster", cluster, "--identity", &operator, "--swarm-key", &swarm_key];
        run(&[&[command], &access[..], arguments].concat())
    }

    /// What `ctl --json` says; nothing while nobody answers.
    pub fn ask(&self, arguments: &[&str]) -> Value {
        let ended = self.ctl(&[&["--json"], arguments].concat());
        ended.stdout.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default()
    }

    /// What each node said to an order: its peer id, and what it said.
    pub fn parts(&self, arguments: &[&str]) -> Vec<(String, Value)> {
        let answer = self.ask(arguments);
        let parts = answer["Admin"].as_array().cloned().unwrap_or_default();
        parts.iter().map(|part| (part["peer"].as_str().unwrap_or_default().to_owned(), part["said"].clone())).collect()
    }

    /// Sums of what the nodes say of the slots that they hold, and how many slots those are.
    pub fn totals(&self) -> (u64, u64, u64) {
        let answer = self.ask(&["nodes"]);
        let reports = answer["Nodes"].as_array().cloned().unwrap_or_default();
        let sum = |path: &str| {
            reports.iter().filter_map(|node| node["report"]["Ok"].pointer(path)).filter_map(Value::as_u64).sum()
        };
        (sum("/held"), sum("/totals/known"), sum("/totals/processed"))
    }

    /// Hands the seeds of a web in.
    pub fn submit(&self, server: &Server) {
        let seeds = server.seeds();
        let arguments: Vec<&str> = ["url", "add"].into_iter().chain(seeds.iter().map(String::as_str)).collect();
        wait_until("the seeds are kept", || self.ask(&arguments)["Added"]["kept"] == seeds.len());
    }

    fn records(&self, node: usize) -> BTreeMap<Vec<u8>, String> {
        let store = Store::open_for_reading(&self.data(node)).expect("a data folder can be read");
        let rows = store.urls().map(|row| row.expect("every row can be read"));
        rows.map(|row| (row.key.as_bytes().to_vec(), format!("{:?}", row.record))).collect()
    }

    /// Asserts that all nodes, which must not run, have the same records, and counters that count them.
    pub fn assert_replicas_equal(&self) {
        let first = self.records(0);
        for node in 1..self.nodes.len() {
            let other = self.records(node);
            assert_eq!(first.len(), other.len(), "records of node 0 and node {node}");
            for (key, record) in &first {
                assert_eq!(Some(record), other.get(key), "as on node {node}");
            }
        }
        (0..self.nodes.len()).for_each(|node| drop(found::assert_recount(&self.data(node))));
    }
}
