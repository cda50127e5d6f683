//! What is kept beside sites and URLs, through the command line of a running node and of three with one down: contents, attributes, proxies, what happened,
//! what is too old, what is purged, and counts.

use proto::base64::from_base64;
use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::program::run;
use tests::raw::{RawServer, Reply};
use tests::sites::{dc, done, node_alone, refused, site, web};
use tests::wait_until;

#[test]
fn attributes_proxies_and_contents_answer_good_bad_empty_repeated_and_unknown_requests() {
    let work = tempfile::tempdir().unwrap();
    let (node, data) = node_alone(work.path());
    let data = data.as_str();
    let root = "http://127.0.0.1:1/";
    done(data, "SITE_NEW", &json!({"id": "news", "urls": [root], "state": 3}));
    let url = done(data, "URL_STATUS", &json!({"siteId": "news", "url": root}))[0].clone();
    let md5 = url["urlMd5"].as_str().unwrap().to_owned();

    // Attributes: of the site and of a URL; new, changed, by a condition, gone.
    let set = |body: Value| done(data, "ATTRIBUTE_SET", &body)["statuses"].clone();
    let owner = json!({"siteId": "news", "name": "owner", "value": "ann"});
    let rank = json!({"siteId": "news", "name": "rank", "urlMd5": md5, "value": 7});
    assert_eq!(set(json!([owner, rank, owner])), json!([0, 0, 2]));
    assert_eq!(set(json!([])), json!([]));
    let fetch = |body: Value| done(data, "ATTRIBUTE_FETCH", &body);
    assert_eq!(fetch(json!({"siteId": "news"})).as_array().unwrap().len(), 2);
    let found = fetch(json!({"siteId": "news", "name": "rank"}));
    assert_eq!((&found[0]["value"], &found[0]["urlMd5"]), (&json!("7"), &json!(md5)));
    assert!(found[0]["cDate"].is_string());
    let by = |condition: &str| fetch(json!({"siteId": "news", "criterions": {"WHERE": condition}}));
    assert_eq!(by("name LIKE 'own%' AND urlMd5 = ''")[0]["value"], "ann");
    assert_eq!(by("value = 'nobody'"), json!([]));
    assert_eq!(
        done(data, "ATTR_UPDATE", &json!({"siteId": "news", "name": "owner", "value": "bob"}))["statuses"],
        json!([true])
    );
    assert_eq!(fetch(json!({"siteId": "news", "name": "owner"}))[0]["value"], "bob");
    let long = "n".repeat(33);
    for (body, code, word) in [
        (json!({"siteId": "news", "value": "x"}), 2000, "name"),
        (json!({"siteId": "news", "name": long, "value": "x"}), 2000, "name"),
        (json!({"siteId": "news", "name": "a", "urlMd5": "xyz"}), 2000, "urlMd5"),
        (json!({"siteId": "news", "name": "a", "nosuch": 1}), 2000, "nosuch"),
        (json!({"siteId": "nosuch", "name": "a", "value": "x"}), 2020, "nosuch"),
    ] {
        refused(data, "ATTRIBUTE_SET", &body, code, word);
    }
    assert_eq!(refused(data, "ATTRIBUTE_SET", &json!([{"siteId": "nosuch", "name": "a"}]), 2020, "nosuch"), json!([3]));
    refused(data, "ATTRIBUTE_FETCH", &json!({"siteId": "nosuch"}), 2020, "nosuch");
    refused(
        data,
        "ATTRIBUTE_FETCH",
        &json!({"siteId": "news", "criterions": {"WHERE": "password = 1"}}),
        2000,
        "password",
    );
    let many: Value = (0..1200).map(|n| json!({"siteId": "news", "name": format!("n{n}"), "value": n})).collect();
    assert_eq!(set(many).as_array().unwrap().len(), 1200, "a long list is sent in parts");
    let gone = |body: Value| done(data, "ATTRIBUTE_DELETE", &body)["statuses"].clone();
    assert_eq!(
        gone(json!({"siteId": "news", "criterions": {"WHERE": "name LIKE 'n%'", "LIMIT": 5000}})),
        json!([true])
    );
    assert_eq!(
        gone(json!([{"siteId": "news", "name": "owner"}, {"siteId": "news", "name": "owner"}])),
        json!([true, false])
    );
    assert_eq!(fetch(json!({"siteId": "news"})).as_array().unwrap().len(), 1, "the URL's is still there");
    let shown = run(&["ctl", "--data", data, "attribute", "fetch", "--site", "news"]);
    assert!(shown.code == Some(0) && shown.stdout.contains("rank"), "{shown}");

    // Contents that are handed in: kept in parts, replaced, and told by kind.
    let text = "x".repeat(120_000);
    let put = |kind: u32, text: &str| {
        let data = proto::base64::to_base64(text.as_bytes());
        json!({"siteId": "news", "url": root, "contentType": kind, "putDict": {"data": data}})
    };
    done(data, "URL_PUT", &json!([put(1, "first"), put(1, &text), put(1024, "raw")]));
    let content = |mask: u32| {
        let asked = json!({"siteId": "news", "url": root, "contentTypeMask": mask});
        done(data, "URL_CONTENT", &asked)[0].clone()
    };
    let told = content(1);
    assert_eq!((&told["status"], &told["urlMd5"]), (&json!(0), &json!(md5)));
    assert_eq!(told["processedContents"].as_array().unwrap().len(), 1);
    assert_eq!(from_base64(told["processedContents"][0]["buffer"].as_str().unwrap()).unwrap(), text.as_bytes());
    assert_eq!(content(1024 | 2)["rawContents"][0]["buffer"], "cmF3");
    assert_eq!(content(16)["status"], 2, "it was not fetched");
    assert_eq!(content(32_768)["attributes"][0]["name"], "rank");
    let nobody = json!({"siteId": "news", "url": format!("{root}nosuch")});
    assert_eq!(done(data, "URL_CONTENT", &nobody)[0]["status"], 1);
    assert_eq!(done(data, "URL_CONTENT", &json!([])), json!([]));
    refused(data, "URL_CONTENT", &json!({"siteId": "nosuch", "url": root}), 2020, "nosuch");
    refused(
        data,
        "URL_CONTENT",
        &json!({"siteId": "news", "url": root, "contentTypeMask": 0}),
        2000,
        "contentTypeMask",
    );
    refused(
        data,
        "URL_PUT",
        &json!({"siteId": "news", "url": root, "contentType": 3, "putDict": {"data": ""}}),
        2000,
        "contentType",
    );
    refused(
        data,
        "URL_PUT",
        &json!({"siteId": "news", "url": root, "contentType": 1, "putDict": {"data": "?"}}),
        2000,
        "putDict.data",
    );
    refused(
        data,
        "URL_PUT",
        &json!({"siteId": "news", "url": format!("{root}nosuch"), "contentType": 1, "putDict": {"data": ""}}),
        2020,
        "URL",
    );

    // Proxies: new, twice, changed, found, gone.
    let proxy = json!({"siteId": "news", "host": "127.0.0.1:2", "priority": 5});
    assert_eq!(done(data, "PROXY_NEW", &proxy)["statuses"], json!([0]));
    refused(data, "PROXY_NEW", &proxy, 2020, "already");
    refused(data, "PROXY_NEW", &json!({"siteId": "news", "host": "nonsense"}), 2000, "host");
    refused(data, "PROXY_NEW", &json!({"siteId": "nosuch", "host": "127.0.0.1:2"}), 2020, "nosuch");
    done(data, "PROXY_UPDATE", &json!({"siteId": "news", "host": "127.0.0.1:2", "faultsMax": 3}));
    let told = done(data, "PROXY_STATUS", &json!({"siteId": "news", "host": "127.0.0.1:2"}))[0].clone();
    assert_eq!((&told["priority"], &told["faultsMax"], &told["faults"]), (&json!(5), &json!(3), &json!(0)));
    let find =
        |condition: &str| done(data, "PROXY_FIND", &json!({"siteId": "news", "criterions": {"WHERE": condition}}));
    assert_eq!((find("priority > 4").as_array().unwrap().len(), find("state = 0")), (1, json!([])));
    assert_eq!(site(data, "news")["proxies"][0]["host"], "127.0.0.1:2");
    done(data, "PROXY_DELETE", &json!({"siteId": "news", "host": "127.0.0.1:2"}));
    refused(data, "PROXY_DELETE", &json!({"siteId": "news", "host": "127.0.0.1:2"}), 2020, "no proxy");

    // Too old: only what the request or the site says, never more than asked for.
    let fresh: Value = (0..30).map(|n| json!({"siteId": "news", "url": format!("{root}old?n={n}")})).collect();
    done(data, "URL_NEW", &fresh);
    let age = |body: Value| done(data, "URL_AGE", &body);
    assert_eq!(age(json!({"siteId": "news"})), json!([]), "nothing says that it ages");
    let old = json!({"siteId": "news", "urlsCriterions": {"WHERE": "url LIKE '%old?n=%'"}, "maxURLs": 10});
    assert_eq!(age(old), json!([["news", 10]]));
    refused(data, "URL_AGE", &json!({"siteId": "news", "maxURLs": 0}), 2000, "maxURLs");
    refused(data, "URL_AGE", &json!({"siteId": "nosuch"}), 2020, "nosuch");
    let property =
        |condition: &str| json!({"id": "news", "properties": [{"name": "AGING_URL_CRITERION", "value": condition}]});
    refused(data, "SITE_UPDATE", &property("nosuch = 1"), 2000, "AGING_URL_CRITERION");
    done(data, "SITE_UPDATE", &property("url LIKE '%old?n=%'"));
    assert_eq!(age(json!({})), json!([["news", 20]]));
    assert_eq!(done(data, "URL_PURGE", &json!({"siteId": "news", "maxURLs": 25})), json!([["news", 25]]));
    assert_eq!(done(data, "URL_PURGE", &json!({})), json!([["news", 5]]));
    assert_eq!(done(data, "URL_PURGE", &json!({})), json!([]), "all is purged");

    // Counts are what a recount gives; deleting a URL removes its attributes.
    let counted = done(data, "FIELD_RECALCULATE", &json!({"siteId": "news"}))[0].clone();
    assert_eq!((&counted["corrected"], &counted["collectedURLs"]), (&json!(0), &json!(1)));
    done(data, "URL_DELETE", &json!({"siteId": "news", "url": root, "delayedType": 1}));
    assert_eq!(fetch(json!({"siteId": "news"})), json!([]));
    assert_eq!(done(data, "URL_PURGE", &json!({})), json!([]), "that was done at once");
    drop(node);
}

