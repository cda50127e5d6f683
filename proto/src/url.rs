//! Canonical URLs: parse, normalise, host, domain.
//!
//! The WHATWG parser does the reading: it lowers scheme and host, drops default ports, resolves dot segments, turns
//! international names into punycode and encodes what must be encoded. On top of that the canonical form
//! - drops fragment, user and password, the dot after a host name, and a query that is empty;
//! - writes percent escapes in upper case and decodes those of unreserved characters (`%7e` is `~`);
//! - removes the parameters that name a visitor and not a page ([`UrlRules`]), keeping the order of the others.
//!
//! Canonicalising twice changes nothing, with or without rules. Most links on the web are already canonical, so
//! `scan` recognises that in one pass over the bytes and the WHATWG parser is only asked about the others.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{Slot, UrlId};

/// Longest canonical URL we keep, in bytes.
pub const URL_BYTES_MAX: usize = 8_000;

/// Longest text we look at: a fragment may be dropped, but nobody links with 64 KiB of it.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Limits of DNS: a name that breaks them resolves nowhere.
const HOST_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Parameters that are removed by default: campaign and click identifiers, and session identifiers that frameworks put
/// into links. `sid` and `sessionid` are not among them: on many sites they choose what is shown.
const TRACKING_PARAMETERS: &[&str] = &[
    "utm_*",
    "mtm_*",
    "piwik_*",
    "_ga",
    "_gl",
    "gclid",
    "gclsrc",
    "dclid",
    "gbraid",
    "wbraid",
    "srsltid",
    "fbclid",
    "igshid",
    "igsh",
    "msclkid",
    "yclid",
    "ysclid",
    "_openstat",
    "twclid",
    "ttclid",
    "li_fat_id",
    "epik",
    "mc_cid",
    "mc_eid",
    "mkt_tok",
    "_hsenc",
    "_hsmi",
    "__hssc",
    "__hstc",
    "__hsfp",
    "hsctatracking",
    "vero_id",
    "oly_anon_id",
    "oly_enc_id",
    "wickedid",
    "jsessionid",
    "phpsessid",
    "aspsessionid*",
    "cfid",
    "cftoken",
];

/// How URLs are brought into their canonical form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UrlRules {
    /// Parameters that identify a visitor and not a page, in the query and as `;name=value` in the path.
    /// Upper and lower case are the same; a trailing `*` matches any ending.
    pub tracking_parameters: Vec<String>,
    /// Sorts the query parameters. Off by default: some servers read meaning from the order.
    pub sort_query: bool,
}

impl Default for UrlRules {
    fn default() -> Self {
        let tracking_parameters = TRACKING_PARAMETERS.iter().map(|&name| name.to_owned()).collect();
        UrlRules { tracking_parameters, sort_query: false }
    }
}

impl UrlRules {
    /// Changes nothing in a URL that is canonical already, by whatever rules: for what was stored or sent as canonical.
    pub const AS_IT_IS: UrlRules = UrlRules { tracking_parameters: Vec::new(), sort_query: false };

    /// Says whether `name=value` is a parameter to remove.
    fn removes(&self, parameter: &str) -> bool {
        let name = parameter.split_once('=').map_or(parameter, |(name, _)| name).as_bytes();
        let Some(first) = name.first().map(u8::to_ascii_lowercase) else { return false };
        self.tracking_parameters.iter().any(|pattern| match pattern.as_bytes() {
            [] => false,
            [prefix @ .., b'*'] => name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)),
            [start, ..] if start.to_ascii_lowercase() != first => false,
            whole => name.eq_ignore_ascii_case(whole),
        })
    }

    /// Says whether these rules would change a path or query that is otherwise canonical.
    fn change(&self, path: &str, query: Option<&str>) -> bool {
        let in_path = || path.split('/').any(|segment| segment.split(';').skip(1).any(|part| self.removes(part)));
        let in_query = |query: &str| query.split('&').any(|part| self.removes(part));
        path.contains(';') && in_path()
            || query.is_some_and(|query| in_query(query) || self.sort_query && !query.split('&').is_sorted())
    }

    /// Appends `path` without the path parameters to remove.
    fn push_path(&self, out: &mut String, path: &str) {
        for segment in path.split('/').skip(1) {
            out.push('/');
            let mut parts = segment.split(';');
            let name = parts.next().unwrap_or_default();
            let start = out.len();
            out.push_str(name);
            for part in parts.filter(|part| !self.removes(part)) {
                out.push(';');
                out.push_str(part);
            }
            // `..;jsessionid=1` is a name, `..` would be a step upwards.
            if matches!(&out[start..], "." | "..") {
                out.truncate(start);
                out.push_str(segment);
            }
        }
    }

    /// Returns `query` without the parameters to remove.
    fn query(&self, query: &str) -> String {
        let mut parts: Vec<&str> = query.split('&').filter(|part| !self.removes(part)).collect();
        if self.sort_query {
            parts.sort_unstable();
        }
        parts.join("&")
    }
}

