//! URLs of sites: what operations on them are asked with, and how a record is told.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::operation::{BadRequest, Criterions, check_delay, object, read, without_nulls};
use super::{Attribute, GENERAL_SITE, Ignored, Site, UrlPut, md5_hex, url_type};
use crate::control::records::UrlName;
use crate::crawl::crawls::Crawls;
use crate::date;
use crate::error_mask::{ErrorBit, ErrorMask};
use crate::id::UrlId;
use crate::key::UrlKey;
use crate::query::{Row, URL_FIELDS, Value};
use crate::record::{Findings, Status, UrlRecord, UrlState};
use crate::url::{CanonicalUrl, UrlRules};

/// How URL_NEW finds the site of a URL that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteSelect {
    /// It goes to the general site.
    Explicit,
    /// It goes to the site of its origin, which is made if there is none.
    Auto,
    /// It goes to the site of its origin if there is one, to the general site otherwise.
    Qualify,
    /// It is refused.
    None,
}

/// What URL_NEW is asked with, for each URL: a URL as the original has it. What the crawl measures, or the site says, is read and has no meaning.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct UrlNew {
    pub url: String,
    #[serde(rename = "siteId", default)]
    pub site_id: Option<String>,
    #[serde(rename = "siteSelect", default = "none")]
    site_select: u8,
    #[serde(default)]
    pub priority: Option<u16>,
    /// What is set beside it: names and values.
    #[serde(default)]
    attributes: Vec<Map<String, Json>>,
    /// What is changed if it is there already.
    #[serde(rename = "urlUpdate", default)]
    update: Option<Map<String, Json>>,
    /// A content that is handed in with it.
    #[serde(rename = "urlPut", default)]
    put: Option<Map<String, Json>>,
}

/// Fields of a URL of the original that queries here do not have.
pub(super) const MEASURED: [&str; 11] = [
    "type",
    "requestDelay",
    "httpTimeout",
    "processingDelay",
    "maxURLsFromPage",
    "batchId",
    "httpMethod",
    "tagsMask",
    "classifierMask",
    "chainId",
    "urlType",
];

/// Those of them that somebody else works with: nothing here does, so they are kept beside the URL as attributes of these names.
pub const KEPT: [&str; 4] = ["batchId", "tagsMask", "classifierMask", "chainId"];

fn none() -> u8 {
    3
}

impl UrlNew {
    /// Reads one.
    pub fn read(body: Json) -> Result<UrlNew, BadRequest> {
        let mut fields = object(without_nulls(body))?;
        let is_measured = |name: &str| {
            !matches!(name, "url" | "siteId" | "priority")
                && (MEASURED.contains(&name) || URL_FIELDS.iter().any(|(known, _)| *known == name))
        };
        let kept = KEPT.map(|name| (name, fields.get(name).cloned().filter(|value| value != &Json::from(0))));
        fields.retain(|name, _| !is_measured(name));
        let mut url: UrlNew = read(Json::Object(fields))?;
        for (name, value) in kept.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            if !value.is_u64() {
                return Err(BadRequest::new(name, "is no number".to_owned()));
            }
            let attribute = [("name".to_owned(), Json::from(name)), ("value".to_owned(), value)];
            url.attributes.push(Map::from_iter(attribute));
        }
        if url.site_select > 3 {
            return Err(BadRequest::new("siteSelect", "0 explicit, 1 auto, 2 qualify, 3 none".to_owned()));
        }
        // What is wrong is said before anything is kept, wherever that will be.
        let inside = |part: &str, bad: BadRequest| {
            let dot = if bad.field.is_empty() { "" } else { "." };
            BadRequest::new(&format!("{part}{dot}{}", bad.field), bad.what)
        };
        for (at, attribute) in url.attributes(GENERAL_SITE, UrlId([0; 16])).into_iter().enumerate() {
            Attribute::read(attribute).map_err(|bad| inside(&format!("attributes[{at}]"), bad))?;
        }
        if let Some(update) = url.update(GENERAL_SITE) {
            UrlOrder::read(update).map_err(|bad| inside("urlUpdate", bad))?;
        }
        if let Some(put) = url.put(GENERAL_SITE) {
            UrlPut::read(put).map_err(|bad| inside("urlPut", bad))?;
        }
        Ok(url)
    }

    /// How its site is found if it names none.
    pub fn site_select(&self) -> SiteSelect {
        match self.site_select {
            0 => SiteSelect::Explicit,
            1 => SiteSelect::Auto,
            2 => SiteSelect::Qualify,
            _ => SiteSelect::None,
        }
    }

    /// Whether more is asked for than that it is kept.
    pub fn brings_more(&self) -> bool {
        !self.attributes.is_empty() || self.update.is_some() || self.put.is_some()
    }

    /// What ATTRIBUTE_SET is asked with for its attributes.
    pub fn attributes(&self, site: &str, id: UrlId) -> Vec<Json> {
        let of = |fields: &Map<String, Json>| {
            let mut fields = fields.clone();
            fields.insert("siteId".to_owned(), Json::from(site));
            fields.insert("urlMd5".to_owned(), Json::from(id.to_string()));
            Json::Object(fields)
        };
        self.attributes.iter().map(of).collect()
    }

    /// What URL_UPDATE is asked with if it is there already.
    pub fn update(&self, site: &str) -> Option<Json> {
        self.update.as_ref().map(|fields| self.about_itself(site, fields))
    }

    /// What URL_PUT is asked with.
    pub fn put(&self, site: &str) -> Option<Json> {
        self.put.as_ref().map(|fields| self.about_itself(site, fields))
    }

    fn about_itself(&self, site: &str, fields: &Map<String, Json>) -> Json {
        let mut fields = fields.clone();
        for name in ["urlMd5", "urlType", "criterions"] {
            fields.remove(name);
        }
        fields.insert("siteId".to_owned(), Json::from(site));
        fields.insert("url".to_owned(), Json::from(self.url.as_str()));
        Json::Object(fields)
    }
}

