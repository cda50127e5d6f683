//! The programs on real folders, with a web that remembers what it was asked.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use proto::ose::links::OseRule;
use proto::ose::name::OseFile;
use proto::ose::row::OseRow;
use proto::ose::status::{OseStatus, Phase};
use proto::ose::{Damage, OseId};
use proto::url::UrlRules;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::OseError;
use super::export::export;
use super::fetch::FetchSettings;
use super::folder::Folder;
use super::import::import;
use super::parse::ParseSettings;
use super::run::{Program, RunReport, run};
use crate::config::Config;
use crate::edges::dns::DnsError;
use crate::edges::http::{FetchError, FetchOrder, Fetched};
use crate::edges::store::Store;
use crate::edges::web::{Pending, Web};
use crate::extract::ExtractRules;

const ROOT: &str = "http://target1.example/";

/// A site in memory; what it does not have is 404, what is `None` does not answer.
struct Site {
    pages: BTreeMap<&'static str, Option<(u16, &'static str)>>,
    asked: Mutex<Vec<(String, Instant)>>,
}

impl Site {
    fn new(pages: &[(&'static str, u16, &'static str)]) -> Site {
        let pages = pages.iter().map(|(path, status, body)| (*path, Some((*status, *body)))).collect();
        Site { pages, asked: Mutex::default() }
    }

    fn usual() -> Site {
        Site::new(&[
            ("/robots.txt", 200, "User-agent: *\nDisallow: /private/\n"),
            (
                "/",
                200,
                "<a href='/a'>a</a> <a href='b.html'>b</a> <a href=\"/private/c\">c</a> <a href='mailto:x@y.z'>m</a>",
            ),
            ("/a", 200, "<a href='http://other.example/x'>x</a> <a href='/'>home</a> <a rel=nofollow href='/no'>n</a>"),
            ("/b.html", 302, "/moved"),
            ("/moved", 200, "<base href='/deep/'><a href='d'>d</a><a href='http://[broken'>e</a>"),
            ("/deep/d", 200, "the end"),
        ])
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()
    }
}

impl Web for Site {
    fn fetch<'a>(&'a self, order: &'a FetchOrder) -> Pending<'a, Result<Fetched, FetchError>> {
        let path = order.url.path_and_query();
        self.asked.lock().unwrap().push((path.to_owned(), Instant::now()));
        let mut headers = HeaderMap::new();
        let (status, body) = match self.pages.get(path) {
            Some(Some((status @ 300..400, target))) => {
                headers.insert("location", HeaderValue::from_static(target));
                (*status, "")
            }
            Some(Some((status, body))) => (*status, *body),
            Some(None) => return Box::pin(async { Err(FetchError::ConnectRefused) }),
            None => (404, "not here"),
        };
        headers.insert("content-type", HeaderValue::from_static("text/html"));
        let status = StatusCode::from_u16(status).unwrap();
        let fetched = Fetched::plain(order, status, headers, Bytes::from_static(body.as_bytes()), 1_700_000_000_000);
        Box::pin(async { Ok(fetched) })
    }

