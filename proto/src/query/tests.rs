//! What queries mean, what is wrong with those that mean nothing, and that parts give what the whole does.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::evaluate::like;
use super::*;

struct Fields(BTreeMap<&'static str, Value>);

impl Row for Fields {
    fn value(&self, field: &'static str) -> Value {
        self.0.get(field).cloned().unwrap_or(Value::Null)
    }
}

fn page(url: &str, status: i64, size: i64, changed: u64) -> Fields {
    Fields(BTreeMap::from([
        ("url", Value::text(url)),
        ("siteId", Value::text("news")),
        ("status", Value::Int(status)),
        ("size", Value::Int(size)),
        ("UDate", Value::Time(changed)),
    ]))
}

/// One hour after the beginning of 2026.
const NOW: u64 = 1_767_229_200_000;

fn admits(condition: &str) -> bool {
    let row = page("http://a.example/Index.html", 7, 1_500, NOW - 600_000);
    Condition::parse(Source::Urls, condition).unwrap_or_else(|error| panic!("{condition}: {error}")).admits(&row, NOW)
}

#[test]
fn conditions_mean_what_they_say() {
    for yes in [
        "status = 7",
        "Status == 7 AND size > 1000",
        "`status` IN (4, 7)",
        "status NOT IN (1, 2)",
        "url LIKE '%index%'",
        "url LIKE 'http://_.example/%' and not size < 10",
        "size BETWEEN 1500 AND 1500",
        "UDate > NOW() - INTERVAL 1 HOUR",
        "UDate >= '2026-01-01 00:50:00'",
        "'2026-01-01' < UDate",
        "title IS NULL AND url IS NOT NULL",
        "(size + 500) / 2 = 1000",
        "(size & 4) = 4 && (status = 7 || status = 1)",
        "size & 4",
        "urls.status = 7",
        "-size < -1",
        "((status)) = 7",
        "title = 'x' OR status = 7",
    ] {
        assert!(admits(yes), "{yes}");
    }
    for no in [
        "status <> 7",
        "title = 'x'",
        "NOT title = 'x'",
        "title <> 'x'",
        "title IN ('x', NULL)",
        "size / 0 = 1",
        "url LIKE 'index'",
        "UDate < NOW() - INTERVAL 1 HOUR",
        "FALSE",
        "size & 3",
        "url = 'it''s' OR url = \"a \\\" b\"",
    ] {
        assert!(!admits(no), "{no}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, at, words) in [
        ("", 1, "FROM"),
        ("SELECT url", 11, "FROM"),
        ("SELECT url FROM passwords", 17, "urls and sites"),
        ("SELECT nosuch FROM urls", 8, "no field nosuch"),
        ("SELECT url FROM urls WHERE size = 'x'", 28, "a number cannot be compared with a text"),
        ("SELECT url FROM urls WHERE UDate > 'soon'", 28, "no time"),
        ("SELECT url FROM urls WHERE url LIKE 7", 28, "LIKE"),
        ("SELECT url FROM urls WHERE url = 'x", 34, "quote"),
        ("SELECT url, COUNT(*) FROM urls", 8, "GROUP BY"),
        ("SELECT SUM(url) FROM urls", 12, "needs a number"),
        ("SELECT url FROM urls LIMIT 100000", 34, "at most"),
        ("SELECT url FROM urls; DROP TABLE urls", 21, "means nothing"),
        ("SELECT url FROM urls DELETE", 22, "should end"),
        ("SELECT id FROM sites WHERE status = 1", 28, "no field status"),
        ("SELECT COUNT(*) FROM urls ORDER BY size", 36, "not"),
    ] {
        let error = Query::parse(text).expect_err(text);
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.what.contains(words), "{text}: {error}");
    }
    let deep = format!("SELECT url FROM urls WHERE {}status = 1{}", "(".repeat(500), ")".repeat(500));
    assert!(Query::parse(&deep).unwrap_err().what.contains("deep"));
    let long = format!("SELECT url FROM urls WHERE url = '{}'", "x".repeat(QUERY_BYTES_MAX));
    assert!(Query::parse(&long).unwrap_err().what.contains("bytes"));
}

fn answer(query: &Query, parts: &[&[Fields]]) -> Table {
    let mut whole = Collector::new(query);
    for rows in parts {
        let mut part = Collector::new(query);
        rows.iter().for_each(|row| part.look(row, NOW).unwrap());
        whole.merge(part.part().unwrap()).unwrap();
    }
    whole.finish()
}

#[test]
fn rows_are_ordered_limited_and_left_out() {
    let query =
        Query::parse("select url, size from urls where size > 1 order by size desc, url limit 2 offset 1").unwrap();
    let here = [page("b", 7, 30, 0), page("a", 7, 30, 0), page("x", 7, 1, 0)];
    let there = [page("c", 7, 50, 0), page("d", 7, 20, 0)];
    let Table { head, rows } = answer(&query, &[&here, &there]);
    assert_eq!(head, ["url", "size"]);
    let text = |text: &str| Value::text(text);
    assert_eq!(rows, [[text("a"), Value::Int(30)], [text("b"), Value::Int(30)]]);
}

#[test]
fn groups_are_counted_over_all_parts() {
    let query = Query::parse(
        "SELECT status, COUNT(*), SUM(size), AVG(size), MIN(url), MAX(size), COUNT(title) FROM urls GROUP BY status ORDER BY COUNT(*) DESC",
    );
    let query = query.unwrap();
    let here = [page("b", 7, 30, 0), page("a", 4, 5, 0)];
    let there = [page("c", 7, 50, 0)];
    let rows = answer(&query, &[&here, &there]).rows;
    let whole = |n| Value::Int(n);
    assert_eq!(
        rows,
        [
            vec![whole(7), whole(2), whole(80), Value::Float(40.0), Value::text("b"), whole(50), whole(0)],
            vec![whole(4), whole(1), whole(5), Value::Float(5.0), Value::text("a"), whole(5), whole(0)],
        ]
    );
    let nothing = Query::parse("SELECT COUNT(*), SUM(size), MAX(size) FROM urls").unwrap();
    assert_eq!(answer(&nothing, &[]).rows, [[whole(0), Value::Null, Value::Null]]);
}

#[test]
fn parts_of_another_query_are_refused() {
    let rows = Query::parse("SELECT url FROM urls").unwrap();
    let groups = Query::parse("SELECT COUNT(*) FROM urls").unwrap();
    let part = Collector::new(&groups).part().unwrap();
    assert_eq!(Collector::new(&rows).merge(part), Err(CollectError::Foreign));
    let torn = Part::Rows(vec![(Vec::new(), Vec::new())]);
    assert_eq!(Collector::new(&rows).merge(torn), Err(CollectError::Foreign));
}

#[test]
fn it_is_known_which_sites_a_query_is_about() {
    let sites = |condition: &str| {
        let query = Query::parse(&format!("SELECT url FROM urls WHERE {condition}")).unwrap();
        query.sites().map(|sites| sites.join(" "))
    };
    assert_eq!(sites("siteId = 'a' AND size > 3"), Some("a".into()));
    assert_eq!(sites("siteId IN ('a', 'b')"), Some("a b".into()));
    assert_eq!(sites("siteId = 'a' OR siteId = 'b' AND size = 1"), Some("a b".into()));
    assert_eq!(sites("siteId = 'a' OR size = 1"), None);
    assert_eq!(sites("NOT siteId = 'a'"), None);
}

/// Plain backtracking, as an oracle.
fn like_by_trying(text: &[char], pattern: &[char]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some(('%', rest)) => (0..=text.len()).any(|at| like_by_trying(&text[at..], rest)),
        Some((c, rest)) => {
            text.split_first().is_some_and(|(first, after)| (*c == '_' || c == first) && like_by_trying(after, rest))
        }
    }
}

