//! A batch: the work order of one run of the crawler or the processor, as the programs of the original hand it to each other. What a program does not know of it goes through unchanged.

use serde_json::{Map, Value as Json};

use super::operation::{BadRequest, object, without_nulls};
use super::{GENERAL_SITE, Site, flag, state};
use crate::date;
use crate::error_mask::{ErrorBit, ErrorMask};

/// Items of a batch.
pub const ITEMS_MAX: usize = 1_000;
/// Seconds that a batch may take if it does not say.
const SECONDS_DEFAULT: u64 = 360;
/// Seconds that a batch may take at most.
const SECONDS_MAX: u64 = 86_400;
/// Whether items that the time did not suffice for are left out of the batch that goes out.
const DROPS: &str = "removeUnprocessedItems";

/// A batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    fields: Map<String, Json>,
    /// What is to be done.
    pub items: Vec<BatchItem>,
}

/// One URL of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchItem {
    fields: Map<String, Json>,
}

impl Batch {
    /// Reads one.
    pub fn read(body: Json) -> Result<Batch, BadRequest> {
        let mut fields = object(without_nulls(body))?;
        let Some(Json::Array(items)) = fields.remove("items") else {
            return Err(BadRequest::new("items", "is missing: a list of what is to be done".to_owned()));
        };
        if items.len() > ITEMS_MAX {
            return Err(BadRequest::new("items", format!("{} of them, more than {ITEMS_MAX}", items.len())));
        }
        for name in ["maxItems", "maxExecutionTime", "maxIterations", "errorMask"] {
            if fields.get(name).is_some_and(|value| value.as_u64().is_none()) {
                return Err(BadRequest::new(name, "is no number".to_owned()));
            }
        }
        if let Some(said) = fields.get(DROPS)
            && let Err(error) = flag(said.clone())
        {
            return Err(BadRequest::new(DROPS, error.to_string()));
        }
        let item = |(at, item): (usize, Json)| BatchItem::read(item).map_err(|bad| named(at, bad));
        let items = items.into_iter().enumerate().map(item).collect::<Result<_, _>>()?;
        Ok(Batch { fields, items })
    }

    fn number(&self, name: &str) -> u64 {
        self.fields.get(name).and_then(Json::as_u64).unwrap_or(0)
    }

    /// Seconds that it may take.
    pub fn seconds_max(&self) -> u64 {
        match self.number("maxExecutionTime") {
            0 => SECONDS_DEFAULT,
            seconds => seconds.min(SECONDS_MAX),
        }
    }

    /// Whether items that the time did not suffice for are left out.
    pub fn drops_late_items(&self) -> bool {
        self.fields.get(DROPS).is_some_and(|said| flag(said.clone()).unwrap_or(false))
    }

    /// How often links that were found are crawled too, the first time included.
    pub fn iterations_max(&self) -> u64 {
        self.number("maxIterations").max(1)
    }

    /// How many items it may have when links become items.
    pub fn items_max(&self) -> usize {
        match self.number("maxItems") {
            0 => ITEMS_MAX,
            most => ITEMS_MAX.min(usize::try_from(most).unwrap_or(ITEMS_MAX)),
        }
    }

    /// Leaves out items beyond `maxItems`, if it says one; that is an error of the batch.
    pub fn shorten(&mut self) {
        let most = self.number("maxItems") as usize;
        if most > 0 && self.items.len() > most {
            self.items.truncate(most);
            self.note(ErrorBit::ItemsMax);
        }
    }

    /// Adds an error of the batch.
    pub fn note(&mut self, bit: ErrorBit) {
        let mut mask = ErrorMask(self.number("errorMask"));
        mask.set(bit);
        self.fields.insert("errorMask".to_owned(), Json::from(mask.0));
    }

    /// Its id, as it is written.
    pub fn id(&self) -> Json {
        self.fields.get("id").cloned().unwrap_or(Json::from(0))
    }

    /// As JSON.
    pub fn into_json(self) -> Json {
        let mut fields = self.fields;
        let items = self.items.into_iter().map(|item| Json::Object(item.fields)).collect();
        fields.insert("items".to_owned(), Json::Array(items));
        Json::Object(fields)
    }
}

