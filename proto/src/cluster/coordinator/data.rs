//! The coordinator's part in keeping records: writes to replicas, our own disk, comparing and handoff, discovered URLs.

use std::collections::{BTreeMap, BTreeSet};

use super::super::copy::RecordCopy;
use super::super::message::{COPIES_BYTES_MAX, COPIES_MAX, Message, Op, PUT_MANY_SINCE};
use super::super::mutant::planted;
use super::super::propagate::{Parcel, Ticket};
use super::super::repair::Changed;
use super::super::replicate::{Order, Sending};
use super::{Admission, Coordinator, Effect, Purpose, Sight, Store, StoreFor};
use crate::batch::Discovered;
use crate::crawl::politeness::Micros;
use crate::id::{NodeId, Slot, UrlId};

/// Records of one slot that are to be written.
pub(super) struct Gathered {
    slot: Slot,
    copies: Vec<RecordCopy>,
    purpose: Purpose,
    /// Our disk has them.
    is_here: bool,
}

/// What one letter has, and what for.
type Together = (Vec<RecordCopy>, Vec<Purpose>);

/// What fits into one letter each.
fn together(gathered: Vec<Gathered>, slots_together: bool) -> Vec<Together> {
    let mut letters: Vec<Together> = Vec::new();
    let mut bytes = 0;
    for Gathered { slot, copies, purpose, .. } in gathered {
        let size = copies.iter().map(RecordCopy::bytes).sum::<usize>();
        let fits = |all: &[RecordCopy]| {
            let may = slots_together || all.iter().all(|copy| copy.slot() == slot);
            may && all.len() + copies.len() <= COPIES_MAX && bytes + size <= COPIES_BYTES_MAX
        };
        match letters.last_mut() {
            Some((all, purposes)) if fits(all.as_slice()) => {
                bytes += size;
                all.extend(copies);
                purposes.push(purpose);
            }
            _ => {
                bytes = size;
                letters.push((copies, vec![purpose]));
            }
        }
    }
    letters
}

/// Admissions of discovered URLs at once; more are ignored, and come again.
const ADMISSIONS_MAX: usize = 1_024;

impl Coordinator {
    pub(super) fn work_data(&mut self, now: Micros, out: &mut Vec<Effect>) {
        if self.writes.next_wake().is_some_and(|at| at <= now) {
            let (ring, alive, replicas) = (&self.ring, self.membership.alive(), self.rules.writes.replicas);
            let acting = |slot| ring.acting(slot, replicas, alive).collect::<BTreeSet<NodeId>>();
            let (sendings, failed) = self.writes.due(now, acting);
            for sending in sendings {
                out.push(Effect::Saw(Sight::Sometimes("write_repeated")));
                self.send_write(now, sending, out);
            }
            failed.into_iter().for_each(|purpose| self.write_failed(purpose, out));
        }
        self.offer_digests(now, out);
        self.work_transfers(now, out);
        self.serve_pulled(now, out);
        for parcel in self.outbox.due(now) {
            self.send_parcel(now, parcel, out);
        }
    }

    // Writes.

    /// Has records of a slot written. They go out at the end of this step, with what else is written then to the same nodes.
    pub(super) fn write(&mut self, slot: Slot, copies: Vec<RecordCopy>, purpose: Purpose) {
        self.gathered.push(Gathered { slot, copies, purpose, is_here: false });
    }

    /// The same, of records that our disk has already.
    pub(super) fn write_on(&mut self, slot: Slot, copies: Vec<RecordCopy>, purpose: Purpose) {
        self.gathered.push(Gathered { slot, copies, purpose, is_here: true });
    }

