//! Answers about crawls: what is defined, how it goes on all nodes, and changes of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::batch::{Discovered, EntryKind};
use proto::clients::fetch::Fetch;
use proto::cluster::registry::{DefinitionKey, DefinitionKind, NotDefined, Version};
use proto::control::crawl::{CrawlAnswer, CrawlCounts, CrawlList, CrawlRequest, CrawlRow, CrawlsHere};
use proto::control::{Answer, Request, node_name};
use proto::crawl::definition::{CrawlDefinition, CrawlState};
use tokio::sync::Mutex;
use tokio::time::{Duration, Instant};

use super::{SUBMIT_URLS, Shared, ask_peer};
use crate::actors::scorer::PRIORITY_DEFAULT;
use crate::edges::disk::{Job, ReplicaJob};
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::messages::Define;
use crate::node::Node;

/// Times a change is tried anew when somebody else's came between.
pub(super) const TRIES: usize = 6;
/// How long counts are told again before they are counted anew, at least; and in times of how long counting took.
const COUNTS_AGE_MIN: Duration = Duration::from_millis(500);
const COUNTS_AGE_FACTOR: u32 = 20;

/// Which counts are good enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// Those that were made a moment ago too: somebody looks.
    Lately,
    /// Only those that are made now: something is done by them.
    Now,
}

/// Counts, when they were made, and for how long they are told.
#[derive(Default)]
pub(super) struct Counted(Mutex<Option<(Instant, Duration, CrawlsHere)>>);

impl Shared {
    pub(super) async fn crawl(&self, node: &Node, swarm: &Arc<Swarm>, request: CrawlRequest) -> Answer {
        let answer = match request {
            CrawlRequest::Add(definition, replace) => self.add_crawl(node, swarm, *definition, replace).await,
            CrawlRequest::List => Ok(CrawlAnswer::List(self.list_crawls(node, swarm).await)),
            CrawlRequest::Here => self.crawls_here(node, Counting::Lately).await.map(CrawlAnswer::Here),
            CrawlRequest::HereNow => self.crawls_here(node, Counting::Now).await.map(CrawlAnswer::Here),
            CrawlRequest::Set { name, state } => self.set_crawl(node, swarm, &name, state).await,
            CrawlRequest::AddOpen(definition, fetch, replace) => {
                let definition = CrawlDefinition { fetch: Some(fetch), ..*definition };
                self.add_crawl(node, swarm, definition, replace).await
            }
            CrawlRequest::Fetch { name, fetch } => self.fetch_of(node, swarm, &name, fetch).await,
        };
        answer.map_or_else(Answer::Refused, Answer::Crawl)
    }

    // Looking.

    async fn crawls_here(&self, node: &Node, counting: Counting) -> Result<CrawlsHere, String> {
        let mut counted = self.counted.0.lock().await;
        if let Some((at, age, here)) = &*counted
            && counting == Counting::Lately
            && at.elapsed() < *age
        {
            return Ok(here.clone());
        }
        let began = Instant::now();
        let view = node.cluster().await.unwrap_or_default();
        let held = super::urls::slots_here(node).await;
        let counts = node.ask(|reply| Job::Replica(ReplicaJob::CountCrawls(held.clone(), reply))).await;
        let here = CrawlsHere {
            counts: counts.map_err(|error| error.to_string())?.into_iter().collect(),
            held: held.len() as u32,
            fetching: view.fetching as u32,
        };
        let age = COUNTS_AGE_MIN.max(began.elapsed() * COUNTS_AGE_FACTOR);
        *counted = Some((Instant::now(), age, here.clone()));
        Ok(here)
    }

    /// What every node says of its slots, by the node's name.
    pub(super) async fn crawls_everywhere(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        counting: Counting,
    ) -> Vec<(String, Result<CrawlsHere, String>)> {
        let request = match counting {
            Counting::Lately => CrawlRequest::Here,
            Counting::Now => CrawlRequest::HereNow,
        };
        let others = swarm.nodes().into_iter().map(|peer| {
            let (swarm, request) = (Arc::clone(swarm), Request::Crawl(request.clone()));
            async move {
                let here = match ask_peer(&swarm, peer.peer, &request).await {
                    Ok(Answer::Crawl(CrawlAnswer::Here(here))) => Ok(here),
                    Ok(Answer::Refused(why)) => Err(why),
                    Ok(other) => Err(format!("answered {other:?}")),
                    Err(error) => Err(error),
                };
                (node_name(peer.node), here)
            }
        });
        let mine = async { (node_name(node_of(&self.me)), self.crawls_here(node, counting).await) };
        let (mine, others) = futures_util::future::join(mine, futures_util::future::join_all(others)).await;
        std::iter::once(mine).chain(others).collect()
    }

