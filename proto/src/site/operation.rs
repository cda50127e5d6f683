//! The operations of the Distributed Crawler by name, and what they are asked with. Whatever is wrong with a request is said with the field.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::{Ignored, Site, SiteDefinition, flag, update};
use crate::query::{Query, ROWS_MAX, Source};

/// Codes of answers.
pub mod code {
    /// Done.
    pub const OK: u32 = 0;
    /// The request is wrong; nothing was changed. Ours: the original has no number for it.
    pub const BAD_REQUEST: u32 = 2_000;
    /// There is such a site already (SITE_NEW), or there is none (all others).
    pub const SITE: u32 = 2_020;
    /// Too few nodes could keep it.
    pub const NOT_KEPT: u32 = 2_021;
}

/// What can be asked for. Appended only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Operation {
    /// Make a site.
    SiteNew,
    /// Change one.
    SiteUpdate,
    /// Look at one.
    SiteStatus,
    /// Delete one.
    SiteDelete,
    /// Empty one.
    SiteCleanup,
    /// Look for sites.
    SiteFind,
    /// Hand URLs in.
    UrlNew,
    /// Change some.
    UrlUpdate,
    /// Look at some.
    UrlStatus,
    /// Delete some.
    UrlDelete,
    /// Look for some.
    UrlFetch,
    /// Have some forgotten and crawled again.
    UrlCleanup,
    /// Ask a query over sites or URLs.
    SqlCustom,
    /// Read contents of some.
    UrlContent,
    /// Remove the contents of deleted ones.
    UrlPurge,
    /// Delete those that are too old.
    UrlAge,
    /// Hand contents in.
    UrlPut,
    /// What happened to some.
    UrlHistory,
    /// How often what happened to some.
    UrlStats,
    /// Count the URLs of sites anew.
    FieldRecalculate,
    /// Set attributes.
    AttributeSet,
    /// Change attributes.
    AttributeUpdate,
    /// Delete attributes.
    AttributeDelete,
    /// Look at attributes.
    AttributeFetch,
    /// Give a site a proxy.
    ProxyNew,
    /// Change one.
    ProxyUpdate,
    /// Take it away.
    ProxyDelete,
    /// Look at one.
    ProxyStatus,
    /// Look for proxies.
    ProxyFind,
    /// Crawl and process URLs now.
    Batch,
}

impl Operation {
    /// All, with the names of the original.
    pub const ALL: &'static [(&'static str, Operation)] = &[
        ("SITE_NEW", Operation::SiteNew),
        ("SITE_UPDATE", Operation::SiteUpdate),
        ("SITE_STATUS", Operation::SiteStatus),
        ("SITE_DELETE", Operation::SiteDelete),
        ("SITE_CLEANUP", Operation::SiteCleanup),
        ("SITE_FIND", Operation::SiteFind),
        ("URL_NEW", Operation::UrlNew),
        ("URL_UPDATE", Operation::UrlUpdate),
        ("URL_STATUS", Operation::UrlStatus),
        ("URL_DELETE", Operation::UrlDelete),
        ("URL_FETCH", Operation::UrlFetch),
        ("URL_CLEANUP", Operation::UrlCleanup),
        ("SQL_CUSTOM", Operation::SqlCustom),
        ("URL_CONTENT", Operation::UrlContent),
        ("URL_PURGE", Operation::UrlPurge),
        ("URL_AGE", Operation::UrlAge),
        ("URL_PUT", Operation::UrlPut),
        ("URL_HISTORY", Operation::UrlHistory),
        ("URL_STATS", Operation::UrlStats),
        ("FIELD_RECALCULATE", Operation::FieldRecalculate),
        ("ATTRIBUTE_SET", Operation::AttributeSet),
        ("ATTRIBUTE_UPDATE", Operation::AttributeUpdate),
        ("ATTRIBUTE_DELETE", Operation::AttributeDelete),
        ("ATTRIBUTE_FETCH", Operation::AttributeFetch),
        ("PROXY_NEW", Operation::ProxyNew),
        ("PROXY_UPDATE", Operation::ProxyUpdate),
        ("PROXY_DELETE", Operation::ProxyDelete),
        ("PROXY_STATUS", Operation::ProxyStatus),
        ("PROXY_FIND", Operation::ProxyFind),
        ("BATCH", Operation::Batch),
    ];

    /// The operation of this name; the original shortens some.
    pub fn of_name(name: &str) -> Option<Operation> {
        let long =
            name.to_ascii_uppercase().replacen("ATTR_", "ATTRIBUTE_", 1).replacen("F_RECALC", "FIELD_RECALCULATE", 1);
        let name = long.as_str();
        Operation::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, operation)| *operation)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Operation::ALL.iter().find(|(_, operation)| *operation == self).map_or("", |(name, _)| name)
    }

    /// Whether it only looks.
    pub fn is_question(self) -> bool {
        matches!(
            self,
            Operation::SiteStatus
                | Operation::SiteFind
                | Operation::UrlStatus
                | Operation::UrlFetch
                | Operation::SqlCustom
                | Operation::UrlContent
                | Operation::UrlHistory
                | Operation::UrlStats
                | Operation::AttributeFetch
                | Operation::ProxyStatus
                | Operation::ProxyFind
        )
    }
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}{what}", field, if field.is_empty() { "" } else { ": " })]
pub struct BadRequest {
    /// In which field.
    pub field: String,
    /// What.
    pub what: String,
}

