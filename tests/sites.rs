//! Sites through the command line of a running node, and of three: made, changed, looked at, found, emptied and deleted; good, bad, empty, repeated and
//! unknown requests; and that the crawl follows them.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::program::{Running, run};
use tests::raw::{RawServer, Reply};
use tests::sites::{dc, done, node_alone, object, refused, site, web};
use tests::wait_until;

#[test]
fn every_operation_answers_good_bad_repeated_and_unknown_requests() {
    let work = tempfile::tempdir().unwrap();
    let (node, data) = node_alone(work.path());
    let data = data.as_str();

    // New: a root URL is enough, its MD5 is the id; defaults are those of the original.
    let made = done(data, "SITE_NEW", &json!({"urls": ["http://127.0.0.1:1/"], "state": 3, "description": null}));
    let id = made["statuses"][0].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 32);
    let told = site(data, &id);
    assert_eq!((&told["priority"], &told["requestDelay"], &told["state"]), (&json!(100), &json!(500), &json!(3)));
    assert_eq!(told["urls"][0]["url"], "http://127.0.0.1:1/");
    assert!(told["cDate"].is_string());
    refused(data, "SITE_NEW", &json!({"urls": ["http://127.0.0.1:1/"]}), 2020, &id);
    for (body, word) in [
        (json!({}), "urls"),
        (json!({"id": "a", "nosuch": 1}), "nosuch"),
        (json!({"id": "a", "maxErrors": "many"}), "maxErrors"),
        (json!({"id": "a", "urls": ["nonsense"]}), "urls"),
        (json!({"id": "a", "filters": [{"pattern": "("}]}), "filters[0].pattern"),
        (json!({"id": "a", "requestDelay": 9_999_999}), "requestDelay"),
        (json!({"id": "a~1"}), "id"),
    ] {
        refused(data, "SITE_NEW", &body, 2000, word);
    }
    assert_eq!(site(data, "a"), json!({"id": "a", "state": 9}), "what is wrong changes nothing");

    // Many in one call, each with a status of its own.
    let many: Value = (0..200).map(|n| json!({"id": format!("many-{n:03}"), "state": 2, "userId": n})).collect();
    let statuses = done(data, "SITE_NEW", &many)["statuses"].clone();
    assert_eq!(statuses.as_array().unwrap().len(), 200);
    let mixed = json!([{"id": "many-000"}, {"id": "fresh", "state": 2}, {"state": 7}]);
    let statuses = refused(data, "SITE_NEW", &mixed, 2020, "many-000");
    assert_eq!(statuses, json!([2020, "fresh", 2000]), "the others are made all the same");
    assert_eq!(done(data, "SITE_NEW", &json!([]))["statuses"], json!([]));

    // Found by the beginning of a root URL, and by conditions.
    let found = done(data, "SITE_FIND", &json!({"url": "http://127.0.0.1:1"}));
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(done(data, "SITE_FIND", &json!({"url": "http://nowhere/"})), json!([]));
    let criterions = json!({"WHERE": "id LIKE 'many-%' AND userId >= 150", "ORDER BY": "userId DESC", "LIMIT": "1, 2"});
    let found = done(data, "SITE_FIND", &json!({"criterions": criterions, "excludeList": ["urls"]}));
    let ids: Vec<&str> = found.as_array().unwrap().iter().map(|site| site["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["many-198", "many-197"]);
    assert!(found[0].get("urls").is_none());
    refused(data, "SITE_FIND", &json!({"criterions": {"WHERE": "password = 1"}}), 2000, "password");
    refused(data, "SITE_FIND", &json!({"criterions": {"LIMIT": "all"}}), 2000, "LIMIT");

    // Changed: fields overwrite, lists are added to, replaced or changed.
    let update = |body: Value| done(data, "SITE_UPDATE", &body);
    update(json!({"id": "fresh", "maxErrors": 5, "properties": [{"name": "X", "value": 1}]}));
    update(json!({"id": "fresh", "properties": [{"name": "Y", "value": "2"}], "priority": null}));
    let told = site(data, "fresh");
    assert_eq!((&told["maxErrors"], &told["priority"]), (&json!(5), &json!(100)));
    assert_eq!(told["properties"], json!([{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]));
    update(json!({"id": "fresh", "updateType": 1, "properties": []}));
    assert_eq!(site(data, "fresh")["properties"], json!([]));
    refused(data, "SITE_UPDATE", &json!({"id": "nosuch", "priority": 1}), 2020, "nosuch");
    refused(data, "SITE_UPDATE", &json!({"priority": 1}), 2000, "id");
    refused(data, "SITE_UPDATE", &json!({"id": "fresh", "errors": 1}), 2000, "errors");

    // Deleted: one, many by a condition, one that is gone, and one that may not be.
    done(data, "SITE_DELETE", &json!({"id": "fresh"}));
    assert_eq!(site(data, "fresh")["state"], 9);
    refused(data, "SITE_DELETE", &json!({"id": "fresh"}), 2020, "fresh");
    refused(data, "SITE_DELETE", &json!({"id": "0"}), 2000, "general");
    refused(data, "SITE_DELETE", &json!({}), 2000, "id");
    let gone = done(data, "SITE_DELETE", &json!({"criterions": {"WHERE": "id LIKE 'many-%'", "LIMIT": 500}}));
    assert_eq!(gone["statuses"][0].as_array().unwrap().len(), 200);
    done(data, "SITE_NEW", &json!({"id": "fresh", "state": 2}));
    assert_eq!(site(data, "fresh")["maxErrors"], 0, "a site of the same id begins anew");

    // Crawls and sites share one space of names.
    run(&["ctl", "--data", data, "crawl", "add", "fresh", "http://127.0.0.1:1/"]).complains(1, &["site"]);
    run(&["ctl", "--data", data, "crawl", "pause", "fresh"]).complains(1, &["site update"]);

    // What is no request at all.
    let not_json = run(&["dc", "--data", data, "--command", "SITE_NEW", "--fields", "{"]);
    not_json.complains(1, &["--fields", "no JSON"]);
    run(&["dc", "--data", data, "--command", "SITE_EAT"]).complains(2, &["SITE_NEW"]);
    exit_codes(data, work.path());
    let (ended, answer) = dc(data, "SITE_STATUS", &json!({"id": "0"}), &["--merge", "0"]);
    assert_eq!(ended.code, Some(0), "{ended}");
    assert_eq!(answer["itemsList"][0]["itemObject"]["urlType"], 1, "the general site is there: {answer}");

    // For people.
    let shown = run(&["ctl", "--data", data, "site", "find"]);
    assert!(shown.code == Some(0) && shown.stdout.contains("fresh") && shown.stdout.contains("disabled"), "{shown}");
    let nobody = run(&["ctl", "--data", data, "site", "status", "nosuch"]);
    assert!(nobody.code == Some(1) && nobody.stdout.contains("not found"), "{nobody}");
    run(&["ctl", "--data", data, "site", "update", "fresh", "--set", "state=99"]).complains(1, &["state"]);

    // A node that starts again knows them all.
    node.interrupt();
    assert_eq!(node.wait().code, Some(0));
    let (node, again) = node_alone(work.path());
    // It listens before it has read what it knows, and waits with its answer till then.
    let mut first = Value::Null;
    wait_until("the node answers", || {
        first = site(&again, "fresh");
        !first.is_null()
    });
    assert_eq!(first["state"], 2, "it does not call a site unknown that it has not read yet: {first}");
    assert_eq!(site(&again, "many-000")["state"], 9);
    drop(node);
}

/// Every way in which the original's client fails has its code, and an answer without entries is written all the same.
fn exit_codes(data: &str, work: &Path) {
    let (number, error, output) = (work.join("number.json"), work.join("error.json"), work.join("output.json"));
    std::fs::write(&number, "7").unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (number, error, output) = (path(&number), path(&error), path(&output));
    let nowhere = path(&work.join("nowhere"));
    let cases: [(i32, &str, &[&str]); 7] = [
        (1, "cannot read", &["--data", data, "--file", &nowhere]),
        (1, "no JSON", &["--data", data, "--fields", "nonsense"]),
        (1, "cannot read", &["--data", data, "--fields", "{\"id\": \"file:///nowhere/at/all\"}"]),
        (2, "--fields", &["--data", data]),
        (4, "neither an object nor a list", &["--data", data, "--file", &number]),
        (4, "--fields is no object", &["--data", data, "--fields", "[1]"]),
        (5, "nowhere", &["--data", &nowhere, "--fields", "{\"id\": \"0\"}"]),
    ];
    for (code, word, arguments) in cases {
        let ended = run(&[&["dc", "--command", "SITE_STATUS", "--error_file", &error], arguments].concat());
        ended.complains(code, &[word]);
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        assert_eq!((&answer["errorCode"], &answer["itemsList"]), (&json!(code), &json!([])), "{ended}");
        let written: Value = serde_json::from_str(&std::fs::read_to_string(&error).unwrap()).unwrap();
        assert_eq!((&written["errorCode"], &written["errorMessage"]), (&json!(code), &answer["errorMessage"]));
    }
    let fine = ["dc", "--data", data, "--command", "SITE_STATUS", "--fields", "{\"id\": \"0\"}"];
    let ended = run(&[&fine[..], &["--output_file", &output, "--error_file", &error]].concat());
    assert!(ended.code == Some(0) && ended.stdout.is_empty(), "{ended}");
    let written = |path: &str| serde_json::from_str::<Value>(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(written(&error), json!({"errorCode": 0, "errorMessage": ""}));
    assert_eq!(written(&output)["itemsList"][0]["itemObject"]["id"], "0");
}

#[test]
fn flags_of_the_original_are_taken_and_a_connection_that_breaks_has_its_code() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/" | "/robots.txt" => Reply::page(&[] as &[&str]),
        _ => Reply::page(&[] as &[&str]).after(Duration::from_secs(40)),
    });
    let (node, data) = node_alone(work.path());
    done(&data, "SITE_NEW", &json!({"id": "news", "urls": [server.url("/")], "requestDelay": 1}));
    wait_until("the node fetches", || site(&data, "news")["contents"] == 1);

    let as_it_was = |more: &[&str]| {
        run(&[&["dc", "--data", &data, "-cmd", "SITE_STATUS", "-ff={\"id\": \"news\"}", "-mrg", "0"], more].concat())
    };
    let ended = as_it_was(&["-dcc_clientHost", "127.0.0.1", "--dcc_timeout=60000", "-mode", "1", "-v", "1"]);
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    assert_eq!((ended.code, &answer["itemsList"][0]["itemObject"]["id"]), (Some(0), &json!("news")), "{ended}");
    as_it_was(&["--dcc_clientPort=1"]).complains(1, &["no node can be reached", "/tcp/1"]);

    // The page comes after 40 s; the answer is waited for till then, and not longer than one says.
    let batch = |path: &str| json!({"items": [{"siteId": "news", "urlObj": {"url": server.url(path)}}]}).to_string();
    let slow = batch("/slow");
    let asking = ["dc", "--data", &data, "--command", "BATCH", "--fields"];
    run(&[&asking[..], &[&slow, "--dcc_timeout", "300"]].concat()).complains(1, &["does not answer"]);
    let error = work.path().join("error.json");
    let slower = batch("/slower");
    let waiting = [&asking[..], &[&slower, "--error_file", error.to_str().unwrap()]].concat();
    let waiting = Running::start(waiting, work.path(), "waiting");
    wait_until("the node works at it", || {
        let named = json!({"siteId": "news", "url": server.url("/slower")});
        done(&data, "URL_STATUS", &named)[0].is_object()
    });
    node.kill();
    let ended = waiting.wait();
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
    assert_eq!((ended.code, &answer["errorCode"], &answer["itemsList"]), (Some(3), &json!(3), &json!([])), "{ended}");
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&error).unwrap()).unwrap();
    assert_eq!((&written["errorCode"], &written["errorMessage"]), (&json!(3), &answer["errorMessage"]));
}

