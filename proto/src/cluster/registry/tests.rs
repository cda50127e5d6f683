use proptest::prelude::*;

use super::*;
use crate::cluster::departure::Stage;
use crate::cluster::mutant::Planted;
use crate::site::Site;

const NODES: u64 = 5;

/// Registries over a network that the test orders: letters wait, and disks hold what was synced.
struct World {
    nodes: Vec<Registry>,
    up: BTreeSet<NodeId>,
    disks: Vec<BTreeMap<DefinitionKey, Definition>>,
    letters: Vec<(NodeId, NodeId, u32, Saying)>,
    now: Micros,
    boots: Vec<u32>,
    kept: Vec<Definition>,
    told: Vec<(u64, Result<Version, NotDefined>)>,
    tickets: u64,
    /// Nodes on which something may still begin against what binds.
    busy: BTreeSet<NodeId>,
    enrolled: Vec<NodeId>,
}

/// Those of them who grant leases.
const VOTERS: [NodeId; 3] = [NodeId(0), NodeId(1), NodeId(2)];

/// Every list counts as long: what is said less often then must still be enough.
fn rules() -> RegistryRules {
    RegistryRules { list_short: 0, ..RegistryRules::default() }
}

fn key(name: u8) -> DefinitionKey {
    DefinitionKey { kind: DefinitionKind::Crawl, name: format!("crawl-{name}") }
}

impl World {
    fn new(nodes: u64) -> World {
        let registry = |node| Registry::new(0, NodeId(node), 1, rules(), Planted::default());
        World {
            nodes: (0..nodes).map(registry).collect(),
            up: (0..nodes).map(NodeId).collect(),
            disks: vec![BTreeMap::new(); nodes as usize],
            letters: Vec::new(),
            now: 0,
            boots: vec![1; nodes as usize],
            kept: Vec::new(),
            told: Vec::new(),
            tickets: 0,
            busy: BTreeSet::new(),
            enrolled: Vec::new(),
        }
    }

    fn step(&mut self, node: NodeId, input: Input) {
        let needed = self.nodes.len() / 2 + 1;
        let mut out = Vec::new();
        let voters = &VOTERS[..self.nodes.len().min(VOTERS.len())];
        let around = Surroundings { alive: &self.up, needed, voters, lapse: 20 * SECOND };
        let registry = &mut self.nodes[node.0 as usize];
        registry.step(self.now, &around, input, &mut out);
        if registry.owes() && !self.busy.contains(&node) {
            registry.settled(self.now, &around, &mut out);
        }
        for effect in out {
            match effect {
                Effect::Send { to, saying } => self.letters.push((node, to, self.boots[node.0 as usize], saying)),
                Effect::Store { op, definitions } => {
                    for definition in definitions {
                        let disk = &mut self.disks[node.0 as usize];
                        let before = disk.get(&definition.key);
                        if before.is_none_or(|before| *before < definition) {
                            disk.insert(definition.key.clone(), definition);
                        }
                    }
                    self.step(node, Input::Stored { op });
                }
                Effect::Redefined { .. } => {}
                Effect::Enrolled => self.enrolled.push(node),
                Effect::Kept { definition } => self.kept.push(definition),
                Effect::Defined { ticket, version, .. } => self.told.push((ticket, Ok(version))),
                Effect::NotDefined { ticket, why } => self.told.push((ticket, Err(why))),
            }
        }
    }

    fn define(&mut self, node: u64, name: u8, body: Option<Vec<u8>>) -> u64 {
        let registry = &self.nodes[node as usize];
        let there = registry.held.get(&key(name)).filter(|held| held.body.is_some()).map(|held| held.version);
        self.tickets += 1;
        let ticket = self.tickets;
        self.step(NodeId(node), Input::Proposed { ticket, key: key(name), expects: there, body });
        ticket
    }

    /// Has a site changed by somebody who sees what `node` holds.
    fn define_site(&mut self, node: u64, epoch: u32, deleted: bool) -> u64 {
        let site = Site { id: "news".into(), priority: node as u16, ..Site::default() };
        let body = SiteDefinition { site, epoch, deleted }.encode().unwrap();
        let expects = self.nodes[node as usize].held.get(&site_key()).map(|held| held.version);
        self.tickets += 1;
        let ticket = self.tickets;
        self.step(NodeId(node), Input::Proposed { ticket, key: site_key(), expects, body: Some(body) });
        ticket
    }

