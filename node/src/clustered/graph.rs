//! Questions of people about the page graph and about what waits: every node tells of the slots that it acts for, in rows of JSON, some at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use proto::clients::spider::page_key;
use proto::cluster::slot_set::SlotSet;
use proto::control::pages::{NAMES_MAX, PagesAnswer, PagesPlace, PagesRequest, PagesWhat};
use proto::control::{Answer, Request};
use proto::id::{NodeId, SLOTS, Slot, UrlId};
use proto::key::UrlKey;
use proto::score::rounds::{Best, Wish};
use proto::url::{CanonicalUrl, UrlRules};
use regex::Regex;
use serde_json::{Value as Json, json};
use tokio::time::Duration;

use super::{Shared, ask_peer_for};
use crate::doors::frontier::desk::{Desk, Unavailable, shares};
use crate::doors::spiders::SpiderDesk;
use crate::edges::disk::{Job, Look};
use crate::edges::store::{PageGraph, PageRow, Store, StoreError};
use crate::edges::swarm::Swarm;
use crate::node::Node;
use crate::scoring::known::Known;
use crate::scoring::{FOLDER, KeptScores};

/// Pages that are told of in one answer, or whose links are.
const PAGES_AT_ONCE: usize = 500;
/// Pages whose links are looked at for one answer.
const LOOKED_AT: usize = 20_000;
/// How long another node may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Rows, and behind what to go on.
type Part = (Vec<Json>, Option<Vec<u8>>);

impl Shared {
    /// Answers.
    pub(super) async fn pages(&self, node: &Node, swarm: &Arc<Swarm>, request: PagesRequest) -> Answer {
        let Some(desk) = self.desk.get() else {
            return Answer::Refused("the node is starting; ask again".to_owned());
        };
        let answered = match request {
            PagesRequest::Look { what, from } => look(node, desk, swarm, what, from).await,
            PagesRequest::Here { what, slots, after } => here(node, desk, what, slots, after).await,
            PagesRequest::Rescore { by } => match desk.scoring() {
                None => Err(NO_GRAPH.to_owned()),
                Some(scoring) => scoring
                    .compute_now(&by)
                    .await
                    .map(|moved| PagesAnswer { rows: vec![json!({"by": by, "moved": moved}).to_string()], next: None }),
            },
            PagesRequest::Rank { wish, from } => rank(desk, wish, from).await,
            PagesRequest::PutUpAgain => match SpiderDesk::new(desk.clone()).reload().await {
                Ok(reloaded) => Ok(PagesAnswer { rows: vec![json!({"reloaded": reloaded}).to_string()], next: None }),
                Err(Unavailable(reason)) => Err(reason),
            },
        };
        answered.map_or_else(Answer::Refused, Answer::Pages)
    }
}

const NO_GRAPH: &str = "this node keeps no page graph; set [score] by in the settings of all nodes";

/// Has a ranking computed, or tells what came of it: rows with keys and scores, the best first.
async fn rank(desk: &Desk, wish: Wish, from: Option<PagesPlace>) -> Result<PagesAnswer, String> {
    let scoring = desk.scoring().ok_or(NO_GRAPH)?;
    let Some(from) = from else {
        let number = scoring.rank(wish).await?;
        let next = PagesPlace { node: desk.me().0, after: number.to_be_bytes().to_vec() };
        return Ok(PagesAnswer { rows: Vec::new(), next: Some(next) });
    };
    let number = from.after.as_slice().try_into().map_err(|_| "not a place to go on from")?;
    let Some(best) = scoring.ranked(u64::from_be_bytes(number), wish.top).await? else {
        return Ok(PagesAnswer { rows: Vec::new(), next: Some(from) });
    };
    let row = |(score, key): Best| {
        let key = UrlKey::from_bytes(&key);
        json!({"score": score, "key": hexadecimal(&key), "id": key.id().to_string()}).to_string()
    };
    Ok(PagesAnswer { rows: best.into_iter().map(row).collect(), next: None })
}

