//! What holds for every input.

use proptest::prelude::*;

use super::*;

const CONTENT_TYPES: [Option<&str>; 7] = [
    None,
    Some("text/html"),
    Some("text/html; charset=iso-2022-jp"),
    Some("text/xml"),
    Some("application/rss+xml; charset=utf-16"),
    Some("text/plain"),
    Some("\u{fffd}/;=,charset"),
];

/// Pieces of markup that together reach most of the code.
fn markup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<a href='"),
        Just("'>"),
        Just("<img srcset=\""),
        Just("\">"),
        Just("<base href=//"),
        Just("<meta "),
        Just("charset=utf-16"),
        Just("http-equiv=refresh content='1;url="),
        Just("<!--"),
        Just("-->"),
        Just("<script>"),
        Just("</script>"),
        Just("<template>"),
        Just("</template>"),
        Just("<noscript>"),
        Just("</noscript>"),
        Just("<title>"),
        Just("</title>"),
        Just("<svg>"),
        Just("<![CDATA["),
        Just("]]>"),
        Just("<?xml "),
        Just("?>"),
        Just("<rss>"),
        Just("<item>"),
        Just("<link>"),
        Just("</link>"),
        Just("<urlset>"),
        Just("<url>"),
        Just("<loc>"),
        Just("&amp;"),
        Just("&#x"),
        Just("&"),
        Just(";"),
        Just("http://a.b/"),
        Just("../"),
        Just("?q=1"),
        Just("#f"),
        Just("é"),
        Just("世"),
        Just("\0"),
        Just("\u{feff}"),
        Just(" "),
        Just("\n"),
        Just(","),
        Just("<"),
        Just(">"),
        Just("</p>"),
        Just("<p>"),
        Just("="),
        Just("rel=nofollow "),
        Just("<link rel=canonical href="),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn check(found: &Extracted) {
    let rules = ExtractRules::default();
    let mut seen = std::collections::BTreeSet::new();
    for link in &found.links {
        assert!(seen.insert(link.url.as_str().to_owned()), "{} twice", link.url.as_str());
        let again = CanonicalUrl::parse(link.url.as_str(), &rules.urls).unwrap();
        assert_eq!(again.as_str(), link.url.as_str(), "canonical form is stable");
        assert!(link.url.as_str().starts_with("http"));
    }
    assert!(found.text.len() <= rules.limits.text_bytes_max);
    assert!(!found.text.contains("  ") && !found.text.contains('\0'));
    assert_eq!(found.text.trim(), found.text);
    assert!(found.media_type.len() <= 100);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..Default::default() })]

    #[test]
    fn any_bytes_give_a_result(body in prop::collection::vec(any::<u8>(), 0..2000), kind in 0..CONTENT_TYPES.len()) {
        check(&bytes(&body, CONTENT_TYPES[kind]));
        parse_sitemap(&body, &url(PAGE), &ExtractRules::default());
    }

    #[test]
    fn any_markup_gives_a_result(body in markup(), kind in 0..CONTENT_TYPES.len()) {
        let first = bytes(body.as_bytes(), CONTENT_TYPES[kind]);
        check(&first);
        prop_assert_eq!(first, bytes(body.as_bytes(), CONTENT_TYPES[kind]));
        parse_sitemap(body.as_bytes(), &url(PAGE), &ExtractRules::default());
    }

    #[test]
    fn any_headers_give_a_result(robots in ".{0,80}", link in "[<>;,=\" \\\\a-z/:relcanonical]{0,80}") {
        check(&with_headers("<a href=/x>", &[&robots], &[&link], &ExtractRules::default()));
    }

    #[test]
    fn exactly_the_planted_links_are_found(
        planted in prop::collection::btree_set("[a-z0-9]{1,8}(/[a-z0-9~_-]{1,8}){0,3}", 0..40),
        style in prop::collection::vec(0..6_u8, 40),
        text in "[a-z ,.&<é]{0,20}",
    ) {
        let text = htmlize::escape_text(&text);
        let mut body = String::from("<!doctype html><title>T</title>");
        for (path, style) in planted.iter().zip(&style) {
            body += &match style {
                0 => format!("<p><a href=\"/{path}\">{text}</a></p>"),
                1 => format!("<li><a class='x' HREF='https://example.com/{path}#f'>{text}"),
                2 => format!("<a href=/{path}>{text}</a><!-- <a href=/no> -->"),
                3 => format!("<img alt='>' src=' /{path}\n'>{text}"),
                4 => format!("<div><IMG srcset=\"/{path} 2x\"><script>'<a href=/no>'</script></div>"),
                _ => format!("<a href=\"&#47;{path}\">{text}</a><a href='javascript:no'>"),
            };
        }
        let found = html(&body);
        let expected: Vec<String> = planted.iter().map(|path| format!("https://example.com/{path}")).collect();
        prop_assert_eq!(urls(&found), expected);
    }

    #[test]
    fn planted_text_is_found_word_by_word(words in prop::collection::vec("[a-z<&é世]{1,8}", 1..60)) {
        let mut body = String::new();
        for (number, word) in words.iter().enumerate() {
            let word = htmlize::escape_text(word);
            body += &match number % 4 {
                0 => format!("<p>{word} "),
                1 => format!("<b>{word}</b>\n"),
                2 => format!("<script>no</script>{word}</p>"),
                _ => format!("<td>{word}<td>"),
            };
        }
        let found = html(&body);
        prop_assert_eq!(found.text.split_whitespace().collect::<Vec<_>>(), words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}
