//! `orbweaver frontier` against a node, as a person uses it: files in and out, JSON, exit codes, and a door that wants a token.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tests::program::{Ended, Running, run};
use tests::wait_until;

fn start(work: &Path, arguments: &[&str], name: &str) -> (Running, String) {
    let running = Running::start([&["node"], arguments, &["--frontier", "127.0.0.1:0"]].concat(), work, name);
    let address = || running.said("frontier: ");
    wait_until("the door is open", || address().is_some());
    let server = format!("http://{}", address().unwrap());
    (running, server)
}

fn frontier(server: &str, arguments: &[&str]) -> Ended {
    run(&[&["frontier", "--server", server], arguments].concat())
}

fn good(server: &str, arguments: &[&str]) -> String {
    let ended = frontier(server, arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended}");
    ended.stdout
}

fn json(server: &str, arguments: &[&str]) -> Value {
    serde_json::from_str(&good(server, &[&["--json"], arguments].concat())).expect("--json prints JSON")
}

#[test]
fn files_go_in_and_out_and_every_command_says_what_it_did() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    let (running, server) = start(work.path(), &["--data", &path("data")], "node");
    // Plain lines and JSON, packed; a line that is nothing is named and the rest is taken.
    let mut file = GzEncoder::new(std::fs::File::create(path("in.txt.gz")).unwrap(), Compression::default());
    for number in 0..30 {
        writeln!(file, "http://h{}.example/{number}", number % 3).unwrap();
    }
    writeln!(file, r#"{{"known":{{"info":{{"url":"http://k.example/","crawlID":"news","metadata":{{"a":{{"values":["1"]}}}}}},"refetchableFromDate":"1999999999"}}}}"#).unwrap();
    writeln!(file, "{{nonsense").unwrap();
    file.finish().unwrap();
    let put = frontier(&server, &["put", "--file", &path("in.txt.gz"), "--crawl", "news"]);
    assert_eq!(put.code, Some(1), "{put}");
    assert!(put.stdout.contains("31 kept") && put.stderr.contains("line 32"), "{put}");
    std::fs::write(path("more.txt"), "http://h0.example/0\nhttp://h9.example/new\n").unwrap();
    assert!(
        good(&server, &["put", "--file", &path("more.txt"), "--crawl", "news", "--batch", "256"])
            .contains("1 kept, 1 skipped")
    );
    let stats = json(&server, &["stats", "--crawl", "news"]);
    assert_eq!((&stats["size"], &stats["numberOfQueues"]), (&Value::from(32), &Value::from(5)));
    // Out, forgotten, and in again: the same.
    assert!(good(&server, &["dump", "--file", &path("out.jsonl.gz")]).contains("32 URLs"));
    assert!(good(&server, &["delete-crawl", "news"]).contains("32 URLs"));
    assert_eq!(good(&server, &["crawls"]), "");
    assert!(good(&server, &["restore", "--file", &path("out.jsonl.gz")]).contains("32 kept"));
    let item = json(&server, &["status", "http://k.example/", "--crawl", "news"]);
    assert_eq!(item["known"]["refetchableFromDate"], "1999999999");
    assert_eq!(item["known"]["info"]["metadata"]["a"]["values"][0], "1");
    // By batches and on many streams too: what is known is not lost.
    let dumped = || -> std::collections::BTreeSet<String> {
        let dumped = good(&server, &["dump", "--streams", "3"]);
        dumped.lines().map(str::to_owned).collect()
    };
    let before = dumped();
    assert_eq!(before.len(), 32);
    for put in [&["--batch", "7"] as &[&str], &["--streams", "4", "--window", "3"], &["--batch", "2", "--streams", "3"]]
    {
        assert!(good(&server, &["delete-crawl", "news"]).contains("32 URLs"));
        let said = good(&server, &[&["restore", "--file", &path("out.jsonl.gz")], put].concat());
        assert!(said.contains("32 kept, 0 skipped, 0 failed"), "{put:?}: {said}");
        let item = json(&server, &["status", "http://k.example/", "--crawl", "news"]);
        assert_eq!(item["known"]["refetchableFromDate"], "1999999999", "{put:?}");
        assert_eq!(dates_and_urls(&dumped()), dates_and_urls(&before), "{put:?}");
    }
    // Found and known in one file: some go by batches, some do not, and all are counted.
    std::fs::write(
        path("mixed.txt"),
        format!("http://h0.example/0\n{}\nhttp://m.example/\n", known_line("http://k.example/")),
    )
    .unwrap();
    let said = good(&server, &["put", "--file", &path("mixed.txt"), "--crawl", "news", "--batch", "256"]);
    assert!(said.contains("2 kept, 1 skipped"), "{said}");
    assert!(
        good(&server, &["status", "http://k.example/", "--crawl", "news", "--dates"])
            .starts_with("2033-05-18 03:33:20  ")
    );
    good(&server, &["purge", "--crawl", "news", "--key", "m.example", "--days", "0"]);
    // Pages and lists into files.
    assert!(
        good(&server, &["queues", "--crawl", "news", "--file", &path("queues.txt"), "--inactive"]).contains("6 queues")
    );
    assert_eq!(std::fs::read_to_string(path("queues.txt")).unwrap().lines().count(), 6);
    good(&server, &["list", "--crawl", "news", "--key", "k.example", "--file", &path("list.txt"), "--dates"]);
    assert_eq!(std::fs::read_to_string(path("list.txt")).unwrap(), "2033-05-18 03:33:20  http://k.example/\n");
    frontier(&server, &["list", "--file", "/nowhere/list.txt"]).complains(1, &["cannot write", "/nowhere/list.txt"]);
    good(&server, &["delete-queue", "m.example", "--crawl", "news"]);
    // The rest.
    good(&server, &["delay", "--seconds", "0"]);
    good(&server, &["block", "h0.example", "--crawl", "news", "--until", "1999999999"]);
    good(&server, &["limit", "h1.example", "--crawl", "news", "--urls", "7"]);
    assert_eq!(good(&server, &["get", "--crawl", "news", "--queues", "0", "--urls", "2"]).lines().count(), 5);
    assert_eq!(good(&server, &["queues", "--crawl", "news"]).lines().count(), 4);
    assert_eq!(good(&server, &["list", "--crawl", "news", "--filter", "H2.", "--ignore-case"]).lines().count(), 10);
    assert!(good(&server, &["count", "--crawl", "news", "--filter", "h2."]).contains("10 URLs"));
    // Pages, and what the server itself acts for, which is everything here.
    let listed =
        |arguments: &[&str]| good(&server, &[&["list", "--crawl", "news"], arguments].concat()).lines().count();
    let all = listed(&["--size", "1000"]);
    assert_eq!((listed(&["--size", "7"]), listed(&["--start", &(all - 3).to_string(), "--size", "7"])), (7, 3));
    assert_eq!(listed(&["--size", "1000", "--local"]), all);
    assert_eq!(good(&server, &["queues", "--crawl", "news", "--start", "1", "--size", "2"]).lines().count(), 2);
    for command in ["stats", "count"] {
        let [here, everywhere] = [&[command, "--crawl", "news", "--local"][..], &[command, "--crawl", "news"]];
        assert_eq!(good(&server, here), good(&server, everywhere));
    }
    good(&server, &["limit", "h1.example", "--crawl", "news", "--urls", "7", "--local"]);
    good(&server, &["block", "h0.example", "--crawl", "news", "--until", "1999999999", "--local"]);
    // One crawl of two.
    good(&server, &["put", "--file", &path("more.txt"), "--crawl", "other"]);
    good(&server, &["dump", "--crawl", "news", "--file", &path("news.jsonl")]);
    let dumped = std::fs::read_to_string(path("news.jsonl")).unwrap();
    assert_eq!((dumped.lines().count(), dumped.matches("\"crawlID\":\"news\"").count()), (all, all));
    good(&server, &["active", "false"]);
    assert!(good(&server, &["active"]).contains("paused"));
    good(&server, &["active", "true"]);
    assert!(good(&server, &["delete-queue", "h2.example", "--crawl", "news"]).contains("10 URLs"));
    assert!(good(&server, &["purge", "--crawl", "news", "--days", "0"]).contains("22 URLs"));
    assert_eq!(good(&server, &["nodes"]).lines().count(), 1);
    good(&server, &["log-level", "node", "warn"]);
    // What cannot be is said.
    frontier(&server, &["status", "http://nowhere.example/"]).complains(1, &["NotFound"]);
    frontier(&server, &["limit", "nobody", "--urls", "1"]).complains(1, &["no queue"]);
    frontier(&server, &["put", "--file", &path("missing")]).complains(2, &["cannot read"]);
    frontier("http://127.0.0.1:1", &["stats"]).complains(1, &["cannot reach"]);
    assert!(running.kill());
}

