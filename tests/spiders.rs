//! The door for spiders: what it answers, that pages come best first and by the rates, that nothing is lost that a spider took, and all of it through any
//! node of a cluster.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::program::run;
use tests::ranking::{apart, computed, rows};
use tests::spider::{Spider, start};
use tests::wait_until;

const FREE: &str = "[filter]\nscope = \"any\"\n[spiders]\nhard_rate = 0\n";

fn pages(domain: &str, count: usize) -> Vec<String> {
    (0..count).map(|page| format!("http://{domain}/{page:03}")).collect()
}

#[test]
fn the_door_answers_as_aduana_did_where_that_was_sane() {
    let work = tempfile::tempdir().unwrap();
    let (running, spider) = start(work.path(), FREE, "node");
    let page =
        json!({"url": "http://a.example/", "score": 0.5, "links": [["http://b.example/", 0.7]], "content_hash": 17});
    let created = spider.post("/crawled", &page);
    assert_eq!((created.status, created.body.as_str()), (201, ""));
    let list = spider.post("/crawled", &json!([page, {"url": "_seed_0", "links": [["http://c.example/", 1.0]]}]));
    assert_eq!(list.status, 201);

    let refused = |method: &str, path: &str, kind: &str, body: &str, status: u16, text: &str| {
        let answer = spider.ask(method, path, kind, body);
        assert!(answer.status == status && answer.body.starts_with(text), "{path} {body}: {answer:?}");
        answer
    };
    let json = "application/json";
    let form = "application/x-www-form-urlencoded";
    refused("POST", "/crawled", form, &page.to_string(), 400, "ERROR: could not parse JSON");
    let answer = refused("POST", "/crawled", json, "{", 400, "ERROR: could not parse JSON");
    assert!(answer.head.contains("text/plain"));
    refused("POST", "/crawled", json, "{}", 400, "ERROR: could not find \"url\" field in request");
    let inside = "ERROR: Incorrect data inside CrawledPage.";
    for body in [
        r#"{"url": 7}"#,
        r#"{"url": "http://a.example/", "score": "x"}"#,
        r#"{"url": "http://a.example/", "links": ["http://b.example/"]}"#,
        r#"{"url": "http://a.example/", "links": [["http://b.example/", "x"]]}"#,
        r#"{"url": "http://a.example/", "links": 3}"#,
        r#"{"url": "http://a.example/", "content_hash": 1.5}"#,
        r#"{"url": "mailto:a@b.example"}"#,
        r#"{"url": "_seed_0", "links": [["example", 1.0]]}"#,
        r#"[{"url": "http://a.example/"}, 3]"#,
        "[]",
        "[[]]",
        "3",
    ] {
        refused("POST", "/crawled", json, body, 400, inside);
    }
    let many = serde_json::Value::from(vec![json!({"url": "http://many.example/"}); 1_001]).to_string();
    refused("POST", "/crawled", json, &many, 400, "ERROR: 1001 pages at once are too many; send at most 1000");
    // More than a body may have is not read to its end: 413, or a connection that is closed.
    let large = format!(r#"{{"url": "http://large.example/{}"}}"#, "x".repeat(33 << 20));
    assert!(spider.try_ask("POST", "/crawled", json, &large).is_none_or(|answer| answer.status == 413));
    refused("GET", "/request?n=x", "", "", 400, "ERROR: Incorrect number of requests");
    refused("GET", "/request?n=-1", "", "", 400, "ERROR: Incorrect number of requests");
    assert_eq!(spider.get("/request?n=0").body, "[]");
    let answer = refused("GET", "/crawled", "", "", 405, "");
    assert!(answer.head.contains("allow: post"));
    refused("GET", "/nowhere", "", "", 404, "");

    let mut urls = spider.request(10);
    urls.sort();
    assert_eq!(urls, ["http://b.example/", "http://c.example/"], "a page that was crawled is not handed out");
    assert_eq!(spider.request(10), [""; 0]);
    let stats = spider.stats();
    assert_eq!(
        (stats["pages"].as_u64(), stats["leased"].as_u64(), stats["domains"].as_u64()),
        (Some(3), Some(2), Some(3))
    );
    assert!(running.kill());
}

#[test]
fn pages_come_best_first_and_a_better_link_moves_them() {
    let work = tempfile::tempdir().unwrap();
    let (running, spider) = start(work.path(), FREE, "node");
    let link = |url: &str, score: f64| json!([url, score]);
    let links =
        [link("http://a.example/low", 0.1), link("http://b.example/high", 0.9), link("http://a.example/mid", 0.5)];
    assert_eq!(spider.post("/crawled", &json!({"url": "_seed_0", "links": links})).status, 201);
    let again = json!({"url": "http://c.example/", "links": [link("http://a.example/low", 0.8), link("http://a.example/mid", 0.2)]});
    assert_eq!(spider.post("/crawled", &again).status, 201);
    assert_eq!(spider.request(10), ["http://b.example/high", "http://a.example/low", "http://a.example/mid"]);
    assert!(running.kill());
}

#[test]
fn what_a_spider_never_reports_comes_back_also_after_a_kill() {
    let work = tempfile::tempdir().unwrap();
    let settings = format!("{FREE}lease_s = 2\nretry_s = 1\nfailures_max = 2\n");
    let (running, spider) = start(work.path(), &settings, "node");
    let all = pages("a.example", 5);
    spider.crawled("_seed_0", 0.0, &all);
    let taken = spider.request(3);
    assert_eq!(taken.len(), 3);
    spider.crawled(&taken[0], 0.5, &[]);
    assert!(running.kill());

    let (running, spider) = start(work.path(), &settings, "again");
    let mut seen: BTreeSet<String> = BTreeSet::new();
    wait_until("the others and what was taken are handed out", || {
        seen.extend(spider.request(10));
        seen.len() == 4
    });
    assert!(!seen.contains(&taken[0]));
    // One fails for good, the others are crawled.
    let failing = seen.pop_first().unwrap();
    seen.iter().for_each(|url| spider.crawled(url, 0.5, &[]));
    assert_eq!(spider.post("/failed", &json!({"url": failing, "error": "timeout"})).json()["known"], 1);
    assert_eq!(spider.request_at_last(10), [failing.as_str()]);
    assert_eq!(spider.post("/failed", &json!([failing])).json()["known"], 1);
    let stats = spider.stats();
    assert_eq!((stats["scheduled"].as_u64(), stats["done"].as_u64()), (Some(0), Some(5)), "{stats}");
    // Given up, unless somebody says so; through the door, or by the command.
    assert_eq!(spider.post("/reload", &json!(null)).json()["reloaded"], 1);
    assert_eq!(spider.request(10), [failing.as_str()]);
    assert_eq!(spider.post("/failed", &json!([failing])).json()["known"], 1);
    assert_eq!(spider.request_at_last(10), [failing.as_str()]);
    assert_eq!(spider.post("/failed", &json!([failing])).json()["known"], 1);
    assert_eq!(spider.request(10), [""; 0]);
    let data = work.path().join("data");
    let ended = run(&["ctl", "--json", "--data", data.to_str().unwrap(), "schedule", "reload", "--uncrawled"]);
    assert!(ended.code == Some(0) && ended.stdout.trim() == r#"{"reloaded":1}"#, "{ended}");
    assert_eq!(spider.request(10), [failing.as_str()]);
    assert!(running.kill());
}

#[test]
fn a_domain_is_not_asked_more_often_than_its_rate() {
    let work = tempfile::tempdir().unwrap();
    let settings = "[filter]\nscope = \"any\"\n[spiders]\nsoft_rate = 0.5\nhard_rate = 5\n";
    let (running, spider) = start(work.path(), settings, "node");
    spider.crawled("_seed_0", 0.0, &[pages("hot.example", 200), pages("cold.example", 3)].concat());
    let begun = Instant::now();
    let first = spider.request(2);
    assert_eq!(first.iter().filter(|url| url.contains("hot")).count(), 1, "both get their turn: {first:?}");
    let mut hot = 1;
    while begun.elapsed() < Duration::from_secs(4) {
        hot += spider.request(100).iter().filter(|url| url.contains("hot")).count();
        std::thread::sleep(Duration::from_millis(50));
    }
    let allowed = 5.0 * begun.elapsed().as_secs_f64() + 11.0;
    assert!(hot as f64 <= allowed && hot >= 20, "{hot} of {allowed}");
    assert!(running.kill());
}

#[test]
fn depth_and_revisits_go_by_the_rules() {
    let work = tempfile::tempdir().unwrap();
    let settings = format!(
        "{FREE}schedule = \"both\"\ndepth_max = 1\ncrawls_max = 3\nrevisit_rules = \"\"\"\nhttp://a.example/often 1\n\"\"\"\n"
    );
    let (running, spider) = start(work.path(), &settings, "node");
    spider.crawled("_seed_0", 0.0, &["http://a.example/often".to_owned()]);
    assert_eq!(spider.request(9), ["http://a.example/often"]);
    spider.crawled("http://a.example/often", 0.5, &["http://a.example/one".to_owned()]);
    assert_eq!(spider.request(9), ["http://a.example/one"]);
    spider.crawled("http://a.example/one", 0.5, &["http://a.example/two".to_owned()]);
    assert_eq!(spider.stats()["done"], 2, "what is crawled and never again, and what is too deep");
    assert_eq!(spider.request_at_last(9), ["http://a.example/often"]);
    spider.crawled("http://a.example/often", 0.5, &[]);
    assert_eq!(spider.request_at_last(9), ["http://a.example/often"]);
    spider.crawled("http://a.example/often", 0.5, &[]);
    assert_eq!(spider.stats()["scheduled"], 0, "three times are enough");
    let known = spider.post("/frequencies", &json!([["http://a.example/one", 2.0], ["http://x.example/", 1.0]]));
    assert_eq!(known.json()["known"], 1);
    assert_eq!(spider.request_at_last(9), ["http://a.example/one"]);
    assert!(running.kill());
}

#[test]
fn spiders_log_in_and_speak_tls() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    let made = tests::program::run(&["cert", "--certificate", &path("node.crt"), "--key", &path("node.key")]);
    assert_eq!(made.code, Some(0), "{made}");
    std::fs::write(path("users"), "# ours\nspider:s3cret\n").unwrap();
    let (running, spider) = start(work.path(), &format!("[http]\nusers_file = \"users\"\n{FREE}"), "plain");
    let nobody = spider.get("/request");
    assert_eq!((nobody.status, nobody.json()["description"].as_str()), (401, Some("No identity information found.")));
    assert_eq!(nobody.json()["title"], "Authentication required");
    assert!(nobody.head.contains("www-authenticate: basic"));
    let wrong = spider.clone().with_login("c3BpZGVyOndyb25n").get("/request");
    assert_eq!((wrong.status, wrong.json()["description"].as_str()), (401, Some("Authentication failed.")));
    assert_eq!(spider.with_login("c3BpZGVyOnMzY3JldA==").get("/request").status, 200);
    assert!(running.kill());

    let tls = "[http]\nlisten = \"127.0.0.1:0\"\ntls_certificate = \"node.crt\"\ntls_key = \"node.key\"\nusers_file = \"users\"\n";
    std::fs::write(path("node.toml"), format!("{tls}{FREE}")).unwrap();
    let arguments = ["node", "--config", &path("node.toml"), "--data", &path("data"), "--frontier", "127.0.0.1:0"];
    let running = tests::program::Running::start(arguments, work.path(), "tls");
    let door = || running.stderr().lines().find_map(|line| line.strip_prefix("spiders: ").map(str::to_owned));
    wait_until("the door is open", || door().is_some());
    let url = door().unwrap();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let asked = |login: &[&str]| {
        let shown = [
            "--silent",
            "--show-error",
            "--output",
            "-",
            "--write-out",
            " %{http_code}",
            "--cacert",
            &path("node.crt"),
        ];
        let asked =
            std::process::Command::new("curl").args(shown).args(login).arg(&url).output().expect("curl is there");
        (String::from_utf8_lossy(&asked.stdout).into_owned(), String::from_utf8_lossy(&asked.stderr).into_owned())
    };
    assert_eq!(asked(&["--user", "spider:s3cret"]), ("[] 200".to_owned(), String::new()));
    assert!(asked(&[]).0.ends_with(" 401"));
    // Who does not speak TLS is not answered, and holds nobody up.
    let address = url.strip_prefix("https://").unwrap().strip_suffix("/request").unwrap();
    let silent = std::net::TcpStream::connect(address).unwrap();
    assert!(Spider::at(address).try_ask("GET", "/request", "", "").is_none_or(|answer| answer.status != 200));
    assert_eq!(asked(&["--user", "spider:s3cret"]).0, "[] 200");
    drop(silent);
    assert!(running.kill());
}

#[test]
fn every_node_of_a_cluster_serves_and_one_may_die() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "[spiders]\nhard_rate = 0\nlease_s = 5\n");
    let spiders = |fleet: &Fleet| -> Vec<Spider> {
        (0..3).filter_map(|node| fleet.door(node)).map(|address| Spider::at(&address)).collect()
    };
    wait_until("all doors are open", || spiders(&fleet).len() == 3);
    let all: Vec<String> = (0..30).flat_map(|domain| pages(&format!("d{domain}.example"), 4)).collect();
    let doors = spiders(&fleet);
    let body = json!({"url": "_seed_0", "links": all.iter().map(|url| json!([url, 0.5])).collect::<Vec<_>>()});
    wait_until("the seeds are taken", || {
        doors[0]
            .try_ask("POST", "/crawled", "application/json", &body.to_string())
            .is_some_and(|answer| answer.status == 201)
    });
    // Half of them through all three doors, and half of those reported.
    let mut taken: Vec<String> = Vec::new();
    wait_until("every node hands out what it holds", || {
        doors.iter().for_each(|door| taken.extend(door.request(10)));
        taken.len() >= 60
    });
    let distinct: BTreeSet<&String> = taken.iter().collect();
    assert_eq!(distinct.len(), taken.len(), "nobody is told twice");
    let (reported, lost) = taken.split_at(taken.len() / 2);
    for (number, url) in reported.iter().enumerate() {
        doors[number % 3].crawled(url, 0.5, &[]);
    }
    fleet.kill_node(1);
    let doors = [doors[0].clone(), doors[2].clone()];
    let mut rest: BTreeSet<String> = BTreeSet::new();
    wait_until("what is left, and what nobody reported, is handed out by the others", || {
        for door in &doors {
            if let Some(answer) = door.try_ask("GET", "/request?n=50", "", "").filter(|answer| answer.status == 200) {
                let urls = answer.json();
                rest.extend(urls.as_array().unwrap().iter().map(|url| url.as_str().unwrap().to_owned()));
            }
        }
        rest.len() + reported.len() >= all.len()
    });
    assert!(lost.iter().all(|url| rest.contains(url)));
    assert!(reported.iter().all(|url| !rest.contains(url)), "what was reported is done");
}

