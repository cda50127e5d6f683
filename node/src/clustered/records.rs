//! Records for people: read from all replicas, of which the latest copy counts, and changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::cluster::amend::Amendment;
use proto::cluster::copy::{Kept, RecordCopy};
use proto::control::records::{FoundRecord, QueryText, RECORDS_MAX, RecordsAnswer, RecordsRequest, UrlName};
use proto::control::{Answer, Request};
use proto::query::{ROWS_MAX, Value};
use tokio::time::{Duration, timeout};

use super::upkeep::{deleted_here, recount_here};
use super::urls::look_here;
use super::{SUBMIT_PATIENCE, SUBMIT_TRIES, Shared, ask_peer};
use crate::edges::disk::{Job, ReplicaJob};
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::messages::NotSubmitted;
use crate::node::Node;

/// Records changed at once.
const AMEND_RECORDS: usize = 200;
/// MD5 of URLs that one query looks for: as many as its text has room for.
const MD5_AT_ONCE: usize = 300;

/// A record of which all replicas that answered were asked.
pub(super) struct Known {
    /// As it is kept.
    pub(super) copy: RecordCopy,
    /// What it says.
    pub(super) kept: Kept,
    /// Pages that link to it.
    pub(super) inlinks: u32,
}

impl Shared {
    /// What this node knows.
    pub(super) async fn records(&self, node: &Node, request: RecordsRequest) -> Answer {
        let said = |answer: Result<RecordsAnswer, String>| answer.map_or_else(Answer::Refused, Answer::Records);
        match request {
            RecordsRequest::Of { names, .. } if names.len() > RECORDS_MAX => {
                Answer::Refused(format!("{} records at once, more than {RECORDS_MAX}", names.len()))
            }
            RecordsRequest::Of { crawl, names } => match records_here(node, crawl, names).await {
                Ok(found) => Answer::Records(RecordsAnswer::Of(found)),
                Err(error) => Answer::Refused(error),
            },
            RecordsRequest::Look { query, sites } => match look_here(node, &query, &sites).await {
                Ok((part, slots)) => Answer::Records(RecordsAnswer::Part { part, slots }),
                Err(error) => Answer::Refused(error),
            },
            RecordsRequest::Notes { prefix, after } => {
                let read = node.ask(|reply| Job::Replica(ReplicaJob::Notes { prefix, after, reply })).await;
                said(
                    read.map(|(copies, more)| RecordsAnswer::Notes { copies, more }).map_err(|error| error.to_string()),
                )
            }
            RecordsRequest::History(key) => {
                let read = node.ask(|reply| Job::Replica(ReplicaJob::History(key, reply))).await;
                said(read.map(RecordsAnswer::History).map_err(|error| error.to_string()))
            }
            RecordsRequest::Deleted { limit, .. } if limit > ROWS_MAX => {
                Answer::Refused(format!("{limit} URLs at once, more than {ROWS_MAX}"))
            }
            RecordsRequest::Deleted { crawl, limit } => said(deleted_here(node, crawl, limit).await),
            RecordsRequest::Purge(keys) => {
                let purged = node.ask(|reply| Job::Replica(ReplicaJob::Purge(keys, reply))).await;
                said(purged.map(RecordsAnswer::Purged).map_err(|error| error.to_string()))
            }
            RecordsRequest::Failings => {
                let read = node.ask(|reply| Job::Replica(ReplicaJob::Failings(reply))).await;
                said(read.map(RecordsAnswer::Failings).map_err(|error| error.to_string()))
            }
            RecordsRequest::Recount { crawl } => said(recount_here(node, crawl).await),
        }
    }

    /// What the cluster knows of URLs of a crawl: the latest copy of each. Fails if so few nodes answer that the latest may be missing.
    pub(super) async fn known(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        names: Vec<UrlName>,
    ) -> Result<Vec<Option<Known>>, String> {
        let mut known = Vec::with_capacity(names.len());
        for names in names.chunks(RECORDS_MAX) {
            known.extend(self.known_of_some(node, swarm, crawl, names.to_vec()).await?);
        }
        Ok(known)
    }

