//! The door for spiders: `POST /crawled`, `GET /request?n=`, `POST /failed`, `GET /stats`, and `POST /frequencies` and `/reload`.
//!
//! JSON and status codes are those of the Aduana server wherever these made sense; what it answered with 500 is 400 with a reason here. Where others can reach the door
//! it lets spiders in only with TLS and a name and a password.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use proto::base64::from_base64;
use proto::clients::spider::{Link, PAGES_MAX, URL_BYTES_MAX};
use proto::url::{CanonicalUrl, UrlRules};
use serde_json::{Value as Json, json};

use crate::doors::frontier::desk::Unavailable;
use crate::doors::spiders::{Report, SpiderDesk};

/// Largest request.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Pages that are handed out if nobody says how many.
const WANTED_DEFAULT: u32 = 10;
/// Pages that are handed out at once, whoever asks for more.
const WANTED_MAX: u32 = 10_000;
/// How the names of pages begin that are lists of seeds.
const SEEDS: &str = "_seed_";
/// Longest lease that a spider may ask for: a day.
const LEASE_MAX_S: u32 = 86_400;

/// Who is let in.
#[derive(Clone)]
pub enum Entry {
    /// Everybody: nobody else can reach the door.
    Open,
    /// Who knows a name and its password, by digests of what they send.
    Users(Arc<BTreeMap<[u8; 32], String>>),
    /// Nobody, and why.
    Shut(&'static str),
}

/// What the door needs.
#[derive(Clone)]
pub struct SpidersDoor {
    /// Where reports go.
    pub desk: SpiderDesk,
    /// The canonical form of URLs.
    pub urls: UrlRules,
    /// Who is let in.
    pub entry: Entry,
}

/// Somebody was let in. Comes before everything else that a request is taken apart into, so that nobody's body is read who is not.
struct LetIn;

impl FromRequestParts<SpidersDoor> for LetIn {
    type Rejection = Wrong;

    async fn from_request_parts(parts: &mut Parts, door: &SpidersDoor) -> Result<LetIn, Wrong> {
        door.let_in(&parts.headers).map(|()| LetIn)
    }
}

/// A request that is not answered as it was meant.
struct Wrong(Box<Response>);

impl IntoResponse for Wrong {
    fn into_response(self) -> Response {
        *self.0
    }
}

impl From<Unavailable> for Wrong {
    fn from(Unavailable(reason): Unavailable) -> Wrong {
        let text = format!("ERROR: {reason}");
        answered((StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], text))
    }
}

fn answered(with: impl IntoResponse) -> Wrong {
    Wrong(Box::new(with.into_response()))
}

fn wrong(reason: impl std::fmt::Display) -> Wrong {
    answered((StatusCode::BAD_REQUEST, format!("ERROR: {reason}")))
}

fn inside(place: Option<usize>, reason: impl std::fmt::Display) -> Wrong {
    match place {
        None => wrong(format_args!("Incorrect data inside CrawledPage. {reason}")),
        Some(place) => wrong(format_args!("Incorrect data inside CrawledPage. page {place}: {reason}")),
    }
}

/// Reads a file of users.
pub fn read_users(text: &str) -> Result<BTreeMap<[u8; 32], String>, String> {
    let mut users = BTreeMap::new();
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let sound = text.split_once(':').filter(|(name, password)| !name.is_empty() && !password.is_empty());
        let (name, _) = sound.ok_or_else(|| format!("line {line}: a user is name:password"))?;
        users.insert(*blake3::hash(text.as_bytes()).as_bytes(), name.to_owned());
    }
    if users.is_empty() { Err("there is no user in it".to_owned()) } else { Ok(users) }
}

/// The routes of the door.
pub fn routes(door: SpidersDoor) -> Router {
    Router::new()
        .route("/crawled", post(crawled))
        .route("/request", get(request))
        .route("/failed", post(failed))
        .route("/frequencies", post(frequencies))
        .route("/reload", post(reload))
        .route("/stats", get(stats))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(door)
}