/// Asks the node whose turn it is, and says who is next.
async fn look(
    node: &Node,
    desk: &Desk,
    swarm: &Arc<Swarm>,
    what: PagesWhat,
    from: Option<PagesPlace>,
) -> Result<PagesAnswer, String> {
    let places = desk.places().await.map_err(|error| error.to_string())?;
    let all: SlotSet = (0..SLOTS).map(Slot).collect();
    let shares = shares(&places, &all, &BTreeSet::new());
    let turn = match &from {
        Some(from) => NodeId(from.node),
        None => *shares.keys().next().ok_or("no node is alive")?,
    };
    let after = from.map(|from| from.after).unwrap_or_default();
    let slots = shares.get(&turn).cloned().ok_or("a node has died or left meanwhile; ask from the beginning")?;
    let mut answer = if turn == desk.me() {
        here(node, desk, what, slots, after).await?
    } else {
        let peer = swarm.nodes().iter().find(|peer| peer.node == turn).map(|peer| peer.peer);
        let peer = peer.ok_or("a node that is not known yet; ask again")?;
        let request = Request::Pages(PagesRequest::Here { what, slots, after });
        match ask_peer_for(PATIENCE, swarm, peer, &request).await {
            Ok(Answer::Pages(answer)) => answer,
            Ok(Answer::Refused(why)) | Err(why) => return Err(format!("node {peer}: {why}")),
            Ok(other) => return Err(format!("node {peer} answered {other:?}")),
        }
    };
    if answer.next.is_none() {
        let next = shares.keys().find(|node| **node > turn);
        answer.next = next.map(|node| PagesPlace { node: node.0, after: Vec::new() });
    }
    Ok(answer)
}

/// Tells of these slots.
async fn here(
    node: &Node,
    desk: &Desk,
    what: PagesWhat,
    slots: SlotSet,
    after: Vec<u8>,
) -> Result<PagesAnswer, String> {
    let (rows, next) = if what == PagesWhat::Waiting {
        let waits = move |store: &Store| waiting(store, &slots, &after);
        node.ask(|reply| Job::Look(Look::new(waits, reply))).await.map_err(|error| error.to_string())?
    } else {
        let graph = desk.scoring().and_then(|scoring| scoring.graph()).ok_or(NO_GRAPH)?;
        told(node, graph, what, slots, &after).await?
    };
    let next = next.map(|after| PagesPlace { node: desk.me().0, after });
    Ok(PagesAnswer { rows: rows.iter().map(Json::to_string).collect(), next })
}

