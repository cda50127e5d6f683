//! The clocks of a node. The monotonic one runs a little fast or slow (within 1 ± ρ of true time, the only assumption
//! that the lease protocol makes about clocks) and starts anywhere, anew in each life of the node. The wall clock may be
//! wrong and may be set.

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::plan::Plan;
use super::random::{For, Random};

const MILLION: u128 = 1_000_000;
/// True time 0 on a correct wall clock: 2026-01-01, in Unix milliseconds.
pub const START_UNIX_MS: u64 = 1_767_225_600_000;
/// A monotonic clock begins below this: nothing may depend on it beginning at 0.
const OFFSET_MAX: Micros = 1_000 * 1_000_000;

/// The clocks of one node in one of its lives. Only integers: the same on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    seed: u64,
    node: NodeId,
    rate_ppm: i64,
    offset: Micros,
    wall_error_ms: i64,
}

impl Clock {
    /// The clocks of `node` in its first life.
    pub fn new(plan: &Plan, node: NodeId) -> Clock {
        let rate_ppm = plan.clock_rate_ppm(node);
        let mut clock = Clock { seed: plan.seed, node, rate_ppm, offset: 0, wall_error_ms: 0 };
        clock.restart(0);
        clock
    }

    /// A new life: the monotonic clock starts anywhere else. The wall clock goes on.
    pub fn restart(&mut self, boot: u32) {
        self.offset = Random::at(self.seed, For::Clock, self.node.0, u64::from(boot)).below(OFFSET_MAX);
    }

    /// What the monotonic clock shows at true time `at`.
    pub fn local(&self, at: Micros) -> Micros {
        self.offset + scale(at, self.rate(), MILLION)
    }

    /// The first true time at which the monotonic clock shows `local` or more; 0 for what was before the run.
    pub fn true_time(&self, local: Micros) -> Micros {
        let since = u128::from(local.saturating_sub(self.offset));
        u64::try_from((since * MILLION).div_ceil(self.rate())).unwrap_or(u64::MAX)
    }

    /// The true time at which a timer ends that is set at true time `at` for `after` on the monotonic clock.
    pub fn timer(&self, at: Micros, after: Micros) -> Micros {
        self.true_time(self.local(at).saturating_add(after)).max(at)
    }

    /// What the wall clock shows at true time `at`, in Unix milliseconds.
    pub fn unix_ms(&self, at: Micros) -> u64 {
        (START_UNIX_MS + at / 1_000).saturating_add_signed(self.wall_error_ms)
    }

    /// Somebody sets the wall clock.
    pub fn step_wall(&mut self, by_ms: i64) {
        self.wall_error_ms = self.wall_error_ms.saturating_add(by_ms);
    }

    fn rate(&self) -> u128 {
        (1_000_000 + self.rate_ppm).max(1) as u128
    }
}

fn scale(value: u64, by: u128, of: u128) -> u64 {
    u64::try_from(u128::from(value) * by / of).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(rate_ppm: i64) -> Clock {
        let mut clock = Clock { seed: 1, node: NodeId(2), rate_ppm, offset: 0, wall_error_ms: 0 };
        clock.restart(0);
        clock
    }

    #[test]
    fn conversion_there_and_back_never_comes_early() {
        for rate_ppm in [-10_000, -1, 0, 1, 10_000] {
            let clock = clock(rate_ppm);
            for at in [0, 1, 999, 1_000_000, 123_456_789] {
                let local = clock.local(at);
                assert!(clock.true_time(local) <= at);
                for after in [0, 1, 1_000, 45_000_000] {
                    let ends = clock.timer(at, after);
                    assert!(clock.local(ends) >= local + after, "a timer that ends early");
                    assert!(ends == at || clock.local(ends - 1) < local + after, "a timer that ends late");
                }
            }
        }
    }

    #[test]
    fn a_fast_clock_shows_more() {
        assert_eq!(clock(10_000).local(1_000_000) - clock(10_000).local(0), 1_010_000);
        assert_eq!(clock(-10_000).local(1_000_000) - clock(-10_000).local(0), 990_000);
    }

    #[test]
    fn each_life_starts_elsewhere_and_a_step_moves_only_the_wall() {
        let mut clock = clock(0);
        let first = clock.local(5);
        clock.restart(1);
        assert_ne!(clock.local(5), first);
        let local = clock.local(5);
        clock.step_wall(-3_600_000);
        assert_eq!(clock.local(5), local);
        assert_eq!(clock.unix_ms(0), START_UNIX_MS - 3_600_000);
    }
}
