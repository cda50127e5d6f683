//! The URL Frontier API over real gRPC: what each call promises, against a node alone, against each of three nodes, and with one of the three killed;
//! what survives a kill; and clients that mean no good.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use node::doors::frontier::api::ack_message::Status as Ack;
use node::doors::frontier::api::{self, url_item};
use tests::fleet::Fleet;
use tests::frontier_api::{
    Client, connect, found, info, known, now_s, put, put_all, start, take, urls, urls_at_last, wait_until_ready, wanted,
};
use tests::wait_until;
use tokio_stream::StreamExt;
use tonic::Code;

async fn stats(client: &mut Client, crawl: &str, key: &str) -> (u64, u32, u64, u64, u64) {
    let params = api::QueueWithinCrawlParams { key: key.into(), crawl_id: crawl.into(), local: false };
    let stats = client.get_stats(params).await.unwrap().into_inner();
    let names: Vec<&str> = stats.counts.keys().map(String::as_str).collect();
    assert_eq!(names, ["active_queues", "completed"]);
    (stats.size, stats.in_process, stats.counts["completed"], stats.number_of_queues, stats.counts["active_queues"])
}

async fn status(client: &mut Client, crawl: &str, key: &str, url: &str) -> Result<api::UrlItem, Code> {
    let params = api::UrlStatusRequest { url: url.into(), key: key.into(), crawl_id: crawl.into() };
    client.get_url_status(params).await.map(|item| item.into_inner()).map_err(|status| status.code())
}

fn date(item: &api::UrlItem) -> u64 {
    match &item.item {
        Some(url_item::Item::Known(known)) => known.refetchable_from_date,
        other => panic!("always the known variant, not {other:?}"),
    }
}

async fn list(client: &mut Client, crawl: &str, start: u32, size: u32) -> Vec<String> {
    let params = api::ListUrlParams { crawl_id: crawl.into(), start, size, ..Default::default() };
    let stream = client.list_ur_ls(params).await.unwrap().into_inner();
    let url = |item: api::UrlItem| match item.item {
        Some(url_item::Item::Known(known)) => known.info.unwrap().url,
        other => panic!("always the known variant, not {other:?}"),
    };
    stream.map(|item| url(item.unwrap())).collect().await
}

async fn count(client: &mut Client, crawl: &str, filter: Option<&str>, ignore_case: bool) -> u64 {
    let filter = filter.map(str::to_owned);
    let params =
        api::CountUrlParams { crawl_id: crawl.into(), filter, ignore_case: Some(ignore_case), ..Default::default() };
    client.count_ur_ls(params).await.unwrap().into_inner().value
}

async fn queues(client: &mut Client, crawl: &str, inactive: bool) -> api::QueueList {
    let params = api::Pagination { crawl_id: crawl.into(), include_inactive: inactive, ..Default::default() };
    client.list_queues(params).await.unwrap().into_inner()
}

async fn delete_crawl(client: &mut Client, crawl: &str) -> u64 {
    let params = api::DeleteCrawlMessage { value: crawl.into(), local: false };
    client.delete_crawl(params).await.unwrap().into_inner().value
}

/// Everything that calls promise. `tag` keeps the crawls of one run apart from those of others.
async fn conforms(client: &mut Client, tag: &str) {
    let delay = api::QueueDelayParams { delay_requestable: 0, ..Default::default() };
    client.set_delay(delay).await.unwrap();
    puts_are_acknowledged(client, tag).await;
    names_are_what_they_are(client, tag).await;
    urls_are_leased(client, tag).await;
    gates_close(client, tag).await;
    crawls_are_told_apart(client, tag).await;
    lists_and_counts(client, tag).await;
    what_is_forgotten_is_gone(client, tag).await;
    batches_are_acknowledged(client, tag).await;
}

