//! Collects visible text: white space collapsed, blocks on lines of their own, never more than a bound.

/// What stands between two pieces of text, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Break {
    /// Nothing: `<b>w</b>ord` is one word.
    None,
    /// A space, as between the cells of a table.
    Space,
    /// A new line, as between paragraphs.
    Line,
}

/// Text while it is collected.
pub(super) struct TextBuilder {
    text: String,
    pending: Break,
    bytes_max: usize,
    cut: bool,
}

impl TextBuilder {
    /// A builder that keeps at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        TextBuilder { text: String::new(), pending: Break::None, bytes_max, cut: false }
    }

    /// The same, with room for what `source_bytes` of markup usually hold.
    pub(super) fn for_markup(bytes_max: usize, source_bytes: usize) -> Self {
        let expected = (source_bytes / 2).min(bytes_max).min(16 * 1024);
        TextBuilder { text: String::with_capacity(expected), ..TextBuilder::new(bytes_max) }
    }

    /// Whether text was dropped.
    pub(super) fn cut(&self) -> bool {
        self.cut
    }

    /// Puts at least `separator` between what came before and what comes next.
    pub(super) fn separate(&mut self, separator: Break) {
        self.pending = self.pending.max(separator);
    }

    /// Appends `piece`, which may begin or end in the middle of a word.
    pub(super) fn push(&mut self, piece: &str) {
        let plain = piece.trim_start_matches(' ');
        if plain.len() < piece.len() {
            self.separate(Break::Space);
        }
        let words = plain.trim_end_matches(' ');
        if !is_even(words.as_bytes()) {
            return self.push_uneven(plain);
        }
        if !words.is_empty() {
            self.push_line(words);
        }
        if words.len() < plain.len() {
            self.separate(Break::Space);
        }
    }

    /// Appends what has other white space than one space between two words.
    fn push_uneven(&mut self, piece: &str) {
        let bytes = piece.as_bytes();
        let mut at = 0;
        while at < bytes.len() && !self.cut {
            let blank = blank_bytes(&bytes[at..]);
            if blank > 0 {
                self.separate(Break::Space);
                at += blank;
                continue;
            }
            let end = line_end(bytes, at);
            self.push_line(&piece[at..end]);
            at = end;
        }
    }

    /// Appends words that have one space between them, at once if there is room.
    fn push_line(&mut self, line: &str) {
        if self.text.len() + 1 + line.len() <= self.bytes_max {
            return self.push_word(line);
        }
        for (number, word) in line.split(' ').enumerate() {
            if number > 0 {
                self.separate(Break::Space);
            }
            self.push_word(word);
            if self.cut {
                return;
            }
        }
    }

    fn push_word(&mut self, word: &str) {
        let separator = if self.text.is_empty() { Break::None } else { self.pending };
        let room = self.bytes_max.saturating_sub(self.text.len() + usize::from(separator != Break::None));
        if word.len() > room {
            self.cut = true;
            if !self.text.is_empty() && self.pending != Break::None {
                return; // ends with a whole word
            }
        }
        match separator {
            Break::None => {}
            Break::Space => self.text.push(' '),
            Break::Line => self.text.push('\n'),
        }
        self.pending = Break::None;
        self.text.push_str(&word[..word.floor_char_boundary(room)]);
    }

    /// The text.
    pub(super) fn finish(mut self) -> String {
        self.text.shrink_to_fit();
        self.text
    }
}

/// The bytes with which [`blank_bytes`] can find something: words are most of a text, and scanned by this table.
const MAY_BE_BLANK: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte, 0..=0x20 | 0x7F | 0xC2 | 0xE1..=0xE3);
        byte += 1;
    }
    table
};

/// Whether the bytes are words with one space between them, told without a look at each word: several bytes at a time. What cannot be told so
/// counts as uneven.
fn is_even(bytes: &[u8]) -> bool {
    let mut blocks = bytes.chunks(64);
    let odd = |odd: u8, byte: &u8| {
        let control = *byte < b' ' || *byte == 0x7F;
        let perhaps = *byte == 0xC2 || byte.wrapping_sub(0xE1) < 3;
        odd | u8::from(control | perhaps)
    };
    let double = bytes.windows(2).fold(0, |double, two| double | u8::from((two[0] == b' ') & (two[1] == b' ')));
    double == 0 && blocks.all(|block| block.iter().fold(0, odd) == 0)
}

