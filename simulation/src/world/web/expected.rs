//! The oracle: what a polite crawler does on this web, found by walking the plan and not by reading pages.
//!
//! Polite means: it obeys robots.txt, follows no link marked nofollow, and stays on the hosts of this web. Bounds
//! (depth, pages per host, sizes) are its own affair; where they decide, the oracle says `May`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::hosts::HostKind;
use super::odd;
use super::plan::Oddity;
use super::robots::Robots;
use super::{Request, Visit, Web};

/// Whether a polite crawler requests a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Duty {
    /// Forbidden, or named only where no link is.
    Never,
    /// Crawlers differ with good reason: images, forms, sitemaps, what comes after a limit.
    May,
    /// Reachable and allowed.
    Must,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A page of HTML.
    Page,
    /// Something complete that is no page of HTML: an image, a feed, nothing at all.
    Other,
    /// A redirect to what the crawler should request next.
    Redirect,
    /// A redirect that ends nowhere: a loop, no target, a target that cannot be fetched.
    DeadRedirect,
    /// A status of 400 or more that stays.
    Error,
    /// An error at first, and a page after a few attempts.
    Temporary,
    /// No complete answer: reset, cut off, silent, or not HTTP.
    Broken,
    /// More than a client with sensible limits takes.
    Oversized,
    /// Connection refused.
    Refused,
}

/// What a crawler is expected to learn about a URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Status once it has settled; 0 when no status line comes.
    pub status: u16,
    /// What becomes of the request.
    pub kind: Kind,
    /// The page asks not to be indexed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub noindex: bool,
    /// The URL the page names as its canonical one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canonical: Option<String>,
    /// The URL whose content this repeats byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// The title, where decoding it is the difficulty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Why a URL must never be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// robots.txt forbids it, or could not be read.
    Robots,
    /// It is named only where a crawler must not follow: nofollow, comments, scripts, forms to post.
    NotFollowed,
}

/// What the plan says about a URL that was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is part of the crawl.
    Must,
    /// It may be part of the crawl; inside a trap, or a file like robots.txt, too.
    May,
    /// It must not be requested.
    Never(Why),
    /// Nothing in this web leads there: a link was misread.
    Unplanned,
}

/// What a polite crawler does. URLs are canonical: no fragment, no tracking parameters, no default port.
#[derive(Clone, Debug, Serialize)]
pub struct Expected {
    /// What has to be requested, and what comes of it. A crawler that leaves hosts on which too much fails need not come
    /// to the end of those where [`Oddity::tries_patience`].
    pub must: BTreeMap<String, Outcome>,
    /// What may be requested.
    pub may: BTreeMap<String, Outcome>,
    /// What must never be requested.
    pub never: BTreeMap<String, Why>,
    /// Beginnings of URLs behind which there is no end. Only their entrance is in `must`.
    pub unbounded: Vec<String>,
}

impl Expected {
    /// What the plan says about requesting `url` (canonical).
    pub fn judge(&self, url: &str) -> Verdict {
        if self.must.contains_key(url) {
            return Verdict::Must;
        }
        if let Some(why) = self.never.get(url) {
            return Verdict::Never(*why);
        }
        let path = url.splitn(4, '/').nth(3).unwrap_or("");
        let customary = matches!(path, "robots.txt" | "shared-robots.txt" | "favicon.ico" | "sitemap.xml");
        let trapped = self.unbounded.iter().any(|beginning| url.starts_with(beginning.as_str()));
        if customary || trapped || self.may.contains_key(url) { Verdict::May } else { Verdict::Unplanned }
    }
}

type Place = (u32, String);

impl Web {
    /// What a polite crawler that starts from the seeds does in epoch 0.
    pub fn expected(&self) -> Expected {
        self.expected_at(0)
    }