impl BadRequest {
    /// Something is wrong with `field`.
    pub fn new(field: &str, what: String) -> BadRequest {
        BadRequest { field: field.to_owned(), what }
    }
}

/// Leaves out what is `null`: to the original that is a field that nobody set.
pub(super) fn without_nulls(body: Json) -> Json {
    match body {
        Json::Object(fields) => Json::Object(
            fields
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name, without_nulls(value)))
                .collect(),
        ),
        Json::Array(items) => Json::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

pub(super) fn object(body: Json) -> Result<Map<String, Json>, BadRequest> {
    match body {
        Json::Object(fields) => Ok(fields),
        other => Err(BadRequest::new("", format!("an object is expected, not {}", kind(&other)))),
    }
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "yes or no",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

impl Site {
    /// Reads what SITE_NEW is asked with.
    pub fn read(body: Json) -> Result<Site, BadRequest> {
        update::read_site(object(without_nulls(body))?)?.checked()
    }
}

pub(super) fn read<T: serde::de::DeserializeOwned>(body: Json) -> Result<T, BadRequest> {
    let fields = object(without_nulls(body))?;
    let parsed = |fields: Map<String, Json>| serde_json::from_value::<T>(Json::Object(fields));
    parsed(fields.clone()).map_err(|error| {
        let error = error.to_string();
        // The error says what is wrong and not where: it is the field without which it would be another one, or none.
        let is_wrong = |name: &&String| {
            let mut others = fields.clone();
            others.remove(*name);
            parsed(others).err().is_none_or(|other| other.to_string() != error)
        };
        let field = fields.keys().find(is_wrong).map_or("", String::as_str);
        BadRequest::new(field, error)
    })
}

fn one() -> u8 {
    1
}

fn yes() -> bool {
    true
}

/// Says what is wrong with `delayedType`. Contents of sites go in the background either way; nobody reaches them meanwhile.
pub(super) fn check_delay(said: u8) -> Result<(), BadRequest> {
    if said > 1 { Err(BadRequest::new("delayedType", format!("{said}: 0 is delayed and 1 is now"))) } else { Ok(()) }
}

/// Says which of the names is no field of a site.
fn check_fields(names: &[String]) -> Result<(), BadRequest> {
    let is_field = |name: &String| {
        let alone: Map<String, Json> = [(name.clone(), Json::Null)].into_iter().collect();
        let wrong = serde_json::from_value::<Site>(Json::Object(alone)).err().map(|error| error.to_string());
        wrong.is_none_or(|error| !error.starts_with("unknown field"))
    };
    match names.iter().find(|name| !is_field(name)) {
        Some(name) => Err(BadRequest::new("excludeList", format!("{name:?} is no field of a site"))),
        None => Ok(()),
    }
}

/// What SITE_STATUS is asked with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteStatus {
    /// Which site.
    pub id: String,
    /// Lists that are left out of the answer.
    #[serde(rename = "excludeList", default)]
    pub exclude_list: Vec<String>,
    /// 1: every URL is looked at for what no counter keeps: speeds, and when it was last crawled and processed.
    #[serde(default)]
    pub measure: u8,
    #[serde(rename = "deleteTaskId", default)]
    _delete_task: Ignored,
}

/// What SITE_DELETE is asked with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteDelete {
    /// Which site.
    #[serde(default)]
    pub id: String,
    /// Which sites, if none is named.
    #[serde(default)]
    pub criterions: Option<Criterions>,
    /// 1: contents go now; 0: they stay until they are purged.
    #[serde(rename = "delayedType", default = "one")]
    pub delayed_type: u8,
    #[serde(rename = "taskType", default)]
    _task_type: Ignored,
}

/// What SITE_CLEANUP is asked with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteCleanup {
    /// Which site.
    pub id: String,
    /// As in [`SiteDelete`].
    #[serde(rename = "delayedType", default = "one")]
    pub delayed_type: u8,
    /// The root URLs stay, and are crawled anew.
    #[serde(rename = "saveRootUrls", default = "yes", deserialize_with = "flag")]
    pub save_root_urls: bool,
    /// The root URLs are put in again.
    #[serde(rename = "moveURLs", alias = "moveUrls", default = "yes", deserialize_with = "flag")]
    pub move_urls: bool,
    /// Its state from then on; active if nothing is said.
    #[serde(default = "one")]
    pub state: u8,
    /// What becomes of the history of its URLs: 0 it stays, 1 what happened goes and how often stays, 2 both go, as they do if nothing is said.
    #[serde(rename = "historyCleanUp", default)]
    history: Option<u8>,
    #[serde(rename = "taskType", default)]
    _task_type: Ignored,
}

