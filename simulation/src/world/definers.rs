//! People who define something while a cluster runs: when, and what. It follows from the seed of the plan alone, so that plans need not say it.

use proto::cluster::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use proto::crawl::definition::{CrawlDefinition, CrawlState};
use proto::crawl::filter::Scope;
use proto::crawl::politeness::Micros;

use super::plan::{MILLISECOND, Plan};
use super::random::{For, Random};

/// How many there are in a run.
const DEFINERS: u64 = 4;
/// Who got no answer asks again after this, at another node perhaps.
pub(crate) const PATIENCE: Micros = 12_000 * MILLISECOND;

/// When each of them asks for the first time.
pub(crate) fn times(plan: &Plan) -> Vec<Micros> {
    let time = |number| Random::at(plan.seed, For::Definition, number, 0).below(plan.faults_end());
    (0..DEFINERS).map(time).collect()
}

/// Whom one of them asks the next time.
pub(crate) fn draw(plan: &Plan, number: usize, attempt: u64) -> Random {
    Random::at(plan.seed, For::Definition, number as u64, attempt + 1)
}

/// What one of them defines. Two of them speak of the same crawl.
pub(crate) fn definition(number: usize, attempt: u64) -> (DefinitionKey, Vec<u8>) {
    let name = ["odd", "even"][number % 2].to_owned();
    let said = CrawlDefinition {
        name: name.clone(),
        seeds: vec!["http://defined.example/".to_owned()],
        scope: Scope::Host,
        include: Vec::new(),
        exclude: Vec::new(),
        depth_max: None,
        pages_max: None,
        delay_ms: None,
        recrawl_period_s: None,
        state: [CrawlState::Running, CrawlState::Paused, CrawlState::Stopped][number % 3],
        defined_at: number as u64 * 1_000 + attempt,
        fetch: None,
    };
    let body = said.encode().expect("a small definition");
    (DefinitionKey { kind: DefinitionKind::Crawl, name }, body)
}

/// The version that a node knows, as whoever asks it sees it.
pub(crate) fn seen<'a>(mut known: impl Iterator<Item = &'a Definition>, key: &DefinitionKey) -> Option<Version> {
    known.find(|one| one.key == *key && one.body.is_some()).map(|one| one.version)
}
