//! Redirects, and what can go wrong with them.

use super::super::Answer;
use super::super::expected::Duty::Must;
use super::super::expected::Kind::{DeadRedirect, Redirect};
use super::{Exhibit, Here, Serve};

/// Hops of the long chain: more than any browser follows.
const LONG_CHAIN: u32 = 30;

macro_rules! to {
    ($status:expr, $location:expr) => {
        Serve::With(|here| Answer::redirect($status, here.web.fill_in(here.host, $location)))
    };
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit::new("/redirects/301", Redirect, to!(301, "{origin}/leaf/301")).leading_to(&[("/leaf/301", Must)]),
    Exhibit::new("/redirects/302", Redirect, to!(302, "/leaf/302")).leading_to(&[("/leaf/302", Must)]),
    Exhibit::new("/redirects/303", Redirect, to!(303, "/leaf/303")).leading_to(&[("/leaf/303", Must)]),
    Exhibit::new("/redirects/307", Redirect, to!(307, "/leaf/307")).leading_to(&[("/leaf/307", Must)]),
    Exhibit::new("/redirects/308", Redirect, to!(308, "/leaf/308")).leading_to(&[("/leaf/308", Must)]),
    Exhibit::new("/redirects/relative", Redirect, to!(302, "../leaf/redirected-relative"))
        .leading_to(&[("/leaf/redirected-relative", Must)]),
    Exhibit::new("/redirects/fragment", Redirect, to!(302, "/leaf/redirected-fragment#part"))
        .leading_to(&[("/leaf/redirected-fragment", Must)]),
    Exhibit::new("/redirects/chain-1", Redirect, to!(301, "/redirects/chain-2"))
        .leading_to(&[("/redirects/chain-2", Must)]),
    Exhibit::new("/redirects/chain-2", Redirect, to!(302, "/redirects/chain-3"))
        .leading_to(&[("/redirects/chain-3", Must)])
        .unlisted(),
    Exhibit::new("/redirects/chain-3", Redirect, to!(307, "/leaf/end-of-chain"))
        .leading_to(&[("/leaf/end-of-chain", Must)])
        .unlisted(),
    Exhibit::new("/redirects/cross-host", Redirect, Serve::With(cross_host)).leading_to(&[("//0/", Must)]),
    // Crawlers may give up on it where they like.
    Exhibit::new("/redirects/long-chain?hop=1", Redirect, Serve::With(long_chain)),
    Exhibit::new("/redirects/self", DeadRedirect, to!(302, "/redirects/self")),
    Exhibit::new("/redirects/loop-a", DeadRedirect, to!(302, "/redirects/loop-b"))
        .leading_to(&[("/redirects/loop-b", Must)]),
    Exhibit::new("/redirects/loop-b", DeadRedirect, to!(302, "/redirects/loop-a"))
        .leading_to(&[("/redirects/loop-a", Must)])
        .unlisted(),
    Exhibit::new("/redirects/no-location", DeadRedirect, Serve::With(|_| Answer::error(302))),
    Exhibit::new("/redirects/empty-location", DeadRedirect, to!(302, "")),
    Exhibit::new("/redirects/javascript", DeadRedirect, to!(302, "javascript:alert(1)")),
    Exhibit::new("/redirects/unparsable", DeadRedirect, to!(302, "http://[::1")),
    Exhibit::new("/redirects/other-scheme", DeadRedirect, to!(302, "ftp://{authority}/leaf/ftp")),
];

fn cross_host(here: &Here<'_>) -> Answer {
    Answer::redirect(301, here.web.url(0, "/"))
}

fn long_chain(here: &Here<'_>) -> Answer {
    hop(here).expect("the path is that of the first hop")
}

/// Any hop of the long chain.
pub(super) fn hop(here: &Here<'_>) -> Option<Answer> {
    hop_number(here.path).map(|_| Answer::redirect(302, after(here.path)))
}

/// Which hop of the long chain `path` is.
pub(super) fn hop_number(path: &str) -> Option<u32> {
    let hop = path.strip_prefix("/redirects/long-chain?hop=")?.parse().ok()?;
    (1..=LONG_CHAIN).contains(&hop).then_some(hop)
}

/// Where a hop of the long chain leads.
pub(super) fn after(path: &str) -> String {
    match hop_number(path) {
        Some(hop) if hop < LONG_CHAIN => format!("/redirects/long-chain?hop={}", hop + 1),
        _ => "/leaf/end-of-long-chain".to_owned(),
    }
}
