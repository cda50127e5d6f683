//! A site, the unit in which the users of the HCE Distributed Crawler think: root URLs, filters, limits, properties.
//!
//! **A site is a crawl with more fields.** [`SiteDefinition::crawl`] says which one; so what holds of crawls (scope, delay, pages, pausing, recrawling)
//! holds of sites and is written once. Its URLs are kept under the site's id. Emptying a site gives its URLs a new name (`id~1`, `id~2`, …):
//! whatever of the old name is still in flight, or comes back with a node that was away, is of a name that nobody fetches any more. So that the number
//! never repeats, a site that was deleted stays defined as deleted, without its fields.
//!
//! Fields and their names in JSON are those of the original. Dates are UTC, `2026-11-17 02:00:00`. For every `max…` field 0 means no limit.

mod attribute;
pub mod batch;
pub mod content;
mod custom;
mod fetch;
mod filter;
mod frequency;
mod gone;
pub mod history;
pub mod life;
mod manner;
pub mod note;
mod operation;
pub mod page_filter;
pub mod proxy;
#[cfg(test)]
mod tests;
pub(crate) mod times;
mod update;
pub mod upkeep;
mod url;

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

pub use self::attribute::{ATTRIBUTE_NAME_BYTES_MAX, Attribute};
pub use self::content::{UrlContent, UrlPut};
pub use self::custom::SqlCustom;
pub use self::fetch::{FetchLock, Turns, UrlFetch, shares};
pub use self::filter::{RedirectFilters, SiteFilter};
pub use self::frequency::{Allowed, Frequencies, Turn};
pub use self::gone::Gone;
pub use self::manner::{Manner, Places};
pub use self::operation::{BadRequest, Criterions, Operation, SiteCleanup, SiteDelete, SiteFind, SiteStatus, code};
pub use self::proxy::{NoSuchChange, ProxyOrder, SiteProxy};
pub use self::update::SiteUpdate;
pub use self::upkeep::Upkeep;
pub use self::url::{KEPT, SiteSelect, UrlNew, UrlOrder, UrlRow, json_of, with_site, with_window};
use crate::crawl::definition::{CrawlDefinition, CrawlState, SEEDS_MAX};
use crate::crawl::filter::Scope;
use crate::key::crawl_name_is_valid;
use crate::query::{Row, Value};
use crate::scrape::Processing;
use crate::wire::{self, WireError};

/// The site of URLs that belong to no other. It is there from the beginning.
pub const GENERAL_SITE: &str = "0";
/// Bytes of a description.
pub const DESCRIPTION_BYTES_MAX: usize = 64;
/// Bytes of an id.
pub const ID_BYTES_MAX: usize = 64;
/// Properties of a site.
pub const PROPERTIES_MAX: usize = 256;
/// Bytes of a property's value.
pub const PROPERTY_BYTES_MAX: usize = 8_192;
/// Properties that are conditions on URLs.
const CONDITIONS: [&str; 5] = [
    "AGING_URL_CRITERION",
    "RECRAWL_WHERE",
    "RECRAWL_DELETE_WHERE",
    "AUTO_REMOVE_RESOURCES_WHERE",
    "PROCESS_WHERE_URLS",
];
/// Version of the encoding of a site.
const VERSION: u16 = 1;

/// States of a site, by the numbers of the original.
pub mod state {
    /// Its URLs are crawled.
    pub const ACTIVE: u8 = 1;
    /// Switched off by a person.
    pub const DISABLED: u8 = 2;
    /// Switched off for a while, or because a limit was reached.
    pub const SUSPENDED: u8 = 3;
    /// Only in an update: begin again with the root URLs.
    pub const RESTART: u8 = 6;
    /// Only in an answer: there is no such site.
    pub const NOT_FOUND: u8 = 9;
}

/// What becomes of links of a site's pages.
pub mod url_type {
    /// They are followed as the filters say.
    pub const REGULAR: u8 = 0;
    /// They are not followed.
    pub const SINGLE: u8 = 1;
    /// Only of a URL that is told: it came with a feed, and is not fetched.
    pub const FETCHED: u8 = 4;
}

/// A root URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RootUrl {
    /// The URL.
    pub url: String,
}

