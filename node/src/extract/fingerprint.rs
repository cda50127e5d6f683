//! A 64-bit simhash of a text: texts that share most of their word triples differ in few bits.
//!
//! Written here and not taken from a crate because stored fingerprints must mean the same after every update.

use xxhash_rust::xxh3::xxh3_64;

/// How much text counts: 64 KiB are 10,000 words, and beyond that an article no longer changes its nature.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Words in a shingle. Three: one word says nothing of order, five break at every second edit.
const SHINGLE_WORDS: usize = 3;

/// The simhash of `text`; `None` if it has no words.
pub(super) fn simhash(text: &str) -> Option<u64> {
    let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    let mut votes = Votes::default();
    let mut last = [0_u64; SHINGLE_WORDS];
    let mut words = 0_u64;
    each_word(text, |word| {
        last.rotate_left(1);
        last[SHINGLE_WORDS - 1] = xxh3_64(word.as_bytes());
        words += 1;
        if words >= SHINGLE_WORDS as u64 {
            votes.add(mix(&last));
        }
    });
    if words == 0 {
        return None;
    }
    if words < SHINGLE_WORDS as u64 {
        last[SHINGLE_WORDS - words as usize..].iter().for_each(|&word| votes.add(word));
    }
    Some(votes.decide())
}

/// In how many bits two fingerprints differ; up to 3 means near duplicates, by the study of Manku et al. (2007).
pub fn distance(left: u64, right: u64) -> u32 {
    (left ^ right).count_ones()
}

/// Words are what stands between white space and ASCII punctuation; scripts without spaces count by character.
fn each_word<'a>(text: &'a str, mut found: impl FnMut(&'a str)) {
    // By bytes, because what separates words is ASCII, and so is most of the web.
    let bytes = text.as_bytes();
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
                found(word);
            } else {
                word.char_indices().for_each(|(at, character)| found(&word[at..at + character.len_utf8()]));
            }
        }
        at += 1;
    }
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

fn mix(words: &[u64; SHINGLE_WORDS]) -> u64 {
    let mut bytes = [0_u8; 8 * SHINGLE_WORDS];
    for (to, from) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    xxh3_64(&bytes)
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
    use super::*;

    fn article(words: usize) -> String {
        (0..words).map(|word| format!("word{} ", word * 7919 % 1000)).collect()
    }

    #[test]
    fn fingerprints_never_change() {
        assert_eq!(simhash("The quick brown fox jumps over the lazy dog."), Some(FOX));
        assert_eq!(simhash("one"), Some(xxh3_64(b"one")));
        assert_eq!(simhash(" .,;\n"), None);
    }

    const FOX: u64 = 6_766_013_096_929_158_514;

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
}
