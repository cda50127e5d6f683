//! Every operation of the Distributed Crawler in one table: good, bad, empty, repeated, unknown and long requests, through the command line of a node alone,
//! and through each of three nodes while another one is down. What is wrong has its code, names its field, and changes nothing.

use std::collections::BTreeSet;

use proto::site::{Operation, md5_hex};
use serde_json::{Value, json};
use tests::fleet::Fleet;
use tests::program::{Ended, run};
use tests::raw::{RawServer, Reply};
use tests::sites::{dc_by, node_alone};
use tests::wait_until;

/// Nothing listens there, and the sites of the table are suspended.
const ROOT: &str = "http://127.0.0.1:1/";
/// Objects of a long request: more than go in two parts.
const MANY: usize = 2_100;
/// Of a short one, where it matters who is asked and not for how much.
const SEVERAL: usize = 60;
/// URLs whose contents one request may tell.
const CONTENTS_MAX: usize = 1_000;
/// How long an answer is waited for: thousands of things are changed in one request, on whatever machine.
const PATIENT: [&str; 2] = ["--dcc_timeout", "600000"];
/// Queries of one path: more than the limits against traps allow.
const QUERIES: usize = 1_100;
/// Origins of which sites are made: more than are made at once.
const ORIGINS: usize = 100;
/// Proxies that a site may have.
const PROXIES: usize = 64;

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
    /// As things stand it fails with this code and word, but for so many of a list, which have status 0.
    Stopped(u64, &'static str, usize),
    /// The object has this at this place, as far as nodes answer, and the entry says that some do not.
    Partly(&'static str, Value),
}

use Expected::{All, Count, Has, Is, Partly, Refused, Statuses, Stopped};

type Row = (&'static str, Value, Expected);

/// Runs one of the program's commands with these arguments, and asks some node.
type Asks<'a> = dyn Fn(&[&str]) -> Ended + 'a;

/// What is wrong with the answer to a row.
fn wrong(asks: &Asks, (operation, body, expected): &Row) -> Option<String> {
    let (mut ended, mut answer) = dc_by(asks, operation, body);
    // While a node is down and sites are deleted, a slot is nobody's for up to a lease. What it counts is said to be missing then, and is there when it is asked for again;
    // what would be done by such counts is not done.
    let is_missing = |answer: &Value| {
        let item = &answer["itemsList"][0];
        let said = [&item["errorMessage"], &item["itemObject"]["errorMessage"]];
        said.iter().any(|said| said.as_str().is_some_and(|said| said.contains("slots are counted")))
    };
    if is_missing(&answer) {
        wait_until("what was missing is counted again", || {
            (ended, answer) = dc_by(asks, operation, body);
            !is_missing(&answer)
        });
    }
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
        Stopped(code, word, done) => {
            let refused =
                object["errorCode"] == *code && statuses().iter().filter(|status| **status == 0).count() == *done;
            refused && object["errorMessage"].as_str().is_some_and(|said| said.contains(word))
        }
        Partly(pointer, value) => {
            let item = &answer["itemsList"][0];
            let says = item["errorCode"] == 1 && item["errorMessage"].as_str().is_some_and(|said| !said.is_empty());
            says && object.pointer(pointer) == Some(value)
        }
    };
    let code = if matches!(expected, Refused(..) | Stopped(..) | Partly(..)) { 1 } else { 0 };
    let entries = answer["itemsList"].as_array().map(Vec::len);
    let good = met && ended.code == Some(code) && entries == Some(1);
    let short = |text: String| text.chars().take(500).collect::<String>();
    (!good).then(|| format!("{operation} {}\n{}", short(body.to_string()), short(ended.to_string())))
}

fn check(asks: &Asks, row: &Row) {
    assert_eq!(wrong(asks, row), None);
}

fn url(path: &str) -> String {
    format!("{ROOT}{path}")
}

fn urls(count: usize, of: impl Fn(usize) -> Value) -> Value {
    (0..count).map(of).collect()
}

/// Operations on sites.
fn sites(many: usize) -> Vec<Row> {
    let named = |id: &str| json!({"id": id});
    let suspended = |id: &str| json!({"id": id, "urls": [ROOT], "state": 3});
    let sorted = |first: usize| {
        let mut ids: Vec<String> = (first..many).map(|n| format!("many-{n}")).collect();
        ids.sort();
        json!([ids])
    };
    let property = |name: &str, value: &str| json!({"id": "x", "properties": [{"name": name, "value": value}]});
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
        (
            "SITE_NEW",
            urls(many, |n| json!({"id": format!("many-{n}"), "state": 2, "userId": 7})),
            Statuses(urls(many, |n| json!(format!("many-{n}")))),
        ),
        ("SITE_NEW", urls(many, |n| named(&format!("many-{n}"))), Stopped(2020, "many-0", 0)),
        ("SITE_NEW", json!({"id": "x", "urlType": 2}), Refused(2000, "urlType")),
        ("SITE_NEW", json!({"id": "x", "filters": [{"pattern": "a", "state": 2}]}), Refused(2000, "filters[0].state")),
        ("SITE_NEW", json!({"id": "x", "proxies": [{"host": "p:1", "state": 2}]}), Refused(2000, "state")),
        ("SITE_NEW", property("AUTO_REMOVE_RESOURCES_ORDER", "nosuch"), Refused(2000, "AUTO_REMOVE_RESOURCES_ORDER")),
        ("SITE_NEW", property("AUTO_REMOVE_RESOURCES", "some"), Refused(2000, "AUTO_REMOVE_RESOURCES")),
        ("SITE_NEW", property("MODES_FLAG", "all"), Refused(2000, "MODES_FLAG")),
        ("SITE_NEW", property("RECRAWL_PERIOD_MODE", "2"), Refused(2000, "RECRAWL_PERIOD_MODE")),
        ("SITE_NEW", property("RECRAWL_PERIOD_MIN", "0"), Refused(2000, "RECRAWL_PERIOD_MIN")),
        ("SITE_STATUS", named("news"), Has("/state", json!(3))),
        ("SITE_STATUS", named("x"), Is(json!({"id": "x", "state": 9}))),
        ("SITE_STATUS", json!([]), Is(json!([]))),
        ("SITE_STATUS", json!({}), Refused(2000, "id")),
        ("SITE_STATUS", urls(many, |n| named(&format!("many-{n}"))), Count(many)),
        ("SITE_STATUS", json!({"id": "news", "measure": 2}), Refused(2000, "measure")),
        ("SITE_STATUS", json!({"id": "news", "excludeList": ["nosuch"]}), Refused(2000, "excludeList")),
        ("SITE_FIND", json!({"url": ROOT}), Has("/0/id", json!("news"))),
        ("SITE_FIND", json!({"url": "http://nowhere.example/"}), Is(json!([]))),
        ("SITE_FIND", json!({"criterions": {"WHERE": "userId = 7", "LIMIT": 5000}}), Count(many)),
        ("SITE_FIND", json!({"excludeList": ["nosuch"]}), Refused(2000, "excludeList")),
        ("SITE_FIND", json!({"criterions": {"WHERE": "nosuch = 1"}}), Refused(2000, "nosuch")),
        ("SITE_FIND", json!([]), Refused(2000, "one object")),
        ("SITE_UPDATE", json!({"id": "news", "maxErrors": 5}), Statuses(json!([0]))),
        ("SITE_UPDATE", json!({"id": "news", "maxErrors": 5}), Statuses(json!([0]))),
        ("SITE_UPDATE", json!({"id": "nosuch", "maxErrors": 5}), Refused(2020, "nosuch")),
        ("SITE_UPDATE", json!({"id": "news", "updateType": 3}), Refused(2000, "updateType")),
        ("SITE_UPDATE", json!({"id": "news", "contents": 3}), Refused(2000, "contents")),
        ("SITE_UPDATE", json!({"id": "news", "cDate": "2026-11-17 02:00:00"}), Refused(2000, "cDate")),
        ("SITE_UPDATE", json!({"id": "news", "tcDate": "soon"}), Refused(2000, "tcDate")),
        ("SITE_UPDATE", json!({"id": "news", "tcDate": "2026-11-17 02:00:00"}), Statuses(json!([0]))),
        ("SITE_STATUS", named("news"), Has("/tcDate", json!("2026-11-17 02:00:00"))),
        ("SITE_UPDATE", json!({"id": "news", "errorMask": 3}), Refused(2000, "errorMask")),
        ("SITE_UPDATE", json!({"id": "news", "iterations": 3}), Refused(2000, "iterations")),
        ("SITE_UPDATE", json!({"id": "news", "moveURLs": 3}), Refused(2000, "moveURLs")),
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
        ("SITE_FIND", json!({"criterions": {"WHERE": "userId = 7"}}), Count(10)),
        // Without a LIMIT all are meant that meet a condition, and not as many as are shown.
        (
            "SITE_UPDATE",
            json!({"criterions": {"WHERE": "userId = 7", "ORDER BY": "id"}, "maxErrors": 6}),
            Statuses(sorted(0)),
        ),
        // Nobody means all of them by saying nothing.
        ("SITE_UPDATE", json!({"criterions": {}, "maxErrors": 7}), Refused(2000, "criterions.WHERE")),
        ("SITE_DELETE", json!({"criterions": {"ORDER BY": "id"}}), Refused(2000, "criterions.WHERE")),
        // What is done by counts is done by those of now, and not by those that were told a moment ago.
        ("SITE_NEW", json!({"id": "counted", "urls": [ROOT], "state": 3}), Statuses(json!(["counted"]))),
        ("SITE_STATUS", named("counted"), Has("/state", json!(3))),
        ("URL_NEW", json!({"siteId": "counted", "url": url("more")}), Statuses(json!([0]))),
        (
            "SITE_DELETE",
            json!({"criterions": {"WHERE": "id = 'counted' AND collectedURLs < 2"}}),
            Statuses(json!([[]])),
        ),
        (
            "SITE_DELETE",
            json!({"criterions": {"WHERE": "id = 'counted' AND collectedURLs = 2"}}),
            Statuses(json!([["counted"]])),
        ),
        ("SITE_FIND", json!({"criterions": {"WHERE": "maxErrors = 6", "LIMIT": 5000}}), Count(many)),
        ("SITE_UPDATE", urls(many, |n| json!({"id": format!("many-{n}"), "priority": 5})), All(many, json!(0))),
        ("SITE_FIND", json!({"criterions": {"WHERE": "priority = 5 AND userId = 7", "LIMIT": 5000}}), Count(many)),
        ("SITE_CLEANUP", urls(many, |n| json!({"id": format!("many-{n}"), "state": 2})), All(many, json!(0))),
        ("SITE_DELETE", named("many-0"), Statuses(json!([0]))),
        ("SITE_DELETE", named("many-0"), Refused(2020, "many-0")),
        ("SITE_DELETE", json!({"id": "0"}), Refused(2000, "general")),
        ("SITE_DELETE", json!({}), Refused(2000, "id")),
        ("SITE_DELETE", json!({"id": "news", "delayedType": 2}), Refused(2000, "delayedType")),
        ("SITE_DELETE", json!([]), Statuses(json!([]))),
        (
            "SITE_DELETE",
            json!({"criterions": {"WHERE": "categoryId = 4", "ORDER BY": "id"}}),
            Statuses(json!([["many-1", "many-2"]])),
        ),
        ("SITE_DELETE", urls(many - 3, |n| named(&format!("many-{}", n + 3))), All(many - 3, json!(0))),
        ("SITE_FIND", json!({"criterions": {"WHERE": "userId = 7"}}), Is(json!([]))),
    ]
}

