//! Failure to disposition: the one table.
//!
//! [`verdict`] says what a failure means for the URL, for its host and for the error mask. Nothing is random here:
//! whoever schedules the retry adds the jitter. Every URL ends, because each kind of failure has a last attempt.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error_mask::ErrorBit;

/// Everything that can end a fetch other than a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Failure {
    /// The URL cannot be requested at all.
    BadUrl,
    /// The address guard refuses where the host points.
    AddressRefused,
    /// The name does not exist.
    DnsNotFound,
    /// The resolver gave no answer.
    DnsUnavailable,
    /// Nothing listens there.
    ConnectRefused,
    /// No connection within the connect timeout, or no route.
    ConnectFailed,
    /// TLS could not be agreed or the certificate is wrong.
    TlsFailed,
    /// The whole fetch took longer than allowed.
    Timeout,
    /// The connection broke while the answer came in.
    ConnectionBroken,
    /// The answer is not HTTP.
    ProtocolBroken,
    /// More header bytes or header lines than allowed.
    HeadTooLarge,
    /// The decoded body is larger than allowed.
    BodyTooLarge,
    /// The body does not decode by its Content-Encoding.
    DecodingFailed,
    /// The server answered with this status, 400 or above.
    Http(u16),
    /// A redirect without a usable Location.
    RedirectInvalid,
    /// The chain of redirects is too long.
    RedirectsTooMany,
    /// robots.txt forbids it.
    RobotsForbidden,
    /// robots.txt could not be had, so everything is forbidden for now.
    RobotsUnavailable,
    /// Our own actor died with the page in hand.
    Lost,
    /// The site has proxies for the host, and none of them works.
    NoProxy,
}

/// How often and how soon a failed fetch is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryRules {
    /// Attempts a URL gets in one round, the first included.
    pub attempts_max: u16,
    /// Attempts a URL gets while its host only asks for patience (429, 503): that is no defect of the URL.
    pub slow_down_attempts_max: u16,
    /// Wait after the first failed attempt; doubles with each further one.
    pub wait_min_ms: u64,
    /// The longest wait that doubling leads to.
    pub wait_max_ms: u64,
    /// Longest wait while robots.txt cannot be had: the whole host is closed until then. The first wait is a quarter, the second
    /// half of it.
    pub robots_wait_ms: u64,
}

impl Default for RetryRules {
    fn default() -> Self {
        RetryRules {
            attempts_max: 4,
            slow_down_attempts_max: 6,
            wait_min_ms: 30_000,
            wait_max_ms: 3_600_000,
            robots_wait_ms: 60_000,
        }
    }
}

/// What a failed attempt means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What happens to the URL.
    pub url: UrlVerdict,
    /// What it says about the host.
    pub host: HostVerdict,
    /// The bit that goes into the error mask.
    pub error: ErrorBit,
}

/// What happens to a URL after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlVerdict {
    /// It is tried again, not before this wait.
    Retry {
        /// From now on, without jitter.
        wait_ms: u64,
    },
    /// Its round is over.
    GiveUp,
}

/// What a failed attempt says about the host. Nodes tell it each other: variants are only appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HostVerdict {
    /// The host answers as it should.
    Healthy,
    /// The host asks for fewer requests.
    SlowDown,
    /// The host is in trouble: enough of these and it is left alone for a while.
    Failing,
}

/// Whether a failure may be repeated, and on which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Never,
    AtOnce,
    Doubling,
    /// Doubling, with the larger number of attempts.
    Patient,
    Robots,
}

/// Decides about a failure after `attempt` attempts, the failed one included.
pub fn verdict(failure: Failure, attempt: u16, rules: &RetryRules) -> Verdict {
    let (repeat, host, error) = row(failure);
    let (attempts_max, wait_ms) = match repeat {
        Repeat::Never => (0, 0),
        Repeat::AtOnce => (rules.attempts_max, 0),
        Repeat::Doubling => (rules.attempts_max, rules.doubled(attempt)),
        Repeat::Patient => (rules.attempts_max.max(rules.slow_down_attempts_max), rules.doubled(attempt)),
        Repeat::Robots => (rules.attempts_max, rules.robots_wait_ms >> (2 - attempt.saturating_sub(1).min(2))),
    };
    let url = if attempt < attempts_max { UrlVerdict::Retry { wait_ms } } else { UrlVerdict::GiveUp };
    Verdict { url, host, error }
}

