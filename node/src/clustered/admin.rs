//! Answers to operators' orders: here, by another node, or by all of them.

use std::sync::Arc;

use libp2p::PeerId;
use proto::control::admin::{ActorFigures, DigestReport, Glance, Order, Part, Said, To, Trouble};
use proto::control::{Answer, Request};
use proto::id::{NodeId, Slot};
use tokio::time::Duration;
use tracing::{info, warn};

use super::{Shared, ask_peer_for};
use crate::edges::network::Network as _;
use crate::edges::swarm::Swarm;
use crate::edges::swarm::identity::node_of;
use crate::node::Node;

/// How long another node is waited for before its part of an answer is left out.
const PEER_PATIENCE: Duration = Duration::from_secs(5);
/// A node that was told to stop has so long to send its answer.
const STOP_AFTER: Duration = Duration::from_millis(500);
/// What a node is made of besides actors, in the order of their start.
const DISK: &str = "disk";
const NETWORK: &str = "network";

impl Shared {
    /// Passes an order on to whom it is for, and gathers what they say.
    pub(super) async fn admin(&self, node: &Arc<Node>, swarm: &Arc<Swarm>, to: To, order: Order) -> Answer {
        if let Some(defect) = order.defect() {
            return Answer::Refused(defect);
        }
        let peers: Vec<PeerId> = swarm.nodes().into_iter().map(|peer| peer.peer).collect();
        // Who is to be forgotten is not asked what it thinks of it.
        let forgotten = match &order {
            Order::Forget { peer } => self.find(peer, &peers).ok(),
            _ => None,
        };
        let peers: Vec<PeerId> = peers.into_iter().filter(|peer| Some(*peer) != forgotten).collect();
        let (here, others) = match to {
            To::Here => (true, Vec::new()),
            To::All => (true, peers),
            To::One(name) => match self.find(&name, &peers) {
                Ok(peer) if peer == self.me => (true, Vec::new()),
                Ok(peer) => (false, vec![peer]),
                Err(error) => return Answer::Refused(error),
            },
        };
        let asked = others.into_iter().map(|peer| {
            let (swarm, order) = (Arc::clone(swarm), order.clone());
            async move {
                let request = Request::Admin { to: To::Here, order };
                let said = match ask_peer_for(PEER_PATIENCE, &swarm, peer, &request).await {
                    Ok(Answer::Admin(mut parts)) if parts.len() == 1 => parts.remove(0).said,
                    Ok(Answer::Refused(why)) => Err(Trouble::Refused(why)),
                    Ok(other) => Err(Trouble::Missing(format!("answered {other:?}"))),
                    Err(error) => Err(Trouble::Missing(error)),
                };
                Part { node: node_of(&peer).0, peer: peer.to_string(), said }
            }
        });
        let mut parts = futures_util::future::join_all(asked).await;
        if here {
            // The last of all: what stops every node stops this one when the others have heard of it.
            let said = self.obey(node, swarm, order).await.map_err(Trouble::Refused);
            parts.push(Part { node: node_of(&self.me).0, peer: self.me.to_string(), said });
        }
        parts.sort_by_key(|part| part.node);
        Answer::Admin(parts)
    }

    /// Finds a node by its peer id, or by its name or the beginning of it.
    fn find(&self, name: &str, peers: &[PeerId]) -> Result<PeerId, String> {
        let all: Vec<PeerId> = peers.iter().copied().chain([self.me]).collect();
        let is_meant = |peer: &PeerId| {
            let number = format!("{:016x}", node_of(peer).0);
            peer.to_string() == name || (!name.is_empty() && number.starts_with(&name.to_ascii_lowercase()))
        };
        let meant: Vec<PeerId> = all.iter().copied().filter(is_meant).collect();
        match meant[..] {
            [peer] => Ok(peer),
            [] => Err(format!("no node is named {name:?}; `ctl nodes` shows them")),
            _ => Err(format!("{name:?} begins the names of {} nodes; give more of it", meant.len())),
        }
    }

