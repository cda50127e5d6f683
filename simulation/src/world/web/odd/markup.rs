//! Markup that hurts those who read it.

use super::super::expected::Duty::{May, Must, Never};
use super::super::expected::Kind;
use super::super::{Answer, text::push_number};
use super::{Exhibit, Here, Serve};

/// Links on the page with very many of them. They name few pages, or a small web would become a large one.
const MANY_LINKS: u64 = 100_000;
/// Different pages among them.
const MANY_LINKS_PAGES: u64 = 10;
const NESTING: usize = 20_000;
const ATTRIBUTE_BYTES: usize = 4 << 20;

pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit::new("/markup/many-links", Kind::Page, Serve::With(many_links)).leading_to(&[
        ("/leaf/m0", Must),
        ("/leaf/m1", Must),
        ("/leaf/m2", Must),
        ("/leaf/m3", Must),
        ("/leaf/m4", Must),
        ("/leaf/m5", Must),
        ("/leaf/m6", Must),
        ("/leaf/m7", Must),
        ("/leaf/m8", Must),
        ("/leaf/m9", Must),
    ]),
    Exhibit::new("/markup/nested", Kind::Page, Serve::With(nested))
        .leading_to(&[("/leaf/before-nesting", Must), ("/leaf/inside-nesting", May)]),
    Exhibit::new("/markup/long-attribute", Kind::Page, Serve::With(long_attribute))
        .leading_to(&[("/leaf/before-attribute", Must), ("/leaf/after-attribute", May)]),
    Exhibit::page(
        "/markup/unclosed",
        r#"<div><p><b><a href="/leaf/unclosed">1<table><tr><td><a href="/leaf/unclosed-in-table">2<p><i>
<ul><li><a href="/leaf/unclosed-in-list">3<select><option>"#,
        &[("/leaf/unclosed", Must), ("/leaf/unclosed-in-table", Must), ("/leaf/unclosed-in-list", Must)],
    ),
    Exhibit::page(
        "/markup/unclosed-comment",
        r#"<a href="/leaf/before-comment">1</a> <!-- this never ends <a href="/leaf/in-unclosed-comment">2</a>"#,
        &[("/leaf/before-comment", Must), ("/leaf/in-unclosed-comment", Never)],
    ),
    Exhibit::page(
        "/markup/unclosed-tag",
        "<a href=\"/leaf/before-broken-tag\">1</a> <a href=\"/leaf/never-closed",
        &[("/leaf/before-broken-tag", Must), ("/leaf/never-closed", May)],
    ),
    Exhibit::page(
        "/markup/nul",
        "<p>a\0b\0\0c</p> <a\0 href=\"/leaf/nul-in-tag\">1</a> <a href=\"/leaf/after-nul\">2</a>",
        &[("/leaf/nul-in-tag", May), ("/leaf/after-nul", Must)],
    ),
    Exhibit::page(
        "/markup/duplicate-attributes",
        r#"<a href="/leaf/first-attribute" href="/leaf/second-attribute">1</a>"#,
        &[("/leaf/first-attribute", Must), ("/leaf/second-attribute", Never)],
    ),
    Exhibit::new("/markup/no-markup", Kind::Page, Serve::With(no_markup)),
    Exhibit::new("/markup/invalid-utf8", Kind::Page, Serve::With(invalid_utf8))
        .leading_to(&[("/leaf/after-invalid-bytes", Must)]),
];

fn many_links(here: &Here<'_>) -> Answer {
    let mut out = here.html("", "", here.path);
    out.reserve(MANY_LINKS as usize * 28);
    for number in 0..MANY_LINKS {
        out.extend_from_slice(b"<a href=/leaf/m");
        push_number(&mut out, number % MANY_LINKS_PAGES);
        out.push(b'#');
        push_number(&mut out, number);
        out.extend_from_slice(b">x</a>\n");
    }
    Answer::ok("text/html; charset=utf-8", out)
}

fn nested(here: &Here<'_>) -> Answer {
    let (open, close) = ("<div><span>".repeat(NESTING / 2), "</span></div>".repeat(NESTING / 2));
    let before = "<a href=\"/leaf/before-nesting\">1</a>";
    here.page("", &format!("{before}{open}<a href=\"/leaf/inside-nesting\">2</a>{close}"))
}

fn long_attribute(here: &Here<'_>) -> Answer {
    let value = "long ".repeat(ATTRIBUTE_BYTES / 5);
    let (before, after) = ("<a href=\"/leaf/before-attribute\">1</a>", "<a href=\"/leaf/after-attribute\">2</a>");
    here.page("", &format!("{before}<p data-long=\"{value}\">x</p>{after}"))
}

fn no_markup(here: &Here<'_>) -> Answer {
    let text = here.html("", "", here.path);
    let start = text.windows(3).position(|window| window == b"<p>").map_or(0, |at| at + 3);
    Answer::ok("text/html", text[start..start + 600].to_vec())
}

fn invalid_utf8(here: &Here<'_>) -> Answer {
    let mut out = here.html("", "", here.path);
    out.extend_from_slice(b"<p>\xff\xfe\xc3\x28\xed\xa0\x80</p><a href=\"/leaf/after-invalid-bytes\">1</a>");
    Answer::ok("text/html; charset=utf-8", out)
}
