use proptest::prelude::*;

use super::*;

fn robots(body: &str) -> Robots {
    Robots::parse(body.as_bytes(), "FooBot")
}

/// Each case: the file, a path, and whether FooBot may fetch it.
#[track_caller]
fn assert_answers(cases: &[(&str, &str, bool)]) {
    for (body, path, allowed) in cases {
        assert_eq!(robots(body).allows(path), *allowed, "{path} by {body:?}");
    }
}

/// Each case: a pattern, paths it matches, paths it does not.
#[track_caller]
fn assert_matches(cases: &[(&str, &[&str], &[&str])]) {
    for (pattern, matching, others) in cases {
        let robots = robots(&format!("User-agent: *\nDisallow: {pattern}\n"));
        for path in *matching {
            assert!(!robots.allows(path), "{pattern} should match {path}");
        }
        for path in *others {
            assert!(robots.allows(path), "{pattern} should not match {path}");
        }
    }
}

#[test]
fn without_rules_everything_is_allowed() {
    assert_answers(&[
        ("", "/", true),
        ("User-agent: *\n", "/x", true),
        ("User-agent: *\nDisallow:\n", "/x", true),
        ("Disallow: /\n", "/x", true),
        ("User-agent: BarBot\nDisallow: /\n", "/x", true),
        ("<html><body>Not found: 404</body></html>", "/x", true),
    ]);
    assert!(Robots::allow_all().allows("/x"));
    assert!(!Robots::forbid_all().allows("/x"));
}

#[test]
fn the_group_of_the_rfc_that_names_us_is_the_one_that_counts() {
    // RFC 9309, 5.1.
    let body = "User-Agent: *\nDisallow: *.gif$\nDisallow: /example/\nAllow: /publications/\n\n\
                User-Agent: foobot\nDisallow:/\nAllow:/example/page.html\nAllow:/example/allowed.gif\n\n\
                User-Agent: barbot\nUser-Agent: bazbot\nDisallow: /example/page.html\n\n\
                User-Agent: quxbot\n";
    let cases = [
        ("foobot", "/example/page.html", true),
        ("foobot", "/example/allowed.gif", true),
        ("foobot", "/publications/", false),
        ("foobot", "/", false),
        ("barbot", "/example/page.html", false),
        ("bazbot", "/example/page.html", false),
        ("bazbot", "/example/", true),
        ("quxbot", "/example/", true),
        ("other", "/example/", false),
        ("other", "/a.gif", false),
        ("other", "/a.gif?x", true),
        ("other", "/publications/", true),
        ("other", "/", true),
    ];
    for (agent, path, allowed) in cases {
        assert_eq!(Robots::parse(body.as_bytes(), agent).allows(path), allowed, "{agent} {path}");
    }
}

#[test]
fn the_longest_match_decides() {
    // RFC 9309, 5.2, and Google's table of precedence.
    assert_answers(&[
        (
            "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif",
            "/example/page/disallowed.gif",
            false,
        ),
        ("User-agent: *\nAllow: /p\nDisallow: /", "/page", true),
        ("User-agent: *\nAllow: /folder\nDisallow: /folder", "/folder/page", true),
        ("User-agent: *\nDisallow: /folder\nAllow: /folder", "/folder/page", true),
        ("User-agent: *\nAllow: /page\nDisallow: /*.htm", "/page.htm", false),
        ("User-agent: *\nAllow: /page\nDisallow: /*.ph", "/page.php5", true),
        ("User-agent: *\nAllow: /$\nDisallow: /", "/", true),
        ("User-agent: *\nAllow: /$\nDisallow: /", "/page.htm", false),
        ("User-agent: *\nDisallow: /x/page.html\nAllow: /x/", "/x/page.html", false),
        ("User-agent: *\nDisallow: /x/page.html\nAllow: /x/", "/x/", true),
        ("User-agent: *\nDisallow: \nAllow: ", "/x", true),
        ("User-agent: *\nAllow: *a*b\nDisallow: /a/bb", "/a/bb", false),
        ("User-agent: *\nDisallow: /ab\nDisallow: /abcd\nAllow: /abc", "/abce", true),
        ("User-agent: *\nDisallow: /ab\nAllow: /abb\nAllow: /ac", "/abc", false),
    ]);
}

