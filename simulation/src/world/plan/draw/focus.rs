//! Focused plans. Most situations that a rule of the protocol exists for are two or three things at one time: a host that answers slowly,
//! *and* its holder that dies and is back at once. Faults that are drawn each for itself seldom meet, so part of the seeds draw one situation
//! and little else. What exactly happens, to whom and when, is drawn as everywhere.

use super::super::fault::{Direction, Fault, HostTrouble, LoadTrouble, TimedFault};
use super::super::{Plan, Submission};
use super::{Part, random, submissions};
use crate::world::random::Random;
use crate::world::web::Addressing;

/// Which situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    /// Nodes die and are back at once, while others fetch what they handed out.
    Restarts,
    /// A side that has copies but no majority of the voters is cut off until its leases end, and longer.
    Splits,
    /// Slots change hands between the living: nodes join, leave, and come back after others stood in for them.
    Moves,
    /// The same, while one node gets what the voters say to it late.
    LateGrants,
    /// What one node hands out reaches another late, perhaps when it is no longer to be fetched.
    LateBatches,
    /// Messages overtake each other by seconds.
    Disorder,
    /// Much is lost, and little may be under way.
    Lossy,
}

/// The focus of a seed; two in five have none.
pub(super) fn of(seed: u64) -> Option<Focus> {
    let mut draw = random(seed, Part::Focus, 0);
    let all = [
        Focus::Restarts,
        Focus::Splits,
        Focus::Splits,
        Focus::Moves,
        Focus::LateGrants,
        Focus::LateBatches,
        Focus::Disorder,
        Focus::Lossy,
    ];
    draw.percent(60).then(|| draw.pick(&all))
}

/// Makes a plan that was drawn into one of the situation.
pub(super) fn apply(focus: Focus, plan: &mut Plan) {
    let mut draw = random(plan.seed, Part::Focus, 1);
    common(focus, plan, &mut draw);
    let mut faults = Faults { draw, phase_ms: plan.fault_phase_ms, from_ms: plan.cluster.lease_ms, drawn: Vec::new() };
    match focus {
        Focus::Restarts => restarts(plan, &mut faults),
        Focus::Splits => splits(plan, &mut faults),
        Focus::Moves => moves(plan, &mut faults),
        Focus::LateGrants => late_grants(plan, &mut faults),
        Focus::LateBatches => late_batches(plan, &mut faults),
        Focus::Disorder => disorder(plan, &mut faults),
        Focus::Lossy => lossy(plan, &mut faults),
    }
    troubled(plan, &mut faults);
    faults.drawn.sort_by_key(|fault| (fault.at_ms, fault.id));
    plan.faults = faults.drawn;
}

/// Short leases, slow hosts that are worked at during the whole fault phase, and nothing else that goes wrong.
fn common(focus: Focus, plan: &mut Plan, draw: &mut Random) {
    let (lease_ms, fetch_ms) = draw.pick(&[(6_000, 4_000), (10_000, 6_000), (10_000, 6_000)]);
    let cluster = &mut plan.cluster;
    // Enough nodes for a side that has W copies and no majority, and for somebody to leave.
    (cluster.nodes, cluster.voters) = draw.pick(&[(5, 3), (5, 5), (6, 3), (6, 5), (7, 5)]);
    cluster.clock_rates_ppm.resize(cluster.nodes as usize + 4, 0);
    cluster.weights.clear();
    (cluster.lease_ms, cluster.fetch_timeout_ms) = (lease_ms, fetch_ms);
    (cluster.guard_ms, cluster.view_stable_ms, cluster.crawl_delay_ms) = (20, 1_000, 200);
    let web = &mut plan.web;
    // Long, and still within the longest fetch with the slowest connection; where slots move by themselves also none at all, so that a
    // host's delay is the longer of the two.
    let slow = draw.between(fetch_ms / 3, fetch_ms * 6 / 10) as u32;
    let quick = matches!(focus, Focus::Moves | Focus::LateGrants | Focus::Disorder) && draw.percent(40);
    web.delay_ms = if quick { 0 } else { slow };
    web.crawl_delay_ms = if quick { 4_000 } else { 0 };
    web.addressing = Addressing::Addresses; // each host in a slot of its own, so that more of them move
    web.long_crawl_delay_ms = if quick { 4_000 } else { 500 };
    web.hosts = draw.between(6, 9) as u32;
    web.seeds = web.hosts;
    web.pages_per_host = draw.between(4, 6) as u32;
    web.oddities.clear();
    plan.fault_phase_ms = lease_ms + draw.between(30, 40) * 1_000;
    plan.calm_phase_ms = super::calm_phase_ms(lease_ms);
    plan.submissions = submissions(plan.seed, web, plan.fault_phase_ms);
    let network = &mut plan.network;
    network.latency_spread_us = network.latency_spread_us.min(40_000);
    (network.loss_ppm, network.straggler_ppm) = (0, 0);
    plan.disk.hang_ppm = 0;
}

