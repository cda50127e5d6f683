//! What a site says of how its pages are asked for, and of which of their references are links, holds on the wire: of a node alone, and of three.

use proto::site::md5_hex;
use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::raw::{RawServer, Reply};
use tests::sites::{dc, node_alone, refused, site};
use tests::wait_until;

/// A page with links in two places, a chain of redirects, and a chain of refreshes.
fn server() -> RawServer {
    RawServer::start(|asked| match asked.path {
        "/" => Reply::file(
            "text/html",
            "<nav><a href='/nav'>nav</a></nav><main><a href='/page'>page</a><a href='/own'>own</a><a href='/jump1'>jump</a>\
             <a rel=nofollow href='/never'>never</a><img src='/picture'></main>",
        ),
        "/page" | "/own" => Reply::page(&["/deeper"]),
        "/picture" => Reply::file("image/gif", "GIF89a...."),
        "/jump1" => Reply::redirect("/jump2"),
        "/jump2" => Reply::redirect("/jump3"),
        "/plain" => Reply::text("<a href='/linked'>linked</a>"),
        "/linked" => Reply::text("nothing more"),
        "/feed" => Reply::file(
            "application/rss+xml",
            "<rss version='2.0'><channel><item><title>entry</title><link>/entry</link></item></channel></rss>",
        ),
        "/entry" => Reply::page(&["/below"]),
        "/many" => Reply::page(&["/empty", "/too-many", "/far-too-many"]),
        "/empty" => Reply::file("text/html", ""),
        "/fresh1" => Reply::file("text/html", "<meta http-equiv=refresh content='0; url=/fresh2'>"),
        "/fresh2" => Reply::file("text/html", "<meta http-equiv=refresh content='0; url=/fresh3'>"),
        _ => Reply::status(404),
    })
}

fn url(data: &str, site: &str, url: &str) -> Value {
    let (_, answer) = dc(data, "URL_STATUS", &json!({"siteId": site, "url": url}), &[]);
    answer["itemsList"][0]["itemObject"][0].clone()
}

fn made(data: &str, body: &Value) {
    wait_until("the site is kept", || {
        let (ended, _) = dc(data, "SITE_NEW", body, &[]);
        ended.code == Some(0) || site(data, body["id"].as_str().unwrap())["state"] == 1
    });
}

