//! Three coordinators on a network that delivers everything, over disks that are maps: the ordinary life of a URL. Everything that can
//! go wrong is the simulator's business.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::super::copy::tests::kept;
use super::super::copy::{RecordCopy, merged};
use super::super::message::Stage;
use super::super::mutant::Planted;
use super::super::repair::Changed;
use super::*;
use crate::batch::{Discovered, Entry, EntryKind, Pick};
use crate::crawl::outcome::Ending;
use crate::crawl::retry::{Failure, HostVerdict};
use crate::key::{DEFAULT_CRAWL, Order, QueueKey, UrlKey};
use crate::record::{Progress, Status};
use crate::url::{CanonicalUrl, UrlRules};

struct Node {
    core: Coordinator,
    disk: BTreeMap<UrlKey, RecordCopy>,
    served: BTreeSet<Slot>,
    told: Vec<String>,
    runs: Vec<(super::super::propagate::RunId, Micros)>,
}

struct Cluster {
    nodes: BTreeMap<NodeId, Node>,
    letters: VecDeque<(NodeId, Letter)>,
    now: Micros,
    acknowledged: BTreeSet<u64>,
    sights: Vec<(NodeId, Sight)>,
    /// Lives that are over, by what their nodes were told.
    outdated: BTreeMap<NodeId, u32>,
    /// Most bulk letters that waited at once, and the bytes of all.
    bulk_waits_max: usize,
    bulk_bytes: usize,
}

fn url(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text, &UrlRules::default()).unwrap()
}

fn rules(me: u64, boot: u32) -> ClusterRules {
    let peers = (0..3).map(|node| (NodeId(node), 1)).collect();
    let voters = (0..3).map(NodeId).collect();
    let mut rules = ClusterRules::new(7, NodeId(me), boot, peers, voters);
    rules.slots = [Slot::of_domain("a.example"), Slot::of_domain("b.example")].into_iter().collect();
    rules.lease.duration = 6 * SECOND;
    rules.fetch_timeout = 2 * SECOND;
    rules
}

fn node(now: Micros, rules: ClusterRules) -> Node {
    let rng = ChaCha8Rng::seed_from_u64(rules.me.0);
    let core = Coordinator::new(now, rules, Digests::default(), Rings::default(), rng);
    Node { core, disk: BTreeMap::new(), served: BTreeSet::new(), told: Vec::new(), runs: Vec::new() }
}

impl Cluster {
    fn new() -> Cluster {
        let nodes = (0..3).map(|number| (NodeId(number), node(0, rules(number, 1)))).collect();
        let mut cluster = Cluster::of(nodes);
        cluster.run(0);
        cluster
    }

    fn of(nodes: BTreeMap<NodeId, Node>) -> Cluster {
        Cluster {
            nodes,
            letters: VecDeque::new(),
            now: 0,
            acknowledged: BTreeSet::new(),
            sights: Vec::new(),
            outdated: BTreeMap::new(),
            bulk_waits_max: 0,
            bulk_bytes: 0,
        }
    }

    fn step(&mut self, id: NodeId, input: Input) {
        let mut effects = Vec::new();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.core.step(self.now, input, &mut effects);
        for effect in effects {
            self.perform(id, effect);
        }
    }

