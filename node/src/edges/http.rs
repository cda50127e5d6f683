//! Fetch edge: one GET, byte for byte, within limits.
//!
//! [`HttpClient::fetch`] asks for one URL and returns the answer whatever its status; redirects, retries and politeness
//! are the caller's. The archive wants what went over the wire and the parser what it means, so [`Fetched`] has both:
//! the heads, the body as transferred and the body decoded (one buffer when the server did not encode it).
//!
//! The other side is hostile. The head, the body as transferred and the body decoded are bounded in bytes and all of it
//! in time; reading stops at the first limit reached. Addresses that are not public are refused, see `guard.rs`.
//!
//! What the heads are: a record in HTTP/1.1 form that archive tools read.
//! * Header names are in lower case and equal names stand together: hyper keeps neither case nor that order.
//! * An HTTP/2 answer is written with the status line `HTTP/1.1`, as most archives do and their readers expect;
//!   [`Fetched::version`] says what was spoken.
//! * `transfer-encoding` describes how the body travelled, and hyper has undone it. Readers would undo it once more, so
//!   it is recorded as `x-orig-transfer-encoding`, the name Browsertrix uses; the record's length ends the body.
//! * A reason phrase of the server's own invention is replaced by the standard one.

mod date;
mod error;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode, Version};
use ipnet::IpNet;
use proto::url::CanonicalUrl;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::error;
use url::{Host, Position, Url};

pub use self::date::parse_http_date;
pub use self::error::FetchError;
use self::error::{is_unannounced_close, root_cause};
use crate::edges::decode::{DecodeError, Decoder, parse_encodings};
use crate::edges::dns::DnsResolver;
use crate::edges::guard::AddressGuard;

/// Idle connections kept per host: politeness lets one request run at a time.
const IDLE_PER_HOST_MAX: usize = 1;
/// How long an idle connection is kept: as long as a usual crawl delay, below what servers usually allow.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// HTTP/2 flow control: what a server may send ahead of our reading, per stream and per connection.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
/// What is reserved for a body on the word of its Content-Length alone.
const BODY_RESERVE_BYTES_MAX: usize = 256 * 1024;

/// Proxies whose connections are kept.
const PROXIES_MAX: usize = 64;

/// What limits may be set to. The hour and the gibibyte catch mistaken units; the header lines are set aside for every
/// answer before it comes.
const TIMEOUT_MS_MAX: u64 = 3_600_000;
const BYTES_MAX: u64 = 1 << 30;
const HEADER_COUNT_MAX: u64 = 4_096;

/// Headers that follow from the request itself or from other settings.
const RESERVED_HEADERS: [HeaderName; 11] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::UPGRADE,
    header::EXPECT,
    header::ACCEPT_ENCODING,
    header::USER_AGENT,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
];

/// Bounds on one fetch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FetchLimits {
    /// Longest time for a whole fetch, from name to last byte.
    pub fetch_timeout_ms: u64,
    /// Longest time until a connection is ready: name, TCP and TLS.
    pub connect_timeout_ms: u64,
    /// Longest silence of a server, before the head and between pieces of the body.
    pub read_timeout_ms: u64,
    /// Most bytes of an answer's status line and headers. Up to 400 KiB are read before they are counted.
    pub head_bytes_max: usize,
    /// Most header lines of an answer.
    pub header_count_max: usize,
    /// Most bytes of a body as transferred; `page_bytes_max` holds for them too.
    pub wire_bytes_max: usize,
    /// Most bytes of a body after decoding.
    pub page_bytes_max: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        FetchLimits {
            fetch_timeout_ms: 30_000,
            connect_timeout_ms: 10_000,
            read_timeout_ms: 15_000,
            head_bytes_max: 64 * 1024,
            header_count_max: 128,
            wire_bytes_max: 10 * 1024 * 1024,
            page_bytes_max: 10 * 1024 * 1024,
        }
    }
}

