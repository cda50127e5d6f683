//! What clients of the URL Frontier API said to a cluster of three: it holds when one node is killed, when that one comes back, and when all three are killed and
//! started again. Delays, blocks, limits, the paused flag, leases, deletions, and the order of updates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use node::doors::frontier::api;
use node::doors::frontier::api::ack_message::Status as Ack;
use tests::fleet::Fleet;
use tests::frontier_api::{
    Client, connect, count, date, delete_crawl, found, info, known, now_s, put, put_all, stats, status, take, wanted,
};
use tests::{PATIENCE, wait_until};

/// Queues of each kind: so many that every node has some.
const QUEUES: usize = 12;
/// Longer than any of this takes.
const LONG_S: u32 = 36_000;

fn start(work: &Path) -> Fleet {
    let fleet = Fleet::start(work, 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    fleet
}

fn kill_all_and_start(fleet: &mut Fleet) {
    (0..3).for_each(|node| fleet.kill_node(node));
    (0..3).for_each(|node| fleet.start_node(node));
    wait_until("all doors are open", || (0..3).all(|node| fleet.frontier(node).is_some()));
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
}

async fn client_of(fleet: &Fleet, node: usize) -> Client {
    connect(&fleet.frontier(node).unwrap()).await
}

fn keys(kind: &str) -> impl Iterator<Item = String> {
    (0..QUEUES).map(move |n| format!("{kind}{n}"))
}

async fn set_delay(client: &mut Client, key: &str, seconds: u32) {
    let (key, crawl_id) = (key.to_owned(), "kept".to_owned());
    let params = api::QueueDelayParams { key, delay_requestable: seconds, crawl_id, local: false };
    client.set_delay(params).await.unwrap();
}

async fn set_active(client: &mut Client, state: bool) {
    client.set_active(api::Active { state, local: false }).await.unwrap();
}

/// Takes out of all queues of a crawl until every queue of `control`, which is made for this, was served: so nothing else was to be had. What came, by queue.
async fn everything_of(client: &mut Client, crawl: &str, control: &str) -> BTreeMap<String, Vec<String>> {
    put_all(client, (0..100).map(|n| found(info(control, &format!("q{n}"), "u"))).collect()).await;
    let mut came: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut served, until) = (0, Instant::now() + PATIENCE);
    while served < 100 {
        assert!(Instant::now() < until, "{served} of 100 queues were served");
        served += take(client, wanted(control, "", 0, 0, LONG_S)).await.len();
        for info in take(client, wanted(crawl, "", 0, 0, LONG_S)).await {
            came.entry(info.key).or_default().push(info.url);
        }
    }
    came
}