async fn puts_are_acknowledged(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-put");
    let url = "http://a.example/1";
    let named = api::UrlItem { id: "mine".into(), ..found(info(crawl, "", url)) };
    assert_eq!(put(client, vec![named]).await, [("mine".to_owned(), Ack::Ok)]);
    assert_eq!(
        put(client, vec![found(info(crawl, "", url))]).await,
        [(url.to_owned(), Ack::Skipped)],
        "the URL names it"
    );
    let first = status(client, crawl, "", url).await.unwrap();
    assert!(date(&first) > now_s() - 60 && first.creation_date > now_s() - 60, "found now");
    // Known: always taken, with date and metadata; a second round of one URL on one stream is in order.
    let mut changed = info(crawl, "", url);
    changed.metadata.insert("depth".into(), api::StringList { values: vec!["1".into(), "2".into()] });
    let order = (1..=40).map(|date| known(changed.clone(), date)).collect();
    put_all(client, order).await;
    let item = status(client, crawl, "", url).await.unwrap();
    assert_eq!((date(&item), item.creation_date), (40, first.creation_date));
    let Some(url_item::Item::Known(told)) = item.item else { unreachable!() };
    assert_eq!(told.info.unwrap(), api::UrlInfo { key: "a.example".into(), ..changed.clone() });
    assert_eq!(stats(client, crawl, "").await, (1, 0, 0, 1, 1));
    // Completed, and completed again: counted once, without metadata. And scheduled again.
    put_all(client, vec![known(changed.clone(), 0), known(changed.clone(), 0)]).await;
    assert_eq!(stats(client, crawl, "").await, (0, 0, 1, 1, 0));
    let Some(url_item::Item::Known(told)) = status(client, crawl, "", url).await.unwrap().item else { unreachable!() };
    assert!(told.refetchable_from_date == 0 && told.info.unwrap().metadata.is_empty());
    assert_eq!(put(client, vec![found(changed.clone())]).await[0].1, Ack::Skipped, "completed is known");
    put_all(client, vec![known(changed.clone(), 9)]).await;
    assert_eq!(stats(client, crawl, "").await, (1, 0, 0, 1, 1));
    assert_eq!(list(client, crawl, 0, 0).await, [url]);
    assert_eq!(urls_at_last(client, wanted(crawl, "", 1, 1, 30)).await, [url]);
    // What cannot be taken is skipped, and the stream goes on.
    let nothing = api::UrlItem { id: "none".into(), ..Default::default() };
    let long = found(info(crawl, &"k".repeat(256), url));
    let bomb = found(info(crawl, "bomb", &"x".repeat(70_000)));
    let acks = put(
        client,
        vec![nothing, long, bomb, found(info(crawl, "", "http:///")), found(info(crawl, "", "http://b.example/"))],
    )
    .await;
    let acks: Vec<Ack> = acks.into_iter().map(|(_, ack)| ack).collect();
    assert_eq!(acks, [Ack::Skipped, Ack::Skipped, Ack::Skipped, Ack::Skipped, Ack::Ok]);
    // Acknowledgements come while the stream is open.
    let (send, sent) = tokio::sync::mpsc::channel(4);
    let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
    let mut acks = client.put_ur_ls(sent).await.unwrap().into_inner();
    for number in 0..3 {
        send.send(found(info(crawl, "", &format!("http://c.example/{number}")))).await.unwrap();
        assert_eq!(acks.message().await.unwrap().unwrap().status(), Ack::Ok);
    }
    drop(send);
    assert!(acks.message().await.unwrap().is_none());
}