#[test]
fn no_node_of_a_cluster_exceeds_the_soft_rate_while_another_has_cool_domains() {
    let work = tempfile::tempdir().unwrap();
    let fleet = Fleet::start(work.path(), 3, "[spiders]\nsoft_rate = 0.1\nhard_rate = 100\n");
    wait_until("all doors are open", || (0..3).all(|node| fleet.door(node).is_some()));
    let door = Spider::at(&fleet.door(0).unwrap());
    let find = |pages_of_each: std::ops::Range<usize>| {
        let all = (0..60).flat_map(|domain| pages(&format!("d{domain}.example"), 3)[pages_of_each.clone()].to_vec());
        let body = json!({"url": "_seed_0", "links": all.map(|url| json!([url, 0.5])).collect::<Vec<_>>()});
        wait_until("the seeds are taken", || {
            let answer = door.try_ask("POST", "/crawled", "application/json", &body.to_string());
            answer.is_some_and(|answer| answer.status == 201)
        });
    };
    // One page of each: when all are handed out, somebody serves every one of the domains.
    find(0..1);
    let mut taken = 0;
    wait_until("every domain is served", || {
        taken += door.request(60).len();
        taken == 60
    });
    find(1..3);
    std::thread::sleep(Duration::from_secs(11)); // they cool
    // Whoever serves fewer domains than its share must not give two pages of one while another node has some that gave none.
    let taken = door.request(60);
    let domains: BTreeSet<&str> = taken.iter().map(|url| url.rsplit_once('/').unwrap().0).collect();
    assert_eq!((taken.len(), domains.len()), (60, 60), "{taken:?}");
    assert_eq!(door.request(60).len(), 60, "now that no other has any, they give more");
}