#[test]
fn three_nodes_crawl_a_site_as_it_says_and_none_of_it_when_it_is_gone() {
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (6, 20);
    let server = web(hosts, pages);
    let mut fleet = Fleet::start(work.path(), 3, "");
    let data = fleet.folder().to_owned();
    let ctl = |arguments: &[&str]| run(&[&["ctl", "--data", &data, "site"], arguments].concat());
    let seeds = server.seeds();

    // Made suspended, it asks nothing; its own hosts only, and not what it excludes.
    let roots: Vec<&str> = seeds[..3].iter().map(String::as_str).collect();
    let mut new = vec!["new", "--id", "news", "--set", "state=3", "--set", "requestDelay=20", "--exclude", "[13579]$"];
    new.extend(&roots);
    wait_until("the site is kept", || ctl(&new).code == Some(0));
    let asked = server.requests_total();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(server.requests_total(), asked, "a suspended site asks nothing");
    assert_eq!(ctl(&["update", "news", "--set", "state=1"]).code, Some(0));
    let contents = || site(&data, "news")["contents"].as_u64().unwrap_or(0);
    wait_until("it is crawled", || {
        let told = site(&data, "news");
        told["contents"].as_u64() > Some(3) && told["newURLs"] == 0
    });
    let log = server.access_log();
    let own: Vec<&str> = roots.iter().map(|root| root.split('/').nth(2).unwrap().split(':').next().unwrap()).collect();
    assert!(log.iter().all(|access| own.iter().any(|host| access.host.starts_with(host))), "only its own hosts");
    let odd = |path: &str| path.ends_with(['1', '3', '5', '7', '9']);
    assert!(!log.iter().any(|access| odd(&access.path)), "nothing that it excludes");
    assert!(log.iter().any(|access| access.path != "/" && access.path != "/robots.txt"), "links are followed");

    // A limit holds for the whole cluster: no more than it, and what was in flight.
    let all: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let limited = [&["new", "--id", "few", "--set", "maxResources=10", "--include", "http"][..], &all].concat();
    assert_eq!(ctl(&limited).code, Some(0));
    let few = || site(&data, "few")["contents"].as_u64().unwrap_or(0);
    wait_until("the limit is reached", || few() >= 10);
    std::thread::sleep(Duration::from_secs(3));
    assert!((10..=13).contains(&few()), "{} pages of 10", few());

    // Emptied: its root URLs are crawled anew, with one node down.
    let before = contents();
    fleet.kill_node(2);
    wait_until("it is emptied", || ctl(&["cleanup", "news"]).code == Some(0));
    wait_until("it is crawled again", || contents() == before);

    // Deleted while it is crawled: when that is acknowledged nothing of it is asked for but what was in flight.
    let endless = [&["new", "--id", "endless", "--set", "requestDelay=200", "--include", "http"][..], &all].concat();
    assert_eq!(ctl(&endless).code, Some(0));
    let at_start = server.requests_total();
    wait_until("it is under way", || server.requests_total() > at_start + 10);
    assert_eq!(ctl(&["delete", "endless", "few"]).code, Some(0));
    let at_delete = server.requests_total();
    std::thread::sleep(Duration::from_secs(1));
    assert!(server.requests_total() - at_delete <= u64::from(hosts), "more than what was in flight");
    let still = server.requests_total();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(server.requests_total(), still, "nothing of a deleted site is fetched");

    // The node that was away learns it all.
    fleet.start_node(2);
    wait_until("it knows what is deleted", || {
        let (_, answer) = dc(&data, "SITE_STATUS", &json!({"id": "endless"}), &["--merge", "0"]);
        let items = answer["itemsList"].as_array().cloned().unwrap_or_default();
        items.len() == 3 && items.iter().all(|item| item["itemObject"]["state"] == 9)
    });
    assert_eq!(server.requests_total(), still);
}

