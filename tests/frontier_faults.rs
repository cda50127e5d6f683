//! The faults of the reference service that the catalogue names, one test each: none of them is ours. By the numbers there: those of many nodes that die and come
//! back (12, 13) are in `frontier_restart.rs` and `frontier_crowd.rs` besides, number 16 is a slip in words.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use node::doors::frontier::api::ack_message::Status as Ack;
use node::doors::frontier::api::{self, get_params};
use tempfile::TempDir;
use tests::PATIENCE;
use tests::frontier_api::{
    Client, connect, count, date, delete_crawl, found, info, known, list, now_s, put, put_all, queues, start, stats,
    status, take, urls, wait_until_ready, wanted,
};
use tests::program::{Running, run};
use tokio::task::JoinSet;

/// A node alone, of which a queue may be asked again at once.
struct Server {
    running: Option<Running>,
    address: String,
    starts: usize,
    work: TempDir,
}

impl Server {
    async fn new() -> Server {
        let mut server =
            Server { running: None, address: String::new(), starts: 0, work: tempfile::tempdir().unwrap() };
        server.start();
        let mut client = server.client().await;
        client.set_delay(api::QueueDelayParams::default()).await.unwrap();
        server
    }

    fn start(&mut self) {
        self.starts += 1;
        let data = self.work.path().join("data");
        let (running, address) = start(&data, self.work.path(), &format!("start-{}", self.starts));
        (self.running, self.address) = (Some(running), address);
    }

    async fn client(&self) -> Client {
        let mut client = connect(&self.address).await;
        wait_until_ready(&mut client).await;
        client
    }