    fn epoch_on(&self, node: usize) -> Option<(u32, bool)> {
        self.disks[node].get(&site_key()).and_then(Definition::standing)
    }

    fn deliver(&mut self, which: usize) {
        if !self.letters.is_empty() {
            let (from, to, boot, saying) = self.letters.remove(which % self.letters.len());
            if self.up.contains(&to) && boot == self.boots[from.0 as usize] {
                self.step(to, Input::Received { from, boot, saying });
            }
        }
    }

    fn pass(&mut self, time: Micros) {
        self.now += time;
        for node in self.up.clone() {
            self.step(node, Input::Tick);
        }
    }

    fn crash(&mut self, node: u64) {
        self.up.remove(&NodeId(node));
    }

    fn start(&mut self, node: u64) {
        let at = node as usize;
        if self.up.insert(NodeId(node)) {
            self.boots[at] += 1;
            let mut fresh = Registry::new(self.now, NodeId(node), self.boots[at], rules(), Planted::default());
            fresh.load(self.disks[at].values().cloned().collect());
            self.nodes[at] = fresh;
        }
    }

    fn rest(&mut self) {
        for _ in 0..40 {
            self.pass(SECOND / 2);
            while !self.letters.is_empty() {
                self.deliver(0);
            }
        }
    }

    fn answer(&self, ticket: u64) -> Option<Result<Version, NotDefined>> {
        self.told.iter().find(|(of, _)| *of == ticket).map(|(_, answer)| *answer)
    }
}

fn site_key() -> DefinitionKey {
    DefinitionKey { kind: DefinitionKind::Site, name: "news".into() }
}

#[test]
fn that_a_site_is_deleted_is_told_when_a_majority_of_the_voters_can_say_that_nothing_begins() {
    let mut world = World::new(5);
    let ticket = world.define_site(0, 0, false);
    world.rest();
    assert!(matches!(world.answer(ticket), Some(Ok(_))));
    world.busy.extend([NodeId(0), NodeId(1)]);
    let ticket = world.define_site(0, 1, true);
    for _ in 0..10 {
        world.pass(SECOND / 2);
        while !world.letters.is_empty() {
            world.deliver(0);
        }
    }
    assert!((0..5).all(|node| world.epoch_on(node) == Some((1, true))), "all have it");
    assert!(world.nodes[3].is_gone("news") && !world.nodes[3].is_gone("news~1"));
    assert_eq!(world.answer(ticket), None, "one voter of three has said so");
    world.busy.remove(&NodeId(1));
    world.rest();
    assert!(matches!(world.answer(ticket), Some(Ok(_))), "{:?}", world.answer(ticket));
}

#[test]
fn who_holds_the_same_knows_what_is_deleted_and_its_next_life_has_to_say_so_again() {
    let mut world = World::new(3);
    assert!(world.nodes[0].knows(NodeId(2), 1), "there is nothing to know");
    world.crash(2);
    world.define_site(0, 1, false);
    world.rest();
    let knows = |world: &World, node, boot| world.nodes[0].knows(NodeId(node), boot);
    assert!(knows(&world, 1, 1) && knows(&world, 0, 1), "{:?}", world.nodes[0].knowing);
    assert!(!knows(&world, 2, 1) && !knows(&world, 1, 2) && !knows(&world, 0, 2));
    world.start(2);
    assert!(!knows(&world, 2, 2));
    world.rest();
    assert!(knows(&world, 2, 2) && !knows(&world, 2, 1));
    world.letters.clear();
    world.define_site(1, 2, true);
    assert!(world.nodes[1].knows(NodeId(1), 1) && !world.nodes[1].knows(NodeId(0), 1), "this one it has not heard of");
}

