//! Scores steer the crawl: what the links between pages say decides what is fetched next, in a crawl that runs and in a folder.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use serde_json::Value;
use tests::fleet::Fleet;
use tests::found;
use tests::program::{Crawl, get, run};
use tests::ranking::{apart, graph_rows};
use tests::raw::{Asked, RawServer, Reply};
use tests::wait_until;

/// Pages that the front page lists. All of them link to a hub, and only the hub to its neighbours.
const LISTED: usize = 300;
const NEIGHBOURS: usize = 5;
/// Pages that are answered before anybody waits for scores.
const BEFORE: usize = 130;

fn site(asked: &Asked<'_>) -> Reply {
    let links: Vec<String> = match asked.path {
        "/robots.txt" => return Reply::status(404),
        "/" => (0..LISTED).map(|page| format!("/listed/{page}")).collect(),
        "/hub" => (0..NEIGHBOURS).map(|page| format!("/neighbour/{page}")).collect(),
        path if path.starts_with("/listed/") => vec!["/hub".to_owned()],
        _ => Vec::new(),
    };
    Reply::page(&links)
}

/// How many pages were asked for before the last neighbour of the hub.
fn before_the_neighbours(server: &RawServer) -> usize {
    let pages = server.pages();
    pages.iter().rposition(|path| path.starts_with("/neighbour/")).expect("every page is fetched")
}

fn crawl(server: &RawServer, work: &std::path::Path) -> Crawl {
    Crawl::from(&[server.url("/")], work).with(&["--delay", "0s"])
}

