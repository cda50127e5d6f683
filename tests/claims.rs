//! URL_FETCH that claims: whoever asks, through whichever node and at the same time as others, gets URLs that nobody else gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::sites::{dc, done};
use tests::wait_until;

/// URLs to claim, and how many are claimed at once.
const URLS: usize = 30;
const AT_ONCE: usize = 4;

#[test]
fn urls_that_are_claimed_through_all_nodes_at_once_are_given_to_one_each() {
    let work = tempfile::tempdir().unwrap();
    let fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let data = fleet.folder();
    done(data, "SITE_NEW", &json!({"id": "news", "urls": ["http://127.0.0.1:1/"], "state": 3, "moveURLs": false}));
    let urls: Vec<Value> =
        (0..URLS).map(|n| json!({"siteId": "news", "url": format!("http://127.0.0.1:1/{n}")})).collect();
    done(data, "URL_NEW", &Value::from(urls));

    let claim = json!({"sitesList": ["news"], "urlsCriterions": {"WHERE": "state = 0"}, "maxURLs": AT_ONCE, "urlUpdate": {"state": 1}});
    let (claim, given) = (claim.to_string(), Mutex::new(BTreeMap::<String, usize>::new()));
    let unanswered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for node in 0..3 {
            let (claim, given, fleet, unanswered) = (&claim, &given, &fleet, &unanswered);
            scope.spawn(move || {
                wait_until("nothing is left to claim", || {
                    let ended = fleet.through(node, "dc", &["--command", "URL_FETCH", "--fields", claim]);
                    let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
                    let object = &answer["itemsList"][0]["itemObject"];
                    // Who is told that the lock, or a node, cannot be had now asks again; what was claimed then is nobody's.
                    assert!(object["errorCode"] != 2000, "{object}");
                    let urls = object.as_array().cloned();
                    unanswered.fetch_add(usize::from(urls.is_none()), Ordering::Relaxed);
                    let mut given = given.lock().unwrap();
                    for url in urls.iter().flatten() {
                        *given.entry(url["url"].as_str().unwrap().to_owned()).or_default() += 1;
                    }
                    urls.is_some_and(|urls| urls.is_empty())
                });
            });
        }
    });
    let given = given.into_inner().unwrap();
    assert!(given.values().all(|times| *times == 1), "some were given out twice: {given:?}");
    let lost = unanswered.into_inner() * AT_ONCE;
    assert!(given.len() <= URLS && given.len() + lost >= URLS, "{} of {URLS}, {lost} lost at most", given.len());

    // An answer of all nodes together names them all, one of each only itself.
    let entries = |merge: &str| {
        let (_, answer) = dc(data, "SITE_STATUS", &json!({"id": "news"}), &["--merge", merge]);
        answer["itemsList"].as_array().cloned().unwrap_or_default()
    };
    let names = |entry: &Value, field: &str| -> BTreeSet<String> {
        entry[field].as_str().unwrap_or_default().split(';').map(str::to_owned).collect()
    };
    let times = |entry: &Value| -> Vec<u64> {
        entry["time"].as_str().unwrap_or_default().split(';').filter_map(|time| time.parse().ok()).collect()
    };
    wait_until("all nodes are named, each with its time", || {
        let (merged, each) = (entries("1"), entries("0"));
        let hosts: BTreeSet<String> = each.iter().flat_map(|entry| names(entry, "host")).collect();
        merged.len() == 1
            && each.len() == 3
            && merged[0]["port"] == "0;0;0"
            && names(&merged[0], "host") == hosts
            && hosts.len() == 3
            && times(&merged[0]).len() == 3
            && each.iter().all(|entry| entry["time"].is_u64())
            && names(&merged[0], "node") == each.iter().flat_map(|entry| names(entry, "node")).collect()
    });

    // A site tells how many of its URLs are deleted and wait to be purged; what purges by itself may have come between.
    let mut left = (0..URLS).map(|n| format!("http://127.0.0.1:1/{n}"));
    wait_until("a deleted URL is told", || {
        let url = left.next().expect("one of them is told before it is purged");
        done(data, "URL_DELETE", &json!({"siteId": "news", "url": url}));
        let (_, told) = dc(data, "SITE_STATUS", &json!({"id": "news", "measure": 1}), &[]);
        told["itemsList"][0]["itemObject"]["deletedURLs"].as_u64() >= Some(1)
    });
}
