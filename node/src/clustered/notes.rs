//! Attributes and other notes of sites: read from all replicas, of which the latest copy counts, and changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use libp2p::PeerId;
use proto::cluster::copy::RecordCopy;
use proto::control::records::{RecordsAnswer, RecordsRequest};
use proto::control::{Answer, Request};
use proto::id::Round;
use proto::key::UrlKey;
use proto::query::{Collector, Source};
use proto::site::note::{self, Note, NoteKind};
use proto::site::{Attribute, BadRequest, Operation, code};
use serde_json::{Value as Json, json};

use super::records::keep;
use super::site::{Failed, Outcome};
use super::{Shared, ask_peer_for};
use crate::edges::clock::unix_ms;
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::node::Node;

/// How long another node may take to read notes.
const NOTES_PATIENCE: tokio::time::Duration = tokio::time::Duration::from_secs(20);
/// Notes written at once.
const COPIES_AT_ONCE: usize = 200;
/// URLs whose notes are read one by one: as many as upkeep takes at once, which comes often and should not read all notes of a site each time. Of more, all of their shards
/// are read, if they are not too large.
const URLS_ONE_BY_ONE: usize = 100;
/// Parts of the notes of one prefix; each has about a mebibyte.
const PARTS_MAX: usize = 64;
/// What is said of a prefix that has more.
const TOO_LARGE: &str = "MiB of notes; ask for those of one URL";

/// What ATTRIBUTE_SET says of an attribute.
const INSERTED: u8 = 0;
const FAILED: u8 = 1;
const EXISTED: u8 = 2;
const NO_SITE: u8 = 3;

/// The latest copies of notes, those that were removed included.
pub(super) type Notes = BTreeMap<UrlKey, Note>;

/// Notes as one operation read them, by what their keys begin with.
type NotesRead = BTreeMap<Vec<u8>, Notes>;

impl Shared {
    /// The notes whose keys begin with `prefix`. Fails if so few nodes answer that the latest may be missing.
    pub(super) async fn notes(&self, node: &Node, swarm: &Arc<Swarm>, prefix: &[u8]) -> Result<Notes, String> {
        let mut asked = vec![self.notes_of(node, swarm, None, prefix.to_vec())];
        asked
            .extend(swarm.nodes().into_iter().map(|peer| self.notes_of(node, swarm, Some(peer.peer), prefix.to_vec())));
        let answers = futures_util::future::join_all(asked).await;
        let copies = self.enough(answers)?.into_iter().flatten();
        let mut latest: BTreeMap<UrlKey, RecordCopy> = BTreeMap::new();
        for copy in copies {
            let merged = match latest.remove(&copy.key) {
                Some(known) => known.merge(copy),
                None => copy,
            };
            latest.insert(merged.key.clone(), merged);
        }
        Ok(latest.into_iter().filter_map(|(key, copy)| Note::open(&copy).map(|note| (key, note))).collect())
    }

    /// The notes of another node, or of this one.
    async fn notes_of(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        peer: Option<PeerId>,
        prefix: Vec<u8>,
    ) -> Result<Vec<RecordCopy>, String> {
        let (mut found, mut after): (Vec<RecordCopy>, Option<UrlKey>) = (Vec::new(), None);
        for _ in 0..PARTS_MAX {
            let request = RecordsRequest::Notes { prefix: prefix.clone(), after: after.take() };
            let answer = match peer {
                None => self.records(node, request).await,
                Some(peer) => ask_peer_for(NOTES_PATIENCE, swarm, peer, &Request::Records(request))
                    .await
                    .map_err(|why| format!("{peer}: {why}"))?,
            };
            match answer {
                Answer::Records(RecordsAnswer::Notes { copies, more }) => {
                    after = copies.last().map(|copy| copy.key.clone()).filter(|_| more);
                    found.extend(copies);
                    if after.is_none() {
                        return Ok(found);
                    }
                }
                Answer::Refused(why) => return Err(why),
                other => return Err(format!("answered {other:?}")),
            }
        }
        Err(format!("more than {PARTS_MAX} {TOO_LARGE}"))
    }

