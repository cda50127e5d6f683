//! What operators do to a cluster of processes: look at actors, change settings, stop nodes, forget one that is gone, repair, back up and restore.

use std::path::Path;
use std::time::Duration;

use node::config::Config;
use node::edges::swarm::identity::Identity;
use node::edges::swarm::key::SwarmKey;
use serde_json::Value;
use tests::cluster::web;
use tests::fleet::Fleet;
use tests::program::{self, get, run};
use tests::{found, judge, wait_until};

const NODES: usize = 3;

/// A figure of an actor, as `ctl stat` tells it.
fn figure(said: &Value, actor: &str, name: &str) -> Option<u64> {
    let actors = said["Ok"]["Stat"].as_array()?;
    let one = actors.iter().find(|one| one["name"] == actor)?;
    let counted = || one["counters"].as_array()?.iter().find(|counter| counter[0] == name)?[1].as_u64();
    one[name].as_u64().or_else(counted)
}

/// A key that may only look, and a folder from which `ctl` uses it.
fn viewer(work: &Path) -> (String, String) {
    let folder = work.join("viewer");
    std::fs::create_dir(&folder).unwrap();
    let made = run(&["keygen", folder.join("viewer.key").to_str().unwrap()]);
    let peer = made.stdout.split_whitespace().find(|word| word.starts_with("12D3")).expect("a peer id").to_owned();
    (peer, folder.to_str().unwrap().to_owned())
}

/// Questions and harmless orders, and the code that each ends with when a node is missing.
fn questions(seed: &str) -> Vec<(i32, Vec<&str>)> {
    vec![
        (1, vec!["nodes"]),
        (1, vec!["status"]),
        (1, vec!["stat"]),
        (1, vec!["get", "fetch.concurrency"]),
        (1, vec!["set", "log=info"]),
        (1, vec!["repair", "--slot", "1"]),
        (0, vec!["ring"]),
        (0, vec!["ring", "--slot", "1"]),
        (0, vec!["ring", "--domain", "example.com"]),
        (0, vec!["crawl", "list"]),
        (0, vec!["url", "status", seed]),
        (0, vec!["url", "add", seed]),
        (0, vec!["job", "list"]),
    ]
}

/// Asks this node, and returns what it said; with `json`, every line of that must be JSON.
fn answered(fleet: &Fleet, node: usize, json: bool, code: i32, order: &[&str]) -> String {
    let arguments = if json { [&["--json"], order].concat() } else { order.to_vec() };
    let ended = fleet.ctl_through(node, &arguments);
    assert_eq!(ended.code, Some(code), "{order:?} through node {node}: {ended}");
    assert!(!ended.stdout.trim().is_empty(), "{order:?} through node {node}: {ended}");
    if json {
        for line in ended.stdout.lines() {
            assert!(serde_json::from_str::<Value>(line).is_ok(), "{order:?} through node {node}: {line}");
        }
    }
    ended.stdout
}

/// The life of a crawl, steered through this node.
fn steers(fleet: &Fleet, node: usize, json: bool, code: i32, seed: &str) {
    let name = format!("tried-{node}-{json}");
    for order in [
        &["crawl", "add", &name, seed][..],
        &["crawl", "pause", &name],
        &["crawl", "resume", &name],
        &["crawl", "stop", &name],
    ] {
        answered(fleet, node, json, code, order);
    }
}

