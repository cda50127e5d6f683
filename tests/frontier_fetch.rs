//! One frontier underneath: what clients of the URL Frontier API put, the nodes' own fetchers crawl, and what these find, clients can have; as the crawl's switch says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use node::doors::frontier::api::{self, url_item};
use tests::fleet::Fleet;
use tests::frontier_api::{
    Client, connect, found, info, known, now_s, put_all, urls, urls_at_last, wait_until_ready, wanted,
};
use tests::program::{Ended, run, run_with_input};
use tests::raw::{RawServer, Reply};
use tests::{PATIENCE, wait_until};
use tokio_stream::StreamExt;

/// A site whose pages of one name link to two others below them; one is gone, one moved, and one is nobody's business.
fn site(delay: Duration) -> RawServer {
    RawServer::start(move |asked| match asked.path {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /private"),
        "/gone" => Reply::status(404),
        "/moved" => Reply::redirect("/moved/here"),
        path if path.matches('/').count() == 1 => {
            Reply::page(&[format!("{path}/a"), format!("{path}/b"), path.to_owned()]).after(delay)
        }
        _ => Reply::page(&[] as &[&str]).after(delay),
    })
}

/// How often each page was asked for.
fn asked(server: &RawServer) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    server.pages().into_iter().for_each(|path| *counts.entry(path).or_default() += 1);
    counts
}

/// A cluster of one, whose leases are short.
struct Alone {
    fleet: Fleet,
    client: Client,
}

impl Alone {
    async fn start(work: &Path) -> Alone {
        let fleet = Fleet::start(work, 1, "");
        wait_until("the door is open", || fleet.frontier(0).is_some());
        let mut client = connect(&fleet.frontier(0).unwrap()).await;
        wait_until_ready(&mut client).await;
        no_delay(&mut client).await;
        Alone { fleet, client }
    }

    fn ctl(&self, arguments: &[&str]) -> Ended {
        self.fleet.ctl(arguments)
    }

    fn stop(mut self) {
        self.fleet.interrupt();
    }
}

async fn no_delay(client: &mut Client) {
    client.set_delay(api::QueueDelayParams { delay_requestable: 0, ..Default::default() }).await.unwrap();
}

/// Scheduled, handed out, completed.
async fn stats(client: &mut Client, crawl: &str) -> Option<(u64, u32, u64)> {
    let params = api::QueueWithinCrawlParams { crawl_id: crawl.into(), ..Default::default() };
    let stats = client.get_stats(params).await.ok()?.into_inner();
    Some((stats.size, stats.in_process, stats.counts["completed"]))
}

