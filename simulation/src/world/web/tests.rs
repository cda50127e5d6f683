//! The web against itself: same bytes for the same seed, and an oracle that agrees with reading the pages.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use xxhash_rust::xxh3::Xxh3Default;

use super::*;

/// Every URL the oracle knows, as host and path.
fn every_place(web: &Web) -> Vec<(u32, String)> {
    let expected = web.expected();
    let urls = expected.must.keys().chain(expected.may.keys()).chain(expected.never.keys());
    let place = |url: &String| {
        let rest = url.strip_prefix("http://").unwrap();
        let (authority, path) = rest.split_at(rest.find('/').unwrap());
        (web.host_number(authority.split(':').next().unwrap()).unwrap(), path.to_owned())
    };
    let robots = (0..web.host_count()).map(|host| (host, "/robots.txt".to_owned()));
    urls.map(place).chain(robots).collect()
}

fn answer(web: &Web, host: u32, path: &str) -> Answer {
    web.respond(&Request::get(&web.host_name(host), path), Visit::default())
}

fn hash_of(answer: &Answer) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher
        .update(format!("{} {} {:?} {:?}", answer.status, answer.delay_ms, answer.delivery, answer.headers).as_bytes());
    hasher.update(&answer.body);
    hasher.digest()
}

fn hash_of_all<'a>(web: &Web, places: impl IntoIterator<Item = &'a (u32, String)>) -> BTreeMap<(u32, String), u64> {
    places.into_iter().map(|place| (place.clone(), hash_of(&answer(web, place.0, &place.1)))).collect()
}

#[test]
fn same_seed_gives_the_same_bytes_in_any_order_of_requests() {
    let web = Web::new(WebPlan::small(7));
    let places = every_place(&web);
    assert!(places.len() > 300, "{}", places.len());
    let forwards = hash_of_all(&web, &places);
    assert_eq!(forwards, hash_of_all(&Web::new(WebPlan::small(7)), places.iter().rev()));
    let other = hash_of_all(&Web::new(WebPlan::small(8)), [&(0, "/".to_owned())]);
    assert_ne!(forwards[&(0, "/".to_owned())], other[&(0, "/".to_owned())]);
}

/// A plan in `simulation/corpus` means the same web for ever, or the bug it shows is lost. Whoever changes this number
/// changes what stored plans mean. Compressed bodies are left out: their bytes belong to another library.
#[test]
fn bytes_of_a_small_web_are_those_they_always_were() {
    let plan = WebPlan::small(7).with_oddity(Oddity::Bodies, 0).with_oddity(Oddity::Syndication, 0).with_names();
    let web = Web::new(plan);
    let mut hasher = Xxh3Default::new();
    for ((host, path), hash) in hash_of_all(&web, &every_place(&web)) {
        hasher.update(format!("{host} {path} {hash}\n").as_bytes());
    }
    assert_eq!(hasher.digest(), GOLDEN, "{:#x}", hasher.digest());
}
const GOLDEN: u64 = 0x0c9e_356c_0ce7_5fde;