    /// The URLs that are meant, where ids may be MD5 of URLs, as users of the Distributed Crawler have them. What is no id of ours is looked for among all URLs of the
    /// site: nobody else asks for MD5, so there is no index of them.
    pub(super) async fn meant(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        mut names: Vec<UrlName>,
    ) -> Result<Vec<UrlName>, String> {
        let is_id = |name: &&UrlName| matches!(name, UrlName::Id(_));
        let ids: Vec<UrlName> = names.iter().filter(is_id).cloned().collect();
        let crawls = node.crawls();
        let site = crawls.get(crawl).and_then(|crawl| crawl.site.as_ref()).map(|site| site.site.id.as_str());
        let Some(site) = site.filter(|_| !ids.is_empty()) else { return Ok(names) };
        let known = self.known(node, swarm, crawl, ids.clone()).await?;
        let unknown = ids.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(id, _)| id);
        let hexadecimal: BTreeSet<String> = unknown
            .filter_map(|name| match name {
                UrlName::Id(id) => Some(id.to_string()),
                UrlName::Url(_) => None,
            })
            .collect();
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        for some in hexadecimal.into_iter().collect::<Vec<String>>().chunks(MD5_AT_ONCE) {
            let list: Vec<String> = some.iter().map(|md5| format!("'{md5}'")).collect();
            let text = format!("SELECT md5, url FROM urls WHERE md5 IN ({}) LIMIT {}", list.join(","), list.len());
            let answered = self.look(node, swarm, &QueryText::Whole(text), &[site]).await.map_err(|why| why.message)?;
            let rows = answered.table.rows.len();
            for row in answered.table.rows {
                if let [Value::Text(md5), Value::Text(url)] = row.as_slice() {
                    found.insert(md5.clone(), url.clone());
                }
            }
            if let Some(why) = answered.missing.filter(|_| rows < some.len()) {
                return Err(why);
            }
        }
        for name in &mut names {
            if let UrlName::Id(id) = name
                && let Some(url) = found.get(&id.to_string())
            {
                *name = UrlName::Url(url.clone());
            }
        }
        Ok(names)
    }

    async fn known_of_some(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        names: Vec<UrlName>,
    ) -> Result<Vec<Option<Known>>, String> {
        let request = Request::Records(RecordsRequest::Of { crawl: crawl.to_owned(), names: names.clone() });
        let count = names.len();
        let others = swarm.nodes().into_iter().map(|peer| {
            let (swarm, request) = (Arc::clone(swarm), request.clone());
            async move {
                match ask_peer(&swarm, peer.peer, &request).await {
                    Ok(Answer::Records(RecordsAnswer::Of(found))) if found.len() == count => Ok(found),
                    Ok(other) => Err(format!("{} answered {other:?}", peer.peer)),
                    Err(error) => Err(format!("{}: {error}", peer.peer)),
                }
            }
        });
        let mut answers = vec![records_here(node, crawl.to_owned(), names).await];
        answers.extend(futures_util::future::join_all(others).await);
        let mut latest: Vec<Option<FoundRecord>> = vec![None; count];
        for found in self.enough(answers)? {
            for (mine, theirs) in latest.iter_mut().zip(found) {
                *mine = match (mine.take(), theirs) {
                    (Some(a), Some(b)) => Some(a.merge(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        let open = |found: FoundRecord| {
            let kept = found.copy.open().map_err(|error| error.to_string())?;
            Ok(Known { copy: found.copy, kept, inlinks: found.inlinks })
        };
        latest.into_iter().map(|found| found.map(open).transpose()).collect()
    }

    /// Changes records, and has them kept; says of each whether it is known, and whether it was changed. What is deleted can only be renewed.
    pub(super) async fn amend(
        &self,
        node: &Node,
        swarm: &Arc<Swarm>,
        crawl: &str,
        names: Vec<UrlName>,
        amendment: Amendment,
    ) -> Result<Vec<Option<bool>>, String> {
        let me = node_of(&self.me);
        let (mut changed, mut copies) = (Vec::new(), Vec::new());
        for known in self.known(node, swarm, crawl, names).await? {
            let Some(Known { copy, kept, .. }) = known else {
                changed.push(None);
                continue;
            };
            let deleted = kept.record.state.is_gone();
            if deleted && !matches!(amendment, Amendment::Renew | Amendment::Purge) {
                changed.push(None);
                continue;
            }
            let amended = kept.amended(amendment, me);
            changed.push(Some(amended.is_some()));
            if let Some(amended) = amended {
                copies.push(RecordCopy::new(copy.key, &amended).map_err(|error| error.to_string())?);
            }
        }
        for copies in copies.chunks(AMEND_RECORDS) {
            keep(node, copies).await?;
        }
        Ok(changed)
    }
}

async fn records_here(node: &Node, crawl: String, names: Vec<UrlName>) -> Result<Vec<Option<FoundRecord>>, String> {
    let found = node.ask(|reply| Job::Replica(ReplicaJob::Records { crawl, names, reply })).await;
    found.map_err(|error| error.to_string())
}

/// Has records kept, again and again while the node is busy: to write the same twice changes nothing.
pub(super) async fn keep(node: &Node, copies: &[RecordCopy]) -> Result<(), String> {
    let writing = async {
        for _ in 0..SUBMIT_TRIES {
            match node.amend(copies.to_vec()).await {
                Ok(()) => return Ok(()),
                Err(NotSubmitted::Busy | NotSubmitted::StartedAnew) => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
        Err("the node is too busy; try again later".to_owned())
    };
    timeout(SUBMIT_PATIENCE, writing).await.unwrap_or_else(|_| {
        Err("too few nodes answer for the change to be kept; see who is missing, then try again".to_owned())
    })
}
