//! How pages of a site are asked for, and which of their references are links: what its properties say of both.
//!
//! | property | |
//! |---|---|
//! | HTTP_HEADERS | lines `Name: value`, or an object of names and values: sent with every request of the site, that for robots.txt included |
//! | HTTP_COOKIE | `a=1; b=2`, or an object of names and values: sent with them |
//! | REFERER_SELF_URL | other than 0: `Referer` is the URL itself |
//! | HTTP_REDIRECTS_MAX | redirects in a row; 0 follows none |
//! | HTML_REDIRECTS_MAX | the same of `<meta http-equiv="refresh">` |
//! | CONTENT_TYPE_MAP | `{"text/plain": "text/html"}`: what a server says of a page is taken for something else |
//! | HTTP_PROXY_HOST, HTTP_PROXY_PORT | a proxy beside those of the site, with the lowest priority |
//! | COLLECT_URLS_XPATH_LIST | where links stand: `{"sets": {"regular expression of the page's URL": ["//a/@href"]}, "mode": 0}`, or a list that is for all pages |
//!
//! A property may be for one URL alone (`urlMd5`): then it counts there instead of the one of the site, see [`Site::for_url`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use serde_json::Value as Json;

use super::filter::RedirectFilters;
use super::operation::BadRequest;
use super::{Property, Site, SiteProxy};
use crate::scrape::Target;
use crate::source::task::check_header;

const HEADERS: &str = "HTTP_HEADERS";
const COOKIE: &str = "HTTP_COOKIE";
const REFERER: &str = "REFERER_SELF_URL";
const HTTP_REDIRECTS: &str = "HTTP_REDIRECTS_MAX";
const HTML_REDIRECTS: &str = "HTML_REDIRECTS_MAX";
const COLLECT: &str = "COLLECT_URLS_XPATH_LIST";
const TYPES: &str = "CONTENT_TYPE_MAP";
const PROXY_HOST: &str = "HTTP_PROXY_HOST";
const PROXY_PORT: &str = "HTTP_PROXY_PORT";
/// Headers of one request.
const HEADERS_MAX: usize = 64;
/// Places where links stand.
const TARGETS_MAX: usize = 128;

/// How pages are asked for, and which of their references are links.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    headers: Vec<(String, String)>,
    referer: bool,
    /// Redirects in a row, if the site says.
    pub redirects_max: Option<u8>,
    /// Refreshes in a row, if the site says.
    pub refreshes_max: Option<u8>,
    collect: Option<Collect>,
    /// Types of content, in lower case, and what they are taken for.
    types: BTreeMap<String, String>,
    proxy: Option<SiteProxy>,
    /// Which redirects are followed.
    pub redirects: RedirectFilters,
}

/// Where links stand.
#[derive(Clone, Debug)]
struct Collect {
    sets: Vec<(Option<Regex>, Vec<Target>)>,
    /// What is found beside counts too.
    adds: bool,
}

/// The places where links of one page stand.
#[derive(Debug)]
pub struct Places<'a> {
    /// They are looked for here.
    pub targets: Vec<&'a Target>,
    /// And where every page may have some.
    pub adds: bool,
}

