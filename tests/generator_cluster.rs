//! Generators in a cluster of three: whatever falls due is run by one node and once, also after a node was killed, and also if the node whose job it is runs no scripts;
//! and what they make is fetched once.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use tests::fleet::Fleet;
use tests::raw::{RawServer, Reply};
use tests::wait_until;

const JOBS: usize = 8;

fn id_of(fleet: &Fleet, name: &str) -> Option<String> {
    fleet.ask(&["job", "list", name])[0]["_id"].as_str().map(str::to_owned)
}

fn runs(fleet: &Fleet, job: &str) -> Option<usize> {
    fleet.ask(&["log", job, "--kind", "generator"]).as_array().map(Vec::len)
}

/// The same, from a cluster that may be asked again.
fn runs_told(fleet: &Fleet, job: &str) -> usize {
    let mut told = None;
    wait_until("the log is told", || {
        told = runs(fleet, job);
        told.is_some()
    });
    told.unwrap_or_default()
}

/// Makes all entries due at once: a tab file says that they last ran long ago. Says how often it had to: an order that was not answered may have been followed.
fn make_due(fleet: &Fleet, work: &std::path::Path, ids: &[String]) -> usize {
    let line = |id: &String| format!("0 0 1 1 * GeneratorDispatch('{id}').run() @1600000000\n");
    let tab = work.join("tab");
    std::fs::write(&tab, ids.iter().map(line).collect::<String>()).unwrap();
    let mut orders = 0;
    wait_until("the tab file is read", || {
        orders += 1;
        fleet.ctl(&["generator", "import-tab", tab.to_str().unwrap(), "--json"]).code == Some(0)
    });
    orders
}

#[test]
fn one_node_runs_what_is_due_and_no_task_is_lost_or_doubled() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/robots.txt" | "/gone" => Reply::status(404),
        _ => Reply::page(&[] as &[&str]),
    });
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("the cluster takes a job", || fleet.ctl(&["job", "add", "job0"]).code == Some(0));
    for number in 0..JOBS {
        let name = format!("job{number}");
        wait_until("the job is there", || {
            id_of(&fleet, &name).is_some()
                || (fleet.ctl(&["job", "add", &name]).code.is_some() && id_of(&fleet, &name).is_some())
        });
        let script = work.path().join(format!("{name}.sh"));
        std::fs::write(&script, format!("echo {}/{name}-$(date +%s%N)\necho {0}/{name}-again\n", server.url("")))
            .unwrap();
        let add = ["generator", "add", &name, script.to_str().unwrap(), "--cron", "0 0 1 1 *"];
        wait_until("the generator is kept", || fleet.ctl(&add).code == Some(0));
    }
    let (with, gone) = (server.url("/with"), server.url("/gone"));
    let args = r#"{"headers": {"X-Key": "k7"}, "cookies": {"a": "1", "b": "2"}}"#;
    wait_until("a task with arguments is kept", || {
        fleet.ctl(&["task", "add", "job0", &with, "--args", args]).code == Some(0)
    });
    wait_until("another task is kept", || fleet.ctl(&["task", "add", "job0", &gone]).code == Some(0));
    let names: Vec<String> = (0..JOBS).map(|number| format!("job{number}")).collect();
    let ids: Vec<String> = names.iter().map(|name| id_of(&fleet, name).unwrap()).collect();
    make_due(&fleet, work.path(), &ids);
    wait_until("all have run", || names.iter().all(|name| runs(&fleet, name).is_some_and(|runs| runs >= 1)));

    fleet.kill_node(1);
    wait_until("the others answer", || id_of(&fleet, "job0").is_some());
    make_due(&fleet, work.path(), &ids);
    wait_until("all have run again", || names.iter().all(|name| runs(&fleet, name).is_some_and(|runs| runs >= 2)));
    fleet.start_node(1);

    // Two runs made two different URIs, and the same one twice, which counts once.
    let expected = JOBS * 3 + 2;
    wait_until("every task is fetched", || server.pages().len() >= expected);
    let head = server.head_of("/with").expect("it was fetched").to_ascii_lowercase();
    assert!(head.contains("x-key: k7\r\n") && head.contains("cookie: a=1; b=2\r\n"), "{head}");
    let plain = server.head_of("/job1-again").expect("it was fetched").to_ascii_lowercase();
    assert!(!plain.contains("x-key") && !plain.contains("cookie"), "{plain}");
    wait_until("every task is done", || {
        names.iter().all(|name| {
            let tasks = fleet.ask(&["task", "list", name]);
            let count = if name == "job0" { 5 } else { 3 };
            let failed = |task: &Value| task["uri"] == gone.as_str();
            let done = |task: &Value| task["status"] == if failed(task) { 3 } else { 6 };
            tasks.as_array().is_some_and(|tasks| tasks.len() == count && tasks.iter().all(done))
        })
    });
    for name in &names {
        assert_eq!(runs(&fleet, name), Some(2), "{name} ran once each time it was due");
        let rows: Value = fleet.ask(&["log", name, "--kind", "cron"]);
        assert_eq!(rows.as_array().map(Vec::len), Some(2), "{name} was dispatched once each time: {rows}");
    }
    let pages = server.pages();
    let distinct: BTreeSet<&String> = pages.iter().collect();
    assert_eq!((pages.len(), distinct.len()), (expected, expected), "each was fetched once");
    fleet.interrupt();
}

