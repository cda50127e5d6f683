//! Sites in the pure layer: people who operate on them, what nodes make of their definitions, and what is counted of them.
//!
//! Whoever operates asks a node as the program's doors do: what it knows of the site decides what is to be changed, root URLs are kept before the site is
//! defined, and who is refused or hears nothing looks again, at another node perhaps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use proto::clients::identity::is_client;
use proto::cluster::coordinator;
use proto::cluster::copy::{RecordCopy, merged};
use proto::cluster::mutant::Planted;
use proto::cluster::registry::{Definition, DefinitionKind};
use proto::cluster::share::Counted;
use proto::crawl::crawls::{Crawls, Limits, Shares};
use proto::crawl::filter::{Filter, FilterRules, Scope};
use proto::crawl::frontier;
use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use proto::key::{DEFAULT_CRAWL, UrlKey};
use proto::site::SiteDefinition;
use proto::url::UrlRules;

use super::sources::SOURCE_TICKETS;
use super::{Happening, World, parse};
use crate::world::plan::{Fault, MILLISECOND, Operation, Plan, SiteOperation};
use crate::world::sites::{self, Change, SiteEpoch};
use crate::world::trace::Event;

/// Tickets of operations on sites, below those of sources.
const OPERATION_TICKETS: u64 = 1 << 32;
/// Who was refused looks again after this.
const AGAIN_AFTER: Micros = 700 * MILLISECOND;

/// Whether a ticket is of an operation on a site.
pub(super) fn is_operation(ticket: u64) -> bool {
    (OPERATION_TICKETS..SOURCE_TICKETS).contains(&ticket)
}

/// Operations on sites, and those that wait for an answer.
pub(super) struct Operations {
    all: Vec<(usize, SiteOperation)>,
    done: BTreeSet<usize>,
    /// The attempt that each is in.
    attempts: BTreeMap<usize, u64>,
    waiting: BTreeMap<u64, Waiting>,
    next_ticket: u64,
    /// What somebody was told is over: by site, the first epoch that may live.
    revoked: BTreeMap<u32, u32>,
}

struct Waiting {
    number: usize,
    attempt: u64,
    change: Change,
}

impl Operations {
    pub(super) fn new(plan: &Plan) -> Operations {
        Operations {
            all: sites::operations(plan),
            done: BTreeSet::new(),
            attempts: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_ticket: OPERATION_TICKETS,
            revoked: BTreeMap::new(),
        }
    }

    /// When each begins.
    pub(super) fn times(&self) -> Vec<Micros> {
        self.all.iter().map(|(_, operation)| operation.at_ms * MILLISECOND).collect()
    }
}

/// The crawls of a node with these definitions, if the plan has any but the one without a name.
pub(super) fn crawls<'a>(plan: &Plan, definitions: impl Iterator<Item = &'a Definition>) -> Option<Arc<Crawls>> {
    static NONE: LazyLock<Crawls> = LazyLock::new(|| {
        let rules = FilterRules { scope: Scope::Any, ..FilterRules::default() };
        let filter = Filter::new(rules, &[]).expect("a filter without patterns");
        Crawls::of_cluster(Arc::new(filter), DEFAULT_CRAWL, UrlRules::default())
    });
    let of_sites = |one: &&Definition| one.key.kind == DefinitionKind::Site;
    let with = |definitions: Vec<Definition>| Arc::new(NONE.with(&definitions));
    (!plan.sites.is_empty()).then(|| with(definitions.filter(of_sites).cloned().collect()))
}

/// The rules by which links of a page are followed; `None` for the crawl that follows all. A node that has not heard of a site follows none.
pub(super) fn rules(crawls: Option<&Crawls>, crawl: &str) -> Option<Arc<Filter>> {
    static NOTHING: LazyLock<Arc<Filter>> = LazyLock::new(|| {
        let rules = FilterRules { scope: Scope::Host, ..FilterRules::default() };
        Arc::new(Filter::new(rules, &[]).expect("a filter without patterns"))
    });
    if crawl == DEFAULT_CRAWL {
        return None;
    }
    Some(crawls.and_then(|crawls| crawls.filter(crawl)).unwrap_or(&NOTHING).clone())
}

