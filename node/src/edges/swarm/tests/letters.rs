//! Letters arrive, in bounds, and the urgent ones before the others.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use proto::cluster::message::Message;
use proto::id::NodeId;
use proto::wire::WIRE_VERSION;

use super::super::identity::Identity;
use super::super::metrics::Drop;
use super::super::refusal::Refusal;
use super::super::roster::Role;
use super::super::settings::Settings;
use super::super::{Swarm, SwarmError, SwarmMetrics};
use super::support::*;

#[tokio::test]
async fn three_nodes_that_know_one_address_each_all_talk_to_each_other() {
    let identities: Vec<Identity> = (0..3).map(|_| Identity::generate()).collect();
    let nowhere = |except: usize| -> Vec<_> {
        (0..3).filter(|n| *n != except).map(|n| peer(&identities[n], Role::Node, vec![])).collect()
    };
    let first = TestNode::start(settings(&identities[0], nowhere(0))).await;
    let second = {
        let mut peers = nowhere(1);
        peers[0] = first.as_peer();
        TestNode::start(settings(&identities[1], peers)).await
    };
    let third = {
        let mut peers = nowhere(2);
        peers[1] = second.as_peer();
        TestNode::start(settings(&identities[2], peers)).await
    };
    talk(&first, &second, 1).await;
    talk(&second, &third, 2).await;
    // First and third know no address of each other, and nobody tells them: identify speaks of oneself alone.
    assert!(!first.sees(&third) && !third.sees(&first));
    third.swarm.admit(first.as_peer()).await.unwrap();
    talk(&first, &third, 3).await;
    for node in [&first, &second, &third] {
        assert!(node.swarm.nodes().iter().all(|state| state.connected && state.version == Some(WIRE_VERSION)));
        assert_eq!(node.swarm.metrics().connected.get(), 2);
    }
}

#[tokio::test]
async fn thousands_of_letters_arrive_in_order() {
    let (one, other) = pair(|_| {}, None).await;
    let mut sent = 1;
    for _ in 0..20 {
        for _ in 0..500 {
            sent += 1;
            one.send(other.node(), data(sent));
        }
        // A machine that stands still for seconds lets letters grow old.
        let old = || one.swarm.metrics().drops("put_done", Drop::Stale);
        eventually("all letters are there", || other.inbox.count("put_done") as u64 + old() == sent).await;
    }
    let went = one.swarm.metrics().sent("put_done");
    assert_eq!(went + one.swarm.metrics().drops("put_done", Drop::Stale), sent);
    let numbers = other.inbox.numbers();
    assert!(numbers.is_sorted() && numbers.len() as u64 == went);
    assert!(one.swarm.metrics().bytes_out.get() > 0 && other.swarm.metrics().bytes_in.get() > 0);
}

/// Holds up whoever delivers data, until it is opened.
#[derive(Clone, Default)]
struct Dam(Arc<(Mutex<bool>, Condvar)>);