#[test]
fn a_newcomer_is_enrolled_when_whoever_is_granted_a_slot_must_know_of_it() {
    let mut world = World::new(4);
    world.crash(0);
    world.busy.insert(NodeId(1));
    world.step(NodeId(3), Input::Enrol { weight: 2 });
    world.rest();
    assert!(world.nodes[3].is_enrolling() && world.nodes[3].is_idle(), "nobody is told that it cannot be");
    assert!(world.enrolled.is_empty(), "one voter of three says that nothing begins there without knowing");
    world.busy.clear();
    world.rest();
    assert_eq!(world.enrolled, [NodeId(3)]);
    let weights =
        |world: &World, node: usize| world.nodes[node].enrolled().values().map(|said| said.weight).collect::<Vec<_>>();
    assert!((1..4).all(|node| weights(&world, node) == [2]));
    world.start(0);
    world.letters.clear();
    assert!(!world.nodes[1].knows(NodeId(0), 2), "it was away, and may not be granted anything");
    world.rest();
    assert!(world.nodes[1].knows(NodeId(0), 2) && world.nodes[0].enrolled().contains_key(&NodeId(3)));
    world.crash(3);
    world.start(3);
    let before = world.disks[3].clone();
    world.step(NodeId(3), Input::Enrol { weight: 2 });
    world.rest();
    assert_eq!((world.enrolled.len(), &world.disks[3]), (2, &before), "it says again what it wrote down");
    world.step(NodeId(3), Input::Enrol { weight: 5 });
    world.rest();
    assert_eq!(world.enrolled.len(), 3);
    assert!((0..4).all(|node| weights(&world, node) == [5]));
}

#[test]
fn who_left_and_is_back_is_enrolled_anew() {
    let mut world = World::new(4);
    world.step(NodeId(3), Input::Enrol { weight: 1 });
    world.rest();
    let left = Departure { node: NodeId(3), boot: 1, stage: Stage::Left };
    world.step(NodeId(1), Input::Learned { definitions: vec![left.definition()] });
    world.rest();
    world.crash(0);
    world.crash(3);
    world.start(3);
    world.step(NodeId(3), Input::Enrol { weight: 1 });
    world.rest();
    assert_eq!(world.enrolled, [NodeId(3), NodeId(3)]);
    assert!((1..4).all(|node| world.nodes[node].enrolled()[&NodeId(3)].boot == 2));
    world.start(0);
    world.letters.clear();
    assert!(
        !world.nodes[1].knows(NodeId(0), 2),
        "it has not heard that the leaver is back, and may not be granted anything"
    );
    world.rest();
    assert!(world.nodes[1].knows(NodeId(0), 2));
}

#[test]
fn no_change_by_somebody_who_had_not_heard_of_it_undoes_a_deletion() {
    let mut world = World::new(3);
    world.define_site(0, 0, false);
    world.rest();
    // The larger node comes later in the order of equal numbers.
    world.crash(2);
    let deleted = world.define_site(0, 1, true);
    world.rest();
    assert!(matches!(world.answer(deleted), Some(Ok(_))));
    world.start(2);
    world.letters.clear();
    let emptied = world.define_site(2, 1, false);
    let changed = world.define_site(2, 0, false);
    world.rest();
    for ticket in [emptied, changed] {
        assert_eq!(world.answer(ticket), Some(Err(NotDefined::Changed)));
    }
    assert!((0..3).all(|node| world.epoch_on(node) == Some((1, true))));
    let again = world.define_site(2, 1, false);
    world.rest();
    assert!(matches!(world.answer(again), Some(Ok(_))), "who has heard of it may make it anew");
    assert!((0..3).all(|node| world.epoch_on(node) == Some((1, false))));
}

#[test]
fn a_definition_reaches_everybody_and_the_client_is_told() {
    let mut world = World::new(3);
    let ticket = world.define(0, 1, Some(vec![7]));
    assert_eq!(world.answer(ticket), None, "one disk is not enough");
    world.rest();
    assert!(matches!(world.answer(ticket), Some(Ok(_))));
    assert!(world.disks.iter().all(|disk| disk[&key(1)].body == Some(vec![7])));
    assert_eq!(world.told.len(), 1, "the client is told once");
}

#[test]
fn without_a_majority_the_client_hears_so_and_who_was_away_learns_it() {
    let mut world = World::new(3);
    world.crash(1);
    world.crash(2);
    let ticket = world.define(0, 1, Some(vec![7]));
    world.rest();
    assert_eq!(world.answer(ticket), Some(Err(NotDefined::TooFew { have: 1, needed: 2 })));
    world.start(1);
    world.rest();
    assert_eq!(world.disks[1].len(), 1, "the digests differed");
    world.start(2);
    world.rest();
    assert_eq!(world.disks[2], world.disks[0]);
}

