//! The coordinator's part in fetching: batches on their way to who executes them, what we execute ourselves, and how
//! what came of it returns.

use std::collections::BTreeSet;

use super::super::copy::{Kept, RecordCopy};
use super::super::message::{BATCH_MAX, Commission, Errand, Message, Stage};
use super::super::mutant::planted;
use super::super::propagate::{RunId, Ticket};
use super::{Coordinator, Effect, Purpose, Sight};
use crate::batch::{Discovered, Pick};
use crate::crawl::frontier;
use crate::crawl::outcome::Ending;
use crate::crawl::politeness::{Micros, SECOND};
use crate::crawl::retry::{Failure, HostVerdict, RetryRules, verdict};
use crate::id::{BatchId, NodeId, Slot, UrlId};
use crate::wire;

/// A batch that nobody said is being fetched is sent again after this.
const RESEND_AFTER: Micros = SECOND;

/// A page that is fetched and not PROCESSED becomes CRAWLED after this.
const CRAWLED_AFTER: Micros = SECOND;

/// A URL that was handed out and has no outcome.
pub(super) struct Flight {
    pick: Pick,
    /// What it was found with. Its place in the queue may go by a score, which is its own and not its links'.
    priority: u16,
    batch: BatchId,
    /// The frontier knows that the host was asked.
    ended: bool,
    /// How it ended, and when CRAWLED is written if it is not PROCESSED by then; that it was written is `Micros::MAX`.
    crawled: Option<(Ending, Micros)>,
    /// The outcome is being written.
    settling: bool,
    /// Who waits for the outcome to be taken in.
    reporter: Option<NodeId>,
    lost: bool,
}

impl Flight {
    /// Its crawl.
    pub(super) fn crawl(&self) -> &str {
        self.pick.queue.crawl()
    }
}

#[cfg(test)]
impl Flight {
    pub(super) fn pick_for_tests(&self) -> Pick {
        self.pick.clone()
    }
}

/// A batch under way.
pub(super) struct Batch {
    slot: Slot,
    crawl: String,
    /// The host is left alone from here on, on our clock.
    deadline: Micros,
    flights: BTreeSet<u64>,
    /// To whom it was sent; `None` while its URLs are being written.
    to: Option<NodeId>,
    /// The life of that node for which it is meant: its next one must not fetch it again, and has another clock.
    executor_boot: u32,
    until: Micros,
    taken: bool,
    /// When to send it again; among the coordinator's `batch_wakes` unless that is never.
    next_try: Micros,
}

impl Batch {
    /// Its crawl.
    pub(super) fn crawl(&self) -> &str {
        &self.crawl
    }

    /// Whether it was sent to another node than `me`, which may begin to fetch it.
    pub(super) fn is_on_its_way(&self, now: Micros, me: NodeId) -> bool {
        self.to.is_some_and(|to| to != me) && !self.taken && now < self.deadline
    }
}

impl Coordinator {
    pub(super) fn next_batch_wake(&self) -> Option<Micros> {
        self.batch_wakes.first().map(|(at, _)| *at)
    }