#[test]
fn operators_see_and_steer_every_actor_through_any_node() {
    let work = tempfile::tempdir().unwrap();
    let server = web(12, 400);
    let (viewer, viewers) = viewer(work.path());
    let mut fleet = Fleet::start(work.path(), NODES, &format!("viewers = [\"{viewer}\"]"));
    fleet.submit(&server);

    // Figures of all actors of all nodes.
    wait_until("every node has fetched something", || {
        let parts = fleet.parts(&["stat"]);
        parts.len() == NODES && parts.iter().all(|(_, said)| figure(said, "fetcher", "fetches") > Some(0))
    });
    for (_, said) in fleet.parts(&["stat"]) {
        for actor in ["disk", "storage", "scorer", "parser", "fetcher", "router", "coordinator", "frontier", "network"]
        {
            assert_eq!(figure(&said, actor, "restarts"), Some(0), "{actor} in {said}");
        }
        assert_eq!(figure(&said, "fetcher", "capacity"), Some(80), "concurrency and what is spare");
        for actor in ["storage", "fetcher", "router", "coordinator", "frontier"] {
            assert!(figure(&said, actor, "handled") > Some(0), "{actor} in {said}");
            assert!(figure(&said, actor, "waiting") < Some(1_000), "{actor} in {said}");
        }
        assert!(figure(&said, "coordinator", "leases_acquired") > Some(0), "{said}");
        assert_eq!(figure(&said, "network", "nodes_connected"), Some(2), "{said}");
    }
    wait_until("leases are shown", || {
        let (_, metrics) = get(&fleet.door(0).expect("it was asked for"), "/metrics");
        let names: Vec<&str> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let twice: Vec<&&str> =
            names.iter().filter(|name| names.iter().filter(|other| other == name).count() > 1).collect();
        assert!(twice.is_empty(), "{twice:?} are there twice");
        let has = |start: &str| metrics.lines().any(|line| line.starts_with(start) && !line.ends_with(" 0"));
        has("orbweaver_leases_held ") && has("orbweaver_swarm_letters_in_total{") && has("orbweaver_cluster_alive 3")
    });
    let one = fleet.parts(&["stat", "fetcher,parser", "--node-id", &fleet.peer(1)]);
    assert_eq!((one.len(), one[0].0.clone()), (1, fleet.peer(1)));
    assert_eq!(figure(&one[0].1, "storage", "handled"), None, "only what was asked for");
    fleet.ctl(&["stat", "crawler"]).complains(1, &["no actor \"crawler\"", "coordinator", "fetcher"]);
    fleet.ctl(&["stat", "--node-id", "nobody"]).complains(1, &["no node is named"]);

    // Settings.
    fleet.ctl(&["get", "fetch.speed"]).complains(1, &["no setting \"fetch.speed\"", "fetch.concurrency"]);
    fleet.ctl(&["set", "fetch.concurrency=17"]).complains(1, &["0 to 16"]);
    fleet.ctl(&["set", "storage.cache_bytes=1"]).complains(1, &["start it again"]);
    fleet.ctl(&["set", "nothing"]).complains(2, &["fetch.concurrency=16"]);
    let set = fleet.ctl(&["set", "fetch.concurrency=0", "log=info"]);
    assert_eq!(set.code, Some(0), "{set}");
    wait_until("what was in flight is settled", || {
        let parts = fleet.parts(&["stat", "frontier"]);
        parts.len() == NODES && parts.iter().all(|(_, said)| figure(said, "frontier", "flights") == Some(0))
    });
    let fetched = || server.access_log().iter().filter(|access| !access.path.ends_with("robots.txt")).count();
    let before = fetched();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(fetched(), before, "nothing is handed out");
    for (_, said) in fleet.parts(&["get", "fetch.concurrency"]) {
        let setting = &said["Ok"]["Settings"][0];
        assert_eq!((setting["value"].as_str(), setting["configured"].as_str()), (Some("0"), Some("16")), "{said}");
    }

    // Who may only look.
    let access = std::fs::read_to_string(Path::new(fleet.folder()).join("ctl.toml")).unwrap();
    let key = Path::new(fleet.folder()).join("swarm.key");
    let access = access.replace("operator.key", "viewer.key").replace("swarm.key", key.to_str().unwrap());
    std::fs::write(Path::new(&viewers).join("ctl.toml"), access).unwrap();
    assert_eq!(run(&["ctl", "--data", &viewers, "stat"]).code, Some(0));
    assert_eq!(run(&["ctl", "--data", &viewers, "get"]).code, Some(0));
    let script = work.path().join("make.sh");
    std::fs::write(&script, "echo http://127.0.0.1:9/\n").unwrap();
    let script = script.to_str().unwrap();
    wait_until("there is a job", || fleet.ctl(&["job", "add", "news"]).code == Some(0));
    assert_eq!(run(&["ctl", "--data", &viewers, "job", "list"]).code, Some(0));
    let orders: [&[&str]; 12] = [
        &["set", "fetch.concurrency=16"],
        &["stop", "--all"],
        &["forget", "x"],
        &["backup", "/nowhere"],
        &["job", "add", "other"],
        &["job", "off", "news"],
        &["job", "delete", "news"],
        &["generator", "add", "news", script],
        &["generator", "run", "news"],
        &["generator", "set", "news", "x", "5"],
        &["generator", "import-tab", script],
        &["task", "add", "news", "http://127.0.0.1:9/"],
    ];
    for order in orders {
        run(&[&["ctl", "--data", &viewers], order].concat()).complains(1, &["a viewer may only look"]);
    }

    // Every command, through any node, for people and for programs.
    assert_eq!(fleet.ctl(&["set", "fetch.concurrency=16"]).code, Some(0));
    wait_until("it goes on", || fetched() > before);
    let seed = &server.seeds()[0];
    for node in 0..NODES {
        for json in [false, true] {
            for order in questions(seed).into_iter().map(|(_, order)| order) {
                answered(&fleet, node, json, 0, &order);
            }
            steers(&fleet, node, json, 0, seed);
            let backup = work.path().join(format!("backup-{node}-{json}"));
            let order = ["backup", backup.to_str().unwrap(), "--node-id", &fleet.peer((node + 1) % NODES)];
            answered(&fleet, node, json, 0, &order);
        }
    }

    // A node that is gone is named, and the others answer: with code 1 where its part is missing, with 0 where they know everything.
    fleet.kill_node(2);
    let gone = fleet.peer(2);
    wait_until("it is missed", || fleet.ctl(&["stat", "fetcher"]).code == Some(1));
    let stat = fleet.ctl(&["stat", "fetcher"]);
    assert_eq!(stat.stdout.matches("\nnode ").count() + usize::from(stat.stdout.starts_with("node ")), 2, "{stat}");
    for node in 0..2 {
        for json in [false, true] {
            for (code, order) in questions(seed) {
                let said = answered(&fleet, node, json, code, &order);
                let knows_all = ["ring", "job", "url add"].iter().any(|known| order.join(" ").starts_with(known));
                // A program is told who it is; people read why as well.
                let named = match json {
                    true => said.contains(&gone) || said.contains("not connected"),
                    false => ["missing: ", "not connected"].iter().any(|word| said.contains(word)),
                };
                assert!(named || knows_all, "{order:?} through node {node}: {said}");
            }
        }
    }
    let top = fleet.ctl(&["top", "--every", "1s"]);
    assert!(top.stdout.contains("2 of 3 nodes") && top.stdout.contains("missing: "), "{top}");
    let lines = fleet.ctl(&["--json", "top", "--every", "200ms", "--count", "2"]);
    let looks: Vec<Value> = lines.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((looks.len(), looks[1]["nodes"].as_array().map(Vec::len)), (2, Some(NODES)), "{lines}");

    // The end of nodes.
    fleet.ctl(&["stop"]).complains(2, &["--node-id", "--all"]);
    fleet.ctl(&["stop", "--all", "frontier"]).complains(1, &["cannot be stopped alone", "fetch.concurrency=0"]);
    let actors: Vec<String> = {
        let parts = fleet.parts(&["stat", "--node-id", &fleet.peer(0)]);
        let started = parts[0].1["Ok"]["Stat"].as_array().cloned().unwrap_or_default();
        let names = started.iter().filter_map(|one| one["name"].as_str().map(str::to_owned));
        names.filter(|name| !["disk", "network"].contains(&name.as_str())).collect()
    };
    assert!(actors.len() > 5, "{actors:?}");
    assert_eq!(fleet.ctl(&["set", "log=debug", "--node-id", &fleet.peer(0)]).code, Some(0));
    let stop = fleet.ctl(&["stop", "--node-id", &fleet.peer(0)]);
    assert_eq!(stop.code, Some(0), "{stop}");
    let ended = fleet.wait_for(0);
    assert_eq!(ended.code, Some(0), "{ended}");
    let told = ended.stderr.lines().filter(|line| line.contains("is told to end"));
    let actor = |line: &str| actors.iter().find(|name| line.contains(&format!("actor=\"{name}\""))).cloned();
    let mut told: Vec<String> = told.filter_map(actor).collect();
    told.reverse();
    assert_eq!(told, actors, "actors end in reverse order of their start");
    assert!(fleet.ctl(&["stop", "--all"]).stdout.contains("stops: "));
    assert_eq!(fleet.wait_for(1).code, Some(0));
    judge::assert_robots_first(&server.access_log());
}