/// A URL in canonical form. Two spellings of one page give equal values.
#[derive(Clone)]
pub struct CanonicalUrl {
    text: Box<str>,
    layout: Layout,
}

/// Where the parts of a canonical text are; every offset fits because of [`URL_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    host_start: u16,
    domain_start: u16,
    host_end: u16,
    path_start: u16,
    path_end: u16,
}

/// Why a text is no URL that can be crawled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The WHATWG parser refused it, or no name server can know the host.
    #[error("not a URL: {0}")]
    Invalid(String),
    /// Not http or https.
    #[error("scheme {0} is not crawled, only http and https")]
    Scheme(String),
    /// Longer than [`URL_BYTES_MAX`].
    #[error("{0} bytes long, more than {URL_BYTES_MAX}")]
    TooLong(usize),
    /// A stored text that should have been canonical and is not.
    #[error("not in canonical form")]
    NotCanonical,
}

impl CanonicalUrl {
    /// Parses an absolute URL and brings it into canonical form.
    pub fn parse(text: &str, rules: &UrlRules) -> Result<CanonicalUrl, UrlError> {
        if let Some(layout) = scan(text) {
            return Self::from_scanned(Cow::Borrowed(text), layout, rules);
        }
        refuse_early(text)?;
        let url = url::Url::parse(text).map_err(|error| UrlError::Invalid(error.to_string()))?;
        Self::from_url(url, rules)
    }

    /// Resolves `reference` as found on a page whose base is `base`.
    pub fn join(base: &url::Url, reference: &str, rules: &UrlRules) -> Result<CanonicalUrl, UrlError> {
        if let Some(layout) = scan(reference) {
            return Self::from_scanned(Cow::Borrowed(reference), layout, rules);
        }
        refuse_early(reference)?;
        let url = base.join(reference).map_err(|error| UrlError::Invalid(error.to_string()))?;
        Self::from_url(url, rules)
    }

    /// Brings a parsed URL into canonical form.
    pub fn from_url(url: url::Url, rules: &UrlRules) -> Result<CanonicalUrl, UrlError> {
        match scan(url.as_str()) {
            Some(layout) => Self::from_scanned(Cow::Owned(url.into()), layout, rules),
            None => assemble(&url, Some(rules)),
        }
    }

    /// Takes back a text that [`CanonicalUrl::as_str`] gave, whatever the rules were; any other text is an error.
    pub fn from_canonical(text: String) -> Result<CanonicalUrl, UrlError> {
        if let Some(layout) = scan(&text) {
            return Ok(CanonicalUrl { text: text.into(), layout });
        }
        refuse_early(&text)?;
        let url = url::Url::parse(&text).map_err(|error| UrlError::Invalid(error.to_string()))?;
        let canonical = assemble(&url, None)?;
        if *canonical.text == *text { Ok(canonical) } else { Err(UrlError::NotCanonical) }
    }

