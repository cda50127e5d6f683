//! Hunts planted defects: a simulator that does not notice a broken rule does not test it. Each must be noticed by an invariant that it was
//! planted for, and each invariant must notice one: what breaks elsewhere first, or ends in a panic, shows nothing of the rule, and the hunt goes on.

use std::collections::BTreeSet;
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
    /// The plan that broke an invariant for which it was planted, and how; `None` if none did.
    pub caught: Option<(String, Violation)>,
    /// The first plan before that which broke something else.
    pub elsewhere: Option<(String, Violation)>,
    /// Whether the plan that was made for it did, and no seed was tried.
    pub by_its_plan: bool,
    /// The invariants that it was planted for.
    pub breaks: &'static [&'static str],
}

impl Hunt {
    /// Takes note of what a plan broke, if it did.
    fn notice(&mut self, by: String, violation: Option<Violation>) {
        let Some(violation) = violation else { return };
        if self.breaks.contains(&violation.number()) {
            self.caught = Some((by, violation));
        } else {
            self.elsewhere.get_or_insert((by, violation));
        }
    }
}

/// The invariants that `layer` judges and that noticed none of the mutants.
pub fn idle_invariants(layer: &dyn Layer, hunts: &[Hunt]) -> Vec<&'static str> {
    let caught = hunts.iter().filter_map(|hunt| hunt.caught.as_ref());
    let noticed: BTreeSet<&str> = caught.map(|(_, violation)| violation.number()).collect();
    layer.judges().into_iter().filter(|invariant| !noticed.contains(invariant)).collect()
}

impl std::fmt::Display for Hunt {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Hunt { mutant, seeds, seeds_max, .. } = self;
        match &self.caught {
            Some((by, violation)) => {
                write!(out, "{mutant:<28} caught after {seeds} of {seeds_max} seeds, by {by}: {violation}")?;
            }
            None => write!(out, "{mutant:<28} NOT caught by {} in {seeds} seeds", self.breaks.join(" or "))?,
        }
        match &self.elsewhere {
            Some((by, violation)) => write!(out, "; before that {by} broke {}", violation.invariant),
            None => Ok(()),
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
    let Mutant { name: mutant, seeds_max, breaks } = *mutant;
    let options = RunOptions { mutant: Some(mutant), ..RunOptions::default() };
    let broken = |plan: &Plan| {
        let violation = super::run(layer, plan, &options).violation?;
        // What breaks without the defect as well does not speak of it.
        super::run(layer, plan, &RunOptions::default()).violation.is_none().then_some(violation)
    };
    let mut hunt = Hunt { mutant, seeds_max, breaks, seeds: 0, caught: None, by_its_plan: false, elsewhere: None };
    let made_for_it = plans.iter().filter(|(_, plan)| plan.catches.as_deref() == Some(mutant));
    for (name, plan) in made_for_it {
        if hunt.caught.is_none() {
            hunt.notice(format!("the plan {name}"), broken(plan));
            hunt.by_its_plan = hunt.caught.is_some();
        }
    }
    while hunt.seeds < seeds_max && hunt.caught.is_none() {
        let seed = base.wrapping_add(hunt.seeds);
        hunt.seeds += 1;
        hunt.notice(format!("seed {seed}"), broken(&Plan::from_seed(seed)));
    }
    hunt
}
