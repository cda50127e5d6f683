//! Whole pages in, whole results out. What concerns one file alone is tested there.

mod charsets;
mod hostile;
mod properties;

use proto::url::{CanonicalUrl, UrlRules};

use super::*;

const PAGE: &str = "https://example.com/dir/page";

fn url(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text, &UrlRules::default()).unwrap()
}

/// Extracts a body sent as HTML in UTF-8.
fn html(body: &str) -> Extracted {
    bytes(body.as_bytes(), Some("text/html; charset=utf-8"))
}

fn bytes(body: &[u8], content_type: Option<&str>) -> Extracted {
    let input = PageInput {
        url: &url(PAGE),
        content_type,
        x_robots_tag: &[],
        link_headers: &[],
        body,
        product_token: "orbweaver",
    };
    extract(&input, &ExtractRules::default())
}

/// Extracts a page sent with headers.
fn with_headers(body: &str, x_robots_tag: &[&str], link_headers: &[&str], rules: &ExtractRules) -> Extracted {
    let owned = |values: &[&str]| -> Vec<String> { values.iter().map(|value| value.to_string()).collect() };
    let input = PageInput {
        url: &url(PAGE),
        content_type: Some("text/html"),
        x_robots_tag: &owned(x_robots_tag),
        link_headers: &owned(link_headers),
        body: body.as_bytes(),
        product_token: "orbweaver",
    };
    extract(&input, rules)
}

fn urls(found: &Extracted) -> Vec<&str> {
    found.links.iter().map(|link| link.url.as_str()).collect()
}

/// Paths of the links on example.com, with their kinds.
fn paths(found: &Extracted) -> Vec<(&str, LinkKind)> {
    let path =
        |link: &Link| link.url.as_str().len() - link.url.as_str().trim_start_matches("https://example.com").len();
    found.links.iter().map(|link| (&link.url.as_str()[path(link)..], link.kind)).collect()
}

#[test]
fn every_attribute_that_holds_a_reference_is_read() {
    use LinkKind::*;
    for (markup, expected) in [
        ("<a href=/x>", &[("/x", Anchor)][..]),
        ("<A HREF='/x'>", &[("/x", Anchor)]),
        ("<svg><a xlink:href=/x></svg>", &[("/x", Anchor)]),
        ("<area href=/x>", &[("/x", Area)]),
        ("<link rel=stylesheet href=/x>", &[("/x", Style)]),
        ("<link rel=icon href=/x>", &[("/x", Image)]),
        ("<link rel=next href=/x>", &[("/x", Related)]),
        ("<link rel=alternate type=application/atom+xml href=/x>", &[("/x", Feed)]),
        ("<link rel=alternate hreflang=de href=/x>", &[("/x", Alternate)]),
        ("<link rel=canonical href=/x>", &[("/x", Canonical)]),
        ("<link rel=sitemap href=/x>", &[("/x", Sitemap)]),
        ("<link rel=manifest href=/x>", &[("/x", Other)]),
        ("<link rel=preconnect href=/x>", &[]),
        (
            "<img src=/x srcset='/y 1x, /z 2x' longdesc=/l>",
            &[("/x", Image), ("/y", Image), ("/z", Image), ("/l", Other)],
        ),
        ("<img data-src=/x data-srcset='/y 2x'>", &[("/x", Image), ("/y", Image)]),
        ("<picture><source srcset='/x, /y 2x'><img src=/z></picture>", &[("/x", Image), ("/y", Image), ("/z", Image)]),
        ("<iframe src=/x></iframe>", &[("/x", Frame)]),
        ("<frameset><frame src=/x></frameset>", &[("/x", Frame)]),
        (
            "<form action=/x><button formaction=/y><input formaction=/z src=/i>",
            &[("/x", Form), ("/y", Form), ("/z", Form), ("/i", Image)],
        ),
        (
            "<video src=/x poster=/y><source src=/z><track src=/t></video>",
            &[("/x", Media), ("/y", Image), ("/z", Media), ("/t", Media)],
        ),
        ("<audio src=/x></audio>", &[("/x", Media)]),
        ("<object data=/x codebase=/y></object>", &[("/x", Object), ("/y", Object)]),
        ("<embed src=/x>", &[("/x", Object)]),
        ("<applet codebase=/x></applet>", &[("/x", Object)]),
        (
            "<blockquote cite=/x><q cite=/y><del cite=/z><ins cite=/i>",
            &[("/x", Cite), ("/y", Cite), ("/z", Cite), ("/i", Cite)],
        ),
        ("<body background=/x><table background=/y><td background=/z>", &[("/x", Image), ("/y", Image), ("/z", Image)]),
        ("<html manifest=/x>", &[("/x", Other)]),
        ("<script src=/x></script>", &[("/x", Script)]),
        ("<meta http-equiv=Refresh content='0; url=/x'>", &[("/x", Refresh)]),
        ("<svg><image href=/x /></svg>", &[("/x", Image)]),
    ] {
        assert_eq!(paths(&html(markup)), expected, "{markup}");
    }
}

