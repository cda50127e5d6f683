//! Extraction through the real program: a site with rules is crawled, and what was made of its pages is read back, from a node alone and from three.

use std::path::Path;

use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::program::{Ended, run, run_with_input};
use tests::raw::{RawServer, Reply};
use tests::sites::{dc, done, node_alone, refused, site};
use tests::wait_until;

const ARTICLE: &str = "<html><head><title>x</title></head><body><h1>Bridge <i>open</i></h1><time datetime='2026-11-16T06:30:00+01:00'>Monday</time>\
<p class=text>First.</p><p class=text>Second.</p><a href='/copy'>copy</a> <a href='/poor'>poor</a> <a href='/image'>image</a> <a href='/feed'>feed</a></body></html>";

/// A small site: an article, a copy of it under another title, a page that lacks what it must have, a picture, and a feed.
fn server() -> RawServer {
    RawServer::start(|asked| {
        let html = |text: &str| Reply::file("text/html; charset=utf-8", text);
        match asked.path {
            "/robots.txt" => Reply::status(404),
            "/" => html(ARTICLE),
            "/copy" => html(&ARTICLE.replace("<title>x", "<title>y").replace("</body>", "<!-- later --></body>")),
            "/poor" => html("<p class=text>No title here.</p>"),
            "/image" => Reply::file("image/gif", "GIF89a...."),
            "/feed" => Reply::file(
                "application/rss+xml",
                "<rss><channel><title>News</title><item><title>One</title><link>/item-1</link>\
                 <pubDate>Mon, 16 Nov 2026 06:30:00 GMT</pubDate></item></channel></rss>",
            ),
            _ => Reply::status(404),
        }
    })
}

fn properties() -> Value {
    let template = json!({"templates": [{"tags": {
        "title": [{"target": "//h1", "mandatory": 1}],
        "pubdate": [{"target": "time", "type": {"name": "datetime"}}],
        "content_encoded": [{"target": "p.text", "join": "concat", "delimiter": "\n"}]}}]});
    json!([
        {"name": "template", "value": template},
        {"name": "PROCESSOR_NAME_REPLACE", "value": {"application/rss+xml": "FEED_PARSER"}},
        {"name": "CONTENT_HASH", "value": {"algorithm": 1, "tags": "title,content_encoded"}},
    ])
}

/// What is known of a URL of the site.
fn url(data: &str, url: &str) -> Value {
    let (_, answer) = dc(data, "URL_STATUS", &json!({"siteId": "news", "url": url}), &[]);
    answer["itemsList"][0]["itemObject"][0].clone() // null while nobody answers
}