/// Draws faults of a time in which slots are served.
struct Faults {
    draw: Random,
    from_ms: u64,
    phase_ms: u64,
    drawn: Vec<TimedFault>,
}

impl Faults {
    /// A time between the first leases and the end.
    fn time(&mut self) -> u64 {
        self.draw.between(self.from_ms, self.phase_ms - 4_000)
    }

    fn push(&mut self, at_ms: u64, lasts_ms: u64, what: Fault) {
        let id = 2_000 + self.drawn.len() as u32;
        let at_ms = at_ms.min(self.phase_ms - 1_000);
        self.drawn.push(TimedFault { id, at_ms, lasts_ms: lasts_ms.min(self.phase_ms - at_ms), what });
    }
}

fn restarts(plan: &Plan, faults: &mut Faults) {
    for _ in 0..faults.draw.between(4, 9) {
        let (at, node) = (faults.time(), faults.draw.below(plan.cluster.nodes));
        let lasts = faults.draw.pick(&[0, 50, 300, 1_500]);
        faults.push(at, lasts, Fault::Crash { node });
        // What it handed out just before may come late.
        if faults.draw.percent(50) {
            let to = faults.draw.below(plan.cluster.nodes);
            let lasts = faults.draw.between(1_000, plan.cluster.fetch_timeout_ms);
            if to != node {
                let begins = at.saturating_sub(faults.draw.below(1_000));
                faults.push(begins, lasts, Fault::Clog { from: node, to });
            }
        }
    }
}

fn splits(plan: &mut Plan, faults: &mut Faults) {
    let (nodes, voters, lease_ms) = (plan.cluster.nodes, plan.cluster.voters, plan.cluster.lease_ms);
    // Clocks at the bound, fast ones beside slow ones.
    for (node, rate) in plan.cluster.clock_rates_ppm.iter_mut().enumerate() {
        let sign = if faults.draw.percent(50) == (node % 2 == 0) { 1 } else { -1 };
        *rate = sign * plan.cluster.drift_ppm as i64;
    }
    let times = faults.draw.between(2, 3);
    plan.fault_phase_ms = lease_ms + times * (lease_ms + 14_000);
    faults.phase_ms = plan.fault_phase_ms;
    plan.submissions = submissions(plan.seed, &plan.web, plan.fault_phase_ms);
    plan.web.pages_per_host += 4;
    plan.network.latency_spread_us = faults.draw.pick(&[40_000, 600_000, 1_200_000, 1_200_000]);
    let minority = |side: &Vec<u64>| side.iter().filter(|node| **node < voters).count() as u64 * 2 < voters;
    let mut at = faults.from_ms;
    for _ in 0..times {
        at += faults.draw.between(1_000, 6_000);
        let count = faults.draw.pick(&[1, 2, 2, 2, 3]);
        let sides: Vec<Vec<u64>> = (0..8).map(|_| faults.draw.some_of(nodes, count)).collect();
        let lasts = lease_ms + faults.draw.between(4_000, 8_000);
        let direction = faults.draw.pick(&[Direction::Both, Direction::Both, Direction::Outward, Direction::Inward]);
        if let Some(side) = sides.into_iter().find(minority) {
            if faults.draw.percent(25) {
                let (dies, nodes) = (at + faults.draw.below(lasts), side.clone());
                faults.push(dies, 100, Fault::PowerLoss { nodes });
            }
            faults.push(at, lasts, Fault::Partition { side, direction });
        }
        at += lasts;
    }
}

fn moves(plan: &Plan, faults: &mut Faults) {
    comings_and_goings(plan, faults);
    let most = faults.draw.below(3);
    for _ in 0..most {
        let (at, node) = (faults.time(), faults.draw.below(plan.cluster.nodes + 2));
        let what = if faults.draw.percent(50) && !faults.drawn.iter().any(is_wipe) {
            Fault::WipedDisk { node }
        } else {
            Fault::Crash { node }
        };
        faults.push(at, 100, what);
    }
}

fn is_wipe(fault: &TimedFault) -> bool {
    matches!(fault.what, Fault::WipedDisk { .. })
}

