//! The synthetic web: a whole set of hosts drawn from one seed, answering requests without I/O, clock or memory.
//!
//! [`Web::respond`] is a pure function of plan, request and [`Visit`]: the same question gets the same bytes whatever
//! was asked before. Nothing is stored but the sentences pages are made of; a page is put together when it is asked for.

mod draw;
pub mod expected;
mod hosts;
mod odd;
mod plain;
pub mod plan;
mod robots;
mod text;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use draw::{Draw, For};
pub use expected::{Duty, Expected, Kind, Outcome, Verdict};
pub use hosts::HostKind;
pub use plan::{Addressing, Oddity, WebPlan};
pub use robots::Robots;
use text::Prose;

/// Where the variant [`Robots::Redirected`] finds its rules, on host 0.
const SHARED_ROBOTS_PATH: &str = "/shared-robots.txt";
/// 2024-01-01: no page is older.
const OLDEST_UNIX_S: u64 = 1_704_067_200;

/// A seeded web. Clones share everything.
#[derive(Clone)]
pub struct Web {
    plan: Arc<WebPlan>,
    odd: Arc<[(Oddity, u32)]>, // the hosts after the plain ones
    prose: Arc<Prose>,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Host without port.
    pub host: &'a str,
    /// `GET`, `HEAD`, …
    pub method: &'a str,
    /// From the slash on, query included.
    pub path_and_query: &'a str,
    /// Names in lower case. Only the conditions (`if-none-match`, `if-modified-since`) change an answer.
    pub headers: &'a [(&'a str, &'a str)],
}

/// What an answer depends on besides the request. The default is the answer a host settles on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// How often this URL was requested before. Without it, what fails for a while has stopped failing.
    pub earlier: Option<u32>,
    /// Changing pages have new content in each epoch.
    pub epoch: u32,
    /// The time, for answers that name one.
    pub now_unix_s: u64,
}

/// What a host sends back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code; 0 when no status line is ever sent.
    pub status: u16,
    /// In sending order, without `content-length`, which follows from `delivery`.
    pub headers: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// The body, or the part of it that `delivery` speaks of.
    pub body: Bytes,
    /// Wait before the first byte.
    pub delay_ms: u32,
    /// How status, headers and body go over the wire.
    pub delivery: Delivery,
}

/// How an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Properly, with the right length.
    Whole,
    /// Properly but a little at a time.
    Drip {
        /// Bytes per piece.
        piece_bytes: u32,
        /// Wait between pieces.
        pause_ms: u32,
    },
    /// Properly: the body this many times over. Saves making a huge one.
    Repeated {
        /// How often.
        times: u32,
    },
    /// The body again and again until the client leaves.
    Endless,
    /// With a Content-Length that is not that of the body, after which the connection is closed.
    Declared {
        /// What Content-Length says.
        bytes: u64,
    },
    /// Declares twice the body, sends it once and resets the connection.
    ResetAfterBody,
    /// Resets the connection instead of answering.
    Reset,
    /// Says nothing until the client leaves.
    Hang,
    /// Sends the headers, then nothing until the client leaves.
    HangAfterHeaders,
    /// The body is everything that is sent, status line included.
    Verbatim,
}

impl Delivery {
    /// Whether the client gets to see the status that the answer has.
    pub fn sends_status(self) -> bool {
        !matches!(self, Delivery::Reset | Delivery::Hang)
    }
}

impl Web {
    /// Builds the web that `plan` describes.
    pub fn new(plan: WebPlan) -> Web {
        let odd = Oddity::ALL
            .into_iter()
            .flat_map(|oddity| (0..plan.oddities.get(&oddity).copied().unwrap_or(0)).map(move |nth| (oddity, nth)))
            .collect();
        let prose = Arc::new(Prose::new(plan.seed));
        Web { odd, prose, plan: Arc::new(plan) }
    }

    /// The plan it was built from.
    pub fn plan(&self) -> &WebPlan {
        &self.plan
    }

    /// The same web on another port. The port stands in absolute links, so those bytes change.
    pub fn on_port(&self, port: u16) -> Web {
        Web { plan: Arc::new(WebPlan { port, ..(*self.plan).clone() }), ..self.clone() }
    }

    /// The URLs to start from.
    pub fn seeds(&self) -> Vec<String> {
        (0..self.plan.seeds.clamp(1, self.plan.hosts.max(1))).map(|host| self.url(host, "/")).collect()
    }

    /// Whether the answer to `path` depends on how often it was asked for, so that a server has to count.
    pub fn counts_visits(&self, host: u32, path: &str) -> bool {
        match self.host_kind(host) {
            HostKind::Plain => path == "/robots.txt" && self.robots(host) == Robots::ErrorForAWhile,
            HostKind::Odd(oddity, _) => odd::counts_visits(oddity, path),
        }
    }

    /// Answers a request.
    pub fn respond(&self, request: &Request<'_>, visit: Visit) -> Answer {
        match self.host_number(request.host) {
            Some(host) => self.respond_as(host, request, visit),
            None => Answer::error(421),
        }
    }