#[test]
fn plans_survive_being_stored() {
    let plan = WebPlan::demo(3);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<WebPlan>(&text).unwrap(), plan);
    assert!(serde_json::from_str::<WebPlan>(r#"{"sead": 3}"#).is_err());
}

#[test]
fn http_dates_read_back_what_they_wrote() {
    assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    for unix_s in (0..4_000_000_000u64).step_by(7_654_321) {
        assert_eq!(unix_from_http_date(&http_date(unix_s)), Some(unix_s));
    }
}

#[test]
fn host_names_and_numbers_agree() {
    for plan in [WebPlan::small(1), WebPlan::small(1).with_names(), WebPlan::bench(1, 70_000, 1)] {
        let web = Web::new(plan);
        for host in (0..web.host_count()).step_by(1 + web.host_count() as usize / 5_000) {
            assert_eq!(web.host_number(&web.host_name(host)), Some(host));
            assert_eq!(web.host_number(&web.host_name(host).to_uppercase()), Some(host));
        }
        for wrong in ["", "localhost", "127.0.0.1", "127.77.255.1", "www.anchor0.test", "10.77.0.1", "slow.odd7.test"] {
            assert_eq!(web.host_number(wrong), None, "{wrong}");
        }
    }
}

#[test]
fn paths_and_pages_agree() {
    let web = Web::new(WebPlan::bench(3, 5, 400));
    for (host, page) in (0..5).flat_map(|host| (0..400).map(move |page| (host, page))) {
        assert_eq!(web.page_at(host, &web.page_path(host, page)), Some(page));
    }
    assert_eq!(web.page_at(0, "/nothing-1"), None);
    assert_eq!(web.page_at(0, &web.page_path(0, 399).replace("399", "400")), None);
}

#[test]
fn few_pages_get_most_links() {
    let web = Web::new(WebPlan::bench(5, 10, 200));
    let mut links_to: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for (host, page) in (0..10).flat_map(|host| (0..200).map(move |page| (host, page))) {
        for link in web.page_links(host, page) {
            *links_to.entry((link.host, link.page)).or_default() += 1;
        }
    }
    let mut counts: Vec<u32> = links_to.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let tenth: u32 = counts[..counts.len() / 10].iter().sum();
    assert!(tenth * 2 > counts.iter().sum::<u32>() * 7 / 10, "a tenth of the pages has {tenth} links");
    assert!(counts.len() == 2_000, "every page is linked");
}

/// A robots.txt as a child would read it: only the group of everyone, longest match wins.
struct NaiveRobots(Vec<(bool, String)>);

impl NaiveRobots {
    fn of(web: &Web, host: u32) -> NaiveRobots {
        let mut answer = answer(web, host, "/robots.txt");
        if answer.status == 302 {
            let location = answer.header_value("location").unwrap().to_owned();
            let path = location.strip_prefix(&web.url(0, "")).expect("redirects to host 0");
            answer = self::answer(web, 0, path);
        }
        match answer.status {
            200 => NaiveRobots::read(&String::from_utf8_lossy(&answer.body[..answer.body.len().min(500 << 10)])),
            400..=499 => NaiveRobots(Vec::new()),
            _ => NaiveRobots(vec![(false, "/".into())]),
        }
    }

    fn read(text: &str) -> NaiveRobots {
        let (mut rules, mut everyone) = (Vec::new(), false);
        for line in text.trim_start_matches('\u{feff}').lines() {
            let line = line.split('#').next().unwrap();
            let Some((field, value)) = line.split_once(':') else { continue };
            match (field.trim().to_ascii_lowercase().as_str(), value.trim()) {
                ("user-agent", agent) => everyone = agent == "*",
                ("allow", rule) if everyone && !rule.is_empty() => rules.push((true, rule.to_owned())),
                ("disallow", rule) if everyone && !rule.is_empty() => rules.push((false, rule.to_owned())),
                _ => {}
            }
        }
        NaiveRobots(rules)
    }

    fn allows(&self, path: &str) -> bool {
        let matching = self.0.iter().filter(|(_, rule)| {
            let (rule, anchored) = rule.strip_suffix('$').map_or((rule.as_str(), false), |rule| (rule, true));
            let mut pieces = rule.split('*');
            let Some(mut rest) = path.strip_prefix(pieces.next().unwrap()) else { return false };
            for piece in pieces {
                let found = if anchored { rest.rfind(piece) } else { rest.find(piece) };
                let Some(at) = found else { return false };
                rest = &rest[at + piece.len()..];
            }
            !anchored || rest.is_empty()
        });
        matching.max_by_key(|(allow, rule)| (rule.len(), *allow)).is_none_or(|(allow, _)| *allow)
    }
}

#[test]
fn robots_variants_mean_what_they_declare() {
    let web = Web::new(WebPlan::small(2));
    let all: BTreeSet<String> = (0..web.host_count()).map(|host| format!("{:?}", web.robots(host))).collect();
    assert_eq!(all.len(), Robots::ALL.len(), "the small web has every variant");
    let paths = ["/", "/private/x-1.html", "/private/a-2.html", "/print/x-3.htm", "/list?id=4&sort=asc", "/x/y-5.html"];
    for host in 0..web.plan.hosts {
        let (robots, read) = (web.robots(host), NaiveRobots::of(&web, host));
        for path in paths {
            let duty = robots.duty(path);
            assert_eq!(read.allows(path), duty != Duty::Never, "{robots:?} {path}");
        }
    }
    let huge = (0..20).find(|host| web.robots(*host) == Robots::Huge).unwrap();
    assert!(answer(&web, huge, "/robots.txt").body.len() > 512_000);
    let failing = (0..20).find(|host| web.robots(*host) == Robots::ErrorForAWhile).unwrap();
    assert!(web.counts_visits(failing, "/robots.txt"));
    let statuses = [0, 1, 2].map(|earlier| {
        let visit = Visit { earlier: Some(earlier), ..Visit::default() };
        web.respond(&Request::get(&web.host_name(failing), "/robots.txt"), visit).status
    });
    assert_eq!(statuses, [500, 500, 200]);
    let delayed = (0..20).find(|host| web.robots(*host) == Robots::CrawlDelay).unwrap();
    assert!(answer(&web, delayed, "/robots.txt").body.ends_with(b"Crawl-delay: 0.1\n"));
    assert_eq!(web.crawl_delay_ms(delayed), 100);
}

/// What stands in `name="…"` of a tag, undone from entities.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let value = tag.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?;
    Some(value.replace("&#x2F;", "/").replace("&#38;", "&").replace("&amp;", "&"))
}

