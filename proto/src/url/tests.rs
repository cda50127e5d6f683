use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text, &UrlRules::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn canonical(text: &str) -> String {
    parse(text).into_string()
}

fn error(text: &str) -> UrlError {
    CanonicalUrl::parse(text, &UrlRules::default()).expect_err(text)
}

#[track_caller]
fn assert_canonical(pairs: &[(&str, &str)]) {
    for (text, expected) in pairs {
        assert_eq!(canonical(text), *expected, "{text}");
        assert_eq!(canonical(expected), *expected, "{expected} again");
    }
}

#[test]
fn scheme_and_host_are_lower_case_and_default_ports_are_dropped() {
    assert_canonical(&[
        ("HTTP://Example.COM", "http://example.com/"),
        ("http://example.com:80/A", "http://example.com/A"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:080/", "https://example.com:80/"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("http://example.com:/x", "http://example.com/x"),
        ("  \u{1}http:example.com\\a\\b ", "http://example.com/a/b"),
    ]);
}

#[test]
fn fragment_userinfo_and_empty_query_are_dropped() {
    assert_canonical(&[
        ("http://example.com/a#b", "http://example.com/a"),
        ("http://example.com/a?#b", "http://example.com/a"),
        ("http://example.com?", "http://example.com/"),
        ("http://user:secret@example.com/", "http://example.com/"),
        ("http://user@example.com:81/?q", "http://example.com:81/?q"),
    ]);
}

#[test]
fn the_dot_behind_a_host_is_dropped() {
    assert_canonical(&[
        ("http://example.com./a", "http://example.com/a"),
        ("http://localhost.:8080", "http://localhost:8080/"),
        ("http://127.0.0.1./", "http://127.0.0.1/"),
    ]);
}

#[test]
fn dot_segments_are_resolved_in_every_spelling() {
    assert_canonical(&[
        ("http://h.de/a/./b/../c", "http://h.de/a/c"),
        ("http://h.de/a/%2e/b/%2E%2e/c", "http://h.de/a/c"),
        ("http://h.de/../..", "http://h.de/"),
        ("http://h.de/.../a", "http://h.de/.../a"),
        ("http://h.de/.a/..b/a..", "http://h.de/.a/..b/a.."),
        ("http://h.de/a%2Eb", "http://h.de/a.b"),
        ("http://h.de//a//", "http://h.de//a//"),
    ]);
}

#[test]
fn percent_case_is_normalised() {
    assert_canonical(&[
        ("http://h.de/%e4%2f%3f", "http://h.de/%E4%2F%3F"),
        ("http://h.de/?%c3%a4=%3d", "http://h.de/?%C3%A4=%3D"),
        ("http://h.de/ä?ä", "http://h.de/%C3%A4?%C3%A4"),
    ]);
}

#[test]
fn unreserved_characters_are_decoded_and_no_others() {
    assert_canonical(&[
        ("http://h.de/%7euser/%41%2d%5F", "http://h.de/~user/A-_"),
        ("http://h.de/?%61=%26", "http://h.de/?a=%26"),
        ("http://h.de/%25%32%35", "http://h.de/%2525"),
    ]);
}

#[test]
fn decoding_builds_no_new_escapes() {
    assert_canonical(&[
        ("http://h.de/%%34%31", "http://h.de/%%341"),
        ("http://h.de/%4%31", "http://h.de/%4%31"),
        ("http://h.de/%zz%", "http://h.de/%zz%"),
        ("http://h.de/%zz%41", "http://h.de/%zzA"),
        ("http://h.de/%%7e%4%2e", "http://h.de/%~%4."),
        // The stray sign goes away with its parameter, so nothing behind the parameter may depend on it.
        ("http://h.de/;jsessionid=%/%61%25", "http://h.de//a%25"),
    ]);
}

#[test]
fn tracking_parameters_are_removed_and_the_others_keep_their_order() {
    assert_canonical(&[
        ("http://h.de/?utm_source=x&b=2&a=1&UTM_Medium=y", "http://h.de/?b=2&a=1"),
        ("http://h.de/?gclid=1", "http://h.de/"),
        ("http://h.de/?%75tm_source=x", "http://h.de/"),
        ("http://h.de/?a&&b=&=c", "http://h.de/?a&&b=&=c"),
        ("http://h.de/?utm=1&gclid2=1&agclid", "http://h.de/?utm=1&gclid2=1&agclid"),
        ("http://h.de/?sid=1", "http://h.de/?sid=1"),
        ("http://h.de/?fbclid=1&", "http://h.de/"),
    ]);
}

#[test]
fn session_ids_in_the_path_are_removed() {
    assert_canonical(&[
        ("http://h.de/a;jsessionid=1F?b=1", "http://h.de/a?b=1"),
        ("http://h.de/a;JSESSIONID=1;v=2/b", "http://h.de/a;v=2/b"),
        ("http://h.de/;jsessionid=1", "http://h.de/"),
        ("http://h.de/a/..;jsessionid=1/b", "http://h.de/a/..;jsessionid=1/b"),
        ("http://h.de/jsessionid=1", "http://h.de/jsessionid=1"),
    ]);
}

#[test]
fn a_query_is_sorted_only_on_request() {
    let rules = UrlRules { sort_query: true, ..UrlRules::default() };
    let sorted = CanonicalUrl::parse("http://h.de/?b=2&a=3&utm_x&a=1", &rules).unwrap();
    assert_eq!(sorted.as_str(), "http://h.de/?a=1&a=3&b=2");
    assert_eq!(CanonicalUrl::parse("http://h.de/?b&a", &rules).unwrap().query(), Some("a&b"));
}

#[test]
fn a_lone_star_removes_every_parameter() {
    let rules = UrlRules { tracking_parameters: vec!["*".into(), "".into()], sort_query: false };
    assert_eq!(CanonicalUrl::parse("http://h.de/a;b?c=1&d", &rules).unwrap().as_str(), "http://h.de/a");
}

#[test]
fn a_url_knows_its_parts() {
    let url = parse("https://www.news.example.co.uk:8443/a/b.html?q=1&r");
    assert_eq!(url.scheme(), "https");
    assert_eq!(url.host(), "www.news.example.co.uk");
    assert_eq!(url.domain(), "example.co.uk");
    assert_eq!(url.port(), 8443);
    assert_eq!(url.origin(), "https://www.news.example.co.uk:8443");
    assert_eq!(url.path(), "/a/b.html");
    assert_eq!(url.query(), Some("q=1&r"));
    assert_eq!(url.path_and_query(), "/a/b.html?q=1&r");
    assert_eq!(url.without_query(), "https://www.news.example.co.uk:8443/a/b.html");
    let url = parse("http://h.de");
    assert_eq!((url.scheme(), url.port(), url.path(), url.query()), ("http", 80, "/", None));
    assert_eq!(parse("https://h.de").port(), 443);
}

#[test]
fn the_domain_is_the_registrable_one() {
    for (host, domain) in [
        ("example.com", "example.com"),
        ("a.b.example.com", "example.com"),
        ("example.co.uk", "example.co.uk"),
        ("a.example.co.uk", "example.co.uk"),
        ("co.uk", "co.uk"),
        ("com", "com"),
        ("localhost", "localhost"),
        ("a.b.unknown-tld", "b.unknown-tld"),
        ("someone.github.io", "someone.github.io"),
        ("a.someone.github.io", "someone.github.io"),
        ("a.b.ck", "a.b.ck"),
        ("x.www.ck", "www.ck"),
        ("192.168.0.1", "192.168.0.1"),
        ("[2001:db8::1]", "[2001:db8::1]"),
        ("www.食狮.公司.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("www.bücher.de", "xn--bcher-kva.de"),
    ] {
        assert_eq!(parse(&format!("http://{host}/")).domain(), domain, "{host}");
    }
}

#[test]
fn addresses_have_one_spelling() {
    assert_canonical(&[
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://127.0.0.01:81/", "http://127.0.0.1:81/"),
        ("http://[::FFFF:7f00:0001]/", "http://[::ffff:7f00:1]/"),
        ("http://[2001:DB8:0:0::1]:80", "http://[2001:db8::1]/"),
    ]);
}

#[test]
fn international_names_become_punycode() {
    assert_canonical(&[
        ("http://BÜCHER.de/", "http://xn--bcher-kva.de/"),
        ("http://xn--bcher-kva.de./", "http://xn--bcher-kva.de/"),
        ("http://ｅｘａｍｐｌｅ。com/", "http://example.com/"),
    ]);
}

#[test]
fn what_cannot_be_crawled_is_refused() {
    for text in
        ["javascript:void(0)", "mailto:a@b.c", "ftp://h.de/", " data:text/html,x", "tel:1", "file:///etc/passwd"]
    {
        assert!(matches!(error(text), UrlError::Scheme(_)), "{text}");
    }
    assert_eq!(error("JavaScript:x"), UrlError::Scheme("javascript".into()));
    let long_label = format!("http://{}.de/", "a".repeat(64));
    let long_name = format!("http://{}de/", "abcdefgh.".repeat(30));
    for text in [
        "",
        "/a",
        "//h.de/a",
        "http://",
        "http:///",
        "http://./",
        "http://a..b/",
        "http://h.de../",
        "http://a\"b/",
        "http://a b/",
        "http://%/",
        "http://1.2.3.4../",
        "http://h.de:99999/",
        "http://[::1/",
        "http://1.2.3.400/",
        "http://xn--a/",
        &long_label,
        &long_name,
    ] {
        assert!(matches!(error(text), UrlError::Invalid(_)), "{text}: {:?}", error(text));
    }
}

#[test]
fn at_most_eight_thousand_bytes_are_kept() {
    let origin = "http://h.de/";
    let longest = format!("{origin}{}", "a".repeat(URL_BYTES_MAX - origin.len()));
    assert_eq!(canonical(&longest), longest);
    assert_eq!(canonical(&format!("{longest}#{}", "b".repeat(9_000))), longest);
    assert_eq!(error(&format!("{longest}a")), UrlError::TooLong(URL_BYTES_MAX + 1));
    assert!(matches!(error(&format!("{origin}{}", "ä".repeat(50_000))), UrlError::TooLong(_)));
    assert!(matches!(error(&format!("data:{}", "a".repeat(1_000_000))), UrlError::Scheme(_)));
}

#[test]
fn references_resolve_against_their_base() {
    let base = parse("http://h.de/a/b?c").to_url();
    for (reference, expected) in [
        ("d", "http://h.de/a/d"),
        ("../d;jsessionid=1", "http://h.de/d"),
        ("?e&utm_x=1", "http://h.de/a/b?e"),
        ("#f", "http://h.de/a/b?c"),
        ("", "http://h.de/a/b?c"),
        ("//i.de", "http://i.de/"),
        ("https:", "https:"),
        ("https://i.de/x", "https://i.de/x"),
        ("\n\thttps://i.de/\nx ", "https://i.de/x"),
        ("d:e", "d:e"),
    ] {
        match CanonicalUrl::join(&base, reference, &UrlRules::default()) {
            Ok(url) => assert_eq!(url.as_str(), expected, "{reference}"),
            Err(UrlError::Scheme(_) | UrlError::Invalid(_)) => assert_eq!(reference, expected),
            Err(other) => panic!("{reference}: {other}"),
        }
    }
}

#[test]
fn serde_keeps_the_text_and_refuses_what_is_not_canonical() {
    let url = parse("https://h.de:81/a?b");
    let json = serde_json::to_string(&url).unwrap();
    assert_eq!(json, "\"https://h.de:81/a?b\"");
    assert_same(&serde_json::from_str(&json).unwrap(), &url);
    let bytes = bincode::serialize(&url).unwrap();
    assert_same(&bincode::deserialize(&bytes).unwrap(), &url);
    for text in [
        "http://h.de",
        "http://H.de/",
        "http://h.de/#a",
        "http://h.de/?",
        "http://h.de/%41",
        "http://a@h.de/",
        "http://h.de:80/",
    ] {
        assert_eq!(CanonicalUrl::from_canonical(text.to_owned()), Err(UrlError::NotCanonical), "{text}");
    }
    assert!(serde_json::from_str::<CanonicalUrl>("\"nothing\"").is_err());
    // What only rules would remove is canonical: a store outlives its rules.
    assert!(CanonicalUrl::from_canonical("http://h.de/?utm_x=1".to_owned()).is_ok());
}

/// Equality looks at the text alone; here everything has to agree.
#[track_caller]
fn assert_same(a: &CanonicalUrl, b: &CanonicalUrl) {
    assert_eq!((&a.text, a.layout), (&b.text, b.layout));
}

/// Holds for every text and all rules.
fn check_everything(text: &str, rules: &UrlRules) {
    let Ok(url) = CanonicalUrl::parse(text, rules) else { return };
    assert!(url.as_str().len() <= URL_BYTES_MAX && url.as_str().is_ascii());
    assert_same(&CanonicalUrl::parse(url.as_str(), rules).expect("parses again"), &url);
    assert_same(&CanonicalUrl::from_canonical(url.as_str().to_owned()).expect("is canonical"), &url);
    assert_same(&CanonicalUrl::from_url(url.to_url(), rules).expect("parses again"), &url);
    assert_eq!(url.to_url().as_str(), url.as_str(), "the WHATWG parser agrees");
    assert_same(&assemble(&url.to_url(), Some(rules)).expect("parses again"), &url);
    // The parts are those the WHATWG parser sees.
    let whatwg = url.to_url();
    assert_eq!(Some(url.host()), whatwg.host_str());
    assert_eq!(Some(url.port()), whatwg.port_or_known_default());
    assert_eq!((url.scheme(), url.path(), url.query()), (whatwg.scheme(), whatwg.path(), whatwg.query()));
    assert_eq!(url.origin(), whatwg.origin().ascii_serialization());
    assert!(url.host().ends_with(url.domain()) && !url.domain().is_empty());
    assert!(whatwg.username().is_empty() && whatwg.password().is_none() && whatwg.fragment().is_none());
}

fn any_rules() -> impl Strategy<Value = UrlRules> {
    let list = prop::collection::vec("[a-c%*.]{0,3}", 0..4);
    (list, any::<bool>(), any::<bool>()).prop_map(|(tracking_parameters, sort_query, by_default)| {
        if by_default { UrlRules::default() } else { UrlRules { tracking_parameters, sort_query } }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_canonical_after_once(text in ".{0,60}", rules in any_rules()) {
        check_everything(&text, &rules);
        check_everything(&format!("http://{text}"), &rules);
        check_everything(&format!("https://h.de/{text}"), &rules);
    }

    #[test]
    fn hostile_paths_and_queries_are_canonical_after_once(
        text in r"([%./?&=;#\\@:a-cA-F0-9 \t\n\x00\x7f'\[\]|^`{}ä]|%2[eEfF5]|%3[0-9a-f]|%[46]1|;jsessionid=|utm_a=){0,24}",
        rules in any_rules(),
    ) {
        check_everything(&format!("http://h.de/{text}"), &rules);
        check_everything(&format!("http://h.de{text}"), &rules);
    }

    #[test]
    fn hostile_hosts_are_canonical_after_once(
        text in r"([a-c0-9.\-_:@%\[\]xX]|xn--|ä|ß|\u{200d}|。|%2e|0x|de|co\.uk|\.\.){0,12}",
        rules in any_rules(),
    ) {
        check_everything(&format!("http://{text}/"), &rules);
        check_everything(&format!("http://{text}.com:8/"), &rules);
    }

    #[test]
    fn what_the_scan_accepts_the_parser_leaves_alone(
        text in r"https?://[a-z0-9._\-]{1,12}(:[0-9]{1,5})?/[a-zA-Z0-9%./;=]{0,12}(\?[a-z%0-9&='|\[\]]{0,9})?",
    ) {
        if let Some(layout) = scan(&text) {
            let url = url::Url::parse(&text).expect("the parser accepts it");
            prop_assert_eq!(url.as_str(), &text);
            let assembled = assemble(&url, None).unwrap();
            prop_assert_eq!((&*assembled.text, assembled.layout), (&*text, layout));
        }
    }

    #[test]
    fn joining_never_panics(base in "http://[a-z]{1,3}(/[a-z%.;]{0,3}){0,3}", reference in ".{0,40}") {
        let base = CanonicalUrl::parse(&base, &UrlRules::default()).unwrap().to_url();
        if let Ok(url) = CanonicalUrl::join(&base, &reference, &UrlRules::default()) {
            check_everything(url.as_str(), &UrlRules::default());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn huge_inputs_are_refused_or_canonical(piece in ".{1,20}", prefix in "(http://h.de/|http://|)") {
        let text = format!("{prefix}{}", piece.repeat(100_000 / piece.len()));
        check_everything(&text, &UrlRules::default());
        check_everything(&text[..text.floor_char_boundary(7_900)], &UrlRules::default());
    }
}

/// Prints nanoseconds per URL: `cargo test --release -p proto -- --ignored --nocapture url_speed`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_types)]
fn url_speed() {
    let rules = UrlRules::default();
    let base = url::Url::parse("https://www.example.co.uk/news/2024/index.html").unwrap();
    for text in [
        "https://www.example.co.uk/news/2024/05/some-long-title-of-a-page.html?id=12345&page=2",
        "https://www.example.co.uk/news/2024/05/some-long-title.html?id=1&utm_source=a&utm_medium=b",
        "HTTPS://www.Example.co.uk/news/%7euser/../some-long-title.html#top",
        "https://www.bücher.de/ä",
        "/news/2024/05/some-long-title-of-a-page.html",
    ] {
        let start = std::time::Instant::now();
        for _ in 0..100_000 {
            std::hint::black_box(CanonicalUrl::join(&base, std::hint::black_box(text), &rules).unwrap());
        }
        println!("{:>6} ns  {text}", start.elapsed().as_nanos() / 100_000);
    }
}