/// How a client fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOptions {
    /// Who we say we are; sites find their operator by it, so it is never empty.
    pub user_agent: String,
    /// Further headers of every request, in order. `Accept` may be among them.
    pub headers: Vec<(String, String)>,
    /// The encodings we ask for. Others than these four are kept as they come.
    pub accept_encoding: String,
    /// Networks that are not public and may be fetched from all the same.
    pub allow_addresses: Vec<IpNet>,
    /// Names with a fixed address, looked up before DNS.
    pub hosts: BTreeMap<String, IpAddr>,
    /// Name servers; those of the system if there are none.
    pub dns_servers: Vec<SocketAddr>,
    /// Further certificate authorities, in PEM, beside those of the system.
    pub authorities_pem: Vec<String>,
    /// Whether HTTP/2 is spoken with servers that offer it over TLS.
    pub http2: bool,
    /// Bounds.
    pub limits: FetchLimits,
}

impl Default for FetchOptions {
    fn default() -> Self {
        FetchOptions {
            user_agent: concat!("orbweaver/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: Vec::new(),
            accept_encoding: "gzip, br, zstd, deflate".to_owned(),
            allow_addresses: Vec::new(),
            hosts: BTreeMap::new(),
            dns_servers: Vec::new(),
            authorities_pem: Vec::new(),
            http2: true,
            limits: FetchLimits::default(),
        }
    }
}

/// One URL to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOrder {
    /// What to ask for.
    pub url: CanonicalUrl,
    /// The entity tag of the version we have.
    pub if_none_match: Option<String>,
    /// The `Last-Modified` of the version we have, as the server wrote it.
    pub if_modified_since: Option<String>,
    /// Keep this many bytes of a longer body instead of refusing it: of a robots.txt, a part is better than none.
    pub cut_at_bytes: Option<usize>,
    /// The connection is closed at this time whatever the server does, and not opened after it: the host may be another node's by
    /// then. `None` leaves it at the client's own limit.
    pub deadline: Option<Instant>,
    /// Headers that are sent with this request alone.
    pub headers: Vec<(String, String)>,
    /// Host and port of the proxy to ask through.
    pub proxy: Option<String>,
    /// Refuse a longer body, if that is less than the client's own limit.
    pub page_bytes_max: Option<usize>,
}

impl FetchOrder {
    /// Orders `url` whatever version we have, refusing bodies over the limit.
    pub fn new(url: CanonicalUrl) -> Self {
        FetchOrder {
            url,
            if_none_match: None,
            if_modified_since: None,
            cut_at_bytes: None,
            deadline: None,
            headers: Vec::new(),
            proxy: None,
            page_bytes_max: None,
        }
    }
}

/// How `body` follows from `wire_body`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// The server did not encode it: both are the same buffer.
    Plain,
    /// It was decoded.
    Decoded,
    /// It is still encoded, both are the same buffer: an encoding we do not know, or one that could not be undone on an
    /// answer other than 2xx.
    StillEncoded,
}

/// Why `body` is less than the server meant to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncated {
    /// It was longer than the limit: [`FetchOrder::cut_at_bytes`], or any limit on an answer other than 2xx.
    Length,
    /// The message was whole, but the encoded stream inside it stops early.
    Encoding,
}

/// When the server wants to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// In this many seconds.
    Seconds(u64),
    /// At this Unix time in seconds.
    Date(u64),
}

/// An answer, of any status.
#[derive(Clone)]
pub struct Fetched {
    /// Status code, 200 to 999.
    pub status: u16,
    /// The version that was spoken, whatever the heads say.
    pub version: Version,
    /// Request line and headers, ending with an empty line.
    pub request_head: Vec<u8>,
    /// Status line and headers, ending with an empty line; consistent with `wire_body`.
    pub response_head: Vec<u8>,
    /// The body as transferred: content-encoded, no longer transfer-encoded.
    pub wire_body: Bytes,
    /// The body decoded.
    pub body: Bytes,
    /// How the two bodies are related.
    pub form: BodyForm,
    /// Whether and why the body is not all of it.
    pub truncated: Option<Truncated>,
    /// The peer of the connection.
    pub remote: Option<SocketAddr>,
    /// When the fetch began, in Unix milliseconds.
    pub started_unix_ms: u64,
    /// How long it took.
    pub elapsed_ms: u32,
    headers: HeaderMap,
}

