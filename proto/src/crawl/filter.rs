//! Which URLs belong to a crawl: scope, include and exclude patterns, traps.
//!
//! Everything here is decided by the URL alone. Traps that need a memory (pages per host, queries per path) are
//! elsewhere. The cheap questions come first, the regular expressions last.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use regex::{RegexBuilder, RegexSet, RegexSetBuilder};
use serde::{Deserialize, Serialize};

use crate::url::{CanonicalUrl, URL_BYTES_MAX};

/// Bytes that the compiled patterns of one list may take.
const PATTERNS_BYTES_MAX: usize = 16 << 20;

/// Patterns that one list may have.
const PATTERNS_MAX: usize = 1_000;

/// How far from its seeds a crawl may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Hosts of the seeds.
    #[default]
    Host,
    /// Registrable domains of the seeds.
    Domain,
    /// Origins of the seeds, below the directory of a seed's path.
    Prefix,
    /// Everywhere.
    Any,
}

/// Which URLs belong to a crawl, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FilterRules {
    /// How far from its seeds the crawl may go.
    pub scope: Scope,
    /// Regular expressions on the whole URL, of which one must match, if there are any.
    pub include: Vec<String>,
    /// Regular expressions on the whole URL, of which none may match.
    pub exclude: Vec<String>,
    /// Links between a seed and a page; no bound if absent. 256: deeper than people link, not deeper than calendars do.
    pub depth_max: Option<u16>,
    /// Bytes of a URL.
    pub url_bytes_max: usize,
    /// Segments of a path.
    pub path_segments_max: u16,
    /// How often one segment may occur in a path, anywhere; 0 counts as 1.
    pub repeated_segments_max: u16,
    /// How often a run of two or more segments may follow itself: `/a/b/a/b` has it twice; 0 counts as 1.
    pub repeated_runs_max: u16,
    /// Parameters of a query.
    pub query_parameters_max: u16,
}

impl Default for FilterRules {
    fn default() -> Self {
        FilterRules {
            scope: Scope::default(),
            include: Vec::new(),
            exclude: Vec::new(),
            depth_max: Some(256),
            url_bytes_max: URL_BYTES_MAX,
            path_segments_max: 32,
            repeated_segments_max: 4,
            repeated_runs_max: 2,
            query_parameters_max: 24,
        }
    }
}

/// Why rules are no rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A regular expression does not compile, or is too large.
    #[error("pattern {pattern:?}: {reason}")]
    BadPattern {
        /// As it was configured.
        pattern: String,
        /// What the compiler says.
        reason: String,
    },
    /// All patterns of a list together are too large.
    #[error("{count} patterns are too large together: {reason}")]
    PatternsTooLarge {
        /// How many there are in the list.
        count: usize,
        /// What the compiler says.
        reason: String,
    },
    /// More patterns in a list than allowed.
    #[error("{0} patterns, more than {PATTERNS_MAX}")]
    TooManyPatterns(usize),
}

/// Why a URL does not belong to the crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Too many links away from its seed.
    TooDeep,
    /// Away from what the seeds cover.
    OutOfScope,
    /// More bytes than allowed.
    TooLong,
    /// More path segments than allowed.
    TooManySegments,
    /// The path goes round in circles.
    RepeatedSegments,
    /// More query parameters than allowed.
    TooManyParameters,
    /// An exclude pattern matches.
    Excluded,
    /// No include pattern matches.
    NotIncluded,
}

/// [`FilterRules`] made ready for asking.
#[derive(Debug)]
pub struct Filter {
    rules: FilterRules,
    covered: Covered,
    /// Hosts, or origins and directories, that seeds were redirected to: they are covered as if they had been named.
    widened: RwLock<BTreeSet<String>>,
    include: RegexSet,
    exclude: RegexSet,
}

/// What the seeds cover.
#[derive(Clone, Debug)]
enum Covered {
    Hosts(BTreeSet<String>),
    Domains(BTreeSet<String>),
    /// Origin and directory; none begins with another, so at most one can be the beginning of a URL.
    Prefixes(BTreeSet<String>),
    Everything,
}