/// Operations on URLs, of which the site has its root in the beginning and in the end.
fn urls_of_sites(many: usize, whole: bool) -> Vec<Row> {
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
    let all = |path: &str| urls(many, |n| at(&format!("{path}/{n}")));
    let counted = |count: usize| {
        (
            "SQL_CUSTOM",
            json!({"query": "SELECT COUNT(*) FROM urls WHERE siteId = 'news'"}),
            Has("/rows/0/COUNT(*)", json!(count)),
        )
    };
    let mut rows = vec![
        ("URL_NEW", all("page"), All(many, json!(0))),
        ("URL_NEW", all("page"), All(many, json!(2))),
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
        ("URL_NEW", urls(QUERIES, |n| at(&format!("trap?n={n}"))), Stopped(2000, "path_queries_max", 1_000)),
        ("URL_DELETE", by("url LIKE '%/trap?n=%'"), Statuses(json!([1_000]))),
        // A URL of the original has criterions as a field that says nothing: that means the URL, and never all of its site.
        ("URL_NEW", at("alone"), Statuses(json!([0]))),
        ("URL_DELETE", with(at("alone"), json!({"criterions": {}})), Statuses(json!([0]))),
        ("URL_DELETE", with(at("page/0"), json!({"criterions": {"WHERE": "1 = 1"}})), Refused(2000, "criterions")),
        ("URL_CLEANUP", with(at("page/0"), json!({"criterions": {"LIMIT": 5}})), Refused(2000, "criterions")),
        (
            "URL_UPDATE",
            with(at("page/0"), json!({"state": 1, "criterions": {"WHERE": "1 = 1"}})),
            Refused(2000, "criterions"),
        ),
        ("URL_DELETE", json!({"siteId": "news", "criterions": {}}), Refused(2000, "criterions.WHERE")),
        ("URL_CLEANUP", json!({"siteId": "news", "criterions": {"WHERE": " "}}), Refused(2000, "criterions.WHERE")),
        (
            "URL_UPDATE",
            json!({"siteId": "news", "state": 1, "criterions": {"ORDER BY": "url"}}),
            Refused(2000, "criterions.WHERE"),
        ),
        counted(many + 2),
        ("URL_STATUS", all("page"), Count(many)),
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
            urls(many, |n| json!({"siteId": "news", "urlMd5": md5_hex(&url(&format!("page/{n}")))})),
            Count(many),
        ),
        ("URL_FETCH", json!({"sitesList": ["news"], "maxURLs": 5000}), Count(many + 2)),
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
        (
            "URL_FETCH",
            json!({"sitesList": ["news"], "sitesCriterions": {"WHERE": "collectedURLs > 3"}, "maxURLs": 3}),
            Count(3),
        ),
        ("URL_FETCH", json!({"sitesList": ["news"], "sitesCriterions": {"WHERE": "collectedURLs < 3"}}), Count(0)),
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
            Statuses(json!([many])),
        ),
        (
            "URL_UPDATE",
            json!({"siteId": "news", "state": 1, "criterions": {"WHERE": "nosuch = 1"}}),
            Refused(2000, "nosuch"),
        ),
        (
            "URL_UPDATE",
            json!({"siteId": "news", "state": 0, "criterions": {"WHERE": "url LIKE '%page/%'"}}),
            Statuses(json!([many])),
        ),
        (
            "URL_UPDATE",
            json!({"siteId": "news", "state": 1, "criterions": {"WHERE": "url LIKE '%page/%'"}}),
            Statuses(json!([many])),
        ),
        ("URL_CLEANUP", by("state = 1 AND url LIKE '%page/1_'"), Statuses(json!([10]))),
        ("URL_CLEANUP", all("page"), All(many, json!(0))),
        ("URL_STATUS", at("page/1"), Has("/0/state", json!(0))),
        ("URL_CLEANUP", by("state = 1 AND url LIKE '%page/%'"), Statuses(json!([0]))),
        ("URL_CLEANUP", json!({"siteId": "news", "url": ROOT, "state": 1}), Refused(2000, "state")),
        ("URL_UPDATE", urls(many, |n| with(at(&format!("page/{n}")), json!({"state": 1}))), All(many, json!(0))),
        (
            "URL_FETCH",
            json!({"sitesList": ["news"], "maxURLs": 5000, "criterions": {"WHERE": "state = 1 AND url LIKE '%page/%'"}}),
            Count(many),
        ),
        ("URL_UPDATE", urls(many, |n| with(at(&format!("page/{n}")), json!({"state": 0}))), All(many, json!(0))),
        ("URL_FETCH", urls(many, |_| json!({"sitesList": ["news"], "maxURLs": 1})), Count(many)),
        ("URL_STATUS", json!({"siteId": "news", "url": ROOT, "urlType": 2}), Refused(2000, "urlType")),
        ("URL_DELETE", json!({"siteId": "news", "url": ROOT, "delayedType": 2}), Refused(2000, "delayedType")),
        ("URL_DELETE", json!({"siteId": "news", "url": ROOT, "state": 1}), Refused(2000, "state")),
        ("URL_CONTENT", urls(many, |n| with(at(&format!("page/{n}")), json!({"contentTypeMask": 1}))), Count(many)),
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
            if many > CONTENTS_MAX { Stopped(2000, "urlFetch", 0) } else { Count(many + 2) },
        ),
        (
            "URL_PUT",
            urls(
                many,
                |n| json!({"siteId": "news", "url": url(&format!("page/{n}")), "contentType": 1, "putDict": {"data": "YmFy"}}),
            ),
            All(many, json!(0)),
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
            (operation, all("page"), Count(many)),
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
        ("SQL_CUSTOM", json!([]), Refused(2000, "object")),
        ("SQL_CUSTOM", json!({"query": urls(100, |_| json!("SELECT id FROM sites"))}), Count(100)),
        ("SQL_CUSTOM", json!({"query": urls(101, |_| json!("SELECT id FROM sites"))}), Refused(2000, "query")),
        ("SQL_CUSTOM", json!({"query": ["SELECT id FROM sites", 7]}), Refused(2000, "query[1]")),
        ("SQL_CUSTOM", json!({"query": "SELECT id FROM sites", "nosuch": 1}), Refused(2000, "nosuch")),
        (
            "SQL_CUSTOM",
            json!({"rid": 1, "dbName": "x", "includeFieldsNames": 0, "query": ["SELECT COUNT(*) FROM urls WHERE siteId = 'nosuch'", "SELECT id, state FROM sites WHERE id = 'news'"]}),
            Is(json!([{"head": ["COUNT(*)"], "rows": [[0]]}, {"head": ["id", "state"], "rows": [["news", 3]]}])),
        ),
        ("SQL_CUSTOM", json!({"query": "SELECT id FROM sites WHERE id = 'nosuch'"}), Has("/rows", json!([]))),
        ("FIELD_RECALCULATE", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("FIELD_RECALCULATE", json!({"nosuch": 1}), Refused(2000, "nosuch")),
        ("FIELD_RECALCULATE", json!([]), Refused(2000, "object")),
        ("URL_AGE", json!({"siteId": "news"}), Is(json!([]))),
        (
            "URL_AGE",
            json!({"siteId": "news", "maxURLs": 40, "urlsCriterions": {"WHERE": "url LIKE '%page/4_' OR url LIKE '%page/5_' OR url LIKE '%page/1_' OR url LIKE '%page/2_'"}}),
            Is(json!([["news", 40]])),
        ),
        // So many, the first ones in that order, and no others.
        (
            "URL_AGE",
            json!({"siteId": "news", "urlsCriterions": {"WHERE": "url LIKE '%page/_'", "ORDER BY": "url DESC", "LIMIT": 3}}),
            Is(json!([["news", 3]])),
        ),
        ("URL_STATUS", urls(10, |n| at(&format!("page/{n}"))), Count(7)),
        ("URL_STATUS", at("page/7"), Is(json!([]))),
        ("URL_AGE", json!({"siteId": "news", "urlsCriterions": {}}), Refused(2000, "criterions.WHERE")),
        // With a URL that ages its attributes go, also if it comes back.
        (
            "URL_NEW",
            json!({"siteId": "news", "url": url("old"), "attributes": [{"name": "age", "value": "x"}]}),
            Statuses(json!([0])),
        ),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "name": "age"}), Count(1)),
        (
            "URL_AGE",
            json!({"siteId": "news", "urlsCriterions": {"WHERE": "url LIKE '%/old'"}}),
            Is(json!([["news", 1]])),
        ),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "name": "age"}), Is(json!([]))),
        ("URL_NEW", at("old"), Statuses(json!([0]))),
        ("URL_FETCH", about("old", json!(["*"])), Has("/0/attributes", json!([]))),
        ("URL_DELETE", at("old"), Statuses(json!([0]))),
        ("URL_NEW", all("aged"), All(many, json!(0))),
        (
            "URL_AGE",
            json!({"siteId": "news", "maxURLs": 5_000, "urlsCriterions": {"WHERE": "url LIKE '%/aged/%'"}}),
            Is(json!([["news", many]])),
        ),
        ("URL_AGE", json!({"siteId": "news", "maxURLs": 10_001}), Refused(2000, "maxURLs")),
        ("URL_AGE", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("URL_AGE", json!([]), Refused(2000, "object")),
        counted(many + 2 - 43),
        ("URL_DELETE", at("more"), Statuses(json!([0]))),
        ("URL_DELETE", at("more"), Refused(2020, "no such URL")),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "name": "colour"}), Is(json!([]))),
        ("URL_DELETE", nowhere.clone(), Refused(2020, "nosuch")),
        ("URL_DELETE", json!({"siteId": "news"}), Refused(2000, "url")),
        ("URL_DELETE", json!({"siteId": "news", "criterions": {"WHERE": "url LIKE 1"}}), Refused(2000, "criterions")),
        ("URL_DELETE", json!([]), Statuses(json!([]))),
        ("URL_DELETE", by("url LIKE '%page/3_'"), Statuses(json!([10]))),
        // Some have aged, some are gone, and of the others each is deleted once.
        ("URL_DELETE", all("page"), Stopped(2020, "no such URL", many - 53)),
        ("URL_DELETE", by("url LIKE '%page/%'"), Statuses(json!([0]))),
        counted(1),
        ("URL_PURGE", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("URL_PURGE", json!({"siteId": "news", "maxURLs": 0}), Refused(2000, "maxURLs")),
        ("URL_PURGE", json!([]), Refused(2000, "object")),
        // Of what would have no meaning to them they say so, instead of doing it to others.
        ("URL_PURGE", json!({"siteId": "news", "urlsCriterions": {"WHERE": "size > 0"}}), Refused(2000, "urlsCriterions")),
        ("FIELD_RECALCULATE", json!({"siteId": "news", "criterions": {}}), Refused(2000, "urlsCriterions")),
        ("FIELD_RECALCULATE", json!({"siteId": "news", "maxURLs": 5}), Refused(2000, "maxURLs")),
    ]);
    // Of some things the node that is down may have more.
    let purged = if whole { Has("/0/0", json!("news")) } else { Partly("", json!([])) };
    rows.push(("URL_PURGE", json!({"siteId": "news", "maxURLs": 10_000}), purged));
    rows.push((
        "FIELD_RECALCULATE",
        json!({"siteId": "news"}),
        if whole { Has("/0/corrected", json!(0)) } else { Partly("/0/corrected", json!(0)) },
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
fn things_beside(many: usize) -> Vec<Row> {
    let attribute = |name: &str| json!({"siteId": "news", "name": name, "value": "x"});
    let proxy = |host: &str| json!({"siteId": "news", "host": host});
    let proxies = |count: usize| urls(count, |n| proxy(&format!("127.0.0.1:{}", n + 1)));
    vec![
        ("ATTRIBUTE_SET", attribute("a"), Statuses(json!([0]))),
        ("ATTRIBUTE_SET", attribute("a"), Statuses(json!([2]))),
        ("ATTRIBUTE_SET", urls(many, |n| attribute(&format!("n{n}"))), All(many, json!(0))),
        ("ATTRIBUTE_SET", json!([]), Statuses(json!([]))),
        ("ATTRIBUTE_SET", json!({"siteId": "news"}), Refused(2000, "name")),
        ("ATTRIBUTE_SET", json!({"siteId": "nosuch", "name": "a"}), Refused(2020, "nosuch")),
        ("ATTRIBUTE_UPDATE", attribute("a"), Statuses(json!([true]))),
        ("ATTRIBUTE_UPDATE", attribute("fresh"), Statuses(json!([true]))),
        ("ATTRIBUTE_UPDATE", urls(many, |n| attribute(&format!("n{n}"))), All(many, json!(true))),
        ("ATTRIBUTE_UPDATE", json!({"siteId": "news", "name": "a", "urlMd5": "x"}), Refused(2000, "urlMd5")),
        ("ATTRIBUTE_UPDATE", json!({"siteId": "nosuch", "name": "a"}), Refused(2020, "nosuch")),
        ("ATTRIBUTE_UPDATE", json!([]), Statuses(json!([]))),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news"}), Count(many + 2)),
        ("ATTRIBUTE_FETCH", urls(many, |n| json!({"siteId": "news", "name": format!("n{n}")})), Count(many)),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "name": "nosuch"}), Is(json!([]))),
        ("ATTRIBUTE_FETCH", json!([]), Is(json!([]))),
        ("ATTRIBUTE_FETCH", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news", "criterions": {"WHERE": "x = 1"}}), Refused(2000, "character")),
        (
            "ATTRIBUTE_DELETE",
            json!({"siteId": "news", "criterions": {"WHERE": "name LIKE 'n1%'"}}),
            Statuses(json!([true])),
        ),
        ("ATTRIBUTE_DELETE", json!({"siteId": "news"}), Refused(2000, "name")),
        ("ATTRIBUTE_DELETE", json!({"siteId": "news", "criterions": {}}), Refused(2000, "criterions.WHERE")),
        (
            "ATTRIBUTE_DELETE",
            urls(many, |n| json!({"siteId": "news", "name": format!("n{n}")})),
            Statuses(urls(many, |n| json!(!n.to_string().starts_with('1')))),
        ),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news"}), Count(2)),
        ("ATTRIBUTE_DELETE", json!({"siteId": "news", "name": "n1"}), Statuses(json!([false]))),
        ("ATTRIBUTE_DELETE", json!({"siteId": "news", "name": "x".repeat(33)}), Refused(2000, "name")),
        ("ATTRIBUTE_DELETE", json!({"siteId": "nosuch", "name": "a"}), Refused(2020, "nosuch")),
        ("ATTRIBUTE_DELETE", json!([]), Statuses(json!([]))),
        ("PROXY_NEW", proxies(PROXIES), All(PROXIES, json!(0))),
        ("PROXY_NEW", proxy("127.0.0.1:1"), Stopped(2020, "already", 0)),
        ("PROXY_NEW", proxies(PROXIES + many), Stopped(2020, "at most 64", 0)),
        ("PROXY_NEW", json!({"siteId": "news", "host": "127.0.0.1:99", "state": 2}), Refused(2000, "state")),
        ("PROXY_NEW", proxy("nonsense"), Refused(2000, "host")),
        ("PROXY_NEW", json!({"siteId": "nosuch", "host": "127.0.0.1:1"}), Refused(2020, "nosuch")),
        ("PROXY_NEW", json!([]), Statuses(json!([]))),
        ("PROXY_UPDATE", json!({"siteId": "news", "host": "127.0.0.1:1", "priority": 9}), Statuses(json!([0]))),
        ("PROXY_UPDATE", proxy("127.0.0.1:99"), Refused(2020, "no proxy")),
        ("PROXY_UPDATE", proxies(PROXIES + many), Stopped(2020, "no proxy", PROXIES)),
        ("PROXY_UPDATE", json!({"siteId": "news", "host": "127.0.0.1:1", "state": 2}), Refused(2000, "state")),
        ("PROXY_UPDATE", json!({"siteId": "news", "host": "127.0.0.1:1", "nosuch": 9}), Refused(2000, "nosuch")),
        ("PROXY_UPDATE", json!({"siteId": "nosuch", "host": "127.0.0.1:1"}), Refused(2020, "nosuch")),
        ("PROXY_UPDATE", json!([]), Statuses(json!([]))),
        ("PROXY_STATUS", proxy("127.0.0.1:1"), Has("/0/priority", json!(9))),
        ("PROXY_STATUS", proxy("127.0.0.1:99"), Is(json!([]))),
        ("PROXY_STATUS", proxies(PROXIES + many), Count(PROXIES)),
        ("PROXY_FIND", proxies(PROXIES + many), Count(PROXIES)),
        ("PROXY_STATUS", json!({"siteId": "nosuch", "host": "127.0.0.1:1"}), Refused(2020, "nosuch")),
        ("PROXY_STATUS", json!({"siteId": "news"}), Refused(2000, "host")),
        ("PROXY_STATUS", json!([]), Is(json!([]))),
        ("PROXY_FIND", json!({"siteId": "news"}), Count(64)),
        ("PROXY_FIND", json!({"siteId": "news", "criterions": {"LIMIT": 3}}), Count(3)),
        ("PROXY_FIND", json!({"siteId": "news", "criterions": {"WHERE": "priority > 99"}}), Is(json!([]))),
        ("PROXY_FIND", json!({"siteId": "news", "criterions": {"WHERE": "x = 1"}}), Refused(2000, "character")),
        ("PROXY_FIND", json!({"siteId": "nosuch"}), Refused(2020, "nosuch")),
        ("PROXY_DELETE", proxies(PROXIES + many), Stopped(2020, "no proxy", PROXIES)),
        ("PROXY_DELETE", proxy("127.0.0.1:99"), Refused(2020, "no proxy")),
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
        ("SITE_CLEANUP", json!({"id": "news", "delayedType": 2}), Refused(2000, "delayedType")),
        ("SITE_CLEANUP", json!({"id": "news", "saveRootUrls": 2}), Refused(2000, "saveRootUrls")),
        ("SITE_CLEANUP", json!([]), Statuses(json!([]))),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news"}), Is(json!([]))),
        ("URL_FETCH", json!({"sitesList": ["news"]}), Count(1)),
        ("SITE_CLEANUP", json!({"id": "news", "state": 3, "saveRootUrls": 0, "moveURLs": 0}), Statuses(json!([0]))),
        ("URL_FETCH", json!({"sitesList": ["news"]}), Count(0)),
        ("SITE_DELETE", json!({"id": "news"}), Statuses(json!([0]))),
        // What happens to URLs is told of a site that has it written down.
        (
            "SITE_NEW",
            json!({"id": "logged", "urls": [ROOT], "state": 3, "properties": [{"name": "STATS_LOG_ENABLED", "value": 1}]}),
            Statuses(json!(["logged"])),
        ),
        ("URL_NEW", json!({"siteId": "logged", "url": url("x")}), Statuses(json!([0]))),
        ("URL_UPDATE", json!({"siteId": "logged", "url": url("x"), "state": 1}), Statuses(json!([0]))),
        ("URL_HISTORY", json!({"siteId": "logged", "url": url("x")}), Has("/0/logRows/1/opCode", json!(20))),
        ("URL_STATS", json!({"siteId": "logged", "url": url("x")}), Has("/0/freqRows/FIns", json!(1))),
        ("SITE_DELETE", json!({"id": "logged"}), Statuses(json!([0]))),
        // Sites of origins that nobody knew are made for the URLs that need them, two for each.
        (
            "URL_NEW",
            urls(2 * ORIGINS, |n| json!({"url": format!("http://127.1.0.{}:1/{n}", n / 2 + 1), "siteSelect": 1})),
            All(2 * ORIGINS, json!(0)),
        ),
        ("SITE_FIND", json!({"url": "http://127.1.0.", "criterions": {"LIMIT": 1_000}}), Count(ORIGINS)),
        (
            "SITE_DELETE",
            urls(ORIGINS, |n| json!({"id": md5_hex(&format!("http://127.1.0.{}:1/", n + 1))})),
            All(ORIGINS, json!(0)),
        ),
    ]
}