    async fn obey(&self, node: &Arc<Node>, swarm: &Arc<Swarm>, order: Order) -> Result<Said, String> {
        match order {
            Order::Stat { classes } => self.stat(node, swarm, &classes).await.map(Said::Stat),
            Order::Get { names } => node.tuning().get(&names).map(Said::Settings),
            Order::Set { values } => {
                let set = node.tuning().set(&values)?;
                node.retune();
                info!(?values, "settings changed by an operator");
                Ok(Said::Settings(set))
            }
            Order::Stop { classes } => self.stop(node, &classes),
            Order::Forget { peer } => self.forget(node, swarm, &peer).await,
            Order::Digests { slots } => {
                let gone = |_| "the node starts anew; ask again".to_owned();
                let found = node.digests(slots.into_iter().map(Slot).collect()).await.map_err(gone)?;
                let repaired = node.metrics().cluster.repair_merges.get();
                Ok(Said::Digests(DigestReport { digests: found.digests, keeps: found.keeps, repaired }))
            }
            Order::Compare { slots } => {
                let count = slots.len();
                let gone = |_| "the node starts anew; ask again".to_owned();
                node.compare(slots.into_iter().map(Slot).collect()).await.map_err(gone)?;
                Ok(Said::Done(format!("compares {count} slots")))
            }
            Order::Backup { folder, keys } => self.backups.begin(node, &self.files, folder, keys).map(Said::Backup),
            Order::BackupState => Ok(Said::Backup(self.backups.state())),
            Order::Glance => Ok(Said::Glance(Box::new(self.glance(node).await))),
        }
    }

    /// Stops the node, after its answer is on its way.
    fn stop(&self, node: &Node, classes: &[String]) -> Result<Said, String> {
        if !classes.is_empty() {
            check_classes(&classes_of(node), classes)?;
            return Err(format!(
                "{} cannot be stopped alone: an actor that ends is replaced, because the others need it. Without a name the whole node \
                 stops; `ctl set fetch.concurrency=0` leaves it running and hands out nothing",
                classes.join(", ")
            ));
        }
        warn!("an operator stops this node");
        let stopping = self.stopping.clone();
        tokio::spawn(async move {
            tokio::time::sleep(STOP_AFTER).await;
            stopping.send_replace(true);
        });
        Ok(Said::Done(
            "stops: what is in flight is settled, then its actors end in reverse order of their start".to_owned(),
        ))
    }

    async fn forget(&self, node: &Node, swarm: &Swarm, peer: &str) -> Result<Said, String> {
        let peers: Vec<PeerId> = swarm.nodes().into_iter().map(|peer| peer.peer).collect();
        let gone: NodeId = match self.find(peer, &peers) {
            Ok(found) => node_of(&found),
            // It need not be in the configuration of a node that was started without it.
            Err(error) => node_of(&peer.parse::<PeerId>().map_err(|_| error)?),
        };
        node.forget(gone).await?;
        Ok(Said::Done(format!(
            "forgets {:016x}; its slots get new owners when the ring has been stable for a while",
            gone.0
        )))
    }

    async fn stat(&self, node: &Node, swarm: &Swarm, classes: &[String]) -> Result<Vec<ActorFigures>, String> {
        let known = classes_of(node);
        check_classes(&known, classes)?;
        let wanted = |name: &str| classes.is_empty() || classes.iter().any(|class| is_of(name, class));
        let mut figures = Vec::new();
        for name in known.iter().filter(|name| wanted(name)) {
            let mut one = ActorFigures { name: name.clone(), ..ActorFigures::default() };
            if let Some((_, desk)) = node.desks().iter().find(|(actor, _)| actor == name) {
                (one.waiting, one.capacity, one.handled) = (desk.waiting(), desk.capacity(), desk.handled());
                (one.refused, one.lost, one.restarts) = (desk.refused(), desk.lost(), desk.restarts());
            }
            let counters = self.counters(node, swarm, name, &mut one).await;
            one.counters = counters.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
            figures.push(one);
        }
        Ok(figures)
    }