async fn names_are_what_they_are(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}_names");
    let of = |url: &str, key: &str| found(info(crawl, key, url));
    let longest = "k".repeat(255);
    put_all(
        client,
        vec![
            of("http://user:secret@host.example/", ""),
            of("http://[2001:db8::1]/", ""),
            of("http://h.example#f", ""),
            of("http://UP.example/", ""),
            of("bare.example/x", ""),
            of("http://x.example/", "with_underscore"),
            of("http://x.example/", "other key"),
            of("", "empty"),
            of("http://x.example/", &longest),
            of("http://x.example/", "zero\0byte"),
        ],
    )
    .await;
    let keys: BTreeSet<String> = queues(client, crawl, false).await.values.into_iter().collect();
    let expected = [
        "host.example",
        "[2001:db8::1]",
        "h.example",
        "up.example",
        "bare.example",
        "with_underscore",
        "other key",
        "empty",
        &longest,
        "zero\0byte",
    ];
    assert_eq!(keys, expected.iter().map(|key| (*key).to_owned()).collect());
    // The same URL in another queue is another URL, and keys and crawls with underscores are served.
    assert_eq!(urls_at_last(client, wanted(crawl, "with_underscore", 0, 0, 30)).await, ["http://x.example/"]);
    assert_eq!(urls(client, wanted(crawl, "other key", 0, 0, 30)).await, ["http://x.example/"]);
    assert_eq!(urls(client, wanted(crawl, "empty", 0, 0, 30)).await, [""]);
    let given = take(client, wanted(crawl, "zero\0byte", 0, 0, 30)).await;
    assert_eq!((given[0].key.as_str(), given[0].crawl_id.as_str()), ("zero\0byte", crawl.as_str()));
    // A blank crawl is the default one, in every call.
    let url = format!("http://{tag}.default.example/");
    put_all(client, vec![found(info("  ", "", &url))]).await;
    assert_eq!(stats(client, "DEFAULT", &format!("{}.default.example", tag.to_lowercase())).await.0, 1);
    assert!(status(client, "", "", &url).await.is_ok());
    let key = format!("{}.default.example", tag.to_lowercase());
    assert_eq!(urls_at_last(client, wanted("", &key, 0, 0, 30)).await, [url]);
    assert_eq!(status(client, crawl, "", "nowhere.example").await.unwrap_err(), Code::NotFound);
    assert_eq!(status(client, "no such crawl", "k", "x").await.unwrap_err(), Code::NotFound);
    assert_eq!(status(client, crawl, "", "").await.unwrap_err(), Code::InvalidArgument);
}

async fn urls_are_leased(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-lease");
    let url = |name: &str| info(crawl, "k", name);
    // By date, then by URL; nothing that is not due.
    put_all(
        client,
        vec![known(url("c"), 7), known(url("b"), 7), known(url("a"), 9), known(url("later"), now_s() + 3_600)],
    )
    .await;
    let millis = known(url("in milliseconds"), 1_800_000_000_000);
    put_all(client, vec![millis, known(url("for ever"), u64::MAX)]).await;
    let before = Instant::now();
    assert_eq!(urls_at_last(client, wanted(crawl, "k", 0, 2, 1)).await, ["b", "c"]);
    assert_eq!(stats(client, crawl, "k").await.1, 2, "in process");
    assert_eq!(urls(client, wanted(crawl, "k", 0, 2, 30)).await, [""; 0], "two are out already");
    assert_eq!(urls(client, wanted(crawl, "k", 0, 3, 30)).await, ["a"], "the cap is on what is out before, as ever");
    // A lease is kept, and over in time; then the order is that of the dates again.
    let mut back = Vec::new();
    while back.is_empty() {
        back = urls(client, wanted(crawl, "k", 0, 0, 30)).await;
        assert!(before.elapsed() < Duration::from_secs(30), "the lease of a second is over");
    }
    assert!(before.elapsed() >= Duration::from_secs(1), "never early");
    assert_eq!(back, ["b", "c"]);
    // An update ends a lease, and does not change others.
    put_all(client, vec![known(url("c"), 7)]).await;
    assert_eq!(urls(client, wanted(crawl, "k", 0, 0, u32::MAX)).await, ["c"]);
    assert_eq!(stats(client, crawl, "").await, (6, 3, 0, 1, 1));
    let dates = date(&status(client, crawl, "k", "c").await.unwrap());
    assert_eq!(dates, 7, "a lease does not change the date");
    // Fairness: the queues that have waited longest come first, and nobody gets what another has.
    let crawl = &format!("{tag}-fair");
    put_all(client, (0..12).map(|n| found(info(crawl, &format!("q{n}"), "u"))).collect()).await;
    let mut seen = BTreeSet::new();
    let until = Instant::now() + Duration::from_secs(60);
    while seen.len() < 12 && Instant::now() < until {
        for info in take(client, wanted(crawl, "", 5, 1, 600)).await {
            assert!(seen.insert(info.key), "handed out twice");
        }
    }
    assert_eq!(seen.len(), 12);
    // A key without a crawl means nothing.
    let params = api::GetParams { item: None, ..wanted(crawl, "q1", 0, 0, 1) };
    assert_eq!(urls(client, params).await, [""; 0]);
}

