//! A cluster of processes: on the loopback device, or each node on a machine of its own in a [`Network`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use node::edges::store::Store;
use node::edges::swarm::identity::Identity;
use proto::record::UrlRecord;
use serde_json::Value;
use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};
use toml::Table;

use crate::network::{Network, address};
use crate::program::{Ended, Running, run};
use crate::{eventually, found, wait_until};

/// The port at which nodes on machines of their own listen.
const PORT: u16 = 7_070;
/// The cluster's name.
const NAME: &str = "test";

/// A web to be crawled by clusters: hosts that answer after 3 ms, and link to each other.
pub fn web(hosts: u32, pages: u32) -> Server {
    let plan = WebPlan { delay_ms: 3, ..WebPlan::bench(17, hosts, pages) };
    Server::start(Web::new(plan)).expect("loopback addresses can be listened at")
}

/// A cluster. Dropping it ends its nodes.
pub struct Cluster {
    nodes: Vec<Option<Running>>, // None while it does not run
    network: Option<Network>,    // after the nodes: they live in it
    folder: PathBuf,
    settings: String,
    peers: Vec<String>, // peer ids of the nodes; only in a network
    starts: usize,
}

impl Cluster {
    /// Has keys and settings made by `cluster local`, stops that, and starts the nodes one by one.
    pub fn local(work: &Path, count: usize, settings: &str) -> Cluster {
        let mut cluster = Cluster::made(work, count, settings);
        (0..count).for_each(|node| cluster.start_node(node));
        cluster
    }

    /// Has keys and settings made by `cluster local`, and stops that: no node runs.
    pub fn made(work: &Path, count: usize, settings: &str) -> Cluster {
        let mut cluster = Cluster::new(None, work, settings);
        let shared = work.join("shared.toml");
        let section = if settings.contains("[cluster]\n") { "" } else { "[cluster]\nid = \"test\"\n" };
        std::fs::write(&shared, format!("{section}{settings}")).expect("the temporary folder can be written");
        let config = shared.to_str().expect("temporary folders have plain names");
        let arguments =
            ["cluster", "local", "--nodes", &count.to_string(), "--data", cluster.folder(), "--config", config];
        let local = Running::start(arguments, work, "local");
        wait_until("all nodes of the local cluster listen", || local.stdout().matches("listens on").count() >= count);
        let again = run(&["cluster", "local", "--data", cluster.folder()]);
        again.complains(3, &["already"]);
        local.interrupt();
        let ended = local.wait();
        assert_eq!(ended.code, Some(0), "{ended}");
        cluster.nodes.resize_with(count, || None);
        cluster
    }

    /// Changes settings of a section of a node's file, as of `cluster` or `cluster.load`. It goes by them when it is started.
    pub fn change(&self, node: usize, section: &str, settings: &[(&str, toml::Value)]) {
        let file = self.home(node).join("cluster.toml");
        let text = std::fs::read_to_string(&file).expect("every node has its settings");
        let mut config: Table = text.parse().expect("they are valid");
        let mut table = &mut config;
        for name in section.split('.') {
            let inner = table.entry(name).or_insert_with(|| Table::new().into());
            table = inner.as_table_mut().expect("a section is a table");
        }
        table.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        std::fs::write(file, config.to_string()).expect("the folder can be written");
    }

    /// Makes keys and settings as an operator of several machines does, and starts `count` nodes, all of them voters.
    pub fn across(network: Network, work: &Path, count: usize, settings: &str) -> Cluster {
        let mut cluster = Cluster::new(Some(network), work, settings);
        let nodes: Vec<usize> = (0..count).map(|_| cluster.prepare_node()).collect();
        nodes.iter().for_each(|node| cluster.configure(*node, count));
        nodes.iter().for_each(|node| cluster.start_node(*node));
        cluster
    }

    fn new(network: Option<Network>, work: &Path, settings: &str) -> Cluster {
        let (folder, settings) = (work.join("cluster"), settings.to_owned());
        Cluster { nodes: Vec::new(), network, folder, settings, peers: Vec::new(), starts: 0 }
    }

    /// Makes the keys of one more node on the next machine of the network, and returns its number. Nobody knows it before all
    /// nodes were [configured](Cluster::configure) and started again.
    pub fn prepare_node(&mut self) -> usize {
        let home = self.home(self.nodes.len());
        std::fs::create_dir_all(&home).expect("the temporary folder can be written");
        self.peers.push(self.key(&home.join("node.key")));
        self.nodes.push(None);
        self.nodes.len() - 1
    }