    fn resolve<'a>(&'a self, _: &'a str) -> Pending<'a, Result<Vec<IpAddr>, DnsError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

fn fetching(wait: (u64, u64)) -> (FetchSettings, mpsc::Sender<()>) {
    let (tell, stop) = mpsc::channel(1);
    let settings = FetchSettings {
        wait: Duration::from_secs(wait.0)..=Duration::from_secs(wait.1),
        random: ChaCha8Rng::seed_from_u64(7),
        product_token: "orbweaver".into(),
        page_bytes_max: 1 << 20,
        urls: UrlRules::default(),
        retry: false,
        stop,
    };
    (settings, tell)
}

fn parsing(rule: OseRule) -> ParseSettings {
    ParseSettings {
        rule,
        rules: ExtractRules::default(),
        product_token: "orbweaver".into(),
        page_bytes_max: 1 << 20,
        now_ms: || 1_700_000_000_500,
    }
}

async fn cycle(folder: &Folder, site: &Site) -> Result<RunReport, OseError> {
    let (mut settings, _tell) = fetching((0, 0));
    run(folder, Program::All, site, &mut settings, &parsing(OseRule::Resolved)).await
}

/// Runs cycles until a whole one finds nothing to do.
async fn to_the_end(folder: &Folder, site: &Site) -> Result<(), OseError> {
    for _ in 0..20 {
        let report = cycle(folder, site).await?;
        let nothing_asked = report.fetch.is_some_and(|fetch| fetch.answered + fetch.recovered == 0);
        if nothing_asked && report.merge.is_some_and(|merge| merge.added == 0) {
            return Ok(());
        }
    }
    panic!("a site of six pages takes no twenty cycles");
}

fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

fn text(folder: &Folder, name: &str) -> String {
    String::from_utf8(std::fs::read(folder.path().join(name)).unwrap()).unwrap()
}

#[tokio::test]
async fn a_site_is_fetched_parsed_and_merged_until_nothing_is_new() {
    let work = tempfile::tempdir().unwrap();
    let folder = Folder::make(&work.path().join("target1.example"), [ROOT]).unwrap();
    let site = Site::usual();
    to_the_end(&folder, &site).await.unwrap();
    assert_eq!(text(&folder, ".osestatus"), "0 0000000005");
    let urls = text(&folder, ".urls");
    let rows: Vec<OseRow> = urls.lines().map(|line| OseRow::parse(line.as_bytes()).unwrap()).collect();
    let found: BTreeMap<&str, Option<u16>> = rows.iter().map(|row| (row.url.as_str(), row.code)).collect();
    let expected = [
        ("http://target1.example/", Some(200)),
        ("http://target1.example/a", Some(200)),
        ("http://target1.example/b.html", Some(302)),
        ("http://target1.example/deep/d", Some(200)),
        ("http://target1.example/moved", Some(200)),
        ("http://target1.example/private/c", None),
    ];
    assert_eq!(found, BTreeMap::from(expected));
    assert!(rows.iter().all(|row| row.id.is_some() == row.parsed.is_some()), "{urls}");
    assert_eq!(text(&folder, ".externalurls"), "http://other.example/x\n");
    assert_eq!(text(&folder, ".links.malformed.0000000001"), "mailto:x@y.z\n");
    let answer = std::fs::read(folder.file(OseFile::Answer(OseId::new(1).unwrap()))).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"m</a>"));
    assert!(text(&folder, ".meta.0000000001").contains("\"http_code\": 200"));
    let mut asked = site.asked();
    asked.retain(|path| path != "/robots.txt");
    asked.sort_unstable();
    assert_eq!(asked, ["/", "/a", "/b.html", "/deep/d", "/moved"], "each once, and nothing that is forbidden");
}

#[tokio::test]
async fn power_cut_before_any_step_costs_nothing_and_at_most_one_request() {
    let work = tempfile::tempdir().unwrap();
    let small = || {
        Site::new(&[
            ("/robots.txt", 200, "User-agent: *\nDisallow: /private/\n"),
            ("/", 200, "<a href='/a'>a</a> <a href='/private/c'>c</a> <a href='mailto:x@y.z'>m</a>"),
            ("/a", 200, "<a href='http://other.example/x'>x</a> <a href='/'>home</a>"),
        ])
    };
    let reference = Folder::make(&work.path().join("reference"), [ROOT]).unwrap();
    to_the_end(&reference, &small()).await.unwrap();
    let expected = files(reference.path());

    let mut cut = 0;
    for steps in 0.. {
        let path = work.path().join(format!("cut-{steps}"));
        let site = small();
        let folder = Folder::make(&path, [ROOT]).unwrap();
        folder.fuse.set(Some(steps));
        let finished = to_the_end(&folder, &site).await.is_ok();
        drop(folder);
        to_the_end(&Folder::open(&path).unwrap(), &site).await.unwrap();
        let left: BTreeMap<_, _> = files(&path).into_iter().filter(|(name, _)| !name.ends_with(".part")).collect();
        assert_eq!(left, expected, "after a cut before step {steps}");
        let mut asked = site.asked();
        asked.retain(|path| path != "/robots.txt");
        assert!(asked.len() <= 3, "one request was on its way: {asked:?}");
        std::fs::remove_dir_all(&path).unwrap();
        if finished {
            break;
        }
        cut += 1;
    }
    assert!(cut > 60, "only {cut} steps: the fuse is not where it should be");
}

#[tokio::test]
async fn a_program_out_of_turn_is_refused_and_changes_nothing() {
    let work = tempfile::tempdir().unwrap();
    let site = Site::usual();
    let turns = [
        (Phase::Idle, [Program::Parse, Program::Merge]),
        (Phase::Fetched, [Program::Fetch, Program::Merge]),
        (Phase::Parsed, [Program::Fetch, Program::Parse]),
    ];
    let folder = Folder::make(&work.path().join("a"), [ROOT]).unwrap();
    for (phase, refused) in turns {
        folder.set_status(OseStatus { phase, last: OseId::NONE }).unwrap();
        let before = files(folder.path());
        for program in refused {
            let (mut settings, _tell) = fetching((0, 0));
            let ended = run(&folder, program, &site, &mut settings, &parsing(OseRule::Resolved)).await;
            assert!(matches!(ended, Err(OseError::NotNow { .. })), "{program:?} in {phase}");
        }
        assert_eq!(files(folder.path()), before);
    }
    assert!(site.asked().is_empty());
    assert!(matches!(Folder::open(folder.path()), Err(OseError::InUse(_))), "one at a time");
}