impl<'de> Deserialize<'de> for RootUrl {
    /// A text, or an object of the original, of which only `url` counts.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let url = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(url) => Some(url),
            serde_json::Value::Object(mut fields) => match fields.remove("url") {
                Some(serde_json::Value::String(url)) => Some(url),
                _ => None,
            },
            _ => None,
        };
        let url =
            url.ok_or_else(|| serde::de::Error::custom("a root URL is a text, or an object with the text `url`"))?;
        Ok(RootUrl { url })
    }
}

/// A property: a name and a value that some part of the crawl, or its user, goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Property {
    /// Its name.
    pub name: String,
    /// Its value; numbers and yes/no become texts.
    #[serde(deserialize_with = "text_of_anything")]
    pub value: String,
    /// The URL that it is for; empty for all of the site.
    #[serde(rename = "urlMd5", skip_serializing_if = "String::is_empty")]
    pub url_md5: String,
    #[serde(rename = "siteId", skip_serializing)]
    site_id: Ignored,
    #[serde(rename = "userId", skip_serializing)]
    user_id: Ignored,
    #[serde(rename = "uDate", skip_serializing)]
    u_date: Ignored,
}

/// A field of the original that says what we know already: whose part it is, and when it was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Ignored)
    }
}

fn text_of_anything<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    })
}

/// The original writes yes and no as `true`, `1` and `"1"`.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Bool(said) => Ok(said),
        serde_json::Value::Number(number) if matches!(number.as_u64(), Some(0 | 1)) => Ok(number.as_u64() == Some(1)),
        serde_json::Value::String(text) if text == "0" || text == "1" => Ok(text == "1"),
        other => Err(serde::de::Error::custom(format!("{other} is neither yes nor no"))),
    }
}

/// Where a site began to count anew: at its last RESTART.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Restarted {
    /// URLs that had failed by then. They are no errors of the site any more, of which it may have `maxErrors`.
    pub errors: u64,
    /// When that was. What URLs failed of before is not in `errorMask`.
    #[serde(rename = "unixMs")]
    pub unix_ms: u64,
}

impl Restarted {
    /// Whether it never was.
    pub fn is_never(&self) -> bool {
        *self == Restarted::default()
    }
}

/// A site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)] // the names are those of the original; what they mean stands in docs/sites.md
pub struct Site {
    pub id: String,
    pub description: String,
    pub state: u8,
    pub priority: u16,
    #[serde(rename = "urlType")]
    pub url_type: u8,
    #[serde(rename = "fetchType")]
    pub fetch_type: u8,
    #[serde(rename = "userId")]
    pub user_id: u64,
    #[serde(rename = "categoryId")]
    pub category_id: u64,
    #[serde(rename = "maxURLs")]
    pub max_urls: u64,
    #[serde(rename = "maxURLsFromPage")]
    pub max_urls_from_page: u64,
    #[serde(rename = "maxResources")]
    pub max_resources: u64,
    #[serde(rename = "maxErrors")]
    pub max_errors: u64,
    #[serde(rename = "maxResourceSize")]
    pub max_resource_size: u64,
    #[serde(rename = "requestDelay")]
    pub request_delay: u64,
    #[serde(rename = "processingDelay")]
    pub processing_delay: u64,
    #[serde(rename = "httpTimeout")]
    pub http_timeout: u64,
    #[serde(rename = "recrawlPeriod")]
    pub recrawl_period: u64,
    #[serde(rename = "recrawlDate")]
    pub recrawl_date: Option<String>,
    #[serde(rename = "moveURLs", deserialize_with = "flag")]
    pub move_urls: bool,
    pub urls: Vec<RootUrl>,
    pub filters: Vec<SiteFilter>,
    pub properties: Vec<Property>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<SiteProxy>,
    #[serde(rename = "cDate")]
    pub c_date: Option<String>,
    #[serde(rename = "uDate")]
    pub u_date: Option<String>,
    #[serde(rename = "tcDate")]
    pub tc_date: Option<String>,
    #[serde(rename = "tcDateProcess")]
    pub tc_date_process: Option<String>,
    pub iterations: u64,
    #[serde(rename = "errorMask")]
    pub error_mask: u64,
    #[serde(skip_serializing_if = "Restarted::is_never")]
    pub restarted: Restarted,
    // From here on counted, never kept.
    pub resources: u64,
    pub contents: u64,
    #[serde(rename = "collectedURLs")]
    pub collected_urls: u64,
    #[serde(rename = "newURLs")]
    pub new_urls: u64,
    #[serde(rename = "deletedURLs")]
    pub deleted_urls: u64,
    pub errors: u64,
    pub size: u64,
    #[serde(rename = "avgSpeed")]
    pub avg_speed: u64,
    #[serde(rename = "avgSpeedCounter")]
    pub avg_speed_counter: u64,
}

