//! Which node runs a batch, by load.
//!
//! The owner keeps a batch while its load is below the low-water mark; otherwise it goes to one of the lightest nodes, at random among
//! those that are nearly equal, so that a node that just reported little is not stampeded. A node above its high-water mark
//! answers Busy, and a batch is never sent to one that is known to be above it while one below low-water is known.

use std::collections::BTreeMap;

use rand::RngExt;

use super::mutant::{Planted, planted};
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::NodeId;

/// Load in thousandths: 0 is idle; above its [high-water mark](RouteRules::high_water) a node is full.
pub type Load = u32;

/// What a load is made of, each in thousandths of what is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadParts {
    /// Processor time in use.
    pub cpu: u32,
    /// Processor time spent waiting for disks.
    pub io_wait: u32,
    /// Memory in use.
    pub memory: u32,
    /// Disk in use.
    pub disk: u32,
    /// Running fetches, of those allowed.
    pub fetches: u32,
    /// Depth of the fullest mailbox, of its bound.
    pub mailbox: u32,
    /// Load average, of the number of processors.
    pub load_average: u32,
}

/// How much each part counts in the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadWeights {
    /// Of processor time.
    pub cpu: u32,
    /// Of waiting for disks.
    pub io_wait: u32,
    /// Of memory.
    pub memory: u32,
    /// Of disk space.
    pub disk: u32,
    /// Of running fetches.
    pub fetches: u32,
    /// Of mailboxes.
    pub mailbox: u32,
    /// Of the load average.
    pub load_average: u32,
}

impl Default for LoadWeights {
    fn default() -> Self {
        LoadWeights { cpu: 3, io_wait: 2, memory: 1, disk: 1, fetches: 3, mailbox: 2, load_average: 1 }
    }
}

impl LoadWeights {
    /// The mean of the parts. A processor that waits does not work: those two parts share one whole, which weighs as much as the
    /// heavier of them. Were it their sum, a node whose processors do nothing but work could never come near its high-water mark.
    fn mean(&self, parts: &LoadParts) -> u64 {
        let pairs = [
            (self.cpu, parts.cpu),
            (self.io_wait, parts.io_wait),
            (self.memory, parts.memory),
            (self.disk, parts.disk),
            (self.fetches, parts.fetches),
            (self.mailbox, parts.mailbox),
            (self.load_average, parts.load_average),
        ];
        let sum: u64 = pairs.iter().map(|(weight, part)| u64::from(*weight) * u64::from((*part).min(2_000))).sum();
        let all: u64 = pairs.iter().map(|(weight, _)| u64::from(*weight)).sum();
        sum.checked_div(all - u64::from(self.cpu.min(self.io_wait))).unwrap_or(0)
    }

    /// The fullest of the parts that wear off by themselves, at most 1000: what has no weight is not looked at.
    fn busiest(&self, parts: &LoadParts) -> u64 {
        let counted = |weight: u32, part: u32| if weight > 0 { part } else { 0 };
        let processors = counted(self.cpu, parts.cpu).saturating_add(counted(self.io_wait, parts.io_wait));
        let others = [
            counted(self.fetches, parts.fetches),
            counted(self.mailbox, parts.mailbox),
            counted(self.load_average, parts.load_average),
        ];
        u64::from(others.into_iter().fold(processors, u32::max).min(1_000))
    }
}

