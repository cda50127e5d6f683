//! Sites as they are read, changed and made into crawls.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use crate::crawl::crawls::Crawls;
use crate::crawl::filter::{Filter, FilterRules};
use crate::id::NodeId;
use crate::query::{Condition, SITE_FIELDS, Source};
use crate::url::{CanonicalUrl, UrlRules};

fn site(fields: serde_json::Value) -> Site {
    Site::read(fields.clone()).unwrap_or_else(|error| panic!("{fields}: {error}"))
}

fn wrong(fields: serde_json::Value) -> String {
    Site::read(fields.clone()).expect_err(&fields.to_string()).to_string()
}

fn admits(definition: &SiteDefinition, url: &str, depth: u16) -> bool {
    let (filter, _) = definition.crawl().prepare(&FilterRules::default(), &UrlRules::default()).unwrap();
    filter.admits(&CanonicalUrl::parse(url, &UrlRules::default()).unwrap(), depth).is_ok()
}

#[test]
fn a_site_has_the_names_and_defaults_of_the_original() {
    let plain = site(json!({"urls": ["http://example.com/"], "description": null}));
    assert_eq!(plain.id, "a6bf1757fff057f266b697df9cf176fd", "the MD5 of its first root URL");
    let told = serde_json::to_value(&plain).unwrap();
    for (name, value) in [
        ("state", json!(1)),
        ("priority", json!(100)),
        ("maxURLs", json!(0)),
        ("requestDelay", json!(500)),
        ("httpTimeout", json!(30_000)),
        ("fetchType", json!(1)),
        ("recrawlDate", json!(null)),
        ("moveURLs", json!(true)),
        ("collectedURLs", json!(0)),
        ("urls", json!([{"url": "http://example.com/"}])),
    ] {
        assert_eq!(told[name], value, "{name}");
    }
    assert_eq!(Site::read(told).unwrap(), plain, "what is told can be handed in again");
}

#[test]
fn every_field_that_queries_name_has_a_value_of_its_kind() {
    let date = "2026-11-17 02:00:00";
    let mut dated =
        site(json!({"urls": ["http://example.com/"], "recrawlDate": date, "tcDate": date, "httpTimeout": 7}));
    (dated.c_date, dated.u_date) = (Some(date.to_owned()), Some(date.to_owned()));
    for (name, kind) in SITE_FIELDS {
        assert_eq!(dated.value(name).kind(), *kind, "{name}");
    }
    let query = "httpTimeout < 10 AND maxResourceSize = 0 AND recrawlDate < '2027-01-01' AND fetchType = 1";
    assert!(Condition::parse(Source::Sites, query).unwrap().admits(&dated, 0));
}

#[test]
fn what_is_wrong_is_said_with_its_field() {
    for (fields, field) in [
        (json!({}), "urls"),
        (json!([]), "object"),
        (json!({"id": "a~b"}), "id"),
        (json!({"id": "x".repeat(65)}), "id"),
        (json!({"id": "a", "nosuch": 1}), "nosuch"),
        (json!({"id": "a", "priority": "high"}), "priority"),
        (json!({"id": "a", "maxURLs": -1}), "maxURLs"),
        (json!({"id": "a", "state": 6}), "state"),
        (json!({"id": "a", "fetchType": 2}), "fetchType"),
        (json!({"id": "a", "description": "x".repeat(65)}), "description"),
        (json!({"id": "a", "urls": [7]}), "urls"),
        (json!({"id": "a", "recrawlDate": "soon"}), "recrawlDate"),
        (json!({"id": "a", "filters": [{"pattern": "("}]}), "filters[0].pattern"),
        (json!({"id": "a", "filters": [{"pattern": "x"}, {"pattern": "x", "stage": 9}]}), "filters[1].stage"),
        (json!({"id": "a", "filters": [{"pattern": "%@YEAR(9)%"}]}), "filters[0].pattern"),
        (json!({"id": "a", "filters": [{"pattern": "%@MINUTE(+9)%"}]}), "filters[0].pattern"),
        (json!({"id": "a", "filters": [{"pattern": "pDate > '%@YEAR(+9)%-01-01'", "opCode": 7, "stage": 4}]}), "NOW()"),
        (json!({"id": "a", "filters": [{"pattern": "x", "stage": 6, "subject": "url"}]}), "filters[0].subject"),
        (json!({"id": "a", "filters": [{"pattern": "x", "mode": 1}]}), "filters[0].mode"),
        (json!({"id": "a", "filters": [{"pattern": "x", "opCode": 7}]}), "filters[0].opCode"),
        (json!({"id": "a", "filters": [{"pattern": "x", "state": 2}]}), "filters[0].state"),
        (json!({"id": "a", "urlType": 2}), "urlType"),
        (json!({"id": "a", "moveURLs": 7}), "moveURLs"),
        (json!({"id": "a", "cDate": "today"}), "cDate"),
        (json!({"id": "a", "tcDate": "today"}), "tcDate"),
        (json!({"id": "a", "proxies": [{"host": "p:1", "state": 3}]}), "state"),
        (json!({"id": "a", "properties": [{"value": "x"}]}), "properties[0].name"),
        (json!({"id": "a", "properties": [{"name": "x", "value": "v".repeat(8_193)}]}), "properties[0].value"),
    ] {
        let said = wrong(fields.clone());
        assert!(said.contains(field), "{fields}: {said}");
    }
}

