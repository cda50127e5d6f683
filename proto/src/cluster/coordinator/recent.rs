//! URLs that this life of the node has seen acknowledged. A page has some forty links, and most lead to URLs that wait in their queues
//! already: without this each of them would be written to W disks again.

use std::collections::BTreeSet;

use crate::id::UrlId;

/// Ids of one generation, some forty bytes each; there are two.
const GENERATION: usize = 32_768;

/// A bounded set that forgets what was not asked for lately.
#[derive(Default)]
pub(super) struct Recent {
    young: BTreeSet<UrlId>,
    old: BTreeSet<UrlId>,
}

impl Recent {
    pub(super) fn insert(&mut self, id: UrlId) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id);
    }

    /// Whether it is known; what is asked for stays longer.
    pub(super) fn contains(&mut self, id: UrlId) -> bool {
        if self.young.contains(&id) {
            return true;
        }
        let known = self.old.remove(&id);
        if known {
            self.insert(id);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> UrlId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(number as u64).to_be_bytes());
        UrlId(bytes)
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut recent = Recent::default();
        (0..3 * GENERATION).for_each(|number| {
            recent.insert(id(number));
            assert!(recent.contains(id(0)), "asked for all the time");
        });
        assert!(!recent.contains(id(1)));
        assert!(recent.contains(id(3 * GENERATION - 1)));
        assert!(recent.young.len() + recent.old.len() <= 2 * GENERATION);
    }
}
