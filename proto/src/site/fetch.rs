//! URL_FETCH: which URLs are looked for, and what is done with those that are found.
//!
//! Whoever works on URLs with programs of their own claims them: `urlUpdate` is done to every URL that is given out, so that the next who asks with the same condition
//! gets others. Two who ask at once must not get the same ones. Of two changes of a definition at once only one is acknowledged ([`crate::cluster::registry`]); so
//! who claims first takes the [`FetchLock`], a definition that there is once in the whole cluster, and gives it back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::operation::{BadRequest, Criterions, read};
use super::url::MEASURED;
use super::{Ignored, SiteUpdate, UrlOrder, flag};
use crate::cluster::registry::{DefinitionKey, DefinitionKind};
use crate::id::NodeId;
use crate::query::{Query, Source, URL_FIELDS};
use crate::wire::{self, WireError};

/// For how long somebody who died keeps others from claiming, milliseconds: longer than looking for URLs and changing them may take.
const LOCKED_FOR_MS: u64 = 120_000;
/// Version of the encoding of a lock.
const VERSION: u16 = 1;
/// Stands for all attributes.
const ALL: &str = "*";

/// What URL_FETCH is asked with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UrlFetch {
    /// Which sites; all that are active if none is named.
    #[serde(rename = "sitesList")]
    pub sites: Vec<String>,
    /// Which of those.
    #[serde(rename = "sitesCriterions")]
    pub sites_criterions: Option<Criterions>,
    #[serde(rename = "urlsCriterions", alias = "criterions")]
    criterions: Option<Criterions>,
    /// URLs in all.
    #[serde(rename = "maxURLs")]
    pub max_urls: Option<usize>,
    /// 1: each site gives its share.
    pub algorithm: u8,
    #[serde(rename = "urlUpdate")]
    url_update: Option<Map<String, Json>>,
    #[serde(rename = "siteUpdate")]
    site_update: Option<Map<String, Json>>,
    #[serde(rename = "isLocking", alias = "lock", deserialize_with = "flag")]
    is_locking: bool,
    #[serde(rename = "lockIterationTimeout")]
    _lock_iteration: Ignored,
    /// Attributes that are told with each URL, by name.
    #[serde(rename = "attributeNames")]
    attribute_names: Vec<String>,
}

impl Default for UrlFetch {
    fn default() -> Self {
        UrlFetch {
            sites: Vec::new(),
            sites_criterions: None,
            criterions: None,
            max_urls: None,
            algorithm: 0,
            url_update: None,
            site_update: None,
            is_locking: true,
            _lock_iteration: Ignored,
            attribute_names: Vec::new(),
        }
    }
}

impl UrlFetch {
    /// Reads one.
    pub fn read(body: Json) -> Result<UrlFetch, BadRequest> {
        let fetch: UrlFetch = read(body)?;
        if fetch.algorithm > 1 {
            return Err(BadRequest::new(
                "algorithm",
                "0 takes them as they come, 1 from each site its share".to_owned(),
            ));
        }
        let inside = |part: &str, bad: BadRequest| BadRequest::new(&format!("{part}.{}", bad.field), bad.what);
        fetch.url_update().map_err(|bad| inside("urlUpdate", bad))?;
        fetch.site_update("0").map_err(|bad| inside("siteUpdate", bad))?;
        Ok(fetch)
    }

    /// Whether a request, as it came in, asks for more than to look; one that cannot be read is refused anyway.
    pub fn is_change(body: &str) -> bool {
        let one =
            |body: &Json| ["urlUpdate", "siteUpdate"].iter().any(|name| body.get(name).is_some_and(|it| !it.is_null()));
        match serde_json::from_str(body) {
            Ok(Json::Array(bodies)) => bodies.iter().any(one),
            Ok(body) => one(&body),
            Err(_) => false,
        }
    }

    /// What URL_UPDATE is to do with every URL that is found. Fields that the crawl measures are read and have no meaning.
    pub fn url_update(&self) -> Result<Option<UrlOrder>, BadRequest> {
        let Some(fields) = &self.url_update else { return Ok(None) };
        let mut fields = fields.clone();
        let is_set = |name: &str| matches!(name, "status" | "state");
        let is_measured = |name: &str| MEASURED.contains(&name) || URL_FIELDS.iter().any(|(known, _)| *known == name);
        fields.retain(|name, _| is_set(name) || !(is_measured(name) || name == "criterions"));
        UrlOrder::read(Json::Object(fields)).map(Some)
    }

    /// What SITE_UPDATE is to do with a site that is looked at.
    pub fn site_update(&self, id: &str) -> Result<Option<SiteUpdate>, BadRequest> {
        let Some(fields) = &self.site_update else { return Ok(None) };
        let mut fields = fields.clone();
        fields.remove("criterions");
        fields.insert("id".to_owned(), Json::from(id));
        SiteUpdate::read(Json::Object(fields)).map(Some)
    }

    /// Whether nobody else may claim meanwhile.
    pub fn locks(&self) -> bool {
        self.is_locking && self.url_update.is_some()
    }

    /// Whether attributes are asked for.
    pub fn wants_attributes(&self) -> bool {
        !self.attribute_names.is_empty()
    }

    /// Whether this attribute is asked for.
    pub fn wants_attribute(&self, name: &str) -> bool {
        self.attribute_names.iter().any(|wanted| wanted == ALL || wanted == name)
    }

    /// The criterions with `limit` instead of their own.
    pub fn limited(&self, limit: Option<usize>) -> Criterions {
        let mut criterions = self.criterions.clone().unwrap_or_default();
        if let Some(limit) = limit.or(self.max_urls) {
            criterions.limit = Some(Json::from(limit));
        }
        criterions
    }

