//! Seeing what a node does: metrics, health, logs, progress.

use serde_json::Value;
use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};
use tests::program::{Crawl, get};
use tests::wait_until;

/// The value of a metric without labels.
fn metric(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn metrics_and_health_are_served_while_a_crawl_runs() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan { delay_ms: 30, ..WebPlan::bench(41, 4, 200) })).unwrap();
    let crawl = Crawl::of(&server, work.path()).without("--json");
    let running = crawl.with(&["--http", "127.0.0.1:0", "--concurrency", "4"]).start();
    let door = || {
        let stderr = running.stderr();
        let line = stderr.lines().find_map(|line| line.strip_prefix("metrics: http://"))?.to_owned();
        line.strip_suffix("/metrics").map(str::to_owned)
    };
    wait_until("the door is named", || door().is_some());
    let address = door().unwrap();
    let (head, body) = get(&address, "/healthz");
    assert!(head.starts_with("HTTP/1.1 200") && body.contains("ok"), "{head}\n{body}");
    wait_until("pages are counted", || {
        let (_, body) = get(&address, "/metrics");
        metric(&body, "orbweaver_fetches_total").is_some_and(|fetches| fetches > 20.0)
            && metric(&body, "orbweaver_known_urls").is_some_and(|known| known > 20.0)
    });
    let (head, body) = get(&address, "/metrics");
    assert!(head.to_ascii_lowercase().contains("content-type: application/openmetrics-text"), "{head}");
    assert!(body.trim_end().ends_with("# EOF"), "OpenMetrics ends with # EOF");
    for name in ["orbweaver_fetches", "orbweaver_robots_fetches", "orbweaver_flights", "orbweaver_parse_seconds"] {
        assert!(body.contains(&format!("# TYPE {name} ")), "{name} in\n{body}");
    }
    assert!(body.contains("orbweaver_outcomes_total{outcome=\"stored\"}"), "{body}");
    assert_eq!(metric(&body, "orbweaver_robots_fetches_total"), Some(4.0));
    assert!(get(&address, "/no-such-page").0.starts_with("HTTP/1.1 404"));
    running.interrupt();
    assert_eq!(running.wait().code, Some(130));
}

#[test]
fn a_door_that_cannot_be_opened_is_named() {
    let work = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = Crawl::from(&["http://127.0.0.1:9/"], work.path()).with(&["--http", &address]).start().wait();
    ended.complains(2, &[&address, "cannot listen"]);
}

#[test]
fn logs_as_json_are_json_line_by_line() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(42, 3, 10))).unwrap();
    let ended = Crawl::of(&server, work.path()).with(&["--log-format", "json", "--log", "debug"]).finish();
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines: Vec<Value> = ended.stderr.lines().map(parse).collect();
    assert!(lines.len() > 10, "{}", ended.stderr);
    for line in &lines {
        assert!(line["level"].is_string() && line["timestamp"].is_string() && line["target"].is_string(), "{line}");
    }
    assert!(lines.iter().any(|line| line["fields"]["message"] == "node started"));
    assert!(lines.iter().any(|line| line["fields"]["message"] == "batch handed out"));
}

#[test]
fn logs_as_text_have_no_colours_in_a_file() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(45, 2, 5))).unwrap();
    let ended = Crawl::of(&server, work.path()).with(&["--log", "info"]).finish();
    assert!(ended.stderr.contains("INFO") && ended.stderr.contains("node started"), "{ended}");
    assert!(!ended.stderr.contains('\u{1b}'), "no escape codes: {:?}", ended.stderr);
    assert!(!ended.stderr.contains("WARN"), "nothing to warn of, not even when it stops: {ended}");
}

#[test]
fn without_a_terminal_progress_is_plain_lines_and_a_summary_follows() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(43, 3, 10))).unwrap();
    let ended = Crawl::of(&server, work.path()).without("--json").finish();
    let progress = ended.stderr.lines().find(|line| line.contains("queued")).expect("a line of progress");
    for part in ["pages", "/s", "queued", "hosts active", "errors"] {
        assert!(progress.contains(part), "{part} in {progress}");
    }
    assert!(!ended.stderr.contains('\u{1b}'), "no escape codes: {:?}", ended.stderr);
    for part in ["30 pages", "everything in scope was crawled", "status", "200", "text/html", "host", "results:"] {
        assert!(ended.stdout.contains(part), "{part} in\n{}", ended.stdout);
    }
}

#[test]
fn progress_as_json_goes_to_standard_output() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(44, 3, 10))).unwrap();
    let ended = Crawl::of(&server, work.path()).with(&["--max-pages", "20"]).finish();
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines: Vec<Value> = ended.stdout.lines().map(parse).collect();
    assert_eq!(lines.first().map(|line| &line["type"]), Some(&"progress".into()), "{ended}");
    assert_eq!(lines.last().map(|line| &line["type"]), Some(&"summary".into()), "{ended}");
    for field in ["pages", "pages_per_second", "bytes", "queued", "hosts_active", "errors", "elapsed_s", "eta_s"] {
        assert!(lines[0].get(field).is_some(), "{field} in {}", lines[0]);
    }
    assert_eq!(ended.stderr, "", "nothing to complain of");
}
