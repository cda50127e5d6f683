//! Stands in for `web-time`: the same names, with an `Instant` of tokio's clock, which can be paused. By the machine's clock yamux would
//! say something more on each connection every ten seconds, and a run that takes longer would not be the same twice.

pub use std::time::{Duration, SystemTime, SystemTimeError, UNIX_EPOCH};

pub use tokio::time::Instant;