fn run_through(asks: &Asks, ctl: &Asks, many: usize, whole: bool, server: &RawServer) {
    let (mut asked, mut failures) = (BTreeSet::new(), Vec::new());
    let table = || sites(many).into_iter().chain(urls_of_sites(many, whole)).chain(things_beside(many));
    for row in table() {
        failures.extend(wrong(asks, &row));
        asked.insert(row.0);
    }
    assert!(failures.is_empty(), "{} rows are wrong:\n{}", failures.len(), failures.join("\n"));
    let all: BTreeSet<&str> = Operation::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(asked, all, "every operation has its rows");
    each_site_gives_its_share(asks);
    lists_and_restart_by_ctl(asks, ctl);
    what_is_wrong_changes_nothing(asks, table().filter(|(_, _, expected)| matches!(expected, Refused(2000 | 2020, _))));

    // A batch is crawled and answered in the call, whoever holds the slot of its host.
    let live = json!({"id": "live", "urls": [server.url("/")], "requestDelay": 20, "moveURLs": false});
    check(asks, &("SITE_NEW", live, Statuses(json!(["live"]))));
    let batch = json!({"id": 5, "items": [{"siteId": "live", "urlObj": {"url": server.url("/now")}}]});
    wait_until("a batch is crawled in the call", || {
        let (_, answer) = dc_by(asks, "BATCH", &batch);
        let item = &answer["itemsList"][0]["itemObject"]["items"][0];
        item["urlObj"]["status"] == 7 && item["urlContentResponse"]["rawContents"][0]["buffer"].is_string()
    });
    check(asks, &("SITE_DELETE", json!({"id": "live"}), Statuses(json!([0]))));
}