    /// Has notes of a site written upon what is known of them.
    pub(super) async fn keep_notes(
        &self,
        node: &Node,
        crawl: &str,
        known: &Notes,
        notes: Vec<Note>,
    ) -> Result<(), String> {
        let (me, now) = (node_of(&self.me), unix_ms());
        let copies: Result<Vec<RecordCopy>, String> = notes
            .into_iter()
            .map(|new| {
                let key = note::key(crawl, new.kind, &new.url, &new.name);
                Note::after(known.get(&key), new, me, now).copy(crawl).map_err(|error| error.to_string())
            })
            .collect();
        for copies in copies?.chunks(COPIES_AT_ONCE) {
            keep(node, copies).await?;
        }
        Ok(())
    }

    /// Removes the notes of URLs that were deleted or cleaned. Of those that were cleaned it is noted which round is the first whose contents are still theirs.
    pub(super) async fn remove_notes(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        urls: &BTreeMap<String, Option<Round>>,
    ) -> Result<(), String> {
        let known = self.notes_about(node, swarm, crawl, &urls.keys().map(String::as_str).collect()).await?;
        let goes = |note: &&Note| note.value.is_some() && !note.is_cleaned() && urls.contains_key(&note.url);
        let removed = known.values().filter(goes).map(|note| Note { value: None, ..note.clone() });
        let cleaned = urls.iter().filter_map(|(url, begins)| Some(Note::cleaned(url, (*begins)?)));
        let fresh: Vec<Note> = removed.chain(cleaned).collect();
        if fresh.is_empty() { Ok(()) } else { self.keep_notes(node, crawl, &known, fresh).await }
    }

    // Attributes.

    /// A status for each: 0 inserted, 1 failed, 2 existed and changed, 3 no such site; of ATTRIBUTE_UPDATE whether it is done.
    pub(super) async fn attribute_set(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        bodies: Vec<Json>,
        operation: Operation,
    ) -> Json {
        let mut done: Vec<Result<bool, (u8, Failed)>> = Vec::new();
        let mut by_crawl: BTreeMap<String, Vec<(usize, Attribute)>> = BTreeMap::new();
        for (at, body) in bodies.into_iter().enumerate() {
            done.push(Ok(false));
            let read = Attribute::read(body).map_err(|bad| (FAILED, Failed::from(bad)));
            let placed = read.and_then(|attribute| {
                let crawl = self.crawl_of(node, &attribute.site_id).map_err(|failed| (NO_SITE, failed))?;
                Ok((crawl, attribute))
            });
            match placed {
                Ok((crawl, attribute)) => by_crawl.entry(crawl).or_default().push((at, attribute)),
                Err(failed) => done[at] = Err(failed),
            }
        }
        for (crawl, attributes) in by_crawl {
            match self.set_attributes(node, swarm, &crawl, &attributes).await {
                Ok(existed) => existed.into_iter().for_each(|(at, existed)| done[at] = Ok(existed)),
                Err(why) => {
                    attributes.iter().for_each(|(at, _)| done[*at] = Err((FAILED, Failed::new(code::NOT_KEPT, &why))))
                }
            }
        }
        let (mut statuses, mut messages, mut code) = (Vec::new(), Vec::new(), code::OK);
        for (at, done) in done.into_iter().enumerate() {
            if let Err((_, failed)) = &done {
                code = if code == code::OK { failed.code() } else { code };
                messages.push(format!("[{at}] {}", failed.message));
            }
            statuses.push(match (operation, done) {
                (Operation::AttributeUpdate, done) => json!(done.is_ok()),
                (_, Ok(existed)) => json!(if existed { EXISTED } else { INSERTED }),
                (_, Err((status, _))) => json!(status),
            });
        }
        json!({"errorCode": code, "errorMessage": messages.join(";"), "statuses": statuses})
    }

    /// Sets attributes of one site; of each whether it was there.
    async fn set_attributes(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        attributes: &[(usize, Attribute)],
    ) -> Result<Vec<(usize, bool)>, String> {
        let urls: BTreeSet<&str> = attributes.iter().map(|(_, attribute)| attribute.url_md5.as_str()).collect();
        let known = self.notes_about(node, swarm, crawl, &urls).await?;
        let mut fresh: BTreeMap<UrlKey, Note> = BTreeMap::new();
        let mut existed = Vec::with_capacity(attributes.len());
        for (at, attribute) in attributes {
            let new = note_of(attribute);
            let key = note::key(crawl, new.kind, &new.url, &new.name);
            let there = known.get(&key).is_some_and(|known| known.value.is_some());
            existed.push((*at, fresh.insert(key, new).is_some() || there));
        }
        self.keep_notes(node, crawl, &known, fresh.into_values().collect()).await?;
        Ok(existed)
    }

