//! What a score means in a queue.
//!
//! Scores of a million pages lie between a ten-millionth and a hundredth, and what matters is how many times better one is than
//! another. So a queue goes by *levels*: one level is a tenth more. Level 0 is the average page. A page moves in its queue
//! when its level changes, not with every small change of its score.

/// One level up is this many times the score.
const STEP: f64 = 1.1;
/// Levels that a page can lose against what it was found with, and win: an average page stays in front of a page's parts, and a
/// page that everybody links to stays behind what must be fetched first.
const LEVELS: std::ops::RangeInclusive<f64> = -40.0..=1_000.0;
/// Priorities that are moved. What is found with less leads to no page; what is found with much more was put in front by somebody.
const MOVED: std::ops::RangeInclusive<u16> = 60..=60_000;

/// The level of a page with this score among so many pages.
pub fn level(score: f64, pages: usize) -> i16 {
    let times = score * pages as f64;
    if times.is_nan() || times <= 0.0 {
        return *LEVELS.start() as i16;
    }
    (times.ln() / STEP.ln()).round().clamp(*LEVELS.start(), *LEVELS.end()) as i16
}

/// The priority in its queue of a page that was found with `own`.
pub fn priority(own: u16, level: i16) -> u16 {
    if MOVED.contains(&own) { own.saturating_add_signed(level) } else { own }
}