fn named(at: usize, bad: BadRequest) -> BadRequest {
    let dot = if bad.field.is_empty() { "" } else { "." };
    BadRequest::new(&format!("items[{at}]{dot}{}", bad.field), bad.what)
}

impl BatchItem {
    fn read(body: Json) -> Result<BatchItem, BadRequest> {
        let item = BatchItem { fields: object(body)? };
        for name in ["urlObj", "siteObj", "urlContentResponse"] {
            if item.fields.get(name).is_some_and(|value| !value.is_object()) {
                return Err(BadRequest::new(name, "is no object".to_owned()));
            }
        }
        item.url()?;
        item.site()?;
        Ok(item)
    }

    /// Its URL, as it is written.
    pub fn url(&self) -> Result<&str, BadRequest> {
        match self.fields.get("urlObj").and_then(|url| url.get("url")) {
            Some(Json::String(url)) if !url.is_empty() => Ok(url),
            _ => Err(BadRequest::new("urlObj.url", "is missing".to_owned())),
        }
    }

    /// The id of its site; the general one if it names none.
    pub fn site_id(&self) -> &str {
        let said = self.fields.get("siteId").or_else(|| self.fields.get("urlObj")?.get("siteId"));
        said.and_then(Json::as_str).filter(|id| !id.is_empty()).unwrap_or(GENERAL_SITE)
    }

    /// Whether it says itself what its site is.
    pub fn has_site(&self) -> bool {
        self.fields.contains_key("siteObj") || self.fields.contains_key("properties")
    }

    /// Its site: what `siteObj` says, with the properties of the item over it.
    pub fn site(&self) -> Result<Site, BadRequest> {
        self.over(Map::new())
    }

    /// The site that it is about, with what `siteObj` and `properties` say over it.
    pub fn site_upon(&self, known: &Site) -> Result<Site, BadRequest> {
        match serde_json::to_value(known) {
            Ok(Json::Object(fields)) => self.over(fields),
            _ => self.site(),
        }
    }

    fn over(&self, mut site: Map<String, Json>) -> Result<Site, BadRequest> {
        if let Some(Json::Object(fields)) = self.fields.get("siteObj") {
            site.extend(fields.clone());
        }
        site.entry("id").or_insert_with(|| Json::from(self.site_id()));
        let over: Vec<Json> = match self.fields.get("properties") {
            None => Vec::new(),
            Some(Json::Array(list)) => list.clone(),
            Some(Json::Object(fields)) => {
                fields.iter().map(|(name, value)| serde_json::json!({"name": name, "value": value})).collect()
            }
            Some(_) => return Err(BadRequest::new("properties", "is neither a list nor an object".to_owned())),
        };
        let list = site.entry("properties").or_insert_with(|| Json::Array(Vec::new()));
        let Json::Array(list) = list else {
            return Err(BadRequest::new("siteObj.properties", "is no list".to_owned()));
        };
        for property in over {
            list.retain(|known| known.get("name") != property.get("name"));
            list.push(property);
        }
        Site::read(Json::Object(site)).map_err(|bad| BadRequest::new(&format!("siteObj.{}", bad.field), bad.what))
    }

    /// Which limit of its site is passed, by what `siteObj` says that the site has come to: of these bits that of errors, or that of pages. The site of the item is
    /// suspended then, as the original does it with the site.
    pub fn limited(&mut self, site: &Site, errors: ErrorBit, pages: ErrorBit, now_unix_ms: u64) -> Option<ErrorBit> {
        let Some(Json::Object(said)) = self.fields.get_mut("siteObj") else { return None };
        let number = |name: &str| said.get(name).and_then(Json::as_u64).unwrap_or(0);
        let bit = match (number("errors"), number("resources")) {
            (has, _) if site.max_errors > 0 && has > site.max_errors => errors,
            (_, has) if site.max_resources > 0 && has > site.max_resources => pages,
            _ => return None,
        };
        let mask = ErrorMask(number("errorMask") | bit.mask().0);
        let failed = number("errors").saturating_add(1);
        let now = Json::from(date::format(now_unix_ms));
        let suspended = Json::from(state::SUSPENDED);
        let fields =
            [("errorMask", Json::from(mask.0)), ("errors", Json::from(failed)), ("tcDate", now), ("state", suspended)];
        said.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        Some(bit)
    }