#[test]
fn patterns_are_beginnings_with_stars_and_an_end() {
    assert_matches(&[
        ("/", &["/", "/a?b"], &[]),
        (
            "/fish",
            &["/fish", "/fish.html", "/fish/salmon", "/fishheads", "/fish.php?id=x"],
            &["/Fish.asp", "/catfish", "/?id=fish", "/desert/fish"],
        ),
        ("/fish*", &["/fish", "/fishheads/yummy.html"], &["/Fish", "/catfish"]),
        ("/fish/", &["/fish/", "/fish/?id=x"], &["/fish", "/fish.html", "/animals/fish/"]),
        ("/*.php", &["/index.php", "/folder/a.php?p", "/folder/a.php.file/x", "/a.php/"], &["/", "/windows.PHP"]),
        ("/*.php$", &["/filename.php", "/a/b.php"], &["/filename.php?p", "/filename.php/", "/filename.php5"]),
        ("/fish*.php", &["/fish.php", "/fishheads/catfish.php?p"], &["/Fish.PHP"]),
        ("*", &["/", "/a"], &[]),
        ("*/b$", &["/b", "/a/b"], &["/b/", "/bb"]),
        ("/a***b", &["/ab", "/acb"], &["/a"]),
        ("/a*$", &["/a", "/ab"], &["/b"]),
        ("/a$", &["/a"], &["/ab", "/a$", "/a?"]),
        ("/a$b", &["/a$b", "/a$bc", "/a%24b"], &["/a", "/ab"]),
        ("*aa*aa$", &["/aaaa", "/aaxaa"], &["/aaa"]),
        ("/ab*ab$", &["/abab"], &["/ab"]),
        ("fish", &[], &["/fish", "/", "/a/fish"]),
        ("https://h.de/a", &[], &["/a", "/https://h.de/a"]),
        ("/?", &["/?", "/?a"], &["/", "/a?"]),
    ]);
}

#[test]
fn escapes_are_compared_by_what_they_mean() {
    assert_matches(&[
        ("/foo/bar/U+E38384", &["/foo/bar/U+E38384"], &["/foo/bar/%E3%83%84"]),
        ("/foo/bar/ツ", &["/foo/bar/%E3%83%84", "/foo/bar/%e3%83%84"], &["/foo/bar/"]),
        ("/foo/bar/%E3%83%84", &["/foo/bar/%E3%83%84", "/foo/bar/ツ"], &[]),
        ("/foo/bar/%62%61%7A", &["/foo/bar/baz", "/foo/bar/%62%61%7A"], &["/foo/bar/"]),
        ("/foo/bar/baz", &["/foo/bar/%62%61%7a"], &[]),
        ("/a%2fb", &["/a%2Fb"], &["/a/b"]),
        ("/a/b", &[], &["/a%2Fb"]),
        (
            "/path/file-with-a-%2A.html",
            &["/path/file-with-a-*.html", "/path/file-with-a-%2A.html"],
            &["/path/file-with-a-x.html"],
        ),
        ("/path/foo-%24", &["/path/foo-$", "/path/foo-$/x"], &["/path/foo-"]),
        ("/a b|{c}", &["/a%20b%7C%7Bc%7D", "/a%20b|%7Bc}"], &[]),
        ("/?q='", &["/?q=%27", "/?q='"], &[]),
        ("/%zz%", &["/%zz%", "/%25zz%25x"], &["/zz"]),
    ]);
}

#[test]
fn the_file_itself_is_always_allowed() {
    for robots in [Robots::forbid_all(), robots("User-agent: *\nDisallow: /robots.txt\nDisallow: /")] {
        assert!(robots.allows("/robots.txt") && robots.allows("/robots.txt?x"));
        assert!(!robots.allows("/robots.txt/x") && !robots.allows("/robots.txts"));
    }
    assert_eq!(RobotsAnswer::Unreachable.check("/robots.txt"), Ok(()));
}

#[test]
fn agents_are_compared_as_product_tokens() {
    for (agent, speaks_to_us) in [
        ("FooBot", true),
        ("foobot", true),
        ("FOOBOT/1.0", true),
        ("foobot (+http://h.de)", true),
        ("foobot Mozilla", true),
        ("foo", false),
        ("foobots", false),
        ("foobot-news", false),
        ("*", true),
        ("* foo", true),
        ("", false),
        ("/", false),
    ] {
        let body = format!("User-agent: {agent}\nDisallow: /\n");
        assert_eq!(!robots(&body).allows("/x"), speaks_to_us, "{agent}");
    }
    // A token without letters is nobody's name.
    assert!(Robots::parse(b"User-agent: 42\nDisallow: /", "42").allows("/"));
    assert!(!Robots::parse(b"User-agent: foobot\nDisallow: /", "FooBot/2.1 (x)").allows("/"));
}