/// Names a URL of a site, and says what is to become of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UrlOrder {
    #[serde(default)]
    url: String,
    #[serde(rename = "urlMd5", default)]
    url_md5: String,
    #[serde(rename = "siteId", default)]
    site_id: String,
    /// 1: `url` is an id.
    #[serde(rename = "urlType", default)]
    url_type: u8,
    /// Instead of one URL: all of the site that meet this.
    #[serde(default)]
    pub criterions: Option<Criterions>,
    /// What URL_UPDATE sets: 0 enabled, 1 disabled.
    #[serde(default)]
    pub state: Option<u8>,
    /// What URL_UPDATE sets: 1 to be crawled again.
    #[serde(default)]
    pub status: Option<u8>,
    /// What URL_DELETE does with contents: 1 they go now, 0 they stay until they are purged.
    #[serde(rename = "delayedType", default)]
    pub delayed_type: u8,
    #[serde(rename = "reason", default)]
    _reason: Ignored,
}

impl UrlOrder {
    /// Reads one.
    pub fn read(body: Json) -> Result<UrlOrder, BadRequest> {
        let mut order: UrlOrder = read(body)?;
        order.check_type()?;
        check_delay(order.delayed_type)?;
        // A URL of the original has criterions as a field, which says nothing.
        let is_named = !order.text().is_empty();
        order.criterions = order.criterions.filter(|criterions| !(is_named && criterions.is_empty()));
        if let Some(criterions) = &order.criterions {
            if is_named {
                return Err(BadRequest::new("criterions", "name either a URL or criterions, not both".to_owned()));
            }
            criterions.check_meant()?;
        }
        Ok(order)
    }

    pub(super) fn check_type(&self) -> Result<(), BadRequest> {
        let wrong = || BadRequest::new("urlType", format!("{}: 0 is a URL and 1 an id", self.url_type));
        if self.url_type > 1 { Err(wrong()) } else { Ok(()) }
    }

    /// Names a URL, or its id.
    pub(super) fn naming(site_id: &str, url: &str, url_md5: &str, url_type: u8) -> UrlOrder {
        UrlOrder {
            url: url.to_owned(),
            url_md5: url_md5.to_owned(),
            site_id: site_id.to_owned(),
            url_type,
            criterions: None,
            state: None,
            status: None,
            delayed_type: 0,
            _reason: Ignored,
        }
    }

    /// The site; the general one if none is named.
    pub fn site(&self) -> &str {
        if self.site_id.is_empty() { GENERAL_SITE } else { &self.site_id }
    }

    /// The URL, or the id, as it was given.
    pub fn text(&self) -> &str {
        if self.url.is_empty() { &self.url_md5 } else { &self.url }
    }

