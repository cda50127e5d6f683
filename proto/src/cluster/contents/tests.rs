//! A few disks, pages that are fetched, pushes that fail, disks that are lost: in the end every page is on two of them.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::cluster::ring::Rings;
use crate::crawl::politeness::SECOND;
use crate::url::CanonicalUrl;

/// A rule that is broken on purpose, so that the world below proves that it would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// A node that took nothing once is never asked again.
    TriesOnce,
    /// Copies on a node that is gone still count.
    GoneIgnored,
    /// Copies in a folder that was lost still count.
    FolderIgnored,
}

impl Defect {
    pub(super) fn sees_lost(self, gone: bool, other: bool) -> (bool, bool) {
        (gone && self != Defect::GoneIgnored, other && self != Defect::FolderIgnored)
    }
}

fn key(number: u32) -> ContentKey {
    let url = CanonicalUrl::parse(&format!("http://h{}.example/{number}", number % 7), &Default::default()).unwrap();
    ContentKey { url: UrlKey::new("DEFAULT", &url), round: 1 + number % 3, other: None }
}

/// A data folder.
#[derive(Clone, Default)]
struct Disk {
    folder: u64,
    pages: BTreeSet<ContentKey>,
    list: BTreeSet<ContentKey>,
    trusted: BTreeMap<ContentKey, Holding>,
}

impl Disk {
    fn standing(&self) -> Standing {
        let mut standing = Standing { lacking: self.list.len() as u64, ..Standing::default() };
        self.trusted.values().for_each(|holding| *standing.trusted.entry(*holding).or_default() += 1);
        standing
    }

    fn trust(&mut self, key: &ContentKey, holding: Holding) {
        if self.list.remove(key) {
            self.trusted.insert(key.clone(), holding);
        }
    }
}

struct Node {
    core: Contents,
    disk: Disk,
    /// Inputs under way, and when they come.
    coming: Vec<(Micros, Input)>,
    /// Pages that were acknowledged or given up.
    ended: BTreeSet<u64>,
}

struct World {
    rings: Rings,
    rng: ChaCha8Rng,
    now: Micros,
    nodes: BTreeMap<NodeId, Node>,
    members: BTreeSet<NodeId>,
    defect: Option<Defect>,
    /// Pushes that fail, in hundredths.
    failing: u32,
    next_folder: u64,
    pages: u32,
    /// Pages that were acknowledged.
    safe: BTreeSet<ContentKey>,
}

const NODES: u64 = 4;

impl World {
    fn new(rings: &Rings, seed: u64, defect: Option<Defect>) -> World {
        let members: BTreeSet<NodeId> = (1..=NODES).map(NodeId).collect();
        let mut world = World {
            rings: rings.clone(),
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: 0,
            nodes: BTreeMap::new(),
            members: members.clone(),
            defect,
            failing: 30,
            next_folder: 100,
            pages: 0,
            safe: BTreeSet::new(),
        };
        for node in members {
            world.next_folder += 1;
            let disk = Disk { folder: world.next_folder, ..Disk::default() };
            world.start(node, disk);
        }
        world
    }

    fn start(&mut self, node: NodeId, disk: Disk) {
        let rules = ContentRules { window_max: 8, pushes_max: 2, ..ContentRules::default() };
        let mut core = Contents::new(node, rules, disk.standing());
        core.defect = self.defect;
        self.nodes.insert(node, Node { core, disk, coming: Vec::new(), ended: BTreeSet::new() });
        self.tell_views();
    }