impl Dam {
    fn pass(&self) {
        let (open, changed) = &*self.0;
        drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_of_data_that_nobody_takes_does_not_delay_leases() {
    let (one, other) = (Identity::generate(), Identity::generate());
    let sender = TestNode::start(settings(&one, vec![peer(&other, Role::Node, vec![])])).await;
    let (dam, inbox) = (Dam::default(), Inbox::default());
    let mut blocked = doors(&inbox);
    let deliver = Arc::clone(&blocked.deliver);
    blocked.deliver = Arc::new({
        let dam = dam.clone();
        move |letter| {
            if letter.message.name() == "records" {
                // So that only this delivery stands still, and not the tasks that its thread has yet to run.
                tokio::task::block_in_place(|| dam.pass());
            }
            deliver(letter)
        }
    });
    let receiver = TestNode::start_with(settings(&other, vec![sender.as_peer()]), blocked, inbox).await;
    eventually("both are connected", || sender.sees(&receiver) && receiver.sees(&sender)).await;
    // The stream's window and the queue fill up; then the sender drops.
    let flood = || Message::Records { copies: vec![copy(50_000); 20] };
    let dropped = || sender.swarm.metrics().drops("records", Drop::Full);
    for _ in 0..10_000 {
        sender.send(receiver.node(), flood());
        if dropped() > 10 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(dropped() > 10, "a full queue drops");
    eventually("leases pass", || {
        (0..10).for_each(|counter| sender.send(receiver.node(), urgent(counter)));
        receiver.inbox.count("lease_request") >= 100
    })
    .await;
    assert_eq!(receiver.inbox.count("records"), 0, "all data is still held up");
    dam.open();
    eventually("data goes on", || receiver.inbox.count("records") > 0).await;
    assert_eq!(sender.swarm.metrics().drops("lease_request", Drop::Full), 0);
}

fn copy(bytes: usize) -> proto::cluster::copy::RecordCopy {
    use proto::cluster::copy::{Body, RecordCopy};
    let url = proto::url::CanonicalUrl::parse("http://a.example/", &Default::default()).unwrap();
    let key = proto::key::UrlKey::new("DEFAULT", &url);
    RecordCopy { key, progress: proto::record::Progress::new(NodeId(1)), body: Body(vec![7; bytes].into()) }
}

#[tokio::test]
async fn what_cannot_be_sent_is_dropped_and_counted() {
    let (one, absent) = (Identity::generate(), Identity::generate());
    let node = TestNode::start(settings(&one, vec![peer(&absent, Role::Node, vec![])])).await;
    for number in 0..20_000 {
        node.send(absent.node(), data(number));
    }
    let metrics = node.swarm.metrics();
    assert_eq!(metrics.drops("put_done", Drop::Full), 20_000 - 8_192, "the queue is bounded");
    node.send(NodeId(42), data(1));
    assert_eq!(metrics.drops("put_done", Drop::Unknown), 1);
}

#[tokio::test]
async fn letters_without_room_at_the_receiver_are_counted_there() {
    let (one, other) = (Identity::generate(), Identity::generate());
    let sender = TestNode::start(settings(&one, vec![peer(&other, Role::Node, vec![])])).await;
    let inbox = Inbox::default();
    let mut full = doors(&inbox);
    full.deliver = Arc::new(|_| false);
    let receiver = TestNode::start_with(settings(&other, vec![sender.as_peer()]), full, inbox).await;
    eventually("connected", || sender.sees(&receiver)).await;
    eventually("counted", || {
        sender.send(receiver.node(), data(1));
        receiver.swarm.metrics().drops("put_done", Drop::NoRoom) > 0
    })
    .await;
    assert_eq!(receiver.inbox.len(), 0);
}

#[tokio::test]
async fn a_node_that_comes_back_is_found_again() {
    let (one, other) = pair(|_| {}, None).await;
    let (identity, address) = (one.identity.clone(), one.address());
    one.swarm.stop().await;
    eventually("it is missed", || !other.swarm.nodes()[0].connected).await;
    let mut again = settings(&identity, vec![peer(&other.identity, Role::Node, vec![])]);
    again.listen = vec![address];
    let one = TestNode::start(again).await;
    talk(&one, &other, 2).await;
}

#[tokio::test]
async fn who_is_expelled_is_parted_from_and_stays_outside() {
    let (one, other) = pair(|_| {}, None).await;
    one.swarm.expel(other.peer()).await;
    eventually("parted", || !other.sees(&one)).await;
    eventually("knocked in vain", || one.refusals(Refusal::Stranger) >= 2).await;
    assert!(one.swarm.nodes().is_empty());
    one.swarm.admit(peer(&other.identity, Role::Node, vec![])).await.unwrap();
    talk(&one, &other, 2).await;
}

#[tokio::test]
async fn a_dead_connection_is_noticed_and_replaced() {
    // A relay that stops passing anything on, without closing anything: a partition.
    let short = |settings: &mut Settings| {
        settings.times.ping = Duration::from_millis(200);
        settings.times.pong = Duration::from_secs(3);
        settings.times.handshake = Duration::from_secs(5); // a dial into the void ends soon
    };
    let (one, other) = (Identity::generate(), Identity::generate());
    let mut first = settings(&one, vec![peer(&other, Role::Node, vec![])]);
    short(&mut first);
    let first = TestNode::start(first).await;
    let relay = Relay::start(first.port()).await;
    let mut second = settings(&other, vec![peer(&one, Role::Node, vec![relay.address()])]);
    second.listen = vec![];
    short(&mut second);
    let second = TestNode::start(second).await;
    talk(&first, &second, 1).await;
    relay.cut(true);
    // They may find each other again at once, past the relay: the first told the second where it listens.
    let noticed = |node: &TestNode| node.swarm.metrics().disconnected.get() > 0;
    eventually("both noticed", || noticed(&first) && noticed(&second)).await;
    relay.cut(false);
    talk(&first, &second, 2).await;
}

/// Passes bytes on to a port, or swallows them.
struct Relay {
    port: u16,
    cut: Arc<std::sync::atomic::AtomicBool>,
}

impl Relay {
    async fn start(to: u16) -> Relay {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut: Arc<std::sync::atomic::AtomicBool> = Arc::default();
        let shared = Arc::clone(&cut);
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let Ok(to) = tokio::net::TcpStream::connect(("127.0.0.1", to)).await else { continue };
                let (from, to) = (from.into_split(), to.into_split());
                tokio::spawn(Relay::pass(from.0, to.1, Arc::clone(&shared)));
                tokio::spawn(Relay::pass(to.0, from.1, Arc::clone(&shared)));
            }
        });
        Relay { port, cut }
    }

    async fn pass(
        mut from: tokio::net::tcp::OwnedReadHalf,
        mut to: tokio::net::tcp::OwnedWriteHalf,
        cut: Arc<std::sync::atomic::AtomicBool>,
    ) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut bytes = vec![0; 4_096];
        let mut swallowed = false;
        loop {
            let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
            swallowed |= cut.load(std::sync::atomic::Ordering::Relaxed);
            // What was swallowed once is never resumed: the rest would be garbage.
            if !swallowed && to.write_all(&bytes[..read]).await.is_err() {
                return;
            }
        }
    }

    fn address(&self) -> libp2p::Multiaddr {
        format!("/ip4/127.0.0.1/tcp/{}", self.port).parse().unwrap()
    }

    fn cut(&self, cut: bool) {
        self.cut.store(cut, std::sync::atomic::Ordering::Relaxed);
    }
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_named() {
    let one = TestNode::start(settings(&Identity::generate(), vec![])).await;
    for wrong in [one.address(), "/ip4/192.0.2.1/tcp/9".parse().unwrap(), "/udp/9".parse().unwrap()] {
        let mut taken = settings(&Identity::generate(), vec![]);
        taken.listen = vec![wrong.clone()];
        let started = Swarm::start(taken, doors(&Inbox::default()), SwarmMetrics::default()).await;
        match started {
            Err(SwarmError::Listen { address, .. }) => assert_eq!(address, wrong),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{wrong} was taken"),
        }
    }
}
