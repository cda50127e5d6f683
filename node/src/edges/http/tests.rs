use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proto::crawl::retry::Failure;
use proto::url::UrlRules;

use self::server::{Inside, SECURE_TEST_PEM, Server, Then, serve, serve_tls};
use super::*;

mod server;

fn options() -> FetchOptions {
    FetchOptions {
        user_agent: "weaver-test/1.0 (+https://example.org/bot)".to_owned(),
        allow_addresses: vec!["127.0.0.0/8".parse().unwrap()],
        ..FetchOptions::default()
    }
}

fn client() -> HttpClient {
    HttpClient::new(&options()).unwrap()
}

fn limited(change: impl FnOnce(&mut FetchLimits)) -> HttpClient {
    let mut options = options();
    change(&mut options.limits);
    HttpClient::new(&options).unwrap()
}

fn order(url: &str) -> FetchOrder {
    FetchOrder::new(CanonicalUrl::parse(url, &UrlRules::default()).unwrap())
}

async fn get(client: &HttpClient, server: &Server) -> Result<Fetched, FetchError> {
    client.fetch(&order(&server.url("/"))).await
}

async fn failure(client: &HttpClient, url: &str) -> Failure {
    let error = client.fetch(&order(url)).await.expect_err("the fetch must fail");
    error.failure()
}

/// The failure that `answer` leads to with default limits.
async fn failure_of(answer: &[u8], then: Then) -> Failure {
    failure(&client(), &serve(answer, then).await.url("/")).await
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn pages(count: usize) -> Vec<u8> {
    b"<p>a page that compresses well</p>\n".repeat(count)
}

// What is sent.

#[tokio::test]
async fn the_recorded_request_is_what_the_server_received() {
    let mut options = options();
    options.headers = vec![
        ("Accept-Language".to_owned(), "de, en;q=0.5".to_owned()),
        ("X-Crawl".to_owned(), "a b".to_owned()),
        ("From".to_owned(), "bot@example.org".to_owned()),
    ];
    let client = HttpClient::new(&options).unwrap();
    let server = serve(answer("200 OK", "", b""), Then::Listen).await;
    let mut order = order(&server.url("/a%20b/?q=1&r=%C3%A4"));
    order.if_none_match = Some("W/\"v1\"".to_owned());
    order.if_modified_since = Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned());
    let fetched = client.fetch(&order).await.unwrap();
    assert_eq!(fetched.request_head.escape_ascii().to_string(), server.head().escape_ascii().to_string());
    let text = String::from_utf8(server.head()).unwrap();
    assert!(text.starts_with("GET /a%20b/?q=1&r=%C3%A4 HTTP/1.1\r\n"), "{text}");
    for line in [
        "user-agent: weaver-test/1.0 (+https://example.org/bot)",
        "accept-encoding: gzip, br, zstd, deflate",
        "accept-language: de, en;q=0.5",
        "x-crawl: a b",
        "from: bot@example.org",
        "if-none-match: W/\"v1\"",
        "if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT",
        &format!("host: {}", server.address),
    ] {
        assert!(text.contains(&format!("\r\n{line}\r\n")), "{line} in {text}");
    }
}

#[tokio::test]
async fn a_static_name_is_fetched_and_named_in_the_host_header() {
    let mut options = options();
    options.hosts.insert("site.test".to_owned(), "127.0.0.1".parse().unwrap());
    let client = HttpClient::new(&options).unwrap();
    let server = serve(answer("200 OK", "", b"x"), Then::Listen).await;
    let port = server.address.port();
    let fetched = client.fetch(&order(&format!("http://site.test:{port}/"))).await.unwrap();
    assert_eq!(fetched.remote, Some(server.address));
    assert_eq!(fetched.request_head, server.head());
    assert!(String::from_utf8(server.head()).unwrap().contains(&format!("\r\nhost: site.test:{port}\r\n")));
}

#[tokio::test]
async fn a_validator_that_cannot_be_sent_is_left_out() {
    let server = serve(answer("200 OK", "", b""), Then::Listen).await;
    let mut order = order(&server.url("/"));
    order.if_none_match = Some("\"a\r\nx-injected: b\"".to_owned());
    let fetched = client().fetch(&order).await.unwrap();
    assert_eq!(fetched.request_head, server.head());
    assert!(!String::from_utf8(server.head()).unwrap().contains("inject"));
}

