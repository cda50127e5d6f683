//! Any text is either refused with a place in it, or a query that looks at any row without harm and gives no more than it may. Requests of sites are
//! read from the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::base64::{from_base64, to_base64};
use proto::query::{Collector, Condition, Query, ROWS_MAX, Row, Source, Value};
use proto::site::{
    Attribute, ProxyOrder, Site, SiteCleanup, SiteDelete, SiteFind, SiteStatus, SiteUpdate, Upkeep, UrlContent,
    UrlFetch, UrlNew, UrlOrder, UrlPut,
};

/// A row whose values follow from the names of its fields: of the right kind for some, and not known for others.
struct Strange;

impl Row for Strange {
    fn value(&self, field: &'static str) -> Value {
        match field.len() % 5 {
            0 => Value::Null,
            1 => Value::Int(i64::MIN),
            2 => Value::text(field),
            3 => Value::Time(u64::MAX),
            _ => Value::Float(f64::MAX),
        }
    }
}

fuzz_target!(|text: &str| {
    match Query::parse(text) {
        Ok(query) => {
            let mut all = Collector::new(&query);
            for _ in 0..3 {
                let _ = all.look(&Strange, 1);
            }
            let table = all.finish();
            assert!(table.rows.len() <= query.limit && query.limit + query.offset <= ROWS_MAX);
            assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        }
        Err(error) => assert!((1..=text.chars().count() + 1).contains(&error.at), "{error} is beyond {text:?}"),
    }
    if let Some(bytes) = from_base64(text) {
        assert_eq!(from_base64(&to_base64(&bytes)), Some(bytes));
    }
    for source in [Source::Urls, Source::Sites, Source::Attributes, Source::Proxies] {
        if let Ok(condition) = Condition::parse(source, text) {
            condition.admits(&Strange, u64::MAX);
        }
    }
    if let Ok(body) = serde_json::from_str::<serde_json::Value>(text) {
        if let Ok(site) = Site::read(body.clone()) {
            let told = serde_json::to_value(&site).expect("a site is JSON");
            assert_eq!(Site::read(told).as_ref(), Ok(&site), "what is told cannot be handed in again");
        }
        let _ = SiteUpdate::read(body.clone());
        let _ = (SiteStatus::read(body.clone()), SiteDelete::read(body.clone()), SiteCleanup::read(body.clone()));
        let _ = (UrlNew::read(body.clone()), UrlOrder::read(body.clone()), Upkeep::read(body.clone()));
        let _ = UrlFetch::read(body.clone()).map(|fetch| fetch.checked());
        let _ = UrlContent::read(body.clone()).map(|content| content.order().name(&Default::default()));
        let _ = UrlPut::read(body.clone()).map(|put| put.data().expect("a put that was read has data"));
        let _ = (Attribute::read(body.clone()), Attribute::read_which(body.clone()));
        let _ = ProxyOrder::read(body.clone()).map(|order| (order.proxy(None), order.name()));
        let _ = SiteFind::read(body).map(|find| find.criterions.map(|criterions| criterions.query(Source::Sites)));
    }
});
