//! What the synthetic web looks like, as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Everything that decides what the web contains. Two equal plans give the same bytes for every request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebPlan {
    /// Drives every choice below that is not spelled out.
    pub seed: u64,
    /// Hosts of plain pages. Hosts with oddities come on top, see [`WebPlan::oddities`].
    pub hosts: u32,
    /// Pages of each plain host, its root included.
    pub pages_per_host: u32,
    /// Links on a plain page, those that make every page reachable included.
    pub links_per_page: u32,
    /// Of the links drawn at random, how many lead to another host.
    pub cross_host_percent: u32,
    /// Whether the roots of hosts link to each other as a tree, so that all hosts are reached from host 0.
    pub hosts_linked: bool,
    /// Mean size of a plain page; pages are between half of it and one and a half times it.
    pub page_bytes: u32,
    /// How hosts are called.
    pub addressing: Addressing,
    /// Port in every URL; 80 is left out. A server replaces it by the port it really got.
    pub port: u16,
    /// How many plain hosts (from host 0) have their root among the seeds.
    pub seeds: u32,
    /// Crawl-delay that every robots.txt declares; 0 declares none.
    pub crawl_delay_ms: u32,
    /// Crawl-delay of the hosts whose variant is [`Robots::CrawlDelay`](super::Robots::CrawlDelay).
    pub long_crawl_delay_ms: u32,
    /// Time every plain page takes before its first byte.
    pub delay_ms: u32,
    /// Of a hundred plain pages, how many have other content in each epoch.
    pub changing_percent: u32,
    /// Links are written in many ways (relative, upper-case host, tracking parameters…) instead of the simplest.
    pub spellings: bool,
    /// Plain hosts take turns through all variants of robots.txt instead of allowing everything.
    pub robots_variants: bool,
    /// Some hosts write in German or Russian.
    pub languages: bool,
    /// How many hosts of each oddity there are.
    pub oddities: BTreeMap<Oddity, u32>,
    /// How long a slow page waits, and half of what a dripping one takes in all.
    pub slow_ms: u32,
    /// Size of a huge body, and of what a compressed bomb unpacks to.
    pub huge_bytes: u32,
    /// Retry-After of the answers that have one.
    pub retry_after_s: u32,
}

/// How hosts are called in URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addressing {
    /// By a loopback address, each host its own: a crawler needs no name service.
    Addresses,
    /// By a name under `.test`: a crawler needs the table of hosts.
    Names,
}

/// A kind of host that does something unusual. Its root links to everything it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Oddity {
    /// Links in every notation HTML has for them.
    LinkForms,
    /// Markup that hurts: 100,000 links, deep nesting, a 4 MiB attribute, unclosed tags, NUL bytes.
    Markup,
    /// Redirects: every status, chains, loops, across hosts, without or with a useless Location.
    Redirects,
    /// Slow, dripping and silent answers.
    Slow,
    /// Huge, endless, compressed, mis-measured, cut, empty and binary bodies.
    Bodies,
    /// Text in other encodings than UTF-8.
    Charsets,
    /// Answers that are errors and stay so.
    Statuses,
    /// Answers that are errors for a while: 503 and 429 with Retry-After.
    Flapping,
    /// 503 to everything but robots.txt, with a Retry-After of a week.
    Unavailable,
    /// A host that refuses connections.
    Down,
    /// Endless "next month" links.
    CalendarTrap,
    /// Relative links that repeat their own path: /a/b/a/b/…
    PathTrap,
    /// All permutations of query parameters.
    QueryTrap,
    /// A new session id in every link.
    SessionTrap,
    /// Very many and very long headers.
    Headers,
    /// noindex, nofollow, X-Robots-Tag, rel=nofollow, rel=canonical.
    RobotsMeta,
    /// Equal and nearly equal content under different URLs.
    Duplicates,
    /// ETag, Last-Modified, and content that changes with the epoch.
    Freshness,
    /// Sitemaps of all kinds, RSS and Atom.
    Syndication,
}

impl Oddity {
    /// Every oddity, in the order in which their hosts are numbered.
    pub const ALL: [Oddity; 19] = [
        Oddity::LinkForms,
        Oddity::Markup,
        Oddity::Redirects,
        Oddity::Slow,
        Oddity::Bodies,
        Oddity::Charsets,
        Oddity::Statuses,
        Oddity::Flapping,
        Oddity::Unavailable,
        Oddity::Down,
        Oddity::CalendarTrap,
        Oddity::PathTrap,
        Oddity::QueryTrap,
        Oddity::SessionTrap,
        Oddity::Headers,
        Oddity::RobotsMeta,
        Oddity::Duplicates,
        Oddity::Freshness,
        Oddity::Syndication,
    ];

