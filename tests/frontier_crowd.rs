//! Many clients of the URL Frontier API at once: what no two of them may get, what must not be lost while nodes die, come back and leave,
//! and clients that come in thousands, without a certificate, or with bytes that are no text.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use node::doors::frontier::api;
use node::doors::frontier::api::ack_message::Status as Ack;
use node::doors::frontier::api::url_frontier_client::UrlFrontierClient;
use tests::fleet::Fleet;
use tests::frontier_api::{
    Client, connect, found, info, known, put, put_all, start, take, urls, wait_until_ready, wanted,
};
use tests::program::{Running, get, run};
use tests::{PATIENCE, wait_until};
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

/// Queues of the crawl that the crowd works on, and URLs in each.
const QUEUES: usize = 30;
const URLS: usize = 8;
/// Seconds between two URLs of a queue.
const DELAY_S: u32 = 1;

/// When a URL was handed out: not before the call was made, and not after its answer was there.
#[derive(Clone, Copy)]
struct Handed {
    earliest: Instant,
    latest: Instant,
}

#[derive(Default)]
struct Crowd {
    /// Every time that a URL came, by queue and URL.
    handed: Mutex<HashMap<(String, String), Vec<Handed>>>,
    over: AtomicBool,
}

impl Crowd {
    fn came(&self) -> usize {
        self.handed.lock().unwrap().len()
    }

