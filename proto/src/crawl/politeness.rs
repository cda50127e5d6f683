//! How fast one host is asked: the delay between requests, slowing down when it complains, leaving it alone when it fails.
//!
//! The delay is the largest of what we were configured to keep, what its robots.txt asks for, and what its own 429 and 503 answers
//! taught us. The lesson doubles with each complaint and halves with each answer that is none, so a host recovers by itself.
//! A host that cannot be reached is left for a time that doubles up to a day.

use serde::{Deserialize, Serialize};

use super::retry::HostVerdict;

/// Monotonic microseconds.
pub type Micros = u64;

/// One second.
pub const SECOND: Micros = 1_000_000;

/// How hosts are paced. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PaceRules {
    /// Least time between two requests to a host, and to an address.
    pub delay_ms: u64,
    /// A robots.txt that asks for more than this gets this: a week between pages would park a host for good.
    pub crawl_delay_max_ms: u64,
    /// First extra delay after a 429 or 503.
    pub slow_down_min_ms: u64,
    /// Largest extra delay, and the longest Retry-After that is obeyed as it stands.
    pub slow_down_max_ms: u64,
    /// Failures in a row after which a host is left alone.
    pub failures_max: u32,
    /// How long it is left alone the first time.
    pub leave_min_ms: u64,
    /// How long at most.
    pub leave_max_ms: u64,
    /// How much faster than real time our clock may run, in millionths: delays are waited so much longer. Set by the cluster,
    /// where the host's clock is not the only one that counts.
    #[serde(skip)]
    pub drift_ppm: u32,
}

impl Default for PaceRules {
    fn default() -> Self {
        PaceRules {
            delay_ms: 1_000,
            crawl_delay_max_ms: 300_000,
            slow_down_min_ms: 5_000,
            slow_down_max_ms: 86_400_000,
            failures_max: 4,
            leave_min_ms: 60_000,
            leave_max_ms: 86_400_000,
            drift_ppm: 0,
        }
    }
}

impl PaceRules {
    /// How long to wait on our clock so that at least `delay_ms` pass, in microseconds.
    pub fn stretched(&self, delay_ms: u64) -> Micros {
        let (delay, drift) = (delay_ms.saturating_mul(1_000), u64::from(self.drift_ppm));
        if drift == 0 {
            delay
        } else {
            delay.saturating_add(delay / 1_000_000 * drift + delay % 1_000_000 * drift / 1_000_000 + 1)
        }
    }
}

/// What a host taught us. Kept on disk with the host, so a restart does not forget it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lessons {
    /// Extra delay from complaints, in milliseconds.
    pub extra_ms: u64,
    /// Failures in a row.
    pub failures: u32,
}

/// Pace of one host.
#[derive(Clone, Debug)]
pub struct Pace {
    /// What its robots.txt asks for.
    robots_delay_ms: u64,
    lessons: Lessons,
    /// When the last request ended.
    ended_at: Option<Micros>,
    next_ok: Micros,
}

impl Pace {
    /// A host that was not asked yet since this node may ask it: whoever asked it before did so at latest now, so
    /// one delay is waited out first, unless the host is `unheard` of.
    pub fn new(now: Micros, rules: &PaceRules, robots_delay_ms: Option<u64>, lessons: Lessons, unheard: bool) -> Pace {
        let mut pace = Pace { robots_delay_ms: 0, lessons, ended_at: None, next_ok: now };
        pace.hear_robots(robots_delay_ms, rules);
        if !unheard {
            pace.next_ok = now + pace.delay(rules);
        }
        pace
    }

    /// Leaves the host alone until `at`.
    pub fn leave_until(&mut self, at: Micros) {
        self.next_ok = self.next_ok.max(at);
    }

    /// When the next request may start.
    pub fn next_ok(&self) -> Micros {
        self.next_ok
    }

    /// What the host taught us.
    pub fn lessons(&self) -> &Lessons {
        &self.lessons
    }

    /// Takes in the Crawl-delay of a robots.txt; it counts from the request before.
    pub fn hear_robots(&mut self, delay_ms: Option<u64>, rules: &PaceRules) {
        self.robots_delay_ms = delay_ms.unwrap_or(0).min(rules.crawl_delay_max_ms);
        if let Some(ended_at) = self.ended_at {
            self.next_ok = self.next_ok.max(ended_at + self.delay(rules));
        }
    }

    /// Time between two requests, as things stand.
    pub fn delay(&self, rules: &PaceRules) -> Micros {
        rules.stretched(rules.delay_ms.max(self.robots_delay_ms) + self.lessons.extra_ms)
    }

