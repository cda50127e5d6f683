//! What is to become of the pages of a site, as its properties say. Read when the site is made or changed, so that what is wrong is said then.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use md5::{Digest, Md5};
use serde_json::Value as Json;
use sha1::Sha1;

use super::harvest::Item;
use super::moment::{DayOrder, MomentRules, of_url, recognise};
use super::template::{TemplateError, Templates, object, text};
use crate::query::{Condition, Source};
use crate::site::Site;
use crate::site::page_filter::{Looked, Moment, PageFilters};

/// Types of content that are processed if a site says none.
const TYPES: [&str; 6] = [
    "text/html",
    "application/xhtml+xml",
    "text/xml",
    "application/xml",
    "application/rss+xml",
    "application/atom+xml",
];
/// Properties that ask for processing.
const ASKING: [&str; 8] = [
    "PROCESSOR_NAME",
    "PROCESSOR_NAME_REPLACE",
    "PROCESS_CTYPES",
    "template",
    "TEMPLATE",
    "CONTENT_HASH",
    "PDATE_SOURCES_MASK",
    "TAGS_MAPPING",
];
/// What stands between values that are put together, if nobody says.
const DELIMITER: &str = " ";

/// What is taken from a page whose site has no template: what most pages say of themselves.
const GENERAL: &str = r##"{"tags": {
    "title": [{"target": "//meta[@property='og:title']/@content"}, {"target": "//h1"}, {"target": "//title"}],
    "link": [{"target": "//link[@rel='canonical']/@href"}, {"target": "//meta[@property='og:url']/@content"}],
    "description": [{"target": "//meta[@property='og:description' or @name='description']/@content"}],
    "author": [{"target": "//meta[@name='author' or @property='article:author']/@content"}, {"target": "//*[@itemprop='author']"}, {"target": "//a[@rel='author']"}, {"target": ".author, .byline"}],
    "pubdate": [{"target": "//meta[@property='article:published_time' or @name='pubdate' or @name='date' or @itemprop='datePublished']/@content", "type": "datetime"}, {"target": "//*[@itemprop='datePublished']", "type": "datetime"}, {"target": "//time[@datetime]", "type": "datetime"}, {"target": "//time", "type": "datetime"}],
    "dc_date": [{"target": "//meta[@name='dc.date' or @name='DC.date' or @name='dc.date.issued' or @name='DC.date.issued']/@content", "type": "datetime"}],
    "keywords": [{"target": "//meta[@name='keywords' or @name='news_keywords']/@content"}, {"target": "//meta[@property='article:tag']/@content", "join": "concat", "delimiter": ","}],
    "media": [{"target": "//meta[@property='og:image']", "type": "image"}, {"target": "article img, main img", "type": "image"}],
    "html_lang": [{"target": "/html/@lang"}],
    "content_encoded": [{"target": "//*[@itemprop='articleBody']"}, {"target": "//article", "join": "best"}, {"target": "//main"}, {"target": "#content, .content, .post, .entry-content", "join": "best"}, {"target": "//body"}]
}}"##;

static GENERAL_TEMPLATES: LazyLock<Templates> =
    LazyLock::new(|| Templates::parse(GENERAL, DELIMITER).expect("a test reads it"));

/// What makes a result of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// Nothing.
    None,
    /// Templates; the page is one thing.
    Scraper,
    /// Templates; a page may be a list of things.
    MultiItems,
    /// The text of the page, without rules.
    Store,
    /// Entries of feeds are results, and are not crawled.
    FeedParser,
    /// Entries of feeds are results, and are crawled.
    Rss,
}