#[test]
fn groups_for_the_same_agent_are_merged() {
    let body = "User-agent: foobot\nDisallow: /a\n\nUser-agent: *\nDisallow: /b\n\nUser-agent: FooBot\nDisallow: /c";
    for (path, allowed) in [("/a", false), ("/b", true), ("/c", false)] {
        assert_eq!(robots(body).allows(path), allowed, "{path}");
    }
    let body = "User-agent: *\nDisallow: /a\n\nUser-agent: barbot\nDisallow: /b\n\nUser-agent: *\nDisallow: /c";
    for (path, allowed) in [("/a", false), ("/b", true), ("/c", false)] {
        assert_eq!(robots(body).allows(path), allowed, "{path}");
    }
}

#[test]
fn an_empty_group_of_our_own_still_hides_the_one_for_all() {
    assert_answers(&[("User-agent: *\nDisallow: /\n\nUser-agent: foobot\nDisallow:\n", "/x", true)]);
    assert_answers(&[("User-agent: *\nDisallow: /\n\nUser-agent: foobot\n", "/x", true)]);
}

#[test]
fn blank_lines_and_other_records_do_not_end_a_group() {
    assert_answers(&[
        ("User-agent: foobot\n\n\nDisallow: /a\n\nDisallow: /b", "/b", false),
        ("User-agent: foobot\nSitemap: http://h.de/s\nUser-agent: barbot\nDisallow: /a", "/a", false),
        ("User-agent: foobot\nfoo: bar\nDisallow: /a", "/a", false),
        ("User-agent: foobot\nAllow: /x\nUser-agent: barbot\nDisallow: /a", "/a", true),
        ("User-agent: foobot\nDisallow:\nUser-agent: barbot\nDisallow: /a", "/a", true),
        ("User-agent: foobot\nCrawl-delay: 1\nUser-agent: barbot\nDisallow: /a", "/a", false),
    ]);
}

#[test]
fn the_file_may_be_written_in_many_ways() {
    assert_answers(&[
        ("\u{feff}User-agent: foobot\nDisallow: /a", "/a", false),
        ("User-agent: foobot\r\nDisallow: /a\r\n", "/a", false),
        ("User-agent: foobot\rDisallow: /a\r", "/a", false),
        ("user-AGENT:foobot\nDISALLOW:/a", "/a", false),
        ("  User-agent \t:  foobot  \n\tDisallow :\t/a \t", "/a", false),
        ("User-agent: foobot # that is us\nDisallow: /a # not this", "/a", false),
        ("User-agent foobot\nDisallow /a", "/a", false),
        ("User-agent: foobot\nDisallow: /a#b", "/a", false),
        ("User-agent: foobot\n#Disallow: /a", "/a", true),
        ("User-agent: foobot\nDisallow no page at all", "/no", true),
        ("Useragent: foobot\nDisallow: /a", "/a", false),
    ]);
    assert!(!Robots::parse(b"User-agent: foobot\nDisallow: /\xE3\x83", "foobot").allows("/%E3%83%84"));
}

#[test]
fn crawl_delays_are_read_with_care() {
    for (value, delay_ms) in [
        ("10", Some(10_000)),
        ("0.5", Some(500)),
        ("0", Some(0)),
        (" 2 # seconds", Some(2_000)),
        ("1e308", Some(CRAWL_DELAY_MS_MAX)),
        ("99999999999999999999999", Some(CRAWL_DELAY_MS_MAX)),
        ("-1", None),
        ("NaN", None),
        ("inf", None),
        ("1e999", None),
        ("ten", None),
        ("", None),
    ] {
        let body = format!("User-agent: *\nCrawl-delay: {value}\nDisallow: /a");
        assert_eq!(robots(&body).crawl_delay_ms(), delay_ms, "{value}");
    }
    assert_eq!(robots("Crawl-delay: 5").crawl_delay_ms(), None);
    assert_eq!(robots("User-agent: *\nCrawl-delay: 5\nAllow: /\nUser-agent: foobot\nAllow: /").crawl_delay_ms(), None);
    assert_eq!(robots("User-agent: foobot\nCrawl-delay: 5\nCrawl-delay: 2").crawl_delay_ms(), Some(5_000));
}