/// Sites give as many URLs as the others, as far as they have them, and take turns where there are more of them than URLs are wanted.
fn each_site_gives_its_share(asks: &Asks) {
    let ids = ["few", "more", "most"];
    for (id, count) in ids.into_iter().zip([3, 30, 40]) {
        check(
            asks,
            &("SITE_NEW", json!({"id": id, "urls": [ROOT], "moveURLs": false, "state": 3}), Statuses(json!([id]))),
        );
        let new = urls(count, |n| json!({"siteId": id, "url": url(&n.to_string())}));
        check(asks, &("URL_NEW", new, All(count, json!(0))));
    }
    let given = |wanted: usize, condition: &str| {
        let body = json!({"sitesList": ids, "algorithm": 1, "maxURLs": wanted, "criterions": {"WHERE": condition}});
        let (_, answer) = dc_by(asks, "URL_FETCH", &body);
        let urls = answer["itemsList"][0]["itemObject"].as_array().cloned().unwrap_or_default();
        ids.map(|id| urls.iter().filter(|url| url["siteId"] == id).count())
    };
    for condition in ["", "url LIKE '%/_'"] {
        let [few, more, most] = given(20, condition);
        assert_eq!((few, more + most, more.abs_diff(most)), (3, 17, 1), "who has fewer gives all, the others fill up");
    }
    assert_eq!(given(100, ""), [3, 30, 40]);
    let turns = [given(1, ""), given(1, ""), given(1, "")];
    let sums = [0, 1, 2].map(|at| turns.iter().map(|turn| turn[at]).sum::<usize>());
    assert_eq!(sums, [1, 1, 1], "each has its turn");
    assert_eq!(given(2, "url LIKE '%/3_'"), [0, 0, 2], "who has none is passed over");
    for id in ids {
        check(asks, &("SITE_DELETE", json!({"id": id}), Statuses(json!([0]))));
    }
}