impl Manner {
    /// Reads it from the properties of a site, those of single URLs left out.
    pub fn of_site(site: &Site) -> Result<Manner, BadRequest> {
        let read = |name: &str| {
            let is = |property: &Property| property.name == name && property.url_md5.is_empty();
            let (at, property) = site.properties.iter().enumerate().find(|(_, property)| is(property))?;
            Some((at, property.value.as_str())).filter(|(_, value)| !value.trim().is_empty())
        };
        let bad = |at: usize, what: String| BadRequest::new(&format!("properties[{at}].value"), what);
        let mut headers = Vec::new();
        if let Some((at, value)) = read(HEADERS) {
            for (name, value) in pairs(value, ':', '\n').map_err(|what| bad(at, what))? {
                if name.to_ascii_lowercase().starts_with("proxy-") {
                    return Err(bad(at, format!("{name} is the crawler's to set")));
                }
                check_header(&name, &value)
                    .map_err(|what| bad(at, format!("{what}; cookies go into {COOKIE}, and we say who we are")))?;
                if headers.iter().any(|(known, _): &(String, String)| known.eq_ignore_ascii_case(&name)) {
                    return Err(bad(at, format!("{name} is there twice")));
                }
                headers.push((name, value));
            }
            if headers.len() > HEADERS_MAX {
                return Err(bad(at, format!("{} headers, more than {HEADERS_MAX}", headers.len())));
            }
        }
        if let Some((at, value)) = read(COOKIE) {
            let cookies = pairs(value, '=', ';').map_err(|what| bad(at, what))?;
            let wrong = |(name, value): &&(String, String)| name.contains([' ', ',', ';', '=']) || value.contains(';');
            if let Some((name, _)) = cookies.iter().find(wrong) {
                return Err(bad(at, format!("{name:?} is no cookie")));
            }
            let line: Vec<String> = cookies.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            let line = line.join("; ");
            if line.chars().any(|letter| letter.is_control() || !letter.is_ascii()) {
                return Err(bad(at, "has letters that cannot be sent".to_owned()));
            }
            headers.push(("cookie".to_owned(), line));
        }
        let number = |name: &str| match read(name) {
            None => Ok(None),
            Some((at, value)) => value
                .trim()
                .parse::<u8>()
                .map(Some)
                .map_err(|_| bad(at, format!("{value:?} is no number of redirects, from 0 to {}", u8::MAX))),
        };
        let collect = match read(COLLECT) {
            None => None,
            Some((at, value)) => {
                let json: Json = serde_json::from_str(value).map_err(|error| bad(at, format!("no JSON: {error}")))?;
                Some(
                    Collect::read(&json)
                        .map_err(|(inside, what)| BadRequest::new(&format!("properties[{at}].value{inside}"), what))?,
                )
            }
        };
        let mut types = BTreeMap::new();
        if let Some((at, value)) = read(TYPES) {
            for (from, to) in pairs(value, '=', ',').map_err(|what| bad(at, what))? {
                let is_type =
                    |name: &str| name.split('/').filter(|part| !part.is_empty()).count() == 2 && name.is_ascii();
                if !is_type(&from) || !is_type(&to) {
                    return Err(bad(at, format!("{from:?} to {to:?}: a type looks like text/html")));
                }
                types.insert(from.to_ascii_lowercase(), to.to_ascii_lowercase());
            }
        }
        let proxy = match (read(PROXY_HOST), read(PROXY_PORT)) {
            (None, _) => None,
            (Some((at, host)), port) => {
                let host = match port {
                    Some((_, port)) => format!("{}:{}", host.trim(), port.trim()),
                    None => host.trim().to_owned(),
                };
                let proxy = SiteProxy::at(host).checked();
                Some(proxy.map_err(|error| bad(at, format!("{}, with {PROXY_PORT}", error.what)))?)
            }
        };
        Ok(Manner {
            types,
            proxy,
            headers,
            referer: read(REFERER).is_some_and(|(_, value)| value.trim() != "0"),
            redirects_max: number(HTTP_REDIRECTS)?,
            refreshes_max: number(HTML_REDIRECTS)?,
            collect,
            redirects: RedirectFilters::of_site(site),
        })
    }

    /// What is sent along when a URL is asked for.
    pub fn headers(&self, url: &str) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        let named = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("referer"));
        if self.referer && !named {
            headers.push(("referer".to_owned(), url.to_owned()));
        }
        headers
    }

    /// What a page is taken for that is said to be of this type.
    pub fn content_type<'a>(&self, said: Option<&'a str>) -> Option<Cow<'a, str>> {
        let said = said?;
        let (essence, parameters) = said.split_at(said.find(';').unwrap_or(said.len()));
        match self.types.get(&essence.trim().to_ascii_lowercase()) {
            Some(taken_for) => Some(Cow::Owned(format!("{taken_for}{parameters}"))),
            None => Some(Cow::Borrowed(said)),
        }
    }

    /// A proxy beside those of the site.
    pub fn proxy(&self) -> Option<&SiteProxy> {
        self.proxy.as_ref()
    }

    /// Where the links of a page stand, if the site says; nowhere if it says so of other pages only.
    pub fn places(&self, url: &str) -> Option<Places<'_>> {
        let collect = self.collect.as_ref()?;
        let for_it = |pages: &Option<Regex>| pages.as_ref().is_none_or(|pages| pages.is_match(url));
        let targets = collect.sets.iter().filter(|(pages, _)| for_it(pages)).flat_map(|(_, targets)| targets);
        Some(Places { targets: targets.collect(), adds: collect.adds })
    }
}