    /// Finishes a text that [`scan`] accepted: only the rules can still change it.
    fn from_scanned(text: Cow<'_, str>, layout: Layout, rules: &UrlRules) -> Result<CanonicalUrl, UrlError> {
        let (path, query) = layout.path_and_query(&text);
        if !rules.change(path, query) {
            return Ok(CanonicalUrl { text: text.into(), layout });
        }
        let mut out = String::with_capacity(text.len());
        out.push_str(&text[..usize::from(layout.path_start)]);
        finish(out, layout, path, query, Some(rules))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The canonical text, giving up the rest.
    pub fn into_string(self) -> String {
        self.text.into()
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &str {
        &self.text[..usize::from(self.layout.host_start) - "://".len()]
    }

    /// Host name or address, without port; an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        &self.text[usize::from(self.layout.host_start)..usize::from(self.layout.host_end)]
    }

    /// Port to connect to, the scheme's own if the URL names none.
    pub fn port(&self) -> u16 {
        let written = &self.text[usize::from(self.layout.host_end)..usize::from(self.layout.path_start)];
        let default = if self.scheme() == "https" { 443 } else { 80 };
        written.strip_prefix(':').and_then(|port| port.parse().ok()).unwrap_or(default)
    }

    /// Registrable domain by the public suffix list; an address, or a host that is itself a suffix, is its own domain.
    pub fn domain(&self) -> &str {
        &self.text[usize::from(self.layout.domain_start)..usize::from(self.layout.host_end)]
    }

    /// Scheme and authority as in `https://example.com:8443`: what a robots.txt speaks for.
    pub fn origin(&self) -> &str {
        &self.text[..usize::from(self.layout.path_start)]
    }

    /// Path, beginning with `/`, without the query.
    pub fn path(&self) -> &str {
        self.layout.path_and_query(&self.text).0
    }

    /// Query without `?`, if there is one.
    pub fn query(&self) -> Option<&str> {
        self.layout.path_and_query(&self.text).1
    }

    /// Path and query as they stand in the request line: what robots.txt rules are matched against.
    pub fn path_and_query(&self) -> &str {
        &self.text[usize::from(self.layout.path_start)..]
    }

    /// Origin and path, without the query.
    pub fn without_query(&self) -> &str {
        &self.text[..usize::from(self.layout.path_end)]
    }

    /// Slot of the domain.
    pub fn slot(&self) -> Slot {
        Slot::of_domain(self.domain())
    }

    /// Identity within `crawl`.
    pub fn id(&self, crawl: &str) -> UrlId {
        UrlId::of(crawl, &self.text)
    }

    /// The same URL for the `url` crate, for joining references to it.
    pub fn to_url(&self) -> url::Url {
        url::Url::parse(&self.text).expect("a canonical URL parses")
    }
}

impl Layout {
    fn path_and_query<'text>(&self, text: &'text str) -> (&'text str, Option<&'text str>) {
        let (path_start, path_end) = (usize::from(self.path_start), usize::from(self.path_end));
        (&text[path_start..path_end], text.get(path_end + 1..))
    }
}

/// Refuses without a parser what is too long, or plainly of another scheme: `javascript:`, `mailto:`, megabytes of `data:`.
fn refuse_early(text: &str) -> Result<(), UrlError> {
    let trimmed = text.trim_start_matches(|c: char| c <= ' ');
    let scheme_end = trimmed.bytes().take(32).position(|b| !b.is_ascii_alphanumeric() && !b"+-.".contains(&b));
    if let Some(end) = scheme_end.filter(|&end| trimmed.as_bytes()[end] == b':') {
        let scheme = trimmed[..end].to_ascii_lowercase();
        if scheme.starts_with(|c: char| c.is_ascii_lowercase()) && scheme != "http" && scheme != "https" {
            return Err(UrlError::Scheme(scheme));
        }
    }
    if text.len() > INPUT_BYTES_MAX { Err(UrlError::TooLong(text.len())) } else { Ok(()) }
}

/// Builds the canonical form of whatever the WHATWG parser accepted.
fn assemble(url: &url::Url, rules: Option<&UrlRules>) -> Result<CanonicalUrl, UrlError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(UrlError::Scheme(url.scheme().to_owned()));
    }
    let written = url.host_str().unwrap_or_default();
    let host = match url.host() {
        Some(url::Host::Domain(_)) => {
            let name = written.strip_suffix('.').unwrap_or(written);
            check_name(name).map_err(|reason| UrlError::Invalid(reason.to_owned()))?;
            name
        }
        Some(_) => written,
        None => return Err(UrlError::Invalid("no host".to_owned())),
    };
    let mut out = String::with_capacity(url.as_str().len());
    out.push_str(url.scheme());
    out.push_str("://");
    let host_start = out.len();
    out.push_str(host);
    let host_end = out.len();
    if let Some(port) = url.port() {
        out.push(':');
        out.push_str(&port.to_string());
    }
    let layout = Layout {
        host_start: host_start as u16, // at most "https://", and a host of at most 253 bytes
        domain_start: (host_end - domain_of(host).len()) as u16,
        host_end: host_end as u16,
        path_start: out.len() as u16,
        path_end: 0,
    };
    finish(out, layout, &normalise_escapes(url.path()), url.query().map(normalise_escapes).as_deref(), rules)
}