#[tokio::test]
async fn options_that_cannot_work_are_named_when_the_client_is_made() {
    let error = |change: &dyn Fn(&mut FetchOptions)| {
        let mut options = options();
        change(&mut options);
        HttpClient::new(&options).err().expect("the options are wrong").to_string()
    };
    let header = |name: &str, value: &str| {
        let pair = (name.to_owned(), value.to_owned());
        error(&|options| options.headers = vec![pair.clone()])
    };
    assert_eq!(header("bad name", "x"), "header \"bad name\": not a header name");
    assert_eq!(header("", "x"), "header \"\": not a header name");
    assert_eq!(header("x-ok", "a\r\nb: c"), "header \"x-ok\": the value has characters a header cannot have");
    for name in ["Host", "content-length", "Transfer-Encoding", "User-Agent", "Accept-Encoding", "Proxy-Authorization"]
    {
        assert_eq!(header(name, "x"), format!("header {name:?}: is set by the crawler itself"));
    }
    let twice = || ("x-a".to_owned(), "1".to_owned());
    assert_eq!(error(&|options| options.headers = vec![twice(), twice()]), "header \"x-a\": is given twice");
    assert!(error(&|options| options.user_agent = " ".to_owned()).contains("must not be empty"));
    assert!(error(&|options| options.user_agent = "a\nb".to_owned()).starts_with("header \"user-agent\""));
    let zero = error(&|options| options.limits.page_bytes_max = 0);
    assert_eq!(zero, "page_bytes_max must be from 1 to 1073741824");
    let endless = error(&|options| options.limits.fetch_timeout_ms = u64::MAX);
    assert_eq!(endless, "fetch_timeout_ms must be from 1 to 3600000");
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let authority = error(&|options| options.authorities_pem = vec![broken.to_owned()]);
    assert!(authority.starts_with("HTTP client: "), "{authority}");
}

