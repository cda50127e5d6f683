//! The coordinator's part in leases: as a voter, as a holder, and what a slot that comes or goes means for the frontier.

use std::collections::{BTreeMap, BTreeSet};

use super::super::enrolment::Enrolment;
use super::super::lease::{Extended, Seq};
use super::super::membership::CUT_OFF;
use super::super::message::{Message, Op};
use super::super::mutant::planted;
use super::super::repair::Pulled;
use super::super::slot_set::SlotSet;
use super::{Coordinator, Effect, RENEW_GAP, Sight, Tenure};
use crate::crawl::frontier;
use crate::crawl::politeness::Micros;
use crate::id::{NodeId, Slot};

/// Peers asked for what they have of an acquired slot.
const PULL_ASKED: usize = 8;

impl Coordinator {
    // As a voter.

    pub(super) fn vote(&mut self, now: Micros, from: NodeId, seq: Seq, slots: &SlotSet, out: &mut Vec<Effect>) {
        let Some(voter) = &mut self.voter else { return };
        // Who has not heard what is deleted would fetch it.
        if !self.registry.knows(from, seq.boot) && !planted!(self.rules.planted, UnawareGranted) {
            out.push(Effect::Saw(Sight::Sometimes("lease_refused_to_the_unaware")));
            return self.send(now, from, Message::LeaseGrant { seq, slots: SlotSet::default() }, out);
        }
        let vote = voter.request(now, from, seq, slots);
        if vote.waits {
            out.push(Effect::Saw(Sight::Sometimes("voter_waits_after_start")));
        }
        if vote.taken > 0 {
            out.push(Effect::Saw(Sight::Sometimes("lease_refused_to_another")));
        }
        if !vote.granted.is_empty() {
            let (slots, until) = (vote.granted.clone(), vote.until);
            out.push(Effect::Saw(Sight::PromiseMade { slots, holder: from, seq, until }));
        }
        // Also if it is nothing: who asked must know that it was heard.
        self.send(now, from, Message::LeaseGrant { seq, slots: vote.granted }, out);
    }

    pub(super) fn given_back(&mut self, from: NodeId, seq: Seq, slots: &SlotSet, out: &mut Vec<Effect>) {
        let Some(voter) = &mut self.voter else { return };
        let dropped = voter.release(from, seq, slots);
        if dropped != *slots {
            out.push(Effect::Saw(Sight::Sometimes("late_release_ignored")));
        }
        if !dropped.is_empty() {
            out.push(Effect::Saw(Sight::PromiseDropped { slots: dropped, holder: from, seq }));
        }
    }

    // As a holder.

    /// Asks every voter for every slot that is ours, and lets go what no longer is.
    pub(super) fn renew(&mut self, now: Micros, out: &mut Vec<Effect>) {
        self.last_renew = Some(now);
        self.next_renew = now + self.rules.lease.renew_every();
        let gone: Vec<Slot> = self.leased.iter().copied().filter(|slot| !self.owned.contains(*slot)).collect();
        for slot in gone {
            self.let_go(now, slot, out);
        }
        if planted!(self.rules.planted, NoLease) {
            let until = now + self.rules.lease.duration;
            let extended = self.owned.iter().map(|slot| (slot, !self.leased.contains(&slot)));
            let extended: Vec<Extended> = extended.map(|(slot, acquired)| Extended { slot, until, acquired }).collect();
            return self.extended(now, extended, out);
        }
        let mut wanted = self.owned.clone();
        for slot in &self.parting {
            wanted.remove(*slot);
        }
        if !self.enrolled {
            wanted = SlotSet::default(); // asked for nothing, the voters still say whether we reach them
        } else if wanted.is_empty() && !self.cut_off {
            return;
        }
        if self.cut_off || wanted.iter().any(|slot| !self.leased.contains(&slot)) {
            self.next_renew = now + self.rules.lease.ask_every();
        }
        // The clock is read before anything is sent: that is what the lease counts from.
        let seq = self.holder.ask(now);
        for voter in self.rules.voters.clone() {
            self.send(now, voter, Message::LeaseRequest { seq, slots: wanted.clone() }, out);
        }
    }