#[test]
fn who_has_not_heard_of_the_last_change_cannot_undo_it() {
    let mut world = World::new(3);
    world.define(0, 1, Some(vec![1]));
    world.rest();
    world.crash(2);
    for body in 2..6 {
        world.define(0, 1, Some(vec![body]));
        world.rest();
    }
    world.start(2);
    world.letters.clear();
    // It proposes before it has compared anything.
    let ticket = world.define(2, 1, Some(vec![9]));
    world.rest();
    assert_eq!(world.answer(ticket), Some(Err(NotDefined::Changed)));
    assert!(world.disks.iter().all(|disk| disk[&key(1)].body == Some(vec![5])));
}

/// Two nodes change the same thing and neither has heard of the other's change: the smaller one reaches a majority first, and is overtaken before its client is told.
#[test]
fn of_two_changes_at_once_only_one_is_acknowledged_though_both_had_a_majority() {
    let mut world = World::new(3);
    let first = world.define(0, 1, Some(b"first".to_vec()));
    let second = world.define(1, 1, Some(b"second".to_vec()));
    let at = |world: &World, from: u64, to: u64| {
        let is = |letter: &(NodeId, NodeId, u32, Saying)| (letter.0, letter.1) == (NodeId(from), NodeId(to));
        world.letters.iter().position(is).expect("it is on its way")
    };
    // The third node has the one and says so, then the other and says so.
    for (from, to) in [(0, 2), (2, 0), (1, 2)] {
        let which = at(&world, from, to);
        world.deliver(which);
    }
    assert_eq!(world.kept.iter().map(|kept| kept.version.node).collect::<Vec<_>>(), [NodeId(0)], "a majority had it");
    assert_eq!(world.answer(first), None, "the second node has not said that it has it");
    world.rest();
    assert_eq!(world.answer(first), Some(Err(NotDefined::Changed)));
    assert!(matches!(world.answer(second), Some(Ok(_))), "{:?}", world.told);
    assert!(world.disks.iter().all(|disk| disk[&key(1)].body.as_deref() == Some(b"second")));
}

#[test]
fn what_was_removed_stays_removed_and_may_be_defined_again() {
    let mut world = World::new(3);
    world.define(0, 1, Some(vec![1]));
    world.rest();
    world.crash(2);
    world.define(1, 1, None);
    world.rest();
    world.start(2);
    world.rest();
    assert!(world.disks.iter().all(|disk| disk[&key(1)].body.is_none()));
    let ticket = world.define(2, 1, Some(vec![3]));
    world.rest();
    assert!(matches!(world.answer(ticket), Some(Ok(_))));
    assert!(world.disks.iter().all(|disk| disk[&key(1)].body == Some(vec![3])));
}

#[test]
fn bounds_are_kept() {
    let mut world = World::new(1);
    let ticket = world.define(0, 1, Some(vec![0; DEFINITION_BYTES_MAX + 1]));
    assert_eq!(world.answer(ticket), Some(Err(NotDefined::TooLarge)));
    for number in 0..DEFINITIONS_MAX {
        let key = DefinitionKey { kind: DefinitionKind::Crawl, name: number.to_string() };
        world.step(NodeId(0), Input::Proposed { ticket: 0, key, expects: None, body: Some(Vec::new()) });
    }
    let ticket = world.define(0, 200, Some(vec![1]));
    assert_eq!(world.answer(ticket), Some(Err(NotDefined::TooMany)));
}

#[test]
fn what_is_spoken_for_goes_with_the_comparison() {
    let mut world = World::new(3);
    let slots: Vec<SlotSet> = (0..3).map(|slot| [crate::id::Slot(slot)].into_iter().collect()).collect();
    let all: SlotSet = (0..3).map(crate::id::Slot).collect();
    let mut left = [0; 3];
    for _ in 0..12 {
        for node in 0..3 {
            let is = Counted { limit: 30, here: 4, under_way: 0, wants_more: true };
            let counted = [("news".to_owned(), is)].into_iter().collect();
            let around = Around { alive: &world.up.clone(), lapse: 60 * SECOND, slots: &all };
            left[node] = world.nodes[node].count(world.now, &around, &slots[node], &counted)["news"].left;
        }
        world.pass(SECOND / 2);
        while !world.letters.is_empty() {
            world.deliver(0);
        }
    }
    assert!(left.iter().all(|left| *left > 0) && left.iter().sum::<u64>() <= 18, "{left:?}");
}