#[test]
fn limits_are_read_with_defaults_and_without_unknown_names() {
    let limits: FetchLimits = serde_json::from_str(r#"{"page_bytes_max": 5}"#).unwrap();
    assert_eq!(limits, FetchLimits { page_bytes_max: 5, ..FetchLimits::default() });
    assert!(serde_json::from_str::<FetchLimits>(r#"{"page_byte_max": 5}"#).is_err());
}

// Where we connect.

#[tokio::test]
async fn addresses_that_are_not_public_are_refused_in_every_spelling() {
    let server = serve(answer("200 OK", "", b"secret"), Then::Listen).await;
    let port = server.address.port();
    let client = HttpClient::new(&FetchOptions::default()).unwrap();
    for host in
        ["127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "[::]"]
    {
        assert_eq!(failure(&client, &format!("http://{host}:{port}/")).await, Failure::AddressRefused, "{host}");
    }
    assert_eq!(failure(&client, "http://169.254.169.254/latest/meta-data/").await, Failure::AddressRefused);
    assert_eq!(server.accepts(), 0);
}

#[tokio::test]
async fn a_name_that_points_inside_is_refused_unless_its_network_is_allowed() {
    let server = serve(answer("200 OK", "", b"x"), Then::Listen).await;
    let url = format!("http://inside.test:{}/", server.address.port());
    let hosts = BTreeMap::from([("inside.test".to_owned(), "127.0.0.1".parse().unwrap())]);
    let strict = HttpClient::new(&FetchOptions { hosts: hosts.clone(), ..FetchOptions::default() }).unwrap();
    assert_eq!(failure(&strict, &url).await, Failure::AddressRefused);
    assert_eq!(server.accepts(), 0);
    let open = HttpClient::new(&FetchOptions { hosts, ..options() }).unwrap();
    assert_eq!(open.fetch(&order(&url)).await.unwrap().status, 200);
    assert_eq!(open.resolver().resolve("inside.test").await.unwrap(), ["127.0.0.1".parse::<IpAddr>().unwrap()]);
}

#[tokio::test]
async fn a_redirect_is_returned_and_not_followed() {
    let target = serve(answer("200 OK", "", b""), Then::Listen).await;
    let location = target.url("/b?caf\u{e9}");
    let server = serve(answer("302 Found", &format!("location: {location}\r\n"), b"moved"), Then::Listen).await;
    let fetched = get(&client(), &server).await.unwrap();
    assert_eq!((fetched.status, fetched.location().as_deref()), (302, Some(location.as_str())));
    assert_eq!(fetched.body, "moved");
    assert_eq!(target.accepts(), 0);
}

#[tokio::test]
async fn a_url_with_a_password_is_not_requested() {
    let server = serve(answer("200 OK", "", b""), Then::Listen).await;
    let error = client().request(&order(&format!("http://user:secret@{}/", server.address)));
    // The canonical form may have dropped it already; what matters is that it is never sent.
    let sent = error.map(|(_, head)| String::from_utf8(head).unwrap()).unwrap_or_default();
    assert!(!sent.contains("secret") && !sent.to_lowercase().contains("authorization"));
}

#[tokio::test]
async fn a_connection_is_used_again_after_whole_answers() {
    let server = serve(answer("200 OK", "content-encoding: gzip\r\n", &gzip(b"again")), Then::Listen).await;
    let client = client();
    for _ in 0..5 {
        assert_eq!(get(&client, &server).await.unwrap().body, "again");
    }
    assert_eq!((server.accepts(), server.heads().len()), (1, 5));
}

#[tokio::test]
async fn a_server_that_closes_between_requests_is_connected_to_again() {
    let server = serve(answer("200 OK", "connection: close\r\n", b"x"), Then::Close).await;
    let client = client();
    for _ in 0..3 {
        assert_eq!(get(&client, &server).await.unwrap().status, 200);
    }
    assert_eq!(server.accepts(), 3);
}

// What comes back.

#[tokio::test]
async fn an_answer_is_recorded_as_it_came() {
    let headers = "Content-Type: text/html; charset=utf-8\r\nETag: \"v1\"\r\nSet-Cookie: a=1\r\nX-Between: \u{e4}\r\n\
                   Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nset-cookie: b=2\r\n";
    let server = serve(answer("200 Fine", headers, b"<p>body</p>"), Then::Listen).await;
    let fetched = get(&client(), &server).await.unwrap();
    assert_eq!((fetched.status, fetched.version), (200, Version::HTTP_11));
    assert_eq!((fetched.form, fetched.truncated), (BodyForm::Plain, None));
    assert_eq!(fetched.body, "<p>body</p>");
    assert_eq!(fetched.body.as_ptr(), fetched.wire_body.as_ptr(), "one buffer, not two");
    assert_eq!(fetched.content_type(), Some("text/html; charset=utf-8"));
    assert_eq!(fetched.etag(), Some("\"v1\""));
    assert_eq!(fetched.last_modified(), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!(fetched.header_values("Set-Cookie").collect::<Vec<_>>(), [b"a=1", b"b=2"]);
    assert_eq!(fetched.location(), None);
    assert!(fetched.started_unix_ms > 1_700_000_000_000);
    let expected = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\netag: \"v1\"\r\nset-cookie: a=1\r\n\
                    set-cookie: b=2\r\nx-between: \u{e4}\r\nlast-modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                    content-length: 11\r\n\r\n";
    assert_eq!(fetched.response_head.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
    assert!(!format!("{fetched:?}").contains("<p>"), "a debug print has no bodies");
}

#[tokio::test]
async fn chunks_are_joined_and_the_record_does_not_speak_of_them() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nt: u\r\n\r\n";
    let server = serve(chunked, Then::Listen).await;
    let fetched = get(&client(), &server).await.unwrap();
    assert_eq!(fetched.wire_body, "hello world");
    assert_eq!(fetched.body.as_ptr(), fetched.wire_body.as_ptr());
    assert_eq!(fetched.response_head, b"HTTP/1.1 200 OK\r\nx-orig-transfer-encoding: chunked\r\n\r\n");
}

#[tokio::test]
async fn a_body_without_length_ends_with_the_connection() {
    let server = serve("HTTP/1.0 200 OK\r\n\r\nold but whole", Then::Close).await;
    let fetched = get(&client(), &server).await.unwrap();
    assert_eq!((fetched.version, &fetched.body[..]), (Version::HTTP_10, &b"old but whole"[..]));
}

#[tokio::test]
async fn encoded_bodies_are_kept_as_transferred_and_decoded() {
    let page = pages(3_000);
    let mut brotli = Vec::new();
    brotli::CompressorWriter::new(&mut brotli, 4096, 5, 22).write_all(&page).unwrap();
    let zstd = zstd::encode_all(&page[..], 3).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(&page).unwrap();
    let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), Compression::default());
    raw.write_all(&page).unwrap();
    let stacked = zstd::encode_all(&gzip(&page)[..], 3).unwrap();
    for (encoding, wire) in [
        ("gzip", gzip(&page)),
        ("X-GZIP", gzip(&page)),
        ("br", brotli),
        ("zstd", zstd),
        ("deflate", zlib.finish().unwrap()),
        ("deflate", raw.finish().unwrap()),
        ("gzip, zstd", stacked.clone()),
        ("gzip\r\ncontent-encoding: zstd", stacked),
    ] {
        let server = serve(answer("200 OK", &format!("content-encoding: {encoding}\r\n"), &wire), Then::Listen).await;
        let fetched = get(&client(), &server).await.unwrap();
        assert_eq!(fetched.wire_body, wire, "{encoding}");
        assert_eq!(fetched.body, page, "{encoding}");
        assert_eq!((fetched.form, fetched.truncated), (BodyForm::Decoded, None));
        let head = String::from_utf8(fetched.response_head).unwrap();
        assert!(head.contains("content-encoding: ") && head.contains(&format!("content-length: {}", wire.len())));
    }
}

#[tokio::test]
async fn an_encoding_we_do_not_know_is_kept_as_it_came() {
    let server = serve(answer("200 OK", "content-encoding: gzip, compress\r\n", b"\x1f\x9d..."), Then::Listen).await;
    let fetched = get(&client(), &server).await.unwrap();
    assert_eq!((fetched.form, &fetched.body[..]), (BodyForm::StillEncoded, &b"\x1f\x9d..."[..]));
}

#[tokio::test]
async fn a_gzip_stream_that_stops_early_is_kept_and_marked() {
    let page = pages(3_000);
    let wire = gzip(&page);
    let cut = &wire[..wire.len() / 2];
    let server = serve(answer("200 OK", "content-encoding: gzip\r\n", cut), Then::Listen).await;
    let fetched = get(&client(), &server).await.unwrap();
    assert_eq!((fetched.form, fetched.truncated), (BodyForm::Decoded, Some(Truncated::Encoding)));
    assert!(page.starts_with(&fetched.body) && !fetched.body.is_empty());
    assert_eq!(fetched.wire_body, cut);
}

#[tokio::test]
async fn what_is_not_encoded_as_announced_fails_unless_only_the_status_matters() {
    let headers = "content-encoding: gzip\r\n";
    assert_eq!(failure_of(&answer("200 OK", headers, b"<p>plain"), Then::Listen).await, Failure::DecodingFailed);
    let server = serve(answer("404 Not Found", headers, b"<p>plain"), Then::Listen).await;
    let fetched = get(&client(), &server).await.unwrap();
    assert_eq!((fetched.status, fetched.form, &fetched.body[..]), (404, BodyForm::StillEncoded, &b"<p>plain"[..]));
}

#[tokio::test]
async fn a_304_has_no_body_whatever_its_headers_say() {
    let head = "HTTP/1.1 304 Not Modified\r\netag: \"v1\"\r\ncontent-encoding: gzip\r\ncontent-length: 500\r\n\r\n";
    let server = serve(head, Then::Listen).await;
    let client = client();
    for _ in 0..2 {
        let fetched = get(&client, &server).await.unwrap();
        assert_eq!((fetched.status, fetched.body.len(), fetched.truncated), (304, 0, None));
        assert_eq!(fetched.etag(), Some("\"v1\""));
    }
    assert_eq!(server.accepts(), 1);
}

#[tokio::test]
async fn an_interim_answer_is_passed_over() {
    let early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
    let server = serve([&early[..], &answer("200 OK", "", b"x")].concat(), Then::Listen).await;
    assert_eq!(get(&client(), &server).await.unwrap().status, 200);
}

#[tokio::test]
async fn retry_after_is_read_in_both_forms() {
    for (value, expected) in [
        ("120", Some(RetryAfter::Seconds(120))),
        ("0", Some(RetryAfter::Seconds(0))),
        ("99999999999999999999999", Some(RetryAfter::Seconds(u64::MAX))),
        ("Sun, 06 Nov 1994 08:49:37 GMT", Some(RetryAfter::Date(784_111_777))),
        ("soon", None),
        ("-5", None),
        ("", None),
    ] {
        let headers = format!("retry-after: {value}\r\n");
        let server = serve(answer("503 Service Unavailable", &headers, b""), Then::Listen).await;
        let fetched = get(&client(), &server).await.unwrap();
        assert_eq!((fetched.status, fetched.retry_after()), (503, expected), "{value}");
    }
}

// Limits.

#[tokio::test]
async fn a_body_larger_than_announced_limits_is_refused_before_it_is_read() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10485761\r\n\r\n";
    assert_eq!(failure_of(head.as_bytes(), Then::Hang).await, Failure::BodyTooLarge);
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_passes() {
    let client = limited(|limits| limits.page_bytes_max = 1_000);
    let server = serve(answer("200 OK", "", &[b'x'; 1_000]), Then::Listen).await;
    assert_eq!(get(&client, &server).await.unwrap().body.len(), 1_000);
    let server = serve(answer("200 OK", "", &[b'x'; 1_001]), Then::Listen).await;
    assert_eq!(get(&client, &server).await.unwrap_err(), FetchError::BodyTooLarge { limit_bytes: 1_000 });
}

#[tokio::test]
async fn an_endless_body_is_left_at_the_limit() {
    let client = limited(|limits| limits.page_bytes_max = 100_000);
    for head in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"] {
        let server = serve(head, Then::Repeat(b"5\r\nhello\r\n")).await;
        assert_eq!(get(&client, &server).await.unwrap_err(), FetchError::BodyTooLarge { limit_bytes: 100_000 });
    }
    let by_wire = limited(|limits| limits.wire_bytes_max = 50_000);
    let server = serve("HTTP/1.1 200 OK\r\n\r\n", Then::Repeat(b"noise")).await;
    assert_eq!(get(&by_wire, &server).await.unwrap_err(), FetchError::BodyTooLarge { limit_bytes: 50_000 });
}

#[tokio::test]
async fn a_bomb_is_left_when_its_decoded_size_passes_the_limit() {
    let client = limited(|limits| limits.page_bytes_max = 100_000);
    // 20 MB in 20 kB, and the server goes on: what ends the fetch is not the wire.
    let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n";
    let server = serve([&head[..], &gzip(&vec![0; 20_000_000])].concat(), Then::Hang).await;
    assert_eq!(get(&client, &server).await.unwrap_err(), FetchError::BodyTooLarge { limit_bytes: 100_000 });
}

#[tokio::test]
async fn a_long_body_is_cut_where_the_order_allows_it() {
    let mut order = order(&serve("HTTP/1.1 200 OK\r\n\r\n", Then::Repeat(b"User-agent: x\n")).await.url("/robots.txt"));
    order.cut_at_bytes = Some(1_000);
    let fetched = client().fetch(&order).await.unwrap();
    assert_eq!((fetched.body.len(), fetched.truncated), (1_000, Some(Truncated::Length)));
    let wire = gzip(&pages(10_000));
    let server = serve(answer("200 OK", "content-encoding: gzip\r\n", &wire), Then::Listen).await;
    order.url = self::order(&server.url("/robots.txt")).url;
    order.cut_at_bytes = Some(5_000);
    let fetched = client().fetch(&order).await.unwrap();
    assert_eq!((fetched.body.len(), fetched.truncated), (5_000, Some(Truncated::Length)));
    assert!(pages(10_000).starts_with(&fetched.body));
}

#[tokio::test]
async fn a_long_body_does_not_hide_that_the_page_is_gone() {
    let client = limited(|limits| limits.page_bytes_max = 1_000);
    let server = serve("HTTP/1.1 410 Gone\r\n\r\n", Then::Repeat(b"gone")).await;
    let fetched = get(&client, &server).await.unwrap();
    assert_eq!((fetched.status, fetched.body.len(), fetched.truncated), (410, 1_000, Some(Truncated::Length)));
}

#[tokio::test]
async fn a_head_with_too_many_bytes_or_lines_is_refused() {
    let long = format!("x: {}\r\n", "a".repeat(70_000));
    assert_eq!(failure_of(&answer("200 OK", &long, b""), Then::Listen).await, Failure::HeadTooLarge);
    let many: String = (0..200).map(|number| format!("x-{number}: a\r\n")).collect();
    assert_eq!(failure_of(&answer("200 OK", &many, b""), Then::Listen).await, Failure::HeadTooLarge);
    assert_eq!(failure_of(b"HTTP/1.1 200 OK\r\n", Then::Repeat(b"x-bomb: yes\r\n")).await, Failure::HeadTooLarge);
    assert_eq!(failure_of(b"HTTP/1.1 200 OK\r\nx: ", Then::Repeat(b"aaaaaaaaaa")).await, Failure::HeadTooLarge);
    let enough: String = (0..100).map(|number| format!("x-{number}: a\r\n")).collect();
    let server = serve(answer("200 OK", &enough, b""), Then::Listen).await;
    assert_eq!(get(&client(), &server).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_server_that_drips_or_hangs_meets_the_timeout_of_the_whole_fetch() {
    let client = limited(|limits| limits.fetch_timeout_ms = 150);
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
    for (answer, then) in
        [(head, Then::Drip(b'x')), ("HTTP/1.1 200 OK\r\nx: ", Then::Drip(b'x')), (head, Then::Hang), ("", Then::Hang)]
    {
        assert_eq!(get(&client, &serve(answer, then).await).await.unwrap_err(), FetchError::Timeout);
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_meets_the_read_timeout() {
    let client = limited(|limits| limits.read_timeout_ms = 100);
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"] {
        assert_eq!(get(&client, &serve(answer, Then::Hang).await).await.unwrap_err(), FetchError::Timeout);
    }
}

#[tokio::test(start_paused = true)]
async fn every_sign_of_life_renews_our_patience_but_not_beyond_the_whole() {
    let limits = FetchLimits { fetch_timeout_ms: 250, read_timeout_ms: 100, ..FetchLimits::default() };
    let patience = Patience::new(&limits, None);
    let ends_ms = || (patience.ends() - patience.started).as_millis();
    assert_eq!(ends_ms(), 100);
    tokio::time::advance(Duration::from_millis(80)).await;
    assert_eq!(ends_ms(), 100);
    patience.renew();
    assert_eq!(ends_ms(), 180);
    tokio::time::advance(Duration::from_millis(90)).await;
    patience.renew();
    assert_eq!(ends_ms(), 250);
}

// What goes wrong.

#[tokio::test]
async fn a_port_where_nothing_listens_refuses() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(failure(&client(), &url).await, Failure::ConnectRefused);
}

#[tokio::test]
async fn an_address_that_cannot_be_reached_fails_to_connect() {
    let allow_addresses = vec!["255.255.255.255/32".parse().unwrap()];
    let client = HttpClient::new(&FetchOptions { allow_addresses, ..options() }).unwrap();
    assert_eq!(failure(&client, "http://255.255.255.255/").await, Failure::ConnectFailed);
}

#[tokio::test]
async fn a_handshake_that_never_ends_fails_to_connect() {
    let client = limited(|limits| limits.connect_timeout_ms = 100);
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    assert_eq!(failure(&client, &url).await, Failure::ConnectFailed);
}

#[tokio::test]
async fn a_connection_that_ends_too_soon_is_broken() {
    let short = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
    let chunk = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\nhalf";
    for then in [Then::Close, Then::Reset] {
        assert_eq!(failure_of(b"", then).await, Failure::ConnectionBroken);
        assert_eq!(failure_of(b"HTTP/1.1 200 OK\r\nx: ", then).await, Failure::ConnectionBroken);
        assert_eq!(failure_of(short, then).await, Failure::ConnectionBroken);
        assert_eq!(failure_of(chunk, then).await, Failure::ConnectionBroken);
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_a_broken_protocol() {
    for answer in [
        &b"SSH-2.0-OpenSSH_9.6\r\n\r\n"[..],
        b"<html>no head at all</html>\r\n\r\n",
        b"\0\x01\x02\x03\r\n\r\n",
        b"HTTP/1.1 2000 Many\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot a chunk\r\n",
    ] {
        let failure = failure_of(answer, Then::Hang).await;
        assert_eq!(failure, Failure::ProtocolBroken, "{}", answer.escape_ascii());
    }
}

#[tokio::test]
async fn header_lines_that_browsers_forgive_are_forgiven() {
    let headers = "no colon here\r\nbad name: x\r\nx-space : y\r\nx-folded: a\r\n b\r\n";
    let server = serve(answer("200 OK", headers, b"fine"), Then::Listen).await;
    let fetched = get(&client(), &server).await.unwrap();
    assert_eq!((fetched.status, &fetched.body[..]), (200, &b"fine"[..]));
}

#[tokio::test]
async fn names_without_an_address_and_name_servers_without_an_answer_differ() {
    let nobody = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let dns_servers = vec![nobody.local_addr().unwrap()];
    drop(nobody);
    let client = HttpClient::new(&FetchOptions { dns_servers, ..options() }).unwrap();
    tokio::time::pause(); // the wait for an answer that never comes passes at once
    assert_eq!(failure(&client, "http://name.test/").await, Failure::DnsUnavailable);
}

// TLS.

fn secure(address: SocketAddr, authorities_pem: &[&str]) -> (HttpClient, FetchOrder) {
    let hosts = BTreeMap::from([("secure.test".to_owned(), address.ip()), ("other.test".to_owned(), address.ip())]);
    let authorities_pem = authorities_pem.iter().map(|pem| (*pem).to_owned()).collect();
    let client = HttpClient::new(&FetchOptions { hosts, authorities_pem, ..options() }).unwrap();
    (client, order(&format!("https://secure.test:{}/", address.port())))
}

const SHORT: Inside = Inside::Http1 { answer: b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", close_notify: true };

#[tokio::test]
async fn a_certificate_of_a_configured_authority_is_trusted() {
    let (client, order) = secure(serve_tls(SHORT), &[SECURE_TEST_PEM]);
    let fetched = client.fetch(&order).await.unwrap();
    assert_eq!((fetched.status, fetched.version, &fetched.body[..]), (200, Version::HTTP_11, &b"hi"[..]));
}

#[tokio::test]
async fn a_close_that_tls_was_not_told_of_ends_a_body_without_length_but_not_one_with() {
    let inside = |answer| Inside::Http1 { answer, close_notify: false };
    let (client, order) = secure(serve_tls(inside(b"HTTP/1.1 200 OK\r\n\r\nwhole")), &[SECURE_TEST_PEM]);
    assert_eq!(client.fetch(&order).await.unwrap().body, "whole");
    let short = inside(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf");
    let (client, order) = secure(serve_tls(short), &[SECURE_TEST_PEM]);
    assert_eq!(client.fetch(&order).await.unwrap_err().failure(), Failure::ConnectionBroken);
}

#[tokio::test]
async fn a_certificate_nobody_vouches_for_fails() {
    let (client, order) = secure(serve_tls(SHORT), &[]);
    assert_eq!(client.fetch(&order).await.unwrap_err().failure(), Failure::TlsFailed);
}

#[tokio::test]
async fn a_certificate_for_another_name_fails() {
    let address = serve_tls(SHORT);
    let (client, _) = secure(address, &[SECURE_TEST_PEM]);
    assert_eq!(failure(&client, &format!("https://other.test:{}/", address.port())).await, Failure::TlsFailed);
}

#[tokio::test]
async fn a_server_without_tls_fails_the_handshake() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        // First it answers the handshake in plain text, then it hangs up on it.
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        let _ = second.read(&mut [0; 4096]).await;
    });
    let url = format!("https://{address}/");
    assert_eq!(failure(&client(), &url).await, Failure::TlsFailed);
    assert_eq!(failure(&client(), &url).await, Failure::TlsFailed);
}

#[tokio::test]
async fn an_http2_answer_is_recorded_in_the_form_of_http1() {
    let (client, order) = secure(serve_tls(Inside::Http2 { body: b"multiplexed" }), &[SECURE_TEST_PEM]);
    let fetched = client.fetch(&order).await.unwrap();
    assert_eq!((fetched.status, fetched.version), (200, Version::HTTP_2));
    assert_eq!(fetched.body, "multiplexed");
    assert_eq!(fetched.response_head, b"HTTP/1.1 200 OK\r\ncontent-type: text/x\r\n\r\n");
    assert!(fetched.request_head.starts_with(b"GET / HTTP/1.1\r\n"));
}
