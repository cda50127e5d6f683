//! The page graph ranked by several nodes under the faults of a plan: the core of the product ([`proto::score::rounds`]) on every node, over the world's network and clocks, while nodes
//! crash, stop and are cut off. Every node keeps the whole graph, as replicas of all slots do; whose a page is follows from the members of a ranking.
//!
//! What begins a ranking and gives it up is small and stands here as the node's scoring thread has it: the members are who is heard of, all of them must see the same, what does not move is given
//! up ([`proto::score::patience`]), and a newer one overtakes. A ranking begins where the last one ended, unless somebody merely wanted to see it. In some plans pages have content scores, and one node
//! takes longer to prepare its part than others wait for who says nothing. [`RankingLayer::mutants`] leaves out one of these rules each.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use proto::crawl::politeness::Micros;
use proto::id::{NodeId, SLOTS, Slot};
use proto::score::hits::Hits;
use proto::score::pagerank::{DAMPING, PageRank};
use proto::score::patience::{Heard, Patience};
use proto::score::rounds::{Abroad, By, Flat, Purse, Question, Ranking, Reply, Rows, Share, Standing};
use proto::score::{Graph, Lists, OneCore, Scorer, Stop};

use crate::invariants::true_ring;
use crate::layer::{Layer, Mutant, Point, RunOptions, RunReport};
use crate::world::clock::Clock;
use crate::world::network::{Delivery, Fate, Network};
use crate::world::plan::{Fault, MILLISECOND, Plan, SECOND};
use crate::world::trace::{Event, Phase, Trace};

const TICK: Micros = 200 * MILLISECOND;
/// Who is not heard of for so long is dead.
const SILENCE: Micros = 2 * SECOND;
/// How long a ranking may stand still while nobody says anything.
const PATIENCE: Micros = 4 * SECOND;
/// How long the slow node of a plan prepares its part.
const SLOW: Micros = 7 * SECOND;
/// How long after the last one, and how much longer on every further node, the next one is begun.
const BEGIN_AFTER: Micros = 3 * SECOND;
const BEGIN_APART: Micros = 700 * MILLISECOND;

/// Until what one node computes alone, for whoever judges.
const EXACT: Stop = Stop { precision: 1e-13, loops_max: 100_000 };
/// A graph whose best clusters of hubs are nearly equally good has no definite authorities: where HITS is nearer by less than this part with every loop, it is not asked for.
const HITS_LOOPS_MAX: u32 = 500;
/// What somebody wants to see is computed with a damping of its own.
const WISH: By = By::PageRank(0.5);
/// Every so many rankings of a node are somebody's wish.
const WISH_EVERY: u64 = 3;

/// The layer.
pub struct RankingLayer;

impl Layer for RankingLayer {
    fn name(&self) -> &'static str {
        "ranking"
    }

    fn run(&self, plan: &Plan, options: &RunOptions) -> RunReport {
        World::new(plan, options).run()
    }

    fn mutants(&self) -> Vec<Mutant> {
        let mutant = |name, seeds_max| Mutant { name, seeds_max, breaks: &["I23"] };
        vec![
            mutant("own_members", 500),
            mutant("former_ranking", 500),
            mutant("never_given_up", 200),
            mutant("not_yet_is_silence", 200),
        ]
    }

    fn judges(&self) -> Vec<&'static str> {
        vec!["I23"]
    }

    fn points(&self) -> Vec<Point> {
        let often = [
            "message_cut",
            "node_crashed",
            "ranking_begun_warm",
            "ranking_ended",
            "ranking_given_up",
            "ranking_overtaken",
            "ranking_prepared_late",
            "ranking_refused",
            "ranking_wished",
        ];
        Point::all(200, often).collect()
    }
}

/// A graph that every node keeps, and its scores.
struct Pages {
    count: u32,
    links: Vec<(u32, u32)>,
    /// What pages are worth by themselves, where that counts.
    content: Option<Vec<f64>>,
    by: By,
    /// What one node alone computes: for the queues, and for who merely wants to see it.
    scores: Vec<f64>,
    wished: Vec<f64>,
}

