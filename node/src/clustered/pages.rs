//! URL_CONTENT and URL_PUT: contents of URLs, as they were fetched and as people handed them in.
//!
//! What is handed in is kept in notes, in parts that fit into a record; the one without a number says how many there are, and is written last.

use std::sync::Arc;

use proto::base64::to_base64;
use proto::control::Answer;
use proto::control::content::{ContentAnswer, ContentRequest};
use proto::date;
use proto::id::Round;
use proto::site::content::{mask, status};
use proto::site::note::{self, Note, NoteKind, VALUE_BYTES_MAX};
use proto::site::{BadRequest, UrlContent, UrlPut, UrlRow, code};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::Shared;
use super::notes::Notes;
use super::reading::{AskContent, Held, Page, Reading};
use super::records::Known;
use super::site::{Failed, Outcome};
use crate::edges::clock::unix_ms;
use crate::edges::decode::unpacked;
use crate::edges::swarm::Swarm;
use crate::edges::warc::{RecordKind, parse_members};
use crate::node::Node;

/// Bytes of contents in one answer: in base64 it is a third more, and an answer has at most four mebibytes.
const ANSWER_BYTES_MAX: usize = 2_500_000;
/// URLs in one answer.
const URLS_MAX: usize = 1_000;

/// Who asks all nodes about contents from inside one.
struct Inside<'a> {
    shared: &'a Shared,
    node: &'a Node,
    swarm: &'a Arc<Swarm>,
}

impl AskContent for Inside<'_> {
    async fn ask(&self, request: ContentRequest) -> Result<ContentAnswer, String> {
        match self.shared.content(self.node, self.swarm, request).await {
            Answer::Content(answer) => Ok(answer),
            Answer::Refused(why) => Err(why),
            other => Err(format!("answered {other:?}")),
        }
    }
}

/// What is said of a content that was handed in.
#[derive(Serialize, Deserialize)]
struct Manifest {
    parts: usize,
    bytes: usize,
    made_ms: u64,
    stamp: String,
}

/// An answer in the making, and how much more fits into it.
pub(super) struct Room(usize);

impl Room {
    /// All of an answer.
    pub(super) fn new() -> Room {
        Room(ANSWER_BYTES_MAX)
    }

    fn put(&mut self, list: &mut Vec<Json>, bytes: &[u8], unix_ms: u64, kind: u32) -> Result<(), Failed> {
        let left = self.0.checked_sub(bytes.len()).ok_or_else(|| {
            let what = format!(
                "the contents have more than {ANSWER_BYTES_MAX} bytes; ask for fewer at once, or read one with `ctl url content`"
            );
            Failed::from(BadRequest::new("contentTypeMask", what))
        })?;
        self.0 = left;
        list.push(json!({"buffer": to_base64(bytes), "cDate": date::format(unix_ms), "typeId": kind}));
        Ok(())
    }
}

/// Contents of one URL, by where they stand in the answer.
#[derive(Default)]
struct Told {
    raw: Vec<Json>,
    processed: Vec<Json>,
    headers: Vec<Json>,
    requests: Vec<Json>,
    meta: Vec<Json>,
    cookies: Vec<Json>,
    attributes: Vec<Json>,
}

impl Shared {
    /// The contents of the URLs that requests name or find.
    pub(super) async fn url_content(&self, node: &Node, swarm: &Arc<Swarm>, bodies: Vec<Json>) -> Outcome {
        let mut requests = Vec::new();
        for body in bodies {
            requests.push(UrlContent::read(body)?);
        }
        let (mut told, mut room) = (Vec::new(), Room::new());
        for request in requests {
            let named = match &request.fetch {
                None => vec![request.clone()],
                Some(fetch) => {
                    let (found, missing) = self.url_fetch(node, swarm, vec![fetch.clone()]).await?;
                    if let Some(why) = missing {
                        return Err(Failed::new(code::NOT_KEPT, why));
                    }
                    let of = |url: &Json| {
                        let mut one =
                            json!({"siteId": url["siteId"], "url": url["url"], "contentTypeMask": request.mask});
                        if let (Json::Object(one), Some(fields)) = (&mut one, &request.fields) {
                            one.insert("dbFieldsList".to_owned(), json!(fields));
                        }
                        UrlContent::read(one)
                    };
                    found.as_array().into_iter().flatten().map(of).collect::<Result<_, _>>()?
                }
            };
            for one in named {
                if told.len() >= URLS_MAX {
                    let what = format!("more than {URLS_MAX} URLs in one answer; say fewer in maxURLs");
                    return Err(BadRequest::new("urlFetch", what).into());
                }
                told.push(self.content_of(node, swarm, &one, &mut room).await?);
            }
        }
        Ok(Json::Array(told))
    }

