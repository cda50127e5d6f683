//! Filters of a site: which of the links found on its pages belong to it, and which of its pages are looked at and processed.
//!
//! A link belongs to the site if at least one filter that includes matches it and none that excludes does; a site without any that includes
//! takes its own hosts. Regular expressions are looked for anywhere in the URL, in time linear in its length. What filters of other stages look at:
//! [`page_filter`](super::page_filter).

use serde::{Deserialize, Serialize};

use super::operation::BadRequest;
use super::page_filter::{Moment, PageFilter};
use super::{Ignored, Site, times};

/// Looks at URLs when they are collected.
const STAGE_COLLECT: u8 = 0;
/// Looks at everything.
const STAGE_ALL: u8 = 5;
/// Looks at the protocols of URLs when they are collected.
const STAGE_PROTOCOL: u8 = 6;
/// Looks at where redirects lead, besides what looks at links.
const STAGE_REDIRECT: u8 = 8;

pub(super) const OP_REGEX: u8 = 0;
pub(super) const OP_EQUAL: u8 = 1;
pub(super) const OP_DIFFERENT: u8 = 2;
/// The protocols that there are.
const PROTOCOLS: [&str; 2] = ["http", "https"];

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteFilter {
    /// A regular expression, or what the URL is compared with; several stand on lines of their own.
    pub pattern: String,
    /// 0 excludes, 1 includes; unless `action` says.
    #[serde(rename = "type")]
    pub kind: u8,
    /// What is looked at: the URL, or what a page has.
    pub subject: String,
    /// 0 regular expression, 1 equal, 2 not equal; of pages also 3 at most, 4 at least, 5 less, 6 more, 7 a condition.
    #[serde(rename = "opCode")]
    pub op_code: u8,
    /// When it is looked at.
    pub stage: u8,
    /// Above 0 includes, below 0 excludes, 0 as `type` says.
    pub action: i8,
    /// 0: URLs of pages.
    pub mode: u8,
    /// 0 switches it off.
    pub state: u8,
    /// Kept; filters are not put together in groups.
    #[serde(rename = "groupId")]
    pub group_id: u64,
    #[serde(rename = "siteId", skip_serializing)]
    pub(super) site_id: Ignored,
    #[serde(rename = "userId", skip_serializing)]
    pub(super) user_id: Ignored,
    #[serde(rename = "uDate", skip_serializing)]
    pub(super) u_date: Ignored,
}

impl Default for SiteFilter {
    fn default() -> Self {
        SiteFilter {
            pattern: String::new(),
            kind: 1,
            subject: String::new(),
            op_code: OP_REGEX,
            stage: STAGE_COLLECT,
            action: 0,
            mode: 0,
            state: 1,
            group_id: 0,
            site_id: Ignored,
            user_id: Ignored,
            u_date: Ignored,
        }
    }
}

impl SiteFilter {
    /// Whether what it matches is taken; otherwise that is left out.
    pub(super) fn takes(&self) -> bool {
        if self.action == 0 { self.kind == 1 } else { self.action > 0 }
    }

    fn includes(&self) -> bool {
        // To include what is different is to exclude what is equal.
        self.takes() != (self.op_code == OP_DIFFERENT)
    }

    /// A line of its pattern as a regular expression on URLs.
    fn expression(&self, line: &str, unix_ms: u64) -> String {
        let line = times::with_times(line, unix_ms);
        if self.op_code == OP_REGEX { line.into_owned() } else { format!("^{}$", regex::escape(&line)) }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.pattern.lines().map(str::trim).filter(|line| !line.is_empty())
    }

    /// Says what is wrong with it, and in which field.
    pub(super) fn checked(&self) -> Result<(), BadRequest> {
        let bad = |field: &str, what: String| Err(BadRequest::new(field, what));
        if self.lines().next().is_none() {
            return bad("pattern", "is empty".to_owned());
        }
        if self.kind > 1 {
            return bad("type", format!("{}: 0 excludes and 1 includes", self.kind));
        }
        if self.state > 1 {
            return bad("state", format!("{}: 0 switches a filter off, 1 on", self.state));
        }
        if self.mode != 0 {
            return bad(
                "mode",
                format!("{} is not supported; 0 (URLs of pages) is: media are not collected here", self.mode),
            );
        }
        if Moment::of_stage(self.stage).is_some() {
            return PageFilter::read(self).map(drop);
        }
        if !matches!(self.stage, STAGE_COLLECT | STAGE_ALL | STAGE_PROTOCOL | STAGE_REDIRECT) {
            let what = format!(
                "{} is none: of URLs 0 (collected), 5 (all), 6 (their protocols) and 8 (redirects); of pages 1 (fetched), 7, 2 and 3 (to be processed) and 4 (processed)",
                self.stage
            );
            return bad("stage", what);
        }
        if self.op_code > OP_DIFFERENT {
            let what = format!(
                "{} is not supported for URLs; 0 (regular expression), 1 (equal), 2 (not equal) are",
                self.op_code
            );
            return bad("opCode", what);
        }
        let subject = if self.stage == STAGE_PROTOCOL { "protocol" } else { "url" };
        if !self.subject.is_empty() && !self.subject.eq_ignore_ascii_case(subject) {
            return bad("subject", format!("{:?} cannot be looked at in this stage; the {subject} can", self.subject));
        }
        times::checked(&self.pattern, true)?;
        if self.op_code == OP_REGEX
            && let Some(error) = self.lines().find_map(|line| regex::Regex::new(&times::with_times(line, 0)).err())
        {
            return bad("pattern", error.to_string().lines().last().unwrap_or("is no regular expression").to_owned());
        }
        Ok(())
    }
}

