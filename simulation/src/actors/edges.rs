//! Connects a node to the world: its network, its web, its clocks, its load.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use actix::Arbiter;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use node::actors::coordinator::Cluster;
use node::config::Config;
use node::edges::clock::Clock;
use node::edges::disk::Disk;
use node::edges::dns::DnsError;
use node::edges::http::{FetchError, FetchOrder, Fetched};
use node::edges::network::Network;
use node::edges::web::{Pending, Web};
use node::metrics::Metrics;
use node::node::{Edges, Node};
use proto::cluster::coordinator::ClusterRules;
use proto::cluster::lease::LeaseRules;
use proto::cluster::membership::MembershipRules;
use proto::cluster::message::Letter;
use proto::cluster::propagate::PropagateRules;
use proto::cluster::replicate::WriteRules;
use proto::crawl::filter::{Filter, FilterRules, Scope};
use proto::crawl::politeness::{Micros, PaceRules};
use proto::crawl::retry::RetryRules;
use proto::id::{NodeId, Slot};
use proto::key::DEFAULT_CRAWL;
use tokio::sync::watch;

use super::world::{Process, World, parse};
use super::{Happening, Shared};
use crate::pure::contents::content_rules;
use crate::pure::node::{CLUSTER, FLIGHTS_MAX, PART_MAX, QUEUES_MAX};
use crate::world::network::Delivery;
use crate::world::origins::{Answered, Outcome, ROBOTS_PATH, Reply};
use crate::world::plan::{MILLISECOND, Plan, SECOND};
use crate::world::random::{For, Random};
use crate::world::trace::{Event, FetchEnd, FetchKind, FetchStart};

/// Bytes of a page that are read.
const PAGE_BYTES_MAX: u64 = 2 << 20;
/// A process that ended because its disk failed is started again after this, as by the system's supervisor.
const RESTART_AFTER: Micros = SECOND;

/// One process of one node, as its edges know it.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) shared: Shared,
    pub(super) id: NodeId,
    pub(super) process: u32,
    pub(super) end: watch::Receiver<bool>,
}

impl Place {
    /// Waits while the process gets no time; says whether it still lives.
    pub(super) async fn gets_time(&self) -> bool {
        loop {
            let until = {
                let world = self.shared.lock();
                if !world.is_current(self.id, self.process) {
                    return false;
                }
                let until = world.paused_until(self.id);
                if until <= world.now {
                    return true;
                }
                until
            };
            self.shared.sleep_until(until).await;
        }
    }

    /// Waits until `at`, or until the process has ended; says whether it still lives.
    pub(super) async fn waits(&self, at: Micros) -> bool {
        let mut end = self.end.clone();
        tokio::select! {
            biased;
            _ = end.wait_for(|ended| *ended) => false,
            () = self.shared.sleep_until(at) => true,
        }
    }
}

impl Shared {
    /// A process of a node starts.
    pub(super) fn start_node(&self, id: NodeId) {
        let mut world = self.lock();
        let (now, planted, slots, rings) = (world.now, world.planted, world.slots.clone(), world.rings.clone());
        let plan = world.plan.clone();
        let names: Vec<String> =
            (0..world.origins.web().host_count()).map(|host| world.origins.web().host_name(host)).collect();
        let Some(is) = world.nodes.get_mut(&id) else { return };
        if is.process.is_some() || is.left {
            return;
        }
        is.processes += 1;
        let number = is.processes;
        is.clock.restart(number);
        let start_us = is.clock.local(now);
        let rate_ppm = (1_000_000 + plan.clock_rate_ppm(id)).max(1) as u64;
        is.wall_ms.store(is.clock.unix_ms(now) - start_us / 1_000, Ordering::Relaxed);
        let clock = Clock::simulated(start_us, rate_ppm, Arc::clone(&is.wall_ms));
        let leaving = is.leaving;
        drop(world);

        let (end, ended) = watch::channel(false);
        let place = Place { shared: self.clone(), id, process: number, end: ended };
        let (mut config, filter) = settings(&plan, &names);
        config.crawl.obey_robots = !crate::pure::node::is(planted, "robots_ignored");
        let (disk, jobs) = Disk::queue();
        let cluster = {
            let (load, sights) = (place.clone(), place.clone());
            let mut rules = cluster_rules(&plan, id);
            (rules.slots, rules.planted) = (slots, planted);
            Cluster {
                rules,
                network: Arc::new(place.clone()),
                load: Arc::new(move || {
                    let mut world = load.shared.lock();
                    if world.is_current(load.id, load.process) { world.load(load.id) } else { None }
                }),
                watch: Arc::new(move |sight| {
                    let mut world = sights.shared.lock();
                    if world.is_current(sights.id, sights.process) {
                        world.saw(sights.id, sight);
                    }
                }),
                rings,
                contents: Some((Arc::new(place.clone()), content_rules(planted))),
                defined: Arc::new(|_| {}),
                headers: Arc::new(|_, _| None),
                entries: Arc::new(|_| Box::pin(std::future::ready(Ok(())))),
                found: Arc::new(|_, _| None),
                seed: Random::at(plan.seed, For::Core, id.0, u64::from(number)).number(),
            }
        };
        let web = SimulatedWeb {
            place: place.clone(),
            clock: clock.clone(),
            fetch_timeout: plan.cluster.fetch_timeout_ms * MILLISECOND,
        };
        let own = disk.clone();
        let edges = Edges {
            clock,
            web: Arc::new(web),
            disk,
            parsers: vec![Arbiter::current()],
            warc_seed: None,
            boot: number,
            resumed: false,
            cluster: Some(cluster),
            metrics: Metrics::new(),
        };
        let node = Arc::new(Node::assemble(&config, Arc::new(filter), edges));
        let process = Process { number, node: Arc::clone(&node), disk: own, end };
        if let Some(is) = self.lock().nodes.get_mut(&id) {
            (is.process, is.mailboxes) = (Some(process), Default::default());
        }
        actix_rt::spawn(super::disk::work(place.clone(), jobs));
        actix_rt::spawn(place.watch_doom(Arc::clone(&node)));
        if leaving {
            actix_rt::spawn(async move { node.leave().await });
        }
    }