    pub(super) async fn content_of(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        request: &UrlContent,
        room: &mut Room,
    ) -> Result<Json, Failed> {
        let order = request.order();
        let name = order.name(&self.urls)?;
        let crawl = self.crawl_of(node, order.site())?;
        let not_kept = |error: String| Failed::new(code::NOT_KEPT, error);
        let names = self.meant(node, swarm, &crawl, vec![name]).await.map_err(not_kept)?;
        let known = self.known(node, swarm, &crawl, names).await.map_err(not_kept)?;
        let Some(Known { copy, kept, inlinks }) = known.into_iter().flatten().next() else {
            return Ok(json!({"siteId": order.site(), "url": order.text(), "status": status::URL_MISSED}));
        };
        let row = UrlRow { site: order.site(), key: &copy.key, record: &kept.record, inlinks };
        if !row.is_there() {
            return Ok(json!({"siteId": order.site(), "url": order.text(), "status": status::URL_MISSED}));
        }
        let (url, id) = (kept.record.url.as_str(), copy.key.id().to_string());
        let notes = self.notes(node, swarm, &note::prefix_of(&crawl, &id)).await.map_err(not_kept)?;
        let begins = note::begins(notes.values(), &id);
        let mut told = Told::default();
        let mut missed = status::OK;
        if request.mask & mask::VERSIONS != 0 {
            let reading = Reading { asked: &Inside { shared: self, node, swarm }, crawl: &crawl };
            let (versions, silent) = reading.find(url).await.map_err(not_kept)?;
            if versions.is_empty() && !silent.is_empty() {
                return Err(not_kept(format!("{url}: no version is on a node that answers: {}", silent.join("; "))));
            }
            let rounds = rounds(&versions, begins, request.mask);
            if rounds.is_empty() {
                missed = status::RAW_MISSED;
            }
            for round in rounds {
                let (page, payload) = reading.read(url, versions.clone(), round).await.map_err(not_kept)?;
                let body = unpacked(payload.http_head(), payload.payload());
                told.page(&page, &body, request.mask, room)?;
            }
        }
        if request.mask & mask::PROCESSED_ANY != 0 {
            let reading = Reading { asked: &Inside { shared: self, node, swarm }, crawl: &crawl };
            let (mut versions, _) = reading.find(url).await.map_err(not_kept)?;
            versions.retain(|held| held.version.round >= begins);
            if let Some((at, made)) = reading.processed_of(url, &versions).await.map_err(not_kept)? {
                room.put(&mut told.processed, &made, at, mask::PROCESSED)?;
            }
        }
        for (kind, manifest, bytes) in handed_in(&notes, &id) {
            let wanted = request.mask & kind != 0
                || (kind & mask::PROCESSED_ANY != 0 && request.mask & mask::PROCESSED_ALL != 0);
            if wanted {
                room.put(told.list(kind), &bytes, manifest.made_ms, kind)?;
            }
        }
        if !told.raw.is_empty() && missed == status::RAW_MISSED {
            missed = status::OK;
        }
        if request.mask & mask::PROCESSED_ANY != 0 && told.processed.is_empty() && missed == status::OK {
            missed = status::PROCESSED_MISSED;
        }
        if request.mask & mask::ATTRIBUTES != 0 {
            let of_url = notes.values().filter(|note| note.kind == NoteKind::Attribute && note.url == id);
            let there = of_url.filter_map(|note| Some((note, note.value.as_ref()?)));
            told.attributes = there
                .map(|(note, value)| json!({"name": note.name, "value": String::from_utf8_lossy(value), "urlMd5": id, "siteId": order.site()}))
                .collect();
        }
        let all = row.json();
        let fields = match &request.fields {
            None => Json::Null,
            Some(names) if names.is_empty() => all.clone(),
            Some(names) => {
                Json::Object(names.iter().map(|name| (name.clone(), all[name.as_str()].clone())).collect::<Map<_, _>>())
            }
        };
        Ok(json!({
            "siteId": order.site(),
            "url": url,
            "urlMd5": id,
            "status": missed,
            "rawContentMd5": all["rawContentMd5"],
            "contentURLMd5": all["contentURLMd5"],
            "rawContents": told.raw,
            "processedContents": told.processed,
            "headers": told.headers,
            "requests": told.requests,
            "meta": told.meta,
            "cookies": told.cookies,
            "attributes": told.attributes,
            "dbFields": fields,
        }))
    }