fn processed(data: &str, url: &str) -> Value {
    let ended = run(&["ctl", "--data", data, "url", "content", url, "--site", "news", "--what", "processed"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    serde_json::from_str(&ended.stdout).unwrap()
}

fn all_are_settled(data: &str, server: &RawServer) -> bool {
    ["/", "/copy", "/poor", "/image", "/feed"].iter().all(|path| url(data, &server.url(path))["status"] == 7)
}

#[test]
fn a_site_with_rules_gives_records_counters_and_error_bits() {
    let work = tempfile::tempdir().unwrap();
    let server = server();
    let (node, data) = node_alone(work.path());
    let data = data.as_str();

    // A rule that is wrong is said with rule and place when the site is made, and nothing is changed.
    let wrong = json!({"tags": {"title": [{"target": "//h1"}, {"target": "//h1[@class='a"}]}});
    let body = json!({"id": "news", "urls": [server.url("/")], "properties": [{"name": "template", "value": wrong}]});
    refused(data, "SITE_NEW", &body, 2000, "properties[0].value.templates[0].tags.title[1].target: at character 13");
    assert_eq!(site(data, "news"), json!({"id": "news", "state": 9}));

    done(data, "SITE_NEW", &json!({"id": "news", "urls": [server.url("/")], "properties": properties()}));
    wait_until("everything is crawled and processed", || all_are_settled(data, &server));

    let article = processed(data, &server.url("/"));
    let item = &article["items"][0];
    assert_eq!((&item["title"], &item["content_encoded"]), (&json!("Bridge open"), &json!("First.\nSecond.")));
    assert_eq!((&item["pubdate"], &article["pDate"]), (&json!("2026-11-16 05:30:00"), &json!("2026-11-16 05:30:00")));
    let feed = processed(data, &server.url("/feed"));
    assert_eq!((&feed["processor"], &feed["items"][0]["title"]), (&json!("FEED_PARSER"), &json!("One")));
    assert_eq!(feed["items"][0]["link"], server.url("/item-1"));
    entry_is_a_url_of_its_own(data, &server);

    // Error bits: what is none of the rules' business is skipped, what lacks a mandatory tag has failed.
    let (poor, image) = (url(data, &server.url("/poor")), url(data, &server.url("/image")));
    assert_eq!((&poor["state"], &poor["errorMask"]), (&json!(2), &json!(1u64 << 39)));
    assert_eq!((&image["state"], &image["errorMask"], &image["processed"]), (&json!(0), &json!(1u64 << 34), &json!(0)));
    let good = url(data, &server.url("/"));
    assert_eq!((&good["state"], &good["errorMask"], &good["processed"]), (&json!(0), &json!(0), &json!(1)));
    assert_eq!((&good["pDate"], &good["tagsCount"]), (&json!("2026-11-16 05:30:00"), &json!(3)));
    assert_eq!((&poor["pDate"], &poor["tagsCount"]), (&Value::Null, &json!(1)));
    assert_eq!(image["tagsCount"], Value::Null, "nothing was made of it");
    let dated = json!({"sitesList": ["news"], "urlsCriterions": {"WHERE": "pDate < '2026-11-17 00:00:00' AND tagsCount > 2", "ORDER BY": "pDate"}});
    assert_eq!(
        done(data, "URL_FETCH", &dated).as_array().map(Vec::len),
        Some(3),
        "article, copy and entry of the feed"
    );
    let ended =
        run(&["ctl", "--data", data, "url", "content", &server.url("/image"), "--site", "news", "--what", "processed"]);
    assert_eq!(ended.code, Some(1), "{ended}");

    // The same title and text under another title of the page is the same content.
    let (one, two) = (url(data, &server.url("/")), url(data, &server.url("/copy")));
    let duplicates: Vec<&Value> = [&one, &two].into_iter().filter(|url| url["contentURLMd5"].is_string()).collect();
    assert_eq!(duplicates.len(), 1, "{one} {two}");
    let other = if duplicates[0]["url"] == one["url"] { &two } else { &one };
    assert_eq!(duplicates[0]["contentURLMd5"], other["urlMd5"]);

    let told = site(data, "news");
    assert_eq!((&told["contents"], &told["resources"]), (&json!(6), &json!(6)), "five pages and an entry: {told}");

    through_operations(data, work.path(), &server);
    node.interrupt();
    assert_eq!(node.wait().code, Some(0));
    exports(data, work.path(), &server);
}

/// An entry of a feed is a URL that nobody asked for, with the entry as its content.
fn entry_is_a_url_of_its_own(data: &str, server: &RawServer) {
    let (entry, feed) = (url(data, &server.url("/item-1")), url(data, &server.url("/feed")));
    assert_eq!((&entry["type"], &entry["status"], &entry["state"]), (&json!(4), &json!(7), &json!(0)), "{entry}");
    assert_eq!((&entry["crawled"], &entry["parentMd5"]), (&json!(0), &feed["urlMd5"]), "{entry}");
    assert_eq!((&entry["pDate"], &entry["title"]), (&json!("2026-11-16 06:30:00"), &json!("One")), "{entry}");
    let asked = json!({"siteId": "news", "url": server.url("/item-1"), "contentTypeMask": 1});
    let content = told(&done(data, "URL_CONTENT", &asked)[0]);
    assert_eq!((&content["items"][0]["title"], &content["url"]), (&json!("One"), &json!(server.url("/item-1"))));
    assert!(!server.pages().iter().any(|path| path == "/item-1"), "it is not fetched");
}

/// The hour of the day, in UTC, so many hours from now.
fn hour(from_now: u64) -> String {
    let hours = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 3_600 + from_now;
    format!("{:02}:00", hours % 24)
}

#[test]
fn filters_and_hours_of_a_site_hold_while_it_is_crawled() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/" => Reply::page(&["/secret", "/hidden", "/plain"]),
        "/secret" => Reply::file("text/html", "<h1>secret</h1><a href='/found'>found</a>"),
        "/hidden" => Reply::file("text/html", "<a href='/behind'>behind</a>").header("X-Hidden", "yes"),
        "/plain" => Reply::text("plain"),
        "/found" => Reply::page(&["/"]),
        _ => Reply::status(404),
    });
    let (node, data) = node_alone(work.path());
    let data = data.as_str();
    let filters = json!([
        {"stage": 1, "subject": "HEADERS_ALL", "pattern": "(?i)x-hidden: yes", "action": -1},
        {"stage": 7, "pattern": "<h1>secret", "action": -1},
    ]);
    let properties = |limits: Value| {
        json!([
            {"name": "PROCESSOR_NAME", "value": "STORE"},
            {"name": "ALLOWED_CTYPES", "value": "text/html"},
            {"name": "HTTP_FREQ_LIMITS", "value": limits},
        ])
    };
    // Closed for some hours, of which two are over at the least and two to come.
    let closed = json!([{"from": hour(21), "to": hour(3), "max": 0}]);
    let new = json!({"id": "news", "urls": [server.url("/")], "requestDelay": 20, "filters": filters, "properties": properties(closed)});
    done(data, "SITE_NEW", &new);
    // Another site shows that the node fetches by now.
    done(data, "SITE_NEW", &json!({"id": "other", "urls": [server.url("/plain")], "requestDelay": 20}));
    wait_until("the other site is crawled", || site(data, "other")["contents"] == 1);
    assert_eq!(server.pages(), ["/plain"], "nothing is asked for in the hours of a site that are closed");
    let waits = url(data, &server.url("/"));
    assert_eq!((&waits["status"], &waits["errorMask"]), (&json!(1), &json!(1u64 << 49)), "it waits, and says why");
    let listed = done(data, "URL_FETCH", &json!({"sitesList": ["news"], "maxURLs": 1}));
    assert_eq!(listed[0]["errorMask"], 1u64 << 49, "{listed}");

    let opened = json!({"id": "news", "properties": properties(json!({"max": 50, "period": 1}))});
    done(data, "SITE_UPDATE", &opened);
    wait_until("it is crawled when it is open", || {
        ["/", "/secret", "/hidden", "/plain", "/found"].iter().all(|path| url(data, &server.url(path))["status"] == 7)
    });
    let of = |path: &str| {
        let told = url(data, &server.url(path));
        (told["errorMask"].as_u64().unwrap(), told["state"].as_u64().unwrap(), told["processed"].as_u64().unwrap())
    };
    assert_eq!(of("/"), (0, 0, 1));
    assert_eq!(of("/secret"), (1 << 40, 0, 0), "left out by a filter of the processor, its links are followed");
    assert_eq!(of("/hidden"), (1 << 54, 0, 0), "left out by a filter of the crawler");
    assert_eq!(of("/plain"), (1 << 4, 0, 0), "of a type that is not wanted");
    assert!(!server.pages().iter().any(|path| path == "/behind"), "its links are not followed");
    assert_eq!(done(data, "URL_STATUS", &json!({"siteId": "news", "url": server.url("/behind")})), json!([]));
    let told = processed(data, &server.url("/found"));
    assert_eq!(told["processor"], "STORE");

    // What no counter keeps is measured when it is asked for; a URL tells what its site says.
    let plain = site(data, "news");
    assert_eq!((&plain["avgSpeedCounter"], &plain["tcDateProcess"]), (&Value::Null, &Value::Null));
    let measured = done(data, "SITE_STATUS", &json!({"id": "news", "measure": 1}));
    let text = "SELECT COUNT(url), SUM(size), SUM(crawlingTime) FROM urls WHERE siteId = 'news' AND crawlingTime > 0 AND size > 0";
    let sums = done(data, "SQL_CUSTOM", &json!({"query": text}))["rows"][0].clone();
    let sum = |name: &str| sums[name].as_u64().unwrap_or(0);
    let speed = (sum("SUM(size)") * 1_000).checked_div(sum("SUM(crawlingTime)")).unwrap_or(0);
    assert_eq!((&measured["avgSpeedCounter"], &measured["avgSpeed"]), (&json!(sum("COUNT(url)")), &json!(speed)));
    let (crawled, processed) = (measured["tcDate"].as_str().unwrap(), measured["tcDateProcess"].as_str().unwrap());
    assert!(crawled >= processed && processed.len() == 19, "{measured}");
    let root = url(data, &server.url("/"));
    assert_eq!((&root["requestDelay"], &root["httpMethod"], &root["type"]), (&json!(20), &json!("get"), &json!(0)));
    let listed = done(data, "URL_FETCH", &json!({"sitesList": ["news"], "maxURLs": 1}));
    assert_eq!(listed[0]["requestDelay"], 20, "{listed}");
    let many = done(data, "SITE_STATUS", &json!([{"id": "nosuch", "measure": 1}, {"id": "news", "measure": 1}]));
    assert_eq!((&many[0]["state"], &many[1]["tcDate"]), (&json!(9), &measured["tcDate"]), "{many}");
    refused(data, "SITE_STATUS", &json!({"id": "news", "measure": "x"}), 2000, "measure");

    // So many a day: a limit that leaves hours between two pages is taken, and kept.
    let daily = json!({"id": "daily", "urls": [server.url("/"), server.url("/plain")], "requestDelay": 20, "properties": [
        {"name": "HTTP_FREQ_LIMITS", "value": {"max": 1, "period": 31 * 86_400}}]});
    let before = server.pages().len();
    done(data, "SITE_NEW", &daily);
    wait_until("it gets its page", || server.pages().len() > before);
    done(data, "SITE_NEW", &json!({"id": "last", "urls": [server.url("/found")], "requestDelay": 20, "urlType": 1}));
    wait_until("another site has its own", || site(data, "last")["contents"] == 1);
    assert_eq!(
        server.pages().len(),
        before + 2,
        "one page in a month, and that of the other site: {:?}",
        server.pages()
    );
    drop(node);
}

