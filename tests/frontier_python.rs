//! A client of the URL Frontier API that is not ours: made at test time with grpcio-tools from our proto file, in Python. It makes all 19 calls: of one node, of each of three,
//! and of those that are left when one of the three is killed. The Python is `FRONTIER_PYTHON`, or the one that `make setup` prepared, or python3 if that has grpcio-tools.

use std::process::Command;

use tests::fleet::Fleet;
use tests::frontier_api::start;
use tests::python::python_with;
use tests::wait_until;

/// Has a client make every call of the server at `address`, which names so many nodes as one of `nodes`.
fn every_call(address: &str, crawl: &str, nodes: &[&str]) {
    let python = python_with("FRONTIER_PYTHON", "grpcio-", "import grpc_tools");
    let [script, proto] =
        ["frontier_client.py", "../proto"].map(|path| format!("{}/{path}", env!("CARGO_MANIFEST_DIR")));
    let server = address.strip_prefix("http://").unwrap();
    let output = Command::new(python).args([&script, &proto, server, crawl]).args(nodes).output();
    let output = output.expect("it could be asked before");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{crawl}: {stdout}\n{stderr}");
    assert!(stdout.contains("\"calls\": 19"), "{crawl}: {stdout}");
}

#[test]
fn a_python_client_made_from_our_proto_file_finds_what_the_api_promises() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    every_call(&address, "alone", &["1"]);
    assert!(running.kill());
}

#[test]
fn a_python_client_finds_the_same_at_each_of_three_nodes_and_with_one_of_them_killed() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let addresses: Vec<String> = (0..3).filter_map(|node| fleet.frontier(node)).collect();
    for (node, address) in addresses.iter().enumerate() {
        every_call(address, &format!("node-{node}"), &["3"]);
    }
    fleet.kill_node(2);
    // At once, when nobody has noticed, and once more.
    for (round, address) in addresses[..2].iter().enumerate() {
        every_call(address, &format!("killed-{round}"), &["2", "3"]);
    }
    fleet.interrupt();
}
