//! Sites of a run, as people see them: their names, what an operation makes of one, and which site a URL is of. What happens when stands in the plan.

use proto::batch::{Discovered, EntryKind};
use proto::cluster::registry::{Definition, DefinitionKey, DefinitionKind, Version};
use proto::crawl::politeness::Micros;
use proto::site::{RootUrl, Site, SiteDefinition, state};
use proto::url::CanonicalUrl;

use super::plan::{MILLISECOND, Operation, Plan, SiteOperation};
use super::random::{For, Random};

/// What names a site before its number.
const NAME: &str = "site-";
/// Who got no answer asks again after this, besides what a lease takes to lapse.
const PATIENCE: Micros = 12_000 * MILLISECOND;
/// Definitions of sites are numbered behind those that other people make.
pub(crate) const FIRST_NUMBER: usize = 100;

/// Which site a URL is of, and of which of its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteEpoch {
    /// Its number in the plan.
    pub site: u32,
    /// How often it had been emptied or deleted.
    pub epoch: u32,
}

/// A site as a node has it on its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SiteFacts {
    /// Which, and in which epoch.
    pub of: SiteEpoch,
    /// It is no more.
    pub deleted: bool,
    /// Its URLs are fetched.
    pub runs: bool,
    /// How many pages at most; 0 for no limit.
    pub pages_max: u64,
    /// How many URLs may fail for good; 0 for no limit.
    pub errors_max: u64,
}

/// The id of a site.
pub(crate) fn id(site: usize) -> String {
    format!("{NAME}{site}")
}

/// The site whose URLs have this name.
pub(crate) fn of_crawl(crawl: &str) -> Option<SiteEpoch> {
    let rest = crawl.strip_prefix(NAME)?;
    let (site, epoch) = rest.split_once('~').unwrap_or((rest, "0"));
    Some(SiteEpoch { site: site.parse().ok()?, epoch: epoch.parse().ok()? })
}

/// What a definition says of a site of the plan.
pub(crate) fn facts(definition: &Definition) -> Option<SiteFacts> {
    if definition.key.kind != DefinitionKind::Site {
        return None;
    }
    let said = SiteDefinition::decode(definition.body.as_ref()?)?;
    let of = SiteEpoch { epoch: said.epoch, ..of_crawl(&definition.key.name)? };
    let runs = !said.deleted && said.site.state == state::ACTIVE;
    let (pages_max, errors_max) = (said.site.max_resources, said.site.max_errors);
    Some(SiteFacts { of, deleted: said.deleted, runs, pages_max, errors_max })
}

/// All operations: of which site, and what when.
pub(crate) fn operations(plan: &Plan) -> Vec<(usize, SiteOperation)> {
    let of_site = |(number, site): (usize, &super::plan::SitePlan)| {
        site.operations.iter().map(move |operation| (number, *operation)).collect::<Vec<_>>()
    };
    plan.sites.iter().enumerate().flat_map(of_site).collect()
}

/// How long an answer is waited for.
pub(crate) fn patience(plan: &Plan) -> Micros {
    PATIENCE + plan.cluster.lease_ms * MILLISECOND * 11 / 10
}

/// Whom somebody asks.
pub(crate) fn draw(plan: &Plan, number: usize, attempt: u64) -> Random {
    Random::at(plan.seed, For::Site, number as u64, attempt)
}

/// A change of a site.
pub(crate) struct Change {
    pub(crate) key: DefinitionKey,
    pub(crate) expects: Option<Version>,
    pub(crate) definition: SiteDefinition,
    /// What must be kept before.
    pub(crate) roots: Vec<Discovered>,
    /// Names of smaller epochs are dead when it is acknowledged.
    pub(crate) revokes: Option<SiteEpoch>,
}

