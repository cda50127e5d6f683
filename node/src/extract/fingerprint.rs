//! A 64-bit simhash of a text: texts that share most of their word triples differ in few bits.
//!
//! Written here and not taken from a crate because stored fingerprints must mean the same after every update.

/// How much text counts: 64 KiB are 10,000 words, and beyond that an article no longer changes its nature.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Words in a shingle. Three: one word says nothing of order, five break at every second edit.
const SHINGLE_WORDS: u64 = 3;

/// The simhash of `text`; `None` if it has no words.
pub(super) fn simhash(text: &str) -> Option<u64> {
    let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    let mut votes = Votes::default();
    let (mut before, mut last) = (0, 0);
    let mut words = 0_u64;
    each_word(text, |start, end| {
        let word = hash_of(text.as_bytes(), start, end);
        words += 1;
        if words >= SHINGLE_WORDS {
            votes.add(mix(before, last, word));
        }
        (before, last) = (last, word);
    });
    match words {
        0 => return None,
        1 => votes.add(last),
        2 => [before, last].into_iter().for_each(|word| votes.add(word)),
        _ => {}
    }
    Some(votes.decide())
}

/// In how many bits two fingerprints differ; up to 3 means near duplicates, by the study of Manku et al. (2007).
pub fn distance(left: u64, right: u64) -> u32 {
    (left ^ right).count_ones()
}

/// Words are what stands between white space and ASCII punctuation; scripts without spaces count by character.
fn each_word(text: &str, mut found: impl FnMut(usize, usize)) {
    let bytes = text.as_bytes();
    if text.is_ascii() {
        return each_run(bytes, found);
    }
    // By bytes, because what separates words is ASCII.
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let mut seen = 0;
        while let Some(&byte) = bytes.get(at)
            && IN_WORD[usize::from(byte)]
        {
            seen |= byte;
            at += 1;
        }
        if start < at {
            let word = &text[start..at];
            if seen.is_ascii() || !word.chars().any(is_unspaced) {
                found(start, at);
            } else {
                word.char_indices().for_each(|(at, one)| found(start + at, start + at + one.len_utf8()));
            }
        }
        at += 1;
    }
}

/// Words of a text that is all ASCII: 64 bytes at a time, one bit for each byte. To look at one byte after the other costs a wrong guess of the
/// processor at each end of a word, which is most of the time that a word takes.
fn each_run(bytes: &[u8], mut found: impl FnMut(usize, usize)) {
    let (mut start, mut inside) = (0, 0_u64);
    let mut each_block = |base: usize, block: &[u8; 64]| {
        let mask = word_bytes(block);
        let mut edges = mask ^ (mask << 1 | inside);
        inside = mask >> 63;
        while edges != 0 {
            let at = base + edges.trailing_zeros() as usize;
            if mask >> (at - base) & 1 == 1 {
                start = at;
            } else {
                found(start, at);
            }
            edges &= edges - 1;
        }
    };
    let (blocks, rest) = bytes.as_chunks::<64>();
    for (number, block) in blocks.iter().enumerate() {
        each_block(64 * number, block);
    }
    // The last block ends with at least one byte that belongs to no word.
    let mut block = [0; 64];
    block[..rest.len()].copy_from_slice(rest);
    each_block(64 * blocks.len(), &block);
}

/// One bit for each byte that belongs to a word.
fn word_bytes(block: &[u8; 64]) -> u64 {
    let mut flags = [0_u8; 64];
    for (flag, byte) in flags.iter_mut().zip(block) {
        let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
        let digit = byte.wrapping_sub(b'0') < 10;
        *flag = u8::from(letter | digit);
    }
    let (eights, _) = flags.as_chunks::<8>();
    // The product has the eight flags side by side in its top byte.
    let gather = |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    eights.iter().rev().fold(0, |mask, eight| mask << 8 | gather(eight))
}

/// Bytes of words: letters and digits, and whatever is not ASCII.
const IN_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || byte >= 0x80;
        byte += 1;
    }
    table
};

/// Kana, Chinese characters, Thai, Lao, Burmese and Khmer.
fn is_unspaced(character: char) -> bool {
    matches!(character as u32, 0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x9FFF | 0x20000..=0x3FFFF)
}

/// A hash of the word at `start..end` of `bytes`: eight bytes at a time, and most words have no more.
#[inline(always)]
fn hash_of(bytes: &[u8], start: usize, end: usize) -> u64 {
    let mut hash = (end - start) as u64;
    let mut at = start;
    while at < end {
        let length = (end - at).min(8);
        let eight = match bytes.get(at..at + 8) {
            Some(eight) => u64::from_le_bytes(eight.try_into().expect("eight bytes")),
            None => bytes[at..].iter().rev().fold(0, |eight, byte| eight << 8 | u64::from(*byte)),
        };
        hash = folded(hash ^ eight & u64::MAX >> (64 - 8 * length), 0x9E37_79B9_7F4A_7C15);
        at += 8;
    }
    hash
}