    fn tell_views(&mut self) {
        let ring = self.rings.get(&self.members.iter().map(|node| (*node, 1)).collect());
        let alive: BTreeSet<NodeId> = self.nodes.keys().copied().filter(|node| self.members.contains(node)).collect();
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            let (ring, members, alive) = (Arc::clone(&ring), self.members.clone(), alive.clone());
            let size = members.len();
            self.step(node, Input::View { ring, members, alive, size });
        }
    }

    fn fetch(&mut self) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let node = nodes[self.rng.random_range(0..nodes.len())];
        self.pages += 1;
        let (ticket, key) = (u64::from(self.pages), key(self.pages));
        let disk = &mut self.nodes.get_mut(&node).unwrap().disk;
        disk.pages.insert(key.clone());
        disk.list.insert(key.clone());
        self.step(node, Input::Kept { ticket, key, bytes: 1_000 });
    }

    fn step(&mut self, node: NodeId, input: Input) {
        let mut out = Vec::new();
        let Some(one) = self.nodes.get_mut(&node) else { return };
        one.core.step(self.now, input, &mut out);
        for effect in out {
            self.perform(node, effect);
        }
    }

    fn perform(&mut self, node: NodeId, effect: Effect) {
        let at = self.now + self.rng.random_range(1..SECOND / 2);
        let input = match effect.clone() {
            Effect::List { after, limit } => {
                let disk = &self.nodes[&node].disk;
                let mut rest = disk.list.iter().filter(|key| after.as_ref().is_none_or(|after| *key > after)).cloned();
                let pages: Vec<(ContentKey, u32)> = rest.by_ref().take(limit).map(|key| (key, 1_000)).collect();
                let more = rest.next().is_some();
                Input::Listed { next: pages.last().filter(|_| more).map(|(key, _)| key.clone()), pages }
            }
            Effect::Push { to, keys } => self.push(node, to, keys),
            Effect::Mark { keys, holding } => {
                let disk = &mut self.nodes.get_mut(&node).unwrap().disk;
                keys.iter().for_each(|key| disk.trust(key, holding));
                Input::Marked { keys, standing: disk.standing() }
            }
            Effect::TakeBack { holding } => {
                let disk = &mut self.nodes.get_mut(&node).unwrap().disk;
                let lost: Vec<ContentKey> =
                    disk.trusted.iter().filter(|(_, of)| **of == holding).map(|(key, _)| key.clone()).take(3).collect();
                for key in &lost {
                    disk.trusted.remove(key);
                    disk.list.insert(key.clone());
                }
                Input::TakenBack { done: lost.len() < 3, standing: disk.standing() }
            }
            Effect::Release { ticket } | Effect::Lapse { ticket } => {
                let known = !self.nodes.get_mut(&node).unwrap().ended.insert(ticket);
                assert!(!known, "a page is acknowledged or given up, once");
                if matches!(effect, Effect::Release { .. }) {
                    self.safe.insert(key(ticket as u32));
                }
                return;
            }
        };
        self.nodes.get_mut(&node).unwrap().coming.push((at, input));
    }

    /// A push: whole, or cut off before or after the other has the pages.
    fn push(&mut self, from: NodeId, to: NodeId, keys: Vec<ContentKey>) -> Input {
        assert_ne!(from, to);
        let failed = |folder| Input::Pushed { to, folder, copied: Vec::new(), unreadable: Vec::new(), whole: false };
        let fails = self.rng.random_range(0..100) < self.failing;
        let before = self.rng.random_bool(0.5);
        let mine = Holding { node: from, folder: self.nodes[&from].disk.folder };
        let Some(other) = self.nodes.get_mut(&to) else { return failed(None) };
        if fails && before {
            return failed(None);
        }
        for key in &keys {
            if other.disk.pages.insert(key.clone()) {
                other.disk.trusted.insert(key.clone(), mine);
            } else {
                other.disk.trust(key, mine);
            }
        }
        let (folder, standing) = (other.disk.folder, other.disk.standing());
        other.coming.push((self.now, Input::Standing(standing)));
        if fails {
            return failed(Some(folder));
        }
        Input::Pushed { to, folder: Some(folder), copied: keys, unreadable: Vec::new(), whole: true }
    }

    /// Lets time pass.
    fn run(&mut self, time: Micros) {
        let end = self.now + time;
        while self.now < end {
            self.now += SECOND / 4;
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                let one = self.nodes.get_mut(&node).unwrap();
                let (due, later): (Vec<_>, Vec<_>) =
                    std::mem::take(&mut one.coming).into_iter().partition(|(at, _)| *at <= self.now);
                one.coming = later;
                let wakes = one.core.next_wake(self.now - SECOND / 4) <= self.now;
                for (_, input) in due {
                    self.step(node, input);
                }
                if wakes {
                    self.step(node, Input::Tick);
                }
            }
        }
    }

    fn any(&mut self) -> NodeId {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        nodes[self.rng.random_range(0..nodes.len())]
    }

    /// Something goes wrong, or time passes.
    fn trouble(&mut self) {
        match self.rng.random_range(0..10) {
            0 => {
                let node = self.any();
                let disk = self.nodes.remove(&node).unwrap().disk;
                self.tell_views();
                self.run(2 * SECOND);
                self.start(node, disk);
            }
            1 => self.failing = [0, 30, 90][self.rng.random_range(0..3)],
            2..=6 => (0..self.rng.random_range(1..6)).for_each(|_| self.fetch()),
            _ => {
                let time = self.rng.random_range(1..8) * SECOND;
                self.run(time);
            }
        }
    }

    fn calm(&mut self) {
        self.failing = 0;
        self.run(300 * SECOND);
    }

    /// What is not on two of the disks that are left; pages that were acknowledged with two copies must be on at least one.
    fn amiss(&self) -> Option<String> {
        let pages: BTreeSet<&ContentKey> = self.nodes.values().flat_map(|node| &node.disk.pages).collect();
        let lost = self.safe.iter().find(|key| !pages.contains(key));
        if let Some(key) = lost {
            return Some(format!("{key:?} was acknowledged and is lost"));
        }
        let copies = |key: &ContentKey| self.nodes.values().filter(|node| node.disk.pages.contains(key)).count();
        if let Some(key) = pages.into_iter().find(|key| copies(key) < 2) {
            return Some(format!("{key:?} is on {} disks", copies(key)));
        }
        let open = |node: &&Node| !node.core.is_dispensable() || node.core.lacking() > 0;
        self.nodes.values().find(open).map(|_| "a node believes that it is not done".to_owned())
    }
}

