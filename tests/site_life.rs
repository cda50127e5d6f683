//! Limits and life of sites in a cluster of three: no more than a limit and what was in flight, suspension, room that is made, a date that has come, and
//! records that go with their site.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::raw::{Asked, RawServer, Reply};
use tests::sites::{dc, done, node_alone, site};
use tests::wait_until;

/// Every host has a page with thirty links, to pages or to nothing.
fn serve(asked: &Asked<'_>) -> Reply {
    let links = |kind: &str| Reply::page(&(0..30).map(|n| format!("/{kind}{n}")).collect::<Vec<String>>());
    match asked.path {
        "/robots.txt" => Reply::status(404),
        "/good" => links("page"),
        "/bad" => links("gone"),
        "/old" => links("leaf-old"),
        "/kept" => links("leaf-kept"),
        // Each is another page: none of them only repeats another one, whose content may go.
        path if path.starts_with("/leaf") => Reply::page(&[format!("{path}#{path}")]),
        path if path.starts_with("/page") => Reply::page(&["/good"]),
        _ => Reply::status(404),
    }
}

/// The largest number of records on a node, if so many answer.
fn records(fleet: &Fleet, nodes: usize) -> Option<u64> {
    let told: Value = serde_json::from_str(fleet.ctl(&["--json", "nodes"]).stdout.trim()).ok()?;
    let count = |node: &Value| node["report"]["Ok"]["records"].as_u64();
    let all: Vec<u64> = told["Nodes"].as_array().into_iter().flatten().filter_map(count).collect();
    (all.len() == nodes).then(|| all.into_iter().max().unwrap_or(0))
}

#[test]
fn three_nodes_keep_the_limits_of_sites_and_look_after_them() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(serve);
    let mut fleet = Fleet::start(work.path(), 3, "");
    let data = fleet.folder().to_owned();
    let data = data.as_str();
    let past = "2020-01-01 00:00:00";
    let root = |path: &str| server.url(path);
    let new = |id: &str, path: &str, more: Value| {
        let mut body = json!({"id": id, "urls": [root(path)], "requestDelay": 5});
        if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        wait_until("the site is kept", || {
            dc(data, "SITE_NEW", &body, &[]).0.code == Some(0)
                || matches!(site(data, id)["state"].as_u64(), Some(1..=3))
        });
    };
    new("errors", "/bad", json!({"maxErrors": 5}));
    new("urls", "/good", json!({"maxURLs": 12}));
    new("pages", "/good", json!({"maxResources": 6}));
    let removes = json!([{"name": "AUTO_REMOVE_RESOURCES", "value": 4}]);
    new("rolling", "/good", json!({"maxResources": 8, "properties": removes}));
    new("again", "/good", json!({}));
    new("whole", "/good", json!({}));

    wait_until("one has all its errors and is suspended", || {
        let told = site(data, "errors");
        told["state"] == 3 && told["errorMask"] == 1 << 14 | 1 << 2
    });
    wait_until("one has all its pages and is suspended", || {
        let told = site(data, "pages");
        told["state"] == 3 && told["errorMask"] == 1 << 15
    });
    wait_until("one is crawled as far as its URLs go", || {
        let told = site(data, "urls");
        told["collectedURLs"].as_u64() >= Some(12) && told["newURLs"] == 0
    });
    wait_until("one is crawled whole", || site(data, "whole")["contents"] == 31);
    wait_until("one made room for all", || {
        let told = site(data, "rolling");
        told["state"] == 1 && told["newURLs"] == 0 && told["contents"].as_u64() < Some(8)
    });
    let (errors, pages, urls) = (site(data, "errors"), site(data, "pages"), site(data, "urls"));
    assert!((5..=7).contains(&errors["errors"].as_u64().unwrap()), "{errors}");
    assert!((6..=8).contains(&pages["contents"].as_u64().unwrap()), "{pages}");
    assert!((12..=14).contains(&urls["collectedURLs"].as_u64().unwrap()), "{urls}");
    wait_until("one is to be crawled again", || {
        let date = json!({"id": "again", "recrawlDate": past, "recrawlPeriod": 600});
        site(data, "again")["contents"] == 31 && dc(data, "SITE_UPDATE", &date, &[]).0.code == Some(0)
    });
    wait_until("one was crawled again, as its date said", || site(data, "again")["iterations"] == 1);
    wait_until("its root URL had two rounds", || {
        let asked = json!({"siteId": "again", "url": root("/good")});
        dc(data, "URL_STATUS", &asked, &[]).1["itemsList"][0]["itemObject"][0]["crawled"] == 2
    });
    let next = site(data, "again")["recrawlDate"].as_str().unwrap().to_owned();
    assert!(next.as_str() > "2026" && next.as_str() < "2200", "{next}");

    // What its URLs failed of is what the site failed of.
    let bits = |id: &str| {
        let query = format!("SELECT errorMask, COUNT(*) FROM urls WHERE siteId = '{id}' GROUP BY errorMask");
        let (_, told) = dc(data, "SQL_CUSTOM", &json!({"query": query}), &[]);
        let rows = told["itemsList"][0]["itemObject"]["rows"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["errorMask"].as_u64().unwrap_or(0)).fold(0, |mask, bits| mask | bits)
    };
    assert_eq!(errors["errorMask"].as_u64().unwrap(), bits("errors") | 1 << 14);
    assert_eq!((bits("whole"), site(data, "whole")["errorMask"].as_u64()), (0, Some(0)));

    // Begun again, it has as many errors to go, and those from before stay as they are.
    let restart = json!({"id": "errors", "state": 6});
    wait_until("it begins again", || dc(data, "SITE_UPDATE", &restart, &[]).0.code == Some(0));
    wait_until("it has all its errors once more", || {
        let told = site(data, "errors");
        told["state"] == 3 && told["iterations"] == 1 && told["errorMask"] == 1 << 14 | 1 << 2
    });
    let again = site(data, "errors");
    assert!((5..=7).contains(&again["errors"].as_u64().unwrap()), "{again}");
    assert!((5..=7).contains(&again["restarted"]["errors"].as_u64().unwrap()), "{again}");
    let failed = json!({"query": "SELECT COUNT(*) FROM urls WHERE siteId = 'errors' AND state = 2"});
    let failed = dc(data, "SQL_CUSTOM", &failed, &[]).1["itemsList"][0]["itemObject"]["rows"][0]["COUNT(*)"].as_u64();
    assert!((10..=14).contains(&failed.unwrap()), "{failed:?}");

    // What is counted is what a recount finds, on three nodes and on two.
    let recount = || {
        let (_, told) = dc(data, "FIELD_RECALCULATE", &json!({}), &[]);
        let sites = told["itemsList"][0]["itemObject"].as_array().cloned().unwrap_or_default();
        sites.iter().map(|site| site["corrected"].as_u64().unwrap_or(1)).sum::<u64>()
    };
    assert_eq!(recount(), 0);
    fleet.kill_node(2);

    // A site that goes takes its records with it, on every node that lives and on the one that comes back.
    for id in ["whole", "errors", "urls", "pages", "rolling"] {
        wait_until("it is deleted", || {
            dc(data, "SITE_DELETE", &json!({"id": id}), &[]).0.code == Some(0) || site(data, id)["state"] == 9
        });
    }
    wait_until("only the records of the last site are left", || records(&fleet, 2) == Some(31));
    assert_eq!(recount(), 0);
    fleet.start_node(2);
    wait_until("the node that was away forgets them too", || records(&fleet, 3) == Some(31));
}