#[test]
fn a_node_is_backed_up_wiped_restored_and_catches_up_and_one_that_is_gone_is_forgotten() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (12, 60);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    let mut fleet = Fleet::start(work.path(), NODES, "");
    fleet.submit(&server);
    let (gone, backup) = (fleet.peer(1), work.path().join("backup"));
    let backup = backup.to_str().unwrap();

    // A backup in the middle of a crawl.
    wait_until("the crawl got on", || fleet.totals().2 >= expected / 4);
    fleet.ctl(&["backup", "relative/path"]).complains(1, &["absolute path"]);
    let made = fleet.ctl(&["backup", backup, "--node-id", &gone, "--keys"]);
    assert_eq!(made.code, Some(0), "{made}");
    fleet.ctl(&["backup", backup, "--node-id", &gone]).complains(1, &["is not empty"]);
    let check = run(&["restore", backup, "--check"]);
    assert!(check.code == Some(0) && check.stdout.contains("whole"), "{check}");
    // The same through `ctl`, which asks no node for it.
    let check = run(&["ctl", "--json", "restore", backup, "--check"]);
    let facts: Value = serde_json::from_str(&check.stdout).unwrap_or_default();
    assert!(check.code == Some(0) && facts["whole"] == true && facts["files"].as_u64() > Some(1), "{check}");

    // The node is lost, forgotten, and the others finish.
    fleet.ctl(&["forget", &gone]).complains(1, &["it is alive here"]);
    fleet.kill_node(1);
    wait_until("the others have noticed", || fleet.ctl(&["forget", &gone]).code == Some(0));
    let owners = || {
        let ring = fleet.ask(&["ring"]);
        let rows = ring["Ring"].as_array().cloned().unwrap_or_default();
        (rows.len(), rows.iter().filter_map(|row| row["slots"].as_u64()).sum::<u64>())
    };
    wait_until("its slots have new owners", || owners() == (NODES - 1, 4_096));
    wait_until("two nodes finish the crawl", || fleet.totals() == (4_096, expected, expected));

    // It comes back from its backup and catches up.
    let data = fleet.data(1);
    let refused = run(&["restore", backup, "--data", data.to_str().unwrap()]);
    refused.complains(3, &["is not empty"]);
    std::fs::remove_dir_all(&data).unwrap();
    let restored = run(&["ctl", "restore", backup, "--data", data.to_str().unwrap()]);
    assert!(restored.code == Some(0) && restored.stdout.contains("--keys"), "{restored}");
    fleet.start_node(1);
    let mut repaired = Value::Null;
    wait_until("all replicas are equal", || {
        repaired = fleet.ask(&["repair"])["Repair"].clone();
        println!("repair: {repaired}");
        let equal = repaired["still"].as_array().is_some_and(Vec::is_empty);
        equal && repaired["nodes"] == NODES && fleet.totals() == (4_096, expected, expected)
    });
    wait_until("it has its place again", || {
        let ring = fleet.ask(&["ring"]);
        ring["Ring"].as_array().is_some_and(|rows| rows.len() == NODES)
    });
    let stat = fleet.parts(&["stat", "coordinator", "--node-id", &gone]);
    assert!(figure(&stat[0].1, "coordinator", "repair_merges") > Some(0), "it caught up by digests: {stat:?}");
    let slot = repaired["slots"].as_u64().expect("slots were compared");
    assert!(slot > 0 && repaired["missing"].as_array().is_some_and(Vec::is_empty), "{repaired}");
    fleet.ctl(&["repair", "--slot", "4096"]).complains(2, &["4096"]);
    assert_eq!(fleet.ctl(&["repair", "--slot", "7"]).code, Some(0));
    fleet.interrupt();

    fleet.assert_replicas_equal();
    let requests = judge::page_requests(&server, &server.access_log());
    assert_eq!(requests.len() as u64, expected, "every page was fetched");
    // What the restored node archived before its backup is there and can be read.
    let restored = found::captures(&found::records(&data)).len();
    assert!(restored > 0, "its archive came back");
}