#[test]
fn sitemaps_are_taken_from_anywhere_and_bounded() {
    let body = "Sitemap: http://h.de/1\nUser-agent: barbot\nsitemap:http://h.de/2 # two\nDisallow: /\nSitemap:\n";
    assert_eq!(robots(body).sitemaps(), ["http://h.de/1", "http://h.de/2"]);
    assert_eq!(robots(&"Sitemap: http://h.de/\n".repeat(3_000)).sitemaps().len(), SITEMAPS_MAX);
    assert!(robots(&format!("Sitemap: http://h.de/{}", "a".repeat(URL_BYTES_MAX))).sitemaps().is_empty());
    assert!(Robots::parse(b"Sitemap: \xFF\xFE", "foobot").sitemaps().is_empty());
}

#[test]
fn what_lies_behind_500_kib_is_ignored_and_half_a_line_too() {
    let head = "User-agent: *\nDisallow: /a\n";
    let filler = |bytes: usize| format!("{head}#{}\n", "x".repeat(bytes - head.len() - 2));
    let behind = filler(ROBOTS_BYTES_MAX) + "Disallow: /b\n";
    assert!(!robots(&behind).allows("/a") && robots(&behind).allows("/b"));
    let across = filler(ROBOTS_BYTES_MAX - "Allow: /".len()) + "Allow: /ab\nDisallow: /b\n";
    assert!(!robots(&across).allows("/a"));
    let up_to_the_end = filler(ROBOTS_BYTES_MAX - "Disallow: /b".len()) + "Disallow: /b\nDisallow: /c\n";
    assert!(!robots(&up_to_the_end).allows("/b") && robots(&up_to_the_end).allows("/c"));
    let exactly = filler(ROBOTS_BYTES_MAX - "Disallow: /b".len()) + "Disallow: /b";
    assert!(!robots(&exactly).allows("/b"));
    assert!(robots(&"x".repeat(ROBOTS_BYTES_MAX + 1)).allows("/"));
}

#[test]
fn a_status_decides_what_a_missing_file_means() {
    let answer = |fetched| RobotsAnswer::from_fetch(fetched, "foobot");
    let body: &[u8] = b"User-agent: *\nDisallow: /a";
    for status in 100..=999 {
        let answer = answer(Ok((status, body)));
        match status {
            200..=299 => assert!(matches!(answer, RobotsAnswer::Rules(_)), "{status}"),
            429 => assert_eq!(answer, RobotsAnswer::Unreachable),
            300..=499 => assert_eq!(answer, RobotsAnswer::Absent, "{status}"),
            _ => assert_eq!(answer, RobotsAnswer::Unreachable, "{status}"),
        }
        if status >= 300 {
            assert_eq!(answer, RobotsAnswer::from_fetch(Err(Failure::Http(status)), "foobot"));
        }
    }
    assert_eq!(answer(Err(Failure::RedirectsTooMany)), RobotsAnswer::Absent);
    for failure in [Failure::Timeout, Failure::DnsNotFound, Failure::TlsFailed, Failure::AddressRefused, Failure::Lost]
    {
        assert_eq!(answer(Err(failure)), RobotsAnswer::Unreachable, "{failure}");
    }
}

#[test]
fn an_answer_says_why_a_page_is_forbidden() {
    let rules = RobotsAnswer::from_fetch(Ok((200, b"User-agent: *\nDisallow: /a")), "foobot");
    assert_eq!(rules.check("/a"), Err(Failure::RobotsForbidden));
    assert_eq!(rules.check("/b"), Ok(()));
    assert_eq!(RobotsAnswer::Absent.check("/a"), Ok(()));
    assert_eq!(RobotsAnswer::Unreachable.check("/a"), Err(Failure::RobotsUnavailable));
    assert!(!RobotsAnswer::Unreachable.into_robots().allows("/a"));
    assert!(RobotsAnswer::Absent.into_robots().allows("/a"));
}

/// As many searching rules as fit into a file, each of which has to look at the whole path.
fn hostile_file() -> String {
    let rules = (0..33_000).map(|n| format!("Disallow:*a{n:03x}\n"));
    std::iter::once("User-agent: *\n".to_owned()).chain(rules).collect()
}

#[test]
fn a_question_that_would_take_too_long_is_answered_with_no() {
    let robots = robots(&hostile_file());
    assert!(!robots.allows(&format!("/{}", "a".repeat(7_999))));
    assert!(robots.allows("/a/path/of/ordinary/length?with=a&query=too"));
}