/// Takes so many URLs of every queue of a kind.
async fn take_of_each(client: &mut Client, kind: &str, urls: u32, lease_s: u32) {
    for key in keys(kind) {
        let until = Instant::now() + PATIENCE;
        while take(client, wanted("kept", &key, 0, urls, lease_s)).await.is_empty() {
            assert!(Instant::now() < until, "{key} is served");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delays_blocks_limits_the_paused_flag_and_leases_survive_the_kill_of_one_node_and_of_all() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = start(work.path());
    let mut client = client_of(&fleet, 0).await;
    set_delay(&mut client, "", 0).await;
    for kind in ["blocked", "slow", "limited", "leased", "default"] {
        let items = keys(kind).flat_map(|key| ["1", "2"].map(|url| known(info("kept", &key, url), 5)));
        put_all(&mut client, items.collect()).await;
    }
    for key in keys("blocked") {
        let block =
            api::BlockQueueParams { key, time: now_s() + u64::from(LONG_S), crawl_id: "kept".into(), local: false };
        client.block_queue_until(block).await.unwrap();
    }
    for key in keys("slow") {
        set_delay(&mut client, &key, LONG_S).await;
    }
    for key in keys("limited") {
        let limit = api::CrawlLimitParams { key: key.clone(), limit: 1, crawl_id: "kept".into(), local: false };
        client.set_crawl_limit(limit).await.unwrap();
        put_all(&mut client, vec![known(info("kept", &key, "1"), 0)]).await;
    }
    for key in keys("leased") {
        set_delay(&mut client, &key, 0).await;
    }
    // Out: of the slow ones for a second, so that only the delay holds them back.
    take_of_each(&mut client, "leased", 2, LONG_S).await;
    take_of_each(&mut client, "slow", 1, 1).await;
    take_of_each(&mut client, "default", 1, 1).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    set_delay(&mut client, "", LONG_S).await; // of all that have none of their own, which are the last ones
    set_active(&mut client, false).await;
    let said = stats(&mut client, "kept", "").await;
    assert_eq!((said.0, said.2, said.3), (9 * QUEUES as u64, QUEUES as u64, 5 * QUEUES as u64));
    let leased = 2 * QUEUES as u32;

    for (round, killed) in ["with one killed", "with one back", "after all were killed"].into_iter().enumerate() {
        match round {
            0 => fleet.kill_node(2),
            1 => {
                fleet.start_node(2);
                wait_until("its door is open", || fleet.frontier(2).is_some());
            }
            _ => kill_all_and_start(&mut fleet),
        }
        for node in 0..if round == 0 { 2 } else { 3 } {
            let mut client = client_of(&fleet, node).await;
            tests::frontier_api::wait_until_ready(&mut client).await;
            let active = client.get_active(api::Local::default()).await.unwrap().into_inner().state;
            assert!(!active, "{killed}: node {node} is paused");
            assert_eq!(take(&mut client, wanted("kept", "", 0, 0, LONG_S)).await, [], "{killed}: node {node}");
            let now = stats(&mut client, "kept", "").await;
            assert_eq!((now.0, now.1, now.2, now.3), (said.0, leased, said.2, said.3), "{killed}: node {node}");
        }
        let mut client = client_of(&fleet, 0).await;
        set_active(&mut client, true).await;
        let came = everything_of(&mut client, "kept", &format!("control-{round}")).await;
        assert_eq!(came, BTreeMap::new(), "{killed}: nothing is to be had");
        set_active(&mut client, false).await;
    }

    // And it can be undone: then all of it comes but what is leased.
    let mut client = client_of(&fleet, 1).await;
    set_active(&mut client, true).await;
    set_delay(&mut client, "", 0).await;
    for key in keys("blocked") {
        let unblock = api::BlockQueueParams { key, time: 0, crawl_id: "kept".into(), local: false };
        client.block_queue_until(unblock).await.unwrap();
    }
    for key in keys("slow") {
        set_delay(&mut client, &key, 0).await;
    }
    for key in keys("limited") {
        let none = api::CrawlLimitParams { key, limit: 0, crawl_id: "kept".into(), local: false };
        client.set_crawl_limit(none).await.unwrap();
    }
    let (mut came, until) = (BTreeSet::new(), Instant::now() + PATIENCE);
    while came.len() < 7 * QUEUES {
        assert!(Instant::now() < until, "{} URLs came", came.len());
        for info in take(&mut client, wanted("kept", "", 0, 0, LONG_S)).await {
            assert!(!info.key.starts_with("leased"), "{} of {} is leased", info.url, info.key);
            assert!(came.insert((info.key, info.url)), "twice within a lease");
        }
    }
    fleet.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_while_a_node_was_down_stays_deleted_when_it_comes_back_and_when_all_were_killed() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = start(work.path());
    let mut client = client_of(&fleet, 0).await;
    let of = |crawl: &str| (0..90).map(|n| known(info(crawl, &format!("q{}", n % 30), &format!("u{n}")), 5)).collect();
    for crawl in ["gone", "queues", "purged"] {
        put_all(&mut client, of(crawl)).await;
    }
    fleet.kill_node(2); // it has some of all that
    assert_eq!(delete_crawl(&mut client, "gone").await, 90);
    for n in 0..15 {
        let queue = api::QueueWithinCrawlParams { key: format!("q{n}"), crawl_id: "queues".into(), local: false };
        assert_eq!(client.delete_queue(queue).await.unwrap().into_inner().value, 3);
    }
    let purge = api::PurgeUrlParams { key: String::new(), crawl_id: "purged".into(), days: 0 };
    assert_eq!(client.purge_ur_ls(purge).await.unwrap().into_inner().value, 90);
    fleet.start_node(2);
    wait_until("its door is open", || fleet.frontier(2).is_some());
    for round in ["one came back", "all were killed"] {
        if round == "all were killed" {
            kill_all_and_start(&mut fleet);
        }
        // Also what the one that was down says of its own slots, once it has heard.
        let mut client = client_of(&fleet, 2).await;
        tests::frontier_api::wait_until_ready(&mut client).await;
        let until = Instant::now() + PATIENCE;
        loop {
            let counts = [
                count(&mut client, "gone", None, false).await,
                count(&mut client, "queues", None, false).await,
                count(&mut client, "purged", None, false).await,
            ];
            if counts == [0, 45, 0] {
                break;
            }
            assert!(Instant::now() < until, "{round}: {counts:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(stats(&mut client, "queues", "").await.3, 15, "{round}");
        for crawl in ["gone", "purged"] {
            let came = everything_of(&mut client, crawl, &format!("control {crawl} {round}")).await;
            assert_eq!(came, BTreeMap::new(), "{round}: of {crawl}");
        }
        let came = client.list_crawls(api::Local::default()).await.unwrap().into_inner().values;
        assert!(!came.contains(&"gone".to_owned()), "{round}: {came:?}");
    }
    // Known no more.
    let mut client = client_of(&fleet, 2).await;
    for crawl in ["gone", "queues", "purged"] {
        let acks =
            put(&mut client, (0..15).map(|n| found(info(crawl, &format!("q{n}"), &format!("u{n}")))).collect()).await;
        assert!(acks.iter().all(|(_, ack)| *ack == Ack::Ok), "{crawl}: {acks:?}");
    }
    fleet.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_a_url_take_effect_in_their_order_while_the_node_of_their_queues_dies() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = start(work.path());
    let mut client = client_of(&fleet, 0).await;
    let urls: Vec<api::UrlInfo> =
        (0..60).flat_map(|queue| ["u", "v"].map(|url| info("order", &format!("q{queue}"), url))).collect();
    let (mut round, mut failed) = (0, 0);
    // One stream, on which every URL is updated again and again; a node dies in the middle, and for some time nobody has noticed.
    let (send, sent) = tokio::sync::mpsc::channel(8);
    let mut acks = client.put_ur_ls(tokio_stream::wrappers::ReceiverStream::new(sent)).await.unwrap().into_inner();
    for part in 0..6 {
        let feeding = async {
            for _ in 0..12 {
                round += 1;
                for info in &urls {
                    send.send(known(info.clone(), round)).await.unwrap();
                }
            }
        };
        let hearing = async {
            for _ in 0..12 * urls.len() {
                failed += usize::from(acks.message().await.unwrap().unwrap().status() != Ack::Ok);
            }
        };
        tokio::join!(feeding, hearing);
        let mut other = client_of(&fleet, 1).await;
        for info in &urls {
            let item = status(&mut other, "order", &info.key, &info.url).await.unwrap();
            assert_eq!(date(&item), round, "{} of {} after part {part}", info.url, info.key);
        }
        if part == 1 {
            fleet.kill_node(2);
        }
    }
    drop(send);
    assert!(acks.message().await.unwrap().is_none());
    assert_eq!(failed, 0, "two of three nodes are enough");
    fleet.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_has_deleted_what_it_never_heard_of() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = start(work.path());
    let mut client = client_of(&fleet, 0).await;
    fleet.kill_node(2);
    let queues = 200;
    for crawl in ["gone", "queues", "purged"] {
        put_all(&mut client, (0..queues).map(|n| found(info(crawl, &format!("q{n}"), "u"))).collect()).await;
    }
    fleet.start_node(2);
    wait_until("its door is open", || fleet.frontier(2).is_some());
    // It acts for a third of the queues from now on, and has heard of none of them.
    let mut client = client_of(&fleet, 2).await;
    tests::frontier_api::wait_until_ready(&mut client).await;
    assert_eq!(delete_crawl(&mut client, "gone").await, queues);
    for n in 0..queues {
        let queue = api::QueueWithinCrawlParams { key: format!("q{n}"), crawl_id: "queues".into(), local: false };
        assert_eq!(client.delete_queue(queue).await.unwrap().into_inner().value, 1, "q{n}");
    }
    let purge = api::PurgeUrlParams { key: String::new(), crawl_id: "purged".into(), days: 0 };
    assert_eq!(client.purge_ur_ls(purge).await.unwrap().into_inner().value, queues);
    // Also what nodes say of what they hear only now.
    for node in 0..3 {
        let mut client = client_of(&fleet, node).await;
        let until = Instant::now() + PATIENCE;
        for crawl in ["gone", "queues", "purged"] {
            while count(&mut client, crawl, None, false).await > 0 {
                assert!(Instant::now() < until, "node {node} has URLs of {crawl}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    fleet.interrupt();
}

/// Asserts what a node says of a crawl whose queues have the URLs `1` and `2`.
async fn knows_everything(client: &mut Client, crawl: &str, keys: &[String]) {
    let queues = keys.len() as u64;
    assert_eq!(stats(client, crawl, "").await, (2 * queues, 0, 0, queues, queues));
    assert_eq!(count(client, crawl, None, false).await, 2 * queues);
    let page = api::Pagination { crawl_id: crawl.into(), ..Default::default() };
    assert_eq!(client.list_queues(page).await.unwrap().into_inner().total, queues);
    assert_eq!(tests::frontier_api::list(client, crawl, 0, 10_000).await.len() as u64, 2 * queues);
    for key in keys {
        status(client, crawl, key, "1").await.unwrap_or_else(|code| panic!("{key}: {code}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_lacks_nothing_and_undoes_no_setting() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = start(work.path());
    let mut client = client_of(&fleet, 0).await;
    set_delay(&mut client, "", 0).await;
    let of = |range: std::ops::Range<usize>| range.map(|n| format!("q{n:03}")).collect::<Vec<_>>();
    let (slow, fast, all) = (of(0..100), of(100..200), of(0..200));
    let items = |keys: &[String], url: &'static str| keys.iter().map(|key| known(info("kept", key, url), 5)).collect();
    put_all(&mut client, items(&slow, "1")).await; // of these it has heard
    fleet.kill_node(2);
    wait_until("all slots are held by two", || fleet.totals().0 == 4_096);
    put_all(&mut client, items(&fast, "1")).await; // of these it has not
    put_all(&mut client, items(&all, "2")).await;
    for key in &slow {
        set_delay(&mut client, key, LONG_S).await;
    }
    let created = status(&mut client, "kept", &fast[0], "1").await.unwrap().creation_date;
    fleet.start_node(2);
    wait_until("its door is open", || fleet.frontier(2).is_some());
    let mut client = client_of(&fleet, 2).await;
    tests::frontier_api::wait_until_ready(&mut client).await;
    // Its very first answers.
    knows_everything(&mut client, "kept", &all).await;
    let found = put(&mut client, all.iter().map(|key| found(info("kept", key, "1"))).collect()).await;
    assert!(found.iter().all(|(_, ack)| *ack == Ack::Skipped), "known: {found:?}");
    for key in &all {
        let limit = api::CrawlLimitParams { key: key.clone(), limit: 9, crawl_id: "kept".into(), local: false };
        client.set_crawl_limit(limit).await.unwrap_or_else(|error| panic!("{key}: {error}"));
        let block = api::BlockQueueParams { key: key.clone(), time: 7, crawl_id: "kept".into(), local: false };
        client.block_queue_until(block).await.unwrap();
    }
    put_all(&mut client, items(&all, "1")).await;
    assert!(
        status(&mut client, "kept", &fast[0], "1").await.unwrap().creation_date <= created + 1,
        "since it was first seen"
    );
    // Every queue is served once, and then those alone whose delay was not set while it was away.
    let came = everything_of(&mut client, "kept", "control 1").await;
    assert_eq!(came.keys().cloned().collect::<Vec<_>>(), all);
    put_all(&mut client, items(&all, "1")).await; // their leases are over
    let came = everything_of(&mut client, "kept", "control 2").await;
    assert_eq!(came.keys().cloned().collect::<Vec<_>>(), fast);
    fleet.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_taken_in_while_nobody_holds_the_queues() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = start(work.path());
    let mut client = client_of(&fleet, 0).await;
    set_delay(&mut client, "", 0).await;
    let keys: Vec<String> = (0..90).map(|n| format!("q{n:02}")).collect();
    let both = || keys.iter().flat_map(|key| ["1", "2"].map(|url| known(info("kept", key, url), 5))).collect();
    put_all(&mut client, both()).await;
    for key in &keys[..60] {
        set_delay(&mut client, key, LONG_S).await;
    }
    fleet.kill_node(2);
    // Those of the dead node are nobody's until its leases are over.
    let mut client = client_of(&fleet, 1).await;
    for key in &keys {
        let limit = api::CrawlLimitParams { key: key.clone(), limit: 9, crawl_id: "kept".into(), local: false };
        client.set_crawl_limit(limit).await.unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    for key in &keys[30..60] {
        set_delay(&mut client, key, 0).await;
    }
    let unknown = api::CrawlLimitParams { key: "none".into(), limit: 9, crawl_id: "kept".into(), local: false };
    assert_eq!(client.set_crawl_limit(unknown).await.unwrap_err().code(), tonic::Code::Unknown);
    knows_everything(&mut client, "kept", &keys).await;
    wait_until("all slots are held by two", || fleet.totals().0 == 4_096);
    let came = everything_of(&mut client, "kept", "control 1").await;
    assert_eq!(came.keys().cloned().collect::<Vec<_>>(), keys);
    put_all(&mut client, both()).await;
    let came = everything_of(&mut client, "kept", "control 2").await;
    assert_eq!(came.keys().cloned().collect::<Vec<_>>(), keys[30..], "delays of before, and of meanwhile");
    // The limit of nine completed URLs holds too.
    for key in &keys {
        put_all(&mut client, (0..9).map(|n| known(info("kept", key, &format!("done{n}")), 0)).collect()).await;
    }
    put_all(&mut client, both()).await;
    assert_eq!(everything_of(&mut client, "kept", "control 3").await, BTreeMap::new());
    fleet.interrupt();
}