/// What SITE_FIND is asked with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SiteFind {
    /// Sites of which a root URL begins with this.
    pub url: String,
    /// Only those that meet this.
    pub criterions: Option<Criterions>,
    /// Lists that are left out of the answer.
    #[serde(rename = "excludeList")]
    pub exclude_list: Vec<String>,
}

/// Conditions of the original: pieces of SQL under the names that SQL has for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Criterions {
    /// Which.
    #[serde(rename = "WHERE", alias = "where")]
    pub condition: String,
    /// In which order.
    #[serde(rename = "ORDER BY", alias = "order by", alias = "ORDER", alias = "order")]
    pub order: String,
    /// How many: `10`, `"10"`, `"5, 10"` or `[5, 10]`, where the first of two are left out.
    #[serde(rename = "LIMIT", alias = "limit")]
    pub limit: Option<Json>,
}

impl Criterions {
    /// The query that they are.
    pub fn query(&self, source: Source) -> Result<Query, BadRequest> {
        let bad = || {
            BadRequest::new(
                "criterions.LIMIT",
                "is no number of rows; 10, \"10\", \"5, 10\" and [5, 10] are".to_owned(),
            )
        };
        let number = |value: &Json| match value {
            Json::Number(number) => number.as_u64().map(|number| number as usize),
            Json::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let (offset, limit) = match &self.limit {
            None => (0, None),
            Some(Json::Array(two)) => match two.as_slice() {
                [one] => (0, Some(number(one).ok_or_else(bad)?)),
                [offset, limit] => (number(offset).ok_or_else(bad)?, Some(number(limit).ok_or_else(bad)?)),
                _ => return Err(bad()),
            },
            Some(Json::String(text)) if text.contains(',') => {
                let (offset, limit) = text.split_once(',').ok_or_else(bad)?;
                let part = |text: &str| text.trim().parse().map_err(|_| bad());
                (part(offset)?, Some(part(limit)?))
            }
            Some(one) => (0, Some(number(one).ok_or_else(bad)?)),
        };
        Query::of_criterions(source, &self.condition, &self.order, limit, offset)
            .map_err(|error| BadRequest::new("criterions", error.to_string()))
    }
}

impl Criterions {
    /// Whether they say nothing at all.
    pub fn is_empty(&self) -> bool {
        self.condition.trim().is_empty() && self.order.trim().is_empty() && self.limit.is_none()
    }

    /// Refuses those by which everything would be changed although nobody said so.
    pub(super) fn check_meant(&self) -> Result<(), BadRequest> {
        if self.condition.trim().is_empty() && self.limit.is_none() {
            let what = "is empty, which would mean all; say which, 1 = 1 if it is all, or how many with LIMIT";
            return Err(BadRequest::new("criterions.WHERE", what.to_owned()));
        }
        Ok(())
    }

    /// The query that they are where all are meant that meet them, up to the largest answer, if no LIMIT is said.
    pub fn query_of_all(&self, source: Source) -> Result<Query, BadRequest> {
        let limit = self.limit.clone().or(Some(Json::from(ROWS_MAX)));
        Criterions { limit, ..self.clone() }.query(source)
    }
}

impl SiteStatus {
    /// Reads one.
    pub fn read(body: Json) -> Result<SiteStatus, BadRequest> {
        let request: SiteStatus = read(body)?;
        if request.measure > 1 {
            return Err(BadRequest::new("measure", format!("{}: 1 measures, 0 does not", request.measure)));
        }
        check_fields(&request.exclude_list)?;
        Ok(request)
    }
}

impl SiteDelete {
    /// Reads one.
    pub fn read(body: Json) -> Result<SiteDelete, BadRequest> {
        let request: SiteDelete = read(body)?;
        if request.id.is_empty() == request.criterions.is_none() {
            return Err(BadRequest::new("id", "name either a site or criterions".to_owned()));
        }
        if let Some(criterions) = &request.criterions {
            criterions.check_meant()?;
        }
        check_delay(request.delayed_type)?;
        Ok(request)
    }
}

impl SiteCleanup {
    /// Reads one.
    pub fn read(body: Json) -> Result<SiteCleanup, BadRequest> {
        let request: SiteCleanup = read(body)?;
        if request.history.is_some_and(|history| history > 2) {
            return Err(BadRequest::new("historyCleanUp", "0 keeps it, 1 and 2 remove it".to_owned()));
        }
        check_delay(request.delayed_type)?;
        Ok(request)
    }

    /// Says so if it wants something kept of a site that goes with its URLs.
    pub fn possible_for(&self, site: &SiteDefinition) -> Result<(), BadRequest> {
        match self.history {
            Some(history @ (0 | 1)) if site.has_history() => {
                let what = format!(
                    "{history}: what happened to URLs, and how often, is kept with them and goes with them; ask with 2, after reading URL_HISTORY if it is wanted"
                );
                Err(BadRequest::new("historyCleanUp", what))
            }
            _ => Ok(()),
        }
    }
}

impl SiteFind {
    /// Reads one.
    pub fn read(body: Json) -> Result<SiteFind, BadRequest> {
        let request: SiteFind = read(body)?;
        check_fields(&request.exclude_list)?;
        Ok(request)
    }
}