/// The record of a content as operations tell it.
fn told(contents: &Value) -> Value {
    let buffer = contents["processedContents"][0]["buffer"].as_str().expect("it was processed");
    serde_json::from_slice(&proto::base64::from_base64(buffer).unwrap()).unwrap()
}

/// URL_CONTENT tells what was made of a page; BATCH has pages crawled and processed now, and tells it too.
fn through_operations(data: &str, work: &Path, server: &RawServer) {
    let content = done(data, "URL_CONTENT", &json!({"siteId": "news", "url": server.url("/"), "contentTypeMask": 1}));
    assert_eq!(told(&content[0])["items"][0]["title"], "Bridge open");
    let none = done(data, "URL_CONTENT", &json!({"siteId": "news", "url": server.url("/image"), "contentTypeMask": 1}));
    assert_eq!(none[0]["status"], 3, "nothing was made of it: {none}");

    let item = |path: &str| json!({"siteId": "news", "urlObj": {"url": server.url(path)}});
    let late = |item: &Value| item["urlObj"]["errorMask"].as_u64().is_none_or(|mask| mask & 1 << 52 != 0);
    let mut batch = Value::Null;
    // A batch waits for 45 s at most; a slow machine may need another.
    wait_until("the batch is done", || {
        batch = done(data, "BATCH", &json!({"id": 5, "items": [item("/"), item("/?new")]}));
        !batch["items"].as_array().unwrap().iter().any(late)
    });
    let again = batch["items"][0].clone();
    assert_eq!(again["urlObj"]["status"], 7, "{batch}");
    assert!(again["urlObj"]["crawled"].as_u64() >= Some(2), "{batch}");
    assert_eq!(told(&again["urlContentResponse"])["items"][0]["title"], "Bridge open");
    let missing = &batch["items"][1]["urlObj"];
    assert_eq!((&missing["httpCode"], &missing["state"], &batch["id"]), (&json!(404), &json!(2), &json!(5)), "{batch}");
    refused(
        data,
        "BATCH",
        &json!({"items": [{"siteId": "nosuch", "urlObj": {"url": server.url("/")}}]}),
        2020,
        "nosuch",
    );
    refused(data, "BATCH", &json!({"items": [{"urlObj": {}}]}), 2000, "items[0].urlObj.url");

    // An item may bring rules of its own: what is told goes by them, what is kept by those of the site.
    let mut own = item("/");
    own["properties"] = json!({"template": {"tags": {"headline": "//h1"}}});
    wait_until("the batch with rules of its own is done", || {
        batch = done(data, "BATCH", &json!({"items": [own]}));
        !late(&batch["items"][0])
    });
    let mine = &batch["items"][0];
    assert_eq!(told(&mine["urlContentResponse"])["items"], json!([{"headline": "Bridge open"}]), "{batch}");
    assert_eq!((&mine["urlObj"]["errorMask"], &mine["urlObj"]["urlMd5"]), (&json!(0), &again["urlObj"]["urlMd5"]));
    let kept = done(data, "URL_CONTENT", &json!({"siteId": "news", "url": server.url("/"), "contentTypeMask": 1}));
    assert_eq!(told(&kept[0])["items"][0]["title"], "Bridge open");
    own["properties"] = json!({"template": {"tags": {"headline": "//["}}});
    refused(data, "BATCH", &json!({"items": [own]}), 2000, "items[0].siteObj.properties");

    let file = work.join("batch.json");
    std::fs::write(&file, json!({"items": [item("/")]}).to_string()).unwrap();
    let ended = run(&["ctl", "--data", data, "batch", file.to_str().unwrap()]);
    let shown: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    assert_eq!((ended.code, &shown["items"][0]["urlObj"]["url"]), (Some(0), &json!(server.url("/"))), "{ended}");
}

