//! The URL Frontier API over real gRPC: what each call promises ([`tests::frontier_suite`]), against a node alone, against each of three nodes, and with one of the
//! three killed; what survives a kill; and clients that mean no good.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use node::doors::frontier::api;
use node::doors::frontier::api::ack_message::Status as Ack;
use tests::fleet::Fleet;
use tests::frontier_api::{
    connect, found, info, known, list, now_s, put, put_all, start, stats, take, urls, wait_until_ready, wanted,
};
use tests::frontier_suite::{
    all_crawls_are_served, conforms, it_was_half_a_minute, lease_without_a_time, queues_take_turns,
};
use tests::wait_until;
use tonic::Code;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_alone_keeps_what_the_api_promises_also_through_a_kill() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let (running, address) = start(&data, work.path(), "first");
    let mut client = connect(&address).await;
    wait_until_ready(&mut client).await;
    let taken_at = lease_without_a_time(&mut client).await;
    conforms(&mut client, "One").await;
    queues_take_turns(&mut client, "One").await;
    it_was_half_a_minute(&mut client, taken_at).await;
    all_crawls_are_served(&mut client, "One").await;
    // Settings, leases and turns survive.
    let put_some =
        (0..6).map(|n| known(info("kept", "k", &format!("u{n}")), 5)).chain([found(info("kept", "blocked", "b"))]);
    put_all(&mut client, put_some.collect()).await;
    let block =
        api::BlockQueueParams { key: "blocked".into(), time: now_s() + 3_600, crawl_id: "kept".into(), local: false };
    client.block_queue_until(block).await.unwrap();
    assert_eq!(urls(&mut client, wanted("kept", "k", 0, 2, 3_600)).await, ["u0", "u1"]);
    let limit = api::CrawlLimitParams { key: "k".into(), limit: 3, crawl_id: "kept".into(), local: false };
    client.set_crawl_limit(limit).await.unwrap();
    let delay = api::QueueDelayParams {
        key: "blocked".into(),
        delay_requestable: 3_600,
        crawl_id: "kept".into(),
        local: false,
    };
    client.set_delay(delay).await.unwrap();
    client.set_active(api::Active { state: false, local: false }).await.unwrap();
    let before = stats(&mut client, "kept", "").await;
    let crawls = client.list_crawls(api::Local { local: false }).await.unwrap().into_inner().values;
    assert!(running.kill());
    let (running, address) = start(&data, work.path(), "second");
    let mut client = connect(&address).await;
    wait_until_ready(&mut client).await;
    assert!(!client.get_active(api::Local { local: false }).await.unwrap().into_inner().state, "paused");
    assert_eq!(client.list_crawls(api::Local { local: false }).await.unwrap().into_inner().values, crawls);
    client.set_active(api::Active { state: true, local: false }).await.unwrap();
    assert_eq!(stats(&mut client, "kept", "").await, before);
    assert_eq!(urls(&mut client, wanted("kept", "k", 0, 3, 3_600)).await, ["u2", "u3", "u4"], "not what was leased");
    assert_eq!(urls(&mut client, wanted("kept", "blocked", 0, 0, 30)).await, [""; 0]);
    let unblock = api::BlockQueueParams { key: "blocked".into(), time: 0, crawl_id: "kept".into(), local: false };
    client.block_queue_until(unblock).await.unwrap();
    assert_eq!(urls(&mut client, wanted("kept", "blocked", 0, 0, 1)).await, ["b"]);
    put_all(&mut client, vec![known(info("kept", "blocked", "b"), 5)]).await;
    assert_eq!(urls(&mut client, wanted("kept", "blocked", 0, 0, 1)).await, [""; 0], "its delay was kept");
    put_all(&mut client, (0..3).map(|n| known(info("kept", "k", &format!("u{n}")), 0)).collect()).await;
    assert_eq!(urls(&mut client, wanted("kept", "k", 0, 0, 30)).await, [""; 0], "its limit was kept");
    running.interrupt();
    let ended = running.wait();
    assert_eq!(ended.code, Some(0), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_clients_are_told_so_and_cost_little() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = connect(&address).await;
    wait_until_ready(&mut client).await;
    // A message beyond the bound, and a crawl that cannot be.
    let huge = found(info("c", "k", &"x".repeat(5 << 20)));
    let mut acks = client.put_ur_ls(tokio_stream::iter(vec![huge])).await.unwrap().into_inner();
    assert_eq!(acks.message().await.unwrap_err().code(), Code::OutOfRange);
    let crawl = "x".repeat(1_000);
    assert_eq!(put(&mut client, vec![found(info(&crawl, "k", "u"))]).await[0].1, Ack::Skipped);
    let params = api::QueueWithinCrawlParams { crawl_id: crawl, ..Default::default() };
    assert_eq!(client.get_stats(params).await.unwrap_err().code(), Code::InvalidArgument);
    // A metadata bomb.
    let mut bomb = info("c", "k", "u");
    bomb.metadata.extend((0..20_000).map(|n| (n.to_string(), api::StringList { values: vec!["x".repeat(8)] })));
    assert_eq!(put(&mut client, vec![found(bomb)]).await[0].1, Ack::Skipped);
    // A client that sends and never reads is read no further than its window.
    let (send, sent) = tokio::sync::mpsc::channel(1);
    let _acks = client.put_ur_ls(tokio_stream::wrappers::ReceiverStream::new(sent)).await.unwrap();
    let mut taken = 0u32;
    while taken < 200_000 {
        let item = found(info("flood", "k", &format!("http://flood/{taken}/{}", "x".repeat(1_000))));
        match tokio::time::timeout(Duration::from_secs(2), send.send(item)).await {
            Ok(sent) => sent.unwrap(),
            Err(_) => break,
        }
        taken += 1;
    }
    assert!(taken < 200_000, "it was read for ever");
    // Streams beyond the bound of a connection wait; others are served meanwhile.
    let mut other = connect(&address).await;
    assert_eq!(put(&mut other, vec![found(info("c", "k", "u"))]).await[0].1, Ack::Ok);
    assert!(running.kill());
}

