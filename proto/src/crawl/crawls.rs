//! All crawls of a node at one moment: whose rules a URL goes by, and whether it may be fetched now.
//!
//! A URL goes by the rules of the crawl under whose name it is kept. A node alone has one set of rules for all names; in a cluster
//! a name that nobody defined, other than the cluster's own, is one of which this node has not heard yet: nothing of it is fetched.
//! A site is a crawl under the name that [`SiteDefinition::crawl_name`] gives it; where a crawl has that name too, the crawl's rules count.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::definition::{CrawlDefinition, CrawlState, DefinitionError};
use super::filter::{Filter, FilterRules};
use crate::clients::fetch::Fetch;
use crate::cluster::registry::{Definition, DefinitionKind, Version};
use crate::cluster::share::{self, Counted};
use crate::control::crawl::CrawlCounts;
use crate::id::UrlId;
use crate::key::DEFAULT_CRAWL;
use crate::scrape::Processing;
use crate::site::times::HOUR_MS;
use crate::site::{Allowed, Frequencies, GENERAL_SITE, Gone, Manner, Site, SiteDefinition, md5_hex};
use crate::url::UrlRules;

/// A crawl that is defined.
#[derive(Clone, Debug)]
pub struct Crawl {
    /// What it is.
    pub definition: CrawlDefinition,
    /// Which version of that.
    pub version: Version,
    /// Its rules; why there are none if they are not understood here: then nothing of it is fetched.
    pub filter: Result<Arc<Filter>, DefinitionError>,
    /// Pages that may still be handed out here, those in flight included, if it has a limit.
    pub left: Option<u64>,
    /// The site that it is, if it is one.
    pub site: Option<Arc<SiteDefinition>>,
    /// How its pages are asked for and what becomes of them, if the site says.
    pages: PageRules,
    /// The same of single URLs that have properties of their own, by id or MD5.
    of_urls: Arc<BTreeMap<String, PageRules>>,
    /// How many requests its hosts may get, if the site says.
    frequencies: Option<Arc<Frequencies>>,
}

/// What a site says of its pages, or of one of them. A rule that this node does not understand was made by a newer one; nothing goes by half of the rules.
#[derive(Clone, Debug, Default)]
struct PageRules {
    manner: Option<Arc<Manner>>,
    processing: Option<Arc<Processing>>,
}

impl PageRules {
    fn of(site: &Site) -> PageRules {
        let manner = Manner::of_site(site).ok().map(Arc::new);
        PageRules { manner, processing: Processing::of_site(site).ok().flatten().map(Arc::new) }
    }
}

/// Limits of a crawl that hold for the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Pages.
    pub pages: Option<u64>,
    /// URLs that fail for good.
    pub errors: Option<u64>,
    /// URLs that are known.
    pub urls: Option<u64>,
}

impl Limits {
    fn of(definition: &CrawlDefinition, site: Option<&SiteDefinition>) -> Limits {
        let some = |limit: u64| (limit > 0).then_some(limit);
        Limits {
            pages: definition.pages_max,
            errors: site.and_then(|site| {
                some(site.site.max_errors).map(|most| most.saturating_add(site.site.restarted.errors))
            }),
            urls: site.and_then(|site| some(site.site.max_urls)),
        }
    }

    /// Whether nothing is handed out before somebody has counted: what is fetched may become a page or an error, and names URLs.
    fn bounds_fetches(&self) -> bool {
        *self != Limits::default()
    }
}

/// Behind the name of a crawl: what is counted of it besides pages. No name has such a letter.
const ERRORS: &str = "\u{1}errors";
const URLS: &str = "\u{1}urls";

/// What a node may still do of everything that is limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Pages of a crawl that may be handed out here, those in flight included.
    pub left: BTreeMap<String, u64>,
    /// URLs of a crawl that may become known here.
    pub room: BTreeMap<String, u64>,
}