/// What a folder gives when nobody uses it.
fn exports(data: &str, work: &Path, server: &RawServer) {
    let ended = run(&["export", data, "--format", "processed", "--crawl", "news"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    let records: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 4, "all but the picture: {ended}");
    assert!(records.iter().all(|record| record["site"] == "news" && record["items"].is_array()));

    let folder = work.join("raw");
    let files = ["export", data, "--format", "files", "--crawl", "news", "--output", folder.to_str().unwrap()];
    let ended = run(&files);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stdout.contains(" files of 6 URLs"), "{ended}");
    let md5 = proto::site::md5_hex(&server.url("/"));
    let of_article = folder.join("news").join(&md5[..2]).join(&md5[2..]);
    let names: Vec<String> = std::fs::read_dir(&of_article)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let body = names.iter().find(|name| name.ends_with(".bin")).expect("the body is there");
    assert_eq!(std::fs::read_to_string(of_article.join(body)).unwrap(), ARTICLE);
    assert!(
        names.iter().any(|name| name.ends_with(".headers.txt"))
            && names.iter().any(|name| name.ends_with(".requests.txt"))
    );
    assert!(run(&files).stdout.contains("0 files of 6 URLs"), "nothing is written twice");
}

/// Pages of all nodes that lack their second copy; `None` while a node does not say.
fn lacking(fleet: &Fleet, nodes: usize) -> Option<u64> {
    let said = fleet.ask(&["stat", "copier"]);
    let parts = said["Admin"].as_array()?;
    let counters = parts.iter().filter_map(|part| part["said"]["Ok"]["Stat"][0]["counters"].as_array()).flatten();
    let lacking: Vec<u64> = counters
        .filter(|counter| counter[0] == "pages_lacking_a_copy")
        .filter_map(|counter| counter[1].as_u64())
        .collect();
    (lacking.len() == nodes).then(|| lacking.iter().sum())
}

