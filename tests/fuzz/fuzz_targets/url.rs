//! Any text is either refused or brought into a form that is stable, bounded and safe to send.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::url::{CanonicalUrl, URL_BYTES_MAX, UrlRules};

fn check(url: &CanonicalUrl, rules: &UrlRules) {
    let text = url.as_str();
    assert_eq!(CanonicalUrl::parse(text, rules).as_ref(), Ok(url), "canonical form is not stable");
    assert_eq!(CanonicalUrl::from_canonical(text.to_owned()).as_ref(), Ok(url), "stored form is not taken back");
    assert!(text.len() <= URL_BYTES_MAX);
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "not fit for a request line: {text:?}");
    assert!(!text.contains('#'), "fragment kept: {text}");
    assert!(matches!(url.scheme(), "http" | "https"));
    assert!(url.host().ends_with(url.domain()) && !url.domain().is_empty());
    assert!(url.path().starts_with('/'));
    assert_eq!(format!("{}{}", url.origin(), url.path_and_query()), text);
    assert_eq!(
        CanonicalUrl::parse(url.to_url().as_str(), rules).as_ref(),
        Ok(url),
        "lost on the way through the url crate"
    );
}

fuzz_target!(|text: &str| {
    let plain = UrlRules::default();
    let sorted = UrlRules { sort_query: true, ..UrlRules::default() };
    for rules in [&plain, &sorted] {
        if let Ok(url) = CanonicalUrl::parse(text, rules) {
            check(&url, rules);
        }
        let base = CanonicalUrl::parse("http://example.org/a/b?c=d", rules).expect("a plain URL").to_url();
        if let Ok(url) = CanonicalUrl::join(&base, text, rules) {
            check(&url, rules);
        }
    }
});
