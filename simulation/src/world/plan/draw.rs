//! Draws the plan of a seed. Every class of fault is switched on or off per seed: a run with everything at once reaches
//! fewer situations than many runs with a few things each. Half of the seeds have a [`focus`] instead.

mod focus;
mod sites;

use proto::wire::WIRE_VERSION;

use super::fault::{Direction, Fault, HostTrouble, LoadTrouble, RobotsTrouble, TimedFault};
use super::{CALM_PHASE_MS, ClusterPlan, DiskPlan, NetworkPlan, Plan, Submission};
use crate::world::random::{For, Random};
use crate::world::web::{Addressing, Oddity, WebPlan};

/// What is decided about a plan; each has its own numbers, so that a change to one leaves the others.
#[derive(Clone, Copy)]
enum Part {
    Cluster = 1,
    Network,
    Disk,
    Web,
    Submissions,
    StaysDown,
    Focus,
    Outbox,
    Sites,
    Robots,
    Versions,
    Class = 100,
}

fn random(seed: u64, part: Part, count: u64) -> Random {
    Random::at(seed, For::Plan, part as u64, count)
}

pub(super) fn draw(seed: u64) -> Plan {
    let cluster = cluster(seed);
    // A voter waits out one lease when it starts: before that there is little that faults could disturb.
    let fault_phase_ms = cluster.lease_ms + random(seed, Part::Cluster, 1).between(25, 50) * 1_000;
    let web = web(seed);
    let (nodes, voters) = (cluster.nodes, cluster.voters);
    let mut faults = Faults { seed, nodes, voters, phase_ms: fault_phase_ms, hosts: web.hosts, drawn: Vec::new() };
    faults.draw();
    let mut plan = Plan {
        seed,
        catches: None,
        fault_phase_ms,
        calm_phase_ms: calm_phase_ms(cluster.lease_ms),
        stays_down: Vec::new(),
        network: network(seed),
        disk: disk(seed),
        submissions: submissions(seed, &web, fault_phase_ms),
        sites: Vec::new(),
        cluster,
        web,
        faults: faults.drawn,
    };
    if let Some(focus) = focus::of(seed) {
        focus::apply(focus, &mut plan);
    }
    plan.cluster.robots_ttl_ms = plan.cluster.robots_ttl_ms.max(10 * longest_delay_ms(&plan));
    plan.stays_down = stays_down(seed, &plan);
    plan.sites = sites::draw(seed, &plan);
    plan.calm_phase_ms += turns_of_sites_ms(&plan);
    plan
}

/// How much longer a host with sites on it takes than one without: each of them asks for its pages and its robots.txt, one after the other.
fn turns_of_sites_ms(plan: &Plan) -> u64 {
    let on = |host: u32| plan.sites.iter().filter(|site| site.hosts.contains(&host)).count() as u64;
    let most = (0..plan.web.hosts).map(on).max().unwrap_or(0);
    most * u64::from(plan.web.pages_per_host + 1) * longest_delay_ms(plan)
}

/// The longest delay that a host asks for.
fn longest_delay_ms(plan: &Plan) -> u64 {
    u64::from(plan.web.crawl_delay_ms.max(plan.web.long_crawl_delay_ms))
}

/// With longer leases a voter waits longer after its start, and a lost flight comes back later: that is no fault of who waits.
fn calm_phase_ms(lease_ms: u64) -> u64 {
    CALM_PHASE_MS + 3 * lease_ms.saturating_sub(10_000)
}

