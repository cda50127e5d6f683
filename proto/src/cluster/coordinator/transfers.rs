//! The coordinator's part in bringing slots over: what differs is drawn in parts, for a pull or for repair, and given to who draws it.

use std::collections::{BTreeMap, VecDeque};

use super::super::copy::RecordCopy;
use super::super::message::{Message, Op};
use super::super::mutant::planted;
use super::super::slot_set::SlotSet;
use super::super::transfer::{Named, Question};
use super::{Coordinator, Effect, ReadFor, Sight, StoreFor};
use crate::crawl::politeness::Micros;
use crate::id::{NodeId, Slot};
use crate::key::UrlKey;

/// Of the ranges that differ those of which the other has something.
fn lacking(differing: &[u8], theirs: &[(u8, u64)]) -> Vec<u8> {
    let has = |range: &u8| theirs.iter().any(|(theirs, _)| theirs == range);
    differing.iter().copied().filter(has).collect()
}

impl Coordinator {
    /// Begins what pulls want, asks what is due, and tells pulls what has ended.
    pub(super) fn work_transfers(&mut self, now: Micros, out: &mut Vec<Effect>) {
        loop {
            while self.transfers.has_room()
                && let Some((from, slot)) = self.repair.wanted(|slot| self.transfers.is_busy(slot))
            {
                self.transfers.begin(now, from, slot);
            }
            for question in self.transfers.due(now) {
                let (to, message) = match question {
                    Question::Compare { of, number, slot } if self.transfers.is_numbered() => {
                        (of, Message::Compare { op: Op { boot: self.rules.boot, number }, slot })
                    }
                    // `parting`, because who has the same is to say so too.
                    Question::Compare { of, slot, .. } => {
                        let slots = vec![(slot, self.repair.digests.of(slot))];
                        (of, Message::Digests { slots, parting: true })
                    }
                    Question::Draw { of, number, slot, ranges, after } => {
                        let op = Op { boot: self.rules.boot, number };
                        (of, Message::Draw { op, slot, ranges, after })
                    }
                };
                self.send(now, to, message, out);
            }
            let ended = self.transfers.ended();
            if ended.is_empty() {
                return;
            }
            for ended in ended {
                let name = if ended.whole { "slot_transferred" } else { "transfer_broke_off" };
                out.push(Effect::Saw(Sight::Sometimes(name)));
                self.repair.transferred(ended.from, ended.slot, ended.whole, ended.asked);
                if let Some(digest) = ended.parted.filter(|_| ended.whole) {
                    self.send(now, ended.from, Message::Has { slot: ended.slot, digest }, out);
                }
            }
        }
    }

    // Who lacks records.

    /// A peer has other digests of these ranges. Who has what we lack is drawn from; who may lack something of ours hears our ranges, so that it
    /// draws them. That goes to and fro no longer than a transfer begins on one of the sides.
    pub(super) fn ranges_differ(
        &mut self,
        now: Micros,
        from: NodeId,
        slot: Slot,
        theirs: &[(u8, u64)],
        out: &mut Vec<Effect>,
    ) {
        let keeps = self.ring.replicas(slot, self.rules.writes.replicas).contains(&self.rules.me)
            || self.keepers(slot).contains(&self.rules.me);
        if !keeps && !self.transfers.is_busy(slot) {
            let ranges = self.repair.digests.ranges(slot);
            return self.send(now, from, Message::Parting { slot, ranges }, out);
        }
        let differing = self.repair.digests.differing(slot, theirs);
        let lacking = lacking(&differing, theirs);
        let named = if lacking.is_empty() && !self.transfers.is_busy(slot) {
            Named::Began
        } else {
            self.transfers.named(now, from, slot, lacking)
        };
        if named == Named::Began && !differing.is_empty() {
            let ranges = self.repair.digests.ranges(slot);
            self.send(now, from, Message::Ranges { slot, ranges }, out);
        }
    }

    /// A peer that was asked has these ranges of a slot.
    pub(super) fn compared(&mut self, now: Micros, from: NodeId, op: Op, theirs: &[(u8, u64)]) {
        let Some(slot) = self.transfers.comparing(from, op.number) else { return };
        let lacking = lacking(&self.repair.digests.differing(slot, theirs), theirs);
        self.transfers.compared(now, slot, lacking);
    }

    /// A peer has these of a slot that it parts with. It need not get what is new here meanwhile, so it may drop the slot while that is written to.
    pub(super) fn parting(
        &mut self,
        now: Micros,
        from: NodeId,
        slot: Slot,
        theirs: &[(u8, u64)],
        out: &mut Vec<Effect>,
    ) {
        let digest = theirs.iter().fold(0, |sum: u64, (_, range)| sum.wrapping_add(*range));
        let lacking = lacking(&self.repair.digests.differing(slot, theirs), theirs);
        if lacking.is_empty() || planted!(self.rules.planted, HasBeforeDrawn) {
            self.send(now, from, Message::Has { slot, digest }, out);
        } else {
            self.transfers.parted(now, from, slot, lacking, digest);
        }
    }