    /// Writes the settings of a node, with all nodes that there are now as peers and the first `voters` of them as voters.
    pub fn configure(&self, node: usize, voters: usize) {
        let mut config: Table = self.settings.parse().expect("the settings of a test are valid");
        let data = self.data(node).to_str().expect("temporary folders have plain names").to_owned();
        config.insert("storage".into(), Table::from_iter([("data".into(), data.into())]).into());
        let listen = |node| format!("/ip4/{}/tcp/{PORT}", address(node));
        let peer = |(node, id): (usize, &String)| {
            let addresses = toml::Value::Array(vec![listen(node).into()]);
            toml::Value::Table(Table::from_iter([("id".into(), id.clone().into()), ("addresses".into(), addresses)]))
        };
        let operator = self.key(&self.folder.join("operator.key"));
        let cluster = config.entry("cluster").or_insert_with(|| Table::new().into()).as_table_mut().expect("a section");
        cluster.insert("id".into(), NAME.into());
        cluster.insert("identity".into(), "node.key".into());
        cluster.insert("swarm_key".into(), "../swarm.key".into());
        cluster.insert("listen".into(), vec![listen(node)].into());
        cluster.insert("peers".into(), toml::Value::Array(self.peers.iter().enumerate().map(peer).collect()));
        cluster.insert("voters".into(), self.peers[..voters].to_vec().into());
        cluster.insert("operators".into(), vec![operator].into());
        std::fs::write(self.home(node).join("cluster.toml"), config.to_string()).expect("the folder can be written");
    }

    /// Makes an identity, and the swarm key if there is none yet; returns the peer id.
    fn key(&self, identity: &Path) -> String {
        let swarm_key = self.folder.join("swarm.key");
        let [identity, swarm_key] =
            [identity, &swarm_key].map(|path| path.to_str().expect("temporary folders have plain names"));
        let ended = run(&["keygen", "--json", identity, "--swarm-key", swarm_key]);
        assert_eq!(ended.code, Some(0), "{ended}");
        let made: Value = serde_json::from_str(&ended.stdout).expect("--json prints JSON");
        made["identities"][0]["peer_id"].as_str().expect("every identity has a peer id").to_owned()
    }

    /// How many nodes there are, those that do not run included.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The network, if it is not loopback.
    pub fn network(&self) -> &Network {
        self.network.as_ref().expect("the test made one")
    }

    fn folder(&self) -> &str {
        self.folder.to_str().expect("temporary folders have plain names")
    }

    fn home(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{}", node + 1))
    }

    /// The data folder of a node.
    pub fn data(&self, node: usize) -> PathBuf {
        self.home(node).join("data")
    }

    /// Does something on the machine of a node.
    fn at<T: Send>(&self, node: usize, task: impl FnOnce() -> T + Send) -> T {
        match &self.network {
            Some(network) => network.machine(node).inside(task),
            None => task(),
        }
    }

    /// Starts a node.
    pub fn start_node(&mut self, node: usize) {
        self.starts += 1;
        let (config, output) = (self.home(node).join("cluster.toml"), format!("start-{}", self.starts));
        let config = config.to_str().expect("temporary folders have plain names");
        let arguments = ["node", "--config", config, "--allow-address", "127.0.0.0/8"];
        let running = self.at(node, || Running::start(arguments, &self.folder, &output));
        self.nodes[node] = Some(running);
    }

    /// Ends a node by SIGKILL.
    pub fn kill_node(&mut self, node: usize) {
        let running = self.nodes[node].take().expect("it runs");
        let complaints = running.stderr();
        assert!(running.kill(), "node {node} had ended by itself: {complaints}");
    }

    /// Stops a node, as Ctrl-C does.
    pub fn stop_node(&mut self, node: usize) {
        let running = self.nodes[node].take().expect("it runs");
        running.interrupt();
        let ended = running.wait();
        assert_eq!(ended.code, Some(0), "{ended}");
    }

    /// Waits until a node ends by itself, in a good way, and returns what it said.
    pub fn wait_for_node(&mut self, node: usize) -> String {
        let ended = self.nodes[node].take().expect("it runs").wait();
        assert_eq!(ended.code, Some(0), "{ended}");
        ended.stdout
    }

    /// Stops all nodes that run.
    pub fn stop(&mut self) {
        let running: Vec<usize> = (0..self.count()).filter(|node| self.nodes[*node].is_some()).collect();
        running.into_iter().for_each(|node| self.stop_node(node));
    }