impl Default for Site {
    /// The defaults of the original's objects, where its database has others too.
    fn default() -> Self {
        Site {
            id: String::new(),
            description: String::new(),
            state: state::ACTIVE,
            priority: 100,
            url_type: url_type::REGULAR,
            fetch_type: 1,
            user_id: 0,
            category_id: 0,
            max_urls: 0,
            max_urls_from_page: 0,
            max_resources: 0,
            max_errors: 0,
            max_resource_size: 0,
            request_delay: 500,
            processing_delay: 500,
            http_timeout: 30_000,
            recrawl_period: 0,
            recrawl_date: None,
            move_urls: true,
            urls: Vec::new(),
            filters: Vec::new(),
            properties: Vec::new(),
            proxies: Vec::new(),
            c_date: None,
            u_date: None,
            tc_date: None,
            tc_date_process: None,
            iterations: 0,
            error_mask: 0,
            restarted: Restarted::default(),
            resources: 0,
            contents: 0,
            collected_urls: 0,
            new_urls: 0,
            deleted_urls: 0,
            errors: 0,
            size: 0,
            avg_speed: 0,
            avg_speed_counter: 0,
        }
    }
}

/// The MD5 of a text, in hexadecimal digits.
pub fn md5_hex(text: &str) -> String {
    md5_of(text.as_bytes())
}

