//! A set of slots: one bit each, so that a lease request for a thousand slots is half a kilobyte.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{SLOTS, Slot};

const WORDS: usize = SLOTS as usize / 64;

/// A set of slots.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SlotSet(Box<[u64; WORDS]>);

impl Default for SlotSet {
    fn default() -> Self {
        SlotSet(Box::new([0; WORDS]))
    }
}

impl SlotSet {
    /// Adds a slot; says whether it was not there.
    pub fn insert(&mut self, slot: Slot) -> bool {
        let (word, bit) = place(slot);
        let before = self.0[word];
        self.0[word] |= bit;
        before != self.0[word]
    }

    /// Takes a slot out; says whether it was there.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let (word, bit) = place(slot);
        let before = self.0[word];
        self.0[word] &= !bit;
        before != self.0[word]
    }

    /// Says whether a slot is in it.
    pub fn contains(&self, slot: Slot) -> bool {
        let (word, bit) = place(slot);
        self.0[word] & bit != 0
    }

    /// Says whether no slot is in it.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// How many are in it.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The slots in order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut left = *word;
            std::iter::from_fn(move || {
                let bit = left.trailing_zeros();
                left &= left.wrapping_sub(1);
                (bit < 64).then_some(Slot((index * 64) as u16 + bit as u16))
            })
        })
    }
}

fn place(slot: Slot) -> (usize, u64) {
    let number = usize::from(slot.0 % SLOTS);
    (number / 64, 1 << (number % 64))
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> Self {
        let mut set = SlotSet::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

impl std::fmt::Debug for SlotSet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.len() {
            0..=8 => out.debug_set().entries(self.iter().map(|slot| slot.0)).finish(),
            many => write!(out, "{{{many} slots}}"),
        }
    }
}

/// On the wire only the words that are not empty.
impl Serialize for SlotSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let words: Vec<(u8, u64)> =
            self.0.iter().enumerate().filter(|(_, word)| **word != 0).map(|(at, word)| (at as u8, *word)).collect();
        words.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SlotSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut set = SlotSet::default();
        for (at, word) in Vec::<(u8, u64)>::deserialize(deserializer)? {
            *set.0.get_mut(usize::from(at)).ok_or_else(|| serde::de::Error::custom("no such slots"))? |= word;
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::wire;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set(slots in proptest::collection::vec(0..SLOTS, 0..200), taken in proptest::collection::vec(0..SLOTS, 0..200)) {
            let mut set: SlotSet = slots.iter().map(|slot| Slot(*slot)).collect();
            let mut model: BTreeSet<Slot> = slots.iter().map(|slot| Slot(*slot)).collect();
            for slot in taken {
                prop_assert_eq!(set.remove(Slot(slot)), model.remove(&Slot(slot)));
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
            prop_assert_eq!(wire::decode::<SlotSet>(&wire::encode(&set).unwrap()).unwrap(), set);
        }
    }

    #[test]
    fn words_that_do_not_exist_are_refused() {
        let bytes = wire::encode(&vec![(64u8, 1u64)]).unwrap();
        assert!(wire::decode::<SlotSet>(&bytes).is_err());
    }
}
