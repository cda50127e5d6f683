//! Pages are kept on two nodes: when one is lost for ever, every page can still be read, through any node.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use node::edges::store::Store;
use node::edges::warc::Record;
use serde_json::Value;
use simulation::world::web::{Request, Visit};
use tests::cluster::{Cluster, web};
use tests::fleet::SETTINGS;
use tests::raw::{RawServer, Reply};
use tests::{found, wait_until};

/// What one actor of a node counts, summed over all nodes that answer.
fn figure(cluster: &Cluster, name: &str) -> Option<u64> {
    let said = cluster.ctl(&["stat", "copier"])?;
    let parts = said["Admin"].as_array()?;
    let counters = parts.iter().filter_map(|part| part["said"]["Ok"]["Stat"][0]["counters"].as_array()).flatten();
    let of_name: Vec<u64> =
        counters.filter(|counter| counter[0] == name).filter_map(|counter| counter[1].as_u64()).collect();
    (!of_name.is_empty()).then(|| of_name.iter().sum())
}

/// Whether each of so many pages is on at least two of the disks of `nodes`.
fn on_two(cluster: &Cluster, nodes: &[usize], expected: u64) -> bool {
    let mut copies: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for node in nodes {
        let Ok(store) = Store::open_for_reading(&cluster.data(*node)) else { return false };
        for row in store.urls() {
            let Ok(row) = row else { return false };
            let held = store.versions(&row.key).map_or(0, |versions| versions.len().min(1));
            *copies.entry(row.key.as_bytes().to_vec()).or_default() += held;
        }
    }
    copies.len() as u64 == expected && copies.values().all(|count| *count >= 2)
}

/// The digest of each page's first capture.
fn payloads(records: &[Record]) -> BTreeMap<String, String> {
    let digest = |record: &Record| record.header("WARC-Payload-Digest").expect("captures have one").to_owned();
    found::captures(records).into_iter().map(|(url, captures)| (url.to_owned(), digest(captures[0]))).collect()
}

/// One cluster at a time: each is three processes, and a machine that crawls with six is slower than their leases are long.
static ONE: Mutex<()> = Mutex::new(());

#[test]
fn a_node_is_lost_for_ever_in_the_middle_of_a_crawl_and_every_page_can_be_read() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (16, 7);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    let mut cluster = Cluster::local(work.path(), 3, SETTINGS);
    cluster.submit_at(0, &server.seeds());
    wait_until("a third is crawled", || cluster.totals().2 >= expected / 3);
    let peer = {
        let reports = cluster.reports();
        // The one that holds most, so that others lack most.
        let most = reports.iter().max_by_key(|report| report["fetches"].as_u64()).expect("nodes answer");
        most["peer"].as_str().expect("every report has its peer").to_owned()
    };
    let lost = (0..3).find(|node| cluster.peer_of(*node).0 == peer).expect("one of ours");
    cluster.kill_node(lost);
    std::fs::remove_dir_all(cluster.data(lost)).expect("its disk is gone");
    wait_until("it is forgotten", || {
        let answer = cluster.ctl(&["forget", &peer]);
        answer.is_some_and(|answer| answer["Admin"].as_array().is_some_and(|parts| parts.len() == 2))
    });
    wait_until("everything is crawled", || cluster.totals().2 == expected);
    let alive: Vec<usize> = (0..3).filter(|node| *node != lost).collect();
    wait_until("every page has its second copy again", || {
        on_two(&cluster, &alive, expected) && figure(&cluster, "pages_lacking_a_copy") == Some(0)
    });
    let urls = cluster.agreed(&alive, 2).expect("both have the same records");
    assert_eq!(urls.len() as u64, expected);
    for (n, url) in urls.iter().enumerate().filter(|(n, _)| n % 9 == 0) {
        let through = alive[n % 2];
        let file = work.path().join(format!("page-{n}"));
        let output = file.to_str().unwrap();
        let ended = cluster.ctl_through(through, &["url", "content", url, "--what", "raw", "--output", output]);
        let facts: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{url}: {ended}"));
        assert_eq!(facts["nodes"].as_array().map(Vec::len), Some(2), "{facts}");
        assert_eq!(facts["http_code"], 200, "{facts}");
        let (host, path) = found::split(url);
        let served = server.web().respond(&Request::get(host, path), Visit::default());
        assert!(std::fs::read(&file).unwrap() == served.body.as_ref(), "{url} is not what was served");
    }
    cluster.ctl_through(alive[0], &["url", "content", "http://nobody.example/"]).complains(1, &["no node"]);
    cluster.stop();
    // Both archives are whole, hold every page, and agree byte for byte in what they hold.
    let archives: Vec<_> = alive.iter().map(|node| found::records(&cluster.data(*node))).collect();
    let digests: Vec<BTreeMap<String, String>> = archives.iter().map(|records| payloads(records)).collect();
    assert_eq!(digests[0].len() as u64, expected);
    assert!(digests[0] == digests[1], "the archives differ");
    for node in alive {
        let store = Store::open_for_reading(&cluster.data(node)).unwrap();
        assert_eq!(*store.standing(), store.recount_copies().unwrap(), "what is counted is what is there");
        assert_eq!(store.standing().lacking, 0);
    }
}

