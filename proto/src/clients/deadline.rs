//! Until when a question may take effect. Whoever asks gives up after a while and tells its client that it failed; the client may say something newer through another node, and a node
//! that hung meanwhile must not carry out the old question on top of it.
//!
//! Neither knows the other's clock, so time is told as to a guest that [executes a script](crate::source::lend): what is left since a *stamp* that the other made of its own clock. The
//! stamp was made before it was heard, so by the clock of whoever is asked the time is over no later than the asker gives up, however long stamp and question were under way. A clock that
//! starts anew is another one, by which no earlier leave counts.

use crate::crawl::politeness::{Micros, SECOND};
use crate::source::lend::{Leave, Stamp};

/// How long is counted from one stamp: two clocks run apart in that time by less than anybody notices.
const COUNTS_FOR: Micros = 60 * SECOND;

/// The last that was heard of another node's clock.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    stamp: Stamp,
    heard_at: Micros,
}

impl Pace {
    /// A stamp is heard.
    pub fn new(stamp: Stamp, now: Micros) -> Pace {
        Pace { stamp, heard_at: now }
    }

    /// Whether another stamp is needed.
    pub fn is_old(&self, now: Micros) -> bool {
        now >= self.heard_at.saturating_add(COUNTS_FOR)
    }

    /// Leave for what the asker gives up at `until`, by its own clock.
    pub fn leave(&self, until: Micros) -> Leave {
        Leave { since: self.stamp, left: until.saturating_sub(self.heard_at) }
    }
}

/// Until when a question with this leave may take effect, by the clock of whoever is asked and makes this stamp now; `None` if that is over.
pub fn until(leave: Leave, now: Stamp) -> Option<Micros> {
    let until = leave.since.at.saturating_add(leave.left);
    (leave.since.life == now.life && until > now.at).then_some(until)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_takes_effect_once_whoever_asked_has_given_up(
            ahead in 0..1_000_000_000u64, made in 0..50 * SECOND, way in 0..5 * SECOND, asks in 0..70 * SECOND, patience in 1..30 * SECOND, arrives in 0..99 * SECOND,
        ) {
            // Both clocks are true but for where they began: the other's shows `ahead` more.
            let stamp = |at| Stamp { life: 7, at: at + ahead };
            let heard_at = made + way;
            let asked_at = heard_at + asks;
            let (pace, gives_up_at, arrives_at) = (Pace::new(stamp(made), heard_at), asked_at + patience, asked_at + arrives);
            prop_assume!(!pace.is_old(asked_at));
            let counts_until = until(pace.leave(gives_up_at), stamp(arrives_at));
            if let Some(until) = counts_until {
                prop_assert!(arrives_at < gives_up_at && until <= gives_up_at + ahead);
            }
            // It is not refused too early either: by as much as the stamp was under way.
            prop_assert_eq!(counts_until.is_some(), arrives_at + way < gives_up_at);
            let another_life = Stamp { life: 8, at: 0 };
            prop_assert_eq!(until(pace.leave(gives_up_at), another_life), None);
        }
    }

    #[test]
    fn clocks_are_compared_again_after_a_while_and_numbers_stay_in_their_bounds() {
        let pace = Pace::new(Stamp { life: 1, at: Micros::MAX }, 5);
        assert!(!pace.is_old(5) && !pace.is_old(4 + COUNTS_FOR) && pace.is_old(5 + COUNTS_FOR));
        assert_eq!(until(pace.leave(Micros::MAX), Stamp { life: 1, at: 5 }), Some(Micros::MAX));
        assert_eq!(until(pace.leave(0), Stamp { life: 1, at: Micros::MAX }), None);
    }
}