async fn gates_close(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-gate");
    put_all(client, (0..9).map(|n| known(info(crawl, "k", &format!("u{n}")), 5)).collect()).await;
    let block = |time| api::BlockQueueParams { key: "k".into(), time, crawl_id: crawl.clone(), local: false };
    for time in [now_s() + 3_600, u64::MAX] {
        client.block_queue_until(block(time)).await.unwrap();
        assert_eq!(urls(client, wanted(crawl, "k", 0, 1, 30)).await, [""; 0]);
        assert_eq!((queues(client, crawl, false).await.total, queues(client, crawl, true).await.total), (0, 1));
        assert_eq!(put(client, vec![found(info(crawl, "k", &format!("new{time}")))]).await[0].1, Ack::Ok);
    }
    client.block_queue_until(block(0)).await.unwrap();
    assert_eq!(urls_at_last(client, wanted(crawl, "k", 0, 1, 600)).await, ["u0"]);
    // A delay of its own: not before it is over, also through a keyless call.
    let delay = |key: &str, delay_requestable| api::QueueDelayParams {
        key: key.into(),
        delay_requestable,
        crawl_id: crawl.clone(),
        local: false,
    };
    let slow = |url: &str, date| known(info(&format!("{crawl}-slow"), "k", url), date);
    put_all(client, vec![slow("1", 5), slow("2", 6)]).await;
    let of_slow = api::QueueDelayParams { crawl_id: format!("{crawl}-slow"), ..delay("k", 1) };
    client.set_delay(of_slow).await.unwrap();
    let mut began = Instant::now();
    for url in ["1", "2"] {
        let (asked, until) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let mut got = Vec::new();
        while got.is_empty() && Instant::now() < until {
            got = urls(client, wanted(&format!("{crawl}-slow"), "", 0, 1, 600)).await;
        }
        assert_eq!(got, [url]);
        assert!(url == "1" || began.elapsed() >= Duration::from_secs(1), "never early");
        began = asked;
        put_all(client, vec![slow(url, 0)]).await;
    }
    // A limit on completed URLs.
    let limit = |limit| api::CrawlLimitParams { key: "k".into(), limit, crawl_id: crawl.clone(), local: false };
    put_all(client, vec![known(info(crawl, "k", "u0"), 0), known(info(crawl, "k", "open"), 3)]).await;
    client.set_crawl_limit(limit(1)).await.unwrap();
    assert_eq!(urls(client, wanted(crawl, "k", 0, 0, 30)).await, [""; 0]);
    assert_eq!(queues(client, crawl, false).await.total, 1, "still active");
    client.set_crawl_limit(limit(0)).await.unwrap();
    assert!(!urls(client, wanted(crawl, "k", 0, 0, 30)).await.is_empty());
    let unknown = api::CrawlLimitParams { key: "nobody".into(), ..limit(1) };
    assert_eq!(client.set_crawl_limit(unknown).await.unwrap_err().code(), Code::Unknown);
    client.block_queue_until(api::BlockQueueParams { key: "nobody".into(), ..block(9) }).await.unwrap();
    client.set_delay(delay("nobody", 9)).await.unwrap();
    assert_eq!(stats(client, crawl, "nobody").await, (0, 0, 0, 0, 0), "nothing is made by a setting");
    // Paused, everywhere.
    put_all(client, vec![found(info(crawl, "p", "u"))]).await;
    client.set_active(api::Active { state: false, local: false }).await.unwrap();
    assert!(!client.get_active(api::Local { local: false }).await.unwrap().into_inner().state);
    assert_eq!(urls(client, wanted(crawl, "p", 0, 0, 30)).await, [""; 0]);
    client.set_active(api::Active { state: true, local: false }).await.unwrap();
    assert_eq!(urls_at_last(client, wanted(crawl, "p", 0, 0, 30)).await, ["u"]);
    client.set_log_level(api::LogLevelParams { package: "any.thing".into(), level: 2, local: false }).await.unwrap();
}

