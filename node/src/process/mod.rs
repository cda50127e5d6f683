//! The processing pass: what the rules of a site make of a page that was fetched. Plain functions, no I/O, no clock.
//!
//! The processor of the Distributed Crawler has fifteen steps; here they are, in their order, and where each is done:
//!
//! | step | here |
//! |---|---|
//! | 1 batch in, 2 URL row, 3 site row, 6 URL row again | the page comes with its pick; the site's rules are those of this moment ([`CrawlBook`](crate::crawls::CrawlBook)) |
//! | 4 site not active, 5 limits | nothing of such a site is handed out; what was in flight is processed |
//! | 7 type among PROCESS_CTYPES, else bit 34; filters of the processor, else bit 40 | [`process`] |
//! | 8 PROCESSING, 9 algorithm, 10 JSON | [`process`], [`Processed::record`] |
//! | 11 open, 12 upsert | the record is archived with the page, in one commit with what follows (`edges/disk.rs`) |
//! | 13 PROCESSED, state, mask, times; 14 contents + 1 | `proto/crawl/outcome.rs` |
//! | 15 batch out | the flight lands; `process-batch` writes its batch |
//!
//! A page is processed where it was parsed, right after it was fetched: CRAWLED lasts as long as that takes, and a node that dies in between fetches it again.

mod collect;
mod html;
#[cfg(test)]
mod tests;
mod xml;

use std::borrow::Cow;

use proto::date;
use proto::error_mask::{ErrorBit, ErrorMask};
use proto::query::{Row, Value};
use proto::record::Made;
use proto::scrape::{About, FUEL_PER_PAGE, Fuel, Harvest, Item, Page, Processing, Processor, Tree, entries};
use proto::site::page_filter::{Looked, Moment};
use proto::url::{CanonicalUrl, UrlRules};
use serde_json::{Map, Value as Json, json};

pub(crate) use self::collect::collect_links;
use crate::extract::{Extracted, Link, PageKind};

/// Bytes of a record.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// A page that is to be processed.
#[derive(Clone, Copy)]
pub struct Fresh<'a> {
    /// Where it is from.
    pub url: &'a str,
    /// Its body as text, if it is text.
    pub text: Option<&'a str>,
    /// What was found on it anyway.
    pub extracted: &'a Extracted,
    /// The header `Last-Modified`.
    pub last_modified: Option<&'a str>,
    /// The header `Date`.
    pub date: Option<&'a str>,
    /// Status line and headers.
    pub head: &'a str,
    /// The status.
    pub http_code: u16,
    /// Bytes of the body.
    pub size: u64,
    /// Links from a root URL.
    pub depth: u16,
    /// When it was fetched, Unix milliseconds.
    pub fetched_at: u64,
}

/// A page as filters look at it: what is known of it when it was fetched, and of one thing that was made of it.
struct Seen<'a> {
    page: &'a Fresh<'a>,
    item: Option<&'a Item>,
    published: Option<u64>,
}

impl<'a> Seen<'a> {
    fn page(page: &'a Fresh<'a>) -> Seen<'a> {
        Seen { page, item: None, published: None }
    }
}

impl Row for Seen<'_> {
    fn value(&self, field: &'static str) -> Value {
        let Fresh { url, extracted, .. } = self.page;
        let text = |text: Option<&str>| text.map_or(Value::Null, Value::text);
        let parsed = || CanonicalUrl::parse(url, &UrlRules::AS_IT_IS).ok();
        match field {
            "url" => Value::text(*url),
            "md5" => Value::text(proto::site::md5_hex(url)),
            "host" => text(parsed().as_ref().map(CanonicalUrl::host)),
            "domain" => text(parsed().as_ref().map(CanonicalUrl::domain)),
            "httpCode" => Value::int(self.page.http_code),
            "contentType" => text(Some(&extracted.media_type)),
            "charset" => text(extracted.charset),
            "language" => text(extracted.language),
            "title" => text(extracted.title.as_deref()),
            "size" => Value::int(self.page.size),
            "depth" => Value::int(self.page.depth),
            "lastModified" => text(self.page.last_modified),
            "noindex" => Value::int(u8::from(extracted.noindex)),
            "linksI" | "linksE" => {
                let host = parsed();
                let inside = |link: &&Link| host.as_ref().is_some_and(|url| link.url.host() == url.host());
                let internal = extracted.links.iter().filter(inside).count() as u64;
                let external = extracted.links.len() as u64 - internal;
                Value::int(if field == "linksI" { internal } else { external })
            }
            "UDate" | "tcDate" => Value::Time(self.page.fetched_at),
            "pDate" => self.published.map_or(Value::Null, Value::Time),
            "tagsCount" => self.item.map_or(Value::Null, |item| Value::int(item.0.len() as u64)),
            _ => Value::Null,
        }
    }
}

