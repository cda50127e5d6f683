//! Links in every notation HTML has for them, and things that look like links and are none.

use super::super::expected::Duty::{May, Must, Never};
use super::super::expected::Kind;
use super::{Exhibit, Serve};

const fn with_head(
    path: &'static str,
    head: &'static str,
    body: &'static str,
    leads_to: &'static [(&'static str, super::Duty)],
) -> Exhibit {
    Exhibit { leads_to, ..Exhibit::new(path, Kind::Page, Serve::Html(head, body)) }
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit::page(
        "/forms/relative",
        r#"<a href="../leaf/relative">1</a> <a href="./deep/.././../leaf/relative-dots">2</a>
<a href="../../../leaf/relative-above-root">3</a>"#,
        &[("/leaf/relative", Must), ("/leaf/relative-dots", Must), ("/leaf/relative-above-root", Must)],
    ),
    Exhibit::page("/forms/root-relative", r#"<a href="/leaf/root-relative">1</a>"#, &[("/leaf/root-relative", Must)]),
    Exhibit::page("/forms/absolute", r#"<a href="{origin}/leaf/absolute">1</a>"#, &[("/leaf/absolute", Must)]),
    Exhibit::page(
        "/forms/protocol-relative",
        r#"<a href="//{authority}/leaf/protocol-relative">1</a>"#,
        &[("/leaf/protocol-relative", Must)],
    ),
    with_head("/forms/base", r#"<base href="{origin}/leaf/">"#, r#"<a href="base">1</a>"#, &[("/leaf/base", Must)]),
    with_head(
        "/forms/base-twice",
        r#"<base target="_top"><base href="/leaf/deep/"><base href="/wrong/">"#,
        r#"<a href="../base-first">1</a>"#,
        &[("/leaf/base-first", Must)],
    ),
    Exhibit::page(
        "/forms/quotes",
        "<a href=/leaf/unquoted>1</a> <a href='/leaf/single-quoted'>2</a> <A HREF=\"/leaf/upper-case-tag\">3</A>\n\
         <a class=\"x\"\n\thref = \"/leaf/spaced-out\"\n>4</a> <a title=\">\" href=\"/leaf/after-bracket\">5</a>",
        &[
            ("/leaf/unquoted", Must),
            ("/leaf/single-quoted", Must),
            ("/leaf/upper-case-tag", Must),
            ("/leaf/spaced-out", Must),
            ("/leaf/after-bracket", Must),
        ],
    ),
    Exhibit::page(
        "/forms/entities",
        r#"<a href="&#47;leaf&#x2f;entities?a=1&amp;b=2">1</a> <a href="/leaf/bare-ampersand?a=1&b=2">2</a>"#,
        &[("/leaf/entities?a=1&b=2", Must), ("/leaf/bare-ampersand?a=1&b=2", Must)],
    ),
    Exhibit::page(
        "/forms/fragments",
        r##"<a href="#top">self</a> <a href="">self</a> <a href="/leaf/fragment#a">1</a> <a href="/leaf/fragment#b">1</a>
<a href="/forms/fragments#c">self</a>"##,
        &[("/leaf/fragment", Must)],
    ),
    Exhibit::page(
        "/forms/tracking",
        r#"<a href="/leaf/tracking?utm_source=a&amp;utm_medium=b">1</a> <a href="/leaf/tracking?utm_campaign=c">1</a>
<a href="/leaf/tracking-kept?utm_source=a&amp;id=7">2</a>"#,
        &[("/leaf/tracking", Must), ("/leaf/tracking-kept?id=7", Must)],
    ),
    Exhibit::page(
        "/forms/upper-case-host",
        r#"<a href="HTTP://{HOST}/leaf/upper-case-host">1</a>"#,
        &[("/leaf/upper-case-host", Must)],
    ),
    Exhibit::page(
        "/forms/explicit-port",
        r#"<a href="{explicit}/leaf/explicit-port">1</a>"#,
        &[("/leaf/explicit-port", Must)],
    ),
    Exhibit::page(
        "/forms/whitespace",
        "<a href=\"  /leaf/whitespace\n\">1</a> <a href=\"/leaf/\n\tnew\nline\">2</a> <a href=\"/leaf/a space\">3</a>",
        &[("/leaf/whitespace", Must), ("/leaf/newline", Must), ("/leaf/a%20space", Must)],
    ),
    Exhibit::page(
        "/forms/percent",
        "<a href=\"/leaf/caf%C3%A9\">1</a> <a href=\"/leaf/über\">2</a> <a href=\"/leaf/back\\slash\">3</a>",
        &[("/leaf/caf%C3%A9", Must), ("/leaf/%C3%BCber", Must), ("/leaf/back/slash", Must)],
    ),
    Exhibit::page("/forms/area", r#"<map name="m"><area href="/leaf/area" alt="x"></map>"#, &[("/leaf/area", Must)]),
    Exhibit::page("/forms/iframe", r#"<iframe src="/leaf/iframe"></iframe>"#, &[("/leaf/iframe", Must)]),
    with_head(
        "/forms/refresh",
        r#"<meta http-equiv="Refresh" content="30; URL='/leaf/refresh'">"#,
        "",
        &[("/leaf/refresh", Must)],
    ),
    Exhibit::page(
        "/forms/srcset",
        r#"<img src="/leaf/img" srcset="/leaf/img-1x 1x, /leaf/img-2x 2x" alt="x">
<picture><source srcset="/leaf/source 640w"></picture>"#,
        &[("/leaf/img", May), ("/leaf/img-1x", May), ("/leaf/img-2x", May), ("/leaf/source", May)],
    ),
    Exhibit::page(
        "/forms/form",
        r#"<form action="/leaf/form-get"><button>go</button></form> <form method="post" action="/leaf/form-post">
<button formaction="/leaf/form-button">go</button></form>"#,
        &[("/leaf/form-get", May), ("/leaf/form-post", Never), ("/leaf/form-button", Never)],
    ),
    with_head(
        "/forms/link-elements",
        r#"<link rel="alternate" hreflang="de" href="/leaf/alternate"><link rel="next" href="/leaf/next">
<link rel="stylesheet" href="/leaf/style"><link rel="icon" href="/leaf/icon">"#,
        r#"<blockquote cite="/leaf/cite">x</blockquote> <video src="/leaf/video" poster="/leaf/poster"></video>
<object data="/leaf/object"></object> <embed src="/leaf/embed"> <script src="/leaf/script"></script>"#,
        &[
            ("/leaf/alternate", May),
            ("/leaf/next", May),
            ("/leaf/style", May),
            ("/leaf/icon", May),
            ("/leaf/cite", May),
            ("/leaf/video", May),
            ("/leaf/poster", May),
            ("/leaf/object", May),
            ("/leaf/embed", May),
            ("/leaf/script", May),
        ],
    ),
    Exhibit::page(
        "/forms/no-links",
        r#"<!-- <a href="/leaf/commented">x</a> --> <script>var a = '<a href="/leaf/scripted">x</a>';</script>
<style>/* <a href="/leaf/styled">x</a> */</style> <textarea><a href="/leaf/typed">x</a></textarea>
<a href="javascript:location='/leaf/javascript'">x</a> <a href="mailto:a@b.test?body=/leaf/mail">x</a>
<a href="data:text/html,<a href=/leaf/data>">x</a> <a href="tel:123">x</a> <a href="ftp://{authority}/leaf/ftp">x</a>
<a data-href="/leaf/data-href">x</a> <a name="anchor">x</a> <a href="http://">x</a> <a href="http://[::1">x</a>"#,
        &[
            ("/leaf/commented", Never),
            ("/leaf/scripted", Never),
            ("/leaf/styled", Never),
            ("/leaf/typed", Never),
            ("/leaf/javascript", Never),
            ("/leaf/mail", Never),
            ("/leaf/data", Never),
            ("/leaf/ftp", Never),
            ("/leaf/data-href", May),
        ],
    ),
];
