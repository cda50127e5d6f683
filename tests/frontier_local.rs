//! What is said to one node alone, and what no other test of the URL Frontier API can see from one of its clients: `local = true` of every call on each of three nodes, the delay before
//! anybody sets one, the log, a node that stops, and a door that others can reach.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use node::doors::frontier::api;
use node::doors::frontier::api::ack_message::Status as Ack;
use tests::fleet::Fleet;
use tests::frontier_api::{
    Client, connect, found, info, known, now_s, put, put_all, start, take, urls, urls_at_last, wait_until_ready, wanted,
};
use tests::{PATIENCE, wait_until};
use tokio_stream::StreamExt;
use tonic::Code;

const QUEUES: usize = 60;

async fn clients(fleet: &Fleet) -> Vec<Client> {
    let mut clients = Vec::new();
    for node in 0..3 {
        clients.push(connect(&fleet.frontier(node).unwrap()).await);
    }
    clients
}

async fn local_queues(client: &mut Client, crawl: &str) -> BTreeSet<String> {
    let page = api::Pagination { crawl_id: crawl.into(), include_inactive: true, local: true, ..Default::default() };
    client.list_queues(page).await.unwrap().into_inner().values.into_iter().collect()
}

async fn local_count(client: &mut Client, crawl: &str) -> u64 {
    let params = api::CountUrlParams { crawl_id: crawl.into(), local: Some(true), ..Default::default() };
    client.count_ur_ls(params).await.unwrap().into_inner().value
}