/// Pages, failures and restarts; then a disk is lost, in one way or the other; twice.
fn live(rings: &Rings, seed: u64, defect: Option<Defect>) -> Option<String> {
    let mut world = World::new(rings, seed, defect);
    for loss in 0..2 {
        (0..12).for_each(|_| world.trouble());
        world.calm();
        if let Some(amiss) = world.amiss() {
            return Some(amiss);
        }
        let node = world.any();
        world.nodes.remove(&node);
        if (seed + loss).is_multiple_of(2) {
            world.members.remove(&node); // for ever
            world.tell_views();
        } else {
            world.next_folder += 1;
            let folder = world.next_folder;
            world.start(node, Disk { folder, ..Disk::default() });
        }
        world.run(SECOND);
    }
    (0..4).for_each(|_| world.trouble());
    world.calm();
    world.amiss()
}

#[test]
fn every_page_is_on_two_disks_when_it_is_calm() {
    let rings = Rings::default();
    for seed in 0..60 {
        assert_eq!(live(&rings, seed, None), None, "seed {seed}");
    }
}

#[test]
fn planted_defects_are_noticed() {
    let rings = Rings::default();
    for defect in [Defect::TriesOnce, Defect::GoneIgnored, Defect::FolderIgnored] {
        assert!((0..60).any(|seed| live(&rings, seed, Some(defect)).is_some()), "{defect:?} was not noticed");
    }
}

/// The view of a node in a cluster of these nodes, of which some are alive.
fn view(nodes: &[u64], alive: &[u64]) -> Input {
    let set = |nodes: &[u64]| nodes.iter().map(|node| NodeId(*node)).collect::<BTreeSet<NodeId>>();
    let ring = Arc::new(Ring::new(&set(nodes).into_iter().map(|node| (node, 1)).collect()));
    Input::View { ring, members: set(nodes), alive: set(alive), size: nodes.len() }
}

#[test]
fn a_page_that_nobody_can_take_is_not_acknowledged_and_not_forgotten() {
    let mut core = Contents::new(NodeId(1), ContentRules::default(), Standing::default());
    let mut out = Vec::new();
    core.step(0, view(&[1, 2], &[1]), &mut out);
    core.step(0, Input::Kept { ticket: 5, key: key(1), bytes: 10 }, &mut out);
    assert_eq!(out, []);
    let patience = ContentRules::default().patience;
    assert_eq!(core.next_wake(0), patience);
    core.step(patience, Input::Tick, &mut out);
    assert_eq!(out, [Effect::Lapse { ticket: 5 }]);
    // It is made up for as soon as somebody is there.
    out.clear();
    core.step(patience + 1, view(&[1, 2], &[1, 2]), &mut out);
    assert_eq!(out, [Effect::Push { to: NodeId(2), keys: vec![key(1)] }]);
}

#[test]
fn a_cluster_of_one_waits_for_nobody_but_who_forgot_the_others_does() {
    let mut core = Contents::new(NodeId(1), ContentRules::default(), Standing::default());
    let mut out = Vec::new();
    let Input::View { ring, members, alive, .. } = view(&[1], &[1]) else { unreachable!() };
    core.step(0, Input::View { ring, members, alive, size: 3 }, &mut out);
    core.step(0, Input::Kept { ticket: 5, key: key(1), bytes: 10 }, &mut out);
    assert_eq!(out, []);
    core.step(1, view(&[1], &[1]), &mut out);
    assert_eq!(out, [Effect::Release { ticket: 5 }]);
}

