//! Tasks: a URI that a job wants fetched, with what is sent along, and how far it has come.

use serde_json::Value as Json;

use super::entry::{number, word, words};
use crate::clients::ask::{Item, Told};
use crate::record::{Status, UrlRecord, UrlState};

/// Longest arguments of a task, in characters of JSON.
pub const ARGS_CHARS_MAX: usize = 2_048;
/// For how long a URI counts as known, in milliseconds.
pub const KNOWN_FOR_MS: u64 = 24 * 3_600_000;

/// Headers that a task cannot set: they belong to the connection, to the crawler's own bookkeeping, or say who we are.
const OURS: [&str; 16] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "keep-alive",
    "user-agent",
    "from",
    "accept-encoding",
    "if-none-match",
    "if-modified-since",
    "range",
    "cookie",
];

/// What becomes of a task that its job has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// The same run made it, and is interrupted perhaps: it is kept again, because too few disks may have it.
    OfThisRun(Item),
    /// It was there for longer than a day: it is put up again.
    Again(Item),
    /// It is known.
    Known,
}

/// Decides about a task that its job has already as `there`.
pub fn met(there: &Told, item: Item, now_ms: u64) -> Met {
    let run = |metadata| word(metadata, "run");
    if run(&item.metadata).is_some() && run(&item.metadata) == run(&there.metadata) {
        return Met::OfThisRun(Item { metadata: there.metadata.clone(), date_s: Some(there.date_s), ..item });
    }
    if number(&there.metadata, "added") + KNOWN_FOR_MS >= now_ms {
        return Met::Known;
    }
    let mut metadata = item.metadata.clone();
    metadata.extend(words([("again", Some("1".to_owned()))]));
    Met::Again(Item { metadata, date_s: Some(1), ..item })
}

/// How far a task has come: the numbers of the URI generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TaskStatus {
    /// Waits.
    New = 1,
    /// Being fetched, or waiting to be tried again.
    Running = 2,
    /// Could not be fetched.
    DownloadFailed = 3,
    /// Fetched.
    Downloaded = 4,
    /// Fetched, but could not be read.
    AnalysisFailed = 5,
    /// Fetched and read.
    Analysed = 6,
}

impl TaskStatus {
    /// What the record of its URL says; none as long as it has not reached the crawl.
    pub fn of(record: Option<&UrlRecord>) -> TaskStatus {
        let Some(record) = record else { return TaskStatus::New };
        let answered = record.findings.as_ref().is_some_and(|found| (200..300).contains(&found.http_code));
        match (record.progress.status, record.state) {
            (Status::Crawled, UrlState::Error) if answered => TaskStatus::AnalysisFailed,
            (_, UrlState::Error) => TaskStatus::DownloadFailed,
            (Status::Undefined | Status::New, _) if record.progress.attempt == 0 && record.progress.errors == 0 => {
                TaskStatus::New
            }
            (Status::Undefined | Status::New, _) => TaskStatus::Running,
            (Status::SelectedToCrawl | Status::Crawling | Status::SelectedIncremental, _) => TaskStatus::Running,
            (Status::Crawled | Status::SelectedToProcess | Status::Processing, _) => TaskStatus::Downloaded,
            (Status::Processed, _) => TaskStatus::Analysed,
        }
    }

    /// The number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            TaskStatus::New => "new",
            TaskStatus::Running => "running",
            TaskStatus::DownloadFailed => "download failed",
            TaskStatus::Downloaded => "downloaded",
            TaskStatus::AnalysisFailed => "analysis failed",
            TaskStatus::Analysed => "analysed",
        }
    }
}

/// Checks the arguments of a task; gives them as they are kept.
pub fn check_args(args: &Json) -> Result<String, String> {
    if !args.is_object() {
        return Err("args: an object is expected, as in {\"headers\": {\"Accept-Language\": \"de\"}}".to_owned());
    }
    let text = args.to_string();
    let chars = text.chars().count();
    if chars > ARGS_CHARS_MAX {
        return Err(format!("args: {chars} characters, more than {ARGS_CHARS_MAX}"));
    }
    headers(args).map(|_| text)
}

/// The headers that arguments ask for: those of `headers`, and one of all `cookies`.
pub fn headers(args: &Json) -> Result<Vec<(String, String)>, String> {
    let mut lines = Vec::new();
    for (name, value) in pairs(args, "headers")? {
        check_header(&name, &value).map_err(|what| format!("args.headers: {what}; cookies go into `cookies`"))?;
        lines.push((name, value));
    }
    let cookies: Vec<String> = match args.get("cookies") {
        Some(Json::String(text)) => vec![text.clone()],
        _ => {
            let mut cookies = Vec::new();
            for (name, value) in pairs(args, "cookies")? {
                if name.is_empty() || name.contains(['=', ';', ' ', ',']) || value.contains(';') {
                    return Err(format!("args.cookies: {name:?} is no cookie"));
                }
                cookies.push(format!("{name}={value}"));
            }
            cookies
        }
    };
    if !cookies.is_empty() {
        lines.push(("cookie".to_owned(), cookies.join("; ")));
    }
    match lines.iter().find(|(_, value)| value.chars().any(|letter| letter.is_control() || !letter.is_ascii())) {
        Some((name, _)) => Err(format!("args: the value of {name} has letters that cannot be sent")),
        None => Ok(lines),
    }
}