#[tokio::test(start_paused = true)]
async fn waits_are_drawn_between_ten_and_thirty_seconds_and_a_crawl_delay_is_longer() {
    let work = tempfile::tempdir().unwrap();
    let mut site = Site::usual();
    let folder = Folder::make(&work.path().join("a"), [ROOT]).unwrap();
    let (mut settings, _tell) = fetching((10, 30));
    let urls: Vec<String> = (0..20).map(|n| OseRow::new(format!("{ROOT}{n}")).to_line() + "\n").collect();
    folder.write(OseFile::Urls, urls.concat().as_bytes()).unwrap();
    let began = Instant::now();
    run(&folder, Program::Fetch, &site, &mut settings, &parsing(OseRule::Resolved)).await.unwrap();
    let mut last = began;
    let mut gaps = Vec::new();
    for (_, at) in site.asked.lock().unwrap().iter() {
        gaps.push((*at - last).as_millis());
        last = *at;
    }
    assert_eq!(gaps.len(), 21, "robots.txt and twenty pages");
    assert!(gaps.iter().all(|gap| (10_000..=30_001).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().max().unwrap() - gaps.iter().min().unwrap() > 5_000, "drawn, not fixed: {gaps:?}");

    site.pages.insert("/robots.txt", Some((200, "User-agent: *\nCrawl-delay: 50\n")));
    site.asked.lock().unwrap().clear();
    folder.set_status(OseStatus::default()).unwrap();
    folder.write(OseFile::Urls, urls[..3].concat().as_bytes()).unwrap();
    run(&folder, Program::Fetch, &site, &mut settings, &parsing(OseRule::Resolved)).await.unwrap();
    let times: Vec<Instant> = site.asked.lock().unwrap().iter().map(|(_, at)| *at).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(50)));
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait_and_the_next_run_goes_on() {
    let work = tempfile::tempdir().unwrap();
    let folder = Folder::make(&work.path().join("a"), [ROOT, "http://target1.example/a"]).unwrap();
    let site = Site::usual();
    let (mut settings, tell) = fetching((10, 30));
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(25)).await;
        tell.send(()).await
    });
    let report =
        run(&folder, Program::All, &site, &mut settings, &parsing(OseRule::Resolved)).await.unwrap().fetch.unwrap();
    assert!(report.interrupted);
    assert_eq!(folder.status().unwrap().phase, Phase::Fetching);
    to_the_end(&folder, &site).await.unwrap();
    let mut asked = site.asked();
    asked.retain(|path| path != "/robots.txt");
    assert_eq!(asked.len(), 5, "{asked:?}");
}

#[tokio::test]
async fn what_nobody_answers_gets_000_and_is_asked_again_only_when_told() {
    let work = tempfile::tempdir().unwrap();
    let folder = Folder::make(&work.path().join("a"), [ROOT]).unwrap();
    let mut site = Site::usual();
    site.pages.insert("/", None);
    cycle(&folder, &site).await.unwrap();
    let row = |folder: &Folder| OseRow::parse(text(folder, ".urls").lines().next().unwrap().as_bytes()).unwrap();
    assert_eq!((row(&folder).id, row(&folder).code), (OseId::new(1), Some(0)));
    assert!(text(&folder, ".meta.0000000001").contains("error"));
    cycle(&folder, &site).await.unwrap();
    assert_eq!(site.asked().iter().filter(|path| *path == "/").count(), 1, "not asked again");

    site.pages.insert("/", Some((200, "back")));
    let (mut settings, _tell) = fetching((0, 0));
    settings.retry = true;
    run(&folder, Program::All, &site, &mut settings, &parsing(OseRule::Resolved)).await.unwrap();
    assert_eq!((row(&folder).id, row(&folder).code), (OseId::new(1), Some(200)), "under the same id");
    assert!(text(&folder, "0000000001").ends_with("back"));
}

#[tokio::test]
async fn a_site_whose_robots_txt_cannot_be_had_is_left_alone() {
    let work = tempfile::tempdir().unwrap();
    let folder = Folder::make(&work.path().join("a"), [ROOT]).unwrap();
    for answer in [None, Some((503, "later"))] {
        let mut site = Site::usual();
        site.pages.insert("/robots.txt", answer);
        let report = cycle(&folder, &site).await.unwrap().fetch.unwrap();
        assert_eq!((report.answered, report.postponed), (0, 1));
        assert_eq!(site.asked(), ["/robots.txt"]);
    }
    cycle(&folder, &Site::usual()).await.unwrap();
    assert_eq!(text(&folder, ".osestatus"), "0 0000000001", "it is asked for when robots.txt is back");
}