    /// Begins the writes that were gathered.
    pub(super) fn begin_writes(&mut self, now: Micros, out: &mut Vec<Effect>) {
        if self.gathered.is_empty() {
            return;
        }
        if !self.enrolled {
            // Our own disk would count as one of W, and nobody would ask us for it.
            let gathered = std::mem::take(&mut self.gathered);
            return gathered.into_iter().for_each(|one| self.write_failed(one.purpose, out));
        }
        let (me, members) = (self.rules.me, self.members());
        let mut groups: BTreeMap<(BTreeSet<NodeId>, bool, bool), Vec<Gathered>> = BTreeMap::new();
        for one in std::mem::take(&mut self.gathered) {
            let decided_here = one.is_here || matches!(one.purpose, Purpose::Selected(_) | Purpose::Settled { .. });
            groups.entry((self.keepers(one.slot), decided_here, one.is_here)).or_default().push(one);
        }
        for ((keepers, decided_here, is_here), gathered) in groups {
            for (copies, purposes) in together(gathered, self.spoken >= PUT_MANY_SINCE) {
                let must = decided_here.then_some(me);
                let order = Order { copies, targets: keepers.clone(), must, purposes };
                match self.writes.begin(now, order, members) {
                    Ok(mut sending) => {
                        let number = sending.number;
                        sending.to.retain(|node| !is_here || *node != me);
                        self.send_write(now, sending, out);
                        if is_here {
                            self.put_done(now, number, me, out);
                        }
                    }
                    Err(purposes) => purposes.into_iter().for_each(|purpose| self.write_failed(purpose, out)),
                }
            }
        }
    }

    pub(super) fn send_write(&mut self, now: Micros, sending: Sending, out: &mut Vec<Effect>) {
        let op = Op { boot: self.rules.boot, number: sending.number };
        for to in sending.to {
            let copies = sending.copies.to_vec();
            if to == self.rules.me {
                self.store(copies, StoreFor::Write(sending.number), out);
            } else if copies.windows(2).all(|two| two[0].slot() == two[1].slot()) {
                self.send(now, to, Message::Put { op, copies }, out);
            } else {
                self.send(now, to, Message::PutMany { op, copies }, out);
            }
        }
    }

    pub(super) fn put_done(&mut self, now: Micros, number: u64, by: NodeId, out: &mut Vec<Effect>) {
        for purpose in self.writes.acknowledged(number, by).into_iter().flatten() {
            self.write_done(now, purpose, out);
        }
    }

    fn write_done(&mut self, now: Micros, purpose: Purpose, out: &mut Vec<Effect>) {
        match purpose {
            Purpose::Selected(batch) => self.dispatch(now, batch, out),
            Purpose::Crawled => {}
            Purpose::Settled { flight, page } => self.settled(now, flight, page, out),
            Purpose::Kept { admit, slot, urls } => {
                urls.iter().for_each(|url| self.acknowledged.insert(*url));
                out.push(Effect::Saw(Sight::Acknowledged { slot, urls }));
                self.kept(now, admit, out);
            }
            Purpose::Client { ticket } => self.client_kept(ticket, out),
        }
    }

    fn write_failed(&mut self, purpose: Purpose, out: &mut Vec<Effect>) {
        out.push(Effect::Saw(Sight::Sometimes("write_failed")));
        match purpose {
            Purpose::Selected(batch) => self.abandon_batch(batch, out),
            Purpose::Crawled => {}
            Purpose::Settled { flight, .. } => self.settle_failed(flight, out),
            // Nothing is said: who discovered them sends them again.
            Purpose::Kept { admit, .. } => drop(self.admissions.remove(&admit)),
            Purpose::Client { ticket } => self.client_failed(ticket, out),
        }
    }

    // Our own disk.

    /// Has records stored; `None` if there are too many writes under way, or the slot is being dropped.
    pub(super) fn store(&mut self, copies: Vec<RecordCopy>, what: StoreFor, out: &mut Vec<Effect>) -> Option<u64> {
        let slots: BTreeSet<Slot> = copies.iter().map(RecordCopy::slot).collect();
        let own = matches!(what, StoreFor::Write(_));
        if (!own && self.stores.len() >= self.rules.stores_max) || slots.iter().any(|slot| self.dropping.contains(slot))
        {
            return None;
        }
        self.next_store += 1;
        for slot in &slots {
            *self.storing.entry(*slot).or_default() += 1;
        }
        self.stores.insert(self.next_store, Store { slots, what });
        out.push(Effect::Store { op: self.next_store, copies });
        Some(self.next_store)
    }

    fn end_store(&mut self, now: Micros, op: u64, durable: bool) -> Option<StoreFor> {
        let store = self.stores.remove(&op)?;
        for slot in &store.slots {
            if let Some(count) = self.storing.get_mut(slot) {
                *count -= 1;
                if *count == 0 {
                    self.storing.remove(slot);
                }
            }
        }
        self.transfers.stored(now, op, durable);
        Some(store.what)
    }