    /// The URL that it names, in the form that `rules` bring URLs into.
    pub fn name(&self, rules: &UrlRules) -> Result<UrlName, BadRequest> {
        self.check_type()?;
        let id = if self.url_type == 1 { &self.url } else { &self.url_md5 };
        if !id.is_empty() {
            let parsed = parse_id(id);
            return parsed
                .map(UrlName::Id)
                .ok_or_else(|| BadRequest::new("urlMd5", format!("{id:?} is no id: 32 hexadecimal digits")));
        }
        if self.url.is_empty() {
            return Err(BadRequest::new("url", "is missing".to_owned()));
        }
        let url = CanonicalUrl::parse(&self.url, rules);
        url.map(|url| UrlName::Url(url.as_str().to_owned()))
            .map_err(|error| BadRequest::new("url", format!("{}: {error}", self.url)))
    }
}

pub(super) fn parse_id(text: &str) -> Option<UrlId> {
    let bytes: Option<Vec<u8>> =
        (0..text.len() / 2).map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()).collect();
    let id: [u8; 16] = bytes?.try_into().ok()?;
    (text.len() == 32).then_some(UrlId(id))
}

/// A record as it is told, and as queries look at it.
pub struct UrlRow<'a> {
    /// Its site.
    pub site: &'a str,
    /// Its key.
    pub key: &'a UrlKey,
    /// The record.
    pub record: &'a UrlRecord,
    /// Pages that link to it.
    pub inlinks: u32,
}

impl Row for UrlRow<'_> {
    fn value(&self, field: &'static str) -> Value {
        let record = self.record;
        let found = record.findings.as_deref();
        let number = |of: fn(&Findings) -> u64| Value::int(found.map_or(0, of));
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map_or(Value::Null, Value::text);
        let crawled_at = found.map(|found| found.crawled_at).filter(|at| *at > 0);
        match field {
            "url" => Value::text(&record.url),
            "siteId" => Value::text(self.site),
            "urlMd5" => Value::text(self.key.id().to_string()),
            "parentMd5" => Value::text(record.parent.map(|parent| parent.to_string()).unwrap_or_default()),
            "host" => text(CanonicalUrl::parse(&record.url, &UrlRules::AS_IT_IS).ok().as_ref().map(CanonicalUrl::host)),
            "domain" => text(self.key.domain()),
            "status" => Value::int(record.progress.status as u8),
            "state" => Value::int(record.state as u8),
            "errorMask" => Value::int(record.error_mask.0),
            "failure" => {
                found.and_then(|found| found.failure).map_or(Value::Null, |failure| Value::text(failure.to_string()))
            }
            "httpCode" => number(|found| found.http_code.into()),
            "contentType" => text(found.map(|found| found.content_type.as_str())),
            "charset" => text(found.and_then(|found| found.charset.as_deref())),
            "language" => text(found.and_then(|found| found.language.as_deref())),
            "title" => text(found.and_then(|found| found.title.as_deref())),
            "size" => number(|found| found.size),
            "depth" => Value::int(record.depth),
            "priority" => Value::int(record.priority),
            "crawled" => number(|found| found.crawled.into()),
            "processed" => number(|found| found.processed.into()),
            "changes" => number(|found| found.changes.into()),
            "unchanged" => number(|found| found.unchanged.into()),
            "round" => Value::int(record.progress.round),
            "freq" => Value::int(self.inlinks),
            "linksI" => number(|found| found.links_internal.into()),
            "linksE" => number(|found| found.links_external.into()),
            "crawlingTime" => number(|found| found.crawling_ms.into()),
            "processingTime" => number(|found| found.processing_ms.into()),
            "totalTime" => number(|found| u64::from(found.crawling_ms) + u64::from(found.processing_ms)),
            "rawContentMd5" => match found.map(|found| found.digest).filter(|digest| *digest != [0; 16]) {
                Some(digest) => Value::text(UrlId(digest).to_string()),
                None => Value::Null,
            },
            "contentURLMd5" => {
                found.and_then(|found| found.duplicate_of).map_or(Value::Null, |id| Value::text(id.to_string()))
            }
            "eTag" => text(found.and_then(|found| found.validators.as_ref()?.etag.as_deref())),
            "lastModified" => text(found.and_then(|found| found.validators.as_ref()?.last_modified.as_deref())),
            "noindex" => number(|found| found.noindex.into()),
            "CDate" => Value::Time(record.discovered_at),
            "UDate" => Value::Time(crawled_at.unwrap_or(record.discovered_at)),
            "tcDate" => crawled_at.map_or(Value::Null, Value::Time),
            "pDate" => {
                found.and_then(|found| found.made).and_then(|made| made.published).map_or(Value::Null, Value::Time)
            }
            "tagsCount" => found.and_then(|found| found.made).map_or(Value::Null, |made| Value::int(made.tags)),
            "mRate" => found.map_or(Value::Null, mutability),
            "mRateCounter" => number(|found| u64::from(found.changes) + u64::from(found.unchanged)),
            "contentMask" => number(|found| u64::from(found.size > 0 && found.failure.is_none())),
            "md5" => Value::text(md5_hex(&record.url)),
            _ => Value::Null,
        }
    }
}