impl Looked for Seen<'_> {
    fn body(&self) -> Option<&str> {
        self.page.text
    }

    fn head(&self) -> &str {
        self.page.head
    }

    fn tag(&self, name: &str) -> Option<&str> {
        self.item?.get(name)
    }
}

/// An entry of a feed that is a URL of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedEntry {
    /// Its URL, as the feed has it.
    pub url: String,
    /// Its title.
    pub title: Option<String>,
    /// When it was published, Unix milliseconds.
    pub published: Option<u64>,
    /// Tags that are filled.
    pub tags: u32,
    /// What is kept as its content: JSON.
    pub record: Vec<u8>,
}

/// What became of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processed {
    /// What is kept: JSON; `None` if nothing was made of it.
    pub record: Option<Vec<u8>>,
    /// Why something was not made of it.
    pub errors: ErrorMask,
    /// Whether that is a failure, and not only a page that is none of its business.
    pub failed: bool,
    /// By what contents are told to be the same, and whether one that repeats another is to be dropped.
    pub hash: Option<(String, bool)>,
    /// Entries of a feed are results and not links.
    pub entries_are_results: bool,
    /// Those entries, where they have URLs.
    pub entries: Vec<FeedEntry>,
    /// Its links are not followed: the site does not want such pages.
    pub unwanted: bool,
    /// What was made of it, in figures.
    pub made: Option<Made>,
}

impl Processed {
    fn skipped(bit: ErrorBit) -> Processed {
        Processed { errors: bit.into(), ..Processed::default() }
    }

    fn failed(bit: ErrorBit) -> Processed {
        Processed { failed: true, ..Processed::skipped(bit) }
    }
}

/// Why a site does not want a page at all: then its links are not followed either.
pub fn unwanted(rules: &Processing, page: &Fresh<'_>) -> Option<ErrorBit> {
    if !rules.allows(&page.extracted.media_type) {
        return Some(ErrorBit::WrongMime);
    }
    (!rules.passes(Moment::Fetched, &Seen::page(page), page.fetched_at)).then_some(ErrorBit::CrawlerFilters)
}

/// Processes a page by the rules of its site.
pub fn process(rules: &Processing, page: &Fresh<'_>) -> Processed {
    let (seen, now) = (Seen::page(page), page.fetched_at);
    if let Some(bit) = unwanted(rules, page) {
        return Processed { unwanted: true, ..Processed::skipped(bit) };
    }
    if rules.only_judges() {
        return Processed::default();
    }
    let processor = match rules.processor_for(&page.extracted.media_type) {
        None => return Processed::skipped(ErrorBit::UnsupportedContentType),
        Some(Processor::None) => return Processed::default(),
        Some(processor) => processor,
    };
    if !rules.picks(&seen, now) {
        return Processed::default();
    }
    if !rules.passes(Moment::Before, &seen, now) {
        return Processed::skipped(ErrorBit::ProcessorFilters);
    }
    if processor == Processor::Store {
        return store_only(rules, page);
    }
    let Some(text) = page.text else { return Processed::failed(ErrorBit::RawContentDecoding) };
    match processor {
        Processor::FeedParser | Processor::Rss => feed(rules, page, text, processor),
        _ => scrape(rules, page, text, processor),
    }
}

fn tree_of(page: &Fresh<'_>, text: &str) -> (Tree, bool) {
    if page.extracted.kind == PageKind::Html { html::parse(text) } else { xml::parse(text) }
}

/// Only what every page has is kept: title and text.
fn store_only(rules: &Processing, page: &Fresh<'_>) -> Processed {
    let mut item = Item::default();
    if let Some(title) = &page.extracted.title {
        item.fill("title", title.as_str());
    }
    if !page.extracted.text.is_empty() {
        item.fill("content_encoded", page.extracted.text.as_str());
    }
    let harvest = Harvest { items: vec![item], ..Harvest::default() };
    written(rules, page, Processor::Store, harvest, false, ErrorMask::NONE)
}

fn feed(rules: &Processing, page: &Fresh<'_>, text: &str, processor: Processor) -> Processed {
    let (tree, _) = xml::parse(text);
    let entries_are_results = processor == Processor::FeedParser;
    let items = match entries(&tree, page.url) {
        None => return Processed::failed(ErrorBit::HtmlParse),
        Some(items) if items.is_empty() => {
            return Processed { entries_are_results, ..Processed::failed(ErrorBit::RssEmpty) };
        }
        Some(items) => items,
    };
    let harvest = Harvest { items, ..Harvest::default() };
    let processed = written(rules, page, processor, harvest, true, ErrorMask::NONE);
    Processed { entries_are_results, ..processed }
}