#[test]
fn contents_history_and_proxies_of_a_crawled_site_with_one_node_down() {
    let work = tempfile::tempdir().unwrap();
    let server = web(2, 8);
    let behind = RawServer::start(|asked| match asked.path {
        "http://127.0.0.9:9/" => Reply::page(&["/second"]).header("Set-Cookie", "a=b"),
        "http://127.0.0.9:9/second" => Reply::page(&["/"]),
        _ => Reply::status(404),
    });
    let mut fleet = Fleet::start(work.path(), 3, "");
    let data = fleet.folder().to_owned();
    let data = data.as_str();
    let root = server.seeds()[0].clone();
    let log = json!([{"name": "STATS_LOG_ENABLED", "value": 1}]);
    let news = json!({"id": "news", "urls": [root], "requestDelay": 20, "properties": log});
    // Nothing listens there; the first proxy does not work either.
    let proxies = json!([
        {"host": "127.0.0.1:1", "priority": 9, "faultsMax": 2},
        {"host": behind.address().to_string(), "domains": ["127.0.0.9"]},
    ]);
    let hidden = json!({"id": "hidden", "urls": ["http://127.0.0.9:9/"], "requestDelay": 20, "proxies": proxies});
    for new in [news, hidden] {
        let id = new["id"].as_str().unwrap();
        wait_until("the site is kept", || {
            dc(data, "SITE_NEW", &new, &[]).0.code == Some(0) || site(data, id)["state"] == 1
        });
    }
    wait_until("both are crawled", || {
        let (news, hidden) = (site(data, "news"), site(data, "hidden"));
        news["contents"].as_u64() > Some(3) && news["newURLs"] == 0 && hidden["contents"] == 2
    });

    // The page as it was fetched, and what was said around it.
    let content = |id: &str, url: &str, mask: u32| {
        let asked = json!({"siteId": id, "url": url, "contentTypeMask": mask, "dbFieldsList": ["size", "httpCode"]});
        dc(data, "URL_CONTENT", &asked, &[]).1["itemsList"][0]["itemObject"][0].clone()
    };
    let bytes = |content: &Value| from_base64(content["buffer"].as_str().unwrap()).unwrap();
    let told = content("news", &root, 2 | 1024 | 16 | 32 | 64);
    assert_eq!((&told["status"], &told["dbFields"]["httpCode"]), (&json!(0), &json!(200)));
    assert_eq!(json!(bytes(&told["rawContents"][0]).len()), told["dbFields"]["size"]);
    assert!(bytes(&told["headers"][0]).starts_with(b"HTTP/1.1 200"), "{told}");
    assert!(bytes(&told["requests"][0]).starts_with(b"GET / HTTP/1.1"), "{told}");
    assert!(!told["meta"].as_array().unwrap().is_empty(), "{told}");
    assert_eq!(content("news", &root, 1)["status"], 3, "nobody processed it");
    let told = content("hidden", "http://127.0.0.9:9/", 1024 | 128);
    assert_eq!(bytes(&told["cookies"][0]), b"a=b");
    assert!(behind.access_log().len() >= 2, "everything went through the proxy");
    let found = json!({"sitesList": ["hidden"], "urlsCriterions": {"ORDER BY": "url"}});
    let both = done(data, "URL_CONTENT", &json!({"urlFetch": found, "contentTypeMask": 1024}));
    assert_eq!(both.as_array().map(Vec::len), Some(2));

    // What happened, put together from three replicas; a node goes down.
    let history_of = |operation: &str, url: &Value| {
        let (_, answer) = dc(data, operation, &json!({"siteId": "news", "url": url}), &[]);
        answer["itemsList"][0]["itemObject"][0].clone()
    };
    let history = |operation: &str| history_of(operation, &json!(root));
    let codes = |told: &Value| -> Vec<u64> {
        told["logRows"].as_array().into_iter().flatten().filter_map(|row| row["opCode"].as_u64()).collect()
    };
    assert_eq!(codes(&history("URL_HISTORY")).iter().filter(|code| **code == 7).count(), 1);
    let linked = json!({"sitesList": ["news"], "urlsCriterions": {"WHERE": "depth > 0 AND status = 7", "LIMIT": 1}});
    let linked = done(data, "URL_FETCH", &linked)[0]["url"].clone();
    let told = codes(&history_of("URL_HISTORY", &linked));
    assert!(told[..2].contains(&20) && told[..2].contains(&1), "it was inserted as new: {told:?}");
    assert!(told[told.len() - 2..].contains(&7) && told[told.len() - 2..].contains(&25), "it has content: {told:?}");
    fleet.kill_node(1);
    wait_until("it is put up again", || {
        dc(data, "URL_UPDATE", &json!({"siteId": "news", "url": root, "status": 1}), &[]).0.code == Some(0)
    });
    wait_until("its second round is history", || history("URL_STATS")["freqRows"]["FProcessed"] == 2);
    assert_eq!(history("URL_STATS")["freqRows"]["FUpd"], 1);
    let all = content("news", &root, 8 | 1024);
    assert_eq!(all["rawContents"].as_array().map(Vec::len), Some(2), "both versions");
    assert_eq!(content("news", &root, 4 | 1024)["rawContents"].as_array().map(Vec::len), Some(1));
    let set = json!({"siteId": "news", "name": "seen", "urlMd5": all["urlMd5"], "value": "yes"});
    wait_until("an attribute is kept", || dc(data, "ATTRIBUTE_SET", &set, &[]).0.code == Some(0));
    assert_eq!(content("news", &root, 32_768)["attributes"][0]["value"], "yes");

    // Cleaned, it is crawled anew, and has one version: what was there before is its no more, whichever node has it.
    done(data, "URL_CLEANUP", &json!({"siteId": "news", "url": root}));
    wait_until("it is crawled anew", || {
        let told = done(data, "URL_STATUS", &json!({"siteId": "news", "url": root}))[0].clone();
        told["status"] == 7 && told["crawled"] == 1
    });
    wait_until("it has one version", || {
        content("news", &root, 8 | 1024)["rawContents"].as_array().map(Vec::len) == Some(1)
    });
    assert_eq!(content("news", &root, 32_768)["attributes"], json!([]));
    let read = run(&["ctl", "--data", data, "url", "content", &root, "--site", "news"]);
    assert!(
        read.code == Some(0) && !read.stdout.is_empty(),
        "it can be read, also if it only repeats what was there: {read}"
    );
    run(&["ctl", "--data", data, "url", "content", &root, "--site", "news", "--round", "0"]).complains(1, &["no node"]);
    let (_, counted) = dc(data, "FIELD_RECALCULATE", &json!({"siteId": "news"}), &[]);
    assert_eq!(counted["itemsList"][0]["itemObject"][0]["corrected"], 0, "{counted}");

    // Purging waits for the node that may have contents.
    done(data, "URL_DELETE", &json!({"siteId": "news", "url": root}));
    let (ended, answer) = dc(data, "URL_PURGE", &json!({"siteId": "news"}), &[]);
    assert!(ended.code == Some(1) && answer["itemsList"][0]["errorCode"] == 1, "{ended}");
    fleet.start_node(1);
    wait_until("it is purged", || {
        dc(data, "URL_PURGE", &json!({"siteId": "news"}), &[]).1["itemsList"][0]["itemObject"] == json!([["news", 1]])
    });
    let read = run(&["ctl", "--data", data, "url", "content", &root, "--crawl", "news"]);
    read.complains(1, &["no node that answers has a version"]);
}