#[test]
fn three_nodes_keep_the_limit_of_a_site_whose_hosts_they_share() {
    /// Hosts of the site; each is asked for one page at a time, so as many may be in flight when the limit is reached.
    const HOSTS: u64 = 12;
    const LIMIT: u64 = 10;
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::everywhere(serve);
    let fleet = Fleet::start(work.path(), 3, "");
    let data = fleet.folder();
    let hosts: Vec<String> = (1..=HOSTS).map(|n| format!("127.0.7.{n}")).collect();
    let owner = |host: &String| fleet.ask(&["ring", "--domain", host])["Ring"][0]["nodes"][0].as_u64();
    wait_until("all nodes are there and all slots are held", || fleet.totals().0 == 4_096);
    let owners: BTreeSet<u64> = hosts.iter().filter_map(owner).collect();
    assert!(owners.len() > 1, "{owners:?}");
    let roots: Vec<String> = hosts.iter().map(|host| server.named(host, "/bad")).collect();
    let new = json!({"id": "wide", "urls": roots, "requestDelay": 5, "maxErrors": LIMIT});
    wait_until("the site is kept", || {
        dc(data, "SITE_NEW", &new, &[]).0.code == Some(0) || matches!(site(data, "wide")["state"].as_u64(), Some(1..=3))
    });
    wait_until("it has all its errors and is suspended", || {
        let told = site(data, "wide");
        told["state"] == 3 && told["errorMask"].as_u64().is_some_and(|mask| mask & 1 << 14 != 0)
    });
    let asked = |host: &String| count(data, "wide", &format!("host = '{host}' AND crawled > 0"));
    let crawled = hosts.iter().filter(|host| asked(host).is_some_and(|count| count > 0)).count();
    assert!(crawled > 1, "the limit was not reached on one host alone");
    let told = site(data, "wide");
    assert!((LIMIT..=LIMIT + HOSTS).contains(&told["errors"].as_u64().unwrap()), "{told}");
}

