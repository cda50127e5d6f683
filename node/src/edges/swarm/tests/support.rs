//! Swarms to try things with.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream;
use libp2p::{Multiaddr, PeerId};
use proto::cluster::lease::Seq;
use proto::cluster::message::{Letter, Message, Op};
use proto::id::{ClusterId, NodeId};

use super::super::identity::Identity;
use super::super::key::SwarmKey;
use super::super::metrics::SwarmMetrics;
use super::super::refusal::Refusal;
use super::super::roster::Role;
use super::super::settings::{Doors, Peer, Settings, Times};
use super::super::{Network, Swarm};

pub(super) const CLUSTER: ClusterId = ClusterId(0x7e57);

pub(super) fn key() -> SwarmKey {
    SwarmKey::new([7; 32])
}

pub(super) fn loopback() -> Multiaddr {
    "/ip4/127.0.0.1/tcp/0".parse().unwrap()
}

/// Letters that came in.
#[derive(Clone, Default)]
pub(super) struct Inbox(Arc<Mutex<Vec<Letter>>>);

impl Inbox {
    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(super) fn has(&self, from: NodeId, message: &Message) -> bool {
        self.0.lock().unwrap().iter().any(|letter| letter.from == from && letter.message == *message)
    }

    /// Numbers of the writes that were acknowledged, in the order they came in.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let number = |letter: &Letter| match letter.message {
            Message::PutDone { op } => Some(op.number),
            _ => None,
        };
        self.0.lock().unwrap().iter().filter_map(number).collect()
    }

    pub(super) fn count(&self, kind: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|letter| letter.message.name() == kind).count()
    }
}

/// A node that keeps its letters and echoes requests.
pub(super) struct TestNode {
    pub(super) swarm: Swarm,
    pub(super) inbox: Inbox,
    pub(super) identity: Identity,
}

pub(super) fn doors(inbox: &Inbox) -> Doors {
    let inbox = inbox.clone();
    Doors {
        deliver: Arc::new(move |letter| {
            inbox.0.lock().unwrap().push(letter);
            true
        }),
        control: Arc::new(|caller, request| {
            Box::pin(async move { [caller.role.to_string().as_bytes(), b" ", &request].concat() })
        }),
        follow: Arc::new(|_, request| Box::pin(stream::iter((0..3u8).map(move |n| [&request[..], &[n]].concat())))),
        bulk: None,
    }
}

impl TestNode {
    pub(super) async fn start(settings: Settings) -> TestNode {
        let inbox = Inbox::default();
        TestNode::start_with(settings, doors(&inbox), inbox).await
    }

    pub(super) async fn start_with(settings: Settings, doors: Doors, inbox: Inbox) -> TestNode {
        let identity = settings.identity.clone();
        let swarm = Swarm::start(settings, doors, SwarmMetrics::default()).await.unwrap();
        TestNode { swarm, inbox, identity }
    }

    pub(super) fn node(&self) -> NodeId {
        self.identity.node()
    }

    pub(super) fn peer(&self) -> PeerId {
        self.identity.peer()
    }

    pub(super) fn address(&self) -> Multiaddr {
        self.swarm.addresses()[0].clone()
    }

    pub(super) fn port(&self) -> u16 {
        let address = self.address();
        match address.iter().last().unwrap() {
            libp2p::multiaddr::Protocol::Tcp(port) => port,
            other => panic!("{other}"),
        }
    }

    pub(super) fn send(&self, to: NodeId, message: Message) {
        self.swarm.send(to, Letter { cluster: CLUSTER.0, from: self.node(), boot: 1, clock: 1, message });
    }

    /// This node as a peer of another.
    pub(super) fn as_peer(&self) -> Peer {
        peer(&self.identity, Role::Node, vec![self.address()])
    }

    pub(super) fn refusals(&self, why: Refusal) -> u64 {
        self.swarm.metrics().refusals(why)
    }

    pub(super) fn sees(&self, other: &TestNode) -> bool {
        self.swarm.nodes().iter().any(|state| state.peer == other.peer() && state.connected)
    }
}

pub(super) fn peer(identity: &Identity, role: Role, addresses: Vec<Multiaddr>) -> Peer {
    Peer { peer: identity.peer(), role, addresses }
}

/// Times that no machine is too busy for.
fn patient() -> Times {
    let long = Duration::from_secs(120);
    Times { handshake: long, hello: long, frame: long, write: long, ping: Duration::from_secs(5), pong: long }
}

/// Settings of a node of the test cluster.
pub(super) fn settings(identity: &Identity, peers: Vec<Peer>) -> Settings {
    let mut settings = Settings::new(identity.clone(), key(), CLUSTER);
    settings.listen = vec![loopback()];
    settings.peers = peers;
    settings.times = patient();
    settings
}

pub(super) fn urgent(counter: u64) -> Message {
    Message::LeaseRequest { seq: Seq { boot: 1, counter }, slots: Default::default() }
}

pub(super) fn data(number: u64) -> Message {
    Message::PutDone { op: Op { boot: 1, number } }
}

/// Waits until something holds.
pub(super) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("did not happen in two minutes: {what}");
}

/// Two nodes that know each other, with room on the roster of the first for a third.
pub(super) async fn pair(change: impl Fn(&mut Settings), guest: Option<Peer>) -> (TestNode, TestNode) {
    let (one, other) = (Identity::generate(), Identity::generate());
    let mut first = settings(&one, vec![peer(&other, Role::Node, vec![])]);
    first.peers.extend(guest);
    change(&mut first);
    let first = TestNode::start(first).await;
    let mut second = settings(&other, vec![first.as_peer()]);
    change(&mut second);
    let second = TestNode::start(second).await;
    talk(&first, &second, 1).await;
    (first, second)
}

/// Has both say something of both kinds to each other, and waits until it has arrived.
pub(super) async fn talk(one: &TestNode, other: &TestNode, number: u64) {
    for (from, to) in [(one, other), (other, one)] {
        for message in [urgent(number), data(number)] {
            for attempt in 0.. {
                // Letters may be lost, as long as connections come and go.
                from.send(to.node(), message.clone());
                let mut tries = 0;
                while !to.inbox.has(from.node(), &message) && tries < 100 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    tries += 1;
                }
                if to.inbox.has(from.node(), &message) {
                    break;
                }
                assert!(attempt < 120, "{message:?} did not arrive in two minutes");
            }
        }
    }
}