#[test]
fn the_first_base_holds_for_all_links_even_earlier_ones() {
    let found =
        html("<a href=early><base target=x><base href=' /base/ '><base href=/other/><a href=late><a href='#top'>");
    assert_eq!(
        urls(&found),
        ["https://example.com/base/early", "https://example.com/base/late", "https://example.com/base/"]
    );
    for useless in ["javascript:x", "data:text/html,x", "http://["] {
        let found = html(&format!("<base href='{useless}'><a href=x>"));
        assert_eq!(urls(&found), ["https://example.com/dir/x"], "{useless}");
    }
}

#[test]
fn entities_and_white_space_in_references_are_undone() {
    let found = html("<a href='?a=1&amp;b=2&copy=3'><a href='\n /x\ty\n '><a href=\"&#47;z&#x2F;\">");
    assert_eq!(
        urls(&found),
        ["https://example.com/dir/page?a=1&b=2&copy=3", "https://example.com/xy", "https://example.com/z/"]
    );
}

#[test]
fn references_that_are_no_web_pages_are_skipped_silently() {
    let found = html(
        "<a href='javascript:void(0)'><a href=mailto:a@b.c><a href=tel:1><img src='data:image/png;base64,AA'>\
         <a href='#top'><a href=''><a href><a name=x><a href='JaVaScRiPt:x'><a href=' javascript:x'><a href=ftp://h/>",
    );
    assert_eq!(urls(&found), Vec::<&str>::new());
    assert_eq!(found.defects, []);
}

#[test]
fn the_first_of_two_attributes_of_one_name_counts() {
    assert_eq!(urls(&html("<a href=/1 HREF=/2>")), ["https://example.com/1"]);
}

#[test]
fn links_are_deduplicated_by_canonical_url() {
    let found = html(
        "<a rel='ugc NoFollow' href=/x>1</a><img src=/x#f><a rel=nofollow href=/y><a rel='nofollow noopener' href=/y>\
         <a rel=ugc href=/u><a rel=sponsored href=/s>",
    );
    let flat: Vec<_> = found.links.iter().map(|link| (link.url.as_str(), link.kind, link.nofollow)).collect();
    assert_eq!(
        flat,
        [
            ("https://example.com/x", LinkKind::Anchor, false),
            ("https://example.com/y", LinkKind::Anchor, true),
            ("https://example.com/u", LinkKind::Anchor, false),
            ("https://example.com/s", LinkKind::Anchor, false),
        ]
    );
}

#[test]
fn nofollow_is_ignored_where_the_rules_say_so() {
    let rules = ExtractRules { rel_nofollow: false, meta_robots: false, x_robots_tag: false, ..Default::default() };
    let body = "<meta name=robots content=none><a rel=nofollow href=/x>";
    let found = with_headers(body, &["none"], &[], &rules);
    assert_eq!((found.noindex, found.nofollow, found.links[0].nofollow), (false, false, false));
}