    /// Has a batch looked at again at `at`; at `Micros::MAX`, never.
    fn wake_batch(&mut self, id: BatchId, at: Micros) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        self.batch_wakes.remove(&(batch.next_try, id));
        batch.next_try = at;
        if at < Micros::MAX {
            self.batch_wakes.insert((at, id));
        }
    }

    pub(super) fn work_batches(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let due: Vec<BatchId> =
            self.batch_wakes.iter().take_while(|(at, _)| *at <= now).map(|(_, batch)| *batch).collect();
        for id in due {
            self.resend(now, id, out);
        }
        self.write_crawled(now, out);
        if self.outbox.room() > 0 {
            for run in self.runs.waiting_links() {
                self.send_links(now, run);
            }
        }
        if self.runs.next_wake().is_some_and(|at| at <= now) {
            let (reports, given_up) = self.runs.due(now);
            for report in reports {
                let (batch, flight) = (report.run.batch, report.run.flight);
                let message = Message::Report { batch, flight, stage: report.stage, ending: report.ending };
                self.send(now, batch.node, message, out);
            }
            for run in given_up {
                out.push(Effect::Saw(Sight::Sometimes("report_given_up")));
                self.outbox.cancel(Ticket::Run(run));
            }
        }
    }

    // As who hands out.

    /// The frontier hands out; before anything is fetched, it is written down on W disks.
    pub(super) fn picked(&mut self, at: Micros, picks: Vec<(Pick, RecordCopy)>) {
        let deadline = at + self.rules.lease.at_least(self.rules.fetch_timeout);
        let together = |one: &Pick, other: &Pick| {
            one.queue.slot() == other.queue.slot() && one.queue.crawl() == other.queue.crawl()
        };
        let mut groups: Vec<Vec<(Pick, RecordCopy)>> = Vec::new();
        for (pick, copy) in picks {
            match groups.iter_mut().find(|group| together(&group[0].0, &pick) && group.len() < BATCH_MAX) {
                Some(group) => group.push((pick, copy)),
                None => groups.push(vec![(pick, copy)]),
            }
        }
        for picks in groups {
            let (slot, crawl) = (picks[0].0.queue.slot(), picks[0].0.queue.crawl().to_owned());
            self.next_batch += 1;
            let id = BatchId { node: self.rules.me, boot: self.rules.boot, number: self.next_batch };
            let flights = picks.iter().map(|(pick, _)| pick.flight).collect();
            let batch = Batch {
                slot,
                crawl,
                deadline,
                flights,
                to: None,
                executor_boot: 0,
                until: 0,
                taken: false,
                next_try: Micros::MAX,
            };
            self.batches.insert(id, batch);
            let mut copies = Vec::with_capacity(picks.len());
            for (pick, copy) in picks {
                let own = wire::decode::<Kept>(&copy.body.0).map(|kept| kept.record.priority);
                let priority = own.unwrap_or(pick.order.priority);
                copies.push(copy);
                let flight = Flight {
                    priority,
                    batch: id,
                    ended: false,
                    crawled: None,
                    settling: false,
                    reporter: None,
                    lost: false,
                    pick,
                };
                self.flights.insert(flight.pick.flight, flight);
            }
            self.write(slot, copies, Purpose::Selected(id));
        }
    }

    /// A batch is written down: it goes to whoever has the least to do.
    pub(super) fn dispatch(&mut self, now: Micros, id: BatchId, out: &mut Vec<Effect>) {
        let Some(batch) = self.batches.get_mut(&id) else { return };
        let least = self.rules.fetch_timeout / 4;
        let gone = self.registry.is_gone(&batch.crawl);
        if gone {
            out.push(Effect::Saw(Sight::Sometimes("batch_of_a_deleted_site")));
            batch.to = None;
        }
        if gone || now + least > batch.deadline {
            return self.abandon_batch(id, out);
        }
        let (alive, clocks) = (self.membership.alive(), &self.clocks);
        let reachable = |node: NodeId| alive.contains(&node) && clocks.contains_key(&node);
        let choice = self.router.choose(now, reachable, &mut self.rng);
        let urls = self.urls_of(id);
        let batch = self.batches.get_mut(&id).expect("looked up above");
        batch.until = match clocks.get(&choice.to) {
            _ if choice.to == self.rules.me || planted!(self.rules.planted, DeadlineOnWrongClock) => batch.deadline,
            // Their clock showed `clock` before ours showed `at`: so much later on theirs is never later than our deadline.
            Some((clock, at)) => clock + self.rules.lease.at_most(batch.deadline.saturating_sub(*at)),
            None => 0,
        };
        batch.executor_boot = match choice.to {
            me if me == self.rules.me => self.rules.boot,
            other => self.boots.get(&other).copied().unwrap_or(0),
        };
        (batch.to, batch.taken) = (Some(choice.to), false);
        self.wake_batch(id, now + RESEND_AFTER);
        if choice.to != self.rules.me {
            out.push(Effect::Saw(Sight::Sometimes("batch_sent_to_another")));
        }
        out.push(Effect::Saw(Sight::BatchSent { batch: id, to: choice.to, urls, known: choice.known }));
        self.commission(now, id, out);
    }

    fn commission(&mut self, now: Micros, id: BatchId, out: &mut Vec<Effect>) {
        let Some(batch) = self.batches.get(&id) else { return };
        let Some(to) = batch.to else { return };
        let errand = |flight: &u64| {
            let flight = self.flights.get(flight).filter(|flight| !flight.ended)?;
            let (depth, priority) = (flight.pick.order.depth, flight.priority);
            Some(Errand { flight: flight.pick.flight, entry: flight.pick.entry.clone(), depth, priority })
        };
        let errands: Vec<Errand> = batch.flights.iter().filter_map(errand).collect();
        if errands.is_empty() {
            return;
        }
        let executor_boot = batch.executor_boot;
        let (slot, crawl, until) = (batch.slot, batch.crawl.clone(), batch.until);
        self.send(now, to, Message::Run(Commission { batch: id, slot, crawl, executor_boot, until, errands }), out);
    }

    /// Nobody said that the batch is being fetched. It may be: only the same node can be asked again.
    fn resend(&mut self, now: Micros, id: BatchId, out: &mut Vec<Effect>) {
        let Some(batch) = self.batches.get(&id) else { return };
        let to = batch.to;
        // What was deleted meanwhile is not to be begun: its deadline passes, or whoever has it says so.
        if now >= batch.deadline || self.registry.is_gone(&batch.crawl) {
            return self.wake_batch(id, Micros::MAX);
        }
        self.wake_batch(id, now + RESEND_AFTER);
        if planted!(self.rules.planted, ImpatientReroute) && to != Some(self.rules.me) {
            if let Some(to) = to {
                self.router.refused(now, to);
            }
            return self.dispatch(now, id, out);
        }
        self.commission(now, id, out);
    }

    pub(super) fn run_taken(&mut self, id: BatchId, from: NodeId) {
        if let Some(batch) = self.batches.get_mut(&id)
            && batch.to == Some(from)
        {
            batch.taken = true;
            self.wake_batch(id, Micros::MAX);
        }
    }

    /// The batch was refused, and nothing of it is being fetched: another one gets it.
    pub(super) fn busy(&mut self, now: Micros, id: BatchId, from: NodeId, out: &mut Vec<Effect>) {
        self.router.refused(now, from);
        if self.batches.get(&id).is_some_and(|batch| batch.to == Some(from) && !batch.taken) {
            out.push(Effect::Saw(Sight::Sometimes("batch_refused_busy")));
            if from == self.rules.me {
                return self.abandon_batch(id, out);
            }
            self.dispatch(now, id, out);
        }
    }

    /// A batch of which nothing is being fetched goes back.
    pub(super) fn abandon_batch(&mut self, id: BatchId, out: &mut Vec<Effect>) {
        let Some(batch) = self.batches.get(&id) else { return };
        for number in batch.flights.clone() {
            self.lose(number, out);
        }
    }

    /// The frontier's deadline for a flight passed.
    pub(super) fn lost(&mut self, pick: Pick, out: &mut Vec<Effect>) {
        if self.flights.contains_key(&pick.flight) {
            self.lose(pick.flight, out);
        } else {
            out.push(settle_lost(pick));
        }
    }

    fn lose(&mut self, number: u64, out: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&number) else { return };
        flight.lost = true;
        let (pick, batch) = (flight.pick.clone(), flight.batch);
        out.push(Effect::Saw(Sight::BatchLost { batch, urls: vec![url_of(&pick)] }));
        out.push(Effect::Saw(Sight::Sometimes("batch_lost")));
        if planted!(self.rules.planted, LostBatchForgotten) {
            self.land(number);
            return;
        }
        out.push(settle_lost(pick));
    }

    fn urls_of(&self, id: BatchId) -> Vec<UrlId> {
        let flights = self.batches.get(&id).into_iter().flat_map(|batch| &batch.flights);
        flights.filter_map(|flight| self.flights.get(flight)).map(|flight| url_of(&flight.pick)).collect()
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn report(
        &mut self,
        now: Micros,
        from: NodeId,
        batch: BatchId,
        number: u64,
        stage: Stage,
        ending: Ending,
        out: &mut Vec<Effect>,
    ) {
        self.run_taken(batch, from);
        let Some(flight) = self.flights.get_mut(&number).filter(|flight| flight.batch == batch) else {
            // It is over, one way or the other: who reports need not go on.
            out.push(Effect::Saw(Sight::Sometimes("late_report")));
            return self.send(now, from, Message::ReportDone { batch, flight: number, stage }, out);
        };
        if !flight.ended {
            flight.ended = true;
            let (host, retry_after_ms) = host_verdict(&ending);
            out.push(Effect::Frontier(frontier::Input::FetchEnded { flight: number, host, retry_after_ms }));
        }
        match stage {
            Stage::Crawled => {
                if flight.crawled.is_none() {
                    flight.crawled = Some((ending, now + CRAWLED_AFTER));
                    self.crawled_wakes.insert((now + CRAWLED_AFTER, number));
                }
                self.send(now, from, Message::ReportDone { batch, flight: number, stage }, out);
            }
            Stage::Processed => {
                flight.reporter = Some(from);
                if !std::mem::replace(&mut flight.settling, true) {
                    out.push(Effect::Settle { pick: Box::new(flight.pick.clone()), ending, stage });
                }
            }
        }
    }

    /// The request of a flight is over, and its page is not stored yet: the host need not wait for that.
    pub(super) fn host_asked(
        &mut self,
        from: NodeId,
        batch: BatchId,
        number: u64,
        host: HostVerdict,
        retry_after_ms: Option<u64>,
        out: &mut Vec<Effect>,
    ) {
        self.run_taken(batch, from);
        let Some(flight) = self.flights.get_mut(&number).filter(|flight| flight.batch == batch) else { return };
        if !std::mem::replace(&mut flight.ended, true) {
            out.push(Effect::Saw(Sight::Sometimes("host_free_before_its_page_is_stored")));
            out.push(Effect::Frontier(frontier::Input::FetchEnded { flight: number, host, retry_after_ms }));
        }
    }

    /// Pages whose links are not kept yet become CRAWLED. Most are PROCESSED a moment after they were fetched: then one write says both.
    fn write_crawled(&mut self, now: Micros, out: &mut Vec<Effect>) {
        while let Some(&(at, number)) = self.crawled_wakes.first()
            && at <= now
        {
            self.crawled_wakes.remove(&(at, number));
            let Some(flight) = self.flights.get_mut(&number) else { continue };
            if let Some((ending, at)) = &mut flight.crawled
                && !flight.settling
            {
                *at = Micros::MAX;
                let (pick, ending) = (Box::new(flight.pick.clone()), ending.clone());
                out.push(Effect::Settle { pick, ending, stage: Stage::Crawled });
            }
        }
    }

    pub(super) fn settlement(
        &mut self,
        now: Micros,
        flight: u64,
        stage: Stage,
        copy: Option<RecordCopy>,
        page: bool,
        out: &mut Vec<Effect>,
    ) {
        match (stage, copy) {
            (Stage::Crawled, None) => {}
            (Stage::Crawled, Some(copy)) => self.write(copy.slot(), vec![copy], Purpose::Crawled),
            (Stage::Processed, None) => self.settled(now, flight, page, out),
            (Stage::Processed, Some(copy)) => self.write(copy.slot(), vec![copy], Purpose::Settled { flight, page }),
        }
    }

    /// The outcome of a flight is on W disks.
    pub(super) fn settled(&mut self, now: Micros, number: u64, page: bool, out: &mut Vec<Effect>) {
        if let Some(flight) = self.land(number) {
            let batch = flight.batch;
            if flight.lost {
                let urls = vec![url_of(&flight.pick)];
                out.push(Effect::Saw(Sight::BatchPutBack { batch, urls }));
                out.push(Effect::Saw(Sight::Sometimes("batch_put_back")));
            }
            if let Some(to) = flight.reporter {
                let stage = Stage::Processed;
                self.send(now, to, Message::ReportDone { batch, flight: number, stage }, out);
            }
        }
        self.tell(frontier::Input::Settled { flight: number, page }, out);
    }

    /// It could not be written. Who fetched reports again, or the frontier's deadline passes; a flight that is past both goes back to its queue
    /// as it is on our own disk.
    pub(super) fn settle_failed(&mut self, number: u64, out: &mut Vec<Effect>) {
        match self.flights.get_mut(&number) {
            Some(flight) if !flight.lost => flight.settling = false,
            _ => {
                self.land(number);
                self.tell(frontier::Input::Settled { flight: number, page: false }, out);
            }
        }
    }

    fn land(&mut self, number: u64) -> Option<Flight> {
        let flight = self.flights.remove(&number)?;
        if let Some((_, at)) = &flight.crawled {
            self.crawled_wakes.remove(&(*at, number));
        }
        if let Some(batch) = self.batches.get_mut(&flight.batch) {
            batch.flights.remove(&number);
            if batch.flights.is_empty() {
                self.wake_batch(flight.batch, Micros::MAX);
                self.batches.remove(&flight.batch);
            }
        }
        Some(flight)
    }

    // As who executes.

    pub(super) fn run(&mut self, now: Micros, from: NodeId, commission: Commission, out: &mut Vec<Effect>) {
        let Commission { batch, crawl, executor_boot, mut until, errands, .. } = commission;
        if batch.node != from || executor_boot != self.rules.boot {
            return out.push(Effect::Saw(Sight::Ignored { from, why: "not meant for this life" }));
        }
        if self.runs.knows(batch) {
            return self.send(now, from, Message::RunTaken { batch }, out);
        }
        let least = self.rules.fetch_timeout / 8;
        if planted!(self.rules.planted, DeadlineIgnored) {
            until = now + 4 * self.rules.fetch_timeout;
        }
        // Our own batches are taken whatever our load is: nobody else would have them.
        let welcome = (from == self.rules.me || self.router.admits())
            && !self.runs.has_refused(batch)
            && !self.registry.is_gone(&crawl);
        if !welcome || !self.runs.has_room(errands.len()) || now + least > until {
            self.runs.refuse(now, batch, until);
            out.push(Effect::Saw(Sight::BatchRefused { batch }));
            return self.send(now, from, Message::Busy { batch }, out);
        }
        self.runs.take(now, batch, &crawl, errands.clone(), until);
        self.send(now, from, Message::RunTaken { batch }, out);
        for errand in errands {
            let run = RunId { batch, flight: errand.flight };
            if planted!(self.rules.planted, AskedTooSoon) {
                self.asked(now, run, HostVerdict::Healthy, None, out);
            }
            out.push(Effect::Fetch { run, crawl: crawl.clone(), errand, until });
        }
    }

    /// The request of a run is over: whoever handed it out may have the host asked again. The report says the same, later.
    pub(super) fn asked(
        &mut self,
        now: Micros,
        run: RunId,
        host: HostVerdict,
        retry_after_ms: Option<u64>,
        out: &mut Vec<Effect>,
    ) {
        if self.runs.is_under_way(run) {
            let RunId { batch, flight } = run;
            self.send(now, batch.node, Message::Asked { batch, flight, host, retry_after_ms }, out);
        }
    }

    pub(super) fn fetched(
        &mut self,
        now: Micros,
        run: RunId,
        ending: Ending,
        links: Vec<Discovered>,
        out: &mut Vec<Effect>,
    ) {
        if !self.runs.fetched(now, run, ending, links) {
            return out.push(Effect::Saw(Sight::Sometimes("fetch_ended_for_nobody")));
        }
        self.send_links(now, run);
    }

    /// Sends as many links of a run as there is room for; the others go when some of those are kept.
    fn send_links(&mut self, now: Micros, run: RunId) {
        let Some((crawl, parent, links)) = self.runs.take_links(run, self.outbox.room()) else { return };
        let owners = self.owners_of(&links);
        self.outbox.add(now, &crawl, Some(parent), links, Ticket::Run(run), |slot| *owners.get(&slot)?);
    }
}

fn url_of(pick: &Pick) -> UrlId {
    pick.entry.url.id(pick.queue.crawl())
}

fn settle_lost(pick: Pick) -> Effect {
    let ending = Ending::Failed(Failure::Lost, None, None);
    Effect::Settle { pick: Box::new(pick), ending, stage: Stage::Processed }
}

/// What an ending says about the host, and how long that asked to be left alone.
pub fn host_verdict(ending: &Ending) -> (HostVerdict, Option<u64>) {
    match ending {
        Ending::Failed(failure, _, retry_after_ms) => {
            (verdict(*failure, 1, &RetryRules::default()).host, *retry_after_ms)
        }
        _ => (HostVerdict::Healthy, None),
    }
}
