//! What must always hold, one property per file. Each is a small state machine over the events of a run and the facts of
//! the [`Oracle`], and opens with the harm it prevents. All of them look at every event; the first that does not hold ends
//! the run.
//!
//! | invariant | file |
//! |---|---|
//! | I1 at most one request in flight to a host | [`one_request_per_host`] |
//! | I2 crawl-delay between two starts | [`crawl_delay_kept`] |
//! | I3 durable state never decreases | [`state_never_goes_back`] |
//! | I4 an acknowledged URL is never lost | [`no_acknowledged_url_lost`] |
//! | I5 when faults stop, everything settles and replicas are equal | [`comes_to_rest`] |
//! | I6 redundant fetches ≤ lease acquisitions | [`few_redundant_fetches`] |
//! | I7 no two nodes believe they hold a slot | [`one_holder_per_slot`] |
//! | I8 a join or leave moves only its share | [`ring_moves_little`] |
//! | I9 the ring is a pure function | [`ring_is_a_function`] |
//! | I10 what was fsynced is there after a crash | [`synced_survives_a_crash`] |
//! | I11 no batch to the overloaded while one is idle | [`no_batch_to_the_overloaded`] |
//! | I12 a voter never has two live promises | [`one_promise_per_voter`] |
//! | I13 bounded queues stay bounded | [`queues_stay_bounded`] |
//! | I14 nothing from a former life changes state | [`former_lives_change_nothing`] |
//! | I15 nothing is fetched that robots.txt forbids, as it was read last | [`robots_obeyed`] |
//! | I16 definitions converge, and none acknowledged is lost | [`definitions_converge`] |
//! | I17 a page that counts as crawled is on two disks | [`pages_kept_twice`] |
//! | I18 one node runs what is due, and every run that is wanted is made | [`one_node_runs_what_is_due`] |
//! | I19 no task of a run is lost, and none is doubled | [`no_task_lost_or_doubled`] |
//! | I20 nothing of a deleted site is fetched after that is acknowledged | [`no_fetch_after_delete`] |
//! | I21 counters equal a recount when calm | [`counters_equal_a_recount`] |
//! | I22 a site's limit of pages holds | [`site_limits_hold`] |
//! | I23 a ranking over several nodes is that of one | [`ranking_is_the_oracles`] |
//! | I24 clients get a URL once within its lease, a queue once within its delay, and lose nothing that was acknowledged | [`clients_are_served_once`] |
//! | I25 spiders get every page, and of no domain more than its rate | [`spiders_get_every_page`] |

pub mod clients_are_served_once;
pub mod comes_to_rest;
pub mod counters_equal_a_recount;
pub mod crawl_delay_kept;
pub mod definitions_converge;
pub mod few_redundant_fetches;
pub mod former_lives_change_nothing;
pub mod no_acknowledged_url_lost;
pub mod no_batch_to_the_overloaded;
pub mod no_fetch_after_delete;
pub mod no_task_lost_or_doubled;
pub mod one_holder_per_slot;
pub mod one_node_runs_what_is_due;
pub mod one_promise_per_voter;
pub mod one_request_per_host;
pub mod pages_kept_twice;
pub mod queues_stay_bounded;
pub mod ranking_is_the_oracles;
pub mod ring_is_a_function;
pub mod ring_moves_little;
pub mod robots_obeyed;
pub mod site_limits_hold;
pub mod spiders_get_every_page;
pub mod state_never_goes_back;
pub mod synced_survives_a_crash;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proto::cluster::ring::Ring;
use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use serde::{Deserialize, Serialize};

use crate::world::oracle::Oracle;
use crate::world::plan::Plan;
use crate::world::trace::Event;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// Its number and file.
    pub invariant: String,
    /// When, in true time.
    pub at: Micros,
    /// Where, if on one node.
    pub node: Option<NodeId>,
    /// What was seen.
    pub what: String,
}

impl Violation {
    /// The number of the invariant.
    pub fn number(&self) -> &str {
        self.invariant.split(' ').next().unwrap_or_default()
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} at {}.{:06} s", self.invariant, self.at / 1_000_000, self.at % 1_000_000)?;
        if let Some(node) = self.node {
            write!(out, " on node {}", node.0)?;
        }
        write!(out, ": {}", self.what)
    }
}

/// How an invariant says that it does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    node: NodeId,
    what: String,
}

