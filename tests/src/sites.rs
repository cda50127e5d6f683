//! Operations on sites, as the original's client asked for them, and nodes to ask.

use std::path::Path;

use serde_json::{Value, json};
use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};

use crate::fleet::SETTINGS;
use crate::program::{Ended, Running, run};
use crate::wait_until;

/// A synthetic web that answers at once.
pub fn web(hosts: u32, pages: u32) -> Server {
    let plan = WebPlan { delay_ms: 3, ..WebPlan::bench(17, hosts, pages) };
    Server::start(Web::new(plan)).expect("loopback addresses can be listened at")
}

/// Runs an operation as the original's client did; gives how it ended and its JSON.
pub fn dc(data: &str, command: &str, body: &Value, more: &[&str]) -> (Ended, Value) {
    let asks = |arguments: &[&str]| run(&[&["dc", "--data", data], arguments, more].concat());
    dc_by(&asks, command, body)
}

/// The same of whoever runs the program's command `dc` with these arguments.
pub fn dc_by(asks: &dyn Fn(&[&str]) -> Ended, command: &str, body: &Value) -> (Ended, Value) {
    let fields = body.to_string();
    let given: &[&str] = if body.is_array() { &[] } else { &["--fields", &fields] };
    let work = tempfile::tempdir().unwrap();
    let file = work.path().join("request.json");
    std::fs::write(&file, &fields).unwrap();
    let from_file: &[&str] = if body.is_array() { &["--file", file.to_str().unwrap()] } else { &[] };
    let ended = asks(&[&["--command", command], given, from_file].concat());
    let answer = serde_json::from_str(&ended.stdout).unwrap_or(Value::Null);
    (ended, answer)
}

/// The object of the only entry of an answer.
pub fn object(answer: &Value) -> &Value {
    assert_eq!(answer["itemsList"].as_array().map(Vec::len), Some(1), "{answer}");
    &answer["itemsList"][0]["itemObject"]
}

/// An operation that must succeed; its object.
pub fn done(data: &str, command: &str, body: &Value) -> Value {
    let (ended, answer) = dc(data, command, body, &[]);
    assert_eq!(ended.code, Some(0), "{command} {body}\n{ended}");
    object(&answer).clone()
}

/// An operation that must fail with this code and name the field; its statuses.
pub fn refused(data: &str, command: &str, body: &Value, code: u64, word: &str) -> Value {
    let (ended, answer) = dc(data, command, body, &[]);
    assert_eq!(ended.code, Some(1), "{command} {body}\n{ended}");
    let object = object(&answer);
    assert_eq!(object["errorCode"], code, "{command} {body}: {answer}");
    assert!(object["errorMessage"].as_str().unwrap().contains(word), "{command} {body}: {answer}");
    object["statuses"].clone()
}

/// A site as it is told; while a node does not answer its counts are missing.
pub fn site(data: &str, id: &str) -> Value {
    let (_, answer) = dc(data, "SITE_STATUS", &json!({"id": id}), &[]);
    answer["itemsList"][0]["itemObject"].clone() // null while nobody answers
}

/// Settings of a node that is its own cluster: those of a fleet, but for what a cluster says of itself.
pub fn settings_alone() -> String {
    let cluster = "[cluster.lease]\nduration_s = 8\nguard_ms = 200\n[cluster.membership]\nstable_for_ms = 2000\n";
    SETTINGS.replace(cluster, "")
}

/// A node alone, with leases that come soon.
pub fn node_alone(work: &Path) -> (Running, String) {
    let (data, config) = (work.join("data"), work.join("alone.toml"));
    std::fs::write(&config, settings_alone()).unwrap();
    let data = data.to_str().unwrap().to_owned();
    let arguments = ["node", "--data", &data, "--config", config.to_str().unwrap(), "--allow-address", "127.0.0.0/8"];
    let node = Running::start(arguments, work, "node");
    wait_until("the node listens", || node.stdout().contains("listens on"));
    (node, data)
}