impl Fetched {
    /// An answer that came whole, over HTTP/1.1 and without an encoding, from a web that needs no client.
    pub fn plain(
        order: &FetchOrder,
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
        started_unix_ms: u64,
    ) -> Self {
        let mut request_head = format!("GET {} HTTP/1.1\r\n", order.url.path_and_query()).into_bytes();
        write_line(&mut request_head, "host", order.url.host().as_bytes());
        request_head.extend_from_slice(b"\r\n");
        let mut response_head = format!("HTTP/1.1 {status}\r\n").into_bytes();
        headers.iter().for_each(|(name, value)| write_line(&mut response_head, name.as_str(), value.as_bytes()));
        response_head.extend_from_slice(b"\r\n");
        Fetched {
            status: status.as_u16(),
            version: Version::HTTP_11,
            request_head,
            response_head,
            wire_body: body.clone(),
            body,
            form: BodyForm::Plain,
            truncated: None,
            remote: None,
            started_unix_ms,
            elapsed_ms: 0,
            headers,
        }
    }

    /// Returns the values of the header `name`, in order.
    pub fn header_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.headers.get_all(name).iter().map(HeaderValue::as_bytes)
    }

    /// Returns the `Content-Type` as it stands.
    pub fn content_type(&self) -> Option<&str> {
        self.text(header::CONTENT_TYPE)
    }

    /// Returns the `ETag` with its quotes, to be sent back as it is.
    pub fn etag(&self) -> Option<&str> {
        self.text(header::ETAG)
    }

    /// Returns the `Last-Modified` as it stands, to be sent back as it is.
    pub fn last_modified(&self) -> Option<&str> {
        self.text(header::LAST_MODIFIED)
    }

    /// Returns the `Location`, not yet resolved against the URL. Servers write raw UTF-8 here, so it may be any text.
    pub fn location(&self) -> Option<Cow<'_, str>> {
        let location = self.headers.get(header::LOCATION)?;
        Some(String::from_utf8_lossy(location.as_bytes()))
    }

    /// Returns when the server wants to be asked again.
    pub fn retry_after(&self) -> Option<RetryAfter> {
        let text = self.text(header::RETRY_AFTER)?.trim();
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Some(RetryAfter::Seconds(text.parse().unwrap_or(u64::MAX)));
        }
        parse_http_date(text).map(RetryAfter::Date)
    }

    fn text(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetched")
            .field("status", &self.status)
            .field("version", &self.version)
            .field("remote", &self.remote)
            .field("headers", &self.headers.len())
            .field("wire_bytes", &self.wire_body.len())
            .field("body_bytes", &self.body.len())
            .field("form", &self.form)
            .field("truncated", &self.truncated)
            .field("elapsed_ms", &self.elapsed_ms)
            .finish()
    }
}

/// Why a client cannot be made from its options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// A header that cannot be sent.
    #[error("header {name:?}: {reason}")]
    BadHeader {
        /// Its name as configured.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A limit nothing could meet, or one so large that its unit must have been mistaken.
    #[error("{name} must be from 1 to {max}")]
    LimitOutOfRange {
        /// The setting.
        name: &'static str,
        /// Its largest value.
        max: u64,
    },
    /// The HTTP or TLS library refused its settings, certificate authorities among them.
    #[error("HTTP client: {reason}")]
    Library {
        /// What the library said.
        reason: String,
    },
}

/// Fetches pages. Meant to be made once and shared: it owns the connections and the resolver's cache.
pub struct HttpClient {
    client: reqwest::Client,
    /// Clients that go through a proxy, by its host and port.
    proxied: Mutex<BTreeMap<String, reqwest::Client>>,
    options: FetchOptions,
    resolver: DnsResolver,
    guard: AddressGuard,
    limits: FetchLimits,
    headers: HeaderMap,
    header_lines: Vec<u8>, // `headers` as they are written, rendered once
}