    fn perform(&mut self, id: NodeId, effect: Effect) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        match effect {
            Effect::Send { to, letter } => {
                self.letters.push_back((to, letter));
                let waits = self.letters.iter().filter(|(_, letter)| letter.message.is_bulk()).count();
                self.bulk_waits_max = self.bulk_waits_max.max(waits);
            }
            Effect::Store { op, copies } => {
                let mut changed = Vec::new();
                for copy in copies {
                    let old = node.disk.get(&copy.key);
                    let new = merged(old, copy, Planted::default());
                    changed.push(Changed::new(&new.key, old.map(RecordCopy::hash), Some(new.hash())));
                    node.disk.insert(new.key.clone(), new);
                }
                self.step(id, Input::Stored { op, changed });
            }
            Effect::Read { read, slot, ranges, after, limit } => {
                let wanted = |copy: &&RecordCopy| {
                    copy.slot() == slot && ranges.as_ref().is_none_or(|some| some.contains(&copy.key.id().0[0]))
                };
                let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
                let mut rest = node.disk.range((begin, Bound::Unbounded)).map(|(_, copy)| copy).filter(wanted);
                let copies: Vec<RecordCopy> = rest.by_ref().take(limit).cloned().collect();
                let next = rest.next().and(copies.last()).map(|copy| copy.key.clone());
                self.step(id, Input::Read { read, copies, next });
            }
            Effect::DropSlot { slot } => {
                node.disk.retain(|key, _| key.slot() != slot);
                self.step(id, Input::Dropped { slot });
            }
            Effect::Admit { admit, crawl, urls, .. } => {
                let copy = |found: &Discovered| {
                    let kept = kept(found.url.as_str(), Progress::new(id));
                    RecordCopy::new(UrlKey::new(&crawl, &found.url), &kept).unwrap()
                };
                let copies = urls.iter().map(copy).collect();
                self.step(id, Input::Admitted { admit, copies });
            }
            Effect::Fetch { run, until, .. } => node.runs.push((run, until)),
            Effect::Settle { pick, ending, stage } => {
                let key = UrlKey::new(DEFAULT_CRAWL, &pick.entry.url);
                let status = match (stage, &ending) {
                    (Stage::Crawled, _) => Status::Crawled,
                    (_, Ending::Failed(Failure::Lost, ..)) => Status::New,
                    _ => Status::Processed,
                };
                let attempt = pick.entry.progress.attempt + 1;
                let progress = Progress { status, attempt, node: id, ..pick.entry.progress };
                let copy = RecordCopy::new(key, &kept(pick.entry.url.as_str(), progress)).unwrap();
                let (flight, page) = (pick.flight, status == Status::Processed);
                self.step(id, Input::Settlement { flight, stage, copy: Some(copy), page });
            }
            Effect::Frontier(input) => {
                match &input {
                    frontier::Input::Served { slot } => drop(node.served.insert(*slot)),
                    frontier::Input::Unleased { slot } => {
                        node.served.remove(slot);
                        let slot = *slot;
                        self.step(id, Input::Idle { slot });
                    }
                    _ => {}
                }
                let text = format!("{input:?}");
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.told.push(text);
                }
            }
            Effect::Acknowledge { ticket } => drop(self.acknowledged.insert(ticket)),
            Effect::Saw(sight) => self.sights.push((id, sight)),
            Effect::StoreDefinitions { op, .. } => self.step(id, Input::DefinitionsStored { op }),
            Effect::Defined { ticket, .. } => drop(self.acknowledged.insert(ticket)),
            Effect::Outdated { boot } => drop(self.outdated.insert(id, boot)),
            Effect::Refuse { .. } | Effect::Left => {}
            Effect::Redefined { .. } | Effect::NotDefined { .. } => {}
        }
    }

    fn run(&mut self, until: Micros) {
        loop {
            while let Some((to, letter)) = self.letters.pop_front() {
                if let Message::Drawn { copies, .. } | Message::Records { copies } = &letter.message {
                    self.bulk_bytes += copies.iter().map(RecordCopy::bytes).sum::<usize>();
                }
                self.step(to, Input::Received(letter));
            }
            let wake = self.nodes.values().map(|node| node.core.next_wake()).min().unwrap_or(Micros::MAX);
            if wake > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(wake) + 1;
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.step(id, Input::Tick);
            }
        }
    }

    fn holder(&self, slot: Slot) -> NodeId {
        let holders: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.core.holds(self.now, slot)).map(|(id, _)| *id).collect();
        assert_eq!(holders.len(), 1, "{holders:?}");
        holders[0]
    }

    fn submit(&mut self, ticket: u64, text: &str) {
        let urls = vec![Discovered { url: url(text), kind: EntryKind::Page, depth: 0, priority: 1, redirects: 0 }];
        self.step(NodeId(ticket % 3), Input::Submitted { ticket, crawl: DEFAULT_CRAWL.into(), urls });
    }

    /// Hands a URL out at the holder of its slot; returns who that is.
    fn pick(&mut self, flight: u64, text: &str) -> NodeId {
        let url = url(text);
        let id = self.holder(Slot::of_domain(url.domain()));
        let progress = Progress { status: Status::SelectedToCrawl, ..Progress::new(id) };
        let key = UrlKey::new(DEFAULT_CRAWL, &url);
        let copy = RecordCopy::new(key, &kept(url.as_str(), progress)).unwrap();
        let queue = QueueKey::new(DEFAULT_CRAWL, &url);
        let order = Order { priority: 1, depth: 0, sequence: flight };
        let entry = Entry { url, kind: EntryKind::Page, progress: Progress::new(id), redirects: 0, validators: None };
        let pick = Pick { flight, queue, order, entry };
        self.step(id, Input::Picked { at: self.now, picks: vec![(pick, copy)] });
        id
    }

    fn statuses(&self, text: &str) -> Vec<Status> {
        let key = UrlKey::new(DEFAULT_CRAWL, &url(text));
        self.nodes.values().filter_map(|node| node.disk.get(&key)).map(|copy| copy.progress.status).collect()
    }
}

