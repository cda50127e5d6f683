use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::world::web::{Oddity, WebPlan};

async fn connect(server: &Server, host: u32, path: &str, extra: &str) -> TcpStream {
    let web = server.web();
    let mut stream = TcpStream::connect((web.address(host), server.port())).await.unwrap();
    let host = web.host_name(host);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}:80\r\n{extra}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Sends one request on a fresh connection and returns everything that comes back.
async fn ask(server: &Server, host: u32, path: &str, extra: &str) -> Vec<u8> {
    let mut answer = Vec::new();
    let _ = connect(server, host, path, extra).await.read_to_end(&mut answer).await; // a reset is an answer too
    answer
}

/// Status, headers in lower case, and body.
fn split(answer: &[u8]) -> (u16, String, &[u8]) {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("headers end");
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    (head[9..12].parse().unwrap(), head, &answer[end + 4..])
}

fn quick() -> WebPlan {
    WebPlan { slow_ms: 10, huge_bytes: 1 << 20, ..WebPlan::small(3) }
}

/// Waits until `done` holds; what it waits for happens in other tasks, soon but not at once.
async fn until(done: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("waited for a minute in vain");
}

#[tokio::test]
async fn sockets_answer_what_respond_says() {
    for plan in [quick(), quick().with_names()] {
        let server = Server::start(Web::new(plan)).unwrap();
        let web = server.web().clone();
        let mut compared = 0;
        for url in web.expected().must.keys() {
            let rest = &url["http://".len()..];
            let (authority, path) = rest.split_at(rest.find('/').unwrap());
            let name = authority.split(':').next().unwrap();
            let host = web.host_number(name).unwrap();
            let expected = web.respond(&Request::get(name, path), Visit::default());
            if web.is_down(host) || expected.delivery != Delivery::Whole || path.starts_with("/flapping/") {
                continue;
            }
            let answer = ask(&server, host, path, "").await;
            let (status, head, body) = split(&answer);
            assert_eq!((status, body), (expected.status, &expected.body[..]), "{url}");
            for (name, value) in &expected.headers {
                assert!(head.contains(&format!("\r\n{name}: {value}").to_lowercase()), "{url} lacks {name}");
            }
            compared += 1;
        }
        assert!(compared > 300);
    }
}