#[test]
fn urls_age_and_are_purged_without_anybody_asking() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(serve);
    let fleet = Fleet::start(work.path(), 3, "upkeep_every_s = 2");
    let data = fleet.folder();
    let done = |operation: &str, body: Value| {
        wait_until("it is done", || dc(data, operation, &body, &[]).0.code == Some(0));
    };
    // One of them is not to age.
    for (id, modes) in [("old", 31), ("kept", 15)] {
        let modes = json!([{"name": "MODES_FLAG", "value": modes}]);
        let new = json!({"id": id, "urls": [server.url(&format!("/{id}"))], "requestDelay": 5, "properties": modes});
        wait_until("the site is kept", || {
            dc(data, "SITE_NEW", &new, &[]).0.code == Some(0) || site(data, id)["state"] == 1
        });
        wait_until("it is crawled", || site(data, id)["contents"] == 31);
    }
    let versions = |id: &str| {
        let body = json!({"siteId": id, "url": server.url(&format!("/leaf-{id}7")), "contentTypeMask": 1026});
        let (_, told) = dc(data, "URL_CONTENT", &body, &[]);
        told["itemsList"][0]["itemObject"][0]["rawContents"].as_array().map(Vec::len)
    };
    assert_eq!((versions("old"), versions("kept")), (Some(1), Some(1)));
    for id in ["old", "kept"] {
        let attributes = json!([{"name": "rank", "value": id}]);
        done("URL_NEW", json!({"siteId": id, "url": server.url(&format!("/leaf-{id}7")), "attributes": attributes}));
    }
    let ranks = |id: &str| {
        let (_, told) = dc(data, "ATTRIBUTE_FETCH", &json!({"siteId": id, "name": "rank"}), &[]);
        told["itemsList"][0]["itemObject"].as_array().map(Vec::len)
    };
    assert_eq!((ranks("old"), ranks("kept")), (Some(1), Some(1)));
    let criterion = json!([{"name": "AGING_URL_CRITERION", "value": "url LIKE '%/leaf%'"}]);
    for id in ["old", "kept"] {
        done("SITE_UPDATE", json!({"id": id, "properties": criterion}));
    }
    wait_until("all but the root URL have aged", || site(data, "old")["collectedURLs"] == 1);
    wait_until("and are purged", || {
        let (_, told) = dc(data, "SITE_STATUS", &json!({"id": "old", "measure": 1}), &[]);
        told["itemsList"][0]["itemObject"]["deletedURLs"] == 0
    });
    // A URL that is handed in again begins with nothing: what it had is gone, and was not only hidden.
    done("SITE_UPDATE", json!({"id": "old", "state": 3, "updateType": 1, "properties": []}));
    done("URL_NEW", json!({"siteId": "old", "url": server.url("/leaf-old7")}));
    assert_eq!((versions("old"), versions("kept")), (Some(0), Some(1)));
    assert_eq!((ranks("old"), ranks("kept")), (Some(0), Some(1)), "attributes go with their URL");
    assert_eq!(site(data, "kept")["contents"], 31, "who is not to age keeps all");
}

/// How many URLs of a site meet a condition, if that can be said.
fn count(data: &str, id: &str, condition: &str) -> Option<u64> {
    let query = format!("SELECT COUNT(*) FROM urls WHERE siteId = '{id}' AND ({condition})");
    let (ended, told) = dc(data, "SQL_CUSTOM", &json!({"query": query}), &[]);
    let rows = &told["itemsList"][0]["itemObject"]["rows"];
    rows[0]["COUNT(*)"].as_u64().filter(|_| ended.code == Some(0))
}