    pub(super) fn stored(&mut self, now: Micros, op: u64, changed: Vec<Changed>, out: &mut Vec<Effect>) {
        let repaired = changed.iter().any(|change| change.before != change.after);
        for change in changed {
            self.repair.digests.change(change);
        }
        match self.end_store(now, op, true) {
            Some(StoreFor::Write(number)) => self.put_done(now, number, self.rules.me, out),
            Some(StoreFor::Put { from, op }) if !planted!(self.rules.planted, AcknowledgeBeforeFsync) => {
                self.send(now, from, Message::PutDone { op }, out);
            }
            Some(StoreFor::Repair) if repaired => {
                out.push(Effect::Saw(Sight::Sometimes("repair_brought_records")));
            }
            _ => {}
        }
    }

    pub(super) fn store_failed(&mut self, now: Micros, op: u64) {
        // Nobody is told that it is there: our own writes and those of others are repeated.
        self.end_store(now, op, false);
    }

    pub(super) fn put(&mut self, now: Micros, from: NodeId, op: Op, copies: Vec<RecordCopy>, out: &mut Vec<Effect>) {
        let taken = self.store(copies, StoreFor::Put { from, op }, out).is_some();
        if taken && planted!(self.rules.planted, AcknowledgeBeforeFsync) {
            self.send(now, from, Message::PutDone { op }, out);
        }
    }

    // Repair and handoff.

    fn offer_digests(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let (ring, alive, count) = (&self.ring, self.membership.alive(), self.rules.writes.replicas);
        let replicas =
            |slot| ring.replicas(slot, count).iter().map(|node| (*node, alive.contains(node))).collect::<Vec<_>>();
        for offer in self.repair.round(now, self.rules.me, replicas) {
            if offer.parting {
                out.push(Effect::Saw(Sight::Sometimes("handoff_offered")));
            }
            self.send(now, offer.to, Message::Digests { slots: offer.slots, parting: offer.parting }, out);
        }
    }

    pub(super) fn compare(
        &mut self,
        now: Micros,
        from: NodeId,
        theirs: &[(Slot, u64)],
        parting: bool,
        out: &mut Vec<Effect>,
    ) {
        let compared = self.repair.compare(theirs, parting);
        if !compared.same.is_empty() {
            self.send(now, from, Message::Same { slots: compared.same }, out);
        }
        for slot in compared.different {
            out.push(Effect::Saw(Sight::Sometimes("repair_found_difference")));
            if !planted!(self.rules.planted, RepairStopsAtDigest) {
                let ranges = self.repair.digests.ranges(slot);
                self.send(now, from, Message::Ranges { slot, ranges }, out);
            }
        }
    }

    /// A replica has the same as we.
    pub(super) fn same(&mut self, now: Micros, from: NodeId, slots: &[(Slot, u64)], out: &mut Vec<Effect>) {
        for (slot, digest) in slots {
            self.transfers.same(now, from, *slot);
            self.has(from, *slot, *digest, out);
        }
    }

    /// A replica has all that made this digest of ours. When all replicas have, a slot that is no longer ours is dropped here.
    pub(super) fn has(&mut self, from: NodeId, slot: Slot, digest: u64, out: &mut Vec<Effect>) {
        let replicas = self.ring.replicas(slot, self.rules.writes.replicas).to_vec();
        if !replicas.contains(&self.rules.me)
            && self.repair.agrees(from, slot, digest, &replicas)
            && self.may_drop(slot)
        {
            out.push(Effect::Saw(Sight::Sometimes("handoff_finished")));
            self.drop_slot(slot, out);
        }
    }

    /// Nothing of the slot is on its way to our disk, which nobody else may have.
    fn may_drop(&self, slot: Slot) -> bool {
        !self.storing.contains_key(&slot)
            && !self.writes.touches(slot)
            && !self.gathered.iter().any(|one| one.slot == slot)
            && !self.leased.contains(&slot)
            && !self.parting.contains(&slot)
            && !self.dropping.contains(&slot)
    }

    fn drop_slot(&mut self, slot: Slot, out: &mut Vec<Effect>) {
        self.dropping.insert(slot);
        out.push(Effect::DropSlot { slot });
    }

