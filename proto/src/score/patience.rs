//! How long a node goes on with a ranking that does not come further.
//!
//! Members differ: one has ten times the pages or a slower disk, and is prepared, or through with a loop, minutes after the others. As long as it answers that it is not that far, it is waited for;
//! nobody waits in a circle, as the member that is furthest behind is answered by all. A member that says nothing, or that knows nothing of the ranking any more, is not waited for.

/// Waits for those who say that they are not that far, at most so many times as long as for those who say nothing.
const SLOW_TIMES: u64 = 180;
/// A member that knows nothing of the ranking may not have heard of it yet: this part of the patience is for that.
const UNKNOWN_PART: u64 = 4;

/// Times at which something was heard, in milliseconds of any clock that only goes forward.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    for_ms: u64,
    /// When numbers last came.
    moved_ms: u64,
    /// When a member last answered that it is not that far.
    asked_for_ms: u64,
    /// Since when a member answers that it knows nothing of the ranking.
    unknown_ms: Option<u64>,
}

/// What a round of questions brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Numbers that were lacking.
    pub numbers: bool,
    /// Somebody is not that far.
    pub not_yet: bool,
    /// Somebody knows nothing of the ranking.
    pub unknown: bool,
}

impl Patience {
    /// A ranking in which it is waited so long for who says nothing.
    pub fn new(for_ms: u64, now_ms: u64) -> Patience {
        Patience { for_ms, moved_ms: now_ms, asked_for_ms: now_ms, unknown_ms: None }
    }

    /// Takes in what a round of questions brought.
    pub fn heard(&mut self, heard: Heard, now_ms: u64) {
        if heard.numbers {
            self.moved_ms = now_ms;
        }
        if heard.not_yet {
            self.asked_for_ms = now_ms;
        }
        self.unknown_ms = heard.unknown.then(|| self.unknown_ms.unwrap_or(now_ms));
    }

    /// Whether the ranking is to be given up.
    pub fn is_over(&self, now_ms: u64) -> bool {
        let over = |since: u64, for_ms: u64| now_ms.saturating_sub(since) > for_ms;
        over(self.moved_ms.max(self.asked_for_ms), self.for_ms)
            || over(self.moved_ms, self.for_ms.saturating_mul(SLOW_TIMES))
            || self.unknown_ms.is_some_and(|since| over(since, self.for_ms / UNKNOWN_PART))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Heard = Heard { numbers: true, not_yet: false, unknown: false };
    const NOT_YET: Heard = Heard { numbers: false, not_yet: true, unknown: false };
    const UNKNOWN: Heard = Heard { numbers: false, not_yet: false, unknown: true };

    #[test]
    fn who_says_nothing_is_waited_for_as_long_as_it_was_said() {
        let mut patience = Patience::new(20_000, 100);
        assert!(!patience.is_over(20_100) && patience.is_over(20_101));
        patience.heard(NUMBERS, 15_000);
        patience.heard(Heard::default(), 30_000);
        assert!(!patience.is_over(35_000) && patience.is_over(35_001));
    }

    #[test]
    fn who_is_not_that_far_is_waited_for_much_longer_and_not_for_ever() {
        let mut patience = Patience::new(20_000, 0);
        let hour = 20_000 * SLOW_TIMES;
        for now in (0..=hour).step_by(10_000) {
            patience.heard(NOT_YET, now);
            assert!(!patience.is_over(now), "{now}");
        }
        assert!(patience.is_over(hour + 1), "numbers never came");
        patience.heard(NUMBERS, hour + 1);
        assert!(!patience.is_over(hour + 20_001) && patience.is_over(hour + 20_002));
    }

    #[test]
    fn who_gave_it_up_is_not_waited_for_whatever_others_say() {
        let mut patience = Patience::new(20_000, 0);
        let both = Heard { not_yet: true, ..UNKNOWN };
        (0..=5_000).step_by(1_000).for_each(|now| patience.heard(both, now));
        assert!(!patience.is_over(5_000) && patience.is_over(5_001));
        patience.heard(NOT_YET, 5_001);
        assert!(!patience.is_over(10_000), "it had not heard of it yet");
    }
}
