//! Errors that pass: the first requests for a page are refused, later ones are not.

use super::super::expected::Duty::Must;
use super::super::expected::Kind::Temporary;
use super::super::{Answer, http_date};
use super::{Exhibit, Here, Serve};

/// Requests that are refused before one is answered.
const REFUSALS: u32 = 2;

pub(super) const EXHIBITS: &[Exhibit] = &[
    Exhibit::new("/flapping/503-seconds", Temporary, Serve::With(|here| refused(here, 503, Some(seconds(here)))))
        .leading_to(&[("/leaf/flapping", Must)]),
    Exhibit::new("/flapping/429-seconds", Temporary, Serve::With(|here| refused(here, 429, Some(seconds(here)))))
        .leading_to(&[("/leaf/flapping", Must)]),
    Exhibit::new("/flapping/429-date", Temporary, Serve::With(|here| refused(here, 429, Some(date(here)))))
        .leading_to(&[("/leaf/flapping", Must)]),
    Exhibit::new("/flapping/503-bare", Temporary, Serve::With(|here| refused(here, 503, None)))
        .leading_to(&[("/leaf/flapping", Must)]),
    Exhibit::new("/flapping/503-nonsense", Temporary, Serve::With(|here| refused(here, 503, Some("soon".into()))))
        .leading_to(&[("/leaf/flapping", Must)]),
];

fn refused(here: &Here<'_>, status: u16, retry_after: Option<String>) -> Answer {
    if here.visit.earlier.is_none_or(|earlier| earlier >= REFUSALS) {
        return here.page("", "<a href=\"/leaf/flapping\">1</a>");
    }
    let mut answer = Answer::error(status);
    if let Some(retry_after) = retry_after {
        answer.header("retry-after", retry_after);
    }
    answer
}

fn seconds(here: &Here<'_>) -> String {
    here.web.plan.retry_after_s.to_string()
}

fn date(here: &Here<'_>) -> String {
    // Dates have whole seconds: one more, so that the wait is never shorter than planned.
    http_date(here.visit.now_unix_s + u64::from(here.web.plan.retry_after_s) + 1)
}

/// What an unavailable host says to everything. Nobody waits a week, and nobody may come back earlier.
pub(super) fn a_week() -> Answer {
    let mut answer = Answer::error(503);
    answer.header("retry-after", "604800");
    answer
}