/// Waits until somebody hands out of every part of the ring.
async fn everything_is_served(address: &str, tag: &str) {
    let mut client = connect(address).await;
    let (crawl, count) = (&format!("served-{tag}"), 200);
    put_all(&mut client, (0..count).map(|n| found(info(crawl, &format!("q{n}"), "u"))).collect()).await;
    let (mut got, until) = (0, Instant::now() + Duration::from_secs(90));
    while got < count && Instant::now() < until {
        got += take(&mut client, wanted(crawl, "", 0, 1, 3_600)).await.len();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(got, count);
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_answer_alike_and_lose_nothing_with_one_of_them() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let doors = |fleet: &Fleet| (0..3).filter_map(|node| fleet.frontier(node)).collect::<Vec<String>>();
    let addresses = doors(&fleet);
    assert_eq!(addresses.len(), 3);
    everything_is_served(&addresses[0], "first").await;
    for (node, address) in addresses.iter().enumerate() {
        let mut client = connect(address).await;
        conforms(&mut client, &format!("N{node}")).await;
        assert_eq!(client.list_nodes(api::Empty {}).await.unwrap().into_inner().values.len(), 3);
    }
    // Every node says the same of what another took, and local parts add up to the whole.
    let mut sums = (0, 0);
    for address in &addresses {
        let mut client = connect(address).await;
        assert_eq!(stats(&mut client, "N0-list", "").await, (60, 0, 60, 7, 7));
        assert_eq!(
            list(&mut client, "N0-list", 0, 200).await,
            list(&mut connect(&addresses[0]).await, "N0-list", 0, 200).await
        );
        let params = api::QueueWithinCrawlParams { crawl_id: "N0-list".into(), local: true, ..Default::default() };
        let local = client.get_stats(params).await.unwrap().into_inner();
        sums = (sums.0 + local.size, sums.1 + local.number_of_queues);
    }
    assert_eq!(sums, (60, 7));
    for (node, address) in addresses.iter().enumerate() {
        all_crawls_are_served(&mut connect(address).await, &format!("N{node}")).await;
    }
    // Leases and blocks, then one node dies.
    let mut client = connect(&addresses[0]).await;
    put_all(&mut client, (0..300).map(|n| found(info("kept", &format!("q{}", n % 100), &format!("u{n}")))).collect())
        .await;
    let mut leased = BTreeSet::new();
    for info in take(&mut client, wanted("kept", "", 40, 1, 3_600)).await {
        leased.insert((info.key, info.url));
    }
    assert_eq!(leased.len(), 40);
    fleet.kill_node(2);
    // Nothing fails, also before anybody has noticed.
    let mut client = connect(&addresses[1]).await;
    put_all(&mut client, (0..50).map(|n| found(info("after", &format!("q{n}"), "u"))).collect()).await;
    assert_eq!(stats(&mut client, "kept", "").await, (300, 40, 0, 100, 100));
    assert_eq!(list(&mut client, "kept", 0, 1_000).await.len(), 300);
    everything_is_served(&addresses[1], "second").await;
    conforms(&mut client, "Dead").await;
    let mut client = connect(&addresses[0]).await;
    assert_eq!(stats(&mut client, "kept", "").await, (300, 40, 0, 100, 100));
    let until = Instant::now() + Duration::from_secs(90);
    while leased.len() < 300 && Instant::now() < until {
        for info in take(&mut client, wanted("kept", "", 0, 0, 3_600)).await {
            assert!(leased.insert((info.key, info.url)), "handed out twice within its lease");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(leased.len(), 300, "what was acknowledged is there");
    all_crawls_are_served(&mut client, "Dead").await;
    fleet.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_on_two_nodes_is_not_acknowledged() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let mut client = connect(&fleet.frontier(0).unwrap()).await;
    let some = |tag: &str| (0..30).map(|n| found(info("kept", &format!("q{n}"), tag))).collect::<Vec<_>>();
    put_all(&mut client, some("with three")).await;
    fleet.kill_node(1);
    fleet.kill_node(2);
    let acks = put(&mut client, some("alone")).await;
    assert_eq!(acks.len(), 30, "each is answered");
    assert!(acks.iter().all(|(_, ack)| *ack == Ack::Fail), "{acks:?}");
    assert!(put(&mut client, some("alone")).await.iter().all(|(_, ack)| *ack == Ack::Fail), "nor is it known now");
    // Handed in again when there are two, it is there, also where it is known.
    fleet.start_node(1);
    let until = Instant::now() + tests::PATIENCE;
    while put(&mut client, some("alone")).await.iter().any(|(_, ack)| *ack == Ack::Fail) {
        assert!(Instant::now() < until, "two nodes are enough");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(stats(&mut client, "kept", "").await, (60, 0, 0, 30, 30));
    fleet.interrupt();
}