/// Appends path and query to `out`, which holds the origin, by the rules.
fn finish(
    mut out: String,
    mut layout: Layout,
    path: &str,
    query: Option<&str>,
    rules: Option<&UrlRules>,
) -> Result<CanonicalUrl, UrlError> {
    let query = match rules {
        Some(rules) => {
            rules.push_path(&mut out, path);
            query.map(|query| Cow::Owned(rules.query(query)))
        }
        None => {
            out.push_str(path);
            query.map(Cow::Borrowed)
        }
    };
    let path_end = out.len();
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        out.push('?');
        out.push_str(&query);
    }
    if out.len() > URL_BYTES_MAX {
        return Err(UrlError::TooLong(out.len()));
    }
    layout.path_end = path_end as u16; // not above URL_BYTES_MAX
    Ok(CanonicalUrl { text: out.into(), layout })
}

/// Says why `name` cannot be a host name. The WHATWG parser lets through what only looks like one: `a..b`, `a"b`.
fn check_name(name: &str) -> Result<(), &'static str> {
    if name.len() > HOST_BYTES_MAX {
        return Err("host name longer than 253 bytes");
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err("empty label in the host name");
        }
        if label.len() > LABEL_BYTES_MAX {
            return Err("label longer than 63 bytes in the host name");
        }
        if !label.bytes().all(is_name_byte) {
            return Err("character in the host name that no name has");
        }
    }
    Ok(())
}

fn is_name_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & NAME != 0
}

/// Returns the registrable domain of a canonical host, a suffix of it.
fn domain_of(host: &str) -> &str {
    // The WHATWG parser gives a number as last label to IPv4 addresses only.
    let last = host.rsplit('.').next().unwrap_or(host);
    if host.starts_with('[') || last.bytes().all(|b| b.is_ascii_digit()) {
        return host;
    }
    psl::domain_str(host).unwrap_or(host)
}

/// Writes escapes in upper case and decodes those of unreserved characters. A `%` that begins no escape stays as it is,
/// and a digit that would complete it stays encoded: `%%34%31` must not become `%41`, which is another page.
fn normalise_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut stray = None; // where in `out` the last `%` is that begins no escape
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let escape = rest.as_bytes();
        let Some(value) = escape_value(escape) else {
            stray = Some(out.len());
            out.push('%');
            rest = &rest[1..];
            continue;
        };
        let completes = |stray: usize| match &out.as_bytes()[stray + 1..] {
            [] => value.is_ascii_hexdigit(),
            [digit] => digit.is_ascii_hexdigit() && value.is_ascii_hexdigit(),
            _ => false,
        };
        if is_unreserved(value) && !stray.is_some_and(completes) {
            out.push(char::from(value));
        } else {
            out.push('%');
            out.extend(escape[1..3].iter().map(|digit| char::from(digit.to_ascii_uppercase())));
        }
        rest = &rest[3..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns the byte that the escape at the start of `bytes` stands for.
pub(crate) fn escape_value(bytes: &[u8]) -> Option<u8> {
    let &[b'%', high, low, ..] = bytes else { return None };
    let digit = |b: u8| char::from(b).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// Says whether RFC 3986 lets `byte` stand for itself everywhere.
pub(crate) fn is_unreserved(byte: u8) -> bool {
    CLASS[usize::from(byte)] & UNRESERVED != 0
}

const NAME: u8 = 1;
const UNRESERVED: u8 = 2;
/// Bytes that the canonical form leaves alone in a path or query, and that mean nothing to [`scan`].
const PATH: u8 = 4;
const QUERY: u8 = 8;

const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        let b = byte as u8;
        if b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_' {
            class[byte] |= NAME;
        }
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
            class[byte] |= UNRESERVED | QUERY;
        }
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'~' | b'/' | b'\'') {
            class[byte] |= PATH;
        }
        if matches!(
            b,
            b'!' | b'$' | b'&' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':' | b'@' | b'[' | b']' | b'|'
        ) {
            class[byte] |= PATH | QUERY;
        }
        if matches!(b, b'/' | b'?') {
            class[byte] |= QUERY;
        }
        byte += 1;
    }
    class
};