impl HttpClient {
    /// Makes a client, or says which option is wrong.
    pub fn new(options: &FetchOptions) -> Result<Self, ClientError> {
        check_limits(&options.limits)?;
        let headers = request_headers(options)?;
        let mut header_lines = Vec::new();
        headers.iter().for_each(|(name, value)| write_line(&mut header_lines, name.as_str(), value.as_bytes()));
        let guard = AddressGuard::new(options.allow_addresses.clone());
        let resolver = DnsResolver::new(&options.hosts, &options.dns_servers, guard.clone());
        let client = build_client(options, &resolver, None)?;
        let (limits, proxied, options) = (options.limits.clone(), Mutex::default(), options.clone());
        Ok(HttpClient { client, proxied, options, resolver, guard, limits, headers, header_lines })
    }

    /// The resolver this client connects through, for those who need a host's address before it is fetched.
    pub fn resolver(&self) -> &DnsResolver {
        &self.resolver
    }

    /// Fetches one URL. An answer of any status is `Ok`; it is on the caller to decide what 404 or 301 means.
    pub async fn fetch(&self, order: &FetchOrder) -> Result<Fetched, FetchError> {
        let patience = Patience::new(&self.limits, order.deadline);
        if patience.fetch_timeout.is_zero() {
            return Err(FetchError::Timeout);
        }
        let mut exchange = pin!(self.exchange(order, &patience));
        let mut timer = pin!(tokio::time::sleep_until(patience.ends()));
        loop {
            tokio::select! {
                biased;
                result = &mut exchange => return result,
                () = &mut timer => {}
            }
            if patience.ends() <= Instant::now() {
                return Err(FetchError::Timeout);
            }
            timer.as_mut().reset(patience.ends());
        }
    }

    async fn exchange(&self, order: &FetchOrder, patience: &Patience) -> Result<Fetched, FetchError> {
        let started_unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let (request, request_head) = self.request(order)?;
        let client = self.client_for(order.proxy.as_deref())?;
        let mut response = client.execute(request).await.map_err(|error| FetchError::from_client(&error))?;
        patience.renew();
        let remote = response.remote_addr();
        if let Some(peer) = remote.filter(|peer| !self.guard.permits(peer.ip())) {
            return Err(FetchError::AddressRefused { address: peer.ip() });
        }
        let status = response.status();
        if status.is_informational() {
            return Err(FetchError::ProtocolBroken { reason: format!("final status {}", status.as_u16()) });
        }
        let response_head = self.response_head(status, response.headers())?;
        let headers = std::mem::take(response.headers_mut());
        let version = response.version();
        let ReceivedBody { wire, body, form, truncated } = self.receive(order, &headers, response, patience).await?;
        Ok(Fetched {
            status: status.as_u16(),
            version,
            request_head,
            response_head,
            wire_body: wire,
            body,
            form,
            truncated,
            remote,
            started_unix_ms,
            elapsed_ms: u32::try_from(patience.started.elapsed().as_millis()).unwrap_or(u32::MAX),
            headers,
        })
    }

    /// The client that asks directly, or through a proxy. The address of a proxy goes by the guard like that of a host: one in a private network must be allowed.
    fn client_for(&self, proxy: Option<&str>) -> Result<reqwest::Client, FetchError> {
        let Some(name) = proxy else { return Ok(self.client.clone()) };
        let mut proxied = self.proxied.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = proxied.get(name) {
            return Ok(client.clone());
        }
        let failed = |reason: String| FetchError::ConnectFailed { reason: format!("proxy {name}: {reason}") };
        let proxy = reqwest::Proxy::all(format!("http://{name}")).map_err(|error| failed(root_cause(&error)))?;
        let client =
            build_client(&self.options, &self.resolver, Some(proxy)).map_err(|error| failed(error.to_string()))?;
        if proxied.len() >= PROXIES_MAX {
            proxied.clear(); // connections under way go on
        }
        proxied.insert(name.to_owned(), client.clone());
        Ok(client)
    }

