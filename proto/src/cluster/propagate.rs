//! How what was found travels: links to the owners of their domains, and what became of a URL back to who handed it out.
//!
//! **Links** leave in parcels of one destination each, are repeated until their receiver says that they are kept on W disks, and a parcel
//! whose receiver died goes to who acts for it. A page is PROCESSED only when all its parcels are kept: a link is never known to nobody.
//! Bound: `urls_max` URLs under way; a client is refused beyond it, a page's links wait in its run.
//!
//! **Runs** are the fetches that this node executes, for itself or for another. Each has a deadline on our clock by which its host is left alone.
//! It reports twice: its content is stored, and nothing is left to do. Reports are repeated until they are taken in. Before that it says once that
//! the host was asked, so that the host need not wait for our disks; if nobody hears that, the first report says it too.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{DISCOVERED_MAX, Errand, Stage};
use super::mutant::{Planted, planted};
use crate::batch::Discovered;
use crate::crawl::outcome::Ending;
use crate::crawl::politeness::{Micros, SECOND};
use crate::id::{BatchId, NodeId, Slot, UrlId};

/// Times and bounds of what is under way.
#[derive(Clone, Copy, Debug)]
pub struct PropagateRules {
    /// Silence after which something is sent again.
    pub retry_after: Micros,
    /// Discovered URLs under way; beyond it clients are refused.
    pub urls_max: usize,
    /// How long a report is repeated after its run's deadline.
    pub report_for: Micros,
    /// Runs at once.
    pub runs_max: usize,
}

impl Default for PropagateRules {
    fn default() -> Self {
        PropagateRules { retry_after: SECOND, urls_max: 65_536, report_for: 60 * SECOND, runs_max: 4_096 }
    }
}

/// For whom links are sent: who is told when all of them are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ticket {
    /// A client.
    Client(u64),
    /// A run, whose page they were found on.
    Run(RunId),
}

/// Names a run: whose batch, in which life, and which flight of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId {
    /// The batch.
    pub batch: BatchId,
    /// The flight.
    pub flight: u64,
}

/// Links for one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Names it.
    pub number: u64,
    /// A slot by which its destination is found.
    pub slot: Slot,
    /// The crawl.
    pub crawl: String,
    /// The page.
    pub parent: Option<UrlId>,
    /// The links.
    pub urls: Vec<Discovered>,
    ticket: Ticket,
    next_try: Micros,
}

/// Links on their way.
pub struct Outbox {
    rules: PropagateRules,
    planted: Planted,
    next: u64,
    parcels: BTreeMap<u64, Parcel>,
    wakes: BTreeSet<(Micros, u64)>,
    open: BTreeMap<Ticket, usize>,
    urls: usize,
}

impl Outbox {
    /// Nothing is on its way.
    pub fn new(rules: PropagateRules, planted: Planted) -> Outbox {
        Outbox {
            rules,
            planted,
            next: 0,
            parcels: BTreeMap::new(),
            wakes: BTreeSet::new(),
            open: BTreeMap::new(),
            urls: 0,
        }
    }

    /// How many more there is room for.
    pub fn room(&self) -> usize {
        if planted!(self.planted, UnboundedOutbox) { usize::MAX } else { self.rules.urls_max.saturating_sub(self.urls) }
    }

    /// Whether a client may hand `count` more in: its URLs are taken together, so one that brings very many has to find nothing else here.
    pub fn has_room(&self, count: usize) -> bool {
        self.urls == 0 || count <= self.room()
    }

    /// Takes links in, grouped by who acts for their slots; they are due at once. Says whether there was anything to send.
    pub fn add(
        &mut self,
        now: Micros,
        crawl: &str,
        parent: Option<UrlId>,
        urls: Vec<Discovered>,
        ticket: Ticket,
        acting: impl Fn(Slot) -> Option<NodeId>,
    ) -> bool {
        let mut groups: BTreeMap<Option<NodeId>, Vec<(Slot, Discovered)>> = BTreeMap::new();
        for found in urls {
            let slot = Slot::of_domain(found.url.domain());
            groups.entry(acting(slot)).or_default().push((slot, found));
        }
        for group in groups.into_values() {
            for chunk in group.chunks(DISCOVERED_MAX) {
                self.next += 1;
                let number = self.next;
                let urls: Vec<Discovered> = chunk.iter().map(|(_, found)| found.clone()).collect();
                self.urls += urls.len();
                let (slot, crawl) = (chunk[0].0, crawl.to_owned());
                self.parcels.insert(number, Parcel { number, slot, crawl, parent, urls, ticket, next_try: now });
                self.wakes.insert((now, number));
                *self.open.entry(ticket).or_default() += 1;
            }
        }
        self.open.contains_key(&ticket)
    }

