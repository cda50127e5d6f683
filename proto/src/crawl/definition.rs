//! What a person asks to be crawled: seeds, how far to go, limits, and whether it runs. Every node has every definition
//! ([`registry`](crate::cluster::registry)); a URL belongs to the crawl under whose name it was found, and to no other.

use serde::{Deserialize, Serialize};

use super::filter::{Filter, FilterError, FilterRules, Scope};
use crate::clients::fetch::Fetch;
use crate::key::{CRAWL_NAME_BYTES_MAX, crawl_name_is_valid};
use crate::url::{CanonicalUrl, UrlRules};
use crate::wire::{self, WireError};

/// Seeds in a definition: every node keeps them all. More are handed in as URLs of the crawl.
pub const SEEDS_MAX: usize = 1_000;
/// Version of the encoding of a definition.
const VERSION: u16 = 1;
/// Version of one that is open to clients: who fetches stands behind the rest. A node that knows only the first version does not understand it and fetches nothing.
const VERSION_OPEN: u16 = 2;

/// Whether a crawl goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrawlState {
    /// Its URLs are fetched.
    #[default]
    Running,
    /// Nothing of it is fetched for now; everything waits where it is.
    Paused,
    /// Nothing of it is fetched any more; what it found stays.
    Stopped,
}

impl CrawlState {
    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            CrawlState::Running => "running",
            CrawlState::Paused => "paused",
            CrawlState::Stopped => "stopped",
        }
    }
}

/// A crawl, as it is defined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrawlDefinition {
    /// Its name, under which its URLs are kept.
    pub name: String,
    /// Where it begins.
    pub seeds: Vec<String>,
    /// How far from the seeds it may go.
    pub scope: Scope,
    /// Regular expressions on the whole URL, of which one must match, if there are any.
    pub include: Vec<String>,
    /// Regular expressions on the whole URL, of which none may match.
    pub exclude: Vec<String>,
    /// Links between a seed and a page; that of the nodes' settings if absent.
    pub depth_max: Option<u16>,
    /// Pages after which nothing more is fetched.
    pub pages_max: Option<u64>,
    /// Least time between two requests to a host; never less than the nodes' settings say.
    pub delay_ms: Option<u64>,
    /// After what time a page is crawled again; that of the nodes' settings if absent.
    pub recrawl_period_s: Option<u64>,
    /// Whether it goes on.
    pub state: CrawlState,
    /// When it was defined, Unix milliseconds.
    pub defined_at: u64,
    /// Who fetches, if it is open to clients: then its URLs wait in their queues. Not a part of the first version.
    #[serde(skip)]
    pub fetch: Option<Fetch>,
}

