//! Filters that look at pages, in the stages of the original: 1 when a page was fetched, 7, 2 and 3 before it is processed, 4 at each thing that processing made.
//!
//! A filter that excludes and matches leaves the page, or the thing, out. Of the filters that include, one of those with the same subject must match, for each
//! subject that has any. What is not known matches nothing.

use std::cmp::Ordering;

use regex::Regex;

use super::Site;
use super::filter::{OP_DIFFERENT, OP_EQUAL, OP_REGEX, SiteFilter};
use super::operation::BadRequest;
use super::times::{self, has_times, with_times};
use crate::date;
use crate::query::{Condition, Kind, Row, Source, URL_FIELDS, Value};

const OP_AT_MOST: u8 = 3;
const OP_AT_LEAST: u8 = 4;
const OP_LESS: u8 = 5;
const OP_MORE: u8 = 6;
const OP_CONDITION: u8 = 7;
/// Fields of what was made of a page; everything else that is named then is a tag.
const AFTER: [&str; 3] = ["url", "pDate", "tagsCount"];

/// When a filter looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The page was fetched: whether its links are followed, and it is processed at all.
    Fetched,
    /// Before it is processed.
    Before,
    /// At each thing that was made of it.
    After,
}

impl Moment {
    /// The moment of a stage; `None` for stages of URLs, and for those that do not exist.
    pub(super) fn of_stage(stage: u8) -> Option<Moment> {
        match stage {
            1 => Some(Moment::Fetched),
            2 | 3 | 7 => Some(Moment::Before),
            4 => Some(Moment::After),
            _ => None,
        }
    }
}

/// What filters look at: the fields of a URL as far as they are known at that moment, and these.
pub trait Looked: Row {
    /// The body as text.
    fn body(&self) -> Option<&str>;
    /// Status line and headers.
    fn head(&self) -> &str;
    /// A tag of what was made.
    fn tag(&self, name: &str) -> Option<&str>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Body,
    Head,
    Field(&'static str, Kind),
    Tag(String),
    /// All fields.
    Whole,
}

#[derive(Clone, Debug)]
enum Test {
    Matches(Vec<Regex>),
    /// Patterns with times: they are made anew for each page.
    MatchesNow(Vec<String>),
    Compares(u8, Vec<String>),
    Meets(Condition),
}

/// A filter that looks at pages.
#[derive(Clone, Debug)]
pub(super) struct PageFilter {
    moment: Moment,
    subject: Subject,
    test: Test,
    takes: bool,
}

/// The filters of a site that look at pages.
#[derive(Clone, Debug, Default)]
pub struct PageFilters(Vec<PageFilter>);

impl Site {
    /// Its filters that look at pages and are switched on.
    pub fn page_filters(&self) -> Result<PageFilters, BadRequest> {
        let on = self.filters.iter().filter(|filter| filter.state != 0 && Moment::of_stage(filter.stage).is_some());
        on.map(PageFilter::read).collect::<Result<_, _>>().map(PageFilters)
    }
}

impl PageFilter {
    pub(super) fn read(filter: &SiteFilter) -> Result<PageFilter, BadRequest> {
        let moment = Moment::of_stage(filter.stage)
            .ok_or_else(|| BadRequest::new("stage", format!("{} is none of pages", filter.stage)))?;
        times::checked(&filter.pattern, false)?;
        if filter.op_code == OP_CONDITION {
            if has_times(&filter.pattern) {
                let what =
                    "times (%@…%) do not stand in conditions, which have NOW(), as in pDate > NOW() - INTERVAL 2 DAY";
                return Err(BadRequest::new("pattern", what.to_owned()));
            }
            let condition = Condition::parse(Source::Urls, &without_macros(&filter.pattern))
                .map_err(|error| BadRequest::new("pattern", error.to_string()))?;
            return Ok(PageFilter {
                moment,
                subject: Subject::Whole,
                test: Test::Meets(condition),
                takes: filter.takes(),
            });
        }
        let subject = Subject::read(&filter.subject, moment)?;
        let lines = || filter.lines().map(str::to_owned).collect::<Vec<String>>();
        let test = match filter.op_code {
            OP_REGEX => {
                let read = |line: &str| Regex::new(&with_times(line, 0));
                let read: Result<Vec<Regex>, regex::Error> = filter.lines().map(read).collect();
                let patterns = read.map_err(|error| {
                    let why = error.to_string();
                    BadRequest::new("pattern", why.lines().last().unwrap_or("is no regular expression").to_owned())
                })?;
                if has_times(&filter.pattern) { Test::MatchesNow(lines()) } else { Test::Matches(patterns) }
            }
            op @ OP_EQUAL..=OP_MORE => {
                if let Some(line) = filter.lines().find(|line| !subject.compares_with(op, &with_times(line, 0))) {
                    let what = match &subject {
                        Subject::Field(_, Kind::Time) => "is no time; one looks like 2026-11-17 02:00:00",
                        _ => "is no number",
                    };
                    return Err(BadRequest::new("pattern", format!("{line:?} {what}")));
                }
                Test::Compares(op, lines())
            }
            other => {
                let what =
                    format!("{other} is none: 0 (regular expression), 1 =, 2 <>, 3 <=, 4 >=, 5 <, 6 >, 7 (condition)");
                return Err(BadRequest::new("opCode", what));
            }
        };
        Ok(PageFilter { moment, subject, test, takes: filter.takes() })
    }