fn known_line(url: &str) -> String {
    let info = format!(r#"{{"url":"{url}","crawlID":"news"}}"#);
    format!(r#"{{"known":{{"info":{info},"refetchableFromDate":"2000000000"}}}}"#)
}

/// What is kept of each URL but the time of its creation.
fn dates_and_urls(lines: &std::collections::BTreeSet<String>) -> Vec<Value> {
    let items = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["known"].clone());
    let mut items: Vec<Value> = items.collect();
    items.sort_by_key(|item| item["info"]["url"].to_string());
    items
}

#[test]
fn what_a_server_does_not_acknowledge_is_a_failure() {
    let work = tempfile::tempdir().unwrap();
    let file = work.path().join("urls.txt");
    let urls: Vec<String> = (0..50_000).map(|n| format!("http://h{}.example/{n}", n % 100)).collect();
    std::fs::write(&file, urls.join("\n")).unwrap();
    // It knows no batches, acknowledges ten URLs of each stream, and ends the stream as if that were all.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(forgetful_server());
    let put = ["put", "--file", file.to_str().unwrap(), "--batch", "100", "--streams", "2"];
    let ended = frontier(&server, &put);
    assert_eq!(ended.code, Some(1), "{ended}");
    assert!(ended.stderr.contains("takes no batches"), "{ended}");
    assert!(ended.stdout.contains("20 kept") && ended.stdout.contains("not acknowledged"), "{ended}");
}

/// A server of this API that answers PutURLs alone, and that badly.
async fn forgetful_server() -> String {
    use node::doors::frontier::api::{AckMessage, UrlItem};
    use tokio_stream::StreamExt;
    use tonic::codegen::{Service, http};

    #[derive(Clone)]
    struct Forgetful;

    impl tonic::server::NamedService for Forgetful {
        const NAME: &'static str = "urlfrontier.URLFrontier";
    }

    struct PutUrls;

    impl tonic::server::StreamingService<UrlItem> for PutUrls {
        type Response = AckMessage;
        type ResponseStream =
            std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<AckMessage, tonic::Status>> + Send>>;
        type Future = std::future::Ready<Result<tonic::Response<Self::ResponseStream>, tonic::Status>>;

        fn call(&mut self, request: tonic::Request<tonic::Streaming<UrlItem>>) -> Self::Future {
            let acks = request.into_inner().take(10).map(|item| item.map(|_| AckMessage::default()));
            std::future::ready(Ok(tonic::Response::new(Box::pin(acks))))
        }
    }

    impl Service<http::Request<tonic::body::Body>> for Forgetful {
        type Response = http::Response<tonic::body::Body>;
        type Error = std::convert::Infallible;
        type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
            Box::pin(async move {
                if request.uri().path() != "/urlfrontier.URLFrontier/PutURLs" {
                    return Ok(tonic::Status::unimplemented("not here").into_http());
                }
                let codec = tonic_prost::ProstCodec::default();
                Ok(tonic::server::Grpc::new(codec).streaming(PutUrls, request).await)
            })
        }
    }

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(Forgetful).serve_with_incoming(incoming));
    format!("http://{address}")
}

