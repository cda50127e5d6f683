//! A layer runs a plan: the pure one drives the cores alone, the other the product's actors. The tool knows only this.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;

use crate::invariants::Violation;
use crate::world::plan::Plan;
use crate::world::trace::{Entry, Event, Keep, Trace};

/// Something that can run plans. A run depends on plan and options alone, and shares nothing with other runs: many
/// happen at once, each on its own thread.
pub trait Layer: Sync {
    /// Name as people write it.
    fn name(&self) -> &'static str;

    /// Runs `plan` until the cluster has come to rest, the calm phase is over, or an invariant does not hold.
    fn run(&self, plan: &Plan, options: &RunOptions) -> RunReport;

    /// The planted defects that this layer must notice.
    fn mutants(&self) -> Vec<Mutant>;

    /// The invariants that this layer judges, by their numbers: each of them must notice one of the mutants.
    fn judges(&self) -> Vec<&'static str>;

    /// Every interesting situation that some seed must reach.
    fn points(&self) -> Vec<Point>;
}

/// An interesting situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Name as people write it.
    pub name: &'static str,
    /// So many seeds must have reached it. At least sixteen times as many as it takes to reach it once: then one run of
    /// millions fails by chance.
    pub within: u64,
}

impl Point {
    /// Points that so many seeds must have reached.
    pub fn all<const N: usize>(within: u64, names: [&'static str; N]) -> impl Iterator<Item = Point> {
        names.into_iter().map(move |name| Point { name, within })
    }
}

/// How a run differs from the usual one.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// The planted defect, by name.
    pub mutant: Option<&'static str>,
    /// How much of the trace the report carries.
    pub keep: Keep,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions { mutant: None, keep: Keep::Nothing }
    }
}

/// A planted defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// Name as people write it.
    pub name: &'static str,
    /// Within so many seeds it must be caught.
    pub seeds_max: u64,
    /// What it is planted for: the numbers of the invariants of which one must notice it.
    pub breaks: &'static [&'static str],
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// Equal in every run of one plan.
    pub hash: u64,
    /// Events and notes in the trace.
    pub events: u64,
    /// When the run ended, in true time.
    pub ended_at: Micros,
    /// How long after the last fault the cluster came to rest, if it did.
    pub rested_after: Option<Micros>,
    /// What did not hold.
    pub violation: Option<Violation>,
    /// Interesting situations, and how often.
    pub sometimes: BTreeMap<&'static str, u64>,
    /// Messages sent between nodes.
    pub messages: u64,
    /// Requests to hosts.
    pub fetches: u64,
    /// URLs that were ever kept.
    pub urls: u64,
    /// Fetches of a URL beyond the first good one of its round.
    pub redundant_fetches: u64,
    /// Requests that overlapped with one of a stopped process: no protocol can prevent them.
    pub overlaps_with_stopped: u64,
    /// What was kept of the trace.
    pub kept: Vec<(Micros, Entry)>,
}

impl RunReport {
    /// Reads everything from the trace; `rested_at` is when [`Invariants::missing`] had nothing to name any more.
    ///
    /// [`Invariants::missing`]: crate::invariants::Invariants::missing
    pub fn new(plan: &Plan, mut trace: Trace, rested_at: Option<Micros>, messages: u64) -> RunReport {
        let hash = trace.hash();
        let invariants = trace.invariants();
        let (redundant_fetches, overlaps_with_stopped) =
            (invariants.redundant_fetches(), invariants.overlaps_with_stopped());
        let urls = invariants.oracle().urls.len() as u64;
        RunReport {
            hash,
            events: trace.events() + trace.notes(),
            ended_at: trace.now(),
            rested_after: rested_at.map(|at| at.saturating_sub(plan.faults_end())),
            violation: trace.violation().cloned(),
            sometimes: trace.sometimes_reached().clone(),
            messages,
            fetches: trace.fetches(),
            urls,
            redundant_fetches,
            overlaps_with_stopped,
            kept: trace.take_kept(),
        }
    }

    /// The events that were kept.
    pub fn kept_events(&self) -> impl Iterator<Item = (Micros, &Event)> {
        self.kept.iter().filter_map(|(at, entry)| match entry {
            Entry::Event(event) => Some((*at, event)),
            Entry::Note(..) => None,
        })
    }
}