#[test]
fn without_a_filter_that_includes_it_takes_its_own_hosts() {
    let own = SiteDefinition::new(site(
        json!({"urls": ["http://example.com/a/"], "filters": [{"pattern": "/private", "type": 0}]}),
    ));
    assert!(admits(&own, "http://example.com/b", 1));
    assert!(!admits(&own, "http://example.com/private/x", 1) && !admits(&own, "http://other.com/", 1));
    let wide = SiteDefinition::new(site(json!({
        "urls": ["http://example.com/"],
        "filters": [{"pattern": "\\.org/\r\n\\.net/"}, {"pattern": "http://bad.org/", "opCode": 2}, {"pattern": "off", "state": 0}],
    })));
    assert!(admits(&wide, "http://a.org/", 1) && admits(&wide, "http://b.net/", 1));
    assert!(admits(&wide, "http://example.com/", 0), "a root URL is wanted");
    assert!(!admits(&wide, "http://example.com/x", 1) && !admits(&wide, "http://bad.org/", 1));
}

#[test]
fn filters_with_times_are_other_rules_every_hour() {
    let fields = json!({"id": "a", "urls": ["http://example.com/"], "filters": [
        {"pattern": "example.com/%@YEAR(+1)%/%@MONTH(+1)%/%@DAY(+1)%/"}, {"pattern": "/none", "type": 0}]});
    let timed = SiteDefinition::new(site(fields));
    assert!(timed.has_times());
    let body = Some(timed.encode().unwrap());
    let key = DefinitionKey { kind: DefinitionKind::Site, name: "a".into() };
    let version = Version { number: 1, node: NodeId(1), boot: 1 };
    let filter = Arc::new(Filter::new(FilterRules::default(), &[]).unwrap());
    let at = |text: &str| crate::date::parse(text).unwrap();
    let evening = Crawls::of_cluster(filter, "own", UrlRules::default()).at(at("2026-11-18 22:59:59")).unwrap();
    let evening = evening.with(&[Definition { key, version, body }]);
    let takes = |crawls: &Crawls, day: &str| {
        let url = CanonicalUrl::parse(&format!("http://example.com/2026/11/{day}/x"), &UrlRules::default()).unwrap();
        crawls.filter("a").unwrap().admits(&url, 1).is_ok()
    };
    assert!(takes(&evening, "18") && !takes(&evening, "19"));
    assert!(evening.at(at("2026-11-18 22:00:00")).is_none(), "the same hour");
    let later = evening.at(at("2026-11-18 23:00:00")).unwrap();
    assert!(takes(&later, "19") && !takes(&later, "18"));
    assert!(!SiteDefinition::new(site(json!({"urls": ["http://a.example/"]}))).has_times());
}

