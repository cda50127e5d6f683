//! Any body, gzipped or not, gives a list that is canonical, bounded and free of repetition.
#![no_main]

#[allow(dead_code, unused_imports)]
#[path = "../../../node/src/extract/mod.rs"]
mod extract;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use extract::{ExtractLimits, ExtractRules, parse_sitemap};
use libfuzzer_sys::fuzz_target;
use proto::url::CanonicalUrl;

/// Small enough that the fuzzer reaches them, and that a gzip bomb costs it nothing.
static RULES: LazyLock<ExtractRules> = LazyLock::new(|| {
    let limits = ExtractLimits { sitemap_urls_max: 10, sitemap_bytes_max: 100_000, ..ExtractLimits::default() };
    ExtractRules { limits, ..ExtractRules::default() }
});

fuzz_target!(|body: &[u8]| {
    let base = CanonicalUrl::parse("http://www.example.org/sitemap.xml", &RULES.urls).expect("a plain URL");
    let found = parse_sitemap(body, &base, &RULES);
    assert_eq!(found, parse_sitemap(body, &base, &RULES), "the same sitemap gives the same list");
    assert!(found.urls.len() + found.sitemaps.len() <= RULES.limits.sitemap_urls_max);
    for list in [found.urls.iter().map(|(url, _)| url).collect::<Vec<_>>(), found.sitemaps.iter().collect()] {
        for url in &list {
            assert_eq!(CanonicalUrl::parse(url.as_str(), &RULES.urls).as_ref(), Ok(*url));
        }
        let distinct: BTreeSet<&str> = list.iter().map(|url| url.as_str()).collect();
        assert_eq!(distinct.len(), list.len(), "listed twice");
    }
});
