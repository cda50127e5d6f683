//! Validators, and content that changes with the epoch.

use super::super::draw::key;
use super::super::expected::Duty::Must;
use super::super::expected::Kind::{Error, Page};
use super::super::{Answer, PageDates, http_date};
use super::{Exhibit, Here, Serve};

/// Its content differs each time it is asked for.
pub(super) const EVERY_VISIT: &str = "/fresh/every-visit";
/// Present in epoch 0 only.
const GONE_LATER: &str = "/fresh/gone-later";
/// Missing in epoch 0.
const COMES_LATER: &str = "/fresh/comes-later";
/// Links to one more leaf in each epoch.
pub(super) const GROWING: &str = "/fresh/growing";

pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit::new("/fresh/stable", Page, Serve::With(|here| version(here, 0, true, true))),
    Exhibit::new("/fresh/changing", Page, Serve::With(|here| version(here, here.visit.epoch, true, true))),
    Exhibit::new("/fresh/etag-only", Page, Serve::With(|here| version(here, here.visit.epoch, true, false))),
    Exhibit::new("/fresh/modified-only", Page, Serve::With(|here| version(here, here.visit.epoch, false, true))),
    Exhibit::new("/fresh/every-third", Page, Serve::With(|here| version(here, here.visit.epoch / 3, true, true))),
    Exhibit::new("/fresh/weak-etag", Page, Serve::With(weak)),
    Exhibit::new("/fresh/no-validators", Page, Serve::With(|here| version(here, here.visit.epoch, false, false))),
    Exhibit::new(EVERY_VISIT, Page, Serve::With(every_visit)),
    Exhibit::new(GROWING, Page, Serve::With(growing)).leading_to(&[("/leaf/epoch-0", Must)]),
    Exhibit::new(GONE_LATER, Page, Serve::With(gone_later)),
    Exhibit::new(COMES_LATER, Error, Serve::With(comes_later)),
];

/// The page in one of its versions.
fn version(here: &Here<'_>, version: u32, etag: bool, modified: bool) -> Answer {
    let topic = format!("{} version {version}", here.path);
    let dates = PageDates::draw(here.web.plan.seed, here.host, key(here.path), version);
    let mut answer = Answer::ok("text/html; charset=utf-8", here.html("", "", &topic));
    if etag {
        answer.header("etag", dates.etag());
    }
    if modified {
        answer.header("last-modified", http_date(dates.modified_unix_s));
    }
    answer
}

fn weak(here: &Here<'_>) -> Answer {
    let mut answer = version(here, here.visit.epoch, false, false);
    let dates = PageDates::draw(here.web.plan.seed, here.host, key(here.path), here.visit.epoch);
    answer.header("etag", format!("W/{}", dates.etag()));
    answer
}

fn every_visit(here: &Here<'_>) -> Answer {
    version(here, here.visit.earlier.unwrap_or(0), false, false)
}

fn growing(here: &Here<'_>) -> Answer {
    let links = (0..=here.visit.epoch).map(|epoch| format!("<a href=\"/leaf/epoch-{epoch}\">{epoch}</a>\n"));
    here.page("", &links.collect::<String>())
}

fn gone_later(here: &Here<'_>) -> Answer {
    if here.visit.epoch == 0 { version(here, 0, true, true) } else { Answer::error(410) }
}

fn comes_later(here: &Here<'_>) -> Answer {
    if here.visit.epoch == 0 { Answer::error(404) } else { version(here, 1, true, true) }
}
