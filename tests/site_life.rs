//! Limits and life of sites in a cluster of three: no more than a limit and what was in flight, suspension, room that is made, a date that has come, and
//! records that go with their site.

use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::raw::{Asked, RawServer, Reply};
use tests::sites::{dc, site};
use tests::wait_until;

/// Every host has a page with thirty links, to pages or to nothing.
fn serve(asked: &Asked<'_>) -> Reply {
    let links = |kind: &str| Reply::page(&(0..30).map(|n| format!("/{kind}{n}")).collect::<Vec<String>>());
    match asked.path {
        "/robots.txt" => Reply::status(404),
        "/good" => links("page"),
        "/bad" => links("gone"),
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
        told["state"] == 3 && told["errorMask"] == 1 << 14
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