    /// A defect: what the ring gave to others is dropped without asking them.
    pub(super) fn drop_unasked(&mut self, out: &mut Vec<Effect>) {
        if !planted!(self.rules.planted, DropUnasked) {
            return;
        }
        let count = self.rules.writes.replicas;
        let gone = |slot: &Slot| !self.ring.replicas(*slot, count).contains(&self.rules.me) && self.may_drop(*slot);
        let gone: Vec<Slot> = self.repair.digests.slots().filter(gone).collect();
        gone.into_iter().for_each(|slot| self.drop_slot(slot, out));
    }

    // Discovered URLs.

    pub(super) fn submitted(
        &mut self,
        now: Micros,
        ticket: u64,
        crawl: &str,
        urls: Vec<Discovered>,
        out: &mut Vec<Effect>,
    ) {
        if !self.outbox.has_room(urls.len()) {
            out.push(Effect::Saw(Sight::Sometimes("client_refused")));
            return out.push(Effect::Refuse { ticket });
        }
        let owners = self.owners_of(&urls);
        if !self.outbox.add(now, crawl, None, urls, Ticket::Client(ticket), |slot| *owners.get(&slot)?) {
            out.push(Effect::Acknowledge { ticket }); // of nothing
        }
    }

    fn send_parcel(&mut self, now: Micros, parcel: Parcel, out: &mut Vec<Effect>) {
        let Some(to) = self.acting_owner(parcel.slot) else { return };
        let op = Op { boot: self.rules.boot, number: parcel.number };
        let Parcel { crawl, parent, urls, .. } = parcel;
        self.send(now, to, Message::Discovered { op, crawl, parent, urls }, out);
    }

    /// Links came for a slot of ours, or of somebody for whom we act, or by mistake: it is all the same, they are kept.
    pub(super) fn discovered(
        &mut self,
        from: NodeId,
        op: Op,
        crawl: String,
        parent: Option<UrlId>,
        urls: Vec<Discovered>,
        out: &mut Vec<Effect>,
    ) {
        let under_way = self.admissions.values().any(|admission| admission.from == from && admission.op == op);
        if under_way || self.admissions.len() >= ADMISSIONS_MAX {
            return;
        }
        self.next_admission += 1;
        self.admissions.insert(self.next_admission, Admission { from, op, left: None });
        out.push(Effect::Admit { admit: self.next_admission, crawl, parent, urls });
    }

    pub(super) fn admitted(&mut self, now: Micros, admit: u64, copies: Vec<RecordCopy>, out: &mut Vec<Effect>) {
        let mut by_slot: BTreeMap<Slot, Vec<RecordCopy>> = BTreeMap::new();
        for copy in copies {
            // What was acknowledged once is on W disks.
            if !self.acknowledged.contains(copy.key.id()) {
                by_slot.entry(copy.slot()).or_default().push(copy);
            }
        }
        let Some(admission) = self.admissions.get_mut(&admit) else { return };
        let writes: usize = by_slot.values().map(|copies| copies.len().div_ceil(COPIES_MAX)).sum();
        // One more than there are, so that it is not done before the last one began.
        admission.left = Some(writes + 1);
        for (slot, copies) in by_slot {
            for copies in copies.chunks(COPIES_MAX) {
                let urls = copies.iter().map(|copy| copy.key.id()).collect();
                self.write(slot, copies.to_vec(), Purpose::Kept { admit, slot, urls });
            }
        }
        self.kept(now, admit, out);
    }

    /// One write of an admission is done; with the last, who sent the URLs is told.
    fn kept(&mut self, now: Micros, admit: u64, out: &mut Vec<Effect>) {
        let Some(admission) = self.admissions.get_mut(&admit) else { return };
        let left = admission.left.unwrap_or(1).saturating_sub(1);
        admission.left = Some(left);
        if left == 0 {
            let (to, op) = (admission.from, admission.op);
            self.admissions.remove(&admit);
            self.send(now, to, Message::DiscoveredDone { op }, out);
        }
    }

    /// A parcel of ours is kept.
    pub(super) fn links_kept(&mut self, now: Micros, number: u64, out: &mut Vec<Effect>) {
        match self.outbox.done(number) {
            Some(Ticket::Client(ticket)) => out.push(Effect::Acknowledge { ticket }),
            Some(Ticket::Run(run)) => self.runs.links_kept(now, run),
            None => {}
        }
    }
}
