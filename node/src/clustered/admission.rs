//! Nodes that operators admit while the cluster runs: definitions that every node has, kept in step with who is let in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libp2p::{Multiaddr, PeerId};
use proto::cluster::admission::{ADDRESSES_MAX, Admitted};
use proto::cluster::registry::{Definition, NotDefined, Version};
use proto::control::{Answer, node_name};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::Shared;
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::edges::swarm::roster::Role;
use crate::edges::swarm::settings::Peer;
use crate::messages::Define;
use crate::node::Node;

/// What is known of who was admitted, and by which version of its definition.
#[derive(Default)]
pub(super) struct Admissions {
    known: Mutex<BTreeMap<PeerId, (Version, bool)>>,
}

/// Somebody is let in from now on, with these addresses, or no longer.
pub(super) type Change = (PeerId, Option<Vec<Multiaddr>>);

impl Admissions {
    fn known(&self) -> MutexGuard<'_, BTreeMap<PeerId, (Version, bool)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes definitions in, and passes on what they change.
    pub(super) fn heed(&self, definitions: &[Definition], changes: &mpsc::UnboundedSender<Change>) {
        for definition in definitions {
            let Some((peer, said)) = Admitted::read(definition) else { continue };
            let Ok(peer) = peer.parse::<PeerId>() else { continue };
            let newer = self.known().insert(peer, (definition.version, said.is_some()))
                != Some((definition.version, said.is_some()));
            if newer {
                let addresses = said.map(|said| said.addresses.iter().filter_map(|text| text.parse().ok()).collect());
                let _ = changes.send((peer, addresses)); // bounded by the number of definitions; who stops needs none
            }
        }
    }
}

/// Lets in, and no longer, who is said to be; never who stands in the settings.
pub(super) async fn follow(
    swarm: Arc<Swarm>,
    me: PeerId,
    listed: Vec<PeerId>,
    mut changes: mpsc::UnboundedReceiver<Change>,
) {
    while let Some((peer, addresses)) = changes.recv().await {
        if peer == me || listed.contains(&peer) {
            continue;
        }
        match addresses {
            Some(addresses) => {
                let admitted = swarm.admit(Peer { peer, role: Role::Node, addresses }).await;
                match admitted {
                    Ok(()) => info!(%peer, "admitted by an operator"),
                    Err(error) => warn!(%peer, %error, "admitted by an operator, but not let in"),
                }
            }
            None => {
                info!(%peer, "no longer admitted, says an operator");
                swarm.expel(peer).await;
            }
        }
    }
}

impl Shared {
    /// Admits a node, or takes that back; answers when enough nodes have it on disk.
    pub(super) async fn admit(
        &self,
        node: &Node,
        swarm: &Swarm,
        peer: &str,
        addresses: Vec<String>,
        revoke: bool,
    ) -> Result<Answer, String> {
        let example = "`orbweaver keygen` prints one, like 12D3KooW…";
        let peer: PeerId = peer.parse().map_err(|_| format!("{peer:?} is no peer id; {example}"))?;
        if self.listed.contains(&peer) {
            return Err(format!("{peer} stands in the settings of this node (cluster.peers); it is changed there"));
        }
        if addresses.len() > ADDRESSES_MAX {
            return Err(format!("at most {ADDRESSES_MAX} addresses"));
        }
        for address in &addresses {
            address.parse::<Multiaddr>().map_err(|error| format!("{address:?} is no address ({error})"))?;
        }
        let expects = self.admissions.known().get(&peer).copied();
        if revoke && !expects.is_some_and(|(_, admitted)| admitted) {
            return Err(format!("{peer} was not admitted"));
        }
        let body = Admitted { addresses }.encode().map_err(|error| error.to_string())?;
        let define = Define {
            key: Admitted::key(&peer.to_string()),
            expects: expects.map(|(version, _)| version),
            body: (!revoke).then_some(body),
        };
        let defined = node.define(define).await.map_err(|why| match why {
            NotDefined::Changed => "somebody else changes it at the same time; look, then ask again".to_owned(),
            other => other.to_string(),
        })?;
        // Who is admitted now need not have heard of it; who is not, need not either.
        let others = swarm.nodes().into_iter().filter(|other| other.peer != peer).map(|other| other.node);
        let missing = others.chain([node_of(&self.me)]).filter(|node| !defined.by.contains(node));
        Ok(Answer::Admitted {
            peer: peer.to_string(),
            admitted: !revoke,
            nodes: defined.by.iter().copied().map(node_name).collect(),
            missing: missing.map(node_name).collect(),
        })
    }
}