fn json(arguments: &[&str]) -> Vec<Value> {
    let ended = run(arguments);
    assert_eq!(ended.code, Some(0), "{ended}");
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn neighbours_of_a_hub_are_fetched_earlier_than_without_scores() {
    let (plain, scored) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = RawServer::start(site);
    crawl(&server, plain.path()).finish();
    let without = before_the_neighbours(&server);
    assert!(without >= LISTED, "by depth they come last: {without}");

    // The same site, which makes the crawl wait until its scores are there: nothing depends on who is faster.
    let (open, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (gate, count) = (Arc::clone(&open), Arc::clone(&answered));
    let server = RawServer::start(move |asked| {
        if count.fetch_add(1, Relaxed) >= BEFORE {
            wait_until("scores are computed", || gate.load(Relaxed));
        }
        site(asked)
    });
    let slow = "[fetch.limits]\nfetch_timeout_ms = 120000\nread_timeout_ms = 120000\n";
    let running = crawl(&server, scored.path())
        .without("--json")
        .with_config(slow)
        .with(&["--score", "pagerank", "--http", "127.0.0.1:0"])
        .start();
    let door = || {
        let stderr = running.stderr();
        let line = stderr.lines().find_map(|line| line.strip_prefix("metrics: http://"))?.to_owned();
        line.strip_suffix("/metrics").map(str::to_owned)
    };
    wait_until("the door is named", || door().is_some());
    let address = door().unwrap();
    wait_until("queues go by scores", || {
        let (_, metrics) = get(&address, "/metrics");
        metrics.lines().any(|line| line.starts_with("orbweaver_score_seconds_count ") && !line.ends_with(" 0"))
    });
    open.store(true, Relaxed);
    let ended = running.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
    let with = before_the_neighbours(&server);
    assert_eq!(server.pages().len(), LISTED + NEIGHBOURS + 2, "every page once");
    let hub = server.pages().iter().position(|path| path == "/hub").unwrap();
    assert!(hub <= BEFORE + 3, "the hub is next: {hub}");
    assert!(with < without, "{with} of {without}");
    found::assert_recount(&scored.path().join("data"));
}

#[test]
fn a_folder_tells_its_graph_and_takes_new_scores() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(site);
    let crawl = crawl(&server, work.path()).with(&["--score", "opic"]);
    let (data, url) = (crawl.data(), |path: &str| server.url(path));
    let data = data.to_str().unwrap();
    // The hub is known, and so are all pages of the list; most of them wait.
    let ended = crawl.with(&["--max-pages", "100"]).start().wait();
    assert_eq!(ended.code, Some(0), "{ended}");

    let best = json(&["pages", "rank", "--top", "1", "--data", data, "--json"]);
    assert_eq!(best[0]["url"], url("/hub"));
    let hub = json(&["pages", "rank", "--by", "hits-hub", "--top", "1", "--data", data, "--json"]);
    assert_eq!(hub[0]["url"], url("/"), "who links to everybody");
    let info = json(&["pages", "dump", "info", "--data", data, "--json"]);
    assert_eq!(info.len(), LISTED + 2);
    let of = |path: &str| info.iter().find(|row| row["url"] == url(path)).unwrap();
    let crawled = |row: &&Value| row["first_crawl_ms"].is_u64();
    assert_eq!(info.iter().filter(crawled).count(), 100);
    assert_eq!((of("/")["depth"].as_u64(), of("/hub")["depth"].as_u64()), (Some(0), Some(2)));
    let total: f64 = info.iter().map(|row| row["score"].as_f64().unwrap()).sum();
    assert!((total - 1.0).abs() < 1e-6 && of("/hub")["score"].as_f64() > of("/listed/299")["score"].as_f64());

    let links = json(&["pages", "dump", "links", "--data", data, "--json"]);
    let into_hub = links.iter().filter(|link| link["to"] == of("/hub")["number"]).count();
    let around = json(&["pages", "links", &url("/hub"), "--data", data, "--json"]);
    assert_eq!(around.iter().filter(|row| row["relation"] == "from").count(), into_hub);
    let id = of("/hub")["id"].as_str().unwrap().to_owned();
    assert_eq!(json(&["pages", "links", &id, "--data", data, "--json"]), around, "an id names the page, too");
    let path = json(&["pages", "path", &url("/hub"), "--data", data, "--json"]);
    let path: Vec<&str> = path.iter().map(|row| row["url"].as_str().unwrap()).collect();
    assert_eq!((path.len(), path[0], path[2]), (3, url("/hub").as_str(), url("/").as_str()));
    let found = json(&["pages", "find", "/listed/29[0-9]$", "--data", data, "--json"]);
    assert_eq!(found.len(), 10);

    // The queue goes by scores now, and by what pages were found with after that.
    let ended = run(&["schedule", "reload", "--by", "pagerank", "--data", data]);
    assert!(ended.code == Some(0) && ended.stdout.contains("waiting URLs have another place"), "{ended}");
    let waiting = json(&["schedule", "dump", "--json", "--data", data]);
    assert_eq!(waiting[0]["url"], url("/hub"), "{}", waiting[0]);
    assert!(waiting[0]["priority"].as_u64() > Some(100));
    assert_eq!(run(&["schedule", "reload", "--by", "own", "--data", data]).code, Some(0));
    let waiting = json(&["schedule", "dump", "--json", "--data", data]);
    assert!(waiting.iter().all(|row| row["priority"] == 100));
    assert_ne!(waiting[0]["url"], url("/hub"));
    found::assert_recount(std::path::Path::new(data));

    run(&["pages", "links", "http://nowhere.example/", "--data", data]).complains(1, &["not in the page graph"]);
    run(&["pages", "find", "(", "--data", data]).complains(2, &["regex"]);
}

#[test]
fn a_folder_without_a_graph_says_what_to_do() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(site);
    let crawl = crawl(&server, work.path()).with(&["--max-pages", "3"]);
    crawl.finish();
    let data = crawl.data();
    run(&["pages", "rank", "--data", data.to_str().unwrap()]).complains(3, &["no page graph", "--score"]);
    run(&["pages", "rank", "--data", work.path().join("none").to_str().unwrap()]).complains(3, &["no orbweaver data"]);
}

/// Pages that a cluster crawls, on many domains, each of which links to some others.
const WEB: usize = 120;
const DOMAINS: usize = 17;