    /// Puts a letter onto the network.
    pub(super) fn transmit(&self, from: NodeId, to: NodeId, letter: Letter) {
        let mut world = self.lock();
        if letter.message.since() > world.plan.oldest_spoken(from, [to].into_iter()) {
            return world.sometimes("message_unspoken");
        }
        let now = world.now;
        let sent = world.network.send(now, from, to);
        if let Some(point) = sent.fate.point() {
            world.sometimes(point);
        }
        drop(world);
        for delivery in sent.deliveries.into_iter().flatten() {
            let (shared, letter) = (self.clone(), letter.clone());
            actix_rt::spawn(async move {
                shared.sleep_until(delivery.at).await;
                shared.deliver(delivery, letter).await;
            });
        }
    }

    async fn deliver(self, delivery: Delivery, letter: Letter) {
        loop {
            let stopped = self.lock().try_deliver(&delivery, &letter);
            let Some(until) = stopped else { return };
            self.sleep_until(until).await;
        }
    }
}

impl World {
    /// Hands a letter to the process that it is for. `Some` says when to try again because that is stopped.
    fn try_deliver(&mut self, delivery: &Delivery, letter: &Letter) -> Option<Micros> {
        let (now, to) = (self.now, delivery.to);
        let Some(process) = self.process(to) else {
            self.network.arrives(delivery);
            return None;
        };
        let paused_until = self.paused_until(to);
        if paused_until > now {
            return Some(paused_until);
        }
        if self.network.arrives(delivery) {
            let (from, clock, name) = (letter.from, letter.clock, letter.message.name());
            self.trace.note(now, to, &(from, clock, name), || format!("from {}: {:?}", from.0, letter.message));
            process.node.receive(letter.clone()); // no room: lost, like on the way
            self.measure_mailboxes(to);
        } else if self.network.is_reset(delivery) {
            self.sometimes("message_lost_to_reset");
        }
        None
    }
}

impl Place {
    /// A process whose disk failed ends, and is started again.
    async fn watch_doom(self, node: Arc<Node>) {
        let mut end = self.end.clone();
        tokio::select! {
            biased;
            _ = end.wait_for(|ended| *ended) => {}
            _ = node.doom() => {
                let mut world = self.shared.lock();
                if world.is_current(self.id, self.process) {
                    world.crash(self.id);
                    let at = world.now + RESTART_AFTER;
                    world.at(at, Happening::Starts(self.id));
                }
            }
        }
    }
}

impl Network for Place {
    fn oldest_spoken(&self) -> u16 {
        let world = self.shared.lock();
        let up = world.nodes.values().filter(|node| node.process.is_some()).map(|node| node.id);
        world.plan.oldest_spoken(self.id, up)
    }

    fn send(&self, to: NodeId, letter: Letter) {
        let (until, now) = {
            let world = self.shared.lock();
            if !world.is_current(self.id, self.process) {
                return;
            }
            (world.paused_until(self.id), world.now)
        };
        if until <= now {
            return self.shared.transmit(self.id, to, letter);
        }
        let place = self.clone();
        actix_rt::spawn(async move {
            if place.gets_time().await {
                place.shared.transmit(place.id, to, letter);
            }
        });
    }
}

/// The hosts of the world, as one process asks them.
struct SimulatedWeb {
    place: Place,
    clock: Clock,
    fetch_timeout: Micros,
}