#[test]
fn a_url_is_kept_leased_fetched_and_processed_on_every_replica() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    cluster.submit(1, "http://a.example/");
    cluster.run(11 * SECOND);
    assert!(cluster.acknowledged.contains(&1));
    assert_eq!(cluster.statuses("http://a.example/"), [Status::New; 3]);
    let holder = cluster.pick(50, "http://a.example/");
    assert!(cluster.nodes[&holder].served.contains(&Slot::of_domain("a.example")));
    cluster.run(12 * SECOND);
    assert_eq!(cluster.statuses("http://a.example/"), [Status::SelectedToCrawl; 3]);
    let (run, until) = cluster.nodes[&holder].runs[0];
    assert!(until > cluster.now && until < cluster.now + 3 * SECOND);
    let links =
        vec![Discovered { url: url("http://b.example/x"), kind: EntryKind::Page, depth: 1, priority: 1, redirects: 0 }];
    let ending = Ending::Answered(Box::default());
    cluster.step(holder, Input::Fetched { run, ending, links });
    cluster.run(13 * SECOND);
    assert_eq!(cluster.statuses("http://a.example/"), [Status::Processed; 3]);
    assert_eq!(cluster.statuses("http://b.example/x"), [Status::New; 3], "its link is kept by all replicas");
    let told = &cluster.nodes[&holder].told;
    assert!(told.iter().any(|what| what.starts_with("FetchEnded")));
    assert!(told.iter().any(|what| what.contains("Settled { flight: 50, page: true }")));
}

#[test]
fn a_host_is_free_when_it_was_asked_and_its_page_counts_when_it_is_stored() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    cluster.submit(1, "http://a.example/");
    cluster.run(11 * SECOND);
    let holder = cluster.pick(50, "http://a.example/");
    cluster.run(12 * SECOND);
    let (run, _) = cluster.nodes[&holder].runs[0];
    let ended = |cluster: &Cluster| {
        cluster.nodes[&holder].told.iter().filter(|what| what.starts_with("FetchEnded")).cloned().collect::<Vec<_>>()
    };
    assert!(ended(&cluster).is_empty());
    cluster.step(holder, Input::Asked { run, host: HostVerdict::SlowDown, retry_after_ms: Some(7) });
    cluster.run(14 * SECOND);
    let once = [format!(
        "{:?}",
        frontier::Input::FetchEnded { flight: 50, host: HostVerdict::SlowDown, retry_after_ms: Some(7) }
    )];
    assert_eq!(ended(&cluster), once);
    assert_eq!(cluster.statuses("http://a.example/"), [Status::SelectedToCrawl; 3], "its page is nowhere yet");
    cluster.step(holder, Input::Fetched { run, ending: Ending::Answered(Box::default()), links: Vec::new() });
    cluster.run(15 * SECOND);
    assert_eq!(ended(&cluster), once, "a host is not released twice");
    assert_eq!(cluster.statuses("http://a.example/"), [Status::Processed; 3]);
    cluster.step(holder, Input::Asked { run, host: HostVerdict::Healthy, retry_after_ms: None });
    cluster.run(16 * SECOND);
    assert_eq!(ended(&cluster), once, "nobody hears of what is over");
}