/// Links of a page as a child would find them, or the target of a redirect.
fn naive_links(from: &url::Url, answer: &Answer) -> Vec<url::Url> {
    let mut out: Vec<url::Url> =
        answer.header_value("location").and_then(|location| from.join(location).ok()).into_iter().collect();
    let html = String::from_utf8_lossy(&answer.body);
    let nofollow_page = html.contains("content=\"nofollow\"")
        || answer.headers.iter().any(|(name, value)| name == "x-robots-tag" && value == "nofollow");
    if answer.status == 200 && !nofollow_page {
        for tag in html.split("<a").skip(1) {
            let tag = tag.split('>').next().unwrap();
            if attribute(tag, "rel").is_some_and(|rel| rel.to_lowercase().contains("nofollow")) {
                continue;
            }
            out.extend(attribute(tag, "href").and_then(|href| from.join(&href).ok()));
        }
    }
    for url in &mut out {
        url.set_fragment(None);
        let kept: Vec<String> = url
            .query()
            .map(|query| query.split('&').filter(|pair| !pair.starts_with("utm_")).map(str::to_owned).collect())
            .unwrap_or_default();
        url.set_query((!kept.is_empty()).then(|| kept.join("&")).as_deref());
    }
    out
}

/// Reads pages from the seeds on and returns the URLs requested.
fn naive_walk(web: &Web) -> BTreeSet<String> {
    let mut robots: BTreeMap<u32, NaiveRobots> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<url::Url> = web.seeds().iter().map(|seed| url::Url::parse(seed).unwrap()).collect();
    while let Some(url) = open.pop() {
        let Some(host) = url.host_str().and_then(|host| web.host_number(host)) else { continue };
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let allowed = robots.entry(host).or_insert_with(|| NaiveRobots::of(web, host)).allows(path);
        if !allowed || !seen.insert(url.to_string()) || web.is_down(host) {
            continue;
        }
        let answer = answer(web, host, path);
        open.extend(naive_links(&url, &answer).into_iter().filter(|url| url.scheme() == "http"));
    }
    seen
}

#[test]
fn oracle_agrees_with_reading_plain_pages() {
    for plan in [WebPlan::small(7), WebPlan::small(8).with_names(), WebPlan { port: 8080, ..WebPlan::demo(9) }] {
        let web = Web::new(WebPlan { pages_per_host: 60, ..plan.without_oddities() });
        let expected = web.expected();
        let walked = naive_walk(&web);
        let oracle: BTreeSet<String> = expected.must.keys().chain(expected.may.keys()).cloned().collect();
        assert_eq!(walked.difference(&oracle).next(), None, "read, but not expected");
        assert_eq!(oracle.difference(&walked).next(), None, "expected, but not read");
        assert!(expected.never.keys().all(|url| !walked.contains(url)));
        assert!(expected.never.values().any(|why| *why == expected::Why::Robots));
        assert!(walked.len() > 500);
    }
}