    /// Asks the cluster through any node that runs; `None` while nobody answers.
    pub fn ctl(&self, arguments: &[&str]) -> Option<Value> {
        let node = self.nodes.iter().position(Option::is_some).expect("some node runs");
        self.ctl_at(node, arguments)
    }

    /// Asks the cluster through one node; `None` while it does not answer.
    pub fn ctl_at(&self, node: usize, arguments: &[&str]) -> Option<Value> {
        let access: Vec<String> = match self.peers.get(node) {
            None => vec!["--data".to_owned(), self.folder().to_owned()],
            Some(peer) => {
                let address = format!("/ip4/{}/tcp/{PORT}/p2p/{peer}", address(node));
                let [operator, swarm_key] =
                    ["operator.key", "swarm.key"].map(|file| format!("{}/{file}", self.folder()));
                let access =
                    ["--node", &address, "--cluster", NAME, "--identity", &operator, "--swarm-key", &swarm_key];
                access.map(str::to_owned).to_vec()
            }
        };
        let access: Vec<&str> = access.iter().map(String::as_str).collect();
        let ended = self.at(node, || run(&[&["ctl", "--json"], &access[..], arguments].concat()));
        serde_json::from_str(ended.stdout.lines().next()?).ok()
    }

    /// Makes key and settings of one node more beside a cluster on loopback, as an operator does: the settings of the first, a key
    /// of its own, and that it is a newcomer. Returns its number.
    pub fn prepare_newcomer(&mut self) -> usize {
        let (node, first) = (self.nodes.len(), self.home(0).join("cluster.toml"));
        let home = self.home(node);
        std::fs::create_dir_all(&home).expect("the temporary folder can be written");
        self.key(&home.join("node.key"));
        std::fs::copy(first, home.join("cluster.toml")).expect("the first node has its settings");
        let data = self.data(node).to_str().expect("temporary folders have plain names").to_owned();
        self.change(node, "storage", &[("data", data.into())]);
        let listen = vec!["/ip4/127.0.0.1/tcp/0".to_owned()].into();
        self.change(node, "cluster", &[("listen", listen), ("newcomer", true.into())]);
        self.nodes.push(None);
        node
    }

    /// Peer id and address of a node: by the settings of all, or by its own key if it is a newcomer.
    pub fn peer_of(&self, node: usize) -> (String, String) {
        if self.is_newcomer(node) {
            let identity = Identity::load(&self.home(node).join("node.key")).expect("it has a key");
            return (identity.peer().to_string(), String::new());
        }
        let text = std::fs::read_to_string(self.home(node).join("cluster.toml")).expect("every node has its settings");
        let config: Table = text.parse().expect("they are valid");
        let peer = &config["cluster"]["peers"][node];
        let text = |value: &toml::Value| value.as_str().expect("ids and addresses are text").to_owned();
        (text(&peer["id"]), text(&peer["addresses"][0]))
    }

    fn is_newcomer(&self, node: usize) -> bool {
        let text = std::fs::read_to_string(self.home(node).join("cluster.toml")).unwrap_or_default();
        text.contains("newcomer = true")
    }

    /// Asks a cluster on loopback through this very node.
    pub fn ctl_through(&self, node: usize, arguments: &[&str]) -> Ended {
        let (peer, address) = self.peer_of(node);
        let address = format!("{address}/p2p/{peer}");
        let [operator, swarm_key] = ["operator.key", "swarm.key"].map(|file| format!("{}/{file}", self.folder()));
        let access = ["--node", &address, "--cluster", "local", "--identity", &operator, "--swarm-key", &swarm_key];
        run(&[&["ctl", "--json"], &access[..], arguments].concat())
    }

    /// Hands URLs in through this very node of a cluster on loopback, until they are acknowledged.
    pub fn submit_through(&self, node: usize, urls: &[impl AsRef<str>]) {
        let arguments: Vec<&str> = ["url", "add"].into_iter().chain(urls.iter().map(AsRef::as_ref)).collect();
        wait_until("the URLs are kept", || {
            let ended = self.ctl_through(node, &arguments);
            let answer = ended.stdout.lines().next().and_then(|line| serde_json::from_str::<Value>(line).ok());
            answer.is_some_and(|answer| answer["Added"]["kept"] == urls.len())
        });
    }

