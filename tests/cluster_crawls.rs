//! Crawls of a cluster of processes: defined through one node and known to all, paused and resumed through others, limited, stopped; and
//! known to a node that was killed, and to one that was away when they were defined.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::cluster::web;
use tests::program::{Ended, Running, run};
use tests::{judge, wait_until};

const NODES: usize = 3;
/// What the nodes keep between two requests to a host, whatever a crawl says.
const DELAY_MS: u64 = 20;

fn settings(viewer: &str) -> String {
    format!(
        "
[filter]
scope = \"any\"
[politeness]
delay_ms = {DELAY_MS}
crawl_delay_max_ms = 1000
[fetch]
concurrency = 16
settle_timeout_s = 5
[fetch.limits]
fetch_timeout_ms = 3000
[cluster]
id = \"test\"
viewers = [\"{viewer}\"]
[cluster.lease]
duration_s = 8
guard_ms = 200
[cluster.membership]
stable_for_ms = 2000
"
    )
}

/// A cluster of processes.
struct Cluster {
    folder: PathBuf,
    nodes: Vec<Option<Running>>,
    addresses: Vec<String>,
    starts: usize,
}

impl Cluster {
    /// Has keys and settings made by `cluster local`, stops that, and starts the nodes one by one.
    fn start(work: &Path) -> Cluster {
        let (folder, shared) = (work.join("cluster"), work.join("shared.toml"));
        let made = run(&["keygen", "--json", work.join("viewer.key").to_str().unwrap()]);
        let made: Value = serde_json::from_str(&made.stdout).expect("keygen prints JSON");
        std::fs::write(&shared, settings(made["identities"][0]["peer_id"].as_str().unwrap())).unwrap();
        let mut cluster = Cluster { folder, nodes: Vec::new(), addresses: Vec::new(), starts: 0 };
        let (count, config) = (NODES.to_string(), shared.to_str().unwrap());
        let arguments = ["cluster", "local", "--nodes", &count, "--data", cluster.folder(), "--config", config];
        let local = Running::start(arguments, work, "local");
        wait_until("all nodes of the local cluster listen", || local.stdout().matches("listens on").count() >= NODES);
        local.interrupt();
        let ended = local.wait();
        assert_eq!(ended.code, Some(0), "{ended}");
        let access: toml::Value =
            toml::from_str(&std::fs::read_to_string(cluster.folder.join("ctl.toml")).unwrap()).unwrap();
        let addresses = access["nodes"].as_array().unwrap().iter();
        cluster.addresses = addresses.map(|address| address.as_str().unwrap().to_owned()).collect();
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

    /// Asks one node.
    fn ask_as(&self, identity: &Path, node: usize, arguments: &[&str]) -> Ended {
        let (identity, swarm_key) = (identity.to_str().unwrap(), self.folder.join("swarm.key"));
        let access = ["ctl", "--node", &self.addresses[node], "--cluster", "local", "--identity", identity];
        run(&[&access, &["--swarm-key", swarm_key.to_str().unwrap()][..], arguments].concat())
    }

    fn ask(&self, node: usize, arguments: &[&str]) -> Ended {
        self.ask_as(&self.folder.join("operator.key"), node, arguments)
    }

    /// Gives one node an order until it is carried out: a node that has just started has not found the others yet.
    fn order(&self, node: usize, arguments: &[&str]) -> Ended {
        let mut done = None;
        wait_until("an order is carried out", || {
            let ended = self.ask(node, arguments);
            let good = ended.code == Some(0);
            done = Some(ended);
            good
        });
        done.expect("just set")
    }

    /// All crawls, as one node tells; `None` while it does not answer.
    fn list(&self, node: usize) -> Option<Value> {
        let ended = self.ask(node, &["--json", "crawl", "list"]);
        let answer: Value = serde_json::from_str(ended.stdout.lines().next()?).ok()?;
        Some(answer["Crawl"]["List"].clone())
    }

    /// One crawl, if the counts of all slots are known.
    fn crawl(&self, node: usize, name: &str) -> Option<Value> {
        let list = self.list(node).filter(|list| list["slots"] == 4096)?;
        list["crawls"].as_array()?.iter().find(|row| row["name"] == name).cloned()
    }

    fn pages(&self, node: usize, name: &str) -> u64 {
        self.crawl(node, name).and_then(|row| row["counts"]["totals"]["processed"].as_u64()).unwrap_or(0)
    }

    fn is_done(&self, node: usize, name: &str) -> bool {
        self.crawl(node, name).is_some_and(|row| row["counts"]["open"] == 0 && row["counts"]["totals"]["known"] != 0)
    }

    fn stop(&mut self) {
        for node in self.nodes.iter_mut().filter_map(Option::take) {
            node.interrupt();
            let ended = node.wait();
            assert_eq!(ended.code, Some(0), "{ended}");
        }
    }
}

fn add<'a>(name: &'a str, seeds: &'a [String], flags: &[&'a str]) -> Vec<&'a str> {
    ["crawl", "add", name].into_iter().chain(seeds.iter().map(String::as_str)).chain(flags.iter().copied()).collect()
}