#[test]
fn a_long_list_is_not_told_again_at_once() {
    let mut world = World::new(2);
    let (me, other) = (NodeId(0), NodeId(1));
    let held = |world: &mut World| {
        world.letters.clear();
        let saying = Saying::Compare { digest: 7, counts: Vec::new() };
        world.step(me, Input::Received { from: other, boot: 1, saying });
        world.letters.iter().filter(|(_, _, _, saying)| matches!(saying, Saying::Held { .. })).count()
    };
    assert_eq!(held(&mut world), 1, "nothing is held, and that is no long list");
    assert_eq!(held(&mut world), 1);
    world.step(me, Input::Proposed { ticket: 1, key: key(0), expects: None, body: Some(vec![1]) });
    assert_eq!(held(&mut world), 0, "it heard one just now");
    world.now += rules().repeat_after;
    assert_eq!(held(&mut world), 1);
    assert_eq!(held(&mut world), 0);
    let soon = world.nodes[0].next_wake();
    assert!(soon <= world.now + rules().repeat_after, "the two compare again then");
}

#[derive(Clone, Debug)]
enum Act {
    Define(u64, u8, u8),
    Remove(u64, u8),
    Deliver(usize),
    Lose(usize),
    Repeat(usize),
    Pass,
    Crash(u64),
    Start(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..NODES, 0..3u8, any::<u8>()).prop_map(|(node, name, body)| Act::Define(node, name, body)),
        1 => (0..NODES, 0..3u8).prop_map(|(node, name)| Act::Remove(node, name)),
        20 => any::<usize>().prop_map(Act::Deliver),
        3 => any::<usize>().prop_map(Act::Lose),
        2 => any::<usize>().prop_map(Act::Repeat),
        4 => Just(Act::Pass),
        1 => (0..NODES).prop_map(Act::Crash),
        2 => (0..NODES).prop_map(Act::Start),
    ]
}

proptest! {
    /// Letters lost, repeated and out of order, nodes that stop and start: in the end all nodes hold the same, and whatever was kept is there in
    /// that version or a later one.
    #[test]
    fn definitions_converge_and_none_that_was_kept_is_lost(acts in proptest::collection::vec(act(), 0..200)) {
        let mut world = World::new(NODES);
        for act in acts {
            match act {
                Act::Define(node, name, body) if world.up.contains(&NodeId(node)) => {
                    world.define(node, name, Some(vec![body]));
                }
                Act::Remove(node, name) if world.up.contains(&NodeId(node)) => drop(world.define(node, name, None)),
                Act::Deliver(which) => world.deliver(which),
                Act::Lose(which) if !world.letters.is_empty() => {
                    drop(world.letters.remove(which % world.letters.len()));
                }
                Act::Repeat(which) if !world.letters.is_empty() => {
                    let letter = world.letters[which % world.letters.len()].clone();
                    world.letters.push(letter);
                }
                Act::Pass => world.pass(SECOND / 4),
                Act::Crash(node) => world.crash(node),
                Act::Start(node) => world.start(node),
                _ => {}
            }
            for kept in &world.kept {
                let have = world.disks.iter().filter(|disk| disk.get(&kept.key).is_some_and(|held| held >= kept)).count();
                prop_assert!(have > NODES as usize / 2, "{kept:?} was kept and {have} disks have it");
            }
        }
        (0..NODES).for_each(|node| world.start(node));
        world.rest();
        for node in 1..NODES as usize {
            prop_assert_eq!(&world.disks[node], &world.disks[0]);
            prop_assert_eq!(&world.nodes[node].held, &world.disks[0]);
        }
        for kept in &world.kept {
            prop_assert!(world.disks[0][&kept.key] >= *kept);
        }
        prop_assert!(world.nodes.iter().all(Registry::is_idle));
    }

    #[test]
    fn the_order_of_merges_does_not_matter(versions in proptest::collection::vec((0..3u8, 1..5u64, 0..3u64, any::<u8>()), 1..12)) {
        let definitions: Vec<Definition> = versions
            .into_iter()
            .map(|(name, number, node, body)| Definition {
                key: key(name),
                version: Version { number, node: NodeId(node), boot: 1 },
                body: Some(vec![body]),
            })
            .collect();
        let fresh = || Registry::new(0, NodeId(0), 1, rules(), Planted::default());
        let (mut one, mut other) = (fresh(), fresh());
        one.load(definitions.clone());
        other.load(definitions.into_iter().rev().collect());
        prop_assert_eq!(one.digest, other.digest);
        prop_assert_eq!(one.held, other.held);
    }
}