/// Whether it is switched on and looks at links.
fn is_of_links(filter: &&SiteFilter) -> bool {
    filter.state != 0 && filter.stage != STAGE_REDIRECT && Moment::of_stage(filter.stage).is_none()
}

/// Whether filters that look at links have times in them.
pub(super) fn have_times(filters: &[SiteFilter]) -> bool {
    filters.iter().filter(is_of_links).any(|filter| times::has_times(&filter.pattern))
}

/// Filters that look at where redirects lead. That is a link too, which the other filters must take: so these leave out more, and never less.
#[derive(Clone, Debug, Default)]
pub struct RedirectFilters(Vec<SiteFilter>);

impl RedirectFilters {
    /// Those of a site that are switched on.
    pub fn of_site(site: &Site) -> RedirectFilters {
        let on = site.filters.iter().filter(|filter| filter.state != 0 && filter.stage == STAGE_REDIRECT);
        RedirectFilters(on.cloned().collect())
    }

    /// Whether a redirect to this URL is followed.
    pub fn pass(&self, target: &str, unix_ms: u64) -> bool {
        // Few sites have any, and few pages redirect: they are made when one does, with the times of that moment.
        let matches = |filter: &&SiteFilter| {
            let pattern = |line: &str| regex::Regex::new(&filter.expression(line, unix_ms));
            filter.lines().any(|line| pattern(line).is_ok_and(|pattern| pattern.is_match(target)))
        };
        let (including, excluding): (Vec<&SiteFilter>, Vec<&SiteFilter>) =
            self.0.iter().partition(|filter| filter.includes());
        !excluding.iter().any(&matches) && (including.is_empty() || including.iter().any(matches))
    }
}

/// The regular expressions of which one must match a URL at a moment, if there are any, and those of which none may.
pub(super) fn patterns(filters: &[SiteFilter], unix_ms: u64) -> (Vec<String>, Vec<String>) {
    let (mut include, mut exclude) = (Vec::new(), Vec::new());
    let (protocols, urls): (Vec<&SiteFilter>, Vec<&SiteFilter>) =
        filters.iter().filter(is_of_links).partition(|filter| filter.stage == STAGE_PROTOCOL);
    for filter in urls {
        let list = if filter.includes() { &mut include } else { &mut exclude };
        list.extend(filter.lines().map(|line| filter.expression(line, unix_ms)));
    }
    let matches = |filter: &SiteFilter, protocol: &str| {
        filter.lines().any(|line| match filter.op_code {
            OP_REGEX => regex::Regex::new(line).is_ok_and(|pattern| pattern.is_match(protocol)),
            _ => line.eq_ignore_ascii_case(protocol),
        })
    };
    let wanted = |protocol: &str| {
        let mut taking = protocols.iter().filter(|filter| filter.includes()).peekable();
        let taken = taking.peek().is_none() || taking.any(|filter| matches(filter, protocol));
        taken && !protocols.iter().any(|filter| !filter.includes() && matches(filter, protocol))
    };
    exclude.extend(PROTOCOLS.iter().filter(|protocol| !wanted(protocol)).map(|protocol| format!("^{protocol}:")));
    (include, exclude)
}

/// What leaves out the protocols that the property PROTOCOLS does not name.
pub(super) fn protocols_left_out(named: &str) -> impl Iterator<Item = String> {
    let named: Vec<String> = named
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|name| !name.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    let is_named = move |protocol: &str| named.is_empty() || named.iter().any(|name| name == protocol);
    PROTOCOLS.into_iter().filter(move |protocol| !is_named(protocol)).map(|protocol| format!("^{protocol}:"))
}
