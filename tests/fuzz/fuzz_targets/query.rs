//! Any text is either refused with a place in it, or a query that looks at any row without harm and gives no more than it may.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::base64::{from_base64, to_base64};
use proto::query::{Collector, Condition, Query, ROWS_MAX, Row, Source, Value};

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
});