impl Shares {
    /// What is to be shared with other nodes: by what it is, what was counted of it. `flying` URLs of a crawl are handed out.
    pub fn counted(
        crawls: &Crawls,
        counts: &BTreeMap<String, CrawlCounts>,
        flying: impl Fn(&str) -> u64,
    ) -> BTreeMap<String, Counted> {
        let mut all = BTreeMap::new();
        for crawl in crawls.defined() {
            let (name, limits) = (&crawl.definition.name, crawl.limits());
            let Some(CrawlCounts { totals, .. }) = counts.get(name).filter(|_| limits.bounds_fetches()) else {
                continue;
            };
            let (under_way, waits) = (flying(name), totals.known > totals.processed.saturating_add(totals.failed));
            let of = |limit, here, under_way| Counted { limit, here, under_way, wants_more: waits };
            all.extend(limits.pages.map(|limit| (name.clone(), of(limit, totals.processed, under_way))));
            // Every page that is handed out may fail.
            all.extend(limits.errors.map(|limit| (format!("{name}{ERRORS}"), of(limit, totals.failed, under_way))));
            // What a page links to cannot wait until others were heard: nobody speaks for URLs, whoever finds some takes of what is left.
            let known = |limit| Counted { limit, here: totals.known, under_way: 0, wants_more: false };
            all.extend(limits.urls.map(|limit| (format!("{name}{URLS}"), known(limit))));
        }
        all
    }

    /// What follows from what may be done of each.
    pub fn new(crawls: &Crawls, allowed: &BTreeMap<String, share::Allowed>) -> Shares {
        let mut shares = Shares::default();
        for crawl in crawls.defined().filter(|crawl| crawl.limits().bounds_fetches()) {
            let name = &crawl.definition.name;
            let [pages, errors, urls] = [name.clone(), format!("{name}{ERRORS}"), format!("{name}{URLS}")];
            let bounds = [allowed.get(&pages), allowed.get(&errors)].into_iter().flatten().map(|share| share.left);
            match bounds.min() {
                Some(left) => drop(shares.left.insert(pages, left)),
                None if allowed.contains_key(&urls) => drop(shares.left.insert(pages, u64::MAX)),
                // Nothing of it is here, and what was spoken for is not ours any more when something comes.
                None => drop(shares.left.insert(pages, 0)),
            }
            if let Some(room) = allowed.get(&urls) {
                shares.room.insert(name.clone(), room.rest);
            }
        }
        shares
    }
}

impl Crawl {
    /// Its limits.
    pub fn limits(&self) -> Limits {
        Limits::of(&self.definition, self.site.as_deref())
    }
}

/// All crawls.
#[derive(Clone, Debug)]
pub struct Crawls {
    /// Rules of what nobody defined.
    otherwise: Arc<Filter>,
    /// The names for which they count; `None` for all.
    own: Option<[String; 2]>,
    urls: UrlRules,
    defined: BTreeMap<String, Crawl>,
    /// Sites by id, with their versions; `None` for the one that is there without anybody having defined it.
    sites: BTreeMap<String, (Arc<SiteDefinition>, Option<Version>)>,
    /// The crawls that sites are, by name.
    of_sites: BTreeMap<String, Crawl>,
    /// Names that nobody crawls under any more.
    gone: Gone,
    /// Counts how often it was said what is left.
    counted: u64,
    /// The hour since 1970 for which filters with times are made.
    hour: u64,
}

impl Crawls {
    /// A node alone: the same rules for every name.
    pub fn alone(filter: Arc<Filter>) -> Crawls {
        Crawls {
            otherwise: filter,
            own: None,
            urls: UrlRules::default(),
            defined: BTreeMap::new(),
            sites: BTreeMap::new(),
            of_sites: BTreeMap::new(),
            gone: Gone::default(),
            counted: 0,
            hour: 0,
        }
    }

    /// A node of a cluster, with rules for the crawl called `own` and for the default one; the others must be defined.
    pub fn of_cluster(filter: Arc<Filter>, own: &str, urls: UrlRules) -> Crawls {
        let own = Some([own.to_owned(), DEFAULT_CRAWL.to_owned()]);
        let mut crawls = Crawls { own, urls, ..Crawls::alone(filter) };
        crawls.define_site(GENERAL_SITE, SiteDefinition::new(Site::general()), None);
        crawls
    }

    /// As they are at a moment, if that is another hour than they were made for: filters of sites may have times in them.
    pub fn at(&self, unix_ms: u64) -> Option<Crawls> {
        let hour = unix_ms / HOUR_MS;
        if hour == self.hour {
            return None;
        }
        let mut crawls = Crawls { hour, ..self.clone() };
        for (id, (site, version)) in self.sites.iter().filter(|(_, (site, _))| site.has_times()) {
            crawls.define_site(id, SiteDefinition::clone(site), *version);
        }
        Some(crawls)
    }

