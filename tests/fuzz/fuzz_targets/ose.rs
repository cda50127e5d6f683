//! Any bytes in a site folder of OSE are records or damage with a place; what was read is written back so that it reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::ose::links::OseRule;
use proto::ose::name::OseFile;
use proto::ose::row::{OseRow, PREFIX_BYTES};
use proto::ose::status::{OseStatus, STATUS_BYTES};
use proto::url::UrlRules;

fuzz_target!(|bytes: &[u8]| {
    let base = url::Url::parse("http://target1.example/a/").expect("a URL");
    for line in bytes.split(|byte| *byte == b'\n') {
        match OseRow::parse(line) {
            Ok(row) => {
                let written = row.to_line();
                assert_eq!(written.len(), PREFIX_BYTES + row.url.len());
                assert_eq!(OseRow::parse(written.as_bytes()).as_ref(), Ok(&row), "written and read again");
                assert!(row.streamed.is_none() || row.id.is_some());
                for rule in [OseRule::Resolved, OseRule::Strict] {
                    if let Some(link) = rule.valid(&base, &row.url, &UrlRules::default()) {
                        assert!(!link.contains(['\n', '\r']) && !link.is_empty());
                    }
                }
            }
            Err(damage) => assert!((1..=line.len() + 1).contains(&damage.column), "{damage}"),
        }
    }
    match OseStatus::parse(bytes) {
        Ok(status) => assert_eq!(OseStatus::parse(&status.to_bytes()), Ok(status)),
        Err(damage) => assert!((1..=STATUS_BYTES + 1).contains(&damage.column), "{damage}"),
    }
    if let Some(file) = std::str::from_utf8(bytes).ok().and_then(OseFile::of_name) {
        assert_eq!(file.to_string().as_bytes(), bytes, "a file has one name");
    }
});
