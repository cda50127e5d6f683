//! What pages themselves say to crawlers: noindex, nofollow, canonical.

use super::super::Answer;
use super::super::expected::Duty::{May, Must, Never};
use super::super::expected::Kind::Page;
use super::{Duty, Exhibit, Here, Serve};

const fn page(path: &'static str, noindex: bool, serve: Serve, leads_to: &'static [(&'static str, Duty)]) -> Exhibit {
    Exhibit { noindex, leads_to, ..Exhibit::new(path, Page, serve) }
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    page(
        "/meta/noindex",
        true,
        Serve::Html("<meta name=\"robots\" content=\"noindex\">", "<a href=\"/leaf/noindex\">1</a>"),
        &[("/leaf/noindex", Must)],
    ),
    page(
        "/meta/nofollow",
        false,
        Serve::Html("<meta name=\"robots\" content=\"nofollow\">", "<a href=\"/leaf/nofollow\">1</a>"),
        &[("/leaf/nofollow", Never)],
    ),
    page(
        "/meta/none",
        true,
        Serve::Html("<META NAME='ROBOTS' CONTENT='None'>", "<a href=\"/leaf/none\">1</a>"),
        &[("/leaf/none", Never)],
    ),
    page(
        "/meta/both",
        true,
        Serve::Html("<meta content=\" NOINDEX ,NoFollow\" name=robots>", "<a href=\"/leaf/both\">1</a>"),
        &[("/leaf/both", Never)],
    ),
    page(
        "/meta/two-tags",
        true,
        Serve::Html(
            "<meta name=robots content=noindex><meta name=robots content=nofollow>",
            "<a href=\"/leaf/two-tags\">1</a>",
        ),
        &[("/leaf/two-tags", Never)],
    ),
    page(
        "/meta/other-crawler",
        false,
        Serve::Html("<meta name=\"badbot\" content=\"noindex, nofollow\">", "<a href=\"/leaf/other-crawler\">1</a>"),
        &[("/leaf/other-crawler", Must)],
    ),
    page(
        "/meta/header-noindex",
        true,
        Serve::With(|here| tagged(here, &["noindex"], "header-noindex")),
        &[("/leaf/header-noindex", Must)],
    ),
    page(
        "/meta/header-nofollow",
        false,
        Serve::With(|here| tagged(here, &["nofollow"], "header-nofollow")),
        &[("/leaf/header-nofollow", Never)],
    ),
    page(
        "/meta/header-none",
        true,
        Serve::With(|here| tagged(here, &["noarchive", "None"], "header-none")),
        &[("/leaf/header-none", Never)],
    ),
    page(
        "/meta/header-other-crawler",
        false,
        Serve::With(|here| tagged(here, &["badbot: noindex, nofollow"], "header-other-crawler")),
        &[("/leaf/header-other-crawler", Must)],
    ),
    Exhibit::page(
        "/meta/rel-nofollow",
        r#"<a rel="nofollow" href="/leaf/rel-nofollow">1</a> <a href="/leaf/rel-many" rel="noopener NoFollow ugc">2</a>
<a rel="noopener" href="/leaf/rel-other">3</a> <a rel="nofollow" href="/leaf/rel-twice">4</a> <a href="/leaf/rel-twice">5</a>"#,
        &[
            ("/leaf/rel-nofollow", Never),
            ("/leaf/rel-many", Never),
            ("/leaf/rel-other", Must),
            ("/leaf/rel-twice", Must),
        ],
    ),
    canonical("/meta/canonical", Serve::Html("<link rel=\"canonical\" href=\"/leaf/canonical\">", "")),
    canonical("/meta/canonical-header", Serve::With(canonical_header)),
    Exhibit {
        canonical: Some("/meta/canonical-self"),
        ..page(
            "/meta/canonical-self",
            false,
            Serve::Html("<link rel=canonical href=\"{origin}/meta/canonical-self#x\">", ""),
            &[],
        )
    },
];

const fn canonical(path: &'static str, serve: Serve) -> Exhibit {
    Exhibit { canonical: Some("/leaf/canonical"), ..page(path, false, serve, &[("/leaf/canonical", May)]) }
}

fn tagged(here: &Here<'_>, tags: &[&'static str], leaf: &str) -> Answer {
    let mut answer = here.page("", &format!("<a href=\"/leaf/{leaf}\">1</a>"));
    for tag in tags {
        answer.header("x-robots-tag", *tag);
    }
    answer
}

fn canonical_header(here: &Here<'_>) -> Answer {
    let mut answer = here.page("", "");
    answer.header("link", format!("<{}>; rel=\"canonical\"", here.web.url(here.host, "/leaf/canonical")));
    answer
}