async fn crawls_are_told_apart(client: &mut Client, tag: &str) {
    // The names whose deletion broke another's store.
    let names: Vec<String> =
        ["news", "news2", "news-x", "news_x", "ab", "b", "ab-c"].iter().map(|name| format!("{tag}{name}")).collect();
    for name in &names {
        put_all(client, vec![found(info(name, "k", "u")), known(info(name, "k", "done"), 0)]).await;
    }
    let crawls = client.list_crawls(api::Local { local: false }).await.unwrap().into_inner().values;
    assert!(names.iter().all(|name| crawls.contains(name)), "{crawls:?}");
    for name in [&names[0], &names[6]] {
        assert_eq!(delete_crawl(client, name).await, 2);
        assert_eq!(delete_crawl(client, name).await, 0, "unknown");
        assert_eq!(stats(client, name, "").await, (0, 0, 0, 0, 0));
        assert!(!client.list_crawls(api::Local { local: false }).await.unwrap().into_inner().values.contains(name));
    }
    for name in &names[1..6] {
        assert_eq!(stats(client, name, "").await, (1, 0, 1, 1, 1), "{name}");
        assert_eq!(urls_at_last(client, wanted(name, "", 0, 0, 30)).await, ["u"]);
    }
    put_all(client, vec![found(info(&names[0], "k", "u"))]).await;
    assert_eq!(stats(client, &names[0], "").await, (1, 0, 0, 1, 1), "known no more, and begun anew");
}

async fn lists_and_counts(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-list");
    let items =
        (0..120).map(|n| known(info(crawl, &format!("q{}", n % 7), &format!("http://x/Page{n:03}")), n % 2)).collect();
    put_all(client, items).await;
    assert_eq!(list(client, crawl, 0, 0).await.len(), 100, "a page");
    let all = list(client, crawl, 0, u32::MAX).await;
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 120);
    let mut paged = Vec::new();
    for start in (0..140).step_by(35) {
        paged.extend(list(client, crawl, start, 35).await);
    }
    assert_eq!(paged, all, "pages add up");
    assert_eq!(count(client, crawl, None, false).await, 120);
    assert_eq!(count(client, crawl, Some("  "), false).await, 120, "a blank filter is none");
    assert_eq!(
        (count(client, crawl, Some("page00"), false).await, count(client, crawl, Some("page00"), true).await),
        (0, 10)
    );
    let page = api::Pagination { start: 2, size: 3, include_inactive: true, crawl_id: crawl.clone(), local: false };
    let some = client.list_queues(page).await.unwrap().into_inner();
    assert_eq!((some.values.len(), some.total, some.start, some.size, some.crawl_id), (3, 7, 2, 3, crawl.clone()));
    let everything = queues(client, crawl, true).await.values;
    assert_eq!(everything[2..5], some.values[..]);
    assert_eq!(queues(client, "no such crawl", true).await.values.len(), 0);
    assert_eq!(stats(client, crawl, "").await, (60, 0, 60, 7, 7));
}