#[test]
fn a_client_shows_the_certificate_that_a_server_wants() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    for name in ["server", "client"] {
        let (certificate, key) = (path(&format!("{name}.crt")), path(&format!("{name}.key")));
        let made = run(&["cert", "--certificate", &certificate, "--key", &key]);
        assert_eq!(made.code, Some(0), "{made}");
    }
    let config = format!(
        "[storage]\ndata = {:?}\n[url_frontier]\ntls_certificate = \"server.crt\"\ntls_key = \"server.key\"\nclient_authority = \"client.crt\"\n",
        path("data")
    );
    std::fs::write(path("node.toml"), config).unwrap();
    let (running, server) = start(work.path(), &["--config", &path("node.toml")], "node");
    let server = server.replace("http://127.0.0.1", "https://localhost");
    let (authority, certificate, key) = (path("server.crt"), path("client.crt"), path("client.key"));
    let trusting = ["--authority", authority.as_str()];
    let known = [&trusting[..], &["--certificate", &certificate, "--key-file", &key]].concat();
    good(&server, &[&known[..], &["stats"]].concat());
    assert_eq!(frontier(&server, &[&trusting[..], &["stats"]].concat()).code, Some(1), "without one it is not served");
    let half = [&trusting[..], &["--certificate", &certificate, "stats"]].concat();
    frontier(&server, &half).complains(2, &["--certificate and --key-file belong together"]);
    let plain = [&known[..], &["stats"]].concat();
    frontier(&server.replace("https", "http"), &plain).complains(2, &["https://"]);
    assert!(running.kill());
}

#[test]
fn a_door_that_wants_a_token_opens_to_nobody_else() {
    let work = tempfile::tempdir().unwrap();
    let path = |name: &str| work.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("token"), "open sesame\n").unwrap();
    std::fs::write(path("wrong"), "open barley\n").unwrap();
    let config = format!(
        "[filter]\nscope = \"any\"\n[storage]\ndata = {:?}\n[url_frontier]\ntoken_file = \"token\"\n",
        path("data")
    );
    std::fs::write(path("node.toml"), config).unwrap();
    let (running, server) = start(work.path(), &["--config", &path("node.toml")], "node");
    frontier(&server, &["stats"]).complains(1, &["Unauthenticated", "token"]);
    frontier(&server, &["--token-file", &path("wrong"), "stats"]).complains(1, &["Unauthenticated"]);
    good(&server, &["--token-file", &path("token"), "stats"]);
    assert!(running.kill());
    // Nor does one open that others can reach, unless it is guarded or says that it is not.
    let reachable = run(&["node", "--data", &path("other"), "--frontier", "0.0.0.0:0"]);
    reachable.complains(2, &["url_frontier.listen", "unprotected"]);
}
