//! The section `[cluster.load]`: what a node's load is made of, and the marks by which batches are shared.

use proto::cluster::route::{LoadRules, LoadWeights, RouteRules};
use proto::crawl::politeness::SECOND;
use serde::{Deserialize, Serialize};

use super::{ConfigError, wrong};

/// More than enough to tell seven parts apart.
const WEIGHT_MAX: u32 = 1_000;
/// Loads are measured every two seconds, and two reports may get lost.
const REPORT_AGE_LEAST_S: u64 = 6;

/// What makes a node busy, and what it does then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadConfig {
    /// Weight of processor time in use.
    pub cpu: u32,
    /// Weight of processor time spent waiting for disks.
    pub io_wait: u32,
    /// Weight of memory in use.
    pub memory: u32,
    /// Weight of disk in use.
    pub disk: u32,
    /// Weight of running fetches.
    pub fetches: u32,
    /// Weight of the fullest mailbox.
    pub mailbox: u32,
    /// Weight of the load average.
    pub load_average: u32,
    /// With so much of the machine's memory in use the node is full, in hundredths.
    pub memory_full_percent: u8,
    /// With so much of its disk in use the node is full, in hundredths.
    pub disk_full_percent: u8,
    /// Below it a node keeps its batches, in thousandths.
    pub low_water: u32,
    /// Above it a node refuses batches, in thousandths.
    pub high_water: u32,
    /// Loads that differ by no more than this are nearly equal, in thousandths.
    pub near: u32,
    /// An older report of a load is not believed.
    pub report_age_max_s: u64,
}

impl Default for LoadConfig {
    fn default() -> Self {
        let (load, route) = (LoadRules::default(), RouteRules::default());
        let LoadWeights { cpu, io_wait, memory, disk, fetches, mailbox, load_average } = load.weights;
        LoadConfig {
            cpu,
            io_wait,
            memory,
            disk,
            fetches,
            mailbox,
            load_average,
            memory_full_percent: (load.memory_full / 10) as u8,
            disk_full_percent: (load.disk_full / 10) as u8,
            low_water: route.low_water,
            high_water: route.high_water,
            near: route.near,
            report_age_max_s: route.report_age_max / SECOND,
        }
    }
}

impl LoadConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let weights = [
            ("cpu", self.cpu),
            ("io_wait", self.io_wait),
            ("memory", self.memory),
            ("disk", self.disk),
            ("fetches", self.fetches),
            ("mailbox", self.mailbox),
            ("load_average", self.load_average),
        ];
        for (name, weight) in weights {
            if weight > WEIGHT_MAX {
                return Err(wrong(format!("cluster.load.{name}"), format!("must be between 0 and {WEIGHT_MAX}")));
            }
        }
        if weights.iter().all(|(_, weight)| *weight == 0) {
            return Err(wrong(
                "cluster.load.cpu",
                "is 0 like all other weights: then no node is ever busy; give one a weight",
            ));
        }
        for (name, percent) in
            [("memory_full_percent", self.memory_full_percent), ("disk_full_percent", self.disk_full_percent)]
        {
            if !(1..=100).contains(&percent) {
                return Err(wrong(format!("cluster.load.{name}"), "must be between 1 and 100"));
            }
        }
        if !(1..=1_000).contains(&self.high_water) {
            return Err(wrong("cluster.load.high_water", "must be between 1 and 1000, all that a node can do"));
        }
        if self.low_water >= self.high_water {
            let reason = format!(
                "is {}, and must be below cluster.load.high_water, {}: a node gives batches away before it refuses them",
                self.low_water, self.high_water
            );
            return Err(wrong("cluster.load.low_water", reason));
        }
        if self.near > 1_000 {
            return Err(wrong("cluster.load.near", "must be between 0 and 1000"));
        }
        if !(REPORT_AGE_LEAST_S..=3_600).contains(&self.report_age_max_s) {
            let reason = format!(
                "must be between {REPORT_AGE_LEAST_S} and 3600: loads are measured every two seconds, and letters get lost"
            );
            return Err(wrong("cluster.load.report_age_max_s", reason));
        }
        Ok(())
    }

    pub(super) fn rules(&self) -> LoadRules {
        LoadRules {
            weights: LoadWeights {
                cpu: self.cpu,
                io_wait: self.io_wait,
                memory: self.memory,
                disk: self.disk,
                fetches: self.fetches,
                mailbox: self.mailbox,
                load_average: self.load_average,
            },
            memory_full: u32::from(self.memory_full_percent) * 10,
            disk_full: u32::from(self.disk_full_percent) * 10,
            low_water: self.low_water,
            high_water: self.high_water,
            near: self.near,
        }
    }

    pub(super) fn route(&self) -> RouteRules {
        RouteRules {
            low_water: self.low_water,
            high_water: self.high_water,
            near: self.near,
            report_age_max: self.report_age_max_s * SECOND,
        }
    }
}