    /// Says what is wrong with the criterions before anybody is asked.
    pub fn checked(&self) -> Result<Query, BadRequest> {
        self.limited(None).query(Source::Urls)
    }
}

/// Who claims URLs now: one at a time in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchLock {
    holder: NodeId,
    /// It is free from then on, Unix milliseconds.
    until_unix_ms: u64,
}

impl FetchLock {
    /// The name under which it is defined.
    pub fn key() -> DefinitionKey {
        DefinitionKey { kind: DefinitionKind::Setting, name: "url_fetch".to_owned() }
    }

    /// The lock in the hands of `holder`, if it is free.
    pub fn taken(known: Option<FetchLock>, holder: NodeId, unix_ms: u64) -> Option<FetchLock> {
        let free =
            known.is_none_or(|lock| lock.until_unix_ms <= unix_ms || lock.until_unix_ms > unix_ms + 2 * LOCKED_FOR_MS);
        free.then(|| FetchLock { holder, until_unix_ms: unix_ms.saturating_add(LOCKED_FOR_MS) })
    }

    /// The lock when nobody has it.
    pub fn released(self) -> FetchLock {
        FetchLock { until_unix_ms: 0, ..self }
    }

    /// Whether at least half of its time is left: what is begun now ends before somebody else may take it.
    pub fn is_fresh(&self, unix_ms: u64) -> bool {
        self.until_unix_ms >= unix_ms.saturating_add(LOCKED_FOR_MS / 2)
    }

    /// The bytes that nodes keep.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        wire::encode(&(VERSION, self))
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Option<FetchLock> {
        wire::decode::<(u16, FetchLock)>(bytes).ok().map(|(_, lock)| lock)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fetch_has_its_own_limit() {
        let fetch =
            UrlFetch::read(json!({"maxURLs": 7, "urlsCriterions": {"WHERE": "status = 7", "LIMIT": 3}})).unwrap();
        assert_eq!(fetch.checked().unwrap().limit, 7);
        assert_eq!(fetch.limited(Some(2)).query(Source::Urls).unwrap().limit, 2);
        assert!(UrlFetch::read(json!({"algorithm": 2})).is_err());
        assert!(UrlFetch::read(json!({"urlsCriterions": {"WHERE": "x = 1"}})).unwrap().checked().is_err());
    }

    #[test]
    fn what_is_done_with_urls_and_sites_is_checked_before_anybody_is_asked() {
        let claim = json!({"urlUpdate": {"state": 1, "batchId": 7, "size": 3, "url": null, "criterions": {}}, "siteUpdate": {"priority": 3}, "lockIterationTimeout": 1});
        let fetch = UrlFetch::read(claim.clone()).unwrap();
        assert_eq!(fetch.url_update().unwrap().unwrap().state, Some(1));
        assert_eq!(fetch.site_update("news").unwrap().unwrap().id, "news");
        assert!(fetch.locks() && UrlFetch::is_change(&claim.to_string()));
        let plain = json!({"isLocking": true, "urlUpdate": null});
        assert!(!UrlFetch::read(plain.clone()).unwrap().locks() && !UrlFetch::is_change(&plain.to_string()));
        assert!(UrlFetch::is_change(&json!([plain, claim]).to_string()) && !UrlFetch::is_change("nonsense"));
        let asks = |body: &Json| {
            let (operation, body) = (crate::site::Operation::UrlFetch, body.to_string());
            crate::control::Request::Operation { operation, body, merge: true }.is_question()
        };
        assert!(asks(&plain) && !asks(&claim), "who may only look may not claim");
        assert!(!UrlFetch::read(json!({"lock": 0, "urlUpdate": {"state": 1}})).unwrap().locks());
        for (body, word) in [
            (json!({"urlUpdate": {"nosuch": 1}}), "urlUpdate.nosuch"),
            (json!({"urlUpdate": {"state": "x"}}), "urlUpdate.state"),
            (json!({"urlUpdate": 1}), "urlUpdate"),
            (json!({"siteUpdate": {"updateType": 7}}), "siteUpdate.updateType"),
            (json!({"siteUpdate": {"contents": 7}}), "siteUpdate.contents"),
            (json!({"isLocking": []}), "isLocking"),
            (json!({"attributeNames": "a"}), "attributeNames"),
        ] {
            let bad = UrlFetch::read(body.clone()).unwrap_err().to_string();
            assert!(bad.contains(word), "{body}: {bad}");
        }
    }

    #[test]
    fn attributes_are_asked_for_by_name_or_all_of_them() {
        let wants =
            |names: Json, name: &str| UrlFetch::read(json!({"attributeNames": names})).unwrap().wants_attribute(name);
        assert!(wants(json!(["a", "b"]), "b") && !wants(json!(["a"]), "b") && wants(json!(["*"]), "b"));
        assert!(!UrlFetch::default().wants_attributes() && !wants(json!([]), "b"));
    }

    #[test]
    fn the_lock_is_one_persons_until_it_is_given_back_or_its_time_is_over() {
        let now = 1_000_000;
        let mine = FetchLock::taken(None, NodeId(1), now).unwrap();
        assert_eq!(FetchLock::decode(&mine.encode().unwrap()), Some(mine));
        assert_eq!(FetchLock::taken(Some(mine), NodeId(2), now + LOCKED_FOR_MS - 1), None);
        assert!(FetchLock::taken(Some(mine), NodeId(2), now + LOCKED_FOR_MS).is_some());
        assert!(FetchLock::taken(Some(mine.released()), NodeId(2), now).is_some());
        assert!(
            FetchLock::taken(Some(mine), NodeId(2), 10).is_some(),
            "a clock that was wrong keeps nobody out for ever"
        );
        assert!(mine.is_fresh(now) && !mine.is_fresh(now + LOCKED_FOR_MS / 2 + 1));
    }
}