impl Collect {
    /// Reads the value of the property; what is wrong is told with the way to it.
    fn read(json: &Json) -> Result<Collect, (String, String)> {
        let example =
            "it looks like {\"sets\": {\"\": [\"//a/@href\"]}}: where links stand, by regular expressions of pages";
        let bad = |inside: &str, what: String| (inside.to_owned(), what);
        let targets = |json: &Json, inside: &str| -> Result<Vec<Target>, (String, String)> {
            let Json::Array(list) = json else { return Err(bad(inside, format!("is no list; {example}"))) };
            let one = |(at, target): (usize, &Json)| {
                let inside = format!("{inside}[{at}]");
                let Json::String(text) = target else { return Err(bad(&inside, "is no text".to_owned())) };
                Target::parse(text).map_err(|error| bad(&inside, format!("{error} in {text:?}")))
            };
            list.iter().enumerate().map(one).collect()
        };
        let (sets, adds) = match json {
            Json::Array(_) => (vec![(None, targets(json, "")?)], false),
            Json::Object(fields) => {
                if let Some(unknown) =
                    fields.keys().find(|name| !matches!(name.as_str(), "sets" | "mode" | "date_format"))
                {
                    return Err(bad(&format!(".{unknown}"), format!("is not known; {example}")));
                }
                let Some(Json::Object(sets)) = fields.get("sets") else {
                    return Err(bad(".sets", format!("is missing; {example}")));
                };
                let mut read = Vec::with_capacity(sets.len());
                for (pages, list) in sets {
                    let inside = format!(".sets[{pages:?}]");
                    let regex = Regex::new(pages).map_err(|error| {
                        let why = error.to_string();
                        bad(&inside, why.lines().last().unwrap_or("is no regular expression").to_owned())
                    })?;
                    read.push(((!pages.is_empty()).then_some(regex), targets(list, &inside)?));
                }
                let mode = fields.get("mode").map(|mode| mode.as_str().map_or_else(|| mode.to_string(), str::to_owned));
                let adds = match mode.as_deref() {
                    None | Some("0") => false,
                    Some("1") => true,
                    Some(other) => {
                        return Err(bad(".mode", format!("{other}: 0 for these places alone, 1 for these too")));
                    }
                };
                (read, adds)
            }
            _ => return Err(bad("", example.to_owned())),
        };
        let count: usize = sets.iter().map(|(_, targets)| targets.len()).sum();
        if count > TARGETS_MAX {
            return Err(bad("", format!("{count} places, more than {TARGETS_MAX}")));
        }
        Ok(Collect { sets, adds })
    }
}

/// Names and values: those of an object, or pieces of a text such as `a: 1` or `a=1`.
fn pairs(value: &str, between: char, behind: char) -> Result<Vec<(String, String)>, String> {
    if value.trim_start().starts_with('{') {
        let json: Json = serde_json::from_str(value).map_err(|error| format!("no JSON: {error}"))?;
        let Json::Object(fields) = json else { return Err("is no object".to_owned()) };
        let one = |(name, value): (String, Json)| match value {
            Json::String(text) => Ok((name, text)),
            Json::Number(number) => Ok((name, number.to_string())),
            other => Err(format!("{name}: {other} is no text")),
        };
        return fields.into_iter().map(one).collect();
    }
    let pieces = value.split(behind).map(str::trim).filter(|piece| !piece.is_empty());
    let one = |piece: &str| match piece.split_once(between) {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{piece:?} is no name and value with {between:?} between them")),
    };
    pieces.map(one).collect()
}

impl Site {
    /// The URLs that have properties of their own, by id or MD5.
    pub fn own_urls(&self) -> BTreeSet<&str> {
        let named = self.properties.iter().map(|property| property.url_md5.as_str());
        named.filter(|url| !url.is_empty()).collect()
    }

