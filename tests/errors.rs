//! What goes wrong outside the crawler: each a clear message and the right exit code, and nothing lost.

use std::path::{Path, PathBuf};
use std::process::Command;

use simulation::world::server::Server;
use simulation::world::web::{Web, WebPlan};
use tests::found;
use tests::judge;
use tests::program::{Crawl, run};
use tests::raw::{RawServer, Reply};
use tests::wait_until;

const URL: &str = "http://127.0.0.1:9/";

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

#[test]
fn wrong_usage_is_said_and_nothing_is_started() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let cases: &[(&[&str], &[&str])] = &[
        (&["--no-such-flag"], &["--no-such-flag"]),
        (&["--max-time", "soon"], &["--max-time", "soon"]),
        (&["--max-bytes", "5 parsecs"], &["--max-bytes", "5 parsecs"]),
        (&["--max-pages", "0"], &["--max-pages"]),
        (&["--max-bytes", "0"], &["--max-bytes", "at least one byte"]),
        (&["--max-time", "0s"], &["--max-time", "more than nothing"]),
        (&["--recrawl", "500ms"], &["--recrawl", "at least 1s"]),
        (&["--concurrency", "0"], &["--concurrency"]),
        (&["--delay", "5"], &["--delay"]),
        (&["--allow-address", "127.0.0.0/99"], &["--allow-address", "127.0.0.0/99"]),
        (&["--resolve", "example.com=nowhere"], &["--resolve", "nowhere"]),
        (&["--resolve", "example.com:80=127.0.0.1"], &["--resolve", "example.com:80", "without port"]),
        (&["--resolve", "=127.0.0.1"], &["--resolve", "no host name"]),
        (&["--resolve", "a.test=127.0.0.1", "--resolve", "A.test=127.0.0.2"], &["--resolve", "twice"]),
        (&["--header", "X-A: 1", "--header", "x-a: 2"], &["--header", "x-a", "twice"]),
        (&["--scope", "galaxy"], &["--scope", "galaxy", "domain"]),
        (&["--include", "a("], &["a("]),
        (&["--exclude", "[z-a]"], &["[z-a]"]),
        (&["--header", "no colon"], &["--header", "no colon"]),
        (&["--http", "localhost"], &["--http"]),
        (&["--user-agent", "/1.0"], &["--user-agent", "user_agent"]),
        (&["not a url"], &["not a url"]),
        (&["example.com/a"], &["did you mean https://example.com/a"]),
        (&["--config", "/no/such/file"], &["/no/such/file"]),
    ];
    for (arguments, words) in cases {
        let ended = run(&[&["crawl", URL, "--data", text(&data)], *arguments].concat());
        ended.complains(2, words);
    }
    run(&["crawl"]).complains(2, &["no URL to begin with"]);
    run(&["sing"]).complains(2, &["sing"]);
    run(&["crawl", URL, "--data", text(&data), "--log", "="]).complains(2, &["--log"]);
    run(&["crawl", URL, "--data", text(&data), "--log", "nosuch"]).complains(2, &["--log", "nosuch", "debug"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    run(&["crawl", URL, "--data", text(&data), "--http", &address]).complains(2, &["cannot listen", &address]);
    assert!(!data.exists(), "nothing was started");
}

#[test]
fn help_and_version_are_no_errors() {
    assert_eq!(run(&["--version"]).code, Some(0));
    let help = run(&["crawl", "--help"]);
    assert_eq!(help.code, Some(0));
    for flag in ["--seeds", "--max-pages", "--allow-address", "Exit codes"] {
        assert!(help.stdout.contains(flag), "{flag}");
    }
}

#[test]
fn a_seed_file_that_cannot_be_read_is_named() {
    run(&["crawl", "--seeds", "/no/such/seeds.txt"]).complains(2, &["/no/such/seeds.txt", "No such file"]);
    run(&["crawl", "--seeds", "/"]).complains(2, &["seed file /", "directory"]);
}

#[test]
fn the_line_of_a_seed_file_that_is_no_url_is_named() {
    let work = tempfile::tempdir().unwrap();
    let seeds = work.path().join("seeds.txt");
    let lines: Vec<&str> = std::iter::repeat_n("https://example.org/", 16).chain(["http://[broken"]).collect();
    std::fs::write(&seeds, lines.join("\n")).unwrap();
    run(&["crawl", "--seeds", text(&seeds)]).complains(2, &[text(&seeds), "line 17", "http://[broken"]);
    std::fs::write(&seeds, [&b"https://example.org/\n\xff\xfe\n"[..]].concat()).unwrap();
    run(&["crawl", "--seeds", text(&seeds)]).complains(2, &["line 2", "UTF-8"]);
}

#[test]
fn seeds_can_come_from_a_file() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(5, 4, 3))).unwrap();
    let seeds = work.path().join("seeds.txt");
    std::fs::write(&seeds, format!("# four hosts\n{}\n\n", server.seeds().join("\r\n"))).unwrap();
    let none: [&str; 0] = [];
    let crawl = Crawl::from(&none, work.path()).with(&["--seeds", text(&seeds), "--delay", "0s"]);
    assert_eq!(crawl.finish().summary()["pages"], 12);
}

