//! What a site needs done from time to time, decided from its definition and what it has come to: suspension at its limits, making room, crawling it again.
//!
//! One node of the cluster looks, the first that is alive. Two that both believe to be it do no harm: a change of a definition expects the version that was
//! looked at, and deleting what is deleted changes nothing.

use super::operation::BadRequest;
use super::upkeep::{self, mode};
use super::{Site, SiteDefinition, state};
use crate::date;
use crate::error_mask::ErrorBit;
use crate::query::{Query, ROWS_MAX, Source};

/// Steps, bounds and default of the period that is tuned, in minutes.
const PERIOD_STEP: u64 = 15;
const PERIOD_MIN: u64 = 15;
const PERIOD_MAX: u64 = 1_440;
/// URLs of a site that is crawled again that are dealt with at once; the others have their turn when the site is looked at the next time.
pub const RECRAWL_URLS_AT_ONCE: usize = ROWS_MAX;
/// What is put up again, and what makes room, if nothing else is said.
const ROOTS: &str = "parentMd5 = ''";
const OLDEST_PAGES: &str = "parentMd5 <> '' AND status = 7";
/// What is deleted before a site is crawled again, if only that is said.
const JUNK: &str = "parentMd5 <> '' AND (state = 2 OR httpCode >= 400 OR tagsCount = 0)";

/// What a site has come to on all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Come {
    /// Pages.
    pub contents: u64,
    /// URLs that failed for good.
    pub errors: u64,
    /// URLs that wait.
    pub open: u64,
}

/// Something that is to be done for a site.
#[derive(Clone, Debug, PartialEq)]
pub enum Duty {
    /// Suspend it: a limit is reached.
    Suspend(ErrorBit),
    /// Delete some URLs to make room for others.
    MakeRoom {
        /// Which.
        condition: String,
        /// The first in this order.
        order: String,
        /// How many.
        count: usize,
    },
    /// Crawl it again: each of the three steps when the one before it is done, so that who takes over in the middle finds that it is still due.
    Recrawl {
        /// What is deleted before.
        delete: Option<String>,
        /// What is put up again.
        renew: String,
        /// Its definition from then on.
        next: Box<Site>,
    },
}

/// A recrawl that has begun. Only the steward remembers it: another one begins it anew, which asks for some URLs twice and forgets none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    date: Option<String>,
    unix_ms: u64,
    /// URLs that waited when it began.
    pub open: u64,
}

impl Begun {
    /// The recrawl of a site that is due.
    pub fn now(site: &Site, open: u64, unix_ms: u64) -> Begun {
        Begun { date: site.recrawl_date.clone(), unix_ms, open }
    }

    /// Whether it is the one that is due.
    pub fn is_of(&self, site: &Site) -> bool {
        self.date == site.recrawl_date
    }

    /// Those of the URLs that meet `condition` for which nothing was done yet: they do not wait, and were last crawled before it began.
    pub fn left(&self, condition: &str) -> String {
        let next_second = date::format((self.unix_ms / 1_000 + 1) * 1_000);
        format!("({condition}) AND UDate < '{next_second}' AND (status <> 1 OR state <> 0)")
    }
}