#[test]
fn history_goes_with_the_urls_of_a_site_and_whoever_wants_it_kept_hears_that() {
    let cleanup = |history: serde_json::Value| SiteCleanup::read(json!({"id": "a", "historyCleanUp": history}));
    let logging = json!({"id": "a", "properties": [{"name": "STATS_LOG_ENABLED", "value": 1}]});
    let (logged, silent) = (SiteDefinition::new(site(logging)), SiteDefinition::new(site(json!({"id": "a"}))));
    for (history, possible) in [(json!(0), false), (json!(1), false), (json!(2), true), (json!(null), true)] {
        let request = cleanup(history.clone()).unwrap();
        assert_eq!(request.possible_for(&logged).is_ok(), possible, "{history}");
        assert_eq!(request.possible_for(&silent), Ok(()), "there is nothing to keep");
    }
    let bad = cleanup(json!(0)).unwrap().possible_for(&logged).unwrap_err().to_string();
    assert!(bad.contains("historyCleanUp") && bad.contains("URL_HISTORY"), "{bad}");
    assert!(cleanup(json!(3)).unwrap_err().to_string().contains("historyCleanUp"));
}

#[test]
fn filters_of_redirects_look_at_redirects_alone() {
    let of = |filters: serde_json::Value| {
        let site = site(json!({"id": "a", "urls": ["http://a.example/"], "filters": filters}));
        (RedirectFilters::of_site(&site), SiteDefinition::new(site))
    };
    let one = |pattern: &str, action: i8, op_code: u8| json!({"pattern": pattern, "stage": 8, "action": action, "opCode": op_code});
    let (redirects, definition) = of(json!([one("/moved/", 1, 0), one("/login", -1, 0)]));
    let leads = |url: &str| redirects.pass(url, 0);
    assert!(leads("http://a.example/moved/x") && !leads("http://a.example/x"), "one that includes must match");
    assert!(!leads("http://a.example/moved/login"), "none that excludes may");
    assert!(admits(&definition, "http://a.example/login", 1), "a link is no redirect");
    assert!(!admits(&definition, "http://b.example/moved/", 1), "the site still takes its own hosts");
    let (redirects, _) = of(json!([one("http://a.example/x", 1, 2)]));
    assert!(!redirects.pass("http://a.example/x", 0) && redirects.pass("http://a.example/xy", 0), "what is different");
    let (redirects, _) = of(json!([one("/%@YEAR(+0)%/", 1, 0)]));
    assert!(redirects.pass("http://a.example/1970/", 0) && !redirects.pass("http://a.example/1971/", 0));
    let mut off = one("/login", -1, 0);
    off["state"] = json!(0);
    assert!(of(json!([off])).0.pass("http://a.example/login", 0), "one that is switched off");
}

#[test]
fn protocols_are_left_out_by_filters_and_by_the_property() {
    let links = |more: serde_json::Value| {
        let mut fields = json!({"urls": ["http://example.com/"], "filters": [{"pattern": "example"}]});
        fields["filters"].as_array_mut().unwrap().extend(more["filters"].as_array().into_iter().flatten().cloned());
        fields["properties"] = more["properties"].as_array().map(|list| json!(list)).unwrap_or(json!([]));
        let definition = SiteDefinition::new(site(fields));
        (admits(&definition, "http://example.com/x", 1), admits(&definition, "https://example.com/x", 1))
    };
    let stage = |pattern: &str, action: i8, op_code: u8| json!({"filters": [{"pattern": pattern, "stage": 6, "action": action, "opCode": op_code}]});
    assert_eq!(links(json!({})), (true, true));
    assert_eq!(links(stage("https", 1, 0)), (false, true));
    assert_eq!(links(stage("^http$", -1, 0)), (false, true));
    assert_eq!(links(stage("HTTP", 1, 1)), (true, false));
    assert_eq!(links(stage("http", 1, 2)), (false, true), "what is different");
    assert_eq!(links(json!({"properties": [{"name": "PROTOCOLS", "value": "https|ftp"}]})), (false, true));
    assert_eq!(links(json!({"properties": [{"name": "PROTOCOLS", "value": "http, HTTPS"}]})), (true, true));
}