#[test]
fn urls_of_sites_are_handed_in_looked_for_and_changed_through_any_node() {
    let work = tempfile::tempdir().unwrap();
    let server = web(4, 15);
    let mut fleet = Fleet::start(work.path(), 3, "");
    let data = fleet.folder().to_owned();
    let data = data.as_str();
    let seeds = server.seeds();
    let (root, other) = (seeds[0].as_str(), seeds[1].as_str());
    let new = json!({"id": "news", "urls": [root], "requestDelay": 20});
    wait_until("the site is kept", || {
        dc(data, "SITE_NEW", &new, &[]).0.code == Some(0) || site(data, "news")["state"] == 1
    });
    let told = || site(data, "news");
    wait_until("it is crawled", || told()["contents"].as_u64() > Some(5) && told()["newURLs"] == 0);
    let contents = told()["contents"].as_u64().unwrap();

    // Each node counts what it serves, and together that is all.
    let (_, answer) = dc(data, "SITE_FIND", &json!({"url": root}), &["--merge", "0"]);
    let each: Vec<&Value> = answer["itemsList"].as_array().unwrap().iter().map(|item| &item["itemObject"][0]).collect();
    let sum = each.iter().map(|site| site["contents"].as_u64().unwrap_or(0)).sum::<u64>();
    assert_eq!((each.len(), sum), (3, contents), "{answer}");

    // Looked at, by URL and by id; what is unknown is not told.
    let known = done(
        data,
        "URL_STATUS",
        &json!([{"siteId": "news", "url": root}, {"siteId": "news", "url": "http://127.0.0.9/x"}]),
    );
    assert_eq!(known.as_array().unwrap().len(), 1);
    assert_eq!(
        (&known[0]["status"], &known[0]["httpCode"], &known[0]["parentMd5"]),
        (&json!(7), &json!(200), &json!(""))
    );
    let by_id = done(data, "URL_STATUS", &json!({"siteId": "news", "url": known[0]["urlMd5"], "urlType": 1}));
    assert_eq!(by_id, known);
    assert_eq!(done(data, "URL_STATUS", &json!({"siteId": "nosuch", "url": root})), json!([]));
    refused(data, "URL_STATUS", &json!({"siteId": "news"}), 2000, "url");

    // Looked for: conditions, order and limits, over all nodes.
    let fetch = |body: Value| done(data, "URL_FETCH", &body).as_array().unwrap().clone();
    let pages = fetch(
        json!({"sitesList": ["news"], "urlsCriterions": {"WHERE": "status = 7 AND size > 0", "ORDER BY": "url"}, "maxURLs": 1000}),
    );
    assert_eq!(pages.len() as u64, contents);
    assert!(pages.is_sorted_by_key(|page| page["url"].as_str().unwrap().to_owned()));
    assert_eq!(fetch(json!({"maxURLs": 3})).len(), 3, "of all active sites");
    assert_eq!(fetch(json!({"sitesList": ["news"], "criterions": {"WHERE": "httpCode = 999"}})).len(), 0);
    refused(data, "URL_FETCH", &json!({"sitesList": ["nosuch"]}), 2020, "nosuch");
    refused(data, "URL_FETCH", &json!({"criterions": {"WHERE": "DROP TABLE urls"}}), 2000, "WHERE");
    let counted = run(&[
        "ctl",
        "--data",
        data,
        "--json",
        "query",
        "SELECT siteId, COUNT(*), SUM(size) FROM urls WHERE status = 7 GROUP BY siteId",
    ]);
    let rows: Value = serde_json::from_str(&counted.stdout).unwrap_or_default();
    let rows = &object(&rows)["rows"];
    assert_eq!((&rows[0]["siteId"], &rows[0]["COUNT(*)"]), (&json!("news"), &json!(contents)), "{counted}");
    assert_eq!(rows[0]["SUM(size)"], told()["size"], "{counted}");
    let shown = run(&["ctl", "--data", data, "query", "SELECT id, contents FROM sites WHERE contents > 0"]);
    assert!(shown.code == Some(0) && shown.stdout.contains("news") && shown.stdout.contains("1 rows"), "{shown}");
    run(&["ctl", "--data", data, "query", "SELECT password FROM sites"]).complains(1, &["password", "character 8"]);

    // Handed in: new, known, twice in one call, of no site, of another host, to the site of their origin.
    let statuses = |body: Value| dc(data, "URL_NEW", &body, &[]).1["itemsList"][0]["itemObject"]["statuses"].clone();
    let fresh = format!("{root}handed-in");
    assert_eq!(
        statuses(
            json!([{"siteId": "news", "url": fresh}, {"siteId": "news", "url": root}, {"siteId": "news", "url": fresh}])
        ),
        json!([0, 2, 2])
    );
    assert_eq!(
        statuses(json!([{"url": format!("{root}by-root")}, {"url": other}, {"siteId": "news", "url": other}])),
        json!([0, 1, 1])
    );
    assert_eq!(statuses(json!([{"siteId": "nosuch", "url": root}, {"url": "nonsense"}, {}])), json!([1, 1, 1]));
    assert_eq!(
        statuses(json!([{"url": other, "siteSelect": 0}, {"url": other, "siteSelect": 2}])),
        json!([0, 2]),
        "the general site"
    );
    wait_until("a page of the general site is crawled, and processed by general rules", || {
        let body = json!({"siteId": "0", "url": other, "contentTypeMask": 1});
        let (_, answer) = dc(data, "URL_CONTENT", &body, &[]);
        answer["itemsList"][0]["itemObject"][0]["processedContents"].as_array().map(Vec::len) == Some(1)
    });
    assert_eq!(statuses(json!([])), json!([]));
    assert_eq!(
        statuses(json!([{"url": seeds[2], "siteSelect": 1}])),
        json!([2]),
        "a site is made for its origin, with that as its root URL"
    );
    let many: Value = (0..1000).map(|n| json!({"siteId": "news", "url": format!("{root}many?n={n}")})).collect();
    assert_eq!(done(data, "SITE_UPDATE", &json!({"id": "news", "state": 3}))["errorCode"], 0);
    assert_eq!(statuses(many).as_array().unwrap().iter().filter(|status| **status == 0).count(), 1000);

    // Deleted: one, by a condition, one that is gone; and it comes back only when it is handed in.
    let gone = run(&["ctl", "--data", data, "url", "delete", "--site", "news", "--where", "url LIKE '%many?n=%'"]);
    assert!(gone.code == Some(0) && gone.stdout.contains("1000 URLs are deleted"), "{gone}");
    done(data, "URL_DELETE", &json!({"siteId": "news", "url": fresh}));
    refused(data, "URL_DELETE", &json!({"siteId": "news", "url": fresh}), 2020, "no such URL");
    refused(data, "URL_DELETE", &json!({"siteId": "nosuch", "url": fresh}), 2020, "nosuch");
    assert_eq!(done(data, "URL_STATUS", &json!({"siteId": "news", "url": fresh})), json!([]));
    assert_eq!(statuses(json!([{"siteId": "news", "url": fresh}])), json!([0]));

    // Crawled again, disabled, cleaned; with one node down.
    fleet.kill_node(1);
    let asked = |path: &str| server.access_log().iter().filter(|access| access.path == path).count();
    let before = asked("/");
    let again = json!({"siteId": "news", "url": root, "status": 1});
    wait_until("it is put up again", || dc(data, "URL_UPDATE", &again, &[]).0.code == Some(0));
    wait_until("the site goes on", || {
        dc(data, "SITE_UPDATE", &json!({"id": "news", "state": 1}), &[]).0.code == Some(0)
    });
    wait_until("it is crawled again", || asked("/") > before);
    let status = |url: &str| {
        dc(data, "URL_STATUS", &json!({"siteId": "news", "url": url}), &[]).1["itemsList"][0]["itemObject"][0].clone()
    };
    wait_until("that is settled", || status(root)["status"] == 7);
    done(data, "URL_CLEANUP", &json!({"siteId": "news", "url": root}));
    wait_until("it is crawled anew", || status(root)["status"] == 7 && status(root)["crawled"] == 1);
    done(data, "URL_UPDATE", &json!({"siteId": "news", "url": root, "state": 1}));
    assert_eq!((&status(root)["state"], &status(root)["httpCode"]), (&json!(1), &json!(200)));
    refused(data, "URL_UPDATE", &json!({"siteId": "news", "url": root, "status": 4}), 2000, "status");
    refused(data, "URL_UPDATE", &json!({"siteId": "news", "url": root}), 2000, "status");
    assert_eq!(asked("/many"), 0, "nothing that was deleted is fetched");
}
