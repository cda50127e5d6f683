//! The coordinator's part in queues of clients: what their owner decided goes to the other replicas, and who may serve them.

use std::collections::BTreeMap;

use super::super::copy::RecordCopy;
use super::super::message::{COPIES_BYTES_MAX, COPIES_MAX};
use super::super::repair::Changed;
use super::super::slot_set::SlotSet;
use super::{Coordinator, Effect, Purpose};
use crate::crawl::politeness::Micros;
use crate::id::{NodeId, Slot};

impl Coordinator {
    /// Records of clients are not what they were.
    pub(super) fn changed(&mut self, changed: Vec<Changed>) {
        changed.into_iter().for_each(|change| self.repair.digests.change(change));
    }

    /// Has records that are on our disk written to the other keepers of their slots.
    pub(super) fn keep(&mut self, ticket: u64, copies: Vec<RecordCopy>, out: &mut Vec<Effect>) {
        let mut by_slot: BTreeMap<Slot, Vec<RecordCopy>> = BTreeMap::new();
        let me = self.rules.me;
        for copy in copies {
            by_slot.entry(copy.slot()).or_default().push(copy);
        }
        // One more than there are, so that it is not done before the last one began.
        self.keeping.insert(ticket, 1);
        for (slot, copies) in by_slot {
            let keepers = self.keepers(slot);
            let alone = self.enrolled && self.rules.writes.quorum.min(self.members()) <= 1;
            if alone && keepers.iter().all(|keeper| *keeper == me) {
                continue; // all who are to have it have it
            }
            for copies in parcels(copies) {
                if let Some(left) = self.keeping.get_mut(&ticket) {
                    *left += 1;
                }
                self.write_on(slot, copies, Purpose::Client { ticket });
            }
        }
        self.client_kept(ticket, out);
    }

    /// A person changed records of the crawl: they are written to the replicas of their slots, wherever those are. A record that came further
    /// meanwhile stays as it is, as with every write.
    pub(super) fn amended(&mut self, ticket: u64, copies: Vec<RecordCopy>, out: &mut Vec<Effect>) {
        let mut by_slot: BTreeMap<Slot, Vec<RecordCopy>> = BTreeMap::new();
        copies.into_iter().for_each(|copy| by_slot.entry(copy.slot()).or_default().push(copy));
        let writes: Vec<(Slot, Vec<RecordCopy>)> = by_slot
            .into_iter()
            .flat_map(|(slot, copies)| parcels(copies).into_iter().map(move |copies| (slot, copies)))
            .collect();
        // One more than there are, so that it is not done before the last one began.
        self.keeping.insert(ticket, writes.len() + 1);
        for (slot, copies) in writes {
            self.write(slot, copies, Purpose::Client { ticket });
        }
        self.client_kept(ticket, out);
    }

    /// One write for a client is done; with the last, it is told.
    pub(super) fn client_kept(&mut self, ticket: u64, out: &mut Vec<Effect>) {
        let Some(left) = self.keeping.get_mut(&ticket) else { return };
        *left -= 1;
        if *left == 0 {
            self.keeping.remove(&ticket);
            out.push(Effect::Acknowledge { ticket });
        }
    }

    /// Too few disks have what a client changed; repair will bring it to them.
    pub(super) fn client_failed(&mut self, ticket: u64, out: &mut Vec<Effect>) {
        if self.keeping.remove(&ticket).is_some() {
            out.push(Effect::Refuse { ticket });
        }
    }

    /// The slots from which clients may be handed URLs now: those that we hold, and have asked the others about. A node that is its
    /// cluster all by itself holds all of them, also before its own voter says so: there is nobody who could.
    pub fn served(&self, now: Micros) -> SlotSet {
        if self.is_sole() {
            return self.rules.slots.clone();
        }
        self.served.iter().filter(|slot| self.leased.contains(slot) && self.holds(now, *slot)).collect()
    }

    /// Whether the cluster is this node, by its configuration and by all that was ever heard.
    pub(super) fn is_sole(&self) -> bool {
        let me = |node: NodeId| node == self.rules.me;
        self.rules.peers.iter().all(|(node, _)| me(*node))
            && self.rules.voters.iter().all(|node| me(*node))
            && self.view().keys().all(|node| me(*node))
            && self.registry.enrolled().values().all(|said| me(said.node) || !self.is_member(said))
            && !self.membership.is_leaving()
    }
}

/// Records in parcels that fit into a letter.
fn parcels(copies: Vec<RecordCopy>) -> Vec<Vec<RecordCopy>> {
    let (mut parcels, mut bytes): (Vec<Vec<RecordCopy>>, usize) = (Vec::new(), usize::MAX);
    for copy in copies {
        let size = copy.bytes();
        match parcels.last_mut() {
            Some(last) if last.len() < COPIES_MAX && bytes.saturating_add(size) <= COPIES_BYTES_MAX => {
                bytes += size;
                last.push(copy);
            }
            _ => {
                bytes = size;
                parcels.push(vec![copy]);
            }
        }
    }
    parcels
}
