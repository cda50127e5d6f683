//! The planted defects of this layer: those that few seeds catch here, or a plan of the corpus does. Those of jobs, sites and their limits, which do not run here, are for the pure layer alone.

use proto::cluster::mutant::Mutant as Defect;

use crate::layer::Mutant;

/// Within so many seeds one must be caught.
const SEEDS_MAX: u64 = 50;

/// Defects that are hunted. For each invariant that goes by what nodes say they decided there is one at least.
const HUNTED: &[Defect] = &[
    Defect::DoublePromise,
    Defect::MinorityIsEnough,
    Defect::StragglerGrant,
    Defect::ReleaseWhileBusy,
    Defect::NoLease,
    Defect::AskedTooSoon,
    Defect::AcknowledgeBeforeFsync,
    Defect::OneCopyIsEnough,
    Defect::LastWriteWins,
    Defect::RepairStopsAtDigest,
    Defect::DropAfterOne,
    Defect::LostBatchForgotten,
    Defect::LoadIgnored,
    Defect::FormerLivesCount,
    Defect::RobotsIgnored,
    Defect::UnboundedOutbox,
    Defect::RingKnowsItsNode,
    Defect::RingReweighs,
    Defect::OneDefinitionIsEnough,
    Defect::PageNotCopied,
    Defect::LeaveUntold,
];

pub(super) fn all() -> Vec<Mutant> {
    let mutant = |defect: &Defect| {
        let breaks = crate::pure::mutants::breaks(*defect);
        Mutant { name: defect.name(), seeds_max: SEEDS_MAX, breaks }
    };
    HUNTED.iter().map(mutant).collect()
}