fn cluster(seed: u64) -> ClusterPlan {
    let mut draw = random(seed, Part::Cluster, 0);
    let nodes = draw.pick(&[3, 3, 4, 5, 5, 5, 6, 7]);
    let voters = if nodes >= 7 && draw.percent(50) {
        7
    } else if nodes >= 5 && draw.percent(70) {
        5
    } else {
        3
    };
    // Short leases let more happen in a run; the last are those of a real cluster.
    let leases = [(6_000, 2_000), (6_000, 2_000), (6_000, 4_000), (10_000, 4_000), (10_000, 6_000), (10_000, 6_000)];
    let (lease_ms, fetch_timeout_ms) = if draw.percent(10) { (45_000, 30_000) } else { draw.pick(&leases) };
    let drift_ppm = 10_000;
    let rate = |draw: &mut Random| match draw.below(3) {
        0 => drift_ppm as i64,
        1 => -(drift_ppm as i64),
        _ => draw.below(2 * drift_ppm + 1) as i64 - drift_ppm as i64,
    };
    // Joiners and strangers have the next numbers, and clocks too.
    let clock_rates_ppm = (0..nodes + 4).map(|_| rate(&mut draw)).collect();
    let weights = if draw.percent(25) { (0..nodes + 4).map(|_| draw.between(1, 3) as usize).collect() } else { vec![] };
    ClusterPlan {
        nodes,
        voters,
        replicas: 3,
        write_quorum: 2,
        lease_ms,
        fetch_timeout_ms,
        guard_ms: draw.pick(&[20, 250]),
        drift_ppm,
        view_stable_ms: draw.pick(&[1_000, 5_000]),
        forget_after_ms: draw.pick(&[15_000, 600_000, 600_000]),
        crawl_delay_ms: draw.pick(&[200, 500, 1_000]),
        outbox_max: random(seed, Part::Outbox, 0).pick(&[3, 6, 24]),
        // Short enough that a file is read again while it says something else; at hosts with long delays not as short, or every other request would be for it.
        robots_ttl_ms: random(seed, Part::Robots, 0).pick(&[5_000, 20_000, 60_000]),
        clock_rates_ppm,
        weights,
        versions: versions(seed, nodes),
    }
}

/// The oldest version of the wire with which a cluster comes to rest: nodes that speak version 1 can neither give a slot away nor take one over.
const OLDEST_VERSION: u16 = 2;

/// In some seeds the nodes are of different releases, as while an operator brings a new one out.
fn versions(seed: u64, nodes: u64) -> Vec<u16> {
    let mut draw = random(seed, Part::Versions, 0);
    if !draw.percent(15) {
        return Vec::new();
    }
    (0..nodes + 4).map(|_| draw.pick(&[WIRE_VERSION, WIRE_VERSION, 4, 3, OLDEST_VERSION])).collect()
}

fn network(seed: u64) -> NetworkPlan {
    let mut draw = random(seed, Part::Network, 0);
    NetworkPlan {
        latency_min_us: draw.between(500, 20_000),
        // With the slowest, grants are still under way when the next are asked for, and the living seem dead.
        latency_spread_us: draw.pick(&[2_000, 40_000, 200_000, 200_000, 1_200_000]),
        loss_ppm: draw.pick(&[0, 0, 10_000, 50_000, 150_000]),
        duplication_ppm: draw.pick(&[0, 0, 50_000]),
        straggler_ppm: draw.pick(&[0, 5_000, 20_000]),
        straggler_max_ms: draw.pick(&[2_000, 8_000, 15_000]),
    }
}

fn disk(seed: u64) -> DiskPlan {
    let mut draw = random(seed, Part::Disk, 0);
    DiskPlan {
        sync_min_us: draw.between(100, 2_000),
        sync_spread_us: draw.pick(&[1_000, 30_000]),
        hang_ppm: draw.pick(&[0, 30_000]),
        hang_max_ms: draw.pick(&[1_000, 3_000]),
    }
}

/// Odd hosts whose answers need no real parser, and which do something to a schedule.
const ODDITIES: [Oddity; 5] =
    [Oddity::Redirects, Oddity::Statuses, Oddity::Flapping, Oddity::Down, Oddity::CalendarTrap];

fn web(seed: u64) -> WebPlan {
    let mut draw = random(seed, Part::Web, 0);
    let hosts = draw.between(4, 10) as u32;
    WebPlan {
        seed: draw.number() >> 1, // TOML's integers are signed
        hosts,
        pages_per_host: draw.between(3, 7) as u32,
        links_per_page: draw.between(2, 5) as u32,
        page_bytes: 512,
        // By name four hosts share a domain, and a slot; by address each has its own.
        addressing: draw.pick(&[Addressing::Names, Addressing::Addresses]),
        seeds: hosts,
        crawl_delay_ms: draw.pick(&[0, 0, 300]),
        long_crawl_delay_ms: draw.pick(&[500, 2_000]),
        delay_ms: draw.pick(&[0, 20, 200]),
        robots_variants: draw.percent(40),
        oddities: ODDITIES.into_iter().filter(|_| draw.percent(15)).map(|oddity| (oddity, 1)).collect(),
        slow_ms: 1_000,
        retry_after_s: draw.pick(&[1, 5]),
        ..WebPlan::default()
    }
}

