//! `orbweaver frontier` against a node, as a person uses it: files in and out, JSON, exit codes, and a door that wants a token.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tests::program::{Ended, Running, run};
use tests::wait_until;

fn start(work: &Path, arguments: &[&str], name: &str) -> (Running, String) {
    let running = Running::start([&["node"], arguments, &["--frontier", "127.0.0.1:0"]].concat(), work, name);
    let address = || running.stderr().lines().find_map(|line| line.strip_prefix("frontier: ").map(str::to_owned));
    wait_until("the door is open", || address().is_some());
    let server = format!("http://{}", address().unwrap());
    (running, server)
}

fn frontier(server: &str, arguments: &[&str]) -> Ended {
    run(&[&["frontier", "--server", server], arguments].concat())
}

fn good(server: &str, arguments: &[&str]) -> String {
    let ended = frontier(server, arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended}");
    ended.stdout
}

fn json(server: &str, arguments: &[&str]) -> Value {
    serde_json::from_str(&good(server, &[&["--json"], arguments].concat())).expect("--json prints JSON")
}

#[test]
fn files_go_in_and_out_and_every_command_says_what_it_did() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    let (running, server) = start(work.path(), &["--data", &path("data")], "node");
    // Plain lines and JSON, packed; a line that is nothing is named and the rest is taken.
    let mut file = GzEncoder::new(std::fs::File::create(path("in.txt.gz")).unwrap(), Compression::default());
    for number in 0..30 {
        writeln!(file, "http://h{}.example/{number}", number % 3).unwrap();
    }
    writeln!(file, r#"{{"known":{{"info":{{"url":"http://k.example/","crawlID":"news","metadata":{{"a":{{"values":["1"]}}}}}},"refetchableFromDate":"1999999999"}}}}"#).unwrap();
    writeln!(file, "{{nonsense").unwrap();
    file.finish().unwrap();
    let put = frontier(&server, &["put", "--file", &path("in.txt.gz"), "--crawl", "news"]);
    assert_eq!(put.code, Some(1), "{put}");
    assert!(put.stdout.contains("31 kept") && put.stderr.contains("line 32"), "{put}");
    std::fs::write(path("more.txt"), "http://h0.example/0\nhttp://h9.example/new\n").unwrap();
    assert!(
        good(&server, &["put", "--file", &path("more.txt"), "--crawl", "news", "--batch", "256"])
            .contains("1 kept, 1 skipped")
    );
    let stats = json(&server, &["stats", "--crawl", "news"]);
    assert_eq!((&stats["size"], &stats["numberOfQueues"]), (&Value::from(32), &Value::from(5)));
    // Out, forgotten, and in again: the same.
    assert!(good(&server, &["dump", "--file", &path("out.jsonl.gz")]).contains("32 URLs"));
    assert!(good(&server, &["delete-crawl", "news"]).contains("32 URLs"));
    assert_eq!(good(&server, &["crawls"]), "");
    assert!(good(&server, &["restore", "--file", &path("out.jsonl.gz")]).contains("32 kept"));
    let item = json(&server, &["status", "http://k.example/", "--crawl", "news"]);
    assert_eq!(item["known"]["refetchableFromDate"], "1999999999");
    assert_eq!(item["known"]["info"]["metadata"]["a"]["values"][0], "1");
    // The rest.
    good(&server, &["delay", "--seconds", "0"]);
    good(&server, &["block", "h0.example", "--crawl", "news", "--until", "1999999999"]);
    good(&server, &["limit", "h1.example", "--crawl", "news", "--urls", "7"]);
    assert_eq!(good(&server, &["get", "--crawl", "news", "--queues", "0", "--urls", "2"]).lines().count(), 5);
    assert_eq!(good(&server, &["queues", "--crawl", "news"]).lines().count(), 4);
    assert_eq!(good(&server, &["list", "--crawl", "news", "--filter", "H2.", "--ignore-case"]).lines().count(), 10);
    assert!(good(&server, &["count", "--crawl", "news", "--filter", "h2."]).contains("10 URLs"));
    good(&server, &["active", "false"]);
    assert!(good(&server, &["active"]).contains("paused"));
    good(&server, &["active", "true"]);
    assert!(good(&server, &["delete-queue", "h2.example", "--crawl", "news"]).contains("10 URLs"));
    assert!(good(&server, &["purge", "--crawl", "news", "--days", "0"]).contains("22 URLs"));
    assert_eq!(good(&server, &["nodes"]).lines().count(), 1);
    good(&server, &["log-level", "node", "warn"]);
    // What cannot be is said.
    frontier(&server, &["status", "http://nowhere.example/"]).complains(1, &["NotFound"]);
    frontier(&server, &["limit", "nobody", "--urls", "1"]).complains(1, &["no queue"]);
    frontier(&server, &["put", "--file", &path("missing")]).complains(2, &["cannot read"]);
    frontier("http://127.0.0.1:1", &["stats"]).complains(1, &["cannot reach"]);
    assert!(running.kill());
}

#[test]
fn a_door_that_wants_a_token_opens_to_nobody_else() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("token"), "open sesame\n").unwrap();
    std::fs::write(path("wrong"), "open barley\n").unwrap();
    let config = format!(
        "[filter]\nscope = \"any\"\n[storage]\ndata = {:?}\n[url_frontier]\ntoken_file = \"token\"\n",
        path("data")
    );
    std::fs::write(path("node.toml"), config).unwrap();
    let (running, server) = start(work.path(), &["--config", &path("node.toml")], "node");
    frontier(&server, &["stats"]).complains(1, &["Unauthenticated", "token"]);
    frontier(&server, &["--token-file", &path("wrong"), "stats"]).complains(1, &["Unauthenticated"]);
    good(&server, &["--token-file", &path("token"), "stats"]);
    assert!(running.kill());
    // Nor does one open that others can reach, unless it is guarded or says that it is not.
    let reachable = run(&["node", "--data", &path("other"), "--frontier", "0.0.0.0:0"]);
    reachable.complains(2, &["url_frontier.listen", "unprotected"]);
}
