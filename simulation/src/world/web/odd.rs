//! Odd hosts: each shows the variants of one oddity, as exhibits that its root links to.
//!
//! An [`Exhibit`] says at once what is served and what a crawler is expected to make of it; the answer and the oracle
//! are two readings of the same table. Pages called `/leaf/…` exist on every odd host: they lead nowhere and are there to
//! be found, or not to be.

mod bodies;
mod charsets;
mod duplicates;
mod flapping;
mod freshness;
mod headers;
mod link_forms;
mod markup;
mod redirects;
mod robots_meta;
mod slow;
mod statuses;
pub(super) mod syndication;
pub(super) mod traps;

use super::draw::{Draw, For, key};
use super::expected::{Duty, Kind};
use super::plan::Oddity;
use super::text::Language;
use super::{Answer, Visit, Web};

/// One thing that an odd host shows.
#[derive(Clone, Copy)]
pub(super) struct Exhibit {
    pub(super) path: &'static str,
    /// How the root of the host speaks of it: `Must` links to it, `Never` does not, so that another page has to.
    pub(super) listed: Duty,
    pub(super) kind: Kind,
    /// What it leads to if it is read rightly. A path on the same host, or `//0/` for the root of plain host 0.
    pub(super) leads_to: &'static [(&'static str, Duty)],
    pub(super) noindex: bool,
    pub(super) canonical: Option<&'static str>,
    pub(super) same_as: Option<&'static str>,
    pub(super) title: Option<&'static str>,
    pub(super) serve: Serve,
}

/// What is sent for an exhibit.
#[derive(Clone, Copy)]
pub(super) enum Serve {
    /// An HTML page with something in its head and in its body; see [`Web::fill_in`].
    Html(&'static str, &'static str),
    /// Whatever the function makes.
    With(fn(&Here<'_>) -> Answer),
}

/// What a function that serves an exhibit may use.
pub(super) struct Here<'a> {
    pub(super) web: &'a Web,
    pub(super) host: u32,
    pub(super) path: &'a str,
    pub(super) visit: Visit,
}

impl Exhibit {
    const fn new(path: &'static str, kind: Kind, serve: Serve) -> Exhibit {
        Exhibit {
            path,
            listed: Duty::Must,
            kind,
            leads_to: &[],
            noindex: false,
            canonical: None,
            same_as: None,
            title: None,
            serve,
        }
    }

    const fn page(path: &'static str, body: &'static str, leads_to: &'static [(&'static str, Duty)]) -> Exhibit {
        Exhibit { leads_to, ..Exhibit::new(path, Kind::Page, Serve::Html("", body)) }
    }

    const fn leading_to(self, leads_to: &'static [(&'static str, Duty)]) -> Exhibit {
        Exhibit { leads_to, ..self }
    }

    const fn unlisted(self) -> Exhibit {
        Exhibit { listed: Duty::Never, ..self }
    }
}

/// Everything that hosts with `oddity` show.
pub(super) fn exhibits(oddity: Oddity) -> &'static [Exhibit] {
    match oddity {
        Oddity::LinkForms => link_forms::EXHIBITS,
        Oddity::Markup => markup::EXHIBITS,
        Oddity::Redirects => redirects::EXHIBITS,
        Oddity::Slow => slow::EXHIBITS,
        Oddity::Bodies => bodies::EXHIBITS,
        Oddity::Charsets => charsets::EXHIBITS,
        Oddity::Statuses => statuses::EXHIBITS,
        Oddity::Flapping => flapping::EXHIBITS,
        Oddity::Unavailable | Oddity::Down => &[],
        Oddity::CalendarTrap => traps::CALENDAR,
        Oddity::PathTrap => traps::PATH,
        Oddity::QueryTrap => traps::QUERY,
        Oddity::SessionTrap => traps::SESSION,
        Oddity::Headers => headers::EXHIBITS,
        Oddity::RobotsMeta => robots_meta::EXHIBITS,
        Oddity::Duplicates => duplicates::EXHIBITS,
        Oddity::Freshness => freshness::EXHIBITS,
        Oddity::Syndication => syndication::EXHIBITS,
    }
}

/// The exhibit at `path`.
pub(super) fn exhibit(oddity: Oddity, path: &str) -> Option<&'static Exhibit> {
    exhibits(oddity).iter().find(|exhibit| exhibit.path == path)
}