fn submissions(seed: u64, web: &WebPlan, phase_ms: u64) -> Vec<Submission> {
    let odd: u32 = web.oddities.values().sum();
    let mut found = Vec::new();
    for host in 0..web.hosts + odd {
        let mut draw = random(seed, Part::Submissions, u64::from(host));
        found.push(Submission { at_ms: draw.below(phase_ms / 3), host, page: 0 });
        // Most pages are found through links; some are also handed in, when they may be known already.
        for page in 1..if host < web.hosts { web.pages_per_host } else { 1 } {
            if draw.percent(25) {
                found.push(Submission { at_ms: draw.below(phase_ms * 3 / 4), host, page });
            }
        }
    }
    found.sort();
    found
}

/// In a quarter of the seeds a minority does not come back. It must leave a majority of the voters, and no more may be
/// missing than copies that a write can do without, unless places on the ring are given up soon.
fn stays_down(seed: u64, plan: &Plan) -> Vec<u64> {
    let mut draw = random(seed, Part::StaysDown, 0);
    if !draw.percent(25) {
        return Vec::new();
    }
    let cluster = &plan.cluster;
    let forgotten_soon = cluster.forget_after_ms * 3 < plan.calm_phase_ms;
    let by_copies = (cluster.replicas - cluster.write_quorum) as u64;
    let by_voters = (cluster.voters - 1) / 2;
    let spare_nodes = cluster.nodes.saturating_sub(cluster.replicas as u64);
    let most = if forgotten_soon { by_voters.min(spare_nodes.max(by_copies)) } else { by_copies.min(by_voters) };
    let count = draw.between(1, most.max(1));
    draw.some_of(cluster.nodes, count)
}

struct Faults {
    seed: u64,
    nodes: u64,
    voters: u64,
    phase_ms: u64,
    hosts: u32,
    drawn: Vec<TimedFault>,
}

impl Faults {
    fn draw(&mut self) {
        let nodes = self.nodes;
        let short_or_long = |draw: &mut Random| {
            if draw.percent(50) { draw.between(100, 1_000) } else { draw.between(1_000, 15_000) }
        };
        self.class(1, 60, 4, |draw| {
            let count = draw.between(1, nodes - 1);
            let side = draw.some_of(nodes, count);
            let direction = draw.pick(&[Direction::Both, Direction::Both, Direction::Outward, Direction::Inward]);
            (draw.between(1_000, 20_000), Fault::Partition { side, direction })
        });
        self.class(2, 50, 5, |draw| {
            let (from, to) = two(draw, nodes);
            (draw.between(1_000, 10_000), Fault::Clog { from, to })
        });
        self.class(3, 40, 5, |draw| {
            let (one, other) = two(draw, nodes);
            (0, Fault::Reset { one, other })
        });
        self.class(4, 60, 5, |draw| (short_or_long(draw), Fault::Crash { node: draw.below(nodes) }));
        self.class(5, 40, 2, |draw| {
            let count = draw.between(2, nodes);
            (draw.between(100, 8_000), Fault::PowerLoss { nodes: draw.some_of(nodes, count) })
        });
        self.class(6, 30, 2, |draw| (draw.between(500, 3_000), Fault::PowerLossAtAcknowledgement));
        self.class(7, 50, 2, |draw| (draw.between(500, 12_000), Fault::Pause { node: draw.below(nodes) }));
        self.class(8, 30, 2, |draw| (0, Fault::Panic { node: draw.below(nodes), actor: draw.below(8) as u32 }));
        self.class(9, 25, 2, |draw| {
            let (node, actor, each_ms) = (draw.below(nodes), draw.below(8) as u32, draw.pick(&[5, 50, 200]));
            (draw.between(1_000, 8_000), Fault::SlowActor { node, actor, each_ms })
        });
        self.class(10, 50, 3, |draw| {
            let node = draw.below(nodes);
            let what = match draw.below(4) {
                0 => Fault::SlowDisk { node },
                1 => Fault::HangingSync { node },
                2 => Fault::FailingSync { node },
                _ => Fault::FullDisk { node },
            };
            (draw.between(1_000, 10_000), what)
        });
        // At most W − 1 disks are lost in a run: more may lose acknowledged URLs, and that is no defect.
        self.class(12, 35, 1, |draw| {
            let node = draw.below(nodes);
            let what = if draw.percent(70) { Fault::WipedDisk { node } } else { Fault::BitFlip { node } };
            (short_or_long(draw), what)
        });
        self.class(13, 40, 3, |draw| {
            let by_ms = draw.pick(&[-86_400_000, -3_600_000, -2_000, 2_000, 3_600_000, 86_400_000]);
            (0, Fault::WallClockStep { node: draw.below(nodes), by_ms })
        });
        self.joins_and_leaves();
        let hosts = u64::from(self.hosts);
        self.class(16, 60, 4, |draw| {
            let host = draw.below(hosts) as u32;
            let trouble = draw.pick(&[
                HostTrouble::Slow,
                HostTrouble::Slow,
                HostTrouble::Silent,
                HostTrouble::Down,
                HostTrouble::ServerError,
                HostTrouble::Unavailable,
                HostTrouble::TooMany,
                HostTrouble::RedirectLoop,
                HostTrouble::Trap,
                HostTrouble::Huge,
            ]);
            (draw.between(2_000, 20_000), Fault::Host { host, trouble })
        });
        self.class(17, 40, 3, |draw| {
            let host = draw.below(hosts) as u32;
            let trouble = draw.pick(&[
                RobotsTrouble::Unreachable,
                RobotsTrouble::ServerError,
                RobotsTrouble::Huge,
                RobotsTrouble::ForbidsAll,
            ]);
            (draw.between(2_000, 20_000), Fault::Robots { host, trouble })
        });
        self.class(18, 50, 3, |draw| {
            let trouble = draw.pick(&[LoadTrouble::High, LoadTrouble::Stale, LoadTrouble::Flapping]);
            (draw.between(3_000, 20_000), Fault::Load { node: draw.below(nodes), trouble })
        });
        self.drawn.sort_by_key(|fault| (fault.at_ms, fault.id));
    }

