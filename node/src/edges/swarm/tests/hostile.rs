//! Whoever does not belong here or does not behave is refused or cut off, counted, logged once, and the others do not notice.
//! In each test two honest nodes talk before, during and after it, over one and the same connection.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::AsyncWriteExt as _;
use libp2p::swarm::Stream;
use proto::cluster::message::{Letter, Message};
use proto::id::ClusterId;
use proto::wire::WIRE_VERSION;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::super::codec::{LETTER_BYTES_MAX, Sealed};
use super::super::frame;
use super::super::gate::PENDING_PER_ADDRESS_MAX;
use super::super::hello::{Hello, Versions};
use super::super::identity::Identity;
use super::super::key::SwarmKey;
use super::super::refusal::Refusal;
use super::super::roster::Role;
use super::super::settings::{Pace, Settings};
use super::super::streams::Purpose;
use super::support::*;

/// Every reason that there is.
const REASONS: [Refusal; 17] = [
    Refusal::Handshake,
    Refusal::HalfOpen,
    Refusal::Stranger,
    Refusal::Impostor,
    Refusal::Cluster,
    Refusal::Version,
    Refusal::Garbage,
    Refusal::Oversize,
    Refusal::Slow,
    Refusal::Silent,
    Refusal::Forged,
    Refusal::Role,
    Refusal::Connections,
    Refusal::Streams,
    Refusal::Flood,
    Refusal::Memory,
    Refusal::Penalty,
];

/// Two honest nodes. `guest` is on the roster of the first.
struct Scene {
    target: TestNode,
    friend: TestNode,
    guest: Identity,
    said: std::cell::Cell<u64>,
}

impl Scene {
    async fn new() -> Scene {
        Scene::with(|_| {}).await
    }

    async fn with(change: impl Fn(&mut Settings)) -> Scene {
        let guest = Identity::generate();
        let (target, friend) = pair(change, Some(peer(&guest, Role::Node, vec![]))).await;
        Scene { target, friend, guest, said: std::cell::Cell::new(1) }
    }

    /// Settings of somebody who knows where the target is, and listens nowhere.
    fn rogue(&self, identity: &Identity) -> Settings {
        let mut rogue = settings(identity, vec![self.target.as_peer()]);
        rogue.listen = vec![];
        rogue
    }

    /// The guest, connected.
    async fn guest(&self) -> TestNode {
        let guest = TestNode::start(self.rogue(&self.guest)).await;
        eventually("the guest is there", || guest.sees(&self.target) && self.target.sees(&guest)).await;
        guest
    }

    /// A stream for letters that the guest opened.
    async fn stream(&self, guest: &TestNode) -> Stream {
        guest.swarm.shared.open(self.target.peer(), Purpose::Letters).await.unwrap()
    }

    /// A stream for letters on which everything was agreed.
    async fn agreed_stream(&self, guest: &TestNode) -> Stream {
        let mut stream = self.stream(guest).await;
        let hello = Hello { cluster: CLUSTER, versions: Versions::default() };
        assert_eq!(hello.ask(&mut stream, Duration::from_secs(60)).await.unwrap(), WIRE_VERSION);
        stream
    }

    fn port(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.target.port()))
    }

    /// The honest two still talk, and never stopped; and the log was told of each reason once.
    async fn undisturbed(&self) {
        self.said.set(self.said.get() + 1);
        talk(&self.target, &self.friend, self.said.get()).await;
        assert_eq!(self.friend.swarm.metrics().disconnected.get(), 0, "their connection broke");
        let reasons: Vec<&str> =
            REASONS.into_iter().filter(|why| self.target.refusals(*why) > 0).map(Refusal::name).collect();
        let lines = self.target.swarm.metrics().complaints.get();
        assert!(lines <= reasons.len() as u64, "{lines} lines in the log of one guest, for {reasons:?}");
    }

    /// The target refused, said so once, and nobody else noticed.
    async fn refused(&self, why: Refusal, times: u64) {
        eventually(why.name(), || self.target.refusals(why) >= times).await;
        assert!(self.target.swarm.metrics().complaints.get() >= 1, "it is logged");
        self.undisturbed().await;
    }
}