    /// With these definitions, which replace older ones of the same name.
    pub fn with(&self, definitions: &[Definition]) -> Crawls {
        let mut crawls = self.clone();
        for definition in definitions {
            crawls.gone.take(definition);
            match definition.key.kind {
                DefinitionKind::Crawl => crawls.define(definition),
                DefinitionKind::Site => {
                    if let Some(site) = definition.body.as_ref().and_then(|body| SiteDefinition::decode(body)) {
                        crawls.define_site(&definition.key.name, site, Some(definition.version));
                    }
                }
                DefinitionKind::Job | DefinitionKind::Setting => {}
            }
        }
        crawls
    }

    fn define_site(&mut self, id: &str, site: SiteDefinition, version: Option<Version>) {
        let site = Arc::new(site);
        if let Some((before, _)) = self.sites.insert(id.to_owned(), (Arc::clone(&site), version)) {
            let name = before.crawl_name();
            if site.deleted || name != site.crawl_name() {
                self.of_sites.remove(&name);
            }
        }
        if !site.deleted {
            let said = site.crawl_at(self.hour * HOUR_MS);
            let limits = Limits::of(&said, Some(&site));
            let (filter, left) = self.rules_of(self.of_sites.get(&said.name), &said, limits);
            let version = version.unwrap_or(Version { number: 0, node: crate::id::NodeId(0), boot: 0 });
            let own = |url: &str| (url.to_ascii_lowercase(), PageRules::of(&site.site.for_url(url)));
            let of_urls = Arc::new(site.site.own_urls().into_iter().map(own).collect());
            let pages = PageRules::of(&site.site);
            let frequencies = site.site.frequencies().ok().filter(|limits| !limits.is_empty()).map(Arc::new);
            let crawl =
                Crawl { definition: said, version, filter, left, site: Some(site), pages, of_urls, frequencies };
            self.of_sites.insert(crawl.definition.name.clone(), crawl);
        }
    }

    /// The rules of a crawl; what seeds taught them is kept if they are the same as before.
    fn rules_of(
        &self,
        before: Option<&Crawl>,
        said: &CrawlDefinition,
        limits: Limits,
    ) -> (Result<Arc<Filter>, DefinitionError>, Option<u64>) {
        match before.filter(|before| before.definition.asks_the_same(said)) {
            Some(same) if same.limits() == limits => (same.filter.clone(), same.left),
            Some(same) => (same.filter.clone(), limits.bounds_fetches().then_some(0)),
            None => {
                let understood = said.prepare(self.base(), &self.urls);
                (understood.map(|(filter, _)| Arc::new(filter)), limits.bounds_fetches().then_some(0))
            }
        }
    }

    fn define(&mut self, definition: &Definition) {
        let (name, version) = (&definition.key.name, definition.version);
        let Some(Ok(said)) = definition.body.as_ref().map(|body| CrawlDefinition::decode(body)) else {
            self.defined.remove(name);
            return;
        };
        let (filter, left) = self.rules_of(self.defined.get(name), &said, Limits::of(&said, None));
        let (pages, of_urls) = (PageRules::default(), Arc::default());
        let crawl = Crawl { definition: said, version, filter, left, site: None, pages, of_urls, frequencies: None };
        self.defined.insert(name.clone(), crawl);
    }

    /// With this many pages left to hand out here, of crawls that have a limit.
    pub fn with_left(&self, left: &BTreeMap<String, u64>) -> Crawls {
        let mut crawls = Crawls { counted: self.counted + 1, ..self.clone() };
        for (name, left) in left {
            let (defined, of_sites) = (&mut crawls.defined, &mut crawls.of_sites);
            if let Some(crawl) = defined.get_mut(name).or_else(|| of_sites.get_mut(name)) {
                crawl.left = crawl.limits().bounds_fetches().then_some(*left);
            }
        }
        crawls
    }

    /// What definitions do not say is as in here.
    pub fn base(&self) -> &FilterRules {
        self.otherwise.rules()
    }

    /// How URLs are brought into canonical form.
    pub fn urls(&self) -> &UrlRules {
        &self.urls
    }

    /// The crawls that are defined, and those that sites are.
    pub fn defined(&self) -> impl Iterator<Item = &Crawl> {
        let of_sites = self.of_sites.values().filter(|crawl| !self.defined.contains_key(&crawl.definition.name));
        self.defined.values().chain(of_sites)
    }

    /// The crawl of this name, if it is defined.
    pub fn get(&self, name: &str) -> Option<&Crawl> {
        self.defined.get(name).or_else(|| self.of_sites.get(name))
    }

