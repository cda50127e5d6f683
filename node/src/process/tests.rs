//! Saved pages, the rules of a site for each, and what must come of it. After a change on purpose: `UPDATE_SNAPSHOTS=1 cargo test process`, then read the difference.

use std::path::PathBuf;

use proto::scrape::Processing;
use proto::site::Site;
use proto::url::{CanonicalUrl, UrlRules};
use serde_json::{Value as Json, json};

use super::*;
use crate::extract::{ExtractRules, PageInput, extract};

/// When all pages were fetched: 2026-11-17 02:00:00.
const FETCHED: u64 = 1_794_880_800_000;

fn rules(properties: &Json) -> Processing {
    let list: Vec<Json> = properties
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "filters")
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let filters = properties.get("filters").cloned().unwrap_or(json!([]));
    let site = Site::read(json!({"id": "a", "urls": ["http://a.example/"], "properties": list, "filters": filters}));
    let site = site.unwrap_or_else(|bad| panic!("{bad}"));
    Processing::of_site(&site).expect("it was checked").expect("it asks for processing")
}

fn processed(properties: &Json, url: &str, content_type: &str, body: &[u8]) -> Processed {
    let url = CanonicalUrl::parse(url, &UrlRules::default()).unwrap();
    let input = PageInput {
        url: &url,
        content_type: Some(content_type),
        x_robots_tag: &[],
        link_headers: &[],
        body,
        product_token: "orbweaver",
    };
    let extracted = extract(&input, &ExtractRules::default());
    let text = text_of(body, Some(content_type), url.host(), &extracted);
    let fresh = Fresh {
        url: url.as_str(),
        text: text.as_deref(),
        extracted: &extracted,
        last_modified: None,
        date: None,
        head: "HTTP/1.1 200 OK\r\nServer: test\r\n\r\n",
        http_code: 200,
        size: body.len() as u64,
        depth: 2,
        fetched_at: FETCHED,
    };
    process(&rules(properties), &fresh)
}

fn saved(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/process/tests").join(name)
}