    /// What a part of the node counts itself.
    async fn counters(
        &self,
        node: &Node,
        swarm: &Swarm,
        name: &str,
        figures: &mut ActorFigures,
    ) -> Vec<(&'static str, u64)> {
        let metrics = node.metrics();
        match name {
            DISK => {
                let (waiting, capacity) = node.disk().waiting();
                (figures.waiting, figures.capacity) = (waiting as u64, capacity as u64);
                Vec::new()
            }
            NETWORK => {
                let (shown, connected) = (swarm.metrics(), swarm.nodes().iter().filter(|peer| peer.connected).count());
                vec![
                    ("nodes_connected", connected as u64),
                    ("oldest_wire_version", swarm.oldest_spoken().into()),
                    ("letter_bytes_in", shown.bytes_in.get()),
                    ("letter_bytes_out", shown.bytes_out.get()),
                    ("letters_dropped", shown.drops_total()),
                    ("refused", shown.refusals_total()),
                    ("control_requests", shown.control_requests.get()),
                ]
            }
            "copier" => {
                let cluster = &metrics.cluster;
                vec![
                    ("pages_lacking_a_copy", u64::try_from(cluster.contents_lacking.get()).unwrap_or(0)),
                    ("pages_copied", cluster.contents_copied.get()),
                    ("pages_copied_too_late", cluster.contents_late.get()),
                ]
            }
            "storage" => match node.state().await {
                Ok(state) => vec![
                    ("known_urls", state.counters.known),
                    ("ready_urls", state.places.ready),
                    ("waiting_urls", state.places.retries + state.places.recrawls),
                    ("content_bytes", state.counters.bytes),
                ],
                Err(_) => Vec::new(),
            },
            "fetcher" => vec![
                ("fetches", metrics.fetches.get()),
                ("fetching", metrics.fetching.get().max(0) as u64),
                ("robots_fetches", metrics.robots_fetches.get()),
                ("wire_bytes", metrics.wire_bytes.get()),
            ],
            "router" => vec![("dropped_messages", metrics.dropped.get())],
            "frontier" => match node.standing().await {
                Some(standing) => vec![
                    ("queues", standing.core.queues as u64),
                    ("hosts_active", standing.core.hosts_active as u64),
                    ("hosts_busy", standing.core.hosts_busy as u64),
                    ("flights", standing.core.flights as u64),
                    ("lost_fetches", metrics.lost.get()),
                ],
                None => Vec::new(),
            },
            "coordinator" => {
                let (view, counted) = (node.cluster().await.unwrap_or_default(), &metrics.cluster);
                vec![
                    ("life", view.life.into()),
                    ("members", view.members.len() as u64),
                    ("alive", view.alive.len() as u64),
                    ("owned", view.owned as u64),
                    ("held", view.held.len() as u64),
                    ("leases_acquired", counted.leases_acquired.get()),
                    ("leases_lost", counted.leases_lost.get()),
                    ("batches_sent", counted.batches_sent.get()),
                    ("batches_refused", counted.batches_refused.get()),
                    ("urls_put_back", counted.urls_put_back.get()),
                    ("repair_differences", counted.repair_differences.get()),
                    ("repair_merges", counted.repair_merges.get()),
                    ("pages_kept", counted.pages_kept.get()),
                    ("failed_fetches", counted.failures.get()),
                ]
            }
            _ => Vec::new(),
        }
    }

    async fn glance(&self, node: &Node) -> Glance {
        let report = self.report(node).await;
        let (standing, state) = (node.standing().await, node.state().await.unwrap_or_default());
        let metrics = node.metrics();
        let letters_dropped = self.swarm.get().map_or(0, |swarm| swarm.metrics().drops_total());
        Glance {
            pages: metrics.cluster.pages_kept.get(),
            wire_bytes: metrics.wire_bytes.get(),
            ready: state.places.ready,
            waiting: state.places.retries + state.places.recrawls,
            flights: standing.as_ref().map_or(0, |standing| standing.core.flights as u64),
            hosts: standing.as_ref().map_or(0, |standing| standing.core.hosts_active as u64),
            leases_lost: metrics.cluster.leases_lost.get(),
            failures: metrics.cluster.failures.get(),
            lost: metrics.lost.get() + metrics.dropped.get() + letters_dropped,
            restarts: node.desks().iter().map(|(_, desk)| desk.restarts()).sum(),
            report,
        }
    }
}

/// The parts of a node that have figures, in the order of their start.
fn classes_of(node: &Node) -> Vec<String> {
    let actors = node.desks().iter().map(|(name, _)| (*name).to_owned());
    [DISK.to_owned()].into_iter().chain(actors).chain([NETWORK.to_owned()]).collect()
}

/// Whether `parser` means this one too.
fn is_of(name: &str, class: &str) -> bool {
    name == class || (class == "parser" && name.starts_with("parser-"))
}

fn check_classes(known: &[String], asked: &[String]) -> Result<(), String> {
    let unknown = asked.iter().find(|class| !known.iter().any(|name| is_of(name, class)));
    unknown.map_or(Ok(()), |class| {
        Err(format!("there is no actor {class:?}; there are {}, and all for every one of them", known.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_actor_is_told_which_there_are() {
        let known: Vec<String> = ["disk", "storage", "parser", "parser-1"].map(str::to_owned).to_vec();
        let check = |class: &str| check_classes(&known, &[class.to_owned()]);
        assert!(check("parser").is_ok() && check("parser-1").is_ok() && check("disk").is_ok());
        let why = check("crawler").unwrap_err();
        assert!(why.contains("storage") && why.contains("crawler"), "{why}");
        assert!(is_of("parser-1", "parser") && !is_of("parser", "parser-1"));
    }
}