#[test]
fn oracle_agrees_with_reading_odd_pages_that_are_plainly_written() {
    let simple = [
        Oddity::Redirects,
        Oddity::Slow,
        Oddity::Statuses,
        Oddity::Flapping,
        Oddity::Unavailable,
        Oddity::Down,
        Oddity::Duplicates,
        Oddity::Freshness,
    ];
    let plan = simple.into_iter().fold(WebPlan::default(), |plan, oddity| plan.with_oddity(oddity, 2));
    let web = Web::new(plan);
    let expected = web.expected();
    let walked = naive_walk(&web);
    let oracle: BTreeSet<String> = expected.must.keys().chain(expected.may.keys()).cloned().collect();
    assert_eq!(walked.difference(&oracle).next(), None, "read, but not expected");
    assert_eq!(oracle.difference(&walked).next(), None, "expected, but not read");
}

#[test]
fn every_odd_page_names_what_it_leads_to() {
    let web = Web::new(WebPlan::small(4));
    for host in web.plan.hosts..web.host_count() {
        let HostKind::Odd(oddity, _) = web.host_kind(host) else { unreachable!() };
        for exhibit in odd::exhibits(oddity) {
            let answer = answer(&web, host, exhibit.path);
            assert_ne!((answer.status, exhibit.kind == Kind::Error), (404, false), "{}", exhibit.path);
            let text = readable(&answer);
            for (target, _) in exhibit.leads_to.iter().filter(|(target, _)| target.starts_with("/leaf/")) {
                let name = target["/leaf/".len()..].split('?').next().unwrap();
                let unusual = ["newline", "a%20space", "%C3%BCber", "back/slash", "m9"].contains(&name);
                assert!(unusual || text.contains(name), "{} does not name {target}", exhibit.path);
            }
            if let Some(original) = exhibit.same_as {
                assert_eq!(answer, self::answer(&web, host, original));
            }
        }
    }
}

/// Headers and body of an answer, unpacked if need be, letters in other encodings lost.
fn readable(answer: &Answer) -> String {
    let mut body = answer.body.to_vec();
    let (mut gzip, mut zlib) = (Vec::new(), Vec::new());
    if flate2::read::GzDecoder::new(&answer.body[..]).take(1 << 20).read_to_end(&mut gzip).is_ok() || !gzip.is_empty() {
        body.append(&mut gzip);
    }
    if flate2::read::ZlibDecoder::new(&answer.body[..]).read_to_end(&mut zlib).is_ok() {
        body.append(&mut zlib);
    }
    body.retain(|byte| *byte != 0); // UTF-16
    format!("{:?} {}", answer.headers, String::from_utf8_lossy(&body))
}

#[test]
fn traps_go_on_for_ever() {
    let plan = WebPlan::default()
        .with_oddity(Oddity::CalendarTrap, 1)
        .with_oddity(Oddity::PathTrap, 1)
        .with_oddity(Oddity::QueryTrap, 1)
        .with_oddity(Oddity::SessionTrap, 1);
    let web = Web::new(plan);
    let expected = web.expected();
    assert_eq!(expected.unbounded.len(), 4);
    for host in web.plan.hosts..web.host_count() {
        let mut seen = BTreeSet::new();
        let mut open = vec![url::Url::parse(&web.url(host, "/")).unwrap()];
        while let Some(url) = open.pop().filter(|_| seen.len() < 500) {
            if seen.insert(url.to_string()) {
                assert_ne!(expected.judge(url.as_str()), Verdict::Unplanned, "{url}");
                let answer = answer(&web, host, &url[url::Position::BeforePath..]);
                assert_eq!(answer.status, 200, "{url}");
                open.extend(naive_links(&url, &answer));
            }
        }
        assert_eq!(seen.len(), 500, "{:?}", web.host_kind(host));
    }
}

