//! robots.txt by RFC 9309.
//!
//! [`RobotsAnswer::from_fetch`] says what the answer to `/robots.txt` means, [`Robots`] holds the rules of one origin that
//! apply to one product token. Only those are kept: everything that speaks to other crawlers is gone after parsing.
//!
//! Where the RFC leaves room: a pattern that begins neither with `/` nor with `*` matches nothing; `Crawl-delay` and
//! `Sitemap` do not end a list of `User-agent` lines (2.2.4: other records must not interfere), and of several
//! delays in a group the longest counts; a last line cut off by the limit of 500 KiB is dropped, because half of
//! `Allow: /public` is `Allow: /`.

use crate::crawl::retry::Failure;
use crate::url::{URL_BYTES_MAX, escape_value, is_unreserved};

/// How much of a robots.txt is read; the RFC's least (section 2.5).
pub const ROBOTS_BYTES_MAX: usize = 500 << 10;

/// How many `Sitemap` lines are kept; the rest is ignored.
pub const SITEMAPS_MAX: usize = 1_000;

/// Longest delay that is understood, one day. What a crawler is ready to wait is the caller's to say.
pub const CRAWL_DELAY_MS_MAX: u64 = 86_400_000;

/// Bytes of path that wildcard rules may search for one question, some 10 ms of work. A question that needs more is
/// answered with no: 500 KiB of rules that search an 8,000 character path are an attack.
const SEARCH_BYTES_MAX: usize = 8 << 20;

/// A byte order mark, which some editors put in front of the file.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// The rules of one origin for one product token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Robots {
    /// Patterns without wildcards, in order, each once.
    plain: Vec<Plain>,
    /// Patterns with wildcards, the longest first, and `Allow` before `Disallow`.
    wild: Vec<Wild>,
    crawl_delay_ms: Option<u64>,
    sitemaps: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Plain {
    pattern: Box<str>,
    allow: bool,
}

/// `/a*b*c$`: `/a` at the start, then `b`, then `c` at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wild {
    pattern: Box<str>,
    allow: bool,
}

/// What the answer to `/robots.txt` means for its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RobotsAnswer {
    /// There is a file, and these are its rules.
    Rules(Robots),
    /// There is none that can be had: everything is allowed.
    Absent,
    /// The server is in trouble: everything is forbidden until it answers.
    Unreachable,
}

impl RobotsAnswer {
    /// Decides by status and (decoded) body, or by what ended the fetch after up to five redirects.
    pub fn from_fetch(fetched: Result<(u16, &[u8]), Failure>, product_token: &str) -> RobotsAnswer {
        match fetched {
            Ok((200..=299, body)) => RobotsAnswer::Rules(Robots::parse(body, product_token)),
            Ok((status, _)) | Err(Failure::Http(status)) => match status {
                429 => RobotsAnswer::Unreachable,
                300..=499 => RobotsAnswer::Absent, // 3xx: a redirect that was not to be followed any further
                _ => RobotsAnswer::Unreachable,
            },
            Err(Failure::RedirectsTooMany | Failure::RedirectInvalid) => RobotsAnswer::Absent,
            Err(_) => RobotsAnswer::Unreachable,
        }
    }

    /// Says whether a path (with its query) may be fetched, and if not, for which reason.
    pub fn check(&self, path_and_query: &str) -> Result<(), Failure> {
        match self {
            RobotsAnswer::Rules(robots) if robots.allows(path_and_query) => Ok(()),
            RobotsAnswer::Rules(_) => Err(Failure::RobotsForbidden),
            RobotsAnswer::Absent => Ok(()),
            RobotsAnswer::Unreachable if is_robots_txt(path_and_query) => Ok(()),
            RobotsAnswer::Unreachable => Err(Failure::RobotsUnavailable),
        }
    }

    /// Returns the rules to obey until the next fetch of the file.
    pub fn into_robots(self) -> Robots {
        match self {
            RobotsAnswer::Rules(robots) => robots,
            RobotsAnswer::Absent => Robots::allow_all(),
            RobotsAnswer::Unreachable => Robots::forbid_all(),
        }
    }
}

impl Robots {
    /// Reads a file for the crawler that calls itself `product_token` (`Orbweaver`, not the whole User-Agent header).
    pub fn parse(body: &[u8], product_token: &str) -> Robots {
        let mut reader = Reader::new(product_token);
        for line in lines(body) {
            reader.read(line);
        }
        reader.finish()
    }

    /// No rules at all.
    pub fn allow_all() -> Robots {
        Robots::default()
    }

    /// Everything is forbidden but `/robots.txt`.
    pub fn forbid_all() -> Robots {
        Robots { plain: vec![Plain { pattern: "/".into(), allow: false }], ..Robots::default() }
    }