/// For each page its list, one behind the other.
fn flat(lists: Vec<Vec<u32>>) -> (Vec<u64>, Vec<u32>) {
    let mut starts = vec![0];
    lists.iter().for_each(|list| starts.push(starts[starts.len() - 1] + list.len() as u64));
    (starts, lists.concat())
}

impl Pages {
    /// The graph of a plan. Every page has a link to the next, so that all are known to whoever keeps them.
    fn of(plan: &Plan) -> Pages {
        let mut state = plan.seed | 1;
        let mut draw = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let count = 5 + draw(40) as u32;
        let mut links: Vec<(u32, u32)> =
            (0..count).filter(|page| page % 7 != 3).map(|page| (page, (page + 1) % count)).collect();
        links.extend(
            (0..draw(150)).map(|_| (draw(u64::from(count)) as u32, draw(u64::from(count)) as u32 % (1 + count / 3))),
        );
        links.retain(|(from, to)| from != to && from % 7 != 3); // some lead nowhere
        links.sort_unstable();
        links.dedup();
        let by = match plan.seed % 6 {
            0 | 3 => By::Hits,
            1 => By::Opic,
            _ => By::PageRank(DAMPING),
        };
        let content = plan.seed.is_multiple_of(5).then(|| (0..count).map(|_| draw(100) as f64).collect());
        let mut pages = Pages { count, links, content, by, scores: Vec::new(), wished: Vec::new() };
        let (scores, loops) = pages.alone(by);
        (pages.scores, pages.wished) = (scores, pages.alone(WISH).0);
        if by == By::Hits && loops > HITS_LOOPS_MAX {
            pages.by = By::PageRank(DAMPING);
            pages.scores = pages.alone(pages.by).0;
        }
        pages
    }

    /// What one node alone computes, and after how many loops.
    fn alone(&self, by: By) -> (Vec<f64>, u32) {
        let (mut out, mut into) = (vec![Vec::new(); self.count as usize], vec![Vec::new(); self.count as usize]);
        for (from, to) in &self.links {
            out[*from as usize].push(*to);
            into[*to as usize].push(*from);
        }
        let degrees: Vec<u32> = out.iter().map(|list: &Vec<u32>| list.len() as u32).collect();
        let (out, into) = (flat(out), flat(into));
        let into = Lists::new(&into.0, &into.1).expect("lists that were made together");
        let graph =
            Graph { into, degrees: &degrees, out: Lists::new(&out.0, &out.1), content: self.content.as_deref() };
        match by {
            By::PageRank(damping) => {
                let mut scorer = PageRank::new(damping);
                let done = scorer.update(&graph, &EXACT, &OneCore).expect("memory");
                (scorer.scores().to_vec(), done.loops)
            }
            By::Hits => {
                let mut scorer = Hits::default();
                let done = scorer.update(&graph, &EXACT, &OneCore).expect("memory");
                (scorer.scores().to_vec(), done.loops)
            }
            By::Opic => {
                // Who is online goes by the order of the crawl; in rounds all hand on at once.
                let one = [NodeId(0)];
                let (share, mine) = self.share(one[0], &one);
                let ranking = Ranking::new(0, one[0], &one, by, EXACT, share, Arc::new(OneCore));
                let mut scores = vec![0.0; self.count as usize];
                mine.iter().zip(ranking.scores().0).for_each(|(page, score)| scores[*page as usize] = *score);
                (scores, 1)
            }
        }
    }

    fn owner(page: u32, members: &[NodeId]) -> NodeId {
        members[(page as usize * 7 + 3) % members.len()]
    }