impl SpidersDoor {
    fn let_in(&self, headers: &HeaderMap) -> Result<(), Wrong> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        if text("sec-fetch-site").is_some_and(|from| from != "same-origin" && from != "none") {
            let reason = "ERROR: this comes from a page of another site";
            return Err(answered((StatusCode::FORBIDDEN, reason)));
        }
        let users = match &self.entry {
            Entry::Open => return Ok(()),
            Entry::Shut(reason) => {
                return Err(answered((StatusCode::FORBIDDEN, format!("ERROR: {reason}"))));
            }
            Entry::Users(users) => users,
        };
        let said = text(AUTHORIZATION.as_str()).and_then(|said| said.split_once(' '));
        let said = said.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic")).map(|(_, said)| said.trim());
        let description = match said {
            None => "No identity information found.",
            // Digests are looked up, so that the time says nothing of how much was right.
            Some(said) => match from_base64(said).map(|pair| *blake3::hash(&pair).as_bytes()) {
                Some(digest) if users.contains_key(&digest) => return Ok(()),
                _ => "Authentication failed.",
            },
        };
        let body = json!({"title": "Authentication required", "description": description}).to_string();
        let headers = [(CONTENT_TYPE, "application/json"), (WWW_AUTHENTICATE, "Basic realm=\"orbweaver\"")];
        Err(answered((StatusCode::UNAUTHORIZED, headers, body)))
    }

    fn url(&self, text: &str) -> Result<CanonicalUrl, String> {
        if text.len() > URL_BYTES_MAX {
            return Err(format!("a URL of {} bytes is too long", text.len()));
        }
        CanonicalUrl::parse(text, &self.urls).map_err(|error| format!("{text}: {error}"))
    }

    fn report(&self, page: &Json, place: Option<usize>) -> Result<Report, Wrong> {
        let page = page.as_object().ok_or_else(|| inside(place, "a page is an object"))?;
        let url = page.get("url").ok_or_else(|| match place {
            None => wrong("could not find \"url\" field in request"),
            Some(place) => wrong(format_args!("could not find \"url\" field in request (page {place})")),
        })?;
        let url = url.as_str().ok_or_else(|| inside(place, "url is not a string"))?;
        let is_seeds = url.starts_with(SEEDS);
        let url = if is_seeds { None } else { Some(self.url(url).map_err(|error| inside(place, error))?) };
        let score = number(page.get("score")).ok_or_else(|| inside(place, "score is not a number"))?;
        let content_hash = match page.get("content_hash") {
            None | Some(Json::Null) => None,
            Some(hash) => {
                Some(hash_of(hash).ok_or_else(|| inside(place, "content_hash is not an integer of 64 bits"))?)
            }
        };
        let mut links = Vec::new();
        let given = page.get("links").filter(|links| !links.is_null());
        let given = given.map_or(Some(&[][..]), |links| links.as_array().map(Vec::as_slice));
        for link in given.ok_or_else(|| inside(place, "links is not a list"))? {
            let pair = link.as_array().filter(|pair| pair.len() == 2);
            let (Some(url), Some(score)) =
                (pair.and_then(|pair| pair[0].as_str()), pair.and_then(|pair| number(Some(&pair[1]))))
            else {
                return Err(inside(
                    place,
                    "a link is a pair of a URL and a score, as in [\"http://example.com/\", 0.5]",
                ));
            };
            match self.url(url) {
                Ok(url) => links.push(Link { url: url.into_string(), score }),
                // Whoever hands in seeds means them; pages link to what is no page: mail, scripts, other protocols.
                Err(error) if is_seeds => return Err(inside(place, error)),
                Err(_) => {}
            }
        }
        Ok(Report { url, score, content_hash, links })
    }
}

async fn crawled(
    _: LetIn,
    State(door): State<SpidersDoor>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Wrong> {
    let reports = match json_of(&headers, &body)? {
        Json::Array(pages) if pages.is_empty() => return Err(inside(None, "there is no page in the list")),
        Json::Array(pages) => {
            let reports = pages.iter().zip(0..).map(|(page, place)| door.report(page, Some(place)));
            reports.collect::<Result<Vec<Report>, Wrong>>()?
        }
        page => vec![door.report(&page, None)?],
    };
    if reports.len() > PAGES_MAX {
        return Err(wrong(format_args!("{} pages at once are too many; send at most {PAGES_MAX}", reports.len())));
    }
    door.desk.crawled(reports).await?;
    Ok(StatusCode::CREATED)
}

async fn request(_: LetIn, State(door): State<SpidersDoor>, uri: Uri) -> Result<Response, Wrong> {
    let asked: BTreeMap<_, _> = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).collect();
    let wanted = match asked.get("n") {
        None => WANTED_DEFAULT,
        Some(text) => {
            text.parse::<u64>().map_err(|_| wrong("Incorrect number of requests"))?.min(WANTED_MAX.into()) as u32
        }
    };
    let lease_s = match asked.get("lease") {
        None => 0,
        Some(text) => {
            let seconds = text.parse::<u32>().ok().filter(|seconds| (1..=LEASE_MAX_S).contains(seconds));
            seconds.ok_or_else(|| wrong("lease is a number of seconds, at most a day"))?
        }
    };
    let urls = if wanted == 0 { Vec::new() } else { door.desk.request(wanted, lease_s).await? };
    Ok(shown(&json!(urls)))
}

