//! Of which slots this node hands pages of spiders out. It keeps those of others too, as a replica: their domains stand behind its own in the agenda, so that whoever serves a third of what it keeps
//! does not walk past the other two thirds every time.
//!
//! A domain is put where it belongs whenever its line is written. When other slots are served than before, those that stand behind and belong in front are brought there, and those that are met in front
//! and belong behind are put there; both some at a time.

use proto::cluster::slot_set::SlotSet;
use proto::id::Slot;

use super::spiders::TIMES;

/// What stands behind: in front of the times at which something falls due.
pub(super) const BEHIND: u64 = TIMES >> 1;

/// What was served the last time.
#[derive(Default)]
pub(in crate::edges::store) struct Served {
    /// Not known before the first time.
    slots: Option<SlotSet>,
    /// From which row of the agenda on those that stand behind are to be looked at.
    pub(super) look_from: Option<Vec<u8>>,
}

impl Served {
    /// These are served from now on. `behind` is where those that stand behind begin.
    pub(super) fn now(&mut self, slots: &SlotSet, behind: Vec<u8>) {
        if self.slots.as_ref() != Some(slots) {
            (self.slots, self.look_from) = (Some(slots.clone()), Some(behind));
        }
    }

    /// Where a domain of this slot belongs that stands here.
    pub(super) fn place(&self, slot: Slot, place: u64) -> u64 {
        match &self.slots {
            _ if place == u64::MAX => place, // nowhere
            Some(slots) if slots.contains(slot) => place & !BEHIND,
            Some(_) => place | BEHIND,
            None => place,
        }
    }
}

/// The better of two places, on the side of the first.
pub(super) fn better(stands: u64, place: u64) -> u64 {
    if stands == u64::MAX { place } else { stands & BEHIND | (stands & !BEHIND).min(place) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_place_stays_on_its_side() {
        assert_eq!((better(u64::MAX, 7), better(9, 7), better(5, 7)), (7, 7, 5));
        assert_eq!((better(BEHIND | 9, 7), better(BEHIND | 5, 7)), (BEHIND | 7, BEHIND | 5));
    }

    #[test]
    fn nobody_is_moved_before_it_is_known_what_is_served() {
        let mut served = Served::default();
        assert_eq!((served.place(Slot(1), 7), served.place(Slot(1), BEHIND | 7)), (7, BEHIND | 7));
        served.now(&[Slot(1)].into_iter().collect(), vec![1]);
        assert_eq!((served.place(Slot(1), BEHIND | 7), served.place(Slot(2), 7)), (7, BEHIND | 7));
        assert_eq!((served.place(Slot(2), u64::MAX), served.look_from.take()), (u64::MAX, Some(vec![1])));
        served.now(&[Slot(1)].into_iter().collect(), vec![1]);
        assert_eq!(served.look_from, None, "the same as before");
    }
}
