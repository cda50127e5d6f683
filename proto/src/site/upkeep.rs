//! What URL_AGE, URL_PURGE and FIELD_RECALCULATE are asked with: which sites, which of their URLs, and how many.

use serde::Deserialize;
use serde_json::Value as Json;

use super::Site;
use super::operation::{BadRequest, Criterions, Operation, read};
use crate::query::{Query, ROWS_MAX, Source};

/// URLs of one site that one round of aging or purging takes, as the original has it.
pub const SHARE: usize = 100;
/// In which order URLs age.
const OLDEST_FIRST: &str = "UDate";

/// Which sites and URLs upkeep is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Upkeep {
    #[serde(rename = "siteId", alias = "id")]
    site_id: String,
    #[serde(rename = "sitesList")]
    sites: Vec<String>,
    /// Which of those.
    #[serde(rename = "sitesCriterions")]
    pub sites_criterions: Option<Criterions>,
    /// Which URLs URL_AGE deletes; what the site's properties say if nothing is said.
    #[serde(rename = "urlsCriterions", alias = "criterions")]
    pub criterions: Option<Criterions>,
    #[serde(rename = "maxURLs", alias = "urlsCount")]
    max_urls: Option<usize>,
}

/// URLs of one site: those that meet a condition, the first ones in an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Which {
    /// Which.
    pub condition: String,
    /// In which order.
    pub order: String,
    /// So many at most.
    pub limit: usize,
    /// Behind so many.
    pub offset: usize,
}

impl Which {
    /// The first ones, the longest not crawled before the others.
    pub fn oldest(condition: &str, limit: usize) -> Which {
        Which { condition: condition.to_owned(), order: OLDEST_FIRST.to_owned(), limit, offset: 0 }
    }
}

impl Upkeep {
    /// Reads what one of the three is asked with. What would have no meaning to it is refused: who names URLs means these and no others.
    pub fn read(body: Json, operation: Operation) -> Result<Upkeep, BadRequest> {
        let request: Upkeep = read(body)?;
        if request.criterions.is_some() && operation != Operation::UrlAge {
            let what = match operation {
                Operation::UrlPurge => {
                    "of those that are deleted none can be chosen; delayedType 1 of URL_DELETE purges those that it deletes"
                }
                _ => "all URLs of a site are counted",
            };
            return Err(BadRequest::new("urlsCriterions", what.to_owned()));
        }
        if request.max_urls.is_some() && operation == Operation::FieldRecalculate {
            return Err(BadRequest::new("maxURLs", "all URLs of a site are counted".to_owned()));
        }
        if request.max_urls.is_some_and(|most| most == 0 || most > ROWS_MAX) {
            return Err(BadRequest::new("maxURLs", format!("from 1 to {ROWS_MAX}")));
        }
        if let Some(criterions) = &request.criterions {
            criterions.check_meant()?;
            criterions.query_of_all(Source::Urls)?;
        }
        if let Some(criterions) = &request.sites_criterions {
            criterions.query(Source::Sites)?;
        }
        Ok(request)
    }

    /// The sites that are named; none for all.
    pub fn sites(&self) -> Vec<&str> {
        let one = (!self.site_id.is_empty()).then_some(self.site_id.as_str());
        self.sites.iter().map(String::as_str).chain(one).collect()
    }

    /// URLs of each site.
    pub fn share(&self) -> usize {
        self.max_urls.unwrap_or(SHARE)
    }

    /// The URLs of a site that are meant, where `otherwise` is the condition if none is said. Of two limits the smaller one counts.
    pub fn which(&self, otherwise: &str) -> Which {
        let Some(said) = &self.criterions else { return Which::oldest(otherwise, self.share()) };
        // It was read before.
        let limited = said.limit.as_ref().and_then(|_| said.query(Source::Urls).ok());
        let (limit, offset) = limited.map_or((None, 0), |query| (Some(query.limit), query.offset));
        let order = if said.order.trim().is_empty() { OLDEST_FIRST } else { &said.order };
        Which {
            condition: said.condition.clone(),
            order: order.to_owned(),
            limit: limit.into_iter().chain(self.max_urls).min().unwrap_or(SHARE),
            offset,
        }
    }
}

impl Site {
    /// The condition by which URLs of the site are too old: that of its property AGING_URL_CRITERION, or twice its recrawl period since they were last crawled;
    /// `None` if it has neither. Root URLs do not age.
    pub fn aging(&self) -> Option<String> {
        match self.property("AGING_URL_CRITERION").map(str::trim).filter(|text| !text.is_empty()) {
            Some(said) => Some(said.to_owned()),
            None if self.recrawl_period == 0 => None,
            None => {
                let minutes = self.recrawl_period.saturating_mul(2).min(u64::from(u32::MAX));
                Some(format!("parentMd5 <> '' AND UDate < NOW() - INTERVAL {minutes} MINUTE"))
            }
        }
    }

