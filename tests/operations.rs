//! Every operation of the Distributed Crawler in one table: good, bad, empty, repeated, unknown and long requests, through the command line of a node alone,
//! and of three nodes of which one is down. What is wrong has its code, names its field, and changes nothing.

use std::collections::BTreeSet;

use proto::site::{Operation, md5_hex};
use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::raw::{RawServer, Reply};
use tests::sites::{dc, node_alone, site};
use tests::wait_until;

/// Nothing listens there, and the sites of the table are suspended.
const ROOT: &str = "http://127.0.0.1:1/";
/// Objects of a long request: more than go in one part.
const MANY: usize = 1_100;
/// Of those that are changed one after the other.
const SEVERAL: usize = 60;

/// What an operation must come to.
enum Expected {
    /// This is its object.
    Is(Value),
    /// The statuses of its object.
    Statuses(Value),
    /// So many statuses, all of them this.
    All(usize, Value),
    /// A list of so many.
    Count(usize),
    /// The object has this at this place.
    Has(&'static str, Value),
    /// It fails with this code, and the message has this word.
    Refused(u64, &'static str),
    /// It is done.
    Done,
    /// It is done as far as nodes answer, and the entry says so.
    Partly,
}

use Expected::{All, Count, Done, Has, Is, Partly, Refused, Statuses};

type Row = (&'static str, Value, Expected);

/// What is wrong with the answer to a row.
fn wrong(data: &str, (operation, body, expected): &Row) -> Option<String> {
    let (ended, answer) = dc(data, operation, body, &[]);
    let object = &answer["itemsList"][0]["itemObject"];
    let statuses = || object["statuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let met = match expected {
        Is(value) => object == value,
        Statuses(value) => &object["statuses"] == value,
        All(count, value) => statuses().len() == *count && statuses().iter().all(|status| status == value),
        Count(count) => object.as_array().map(Vec::len) == Some(*count),
        Has(pointer, value) => object.pointer(pointer) == Some(value),
        Refused(code, word) => {
            object["errorCode"] == *code && object["errorMessage"].as_str().is_some_and(|said| said.contains(word))
        }
        Done => true,
        Partly => answer["itemsList"][0]["errorCode"] == 1,
    };
    let code = if matches!(expected, Refused(..) | Partly) { 1 } else { 0 };
    let entries = answer["itemsList"].as_array().map(Vec::len);
    let good = met && ended.code == Some(code) && entries == Some(1);
    let short = |text: String| text.chars().take(500).collect::<String>();
    (!good).then(|| format!("{operation} {}\n{}", short(body.to_string()), short(ended.to_string())))
}

fn check(data: &str, row: &Row) {
    assert_eq!(wrong(data, row), None);
}

fn url(path: &str) -> String {
    format!("{ROOT}{path}")
}

fn urls(count: usize, of: impl Fn(usize) -> Value) -> Value {
    (0..count).map(of).collect()
}

/// Operations on sites.
fn sites() -> Vec<Row> {
    let named = |id: &str| json!({"id": id});
    let suspended = |id: &str| json!({"id": id, "urls": [ROOT], "state": 3});
    vec![
        ("SITE_NEW", suspended("news"), Statuses(json!(["news"]))),
        ("SITE_NEW", suspended("news"), Refused(2020, "news")),
        ("SITE_NEW", json!([]), Statuses(json!([]))),
        ("SITE_NEW", json!({}), Refused(2000, "urls")),
        ("SITE_NEW", json!({"id": "x", "maxErrors": -1}), Refused(2000, "maxErrors")),
        ("SITE_NEW", json!({"id": "x", "fetchType": 2}), Refused(2000, "fetchType")),
        ("SITE_NEW", json!({"id": "x", "filters": [{"pattern": "a", "stage": 9}]}), Refused(2000, "filters[0].stage")),
        (
            "SITE_NEW",
            json!({"id": "x", "properties": [{"name": "HTTP_FREQ_LIMITS", "value": {"max": 0}}]}),
            Refused(2000, "HTTP_FREQ_LIMITS"),
        ),
        (
            "SITE_NEW",
            json!({"id": "x", "properties": [{"name": "HTTP_FREQ_LIMITS", "value": {"max": 1, "period": 9_999_999}}]}),
            Refused(2000, "HTTP_FREQ_LIMITS"),
        ),
        ("SITE_NEW", urls(SEVERAL, |n| json!({"id": format!("many-{n}"), "state": 2, "userId": 7})), Done),
        ("SITE_STATUS", named("news"), Has("/state", json!(3))),
        ("SITE_STATUS", named("x"), Is(json!({"id": "x", "state": 9}))),
        ("SITE_STATUS", json!([]), Is(json!([]))),
        ("SITE_STATUS", json!({}), Refused(2000, "id")),
        ("SITE_STATUS", urls(MANY, |n| named(&format!("many-{n}"))), Count(MANY)),
        ("SITE_FIND", json!({"url": ROOT}), Has("/0/id", json!("news"))),
        ("SITE_FIND", json!({"url": "http://nowhere.example/"}), Is(json!([]))),
        ("SITE_FIND", json!({"criterions": {"WHERE": "userId = 7", "LIMIT": 1000}}), Count(SEVERAL)),
        ("SITE_FIND", json!({"criterions": {"WHERE": "nosuch = 1"}}), Refused(2000, "nosuch")),
        ("SITE_FIND", json!([]), Refused(2000, "one object")),
        ("SITE_UPDATE", json!({"id": "news", "maxErrors": 5}), Statuses(json!([0]))),
        ("SITE_UPDATE", json!({"id": "news", "maxErrors": 5}), Statuses(json!([0]))),
        ("SITE_UPDATE", json!({"id": "nosuch", "maxErrors": 5}), Refused(2020, "nosuch")),
        ("SITE_UPDATE", json!({"id": "news", "updateType": 3}), Refused(2000, "updateType")),
        ("SITE_UPDATE", json!({"id": "news", "contents": 3}), Refused(2000, "contents")),
        ("SITE_UPDATE", json!({}), Refused(2000, "id")),
        ("SITE_UPDATE", json!([]), Statuses(json!([]))),
        ("SITE_UPDATE", json!({"criterions": {"WHERE": "userId = 7 AND nosuch = 1"}}), Refused(2000, "nosuch")),
        ("SITE_UPDATE", json!({"id": "news", "criterions": {"WHERE": "userId = 7"}}), Refused(2000, "either")),
        (
            "SITE_UPDATE",
            json!({"criterions": {"WHERE": "id = 'many-1' OR id = 'many-2'", "ORDER BY": "id"}, "categoryId": 4}),
            Statuses(json!([["many-1", "many-2"]])),
        ),
        ("SITE_FIND", json!({"criterions": {"WHERE": "categoryId = 4"}}), Count(2)),
        ("SITE_UPDATE", urls(SEVERAL, |n| json!({"id": format!("many-{n}"), "priority": 5})), All(SEVERAL, json!(0))),
        ("SITE_DELETE", named("many-0"), Statuses(json!([0]))),
        ("SITE_DELETE", named("many-0"), Refused(2020, "many-0")),
        ("SITE_DELETE", json!({"id": "0"}), Refused(2000, "general")),
        ("SITE_DELETE", json!({}), Refused(2000, "id")),
        ("SITE_DELETE", json!([]), Statuses(json!([]))),
        ("SITE_DELETE", json!({"criterions": {"WHERE": "categoryId = 4"}}), Done),
        ("SITE_DELETE", urls(SEVERAL - 3, |n| named(&format!("many-{}", n + 3))), All(SEVERAL - 3, json!(0))),
        ("SITE_FIND", json!({"criterions": {"WHERE": "userId = 7"}}), Is(json!([]))),
    ]
}

/// Operations on URLs, of which the site has its root in the beginning and in the end.
fn urls_of_sites(whole: bool) -> Vec<Row> {
    let at = |path: &str| json!({"siteId": "news", "url": url(path)});
    let by = |condition: &str| json!({"siteId": "news", "criterions": {"WHERE": condition, "LIMIT": 5000}});
    let nowhere = json!({"siteId": "nosuch", "url": ROOT});
    let claim = |most: usize| {
        let which = json!({"WHERE": "url LIKE '%/page/2_' AND state = 0", "ORDER BY": "url"});
        json!({"sitesList": ["news"], "urlsCriterions": which, "maxURLs": most, "urlUpdate": {"state": 1}})
    };
    let about = |path: &str, names: Value| json!({"sitesList": ["news"], "urlsCriterions": {"WHERE": format!("url = '{}'", url(path))}, "attributeNames": names});
    let with = |mut body: Value, more: Value| {
        if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        body
    };
    let many = |path: &str| urls(MANY, |n| at(&format!("{path}/{n}")));
    let several = |path: &str| urls(SEVERAL, |n| at(&format!("{path}/{n}")));
    let counted = |count: usize| {
        (
            "SQL_CUSTOM",
            json!({"query": "SELECT COUNT(*) FROM urls WHERE siteId = 'news'"}),
            Has("/rows/0/COUNT(*)", json!(count)),
        )
    };
    let mut rows = vec![
        ("URL_NEW", many("page"), All(MANY, json!(0))),
        ("URL_NEW", many("page"), All(MANY, json!(2))),
        ("URL_NEW", json!([]), Statuses(json!([]))),
        ("URL_NEW", nowhere.clone(), Refused(2000, "nosuch")),
        ("URL_NEW", json!({"siteId": "news", "url": "nonsense"}), Refused(2000, "url")),
        ("URL_NEW", json!({"siteId": "news"}), Refused(2000, "url")),
        ("URL_NEW", json!({"siteId": "news", "url": "http://127.0.0.2:1/"}), Refused(2000, "does not belong")),
        ("URL_NEW", json!({"url": ROOT, "siteSelect": 4}), Refused(2000, "siteSelect")),
        (
            "URL_NEW",
            json!({"siteId": "news", "url": url("page/0"), "urlUpdate": {"nosuch": 1}}),
            Refused(2000, "urlUpdate"),
        ),
        (
            "URL_NEW",
            json!({"siteId": "news", "url": url("more"), "type": 0, "crawled": 0, "chainId": 0, "tagsMask": 6,
                "attributes": [{"name": "colour", "value": "red"}], "urlPut": {"contentType": 1, "putDict": {"data": "Zm9v"}}}),
            Statuses(json!([0])),
        ),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "name": "colour"}), Has("/0/value", json!("red"))),
        (
            "URL_CONTENT",
            json!({"siteId": "news", "url": url("more"), "contentTypeMask": 1}),
            Has("/0/processedContents/0/buffer", json!("Zm9v")),
        ),
        ("URL_FETCH", about("more", json!(["tagsMask", "chainId"])), Has("/0/tagsMask", json!(6))),
        ("URL_NEW", json!({"siteId": "news", "url": url("x"), "tagsMask": "x"}), Refused(2000, "tagsMask")),
        ("URL_NEW", json!({"siteId": "news", "url": url("more"), "urlUpdate": {"state": 1}}), Statuses(json!([2]))),
        ("URL_STATUS", at("more"), Has("/0/state", json!(1))),
        // More than a thousand queries of one path are a trap, whoever hands them in.
        ("URL_NEW", urls(MANY, |n| at(&format!("trap?n={n}"))), Refused(2000, "path_queries_max")),
        ("URL_DELETE", by("url LIKE '%/trap?n=%'"), Statuses(json!([1_000]))),
        counted(MANY + 2),
        ("URL_STATUS", many("page"), Count(MANY)),
        ("URL_STATUS", json!([]), Is(json!([]))),
        ("URL_STATUS", at("unknown"), Is(json!([]))),
        ("URL_STATUS", nowhere.clone(), Is(json!([]))),
        ("URL_STATUS", json!({"siteId": "news"}), Refused(2000, "url")),
        ("URL_STATUS", json!({"siteId": "news", "urlMd5": "xyz"}), Refused(2000, "urlMd5")),
        // By the MD5 of the URL, as users of the original have it.
        (
            "URL_STATUS",
            json!({"siteId": "news", "urlMd5": md5_hex(&url("page/7"))}),
            Has("/0/url", json!(url("page/7"))),
        ),
        (
            "URL_STATUS",
            json!({"siteId": "news", "url": md5_hex(ROOT).to_uppercase(), "urlType": 1}),
            Has("/0/url", json!(ROOT)),
        ),
        ("URL_STATUS", json!({"siteId": "news", "urlMd5": md5_hex("http://nowhere.example/")}), Is(json!([]))),
        (
            "URL_STATUS",
            urls(MANY, |n| json!({"siteId": "news", "urlMd5": md5_hex(&url(&format!("page/{n}")))})),
            Count(MANY),
        ),
        ("URL_FETCH", json!({"sitesList": ["news"], "maxURLs": 5000}), Count(MANY + 2)),
        (
            "URL_FETCH",
            json!({"sitesList": ["news"], "urlsCriterions": {"WHERE": "url LIKE '%/page/1_'", "ORDER BY": "url"}}),
            Count(10),
        ),
        (
            "URL_FETCH",
            json!({"sitesList": ["news"], "urlsCriterions": {"WHERE": format!("md5 = '{}'", md5_hex(ROOT))}}),
            Has("/0/url", json!(ROOT)),
        ),
        ("URL_FETCH", json!({"sitesList": ["nosuch"]}), Refused(2020, "nosuch")),
        ("URL_FETCH", json!({"algorithm": 2}), Refused(2000, "algorithm")),
        ("URL_FETCH", json!({"urlsCriterions": {"WHERE": "size > 'a'"}}), Refused(2000, "character")),
        ("URL_FETCH", json!([]), Refused(2000, "object")),
        ("URL_FETCH", json!([{"sitesList": ["news"], "maxURLs": 3}, {"sitesList": ["news"], "maxURLs": 2}]), Count(5)),
        // Who claims URLs gets others each time, until there are no more.
        ("URL_FETCH", claim(4), Count(4)),
        ("URL_FETCH", claim(4), Count(4)),
        ("URL_FETCH", claim(4), Count(2)),
        ("URL_FETCH", claim(4), Count(0)),
        ("URL_UPDATE", with(by("url LIKE '%/page/2_'"), json!({"state": 0})), Statuses(json!([10]))),
        ("URL_FETCH", json!({"sitesList": ["news"], "urlUpdate": {"status": 4}}), Refused(2000, "status")),
        ("URL_FETCH", json!({"sitesList": ["news"], "urlUpdate": {"nosuch": 1}}), Refused(2000, "urlUpdate.nosuch")),
        ("URL_FETCH", json!({"sitesList": ["news"], "siteUpdate": {"size": 1}}), Refused(2000, "siteUpdate.size")),
        (
            "URL_FETCH",
            json!({"sitesList": ["news"], "maxURLs": 1, "siteUpdate": {"description": "looked at", "state": 3}}),
            Count(1),
        ),
        ("SITE_STATUS", json!({"id": "news"}), Has("/description", json!("looked at"))),
        ("URL_FETCH", about("more", json!(["colour"])), Has("/0/attributes/0/value", json!("red"))),
        ("URL_FETCH", about("more", json!(["*"])), Has("/0/attributes/0/name", json!("colour"))),
        ("URL_FETCH", about("more", json!(["other"])), Has("/0/attributes", json!([]))),
        ("URL_CONTENT", json!({"urlFetch": {"urlUpdate": {"state": 1}}}), Refused(2000, "urlFetch")),
        ("URL_UPDATE", json!({"siteId": "news", "url": url("page/0"), "state": 1}), Statuses(json!([0]))),
        ("URL_UPDATE", json!({"siteId": "news", "url": url("page/0"), "state": 1}), Statuses(json!([0]))),
        ("URL_UPDATE", json!({"siteId": "news", "urlMd5": md5_hex(&url("page/0")), "state": 0}), Statuses(json!([0]))),
        ("URL_UPDATE", at("page/0"), Refused(2000, "status")),
        ("URL_UPDATE", json!({"siteId": "news", "url": url("page/0"), "status": 7}), Refused(2000, "status")),
        ("URL_UPDATE", json!({"siteId": "news", "url": url("unknown"), "state": 1}), Refused(2020, "no such URL")),
        ("URL_UPDATE", json!({"siteId": "nosuch", "url": ROOT, "state": 1}), Refused(2020, "nosuch")),
        ("URL_UPDATE", json!([]), Statuses(json!([]))),
        (
            "URL_UPDATE",
            json!({"siteId": "news", "state": 1, "criterions": {"WHERE": "url LIKE '%page/%'", "LIMIT": 5000}}),
            Statuses(json!([MANY])),
        ),
        (
            "URL_UPDATE",
            json!({"siteId": "news", "state": 1, "criterions": {"WHERE": "nosuch = 1"}}),
            Refused(2000, "nosuch"),
        ),
        ("URL_CLEANUP", several("page"), All(SEVERAL, json!(0))),
        ("URL_STATUS", at("page/1"), Has("/0/state", json!(0))),
        ("URL_CLEANUP", by("state = 1 AND url LIKE '%page/%'"), Statuses(json!([MANY - SEVERAL]))),
        ("URL_CLEANUP", by("httpCode = 999"), Statuses(json!([0]))),
        ("URL_CLEANUP", at("unknown"), Refused(2020, "no such URL")),
        ("URL_CLEANUP", nowhere.clone(), Refused(2020, "nosuch")),
        ("URL_CLEANUP", json!({"siteId": "news"}), Refused(2000, "url")),
        ("URL_CLEANUP", json!([]), Statuses(json!([]))),
        (
            "URL_CONTENT",
            json!({"siteId": "news", "url": url("page/0"), "contentTypeMask": 1}),
            Has("/0/status", json!(3)),
        ),
        (
            "URL_CONTENT",
            json!({"siteId": "news", "urlMd5": md5_hex(&url("page/0")), "contentTypeMask": 1}),
            Has("/0/url", json!(url("page/0"))),
        ),
        ("URL_CONTENT", at("unknown"), Has("/0/status", json!(1))),
        ("URL_CONTENT", nowhere.clone(), Refused(2020, "nosuch")),
        (
            "URL_CONTENT",
            json!({"siteId": "news", "url": ROOT, "contentTypeMask": 65536}),
            Refused(2000, "contentTypeMask"),
        ),
        ("URL_CONTENT", json!([]), Is(json!([]))),
        ("URL_CONTENT", json!({"urlFetch": {"sitesList": ["news"], "maxURLs": 3}, "contentTypeMask": 1}), Count(3)),
        (
            "URL_CONTENT",
            json!({"urlFetch": {"sitesList": ["news"], "maxURLs": 2000}, "contentTypeMask": 1}),
            Refused(2000, "urlFetch"),
        ),
        (
            "URL_PUT",
            urls(
                SEVERAL,
                |n| json!({"siteId": "news", "url": url(&format!("page/{n}")), "contentType": 1, "putDict": {"data": "YmFy"}}),
            ),
            All(SEVERAL, json!(0)),
        ),
        (
            "URL_PUT",
            json!({"siteId": "news", "url": url("page/0"), "contentType": 1, "putDict": {"data": "Zm9v"}}),
            Statuses(json!([0])),
        ),
        (
            "URL_CONTENT",
            json!({"siteId": "news", "url": url("page/0"), "contentTypeMask": 1}),
            Has("/0/processedContents/0/buffer", json!("Zm9v")),
        ),
        (
            "URL_PUT",
            json!({"siteId": "news", "url": ROOT, "contentType": 1, "putDict": {"data": "*"}}),
            Refused(2000, "putDict.data"),
        ),
        (
            "URL_PUT",
            json!({"siteId": "news", "url": ROOT, "contentType": 2, "putDict": {"data": ""}}),
            Refused(2000, "contentType"),
        ),
        (
            "URL_PUT",
            json!({"siteId": "news", "url": url("unknown"), "contentType": 1, "putDict": {"data": ""}}),
            Refused(2020, "no such URL"),
        ),
        (
            "URL_PUT",
            json!({"siteId": "nosuch", "url": ROOT, "contentType": 1, "putDict": {"data": ""}}),
            Refused(2020, "nosuch"),
        ),
        ("URL_PUT", json!([]), Statuses(json!([]))),
    ];
    for operation in ["URL_HISTORY", "URL_STATS"] {
        rows.extend([
            (operation, several("page"), Count(SEVERAL)),
            (operation, at("page/0"), Has("/0/url", json!(url("page/0")))),
            (operation, at("unknown"), Is(json!([]))),
            (operation, nowhere.clone(), Refused(2020, "nosuch")),
            (operation, json!({"siteId": "news"}), Refused(2000, "url")),
            (operation, json!([]), Is(json!([]))),
        ]);
    }
    rows.extend([
        (
            "SQL_CUSTOM",
            json!({"query": "SELECT siteId, COUNT(*) FROM urls GROUP BY siteId HAVING 1"}),
            Refused(2000, "query"),
        ),
        ("SQL_CUSTOM", json!({"query": "DELETE FROM urls"}), Refused(2000, "query")),
        ("SQL_CUSTOM", json!({}), Refused(2000, "query")),
        ("SQL_CUSTOM", json!([]), Refused(2000, "query")),
        ("SQL_CUSTOM", json!({"query": "SELECT id FROM sites WHERE id = 'nosuch'"}), Has("/rows", json!([]))),
        ("FIELD_RECALCULATE", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("FIELD_RECALCULATE", json!({"nosuch": 1}), Refused(2000, "nosuch")),
        ("FIELD_RECALCULATE", json!([]), Refused(2000, "object")),
        ("URL_AGE", json!({"siteId": "news"}), Is(json!([]))),
        (
            "URL_AGE",
            json!({"siteId": "news", "maxURLs": 40, "urlsCriterions": {"WHERE": "url LIKE '%page/%'"}}),
            Is(json!([["news", 40]])),
        ),
        ("URL_AGE", json!({"siteId": "news", "maxURLs": 10_001}), Refused(2000, "maxURLs")),
        ("URL_AGE", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("URL_AGE", json!([]), Refused(2000, "object")),
        counted(MANY + 2 - 40),
        ("URL_DELETE", at("more"), Statuses(json!([0]))),
        ("URL_DELETE", at("more"), Refused(2020, "no such URL")),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "name": "colour"}), Is(json!([]))),
        ("URL_DELETE", nowhere.clone(), Refused(2020, "nosuch")),
        ("URL_DELETE", json!({"siteId": "news"}), Refused(2000, "url")),
        ("URL_DELETE", json!({"siteId": "news", "criterions": {"WHERE": "url LIKE 1"}}), Refused(2000, "criterions")),
        ("URL_DELETE", json!([]), Statuses(json!([]))),
        ("URL_DELETE", by("url LIKE '%page/%'"), Statuses(json!([MANY - 40]))),
        counted(1),
        ("URL_PURGE", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("URL_PURGE", json!({"siteId": "news", "maxURLs": 0}), Refused(2000, "maxURLs")),
        ("URL_PURGE", json!([]), Refused(2000, "object")),
    ]);
    // Of some things the node that is down may have more.
    rows.push(("URL_PURGE", json!({"siteId": "news", "maxURLs": 5000}), if whole { Done } else { Partly }));
    rows.push((
        "FIELD_RECALCULATE",
        json!({"siteId": "news"}),
        if whole { Has("/0/corrected", json!(0)) } else { Partly },
    ));
    if whole {
        rows.push(("URL_PURGE", json!({"siteId": "news"}), Is(json!([]))));
        rows.push(("FIELD_RECALCULATE", json!({"siteId": "news"}), Has("/0/collectedURLs", json!(1))));
        rows.push(("URL_CONTENT", at(""), Has("/0/status", json!(2))));
    } else {
        rows.push(("URL_CONTENT", at(""), Refused(2021, "no version")));
    }
    rows
}