#[test]
fn scores_of_what_spiders_report_reorder_what_they_are_told() {
    let work = tempfile::tempdir().unwrap();
    let settings = format!("{FREE}[score]\nby = \"pagerank\"\nupdate_pages = 30\nupdate_percent = 0.0\n");
    let (running, spider) = start(work.path(), &settings, "node");
    let (listed, hub) = (pages("a.example", 60), "http://b.example/hub".to_owned());
    spider.crawled("_seed_0", 0.0, &listed);
    let first = spider.request(30);
    assert_eq!(first, listed[..30], "equals that were found together come by name");
    first.iter().for_each(|url| spider.crawled(url, 0.0, std::slice::from_ref(&hub)));
    let stderr = || running.stderr();
    let door = stderr().lines().find_map(|line| line.strip_prefix("metrics: http://").map(str::to_owned)).unwrap();
    let door = door.strip_suffix("/metrics").unwrap().to_owned();
    wait_until("scores are computed", || computed(&door) > 0);
    assert_eq!(spider.request(2), [hub.as_str(), listed[30].as_str()], "who is linked to most is next");
    let data = work.path().join("data");
    let told = |arguments: &[&str]| {
        let ended = run(&[&["ctl", "--json", "--data", data.to_str().unwrap()], arguments].concat());
        assert_eq!(ended.code, Some(0), "{ended}");
        ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let (scheduled, best) = (told(&["schedule", "dump"]), told(&["pages", "rank", "--top", "1"]));
    running.interrupt();
    let ended = running.wait();
    assert_eq!(ended.code, Some(0), "{ended}");

    let waiting = rows(&["schedule", "dump"], &data);
    let urls = |rows: &[Value]| rows.iter().map(|row| row["url"].to_string()).collect::<BTreeSet<String>>();
    assert_eq!((urls(&scheduled), scheduled.len()), (urls(&waiting), waiting.len()), "a node that runs tells the same");
    assert_eq!(best[0]["url"], hub.as_str());
    assert_eq!(waiting.len(), 31, "29 that wait, the hub and another that are handed out");
    assert_eq!(waiting.iter().filter(|row| row["not_before_ms"].is_u64()).count(), 2);
    assert!(waiting.iter().find(|row| row["url"] == hub.as_str()).unwrap()["level"].as_i64() > Some(0));
    let best = rows(&["pages", "rank", "--top", "1"], &data);
    assert_eq!(best[0]["url"], hub.as_str());
    let links = rows(&["pages", "links", &hub], &data);
    assert_eq!(links.iter().filter(|row| row["relation"] == "from").count(), 30);
    let info = rows(&["pages", "dump", "info"], &data);
    assert_eq!(info.len(), 31, "pages that were crawled, and what they link to");
    let of_hub = info.iter().find(|row| row["url"] == hub.as_str()).unwrap();
    assert!(of_hub["score"].as_f64() > Some(0.3) && of_hub["depth"] == 1 && of_hub["crawls"] == 0, "{of_hub}");
}

/// A web of pages on many domains, each of which links to some others.
fn links_of(page: usize, count: usize) -> Vec<String> {
    let linked = |step: usize| (page * 7 + step * step * 13 + 5) % count;
    let url = |page: usize| format!("http://d{}.example/{page}", page % 17);
    (0..page % 5).map(|step| url(linked(step))).chain(page.is_multiple_of(3).then(|| url(0))).collect()
}

fn url_of(page: usize) -> String {
    format!("http://d{}.example/{page}", page % 17)
}

#[test]
fn a_cluster_computes_what_one_node_would_also_without_one_of_its_nodes() {
    let work = tempfile::tempdir().unwrap();
    let section = "[spiders]\nhard_rate = 0\n[score]\nby = \"pagerank\"\nupdate_interval_s = 1\n";
    let mut fleet = Fleet::start(work.path(), 3, section);
    wait_until("all doors are open", || (0..3).all(|node| fleet.door(node).is_some()));
    let doors: Vec<String> = (0..3).map(|node| fleet.door(node).unwrap()).collect();
    let report = |page: usize, node: usize| {
        let links: Vec<Value> = links_of(page, 400).iter().map(|link| json!([link, 0.5])).collect();
        let body = json!({"url": url_of(page), "links": links}).to_string();
        wait_until("a report is taken", || {
            let answer = Spider::at(&doors[node]).try_ask("POST", "/crawled", "application/json", &body);
            answer.is_some_and(|answer| answer.status == 201)
        });
    };
    let known = |pages: usize| {
        let all = (0..pages).flat_map(|page| links_of(page, 400).into_iter().chain([url_of(page)]));
        all.collect::<BTreeSet<String>>().len()
    };
    (0..100).for_each(|page| report(page, page % 3));
    wait_until("three nodes compute what one would", || apart(&fleet, &[0, 1, 2], known(100)) < 1e-6);

    // One dies while scores are computed again and again; the others come to the same.
    (100..150).for_each(|page| report(page, page % 3));
    fleet.kill_node(1);
    (150..200).for_each(|page| report(page, if page.is_multiple_of(2) { 0 } else { 2 }));
    wait_until("two nodes compute what one would", || apart(&fleet, &[0, 2], known(200)) < 1e-6);
    assert!([0, 2].iter().all(|node| computed(&doors[*node]) > 1));
}
