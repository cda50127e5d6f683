//! Four nodes on virtual time, under delay, loss, resets and a partition. They send letters, ask control requests and push content.
//! Judged: nothing arrives twice or is changed on its way, nothing passes a partition, afterwards everybody hears everybody again and
//! gets answers, and the same seed is the same run, one arrival after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{AsyncReadExt as _, AsyncWriteExt as _};
use libp2p::identity::Keypair;
use proto::cluster::lease::Seq;
use proto::cluster::message::{Letter, Message, Op};
use proto::id::{ClusterId, NodeId};
use tokio::time::Instant;
use virtual_swarm::network::Network;
use virtual_swarm::swarm::Swarm;
use virtual_swarm::swarm::identity::{Identity, node_of};
use virtual_swarm::swarm::key::SwarmKey;
use virtual_swarm::swarm::metrics::SwarmMetrics;
use virtual_swarm::swarm::roster::Role;
use virtual_swarm::swarm::settings::{Doors, Peer, Settings};
use virtual_swarm::world::{Weather, World};

const NODES: u64 = 4;
const CLUSTER: ClusterId = ClusterId(7);
/// Each node says something to each other so often.
const EVERY: Duration = Duration::from_millis(100);
/// The first two are cut off from the others from then on, for so long.
const CUT_AT: Duration = Duration::from_secs(20);
const CUT_FOR: Duration = Duration::from_secs(30);
/// Faults end; then a while is given for everybody to find each other.
const CALM_AT: Duration = Duration::from_secs(90);
const FOUND_AT: Duration = Duration::from_secs(110);
const END_AT: Duration = Duration::from_secs(120);

fn weather() -> Weather {
    Weather {
        delay: (Duration::from_millis(1), Duration::from_millis(200)),
        loss: 50,
        retransmission: Duration::from_millis(700),
        resets: 200,
    }
}

/// What can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Urgent,
    Data,
    Request,
    Answer,
    Content,
}

/// Content that is pushed: several chunks of the network, so that it may be torn.
const CONTENT_BYTES: usize = 20_000;

/// Something that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    at: Duration,
    from: u64,
    to: u64,
    kind: Kind,
    number: u64,
}

