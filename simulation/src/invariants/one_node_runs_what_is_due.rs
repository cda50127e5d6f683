//! I18: scripts of one job are never executed on two nodes at a time, no run is executed again that is over, every claim of a job is larger than those
//! before, and when the cluster has come to rest every run that was wanted is over.
//!
//! Harm: a script that makes a thousand URIs an hour makes two thousand; a run that somebody was told of never comes.
//!
//! A process that is stopped cannot kill its script: overlaps with one are not judged. What is over is known to whoever hears of enough disks; when disks lost
//! something, it need not be.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::{Broken, Invariant};
use crate::world::oracle::{NodeFacts, Oracle};
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct OneNodeRunsWhatIsDue {
    /// Executions under way: where, and whose.
    under_way: BTreeMap<u64, (NodeId, String)>,
    wanted: BTreeSet<(String, String)>,
    over: BTreeSet<(String, String)>,
    /// The last claim of each job, and whose it is.
    claims: BTreeMap<String, (u32, NodeId)>,
    /// Those that are known to be over.
    done: BTreeSet<(String, String)>,
}

/// Whether those who are up can know everything that was acknowledged: all nodes that there were are, but W − 1 and those of whom they know that they have handed
/// over and left.
pub(super) fn all_is_known(facts: &Oracle, up: &BTreeSet<NodeId>) -> bool {
    let may_know = |(node, is): &(&NodeId, &NodeFacts)| is.gone_to.is_disjoint(up) && !up.contains(node);
    let away = facts.nodes.iter().filter(may_know).count();
    away < facts.write_quorum && nothing_is_undone(facts)
}

/// Whether what was acknowledged of jobs stays.
pub(super) fn nothing_is_undone(facts: &Oracle) -> bool {
    facts.disks_lost.is_empty()
}

impl OneNodeRunsWhatIsDue {
    /// Says which run is not over though it was wanted.
    pub fn missing(&self, facts: &Oracle, up: &BTreeSet<NodeId>) -> Option<String> {
        if !all_is_known(facts, up) {
            return None;
        }
        let (job, run) = self.wanted.difference(&self.over).next()?;
        Some(format!("run {run} of job {job} was wanted and is not over"))
    }
}

impl Invariant for OneNodeRunsWhatIsDue {
    const NAME: &'static str = "I18 one_node_runs_what_is_due";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::JobClaimed { node, job, number } => {
                let (last, by) = self.claims.get(job).copied().unwrap_or((0, *node));
                // What was given up and made anew may be kept after all, later than what followed it.
                if *number <= last && *node != by && nothing_is_undone(before) {
                    let what = format!("job {job} is claimed with {number}, and node {} had {last}", by.0);
                    return Broken::on(*node, what);
                }
                if *number > last {
                    self.claims.insert(job.clone(), (*number, *node));
                }
            }
            Event::RunWanted { job, run } => {
                self.wanted.insert((job.clone(), run.clone()));
            }
            Event::RunOver { job, run } => {
                self.over.insert((job.clone(), run.clone()));
            }
            Event::RunDone { job, run } => {
                self.done.insert((job.clone(), run.clone()));
            }
            Event::ScriptStarted { node, job, run, execution } => {
                let others = self.under_way.values().filter(|(at, of)| of == job && !before.is_paused(*at));
                if let Some((other, _)) = others.into_iter().next() {
                    return Broken::on(*node, format!("run {run} of job {job} begins while node {} runs one", other.0));
                }
                if self.done.contains(&(job.clone(), run.clone())) && nothing_is_undone(before) {
                    return Broken::on(*node, format!("run {run} of job {job} begins again, and it is over"));
                }
                self.under_way.insert(*execution, (*node, job.clone()));
            }
            Event::ScriptEnded { execution, .. } => {
                self.under_way.remove(execution);
            }
            // Scripts die with who started them.
            Event::NodeCrashed { node } => self.under_way.retain(|_, (at, _)| at != node),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{A, B, C, show};
    use super::*;

    fn started(node: NodeId, run: &str, execution: u64) -> Event {
        Event::ScriptStarted { node, job: "job".into(), run: run.into(), execution }
    }

    fn ended(node: NodeId, execution: u64) -> Event {
        Event::ScriptEnded { node, execution }
    }

    fn done(run: &str) -> Event {
        Event::RunDone { job: "job".into(), run: run.into() }
    }

    fn judge<const N: usize>(events: [Event; N]) -> Result<(), Broken> {
        show(&mut OneNodeRunsWhatIsDue::default(), events.map(|event| (0, event)))
    }

    #[test]
    fn a_claim_that_others_had_breaks_it() {
        let claimed = |node, number| Event::JobClaimed { node, job: "job".into(), number };
        assert_eq!(judge([claimed(A, 1), claimed(B, 2), claimed(A, 5)]), Ok(()));
        assert!(judge([claimed(A, 1), claimed(B, 1)]).is_err());
        assert_eq!(judge([claimed(A, 2), claimed(A, 1), claimed(B, 3)]), Ok(()));
        assert!(judge([claimed(A, 2), claimed(A, 1), claimed(B, 2)]).is_err());
    }

    #[test]
    fn one_after_the_other_is_fine_and_so_is_again_after_a_death() {
        assert_eq!(judge([started(A, "1", 1), ended(A, 1), started(B, "1", 2), ended(B, 2), done("1")]), Ok(()));
        assert_eq!(judge([started(A, "1", 1), Event::NodeCrashed { node: A }, started(B, "1", 2)]), Ok(()));
        assert_eq!(judge([started(A, "1", 1), Event::NodePaused { node: A }, started(B, "1", 2)]), Ok(()));
    }

    #[test]
    fn two_at_once_and_again_what_is_over_break_it() {
        assert!(judge([started(A, "1", 1), started(B, "1", 2)]).is_err());
        assert!(judge([started(A, "1", 1), started(B, "2", 2)]).is_err(), "another run of the job");
        assert!(judge([started(A, "1", 1), ended(A, 1), done("1"), started(B, "1", 2)]).is_err());
        let lost = Event::DiskWiped { node: C };
        assert_eq!(judge([started(A, "1", 1), ended(A, 1), done("1"), lost, started(B, "1", 2)]), Ok(()));
    }

    #[test]
    fn at_rest_every_run_is_over() {
        let missing = |events: Vec<Event>, up: &[NodeId]| {
            let mut invariant = OneNodeRunsWhatIsDue::default();
            let mut oracle = Oracle::new(&crate::world::plan::Plan::from_seed(1));
            for event in events {
                invariant.see(&oracle, 0, &event).unwrap();
                oracle.see(&event);
            }
            invariant.missing(&oracle, &up.iter().copied().collect())
        };
        let wanted = || Event::RunWanted { job: "job".into(), run: "1".into() };
        let with = |events: &[Event]| {
            let there = [A, B, C].map(|node| Event::NodeStarted { node, boot: 0 });
            there.iter().chain(events).cloned().collect::<Vec<Event>>()
        };
        assert!(missing(with(&[wanted()]), &[A, B, C]).is_some());
        assert!(missing(with(&[wanted()]), &[A, B]).is_some(), "one may be away");
        assert_eq!(missing(with(&[wanted()]), &[A]), None, "too few to know what was wanted");
        let over = Event::RunOver { job: "job".into(), run: "1".into() };
        assert_eq!(missing(with(&[wanted(), over]), &[A, B, C]), None);
    }
}