#[test]
fn robots_directives_of_page_and_header_are_honoured() {
    let rules = ExtractRules::default();
    for (body, header, expected) in [
        ("<meta name=robots content=noindex>", "", (true, false)),
        ("<META NAME=ROBOTS CONTENT='NOFOLLOW, noarchive'>", "", (false, true)),
        ("<meta name=orbweaver content=none>", "", (true, true)),
        ("<meta name=googlebot content=none>", "", (false, false)),
        ("<p>", "orbweaver: nofollow", (false, true)),
        ("<meta content=noindex name=robots>", "googlebot: nofollow", (true, false)),
        ("<meta name=robots content=noindex>", "nofollow", (true, true)),
    ] {
        let found = with_headers(&format!("{body}<a href=/x>"), &[header], &[], &rules);
        assert_eq!((found.noindex, found.nofollow), expected, "{body} {header}");
        assert_eq!(found.links[0].nofollow, expected.1, "{body} {header}");
    }
}

#[test]
fn canonical_comes_from_the_head_or_the_link_header() {
    let rules = ExtractRules::default();
    let canonical = |body: &str, header: &str| {
        let found = with_headers(body, &[], &[header], &rules);
        found.canonical.map(|url| url.as_str().to_owned())
    };
    let in_head = "<head><link rel=canonical href='/c?a&amp;b'><link rel=canonical href=/second></head><body>";
    assert_eq!(canonical(in_head, ""), Some("https://example.com/c?a&b".into()));
    assert_eq!(canonical(in_head, "</h>; rel=\"canonical\""), Some("https://example.com/h".into()));
    assert_eq!(canonical("<body><link rel=canonical href=/injected>", ""), None);
    assert_eq!(canonical("<p>", "<https://example.com/h>; rel=canonical"), Some("https://example.com/h".into()));
}

#[test]
fn link_headers_give_links_even_to_binary_bodies() {
    let input = PageInput {
        url: &url("https://example.com/paper.pdf"),
        content_type: Some("application/pdf"),
        x_robots_tag: &["noindex".to_owned()],
        link_headers: &["</paper.html>; rel=\"canonical\"".to_owned()],
        body: b"%PDF-1.7",
        product_token: "orbweaver",
    };
    let found = extract(&input, &ExtractRules::default());
    assert_eq!(found.kind, PageKind::Binary);
    assert!(found.noindex);
    assert_eq!(found.canonical.as_ref().map(|url| url.as_str()), Some("https://example.com/paper.html"));
    assert_eq!(paths(&found), [("/paper.html", LinkKind::Canonical)]);
}

#[test]
fn the_first_title_is_the_title() {
    let title = |body: &str| html(body).title;
    assert_eq!(title("<title> A &amp;\n B </title><title>C</title>"), Some("A & B".into()));
    assert_eq!(title("<title></title><p>x"), None);
    assert_eq!(title("<title>Never closed <b>x"), Some("Never closed <b>x".into()));
    assert_eq!(title("<svg><title>Icon</title></svg><p>x"), None);
    assert_eq!(title("<p>x"), None);
    assert_eq!(title(&format!("<title>{}</title>", "ä".repeat(1000))).map(|title| title.chars().count()), Some(500));
}