#[test]
fn no_figure_and_no_date_is_lost_when_all_nodes_were_down() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(serve);
    let mut fleet = Fleet::start(work.path(), 3, "");
    let data = fleet.folder().to_owned();
    let data = data.as_str();
    let new = json!({"id": "news", "urls": [server.url("/good")], "requestDelay": 5});
    wait_until("the site is kept", || {
        dc(data, "SITE_NEW", &new, &[]).0.code == Some(0) || site(data, "news")["state"] == 1
    });
    wait_until("it is crawled", || site(data, "news")["contents"] == 31);
    let due = unix_ms() + 5_000;
    let date = json!({"id": "news", "recrawlDate": proto::date::format(due)});
    wait_until("it has a date", || dc(data, "SITE_UPDATE", &date, &[]).0.code == Some(0));
    (0..3).for_each(|node| fleet.kill_node(node));
    wait_until("the date has passed", || unix_ms() > due + 1_000);
    (0..3).for_each(|node| fleet.start_node(node));

    // Until the nodes hold the slots again they say that they do not know, and never that there is nothing.
    let nothing = json!({"criterions": {"WHERE": "collectedURLs = 0 AND id = 'news'"}});
    wait_until("it is counted again", || {
        let (deleted, answer) = dc(data, "SITE_DELETE", &nothing, &[]);
        assert!(deleted.code != Some(0) || answer["itemsList"][0]["itemObject"]["statuses"] == json!([[]]), "{answer}");
        let (ended, answer) = dc(data, "SITE_STATUS", &json!({"id": "news"}), &[]);
        let told = &answer["itemsList"][0]["itemObject"];
        assert!(ended.code != Some(0) || told["collectedURLs"] == 31, "{answer}");
        ended.code == Some(0) && deleted.code == Some(0)
    });
    wait_until("its root URL has its second round", || count(data, "news", "crawled = 2") == Some(1));
    wait_until("that was the one that was due", || site(data, "news")["iterations"] == 1);
    assert_eq!(site(data, "news")["recrawlDate"], Value::Null);
}

#[test]
fn a_recrawl_is_for_all_urls_that_are_meant_however_many() {
    const MANY: usize = 10_400;
    let work = tempfile::tempdir().unwrap();
    let (node, data) = node_alone(work.path());
    let data = data.as_str();
    // Nothing listens there.
    let root = "http://127.0.0.1:1/";
    done(data, "SITE_NEW", &json!({"id": "large", "urls": [root], "state": 3, "requestDelay": 1_000}));
    for part in 0..MANY / 400 {
        let urls: Value = (0..400).map(|n| json!({"siteId": "large", "url": format!("{root}{part}/{n}")})).collect();
        done(data, "URL_NEW", &urls);
    }
    let disable = json!({"siteId": "large", "state": 1, "criterions": {"WHERE": "state = 0 AND depth = 0 AND url LIKE '%/%/%/%/%'"}});
    wait_until("all are switched off", || {
        done(data, "URL_UPDATE", &disable);
        count(data, "large", "state = 1") == Some(MANY as u64)
    });
    let properties = json!([{"name": "RECRAWL_WHERE", "value": "state = 1"}]);
    let begin = json!({"id": "large", "state": 1, "recrawlDate": "2020-01-01 00:00:00", "properties": properties});
    done(data, "SITE_UPDATE", &begin);
    wait_until("the site was crawled again", || site(data, "large")["iterations"] == 1);
    assert_eq!(count(data, "large", "state = 1"), Some(0), "each of them was put up again");
    drop(node);
}

#[test]
fn a_recrawl_deletes_renews_and_tunes_as_the_properties_say() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(serve);
    let (node, data) = node_alone(work.path());
    let data = data.as_str();
    let properties = json!([
        {"name": "RECRAWL_WHERE", "value": "url LIKE '%/page1%'"},
        {"name": "RECRAWL_DELETE", "value": 1},
        {"name": "RECRAWL_DELETE_WHERE", "value": "url LIKE '%/page2%'"},
        {"name": "RECRAWL_PERIOD_MODE", "value": 1},
        {"name": "RECRAWL_PERIOD_STEP", "value": 20},
    ]);
    done(data, "SITE_NEW", &json!({"id": "news", "urls": [server.url("/good")], "requestDelay": 5}));
    wait_until("it is crawled", || site(data, "news")["contents"] == 31);
    let more =
        json!({"id": "news", "recrawlDate": "2020-01-01 00:00:00", "recrawlPeriod": 60, "properties": properties});
    done(data, "SITE_UPDATE", &more);
    wait_until("it is crawled again", || site(data, "news")["iterations"] == 1);
    assert_eq!(site(data, "news")["recrawlPeriod"], 40, "nothing waited, so it comes sooner");
    wait_until("eleven pages have their second round", || count(data, "news", "crawled = 2") == Some(11));
    assert_eq!(count(data, "news", "crawled = 2 AND url LIKE '%/page1%'"), Some(11));
    assert_eq!(count(data, "news", "url LIKE '%/page2%'"), Some(0), "what was to be deleted is gone, and stays so");
    assert_eq!(count(data, "news", "1 = 1"), Some(20));
    // A change of root URLs that is not to put them in does not.
    let properties = json!([{"name": "UPDATE_NOT_INSERT_ROOT_URLS", "value": 1}]);
    done(data, "SITE_UPDATE", &json!({"id": "news", "properties": properties}));
    done(data, "SITE_UPDATE", &json!({"id": "news", "urls": [server.url("/other")]}));
    assert_eq!(count(data, "news", "url LIKE '%/other'"), Some(0));
    drop(node);
}

fn unix_ms() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("the clock is not before 1970").as_millis() as u64
}