    /// The site of this id, and its version if somebody defined it; also one that was deleted.
    pub fn site(&self, id: &str) -> Option<(&Arc<SiteDefinition>, Option<Version>)> {
        self.sites.get(id).map(|(site, version)| (site, *version))
    }

    /// Whether a site has this id, or its URLs have this name.
    pub fn is_of_site(&self, name: &str) -> bool {
        self.of_sites.contains_key(name) || self.sites.get(name).is_some_and(|(site, _)| !site.deleted)
    }

    /// All sites that there are.
    pub fn sites(&self) -> impl Iterator<Item = &Arc<SiteDefinition>> {
        self.sites.values().map(|(site, _)| site).filter(|site| !site.deleted)
    }

    /// How many links of one page of a crawl are followed, if not all.
    pub fn links_max(&self, name: &str) -> Option<usize> {
        let site = self.get(name)?.site.as_ref()?;
        let limit = site.site.max_urls_from_page;
        (limit > 0).then(|| usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// How long a page of a crawl may take, in milliseconds, and how many bytes it may have, where its site says so.
    pub fn fetch_limits(&self, name: &str) -> (Option<u64>, Option<usize>) {
        let Some(site) = self.get(name).and_then(|crawl| crawl.site.as_ref()) else { return (None, None) };
        let some = |limit: u64| (limit > 0).then_some(limit);
        let bytes = some(site.site.max_resource_size).map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        (some(site.site.http_timeout), bytes)
    }

    /// What is to become of a page of a crawl, if its site says.
    pub fn processing(&self, name: &str, url: &str) -> Option<&Arc<Processing>> {
        self.page_rules(name, url)?.processing.as_ref()
    }

    /// How a page of a crawl is asked for and which of its references are links, if its site says.
    pub fn manner(&self, name: &str, url: &str) -> Option<&Arc<Manner>> {
        self.page_rules(name, url)?.manner.as_ref()
    }

    fn page_rules(&self, name: &str, url: &str) -> Option<&PageRules> {
        let crawl = self.get(name)?;
        if crawl.of_urls.is_empty() {
            return Some(&crawl.pages);
        }
        let own = crawl.of_urls.get(&UrlId::of(name, url).to_string()).or_else(|| crawl.of_urls.get(&md5_hex(url)));
        Some(own.unwrap_or(&crawl.pages))
    }

    /// The rules that URLs of a crawl go by; `None` if nothing is known of it here.
    pub fn filter(&self, name: &str) -> Option<&Arc<Filter>> {
        match self.get(name) {
            Some(crawl) => crawl.filter.as_ref().ok(),
            None => self.own.as_ref().is_none_or(|own| own.iter().any(|own| own == name)).then_some(&self.otherwise),
        }
    }

    /// Whether URLs of a crawl are handed out.
    pub fn runs(&self, name: &str) -> bool {
        match self.get(name) {
            Some(crawl) => {
                let by_nodes = crawl.definition.fetch.is_none_or(Fetch::by_nodes);
                crawl.definition.state == CrawlState::Running && crawl.filter.is_ok() && by_nodes
            }
            None => self.filter(name).is_some(),
        }
    }

    /// Who fetches the URLs of a crawl, if it is open to clients.
    pub fn fetch(&self, name: &str) -> Option<Fetch> {
        self.defined.get(name).and_then(|crawl| crawl.definition.fetch)
    }

    /// The crawls that are open to clients.
    pub fn open(&self) -> impl Iterator<Item = (&CrawlDefinition, Fetch)> {
        self.defined.values().filter_map(|crawl| Some((&crawl.definition, crawl.definition.fetch?)))
    }

    /// Whether nobody crawls under this name any more: its site was emptied or deleted.
    pub fn is_gone(&self, name: &str) -> bool {
        self.gone.has(name)
    }

    /// The delay that a crawl asks for beyond that of the settings, in milliseconds.
    pub fn delay_ms(&self, name: &str) -> u64 {
        self.get(name).and_then(|crawl| crawl.definition.delay_ms).unwrap_or(0)
    }

    /// What the limits of a crawl's site say of a host at a moment, where no delay is longer than `delay_max_ms`; `None` if it has no limits.
    pub fn allow(&self, name: &str, host: impl FnOnce() -> String, unix_ms: u64, delay_max_ms: u64) -> Option<Allowed> {
        let limits = self.get(name)?.frequencies.as_ref()?;
        Some(limits.allow(&host(), unix_ms, delay_max_ms))
    }

    /// When a crawl was defined, Unix milliseconds; 0 if nobody defined it.
    pub fn defined_at(&self, name: &str) -> u64 {
        self.get(name).map_or(0, |crawl| crawl.definition.defined_at)
    }

    /// Counts how often it was said what is left.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Pages of a crawl that may still be handed out here; `None` if there is no limit.
    pub fn left(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(|crawl| crawl.left)
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::Scope;
    use super::*;
    use crate::cluster::registry::DefinitionKey;
    use crate::control::Totals;
    use crate::id::NodeId;
    use crate::url::CanonicalUrl;

    fn crawls() -> Crawls {
        let filter = Filter::new(FilterRules { scope: Scope::Any, ..FilterRules::default() }, &[]).unwrap();
        Crawls::of_cluster(Arc::new(filter), DEFAULT_CRAWL, UrlRules::default())
    }

    fn definition(number: u64, change: impl Fn(&mut CrawlDefinition)) -> Definition {
        let mut said = CrawlDefinition {
            name: "news".into(),
            seeds: vec!["http://a.example/".into()],
            scope: Scope::Host,
            include: Vec::new(),
            exclude: Vec::new(),
            depth_max: None,
            pages_max: Some(10),
            delay_ms: Some(500),
            recrawl_period_s: None,
            state: CrawlState::Running,
            defined_at: 0,
            fetch: None,
        };
        change(&mut said);
        Definition {
            key: DefinitionKey { kind: DefinitionKind::Crawl, name: "news".into() },
            version: Version { number, node: NodeId(1), boot: 1 },
            body: Some(said.encode().unwrap()),
        }
    }

    #[test]
    fn what_is_limited_is_counted_and_shared() {
        let crawls = crawls().with(&[definition(1, |_| {})]);
        let totals = Totals { known: 9, processed: 4, failed: 1, bytes: 0 };
        let counts = [("news".to_owned(), CrawlCounts { totals, open: 0 })].into_iter().collect();
        let counted = Shares::counted(&crawls, &counts, |_| 2);
        let is = Counted { limit: 10, here: 4, under_way: 2, wants_more: true };
        assert_eq!(counted, [("news".to_owned(), is)].into_iter().collect());
        let may = |left, rest| share::Allowed { left, rest };
        let shares = Shares::new(&crawls, &[("news".to_owned(), may(3, 5))].into_iter().collect());
        assert_eq!(shares.left, [("news".to_owned(), 3)].into_iter().collect());
        let nothing = Shares::new(&crawls, &BTreeMap::new());
        assert_eq!(nothing.left, [("news".to_owned(), 0)].into_iter().collect(), "what was left before is not ours");
        let limited = site(1, |said| (said.site.max_errors, said.site.max_urls) = (5, 20));
        let crawls = super::Crawls::with(&crawls, &[limited]);
        let counts = [("shop".to_owned(), CrawlCounts { totals, open: 0 })].into_iter().collect();
        let counted = Shares::counted(&crawls, &counts, |_| 0);
        let limits: Vec<(u64, u64)> = counted.values().map(|is| (is.limit, is.here)).collect();
        assert_eq!(limits, [(5, 1), (20, 9)]);
        let allowed = counted.keys().cloned().zip([may(2, 4), may(0, 7)]).collect();
        let Shares { left, room } = Shares::new(&crawls, &allowed);
        assert_eq!((left["shop"], room["shop"]), (2, 7));
    }

    #[test]
    fn a_url_goes_by_the_rules_of_its_crawl() {
        let crawls = crawls().with(&[definition(1, |_| {})]);
        let elsewhere = CanonicalUrl::parse("http://b.example/", &UrlRules::default()).unwrap();
        assert!(crawls.filter(DEFAULT_CRAWL).unwrap().admits(&elsewhere, 0).is_ok());
        assert!(crawls.filter("news").unwrap().admits(&elsewhere, 0).is_err());
        assert!(crawls.filter("other").is_none() && !crawls.runs("other"), "nobody defined it");
        assert_eq!((crawls.delay_ms("news"), crawls.delay_ms(DEFAULT_CRAWL)), (500, 0));
    }

    #[test]
    fn what_only_clients_fetch_is_not_handed_out_here() {
        let open = |fetch| crawls().with(&[definition(1, |said| said.fetch = fetch)]);
        let runs = [None, Some(Fetch::Own), Some(Fetch::Both), Some(Fetch::Clients)].map(|fetch| {
            let crawls = open(fetch);
            assert_eq!((crawls.fetch("news"), crawls.fetch("other")), (fetch, None));
            assert_eq!(crawls.open().count(), usize::from(fetch.is_some()));
            crawls.runs("news")
        });
        assert_eq!(runs, [true, true, true, false]);
    }

    #[test]
    fn a_crawl_that_is_paused_keeps_its_rules_and_what_is_left() {
        let running = crawls().with(&[definition(1, |_| {})]);
        assert_eq!(running.left("news"), Some(0), "nobody has counted yet");
        let running = running.with_left(&[("news".to_owned(), 7)].into_iter().collect());
        let paused = running.with(&[definition(2, |said| said.state = CrawlState::Paused)]);
        assert!(running.runs("news") && !paused.runs("news"));
        assert_eq!(paused.left("news"), Some(7));
        assert!(Arc::ptr_eq(paused.filter("news").unwrap(), running.filter("news").unwrap()));
        let removed = paused.with(&[Definition { body: None, ..definition(3, |_| {}) }]);
        assert!(removed.get("news").is_none());
    }

    fn site(number: u64, change: impl Fn(&mut SiteDefinition)) -> Definition {
        let fields = serde_json::json!({"id": "shop", "urls": ["http://a.example/"], "maxURLsFromPage": 3});
        let mut said = SiteDefinition::new(Site::read(fields).unwrap());
        change(&mut said);
        let key = DefinitionKey { kind: DefinitionKind::Site, name: "shop".into() };
        Definition { key, body: Some(said.encode().unwrap()), ..definition(number, |_| {}) }
    }

    #[test]
    fn a_site_is_a_crawl_until_it_is_emptied_or_deleted() {
        let there = crawls().with(&[site(1, |_| {})]);
        assert!(there.runs("shop") && there.runs(GENERAL_SITE));
        assert_eq!((there.links_max("shop"), there.links_max("news")), (Some(3), None));
        let emptied = there.with(&[site(2, |said| said.epoch = 1)]);
        assert!(emptied.is_of_site("shop") && emptied.is_of_site("shop~1") && !emptied.is_of_site("news"));
        assert!(!emptied.runs("shop") && emptied.runs("shop~1"), "what is in flight is of a name that nobody fetches");
        let gone = emptied.with(&[site(3, |said| (said.epoch, said.deleted) = (2, true))]);
        assert!(!gone.runs("shop~1") && !gone.runs("shop~2"));
        assert!(gone.is_gone("shop") && gone.is_gone("shop~1") && !gone.is_gone("shop~2") && !there.is_gone("shop"));
        assert_eq!(gone.sites().count(), 1, "the general one");
        assert!(gone.site("shop").is_some_and(|(site, version)| site.deleted && version.is_some()));
        let clash = there.with(&[Definition {
            key: DefinitionKey { name: "shop".into(), ..definition(1, |_| {}).key },
            ..definition(1, |said| said.name = "shop".into())
        }]);
        assert!(clash.get("shop").unwrap().site.is_none(), "a crawl of that name comes first");
        assert_eq!(clash.defined().filter(|crawl| crawl.definition.name == "shop").count(), 1);
    }

    #[test]
    fn a_url_with_properties_of_its_own_goes_by_them() {
        let (one, two) = ("http://a.example/one", "http://a.example/two");
        let limit =
            |value: u8, url: String| serde_json::json!({"name": "HTTP_REDIRECTS_MAX", "value": value, "urlMd5": url});
        let list = [limit(3, String::new()), limit(2, md5_hex(one)), limit(1, UrlId::of("shop", two).to_string())];
        let list = serde_json::json!({"id": "shop", "urls": ["http://a.example/"], "properties": list});
        let crawls = crawls().with(&[site(1, |said| said.site = Site::read(list.clone()).unwrap())]);
        let of = |url: &str| crawls.manner("shop", url).unwrap().redirects_max;
        assert_eq!((of("http://a.example/"), of(one), of(two)), (Some(3), Some(2), Some(1)));
        assert!(crawls.manner("nosuch", one).is_none());
    }

    #[test]
    fn rules_that_are_not_understood_here_fetch_nothing() {
        let crawls = crawls().with(&[definition(1, |said| said.include = vec!["(".into()])]);
        assert!(!crawls.runs("news") && crawls.filter("news").is_none());
    }
}
