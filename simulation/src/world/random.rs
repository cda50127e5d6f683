//! Randomness of the world: every choice is a hash of the seed, of what is being decided, of whom it concerns and of a
//! count. A shared stream would make every later choice depend on every earlier one; here a fault that is taken out of
//! a plan leaves all other choices as they were, which is what makes plans shrink.

/// What a number is drawn for. Two purposes with equal keys must not give equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum For {
    /// What the plan of a seed contains.
    Plan = 1,
    /// Delay, loss and duplication of a message.
    Message,
    /// How long an fsync takes, and whether it fails.
    Sync,
    /// How much of what was not fsynced survives a crash.
    Crash,
    /// Which stored records are damaged.
    Damage,
    /// What a host does with a request.
    Host,
    /// Offset of a node's monotonic clock in each of its lives.
    Clock,
    /// Which node a client asks.
    Client,
    /// Seeds the generators that the cores are given.
    Core,
    /// What a node reports as its load.
    Load,
    /// Anything a layer decides by itself.
    Layer,
    /// When somebody defines something, and which node is asked.
    Definition,
    /// The number of a data folder.
    Folder,
    /// When somebody wants a generator to run, and how long scripts take.
    Source,
    /// Whom somebody asks for an operation on a site.
    Site,
}

/// A short sequence of numbers that depends on its keys alone.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence for decision number `count` about `key`.
    pub fn at(seed: u64, purpose: For, key: u64, count: u64) -> Random {
        let mut state = mix(seed ^ 0x7369_6d75_6c61_7465);
        for part in [purpose as u64, key, count] {
            state = mix(state.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ part);
        }
        Random(state)
    }

    /// The next number (splitmix64).
    #[inline]
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..=high`.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// Whether an event of so many in a million happens.
    #[inline]
    pub fn per_million(&mut self, chances: u32) -> bool {
        self.below(1_000_000) < u64::from(chances)
    }

    /// Whether an event of so many in a hundred happens.
    pub fn percent(&mut self, chances: u32) -> bool {
        self.below(100) < u64::from(chances)
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// `count` different numbers of `0..bound`, in order; all of them if there are no more.
    pub fn some_of(&mut self, bound: u64, count: u64) -> Vec<u64> {
        let mut left: Vec<u64> = (0..bound).collect();
        while left.len() as u64 > count {
            left.remove(self.below(left.len() as u64) as usize);
        }
        left
    }
}

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_own_numbers_and_keeps_them() {
        let draw = |purpose, key, count| Random::at(7, purpose, key, count).number();
        assert_eq!(draw(For::Message, 3, 9), draw(For::Message, 3, 9));
        assert_ne!(draw(For::Message, 3, 9), draw(For::Message, 3, 10));
        assert_ne!(draw(For::Message, 3, 9), draw(For::Message, 4, 9));
        assert_ne!(draw(For::Message, 3, 9), draw(For::Sync, 3, 9));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random::at(1, For::Plan, 0, 0);
        let drawn: Vec<u64> = (0..1_000).map(|_| random.between(3, 6)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&6)));
        assert_eq!(random.below(0), 0);
        let some = random.some_of(9, 4);
        assert_eq!(some.len(), 4);
        assert!(some.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(random.some_of(2, 4), [0, 1]);
    }

    #[test]
    fn chances_are_about_right() {
        let mut random = Random::at(1, For::Plan, 0, 0);
        let hits = (0..100_000).filter(|_| random.per_million(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
    }
}