    /// Keeps a content that is handed in.
    pub(super) async fn url_put(&self, node: &Node, swarm: &Arc<Swarm>, body: Json) -> Outcome {
        let put = UrlPut::read(body)?;
        let order = put.order();
        let name = order.name(&self.urls)?;
        let crawl = self.crawl_of(node, order.site())?;
        let not_kept = |error: String| Failed::new(code::NOT_KEPT, error);
        let names = self.meant(node, swarm, &crawl, vec![name]).await.map_err(not_kept)?;
        let known = self.known(node, swarm, &crawl, names).await.map_err(not_kept)?;
        let there = known.into_iter().flatten().find(|known| !known.kept.record.state.is_gone());
        let Some(known) = there else {
            return Err(Failed::new(code::SITE, format!("site {:?} has no such URL", order.site())));
        };
        let id = known.copy.key.id().to_string();
        let data = put.data()?;
        let notes = self.notes(node, swarm, &note::prefix_of(&crawl, &id)).await.map_err(not_kept)?;
        let made_ms = put.made_ms().unwrap_or_else(unix_ms);
        let mut fresh = content_notes(&id, put.kind, &data, made_ms).map_err(not_kept)?;
        let whole = fresh.split_off(fresh.len().saturating_sub(1));
        let of_kind = format!("{}/", put.kind);
        let old =
            notes.values().filter(|note| note.url == id && note.value.is_some() && note.name.starts_with(&of_kind));
        let gone: Vec<Note> = old
            .filter(|old| !fresh.iter().any(|new| new.name == old.name))
            .map(|old| content_note(&id, old.name.clone(), None))
            .collect();
        self.keep_notes(node, &crawl, &notes, fresh).await.map_err(not_kept)?;
        self.keep_notes(node, &crawl, &notes, whole).await.map_err(not_kept)?;
        self.keep_notes(node, &crawl, &notes, gone).await.map_err(not_kept)?;
        Ok(json!(0))
    }
}

fn content_note(id: &str, name: String, value: Option<Vec<u8>>) -> Note {
    Note { version: Default::default(), kind: NoteKind::Content, url: id.to_owned(), name, value, created_ms: 0 }
}

/// A content of a URL as notes: its pieces, and last what says that they are all of it.
pub(super) fn content_notes(id: &str, kind: u32, data: &[u8], made_ms: u64) -> Result<Vec<Note>, String> {
    let stamp = blake3::hash(data).to_hex()[..16].to_owned();
    let pieces = data.chunks(VALUE_BYTES_MAX).enumerate();
    let mut notes: Vec<Note> =
        pieces.map(|(at, piece)| content_note(id, format!("{kind}/{stamp}/{at}"), Some(piece.to_vec()))).collect();
    let manifest = Manifest { parts: notes.len(), bytes: data.len(), made_ms, stamp };
    let text = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
    notes.push(content_note(id, kind.to_string(), Some(text)));
    Ok(notes)
}