    /// What a polite crawler that starts from the seeds does in epoch `epoch`.
    pub fn expected_at(&self, epoch: u32) -> Expected {
        let mut best: BTreeMap<Place, Duty> = BTreeMap::new();
        let mut never: BTreeMap<String, Why> = BTreeMap::new();
        let seeds = 0..self.plan.seeds.clamp(1, self.plan.hosts.max(1));
        let mut open: Vec<(Place, Duty)> = seeds.map(|host| ((host, "/".to_owned()), Duty::Must)).collect();
        // A URL is walked again when a better way to it is found; duties only rise, so this ends.
        while let Some((place, duty)) = open.pop() {
            let allowed = self.robots(place.0).duty(&place.1);
            if allowed == Duty::Never {
                never.insert(self.url(place.0, &place.1), Why::Robots);
                continue;
            }
            let duty = duty.min(allowed);
            if best.get(&place).is_some_and(|known| *known >= duty) {
                continue;
            }
            for (next, follow) in self.leads_to(&place, epoch) {
                if follow == Duty::Never {
                    never.entry(self.url(next.0, &next.1)).or_insert(Why::NotFollowed);
                } else {
                    open.push((next, follow.min(duty)));
                }
            }
            best.insert(place, duty);
        }

        let (mut must, mut may) = (BTreeMap::new(), BTreeMap::new());
        for (place, duty) in best {
            let url = self.url(place.0, &place.1);
            never.remove(&url);
            let outcome = self.outcome(&place, epoch);
            if duty == Duty::Must {
                must.insert(url, outcome)
            } else {
                may.insert(url, outcome)
            };
        }
        Expected { must, may, never, unbounded: self.unbounded() }
    }

    fn unbounded(&self) -> Vec<String> {
        let hosts = self.plan.hosts..self.host_count();
        hosts
            .filter_map(|host| match self.host_kind(host) {
                HostKind::Odd(oddity, _) => odd::traps::prefix(oddity).map(|prefix| self.url(host, prefix)),
                HostKind::Plain => None,
            })
            .collect()
    }

    /// The URLs that a crawler keeps from `path` of `host`: links that are not marked nofollow, and the target of a redirect.
    pub fn followed(&self, host: u32, path: &str) -> Vec<String> {
        let leads = self.leads_to(&(host, path.to_owned()), 0);
        let kept = leads.into_iter().filter(|(_, duty)| *duty == Duty::Must);
        kept.map(|((host, path), _)| self.url(host, &path)).collect()
    }

    /// Where a crawler goes from `place`.
    fn leads_to(&self, (host, path): &Place, epoch: u32) -> Vec<(Place, Duty)> {
        match self.host_kind(*host) {
            HostKind::Plain => {
                let Some(page) = self.page_at(*host, path) else { return Vec::new() };
                let link = |link: super::plain::Link| {
                    let to = if link.page == 0 { "/".to_owned() } else { self.page_path(link.host, link.page) };
                    ((link.host, to), if link.nofollow { Duty::Never } else { Duty::Must })
                };
                self.page_links(*host, page).into_iter().map(link).collect()
            }
            HostKind::Odd(Oddity::Down, _) => Vec::new(),
            HostKind::Odd(oddity, _) => {
                let mut edges = odd::leads_to(oddity, path, epoch);
                // robots.txt leads to the sitemap.
                if path == "/" && self.robots(*host) == Robots::Sitemaps {
                    edges.push(("/sitemap.xml".to_owned(), Duty::May));
                }
                let place = |path: String| match path.strip_prefix("//0") {
                    Some(path) => (0, path.to_owned()),
                    None => (*host, path),
                };
                edges.into_iter().map(|(path, duty)| (place(path), duty)).collect()
            }
        }
    }

    fn outcome(&self, (host, path): &Place, epoch: u32) -> Outcome {
        let page =
            Outcome { status: 200, kind: Kind::Page, noindex: false, canonical: None, same_as: None, title: None };
        let HostKind::Odd(oddity, _) = self.host_kind(*host) else { return page };
        if oddity == Oddity::Down {
            return Outcome { status: 0, kind: Kind::Refused, ..page };
        }
        if oddity == Oddity::Unavailable {
            return Outcome { status: 503, kind: Kind::Error, ..page };
        }
        let Some(exhibit) = odd::exhibit(oddity, path) else {
            let redirected = self.settled_status(*host, path, epoch) == 302; // a later hop of the long chain
            return if redirected { Outcome { status: 302, kind: Kind::Redirect, ..page } } else { page };
        };
        let status = self.settled_status(*host, path, epoch);
        let kind = match (exhibit.kind, status) {
            (Kind::Page, 400..) => Kind::Error, // gone in this epoch
            (Kind::Error, 200) => Kind::Page,   // come in this epoch
            (kind, _) => kind,
        };
        let url = |path: &str| self.url(*host, path);
        Outcome {
            status,
            kind,
            noindex: exhibit.noindex,
            canonical: exhibit.canonical.map(url),
            same_as: exhibit.same_as.map(url),
            title: exhibit.title.map(str::to_owned),
        }
    }

    fn settled_status(&self, host: u32, path: &str, epoch: u32) -> u16 {
        let name = self.host_name(host);
        let answer = self.respond_as(host, &Request::get(&name, path), Visit { epoch, ..Visit::default() });
        if answer.delivery.sends_status() { answer.status } else { 0 }
    }
}
