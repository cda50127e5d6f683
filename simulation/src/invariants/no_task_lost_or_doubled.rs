//! I19: what is taken in of a run is what one execution of it printed, and when the cluster has come to rest all of it has reached the crawl.
//!
//! Harm: URIs that a script printed, and that its log counts, are never fetched; or a script that was cut short and executed again leaves both outputs behind.
//!
//! As long as no disk loses what it had: which execution counts is known to whoever hears of enough disks.

use std::collections::{BTreeMap, BTreeSet};

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, UrlId};

use super::one_node_runs_what_is_due::{all_is_known, nothing_is_undone};
use super::{Broken, Invariant};
use crate::world::oracle::Oracle;
use crate::world::trace::Event;

/// See the module.
#[derive(Default)]
pub struct NoTaskLostOrDoubled {
    /// The execution that counts, by job and run, and what it printed.
    printed: BTreeMap<(String, String), (u64, Vec<UrlId>)>,
    taken_in: BTreeMap<(String, String), u64>,
}

impl NoTaskLostOrDoubled {
    /// Says which task has not reached the crawl.
    pub fn missing(&self, facts: &Oracle, up: &BTreeSet<NodeId>) -> Option<String> {
        if !all_is_known(facts, up) {
            return None;
        }
        let known = |task: &UrlId| up.iter().any(|node| facts.nodes[node].disk.contains_key(task));
        for ((job, run), (_, tasks)) in &self.printed {
            if let Some(task) = tasks.iter().find(|task| !known(task)) {
                return Some(format!("task {task} of run {run} of job {job} is not in the crawl"));
            }
        }
        None
    }
}

impl Invariant for NoTaskLostOrDoubled {
    const NAME: &'static str = "I19 no_task_lost_or_doubled";

    fn see(&mut self, before: &Oracle, _at: Micros, event: &Event) -> Result<(), Broken> {
        match event {
            Event::RunPrinted { job, run, execution, tasks } => {
                self.printed.insert((job.clone(), run.clone()), (*execution, tasks.clone()));
            }
            Event::TasksTakenIn { node, job, run, execution } => {
                let first = self.taken_in.entry((job.clone(), run.clone())).or_insert(*execution);
                if first != execution && nothing_is_undone(before) {
                    let what =
                        format!("tasks of executions {first} and {execution} of run {run} of job {job} are taken in");
                    return Broken::on(*node, what);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::record::Status;

    use super::super::testing::{A, B, C, durable, ring_changed, show, url};
    use super::*;

    fn printed(execution: u64) -> Event {
        Event::RunPrinted { job: "job".into(), run: "1".into(), execution, tasks: vec![url(1)] }
    }

    fn taken_in(node: NodeId, execution: u64) -> Event {
        Event::TasksTakenIn { node, job: "job".into(), run: "1".into(), execution }
    }

    #[test]
    fn the_same_output_may_be_taken_in_again_and_another_one_not() {
        let judge =
            |events: Vec<Event>| show(&mut NoTaskLostOrDoubled::default(), events.into_iter().map(|event| (0, event)));
        assert_eq!(judge(vec![printed(1), taken_in(A, 1), taken_in(B, 1)]), Ok(()));
        assert!(judge(vec![printed(1), taken_in(A, 1), printed(2), taken_in(B, 2)]).is_err());
        let lost = Event::DiskWiped { node: C };
        assert_eq!(judge(vec![printed(1), taken_in(A, 1), lost, taken_in(B, 2)]), Ok(()));
    }

    #[test]
    fn at_rest_every_task_is_in_the_crawl() {
        let missing = |events: Vec<Event>| {
            let mut invariant = NoTaskLostOrDoubled::default();
            let mut oracle = Oracle::new(&crate::world::plan::Plan::from_seed(1));
            for event in events {
                invariant.see(&oracle, 0, &event).unwrap();
                oracle.see(&event);
            }
            invariant.missing(&oracle, &[A, B, C].into())
        };
        let mut events = vec![ring_changed(A, &[0, 1, 2]), ring_changed(B, &[0, 1, 2]), ring_changed(C, &[0, 1, 2])];
        events.push(printed(1));
        assert!(missing(events.clone()).is_some());
        events.push(durable(B, 1, Status::New));
        assert_eq!(missing(events), None);
    }
}