/// What a load is, and when a node is full.
///
/// Memory and disks do not come back by waiting: a node that has almost none left is full, whatever else it has. All other parts are
/// work, which ends: one of them alone, however full, brings a node up to its low-water mark, where it looks for somebody with less
/// to do, and never makes it refuse, for a crawler that does well has busy processors. It is full when the mean says so. With the
/// weights that are the default (11 in all, as processors weigh 3 together) and the high-water mark at 850:
///
/// - processors alone: 3 · 1000 / 11 = 272, so 500, the low-water mark;
/// - processors at 1000, seven tenths of the fetches, one task a processor, half of memory and disk: 7100 / 11 = 645, told as 600, which others
///   may relieve;
/// - the same with all fetches, two tasks a processor and memory at 900: 9400 / 11 = 854, which is full.
///
/// A full node says it is at the high-water mark and one more, not how far beyond: that is also what is believed of whoever refused,
/// so that two full nodes do not hand a batch to and fro. For the same reason a load between the marks is told in steps of what is
/// nearly equal: nodes that are as busy as each other, as those of one machine are, keep what they own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadRules {
    /// How much each part counts in the mean.
    pub weights: LoadWeights,
    /// Memory in use from which on a node is full, in thousandths.
    pub memory_full: u32,
    /// Disk in use from which on a node is full, in thousandths.
    pub disk_full: u32,
    /// What one part alone makes a load of.
    pub low_water: Load,
    /// Above it a node is full.
    pub high_water: Load,
    /// Loads that differ by less are told as the same.
    pub near: Load,
}

impl Default for LoadRules {
    fn default() -> Self {
        let RouteRules { low_water, high_water, near, .. } = RouteRules::default();
        LoadRules { weights: LoadWeights::default(), memory_full: 950, disk_full: 980, low_water, high_water, near }
    }
}

impl LoadRules {
    /// The load that these parts make.
    pub fn load(&self, parts: &LoadParts) -> Load {
        let full = self.high_water.saturating_add(1);
        if parts.memory >= self.memory_full || parts.disk >= self.disk_full {
            return full;
        }
        let alone = self.weights.busiest(parts) * u64::from(self.low_water) / 1_000;
        let load = self.weights.mean(parts).max(alone).min(u64::from(full)) as Load;
        match load {
            load if load <= self.low_water || load == full => load,
            load => load - (load - self.low_water) % self.near.max(1),
        }
    }
}

/// Marks and times of routing.
#[derive(Clone, Copy, Debug)]
pub struct RouteRules {
    /// Below it a node keeps its batches.
    pub low_water: Load,
    /// Above it a node refuses batches.
    pub high_water: Load,
    /// Loads that differ by no more than this are nearly equal.
    pub near: Load,
    /// An older report is not believed.
    pub report_age_max: Micros,
}

impl Default for RouteRules {
    fn default() -> Self {
        RouteRules { low_water: 500, high_water: 850, near: 100, report_age_max: 15 * SECOND }
    }
}

/// A node's knowledge of the loads.
pub struct Router {
    rules: RouteRules,
    planted: Planted,
    me: NodeId,
    loads: BTreeMap<NodeId, (Load, Micros)>,
    mine: Load,
}

/// Where a batch goes, and what was known then.
#[derive(Debug, PartialEq, Eq)]
pub struct Choice {
    /// To whom.
    pub to: NodeId,
    /// The loads that were believed, our own included.
    pub known: Vec<(NodeId, Load)>,
}

impl Router {
    /// A router that knows nothing.
    pub fn new(me: NodeId, rules: RouteRules, planted: Planted) -> Router {
        Router { rules, planted, me, loads: BTreeMap::new(), mine: 0 }
    }

    /// Our own load changed.
    pub fn set_mine(&mut self, load: Load) {
        self.mine = load;
    }

    /// Our own load.
    pub fn mine(&self) -> Load {
        self.mine
    }

    /// A node reported its load.
    pub fn reported(&mut self, now: Micros, node: NodeId, load: Load) {
        if node != self.me {
            self.loads.insert(node, (load, now));
        }
    }

    /// A node refused a batch: it is full, whatever it said.
    pub fn refused(&mut self, now: Micros, node: NodeId) {
        let full = self.rules.high_water + 1;
        let load = self.loads.get(&node).map_or(full, |(load, _)| (*load).max(full));
        self.loads.insert(node, (load, now));
    }

    /// A node is dead.
    pub fn forget(&mut self, node: NodeId) {
        self.loads.remove(&node);
    }

    /// Whether we take a batch of somebody else.
    pub fn admits(&self) -> bool {
        self.mine <= self.rules.high_water
    }

    /// The marks.
    pub fn rules(&self) -> &RouteRules {
        &self.rules
    }