impl Processor {
    const NAMES: [(&'static str, Processor); 8] = [
        ("", Processor::Scraper),
        ("SCRAPER", Processor::Scraper),
        ("NEWS", Processor::Scraper),
        ("SCRAPER_MULTI_ITEMS", Processor::MultiItems),
        ("STORE", Processor::Store),
        ("FEED_PARSER", Processor::FeedParser),
        ("RSS", Processor::Rss),
        ("NONE", Processor::None),
    ];

    fn of_name(name: &str) -> Result<Processor, TemplateError> {
        let found = Processor::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name.trim()));
        found.map(|(_, processor)| *processor).ok_or_else(|| {
            TemplateError::new(
                "",
                format!("{name:?}: there are SCRAPER, SCRAPER_MULTI_ITEMS, STORE, FEED_PARSER, RSS and NONE"),
            )
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Processor::NAMES.iter().skip(1).find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// Where the date of a publication may come from, as bits of PDATE_SOURCES_MASK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateSources(pub u64);

impl DateSources {
    /// The URL.
    pub const URL: u64 = 1;
    /// The entry of a feed.
    pub const FEED: u64 = 2;
    /// The header `Date`.
    pub const DATE_HEADER: u64 = 4;
    /// The header `Last-Modified`.
    pub const LAST_MODIFIED: u64 = 8;
    /// The tag `dc_date`.
    pub const DC_DATE: u64 = 16;
    /// The tag `pubdate`.
    pub const PUBDATE: u64 = 32;
    /// The time of the crawl.
    pub const NOW: u64 = 64;
    const ALL: u64 = 127;
    const DEFAULT: u64 = Self::URL | Self::FEED | Self::LAST_MODIFIED | Self::DC_DATE | Self::PUBDATE;
}

/// How contents are told to be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashing {
    algorithm: Algorithm,
    tags: Vec<String>,
    /// What repeats another is not kept.
    pub delete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Md5,
    Crc32,
    Sha1,
    Md5WithoutMarkup,
}

impl Hashing {
    fn read(value: &str) -> Result<Hashing, TemplateError> {
        let json: Json =
            serde_json::from_str(value).map_err(|error| TemplateError::new("", format!("no JSON: {error}")))?;
        let fields = object(&json, "", &["algorithm", "tags", "delete"])?;
        let algorithm = match text(fields, "algorithm", "")?.as_deref() {
            None | Some("1") => Algorithm::Md5,
            Some("2") => Algorithm::Crc32,
            Some("4") => Algorithm::Sha1,
            Some("9") => Algorithm::Md5WithoutMarkup,
            Some(other) => {
                let what = format!("{other}: there are 1 (MD5), 2 (CRC-32), 4 (SHA-1) and 9 (MD5 without markup)");
                return Err(TemplateError::new("algorithm", what));
            }
        };
        let tags = text(fields, "tags", "")?.unwrap_or_default();
        let tags: Vec<String> =
            tags.split(',').map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
        if tags.is_empty() {
            return Err(TemplateError::new("tags", "is missing: names of tags with commas between them"));
        }
        let delete = matches!(fields.get("delete"), Some(Json::Bool(true))) || text_is_one(fields.get("delete"));
        Ok(Hashing { algorithm, tags, delete })
    }

    /// The hash of a thing, in hexadecimal digits; `None` if it has none of the tags.
    pub fn hash(&self, item: &Item) -> Option<String> {
        let mut values = self.tags.iter().filter_map(|tag| item.get(tag)).peekable();
        values.peek()?;
        let joined = values.collect::<Vec<&str>>().join("\n");
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(match self.algorithm {
            Algorithm::Md5 => hex(&Md5::digest(joined.as_bytes())),
            Algorithm::Sha1 => hex(&Sha1::digest(joined.as_bytes())),
            Algorithm::Crc32 => format!("{:08x}", crc32(joined.as_bytes())),
            Algorithm::Md5WithoutMarkup => hex(&Md5::digest(without_markup(&joined).as_bytes())),
        })
    }
}

fn text_is_one(json: Option<&Json>) -> bool {
    matches!(json, Some(Json::Number(number)) if number.as_u64() == Some(1))
        || matches!(json, Some(Json::String(text)) if text == "1")
}

/// CRC-32 as of zip files, bit by bit: contents are short, and few.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
        crc
    })
}