/// An executor tells the owner by letter. One that is of a former batch, or comes twice, frees no host.
#[test]
fn another_node_says_once_that_a_host_was_asked() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    cluster.submit(1, "http://a.example/");
    cluster.run(11 * SECOND);
    let holder = cluster.pick(50, "http://a.example/");
    cluster.run(12 * SECOND);
    let (run, _) = cluster.nodes[&holder].runs[0];
    let from = cluster.nodes.keys().copied().find(|node| *node != holder).unwrap();
    let mut asked = |batch: BatchId| {
        let message = Message::Asked { batch, flight: 50, host: HostVerdict::Healthy, retry_after_ms: None };
        let letter = Letter { cluster: 7, from, boot: 1, clock: cluster.now, message };
        cluster.step(holder, Input::Received(letter));
        cluster.nodes[&holder].told.iter().filter(|what| what.starts_with("FetchEnded")).count()
    };
    assert_eq!(asked(BatchId { number: run.batch.number + 1, ..run.batch }), 0);
    assert_eq!(asked(BatchId { boot: 0, ..run.batch }), 0);
    assert_eq!(asked(BatchId { node: from, ..run.batch }), 0);
    assert_eq!(asked(run.batch), 1);
    assert_eq!(asked(run.batch), 1);
}

#[test]
fn a_flight_that_is_lost_is_new_again_with_one_attempt_more() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    cluster.submit(1, "http://a.example/");
    cluster.run(11 * SECOND);
    let holder = cluster.pick(50, "http://a.example/");
    cluster.run(12 * SECOND);
    let pick = cluster.nodes[&holder].core.flights.values().next().unwrap().pick_for_tests();
    cluster.step(holder, Input::Lost { pick: Box::new(pick) });
    cluster.run(13 * SECOND);
    assert_eq!(cluster.statuses("http://a.example/"), [Status::New; 3]);
    assert!(cluster.sights.iter().any(|(_, sight)| matches!(sight, Sight::BatchPutBack { .. })));
    assert!(cluster.nodes[&holder].core.flights.is_empty());
}

#[test]
fn letters_of_other_clusters_and_former_lives_change_nothing() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    cluster.sights.clear();
    let slots: SlotSet = [Slot(1)].into_iter().collect();
    let seq = super::super::lease::Seq { boot: 1, counter: 9 };
    let message = Message::LeaseRequest { seq, slots };
    let letter = |cluster, boot| Letter { cluster, from: NodeId(1), boot, clock: 5, message: message.clone() };
    cluster.step(NodeId(0), Input::Received(letter(8, 1)));
    cluster.step(NodeId(0), Input::Received(letter(7, 0)));
    let ignored = |sight: &&(NodeId, Sight)| matches!(sight.1, Sight::Ignored { .. });
    assert_eq!(cluster.sights.iter().filter(ignored).count(), 2);
    let promised = |sight: &(NodeId, Sight)| matches!(sight.1, Sight::PromiseMade { .. });
    assert!(!cluster.sights.iter().any(promised));
}

#[test]
fn a_life_that_others_have_outlived_is_told_so() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    let mut late = node(0, rules(2, 0));
    let mut effects = Vec::new();
    let message = Message::Outdated { boot: 1 };
    let letter = Letter { cluster: 7, from: NodeId(0), boot: 1, clock: 0, message };
    late.core.step(0, Input::Received(letter), &mut effects);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Outdated { boot: 1 })));
}

#[test]
fn who_was_forgotten_while_it_was_cut_off_begins_a_new_life() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    let cut_off = cluster.nodes.remove(&NodeId(2)).unwrap();
    cluster.run(30 * SECOND);
    cluster.step(NodeId(0), Input::Forget { node: NodeId(2) });
    cluster.run(40 * SECOND);
    cluster.nodes.insert(NodeId(2), cut_off);
    assert!(cluster.outdated.is_empty());
    cluster.run(60 * SECOND);
    assert_eq!(cluster.outdated, [(NodeId(2), 1)].into(), "in this life it has no place any more");
}

