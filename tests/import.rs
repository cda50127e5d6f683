//! Lists of URIs, handed in to a node that runs: what is taken, what is refused and why.

use std::path::Path;

use serde_json::Value;
use tests::program::{Ended, Running, run};
use tests::wait_until;

const URIS: usize = 2_500;

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

fn import(data: &Path, more: &[&str]) -> Ended {
    run(&[&["ctl", "--data", text(data), "import"], more].concat())
}

#[test]
fn a_list_is_taken_and_every_refusal_is_told_with_its_line_and_reason() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let node = Running::start(["node", "--data", text(&data)], work.path(), "node");
    wait_until("the node answers", || run(&["ctl", "--data", text(&data), "nodes"]).code == Some(0));

    let list = work.path().join("list.csv");
    let mut lines: Vec<String> = (0..URIS).map(|n| format!("http://host{}.example/{n}?a=1,2", n % 50)).collect();
    lines.insert(0, "http://host0.example/0?a=1,2;http://host0.example/second".into());
    lines.push("no uri".into());
    lines.push(format!("http://host0.example/{}", "x".repeat(8_000)));
    lines.push("http://HOST7.example:80/7?a=1,2".into());
    std::fs::write(&list, lines.join("\r\n")).unwrap();
    let errors = work.path().join("errors.jsonl");
    let ended = import(&data, &[text(&list), "--errors", text(&errors), "--json"]);
    assert_eq!(ended.code, Some(1), "some were refused\n{ended}");
    let report: Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!((&report["kept"], &report["refused"]), (&Value::from(URIS + 1), &Value::from(4)), "{report}");
    let refused = std::fs::read_to_string(&errors).unwrap();
    let refused: Vec<Value> = refused.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let places: Vec<(u64, bool)> = refused
        .iter()
        .map(|one| (one["line"].as_u64().unwrap(), one["reason"].as_str().unwrap().contains("before")))
        .collect();
    let last = URIS as u64;
    assert_eq!(places, [(2, true), (last + 2, false), (last + 3, false), (last + 4, true)], "{refused:?}");

    wait_until("the node has them all", || {
        let known = run(&["ctl", "--data", text(&data), "nodes", "--json"]);
        known.stdout.contains(&format!("\"records\":{}", URIS + 1))
    });

    for (name, content, words) in [
        ("list.docx", "PK\u{3}\u{4}", &["list.docx", "CSV or TXT"][..]),
        ("make.js", "http://a.example/", &["make.js", "a program"]),
        ("make.py", "print(1)", &["is a script", "python3"]),
        ("row.txt", "http://a.example/,http://b.example/", &["commas", "one a line"]),
    ] {
        let path = work.path().join(name);
        std::fs::write(&path, content).unwrap();
        import(&data, &[text(&path)]).complains(2, words);
    }
    import(&data, &["/no/such/list.txt"]).complains(2, &["/no/such/list.txt", "No such file"]);
    import(&data, &[text(&list), "--crawl", "nobody defined it"])
        .complains(1, &["nobody defined it", "0 URIs before are kept"]);
    node.interrupt();
    let ended = node.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
}