    /// Whether one of the patterns is found in its subject.
    fn finds(&self, patterns: &[Regex], looked: &dyn Looked) -> bool {
        let any = |text: &str| patterns.iter().any(|pattern| pattern.is_match(text));
        match &self.subject {
            Subject::Body => looked.body().is_some_and(any),
            Subject::Head => any(looked.head()),
            Subject::Tag(name) => looked.tag(name).is_some_and(any),
            Subject::Field(name, _) => written(looked.value(name)).is_some_and(|text| any(&text)),
            Subject::Whole => false,
        }
    }

    fn matches(&self, looked: &dyn Looked, now: u64) -> bool {
        match &self.test {
            Test::Meets(condition) => condition.admits(looked, now),
            Test::Matches(patterns) => self.finds(patterns, looked),
            Test::MatchesNow(lines) => {
                // With other digits in them they compile as they did when they were checked.
                let made = lines.iter().filter_map(|line| Regex::new(&with_times(line, now)).ok());
                self.finds(&made.collect::<Vec<Regex>>(), looked)
            }
            Test::Compares(op, lines) => {
                let text = |text: Option<&str>| text.map_or(Value::Null, Value::text);
                let value = match &self.subject {
                    Subject::Body => text(looked.body()),
                    Subject::Head => text(Some(looked.head())),
                    Subject::Tag(name) => text(looked.tag(name)),
                    Subject::Field(name, _) => looked.value(name),
                    Subject::Whole => Value::Null,
                };
                // Different is what is different from all of them.
                let mut compared = lines.iter().map(|line| order(&value, &with_times(line, now)));
                if *op == OP_DIFFERENT {
                    value != Value::Null && compared.all(|found| found != Some(Ordering::Equal))
                } else {
                    compared.any(|found| found.is_some_and(|found| holds(*op, found)))
                }
            }
        }
    }
}

impl Subject {
    fn read(name: &str, moment: Moment) -> Result<Subject, BadRequest> {
        let upper = name.to_ascii_uppercase();
        let field = |wanted: &str| URL_FIELDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(wanted));
        let of_field = |(name, kind): &(&'static str, Kind)| Subject::Field(name, *kind);
        Ok(match upper.as_str() {
            "" | "RAW_CONTENT" => Subject::Body,
            "HEADERS_ALL" => Subject::Head,
            "LAST_MODIFIED" => field("lastModified").map(of_field).expect("it is listed"),
            // Tags may have the names of fields: what was made of a page has a title of its own.
            _ if moment == Moment::After && !AFTER.iter().any(|known| known.eq_ignore_ascii_case(name)) => {
                Subject::Tag(name.to_owned())
            }
            _ => match field(name).map(of_field) {
                Some(field) => field,
                None => {
                    let what = format!(
                        "{name:?} cannot be looked at; RAW_CONTENT, HEADERS_ALL, LAST_MODIFIED and the fields of a URL can"
                    );
                    return Err(BadRequest::new("subject", what));
                }
            },
        })
    }