    /// The name as it stands in host names, plans and arguments.
    pub fn name(self) -> &'static str {
        match self {
            Oddity::LinkForms => "link-forms",
            Oddity::Markup => "markup",
            Oddity::Redirects => "redirects",
            Oddity::Slow => "slow",
            Oddity::Bodies => "bodies",
            Oddity::Charsets => "charsets",
            Oddity::Statuses => "statuses",
            Oddity::Flapping => "flapping",
            Oddity::Unavailable => "unavailable",
            Oddity::Down => "down",
            Oddity::CalendarTrap => "calendar-trap",
            Oddity::PathTrap => "path-trap",
            Oddity::QueryTrap => "query-trap",
            Oddity::SessionTrap => "session-trap",
            Oddity::Headers => "headers",
            Oddity::RobotsMeta => "robots-meta",
            Oddity::Duplicates => "duplicates",
            Oddity::Freshness => "freshness",
            Oddity::Syndication => "syndication",
        }
    }

    /// Whether many requests to the host fail, so that a crawler with patience for only so many failures leaves it before
    /// it has seen everything. Tests of completeness leave these hosts out, or the crawler without such a limit.
    pub fn tries_patience(self) -> bool {
        use Oddity::{Bodies, Down, Flapping, Headers, Slow, Statuses, Unavailable};
        matches!(self, Slow | Bodies | Statuses | Flapping | Headers | Unavailable | Down)
    }

    /// Whether the host has no end of URLs, so that a crawler needs a bound to leave it.
    pub fn is_trap(self) -> bool {
        matches!(self, Oddity::CalendarTrap | Oddity::PathTrap | Oddity::QueryTrap | Oddity::SessionTrap)
    }
}

impl std::fmt::Display for Oddity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

impl std::str::FromStr for Oddity {
    type Err = String;

    fn from_str(text: &str) -> Result<Oddity, String> {
        Oddity::ALL.into_iter().find(|oddity| oddity.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Oddity::ALL.iter().map(|oddity| oddity.name()).collect();
            format!("no oddity is called {text:?}; there are {}", names.join(", "))
        })
    }
}

impl Default for WebPlan {
    /// A few plain hosts, nothing odd.
    fn default() -> WebPlan {
        WebPlan {
            seed: 1,
            hosts: 8,
            pages_per_host: 20,
            links_per_page: 12,
            cross_host_percent: 25,
            hosts_linked: true,
            page_bytes: 4_096,
            addressing: Addressing::Addresses,
            port: 80,
            seeds: 1,
            crawl_delay_ms: 0,
            long_crawl_delay_ms: 100,
            delay_ms: 0,
            changing_percent: 0,
            spellings: false,
            robots_variants: false,
            languages: false,
            oddities: BTreeMap::new(),
            slow_ms: 200,
            huge_bytes: 16 << 20,
            retry_after_s: 1,
        }
    }
}

impl WebPlan {
    /// Twenty small hosts and one of each oddity: everything there is, in a few hundred pages. For tests.
    pub fn small(seed: u64) -> WebPlan {
        WebPlan {
            seed,
            hosts: 20,
            pages_per_host: 12,
            page_bytes: 2_048,
            changing_percent: 20,
            spellings: true,
            robots_variants: true,
            languages: true,
            ..WebPlan::default()
        }
        .with_every_oddity(1)
    }

    /// Forty named hosts of sixty pages and one of each oddity: enough to watch for a while.
    pub fn demo(seed: u64) -> WebPlan {
        WebPlan {
            hosts: 40,
            pages_per_host: 60,
            links_per_page: 16,
            page_bytes: 6_144,
            addressing: Addressing::Names,
            seeds: 3,
            crawl_delay_ms: 100,
            long_crawl_delay_ms: 1_000,
            delay_ms: 10,
            slow_ms: 2_000,
            ..WebPlan::small(seed)
        }
    }

    /// Only plain pages of 8 KiB, every host a seed: measures the crawler and not the web.
    pub fn bench(seed: u64, hosts: u32, pages_per_host: u32) -> WebPlan {
        WebPlan {
            seed,
            hosts,
            pages_per_host,
            links_per_page: 24,
            page_bytes: 8_192,
            seeds: hosts,
            ..WebPlan::default()
        }
    }

    /// Calls hosts by name.
    pub fn with_names(mut self) -> WebPlan {
        self.addressing = Addressing::Names;
        self
    }

    /// Calls hosts by address.
    pub fn with_addresses(mut self) -> WebPlan {
        self.addressing = Addressing::Addresses;
        self
    }

    /// Declares a Crawl-delay in every robots.txt.
    pub fn with_crawl_delay_ms(mut self, crawl_delay_ms: u32) -> WebPlan {
        self.crawl_delay_ms = crawl_delay_ms;
        self
    }

    /// Sets how many hosts of one oddity there are.
    pub fn with_oddity(mut self, oddity: Oddity, hosts: u32) -> WebPlan {
        self.oddities.insert(oddity, hosts);
        self
    }

    /// Sets how many hosts of each oddity there are.
    pub fn with_every_oddity(mut self, hosts: u32) -> WebPlan {
        self.oddities = Oddity::ALL.into_iter().map(|oddity| (oddity, hosts)).collect();
        self
    }

    /// Leaves only plain hosts.
    pub fn without_oddities(mut self) -> WebPlan {
        self.oddities.clear();
        self
    }
}