#[test]
fn an_unknown_setting_is_named_with_its_line() {
    let work = tempfile::tempdir().unwrap();
    let config = work.path().join("crawl.toml");
    std::fs::write(&config, "[fetch]\nconcurrency = 4\nconcurency = 5\n").unwrap();
    let ended = run(&["crawl", URL, "--config", text(&config)]);
    ended.complains(2, &[text(&config), "line 3", "concurency"]);
    std::fs::write(&config, "[fetch]\nconcurrency = \"many\"\n").unwrap();
    run(&["crawl", URL, "--config", text(&config)]).complains(2, &["line 2", "many"]);
    std::fs::write(&config, "[fetch]\nconcurrency = 0\n").unwrap();
    run(&["crawl", URL, "--config", text(&config)]).complains(2, &["fetch.concurrency"]);
}

#[test]
fn a_data_folder_in_use_is_not_touched_and_can_be_read() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan { delay_ms: 50, ..WebPlan::bench(6, 4, 100) })).unwrap();
    let crawl = Crawl::of(&server, work.path()).with(&["--concurrency", "2"]);
    let running = crawl.start();
    wait_until("there are pages", || server.requests_total() > 20);
    crawl.start().wait().complains(3, &["in use", text(&crawl.data())]);
    let rows = found::export(&crawl.data());
    assert!(!rows.is_empty(), "a crawl can be read while it runs");
    running.interrupt();
    assert_eq!(running.wait().code, Some(130), "the first is not disturbed");
    found::assert_recount(&crawl.data());
}

#[test]
fn a_data_folder_of_a_newer_version_is_refused_and_left_as_it_is() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(7, 1, 5))).unwrap();
    let crawl = Crawl::of(&server, work.path());
    crawl.finish();
    let format = crawl.data().join("FORMAT");
    let ours = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, "999\n").unwrap();
    crawl.start().wait().complains(3, &["999", text(&crawl.data())]);
    run(&["export", text(&crawl.data())]).complains(3, &["999"]);
    assert_eq!(std::fs::read_to_string(&format).unwrap(), "999\n");
    std::fs::write(&format, "one\n").unwrap();
    crawl.start().wait().complains(3, &["FORMAT"]);
    std::fs::write(&format, "1\n").unwrap();
    crawl.start().wait().complains(3, &["format 1", "another folder"]);
    std::fs::write(&format, ours).unwrap();
    assert_eq!(crawl.finish().summary()["pages"], 5);
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_and_the_crawl_is_kept() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(9, 1, 5))).unwrap();
    let crawl = Crawl::of(&server, work.path());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = crawl.start_into(full.into()).wait();
    ended.complains(1, &["cannot write to standard output", "No space left"]);
    assert_eq!(found::export_with(&crawl.data(), &["--only", "fetched"]).len(), 5);
}

#[test]
fn every_line_of_a_json_log_is_json() {
    let work = tempfile::tempdir().unwrap();
    let server = Server::start(Web::new(WebPlan::bench(10, 1, 5))).unwrap();
    let crawl = Crawl::of(&server, work.path()).without("--json");
    let ended = crawl.with(&["--log-format", "json", "--log", "info", "--http", "127.0.0.1:0"]).finish();
    let lines: Vec<serde_json::Value> = ended.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["target"] == "orbweaver::progress"), "{ended}");
    assert!(lines.iter().any(|line| line["fields"]["message"] == "node started"), "{ended}");
    let ended = run(&["crawl", "rubbish", "--log-format", "json"]);
    assert!(serde_json::from_str::<serde_json::Value>(ended.stderr.trim()).is_ok(), "{ended}");
}