/// Everything that arrived, in order.
#[derive(Clone)]
struct Log {
    start: Instant,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Log {
    fn arrived(&self, from: u64, to: u64, kind: Kind, number: u64) {
        let arrival = Arrival { at: self.start.elapsed(), from, to, kind, number };
        self.arrivals.lock().unwrap().push(arrival);
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Who asks whom, and pushes content to whom, in a tick: each pair has its turn.
fn pair(number: u64) -> (u64, u64) {
    let (from, step) = (number % NODES, number / NODES % (NODES - 1) + 1);
    (from, (from + step) % NODES)
}

struct Run {
    arrivals: Vec<Arrival>,
    /// Number of the first letter that was sent at or after a time.
    sent: Vec<(Duration, u64)>,
    disconnects: u64,
}

fn identity(node: u64) -> Identity {
    let mut seed = [9; 32];
    seed[..8].copy_from_slice(&node.to_le_bytes());
    Identity::from_key(Keypair::ed25519_from_bytes(seed).unwrap())
}

/// What letter `number` says: it can be told from every other.
fn message(kind: Kind, number: u64) -> Message {
    match kind {
        Kind::Urgent => Message::LeaseRequest { seq: Seq { boot: 3, counter: number }, slots: Default::default() },
        _ => Message::PutDone { op: Op { boot: 3, number } },
    }
}

/// Asks, and pushes content, however long that takes.
fn ask_and_push(swarm: &Arc<Swarm>, from: u64, to: u64, number: u64, log: &Log) {
    let (peer, log) = (identity(to).peer(), log.clone());
    let asking = Arc::clone(swarm);
    tokio::spawn(async move {
        if let Ok(answer) = asking.ask(peer, &number.to_le_bytes()).await {
            assert_eq!(number_of(&answer), number, "it is the answer to another request");
            log.arrived(to, from, Kind::Answer, number);
        }
    });
    let pushing = Arc::clone(swarm);
    tokio::spawn(async move {
        let Ok(mut stream) = pushing.open_bulk(peer).await else { return };
        let content = number.to_le_bytes().repeat(CONTENT_BYTES / 8);
        // What breaks on the way is the receiver's to see.
        if stream.write_all(&content).await.is_ok() {
            let _ = stream.close().await;
        }
    });
}

fn run(seed: u64, base: u64) -> Run {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(play(seed, base))
}

async fn play(seed: u64, base: u64) -> Run {
    let start = Instant::now();
    let world = World::new(seed, base, weather());
    let log = Log { start, arrivals: Arc::default() };
    let names: BTreeMap<NodeId, u64> = (0..NODES).map(|node| (identity(node).node(), node)).collect();
    let mut swarms = Vec::new();
    for to in 0..NODES {
        let mut settings = Settings::new(identity(to), SwarmKey::new([5; 32]), CLUSTER);
        settings.listen = vec![world.address(to)];
        settings.seed = seed ^ to;
        let peer = |node| Peer { peer: identity(node).peer(), role: Role::Node, addresses: vec![world.address(node)] };
        settings.peers = (0..NODES).map(peer).collect();
        let mut doors = Doors::closed();
        let (letters, known) = (log.clone(), names.clone());
        doors.deliver = Arc::new(move |letter: Letter| {
            let (kind, number) = match &letter.message {
                Message::LeaseRequest { seq, .. } => (Kind::Urgent, seq.counter),
                Message::PutDone { op } => (Kind::Data, op.number),
                other => panic!("nobody said {other:?}"),
            };
            assert_eq!(letter.message, message(kind, number));
            letters.arrived(known[&letter.from], to, kind, number);
            true
        });
        let (requests, known) = (log.clone(), names.clone());
        doors.control = Arc::new(move |caller, request| {
            requests.arrived(known[&node_of(&caller.peer)], to, Kind::Request, number_of(&request));
            Box::pin(async move { request })
        });
        let (contents, known) = (log.clone(), names.clone());
        doors.bulk = Some(Arc::new(move |peer, mut stream| {
            let (log, from) = (contents.clone(), known[&node_of(&peer)]);
            Box::pin(async move {
                let mut content = Vec::new();
                let whole = stream.read_to_end(&mut content).await.is_ok() && content.len() == CONTENT_BYTES;
                if whole {
                    let number = number_of(&content);
                    assert!(content == number.to_le_bytes().repeat(CONTENT_BYTES / 8), "changed on its way");
                    log.arrived(from, to, Kind::Content, number);
                }
            })
        }));
        let transport = world.transport(to, &settings).unwrap();
        swarms.push(Arc::new(Swarm::start_on(transport, settings, doors, SwarmMetrics::default()).await.unwrap()));
    }
    let mut sent = Vec::new();
    let mut number = 0;
    while start.elapsed() < END_AT {
        let now = start.elapsed();
        for one in 0..2 {
            for other in 2..NODES {
                world.cut(one, other, (CUT_AT..CUT_AT + CUT_FOR).contains(&now));
            }
        }
        if now >= CALM_AT {
            world.calm();
        }
        sent.push((now, number));
        for from in 0..NODES {
            for to in (0..NODES).filter(|to| *to != from) {
                for kind in [Kind::Urgent, Kind::Data] {
                    let (cluster, from_node) = (CLUSTER.0, identity(from).node());
                    let letter = Letter { cluster, from: from_node, boot: 1, clock: 0, message: message(kind, number) };
                    swarms[from as usize].send(identity(to).node(), letter);
                }
            }
        }
        let (from, to) = pair(number);
        ask_and_push(&swarms[from as usize], from, to, number, &log);
        number += 1;
        tokio::time::sleep(EVERY).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let disconnects = swarms.iter().map(|swarm| swarm.metrics().disconnected.get()).sum();
    for swarm in swarms {
        swarm.close().await;
    }
    let arrivals = log.arrivals.lock().unwrap().clone();
    Run { arrivals, sent, disconnects }
}

fn first_after(run: &Run, time: Duration) -> u64 {
    run.sent.iter().find(|(at, _)| *at >= time).map(|(_, number)| *number).unwrap()
}

fn judge(run: &Run) {
    let mut seen = BTreeMap::new();
    for arrival in &run.arrivals {
        let key = (arrival.from, arrival.to, arrival.kind, arrival.number);
        if let Some(before) = seen.insert(key, arrival.at) {
            panic!("{arrival:?} arrived at {before:?} already");
        }
    }
    let sides = |arrival: &Arrival| (arrival.from < 2) != (arrival.to < 2);
    let in_cut = |arrival: &&Arrival| arrival.at > CUT_AT + EVERY && arrival.at < CUT_AT + CUT_FOR;
    let crossed: Vec<&Arrival> = run.arrivals.iter().filter(in_cut).filter(|arrival| sides(arrival)).collect();
    assert!(crossed.is_empty(), "passed a partition: {:?}", &crossed[..crossed.len().min(3)]);
    assert!(run.arrivals.iter().filter(in_cut).any(|arrival| !sides(arrival)), "both sides go on among themselves");
    let (first, last) = (first_after(run, FOUND_AT), run.sent.last().unwrap().1);
    for number in first..=last {
        for from in 0..NODES {
            for to in (0..NODES).filter(|to| *to != from) {
                for kind in [Kind::Urgent, Kind::Data] {
                    assert!(
                        seen.contains_key(&(from, to, kind, number)),
                        "{number} from {from} to {to} is lost in calm"
                    );
                }
            }
        }
        let (from, to) = pair(number);
        for (from, to, kind) in [(from, to, Kind::Request), (to, from, Kind::Answer), (from, to, Kind::Content)] {
            assert!(
                seen.contains_key(&(from, to, kind, number)),
                "{kind:?} {number} from {from} to {to} is lost in calm"
            );
        }
    }
    assert!(run.disconnects > 10, "the weather was too good to prove anything: {} disconnects", run.disconnects);
    let all = (last + 1) * NODES * (NODES - 1) * 2;
    let count = |kinds: &[Kind]| run.arrivals.iter().filter(|arrival| kinds.contains(&arrival.kind)).count();
    let share = count(&[Kind::Urgent, Kind::Data]) as f64 / all as f64;
    assert!(share > 0.4, "most letters arrive even so: {share}");
    for kind in [Kind::Request, Kind::Answer, Kind::Content] {
        assert!(count(&[kind]) as u64 > last / 4, "{kind:?}: {} of {last}", count(&[kind]));
    }
    assert!(count(&[Kind::Answer]) <= count(&[Kind::Request]), "nobody answers what was not asked");
}

#[test]
fn whatever_happens_letters_arrive_once_and_everybody_finds_each_other_again() {
    for seed in 1..=4 {
        let run = run(seed, 1_000_000 + 1_000 * seed);
        judge(&run);
        println!("seed {seed}: {} things arrived, {} disconnects", run.arrivals.len(), run.disconnects);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let first = run(11, 2_000_000);
    for again in 1..=2 {
        let other = run(11, 2_000_000 + 1_000 * again);
        let difference = first.arrivals.iter().zip(&other.arrivals).position(|(one, other)| one != other);
        let parted = difference.map(|at| (at, first.arrivals[at], other.arrivals[at]));
        assert_eq!(parted, None, "the runs part");
        assert_eq!(first.arrivals.len(), other.arrivals.len());
    }
    let other_seed = run(12, 2_900_000);
    assert_ne!(first.arrivals, other_seed.arrivals);
}
