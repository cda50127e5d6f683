//! Sites of a run: which hosts they span, and what people do to them.

use serde::{Deserialize, Serialize};

/// A site, and every operation on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SitePlan {
    /// Hosts of the synthetic web that it spans; their first pages are its root URLs.
    pub hosts: Vec<u32>,
    /// Pages after which nothing more of it is fetched; 0 for no limit.
    #[serde(default)]
    pub pages_max: u64,
    /// URLs that may fail for good, after which the same holds; 0 for no limit.
    #[serde(default)]
    pub errors_max: u64,
    /// What people do to it, by time.
    #[serde(default, rename = "operation")]
    pub operations: Vec<SiteOperation>,
}

/// Somebody does something to a site, and asks again until there is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteOperation {
    /// When first.
    pub at_ms: u64,
    /// What.
    pub what: Operation,
}

/// What people do to sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// It is made, if it is not there.
    New,
    /// Its limit of pages becomes twice as large.
    MorePages,
    /// Nothing of it is fetched for now.
    Pause,
    /// It goes on.
    GoOn,
    /// It is emptied, and begins again with its root URLs.
    Cleanup,
    /// It is deleted.
    Delete,
}

impl SitePlan {
    /// Refuses what no run can be made of.
    pub(super) fn check(&self, hosts: u32, phase_ms: u64) -> anyhow::Result<()> {
        anyhow::ensure!(self.hosts.iter().all(|host| *host < hosts), "a site spans a host that there is not");
        anyhow::ensure!(!self.hosts.is_empty(), "a site spans no host");
        let in_time = self.operations.iter().all(|operation| operation.at_ms < phase_ms);
        anyhow::ensure!(in_time, "an operation on a site comes after the fault phase");
        Ok(())
    }
}
