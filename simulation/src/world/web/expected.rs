//! What a polite crawler does on this web.

/// Whether a crawler that obeys robots.txt requests a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Forbidden.
    Never,
    /// Crawlers differ with good reason.
    May,
    /// Reachable and allowed.
    Must,
}