    /// Returns the request and its head. The order of headers is the one hyper writes: ours, then `host`.
    fn request(&self, order: &FetchOrder) -> Result<(reqwest::Request, Vec<u8>), FetchError> {
        let url = order.url.to_url();
        self.check_url(&url)?;
        let target = &url[Position::BeforePath..Position::AfterQuery];
        let mut head = Vec::with_capacity(64 + target.len() + self.header_lines.len() + order.url.host().len());
        for part in [b"GET ", target.as_bytes(), b" HTTP/1.1\r\n", &self.header_lines] {
            head.extend_from_slice(part);
        }
        let mut headers = self.headers.clone();
        let conditions =
            [(header::IF_NONE_MATCH, &order.if_none_match), (header::IF_MODIFIED_SINCE, &order.if_modified_since)];
        for (name, value) in conditions {
            // A validator that cannot be sent back costs a full answer, not the page.
            let Some(value) = value.as_deref().and_then(|value| HeaderValue::from_str(value).ok()) else { continue };
            write_line(&mut head, name.as_str(), value.as_bytes());
            headers.insert(name, value);
        }
        if !order.headers.is_empty() {
            for (name, value) in &order.headers {
                let bad = || FetchError::BadUrl { reason: format!("the header {name} cannot be sent") };
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
                headers.insert(name, HeaderValue::from_str(value).map_err(|_| bad())?);
            }
            // One of ours may have been replaced: all lines are written anew.
            head.truncate(b"GET  HTTP/1.1\r\n".len() + target.len());
            headers.iter().for_each(|(name, value)| write_line(&mut head, name.as_str(), value.as_bytes()));
        }
        write_line(&mut head, "host", url[Position::BeforeHost..Position::AfterPort].as_bytes());
        head.extend_from_slice(b"\r\n");
        let mut request = reqwest::Request::new(Method::GET, url);
        *request.headers_mut() = headers;
        Ok((request, head))
    }

    /// Checks what the resolver never sees: a host that is an address needs no look-up.
    fn check_url(&self, url: &Url) -> Result<(), FetchError> {
        let bad = |reason: &str| Err(FetchError::BadUrl { reason: reason.to_owned() });
        if !matches!(url.scheme(), "http" | "https") {
            return bad("not http or https");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return bad("carries a user name or password");
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(name)) if !name.is_empty() => return Ok(()),
            _ => return bad("no host"),
        };
        if self.guard.permits(address) { Ok(()) } else { Err(FetchError::AddressRefused { address }) }
    }

    fn response_head(&self, status: StatusCode, headers: &HeaderMap) -> Result<Vec<u8>, FetchError> {
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        if headers.len() > self.limits.header_count_max || bytes > self.limits.head_bytes_max {
            return Err(FetchError::HeadTooLarge);
        }
        let mut head = Vec::with_capacity(bytes + 64);
        head.extend_from_slice(b"HTTP/1.1 ");
        head.extend_from_slice(status.as_str().as_bytes());
        head.push(b' ');
        head.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
        head.extend_from_slice(b"\r\n");
        for (name, value) in headers {
            let name = if name == header::TRANSFER_ENCODING { "x-orig-transfer-encoding" } else { name.as_str() };
            write_line(&mut head, name, value.as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        Ok(head)
    }

    /// Reads the body, decoding as it comes, until its end or the first limit.
    ///
    /// An answer other than 2xx is worth its status: its body may be cut or left encoded, but never makes it fail.
    async fn receive(
        &self,
        order: &FetchOrder,
        headers: &HeaderMap,
        mut response: reqwest::Response,
        patience: &Patience,
    ) -> Result<ReceivedBody, FetchError> {
        let status = response.status();
        let asked = order.cut_at_bytes.or(order.page_bytes_max).unwrap_or(self.limits.page_bytes_max);
        let page_limit = asked.min(self.limits.page_bytes_max);
        let wire_limit = page_limit.min(self.limits.wire_bytes_max);
        let may_cut = order.cut_at_bytes.is_some() || !status.is_success();
        let announced = response.content_length().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if announced > wire_limit && !may_cut {
            return Err(FetchError::BodyTooLarge { limit_bytes: wire_limit });
        }
        let encodings = parse_encodings(headers.get_all(header::CONTENT_ENCODING).iter().map(HeaderValue::as_bytes));
        let mut form = if encodings.is_some() { BodyForm::Plain } else { BodyForm::StillEncoded };
        let encodings = encodings.unwrap_or_default();
        let mut decoder = (!encodings.is_empty()).then(|| Decoder::new(&encodings, page_limit));
        let mut wire = Wire::new(announced.min(wire_limit));
        let ends_with_connection = response.version() < Version::HTTP_2
            && !headers.contains_key(header::CONTENT_LENGTH)
            && !headers.contains_key(header::TRANSFER_ENCODING);
        let mut truncated = None;
        loop {
            let mut chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                // Where the close is the end, some servers forget to announce it to TLS; browsers take the page too.
                Err(error) if ends_with_connection && is_unannounced_close(&error) => break,
                Err(error) => return Err(FetchError::from_client(&error)),
            };
            patience.renew();
            let room = wire_limit - wire.len();
            if chunk.len() > room {
                if !may_cut {
                    return Err(FetchError::BodyTooLarge { limit_bytes: wire_limit });
                }
                chunk.truncate(room);
                truncated = Some(Truncated::Length);
            }
            match decoder.as_mut().map_or(Ok(()), |decoder| decoder.push(&chunk)) {
                Ok(()) => {}
                Err(DecodeError::TooLarge { .. }) if may_cut => truncated = Some(Truncated::Length),
                Err(DecodeError::Corrupt { .. }) if !status.is_success() => {
                    decoder = None;
                    form = BodyForm::StillEncoded;
                }
                Err(error) => return Err(error.into()),
            }
            wire.push(chunk);
            if truncated.is_some() {
                break;
            }
        }
        let wire = wire.finish();
        let Some(decoder) = decoder else { return Ok(ReceivedBody { body: wire.clone(), wire, form, truncated }) };
        let decoded = decoder.finish();
        if !decoded.complete {
            truncated = truncated.or(Some(Truncated::Encoding));
        }
        Ok(ReceivedBody { wire, body: decoded.body.into(), form: BodyForm::Decoded, truncated })
    }
}

