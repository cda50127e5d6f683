//! Clusters whose nodes are machines of their own, in network namespaces, while lines are cut, lose and delay, processes are
//! killed, disks are lost, and nodes come and go. The judges know nothing of the nodes: the access log of the web, which every
//! machine reaches over its own loopback device, untouched by faults, and a scan of all disks.
//!
//! Hosts do not link to each other: a seed that is lost after it was acknowledged is a host that nobody crawls.
//! Namespaces need root and a kernel that has them and TUN devices; where they are refused, a test says so and is skipped.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::ops::Range;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use simulation::world::server::{Access, Server};
use simulation::world::web::{Web, WebPlan};
use tempfile::TempDir;
use tests::cluster::{Cluster, sum};
use tests::namespace::Refused;
use tests::network::{Line, Network, address};
use tests::{judge, tell, wait_until};

const SLOTS: u64 = 4_096;
const REPLICAS: usize = 3;
/// Pages that a node fetches at once, and so what one disturbance can make others fetch again.
const CONCURRENCY: u64 = 16;
/// Configured delay, which a robots.txt is asked for under, and what that asks for then.
const DELAY_MS: u64 = 100;
const CRAWL_DELAY_MS: u64 = 200;
/// How long voters promise a slot.
const LEASE_MS: u64 = 6_000;
const SETTINGS: &str = "
[filter]
scope = \"any\"
[politeness]
delay_ms = 100
crawl_delay_max_ms = 1000
failures_max = 1000
[retry]
attempts_max = 10
wait_min_ms = 200
wait_max_ms = 1000
[fetch]
concurrency = 16
settle_timeout_s = 5
[fetch.limits]
fetch_timeout_ms = 3000
[cluster.lease]
duration_s = 6
guard_ms = 200
[cluster.membership]
stable_for_ms = 2000
";

/// A network; `None`, with a message, where the machine refuses to have one.
fn network(machines: usize) -> Option<Network> {
    match Network::start(machines, 7) {
        Ok(network) => Some(network),
        Err(Refused(why)) => {
            tell(&format!("SKIPPED: network namespaces with TUN devices cannot be had here ({why}); run it as root"));
            None
        }
    }
}

/// A cluster that crawls, and the web that it crawls.
struct Crawl {
    cluster: Cluster,
    server: Server,
    expected: u64,
    submitted: usize,
    _work: TempDir,
}

impl Crawl {
    /// Starts `nodes` nodes in a network that has machines for them.
    fn start(network: Network, nodes: usize, hosts: u32, pages: u32) -> Crawl {
        let work = tempfile::tempdir().unwrap();
        let plan =
            WebPlan { delay_ms: 3, cross_host_percent: 0, hosts_linked: false, ..WebPlan::bench(17, hosts, pages) };
        let server = Server::start(Web::new(plan.with_crawl_delay_ms(CRAWL_DELAY_MS as u32))).unwrap();
        for machine in 0..network.count() {
            network.machine(machine).inside(|| server.listen_here_too()).unwrap();
        }
        let cluster = Cluster::across(network, work.path(), nodes, SETTINGS);
        Crawl { cluster, server, expected: u64::from(hosts * pages), submitted: 0, _work: work }
    }

    /// Hands some more of the seeds in through `node`, until they are acknowledged.
    fn submit_at(&mut self, node: usize, count: usize) {
        let seeds = &self.server.seeds()[self.submitted..][..count];
        self.cluster.submit_at(node, seeds);
        self.submitted += count;
    }

    /// Waits until the web has got `count` requests more, or everything that was handed in has been asked for.
    fn goes_on(&self, count: u64) {
        let before = self.server.requests_total();
        let all = self.submitted;
        wait_until("the crawl goes on", || self.server.requests_total() >= before + count || self.is_asked_for(0..all));
    }

    /// Waits until every page of some hosts has been asked for.
    fn asks_for_all_of(&self, hosts: Range<usize>) {
        wait_until("all pages of some hosts are asked for", || self.is_asked_for(hosts.clone()));
    }

    fn is_asked_for(&self, hosts: Range<usize>) -> bool {
        let names: Vec<String> = hosts.map(|host| self.server.web().host_name(host as u32)).collect();
        let mut log = self.server.access_log();
        log.retain(|access| names.contains(&access.host));
        let pages = self.server.web().plan().pages_per_host as usize;
        judge::page_requests(&self.server, &log).len() == names.len() * pages
    }

    /// Waits until the nodes that `node` reaches are `count`, and hold all slots among them.
    fn hold_everything(&self, node: usize, count: usize) {
        wait_until(&format!("{count} nodes hold all slots"), || {
            let reports = self.cluster.reports_at(node);
            reports.len() == count && sum(&reports, "/held") == SLOTS
        });
    }