async fn failed(_: LetIn, State(door): State<SpidersDoor>, headers: HeaderMap, body: Bytes) -> Result<Response, Wrong> {
    let said = json_of(&headers, &body)?;
    let pages = match said {
        Json::Array(pages) => pages,
        one => vec![one],
    };
    let mut urls = Vec::with_capacity(pages.len());
    for page in &pages {
        let url = page.as_str().or_else(|| page.get("url").and_then(Json::as_str));
        let url = url.ok_or_else(|| wrong("could not find \"url\" field in request"))?;
        urls.push(door.url(url).map_err(wrong)?);
    }
    let known = door.desk.failed(urls).await?;
    Ok(shown(&json!({"known": known})))
}

async fn frequencies(
    _: LetIn,
    State(door): State<SpidersDoor>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Wrong> {
    let given = json_of(&headers, &body)?;
    let rows = given
        .as_array()
        .ok_or_else(|| wrong("a list of pairs is expected, as in [[\"http://example.com/\", 0.01]]"))?;
    let mut pages = Vec::with_capacity(rows.len());
    for row in rows {
        let pair = row.as_array().filter(|pair| pair.len() == 2);
        let url = pair.and_then(|pair| pair[0].as_str());
        let hz = pair.and_then(|pair| pair[1].as_f64()).filter(|hz| hz.is_finite());
        let (Some(url), Some(hz)) = (url, hz) else {
            return Err(wrong("a pair of a URL and visits a second is expected"));
        };
        pages.push((door.url(url).map_err(wrong)?, hz));
    }
    let known = door.desk.frequencies(pages).await?;
    Ok(shown(&json!({"known": known})))
}

async fn reload(_: LetIn, State(door): State<SpidersDoor>) -> Result<Response, Wrong> {
    let reloaded = door.desk.reload().await?;
    Ok(shown(&json!({"reloaded": reloaded})))
}

async fn stats(_: LetIn, State(door): State<SpidersDoor>) -> Result<Response, Wrong> {
    let counts = door.desk.stats().await?;
    Ok(shown(&json!({
        "pages": counts.scheduled + counts.completed,
        "scheduled": counts.scheduled,
        "leased": counts.leased,
        "done": counts.completed,
        "domains": counts.queues,
    })))
}

fn shown(body: &Json) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")], body.to_string()).into_response()
}

/// What was sent. A form of a page elsewhere cannot send JSON as such, so nothing else is read.
fn json_of(headers: &HeaderMap, body: &Bytes) -> Result<Json, Wrong> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_json = kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"));
    let read = if is_json { serde_json::from_slice(body).ok() } else { None };
    read.ok_or_else(|| wrong("could not parse JSON"))
}

/// A score; 0 if there is none, `None` if it is no number.
fn number(score: Option<&Json>) -> Option<f32> {
    match score {
        None | Some(Json::Null) => Some(0.0),
        Some(score) => score.as_f64().map(|score| score as f32).filter(|score| score.is_finite()),
    }
}

fn hash_of(hash: &Json) -> Option<u64> {
    hash.as_u64().or_else(|| hash.as_i64().map(i64::cast_unsigned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_are_read() {
        let users = read_users("# ours\nspider:s3cret\n\nother:a:b\n").unwrap();
        assert_eq!(users.get(blake3::hash(b"other:a:b").as_bytes()).map(String::as_str), Some("other"));
        assert!(read_users("spider").unwrap_err().contains("line 1") && read_users("\n").is_err());
    }
}
