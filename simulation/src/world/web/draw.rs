//! Every choice in the synthetic web: a hash of the seed and of what is being decided.
//!
//! A stream of random numbers would make a page depend on what was asked before it; a hash of its own name does not.

/// What a number is drawn for. Two purposes with equal keys must not give equal numbers.
#[derive(Clone, Copy)]
pub(super) enum For {
    Path = 1,
    Links,
    Prose,
    Size,
    Change,
    Leaf,
    Trap,
    Noise,
    Language,
}

/// A short sequence of numbers that depends on its keys alone.
#[derive(Clone)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64, purpose: For, a: u64, b: u64) -> Draw {
        let mut state = mix(seed ^ 0x6f72_6277_6561_7665);
        for key in [purpose as u64, a, b] {
            state = mix(state.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key);
        }
        Draw(state)
    }

    /// The next number of the sequence (splitmix64).
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Whether an event of `percent` in a hundred happens.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// A number in `0..bound` where small ones are frequent: the chance of x falls as x^(-2/3), so that in-degrees
    /// follow a power law.
    pub(super) fn popular_below(&mut self, bound: u64) -> u64 {
        // Cubing in integers: the same result on every machine, which floating point would promise less clearly.
        let u = u128::from(self.next() >> 32);
        let cube = (u * u * u) >> 64; // u^3 as a fraction of 2^32
        ((cube * u128::from(bound)) >> 32) as u64
    }
}

/// Turns a text into a key.
pub(super) fn key(text: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(text.as_bytes())
}

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