#[test]
fn a_voter_that_left_and_lost_its_disk_enrols_when_it_hears_of_that() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    cluster.step(NodeId(2), Input::Leave);
    cluster.run(60 * SECOND);
    cluster.nodes.insert(NodeId(2), node(cluster.now, rules(2, 5_000)));
    cluster.run(80 * SECOND);
    assert_eq!(cluster.outdated, [(NodeId(2), 5_000)].into(), "it took itself for one that is counted");
    // Its disk knows now.
    let heard: Vec<registry::Definition> = cluster.nodes[&NodeId(2)].core.definitions().cloned().collect();
    let mut again = node(cluster.now, rules(2, 5_001));
    again.core = again.core.with_definitions(heard);
    cluster.nodes.insert(NodeId(2), again);
    cluster.outdated.clear();
    cluster.run(120 * SECOND);
    assert!(cluster.nodes.values().all(|node| node.core.is_enrolled(NodeId(2))));
    assert!(cluster.outdated.is_empty());
}

#[test]
fn who_leaves_hands_its_slots_over_and_is_done() {
    let mut cluster = Cluster::new();
    let peers: Vec<(NodeId, u16)> = (0..3).map(|number| (NodeId(number), 1)).collect();
    let mut joined = rules(3, 1);
    joined.peers = peers;
    cluster.nodes.insert(NodeId(3), node(0, joined));
    cluster.run(20 * SECOND);
    for page in 0..20 {
        cluster.submit(page, &format!("http://a.example/{page}"));
        cluster.submit(100 + page, &format!("http://b.example/{page}"));
    }
    cluster.run(25 * SECOND);
    assert_eq!(cluster.acknowledged.len(), 40);
    let leaver = cluster.holder(Slot::of_domain("a.example"));
    cluster.step(leaver, Input::Leave);
    cluster.run(60 * SECOND);
    assert!(cluster.nodes[&leaver].disk.is_empty(), "everything went to the others");
    assert_ne!(cluster.holder(Slot::of_domain("a.example")), leaver);
    for page in 0..20 {
        assert_eq!(cluster.statuses(&format!("http://a.example/{page}")).len(), 3);
    }
}

#[test]
fn in_a_large_cluster_those_who_give_their_places_up_are_asked_too() {
    let mut cluster = Cluster::new();
    let peers: Vec<(NodeId, u16)> = (0..3).map(|number| (NodeId(number), 1)).collect();
    for id in 3..16 {
        let mut joined = rules(id, 1);
        joined.peers = peers.clone();
        cluster.nodes.insert(NodeId(id), node(0, joined));
    }
    cluster.run(30 * SECOND);
    let slot = Slot::of_domain("a.example");
    let slots: SlotSet = [slot].into_iter().collect();
    let holder = cluster.holder(slot);
    // The last on the ring stand far from the slot: nobody asks them for its sake.
    let far: Vec<NodeId> = cluster.nodes[&holder].core.ring.preference(slot).iter().rev().copied().take(3).collect();
    for leaver in &far {
        cluster.step(*leaver, Input::Leave);
    }
    cluster.run(31 * SECOND);
    let core = &mut cluster.nodes.get_mut(&holder).unwrap().core;
    let mut effects = Vec::new();
    core.ask_around(31 * SECOND, slots, &mut effects);
    let is_asked = |node: &NodeId| {
        let surveyed = |effect: &Effect| matches!(effect, Effect::Send { to, letter } if to == node && matches!(letter.message, Message::Survey { .. }));
        effects.iter().any(surveyed)
    };
    assert!(far.iter().all(is_asked));
}

#[test]
fn who_leaves_while_nobody_hears_it_is_not_done_before_somebody_does() {
    let mut cluster = Cluster::new();
    cluster.run(20 * SECOND);
    let leaver = NodeId(2);
    let is_done = |cluster: &Cluster| cluster.sights.contains(&(leaver, Sight::Sometimes("leave_finished")));
    let others: Vec<(NodeId, Node)> =
        [NodeId(0), NodeId(1)].into_iter().filter_map(|id| Some((id, cluster.nodes.remove(&id)?))).collect();
    cluster.step(leaver, Input::Leave);
    cluster.run(80 * SECOND);
    assert!(!is_done(&cluster), "it has nothing, and all others are away");
    cluster.nodes.extend(others);
    cluster.run(140 * SECOND);
    assert!(is_done(&cluster));
}

