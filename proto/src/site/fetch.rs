//! URL_FETCH: which URLs are looked for, and what is done with those that are found.
//!
//! Whoever works on URLs with programs of their own claims them: `urlUpdate` is done to every URL that is given out, so that the next who asks with the same condition
//! gets others. Two who ask at once must not get the same ones. Of two changes of a definition at once only one is acknowledged ([`crate::cluster::registry`]); so
//! who claims first takes the [`FetchLock`], a definition that there is once in the whole cluster, and gives it back.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::operation::{BadRequest, Criterions, read};
use super::url::MEASURED;
use super::{Ignored, Site, SiteUpdate, UrlOrder, flag};
use crate::cluster::registry::{DefinitionKey, DefinitionKind};
use crate::id::NodeId;
use crate::query::{Query, ROWS_MAX, Source, URL_FIELDS};
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

    /// How many URLs of each site meet the criterions, as a query.
    pub fn counting(&self) -> String {
        let condition = self.criterions.as_ref().map(|said| said.condition.trim()).filter(|text| !text.is_empty());
        let condition = condition.map(|text| format!("WHERE ({text}) ")).unwrap_or_default();
        format!("SELECT siteId, COUNT(*) FROM urls {condition}GROUP BY siteId LIMIT {ROWS_MAX}")
    }

    /// Says what is wrong with the criterions before anybody is asked.
    pub fn checked(&self) -> Result<Query, BadRequest> {
        self.limited(None).query(Source::Urls)
    }
}

/// How many URLs each site gives if it has so many that meet the criterions: all of them as many as the others, until there are enough. Who has fewer gives all, and
/// the others fill up. What cannot be shared out is given by the first ones.
pub fn shares(wanted: usize, have: &[usize]) -> Vec<usize> {
    let mut gives = vec![0; have.len()];
    let mut left = wanted;
    loop {
        let more: Vec<usize> = (0..have.len()).filter(|at| have[*at] > gives[*at]).collect();
        if left == 0 || more.is_empty() {
            return gives;
        }
        let each = (left / more.len()).max(1);
        for at in more.into_iter().take(left) {
            let some = each.min(have[at] - gives[at]);
            gives[at] += some;
            left -= some;
        }
    }
}

/// Which sites have given URLs lately: where there are more sites than URLs are wanted, others are the first the next time.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// When each gave some, Unix milliseconds.
    last: BTreeMap<String, u64>,
    latest: u64,
}

impl Turns {
    /// Sites in the order in which they are asked: those of the highest priority, and of these the ones that gave nothing, or were not touched by anybody (`tcDate`), for the
    /// longest time.
    pub fn order<'a>(&self, sites: impl Iterator<Item = &'a Site>) -> Vec<&'a str> {
        let touched = |site: &Site| site.tc_date.as_deref().and_then(crate::date::parse).unwrap_or(0);
        let gave = |site: &Site| self.last.get(&site.id).copied().unwrap_or(0).max(touched(site));
        let mut sites: Vec<&Site> = sites.collect();
        sites.sort_by_key(|site| (Reverse(site.priority), gave(site), &site.id));
        sites.into_iter().map(|site| site.id.as_str()).collect()
    }

    /// These gave some; what is said of sites that there are no more is forgotten.
    pub fn gave<'a>(&mut self, sites: impl Iterator<Item = &'a str>, unix_ms: u64, lives: impl Fn(&str) -> bool) {
        self.latest = unix_ms.max(self.latest + 1);
        self.last.retain(|id, _| lives(id));
        self.last.extend(sites.map(|id| (id.to_owned(), self.latest)));
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
    fn every_site_gives_the_same_until_there_are_enough() {
        for (wanted, have, gives) in [
            (10, vec![100, 100, 100], vec![4, 3, 3]),
            (10, vec![1, 100, 2], vec![1, 7, 2]),
            (10, vec![1, 2, 3], vec![1, 2, 3]),
            (2, vec![5, 5, 5], vec![1, 1, 0]),
            (2, vec![0, 5, 0, 5], vec![0, 1, 0, 1]),
            (0, vec![5], vec![0]),
            (5, vec![], vec![]),
        ] {
            assert_eq!(shares(wanted, &have), gives, "{wanted} of {have:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn shares_are_as_many_as_wanted_and_even(wanted in 0..300usize, have in proptest::collection::vec(0..60usize, 0..12)) {
            let gives = shares(wanted, &have);
            proptest::prop_assert_eq!(gives.iter().sum::<usize>(), wanted.min(have.iter().sum()));
            for (mine, has) in gives.iter().zip(&have) {
                let most = gives.iter().max().copied().unwrap_or(0);
                proptest::prop_assert!(mine == has || mine + 1 >= most, "{:?} of {:?}", gives, have);
            }
        }
    }

    #[test]
    fn sites_take_turns_within_their_priority() {
        let site = |id: &str, more: Json| {
            let mut body = json!({"id": id, "urls": ["http://a.example/"]});
            body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
            Site::read(body).unwrap()
        };
        let touched = json!({"tcDate": "1970-01-01 00:00:02"});
        let sites =
            [site("a", json!({})), site("b", touched), site("c", json!({})), site("d", json!({"priority": 200}))];
        let mut turns = Turns::default();
        let order = |turns: &Turns| turns.order(sites.iter()).concat();
        assert_eq!(order(&turns), "dacb", "who was touched by somebody else comes later");
        turns.gave(["d", "a"].into_iter(), 3_000, |_| true);
        assert_eq!(order(&turns), "dcba", "priority first");
        turns.gave(["c", "b"].into_iter(), 1, |_| true);
        assert_eq!(order(&turns), "dabc", "a clock that was set back changes nothing");
        turns.gave(["c"].into_iter(), 9_000, |id| id != "a");
        assert_eq!((order(&turns), turns.last.len()), ("dabc".to_owned(), 3));
        let counting = |body: Json| UrlFetch::read(body).unwrap().counting();
        assert!(Query::parse(&counting(json!({}))).is_ok());
        assert!(Query::parse(&counting(json!({"criterions": {"WHERE": "status = 1 OR state = 2"}}))).is_ok());
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
