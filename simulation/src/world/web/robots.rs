//! robots.txt in the variants found in the wild.

use std::borrow::Cow;

use super::expected::Duty;
use super::hosts::HostKind;
use super::plan::Oddity;
use super::{Answer, Delivery, Visit, Web};

/// What RFC 9309 asks a crawler to read at least.
const CAP_BYTES: usize = 500 * 1024;

/// What a host answers to a request for /robots.txt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Robots {
    /// Everything is allowed.
    AllowAll,
    /// `/private/` is forbidden.
    Private,
    /// Wildcards, an end anchor, and an Allow that is longer than the Disallow it pierces.
    Wildcards,
    /// A Crawl-delay of `long_crawl_delay_ms`.
    CrawlDelay,
    /// 404: everything is allowed.
    Missing,
    /// 403: by RFC 9309 everything is allowed; some crawlers are more careful.
    Denied,
    /// 500 for the first two requests, then `/private/` is forbidden.
    ErrorForAWhile,
    /// 500 for ever: everything is forbidden.
    ErrorAlways,
    /// The connection is reset: everything is forbidden.
    Unreachable,
    /// Redirects to a file on host 0 that forbids `/private/`.
    Redirected,
    /// Longer than 500 KiB: `/private/` is forbidden at its beginning, `/print/` after the part that must be read.
    Huge,
    /// Begins with a byte order mark, then forbids `/private/`.
    ByteOrderMark,
    /// Random bytes: no rule in them, so everything is allowed.
    Garbage,
    /// No bytes at all: everything is allowed.
    Empty,
    /// Names sitemaps and forbids nothing.
    Sitemaps,
    /// Forbids everything.
    DisallowAll,
    /// Different rules for other crawlers, in odd case, with comments and CR line ends; `/private/` is forbidden to all.
    Groups,
}

impl Robots {
    /// Every variant, in the order in which plain hosts take turns.
    pub const ALL: [Robots; 17] = [
        Robots::AllowAll,
        Robots::Private,
        Robots::Wildcards,
        Robots::CrawlDelay,
        Robots::Missing,
        Robots::Denied,
        Robots::ErrorForAWhile,
        Robots::ErrorAlways,
        Robots::Unreachable,
        Robots::Redirected,
        Robots::Huge,
        Robots::ByteOrderMark,
        Robots::Garbage,
        Robots::Empty,
        Robots::Sitemaps,
        Robots::DisallowAll,
        Robots::Groups,
    ];

    /// What the file means for `path` (with query), decided by the variant and not by reading the file.
    pub(crate) fn duty(self, path: &str) -> Duty {
        let private = path.starts_with("/private/");
        match self {
            Robots::ErrorAlways | Robots::Unreachable | Robots::DisallowAll => Duty::Never,
            Robots::Private | Robots::Redirected | Robots::ByteOrderMark | Robots::Groups if private => Duty::Never,
            Robots::Huge if private => Duty::Never,
            Robots::Huge if path.starts_with("/print/") => Duty::May,
            Robots::ErrorForAWhile if private => Duty::Never,
            // A crawler that waits long before it asks for robots.txt again never comes to see the pages.
            Robots::ErrorForAWhile | Robots::Denied => Duty::May,
            Robots::Wildcards => {
                let pierced = path.starts_with("/private/a");
                let print = path.ends_with(".htm") || path.contains("sort=");
                if (private && !pierced) || print { Duty::Never } else { Duty::Must }
            }
            _ => Duty::Must,
        }
    }
}

impl Web {
    /// The variant of robots.txt that host `number` has.
    pub fn robots(&self, number: u32) -> Robots {
        match self.host_kind(number) {
            HostKind::Odd(Oddity::Syndication, _) => Robots::Sitemaps,
            HostKind::Odd(..) => Robots::AllowAll,
            HostKind::Plain if !self.plan.robots_variants || number == 0 => Robots::AllowAll,
            // A host on which others hang must let crawlers through.
            HostKind::Plain if self.has_child_hosts(number) => {
                [Robots::AllowAll, Robots::Private, Robots::ByteOrderMark, Robots::Missing][number as usize % 4]
            }
            HostKind::Plain => Robots::ALL[number as usize % Robots::ALL.len()],
        }
    }

    /// The Crawl-delay that host `number` declares; 0 when it declares none.
    pub fn crawl_delay_ms(&self, number: u32) -> u32 {
        match self.robots(number) {
            Robots::CrawlDelay => self.plan.long_crawl_delay_ms,
            Robots::AllowAll
            | Robots::Private
            | Robots::Wildcards
            | Robots::Sitemaps
            | Robots::ByteOrderMark
            | Robots::Groups => self.plan.crawl_delay_ms,
            _ => 0,
        }
    }

    pub(super) fn robots_answer(&self, number: u32, visit: &Visit) -> Answer {
        let robots = self.robots(number);
        let private = "User-agent: *\nDisallow: /private/\n";
        let mut text: Cow<'static, str> = match robots {
            Robots::AllowAll | Robots::CrawlDelay => "User-agent: *\nAllow: /\n".into(),
            Robots::Private => private.into(),
            Robots::Wildcards => "User-agent: *\nDisallow: /private/\nAllow: /private/a\nDisallow: /*.htm$\n\
                Disallow: /*sort=\nDisallow: /*.htm?\n"
                .into(),
            Robots::Missing => return Answer::error(404),
            Robots::Denied => return Answer::error(403),
            Robots::ErrorForAWhile if visit.earlier.is_some_and(|earlier| earlier < 2) => return Answer::error(500),
            Robots::ErrorForAWhile => private.into(),
            Robots::ErrorAlways => return Answer::error(500),
            Robots::Unreachable => return Answer::error(0).delivered(Delivery::Reset),
            Robots::Redirected => return Answer::redirect(302, self.url(0, super::SHARED_ROBOTS_PATH)),
            Robots::Huge => {
                let mut text = String::with_capacity(CAP_BYTES + 64 * 1024);
                text.push_str(private);
                while text.len() < CAP_BYTES + 32 * 1024 {
                    text.push_str(
                        "# This line is here to be long, and says nothing that a crawler would need to know.\n",
                    );
                }
                text.push_str("Disallow: /print/\n");
                text.into()
            }
            Robots::ByteOrderMark => format!("\u{feff}{private}").into(),
            Robots::Garbage => return Answer::ok("text/plain", self.noise(number, 4_096)),
            Robots::Empty => "".into(),
            Robots::Sitemaps => {
                format!("Sitemap: {}\nUser-agent: *\nDisallow:\n", self.url(number, "/sitemap.xml")).into()
            }
            Robots::DisallowAll => "User-agent: *\nDisallow: /\n".into(),
            Robots::Groups => "# Others first.\r\nUser-agent: badbot\r\nUser-Agent: WORSEBOT\r\nDisallow: /\r\n\r\n\
                USER-AGENT: *   # all the rest\r\nDISALLOW:/private/ # with a comment\r\nUnknown-field: x\r\n"
                .into(),
        };
        let delay_ms = self.crawl_delay_ms(number);
        if delay_ms > 0 {
            text.to_mut().push_str(&format!("Crawl-delay: {}\n", f64::from(delay_ms) / 1000.0));
        }
        Answer::ok("text/plain; charset=utf-8", text.into_owned().into_bytes())
    }
}

/// The file that [`Robots::Redirected`] leads to.
pub(super) fn shared_robots() -> Answer {
    Answer::ok("text/plain", b"User-agent: *\nDisallow: /private/\n".to_vec())
}
