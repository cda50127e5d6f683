//! What a node's part in its cluster counts. Clones share their values.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use proto::cluster::coordinator::Sight;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SituationLabel {
    situation: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Counts of leases, batches, repair and membership.
#[derive(Clone, Debug, Default)]
pub struct ClusterMetrics {
    /// Slots held at the last look.
    pub leases_held: Gauge,
    /// Leases that began.
    pub leases_acquired: Counter,
    /// Leases that ended.
    pub leases_lost: Counter,
    /// Nodes on the ring.
    pub members: Gauge,
    /// Nodes alive.
    pub alive: Gauge,
    /// Slots that a comparison of digests found to differ.
    pub repair_differences: Counter,
    /// Writes of repair that changed a record.
    pub repair_merges: Counter,
    /// Batches that went out.
    pub batches_sent: Counter,
    /// Batches that this node refused.
    pub batches_refused: Counter,
    /// URLs without an outcome that were put back.
    pub urls_put_back: Counter,
    /// Pages whose content this node keeps.
    pub pages_kept: Counter,
    /// Fetches of this node that failed.
    pub failures: Counter,
    /// Pages of this node that lack their second copy.
    pub contents_lacking: Gauge,
    /// Pages that this node had copied to another.
    pub contents_copied: Counter,
    /// Pages that had no second copy in time, and are fetched again.
    pub contents_late: Counter,
    situations: Family<SituationLabel, Counter>,
    ignored: Family<ReasonLabel, Counter>,
}

impl ClusterMetrics {
    /// Shows them in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("leases_held", "Slots that this node may serve", self.leases_held.clone());
        registry.register("leases_acquired", "Leases that began", self.leases_acquired.clone());
        registry.register("leases_lost", "Leases that ended", self.leases_lost.clone());
        registry.register("cluster_members", "Nodes on the ring", self.members.clone());
        registry.register("cluster_alive", "Nodes believed to be alive", self.alive.clone());
        registry.register(
            "repair_differences",
            "Slots found to differ from a replica",
            self.repair_differences.clone(),
        );
        registry.register("repair_merges", "Writes of repair that changed a record", self.repair_merges.clone());
        registry.register("batches_sent", "Batches handed to a node", self.batches_sent.clone());
        registry.register("batches_refused", "Batches refused as too busy", self.batches_refused.clone());
        registry.register("urls_put_back", "URLs without an outcome put back", self.urls_put_back.clone());
        registry.register("pages_kept", "Pages whose content this node keeps", self.pages_kept.clone());
        registry.register("failed_fetches", "Fetches of this node that failed", self.failures.clone());
        registry.register("contents_lacking", "Pages here without their second copy", self.contents_lacking.clone());
        registry.register("contents_copied", "Pages copied to another node", self.contents_copied.clone());
        registry.register(
            "contents_late",
            "Pages fetched again because their copy was late",
            self.contents_late.clone(),
        );
        registry.register("situations", "Unusual situations in the cluster, by which", self.situations.clone());
        registry.register("letters_ignored", "Letters that changed nothing, by why", self.ignored.clone());
    }

    /// Takes in what was decided.
    pub fn saw(&self, sight: &Sight) {
        match sight {
            Sight::LeaseHeld { acquired: true, .. } => drop(self.leases_acquired.inc()),
            Sight::LeaseLost { .. } => drop(self.leases_lost.inc()),
            Sight::BatchSent { .. } => drop(self.batches_sent.inc()),
            Sight::BatchRefused { .. } => drop(self.batches_refused.inc()),
            Sight::BatchPutBack { urls, .. } => drop(self.urls_put_back.inc_by(urls.len() as u64)),
            Sight::Ignored { why, .. } => drop(self.ignored.get_or_create(&ReasonLabel { reason: why }).inc()),
            Sight::Sometimes(situation) => {
                match *situation {
                    "repair_found_difference" => drop(self.repair_differences.inc()),
                    "repair_brought_records" => drop(self.repair_merges.inc()),
                    _ => {}
                }
                self.situations.get_or_create(&SituationLabel { situation }).inc();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::id::{NodeId, Slot};

    #[test]
    fn leases_letters_and_repair_are_counted_by_name() {
        let (metrics, mut registry) = (ClusterMetrics::default(), Registry::with_prefix("orbweaver"));
        metrics.register(&mut registry);
        let held = |acquired| Sight::LeaseHeld { slot: Slot(1), until: 9, acquired };
        [held(true), held(false), Sight::LeaseLost { slot: Slot(1) }].iter().for_each(|sight| metrics.saw(sight));
        metrics.saw(&Sight::Sometimes("repair_found_difference"));
        metrics.saw(&Sight::Sometimes("repair_brought_records"));
        metrics.saw(&Sight::Ignored { from: NodeId(1), why: "of a former life" });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "orbweaver_leases_acquired_total 1",
            "orbweaver_leases_lost_total 1",
            "orbweaver_repair_differences_total 1",
            "orbweaver_repair_merges_total 1",
            "orbweaver_letters_ignored_total{reason=\"of a former life\"} 1",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} in\n{text}");
        }
    }
}