/// Joins, a leave, and nodes that are away for long enough to be replaced, and come back.
fn comings_and_goings(plan: &Plan, faults: &mut Faults) {
    let (nodes, voters) = (plan.cluster.nodes, plan.cluster.voters);
    for number in 0..faults.draw.below(3) {
        let at = faults.time();
        faults.push(at, 0, Fault::Join { node: nodes + number });
    }
    // Voters stay, and so do as many as there are copies.
    for node in (voters.max(4)..nodes).rev() {
        if faults.draw.percent(60) {
            let at = faults.time();
            faults.push(at, 0, Fault::Leave { node });
        }
    }
    for _ in 0..faults.draw.between(1, 3) {
        let (at, lasts) = (faults.time(), faults.draw.between(5_000, 12_000));
        let node = faults.draw.below(nodes);
        let what = if faults.draw.percent(30) {
            Fault::Crash { node }
        } else {
            Fault::Partition { side: vec![node], direction: Direction::Both }
        };
        faults.push(at, lasts, what);
    }
}

fn late_grants(plan: &Plan, faults: &mut Faults) {
    comings_and_goings(plan, faults);
    let changes: Vec<(u64, Option<u64>)> = faults
        .drawn
        .iter()
        .map(|fault| match fault.what {
            Fault::Leave { node } => (fault.at_ms, Some(node)),
            _ => (fault.at_ms + fault.lasts_ms, None),
        })
        .collect();
    for (change, leaves) in changes {
        let to = leaves.unwrap_or_else(|| faults.draw.below(plan.cluster.nodes));
        let begins = change.saturating_sub(faults.draw.below(plan.cluster.lease_ms / 4 + 500));
        let lasts = faults.draw.between(2_000, plan.cluster.lease_ms * 9 / 10);
        // As many as a lease needs, and no more: the others bring the news for which it lets go.
        let late = faults.draw.some_of(plan.cluster.voters, plan.cluster.voters / 2 + 1);
        for from in late.into_iter().filter(|from| *from != to) {
            faults.push(begins, lasts, Fault::Clog { from, to });
        }
    }
}

fn late_batches(plan: &Plan, faults: &mut Faults) {
    let nodes = plan.cluster.nodes;
    for _ in 0..faults.draw.between(4, 8) {
        let (from, to) = super::two(&mut faults.draw, nodes);
        let (at, lasts) = (faults.time() * 3 / 4, faults.draw.between(10_000, plan.cluster.fetch_timeout_ms + 20_000));
        faults.push(at, lasts, Fault::Clog { from, to });
    }
    for _ in 0..faults.draw.below(3) {
        let (at, node) = (faults.time(), faults.draw.below(nodes));
        faults.push(at, 50, Fault::Crash { node });
    }
    for node in 0..nodes {
        if faults.draw.percent(40) {
            let at = faults.from_ms;
            faults.push(at, 40_000, Fault::Load { node, trouble: LoadTrouble::High });
        }
    }
}

fn disorder(plan: &mut Plan, faults: &mut Faults) {
    let network = &mut plan.network;
    network.straggler_ppm = faults.draw.pick(&[100_000, 300_000]);
    network.straggler_max_ms = faults.draw.pick(&[1_500, 3_000, 6_000]);
    comings_and_goings(plan, faults);
    let nodes = plan.cluster.nodes;
    for _ in 0..faults.draw.between(1, 4) {
        let (at, lasts, node) = (faults.time(), faults.draw.between(1_500, 6_000), faults.draw.below(nodes));
        let direction = faults.draw.pick(&[Direction::Outward, Direction::Inward]);
        let what = match faults.draw.below(2) {
            0 => Fault::Pause { node },
            _ => Fault::Partition { side: vec![node], direction },
        };
        faults.push(at, lasts, what);
    }
}

fn lossy(plan: &mut Plan, faults: &mut Faults) {
    plan.network.loss_ppm = faults.draw.pick(&[150_000, 300_000]);
    plan.cluster.outbox_max = 3;
    plan.web.delay_ms = 20;
    // Everything is handed in, whoever finds it first.
    let pages = 0..plan.web.pages_per_host;
    for host in 0..plan.web.hosts {
        for page in pages.clone() {
            let at_ms = faults.draw.below(plan.fault_phase_ms * 3 / 4);
            plan.submissions.push(Submission { at_ms, host, page });
        }
    }
    plan.submissions.sort();
}

/// Some hosts answer too late or never, and some nodes give away what they have to fetch.
fn troubled(plan: &Plan, faults: &mut Faults) {
    for host in 0..plan.web.hosts {
        if faults.draw.percent(25) {
            let trouble = faults.draw.pick(&[HostTrouble::Slow, HostTrouble::Silent]);
            let (at, lasts) = (faults.time(), faults.draw.between(3_000, 12_000));
            faults.push(at, lasts, Fault::Host { host, trouble });
        }
    }
    for node in 0..plan.cluster.nodes {
        if faults.draw.percent(25) {
            let at = faults.time();
            faults.push(at, 20_000, Fault::Load { node, trouble: LoadTrouble::High });
        }
    }
}
