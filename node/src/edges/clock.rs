//! The two clocks of a node.

use std::time::{SystemTime, UNIX_EPOCH};

use proto::crawl::frontier::Now;
use proto::crawl::politeness::Micros;
use tokio::time::{Duration, Instant};

/// Reads the clocks. Waiting goes by tokio's clock, which a test can pause; what is stored goes by the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts at zero now.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        Now { mono: self.start.elapsed().as_micros() as Micros, unix_ms: unix_ms() }
    }

    /// The moment when the monotonic clock says `at`.
    pub fn instant(&self, at: Micros) -> Instant {
        self.start + Duration::from_micros(at)
    }
}

/// Unix milliseconds by the wall clock; 0 before 1970.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