    /// Whether a part of the life of the site is switched on: bits of its property MODES_FLAG, all if there is none.
    pub fn mode(&self, bit: u64) -> bool {
        let flags = self.property("MODES_FLAG").and_then(|flags| flags.trim().parse::<u64>().ok());
        flags.is_none_or(|flags| flags & bit != 0)
    }
}

/// Bits of MODES_FLAG.
pub mod mode {
    /// Its URLs are crawled.
    pub const CRAWL: u64 = 1;
    /// What was crawled is processed.
    pub const PROCESS: u64 = 2;
    /// It is crawled again when its time has come.
    pub const RECRAWL: u64 = 8;
    /// Its URLs age.
    pub const AGE: u64 = 16;
}

/// Says what is wrong with a condition of a property, before the site is kept.
pub(super) fn check_condition(name: &str, text: &str) -> Result<(), BadRequest> {
    let read: Result<Query, _> = Query::of_criterions(Source::Urls, text, "", None, 0);
    read.map(|_| ()).map_err(|error| BadRequest::new(&format!("properties[{name}]"), error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const AGE: Operation = Operation::UrlAge;

    #[test]
    fn a_site_ages_as_its_property_or_its_period_says() {
        let site = |body: Json| Site::read(body).unwrap();
        let bare = json!({"id": "a", "urls": ["http://a.example/"]});
        assert_eq!(site(bare.clone()).aging(), None);
        let periodic = site(json!({"id": "a", "urls": ["http://a.example/"], "recrawlPeriod": 60}));
        assert!(periodic.aging().unwrap().contains("INTERVAL 120 MINUTE"));
        assert!(Query::of_criterions(Source::Urls, &periodic.aging().unwrap(), "", None, 0).is_ok());
        let said = json!([{"name": "AGING_URL_CRITERION", "value": "depth > 3"}, {"name": "MODES_FLAG", "value": 9}]);
        let said = site(json!({"id": "a", "urls": ["http://a.example/"], "properties": said}));
        assert_eq!(said.aging().as_deref(), Some("depth > 3"));
        assert!(
            said.mode(mode::CRAWL) && said.mode(mode::RECRAWL) && !said.mode(mode::AGE) && site(bare).mode(mode::AGE)
        );
    }

    #[test]
    fn every_bad_request_names_its_field() {
        for (body, field) in [
            (json!({"urlsCriterions": {}}), "criterions.WHERE"),
            (json!({"urlsCriterions": {"WHERE": "size > 0", "LIMIT": "some"}}), "LIMIT"),
            (json!({"maxURLs": 0}), "maxURLs"),
            (json!({"maxURLs": 10_001}), "maxURLs"),
            (json!({"urlsCriterions": {"WHERE": "nosuch = 1"}}), "criterions"),
            (json!({"sitesCriterions": {"WHERE": "httpCode = 1"}}), "criterions"),
            (json!({"nosuch": 1}), "nosuch"),
            (json!([]), "object"),
        ] {
            assert!(Upkeep::read(body.clone(), AGE).unwrap_err().to_string().contains(field), "{body}");
        }
        let named = Upkeep::read(json!({"siteId": "a", "sitesList": ["b"]}), AGE).unwrap();
        assert_eq!((named.sites(), named.share()), (vec!["b", "a"], SHARE));
    }

    #[test]
    fn who_names_urls_means_these_and_so_many() {
        let which = |body: Json| {
            let Which { condition, order, limit, offset } = Upkeep::read(body, AGE).unwrap().which("depth > 3");
            (condition, order, limit, offset)
        };
        let told = |condition: &str, order: &str, limit: usize, offset: usize| {
            (condition.to_owned(), order.to_owned(), limit, offset)
        };
        assert_eq!(which(json!({})), told("depth > 3", "UDate", SHARE, 0));
        assert_eq!(which(json!({"maxURLs": 7})), told("depth > 3", "UDate", 7, 0));
        let said = json!({"WHERE": "size > 0", "ORDER BY": "size DESC", "LIMIT": "2, 5"});
        assert_eq!(which(json!({"urlsCriterions": said})), told("size > 0", "size DESC", 5, 2));
        assert_eq!(which(json!({"urlsCriterions": said, "maxURLs": 3})), told("size > 0", "size DESC", 3, 2));
        assert_eq!(which(json!({"urlsCriterions": said, "maxURLs": 9})), told("size > 0", "size DESC", 5, 2));
        assert_eq!(which(json!({"urlsCriterions": {"WHERE": "size > 0"}})), told("size > 0", "UDate", SHARE, 0));
        for (body, operation, field) in [
            (json!({"urlsCriterions": {"WHERE": "size > 0"}}), Operation::UrlPurge, "urlsCriterions"),
            (json!({"criterions": {}}), Operation::FieldRecalculate, "urlsCriterions"),
            (json!({"maxURLs": 5}), Operation::FieldRecalculate, "maxURLs"),
        ] {
            assert_eq!(Upkeep::read(body, operation).unwrap_err().field, field);
        }
        assert_eq!(Upkeep::read(json!({"maxURLs": 5}), Operation::UrlPurge).unwrap().share(), 5);
    }
}
