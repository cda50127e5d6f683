//! The disk of a node: writes go into the cache, fsync makes them durable and takes time, hangs or fails. A crash keeps
//! what was fsynced, and of the rest a random prefix.
//!
//! No write is ever there by half. To a log of batches with checksums, as that of the product's store, a batch that is cut in its middle is one that is not
//! there, and so is everything behind it: a shorter prefix. Where that is really tried is said in ARCHITECTURE.md.
//!
//! What a write is, and what durable writes add up to, the layer says through [`Stored`]: records in the pure layer,
//! write batches of the store in the other.

use std::collections::VecDeque;

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::plan::{DiskPlan, Fault, MILLISECOND, Plan, TimedFault};
use super::random::{For, Random};

/// Writes in the cache that no fsync has made durable; more are refused, as by a full disk.
pub const CACHED_WRITES_MAX: usize = 65_536;
/// What a slow disk does.
const SLOW_FACTOR: u64 = 40;

/// What durable writes add up to.
pub trait Stored: Default {
    /// One write, atomic: after a crash it is there, or not.
    type Write;
    /// Names what damage made unreadable.
    type Key;

    /// A write became durable.
    fn apply(&mut self, write: &Self::Write);

    /// A bit flips in something durable, chosen by `draw`: it can no longer be read.
    fn damage(&mut self, draw: &mut Random) -> Option<Self::Key>;
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no space left on the disk")]
pub struct DiskFull;

/// An fsync under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// When it returns.
    pub at: Micros,
    life: u32,
    upto: u64,
    fails: bool,
}

/// What an fsync returned.
#[derive(Debug, PartialEq, Eq)]
pub enum Synced<Write> {
    /// These are durable now; those of earlier fsyncs are too.
    Durable(Vec<Write>),
    /// It failed. What it covered is not durable and has left the cache: the kernel forgets what it could not write, and
    /// another fsync will not try it again.
    Failed,
    /// The process that asked is dead.
    Stale,
}

/// What a crash did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crash {
    /// Writes that became durable though no fsync had returned.
    pub kept: usize,
    /// Writes that are gone.
    pub lost: usize,
}

/// The disk of one node.
pub struct Disk<S: Stored> {
    seed: u64,
    node: NodeId,
    plan: DiskPlan,
    faults_end: Micros,
    faults: Vec<TimedFault>,
    durable: S,
    cache: VecDeque<(u64, S::Write)>,
    written: u64,
    syncs: u64,
    life: u32,
}

impl<S: Stored> Disk<S> {
    /// The empty disk of `node` in a run of `plan`.
    pub fn new(plan: &Plan, node: NodeId) -> Disk<S> {
        let mine = |fault: &&TimedFault| {
            matches!(fault.what, Fault::SlowDisk { node: n } | Fault::HangingSync { node: n } | Fault::FailingSync { node: n }
                | Fault::FullDisk { node: n } if n == node.0)
        };
        Disk {
            seed: plan.seed,
            node,
            plan: plan.disk.clone(),
            faults_end: plan.faults_end(),
            faults: plan.faults.iter().filter(mine).cloned().collect(),
            durable: S::default(),
            cache: VecDeque::new(),
            written: 0,
            syncs: 0,
            life: 0,
        }
    }

    /// Puts a write into the cache.
    pub fn write(&mut self, at: Micros, write: S::Write) -> Result<(), DiskFull> {
        let full = self.faults.iter().any(|fault| matches!(fault.what, Fault::FullDisk { .. }) && fault.lasts_at(at));
        if full || self.cache.len() >= CACHED_WRITES_MAX {
            return Err(DiskFull);
        }
        self.written += 1;
        self.cache.push_back((self.written, write));
        Ok(())
    }

    /// Begins an fsync of everything written so far; the layer hands it back to [`Disk::synced`] when its time comes.
    pub fn sync(&mut self, at: Micros) -> Sync {
        self.syncs += 1;
        let mut draw = Random::at(self.seed, For::Sync, self.node.0, self.syncs);
        let mut takes = self.plan.sync_min_us + draw.below(self.plan.sync_spread_us + 1);
        let (hangs, longer) = (draw.number() % 1_000_000, draw.below(self.plan.hang_max_ms * MILLISECOND + 1));
        let lasts =
            |kind: fn(&Fault) -> bool| self.faults.iter().filter(move |fault| fault.lasts_at(at) && kind(&fault.what));
        // A slow disk takes longer for its own work, not for the time it hangs: that would outlast every fault.
        for _ in lasts(|fault| matches!(fault, Fault::SlowDisk { .. })) {
            takes *= SLOW_FACTOR;
        }
        if at < self.faults_end && hangs < u64::from(self.plan.hang_ppm) {
            takes += longer;
        }
        for fault in lasts(|fault| matches!(fault, Fault::HangingSync { .. })) {
            takes = takes.max(fault.ends() - at);
        }
        let fails = lasts(|fault| matches!(fault, Fault::FailingSync { .. })).next().is_some();
        Sync { at: at + takes, life: self.life, upto: self.written, fails }
    }

    /// An fsync returns.
    pub fn synced(&mut self, sync: &Sync) -> Synced<S::Write> {
        if sync.life != self.life {
            return Synced::Stale;
        }
        let covered = self.cache.iter().take_while(|(number, _)| *number <= sync.upto).count();
        let writes: Vec<S::Write> = self.cache.drain(..covered).map(|(_, write)| write).collect();
        if sync.fails {
            return Synced::Failed;
        }
        for write in &writes {
            self.durable.apply(write);
        }
        Synced::Durable(writes)
    }