/// One hash of three words in their order.
#[inline(always)]
fn mix(first: u64, second: u64, third: u64) -> u64 {
    let pair = folded(first ^ 0x2545_F491_4F6C_DD1D, second | 1);
    folded(pair ^ third, 0xD6E8_FEB8_6659_FD93)
}

/// Both halves of a product, one on the other: every bit of the result depends on every bit of the factors.
#[inline(always)]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Counts, for each of the 64 bits, in how many hashes it was set. Lane `i` counts bits `i`, `i + 8`, `i + 16`, ... in
/// its eight bytes, so that one hash costs eight additions and not 64.
struct Votes {
    lanes: [u64; 8],
    in_lanes: u32,
    totals: [u32; 64],
    hashes: u32,
}

impl Default for Votes {
    fn default() -> Self {
        Votes { lanes: [0; 8], in_lanes: 0, totals: [0; 64], hashes: 0 }
    }
}

impl Votes {
    fn add(&mut self, hash: u64) {
        for (shift, lane) in self.lanes.iter_mut().enumerate() {
            *lane += (hash >> shift) & 0x0101_0101_0101_0101;
        }
        self.in_lanes += 1;
        self.hashes += 1;
        if self.in_lanes == 255 {
            self.empty_lanes();
        }
    }

    fn empty_lanes(&mut self) {
        for (shift, lane) in self.lanes.iter_mut().enumerate() {
            for (byte, count) in lane.to_le_bytes().into_iter().enumerate() {
                self.totals[8 * byte + shift] += u32::from(count);
            }
            *lane = 0;
        }
        self.in_lanes = 0;
    }

    fn decide(mut self) -> u64 {
        self.empty_lanes();
        let half = self.hashes / 2;
        (0..64).fold(0, |hash, bit| hash | u64::from(self.totals[bit] > half) << bit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    fn article(words: usize) -> String {
        (0..words).map(|word| format!("word{} ", word * 7919 % 1000)).collect()
    }

    #[test]
    fn fingerprints_never_change() {
        assert_eq!(simhash("The quick brown fox jumps over the lazy dog."), Some(FOX));
        assert_eq!(simhash("one"), Some(hash_of(b"one", 0, 3)));
        assert_eq!(simhash(" .,;\n"), None);
    }

    const FOX: u64 = 5_866_683_832_654_531_568;

    #[test]
    fn votes_count_like_the_textbook() {
        let hashes: Vec<u64> = (0..1000_u64).map(|number| xxh3_64(&number.to_le_bytes())).collect();
        let mut votes = Votes::default();
        hashes.iter().for_each(|&hash| votes.add(hash));
        let textbook = (0..64).fold(0_u64, |found, bit| {
            let set = hashes.iter().filter(|hash| *hash >> bit & 1 == 1).count();
            found | u64::from(set > hashes.len() / 2) << bit
        });
        assert_eq!(votes.decide(), textbook);
    }

    #[test]
    fn a_small_edit_changes_few_bits_and_another_text_many() {
        let text = article(800);
        let edited = text.replacen("word5 ", "changed ", 1);
        let other: String = (0..800).map(|word| format!("term{} ", word * 31 % 997)).collect();
        let [text, edited, other] = [&text, &edited, &other].map(|text| simhash(text).unwrap());
        assert!(distance(text, edited) <= 3, "{}", distance(text, edited));
        assert!(distance(text, other) >= 16, "{}", distance(text, other));
    }

    #[test]
    fn spacing_and_punctuation_do_not_count() {
        assert_eq!(simhash("a, b -- c\nd"), simhash("a b c d"));
    }

    #[test]
    fn scripts_without_spaces_count_by_character() {
        let text = "素早い茶色の狐がのろまな犬を飛び越えるのを、みんなが見ている。".repeat(5);
        let edited = text.replacen('狐', "猫", 1);
        let (text, edited) = (simhash(&text).unwrap(), simhash(&edited).unwrap());
        assert!(distance(text, edited) <= 8, "{}", distance(text, edited));
    }

    fn words(text: &str, each: impl Fn(&str, &mut dyn FnMut(usize, usize))) -> Vec<&str> {
        let mut found = Vec::new();
        each(text, &mut |start, end| found.push(&text[start..end]));
        found
    }

    proptest! {
        #[test]
        fn words_are_the_same_taken_64_bytes_at_a_time(text in "([a-zA-Z0-9]{0,9}[ -~]){0,60}[a-z]{0,90}") {
            let textbook: Vec<&str> =
                text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
            prop_assert_eq!(words(&text, |text, found| each_word(text, found)), textbook);
        }

        #[test]
        fn a_word_has_one_hash_wherever_it_stands(word in "[a-z]{1,20}", before in "[a-z ]{0,9}", behind in "[ -~]{0,9}") {
            let text = format!("{before} {word} {behind}");
            let start = before.len() + 1;
            prop_assert_eq!(
                hash_of(text.as_bytes(), start, start + word.len()),
                hash_of(word.as_bytes(), 0, word.len())
            );
        }
    }
}