#[tokio::test(flavor = "multi_thread")]
async fn local_calls_are_about_the_queues_of_the_node_and_its_pause_is_its_own() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let mut clients = clients(&fleet).await;
    let all: BTreeSet<String> = (0..QUEUES).map(|n| format!("q{n:02}")).collect();
    clients[0].set_delay(api::QueueDelayParams::default()).await.unwrap();
    let two = |crawl: &str| all.iter().flat_map(|key| ["1", "2"].map(|url| known(info(crawl, key, url), 5))).collect();
    for crawl in ["local", "gone"] {
        put_all(&mut clients[0], two(crawl)).await;
    }
    // Whose they are: each is one node's, as every call has it.
    let mut whose: BTreeMap<String, usize> = BTreeMap::new();
    for (node, client) in clients.iter_mut().enumerate() {
        let mine = local_queues(client, "local").await;
        assert_eq!(local_count(client, "local").await, 2 * mine.len() as u64);
        let page = api::ListUrlParams { crawl_id: "local".into(), local: true, size: 1_000, ..Default::default() };
        let listed = client.list_ur_ls(page).await.unwrap().into_inner();
        let key = |item: api::UrlItem| match item.item {
            Some(api::url_item::Item::Known(known)) => known.info.unwrap().key,
            other => panic!("always the known variant, not {other:?}"),
        };
        let listed: Vec<String> = listed.map(|item| key(item.unwrap())).collect().await;
        assert_eq!((listed.len(), listed.into_iter().collect::<BTreeSet<_>>()), (2 * mine.len(), mine.clone()));
        let crawls = client.list_crawls(api::Local { local: true }).await.unwrap().into_inner().values;
        assert_eq!(crawls, ["gone", "local"]);
        whose.extend(mine.into_iter().map(|key| (key, node)));
    }
    assert_eq!(whose.keys().cloned().collect::<BTreeSet<_>>(), all, "the parts are the whole");
    assert_eq!(whose.values().collect::<BTreeSet<_>>().len(), 3, "each has some");

    // Settings take effect on the node of the queue, and nowhere else.
    for key in &all {
        let block =
            || api::BlockQueueParams { key: key.clone(), time: now_s() + 3_600, crawl_id: "local".into(), local: true };
        let other = (whose[key] + 1) % 3;
        clients[other].block_queue_until(block()).await.unwrap();
        let limit = api::CrawlLimitParams { key: key.clone(), limit: 9, crawl_id: "local".into(), local: true };
        assert_eq!(clients[other].set_crawl_limit(limit.clone()).await.unwrap_err().code(), Code::Unknown, "{key}");
        clients[whose[key]].set_crawl_limit(limit).await.unwrap();
    }
    let page = api::Pagination { crawl_id: "local".into(), ..Default::default() };
    assert_eq!(
        clients[0].list_queues(page.clone()).await.unwrap().into_inner().total,
        QUEUES as u64,
        "none is blocked"
    );

    // A node that is paused hands nothing out, and the others do.
    clients[1].set_active(api::Active { state: false, local: true }).await.unwrap();
    for (node, active) in [(0, true), (1, false), (2, true)] {
        let state = clients[node].get_active(api::Local { local: true }).await.unwrap().into_inner().state;
        assert_eq!(state, active);
        assert!(clients[node].get_active(api::Local { local: false }).await.unwrap().into_inner().state);
    }
    let of_others: BTreeSet<String> = all.iter().filter(|key| whose[*key] != 1).cloned().collect();
    let (mut came, until) = (BTreeSet::new(), Instant::now() + PATIENCE);
    while came.len() < of_others.len() {
        assert!(Instant::now() < until, "{} of {} queues were served", came.len(), of_others.len());
        came.extend(take(&mut clients[0], wanted("local", "", 0, 1, 3_600)).await.into_iter().map(|info| info.key));
    }
    assert_eq!(came, of_others, "nothing of the node that is paused");
    let theirs = all.iter().find(|key| whose[*key] == 1).unwrap();
    assert_eq!(urls(&mut clients[2], wanted("local", theirs, 0, 1, 30)).await, [""; 0], "through another node too");
    clients[1].set_active(api::Active { state: true, local: true }).await.unwrap();
    assert_eq!(urls_at_last(&mut clients[2], wanted("local", theirs, 0, 1, 30)).await, ["1"]);

    // Deleted on each node: its own part.
    let mut left: BTreeSet<String> = all.clone();
    for (node, client) in clients.iter_mut().enumerate() {
        let mine = whose.values().filter(|of| **of == node).count() as u64;
        let crawl = api::DeleteCrawlMessage { value: "gone".into(), local: true };
        assert_eq!(client.delete_crawl(crawl).await.unwrap().into_inner().value, 2 * mine);
        left.retain(|key| whose[key] != node);
        let page =
            api::Pagination { crawl_id: "gone".into(), include_inactive: true, size: 1_000, ..Default::default() };
        assert_eq!(
            client.list_queues(page).await.unwrap().into_inner().values.into_iter().collect::<BTreeSet<_>>(),
            left
        );
    }
    fleet.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_is_the_delay_until_somebody_sets_another() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = connect(&address).await;
    wait_until_ready(&mut client).await;
    put_all(&mut client, ["1", "2"].map(|url| known(info("c", "k", url), 5)).to_vec()).await;
    let before = Instant::now();
    assert_eq!(urls(&mut client, wanted("c", "k", 0, 1, 600)).await, ["1"]);
    // The first one is done with, so that only the delay holds the second one back.
    put_all(&mut client, vec![known(info("c", "k", "1"), 0)]).await;
    let told = Instant::now();
    assert_eq!(urls_at_last(&mut client, wanted("c", "k", 0, 1, 600)).await, ["2"]);
    assert!(before.elapsed() >= Duration::from_secs(1), "{:?} after the first", told.elapsed());
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_level_is_what_was_said() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = connect(&address).await;
    wait_until_ready(&mut client).await;
    // GetURLs with a key and without a crawl is answered with nothing, and with a warning.
    let odd = || api::GetParams { key: "k".into(), ..Default::default() };
    let warnings = || running.stderr().matches("GetURLs with a key and without a crawl").count();
    let level = |level| api::LogLevelParams { package: "node::doors::frontier".into(), level, local: true };
    assert_eq!(urls(&mut client, odd()).await, [""; 0]);
    tokio::task::block_in_place(|| wait_until("it is warned of", || warnings() == 1));
    client.set_log_level(level(4)).await.unwrap();
    for _ in 0..20 {
        assert_eq!(urls(&mut client, odd()).await, [""; 0]);
    }
    client.set_log_level(level(3)).await.unwrap();
    assert_eq!(urls(&mut client, odd()).await, [""; 0]);
    tokio::task::block_in_place(|| wait_until("it is warned of again", || warnings() > 1));
    assert_eq!(warnings(), 2, "not while only errors were wanted");
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_cannot_be_kept_fail_item_by_item() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let mut client = connect(&fleet.frontier(0).unwrap()).await;
    fleet.kill_node(1);
    fleet.kill_node(2);
    let items: Vec<api::UrlInfo> = (0..20).map(|n| info("batch", &format!("q{n}"), "u")).collect();
    let batch = api::DiscoveredBatch { id: "b".into(), items };
    let mut acks = client.put_discovered(tokio_stream::once(batch)).await.unwrap().into_inner();
    let ack = acks.message().await.unwrap().unwrap();
    assert_eq!(ack.id, "b");
    assert_eq!(ack.statuses().collect::<Vec<_>>(), [Ack::Fail; 20]);
    assert!(put(&mut client, vec![found(info("batch", "q0", "u"))]).await.iter().all(|(_, ack)| *ack == Ack::Fail));
    fleet.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_hangs_holds_nobody_up_once_it_is_taken_to_be_dead() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let mut client = connect(&fleet.frontier(0).unwrap()).await;
    put_all(&mut client, (0..90).map(|n| found(info("hung", &format!("q{n}"), "u"))).collect()).await;
    fleet.signal_node(2, "STOP");
    // A hundred at once: if each waited for an answer on one of the few lines to that node, one after the other, it would take minutes.
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let mut client = client.clone();
        calls.spawn(async move {
            let params = api::QueueWithinCrawlParams { crawl_id: "hung".into(), ..Default::default() };
            client.get_stats(params).await.map(|stats| stats.into_inner().size)
        });
    }
    let all = tokio::time::timeout(PATIENCE, calls.join_all()).await.expect("nobody waits for ever");
    assert!(all.iter().all(|size| size.as_ref().is_ok_and(|size| *size == 90)), "{all:?}");
    fleet.signal_node(2, "CONT");
    fleet.interrupt();
}
