//! The network between nodes: decides when each message arrives, how often, or not at all. It keeps no messages: a layer
//! has them in its own queue of events, asks [`Network::send`] when they arrive, and [`Network::arrives`] then whether
//! they still do.

use std::collections::BTreeMap;

use proto::crawl::politeness::Micros;
use proto::id::NodeId;

use super::plan::{Fault, MILLISECOND, NetworkPlan, Plan, TimedFault};
use super::random::{For, Random};

/// Messages under way from one node to another; what comes on top is lost, as by a full send buffer.
pub const UNDER_WAY_MAX: u32 = 4_096;

/// When faults have stopped, no message takes longer than this beyond the shortest time: failure detectors need some order.
const CALM_SPREAD_US: u64 = 200_000;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Arrives as it should.
    Normal,
    /// Arrives twice.
    Duplicated,
    /// Arrives after later ones.
    Straggler,
    /// Held back by a clogged link.
    Clogged,
    /// Lost by chance.
    Lost,
    /// Lost to a partition.
    Cut,
    /// Lost because too many were under way.
    Full,
}

impl Fate {
    /// The interesting situation that it is, if it is one.
    pub fn point(self) -> Option<&'static str> {
        match self {
            Fate::Normal | Fate::Full => None,
            Fate::Duplicated => Some("message_duplicated"),
            Fate::Straggler => Some("message_late"),
            Fate::Clogged => Some("message_clogged"),
            Fate::Lost => Some("message_lost"),
            Fate::Cut => Some("message_cut"),
        }
    }
}

/// One copy of a message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When it arrives, if it does.
    pub at: Micros,
    /// Who sent it.
    pub from: NodeId,
    /// For whom.
    pub to: NodeId,
    sent_at: Micros,
}

/// What [`Network::send`] decided.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The copies under way: none, one or two.
    pub deliveries: [Option<Delivery>; 2],
    /// What became of it.
    pub fate: Fate,
}

/// The links of a run.
pub struct Network {
    seed: u64,
    plan: NetworkPlan,
    faults_end: Micros,
    faults: Vec<TimedFault>,
    links: BTreeMap<(NodeId, NodeId), Link>,
    messages: u64,
}

#[derive(Default)]
struct Link {
    sent: u64,
    under_way: u32,
}

impl Network {
    /// The network of a run of `plan`.
    pub fn new(plan: &Plan) -> Network {
        let matters = |fault: &&TimedFault| {
            matches!(fault.what, Fault::Partition { .. } | Fault::Clog { .. } | Fault::Reset { .. })
        };
        Network {
            seed: plan.seed,
            plan: plan.network.clone(),
            faults_end: plan.faults_end(),
            faults: plan.faults.iter().filter(matters).cloned().collect(),
            links: BTreeMap::new(),
            messages: 0,
        }
    }

    /// Sends a message at true time `at`. Each copy is given back once, to [`Network::arrives`], when its time comes.
    pub fn send(&mut self, at: Micros, from: NodeId, to: NodeId) -> Sent {
        self.messages += 1;
        let none = |fate| Sent { deliveries: [None, None], fate };
        let link = self.links.entry((from, to)).or_default();
        link.sent += 1;
        let mut draw = Random::at(self.seed, For::Message, from.0 << 32 | to.0, link.sent);
        if link.under_way >= UNDER_WAY_MAX {
            return none(Fate::Full);
        }
        if self.is_cut(at, from, to) {
            return none(Fate::Cut);
        }
        let calm = at >= self.faults_end;
        // The numbers are always drawn in the same order: a plan without loss delays each message as the one with it.
        let (lost, twice) = (draw.number(), draw.number());
        let chance = |number: u64, ppm: u32| !calm && number % 1_000_000 < u64::from(ppm);
        if chance(lost, self.plan.loss_ppm) {
            return none(Fate::Lost);
        }
        let mut fate = Fate::Normal;
        let first = self.arrival(at, from, to, calm, &mut draw, &mut fate);
        let mut second = None;
        if chance(twice, self.plan.duplication_ppm) {
            second = Some(self.arrival(at, from, to, calm, &mut draw, &mut fate));
            fate = Fate::Duplicated;
        }
        let copy = |arrives| Delivery { at: arrives, from, to, sent_at: at };
        let link = self.links.entry((from, to)).or_default();
        link.under_way += 1 + u32::from(second.is_some());
        Sent { deliveries: [Some(copy(first)), second.map(copy)], fate }
    }

    /// Says whether a copy that was under way really arrives: a partition or a reset may have come in between.
    pub fn arrives(&mut self, delivery: &Delivery) -> bool {
        let Delivery { at, from, to, .. } = *delivery;
        if let Some(link) = self.links.get_mut(&(from, to)) {
            link.under_way = link.under_way.saturating_sub(1);
        }
        !self.is_cut(at, from, to) && !self.is_reset(delivery)
    }

    /// Says whether the connection on which a copy is under way was reset meanwhile.
    pub fn is_reset(&self, delivery: &Delivery) -> bool {
        let Delivery { at, from, to, sent_at } = *delivery;
        let reset = |fault: &TimedFault| match fault.what {
            Fault::Reset { one, other } => {
                ((one, other) == (from.0, to.0) || (one, other) == (to.0, from.0))
                    && sent_at <= fault.begins()
                    && fault.begins() < at
            }
            _ => false,
        };
        self.faults.iter().any(reset)
    }

