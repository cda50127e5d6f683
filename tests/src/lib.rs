//! What the tests of the whole program share. Reading order: [`program`] runs `orbweaver` as a user would, [`found`] reads
//! what it left in its data folder, [`judge`] holds the access log of a server against the rules, [`raw`] is a server for
//! answers that the synthetic web does not give, [`inside`] runs a node within the test, [`cluster`] runs several as processes,
//! [`network`] carries what they say and loses it when told to, [`sites`] asks for operations on sites.
//!
//! The program is not built by the tests: `cargo build --workspace` comes first (`make test` sees to it).

pub mod browser;
pub mod cluster;
pub mod fleet;
pub mod found;
pub mod frontier_api;
pub mod frontier_suite;
pub mod inside;
pub mod judge;
pub mod namespace;
pub mod network;
pub mod program;
pub mod python;
pub mod ranking;
pub mod raw;
pub mod sites;
pub mod spider;
pub mod tun;

use std::io::Write as _;
use std::time::{Duration, Instant};

/// How long anything may take before a test gives up. Generous: a loaded machine is no defect of the crawler.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Settings for webs that misbehave: what never answers is given up soon, what fails is tried again soon, traps end soon.
/// A page that is merely late on a loaded machine has three chances.
pub const QUICK: &str = r#"
[fetch.limits]
fetch_timeout_ms = 4000
connect_timeout_ms = 3000
read_timeout_ms = 2500
[retry]
attempts_max = 3
slow_down_attempts_max = 6
wait_min_ms = 100
wait_max_ms = 400
robots_wait_ms = 100
[politeness]
delay_ms = 0
slow_down_min_ms = 50
slow_down_max_ms = 2000
failures_max = 1000
[crawl]
host_urls_max = 300
path_queries_max = 30
"#;

/// Tells whoever runs the tests something of one that passes. What macros print is shown of those alone that fail.
pub fn tell(what: &str) {
    let _ = std::io::stderr().write_all(format!("{what}\n").as_bytes()); // nobody may be listening
}

/// Waits until `done` holds; panics with `what` if that takes longer than [`PATIENCE`].
pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    assert!(eventually(done), "waited {PATIENCE:?} in vain until {what}");
}

/// Whether `done` comes to hold within [`PATIENCE`].
pub fn eventually(mut done: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if done() {
            return true;
        }
        if started.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