/// What is kept beside sites, and batches.
fn things_beside() -> Vec<Row> {
    let attribute = |name: &str| json!({"siteId": "news", "name": name, "value": "x"});
    let proxy = |host: &str| json!({"siteId": "news", "host": host});
    vec![
        ("ATTRIBUTE_SET", attribute("a"), Statuses(json!([0]))),
        ("ATTRIBUTE_SET", attribute("a"), Statuses(json!([2]))),
        ("ATTRIBUTE_SET", urls(MANY, |n| attribute(&format!("n{n}"))), All(MANY, json!(0))),
        ("ATTRIBUTE_SET", json!([]), Statuses(json!([]))),
        ("ATTRIBUTE_SET", json!({"siteId": "news"}), Refused(2000, "name")),
        ("ATTRIBUTE_SET", json!({"siteId": "nosuch", "name": "a"}), Refused(2020, "nosuch")),
        ("ATTRIBUTE_UPDATE", attribute("a"), Statuses(json!([true]))),
        ("ATTRIBUTE_UPDATE", attribute("fresh"), Statuses(json!([true]))),
        ("ATTRIBUTE_UPDATE", json!({"siteId": "news", "name": "a", "urlMd5": "x"}), Refused(2000, "urlMd5")),
        ("ATTRIBUTE_UPDATE", json!({"siteId": "nosuch", "name": "a"}), Refused(2020, "nosuch")),
        ("ATTRIBUTE_UPDATE", json!([]), Statuses(json!([]))),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news"}), Count(MANY + 2)),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "name": "nosuch"}), Is(json!([]))),
        ("ATTRIBUTE_FETCH", json!([]), Is(json!([]))),
        ("ATTRIBUTE_FETCH", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "criterions": {"WHERE": "x = 1"}}), Refused(2000, "character")),
        (
            "ATTRIBUTE_DELETE",
            json!({"siteId": "news", "criterions": {"WHERE": "name LIKE 'n%'", "LIMIT": 5000}}),
            Statuses(json!([true])),
        ),
        ("ATTRIBUTE_DELETE", json!({"siteId": "news", "name": "n1"}), Statuses(json!([false]))),
        ("ATTRIBUTE_DELETE", json!({"siteId": "news", "name": "x".repeat(33)}), Refused(2000, "name")),
        ("ATTRIBUTE_DELETE", json!({"siteId": "nosuch", "name": "a"}), Refused(2020, "nosuch")),
        ("ATTRIBUTE_DELETE", json!([]), Statuses(json!([]))),
        ("PROXY_NEW", urls(64, |n| proxy(&format!("127.0.0.1:{}", n + 1))), All(64, json!(0))),
        ("PROXY_NEW", proxy("127.0.0.1:1"), Refused(2020, "already")),
        ("PROXY_NEW", proxy("127.0.0.1:99"), Refused(2000, "proxies")),
        ("PROXY_NEW", proxy("nonsense"), Refused(2000, "host")),
        ("PROXY_NEW", json!({"siteId": "nosuch", "host": "127.0.0.1:1"}), Refused(2020, "nosuch")),
        ("PROXY_NEW", json!([]), Statuses(json!([]))),
        ("PROXY_UPDATE", json!({"siteId": "news", "host": "127.0.0.1:1", "priority": 9}), Statuses(json!([0]))),
        ("PROXY_UPDATE", proxy("127.0.0.1:99"), Refused(2020, "no proxy")),
        ("PROXY_UPDATE", json!({"siteId": "news", "host": "127.0.0.1:1", "nosuch": 9}), Refused(2000, "nosuch")),
        ("PROXY_UPDATE", json!({"siteId": "nosuch", "host": "127.0.0.1:1"}), Refused(2020, "nosuch")),
        ("PROXY_UPDATE", json!([]), Statuses(json!([]))),
        ("PROXY_STATUS", proxy("127.0.0.1:1"), Has("/0/priority", json!(9))),
        ("PROXY_STATUS", proxy("127.0.0.1:99"), Is(json!([]))),
        ("PROXY_STATUS", json!({"siteId": "nosuch", "host": "127.0.0.1:1"}), Refused(2020, "nosuch")),
        ("PROXY_STATUS", json!({"siteId": "news"}), Refused(2000, "host")),
        ("PROXY_STATUS", json!([]), Is(json!([]))),
        ("PROXY_FIND", json!({"siteId": "news", "criterions": {"LIMIT": 1000}}), Count(64)),
        ("PROXY_FIND", json!({"siteId": "news", "criterions": {"WHERE": "priority > 99"}}), Is(json!([]))),
        ("PROXY_FIND", json!({"siteId": "news", "criterions": {"WHERE": "x = 1"}}), Refused(2000, "character")),
        ("PROXY_FIND", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("PROXY_DELETE", urls(64, |n| proxy(&format!("127.0.0.1:{}", n + 1))), All(64, json!(0))),
        ("PROXY_DELETE", proxy("127.0.0.1:1"), Refused(2020, "no proxy")),
        ("PROXY_DELETE", json!({"siteId": "nosuch", "host": "127.0.0.1:1"}), Refused(2020, "nosuch")),
        ("PROXY_DELETE", json!({"siteId": "news"}), Refused(2000, "host")),
        ("PROXY_DELETE", json!([]), Statuses(json!([]))),
        ("BATCH", json!({"items": []}), Has("/items", json!([]))),
        ("BATCH", json!({}), Refused(2000, "items")),
        ("BATCH", json!({"items": [], "maxIterations": 2}), Refused(2000, "crawl-batch")),
        ("BATCH", json!([]), Refused(2000, "object")),
        ("BATCH", json!({"items": [{"siteId": "news"}]}), Refused(2000, "items[0].urlObj.url")),
        ("BATCH", json!({"items": [{"siteId": "nosuch", "urlObj": {"url": ROOT}}]}), Refused(2020, "nosuch")),
        (
            "BATCH",
            json!({"items": urls(101, |n| json!({"siteId": "news", "urlObj": {"url": url(&n.to_string())}}))}),
            Refused(2000, "items"),
        ),
        ("SITE_CLEANUP", json!({"id": "news", "state": 3}), Statuses(json!([0]))),
        ("SITE_CLEANUP", json!({"id": "news", "state": 3}), Statuses(json!([0]))),
        ("SITE_CLEANUP", json!({"id": "nosuch"}), Refused(2020, "nosuch")),
        ("SITE_CLEANUP", json!({"id": "news", "state": 7}), Refused(2000, "state")),
        ("SITE_CLEANUP", json!({"id": "news", "historyCleanUp": 3}), Refused(2000, "historyCleanUp")),
        ("SITE_CLEANUP", json!({}), Refused(2000, "id")),
        ("SITE_CLEANUP", json!([]), Statuses(json!([]))),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news"}), Is(json!([]))),
        ("URL_FETCH", json!({"sitesList": ["news"]}), Count(1)),
        ("SITE_CLEANUP", json!({"id": "news", "state": 3, "saveRootUrls": 0, "moveURLs": 0}), Statuses(json!([0]))),
        ("URL_FETCH", json!({"sitesList": ["news"]}), Count(0)),
        ("SITE_DELETE", json!({"id": "news"}), Statuses(json!([0]))),
    ]
}