    /// Takes one URL of some queues again and again, until it is over.
    async fn client(self: Arc<Self>, mut client: Client) {
        while !self.over.load(Ordering::Relaxed) {
            let earliest = Instant::now();
            // A node that dies in the middle of a call costs that call.
            let Ok(stream) = client.get_ur_ls(wanted("crowd", "", 7, 1, 3_600)).await else { continue };
            let mut stream = stream.into_inner();
            while let Ok(Some(info)) = stream.message().await {
                let handed = Handed { earliest, latest: Instant::now() };
                self.handed.lock().unwrap().entry((info.key.clone(), info.url.clone())).or_default().push(handed);
                // Fetched: it never comes again, and its queue may give the next one.
                let Ok(acks) = client.put_ur_ls(tokio_stream::iter(vec![known(info, 0)])).await else { continue };
                let mut acks = acks.into_inner();
                while let Ok(Some(_)) = acks.message().await {}
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// No URL came twice within its lease, and no queue gave two within its delay.
    fn judge(&self) {
        let handed = self.handed.lock().unwrap();
        let mut queues: HashMap<&str, Vec<Handed>> = HashMap::new();
        for ((key, url), times) in handed.iter() {
            assert_eq!(times.len(), 1, "{url} of {key} was handed out {} times", times.len());
            queues.entry(key).or_default().extend(times);
        }
        for (key, mut times) in queues {
            times.sort_by_key(|handed| handed.latest);
            for two in times.windows(2) {
                let apart = two[1].latest.duration_since(two[0].earliest);
                assert!(apart >= Duration::from_secs(DELAY_S.into()), "{key} gave two URLs within {apart:?}");
            }
        }
    }
}

async fn until_all_came(crowd: &Crowd, wanted: usize) {
    let until = Instant::now() + PATIENCE;
    while crowd.came() < wanted {
        assert!(Instant::now() < until, "{} of {wanted} URLs came", crowd.came());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_all_nodes_at_once_share_nothing_and_keep_the_delay_of_every_queue() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let addresses: Vec<String> = (0..3).filter_map(|node| fleet.frontier(node)).collect();
    let mut first = connect(&addresses[0]).await;
    first.set_delay(api::QueueDelayParams { delay_requestable: DELAY_S, ..Default::default() }).await.unwrap();
    let items = (0..QUEUES * URLS).map(|n| found(info("crowd", &format!("q{}", n % QUEUES), &format!("u{n}"))));
    put_all(&mut first, items.collect()).await;
    let (crowd, mut tasks) = (Arc::new(Crowd::default()), JoinSet::new());
    for number in 0..9 {
        tasks.spawn(Arc::clone(&crowd).client(connect(&addresses[number % 3]).await));
    }
    until_all_came(&crowd, QUEUES * URLS).await;
    crowd.over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    crowd.judge();
    fleet.interrupt();
}

/// Puts URLs through whichever node answers until it is over, and keeps those that were acknowledged.
async fn putting(addresses: Arc<Vec<String>>, number: usize, over: Arc<AtomicBool>, acknowledged: Arc<AtomicUsize>) {
    let (mut batch, mut at) = (0, number);
    while !over.load(Ordering::Relaxed) {
        let Ok(mut client) = UrlFrontierClient::connect(addresses[at % addresses.len()].clone()).await else {
            at += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // The same batch again until all of it is acknowledged: what was taken before is then said to be known.
        loop {
            let name = |n: usize| format!("u-{number}-{batch}-{n}");
            let items: Vec<_> = (0..20).map(|n| found(info("joined", &format!("q{}", n % 10), &name(n)))).collect();
            let Ok(acks) = client.put_ur_ls(tokio_stream::iter(items)).await else { break };
            let (mut acks, mut taken) = (acks.into_inner(), 0);
            while let Ok(Some(ack)) = acks.message().await {
                taken += usize::from(matches!(ack.status(), Ack::Ok | Ack::Skipped));
            }
            if taken < 20 {
                break;
            }
            acknowledged.fetch_add(20, Ordering::Relaxed);
            batch += 1;
            if over.load(Ordering::Relaxed) {
                return;
            }
        }
        at += 1;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_die_join_and_leave_under_load_and_nothing_acknowledged_is_lost_nor_handed_out_twice() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 4, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    let addresses: Arc<Vec<String>> = Arc::new((0..4).filter_map(|node| fleet.frontier(node)).collect());
    let (over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for number in 0..3 {
        tasks.spawn(putting(Arc::clone(&addresses), number, Arc::clone(&over), Arc::clone(&acknowledged)));
    }
    // Others take URLs all the while, through nodes that live.
    let crowd = Arc::new(Crowd::default());
    let mut first = connect(&addresses[0]).await;
    first.set_delay(api::QueueDelayParams { delay_requestable: DELAY_S, ..Default::default() }).await.unwrap();
    let queues = 400; // more than can be taken before all is over
    let items = (0..queues * URLS).map(|n| found(info("crowd", &format!("q{}", n % queues), &format!("u{n}"))));
    put_all(&mut first, items.collect()).await;
    for number in 0..4 {
        tasks.spawn(Arc::clone(&crowd).client(connect(&addresses[number % 2]).await));
    }
    let goes_on = |what: &str| {
        let (before, came) = (acknowledged.load(Ordering::Relaxed), crowd.came());
        wait_until(what, || acknowledged.load(Ordering::Relaxed) >= before + 200);
        wait_until("URLs are handed out meanwhile", || crowd.came() > came || came == queues * URLS);
    };
    tokio::task::block_in_place(|| {
        goes_on("URLs are put");
        fleet.kill_node(3);
        goes_on("URLs are put with a node down");
        fleet.start_node(3); // on another port: its old clients find others
        goes_on("URLs are put while a node comes back");
        // And one that has nothing: the first that it hears of anything is what the others give it.
        fleet.kill_node(3);
        std::fs::remove_dir_all(fleet.data(3)).unwrap();
        fleet.start_node(3);
        wait_until("a node joins that has nothing, and holds its part", || {
            fleet.frontier(3).is_some() && fleet.totals().0 == 4_096
        });
        goes_on("URLs are put after a node joined");
        wait_until("a node begins to leave", || fleet.ctl_through(2, &["leave"]).code == Some(0));
        // It goes although nobody rests.
        let ended = fleet.wait_for(2);
        assert_eq!(ended.code, Some(0), "{ended}");
        goes_on("URLs are put after a node left");
    });
    over.store(true, Ordering::Relaxed);
    crowd.over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    crowd.judge();
    let mut client = connect(&addresses[0]).await;
    let wanted = acknowledged.load(Ordering::Relaxed) as u64;
    let params = || api::CountUrlParams { crawl_id: "joined".into(), ..Default::default() };
    let counted = client.count_ur_ls(params()).await.unwrap().into_inner().value;
    assert!(counted >= wanted, "{wanted} URLs were acknowledged and {counted} are there");
    let mut other = connect(&addresses[1]).await;
    assert_eq!(other.count_ur_ls(params()).await.unwrap().into_inner().value, counted, "every node says the same");
    fleet.interrupt();
}

/// A server that wants certificates, started with `section` of its settings.
fn start_with(work: &std::path::Path, name: &str, section: &str) -> (Running, String) {
    start_at(work, name, "127.0.0.1:0", section)
}

fn start_at(work: &std::path::Path, name: &str, listen: &str, section: &str) -> (Running, String) {
    let config = work.join(format!("{name}.toml"));
    std::fs::write(&config, format!("[url_frontier]\nlisten = {listen:?}\n{section}")).unwrap();
    let data = work.join(name);
    let arguments =
        ["node", "--data", data.to_str().unwrap(), "--config", config.to_str().unwrap(), "--http", "127.0.0.1:0"];
    let running = Running::start(arguments, work, name);
    wait_until("the door is open", || running.said("frontier: ").is_some());
    let address = running.said("frontier: ").unwrap();
    (running, address)
}

fn certificate(work: &std::path::Path, name: &str) -> (String, String) {
    let [certificate, key] = ["crt", "key"].map(|kind| work.join(format!("{name}.{kind}")));
    let ended = run(&["cert", "--certificate", certificate.to_str().unwrap(), "--key", key.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended}");
    (std::fs::read_to_string(certificate).unwrap(), std::fs::read_to_string(key).unwrap())
}

async fn secure(address: &str, tls: ClientTlsConfig) -> Result<Client, tonic::transport::Error> {
    let address = format!("https://localhost:{}", address.rsplit(':').next().unwrap());
    let channel = Channel::from_shared(address).unwrap().tls_config(tls)?.connect().await?;
    Ok(UrlFrontierClient::new(channel))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_clients_with_the_certificate_that_was_agreed_on_are_served() {
    let work = tempfile::tempdir().unwrap();
    let (server, _) = certificate(work.path(), "server");
    let (client_certificate, client_key) = certificate(work.path(), "client");
    let (stranger_certificate, stranger_key) = certificate(work.path(), "stranger");
    let section = "tls_certificate = \"server.crt\"\ntls_key = \"server.key\"\nclient_authority = \"client.crt\"\n";
    let (running, address) = start_with(work.path(), "node", section);
    let trusting = || ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&server)).domain_name("localhost");
    let mut client =
        secure(&address, trusting().identity(Identity::from_pem(client_certificate, client_key))).await.unwrap();
    wait_until_ready(&mut client).await;
    put_all(&mut client, vec![found(info("c", "k", "u"))]).await;
    assert_eq!(urls(&mut client, wanted("c", "k", 1, 1, 30)).await, ["u"]);
    // With TLS 1.3 a client hears of its refusal with its first call.
    let strangers = [trusting(), trusting().identity(Identity::from_pem(stranger_certificate, stranger_key))];
    for tls in strangers {
        let refused = match secure(&address, tls).await {
            Ok(mut client) => client.list_nodes(api::Empty {}).await.is_err(),
            Err(_) => true,
        };
        assert!(refused);
    }
    let refused = match UrlFrontierClient::connect(format!("http://{address}")).await {
        Ok(mut plain) => plain.list_nodes(api::Empty {}).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "without TLS");
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_that_others_can_reach_wants_a_token_over_tls_or_says_in_words_that_it_does_not() {
    let work = tempfile::tempdir().unwrap();
    let (server, _) = certificate(work.path(), "server");
    std::fs::write(work.path().join("frontier.token"), "a secret\n").unwrap();
    let section = "tls_certificate = \"server.crt\"\ntls_key = \"server.key\"\ntoken_file = \"frontier.token\"\n";
    let (running, address) = start_at(work.path(), "guarded", "0.0.0.0:0", section);
    let trusting = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&server)).domain_name("localhost");
    let mut client = secure(&address, trusting).await.unwrap();
    let until = Instant::now() + PATIENCE;
    for (token, expected) in [
        (Some("Bearer a secret"), None),
        (Some("Bearer another"), Some(Code::Unauthenticated)),
        (Some("a secret"), Some(Code::Unauthenticated)),
        (None, Some(Code::Unauthenticated)),
    ] {
        loop {
            let mut call = tonic::Request::new(api::Empty {});
            if let Some(token) = token {
                call.metadata_mut().insert("authorization", token.parse().unwrap());
            }
            let code = client.list_nodes(call).await.err().map(|status| status.code());
            if code == expected {
                break;
            }
            assert!(code == Some(Code::Unavailable) && Instant::now() < until, "{token:?}: {code:?}"); // it starts
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(running.kill());
    let words = "unprotected = \"anyone may read and change every queue\"\n";
    let (running, address) = start_at(work.path(), "open", "0.0.0.0:0", words);
    let port = address.rsplit(':').next().unwrap();
    let mut client = connect(&format!("http://127.0.0.1:{port}")).await;
    wait_until_ready(&mut client).await;
    put_all(&mut client, vec![found(info("c", "k", "u"))]).await;
    assert!(running.kill());
}

/// A call of GetStats whose names may be any bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct RawStatsParams {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    crawl: Vec<u8>,
}

/// A URL whose letters may be any bytes; and what it stands in, of both streams: in `PutDiscovered` a batch is field 2, in `PutURLs` the name is field 3.
#[derive(Clone, PartialEq, prost::Message)]
struct RawInfo {
    #[prost(bytes = "vec", tag = "1")]
    url: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawFound {
    #[prost(message, optional, tag = "1")]
    info: Option<RawInfo>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawItem {
    #[prost(message, optional, tag = "1")]
    found: Option<RawFound>,
    #[prost(message, repeated, tag = "2")]
    batch: Vec<RawInfo>,
    #[prost(bytes = "vec", tag = "3")]
    id: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawAck {
    #[prost(bytes = "vec", tag = "1")]
    id: Vec<u8>,
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_refused_and_the_connection_goes_on() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start(&work.path().join("data"), work.path(), "node");
    let mut client = connect(&address).await;
    wait_until_ready(&mut client).await;
    let channel = Channel::from_shared(address).unwrap().connect().await.unwrap();
    let mut raw = tonic::client::Grpc::new(channel);
    let path = || tonic::codegen::http::uri::PathAndQuery::from_static("/urlfrontier.URLFrontier/GetStats");
    for (key, refused) in [(vec![0xFF, 0xFE], true), (b"plain".to_vec(), false)] {
        raw.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<RawStatsParams, api::Stats>::default();
        let params = RawStatsParams { key, crawl: b"c".to_vec() };
        let answer = raw.unary(tonic::Request::new(params), path(), codec).await;
        assert_eq!(answer.err().map(|status| status.code()), refused.then_some(Code::Internal));
    }
    // In a stream: what came before is acknowledged, the stream ends, and the connection goes on.
    for path in ["PutURLs", "PutDiscovered"] {
        raw.ready().await.unwrap();
        let (sound, broken) = (b"http://h.example/".to_vec(), vec![b'h', 0xC3, 0x28]);
        let item = |url| match path {
            "PutURLs" => {
                RawItem { found: Some(RawFound { info: Some(RawInfo { url }) }), batch: Vec::new(), id: b"i".to_vec() }
            }
            _ => RawItem { found: None, batch: vec![RawInfo { url }], id: Vec::new() },
        };
        let path = format!("/urlfrontier.URLFrontier/{path}").parse().unwrap();
        let codec = tonic_prost::ProstCodec::<RawItem, RawAck>::default();
        let items = tokio_stream::iter([item(sound), item(broken)]);
        let mut acks = raw.streaming(tonic::Request::new(items), path, codec).await.unwrap().into_inner();
        assert!(acks.message().await.unwrap().is_some());
        assert_eq!(acks.message().await.unwrap_err().code(), Code::Internal);
    }
    put_all(&mut client, vec![found(info("c", "k", "u"))]).await;
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_streams_are_bounded_and_others_are_served_when_they_are_gone() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start_with(work.path(), "node", "streams_max = 100\n");
    let address = format!("http://{address}");
    let mut client = connect(&address).await;
    wait_until_ready(&mut client).await;
    // Twelve connections, 2,000 streams: each is open and says nothing.
    let (mut open, mut refused) = (Vec::new(), 0);
    for _ in 0..12 {
        let mut client = connect(&address).await;
        for _ in 0..167 {
            let (send, sent) = tokio::sync::mpsc::channel::<api::UrlItem>(1);
            let call = client.put_ur_ls(tokio_stream::wrappers::ReceiverStream::new(sent));
            match tokio::time::timeout(Duration::from_secs(20), call).await {
                Ok(Ok(acks)) => open.push((send, acks)),
                Ok(Err(status)) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                    refused += 1;
                }
                Err(_) => panic!("a stream beyond the bound is neither opened nor refused"),
            }
        }
    }
    assert_eq!((open.len(), refused), (100, 12 * 167 - 100));
    let status = client.put_ur_ls(tokio_stream::iter(vec![found(info("c", "k", "u"))])).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    drop(open);
    let until = Instant::now() + PATIENCE;
    while client.put_ur_ls(tokio_stream::iter(vec![found(info("c", "k", "u"))])).await.is_err() {
        assert!(Instant::now() < until, "the streams are gone and nobody is served");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(running.kill());
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_clients_did() {
    let work = tempfile::tempdir().unwrap();
    let (running, address) = start_with(work.path(), "node", "");
    let door = running
        .stderr()
        .lines()
        .find_map(|line| {
            line.strip_prefix("metrics: http://").and_then(|line| line.strip_suffix("/metrics")).map(str::to_owned)
        })
        .expect("the door was asked for");
    // All names that dashboards of the reference service know are there before anybody has called.
    let (_, text) = get(&door, "/metrics");
    let names: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, _)| name)
        .collect();
    for name in [
        "frontier_getURLs_calls_total",
        "frontier_getURLs_total",
        "frontier_getURLs_latency_seconds_sum",
        "frontier_getURLs_latency_seconds_count",
        "frontier_putURLs_calls_total",
        "frontier_putDiscovered_calls_total",
        "frontier_putURLs_total",
        "frontier_putURLs_discovered_total{discovered=\"true\"}",
        "frontier_putURLs_discovered_total{discovered=\"false\"}",
        "frontier_putURLs_ignored_total",
        "frontier_putURLs_completed_total",
        "frontier_putURLs_forward_notready_total",
    ] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    let mut client = connect(&format!("http://{address}")).await;
    wait_until_ready(&mut client).await;
    put_all(&mut client, (0..10).map(|n| found(info("c", &format!("q{}", n % 2), &format!("u{n}")))).collect()).await;
    assert_eq!(put(&mut client, vec![found(info("c", "q0", "u0"))]).await[0].1, Ack::Skipped);
    put_all(&mut client, vec![known(info("c", "q0", "u0"), 0)]).await;
    assert_eq!(take(&mut client, wanted("c", "", 2, 3, 600)).await.len(), 6);
    let expected = [
        ("frontier_getURLs_calls_total", 1.0),
        ("frontier_getURLs_total", 6.0),
        ("frontier_getURLs_latency_seconds_count", 1.0),
        ("frontier_putURLs_calls_total", 3.0),
        ("frontier_putURLs_total", 12.0),
        ("frontier_putURLs_discovered_total{discovered=\"true\"}", 11.0),
        ("frontier_putURLs_discovered_total{discovered=\"false\"}", 1.0),
        ("frontier_putDiscovered_calls_total", 0.0),
        ("frontier_putURLs_forward_notready_total", 0.0),
        ("frontier_putURLs_ignored_total", 1.0),
        ("frontier_putURLs_completed_total", 1.0),
    ];
    let gauges = [
        ("frontier_queues{crawl=\"c\"}", 2.0),
        ("frontier_active_queues{crawl=\"c\"}", 2.0),
        ("frontier_scheduled_urls{crawl=\"c\"}", 9.0),
        ("frontier_completed_urls{crawl=\"c\"}", 1.0),
        ("frontier_leased_urls{crawl=\"c\"}", 6.0),
    ];
    let (mut told, mut last) = (HashMap::new(), String::new());
    let read = |told: &mut HashMap<String, f64>, last: &mut String| {
        *last = get(&door, "/metrics").1;
        let lines = last.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.rsplit_once(' '));
        *told = pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect();
    };
    read(&mut told, &mut last);
    for (name, value) in expected {
        assert_eq!(told.get(name), Some(&value), "{name}\n{last}");
    }
    // Gauges are looked after from time to time.
    tokio::task::block_in_place(|| {
        wait_until("the gauges follow", || {
            read(&mut told, &mut last);
            gauges.iter().all(|(name, value)| told.get(*name) == Some(value))
        });
    });
    assert!(running.kill());
}