    /// All crawls with what they have come to, as somebody looks at them.
    pub(super) async fn list_crawls(&self, node: &Node, swarm: &Arc<Swarm>) -> CrawlList {
        self.counted_crawls(node, swarm, Counting::Lately).await
    }

    /// The same, counted now on every node, for whoever does something by it.
    pub(super) async fn count_anew(&self, node: &Node, swarm: &Arc<Swarm>) -> CrawlList {
        self.counted_crawls(node, swarm, Counting::Now).await
    }

    async fn counted_crawls(&self, node: &Node, swarm: &Arc<Swarm>, counting: Counting) -> CrawlList {
        let mut list = CrawlList::default();
        let mut counts: BTreeMap<String, CrawlCounts> = BTreeMap::new();
        for (name, answer) in self.crawls_everywhere(node, swarm, counting).await {
            match answer {
                Ok(CrawlsHere { counts: here, held, fetching }) => {
                    list.slots += held;
                    list.fetching += fetching;
                    here.into_iter().for_each(|(name, more)| counts.entry(name).or_default().add(more));
                }
                Err(why) => list.missing.push((name, why)),
            }
        }
        let crawls = node.crawls();
        for crawl in crawls.defined() {
            let definition = crawl.definition.clone();
            let counts = counts.remove(&definition.name).unwrap_or_default();
            let defined_by_nobody = crawls.site(&definition.name).is_some_and(|(_, version)| version.is_none());
            if defined_by_nobody && counts.totals.known == 0 {
                continue; // the general site, which nobody uses
            }
            list.crawls.push(CrawlRow { name: definition.name.clone(), definition: Some(definition), counts });
        }
        let undefined = counts.into_iter().filter(|(name, _)| crawls.filter(name).is_some());
        list.crawls.extend(undefined.map(|(name, counts)| CrawlRow { name, definition: None, counts }));
        list
    }

    // Changes.

    async fn add_crawl(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        definition: CrawlDefinition,
        replace: bool,
    ) -> Result<CrawlAnswer, String> {
        let crawls = node.crawls();
        let (_, seeds) = definition.understand(crawls.base(), crawls.urls()).map_err(|error| error.to_string())?;
        if definition.delay_ms.is_some_and(|delay| delay > self.delay_max_ms) {
            return Err(format!(
                "a delay of {} s is longer than the nodes keep; at most {} s (their setting politeness.crawl_delay_max_ms)",
                definition.delay_ms.unwrap_or(0) as f64 / 1e3,
                self.delay_max_ms as f64 / 1e3
            ));
        }
        let name = definition.name.clone();
        if crawls.is_of_site(&name) {
            return Err(format!("there is a site called {name:?}; choose another name"));
        }
        let other_rules = |crawls: &proto::crawl::crawls::Crawls| {
            crawls.get(&name).is_some_and(|crawl| !crawl.definition.asks_the_same(&definition))
        };
        if !replace && other_rules(&crawls) {
            return Err(format!(
                "there is a crawl called {name:?} already, with other seeds or rules; choose another name, or replace it"
            ));
        }
        self.may_be_opened(node, swarm, &definition).await?;
        // Seeds first: until the crawl is defined nothing of it is fetched, and whoever hears that it is knows that they are kept.
        let found = |url| Discovered { url, kind: EntryKind::Page, depth: 0, priority: PRIORITY_DEFAULT, redirects: 0 };
        let urls: Vec<Discovered> = seeds.into_iter().map(found).collect();
        for urls in urls.chunks(SUBMIT_URLS) {
            self.hand_in(node, &name, definition.fetch, urls).await?;
        }
        let seeds = urls.len() as u64;
        let kept = self
            .change(node, swarm, &name, |known| match known {
                Some(known) if !replace && !known.asks_the_same(&definition) => {
                    Err("somebody else defined it meanwhile".to_owned())
                }
                Some(known) => Ok(CrawlDefinition { defined_at: known.defined_at, ..definition.clone() }),
                None => Ok(definition.clone()),
            })
            .await?;
        Ok(kept.with_seeds(seeds))
    }

