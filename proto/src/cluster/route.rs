//! Which node runs a batch, by load.
//!
//! The owner keeps a batch while its load is below the low-water mark; otherwise it goes to one of the lightest nodes, at random among
//! those that are nearly equal, so that a node that just reported little is not stampeded. A node above its high-water mark
//! answers Busy, and a batch is never sent to one that is known to be above it while one below low-water is known.

use std::collections::BTreeMap;

use rand::RngExt;
use serde::{Deserialize, Serialize};

use super::mutant::{Planted, planted};
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::NodeId;

/// Load in thousandths: 0 is idle, 1000 is all a node can do.
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

/// How much each part counts; the load is their weighted mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
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
    /// The weighted mean of the parts; a part that is full makes a node full, whatever the others say.
    pub fn load(&self, parts: &LoadParts) -> Load {
        let pairs = [
            (self.cpu, parts.cpu),
            (self.io_wait, parts.io_wait),
            (self.memory, parts.memory),
            (self.disk, parts.disk),
            (self.fetches, parts.fetches),
            (self.mailbox, parts.mailbox),
            (self.load_average, parts.load_average),
        ];
        let weights: u64 = pairs.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let sum: u64 = pairs.iter().map(|(weight, part)| u64::from(*weight) * u64::from((*part).min(2_000))).sum();
        sum.checked_div(weights).unwrap_or(0) as Load
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

    #[test]
    fn a_full_part_weighs_as_much_as_it_was_given() {
        let weights = LoadWeights { cpu: 1, ..LoadWeights::default() };
        assert_eq!(weights.load(&LoadParts::default()), 0);
        let only_cpu = LoadWeights { cpu: 1, io_wait: 0, memory: 0, disk: 0, fetches: 0, mailbox: 0, load_average: 0 };
        assert_eq!(only_cpu.load(&LoadParts { cpu: 770, memory: 1_000, ..LoadParts::default() }), 770);
        let none = LoadWeights { cpu: 0, ..only_cpu };
        assert_eq!(none.load(&LoadParts { cpu: 770, ..LoadParts::default() }), 0);
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