fn scrape(rules: &Processing, page: &Fresh<'_>, text: &str, processor: Processor) -> Processed {
    let (tree, _) = tree_of(page, text);
    let looked_at = Page::new(&tree, text, page.url);
    let several = processor == Processor::MultiItems;
    let mut fuel = Fuel::new(FUEL_PER_PAGE);
    let harvest = rules.templates().harvest(&looked_at, several, &rules.moments, &mut fuel);
    let mut errors = ErrorMask::NONE;
    if harvest.exhausted {
        errors.set(ErrorBit::Scraper);
    }
    if harvest.mandatory_empty || !harvest.missing.is_empty() {
        errors.set(ErrorBit::MandatoryTemplate);
    }
    if harvest.template.is_none() && !harvest.exhausted {
        errors.set(ErrorBit::TemplateSource);
    }
    written(rules, page, processor, harvest, false, errors)
}

/// Writes down what was found.
fn written(
    rules: &Processing,
    page: &Fresh<'_>,
    processor: Processor,
    harvest: Harvest,
    in_feed: bool,
    errors: ErrorMask,
) -> Processed {
    let about =
        About { url: page.url, last_modified: page.last_modified, date: page.date, crawled_at: page.fetched_at };
    let mut items: Vec<Json> = Vec::with_capacity(harvest.items.len());
    let mut first: Option<(Option<u64>, Option<String>)> = None;
    let mut renamed = Vec::with_capacity(harvest.items.len());
    let (mut tags, mut left_out) = (0, 0);
    let mut entries = Vec::new();
    for mut item in harvest.items {
        if rules.detect_language
            && !in_feed
            && let Some(language) = page.extracted.language
        {
            item.fill("html_lang", language);
        }
        let published = rules.published(&item, in_feed, &about);
        if !rules.passes(Moment::After, &Seen { page, item: Some(&item), published }, page.fetched_at) {
            left_out += 1;
            continue;
        }
        let hash = rules.hashing.as_ref().and_then(|hashing| hashing.hash(&item));
        let link = item.get("link").or_else(|| item.get("guid").filter(|guid| guid.starts_with("http")));
        let (link, title) = (link.map(str::to_owned), item.get("title").map(str::to_owned));
        let item = rules.renamed(item);
        tags += item.0.len();
        let mut fields: Map<String, Json> =
            item.0.iter().map(|(name, value)| (name.clone(), Json::from(value.as_str()))).collect();
        if in_feed && let Some(at) = published {
            fields.insert("pDate".to_owned(), Json::from(date::format(at)));
        }
        if processor == Processor::FeedParser
            && let Some(url) = link
        {
            let tags = u32::try_from(item.0.len()).unwrap_or(u32::MAX);
            let record = json!({
                "url": url, "processor": processor.name(), "crawledAt": date::format(page.fetched_at),
                "contentType": page.extracted.media_type, "tagsCount": tags, "items": [fields],
            });
            entries.push(FeedEntry { url, title, published, tags, record: record.to_string().into_bytes() });
        }
        items.push(Json::Object(fields));
        first.get_or_insert((published, hash));
        renamed.push(item);
    }
    if items.is_empty() && left_out > 0 {
        return Processed::skipped(ErrorBit::ProcessorFilters);
    }
    let (published, hash) = first.unwrap_or_default();
    let published = published.filter(|_| !in_feed);
    let mut record = json!({
        "url": page.url,
        "processor": processor.name(),
        "crawledAt": date::format(page.fetched_at),
        "contentType": page.extracted.media_type,
        "language": page.extracted.language,
        "tagsCount": tags,
        "pDate": published.map(date::format),
        "contentHash": hash,
        "errorMask": errors.0,
        "items": items,
    });
    if let Json::Object(fields) = &mut record {
        if let Some(template) = harvest.template {
            fields.insert("template".to_owned(), Json::from(template));
        }
        if !harvest.missing.is_empty() {
            fields.insert("missing".to_owned(), json!(harvest.missing));
        }
        if let Some(output) = &harvest.output {
            fields.insert("output".to_owned(), json!({"format": output.name(), "text": output.write(&renamed)}));
        }
        fields.retain(|_, value| !value.is_null());
    }
    let failed = !errors.is_empty();
    let bytes = record.to_string().into_bytes();
    if bytes.len() > RECORD_BYTES_MAX {
        return Processed::failed(ErrorBit::Scraper);
    }
    let hash = hash.zip(rules.hashing.as_ref().map(|hashing| hashing.delete));
    let made = Some(Made { tags: u32::try_from(tags).unwrap_or(u32::MAX), published });
    Processed { record: Some(bytes), errors, failed, hash, made, entries, ..Processed::default() }
}

/// The text of a body, if it is text that rules can look at.
pub fn text_of<'a>(
    body: &'a [u8],
    content_type: Option<&str>,
    host: &str,
    extracted: &Extracted,
) -> Option<Cow<'a, str>> {
    let is_text = !matches!(extracted.kind, PageKind::Binary | PageKind::Empty);
    is_text.then(|| crate::extract::decoded(body, content_type, host))
}