    /// URLs of a crawl wait either with the crawl or in queues of clients, and are not moved from one to the other.
    async fn may_be_opened(&self, node: &Node, swarm: &Arc<Swarm>, definition: &CrawlDefinition) -> Result<(), String> {
        let (crawls, name) = (node.crawls(), &definition.name);
        let other = "choose another name for one that is to be different";
        match (crawls.get(name).map(|crawl| crawl.definition.fetch.is_some()), definition.fetch.is_some()) {
            (Some(false), true) => Err(not_open(name)),
            (Some(true), false) => Err(format!(
                "crawl {name:?} is open to clients: its URLs wait in their queues; say --fetch, or {other}"
            )),
            (None, true) => {
                let known = |here: &CrawlsHere| here.counts.iter().any(|(of, is)| of == name && is.totals.known > 0);
                let everywhere = self.crawls_everywhere(node, swarm, Counting::Now).await;
                if everywhere.iter().any(|(_, here)| here.as_ref().is_ok_and(known)) {
                    return Err(format!(
                        "the nodes have URLs of {name:?} already, which clients could not have; {other}"
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Says who fetches the URLs of a crawl, after somebody else is to if that is asked for.
    async fn fetch_of(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        name: &str,
        fetch: Option<Fetch>,
    ) -> Result<CrawlAnswer, String> {
        if let Some(fetch) = fetch {
            self.change(node, swarm, name, |known| match known {
                None => Err(no_crawl(node, name)),
                Some(known) if known.fetch.is_none() => Err(not_open(name)),
                Some(known) => Ok(CrawlDefinition { fetch: Some(fetch), ..known.clone() }),
            })
            .await?;
        }
        let crawls = node.crawls();
        let crawl = crawls.get(name).ok_or_else(|| no_crawl(node, name))?;
        Ok(CrawlAnswer::Fetch { crawl: name.to_owned(), fetch: fetch.or(crawl.definition.fetch) })
    }

    async fn set_crawl(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        name: &str,
        state: CrawlState,
    ) -> Result<CrawlAnswer, String> {
        if node.crawls().is_of_site(name) {
            return Err(format!("{name:?} is a site; change its state with `ctl site update`"));
        }
        let kept = self
            .change(node, swarm, name, |known| {
                let Some(known) = known else { return Err(no_crawl(node, name)) };
                if known.state == CrawlState::Stopped && state != CrawlState::Stopped {
                    return Err(format!(
                        "crawl {name:?} was stopped for good; to begin it again, add it again with the same seeds and rules"
                    ));
                }
                Ok(CrawlDefinition { state, ..known.clone() })
            })
            .await?;
        Ok(kept.with_seeds(0))
    }

    /// Changes the definition of a crawl, and has it kept.
    async fn change(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        name: &str,
        decide: impl Fn(Option<&CrawlDefinition>) -> Result<CrawlDefinition, String>,
    ) -> Result<Kept, String> {
        let key = DefinitionKey { kind: DefinitionKind::Crawl, name: name.to_owned() };
        let mut why = NotDefined::Changed;
        for _ in 0..TRIES {
            let crawls = node.crawls();
            let known = crawls.get(name);
            let definition = decide(known.map(|crawl| &crawl.definition))?;
            let expects: Option<Version> = known.map(|crawl| crawl.version);
            let body = Some(definition.encode().map_err(|error| error.to_string())?);
            match node.define(Define { key: key.clone(), expects, body }).await {
                Ok(defined) => {
                    let everybody = swarm.nodes().into_iter().map(|peer| peer.node).chain([node_of(&self.me)]);
                    let missing = everybody.filter(|node| !defined.by.contains(node)).map(node_name).collect();
                    let (crawl, state, nodes) = (name.to_owned(), definition.state, defined.by.len() as u32);
                    return Ok(Kept { crawl, state, nodes, missing });
                }
                Err(again @ (NotDefined::Changed | NotDefined::StartedAnew)) => why = again,
                Err(other) => return Err(format!("crawl {name:?}: {other}")),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(format!("crawl {name:?}: {why}"))
    }
}

/// Why a crawl cannot be switched, and what to do instead.
fn not_open(name: &str) -> String {
    format!(
        "crawl {name:?} is not open to clients: it was added without --fetch, so its URLs wait with the nodes and are not moved. To have clients fetch what waits: \
         `ctl crawl stop {name}`, `ctl crawl add OTHER --scope any --fetch both`, and on each node `orbweaver export DATA --crawl {name} --only new --format urls | \
         orbweaver frontier put --file - --crawl OTHER`"
    )
}

fn no_crawl(node: &Node, name: &str) -> String {
    let crawls = node.crawls();
    let names: Vec<&str> = crawls.defined().map(|crawl| crawl.definition.name.as_str()).collect();
    let there = if names.is_empty() { "none is defined".to_owned() } else { names.join(", ") };
    format!("there is no crawl called {name:?}; there are: {there}")
}

/// A change that is kept.
struct Kept {
    crawl: String,
    state: CrawlState,
    nodes: u32,
    missing: Vec<String>,
}

impl Kept {
    fn with_seeds(self, seeds: u64) -> CrawlAnswer {
        let Kept { crawl, state, nodes, missing } = self;
        CrawlAnswer::Kept { crawl, state, seeds, nodes, missing }
    }
}