    /// A request ended at `now`. The delay counts from here and not from the request's start: the server may have
    /// seen the request any time in between, and by its own log the gap must never be too small.
    pub fn ended(&mut self, now: Micros, verdict: HostVerdict, retry_after_ms: Option<u64>, rules: &PaceRules) {
        match verdict {
            HostVerdict::Healthy => {
                self.lessons.failures = 0;
                self.lessons.extra_ms /= 2;
                if self.lessons.extra_ms < rules.slow_down_min_ms / 4 {
                    self.lessons.extra_ms = 0;
                }
            }
            HostVerdict::SlowDown => {
                self.lessons.failures = 0;
                let doubled = (self.lessons.extra_ms * 2).max(rules.slow_down_min_ms);
                self.lessons.extra_ms = doubled.min(rules.slow_down_max_ms);
            }
            HostVerdict::Failing => self.lessons.failures = self.lessons.failures.saturating_add(1),
        }
        let mut wait = self.delay(rules);
        if verdict == HostVerdict::SlowDown {
            wait = wait.max(retry_after_ms.unwrap_or(0).min(rules.slow_down_max_ms) * 1_000);
        }
        if self.lessons.failures >= rules.failures_max {
            wait = wait.max(self.leave_ms(rules) * 1_000);
        }
        self.ended_at = Some(now);
        self.next_ok = self.next_ok.max(now + wait);
    }

    fn leave_ms(&self, rules: &PaceRules) -> u64 {
        let doublings = (self.lessons.failures - rules.failures_max).min(32);
        rules.leave_min_ms.saturating_mul(1 << doublings).min(rules.leave_max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules() -> PaceRules {
        PaceRules::default()
    }

    fn pace() -> Pace {
        Pace::new(0, &rules(), None, Lessons::default(), true)
    }

    #[test]
    fn the_larger_of_configured_and_asked_for_delay_is_kept() {
        let mut pace = pace();
        pace.ended(0, HostVerdict::Healthy, None, &rules());
        assert_eq!(pace.next_ok(), SECOND);
        pace.hear_robots(Some(10_000), &rules());
        assert_eq!(pace.next_ok(), 10 * SECOND, "it counts from the request before");
        pace.ended(10 * SECOND, HostVerdict::Healthy, None, &rules());
        assert_eq!(pace.next_ok(), 20 * SECOND);
        pace.hear_robots(Some(u64::MAX), &rules());
        pace.ended(20 * SECOND, HostVerdict::Healthy, None, &rules());
        assert_eq!(pace.next_ok(), (20 + 300) * SECOND);
    }

    #[test]
    fn complaints_double_the_delay_and_good_answers_bring_it_back() {
        let mut pace = pace();
        for expected in [5_000, 10_000, 20_000] {
            pace.ended(0, HostVerdict::SlowDown, None, &rules());
            assert_eq!(pace.lessons().extra_ms, expected);
        }
        for _ in 0..5 {
            pace.ended(0, HostVerdict::Healthy, None, &rules());
        }
        assert_eq!(pace.delay(&rules()), SECOND);
    }

    #[test]
    fn retry_after_is_obeyed_up_to_the_cap() {
        let mut pace = pace();
        pace.ended(0, HostVerdict::SlowDown, Some(120_000), &rules());
        assert_eq!(pace.next_ok(), 120 * SECOND);
        pace.ended(0, HostVerdict::SlowDown, Some(u64::MAX), &rules());
        assert_eq!(pace.next_ok(), 86_400 * SECOND);
    }

    #[test]
    fn a_failing_host_is_left_for_a_growing_time_and_forgiven_at_once() {
        let mut pace = pace();
        for _ in 0..3 {
            pace.ended(0, HostVerdict::Failing, None, &rules());
        }
        assert_eq!(pace.next_ok(), SECOND);
        for expected in [60, 120, 240] {
            pace.ended(0, HostVerdict::Failing, None, &rules());
            assert_eq!(pace.next_ok(), expected * SECOND);
        }
        pace.ended(1000 * SECOND, HostVerdict::Healthy, None, &rules());
        assert_eq!(pace.next_ok(), 1001 * SECOND);
    }

    #[test]
    fn a_host_somebody_may_have_asked_is_waited_for_once() {
        let known = Pace::new(5, &rules(), Some(3_000), Lessons::default(), false);
        assert_eq!(known.next_ok(), 5 + 3 * SECOND);
        let unheard = Pace::new(5, &rules(), None, Lessons::default(), true);
        assert_eq!(unheard.next_ok(), 5);
    }

    proptest! {
        #[test]
        fn the_next_request_is_never_sooner_than_the_delay(
            steps in proptest::collection::vec((0..3u8, 0..5_000_000u64, proptest::option::of(any::<u64>())), 1..60),
        ) {
            let (rules, mut pace, mut now) = (rules(), pace(), 0);
            for (verdict, took, retry_after) in steps {
                now = pace.next_ok().max(now) + took;
                let verdict = [HostVerdict::Healthy, HostVerdict::SlowDown, HostVerdict::Failing][usize::from(verdict)];
                pace.ended(now, verdict, retry_after, &rules);
                prop_assert!(pace.next_ok() >= now + rules.delay_ms * 1_000);
                prop_assert!(pace.next_ok() <= now + 2 * rules.leave_max_ms * 1_000);
            }
        }
    }
}
