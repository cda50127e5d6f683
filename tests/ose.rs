//! `orbweaver ose` as a user has it: real requests, real folders, `kill -9` again and again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tests::program::{Crawl, Ended, Running, run};
use tests::raw::{Asked, RawServer, Reply};

const PAGES: usize = 12;

/// Twelve pages, each with a link to the next two, and one that robots.txt forbids.
fn site(asked: &Asked<'_>) -> Reply {
    match asked.path {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /secret"),
        "/" => Reply::page(&["/1", "2", "/secret", "http://elsewhere.example/", "mailto:a@b.c"]),
        path => match path[1..].parse::<usize>() {
            Ok(n) if n < PAGES => Reply::page(&[format!("/{}", n + 1), format!("{}", n + 2)]),
            _ => Reply::status(404),
        },
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

fn arguments(folder: &Path) -> Vec<String> {
    let fixed = ["ose", "run", text(folder), "--wait", "0s-0s", "--allow-address", "127.0.0.0/8", "--json"];
    fixed.map(str::to_owned).to_vec()
}

fn cycle(folder: &Path) -> Ended {
    let arguments = arguments(folder);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(&arguments)
}

/// Runs cycles until a whole one finds nothing to do.
fn to_the_end(folder: &Path) {
    for _ in 0..2 * PAGES {
        let ended = cycle(folder);
        assert_eq!(ended.code, Some(0), "{ended}");
        let report: serde_json::Value = serde_json::from_str(ended.stdout.trim()).unwrap();
        let nothing_asked = report["fetch"]["answered"] == 0 && report["fetch"]["recovered"] == 0;
        if nothing_asked && report["merge"]["added"] == 0 {
            return;
        }
    }
    panic!("{PAGES} pages take no more cycles");
}

/// Codes by path.
fn codes(folder: &Path) -> BTreeMap<String, String> {
    let urls = std::fs::read_to_string(folder.join(".urls")).unwrap();
    let row = |line: &str| {
        let path = line[55..].splitn(4, '/').nth(3).unwrap_or_default().to_owned();
        (path, line[11..14].to_owned())
    };
    let rows: Vec<(String, String)> = urls.lines().map(row).collect();
    let count = rows.len();
    let codes: BTreeMap<_, _> = rows.into_iter().collect();
    assert_eq!(codes.len(), count, "no URL stands there twice\n{urls}");
    codes
}

fn expected() -> BTreeMap<String, String> {
    let pages = (1..PAGES).map(|n| (n.to_string(), "200".to_owned()));
    let rest = [("", "200"), ("secret", "   "), ("12", "404"), ("13", "404")];
    pages.chain(rest.map(|(path, code)| (path.to_owned(), code.to_owned()))).collect()
}

fn make(folder: &Path, server: &RawServer) {
    let ended = run(&["ose", "new", text(folder), &server.url("/")]);
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[test]
fn a_site_folder_survives_kill_9_at_any_moment_and_nothing_is_fetched_twice() {
    let work = tempfile::tempdir().unwrap();
    let (folder, server) = (work.path().join("site"), RawServer::start(site));
    make(&folder, &server);
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let mut kills = 0;
    for attempt in 0..40 {
        let running = Running::start(arguments(&folder), work.path(), &format!("run-{attempt}"));
        std::thread::sleep(Duration::from_millis(random.random_range(0..120)));
        kills += usize::from(running.kill());
    }
    to_the_end(&folder);
    assert_eq!(codes(&folder), expected());
    assert!(kills > 0, "no run was killed while it ran");
    let pages = server.pages();
    assert!(pages.len() <= expected().len() - 1 + kills, "at most one request a kill is made again: {pages:?}");
    assert!(!pages.contains(&"/secret".to_owned()));
    let status = std::fs::read_to_string(folder.join(".osestatus")).unwrap();
    assert_eq!(status, format!("0 {:010}", expected().len() - 1), "ids without gaps");
}

/// The state of a folder.
fn state(folder: &Path) -> Option<char> {
    std::fs::read_to_string(folder.join(".osestatus")).ok()?.chars().next()
}

/// Pages of the site of the next test: so many that every state lasts long enough to be met.
const MANY: usize = 120;

#[test]
fn kill_9_in_each_state_loses_nothing_and_doubles_nothing() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/robots.txt" => Reply::status(404),
        "/" => Reply::page(&(0..MANY).map(|n| format!("/{n}")).collect::<Vec<String>>()),
        path => Reply::page(&[format!("http://elsewhere.example{path}"), format!("{path}/sub")]),
    });
    // Who looks may be too late for a state: then there is another folder.
    for attempt in 0..10 {
        let folder = work.path().join(format!("site-{attempt}"));
        make(&folder, &server);
        assert_eq!(cycle(&folder).code, Some(0), "it knows its pages");
        let before = server.pages().len();
        let is_met = ['1', '3', '4'].iter().all(|wanted| {
            let mut running = Running::start(arguments(&folder), work.path(), &format!("{attempt}-{wanted}"));
            // It begins in the state where the last one was killed, at first in 0, and ends in 0.
            let begins_in = state(&folder);
            while running.is_running() && state(&folder) != Some(*wanted) {
                if state(&folder) != begins_in && state(&folder) == Some('0') {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            running.kill() && state(&folder) == Some(*wanted)
        });
        if !is_met {
            continue;
        }
        let ended = cycle(&folder);
        assert_eq!((ended.code, state(&folder)), (Some(0), Some('0')), "{ended}");
        let asked = server.pages().len() - before;
        assert!((MANY..=MANY + 1).contains(&asked), "{asked} requests: only what was on its way is asked for again");
        let codes = codes(&folder);
        assert_eq!(codes.values().filter(|code| *code == "200").count(), 1 + MANY);
        assert_eq!(codes.len(), 1 + 2 * MANY, "every link is there, and once");
        let external = std::fs::read_to_string(folder.join(".externalurls")).unwrap();
        assert_eq!(external.lines().count(), MANY);
        return;
    }
    panic!("not every state was met");
}

#[test]
fn a_folder_becomes_a_crawl_that_goes_on_and_a_crawl_becomes_a_folder() {
    let work = tempfile::tempdir().unwrap();
    let (folder, server) = (work.path().join("site"), RawServer::start(site));
    make(&folder, &server);
    assert_eq!(cycle(&folder).code, Some(0));
    assert_eq!(cycle(&folder).code, Some(0));
    let data = work.path().join("data");
    let ended = run(&["ose", "import", text(&folder), "--data", text(&data), "--json"]);
    assert_eq!(ended.code, Some(0), "{ended}");

    let back = work.path().join("back");
    let ended = run(&["ose", "export", "127.0.0.1", text(&back), "--data", text(&data)]);
    assert_eq!(ended.code, Some(0), "{ended}");
    let files = |path: &Path| -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
        entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
    };
    assert_eq!(files(&back), files(&folder), "nothing was crawled, so nothing is different");

    let fetched_before = server.pages();
    Crawl::from(&[server.url("/")], work.path()).with(&["--delay", "0s"]).finish();
    let fetched_since = server.pages().split_off(fetched_before.len());
    assert!(fetched_since.iter().all(|path| !fetched_before.contains(path)), "{fetched_since:?}");
    let after = work.path().join("after");
    let ended = run(&["ose", "export", "127.0.0.1", text(&after), "--data", text(&data)]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(codes(&after), expected());
    for (name, bytes) in
        files(&folder).into_iter().filter(|(name, _)| !name.starts_with(".urls") && name != ".osestatus")
    {
        if name != ".externalurls" {
            assert_eq!(files(&after).get(&name), Some(&bytes), "{name}");
        }
    }
    let asked = server.pages().len();
    to_the_end(&after);
    assert_eq!(server.pages().len(), asked, "the folder that came out has nothing left to ask for");
}

#[test]
fn an_import_that_is_killed_goes_on_and_nothing_is_lost_or_doubled() {
    const ANSWERS: usize = 900;
    let work = tempfile::tempdir().unwrap();
    let (folder, server) = (work.path().join("site"), RawServer::start(|_| Reply::status(404)));
    std::fs::create_dir(&folder).unwrap();
    let mut urls = String::new();
    for id in 1..=ANSWERS {
        let (code, reason) = if id % 10 == 0 { (404, "Not Found") } else { (200, "OK") };
        let url = server.url(&format!("/{id}"));
        writeln!(urls, "{id:010} {code} {0:019} {0:019} {url}", 1_700_000_000_000 + id).unwrap();
        let answer = format!("HTTP/1.1 {code} {reason}\r\nContent-Type: text/html\r\n\r\n<p>page {id}</p>");
        std::fs::write(folder.join(format!("{id:010}")), answer).unwrap();
    }
    std::fs::write(folder.join(".urls"), &urls).unwrap();
    std::fs::write(folder.join(".osestatus"), format!("0 {ANSWERS:010}")).unwrap();

    let data = work.path().join("data");
    let arguments = ["ose", "import", text(&folder), "--data", text(&data), "--json"];
    let (mut kills, mut pause) = (0, Duration::from_millis(5));
    loop {
        let running = Running::start(arguments, work.path(), &format!("import{kills}"));
        std::thread::sleep(pause);
        if !running.kill() {
            break;
        }
        kills += 1;
        pause += pause / 8; // the first kills meet a start, some the middle, however fast the machine is
        assert!(kills < 100, "an import takes no longer");
    }
    assert!(kills > 2, "it was over before it could be killed");
    let ended = run(&arguments);
    assert_eq!(ended.code, Some(0), "{ended}");
    let report: serde_json::Value = serde_json::from_str(ended.stdout.trim()).unwrap();
    assert_eq!((&report["urls"], &report["pages"]), (&0.into(), &0.into()), "all was there: {report}");

    let ended = run(&["export", text(&data), "--format", "jsonl"]);
    let rows: Vec<serde_json::Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), ANSWERS);
    let wrong = |row: &&serde_json::Value| row["round"] != 0 || row["crawled_at_ms"].is_null();
    assert_eq!(rows.iter().find(wrong), None, "each was taken in once, and counts as crawled");
    let back = work.path().join("back");
    run(&["ose", "export", "127.0.0.1", text(&back), "--data", text(&data)]).complains(0, &[]);
    assert_eq!(std::fs::read_to_string(back.join(".urls")).unwrap(), urls);
    assert_eq!(std::fs::read_dir(&back).unwrap().count(), ANSWERS + 2);
    assert!(server.pages().is_empty());
}