#[test]
fn it_is_a_crawl_with_its_limits_and_state() {
    let crawl = |fields: serde_json::Value| SiteDefinition::new(site(fields)).crawl();
    let made = crawl(json!({"id": "a", "maxResources": 10, "requestDelay": 2_000, "recrawlPeriod": 5, "urlType": 1}));
    assert_eq!((made.name.as_str(), made.pages_max, made.delay_ms), ("a", Some(10), Some(2_000)));
    assert_eq!((made.recrawl_period_s, made.depth_max, made.state), (Some(300), Some(0), CrawlState::Running));
    assert_eq!(crawl(json!({"id": "a", "state": 2})).state, CrawlState::Stopped);
    assert_eq!(crawl(json!({"id": "a", "state": 3})).state, CrawlState::Paused);
    let processes_only = json!({"id": "a", "properties": [{"name": "MODES_FLAG", "value": 2}]});
    assert_eq!(crawl(processes_only).state, CrawlState::Paused);
    let emptied = SiteDefinition { epoch: 2, ..SiteDefinition::new(site(json!({"id": "a"}))) };
    assert_eq!(emptied.crawl().name, "a~2");
    let general = SiteDefinition::new(Site::general().checked().unwrap());
    assert!(admits(&general, "https://anything.example/x", 0) && !admits(&general, "https://anything.example/x", 1));
}

#[test]
fn an_update_changes_what_it_names() {
    let known = SiteDefinition::new(site(json!({
        "id": "a", "urls": ["http://a.example/"], "priority": 7,
        "properties": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
    })));
    let update = |fields: serde_json::Value| SiteUpdate::read(fields).and_then(|update| update.apply(&known, 1_000));
    let after = update(
        json!({"id": "a", "maxErrors": 3, "description": null, "properties": [{"name": "Y", "value": "3"}, {"name": "Z", "value": "4"}]}),
    );
    let after = after.unwrap().site;
    assert_eq!((after.max_errors, after.priority, after.u_date.as_deref()), (3, 7, Some("1970-01-01 00:00:01")));
    let values = |site: &Site| ["X", "Y", "Z"].map(|name| site.property(name).unwrap_or("-").to_owned()).join("");
    assert_eq!(values(&after), "134");
    let list = json!([{"name": "Y", "value": "3"}, {"name": "Z", "value": "4"}]);
    assert_eq!(values(&update(json!({"id": "a", "updateType": 1, "properties": list})).unwrap().site), "-34");
    assert_eq!(values(&update(json!({"id": "a", "updateType": 2, "properties": list})).unwrap().site), "13-");
    let filter = |stage: u8, kind: u8| json!({"id": "a", "filters": [{"pattern": "x", "stage": stage, "type": kind}]});
    let one = update(filter(0, 1)).unwrap();
    let again = |body: serde_json::Value| SiteUpdate::read(body).unwrap().apply(&one, 1_000).unwrap().site.filters;
    assert_eq!((again(filter(0, 0)).len(), again(filter(7, 1)).len()), (1, 2), "of another stage it is another one");
    let roots =
        update(json!({"id": "a", "urls": ["http://b.example/", {"url": "http://a.example/"}]})).unwrap().site.urls;
    assert_eq!(roots.len(), 2, "a root URL that is there is not added again");
    let restarted = update(json!({"id": "a", "state": 6})).unwrap().site;
    assert_eq!((restarted.state, restarted.iterations, restarted.restarted.unix_ms), (state::ACTIVE, 1, 1_000));
    let date = |text: &str| update(json!({"id": "a", "tcDate": text})).map(|after| after.site.tc_date.unwrap());
    assert_eq!(date("2026-11-17 02:00:00").unwrap(), "2026-11-17 02:00:00");
    assert_eq!(date("now()").unwrap(), "1970-01-01 00:00:01");
    for (fields, field) in [
        (json!({"priority": 1}), "id"),
        (json!({"id": "a", "errors": 0}), "errors"),
        (json!({"id": "a", "errorMask": 0}), "errorMask"),
        (json!({"id": "a", "iterations": 0}), "iterations"),
        (json!({"id": "a", "cDate": "2026-11-17 02:00:00"}), "cDate"),
        (json!({"id": "a", "uDate": "2026-11-17 02:00:00"}), "uDate"),
        (json!({"id": "a", "restarted": {"errors": 9}}), "restarted"),
        (json!({"id": "a", "tcDate": "soon"}), "tcDate"),
        (json!({"id": "a", "updateType": 9}), "updateType"),
        (json!({"id": "a", "urls": "x"}), "urls"),
        (json!({"id": "a", "state": 4}), "state"),
        (json!({"id": "a", "nosuch": 4}), "nosuch"),
    ] {
        assert!(update(fields.clone()).unwrap_err().to_string().contains(field), "{fields}");
    }
}

