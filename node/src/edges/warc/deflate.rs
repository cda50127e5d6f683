//! DEFLATE (RFC 1951) of pages in one pass, with codes that are known beforehand.
//!
//! A compressor for everything reads its input twice: it counts how often each byte, length and distance occurs and makes codes for just
//! this input. For a page of 8 kB making the codes, and for a record of 400 bytes nearly everything, is time that buys little: pages
//! are written in much the same letters and tags. So there are two sets of codes, made once: one learned from pages, and for short records,
//! which its description would outweigh, the fixed codes of the standard, which need none. Measured beside libdeflate at level 1 on 700
//! pieces of 7 kB of documentation, and on `request` and `metadata` records: 19 us instead of 36 for 35 % of the bytes instead of
//! 31 %; 1.5 us instead of 9 for 84 % instead of 71 %.
//!
//! What is not written like a page (other alphabets, pictures) comes out too large. [`Deflater::deflate`] then says so early, and the general compressor
//! has its turn.

/// Places where a string of four bytes was seen last. 32 KiB, as much as a core has for its nearest data.
const HASH_BITS: u32 = 13;
/// How far back a copy may reach, and how long it may be (RFC 1951, 3.2.5).
const WINDOW: usize = 32_768;
const MATCH_MIN: usize = 4;
const MATCH_MAX: usize = 258;
/// No string that begins this close to the end is looked for, so that eight bytes can be read anywhere.
const MARGIN: usize = 8;
/// Shorter input gets the fixed codes.
const SHORT_BYTES: usize = 1_024;
/// How often it is seen whether this comes to anything.
const LOOK_EVERY: usize = 4_096;
/// More bits than this for every byte of input are too many. The general compressor needs three for text in other alphabets.
const BITS_PER_BYTE_MAX: usize = 5;