    /// Says whether a path (with its query) may be fetched. The longest pattern that matches decides, `Allow` wins a tie.
    pub fn allows(&self, path_and_query: &str) -> bool {
        if self.plain.is_empty() && self.wild.is_empty() || is_robots_txt(path_and_query) {
            return true;
        }
        let path = normalise(path_and_query.as_bytes(), Of::Path);
        let plain = self.longest_plain(&path);
        let plain_bytes = plain.map_or(0, |rule| rule.pattern.len());
        let mut budget = SEARCH_BYTES_MAX;
        for rule in self.wild.iter().take_while(|rule| rule.pattern.len() >= plain_bytes) {
            match rule.matches(&path, &mut budget) {
                Some(true) if rule.pattern.len() > plain_bytes => return rule.allow,
                Some(true) if rule.allow => return true,
                Some(_) => {}
                None => return false,
            }
        }
        plain.is_none_or(|rule| rule.allow)
    }

    /// The delay between requests that the file asks for, at most [`CRAWL_DELAY_MS_MAX`].
    pub fn crawl_delay_ms(&self) -> Option<u64> {
        self.crawl_delay_ms
    }

    /// The sitemaps that the file names, in order; nobody has checked that they are URLs.
    pub fn sitemaps(&self) -> &[String] {
        &self.sitemaps
    }

    /// Returns the longest plain rule that `path` begins with. A rule that sorts before `path` and is no beginning of it
    /// leaves only beginnings of what both share, so every step but the last skips all rules in between.
    fn longest_plain(&self, path: &str) -> Option<&Plain> {
        let mut key = path;
        loop {
            let before = self.plain.partition_point(|rule| *rule.pattern <= *key);
            let rule = self.plain[..before].last()?;
            if path.starts_with(&*rule.pattern) {
                return Some(rule);
            }
            let shared = rule.pattern.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
            key = &path[..shared];
        }
    }
}

impl Wild {
    /// Matches from the left, each piece at its first place: for patterns of `*` alone that never misses a match.
    /// `None` if the budget is used up.
    fn matches(&self, path: &str, budget: &mut usize) -> Option<bool> {
        let anchored = self.pattern.ends_with('$');
        let mut pieces = self.pattern.strip_suffix('$').unwrap_or(&self.pattern).split('*');
        let Some(mut rest) = path.strip_prefix(pieces.next().unwrap_or_default()) else { return Some(false) };
        let mut pieces = pieces.peekable();
        if pieces.peek().is_none() {
            return Some(!anchored || rest.is_empty());
        }
        while let Some(piece) = pieces.next() {
            if anchored && pieces.peek().is_none() {
                return Some(rest.ends_with(piece));
            }
            let found = rest.find(piece);
            *budget = budget.checked_sub(found.unwrap_or(rest.len()) + piece.len())?;
            let Some(at) = found else { return Some(false) };
            rest = &rest[at + piece.len()..];
        }
        Some(true)
    }
}

fn is_robots_txt(path_and_query: &str) -> bool {
    path_and_query.split('?').next() == Some("/robots.txt")
}

/// Returns the lines of the part of `body` that is read. LF, CR and CRLF all end a line; what a CRLF leaves is an
/// empty one.
fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let body = body.strip_prefix(BOM).unwrap_or(body);
    let is_end = |b: &u8| matches!(b, b'\n' | b'\r');
    let read = match body.get(..ROBOTS_BYTES_MAX) {
        Some(head) if !body.get(ROBOTS_BYTES_MAX).is_none_or(is_end) => {
            &head[..head.iter().rposition(is_end).unwrap_or(0)]
        }
        Some(head) => head,
        None => body,
    };
    read.split(is_end)
}

/// Whom the group that is being read speaks to.
#[derive(Clone, Copy, Default)]
struct Audience {
    us: bool,
    all: bool,
}

/// What has been collected for one audience.
#[derive(Default)]
struct Group {
    rules: Vec<(Box<str>, bool)>,
    crawl_delay_ms: Option<u64>,
}

struct Reader {
    token: Vec<u8>,
    audience: Audience,
    /// The last record was a `User-agent`: another one joins the same group.
    naming_agents: bool,
    us: Option<Group>,
    all: Group,
    sitemaps: Vec<String>,
}

impl Reader {
    fn new(product_token: &str) -> Reader {
        Reader {
            token: agent_token(product_token.as_bytes()).to_ascii_lowercase(),
            audience: Audience::default(),
            naming_agents: false,
            us: None,
            all: Group::default(),
            sitemaps: Vec::new(),
        }
    }

    fn read(&mut self, line: &[u8]) {
        let line = line.split(|&b| b == b'#').next().unwrap_or_default().trim_ascii();
        let Some((key, value)) = key_and_value(line) else { return };
        let is = |names: &[&str]| names.iter().any(|name| key.eq_ignore_ascii_case(name.as_bytes()));
        if is(&["user-agent", "useragent", "user agent"]) {
            self.read_agent(value);
        } else if is(&["disallow"]) {
            self.read_rule(value, false);
        } else if is(&["allow"]) {
            self.read_rule(value, true);
        } else if is(&["crawl-delay", "crawldelay"]) {
            self.read_delay(value);
        } else if is(&["sitemap", "site-map"]) {
            self.read_sitemap(value);
        }
    }