/// The MD5 of bytes, in hexadecimal digits.
pub fn md5_of(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Site {
    /// The site that is there from the beginning: it takes every URL it is given, follows no link, and has pages of some types processed by general rules.
    pub fn general() -> Site {
        let everything = SiteFilter { pattern: "htt(.*)".to_owned(), ..SiteFilter::default() };
        let (name, value) = ("PROCESS_CTYPES", "text/html,text/xml,application/rss+xml,text/json");
        let processed = Property { name: name.to_owned(), value: value.to_owned(), ..Property::default() };
        Site {
            id: GENERAL_SITE.to_owned(),
            description: "URLs that belong to no other site".to_owned(),
            url_type: url_type::SINGLE,
            filters: vec![everything],
            properties: vec![processed],
            ..Site::default()
        }
    }

    /// The site as one of which nothing was crawled yet.
    pub fn never_crawled(self) -> Site {
        let nothing = Site { iterations: 0, error_mask: 0, restarted: Restarted::default(), ..self };
        Site { tc_date: None, tc_date_process: None, ..nothing }
    }

    /// The value of a property that counts for the whole site.
    pub fn property(&self, name: &str) -> Option<&str> {
        let found = self.properties.iter().find(|property| property.name == name && property.url_md5.is_empty());
        found.map(|property| property.value.as_str())
    }

    /// Checks what can be checked of it alone; an id is made of the first root URL if there is none.
    pub fn checked(mut self) -> Result<Site, BadRequest> {
        let bad = |field: &str, what: String| Err(BadRequest::new(field, what));
        if self.id.is_empty() {
            let Some(root) = self.urls.first() else {
                return bad("urls", "a site without an id needs a root URL, of which its id is made".to_owned());
            };
            self.id = md5_hex(&root.url);
        }
        if !crawl_name_is_valid(&self.id) || self.id.len() > ID_BYTES_MAX || self.id.contains('~') {
            let what = format!("{:?} is no id: 1 to {ID_BYTES_MAX} bytes without control characters and ~", self.id);
            return bad("id", what);
        }
        if self.description.len() > DESCRIPTION_BYTES_MAX {
            return bad(
                "description",
                format!("has {} bytes, more than {DESCRIPTION_BYTES_MAX}", self.description.len()),
            );
        }
        if self.urls.len() > SEEDS_MAX {
            return bad(
                "urls",
                format!("{} root URLs, more than {SEEDS_MAX}; hand the others in with URL_NEW", self.urls.len()),
            );
        }
        if !matches!(self.state, state::ACTIVE | state::DISABLED | state::SUSPENDED) {
            return bad(
                "state",
                format!("{} is no state that a site can be given: 1 active, 2 disabled, 3 suspended", self.state),
            );
        }
        if !matches!(self.url_type, url_type::REGULAR | url_type::SINGLE) {
            return bad("urlType", format!("{}: 0 (follow links) and 1 (follow none) are supported", self.url_type));
        }
        if self.fetch_type != 1 {
            return bad(
                "fetchType",
                format!("{}: only 1 (static) is supported, pages are not rendered", self.fetch_type),
            );
        }
        if self.properties.len() > PROPERTIES_MAX {
            return bad("properties", format!("{} of them, more than {PROPERTIES_MAX}", self.properties.len()));
        }
        for (at, property) in self.properties.iter().enumerate() {
            if property.name.is_empty() {
                return bad(&format!("properties[{at}].name"), "is missing".to_owned());
            }
            if property.value.len() > PROPERTY_BYTES_MAX {
                return bad(&format!("properties[{at}].value"), format!("more than {PROPERTY_BYTES_MAX} bytes"));
            }
            if !property.url_md5.is_empty() && url::parse_id(&property.url_md5).is_none() {
                let what = format!("{:?} is no id and no MD5: 32 hexadecimal digits", property.url_md5);
                return bad(&format!("properties[{at}].urlMd5"), what);
            }
        }
        for name in CONDITIONS {
            if let Some(text) = self.property(name) {
                upkeep::check_condition(name, text)?;
            }
        }
        self.life_is_understood()?;
        self.frequencies()?;
        if self.proxies.len() > proxy::PROXIES_MAX {
            return bad("proxies", format!("{} of them, more than {}", self.proxies.len(), proxy::PROXIES_MAX));
        }
        self.proxies = self.proxies.into_iter().map(SiteProxy::checked).collect::<Result<_, _>>()?;
        self.page_rules_are_understood()?;
        for url in self.own_urls() {
            // Places are those among the properties that count for that URL.
            self.for_url(url)
                .page_rules_are_understood()
                .map_err(|error| BadRequest::new(&format!("properties of {url}: {}", error.field), error.what))?;
        }
        let dates = [
            ("recrawlDate", &self.recrawl_date),
            ("cDate", &self.c_date),
            ("uDate", &self.u_date),
            ("tcDate", &self.tc_date),
            ("tcDateProcess", &self.tc_date_process),
        ];
        for (name, text) in dates {
            if let Some(text) = text.as_ref().filter(|text| crate::date::parse(text).is_none()) {
                return bad(name, format!("{text:?} is no time; one looks like 2026-11-17 02:00:00"));
            }
        }
        for (at, filter) in self.filters.iter().enumerate() {
            filter.checked().map_err(|error| BadRequest::new(&format!("filters[{at}].{}", error.field), error.what))?;
        }
        // What is counted is not kept.
        (self.resources, self.contents, self.collected_urls, self.new_urls, self.deleted_urls) = (0, 0, 0, 0, 0);
        (self.errors, self.size, self.avg_speed, self.avg_speed_counter) = (0, 0, 0, 0);
        Ok(self)
    }
}

impl Site {
    /// Says what is wrong with the properties that say how pages are asked for and what becomes of them.
    fn page_rules_are_understood(&self) -> Result<(), BadRequest> {
        Manner::of_site(self)?;
        Processing::of_site(self).map(drop).map_err(|(at, error)| {
            let inside = if error.path.is_empty() { String::new() } else { format!(".{}", error.path) };
            BadRequest::new(&format!("properties[{at}].value{inside}"), error.what)
        })
    }
}

impl Row for Site {
    fn value(&self, field: &'static str) -> Value {
        let time =
            |text: &Option<String>| text.as_deref().and_then(crate::date::parse).map_or(Value::Null, Value::Time);
        match field {
            "id" => Value::text(&self.id),
            "description" => Value::text(&self.description),
            "url" => self.urls.first().map_or(Value::Null, |root| Value::text(&root.url)),
            "state" => Value::int(self.state),
            "priority" => Value::int(self.priority),
            "urlType" => Value::int(self.url_type),
            "userId" => Value::int(self.user_id),
            "categoryId" => Value::int(self.category_id),
            "resources" => Value::int(self.resources),
            "contents" => Value::int(self.contents),
            "collectedURLs" => Value::int(self.collected_urls),
            "newURLs" => Value::int(self.new_urls),
            "errors" => Value::int(self.errors),
            "size" => Value::int(self.size),
            "iterations" => Value::int(self.iterations),
            "errorMask" => Value::int(self.error_mask),
            "maxURLs" => Value::int(self.max_urls),
            "maxURLsFromPage" => Value::int(self.max_urls_from_page),
            "maxResources" => Value::int(self.max_resources),
            "maxErrors" => Value::int(self.max_errors),
            "maxResourceSize" => Value::int(self.max_resource_size),
            "requestDelay" => Value::int(self.request_delay),
            "processingDelay" => Value::int(self.processing_delay),
            "httpTimeout" => Value::int(self.http_timeout),
            "fetchType" => Value::int(self.fetch_type),
            "recrawlPeriod" => Value::int(self.recrawl_period),
            "recrawlDate" => time(&self.recrawl_date),
            "cDate" => time(&self.c_date),
            "uDate" => time(&self.u_date),
            "tcDate" => time(&self.tc_date),
            _ => Value::Null,
        }
    }
}

/// A site as every node keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteDefinition {
    /// Its fields; only the id if it is deleted.
    pub site: Site,
    /// How often it was emptied or deleted.
    pub epoch: u32,
    /// It is no more.
    pub deleted: bool,
}

