//! The planted defects of the pure layer, and which rule each of them breaks.

use proto::cluster::mutant::Mutant as Defect;

use crate::layer::Mutant;

/// Within so many seeds a planted defect must be caught.
const SEEDS_MAX: u64 = 1_000;

pub(super) fn all() -> Vec<Mutant> {
    let mutant = |defect: &Defect| Mutant { name: defect.name(), seeds_max: SEEDS_MAX, breaks: breaks(*defect) };
    Defect::ALL.iter().map(mutant).collect()
}

/// The invariants that a defect is planted for: one of them must notice it.
pub(crate) fn breaks(defect: Defect) -> &'static [&'static str] {
    use Defect::*;
    match defect {
        LeaseFromAnswer => &["I7", "I1"],
        VoterForgets => &["I12"],
        DoublePromise => &["I12"],
        MinorityIsEnough => &["I7"],
        StragglerGrant => &["I7", "I1"],
        ReleaseOutOfOrder => &["I7", "I12"],
        ReleaseWhileBusy => &["I1"],
        RestartForgets => &["I1"],
        NoLease => &["I7", "I1"],
        CutOffKeepsSlots => &["I5"],
        NoQuarantine => &["I2"],
        LeaseEndIgnored => &["I1"],
        DeadlineIgnored => &["I1"],
        DeadlineOnWrongClock => &["I1", "I2"],
        ImpatientReroute => &["I1", "I6"],
        AskedTooSoon => &["I1", "I2"],
        AcknowledgeBeforeFsync => &["I4"],
        OneCopyIsEnough => &["I4"],
        LastWriteWins => &["I3"],
        NoRepair => &["I5"],
        RepairStopsAtDigest => &["I5"],
        DropUnasked => &["I4"],
        DropAfterOne => &["I4"],
        HasBeforeDrawn => &["I4"],
        OldTransfersCount => &["I18"],
        LostBatchForgotten => &["I5"],
        LinksSentOnce => &["I5", "I19"], // tasks are sent like links
        ProcessedBeforeLinks => &["I5"],
        LoadIgnored => &["I11"],
        FormerLivesCount => &["I14"],
        NoReannounce => &["I5"],
        RobotsIgnored => &["I15"],
        RobotsReadOnce => &["I15"],
        UnboundedOutbox => &["I13"],
        RingKnowsItsNode => &["I9"],
        RingReweighs => &["I8"],
        SyncedForgotten => &["I10"],
        FetchedAgain => &["I6"],
        DefinitionsNotCompared => &["I16"],
        OneDefinitionIsEnough => &["I16"],
        DeparturesForgotten => &["I16", "I18"],
        PageNotCopied => &["I17"],
        LostPagesCount => &["I17"],
        RunAnywhere => &["I18"],
        RunGoesOn => &["I18"],
        RunUnwritten => &["I18"],
        PrintedForgotten => &["I19"],
        TheIgnorantSuffice => &["I22"],
        SlowIsSilent => &["I6"],
        LeaveUntold => &["I16"],
        LeaversUnasked => &["I18"],
        NewcomersUnknown => &["I18"],
        ClaimsAlike => &["I18"],
        HandedBeforeKept => &["I19"],
        RevokedByHalf => &["I20"],
        CountedTwice => &["I21"],
        SpokenForIsUsed => &["I22"],
        RevocationUndone => &["I20"],
        UnawareGranted => &["I20"],
        UnawarePromised => &["I20"],
    }
}