    /// What is to be sent now, for the first time or again.
    pub fn due(&mut self, now: Micros) -> Vec<Parcel> {
        let mut due = Vec::new();
        while let Some(&(at, number)) = self.wakes.first()
            && at <= now
        {
            self.wakes.remove(&(at, number));
            let parcel = self.parcels.get_mut(&number).expect("every wake has its parcel");
            parcel.next_try = now + self.rules.retry_after;
            if !planted!(self.planted, LinksSentOnce) {
                self.wakes.insert((parcel.next_try, number));
            }
            due.push(parcel.clone());
        }
        due
    }

    /// A parcel is kept. Returns its ticket when that was the last one.
    pub fn done(&mut self, number: u64) -> Option<Ticket> {
        let parcel = self.parcels.remove(&number)?;
        self.wakes.remove(&(parcel.next_try, number));
        self.urls -= parcel.urls.len();
        self.close(parcel.ticket)
    }

    fn close(&mut self, ticket: Ticket) -> Option<Ticket> {
        let open = self.open.get_mut(&ticket)?;
        *open -= 1;
        if *open > 0 {
            return None;
        }
        self.open.remove(&ticket);
        Some(ticket)
    }

    /// Nobody waits for this ticket any more.
    pub fn cancel(&mut self, ticket: Ticket) {
        let numbers: Vec<u64> =
            self.parcels.values().filter(|parcel| parcel.ticket == ticket).map(|parcel| parcel.number).collect();
        for number in numbers {
            self.done(number);
        }
    }

    /// URLs under way.
    pub fn len(&self) -> usize {
        self.urls
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.urls == 0
    }

    /// The bound.
    pub fn bound(&self) -> usize {
        self.rules.urls_max
    }

    /// When to look again.
    pub fn next_wake(&self) -> Option<Micros> {
        self.wakes.first().map(|(at, _)| *at)
    }
}

/// A fetch that this node executes.
#[derive(Clone, Debug)]
pub struct Run {
    /// The crawl.
    pub crawl: String,
    /// What to fetch.
    pub errand: Errand,
    /// When it must be over, on our clock.
    pub until: Micros,
    /// What came of it; `None` while the host is being asked.
    pub ending: Option<Ending>,
    stage: Stage,
    /// Links that wait for room in the outbox.
    links: Vec<Discovered>,
    next_try: Micros,
}

/// A report to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Of what.
    pub run: RunId,
    /// How far it has come.
    pub stage: Stage,
    /// How the fetch ended.
    pub ending: Ending,
}

/// Everything this node executes.
pub struct Runs {
    rules: PropagateRules,
    planted: Planted,
    runs: BTreeMap<RunId, Run>,
    wakes: BTreeSet<(Micros, RunId)>,
    /// Runs whose links wait for room in the outbox.
    waiting: BTreeSet<RunId>,
    /// Batches that came once and may come again, until their deadline.
    taken: Answered,
    /// Batches that were refused: somebody else has them now, so they stay refused when they come again.
    refused: Answered,
}

/// Batches that were answered, until nobody can send them any more.
#[derive(Default)]
struct Answered {
    batches: BTreeSet<BatchId>,
    ends: BTreeSet<(Micros, BatchId)>,
}

impl Answered {
    fn has(&self, batch: BatchId) -> bool {
        self.batches.contains(&batch)
    }

    fn add(&mut self, now: Micros, batch: BatchId, until: Micros) {
        while let Some(&(end, old)) = self.ends.first()
            && now > end + SECOND
        {
            self.ends.remove(&(end, old));
            self.batches.remove(&old);
        }
        if self.batches.insert(batch) {
            self.ends.insert((until, batch));
        }
    }
}

impl Runs {
    /// Nothing is executed.
    pub fn new(rules: PropagateRules, planted: Planted) -> Runs {
        Runs {
            rules,
            planted,
            runs: BTreeMap::new(),
            wakes: BTreeSet::new(),
            waiting: BTreeSet::new(),
            taken: Answered::default(),
            refused: Answered::default(),
        }
    }

    /// Whether this batch was refused before.
    pub fn has_refused(&self, batch: BatchId) -> bool {
        self.refused.has(batch)
    }

    /// Refuses a batch, for good.
    pub fn refuse(&mut self, now: Micros, batch: BatchId, until: Micros) {
        self.refused.add(now, batch, until);
    }

    /// Whether this batch came before.
    pub fn knows(&self, batch: BatchId) -> bool {
        self.taken.has(batch)
    }