    /// A link of its page as an item: of the same site, by the same rules.
    pub fn of_link(&self, url: &str) -> BatchItem {
        let mut fields = self.fields.clone();
        fields.remove("urlContentResponse");
        fields.remove("urlPutObj");
        let depth = self.fields.get("depth").and_then(Json::as_u64).unwrap_or(0).saturating_add(1);
        let parent = self.url().map(super::md5_hex).unwrap_or_default();
        let id = super::md5_hex(url);
        let object = serde_json::json!({"url": url, "urlMd5": id, "siteId": self.site_id(), "parentMd5": parent, "depth": depth, "crawled": 0});
        fields.insert("urlObj".to_owned(), object);
        fields.insert("urlId".to_owned(), Json::from(id));
        fields.insert("depth".to_owned(), Json::from(depth));
        BatchItem { fields }
    }

    /// Fields of the URL.
    pub fn url_fields(&mut self) -> &mut Map<String, Json> {
        self.part("urlObj")
    }

    /// What is known of its contents.
    pub fn contents(&mut self) -> &mut Map<String, Json> {
        self.part("urlContentResponse")
    }

    fn part(&mut self, name: &str) -> &mut Map<String, Json> {
        let part = self.fields.entry(name).or_insert_with(|| Json::Object(Map::new()));
        if !part.is_object() {
            *part = Json::Object(Map::new());
        }
        part.as_object_mut().expect("it was made one")
    }

    /// Sets fields of the URL.
    pub fn set<const N: usize>(&mut self, values: [(&str, Json); N]) {
        let fields = self.url_fields();
        for (name, value) in values {
            fields.insert(name.to_owned(), value);
        }
    }

    /// Adds one to a count of the URL.
    pub fn count(&mut self, name: &str) {
        let fields = self.url_fields();
        let so_far = fields.get(name).and_then(Json::as_u64).unwrap_or(0);
        fields.insert(name.to_owned(), Json::from(so_far.saturating_add(1)));
    }