    /// The part of a node, and the pages behind its numbers.
    fn share(&self, me: NodeId, members: &[NodeId]) -> (Share, Vec<u32>) {
        let mine: Vec<u32> = (0..self.count).filter(|page| Self::owner(*page, members) == me).collect();
        let number = |page: u32| mine.binary_search(&page).ok();
        let (mut into, mut degrees) = (vec![Vec::new(); mine.len()], vec![0; mine.len()]);
        let mut foreign: BTreeMap<NodeId, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
        for (from, to) in &self.links {
            let Some(source) = number(*from) else { continue };
            degrees[source] += 1;
            match number(*to) {
                Some(target) => into[target].push(source as u32),
                None => {
                    let of = foreign.entry(Self::owner(*to, members)).or_default();
                    of.entry(*to).or_default().push(source as u32);
                }
            }
        }
        let abroad = foreign.into_iter().map(|(node, named)| {
            let names = named.keys().map(|page| page.to_be_bytes().to_vec()).collect();
            (node, Abroad { names, from: Rows::of(named.into_values()) })
        });
        let abroad = abroad.collect();
        let purses = vec![Purse { hands_on: true, ..Purse::default() }; mine.len()];
        let content = |page: &u32| self.content.as_ref().map(|content| content[*page as usize]);
        let content = mine.iter().map(content).collect::<Option<Vec<f64>>>().map(Flat::from);
        let (into, degrees) = (Rows::of(into), degrees.into());
        (Share { into, degrees, content, abroad, purses, ..Share::default() }.with_out(), mine)
    }
}

/// What members agree on.
#[derive(Clone)]
struct Order {
    number: u64,
    members: Rc<[NodeId]>,
    /// Somebody wants to see it; queues do not go by it.
    wish: bool,
}

#[derive(Clone)]
enum Message {
    Beat,
    Begin { order: Order },
    Begun { number: u64, agreed: bool },
    Ask(Question),
    Said(Question, Rc<Reply>),
}

enum Happening {
    Tick { node: NodeId, boot: u32 },
    Prepared { node: NodeId, boot: u32, number: u64 },
    Arrives { delivery: Delivery, message: Message },
    FaultBegins(usize),
    FaultEnds(usize),
    CalmBegins,
    Look,
}

/// A ranking that a node takes part in.
struct Part {
    ranking: Ranking,
    /// The pages behind its numbers.
    pages: Vec<u32>,
    wish: bool,
    patience: Patience,
    /// What others said since the last tick.
    heard: Heard,
    told: bool,
}

#[derive(Default)]
struct Node {
    up: bool,
    boot: u32,
    paused_until: Micros,
    /// When others were last heard of, on the node's clock.
    heard: BTreeMap<NodeId, Micros>,
    /// The newest ranking that it knows.
    newest: u64,
    /// What it began, and who has agreed.
    begun: Option<(Order, BTreeSet<NodeId>)>,
    /// What it prepares its part for.
    prepares: Option<Order>,
    part: Option<Part>,
    begins_at: Micros,
    /// How many it has begun.
    begins: u64,
    /// What its pages had in the last ranking, by page; on its disk.
    kept: BTreeMap<u32, f64>,
}