    /// Says whether nothing gets from one node to another at true time `at`.
    pub fn is_cut(&self, at: Micros, from: NodeId, to: NodeId) -> bool {
        at < self.faults_end && self.faults.iter().any(|fault| fault.lasts_at(at) && fault.what.cuts(from, to))
    }

    /// Messages sent so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    fn arrival(&self, at: Micros, from: NodeId, to: NodeId, calm: bool, draw: &mut Random, fate: &mut Fate) -> Micros {
        let spread = if calm { self.plan.latency_spread_us.min(CALM_SPREAD_US) } else { self.plan.latency_spread_us };
        let mut takes = self.plan.latency_min_us + draw.below(spread + 1);
        let (straggles, longer) = (draw.number() % 1_000_000, draw.below(self.plan.straggler_max_ms * MILLISECOND + 1));
        if !calm && straggles < u64::from(self.plan.straggler_ppm) {
            takes += longer;
            *fate = Fate::Straggler;
        }
        for fault in &self.faults {
            if matches!(fault.what, Fault::Clog { from: a, to: b } if (a, b) == (from.0, to.0)) && fault.lasts_at(at) {
                takes = takes.max(fault.ends() - at + self.plan.latency_min_us);
                *fate = Fate::Clogged;
            }
        }
        at + takes
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Direction, SECOND};
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);

    fn quiet() -> Plan {
        let mut plan = Plan::from_seed(1);
        plan.faults.clear();
        plan.network = NetworkPlan {
            latency_min_us: 1_000,
            latency_spread_us: 500,
            straggler_max_ms: 9,
            ..NetworkPlan::default()
        };
        plan
    }

    fn with(what: Fault, at_ms: u64, lasts_ms: u64) -> Network {
        let mut plan = quiet();
        plan.faults = vec![TimedFault { id: 1, at_ms, lasts_ms, what }];
        Network::new(&plan)
    }

    fn arrivals(network: &mut Network, at: Micros, from: NodeId, to: NodeId) -> Vec<Micros> {
        let sent = network.send(at, from, to);
        sent.deliveries.into_iter().flatten().filter(|copy| network.arrives(copy)).map(|copy| copy.at).collect()
    }

    #[test]
    fn without_faults_every_message_arrives_once_within_its_bounds() {
        let mut network = Network::new(&quiet());
        for at in 0..1_000 {
            let arrived = arrivals(&mut network, at, A, B);
            assert_eq!(arrived.len(), 1);
            assert!((at + 1_000..=at + 1_500).contains(&arrived[0]));
        }
    }

    #[test]
    fn a_one_way_partition_cuts_one_way() {
        let mut network = with(Fault::Partition { side: vec![0], direction: Direction::Outward }, 1_000, 1_000);
        assert!(arrivals(&mut network, 1_500_000, A, B).is_empty());
        assert_eq!(arrivals(&mut network, 1_500_000, B, A).len(), 1);
        assert_eq!(arrivals(&mut network, 500_000, A, B).len(), 1);
        assert_eq!(arrivals(&mut network, 2_000_000, A, B).len(), 1);
        // Sent before it began, not yet there when it did.
        assert!(arrivals(&mut network, 999_500, A, B).is_empty());
    }

    #[test]
    fn a_clogged_link_gives_everything_back_at_its_end() {
        let mut network = with(Fault::Clog { from: 0, to: 1 }, 1_000, 1_000);
        assert!(arrivals(&mut network, 1_200_000, A, B)[0] > 2 * SECOND);
        assert!(arrivals(&mut network, 1_200_000, B, A)[0] < 2 * SECOND);
    }

    #[test]
    fn a_reset_loses_what_is_under_way_in_both_directions() {
        let mut network = with(Fault::Reset { one: 1, other: 0 }, 1_000, 0);
        assert!(arrivals(&mut network, 999_900, A, B).is_empty());
        assert!(arrivals(&mut network, 999_900, B, A).is_empty());
        assert_eq!(arrivals(&mut network, 1_000_001, A, B).len(), 1);
        assert_eq!(arrivals(&mut network, 999_900, A, NodeId(2)).len(), 1);
    }

    #[test]
    fn loss_taken_away_leaves_the_other_messages_as_they_were() {
        let mut lossy = quiet();
        lossy.network.loss_ppm = 300_000;
        let (mut with, mut without) = (Network::new(&lossy), Network::new(&quiet()));
        let mut lost = 0;
        for at in 0..1_000 {
            let (one, other) = (arrivals(&mut with, at, A, B), arrivals(&mut without, at, A, B));
            assert!(one.is_empty() || one == other);
            lost += usize::from(one.is_empty());
        }
        assert!((250..350).contains(&lost), "{lost}");
    }

    #[test]
    fn in_the_calm_phase_nothing_is_lost() {
        let mut plan = quiet();
        plan.network.loss_ppm = 1_000_000;
        let mut network = Network::new(&plan);
        assert!(arrivals(&mut network, plan.faults_end() - 1, A, B).is_empty());
        assert_eq!(arrivals(&mut network, plan.faults_end(), A, B).len(), 1);
    }

    #[test]
    fn a_link_holds_only_so_many_messages() {
        let mut network = Network::new(&quiet());
        let sent: Vec<Sent> = (0..UNDER_WAY_MAX + 1).map(|_| network.send(0, A, B)).collect();
        assert_eq!(sent.last().map(|sent| sent.fate), Some(Fate::Full));
        assert!(network.arrives(&sent[0].deliveries[0].expect("was sent")));
        assert_eq!(network.send(1, A, B).fate, Fate::Normal);
    }
}