    /// Kills it and starts it again.
    async fn killed(&mut self) -> Client {
        assert!(self.running.take().unwrap().kill());
        self.start();
        self.client().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_1_a_crawl_whose_name_begins_anothers_is_deleted_and_nothing_else_suffers() {
    let mut server = Server::new().await;
    let mut client = server.client().await;
    let others = ["news2", "news-x", "news_x", "newsz", "new"];
    for crawl in others.into_iter().chain(["news"]) {
        put_all(&mut client, vec![found(info(crawl, "k", "u")), known(info(crawl, "k", "done"), 0)]).await;
    }
    assert_eq!(delete_crawl(&mut client, "news").await, 2);
    // Everything can be put, and what was deleted stays so.
    put_all(&mut client, vec![found(info("news2", "k", "more"))]).await;
    let mut client = server.killed().await;
    assert_eq!(stats(&mut client, "news", "").await, (0, 0, 0, 0, 0));
    assert_eq!(urls(&mut client, wanted("news", "", 0, 0, 30)).await, [""; 0]);
    for crawl in others {
        let scheduled = if crawl == "news2" { 2 } else { 1 };
        assert_eq!(stats(&mut client, crawl, "").await, (scheduled, 0, 1, 1, 1), "{crawl}");
    }
    put_all(&mut client, vec![found(info("news", "k", "u"))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_2_deleting_a_crawl_with_a_dash_wipes_no_other() {
    let mut server = Server::new().await;
    let mut client = server.client().await;
    for crawl in ["ab", "b", "ab-c", "ab_c", "a"] {
        put_all(&mut client, vec![found(info(crawl, "k", "u"))]).await;
    }
    assert_eq!(delete_crawl(&mut client, "ab-c").await, 1);
    let mut client = server.killed().await;
    for crawl in ["ab", "b", "ab_c", "a"] {
        assert_eq!(stats(&mut client, crawl, "").await.0, 1, "{crawl} is counted");
        assert_eq!(urls(&mut client, wanted(crawl, "", 0, 0, 30)).await, ["u"], "{crawl} is on disk");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_3_keys_and_crawls_with_underscores_are_served() {
    let server = Server::new().await;
    let mut client = server.client().await;
    put_all(&mut client, vec![found(info("with_one", "key_of_it", "u_1")), found(info("with%5Fone", "k", "u"))]).await;
    assert_eq!(urls(&mut client, wanted("with_one", "", 0, 0, 30)).await, ["u_1"]);
    assert_eq!(queues(&mut client, "with_one", true).await.values, ["key_of_it"]);
    assert_eq!(urls(&mut client, wanted("with%5Fone", "k", 0, 0, 30)).await, ["u"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_4_a_date_in_milliseconds_hides_nothing() {
    let server = Server::new().await;
    let mut client = server.client().await;
    let dates = [1_800_000_000_000, u64::MAX, 99_999_999_999, 5, 10_000_000_000, 9];
    put_all(&mut client, dates.map(|date| known(info("c", "k", &date.to_string()), date)).to_vec()).await;
    assert_eq!(urls(&mut client, wanted("c", "k", 0, 0, 30)).await, ["5", "9"]);
    for expected in dates {
        assert_eq!(date(&status(&mut client, "c", "k", &expected.to_string()).await.unwrap()), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_5_a_url_that_is_completed_twice_counts_once() {
    let mut server = Server::new().await;
    let mut client = server.client().await;
    put_all(&mut client, vec![found(info("c", "k", "u")), found(info("c", "k", "v"))]).await;
    for _ in 0..5 {
        put_all(&mut client, vec![known(info("c", "k", "u"), 0), known(info("c", "k", "u"), 0)]).await;
        assert_eq!(stats(&mut client, "c", "").await, (1, 0, 1, 1, 1));
    }
    // A limit of two is not reached by one.
    let limit = api::CrawlLimitParams { key: "k".into(), limit: 2, crawl_id: "c".into(), local: false };
    client.set_crawl_limit(limit).await.unwrap();
    let mut client = server.killed().await;
    assert_eq!(stats(&mut client, "c", "").await, (1, 0, 1, 1, 1));
    assert_eq!(urls(&mut client, wanted("c", "k", 0, 0, 30)).await, ["v"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_6_a_completed_url_that_is_scheduled_again_is_one_url() {
    let server = Server::new().await;
    let mut client = server.client().await;
    put_all(&mut client, vec![known(info("c", "k", "u"), 0), known(info("c", "k", "u"), 7)]).await;
    assert_eq!(stats(&mut client, "c", "").await, (1, 0, 0, 1, 1));
    assert_eq!((list(&mut client, "c", 0, 0).await, count(&mut client, "c", None, false).await), (vec!["u".into()], 1));
    assert_eq!(date(&status(&mut client, "c", "k", "u").await.unwrap()), 7);
    assert_eq!(urls(&mut client, wanted("c", "k", 0, 0, 30)).await, ["u"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_7_queues_are_counted_once_while_they_are_handed_out() {
    let server = Server::new().await;
    let mut client = server.client().await;
    let items = (0..60 * 3).map(|n| known(info("c", &format!("q{}", n % 60), &format!("u{n}")), 5));
    put_all(&mut client, items.collect()).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (mut client, over) = (server.client().await, Arc::clone(&over));
        tasks.spawn(async move {
            let mut taken = 0;
            while !over.load(Relaxed) {
                for info in take(&mut client, wanted("c", "", 7, 1, 600)).await {
                    put_all(&mut client, vec![known(info, 5)]).await;
                    taken += 1;
                }
            }
            taken
        });
    }
    for _ in 0..150 {
        let (size, in_process, completed, queues, active) = stats(&mut client, "c", "").await;
        assert_eq!((size, completed, queues, active), (180, 0, 60, 60));
        assert!(in_process <= 4 * 7, "{in_process}");
        assert_eq!(self::queues(&mut client, "c", false).await.total, 60);
    }
    over.store(true, Relaxed);
    assert!(tasks.join_all().await.into_iter().all(|taken| taken > 0), "they were handed out meanwhile");
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_8_no_key_and_a_blank_crawl_serve_the_default_crawl() {
    let server = Server::new().await;
    let mut client = server.client().await;
    put_all(&mut client, vec![found(info("", "k", "u")), found(info("other", "k", "v"))]).await;
    let given = take(&mut client, wanted("", "", 0, 0, 30)).await;
    assert_eq!(given.len(), 1);
    assert_eq!((given[0].url.as_str(), given[0].crawl_id.as_str()), ("u", "DEFAULT"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_9_numbers_with_the_top_bit_set_are_large() {
    let server = Server::new().await;
    let mut client = server.client().await;
    put_all(&mut client, (0..5).map(|n| known(info("c", "k", &format!("u{n}")), 5)).collect()).await;
    assert_eq!(list(&mut client, "c", 0, u32::MAX).await.len(), 5);
    assert_eq!(list(&mut client, "c", u32::MAX, 9).await.len(), 0);
    let page = api::Pagination { size: u32::MAX, crawl_id: "c".into(), ..Default::default() };
    assert_eq!(client.list_queues(page).await.unwrap().into_inner().values, ["k"]);
    let block = |time| api::BlockQueueParams { key: "k".into(), time, crawl_id: "c".into(), local: false };
    for time in [u64::MAX, 1 << 63] {
        client.block_queue_until(block(time)).await.unwrap();
        assert_eq!(urls(&mut client, wanted("c", "k", 0, 0, 30)).await, [""; 0], "blocked until {time}");
    }
    client.block_queue_until(block(0)).await.unwrap();
    let limit = api::CrawlLimitParams { key: "k".into(), limit: u32::MAX, crawl_id: "c".into(), local: false };
    client.set_crawl_limit(limit).await.unwrap();
    put_all(&mut client, vec![known(info("c", "k", "u0"), 0)]).await;
    let all = wanted("c", "", u32::MAX, u32::MAX, u32::MAX);
    assert_eq!(urls(&mut client, all.clone()).await, ["u1", "u2", "u3", "u4"]);
    assert_eq!(stats(&mut client, "c", "").await.1, 4, "a long lease is a lease");
    assert_eq!(urls(&mut client, all).await, [""; 0]);
    let purge = api::PurgeUrlParams { crawl_id: "c".into(), days: u32::MAX, ..Default::default() };
    assert_eq!(client.purge_ur_ls(purge).await.unwrap().into_inner().value, 0, "nothing is so old");
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_10_no_secret_becomes_a_key() {
    let server = Server::new().await;
    let mut client = server.client().await;
    let of = |url: &str| found(info("c", "", url));
    let items =
        ["http://user:secret@h.example/", "http://[2001:db8::1]:80/", "http://f.example#x", "http://UP.example/"];
    put_all(&mut client, items.map(of).to_vec()).await;
    let keys: BTreeSet<String> = queues(&mut client, "c", true).await.values.into_iter().collect();
    assert_eq!(keys, ["[2001:db8::1]", "f.example", "h.example", "up.example"].map(str::to_owned).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_11_what_was_deleted_is_not_served_again_after_a_restart() {
    let mut server = Server::new().await;
    let mut client = server.client().await;
    let of = |crawl: &str| (0..20).map(|n| known(info(crawl, &format!("q{}", n % 4), &format!("u{n}")), 5)).collect();
    for crawl in ["gone", "queue", "purged"] {
        put_all(&mut client, of(crawl)).await;
    }
    let queue = api::QueueWithinCrawlParams { key: "q1".into(), crawl_id: "queue".into(), local: false };
    let purge = api::PurgeUrlParams { key: "q1".into(), crawl_id: "purged".into(), days: 0 };
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(delete_crawl(&mut client, "gone").await, 20);
    assert_eq!(client.delete_queue(queue).await.unwrap().into_inner().value, 5);
    assert_eq!(client.purge_ur_ls(purge).await.unwrap().into_inner().value, 5);
    let mut client = server.killed().await;
    let crawls = client.list_crawls(api::Local::default()).await.unwrap().into_inner().values;
    assert_eq!(crawls, ["purged", "queue"]);
    assert_eq!(stats(&mut client, "gone", "").await, (0, 0, 0, 0, 0));
    assert_eq!(
        (stats(&mut client, "queue", "").await, stats(&mut client, "purged", "").await),
        ((15, 0, 0, 3, 3), (15, 0, 0, 4, 3))
    );
    // The queues are made anew: nothing of the old ones comes, nothing is refused as known.
    for crawl in ["gone", "queue", "purged"] {
        assert_eq!(put(&mut client, vec![found(info(crawl, "q1", "u1"))]).await[0].1, Ack::Ok, "{crawl}");
        assert_eq!(urls(&mut client, wanted(crawl, "q1", 0, 0, 30)).await, ["u1"], "{crawl}");
    }
    let mut client = server.killed().await;
    assert_eq!(list(&mut client, "gone", 0, 0).await, ["u1"]);
    assert_eq!(count(&mut client, "queue", None, false).await, 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_12_leases_and_settings_survive_a_kill() {
    let mut server = Server::new().await;
    let mut client = server.client().await;
    for key in ["leased", "blocked", "slow", "limited"] {
        put_all(&mut client, vec![known(info("c", key, "1"), 5), known(info("c", key, "2"), 6)]).await;
    }
    assert_eq!(urls(&mut client, wanted("c", "leased", 0, 1, 3_600)).await, ["1"]);
    let params = |key: &str| (key.to_owned(), "c".to_owned());
    let (key, crawl_id) = params("blocked");
    client
        .block_queue_until(api::BlockQueueParams { key, time: now_s() + 3_600, crawl_id, local: false })
        .await
        .unwrap();
    let (key, crawl_id) = params("slow");
    client.set_delay(api::QueueDelayParams { key, delay_requestable: 3_600, crawl_id, local: false }).await.unwrap();
    assert_eq!(urls(&mut client, wanted("c", "slow", 0, 1, 600)).await, ["1"]);
    let (key, crawl_id) = params("limited");
    client.set_crawl_limit(api::CrawlLimitParams { key, limit: 1, crawl_id, local: false }).await.unwrap();
    put_all(&mut client, vec![known(info("c", "limited", "1"), 0)]).await;
    client.set_active(api::Active::default()).await.unwrap();
    let mut client = server.killed().await;
    assert!(!client.get_active(api::Local::default()).await.unwrap().into_inner().state);
    assert_eq!(urls(&mut client, wanted("c", "", 0, 0, 30)).await, [""; 0], "paused");
    client.set_active(api::Active { state: true, local: false }).await.unwrap();
    assert_eq!(urls(&mut client, wanted("c", "", 0, 0, 30)).await, ["2"], "of all queues the one that was leased from");
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_13_updates_of_a_url_on_a_stream_take_effect_in_their_order() {
    let server = Server::new().await;
    let mut client = server.client().await;
    let urls = || (0..50).map(|n| info("c", &format!("q{}", n % 10), &format!("u{n}")));
    let updates = (1..=60).flat_map(|round| urls().map(move |info| known(info, round)));
    put_all(&mut client, updates.chain(urls().take(25).map(|info| known(info, 0))).collect()).await;
    for (number, of) in urls().enumerate() {
        let last = if number < 25 { 0 } else { 60 };
        assert_eq!(date(&status(&mut client, "c", &of.key, &of.url).await.unwrap()), last, "{}", of.url);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_14_calls_end_while_queues_are_made_and_deleted() {
    let server = Server::new().await;
    let mut client = server.client().await;
    put_all(&mut client, (0..5).map(|n| found(info("stays", &format!("q{n}"), "u"))).collect()).await;
    let over = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let (mut client, over) = (server.client().await, Arc::clone(&over));
        tasks.spawn(async move {
            let mut calls = 0;
            while !over.load(Relaxed) {
                // More than there is: the quota is never filled.
                let item = (number % 2 == 0).then_some(get_params::Item::AnyCrawlId(api::AnyCrawlId {}));
                let params = api::GetParams { item, ..wanted("", "", 1_000, 1, 1) };
                let taken = tokio::time::timeout(PATIENCE, take(&mut client, params));
                taken.await.expect("a call ends, whatever is deleted meanwhile");
                calls += 1;
            }
            calls
        });
    }
    for round in 0..60 {
        put_all(&mut client, (0..10).map(|n| found(info("comes", &format!("q{n}"), "u"))).collect()).await;
        if round % 2 == 0 {
            delete_crawl(&mut client, "comes").await;
        } else {
            for n in 0..10 {
                let params =
                    api::QueueWithinCrawlParams { key: format!("q{n}"), crawl_id: "comes".into(), local: false };
                client.delete_queue(params).await.unwrap();
            }
        }
    }
    over.store(true, Relaxed);
    assert!(tasks.join_all().await.into_iter().all(|calls| calls > 0));
    assert_eq!((stats(&mut client, "comes", "").await.0, stats(&mut client, "stays", "").await.0), (0, 5));
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_15_clients_at_once_each_get_what_they_want_while_there_is_enough() {
    let server = Server::new().await;
    let mut client = server.client().await;
    for round in 0..5 {
        let crawl = &format!("round-{round}");
        put_all(&mut client, (0..40).map(|n| found(info(crawl, &format!("q{n}"), "u"))).collect()).await;
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let (mut client, crawl) = (server.client().await, crawl.clone());
            tasks.spawn(async move { take(&mut client, wanted(&crawl, "", 5, 1, 600)).await });
        }
        let taken = tasks.join_all().await;
        assert!(taken.iter().all(|taken| taken.len() == 5), "{:?}", taken.iter().map(Vec::len).collect::<Vec<_>>());
        let keys: BTreeSet<&str> = taken.iter().flatten().map(|info| info.key.as_str()).collect();
        assert_eq!(keys.len(), 40, "and nobody what another has");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_16_the_command_that_pauses_is_the_one_that_its_help_names() {
    let server = Server::new().await;
    let mut client = server.client().await;
    let frontier = |arguments: &[&str]| run(&[&["frontier", "--server", &server.address], arguments].concat());
    assert!(frontier(&["active", "--help"]).stdout.contains("[STATE]"));
    for state in [false, true] {
        assert_eq!(frontier(&["active", &state.to_string()]).code, Some(0));
        assert_eq!(client.get_active(api::Local::default()).await.unwrap().into_inner().state, state);
    }
}