struct World<'a> {
    plan: &'a Plan,
    options: &'a RunOptions,
    trace: Trace,
    network: Network,
    pages: Pages,
    clocks: BTreeMap<NodeId, Clock>,
    nodes: BTreeMap<NodeId, Node>,
    queue: BTreeMap<(Micros, u64), Happening>,
    queued: u64,
    rested_at: Option<Micros>,
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, options: &'a RunOptions) -> World<'a> {
        let nodes: Vec<NodeId> = plan.first_nodes().collect();
        World {
            plan,
            options,
            trace: Trace::new(plan, options.keep),
            network: Network::new(plan),
            pages: Pages::of(plan),
            clocks: nodes.iter().map(|node| (*node, Clock::new(plan, *node))).collect(),
            nodes: nodes.iter().map(|node| (*node, Node::default())).collect(),
            queue: BTreeMap::new(),
            queued: 0,
            rested_at: None,
        }
    }

    fn run(mut self) -> RunReport {
        self.trace.record(0, Event::GraphKept { pages: u64::from(self.pages.count) });
        for node in self.plan.first_nodes() {
            self.start(0, node);
        }
        for (number, fault) in self.plan.faults.iter().enumerate() {
            self.at(fault.begins(), Happening::FaultBegins(number));
            self.at(fault.ends(), Happening::FaultEnds(number));
        }
        self.at(self.plan.faults_end(), Happening::CalmBegins);
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.happens(at, happening);
            if self.trace.violation().is_some() || self.rested_at.is_some() {
                break;
            }
        }
        let messages = self.network.messages();
        RunReport::new(self.plan, self.trace, self.rested_at, messages)
    }

    fn at(&mut self, at: Micros, happening: Happening) {
        self.queued += 1;
        self.queue.insert((at, self.queued), happening);
    }

    fn has(&self, mutant: &str) -> bool {
        self.options.mutant == Some(mutant)
    }

    fn local(&self, node: NodeId, at: Micros) -> Micros {
        self.clocks[&node].local(at)
    }

    fn node(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).expect("every node of the plan is there")
    }

    fn start(&mut self, at: Micros, node: NodeId) {
        let boot = self.node(node).boot;
        if let Some(clock) = self.clocks.get_mut(&node) {
            clock.restart(boot);
        }
        self.trace.record(at, Event::NodeStarted { node, boot });
        self.trace.record(at, Event::NodeRecovered { node });
        let members: BTreeMap<NodeId, usize> = self.plan.first_nodes().map(|node| (node, 1)).collect();
        let ring = true_ring(&members);
        let owners = (0..SLOTS).filter_map(|slot| ring.owner(Slot(slot))).collect();
        self.trace.record(at, Event::RingChanged { node, members, owners });
        let begins_at = self.local(node, at) + BEGIN_AFTER + node.0 * BEGIN_APART;
        // Numbers come from a clock of the wall, which goes on over a start.
        let newest = (at << 12) | node.0;
        let kept = std::mem::take(&mut self.node(node).kept);
        *self.node(node) = Node { up: true, boot, begins_at, newest, kept, ..Node::default() };
        self.at(at, Happening::Tick { node, boot });
    }

    fn crash(&mut self, at: Micros, node: NodeId) {
        let Some(gone) = self.nodes.get_mut(&node).filter(|node| node.up) else { return };
        (gone.up, gone.boot) = (false, gone.boot + 1);
        self.trace.record(at, Event::NodeCrashed { node });
        self.trace.sometimes(at, "node_crashed");
    }

    fn send(&mut self, at: Micros, from: NodeId, to: NodeId, message: Message) {
        let sent = self.network.send(at, from, to);
        if sent.fate == Fate::Cut {
            self.trace.sometimes(at, "message_cut");
        }
        for delivery in sent.deliveries.into_iter().flatten() {
            self.at(delivery.at, Happening::Arrives { delivery, message: message.clone() });
        }
    }

    fn happens(&mut self, at: Micros, happening: Happening) {
        let concerns = match &happening {
            Happening::Tick { node, .. } | Happening::Prepared { node, .. } => Some(*node),
            Happening::Arrives { delivery, .. } => Some(delivery.to),
            _ => None,
        };
        // A stopped process sees nothing until it goes on.
        if let Some(until) = concerns.map(|node| self.nodes[&node].paused_until).filter(|until| *until > at) {
            return self.at(until, happening);
        }
        match happening {
            Happening::Tick { node, boot } => self.tick(at, node, boot),
            Happening::Prepared { node, boot, number } => {
                let known = &self.nodes[&node];
                let waits = known.prepares.as_ref().is_some_and(|order| order.number == number);
                if known.up && known.boot == boot && waits {
                    self.take_part(at, node);
                }
            }
            Happening::Arrives { delivery, message } => {
                if self.network.arrives(&delivery) && self.nodes[&delivery.to].up {
                    self.receive(at, delivery.from, delivery.to, message);
                }
            }
            Happening::FaultBegins(number) => self.fault_begins(at, number),
            Happening::FaultEnds(number) => self.fault_ends(at, number),
            Happening::CalmBegins => {
                self.trace.record(at, Event::PhaseChanged(Phase::Calm));
                for node in self.plan.stays_down.clone() {
                    self.crash(at, NodeId(node));
                }
                self.at(at, Happening::Look);
            }
            Happening::Look => match self.trace.invariants().missing(at) {
                None => self.rested_at = Some(at),
                Some(_) if at < self.plan.calm_ends() => self.at(at + 500 * MILLISECOND, Happening::Look),
                Some(_) => {}
            },
        }
    }

    /// Who is alive, as a node sees it.
    fn alive(&self, node: NodeId, now: Micros) -> Vec<NodeId> {
        let heard = self.nodes[&node].heard.iter().filter(|(_, at)| **at + SILENCE > now).map(|(of, _)| *of);
        heard.chain([node]).collect::<BTreeSet<NodeId>>().into_iter().collect()
    }

    fn tick(&mut self, at: Micros, node: NodeId, boot: u32) {
        if !self.nodes[&node].up || self.nodes[&node].boot != boot {
            return;
        }
        let now = self.local(node, at);
        let next = self.clocks[&node].timer(at, TICK);
        self.at(next, Happening::Tick { node, boot });
        let others: Vec<NodeId> = self.nodes.keys().copied().filter(|other| *other != node).collect();
        for other in others {
            self.send(at, node, other, Message::Beat);
        }
        let alive = self.alive(node, now);
        let not_yet_is_silence = self.has("not_yet_is_silence");
        if let Some(part) = &mut self.node(node).part {
            let mut heard = std::mem::take(&mut part.heard);
            heard.not_yet &= !not_yet_is_silence;
            part.patience.heard(heard, now / MILLISECOND);
        }
        let given_up = !self.has("never_given_up")
            && self.nodes[&node].part.as_ref().is_some_and(|part| {
                let dead = part.ranking.members().iter().any(|member| !alive.contains(member));
                part.ranking.standing() == Standing::Goes && (dead || part.patience.is_over(now / MILLISECOND))
            });
        if given_up {
            self.node(node).part = None;
            self.trace.sometimes(at, "ranking_given_up");
        }
        let known = &self.nodes[&node];
        let goes = known.prepares.is_some()
            || known.part.as_ref().is_some_and(|part| part.ranking.standing() == Standing::Goes);
        if !goes && now >= self.nodes[&node].begins_at {
            let known = self.node(node);
            let number = ((at << 12) | node.0).max(known.newest + 1);
            (known.newest, known.begins_at) = (number, now + BEGIN_AFTER + node.0 * BEGIN_APART);
            known.begins += 1;
            let wish = known.begins.is_multiple_of(WISH_EVERY);
            let order = Order { number, members: alive.into(), wish };
            known.begun = Some((order.clone(), BTreeSet::from([node])));
            for member in order.members.iter().filter(|member| **member != node) {
                self.send(at, node, *member, Message::Begin { order: order.clone() });
            }
            self.agreed(at, node);
        }
        self.ask(at, node);
    }

    /// Begins what all members have agreed on.
    fn agreed(&mut self, at: Micros, node: NodeId) {
        let whole = |(order, agreed): &(Order, BTreeSet<NodeId>)| agreed.len() == order.members.len();
        if let Some((order, _)) = self.node(node).begun.take_if(|begun| whole(begun)) {
            self.prepare(at, node, order);
        }
    }

    /// Gives up what it did, and prepares its part, which takes a slow node its time.
    fn prepare(&mut self, at: Micros, node: NodeId, order: Order) {
        let is_slow = self.plan.seed.is_multiple_of(4) && self.nodes.keys().next_back() == Some(&node);
        let begins_at = self.local(node, at) + BEGIN_AFTER + node.0 * BEGIN_APART;
        let known = self.node(node);
        let (boot, number) = (known.boot, order.number);
        let overtaken = known.prepares.is_some()
            || known.part.as_ref().is_some_and(|part| part.ranking.standing() == Standing::Goes);
        (known.part, known.prepares, known.begins_at) = (None, Some(order), begins_at);
        if overtaken {
            self.trace.sometimes(at, "ranking_overtaken");
        }
        match is_slow {
            true => {
                let ready = self.clocks[&node].timer(at, SLOW);
                self.at(ready, Happening::Prepared { node, boot, number });
                self.trace.sometimes(at, "ranking_prepared_late");
            }
            false => self.take_part(at, node),
        }
    }

    fn take_part(&mut self, at: Micros, node: NodeId) {
        let Some(Order { number, members, wish }) = self.node(node).prepares.take() else { return };
        let now = self.local(node, at);
        let own = self.alive(node, now);
        let by = if wish { WISH } else { self.pages.by };
        // Whose a page is must go by what was agreed on, not by what a node believes.
        let (mut share, pages) = self.pages.share(node, if self.has("own_members") { &own } else { &members });
        if wish {
            self.trace.sometimes(at, "ranking_wished");
        } else if matches!(by, By::PageRank(_)) && !self.nodes[&node].kept.is_empty() {
            // Where two clusters of hubs are exactly as good, what HITS comes to depends on where it begins: it begins even here, as the oracle does.
            let kept = &self.nodes[&node].kept;
            let before: Vec<f64> = pages.iter().map(|page| kept.get(page).copied().unwrap_or(0.0)).collect();
            share.before = before.into();
            self.trace.sometimes(at, "ranking_begun_warm");
        }
        let ranking = Ranking::new(number, node, &members, by, by.stop(), share, Arc::new(OneCore));
        let patience = Patience::new(PATIENCE / MILLISECOND, now / MILLISECOND);
        let known = self.node(node);
        known.part = Some(Part { ranking, pages, wish, patience, heard: Heard::default(), told: false });
        known.begins_at = now + BEGIN_AFTER + node.0 * BEGIN_APART;
        self.ended(at, node);
    }

    fn ask(&mut self, at: Micros, node: NodeId) {
        let wants = self.nodes[&node].part.as_ref().map(|part| part.ranking.wants()).unwrap_or_default();
        for (member, question) in wants {
            self.send(at, node, member, Message::Ask(question));
        }
    }

    fn receive(&mut self, at: Micros, from: NodeId, to: NodeId, message: Message) {
        let now = self.local(to, at);
        self.node(to).heard.insert(from, now);
        match message {
            Message::Beat => {}
            Message::Begin { order } => {
                let (number, members) = (order.number, Rc::clone(&order.members));
                let alive = self.alive(to, now);
                let same = members.contains(&to) && members.iter().all(|member| alive.contains(member));
                let agreed = same && number > self.nodes[&to].newest;
                if agreed {
                    self.node(to).newest = number;
                    self.node(to).begun = None;
                    self.prepare(at, to, order);
                } else {
                    self.trace.sometimes(at, "ranking_refused");
                }
                self.send(at, to, from, Message::Begun { number, agreed });
            }
            Message::Begun { number, agreed } => {
                match &mut self.node(to).begun {
                    Some((begun, members)) if begun.number == number && agreed => drop(members.insert(from)),
                    Some((begun, _)) if begun.number == number => self.node(to).begun = None,
                    _ => {}
                }
                self.agreed(at, to);
                self.ask(at, to);
            }
            Message::Ask(question) => {
                let part = self.nodes[&to].part.as_ref();
                let known = part.filter(|part| part.ranking.number() == question.ranking);
                let known_node = &self.nodes[&to];
                let begun = known_node.begun.as_ref().map(|(order, _)| order).into_iter();
                let begins = begun.chain(&known_node.prepares).any(|order: &Order| order.number == question.ranking);
                let reply = match known {
                    Some(part) => part.ranking.answer(from, question),
                    None if begins => Reply::NotYet,
                    None => Reply::Unknown,
                };
                self.send(at, to, from, Message::Said(question, Rc::new(reply)));
            }
            Message::Said(mut question, reply) => {
                let former = self.has("former_ranking");
                let Some(part) = &mut self.node(to).part else { return };
                if former {
                    question.ranking = part.ranking.number();
                }
                let Part { ranking, pages, .. } = part;
                let changed = ranking.heard(from, question, (*reply).clone(), |name| {
                    let page = u32::from_be_bytes(name.try_into().ok()?);
                    Some(pages.iter().position(|known| *known == page).unwrap_or_else(|| {
                        pages.push(page);
                        pages.len() - 1
                    }) as u32)
                });
                match &*reply {
                    Reply::NotYet => part.heard.not_yet = true,
                    Reply::Unknown if question.ranking == part.ranking.number() => part.heard.unknown = true,
                    _ => part.heard.numbers |= changed,
                }
                if changed {
                    self.ended(at, to);
                    self.ask(at, to);
                }
            }
        }
    }

    /// Tells what a ranking that has ended came to.
    fn ended(&mut self, at: Micros, node: NodeId) {
        let now = self.local(node, at);
        let World { pages: world, nodes, .. } = self;
        let Some(known) = nodes.get_mut(&node) else { return };
        let Some(part) = known.part.as_mut().filter(|part| !part.told) else { return };
        let Standing::Ended(_) = part.ranking.standing() else { return };
        part.told = true;
        let (scores, count) = part.ranking.scores();
        let oracle = if part.wish { &world.wished } else { &world.scores };
        let of_pages = || part.pages.iter().zip(scores).map(|(page, score)| (*page, *score));
        let apart: f64 = of_pages().map(|(page, score)| (oracle[page as usize] - score).abs()).sum();
        let (ranking, apart) = (part.ranking.number(), (apart * 1e9).min(1e18) as u64);
        if !part.wish {
            known.kept = of_pages().collect();
        }
        // Others may be a loop behind: who begins anew at once would take the end from them.
        known.begins_at = now + BEGIN_AFTER + node.0 * BEGIN_APART;
        self.trace.record(at, Event::Ranked { node, ranking, pages: count, apart });
        self.trace.sometimes(at, "ranking_ended");
    }

    fn fault_begins(&mut self, at: Micros, number: usize) {
        let fault = &self.plan.faults[number];
        self.trace.record(at, Event::FaultBegan(fault.id));
        match &fault.what {
            Fault::Crash { node } | Fault::WipedDisk { node } => self.crash(at, NodeId(*node)),
            Fault::PowerLoss { nodes } => {
                for node in nodes {
                    self.crash(at, NodeId(*node));
                }
            }
            Fault::Pause { node } => {
                if let Some(paused) = self.nodes.get_mut(&NodeId(*node)).filter(|node| node.up) {
                    paused.paused_until = fault.ends();
                    self.trace.record(at, Event::NodePaused { node: NodeId(*node) });
                }
            }
            _ => {}
        }
    }

    fn fault_ends(&mut self, at: Micros, number: usize) {
        let fault = &self.plan.faults[number];
        self.trace.record(at, Event::FaultEnded(fault.id));
        let restarts = match &fault.what {
            Fault::Crash { node } | Fault::WipedDisk { node } => vec![*node],
            Fault::PowerLoss { nodes } => nodes.clone(),
            Fault::Pause { node } if self.nodes.get(&NodeId(*node)).is_some_and(|node| node.up) => {
                return self.trace.record(at, Event::NodeResumed { node: NodeId(*node) });
            }
            _ => return,
        };
        for node in restarts.into_iter().map(NodeId) {
            if self.nodes.get(&node).is_some_and(|node| !node.up) {
                self.start(at, node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::many::{Many, many};
    use crate::tool::mutants::hunt;

    #[test]
    fn rankings_that_end_are_those_of_one_node_and_every_situation_is_reached() {
        let without = Vec::new();
        let seeds =
            Many { base: 1, count: 100, without, mutant: None, threads: 2, violations_max: 3, all_twice: false };
        let summary = many(&RankingLayer, &seeds, |_, _| ());
        assert!(summary.violations.is_empty(), "{summary}");
        assert_eq!((summary.seeds, summary.unequal.len()), (100, 0), "{summary}");
        assert_eq!(summary.not_reached, Vec::<String>::new());
    }

    #[test]
    fn every_planted_defect_is_caught() {
        for hunt in hunt(&RankingLayer, &RankingLayer.mutants(), &[], 1, 2, |_| ()) {
            let (_, violation) = hunt.caught.as_ref().unwrap_or_else(|| panic!("{hunt}"));
            assert_eq!(violation.invariant, "I23 ranking_is_the_oracles", "{hunt}");
        }
    }
}
