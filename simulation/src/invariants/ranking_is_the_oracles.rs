//! I23: a ranking that ends, ends on every node with what one node alone computes from the whole graph; and when faults stop, rankings end.
//!
//! Harm: pages stand where they do not belong, because the links of a node that died, or that two nodes both took for theirs, are missing or counted twice.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::{Event, Phase};

/// How far the scores of all pages may be from the oracle's, together, in billionths: a millionth.
const APART_MAX: u64 = 1_000;

/// See the module.
#[derive(Default)]
pub struct RankingIsTheOracles {
    /// Pages of the graph; none where nothing is ranked.
    pages: Option<u64>,
    /// Who has computed scores in this phase and this life.
    ranked: BTreeSet<NodeId>,
    /// How far the scores of all members of a ranking are from the oracle's so far.
    apart: BTreeMap<u64, u64>,
}

impl RankingIsTheOracles {
    /// Says who has computed nothing.
    pub fn missing(&self, up: &BTreeSet<NodeId>) -> Option<String> {
        self.pages?;
        let silent = up.iter().find(|node| !self.ranked.contains(node))?;
        Some(format!("node {} has computed no scores", silent.0))
    }
}

impl Invariant for RankingIsTheOracles {
    const NAME: &'static str = "I23 ranking_is_the_oracles";

    fn see(&mut self, _before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::GraphKept { pages } => self.pages = Some(*pages),
            Event::PhaseChanged(Phase::Calm) => self.ranked.clear(),
            Event::NodeStarted { node, .. } => drop(self.ranked.remove(node)),
            Event::Ranked { node, ranking, pages, apart } => {
                let all = self.apart.entry(*ranking).or_default();
                *all = all.saturating_add(*apart);
                if Some(*pages) != self.pages || *all > APART_MAX {
                    let what = format!(
                        "ranking {ranking} of {pages} pages of {:?} is {all} billionths from the oracle's",
                        self.pages
                    );
                    return Broken::on(*node, what);
                }
                self.ranked.insert(*node);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, show};
    use super::*;

    fn ranked(node: NodeId, pages: u64, apart: u64) -> Event {
        Event::Ranked { node, ranking: 1, pages, apart }
    }

    #[test]
    fn scores_of_all_pages_within_a_millionth() {
        let judge =
            |event: Event| show(&mut RankingIsTheOracles::default(), [(0, Event::GraphKept { pages: 9 }), (1, event)]);
        assert_eq!(judge(ranked(A, 9, 1_000)), Ok(()));
        assert!(judge(ranked(A, 9, 1_001)).is_err() && judge(ranked(A, 8, 0)).is_err());
    }

    #[test]
    fn what_members_lack_is_added_up() {
        let told = |ranking: [u64; 2]| {
            let event = |node, ranking| Event::Ranked { node, ranking, pages: 9, apart: 600 };
            let events = [(0, Event::GraphKept { pages: 9 }), (1, event(A, ranking[0])), (2, event(B, ranking[1]))];
            show(&mut RankingIsTheOracles::default(), events)
        };
        assert!(told([1, 2]).is_ok() && told([1, 1]).is_err());
    }

    #[test]
    fn at_rest_everybody_has_computed() {
        let mut invariant = RankingIsTheOracles::default();
        assert_eq!(invariant.missing(&[A].into()), None, "nothing is ranked here");
        show(&mut invariant, [(0, Event::GraphKept { pages: 9 }), (1, ranked(A, 9, 0))]).unwrap();
        assert_eq!(invariant.missing(&[A].into()), None);
        assert!(invariant.missing(&[A, B].into()).is_some());
        show(&mut invariant, [(2, Event::NodeStarted { node: A, boot: 1 })]).unwrap();
        assert!(invariant.missing(&[A].into()).is_some(), "another life");
    }
}