impl Broken {
    /// It does not hold on `node`.
    pub(crate) fn on(node: NodeId, what: String) -> Result<(), Broken> {
        Err(Broken { node, what })
    }
}

/// One property of a run.
pub trait Invariant {
    /// Its number in the design and its file.
    const NAME: &'static str;

    /// Looks at an event. `before` knows everything that came before it.
    fn see(&mut self, before: &Oracle, at: Micros, event: &Event) -> Result<(), Broken>;
}

/// All invariants, and the facts they share.
pub struct Invariants {
    oracle: Oracle,
    one_request_per_host: one_request_per_host::OneRequestPerHost,
    crawl_delay_kept: crawl_delay_kept::CrawlDelayKept,
    state_never_goes_back: state_never_goes_back::StateNeverGoesBack,
    no_acknowledged_url_lost: no_acknowledged_url_lost::NoAcknowledgedUrlLost,
    comes_to_rest: comes_to_rest::ComesToRest,
    few_redundant_fetches: few_redundant_fetches::FewRedundantFetches,
    one_holder_per_slot: one_holder_per_slot::OneHolderPerSlot,
    ring_moves_little: ring_moves_little::RingMovesLittle,
    ring_is_a_function: ring_is_a_function::RingIsAFunction,
    synced_survives_a_crash: synced_survives_a_crash::SyncedSurvivesACrash,
    no_batch_to_the_overloaded: no_batch_to_the_overloaded::NoBatchToTheOverloaded,
    one_promise_per_voter: one_promise_per_voter::OnePromisePerVoter,
    queues_stay_bounded: queues_stay_bounded::QueuesStayBounded,
    former_lives_change_nothing: former_lives_change_nothing::FormerLivesChangeNothing,
    robots_obeyed: robots_obeyed::RobotsObeyed,
    definitions_converge: definitions_converge::DefinitionsConverge,
    pages_kept_twice: pages_kept_twice::PagesKeptTwice,
    one_node_runs_what_is_due: one_node_runs_what_is_due::OneNodeRunsWhatIsDue,
    no_task_lost_or_doubled: no_task_lost_or_doubled::NoTaskLostOrDoubled,
    no_fetch_after_delete: no_fetch_after_delete::NoFetchAfterDelete,
    counters_equal_a_recount: counters_equal_a_recount::CountersEqualARecount,
    site_limits_hold: site_limits_hold::SiteLimitsHold,
    ranking_is_the_oracles: ranking_is_the_oracles::RankingIsTheOracles,
    clients_are_served_once: clients_are_served_once::ClientsAreServedOnce,
    spiders_get_every_page: spiders_get_every_page::SpidersGetEveryPage,
    violation: Option<Violation>,
}

impl Invariants {
    /// The invariants at the beginning of a run of `plan`.
    pub fn new(plan: &Plan) -> Invariants {
        Invariants {
            oracle: Oracle::new(plan),
            one_request_per_host: Default::default(),
            crawl_delay_kept: Default::default(),
            state_never_goes_back: Default::default(),
            no_acknowledged_url_lost: Default::default(),
            comes_to_rest: comes_to_rest::ComesToRest::new(plan),
            few_redundant_fetches: Default::default(),
            one_holder_per_slot: Default::default(),
            ring_moves_little: Default::default(),
            ring_is_a_function: Default::default(),
            synced_survives_a_crash: Default::default(),
            no_batch_to_the_overloaded: Default::default(),
            one_promise_per_voter: Default::default(),
            queues_stay_bounded: Default::default(),
            former_lives_change_nothing: Default::default(),
            robots_obeyed: Default::default(),
            definitions_converge: Default::default(),
            pages_kept_twice: Default::default(),
            one_node_runs_what_is_due: Default::default(),
            no_task_lost_or_doubled: Default::default(),
            no_fetch_after_delete: no_fetch_after_delete::NoFetchAfterDelete::new(plan),
            counters_equal_a_recount: Default::default(),
            site_limits_hold: site_limits_hold::SiteLimitsHold::new(plan),
            ranking_is_the_oracles: Default::default(),
            clients_are_served_once: Default::default(),
            spiders_get_every_page: Default::default(),
            violation: None,
        }
    }

    /// Looks at an event.
    pub fn see(&mut self, at: Micros, event: &Event) {
        if self.violation.is_some() {
            return;
        }
        self.violation = self.look(at, event).err();
        self.oracle.see(event);
    }