    fn read_agent(&mut self, value: &[u8]) {
        if !self.naming_agents {
            self.audience = Audience::default();
            self.naming_agents = true;
        }
        let token = agent_token(value);
        if value.first() == Some(&b'*') {
            self.audience.all = true;
        } else if !token.is_empty() && token.eq_ignore_ascii_case(&self.token) {
            self.audience.us = true;
            self.us.get_or_insert_default();
        }
    }

    fn read_rule(&mut self, value: &[u8], allow: bool) {
        self.naming_agents = false;
        if !matches!(value.first(), Some(b'/' | b'*')) || !(self.audience.us || self.audience.all) {
            return;
        }
        let pattern: Box<str> = normalise(value, Of::Pattern).into();
        self.for_audience(|group| group.rules.push((pattern.clone(), allow)));
    }

    fn read_delay(&mut self, value: &[u8]) {
        let seconds: Option<f64> = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0) else { return };
        let delay_ms = ((seconds * 1_000.0) as u64).min(CRAWL_DELAY_MS_MAX); // a cast from float saturates
        self.for_audience(|group| group.crawl_delay_ms = group.crawl_delay_ms.max(Some(delay_ms)));
    }

    fn read_sitemap(&mut self, value: &[u8]) {
        let Ok(text) = std::str::from_utf8(value) else { return };
        if !text.is_empty() && text.len() <= URL_BYTES_MAX && self.sitemaps.len() < SITEMAPS_MAX {
            self.sitemaps.push(text.to_owned());
        }
    }

    fn for_audience(&mut self, mut add: impl FnMut(&mut Group)) {
        if let Some(us) = self.us.as_mut().filter(|_| self.audience.us) {
            add(us);
        }
        if self.audience.all {
            add(&mut self.all);
        }
    }

    /// Takes the groups that name us, or else those for everyone, and sorts their rules for asking.
    fn finish(self) -> Robots {
        let group = self.us.unwrap_or(self.all);
        let mut rules = group.rules;
        rules.sort_unstable_by(|(a, allow_a), (b, allow_b)| a.cmp(b).then(allow_b.cmp(allow_a)));
        rules.dedup_by(|(later, _), (earlier, _)| later == earlier); // the earlier is the `Allow`
        let (mut plain, mut wild) = (Vec::new(), Vec::new());
        for (pattern, allow) in rules {
            if pattern.contains('*') || pattern.ends_with('$') {
                wild.push(Wild { pattern, allow });
            } else {
                plain.push(Plain { pattern, allow });
            }
        }
        wild.sort_by_key(|rule| (std::cmp::Reverse(rule.pattern.len()), !rule.allow));
        Robots { plain, wild, crawl_delay_ms: group.crawl_delay_ms, sitemaps: self.sitemaps }
    }
}

/// Splits a record at its colon, or, where someone forgot it, at the only blank.
fn key_and_value(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|&b| b == b':');
    let at = colon.or_else(|| line.iter().position(u8::is_ascii_whitespace))?;
    let (key, value) = (line[..at].trim_ascii(), line[at + 1..].trim_ascii());
    let is_prose = colon.is_none() && value.iter().any(u8::is_ascii_whitespace);
    (!is_prose).then_some((key, value))
}

/// Returns what a product token can consist of; `foobot/1.0` means `foobot`.
fn agent_token(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|&b| !b.is_ascii_alphabetic() && b != b'-' && b != b'_');
    &value[..end.unwrap_or(value.len())]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Path,
    Pattern,
}

/// Brings a path or a pattern into the one spelling in which both are compared (section 2.2.2): escapes of unreserved
/// characters decoded, whatever else is not reserved encoded. In a pattern `*`, and `$` at its end, stay as
/// they are, and a run of `*` becomes one; elsewhere both characters are encoded, so `%2A` and `*` in a path are the same.
fn normalise(bytes: &[u8], of: Of) -> String {
    let mut out = String::with_capacity(bytes.len() + 16);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'*' if of == Of::Pattern => {
                if !out.ends_with('*') {
                    out.push('*');
                }
            }
            b'$' if of == Of::Pattern && at == bytes.len() => out.push('$'),
            b'%' => match escape_value(&bytes[at - 1..]) {
                Some(value) => {
                    at += 2;
                    if is_unreserved(value) { out.push(char::from(value)) } else { push_escape(&mut out, value) }
                }
                None => push_escape(&mut out, b'%'),
            },
            // The WHATWG parser encodes `'` in queries only; robots.txt authors do not know that.
            b'*' | b'$' | b'\'' => push_escape(&mut out, byte),
            b if is_unreserved(b) || b":/?#[]@!&()+,;=".contains(&b) => out.push(char::from(b)),
            b => push_escape(&mut out, b),
        }
    }
    out
}

fn push_escape(out: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.push('%');
    out.push(char::from(HEX[usize::from(byte >> 4)]));
    out.push(char::from(HEX[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests;
