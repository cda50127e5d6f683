use proptest::prelude::*;

use super::*;
use crate::url::UrlRules;

fn url(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text, &UrlRules::default()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn filter(rules: FilterRules, seeds: &[&str]) -> Filter {
    let seeds: Vec<_> = seeds.iter().map(|seed| url(seed)).collect();
    Filter::new(rules, &seeds).unwrap()
}

fn scoped(scope: Scope, seeds: &[&str]) -> Filter {
    filter(FilterRules { scope, ..FilterRules::default() }, seeds)
}

/// Any URL is in scope, so that only the other rules decide.
fn unscoped(rules: FilterRules) -> Filter {
    filter(FilterRules { scope: Scope::Any, ..rules }, &[])
}

#[track_caller]
fn assert_scope(filter: &Filter, cases: &[(&str, bool)]) {
    for (text, inside) in cases {
        let expected = if *inside { Ok(()) } else { Err(Refusal::OutOfScope) };
        assert_eq!(filter.admits(&url(text), 0), expected, "{text}");
    }
}

#[test]
fn host_scope_is_the_hosts_of_the_seeds() {
    assert_scope(
        &scoped(Scope::Host, &["http://a.h.de/x", "https://i.de/"]),
        &[
            ("http://a.h.de/", true),
            ("https://a.h.de:81/", true),
            ("http://i.de/y", true),
            ("http://h.de/", false),
            ("http://b.a.h.de/", false),
        ],
    );
}

#[test]
fn domain_scope_is_the_registrable_domains_of_the_seeds() {
    assert_scope(
        &scoped(Scope::Domain, &["http://a.example.co.uk/x"]),
        &[
            ("http://example.co.uk/", true),
            ("https://b.example.co.uk/", true),
            ("http://other.co.uk/", false),
            ("http://co.uk/", false),
        ],
    );
}

#[test]
fn prefix_scope_is_the_directory_of_a_seed_on_its_origin() {
    assert_scope(
        &scoped(Scope::Prefix, &["https://h.de/a/b/index.html?q=/x/", "https://h.de/a/b/c/", "http://i.de"]),
        &[
            ("https://h.de/a/b/", true),
            ("https://h.de/a/b/z?q", true),
            ("https://h.de/a/b/c/d", true),
            ("https://h.de/a/b", false),
            ("https://h.de/a/bc/", false),
            ("https://h.de/a/", false),
            ("http://h.de/a/b/", false),
            ("https://h.de:81/a/b/", false),
            ("http://i.de/x", true),
            ("http://i.de.example/", false),
        ],
    );
}

#[test]
fn any_scope_is_everything_and_no_seeds_are_nothing() {
    assert_eq!(scoped(Scope::Any, &[]).admits(&url("http://h.de/"), 0), Ok(()));
    for scope in [Scope::Host, Scope::Domain, Scope::Prefix] {
        assert_eq!(scoped(scope, &[]).admits(&url("http://h.de/"), 0), Err(Refusal::OutOfScope));
    }
}

#[test]
fn one_include_must_match_and_no_exclude_may() {
    let list = |patterns: &[&str]| patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    let filter = unscoped(FilterRules {
        include: list(&["/news/", "/blog/"]),
        exclude: list(&[r"\.pdf$", "^http://i"]),
        ..FilterRules::default()
    });
    for (text, expected) in [
        ("http://h.de/news/1", Ok(())),
        ("http://h.de/blog/1", Ok(())),
        ("http://h.de/shop/1", Err(Refusal::NotIncluded)),
        ("http://h.de/news/1.pdf", Err(Refusal::Excluded)),
        ("http://i.de/news/1", Err(Refusal::Excluded)),
    ] {
        assert_eq!(filter.admits(&url(text), 0), expected, "{text}");
    }
}

#[test]
fn a_bad_pattern_is_named() {
    let with = |pattern: &str| {
        let include = vec!["fine".to_owned(), pattern.to_owned()];
        Filter::new(FilterRules { include, ..FilterRules::default() }, &[]).expect_err(pattern)
    };
    for pattern in ["a(", r"(\w{1000}){1000}"] {
        assert!(matches!(with(pattern), FilterError::BadPattern { pattern: named, .. } if named == pattern));
    }
    assert!(with("a(").to_string().contains("unclosed group"), "{}", with("a("));
    let exclude = vec!["a".to_owned(); PATTERNS_MAX + 1];
    let error = Filter::new(FilterRules { exclude, ..FilterRules::default() }, &[]).unwrap_err();
    assert_eq!(error, FilterError::TooManyPatterns(PATTERNS_MAX + 1));
}

#[test]
fn depth_is_counted_from_the_seed() {
    let filter = unscoped(FilterRules { depth_max: Some(2), ..FilterRules::default() });
    assert_eq!(filter.admits(&url("http://h.de/"), 2), Ok(()));
    assert_eq!(filter.admits(&url("http://h.de/"), 3), Err(Refusal::TooDeep));
    let unbounded = unscoped(FilterRules { depth_max: None, ..FilterRules::default() });
    assert_eq!(unbounded.admits(&url("http://h.de/"), u16::MAX), Ok(()));
    assert_eq!(unscoped(FilterRules::default()).admits(&url("http://h.de/"), u16::MAX), Err(Refusal::TooDeep));
}

#[test]
fn long_paths_and_queries_are_refused() {
    let filter = unscoped(FilterRules {
        path_segments_max: 3,
        query_parameters_max: 2,
        url_bytes_max: 40,
        ..FilterRules::default()
    });
    for (text, expected) in [
        ("http://h.de/", Ok(())),
        ("http://h.de/a/b/c", Ok(())),
        ("http://h.de/a/b/c/", Ok(())),
        ("http://h.de/a/b/c/d", Err(Refusal::TooManySegments)),
        ("http://h.de/?a&b", Ok(())),
        ("http://h.de/?a&&b&", Ok(())),
        ("http://h.de/?a&b&c", Err(Refusal::TooManyParameters)),
        ("http://h.de/0123456789012345678901234567", Ok(())),
        ("http://h.de/01234567890123456789012345678", Err(Refusal::TooLong)),
    ] {
        assert_eq!(filter.admits(&url(text), 0), expected, "{text}");
    }
}

#[test]
fn paths_that_go_in_circles_are_refused() {
    let filter = unscoped(FilterRules { repeated_segments_max: 3, repeated_runs_max: 2, ..FilterRules::default() });
    for (path, admitted) in [
        ("/a/a/a", true),
        ("/a/a/a/a", false),
        ("/a/b/a/c/a/d/a", false),
        ("/a/b/a/b", true),
        ("/a/b/a/b/a/b", false),
        ("/x/a/b/a/b/a/b/y", false),
        ("/x/a/b/a/b/a/y", true),
        ("/a/b/c/a/b/c/a/b/c", false),
        ("/2024/01/01/2024", true),
        ("/x//////y", false),
    ] {
        let expected = if admitted { Ok(()) } else { Err(Refusal::RepeatedSegments) };
        assert_eq!(filter.admits(&url(&format!("http://h.de{path}")), 0), expected, "{path}");
    }
}

#[test]
fn rules_read_from_little() {
    let rules: FilterRules = serde_json::from_str(r#"{"scope": "prefix", "depth_max": 3}"#).unwrap();
    assert_eq!(rules, FilterRules { scope: Scope::Prefix, depth_max: Some(3), ..FilterRules::default() });
    assert!(serde_json::from_str::<FilterRules>(r#"{"scop": "prefix"}"#).is_err());
    assert_eq!(serde_json::to_string(&Refusal::OutOfScope).unwrap(), "\"out_of_scope\"");
    assert_eq!(Refusal::OutOfScope.to_string(), "out_of_scope");
}

#[test]
fn a_hundred_thousand_seeds_are_one_lookup_each() {
    let seeds: Vec<_> = (0..100_000).map(|n| url(&format!("http://h{}.de/{}/", n % 1_000, n / 1_000))).collect();
    let filter = Filter::new(FilterRules { scope: Scope::Prefix, ..FilterRules::default() }, &seeds).unwrap();
    for seed in &seeds {
        assert_eq!(filter.admits(seed, 0), Ok(()));
    }
    assert_eq!(filter.admits(&url("http://h1.de/100/"), 0), Err(Refusal::OutOfScope));
}

/// Counts the longest stretch of one run of segments that follows itself, by trying every place and length.
fn runs_by_trying(segments: &[&str]) -> usize {
    let mut most = 1;
    for period in 2..=segments.len() {
        for start in 0..=segments.len() - period {
            let run = &segments[start..start + period];
            most = most.max(segments[start..].chunks(period).take_while(|chunk| *chunk == run).count());
        }
    }
    most
}

proptest! {
    #[test]
    fn prefixes_agree_with_trying_each(
        seeds in prop::collection::vec("http://[ab]{1,2}(/[ab]{0,2}){0,3}", 0..8),
        text in "http://[ab]{1,2}(/[ab]{0,2}){0,4}",
    ) {
        let seeds: Vec<_> = seeds.iter().map(|seed| url(seed)).collect();
        let filter = Filter::new(FilterRules { scope: Scope::Prefix, ..FilterRules::default() }, &seeds).unwrap();
        let inside = seeds.iter().any(|seed| url(&text).as_str().starts_with(&directory(seed)));
        prop_assert_eq!(filter.covered.contains(&url(&text)), inside);
    }

    #[test]
    fn runs_agree_with_trying_each(text in "[ab]{1,14}", max in 1..4usize) {
        let segments: Vec<&str> = text.split("").filter(|segment| !segment.is_empty()).collect();
        prop_assert_eq!(runs_more_often(&segments, max), runs_by_trying(&segments) > max);
    }

    #[test]
    fn any_url_is_answered(text in "http://h\\.de/.{0,60}", depth in any::<u16>(), scope in 0..4usize) {
        let scope = [Scope::Host, Scope::Domain, Scope::Prefix, Scope::Any][scope];
        let filter = scoped(scope, &["http://h.de/a/b"]);
        if let Ok(url) = CanonicalUrl::parse(&text, &UrlRules::default()) {
            let _ = filter.admits(&url, depth);
        }
    }
}

#[test]
fn a_seed_that_moved_within_its_domain_is_covered_where_it_is_now() {
    let filter = scoped(Scope::Host, &["http://example.com/"]);
    assert!(filter.widen(&url("http://example.com/"), &url("https://www.example.com/")));
    assert!(
        !filter.widen(&url("http://example.com/"), &url("https://example.org/")),
        "another domain was not asked for"
    );
    assert_scope(
        &filter,
        &[
            ("https://www.example.com/x", true),
            ("http://example.com/", true),
            ("http://shop.example.com/", false),
            ("https://example.org/", false),
        ],
    );
}

#[test]
fn a_folder_that_moved_is_covered_where_it_is_now_and_no_more_of_its_site() {
    let filter = scoped(Scope::Prefix, &["http://example.com/docs/"]);
    assert!(!filter.widen(&url("http://example.com/docs/"), &url("https://example.com/")), "out of the folder");
    assert!(filter.widen(&url("http://example.com/docs/"), &url("https://example.com/docs/start")));
    assert_scope(
        &filter,
        &[("https://example.com/docs/x", true), ("https://example.com/", false), ("http://example.com/docs/x", true)],
    );
}

#[test]
fn the_digest_tells_rules_apart_and_is_the_same_for_the_same() {
    let digest = |rules: FilterRules, seeds: &[&str]| filter(rules, seeds).digest();
    let rules = FilterRules::default;
    let (one, two) = ("http://a.example/", "http://b.example/");
    assert_eq!(digest(rules(), &[one, two]), digest(rules(), &[two, one]));
    assert_eq!(digest(rules(), &["http://a.example/x"]), digest(rules(), &[one]), "only its host matters");
    let deeper = FilterRules { depth_max: Some(7), ..rules() };
    let wider = FilterRules { scope: Scope::Domain, ..rules() };
    let fewer = FilterRules { exclude: vec!["x".into()], ..rules() };
    let all: BTreeSet<_> = [digest(rules(), &[one]), digest(rules(), &[one, two]), digest(deeper, &[one])]
        .into_iter()
        .chain([digest(wider, &[one]), digest(fewer, &[one])])
        .collect();
    assert_eq!(all.len(), 5);
    let filter = filter(rules(), &[one]);
    let before = filter.digest();
    filter.widen(&url(one), &url("http://www.a.example/"));
    assert_ne!(filter.digest(), before);
}
