//! Answers about the contents of pages, from whichever node has them.

use std::sync::Arc;

use proto::control::content::{ContentAnswer, ContentRequest, NodeVersions, PART_BYTES_MAX, Version};
use proto::control::{Answer, Request};
use proto::key::UrlKey;
use proto::site::note;

use super::notes::Notes;
use super::{Shared, ask_peer, ask_peer_for};
use crate::edges::disk::{ContentJob, Job};
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::edges::warc::WarcArchive;
use crate::node::Node;

/// How long another node may take to read a part.
const READ_PATIENCE: tokio::time::Duration = tokio::time::Duration::from_secs(20);

impl Shared {
    pub(super) async fn content(&self, node: &Node, swarm: &Arc<Swarm>, mut request: ContentRequest) -> Answer {
        let (ContentRequest::Find { crawl, url }
        | ContentRequest::FindHere { crawl, url }
        | ContentRequest::Begins { crawl, url }
        | ContentRequest::Read { crawl, url, .. }) = &mut request;
        // Who names a site means its URLs as they are called since it was emptied last.
        if !crawl.is_empty()
            && node.crawls().get(crawl).is_none()
            && let Ok(current) = self.crawl_of(node, crawl)
        {
            *crawl = current;
        }
        let key = match self.key(crawl, url) {
            Ok(key) => key,
            Err(error) => return Answer::Refused(error),
        };
        match request {
            ContentRequest::FindHere { .. } => {
                Answer::Content(ContentAnswer::Found(vec![self.versions_here(node, key).await]))
            }
            ContentRequest::Begins { crawl, .. } => {
                let is_of_site = node.crawls().get(&crawl).is_some_and(|crawl| crawl.site.is_some());
                let id = key.id().to_string();
                let notes = match is_of_site {
                    true => self.notes(node, swarm, &note::prefix_of(&crawl, &id)).await,
                    false => Ok(Notes::new()), // nobody cleans URLs of a crawl
                };
                notes.map_or_else(Answer::Refused, |notes| {
                    Answer::Content(ContentAnswer::Begins(note::begins(notes.values(), &id)))
                })
            }
            ContentRequest::Find { crawl, url } => {
                let mut found = vec![self.versions_here(node, key).await];
                let request = Request::Content(ContentRequest::FindHere { crawl, url });
                let others = swarm.nodes().into_iter().map(|peer| {
                    let (swarm, request) = (Arc::clone(swarm), request.clone());
                    async move {
                        let versions = match ask_peer(&swarm, peer.peer, &request).await {
                            Ok(Answer::Content(ContentAnswer::Found(mut one))) if one.len() == 1 => {
                                one.remove(0).versions
                            }
                            Ok(other) => Err(format!("answered {other:?}")),
                            Err(error) => Err(error),
                        };
                        NodeVersions { node: peer.node.0, versions }
                    }
                });
                found.extend(futures_util::future::join_all(others).await);
                found.sort_by_key(|one| one.node);
                Answer::Content(ContentAnswer::Found(found))
            }
            ContentRequest::Read { node: holder, record_id, from, .. } if holder == node_of(&self.me).0 => {
                let part = self.part(node, key, record_id, from).await;
                part.map_or_else(Answer::Refused, Answer::Content)
            }
            ContentRequest::Read { node: holder, .. } => {
                let Some(peer) = swarm.nodes().into_iter().find(|peer| peer.node.0 == holder) else {
                    return Answer::Refused(format!("no node is named {holder:016x}; `ctl nodes` shows them"));
                };
                let asked = ask_peer_for(READ_PATIENCE, swarm, peer.peer, &Request::Content(request)).await;
                asked.unwrap_or_else(Answer::Refused)
            }
        }
    }

    async fn versions_here(&self, node: &Node, key: UrlKey) -> NodeVersions {
        let found = node.ask(|reply| Job::Content(ContentJob::Versions(key, reply))).await;
        let versions = found.map_err(|error| error.to_string()).map(|found| {
            let version = |(offer, _): (proto::cluster::contents::Offer, _)| Version {
                round: offer.round,
                unix_ms: offer.unix_ms,
                record_id: offer.record_id,
                payload_digest: offer.payload_digest,
                revisit: offer.revisit,
                bytes: offer.bytes,
            };
            found.into_iter().map(version).collect()
        });
        NodeVersions { node: node_of(&self.me).0, versions }
    }

    async fn part(&self, node: &Node, key: UrlKey, record_id: [u8; 16], from: u32) -> Result<ContentAnswer, String> {
        let found = node.ask(|reply| Job::Content(ContentJob::Versions(key, reply))).await;
        let found = found.map_err(|error| error.to_string())?;
        let mut found = found.into_iter().filter(|(offer, _)| offer.record_id == record_id);
        let (_, position) = found.next().ok_or("this version is not here")?;
        let dir = self.files.data.join("warc");
        if from > position.length {
            return Err("it is shorter than that".to_owned());
        }
        let reading =
            tokio::task::spawn_blocking(move || WarcArchive::new(&dir).part_at(position, from, PART_BYTES_MAX));
        let bytes = reading.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        Ok(ContentAnswer::Part { bytes, total: position.length })
    }
}