/// Does what reads much of the graph where others do not wait for it.
async fn aside<T: Send + 'static>(
    graph: &PageGraph,
    work: impl FnOnce(&PageGraph) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, String> {
    let graph = graph.clone();
    let done = tokio::task::spawn_blocking(move || work(&graph)).await;
    done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

/// What is known of pages, in the order of the keys.
async fn known(node: &Node, keys: Vec<UrlKey>) -> Result<Vec<(UrlKey, Option<Known>)>, String> {
    let read = move |store: &Store| {
        keys.into_iter().map(|key| Known::of(store, &key).map(|known| (key, known))).collect::<Result<_, _>>()
    };
    node.ask(|reply| Job::Look(Look::new(read, reply))).await.map_err(|error| error.to_string())
}

async fn told(node: &Node, graph: PageGraph, what: PagesWhat, slots: SlotSet, after: &[u8]) -> Result<Part, String> {
    let first = match after {
        [] => 0,
        bytes => u32::from_be_bytes(bytes.try_into().map_err(|_| "not a place to go on from")?),
    };
    let next = |last: u32| last.checked_add(1).map(|next| next.to_be_bytes().to_vec());
    match what {
        PagesWhat::Info | PagesWhat::Find { .. } => {
            let regex = match &what {
                PagesWhat::Find { regex } => Some(Regex::new(regex).map_err(|error| error.to_string())?),
                _ => None,
            };
            let pages = aside(&graph, move |graph| graph.pages_from(first, PAGES_AT_ONCE)).await?;
            let next = pages.last().filter(|_| pages.len() == PAGES_AT_ONCE).and_then(|(last, _)| next(*last));
            let keys = pages.into_iter().map(|(_, key)| key).filter(|key| slots.contains(key.slot())).collect();
            let mut known = known(node, keys).await?;
            let rows = aside(&graph, move |graph| {
                if let Some(regex) = regex {
                    known.retain(|(_, known)| known.as_ref().is_some_and(|known| regex.is_match(&known.url)));
                    return Ok(known.into_iter().filter_map(|(key, known)| Some(named(&key, &known?.url))).collect());
                }
                let scores = KeptScores::open(&graph.dir().join(FOLDER));
                let mut rows = Vec::with_capacity(known.len());
                for (key, known) in known {
                    if let (Some(known), Some(page)) = (known, graph.page(&key)?) {
                        rows.push(info(&key, &known, &page, scores.as_ref().and_then(|scores| scores.of(page.number))));
                    }
                }
                Ok(rows)
            });
            Ok((rows.await?, next))
        }
        PagesWhat::Links => {
            let of = move |graph: &PageGraph| {
                let pages = graph.links_from(first, PAGES_AT_ONCE)?;
                let last = pages.last().filter(|_| pages.len() == PAGES_AT_ONCE).map(|(last, ..)| *last);
                let id = |number: u32| Ok::<_, StoreError>(graph.key(number)?.map(|key| key.id().to_string()));
                let mut rows = Vec::new();
                for (number, links, others) in pages {
                    let Some(key) = graph.key(number)?.filter(|key| slots.contains(key.slot())) else { continue };
                    let to: Vec<String> =
                        links.into_iter().filter_map(|to| id(to).transpose()).collect::<Result<_, _>>()?;
                    let content = graph.page(&key)?.map_or(0.0, |page| page.content);
                    rows.push(json!({"from": key.id().to_string(), "others": others, "content": content, "to": to}));
                }
                Ok((rows, last))
            };
            let (rows, last) = aside(&graph, of).await?;
            Ok((rows, last.and_then(next)))
        }
        PagesWhat::Named { names, .. } if names.len() > NAMES_MAX => {
            Err(format!("{} names at once, more than {NAMES_MAX}", names.len()))
        }
        PagesWhat::Named { crawl, names } => {
            let keys = aside(&graph, move |graph| meant(graph, &crawl, &names)).await?;
            let keys: Vec<UrlKey> = keys.into_iter().filter(|key| slots.contains(key.slot())).collect();
            let known = known(node, keys).await?;
            let rows = aside(&graph, move |graph| {
                let mut rows = Vec::new();
                for (key, known) in known {
                    let Some(known) = known else { continue };
                    let linker = graph.page(&key)?.and_then(|page| page.first_linker);
                    let linker = linker.map(|number| graph.key(number)).transpose()?.flatten();
                    // Each graph has its own first linker, the record the one by which the page was found. By its key it is found at once; else by its id.
                    let linker = linker.filter(|key| known.parent == Some(key.id()));
                    let parent = linker.map(|key| hexadecimal(&key)).or(known.parent.map(|id| id.to_string()));
                    let mut row = named(&key, &known.url);
                    (row["key"], row["parent"]) = (json!(hexadecimal(&key)), json!(parent));
                    rows.push(row);
                }
                Ok(rows)
            });
            Ok((rows.await?, None))
        }
        PagesWhat::Into { crawl, name } => {
            let of = move |graph: &PageGraph| {
                let mut wanted = Vec::new();
                for key in meant(graph, &crawl, &[name])? {
                    wanted.extend(graph.page(&key)?.map(|page| page.number));
                }
                let (mut keys, mut at) = (Vec::new(), first);
                for _ in 0..LOOKED_AT / PAGES_AT_ONCE {
                    let pages = graph.links_from(at, PAGES_AT_ONCE)?;
                    let last = pages.last().map(|(last, ..)| *last);
                    for (from, ..) in pages.iter().filter(|(_, to, _)| to.iter().any(|to| wanted.contains(to))) {
                        keys.extend(graph.key(*from)?.filter(|key| slots.contains(key.slot())));
                    }
                    match last.and_then(|last| last.checked_add(1)).filter(|_| pages.len() == PAGES_AT_ONCE) {
                        None => return Ok((keys, None)),
                        Some(next) => at = next,
                    }
                    if keys.len() >= PAGES_AT_ONCE {
                        break;
                    }
                }
                Ok((keys, Some(at.to_be_bytes().to_vec())))
            };
            let (keys, next) = aside(&graph, of).await?;
            let known = known(node, keys).await?.into_iter();
            Ok((known.filter_map(|(key, known)| Some(named(&key, &known?.url))).collect(), next))
        }
        PagesWhat::OutOf { crawl, name } => {
            let of = move |graph: &PageGraph| {
                let mut rows = Vec::new();
                for key in meant(graph, &crawl, &[name])?.into_iter().filter(|key| slots.contains(key.slot())) {
                    let number = graph.page(&key)?.map(|page| page.number);
                    let links = number.map(|number| graph.links_of(number)).transpose()?.flatten();
                    for link in links.unwrap_or_default() {
                        rows.extend(graph.key(link)?.map(|key| json!({"key": hexadecimal(&key)})));
                    }
                }
                Ok(rows)
            };
            Ok((aside(&graph, of).await?, None))
        }
        PagesWhat::Waiting => unreachable!("told by the store"),
    }
}

fn named(key: &UrlKey, url: &str) -> Json {
    json!({"id": key.id().to_string(), "crawl": key.crawl(), "url": url})
}

fn info(key: &UrlKey, known: &Known, page: &PageRow, score: Option<f64>) -> Json {
    let last = known.last_crawl_ms.filter(|_| page.first_crawl > 0);
    let seconds = last.map_or(0.0, |last| last.saturating_sub(page.first_crawl) as f64 / 1_000.0);
    let mut row = named(key, &known.url);
    let more = json!({
        "first_linker": known.parent.map(|id| id.to_string()),
        "depth": known.depth,
        "first_crawl_ms": Some(page.first_crawl).filter(|time| *time > 0),
        "last_crawl_ms": last,
        "crawls": known.crawls,
        "changes": known.changes,
        "change_rate": (seconds > 0.0).then(|| f64::from(known.changes + 1) / seconds),
        "score": score,
        "digest": known.digest,
    });
    if let (Json::Object(row), Json::Object(more)) = (&mut row, more) {
        row.extend(more);
    }
    row
}

fn hexadecimal(key: &UrlKey) -> String {
    key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.is_ascii() && text.len().is_multiple_of(2);
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    if digits { bytes.collect() } else { None }
}

/// The keys of the pages that names mean; ids are looked for among all pages that this node knows.
fn meant(graph: &PageGraph, crawl: &str, names: &[String]) -> Result<Vec<UrlKey>, StoreError> {
    let (mut keys, mut ids) = (Vec::new(), BTreeSet::new());
    for name in names {
        match from_hexadecimal(name) {
            Some(bytes) if bytes.len() == 16 => {
                ids.insert(UrlId(bytes.try_into().expect("sixteen bytes")));
            }
            Some(bytes) => keys.extend(UrlKey::checked(&bytes)),
            None => {
                if let Ok(url) = CanonicalUrl::parse(name, &UrlRules::default()) {
                    // Pages that spiders crawl are of no crawl of ours.
                    keys.extend([UrlKey::new(crawl, &url), page_key(&url)]);
                }
            }
        }
    }
    if !ids.is_empty() {
        graph.each_page::<StoreError>(|_, key| {
            if ids.contains(&key.id()) {
                keys.push(key);
            }
            Ok(())
        })?;
    }
    Ok(keys)
}

/// What waits in these slots: first in the queues of crawls, host by host, then for spiders, domain by domain.
fn waiting(store: &Store, slots: &SlotSet, after: &[u8]) -> Result<Part, StoreError> {
    let spiders = after.first() == Some(&b's');
    let key = after.get(1..).unwrap_or_default();
    if !spiders {
        let (entries, next) = store.some_waiting(slots, key)?;
        let row = |(queue, order, entry): (proto::key::QueueKey, proto::key::Order, proto::batch::Entry)| {
            json!({
                "host": queue.host(), "crawl": queue.crawl(), "priority": order.priority, "depth": order.depth,
                "sequence": order.sequence, "url": entry.url.as_str(),
            })
        };
        let next = next.map_or_else(|| b"s".to_vec(), |next| [b"r", next.as_slice()].concat());
        return Ok((entries.into_iter().map(row).collect(), Some(next)));
    }
    let (pages, next) = store.some_scheduled(slots, key)?;
    let row = |(domain, at_ms, url, page): (String, u64, String, proto::clients::page::PageState)| {
        let mut row =
            json!({"domain": domain, "level": page.level, "score": page.score, "depth": page.depth, "url": url});
        if at_ms > 0 {
            row["not_before_ms"] = json!(at_ms);
        }
        row
    };
    Ok((pages.into_iter().map(row).collect(), next.map(|next| [b"s", next.as_slice()].concat())))
}