impl Filter {
    /// Compiles `rules` for a crawl that begins with `seeds`.
    pub fn new(rules: FilterRules, seeds: &[CanonicalUrl]) -> Result<Filter, FilterError> {
        let covered = match rules.scope {
            Scope::Host => Covered::Hosts(seeds.iter().map(|seed| seed.host().to_owned()).collect()),
            Scope::Domain => Covered::Domains(seeds.iter().map(|seed| seed.domain().to_owned()).collect()),
            Scope::Prefix => Covered::Prefixes(shortest_prefixes(seeds.iter().map(directory).collect())),
            Scope::Any => Covered::Everything,
        };
        let (include, exclude) = (compile(&rules.include)?, compile(&rules.exclude)?);
        Ok(Filter { rules, covered, widened: RwLock::default(), include, exclude })
    }

    /// A seed, or what it was redirected to before, redirects to `target`: says whether that is covered, and covers it from
    /// now on if it is of the same registrable domain (`example.com` to `www.example.com`, `http` to `https`). A seed that
    /// leads elsewhere covers nothing there: who names one domain does not ask for another.
    pub fn widen(&self, from: &CanonicalUrl, target: &CanonicalUrl) -> bool {
        if self.covers(target) {
            return true;
        }
        if from.domain() != target.domain() {
            return false;
        }
        let cover = match self.covered {
            Covered::Hosts(_) => target.host().to_owned(),
            Covered::Prefixes(_) => {
                let below = directory(from)[from.origin().len()..].to_owned();
                if !target.path().starts_with(&below) {
                    return false; // away from the folder that was asked for
                }
                format!("{}{below}", target.origin())
            }
            Covered::Domains(_) | Covered::Everything => return false, // the same domain is covered already
        };
        self.widened.write().unwrap_or_else(PoisonError::into_inner).insert(cover);
        true
    }

    /// Tells apart the rules of two runs: equal digests admit the same URLs.
    pub fn digest(&self) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        let mut add = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        add(&format!("{:?}", self.rules));
        let covered = match &self.covered {
            Covered::Hosts(all) | Covered::Domains(all) | Covered::Prefixes(all) => Some(all),
            Covered::Everything => None,
        };
        covered.into_iter().flatten().for_each(|name| add(name));
        add("widened");
        self.widened.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|name| add(name));
        hasher.finalize().as_bytes()[..16].try_into().expect("sixteen of thirty-two bytes")
    }

    fn covers(&self, url: &CanonicalUrl) -> bool {
        if self.covered.contains(url) {
            return true;
        }
        let widened = self.widened.read().unwrap_or_else(PoisonError::into_inner);
        match self.covered {
            _ if widened.is_empty() => false,
            Covered::Hosts(_) => widened.contains(url.host()),
            Covered::Prefixes(_) => widened.iter().any(|prefix| url.without_query().starts_with(prefix)),
            Covered::Domains(_) | Covered::Everything => false,
        }
    }

    /// Says whether `url`, found `depth` links away from a seed, belongs to the crawl.
    pub fn admits(&self, url: &CanonicalUrl, depth: u16) -> Result<(), Refusal> {
        let refused_if = |refused: bool, refusal| if refused { Err(refusal) } else { Ok(()) };
        let rules = &self.rules;
        refused_if(rules.depth_max.is_some_and(|max| depth > max), Refusal::TooDeep)?;
        refused_if(!self.covers(url), Refusal::OutOfScope)?;
        refused_if(url.as_str().len() > rules.url_bytes_max, Refusal::TooLong)?;
        refused_if(parameters(url) > usize::from(rules.query_parameters_max), Refusal::TooManyParameters)?;
        let segments = segment_count(url);
        refused_if(segments > usize::from(rules.path_segments_max), Refusal::TooManySegments)?;
        refused_if(self.repeats(url, segments), Refusal::RepeatedSegments)?;
        refused_if(!self.exclude.is_empty() && self.exclude.is_match(url.as_str()), Refusal::Excluded)?;
        refused_if(!self.include.is_empty() && !self.include.is_match(url.as_str()), Refusal::NotIncluded)
    }

    /// The rules this filter was made of.
    pub fn rules(&self) -> &FilterRules {
        &self.rules
    }

    fn repeats(&self, url: &CanonicalUrl, count: usize) -> bool {
        let occurs_max = usize::from(self.rules.repeated_segments_max.max(1));
        let runs_max = usize::from(self.rules.repeated_runs_max.max(1));
        // Nearly all paths are too short to go round in circles.
        if count <= occurs_max && count < 2 * (runs_max + 1) {
            return false;
        }
        let segments = segments(url);
        occurs_more_often(&segments, occurs_max) || runs_more_often(&segments, runs_max)
    }
}

