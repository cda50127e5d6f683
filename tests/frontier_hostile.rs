//! Clients of the URL Frontier API that mean no good: what they cost the node in memory is bounded, and others are served meanwhile. The bounds are generous, and
//! fixed: each client would have gone far beyond them if it were let.

use std::time::Duration;

use node::doors::frontier::api;
use node::doors::frontier::api::ack_message::Status as Ack;
use tests::frontier_api::{Client, connect, found, info, known, put, put_all, start, take, wait_until_ready, wanted};
use tests::program::Running;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

const MIB: u64 = 1 << 20;
/// Silence after which a client is taken to be read no further.
const SILENCE: Duration = Duration::from_secs(3);

async fn ready(address: &str) -> Client {
    let mut client = connect(address).await;
    wait_until_ready(&mut client).await;
    client
}

/// Asserts that the node never had more than `bound` bytes above what it had `before`.
fn assert_memory(running: &Running, before: u64, bound: u64) {
    let (now, most) = running.memory();
    let grown = most.saturating_sub(before);
    eprintln!("memory: {} MiB before, {} MiB now, {} MiB at most", before / MIB, now / MIB, most / MIB);
    assert!(grown <= bound, "{} MiB more than before", grown / MIB);
}

/// Sends until nobody reads any more; how many went, and whether an end was in sight.
async fn flood<T>(send: &mpsc::Sender<T>, message: impl Fn(usize) -> T, most: usize) -> usize {
    for sent in 0..most {
        match tokio::time::timeout(SILENCE, send.send(message(sent))).await {
            Ok(sent) => assert!(sent.is_ok(), "the stream is open"),
            Err(_) => return sent,
        }
    }
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_never_read_cost_bounded_memory() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = ready(&address).await;
    // 100 MB that can be listed and taken.
    let large = |n: usize| {
        let mut info = info("large", &format!("q{}", n % 100), &format!("u{n:05}"));
        info.metadata.insert("words".into(), api::StringList { values: vec!["x".repeat(50_000)] });
        info
    };
    for part in 0..20 {
        put_all(&mut client, (part * 100..(part + 1) * 100).map(|n| known(large(n), 5)).collect()).await;
    }
    let before = running.memory().0;
    let mut tasks = JoinSet::new();
    // Each with a connection of its own, so that none is held up by another's window: those that put, batch, name, list and take, and read nothing of it.
    for number in 0..12 {
        let mut client = ready(&address).await;
        tasks.spawn(async move {
            let url = |n: usize| info("flood", &format!("q{number}"), &format!("{n}/{}", "x".repeat(2_000)));
            let (send, sent) = mpsc::channel(1);
            let _acks = client.put_ur_ls(ReceiverStream::new(sent)).await.unwrap();
            let most = 100_000;
            let taken = flood(&send, |n| found(url(n)), most).await;
            assert!(taken < most, "URLs are read for ever");
            taken
        });
        let mut client = ready(&address).await;
        tasks.spawn(async move {
            // Batches of nothing, whose acknowledgements have long names: 16 are worked on, and some wait to be sent.
            let (send, sent) = mpsc::channel(1);
            let _acks = client.put_discovered(ReceiverStream::new(sent)).await.unwrap();
            let batch = |n: usize| api::DiscoveredBatch { id: format!("{n}/{}", "x".repeat(60_000)), items: vec![] };
            let most = 10_000;
            let taken = flood(&send, batch, most).await;
            assert!(taken < most, "batches are read for ever");
            taken
        });
        let mut client = ready(&address).await;
        tasks.spawn(async move {
            // Names as long as they may be; 1,024 of them would be 60 MiB, and there may be 1,024 streams.
            let (send, sent) = mpsc::channel(1);
            let _acks = client.put_ur_ls(ReceiverStream::new(sent)).await.unwrap();
            let named = |n: usize| api::UrlItem { id: format!("{n}/{}", "x".repeat(60_000)), ..Default::default() };
            let most = 500;
            let taken = flood(&send, named, most).await;
            assert!(taken < most, "URLs with long names are read for ever");
            taken
        });
        let mut client = ready(&address).await;
        tasks.spawn(async move {
            let mut open = Vec::new();
            for _ in 0..8 {
                let all = api::ListUrlParams { crawl_id: "large".into(), size: u32::MAX, ..Default::default() };
                open.push(client.list_ur_ls(all).await.unwrap());
            }
            tokio::time::sleep(SILENCE).await;
            open.len()
        });
        let mut client = ready(&address).await;
        tasks.spawn(async move {
            let _taken = client.get_ur_ls(wanted("large", "", 0, 0, 600)).await.unwrap();
            tokio::time::sleep(SILENCE).await;
            1
        });
    }
    // Others are served meanwhile.
    for n in 0..20 {
        assert_eq!(put(&mut client, vec![found(info("other", "k", &format!("u{n}")))]).await[0].1, Ack::Ok);
    }
    assert_eq!(take(&mut client, wanted("other", "k", 0, 0, 30)).await.len(), 20);
    tasks.join_all().await;
    // 60 connections with a window of 4 MiB each, 96 lists and 12 takes of which a few answers wait: without bounds it were gigabytes.
    assert_memory(&running, before, 500 * MIB);
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_too_long_are_refused_and_urls_that_are_too_long_are_skipped() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = ready(&address).await;
    let first = || found(info("names", "k", "u"));
    // What came before is acknowledged.
    let named = api::UrlItem { id: "x".repeat(4_000_000), ..first() };
    let mut acks = client.put_ur_ls(tokio_stream::iter(vec![first(), named])).await.unwrap().into_inner();
    assert_eq!(acks.message().await.unwrap().unwrap().status(), Ack::Ok);
    assert_eq!(acks.message().await.unwrap_err().code(), Code::InvalidArgument);
    let batch = api::DiscoveredBatch { id: "x".repeat(61_441), items: vec![info("names", "k", "v")] };
    let mut acks = client.put_discovered(tokio_stream::iter(vec![batch])).await.unwrap().into_inner();
    assert_eq!(acks.message().await.unwrap_err().code(), Code::InvalidArgument);
    let params = api::CountUrlParams { crawl_id: "names".into(), ..Default::default() };
    assert_eq!(client.count_ur_ls(params).await.unwrap().into_inner().value, 1);
    // The URL is the name of what has none; that of one that cannot be taken is told by its beginning.
    let url = format!("{}\u{20ac}", "x".repeat(61_439));
    let said = put(&mut client, vec![found(info("names", "k", &url)), first()]).await;
    assert_eq!(said, [("x".repeat(61_439), Ack::Skipped), ("u".to_owned(), Ack::Skipped)]);
    let longest = api::UrlItem { id: "x".repeat(61_440), ..known(info("names", "k", "u"), 0) };
    assert_eq!(put(&mut client, vec![longest]).await, [("x".repeat(61_440), Ack::Ok)]);
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_streams_cost_bounded_memory() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = ready(&address).await;
    let before = running.memory().0;
    let (mut open, mut refused) = (Vec::new(), 0);
    for connection in 0..20 {
        let mut client = ready(&address).await;
        for number in 0..150 {
            let (send, sent) = mpsc::channel(1);
            match client.put_ur_ls(ReceiverStream::new(sent)).await {
                Ok(acks) => {
                    let url = format!("{connection}-{number}-{}", "x".repeat(10_000));
                    send.send(found(info("streams", "k", &url))).await.unwrap();
                    open.push((send, acks));
                }
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((open.len(), refused), (1_024, 20 * 150 - 1_024));
    for (_, acks) in &mut open {
        let ack = acks.get_mut().message().await.unwrap().unwrap();
        assert_eq!(ack.status(), Ack::Ok, "each open stream is served");
    }
    // What needs no stream goes on.
    let params = api::CountUrlParams { crawl_id: "streams".into(), ..Default::default() };
    assert_eq!(client.count_ur_ls(params).await.unwrap().into_inner().value, 1_024);
    assert_memory(&running, before, 200 * MIB);
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_bombs_cost_bounded_memory() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = ready(&address).await;
    let before = running.memory().0;
    // Just below 4 MiB a message, and many times that once it is understood: names of six letters, without values.
    let mut bomb = info("bombs", "k", "u");
    bomb.metadata.extend((0..260_000).map(|n| (format!("{n:06}"), api::StringList::default())));
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let (mut client, bomb) = (ready(&address).await, bomb.clone());
        tasks.spawn(async move {
            for _ in 0..4 {
                let said = match number % 2 {
                    0 => put(&mut client, vec![found(bomb.clone())]).await[0].1,
                    _ => {
                        let batch = api::DiscoveredBatch { id: "b".into(), items: vec![bomb.clone()] };
                        let mut acks =
                            client.put_discovered(tokio_stream::iter(vec![batch])).await.unwrap().into_inner();
                        acks.message().await.unwrap().unwrap().statuses().next().unwrap()
                    }
                };
                assert_eq!(said, Ack::Skipped);
            }
        });
    }
    tasks.join_all().await;
    let params = api::CountUrlParams { crawl_id: "bombs".into(), ..Default::default() };
    assert_eq!(client.count_ur_ls(params).await.unwrap().into_inner().value, 0);
    put_all(&mut client, vec![found(info("bombs", "k", "u"))]).await;
    assert_memory(&running, before, 300 * MIB);
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_beyond_all_bounds_cost_little_and_are_told_so() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = ready(&address).await;
    put_all(
        &mut client,
        (0..300).map(|n| found(info("keys", &format!("{n:03}{}", "\u{20ac}".repeat(252)), "u"))).collect(),
    )
    .await;
    let before = running.memory().0;
    // A key as long as a message: no such queue can be. It is skipped where it is put, and unknown elsewhere.
    let key = "k".repeat(3 << 20);
    assert_eq!(put(&mut client, vec![found(info("keys", &key, "u"))]).await[0].1, Ack::Skipped);
    let key = "k".repeat(100 << 10);
    let queue = || api::QueueWithinCrawlParams { key: key.clone(), crawl_id: "keys".into(), local: false };
    assert_eq!(client.get_stats(queue()).await.unwrap().into_inner().number_of_queues, 0);
    assert_eq!(client.delete_queue(queue()).await.unwrap().into_inner().value, 0);
    let count = |key: &str, filter: Option<String>| api::CountUrlParams {
        key: key.into(),
        crawl_id: "keys".into(),
        filter,
        ..Default::default()
    };
    assert_eq!(client.count_ur_ls(count(&key, None)).await.unwrap().into_inner().value, 0);
    assert_eq!(client.count_ur_ls(count(&key, Some("u".into()))).await.unwrap().into_inner().value, 0);
    // A filter that no URL can have, and a call as long as a batch.
    let long = count("", Some("u".repeat(70_000)));
    assert_eq!(client.count_ur_ls(long).await.unwrap_err().code(), Code::InvalidArgument);
    let longer = count("", Some("u".repeat(2 << 20)));
    assert_eq!(client.count_ur_ls(longer).await.unwrap_err().code(), Code::ResourceExhausted);
    let url = api::UrlStatusRequest { url: "u".repeat(100_000), key: "k".into(), crawl_id: "keys".into() };
    assert_eq!(client.get_url_status(url).await.unwrap_err().code(), Code::NotFound);
    // A page from the end of all numbers brings nothing into memory, and says how many there are.
    for (start, size, told) in [(0, u32::MAX, 300), (u32::MAX, u32::MAX, 0), (298, 10, 2), (299, 1, 1)] {
        let page = api::Pagination { start, size, crawl_id: "keys".into(), ..Default::default() };
        let page = client.list_queues(page).await.unwrap().into_inner();
        assert_eq!((page.values.len(), page.total, page.start), (told, 300, start));
    }
    assert_memory(&running, before, 100 * MIB);
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_long_keys_fits_into_a_message() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = ready(&address).await;
    let key = |n: usize| format!("{n:05}{}", "\u{20ac}".repeat(250));
    let all = 6_000;
    for part in 0..6 {
        put_all(&mut client, (part * 1_000..(part + 1) * 1_000).map(|n| found(info("long", &key(n), "u"))).collect())
            .await;
    }
    let mut told = std::collections::BTreeSet::new();
    while told.len() < all {
        let start = told.len() as u32;
        let page = api::Pagination { start, size: u32::MAX, crawl_id: "long".into(), ..Default::default() };
        let page = client.list_queues(page).await.unwrap().into_inner();
        assert_eq!((page.total, page.size as usize), (all as u64, page.values.len()));
        assert!(!page.values.is_empty() && page.values.iter().map(String::len).sum::<usize>() < 4 << 20);
        told.extend(page.values);
        assert_eq!(told.len() as u32, start + page.size, "pages add up");
    }
    assert!(running.kill());
}