/// Whether the answer to `path` depends on earlier requests for it.
pub(super) fn counts_visits(oddity: Oddity, path: &str) -> bool {
    match oddity {
        Oddity::Flapping => path.starts_with("/flapping/"),
        Oddity::Freshness => path == freshness::EVERY_VISIT,
        _ => false,
    }
}

/// What `path` leads to on a host with `oddity`, root and patterns included.
pub(super) fn leads_to(oddity: Oddity, path: &str, epoch: u32) -> Vec<(String, Duty)> {
    let listed = |exhibit: &&Exhibit| exhibit.listed == Duty::Must;
    match (oddity, path) {
        (_, "/") => exhibits(oddity).iter().filter(listed).map(|shown| (shown.path.to_owned(), Duty::Must)).collect(),
        (Oddity::Freshness, freshness::GROWING) => {
            (0..=epoch).map(|epoch| (format!("/leaf/epoch-{epoch}"), Duty::Must)).collect()
        }
        (Oddity::Redirects, _) if redirects::hop_number(path).is_some() => vec![(redirects::after(path), Duty::May)],
        _ => exhibit(oddity, path)
            .map_or(&[][..], |exhibit| exhibit.leads_to)
            .iter()
            .map(|(path, duty)| ((*path).to_owned(), *duty))
            .collect(),
    }
}

impl Web {
    pub(super) fn odd_answer(&self, host: u32, oddity: Oddity, path: &str, visit: Visit) -> Answer {
        let here = Here { web: self, host, path, visit };
        if oddity == Oddity::Unavailable {
            return flapping::a_week();
        }
        if path == "/" {
            return here.page("", &root_links(oddity));
        }
        if path.starts_with("/leaf/") {
            return here.page("", "<p>There is nothing further here.</p>");
        }
        match exhibit(oddity, path) {
            Some(Exhibit { serve: Serve::Html(head, body), .. }) => here.page(head, body),
            Some(Exhibit { serve: Serve::With(make), .. }) => make(&here),
            None if oddity.is_trap() => traps::answer(&here, oddity),
            None if oddity == Oddity::Redirects => redirects::hop(&here).unwrap_or_else(|| Answer::error(404)),
            None => Answer::error(404),
        }
    }

    /// Replaces `{origin}`, `{authority}`, `{HOST}` (upper case, with port) and `{explicit}` (origin with its port even
    /// if that is 80) in a piece of HTML.
    fn fill_in(&self, host: u32, html: &str) -> String {
        if !html.contains('{') {
            return html.to_owned();
        }
        let origin = self.url(host, "");
        let authority = &origin["http://".len()..];
        let explicit = if self.plan.port == 80 { format!("{origin}:80") } else { origin.clone() };
        html.replace("{origin}", &origin)
            .replace("{authority}", authority)
            .replace("{HOST}", &authority.to_ascii_uppercase())
            .replace("{explicit}", &explicit)
    }
}

impl Here<'_> {
    /// An HTML page in UTF-8.
    fn page(&self, head: &str, body: &str) -> Answer {
        Answer::ok("text/html; charset=utf-8", self.html(head, body, self.path))
    }

    /// An HTML page whose prose depends on `topic`, so that pages about different things differ.
    fn html(&self, head: &str, body: &str, topic: &str) -> Vec<u8> {
        let mut draw = Draw::new(self.web.plan.seed, For::Leaf, u64::from(self.host), key(topic));
        let mut out = Vec::with_capacity(2_048 + head.len() + body.len());
        out.extend_from_slice(b"<!doctype html>\n<html lang=\"en\"><head><title>");
        out.extend_from_slice(escape(topic).as_bytes());
        out.extend_from_slice(b"</title>\n");
        out.extend_from_slice(self.web.fill_in(self.host, head).as_bytes());
        out.extend_from_slice(b"</head>\n<body>\n<p>");
        self.web.prose.append(&mut out, Language::English, &mut draw, 900);
        out.extend_from_slice(b"</p>\n");
        out.extend_from_slice(self.web.fill_in(self.host, body).as_bytes());
        out.extend_from_slice(b"\n</body></html>\n");
        out
    }
}

fn root_links(oddity: Oddity) -> String {
    let mut out = String::from("<ul>\n");
    for exhibit in exhibits(oddity).iter().filter(|exhibit| exhibit.listed == Duty::Must) {
        let path = escape(exhibit.path);
        out.push_str(&format!("<li><a href=\"{path}\">{path}</a></li>\n"));
    }
    out.push_str("</ul>");
    out
}

/// Makes a text safe inside HTML and its attributes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