/// The rounds whose versions are asked for, newest first; none before the one with which the contents of the URL begin.
fn rounds(versions: &[Held], begins: Round, asked: u32) -> Vec<Round> {
    let mut rounds: Vec<Round> =
        versions.iter().map(|held| held.version.round).filter(|round| *round >= begins).collect();
    rounds.dedup();
    match asked {
        _ if asked & mask::RAW_ALL != 0 => rounds,
        _ if asked & mask::RAW_FIRST != 0 && asked & mask::RAW_LAST != 0 => {
            let mut both: Vec<Round> = rounds.first().into_iter().chain(rounds.last()).copied().collect();
            both.dedup();
            both
        }
        _ if asked & mask::RAW_FIRST != 0 => rounds.pop().into_iter().collect(),
        _ => rounds.into_iter().take(1).collect(),
    }
}

/// Contents that were handed in for a URL: those of which all parts are here.
fn handed_in(notes: &Notes, id: &str) -> Vec<(u32, Manifest, Vec<u8>)> {
    let value = |name: &str| {
        let named = |note: &&Note| note.kind == NoteKind::Content && note.url == id && note.name == name;
        notes.values().find(named).and_then(|note| note.value.as_ref())
    };
    let mut found = Vec::new();
    for kind in (0..16).map(|bit| 1u32 << bit) {
        let Some(manifest) = value(&kind.to_string()).and_then(|text| serde_json::from_slice::<Manifest>(text).ok())
        else {
            continue;
        };
        let parts: Option<Vec<&Vec<u8>>> =
            (0..manifest.parts).map(|at| value(&format!("{kind}/{}/{at}", manifest.stamp))).collect();
        let bytes = parts.map(|parts| parts.into_iter().flatten().copied().collect::<Vec<u8>>());
        if let Some(bytes) = bytes.filter(|bytes| bytes.len() == manifest.bytes) {
            found.push((kind, manifest, bytes));
        }
    }
    found
}

impl Told {
    fn list(&mut self, kind: u32) -> &mut Vec<Json> {
        match kind {
            _ if kind & mask::PROCESSED_ANY != 0 => &mut self.processed,
            mask::HEADERS => &mut self.headers,
            mask::REQUESTS => &mut self.requests,
            mask::META => &mut self.meta,
            mask::COOKIES => &mut self.cookies,
            _ => &mut self.raw,
        }
    }

    fn page(&mut self, page: &Page, body: &[u8], asked: u32, room: &mut Room) -> Result<(), Failed> {
        let at = page.held.version.unix_ms;
        let beside = asked & (mask::HEADERS | mask::REQUESTS | mask::META | mask::COOKIES) != 0;
        if asked & mask::RAW != 0 || !beside {
            room.put(&mut self.raw, body, at, mask::RAW)?;
        }
        let head = page.response.http_head();
        if asked & mask::HEADERS != 0 {
            room.put(&mut self.headers, head, at, mask::HEADERS)?;
        }
        if asked & mask::COOKIES != 0 {
            let text = String::from_utf8_lossy(head);
            let cookies: Vec<&str> = text
                .lines()
                .filter_map(|line| line.split_once(':'))
                .filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie"))
                .map(|(_, value)| value.trim())
                .collect();
            if !cookies.is_empty() {
                room.put(&mut self.cookies, cookies.join("\n").as_bytes(), at, mask::COOKIES)?;
            }
        }
        let records = parse_members(&page.members).unwrap_or_default();
        for record in &records {
            match record.kind {
                RecordKind::Request if asked & mask::REQUESTS != 0 => {
                    room.put(&mut self.requests, record.http_head(), at, mask::REQUESTS)?;
                }
                RecordKind::Metadata if asked & mask::META != 0 => {
                    room.put(&mut self.meta, &record.block, at, mask::META)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}