    /// Looks whether this node reaches enough voters, and tells the others when that changed: who does not is passed over as an owner.
    pub(super) fn look_at_voters(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let cut_off = self.holder.is_cut_off(now) && !planted!(self.rules.planted, CutOffKeepsSlots);
        if cut_off != self.cut_off {
            self.cut_off = cut_off;
            out.push(Effect::Saw(Sight::Sometimes(if cut_off {
                "cut_off_from_voters"
            } else {
                "reaches_voters_again"
            })));
            self.report_load();
            self.own_anew(now);
        }
    }

    /// Tells the others how busy we are, and whether we reach the voters.
    pub(super) fn report_load(&mut self) {
        let sign = if self.cut_off { CUT_OFF } else { 0 };
        self.membership.report(self.router.mine() | sign);
    }

    /// Works out which slots are ours, and asks at once for what became ours; but not at every flap of gossip.
    pub(super) fn own_anew(&mut self, now: Micros) {
        let owned = self.owned_now();
        if owned != self.owned {
            self.owned = owned;
            let soon = self.last_renew.map_or(now, |last| last + RENEW_GAP);
            self.next_renew = self.next_renew.min(soon.max(self.asks_from));
        }
    }

    /// A slot is no longer ours on the ring: stop starting; when idle, release.
    fn let_go(&mut self, now: Micros, slot: Slot, out: &mut Vec<Effect>) {
        self.leased.remove(&slot);
        self.served.remove(slot);
        self.repair.forget_pull(slot);
        self.parting.insert(slot);
        self.tell(frontier::Input::Unleased { slot }, out);
        if planted!(self.rules.planted, ReleaseWhileBusy) {
            self.idle(now, slot, out);
        }
    }

    /// Nobody asks the hosts of the slot any more.
    pub(super) fn idle(&mut self, now: Micros, slot: Slot, out: &mut Vec<Effect>) {
        if self.busy.contains(slot) {
            self.idle_but_busy.insert(slot);
            return;
        }
        if !self.parting.remove(&slot) || self.holder.until(now, slot).is_none() {
            return;
        }
        self.release(now, [slot].into_iter().collect(), out);
    }

    fn release(&mut self, now: Micros, slots: SlotSet, out: &mut Vec<Effect>) {
        let seq = self.holder.release(&slots);
        out.push(Effect::Saw(Sight::Sometimes("lease_released")));
        for slot in slots.iter() {
            out.push(Effect::Saw(Sight::LeaseLost { slot }));
        }
        for voter in self.rules.voters.clone() {
            self.send(now, voter, Message::LeaseRelease { seq, slots: slots.clone() }, out);
        }
    }

    pub(super) fn granted(&mut self, now: Micros, voter: NodeId, seq: Seq, slots: &SlotSet, out: &mut Vec<Effect>) {
        let mut extended = Vec::new();
        if self.holder.granted(now, voter, seq, slots, &mut extended) > 0 {
            out.push(Effect::Saw(Sight::Sometimes("straggler_grant_ignored")));
        }
        self.extended(now, extended, out);
    }

    fn extended(&mut self, now: Micros, extended: Vec<Extended>, out: &mut Vec<Effect>) {
        let (mut leased, mut acquired, mut unwanted) = (Vec::new(), SlotSet::default(), SlotSet::default());
        for Extended { slot, until, acquired: first } in extended {
            out.push(Effect::Saw(Sight::LeaseHeld { slot, until, acquired: first }));
            if self.parting.contains(&slot) {
                continue;
            }
            if !self.owned.contains(slot) {
                unwanted.insert(slot);
                continue;
            }
            leased.push((slot, until));
            if self.leased.insert(slot) {
                acquired.insert(slot);
                *self.tenures.entry(slot).or_default() += 1;
            }
        }
        if !unwanted.is_empty() {
            // It came when it was no longer ours. If the frontier has it, it must be idle first.
            let (told, untold): (Vec<Slot>, Vec<Slot>) = unwanted.iter().partition(|slot| self.leased.contains(slot));
            told.into_iter().for_each(|slot| self.let_go(now, slot, out));
            if !untold.is_empty() {
                self.release(now, untold.into_iter().collect(), out);
            }
        }
        if !leased.is_empty() {
            self.tell(frontier::Input::Leased { slots: leased }, out);
        }
        if !acquired.is_empty() {
            out.push(Effect::Saw(Sight::Sometimes("lease_acquired")));
            self.begin_pull(now, acquired, out);
        }
    }