/// Why a definition is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// Its name.
    #[error("{0:?} names no crawl: 1 to {CRAWL_NAME_BYTES_MAX} bytes without control characters")]
    Name(String),
    /// No seed.
    #[error("a crawl needs a URL to begin with")]
    NoSeed,
    /// No seed, and a scope that goes by seeds.
    #[error("without a URL to begin with nothing is in scope; give one, or --scope any: then clients bring the URLs")]
    NoScope,
    /// Too many seeds.
    #[error(
        "{0} seeds, more than {SEEDS_MAX}; define the crawl with some of them and hand the others in with `ctl url add --crawl`"
    )]
    TooManySeeds(usize),
    /// A seed is no URL.
    #[error("seed {url}: {reason}")]
    Seed {
        /// As it was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A limit that lets nothing through.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// The patterns.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl CrawlDefinition {
    /// Checks it, and makes its rules ready for asking. What it does not say is as in `base`.
    pub fn understand(
        &self,
        base: &FilterRules,
        urls: &UrlRules,
    ) -> Result<(Filter, Vec<CanonicalUrl>), DefinitionError> {
        if !crawl_name_is_valid(&self.name) {
            return Err(DefinitionError::Name(self.name.clone()));
        }
        match (self.seeds.is_empty(), self.fetch) {
            (true, None) => return Err(DefinitionError::NoSeed),
            (true, Some(_)) if self.scope != Scope::Any => return Err(DefinitionError::NoScope),
            _ => {}
        }
        self.prepare(base, urls)
    }

    /// The same for one that may be without seeds, as a site may: its URLs are handed in.
    pub fn prepare(&self, base: &FilterRules, urls: &UrlRules) -> Result<(Filter, Vec<CanonicalUrl>), DefinitionError> {
        if self.seeds.len() > SEEDS_MAX {
            return Err(DefinitionError::TooManySeeds(self.seeds.len()));
        }
        for (limit, name) in [(self.pages_max, "the number of pages"), (self.recrawl_period_s, "the recrawl period")] {
            if limit == Some(0) {
                return Err(DefinitionError::Zero(name));
            }
        }
        let seed = |text: &String| {
            CanonicalUrl::parse(text, urls)
                .map_err(|error| DefinitionError::Seed { url: text.clone(), reason: error.to_string() })
        };
        let seeds: Vec<CanonicalUrl> = self.seeds.iter().map(seed).collect::<Result<_, _>>()?;
        let rules = FilterRules {
            scope: self.scope,
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            depth_max: self.depth_max.or(base.depth_max),
            ..base.clone()
        };
        let filter = Filter::new(rules, &seeds)?;
        // Where seeds usually lead to. A node that follows a seed's redirect would learn it, and the others would not.
        for seed in &seeds {
            for other in siblings(seed, urls) {
                filter.widen(seed, &other);
            }
        }
        Ok((filter, seeds))
    }

    /// Says whether two definitions differ only in their state and time.
    pub fn asks_the_same(&self, other: &CrawlDefinition) -> bool {
        let alike = CrawlDefinition { state: other.state, defined_at: other.defined_at, ..self.clone() };
        alike == *other
    }

    /// The bytes that nodes keep.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        match self.fetch {
            None => wire::encode(&(VERSION, self)),
            Some(fetch) => wire::encode(&(VERSION_OPEN, self, fetch)),
        }
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<CrawlDefinition, WireError> {
        if wire::decode_first::<u16>(&mut &*bytes)? != VERSION_OPEN {
            return wire::decode::<(u16, CrawlDefinition)>(bytes).map(|(_, definition)| definition);
        }
        let (_, definition, fetch) = wire::decode::<(u16, CrawlDefinition, Fetch)>(bytes)?;
        Ok(CrawlDefinition { fetch: Some(fetch), ..definition })
    }
}