    /// The process dies. Of what was in the cache a random prefix is durable; `kept` is told of each write that became so.
    pub fn crash(&mut self, mut kept: impl FnMut(&S::Write)) -> Crash {
        self.life += 1;
        let mut draw = Random::at(self.seed, For::Crash, self.node.0, u64::from(self.life));
        let keep = draw.below(self.cache.len() as u64 + 1) as usize;
        let report = Crash { kept: keep, lost: self.cache.len() - keep };
        for (_, write) in self.cache.drain(..).take(keep) {
            self.durable.apply(&write);
            kept(&write);
        }
        report
    }

    /// Everything is gone.
    pub fn wipe(&mut self) {
        self.life += 1;
        self.cache.clear();
        self.durable = S::default();
    }

    /// A bit flips in something durable. Returns what cannot be read any more, if there was anything.
    pub fn flip_bit(&mut self) -> Option<S::Key> {
        self.durable.damage(&mut Random::at(self.seed, For::Damage, self.node.0, u64::from(self.life)))
    }

    /// What a starting process finds.
    pub fn durable(&self) -> &S {
        &self.durable
    }

    /// Writes that are in the cache only.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Numbers(Vec<u32>);

    impl Stored for Numbers {
        type Write = u32;
        type Key = u32;

        fn apply(&mut self, write: &u32) {
            self.0.push(*write);
        }

        fn damage(&mut self, draw: &mut Random) -> Option<u32> {
            let at = draw.below(self.0.len() as u64) as usize;
            (!self.0.is_empty()).then(|| self.0.remove(at))
        }
    }

    fn disk(what: impl IntoIterator<Item = Fault>) -> Disk<Numbers> {
        let mut plan = Plan::from_seed(1);
        plan.disk = DiskPlan { sync_min_us: 100, sync_spread_us: 50, hang_ppm: 0, hang_max_ms: 0 };
        plan.faults = what.into_iter().map(|what| TimedFault { id: 1, at_ms: 1_000, lasts_ms: 1_000, what }).collect();
        Disk::new(&plan, NodeId(2))
    }

    fn fill(disk: &mut Disk<Numbers>, numbers: std::ops::Range<u32>) {
        for number in numbers {
            disk.write(0, number).expect("there is room");
        }
    }

    #[test]
    fn an_fsync_covers_what_was_written_before_it() {
        let mut disk = disk(None);
        fill(&mut disk, 0..3);
        let sync = disk.sync(0);
        assert!((100..=150).contains(&sync.at));
        fill(&mut disk, 3..5);
        assert_eq!(disk.synced(&sync), Synced::Durable(vec![0, 1, 2]));
        assert_eq!(disk.durable().0, [0, 1, 2]);
        assert_eq!(disk.cached(), 2);
    }

    #[test]
    fn a_later_fsync_may_return_first() {
        let mut disk = disk(None);
        fill(&mut disk, 0..1);
        let first = disk.sync(0);
        fill(&mut disk, 1..2);
        let second = disk.sync(0);
        assert_eq!(disk.synced(&second), Synced::Durable(vec![0, 1]));
        assert_eq!(disk.synced(&first), Synced::Durable(vec![]));
    }

    #[test]
    fn a_crash_keeps_what_was_fsynced_and_a_prefix_of_the_rest() {
        let mut seen = std::collections::BTreeSet::new();
        let mut disk = disk(None);
        for _ in 0..50 {
            disk.wipe();
            fill(&mut disk, 0..2);
            let sync = disk.sync(0);
            disk.synced(&sync);
            fill(&mut disk, 2..6);
            let late = disk.sync(0);
            let mut told = Vec::new();
            let report = disk.crash(|write| told.push(*write));
            assert_eq!(report.kept + report.lost, 4);
            assert_eq!(disk.durable().0, (0..2 + report.kept as u32).collect::<Vec<_>>());
            assert_eq!(told, (2..2 + report.kept as u32).collect::<Vec<_>>());
            assert_eq!(disk.synced(&late), Synced::Stale);
            seen.insert(report.kept);
        }
        assert_eq!(seen.len(), 5, "every prefix happens: {seen:?}");
    }

    #[test]
    fn what_a_failed_fsync_covered_is_gone() {
        let mut disk = disk(Some(Fault::FailingSync { node: 2 }));
        fill(&mut disk, 0..3);
        let sync = disk.sync(1_500_000);
        assert_eq!(disk.synced(&sync), Synced::Failed);
        let sync = disk.sync(2_500_000);
        assert_eq!(disk.synced(&sync), Synced::Durable(vec![]));
    }

    #[test]
    fn faults_of_a_disk_last_as_long_as_they_say() {
        let mut hanging = disk(Some(Fault::HangingSync { node: 2 }));
        assert_eq!(hanging.sync(1_200_000).at, 2_000_000);
        assert!(hanging.sync(2_000_000).at < 2_001_000);
        let mut hanging_and_slow = disk([Fault::HangingSync { node: 2 }, Fault::SlowDisk { node: 2 }]);
        assert_eq!(hanging_and_slow.sync(1_200_000).at, 2_000_000);
        let mut full = disk(Some(Fault::FullDisk { node: 2 }));
        assert_eq!(full.write(1_500_000, 7), Err(DiskFull));
        assert_eq!(full.write(2_000_000, 7), Ok(()));
        let mut other = disk(Some(Fault::FullDisk { node: 3 }));
        assert_eq!(other.write(1_500_000, 7), Ok(()));
    }

    #[test]
    fn damage_takes_one_record_and_names_it() {
        let mut disk = disk(None);
        fill(&mut disk, 0..3);
        let sync = disk.sync(0);
        disk.synced(&sync);
        let gone = disk.flip_bit().expect("something was durable");
        assert!(!disk.durable().0.contains(&gone));
        disk.wipe();
        assert_eq!(disk.flip_bit(), None);
    }
}
