//! A client of the URL Frontier API that is not ours: made at test time with grpcio-tools from our proto file, in Python.
//! The Python is `FRONTIER_PYTHON`, or the one that `make setup` prepared, or python3 if that has grpcio-tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use tests::program::Running;
use tests::wait_until;

/// A Python that has grpcio-tools.
fn frontier_python() -> PathBuf {
    let mut candidates: Vec<PathBuf> = std::env::var_os("FRONTIER_PYTHON").map(PathBuf::from).into_iter().collect();
    let cache = std::env::var_os("ORBWEAVER_CACHE").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/orbweaver"));
    let prepared = cache.or_else(home).and_then(|cache| std::fs::read_dir(cache).ok()).into_iter().flatten().flatten();
    let prepared = prepared.filter(|entry| entry.file_name().to_string_lossy().starts_with("grpcio-"));
    candidates.extend(prepared.map(|entry| entry.path().join("bin/python")));
    candidates.push("python3".into());
    let has_tools = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import grpc_tools"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    };
    let found = candidates.iter().find(|python| has_tools(python));
    found.cloned().unwrap_or_else(|| {
        panic!("no Python with grpcio-tools among {candidates:?}: run `make setup`, or name one with FRONTIER_PYTHON")
    })
}

#[test]
fn a_python_client_made_from_our_proto_file_finds_what_the_api_promises() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let arguments = ["node", "--data", data.to_str().unwrap(), "--frontier", "127.0.0.1:0"];
    let running = Running::start(arguments, work.path(), "node");
    let address = || running.stderr().lines().find_map(|line| line.strip_prefix("frontier: ").map(str::to_owned));
    wait_until("the door is open", || address().is_some());
    let [script, proto] =
        ["frontier_client.py", "../proto"].map(|path| format!("{}/{path}", env!("CARGO_MANIFEST_DIR")));
    let output = Command::new(frontier_python()).args([script, proto, address().unwrap()]).output();
    let output = output.expect("it could be asked before");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("\"calls\": 19"), "{stdout}");
    assert!(running.kill());
}