    /// The notes about some URLs of a crawl, and some about others.
    async fn notes_about(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        urls: &BTreeSet<&str>,
    ) -> Result<Notes, String> {
        let mut shards: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        urls.iter().for_each(|url| shards.entry(note::shard_of(url)).or_default().push(url));
        let (mut known, mut one_by_one) = (Notes::new(), Vec::new());
        for (shard, of_shard) in shards {
            if urls.len() > URLS_ONE_BY_ONE {
                match self.notes(node, swarm, &note::prefix(crawl, shard)).await {
                    Ok(notes) => {
                        known.extend(notes.into_iter().filter(|(_, note)| urls.contains(note.url.as_str())));
                        continue;
                    }
                    Err(why) if why.contains(TOO_LARGE) => {}
                    Err(why) => return Err(why),
                }
            }
            one_by_one.extend(of_shard.into_iter().map(|url| note::prefix_of(crawl, url)));
        }
        for prefix in one_by_one {
            known.extend(self.notes(node, swarm, &prefix).await?);
        }
        Ok(known)
    }

    /// The attributes of some URLs of a site, by id.
    pub(super) async fn attributes_of(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        site: &str,
        ids: &BTreeSet<String>,
    ) -> Result<Vec<Attribute>, Failed> {
        let crawl = self.crawl_of(node, site)?;
        let urls: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
        let known = self.notes_about(node, swarm, &crawl, &urls).await;
        let known = known.map_err(|error| Failed::new(code::NOT_KEPT, error))?;
        let found = known.values().filter_map(|note| attribute_of(note, site));
        Ok(found.filter(|attribute| ids.contains(&attribute.url_md5)).collect())
    }

    /// Deletes the attributes that each request means; whether there were any. Those of one site are written together.
    pub(super) async fn attribute_delete(&self, node: &Node, swarm: &Arc<Swarm>, bodies: Vec<Json>) -> Vec<Outcome> {
        let (mut read, mut outcomes) = (NotesRead::new(), Vec::with_capacity(bodies.len()));
        let mut removed: BTreeMap<String, (Notes, Vec<usize>)> = BTreeMap::new();
        for (at, body) in bodies.into_iter().enumerate() {
            outcomes.push(match self.taken_out(node, swarm, body, &mut read).await {
                Ok((crawl, notes)) => {
                    let there = !notes.is_empty();
                    let (all, places) = removed.entry(crawl).or_default();
                    all.extend(notes);
                    places.push(at);
                    Ok(json!(there))
                }
                Err(failed) => Err(failed),
            });
        }
        for (crawl, (known, places)) in removed {
            let gone = known.values().map(|note| Note { value: None, ..note.clone() }).collect();
            if let Err(why) = self.keep_notes(node, &crawl, &known, gone).await {
                places.into_iter().for_each(|at| outcomes[at] = Err(Failed::new(code::NOT_KEPT, &why)));
            }
        }
        outcomes
    }

    /// Takes the attributes that a request means out of what was read, so that the next one of its list does not find them any more.
    async fn taken_out(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        body: Json,
        read: &mut NotesRead,
    ) -> Result<(String, Notes), Failed> {
        let which = Attribute::read_deleted(body)?;
        let (crawl, found) = self.attributes(node, swarm, &which, read).await?;
        let key = |attribute: &Attribute| note::key(&crawl, NoteKind::Attribute, &attribute.url_md5, &attribute.name);
        let keys: Vec<UrlKey> = found.iter().map(key).collect();
        let mut taken = Notes::new();
        for notes in read.values_mut() {
            taken.extend(keys.iter().filter_map(|key| notes.remove_entry(key)));
        }
        Ok((crawl, taken))
    }