/// Where the line ends that begins at `start`: words with one space between them, which need no change.
fn line_end(bytes: &[u8], start: usize) -> usize {
    let may_be_blank = |at: usize| bytes.get(at).is_none_or(|byte| MAY_BE_BLANK[usize::from(*byte)]);
    let mut at = start + 1;
    loop {
        while !may_be_blank(at) {
            at += 1;
        }
        match bytes.get(at) {
            Some(b' ') if !may_be_blank(at + 1) => at += 2,
            Some(_) if blank_bytes(&bytes[at..]) == 0 => at += 1,
            _ => return at,
        }
    }
}

/// Length of the white space or control character at the start of `bytes`, which is UTF-8; zero if it is neither.
#[inline]
fn blank_bytes(bytes: &[u8]) -> usize {
    match bytes {
        [0..=b' ' | 0x7F, ..] => 1,
        [0xC2, 0x80..=0xA0, ..] => 2, // C1 controls and the no-break space
        [0xE3, 0x80, 0x80, ..] => 3,  // the ideographic space
        [0xE2, 0x80, 0x80..=0x8A | 0xA8 | 0xA9 | 0xAF, ..] | [0xE2, 0x81, 0x9F, ..] | [0xE1, 0x9A, 0x80, ..] => 3,
        _ => 0,
    }
}

/// `text` with its white space collapsed, at most `chars_max` characters; `None` if nothing is left.
pub(super) fn collapse(text: &str, chars_max: usize) -> Option<String> {
    let mut builder = TextBuilder::new(chars_max.saturating_mul(4));
    builder.push(text);
    let mut collapsed = builder.finish();
    if let Some((end, _)) = collapsed.char_indices().nth(chars_max) {
        collapsed.truncate(end);
        collapsed.truncate(collapsed.trim_end().len());
    }
    (!collapsed.is_empty()).then_some(collapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_controls_and_no_break_spaces_collapse_to_one_space() {
        let mut builder = TextBuilder::new(100);
        builder.push(" \n a\t\tb\u{a0}\u{a0}c\0d\u{85}e ");
        builder.push(" f");
        builder.push("g");
        assert_eq!(builder.finish(), "a b c d e fg");
    }

    #[test]
    fn even_words_are_taken_as_they_are_and_give_the_same_text() {
        for text in [
            "",
            " ",
            "  ",
            "a",
            " a",
            "a ",
            "  a b  ",
            "a  b",
            "a\tb",
            "a\u{a0}b",
            "gr\u{fc}\u{df}e an alle",
            "a\u{3000}b",
            "\u{434}\u{430} \u{43d}\u{435}\u{442}",
            "a\u{7f}b",
            " \u{2003}x",
            "\n",
        ] {
            for before in ["", "x", "x "] {
                let (mut builder, mut slow) = (TextBuilder::new(100), TextBuilder::new(100));
                for builder in [&mut builder, &mut slow] {
                    builder.push_uneven(before);
                }
                builder.push(text);
                slow.push_uneven(text);
                for builder in [&mut builder, &mut slow] {
                    builder.push_uneven("y");
                }
                assert_eq!(builder.finish(), slow.finish(), "{before:?} {text:?}");
            }
        }
    }

    #[test]
    fn the_strongest_separator_wins_and_none_stands_at_the_ends() {
        let mut builder = TextBuilder::new(100);
        builder.separate(Break::Line);
        builder.push("a ");
        builder.separate(Break::Line);
        builder.separate(Break::Space);
        builder.push(" b ");
        builder.separate(Break::Line);
        assert_eq!(builder.finish(), "a\nb");
    }

    #[test]
    fn text_is_cut_at_a_whole_word_or_at_least_a_whole_character() {
        let mut builder = TextBuilder::new(7);
        builder.push("abc defgh");
        assert!(builder.cut());
        assert_eq!(builder.finish(), "abc");
        let mut builder = TextBuilder::new(5);
        builder.push("äöüß");
        assert_eq!(builder.finish(), "äö");
    }

    #[test]
    fn titles_are_cut_by_characters() {
        assert_eq!(collapse("  ä ö  ü ", 3), Some("ä ö".into()));
        assert_eq!(collapse("ä ö ü", 2), Some("ä".into()));
        assert_eq!(collapse(" \n ", 9), None);
    }
}