#[test]
fn a_node_that_leaves_hands_its_pages_over_and_one_with_an_empty_disk_is_noticed() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let work = tempfile::tempdir().unwrap();
    let (hosts, pages) = (10, 4);
    let server = web(hosts, pages);
    let expected = u64::from(hosts * pages);
    let mut cluster = Cluster::local(work.path(), 3, SETTINGS);
    cluster.submit_at(0, &server.seeds());
    wait_until("everything is crawled", || cluster.totals().2 == expected);
    wait_until("every page is on two nodes", || figure(&cluster, "pages_lacking_a_copy") == Some(0));
    // An empty disk under the old name: whoever trusted it with pages makes their copies anew.
    cluster.kill_node(1);
    std::fs::remove_dir_all(cluster.data(1)).expect("its disk is gone");
    cluster.start_node(1);
    wait_until("every page is on two disks again", || on_two(&cluster, &[0, 1, 2], expected));
    // One leaves: when it has, the other two have everything, and soon twice.
    let told = cluster.ctl_through(2, &["leave"]);
    assert_eq!(told.code, Some(0), "{told}");
    let said = cluster.wait_for_node(2);
    assert!(said.contains("has left"), "{said}");
    std::fs::remove_dir_all(cluster.data(2)).expect("its disk is gone");
    wait_until("every page is on both that are left", || on_two(&cluster, &[0, 1], expected));
    let url = &server.seeds()[0];
    let facts: Value = cluster.ctl_at(0, &["url", "content", url]).expect("it can be read");
    assert_eq!(facts["nodes"].as_array().map(Vec::len), Some(2), "{facts}");
    cluster.stop();
}

/// Text that packing makes a quarter shorter and no more.
fn noise(bytes: usize) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = 88_172_645_463_325_252u64;
    let mut text = String::with_capacity(bytes);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (0..10).for_each(|n| text.push(char::from(letters[(state >> (6 * n)) as usize & 63])));
    }
    text
}

#[test]
fn a_page_that_is_larger_than_memory_should_hold_is_on_two_nodes_too() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let work = tempfile::tempdir().unwrap();
    let body = noise(24 << 20);
    let large = body.clone();
    let server = RawServer::start(move |asked| match asked.path {
        "/large" => Reply::file("text/plain", large.as_str()),
        _ => Reply::status(404),
    });
    let settings = SETTINGS
        .replace("settle_timeout_s = 5", "settle_timeout_s = 60")
        .replace(
            "fetch_timeout_ms = 3000",
            "fetch_timeout_ms = 10000\npage_bytes_max = 33554432\nwire_bytes_max = 33554432",
        )
        .replace("duration_s = 8", "duration_s = 16");
    let mut cluster = Cluster::local(work.path(), 3, &settings);
    let url = server.url("/large");
    cluster.submit_at(0, std::slice::from_ref(&url));
    wait_until("it is crawled", || cluster.totals().2 == 1);
    assert!(on_two(&cluster, &[0, 1, 2], 1), "what counts is on two disks");
    assert_eq!(figure(&cluster, "pages_lacking_a_copy"), Some(0));
    let file = work.path().join("page");
    let output = file.to_str().unwrap();
    let ended = cluster.ctl_through(0, &["url", "content", &url, "--what", "raw", "--output", output]);
    let facts: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended}"));
    assert_eq!(facts["nodes"].as_array().map(Vec::len), Some(2), "{facts}");
    assert!(std::fs::read(&file).unwrap() == body.as_bytes(), "it is not what was served");
    cluster.stop();
    let holders = (0..3).filter(|node| {
        let warc = cluster.data(*node).join("warc");
        let files = std::fs::read_dir(warc).into_iter().flatten().flatten();
        files.filter_map(|file| file.metadata().ok()).map(|facts| facts.len()).sum::<u64>() > 16 << 20
    });
    assert_eq!(holders.count(), 2, "it is kept as large as it is");
}