#[test]
fn changes_of_proxies_through_all_nodes_at_once_are_all_kept() {
    let work = tempfile::tempdir().unwrap();
    let fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    done(fleet.folder(), "SITE_NEW", &json!({"id": "news", "urls": ["http://127.0.0.1:1/"], "state": 3}));
    let ask = |node: usize, operation: &str, body: &Value| -> Value {
        let ended = fleet.through(node, "dc", &["--command", operation, "--fields", &body.to_string()]);
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        answer["itemsList"][0]["itemObject"].clone() // null while it does not answer
    };
    let told = |node: usize| -> Vec<String> {
        let body = json!({"siteId": "news", "criterions": {"ORDER BY": "host", "LIMIT": 100}});
        let rows = ask(node, "PROXY_FIND", &body).as_array().cloned().unwrap_or_default();
        rows.iter().map(|proxy| proxy["host"].as_str().unwrap_or_default().to_owned()).collect()
    };
    for node in 0..3 {
        wait_until("the node knows the site", || ask(node, "SITE_STATUS", &json!({"id": "news"}))["state"] == 3);
    }
    // Whoever is told that too many came between, or that too few could keep it, asks again, as the answer says; it may have taken effect.
    let until_done = &|node: usize, operation: &str, host: &str, effect: &str| {
        wait_until(&format!("{operation} {host}"), || {
            let object = ask(node, operation, &json!({"siteId": "news", "host": host}));
            assert!(object["errorCode"] != 2000, "{operation} {host}: {object}");
            object["errorCode"] == 0 || object["errorMessage"].as_str().is_some_and(|why| why.contains(effect))
        });
    };
    let host = &|node: usize, number: usize| format!("127.0.0.1:{}", 1000 + 10 * node + number);
    std::thread::scope(|scope| {
        for node in 0..3 {
            scope.spawn(move || {
                (0..3).for_each(|number| until_done(node, "PROXY_NEW", &host(node, number), "already"));
                until_done(node, "PROXY_DELETE", &host(node, 1), "no proxy");
            });
        }
    });
    let left: Vec<String> = (0..3).flat_map(|node| [host(node, 0), host(node, 2)]).collect();
    for node in 0..3 {
        wait_until("every node has what was changed through all", || told(node) == left);
    }
}