    /// The site as it is for one URL: properties that are that URL's own are put over those of the site.
    pub fn for_url(&self, url_md5: &str) -> Site {
        let own: Vec<&Property> =
            self.properties.iter().filter(|property| property.url_md5.eq_ignore_ascii_case(url_md5)).collect();
        let replaced = |property: &Property| own.iter().any(|own| own.name == property.name);
        let whole = self.properties.iter().filter(|property| property.url_md5.is_empty() && !replaced(property));
        let over = own.iter().map(|property| Property { url_md5: String::new(), ..(*property).clone() });
        let properties = whole.cloned().chain(over).collect();
        Site { properties, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn site(properties: Json) -> Result<Site, BadRequest> {
        Site::read(json!({"id": "a", "urls": ["http://a.example/"], "properties": properties}))
    }

    fn manner(properties: Json) -> Manner {
        Manner::of_site(&site(properties).unwrap()).unwrap()
    }

    fn header(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn headers_and_cookies_are_lines_or_objects() {
        let lines = json!([{"name": "HTTP_HEADERS", "value": "Accept-Language: de\r\nX-Time: 10:30\r\n"}, {"name": "HTTP_COOKIE", "value": "a=1; b=2=3;"}]);
        let expected = [header("Accept-Language", "de"), header("X-Time", "10:30"), header("cookie", "a=1; b=2=3")];
        assert_eq!(manner(lines).headers("http://a.example/"), expected);
        let objects = json!([{"name": "HTTP_HEADERS", "value": {"X-N": 7}}, {"name": "HTTP_COOKIE", "value": {"a": "1"}}, {"name": "REFERER_SELF_URL", "value": 1}]);
        let expected = [header("X-N", "7"), header("cookie", "a=1"), header("referer", "http://a.example/x")];
        assert_eq!(manner(objects).headers("http://a.example/x"), expected);
        assert!(manner(json!([])).headers("http://a.example/").is_empty());
        let empty = json!([{"name": "HTTP_HEADERS", "value": " "}, {"name": "REFERER_SELF_URL", "value": 0}]);
        assert!(manner(empty).headers("http://a.example/").is_empty());
    }

    #[test]
    fn links_stand_where_the_set_of_their_page_says() {
        let places = |value: Json, url: &str| {
            let manner = manner(json!([{"name": "COLLECT_URLS_XPATH_LIST", "value": value}]));
            let places = manner.places(url).unwrap();
            (places.targets.iter().map(|target| target.text().to_owned()).collect::<Vec<String>>(), places.adds)
        };
        let sets =
            json!({"sets": {"": ["//a/@href"], "/list": ["css:li a"], "/other$": ["//area/@href"]}, "mode": "1"});
        assert_eq!(places(sets, "http://a.example/list/3"), (vec!["//a/@href".into(), "css:li a".into()], true));
        assert_eq!(places(json!({"sets": {"/list": ["//a"]}}), "http://a.example/"), (vec![], false));
        assert_eq!(places(json!(["//a"]), "http://a.example/"), (vec!["//a".into()], false));
        assert!(manner(json!([])).places("http://a.example/").is_none());
    }

    #[test]
    fn types_are_taken_for_others_and_keep_their_parameters() {
        let manner = manner(json!([{"name": "CONTENT_TYPE_MAP", "value": {"Text/Plain": "text/html"}}]));
        let taken = |said: &'static str| manner.content_type(Some(said)).unwrap().into_owned();
        assert_eq!(taken("text/plain; charset=utf-8"), "text/html; charset=utf-8");
        assert_eq!((taken("TEXT/plain"), taken("text/css")), ("text/html".to_owned(), "text/css".to_owned()));
        assert!(manner.content_type(None).is_none());
    }

    #[test]
    fn a_proxy_may_be_a_property() {
        let of = |list: Json| manner(list).proxy().map(|proxy| (proxy.host.clone(), proxy.priority));
        let two =
            json!([{"name": "HTTP_PROXY_HOST", "value": "proxy.example"}, {"name": "HTTP_PROXY_PORT", "value": 3128}]);
        assert_eq!(of(two), Some(("proxy.example:3128".to_owned(), 0)));
        let one = json!([{"name": "HTTP_PROXY_HOST", "value": "http://proxy.example:80/"}]);
        assert_eq!(of(one), Some(("proxy.example:80".to_owned(), 0)));
        assert_eq!(of(json!([{"name": "HTTP_PROXY_PORT", "value": 3128}])), None);
    }

    #[test]
    fn what_is_for_one_url_is_put_over_what_is_for_all() {
        let id = "00112233445566778899aabbccddeeff";
        let site = site(json!([
            {"name": "HTTP_REDIRECTS_MAX", "value": 3}, {"name": "HTML_REDIRECTS_MAX", "value": 2},
            {"name": "HTTP_REDIRECTS_MAX", "value": 0, "urlMd5": id}]))
        .unwrap();
        assert_eq!(site.own_urls().into_iter().collect::<Vec<_>>(), [id]);
        let of = |site: &Site| {
            let manner = Manner::of_site(site).unwrap();
            (manner.redirects_max, manner.refreshes_max)
        };
        assert_eq!((of(&site), of(&site.for_url(&id.to_uppercase()))), ((Some(3), Some(2)), (Some(0), Some(2))));
        assert_eq!(of(&site.for_url("ff")), (Some(3), Some(2)));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (name, value, word) in [
            ("HTTP_HEADERS", json!("nonsense"), "no name and value"),
            ("HTTP_HEADERS", json!("User-Agent: x"), "crawler's to set"),
            ("HTTP_HEADERS", json!("Cookie: a=1"), "HTTP_COOKIE"),
            ("HTTP_HEADERS", json!("Proxy-Authorization: x"), "crawler's to set"),
            ("HTTP_HEADERS", json!("A B: x"), "no name of a header"),
            ("HTTP_HEADERS", json!("X: a\nx: b"), "twice"),
            ("HTTP_HEADERS", json!({"X": [1]}), "no text"),
            ("HTTP_HEADERS", json!({"X": "a\r\nHost: b"}), "cannot be sent"),
            ("HTTP_COOKIE", json!("a"), "no name and value"),
            ("HTTP_COOKIE", json!("a b=1"), "no cookie"),
            ("HTTP_COOKIE", json!({"a": "\u{e9}"}), "cannot be sent"),
            ("HTTP_REDIRECTS_MAX", json!("many"), "number of redirects"),
            ("HTML_REDIRECTS_MAX", json!(-1), "number of redirects"),
            ("COLLECT_URLS_XPATH_LIST", json!("//a"), "no JSON"),
            ("COLLECT_URLS_XPATH_LIST", json!({"set": {}}), ".set: is not known"),
            ("COLLECT_URLS_XPATH_LIST", json!({"mode": 1}), ".sets: is missing"),
            ("COLLECT_URLS_XPATH_LIST", json!({"sets": {"(": []}}), ".sets[\"(\"]"),
            ("COLLECT_URLS_XPATH_LIST", json!({"sets": {"": ["//a", "//["]}}), ".sets[\"\"][1]: at character 3"),
            ("COLLECT_URLS_XPATH_LIST", json!({"sets": {}, "mode": 2}), ".mode: 2"),
            ("COLLECT_URLS_XPATH_LIST", json!([7]), "[0]: is no text"),
            ("CONTENT_TYPE_MAP", json!({"text": "text/html"}), "a type looks like"),
            ("HTTP_PROXY_HOST", json!("proxy.example"), "has no port"),
        ] {
            for url_md5 in ["", "00112233445566778899aabbccddeeff"] {
                let list = json!([{"name": "X", "value": 1}, {"name": name, "value": value, "urlMd5": url_md5}]);
                let bad = site(list).unwrap_err().to_string();
                assert!(bad.contains(word) && bad.contains("properties"), "{name} {value}: {bad}");
            }
        }
        let bad = site(json!([{"name": "X", "value": 1, "urlMd5": "xyz"}])).unwrap_err().to_string();
        assert!(bad.contains("properties[0].urlMd5"), "{bad}");
    }
}