/// How often a crawl found something else than the one before: of all crawls that had one before them.
fn mutability(found: &Findings) -> Value {
    let (changes, unchanged) = (f64::from(found.changes), f64::from(found.unchanged));
    if changes + unchanged == 0.0 { Value::Null } else { Value::Float(changes / (changes + unchanged)) }
}

impl UrlRow<'_> {
    /// Whether people still see it.
    pub fn is_there(&self) -> bool {
        !self.record.state.is_gone()
    }

    /// All its fields.
    pub fn json(&self) -> Json {
        let field = |(name, _): &(&'static str, _)| ((*name).to_owned(), json_of(self.value(name)));
        Json::Object(URL_FIELDS.iter().map(field).collect::<Map<String, Json>>())
    }
}

/// Puts into a URL that is told what is its site's to say: the fields that a URL of the original has of its own.
pub fn with_site(mut url: Json, site: &Site) -> Json {
    if let Json::Object(fields) = &mut url {
        let number = |name: &str| fields.get(name).and_then(Json::as_u64);
        // Of a site whose pages are found through feeds all but the root URLs and the feeds are single.
        let by_feeds = site.property("PROCESSOR_NAME").is_some_and(|name| name.trim().eq_ignore_ascii_case("RSS"));
        let is_feed = fields.get("contentType").and_then(Json::as_str).is_some_and(|of| of.ends_with("xml"));
        let found_by_feed = by_feeds && !is_feed && number("depth") > Some(0);
        let url_type = if found_by_feed { url_type::SINGLE } else { site.url_type };
        let came_with_feed = number("crawled") == Some(0) && number("processed") > Some(0);
        let said = [
            ("type", Json::from(if came_with_feed { url_type::FETCHED } else { url_type })),
            ("requestDelay", Json::from(site.request_delay)),
            ("processingDelay", Json::from(site.processing_delay)),
            ("httpTimeout", Json::from(site.http_timeout)),
            ("maxURLsFromPage", Json::from(site.max_urls_from_page)),
            ("httpMethod", Json::from("get")),
        ];
        fields.extend(said.map(|(name, value)| (name.to_owned(), value)));
    }
    url
}

/// Puts the bit of a closed window into a URL that is told and waits for its host. It says how things stand now, and is kept nowhere.
pub fn with_window(mut url: Json, crawls: &Crawls, unix_ms: u64) -> Json {
    let waits = url["status"] == Status::New as u8 && url["state"] == UrlState::Enabled as u8;
    let site = url["siteId"].as_str().and_then(|id| crawls.site(id)).map(|(site, _)| site.crawl_name());
    let (Some(crawl), Some(host)) = (site.filter(|_| waits), url["host"].as_str()) else { return url };
    let closed = crawls.allow(&crawl, || host.to_owned(), unix_ms, u64::MAX);
    if closed.is_some_and(|allowed| allowed.closed_until.is_some()) {
        let mut mask = ErrorMask(url["errorMask"].as_u64().unwrap_or(0));
        mask.set(ErrorBit::NoTimeWindow);
        url["errorMask"] = Json::from(mask.0);
    }
    url
}

