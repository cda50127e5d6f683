//! Filters of a site: which of the links found on its pages belong to it.
//!
//! A link belongs to the site if at least one filter that includes matches it and none that excludes does; a site without any that includes
//! takes its own hosts. Regular expressions are looked for anywhere in the URL, in time linear in its length.

use serde::{Deserialize, Serialize};

use super::Ignored;
use super::operation::BadRequest;

/// Looks at URLs when they are collected.
const STAGE_COLLECT: u8 = 0;
/// Looks at everything.
const STAGE_ALL: u8 = 5;
/// Looks at where redirects lead; here those are links like others.
const STAGE_REDIRECT: u8 = 8;

const OP_REGEX: u8 = 0;
const OP_EQUAL: u8 = 1;
const OP_DIFFERENT: u8 = 2;

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteFilter {
    /// A regular expression, or what the URL is compared with; several stand on lines of their own.
    pub pattern: String,
    /// 0 excludes, 1 includes; unless `action` says.
    #[serde(rename = "type")]
    pub kind: u8,
    /// What is looked at: the URL.
    pub subject: String,
    /// 0 regular expression, 1 equal, 2 not equal.
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
    fn includes(&self) -> bool {
        let includes = if self.action == 0 { self.kind == 1 } else { self.action > 0 };
        // To include what is different is to exclude what is equal.
        includes != (self.op_code == OP_DIFFERENT)
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
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
        if !matches!(self.stage, STAGE_COLLECT | STAGE_ALL | STAGE_REDIRECT) {
            return bad(
                "stage",
                format!("{} is not supported; 0 (collected URLs), 5 (all) and 8 (redirects) are", self.stage),
            );
        }
        if self.op_code > OP_DIFFERENT {
            let what = format!(
                "{} is not supported for URLs; 0 (regular expression), 1 (equal), 2 (not equal) are",
                self.op_code
            );
            return bad("opCode", what);
        }
        if self.mode != 0 {
            return bad("mode", format!("{} is not supported; 0 (URLs of pages) is", self.mode));
        }
        if !self.subject.is_empty() && !self.subject.eq_ignore_ascii_case("url") {
            return bad("subject", format!("{:?} cannot be looked at; the URL can", self.subject));
        }
        if self.op_code == OP_REGEX
            && let Some(error) = self.lines().find_map(|line| regex::Regex::new(line).err())
        {
            return bad("pattern", error.to_string().lines().last().unwrap_or("is no regular expression").to_owned());
        }
        Ok(())
    }
}

/// The regular expressions of which one must match a URL, if there are any, and those of which none may.
pub(super) fn patterns(filters: &[SiteFilter]) -> (Vec<String>, Vec<String>) {
    let (mut include, mut exclude) = (Vec::new(), Vec::new());
    for filter in filters.iter().filter(|filter| filter.state != 0) {
        let list = if filter.includes() { &mut include } else { &mut exclude };
        let pattern = |line: &str| match filter.op_code {
            OP_REGEX => line.to_owned(),
            OP_EQUAL | OP_DIFFERENT => format!("^{}$", regex::escape(line)),
            _ => unreachable!("checked"),
        };
        list.extend(filter.lines().map(pattern));
    }
    (include, exclude)
}
