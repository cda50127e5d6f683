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
    /// The seed that caught it, and how; `None` if none did.
    pub caught: Option<(u64, Violation)>,
}

impl std::fmt::Display for Hunt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Hunt { mutant, seeds, seeds_max, .. } = self;
        match &self.caught {
            Some((seed, violation)) => {
                write!(out, "{mutant:<28} caught after {seeds} of {seeds_max} seeds, by seed {seed}: {violation}")
            }
            None => write!(out, "{mutant:<28} NOT caught in {seeds} seeds"),
        }
    }
}

/// Runs each of `mutants` with the seeds from `base` on until it is caught or its seeds are used up. `told` hears of each as
/// soon as it is known; the result is in the order of `mutants`.
pub fn hunt(
    layer: &dyn Layer,
    mutants: &[Mutant],
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
                    if send.send((number, hunt_one(layer, mutant, base))).is_err() {
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

fn hunt_one(layer: &dyn Layer, mutant: &Mutant, base: u64) -> Hunt {
    let options = RunOptions { mutant: Some(mutant.name), ..RunOptions::default() };
    let mut hunt = Hunt { mutant: mutant.name, seeds_max: mutant.seeds_max, seeds: 0, caught: None };
    while hunt.seeds < mutant.seeds_max && hunt.caught.is_none() {
        let seed = base.wrapping_add(hunt.seeds);
        let plan = Plan::from_seed(seed);
        hunt.seeds += 1;
        let Some(violation) = super::run(layer, &plan, &options).violation else { continue };
        // What breaks without the defect as well does not speak of it.
        if super::run(layer, &plan, &RunOptions::default()).violation.is_none() {
            hunt.caught = Some((seed, violation));
        }
    }
    hunt
}