    /// Chooses who runs a batch, among us and the `reachable`.
    pub fn choose(&self, now: Micros, reachable: impl Fn(NodeId) -> bool, rng: &mut impl RngExt) -> Choice {
        let fresh = |(_, (_, at)): &(&NodeId, &(Load, Micros))| now < at + self.rules.report_age_max;
        let others = self.loads.iter().filter(|(node, _)| reachable(**node)).filter(fresh);
        let mut known: Vec<(NodeId, Load)> = others.map(|(node, (load, _))| (*node, *load)).collect();
        if planted!(self.planted, LoadIgnored) && !known.is_empty() {
            let to = known[rng.random_range(0..known.len())].0;
            known.push((self.me, self.mine));
            return Choice { to, known };
        }
        let lightest = known.iter().map(|(_, load)| *load).min();
        let to = match lightest {
            Some(lightest) if self.mine >= self.rules.low_water && lightest < self.mine => {
                let most = (lightest + self.rules.near).min(self.rules.high_water).max(lightest);
                let light: Vec<NodeId> = known
                    .iter()
                    .filter(|(_, load)| *load <= most && *load < self.mine)
                    .map(|(node, _)| *node)
                    .collect();
                light[rng.random_range(0..light.len())]
            }
            _ => self.me,
        };
        known.push((self.me, self.mine));
        Choice { to, known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    fn router(mine: Load, others: &[(u64, Load)]) -> Router {
        let mut router = Router::new(NodeId(0), RouteRules::default(), Planted::default());
        router.set_mine(mine);
        others.iter().for_each(|(node, load)| router.reported(0, NodeId(*node), *load));
        router
    }

    fn choose(router: &Router, seed: u64) -> NodeId {
        router.choose(1, |_| true, &mut ChaCha8Rng::seed_from_u64(seed)).to
    }

    #[test]
    fn the_owner_keeps_its_batch_while_it_has_little_to_do() {
        assert_eq!(choose(&router(499, &[(1, 0)]), 1), NodeId(0));
        assert_eq!(choose(&router(500, &[(1, 0)]), 1), NodeId(1));
    }

    #[test]
    fn near_equals_share_and_the_heavy_get_nothing() {
        let router = router(900, &[(1, 100), (2, 180), (3, 400)]);
        let chosen: std::collections::BTreeSet<NodeId> = (0..64).map(|seed| choose(&router, seed)).collect();
        assert_eq!(chosen, [NodeId(1), NodeId(2)].into());
    }

    #[test]
    fn who_refused_is_not_asked_again_and_old_reports_are_not_believed() {
        let mut router = router(900, &[(1, 100)]);
        router.refused(1, NodeId(1));
        router.reported(1, NodeId(2), 300);
        assert_eq!(choose(&router, 3), NodeId(2));
        let late = router.choose(16 * SECOND, |_| true, &mut ChaCha8Rng::seed_from_u64(1));
        assert_eq!(late.to, NodeId(0));
    }

    fn load(parts: LoadParts) -> Load {
        LoadRules::default().load(&parts)
    }

    #[test]
    fn a_node_without_memory_or_disk_is_full_whatever_else_it_has() {
        let RouteRules { low_water, high_water, .. } = RouteRules::default();
        assert_eq!(load(LoadParts { memory: 950, ..LoadParts::default() }), high_water + 1);
        assert_eq!(load(LoadParts { disk: 980, ..LoadParts::default() }), high_water + 1);
        assert!(load(LoadParts { memory: 949, disk: 979, ..LoadParts::default() }) < low_water);
    }

    #[test]
    fn one_kind_of_work_alone_is_shared_and_never_refused() {
        let RouteRules { low_water, high_water, .. } = RouteRules::default();
        for parts in [
            LoadParts { cpu: 1_000, ..LoadParts::default() },
            LoadParts { cpu: 300, io_wait: 700, ..LoadParts::default() },
            LoadParts { io_wait: 1_000, ..LoadParts::default() },
            LoadParts { fetches: 1_000, ..LoadParts::default() },
            LoadParts { mailbox: 2_000, ..LoadParts::default() },
            LoadParts { load_average: u32::MAX, ..LoadParts::default() },
        ] {
            assert_eq!(load(parts), low_water, "{parts:?}");
        }
        let healthy =
            LoadParts { cpu: 1_000, fetches: 700, load_average: 1_000, memory: 500, disk: 500, ..LoadParts::default() };
        assert_eq!(load(healthy), 600, "645, in steps");
        let exactly = LoadRules { near: 0, ..LoadRules::default() };
        assert_eq!(exactly.load(&healthy), 645);
        assert!((low_water..high_water).contains(&load(healthy)));
        assert_eq!(load(LoadParts::default()), 0);
    }

    #[test]
    fn a_node_with_all_hands_full_refuses() {
        let RouteRules { high_water, .. } = RouteRules::default();
        let full = LoadParts {
            cpu: 1_000,
            fetches: 1_000,
            load_average: 2_000,
            memory: 900,
            disk: 500,
            ..LoadParts::default()
        };
        assert!(load(full) > high_water, "{}", load(full));
        let more = LoadParts { mailbox: 2_000, ..full };
        assert_eq!(load(more), high_water + 1, "full is full");
        let waits = LoadParts { cpu: 100, io_wait: 900, mailbox: 2_000, ..full };
        assert!(load(waits) > high_water, "{}", load(waits));
    }

    #[test]
    fn two_full_nodes_do_not_hand_a_batch_to_and_fro() {
        let mine = load(LoadParts { memory: 1_000, cpu: 1_000, fetches: 1_000, ..LoadParts::default() });
        let mut router = router(mine, &[(1, 300), (2, 320)]);
        router.refused(1, NodeId(1));
        router.refused(1, NodeId(2));
        for seed in 0..32 {
            assert_eq!(choose(&router, seed), NodeId(0), "whoever refused is not asked again");
        }
    }

    #[test]
    fn nodes_of_one_machine_keep_what_they_own() {
        let busy = |fetches| LoadParts {
            cpu: 1_000,
            load_average: 1_500,
            memory: 400,
            disk: 400,
            fetches,
            ..LoadParts::default()
        };
        let (mine, other) = (load(busy(600)), load(busy(450)));
        assert!(mine >= RouteRules::default().low_water, "{mine}");
        assert_eq!(choose(&router(mine, &[(1, other)]), 1), NodeId(0), "{mine} and {other}");
        let idle = load(busy(0));
        assert_eq!(choose(&router(load(busy(1_000)), &[(1, idle)]), 1), NodeId(1), "a real difference counts");
    }

    #[test]
    fn a_part_weighs_as_much_as_it_was_given() {
        let none = LoadWeights { cpu: 0, io_wait: 0, memory: 0, disk: 0, fetches: 0, mailbox: 0, load_average: 0 };
        let only_cpu = LoadRules { weights: LoadWeights { cpu: 1, ..none }, near: 1, ..LoadRules::default() };
        assert_eq!(only_cpu.load(&LoadParts { cpu: 770, memory: 900, fetches: 1_000, ..LoadParts::default() }), 770);
        let nothing = LoadRules { weights: none, ..LoadRules::default() };
        assert_eq!(nothing.load(&LoadParts { cpu: 770, ..LoadParts::default() }), 0);
        assert_eq!(nothing.load(&LoadParts { memory: 1_000, ..LoadParts::default() }), nothing.high_water + 1);
    }

    proptest! {
        #[test]
        fn never_to_the_overloaded_while_an_idle_one_is_known(
            mine in 0..1_200u32,
            loads in proptest::collection::vec(0..1_200u32, 0..6),
            seed in any::<u64>(),
        ) {
            let others: Vec<(u64, Load)> = loads.iter().enumerate().map(|(at, load)| (at as u64 + 1, *load)).collect();
            let router = router(mine, &others);
            let choice = router.choose(1, |_| true, &mut ChaCha8Rng::seed_from_u64(seed));
            let load_of = |node: NodeId| choice.known.iter().find(|(known, _)| *known == node).unwrap().1;
            let idle = choice.known.iter().any(|(_, load)| *load < router.rules().low_water);
            prop_assert!(!(idle && load_of(choice.to) > router.rules().high_water));
        }
    }
}