/// The change that an operation leads to where a node knows `known` of the site; `None` if there is nothing to change.
pub(crate) fn change(
    plan: &Plan,
    site: usize,
    what: Operation,
    known: Option<(&SiteDefinition, Option<Version>)>,
    roots: Vec<CanonicalUrl>,
) -> Option<Change> {
    let expects = known.and_then(|(_, version)| version);
    let there = known.map(|(known, _)| known).filter(|known| !known.deleted);
    let epoch = known.map_or(0, |(known, _)| known.epoch);
    let urls = roots.iter().map(|url| RootUrl { url: url.as_str().to_owned() }).collect();
    let (max_resources, max_errors) = (plan.sites[site].pages_max, plan.sites[site].errors_max);
    let fresh = Site { id: id(site), urls, max_resources, max_errors, request_delay: 0, ..Site::default() };
    let changed = |change: fn(&mut Site)| {
        let mut definition = there?.clone();
        change(&mut definition.site);
        Some(definition)
    };
    let definition = match what {
        Operation::New if there.is_some() => return None,
        Operation::New => SiteDefinition { epoch, ..SiteDefinition::new(fresh) },
        Operation::MorePages => changed(|site| site.max_resources *= 2)?,
        Operation::Pause => changed(|site| site.state = state::SUSPENDED)?,
        Operation::GoOn => changed(|site| site.state = state::ACTIVE)?,
        Operation::Cleanup => SiteDefinition { epoch: epoch + 1, ..there?.clone() },
        Operation::Delete => {
            there?;
            SiteDefinition { site: Site { id: id(site), ..Site::default() }, epoch: epoch + 1, deleted: true }
        }
    };
    let hands_in = matches!(what, Operation::New | Operation::Cleanup);
    let found = |url: CanonicalUrl| Discovered { url, kind: EntryKind::Page, depth: 0, priority: 200, redirects: 0 };
    Some(Change {
        key: DefinitionKey { kind: DefinitionKind::Site, name: id(site) },
        expects,
        roots: if hands_in { roots.into_iter().map(found).collect() } else { Vec::new() },
        revokes: matches!(what, Operation::Cleanup | Operation::Delete)
            .then_some(SiteEpoch { site: site as u32, epoch: definition.epoch }),
        definition,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_site_and_epoch() {
        for (epoch, name) in [(0, "site-3"), (12, "site-3~12")] {
            let definition = SiteDefinition { epoch, ..SiteDefinition::new(Site { id: id(3), ..Site::default() }) };
            assert_eq!(definition.crawl_name(), name);
            assert_eq!(of_crawl(name), Some(SiteEpoch { site: 3, epoch }));
        }
        assert_eq!((of_crawl("default"), of_crawl("site-x")), (None, None));
    }

    #[test]
    fn operations_lead_from_one_epoch_to_the_next() {
        let mut seeds = (0..).map(Plan::from_seed);
        let plan = seeds.find(|plan| plan.sites.iter().any(|site| site.pages_max > 0)).expect("some have sites");
        let site = plan.sites.iter().position(|site| site.pages_max > 0).expect("just looked");
        let version = Some(Version { number: 1, node: proto::id::NodeId(0), boot: 1 });
        let after = |known: Option<&SiteDefinition>, what| {
            let known = known.map(|known| (known, version));
            change(&plan, site, what, known, Vec::new())
                .map(|change| (change.definition, change.revokes.map(|of| of.epoch)))
        };
        assert!(after(None, Operation::Delete).is_none() && after(None, Operation::Pause).is_none());
        let (made, none) = after(None, Operation::New).unwrap();
        assert_eq!((made.epoch, none), (0, None));
        assert!(after(Some(&made), Operation::New).is_none());
        let (emptied, first) = after(Some(&made), Operation::Cleanup).unwrap();
        assert_eq!((emptied.epoch, first, emptied.deleted), (1, Some(1), false));
        let (deleted, second) = after(Some(&emptied), Operation::Delete).unwrap();
        assert_eq!((deleted.epoch, second, deleted.deleted), (2, Some(2), true));
        assert!(after(Some(&deleted), Operation::Cleanup).is_none());
        let (again, none) = after(Some(&deleted), Operation::New).unwrap();
        assert_eq!((again.epoch, again.deleted, none), (2, false, None));
        let (more, _) = after(Some(&again), Operation::MorePages).unwrap();
        assert_eq!(more.site.max_resources, 2 * plan.sites[site].pages_max);
    }
}