const LENGTH_BASE: [u16; 29] =
    [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_EXTRA: [u8; 29] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCE_BASE: [u16; 30] = [
    1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145,
    8193, 12289, 16385, 24577,
];
const DISTANCE_EXTRA: [u8; 30] =
    [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];
/// In which order the lengths of the codes of code lengths are written (RFC 1951, 3.2.7).
const LENGTHS_ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

const END: usize = 256;

/// Bits of each literal and length in a page, by the share of each in 400 `response` records of HTML: books, references and the
/// documentation of libraries. No symbol is impossible; letters of other languages have their share though those pages are in English.
#[rustfmt::skip]
const PAGE_LITERALS: [u8; 286] = [
    15, 15, 15, 15, 15, 15, 15, 15, 15, 13, 8, 15, 15, 9, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
    4, 10, 7, 10, 11, 11, 10, 9, 8, 9, 11, 10, 8, 5, 5, 7, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 9, 7, 7, 7, 10,
    11, 8, 9, 8, 9, 9, 9, 10, 8, 8, 10, 10, 8, 8, 9, 9, 9, 11, 9, 8, 8, 10, 9, 9, 10, 10, 10, 11, 12, 11, 12, 9,
    10, 5, 7, 6, 6, 5, 7, 7, 7, 6, 10, 8, 6, 7, 6, 6, 7, 11, 6, 6, 6, 7, 8, 8, 8, 8, 9, 10, 11, 10, 12, 12,
    11, 11, 12, 12, 12, 13, 12, 12, 12, 13, 13, 12, 12, 13, 13, 12, 12, 13, 12, 13, 12, 12, 12, 12, 12, 12, 12, 13, 12, 12, 12, 13,
    12, 13, 13, 13, 12, 12, 13, 12, 12, 13, 13, 13, 12, 12, 12, 12, 12, 13, 13, 13, 12, 13, 13, 13, 12, 13, 13, 13, 12, 13, 13, 13,
    15, 15, 11, 11, 11, 11, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
    15, 15, 11, 11, 12, 11, 11, 12, 12, 13, 13, 12, 11, 13, 15, 13, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
    11, 12, 3, 5, 6, 6, 6, 7, 7, 7, 7, 7, 8, 7, 8, 8, 9, 9, 9, 9, 10, 9, 11, 10, 11, 11, 12, 11, 10, 10,
];
const PAGE_DISTANCES: [u8; 30] =
    [9, 6, 9, 8, 7, 7, 6, 6, 5, 5, 5, 5, 4, 5, 4, 5, 4, 5, 4, 4, 4, 4, 4, 5, 5, 5, 4, 5, 6, 7];
/// Bits of the codes in which the lengths above are written: any that fit will do, because it is done once.
const LENGTHS_LENGTHS: [u8; 19] = [0, 0, 0, 5, 5, 4, 4, 4, 4, 4, 4, 4, 3, 3, 0, 3, 3, 0, 0];

/// Compresses what is written like a page.
pub(super) struct Deflater {
    /// For each hash, where it was seen last, counted on from input to input: what is more than a window away is of another one.
    seen: Box<[u32; 1 << HASH_BITS]>,
    next_start: u32,
    page: Codes,
    fixed: Codes,
}

/// A code, its bits in the order in which they are written.
#[derive(Clone, Copy, Default)]
struct Code {
    bits: u32,
    count: u32,
}

struct Codes {
    /// What announces them at the beginning of a block.
    head: Vec<Code>,
    literals: [Code; 256],
    /// By length, extra bits included.
    lengths: Box<[Code; MATCH_MAX + 1]>,
    distances: [Code; 30],
    end: Code,
}

impl Deflater {
    pub(super) fn new() -> Self {
        Self {
            seen: vec![0; 1 << HASH_BITS].try_into().expect("as many as there are"),
            next_start: WINDOW as u32 + 1,
            page: Codes::of_pages(),
            fixed: Codes::fixed(),
        }
    }

    /// Appends `data` as one stream. If it would be too large, nothing is appended and `false` returned.
    pub(super) fn deflate(&mut self, data: &[u8], out: &mut Vec<u8>) -> bool {
        let Ok(length) = u32::try_from(data.len()) else { return false };
        let Some(next_start) = self.next_start.checked_add(length).and_then(|end| end.checked_add(WINDOW as u32 + 1))
        else {
            self.seen.fill(0);
            self.next_start = WINDOW as u32 + 1;
            return length < u32::MAX / 2 && self.deflate(data, out);
        };
        let start = std::mem::replace(&mut self.next_start, next_start);
        let short = data.len() < SHORT_BYTES;
        let codes = if short { &self.fixed } else { &self.page };
        let before = out.len();
        // No code is longer than 15 bits; the head has 120 bytes, and eight are written at a time.
        out.resize(before + data.len() * 2 + 256, 0);
        let mut bits = Bits { out: &mut out[before..], written: 0, held: 0, count: 0 };
        codes.head.iter().for_each(|code| bits.put_whole(*code));

        let (mut at, end) = (0, data.len().saturating_sub(MARGIN));
        while at < end {
            let look_at = end.min(at + LOOK_EVERY);
            at = squeeze(data, at, look_at, start, &mut self.seen, codes, &mut bits);
            if !short && bits.written * 8 > at * BITS_PER_BYTE_MAX + 2_048 {
                out.truncate(before);
                return false;
            }
        }
        for byte in &data[at..] {
            bits.put_whole(codes.literals[usize::from(*byte)]);
        }
        bits.put_whole(codes.end);
        let written = bits.written + usize::from(bits.count > 0);
        let fits = if short { written < data.len() } else { written * 8 <= data.len() * BITS_PER_BYTE_MAX };
        out.truncate(if fits { before + written } else { before });
        fits
    }
}

/// Writes `data` from `at` to `end` or a little further, as bytes and as copies of what came before. Returns where it stopped.
fn squeeze(
    data: &[u8],
    mut at: usize,
    end: usize,
    start: u32,
    seen: &mut [u32; 1 << HASH_BITS],
    codes: &Codes,
    bits: &mut Bits<'_>,
) -> usize {
    let last = data.len() - MARGIN;
    while at < end {
        let eight = eight_bytes(data, at);
        let (mut string, mut here) = (eight as u32, start + at as u32);
        let mut distance = (here - std::mem::replace(&mut seen[hash(string)], here)) as usize;
        if distance > WINDOW || four_bytes(data, at - distance) != string {
            bits.put(codes.literals[usize::from(string as u8)]);
            // The next byte too, from what was read for this one: a byte seldom comes alone.
            (string, here) = ((eight >> 8) as u32, here + 1);
            at += 1;
            distance = (here - std::mem::replace(&mut seen[hash(string)], here)) as usize;
            if distance > WINDOW || four_bytes(data, at - distance) != string {
                bits.put(codes.literals[usize::from(string as u8)]);
                bits.flush();
                at += 1;
                continue;
            }
        }
        let length = match_length(data, at - distance, at);
        let symbol = distance_symbol(distance);
        let code = codes.distances[symbol];
        bits.put(codes.lengths[length]);
        bits.put(code.with_extra(distance - usize::from(DISTANCE_BASE[symbol]), DISTANCE_EXTRA[symbol]));
        bits.flush();
        // Of the strings inside, the second and one near the end are remembered: what follows a repetition repeats often too.
        if at + length < last {
            for inside in [at + 1, at + length - 2] {
                seen[hash(four_bytes(data, inside))] = start + inside as u32;
            }
        }
        at += length;
    }
    at
}

fn four_bytes(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"))
}

fn eight_bytes(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"))
}

fn hash(string: u32) -> usize {
    (string.wrapping_mul(0x9E37_79B1) >> (32 - HASH_BITS)) as usize
}

/// How many bytes at `earlier` and at `later` are the same; four are known to be.
fn match_length(data: &[u8], earlier: usize, later: usize) -> usize {
    let most = MATCH_MAX.min(data.len() - later);
    let mut length = MATCH_MIN;
    while length + 8 <= most {
        let differs = eight_bytes(data, earlier + length) ^ eight_bytes(data, later + length);
        if differs != 0 {
            return length + (differs.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    while length < most && data[earlier + length] == data[later + length] {
        length += 1;
    }
    length
}

/// Which of the thirty classes a distance belongs to: two for each power of two.
fn distance_symbol(distance: usize) -> usize {
    let distance = distance - 1;
    if distance < 4 {
        return distance;
    }
    let top = distance.ilog2() as usize;
    2 * top + (distance >> (top - 1) & 1)
}

/// Writes codes one behind the other, least bit first.
struct Bits<'a> {
    out: &'a mut [u8],
    written: usize,
    held: u64,
    count: u32,
}

impl Bits<'_> {
    #[inline(always)]
    fn put(&mut self, code: Code) {
        self.held |= u64::from(code.bits) << self.count;
        self.count += code.count;
    }

    /// Afterwards there is room for a byte, a length and a distance: of the codes here they have 15, 12 + 5 and 9 + 13 bits at most.
    #[inline(always)]
    fn flush(&mut self) {
        self.out[self.written..self.written + 8].copy_from_slice(&self.held.to_le_bytes());
        self.written += (self.count / 8) as usize;
        self.held >>= self.count & !7;
        self.count &= 7;
    }

    fn put_whole(&mut self, code: Code) {
        self.put(code);
        self.flush();
    }
}

impl Code {
    fn new(bits: u32, count: u32) -> Code {
        Code { bits, count }
    }

    /// The code with the bits that follow it.
    #[inline(always)]
    fn with_extra(self, extra: usize, count: u8) -> Code {
        Code { bits: self.bits | (extra as u32) << self.count, count: self.count + u32::from(count) }
    }
}

impl Codes {
    fn of_pages() -> Codes {
        let mut head = vec![Code::new(0b101, 3)]; // the last block, with codes of its own
        head.push(Code::new(PAGE_LITERALS.len() as u32 - 257, 5));
        head.push(Code::new(PAGE_DISTANCES.len() as u32 - 1, 5));
        head.push(Code::new(LENGTHS_ORDER.len() as u32 - 4, 4));
        head.extend(LENGTHS_ORDER.iter().map(|symbol| Code::new(u32::from(LENGTHS_LENGTHS[*symbol]), 3)));
        let codes = canonical(&LENGTHS_LENGTHS);
        let lengths: Vec<u8> = PAGE_LITERALS.iter().chain(&PAGE_DISTANCES).copied().collect();
        for run in lengths.chunk_by(|a, b| a == b) {
            head.push(codes[usize::from(run[0])]);
            let mut left = run.len() - 1;
            while left > 0 {
                let again = left.min(6);
                // 16: the length before, three to six times.
                let repeats = again >= 3;
                head.push(if repeats { codes[16].with_extra(again - 3, 2) } else { codes[usize::from(run[0])] });
                left -= if repeats { again } else { 1 };
            }
        }
        Codes::new(head, &PAGE_LITERALS, &PAGE_DISTANCES)
    }

    fn fixed() -> Codes {
        let mut literals = [8; 288];
        literals[144..256].fill(9);
        literals[256..280].fill(7);
        Codes::new(vec![Code::new(0b011, 3)], &literals, &[5; 32])
    }

    fn new(head: Vec<Code>, literals: &[u8], distances: &[u8]) -> Codes {
        let (literals, distances) = (canonical(literals), canonical(distances));
        let mut lengths = Box::new([Code::default(); MATCH_MAX + 1]);
        for (length, code) in lengths.iter_mut().enumerate().skip(3) {
            let symbol = LENGTH_BASE.iter().rposition(|base| usize::from(*base) <= length).expect("three is the first");
            let extra = length - usize::from(LENGTH_BASE[symbol]);
            *code = literals[END + 1 + symbol].with_extra(extra, LENGTH_EXTRA[symbol]);
        }
        Codes {
            head,
            literals: literals[..256].try_into().expect("256 of them"),
            lengths,
            distances: distances[..30].try_into().expect("30 of them"),
            end: literals[END],
        }
    }
}

/// The codes that follow from their lengths (RFC 1951, 3.2.2).
fn canonical(lengths: &[u8]) -> Vec<Code> {
    let of_length = |length: usize| lengths.iter().filter(|known| usize::from(**known) == length).count() as u32;
    let mut next = [0; 16];
    for length in 2..16 {
        next[length] = (next[length - 1] + of_length(length - 1)) << 1;
    }
    let take = |length: &u8| {
        let code = &mut next[usize::from(*length)];
        *code += 1;
        let count = u32::from(*length);
        if count == 0 { Code::default() } else { Code::new((*code - 1).reverse_bits() >> (32 - count), count) }
    };
    lengths.iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inflated(stream: &[u8], length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        let written = libdeflater::Decompressor::new().deflate_decompress(stream, &mut out);
        assert_eq!(written, Ok(length));
        out
    }

    fn page(words: &[usize]) -> Vec<u8> {
        const WORDS: [&str; 8] = ["<p>", "</p>\n", "the ", "quick ", "<a href=\"/page\">", "</a>", "fox, ", "grüße "];
        words.iter().flat_map(|word| WORDS[word % 8].bytes()).collect()
    }

    #[test]
    fn codes_are_complete_and_leave_room_for_a_copy() {
        for lengths in [&PAGE_LITERALS[..], &PAGE_DISTANCES, &LENGTHS_LENGTHS] {
            let used = lengths.iter().filter(|length| **length > 0);
            assert_eq!(used.map(|length| 1u32 << (15 - length)).sum::<u32>(), 1 << 15, "{lengths:?}");
        }
        for codes in [Codes::of_pages(), Codes::fixed()] {
            let longest = |codes: &[Code]| codes.iter().map(|code| code.count).max().unwrap();
            let extra = u32::from(*DISTANCE_EXTRA.iter().max().unwrap());
            assert!(23 + longest(&codes.lengths[..]) + longest(&codes.distances) + extra <= 64);
            assert!(longest(&codes.literals) <= 15);
        }
    }

    #[test]
    fn pages_become_smaller_and_come_back() {
        let mut deflater = Deflater::new();
        for words in [0, 1, 300, 3_000, 100_000] {
            let page = page(&(0..words).map(|word: usize| word * 7919 % 1013).collect::<Vec<_>>());
            let mut out = b"before".to_vec();
            let deflated = deflater.deflate(&page, &mut out);
            assert_eq!(deflated, page.len() > 100, "{} bytes", page.len());
            assert_eq!(&out[..6], b"before");
            if deflated {
                assert_eq!(inflated(&out[6..], page.len()), page);
                assert!(out.len() < page.len());
            }
        }
    }

    #[test]
    fn copies_reach_as_far_and_are_as_long_as_they_may() {
        let mut deflater = Deflater::new();
        for gap in [32_700, 32_764, 32_768, 32_769, 40_000] {
            let mut data = b"<a href=\"https://example.org/\">".to_vec();
            data.resize(gap, b' ');
            data.extend_from_slice(b"<a href=\"https://example.org/\">");
            data.extend(std::iter::repeat_n(b'x', 1_000));
            let mut out = Vec::new();
            assert!(deflater.deflate(&data, &mut out));
            assert_eq!(inflated(&out, data.len()), data);
        }
    }

    #[test]
    fn what_is_not_written_like_a_page_is_left_to_others() {
        let noise: Vec<u8> = (0..100_000u64).map(|n| xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes()) as u8).collect();
        let mut out = Vec::new();
        assert!(!Deflater::new().deflate(&noise, &mut out));
        assert!(!Deflater::new().deflate(&noise[..500], &mut out));
        assert!(out.is_empty());
    }

    #[test]
    fn what_was_seen_is_forgotten_when_the_count_is_full() {
        let mut deflater = Deflater::new();
        let page = page(&[2, 3, 0, 1, 4, 5].repeat(200));
        for start in [u32::MAX - 40_000, u32::MAX - 1] {
            deflater.next_start = start;
            let mut out = Vec::new();
            assert!(deflater.deflate(&page, &mut out));
            assert_eq!(inflated(&out, page.len()), page);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_deflated_comes_back(
            pieces in proptest::collection::vec(prop_oneof![
                "[ -~]{0,40}".prop_map(String::into_bytes),
                proptest::collection::vec(any::<u8>(), 0..8),
                (0..600usize, any::<u8>()).prop_map(|(times, byte)| vec![byte; times]),
                proptest::collection::vec(0..8usize, 0..40).prop_map(|words| page(&words)),
            ], 0..60),
        ) {
            let data = pieces.concat();
            let mut deflater = Deflater::new();
            for data in [&data[..], &data[..data.len() / 2], &data[data.len() / 3..]] {
                let mut out = Vec::new();
                if deflater.deflate(data, &mut out) {
                    prop_assert_eq!(inflated(&out, data.len()), data);
                    prop_assert!(out.len() < data.len());
                }
            }
        }
    }
}