#[tokio::test]
async fn damaged_rows_are_named_kept_and_passed_over() {
    let work = tempfile::tempdir().unwrap();
    let folder = Folder::make(&work.path().join("a"), [ROOT]).unwrap();
    let good = OseRow::new(ROOT).to_line();
    let lines = format!("{good}\nx{}\n\n{}\n", &good[1..], OseRow::new("ftp://target1.example/").to_line());
    folder.write(OseFile::Urls, lines.as_bytes()).unwrap();
    let damages = cycle(&folder, &Site::usual()).await.unwrap().damages();
    let places: Vec<(u64, usize)> = damages.named.iter().map(|damaged| (damaged.line, damaged.column)).collect();
    assert_eq!(places, [(2, 1), (3, 1), (4, 56)], "{damages:?}");
    let after = text(&folder, ".urls");
    let kept: Vec<&str> = after.lines().skip(1).take(3).collect();
    assert_eq!(kept, lines.lines().skip(1).collect::<Vec<_>>());
    let Damage { column, .. } = OseStatus::parse(b"9").unwrap_err();
    std::fs::write(folder.path().join(".osestatus"), "9").unwrap();
    let error = cycle(&folder, &Site::usual()).await.unwrap_err().to_string();
    assert!(error.contains(".osestatus") && error.contains(&format!("column {column}")), "{error}");
}

#[tokio::test]
async fn strictly_only_whole_urls_are_links() {
    let work = tempfile::tempdir().unwrap();
    let folder = Folder::make(&work.path().join("a"), [ROOT]).unwrap();
    let site = Site::new(&[(
        "/",
        200,
        "<a href='/a'>a</a><a href='http://target1.example/b'>b</a><a href='http://x.y'>c</a>",
    )]);
    let (mut settings, _tell) = fetching((0, 0));
    run(&folder, Program::All, &site, &mut settings, &parsing(OseRule::Strict)).await.unwrap();
    assert_eq!(text(&folder, ".links.0000000001"), "http://target1.example/b\n");
    assert_eq!(text(&folder, ".links.malformed.0000000001"), "/a\nhttp://x.y\n");
}

#[tokio::test]
async fn a_folder_goes_in_and_comes_out_byte_for_byte_and_its_urls_are_a_crawl() {
    let work = tempfile::tempdir().unwrap();
    let folder = Folder::make(&work.path().join("target1.example"), [ROOT, "http://target1.example/a"]).unwrap();
    let (mut settings, _tell) = fetching((0, 0));
    let site = Site::usual();
    cycle(&folder, &site).await.unwrap();
    run(&folder, Program::Fetch, &site, &mut settings, &parsing(OseRule::Resolved)).await.unwrap();
    // In state 2, with a damaged row, ends of lines of another system, and a status of the former name.
    let urls = text(&folder, ".urls").replace('\n', "\r\n") + "garbage";
    folder.write(OseFile::Urls, urls.as_bytes()).unwrap();
    std::fs::rename(folder.path().join(".osestatus"), folder.path().join(".bdpstatus")).unwrap();
    let mut config = Config::default();
    config.storage.data = work.path().join("data");

    folder.set_status(OseStatus { phase: Phase::Parsing, last: OseId::new(4).unwrap() }).unwrap();
    assert!(matches!(import(&folder, &config, false).await, Err(OseError::Unfinished(Phase::Parsing))));
    folder.set_status(OseStatus { phase: Phase::Fetched, last: OseId::new(4).unwrap() }).unwrap();
    std::fs::write(folder.path().join("notes.txt"), "not ours").unwrap();
    let expected: BTreeMap<_, _> = files(folder.path()).into_iter().filter(|(name, _)| name != "notes.txt").collect();

    let report = import(&folder, &config, false).await.unwrap();
    assert_eq!(
        (report.site.as_str(), report.damages.count, report.foreign.as_slice()),
        ("target1.example", 1, &["notes.txt".to_owned()][..])
    );
    assert_eq!((report.urls, report.pages), (4, 3), "one is forbidden by robots.txt and waits");
    let store = Store::open_for_reading(&config.storage.data).unwrap();
    assert_eq!(store.state().counters.fetches, 3);
    let out = work.path().join("out");
    let parsing = parsing(OseRule::Resolved);
    export(&store, "DEFAULT", "target1.example", &out, &parsing).unwrap();
    assert_eq!(files(&out), expected);
    assert!(matches!(export(&store, "DEFAULT", "target1.example", &out, &parsing), Err(OseError::NotEmpty(_))));
    let nowhere = work.path().join("nowhere");
    let unknown = export(&store, "DEFAULT", "elsewhere.example", &nowhere, &parsing);
    assert!(matches!(unknown, Err(OseError::UnknownSite { .. })) && !nowhere.exists());
}