/// The table.
fn row(failure: Failure) -> (Repeat, HostVerdict, ErrorBit) {
    use HostVerdict::{Failing, Healthy};
    match failure {
        Failure::BadUrl => (Repeat::Never, Healthy, ErrorBit::BadUrl),
        Failure::AddressRefused => (Repeat::Never, Healthy, ErrorBit::AddressRefused),
        // The name server knows for certain: no use in asking again within the round.
        Failure::DnsNotFound => (Repeat::Never, Failing, ErrorBit::Connection),
        Failure::DnsUnavailable => (Repeat::Doubling, Failing, ErrorBit::Connection),
        Failure::ConnectRefused | Failure::ConnectFailed => (Repeat::Doubling, Failing, ErrorBit::Connection),
        // Often a wrong certificate, but also what an overloaded front answers.
        Failure::TlsFailed => (Repeat::Doubling, Failing, ErrorBit::Connection),
        Failure::Timeout => (Repeat::Doubling, Failing, ErrorBit::Timeout),
        Failure::ConnectionBroken => (Repeat::Doubling, Failing, ErrorBit::Connection),
        Failure::ProtocolBroken => (Repeat::Doubling, Failing, ErrorBit::Http),
        // The page is like that, and will be the next time.
        Failure::HeadTooLarge | Failure::BodyTooLarge => (Repeat::Never, Healthy, ErrorBit::Size),
        Failure::DecodingFailed => (Repeat::Never, Healthy, ErrorBit::RawContentDecoding),
        Failure::Http(status) => status_row(status),
        Failure::RedirectInvalid => (Repeat::Never, Healthy, ErrorBit::BadRedirect),
        Failure::RedirectsTooMany => (Repeat::Never, Healthy, ErrorBit::HttpRedirectsMax),
        Failure::RobotsForbidden => (Repeat::Never, Healthy, ErrorBit::Robots),
        Failure::RobotsUnavailable => (Repeat::Robots, Failing, ErrorBit::Robots),
        // Bounded like the others: a page that kills our actor must not do so for ever.
        Failure::Lost => (Repeat::AtOnce, Healthy, ErrorBit::Crawler),
        // Nothing was heard of the host itself.
        Failure::NoProxy => (Repeat::Doubling, Healthy, ErrorBit::NoValidProxy),
    }
}

/// The part of the table for answers with an error status.
fn status_row(status: u16) -> (Repeat, HostVerdict, ErrorBit) {
    use HostVerdict::{Failing, Healthy, SlowDown};
    match status {
        401 | 407 => (Repeat::Never, Healthy, ErrorBit::Authorization),
        403 => (Repeat::Never, Healthy, ErrorBit::Forbidden),
        408 => (Repeat::Doubling, Failing, ErrorBit::Timeout),
        429 | 503 => (Repeat::Patient, SlowDown, ErrorBit::Http),
        // Not implemented, version not supported, variants, not extended: an answer about the request, not about the server.
        501 | 505 | 506 | 510 => (Repeat::Never, Healthy, ErrorBit::Http),
        500..=599 => (Repeat::Doubling, Failing, ErrorBit::Http),
        _ => (Repeat::Never, Healthy, ErrorBit::Http),
    }
}

impl RetryRules {
    /// Wait after `attempt` attempts: the least one, doubled for every attempt after the first, at most the longest.
    fn doubled(&self, attempt: u16) -> u64 {
        let doublings = u32::from(attempt.saturating_sub(1)).min(63);
        self.wait_min_ms.saturating_mul(1 << doublings).min(self.wait_max_ms)
    }
}