fn without_markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        match c {
            '<' => inside = true,
            '>' if inside => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What is to become of the pages of a site.
#[derive(Clone, Debug)]
pub struct Processing {
    processor: Processor,
    /// Other processors for some types of content.
    replace: BTreeMap<String, Processor>,
    templates: Option<Templates>,
    types: Vec<String>,
    /// How contents are told to be the same, if they are to be.
    pub hashing: Option<Hashing>,
    sources: DateSources,
    /// How dates are read.
    pub moments: MomentRules,
    mapping: BTreeMap<String, String>,
    filters: PageFilters,
    /// Types of content that are wanted at all; `None` for all.
    allowed: Option<Vec<String>>,
    /// Only pages that meet this are processed.
    only: Option<Condition>,
    /// The language of the text is guessed where the page names none.
    pub detect_language: bool,
}

impl Processing {
    /// Reads it from the properties of a site; `None` if nothing is to be done. An error names the property by its place.
    pub fn of_site(site: &Site) -> Result<Option<Processing>, (usize, TemplateError)> {
        let property = |name: &str| {
            let is = |property: &crate::site::Property| property.name == name && property.url_md5.is_empty();
            site.properties
                .iter()
                .enumerate()
                .find(|(_, property)| is(property))
                .map(|(at, property)| (at, property.value.as_str()))
        };
        let flags = property("MODES_FLAG").and_then(|(_, flags)| flags.trim().parse::<u64>().ok());
        // What is wrong is wrong, whether it is switched on or not.
        let asked = ASKING.iter().any(|name| property(name).is_some());
        let types_in = |text: &str| {
            let one = |name: &str| name.trim().to_ascii_lowercase();
            text.split(',').map(one).filter(|name| !name.is_empty()).collect::<Vec<String>>()
        };
        let allowed = property("ALLOWED_CTYPES").map(|(_, types)| types_in(types)).filter(|types| !types.is_empty());
        // Both were checked when the site was: a site that is read here has been.
        let filters = site.page_filters().unwrap_or_default();
        let only = property("PROCESS_WHERE_URLS")
            .filter(|(_, text)| !text.trim().is_empty())
            .and_then(|(_, text)| Condition::parse(Source::Urls, text).ok());
        let judges = allowed.is_some() || filters.any_at(Moment::Fetched);
        if !asked && !judges {
            return Ok(None);
        }
        let processor = match property("PROCESSOR_NAME") {
            Some((at, name)) => Processor::of_name(name).map_err(|error| (at, error))?,
            None if asked => Processor::Scraper,
            None => Processor::None,
        };
        let replace = match property("PROCESSOR_NAME_REPLACE") {
            Some((at, value)) => replacements(value).map_err(|error| (at, error))?,
            None => BTreeMap::new(),
        };
        let delimiter = property("SCRAPER_TAG_ITEMS_DELIMITER").map_or(DELIMITER, |(_, delimiter)| delimiter);
        let templates = match property("template").or_else(|| property("TEMPLATE")) {
            Some((at, value)) => Some(Templates::parse(value, delimiter).map_err(|error| (at, error))?),
            None => None,
        };
        let types = property("PROCESS_CTYPES").map(|(_, types)| types_in(types));
        let hashing = match property("CONTENT_HASH") {
            Some((at, value)) if !value.trim().is_empty() => Some(Hashing::read(value).map_err(|error| (at, error))?),
            _ => None,
        };
        let sources = match property("PDATE_SOURCES_MASK") {
            None => DateSources(DateSources::DEFAULT),
            Some((at, value)) => match value.trim().parse::<u64>() {
                Ok(mask) if mask <= DateSources::ALL => DateSources(mask),
                _ => {
                    let what = format!(
                        "{value:?}: a sum of 1 URL, 2 feed, 4 Date, 8 Last-Modified, 16 dc_date, 32 pubdate, 64 now"
                    );
                    return Err((at, TemplateError::new("", what)));
                }
            },
        };
        let order = match property("PDATE_DAY_MONTH_ORDER").map(|(at, value)| (at, value.trim())) {
            None | Some((_, "" | "0" | "DM" | "dm")) => DayOrder::DayFirst,
            Some((_, "1" | "MD" | "md")) => DayOrder::MonthFirst,
            Some((at, other)) => {
                return Err((at, TemplateError::new("", format!("{other:?}: 0 (day first) or 1 (month first)"))));
            }
        };
        let offset_minutes = match property("TIMEZONE") {
            None => 0,
            Some((_, "")) => 0,
            Some((at, value)) => MomentRules::offset(value).ok_or_else(|| {
                (at, TemplateError::new("", format!("{value:?} is no offset; +0300, -05:30 and CET are")))
            })?,
        };
        let mapping = match property("TAGS_MAPPING") {
            Some((at, value)) => texts(value).map_err(|error| (at, error))?,
            None => BTreeMap::new(),
        };
        let detect_language =
            property("SCRAPER_LANG_DETECT").is_some_and(|(_, value)| !matches!(value.trim(), "" | "0"));
        let processes = flags.is_none_or(|flags| flags & 2 != 0);
        let (processor, replace) = if processes { (processor, replace) } else { (Processor::None, BTreeMap::new()) };
        if processor == Processor::None && replace.is_empty() && !judges {
            return Ok(None);
        }
        Ok(Some(Processing {
            processor,
            replace,
            templates,
            types: types.unwrap_or_else(|| TYPES.map(str::to_owned).to_vec()),
            hashing,
            sources,
            moments: MomentRules { order, offset_minutes },
            mapping,
            filters,
            allowed,
            only,
            detect_language,
        }))
    }

    /// Whether it only says which pages are looked at, and nothing is made of any.
    pub fn only_judges(&self) -> bool {
        self.processor == Processor::None && self.replace.is_empty()
    }

    /// Whether pages of this type are wanted at all.
    pub fn allows(&self, media_type: &str) -> bool {
        self.allowed
            .as_ref()
            .is_none_or(|types| types.iter().any(|one| one == media_type || one == "*" || one == "*/*"))
    }

    /// Whether the filters of a moment let a page, or what was made of it, pass.
    pub fn passes(&self, moment: Moment, looked: &dyn Looked, now: u64) -> bool {
        self.filters.pass(moment, looked, now)
    }

    /// Whether a page is among those that are processed.
    pub fn picks(&self, looked: &dyn Looked, now: u64) -> bool {
        self.only.as_ref().is_none_or(|only| only.admits(looked, now))
    }

    /// Whether pages are found through feeds: what is no feed and no root URL was, and its links are nobody's business.
    pub fn finds_by_feeds(&self) -> bool {
        self.processor == Processor::Rss
    }

    /// What processes a page of this type; `None` if it is not one that is processed.
    pub fn processor_for(&self, media_type: &str) -> Option<Processor> {
        let wanted = self.types.iter().any(|one| one == media_type || one == "*" || one == "*/*");
        wanted.then(|| self.replace.get(media_type).copied().unwrap_or(self.processor))
    }

    /// The rules: those of the site, or general ones.
    pub fn templates(&self) -> &Templates {
        self.templates.as_ref().unwrap_or(&GENERAL_TEMPLATES)
    }

    /// Gives tags the names that the site wants.
    pub fn renamed(&self, item: Item) -> Item {
        if self.mapping.is_empty() {
            return item;
        }
        let name = |name: String| self.mapping.get(&name).cloned().unwrap_or(name);
        Item(item.0.into_iter().map(|(tag, value)| (name(tag), value)).collect())
    }

    /// When a thing was published, as far as the sources that the site trusts say: what it says itself first, then what is said about it.
    pub fn published(&self, item: &Item, in_feed: bool, about: &About<'_>) -> Option<u64> {
        let on = |bit: u64| self.sources.0 & bit != 0;
        let tag =
            |name: &str| item.get(name).and_then(|value| written(value).or_else(|| recognise(value, &self.moments)));
        let said = |bit: u64, name: &str| if on(bit) { tag(name) } else { None };
        said(if in_feed { DateSources::FEED } else { DateSources::PUBDATE }, "pubdate")
            .or_else(|| said(DateSources::PUBDATE, "pubdate"))
            .or_else(|| said(DateSources::DC_DATE, "dc_date"))
            .or_else(|| {
                if on(DateSources::URL) {
                    of_url(item.get("link").filter(|_| in_feed).unwrap_or(about.url))
                } else {
                    None
                }
            })
            .or_else(|| {
                about
                    .last_modified
                    .filter(|_| on(DateSources::LAST_MODIFIED))
                    .and_then(|said| recognise(said, &MomentRules::default()))
            })
            .or_else(|| {
                about
                    .date
                    .filter(|_| on(DateSources::DATE_HEADER))
                    .and_then(|said| recognise(said, &MomentRules::default()))
            })
            .or_else(|| on(DateSources::NOW).then_some(about.crawled_at))
    }
}

/// A time as we write it ourselves, which is UTC whatever the site's offset.
fn written(value: &str) -> Option<u64> {
    let is_ours = value.len() == 19 && value.as_bytes()[10] == b' ';
    if is_ours { crate::date::parse(value) } else { None }
}

/// What is known of a page besides its content.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Where it is from.
    pub url: &'a str,
    /// The header `Last-Modified`.
    pub last_modified: Option<&'a str>,
    /// The header `Date`.
    pub date: Option<&'a str>,
    /// When it was crawled, Unix milliseconds.
    pub crawled_at: u64,
}

