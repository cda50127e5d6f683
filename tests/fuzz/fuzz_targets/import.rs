//! Any list of URIs is refused as a whole or judged line by line: each refusal has its line and a short text, nothing is accepted twice.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use proto::source::{Importer, InputKind, Judged, kind_of};
use proto::url::{CanonicalUrl, UrlRules};

fuzz_target!(|bytes: &[u8]| {
    let _ = kind_of("list.csv", bytes);
    for kind in [InputKind::Text, InputKind::Csv] {
        let mut importer = Importer::new(kind, UrlRules::default());
        let mut accepted = BTreeSet::new();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let Ok(judged) = importer.line(line) else { break };
            for one in judged {
                match one {
                    Judged::Accepted(url) => {
                        assert_eq!(CanonicalUrl::parse(url.as_str(), &UrlRules::default()).as_ref(), Ok(&url));
                        assert!(accepted.insert(url), "accepted twice");
                    }
                    Judged::Refused(refused) => {
                        assert_eq!(refused.line, index as u64 + 1);
                        assert!(refused.uri.chars().count() <= 200 && !refused.reason.to_string().is_empty());
                    }
                }
            }
        }
    }
});