/// Says why a header cannot be sent along.
pub(crate) fn check_header(name: &str, value: &str) -> Result<(), String> {
    let is_token =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if !is_token {
        return Err(format!("{name:?} is no name of a header"));
    }
    if OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
        return Err(format!("{name} is the crawler's to set"));
    }
    if value.chars().any(|letter| letter.is_control() || !letter.is_ascii()) {
        return Err(format!("the value of {name} has letters that cannot be sent"));
    }
    Ok(())
}

/// Names and values of one part of the arguments.
fn pairs(args: &Json, part: &str) -> Result<Vec<(String, String)>, String> {
    match args.get(part) {
        None | Some(Json::Null) => Ok(Vec::new()),
        Some(Json::Object(fields)) => fields
            .iter()
            .map(|(name, value)| match value {
                Json::String(text) => Ok((name.clone(), text.clone())),
                Json::Number(number) => Ok((name.clone(), number.to_string())),
                other => Err(format!("args.{part}.{name}: {other} is no text")),
            })
            .collect(),
        Some(other) => Err(format!("args.{part}: {other} is no object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::copy::tests::kept;
    use crate::id::NodeId;
    use crate::record::{Findings, Progress};
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_task_is_as_far_as_the_record_of_its_url() {
        let status = |status, state, code: Option<u16>, attempt| {
            let mut record = kept("http://a.example/", Progress { status, attempt, ..Progress::new(NodeId(1)) }).record;
            record.state = state;
            record.findings = code.map(|http_code| Box::new(Findings { http_code, ..Findings::default() }));
            TaskStatus::of(Some(&record)).number()
        };
        use UrlState::{Enabled, Error};
        assert_eq!(TaskStatus::of(None).number(), 1);
        assert_eq!(status(Status::New, Enabled, None, 0), 1);
        assert_eq!(status(Status::New, Enabled, None, 1), 2, "it is tried again");
        assert_eq!(status(Status::SelectedToCrawl, Enabled, None, 1), 2);
        assert_eq!(status(Status::Crawled, Error, Some(404), 1), 3);
        assert_eq!(status(Status::Crawled, Error, None, 1), 3);
        assert_eq!(status(Status::Crawled, Enabled, Some(200), 1), 4);
        assert_eq!(status(Status::Crawled, Error, Some(200), 1), 5);
        assert_eq!(status(Status::Processed, Enabled, Some(200), 1), 6);
    }

    #[test]
    fn a_task_that_is_there_is_known_for_a_day_and_its_own_run_may_come_back() {
        let item = |added: u64, run: &str| Item {
            crawl: "t".into(),
            key: "j".into(),
            url: "http://a.example/".into(),
            metadata: words([("added", Some(added.to_string())), ("run", Some(run.to_owned()))]),
            date_s: None,
        };
        let there = |item: Item| {
            let Item { crawl, key, url, metadata, .. } = item;
            Told { crawl, key, url, metadata, date_s: 7, created_s: 1 }
        };
        let first = there(item(5, "one"));
        assert_eq!(met(&first, item(9, "two"), 9), Met::Known);
        let kept = Item { date_s: Some(7), ..item(5, "one") };
        assert_eq!(met(&first, item(9, "one"), 9), Met::OfThisRun(kept), "as it was");
        let Met::Again(again) = met(&first, item(9, "two"), 6 + KNOWN_FOR_MS) else { panic!("a day is over") };
        assert_eq!((word(&again.metadata, "again"), again.date_s), (Some("1".to_owned()), Some(1)));
        let by_hand = Item { metadata: words([("added", Some("9".into()))]), ..item(9, "") };
        assert_eq!(met(&there(by_hand.clone()), by_hand, 9), Met::Known, "no run is not the same run");
    }

    #[test]
    fn arguments_are_headers_and_cookies_and_what_nobody_here_reads() {
        let args =
            json!({"headers": {"Accept-Language": "de", "X-N": 7}, "cookies": {"a": "1", "b": "2"}, "note": [1]});
        assert_eq!(
            headers(&args).unwrap(),
            [("Accept-Language".into(), "de".into()), ("X-N".into(), "7".into()), ("cookie".into(), "a=1; b=2".into())]
        );
        assert_eq!(headers(&json!({"cookies": "a=1; b=2"})).unwrap(), [("cookie".into(), "a=1; b=2".into())]);
        for (args, word) in [
            (json!([1]), "object"),
            (json!({"headers": {"Host": "x"}}), "crawler's"),
            (json!({"headers": {"User-Agent": "x"}}), "crawler's"),
            (json!({"headers": {"a b": "x"}}), "no name"),
            (json!({"headers": {"X": "a\r\nY: b"}}), "cannot be sent"),
            (json!({"headers": {"X": {}}}), "no text"),
            (json!({"headers": [1]}), "no object"),
            (json!({"cookies": {"a;b": "1"}}), "no cookie"),
            (json!({"note": "x".repeat(2_048)}), "more than 2048"),
        ] {
            let error = check_args(&args).unwrap_err();
            assert!(error.contains(word), "{args}: {error}");
        }
    }

    proptest! {
        #[test]
        fn headers_never_break_the_request(name in "\\PC{0,10}", value in "[\\x00-\\x7f\u{e9}]{0,20}") {
            let args = json!({"headers": {name: value.clone()}, "cookies": {"a": value}});
            for (name, value) in headers(&args).unwrap_or_default() {
                prop_assert!(name.is_ascii() && !name.contains(['\r', '\n', ':', ' ']));
                prop_assert!(!value.contains(['\r', '\n', '\0']));
            }
        }
    }
}