#[tokio::test]
async fn log_is_in_order_of_arrival_and_its_times_never_run_backwards() {
    let mut server = Server::start(Web::new(WebPlan::default())).unwrap();
    for page in 0..20 {
        let path = server.web().page_path(page % 8, page);
        ask(&server, page % 8, &path, "User-Agent: test/1\r\n").await;
    }
    server.stop();
    let log = server.access_log();
    assert_eq!((log.len(), server.requests_total()), (20, 20));
    assert_eq!(server.requests(&server.web().host_name(0)), 3);
    for (page, access) in (0u32..).zip(&log) {
        assert_eq!(*access.host, *server.web().host_name(page % 8));
        assert_eq!(access.path, server.web().page_path(page % 8, page));
        assert_eq!(server.url(access), server.web().url(page % 8, &access.path));
        assert_eq!((&*access.user_agent, access.status, access.aborted), ("test/1", 200, false));
        assert!(access.finished_us.unwrap() >= access.at_us);
    }
    // One after the other, so each ends before the next arrives.
    assert!(log.windows(2).all(|pair| pair[0].finished_us.unwrap() <= pair[1].at_us));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_stays_in_order_when_many_ask_at_once() {
    let server = Arc::new(Server::start(Web::new(WebPlan::default())).unwrap());
    let mut clients = JoinSet::new();
    for client in 0..8 {
        let server = server.clone();
        clients.spawn(async move {
            for page in 0..20 {
                ask(&server, client, &server.web().page_path(client, page), "").await;
            }
        });
    }
    clients.join_all().await;
    let log = server.access_log();
    assert_eq!(log.len(), 160);
    assert!(log.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
    assert!(log.iter().all(|access| access.finished_us.is_some_and(|finished| finished >= access.at_us)));
}

#[tokio::test]
async fn log_file_holds_what_the_log_holds() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let options = ServerOptions { log_file: Some(file.path().to_owned()), ..ServerOptions::default() };
    let mut server = Server::start_with(Web::new(quick()), options).unwrap();
    for path in ["/robots.txt", "/", "/nowhere"] {
        ask(&server, 1, path, "If-None-Match: \"x\"\r\nUser-Agent: a \"quoted\" name\r\n").await;
    }
    until(|| read_log(file.path()).unwrap() == server.access_log()).await; // while it still runs
    let silent = connect(&server, server.web().odd_host(Oddity::Slow).unwrap(), "/slow/silent", "").await;
    until(|| read_log(file.path()).unwrap().len() == 4).await;
    assert_eq!(read_log(file.path()).unwrap()[3].finished_us, None);
    drop(silent);
    until(|| server.access_log()[3].finished_us.is_some()).await;
    server.stop();
    let log = read_log(file.path()).unwrap();
    assert_eq!(log, server.access_log());
    assert!(log[0].conditional && log[3].aborted && !log[3].conditional);
}

#[tokio::test]
async fn conditions_are_answered_with_304_over_sockets() {
    let server = Server::start(Web::new(quick())).unwrap();
    let host = server.web().odd_host(Oddity::Freshness).unwrap();
    let answer = ask(&server, host, "/fresh/changing", "").await;
    let head = split(&answer).1;
    let tag = head.split("etag: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
    let condition = format!("If-None-Match: {tag}\r\n");
    let again = ask(&server, host, "/fresh/changing", &condition).await;
    assert_eq!((split(&again).0, split(&again).2.len()), (304, 0));
    server.set_epoch(1);
    assert_eq!(split(&ask(&server, host, "/fresh/changing", &condition).await).0, 200);
    assert_eq!(server.access_log().iter().map(|access| access.conditional).collect::<Vec<_>>(), [false, true, true]);
}

#[tokio::test]
async fn what_flaps_is_counted_by_the_server() {
    let server = Server::start(Web::new(quick())).unwrap();
    let host = server.web().odd_host(Oddity::Flapping).unwrap();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let answer = ask(&server, host, "/flapping/429-date", "").await;
        let (status, head, _) = split(&answer);
        assert_eq!(status == 429, head.contains("\r\nretry-after: "));
        statuses.push(status);
    }
    assert_eq!(statuses, [429, 429, 200, 200]);
}

#[tokio::test]
async fn improper_answers_are_as_improper_as_planned() {
    let server = Server::start(Web::new(quick())).unwrap();
    let web = server.web().clone();
    let odd = |oddity| web.odd_host(oddity).unwrap();
    let length_of = |head: &str| -> usize {
        head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap()
    };

    let answer = ask(&server, odd(Oddity::Bodies), "/bodies/truncated", "").await;
    let (_, head, body) = split(&answer);
    assert_eq!(length_of(&head), body.len() + 10_000);
    let answer = ask(&server, odd(Oddity::Bodies), "/bodies/overlong", "").await;
    let (_, head, body) = split(&answer);
    assert!(length_of(&head) < body.len());
    let answer = ask(&server, odd(Oddity::Bodies), "/bodies/huge", "").await;
    let (_, head, body) = split(&answer);
    assert!(length_of(&head) == body.len() && body.len() >= 1 << 20);
    assert_eq!(ask(&server, odd(Oddity::Bodies), "/bodies/reset", "").await, b"");
    let answer = ask(&server, odd(Oddity::Bodies), "/bodies/reset-midway", "").await;
    assert_eq!(length_of(&split(&answer).1), split(&answer).2.len() * 2);

    let answer = ask(&server, odd(Oddity::Slow), "/slow/drip", "").await;
    let whole = web.respond(&Request::get(&web.host_name(odd(Oddity::Slow)), "/slow/drip"), Visit::default());
    assert_eq!(split(&answer).2, &whole.body[..]);

    let answer = ask(&server, odd(Oddity::Headers), "/headers/many", "").await;
    assert!(split(&answer).1.contains("x-number-4999: "));
    assert!(split(&ask(&server, odd(Oddity::Headers), "/headers/long", "").await).1.len() > 1 << 20);
    assert!(ask(&server, odd(Oddity::Headers), "/headers/http-0.9", "").await.starts_with(b"<!doctype html>"));
    assert_eq!(ask(&server, odd(Oddity::Headers), "/headers/nothing", "").await, b"");

    let log = server.access_log();
    until(|| server.access_log().iter().all(|access| access.finished_us.is_some())).await;
    assert!(server.access_log().iter().all(|access| !access.aborted), "{log:?}");
}

#[tokio::test]
async fn answers_without_end_end_when_the_client_leaves() {
    let server = Server::start(Web::new(quick())).unwrap();
    let web = server.web().clone();
    let mut stream = connect(&server, web.odd_host(Oddity::Bodies).unwrap(), "/bodies/endless", "").await;
    let mut much = vec![0; 1 << 20];
    stream.read_exact(&mut much).await.unwrap();
    drop(stream);
    for path in ["/slow/silent", "/slow/silent-body"] {
        drop(connect(&server, web.odd_host(Oddity::Slow).unwrap(), path, "").await);
    }
    until(|| server.requests_total() == 3 && server.access_log().iter().all(|it| it.finished_us.is_some())).await;
    assert!(server.access_log().iter().all(|access| access.aborted));
}

#[tokio::test]
async fn hosts_go_down_and_come_back() {
    let server = Server::start(Web::new(quick())).unwrap();
    let web = server.web().clone();
    let port = server.port();
    let refused = async |host| TcpStream::connect((web.address(host), port)).await.is_err();
    assert!(refused(web.odd_host(Oddity::Down).unwrap()).await);
    assert!(!refused(2).await);
    server.set_down(&web.host_name(2), true).unwrap();
    while !refused(2).await {
        tokio::task::yield_now().await;
    }
    server.set_down(&web.host_name(2), false).unwrap();
    assert_eq!(split(&ask(&server, 2, "/", "").await).0, 200);
    assert!(server.set_down("nobody.test", true).is_err());
}

#[tokio::test]
async fn wrong_hosts_and_methods_are_told_so() {
    let server = Server::start(Web::new(quick().with_names())).unwrap();
    let address = (server.web().address(0), server.port());
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: elsewhere.test\r\nConnection: close\r\n\r\n", 421),
        ("GET / HTTP/1.0\r\n\r\n", 421),
        ("POST / HTTP/1.1\r\nHost: WWW.Amber0.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 405),
        ("HEAD / HTTP/1.1\r\nHost: WWW.Amber0.test\r\nConnection: close\r\n\r\n", 200),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(split(&answer).0, status);
        assert_eq!(split(&answer).2.is_empty(), request.starts_with("HEAD"));
    }
}

#[test]
fn it_runs_without_a_runtime_and_listens_on_loopback_only() {
    let mut server = Server::start(Web::new(WebPlan::bench(1, 300, 2))).unwrap();
    assert!(server.hosts_table().iter().all(|(_, address)| address.is_loopback()));
    assert_eq!(server.seeds().len(), 300);
    let address = (server.web().address(299), server.port());
    assert!(std::net::TcpStream::connect(address).is_ok());
    assert!(std::net::TcpStream::connect(("127.0.0.1", server.port())).is_err());
    server.stop();
}