#[test]
fn it_survives_its_encoding() {
    let whole = SiteDefinition {
        epoch: 3,
        deleted: true,
        site: site(json!({"urls": ["http://a.example/"], "filters": [{"pattern": "x"}]})),
    };
    assert_eq!(SiteDefinition::decode(&whole.encode().unwrap()), Some(whole));
    assert_eq!(SiteDefinition::decode(b"rubbish"), None);
}

#[test]
fn criterions_may_be_written_in_several_ways() {
    let query = |limit: serde_json::Value| {
        let find = SiteFind::read(json!({"criterions": {"WHERE": "state = 1", "ORDER BY": "id DESC", "LIMIT": limit}}))
            .unwrap();
        find.criterions.unwrap().query(Source::Sites).map(|query| (query.offset, query.limit))
    };
    assert_eq!(query(json!(null)).unwrap(), (0, 20));
    for limit in [json!("5, 10"), json!([5, 10])] {
        assert_eq!(query(limit).unwrap(), (5, 10));
    }
    assert_eq!(query(json!("10")).unwrap(), (0, 10));
    for limit in [json!("x"), json!(-1), json!([1, 2, 3]), json!("1,y"), json!({})] {
        assert!(query(limit).unwrap_err().to_string().contains("LIMIT"));
    }
}

#[test]
fn properties_of_its_life_are_checked_before_it_is_kept() {
    let with = |list: &[(&str, &str)]| {
        let list: Vec<_> = list.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        Site::read(json!({"id": "a", "properties": list}))
    };
    for (name, value) in [
        ("MODES_FLAG", "crawl"),
        ("MODES_FLAG", "-1"),
        ("RECRAWL_PERIOD_MODE", "2"),
        ("RECRAWL_PERIOD_STEP", "0"),
        ("RECRAWL_PERIOD_MIN", "0"),
        ("RECRAWL_PERIOD_MIN", "1441"),
        ("RECRAWL_PERIOD_MAX", "14"),
        ("RECRAWL_PERIOD_MAX", "a day"),
        ("RECRAWL_DELETE", "yes"),
        ("AUTO_REMOVE_RESOURCES", "some"),
        ("AUTO_REMOVE_RESOURCES_ORDER", "nosuch DESC"),
        ("UPDATE_NOT_INSERT_ROOT_URLS", "no"),
    ] {
        let said = with(&[(name, value)]).unwrap_err().to_string();
        assert!(said.contains(name), "{said}");
    }
    let good = [
        ("MODES_FLAG", "9"),
        ("RECRAWL_PERIOD_MODE", "1"),
        ("RECRAWL_PERIOD_MIN", "60"),
        ("RECRAWL_PERIOD_MAX", "60"),
        ("AUTO_REMOVE_RESOURCES", "4"),
        ("AUTO_REMOVE_RESOURCES_ORDER", "size DESC"),
        ("RECRAWL_DELETE", ""),
    ];
    with(&good).unwrap();
}

#[test]
fn errors_from_before_a_restart_count_no_more() {
    let known = SiteDefinition::new(site(json!({"id": "a", "maxErrors": 5, "maxResources": 9, "state": 3})));
    let update = SiteUpdate::read(json!({"id": "a", "state": 6})).unwrap();
    let mut restarted = update.apply(&known, 1_000).unwrap();
    restarted.site.restarted.errors = 5;
    let restarted = SiteDefinition::decode(&restarted.encode().unwrap()).unwrap();
    let come = |errors: u64| life::Come { errors, ..life::Come::default() };
    assert!(life::duties(&restarted, come(9), 2_000).is_empty(), "four since");
    assert_eq!(life::duties(&restarted, come(10), 2_000).len(), 1, "five since");
    let filter = Arc::new(Filter::new(FilterRules::default(), &[]).unwrap());
    let body = Some(restarted.encode().unwrap());
    let key = DefinitionKey { kind: DefinitionKind::Site, name: "a".into() };
    let definition = Definition { key, version: Version { number: 1, node: NodeId(1), boot: 1 }, body };
    let crawls = Crawls::of_cluster(filter, "own", UrlRules::default()).with(&[definition]);
    let limits = crawls.get("a").unwrap().limits();
    assert_eq!(
        (limits.errors, limits.pages),
        (Some(10), Some(9)),
        "what nodes share out is counted from the beginning"
    );
    assert!(restarted.site.never_crawled().restarted.is_never());
}