    /// With `percent` chances, one to `most` faults of a class. The ids of a class do not depend on the other classes.
    fn class(&mut self, class: u32, percent: u32, most: u64, mut draw_one: impl FnMut(&mut Random) -> (u64, Fault)) {
        let mut draw = random(self.seed, Part::Class, u64::from(class));
        if !draw.percent(percent) {
            return;
        }
        for number in 0..draw.between(1, most) {
            let (lasts_ms, what) = draw_one(&mut draw);
            let at_ms = draw.between(500, self.phase_ms - 1_000);
            let lasts_ms = lasts_ms.min(self.phase_ms - at_ms);
            self.drawn.push(TimedFault { id: class * 100 + number as u32, at_ms, lasts_ms, what });
        }
    }

    fn joins_and_leaves(&mut self) {
        let nodes = self.nodes;
        let mut draw = random(self.seed, Part::Class, 14);
        let mut push = |id, at_ms, what| self.drawn.push(TimedFault { id, at_ms, lasts_ms: 0, what });
        if draw.percent(35) {
            let at_ms = draw.between(2_000, self.phase_ms - 5_000);
            push(1_400, at_ms, Fault::Join { node: nodes });
            if draw.percent(50) {
                // Two at once, or one after the other.
                let later = if draw.percent(50) { at_ms } else { draw.between(2_000, self.phase_ms - 5_000) };
                push(1_401, later, Fault::Join { node: nodes + 1 });
            }
        }
        let mut draw = random(self.seed, Part::Class, 15);
        // Who leaves must not be a voter, for voters are a fixed list, and must leave room for all copies.
        if nodes > self.voters && nodes > 3 && draw.percent(35) {
            push(1_500, draw.between(2_000, self.phase_ms - 5_000), Fault::Leave { node: nodes - 1 });
        }
        let mut draw = random(self.seed, Part::Class, 19);
        if draw.percent(15) {
            push(1_900, draw.between(1_000, self.phase_ms - 5_000), Fault::Stranger { node: nodes + 3 });
        }
    }
}

/// Two different nodes.
fn two(draw: &mut Random, nodes: u64) -> (u64, u64) {
    let one = draw.below(nodes);
    let other = draw.below(nodes - 1);
    (one, if other >= one { other + 1 } else { other })
}