/// What is to be done for a site at this moment.
pub fn duties(definition: &SiteDefinition, come: Come, now_unix_ms: u64) -> Vec<Duty> {
    let site = &definition.site;
    let mut duties = Vec::new();
    if definition.deleted || site.state != state::ACTIVE {
        return duties;
    }
    let errors = come.errors.saturating_sub(site.restarted.errors);
    if site.max_errors > 0 && errors >= site.max_errors {
        duties.push(Duty::Suspend(ErrorBit::SiteErrorsMax));
        return duties;
    }
    if site.max_resources > 0 && come.contents >= site.max_resources {
        duties.push(match site.number("AUTO_REMOVE_RESOURCES") {
            Some(count) if count > 0 => Duty::MakeRoom {
                condition: site.text("AUTO_REMOVE_RESOURCES_WHERE").unwrap_or(OLDEST_PAGES).to_owned(),
                order: site.text("AUTO_REMOVE_RESOURCES_ORDER").unwrap_or("UDate").to_owned(),
                count: usize::try_from(count).unwrap_or(usize::MAX).min(ROWS_MAX),
            },
            _ => Duty::Suspend(ErrorBit::SiteResourcesMax),
        });
    }
    let due = site.recrawl_date.as_deref().and_then(date::parse).filter(|at| *at <= now_unix_ms);
    if let Some(due) = due.filter(|_| site.mode(mode::RECRAWL) && duties.is_empty()) {
        let period = tuned(site, come.open);
        let next = Site {
            recrawl_period: period,
            recrawl_date: next_date(due, period, now_unix_ms).map(date::format),
            iterations: site.iterations.saturating_add(1),
            u_date: Some(date::format(now_unix_ms)),
            ..site.clone()
        };
        let wants_delete = site.text("RECRAWL_DELETE").is_some_and(|value| value != "0");
        duties.push(Duty::Recrawl {
            delete: wants_delete.then(|| site.text("RECRAWL_DELETE_WHERE").unwrap_or(JUNK).to_owned()),
            renew: site.text("RECRAWL_WHERE").unwrap_or(ROOTS).to_owned(),
            next: Box::new(next),
        });
    }
    duties
}

/// The period after a recrawl: longer while URLs of the last one wait, shorter when none does, if the site wants it tuned.
fn tuned(site: &Site, open: u64) -> u64 {
    if site.number("RECRAWL_PERIOD_MODE") != Some(1) {
        return site.recrawl_period;
    }
    let step = site.number("RECRAWL_PERIOD_STEP").unwrap_or(PERIOD_STEP);
    let (least, most) = site.period_bounds();
    let most = most.max(least);
    let period =
        if open > 0 { site.recrawl_period.saturating_add(step) } else { site.recrawl_period.saturating_sub(step) };
    period.clamp(least, most)
}

/// When the site is crawled again after `due`: the first whole number of periods after it that is still to come.
fn next_date(due: u64, period_minutes: u64, now: u64) -> Option<u64> {
    let period = period_minutes.checked_mul(60_000).filter(|period| *period > 0)?;
    let periods = now.saturating_sub(due) / period + 1;
    due.checked_add(periods.checked_mul(period)?)
}

/// Properties that are numbers, with the least that each may be.
const NUMBERS: [(&str, u64); 8] = [
    ("MODES_FLAG", 0),
    ("RECRAWL_DELETE", 0),
    ("RECRAWL_PERIOD_MODE", 0),
    ("RECRAWL_PERIOD_STEP", 1),
    ("RECRAWL_PERIOD_MIN", 1),
    ("RECRAWL_PERIOD_MAX", 1),
    ("AUTO_REMOVE_RESOURCES", 0),
    ("UPDATE_NOT_INSERT_ROOT_URLS", 0),
];

impl Site {
    /// Says what is wrong with the properties that this goes by; their conditions are looked at elsewhere.
    pub(super) fn life_is_understood(&self) -> Result<(), BadRequest> {
        let bad = |name: &str, what: String| Err(BadRequest::new(&format!("properties[{name}]"), what));
        for (name, least) in NUMBERS {
            if let Some(text) = self.text(name)
                && self.number(name).is_none_or(|number| number < least)
            {
                return bad(name, format!("{text:?} is no number from {least} on"));
            }
        }
        if self.number("RECRAWL_PERIOD_MODE").is_some_and(|mode| mode > 1) {
            return bad("RECRAWL_PERIOD_MODE", "0 keeps the period, 1 tunes it".to_owned());
        }
        for name in ["RECRAWL_WHERE", "RECRAWL_DELETE_WHERE"] {
            if let Some(condition) = self.text(name) {
                // With what is added to it when the time has come.
                upkeep::check_condition(name, &Begun::now(self, 0, 0).left(condition))?;
            }
        }
        let (least, most) = self.period_bounds();
        if least > most {
            return bad("RECRAWL_PERIOD_MIN", format!("{least} minutes are more than RECRAWL_PERIOD_MAX, {most}"));
        }
        if let Some(order) = self.text("AUTO_REMOVE_RESOURCES_ORDER")
            && let Err(error) = Query::of_criterions(Source::Urls, "", order, None, 0)
        {
            return bad("AUTO_REMOVE_RESOURCES_ORDER", error.to_string());
        }
        Ok(())
    }

