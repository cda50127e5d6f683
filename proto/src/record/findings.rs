//! How [`Findings`] are written down: their fields one after the other, and [`Made`](super::Made) behind them only if there is something made.
//!
//! Whether it is there says a bit beside `noindex`. So findings without it have the bytes that they always had: what older programs wrote is read, and
//! a cluster whose nodes are replaced one by one understands itself, but for pages that only the newer ones process.

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Findings;

/// The page asks not to be indexed.
const NOINDEX: u8 = 1;
/// Something made follows.
const MADE: u8 = 2;

/// Writes both directions from one list, so that they cannot differ: the fields before the marks, and those behind.
macro_rules! in_this_order {
    ($($before:ident)+ ; $($behind:ident)+) => {
        const NAMES: &[&str] = &[$(stringify!($before),)+ "marks", $(stringify!($behind),)+ "made"];

        impl Serialize for Findings {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let marks = if self.noindex { NOINDEX } else { 0 } | if self.made.is_some() { MADE } else { 0 };
                let mut out = serializer.serialize_struct("Findings", NAMES.len())?;
                $(out.serialize_field(stringify!($before), &self.$before)?;)+
                out.serialize_field("marks", &marks)?;
                $(out.serialize_field(stringify!($behind), &self.$behind)?;)+
                if let Some(made) = &self.made {
                    out.serialize_field("made", made)?;
                }
                out.end()
            }
        }

        impl<'de> Visitor<'de> for InOrder {
            type Value = Findings;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("what a crawl found")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Findings, A::Error> {
                $(let $before = next(&mut fields)?;)+
                let marks: u8 = next(&mut fields)?;
                if marks & !(NOINDEX | MADE) != 0 {
                    return Err(de::Error::custom("marks of findings that nobody makes"));
                }
                $(let $behind = next(&mut fields)?;)+
                let made = if marks & MADE == 0 { None } else { Some(next(&mut fields)?) };
                Ok(Findings { $($before,)+ noindex: marks & NOINDEX != 0, $($behind,)+ made })
            }
        }
    };
}

struct InOrder;

in_this_order! {
    http_code failure content_type charset language title size digest fingerprint validators links_internal links_external canonical redirect
    ;
    duplicate_of crawling_ms processing_ms crawled_at crawled processed changes unchanged
}

fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(fields: &mut A) -> Result<T, A::Error> {
    fields.next_element()?.ok_or_else(|| de::Error::custom("findings end too early"))
}

impl<'de> Deserialize<'de> for Findings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Findings", NAMES, InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Made;
    use super::*;
    use crate::id::UrlId;
    use crate::wire;

    /// The fields as they were before there was anything made.
    #[derive(Serialize)]
    struct Before {
        http_code: u16,
        failure: Option<crate::crawl::retry::Failure>,
        content_type: String,
        charset: Option<String>,
        language: Option<String>,
        title: Option<String>,
        size: u64,
        digest: [u8; 16],
        fingerprint: Option<u64>,
        validators: Option<super::super::Validators>,
        links_internal: u32,
        links_external: u32,
        canonical: Option<String>,
        redirect: Option<String>,
        noindex: bool,
        duplicate_of: Option<UrlId>,
        crawling_ms: u32,
        processing_ms: u32,
        crawled_at: u64,
        crawled: u32,
        processed: u32,
        changes: u32,
        unchanged: u32,
    }

    #[test]
    fn what_was_written_before_anything_was_made_is_read_and_written_the_same() {
        for noindex in [false, true] {
            let before = Before {
                http_code: 200,
                failure: None,
                content_type: "text/html".into(),
                charset: Some("utf-8".into()),
                language: None,
                title: Some("a".into()),
                size: 70_000,
                digest: [7; 16],
                fingerprint: Some(9),
                validators: None,
                links_internal: 1,
                links_external: 2,
                canonical: None,
                redirect: Some("http://a.example/".into()),
                noindex,
                duplicate_of: Some(UrlId([1; 16])),
                crawling_ms: 3,
                processing_ms: 4,
                crawled_at: 5,
                crawled: 6,
                processed: 7,
                changes: 8,
                unchanged: 9,
            };
            // Something behind it, as in a record that is kept.
            let bytes = wire::encode(&(before, 42u32)).unwrap();
            let (found, behind): (Findings, u32) = wire::decode(&bytes).unwrap();
            assert_eq!((found.noindex, found.made, found.unchanged, behind), (noindex, None, 9, 42));
            assert_eq!(wire::encode(&(&found, 42u32)).unwrap(), bytes);
            let made = Findings { made: Some(Made { tags: 3, published: Some(11) }), ..found };
            let bytes = wire::encode(&(&made, 42u32)).unwrap();
            assert_eq!(wire::decode::<(Findings, u32)>(&bytes).unwrap(), (made, 42));
        }
    }

    #[test]
    fn marks_of_nobody_are_refused() {
        let plain = wire::encode(&Findings::default()).unwrap();
        let refused = (0..plain.len()).any(|at| {
            let mut bytes = plain.clone();
            bytes[at] = 4;
            wire::decode::<Findings>(&bytes).is_err_and(|error| error.to_string().contains("marks"))
        });
        assert!(refused);
    }
}