impl SimulatedWeb {
    async fn answer(&self, order: &FetchOrder) -> Result<Fetched, FetchError> {
        let place = &self.place;
        if !place.gets_time().await {
            return Err(FetchError::Timeout);
        }
        let started_unix_ms = self.clock.now().unix_ms;
        let (fetch, host, reply, ends, answered) = {
            let mut world = place.shared.lock();
            let now = world.now;
            let Some(host) = world.origins.host(order.url.host()) else {
                return Err(FetchError::Dns(DnsError::NotFound { host: order.url.host().to_owned() }));
            };
            let Some(node) = world.nodes.get(&place.id) else { return Err(FetchError::Timeout) };
            let own = node.clock.timer(now, self.fetch_timeout);
            let ordered = order.deadline.map(|deadline| (deadline - place.shared.start).as_micros() as Micros);
            let deadline = ordered.unwrap_or(own).min(own);
            if deadline <= now {
                return Err(FetchError::Timeout);
            }
            let start = fetch_start(&mut world, place.id, host, order, deadline);
            let (fetch, path) = (start.fetch, order.url.path_and_query().to_owned());
            world.record(Event::FetchStarted(start));
            let reply = world.origins.ask(now, host, &path);
            if let Some(point) = reply.met {
                world.sometimes(point);
            }
            let answered = reply.at <= deadline;
            (fetch, host, reply.clone(), reply.at.min(deadline), answered)
        };
        if !place.waits(ends).await || !place.gets_time().await {
            return Err(FetchError::Timeout);
        }
        let mut world = place.shared.lock();
        if let Some(node) = world.nodes.get_mut(&place.id) {
            node.fetching = node.fetching.saturating_sub(1);
        }
        let result = if answered { self.heard(order, &reply, started_unix_ms) } else { Err(FetchError::Timeout) };
        let end = match (&result, answered) {
            (_, false) => FetchEnd::Aborted,
            (Ok(fetched), true) if fetched.status < 400 => FetchEnd::Answered,
            _ => FetchEnd::Failed,
        };
        world.record(Event::FetchEnded { fetch, node: place.id, end });
        if is_robots(order) {
            let forbids_all = !answered || reply.forbids_all();
            world.record(Event::RobotsHeard { fetch, forbids_all });
        }
        if answered {
            world.origins.delivered(host, &reply);
        } else {
            world.sometimes("fetch_aborted");
        }
        if end == FetchEnd::Answered
            && !is_robots(order)
            && let Outcome::Answer(is) = &reply.outcome
        {
            links_found(&mut world, order, is);
        }
        result
    }

    fn heard(&self, order: &FetchOrder, reply: &Reply, started_unix_ms: u64) -> Result<Fetched, FetchError> {
        let is = match &reply.outcome {
            Outcome::Refused => return Err(FetchError::ConnectRefused),
            Outcome::Reset => return Err(FetchError::ConnectionBroken { reason: "reset".to_owned() }),
            Outcome::Silence => return Err(FetchError::Timeout),
            Outcome::Answer(is) => is,
        };
        if is.body_bytes > PAGE_BYTES_MAX && order.cut_at_bytes.is_none() {
            return Err(FetchError::BodyTooLarge { limit_bytes: PAGE_BYTES_MAX as usize });
        }
        let broken = || FetchError::ProtocolBroken { reason: format!("status {}", is.answer.status) };
        let status = StatusCode::from_u16(is.answer.status).map_err(|_| broken())?;
        let mut headers = HeaderMap::new();
        for (name, value) in &is.answer.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| broken())?;
            headers.append(name, HeaderValue::from_str(value).map_err(|_| broken())?);
        }
        let body = match order.cut_at_bytes {
            Some(bytes) => is.answer.body.slice(..bytes.min(is.answer.body.len())),
            None => Bytes::clone(&is.answer.body),
        };
        Ok(Fetched::plain(order, status, headers, body, started_unix_ms))
    }
}

/// Of a robots.txt a part is better than none: only it is cut. Its path does not tell, it may lie behind a redirect.
fn is_robots(order: &FetchOrder) -> bool {
    order.cut_at_bytes.is_some()
}

fn fetch_start(world: &mut World, node: NodeId, host: u32, order: &FetchOrder, deadline: Micros) -> FetchStart {
    world.fetches += 1;
    if let Some(is) = world.nodes.get_mut(&node) {
        is.fetching += 1;
    }
    let (url, path) = (order.url.id(DEFAULT_CRAWL), order.url.path_and_query());
    let kind = if is_robots(order) { FetchKind::Robots } else { FetchKind::Page };
    // Before a page is fetched it is SELECTED on W disks, in this round.
    let disks = world.trace.invariants().oracle().nodes.values();
    let round = disks.filter_map(|facts| facts.disk.get(&url)).map(|at| at.progress.round).max().unwrap_or(0);
    FetchStart {
        fetch: world.fetches,
        node,
        host,
        slot: Slot::of_domain(order.url.domain()),
        url,
        kind,
        site: None, // orders do not say whose URLs they are
        round: if kind == FetchKind::Robots { 0 } else { round },
        deadline,
        crawl_delay: world.origins.crawl_delay(host),
        least_delay: world.origins.least_delay(),
        own_robots: path == ROBOTS_PATH,
        allowed: world.origins.allows(host, path),
    }
}