    /// Asks the others what they know of slots that were acquired, before they are served.
    fn begin_pull(&mut self, now: Micros, slots: SlotSet, out: &mut Vec<Effect>) {
        self.next_pull += 1;
        self.repair.begin_pull(now, self.next_pull, slots.clone());
        self.ask_around(now, slots, out);
    }

    /// Asks so many others about slots that are served already that nothing which was acknowledged can be missing here.
    pub(super) fn assure(&mut self, now: Micros, slots: &SlotSet, out: &mut Vec<Effect>) {
        let unsure =
            |slot: &Slot| self.served.contains(*slot) && !self.is_sure(*slot) && !self.repair.is_pulling(*slot);
        let slots: Vec<Slot> = slots.iter().filter(unsure).collect();
        // One by one: each has neighbours of its own.
        for slot in slots {
            let slots: SlotSet = [slot].into_iter().collect();
            let enough = (self.witnesses(slot).len() + 1).saturating_sub(self.quorum());
            self.next_pull += 1;
            self.repair.begin_pull_of(now, self.next_pull, slots.clone(), enough);
            self.ask_around(now, slots, out);
        }
    }

    /// Disks that have what was acknowledged.
    fn quorum(&self) -> usize {
        self.rules.writes.quorum.min(self.members())
    }

    /// Scripts run for jobs in these slots: who parts with one waits for their end.
    pub(super) fn busy_with(&mut self, now: Micros, busy: SlotSet, out: &mut Vec<Effect>) {
        self.busy = busy;
        let over: Vec<Slot> = self.idle_but_busy.iter().filter(|slot| !self.busy.contains(*slot)).collect();
        for slot in over {
            self.idle_but_busy.remove(slot);
            self.idle(now, slot, out);
        }
    }

    /// The others that may have something of a slot: all that there are, or in a large cluster those of them that stand nearest to it and those who have no place
    /// any more, and those who are leaving: until they have handed over, what was acknowledged may be theirs and one other's.
    fn witnesses(&self, slot: Slot) -> BTreeSet<NodeId> {
        let configured = self.rules.peers.iter().map(|(node, _)| *node).filter(|node| !self.membership.has_left(*node));
        let known = configured
            .chain(self.registry.enrolled().values().filter(|said| self.is_member(said)).map(|said| said.node));
        let known = known.chain(self.view().keys().copied()).chain(self.membership.alive().iter().copied());
        let mut others: BTreeSet<NodeId> = known.filter(|node| *node != self.rules.me).collect();
        if others.len() > PULL_ASKED {
            others.retain(|node| !self.view().contains_key(node));
            let near = self.ring.preference(slot).iter().filter(|node| **node != self.rules.me);
            others.extend(near.take(PULL_ASKED));
        }
        if !planted!(self.rules.planted, LeaversUnasked) {
            others.extend(self.membership.departing().filter(|node| *node != self.rules.me));
        }
        others
    }

    /// Whether a node that enrolled has not given its place up since.
    pub(super) fn is_member(&self, said: &Enrolment) -> bool {
        !self.membership.has_left_since(said.node, said.boot)
    }

    /// Whether nothing that was acknowledged can be missing here of a slot that is served: W less one of those who may have something have not said what it is at
    /// most.
    fn is_sure(&self, slot: Slot) -> bool {
        let heard = self.repair.heard(slot);
        let silent = |node: &NodeId| heard.is_none_or(|heard| !heard.contains(node));
        self.witnesses(slot).into_iter().filter(silent).count() < self.quorum()
    }