async fn what_is_forgotten_is_gone(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-forget");
    let put_some = || vec![found(info(crawl, "k", "a")), known(info(crawl, "k", "b"), 0), found(info(crawl, "l", "c"))];
    put_all(client, put_some()).await;
    let limit = api::CrawlLimitParams { key: "k".into(), limit: 1, crawl_id: crawl.clone(), local: false };
    client.set_crawl_limit(limit).await.unwrap();
    let queue = |key: &str| api::QueueWithinCrawlParams { key: key.into(), crawl_id: crawl.clone(), local: false };
    assert_eq!(client.delete_queue(queue("k")).await.unwrap().into_inner().value, 2);
    assert_eq!(client.delete_queue(queue("k")).await.unwrap().into_inner().value, 0, "unknown");
    assert_eq!(client.delete_queue(queue("")).await.unwrap().into_inner().value, 0);
    assert_eq!(stats(client, crawl, "").await, (1, 0, 0, 1, 1));
    put_all(client, vec![known(info(crawl, "k", "z"), 0), found(info(crawl, "k", "a"))]).await;
    assert_eq!(urls_at_last(client, wanted(crawl, "k", 0, 0, 30)).await, ["a"], "the limit went with the queue");
    // Purged: nothing of today with a day, everything with none; queues stay, leases go.
    let purge = |days, key: &str| api::PurgeUrlParams { key: key.into(), crawl_id: crawl.clone(), days };
    assert_eq!(client.purge_ur_ls(purge(1, "")).await.unwrap().into_inner().value, 0);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(client.purge_ur_ls(purge(0, "k")).await.unwrap().into_inner().value, 2);
    assert_eq!(stats(client, crawl, "k").await, (0, 0, 0, 1, 0));
    assert_eq!(client.purge_ur_ls(purge(0, "")).await.unwrap().into_inner().value, 1);
    assert_eq!((queues(client, crawl, true).await.total, queues(client, crawl, false).await.total), (2, 0));
    assert!(client.list_crawls(api::Local { local: false }).await.unwrap().into_inner().values.contains(crawl));
    assert_eq!(put(client, vec![found(info(crawl, "k", "a"))]).await[0].1, Ack::Ok);
    assert_eq!(urls_at_last(client, wanted(crawl, "k", 0, 0, 30)).await, ["a"]);
}

async fn batches_are_acknowledged(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-batch");
    let of = |id: &str, urls: &[&str]| api::DiscoveredBatch {
        id: id.into(),
        items: urls.iter().map(|url| info(crawl, "", url)).collect(),
    };
    let batches = vec![
        of("one", &["http://a/1", "http://a/1", "http://b/2", ""]),
        of("", &[]),
        of("two", &["http://b/2", "http://b/3"]),
    ];
    let acks = client.put_discovered(tokio_stream::iter(batches)).await.unwrap().into_inner();
    let acks: Vec<(String, Vec<Ack>)> =
        acks.map(|ack| ack.map(|ack| (ack.id.clone(), ack.statuses().collect())).unwrap()).collect().await;
    let (ok, skipped) = (Ack::Ok, Ack::Skipped);
    assert_eq!(
        acks,
        [("one".into(), vec![ok, skipped, ok, skipped]), (String::new(), vec![]), ("two".into(), vec![skipped, ok])]
    );
    assert_eq!(stats(client, crawl, "").await, (3, 0, 0, 2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_alone_keeps_what_the_api_promises_also_through_a_kill() {
    let work = tempfile::tempdir().unwrap();
    let data = work.path().join("data");
    let (running, address) = start(&data, work.path(), "first");
    let mut client = connect(&address).await;
    conforms(&mut client, "One").await;
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
    fleet.interrupt();
}