fn texts(value: &str) -> Result<BTreeMap<String, String>, TemplateError> {
    serde_json::from_str(value).map_err(|error| TemplateError::new("", format!("no object of texts: {error}")))
}

fn replacements(value: &str) -> Result<BTreeMap<String, Processor>, TemplateError> {
    let named = |(media_type, name): (String, String)| {
        let wrong = |error: TemplateError| TemplateError::new(media_type.clone(), error.what);
        Ok((media_type.to_ascii_lowercase(), Processor::of_name(&name).map_err(wrong)?))
    };
    texts(value)?.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn processing(properties: Json) -> Result<Option<Processing>, String> {
        let list: Vec<Json> =
            properties.as_object().unwrap().iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let body = json!({"id": "a", "urls": ["http://a.example/"], "properties": list});
        let site = Site::read(body).map_err(|bad| bad.to_string())?;
        Ok(Processing::of_site(&site).expect("it was checked"))
    }

    #[test]
    fn a_site_that_asks_for_nothing_gets_nothing() {
        assert!(processing(json!({})).unwrap().is_none());
        assert!(processing(json!({"PROCESSOR_NAME": "NONE"})).unwrap().is_none());
        assert!(
            processing(json!({"PROCESSOR_NAME": "", "MODES_FLAG": 1})).unwrap().is_none(),
            "crawled, not processed"
        );
        let general = processing(json!({"PROCESSOR_NAME": ""})).unwrap().unwrap();
        assert_eq!(general.processor_for("text/html"), Some(Processor::Scraper));
        assert_eq!(general.processor_for("image/png"), None);
        let judging = processing(json!({"ALLOWED_CTYPES": "text/html, Text/XML"})).unwrap().unwrap();
        assert!(judging.only_judges() && judging.allows("text/xml") && !judging.allows("image/png"));
        assert!(!general.only_judges() && general.allows("image/png"));
        let off = processing(json!({"PROCESSOR_NAME": "", "ALLOWED_CTYPES": "text/html", "MODES_FLAG": 1})).unwrap();
        assert!(off.unwrap().only_judges(), "which pages are taken is the crawl's business");
        assert!(!general.templates().templates.is_empty());
    }

    #[test]
    fn types_and_processors_follow_the_properties() {
        let said = json!({"PROCESS_CTYPES": "text/html, Text/XML", "PROCESSOR_NAME_REPLACE": {"text/xml": "RSS"}});
        let processing = processing(said).unwrap().unwrap();
        assert_eq!(processing.processor_for("text/xml"), Some(Processor::Rss));
        assert_eq!(processing.processor_for("application/xml"), None);
    }

    #[test]
    fn what_is_wrong_is_said_when_the_site_is_made_with_rule_and_place() {
        let template = |target: &str| json!({"template": {"templates": [{"tags": {"title": [{"target": "//h1"}, {"target": target}]}}]}});
        for (said, expected) in [
            (template("//h1["), "properties[0].value.templates[0].tags.title[1].target: at character 6"),
            (template("//h1[nosuch()]"), "at character 6: there is no function nosuch()"),
            (template("h1 >"), "at character 5"),
            (template("h1:nosuch"), "at character 3: :nosuch"),
            (json!({"template": "nonsense"}), "properties[0].value: no JSON"),
            (json!({"template": {"templates": []}}), "properties[0].value.templates: 1 to"),
            (json!({"template": {"tags": {"a": {"target": "b", "join": "some"}}}}), "tags.a.join"),
            (json!({"template": {"tags": {"a": {"target": "b", "type": {"name": "wav"}}}}}), "tags.a.type.name"),
            (json!({"template": {"tags": {"a": {"target": "b", "colour": 1}}}}), "tags.a.colour: is not known"),
            (json!({"template": {"tags": {"a": {"target": "b", "postProcessing": "("}}}}), "tags.a.postProcessing"),
            (json!({"template": {"tags": {"a": "b"}, "output_format": {"name": "pdf"}}}), "output_format.name"),
            (json!({"PROCESSOR_NAME": "SCRAPER_CUSTOM"}), "properties[0].value: \"SCRAPER_CUSTOM\""),
            (json!({"CONTENT_HASH": {"algorithm": 3, "tags": "a"}}), "algorithm: 3"),
            (json!({"CONTENT_HASH": {"algorithm": 1}}), "tags: is missing"),
            (json!({"PROCESSOR_NAME": "", "TIMEZONE": "Mars"}), "Mars"),
            (json!({"PDATE_SOURCES_MASK": "128"}), "\"128\""),
        ] {
            let error = processing(said.clone()).unwrap_err();
            assert!(error.contains(expected), "{said}: {error}");
        }
    }

    #[test]
    fn hashes_are_those_that_others_compute() {
        let item = Item(vec![("title".into(), "a".into()), ("body".into(), "<b>b</b> c".into())]);
        let hash = |said: Json| Hashing::read(&said.to_string()).unwrap().hash(&item);
        assert_eq!(hash(json!({"tags": "title"})).unwrap(), "0cc175b9c0f1b6a831c399e269772661");
        assert_eq!(hash(json!({"algorithm": 2, "tags": "title"})).unwrap(), "e8b7be43");
        assert_eq!(
            hash(json!({"algorithm": "4", "tags": "title"})).unwrap(),
            "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8"
        );
        assert_eq!(hash(json!({"algorithm": 9, "tags": "body"})), hash(json!({"algorithm": 9, "tags": " body ,"})));
        assert_eq!(hash(json!({"tags": "nosuch"})), None);
    }

    #[test]
    fn a_date_comes_from_the_best_source_that_is_trusted() {
        let about = About {
            url: "https://a.example/2026/11/01/x",
            last_modified: Some("Tue, 03 Nov 2026 00:00:00 GMT"),
            date: Some("Tue, 10 Nov 2026 00:00:00 GMT"),
            crawled_at: 1,
        };
        let item = Item(vec![("pubdate".into(), "2026-11-02 00:00:00".into())]);
        let day = |mask: Json, item: &Item| {
            let processing = processing(json!({"PDATE_SOURCES_MASK": mask})).unwrap().unwrap();
            processing.published(item, false, &about).map(crate::date::format)
        };
        assert_eq!(day(json!(127), &item).unwrap(), "2026-11-02 00:00:00");
        assert_eq!(day(json!(127), &Item::default()).unwrap(), "2026-11-01 00:00:00");
        assert_eq!(day(json!(8), &item).unwrap(), "2026-11-03 00:00:00");
        assert_eq!(day(json!(4), &item).unwrap(), "2026-11-10 00:00:00");
        assert_eq!(day(json!(64), &item).unwrap(), "1970-01-01 00:00:00");
        assert_eq!(day(json!(0), &item), None);
    }
}