/// Recognises a text that is canonical as it stands, before any rules. `None` says "ask the parser", not "no".
fn scan(text: &str) -> Option<Layout> {
    let bytes = text.as_bytes();
    if bytes.len() > URL_BYTES_MAX {
        return None;
    }
    let (host_start, default_port) = match bytes {
        [b'h', b't', b't', b'p', b's', b':', b'/', b'/', ..] => (8, 443),
        [b'h', b't', b't', b'p', b':', b'/', b'/', ..] => (7, 80),
        _ => return None,
    };
    let host_bytes = bytes[host_start..].iter().take_while(|&&b| is_name_byte(b) || b == b'.').count();
    let host_end = host_start + host_bytes;
    let host = &text[host_start..host_end];
    let last = host.rsplit('.').next()?;
    if last.starts_with(|c: char| c.is_ascii_digit()) {
        Ipv4Addr::from_str(host).ok()?; // the dotted form, and no other spelling of an address
    } else if check_name(host).is_err() || host.split('.').any(|label| label.starts_with("xn--")) {
        return None; // punycode has to be checked
    }
    let path_start = scan_port(bytes, host_end, default_port)?;
    let path_end = scan_path(bytes, path_start)?;
    if path_end < bytes.len() {
        scan_query(bytes, path_end)?;
    }
    Some(Layout {
        host_start: host_start as u16,
        domain_start: (host_end - domain_of(host).len()) as u16,
        host_end: host_end as u16,
        path_start: path_start as u16,
        path_end: path_end as u16,
    })
}

/// Returns where the port that may begin at `start` ends.
fn scan_port(bytes: &[u8], start: usize, default: u16) -> Option<usize> {
    if bytes.get(start) != Some(&b':') {
        return Some(start);
    }
    let digits = bytes[start + 1..].iter().take(6).take_while(|b| b.is_ascii_digit()).count();
    let written = &bytes[start + 1..start + 1 + digits];
    let port: u16 = std::str::from_utf8(written).ok()?.parse().ok()?;
    (port != default && (written[0] != b'0' || digits == 1)).then_some(start + 1 + digits)
}

/// Returns where the path that begins at `start` ends: at the end of the text, or at the `?`.
fn scan_path(bytes: &[u8], start: usize) -> Option<usize> {
    if bytes.get(start) != Some(&b'/') {
        return None;
    }
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        at += match byte {
            b if CLASS[usize::from(b)] & PATH != 0 => 1,
            b'.' if bytes[at - 1] == b'/' && is_dot_segment(&bytes[at..]) => return None,
            b'.' => 1,
            b'%' => scan_escape(&bytes[at..])?,
            b'?' => return Some(at),
            _ => return None,
        };
    }
    Some(at)
}

/// Accepts the query whose `?` is at `start`.
fn scan_query(bytes: &[u8], start: usize) -> Option<()> {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        at += match byte {
            b if CLASS[usize::from(b)] & QUERY != 0 => 1,
            b'%' => scan_escape(&bytes[at..])?,
            _ => return None,
        };
    }
    (at > start + 1).then_some(())
}

/// Returns the length of an escape in canonical form.
fn scan_escape(bytes: &[u8]) -> Option<usize> {
    let canonical = !is_unreserved(escape_value(bytes)?) && !bytes[1..3].iter().any(u8::is_ascii_lowercase);
    canonical.then_some(3)
}

fn is_dot_segment(segment: &[u8]) -> bool {
    matches!(segment, [b'.'] | [b'.', b'/' | b'?', ..] | [b'.', b'.'] | [b'.', b'.', b'/' | b'?', ..])
}

impl PartialEq for CanonicalUrl {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for CanonicalUrl {}

impl PartialOrd for CanonicalUrl {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CanonicalUrl {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for CanonicalUrl {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Borrow<str> for CanonicalUrl {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl AsRef<str> for CanonicalUrl {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for CanonicalUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl fmt::Debug for CanonicalUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, out)
    }
}

impl Serialize for CanonicalUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for CanonicalUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        CanonicalUrl::from_canonical(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