    /// The shortest and the longest period that tuning leads to, in minutes.
    fn period_bounds(&self) -> (u64, u64) {
        let of = |name: &str, otherwise: u64| self.number(name).unwrap_or(otherwise);
        (of("RECRAWL_PERIOD_MIN", PERIOD_MIN), of("RECRAWL_PERIOD_MAX", PERIOD_MAX))
    }

    /// A property as a text that is not empty.
    fn text(&self, name: &str) -> Option<&str> {
        self.property(name).map(str::trim).filter(|text| !text.is_empty())
    }

    /// A property as a number.
    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).and_then(|text| text.parse().ok())
    }

    /// The site after it was suspended because a limit was reached.
    pub fn suspended(&self, why: ErrorBit, now_unix_ms: u64) -> Site {
        let now = Some(date::format(now_unix_ms));
        Site {
            state: state::SUSPENDED,
            error_mask: self.error_mask | why.mask().0,
            tc_date: now.clone(),
            u_date: now,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    const NOW: u64 = 1_700_000_000_000;

    fn site(more: Json) -> SiteDefinition {
        let mut body = json!({"id": "a", "urls": ["http://a.example/"]});
        if let (Json::Object(body), Json::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        SiteDefinition::new(Site::read(body).unwrap())
    }

    fn properties(list: &[(&str, &str)]) -> Json {
        list.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
    }

    #[test]
    fn a_site_is_suspended_at_its_limits_and_never_without_one() {
        let come = Come { contents: 10, errors: 5, open: 0 };
        assert!(duties(&site(json!({})), come, NOW).is_empty(), "0 is no limit");
        let errors = site(json!({"maxErrors": 5, "maxResources": 10}));
        assert_eq!(duties(&errors, come, NOW), [Duty::Suspend(ErrorBit::SiteErrorsMax)]);
        let pages = site(json!({"maxErrors": 6, "maxResources": 10}));
        assert_eq!(duties(&pages, come, NOW), [Duty::Suspend(ErrorBit::SiteResourcesMax)]);
        let suspended = pages.site.suspended(ErrorBit::SiteResourcesMax, NOW);
        assert_eq!((suspended.state, suspended.error_mask), (state::SUSPENDED, 1 << 15));
        assert!(duties(&SiteDefinition { site: suspended, ..pages.clone() }, come, NOW).is_empty(), "once");
        assert!(duties(&pages, Come { contents: 9, ..come }, NOW).is_empty());
    }

    #[test]
    fn a_site_that_removes_by_itself_makes_room_instead() {
        let said = properties(&[("AUTO_REMOVE_RESOURCES", "3"), ("AUTO_REMOVE_RESOURCES_ORDER", "size DESC")]);
        let full = site(json!({"maxResources": 10, "properties": said}));
        let [Duty::MakeRoom { condition, order, count: 3 }] =
            &duties(&full, Come { contents: 10, ..Come::default() }, NOW)[..]
        else {
            panic!("it makes room");
        };
        assert!(Query::of_criterions(Source::Urls, condition, order, None, 0).is_ok());
    }

    #[test]
    fn a_site_is_crawled_again_when_its_date_has_come() {
        let before = json!({"recrawlPeriod": 60, "recrawlDate": date::format(NOW - 1_000)});
        let [Duty::Recrawl { delete: None, renew, next }] = &duties(&site(before.clone()), Come::default(), NOW)[..]
        else {
            panic!("it is due");
        };
        assert_eq!(next.recrawl_date.as_deref(), Some(date::format(NOW - 1_000 + 3_600_000).as_str()));
        assert_eq!((next.iterations, renew.as_str()), (1, ROOTS));
        assert!(
            duties(&SiteDefinition::new((**next).clone()), Come::default(), NOW).is_empty(),
            "not before the next date"
        );
        let away = duties(&site(before.clone()), Come::default(), NOW + 5 * 3_600_000);
        let Duty::Recrawl { next, .. } = &away[0] else { panic!("it is due") };
        assert!(
            next.recrawl_date.as_deref().and_then(date::parse).unwrap() > NOW + 5 * 3_600_000,
            "missed dates are not made up for"
        );
        let once = site(json!({"recrawlDate": date::format(NOW - 1_000)}));
        let Duty::Recrawl { next, .. } = &duties(&once, Come::default(), NOW)[0] else { panic!("it is due") };
        assert_eq!(next.recrawl_date, None);
        let off = json!({"recrawlDate": date::format(NOW - 1_000), "properties": properties(&[("MODES_FLAG", "7")])});
        assert!(duties(&site(off), Come::default(), NOW).is_empty());
    }

    #[test]
    fn a_period_is_tuned_between_its_bounds() {
        let tune = |period: u64, open: u64, more: &[(&str, &str)]| {
            let list = [&[("RECRAWL_PERIOD_MODE", "1")], more].concat();
            tuned(&site(json!({"recrawlPeriod": period, "properties": properties(&list)})).site, open)
        };
        assert_eq!((tune(60, 3, &[]), tune(60, 0, &[])), (75, 45));
        assert_eq!((tune(1_435, 3, &[]), tune(20, 0, &[])), (1_440, 15));
        assert_eq!(tune(60, 3, &[("RECRAWL_PERIOD_STEP", "100"), ("RECRAWL_PERIOD_MAX", "90")]), 90);
        assert_eq!(tuned(&site(json!({"recrawlPeriod": 60})).site, 3), 60);
    }

    #[test]
    fn a_recrawl_that_has_begun_leaves_out_what_is_done() {
        use crate::query::{Condition, Row, Value};
        struct Url(u8, u8, u64);
        impl Row for Url {
            fn value(&self, field: &'static str) -> Value {
                match field {
                    "status" => Value::int(self.0),
                    "state" => Value::int(self.1),
                    "UDate" => Value::Time(self.2),
                    "parentMd5" => Value::text(""),
                    _ => Value::Null,
                }
            }
        }
        let due = site(json!({"recrawlDate": date::format(NOW - 1_000)})).site;
        let begun = Begun::now(&due, 3, NOW);
        assert!(begun.is_of(&due) && !begun.is_of(&Site { recrawl_date: None, ..due }));
        let condition = Condition::parse(Source::Urls, &begun.left(ROOTS)).unwrap();
        for (url, left, why) in [
            (Url(7, 0, NOW - 5), true, "crawled before"),
            (Url(4, 2, NOW - 5), true, "failed before"),
            (Url(1, 1, NOW - 5), true, "switched off"),
            (Url(1, 0, NOW - 5), false, "put up, and waits"),
            (Url(7, 0, NOW + 1_000), false, "put up, and crawled since"),
        ] {
            assert_eq!(condition.admits(&url, NOW), left, "{why}");
        }
    }

    #[test]
    fn every_default_condition_is_one() {
        for condition in [ROOTS, OLDEST_PAGES, JUNK] {
            let left = Begun::now(&Site::default(), 0, NOW).left(condition);
            assert!(Query::of_criterions(Source::Urls, &left, "", None, 0).is_ok(), "{left}");
            assert!(Query::of_criterions(Source::Urls, condition, "UDate", None, 0).is_ok(), "{condition}");
        }
    }
}