    /// Whether what it is compared with makes sense.
    fn compares_with(&self, op: u8, line: &str) -> bool {
        match self {
            Subject::Field(_, Kind::Number) => line.parse::<f64>().is_ok_and(f64::is_finite),
            Subject::Field(_, Kind::Time) => date::parse(line).is_some(),
            _ => op <= OP_DIFFERENT || line.parse::<f64>().is_ok_and(f64::is_finite),
        }
    }
}

fn holds(op: u8, found: Ordering) -> bool {
    match op {
        OP_EQUAL => found.is_eq(),
        OP_AT_MOST => found.is_le(),
        OP_AT_LEAST => found.is_ge(),
        OP_LESS => found.is_lt(),
        OP_MORE => found.is_gt(),
        _ => false,
    }
}

/// A value beside a text; `None` if they are not of a kind. Texts are compared as numbers if they are some.
fn order(value: &Value, line: &str) -> Option<Ordering> {
    let numbers = |a: f64, b: &str| a.partial_cmp(&b.trim().parse::<f64>().ok()?);
    match value {
        Value::Null => None,
        Value::Int(number) | Value::Span(number) => numbers(*number as f64, line),
        Value::Float(number) => numbers(*number, line),
        Value::Time(at) => Some(at.cmp(&date::parse(line)?)),
        Value::Text(text) => match text.trim().parse::<f64>() {
            Ok(number) => numbers(number, line).or_else(|| Some(text.as_str().cmp(line))),
            Err(_) if text == line => Some(Ordering::Equal),
            // Neither more nor less than a number, only different.
            Err(_) => None,
        },
    }
}

/// A value as a text that patterns look at.
fn written(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Int(number) | Value::Span(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
        Value::Time(at) => Some(date::format(at)),
    }
}

/// `%NAME%` is how the original writes a field in a condition; inside of texts a percent sign is one.
fn without_macros(condition: &str) -> String {
    let mut out = String::with_capacity(condition.len());
    let mut rest = condition;
    let mut quote: Option<char> = None;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == '%' => {
                let name = after.split('%').next().unwrap_or_default();
                let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                if is_name && after.len() > name.len() {
                    out.push_str(name);
                    rest = &after[name.len() + 1..];
                    continue;
                }
            }
            _ => {}
        }
        out.push(c);
        rest = after;
    }
    out
}

