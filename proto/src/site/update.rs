//! What SITE_UPDATE asks for: fields that are named overwrite, lists are put together as `updateType` says.

use serde_json::{Map, Value as Json};

use super::operation::{BadRequest, Criterions, object, read, without_nulls};
use super::{Restarted, Site, SiteDefinition, state};
use crate::date;
use crate::query::Source;

/// Fields that are counted, or are the crawler's own: nobody sets them.
const COUNTED: [&str; 15] = [
    "resources",
    "contents",
    "collectedURLs",
    "newURLs",
    "deletedURLs",
    "errors",
    "size",
    "avgSpeed",
    "avgSpeedCounter",
    "cDate",
    "uDate",
    "tcDateProcess",
    "iterations",
    "errorMask",
    "restarted",
];
/// As a time: this moment.
const NOW: &str = "NOW()";
/// Fields by which two things of a list are the same.
const LISTS: [(&str, &[&str]); 3] =
    [("urls", &["url"]), ("filters", &["pattern", "stage", "subject"]), ("properties", &["name", "urlMd5"])];

/// How lists are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UpdateType {
    /// What is new is added.
    Append,
    /// The list is replaced.
    Overwrite,
    /// What is there already is changed, what is not is left out.
    Update,
}

/// A change of a site, or of all that meet a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteUpdate {
    /// Which site; empty if criterions say which.
    pub id: String,
    /// Which sites, if none is named.
    pub criterions: Option<Criterions>,
    fields: Map<String, Json>,
    update_type: UpdateType,
}

impl SiteUpdate {
    /// Reads one. What is `null` is not changed.
    pub fn read(body: Json) -> Result<SiteUpdate, BadRequest> {
        let mut fields = object(without_nulls(body))?;
        let update_type = match fields.remove("updateType").map(|value| value.as_u64()) {
            None | Some(Some(0)) => UpdateType::Append,
            Some(Some(1)) => UpdateType::Overwrite,
            Some(Some(2)) => UpdateType::Update,
            _ => return Err(BadRequest::new("updateType", "0 appends, 1 overwrites, 2 updates".to_owned())),
        };
        let criterions = fields
            .remove("criterions")
            .map(read::<Criterions>)
            .transpose()
            .map_err(|bad| BadRequest::new("criterions", bad.what))?;
        if let Some(criterions) = &criterions {
            criterions.query(Source::Sites)?;
        }
        let id = match (fields.remove("id"), &criterions) {
            (Some(Json::String(id)), None) if !id.is_empty() => id,
            (None, Some(criterions)) => criterions.check_meant().map(|()| String::new())?,
            (Some(_), Some(_)) => return Err(BadRequest::new("id", "name either a site or criterions".to_owned())),
            _ => return Err(BadRequest::new("id", "is missing: which site is to be changed?".to_owned())),
        };
        if let Some(name) = COUNTED.iter().find(|name| fields.contains_key(**name)) {
            let what = "is counted by the crawler and cannot be set; state 6 (RESTART) and SITE_CLEANUP begin anew";
            return Err(BadRequest::new(name, what.to_owned()));
        }
        Ok(SiteUpdate { id, criterions, fields, update_type })
    }

    /// Whether the site is to begin again with its root URLs.
    pub fn restarts(&self) -> bool {
        self.fields.get("state").and_then(Json::as_u64) == Some(u64::from(state::RESTART))
    }

    /// The site after the change; nothing of it is changed if something is wrong.
    pub fn apply(&self, known: &SiteDefinition, now_unix_ms: u64) -> Result<SiteDefinition, BadRequest> {
        let mut site = object(serde_json::to_value(&known.site).expect("a site is JSON"))?;
        let mut changes = self.fields.clone();
        if self.restarts() {
            changes.insert("state".to_owned(), Json::from(state::ACTIVE));
            site.insert("iterations".to_owned(), Json::from(known.site.iterations.saturating_add(1)));
            site.insert("errorMask".to_owned(), Json::from(0));
            let restarted = Restarted { unix_ms: now_unix_ms, ..known.site.restarted };
            site.insert("restarted".to_owned(), serde_json::json!(restarted));
        }
        if changes.get("tcDate").and_then(Json::as_str).is_some_and(|said| said.eq_ignore_ascii_case(NOW)) {
            changes.insert("tcDate".to_owned(), Json::from(date::format(now_unix_ms)));
        }
        for (list, names) in LISTS {
            let Some(change) = changes.remove(list) else { continue };
            let Json::Array(change) = change else {
                return Err(BadRequest::new(list, "is no list".to_owned()));
            };
            let there = match site.remove(list) {
                Some(Json::Array(there)) => there,
                _ => Vec::new(),
            };
            site.insert(list.to_owned(), Json::Array(self.put_together(names, there, change)));
        }
        site.extend(changes);
        let site = read_site(site)?;
        let site = Site { u_date: Some(date::format(now_unix_ms)), ..site.checked()? };
        Ok(SiteDefinition { site, ..known.clone() })
    }

    fn put_together(&self, names: &[&str], there: Vec<Json>, change: Vec<Json>) -> Vec<Json> {
        // What is not named has its default.
        let of = |fields: &Map<String, Json>, name: &str| {
            fields.get(name).cloned().unwrap_or_else(|| if name == "stage" { Json::from(0) } else { Json::from("") })
        };
        let named = |item: &Json| match item {
            Json::Object(fields) => names.iter().map(|name| of(fields, name)).collect::<Vec<Json>>(),
            other => vec![other.clone()],
        };
        let mut list = if self.update_type == UpdateType::Overwrite { Vec::new() } else { there };
        for item in change {
            let same = list.iter().position(|known| named(known) == named(&item));
            match (same, self.update_type) {
                (Some(at), _) => list[at] = item,
                (None, UpdateType::Append | UpdateType::Overwrite) => list.push(item),
                (None, UpdateType::Update) => {}
            }
        }
        list
    }
}

/// Reads a site, and says which field is wrong.
pub(super) fn read_site(fields: Map<String, Json>) -> Result<Site, BadRequest> {
    serde_json::from_value(Json::Object(fields.clone())).map_err(|error| {
        // The error names no field when a value is of the wrong kind: the first that is wrong alone is it.
        let alone = |(name, value): (&String, &Json)| {
            let one: Map<String, Json> = [(name.clone(), value.clone())].into_iter().collect();
            let wrong = serde_json::from_value::<Site>(Json::Object(one)).err()?;
            Some(BadRequest::new(name, wrong.to_string()))
        };
        fields.iter().find_map(alone).unwrap_or_else(|| BadRequest::new("", error.to_string()))
    })
}
