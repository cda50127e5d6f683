//! Any request of the Distributed Crawler is either refused with a message, or understood: what a site was read from can be told and read again, its filters and
//! limits look at any page and moment without harm, and changes of it give a site. The first line names an operation, the rest is its JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::query::{ROWS_MAX, Row, Source, Value};
use proto::scrape::Processing;
use proto::site::batch::Batch;
use proto::site::page_filter::{Looked, Moment};
use proto::site::{
    Attribute, BadRequest, Criterions, Operation, ProxyOrder, Site, SiteCleanup, SiteDefinition, SiteDelete, SiteFind,
    SiteStatus, SiteUpdate, SqlCustom, Upkeep, UrlContent, UrlFetch, UrlNew, UrlOrder, UrlPut,
};
use serde_json::Value as Json;

/// A day, in milliseconds.
const DAY: u64 = 86_400_000;
/// Delays between two requests are no longer than this, as the settings say if they say nothing else.
const DELAY_MAX: u64 = 300_000;

/// A page whose values are the text that is read.
struct Strange<'a>(&'a str);

impl Row for Strange<'_> {
    fn value(&self, field: &'static str) -> Value {
        match field.len() % 5 {
            0 => Value::Null,
            1 => Value::Int(i64::MAX),
            2 => Value::text(self.0),
            3 => Value::Time(u64::MAX),
            _ => Value::Float(f64::MIN),
        }
    }
}

impl Looked for Strange<'_> {
    fn body(&self) -> Option<&str> {
        Some(self.0)
    }

    fn head(&self) -> &str {
        self.0
    }

    fn tag(&self, _name: &str) -> Option<&str> {
        Some(self.0)
    }
}

/// What is refused says why.
fn said<T>(read: Result<T, BadRequest>) -> Option<T> {
    read.map_err(|bad| assert!(!bad.what.is_empty(), "{bad:?}")).ok()
}

fn look_at(site: &Site, text: &str) {
    let told = serde_json::to_value(site).expect("a site is JSON");
    assert_eq!(Site::read(told).as_ref(), Ok(site), "what is told cannot be handed in again");
    let filters = site.page_filters().expect("what was accepted is understood");
    for moment in [Moment::Fetched, Moment::Before, Moment::After] {
        let passes = filters.pass(moment, &Strange(text), 1);
        assert!(passes || filters.any_at(moment), "nothing is left out by no filter");
    }
    let limits = site.frequencies().expect("what was accepted is understood");
    for now in [0, 1_794_880_800_000] {
        let allowed = limits.allow("a.example", now, DELAY_MAX);
        assert!(allowed.delay_ms <= DELAY_MAX, "{allowed:?}");
        assert!(allowed.turn.is_none_or(|turn| turn.begin <= now && now < turn.end), "{allowed:?} at {now}");
        assert!(allowed.closed_until.is_none_or(|until| until > now && until <= now + DAY), "{allowed:?} at {now}");
    }
    assert!(Processing::of_site(site).is_ok(), "what was accepted is understood");
    let definition = SiteDefinition::new(site.clone());
    if let Ok(bytes) = definition.encode() {
        assert_eq!(SiteDefinition::decode(&bytes).as_ref(), Some(&definition));
    }
    let _ = definition.crawl().prepare(&Default::default(), &Default::default());
}

/// Whether criterions say which are meant, or how many: everything is never meant because nothing is said.
fn says_which(criterions: &Criterions) -> bool {
    !criterions.condition.trim().is_empty() || criterions.limit.is_some()
}

fuzz_target!(|text: &str| {
    let (first, rest) = text.split_once('\n').unwrap_or(("", text));
    if let Some(operation) = Operation::of_name(first) {
        assert_eq!(Operation::of_name(operation.name()), Some(operation));
    }
    match serde_json::from_str::<Json>(rest) {
        Ok(Json::Array(bodies)) => bodies.into_iter().for_each(|body| read(body, first)),
        Ok(body) => read(body, first),
        Err(_) => {}
    }
});

/// One object of a request, as each operation reads it.
fn read(body: Json, first: &str) {
    if let Some(site) = said(Site::read(body.clone())) {
        look_at(&site, first);
    }
    if let Some(update) = said(SiteUpdate::read(body.clone())) {
        let known = SiteDefinition::new(
            Site::read(serde_json::json!({"id": "a", "urls": ["http://a.example/"]})).expect("a site"),
        );
        if let Some(after) = said(update.apply(&known, 1)) {
            look_at(&after.site, first);
        }
    }
    said(SiteStatus::read(body.clone()));
    if let Some(delete) = said(SiteDelete::read(body.clone())) {
        assert_eq!(delete.id.is_empty(), delete.criterions.as_ref().is_some_and(says_which), "{delete:?}");
    }
    said(SiteCleanup::read(body.clone()));
    said(SiteFind::read(body.clone()))
        .and_then(|find| find.criterions)
        .map(|criterions| criterions.query(Source::Sites));
    said(UrlNew::read(body.clone())).map(|new| (new.site_select(), new.update("a"), new.put("a")));
    if let Some(order) = said(UrlOrder::read(body.clone())) {
        let by_condition = order.criterions.as_ref();
        assert!(by_condition.is_none_or(|which| order.text().is_empty() && says_which(which)), "{order:?}");
        said(order.name(&Default::default()));
    }
    said(UrlFetch::read(body.clone())).and_then(|fetch| said(fetch.checked()));
    said(UrlContent::read(body.clone())).and_then(|content| said(content.order().name(&Default::default())));
    said(UrlPut::read(body.clone())).map(|put| put.data().expect("a put that was read has data"));
    said(SqlCustom::read(body.clone())).map(|request| request.queries.len());
    for operation in [Operation::UrlAge, Operation::UrlPurge, Operation::FieldRecalculate] {
        if let Some(upkeep) = said(Upkeep::read(body.clone(), operation)) {
            let criterions = upkeep.criterions.as_ref();
            assert!(criterions.is_none_or(says_which) && upkeep.which("1 = 1").limit <= ROWS_MAX, "{upkeep:?}");
        }
    }
    said(Attribute::read(body.clone()));
    said(Attribute::read_which(body.clone()));
    if let Some(which) = said(Attribute::read_deleted(body.clone())) {
        let named = !which.name.is_empty() || !which.url_md5.is_empty();
        assert!(named || which.criterions.as_ref().is_some_and(says_which), "all of a site: {which:?}");
    }
    said(ProxyOrder::read(body.clone())).map(|order| (order.proxy(None), order.name()));
    if let Some(batch) = said(Batch::read(body)) {
        let told = batch.clone().into_json();
        assert!(Batch::read(told).is_ok(), "what is told cannot be handed in again");
    }
}