    /// The errors of this run.
    pub fn errors(&self) -> ErrorMask {
        let mask = self.fields.get("urlObj").and_then(|url| url.get("errorMask")).and_then(Json::as_u64);
        ErrorMask(mask.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_known_goes_through() {
        let body = json!({"id": 7, "crawlerType": 4, "maxItems": 1, "items": [
            {"siteId": "", "urlId": "x", "urlObj": {"url": "http://a.example/", "tagsMask": 3}, "depth": 2},
            {"siteId": "b", "urlObj": {"url": "http://b.example/"}}]});
        let mut batch = Batch::read(body.clone()).unwrap();
        assert_eq!(batch.clone().into_json(), body);
        assert_eq!((batch.items[0].site_id(), batch.items[1].site_id()), ("0", "b"));
        assert_eq!((batch.seconds_max(), batch.id()), (360, json!(7)));
        batch.shorten();
        batch.items[0].set([("status", json!(4))]);
        batch.items[0].count("crawled");
        let told = batch.into_json();
        assert_eq!((&told["items"][0]["urlObj"]["crawled"], &told["errorMask"]), (&json!(1), &json!(1u64 << 42)));
        assert_eq!((told["items"].as_array().unwrap().len(), &told["items"][0]["urlObj"]["tagsMask"]), (1, &json!(3)));
    }

    #[test]
    fn properties_of_an_item_are_put_over_those_of_its_site() {
        let item = json!({"urlObj": {"url": "http://a.example/"}, "properties": {"PROCESSOR_NAME": "STORE"},
            "siteObj": {"id": "a", "properties": [{"name": "PROCESSOR_NAME", "value": "NONE"}, {"name": "X", "value": 1}]}});
        let batch = Batch::read(json!({"items": [item]})).unwrap();
        let site = batch.items[0].site().unwrap();
        assert_eq!((site.property("PROCESSOR_NAME"), site.property("X")), (Some("STORE"), Some("1")));
    }

    #[test]
    fn an_item_may_change_its_site_for_itself() {
        let known = serde_json::json!({"id": "a", "priority": 7, "maxErrors": 3, "properties": [{"name": "PROCESSOR_NAME", "value": "NONE"}, {"name": "X", "value": 1}]});
        let known = Site::read(known).unwrap();
        let item = json!({"siteId": "a", "urlObj": {"url": "http://a.example/"}, "siteObj": {"priority": 9}, "properties": {"PROCESSOR_NAME": "STORE"}});
        let batch = Batch::read(json!({"items": [item]})).unwrap();
        let site = batch.items[0].site_upon(&known).unwrap();
        assert_eq!((site.priority, site.max_errors), (9, 3));
        assert_eq!((site.property("PROCESSOR_NAME"), site.property("X")), (Some("STORE"), Some("1")));
        assert!(batch.items[0].has_site());
    }

    #[test]
    fn a_site_beyond_its_limits_is_suspended() {
        let limited = |fields: Json| {
            let mut site = json!({"id": "a", "maxErrors": 3, "maxResources": 10, "errorMask": 1});
            site.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let item = json!({"siteId": "a", "urlObj": {"url": "http://a.example/"}, "siteObj": site});
            let mut batch = Batch::read(json!({"items": [item]})).unwrap();
            let item = &mut batch.items[0];
            let site = item.site().unwrap();
            let bit = item.limited(&site, ErrorBit::SiteErrorsMax, ErrorBit::SiteResourcesMax, 0);
            (bit, item.fields["siteObj"].clone())
        };
        assert_eq!(limited(json!({"errors": 3, "resources": 10})).0, None, "it has all of them");
        assert_eq!(limited(json!({"errors": 9, "maxErrors": 0})).0, None, "0 is no limit");
        let (bit, site) = limited(json!({"errors": 4, "resources": 11}));
        assert_eq!(
            (bit, &site["errorMask"], &site["errors"]),
            (Some(ErrorBit::SiteErrorsMax), &json!(1 | 1 << 14), &json!(5))
        );
        assert_eq!((&site["state"], &site["tcDate"]), (&json!(3), &json!("1970-01-01 00:00:00")));
        assert_eq!(limited(json!({"resources": 11})).0, Some(ErrorBit::SiteResourcesMax));
    }

    #[test]
    fn a_link_is_an_item_of_the_same_site() {
        let item = json!({"siteId": "a", "properties": {"X": 1}, "depth": 2, "urlObj": {"url": "http://a.example/", "crawled": 4},
            "urlContentResponse": {"url": "http://a.example/"}});
        let batch = Batch::read(json!({"items": [item], "maxIterations": 3, "maxItems": 7})).unwrap();
        assert_eq!((batch.iterations_max(), batch.items_max()), (3, 7));
        let link = batch.items[0].of_link("http://a.example/b");
        assert_eq!(
            (link.url(), link.site_id(), link.site().unwrap().property("X")),
            (Ok("http://a.example/b"), "a", Some("1"))
        );
        let expected = json!({"url": "http://a.example/b", "urlMd5": crate::site::md5_hex("http://a.example/b"), "siteId": "a",
            "parentMd5": crate::site::md5_hex("http://a.example/"), "depth": 3, "crawled": 0});
        assert_eq!((&link.fields["urlObj"], &link.fields["depth"]), (&expected, &json!(3)));
        assert!(!link.fields.contains_key("urlContentResponse"));
        let plain = Batch::read(json!({"items": [], "maxIterations": 0})).unwrap();
        assert_eq!((plain.iterations_max(), plain.items_max()), (1, ITEMS_MAX));
    }

    #[test]
    fn what_is_wrong_names_item_and_field() {
        for (body, word) in [
            (json!([]), "object"),
            (json!({}), "items"),
            (json!({"items": [{}]}), "items[0].urlObj.url"),
            (json!({"items": [{"urlObj": 1}]}), "items[0].urlObj"),
            (json!({"items": [], "maxItems": "many"}), "maxItems"),
            (json!({"items": [], "maxIterations": -1}), "maxIterations"),
            (json!({"items": [], "removeUnprocessedItems": 2}), "removeUnprocessedItems"),
            (json!({"items": [{"urlObj": {"url": "x"}, "siteObj": {"nosuch": 1}}]}), "items[0].siteObj.nosuch"),
            (
                json!({"items": [{"urlObj": {"url": "x"}, "properties": {"template": {"tags": {"a": "//["}}}}]}),
                "items[0].siteObj.properties[0].value.templates[0].tags.a",
            ),
        ] {
            let bad = Batch::read(body.clone()).unwrap_err().to_string();
            assert!(bad.contains(word), "{body}: {bad}");
        }
    }
}