impl SiteDefinition {
    /// A site that is new.
    pub fn new(site: Site) -> SiteDefinition {
        SiteDefinition { site, epoch: 0, deleted: false }
    }

    /// The crawl under whose name its URLs are kept.
    pub fn crawl_name(&self) -> String {
        match self.epoch {
            0 => self.site.id.clone(),
            epoch => format!("{}~{epoch}", self.site.id),
        }
    }

    /// The crawl that it is, whatever the time: where its filters have times, they are those of no moment.
    pub fn crawl(&self) -> CrawlDefinition {
        self.crawl_at(0)
    }

    /// Whether its filters of URLs have times: then it is another crawl every hour.
    pub fn has_times(&self) -> bool {
        !self.deleted && filter::have_times(&self.site.filters)
    }

    /// The crawl that it is at a moment.
    pub fn crawl_at(&self, unix_ms: u64) -> CrawlDefinition {
        let site = &self.site;
        let seeds: Vec<String> = site.urls.iter().map(|root| root.url.clone()).collect();
        let (mut include, mut exclude) = filter::patterns(&site.filters, unix_ms);
        exclude.extend(filter::protocols_left_out(site.property("PROTOCOLS").unwrap_or_default()));
        let scope = if include.is_empty() { Scope::Host } else { Scope::Any };
        if scope == Scope::Any {
            // Who names a root URL wants it, whatever the filters for links say.
            include.extend(seeds.iter().map(|seed| format!("^{}$", regex::escape(seed))));
        }
        let some = |limit: u64| (limit > 0).then_some(limit);
        let crawls = site.mode(upkeep::mode::CRAWL);
        CrawlDefinition {
            name: self.crawl_name(),
            seeds,
            scope,
            include,
            exclude,
            depth_max: (site.url_type == url_type::SINGLE).then_some(0),
            pages_max: some(site.max_resources),
            delay_ms: some(site.request_delay),
            // A site with a date is crawled again as a whole when that has come; else each page in its own time.
            recrawl_period_s: some(site.recrawl_period.saturating_mul(60)).filter(|_| site.recrawl_date.is_none()),
            state: match site.state {
                state::ACTIVE if crawls => CrawlState::Running,
                state::DISABLED => CrawlState::Stopped,
                _ => CrawlState::Paused,
            },
            defined_at: site.c_date.as_deref().and_then(crate::date::parse).unwrap_or(0),
            fetch: None,
        }
    }

    /// The bytes that nodes keep. The fields are JSON in them, so that fields may be added.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let fields = serde_json::to_string(&self.site).expect("a site has only texts, numbers and lists of them");
        wire::encode(&(VERSION, fields, self.epoch, self.deleted))
    }

    /// The epoch, and whether it is deleted, of what [`encode`](Self::encode) wrote.
    pub fn standing(bytes: &[u8]) -> Option<(u32, bool)> {
        let (_, _, epoch, deleted): (u16, String, u32, bool) = wire::decode(bytes).ok()?;
        Some((epoch, deleted))
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Option<SiteDefinition> {
        let (_, fields, epoch, deleted): (u16, String, u32, bool) = wire::decode(bytes).ok()?;
        let site = serde_json::from_str(&fields).ok()?;
        Some(SiteDefinition { site, epoch, deleted })
    }
}