    fn look(&mut self, at: Micros, event: &Event) -> Result<(), Violation> {
        let before = &self.oracle;
        ask(&mut self.one_request_per_host, before, at, event)?;
        ask(&mut self.crawl_delay_kept, before, at, event)?;
        ask(&mut self.state_never_goes_back, before, at, event)?;
        ask(&mut self.no_acknowledged_url_lost, before, at, event)?;
        ask(&mut self.comes_to_rest, before, at, event)?;
        ask(&mut self.few_redundant_fetches, before, at, event)?;
        ask(&mut self.one_holder_per_slot, before, at, event)?;
        ask(&mut self.ring_moves_little, before, at, event)?;
        ask(&mut self.ring_is_a_function, before, at, event)?;
        ask(&mut self.synced_survives_a_crash, before, at, event)?;
        ask(&mut self.no_batch_to_the_overloaded, before, at, event)?;
        ask(&mut self.one_promise_per_voter, before, at, event)?;
        ask(&mut self.queues_stay_bounded, before, at, event)?;
        ask(&mut self.former_lives_change_nothing, before, at, event)?;
        ask(&mut self.robots_obeyed, before, at, event)?;
        ask(&mut self.definitions_converge, before, at, event)?;
        ask(&mut self.pages_kept_twice, before, at, event)?;
        ask(&mut self.one_node_runs_what_is_due, before, at, event)?;
        ask(&mut self.no_task_lost_or_doubled, before, at, event)?;
        ask(&mut self.no_fetch_after_delete, before, at, event)?;
        ask(&mut self.counters_equal_a_recount, before, at, event)?;
        ask(&mut self.site_limits_hold, before, at, event)?;
        ask(&mut self.ranking_is_the_oracles, before, at, event)?;
        ask(&mut self.clients_are_served_once, before, at, event)?;
        ask(&mut self.spiders_get_every_page, before, at, event)
    }

    /// What was found first.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// In the calm phase: what is still missing until the cluster has come to rest; `None` when nothing is. When the
    /// phase is over and something is still missing, that is a violation.
    pub fn missing(&mut self, at: Micros) -> Option<String> {
        let mut invariant = comes_to_rest::ComesToRest::NAME.to_owned();
        let up = self.comes_to_rest.up(&self.oracle);
        let missing = self.comes_to_rest.missing(&self.oracle).or_else(|| {
            invariant = definitions_converge::DefinitionsConverge::NAME.to_owned();
            self.definitions_converge.missing(&up)
        });
        let missing = missing.or_else(|| {
            invariant = pages_kept_twice::PagesKeptTwice::NAME.to_owned();
            self.pages_kept_twice.missing(&self.oracle, &up)
        });
        let missing = missing.or_else(|| {
            invariant = one_node_runs_what_is_due::OneNodeRunsWhatIsDue::NAME.to_owned();
            self.one_node_runs_what_is_due.missing(&self.oracle, &up)
        });
        let missing = missing.or_else(|| {
            invariant = no_task_lost_or_doubled::NoTaskLostOrDoubled::NAME.to_owned();
            self.no_task_lost_or_doubled.missing(&self.oracle, &up)
        });
        let missing = missing.or_else(|| {
            invariant = ranking_is_the_oracles::RankingIsTheOracles::NAME.to_owned();
            self.ranking_is_the_oracles.missing(&up)
        });
        let missing = missing.or_else(|| {
            invariant = clients_are_served_once::ClientsAreServedOnce::NAME.to_owned();
            self.clients_are_served_once.missing(&up)
        });
        let missing = missing.or_else(|| {
            invariant = spiders_get_every_page::SpidersGetEveryPage::NAME.to_owned();
            self.spiders_get_every_page.missing(&up)
        });
        self.too_late(at, &invariant, missing)
    }

    /// The same for what is known when crawls were counted: what is told of them is not what there is.
    pub fn miscounted(&mut self, at: Micros) -> Option<String> {
        let missing = self.counters_equal_a_recount.missing();
        self.too_late(at, counters_equal_a_recount::CountersEqualARecount::NAME, missing)
    }