    /// Waits until a node knows that it may ask no host.
    fn holds_nothing(&self, node: usize) {
        wait_until(&format!("node {node} holds no slots"), || {
            self.cluster.report_of(node).is_some_and(|report| report["held"] == 0)
        });
    }

    /// Waits for the end of the crawl, and judges it. `nodes` are those that remain.
    fn judge(mut self, nodes: &[usize], redundant_max: u64) {
        assert_eq!(self.submitted, self.server.seeds().len(), "a test hands in all seeds");
        let all = (SLOTS, self.expected, self.expected);
        wait_until("everything is crawled", || self.cluster.totals() == all);
        let urls: BTreeSet<String> =
            judge::page_requests(&self.server, &self.server.access_log()).into_keys().collect();
        assert_eq!(urls.len() as u64, self.expected, "every page was fetched");
        self.cluster.come_to_rest(nodes, REPLICAS, &urls);
        let log = self.server.access_log();
        let redundant =
            judge::page_requests(&self.server, &log).values().map(|count| u64::from(count - 1)).sum::<u64>();
        let (carried, lost) = self.cluster.network().traffic_total();
        let packets = carried + lost;
        let expected = self.expected;
        tell(&format!("{redundant} of {expected} pages were fetched again; {lost} packets of {packets} were lost"));
        assert!(redundant <= redundant_max, "{redundant} redundant fetches, at most {redundant_max} were expected");
        let by_host = |access: &Access| access.host.clone();
        judge::assert_spaced(&log, by_host, |_| DELAY_MS);
        let pages: Vec<_> = log.iter().filter(|access| !judge::is_robots(access)).cloned().collect();
        judge::assert_spaced(&pages, by_host, |_| CRAWL_DELAY_MS);
        judge::assert_robots_first(&log);
    }
}

