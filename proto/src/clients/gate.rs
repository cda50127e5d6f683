//! When a queue may be served, and when to look again if it may not.
//!
//! Times are honoured to the millisecond and never early: a queue that is blocked until second 7 is closed through 7.000, and a delay of a second is
//! a second from one answer to the next, not from one tick of a clock to another.

use super::record::ClientQueue;

/// Time between two answers from a queue that has no delay of its own, as long as nobody sets another, in seconds.
pub const DELAY_DEFAULT_S: u32 = 1;
/// Time that URLs are leased for if the client names none, in seconds.
pub const LEASE_DEFAULT_S: u32 = 30;
/// A queue that waits for its delay is looked at again after this time at the latest: a delay can become shorter.
const LOOK_AGAIN_MS: u64 = 10_000;
/// How long it may take from handing URLs out until enough disks have that and the client is told: leases and delays count from then. What takes longer is counted anew, and has
/// [four times](KEEPING_GROWS) as long then; some ten milliseconds are usual.
pub const KEEPING_MS: u64 = 100;
/// By how much more time is allowed the next time.
pub const KEEPING_GROWS: u64 = 4;
/// A queue of which a client has as much as it wants at once is looked at again: another client may want more.
const FULL_AGAIN_MS: u64 = 1_000;

/// What decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Completed URLs.
    pub completed: u64,
    /// URLs that are handed out, and whose leases live.
    pub leased: u64,
    /// The client wants no more than this handed out of one queue; 0 for no limit.
    pub urls_max: u32,
    /// Delay of queues without one of their own, in seconds.
    pub delay_default_s: u32,
}

/// The decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// It may be served.
    Open,
    /// Not before this time, Unix milliseconds.
    Until(u64),
    /// Not before something is changed.
    Shut,
}

/// Decides whether a queue may be served now.
pub fn gate(queue: &ClientQueue, standing: Standing, now_ms: u64) -> Gate {
    if queue.blocked_until_s > 0 {
        let free_at = queue.blocked_until_s.saturating_mul(1_000).saturating_add(1);
        if now_ms < free_at {
            return if free_at == u64::MAX { Gate::Shut } else { Gate::Until(free_at) };
        }
    }
    if queue.limit > 0 && standing.completed >= u64::from(queue.limit) {
        return Gate::Shut;
    }
    let delay_ms = delay_ms(queue, standing.delay_default_s);
    let next = queue.produced_ms.saturating_add(delay_ms);
    if queue.produced_ms > 0 && delay_ms > 0 && now_ms < next {
        return Gate::Until(next.min(now_ms + LOOK_AGAIN_MS));
    }
    if standing.urls_max > 0 && standing.leased >= u64::from(standing.urls_max) {
        return Gate::Until(now_ms + FULL_AGAIN_MS);
    }
    Gate::Open
}

/// When to look at a queue again that has just been served.
pub fn after_serving(queue: &ClientQueue, delay_default_s: u32, now_ms: u64) -> u64 {
    now_ms + delay_ms(queue, delay_default_s).min(LOOK_AGAIN_MS)
}

fn delay_ms(queue: &ClientQueue, delay_default_s: u32) -> u64 {
    u64::from(queue.delay_s.unwrap_or(delay_default_s)) * 1_000
}

/// Until when URLs are handed out that a client takes now.
pub fn lease_until(lease_s: u32, now_ms: u64) -> u64 {
    let lease_s = if lease_s == 0 { LEASE_DEFAULT_S } else { lease_s };
    now_ms + u64::from(lease_s) * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANDING: Standing = Standing { completed: 0, leased: 0, urls_max: 0, delay_default_s: 1 };

    #[test]
    fn a_queue_is_closed_through_the_time_it_is_blocked_until() {
        let blocked = ClientQueue { blocked_until_s: 7, ..ClientQueue::default() };
        assert_eq!(gate(&blocked, STANDING, 7_000), Gate::Until(7_001));
        assert_eq!(gate(&blocked, STANDING, 7_001), Gate::Open);
        let for_ever = ClientQueue { blocked_until_s: u64::MAX, ..ClientQueue::default() };
        assert_eq!(gate(&for_ever, STANDING, 7_000), Gate::Shut);
    }

    #[test]
    fn a_delay_is_kept_to_the_millisecond() {
        let served = ClientQueue { produced_ms: 5_500, ..ClientQueue::default() };
        assert_eq!(gate(&served, STANDING, 6_499), Gate::Until(6_500));
        assert_eq!(gate(&served, STANDING, 6_500), Gate::Open);
        let own = ClientQueue { delay_s: Some(0), ..served.clone() };
        assert_eq!(gate(&own, STANDING, 5_500), Gate::Open);
        assert_eq!(gate(&own, STANDING, 5_400), Gate::Open, "its last answer is told a moment from now");
        let long = ClientQueue { delay_s: Some(u32::MAX), ..served };
        assert_eq!(gate(&long, STANDING, 6_000), Gate::Until(16_000), "it may be made shorter meanwhile");
    }

    #[test]
    fn limits_and_leases_close_it() {
        let limited = ClientQueue { limit: 2, ..ClientQueue::default() };
        assert_eq!(gate(&limited, Standing { completed: 1, ..STANDING }, 9), Gate::Open);
        assert_eq!(gate(&limited, Standing { completed: 2, ..STANDING }, 9), Gate::Shut);
        let open = ClientQueue::default();
        assert_eq!(gate(&open, Standing { leased: 3, urls_max: 3, ..STANDING }, 9), Gate::Until(1_009));
        assert_eq!(gate(&open, Standing { leased: 2, urls_max: 3, ..STANDING }, 9), Gate::Open);
        assert_eq!(gate(&open, Standing { leased: 9, urls_max: u32::MAX, ..STANDING }, 9), Gate::Open);
    }

    #[test]
    fn the_largest_lease_is_a_lease() {
        assert_eq!(lease_until(0, 5), 30_005);
        assert_eq!(lease_until(u32::MAX, 0), 4_294_967_295_000);
    }
}
