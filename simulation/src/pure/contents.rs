//! The contents of pages in the pure layer: the core that brings each page to a second disk, and what it says, over the world's network and
//! disks. A push is one message with its pages and one answer; the program's streams are the same with more steps.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proto::batch::Discovered;
use proto::cluster::contents::{ContentKey, ContentRules, Contents, Effect, Holding, Input};
use proto::cluster::coordinator;
use proto::cluster::message::Errand;
use proto::cluster::mutant::Planted;
use proto::cluster::propagate::RunId;
use proto::crawl::outcome::Ending;
use proto::crawl::politeness::Micros;
use proto::id::NodeId;
use proto::key::UrlKey;

use super::storage::{Pages, PagesWrite, What};
use super::{Happening, World};
use crate::world::plan::SECOND;
use crate::world::trace::Event;

/// A push without an answer has failed after this.
const PUSH_PATIENCE: Micros = 4 * SECOND;
/// Bytes of the records of a page.
const PAGE_BYTES: u32 = 1_000;

/// What copiers say to each other.
pub(super) enum Saying {
    /// These pages, which are on this disk too, are to be kept.
    Push { push: u64, from: Holding, keys: Vec<ContentKey> },
    /// They are, in this folder, or not.
    Answer { push: u64, folder: u64, kept: bool },
}

/// A fetch whose page is kept.
pub(super) struct Fetched {
    pub(super) run: RunId,
    pub(super) ending: Ending,
    pub(super) links: Vec<Discovered>,
}

/// The core and what is under way.
pub(super) struct Copier {
    core: Contents,
    /// Pages that wait for their acknowledgement.
    waiting: BTreeMap<u64, (ContentKey, Fetched)>,
    pushes: BTreeMap<u64, (NodeId, Vec<ContentKey>)>,
    /// A disk that is to be taken for lost, when ours takes it in again.
    take_back_again: Option<Holding>,
    /// The node goes when its pages are on others.
    pub(super) leaves: bool,
}

/// Times and bounds of a small world whose faults last for seconds.
pub(crate) fn content_rules(planted: Planted) -> ContentRules {
    ContentRules {
        window_max: 8,
        pushes_max: 2,
        patience: 9 * SECOND, // a little less than a flight has to settle
        rest_min: SECOND / 2,
        rest_max: 4 * SECOND,
        gone_after: 3 * SECOND,
        greet_every: 4 * SECOND,
        list_every: SECOND,
        planted,
    }
}

impl Copier {
    pub(super) fn new(id: NodeId, pages: &Pages, planted: Planted) -> Copier {
        Copier {
            core: Contents::new(id, content_rules(planted), pages.standing()),
            waiting: BTreeMap::new(),
            pushes: BTreeMap::new(),
            take_back_again: None,
            leaves: false,
        }
    }
}

/// The pages that a write brings to the disk of a node.
pub(crate) fn page_events(node: NodeId, write: &PagesWrite) -> impl Iterator<Item = Event> {
    let keys = match write {
        PagesWrite::Fetched(_, key) => std::slice::from_ref(key),
        PagesWrite::Came(_, _, keys) => keys,
        _ => &[],
    };
    keys.iter().map(move |key| Event::PageDurable { node, url: key.url.id(), round: key.round })
}