#[tokio::test]
async fn another_swarm_key() {
    let soon = Duration::from_secs(3);
    let scene = Scene::with(|settings| settings.times.handshake = soon).await;
    let mut wrong = scene.rogue(&scene.guest);
    (wrong.key, wrong.times.handshake) = (SwarmKey::new([8; 32]), soon);
    let rogue = TestNode::start(wrong).await;
    // What the wrong key makes of the first bytes is garbage, or looks like the beginning of something long that never comes.
    let refused = || scene.target.refusals(Refusal::Handshake) + scene.target.refusals(Refusal::HalfOpen);
    eventually("the wrong key is refused", || refused() >= 2).await;
    scene.undisturbed().await;
    assert!(!rogue.sees(&scene.target));
    assert!(scene.target.swarm.metrics().complaints.get() <= 2, "it is logged once for each reason");
}

#[tokio::test]
async fn an_unknown_identity() {
    let scene = Scene::new().await;
    let rogue = TestNode::start(scene.rogue(&Identity::generate())).await;
    scene.refused(Refusal::Stranger, 3).await;
    rogue.send(scene.target.node(), data(7));
    assert_eq!(scene.target.swarm.metrics().complaints.get(), 1, "it is logged once");
    assert!(!scene.target.inbox.has(rogue.node(), &data(7)));
}

#[tokio::test]
async fn another_cluster() {
    let scene = Scene::new().await;
    let mut other = scene.rogue(&scene.guest);
    other.cluster = ClusterId(99);
    let rogue = TestNode::start(other).await;
    scene.refused(Refusal::Cluster, 1).await;
    assert_eq!(rogue.inbox.len(), 0);
    // The same on a stream: a peer that knows our protocol's name and gives another cluster in its hello.
    let scene = Scene::new().await;
    let guest = scene.guest().await;
    let mut stream = scene.stream(&guest).await;
    let hello = Hello { cluster: ClusterId(99), versions: Versions::default() };
    assert!(hello.ask(&mut stream, Duration::from_secs(60)).await.is_err());
    scene.refused(Refusal::Cluster, 1).await;
}

#[tokio::test]
async fn only_newer_versions() {
    let scene = Scene::new().await;
    let mut newer = scene.rogue(&scene.guest);
    newer.versions = Versions { oldest: WIRE_VERSION + 1, newest: WIRE_VERSION + 2 };
    let rogue = TestNode::start(newer).await;
    scene.refused(Refusal::Version, 1).await;
    eventually("it knows too", || rogue.refusals(Refusal::Version) >= 1).await;
    rogue.send(scene.target.node(), data(7));
    scene.undisturbed().await;
    assert!(!scene.target.inbox.has(rogue.node(), &data(7)));
}