/// What `ctl site update` makes of the lists of a site, and that it begins again.
fn lists_and_restart_by_ctl(asks: &Asks, ctl: &Asks) {
    let properties = json!([{"name": "X", "value": 1}, {"name": "Y", "value": 2}]);
    let new =
        json!({"id": "listed", "urls": [ROOT], "state": 3, "properties": properties, "filters": [{"pattern": "a"}]});
    check(asks, &("SITE_NEW", new, Statuses(json!(["listed"]))));
    let told = || dc_by(asks, "SITE_STATUS", &json!({"id": "listed"})).1["itemsList"][0]["itemObject"].clone();
    let lists = || {
        let (told, text) = (told(), |value: &Value| value.as_str().unwrap_or_default().to_owned());
        let of = |list: &str, one: &dyn Fn(&Value) -> String| {
            told[list].as_array().into_iter().flatten().map(one).collect::<Vec<String>>().join(" ")
        };
        let filter =
            |filter: &Value| format!("{}{}", if filter["type"] == 1 { "+" } else { "-" }, text(&filter["pattern"]));
        let property = |property: &Value| format!("{}={}", text(&property["name"]), text(&property["value"]));
        format!("{}, {}, {}", of("urls", &|url| text(&url["url"])), of("filters", &filter), of("properties", &property))
    };
    let (one, two) = (url("one"), url("two"));
    // How it is called, how it ends, a word that it says then, and the lists from then on.
    let table: [(&[&str], i32, &str, String); 12] = [
        (&["--property", "X=3", "--property", "Z=4"], 0, "changed", format!("{ROOT}, +a, X=3 Y=2 Z=4")),
        (&["--lists", "append", "--url", &one], 0, "changed", format!("{ROOT} {one}, +a, X=3 Y=2 Z=4")),
        (&["--lists", "append", "--url", &one], 0, "changed", format!("{ROOT} {one}, +a, X=3 Y=2 Z=4")),
        (
            &["--lists", "update", "--property", "Y=5", "--property", "N=6", "--exclude", "a", "--exclude", "b"],
            0,
            "changed",
            format!("{ROOT} {one}, -a, X=3 Y=5 Z=4"),
        ),
        (&["--lists", "update", "--url", &two], 0, "changed", format!("{ROOT} {one}, -a, X=3 Y=5 Z=4")),
        (&["--lists", "overwrite", "--property", "X=7"], 0, "changed", format!("{ROOT} {one}, -a, X=7")),
        (&["--overwrite", "--url", &two, "--include", "c"], 0, "changed", format!("{two}, +c, X=7")),
        (&["--lists", "some", "--url", &one], 2, "append", format!("{two}, +c, X=7")),
        (&["--lists", "append", "--overwrite", "--url", &one], 2, "cannot be used with", format!("{two}, +c, X=7")),
        (&["--lists", "overwrite", "--property", "X"], 2, "NAME=VALUE", format!("{two}, +c, X=7")),
        (&["--lists", "overwrite", "--url", "nonsense"], 1, "urls", format!("{two}, +c, X=7")),
        (&["--lists", "overwrite", "--include", "("], 1, "filters[0].pattern", format!("{two}, +c, X=7")),
    ];
    for (arguments, code, word, expected) in table {
        let ended = ctl(&[&["site", "update", "listed"], arguments].concat());
        let said = if code == 0 { &ended.stdout } else { &ended.stderr };
        assert!(ended.code == Some(code) && said.contains(word), "{arguments:?}\n{ended}");
        assert_eq!(lists(), expected, "{arguments:?}");
    }
    assert_eq!((&told()["state"], &told()["iterations"]), (&json!(3), &json!(0)));
    // As long as a slot is nobody's it cannot be said which errors are over, and nothing is changed.
    wait_until("the site begins again", || ctl(&["site", "update", "listed", "--restart"]).code == Some(0));
    assert_eq!((&told()["state"], &told()["iterations"]), (&json!(1), &json!(1)), "{}", told());
    let nobody = ctl(&["site", "update", "nosuch", "--restart"]);
    assert!(nobody.code == Some(1) && nobody.stderr.contains("nosuch"), "{nobody}");
    check(asks, &("SITE_DELETE", json!({"id": "listed"}), Statuses(json!([0]))));
}