    /// Those of some slots that nobody else has been the holder of since we asked enough others about them: what was acknowledged is here. Tenures end an eighth
    /// of a lease before the lease does, so that there is time to end what must not go on without it.
    pub fn assured(&self, now: Micros, slots: &SlotSet) -> BTreeMap<Slot, Tenure> {
        let life = u64::from(self.rules.boot) << 32;
        if self.is_sole() {
            return slots.iter().map(|slot| (slot, Tenure { number: life, until: Micros::MAX })).collect();
        }
        let tenure = |slot: Slot| {
            let is_ours = self.served.contains(slot) && self.leased.contains(&slot) && self.is_sure(slot);
            let until = self.holder.until(now, slot).filter(|_| is_ours)?.saturating_sub(self.rules.lease.duration / 8);
            let number = life | self.tenures.get(&slot).copied().unwrap_or(0);
            (now < until).then_some((slot, Tenure { number, until }))
        };
        slots.iter().filter_map(tenure).collect()
    }

    pub(super) fn ask_around(&mut self, now: Micros, slots: SlotSet, out: &mut Vec<Effect>) {
        let op = Op { boot: self.rules.boot, number: self.next_pull };
        let known = slots.iter().map(|slot| (slot, self.repair.digests.of(slot)));
        let digests: Vec<(Slot, u64)> = known.filter(|(_, digest)| *digest != 0).collect();
        // Whoever stands near these slots on the ring first; any living node may have stood in.
        let near = slots.iter().flat_map(|slot| self.ring.preference(slot).iter().take(PULL_ASKED));
        let others = |node: &&NodeId| **node != self.rules.me && self.membership.alive().contains(node);
        let mut seen = BTreeSet::new();
        let nearest = near.chain(self.membership.alive()).filter(others).filter(|node| seen.insert(**node));
        let mut asked: Vec<NodeId> = nearest.copied().take(PULL_ASKED).collect();
        // Those who have no place any more, or give theirs up, are witnesses too, wherever they stand.
        let leaving: BTreeSet<NodeId> = self.membership.departing().collect();
        let placeless = |node: &&NodeId| !self.view().contains_key(*node) || leaving.contains(*node);
        let missed =
            self.membership.alive().iter().filter(others).filter(placeless).filter(|node| !asked.contains(node));
        let missed: Vec<NodeId> = missed.copied().take(PULL_ASKED).collect();
        asked.extend(missed);
        for to in asked {
            self.send(now, to, Message::Survey { op, slots: slots.clone(), digests: digests.clone() }, out);
        }
    }

    pub(super) fn expire_leases(&mut self, now: Micros, out: &mut Vec<Effect>) {
        for slot in self.holder.expire(now) {
            out.push(Effect::Saw(Sight::LeaseLost { slot }));
            out.push(Effect::Saw(Sight::Sometimes("lease_expired")));
            self.parting.remove(&slot);
            self.served.remove(slot);
            if self.leased.remove(&slot) {
                self.repair.forget_pull(slot);
                self.tell(frontier::Input::Unleased { slot }, out);
            }
        }
    }

    /// Slots whose pull has ended are served.
    pub(super) fn serve_pulled(&mut self, now: Micros, out: &mut Vec<Effect>) {
        for Pulled { slots, cut_short, answered } in self.repair.pulled(now, self.membership.alive()) {
            let name = if cut_short { "pull_cut_short" } else { "pulled_before_serving" };
            out.push(Effect::Saw(Sight::Sometimes(name)));
            for slot in slots.iter() {
                if self.leased.contains(&slot) && self.served.insert(slot) {
                    let silent = self.witnesses(slot).difference(&answered).count();
                    if silent >= self.quorum() {
                        out.push(Effect::Saw(Sight::ServedUnsure { slot }));
                    }
                    self.tell(frontier::Input::Served { slot }, out);
                }
            }
        }
    }
}