#[test]
fn a_crawl_is_steered_through_any_node_and_no_node_forgets_it() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (12, 30);
    let server = web(hosts, pages);
    let (expected, seeds) = (u64::from(hosts * pages), server.seeds());
    let mut cluster = Cluster::start(work.path());

    // Submitted through one node, fetched by all.
    let news = add("news", &seeds, &["--scope", "any", "--delay", "400ms"]);
    let added = cluster.order(0, &news);
    assert!(added.stdout.contains("\"news\" is running on"), "{added}");
    assert!(added.stdout.contains(&format!("{} seeds are kept", seeds.len())), "{added}");
    wait_until("the crawl got on", || cluster.pages(1, "news") >= 40);
    let again = cluster.ask(0, &add("news", &seeds[..1], &[]));
    again.complains(1, &["news", "other seeds or rules"]);

    // Paused through another: nothing is asked for but what was in flight, at most one request a host.
    let paused = cluster.order(1, &["crawl", "pause", "news"]);
    assert!(paused.stdout.contains("\"news\" is paused on"), "{paused}");
    // A majority is enough for the answer; a node whose disk is slow hears of it a moment later.
    wait_until("all nodes know of the pause", || {
        (0..NODES).all(|node| cluster.crawl(node, "news").is_some_and(|row| row["definition"]["state"] == "paused"))
    });
    let at_pause = server.requests_total();
    std::thread::sleep(Duration::from_secs(1));
    let in_flight = server.requests_total() - at_pause;
    assert!(in_flight <= u64::from(hosts), "{in_flight} requests after the pause was acknowledged");
    let still = server.requests_total();
    assert!(still < expected);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(server.requests_total(), still, "a paused crawl asks nothing");
    let list = cluster.ask(2, &["crawl", "list"]);
    assert!(list.stdout.contains("news") && list.stdout.contains("paused"), "{list}");

    // Viewers may look and not touch.
    let viewer = work.path().join("viewer.key");
    let looks = cluster.ask_as(&viewer, 2, &["crawl", "list"]);
    assert!(looks.code == Some(0) && looks.stdout.contains("news"), "{looks}");
    cluster.ask_as(&viewer, 2, &["crawl", "resume", "news"]).complains(1, &["viewer", "operator"]);
    cluster.ask(2, &["crawl", "resume", "nosuch"]).complains(1, &["nosuch", "news"]);

    // A node is killed; what is decided while it is away reaches it when it is back.
    cluster.kill_node(1);
    let resumed = cluster.order(2, &["crawl", "resume", "news"]);
    assert!(resumed.stdout.contains("\"news\" is running on 2 nodes"), "{resumed}");
    assert!(resumed.stdout.contains("missing"), "it is said who has not confirmed\n{resumed}");
    let few = add("few", &seeds, &["--scope", "any", "--max-pages", "20"]);
    cluster.order(0, &few);
    let list = cluster.ask(0, &["crawl", "list"]);
    assert!(list.stdout.contains("missing") && list.stdout.contains("few"), "{list}");
    cluster.start_node(1);
    wait_until("the node that was away knows both crawls", || {
        let list = cluster.list(1).unwrap_or_default();
        let rows = list["crawls"].as_array().cloned().unwrap_or_default();
        let state =
            |name: &str| rows.iter().find(|row| row["name"] == name).map(|row| row["definition"]["state"].clone());
        state("news") == Some("running".into()) && state("few") == Some("running".into())
    });

    wait_until("everything is crawled", || cluster.is_done(1, "news"));
    assert_eq!(cluster.pages(1, "news"), expected);
    let reports = cluster.ask(0, &["--json", "nodes"]);
    let reports: Value = serde_json::from_str(&reports.stdout).unwrap();
    for node in reports["Nodes"].as_array().unwrap() {
        assert!(node["report"]["Ok"]["fetches"].as_u64() > Some(0), "every node fetches: {reports}");
    }
    wait_until("the limit is reached", || cluster.pages(2, "few") >= 20);
    std::thread::sleep(Duration::from_secs(3));
    let few = cluster.pages(2, "few");
    assert!((20..20 + NODES as u64).contains(&few), "{few} pages of 20, and at most one more for each other node");

    // Stopped for good, on every node, also after a restart.
    cluster.order(0, &["crawl", "stop", "few"]);
    cluster.ask(1, &["crawl", "resume", "few"]).complains(1, &["stopped", "add it again"]);
    cluster.kill_node(2);
    cluster.start_node(2);
    wait_until("the node knows it", || {
        cluster.crawl(2, "few").is_some_and(|row| row["definition"]["state"] == "stopped")
    });
    cluster.stop();

    // Both crawls ask the same hosts: together they keep their delay.
    let log = server.access_log();
    judge::assert_spaced(&log, |access| access.host.clone(), |_| DELAY_MS);
}