/// How long we wait: for the whole fetch, and for the next sign of life. One timer serves both; a sign of life only
/// writes down the time, and the timer looks at it when it fires.
struct Patience {
    started: Instant,
    fetch_timeout: Duration,
    read_timeout: Duration,
    last_sign_ms: AtomicU64, // since `started`
}

impl Patience {
    fn new(limits: &FetchLimits, deadline: Option<Instant>) -> Self {
        let (started, fetch_timeout) = (Instant::now(), Duration::from_millis(limits.fetch_timeout_ms));
        let left = deadline.map_or(fetch_timeout, |deadline| deadline.saturating_duration_since(started));
        Patience {
            started,
            fetch_timeout: fetch_timeout.min(left),
            read_timeout: Duration::from_millis(limits.read_timeout_ms),
            last_sign_ms: AtomicU64::new(0),
        }
    }

    fn renew(&self) {
        self.last_sign_ms.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn ends(&self) -> Instant {
        let last_sign = Duration::from_millis(self.last_sign_ms.load(Ordering::Relaxed));
        self.started + self.fetch_timeout.min(last_sign.saturating_add(self.read_timeout))
    }
}

struct ReceivedBody {
    wire: Bytes,
    body: Bytes,
    form: BodyForm,
    truncated: Option<Truncated>,
}

/// Collects the pieces of a body; one that comes in a single piece is not copied.
struct Wire {
    first: Bytes,
    rest: Vec<u8>, // once there is a second piece, the first is in here too
    reserve: usize,
}

impl Wire {
    fn new(expected: usize) -> Self {
        Wire { first: Bytes::new(), rest: Vec::new(), reserve: expected.min(BODY_RESERVE_BYTES_MAX) }
    }

    fn len(&self) -> usize {
        self.first.len().max(self.rest.len())
    }

    fn push(&mut self, chunk: Bytes) {
        if self.len() == 0 {
            self.first = chunk;
            return;
        }
        if self.rest.is_empty() {
            self.rest.reserve(self.reserve.max(2 * self.first.len()));
            self.rest.extend_from_slice(&self.first);
        }
        self.rest.extend_from_slice(&chunk);
    }

    fn finish(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.into() }
    }
}

fn write_line(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
}