impl Failure {
    /// Stable name for summaries and metrics; every HTTP status is `http`, [`Failure`]'s `Display` tells them apart.
    pub const fn name(self) -> &'static str {
        match self {
            Failure::BadUrl => "bad_url",
            Failure::AddressRefused => "address_refused",
            Failure::DnsNotFound => "dns_not_found",
            Failure::DnsUnavailable => "dns_unavailable",
            Failure::ConnectRefused => "connect_refused",
            Failure::ConnectFailed => "connect_failed",
            Failure::TlsFailed => "tls_failed",
            Failure::Timeout => "timeout",
            Failure::ConnectionBroken => "connection_broken",
            Failure::ProtocolBroken => "protocol_broken",
            Failure::HeadTooLarge => "head_too_large",
            Failure::BodyTooLarge => "body_too_large",
            Failure::DecodingFailed => "decoding_failed",
            Failure::Http(_) => "http",
            Failure::RedirectInvalid => "redirect_invalid",
            Failure::RedirectsTooMany => "redirects_too_many",
            Failure::RobotsForbidden => "robots_forbidden",
            Failure::RobotsUnavailable => "robots_unavailable",
            Failure::Lost => "lost",
            Failure::NoProxy => "no_proxy",
        }
    }

    /// Says whether the server knows that there is no such page: 404 and 410.
    pub const fn is_gone(self) -> bool {
        matches!(self, Failure::Http(404 | 410))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Http(status) => write!(out, "http_{status}"),
            other => out.write_str(other.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every variant once, and every status.
    fn failures() -> Vec<Failure> {
        let mut all = vec![
            Failure::BadUrl,
            Failure::AddressRefused,
            Failure::DnsNotFound,
            Failure::DnsUnavailable,
            Failure::ConnectRefused,
            Failure::ConnectFailed,
            Failure::TlsFailed,
            Failure::Timeout,
            Failure::ConnectionBroken,
            Failure::ProtocolBroken,
            Failure::HeadTooLarge,
            Failure::BodyTooLarge,
            Failure::DecodingFailed,
            Failure::RedirectInvalid,
            Failure::RedirectsTooMany,
            Failure::RobotsForbidden,
            Failure::RobotsUnavailable,
            Failure::Lost,
            Failure::NoProxy,
        ];
        all.extend((400..=599).map(Failure::Http));
        all
    }

    fn first(failure: Failure) -> Verdict {
        verdict(failure, 1, &RetryRules::default())
    }

    fn is_retried(failure: Failure) -> bool {
        first(failure).url != UrlVerdict::GiveUp
    }

    #[test]
    fn every_failure_has_its_row() {
        use HostVerdict::{Failing, Healthy, SlowDown};
        let expected = |failure| match failure {
            Failure::DnsNotFound => (false, Failing),
            Failure::DnsUnavailable
            | Failure::ConnectRefused
            | Failure::ConnectFailed
            | Failure::TlsFailed
            | Failure::Timeout
            | Failure::ConnectionBroken
            | Failure::ProtocolBroken
            | Failure::RobotsUnavailable => (true, Failing),
            Failure::Lost | Failure::NoProxy => (true, Healthy),
            Failure::Http(429 | 503) => (true, SlowDown),
            Failure::Http(501 | 505 | 506 | 510) => (false, Healthy),
            Failure::Http(408 | 500..=599) => (true, Failing),
            _ => (false, Healthy),
        };
        for failure in failures() {
            assert_eq!((is_retried(failure), first(failure).host), expected(failure), "{failure}");
        }
    }

    #[test]
    fn a_page_that_is_gone_is_not_asked_for_again() {
        for failure in failures() {
            assert_eq!(failure.is_gone(), matches!(failure, Failure::Http(404 | 410)));
            assert!(!(failure.is_gone() && is_retried(failure)));
        }
    }

    #[test]
    fn error_bits_follow_the_seed() {
        for (failure, bit) in [
            (Failure::BadUrl, 0),
            (Failure::Timeout, 1),
            (Failure::Http(404), 2),
            (Failure::Http(500), 2),
            (Failure::ConnectRefused, 5),
            (Failure::RedirectInvalid, 7),
            (Failure::BodyTooLarge, 8),
            (Failure::Http(401), 9),
            (Failure::RobotsForbidden, 11),
            (Failure::RedirectsTooMany, 17),
            (Failure::Lost, 19),
            (Failure::DecodingFailed, 35),
            (Failure::Http(403), 48),
        ] {
            assert_eq!(first(failure).error as u8, bit, "{failure}");
        }
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let rules = RetryRules { attempts_max: 9, wait_min_ms: 100, wait_max_ms: 1_000, ..RetryRules::default() };
        let waits: Vec<_> = (1..=6).map(|attempt| verdict(Failure::Timeout, attempt, &rules).url).collect();
        let expected = [100, 200, 400, 800, 1_000, 1_000].map(|wait_ms| UrlVerdict::Retry { wait_ms });
        assert_eq!(waits, expected);
    }

    #[test]
    fn robots_txt_is_asked_for_again_after_a_quarter_a_half_and_the_whole_of_its_wait() {
        let rules = RetryRules { attempts_max: 5, robots_wait_ms: 60_000, ..RetryRules::default() };
        let waits: Vec<_> = (1..=4).map(|tries| verdict(Failure::RobotsUnavailable, tries, &rules).url).collect();
        assert_eq!(waits, [15_000, 30_000, 60_000, 60_000].map(|wait_ms| UrlVerdict::Retry { wait_ms }));
    }

    #[test]
    fn a_lost_page_is_tried_again_at_once_but_not_for_ever() {
        let rules = RetryRules::default();
        assert_eq!(verdict(Failure::Lost, 1, &rules).url, UrlVerdict::Retry { wait_ms: 0 });
        assert_eq!(verdict(Failure::Lost, rules.attempts_max, &rules).url, UrlVerdict::GiveUp);
    }

    #[test]
    fn a_host_that_asks_for_patience_gets_more_attempts() {
        let rules = RetryRules::default();
        assert_eq!(verdict(Failure::Timeout, rules.attempts_max, &rules).url, UrlVerdict::GiveUp);
        assert_ne!(verdict(Failure::Http(503), rules.attempts_max, &rules).url, UrlVerdict::GiveUp);
        assert_eq!(verdict(Failure::Http(503), rules.slow_down_attempts_max, &rules).url, UrlVerdict::GiveUp);
    }

    #[test]
    fn names_are_distinct_and_statuses_are_told_apart() {
        let names: std::collections::BTreeSet<_> = failures().iter().map(|failure| failure.name()).collect();
        assert_eq!(names.len(), 20);
        let texts: std::collections::BTreeSet<_> = failures().iter().map(Failure::to_string).collect();
        assert_eq!(texts.len(), 219);
        assert_eq!(Failure::Http(404).to_string(), "http_404");
    }

    fn any_rules() -> impl Strategy<Value = RetryRules> {
        any::<(u16, u16, u64, u64, u64)>().prop_map(
            |(attempts_max, patient, wait_min_ms, wait_max_ms, robots_wait_ms)| RetryRules {
                attempts_max,
                slow_down_attempts_max: patient,
                wait_min_ms,
                wait_max_ms,
                robots_wait_ms,
            },
        )
    }

    proptest! {
        #[test]
        fn waits_never_shrink_and_stay_within_bounds(rules in any_rules(), at in 0..218usize, attempt in 0..u16::MAX) {
            let failure = failures()[at];
            let (now, next) = (verdict(failure, attempt, &rules), verdict(failure, attempt + 1, &rules));
            prop_assert_eq!((now.host, now.error), (next.host, next.error));
            let bound = if failure == Failure::RobotsUnavailable { rules.robots_wait_ms } else { rules.wait_max_ms };
            match (now.url, next.url) {
                (UrlVerdict::Retry { wait_ms: a }, UrlVerdict::Retry { wait_ms: b }) => prop_assert!(a <= b && b <= bound),
                (UrlVerdict::GiveUp, UrlVerdict::Retry { .. }) => prop_assert!(false, "given up and taken back"),
                _ => {}
            }
        }

        #[test]
        fn every_url_ends(rules in any_rules(), at in 0..218usize) {
            let last = rules.attempts_max.max(rules.slow_down_attempts_max);
            prop_assert_eq!(verdict(failures()[at], last, &rules).url, UrlVerdict::GiveUp);
        }
    }
}