/// Waits until nothing is scheduled, and so many are completed.
async fn comes_to_rest(client: &mut Client, crawl: &str, completed: u64) {
    let (until, mut last) = (Instant::now() + PATIENCE, None);
    while Instant::now() < until {
        last = stats(client, crawl).await;
        if last == Some((0, 0, completed)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{completed} URLs of {crawl} are to be completed, and it is {last:?}");
}

/// All URLs of a crawl, with their dates.
async fn list(client: &mut Client, crawl: &str) -> BTreeMap<String, u64> {
    let params = api::ListUrlParams { crawl_id: crawl.into(), size: 10_000, ..Default::default() };
    let stream = client.list_ur_ls(params).await.unwrap().into_inner();
    let row = |item: api::UrlItem| match item.item {
        Some(url_item::Item::Known(known)) => (known.info.unwrap().url, known.refetchable_from_date),
        other => panic!("always the known variant, not {other:?}"),
    };
    stream.map(|item| row(item.unwrap())).collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_crawl_what_a_client_puts_and_say_what_became_of_it() {
    let work = tempfile::tempdir().unwrap();
    let server = site(Duration::ZERO);
    let mut alone = Alone::start(work.path()).await;
    alone.ctl(&["crawl", "add", "shop", "--fetch", "mine"]).complains(2, &["mine", "own", "clients", "both"]);
    alone.ctl(&["crawl", "add", "shop", "--fetch", "own"]).complains(1, &["--scope any"]);
    let added = alone.ctl(&["crawl", "add", "shop", "--scope", "any", "--fetch", "own"]);
    assert_eq!(added.code, Some(0), "{added}");
    let said = alone.ctl(&["crawl", "fetch", "shop"]);
    assert!(said.stdout.contains("(own)"), "{said}");
    alone.ctl(&["crawl", "add", "shop", &server.url("/1"), "--replace"]).complains(1, &["open to clients", "--fetch"]);
    alone.ctl(&["crawl", "fetch", "nothing", "own"]).complains(1, &["no crawl called", "shop"]);

    let paths = ["/1", "/2", "/3", "/gone", "/moved", "/private"];
    let mut items: Vec<api::UrlItem> = paths.iter().map(|path| found(info("shop", "", &server.url(path)))).collect();
    items.push(found(info("shop", "odd", "no URL at all")));
    items.push(found(info("shop", "my own key", &server.url("/4"))));
    put_all(&mut alone.client, items).await;
    // What is put, what its pages link to, and where one leads.
    comes_to_rest(&mut alone.client, "shop", 8 + 8 + 1).await;
    let mut expected: BTreeSet<String> = paths.iter().map(|path| server.url(path)).collect();
    expected.insert("no URL at all".to_owned());
    expected.insert(server.url("/moved/here"));
    for page in ["/1", "/2", "/3", "/4"] {
        expected.extend([page.to_owned(), format!("{page}/a"), format!("{page}/b")].map(|path| server.url(&path)));
    }
    let listed = list(&mut alone.client, "shop").await;
    assert_eq!(listed.keys().cloned().collect::<BTreeSet<String>>(), expected);
    assert!(listed.values().all(|date| *date == 0), "{listed:?}");
    let asked_for = asked(&server);
    assert!(asked_for.values().all(|times| *times == 1), "each once: {asked_for:?}");
    assert!(!asked_for.contains_key("/private") && asked_for.len() == 15, "robots.txt counts: {asked_for:?}");
    let page = alone.ctl(&["--json", "url", "status", &server.url("/2/b"), "--crawl", "shop"]);
    assert!(page.stdout.contains("Processed"), "the page is stored: {page}");

    // Nobody else gets anything of it, by name or not.
    put_all(&mut alone.client, vec![found(info("shop", "", &server.url("/5")))]).await;
    assert_eq!(urls(&mut alone.client, wanted("shop", "", 0, 0, 30)).await, [""; 0]);
    let any = api::GetParams { item: None, ..wanted("", "", 0, 0, 30) };
    assert_eq!(urls(&mut alone.client, any).await, [""; 0]);
    comes_to_rest(&mut alone.client, "shop", 20).await;
    // A client says when something is fetched again.
    put_all(&mut alone.client, vec![known(info("shop", "", &server.url("/1")), now_s())]).await;
    comes_to_rest(&mut alone.client, "shop", 20).await;
    assert_eq!((asked(&server)["/1"], asked(&server)["/1/a"]), (2, 1));
    alone.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_leave_alone_what_is_for_clients() {
    let work = tempfile::tempdir().unwrap();
    let server = site(Duration::ZERO);
    let mut alone = Alone::start(work.path()).await;
    // A crawl that clients made, and one that is theirs by its switch: what people hand in to the nodes comes to clients.
    let (seed, more) = (server.url("/seed"), server.url("/more"));
    let added = alone.ctl(&["crawl", "add", "theirs", &seed, "--fetch", "clients"]);
    assert_eq!(added.code, Some(0), "{added}");
    let handed_in = alone.ctl(&["url", "add", &more, "--crawl", "theirs"]);
    assert_eq!(handed_in.code, Some(0), "{handed_in}");
    let mine = server.url("/mine");
    put_all(&mut alone.client, vec![found(info("made", "", &mine))]).await;
    let mut came = urls_at_last(&mut alone.client, wanted("theirs", "", 0, 0, 3_600)).await;
    came.sort();
    assert_eq!(came, [more, seed]);
    // Switched to both, the nodes still do not get what a client has; what it has not, they get, and it gets what they found.
    assert_eq!(alone.ctl(&["crawl", "fetch", "theirs", "both"]).code, Some(0));
    let shared = server.url("/shared");
    put_all(&mut alone.client, vec![found(info("theirs", "", &shared))]).await;
    let until = Instant::now() + PATIENCE;
    while stats(&mut alone.client, "theirs").await.is_none_or(|(_, _, completed)| completed < 3) {
        assert!(Instant::now() < until, "{:?}", asked(&server));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(alone.ctl(&["crawl", "fetch", "theirs", "clients"]).code, Some(0));
    assert_eq!(urls_at_last(&mut alone.client, wanted("made", "", 0, 0, 3_600)).await, [mine]);
    let asked_for: Vec<String> = asked(&server).into_keys().collect();
    assert_eq!(asked_for, ["/shared", "/shared/a", "/shared/b"]);
    // A crawl that is the nodes' alone cannot be opened later.
    assert_eq!(alone.ctl(&["crawl", "add", "apart", &server.url("/apart")]).code, Some(0));
    alone
        .ctl(&["crawl", "fetch", "apart", "both"])
        .complains(1, &["not open to clients", "crawl stop apart", "--fetch both"]);
    let replaced = ["crawl", "add", "apart", &server.url("/apart"), "--fetch", "both", "--replace"];
    alone.ctl(&replaced).complains(1, &["not open to clients"]);
    let said = alone.ctl(&["crawl", "fetch", "apart"]);
    assert!(said.stdout.contains("is not open to clients"), "{said}");
    alone.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_a_crawl_that_is_not_open_comes_to_clients_by_the_way_that_is_told() {
    let work = tempfile::tempdir().unwrap();
    let server = site(Duration::ZERO);
    let mut alone = Alone::start(work.path()).await;
    let seeds: Vec<String> = (0..40).map(|n| server.url(&format!("/seed{n}"))).collect();
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let added = alone.ctl(&[&["crawl", "add", "apart", "--delay", "1s"], &seeds[..]].concat());
    assert_eq!(added.code, Some(0), "{added}");
    // As the complaint says.
    alone
        .ctl(&["crawl", "fetch", "apart", "both"])
        .complains(1, &["export DATA --crawl apart --only new", "frontier put"]);
    assert_eq!(alone.ctl(&["crawl", "stop", "apart"]).code, Some(0));
    let added = alone.ctl(&["crawl", "add", "opened", "--scope", "any", "--fetch", "clients"]);
    assert_eq!(added.code, Some(0), "{added}");
    let data = alone.fleet.data(0);
    let export = ["export", data.to_str().unwrap(), "--crawl", "apart", "--only", "new", "--format", "urls"];
    let exported = run(&export);
    assert_eq!(exported.code, Some(0), "{exported}");
    let waits: BTreeSet<String> = exported.stdout.lines().map(str::to_owned).collect();
    assert!(waits.len() > 20, "most wait: {exported}");
    let door = alone.fleet.frontier(0).unwrap();
    let put = ["frontier", "--server", &door, "put", "--file", "-", "--crawl", "opened"];
    let put = run_with_input(&put, &exported.stdout);
    assert!(put.stdout.contains(&format!("{} kept", waits.len())), "{put}");
    let came: BTreeSet<String> =
        urls_at_last(&mut alone.client, wanted("opened", "", 0, 0, 60)).await.into_iter().collect();
    assert_eq!(came, waits);
    alone.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_and_the_nodes_together_get_every_url_once() {
    let work = tempfile::tempdir().unwrap();
    let server = site(Duration::from_millis(5));
    let mut alone = Alone::start(work.path()).await;
    let added = alone.ctl(&["crawl", "add", "shared", "--scope", "any", "--fetch", "both"]);
    assert_eq!(added.code, Some(0), "{added}");
    // While the crawl pauses, only a client takes.
    assert_eq!(alone.ctl(&["crawl", "pause", "shared"]).code, Some(0));
    let page = |number: usize| server.url(&format!("/{number}"));
    let keyed = |number: usize| found(info("shared", &format!("k{}", number % 4), &page(number)));
    put_all(&mut alone.client, (0..16).map(keyed).collect()).await;
    let mut by_client = BTreeSet::new();
    let until = Instant::now() + PATIENCE;
    while by_client.len() < 8 && Instant::now() < until {
        for url in urls(&mut alone.client, wanted("shared", "", 0, 2, 3_600)).await {
            assert!(by_client.insert(url.clone()), "{url} came twice");
        }
    }
    assert_eq!(by_client.len(), 8);
    assert_eq!(server.pages(), [""; 0]);
    assert_eq!(alone.ctl(&["crawl", "resume", "shared"]).code, Some(0));
    wait_until("the nodes have begun", || !server.pages().is_empty());
    // Now both take, and what pages of the nodes link to is there for both. The client finds nothing on its pages.
    put_all(&mut alone.client, (16..40).map(keyed).collect()).await;
    let done: Vec<api::UrlItem> = by_client.iter().map(|url| known(key_of("shared", url), 0)).collect();
    put_all(&mut alone.client, done).await;
    let until = Instant::now() + PATIENCE;
    loop {
        let took = tests::frontier_api::take(&mut alone.client, wanted("shared", "", 1, 1, 3_600)).await;
        for info in took {
            assert!(by_client.insert(info.url.clone()), "{} came twice", info.url);
            put_all(&mut alone.client, vec![known(info, 0)]).await;
        }
        let Some((size, _, completed)) = stats(&mut alone.client, "shared").await else { continue };
        if size == 0 && completed >= 40 {
            break;
        }
        assert!(Instant::now() < until, "{size} are left, {completed} completed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked_for = asked(&server);
    assert!(asked_for.values().all(|times| *times == 1), "each once: {asked_for:?}");
    let by_nodes: BTreeSet<String> = asked_for.keys().map(|path| server.url(path)).collect();
    let both: Vec<&String> = by_nodes.intersection(&by_client).collect();
    assert!(both.is_empty(), "the client had these: {both:?}");
    let listed = list(&mut alone.client, "shared").await;
    assert!((0..40).all(|number| listed.contains_key(&page(number))));
    let fetched: BTreeSet<String> = by_nodes.union(&by_client).cloned().collect();
    assert_eq!(fetched, listed.keys().cloned().collect(), "all of them, by somebody");
    alone.stop();
}

/// A URL that the client put, as it was put.
fn key_of(crawl: &str, url: &str) -> api::UrlInfo {
    let number: usize = url.rsplit('/').next().and_then(|text| text.parse().ok()).expect("pages are numbers");
    info(crawl, &format!("k{}", number % 4), url)
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_crawl_what_clients_put_also_when_one_is_killed() {
    let work = tempfile::tempdir().unwrap();
    let server = site(Duration::from_millis(100));
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("the doors are open", || (0..3).all(|node| fleet.frontier(node).is_some()));
    let add = ["crawl", "add", "shop", "--scope", "any", "--fetch", "own"];
    wait_until("the crawl is defined", || fleet.ctl(&add).code == Some(0));
    let mut client = connect(&fleet.frontier(0).unwrap()).await;
    no_delay(&mut client).await;
    const PAGES: usize = 24;
    let keyed = |number: usize| found(info("shop", &format!("key {number}"), &server.url(&format!("/{number}"))));
    put_all(&mut client, (0..PAGES).map(keyed).collect()).await;
    wait_until("some pages were fetched", || server.pages().len() >= 6);
    fleet.kill_node(2);
    comes_to_rest(&mut client, "shop", 3 * PAGES as u64).await;
    // The other node says the same, and every page was fetched.
    let mut other = connect(&fleet.frontier(1).unwrap()).await;
    let listed = list(&mut other, "shop").await;
    let pages = (0..PAGES).flat_map(|number| ["", "/a", "/b"].map(|below| format!("/{number}{below}")));
    let expected: BTreeMap<String, u64> = pages.clone().map(|path| (server.url(&path), 0)).collect();
    assert_eq!(listed, expected);
    let asked_for = asked(&server);
    assert_eq!(asked_for.keys().cloned().collect::<BTreeSet<String>>(), pages.collect());
    fleet.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_nodes_had_when_they_were_killed_is_fetched_when_they_are_back() {
    let work = tempfile::tempdir().unwrap();
    let server = site(Duration::from_millis(300));
    let Alone { mut fleet, mut client } = Alone::start(work.path()).await;
    let added = fleet.ctl(&["crawl", "add", "shop", "--scope", "any", "--fetch", "both"]);
    assert_eq!(added.code, Some(0), "{added}");
    put_all(&mut client, (0..8).map(|n| found(info("shop", "", &server.url(&format!("/{n}"))))).collect()).await;
    wait_until("the nodes have begun", || server.pages().len() >= 2);
    fleet.kill_node(0);
    fleet.start_node(0);
    wait_until("the door is open", || fleet.frontier(0).is_some());
    let mut client = connect(&fleet.frontier(0).unwrap()).await;
    wait_until_ready(&mut client).await;
    comes_to_rest(&mut client, "shop", 24).await;
    assert_eq!(asked(&server).len(), 24);
    fleet.interrupt();
}