impl PageFilters {
    /// Whether there are any for a moment.
    pub fn any_at(&self, moment: Moment) -> bool {
        self.0.iter().any(|filter| filter.moment == moment)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether they let something pass.
    pub fn pass(&self, moment: Moment, looked: &dyn Looked, now: u64) -> bool {
        let mut waiting: Vec<(&Subject, bool)> = Vec::new();
        for filter in self.0.iter().filter(|filter| filter.moment == moment) {
            let matched = filter.matches(looked, now);
            if !filter.takes {
                if matched {
                    return false;
                }
                continue;
            }
            match waiting.iter_mut().find(|(subject, _)| *subject == &filter.subject) {
                Some((_, taken)) => *taken |= matched,
                None => waiting.push((&filter.subject, matched)),
            }
        }
        waiting.into_iter().all(|(_, taken)| taken)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    struct Page;

    impl Row for Page {
        fn value(&self, field: &'static str) -> Value {
            match field {
                "url" => Value::text("http://a.example/news/1"),
                "contentType" => Value::text("text/html"),
                "httpCode" => Value::Int(200),
                "size" => Value::Int(1_200),
                "lastModified" => Value::text("Tue, 03 Nov 2026 00:00:00 GMT"),
                "pDate" => Value::Time(1_000_000),
                _ => Value::Null,
            }
        }
    }

    impl Looked for Page {
        fn body(&self) -> Option<&str> {
            Some("<p>Bridge reopens</p>")
        }

        fn head(&self) -> &str {
            "HTTP/1.1 200 OK\r\nServer: nginx\r\n\r\n"
        }

        fn tag(&self, name: &str) -> Option<&str> {
            match name {
                "title" => Some("Bridge"),
                "price" => Some(" 12.50"),
                _ => None,
            }
        }
    }

    fn passes(filters: Json) -> bool {
        let site = Site::read(json!({"id": "a", "filters": filters})).unwrap_or_else(|bad| panic!("{filters}: {bad}"));
        let stage = filters[0]["stage"].as_u64().unwrap() as u8;
        site.page_filters().unwrap().pass(Moment::of_stage(stage).unwrap(), &Page, 2_000_000)
    }

    fn one(stage: u8, subject: &str, op_code: u8, pattern: &str) -> Json {
        json!({"stage": stage, "subject": subject, "opCode": op_code, "pattern": pattern, "action": 1})
    }

    fn without(filter: Json) -> Json {
        let mut filter = filter;
        filter["action"] = json!(-1);
        filter
    }

    #[test]
    fn every_operation_compares_as_it_says() {
        for (filter, matched) in [
            (one(1, "", 0, "reopens"), true),
            (one(1, "RAW_CONTENT", 0, "closes\r\nreopens"), true),
            (one(1, "HEADERS_ALL", 0, "(?i)server: NGINX"), true),
            (one(1, "LAST_MODIFIED", 0, "2026"), true),
            (one(1, "LAST_MODIFIED", 0, "2025"), false),
            (one(7, "url", 0, "/news/"), true),
            (one(7, "contentType", 1, "text/html"), true),
            (one(7, "contentType", 1, "text/plain\ntext/html"), true),
            (one(7, "contentType", 2, "text/plain\ntext/html"), false),
            (one(7, "contentType", 2, "text/plain\ntext/css"), true),
            (one(7, "charset", 2, "utf-8"), false),
            (one(2, "httpCode", 1, "200"), true),
            (one(2, "size", 3, "1200"), true),
            (one(2, "size", 3, "1199"), false),
            (one(2, "size", 4, "1200"), true),
            (one(3, "size", 5, "1200"), false),
            (one(3, "size", 6, "1199"), true),
            (one(3, "pDate", 6, "1970-01-01 00:00:01"), true),
            (one(3, "pDate", 0, "^1970"), true),
            (one(4, "title", 0, "^Bri"), true),
            (one(4, "price", 6, "12"), true),
            (one(4, "price", 1, "12.5"), true),
            (one(4, "title", 6, "12"), false),
            (one(4, "nosuch", 0, "."), false),
            (one(7, "", 7, "httpCode = 200 AND url LIKE '%news%'"), true),
            (one(4, "", 7, "%PDATE% < NOW() - INTERVAL 5 MINUTE AND '%URL%' <> url"), true),
            (one(4, "", 7, "%PDATE% < NOW() - INTERVAL 1 HOUR"), false),
            // Now is 00:33:20 on the first day of 1970.
            (one(7, "url", 0, "nosuch\r\nnews/[%@DAY(+0)%]$"), true),
            (one(7, "url", 0, "news/[%@DAY(+24)%]$"), false),
            (one(7, "size", 6, "12%@MINUTE(+0)%"), false),
            (one(7, "size", 6, "11%@MINUTE(+0)%"), true),
            (one(7, "pDate", 6, "%@YEAR(+0)%-%@MONTH(+0)%-%@DAY(+0)% 00:00:01"), true),
        ] {
            assert_eq!(passes(json!([filter])), matched, "{filter}");
            assert_eq!(passes(json!([without(filter.clone())])), !matched, "not {filter}");
        }
    }

    #[test]
    fn one_that_includes_must_match_for_each_subject_and_none_that_excludes_may() {
        let (yes, no) = (one(1, "", 0, "reopens"), one(1, "", 0, "nosuch"));
        assert!(passes(json!([no, yes])));
        assert!(!passes(json!([yes, one(1, "HEADERS_ALL", 0, "Apache")])), "another subject");
        assert!(!passes(json!([yes, without(one(1, "HEADERS_ALL", 0, "nginx"))])));
        let mut off = without(one(1, "", 0, "reopens"));
        off["state"] = json!(0);
        assert!(passes(json!([yes, off])), "one that is switched off");
        let all = Site::read(json!({"id": "a"})).unwrap().page_filters().unwrap();
        assert!(all.is_empty() && !all.any_at(Moment::Before) && all.pass(Moment::Before, &Page, 0));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_field() {
        for (filter, field) in [
            (one(1, "nosuch", 0, "x"), "filters[0].subject"),
            (one(1, "", 0, "("), "filters[0].pattern"),
            (one(1, "", 8, "x"), "filters[0].opCode"),
            (one(7, "size", 6, "many"), "filters[0].pattern"),
            (one(4, "title", 6, "many"), "filters[0].pattern"),
            (one(7, "pDate", 6, "soon"), "filters[0].pattern"),
            (one(7, "", 7, "nosuch = 1"), "filters[0].pattern"),
            (one(7, "", 7, "%PDATE% <"), "filters[0].pattern"),
            (one(7, "", 0, "%@DAY%"), "filters[0].pattern"),
        ] {
            let bad = Site::read(json!({"id": "a", "filters": [filter]})).unwrap_err().to_string();
            assert!(bad.starts_with(field), "{filter}: {bad}");
        }
    }
}