/// What jobs need: a slot is surely ours when enough others said what they have of it, and nobody else gets it while a script runs.
#[test]
fn a_slot_with_a_script_in_it_is_held_until_the_script_has_ended() {
    let mut cluster = Cluster::new();
    let mut joined = rules(3, 1);
    joined.peers = (0..3).map(|number| (NodeId(number), 1)).collect();
    cluster.nodes.insert(NodeId(3), node(0, joined));
    cluster.run(20 * SECOND);
    let slot = Slot::of_domain("a.example");
    let slots: SlotSet = [slot].into_iter().collect();
    let holder = cluster.holder(slot);
    let tenure =
        |cluster: &Cluster, id: NodeId| cluster.nodes[&id].core.assured(cluster.now, &slots).get(&slot).copied();
    let jobs =
        |busy: bool| Input::Jobs { slots: slots.clone(), busy: if busy { slots.clone() } else { SlotSet::default() } };
    for id in (0..4).map(NodeId) {
        cluster.step(id, jobs(false));
    }
    cluster.run(22 * SECOND);
    let first = tenure(&cluster, holder).expect("two of three others answered");
    assert!(first.until > cluster.now && first.until + SECOND / 2 < cluster.now + 6 * SECOND, "before the lease ends");
    assert!((0..4).map(NodeId).all(|id| id == holder || tenure(&cluster, id).is_none()));

    cluster.step(holder, jobs(true));
    cluster.step(holder, Input::Leave);
    // The ring changes when the others have heard of it for long enough.
    while tenure(&cluster, holder).is_some() && cluster.now < 40 * SECOND {
        cluster.run(cluster.now + SECOND / 10);
    }
    assert_eq!((tenure(&cluster, holder), cluster.holder(slot)), (None, holder), "it ends what it runs first");
    cluster.step(holder, jobs(false));
    cluster.run(60 * SECOND);
    let next = cluster.holder(slot);
    assert_ne!(next, holder);
    cluster.step(next, jobs(false));
    cluster.run(62 * SECOND);
    assert!(tenure(&cluster, next).is_some());
}

/// Digests are never equal while a slot is written to, so who leaves must not wait for that.
#[test]
fn who_leaves_is_done_although_its_slots_are_written_to_without_a_pause() {
    let mut cluster = Cluster::new();
    let mut joined = rules(3, 1);
    joined.peers = (0..3).map(|number| (NodeId(number), 1)).collect();
    cluster.nodes.insert(NodeId(3), node(0, joined));
    cluster.run(20 * SECOND);
    let leaver = cluster.holder(Slot::of_domain("a.example"));
    let mut page = 0;
    let mut write_until = |cluster: &mut Cluster, until: Micros| {
        while cluster.now < until {
            cluster.submit(page, &format!("http://a.example/{page}"));
            page += 1;
            cluster.run(cluster.now + SECOND / 20);
        }
    };
    write_until(&mut cluster, 25 * SECOND);
    cluster.step(leaver, Input::Leave);
    write_until(&mut cluster, 70 * SECOND);
    let left = |sight: &(NodeId, Sight)| sight.0 == leaver && matches!(sight.1, Sight::Sometimes("leave_finished"));
    assert!(cluster.sights.iter().any(left), "it still waits for a pause");
    assert!(cluster.nodes[&leaver].disk.is_empty(), "everything went to the others");
    cluster.run(90 * SECOND);
    for page in 0..page {
        assert_eq!(cluster.statuses(&format!("http://a.example/{page}")).len(), 3, "page {page}");
    }
}

#[test]
fn a_slot_of_more_than_waits_for_a_peer_at_once_comes_over_whole_and_once() {
    /// What the program lets wait for a peer.
    const OUTBOX_BYTES: usize = 16 << 20;
    let long = "x".repeat(1_900);
    let made =
        |page| super::super::copy::tests::copy(&format!("http://a.example/{page}/{long}"), Progress::new(NodeId(1)));
    let disk: BTreeMap<UrlKey, RecordCopy> = (0..10_000).map(made).map(|copy| (copy.key.clone(), copy)).collect();
    let bytes: usize = disk.values().map(RecordCopy::bytes).sum();
    assert!(bytes > OUTBOX_BYTES);
    let mut digests = Digests::default();
    disk.values().for_each(|copy| digests.change(Changed::new(&copy.key, None, Some(copy.hash()))));
    let full = |number| {
        let rng = ChaCha8Rng::seed_from_u64(number);
        let core = Coordinator::new(0, rules(number, 1), digests.clone(), Rings::default(), rng);
        Node { core, disk: disk.clone(), ..node(0, rules(number, 1)) }
    };
    let mut cluster = Cluster::of([0, 1].map(|number| (NodeId(number), full(number))).into());
    cluster.nodes.insert(NodeId(2), node(0, rules(2, 1)));
    cluster.run(20 * SECOND);
    assert!(cluster.nodes[&NodeId(2)].disk == disk, "{} came", cluster.nodes[&NodeId(2)].disk.len());
    assert!(cluster.bulk_waits_max <= 1, "{} parts waited at once", cluster.bulk_waits_max);
    assert!(cluster.bulk_bytes < bytes * 11 / 10, "{} bytes for {bytes}", cluster.bulk_bytes);
}

