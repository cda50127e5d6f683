//! What must always hold, one property per file: each is a small state machine that looks at the events of a run.

use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use serde::Serialize;

use crate::world::plan::Plan;
use crate::world::trace::Event;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Its file.
    pub invariant: &'static str,
    /// When, in true time.
    pub at: Micros,
    /// Where, if on one node.
    pub node: Option<NodeId>,
    /// What was seen.
    pub what: String,
}

/// All invariants.
pub struct Invariants {
    violation: Option<Violation>,
}

impl Invariants {
    /// The invariants at the beginning of a run of `plan`.
    pub fn new(_plan: &Plan) -> Invariants {
        Invariants { violation: None }
    }

    /// Looks at an event.
    pub fn see(&mut self, _at: Micros, _event: &Event) {}

    /// What was found first.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// In the calm phase: what is still missing until the cluster has come to rest; `None` when nothing is.
    pub fn missing(&mut self, _at: Micros) -> Option<String> {
        None
    }
}