#[test]
fn processed_contents_survive_the_loss_of_any_node() {
    let work = tempfile::tempdir().unwrap();
    let server = server();
    let mut fleet = Fleet::start(work.path(), 3, "");
    let data = fleet.folder().to_owned();
    let body = json!({"id": "news", "urls": [server.url("/")], "properties": properties()});
    wait_until("the cluster takes a site", || {
        let (ended, _) = dc(&data, "SITE_NEW", &body, &[]);
        ended.code == Some(0) || site(&data, "news")["state"] == 1
    });
    wait_until("everything is crawled and processed", || all_are_settled(&data, &server));
    let expected = processed(&data, &server.url("/"));
    assert_eq!(expected["items"][0]["title"], "Bridge open");
    entry_is_a_url_of_its_own(&data, &server);
    // The record is on a second disk: whichever node is lost, the others have it.
    wait_until("every page has its second copy", || lacking(&fleet, 3) == Some(0));
    for lost in 0..3 {
        fleet.kill_node(lost);
        assert_eq!(processed(&data, &server.url("/")), expected, "without node {lost}");
        fleet.start_node(lost);
        wait_until("the node is back", || lacking(&fleet, 3).is_some());
    }
}

/// Runs a batch program; how it ended, and the batch that came out.
fn batch_program(arguments: &[&str], input: &str) -> (Ended, Value) {
    let ended = run_with_input(arguments, input);
    let batch = serde_json::from_str(&ended.stdout).unwrap_or(Value::Null);
    (ended, batch)
}