#[test]
fn the_switch_cuts_loses_and_delays_each_direction_by_itself() {
    let Some(network) = network(2) else { return };
    let socket = |machine: usize| {
        let socket = network.machine(machine).inside(|| UdpSocket::bind((address(machine), 9_000)).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    };
    let sockets = [socket(0), socket(1)];
    let say =
        |from: usize, what: u8| assert_eq!(sockets[from].send_to(&[what], (address(1 - from), 9_000)).unwrap(), 1);
    let hear = |at: usize| {
        let mut heard = [0];
        sockets[at].recv_from(&mut heard).unwrap();
        heard[0]
    };
    say(0, 1);
    say(1, 2);
    assert_eq!((hear(1), hear(0)), (1, 2));

    network.set(0, 1, Line::CUT);
    say(0, 3);
    say(1, 4);
    assert_eq!(hear(0), 4, "the other direction is clear");
    wait_until("the packet is lost", || network.traffic(0, 1).1 == 1);

    let delay = Duration::from_millis(200);
    network.set(0, 1, Line { loss_percent: 0, delay });
    let sent = Instant::now();
    say(0, 5);
    assert_eq!(hear(1), 5, "what was lost stays lost");
    assert!(sent.elapsed() >= delay, "{:?}", sent.elapsed());

    network.set(0, 1, Line { loss_percent: 30, delay: Duration::ZERO });
    for _ in 0..10 {
        (0..100).for_each(|_| say(0, 6));
        std::thread::sleep(Duration::from_millis(1)); // the device's own queue is short
    }
    let (carried, lost) = (network.traffic(0, 1).0 - 2, network.traffic(0, 1).1 - 1);
    assert!(lost * 100 > (carried + lost) * 20 && lost * 100 < (carried + lost) * 40, "{lost} and {carried}");
}

#[test]
fn an_owner_that_is_cut_off_or_hears_nothing_is_replaced_and_comes_back() {
    let Some(network) = network(3) else { return };
    let mut crawl = Crawl::start(network, 3, 12, 40);
    crawl.submit_at(0, 4);
    crawl.goes_on(20);
    let first_host = crawl.server.web().host_name(0);
    let owner = crawl.cluster.owner_of(&first_host);
    let [second, third] = [(owner + 1) % 3, (owner + 2) % 3];

    crawl.cluster.network().cut_off(&[owner]);
    crawl.submit_at(second, 4);
    crawl.holds_nothing(owner);
    crawl.hold_everything(second, 2);
    crawl.asks_for_all_of(0..8);
    crawl.cluster.network().set_all(Line::CLEAR);
    crawl.hold_everything(owner, 3);

    // Now one that speaks and does not hear.
    (0..3).for_each(|from| crawl.cluster.network().set(from, second, Line::CUT));
    crawl.submit_at(third, 4);
    crawl.holds_nothing(second);
    crawl.hold_everything(third, 2);
    crawl.asks_for_all_of(0..12);
    crawl.cluster.network().set_all(Line::CLEAR);
    crawl.hold_everything(second, 3);
    crawl.judge(&[0, 1, 2], 2 * CONCURRENCY);
}

#[test]
fn two_of_five_that_are_cut_off_stop_and_the_others_go_on() {
    let Some(network) = network(5) else { return };
    let mut crawl = Crawl::start(network, 5, 15, 30);
    crawl.submit_at(3, 8);
    crawl.goes_on(20);
    crawl.cluster.network().cut_off(&[3, 4]);
    crawl.submit_at(0, 7);
    crawl.holds_nothing(3);
    crawl.holds_nothing(4);
    crawl.hold_everything(0, 3);
    crawl.asks_for_all_of(8..15);
    crawl.cluster.network().set_all(Line::CLEAR);
    crawl.hold_everything(4, 5);
    // Where both were replicas, two disks had each page that the one fetched before its leases ran out: that was settled.
    let owners = (0..8).map(|host| crawl.cluster.owner_of(&crawl.server.web().host_name(host)));
    let hosts = owners.filter(|owner| [3, 4].contains(owner)).count() as u64;
    crawl.judge(&[0, 1, 2, 3, 4], 2 * CONCURRENCY + hosts * LEASE_MS / CRAWL_DELAY_MS);
}

#[test]
fn slots_of_a_node_that_reaches_too_few_voters_are_taken_over() {
    let Some(network) = network(5) else { return };
    let mut crawl = Crawl::start(network, 5, 5, 10);
    crawl.submit_at(1, 5);
    crawl.hold_everything(1, 5);
    for other in 2..5 {
        crawl.cluster.network().set(0, other, Line::CUT);
        crawl.cluster.network().set(other, 0, Line::CUT);
    }
    crawl.holds_nothing(0);
    crawl.hold_everything(2, 4);
    crawl.cluster.network().set_all(Line::CLEAR);
    crawl.hold_everything(0, 5);
    crawl.judge(&[0, 1, 2, 3, 4], CONCURRENCY);
}

#[test]
fn a_crawl_over_slow_lines_that_lose_packets_is_as_good() {
    let Some(network) = network(3) else { return };
    network.set_all(Line { loss_percent: 5, delay: Duration::from_millis(200) });
    let mut crawl = Crawl::start(network, 3, 12, 30);
    (0..3).for_each(|node| crawl.submit_at(node, 4));
    crawl.judge(&[0, 1, 2], CONCURRENCY);
}

#[test]
fn nodes_are_killed_again_and_again_and_one_loses_its_disk() {
    const KILLS: u64 = 10;
    let Some(network) = network(3) else { return };
    let mut crawl = Crawl::start(network, 3, 14, 40);
    crawl.submit_at(0, 2);
    let mut draw = ChaCha8Rng::seed_from_u64(11);
    for _ in 0..KILLS {
        crawl.goes_on(10);
        std::thread::sleep(Duration::from_millis(draw.random_range(0..300)));
        let node = draw.random_range(0..3);
        crawl.cluster.kill_node(node);
        crawl.submit_at((node + 1) % 3, 1);
        std::thread::sleep(Duration::from_millis(draw.random_range(0..1_500)));
        crawl.cluster.start_node(node);
    }

    crawl.goes_on(10);
    crawl.cluster.kill_node(1);
    std::fs::remove_dir_all(crawl.cluster.data(1)).unwrap();
    crawl.cluster.start_node(1);
    crawl.submit_at(1, 2);
    crawl.judge(&[0, 1, 2], (KILLS + 1) * CONCURRENCY);
}

#[test]
fn a_fourth_node_joins_and_one_of_the_first_leaves_in_the_middle_of_a_crawl() {
    let Some(network) = network(4) else { return };
    let mut crawl = Crawl::start(network, 3, 12, 60);
    crawl.submit_at(0, 6);
    crawl.goes_on(20);
    // As an operator does it: the new node comes into everybody's settings, they start again one after the other, then it starts.
    let fourth = crawl.cluster.prepare_node();
    (0..4).for_each(|node| crawl.cluster.configure(node, 3));
    for node in 0..3 {
        crawl.cluster.stop_node(node);
        crawl.cluster.start_node(node);
        crawl.hold_everything(node, 3);
    }
    crawl.cluster.start_node(fourth);
    wait_until("the fourth node has a share", || {
        let reports = crawl.cluster.reports_at(fourth);
        reports.len() == 4 && reports.iter().all(|report| report["held"].as_u64() > Some(0))
    });
    crawl.submit_at(fourth, 3);
    crawl.goes_on(20);

    assert_eq!(crawl.cluster.ctl_at(1, &["leave"]), Some("Done".into()));
    crawl.submit_at(2, 3);
    let said = crawl.cluster.wait_for_node(1);
    assert!(said.contains("has left"), "{said}");
    crawl.judge(&[0, 2, fourth], 4 * CONCURRENCY);
}