    /// What is missing at the end of the calm phase is a violation.
    fn too_late(&mut self, at: Micros, invariant: &str, missing: Option<String>) -> Option<String> {
        if let (Some(what), true, None) = (&missing, at >= self.comes_to_rest.deadline(), &self.violation) {
            let (what, invariant) = (format!("the cluster has not come to rest: {what}"), invariant.to_owned());
            self.violation = Some(Violation { invariant, at, node: None, what });
        }
        missing
    }

    /// The facts.
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// Fetches that answered a URL again within a round.
    pub fn redundant_fetches(&self) -> u64 {
        self.few_redundant_fetches.redundant()
    }

    /// Requests that overlapped with one of a process that was stopped: no protocol can prevent them, so they are counted.
    pub fn overlaps_with_stopped(&self) -> u64 {
        self.one_request_per_host.overlaps_with_stopped()
    }
}

fn ask<I: Invariant>(invariant: &mut I, before: &Oracle, at: Micros, event: &Event) -> Result<(), Violation> {
    invariant.see(before, at, event).map_err(|broken| Violation {
        invariant: I::NAME.to_owned(),
        at,
        node: Some(broken.node),
        what: broken.what,
    })
}

/// The ring as it should be. Building one takes milliseconds and few differ, so each thread remembers some.
pub(crate) fn true_ring(members: &BTreeMap<NodeId, usize>) -> Rc<Ring> {
    const RINGS_MAX: usize = 64;
    thread_local! {
        static RINGS: RefCell<BTreeMap<BTreeMap<NodeId, usize>, Rc<Ring>>> = const { RefCell::new(BTreeMap::new()) };
    }
    RINGS.with_borrow_mut(|rings| {
        if rings.len() >= RINGS_MAX && !rings.contains_key(members) {
            rings.clear();
        }
        Rc::clone(rings.entry(members.clone()).or_insert_with(|| Rc::new(Ring::new(members))))
    })
}

#[cfg(test)]
pub(crate) mod testing {
    //! Hand-made runs for the tests of the invariants.

    use proto::id::{Slot, UrlId};
    use proto::record::{Progress, Status};

    use super::*;
    use crate::world::trace::{FetchKind, FetchStart};

    pub(crate) const A: NodeId = NodeId(0);
    pub(crate) const B: NodeId = NodeId(1);
    pub(crate) const C: NodeId = NodeId(2);
    pub(crate) const SLOT: Slot = Slot(7);

    /// Shows a run of events to one invariant, with the facts that come with it.
    pub(crate) fn show<I: Invariant>(
        invariant: &mut I,
        events: impl IntoIterator<Item = (Micros, Event)>,
    ) -> Result<(), Broken> {
        let mut oracle = Oracle::new(&Plan::from_seed(1));
        for (at, event) in events {
            invariant.see(&oracle, at, &event)?;
            oracle.see(&event);
        }
        Ok(())
    }

    pub(crate) fn url(number: u8) -> UrlId {
        UrlId([number; 16])
    }

    pub(crate) fn fetch(fetch: u64, node: NodeId, host: u32) -> FetchStart {
        FetchStart {
            fetch,
            node,
            host,
            slot: SLOT,
            url: url(1),
            kind: FetchKind::Page,
            site: None,
            round: 0,
            deadline: Micros::MAX,
            crawl_delay: 1_000,
            least_delay: 100,
            own_robots: false,
            allowed: true,
        }
    }

    pub(crate) fn progress(status: Status) -> Progress {
        Progress { status, ..Progress::new(A) }
    }

    pub(crate) fn durable(node: NodeId, number: u8, status: Status) -> Event {
        let settled = status == Status::Processed;
        Event::RecordDurable { node, slot: SLOT, url: url(number), progress: progress(status), settled }
    }

    pub(crate) fn acknowledged(number: u8) -> Event {
        Event::WriteAcknowledged { node: A, slot: SLOT, urls: vec![url(number)] }
    }

    pub(crate) fn ring_changed(node: NodeId, members: &[u64]) -> Event {
        let members: BTreeMap<NodeId, usize> = members.iter().map(|node| (NodeId(*node), 1)).collect();
        let owners = owners_of(&true_ring(&members));
        Event::RingChanged { node, members, owners }
    }

    pub(crate) fn owners_of(ring: &Ring) -> std::sync::Arc<[NodeId]> {
        (0..proto::id::SLOTS).filter_map(|slot| ring.owner(Slot(slot))).collect()
    }
}