fn crawl_batch(batch: &Value) -> (Ended, Value) {
    batch_program(&["crawl-batch", "--allow-address", "127.0.0.0/8"], &batch.to_string())
}

#[test]
fn links_of_a_batch_are_crawled_as_often_as_it_says() {
    let server = RawServer::start(|asked| match asked.path {
        "/" => Reply::page(&["/a", "/private", "http://elsewhere.example/", "/"]),
        "/a" => Reply::page(&["/b", "/"]),
        "/b" => Reply::page(&["/c"]),
        "/private" | "/c" => Reply::page(&[] as &[&str]),
        _ => Reply::status(404),
    });
    let site = json!({"id": "news", "requestDelay": 1, "filters": [{"pattern": "/private", "type": 0}]});
    let item = json!({"siteId": "news", "siteObj": site, "urlObj": {"url": server.url("/")}});
    let crawled = |more: Value| {
        let mut batch = json!({"id": 7, "items": [item]});
        batch.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (ended, crawled) = crawl_batch(&batch);
        assert_eq!(ended.code, Some(0), "{ended}");
        let found =
            crawled["items"].as_array().unwrap().iter().map(|item| item["urlObj"]["url"].as_str().unwrap().to_owned());
        (found.collect::<Vec<String>>(), crawled)
    };
    let urls = |paths: &[&str]| paths.iter().map(|path| server.url(path)).collect::<Vec<String>>();
    assert_eq!(crawled(json!({})).0, urls(&["/"]));
    let (found, batch) = crawled(json!({"maxIterations": 3}));
    assert_eq!(found, urls(&["/", "/a", "/b"]));
    let last = &batch["items"][2];
    assert_eq!(
        (&last["depth"], &last["urlObj"]["parentMd5"]),
        (&json!(2), &json!(proto::site::md5_hex(&server.url("/a"))))
    );
    assert_eq!((&last["urlObj"]["batchId"], &last["urlObj"]["status"]), (&json!(7), &json!(4)), "{last}");
    let (found, batch) = crawled(json!({"maxIterations": 9, "maxItems": 2}));
    assert_eq!((found, &batch["errorMask"]), (urls(&["/", "/a"]), &json!(1u64 << 42)));
    assert_eq!(crawled(json!({"maxIterations": 9})).0, urls(&["/", "/a", "/b", "/c"]));
    assert!(!server.pages().iter().any(|path| path == "/private"));
}