#[test]
fn a_cluster_crawls_for_the_command_line_and_goes_on_without_it() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (6, 20);
    let server = web(hosts, pages);
    let (expected, seeds) = (u64::from(hosts * pages), server.seeds());
    let mut cluster = Cluster::start(work.path());
    let rules = ["--scope", "any", "--delay", "200ms", "--name", "all"];
    let crawl = |flags: &[&str]| -> Vec<String> {
        let command = ["crawl", "--cluster", cluster.folder()];
        let all = command.iter().chain(flags).map(|text| (*text).to_owned());
        all.chain(seeds.iter().cloned()).collect()
    };
    run(&crawl(&["--user-agent", "me/1.0"]).iter().map(String::as_str).collect::<Vec<_>>())
        .complains(2, &["--user-agent", "settings of the nodes"]);

    wait_until("the cluster is at work", || cluster.list(0).is_some_and(|list| list["slots"] == 4096));
    // Whoever looks away leaves it running.
    let watched = Running::start(crawl(&rules), work.path(), "watched");
    wait_until("it runs", || cluster.pages(0, "all") > 5);
    watched.interrupt();
    let ended = watched.wait();
    assert_eq!(ended.code, Some(130), "{ended}");
    assert!(ended.stderr.contains("goes on in the cluster") && ended.stderr.contains("crawl stop all"), "{ended}");
    let so_far = cluster.pages(0, "all");
    wait_until("it goes on", || cluster.pages(0, "all") > so_far);

    // The same command follows it to its end.
    let ended = Running::start(crawl(&[&rules[..], &["--json"]].concat()), work.path(), "followed").wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    let summary = ended.summary();
    assert_eq!((&summary["ended"], &summary["pages"]), (&"complete".into(), &expected.into()), "{ended}");
    assert_eq!(summary["open"], 0);
    let requests = judge::page_requests(&server, &server.access_log());
    assert_eq!(requests.len() as u64, expected);
    assert!(requests.values().all(|count| *count == 1), "nothing was fetched twice: {requests:?}");

    // A seed that brings nothing says why; nothing is sent to an address that is not allowed.
    let refused = ["crawl", "--cluster", cluster.folder(), "http://10.0.0.1/", "--name", "private"];
    let ended = run(&refused);
    assert_eq!(ended.code, Some(0), "{ended}");
    for said in ["seed http://10.0.0.1/ failed: address_refused", "fetch.allow_addresses"] {
        assert!(ended.stdout.contains(said), "{said}\n{ended}");
    }
    cluster.stop();
}