fn linked_from(page: usize) -> Vec<usize> {
    let until = if page < WEB / 2 { WEB / 2 } else { WEB }; // the first half does not know the second
    let linked = (0..page % 5).map(|step| (page * 7 + step * step * 13 + 5) % until);
    linked.chain(page.is_multiple_of(3).then_some(0)).collect()
}

/// These pages, and all that can be reached from them.
fn reached(seeds: impl Iterator<Item = usize>) -> BTreeSet<usize> {
    let (mut open, mut reached): (Vec<usize>, _) = (seeds.collect(), BTreeSet::new());
    while let Some(page) = open.pop() {
        if reached.insert(page) {
            open.extend(linked_from(page));
        }
    }
    reached
}

#[test]
fn a_cluster_ranks_what_it_crawls_as_one_node_would_also_without_one_of_its_nodes() {
    let work = tempfile::tempdir().unwrap();
    let url = |page: usize, port: u16| format!("http://d{}.test:{port}/{page}", page % DOMAINS);
    let server = RawServer::start(move |asked| match asked.path[1..].parse() {
        Ok(page) => Reply::page(&linked_from(page).into_iter().map(|to| url(to, asked.port)).collect::<Vec<_>>()),
        Err(_) => Reply::status(404),
    });
    let hosts: String = (0..DOMAINS).map(|domain| format!("\"d{domain}.test\" = \"127.0.0.1\"\n")).collect();
    let section = format!("[score]\nby = \"pagerank\"\nupdate_interval_s = 1\n[fetch.hosts]\n{hosts}");
    let mut fleet = Fleet::start(work.path(), 3, &section);
    let submit = |fleet: &Fleet, pages: std::ops::Range<usize>| {
        let urls: Vec<String> = pages.map(|page| url(page, server.address().port())).collect();
        let arguments: Vec<&str> = ["url", "add"].into_iter().chain(urls.iter().map(String::as_str)).collect();
        wait_until("the seeds are kept", || fleet.ask(&arguments)["Added"]["kept"] == urls.len());
    };
    let first = reached(0..WEB / 4).len();
    assert!(first > WEB / 4 && first <= WEB / 2, "{first}");
    submit(&fleet, 0..WEB / 4);
    wait_until("three nodes compute what one would", || apart(&fleet, &[0, 1, 2], first) < 1e-6);

    fleet.kill_node(1);
    submit(&fleet, 0..WEB);
    wait_until("two nodes compute what one would", || apart(&fleet, &[0, 2], WEB) < 1e-6);
    assert_eq!(reached(0..WEB).len(), WEB);
}

#[test]
fn a_cluster_fetches_the_neighbours_of_a_hub_earlier() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(site);
    let mut fleet = Fleet::start(work.path(), 3, "[score]\nby = \"pagerank\"\nupdate_interval_s = 1\n");
    let seed = server.url("/");
    let add = |fleet: &Fleet, more: &[&str]| {
        let arguments = [&["crawl", "add", "hubs", seed.as_str()], more].concat();
        wait_until("the crawl is defined", || fleet.ctl(&arguments).code == Some(0));
    };
    // A limit makes the crawl wait for its scores: nothing depends on who is faster.
    add(&fleet, &["--max-pages", "100"]);
    wait_until("the hub is next", || {
        let first = |node: usize| {
            let waiting = graph_rows(&["schedule", "dump"], &fleet.data(node)).unwrap_or_default();
            waiting.first().is_some_and(|row| row["url"] == server.url("/hub"))
        };
        (0..3).any(first) || server.pages().iter().any(|path| path == "/hub")
    });
    add(&fleet, &["--replace"]);
    let fetched = || server.pages().into_iter().collect::<BTreeSet<String>>().len();
    wait_until("every page is fetched", || fetched() >= LISTED + NEIGHBOURS + 2);
    let with = before_the_neighbours(&server);
    let hub = server.pages().iter().position(|path| path == "/hub").unwrap();
    assert!(hub < with && with < LISTED, "by depth they come last: {hub}, {with}");
    fleet.interrupt();
    (0..3).for_each(|node| drop(found::assert_recount(&fleet.data(node))));
}