#[test]
fn conditions_are_answered_with_304_until_the_content_changes() {
    let web = Web::new(WebPlan::small(5));
    let host = web.odd_host(Oddity::Freshness).unwrap();
    let name = web.host_name(host);
    let at = |path: &str, headers: &[(&str, &str)], epoch| {
        let request = Request { headers, ..Request::get(&name, path) };
        web.respond(&request, Visit { epoch, ..Visit::default() })
    };
    for path in ["/fresh/stable", "/fresh/changing", "/fresh/etag-only", "/fresh/modified-only", "/fresh/weak-etag"] {
        let first = at(path, &[], 0);
        let tag = first.header_value("etag").map(|tag| ("if-none-match", tag));
        let date = first.header_value("last-modified").map(|date| ("if-modified-since", date));
        for condition in [tag, date].into_iter().flatten() {
            let again = at(path, &[condition], 0);
            assert_eq!((again.status, again.body.len()), (304, 0), "{path} {condition:?}");
            assert_eq!(again.headers, first.headers);
            let later = at(path, &[condition], 1);
            let stays = path == "/fresh/stable";
            assert_eq!(later.status, if stays { 304 } else { 200 }, "{path} {condition:?}");
            assert_eq!(at(path, &[], 1).body == first.body, stays);
        }
    }
    let stable = at("/fresh/stable", &[], 0);
    let (tag, date) = (stable.header_value("etag").unwrap(), stable.header_value("last-modified").unwrap());
    let many = format!("\"other\", {tag}");
    assert_eq!(at("/fresh/stable", &[("if-none-match", &many)], 0).status, 304);
    assert_eq!(at("/fresh/stable", &[("if-none-match", "*")], 0).status, 304);
    // The tag decides even if the date would say otherwise.
    assert_eq!(at("/fresh/stable", &[("if-none-match", "\"x\""), ("if-modified-since", date)], 0).status, 200);
    assert_eq!(at("/fresh/stable", &[("if-modified-since", "yesterday")], 0).status, 200);
    assert_eq!(at("/fresh/no-validators", &[("if-none-match", tag)], 0).status, 200);
}

#[test]
fn epochs_change_what_is_expected() {
    let web = Web::new(WebPlan::small(6));
    let host = web.odd_host(Oddity::Freshness).unwrap();
    let (first, third) = (web.expected(), web.expected_at(2));
    let kinds = |path| [&first, &third].map(|expected| expected.must.get(&web.url(host, path)).map(|it| it.kind));
    assert_eq!(kinds("/fresh/gone-later"), [Some(Kind::Page), Some(Kind::Error)]);
    assert_eq!(kinds("/fresh/comes-later"), [Some(Kind::Error), Some(Kind::Page)]);
    assert_eq!(kinds("/leaf/epoch-2"), [None, Some(Kind::Page)]);
    let changed = (0..web.plan.pages_per_host).filter(|page| {
        let at = |epoch| web.page_answer(1, *page, &Visit { epoch, ..Visit::default() });
        assert_eq!(at(0).header_value("etag") == at(1).header_value("etag"), at(0).body == at(1).body);
        at(0).body != at(1).body
    });
    assert!((1..12).contains(&changed.count()));
}

#[test]
fn oracle_tells_the_three_duties_apart() {
    let web = Web::new(WebPlan::small(1));
    let expected = web.expected();
    let judge = |oddity, path| expected.judge(&web.url(web.odd_host(oddity).unwrap(), path));
    assert_eq!(judge(Oddity::LinkForms, "/leaf/iframe"), Verdict::Must);
    assert_eq!(judge(Oddity::LinkForms, "/leaf/img-2x"), Verdict::May);
    assert_eq!(judge(Oddity::LinkForms, "/leaf/commented"), Verdict::Never(expected::Why::NotFollowed));
    assert_eq!(judge(Oddity::LinkForms, "/forms/leaf/relative"), Verdict::Unplanned);
    assert_eq!(judge(Oddity::RobotsMeta, "/leaf/header-none"), Verdict::Never(expected::Why::NotFollowed));
    assert_eq!(judge(Oddity::RobotsMeta, "/leaf/rel-twice"), Verdict::Must);
    assert_eq!(judge(Oddity::CalendarTrap, "/calendar/2024/1"), Verdict::Must);
    assert_eq!(judge(Oddity::CalendarTrap, "/calendar/2031/7"), Verdict::May);
    assert_eq!(judge(Oddity::Syndication, "/leaf/sitemap-gzip-1"), Verdict::May);
    assert_eq!(judge(Oddity::Redirects, "/redirects/long-chain?hop=30"), Verdict::May);
    assert_eq!(judge(Oddity::Redirects, "/redirects/chain-3"), Verdict::Must);
    assert_eq!(judge(Oddity::Slow, "/robots.txt"), Verdict::May);
    assert_eq!(expected.must[&web.url(web.odd_host(Oddity::Down).unwrap(), "/")].kind, Kind::Refused);
    let closed = (0..20).find(|host| web.robots(*host) == Robots::DisallowAll).unwrap();
    assert_eq!(expected.judge(&web.url(closed, "/")), Verdict::Never(expected::Why::Robots));
}