#[test]
fn what_is_no_data_folder_is_said() {
    let work = tempfile::tempdir().unwrap();
    run(&["export", text(work.path())]).complains(3, &["holds no orbweaver data", text(work.path())]);
    run(&["export", "/no/such/folder"]).complains(3, &["/no/such/folder"]);
    let file = work.path().join("file");
    std::fs::write(&file, "x").unwrap();
    run(&["crawl", URL, "--data", text(&file)]).complains(3, &[text(&file)]);
}

#[test]
fn an_address_that_is_not_public_is_refused_unless_allowed() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|_| Reply::page(&["/a"]));
    let data = work.path().join("data");
    let by_name = server.named("inside.test", "/");
    let seeds = [server.url("/"), by_name.clone(), "http://169.254.169.254/latest/meta-data/".to_owned()];
    let resolve = ["--resolve", "inside.test=127.0.0.1"];
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let ended = run(&[&["crawl", "--json", "--delay", "0s", "--data", text(&data)], &seeds[..], &resolve].concat());
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(ended.summary()["by_error"]["address_refused"], 3, "{ended}");
    assert_eq!(server.access_log(), [], "no request reaches the server");
    let rows = found::export(&data);
    assert!(rows.values().all(|row| row["error"] == "address_refused"), "{rows:?}");
}

#[test]
fn a_redirect_does_not_lead_past_the_address_guard() {
    let work = tempfile::tempdir().unwrap();
    let inner = RawServer::start(|_| Reply::page(&["/a"]));
    let target = inner.named("inside.test", "/secret");
    let outer = RawServer::start(move |asked| match asked.path {
        "/robots.txt" => Reply::status(404),
        _ => Reply::redirect(target.clone()),
    });
    let allowed = format!("{}/32", outer.address().ip());
    // Another loopback address: only that of the outer server is allowed.
    let data = work.path().join("data");
    let arguments = ["--scope", "any", "--delay", "0s", "--resolve", "inside.test=127.0.0.2", "--json"];
    let seed = outer.url("/");
    let command = ["crawl", &seed, "--data", text(&data), "--allow-address", &allowed];
    let ended = run(&[&command[..], &arguments].concat());
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(ended.summary()["by_error"]["address_refused"], 1, "{ended}");
    assert_eq!(inner.access_log(), []);
}

/// A small file system of its own, unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` where the system does not let us mount.
    fn mount(at: &Path, mebibytes: u32) -> Option<SmallDisk> {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs", text(at)]).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then(|| SmallDisk(at.to_owned()))
    }

    fn grow(&self, mebibytes: u32) {
        let options = format!("remount,size={mebibytes}m");
        assert!(Command::new("mount").args(["-o", &options, text(&self.0)]).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_stops_the_crawl_and_with_more_space_it_goes_on_with_nothing_lost() {
    let work = tempfile::tempdir().unwrap();
    let at = work.path().join("data");
    let Some(disk) = SmallDisk::mount(&at, 24) else {
        println!("skipped: mounting a small tmpfs is refused here (it needs root and CAP_SYS_ADMIN)");
        return;
    };
    // Some 50 MB of WARC records.
    let plan = WebPlan { page_bytes: 96 << 10, ..WebPlan::bench(8, 20, 60) };
    let server = Server::start(Web::new(plan)).unwrap();
    let crawl = Crawl::of(&server, work.path()).with(&["--concurrency", "16"]);
    let ended = crawl.start().wait();
    ended.complains(1, &["full", "nothing was lost"]);

    let settled = found::export_with(&crawl.data(), &["--only", "fetched"]);
    assert!(settled.len() > 50, "{}", settled.len());
    for row in settled.values() {
        found::assert_archived(&crawl.data(), row, server.web());
    }
    found::assert_recount(&crawl.data());
    let requested = judge::page_requests(&server, &server.access_log()).len();
    assert!(requested <= settled.len() + 16, "{requested} requested, {} settled", settled.len());

    crawl.start().wait().complains(1, &["full"]);
    disk.grow(300);
    let first = server.access_log().len();
    let summary = crawl.finish().summary();
    assert_eq!((&summary["ended"], &summary["pages"]), (&"complete".into(), &1_200.into()));
    let again = judge::page_requests(&server, &server.access_log()[first..]);
    let twice: Vec<&String> = again.keys().filter(|url| settled.contains_key(*url)).collect();
    assert!(twice.is_empty(), "settled before and fetched again: {twice:?}");
    found::assert_summary(&summary, &crawl.data());
    let rows = found::export(&crawl.data());
    for row in rows.values() {
        found::assert_archived(&crawl.data(), row, server.web());
    }
    found::records(&crawl.data());
}