fn run_through(data: &str, whole: bool, server: &RawServer) {
    let (mut asked, mut failures) = (BTreeSet::new(), Vec::new());
    for row in sites().into_iter().chain(urls_of_sites(whole)).chain(things_beside()) {
        failures.extend(wrong(data, &row));
        asked.insert(row.0);
    }
    assert!(failures.is_empty(), "{} rows are wrong:\n{}", failures.len(), failures.join("\n"));
    let all: BTreeSet<&str> = Operation::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(asked, all, "every operation has its rows");
    assert_eq!(site(data, "x"), json!({"id": "x", "state": 9}), "what is wrong changes nothing");

    // A batch is crawled and answered in the call, whoever holds the slot of its host.
    let live = json!({"id": "live", "urls": [server.url("/")], "requestDelay": 20, "moveURLs": false});
    check(data, &("SITE_NEW", live, Statuses(json!(["live"]))));
    let batch = json!({"id": 5, "items": [{"siteId": "live", "urlObj": {"url": server.url("/now")}}]});
    wait_until("a batch is crawled in the call", || {
        let (_, answer) = dc(data, "BATCH", &batch, &[]);
        let item = &answer["itemsList"][0]["itemObject"]["items"][0];
        item["urlObj"]["status"] == 7 && item["urlContentResponse"]["rawContents"][0]["buffer"].is_string()
    });
    check(data, &("SITE_DELETE", json!({"id": "live"}), Statuses(json!([0]))));
}

fn server() -> RawServer {
    RawServer::start(|asked| match asked.path {
        "/now" => Reply::page(&["/other"]),
        _ => Reply::status(404),
    })
}

#[test]
fn every_operation_through_a_node_alone() {
    let work = tempfile::tempdir().unwrap();
    let (node, data) = node_alone(work.path());
    run_through(&data, true, &server());
    drop(node);
}

#[test]
fn every_operation_through_three_nodes_of_which_one_is_down() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    wait_until("all slots are held", || fleet.totals().0 == 4_096);
    fleet.kill_node(1);
    let data = fleet.folder().to_owned();
    wait_until("the others hold its slots", || {
        let told = fleet.ask(&["nodes"]);
        let alive = told["Nodes"].as_array().into_iter().flatten().filter(|node| node["report"]["Ok"].is_object());
        alive.count() == 2 && fleet.totals().0 == 4_096
    });
    run_through(&data, false, &server());
}