/// What the executions of a job printed, without the host.
fn printed(fleet: &Fleet, job: &str) -> Vec<String> {
    let mut tasks = Value::Null;
    wait_until("the tasks are told", || {
        tasks = fleet.ask(&["task", "list", job]);
        tasks.is_array()
    });
    let uris = tasks.as_array().into_iter().flatten();
    uris.filter_map(|task| Some(task["uri"].as_str()?.rsplit('/').next()?.to_owned())).collect()
}

/// The number in the fleet of a node by its name.
fn number_of(fleet: &Fleet, name: &str) -> usize {
    let mut peer = None;
    wait_until("the nodes are told", || {
        let told = fleet.ask(&["nodes"]);
        let is_it = |node: &&Value| node["node"].as_u64().is_some_and(|node| format!("{node:016x}") == name);
        peer = told["Nodes"].as_array().and_then(|nodes| nodes.iter().find(is_it)?["peer"].as_str().map(str::to_owned));
        peer.is_some()
    });
    (0..3).find(|number| Some(fleet.peer(*number)) == peer).expect("a node of the fleet")
}

/// Adds a job with a shell script, and gives its id, by which it is called from then on: an order that was not answered may have made another of that name.
fn add(fleet: &Fleet, work: &Path, name: &str, code: &str) -> String {
    let mut id = None;
    wait_until("the job is made", || {
        id = fleet.ask(&["job", "add", name])["_id"].as_str().map(str::to_owned);
        id.is_some()
    });
    let id = id.unwrap_or_default();
    let script = work.join(format!("{name}.sh"));
    std::fs::write(&script, code).unwrap();
    let add = ["generator", "add", &id, script.to_str().unwrap(), "--cron", "0 0 1 1 *"];
    wait_until("the generator is kept", || fleet.ctl(&add).code == Some(0));
    id
}

#[test]
fn a_node_that_runs_no_scripts_has_another_one_execute_them() {
    let work = tempfile::tempdir().unwrap();
    // The folder of a script is named after the node that executes it. Nothing is fetched: the host of the URIs is nowhere.
    let quick = "echo http://127.0.0.1:9/$(basename $(dirname $PWD))-$(date +%s%N)\n";
    let mut fleet = Fleet::start(work.path(), 3, "[sources]\nscripts_max = 0");
    let mut ids = vec![add(&fleet, work.path(), "job0", quick)];
    let mut orders = make_due(&fleet, work.path(), &ids);
    wait_until("it is told that nobody runs scripts", || {
        let rows = fleet.ask(&["log", &ids[0], "--kind", "alert"]);
        rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["name"] == "NOBODY_EXECUTES"))
    });
    assert_eq!(runs_told(&fleet, &ids[0]), 0);

    // The last node may run scripts from now on.
    fleet.kill_node(2);
    let config = work.path().join("cluster/node-3/cluster.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    assert_eq!(text.matches("scripts_max = 0").count(), 1);
    std::fs::write(&config, text.replace("scripts_max = 0", "scripts_max = 2")).unwrap();
    fleet.start_node(2);
    for number in 1..JOBS {
        ids.push(add(&fleet, work.path(), &format!("job{number}"), quick));
    }
    wait_until("what waited is run", || runs(&fleet, &ids[0]).is_some_and(|runs| runs >= 1));
    orders = orders.max(make_due(&fleet, work.path(), &ids[1..]));
    wait_until("all have run", || ids.iter().all(|id| runs(&fleet, id).is_some_and(|runs| runs >= 1)));
    let mut executed_by = BTreeSet::new();
    for id in &ids {
        let (runs, printed) = (runs_told(&fleet, id), printed(&fleet, id));
        assert!((1..=orders).contains(&runs), "{id} ran {runs} times, and was made due {orders} times");
        assert_eq!(printed.len(), runs, "{id} was executed once for each run: {printed:?}");
        executed_by.extend(printed[0].rsplit_once('-').map(|(node, _)| node.to_owned()));
    }
    assert_eq!(executed_by.len(), 1, "one node runs scripts: {executed_by:?}");

    // One that a node holds which runs none: two of three nodes do, so there is one soon. Whoever dies while it is executed, it is executed again, and the run counts once.
    let guest = executed_by.pop_first().unwrap();
    let folder = std::env::temp_dir().join(&guest);
    let slow = "sleep 5\necho http://127.0.0.1:9/slow-$(date +%s%N)\n";
    for dies in ["guest", "holder"] {
        let (mut holder, mut orders) = (String::new(), 0);
        let lent = (0..30).map(|number| add(&fleet, work.path(), &format!("{dies}{number}"), slow)).find(|id| {
            let mut ran = Value::Null;
            orders = 0;
            wait_until("it is run by hand", || {
                orders += 1;
                ran = fleet.ask(&["generator", "run", id]);
                ran["node"].is_string()
            });
            ran["node"].as_str().unwrap().clone_into(&mut holder);
            !guest.ends_with(&holder)
        });
        let lent = lent.expect("a job whose holder runs no scripts");
        wait_until("the guest executes it", || std::fs::read_dir(&folder).is_ok_and(|runs| runs.count() > 0));
        let dead = if dies == "guest" { 2 } else { number_of(&fleet, &holder) };
        fleet.kill_node(dead);
        fleet.start_node(dead);
        wait_until("it has run", || runs(&fleet, &lent).is_some_and(|runs| runs >= 1));
        let (runs, printed) = (runs_told(&fleet, &lent), printed(&fleet, &lent));
        assert!((1..=orders).contains(&runs), "the {dies} died: {runs} runs, {orders} orders");
        assert_eq!(printed.len(), runs, "the {dies} died: it was taken in once for each run: {printed:?}");
    }
    fleet.interrupt();
}