/// Every request of the table that is refused, whatever the site has, leaves everything as it is.
fn what_is_wrong_changes_nothing(asks: &Asks, bad: impl Iterator<Item = Row>) {
    let attribute = json!({"siteId": "news", "name": "kept", "value": "x"});
    let content = json!({"siteId": "news", "url": url("page/0"), "contentType": 1, "putDict": {"data": "Zm9v"}});
    for row in [
        ("SITE_NEW", json!({"id": "news", "urls": [ROOT], "state": 3, "maxErrors": 4}), Statuses(json!(["news"]))),
        ("URL_NEW", urls(9, |n| json!({"siteId": "news", "url": url(&format!("page/{n}"))})), All(9, json!(0))),
        ("URL_UPDATE", json!({"siteId": "news", "url": url("page/1"), "state": 1}), Statuses(json!([0]))),
        ("ATTRIBUTE_SET", attribute, Statuses(json!([0]))),
        ("PROXY_NEW", json!({"siteId": "news", "host": "127.0.0.1:1", "priority": 3}), Statuses(json!([0]))),
        ("URL_PUT", content, Statuses(json!([0]))),
    ] {
        check(asks, &row);
    }
    let counted = ["resources", "contents", "collectedURLs", "newURLs", "errors", "size"]; // they come a moment later
    let looks = [
        ("SITE_FIND", json!({"criterions": {"ORDER BY": "id", "LIMIT": 1000}, "excludeList": counted})),
        (
            "SQL_CUSTOM",
            json!({"query": "SELECT siteId, url, status, state, priority, round, depth, errorMask FROM urls ORDER BY url LIMIT 1000"}),
        ),
        ("ATTRIBUTE_FETCH", json!({"siteId": "news"})),
        ("PROXY_FIND", json!({"siteId": "news"})),
        ("URL_CONTENT", json!({"siteId": "news", "url": url("page/0"), "contentTypeMask": 1})),
    ];
    let look = || {
        let told =
            looks.iter().map(|(operation, body)| dc_by(asks, operation, body).1["itemsList"][0]["itemObject"].clone());
        told.collect::<Vec<Value>>()
    };
    let before = look();
    assert!(before[1]["rows"].as_array().is_some_and(|rows| rows.len() == 10), "{}", before[1]);
    assert_eq!(before[4][0]["processedContents"][0]["buffer"], "Zm9v");
    let (mut refused, mut failures) = (BTreeSet::new(), Vec::new());
    for row in bad {
        failures.extend(wrong(asks, &row));
        refused.insert(row.0);
    }
    assert!(failures.is_empty(), "{} bad requests are not refused again:\n{}", failures.len(), failures.join("\n"));
    let all: BTreeSet<&str> = Operation::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(refused, all, "every operation was asked for something that is wrong");
    for ((operation, _), (before, after)) in looks.iter().zip(before.iter().zip(look())) {
        assert_eq!(*before, after, "what is wrong changes nothing that {operation} tells");
    }
    check(asks, &("SITE_DELETE", json!({"id": "news"}), Statuses(json!([0]))));
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
    let asks = |arguments: &[&str]| run(&[&["dc", "--data", &data], &PATIENT[..], arguments].concat());
    let ctl = |arguments: &[&str]| run(&[&["ctl", "--data", &data], arguments].concat());
    run_through(&asks, &ctl, MANY, true, &server());
    drop(node);
}

