//! What the URL Frontier API promises, call by call, as its catalogue says it in sentences: run against a node alone, against each of three nodes,
//! and with one of the three killed.
//!
//! | of | sentence | checked by |
//! |---|---|---|
//! | names | a blank crawl is DEFAULT; others are taken as they are | `names_are_what_they_are`, `names_are_not_tidied` |
//! | | no key: the host; none of both: SKIPPED, INVALID_ARGUMENT | `names_are_what_they_are`, `puts_are_acknowledged` |
//! | | keys have at most 255 UTF-16 units; longer ones are SKIPPED | `names_are_what_they_are`, `names_are_not_tidied`, `puts_are_acknowledged` |
//! | | a URL is known within its queue; an empty one too | `names_are_what_they_are` |
//! | | URLs are not normalised | `names_are_not_tidied` |
//! | PutURLs | one ack an item, by its ID or URL, while the stream is open; then the stream ends | `puts_are_acknowledged` |
//! | | found and unknown: OK, due now | `puts_are_acknowledged` |
//! | | found and scheduled, leased or completed: SKIPPED, nothing changes | `what_is_found_changes_nothing_that_is_known`, `puts_are_acknowledged` |
//! | | known: OK, date and metadata replaced, the lease over | `puts_are_acknowledged`, `urls_are_leased` |
//! | | date 0: completed, without metadata | `puts_are_acknowledged` |
//! | | neither: SKIPPED | `puts_are_acknowledged` |
//! | | what cannot be kept: FAIL | `what_cannot_be_kept_on_two_nodes_is_not_acknowledged` in `frontier_grpc.rs` |
//! | | a window of 1,024 | `bad_clients_are_told_so_and_cost_little` in `frontier_grpc.rs` |
//! | | the creation date is the server's, and stays | `what_is_found_changes_nothing_that_is_known`, `puts_are_acknowledged` |
//! | PutDiscovered | one ack a batch, statuses in order; twice in a batch: SKIPPED; an empty batch, an empty ID | `batches_are_acknowledged` |
//! | | metadata is kept | `what_is_found_changes_nothing_that_is_known` |
//! | | a window of 16 | `clients_that_never_read_cost_bounded_memory` in `frontier_hostile.rs` |
//! | GetURLs | paused: an empty stream | `gates_close` |
//! | | a crawl and a key: that queue | `urls_are_leased` and most others |
//! | | a key and no crawl, or any: nothing | `a_key_needs_a_crawl` |
//! | | no key, no crawl or any: all crawls | `all_crawls_are_served` |
//! | | no key and a crawl: its queues; a blank one: DEFAULT | `urls_are_leased`, `all_crawls_are_served` |
//! | | 0 queues, 0 URLs: no limit | `crawls_are_told_apart`, `urls_are_leased` |
//! | | no lease: 30 s | `lease_without_a_time`, `it_was_half_a_minute` |
//! | | a blocked queue, one at its limit, one in its delay, one with enough in transit: nothing | `gates_close`, `urls_are_leased` |
//! | | the cap is no total | `urls_are_leased` |
//! | | by date, then by URL; nothing that is not due, nothing leased | `urls_are_leased` |
//! | | an empty answer costs no delay | `delays_are_those_of_the_queue_or_of_all` |
//! | | a lease lasts as long as it says, ends by an update, and changes no date | `urls_are_leased` |
//! | | queues take turns | `queues_take_turns`, `urls_are_leased`, `frontier_faults.rs` |
//! | | what comes names its key and its crawl | `names_are_what_they_are`, `all_crawls_are_served` |
//! | BlockQueueUntil | blocked through that time, 0 unblocks, puts go on, an unknown queue is ignored | `gates_close` |
//! | SetDelay | a second before anybody sets one: `a_second_is_the_delay_until_somebody_sets_another` in `frontier_local.rs`; of a queue; 2^32-1: back to that of all; of all, whatever the crawl; an unknown queue is ignored | `delays_are_those_of_the_queue_or_of_all`, `gates_close` |
//! | SetCrawlLimit | of completed URLs; 0 removes it; unknown: UNKNOWN; puts go on and it is active | `gates_close` |
//! | SetActive | false pauses, also by default; local means the node | `gates_close`, `a_node_may_pause_alone`, `frontier_local.rs` |
//! | SetLogLevel | takes any name; a number that is no level: INVALID_ARGUMENT; what it changes | `gates_close`, `the_log_level_is_what_was_said` in `frontier_local.rs` |
//! | ListNodes | all nodes | `frontier_grpc.rs` |
//! | ListCrawls | those with queues, empty ones too, and none that is deleted | `crawls_are_told_apart`, `what_is_forgotten_is_gone` |
//! | ListQueues | a page; inactive ones are blocked or have nothing scheduled, leased and future URLs count; an unknown crawl is empty | `lists_and_counts`, `gates_close`, `what_waits_or_is_leased_is_active` |
//! | GetStats | of a crawl or a queue; leases that are over do not count; empty queues do; unknown: zeros; the crawl's whole name | `puts_are_acknowledged`, `what_waits_or_is_leased_is_active`, `what_is_forgotten_is_gone` |
//! | DeleteQueue | how many; unknown: 0; delay, block, limit and leases go along | `what_is_forgotten_is_gone`, `settings_go_with_their_queue` |
//! | DeleteCrawl | how many; unknown: 0; blank: DEFAULT | `crawls_are_told_apart`, `settings_go_with_their_queue` |
//! | GetURLStatus | always known; NOT_FOUND; leases, blocks and delays do not matter | `puts_are_acknowledged`, `names_are_what_they_are`, `what_waits_or_is_leased_is_active` |
//! | ListURLs | 100, or as many as are wanted, from `start` on; of a queue; with a filter | `lists_and_counts` |
//! | CountURLs | likewise | `lists_and_counts` |
//! | PurgeURLs | older than so many days, 0 for all; queues stay, leases go | `what_is_forgotten_is_gone` |

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use node::doors::frontier::api::ack_message::Status as Ack;
use node::doors::frontier::api::{self, get_params, url_item};
use tokio_stream::StreamExt;
use tonic::Code;

