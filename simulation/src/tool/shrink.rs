//! Makes a plan that breaks an invariant as small as it gets while it still breaks the same one. Faults go first, by
//! halves and then one by one; then chances, clocks, submissions and oddities; then times get shorter.

use proto::crawl::politeness::Micros;

use crate::invariants::Violation;
use crate::layer::{Layer, RunOptions};
use crate::world::plan::{MILLISECOND, Plan};

/// A plan that was made smaller.
pub struct Shrunk {
    /// It.
    pub plan: Plan,
    /// What it breaks.
    pub violation: Violation,
    /// Runs that it took.
    pub runs: u64,
}

struct Shrinker<'a> {
    layer: &'a dyn Layer,
    options: RunOptions,
    best: Plan,
    violation: Violation,
    runs: u64,
    runs_max: u64,
}

/// Shrinks `plan`, which breaks an invariant, in at most `runs_max` runs. `None` if it breaks nothing.
pub fn shrink(layer: &dyn Layer, plan: &Plan, options: &RunOptions, runs_max: u64) -> Option<Shrunk> {
    let options = RunOptions { keep: crate::world::trace::Keep::Nothing, ..*options };
    let violation = super::run(layer, plan, &options).violation?;
    let mut shrinker = Shrinker { layer, options, best: plan.clone(), violation, runs: 1, runs_max };
    loop {
        let before = shrinker.best.clone();
        shrinker.end_early();
        shrinker.fewer(|plan| &mut plan.faults);
        shrinker.simpler();
        shrinker.fewer(|plan| &mut plan.submissions);
        shrinker.fewer(|plan| &mut plan.sites);
        for number in 0..shrinker.best.sites.len() {
            shrinker.fewer(|plan| &mut plan.sites[number].operations);
        }
        shrinker.shorter();
        if shrinker.best == before || shrinker.runs >= runs_max {
            break;
        }
    }
    shrinker.best.catches = options.mutant.map(str::to_owned);
    Some(Shrunk { plan: shrinker.best, violation: shrinker.violation, runs: shrinker.runs })
}

impl Shrinker<'_> {
    /// Takes `plan` if it is another one and still breaks the same invariant.
    fn accept(&mut self, plan: Plan) -> bool {
        if plan == self.best || self.runs >= self.runs_max || plan.check().is_err() {
            return false;
        }
        self.runs += 1;
        match super::run(self.layer, &plan, &self.options).violation {
            Some(violation) if violation.invariant == self.violation.invariant => {
                (self.best, self.violation) = (plan, violation);
                true
            }
            _ => false,
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.best.clone();
        change(&mut plan);
        self.accept(plan)
    }

    /// Nothing that begins after the violation can matter.
    fn end_early(&mut self) {
        let ends_ms = (self.violation.at as Micros).div_ceil(MILLISECOND) + 1;
        if self.violation.at > 0 && ends_ms < self.best.fault_phase_ms {
            self.change(|plan| {
                plan.fault_phase_ms = ends_ms;
                plan.faults.retain(|fault| fault.at_ms < ends_ms);
                plan.submissions.retain(|submission| submission.at_ms < ends_ms);
                plan.sites.iter_mut().for_each(|site| site.operations.retain(|operation| operation.at_ms < ends_ms));
                for fault in &mut plan.faults {
                    fault.lasts_ms = fault.lasts_ms.min(ends_ms - fault.at_ms);
                }
            });
        }
    }

    /// Removes what can be removed from a list: halves, quarters, and in the end single ones.
    fn fewer<T: Clone>(&mut self, list: impl Fn(&mut Plan) -> &mut Vec<T>) {
        let mut piece = list(&mut self.best).len().div_ceil(2);
        while piece > 0 {
            let mut at = 0;
            while at < list(&mut self.best).len() {
                let removed = self.change(|plan| {
                    let list = list(plan);
                    list.drain(at..(at + piece).min(list.len()));
                });
                if !removed {
                    at += piece;
                }
            }
            piece /= 2;
        }
    }

    fn simpler(&mut self) {
        let changes: [fn(&mut Plan); 12] = [
            |plan| plan.network.loss_ppm = 0,
            |plan| plan.network.duplication_ppm = 0,
            |plan| plan.network.straggler_ppm = 0,
            |plan| plan.network.latency_spread_us = 0,
            |plan| plan.disk.hang_ppm = 0,
            |plan| plan.disk.sync_spread_us = 0,
            |plan| plan.cluster.clock_rates_ppm.clear(),
            |plan| plan.cluster.weights.clear(),
            |plan| plan.stays_down.clear(),
            |plan| plan.web.oddities.clear(),
            |plan| plan.web.robots_variants = false,
            |plan| plan.web.crawl_delay_ms = 0,
        ];
        for change in changes {
            self.change(change);
        }
        for node in 0..self.best.cluster.clock_rates_ppm.len() {
            self.change(|plan| plan.cluster.clock_rates_ppm[node] = 0);
        }
    }

    /// Faults that last half as long, and fewer pages.
    fn shorter(&mut self) {
        for number in 0..self.best.faults.len() {
            while self.best.faults[number].lasts_ms > 1 && self.change(|plan| plan.faults[number].lasts_ms /= 2) {}
        }
        while self.best.web.pages_per_host > 1
            && self.change(|plan| {
                plan.web.pages_per_host -= 1;
                let (hosts, pages) = (plan.web.hosts, plan.web.pages_per_host);
                plan.submissions.retain(|submission| submission.host >= hosts || submission.page < pages);
            })
        {}
    }
}