    /// Answers a request to the host with this number; saves looking up its name.
    pub fn respond_as(&self, host: u32, request: &Request<'_>, visit: Visit) -> Answer {
        if !matches!(request.method, "GET" | "HEAD") {
            let mut answer = Answer::error(405);
            answer.header("allow", "GET, HEAD");
            return answer;
        }
        let path = request.path_and_query;
        let mut answer = if path == "/robots.txt" {
            self.robots_answer(host, &visit)
        } else if path == SHARED_ROBOTS_PATH && host == 0 {
            robots::shared_robots()
        } else {
            match self.host_kind(host) {
                HostKind::Odd(oddity, _) => self.odd_answer(host, oddity, path, visit),
                HostKind::Plain if path == "/sitemap.xml" && self.robots(host) == Robots::Sitemaps => {
                    odd::syndication::of_plain_host(self, host)
                }
                HostKind::Plain => match self.page_at(host, path) {
                    Some(page) => self.page_answer(host, page, &visit),
                    None => Answer::error(404),
                },
            }
        };
        if answer.status == 200 && answer.delivery == Delivery::Whole && answer.is_unchanged_for(request.headers) {
            answer.status = 304;
            answer.body = Bytes::new();
        }
        answer
    }

    /// Bytes without meaning, the same for each host.
    fn noise(&self, host: u32, bytes: usize) -> Vec<u8> {
        let mut draw = Draw::new(self.plan.seed, For::Noise, u64::from(host), 0);
        (0..bytes).map(|_| draw.next() as u8).collect()
    }
}

impl<'a> Request<'a> {
    /// A GET without headers.
    pub fn get(host: &'a str, path_and_query: &'a str) -> Request<'a> {
        Request { host, method: "GET", path_and_query, headers: &[] }
    }
}

impl Answer {
    fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
        Answer {
            status: 200,
            headers: vec![("content-type".into(), content_type.into())],
            body: body.into(),
            delay_ms: 0,
            delivery: Delivery::Whole,
        }
    }

    /// An answer that is its status and a line saying so.
    pub(crate) fn error(status: u16) -> Answer {
        let body = format!("<!doctype html><title>{status}</title><h1>{status}</h1>\n");
        Answer { status, ..Answer::ok("text/html; charset=utf-8", body) }
    }

    pub(crate) fn redirect(status: u16, location: impl Into<Cow<'static, str>>) -> Answer {
        let mut answer = Answer::error(status);
        answer.header("location", location);
        answer
    }

    pub(crate) fn header(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) {
        self.headers.push((name.into(), value.into()));
    }

    pub(crate) fn delivered(self, delivery: Delivery) -> Answer {
        Answer { delivery, ..self }
    }

    /// The first header with this name.
    pub fn header_value(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(candidate, _)| candidate.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
    }

    /// RFC 9110, 13.2.2: If-None-Match decides when it is there, else If-Modified-Since.
    fn is_unchanged_for(&self, conditions: &[(&str, &str)]) -> bool {
        let condition = |name| conditions.iter().find(|(candidate, _)| *candidate == name).map(|(_, value)| *value);
        if let Some(tags) = condition("if-none-match") {
            let Some(etag) = self.header_value("etag") else { return false };
            let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
            return tags.trim() == "*" || tags.split(',').any(|tag| strong(tag) == strong(etag));
        }
        let since = condition("if-modified-since").and_then(unix_from_http_date);
        let modified = self.header_value("last-modified").and_then(unix_from_http_date);
        matches!((since, modified), (Some(since), Some(modified)) if modified <= since)
    }
}

/// What identifies one version of a page to a client that comes back.
struct PageDates {
    tag: u64,
    modified_unix_s: u64,
}

impl PageDates {
    /// Each version is an hour younger than the one before.
    fn draw(seed: u64, host: u32, page: u64, version: u32) -> PageDates {
        let mut draw = Draw::new(seed, For::Change, u64::from(host) + 1, page);
        let first = OLDEST_UNIX_S + draw.below(300 * 86_400);
        let tag = Draw::new(seed, For::Change, u64::from(host) << 32 | u64::from(version), page).next();
        PageDates { tag, modified_unix_s: first + u64::from(version) * 3_600 }
    }

    fn etag(&self) -> String {
        format!("\"{:016x}\"", self.tag)
    }
}

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A time as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn http_date(unix_s: u64) -> String {
    let (days, seconds) = (unix_s / 86_400, unix_s % 86_400);
    // Days to civil date, after Howard Hinnant; years begin in March so that leap days come last.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} GMT",
        DAYS[((days + 3) % 7) as usize],
        MONTHS[month as usize - 1],
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// Reads what [`http_date`] writes.
pub fn unix_from_http_date(text: &str) -> Option<u64> {
    let mut words = text.split_once(", ")?.1.split([' ', ':']);
    let mut number = || words.next().map(str::to_owned);
    let day: u64 = number()?.parse().ok()?;
    let month_name = number()?;
    let month = MONTHS.iter().position(|name| *name == month_name)? as u64 + 1;
    let year: u64 = number()?.parse().ok()?;
    let (hour, minute, second): (u64, u64, u64) =
        (number()?.parse().ok()?, number()?.parse().ok()?, number()?.parse().ok()?);
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests;
