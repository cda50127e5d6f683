//! Holds the access log of a server, which knows nothing of the crawler, against the rules.

use std::collections::BTreeMap;

use simulation::world::server::{Access, Server};
use simulation::world::web::{Expected, Verdict};

/// Whether a request was for a robots.txt, wherever it lies.
pub fn is_robots(access: &Access) -> bool {
    access.path.ends_with("robots.txt")
}

/// How often each page was requested, by URL; robots.txt files left out.
pub fn page_requests(server: &Server, log: &[Access]) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for access in log.iter().filter(|access| !is_robots(access)) {
        *counts.entry(server.url(access)).or_default() += 1;
    }
    counts
}

/// Asserts that nothing was requested that must not be, or that no link of the web leads to.
pub fn assert_nothing_forbidden(server: &Server, log: &[Access], expected: &Expected) {
    let mut wrong: BTreeMap<String, Verdict> = BTreeMap::new();
    for access in log {
        let url = server.url(access);
        match expected.judge(&url) {
            Verdict::Must | Verdict::May => {}
            verdict => drop(wrong.insert(url, verdict)),
        }
    }
    assert!(wrong.is_empty(), "requested against the plan: {wrong:#?}");
}

/// Asserts that the requests of each `group` (a host, an address) never overlap and keep its delay, in milliseconds: from
/// arrival to arrival, and from the end of one to the arrival of the next.
pub fn assert_spaced(log: &[Access], group: impl Fn(&Access) -> String, delay_ms: impl Fn(&str) -> u64) {
    let mut last: BTreeMap<String, &Access> = BTreeMap::new();
    let mut wrong = Vec::new();
    for access in log {
        let group = group(access);
        let delay_us = delay_ms(&group) * 1_000;
        if let Some(before) = last.insert(group.clone(), access) {
            // One that left in the middle was gone a little before the server saw it.
            let ended = if before.aborted { before.at_us } else { before.finished_us.unwrap_or(u64::MAX) };
            if access.at_us < ended.saturating_add(delay_us) || access.at_us < before.at_us + delay_us {
                wrong.push(format!(
                    "{group}: {} us, then {} us after its end: {before:?}, {access:?}",
                    access.at_us - before.at_us,
                    access.at_us as i128 - i128::from(ended)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} requests came too soon:\n{}", wrong.len(), wrong.join("\n"));
}

/// Asserts that a host was asked for its robots.txt before anything else.
pub fn assert_robots_first(log: &[Access]) {
    let mut first: BTreeMap<&str, &Access> = BTreeMap::new();
    for access in log {
        // A file that other hosts' robots.txt redirects to is no page.
        if access.path != "/shared-robots.txt" {
            first.entry(&access.host).or_insert(access);
        }
    }
    for (host, access) in first {
        assert_eq!(access.path, "/robots.txt", "{host} was asked for a page before its robots.txt");
    }
}