    /// A part that was drawn came.
    pub(super) fn drawn(
        &mut self,
        now: Micros,
        from: NodeId,
        op: Op,
        copies: Vec<RecordCopy>,
        next: Option<UrlKey>,
        out: &mut Vec<Effect>,
    ) {
        let Some(slot) = self.transfers.awaited(from, op.number) else { return };
        if copies.iter().any(|copy| copy.slot() != slot) {
            return out.push(Effect::Saw(Sight::Ignored { from, why: "another slot" }));
        }
        let mut write = None;
        if !copies.is_empty() {
            write = self.store(copies, StoreFor::Repair, out);
            if write.is_none() {
                return; // no room on the way to the disk: it is asked for again
            }
        }
        self.transfers.took(now, slot, write, next);
        self.repair.part_came(now, slot);
    }

    // Who has them.

    /// A peer asks in which ranges a slot is otherwise here.
    pub(super) fn say_ranges(&mut self, now: Micros, from: NodeId, op: Op, slot: Slot, out: &mut Vec<Effect>) {
        let ranges = self.repair.digests.ranges(slot);
        self.send(now, from, Message::Compared { op, ranges }, out);
    }

    /// A peer asks which slots are otherwise here.
    pub(super) fn survey(
        &mut self,
        now: Micros,
        from: NodeId,
        op: Op,
        slots: &SlotSet,
        digests: &[(Slot, u64)],
        out: &mut Vec<Effect>,
    ) {
        let slots = self.otherwise_here(slots, digests).collect();
        self.send(now, from, Message::Differing { op, slots }, out);
    }

    /// The slots of which there is something here, and something else where these digests are from.
    fn otherwise_here(&self, slots: &SlotSet, digests: &[(Slot, u64)]) -> impl Iterator<Item = Slot> {
        let theirs: BTreeMap<Slot, u64> = digests.iter().copied().collect();
        slots.iter().filter(move |slot| {
            let mine = self.repair.digests.of(*slot);
            mine != 0 && theirs.get(slot) != Some(&mine)
        })
    }

    /// A peer draws a part.
    pub(super) fn draw(
        &mut self,
        to: NodeId,
        op: Op,
        slot: Slot,
        ranges: Vec<u8>,
        after: Option<UrlKey>,
        out: &mut Vec<Effect>,
    ) {
        self.begin_read(ReadFor::Draw { to, op }, slot, Some(ranges), after, out);
    }

    /// A peer of version 1 wants ranges.
    pub(super) fn read_ranges(&mut self, to: NodeId, slot: Slot, ranges: Vec<u8>, out: &mut Vec<Effect>) {
        let wanted = Some(ranges.clone());
        self.begin_read(ReadFor::Ranges { to, slot, ranges }, slot, wanted, None, out);
    }

    /// A peer of version 1 pulls slots.
    pub(super) fn pull(
        &mut self,
        now: Micros,
        from: NodeId,
        op: Op,
        slots: &SlotSet,
        digests: &[(Slot, u64)],
        out: &mut Vec<Effect>,
    ) {
        let mut rest: VecDeque<Slot> = self.otherwise_here(slots, digests).collect();
        match rest.pop_front() {
            None => self.send(now, from, Message::Pulled { op, part: 0, last: true, copies: Vec::new() }, out),
            Some(slot) => self.begin_read(ReadFor::Pull { to: from, op, slot, rest, part: 0 }, slot, None, None, out),
        }
    }

    fn begin_read(
        &mut self,
        what: ReadFor,
        slot: Slot,
        ranges: Option<Vec<u8>>,
        after: Option<UrlKey>,
        out: &mut Vec<Effect>,
    ) {
        // Beyond the bound nobody is answered: who needs it asks again.
        if self.reads.len() < self.rules.repair.reads_max {
            self.next_read += 1;
            self.reads.insert(self.next_read, what);
            let limit = self.rules.repair.part_max;
            out.push(Effect::Read { read: self.next_read, slot, ranges, after, limit });
        }
    }

    /// What was to be read for a peer.
    pub(super) fn read(
        &mut self,
        now: Micros,
        read: u64,
        copies: Vec<RecordCopy>,
        next: Option<UrlKey>,
        out: &mut Vec<Effect>,
    ) {
        match self.reads.remove(&read) {
            None => {}
            Some(ReadFor::Draw { to, op }) => self.send(now, to, Message::Drawn { op, copies, next }, out),
            Some(ReadFor::Ranges { to, slot, ranges }) => {
                if !copies.is_empty() {
                    self.send(now, to, Message::Records { copies }, out);
                }
                if next.is_some() {
                    let wanted = Some(ranges.clone());
                    self.begin_read(ReadFor::Ranges { to, slot, ranges }, slot, wanted, next, out);
                }
            }
            Some(ReadFor::Pull { to, op, slot, mut rest, part }) => {
                let (then, after) = if next.is_some() { (Some(slot), next) } else { (rest.pop_front(), None) };
                self.send(now, to, Message::Pulled { op, part, last: then.is_none(), copies }, out);
                if let Some(slot) = then {
                    let what = ReadFor::Pull { to, op, slot, rest, part: part + 1 };
                    self.begin_read(what, slot, None, after, out);
                }
            }
        }
    }
}
