//! The two clocks of a node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use proto::crawl::frontier::Now;
use proto::crawl::politeness::Micros;
use tokio::time::{Duration, Instant};

/// Reads the clocks. Waiting goes by tokio's clock, which a simulation pauses; what is stored goes by the wall clock.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    simulated: Option<Simulated>,
}

/// Clocks of a simulated node.
#[derive(Clone, Debug)]
struct Simulated {
    /// What tokio's clock adds at the start.
    start_us: Micros,
    /// How fast the node's clock runs, in millionths of true time.
    rate_ppm: u64,
    /// What its wall clock shows beyond what its own clock counts; a fault may set it.
    wall_ms: Arc<AtomicU64>,
}

impl Clock {
    /// The machine's clocks; the monotonic one starts at zero now.
    pub fn start() -> Clock {
        Clock { start: Instant::now(), simulated: None }
    }

    /// Clocks that follow tokio's alone, at `rate_ppm` millionths of its speed (1,000,000 is true), from `start_us` on; the wall
    /// clock shows `wall_ms` more.
    pub fn simulated(start_us: Micros, rate_ppm: u64, wall_ms: Arc<AtomicU64>) -> Clock {
        assert!(rate_ppm > 0, "a clock goes on");
        Clock { start: Instant::now(), simulated: Some(Simulated { start_us, rate_ppm, wall_ms }) }
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        let elapsed = self.start.elapsed().as_micros() as Micros;
        match &self.simulated {
            None => Now { mono: elapsed, unix_ms: unix_ms() },
            Some(is) => {
                let mono = is.start_us + (u128::from(elapsed) * u128::from(is.rate_ppm) / 1_000_000) as Micros;
                Now { mono, unix_ms: mono / 1_000 + is.wall_ms.load(Ordering::Relaxed) }
            }
        }
    }

    /// How long to sleep until the monotonic clock shows `time` more; never too short.
    pub fn wait(&self, time: Micros) -> Duration {
        let rate_ppm = self.simulated.as_ref().map_or(1_000_000, |is| is.rate_ppm);
        let true_time = (u128::from(time) * 1_000_000).div_ceil(u128::from(rate_ppm));
        Duration::from_micros(u64::try_from(true_time).unwrap_or(u64::MAX))
    }
}

/// What the machine's monotonic clock shows since this process first asked: one time on all threads, which nobody pauses.
pub fn mono() -> Micros {
    static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
    START.elapsed().as_micros() as Micros
}

/// Unix milliseconds by the wall clock; 0 before 1970.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_drifts_and_its_wall_clock_can_be_set() {
        let wall = Arc::new(AtomicU64::new(1_000_000));
        let slow = Clock::simulated(5_000, 990_000, Arc::clone(&wall));
        assert_eq!((slow.now().mono, slow.now().unix_ms), (5_000, 1_000_005));
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(slow.now().mono, 99_005_000);
        wall.store(7, Ordering::Relaxed);
        assert_eq!(slow.now().unix_ms, 99_012);
        let before = slow.now().mono;
        tokio::time::advance(slow.wait(1_000_000)).await;
        assert!((before + 1_000_000..before + 1_000_010).contains(&slow.now().mono));
    }
}