#[test]
fn a_peer_of_the_first_version_is_still_answered() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    for page in 0..3 {
        cluster.submit(page, &format!("http://a.example/{page}"));
    }
    cluster.run(11 * SECOND);
    let slot = Slot::of_domain("a.example");
    let op = Op { boot: 1, number: 1 };
    let mut answers = |message| {
        let letter = Letter { cluster: 7, from: NodeId(1), boot: 1, clock: cluster.now, message };
        let mut effects = Vec::new();
        let node = cluster.nodes.get_mut(&NodeId(0)).unwrap();
        node.core.step(cluster.now, Input::Received(letter), &mut effects);
        let read =
            effects.iter().find_map(|effect| if let Effect::Read { read, .. } = effect { Some(*read) } else { None });
        let copies: Vec<RecordCopy> = node.disk.values().filter(|copy| copy.slot() == slot).cloned().collect();
        let mut sent = Vec::new();
        node.core.step(cluster.now, Input::Read { read: read.unwrap(), copies, next: None }, &mut sent);
        sent.into_iter().find_map(|effect| match effect {
            Effect::Send { letter: Letter { message: Message::Records { copies }, .. }, .. } => Some(copies.len()),
            Effect::Send { letter: Letter { message: Message::Pulled { copies, last: true, .. }, .. }, .. } => {
                Some(copies.len())
            }
            _ => None,
        })
    };
    assert_eq!(answers(Message::Want { slot, ranges: (0..=255).collect() }), Some(3));
    assert_eq!(answers(Message::Pull { op, slots: [slot].into_iter().collect(), digests: Vec::new() }), Some(3));
}

#[test]
fn who_forgot_everybody_still_wants_two_copies() {
    let mut cluster = Cluster::new();
    cluster.run(10 * SECOND);
    cluster.nodes.retain(|id, _| *id == NodeId(0));
    cluster.run(700 * SECOND);
    assert_eq!(cluster.nodes[&NodeId(0)].core.view().len(), 1, "the ring forgot them");
    cluster.submit(3, "http://a.example/");
    cluster.run(760 * SECOND);
    assert!(cluster.acknowledged.is_empty());
}

#[test]
fn a_definition_is_on_every_node_when_the_client_is_told_and_who_is_new_learns_it() {
    let mut cluster = Cluster::new();
    cluster.run(5 * SECOND);
    let key = registry::DefinitionKey { kind: registry::DefinitionKind::Crawl, name: "news".into() };
    let define = Input::Define { ticket: 77, key: key.clone(), expects: None, body: Some(vec![1]) };
    cluster.step(NodeId(1), define);
    cluster.run(6 * SECOND);
    assert!(cluster.acknowledged.contains(&77));
    let holds = |cluster: &Cluster, id| cluster.nodes[&id].core.definitions().any(|one| one.key == key);
    assert!((0..3).all(|id| holds(&cluster, NodeId(id))));
    let kept = |(_, sight): &(NodeId, Sight)| matches!(sight, Sight::DefinitionKept { .. });
    assert_eq!(cluster.sights.iter().filter(|sight| kept(sight)).count(), 1);
    // A node whose disk was wiped asks what there is.
    cluster.nodes.insert(NodeId(2), node(cluster.now, rules(2, 5_000)));
    assert!(!holds(&cluster, NodeId(2)));
    let until = cluster.now + 20 * SECOND;
    cluster.run(until);
    assert!(holds(&cluster, NodeId(2)));
}
