//! Transfer: what another node has of a slot and this one lacks, brought over in parts.
//!
//! Whoever lacks records **draws** them: it asks for the part behind the last record that it has, stores it, and asks for the next. So the
//! one that gives remembers nothing, nobody sends more than was asked for, and a slow disk, a slow line or a busy node slows the transfer down and
//! nothing else: memory is bounded by [`TransferRules::at_once`] transfers of one part each on its way, and [`TransferRules::ahead`] on their way to the disk,
//! however many records a slot has. A part that does not come is asked for again; of a transfer that broke off it is remembered how far it came, and
//! the next one with the same node goes on there, and compares once more at its end what changed behind its back.
//!
//! A transfer begins with digests: only the ranges (see [`repair`](super::repair)) that differ are drawn. There is one transfer of a slot at a time: a
//! second node is asked when the first has given what it has, and then little or nothing differs.
//!
//! What a node named unasked may be old: it says what differed when it was said, and what was written since lies in other ranges. So whoever
//! needs all that another has *now*, as a pull does, goes by a comparison for which it asked itself, and whose answer carries the number of the question.

use std::collections::{BTreeMap, BTreeSet};

use crate::crawl::politeness::{Micros, SECOND};
use crate::id::{NodeId, Slot};
use crate::key::UrlKey;

/// Times and bounds of transfers.
#[derive(Clone, Copy, Debug)]
pub struct TransferRules {
    /// Transfers at once; more wait, or come again with the next comparison.
    pub at_once: usize,
    /// Parts of one transfer that may be on their way to the disk when the next is asked for.
    pub ahead: usize,
    /// Silence after which a question is repeated; twice as long each time. A pull that hears nothing for `pull_for` is cut short, and one lost letter must not do that.
    pub retry_after: Micros,
    /// Silence after which a transfer has broken off.
    pub silence_max: Micros,
    /// Transfers that broke off, of which it is remembered how far they came.
    pub broken_max: usize,
}

impl Default for TransferRules {
    fn default() -> Self {
        TransferRules { at_once: 16, ahead: 2, retry_after: SECOND / 2, silence_max: 30 * SECOND, broken_max: 256 }
    }
}

/// How far a transfer is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The other is asked in which ranges the slot differs.
    Comparing,
    /// Parts of these ranges are asked for.
    Drawing { ranges: Vec<u8>, after: Option<UrlKey> },
    /// Everything came, and is on its way to the disk.
    Storing,
}

struct Transfer {
    from: NodeId,
    stage: Stage,
    /// It goes on where a former one broke off, so it must compare at its end.
    resumed: bool,
    /// Names the question that is open.
    number: u64,
    /// When it is to be put, again or for the first time, and how long to wait then; `None` while none is open.
    ask: Option<(Micros, Micros)>,
    heard: Micros,
    storing: BTreeSet<u64>,
    /// Something of it could not be stored.
    failed: bool,
    /// The digest of what the other parts with.
    parted: Option<u64>,
    /// When we last asked the other to compare: what is drawn is not older. `None` if it named ranges unasked, maybe long ago.
    asked: Option<Micros>,
}

/// What to ask another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether it has the same of a slot, and if not, in which ranges.
    Compare {
        /// Whom.
        of: NodeId,
        /// Names the question.
        number: u64,
        /// The slot.
        slot: Slot,
    },
    /// For a part.
    Draw {
        /// Whom.
        of: NodeId,
        /// Names the question.
        number: u64,
        /// The slot.
        slot: Slot,
        /// Its ranges.
        ranges: Vec<u8>,
        /// The part behind this record.
        after: Option<UrlKey>,
    },
}

/// A transfer that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// From whom.
    pub from: NodeId,
    /// Which slot.
    pub slot: Slot,
    /// Whether all that the other had is on our disk.
    pub whole: bool,
    /// The digest of what it had, if it parts with it.
    pub parted: Option<u64>,
    /// What it had at this time or later; `None` if nobody knows when it had that.
    pub asked: Option<Micros>,
}

/// What is to be done about ranges that a node named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// They answer a question of ours.
    Answered,
    /// A transfer began.
    Began,
    /// The slot is being transferred, or there is no room: it comes again.
    Busy,
}

/// All transfers to a node.
pub struct Transfers {
    rules: TransferRules,
    /// Whether answers to comparisons carry the number of their question; all who speak an older version answer without.
    numbered: bool,
    next: u64,
    transfers: BTreeMap<Slot, Transfer>,
    broken: BTreeMap<Slot, (NodeId, UrlKey)>,
    ended: Vec<Ended>,
}

impl Transfers {
    /// None yet.
    pub fn new(rules: TransferRules) -> Transfers {
        let (transfers, broken) = (BTreeMap::new(), BTreeMap::new());
        Transfers { rules, numbered: true, next: 0, transfers, broken, ended: Vec::new() }
    }

    /// Whether answers to comparisons carry numbers from now on.
    pub fn set_numbered(&mut self, numbered: bool) {
        self.numbered = numbered;
    }