proptest! {
    #[test]
    fn like_finds_what_trying_everything_finds(text in "[ab]{0,8}", pattern in "[ab%_]{0,6}") {
        let chars = |text: &str| text.chars().collect::<Vec<char>>();
        prop_assert_eq!(like(&text, &pattern), like_by_trying(&chars(&text), &chars(&pattern)));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,80}") {
        let _ = Query::parse(&text);
        let _ = Condition::parse(Source::Sites, &text);
    }

    #[test]
    fn no_soup_of_words_makes_it_panic(words in proptest::collection::vec(
        prop_oneof![
            Just("SELECT"), Just("url"), Just("FROM"), Just("urls"), Just("WHERE"), Just("("), Just(")"), Just("="), Just("7"),
            Just("'x'"), Just("NOT"), Just("AND"), Just("IN"), Just(","), Just("-"), Just("NOW()"), Just("INTERVAL"), Just("DAY"),
            Just("size"), Just("IS"), Just("NULL"), Just("LIMIT"), Just("ORDER"), Just("BY"), Just("COUNT"), Just("*"), Just("UDate"),
        ], 0..24)) {
        let text = words.join(" ");
        if let Ok(query) = Query::parse(&text) {
            let mut all = Collector::new(&query);
            let _ = all.look(&page("http://a.example/", 7, 3, NOW), NOW);
            all.finish();
        }
        if let Ok(condition) = Condition::parse(Source::Urls, &text) {
            condition.admits(&page("http://a.example/", 7, 3, NOW), NOW);
        }
    }

    #[test]
    fn how_rows_are_shared_out_does_not_matter(
        rows in proptest::collection::vec((0..4i64, 0..100i64), 0..40),
        cut in 0..40usize,
        limit in 0..12usize,
    ) {
        let pages: Vec<Fields> =
            rows.iter().enumerate().map(|(at, (status, size))| page(&format!("{at:03}"), *status, *size, 0)).collect();
        let cut = cut.min(pages.len());
        for text in [
            format!("SELECT url, size FROM urls WHERE size > 10 ORDER BY size DESC, url LIMIT {limit}"),
            "SELECT status, COUNT(*), SUM(size) FROM urls GROUP BY status".to_owned(),
        ] {
            let query = Query::parse(&text).unwrap();
            prop_assert_eq!(answer(&query, &[&pages]), answer(&query, &[&pages[..cut], &pages[cut..]]));
        }
    }
}
