use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::world::web::WebPlan;

/// Sends one request on a fresh connection and returns everything that comes back.
async fn ask(server: &Server, host: u32, path: &str, extra: &str) -> Vec<u8> {
    let web = server.web();
    let mut stream = TcpStream::connect((web.address(host), server.port())).await.unwrap();
    let host = web.host_name(host);
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}:80\r\n{extra}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await; // a reset is an answer too
    answer
}

/// Status and body of a proper answer.
fn split(answer: &[u8]) -> (u16, &[u8]) {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("headers end");
    let status = std::str::from_utf8(&answer[9..12]).unwrap().parse().unwrap();
    (status, &answer[end + 4..])
}

#[tokio::test]
async fn sockets_answer_what_respond_says() {
    let server = Server::start(Web::new(WebPlan::default())).unwrap();
    let web = server.web().clone();
    for (host, page) in [(0, 0), (3, 7), (7, 19)] {
        let path = web.page_path(host, page);
        let expected = web.respond(&Request::get(&web.host_name(host), &path), Visit::default());
        assert_eq!(split(&ask(&server, host, &path, "").await), (200, &expected.body[..]));
    }
    assert_eq!(split(&ask(&server, 0, "/nowhere", "").await).0, 404);
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
    assert_eq!(log.len(), 20);
    assert_eq!(server.requests(&server.web().host_name(0)), 3);
    for (page, access) in (0u32..).zip(&log) {
        assert_eq!(*access.host, *server.web().host_name(page % 8));
        assert_eq!(access.path, server.web().page_path(page % 8, page));
        assert_eq!((&*access.user_agent, access.status, access.aborted), ("test/1", 200, false));
        assert!(access.finished_us.unwrap() >= access.at_us);
    }
    // One after the other, so each ends before the next arrives.
    assert!(log.windows(2).all(|pair| pair[0].finished_us.unwrap() <= pair[1].at_us));
}