#[test]
fn text_is_what_a_visitor_reads() {
    for (body, text) in [
        ("<p>One</p><p>Two <b>bo</b>ld</p>tail", "One\nTwo bold\ntail"),
        ("<head><title>No</title><style>p{}</style></head><body>Yes<script>no()</script>!", "Yes!"),
        ("a<noscript>no</noscript>b<template><p>no</p></template>c", "abc"),
        ("a<template>no<template>no</template>no</template>b", "ab"),
        ("a<template shadowrootmode=open>yes</template>b", "ayesb"),
        ("fish &amp; chips &lt;3&nbsp;&eacute; AT&T", "fish & chips <3 é AT&T"),
        ("<ul><li>1<li>2</ul>", "1\n2"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><th>c<th>d</table>", "a b\nc d"),
        ("a<br>b<!-- <p> -->c", "a\nbc"),
        ("<div><p>a</p>b</div>c", "a\nb\nc"),
        ("  a\n\n b\t<i> c</i>", "a b c"),
        ("<textarea>typed &amp; shown</textarea>", "typed & shown"),
        ("<iframe>no</iframe>a<xmp><b>&amp;</xmp>", "a\n<b>&amp;"),
        ("<p>1 < 2 and 3 > 2</p>", "1 < 2 and 3 > 2"),
        ("a<![CDATA[no]]>b", "ab"),
        ("<svg><text>in <![CDATA[data]]></text></svg>", "in data"),
        ("a<svg><style>p{}</style><title>no</title><path d=x /><style/><text>b</text></svg>c", "a b c"),
        ("<option>a<option>b", "a b"),
        ("a\0b", "a b"),
    ] {
        assert_eq!(html(body).text, text, "{body}");
    }
}

#[test]
fn links_in_noscript_and_noframes_count_but_not_those_in_templates_comments_and_scripts() {
    let found = html(
        "<a href=/1><noscript><img src=/2><p>no</p></noscript><a href=/3><noframes><a href=/4></noframes>\
         <template><a href=/no></template><!-- <a href=/no> --><script>'<a href=/no>'</script><style>/*<a href=/no>*/</style>\
         <textarea><a href=/no></textarea><title><a href=/no></title><a href=/5>",
    );
    let expected: Vec<String> = (1..=5).map(|number| format!("https://example.com/{number}")).collect();
    assert_eq!(urls(&found), expected);
    assert_eq!(found.text, "<a href=/no>");
}

#[test]
fn other_kinds_of_page_are_read_too() {
    let feed =
        bytes(b"<rss><channel><title>T</title><item><title>One</title><link>/1</link></item></channel></rss>", None);
    assert_eq!((feed.kind, feed.title.as_deref(), feed.text.as_str()), (PageKind::Feed, Some("T"), "One"));
    assert_eq!(paths(&feed), [("/1", LinkKind::Entry)]);
    let sitemap = bytes(b"<urlset><url><loc>https://example.com/1</loc></url></urlset>", Some("text/xml"));
    assert_eq!((sitemap.kind, paths(&sitemap)), (PageKind::Sitemap, vec![("/1", LinkKind::Entry)]));
    let index = bytes(b"<sitemapindex><sitemap><loc>/s.xml</loc></sitemap></sitemapindex>", Some("text/xml"));
    assert_eq!((index.kind, paths(&index)), (PageKind::SitemapIndex, vec![("/s.xml", LinkKind::Sitemap)]));
    let text = bytes(b"Line  one\n\n<b>line</b> two\n", Some("text/plain"));
    assert_eq!((text.kind, text.text.as_str()), (PageKind::Text, "Line one\n<b>line</b> two"));
    let xml = bytes(b"<?xml version='1.0'?><note><to>You</to><body>Hi &amp; bye</body></note>", Some("text/xml"));
    assert_eq!((xml.kind, xml.text.as_str()), (PageKind::Text, "You\nHi & bye"));
    let empty = bytes(b"", Some("text/html"));
    assert_eq!((empty.kind, empty.media_type.as_str(), empty.fingerprint), (PageKind::Empty, "text/html", None));
    let guessed = bytes(b"<!doctype html><p>x", None);
    assert_eq!((guessed.kind, guessed.media_type.as_str()), (PageKind::Html, "text/html"));
}

#[test]
fn digest_language_and_fingerprint_describe_the_page() {
    let prose = "The quick brown fox jumps over the lazy dog while everybody is watching it from the other side.";
    let found = html(&format!("<title>Fox</title><p>{prose}</p>"));
    assert_eq!(found.digest, *blake3::hash(format!("<title>Fox</title><p>{prose}</p>").as_bytes()).as_bytes());
    assert_eq!(found.language, Some("eng"));
    let again = html(&format!("<div><b>{prose}</b></div>"));
    assert_eq!(found.fingerprint, again.fingerprint);
    assert_ne!(found.digest, again.digest);
}

#[test]
fn rules_read_from_configuration_reject_unknown_keys() {
    let rules: ExtractRules = serde_json::from_str(r#"{"limits": {"links_max": 5}, "meta_robots": false}"#).unwrap();
    assert_eq!((rules.limits.links_max, rules.limits.title_chars_max, rules.meta_robots), (5, 500, false));
    assert!(serde_json::from_str::<ExtractRules>(r#"{"limit": {}}"#).is_err());
}