fn properties_hold_on_the_wire(data: &str) {
    let server = server();
    let own = md5_hex(&server.url("/own"));
    let sets = json!({"sets": {"/$": ["//main//a/@href", "main img"], "/page$": []}});
    let body = json!({"id": "news", "urls": [server.url("/")], "requestDelay": 20, "properties": [
        {"name": "HTTP_HEADERS", "value": "Accept-Language: de\r\nX-Crawl: seven"},
        {"name": "HTTP_COOKIE", "value": "a=1; b=2"},
        {"name": "HTTP_COOKIE", "value": {"own": "yes"}, "urlMd5": own},
        {"name": "REFERER_SELF_URL", "value": 1},
        {"name": "HTTP_REDIRECTS_MAX", "value": 1},
        {"name": "COLLECT_URLS_XPATH_LIST", "value": sets}]});
    made(data, &body);
    let refreshes = json!({"id": "refreshes", "urls": [server.url("/fresh1")], "requestDelay": 20, "properties": [
        {"name": "HTML_REDIRECTS_MAX", "value": 1}]});
    made(data, &refreshes);
    // What the server says is text is taken for HTML; the last site goes through a proxy, which answers itself.
    let typed = json!({"id": "typed", "urls": [server.url("/plain")], "requestDelay": 20, "properties": [
        {"name": "CONTENT_TYPE_MAP", "value": {"text/plain": "text/html"}}]});
    made(data, &typed);
    let proxy = RawServer::start(|asked| match asked.path {
        path if path.ends_with("/far") => Reply::page(&["/far"]),
        _ => Reply::status(404),
    });
    let (host, port) = (proxy.address().ip().to_string(), proxy.address().port());
    let far = json!({"id": "far", "urls": [server.url("/far")], "requestDelay": 20, "properties": [
        {"name": "HTTP_PROXY_HOST", "value": host}, {"name": "HTTP_PROXY_PORT", "value": port}]});
    made(data, &far);
    let feed = json!({"id": "feed", "urls": [server.url("/feed")], "requestDelay": 20, "properties": [
        {"name": "PROCESSOR_NAME", "value": "RSS"}]});
    made(data, &feed);
    made(data, &json!({"id": "few", "urls": [server.url("/many")], "requestDelay": 20, "maxURLsFromPage": 1}));
    let settled = |id: &str, path: &str| {
        let told = url(data, id, &server.url(path));
        told["status"].as_u64() >= Some(4) && told["tcDate"].is_string()
    };
    wait_until("everything is crawled", || {
        ["/", "/page", "/own", "/picture", "/jump1", "/jump2"].iter().all(|path| settled("news", path))
            && ["/fresh1", "/fresh2"].iter().all(|path| settled("refreshes", path))
            && ["/plain", "/linked"].iter().all(|path| settled("typed", path))
            && settled("far", "/far")
            && ["/many", "/empty"].iter().all(|path| settled("few", path))
            && ["/feed", "/entry"].iter().all(|path| settled("feed", path))
    });

    let head = |path: &str| server.head_of(path).expect("it was asked for").to_ascii_lowercase();
    let page = head("/page");
    assert!(page.contains("accept-language: de\r\n") && page.contains("x-crawl: seven\r\n"), "{page}");
    assert!(page.contains("cookie: a=1; b=2\r\n") && page.contains("user-agent: orbweaver"), "{page}");
    assert!(page.contains(&format!("referer: {}\r\n", server.url("/page"))), "{page}");
    let own = head("/own");
    assert!(own.contains("cookie: own=yes\r\n") && own.contains("x-crawl: seven\r\n") && !own.contains("a=1"), "{own}");
    let plain = head("/fresh2");
    assert!(!plain.contains("cookie") && !plain.contains("x-crawl") && !plain.contains("referer"), "{plain}");

    assert_eq!(url(data, "typed", &server.url("/plain"))["contentType"], "text/html");
    assert_eq!(url(data, "far", &server.url("/far"))["httpCode"], 200);
    let entry = url(data, "feed", &server.url("/entry"));
    assert_eq!((&entry["type"], &entry["linksI"]), (&json!(1), &json!(1)), "what a feed led to is single: {entry}");
    assert!(proxy.head_of(&server.url("/far")).is_some(), "the proxy was asked: {:?}", proxy.pages());

    let asked = server.pages();
    for path in ["/too-many", "/far-too-many", "/nav", "/deeper", "/never", "/jump3", "/fresh3", "/far", "/below"] {
        assert!(!asked.iter().any(|other| other == path), "{path} was asked for: {asked:?}");
    }
    let bits = |id: &str, path: &str| url(data, id, &server.url(path))["errorMask"].clone();
    assert_eq!((bits("news", "/jump1"), bits("news", "/jump2")), (json!(0), json!(1u64 << 17)));
    assert_eq!((bits("refreshes", "/fresh1"), bits("refreshes", "/fresh2")), (json!(0), json!(1u64 << 18)));
    let (many, empty) = (url(data, "few", &server.url("/many")), url(data, "few", &server.url("/empty")));
    assert_eq!(
        (&many["errorMask"], &many["state"]),
        (&json!(1u64 << 43), &json!(0)),
        "it has more links than are followed"
    );
    assert_eq!((&empty["errorMask"], &empty["state"]), (&json!(1u64 << 3), &json!(2)), "it has no content: {empty}");
    let root = url(data, "news", &server.url("/"));
    assert_eq!(root["linksI"], 5, "links are what the site takes for links: {root}");

    for (name, value, word) in [
        ("HTTP_HEADERS", json!("User-Agent: somebody else"), "properties[0].value: User-Agent is the crawler's"),
        ("COLLECT_URLS_XPATH_LIST", json!(["//a["]), "properties[0].value[0]: at character"),
        ("HTTP_REDIRECTS_MAX", json!("all"), "properties[0].value"),
    ] {
        let body = json!({"id": "x", "urls": [server.url("/")], "properties": [{"name": name, "value": value}]});
        refused(data, "SITE_NEW", &body, 2000, word);
    }
    assert_eq!(site(data, "x"), json!({"id": "x", "state": 9}));
}

#[test]
fn a_node_alone_asks_as_the_properties_of_a_site_say() {
    let work = tempfile::tempdir().unwrap();
    let (node, data) = node_alone(work.path());
    properties_hold_on_the_wire(&data);
    drop(node);
}

#[test]
fn three_nodes_ask_as_the_properties_of_a_site_say() {
    let work = tempfile::tempdir().unwrap();
    let fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    properties_hold_on_the_wire(fleet.folder());
}
