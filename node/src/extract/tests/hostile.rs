//! Pages made to hurt. Each must end soon, in bounded memory, with what could be saved.

use super::*;

const MEBIBYTE: usize = 1024 * 1024;

#[test]
fn a_four_mebibyte_attribute_costs_that_link_only() {
    let body = format!("<a href=/1><a href='/{}'><a href=/2>", "x".repeat(4 * MEBIBYTE));
    let found = html(&body);
    assert_eq!(urls(&found), ["https://example.com/1", "https://example.com/2"]);
    assert_eq!(found.defects, [Defect::RefusedLinks]);
}

#[test]
fn an_attribute_that_never_ends_keeps_what_came_before() {
    let found = html(&format!("<p>text<a href=/1><a href='/{}", "x".repeat(4 * MEBIBYTE)));
    assert_eq!(urls(&found), ["https://example.com/1"]);
    assert_eq!((found.text.as_str(), found.defects), ("text", vec![Defect::ParserMemory]));
}

#[test]
fn comments_and_scripts_that_never_end_keep_what_came_before() {
    for open in ["<!--", "<script>", "<style>", "<noscript>", "<textarea>", "<![CDATA[", "<!doctype ", "</a "] {
        let found = html(&format!("<a href=/1>{open}{}", "<a href=/no>".repeat(100_000)));
        assert_eq!(found.links[0].url.as_str(), "https://example.com/1", "{open}");
        assert!(found.links.len() <= 2, "{open}: {:?}", &found.links[..3]);
    }
}

#[test]
fn a_hundred_thousand_links_are_cut() {
    let body: String = (0..100_000).map(|number| format!("<a href=/{number}>")).collect();
    let found = html(&body);
    assert!(found.links_cut);
    assert_eq!(found.links.len(), ExtractLimits::default().links_max);
    assert_eq!(found.links[9_999].url.as_str(), "https://example.com/9999");
}

#[test]
fn a_hundred_thousand_candidates_are_cut() {
    let body: String = (0..100_000).map(|number| format!("/{number}.png {number}w,")).collect();
    let found = html(&format!("<img srcset='{body}'>"));
    assert!(found.links_cut);
    assert_eq!(found.links.len(), ExtractLimits::default().links_max);
}

#[test]
fn a_hundred_thousand_links_to_one_page_are_one_link_and_leave_the_text_whole() {
    let body: String = (0..100_000).map(|number| format!("<a href='/x#{number}'>{number}</a> ")).collect();
    let found = html(&body);
    assert_eq!((found.links.len(), found.links_cut), (1, true));
    assert!(found.text.len() > 200_000);
}

#[test]
fn deep_nesting_loses_nothing() {
    let body = format!("{}<a href=/deep>deep{}", "<div>".repeat(100_000), "</div>".repeat(100_000));
    let found = html(&body);
    assert_eq!((urls(&found), found.text.as_str()), (vec!["https://example.com/deep"], "deep"));
    assert_eq!(found.defects, []);
}

#[test]
fn deep_nesting_does_not_turn_scripts_into_markup() {
    let body = "<p><script>'<a href=/no>'</script><a href=/yes>".repeat(30_000);
    let found = html(&body);
    assert_eq!(urls(&found), ["https://example.com/yes"]);
}

#[test]
fn stray_closing_tags_cost_no_more_than_their_length() {
    let body = format!("{}{}<a href=/x>", "<div>".repeat(20_000), "</span>".repeat(200_000));
    assert_eq!(urls(&html(&body)), ["https://example.com/x"]);
}

#[test]
fn an_element_of_a_hundred_thousand_attributes_ends_the_page() {
    let attributes: String = (0..100_000).map(|number| format!(" a{number}=x")).collect();
    let found = html(&format!("<a href=/x><a{attributes} href=/y>"));
    assert_eq!((urls(&found), found.defects.as_slice()), (vec!["https://example.com/x"], &[Defect::ParserMemory][..]));
}

#[test]
fn text_is_cut_at_its_bound() {
    let found = html(&format!("<p>{}", "word ".repeat(MEBIBYTE)));
    assert!(found.text.len() <= ExtractLimits::default().text_bytes_max);
    assert!(found.text.ends_with("word"));
    assert_eq!(found.defects, [Defect::TextCut]);
}

#[test]
fn nul_bytes_do_not_hide_links() {
    let found = html("<a\0 href=/no><a href='/\0x'><a href=/y>\0");
    assert!(urls(&found).contains(&"https://example.com/y"));
}

#[test]
fn a_feed_of_nested_bases_and_endless_items_is_bounded() {
    let nested = "<entry xml:base='x/'>".repeat(100_000);
    let found = bytes(format!("<feed>{nested}").as_bytes(), Some("application/atom+xml"));
    assert_eq!((found.kind, found.defects), (PageKind::Feed, vec![Defect::BrokenXml]));
    let items: String = (0..50_000).map(|number| format!("<item><link>/{number}</link></item>")).collect();
    let found = bytes(format!("<rss>{items}</rss>").as_bytes(), Some("text/xml"));
    assert_eq!((found.links.len(), found.links_cut), (10_000, true));
}

#[test]
fn an_xml_element_of_many_attributes_is_not_quadratic() {
    let attributes: String = (0..100_000).map(|number| format!(" a{number}='x'")).collect();
    let body = format!("<urlset><url{attributes}><loc>https://example.com/1</loc></url></urlset>");
    assert_eq!(parse_sitemap(body.as_bytes(), &url(PAGE), &ExtractRules::default()).urls.len(), 1);
}

#[test]
fn entities_cannot_explode() {
    let found = html(&format!("<p>{}</p><a href='/{}'>", "&nGg;".repeat(10_000), "&nGg;".repeat(1_000)));
    assert!(found.text.len() <= 60_000);
}