    /// The attributes that requests mean.
    pub(super) async fn attribute_fetch(&self, node: &Node, swarm: &Arc<Swarm>, bodies: Vec<Json>) -> Outcome {
        let (mut read, mut told) = (NotesRead::new(), Vec::new());
        for body in bodies {
            let which = Attribute::read_which(body)?;
            let (_, found) = self.attributes(node, swarm, &which, &mut read).await?;
            told.extend(found.iter().map(Attribute::json));
        }
        Ok(Json::Array(told))
    }

    /// The crawl of a site, and the attributes that are meant. Notes are read once for all requests of a list.
    async fn attributes(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        which: &Attribute,
        read: &mut NotesRead,
    ) -> Result<(String, Vec<Attribute>), Failed> {
        let crawl = self.crawl_of(node, &which.site_id)?;
        let query = which.criterions.clone().unwrap_or_default().query_of_all(Source::Attributes)?;
        let prefixes: Vec<Vec<u8>> = match which.url_md5.as_str() {
            "" => note::shards().map(|shard| note::prefix(&crawl, &shard)).collect(),
            url => vec![note::prefix_of(&crawl, url)],
        };
        let named = |note: &&Note| {
            (which.name.is_empty() || note.name == which.name)
                && (which.url_md5.is_empty() || note.url == which.url_md5)
        };
        let mut found: BTreeMap<(String, String), Attribute> = BTreeMap::new();
        for prefix in prefixes {
            if !read.contains_key(&prefix) {
                let notes = self.notes(node, swarm, &prefix).await;
                read.insert(prefix.clone(), notes.map_err(|error| Failed::new(code::NOT_KEPT, error))?);
            }
            let notes = read.get(&prefix).into_iter().flat_map(Notes::values).filter(named);
            let attributes = notes.filter_map(|note| attribute_of(note, &which.site_id));
            found.extend(attributes.map(|one| ((one.url_md5.clone(), one.name.clone()), one)));
        }
        if which.criterions.is_none() {
            return Ok((crawl, found.into_values().collect()));
        }
        let mut collector = Collector::new(&query);
        for attribute in found.values() {
            let looked = collector.look(attribute, unix_ms());
            looked.map_err(|error| BadRequest::new("criterions", error.to_string()))?;
        }
        let rows = super::urls::objects(collector.finish());
        let text = |row: &Json, name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let chosen = rows.iter().filter_map(|row| found.get(&(text(row, "urlMd5"), text(row, "name"))).cloned());
        Ok((crawl, chosen.collect()))
    }

    /// The name under which the URLs of a site are kept.
    pub(super) fn crawl_of(&self, node: &Node, id: &str) -> Result<String, Failed> {
        let crawls = node.crawls();
        let id = if id.is_empty() { proto::site::GENERAL_SITE } else { id };
        let site = crawls.site(id).map(|(site, _)| site).filter(|site| !site.deleted);
        site.map(|site| site.crawl_name()).ok_or_else(|| Failed::no_site(id))
    }
}

fn note_of(attribute: &Attribute) -> Note {
    Note {
        version: Default::default(),
        kind: NoteKind::Attribute,
        url: attribute.url_md5.clone(),
        name: attribute.name.clone(),
        value: Some(attribute.value.clone().into_bytes()),
        created_ms: 0,
    }
}

fn attribute_of(note: &Note, site_id: &str) -> Option<Attribute> {
    let value = note.value.as_ref().filter(|_| note.kind == NoteKind::Attribute)?;
    Some(Attribute::kept(site_id, &note.name, &note.url, value, note.created_ms))
}

impl Shared {
    /// What those said that answered, if so few are missing that the latest copy of everything is among it: of R copies W are written.
    pub(super) fn enough<T>(&self, answers: Vec<Result<T, String>>) -> Result<Vec<T>, String> {
        let nodes = answers.len();
        let (good, bad): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        let missing: Vec<String> = bad.into_iter().filter_map(Result::err).collect();
        let alone_and_silent = nodes == 1 && !missing.is_empty();
        if alone_and_silent || (nodes > 1 && missing.len() > self.replicas.saturating_sub(self.write_quorum)) {
            return Err(format!("too few nodes answer: {}", missing.join("; ")));
        }
        Ok(good.into_iter().filter_map(Result::ok).collect())
    }
}