/// What a page links to, as far as this crawl follows it.
fn links_found(world: &mut World, order: &FetchOrder, is: &Answered) {
    let target = is.answer.header_value("location").filter(|_| (300..400).contains(&is.answer.status));
    let mut links = Vec::new();
    if let Some(target) = target {
        let base = order.url.to_url();
        links.extend(proto::url::CanonicalUrl::join(&base, target, &Default::default()).ok());
    } else if is.answer.status == 200 {
        links.extend(is.links.iter().filter_map(|link| parse(link)));
    }
    let links = links.into_iter().filter(|url| *url != order.url && world.origins.host(url.host()).is_some());
    let links = links.map(|url| url.id(DEFAULT_CRAWL)).collect();
    world.record(Event::LinksFound { page: order.url.id(DEFAULT_CRAWL), links });
}

impl Web for SimulatedWeb {
    fn fetch<'a>(&'a self, order: &'a FetchOrder) -> Pending<'a, Result<Fetched, FetchError>> {
        Box::pin(self.answer(order))
    }

    fn resolve<'a>(&'a self, _host: &'a str) -> Pending<'a, Result<Vec<IpAddr>, DnsError>> {
        Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) }) // addresses are not paced in this layer
    }
}

/// What the nodes are told, and what belongs to their crawl: everything on the hosts of the world.
fn settings(plan: &Plan, hosts: &[String]) -> (Config, Filter) {
    let mut config = Config::default();
    config.crawl.robots_ttl_s = plan.cluster.robots_ttl_ms / 1_000;
    config.crawl.read_sitemaps = false;
    config.crawl.page_parts = false;
    config.crawl.redirects_max = 5;
    config.fetch.concurrency = FLIGHTS_MAX;
    config.fetch.settle_timeout_s = 10;
    config.fetch.pace_addresses = false;
    config.fetch.limits.fetch_timeout_ms = plan.cluster.fetch_timeout_ms;
    config.politeness = PaceRules {
        delay_ms: plan.cluster.crawl_delay_ms,
        crawl_delay_max_ms: 10_000,
        slow_down_min_ms: 200,
        slow_down_max_ms: 1_500,
        failures_max: 4,
        leave_min_ms: 500,
        leave_max_ms: 1_000,
        drift_ppm: plan.cluster.drift_ppm as u32,
    };
    config.retry = RetryRules {
        attempts_max: 3,
        slow_down_attempts_max: 3,
        wait_min_ms: 300,
        wait_max_ms: 1_000,
        robots_wait_ms: 1_000,
    };
    config.storage.queues_max = QUEUES_MAX;
    config.storage.queue_window = 8;
    let names: Vec<String> = hosts.iter().map(|host| host.replace('.', "\\.")).collect();
    let include = vec![format!("^http://({})(/|$)", names.join("|"))];
    // The calendar has no end; a page of it is enough.
    let exclude = vec!["/calendar/(2023/|2024/([2-9]|1.))".to_owned()];
    let rules = FilterRules { scope: Scope::Any, include, exclude, ..FilterRules::default() };
    (config, Filter::new(rules, &[]).expect("a pattern of names"))
}

fn cluster_rules(plan: &Plan, id: NodeId) -> ClusterRules {
    let cluster = &plan.cluster;
    let peers = plan.first_nodes().map(|node| (node, plan.weight(node) as u16)).collect();
    let mut rules = ClusterRules::new(CLUSTER, id, 0, peers, plan.voters().collect());
    rules.weight = plan.weight(id) as u16;
    rules.fetch_timeout = cluster.fetch_timeout_ms * MILLISECOND;
    rules.lease = LeaseRules {
        duration: cluster.lease_ms * MILLISECOND,
        guard: cluster.guard_ms * MILLISECOND,
        drift_ppm: cluster.drift_ppm,
    };
    rules.membership = MembershipRules {
        stable_for: cluster.view_stable_ms * MILLISECOND,
        forget_after: cluster.forget_after_ms * MILLISECOND,
        ..MembershipRules::default()
    };
    rules.writes = WriteRules { replicas: cluster.replicas, quorum: cluster.write_quorum, ..WriteRules::default() };
    rules.propagate = PropagateRules { urls_max: cluster.outbox_max, ..PropagateRules::default() };
    rules.repair.part_max = PART_MAX;
    rules
}