#[tokio::test]
async fn garbage_instead_of_a_handshake() {
    let scene = Scene::new().await;
    for _ in 0..5 {
        let mut socket = TcpStream::connect(scene.port()).await.unwrap();
        let _ = socket.write_all(&b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".repeat(100)).await;
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await; // it is closed on us
    }
    // Deciphered, garbage may also look like the beginning of something long, which never comes.
    let refused = || scene.target.refusals(Refusal::Handshake) + scene.target.refusals(Refusal::HalfOpen);
    eventually("all are refused", || refused() >= 5).await;
    scene.undisturbed().await;
    assert!(scene.target.swarm.metrics().complaints.get() <= 2, "it is logged once for each reason");
}

#[tokio::test]
async fn a_connection_that_says_nothing() {
    let scene = Scene::with(|settings| settings.times.handshake = Duration::from_secs(3)).await;
    let silent = TcpStream::connect(scene.port()).await.unwrap();
    scene.refused(Refusal::HalfOpen, 1).await;
    drop(silent);
}

#[tokio::test]
async fn a_handshake_that_drips() {
    let scene = Scene::with(|settings| settings.times.handshake = Duration::from_secs(3)).await;
    let mut slow = TcpStream::connect(scene.port()).await.unwrap();
    let dripping = tokio::spawn(async move {
        while slow.write_all(&[7]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    scene.refused(Refusal::HalfOpen, 1).await;
    dripping.await.unwrap();
}

#[tokio::test]
async fn a_flood_of_connections() {
    let scene = Scene::new().await;
    // From another address than ours, as floods do.
    let mut held = Vec::new();
    for _ in 0..PENDING_PER_ADDRESS_MAX * 4 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
        held.push(socket.connect(scene.port()).await.unwrap());
    }
    eventually("the flood is held off", || scene.target.refusals(Refusal::Connections) >= 3 * 16).await;
    scene.undisturbed().await;
    // And there is room for whoever comes from elsewhere.
    let guest = TestNode::start(scene.rogue(&scene.guest)).await;
    talk(&guest, &scene.target, 50).await;
    drop(held);
}

/// Whether it could be said.
async fn send_frame(stream: &mut Stream, content: &[u8]) -> bool {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, |out| {
        out.extend_from_slice(content);
        Ok::<(), ()>(())
    })
    .unwrap();
    stream.write_all(&bytes).await.is_ok() && stream.flush().await.is_ok()
}

#[tokio::test]
async fn garbage_on_a_stream() {
    let scene = Scene::new().await;
    let guest = scene.guest().await;
    let mut stream = scene.agreed_stream(&guest).await;
    send_frame(&mut stream, b"what is this?").await;
    scene.refused(Refusal::Garbage, 1).await;
    eventually("it is cut off", || guest.swarm.metrics().disconnected.get() > 0).await;
    let _ = guest.swarm.reach(scene.target.address()).await;
    eventually("kept out for a while", || scene.target.refusals(Refusal::Penalty) >= 1).await;
    eventually("and then let in again", || guest.sees(&scene.target)).await;
}

#[tokio::test]
async fn garbage_instead_of_a_hello() {
    let scene = Scene::new().await;
    let guest = scene.guest().await;
    let mut stream = scene.stream(&guest).await;
    let _ = stream.write_all(&[0xff; 4_096]).await;
    let _ = stream.flush().await;
    scene.refused(Refusal::Garbage, 1).await;
}

#[tokio::test]
async fn a_frame_that_is_too_large() {
    let scene = Scene::new().await;
    let guest = scene.guest().await;
    let mut stream = scene.agreed_stream(&guest).await;
    let length = u32::try_from(LETTER_BYTES_MAX + 1).unwrap();
    let _ = stream.write_all(&length.to_le_bytes()).await;
    let _ = stream.flush().await;
    scene.refused(Refusal::Oversize, 1).await;
}

#[tokio::test]
async fn a_stream_that_says_nothing() {
    let scene = Scene::with(|settings| settings.times.hello = Duration::from_secs(3)).await;
    let guest = scene.guest().await;
    let stream = scene.stream(&guest).await;
    scene.refused(Refusal::Silent, 1).await;
    drop(stream);
}

#[tokio::test]
async fn a_letter_that_drips() {
    let scene = Scene::with(|settings| settings.times.frame = Duration::from_secs(3)).await;
    let guest = scene.guest().await;
    let mut stream = scene.agreed_stream(&guest).await;
    let dripping = tokio::spawn(async move {
        let _ = stream.write_all(&1_000u32.to_le_bytes()).await;
        while stream.write_all(&[1]).await.is_ok() && stream.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    scene.refused(Refusal::Slow, 1).await;
    dripping.await.unwrap();
}

#[tokio::test]
async fn a_letter_in_anothers_name() {
    let scene = Scene::new().await;
    let guest = scene.guest().await;
    let mut stream = scene.agreed_stream(&guest).await;
    let message = urgent(999);
    let forged = Letter { cluster: CLUSTER.0, from: scene.friend.node(), boot: 1, clock: 1, message: message.clone() };
    let mut content = Vec::new();
    Sealed::new(&forged).unwrap().append_to(WIRE_VERSION, CLUSTER, &mut content);
    send_frame(&mut stream, &content).await;
    scene.refused(Refusal::Forged, 1).await;
    assert!(!scene.target.inbox.has(scene.friend.node(), &message));
}

#[tokio::test]
async fn a_letter_that_breaks_a_bound() {
    let scene = Scene::new().await;
    let guest = scene.guest().await;
    let mut stream = scene.agreed_stream(&guest).await;
    let message = Message::Swim(vec![0; 100_000]);
    let large = Letter { cluster: CLUSTER.0, from: guest.node(), boot: 1, clock: 1, message };
    let mut content = Vec::new();
    Sealed::new(&large).unwrap().append_to(WIRE_VERSION, CLUSTER, &mut content);
    send_frame(&mut stream, &content).await;
    scene.refused(Refusal::Garbage, 1).await;
    assert_eq!(scene.target.inbox.count("swim"), 0);
}

#[tokio::test]
async fn a_flood_of_streams() {
    let scene = Scene::new().await;
    let guest = scene.guest().await;
    let mut held = Vec::new();
    // As many as it gets: it is cut off before it has opened them all.
    for _ in 0..1_000 {
        match guest.swarm.shared.open(scene.target.peer(), Purpose::Control).await {
            Ok(stream) => held.push(stream),
            Err(_) => break,
        }
    }
    scene.refused(Refusal::Streams, 10).await;
    eventually("it is cut off", || guest.swarm.metrics().disconnected.get() > 0).await;
    eventually("it is kept out", || scene.target.refusals(Refusal::Penalty) > 0).await;
    assert!(scene.target.swarm.metrics().complaints.get() <= 2, "it is logged once for each reason");
}

#[tokio::test]
async fn a_flood_of_letters() {
    // So few that every machine can say more, and so many that the honest two do not come near.
    let pace = Pace { letters: 200, patience: Duration::from_secs(2), ..Pace::default() };
    let scene = Scene::with(|settings| settings.pace = pace).await;
    let guest = scene.guest().await;
    let mut stream = scene.agreed_stream(&guest).await;
    let letter = Letter { cluster: CLUSTER.0, from: guest.node(), boot: 1, clock: 1, message: data(7) };
    let mut content = Vec::new();
    Sealed::new(&letter).unwrap().append_to(WIRE_VERSION, CLUSTER, &mut content);
    let flood = tokio::spawn(async move {
        let mut said = 0;
        // By hand: a swarm of our own drops what is not taken before it is sent. It ends when the stream is cut off.
        while send_frame(&mut stream, &content).await {
            said += 1;
        }
        said
    });
    let shown = scene.target.swarm.metrics();
    eventually("the flood is held back", || shown.throttled.get() >= 1).await;
    assert_eq!(scene.target.refusals(Refusal::Flood), 1, "it is counted when it begins, and not with each letter");
    assert_eq!(shown.complaints.get(), 1, "it is logged");
    while !flood.is_finished() {
        scene.undisturbed().await; // meanwhile
    }
    scene.refused(Refusal::Flood, 2).await;
    let said = flood.await.unwrap();
    assert!(said >= u64::from(pace.letters), "{said}");
    // What was read is the burst, and what the pace lets through until its patience is over and the cut has been made.
    let read = scene.target.inbox.count("put_done") as u64;
    assert!(read > u64::from(pace.letters), "{read}");
    eventually("it is kept out", || {
        guest.swarm.metrics().disconnected.get() > 0 && scene.target.refusals(Refusal::Penalty) > 0
    })
    .await;
    scene.undisturbed().await;
}

#[tokio::test]
async fn a_node_without_memory_takes_no_connections() {
    let scene = Scene::new().await;
    // It may have no memory at all, and so takes nobody in, and dials nobody.
    let poor = Identity::generate();
    let mut starved = settings(&poor, vec![scene.target.as_peer()]);
    starved.limits.memory_percent_max = 0;
    let starved = TestNode::start(starved).await;
    scene.target.swarm.admit(starved.as_peer()).await.unwrap();
    eventually("it refuses again and again", || starved.refusals(Refusal::Memory) >= 3).await;
    assert_eq!(starved.swarm.metrics().complaints.get(), 1, "it is logged once");
    assert!(!starved.sees(&scene.target) && !scene.target.sees(&starved));
    scene.undisturbed().await;
}

#[tokio::test]
async fn another_peer_at_a_known_address() {
    let scene = Scene::new().await;
    let absent = Identity::generate();
    // The configuration says that `absent` is where the friend is.
    let wrong = peer(&absent, Role::Node, vec![scene.friend.address()]);
    scene.target.swarm.admit(wrong).await.unwrap();
    scene.refused(Refusal::Impostor, 2).await;
    assert_eq!(scene.target.swarm.metrics().complaints.get(), 1);
}

#[tokio::test]
async fn a_viewer_that_wants_to_be_a_node() {
    let viewer = Identity::generate();
    let (target, friend) = pair(|_| {}, Some(peer(&viewer, Role::Viewer, vec![]))).await;
    let mut ambitious = settings(&viewer, vec![target.as_peer()]);
    ambitious.listen = vec![];
    let ambitious = TestNode::start(ambitious).await;
    ambitious.send(target.node(), data(7));
    eventually("refused", || target.refusals(Refusal::Role) >= 1).await;
    assert!(!target.inbox.has(ambitious.node(), &data(7)));
    talk(&target, &friend, 2).await;
}

#[tokio::test]
async fn a_node_that_is_on_its_own_list() {
    let one = Identity::generate();
    let itself = peer(&one, Role::Node, vec![loopback()]);
    let node = TestNode::start(settings(&one, vec![itself])).await;
    assert!(node.swarm.nodes().is_empty());
}
