//! Who may connect, and as what. The list comes from the configuration; an operator may add to it while the node runs.
//! Whoever misbehaves is kept out for a while, which doubles each time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use libp2p::PeerId;
use proto::id::NodeId;
use tokio::time::Instant;

use super::identity::node_of;
use super::refusal::Refusal;

/// How long a peer is kept out after its first misdeed, and at most.
const PENALTY_MIN: Duration = Duration::from_secs(5);
const PENALTY_MAX: Duration = Duration::from_secs(60);

/// After so long without another misdeed the first is forgotten.
const PENALTY_FORGOTTEN: Duration = Duration::from_secs(600);

/// Peers that are let in because they hold the swarm key, if that is enough.
const STRANGERS_MAX: usize = 256;

/// What a peer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Everything that nodes do with each other.
    Node,
    /// Control requests that change something.
    Operator,
    /// Control requests that only look.
    Viewer,
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Role::Node => "node",
            Role::Operator => "operator",
            Role::Viewer => "viewer",
        })
    }
}

/// Why a peer cannot be listed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RosterError {
    /// Two peers hash to one node.
    #[error("peers {0} and {1} have the same node id; give one of them a new identity")]
    SameNode(Box<PeerId>, Box<PeerId>),
    /// It is listed with another role.
    #[error("peer {0} is already listed as {1}")]
    OtherRole(PeerId, Role),
}

struct Penalty {
    until: Instant,
    time: Duration,
}

#[derive(Default)]
struct State {
    roles: BTreeMap<PeerId, Role>,
    nodes: BTreeMap<NodeId, PeerId>,
    penalties: BTreeMap<PeerId, Penalty>,
    strangers: usize,
}

/// The list.
pub(super) struct Roster {
    /// The role of whoever holds the swarm key and is not listed; `None` to refuse them.
    stranger: Option<Role>,
    state: RwLock<State>,
}

impl Roster {
    /// A list of `me` alone.
    pub(super) fn new(me: PeerId, stranger: Option<Role>) -> Roster {
        let nodes = BTreeMap::from([(node_of(&me), me)]);
        Roster { stranger, state: RwLock::new(State { nodes, ..State::default() }) }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a peer.
    pub(super) fn admit(&self, peer: PeerId, role: Role) -> Result<(), RosterError> {
        let mut state = self.write();
        if let Some(known) = state.roles.get(&peer).filter(|known| **known != role) {
            return Err(RosterError::OtherRole(peer, *known));
        }
        if role == Role::Node {
            match state.nodes.get(&node_of(&peer)) {
                Some(other) if *other != peer => return Err(RosterError::SameNode(Box::new(*other), Box::new(peer))),
                _ => state.nodes.insert(node_of(&peer), peer),
            };
        }
        state.roles.insert(peer, role);
        state.penalties.remove(&peer);
        Ok(())
    }

    /// Strikes a peer off the list.
    pub(super) fn expel(&self, peer: &PeerId) {
        let mut state = self.write();
        if state.roles.remove(peer) == Some(Role::Node) {
            state.nodes.remove(&node_of(peer));
        }
    }

    /// The role of a peer on the list.
    pub(super) fn role(&self, peer: &PeerId) -> Option<Role> {
        self.read().roles.get(peer).copied()
    }

    /// Whether a peer that has proved its identity may connect.
    pub(super) fn judge(&self, peer: &PeerId, now: Instant) -> Result<(), Refusal> {
        let state = self.read();
        if state.penalties.get(peer).is_some_and(|penalty| now < penalty.until) {
            return Err(Refusal::Penalty);
        }
        match state.roles.contains_key(peer) || (self.stranger.is_some() && state.strangers < STRANGERS_MAX) {
            true => Ok(()),
            false => Err(Refusal::Stranger),
        }
    }

    /// Lists a peer that the swarm key alone lets in. Returns its role, if it has one now.
    pub(super) fn welcome(&self, peer: PeerId) -> Option<Role> {
        if let Some(role) = self.role(&peer) {
            return Some(role);
        }
        let role = self.stranger?;
        self.admit(peer, role).ok()?;
        self.write().strangers += 1;
        Some(role)
    }

    /// Keeps a peer out for a while. Returns until when.
    pub(super) fn penalise(&self, peer: PeerId, now: Instant) -> Instant {
        let mut state = self.write();
        // Only peers that got in can be penalised, so that the list bounds this map too.
        let penalty = state.penalties.entry(peer).or_insert(Penalty { until: now, time: Duration::ZERO });
        if now > penalty.until + PENALTY_FORGOTTEN {
            penalty.time = Duration::ZERO;
        }
        penalty.time = (penalty.time * 2).clamp(PENALTY_MIN, PENALTY_MAX);
        penalty.until = now + penalty.time;
        penalty.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_who_is_listed_may_connect_and_misdeeds_cost_longer_each_time() {
        let (me, friend, stranger) = (PeerId::random(), PeerId::random(), PeerId::random());
        let roster = Roster::new(me, None);
        roster.admit(friend, Role::Node).unwrap();
        assert_eq!(roster.judge(&friend, Instant::now()), Ok(()));
        assert_eq!(roster.judge(&stranger, Instant::now()), Err(Refusal::Stranger));
        assert_eq!(roster.welcome(stranger), None);
        assert_eq!(roster.admit(friend, Role::Viewer), Err(RosterError::OtherRole(friend, Role::Node)));
        let mut waits = Vec::new();
        for _ in 0..6 {
            let now = Instant::now();
            let until = roster.penalise(friend, now);
            assert_eq!(roster.judge(&friend, now), Err(Refusal::Penalty));
            waits.push((until - now).as_secs());
            tokio::time::advance(until - now).await;
            assert_eq!(roster.judge(&friend, Instant::now()), Ok(()));
        }
        assert_eq!(waits, [5, 10, 20, 40, 60, 60]);
        tokio::time::advance(PENALTY_FORGOTTEN * 2).await;
        let now = Instant::now();
        assert_eq!(roster.penalise(friend, now) - now, PENALTY_MIN);
        roster.expel(&friend);
        tokio::time::advance(PENALTY_MAX).await;
        assert_eq!(roster.judge(&friend, Instant::now()), Err(Refusal::Stranger));
    }

    #[test]
    fn two_peers_with_one_node_id_are_a_mistake() {
        let roster = Roster::new(PeerId::random(), None);
        let (one, other) = (PeerId::random(), PeerId::random());
        roster.write().nodes.insert(node_of(&other), one); // no two such keys are known
        assert_eq!(roster.admit(other, Role::Node), Err(RosterError::SameNode(Box::new(one), Box::new(other))));
        assert_eq!(roster.admit(other, Role::Viewer), Ok(()), "who is no node has no node id");
    }

    #[tokio::test]
    async fn the_swarm_key_may_be_enough() {
        let roster = Roster::new(PeerId::random(), Some(Role::Node));
        let stranger = PeerId::random();
        assert_eq!(roster.judge(&stranger, Instant::now()), Ok(()));
        assert_eq!(roster.welcome(stranger), Some(Role::Node));
        assert_eq!(roster.role(&stranger), Some(Role::Node));
        for _ in 1..STRANGERS_MAX {
            assert!(roster.welcome(PeerId::random()).is_some());
        }
        assert_eq!(roster.judge(&PeerId::random(), Instant::now()), Err(Refusal::Stranger), "there is a bound");
        assert_eq!(roster.judge(&stranger, Instant::now()), Ok(()));
    }
}
