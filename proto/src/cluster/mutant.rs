//! Planted defects: each breaks one rule of the protocol on purpose, so that the simulator can prove it would notice.
//!
//! They exist only with the feature `mutants`, which no product build enables. Without it a [`Planted`] is empty, and
//! every question whether a defect is planted is the constant `false`.

/// Which defect a core carries, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
}

#[cfg(feature = "mutants")]
impl Planted {
    /// Plants `mutant`.
    pub const fn new(mutant: Mutant) -> Planted {
        Planted { mutant: Some(mutant) }
    }

    /// Says whether it is this one.
    pub fn is(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// Says whether the named defect is planted; `false` in the product, at compile time.
macro_rules! planted {
    ($planted:expr, $name:ident) => {{
        #[cfg(feature = "mutants")]
        let planted = $planted.is($crate::cluster::mutant::Mutant::$name);
        #[cfg(not(feature = "mutants"))]
        let planted = {
            let _ = &$planted;
            false
        };
        planted
    }};
}
pub(crate) use planted;

#[cfg(feature = "mutants")]
macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// A rule that is broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)*];

            /// Name as people write it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Mutant::$name => $text,)*
                }
            }

            /// The one with this name.
            pub fn named(name: &str) -> Option<Mutant> {
                Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name)
            }
        }
    };
}

#[cfg(feature = "mutants")]
mutants! {
    /// The holder counts its lease from the answer, in full: no allowance for flight time and drift.
    LeaseFromAnswer => "lease_from_answer",
    /// A voter grants as soon as it starts, having forgotten what it promised.
    VoterForgets => "voter_forgets",
    /// A voter promises a slot that another holder's promise still covers.
    DoublePromise => "double_promise",
    /// One voter is enough.
    MinorityIsEnough => "minority_is_enough",
    /// The holder accepts grants that answer requests older than its own release.
    StragglerGrant => "straggler_grant",
    /// A release drops the promise whatever its number.
    ReleaseOutOfOrder => "release_out_of_order",
    /// A slot is released while requests to its hosts are under way.
    ReleaseWhileBusy => "release_while_busy",
    /// A holder that starts asks for leases at once, though others may still fetch what its former life handed out.
    RestartForgets => "restart_forgets",
    /// The ring's owner fetches without a lease.
    NoLease => "no_lease",
    /// A node that reaches too few voters keeps the slots that it gets no leases for.
    CutOffKeepsSlots => "cut_off_keeps_slots",
    /// A new holder asks the hosts at once.
    NoQuarantine => "no_quarantine",
    /// A fetch may start that ends after the lease.
    LeaseEndIgnored => "lease_end_ignored",
    /// The executor fetches for as long as it likes.
    DeadlineIgnored => "deadline_ignored",
    /// The deadline is sent as the sender's own clock shows it.
    DeadlineOnWrongClock => "deadline_on_wrong_clock",
    /// A batch that nobody answered is given to another node at once.
    ImpatientReroute => "impatient_reroute",
    /// The executor says that a host was asked when the request begins.
    AskedTooSoon => "asked_too_soon",
    /// A replica acknowledges before its disk has the record.
    AcknowledgeBeforeFsync => "acknowledge_before_fsync",
    /// One copy is enough.
    OneCopyIsEnough => "one_copy_is_enough",
    /// The last write wins.
    LastWriteWins => "last_write_wins",
    /// Replicas never compare what they have.
    NoRepair => "no_repair",
    /// Repair only looks at the digest's upper level, and sends nothing.
    RepairStopsAtDigest => "repair_stops_at_digest",
    /// Data of a slot that moved is dropped without asking its owners.
    DropUnasked => "drop_unasked",
    /// Data is dropped when one owner has it.
    DropAfterOne => "drop_after_one",
    /// A replica says that it has what another parts with before it has drawn it.
    HasBeforeDrawn => "has_before_drawn",
    /// A pull takes what was brought over before it, or was on its way then, for all that another has.
    OldTransfersCount => "old_transfers_count",
    /// A lost batch is forgotten.
    LostBatchForgotten => "lost_batch_forgotten",
    /// Links are sent once and never again.
    LinksSentOnce => "links_sent_once",
    /// A page is PROCESSED before its links are kept.
    ProcessedBeforeLinks => "processed_before_links",
    /// Batches go to any node, whatever its load.
    LoadIgnored => "load_ignored",
    /// Messages of former lives count.
    FormerLivesCount => "former_lives_count",
    /// A node that is alone waits for others to find it.
    NoReannounce => "no_reannounce",
    /// robots.txt is not obeyed.
    RobotsIgnored => "robots_ignored",
    /// The first robots.txt of a host counts for ever, whatever a later one says.
    RobotsReadOnce => "robots_read_once",
    /// The queue of discovered links has no bound.
    UnboundedOutbox => "unbounded_outbox",
    /// A node gives itself twice its weight on the ring.
    RingKnowsItsNode => "ring_knows_its_node",
    /// The weights on the ring depend on how many members there are.
    RingReweighs => "ring_reweighs",
    /// A disk forgets a record that was fsynced, when its node starts.
    SyncedForgotten => "synced_forgotten",
    /// What was fetched is fetched again at once.
    FetchedAgain => "fetched_again",
    /// Nodes never compare the definitions that they hold.
    DefinitionsNotCompared => "definitions_not_compared",
    /// A definition is acknowledged when one disk has it.
    OneDefinitionIsEnough => "one_definition_is_enough",
    /// That a node left is known to the living only.
    DeparturesForgotten => "departures_forgotten",
    /// A page is acknowledged without its second copy.
    PageNotCopied => "page_not_copied",
    /// Copies of pages on a disk that was lost still count.
    LostPagesCount => "lost_pages_count",
    /// Generators run on every node, whoever holds their jobs.
    RunAnywhere => "run_anywhere",
    /// A run goes on when the slot of its job is lost.
    RunGoesOn => "run_goes_on",
    /// A run is dispatched before it is written down that it is wanted.
    RunUnwritten => "run_unwritten",
    /// Whoever goes on with a run executes it again, though it has printed.
    PrintedForgotten => "printed_forgotten",
    /// A slot is served when enough others that have nothing of it have said so.
    TheIgnorantSuffice => "the_ignorant_suffice",
    /// Who has said that it has something of a slot is waited for no longer than who says nothing.
    SlowIsSilent => "slow_is_silent",
    /// Who has nothing to hand over leaves, whoever has heard of it.
    LeaveUntold => "leave_untold",
    /// Who gives its place up counts no longer among those who may have something of a slot, though it has not handed over yet.
    LeaversUnasked => "leavers_unasked",
    /// Who joins keeps what others write before it is sure that whoever gets a slot knows of it.
    NewcomersUnknown => "newcomers_unknown",
    /// Whoever gets a slot claims its jobs with the number that others had.
    ClaimsAlike => "claims_alike",
    /// A task counts as handed over before the crawl has it.
    HandedBeforeKept => "handed_before_kept",
    /// That a site is deleted is acknowledged like any other definition, whoever has not heard of it.
    RevokedByHalf => "revoked_by_half",
    /// A record that changes is counted again.
    CountedTwice => "counted_twice",
    /// What a node speaks for it uses at once, whoever has heard of it.
    SpokenForIsUsed => "spoken_for_is_used",
    /// A change of a site by somebody who had not heard that it was deleted may undo that.
    RevocationUndone => "revocation_undone",
    /// A voter grants leases to who has not heard what is deleted.
    UnawareGranted => "unaware_granted",
    /// A voter says that it knows of a deletion while a promise of its to somebody who does not is alive.
    UnawarePromised => "unaware_promised",
}