use crate::frontier_api::{
    Client, count, date, delete_crawl, found, info, known, list, now_s, put, put_all, queues, stats, status, take,
    urls, urls_at_last, wanted,
};

/// Everything that calls promise. `tag` keeps the crawls of one run apart from those of others.
pub async fn conforms(client: &mut Client, tag: &str) {
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
    names_are_not_tidied(client, tag).await;
    what_is_found_changes_nothing_that_is_known(client, tag).await;
    a_key_needs_a_crawl(client, tag).await;
    delays_are_those_of_the_queue_or_of_all(client, tag).await;
    what_waits_or_is_leased_is_active(client, tag).await;
    settings_go_with_their_queue(client, tag).await;
    a_node_may_pause_alone(client, tag).await;
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
    // Known: always taken, with date and metadata; one URL again and again on one stream is in order.
    let mut changed = info(crawl, "", url);
    changed.metadata.insert("depth".into(), api::StringList { values: vec!["1".into(), "2".into()] });
    let order = (1..=2_000).map(|date| known(changed.clone(), date)).collect();
    put_all(client, order).await;
    let item = status(client, crawl, "", url).await.unwrap();
    assert_eq!((date(&item), item.creation_date), (2_000, first.creation_date));
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
    // Nobody waits for a queue that has more than others.
    let crawl = &format!("{tag}-fair");
    let turns = turns_of(client, crawl, 3, 12).await;
    assert_eq!(turns.iter().collect::<BTreeSet<_>>().len(), 12, "{turns:?}");
}