#[test]
fn every_operation_through_each_of_three_nodes_while_another_is_down() {
    let work = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(work.path(), 3, "");
    let server = server();
    for through in 0..3 {
        let down = (through + 1) % 3;
        wait_until("all nodes are there and all slots are held", || alive(&fleet, 3) && fleet.totals().0 == 4_096);
        fleet.kill_node(down);
        wait_until("the others hold its slots", || alive(&fleet, 2) && fleet.totals().0 == 4_096);
        let asks = |arguments: &[&str]| fleet.through(through, "dc", &[&PATIENT[..], arguments].concat());
        let ctl = |arguments: &[&str]| fleet.through(through, "ctl", arguments);
        run_through(&asks, &ctl, if through == 0 { MANY } else { SEVERAL }, false, &server);
        fleet.start_node(down);
    }
}

/// Whether so many nodes answer, and each of them knows of just those.
fn alive(fleet: &Fleet, count: usize) -> bool {
    let told = fleet.ask(&["nodes"]);
    let nodes: Vec<&Value> = told["Nodes"].as_array().into_iter().flatten().collect();
    let reports: Vec<&Value> =
        nodes.iter().map(|node| &node["report"]["Ok"]).filter(|report| report.is_object()).collect();
    reports.len() == count && reports.iter().all(|report| report["alive"] == count)
}