impl World<'_> {
    /// A page was fetched: it is written down, and acknowledged when it has its second copy.
    pub(super) fn keep_page(
        &mut self,
        at: Micros,
        id: NodeId,
        (fetch, crawl): (u64, &str),
        errand: &Errand,
        fetched: Fetched,
    ) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(machine) = &mut node.machine else { return };
        let entry = &errand.entry;
        let mut key = ContentKey { url: UrlKey::new(crawl, &entry.url), round: entry.progress.round, other: None };
        let known = machine.copier.waiting.values().any(|(known, _)| *known == key);
        if known || node.disk.durable().pages.here.contains(&key) {
            key.other = Some(u128::from(fetch).to_be_bytes());
        }
        machine.copier.waiting.insert(fetch, (key.clone(), fetched));
        if !self.write(at, id, What::Pages(PagesWrite::Fetched(fetch, key))) {
            self.forget_page(at, id, fetch);
        }
    }

    /// Nobody hears of a page that could not be kept, or has no second copy: its flight lapses.
    fn forget_page(&mut self, at: Micros, id: NodeId, fetch: u64) {
        if let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) {
            machine.copier.waiting.remove(&fetch);
            self.trace.sometimes(at, "page_lapsed");
        }
    }

    /// Tells the trace what pages are on the disk of a node now.
    pub(super) fn record_pages(&mut self, at: Micros, id: NodeId, write: &PagesWrite) {
        for event in page_events(id, write) {
            self.trace.record(at, event);
        }
    }

    /// A write is on disk, or never will be.
    pub(super) fn pages_covered(&mut self, at: Micros, id: NodeId, write: PagesWrite, durable: bool) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let pages = &node.disk.durable().pages;
        let (folder, standing) = (pages.folder, pages.standing());
        let Some(machine) = &mut node.machine else { return };
        match write {
            PagesWrite::Folder(_) => {}
            PagesWrite::Fetched(ticket, _) if !durable => self.forget_page(at, id, ticket),
            PagesWrite::Fetched(ticket, key) => {
                self.step_copier(at, id, Input::Kept { ticket, key, bytes: PAGE_BYTES });
            }
            PagesWrite::Came(push, from, _) => {
                self.say(at, id, from.node, Saying::Answer { push, folder, kept: durable });
                self.step_copier(at, id, Input::Standing(standing));
            }
            PagesWrite::Copied(_, keys) => self.step_copier(at, id, Input::Marked { keys, standing }),
            PagesWrite::TakenBack(holding) if !durable => machine.copier.take_back_again = Some(holding),
            PagesWrite::TakenBack(_) => self.step_copier(at, id, Input::TakenBack { done: true, standing }),
        }
    }

    fn step_copier(&mut self, at: Micros, id: NodeId, input: Input) {
        let mut effects = Vec::new();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let now = node.clock.local(at);
        let Some(machine) = &mut node.machine else { return };
        machine.copier.core.step(now, input, &mut effects);
        for effect in effects {
            self.perform_copier(at, id, effect);
        }
    }

    fn perform_copier(&mut self, at: Micros, id: NodeId, effect: Effect) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let pages = &node.disk.durable().pages;
        let Some(machine) = &mut node.machine else { return };
        match effect {
            Effect::List { after, limit } => {
                let (pages, next) = pages.listed(after.as_ref(), limit, PAGE_BYTES);
                self.step_copier(at, id, Input::Listed { pages, next });
            }
            Effect::Push { to, keys } => {
                self.pushes += 1;
                let (push, life, folder) = (self.pushes, node.life, pages.folder);
                machine.copier.pushes.insert(push, (to, keys.clone()));
                let from = Holding { node: id, folder };
                self.say(at, id, to, Saying::Push { push, from, keys });
                self.at(at + PUSH_PATIENCE, Happening::PushEnds { node: id, life, push });
            }
            Effect::Mark { keys, holding } => {
                let standing = pages.standing();
                if !self.write(at, id, What::Pages(PagesWrite::Copied(holding, keys.clone()))) {
                    self.step_copier(at, id, Input::Marked { keys, standing });
                }
            }
            Effect::TakeBack { holding } => {
                self.trace.sometimes(at, "pages_taken_back");
                self.take_back(at, id, holding);
            }
            Effect::Release { ticket } => {
                let Some((key, fetched)) = machine.copier.waiting.remove(&ticket) else { return };
                let Fetched { run, ending, links } = fetched;
                self.trace.record(at, Event::PageAcknowledged { node: id, url: key.url.id(), round: key.round });
                self.step(at, id, coordinator::Input::Fetched { run, ending, links });
            }
            Effect::Lapse { ticket } => self.forget_page(at, id, ticket),
        }
    }

    fn take_back(&mut self, at: Micros, id: NodeId, holding: Holding) {
        let written = self.write(at, id, What::Pages(PagesWrite::TakenBack(holding)));
        if let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) {
            machine.copier.take_back_again = (!written).then_some(holding);
        }
    }

    // Between nodes.

    fn say(&mut self, at: Micros, from: NodeId, to: NodeId, saying: Saying) {
        let sent = self.network.send(at, from, to);
        let saying = Rc::new(saying);
        for delivery in sent.deliveries.into_iter().flatten() {
            self.at(delivery.at, Happening::PagesArrive { delivery, saying: Rc::clone(&saying) });
        }
    }

    pub(super) fn pages_arrive(&mut self, at: Micros, sender: NodeId, id: NodeId, saying: &Saying) {
        let (push, count) = match saying {
            Saying::Push { push, keys, .. } => (*push, keys.len()),
            Saying::Answer { push, kept, .. } => (*push, usize::from(*kept)),
        };
        self.trace.note(at, id, &(sender, push, count), || format!("from {}: push {push} of pages, {count}", sender.0));
        match saying {
            Saying::Push { push, from, keys } => {
                let Some(folder) = self.nodes.get(&id).map(|node| node.disk.durable().pages.folder) else { return };
                let push = *push;
                if keys.is_empty() {
                    return self.say(at, id, sender, Saying::Answer { push, folder, kept: true });
                }
                if !self.write(at, id, What::Pages(PagesWrite::Came(push, *from, keys.clone()))) {
                    self.say(at, id, sender, Saying::Answer { push, folder, kept: false });
                }
            }
            Saying::Answer { push, folder, kept } => self.push_ends(at, id, *push, Some((*folder, *kept))),
        }
    }

    /// A push was answered, or nothing came.
    pub(super) fn push_ends(&mut self, at: Micros, id: NodeId, push: u64, answer: Option<(u64, bool)>) {
        let Some(machine) = self.nodes.get_mut(&id).and_then(|node| node.machine.as_mut()) else { return };
        let Some((to, keys)) = machine.copier.pushes.remove(&push) else { return };
        let (folder, kept) = (answer.map(|(folder, _)| folder), answer.is_some_and(|(_, kept)| kept));
        if kept && !keys.is_empty() {
            self.trace.sometimes(at, "pages_copied");
        }
        let copied = if kept { keys } else { Vec::new() };
        self.step_copier(at, id, Input::Pushed { to, folder, copied, unreadable: Vec::new(), whole: kept });
    }

    // Looking after itself.

    /// Who is there, and what the disk says, looked at now and then as the program does.
    pub(super) fn look_after_pages(&mut self, at: Micros, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let standing = node.disk.durable().pages.standing();
        let Some(machine) = &mut node.machine else { return };
        let again = machine.copier.take_back_again.take();
        let coordinator = &machine.coordinator;
        let members: BTreeSet<NodeId> = coordinator.view().keys().copied().collect();
        let (ring, alive, size) = (coordinator.ring_now(), coordinator.alive().clone(), coordinator.size());
        self.step_copier(at, id, Input::Standing(standing));
        self.step_copier(at, id, Input::View { ring, members, alive, size });
        if let Some(holding) = again {
            self.take_back(at, id, holding);
        }
        self.leave_if_dispensable(at, id);
    }

    /// A node that left the ring goes when every page of its is on another.
    pub(super) fn leave_if_dispensable(&mut self, at: Micros, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(machine) = &node.machine else { return };
        if machine.copier.leaves && machine.copier.core.is_dispensable() {
            node.left = true;
            self.crash(at, id);
        }
    }
}