/// Prints microseconds per question: `cargo test --release -p proto -- --ignored --nocapture robots_speed`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_types)]
fn robots_speed() {
    let wild = robots(&hostile_file());
    let stars = robots(&format!("User-agent: *\nDisallow: /{}b$\nDisallow: /{}c", "*a".repeat(60), "a*".repeat(60)));
    let plain = (0..20_000).map(|n| format!("Disallow: /page/{n}/x\n")).collect::<String>();
    let plain = robots(&format!("User-agent: *\n{plain}"));
    let long = format!("/{}", "a".repeat(7_999));
    for (name, robots, path) in [
        ("33,000 wildcards, 8,000 bytes", &wild, long.as_str()),
        ("33,000 wildcards, 40 bytes", &wild, "/a/path/of/ordinary/length?with=a&query"),
        ("two rules of 60 stars, 8,000 bytes", &stars, long.as_str()),
        ("20,000 prefixes", &plain, "/page/10000/y"),
    ] {
        let start = std::time::Instant::now();
        for _ in 0..10 {
            std::hint::black_box(robots.allows(std::hint::black_box(path)));
        }
        println!("{:>9} us  {name}", start.elapsed().as_micros() as f64 / 10.0);
    }
}

/// Whether `pattern` matches, by the table of all pairs of ends.
fn matches_by_table(pattern: &[u8], path: &[u8]) -> bool {
    let (pattern, anchored) = match pattern.strip_suffix(b"$") {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut row = vec![false; path.len() + 1]; // row[j]: what is read of the pattern matches path[..j]
    row[0] = true;
    for &byte in pattern {
        let mut next = vec![false; path.len() + 1];
        for j in 0..=path.len() {
            next[j] = match byte {
                b'*' => row[j] || j > 0 && next[j - 1],
                _ => j > 0 && row[j - 1] && path[j - 1] == byte,
            };
        }
        row = next;
    }
    if anchored { row[path.len()] } else { row.contains(&true) }
}

fn allows_by_table(rules: &[(String, bool)], path: &str) -> bool {
    let matching = rules.iter().filter(|(pattern, _)| matches_by_table(pattern.as_bytes(), path.as_bytes()));
    matching.map(|(pattern, allow)| (pattern.len(), *allow)).max().is_none_or(|(_, allow)| allow)
}

fn body_of(rules: &[(String, bool)]) -> String {
    let line =
        |(pattern, allow): &(String, bool)| format!("{}: {pattern}\n", if *allow { "Allow" } else { "Disallow" });
    std::iter::once("User-agent: *\n".to_owned()).chain(rules.iter().map(line)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn one_pattern_agrees_with_the_table(pattern in r"[/*]([ab]|\*?/|\*?a){0,8}\$?", path in "/[ab/]{0,14}") {
        let pattern = pattern.replace("**", "*");
        let rules = [(pattern, false)];
        prop_assert_eq!(robots(&body_of(&rules)).allows(&path), allows_by_table(&rules, &path));
    }

    #[test]
    fn many_patterns_agree_with_the_table(
        rules in prop::collection::vec((r"/([ab]|\*a|\*b|a\*/){0,5}\$?", any::<bool>()), 0..14),
        path in "/[ab/]{0,10}",
    ) {
        prop_assert_eq!(robots(&body_of(&rules)).allows(&path), allows_by_table(&rules, &path));
    }

    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..200), path in ".{0,40}", token in ".{0,8}") {
        let robots = Robots::parse(&body, &token);
        robots.allows(&path);
    }

    #[test]
    fn arbitrary_records_never_panic(
        lines in prop::collection::vec(r"(User-agent|Allow|Disallow|Crawl-delay|Sitemap|x)[: ]?(/|\*|foobot)?[*$%/a-c0-9.\x00ä]{0,8}[\r\n]", 0..12),
        path in r"/?[*$%/a-c0-9?ä]{0,12}",
    ) {
        let robots = robots(&lines.concat());
        robots.allows(&path);
        prop_assert!(robots.crawl_delay_ms().is_none_or(|delay| delay <= CRAWL_DELAY_MS_MAX));
    }

    #[test]
    fn spelling_a_path_otherwise_changes_nothing(rule in "/[a-c%*$ä ]{0,6}", path in "/[a-cä*$ ]{0,6}") {
        let robots = robots(&body_of(&[(rule, false)]));
        let spelled: String = path.bytes().map(|b| if b == b'/' { "/".into() } else { format!("%{b:02x}") }).collect();
        prop_assert_eq!(robots.allows(&path), robots.allows(&spelled));
    }
}
