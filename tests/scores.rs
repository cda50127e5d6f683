//! Scores steer the crawl: what the links between pages say decides what is fetched next, in a crawl that runs and in a folder.

use std::collections::{BTreeMap, BTreeSet};
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

/// A site in which every page of the list links to all neighbours: to HITS the list is many good hubs, and one hub with few links is worth nothing.
fn site_of_hubs(asked: &Asked<'_>) -> Reply {
    match asked.path.starts_with("/listed/") {
        true => Reply::page(&(0..NEIGHBOURS).map(|page| format!("/neighbour/{page}")).collect::<Vec<String>>()),
        false => site(asked),
    }
}

/// What a score is to bring forward.
#[derive(Clone, Copy)]
struct Steered {
    by: &'static str,
    site: fn(&Asked<'_>) -> Reply,
    /// How the paths begin of what is next once scores are there.
    next: &'static str,
    pages: usize,
}

const PAGERANK: Steered = Steered { by: "pagerank", site, next: "/hub", pages: LISTED + NEIGHBOURS + 2 };
const OPIC: Steered = Steered { by: "opic", ..PAGERANK };
const HITS: Steered = Steered { by: "hits", site: site_of_hubs, next: "/neighbour/", pages: LISTED + NEIGHBOURS + 1 };

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
    neighbours_come_earlier_than_without_scores(PAGERANK);
}

#[test]
fn by_hits_what_many_hubs_link_to_is_fetched_earlier_than_without_scores() {
    neighbours_come_earlier_than_without_scores(HITS);
}

#[test]
fn by_opic_neighbours_of_a_hub_are_fetched_earlier_than_without_scores() {
    neighbours_come_earlier_than_without_scores(OPIC);
}

