//! The same content, or nearly the same, under several URLs.

use super::super::Answer;
use super::super::draw::{Draw, For, key};
use super::super::expected::Kind::Page;
use super::super::text::Language;
use super::{Exhibit, Here, Serve};

const fn copy(path: &'static str, same_as: Option<&'static str>, serve: Serve) -> Exhibit {
    Exhibit { same_as, ..Exhibit::new(path, Page, serve) }
}

pub(super) const EXHIBITS: &[Exhibit] = &[
    copy("/copies/original", None, Serve::With(|here| about(here, "copies", ""))),
    copy("/copies/second", Some("/copies/original"), Serve::With(|here| about(here, "copies", ""))),
    copy("/copies/third?print=1", Some("/copies/original"), Serve::With(|here| about(here, "copies", ""))),
    copy("/near/original", None, Serve::With(|here| about(here, "near", "<p>Page printed on Monday.</p>"))),
    copy("/near/second", None, Serve::With(|here| about(here, "near", "<p>Page printed on Tuesday.</p>"))),
    copy("/near/third", None, Serve::With(|here| about(here, "near", "<p>Page printed on Friday, in the rain.</p>"))),
    copy("/unlike/first", None, Serve::With(|here| about(here, "unlike-1", ""))),
    copy("/unlike/second", None, Serve::With(|here| about(here, "unlike-2", ""))),
];

/// A page of 6 KiB about `topic`, whatever its path.
fn about(here: &Here<'_>, topic: &str, extra: &str) -> Answer {
    let mut draw = Draw::new(here.web.plan.seed, For::Leaf, u64::from(here.host), key(topic) ^ 1);
    let mut prose = b"<p>".to_vec();
    here.web.prose.append(&mut prose, Language::English, &mut draw, 6 << 10);
    let prose = String::from_utf8(prose).expect("prose is UTF-8");
    Answer::ok("text/html; charset=utf-8", here.html("", &format!("{prose}</p>{extra}"), topic))
}