#[test]
fn files_are_of_every_version_that_was_not_forgotten() {
    let work = tempfile::tempdir().unwrap();
    let server = RawServer::start(|asked| match asked.path {
        "/" => Reply::page(&["/again", "/cleaned"]),
        // Each is another page: one that only repeats another has its bytes there.
        "/again" | "/cleaned" => Reply::page(&["/", asked.path]),
        _ => Reply::status(404),
    });
    let (node, data) = node_alone(work.path());
    let data = data.as_str();
    let named = |path: &str| json!({"siteId": "news", "url": server.url(path)});
    let crawled = |path: &str| done(data, "URL_STATUS", &named(path))[0]["crawled"].clone();
    done(data, "SITE_NEW", &json!({"id": "news", "urls": [server.url("/")], "requestDelay": 5}));
    wait_until("it is crawled", || site(data, "news")["contents"] == 3);
    done(data, "URL_UPDATE", &json!({"siteId": "news", "url": server.url("/again"), "status": 1}));
    wait_until("a page is there twice", || crawled("/again") == 2);
    done(data, "SITE_UPDATE", &json!({"id": "news", "state": 3}));
    done(data, "URL_CLEANUP", &named("/cleaned"));
    node.interrupt();
    assert_eq!(node.wait().code, Some(0));

    let folder = work.path().join("raw");
    let ended = run(&["export", data, "--format", "files", "--crawl", "news", "--output", folder.to_str().unwrap()]);
    assert!(ended.code == Some(0) && ended.stdout.contains(" files of 2 URLs"), "{ended}");
    let bodies = |path: &str| {
        let md5 = proto::site::md5_hex(&server.url(path));
        let files = std::fs::read_dir(folder.join("news").join(&md5[..2]).join(&md5[2..]));
        let names = files.into_iter().flatten().map(|entry| entry.unwrap().path());
        let bodies: Vec<String> = names
            .filter(|path| path.extension().is_some_and(|ending| ending == "bin"))
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect();
        bodies
    };
    let again = bodies("/again");
    assert!((1..=2).contains(&again.len()) && again.iter().all(|body| body.contains("href=\"/\"")), "{again:?}");
    assert_eq!(bodies("/cleaned"), Vec::<String>::new(), "what was forgotten stays so");
    let rows = run(&["export", data, "--crawl", "news"]).stdout;
    let row = rows.lines().find(|row| row.contains("/cleaned")).expect("the URL is still known");
    let row: Value = serde_json::from_str(row).unwrap();
    assert_eq!(row["warc_file"], Value::Null, "{row}");
}