#[test]
fn a_batch_goes_by_the_proxies_the_hours_and_the_filters_of_its_sites() {
    let server = RawServer::start(|asked| match asked.path {
        "/one" | "/two" => Reply::page(&["/x"]),
        "/secret" | "/open" => Reply::page(&[format!("{}-link", asked.path)]),
        "/to-login" => Reply::redirect("/login"),
        "/away" => Reply::redirect("http://127.0.0.2:1/"),
        _ => Reply::status(404),
    });
    let proxy = RawServer::start(|asked| match asked.path {
        path if path.ends_with("/far") => Reply::page(&["/y"]),
        _ => Reply::status(404),
    });
    let item = |id: &str, path: &str, more: Value| {
        let mut site = json!({"id": id, "requestDelay": 1});
        site.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"siteId": id, "siteObj": site, "urlObj": {"url": server.url(path)}})
    };
    let limits = |limits: Value| json!({"properties": [{"name": "HTTP_FREQ_LIMITS", "value": limits.to_string()}]});
    let closed =
        limits(json!([{"from": "00:00", "to": "12:00", "max": 0}, {"from": "12:00", "to": "00:00", "max": 0}]));
    let seldom = limits(json!({"max": 1, "period": 86_400}));
    let through = |host: String| json!({"proxies": [{"host": host}]});
    let no_login = json!({"filters": [{"pattern": "/login", "stage": 8, "action": -1}]});
    let (ended, crawled) = crawl_batch(&json!({"items": [
        item("seldom", "/one", seldom.clone()),
        item("seldom", "/two", seldom),
        item("dead", "/dead", through("127.0.0.1:1".to_owned())),
        item("far", "/far", through(proxy.address().to_string())),
        item("closed", "/closed", closed),
        item("login", "/to-login", no_login),
        item("away", "/away", json!({})),
    ]}));
    assert_eq!(ended.code, Some(0), "{ended}");
    let told = crawled["items"].as_array().cloned().unwrap_or_default();
    let told: Vec<(u64, u64, u64)> = told
        .iter()
        .map(|item| {
            let number = |name: &str| item["urlObj"][name].as_u64().unwrap_or(0);
            (number("status"), number("httpCode"), number("errorMask"))
        })
        .collect();
    let bit = |bit: u64| 1u64 << bit;
    let expected =
        [(4, 200, 0), (1, 0, bit(49)), (4, 0, bit(47)), (4, 200, 0), (1, 0, bit(49)), (4, 0, bit(54)), (4, 0, bit(54))];
    assert_eq!(told, expected, "{crawled}");
    assert!(proxy.head_of(&server.url("/far")).is_some(), "{:?}", proxy.pages());
    assert_eq!(server.pages(), ["/one", "/to-login", "/away"], "nothing else was asked for directly");

    // Links of a page that the site does not want are not followed.
    let unwanted =
        json!({"filters": [{"pattern": "/secret-link", "stage": 1, "subject": "RAW_CONTENT", "action": -1}]});
    let items = ["/secret", "/open"].map(|path| item("picky", path, unwanted.clone()));
    let (ended, crawled) = crawl_batch(&json!({"items": items, "maxIterations": 2}));
    assert_eq!(ended.code, Some(0), "{ended} {crawled}");
    assert!(server.pages().contains(&"/open-link".to_owned()) && !server.pages().contains(&"/secret-link".to_owned()));
}