impl Covered {
    fn contains(&self, url: &CanonicalUrl) -> bool {
        match self {
            Covered::Hosts(hosts) => hosts.contains(url.host()),
            Covered::Domains(domains) => domains.contains(url.domain()),
            Covered::Prefixes(prefixes) => begins_with_one_of(prefixes, url.without_query()),
            Covered::Everything => true,
        }
    }
}

/// Origin and path up to the last slash.
fn directory(seed: &CanonicalUrl) -> String {
    let page = seed.without_query();
    let end = page.rfind('/').map_or(page.len(), |slash| slash + 1);
    page[..end].to_owned()
}

/// Leaves out every prefix that begins with another.
fn shortest_prefixes(all: BTreeSet<String>) -> BTreeSet<String> {
    let mut shortest: Vec<String> = Vec::new();
    for prefix in all {
        // In order, whatever begins with `last` comes directly behind it.
        if !shortest.last().is_some_and(|last| prefix.starts_with(last)) {
            shortest.push(prefix);
        }
    }
    shortest.into_iter().collect()
}

/// None of `prefixes` begins with another, so only the last one not behind `text` can be its beginning.
fn begins_with_one_of(prefixes: &BTreeSet<String>, text: &str) -> bool {
    let up_to_text = (Bound::Unbounded, Bound::Included(text));
    prefixes.range::<str, _>(up_to_text).next_back().is_some_and(|prefix| text.starts_with(prefix))
}

fn parameters(url: &CanonicalUrl) -> usize {
    url.query().map_or(0, |query| query.split('&').filter(|parameter| !parameter.is_empty()).count())
}

/// The path without the slashes at its ends: the one at its end begins no segment.
fn inner_path(url: &CanonicalUrl) -> &str {
    let path = url.path();
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path)
}

/// Returns the segments of the path.
fn segments(url: &CanonicalUrl) -> Vec<&str> {
    let path = inner_path(url);
    if path.is_empty() { Vec::new() } else { path.split('/').collect() }
}

fn segment_count(url: &CanonicalUrl) -> usize {
    let path = inner_path(url);
    if path.is_empty() { 0 } else { 1 + path.bytes().filter(|byte| *byte == b'/').count() }
}

/// Says whether some segment occurs more than `max` times.
fn occurs_more_often(segments: &[&str], max: usize) -> bool {
    if segments.len() <= max {
        return false;
    }
    let mut sorted = segments.to_vec();
    sorted.sort_unstable();
    sorted.chunk_by(|a, b| a == b).any(|equal| equal.len() > max)
}

/// Says whether some run of two or more segments follows itself more than `max` times in a row. A run of
/// `period` segments does so where `max * period` segments in a row equal the one `period` further on.
fn runs_more_often(segments: &[&str], max: usize) -> bool {
    let longest = segments.len() / (max + 1);
    (2..=longest).any(|period| {
        let mut equal = 0;
        segments.iter().zip(&segments[period..]).any(|(here, there)| {
            equal = if here == there { equal + 1 } else { 0 };
            equal >= max * period
        })
    })
}

fn compile(patterns: &[String]) -> Result<RegexSet, FilterError> {
    if patterns.len() > PATTERNS_MAX {
        return Err(FilterError::TooManyPatterns(patterns.len()));
    }
    let set = RegexSetBuilder::new(patterns).size_limit(PATTERNS_BYTES_MAX).build();
    set.map_err(|error| {
        // The set does not say which one; so find the first that does not compile alone.
        let alone = |pattern: &String| {
            let reason = RegexBuilder::new(pattern).size_limit(PATTERNS_BYTES_MAX).build().err()?.to_string();
            Some(FilterError::BadPattern { pattern: pattern.clone(), reason })
        };
        let together = FilterError::PatternsTooLarge { count: patterns.len(), reason: error.to_string() };
        patterns.iter().find_map(alone).unwrap_or(together)
    })
}

impl Refusal {
    /// Says whether it is a choice of whoever runs the crawl, which another run may make differently, and no guard against traps.
    pub const fn is_choice(self) -> bool {
        matches!(self, Refusal::TooDeep | Refusal::OutOfScope | Refusal::Excluded | Refusal::NotIncluded)
    }

    /// Stable name for summaries and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::TooDeep => "too_deep",
            Refusal::OutOfScope => "out_of_scope",
            Refusal::TooLong => "too_long",
            Refusal::TooManySegments => "too_many_segments",
            Refusal::RepeatedSegments => "repeated_segments",
            Refusal::TooManyParameters => "too_many_parameters",
            Refusal::Excluded => "excluded",
            Refusal::NotIncluded => "not_included",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