#[test]
fn what_was_on_its_way_to_a_node_that_died_goes_to_another() {
    let mut core = Contents::new(NodeId(1), ContentRules::default(), Standing::default());
    let mut out = Vec::new();
    core.step(0, view(&[1, 2, 3], &[1, 2, 3]), &mut out);
    core.step(0, Input::Kept { ticket: 5, key: key(1), bytes: 10 }, &mut out);
    let [Effect::Push { to: first, .. }] = out[..] else { panic!("{out:?}") };
    let second = if first == NodeId(2) { NodeId(3) } else { NodeId(2) };
    out.clear();
    core.step(1, view(&[1, 2, 3], &[1, second.0]), &mut out);
    assert_eq!(out, [Effect::Push { to: second, keys: vec![key(1)] }]);
    out.clear();
    let pushed = |to| Input::Pushed { to, folder: Some(1), copied: vec![key(1)], unreadable: Vec::new(), whole: true };
    core.step(2, pushed(second), &mut out);
    assert!(out.contains(&Effect::Release { ticket: 5 }), "{out:?}");
    out.clear();
    core.step(3, pushed(first), &mut out);
    assert!(!out.iter().any(|effect| matches!(effect, Effect::Release { .. })), "once");
}

#[test]
fn pages_that_wait_for_their_acknowledgement_go_first() {
    let standing = Standing { lacking: 5_000, ..Standing::default() };
    let mut core = Contents::new(NodeId(1), ContentRules::default(), standing);
    let nodes: BTreeSet<NodeId> = [NodeId(1), NodeId(2)].into();
    let ring = Arc::new(Ring::new(&nodes.iter().map(|node| (*node, 1)).collect()));
    let mut out = Vec::new();
    core.step(0, Input::View { ring, members: nodes.clone(), alive: nodes, size: 2 }, &mut out);
    assert_eq!(out, [Effect::List { after: None, limit: 4_096 }]);
    let mut pages: Vec<(ContentKey, u32)> = (0..2_000).map(|number| (key(number), 100)).collect();
    pages.sort();
    out.clear();
    core.step(1, Input::Listed { pages, next: Some(key(9)) }, &mut out);
    let Effect::Push { keys, .. } = &out[0] else { panic!("{out:?}") };
    let keys = keys.clone();
    assert_eq!(keys.len(), PUSH_PAGES_MAX);
    let fresh = key(7_777);
    core.step(2, Input::Kept { ticket: 5, key: fresh.clone(), bytes: 10 }, &mut out);
    out.clear();
    let pushed = Input::Pushed { to: NodeId(2), folder: Some(1), copied: keys, unreadable: Vec::new(), whole: true };
    core.step(3, pushed, &mut out);
    assert!(out.iter().any(|effect| matches!(effect, Effect::Push { keys, .. } if keys[0] == fresh)), "{out:?}");
}

#[test]
fn keys_come_back_as_they_went_to_disk() {
    for number in 0..50 {
        let mut key = key(number);
        assert_eq!(ContentKey::from_bytes(&key.to_bytes()).as_ref(), Some(&key));
        key.other = Some([number as u8; 16]);
        assert_eq!(ContentKey::from_bytes(&key.to_bytes()), Some(key));
    }
    assert_eq!(ContentKey::from_bytes(b"nothing"), None);
}

#[test]
fn what_a_peer_offers_is_bounded() {
    let offer = |bytes| {
        let key = key(1);
        let (record_id, payload_digest) = ([1; 16], [2; 20]);
        Offer { url: key.url, round: 1, record_id, payload_digest, unix_ms: 3, revisit: false, bytes }
    };
    let offers = |offers| Saying::Offers { folder: 1, offers };
    assert_eq!(offers(vec![offer(100); PUSH_PAGES_MAX]).defect(), None);
    assert!(offers(vec![offer(100); PUSH_PAGES_MAX + 1]).defect().is_some());
    assert!(offers(vec![offer(PAGE_BYTES_MAX + 1)]).defect().is_some());
    assert_eq!(offers(vec![offer(PAGE_BYTES_MAX)]).defect(), None);
    assert!(offers(vec![offer(PUSH_BYTES_MAX as u32); 3]).defect().is_some());
    assert!(Saying::Wanted { folder: 1, places: vec![2, 2] }.defect().is_some());
    let said = offers(vec![offer(7)]);
    assert_eq!(crate::wire::decode::<Saying>(&crate::wire::encode(&said).unwrap()).unwrap(), said);
}