    /// Whether there is room for `count` more.
    pub fn has_room(&self, count: usize) -> bool {
        self.runs.len() + count <= self.rules.runs_max
    }

    /// Takes a batch. Its fetches are to start now.
    pub fn take(&mut self, now: Micros, batch: BatchId, crawl: &str, errands: Vec<Errand>, until: Micros) {
        self.taken.add(now, batch, until);
        for errand in errands {
            let run = RunId { batch, flight: errand.flight };
            let next_try = Micros::MAX;
            let crawl = crawl.to_owned();
            let fresh = Run { crawl, errand, until, ending: None, stage: Stage::Crawled, links: Vec::new(), next_try };
            self.runs.insert(run, fresh);
        }
    }

    /// Whether nothing is known yet of what came of a run.
    pub fn is_under_way(&self, id: RunId) -> bool {
        self.runs.get(&id).is_some_and(|run| run.ending.is_none())
    }

    /// A fetch ended with these links. Says whether it was one of ours.
    pub fn fetched(&mut self, now: Micros, id: RunId, ending: Ending, links: Vec<Discovered>) -> bool {
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.ending.is_none()) else { return false };
        run.stage = if links.is_empty() { Stage::Processed } else { Stage::Crawled };
        if planted!(self.planted, ProcessedBeforeLinks) {
            run.stage = Stage::Processed;
        }
        if !links.is_empty() {
            self.waiting.insert(id);
        }
        (run.ending, run.links, run.next_try) = (Some(ending), links, now);
        self.wakes.insert((now, id));
        true
    }

    /// The next links of a run, each once and at most `most`, and the page that names them: they go to the outbox.
    pub fn take_links(&mut self, id: RunId, most: usize) -> Option<(String, UrlId, Vec<Discovered>)> {
        let run = self.runs.get_mut(&id)?;
        let count = run.links.len().min(most);
        if count == 0 {
            return None;
        }
        let parent = run.errand.entry.url.id(&run.crawl);
        let taken = run.links.drain(..count).collect();
        if run.links.is_empty() {
            self.waiting.remove(&id);
        }
        Some((run.crawl.clone(), parent, taken))
    }

    /// Runs whose links wait for room.
    pub fn waiting_links(&self) -> Vec<RunId> {
        self.waiting.iter().copied().collect()
    }

    /// All links of a run that were taken are kept. If there are no more, nothing is left to do but to say so.
    pub fn links_kept(&mut self, now: Micros, id: RunId) {
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.links.is_empty()) else { return };
        self.wakes.remove(&(run.next_try, id));
        (run.stage, run.next_try) = (Stage::Processed, now);
        self.wakes.insert((now, id));
    }

    /// What is to be reported now, and the runs whose sender heard nothing for so long that it has given them up.
    pub fn due(&mut self, now: Micros) -> (Vec<Report>, Vec<RunId>) {
        let (mut reports, mut given_up) = (Vec::new(), Vec::new());
        while let Some(&(at, id)) = self.wakes.first()
            && at <= now
        {
            self.wakes.remove(&(at, id));
            let run = self.runs.get_mut(&id).expect("every wake has its run");
            if now >= run.until + self.rules.report_for {
                self.runs.remove(&id);
                self.waiting.remove(&id);
                given_up.push(id);
                continue;
            }
            run.next_try = now + self.rules.retry_after;
            self.wakes.insert((run.next_try, id));
            if let Some(ending) = run.ending.clone() {
                reports.push(Report { run: id, stage: run.stage, ending });
            }
        }
        (reports, given_up)
    }

    /// A report was taken in. The last one ends the run.
    pub fn reported(&mut self, id: RunId, stage: Stage) {
        let Some(run) = self.runs.get_mut(&id) else { return };
        if stage < run.stage || run.ending.is_none() {
            return;
        }
        self.wakes.remove(&(run.next_try, id));
        if run.stage == Stage::Processed {
            self.runs.remove(&id);
            self.waiting.remove(&id);
        } else {
            // Goes on when its links are kept, and is given up at the very end otherwise.
            run.next_try = run.until + self.rules.report_for;
            self.wakes.insert((run.next_try, id));
        }
    }

    /// Fetches under way.
    pub fn fetching(&self) -> usize {
        self.runs.values().filter(|run| run.ending.is_none()).count()
    }

    /// Runs under way.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// When to look again.
    pub fn next_wake(&self) -> Option<Micros> {
        self.wakes.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Entry, EntryKind};
    use crate::crawl::retry::Failure;
    use crate::record::Progress;
    use crate::url::{CanonicalUrl, UrlRules};

    fn found(text: &str) -> Discovered {
        let url = CanonicalUrl::parse(text, &UrlRules::default()).unwrap();
        Discovered { url, kind: EntryKind::Page, depth: 1, priority: 100, redirects: 0 }
    }

    fn links(count: usize) -> Vec<Discovered> {
        (0..count).map(|number| found(&format!("http://h{number}.example/"))).collect()
    }

    fn acting(slot: Slot) -> Option<NodeId> {
        Some(NodeId(u64::from(slot.0 % 3)))
    }

    fn run(flight: u64) -> RunId {
        RunId { batch: BatchId { node: NodeId(1), boot: 1, number: 1 }, flight }
    }

    fn errand(flight: u64) -> Errand {
        let url = found("http://a.example/").url;
        let progress = Progress::new(NodeId(1));
        Errand {
            flight,
            entry: Entry { url, kind: EntryKind::Page, progress, redirects: 0, validators: None },
            depth: 0,
            priority: 100,
        }
    }

    #[test]
    fn a_ticket_is_done_when_every_parcel_is_kept() {
        let mut outbox = Outbox::new(PropagateRules::default(), Planted::default());
        assert!(outbox.add(0, "DEFAULT", None, links(20), Ticket::Client(5), acting));
        let due = outbox.due(0);
        assert_eq!(due.len(), 3, "one for each destination");
        assert_eq!(due.iter().map(|parcel| parcel.urls.len()).sum::<usize>(), 20);
        assert_eq!(outbox.done(due[0].number), None);
        assert_eq!(outbox.done(due[0].number), None, "twice is once");
        assert_eq!(outbox.due(SECOND).len(), 2, "the silent ones again");
        assert_eq!(outbox.done(due[1].number), None);
        assert_eq!(outbox.done(due[2].number), Some(Ticket::Client(5)));
        assert!(outbox.is_empty() && outbox.next_wake().is_none());
    }

    #[test]
    fn the_outbox_has_a_bound() {
        let rules = PropagateRules { urls_max: 10, ..PropagateRules::default() };
        let mut outbox = Outbox::new(rules, Planted::default());
        outbox.add(0, "DEFAULT", None, links(8), Ticket::Client(1), acting);
        assert!(outbox.has_room(2) && !outbox.has_room(3));
        assert_eq!(outbox.room(), 2);
        outbox.cancel(Ticket::Client(1));
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_page_is_processed_only_when_its_links_are_kept() {
        let mut runs = Runs::new(PropagateRules::default(), Planted::default());
        runs.take(0, run(1).batch, "DEFAULT", vec![errand(1)], 10 * SECOND);
        assert!(runs.knows(run(1).batch));
        let ending = Ending::NotModified { at: 1, crawling_ms: 1 };
        assert!(runs.fetched(SECOND, run(1), ending.clone(), links(2)));
        assert!(!runs.fetched(SECOND, run(1), ending, Vec::new()), "only once");
        let (reports, _) = runs.due(SECOND);
        assert_eq!(reports[0].stage, Stage::Crawled);
        runs.reported(run(1), Stage::Crawled);
        assert!(runs.due(5 * SECOND).0.is_empty());
        assert_eq!(runs.take_links(run(1), 1).unwrap().2.len(), 1);
        runs.links_kept(5 * SECOND, run(1));
        assert!(runs.due(5 * SECOND).0.is_empty(), "one of two is not all");
        assert_eq!(runs.waiting_links(), [run(1)]);
        assert_eq!(runs.take_links(run(1), 9).unwrap().2.len(), 1);
        assert!(runs.take_links(run(1), 9).is_none() && runs.waiting_links().is_empty());
        runs.links_kept(6 * SECOND, run(1));
        assert_eq!(runs.due(6 * SECOND).0[0].stage, Stage::Processed);
        assert_eq!(runs.due(7 * SECOND).0.len(), 1, "until it is taken in");
        runs.reported(run(1), Stage::Processed);
        assert!(runs.is_empty() && runs.next_wake().is_none());
    }

    #[test]
    fn what_nobody_takes_in_is_given_up() {
        let mut runs = Runs::new(PropagateRules::default(), Planted::default());
        runs.take(0, run(1).batch, "DEFAULT", vec![errand(1)], 10 * SECOND);
        runs.fetched(SECOND, run(1), Ending::Failed(Failure::Timeout, None, None), Vec::new());
        let mut given_up = Vec::new();
        while let Some(now) = runs.next_wake() {
            given_up.extend(runs.due(now).1);
        }
        assert_eq!(given_up, [run(1)]);
    }
}