fn check_limits(limits: &FetchLimits) -> Result<(), ClientError> {
    let settings = [
        ("fetch_timeout_ms", limits.fetch_timeout_ms, TIMEOUT_MS_MAX),
        ("connect_timeout_ms", limits.connect_timeout_ms, TIMEOUT_MS_MAX),
        ("read_timeout_ms", limits.read_timeout_ms, TIMEOUT_MS_MAX),
        ("head_bytes_max", limits.head_bytes_max as u64, BYTES_MAX),
        ("header_count_max", limits.header_count_max as u64, HEADER_COUNT_MAX),
        ("wire_bytes_max", limits.wire_bytes_max as u64, BYTES_MAX),
        ("page_bytes_max", limits.page_bytes_max as u64, BYTES_MAX),
    ];
    match settings.iter().find(|(_, value, max)| !(1..=*max).contains(value)) {
        Some(&(name, _, max)) => Err(ClientError::LimitOutOfRange { name, max }),
        None => Ok(()),
    }
}

/// Returns the headers every request carries, in the order they are sent.
fn request_headers(options: &FetchOptions) -> Result<HeaderMap, ClientError> {
    let bad = |name: &str, reason| ClientError::BadHeader { name: name.to_owned(), reason };
    let value = |name: &str, text: &str| {
        HeaderValue::from_str(text).map_err(|_| bad(name, "the value has characters a header cannot have"))
    };
    if options.user_agent.trim().is_empty() {
        return Err(bad("user-agent", "must not be empty, sites need to know who we are"));
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, value("user-agent", &options.user_agent)?);
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/html,application/xhtml+xml,*/*;q=0.8"));
    if !options.accept_encoding.is_empty() {
        headers.insert(header::ACCEPT_ENCODING, value("accept-encoding", &options.accept_encoding)?);
    }
    let mut given = Vec::new();
    for (name, text) in &options.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(name, "not a header name"))?;
        if RESERVED_HEADERS.contains(&parsed) || parsed.as_str().starts_with("proxy-") {
            return Err(bad(name, "is set by the crawler itself"));
        }
        if given.contains(&parsed) {
            return Err(bad(name, "is given twice"));
        }
        headers.insert(parsed.clone(), value(name, text)?);
        given.push(parsed);
    }
    Ok(headers)
}

fn build_client(
    options: &FetchOptions,
    resolver: &DnsResolver,
    proxy: Option<reqwest::Proxy>,
) -> Result<reqwest::Client, ClientError> {
    install_crypto_provider();
    client_builder(options, resolver, proxy.clone())?.build().or_else(|error| {
        // The usual reason is a container without root certificates. A crawl of plain http works there all the same.
        let reason = root_cause(&error);
        let builder = client_builder(options, resolver, proxy.clone())?.tls_certs_only([]);
        let client = builder.build().map_err(|_| ClientError::Library { reason: reason.clone() })?;
        error!(%reason, "no certificate authorities from the system, https trusts only those configured");
        Ok(client)
    })
}

fn client_builder(
    options: &FetchOptions,
    resolver: &DnsResolver,
    proxy: Option<reqwest::Proxy>,
) -> Result<reqwest::ClientBuilder, ClientError> {
    let limits = &options.limits;
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none()) // each hop has its own host, robots.txt and owner
        .retry(reqwest::retry::never()) // the retry table decides
        .referer(false)
        .no_proxy() // one that a variable of the environment names would resolve names behind the guard
        .dns_resolver(resolver.clone())
        .connect_timeout(Duration::from_millis(limits.connect_timeout_ms))
        .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tcp_nodelay(true)
        // What browsers forgive, sites get wrong.
        .http1_ignore_invalid_headers_in_responses(true)
        .http1_allow_obsolete_multiline_headers_in_responses(true)
        .http1_allow_spaces_after_header_name_in_responses(true)
        .http1_max_headers(limits.header_count_max)
        .http2_initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
        .http2_initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
        .http2_max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX));
    if let Some(proxy) = proxy {
        builder = builder.proxy(proxy);
    }
    if !options.http2 {
        builder = builder.http1_only();
    }
    for pem in &options.authorities_pem {
        let authorities = reqwest::Certificate::from_pem_bundle(pem.as_bytes())
            .map_err(|error| ClientError::Library { reason: root_cause(&error) })?;
        builder = builder.tls_certs_merge(authorities);
    }
    Ok(builder)
}

/// Makes ring the process's TLS cryptography; without one, building a client panics.
fn install_crypto_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that someone else has installed one, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