/// The keys of queues in the order in which they were served, until so many different ones were. One has forty URLs and eleven have two; what is taken is completed, so all may be served again at once.
async fn turns_of(client: &mut Client, crawl: &str, at_once: u32, keys: usize) -> Vec<String> {
    let item = |key: usize, url: usize| known(info(crawl, &format!("q{key:02}"), &format!("u{url:02}")), 5);
    let items = (0..12).flat_map(|key| (0..if key == 0 { 40 } else { 2 }).map(move |url| (key, url)));
    put_all(client, items.map(|(key, url)| item(key, url)).collect()).await;
    let (mut turns, mut came, until) = (Vec::new(), BTreeSet::new(), Instant::now() + Duration::from_secs(60));
    while turns.iter().collect::<BTreeSet<_>>().len() < keys && Instant::now() < until {
        let taken = take(client, wanted(crawl, "", at_once, 1, 600)).await;
        assert!(taken.len() <= at_once as usize, "{taken:?}");
        for info in &taken {
            assert!(came.insert((info.key.clone(), info.url.clone())), "handed out twice");
            turns.push(info.key.clone());
        }
        put_all(client, taken.into_iter().map(|info| known(info, 0)).collect()).await;
    }
    turns
}

/// On a node alone no queue has its second turn before each has had its first, and none its third before each has had its second. In a cluster every node does so with its own.
pub async fn queues_take_turns(client: &mut Client, tag: &str) {
    let turns = turns_of(client, &format!("{tag}-turns"), 5, 12).await;
    let sorted = |turns: &[String]| turns.iter().cloned().collect::<BTreeSet<_>>().len();
    assert_eq!(sorted(&turns[..12]), 12, "{turns:?}");
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
    assert_eq!(put(client, vec![found(info(crawl, "k", "beyond the limit"))]).await[0].1, Ack::Ok, "puts go on");
    assert!(date(&status(client, crawl, "k", "beyond the limit").await.unwrap()) > 0);
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
    let no_level = api::LogLevelParams { package: "node::doors".into(), level: 9, local: false };
    assert_eq!(client.set_log_level(no_level).await.unwrap_err().code(), Code::InvalidArgument);
    // The delay of all queues is that of all nodes.
    let of_all_here = api::QueueDelayParams { local: true, ..delay("", 9) };
    assert_eq!(client.set_delay(of_all_here).await.unwrap_err().code(), Code::InvalidArgument);
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
    let of_queue = |filter: Option<&str>| {
        let (key, filter, ignore_case) = ("q3".to_owned(), filter.map(str::to_owned), Some(true));
        api::ListUrlParams { crawl_id: crawl.clone(), key, size: 1_000, filter, ignore_case, ..Default::default() }
    };
    for (filter, expected) in [(None, 17), (Some("PAGE00"), 1), (Some("nothing of it"), 0)] {
        let listed = client.list_ur_ls(of_queue(filter)).await.unwrap().into_inner();
        let keys: Vec<String> = listed.map(|item| info_of(item.unwrap()).key).collect().await;
        assert!(keys.len() == expected && keys.iter().all(|key| key == "q3"), "{filter:?}: {keys:?}");
        let filter = filter.map(str::to_owned);
        let params = api::CountUrlParams {
            key: "q3".into(),
            crawl_id: crawl.clone(),
            filter,
            ignore_case: Some(true),
            local: None,
        };
        assert_eq!(client.count_ur_ls(params).await.unwrap().into_inner().value, expected as u64);
    }
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

/// The URL of an item that is told, which is always of the known kind.
fn info_of(item: api::UrlItem) -> api::UrlInfo {
    match item.item {
        Some(url_item::Item::Known(known)) => known.info.unwrap(),
        other => panic!("always the known variant, not {other:?}"),
    }
}

async fn set_delay(client: &mut Client, crawl: &str, key: &str, seconds: u32) {
    let params =
        api::QueueDelayParams { key: key.into(), delay_requestable: seconds, crawl_id: crawl.into(), local: false };
    client.set_delay(params).await.unwrap();
}

async fn block(client: &mut Client, crawl: &str, key: &str, time: u64) {
    let params = api::BlockQueueParams { key: key.into(), time, crawl_id: crawl.into(), local: false };
    client.block_queue_until(params).await.unwrap();
}

fn with_words(mut info: api::UrlInfo, words: &str) -> api::UrlInfo {
    info.metadata.insert("words".into(), api::StringList { values: vec![words.into()] });
    info
}

async fn names_are_not_tidied(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-tidy");
    let written = [
        "http://n.example/a",
        "http://n.example/b/../a",
        "HTTP://n.example/a",
        "http://n.example/a#x",
        "http://n.example:80/a",
    ];
    put_all(client, written.iter().map(|url| found(info(crawl, "", url))).collect()).await;
    let listed: BTreeSet<String> = list(client, crawl, 0, 0).await.into_iter().collect();
    assert_eq!(listed, written.iter().map(|url| (*url).to_owned()).collect());
    assert_eq!(stats(client, crawl, "n.example").await, (5, 0, 0, 1, 1));
    // A crawl's name is not trimmed, and a letter beyond the first plane is two units of a key.
    let spaced = &format!(" {crawl} ");
    put_all(client, vec![found(info(spaced, &"\u{1f577}".repeat(127), "u"))]).await;
    assert_eq!((stats(client, spaced, "").await.0, stats(client, crawl, "").await.0), (1, 5));
    assert_eq!(put(client, vec![found(info(spaced, &"\u{1f577}".repeat(128), "u"))]).await[0].1, Ack::Skipped);
}

async fn what_is_found_changes_nothing_that_is_known(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-found");
    let url = |words: &str| with_words(info(crawl, "k", "u"), words);
    let first = api::UrlItem { creation_date: 7, ..known(url("first"), 5) };
    put_all(client, vec![first]).await;
    let told = status(client, crawl, "k", "u").await.unwrap();
    assert!(told.creation_date.abs_diff(now_s()) < 60, "the server's, not {}", told.creation_date);
    assert_eq!(put(client, vec![found(url("second"))]).await[0].1, Ack::Skipped);
    assert_eq!(status(client, crawl, "k", "u").await.unwrap(), told);
    // While somebody has it.
    assert_eq!(urls_at_last(client, wanted(crawl, "k", 0, 0, 600)).await, ["u"]);
    assert_eq!(put(client, vec![found(url("third"))]).await[0].1, Ack::Skipped);
    assert_eq!(status(client, crawl, "k", "u").await.unwrap(), told);
    assert_eq!(stats(client, crawl, "k").await, (1, 1, 0, 1, 1));
    assert_eq!(urls(client, wanted(crawl, "k", 0, 0, 600)).await, [""; 0]);
    // What a batch brings keeps its words.
    let batch = api::DiscoveredBatch { id: "b".into(), items: vec![with_words(info(crawl, "l", "v"), "of a batch")] };
    let acks = client.put_discovered(tokio_stream::iter(vec![batch])).await.unwrap().into_inner();
    assert_eq!(acks.collect::<Vec<_>>().await.len(), 1);
    let told = info_of(status(client, crawl, "l", "v").await.unwrap());
    assert_eq!(told, with_words(info(crawl, "l", "v"), "of a batch"));
}

async fn a_key_needs_a_crawl(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-key");
    put_all(client, vec![found(info(crawl, crawl, "u"))]).await;
    for item in [None, Some(get_params::Item::AnyCrawlId(api::AnyCrawlId {}))] {
        let params = api::GetParams { item, ..wanted(crawl, crawl, 0, 0, 30) };
        assert_eq!(urls(client, params).await, [""; 0]);
    }
    assert_eq!(urls_at_last(client, wanted(crawl, crawl, 0, 0, 30)).await, ["u"]);
}

/// Calls without a crawl serve all of them, and calls without a name of one serve DEFAULT. They take what there is, whosever it is.
pub async fn all_crawls_are_served(client: &mut Client, tag: &str) {
    let crawls = [format!("{tag}-any1"), format!("{tag}-any2"), String::new()];
    for (item, round) in [(None, "r1"), (Some(get_params::Item::AnyCrawlId(api::AnyCrawlId {})), "r2")] {
        let url = &format!("{tag}-{round}");
        put_all(client, crawls.iter().map(|crawl| found(info(crawl, url, url))).collect()).await;
        let (mut came, until) = (BTreeSet::new(), Instant::now() + Duration::from_secs(90));
        while came.len() < 3 && Instant::now() < until {
            let params = api::GetParams { item: item.clone(), ..wanted("", "", 0, 0, 600) };
            let of_round = take(client, params).await.into_iter().filter(|info| info.url == *url);
            came.extend(of_round.map(|info| info.crawl_id));
        }
        let named = [&crawls[0], &crawls[1], "DEFAULT"].map(str::to_owned);
        assert_eq!(came, named.into(), "of all crawls, each by its whole name");
    }
    let url = format!("{tag}-blank");
    put_all(client, vec![found(info("", &url, &url))]).await;
    let (mut came, until) = (Vec::new(), Instant::now() + Duration::from_secs(90));
    while !came.contains(&url) && Instant::now() < until {
        let given = take(client, wanted("", "", 0, 0, 600)).await;
        assert!(given.iter().all(|info| info.crawl_id == "DEFAULT"), "{given:?}");
        came.extend(given.into_iter().map(|info| info.url));
    }
    assert!(came.contains(&url), "no key and a blank crawl: DEFAULT");
}

async fn delays_are_those_of_the_queue_or_of_all(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-delay");
    put_all(client, ["1", "2", "3"].map(|url| known(info(crawl, "k", url), 5)).to_vec()).await;
    set_delay(client, crawl, "k", 3_600).await;
    assert_eq!(urls_at_last(client, wanted(crawl, "k", 0, 1, 600)).await, ["1"]);
    assert_eq!(urls(client, wanted(crawl, "k", 0, 9, 600)).await, [""; 0], "a delay of its own");
    set_delay(client, crawl, "k", u32::MAX).await;
    assert_eq!(
        urls_at_last(client, wanted(crawl, "k", 0, 2, 600)).await,
        ["2", "3"],
        "back to that of all, which is none"
    );
    // That of all, whatever crawl is named; a queue with one of its own keeps that.
    put_all(
        client,
        ["own", "all"].map(|key| [5, 6].map(|date| known(info(crawl, key, &date.to_string()), date))).concat(),
    )
    .await;
    set_delay(client, crawl, "own", 0).await;
    set_delay(client, "another crawl", "", 3_600).await;
    for (key, second) in [("all", vec![]), ("own", vec!["6"])] {
        assert_eq!(urls_at_last(client, wanted(crawl, key, 0, 1, 600)).await, ["5"]);
        assert_eq!(urls(client, wanted(crawl, key, 0, 2, 600)).await, second, "{key}");
    }
    set_delay(client, "", "", 0).await;
    assert_eq!(urls_at_last(client, wanted(crawl, "all", 0, 2, 600)).await, ["6"]);
    // An empty answer costs no delay.
    put_all(client, vec![known(info(crawl, "empty", "later"), now_s() + 3_600)]).await;
    set_delay(client, crawl, "empty", 3_600).await;
    for _ in 0..3 {
        assert_eq!(urls(client, wanted(crawl, "empty", 0, 0, 600)).await, [""; 0]);
    }
    put_all(client, vec![known(info(crawl, "empty", "now"), 5)]).await;
    assert_eq!(urls_at_last(client, wanted(crawl, "empty", 0, 0, 600)).await, ["now"]);
}

async fn what_waits_or_is_leased_is_active(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-active");
    put_all(
        client,
        vec![
            known(info(crawl, "later", "u"), now_s() + 3_600),
            known(info(crawl, "leased", "u"), 5),
            known(info(crawl, "done", "u"), 0),
            known(info(crawl, "blocked", "u"), 5),
        ],
    )
    .await;
    block(client, crawl, "blocked", now_s() + 3_600).await;
    let before = Instant::now();
    assert_eq!(urls_at_last(client, wanted(crawl, "leased", 0, 0, 2)).await, ["u"]);
    let active: BTreeSet<String> = queues(client, crawl, false).await.values.into_iter().collect();
    assert_eq!(active, ["later", "leased"].map(str::to_owned).into());
    assert_eq!(queues(client, crawl, true).await.values.len(), 4);
    for key in ["leased", "blocked"] {
        assert_eq!(date(&status(client, crawl, key, "u").await.unwrap()), 5, "{key} or not");
    }
    // A lease that is over is in process no more, though nobody took its URL meanwhile.
    let until = Instant::now() + Duration::from_secs(60);
    while stats(client, crawl, "leased").await.1 == 1 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(before.elapsed() >= Duration::from_secs(2), "never early");
    assert_eq!(stats(client, crawl, "leased").await, (1, 0, 0, 1, 1));
    // The crawl's whole name is told, and GetStats is never across crawls.
    let params = api::QueueWithinCrawlParams { crawl_id: " ".into(), ..Default::default() };
    assert_eq!(client.get_stats(params).await.unwrap().into_inner().crawl_id, "DEFAULT");
    assert_eq!(queues(client, "", true).await.crawl_id, "DEFAULT");
}

async fn settings_go_with_their_queue(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-anew");
    let queue = api::QueueWithinCrawlParams { key: "k".into(), crawl_id: crawl.clone(), local: false };
    put_all(client, vec![known(info(crawl, "k", "u"), 5)]).await;
    assert_eq!(urls_at_last(client, wanted(crawl, "k", 0, 0, 3_600)).await, ["u"]);
    block(client, crawl, "k", now_s() + 3_600).await;
    set_delay(client, crawl, "k", 3_600).await;
    assert_eq!(client.delete_queue(queue).await.unwrap().into_inner().value, 1);
    assert_eq!(put(client, vec![found(info(crawl, "k", "u"))]).await[0].1, Ack::Ok, "known no more");
    assert_eq!(urls_at_last(client, wanted(crawl, "k", 0, 0, 30)).await, ["u"], "neither lease, block nor delay");
    // A blank name means the default crawl.
    put_all(client, vec![known(info("", &format!("{tag}-k"), "u"), 5)]).await;
    assert!(delete_crawl(client, " ").await >= 1);
    assert_eq!(stats(client, "DEFAULT", "").await, (0, 0, 0, 0, 0));
}

async fn a_node_may_pause_alone(client: &mut Client, tag: &str) {
    let crawl = &format!("{tag}-alone");
    put_all(client, (0..40).map(|n| found(info(crawl, &format!("q{n}"), "u"))).collect()).await;
    for (active, everywhere) in [(false, true), (true, true)] {
        client.set_active(api::Active { state: active, local: true }).await.unwrap();
        assert_eq!(client.get_active(api::Local { local: true }).await.unwrap().into_inner().state, active);
        assert_eq!(client.get_active(api::Local { local: false }).await.unwrap().into_inner().state, everywhere);
    }
    // All defaults mean pause.
    client.set_active(api::Active::default()).await.unwrap();
    assert_eq!(urls(client, wanted(crawl, "", 0, 0, 30)).await, [""; 0]);
    client.set_active(api::Active { state: true, local: false }).await.unwrap();
    assert!(!urls_at_last(client, wanted(crawl, "", 0, 0, 30)).await.is_empty());
}

/// Takes a URL without saying for how long.
pub async fn lease_without_a_time(client: &mut Client) -> Instant {
    put_all(client, vec![found(info("half a minute", "k", "u"))]).await;
    let before = Instant::now();
    assert_eq!(urls_at_last(client, wanted("half a minute", "k", 0, 0, 0)).await, ["u"]);
    before
}

/// It is handed out again after thirty seconds.
pub async fn it_was_half_a_minute(client: &mut Client, before: Instant) {
    assert_eq!(urls_at_last(client, wanted("half a minute", "k", 0, 0, 0)).await, ["u"]);
    assert!(before.elapsed() >= Duration::from_secs(30), "after {:?}", before.elapsed());
}