#[test]
fn mistakes_are_named_and_change_nothing() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path().join("site");
    run(&["ose", "run", text(&folder)]).complains(1, &["site", "No such file"]);
    std::fs::create_dir(&folder).unwrap();
    run(&["ose", "run", text(&folder)]).complains(2, &["holds no .urls", "ose new"]);
    run(&["ose", "new", text(&folder), "not a url"]).complains(2, &["not a url"]);
    run(&["ose", "new", text(&folder), "http://a.example/"]).complains(0, &["is made"]);
    run(&["ose", "new", text(&folder), "http://a.example/"]).complains(2, &["not empty"]);
    run(&["ose", "run", text(&folder), "--program", "merge"])
        .complains(1, &["merge begins in state 4", "nothing was changed"]);
    run(&["ose", "run", text(&folder), "--wait", "30s-10s"]).complains(2, &["10s-30s"]);
    let data = work.path().join("data");
    for state in [1, 3, 4] {
        std::fs::write(folder.join(".osestatus"), format!("{state} 0000000000")).unwrap();
        let words = [&format!("state {state}"), "--force"];
        run(&["ose", "import", text(&folder), "--data", text(&data)]).complains(1, &words);
        assert!(!data.exists());
    }
    let urls = std::fs::read_to_string(folder.join(".urls")).unwrap();
    std::fs::write(folder.join(".urls"), format!("{urls}x{}", &urls[1..])).unwrap();
    let forced = work.path().join("forced");
    let ended = run(&["ose", "import", text(&folder), "--data", text(&forced), "--force"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    let named = format!("{}{}", ended.stdout, ended.stderr);
    assert!(named.contains(".urls") && named.contains("line 2") && named.contains("column 1"), "{ended}");
    std::fs::write(folder.join(".osestatus"), "0 00000000x0").unwrap();
    run(&["ose", "status", text(&folder)]).complains(1, &[".osestatus", "column 11"]);
    run(&["ose", "export", "a.example", text(&work.path().join("out")), "--data", text(&data)])
        .complains(3, &["holds no orbweaver data"]);
}