#[test]
fn the_settings_that_the_deployment_files_make_are_valid() {
    let work = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/deploy/make-keys");
    let keys = work.path().join("keys");
    let make = || {
        let made =
            std::process::Command::new(&script).arg(&keys).env("ORBWEAVER", program::orbweaver()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    make();
    let first = std::fs::read_to_string(keys.join("node1/cluster.toml")).unwrap();
    make();
    assert_eq!(std::fs::read_to_string(keys.join("node1/cluster.toml")).unwrap(), first, "keys are made once");
    for node in ["node1", "node2", "node3"] {
        let config = Config::read(&keys.join(node).join("cluster.toml")).unwrap();
        let section = config.cluster.expect("a cluster");
        let cluster = section.understand(config.fetch.limits.fetch_timeout_ms).unwrap();
        assert!(cluster.warnings.is_empty(), "{:?}", cluster.warnings);
        let identity = Identity::load(&section.identity).unwrap();
        let rules = cluster.rules(&identity, 1).expect("each node is one of its peers");
        assert_eq!((rules.peers.len(), rules.voters.len()), (NODES - 1, NODES));
        assert!(SwarmKey::load(&section.swarm_key).is_ok());
    }
    let unreachable = run(&["ctl", "--data", keys.to_str().unwrap(), "nodes"]);
    unreachable.complains(1, &["no node can be reached"]);
}