/// A value as JSON; times as the original writes them.
pub fn json_of(value: Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Int(number) | Value::Span(number) => Json::from(number),
        Value::Float(number) => Json::from(number),
        Value::Text(text) => Json::from(text),
        Value::Time(unix_ms) => Json::from(date::format(unix_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::copy::tests::kept;
    use crate::cluster::registry::{Definition, DefinitionKey, DefinitionKind, Version};
    use crate::crawl::filter::{Filter, FilterRules};
    use crate::id::NodeId;
    use crate::key::DEFAULT_CRAWL;
    use crate::record::{Made, Progress};
    use crate::site::SiteDefinition;
    use serde_json::json;

    #[test]
    fn what_a_url_of_the_original_says_of_itself_is_told_by_its_site() {
        let site = Site { url_type: 1, request_delay: 70, http_timeout: 9_000, ..Site::default() };
        let told = with_site(json!({"url": "http://a.example/", "status": 1}), &site);
        assert_eq!(
            (&told["type"], &told["requestDelay"], &told["httpTimeout"]),
            (&json!(1), &json!(70), &json!(9_000))
        );
        assert_eq!((&told["httpMethod"], &told["status"]), (&json!("get"), &json!(1)));
        assert_eq!(with_site(Json::Null, &site), Json::Null);
        let entry = with_site(json!({"url": "http://a.example/", "crawled": 0, "processed": 1}), &site);
        assert_eq!(entry["type"], 4, "an entry of a feed was never asked for");
        let rss = json!({"id": "a", "properties": [{"name": "PROCESSOR_NAME", "value": "RSS"}]});
        let rss = Site::read(rss).unwrap();
        let told = |depth: u64, of: &str| with_site(json!({"depth": depth, "contentType": of}), &rss)["type"].clone();
        assert_eq!(
            (told(0, "text/html"), told(1, "text/html"), told(1, "application/rss+xml")),
            (json!(0), json!(1), json!(0))
        );
        let page = with_site(json!({"url": "http://a.example/", "crawled": 2, "processed": 1}), &site);
        assert_eq!(page["type"], 1);
    }

    #[test]
    fn a_url_that_waits_for_its_window_says_so() {
        let limits = json!([{"from": "08:00", "to": "18:00", "max": 0, "host": "a\\."}]).to_string();
        let site = json!({"id": "news", "urls": ["http://a.example/"], "properties": [{"name": "HTTP_FREQ_LIMITS", "value": limits}]});
        let body = Some(SiteDefinition::new(Site::read(site).unwrap()).encode().unwrap());
        let key = DefinitionKey { kind: DefinitionKind::Site, name: "news".into() };
        let version = Version { number: 1, node: NodeId(1), boot: 1 };
        let filter = std::sync::Arc::new(Filter::new(FilterRules::default(), &[]).unwrap());
        let crawls = Crawls::of_cluster(filter, "own", UrlRules::default());
        let crawls = crawls.with(&[Definition { key, version, body }]);
        let told = |host: &str, status: u8, hour: u64| {
            let url = json!({"siteId": "news", "host": host, "status": status, "state": 0, "errorMask": 1});
            with_window(url, &crawls, hour * 3_600_000)["errorMask"].as_u64().unwrap()
        };
        assert_eq!(told("a.example", 1, 9), 1 | 1 << 49);
        assert_eq!((told("a.example", 1, 19), told("a.example", 7, 9), told("b.example", 1, 9)), (1, 1, 1));
        assert_eq!(with_window(Json::Null, &crawls, 0), Json::Null);
    }

    #[test]
    fn every_field_that_is_listed_has_a_value_of_its_kind() {
        let url = CanonicalUrl::parse("http://www.a.example/x", &UrlRules::default()).unwrap();
        let key = UrlKey::new(DEFAULT_CRAWL, &url);
        let mut record = kept(url.as_str(), Progress::new(NodeId(1))).record;
        let made = Some(Made { tags: 4, published: Some(3_000) });
        let found = Findings {
            http_code: 200,
            size: 7,
            crawled_at: 9_000,
            changes: 1,
            unchanged: 3,
            made,
            ..Findings::default()
        };
        record.findings = Some(Box::new(found));
        let row = UrlRow { site: "news", key: &key, record: &record, inlinks: 3 };
        for (name, kind) in URL_FIELDS {
            let value = row.value(name);
            assert!(value == Value::Null || value.kind() == *kind, "{name} is {value:?}");
        }
        let told = row.json();
        assert_eq!((&told["siteId"], &told["size"], &told["freq"]), (&json!("news"), &json!(7), &json!(3)));
        assert_eq!((&told["host"], &told["domain"]), (&json!("www.a.example"), &json!("a.example")));
        assert_eq!((&told["UDate"], &told["pDate"]), (&json!("1970-01-01 00:00:09"), &json!("1970-01-01 00:00:03")));
        assert_eq!((&told["tagsCount"], &told["mRate"], &told["mRateCounter"]), (&json!(4), &json!(0.25), &json!(4)));
        assert_eq!((&told["contentMask"], &told["md5"]), (&json!(1), &json!(md5_hex("http://www.a.example/x"))));
    }

    #[test]
    fn a_url_is_named_by_itself_or_by_its_id() {
        let name = |body: Json| UrlOrder::read(body).and_then(|order| order.name(&UrlRules::default()));
        assert_eq!(name(json!({"url": "HTTP://A.example"})), Ok(UrlName::Url("http://a.example/".into())));
        let id = "00".repeat(15) + "ff";
        let expected = Ok(UrlName::Id(UrlId([0; 16].map(|_: u8| 0))));
        assert_eq!(name(json!({"urlMd5": "00".repeat(16)})), expected);
        assert!(matches!(name(json!({"url": id, "urlType": 1})), Ok(UrlName::Id(_))));
        for (body, field) in [
            (json!({}), "url"),
            (json!({"url": "nonsense"}), "url"),
            (json!({"urlMd5": "xyz"}), "urlMd5"),
            (json!({"urlMd5": "é".repeat(16)}), "urlMd5"),
            (json!({"nosuch": 1}), "nosuch"),
        ] {
            assert!(name(body.clone()).unwrap_err().to_string().contains(field), "{body}");
        }
    }

    #[test]
    fn a_url_is_meant_or_those_that_meet_something_and_never_all_by_mistake() {
        let named = UrlOrder::read(json!({"siteId": "a", "url": "http://a.example/", "criterions": {}})).unwrap();
        assert_eq!(named.criterions, None, "a field of the original that says nothing");
        let named = UrlOrder::read(json!({"urlMd5": "0".repeat(32), "criterions": {"WHERE": null, "ORDER BY": ""}}));
        assert_eq!(named.unwrap().criterions, None);
        for (body, field) in [
            (json!({"url": "http://a.example/", "criterions": {"WHERE": "size > 0"}}), "criterions"),
            (json!({"urlMd5": "0".repeat(32), "criterions": {"LIMIT": 5}}), "criterions"),
            (json!({"siteId": "a", "criterions": {}}), "criterions.WHERE"),
            (json!({"siteId": "a", "criterions": {"WHERE": " ", "ORDER BY": "size"}}), "criterions.WHERE"),
        ] {
            assert_eq!(UrlOrder::read(body.clone()).unwrap_err().field, field, "{body}");
        }
        for criterions in [json!({"WHERE": "1 = 1"}), json!({"LIMIT": 5})] {
            let order = UrlOrder::read(json!({"siteId": "a", "criterions": criterions})).unwrap();
            assert!(order.criterions.unwrap().query_of_all(crate::query::Source::Urls).is_ok());
        }
    }

    #[test]
    fn a_url_as_it_is_told_can_be_handed_in() {
        let url = CanonicalUrl::parse("http://a.example/", &UrlRules::default()).unwrap();
        let key = UrlKey::new(DEFAULT_CRAWL, &url);
        let record = kept(url.as_str(), Progress::new(NodeId(1))).record;
        let told = UrlRow { site: "news", key: &key, record: &record, inlinks: 0 }.json();
        let new = UrlNew::read(told).unwrap();
        assert_eq!(
            (new.url.as_str(), new.site_id.as_deref(), new.priority),
            ("http://a.example/", Some("news"), Some(100))
        );
        assert!(!new.brings_more());
        let more = json!({"url": "http://a.example/", "type": 0, "batchId": 0, "tagsMask": 3, "attributes": [{"name": "a", "value": 1}],
            "urlUpdate": {"status": 1, "state": null}, "urlPut": {"contentType": 1, "putDict": {"data": "Zm9v"}}});
        let more = UrlNew::read(more).unwrap();
        assert!(more.brings_more());
        assert_eq!(more.update("news").unwrap(), json!({"siteId": "news", "url": "http://a.example/", "status": 1}));
        let attributes = more.attributes("news", UrlId([0; 16]));
        assert_eq!((&attributes[0]["urlMd5"], attributes.len()), (&json!("0".repeat(32)), 2));
        assert_eq!((&attributes[1]["name"], &attributes[1]["value"]), (&json!("tagsMask"), &json!(3)), "0 is not kept");
        for (body, field) in [
            (json!({}), "url"),
            (json!({"url": "x", "nosuch": 1}), "nosuch"),
            (json!({"url": "x", "siteSelect": 4}), "siteSelect"),
            (json!({"url": "x", "chainId": "many"}), "chainId"),
            (json!({"url": "x", "attributes": [{"value": 1}]}), "attributes[0].name"),
            (json!({"url": "x", "urlUpdate": {"nosuch": 1}}), "urlUpdate"),
            (json!({"url": "x", "urlPut": {"contentType": 3, "putDict": {"data": ""}}}), "urlPut.contentType"),
        ] {
            assert!(UrlNew::read(body.clone()).unwrap_err().to_string().contains(field), "{body}");
        }
    }
}