proptest! {
    #[test]
    fn no_json_makes_the_readers_panic(text in "\\PC{0,64}", number in any::<i64>()) {
        for body in [json!(text), json!({"id": text, "urls": [text], "priority": number}), json!([number]), json!({"criterions": {"WHERE": text, "LIMIT": text}})] {
            let _ = Site::read(body.clone());
            let _ = SiteUpdate::read(body.clone());
            let _ = SiteFind::read(body.clone()).map(|find| find.criterions.map(|criterions| criterions.query(Source::Sites)));
            let _ = SiteDelete::read(body.clone());
            let _ = SiteCleanup::read(body.clone());
            let _ = SiteStatus::read(body);
        }
    }
}

#[test]
fn every_request_that_has_a_value_of_the_wrong_kind_names_its_field() {
    let said = |bad: BadRequest| (bad.field.clone(), bad.to_string());
    let (field, text) = said(SiteStatus::read(json!({"id": "a", "measure": "x"})).unwrap_err());
    assert!(field == "measure" && text.starts_with("measure: "), "{text}");
    assert_eq!(said(SiteStatus::read(json!({"id": 5, "measure": "x"})).unwrap_err()).0, "id", "the first of two");
    assert!(said(SiteStatus::read(json!({"measure": 1})).unwrap_err()).1.contains("id"), "one that is missing");
    assert_eq!(said(SiteStatus::read(json!({"id": "a", "nosuch": 1})).unwrap_err()).0, "nosuch");
    assert_eq!(said(UrlFetch::read(json!({"sitesList": "a"})).unwrap_err()).0, "sitesList");
    assert_eq!(said(UrlFetch::read(json!({"algorithm": 1, "maxURLs": -4})).unwrap_err()).0, "maxURLs");
    assert_eq!(said(UrlNew::read(json!({"url": "http://a.example/", "priority": "high"})).unwrap_err()).0, "priority");
    assert_eq!(said(UrlOrder::read(json!({"siteId": "a", "url": 7})).unwrap_err()).0, "url");
    assert_eq!(said(SiteFind::read(json!({"url": "", "criterions": 3})).unwrap_err()).0, "criterions");
    assert_eq!(said(SiteFind::read(json!({"excludeList": ["urls", "nosuch"]})).unwrap_err()).0, "excludeList");
    assert_eq!(said(SiteStatus::read(json!({"id": "a", "measure": 2})).unwrap_err()).0, "measure");
    assert_eq!(said(SiteDelete::read(json!({"id": "a", "delayedType": 2})).unwrap_err()).0, "delayedType");
    assert_eq!(said(SiteCleanup::read(json!({"id": "a", "delayedType": 2})).unwrap_err()).0, "delayedType");
    assert_eq!(said(SiteCleanup::read(json!({"id": "a", "saveRootUrls": 2})).unwrap_err()).0, "saveRootUrls");
    assert_eq!(said(UrlOrder::read(json!({"url": "a", "delayedType": 2})).unwrap_err()).0, "delayedType");
    assert_eq!(said(UrlOrder::read(json!({"url": "a", "urlType": 2})).unwrap_err()).0, "urlType");
    assert_eq!(said(UrlContent::read(json!({"url": "a", "urlType": 2})).unwrap_err()).0, "urlType");
    assert_eq!(said(SiteDelete::read(json!({"criterions": {}})).unwrap_err()).0, "criterions.WHERE", "never all");
    let all = json!({"criterions": {"ORDER BY": "id"}, "state": 3});
    assert_eq!(said(SiteUpdate::read(all).unwrap_err()).0, "criterions.WHERE");
}