#[test]
fn batches_are_crawled_and_processed_without_a_node() {
    let server = RawServer::start(|asked| match asked.path {
        "/robots.txt" => Reply::text("User-agent: *\nDisallow: /private/"),
        "/" => Reply::file("text/html", ARTICLE),
        "/moved" => Reply::redirect("/"),
        "/empty" => Reply::file("text/html", ""),
        "/forbidden" => Reply::status(403),
        "/loop" => Reply::redirect("/loop?again"),
        path if path.starts_with("/loop") => Reply::redirect(format!("{path}x")),
        _ => Reply::status(404),
    });
    let site = json!({"id": "news", "requestDelay": 1, "properties": properties()});
    let item = |path: &str| json!({"siteId": "news", "siteObj": site, "urlObj": {"url": server.url(path), "crawled": 2}, "depth": 1});
    let paths = ["/", "/moved", "/empty", "/forbidden", "/private/x", "/loop"];
    let items: Vec<Value> = paths.iter().map(|path| item(path)).collect();
    let suspended = json!({"siteId": "b", "siteObj": {"id": "b", "state": 3}, "urlObj": {"url": server.url("/never")}});
    let items: Vec<Value> = items.into_iter().chain([suspended]).collect();
    let (ended, crawled) = crawl_batch(&json!({"id": 42, "crawlerType": 4, "items": items}));
    assert_eq!(ended.code, Some(0), "{ended}");
    let of = |batch: &Value, path: &str| {
        let items = batch["items"].as_array().unwrap().clone();
        items.into_iter().find(|item| item["urlObj"]["url"] == server.url(path)).unwrap_or_default()
    };
    let bit = |bit: u64| json!(1u64 << bit);
    let good = of(&crawled, "/");
    assert_eq!(
        (&good["urlObj"]["status"], &good["urlObj"]["httpCode"], &good["urlObj"]["crawled"]),
        (&json!(4), &json!(200), &json!(3))
    );
    assert_eq!(
        (&good["urlObj"]["batchId"], &good["depth"], &crawled["crawlerType"]),
        (&json!(42), &json!(1), &json!(4))
    );
    assert_eq!(of(&crawled, "/moved")["urlObj"]["httpCode"], 200);
    assert_eq!(of(&crawled, "/empty"), Value::Null, "an item without content is dropped");
    assert_eq!(of(&crawled, "/forbidden"), Value::Null);
    assert_eq!(of(&crawled, "/private/x")["urlObj"]["errorMask"], bit(11));
    assert_eq!(of(&crawled, "/loop")["urlObj"]["errorMask"], bit(17));
    assert_eq!(of(&crawled, "/never")["urlObj"]["errorMask"], bit(41));
    assert!(!server.pages().iter().any(|path| path == "/private/x" || path == "/never"));

    let (ended, processed) = batch_program(&["process-batch"], &crawled.to_string());
    assert_eq!(ended.code, Some(0), "{ended}");
    let good = of(&processed, "/");
    assert_eq!(
        (&good["urlObj"]["status"], &good["urlObj"]["state"], &good["urlObj"]["processed"]),
        (&json!(7), &json!(0), &json!(1))
    );
    let record = good["urlContentResponse"]["processedContents"][0]["buffer"].as_str().unwrap();
    let record: Value = serde_json::from_slice(&proto::base64::from_base64(record).unwrap()).unwrap();
    assert_eq!(record["items"][0]["title"], "Bridge open");
    assert_eq!(good["urlObj"]["pDate"], "2026-11-16 05:30:00");
    let forbidden = of(&processed, "/private/x");
    assert_eq!(
        (&forbidden["urlObj"]["status"], &forbidden["urlObj"]["errorMask"]),
        (&json!(4), &bit(11)),
        "not fit for processing"
    );

    // Sites that have passed their limits, as their own counts say: other bits for the crawler and the processor, and nothing is asked for.
    let limited = |id: &str, more: Value| {
        let mut site = site.clone();
        site.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"siteId": id, "siteObj": site, "urlObj": {"url": server.url("/never"), "contentType": "text/html"}})
    };
    let beyond =
        [limited("a", json!({"maxErrors": 2, "errors": 3})), limited("b", json!({"maxResources": 2, "resources": 3}))];
    let bits = |batch: &Value| {
        let items = batch["items"].as_array().unwrap().iter();
        items.map(|item| (item["urlObj"]["errorMask"].clone(), item["siteObj"]["state"].clone())).collect::<Vec<_>>()
    };
    let (ended, crawled) = crawl_batch(&json!({"items": beyond}));
    assert_eq!((ended.code, bits(&crawled)), (Some(0), vec![(bit(14), json!(3)), (bit(15), json!(3))]), "{ended}");
    let (ended, processed) = batch_program(&["process-batch"], &json!({"items": beyond}).to_string());
    assert_eq!((ended.code, bits(&processed)), (Some(0), vec![(bit(32), json!(3)), (bit(33), json!(3))]), "{ended}");
    assert!(!server.pages().iter().any(|path| path == "/never"));

    // What the time does not suffice for goes out as NEW, or not at all.
    let slow = json!({"id": "slow", "requestDelay": 60_000});
    let items = ["/", "/moved", "/late"].map(|path| json!({"siteObj": slow, "urlObj": {"url": server.url(path)}}));
    for (drops, late) in [(json!(0), 2), (json!(true), 0)] {
        let (ended, crawled) =
            crawl_batch(&json!({"items": items, "maxExecutionTime": 1, "removeUnprocessedItems": drops}));
        let of_time = |item: &&Value| item["urlObj"]["errorMask"] == bit(52) && item["urlObj"]["status"] == 1;
        assert_eq!(crawled["items"].as_array().unwrap().iter().filter(of_time).count(), late, "{ended}");
        assert_eq!((ended.code, &crawled["errorMask"]), (Some(0), &bit(52)), "{ended}");
    }

    // What is no batch ends with 1 and says which field is wrong.
    for (input, word) in [
        ("nonsense", "no JSON"),
        ("{}", "items"),
        (r#"{"items": [{"urlObj": {}}]}"#, "items[0].urlObj.url"),
        (
            r#"{"items": [{"urlObj": {"url": "http://a/"}, "properties": {"template": {"tags": {"a": "//["}}}}]}"#,
            "at character 3",
        ),
    ] {
        for program in ["crawl-batch", "process-batch"] {
            let (ended, _) = batch_program(&[program], input);
            assert!(ended.code == Some(1) && ended.stderr.contains(word), "{input}\n{ended}");
        }
    }
    let (ended, empty) = crawl_batch(&json!({"items": []}));
    assert_eq!((ended.code, empty), (Some(0), json!({"items": []})));
}