fn neighbours_come_earlier_than_without_scores(Steered { by, site, next, pages }: Steered) {
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
        .with(&["--score", by, "--http", "127.0.0.1:0"])
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
    assert_eq!(server.pages().len(), pages, "every page once");
    let first = server.pages().iter().position(|path| path.starts_with(next)).unwrap();
    assert!(first <= BEFORE + 3, "{next} is next: {first}");
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

/// The rows that a running cluster tells; nothing while it cannot.
fn told(fleet: &Fleet, arguments: &[&str]) -> Option<Vec<Value>> {
    let ended = fleet.ctl(&[&["--json"], arguments].concat());
    (ended.code == Some(0)).then(|| ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn texts(rows: &[Value], field: &str) -> Vec<String> {
    rows.iter().map(|row| row[field].as_str().unwrap().to_owned()).collect()
}

fn sorted(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts
}

/// What a cluster that runs tells of its graph is what the folder of one of its nodes holds, which keeps all of it.
fn assert_told_as_in(fleet: &Fleet, data: &std::path::Path, one: &str) {
    let ask = |arguments: &[&str]| {
        let mut rows = None;
        wait_until("the cluster answers", || {
            rows = told(fleet, arguments);
            rows.is_some()
        });
        rows.unwrap()
    };
    let read = |arguments: &[&str]| graph_rows(arguments, data).expect("there is a graph");
    // Links of a page may be told before its record says that it was crawled.
    wait_until("every page is settled", || {
        ask(&["pages", "dump", "info"])
            .iter()
            .all(|row| row["crawls"].as_u64() > Some(0) && row["first_crawl_ms"].is_u64())
    });
    let (info, here) = (ask(&["pages", "dump", "info"]), read(&["pages", "dump", "info"]));
    assert_eq!(sorted(texts(&info, "url")), sorted(texts(&here, "url")), "every page once");
    let total: f64 = info.iter().map(|row| row["score"].as_f64().unwrap()).sum();
    assert!((total - 1.0).abs() < 1e-6, "{total}");
    let links = ask(&["pages", "dump", "links"]);
    assert_eq!(links.len(), read(&["pages", "dump", "links"]).len());
    for by in ["pagerank", "hits-authority", "hits-hub"] {
        let arguments = ["pages", "rank", "--by", by, "--top", "1000"];
        let (ranked, here) = (ask(&arguments), read(&arguments));
        let scores = |rows: &[Value]| -> BTreeMap<String, f64> {
            texts(rows, "url").into_iter().zip(rows.iter().map(|row| row["score"].as_f64().unwrap())).collect()
        };
        let (ranked, here) = (scores(&ranked), scores(&here));
        assert_eq!(ranked.len(), info.len());
        assert!(ranked.iter().all(|(url, score)| (score - here[url]).abs() < 1e-7), "{by}");
    }
    let related = |rows: &[Value]| {
        sorted(rows.iter().map(|row| format!("{} {}", row["relation"], row["url"])).collect::<Vec<_>>())
    };
    let around = ask(&["pages", "links", one]);
    assert_eq!(related(&around), related(&read(&["pages", "links", one])));
    assert!(around.iter().any(|row| row["relation"] == "from") && around.iter().any(|row| row["relation"] == "to"));
    let id = info.iter().find(|row| row["url"] == one).unwrap()["id"].as_str().unwrap();
    assert_eq!(related(&ask(&["pages", "links", id])), related(&around), "an id names the page, too");
    let found = ask(&["pages", "find", "/1[0-9]$"]);
    assert_eq!(sorted(texts(&found, "url")), sorted(texts(&read(&["pages", "find", "/1[0-9]$"]), "url")));
    let deepest = info.iter().max_by_key(|row| row["depth"].as_u64()).unwrap();
    let path = ask(&["pages", "path", deepest["url"].as_str().unwrap()]);
    assert_eq!(path[0]["url"], deepest["url"]);
    assert!(path.len() > 1 && deepest["depth"].as_u64() > Some(0), "{deepest}");
    let seed = info.iter().find(|row| row["id"] == path[path.len() - 1]["id"]).unwrap();
    assert!(seed["depth"] == 0 && seed["first_linker"].is_null(), "up to a seed: {seed}");
    fleet.ctl(&["pages", "links", "http://nowhere.example/"]).complains(1, &["not in the page graph"]);
    fleet.ctl(&["pages", "find", "("]).complains(2, &["regex"]);
    fleet.ctl(&["pages", "rank", "--top", "10001"]).complains(2, &["10000"]);
    let best = ask(&["pages", "rank", "--top", "3"]);
    let all = ask(&["pages", "rank", "--top", "1000"]);
    assert_eq!((texts(&best, "url"), best.len()), (texts(&all[..3], "url"), 3), "the best of all nodes");
    fleet.ctl(&["schedule", "reload", "--by", "hits"]).complains(1, &["go by pagerank"]);
    wait_until("scores are computed when somebody wants it", || {
        told(fleet, &["schedule", "reload"]).is_some_and(|rows| rows[0]["by"] == "pagerank")
    });
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
    assert_told_as_in(&fleet, &fleet.data(0), &url(9, server.address().port()));

    fleet.kill_node(1);
    submit(&fleet, 0..WEB);
    wait_until("two nodes compute what one would", || apart(&fleet, &[0, 2], WEB) < 1e-6);
    assert_eq!(reached(0..WEB).len(), WEB);
}

#[test]
fn a_cluster_fetches_the_neighbours_of_a_hub_earlier() {
    neighbours_come_earlier_in_a_cluster(PAGERANK);
}

#[test]
fn a_cluster_that_goes_by_hits_fetches_earlier_what_many_hubs_link_to() {
    neighbours_come_earlier_in_a_cluster(HITS);
}

#[test]
fn a_cluster_that_goes_by_opic_fetches_the_neighbours_of_a_hub_earlier() {
    neighbours_come_earlier_in_a_cluster(OPIC);
}

fn neighbours_come_earlier_in_a_cluster(Steered { by, site, next, pages }: Steered) {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(site);
    let mut fleet = Fleet::start(work.path(), 3, &format!("[score]\nby = \"{by}\"\nupdate_interval_s = 1\n"));
    let seed = server.url("/");
    let add = |fleet: &Fleet, more: &[&str]| {
        let arguments = [&["crawl", "add", "hubs", seed.as_str()], more].concat();
        wait_until("the crawl is defined", || fleet.ctl(&arguments).code == Some(0));
    };
    // A limit makes the crawl wait for its scores: nothing depends on who is faster.
    add(&fleet, &["--max-pages", "100"]);
    let begin = server.url(next);
    wait_until("it is next", || {
        let waiting = told(&fleet, &["schedule", "dump"]).unwrap_or_default();
        waiting.first().is_some_and(|row| row["url"].as_str().unwrap().starts_with(&begin))
            || server.pages().iter().any(|path| path.starts_with(next))
    });
    add(&fleet, &["--replace"]);
    let fetched = || server.pages().into_iter().collect::<BTreeSet<String>>().len();
    wait_until("every page is fetched", || fetched() >= pages);
    let with = before_the_neighbours(&server);
    let first = server.pages().iter().position(|path| path.starts_with(next)).unwrap();
    assert!(first < with && with < LISTED, "by depth they come last: {first}, {with}");
    wait_until("scores of all nodes are told", || {
        let total = |rows: Vec<Value>| rows.iter().map(|row| row["score"].as_f64().unwrap_or(0.0)).sum::<f64>();
        told(&fleet, &["pages", "dump", "info"]).is_some_and(|rows| (total(rows) - 1.0).abs() < 1e-6)
    });
    fleet.interrupt();
    (0..3).for_each(|node| drop(found::assert_recount(&fleet.data(node))));
}
