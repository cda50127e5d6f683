//! Hunts planted defects: a simulator that does not notice a broken rule does not test it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::Serialize;

use crate::invariants::Violation;
use crate::layer::{Layer, Mutant, RunOptions};
use crate::world::plan::Plan;

/// What became of a mutant.
#[derive(Clone, Debug, Serialize)]
pub struct Hunt {
    /// Its name.
    pub mutant: &'static str,
    /// Within so many seeds it should be caught.
    pub seeds_max: u64,
    /// Seeds that were run.
    pub seeds: u64,
    /// The plan that caught it, and how; `None` if none did.
    pub caught: Option<(String, Violation)>,
}

impl std::fmt::Display for Hunt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Hunt { mutant, seeds, seeds_max, .. } = self;
        match &self.caught {
            Some((by, violation)) => {
                write!(out, "{mutant:<28} caught after {seeds} of {seeds_max} seeds, by {by}: {violation}")
            }
            None => write!(out, "{mutant:<28} NOT caught in {seeds} seeds"),
        }
    }
}

/// Runs each of `mutants`, first with the `plans` that were made to catch it, then with the seeds from `base` on, until it
/// is caught or its seeds are used up. `told` hears of each as soon as it is known; the result is in the order of `mutants`.
pub fn hunt(
    layer: &dyn Layer,
    mutants: &[Mutant],
    plans: &[(String, Plan)],
    base: u64,
    threads: usize,
    mut told: impl FnMut(&Hunt),
) -> Vec<Hunt> {
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let mut hunts: Vec<(usize, Hunt)> = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(mutant) = mutants.get(number) else { return };
                    if send.send((number, hunt_one(layer, mutant, plans, base))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (number, hunt) in &receive {
            told(&hunt);
            hunts.push((number, hunt));
        }
    });
    hunts.sort_by_key(|(number, _)| *number);
    hunts.into_iter().map(|(_, hunt)| hunt).collect()
}

fn hunt_one(layer: &dyn Layer, mutant: &Mutant, plans: &[(String, Plan)], base: u64) -> Hunt {
    let options = RunOptions { mutant: Some(mutant.name), ..RunOptions::default() };
    let caught = |plan: &Plan| {
        let violation = super::run(layer, plan, &options).violation?;
        // What breaks without the defect as well does not speak of it.
        super::run(layer, plan, &RunOptions::default()).violation.is_none().then_some(violation)
    };
    let mut hunt = Hunt { mutant: mutant.name, seeds_max: mutant.seeds_max, seeds: 0, caught: None };
    let made_for_it = plans.iter().filter(|(_, plan)| plan.catches.as_deref() == Some(mutant.name));
    for (name, plan) in made_for_it {
        if hunt.caught.is_none() {
            hunt.caught = caught(plan).map(|violation| (format!("the plan {name}"), violation));
        }
    }
    while hunt.seeds < mutant.seeds_max && hunt.caught.is_none() {
        let seed = base.wrapping_add(hunt.seeds);
        hunt.seeds += 1;
        hunt.caught = caught(&Plan::from_seed(seed)).map(|violation| (format!("seed {seed}"), violation));
    }
    hunt
}