impl World<'_> {
    // Operations.

    pub(super) fn operate(&mut self, at: Micros, number: usize, attempt: u64) {
        let operations = &mut self.operations;
        let current = operations.attempts.get(&number).copied().unwrap_or(0);
        if operations.done.contains(&number) || attempt < current {
            return;
        }
        operations.attempts.insert(number, attempt);
        let (site, SiteOperation { what, .. }) = operations.all[number];
        if attempt == 0 {
            self.trace.record(at, Event::DefinitionAsked { number: sites::FIRST_NUMBER + number });
        }
        self.at(at + sites::patience(self.plan), Happening::Operates { number, attempt: attempt + 1 });
        let up: Vec<NodeId> = self.nodes.values().filter(|node| node.takes_clients()).map(|node| node.id).collect();
        if up.is_empty() {
            return;
        }
        let id = sites::draw(self.plan, number, attempt).pick(&up);
        let roots = self.plan.sites[site].hosts.iter();
        let roots = roots.filter_map(|host| parse(&self.origins.submission_url(*host, 0))).collect();
        let Some(crawls) = self.crawls_of(id) else { return };
        let known = crawls.site(&sites::id(site)).map(|(known, version)| (&**known, version));
        let before = known.map(|(known, _)| known.crawl_name());
        let Some(change) = sites::change(self.plan, site, what, known, roots) else {
            return self.answered(at, number); // there is no such site, or there is one already
        };
        if before.is_some_and(|crawl| self.is_being_fetched(&crawl)) {
            self.trace.sometimes(
                at,
                match what {
                    Operation::Delete => "site_deleted_while_crawled",
                    Operation::Cleanup => "site_emptied_while_crawled",
                    _ => "site_changed_while_crawled",
                },
            );
        }
        self.operations.next_ticket += 1;
        let ticket = self.operations.next_ticket;
        let (crawl, urls) = (change.definition.crawl_name(), change.roots.clone());
        self.operations.waiting.insert(ticket, Waiting { number, attempt, change });
        if urls.is_empty() {
            self.roots_kept(at, id, ticket);
        } else {
            self.step(at, id, coordinator::Input::Submitted { ticket, crawl, urls });
        }
    }

    /// Root URLs are kept: now the site is defined.
    pub(super) fn roots_kept(&mut self, at: Micros, id: NodeId, ticket: u64) {
        let Some(Waiting { change, .. }) = self.operations.waiting.get(&ticket) else { return };
        let (key, expects) = (change.key.clone(), change.expects);
        let body = Some(change.definition.encode().expect("a small definition"));
        self.step(at, id, coordinator::Input::Define { ticket, key, expects, body });
    }

    /// It is done, and whoever asked for it hears so.
    pub(super) fn operated(&mut self, at: Micros, id: NodeId, ticket: u64) {
        let Some(Waiting { number, change, .. }) = self.operations.waiting.remove(&ticket) else { return };
        if let Some(of) = change.revokes {
            self.trace.sometimes(at, if change.definition.deleted { "site_deleted" } else { "site_emptied" });
            self.trace.record(at, Event::SiteRevoked { node: id, of });
            let from = self.operations.revoked.entry(of.site).or_default();
            *from = of.epoch.max(*from);
        }
        self.answered(at, number);
    }

    /// It is not, and whoever asked looks again.
    pub(super) fn not_operated(&mut self, at: Micros, ticket: u64) {
        if let Some(Waiting { number, attempt, .. }) = self.operations.waiting.remove(&ticket) {
            self.at(at + AGAIN_AFTER, Happening::Operates { number, attempt: attempt + 1 });
        }
    }

    fn answered(&mut self, at: Micros, number: usize) {
        if self.operations.done.insert(number) {
            self.trace.record(at, Event::DefinitionAnswered { number: sites::FIRST_NUMBER + number });
        }
    }

    fn is_being_fetched(&self, crawl: &str) -> bool {
        self.nodes.values().flat_map(|node| node.fetches.values()).any(|fetching| fetching.crawl() == crawl)
    }

    fn crawls_of(&self, id: NodeId) -> Option<Arc<Crawls>> {
        self.nodes.get(&id)?.machine.as_ref()?.crawls.clone()
    }

    // What nodes make of it.

    /// Definitions are in force on a node.
    pub(super) fn redefined(&mut self, at: Micros, id: NodeId, definitions: &[Definition]) {
        let of_sites: Vec<Definition> =
            definitions.iter().filter(|one| one.key.kind == DefinitionKind::Site).cloned().collect();
        if of_sites.is_empty() {
            return;
        }
        let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return };
        let Some(crawls) = &machine.crawls else { return };
        // Others may have been told long ago that what this node still has is over.
        let late = of_sites.iter().filter_map(sites::facts).any(|says| {
            let former =
                crawls.site(&sites::id(says.of.site as usize)).map(|(known, _)| SiteDefinition::crawl_name(known));
            let revoked = self.operations.revoked.get(&says.of.site).copied().unwrap_or(0);
            revoked >= says.of.epoch
                && former.is_some_and(|former| {
                    let before = sites::of_crawl(&former).is_some_and(|SiteEpoch { epoch, .. }| epoch < revoked);
                    before && machine.storage.has_crawl(&former)
                })
        });
        let crawls = Arc::new(crawls.with(&of_sites));
        machine.crawls = Some(Arc::clone(&crawls));
        if late {
            self.trace.sometimes(at, "site_heard_of_late_with_its_records");
        }
        self.step_frontier(at, id, frontier::Input::Crawls(crawls));
    }

    /// Tells the trace which site a record is of.
    pub(super) fn name_site(&mut self, at: Micros, key: &UrlKey) {
        if self.plan.sites.is_empty() {
            return;
        }
        if let Some(of) = key.crawl().and_then(sites::of_crawl)
            && self.of_sites.insert(key.id())
        {
            self.trace.record(at, Event::UrlOfSite { url: key.id(), of });
        }
    }

    // What is counted.

    /// Counts pages of crawls that have a limit, and speaks for a share of what is left.
    pub(super) fn share_limits(&mut self, at: Micros, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.clock.local(at);
        let Some(machine) = &mut node.machine else { return };
        let Some(crawls) = &machine.crawls else { return };
        if !crawls.defined().any(|crawl| crawl.limits() != Limits::default()) {
            return;
        }
        let coordinator = &mut machine.coordinator;
        let slots = coordinator.counted_slots(now);
        let counts = machine.storage.counts(|slot| slots.contains(slot));
        let counted = Shares::counted(crawls, &counts, |crawl| coordinator.flying(crawl));
        let shares = Shares::new(crawls, &coordinator.count(now, &slots, &counted));
        let crawls = Arc::new(crawls.with_left(&shares.left));
        machine.crawls = Some(Arc::clone(&crawls));
        let partitioned = |fault: &crate::world::plan::TimedFault| {
            fault.lasts_at(at) && matches!(fault.what, Fault::Partition { .. })
        };
        // Who has fetched something and has more to fetch may not.
        let stopped =
            |(what, is): (&String, &Counted)| is.here > 0 && is.wants_more && shares.left.get(what) == Some(&0);
        if counted.iter().any(stopped) && self.plan.faults.iter().any(partitioned) {
            self.trace.sometimes(at, "limit_holds_while_partitioned");
        }
        self.step_frontier(at, id, frontier::Input::Crawls(crawls));
        self.step(at, id, coordinator::Input::Tick); // the others hear of it
    }

    /// What the nodes tell of all crawls, and what there is.
    pub(super) fn count_crawls(&self, at: Micros) -> Event {
        let mut told: BTreeMap<String, [u64; 3]> = BTreeMap::new();
        let mut records: BTreeMap<&UrlKey, RecordCopy> = BTreeMap::new();
        for node in self.nodes.values() {
            let Some(machine) = &node.machine else { continue };
            let now = node.clock.local(at);
            for (crawl, counts) in machine.storage.counts(|slot| machine.coordinator.holds(now, slot)) {
                let sum = told.entry(crawl).or_default();
                let more = [counts.totals.known, counts.totals.processed, counts.totals.failed];
                sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
            for (key, copy) in node.disk.durable().copies.iter().filter(|(key, _)| !is_client(key)) {
                let newest = merged(records.get(key), copy.clone(), Planted::default());
                records.insert(key, newest);
            }
        }
        let mut recount: BTreeMap<String, proto::counters::HostCounters> = BTreeMap::new();
        for (key, copy) in records {
            if let (Some(crawl), Ok(kept)) = (key.crawl(), copy.open()) {
                recount.entry(crawl.to_owned()).or_default().add(&kept.record);
            }
        }
        let recount = recount.into_iter().map(|(crawl, is)| (crawl, [is.known, is.processed, is.failed])).collect();
        Event::CrawlsCounted { told: told.into_iter().collect(), recount }
    }
}