/// The same seed over the other scheme, and with and without `www.`.
fn siblings(seed: &CanonicalUrl, urls: &UrlRules) -> Vec<CanonicalUrl> {
    let Some((scheme, rest)) = seed.as_str().split_once("://") else { return Vec::new() };
    let is_name = seed.host().parse::<std::net::IpAddr>().is_err() && !seed.host().starts_with('[');
    let mut rests = vec![rest.to_owned()];
    if is_name {
        rests.push(rest.strip_prefix("www.").map_or_else(|| format!("www.{rest}"), str::to_owned));
    }
    let schemes = if scheme == "http" || scheme == "https" { vec!["http", "https"] } else { vec![scheme] };
    let all = rests.iter().flat_map(|rest| schemes.iter().map(move |scheme| format!("{scheme}://{rest}")));
    all.filter_map(|text| CanonicalUrl::parse(&text, urls).ok()).filter(|url| url != seed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(seed: &str) -> CrawlDefinition {
        CrawlDefinition {
            name: "news".into(),
            seeds: vec![seed.into()],
            scope: Scope::Host,
            include: Vec::new(),
            exclude: Vec::new(),
            depth_max: None,
            pages_max: None,
            delay_ms: None,
            recrawl_period_s: None,
            state: CrawlState::Running,
            defined_at: 0,
            fetch: None,
        }
    }

    fn admits(definition: &CrawlDefinition, url: &str) -> bool {
        let (filter, _) = definition.understand(&FilterRules::default(), &UrlRules::default()).unwrap();
        filter.admits(&CanonicalUrl::parse(url, &UrlRules::default()).unwrap(), 1).is_ok()
    }

    #[test]
    fn it_covers_its_seeds_and_where_they_usually_lead() {
        let news = definition("http://example.com/a/");
        assert!(admits(&news, "https://www.example.com/b") && admits(&news, "http://example.com/"));
        assert!(!admits(&news, "http://other.example.com/") && !admits(&news, "http://www.other.com/"));
        let below = CrawlDefinition { scope: Scope::Prefix, ..news };
        assert!(admits(&below, "https://www.example.com/a/x") && !admits(&below, "https://www.example.com/b"));
        let address = definition("http://127.0.0.1:8080/");
        assert!(admits(&address, "http://127.0.0.1:8080/x") && !admits(&address, "http://127.0.0.2:8080/"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |change: fn(&mut CrawlDefinition)| {
            let mut bad = definition("http://example.com/");
            change(&mut bad);
            bad.understand(&FilterRules::default(), &UrlRules::default()).unwrap_err().to_string()
        };
        assert!(wrong(|bad| bad.name.clear()).contains("names no crawl"));
        assert!(wrong(|bad| bad.seeds.clear()).contains("needs a URL"));
        assert!(wrong(|bad| bad.seeds = vec!["x".into(); SEEDS_MAX + 1]).contains("url add"));
        assert!(wrong(|bad| bad.seeds.push("nonsense".into())).contains("nonsense"));
        assert!(wrong(|bad| bad.include.push("(".into())).contains("pattern"));
        assert!(wrong(|bad| bad.pages_max = Some(0)).contains("at least 1"));
    }

    #[test]
    fn it_survives_its_encoding_and_is_told_from_others() {
        let news = definition("http://example.com/");
        assert_eq!(CrawlDefinition::decode(&news.encode().unwrap()).unwrap(), news);
        let paused = CrawlDefinition { state: CrawlState::Paused, defined_at: 7, ..news.clone() };
        assert!(paused.asks_the_same(&news));
        assert!(!CrawlDefinition { pages_max: Some(9), ..news.clone() }.asks_the_same(&news));
    }

    #[test]
    fn one_that_is_open_to_clients_is_a_version_of_its_own() {
        let news = definition("http://example.com/");
        let first = news.encode().unwrap();
        for fetch in [Fetch::Own, Fetch::Clients, Fetch::Both] {
            let open = CrawlDefinition { fetch: Some(fetch), ..news.clone() };
            let bytes = open.encode().unwrap();
            assert_eq!(CrawlDefinition::decode(&bytes).unwrap(), open);
            assert!(!open.asks_the_same(&news));
            assert_eq!((bytes[0], &bytes[1..bytes.len() - 1]), (2, &first[1..]), "the rest is as it was");
            assert!(wire::decode::<(u16, CrawlDefinition)>(&bytes).is_err(), "who does not know it fetches nothing");
        }
        let prefix: Vec<u8> = first.iter().copied().take(7).collect();
        assert_eq!(prefix, [1, 4, b'n', b'e', b'w', b's', 1], "what older nodes wrote is read as it was");
    }

    #[test]
    fn who_waits_for_clients_needs_no_seed() {
        let open = CrawlDefinition { seeds: Vec::new(), fetch: Some(Fetch::Own), ..definition("http://example.com/") };
        let understand =
            |open: &CrawlDefinition| open.understand(&FilterRules::default(), &UrlRules::default()).map(drop);
        assert_eq!(understand(&open), Err(DefinitionError::NoScope));
        assert_eq!(understand(&CrawlDefinition { scope: Scope::Any, ..open.clone() }), Ok(()));
        assert_eq!(understand(&CrawlDefinition { fetch: None, ..open }), Err(DefinitionError::NoSeed));
    }
}