/// Compares what is made of a saved page with what was made of it before.
fn snapshot(name: &str, page: &str, content_type: &str, url: &str, properties: Json) {
    let body = std::fs::read(saved(page)).unwrap();
    let made = processed(&properties, url, content_type, &body);
    let record: Json = serde_json::from_slice(&made.record.expect("something is made of it")).unwrap();
    let text = format!("{record:#}\n");
    let path = saved(&format!("{name}.json"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name}: expected\n{expected}\nfound\n{text}");
}

#[test]
fn a_news_article_by_general_rules() {
    let url = "https://courier.example/2026/11/16/river-bridge-reopens";
    snapshot("news_general", "news.html", "text/html", url, json!({"PROCESSOR_NAME": "", "SCRAPER_LANG_DETECT": 1}));
}

#[test]
fn a_news_article_by_templates_of_which_the_best_counts() {
    let templates = json!({"templates": [
        {"priority": 9, "tags": {
            "title": {"target": "//h2", "mandatory": 1}, "content": {"target": "//body"}, "lead": {"target": "title"}, "x": {"default": "x"}}},
        {"tags": {
            "title": [{"target": "h1.headline", "mandatory": 1}],
            "author": [{"target": "//a[@rel='author']"}],
            "author_url": [{"target": "//a[@rel='author']", "attribute": "href"}],
            "pubdate": [{"target": "//time", "type": {"name": "datetime"}, "mandatory": 1}],
            "image": [{"target": "//figure", "type": {"name": "image"}}],
            "caption": [{"target": "figcaption", "end": " Photo:"}],
            "photo": [{"target": "figcaption", "begin": "Photo: "}],
            "content": [{"target": "//article/p[not(@class)]", "join": "concat", "delimiter": "\n"}],
            "longest": [{"target": "//article//p", "join": "best"}],
            "quote": [{"target": "article > p:last-of-type", "type": "html"}],
            "cost": [{"target": "//article//b", "postProcessing": "([0-9.]+)"}],
            "category": [{"target": "meta[name=keywords]"}],
            "paper": {"default": "The Valley Courier"}}},
        {"state": 0, "tags": {"title": {"target": "//nosuch"}}}
    ]});
    let said = json!({"template": templates, "TAGS_MAPPING": {"category": "keywords"}, "CONTENT_HASH": {"algorithm": 1, "tags": "title,content"}});
    snapshot("news_template", "news.html", "text/html", "https://courier.example/x", said);
}

#[test]
fn a_product_written_as_xml() {
    let template = json!({"tags": {
        "name": {"target": "//*[@itemprop='name']", "mandatory": 1},
        "sku": {"target": "//*[@id='product']/@data-sku"},
        "price": [{"target": "#product .price", "attribute": "content"}, {"target": "#product .price"}],
        "facts": {"target": "ul.facts li", "join": "concat", "delimiter": "; "},
        "width": {"target": "substring-after(//li[b='Width:'], ': ')"},
        "stock": {"target": "p.stock", "postProcessing": [{"pattern": "^In stock: ", "replace": ""}, "^([0-9]+)"]},
        "image": {"target": ".gallery", "type": "image"},
        "manual": {"target": "a.manual::attr(href)"},
        "pictures": {"target": "count(//div[@class='gallery']/img)"}},
        "output_format": {"name": "xml", "header": "<?xml version=\"1.0\"?>", "items_header": "<products>",
            "item": "<product sku=\"%sku%\"><name by=\"%name_extractor%\">%name%</name><price>%price%</price><none>%nosuch%</none> 100%</product>",
            "items_footer": "</products>", "footer": "\n"}});
    snapshot(
        "shop",
        "shop.html",
        "text/html; charset=utf-8",
        "https://shop.example/p/od160?x=1",
        json!({"template": template}),
    );
}

#[test]
fn a_thread_is_a_list_of_posts() {
    let template = json!({"tags": {
        "author": {"target": ".who a", "mandatory": 1},
        "profile": {"target": "./div[@class='who']/a/@href"},
        "pubdate": {"target": ".when", "type": "datetime"},
        "text": {"target": ".body > p", "join": "concat"},
        "quoted": {"target": "blockquote"},
        "id": {"target": "@id"}},
        "items": "//div[contains(concat(' ', @class, ' '), ' post ')]"});
    let said = json!({"template": template, "PROCESSOR_NAME": "SCRAPER_MULTI_ITEMS", "TIMEZONE": "CET"});
    snapshot("forum", "forum.html", "text/html", "https://wheels.example/t/77", said);
}

#[test]
fn a_blog_whose_html_is_broken() {
    let template = json!({"tags": {
        "title": {"target": "//h1/text()"}, "author": {"target": ".author"},
        "pubdate": {"target": "//p[contains(., 'Posted on')]", "type": "datetime"},
        "list": {"target": "li", "join": "concat", "delimiter": ","},
        "wind": {"target": "//td[.='Wind']/following-sibling::td"},
        "links": {"target": "//a/@href", "join": "concat", "delimiter": " "},
        "frost": {"target": "//i"}}});
    snapshot("blog", "blog.html", "text/html", "https://tom.example/frost", json!({"template": template}));
}

#[test]
fn entries_of_feeds_are_results() {
    snapshot(
        "feed",
        "feed.xml",
        "application/rss+xml",
        "https://courier.example/rss",
        json!({"PROCESSOR_NAME": "FEED_PARSER"}),
    );
    snapshot("atom", "atom.xml", "application/atom+xml", "https://a.example/feed", json!({"PROCESSOR_NAME": "RSS"}));
    let by_type = json!({"PROCESSOR_NAME_REPLACE": {"text/xml": "FEED_PARSER"}});
    let made = processed(&by_type, "https://a.example/", "text/xml", b"<rss><channel><title>x</title></channel></rss>");
    assert!(made.errors.contains(ErrorBit::RssEmpty) && made.failed && made.record.is_none());
    let made = processed(&by_type, "https://a.example/", "text/xml", b"<nofeed/>");
    assert!(made.errors.contains(ErrorBit::HtmlParse));
}

#[test]
fn other_alphabets_in_other_charsets() {
    let template = json!({"tags": {"title": {"target": "h1"}, "pubdate": {"target": ".date", "type": "datetime"}, "text": {"target": ".text"}}});
    let said = json!({"template": template, "TIMEZONE": "+0300"});
    snapshot("cyrillic", "cyrillic.html", "text/html", "https://mост.example/", said);
    let template = json!({"tags": {"title": {"target": "//h1"}, "pubdate": {"target": "p.d", "type": "datetime"}, "text": {"target": "//p[2]"}}});
    snapshot(
        "japanese",
        "japanese.html",
        "text/html; charset=Shift_JIS",
        "https://a.example/",
        json!({"template": template}),
    );
}

/// Scripts with markup in them, menus, advertisements, comments of readers and open paragraphs around the article: a hundred kilobytes of them.
#[test]
fn an_article_in_a_page_of_a_portal() {
    let template = json!({"tags": {
        "title": {"target": "h1[itemprop=headline]", "mandatory": 1},
        "lead": {"target": "p.standfirst"},
        "authors": {"target": "//div[@class='byline']/a[@rel='author']", "join": "concat", "delimiter": "; "},
        "pubdate": {"target": "//time[@itemprop='datePublished']", "type": "datetime"},
        "image": {"target": "article figure picture", "type": "image"},
        "photo": {"target": "figcaption", "begin": "Photo: "},
        "quote": {"target": "article blockquote p.quote"},
        "cost": {"target": "//table[@class='figures']//tr[td='Deck']/td[2]"},
        "paragraphs": {"target": "count(//article/p[not(@class)])"},
        "comments": {"target": "count(//section[@id='comments']/div[contains(@class, 'comment')])"},
        "last_comment": {"target": "#comments .comment:last-of-type .text"},
        "related": {"target": "//aside[@class='related'][1]//a/@href", "join": "concat", "delimiter": " "},
        "correction": {"target": "p.correction", "type": "html"}}});
    let url = "https://courier.example/2026/11/12/harbour-bridge";
    snapshot("portal", "portal.html", "text/html; charset=utf-8", url, json!({"template": template}));
}

#[test]
fn a_listing_of_a_shop_is_a_product_for_each_card() {
    let template = json!({"tags": {
        "name": {"target": ".card__name", "mandatory": 1},
        "sku": {"target": "@data-sku"},
        "price": {"target": ".price", "attribute": "content"},
        "was": {"target": "s.was"},
        "height": {"target": "substring-after(.//li[b='Height:'], ': ')"},
        "link": {"target": "a.card__link", "attribute": "href"},
        "pieces": {"target": ".stock", "postProcessing": "([0-9]+)"}},
        "items": "//div[starts-with(@class, 'card')]"});
    let said = json!({"template": template, "PROCESSOR_NAME": "SCRAPER_MULTI_ITEMS"});
    snapshot("listing", "listing.html", "text/html", "https://quay.example/shop/lanterns/", said);
}

#[test]
fn a_long_thread_of_tables_in_an_old_charset() {
    let template = json!({"tags": {
        "author": {"target": "b.user", "mandatory": 1},
        "pubdate": {"target": ".date", "type": "datetime"},
        "quoted": {"target": "blockquote.quote", "begin": "Цитата: "},
        "text": {"target": "./table//div[@class='body']"},
        "id": {"target": "@id"}},
        "items": "td.post"});
    let said = json!({"template": template, "PROCESSOR_NAME": "SCRAPER_MULTI_ITEMS", "TIMEZONE": "+0300"});
    snapshot("thread", "thread.html", "text/html", "https://port.example/forum/12/77", said);
}

#[test]
fn store_only_keeps_the_text() {
    snapshot("store", "forum.html", "text/html", "https://wheels.example/t/77", json!({"PROCESSOR_NAME": "STORE"}));
}

#[test]
fn what_is_not_processed_or_not_found_says_so() {
    let mandatory = json!({"template": {"tags": {"title": {"target": "//h1", "mandatory": 1}, "x": {"default": "y"}}}});
    let made = processed(&mandatory, "https://a.example/", "image/png", b"\x89PNG\r\n\x1a\n0000");
    assert_eq!((made.errors, made.failed, made.record), (ErrorBit::UnsupportedContentType.into(), false, None));
    let made = processed(&mandatory, "https://a.example/", "text/html", b"<h2>no</h2>");
    assert!(made.errors.contains(ErrorBit::MandatoryTemplate) && made.failed);
    let record: Json = serde_json::from_slice(&made.record.unwrap()).unwrap();
    assert_eq!((&record["missing"], &record["items"][0]["x"]), (&json!(["title"]), &json!("y")));
    let conditional = json!({"template": [
        {"condition": {"url": "/shop/"}, "tags": {"title": "h1"}}, {"condition": "//article", "tags": {"title": "h1"}}]});
    let made = processed(&conditional, "https://a.example/news/", "text/html", b"<h1>no</h1>");
    assert!(made.errors.contains(ErrorBit::TemplateSource));
    let made = processed(&conditional, "https://a.example/shop/1", "text/html", b"<h1>yes</h1>");
    assert!(made.errors.is_empty());
}

#[test]
fn filters_of_each_stage_leave_out_what_they_say() {
    let page = b"<h1>Bridge</h1><p>reopens</p><a href='/x'>x</a>";
    let made = |said: Json| processed(&said, "https://a.example/news/1", "text/html", page);
    let filter = |stage: u8, subject: &str, pattern: &str| json!([{"stage": stage, "subject": subject, "pattern": pattern, "action": -1}]);
    // When it was fetched: neither its links nor what could be made of it is wanted, with or without rules.
    for properties in [json!({}), json!({"PROCESSOR_NAME": "STORE"})] {
        let mut said = properties;
        said["filters"] = filter(1, "RAW_CONTENT", "reopens");
        let out = made(said.clone());
        assert_eq!(
            (out.errors, out.unwanted, out.failed, out.record),
            (ErrorBit::CrawlerFilters.into(), true, false, None)
        );
        said["filters"] = filter(1, "HEADERS_ALL", "nginx");
        assert!(!made(said).unwanted);
    }
    let types = made(json!({"ALLOWED_CTYPES": "text/plain", "PROCESSOR_NAME": "STORE"}));
    assert_eq!((types.errors, types.unwanted), (ErrorBit::WrongMime.into(), true));
    // Before it is processed: its links are followed all the same.
    for stage in [7, 2, 3] {
        let out = made(json!({"PROCESSOR_NAME": "STORE", "filters": filter(stage, "", "reopens")}));
        assert_eq!((out.errors, out.unwanted, out.record), (ErrorBit::ProcessorFilters.into(), false, None), "{stage}");
        let condition = |text: &str| json!([{"stage": stage, "opCode": 7, "pattern": text}]);
        let said = "httpCode = 200 AND depth = 2 AND size < 100 AND linksI = 1 AND linksE = 0 AND host = 'a.example' AND UDate > '2026-01-01 00:00:00'";
        assert!(made(json!({"PROCESSOR_NAME": "STORE", "filters": condition(said)})).record.is_some());
        assert!(made(json!({"PROCESSOR_NAME": "STORE", "filters": condition("depth < 2")})).record.is_none());
    }
    let picks = |text: &str| made(json!({"PROCESSOR_NAME": "STORE", "PROCESS_WHERE_URLS": text}));
    assert!(picks("contentType = 'text/html'").record.is_some());
    assert_eq!((picks("contentType = 'text/xml'").record, picks("depth > 5").errors), (None, ErrorMask::NONE));
    // What was made of it.
    let template = json!({"tags": {"title": "h1", "text": "p"}});
    let by_tag = |pattern: &str| made(json!({"template": template, "filters": filter(4, "title", pattern)}));
    assert_eq!(by_tag("^Bridge$").errors, ErrorBit::ProcessorFilters.into());
    let kept = by_tag("^bridge$");
    assert_eq!((kept.errors, kept.made.map(|made| made.tags)), (ErrorMask::NONE, Some(2)));
}

#[test]
fn old_entries_of_a_feed_are_left_out() {
    let body = std::fs::read(saved("feed.xml")).unwrap();
    let made = |condition: &str| {
        let filters = json!([{"stage": 4, "opCode": 7, "pattern": condition, "type": 0}]);
        let said = json!({"PROCESSOR_NAME": "FEED_PARSER", "filters": filters});
        processed(&said, "https://courier.example/rss", "application/rss+xml", &body)
    };
    let items = |made: &Processed| {
        let record: Json = serde_json::from_slice(made.record.as_deref().unwrap()).unwrap();
        record["items"].as_array().unwrap().len()
    };
    let all = items(&made("title = 'nosuch'"));
    let recent = made("%PDATE% < '2026-11-10 00:00:00'");
    assert!((1..all).contains(&items(&recent)), "{} of {all}", items(&recent));
    let none = made("%PDATE% < NOW() + INTERVAL 1 DAY OR %PDATE% IS NULL");
    assert!(none.record.is_none() && none.entries_are_results && none.errors.contains(ErrorBit::ProcessorFilters));
}

#[test]
fn what_was_made_is_told_in_figures() {
    let template = json!({"template": {"tags": {"title": "h1", "pubdate": {"target": "p", "type": "datetime"}}}});
    let made =
        processed(&template, "https://a.example/", "text/html", b"<h1>x</h1><p>2026-11-16 08:00:00</p>").made.unwrap();
    assert_eq!((made.tags, made.published.map(date::format).as_deref()), (2, Some("2026-11-16 08:00:00")));
    let nothing = processed(&template, "https://a.example/", "text/html", b"<h2>x</h2>").made.unwrap();
    assert_eq!((nothing.tags, nothing.published), (0, None));
}

#[test]
fn a_hostile_page_with_hostile_rules_ends_with_a_bit() {
    let body = "<div>a ".repeat(100_000);
    let template = json!({"template": {"tags": {
        "a": {"target": "//div[.//div[.//div[contains(., 'x')]]]"},
        "b": {"target": "//*[following::*[preceding::*]]", "join": "concat"}}}});
    let made = processed(&template, "https://a.example/", "text/html", body.as_bytes());
    assert!(made.errors.contains(ErrorBit::Scraper) && made.failed, "{made:?}");
}