    /// Whether they do.
    pub fn is_numbered(&self) -> bool {
        self.numbered
    }

    /// Whether another one may begin.
    pub fn has_room(&self) -> bool {
        self.transfers.len() < self.rules.at_once
    }

    /// Whether a slot is being transferred.
    pub fn is_busy(&self, slot: Slot) -> bool {
        self.transfers.contains_key(&slot)
    }

    /// Transfers under way.
    pub fn len(&self) -> usize {
        self.transfers.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// Begins a transfer of a slot from a node, if there is room and none of it is under way.
    pub fn begin(&mut self, now: Micros, from: NodeId, slot: Slot) -> bool {
        let free = self.has_room() && !self.is_busy(slot);
        if free {
            self.insert(now, from, slot, Stage::Comparing, Some(now));
        }
        free
    }

    fn insert(&mut self, now: Micros, from: NodeId, slot: Slot, stage: Stage, asked: Option<Micros>) {
        self.next += 1;
        let resumed = matches!(stage, Stage::Drawing { after: Some(_), .. });
        let ask = Some((now, self.rules.retry_after));
        let (number, storing) = (self.next, BTreeSet::new());
        let transfer =
            Transfer { from, stage, resumed, number, ask, heard: now, storing, failed: false, parted: None, asked };
        self.transfers.insert(slot, transfer);
    }

    /// Where a transfer that broke off with this node would go on.
    fn resumes(&self, from: NodeId, slot: Slot) -> Option<UrlKey> {
        self.broken.get(&slot).filter(|(node, _)| *node == from).map(|(_, after)| after.clone())
    }

    /// A node named ranges of a slot that it has and that differ from ours: they are drawn.
    pub fn named(&mut self, now: Micros, from: NodeId, slot: Slot, ranges: Vec<u8>) -> Named {
        match self.transfers.get(&slot) {
            Some(transfer) if transfer.from == from && transfer.stage == Stage::Comparing && !self.numbered => {
                self.compared(now, slot, ranges);
                Named::Answered
            }
            Some(_) => Named::Busy,
            None if !self.has_room() => Named::Busy,
            None => {
                let after = self.resumes(from, slot);
                self.insert(now, from, slot, Stage::Drawing { ranges, after }, None);
                Named::Began
            }
        }
    }

    /// The slot that a node was asked to compare by this number; `None` if nobody waits for it.
    pub fn comparing(&self, from: NodeId, number: u64) -> Option<Slot> {
        let open = |transfer: &Transfer| {
            transfer.from == from && transfer.number == number && transfer.stage == Stage::Comparing
        };
        self.transfers.iter().find(|(_, transfer)| open(transfer)).map(|(slot, _)| *slot)
    }

    /// The node that was asked to compare a slot has these ranges otherwise: they are drawn.
    pub fn compared(&mut self, now: Micros, slot: Slot, ranges: Vec<u8>) {
        let Some(from) = self.transfers.get(&slot).map(|transfer| transfer.from) else { return };
        let after = self.resumes(from, slot);
        let Some(transfer) = self.transfers.get_mut(&slot) else { return };
        self.next += 1;
        (transfer.heard, transfer.number) = (now, self.next);
        if ranges.is_empty() {
            (transfer.stage, transfer.ask) = (Stage::Storing, None);
            return self.end_if_stored(now, slot);
        }
        transfer.resumed = after.is_some();
        transfer.stage = Stage::Drawing { ranges, after };
        transfer.ask = Some((now, self.rules.retry_after));
    }

    /// A node named ranges of a slot that it parts with; all of them make `digest`.
    pub fn parted(&mut self, now: Micros, from: NodeId, slot: Slot, ranges: Vec<u8>, digest: u64) {
        if self.named(now, from, slot, ranges) != Named::Busy
            && let Some(transfer) = self.transfers.get_mut(&slot)
        {
            transfer.parted = Some(digest);
        }
    }

    /// A node has the same of a slot as we, or had when it said so.
    pub fn same(&mut self, now: Micros, from: NodeId, slot: Slot) {
        let asked = |transfer: &Transfer| transfer.from == from && transfer.stage == Stage::Comparing;
        if !self.numbered && self.transfers.get(&slot).is_some_and(asked) {
            self.compared(now, slot, Vec::new());
        }
    }

    /// The slot of a part that answers a question which is open; `None` if nobody waits for it.
    pub fn awaited(&self, from: NodeId, number: u64) -> Option<Slot> {
        let open = |transfer: &Transfer| {
            let drawing = matches!(transfer.stage, Stage::Drawing { .. });
            transfer.from == from && transfer.number == number && transfer.ask.is_some() && drawing
        };
        self.transfers.iter().find(|(_, transfer)| open(transfer)).map(|(slot, _)| *slot)
    }

    /// A part is on its way to the disk as `write`, if there was anything in it; `next` is where to go on.
    pub fn took(&mut self, now: Micros, slot: Slot, write: Option<u64>, next: Option<UrlKey>) {
        let Some(transfer) = self.transfers.get_mut(&slot) else { return };
        self.next += 1;
        (transfer.heard, transfer.number) = (now, self.next);
        transfer.storing.extend(write);
        transfer.ask = None;
        match (&mut transfer.stage, next) {
            // A peer that goes round in circles gets no further questions.
            (Stage::Drawing { after, .. }, Some(next)) if after.as_ref().is_none_or(|after| next > *after) => {
                *after = Some(next);
            }
            (stage, _) => *stage = Stage::Storing,
        }
        self.go_on(now, slot);
    }

    /// A write is on disk, or failed.
    pub fn stored(&mut self, now: Micros, write: u64, durable: bool) {
        let of = self.transfers.iter_mut().find(|(_, transfer)| transfer.storing.contains(&write));
        let Some((slot, transfer)) = of else { return };
        let slot = *slot;
        transfer.storing.remove(&write);
        transfer.failed |= !durable;
        transfer.heard = now;
        self.go_on(now, slot);
    }

    fn go_on(&mut self, now: Micros, slot: Slot) {
        if let Some(transfer) = self.transfers.get_mut(&slot)
            && matches!(transfer.stage, Stage::Drawing { .. })
            && transfer.ask.is_none()
            && transfer.storing.len() < self.rules.ahead
        {
            transfer.ask = Some((now, self.rules.retry_after));
        }
        self.end_if_stored(now, slot);
    }

    fn end_if_stored(&mut self, now: Micros, slot: Slot) {
        let Some(transfer) = self.transfers.get_mut(&slot) else { return };
        if transfer.stage != Stage::Storing || !transfer.storing.is_empty() {
            return;
        }
        self.broken.remove(&slot);
        if std::mem::take(&mut transfer.resumed) && !transfer.failed {
            self.next += 1;
            (transfer.stage, transfer.number, transfer.asked) = (Stage::Comparing, self.next, Some(now));
            transfer.ask = Some((now, self.rules.retry_after));
            return;
        }
        let Transfer { from, failed, parted, asked, .. } = *transfer;
        self.transfers.remove(&slot);
        self.ended.push(Ended { from, slot, whole: !failed, parted, asked });
    }

    /// A node is not there any more: what comes from it has broken off.
    pub fn gone(&mut self, is_there: impl Fn(NodeId) -> bool) {
        let lost: Vec<Slot> =
            self.transfers.iter().filter(|(_, transfer)| !is_there(transfer.from)).map(|(slot, _)| *slot).collect();
        lost.into_iter().for_each(|slot| self.break_off(slot));
    }

    fn break_off(&mut self, slot: Slot) {
        let Some(transfer) = self.transfers.remove(&slot) else { return };
        let Transfer { from, stage, storing, failed, asked, .. } = transfer;
        // What is still on its way to the disk may fail: then it would be passed over.
        if let Stage::Drawing { after: Some(after), .. } = stage
            && storing.is_empty()
            && !failed
        {
            if self.broken.len() >= self.rules.broken_max {
                self.broken.pop_first();
            }
            self.broken.insert(slot, (from, after));
        }
        self.ended.push(Ended { from, slot, whole: false, parted: None, asked });
    }

    /// The questions that are due. What was silent for too long has broken off.
    pub fn due(&mut self, now: Micros) -> Vec<Question> {
        let silent = |transfer: &Transfer| {
            transfer.storing.is_empty() && now >= transfer.heard.saturating_add(self.rules.silence_max)
        };
        let silent: Vec<Slot> =
            self.transfers.iter().filter(|(_, transfer)| silent(transfer)).map(|(slot, _)| *slot).collect();
        silent.into_iter().for_each(|slot| self.break_off(slot));
        let mut questions = Vec::new();
        for (slot, transfer) in &mut self.transfers {
            let Some((_, wait)) = transfer.ask.filter(|(at, _)| *at <= now) else { continue };
            transfer.ask = Some((now + wait, wait * 2));
            let (of, number, slot) = (transfer.from, transfer.number, *slot);
            match &transfer.stage {
                Stage::Comparing => questions.push(Question::Compare { of, number, slot }),
                Stage::Drawing { ranges, after } => {
                    let (ranges, after) = (ranges.clone(), after.clone());
                    questions.push(Question::Draw { of, number, slot, ranges, after });
                }
                Stage::Storing => transfer.ask = None,
            }
        }
        questions
    }

    /// The transfers that ended since this was last asked.
    pub fn ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// When to look again.
    pub fn next_wake(&self) -> Option<Micros> {
        let wake = |transfer: &Transfer| {
            let silence = transfer.heard.saturating_add(self.rules.silence_max);
            let silence = if transfer.storing.is_empty() { silence } else { Micros::MAX };
            transfer.ask.map_or(silence, |(at, _)| at.min(silence))
        };
        self.transfers.values().map(wake).min()
    }
}

#[cfg(test)]
mod tests;
