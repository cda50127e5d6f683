//! Draws the sites of a seed and what people do to them. Half of the seeds have some: a site is crawled besides everything else, which takes its time.

use super::super::fault::{Fault, TimedFault};
use super::super::{Operation, Plan, SiteOperation, SitePlan};
use super::{Part, random};
use crate::world::random::Random;

/// The sites of a seed, over the hosts of its plan.
pub(super) fn draw(seed: u64, plan: &Plan) -> Vec<SitePlan> {
    let mut draw = random(seed, Part::Sites, 0);
    if !draw.percent(50) {
        return Vec::new();
    }
    let count = draw.pick(&[1, 1, 2]);
    (1..=count).map(|number| site(&mut random(seed, Part::Sites, number), plan)).collect()
}

fn site(draw: &mut Random, plan: &Plan) -> SitePlan {
    let span = draw.pick(&[1, 2, 3, 3]);
    let hosts = draw.some_of(u64::from(plan.web.hosts), span).into_iter().map(|host| host as u32).collect();
    let pages_max = draw.pick(&[0, 0, 2, 3, 6]);
    let phase_ms = plan.fault_phase_ms;
    // It is there when the first leases are.
    let made_ms = draw.below(plan.cluster.lease_ms);
    let mut operations = vec![SiteOperation { at_ms: made_ms, what: Operation::New }];
    // From when on its pages are fetched.
    let from_ms = plan.cluster.lease_ms + plan.cluster.fetch_timeout_ms;
    let cuts: Vec<u64> = plan.faults.iter().filter(|fault| is_partition(fault)).map(|fault| fault.at_ms).collect();
    let mut push = |draw: &mut Random, what| {
        let at_ms = draw.between(from_ms.min(phase_ms - 2_000), phase_ms - 1_000);
        // Half of it happens soon after somebody is cut off, who does not hear of it.
        let at_ms = if draw.percent(50) && !cuts.is_empty() { draw.pick(&cuts) + draw.below(4_000) } else { at_ms };
        operations.push(SiteOperation { at_ms: at_ms.min(phase_ms - 1), what });
    };
    let changes = draw.below(3);
    for _ in 0..changes {
        let what = draw.pick(&[Operation::MorePages, Operation::Pause, Operation::GoOn, Operation::GoOn]);
        push(draw, what);
    }
    // Most are emptied or deleted while they are crawled; some after that are made anew.
    for what in [Operation::Cleanup, Operation::Delete, Operation::New] {
        if draw.percent(if what == Operation::New { 40 } else { 60 }) {
            push(draw, what);
        }
    }
    operations.sort_by_key(|operation| operation.at_ms);
    // Drawn last: what is drawn before stays as it was.
    let errors_max = draw.pick(&[0, 0, 0, 1, 2, 4]);
    SitePlan { hosts, pages_max, errors_max, operations }
}

fn is_partition(fault: &TimedFault) -> bool {
    matches!(fault.what, Fault::Partition { .. })
}
