//! Any body, under any declared type, gives links that are canonical and a page within its bounds, twice the same.
#![no_main]

#[allow(dead_code, unused_imports)]
#[path = "../../../node/src/extract/mod.rs"]
mod extract;

use std::sync::LazyLock;

use extract::{ExtractLimits, ExtractRules, PageInput, extract};
use libfuzzer_sys::fuzz_target;
use proto::url::CanonicalUrl;

const TYPES: [Option<&str>; 6] = [
    None,
    Some("text/html"),
    Some("text/html; charset=utf-16le"),
    Some("application/xhtml+xml"),
    Some("text/plain; charset=windows-1252"),
    Some("application/rss+xml"),
];

/// Small enough that the fuzzer reaches them.
static RULES: LazyLock<ExtractRules> = LazyLock::new(|| {
    let limits = ExtractLimits { links_max: 20, title_chars_max: 30, text_bytes_max: 300, ..ExtractLimits::default() };
    ExtractRules { limits, ..ExtractRules::default() }
});

fuzz_target!(|input: &[u8]| {
    let Some((choice, body)) = input.split_first() else { return };
    let url = CanonicalUrl::parse("http://www.example.org/a/b?c=d", &RULES.urls).expect("a plain URL");
    let page = PageInput {
        url: &url,
        content_type: TYPES[usize::from(*choice) % TYPES.len()],
        x_robots_tag: &[],
        link_headers: &[],
        body,
        product_token: "orbweaver",
    };
    let found = extract(&page, &RULES);
    assert_eq!(found, extract(&page, &RULES), "the same page gives the same result");
    assert!(found.links.len() <= RULES.limits.links_max);
    assert!(found.text.len() <= RULES.limits.text_bytes_max);
    assert!(found.title.iter().all(|title| title.chars().count() <= RULES.limits.title_chars_max));
    let urls = found.links.iter().map(|link| &link.url).chain(&found.canonical);
    for url in urls {
        assert_eq!(CanonicalUrl::parse(url.as_str(), &RULES.urls).as_ref(), Ok(url));
    }
    for (n, link) in found.links.iter().enumerate() {
        assert!(
            found.links[..n].iter().all(|earlier| earlier.url != link.url),
            "{} is listed twice",
            link.url.as_str()
        );
        assert!(link.nofollow || !found.nofollow, "a page that asks for nofollow marks every link");
    }
});