    /// What an actor of a node counts; only on loopback.
    pub fn figure(&self, node: usize, actor: &str, name: &str) -> Option<u64> {
        let (peer, _) = self.peer_of(node);
        let answer = self.ctl(&["stat", actor, "--node-id", &peer])?;
        let counters = answer["Admin"][0]["said"]["Ok"]["Stat"][0]["counters"].as_array()?;
        counters.iter().find(|counter| counter[0] == name)?[1].as_u64()
    }

    /// What the nodes that one node can reach, itself included, say of themselves.
    pub fn reports_at(&self, node: usize) -> Vec<Value> {
        let answer = self.ctl_at(node, &["nodes"]).unwrap_or_default();
        let nodes = answer["Nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().map(|node| node["report"]["Ok"].clone()).filter(|report| !report.is_null()).collect()
    }

    /// What one node says of itself; only in a network.
    pub fn report_of(&self, node: usize) -> Option<Value> {
        self.reports_at(node).into_iter().find(|report| report["peer"] == self.peers[node].as_str())
    }

    /// What all nodes say of themselves.
    pub fn reports(&self) -> Vec<Value> {
        self.reports_at(self.nodes.iter().position(Option::is_some).expect("some node runs"))
    }

    /// Sums of what the nodes say of the slots that they hold: how many slots, URLs known, pages.
    pub fn totals(&self) -> (u64, u64, u64) {
        let reports = self.reports();
        (sum(&reports, "/held"), sum(&reports, "/totals/known"), sum(&reports, "/totals/processed"))
    }

    /// The node that should serve a domain.
    pub fn owner_of(&self, domain: &str) -> usize {
        let ring = self.ctl(&["ring", "--domain", domain]).expect("an answer");
        let owner = &ring["Ring"][0]["nodes"][0];
        let reports = self.reports();
        let report = reports.iter().find(|report| report["node"] == *owner).expect("the owner is alive");
        self.peers.iter().position(|peer| report["peer"] == peer.as_str()).expect("the peer is one of ours")
    }

    /// Hands URLs in through a node until they are acknowledged.
    pub fn submit_at(&self, node: usize, urls: &[impl AsRef<str>]) {
        let arguments: Vec<&str> = ["url", "add"].into_iter().chain(urls.iter().map(AsRef::as_ref)).collect();
        wait_until("the URLs are kept", || {
            self.ctl_at(node, &arguments).is_some_and(|answer| answer["Added"]["kept"] == urls.len())
        });
    }

    /// The URLs that the disks of `nodes` have, if each is there at least `copies` times and all its copies are equal; what is
    /// amiss otherwise. The nodes may run meanwhile.
    pub fn agreed(&self, nodes: &[usize], copies: usize) -> Result<BTreeSet<String>, String> {
        let mut found: BTreeMap<Vec<u8>, Vec<(usize, UrlRecord)>> = BTreeMap::new();
        for node in nodes {
            let wrong = |error| format!("node {node}: {error}");
            for row in Store::open_for_reading(&self.data(*node)).map_err(wrong)?.urls() {
                let row = row.map_err(wrong)?;
                found.entry(row.key.as_bytes().to_vec()).or_default().push((*node, row.record));
            }
        }
        let mut urls = BTreeSet::new();
        for records in found.into_values() {
            let (first, record) = &records[0];
            if let Some((other, different)) = records.iter().find(|(_, other)| other != record) {
                return Err(format!("node {first} has {record:?}, node {other} has {different:?}"));
            }
            if records.len() < copies {
                return Err(format!("only {} of {copies} copies of {record:?}", records.len()));
            }
            urls.insert(record.url.clone());
        }
        Ok(urls)
    }

    /// Waits until the disks of `nodes` have `copies` equal ones of each of these URLs and of no others, then stops all nodes
    /// and asserts that it is so, and that every node counted rightly.
    pub fn come_to_rest(&mut self, nodes: &[usize], copies: usize, expected: &BTreeSet<String>) {
        let mut last = None;
        let agreed = eventually(|| {
            last = Some(self.agreed(nodes, copies));
            last.as_ref().is_some_and(|last| last.as_ref() == Ok(expected))
        });
        assert!(agreed, "the copies do not become equal: {last:?}");
        self.stop();
        assert_eq!(self.agreed(nodes, copies).as_ref(), Ok(expected));
        nodes.iter().for_each(|node| drop(found::assert_recount(&self.data(*node))));
    }
}

/// The sum of a number in reports.
pub fn sum(reports: &[Value], path: &str) -> u64 {
    reports.iter().filter_map(|report| report.pointer(path)).filter_map(Value::as_u64).sum()
}
